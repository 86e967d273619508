"""Runs an exported net on random images: python run_net.py NET"""

import sys

import bie_runtime
import numpy as np

net = bie_runtime.Net(sys.argv[1])
images = np.random.default_rng(0).random((3, *net.input_shape), dtype=np.float32)
logits = net.run(images)
print(logits.shape, [net.class_names[i] for i in logits.argmax(axis=1)])
