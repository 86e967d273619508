#!/bin/sh
# Brings a Debian 12 or Ubuntu 22.04 machine (or later) to where `cmake --preset release` works: the system packages
# that are missing, then .venv with the versions of requirements.txt. A stamp holding the hash of both inputs makes
# the next run do nothing.
set -eu
cd "$(dirname "$0")/.."

packages="g++ clang libclang-rt-dev clang-tidy ccache python3-venv zlib1g-dev libpng-dev libgtest-dev libcli11-dev \
nlohmann-json3-dev libspdlog-dev"

fail() {
  echo "setup: $*" >&2
  exit 1
}

stamp=.venv/.bie-setup
wanted=$(cat requirements.txt tools/setup.sh | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi

if command -v dpkg >/dev/null; then
  missing=""
  for package in $packages; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing="$missing $package"
  done
  if [ -n "$missing" ]; then
    echo "setup: installing$missing"
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
  fi
else
  echo "setup: this system has no dpkg, so the counterparts of these packages are yours to install: $packages" >&2
fi

command -v python3 >/dev/null || fail "python3 is not on the PATH"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "torch needs Python 3.10 or later, and python3 is $(python3 -V 2>&1)"
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  echo "setup: creating .venv with $(python3 -V)"
  python3 -m venv --clear .venv || fail "python3 -m venv .venv failed"
fi
echo "setup: installing requirements.txt into .venv (torch is large, this can take minutes)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt ||
  fail "pip could not install requirements.txt"
echo "$wanted" >"$stamp"
