#!/bin/sh
# check_torch.sh VERSION: builds the package beside that torch, in an environment that is thrown away, and runs
# tests/ops and tests/python against what was installed. The last line has the counts; a failure is an exit status.
set -eu
[ $# = 1 ] || { echo "usage: $0 VERSION" >&2; exit 2; }
version=$1
root=$(cd "$(dirname "$0")/.." && pwd)
home=$(mktemp -d "${TMPDIR:-/tmp}/bie-torch-XXXXXX")
trap 'rm -rf "$home"' EXIT
trap 'exit 130' INT TERM
unset PYTHONPATH BIE_OPS_LIBRARY
export PIP_DISABLE_PIP_VERSION_CHECK=1

echo "check_torch: installing torch $version (gigabytes, this can take minutes)"
python3 -m venv "$home/env"
python=$home/env/bin/python
grep -hv -e '^torch==' -e '^--requirement' "$root/requirements-build.txt" "$root/requirements.txt" >"$home/requirements.txt"
"$python" -m pip install --quiet "torch==$version" --requirement "$home/requirements.txt"

echo "check_torch: building the package"
# A build folder of its own: build/wheel belongs to the torch of .venv.
"$python" -m pip install --quiet --no-build-isolation --config-settings="build-dir=$home/build" "$root"

# Copy the files that the tests read, and nothing of the package's sources; package_test.py is about both wheels.
for part in bench docs examples tests tools README.md pyproject.toml; do
  cp -r "$root/$part" "$home"
done
cd "$home"
BIE_OPS_LIBRARY=$(echo "$home"/env/lib/python*/site-packages/bie/lib/libbie_ops.so)
export BIE_OPS_LIBRARY
status=0
"$python" -m pytest -q tests/ops tests/python --ignore tests/python/package_test.py >"$home/report.txt" 2>&1 || status=$?
cat "$home/report.txt"
echo "torch $version: $(tail -n 1 "$home/report.txt")"
exit $status
