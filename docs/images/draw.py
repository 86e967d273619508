"""Draws the pictures of docs/images that are lines and words: NAME-light.svg and NAME-dark.svg, and NAME.svg for both.

python docs/images/draw.py writes them; tests/docs compares what is there with what this draws.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = ("ink", "soft", "line", "paper", "one", "zero", "on", "off", "mark", "mild")
LIGHT = "#1f2933 #5b6875 #b8c2cc #f4f6f8 #0b5fa5 #e4ebf2 #ffffff #33414e #c2410c #dcebf8"
DARK = "#e6ebf0 #a3b1bf #55626f #1d242b #7db8ee #2d3843 #0d1b28 #c9d4de #fb923c #1e3a54"


class Picture:
    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, kind: str = "ink", size: int = 15, anchor: str = "start", mono=False
    ):
        family = ' font-family="ui-monospace, DejaVu Sans Mono, monospace"' if mono else ""
        place = f'x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} class="{kind}"{family}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: int = 4) -> None:
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" class="{kind}"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.parts.append(f'<path d="M{x} {y}L{to_x} {to_y}" class="arrow" marker-end="url(#head)"/>')

    def cell(self, x: float, y: float, side: float, words: str, filled: bool, marked: bool = False) -> None:
        self.box(x, y, side, side, "marked" if marked else "filled" if filled else "empty")
        self.text(x + side / 2, y + side / 2 + 5, words, "on" if filled or marked else "off", 14, "middle", mono=True)

    def svg(self, style: str) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="system-ui, Roboto, DejaVu Sans, sans-serif" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{style}</style>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto">'
            '<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )

    def write(self, name: str) -> dict[str, str]:
        """By file name: for the light page, for the dark page, and one that follows the reader's system."""
        both = style_of(LIGHT) + f"@media(prefers-color-scheme:dark){{{style_of(DARK)}}}"
        return {
            f"{name}-light.svg": self.svg(style_of(LIGHT)),
            f"{name}-dark.svg": self.svg(style_of(DARK)),
            f"{name}.svg": self.svg(both),
        }


def style_of(colours: str) -> str:
    c = dict(zip(NAMES, colours.split(), strict=True))
    return (
        f".ink{{fill:{c['ink']}}}.soft{{fill:{c['soft']}}}.mark{{fill:{c['mark']}}}.on{{fill:{c['on']}}}.off{{fill:{c['off']}}}"
        f".filled{{fill:{c['one']}}}.empty{{fill:{c['zero']}}}.marked{{fill:{c['mark']}}}"
        f".paper{{fill:{c['paper']};stroke:{c['line']}}}.mild{{fill:{c['mild']};stroke:{c['one']}}}"
        f".arrow{{stroke:{c['soft']};stroke-width:1.6;fill:none}}.head{{fill:{c['soft']}}}"
    )


def one_bit_product() -> Picture:
    """One number of a 1-bit GEMM, of k = 8 inputs."""
    x = [0.7, -1.2, 0.1, -0.4, 2.0, -0.3, 0.9, -0.8]
    w = [0.3, -0.5, -0.2, -0.9, 0.4, 0.6, 0.1, -0.7]
    p = Picture(760, 330, "A 1-bit product: signs as bits, XOR, a count of ones, one multiplication")
    side, left = 58, 170
    rows = [
        ("activation x", [f"{v:g}" for v in x], None),
        ("its bits", [str(int(v >= 0)) for v in x], [v >= 0 for v in x]),
        ("the weight's bits", [str(int(v >= 0)) for v in w], [v >= 0 for v in w]),
    ]
    differ = [(a >= 0) != (b >= 0) for a, b in zip(x, w, strict=True)]
    for number, (label, words, filled) in enumerate(rows):
        y = 20 + number * 62
        p.text(left - 14, y + 33, label, "ink", 15, "end")
        for i, word in enumerate(words):
            if filled is None:
                p.text(left + i * side + 25, y + 34, word, "soft", 15, "middle", mono=True)
            else:
                p.cell(left + i * side, y + 4, 50, word, filled[i])
    y = 20 + 3 * 62
    p.text(left - 14, y + 33, "XOR", "ink", 15, "end")
    for i, different in enumerate(differ):
        p.cell(left + i * side, y + 4, 50, str(int(different)), False, different)
    p.text(left + 8 * side + 10, y + 24, "popcount", "soft", 14)
    p.text(left + 8 * side + 10, y + 44, f"= {sum(differ)}", "mark", 18, mono=True)
    k, ones = len(x), sum(differ)
    p.text(left, 300, f"y = S · (k - 2 · popcount) = S · ({k} - 2 · {ones}) = {k - 2 * ones} · S", "ink", 17, mono=True)
    p.text(
        left,
        322,
        "64 inputs are one XOR and one count; S, the step sizes, is one multiplication in float32",
        "soft",
        13,
    )
    return p


