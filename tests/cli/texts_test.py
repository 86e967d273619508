"""What the command writes about itself: completion, the man page."""

import re
import shutil
import subprocess

import pytest

COMMANDS = ["train", "eval", "predict", "quantize", "import", "report", "inspect", "bench"]
COMMANDS += ["demo", "doctor", "tune", "completion", "man"]


def output(program, *arguments) -> str:
    process = program.run(*arguments, threads=None)
    assert process.returncode == 0
    assert process.stderr == ""
    return process.stdout


def complete(script, words) -> list[str]:
    """What bash offers for the last of the words."""
    array = " ".join(f"'{word}'" for word in words)
    shell = f'{script}\nCOMP_WORDS=({array})\nCOMP_CWORD={len(words) - 1}\n_bie\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    process = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert process.stderr == ""
    return process.stdout.split()


def test_bash_completion(program):
    script = output(program, "completion", "bash")
    assert set(COMMANDS) <= set(complete(script, ["bie", ""]))
    assert complete(script, ["bie", "qu"]) == ["quantize"]
    assert "--patience" in complete(script, ["bie", "train", "--pa"])
    assert "--json" in complete(script, ["bie", "eval", "--j"])
    assert complete(script, ["bie", "--quiet", "bench", "--rep"]) == ["--repeats"]
    assert complete(script, ["bie", "eval", "mod"]) == [], "a file is left to the shell"
    assert "resnet20" in complete(script, ["bie", "train", "--arch", ""])
    assert complete(script, ["bie", "train", "--bits", ""]) == ["32", "8", "4", "1"]
    assert complete(script, ["bie", "train", "--missing", "me"]) == ["mean"]
    assert complete(script, ["bie", "train", "--augment", ""]) == ["none", "crop-flip", "rotate", "colour"]
    assert complete(script, ["bie", "train", "--label", ""]) == [], "a column's name is no word of the program"
    assert complete(script, ["bie", "train", "--split", ""]) == ["shuffle", "order"]
    assert complete(script, ["bie", "completion", ""]) == ["bash", "zsh", "fish"]
    for command in COMMANDS:
        words = complete(script, ["bie", command, "-"])
        assert words and len(words) == len(set(words))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_completions(program, shell):
    script = output(program, "completion", shell)
    for word in [*COMMANDS, "patience", "per-channel"]:
        assert word in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, its script is only looked at")
    process = subprocess.run([shell, "-n", "-"], input=script, capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (0, "")


def test_help_is_a_command_too(program):
    assert output(program, "help") == output(program, "--help")
    for command in COMMANDS:
        assert output(program, "help", command) == output(program, command, "--help")
    assert "--split shuffle|order|group:COLUMN|time:COLUMN" in output(program, "help", "train")
    done = program.run("help", "trian", threads=None)
    assert done.returncode == 2 and "there is no command trian" in done.stderr


def test_an_unknown_shell(program):
    program.refused(program.run("completion", "tcsh"), "'tcsh'", "bash, zsh or fish")


def test_the_man_page(program):
    page = output(program, "man")
    for command in COMMANDS:
        assert f".SS bie {command}\n" in page
    assert "\\-\\-patience" in page
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed, the page is only looked at")
    process = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-P-cbou"], input=page, capture_output=True, text=True, timeout=60
    )
    assert process.stderr == ""
    assert re.search(r"^ +bie train --bits 4 -o digits4\.safetensors$", process.stdout, re.MULTILINE)
    assert re.search(r"^ +130 +Interrupted", process.stdout, re.MULTILINE)
