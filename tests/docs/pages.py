"""What the tests read of the pages: their headings' anchors, links and blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, the language after its fence, and its lines."""

    page: Path
    line: int
    language: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["info"].strip(), found["body"])
        for found in FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its blocks of code and its code in lines."""
    return re.sub(r"(`+).+?\1", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def slug(heading: str) -> str:
    """The anchor that GitHub and the site give a heading: lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> list[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [slug(found[1].strip()) for found in re.finditer(r"^#+ (.+)$", text, flags=re.M)]


def links(page: Path) -> list[str]:
    return [found[1] for found in LINK.finditer(prose(page))]


def broken(target: str, base: Path) -> str | None:
    """What is wrong with `target`, a path that may have an anchor, seen from the folder `base`."""
    name, _, anchor = target.partition("#")
    page = base / name
    if not page.exists():
        return f"{name} does not exist"
    if anchor and anchor not in anchors(page):
        return f"{name} has no heading #{anchor}"
    return None
