"""The site that `make docs` wrote: links inside it lead somewhere, pictures are there, nothing is left unresolved."""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pages
import pytest

SITE = pages.ROOT / "build/docs"
sys.path.insert(0, str(pages.ROOT / "docs/images"))


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.links = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value:
                self.targets.append(value)


@cache
def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def html() -> list[Path]:
    found = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)
    assert found, "the site is not there: `make docs` builds it"
    return found


def wrong(page: Path, target: str) -> str | None:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not path.exists():
        return f"{target} does not exist"
    if parts.fragment and path.suffix == ".html" and unquote(parts.fragment) not in read(path).ids:
        return f"{target} has no such place"
    return None


def test_links_of_the_site_lead_somewhere():
    found = {
        f"{page.relative_to(SITE)}: {fault}"
        for page in html()
        for target in read(page).targets
        if (fault := wrong(page, target))
    }
    assert not found, "\n".join(sorted(found))


def test_pages_load_nothing_from_elsewhere():
    """But follow links: a reader without a network sees all of it."""
    found = set()
    for page in html():
        for line in page.read_text(encoding="utf-8").splitlines():
            if ("<script" in line or "<img" in line or 'rel="stylesheet"' in line) and "http" in line:
                found.add(f"{page.relative_to(SITE)}: {line.strip()[:200]}")
    assert not found, "\n".join(sorted(found))


def test_every_page_of_the_tree_is_on_the_site():
    for page in (pages.ROOT / "docs").rglob("*.md"):
        assert (SITE / page.relative_to(pages.ROOT / "docs")).with_suffix(".html").exists(), page


@pytest.mark.parametrize(
    ("page", "target", "words"),
    [
        ("api.html", "spec/nbit-linear.html#q4linear", "spec/nbit-linear: q4linear"),
        ("api.html", "spec/optimizer.html", "spec/optimizer"),
        ("cpp/training.html", "../spec/optimizer.html", "spec/optimizer"),
        ("cpp/kernels.html", "../spec/layouts.html#flat-binary-weights", "spec/layouts: flat-binary-weights"),
    ],
)
def test_a_citation_in_a_comment_is_a_link(page, target, words):
    assert f'href="{target}">{words}</a>' in (SITE / page).read_text(encoding="utf-8")


def test_the_specification_shows_its_formulas():
    page = (SITE / "spec/nbit-linear.html").read_text(encoding="utf-8")
    assert "grad_scale_a" in page and "sqrt(numel(xs)" in page


def test_pictures_are_as_their_script_draws_them():
    draw = pytest.importorskip("draw")
    for name, text in draw.pictures().items():
        assert (pages.ROOT / "docs/images" / name).read_text(encoding="utf-8") == text, (
            f"run docs/images/draw.py: {name}"
        )


def test_a_link_that_leads_nowhere_would_be_seen():
    page = SITE / "index.html"
    assert wrong(page, "spec/index.html#notation") is None
    assert wrong(page, "spec/index.html#nothing") and wrong(page, "nothing.html")
