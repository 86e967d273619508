// GGUF's name of the way in which a tokenizer.json cuts texts.
#include <string_view>
#include <vector>

#include "bie/formats/error.h"
#include "bie/text/tokenizer.h"
#include "text/split_rules.h"

namespace bie::text {
namespace {

/// Texts that some rules cut apart and others do not: digits, endings of words with and without capitals, spaces and
/// line ends in rows, marks, signs before words, letters of several scripts.
constexpr std::string_view probes[] = {
    "It cost 1234567 and 12,345.678 in 2024, or 7 of 80",
    "I'm sure we've seen it's they'RE YOU'LL'd don't",
    "one  two   three\t\tfour \n five\n\n\nsix\r\n  \r\n seven    ",
    "(brackets) [and] {more}; a/b\\c --flag=value $x += 3; #include <stdio.h>\n//note\n",
    "CamelCaseWords HTTPServer iPhone McDonald O'Neill aB\xc3\x89\xc3\xa9",
    "na\xc3\xafve caf\xc3\xa9 Stra\xc3\x9f\x65 e\xcc\x81 a\xcc\x88o",
    ("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x86\xe3\x82\xad\xe3\x82\xb9\xe3\x83\x88 "
     "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82 "
     "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4"),
    ("\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd0\xbc\xd0\xb8\xd1\x80 "
     "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 \xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6"
     "\xe0\xa5\x80 \xd9\xa1\xd9\xa2\xd9\xa3 \xe0\xb9\x84\xe0\xb8\x97\xe0\xb8\xa2"),
    "\xf0\x9f\x98\x80\xf0\x9f\x8e\x89 !!!??? ... \xe2\x80\x94 \xe2\x82\xac 5 \xc2\xbd \xe2\x85\xa7 x\xc2\xb2",
    "\"quoted,\" he said. _under_score_ *star* `tick` ~tilde~ <tag> a|b ^ %d%",
};

}  // namespace

std::string gguf_rule(const Vocabulary& vocabulary) {
  const Tokenizer own(vocabulary);
  for (const std::string& name : split_rules()) {
    Vocabulary as_file = vocabulary;
    as_file.description.clear();
    as_file.splitter = name;
    const Tokenizer other(as_file);
    bool same = true;
    for (const std::string_view probe : probes) same = same && own.encode(probe, false) == other.encode(probe, false);
    if (same) return name;
  }
  throw formats::Error("the tokenizer: expected texts cut by a rule that GGUF has a name for, got another rule");
}

}  // namespace bie::text
