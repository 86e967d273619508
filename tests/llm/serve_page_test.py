"""The chat page of bie serve in headless Chromium, which the tests drive through its debugging pipe."""

import http.server
import importlib.util
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Chromium, Page
from serving import PATIENCE, Server, until

WIDTHS = (320, 800, 1280)


class Upstream(http.server.ThreadingHTTPServer):
    """Answers GET as the real server does, and POST with the deltas that a test has put there."""

    daemon_threads = True

    def __init__(self, real: Server):
        super().__init__(("127.0.0.1", 0), Handler)
        self.real, self.deltas, self.error, self.pause = real, [], None, 0.0
        self.url = f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Upstream

    def log_message(self, *_) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        reply = self.server.real.get(self.path)
        self.begin(reply.status, {name: reply.headers[name] for name in reply.headers if name != "Connection"})
        self.wfile.write(reply.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.begin(200, {"Content-Type": "text/event-stream"})
        for delta in self.server.deltas:
            self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            time.sleep(self.server.pause)
        if self.server.error:
            self.event({"error": {"message": self.server.error}})
            return
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def event(self, event: dict) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Chromium]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    made = Chromium(tmp_path_factory.mktemp("chromium"))
    yield made
    made.end()


@pytest.fixture
def upstream(server) -> Iterator[Upstream]:
    with Upstream(server) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def page_of(browser):
    """Opens pages; in the end none of them may have had an error or asked another host."""
    made = []

    def call(url: str) -> Page:
        made.append(Page(browser, url))
        return made[-1]

    yield call
    complaints = [page.complaints() for page in made]
    for page in made:
        page.close()
    assert complaints == [[] for _ in made]


@pytest.fixture
def page(page_of, server) -> Page:
    """The real server's page."""
    return page_of(f"http://127.0.0.1:{server.port}/")


