#!/bin/sh
# Builds the wheels of bitorch_engine, bie-cli and bie-llm into dist/, tagged for the glibc they need, and tries them in an empty
# environment of every Python from 3.10 on that is on the PATH. torch's libraries stay out: the wheels require torch.
set -eu
cd "$(dirname "$0")/.."
start=$(date +%s)
say() { echo "wheel: $(($(date +%s) - start)) s: $*"; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/bie-wheels-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
export PIP_DISABLE_PIP_VERSION_CHECK=1
PATH="$PWD/.venv/bin:$PATH"

for source in . ./python/bie-cli ./python/bie-llm; do
  say "building $source"
  pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$scratch/built" "$source"
done
for wheel in "$scratch"/built/*.whl; do
  auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*' --wheel-dir "$scratch/dist" "$wheel"
done
mkdir -p dist
cp "$scratch"/dist/*.whl dist/

cd "$scratch"
tried=0
for python in python3.10 python3.11 python3.12 python3.13 python3.14; do
  "$python" -c 'import venv, ensurepip' 2>/dev/null || continue
  say "trying them on $("$python" -V)"
  "$python" -m venv "$python-env"
  "$python-env/bin/python" -m pip install --quiet --no-compile "$scratch"/dist/*.whl
  "$python-env/bin/python" - <<'EOF'
import bie.llm
import torch
import bie

layer = bie.nn.BinaryLinear(33, 5)
layer.prepare_params()
assert layer(torch.randn(2, 33)).shape == (2, 5)
EOF
  "$python-env/bin/bie" doctor >/dev/null
  rm -rf "$python-env"
  tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || { echo "wheel: no Python from 3.10 on was found to try the wheels on" >&2; exit 1; }
say "tried on $tried Pythons; in dist:"
ls "$scratch/dist"
