#!/bin/sh
# test_torch.sh [VERSION...]: runs tests/ops, tests/python, tests/runtime and the examples of docs/migration.md against the
# wheels in dist/, beside each torch of tools/torches.txt or those that are named, each in an environment of its own that is
# thrown away.
# A torch takes minutes to install, 5 GB and about 15 minutes of two cores. The last lines have the counts; a failure is an
# exit status.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- $(cat "$root/tools/torches.txt")
for name in bitorch_engine bie_cli bie_runtime bie_llm; do
  [ -e "$(echo "$root"/dist/"$name"-*.whl)" ] || { echo "test_torch: dist/ has no wheel of $name: make wheel" >&2; exit 2; }
done
home=$(mktemp -d "${TMPDIR:-/tmp}/bie-torch-XXXXXX")
trap 'rm -rf "$home"' EXIT
trap 'exit 130' INT TERM
unset PYTHONPATH BIE_OPS_LIBRARY BIE_LLM_LIBRARY
export PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1
grep -hv -e '^torch==' -e '^--requirement' "$root/requirements-build.txt" "$root/requirements.txt" >"$home/requirements.txt"

# The tests find what they read, and no source of a Python package.
mkdir "$home/tests-of-it"
(cd "$root" && cp -r --parents bench docs examples include/bie/runtime src/onnx/operators.cpp tests tools README.md \
  pyproject.toml "$home/tests-of-it")

status=0
for version; do
  echo "test_torch: installing torch $version"
  python3 -m venv "$home/env"
  python=$home/env/bin/python
  "$python" -m pip install --quiet "torch==$version" "$root"/dist/bitorch_engine-*.whl "$root"/dist/bie_cli-*.whl \
    "$root"/dist/bie_runtime-*.whl "$root"/dist/bie_llm-*.whl --requirement "$home/requirements.txt"
  # tests/python lets the packages choose. The others read the folder of a build, whose files are those that the wheels
  # installed.
  packages=$(echo "$home"/env/lib/python*/site-packages)
  mkdir -p "$home/build/src/cli" "$home/build/src/runtime"
  ln -sfn "$packages/bie/lib/torch-${version%.*}" "$home/build/src/ops"
  ln -sf "$packages/bie_runtime/lib/libbie_runtime.so" "$home/build/src/runtime"
  ln -sf "$home/env/bin/bie" "$home/build/src/cli"
  for tests in tests/ops tests/python tests/runtime "tests/docs -k migration"; do
    build=""
    case $tests in tests/ops | tests/runtime | tests/docs*) build=$home/build ;; esac
    # shellcheck disable=SC2086  # a folder and a choice
    (cd "$home/tests-of-it" && env ${build:+"BIE_BUILD_DIR=$build"} "$python" -m pytest -q -n 2 --dist loadfile $tests) >"$home/report" 2>&1 ||
      { status=1 && cat "$home/report"; }
    echo "torch $version: $tests: $(tail -n 1 "$home/report")" | tee -a "$home/counts"
  done
  rm -rf "$home/env"
done
cat "$home/counts"
exit $status
