"""The C++ example, which docs/deploy.md shows, learns and packs; tests/python/examples_test.py runs the Python ones."""

import re
import subprocess


def test_example_runs_and_learns(bie):
    program = bie.parents[2] / "examples/first_layer"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert len(losses) == 4
    assert losses[-1] < 0.5 * losses[0]
    assert "4625 bytes of weight" in done.stdout  # 37 rows of ceil(1000 / 8) bytes
