"""Training that is killed and goes on: the model is the one of a run that nobody killed, byte for byte."""

import random
import signal
import subprocess
import time

import kill_test
import pytest

WAYS = {
    "1 bit": ["--bits", "1"],
    "1 bit, float weights, sgd": ["--bits", "1", "--weights", "float", "--optimizer", "sgd"],
    "4 bits, adam, augmented": ["--bits", "4", "--optimizer", "adam", "--no-norm", "--augment", "crop-flip"],
    "4 bits, precision of bfloat16": ["--bits", "4", "--precision", "bfloat16"],
    "8 bits, int8 weights, bfloat16": ["--bits", "8", "--weights", "int8", "--bfloat16-moments", "--quantise-first"],
}
LONG = ["--hidden", "128", "--depth", "2", "--epochs", "8"]


def checkpoints(folder):
    return sorted(folder.glob("step-*.safetensors"))


def newest(folder) -> int:
    return max((kill_test.step_of(path) for path in checkpoints(folder)), default=0)


def kill_at_random(program, rng, folder, *arguments):
    """SIGKILL at a random time after two more checkpoints."""
    command = [program.path, "-q", "--threads", "1", "train", *arguments]
    before = newest(folder)
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) as process:
        while newest(folder) < before + 8:
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_run_goes_on(program, tmp_path, way):
    rng = random.Random(way)
    folder, whole, resumed = (tmp_path / name for name in ("checkpoints", "whole", "resumed"))
    common = [*LONG, *WAYS[way]]
    uninterrupted = program.run("train", *common, "-o", whole)
    arguments = [*common, "-o", resumed, "--checkpoints", folder, "--checkpoint-every", "4"]
    kill_at_random(program, rng, folder, *arguments)
    kill_at_random(program, rng, folder, *arguments, "--resume")
    assert not resumed.exists()
    older, damaged = checkpoints(folder)[-2:]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    kill_at_random(program, rng, folder, *arguments, "--resume")
    older, damaged = checkpoints(folder)[-2:]
    damaged.write_bytes(damaged.read_bytes()[:1000])
    last = program.run("train", *arguments, "--resume")
    assert f"info: passed over safetensors file {damaged}: " in last.stderr
    assert f"info: resumed after step {kill_test.step_of(older)}\n" in last.stderr
    assert program.accuracy(last) == program.accuracy(uninterrupted)
    assert resumed.read_bytes() == whole.read_bytes()
    assert [path.name for path in checkpoints(folder)] == [
        "step-000000000172.safetensors",
        "step-000000000176.safetensors",
    ]


def test_a_kill_inside_a_save(bie, tmp_path, capsys):
    options = ["--bits", "1", "--hidden", "1536", "--depth", "2", "--epochs", "1"]
    summary = kill_test.kill_and_compare(bie, tmp_path, options, kills=2, seed=1, least_save=0)
    assert summary.startswith("2 kills inside saves")
    assert capsys.readouterr().out.count("\nkill ") == 2


def test_checkpoints_are_those_of_one_run(program, tmp_path):
    folder = tmp_path / "checkpoints"
    tiny = ["train", "--hidden", "16", "--depth", "1", "--epochs", "1", "--checkpoints", folder]
    program.accuracy(program.run(*tiny))
    kept = [path.read_bytes() for path in folder.iterdir()]
    program.refused(program.run(*tiny), str(folder), "resume")
    program.refused(program.run(*tiny, "--resume", "--lr", "0.5"), str(folder), "lr is 0.5")
    program.refused(program.run(*tiny, "--resume", "--bits", "8"), str(folder), "bits is 8")
    program.refused(program.run(*tiny, "--resume", "--optimizer", "sgd"), str(folder), 'optimizer is "sgd"')
    program.refused(program.run(*tiny, "--resume", "--layers", "--lr", "0.5"), str(folder), "lr is 0.5")
    for path in folder.iterdir():
        path.write_bytes(b"")
    program.refused(program.run(*tiny, "--resume"), str(folder), "step-000000000022.safetensors")
    assert len(kept) == 1
