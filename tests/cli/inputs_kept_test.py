"""No output of a command takes the place of what it reads: each output against each input, under every name."""

import os
from pathlib import Path

import pytest
from user_files import striped, write_png

TINY = ["--hidden", "16", "--depth", "1", "--epochs", "1"]


@pytest.fixture(scope="module")
def made(bie, tmp_path_factory):
    """A folder with every kind of file that commands read."""
    from conftest import Program

    program = Program(bie)
    folder = tmp_path_factory.mktemp("made")
    table = "x,y,label\n" + "".join(f"{i % 5},{i % 3},{i % 2}\n" for i in range(60))
    (folder / "rows.csv").write_text(table)
    (folder / "more.csv").write_text(table.replace("\n1,", "\n2,"))
    (folder / "net.json").write_text('{"format_version": 1, "layers": [{"type": "linear", "out": 8, "bits": 32}]}')
    for i in range(6):
        write_png(folder / "photos" / "across" / f"{i}.png", striped(i, upright=False))
        write_png(folder / "photos" / "upright" / f"{i}.png", striped(i, upright=True))
    rows = ["--data", f"csv:{folder}/rows.csv"]
    for command in (
        ["train", *TINY, *rows, "--bits", "32", "--run", folder / "run"],
        ["train", *TINY, "--bits", "32", "-o", folder / "digits"],
        ["export", folder / "run", "-o", folder / "run.net.bie"],
    ):
        done = program.run(*command)
        assert done.returncode == 0, done.stderr
    return folder


# A command, its inputs, its outputs.
CASES = {
    "train": (
        ["train", "--epochs", "1", "--data", "csv:rows.csv", "--test-data", "more.csv", "--net", "net.json"],
        ["rows.csv", "more.csv", "net.json"],
        ["--out", "--logits"],
    ),
    "train from": (["train", "--epochs", "1", "--from", "digits"], ["digits"], ["--out", "--logits"]),
    "train on pictures": (
        ["train", "--epochs", "1", "--data", "images:photos"],
        ["photos/across/3.png"],
        ["--out", "--logits"],
    ),
    "train into a run": (["train", *TINY, "--run", "new"], ["new/log.jsonl", "new/report.html"], ["--out", "--logits"]),
    "eval": (
        ["eval", "run/model.safetensors", "--data", "csv:rows.csv"],
        ["rows.csv", "run/model.safetensors"],
        ["--logits"],
    ),
    "eval of a run": (["eval", "run", "--data", "csv:rows.csv"], ["run/model.safetensors"], ["--logits"]),
    "quantize": (
        ["quantize", "run/model.safetensors", "--calib", "csv:rows.csv", "--test-data", "more.csv"],
        ["run/model.safetensors", "rows.csv", "more.csv"],
        ["--out"],
    ),
    "predict": (
        ["predict", "run", "rows.csv", "more.csv"],
        ["rows.csv", "more.csv", "run/model.safetensors"],
        ["--out"],
    ),
    "predict of a folder": (
        ["predict", "run", "tables"],
        ["tables/rows.csv"],
        ["--out"],
    ),
    "predict with a net": (["predict", "run.net.bie", "rows.csv"], ["run.net.bie", "rows.csv"], ["--out"]),
    "export": (["export", "run/model.safetensors"], ["run/model.safetensors"], ["--out", "--c-array"]),
    "export of a run": (["export", "run"], ["run/model.safetensors"], ["--out", "--c-array"]),
    "compare": (
        ["compare", "run"],
        ["run/report.html", "run/config.json", "run/results.json", "run/log.jsonl", "run/model.safetensors"],
        ["--report"],
    ),
}
ROWS = [(case, read, option) for case, (_, inputs, options) in CASES.items() for read in inputs for option in options]


def snapshot(folder: Path) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", range(len(ROWS)), ids=[f"{c}: {o} over {i}" for c, i, o in ROWS])
def test_an_input_is_kept(program, made, tmp_path, monkeypatch, place):
    case, read, option = ROWS[place]
    monkeypatch.chdir(made)
    (made / "tables").mkdir(exist_ok=True)
    if not (made / "tables" / "rows.csv").exists():
        os.link(made / "rows.csv", made / "tables" / "rows.csv")
    command = CASES[case][0]
    link, hard, through = tmp_path / "link", tmp_path / "hard", tmp_path / "through"
    link.symlink_to(made / read)
    through.symlink_to((made / read).parent)
    names = [read, f"./photos/../{read}", link, through / Path(read).name]
    if (made / read).exists():
        hard.hardlink_to(made / read)
        names.append(hard)
    before = snapshot(made)
    some = names[:2] if case == "train into a run" else [names[place % len(names)], names[(place + 2) % len(names)]]
    for name in some:
        done = program.run(*command, option, name)
        assert done.returncode == 3, (name, done.stderr)
        assert f"{option}: {name} is " in done.stderr
    assert snapshot(made) == before


@pytest.mark.parametrize(
    ("command", "first", "second"),
    [
        (["train", *TINY], "--out", "--logits"),
        (["export", "run"], "--out", "--c-array"),
    ],
)
def test_two_outputs_are_two_files(program, made, tmp_path, monkeypatch, command, first, second):
    monkeypatch.chdir(made)
    (tmp_path / "real").mkdir()
    (tmp_path / "other").symlink_to("real")
    one, two = tmp_path / "real" / "x", tmp_path / "other" / "x"
    program.refused(program.run(*command, first, one, second, two), second, f"{two} is a file that {first} writes")
    assert not one.exists()


def test_a_runs_folder_does_not_lie_in_the_pictures(program, made, monkeypatch):
    """It would be a class of the next run."""
    monkeypatch.chdir(made)
    train = ["train", "--epochs", "1", "--data", "images:photos"]
    for option in ("--run", "--checkpoints"):
        for folder in ("photos/run", "photos/across/run"):
            program.refused(
                program.run(*train, option, folder), option, f"{folder}, which lies in the data images:photos"
            )
    assert sorted(path.name for path in (made / "photos").iterdir()) == ["across", "upright"]
