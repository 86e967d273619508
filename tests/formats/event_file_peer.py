"""Reads FOLDER, which EventFile.TensorBoardReadsARunThatWasResumed wrote, with the reader behind TensorBoard's charts.

The status is 0 if it finds what was written, 77 where TensorBoard is not installed.
"""

import sys

try:
    from tensorboard.backend.event_processing import plugin_event_accumulator
    from tensorboard.util import tensor_util
except ImportError as missing:
    print(missing)
    sys.exit(77)

run = plugin_event_accumulator.EventAccumulator(sys.argv[1], tensor_size_guidance={"scalars": 0, "histograms": 0})
run.Reload()

# TensorBoard turns the older summaries into tensors of its plugins as it reads them.
assert sorted(run.Tags()["tensors"]) == ["accuracy/test", "weights/fc"], run.Tags()
for tag, plugin in {"accuracy/test": "scalars", "weights/fc": "histograms"}.items():
    assert run.SummaryMetadata(tag).plugin_data.plugin_name == plugin, run.SummaryMetadata(tag)

# Epoch 3 of the first file is forgotten for that of the second, and so is the record that was cut off.
accuracy = [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in run.Tensors("accuracy/test")]
assert [step for step, _ in accuracy] == [1, 2, 3, 2**40], accuracy
assert [value for _, value in accuracy[:3]] == [0.25, 0.5, 10], accuracy
assert abs(accuracy[3][1] + 1e-3) < 1e-9, accuracy

weights = run.Tensors("weights/fc")
assert [e.step for e in weights] == [1, 2], weights
bins = tensor_util.make_ndarray(weights[0].tensor_proto).tolist()
assert bins == [[-8.5, -4.5, 1], [-4.5, -0.5, 0], [-0.5, 3.5, 5], [3.5, 7.5, 2]], bins