def in_pieces(text: str, count: int) -> list[dict]:
    size = -(-len(text) // count)
    return [{"content": text[i : i + size]} for i in range(0, len(text), size)]


def test_the_page_comes_with_a_policy_and_names_no_other_host(server):
    reply = server.get("/")
    policy = dict(rule.strip().split(" ", 1) for rule in reply.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert (policy["connect-src"], policy["img-src"]) == ("'self'", "data:")
    assert len(reply.body) <= 100_000
    assert not re.search(rb"//[\w-]+\.[\w.-]+|https?://\w|@import|\burl\(", reply.body)


# Looks

FULL = """# A heading
## A second one
**bold**, *italic*, `code` and a [link](https://example.org/a) to [elsewhere](https://a-host-with-a-long-name.example).

1. first
   - nested
2. second

> A quote with `code` and a [link](https://example.org).

| name | number | a heading that is long | another heading that is long |
|:-----|-------:|:----------------------:|------------------------------|
| `a`  | 1      | [link](https://a.example) | %s |

```python
def a_function(of_an_argument, and_another_one, and_a_third_one):  # a comment that makes the line long
```

---

%s"""

# Runs in the page: violations that axe (Deque Systems) finds, and visible elements that leave the window to a side or
# are narrower than what they hold. Boxes that scroll, and those that end long lines with dots, may be so.
CHECK = """
axe.run(document, {resultTypes: ['violations'],
                   runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}})
.then((found) => {
  const sticksOut = (e) => {
    const box = e.getBoundingClientRect();
    const overflows = e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1;
    return (box.width > 0 && (box.left < -1 || box.right > window.innerWidth + 1)) ||
      (overflows && getComputedStyle(e).textOverflow !== 'ellipsis' && !e.matches('pre, .table'));
  };
  const seen = [...document.querySelectorAll('*')].filter((e) => e.checkVisibility({ visibilityProperty: true }));
  const wide = seen.filter((e) => !e.parentElement?.closest('svg, pre, .table') && sticksOut(e));
  return {
    width: window.innerWidth, dark: matchMedia('(prefers-color-scheme: dark)').matches,
    ink: getComputedStyle(document.body).color, wide: wide.map((e) => `${e.tagName}#${e.id}.${e.className}`),
    violations: found.violations.map((v) => [v.id, ...v.nodes.map((n) => `${n.target}: ${n.failureSummary}`)]),
  };
})"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The checker's source, which the package axe-core-python carries."""
    folder = Path(importlib.util.find_spec("axe_core_python").submodule_search_locations[0])
    return (folder / "axe.min.js").read_text()


def look_for_faults(page: Page, widths=WIDTHS) -> None:
    inks = set()
    for dark in (False, True):
        for width in widths:
            page.look(width, dark)
            page.wait(f"window.innerWidth === {width} && document.getAnimations().length === 0")  # the drawer slides
            found = page.run(CHECK)
            assert (found["width"], found["dark"]) == (width, dark)
            assert (found["wide"], found["violations"]) == ([], []), found
            inks.add((found["ink"], dark))
    assert len(inks) == 2


def test_nothing_is_wrong_with_the_looks(page_of, upstream, axe):
    page = page_of(upstream.url)
    page.run(axe)
    look_for_faults(page)
    upstream.deltas = [{"reasoning_content": "Thoughts."}, {"content": FULL % ("cell " * 9, "word" * 90)}]
    page.say("A message with `marks`, and one word that is long: " + "word" * 90)
    upstream.deltas, upstream.error = [], "The model ran out of " + "words" * 90
    page.say("Again")
    page.run("$('.thoughts').open = true")
    look_for_faults(page)
    page.click("#settings")
    page.fill("#temperature", "warm")
    page.click("#saveSettings")
    page.wait("$('#settingsError').textContent.includes('temperature')")
    look_for_faults(page, [320])
    page.click("#cancelSettings")
    page.click("#openDrawer")
    page.wait("$('.drawn')")
    look_for_faults(page, [320])


def test_the_checker_finds_faults(page, axe):
    page.run(axe)
    page.run(
        "$('#list').innerHTML = '<p style=\"color:#bbb;background:#fff;width:2000px\">wide<img src=\"data:,\"></p>'"
    )
    found = page.run(CHECK)
    assert {"image-alt", "color-contrast"} <= {violation[0] for violation in found["violations"]}
    assert "P#." in found["wide"]


# Conversations with the real server


def letters(text: str) -> str:
    """The letters and digits of a text, which are none of Markdown's marks."""
    return re.sub(r"[\W_]", "", text)


def set_up(page: Page, **fields) -> None:
    page.click("#settings")
    for name, value in fields.items():
        page.fill(f"#{name}", str(value))
    page.click("#saveSettings")
    page.wait("!$('#settingsDialog').open")


def test_a_conversation(page, server):
    fields = {"temperature": 1, "max_tokens": 12, "seed": 3}
    set_up(page, **fields)
    page.fill("#message", "Hi")
    page.press_enter()
    page.wait("$('.answer')")
    page.wait_for_the_end()
    wanted = server.chat([{"role": "user", "content": "Hi"}], **fields)
    first = wanted["choices"][0]["message"]
    shown = page.answer()
    assert letters(shown["text"]) == letters(first["content"]) != ""
    assert shown["remarks"] == "The answer ends here because it reached the limit of tokens."
    status = page.run("$('#status').textContent")
    whole = wanted["usage"]["total_tokens"]
    assert re.fullmatch(
        rf"The answer has 12 tokens(, at [\d.]+ tokens a second)?\. {whole} of 512 tokens .* are taken\.", status
    )
    page.say("And then?")
    turns = [{"role": "user", "content": "Hi"}, first, {"role": "user", "content": "And then?"}]
    second = server.chat(turns, **fields)["choices"][0]["message"]
    shown = page.answer()
    assert letters(shown["text"]) == letters(second["content"])
    before = page.run("$('#list').innerHTML + $('#title').outerHTML + $('#conversations').innerHTML")
    page.load()
    assert page.run("$('#list').innerHTML + $('#title').outerHTML + $('#conversations').innerHTML") == before
    assert page.answer() == shown


def test_an_answer_is_stopped_and_tried_again(page, server):
    until(server.is_idle, "the end of other requests")
    set_up(page, temperature=1, seed=3)
    others = {"prompt": "a", "n": 128, "max_tokens": 500}  # they make the answer last for seconds
    with server.stream("/v1/completions", others) as events:
        next(events)
        page.fill("#message", "Hi")
        page.click("#send")
        page.wait("$('.answer .markdown')?.textContent")
        page.click("#stop")
        page.wait_for_the_end()
        stopped = page.answer()
        until(lambda: server.metrics()["bie_answers_running"] <= 128, "the answer's end at the server")
        assert server.metrics()["bie_answers_running"] == 128, "the others must outlive the answer"
    until(server.is_idle, "the end of all answers")
    assert server.metrics()["bie_answers_running"] == 0
    wanted = server.chat([{"role": "user", "content": "Hi"}], temperature=1, seed=3)
    whole = letters(wanted["choices"][0]["message"]["content"])
    assert stopped["remarks"] == "The answer was stopped."
    assert 0 < len(letters(stopped["text"])) < len(whole)
    assert whole.startswith(letters(stopped["text"]))
    page.load()
    assert page.answer() == stopped
    page.click(".answer [data-part=retry]")
    page.wait("$('.answer [data-part=remarks]').textContent.includes('limit')")
    page.wait_for_the_end()
    assert letters(page.answer()["text"]) == whole
    assert page.run("document.querySelectorAll('article').length") == 2
    assert page.run("$('#status').textContent").startswith(f"The answer has {wanted['usage']['completion_tokens']} tok")


# Hostile answers

HARM = '<script>window.harmed = 1</script><img src="/harm" onerror="window.harmed = 1"><svg onload="window.harmed = 1">'
HOSTILE = """%s <iframe srcdoc="<script>parent.harmed = 1</script>"></iframe> <style>* { display: none }</style>

# <a href="javascript:window.harmed = 1">heading</a>
[a](javascript:window.harmed=1) [b](JaVaScRiPt:window.harmed=1) [c](java\tscript:window.harmed=1)
[d](\x01javascript:window.harmed=1) [e](data:text/html,<script>harmed=1</script>) [f](vbscript:x) [g](//f.example)
[h](javascript&colon;window.harmed=1) <javascript:window.harmed=1> [i][j] [k](/harm) [l](file:///etc/passwd)

[j]: javascript:window.harmed=1

[good](https://link.example/"onclick="window.harmed=1) https://bare.example/<script>window.harmed=1</script>
![picture](https://picture.example/a.png) ![m](/harm.png) ![n](data:image/svg+xml,<svg/onload=harmed=1>)
[![badge](https://picture.example/b.png)](https://badge.example)

| <b>bold</b> | [o](javascript:window.harmed=1) |
|-------------|---------------------------------|
| `</code><script>window.harmed=1</script>` | ![p](javascript:window.harmed=1) |

> - <details open ontoggle="window.harmed=1">

```html" onclick="window.harmed=1
</code></pre><script>window.harmed=1</script>
""".replace("%s", HARM, 1)
LINKS = {
    *("https://link.example/%22onclick=%22window.harmed=1", "https://bare.example/", "https://badge.example/"),
    "https://picture.example/a.png",
}
TAGS = {
    *("A", "BLOCKQUOTE", "BUTTON", "CODE", "DIV", "EM", "H3", "HEADER", "LI", "OL", "P", "PRE", "SPAN", "STRONG"),
    *("TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"),
}
ATTRIBUTES = {"aria-label", "class", "href", "rel", "role", "tabindex", "target", "title", "type"}


def test_hostile_text_stays_text(page_of, upstream):
    page = page_of(upstream.url)
    upstream.deltas = [{"reasoning_content": HARM}, *in_pieces(HOSTILE, 60)]
    upstream.error, upstream.pause = HARM, 0.02  # the page paints about ten times a second
    page.say(HARM)
    streamed = page.answer()
    assert streamed["remarks"] == f"Error: {HARM}"
    for text in (HARM, "<iframe srcdoc", "[a](javascript:window.harmed=1)", "[i][j]", "[k](/harm)", "![m](/harm.png)"):
        assert text in streamed["text"]
    page.load()
    assert page.answer() == streamed, "an answer in pieces looks as a whole one"
    found = page.run(
        """(() => {
          const all = [...document.querySelectorAll('.markdown *')];
          return {
            tags: all.map((e) => e.tagName), attributes: all.flatMap((e) => e.getAttributeNames()),
            links: [...document.querySelectorAll('#list a')].map((e) => e.href), harmed: window.harmed ?? null,
            around: document.querySelectorAll('#list :is(script, img, iframe, style), #list svg, #title *').length,
            texts: ['.mine .text', '.thoughts div', '#title'].map((s) => $(s).textContent),
            rels: [...document.querySelectorAll('#list a')].map((e) => e.rel + ' ' + e.target),
          };
        })()"""
    )
    assert set(found["tags"]) <= TAGS and set(found["attributes"]) <= ATTRIBUTES
    assert set(found["links"]) == LINKS
    assert set(found["rels"]) == {"noopener noreferrer nofollow _blank"}
    assert (found["harmed"], found["around"]) == (None, 0)
    assert found["texts"] == [HARM, HARM, f"{HARM[:59]}…"]
    asked = {event["request"]["url"].removeprefix(upstream.url) for event in page.events("Network.requestWillBeSent")}
    assert asked == {"", "props", "v1/chat/completions"}


SLOW = {
    "emphasis": "*a _b " * 3000,
    "brackets": "[" * 19_000,
    "links that do not end": "[a](b " * 3000,
    "ticks": " ".join("`" * i for i in range(1, 190)),
    "quotes in quotes": ">" * 50_000,
    "a wide table": "|" * 9000 + "\n" + "|-" * 9000,
    "spaces": " " * 50_000 + "x",
    "a long line": "a" * 300_000,
}


def test_texts_that_are_hard_to_read_hold_nothing_up(page_of, upstream):
    page = page_of(upstream.url)
    for name, text in SLOW.items():
        upstream.deltas = in_pieces(text, 20)
        begin = time.monotonic()
        page.say(name)
        assert time.monotonic() - begin < PATIENCE / 4, name
        assert len(page.answer()["text"]) > 0, name
