"""These tests take the operators from the package, as it is installed."""

import pytest
import torch

import bitorch_engine  # noqa: F401


@pytest.fixture(scope="session")
def operators():
    return torch.ops.bie
