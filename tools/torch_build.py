"""The backend of pip's builds: scikit-build-core's. It asks for a torch of the build's own only where there is none to
build beside, so that `pip install .` follows the torch of the environment and downloads no second one."""

from __future__ import annotations

from scikit_build_core import build as _build
from scikit_build_core.build import (  # noqa: F401  the other hooks
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from torch_dependency import OLDEST, check_age, torch_at_hand


def _torch() -> list[str]:
    at_hand = torch_at_hand()
    if at_hand is None:
        return [f"torch>={OLDEST}"]
    check_age(at_hand)
    return []


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    return [*_build.get_requires_for_build_wheel(config_settings), *_torch()]


def get_requires_for_build_editable(config_settings: dict | None = None) -> list[str]:
    return [*_build.get_requires_for_build_editable(config_settings), *_torch()]
