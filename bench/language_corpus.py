"""Writes the texts of Debian's documents as JSON lines, a document a line, for the training of language models.

Each argument after the first is a folder into which packages were unpacked (``apt-get download NAME; dpkg -x FILE
FOLDER``): debian-handbook, debian-reference-en, linux-doc-6.1, python3.11-doc, postgresql-doc-15, git-doc, perl-doc,
the books of rust-doc, and bible-kjv-text with bible-kjv.
"""

from __future__ import annotations

import gzip
import html.parser
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_LEAST_LETTERS = 400


class _Text(html.parser.HTMLParser):
    """The text of a page without its scripts, styles and navigation."""

    _LEFT_OUT = ("script", "style", "nav", "head", "footer")
    _LINES = ("p", "div", "li", "tr", "h1", "h2", "h3", "h4", "pre", "br", "dt", "dd", "table")

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._outside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._outside += tag in self._LEFT_OUT
        if tag in self._LINES:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._outside -= tag in self._LEFT_OUT
        if tag in self._LINES:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._outside:
            self.parts.append(data)


def _of_html(page: str) -> str:
    reader = _Text()
    reader.feed(page)
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in "".join(reader.parts).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")


def _bible(folder: Path) -> Iterator[tuple[str, str]]:
    program = folder / "usr/bin/bible"
    if not program.exists():
        return
    options = [str(program), "-f", "-p", str(folder / "usr/lib")]
    verses = subprocess.run([*options, "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    chapters: dict[str, list[str]] = {}
    for line in verses.splitlines():
        if found := re.match(r"(\w+?)(\d+):(\d+) (.*)", line):
            chapters.setdefault(f"{found[1]} {found[2]}", []).append(found[4])
    for chapter, lines in chapters.items():
        yield f"bible/{chapter}", "\n".join([chapter, "", *lines])


def documents(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of every document of the packages that are unpacked in a folder."""
    docs = folder / "usr/share/doc"
    for path in sorted(docs.glob("linux-doc-*/Documentation/**/*")):
        if (
            path.name.endswith((".rst.gz", ".txt.gz", ".yaml.gz", ".rst", ".txt", ".yaml"))
            and "translations" not in path.parts
        ):
            yield f"linux/{path.name}", _read(path)
    for path in sorted(docs.glob("python3*/html/_sources/**/*.rst.txt*")):
        yield f"python/{path.name}", _read(path)
    for path in sorted(docs.glob("debian-handbook/html/en-US/*.html")):
        yield f"handbook/{path.name}", _of_html(_read(path))
    for path in sorted((folder / "usr/share/debian-reference").glob("*.en.html")):
        yield f"reference/{path.name}", _of_html(_read(path))
    for path in sorted(docs.glob("postgresql-doc-*/**/*.html")):
        yield f"postgresql/{path.name}", _of_html(_read(path))
    for book in ("book", "reference", "rust-by-example", "nomicon", "unstable-book", "edition-guide"):
        for path in sorted(docs.glob(f"rust-doc/html/{book}/**/*.html")):
            if path.name != "print.html":  # the whole book once more
                yield f"rust/{path.name}", _of_html(_read(path))
    for path in sorted(docs.glob("git-doc/**/*.txt*")):
        yield f"git/{path.name}", _read(path)
    for path in sorted((folder / "usr/share/perl").glob("**/*.pod")):
        yield f"perl/{path.name}", _read(path)
    yield from _bible(folder)


def main() -> None:
    out, *folders = sys.argv[1:]
    seen: set[str] = set()
    letters: dict[str, int] = {}
    with open(out, "w", encoding="utf-8") as file:
        for folder in folders:
            for name, text in documents(Path(folder)):
                if len(text) < _LEAST_LETTERS or text in seen:
                    continue
                seen.add(text)
                kind = name.partition("/")[0]
                letters[kind] = letters.get(kind, 0) + len(text)
                file.write(json.dumps({"name": name, "text": text}, ensure_ascii=False) + "\n")
    for kind, count in letters.items():
        print(f"{kind}: {count / 1e6:.1f} million letters")


if __name__ == "__main__":
    main()
