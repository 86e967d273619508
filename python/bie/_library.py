"""Loads the operators, `torch.ops.bie`, from the shared library libbie_ops.so.

The package has one library for each minor version of torch it was built for, lib/torch-2.15/libbie_ops.so and others,
and one library of kernels, lib/libbie_core.so, which they share. The environment variable BIE_OPS_LIBRARY names another
library of operators, such as build/release/src/ops/libbie_ops.so of a development build. torch_version.txt beside a
library says which torch it was built with: it fits that minor version and no other.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch

from bie import __path__ as _package_folders

_BUILD = "build bie beside this torch with pip install --no-deps and the folder of its sources"


def load() -> None:
    """Registers the operators, unless they are registered already: a second registration would abort the process.

    Raises ImportError when there is no library or when it belongs to another torch.
    """
    if hasattr(torch.ops.bie, "q8_linear"):
        return
    library = _find()
    _check_torch(library)
    try:
        torch.ops.load_library(library)
    except OSError as error:
        raise ImportError(f"{library} could not be loaded: {error}") from error
    warn_of_gpu()


def has_cuda() -> bool:
    """Whether the operators have CUDA kernels; what a build without them registers there has no signature."""
    lines = torch._C._dispatch_dump("bie::pack_signs").splitlines()
    return any(line.startswith("CUDA:") and "(none)" not in line for line in lines)


def warn_of_gpu() -> None:
    """A warning where a GPU is present and the operators have no kernels for it."""
    if torch.cuda.is_available() and not has_cuda():
        warnings.warn(
            "a GPU is here and this build of bie has no CUDA kernels: its layers run on the CPU alone; build it where "
            "nvcc is, with -DBIE_CUDA=ON (docs/gpu.md)",
            stacklevel=3,
        )


def _find() -> Path:
    named = os.environ.get("BIE_OPS_LIBRARY")
    if named:
        if not os.path.isfile(named):
            raise ImportError(f"BIE_OPS_LIBRARY names {named}, and there is no such file")
        return Path(named)
    # An editable install keeps sources and libraries in two folders.
    folders = [Path(folder, "lib") for folder in _package_folders]
    candidates = [folder / f"torch-{_minor(torch.__version__)}" / "libbie_ops.so" for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    others = [library.parent.name for folder in folders for library in folder.glob("torch-*/libbie_ops.so")]
    if others:
        fitting = sorted(
            (name.removeprefix("torch-") for name in others), key=lambda text: [*map(int, text.split("."))]
        )
        raise ImportError(
            f"expected torch {_listed(fitting)}, which this package of bie has operators for, got torch "
            f"{torch.__version__}: {_BUILD}"
        )
    raise ImportError(
        f"the operators of bie are missing, {candidates[0]}: install the package with pip, "
        "or name a libbie_ops.so in BIE_OPS_LIBRARY"
    )


def _listed(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{', '.join(versions[:-1])} or {versions[-1]}"


def _check_torch(library: Path) -> None:
    said = library.with_name("torch_version.txt")
    try:
        built = said.read_text().strip()
    except OSError as error:
        raise ImportError(f"{said}, which says the torch that {library.name} was built with, is missing") from error
    wanted = _minor(built)
    if wanted != _minor(torch.__version__):
        raise ImportError(
            f"the operators of bie were built with torch {built} and this is torch {torch.__version__}: "
            f"install torch=={wanted}.*, or {_BUILD}"
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