def way_of_a_call() -> Picture:
    """From layer(x) to the kernel, and what is kept beside it."""
    p = Picture(760, 450, "The way of a call: layer, operator, table of kernels, kernel")
    steps = [
        ("layer(x)", "which form of the weight, which step size"),
        ("torch.ops.bie.q8_linear", "checks shapes and dtypes, records the backward pass"),
        ("table of kernels", "the first that this processor and this shape can run"),
        ("kernel", "one pass over the rows of x"),
    ]
    for number, (name, words) in enumerate(steps):
        y = 4 + number * 82
        p.box(4, y, 470, 58, "paper", 8)
        p.text(22, y + 25, name, "ink", 16, mono=True)
        p.text(22, y + 45, words, "soft", 13)
        if number:
            p.arrow(239, y - 24, 239, y - 3)
    p.box(514, 4, 242, 140, "mild", 8)
    p.text(530, 30, "made once and kept", "ink", 15)
    for number, words in enumerate(
        ("weight: float or int8", "packed: 1, 4 or 8 bits each", "panels: in the kernel's order")
    ):
        p.text(530, 58 + number * 22, words, "soft", 13)
    p.text(530, 130, "forgotten when it changes", "soft", 13)
    p.arrow(510, 33, 478, 33)
    p.box(514, 168, 242, 58, "paper", 8)
    p.text(530, 192, "avx512, avxvnni, avx512bw,", "soft", 13)
    p.text(530, 212, "avx2, reference; or CUDA", "soft", 13)
    p.arrow(510, 197, 478, 197)
    inside = [
        ("quantise", "x to integers"),
        ("multiply", "exact in int32"),
        ("scale", "by S in float32"),
        ("write", "once, in x's dtype"),
    ]
    for number, (name, words) in enumerate(inside):
        x = 4 + number * 198
        p.box(x, 362, 158, 66, "mild", 8)
        p.text(x + 79, 389, name, "ink", 15, "middle")
        p.text(x + 79, 411, words, "soft", 13, "middle")
        if number:
            p.arrow(x - 40, 395, x - 4, 395)
    p.arrow(83, 310, 83, 358)
    p.text(95, 340, "inside", "soft", 13)
    return p


def rooms() -> Picture:
    """The rooms of the tree and what may include what, downwards."""
    p = Picture(760, 550, "The rooms of the tree: arrows say who includes whom; nothing points back")

    def room(x: int, row: int, width: int, name: str, words: str, rows: int = 1, kind: str = "paper") -> None:
        p.box(x, 28 + 68 * row, width, 46 + 68 * (rows - 1), kind, 8)
        p.text(x + 12, 48 + 68 * row, name, "ink", 14, mono=True)
        p.text(x + 12, 66 + 68 * row, words, "soft", 12)

    def down(x: int, row: int, rows: int = 1) -> None:
        p.arrow(x, 74 + 68 * row, x, 25 + 68 * (row + rows))

    for x, words in ((4, "Python, with torch"), (260, "C++, with LibTorch"), (516, "C++, without torch")):
        p.text(x, 18, words, "soft", 13)
    room(4, 0, 240, "bitorch_engine", "BITorch Engine's API")
    room(260, 0, 240, "bie-torch", "the command: src/cli")
    room(516, 0, 240, "bie", "the command: src/cli/net_main")
    room(4, 1, 240, "bie", "modules, hooks, conversion", 4)
    for number, words in enumerate(
        ("nn: layers", "optim, weights: integer steps", "formats: foreign files into layers")
    ):
        p.text(16, 174 + 24 * number, words, "soft", 12)
    room(260, 1, 240, "train, report", "loop, runs, HTML pages")
    room(516, 1, 240, "onnx", "ONNX files into nets")
    room(260, 2, 240, "models, optim", "architectures; DiodeMix")
    room(516, 2, 240, "runtime, llm", "exported nets; language models")
    room(260, 3, 240, "layers", "quantised layers and their states")
    room(516, 3, 240, "weights, text", "matrices of files; tokens")
    room(386, 4, 114, "data", "data sets")
    room(516, 4, 172, "formats", "files in, structs out")
    room(4, 5, 496, "ops", "torch.ops.bie: checks, shapes, backward passes, devices", kind="mild")
    room(4, 6, 752, "kernels", "contracts and tables; the first kernel that fits CPU or GPU and shape", kind="mild")
    sets = ("reference", "portable", "avx2 ... amx", "neon ... i8mm", "cuda")
    for number, name in enumerate(sets):
        p.box(4 + number * 152, 510, 144, 34, "filled", 6)
        p.text(76 + number * 152, 532, name, "on", 13, "middle", mono=True)
        p.arrow(76 + number * 152, 482, 76 + number * 152, 507)
    for x, rows in ((124, (0, 4)), (320, (0, 1, 2)), (602, (0, 1, 2, 3))):
        for row in rows:
            down(x, row)
    down(320, 3, 2)
    down(443, 3)
    down(124, 5)
    down(722, 3, 3)
    p.arrow(500, 323, 513, 323)
    p.arrow(500, 391, 560, 349)
    return p


def pictures() -> dict[str, str]:
    found = one_bit_product().write("one-bit-product") | way_of_a_call().write("way-of-a-call")
    return found | rooms().write("rooms")


if __name__ == "__main__":
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
