"""Small templates that use each part of Jinja; whether they render or are refused is jinja2's to say."""

VALUES = {
    "n": 7,
    "z": 0,
    "neg": -3,
    "f": 2.5,
    "big": 9007199254740993,
    "t": True,
    "none_value": None,
    "s": "Hello, World",
    "u": "Stra\u00dfe \u0130 \u03a3\u0391\u03a3 \u01c6 \u4f60\u597d \U0001f600",
    "sp": " \t a  b\u00a0c\n",
    "q": 'it\'s "quoted" \\ \n\t\x01\u200b\u2028',
    "html": "<a href='x'>&\"</a>",
    "e": "",
    "words": "one two  three",
    "lines": "a\nb\r\nc\n\nd",
    "xs": [3, 1, 2],
    "ss": ["b", "A", "c"],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": 1}],
    "empty": [],
    "d": {"b": 1, "a": [1, 2], "items": "shadowed", "C": None},
    "nested": {"x": {"y": [{"z": "deep"}]}},
    "users": [{"name": "bob", "age": 3}, {"name": "Al", "age": 10}, {"name": "cy", "age": 3, "x": True}],
    "floats": [0.1, 1e16, 1e15, 1e-5, 0.0001, -0.0, 123456789.123, 1e300, 5e-324, 100.0],
}

