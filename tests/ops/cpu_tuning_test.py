"""tune_gemm on the CPU: the fastest kernel is remembered for later processes; any kernel gives the same bits."""

import os
import subprocess
import sys

import pytest
import torch

TABLES = {1: "b1xb1", 4: "s4xs4", 8: "s8xs8"}
N, K = 70, 96


def run(library, script, cache, **env):
    """The script in a fresh process with `op` = torch.ops.bie."""
    start = "import sys, torch; torch.ops.load_library(sys.argv[1]); op = torch.ops.bie; one = torch.tensor(1.0)\n"
    environment = os.environ | {"BIE_CACHE_DIR": str(cache)} | env
    command = [sys.executable, "-c", start + script, library]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


def tune(library, cache, *, m=5, **env) -> list[list[str]]:
    """Tunes weights [N, K] of every width; the fields of the file's lines."""
    script = f"print(*(op.tune_gemm(bits, {m}, {N}, {K}, torch.device('cpu')) for bits in (1, 4, 8)))"
    names = run(library, script, cache, **env).stdout.split()
    header, *lines = (cache / "gemm_tuning.tsv").read_text().splitlines()
    assert header == "bie gemm tuning 1"
    fields = [line.split("\t") for line in lines]
    assert sorted(names) == sorted(f[8] for f in fields)
    return fields


def choose(cache, fields, row: str) -> None:
    """Writes the file anew with this instruction set's kernel for every width."""
    lines = ["\t".join([*f[:8], f"{f[8].split('_gemm_')[0]}_gemm_{row}"]) for f in fields]
    (cache / "gemm_tuning.tsv").write_text("\n".join(["bie gemm tuning 1", *lines, ""]))


@pytest.fixture(scope="module")
def fields(library, tmp_path_factory):
    """What tuning every width writes on this machine."""
    return tune(library, tmp_path_factory.mktemp("tuned"))


@pytest.fixture
def faster_than_reference(fields):
    if fields[0][8].endswith("_reference"):
        pytest.skip("only the reference kernels run here")
    return fields


USE = f"""
torch.manual_seed(0)
x, w, q = torch.randn(3, {K}), torch.randn({N}, {K}), torch.randint(-128, 128, ({N}, {K})).to(torch.int8)
packed = op.pack_signs(w)
calls = [lambda **o: op.binary_linear(x, packed, one, one, **o), lambda **o: op.q8_linear(x, q, one, one, **o)]
panels = [op.binary_prepack(packed, {K}, 3), op.q8_prepack(q)]
for call, p in zip(calls, panels):
    y = call()
    assert torch.equal(y, call(panels=p))
    print(y.sum().item(), bytes(p[32:64].tolist()).split(b"\\0")[0].decode())
"""


def test_a_choice_is_remembered_for_every_width(library, tmp_path, fields):
    assert sorted(f[4] for f in fields) == sorted(f"{table}_gemm_reference" for table in TABLES.values())
    for f in fields:
        assert f[5:8] == ["*", str(N), str(K)]
        assert f[8].startswith(f[4].removesuffix("reference"))
    choose(tmp_path, fields, "reference")
    again = tune(library, tmp_path, m=300)
    assert [f[:8] for f in again] == [f[:8] for f in fields], "a weight has one choice, whatever m"


def test_the_next_process_runs_the_remembered_row(library, tmp_path, faster_than_reference):
    plain = run(library, USE, tmp_path, BIE_LOG="dispatch")
    assert "(tuned)" not in plain.stderr
    choose(tmp_path, faster_than_reference, "reference")
    tuned = run(library, USE, tmp_path, BIE_LOG="dispatch")
    for table in ("b1xb1", "s8xs8"):
        assert f"m 3, n {N}, k {K}: {table}_gemm_reference (tuned)" in tuned.stderr
    assert [line.split()[1] for line in tuned.stdout.splitlines()] == ["b1xb1_gemm_reference", "s8xs8_gemm_reference"]
    assert [line.split()[0] for line in tuned.stdout.splitlines()] == [
        line.split()[0] for line in plain.stdout.splitlines()
    ]


def test_this_process_runs_it_too(library, tmp_path):
    script = f"""
name = lambda: bytes(op.q4_prepack(torch.zeros({N}, {K // 2}, dtype=torch.int8), {K})[32:64].tolist()).split(b"\\0")[0]
op.tune_gemm(4, 1, {N}, {K}, torch.device("cpu"))
print(name().decode())
"""
    row = run(library, script, tmp_path).stdout.strip()
    assert row == (tmp_path / "gemm_tuning.tsv").read_text().splitlines()[1].split("\t")[8]


def test_an_id_goes_before_what_was_remembered(library, tmp_path):
    choose(tmp_path, tune(library, tmp_path, BIE_MAX_ISA="avx2"), "reference")
    call = f"op.binary_linear(torch.ones(3, {K}), torch.zeros({N}, {K // 8}, dtype=torch.uint8), one, one, kernel_id="
    for kernel_id, row in ((0, "reference (tuned)"), (104, "reference (kernel_id)")):
        done = run(library, f"{call}{kernel_id})", tmp_path, BIE_MAX_ISA="avx2", BIE_LOG="dispatch")
        assert f"b1xb1_gemm_{row}" in done.stderr


