"""Tables of reports: as text, and as notebooks show them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def text_table(rows: Sequence[Sequence[str]], last: str) -> str:
    """Columns two spaces apart, the last one as it is, and a line behind."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]) for row in rows]
    return "\n".join([*lines, last])


def html_table(rows: Sequence[Sequence[str]], caption: str) -> str:
    """The first row is the head."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows[1:])
    head = f"<thead>{line(rows[0], 'th')}</thead>"
    return f"<table><caption>{escape(caption)}</caption>{head}<tbody>{body}</tbody></table>"