EXPRESSIONS = (
    r"""
1 + 2 * 3 - 4
7 // 2 ~ -7 // 2 ~ 7 // -2 ~ -7 % 3 ~ 7 % -3
7 / 2
8 / 2
1 / 0
1 // 0
1 % 0
1.0 / 0
2 ** 10
2 ** -1
2 ** 0.5
-2 ** 2
2 ** 3 ** 2
7.5 // 2 ~ ' ' ~ 7.5 % 2 ~ ' ' ~ -7.5 // 2 ~ ' ' ~ -7.5 % 2
1e3
1_000 + 0x1f + 0b101 + 0o17
1.5e-7
12.
.5
0123
1e400
-n
+n
- -n
-s
n + f
t + t
t * 3
n + s
s + n
s ~ n ~ none ~ true ~ f
s * 2
2 * s
s * -1
xs * 2
xs + ss
xs + s
(1, 2) + (3,)
(1, 2) + [3]
[1] * 1.5
n < 10 < 20
1 < 2 > 1 == 1
1 < 's'
's' < 't'
[1, 2] < [1, 3]
[1, 'a'] < [1, 2]
(1, 2) < (1, 2, 3)
none == none
none < 1
1 == 1.0 == true
1 != 2
'a' in 'abc'
1 in 'abc'
1 in xs
'b' in d
[1] in d
1 not in xs
nope in xs
'x' in nope
1 in n
not n
not not e
n and s
e and s
e or s or n
s if n
s if z
s if z else e
(s if z).x
1 if 0 else 2 if 0 else 3
true
True
false
None
none
nope
nope.x
nope['x']
nope()
nope + 1
1 + nope
nope ~ 1
nope == nope
nope == none
nope != 1
nope < 1
-nope
nope|length
nope|list
nope|upper
nope|default('d')
nope|d
none|default('d')
e|default('d', true)
e|default('d', boolean=true)
z|default(5, true)
nope is defined
nope is undefined
s is defined
none is none
n is none
d.nope is defined
d.nope.x is defined
none.x is defined
n.x is defined
s.x is defined
xs[7] is defined
xs[7]
xs['a'] is defined
s[40] is defined
n is number
t is number
f is number
s is number
n is integer
t is integer
f is float
t is boolean
t is true
n is true
z is false
s is string
d is mapping
xs is mapping
xs is sequence
s is sequence
d is sequence
n is sequence
none is sequence
nope is sequence
xs is iterable
n is iterable
s is iterable
none is iterable
d.items() is iterable
d.items() is sequence
n is odd
n is even
f is odd
s is odd
n is divisibleby 7
n is divisibleby(2)
n is not even
n is eq 7
n is ne 7
n is gt 3
n is lessthan 3
n is ge 7
n is in xs
3 is in xs
n is sameas n
none is sameas none
true is sameas true
s is lower
s|lower is lower
s is upper
'ABC' is upper
'abc1' is lower
'1' is lower
s is escaped
s|safe is escaped
s is callable
s.upper is callable
'upper' is filter
'nope' is filter
'defined' is test
n is nosuch
n|nosuch
n is defined and s is string
n is string or s is string
[n is odd, n is even]
s is string == true
'a' is in 'abc'
s[0]
s[-1]
s[99]
s[1:4]
s[:-3]
s[::-1]
s[::2]
s[10:2:-3]
s[-5:]
s[5:2]
s[::0]
u[0:4]
u[-1]
u[::-1]
u|length
xs[0]
xs[-1]
xs[1:]
xs[::-1]
xs[:1] + xs[1:]
xs[5:]
(1, 2, 3)[1:]
xs[n]
xs[true]
xs[1.0]
xs['0']
xs.0
nested.x.y.0.z
nested['x']['y'][0]['z']
nested.x['nope']
d['b']
d.b
d['items']
d.nope
d[none]
d[1:2]
n[1:]
none_value[1:]
n[0]
s.nope
s['upper']()
xs.count(1)
xs.index(2)
xs.index(9)
(1, 2, 1).count(1)
xs.append(4)
xs.pop()
xs.append
d.pop('b')
d.update({})
d.clear is defined
d.get('b')
d.get('nope')
d.get('nope', 5)
d.get()
d.get('a', 1, 2)
d.keys()
d.values()
d.items()
d.keys()|list
d|list
d|length
d.keys()|length
d.items()|list
d|items|list
nope|items|list
d.copy()
d.__class__
d.__len__()
s.__class__.__mro__
''.__class__ is defined
()
(1,)
(1, 2)
1, 2
[]
[1, 'a', none, true, 2.5]
{}
{'a': 1, "b": [1, 2]}
{'a': 1, 'a': 2}
{1: 'x', true: 'y', 1.0: 'z'}
{[1]: 2}
{(1, 2): 3}
mixed
q
[q]
[u]
[html]
['\'', '"', '\'"', '\\', '\n', '\x7f', '\xa0', '\xad']
floats
floats|tojson
[1e16, 123456789012345680.0, 1e22]
1.0
1e5
1e16
big
9223372036854775807
s|upper
s|lower
u|upper
u|lower
u|capitalize
u|title
u.title()
u.swapcase()
'\u01c6\u01c6 \ufb01x'|title
'\u01c6\u01c6 \ufb01x'.title()
'\u01c6\u01c6 \ufb01x'.capitalize()
'\u03a3\u03a3 a\u03a3. \u03a3a'.lower()
'they\'re bill\'s friends'.title()
'they\'re bill\'s (friends)-x <b'|title
s|capitalize
n|upper
none|upper
sp|trim
sp|trim|length
'xxaxx'|trim('x')
'xxaxx'|trim(chars='x')
sp.strip()
sp.lstrip()
sp.rstrip()
'abcba'.strip('ab')
'abcba'.lstrip('ab')
'abcba'.rstrip('ab')
'abc'.strip(none)
'abc'.strip(1)
'\u4f60a\u4f60'.strip('\u4f60')
s|replace('l', 'L')
s|replace('l', 'L', 1)
s|replace('', '-')
s|replace('', '-', 3)
'aaa'|replace('aa', 'b')
s|replace('o')
n|replace('7', '8')
s.replace('l', 'L')
s.replace('l', 'L', 2)
s.replace('', '-')
s.replace('l', 'L', -1)
e.replace('', 'x')
s.replace('l', 1)
words.split()
words.split(' ')
words.split(none, 1)
words.split(' ', 1)
words.split(' ', maxsplit=1)
words.split(sep=' ')
words.split('')
words.rsplit(' ', 1)
words.rsplit(none, 1)
words.rsplit()
sp.split()
sp.split(none, 1)
sp.rsplit(none, 1)
e.split()
e.split(',')
'a,b,,c,'.split(',')
'a,b,,c,'.rsplit(',', 2)
'aXXbXXc'.split('XX')[-1]
words.partition(' ')
words.rpartition(' ')
words.partition('zz')
words.rpartition('zz')
lines.splitlines()
lines.splitlines(true)
lines.splitlines(keepends=true)
'\x0b\x0c\x1c\x85\u2028a'.splitlines()
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith(['x'])
s.startswith('ello', 1)
s.startswith('ello', 1, 3)
s.endswith('rld')
s.endswith(('a', 'd'))
s.endswith('')
s.startswith(1)
s.find('o')
s.find('o', 5)
s.find('o', -3)
s.rfind('o')
s.find('zz')
s.index('zz')
s.index('W')
u.find('\u597d')
s.count('l')
s.count('')
'aaaa'.count('aa')
s.removeprefix('Hello')
s.removesuffix('World')
s.removeprefix('x')
', '.join(ss)
', '.join(xs)
', '.join('abc')
''.join([])
s.center(20, '*')
'ab'.center(5, '*')
'abc'.center(6, '*')
s.ljust(15) ~ '|'
s.rjust(15, '\u4f60')
'-5'.zfill(5)
'5'.zfill(3)
'abc'.zfill(2)
s.isalpha()
'abc'.isalpha()
'\u00e9\u4f60'.isalpha()
'12'.isdigit()
'1.2'.isdigit()
'\u00b2'.isdigit()
''.isdigit()
'12'.isnumeric()
'\u00bd'.isnumeric()
'12'.isdecimal()
'ab1'.isalnum()
' \t'.isspace()
'AB'.isupper()
'ab'.islower()
'\u00aa'.islower()
'Ab Cd'.istitle()
'abc'.isascii()
u.isascii()
'abc'.nope()
'%s and %s'|format('a', 1)
'%s'|format(xs)
'%s'|format()
'%(a)s %(b)d'|format(a='x', b=3)
'%s %s' % ('a', 'b')
'%s' % 'a'
'%d' % 3.7
'%d' % 'a'
'%5.2f|%-5d|%05d|%+d|% d|%x|%X|%o|%e|%g|%c|%r|%%' % (3.14159, 3, 3, 3, 3, 255, 255, 8, 1234.5, 0.0001, 'x', 'y')
'%#x %#o' % (255, 8)
'%.3s|%10s|%-10s|' % ('abcdef', 'abc', 'abc')
'%*d' % (5, 3)
'%s' % none
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%z' % 1
'%' % 1
'%s' % {'a': 1}
'abc' % {'a': 1}
'abc' % 1
'abc' % [1]
'%(a)s' % {'a': 1}
'%(b)s' % {'a': 1}
'{} {}'.format(1, 'b')
'{0} {1} {0}'.format('a', 'b')
'{x} {y[0]} {z.b}'.format(x=1, y=[2], z={'b': 3})
'{:>5}|{:<5}|{:^5}|{:*^7}|'.format('a', 'b', 'c', 'd')
'{:5}|{:05d}|{:+d}|{:,}|{:.2f}|{:e}'.format(3, 42, 7, 1234567, 3.14159, 12345.678)
'{:%}|{:x}|{:#x}|{:b}|{:_}|{:,.2f}'.format(0.25, 255, 255, 5, 12345, 12345.678)
'{:g} {:.3g} {} {:.1f}'.format(0.00001, 1234.5, 1.0, 2)
'{!r} {!s}'.format('a', 'b')
'{:{}}|'.format('a', 5)
'{{}} {}'.format(1)
'{} {0}'.format(1)
'{}'.format()
'{'.format()
'}'.format()
'{a}'.format()
'{:d}'.format('a')
'{:s}'.format('a')
'{:.2}'.format('abc')
'{}'.format(none)
'{:5}'.format(none)
'{}'.format(xs)
'{:5}'.format(true)
'{0[x][y]}'.format(nested)
'{.__class__}'.format(1)
xs|join
xs|join(', ')
xs|join(d='-')
users|join(', ', attribute='name')
users|join(', ', 'age')
s|join('-')
d|join(',')
none|join
n|join
mixed|join('|')
xs|length
n|length
none|length
xs|count
xs|first
empty|first
s|first
d|first
xs|last
empty|last
s|last
n|first
xs|list
s|list
n|list
xs|reverse|list
s|reverse
n|reverse
d|reverse|list
xs|sort
ss|sort
ss|sort(case_sensitive=true)
xs|sort(reverse=true)
xs|sort(true)
users|sort(attribute='name')|map(attribute='name')|list
users|sort(attribute='age,name')|map(attribute='name')|list
users|sort(attribute='age', reverse=true)|map(attribute='name')|list
users|sort(attribute='x')
mixed|sort
d|sort
d|dictsort
{'b': 1, 'A': 2}|dictsort
{'b': 1, 'A': 2}|dictsort(true)
{'b': 1, 'a': 2}|dictsort(by='value')
{'b': 1, 'a': 2}|dictsort(false, 'value', true)
d|dictsort(by='x')
xs|dictsort
xs|min
xs|max
ss|min
ss|max
ss|min(case_sensitive=true)
empty|min
users|max(attribute='age')
users|min(attribute='name')
mixed|max
xs|sum
floats|sum
users|sum(attribute='age')
users|sum('age', 100)
ss|sum
[[1], [2]]|sum(start=[])
xs|unique|list
['a', 'A', 'b', 'a']|unique|list
['a', 'A', 'b', 'a']|unique(true)|list
users|unique(attribute='age')|map(attribute='name')|list
[1, 1.0, true, 2]|unique|list
[[1], [1]]|unique|list
users|map(attribute='name')|list
users|map(attribute='nope')|list
users|map(attribute='x', default='no')|list
users|map(attribute='name')|map('upper')|join(',')
ss|map('lower')|list
ss|map('replace', 'b', 'x')|list
xs|map('nosuch')|list
[nested]|map(attribute='x.y.0.z')|list
[[1, 2], [3, 4]]|map(attribute=1)|list
[[1, 2], [3, 4]]|map('first')|list
[[1, 2], [3, 4]]|map('sum')|list
none|map('upper')|list
xs|select|list
[0, 1, none, 'a']|select|list
xs|select('odd')|list
xs|select('gt', 1)|list
xs|select('in', [1, 2])|list
xs|reject('odd')|list
[0, 1]|reject|list
xs|select('nosuch')|list
users|selectattr('x')|map(attribute='name')|list
users|selectattr('x', 'defined')|map(attribute='name')|list
users|selectattr('age', 'equalto', 3)|map(attribute='name')|list
users|selectattr('age', '==', 3)|list|length
users|selectattr('name', 'in', ['bob'])|list|length
users|rejectattr('x')|map(attribute='name')|list
users|rejectattr('age', 'gt', 5)|map(attribute='name')|list
users|selectattr('x')|length
xs|select('odd')|first
xs|select('odd')|last
xs|batch(2)|list
xs|batch(2, 'x')|list
xs|batch('x')|list
xs|batch('x', 1)|list
xs|batch(2.0)|list
xs|batch(0)|list
e|batch('x')|list
xs|slice(2)|list
xs|slice(2, 'x')|list
xs|slice(0)|list
xs|slice(5)|list
users|groupby('age')
users|groupby('age')|map('first')|list
users|groupby('x', default='none')|map('first')|list
users|groupby('name')|map(attribute='grouper')|list
s|int
'42'|int
' 42 '|int
'4_2'|int
'42.9'|int
'0x1f'|int
'0x1f'|int(base=16)
'1f'|int(0, 16)
'z'|int(5)
'z'|int(default=5)
none|int
true|int
3.99|int
-3.99|int
'1e3'|int
''|int
xs|int
nope|int
'3.5'|float
'x'|float
'x'|float(1.5)
' 1e3 '|float
'inf'|float
'-nan'|float
none|float
n|float
nope|float
neg|abs
-2.5|abs
s|abs
2.5|round
3.5|round
-2.5|round
2.567|round(2)
2.567|round(2, 'floor')
2.561|round(2, 'ceil')
n|round
15|round(-1)
25|round(-1)
1234.5|round(-2)
2.5|round(0, 'x')
s|round
0.1 + 0.2
(0.1 + 0.2)|round(3)
n|string + '!'
n|string
none|string
xs|string
s|safe
s|safe + html
html + s|safe
html|safe ~ html
html|e
html|escape
html|e|e
html|safe|e
html|forceescape
xs|e
(html|e) + html
(html|e).upper()
(html|e)[0:3]
(html|e)|replace('&', 'x')
[html|safe]
html|safe|tojson
s|tojson
q|tojson
u|tojson
u|tojson(ensure_ascii=true)
mixed|tojson
d|tojson
d|tojson(indent=2)
nested|tojson(indent=4)
nested|tojson(indent='--')
nested|tojson(indent=0)
mixed|tojson(separators=(',', ':'))
mixed|tojson(indent=1, separators=(',', ':'))
{'b': 1, 'a': 2}|tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 2.5: 6}|tojson
{(1, 2): 3}|tojson
{1: 2, 'a': 3}|tojson(sort_keys=true)
(1, 2)|tojson
nope|tojson
[nope]|tojson
range(3)|tojson
d.items()|tojson
d.items()|list|tojson
''|tojson
[]|tojson(indent=2)
{'a': []}|tojson(indent=2)
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2)
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, first=true, blank=true)
'a\nb'|indent('> ')
'a\nb\n'|indent(1)
''|indent
n|indent
'a b c d e f g h'|truncate(7)
'a b c d e f g h'|truncate(9, true)
'a b c d e f g h'|truncate(9, true, '!', 0)
'foo bar baz qux'|truncate(11, false, '...', 0)
words|wordcount
u|wordcount
'a b&c/d\u00e9'|urlencode
{'a b': 1, 'c': '&/'}|urlencode
[('a', 1)]|urlencode
s|center(20) ~ '|'
1|filesizeformat
1000|filesizeformat
1024|filesizeformat(true)
123456789|filesizeformat
'5'|filesizeformat
d|attr('b') is defined
range(3)
range(1, 10, 3)
range(3)|list
range(5, 0, -2)|list
range(0)
range(1, 2, 0)
range(100001)
range(10 ** 12)
range('a')
range(3)[1]
range(3)|length
dict(a=1, b=2)
dict([('a', 1)])
dict({'a': 1}, b=2)
dict(1)
namespace(a=1).a
namespace({'a': 1}).a
namespace(a=1)
namespace(_a=1)
namespace(a=1).b is defined
cycler('a', 'b').next()
cycler()
joiner()() ~ 'x'
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %j %%')
strftime_now('')
strftime_now(1)
raise_exception('no')
raise_exception()
'a' 'b' "c"
'\x41\u00e9\U0001F600\101\n'|tojson
'\
'
'\x4'
"it's"
n.__add__(1)
s|upper|lower|title|length
(n)(1)
n()
[1, 2,]
{'a': 1,}
[,]
(1 2)
{1}
1 +
s.
s|
a b
1 if
x for x in xs
lambda: 1
`a`
a = 1
a := 1
1 is
1 is is
1 is odd is odd
s!r
$
n ? 1 : 2
s[1, 2]
s[1:2, 3]
xs[1:2:1:1]
f(a=1, 2)
f(*xs, 1)
f(**d, *xs)
'%s-%s' % (1, 2) ~ '!'
'{}-{}'.format(*xs[:2])
dict(**{'a': 1})
dict(**xs)
dict(a=1, **{'a': 2})
s.split(*[' '], **{'maxsplit': 1})
s.upper(1)
s.upper(x=1)
s.split(nope=1)
s|upper(1)
s|trim(1, 2)
xs|join('a', 'b', 'c')
n|default(1, 2, 3)
true and false or true
not true == false
1 + 1 ~ 2 * 3
'a' ~ 1 + 2
-1|abs
-1 is number
2 ** -1|abs
-f|int
1.5.x
[1][0][0]
'abc'|first|upper
'a' < 'b' and 'b' < 'c'
'\u00e9' > 'z'
'\U0001f600' > '\uffff'
true < 2
'a' == 1
none is string
[1, [2, [3]]] == [1, [2, [3]]]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
(1, 2) == [1, 2]
range(2) == [0, 1]
d.items()|first
d.keys() == d.keys()
loop
caller
varargs
'x' in namespace(x=1)
namespace() == namespace()
xs is sameas xs
9223372036854775807 // -1
-9223372036854775807 - 1
""".strip("\n")
    .replace("'\\\n'", "'\\@'")
    .split("\n")
)
EXPRESSIONS = [expression.replace("\\@", "\\\n") for expression in EXPRESSIONS]

