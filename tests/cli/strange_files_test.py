"""Sixty strange tables and forty strange folders of pictures: each is read, or refused in one sentence that helps."""

import gzip
import io
import os
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

READ = None  # what stands in the place of a sentence for a table or folder that is read


def lines(count: int, line) -> str:
    return "".join(line(i) + "\n" for i in range(count))


def ab(i: int) -> str:
    return "ab"[i % 2]


def spreadsheet() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", "<a/>")
    return file.getvalue()


PLAIN = "x,y,label\n" + lines(20, lambda i: f"{i},{i % 3},{ab(i)}")
TABLES = {
    "empty": ("", "is empty"),
    "a line break": ("\n", "is empty"),
    "names alone": ("x,y,label\n", "has a header and no rows"),
    "names alone with CRLF": ("x,y,label\r\n\r\n", "has a header and no rows"),
    "one column": ("label\na\nb\n", "expected inputs and a label, got 1 column"),
    "pipes": (PLAIN.replace(",", "|"), "commas, semicolons or tabs stand between columns"),
    "one class": ("x,label\n1,a\n2,a\n3,a\n", 'expected two labels at least, got one, "a"'),
    "a short row": (PLAIN + "1,2\n", "line 22 has 2 columns, the first has 3"),
    "a long row": (PLAIN + "1,2,a,b\n", "line 22 has 4 columns, the first has 3"),
    "UTF-16": (PLAIN.encode("utf-16"), "is UTF-16; iconv"),
    "UTF-16, big end first": (b"\xfe\xff" + PLAIN.encode("utf-16-be"), "is UTF-16; iconv"),
    "Latin-1": (PLAIN.replace("x", "gr\xf6\xdfe", 1).encode("latin-1"), "line 1 is not UTF-8; iconv -f WINDOWS-1252"),
    "a zero byte": (PLAIN + "1,2\0,a\n", "holds a zero byte, it is no text"),
    "a quote without end": (PLAIN + '1,"2,a\n', "line 22 has a quote that does not end"),
    "a quote in a field": (PLAIN + '1,5" pipe,a\n', "line 22 has a quote inside of a field"),
    "quotes that never end": ('"' + "a,b\n" * 1000, "line 1 has a quote that does not end"),
    "quotes alone": ('"' * 9 + "\n", "line 1 has a quote that does not end"),
    "separators alone": (",,,\n,,,\n", "expected a label, got"),
    "a text among numbers": (PLAIN + "1,many,a\n", 'line 22, column 2: expected a number, got "many"'),
    "an infinite number": (PLAIN + "1,inf,a\n", 'line 22, column 2: expected a value, got "inf"'),
    "a number too large": (PLAIN + "1e400,2,a\n", 'line 22, column 1: expected a number, got "1e400"'),
    "a hexadecimal number": (PLAIN + "0x10,2,a\n", 'line 22, column 1: expected a number, got "0x10"'),
    "a row without label": (PLAIN + "1,2,\n", 'line 22, column 3: expected a label, got ""'),
    "a label of blanks": (PLAIN + '1,2,"  "\n', "line 22, column 3: expected a label, got"),
    "two columns of one name": (PLAIN.replace("x,y", "x,x"), 'line 1 names two columns "x"'),
    "a column without values": (
        "x,y,label\n" + lines(20, lambda i: f"{i},,{ab(i)}"),
        "has no value; --drop y",
    ),
    "commas at the ends": ("x,label,\n" + lines(20, lambda i: f"{i},{ab(i)},"), READ),
    "a comma behind each row": ("x,label\n" + lines(20, lambda i: f"{i},{ab(i)},"), "line 2 has 3 columns"),
    "a text a row": (
        "name,label\n" + lines(120, lambda i: f"n{i},{ab(i)}"),
        "120 different texts in 120 rows: they name rows, and are no kinds; --drop name",
    ),
    "a label a row": ("x,label\n" + lines(60, lambda i: f"{i},c{i}"), "texts that name rows are no classes"),
    "numbers to be predicted": ("x,y\n" + lines(60, lambda i: f"{i % 7},{i * 1.5}"), "add --task regression"),
    "one row": ("x,label\n1,a\n", 'expected two labels at least, got one, "a"'),
    "two rows": ("x,label\n1,a\n2,b\n", "no class has enough rows"),
    "a row a class": ("x,label\n1,a\n2,b\n3,c\n4,d\n", "no class has enough rows"),
    "70,000 columns": (
        ",".join(f"c{i}" for i in range(70000)) + "\n" + "1," * 69999 + "1\n",
        "numbers a row, got 70000 columns",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is a PNG picture, no table"),
    "a spreadsheet": (spreadsheet(), "is a zip archive, as torch.save, numpy.savez and spreadsheets (.xlsx) make"),
    "a gzip file": (gzip.compress(PLAIN.encode()), "is a gzip file, no table"),
    "a web page": ("<!DOCTYPE html><html><body>404, not found</body></html>\n", "is a web page, no table"),
    "a PDF": (b"%PDF-1.7\n" + bytes(20), "is a PDF document, no table"),
    "JSON": ('[{"x": 1, "label": "a"}]\n', "line 1 has a quote inside of a field"),
    "decimal commas": ("x;label\n" + lines(20, lambda i: f"{i},5;{ab(i)}"), "numbers have a decimal point"),
    "thousands": ("x,label\n" + lines(20, lambda i: f'"{i + 1},000",{ab(i)}'), "numbers have a decimal point"),
    "per cent": ("x,label\n" + lines(20, lambda i: f"{i}%,{ab(i)}"), "numbers have a decimal point"),
    "prices": ("x,label\n" + lines(20, lambda i: f"${i}.50,{ab(i)}"), "numbers have a decimal point"),
    "names twice": (PLAIN + "x,y,label\n", "line 1 may be names or a row"),
    "comments": ("# made by hand\n" + PLAIN, "line 2 has 3 columns, the first has 1"),
    "labels that are missing": (
        "x,label\n" + lines(20, lambda i: f"{i},{'' if i % 2 else 'b'}"),
        "expected a label, got",
    ),
    "a class named nan": ("x,label\n" + lines(20, lambda i: f"{i},{'nan' if i % 2 else 'b'}"), READ),
    "a separator that is named": ("sep=;\nx;label\n" + lines(20, lambda i: f"{i};{ab(i)}"), READ),
    "a comma in a name": ("Temp (C, mean);label\n" + lines(20, lambda i: f"{i};{ab(i)}"), READ),
    "pandas' names": ("0,1\n" + lines(20, lambda i: f"{i}.5,{ab(i)}"), READ),
    "ids alone": ("x,label\n" + lines(60, lambda i: f"{i * 7 % 60},{ab(i)}"), "--keep x takes them in"),
    "a number of a million digits": ("x,label\n" + "1" * 1000000 + ",a\n2,b\n", 'expected a number, got "111'),
    "control characters": (
        PLAIN.replace("x", "x\x1b[31m", 1) + "1,\x1b[32mmany,a\n",
        'expected a number, got "?[32mmany"',
    ),
    "tabs and commas": ("x\ty,label\n" + lines(20, lambda i: f"{i}\t2,{ab(i)}"), READ),
    "texts alone": ("colour,label\n" + lines(20, lambda i: f"{'red' if i % 3 else 'blue'},{ab(i)}"), READ),
    "a few dates": ("day,label\n" + lines(40, lambda i: f"2024-01-{1 + i % 28:02},{ab(i)}"), READ),
    "a byte order mark": (b"\xef\xbb\xbf" + PLAIN.encode(), READ),
    "carriage returns": (PLAIN.replace("\n", "\r"), READ),
    "blanks round the fields": (PLAIN.replace(",", " , "), READ),
    "true and false": ("x,ok\n" + lines(20, lambda i: f"{i},{i % 2 == 0}"), READ),
    "quoted numbers": ("x,label\n" + lines(20, lambda i: f'"{i}","{ab(i)}"'), READ),
    "a sun in a name": ("\u2600,label\n" + lines(20, lambda i: f"{i},{ab(i)}"), READ),
    "a line break in a name": ('"two\nlines",label\n' + lines(20, lambda i: f"{i},{ab(i)}"), READ),
    "a constant column": ("x,z,label\n" + lines(20, lambda i: f"7,{i},{ab(i)}"), READ),
}


def test_there_are_sixty_tables_and_forty_folders():
    assert len(TABLES) >= 60 and len(FOLDERS) >= 40


@pytest.mark.parametrize("name", TABLES)
def test_a_strange_table(program, tmp_path, name):
    content, sentence = TABLES[name]
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = program.run("train", "--data", f"csv:{path}", "--dry-run")
    if sentence is READ:
        assert done.returncode == 0, done.stderr
    else:
        program.refused(done, str(path), sentence)
        assert "\x1b" not in done.stderr and len(done.stderr) < 1000


def pixels(width=16, height=16, channels=1, seed=0):
    values = np.random.default_rng(seed).integers(0, 255, (height, width, channels), dtype=np.uint8)
    return values[..., 0] if channels == 1 else values


def save(path, picture, kind="PNG", **options):
    picture = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    picture.save(path, kind, **options)


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    save(file, pixels(24, 20, 3), kind)
    return file.getvalue()


def plain(folder):
    """Two classes of six grey pictures."""
    for name in "ab":
        (folder / name).mkdir(parents=True)
        for i in range(6):
            save(folder / name / f"{i}.png", pixels(seed=i))


def parts(*names, then=lambda folder: None):
    def make(folder):
        for name in names:
            plain(folder / name)
        then(folder)

    return make


def beside(name: str, content):
    """The plain folder and one more file of class a: bytes, or what writes it."""

    def make(folder):
        plain(folder)
        path = folder / "a" / name
        path.write_bytes(content) if isinstance(content, bytes) else content(path)

    return make


def changed(change):
    def make(folder):
        plain(folder)
        change(folder)

    return make


def moving(path):
    save(path, pixels(20, 20, 3), "WEBP", save_all=True, append_images=[Image.new("RGB", (20, 20), "red")])


def not_utf8(folder):
    name = os.fsencode(folder) + b"/\xff\xfe"
    os.mkdir(name)
    shutil.copy(folder / "a" / "0.png", name + b"/0.png")


def one_each(folder):
    for path in folder.glob("?/[1-5].png"):
        path.unlink()


def deeper(folder):
    (folder / "b").rename(folder / "deep")
    (folder / "b").mkdir()
    (folder / "deep").rename(folder / "b" / "deep")


def add_class(content):
    def change(folder):
        (folder / "c").mkdir()
        if content:
            (folder / "c" / "notes.txt").write_text(content)

    return change


FOLDERS = {
    "no folder": (lambda folder: None, "No such file"),
    "a file": (lambda folder: folder.write_text("x"), "Not a directory"),
    "empty": (lambda folder: folder.mkdir(), "expected at least 2 class folders, got 0"),
    "pictures without classes": (
        lambda folder: (folder.mkdir(), [save(folder / f"{i}.png", pixels()) for i in range(5)]),
        "expected at least 2 class folders, got 0",
    ),
    "one class": (changed(lambda folder: shutil.rmtree(folder / "b")), "expected at least 2 class folders, got 1"),
    "a class without files": (changed(add_class("")), "holds no .png, .jpg, .jpeg or .webp file"),
    "a class of texts": (changed(add_class("x")), "holds no .png, .jpg, .jpeg or .webp file"),
    "a class of folders": (changed(deeper), "--nested looks into its folders"),
    "one picture a class": (changed(one_each), "no class has enough rows"),
    "train alone": (parts("train"), "expected at least 2 class folders, got 1"),
    "train and an empty test": (
        parts("train", then=lambda folder: (folder / "test").mkdir()),
        "expected at least 2 class folders, got 0",
    ),
    "other classes in test": (
        parts("train", "test", then=lambda folder: (folder / "test/b").rename(folder / "test/c")),
        "has not the same classes in train and in test",
    ),
    "a class more in validation": (
        parts("train", "validation", "test", then=lambda f: shutil.copytree(f / "validation/b", f / "validation/c")),
        "has not the same classes in train and in validation",
    ),
    "train and val": (parts("train", "val"), READ),
    "an empty picture": (beside("x.png", b""), "it is empty; PNG, JPEG and WebP files are read"),
    "a text": (beside("x.png", b"no picture"), "it is a text; PNG, JPEG and WebP files are read"),
    "bytes": (beside("x.png", b"\x01\x02\x03"), "it is none; PNG, JPEG and WebP files are read"),
    "a cut PNG": (beside("x.png", encoded("PNG")[:90]), "cannot be read"),
    "a cut JPEG": (beside("x.jpg", encoded("JPEG")[:300]), "cannot be read"),
    "a cut WebP": (beside("x.webp", encoded("WEBP")[:60]), "damaged or cut off"),
    "a JPEG named png": (beside("x.png", encoded("JPEG")), READ),
    "a GIF": (beside("x.gif", encoded("GIF")), READ),
    "a GIF named png": (beside("x.png", encoded("GIF")), "it is a GIF picture"),
    "a BMP named jpg": (beside("x.jpg", encoded("BMP")), "it is a BMP picture"),
    "a TIFF named jpg": (beside("x.jpg", encoded("TIFF")), "it is a TIFF picture"),
    "a web page named jpg": (beside("x.jpg", b"<!DOCTYPE html><html>404</html>"), "it is a web page"),
    "20,000 pixels wide": (
        beside("x.png", lambda path: save(path, Image.new("L", (20000, 2)))),
        "at most 16384 pixels a side",
    ),
    "a small file of many pixels": (
        beside("x.png", lambda path: save(path, Image.new("1", (16000, 16000)))),
        "67108864 in all are read",
    ),
    "one pixel": (beside("x.png", lambda path: save(path, pixels(1, 1))), READ),
    "a line": (beside("x.png", lambda path: save(path, pixels(300, 1))), READ),
    "transparent": (beside("x.png", lambda path: save(path, pixels(channels=4))), READ),
    "coloured among grey": (beside("x.png", lambda path: save(path, pixels(channels=3))), READ),
    "16 bits": (beside("x.png", lambda path: save(path, pixels().astype(np.uint16) * 200)), READ),
    "a palette": (beside("x.png", lambda path: save(path, Image.new("P", (16, 16)))), READ),
    "CMYK": (
        beside("x.jpg", lambda path: save(path, Image.new("CMYK", (20, 20)), "JPEG")),
        "the colours of printers (CMYK)",
    ),
    "a moving picture": (beside("x.webp", moving), "expected one picture, got a moving one"),
    "a pipe": (beside("x.png", os.mkfifo), "is not a regular file"),
    "a broken link": (beside("x.png", lambda path: path.symlink_to("nowhere.png")), "No such file"),
    "a link to itself": (beside("x.png", lambda path: path.symlink_to("x.png")), "Too many levels"),
    "a folder named as a picture": (beside("x.png", lambda path: path.mkdir()), READ),
    "a name that is no UTF-8": (changed(not_utf8), "the name is not UTF-8"),
    "control characters": (changed(lambda f: shutil.copytree(f / "a", f / "x\x1b[31m")), READ),
    "hidden files": (beside("._0.png", b"apple"), READ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_strange_folder(program, tmp_path, name):
    make, sentence = FOLDERS[name]
    folder = tmp_path / "set"
    make(folder)
    done = program.run("train", "--data", f"images:{folder}", "--dry-run")
    if sentence is READ:
        assert done.returncode == 0, done.stderr
    else:
        program.refused(done, str(folder), sentence)


def test_a_folder_that_goes_round(program, tmp_path):
    beside("round", lambda path: path.symlink_to(path.parent))(tmp_path / "set")
    done = program.run("train", "--data", f"images:{tmp_path / 'set'}", "--dry-run", "--nested")
    program.refused(done, "lies below 16 folders")
