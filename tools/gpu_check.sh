#!/bin/sh
# Builds everything and runs the whole GPU test suite on a machine with a GPU: kernels, operators, Python layers and
# `bie train --device cuda`, 10,000 random shapes, and compute-sanitizer on small ones. Ends with
# one line of counts; exit status 1 on a failure.
#
# Usage: tools/gpu_check.sh. Sets up .venv like `make test`; BIE_PYTHON names another Python that has torch, pytest and
# the packages of requirements.txt, for a machine that cannot install anything.
set -eu
cd "$(dirname "$0")/.."
start=$(date +%s)
if [ -z "${BIE_PYTHON:-}" ]; then
  sh tools/setup.sh
  export PATH="$PWD/.venv/bin:$PATH"
  BIE_PYTHON=$PWD/.venv/bin/python
fi
"$BIE_PYTHON" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "gpu_check: torch finds no GPU here")'
cmake --preset release -DBIE_CUDA=ON -DBIE_WERROR=OFF -DBIE_PYTHON="$BIE_PYTHON"
cmake --build --preset release
echo "gpu_check: built in $(($(date +%s) - start)) s"
BIE_CACHE_DIR=$(mktemp -d)
export BIE_CACHE_DIR BIE_PYTHON
exec "$BIE_PYTHON" tools/gpu_suites.py
