"""The layer check must see each kind of bad include, and nothing in a good tree."""

from pathlib import Path

import check_layers
import pytest


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("file", "include", "reason"),
    [
        ("src/kernels/cpu/isa.cpp", '"bie/ops.h"', "kernels must not know ops"),
        ("src/kernels/cpu/isa.cpp", "<torch/torch.h>", "neither torch nor Python"),
        ("src/kernels/cuda/gemm.cu", "<ATen/core/Tensor.h>", "neither torch nor Python"),
        ("include/bie/kernels/isa.h", "<c10/util/Half.h>", "neither torch nor Python"),
        ("include/bie/kernels/isa.h", "<Python.h>", "neither torch nor Python"),
        ("src/report/page.cpp", "<c10/util/Exception.h>", "the reports know neither torch nor Python"),
        ("src/report/page.cpp", '"bie/data/dataset.h"', "report must not know data"),
        ("src/train/loop.cpp", '"report/run_report.h"', "train must not know report"),
        ("src/kernels/check.h", '"../layers/module.h"', "kernels must not know layers"),
        ("src/ops/gemm.cpp", '"bie/formats/idx.h"', "ops must not know formats"),
        ("src/formats/idx.cpp", '"bie/data/dataset.h"', "formats must not know data"),
        ("src/data/dataset.cpp", '"bie/ops.h"', "data must not know ops"),
        ("src/formats/idx.cpp", "<ATen/core/Tensor.h>", "the formats know neither torch nor Python"),
        ("src/data/samples.cpp", '"bie/layers/module.h"', "data must not know layers"),
        ("src/data/samples.cpp", "<bie/optim/diode.h>", "data must not know optim"),
        ("src/optim/diode.cpp", '"bie/train/loop.h"', "optim must not know train"),
        ("src/layers/module.cpp", '"bie/models/models.h"', "layers must not know models"),
        ("src/models/models.cpp", '"bie/train/loop.h"', "models must not know train"),
        ("src/layers/module.cpp", '"bie/train/loop.h"', "layers must not know train"),
        ("src/train/loop.cpp", '"cli/command.h"', "train must not know cli"),
        ("include/bie/ops.h", '"bie/layers/module.h"', "ops must not know layers"),
        ("src/layers/module.cpp", '"bie/extra/thing.h"', "extra has no place in the order"),
        ("src/extra/thing.cpp", '"bie/layers/module.h"', "extra has no place in the order"),
        ("src/kernels/cpu/isa.cpp", '"kernels/cpu/avx2/store.h"', "included by nobody else"),
        ("src/kernels/cpu/avx512/store.cpp", '"../avx2/store.h"', "included by nobody else"),
        ("src/kernels/cpu/avxvnni.cpp", '"kernels/cpu/avx2/store.h"', "included by nobody else"),
        ("tests/kernels/store_test.cpp", '"kernels/cpu/avx2/store.h"', "included by nobody else"),
        ("src/kernels/cpu/gemm/int8_gemm.cpp", '"kernels/cpu/neon/activations.h"', "included by nobody else"),
        ("src/kernels/cpu/gemm/int8_gemm.cpp", '"kernels/cpu/portable/vectors.h"', "included by nobody else"),
        ("src/kernels/cpu/avx2/a.cpp", '"kernels/cpu/i8mm/tile_loop.h"', "included by nobody else"),
        ("src/kernels/cpu/elementwise/gradient.cpp", '"kernels/cpu/passes/chunks.h"', "included by nobody else"),
        ("src/ops/linear/linear.cpp", '"ops/backend/cpu/panels.h"', "src/ops/backend/cpu is included by itself"),
        ("src/ops/backend/cpu/gemm.cpp", '"ops/backend/cuda/call.h"', "src/ops/backend/cuda is included by itself"),
        ("tests/ops/linear_test.cpp", '"ops/backend/cpu/panels.h"', "src/ops/backend/cpu is included by itself"),
        (
            "src/kernels/cpu/avx2/store.cpp",
            '"kernels/reference/reference.h"',
            "by itself and the tables of src/kernels/cpu",
        ),
        (
            "src/kernels/cpu/passes/a.cpp",
            '"kernels/reference/reference.h"',
            "by itself and the tables of src/kernels/cpu",
        ),
        ("src/kernels/cpu/tile.h", '"kernels/reference/reference.h"', "by itself and the tables of src/kernels/cpu"),
    ],
)
def test_bad_include_is_reported(tmp_path, file, include, reason):
    tree(
        tmp_path,
        {"src/layers/module.h": "", "src/kernels/cpu/avx2/store.h": "", file: f"// A file.\n#include {include}\n"},
    )
    found = check_layers.check(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(file)
    assert reason in found[0]


@pytest.mark.parametrize("question", ["x.is_cuda()", "if constexpr (with_cuda)", "at::Device(at::kCUDA)"])
def test_an_operator_that_asks_for_its_device_is_reported(tmp_path, question):
    line = f"  if (a) return {question};  // is_cuda()\n"
    tree(
        tmp_path,
        {"src/ops/linear/linear.cpp": f"\n{line}", "src/ops/backend/scales.cpp": line, "src/layers/a.cpp": line},
    )
    found = check_layers.check(tmp_path)
    assert found == ["src/ops/linear/linear.cpp:2: asks which device it is on: that is for src/ops/backend"]


@pytest.mark.parametrize("file", ["src/ops/linear/linear.cpp", "src/layers/tail.cpp", "src/optim/step.h"])
def test_a_loop_outside_the_kernels_is_reported(tmp_path, file):
    loop = "  at::parallel_for(0, n, 1, body);\n"
    tree(
        tmp_path, {file: loop, "src/kernels/parallel.cpp": loop, "src/ops/backend/cpu/a.cpp": loop, "tests/a.cpp": loop}
    )
    assert check_layers.check(tmp_path) == [f"{file}:1: shares a loop among threads: that is for src/kernels"]


@pytest.mark.parametrize(
    ("line", "promise"),
    [
        ('  std::fprintf(stderr, "%d", n);', "prints"),
        ("  std::cerr << n;", "prints"),
        ('  const char* text = std::getenv("X");', "asks the environment"),
        ("  if (bad) std::abort();", "ends the process"),
        ("  exit(1);", "ends the process"),
        ("  static int calls = 0;", "keeps what all callers share"),
        ("  static double best[512];", "keeps what all callers share"),
        ("std::atomic<int> calls{0};", "keeps what all callers share"),
    ],
)
def test_a_broken_promise_of_a_library_is_reported(tmp_path, line, promise):
    tree(
        tmp_path, {"src/runtime/a.cpp": f"\n{line}\n", "src/cli/a.cpp": line, "tests/a.cpp": line, "bench/a.cpp": line}
    )
    (found,) = check_layers.check(tmp_path)
    assert found.startswith(f"src/runtime/a.cpp:2: {promise}")


@pytest.mark.parametrize(
    "line",
    [
        "  static const int calls = 0;",
        "  static constexpr int calls = 0;",
        "  static int calls(int n);",
        "  // std::abort() ends the process.",
        '  fail("exit(1)");',
        "  std::snprintf(text, size, format);",
        "  static_assert(sizeof(int) == 4);",
    ],
)
def test_a_kept_promise_is_not(tmp_path, line):
    tree(tmp_path, {"src/runtime/a.cpp": line})
    assert check_layers.check(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("src/ops/a.cpp", '  fail(op, ": x is ", x.sizes(), ", a matrix is wanted");'),
        ("include/bie/formats/a.h", '  fail("\\"x\\" is 3, 2 to 16 are wanted");'),
        ("src/kernels/cuda/a.cu", '  fail("a number is wanted: 3");'),
        ("python/bie/nn/a.py", '    raise ValueError(f"bits is {bits}, 1, 4 or 8 is wanted")'),
    ],
)
def test_an_error_of_another_form_is_reported(tmp_path, file, line):
    tree(tmp_path, {file: f"\n{line}\n", "tests/a.py": line, "docs/index.md": line})
    assert check_layers.check(tmp_path) == [f"{file}:2: says what is wanted: expected B, got A"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("src/ops/a.cpp", '  fail(": x: expected a matrix, got ", x.sizes());  // where "one" is wanted'),
        ("src/ops/a.cpp", "/// Undefined where none is wanted."),
        ("python/bie/nn/a.py", '    """A step, where one is wanted."""'),
    ],
)
def test_comments_say_wanted(tmp_path, file, line):
    tree(tmp_path, {file: line})
    assert check_layers.check(tmp_path) == []


