"""What quantising costs a language model: bytes, perplexity, divergence, seconds and memory, by types and methods.

Usage: quantized_language_models.py MODEL --data TEXT --calibrate TEXT [--bie PROGRAM] [--threads N]
           [--ways "OPTIONS" ...]

Each way is what `bie quantize` is given beside the model, the output and, where its method reads one, the text of
--calibrate: "--type q4_0 --method gptq", "--size 70MB". The model itself is the reference; both are read in `exact`
arithmetic in windows of 512. A way with groups ("--type w3g64") or with --format makes a folder, any other a GGUF file.
The table is Markdown.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = [
    *(
        f"--type {kind} --method {method}"
        for kind in ("q8_0", "q5_0", "q4_0")
        for method in ("nearest", "search", "gptq")
    ),
    "--bpw 5 --method gptq",
    *(f"--type {kind} --method {method}" for kind in ("w4g64", "w3g64") for method in ("nearest", "search", "gptq")),
]


def told(words: list[str]) -> dict:
    process = subprocess.run(words, capture_output=True, text=True)
    if process.returncode != 0:
        sys.exit(process.stderr)
    return json.loads(process.stdout)


def quantized(words: list[str]) -> tuple[dict, float, float]:
    """What the command told, its seconds and the most memory it had in MB."""
    start = time.perf_counter()
    process = subprocess.run(["/usr/bin/time", "-f", "%M", *words], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        sys.exit(process.stderr)
    return json.loads(process.stdout), seconds, int(process.stderr.split()[-1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--calibrate", required=True)
    parser.add_argument("--bie", default="build/runtime/src/cli/bie")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ways", nargs="+", default=WAYS)
    arguments = parser.parse_args()
    bie = [arguments.bie, "--quiet", "--threads", str(arguments.threads)]
    print("| | MB | bits a weight | times perplexity, 95 % | divergence, nats | same choice | seconds | memory, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        logits = str(Path(folder) / "logits")
        read = ["--data", arguments.data, "--exact", "--json"]
        told([*bie, "perplexity", arguments.model, *read, "--save-logits", logits])
        for way in arguments.ways:
            words = shlex.split(way)
            is_folder = "--format" in words or re.search(r"\bw\d+g\d+", way) is not None
            out = str(Path(folder) / ("out" if is_folder else "out.gguf"))
            shutil.rmtree(out, ignore_errors=True)
            reads_text = "nearest" not in words or "--size" in words or "--bpw" in words
            text = ["--calibrate", arguments.calibrate] if reads_text else []
            made, seconds, memory = quantized([*bie, "quantize", arguments.model, "-o", out, *words, *text, "--json"])
            found = told([*bie, "perplexity", out, *read, "--reference", logits])["reference"]
            low, high = found["times_interval"]
            print(
                f"| `{way}` | {made['file_bytes'] / 1e6:.1f} | {made['bits_a_weight']:.2f} | {found['times']:.3f} "
                f"({low:.3f} to {high:.3f}) | {found['kl_divergence']:.4f} | {100 * found['same_choice']:.1f} % | "
                f"{seconds:.1f} | {memory:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
