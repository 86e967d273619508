"""The table of docs/training.md about `bie quantize`: test accuracy of float nets, and of what it makes of them.

Usage: quantize_table.py [--data mnist:DIR] [--threads N] [--bie PROGRAM]. Without --data MNIST is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Row: data set, options of bie train, seeds.
NETS = {
    "digits MLP": ("digits", "--hidden 1024 --depth 3 --epochs 10", 3),
    "digits MLP without BatchNorm": ("digits", "--hidden 256 --depth 3 --epochs 10 --no-norm", 3),
    "MNIST MLP": ("mnist", "--hidden 256 --depth 2 --epochs 10", 1),
    "MNIST LeNet": ("mnist", "--arch lenet --epochs 4", 1),
}
# Column: options of bie quantize.
ALL = "--first 4 --last 4"
WAYS = {
    "8 bit": "--bits 8",
    "8 bit, per channel": "--bits 8 --per-channel",
    "8 bit, folded": "--bits 8 --fold",
    "4 bit": "--bits 4",
    "4 bit, per channel": "--bits 4 --per-channel",
    "4 bit, folded": "--bits 4 --fold",
    "4 bit, folded, per channel": "--bits 4 --fold --per-channel",
    "4 bit, all layers": f"--bits 4 {ALL}",
    "4 bit, all layers, per channel": f"--bits 4 {ALL} --per-channel",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="mnist:DIR")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bie", type=Path, default=ROOT / "build/release/src/cli/bie")
    arguments = parser.parse_args()

    def bie(*words: str) -> dict:
        command = [str(arguments.bie), "--threads", str(arguments.threads), "--quiet", "--json", *words]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

    print("| | float32 |", " | ".join(WAYS), "|", flush=True)
    print("| --- |" + " --- |" * (len(WAYS) + 1), flush=True)
    with tempfile.TemporaryDirectory(prefix="bie-quantize-") as folder:
        for name, (data, options, seeds) in NETS.items():
            if data == "mnist" and arguments.data is None:
                continue
            source = arguments.data if data == "mnist" else data
            columns: dict[str, list[float]] = {way: [] for way in ("float32", *WAYS)}
            for seed in range(seeds):
                net = f"{folder}/net.safetensors"
                trained = bie("train", "--data", source, *options.split(), "--seed", str(seed), "-o", net)
                columns["float32"].append(trained["test_accuracy"])
                for way, words in WAYS.items():
                    if "--fold" in words and "--no-norm" in options:
                        continue  # there is nothing to fold
                    quantised = bie("quantize", net, "--calib", source, *words.split())
                    columns[way].append(quantised["test_accuracy"])
            means = (f"{100 * sum(values) / len(values):.2f}" if values else "-" for values in columns.values())
            print(f"| {name} |", " | ".join(means), "|", flush=True)


if __name__ == "__main__":
    main()
