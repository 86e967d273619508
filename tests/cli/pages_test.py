"""The pages in a browser: at three widths and in both colour schemes nothing sticks out, and axe finds nothing."""

import html
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

WIDTHS = (360, 800, 1280)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# Runs in the page: what axe (Deque Systems) says of it, and what is wider than the window outside of boxes that scroll.
CHECK = """
axe.run(document, {resultTypes: ['violations'],
                   runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}})
.then(found => {
  const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('svg') &&
    !e.parentElement.closest('.scroll') && e.getBoundingClientRect().right > window.innerWidth + 1);
  parent.postMessage({
    width: window.innerWidth, page: document.documentElement.scrollWidth,
    dark: matchMedia('(prefers-color-scheme: dark)').matches, wide: wide.map(e => e.tagName + '.' + e.className),
    violations: found.violations.map(v => [v.id, ...v.nodes.map(n => n.target.join(' ') + ': ' + n.failureSummary)]),
  }, '*');
}, error => parent.postMessage({error: String(error)}, '*'));
"""
HOST = """<!DOCTYPE html><html lang="en"><head><meta name="color-scheme" content="light dark"/></head><body>%s<script>
const said = [];
addEventListener('message', event => {
  said.push(event.data);
  if (said.length === %d) document.title = 'SAID' + JSON.stringify(said);
});</script></body></html>"""


def axe() -> str:
    """The checker's source, which the package axe-core-python carries."""
    folder = Path(importlib.util.find_spec("axe_core_python").submodule_search_locations[0])
    return (folder / "axe.min.js").read_text().replace("</script>", "<\\/script>")


def in_a_browser(page: Path, folder: Path, dark: bool) -> list[dict]:
    """What CHECK says of the page at every width."""
    scripts = f"<script>{axe()}</script><script>{CHECK}</script></body>"
    (folder / "page.html").write_text(page.read_text().replace("</body>", scripts))
    frames = "".join(f'<iframe src="page.html" width="{w}" height="900" style="border:0"></iframe>' for w in WIDTHS)
    host = folder / "host.html"
    host.write_text(HOST % (frames, len(WIDTHS)))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,1000"]
    command += [f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += ["--virtual-time-budget=60000", "--dump-dom", host.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    begin = done.stdout.find("<title>SAID")
    assert begin >= 0, done.stderr[-2000:]
    return json.loads(html.unescape(done.stdout[begin + 11 : done.stdout.index("</title>", begin)]))


@pytest.fixture(scope="module")
def pages(bie, tmp_path_factory):
    """A run with layers and mistakes, one of one epoch, a regression, a comparison, a sweep's, the demo's."""
    home = tmp_path_factory.mktemp("pages")
    table = home / "t.csv"
    table.write_text("x,y\n" + "".join(f"{i % 17},{3 * (i % 17) + i % 2}\n" for i in range(80)))
    small = ["--hidden", "32", "--depth", "2"]

    def run(*words):
        done = subprocess.run(
            [bie, "--threads", "1", "-q", *map(str, words)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr

    run("train", *small, "--bits", "1", "--epochs", "4", "--best", "--run", home / "run")
    run("train", *small, "--bits", "8", "--epochs", "1", "--run", home / "one")
    run("train", "--data", f"csv:{table}", "--task", "regression", "--epochs", "3", "--run", home / "numbers")
    run("compare", home / "run", home / "one", "--report", home / "compared.html")
    run("demo", "--epochs", "1", "--report", home / "demo.html")
    found = {name: home / name / "report.html" for name in ("run", "one", "numbers")}
    return found | {name: home / f"{name}.html" for name in ("compared", "demo")}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["run", "one", "numbers", "compared", "demo"])
def test_nothing_is_wrong_with_a_page(pages, tmp_path, name, dark):
    said = in_a_browser(pages[name], tmp_path, dark)
    assert sorted(found.get("width", -1) for found in said) == sorted(WIDTHS), said
    for found in said:
        assert found["dark"] == dark
        assert found["page"] <= found["width"] and found["wide"] == [], found
        assert found["violations"] == [], f"at {found['width']} pixels"


def test_the_checker_finds_faults(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        '<!DOCTYPE html><html lang="en"><head><title>x</title></head><body><main><h1>x</h1><img src="data:,"/>'
        '<p style="color:#bbb;background:#fff">pale</p><p style="width:2000px">wide</p></main></body></html>'
    )
    for found in in_a_browser(page, tmp_path, dark=False):
        assert {"image-alt", "color-contrast"} <= {violation[0] for violation in found["violations"]}
        assert found["wide"] == ["P."] and found["page"] > found["width"]