TEMPLATES = [
    "a\n{% if t %}\n  b\n{% endif %}\nc\n",
    "a\n  {% if t %}  \n  b\n  {% endif %}\nc\n\n",
    "a\n  {%+ if t %}\n  b\n  {%- endif +%}\nc",
    "a {%- if t -%}  b  {%- endif -%}  c",
    "{{ n }}\n{{- n -}}\n {{ n }}",
    "x  {{- 1 -}}  y  {{ 2 -}}\n\n z",
    "x\n  {# c #}\n y {#- c -#} z {# a\nb #}",
    "x\n  {# c +#}\n y {#+ c #}\nz",
    "{# never closed",
    "{% raw %}{{ x }}{% y %}{# z #}{% endraw %}",
    "a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb",
    "a {%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "a {% raw +%} b {% endraw %}",
    "{% raw %} never",
    "{%raw%}a{%endraw%}",
    "a\r\nb\rc\n{% if t %}\r\nd{% endif %}\r\n",
    "{{ 'a\r\nb' }}",
    "",
    "\n",
    "\n\n",
    "{{ 1 }}\n",
    "{{",
    "{%",
    "{{ 1 ",
    "{% if %}",
    "{% if t %}",
    "{% endif %}",
    "{% nope %}",
    "{% if t %}{% endfor %}",
    "{ { } } % } {",
    "}} %} #}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a': {'b': 1}}}}",
    "{% if z %}1{% elif n %}2{% else %}3{% endif %}",
    "{% if z %}1{% elif e %}2{% else %}3{% endif %}",
    "{% if z %}1{% elif e %}2{% endif %}",
    "{% if t: %}1{% endif %}",
    "{% for x in xs %}{{ x }},{% endfor %}",
    "{% for x in empty %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in nope %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in none %}{{ x }}{% endfor %}",
    "{% for x in n %}{{ x }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in xs %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}no{% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [1, 1, 2, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in xs %}{{ loop }}{% endfor %}",
    "{% for x in xs %}{{ loop.nope }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in xs %}{% for y in range(loop.index) %}{{ y }}{% endfor %};{% endfor %}",
    "{% for x in xs %}{% set out = loop %}{% for y in xs %}{{ out.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% break %}{% else %}E{% endfor %}",
    "{% for x in xs %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% else %}{% break %}{% endfor %}",
    "{% break %}",
    "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in xs %}{% set y %}a{% break %}{% endset %}{% endfor %}z",
    "{% for x in xs %}{% with %}{% break %}{% endwith %}{% endfor %}z",
    "{% for x in [[1, [2, 3]], [4]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}"
    "{% endif %}{% endfor %}",
    "{% for x in xs %}{{ loop([1]) }}{% endfor %}",
    "{% for loop in xs %}{{ loop }}{% endfor %}",
    "{% for x in xs %}{% set loop = 1 %}{% endfor %}",
    "{% for x in xs %}{% endfor %}{{ x }}",
    "{% for n in xs %}{{ n }}{% endfor %}{{ n }}",
    "{% for x.y in xs %}{% endfor %}",
    "{% for 1 in xs %}{% endfor %}",
    "{% for x in xs: %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in xs if x %}{{ loop.last }}{% endfor %}",
    "{% for x in (xs if t else ss) %}{{ x }}{% endfor %}",
    "{% set a = 1 %}{{ a }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = 1 %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set true = 1 %}",
    "{% set 'a' = 1 %}",
    "{% set a.b = 1 %}",
    "{% set a %}x{{ n }}{% endset %}[{{ a }}]",
    "{% set a|upper %}x{{ s }}{% endset %}[{{ a }}]",
    "{% set a | upper | replace('X', 'y') %}x{% endset %}{{ a }}",
    "{% set a = 1 %}{% if t %}{% set a = 2 %}{% endif %}{{ a }}",
    "{% set a = 1 %}{% for x in xs %}{% set a = a + x %}{{ a }},{% endfor %}{{ a }}",
    "{% for x in xs %}{{ a is defined }}{% set a = 1 %}{% endfor %}",
    "{% if t %}{% set b = 1 %}{% endif %}{{ b }}{% if z %}{% set c = 1 %}{% endif %}{{ c is defined }}",
    "{% set ns = namespace(c=0) %}{% for x in xs %}{% set ns.c = ns.c + x %}{% endfor %}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns.a %}x{% endset %}{{ ns.a }}",
    "{% set ns = namespace(found=false) %}{% for x in xs if not ns.found %}{% if x == 3 %}{% set ns.found = true %}"
    "{% endif %}{% endfor %}{{ ns.found }}",
    "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% set ns = namespace(a=1) %}{{ ns }}",
    "{% set d.x = 1 %}",
    "{% set nope.x = 1 %}",
    "{% set n = n + 1 %}{{ n }}",
    "{% macro m(a, b=2) %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}",
    "{% macro m(a, b=2) %}[{{ a }}]{% endmacro %}{{ m(1, 2, 3) }}",
    "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(c=3) }}",
    "{% macro m(a) %}[{{ a is defined }}]{% endmacro %}{{ m() }}",
    "{% macro m(a, b=a) %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2) }}{{ m(1) }}",
    "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}{{ m }}{% endmacro %}{{ m() }}{{ m.name }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}x{{ n }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}x{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}a{% endmacro %}{% call m() %}x{% endcall %}",
    "{% macro m(caller) %}{{ caller }}{% endmacro %}",
    "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}",
    "{% macro outer() %}{% call inner() %}{{ caller() }}{% endcall %}{% endmacro %}"
    "{% macro inner() %}<{{ caller() }}>{% endmacro %}{% call outer() %}x{% endcall %}",
    "{% call nope() %}x{% endcall %}",
    "{% call 1 %}x{% endcall %}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a='x')|upper }}{{ m('y') ~ 'z' }}{{ m is callable }}",
    "{% macro m(**x) %}{% endmacro %}",
    "{% macro m(a) -%}\n  {{ a }}\n{%- endmacro %}\n{{ m(1) }}",
    "{% set m = 1 %}{% macro m() %}x{% endmacro %}{{ m() }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% if t %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}",
    "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}aa{% endfilter %}",
    "{% filter nosuch %}a{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% with %}{% set q = 5 %}{{ q }}{% endwith %}{{ q|length }}",
    "{% with a, b = (1, 2) %}{{ a }}{% endwith %}",
    "{% generation %}a{{ n }}{% set k = 1 %}{% endgeneration %}{{ k is defined }}",
    "{% for x in xs %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}",
    "{% generation %}",
    "{% print 1, 2 %}",
    "{% print %}",
    "{% do xs.append(1) %}",
    "{% include 'a' %}",
    "{% import 'a' as b %}",
    "{% from 'a' import b %}",
    "{% extends 'a' %}",
    "{% set x = [] %}{% set x = x + [1] %}{{ x }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set x = c.reset() %}"
    "{{ c.next() }}",
    "{% set j = joiner('|') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% set g = xs|map('string') %}{{ g|list }}{{ g|list }}",
    "{% set g = xs|select('odd') %}{{ g|first }}{{ g|list }}",
    "{% if messages is defined and messages|length == 0 %}x{% endif %}",
    "{{ bos_token }}{{ messages }}{{ add_generation_prompt }}{{ tools is defined }}",
    "{%- for m in messages %}\n{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n{%- endfor %}",
    "{% set x = {'a': n} %}{{ x.a }}{{ x['a'] }}{{ x.get('a') }}",
    "{{ x.y.z if x is defined and x.y is defined else 'no' }}",
    "{{ [x for x in xs] }}",
    "{{ 1 if t }}{{ 1 if z }}",
    "{{ '{{' }}{{ '}}' }}{{ '%}' }}{{ '{#' }}",
    "{{ \"a'b\" ~ 'c\"d' }}",
    "{{ 1 }}{{ 2 }}{{- 3 }}\n\n{{- 4 }}",
    "{% if t -%}\n\n x \n\n{%- endif %}",
    "  {% if t %}x{% endif %}  {% if t %}y{% endif %}",
    "\t{% if t %}\n\ty\n\t{% endif %}\nz",
    "a{% if t %}\n\n{% endif %}b",
    "\u00a0\n\u2003{% if t %}x{% endif %}\u2003{%- if t %}y{% endif %}",
    "{{ nested.x.y|map(attribute='z')|join }}",
    "{{ ('a', 'b')|join }}{{ ('a',)|length }}",
    "{% for i in range(3) -%}{{ i }}{%- if not loop.last %}, {% endif -%}{% endfor %}",
    "{%- set a = 1 -%}\n\n{%- set b = 2 -%}\n{{ a + b }}",
    "{% set x = 'a' if t else 'b' %}{{ x }}",
    "{% if not (n == 7 and s is string) or false %}a{% else %}b{% endif %}",
    "{% if n is not defined or n is none %}a{% endif %}{% if 'a' not in ss and 3 in xs %}b{% endif %}",
    "{{ loop }}{% for x in xs %}{% endfor %}{{ loop }}",
    "{% if z %}{{ n|nosuch }}{% endif %}ok",
    "{{ (n|nosuch) if z else 1 }}",
    "{{ a.b = 1 }}",
    "{% set\nx\n=\n1 %}{{\nx\n}}",
    "{{ 'a' if n == 7 else raise_exception('x') }}{{ raise_exception('Only ' ~ s) if z }}",
]

# Jinja reads these, or prints an address; each is refused by a sentence that says so.
REFUSED = {
    "{{ d.items }}": "a value that prints, got the function items",
    "{{ xs|map('string') }}": "a value that prints, got a generator",
    "{{ 'abc'.encode() }}": 'has no attribute "encode"',
    "{{ '\\N{BULLET}' }}": "an escape of a number, got one of a name",
    "{% block a %}x{% endblock %}": 'a template that is whole, got the tag "block"',
    "{% include 'a' %}": 'a template that is whole, got the tag "include"',
    "{% autoescape false %}x{% endautoescape %}": 'a tag that is read, got "autoescape"',
    "{{ 9223372036854775808 }}": "an integer of 64 bits",
    "{{ 9223372036854775807 + 1 }}": "integers of 64 bits",
    "{{ 2 ** 64 }}": "integers of 64 bits",
    "{{ -(-9223372036854775807 - 1) }}": "integers of 64 bits",
    "{{ '\\ud800' }}": "an escape of a character",
}
