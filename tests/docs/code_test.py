"""Every block of code of the pages and of the README is tried.

Python runs, a page's blocks one after the other; a comment `<!-- before: CODE -->` is run first and not shown. JSON is
handed to `bie train --net`. Of commands, `bie` runs, on small data and for one epoch; others are looked up: whether
there are such a script, its options, such a target, such a preset. Languages that nothing here tries are a failure, and
so is a block that is indented and has no language.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pages
import pytest
import stand_ins
import torch
from markdown_it import MarkdownIt
from serving import Server, running

ROOT = pages.ROOT
BIE = ROOT / os.environ.get("BIE_BUILD_DIR", "build/release") / "src/cli/bie"
TRIED = [page for page in pages.PAGES if page.is_relative_to(ROOT / "docs") or page.name == "README.md"]
# Output and formulas, which nothing tries; and directives of the site.
NO_CODE = re.compile(r"text|\{[a-z-]+\}.*")
# Model files that pages take for granted, with the options that train them.
NETS = {
    "mnist4.safetensors": ["--data", "mnist:DIR", "--arch", "lenet", "--bits", "4"],
    "lenet32.safetensors": ["--data", "mnist:DIR", "--arch", "lenet"],
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_blocks(language: str) -> list[Path]:
    return [page for page in TRIED if any(block.language == language for block in pages.blocks(page))]


def bodies(page: Path, language: str) -> list[str]:
    return [block.body for block in pages.blocks(page) if block.language == language]


@pytest.mark.parametrize("page", TRIED, ids=named)
def test_every_block_is_of_a_language_that_is_tried(page):
    known = {"python", "sh", "json"}
    strange = [block.name for block in pages.blocks(page) if block.language not in known]
    assert [
        block.name for block in pages.blocks(page) if block.name in strange and not NO_CODE.fullmatch(block.language)
    ] == []
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    assert [token.content for token in tokens if token.type == "code_block"] == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("page", with_blocks("python"), ids=named)
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    before = re.findall(r"<!-- before: (.*?) -->", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    world = {"torch": torch}
    for body in [*before, *bodies(page, "python")]:
        exec(compile(body, named(page), "exec"), world)


@pytest.mark.parametrize("page", with_blocks("json"), ids=named)
def test_net_descriptions_are_taken(page, tmp_path):
    for number, body in enumerate(bodies(page, "json")):
        (tmp_path / f"{number}.json").write_text(body)
        run_bie(["train", "--net", f"{number}.json", "--epochs", "1", "-o", "net.safetensors"], tmp_path)


def run_bie(arguments: list[str], folder: Path) -> str:
    env = os.environ | {"BIE_CACHE_DIR": str(folder / "cache")}
    command = [str(BIE), "--threads", "1", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder, env=env, check=False
    )
    assert done.returncode == 0, f"bie {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def small(arguments: list[str], folder: Path) -> list[str]:
    """The same command on a stand-in of its data, for an epoch, on the CPU."""
    short = {"--epochs": "1", "--seeds": "1", "--hidden": "64", "--repeats": "1", "--bpw": "30"}
    result: list[str] = []
    words = iter(arguments)
    for word in words:
        kind, _, rest = word.partition(":")
        if kind in ("mnist", "cifar10", "images") and rest == "DIR":
            result.append(f"{kind}:{folder / kind}")
        elif word.startswith("DIR/"):
            result.append(str(folder / "images" / word.removeprefix("DIR/")))
        elif word == "--device":
            next(words)
        elif word == "--gemm":
            result += [word, re.sub(r",\d+,\d+,\d+$", ",1,64,64", next(words))]
        elif word in short:
            next(words)
            result += [word, short[word]]
        elif word == "--threads":
            next(words)
        else:
            result.append(re.sub(r"^(w\d)g64$", r"\1g32", word))  # rows of the stand-in are multiples of 32
    command = next((word for word in result if not word.startswith("-")), "")
    if command == "train" and "--epochs" not in result:
        result += ["--epochs", "1"]
    if command == "demo":
        result += ["--epochs", "1"] if "--epochs" not in result else []
    return result


def give(arguments: list[str], folder: Path) -> None:
    """Makes the files that a command reads and no command of the page has made."""
    for word in arguments:
        if word in NETS and not (folder / word).exists() and arguments[arguments.index(word) - 1] != "-o":
            run_bie(small(["train", *NETS[word], "-o", word], folder), folder)
        if word.removeprefix("csv:") in ("iris.csv", "flowers.csv") and not (folder / "iris.csv").exists():
            stand_ins.tables(folder)
        if word == "images:photos" and not (folder / "photos").exists():
            stand_ins.photos(folder / "photos")
        if re.fullmatch(r"\w+\.onnx", word) and not (folder / word).exists():
            stand_ins.onnx_net(folder / word)
        if word == "samples.npy":
            stand_ins.onnx_samples(folder / word)
        if word.endswith(".gguf") and not (folder / word).exists():
            stand_ins.language_model(folder / word)
        if re.fullmatch(r"(story|prompts|chat|document)\.txt", word):
            (folder / word).write_text("Some words\n")
        if word == "text.txt":  # more tokens than a window
            (folder / word).write_text("Some words\n" * 60)
        if word == "keys.txt":
            (folder / word).write_text("a key\n")
        if word == "questions.jsonl":
            line = {"context": "Water boils at", "choices": [" 100 degrees", " noon"], "answer": 0}
            (folder / word).write_text(json.dumps(line) + "\n")
        if re.fullmatch(r"\w+\.png", word) and not (folder / word).exists():
            stand_ins.digit(folder / word)


def commands(page: Path) -> list[list[str]]:
    """The commands of a page as words, without comments, settings in front and what is behind a pipe or comes from a
    file."""
    found = []
    for body in bodies(page, "sh"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(re.split(" [|<] ", line)[0], comments=True)
            while words and (re.match(r"\w+=", words[0]) or words[0] == "/usr/bin/time"):
                words.pop(0)
            if words:
                found.append(words)
    return found


def options_of(words: list[str]) -> list[str]:
    return [word.split("=")[0] for word in words if re.match(r"--\w", word)]


def lacks(source: str, words: list[str]) -> list[str]:
    """Options that a program's sources do not name."""
    return [option for option in options_of(words) if not re.search(rf"{option}\b", source)]


