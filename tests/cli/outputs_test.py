"""What the command writes: links, modes, pipes and devices, full disks, killed runs, closed streams."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

TINY = ["--hidden", "16", "--depth", "1", "--epochs", "1"]


def mode_of(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def outputs(program, folder):
    """Each way to write one file, as the arguments without its name."""
    model = folder / "the model"
    program.accuracy(program.run("train", *TINY, "-o", model))
    return [
        ["train", *TINY, "--out"],
        ["train", *TINY, "--logits"],
        ["eval", model, "--logits"],
        ["quantize", model, "--out"],
    ]


def test_a_link_stays_and_what_it_names_is_replaced(program, tmp_path):
    for command in outputs(program, tmp_path):
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        real, link, far = folder / "real", tmp_path / "link", tmp_path / "far"
        real.write_text("old")
        real.chmod(0o600)
        link.symlink_to("elsewhere/real")
        far.symlink_to(link)
        assert program.run(*command, far).returncode == 0
        assert link.is_symlink()
        assert far.is_symlink()
        assert real.read_bytes()[8:9] == b"{"
        assert mode_of(real) == 0o600
        assert [path.name for path in folder.iterdir()] == ["real"]
        real.unlink()
        assert program.run(*command, far).returncode == 0, "a link to a name that is free"
        assert real.is_file()
        for path in (real, link, far):
            path.unlink()
        folder.rmdir()


def test_links_that_go_round_in_circles(program, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    program.refused(
        program.run("train", *TINY, "-o", tmp_path / "a"), "--out:", str(tmp_path / "a"), "cannot be written"
    )
    assert (tmp_path / "a").is_symlink()


def test_a_new_file_has_the_mode_of_the_umask(program, tmp_path):
    path = tmp_path / "model"
    shell = f"umask 027 && '{program.path}' -q --threads 1 train {' '.join(TINY)} -o '{path}' --run '{tmp_path}/run'"
    subprocess.run(["sh", "-c", shell], check=True, capture_output=True, timeout=60)
    assert mode_of(path) == 0o640
    for file in (tmp_path / "run").rglob("*"):
        assert mode_of(file) == (0o750 if file.is_dir() else 0o640), file


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_keeps_its_mode(program, tmp_path, mode):
    path = tmp_path / "model"
    path.write_text("old")
    path.chmod(mode)
    program.accuracy(program.run("train", *TINY, "-o", path))
    assert mode_of(path) == mode


def test_a_run_folder_keeps_the_modes_of_its_files(program, tmp_path):
    run = tmp_path / "run"
    program.accuracy(program.run("train", *TINY, "--run", run))
    files = [run / name for name in ("config.json", "log.jsonl", "model.safetensors", "report.html")]
    for file in files:
        file.chmod(0o600)
    program.accuracy(program.run("train", *TINY, "--run", run, "--resume"))
    assert [mode_of(file) for file in files] == [0o600] * 4


def test_a_pipe_gets_the_model(program, tmp_path):
    file = tmp_path / "file"
    for command in outputs(program, tmp_path):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with ThreadPoolExecutor() as pool:
            got = pool.submit(pipe.read_bytes)
            process = program.run(*command, pipe)
        assert process.returncode == 0, process.stderr
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
        assert program.run(*command, file).returncode == 0
        assert got.result() == file.read_bytes()
        pipe.unlink()


def test_a_device_stays_a_device(program, tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.open("wb").close()
    except PermissionError:
        pytest.skip("devices cannot be made here")
    for command in outputs(program, tmp_path):
        assert program.run(*command, device).returncode == 0
        assert stat.S_ISCHR(device.lstat().st_mode)
    assert program.run("demo", "--epochs", "1", "--report", device).returncode == 0
    assert stat.S_ISCHR(device.lstat().st_mode)


def test_stdout_may_be_the_output(program, tmp_path):
    command = [str(program.path), "-q", "--threads", "1", "train", *TINY, "--logits", "/dev/stdout"]
    process = subprocess.run(command, capture_output=True, timeout=60)
    assert process.returncode == 0
    assert process.stdout[8:9] == b"{"
    assert process.stdout.endswith(b" s\n")


@pytest.mark.parametrize("command", [["doctor"], ["train", *TINY], ["train", *TINY, "--json"]], ids=" ".join)
def test_results_that_nobody_takes_are_an_error(program, command):
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [str(program.path), "-q", "--threads", "1", *command], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert process.returncode == 1
    assert process.stderr == "error: the results cannot be written to stdout: No space left on device\n"


@pytest.mark.parametrize("command", ["doctor", "eval MODEL", "predict MODEL - --json", "help", "--version"])
def test_results_for_a_closed_stdout_are_an_error(program, tmp_path, command):
    (tmp_path / "t.csv").write_text("a,b,label\n" + "".join(f"{i % 5},{i % 3},{i % 2}\n" for i in range(60)))
    model = tmp_path / "m"
    done = program.run("train", *TINY, "--data", f"csv:{tmp_path}/t.csv", "-o", model)
    assert done.returncode == 0, done.stderr
    words = command.replace("MODEL", str(model)) + (f" --data csv:{tmp_path}/t.csv" if "eval" in command else "")
    shell = f"'{program.path}' -q --threads 1 {words} < '{tmp_path}/t.csv' >&-"
    done = subprocess.run(["sh", "-c", shell], timeout=60, capture_output=True, text=True)
    assert done.returncode == 1, done
    assert done.stderr.startswith("error: the results cannot be written to stdout")


def test_closed_streams_do_not_reach_a_file(program, tmp_path):
    """The next file that is opened would have their numbers."""
    options = f"train {' '.join(TINY)} --run '{tmp_path}/run'"
    shell = f"'{program.path}' --threads 1 {options} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], timeout=60).returncode == 1, "what it prints is lost"
    (line,) = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["epoch"] == 1
    for file in (tmp_path / "run").iterdir():
        assert file.is_dir() or b"info: " not in file.read_bytes()


def test_two_runs_in_one_folder(program, tmp_path):
    run = tmp_path / "run"
    long = ["--hidden", "64", "--depth", "1", "--epochs", "1000", "--run", run]
    command = [str(word) for word in (program.path, "-q", "--threads", "1", "train", *long)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        end = time.monotonic() + 60
        while not (run / "config.json").exists() and time.monotonic() < end:
            time.sleep(0.01)
        for more in ([], ["--resume"]):
            program.refused(program.run("train", *long, *more), str(run), "another run is writing there")
        program.refused(
            program.run("train", *TINY, "--checkpoints", run / "checkpoints"), str(run), "another run is writing there"
        )
        first.kill()
    short = ["--hidden", "64", "--depth", "1", "--epochs", "1"]
    assert "another run" not in program.run("train", *short, "--run", run).stderr, "a killed run holds nothing"
    other = tmp_path / "other"
    other.mkdir()
    held = os.open(other, os.O_RDONLY)  # as a run holds it that writes its model and page
    fcntl.flock(held, fcntl.LOCK_EX)
    program.refused(program.run("train", *short, "--run", other), f"run folder {other}", "another run is writing there")
    os.close(held)
    program.accuracy(program.run("train", *short, "--run", other))


def test_a_run_that_is_killed_leaves_whole_files(program, tmp_path):
    """Wherever it is hit."""
    run = tmp_path / "run"
    options = ["--hidden", "96", "--depth", "2", "--epochs", "4", "--checkpoint-every", "3", "--run", run]
    command = [str(word) for word in (program.path, "-q", "--threads", "1", "train", *options)]
    for i in range(6):
        with subprocess.Popen([*command, "--resume"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(0.35 + 0.05 * i)
            process.send_signal(signal.SIGKILL)
    process = program.run("train", *options, "--resume")
    program.accuracy(process)
    assert "passed over" not in process.stderr
    assert [json.loads(line)["epoch"] for line in (run / "log.jsonl").read_text().splitlines()] == [1, 2, 3, 4]
    assert not list(run.rglob("*.tmp-*"))


def test_an_output_does_not_take_the_place_of_an_image(program, tmp_path, small_mnist, photos):
    images, labels = (next(tmp_path.rglob(f"*t10k*{kind}*")) for kind in ("images", "labels"))
    photo, link = next(tmp_path.rglob("*.png")), tmp_path / "link"
    link.symlink_to(images)
    before = [path.read_bytes() for path in (images, labels, photo)]
    for data, path in ((small_mnist, labels), (small_mnist, link), (f"images:{photos}", photo)):
        process = program.run("train", *TINY, "--data", data, "--logits", path)
        program.refused(process, "--logits", f"{path} is a file of the data")
    assert [path.read_bytes() for path in (images, labels, photo)] == before
    assert program.run("train", *TINY, "--data", small_mnist, "-o", images.parent / "model").returncode == 0


def test_a_folder_that_holds_a_run_is_not_written_over(program, tmp_path):
    run = tmp_path / "run"
    program.accuracy(program.run("train", *TINY, "--run", run))
    shutil.rmtree(run / "checkpoints")
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    program.refused(program.run("train", *TINY, "--bits", "4", "--run", run), str(run), "--resume")
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_file_behind_stdout_is_not_replaced(program, tmp_path):
    log = tmp_path / "log"
    log.write_text("old\n")
    with log.open("a") as out:
        done = subprocess.run([program.path, "train", *TINY, "-o", "/dev/stdout"], stdout=out, timeout=300)
    assert done.returncode == 3 and log.read_text() == "old\n"


def test_one_signal_ends_a_command_that_waits_for_a_reader(program, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waiting = subprocess.Popen([program.path, "--threads", "1", "train", *TINY, "-o", pipe])
    try:
        time.sleep(5)  # on a slow machine it trains still, and keeps nothing
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(timeout=60) in (-signal.SIGTERM, 130)
    finally:
        waiting.kill()
