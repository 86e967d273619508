"""The directive `cpp-header`: what a header says at its head, then its classes, functions and enumerations by breathe.

Breathe knows files by their last name, of which conv2d.h and diode_mix.h have several; so the names are taken from
Doxygen's XML, by the header that declares them, in its order.
"""

from __future__ import annotations

import posixpath
import re
import textwrap
import xml.etree.ElementTree as ET
from collections import defaultdict
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
DIRECTIVES = {
    "function": "doxygenfunction",
    "enum": "doxygenenum",
    "typedef": "doxygentypedef",
    "define": "doxygendefine",
}


def line_of(location: ET.Element) -> int:
    return int(location.get("line", "0"))


@cache
def declared(xml: Path) -> dict[str, list[tuple[int, str]]]:
    """By header: (line, the directive that documents a name it declares)."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for path in sorted(xml.glob("*.xml")):
        for compound in ET.parse(path).getroot().iter("compounddef"):
            kind, name = compound.get("kind"), compound.findtext("compoundname", "")
            location = compound.find("location")
            # A class inside a class comes with that.
            if kind in ("class", "struct") and re.match(r"(?:[a-z]\w*::)*\w+$", name):
                found[location.get("file")].append((line_of(location), f"doxygen{kind}:: {name}\n   :members:"))
            if kind != "namespace":
                continue
            for member in compound.iter("memberdef"):
                directive = DIRECTIVES.get(member.get("kind"))
                where = member.find("location")
                if directive is None or where is None:
                    continue
                text = f"{name}::{member.findtext('name')}"
                if directive == "doxygenfunction":
                    text += member.findtext("argsstring", "")
                found[where.get("declfile") or where.get("file")].append((line_of(where), f"{directive}:: {text}"))
    return found


def head_of(header: Path) -> list[nodes.Node]:
    """The comment that a header begins with: paragraphs, and blocks where its lines are indented."""
    parts: list[list[str]] = [[]]
    for line in header.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        words = line.removeprefix("//").removeprefix(" ").rstrip()
        indented = words.startswith(" ")
        if not words or (parts[-1] and indented != parts[-1][-1].startswith(" ")):
            parts.append([])
        if words:
            parts[-1].append(words)
    found: list[nodes.Node] = []
    for lines in filter(None, parts):
        if lines[0].startswith(" "):
            text = textwrap.dedent("\n".join(lines))
            found.append(nodes.literal_block(text, text, language="text"))
            continue
        pieces = re.split(r"`([^`]+)`", " ".join(lines))
        found.append(
            nodes.paragraph("", "", *(nodes.literal(w, w) if i % 2 else nodes.Text(w) for i, w in enumerate(pieces)))
        )
    return found


def link_pages(section: nodes.section, here: str) -> None:
    """Makes links of "docs/spec/optimizer.md#galore" in the text, as seen from the folder `here` of the site."""
    for text in list(section.findall(nodes.Text)):
        pieces = re.split(r"docs/([\w/-]+)\.md(#[\w-]+)?", str(text))
        if len(pieces) == 1 or isinstance(text.parent, nodes.literal):
            continue
        linked: list[nodes.Node] = [nodes.Text(pieces[0])]
        for page, anchor, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            words, target = f"{page}{(anchor or '').replace('#', ': ')}", posixpath.relpath(page, here or ".")
            linked += [nodes.reference("", words, refuri=f"{target}.html{anchor or ''}"), nodes.Text(rest)]
        text.parent.replace(text, linked)


class CppHeader(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        header = ROOT / "include" / name
        if not header.is_file():
            raise self.error(f"cpp-header: there is no header {name}")
        self.env.note_dependency(str(header))
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        section += nodes.title(name, "", nodes.literal(name, name))
        section += head_of(header)
        names = sorted(declared(Path(self.config.breathe_projects["bie"])).get(name, []))
        lines = [line for _, text in names for line in (*f".. {text}".split("\n"), "")]
        self.state.nested_parse(StringList(lines, source=str(header)), 0, section)
        link_pages(section, posixpath.dirname(self.env.docname))
        return [section]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("cpp-header", CppHeader)
    return {"parallel_read_safe": True}
