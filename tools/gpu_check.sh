#!/bin/sh
# Builds everything and runs the whole GPU test suite on a machine with a GPU: kernels, operators, Python layers and
# `bie train --device cuda`, 10,000 random shapes, and compute-sanitizer on small ones. Ends with
# one line of counts; exit status 1 on a failure.
#
# Usage: tools/gpu_check.sh. Sets up .venv like `make test`; BIE_PYTHON names another Python that has torch, pytest and
# the packages of requirements.txt, for a machine that cannot install anything. BIE_OPS_ONLY=ON builds the kernels and the
# operators alone, where the libraries of the command are missing: `bie train --device cuda` is a counted skip then.
set -eu
cd "$(dirname "$0")/.."
start=$(date +%s)
if [ -z "${BIE_PYTHON:-}" ]; then
  sh tools/setup.sh
  export PATH="$PWD/.venv/bin:$PATH"
  BIE_PYTHON=$PWD/.venv/bin/python
fi
"$BIE_PYTHON" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "gpu_check: torch finds no GPU here")'
BIE_OPS_ONLY=${BIE_OPS_ONLY:-OFF}
cmake --preset release -DBIE_CUDA=ON -DBIE_WERROR=OFF -DBIE_PYTHON="$BIE_PYTHON" -DBIE_OPS_ONLY="$BIE_OPS_ONLY"
if [ "$BIE_OPS_ONLY" = ON ]; then
  cmake --build --preset release --target bie_ops bie_cuda_test
else
  cmake --build --preset release
fi
echo "gpu_check: built in $(($(date +%s) - start)) s"
BIE_CACHE_DIR=$(mktemp -d)
export BIE_CACHE_DIR BIE_PYTHON BIE_OPS_ONLY
exec "$BIE_PYTHON" tools/gpu_suites.py