def test_instruction_sets_are_those_of_cmake():
    names = {folder.name for folder in check_layers.ISA_FOLDERS}
    assert names == {"portable", "avx2", "neon", "dotprod", "i8mm", "avxvnni", "avx512bw", "avx512", "amx"}


def test_good_tree_is_silent(tmp_path):
    tree(
        tmp_path,
        {
            "src/kernels/cpu/avx2/tile_loop.h": "",
            "src/kernels/cpu/avxvnni/int8_gemm.cpp": '#include "kernels/cpu/avx2/tile_loop.h"\n',
            "src/kernels/cpu/registry.cpp": '#include "kernels/reference/reference.h"\n#include <vector>\n',
            "src/kernels/cpu/gemm/int8_gemm.cpp": '#include "kernels/reference/reference.h"\n',
            "src/kernels/reference/gemm.cpp": '#include "reference.h"\n',
            "src/kernels/reference/reference.h": "",
            "src/kernels/cpu/avx2/gemm.cpp": '#include "kernels/cpu/avx2/store.h"\n#include <immintrin.h>\n',
            "src/kernels/cpu/avx2/store.h": "",
            "src/kernels/cpu/passes/chunks.h": "",
            "src/kernels/cpu/passes/gradient.cpp": '#include "kernels/cpu/passes/chunks.h"\n',
            "src/ops/backend/cpu/backend.h": "",
            "src/ops/backend/backend.cpp": '#include "ops/backend/cpu/backend.h"\n',
            "src/ops/backend/cpu/packing.cpp": '#include "ops/backend/cpu/backend.h"\n',
            "src/ops/pack.cpp": '#include "ops/backend/packing.h"\n// Not is_cuda().\n',
            "src/ops/gemm.cpp": '#include <torch/library.h>\n#include "bie/kernels/gemm.h"\n',
            "src/ops/files/gguf.cpp": '#include "bie/formats/gguf.h"\n',
            "src/data/samples.cpp": '#include "bie/formats/idx.h"\n#include "bie/data/samples.h"\n',
            "src/layers/module.cpp": '#include "bie/layers/module.h"\n#include "bie/data/tensor_files.h"\n',
            "src/train/loop.cpp": '#include "bie/optim/diode.h"\n#include "bie/layers/module.h"\n',
            "src/cli/main.cpp": '#include "bie/train/loop.h"\n#include <CLI/CLI.hpp>\n',
            "tests/layers/module_test.cpp": '#include "bie/train/loop.h"\n',
        },
    )
    assert check_layers.check(tmp_path) == []


def test_exit_status_follows_the_findings(tmp_path, monkeypatch, capsys):
    tree(tmp_path, {"src/ops/gemm.cpp": '#include "bie/layers/module.h"\n'})
    monkeypatch.setattr("sys.argv", ["check_layers.py", str(tmp_path)])
    assert check_layers.main() == 1
    assert capsys.readouterr().out == "src/ops/gemm.cpp:1: includes bie/layers/module.h: ops must not know layers\n"


def test_this_repository_keeps_the_order():
    assert check_layers.check(Path(check_layers.__file__).parent.parent) == []
