"""Reads a report from standard input as XML and as HTML; prints what is wrong with it and ends with status 1.

Both readings must see the same elements, attributes and texts. The page must need nothing but itself, hold no script,
and draw every shape inside its picture.
"""

import base64
import math
import re
import struct
import sys
import xml.etree.ElementTree as ET
import zlib
from html.parser import HTMLParser

VOID = {"meta", "img"}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
complaints: list[str] = []


def expect(condition: bool, complaint: str) -> None:
    if not condition:
        complaints.append(complaint)


def words(text: str | None) -> str:
    return " ".join((text or "").split())


class HtmlReading(HTMLParser):
    """The page as a list of what an HTML parser meets."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple] = []
        self.data = ""

    def flush(self) -> None:
        if words(self.data):
            self.events.append(("text", words(self.data)))
        self.data = ""

    def handle_starttag(self, tag, attrs):
        self.flush()
        self.events.append(("start", tag, {name: words(value) for name, value in attrs if name != "xmlns"}))
        if tag in VOID:
            self.events.append(("end", tag))

    def handle_startendtag(self, tag, attrs):
        expect(tag in VOID, f"<{tag}/> has an end in XML and none in HTML")
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        self.flush()
        self.events.append(("end", tag))

    def handle_data(self, data):
        self.data += data


def local(tag: str) -> str:
    return tag.rsplit("}", 1)[-1].lower()


def xml_events(element: ET.Element) -> list[tuple]:
    events = [("start", local(element.tag), {name.lower(): words(value) for name, value in element.attrib.items()})]
    events += [("text", words(element.text))] if words(element.text) else []
    for child in element:
        events += xml_events(child)
        events += [("text", words(child.tail))] if words(child.tail) else []
    return [*events, ("end", local(element.tag))]


def check_png(uri: str) -> None:
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"), validate=True)
    expect(data.startswith(b"\x89PNG\r\n\x1a\n"), "an image is no PNG")
    at, kinds = 8, []
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body, (crc,) = data[at + 8 : at + 8 + size], struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        expect(zlib.crc32(kind + body) == crc, f"the CRC of {kind} is wrong")
        kinds.append(kind)
        at += 12 + size
    expect(kinds == [b"IHDR", b"IDAT", b"IEND"], f"the chunks are {kinds}")


def path_points(d: str) -> list[tuple[float, float]]:
    """The points of a path of M, L, H, V, h and v."""
    x = y = 0.0
    points = []
    for command, arguments in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        numbers = [float(n) for n in arguments.split()]
        expect(len(numbers) == {"M": 2, "L": 2}.get(command, 1), f"{command}{arguments} in a path")
        if command in "ML":
            x, y = numbers
        elif command in "Hh":
            x = numbers[0] + (x if command == "h" else 0)
        elif command in "Vv":
            y = numbers[0] + (y if command == "v" else 0)
        else:
            complaints.append(f"command {command} in a path")
        points.append((x, y))
    return points


def check_picture(svg: ET.Element) -> None:
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for shape in svg.iter():
        a = shape.attrib
        points = path_points(a.get("d", ""))
        if local(shape.tag) == "rect":
            x, y, w, h = (float(a[name]) for name in ("x", "y", "width", "height"))
            expect(w >= 0 and h >= 0, f"a bar of {w} x {h}")
            points = [(x, y), (x + w, y + h)]
        elif local(shape.tag) == "circle":
            points = [(float(a["cx"]), float(a["cy"]))]
        elif local(shape.tag) == "text":
            points = [(float(a["x"]), float(a["y"]))]
            expect("nan" not in words(shape.text) and "inf" not in words(shape.text), f"the label {shape.text}")
        for x, y in points:
            inside = -0.2 <= x <= width + 0.2 and -0.2 <= y <= height + 0.2
            expect(math.isfinite(x + y) and inside, f"{local(shape.tag)} reaches ({x}, {y}) in {width} x {height}")


def check(page: str) -> None:
    try:
        root = ET.fromstring(page)
    except ET.ParseError as error:
        complaints.append(f"no XML: {error}")
        return
    reading = HtmlReading()
    reading.feed(page)
    reading.close()
    for ours, theirs in zip(xml_events(root), reading.events, strict=False):
        if ours != theirs:
            complaints.append(f"XML has {str(ours)[:300]}, HTML {str(theirs)[:300]}")
            break
    expect(len(xml_events(root)) == len(reading.events), "XML and HTML differ in length")

    for element in root.iter():
        tag = local(element.tag)
        expect(tag not in {"script", "link", "iframe", "object", "a"}, f"there is a {tag}")
        for name, value in element.attrib.items():
            expect(not name.startswith("on") and name not in {"href", "srcset"}, f"{tag} has {name}")
            if name == "src":
                expect(value.startswith("data:image/png;base64,"), f"{tag} reads {value[:40]}")
                check_png(value)
        if tag == "style":
            expect(not re.search(r"url\(|@import|[<>&\"]", element.text or ""), "the style sheet is not plain")
        if tag == "svg":
            check_picture(element)
        if tag == "table":
            widths = {len(list(row)) for row in element.iter() if local(row.tag) == "tr"}
            expect(len(widths) == 1, f"rows of {widths} cells")


check(sys.stdin.buffer.read().decode("utf-8", errors="strict"))
print("\n".join(complaints[:20]), end="\n" if complaints else "")
sys.exit(1 if complaints else 0)
