"""Times `bie generate` beside llama.cpp and its fork ik_llama.cpp, on one file, in one run.

Usage: language_models.py MODEL.gguf [--bie PROGRAM] [--llama-bench PROGRAM] [--rounds N] [--threads N ...] [--markdown]

Each round runs every program once, in turn; the table has medians. Reading: a prompt of 512 tokens. Writing: 64 tokens
behind it. The rivals run where `llama_cpp` and `ik_llama_cpp` can be imported (pip install llama-cpp-python, which
builds llama.cpp for this CPU, and ik-llama-cpp-python); --llama-bench names llama.cpp's own bench, which loads a model
for each number, and says nothing of loading. The speed of memory is that of reading 256 MB with as many
threads, in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TEXT = """The history of the city begins on the left bank of the river, where a small group of people built their
houses from wood and stone. In the summer they moved the animals to the mountains, and in the winter they came back.
"""
READ, WRITTEN = 512, 64
IK_LLAMA = """
import json, sys, time
from ik_llama_cpp import IkLlama
model, threads, tokens, written = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
def timed(work):
    start = time.perf_counter()
    return work(), time.perf_counter() - start
llama, load = timed(lambda: IkLlama(model, n_ctx=1024, n_threads=threads, verbose=False))
_, read = timed(lambda: llama.generate(tokens, max_tokens=1))
answer, all_of_it = timed(lambda: llama.generate(tokens, max_tokens=written + 1))
print(json.dumps({"load": load, "read": read, "write": (all_of_it - read) / (len(answer) - 1) * written}))
"""
LLAMA = """
import json, sys, time
from llama_cpp import Llama
model, threads, tokens, written = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
start = time.perf_counter()
llama = Llama(model, n_ctx=1024, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
loaded = time.perf_counter()
llama.eval(tokens)
read = time.perf_counter()
for _ in range(written):
    llama.eval([llama.sample(temp=0)])
end = time.perf_counter()
print(json.dumps({"load": loaded - start, "read": read - loaded, "write": end - read}))
"""


def bie_words(program: Path, model: str, prompt: Path, threads: int, *options: str) -> list[str]:
    words = ["generate", model, "--prompt-file", str(prompt), "--tokens", str(WRITTEN + 1), "--json"]
    return [str(program), *words, "--threads", str(threads), *options]


def on_cpus(threads: int, words: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        words, capture_output=True, text=True, check=False, preexec_fn=lambda: os.sched_setaffinity(0, range(threads))
    )


def run_bie(words: list[str], threads: int) -> dict[str, float]:
    said = json.loads(on_cpus(threads, words).stdout)
    per_token = said["generate_seconds"] / (len(said["tokens"]) - 1)
    return {"load": said["load_seconds"], "read": said["prompt_seconds"], "write": per_token * WRITTEN}


def run_rival(program: str, model: str, tokens: list[int], threads: int) -> dict[str, float] | None:
    words = [sys.executable, "-c", program, model, str(threads), json.dumps(tokens), str(WRITTEN)]
    process = on_cpus(threads, words)
    return json.loads(process.stdout.splitlines()[-1]) if process.returncode == 0 else None


def run_llama_bench(program: Path, model: str, threads: int) -> dict[str, float]:
    def speed(*options: str) -> float:
        words = [str(program), "-m", model, "-t", str(threads), "-r", "1", "-o", "json", *options]
        return json.loads(on_cpus(threads, words).stdout)[0]["avg_ts"]

    read = speed("-p", str(READ), "-n", "0")
    write = speed("-p", "0", "-n", str(WRITTEN), "-d", str(READ))
    return {"load": math.nan, "read": READ / read, "write": WRITTEN / write}


def memory_speed(threads: int) -> float:
    """Bytes a second of summing arrays that no cache holds."""
    import numpy as np

    arrays = [np.ones(1 << 25, np.int64) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        best = 0.0
        for _ in range(4):
            start = time.perf_counter()
            list(pool.map(np.sum, arrays))
            best = max(best, sum(a.nbytes for a in arrays) / (time.perf_counter() - start))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--bie", type=Path, default=Path("build/runtime/src/cli/bie"))
    parser.add_argument("--llama-bench", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--markdown", action="store_true")
    a = parser.parse_args()
    tokenize = [str(a.bie), "tokenize", a.model, "--text", TEXT * 20, "--json"]
    tokens = json.loads(subprocess.run(tokenize, capture_output=True, text=True, check=True).stdout)["tokens"][:READ]
    decode = [str(a.bie), "tokenize", a.model, "--decode", ",".join(map(str, tokens)), "--json"]
    prompt = Path(os.environ.get("TMPDIR", "/tmp")) / f"bie-bench-{os.getpid()}.txt"
    prompt.write_text(json.loads(subprocess.run(decode, capture_output=True, text=True, check=True).stdout)["text"])
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    speeds = {}
    try:
        for threads in a.threads:
            speeds[threads] = memory_speed(threads)
        for _ in range(a.rounds):
            for threads in a.threads:
                programs = {
                    "bie": lambda t=threads: run_bie(bie_words(a.bie, a.model, prompt, t), t),
                    "bie --exact": lambda t=threads: run_bie(bie_words(a.bie, a.model, prompt, t, "--exact"), t),
                    "ik_llama.cpp": lambda t=threads: run_rival(IK_LLAMA, a.model, tokens, t),
                    "llama.cpp": lambda t=threads: run_rival(LLAMA, a.model, tokens, t),
                }
                if a.llama_bench:
                    programs["llama-bench"] = lambda t=threads: run_llama_bench(a.llama_bench, a.model, t)
                for name, run in programs.items():
                    if (found := run()) is not None:
                        runs.setdefault((name, threads), []).append(found)
    finally:
        prompt.unlink()
    for threads, speed in speeds.items():
        print(f"memory, {threads} threads: {speed / 1e9:.1f} GB/s")
    if a.markdown:
        print(
            "| program | threads | load, s | tokens read a second | tokens written a second |\n| --- "
            + "| --- " * 4
            + "|"
        )
    for (name, threads), found in sorted(runs.items(), key=lambda item: (item[0][1], item[0][0])):
        load, read, write = (statistics.median(run[key] for run in found) for key in ("load", "read", "write"))
        row = (name, str(threads), f"{load:.2f}", f"{len(tokens) / read:.0f}", f"{WRITTEN / write:.1f}")
        print("| " + " | ".join(row) + " |" if a.markdown else "  ".join(f"{word:>14}" for word in row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
