"""docs/own-data.md is what the command says: its commands run as they stand, and numbers may differ."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pages
import pytest
import stand_ins
from code_test import BIE, ROOT

PAGE = ROOT / "docs/own-data.md"
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]\d+)?|\bnan\b")


def told(text: str) -> str:
    """Without numbers, the units of times, the widths of columns that numbers give, and the middle epochs of a run."""
    text = re.sub(r"0[ \u00a0](ms|min|s)\b", "0 s", NUMBER.sub("0", without_middle(text)))
    return re.sub(r"[ \t]+", " ", text).strip()


def without_middle(text: str) -> str:
    """The first and the last epoch of a run, and dots between them."""
    return re.sub(r"^(info: epoch .*\n)(?:info: epoch .*\n)+(?=info: epoch )", r"\1...\n", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each block of commands says, on standard error too."""
    folder = tmp_path_factory.mktemp("own")
    stand_ins.tables(folder)
    stand_ins.photos(folder / "photos")
    found = []
    for block in pages.blocks(PAGE):
        if block.language != "sh":
            continue
        lines = ""
        for line in block.body.splitlines():
            command = [str(BIE), "--threads", "1", *shlex.split(line)[1:]]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=os.environ
            )
            assert done.returncode == 0, f"{line}: {done.stdout}"
            lines += done.stdout
        found.append(lines)
    return found


def test_the_page_shows_what_the_commands_say(said):
    shown = [block.body for block in pages.blocks(PAGE) if block.language == "text"]
    assert [told(text) for text in shown] == [told(text) for text in said]


def test_a_net_of_the_page_has_learnt(said):
    every = "".join(said)
    accuracies = [float(found) for found in re.findall(r"^test accuracy ([\d.]+) %", every, flags=re.MULTILINE)]
    assert len(accuracies) == 9 and min(accuracies) > 60, "a table's and the photos' classes are easily told apart"
    assert re.search(r"cat/\d\.jpg: cat", every) and re.search(r"dog/\d\.jpg: dog", every)
