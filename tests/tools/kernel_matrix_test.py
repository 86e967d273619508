"""docs/kernels.md says what the tables of kernels have."""

import kernel_matrix


def test_the_committed_page_is_current(bie):
    assert kernel_matrix.PAGE.read_text() == kernel_matrix.page(bie), "run tools/kernel_matrix.py"


def test_every_kernel_that_is_not_the_reference_is_a_cell(bie):
    import json
    import subprocess

    doctor = json.loads(subprocess.run([bie, "doctor", "--json"], capture_output=True, check=True).stdout)
    on_cpus = {entry["name"] for entry in doctor["instruction_sets"]} - {"reference"}
    kernels = [kernel for kernel in doctor["kernels"] if kernel["isa"] in on_cpus]
    assert kernel_matrix.page(bie).count("| yes ") == len(kernels) > 80