def try_make(words, folder):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(words[1:]) <= set(targets)


def try_cmake(words, folder):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    kind = "buildPresets" if "--build" in words else "configurePresets"
    if "--install" in words:
        kind, words = "configurePresets", [*words, "--preset", Path(words[words.index("--install") + 1]).name]
    assert words[words.index("--preset") + 1] in [preset["name"] for preset in presets[kind]]


def try_pip(words, folder):
    """Folders are packages; other names are PyPI's."""
    for word in words[words.index("install") + 1 :]:
        if word.startswith("."):
            assert (ROOT / word / "pyproject.toml").exists(), word


def try_python(words, folder):
    if words[1:3] == ["-m", "venv"]:
        return
    if words[1] == "-c":
        return exec(words[2], {})
    try_script(words[1:], folder)


def try_script(words, folder):
    script = ROOT / words[0]
    assert script.exists(), words[0]
    # An option may be one of the script's own modules'.
    source = "\n".join(path.read_text() for path in [script, *script.parent.glob("*.py")])
    assert not lacks(source, words), words


def try_program(words, folder):
    """A bench, whose options are in its sources."""
    source = "\n".join(path.read_text() for path in (ROOT / "bench").rglob("*.c*"))
    name = Path(words[0]).name
    own = any((ROOT / "bench").glob(f"{name.removeprefix('bie_')}.c*"))
    assert own or f"add_executable({name} " in (ROOT / "bench/CMakeLists.txt").read_text(), name
    assert not lacks(source, words), words


def try_bie(words, folder):
    arguments = small(words[1:], folder)
    give(arguments, folder)
    if arguments[0] == "serve":
        return try_server(arguments[1:], folder)
    run_bie(arguments, folder)


def try_server(arguments, folder):
    """It listens, and ends well when it is told to."""
    model, *options = [folder / word if (folder / word).exists() else word for word in arguments]
    with running(Server(BIE, model, *options)) as server:
        assert server.get("/health").status == 200
        assert server.stop() == 0


def try_curl(words, folder):
    """A request of bie serve."""
    give(["model.gguf"], folder)
    path = next(word for word in words if word.startswith(("127.0.0.1:8080/", "localhost:8080/"))).split(":8080")[1]
    with running(Server(BIE, folder / "model.gguf")) as server:
        assert server.post(path, json.loads(words[words.index("-d") + 1])).status == 200


TRY = [
    (r"(build/release/src/cli/)?bie", try_bie),
    (r"curl", try_curl),
    (r"make", try_make),
    (r"cmake", try_cmake),
    (r"(\S+/)?pip", try_pip),
    (r"(\S+/)?python", try_python),
    (r"tools/\w+\.(py|sh)", try_script),
    (r"build/release/bench/\w+", try_program),
]


def try_command(words: list[str], folder: Path) -> None:
    for pattern, how in TRY:
        if re.fullmatch(pattern, words[0]):
            return how(words, folder)
    raise AssertionError(f"nothing here tries {words[0]}")


@pytest.mark.parametrize("page", with_blocks("sh"), ids=named)
def test_commands(page, tmp_path):
    stand_ins.mnist(tmp_path / "mnist")
    stand_ins.cifar10(tmp_path / "cifar10")
    stand_ins.images(tmp_path / "images")
    for words in commands(page):
        try_command(words, tmp_path)


@pytest.mark.parametrize("page", TRIED, ids=named)
def test_commands_in_lines_have_these_options(page):
    """`bie COMMAND --option` in the prose; with an ellipsis too."""
    text = pages.FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in re.finditer(r"`(?:build/release/src/cli/)?bie ((?:--threads \d+ )?([a-z]+)[^`]*)`", text):
        done = subprocess.run([BIE, found[2], "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, found[0]
        known = done.stdout + " --help --json --quiet --threads"
        assert not lacks(known, found[1].split()), found[0]


@pytest.mark.parametrize(
    "words", [["bie", "train", "--no-such"], ["make", "nothing"], ["tools/sweep.py", "--no-such"], ["rm", "x"]]
)
def test_a_wrong_command_would_be_seen(words, tmp_path):
    with pytest.raises(AssertionError):
        try_command(words, tmp_path)


def test_the_report_of_a_conversion_is_as_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs/convert.md"
    exec(bodies(page, "python")[0], {})
    assert capsys.readouterr().out == bodies(page, "text")[0]
