#!/bin/sh
# Unpacks packages of Debian into FOLDER, which is emptied first. An apt of its own downloads them, so that the system
# that runs this script does not change. RELEASE is a name such as bullseye, or "own" for the package sources of this system.
#
# Usage: debian_packages.sh FOLDER ARCHITECTURE RELEASE PACKAGE...
set -eu
folder=$1
architecture=$2
release=$3
shift 3
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "debian_packages: this system has no apt-get" >&2
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/debs"
folder=$(cd "$folder" && pwd)
: >"$folder/apt/status"
apt() {
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root \
    -o Dir::State::lists="$folder/apt/lists" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt" \
    ${sources:+-o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=-} "$@"
}
sources=""
if [ "$release" != own ]; then
  sources=$folder/apt/sources
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -n 's/^URIs: *\([^ ]*\/debian\)\/*$/\1/p; s/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\/debian\)\/* .*/\2/p' | head -n 1)
  keys=$(find /usr/share/keyrings -name 'debian-archive-keyring.*' | head -n 1)
  echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $release main" >"$sources"
fi
apt update
(cd "$folder/debs" && apt download "$@")
for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder"; done
rm -rf "$folder/apt" "$folder/debs"
