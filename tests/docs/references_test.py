"""What sources say of a page leads somewhere, and so do the links between pages.

A source cites the specification as docs/spec/PAGE.md or docs/spec/PAGE.md#ANCHOR.
"""

import re

import pages
import pytest

import bie

FOLDERS = ("include", "src", "python", "tests", "bench", "examples", "tools", "cmake")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".txt", ".cmake"}
CITED = re.compile(r"\bdocs/[\w/-]+\.(?:md|rst)(?:#[\w-]+)?")
SOURCES = [
    *sorted(pages.ROOT.glob("*.md")),
    *(
        path
        for folder in FOLDERS
        for path in sorted((pages.ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and path.name != "references_test.py"
    ),
]


def cited(path):
    return CITED.findall(path.read_text(encoding="utf-8"))


def test_what_sources_cite_is_there():
    found = {
        f"{path.relative_to(pages.ROOT)}: {wrong}"
        for path in SOURCES
        for target in cited(path)
        if (wrong := pages.broken(target, pages.ROOT))
    }
    assert not found, "\n".join(sorted(found))


def test_sources_cite_every_page_that_says_what_is_computed():
    """But the index and BITorch Engine's names; so a page that nobody follows is seen."""
    named = {target.partition("#")[0] for path in SOURCES for target in cited(path)}
    specified = {f"docs/spec/{path.name}" for path in (pages.ROOT / "docs/spec").glob("*.md")}
    assert specified <= named


def test_sources_cite_no_section_by_number():
    """numerics.md and api.md were outside of the tree."""
    pattern = re.compile(r"numerics\.md|(?<!spec/)\bapi\.md|specification, section")
    found = [str(path) for path in SOURCES if pattern.search(path.read_text(encoding="utf-8"))]
    assert not found


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    inside = [link for link in pages.links(page) if not re.match(r"\w+:", link)]
    wrong = [
        broken
        for link in inside
        if (broken := pages.broken(link if not link.startswith("#") else page.name + link, page.parent))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", sorted((pages.ROOT / "docs/spec").glob("*.md")), ids=lambda page: page.name)
def test_anchors_of_the_specification_are_unique(page):
    anchors = pages.anchors(page)
    assert len(anchors) == len(set(anchors))


def test_a_link_that_leads_nowhere_would_be_seen():
    assert pages.broken("docs/spec/index.md#notation", pages.ROOT) is None
    assert pages.broken("docs/spec/index.md#nothing", pages.ROOT) == "docs/spec/index.md has no heading #nothing"
    assert pages.broken("docs/nothing.md", pages.ROOT) == "docs/nothing.md does not exist"


def test_every_layer_has_its_formula():
    """The specification names every class of bie.nn that computes, and what it names as bie.nn.X is there."""
    text = "".join(path.read_text(encoding="utf-8") for path in (pages.ROOT / "docs/spec").glob("*.md"))
    layers = {name for name in bie.nn.__all__ if name[0].isupper()} - {"QuantLayer", "WeightOnlyLinear"}
    assert {name for name in layers if f"`{name}" not in text and f"`bie.nn.{name}" not in text} == set()
    assert set(re.findall(r"`bie\.nn\.([A-Z]\w+)", text)) <= layers
