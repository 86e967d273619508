#!/bin/sh
# Builds the wheels of bitorch_engine, bie-cli, bie-runtime and bie-llm into dist/, with checksums, and tries them in an empty
# environment of every Python from 3.10 on that is on the PATH. bitorch_engine and bie-cli hold libraries for each torch of
# tools/torches.txt, whose headers are fetched into build/torches once; BIE_TORCHES names fewer, such as "2.15.0"; that of .venv is always in.
# The CUDA kernels are in where nvcc is. torch's own libraries stay out.
set -eu
cd "$(dirname "$0")/.."
start=$(date +%s)
say() { echo "wheel: $(($(date +%s) - start)) s: $*"; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/bie-wheels-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
export PIP_DISABLE_PIP_VERSION_CHECK=1
PATH="$PWD/.venv/bin:$PATH"
export PATH
# The times of the files in a wheel.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}
export SOURCE_DATE_EPOCH
umask 022

cuda=OFF
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -n "${CUDACXX:-}" ]; then
  cuda=ON
else
  say "there is no nvcc: these wheels have no CUDA kernels"
fi

# The folders of these builds are one run's at a time.
mkdir -p build/wheels
exec 9>build/wheels/lock
flock -n 9 || { echo "wheel: another run is at work" >&2; exit 1; }

link_flags=""
if sh tools/old_glibc.sh build/old-glibc; then
  link=$PWD/build/old-glibc/link
  link_flags="-B$link -L$link $link/compat.o -Wl,--exclude-libs,libstdc++_newer.a -Wl,-z,defs"
else
  say "these wheels need the C library of this system"
fi

# Headers, the libraries that are linked against and the licences, of the wheel for any Python. What tells whose the files are
# comes last.
fetch_torch() {
  folder=build/torches/$1
  [ ! -e "$folder/torch-$1.dist-info" ] || return 0
  say "fetching torch $1"
  rm -rf "$folder"
  mkdir -p "$folder"
  pip download --quiet --no-deps --dest "$scratch/torch" "torch==$1"
  python -m zipfile -e "$scratch"/torch/torch-*.whl "$scratch/unpacked"
  mkdir -p "$folder/torch/lib"
  mv "$scratch/unpacked/torch/include" "$scratch/unpacked/torch/version.py" "$folder/torch"
  mv "$scratch"/unpacked/torch/lib/libc10.so "$scratch"/unpacked/torch/lib/libtorch_cpu.so \
    "$scratch"/unpacked/torch/lib/libgomp.so.1 "$folder/torch/lib"
  mv "$scratch"/unpacked/torch-*.dist-info "$folder/torch-$1.dist-info"
  rm -rf "$scratch/torch" "$scratch/unpacked"
}

# The torch of .venv is the one that pip builds beside.
own=$(python -c 'import torch; print(torch.__version__.split("+")[0])')
minor() { echo "$1" | cut -d. -f1,2; }
others=$PWD/build/wheels/torches
rm -rf "$others"
mkdir -p "$others/bitorch_engine" "$others/bie_cli"
ops_builds=""
program_builds=""
for version in ${BIE_TORCHES:-$(cat tools/torches.txt)}; do
  [ "$(minor "$version")" != "$(minor "$own")" ] || continue
  fetch_torch "$version"
  say "building for torch $version"
  build=build/wheels/torch-$version
  cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=c++ -DSKBUILD=ON \
    -DPython_EXECUTABLE="$PWD/.venv/bin/python" -DBIE_TORCH_DIR="$PWD/build/torches/$version/torch" -DBIE_CUDA=$cuda \
    -DCMAKE_SHARED_LINKER_FLAGS="$link_flags" -DCMAKE_EXE_LINKER_FLAGS="$link_flags" \
    -DBIE_BUILD_TESTS=OFF -DBIE_BUILD_BENCH=OFF -DBIE_BUILD_EXAMPLES=OFF -DBIE_WERROR=OFF >"$scratch/log" 2>&1 &&
    cmake --build "$build" --target bie_ops bie_torch_program >>"$scratch/log" 2>&1 || {
    tail -n 40 "$scratch/log" >&2
    exit 1
  }
  for wheel in bitorch_engine bie_cli; do
    cmake --install "$build" --strip --component "${wheel}_torch" --prefix "$others/$wheel" >/dev/null
  done
  ops_builds="$ops_builds $build:bie_ops"
  program_builds="$program_builds $build:bie_torch_program"
done

export BIE_OTHER_TORCHES="$others"
for name in bitorch_engine bie-cli bie-runtime bie-llm; do
  say "building $name"
  source=./python/$name
  [ "$name" != bitorch_engine ] || source=.
  case $name in
    bitorch_engine | bie-cli) set -- "--config-settings=cmake.define.BIE_CUDA=$cuda" ;;
    *) set -- ;;
  esac
  for kind in EXE SHARED; do set -- "$@" "--config-settings=cmake.define.CMAKE_${kind}_LINKER_FLAGS=$link_flags"; done
  pip wheel --quiet --no-deps --no-build-isolation "$@" --config-settings="build-dir=$PWD/build/wheels/$name" \
    --wheel-dir "$scratch/built-$name" "$source"
  case $name in
    bitorch_engine) more=$ops_builds ;;
    bie-cli) more=$program_builds ;;
    *) more="" ;;
  esac
  # shellcheck disable=SC2086  # a list of words
  python tools/wheel_notices.py "$scratch/built-$name"/*.whl "$scratch/built" "build/wheels/$name" $more
done
for wheel in "$scratch"/built/*.whl; do
  auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*' --exclude 'libbie_*' \
    --wheel-dir "$scratch/dist" "$wheel"
done
(cd "$scratch/dist" && sha256sum ./*.whl | sed 's# \./# #' >SHA256SUMS)
root=$PWD
cd "$scratch"
unset BIE_OTHER_TORCHES
tried=0
for python in python3.10 python3.11 python3.12 python3.13 python3.14; do
  "$python" -c 'import venv, ensurepip' 2>/dev/null || continue
  say "trying them on $("$python" -V)"
  "$python" -m venv "$python-env"
  "$python-env/bin/python" -m pip install --quiet --no-compile "torch==$own" "$scratch"/dist/*.whl
  "$python-env/bin/python" -m pip check >/dev/null
  "$python-env/bin/python" - <<'EOF'
import bie.llm
import torch
import bie
import bie_runtime

layer = bie.nn.BinaryLinear(33, 5)
layer.prepare_params()
assert layer(torch.randn(2, 33)).shape == (2, 5)
layer.load_state_dict(layer.state_dict())  # reads frames of Python's
EOF
  "$python-env/bin/bie" doctor >/dev/null
  rm -rf "$python-env"
  tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || { echo "wheel: no Python from 3.10 on was found to try the wheels on" >&2; exit 1; }
mkdir -p "$root/dist"
rm -f "$root"/dist/*.whl "$root/dist/SHA256SUMS"
cp "$scratch"/dist/* "$root/dist/"
say "tried on $tried Pythons; in dist:"
ls -sh "$root/dist"
