"""The model of many ranks in bench/distributed_model.py, in limits that can be computed by hand."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from distributed_model import BYTES, WORLDS, Cluster, bytes_of_a_rank, seconds_of_a_bucket, simulate

STEADY = Cluster(jitter=0.0)
FREE = replace(STEADY, rate=math.inf, latency=0.0)  # a wire that costs nothing


@pytest.mark.parametrize("method", BYTES)
def test_one_rank_waits_for_nobody(method):
    assert bytes_of_a_rank(method, 1, 1e9) == 0
    assert simulate(method, 1, STEADY, "none") == pytest.approx(STEADY.compute)


@pytest.mark.parametrize("method", BYTES)
@pytest.mark.parametrize("world", [2, 1024])
def test_without_stragglers_the_last_bucket_or_the_wire_decides(method, world):
    once = seconds_of_a_bucket(method, world, STEADY)
    between = STEADY.compute / STEADY.buckets
    wanted = STEADY.compute + once if once <= between else between + STEADY.buckets * once
    assert simulate(method, world, STEADY, "none") == pytest.approx(wanted)


@pytest.mark.parametrize("world", [1, 8, 1024])
def test_rare_stragglers_cost_what_one_among_all_costs(world):
    wanted = FREE.compute * (1 + 0.5 * (1 - (1 - FREE.slow) ** world))
    assert simulate("int8", world, FREE, "rare", steps=4000) == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize("world", [1, 8, 1024])
def test_a_heavy_tail_costs_its_largest_of_all(world):
    """The mean of the largest of W Pareto numbers: gamma(W + 1) gamma(1 - 1/a) / gamma(W + 1 - 1/a)."""
    a = 1 / FREE.shape
    largest = math.exp(math.lgamma(world + 1) + math.lgamma(1 - a) - math.lgamma(world + 1 - a))
    assert simulate("int8", world, FREE, "heavy", steps=4000) == pytest.approx(FREE.compute * largest, rel=0.02)


def test_fewer_bytes_take_less_time():
    for world in WORLDS:
        ours, majority, half, whole = (
            seconds_of_a_bucket(method, world, Cluster()) for method in ("int8", "majority", "bf16", "float32")
        )
        assert majority < ours < half < whole
        assert bytes_of_a_rank("int8", world, 8) == bytes_of_a_rank("float32", world, 8) / 4