def test_a_choice_is_for_the_instruction_sets_it_was_made_with(library, tmp_path, faster_than_reference):
    choose(tmp_path, faster_than_reference, "reference")
    assert "(tuned)" in run(library, USE, tmp_path, BIE_LOG="dispatch").stderr
    assert "(tuned)" not in run(library, USE, tmp_path, BIE_LOG="dispatch", BIE_MAX_ISA="reference").stderr


def test_a_row_that_is_not_there_is_passed_over(library, tmp_path, fields):
    choose(tmp_path, fields, "avx512 ")
    done = run(library, USE, tmp_path, BIE_LOG="dispatch")
    assert "(tuned)" not in done.stderr and "damaged" not in done.stderr


HEADER = b"bie gemm tuning 1\n"


@pytest.mark.parametrize("content", [b"", b"\0\xff\n", b"bie gemm tuning 2\n", HEADER + b"a\tb\n", HEADER + b"\t" * 8])
def test_a_damaged_file_is_ignored_and_replaced(library, tmp_path, content):
    (tmp_path / "gemm_tuning.tsv").write_bytes(content)
    script = (
        f"op.binary_linear(torch.ones(1, {K}), torch.ones({N}, {K}), one, one)\nop.tune_gemm(8, 1, {N}, {K}, x.device)"
    )
    done = run(library, f"x = torch.ones(1)\n{script}", tmp_path, BIE_LOG="dispatch")
    assert "(tuned)" not in done.stderr
    assert ("is damaged and ignored" in done.stderr) == (content != b"")
    assert len((tmp_path / "gemm_tuning.tsv").read_text().splitlines()) == 2


def test_a_folder_that_cannot_be_written_loses_nothing_but_the_memory(library, tmp_path):
    (tmp_path / "file").write_text("")
    script = f"for n in (1, 2): print(op.tune_gemm(8, 2, {N} + n, {K}, torch.device('cpu')))"
    done = run(library, script, tmp_path / "file")
    assert all(name.startswith("s8xs8_gemm_") for name in done.stdout.split())
    assert done.stderr.count(f"{tmp_path}/file/gemm_tuning.tsv cannot be written (Not a directory)") == 1
    (tmp_path / "gemm_tuning.tsv").mkdir()
    assert "cannot be written (Is a directory)" in run(library, script, tmp_path).stderr
    assert [path.name for path in tmp_path.glob("gemm_tuning.tsv.*")] == ["gemm_tuning.tsv.lock"]


def test_no_folder_at_all_is_said(library):
    script = f"print(op.tune_gemm(8, 2, {N}, {K}, torch.device('cpu')))"
    assert (
        "none of BIE_CACHE_DIR, XDG_CACHE_HOME and HOME is set"
        in run(library, script, "", HOME="", XDG_CACHE_HOME="").stderr
    )


def test_two_writers_lose_nothing(library, tmp_path):
    start = "import sys, torch; torch.ops.load_library(sys.argv[1]); op = torch.ops.bie\n"
    script = start + "for k in range(1, 11): op.tune_gemm(int(sys.argv[2]), 1, 8, k, torch.device('cpu'))"
    environment = os.environ | {"BIE_CACHE_DIR": str(tmp_path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", script, library, bits], env=environment, stderr=subprocess.DEVNULL)
        for bits in ("1", "8")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert len((tmp_path / "gemm_tuning.tsv").read_text().splitlines()) == 21
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gemm_tuning.tsv", "gemm_tuning.tsv.lock"]


def test_bad_input(operators):
    cpu = torch.device("cpu")
    for sizes in ((0, 1, 1), (1, -1, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match=r"tune_gemm: m, n and k: expected positive numbers, got"):
            operators.tune_gemm(8, *sizes, cpu)
    for bits in (0, 2, 32, -1):
        with pytest.raises(ValueError, match=f"tune_gemm: bits: expected 1, 4 or 8, got {bits}"):
            operators.tune_gemm(bits, 1, 1, 1, cpu)
    with pytest.raises(ValueError, match="tune_gemm: the device: expected cpu or cuda, got meta"):
        operators.tune_gemm(8, 1, 1, 1, torch.device("meta"))


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(library, tmp_path):
    os.mkfifo(tmp_path / "gemm_tuning.tsv")
    script = "op.q8_linear(torch.ones(2, 8), torch.ones(3, 8, dtype=torch.int8), one, one); print('done')"
    start = "import sys, torch; torch.ops.load_library(sys.argv[1]); op = torch.ops.bie; one = torch.tensor(1.0)\n"
    environment = os.environ | {"BIE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", start + script, library]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout == "done\n", done.stderr
