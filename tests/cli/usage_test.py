"""Help, exit codes of wrong use (2), of data that do not fit (3) and of missing devices (4), doctor."""

import json
import re
import struct
import subprocess
from pathlib import Path

import pytest

SUBCOMMANDS = [
    *["train", "eval", "predict", "quantize", "report", "inspect", "bench"],
    *["demo", "doctor", "tune", "completion", "man"],
]


@pytest.mark.parametrize("command", [[], *([name] for name in SUBCOMMANDS)], ids=["bie", *SUBCOMMANDS])
def test_help(program, command):
    for option in ("--help", "-h"):
        process = program.run(*command, option, threads=None)
        assert process.returncode == 0
        assert process.stderr == ""
        assert "--help" in process.stdout
        assert "Examples:" in process.stdout
        assert max(map(len, process.stdout.splitlines())) <= 80
        assert not re.search(r"INT:|TEXT:|Excludes|\n\n\n", process.stdout)
    if not command:
        for name in SUBCOMMANDS:
            assert name in process.stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("tran", "train"),
        ("quantise x", "quantize"),
        ("train --bit 4", "--bits"),
        ("train --epoch 4", "--epochs"),
        ("train --pateince 4", "--patience"),
        ("--jsn doctor", "--json"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(program, words, meant):
    done = program.run(*words.split())
    assert done.returncode == 2 and f"did you mean {meant}?" in done.stderr


def test_far_words_are_answered_with_none(program):
    assert "did you mean" not in program.run("xyzzy").stderr


def test_version(program):
    process = program.run("--version", threads=None)
    assert process.returncode == 0
    assert re.match(r"bie \d+\.\d+\.\d+ \(torch \d+\.\d+.*\)\nbuild: ", process.stdout)
    assert "CUDA kernels: " in process.stdout
    x86, arm = "avx2|avx512bw|avxvnni|avx512|amx", "neon|dotprod|i8mm"
    assert re.search(rf"^CPU: (portable|{x86}|{arm})\b", process.stdout, re.MULTILINE)


WRONG_USE = [
    [],
    ["fly"],
    ["--fly"],
    ["train", "--fly"],
    ["train", "surplus"],
    ["train", "--bits", "x"],
    ["train", "--bits"],
    ["train", "--epochs", "2.5"],
    ["train", "--lr", "fast"],
    ["train", "--seed", "-1"],
    ["train", "--step-floor", "low"],
    ["train", "--gradients", "rough"],
    ["train", "--warmup", "soon"],
    ["train", "--checkpoint-every", "often"],
    ["train", "--weights"],
    ["train", "--device"],
    ["train", "--linear-bits", "few"],
    ["train", "--checkpoints"],
    ["train", "--seed", "9223372036854775808"],
    ["train", "--seed", "1.0"],
    ["train", "--out", ""],
    ["train", "--run", ""],
    ["train", "--checkpoints", ""],
    ["quantize", "model", "--out", ""],
    ["demo", "--report", ""],
    ["demo", "--seed", "-1"],
    ["eval"],
    ["eval", "a", "b"],
    ["doctor", "surplus"],
    ["--threads", "0", "doctor"],
    ["--threads", "many", "doctor"],
]


@pytest.mark.parametrize("arguments", WRONG_USE, ids=" ".join)
def test_wrong_use_exits_2(program, arguments):
    process = program.run(*arguments, threads=None)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.strip()
    assert "frame #" not in process.stderr
    assert len(process.stderr) < 200
    assert all(word in process.stderr for word in arguments if word == "--seed")
    if "--json" in arguments:
        return
    (line,) = program.run("--json", *arguments, threads=None).stdout.splitlines()
    document = json.loads(line)
    command = arguments[0] if arguments and arguments[0] in SUBCOMMANDS else document["command"]
    assert document == {"schema": 1, "command": command, "error": document["error"], "exit_code": 2}
    assert document["error"] in process.stderr


TINY = ["--hidden", "16", "--depth", "1", "--epochs", "1"]

REFUSED = {
    "unknown data": (["train", "--data", "x"], ["x", "digits"]),
    "output folder missing": (["train", "-o", "no/such/folder/x"], ["no/such/folder/x", "cannot be written"]),
    "output is a folder": (["train", "-o", ".", *TINY], ["--out: .", "expected a file, got a folder"]),
    "logits in no folder": (
        ["train", "--logits", "no/folder/x", *TINY],
        ["--logits: no/folder/x", "cannot be written"],
    ),
    "logits of eval in no folder": (["eval", "m", "--logits", "no/folder/x"], ["--logits: no/folder/x"]),
    "logits over the trained model": (["train", "-o", "x", "--logits", "./x"], ["--logits: ./x", "that --out writes"]),
    "missing folder": (["train", "--data", "mnist:no/such/folder"], ["no/such/folder"]),
    "missing folder of eval": (["eval", "no-file"], ["no-file"]),
    "unknown bits": (["train", "--bits", "3", *TINY], ["3"]),
    "unknown architecture": (["train", "--arch", "tower", *TINY], ["tower"]),
    "unknown device": (["train", "--device", "nonsense", *TINY], ["'nonsense'", "cpu, cuda or cuda:N"]),
    "unknown device of eval": (["eval", "m", "--device", "cuda:x"], ["'cuda:x'", "cpu, cuda or cuda:N"]),
    "unknown augmentation": (["train", "--augment", "blur", *TINY], ["'blur'", "none, crop-flip, rotate or colour"]),
    "linear bits of an mlp": (["train", "--linear-bits", "4", *TINY], ["linear_bits is 4", "mlp"]),
    "unknown linear bits": (
        ["train", "--arch", "resnet20", "--linear-bits", "3"],
        ["linear_bits: expected 32, 8, 4 or 1, got 3"],
    ),
    "a deep net without norm": (["train", "--arch", "resnet20", "--no-norm"], ["resnet20", "BatchNorm"]),
    "no cifar10": (["train", "--data", "cifar10:no/such/folder"], ["no/such/folder/test_batch.bin"]),
    "lenet on small images": (["train", "--arch", "lenet", "--epochs", "1"], ["8x8"]),
    "depth of lenet": (["train", "--arch", "lenet", "--depth", "2"], ["depth is 2", "lenet has no depth", "vgg-small"]),
    "no width": (["train", "--arch", "vgg-small", "--width", "0"], ["width: expected 1 to 16384, got 0"]),
    "depth beyond all bounds": (
        ["train", "--arch", "resnet20", "--depth", "1001"],
        ["depth: expected 1 to 1000, got 1001"],
    ),
    "hidden of a net without an inner linear": (
        ["train", "--arch", "resnet20", "--hidden", "16"],
        ["--hidden 16", "resnet20", "--linear-bits"],
    ),
    "hidden and width of an mlp": (["train", "--hidden", "16", "--width", "8"], ["--hidden 16", "--width 8", "mlp"]),
    "no hidden": (["train", "--hidden", "0"], ["0"]),
    "no depth": (["train", "--depth", "0"], ["depth: expected 1 to 1000, got 0"]),
    "no epochs": (
        ["train", "--hidden", "16", "--epochs", "0"],
        ["expected at least 1 and 2, got 0 and "],
    ),
    "more epochs than can be counted": (
        ["train", "--hidden", "16", "--epochs", "9000000000000000000"],
        ["epochs and batch: expected at most ", "got 9000000000000000000 and "],
    ),
    "layers and no epochs": (
        ["train", "--layers", "--hidden", "16", "--epochs", "0"],
        ["expected at least 1 and 2, got 0 and "],
    ),
    "layers and a bad warm-up": (
        ["train", "--layers", *TINY, "--warmup", "1"],
        ["warm-up: expected a share in [0, 1), got 1"],
    ),
    "layers and resume from nowhere": (["train", "--layers", "--resume", *TINY], ["resume", "folder"]),
    **{
        f"step floor {floor}": (
            ["train", "--step-floor", floor, "--bits", "8", *TINY],
            [f"floor: expected a number in [0, 1], got {floor}"],
        )
        for floor in ("nan", "inf", "-0.1", "1e+30")
    },
    "freezing without binary weights": (
        ["train", "--freeze-binary", "--bits", "8", *TINY],
        ["freeze_binary", "8 bits"],
    ),
    "integer rate of float weights": (["train", "--integer-lr", "1e-3", "--bits", "8", *TINY], ["integer_lr", "int8"]),
    "memory of codes": (
        ["train", "--integer-memory", "0.3", "--bits", "8", "--weights", "int8", *TINY],
        ["integer_memory", "1-bit int8"],
    ),
    "renewal for float weights": (["train", "--renew-scale-every", "3", "--bits", "8", *TINY], ["renew_scale_every"]),
    "wide gradients of floats": (["train", "--wide-gradients", "--bits", "4", *TINY], ["wide_gradients", "int8"]),
    "int8 weights at 32 bits": (["train", "--weights", "int8", *TINY], ["weights is int8", "32 bits"]),
    "exact gradients of compat": (
        ["train", "--compat", "bie-0.2.6", "--gradients", "exact", *TINY],
        ["--gradients exact", "--compat bie-0.2.6"],
    ),
    "a precision of no name": (
        ["train", *TINY, "--precision", "half"],
        ["--precision: expected float32 or bfloat16, got 'half'"],
    ),
    "class weights of no name": (
        ["train", *TINY, "--class-weights", "equal"],
        ["--class-weights: expected none or balanced, got 'equal'"],
    ),
    "batch of one": (["train", *TINY, "--batch", "1"], ["epochs and batch: expected at least 1 and 2, got 1 and 1"]),
    "lr not a number": (["train", *TINY, "--lr", "nan"], ["nan"]),
    "negative lr": (["train", *TINY, "--integer-lr", "-1"], ["integer_lr: expected a positive number, got -1"]),
    "negative weight decay": (
        ["train", *TINY, "--weight-decay", "-1"],
        ["weight_decay: expected a number >= 0, got -1"],
    ),
    "no memory": (["train", *TINY, "--integer-memory", "0"], ["integer_memory: expected a positive number, got 0"]),
    "warm-up over all steps": (["train", *TINY, "--warmup", "1"], ["warm-up: expected a share in [0, 1), got 1"]),
    "unknown optimizer": (["train", "--optimizer", "lion", *TINY], ["'lion'", "diodemix, adam or sgd"]),
    "unknown schedule": (["train", "--schedule", "steps", *TINY], ["'steps'", "cosine"]),
    "unknown form of weights": (["train", "--weights", "int4", *TINY], ["'int4'", "usual, float or int8"]),
    "unknown compat": (["train", "--compat", "bie-9", *TINY], ["'bie-9'", "bie-0.2.6"]),
    "resume from nowhere": (["train", "--resume", *TINY], ["resume", "folder"]),
    "negative checkpoint interval": (
        ["train", "--checkpoint-every", "-1", *TINY],
        ["checkpoint_every and renew_scale_every: expected numbers >= 0, got -1 and "],
    ),
    "negative renewal": (
        ["train", "--renew-scale-every", "-1", *TINY],
        ["checkpoint_every and renew_scale_every: expected numbers >= 0, got 0 and -1"],
    ),
    "checkpoints in a file": (["train", "--checkpoints", "/dev/null", *TINY], ["/dev/null", "checkpoints"]),
    "checkpoints below a file": (["train", "--checkpoints", "/dev/null/x", *TINY], ["/dev/null/x", "checkpoints"]),
}


@pytest.mark.parametrize("command", [["train", *TINY], ["eval", "m"]], ids=["train", "eval"])
def test_without_a_gpu_cuda_is_refused(program, no_gpu, command):
    program.refused(program.run(*command, "--device", "cuda"), "the device is 'cuda', but", code=4)


def test_a_gpu_too_many(program):
    program.refused(program.run("train", "--device", "cuda:99", *TINY), "'cuda:99'", code=4)


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_exits_3(program, name):
    arguments, parts = REFUSED[name]
    program.refused(program.run(*arguments), *parts)


def test_a_net_that_no_memory_holds(program):
    """4 TiB for one weight."""
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1":
        pytest.skip("this machine promises memory that it does not have")
    process = program.run("train", "--hidden", "1048576", "--depth", "1")
    program.refused(process, "there is not enough memory: 4398046511104 bytes", code=1)


def test_quiet_keeps_errors_alone(program):
    process = program.run("-q", "train", "--hidden", "16", "--epochs", "0")
    program.refused(process, "expected at least 1 and 2, got 0 and ")
    assert len(process.stderr.splitlines()) == 1


@pytest.fixture
def model_bytes(program, tmp_path):
    """A 4-bit mlp for digits, as saved."""
    path = tmp_path / "good.safetensors"
    assert program.run("train", *TINY, "--bits", "4", "-o", path).returncode == 0
    return path.read_bytes()


def with_header(model: bytes, change) -> bytes:
    """The file with its JSON header changed in place."""
    (length,) = struct.unpack("<Q", model[:8])
    header = json.loads(model[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + model[8 + length :]


def rename(header):
    header["head.tail"] = header.pop("head.bias")


def newer(header):
    meta = json.loads(header["__metadata__"]["bie"]) | {"format_version": 99}
    header["__metadata__"]["bie"] = json.dumps(meta)


CORRUPT = {
    "empty": (lambda m: b"", ""),
    "truncated header": (lambda m: m[:50], ""),
    "truncated data": (lambda m: m[:-1], ""),
    "not safetensors": (lambda m: b"hello, this is text\n" * 20, ""),
    "no metadata": (lambda m: with_header(m, lambda h: h.pop("__metadata__")), "metadata"),
    "newer version": (lambda m: with_header(m, newer), "99"),
    "renamed entry": (lambda m: with_header(m, rename), "head.bias"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_models_exit_3(program, tmp_path, model_bytes, name):
    change, part = CORRUPT[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(change(model_bytes))
    program.refused(program.run("eval", path), str(path), part)


def test_a_warning_is_one_log_line(program, tmp_path, model_bytes):
    """A model whose activation scale was never set: torch warns in our name."""
    (length,) = struct.unpack("<Q", model_bytes[:8])
    header = json.loads(model_bytes[8 : 8 + length])
    start, end = header["block1.product.scale_a"]["data_offsets"]
    content = bytearray(with_header(model_bytes, lambda h: h["__metadata__"].pop("crc32")))
    data = len(content) - (len(model_bytes) - 8 - length)
    content[data + start : data + end] = bytes(end - start)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    process = program.run("eval", path)
    assert process.returncode == 0
    (line,) = process.stderr.splitlines()
    assert line.startswith("warning: ")
    assert "not trained" in line
    assert program.run("-q", "eval", path).stderr == ""


def test_a_model_for_other_images_exits_3(program, tmp_path, small_mnist, model_bytes):
    path = tmp_path / "digits.safetensors"
    path.write_bytes(model_bytes)
    program.refused(program.run("eval", path, "--data", small_mnist), str(path), "[1, 17, 17]", "[1, 8, 8]")


def test_a_folder_is_no_model(program, tmp_path):
    program.refused(program.run("eval", tmp_path), str(tmp_path))


def sections(process):
    """The lines of doctor's lists by the first word of their headings: words two or more blanks apart."""
    found, heading = {}, ""
    for line in process.stdout.splitlines():
        if line.startswith("  "):
            found.setdefault(heading, []).append(re.split(r"  +", line.strip()))
        else:
            heading = line.split()[0]
    return found


def rows(process):
    """Name and state of every kernel that doctor lists."""
    return dict(sections(process)["kernels,"])


def test_doctor_lists_every_table(program):
    process = program.run("doctor")
    assert process.returncode == 0
    assert process.stderr == ""
    assert "1 threads" in process.stdout
    listed = rows(process)
    tables = [name.removesuffix("_reference") for name in listed if name.endswith("_reference")]
    assert {"b1xb1_gemm", "s4xs4_conv2d", "sign_pack", "quantize"} <= set(tables)
    for table in tables:
        assert listed[f"{table}_reference"] == "available"
        assert any(name.startswith(table) and not name.endswith("_reference") for name in listed)
    assert set(listed.values()) <= {"available", "left out by BIE_MAX_ISA", "not on this machine"}


def test_doctor_lists_the_instruction_sets_that_a_cap_can_name(program):
    for name, _needs, _state in sections(program.run("doctor"))["instruction"]:
        capped = program.run("doctor", env={"BIE_MAX_ISA": name})
        states = [state for _name, _needs, state in sections(capped)["instruction"]]
        names = [other for other, _needs, _state in sections(capped)["instruction"]]
        assert "BIE_MAX_ISA is none of" not in capped.stdout
        assert "available" not in states[names.index(name) + 1 :], f"{name} leaves out what stands below it"
        assert "left out by BIE_MAX_ISA" not in states[: names.index(name) + 1]


def test_doctor_shows_the_cap(program):
    capped = program.run("doctor", env={"BIE_MAX_ISA": "reference"})
    assert capped.returncode == 0
    listed = rows(capped)
    assert {name for name, state in listed.items() if state == "available"} == {
        name for name in listed if name.endswith("_reference")
    }
    for name, state in rows(program.run("doctor")).items():
        if "avx" in name:
            assert listed[name] == ("left out by BIE_MAX_ISA" if state == "available" else state)


def test_doctor_shows_the_cap_at_avx2(program):
    free = rows(program.run("doctor"))
    if not any("avx512" in name and state == "available" for name, state in free.items()):
        pytest.skip("this machine has no AVX-512 that a cap could take away")
    capped = program.run("doctor", env={"BIE_MAX_ISA": "avx2"})
    assert "capped to avx2 by BIE_MAX_ISA" in capped.stdout
    for name, state in rows(capped).items():
        assert (state == "available") == all(isa not in name for isa in ("amx", "avx512", "avxvnni")), name


def test_a_cap_that_is_no_level_is_reported(program):
    process = program.run("doctor", env={"BIE_MAX_ISA": "nonsense"})
    assert process.returncode == 0
    assert "BIE_MAX_ISA is none of" in process.stdout
    program.refused(program.run("train", *TINY, "--bits", "8", env={"BIE_MAX_ISA": "nonsense"}), "BIE_MAX_ISA")


def test_tune_refuses_what_it_cannot_time(program, no_gpu):
    program.refused(program.run("tune"), "nothing to tune")
    for text in ("8,64,512", "8,64,512,512,", "a,b,c,d", ""):
        program.refused(program.run("tune", "--gemm", text), "expected BITS,M,N,K, such as")
    program.refused(
        program.run("tune", "--gemm", "8,64,512,512", "--device", "cpu2"),
        "the device: expected cpu, cuda or cuda:N, got",
    )
    program.refused(program.run("tune", "--gemm", "2,64,512,512"), "bits: expected 1, 4 or 8, got 2")
    program.refused(
        program.run("tune", "--gemm", "8,0,512,512"), "m, n and k: expected positive numbers, got 0, 512 and 512"
    )
    program.refused(program.run("tune", "--gemm", "8,64,512,512", "--device", "cuda"), "cuda", code=4)
    program.refused(program.run("tune", "--model", "/nowhere"), "/nowhere")


def test_tune_says_that_it_could_not_write(program, no_gpu, tmp_path):
    (tmp_path / "cache").write_text("a file, where a folder belongs")
    done = program.run("tune", "--gemm", "8,1,64,64", env={"BIE_CACHE_DIR": str(tmp_path / "cache")})
    assert re.search(r"gemm_tuning\.tsv cannot be written \(.*\): tuned kernels are known to this process", done.stderr)


def test_tune_times_the_cpu_where_there_is_no_gpu(program, no_gpu, tmp_path):
    env = {"BIE_CACHE_DIR": str(tmp_path)}
    words = ["tune", "--gemm", "8,64,512,512", "--gemm", "1,1,512,512"]
    done = program.run(*words, env=env)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"8 bit, m 64, n 512, k 512: s8xs8_gemm_\w+", first)
    assert re.fullmatch(r"1 bit, m 1, n 512, k 512: b1xb1_gemm_\w+", second)
    document = json.loads(program.run(*words, "--device", "cpu", "--json", env=env).stdout)
    assert document["device"] == "cpu"
    assert [(c["bits"], c["m"], c["n"], c["k"]) for c in document["choices"]] == [(8, 64, 512, 512), (1, 1, 512, 512)]
    assert len((tmp_path / "gemm_tuning.tsv").read_text().splitlines()) == 3


def test_doctor_says_where_there_is_no_gpu(program, no_gpu):
    assert re.search(
        r"^GPU: (none \(there is no such CUDA device\)|this build has no CUDA kernels)$",
        program.run("doctor").stdout,
        re.MULTILINE,
    )


def test_a_driver_that_is_too_old_is_said_and_the_cpu_is_used(program, tmp_path):
    if "CUDA kernels: none" in program.run("--version").stdout:
        pytest.skip("this build has no CUDA kernels")
    (tmp_path / "cuda.c").write_text(
        "int cuInit(unsigned flags) { return 0; }\n"
        "int cuDriverGetVersion(int* version) { *version = 11040; return 0; }\n"
    )
    library = ["cc", "-w", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "cuda.c"]
    subprocess.run(library, check=True)
    env = {"LD_LIBRARY_PATH": str(tmp_path), "BIE_CACHE_DIR": str(tmp_path)}
    assert (
        "\nGPU: none (the NVIDIA driver is older than the CUDA runtime of this build)\n"
        in program.run("doctor", env=env).stdout
    )
    tuned = program.run("tune", "--gemm", "8,64,512,512", "--json", env=env)
    assert json.loads(tuned.stdout)["device"] == "cpu"
