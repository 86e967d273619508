#!/bin/sh
# Debian's libraries for 64-bit ARM that the command without torch is linked with, unpacked into a folder: the system
# they are downloaded on does not change. A second run does nothing.
#
# Usage: arm_sysroot.sh FOLDER
set -eu
folder=$1
[ ! -e "$folder/complete" ] || exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
  echo "arm_sysroot: this system has no apt-get" >&2
  exit 1
}
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/debs"
folder=$(cd "$folder" && pwd)
: >"$folder/apt/status"
apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$folder/apt/lists" \
    -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt" -o APT::Sandbox::User=root "$@"
}
apt update
(cd "$folder/debs" && apt download zlib1g libpng16-16 libjpeg62-turbo libturbojpeg0 libwebp7 libexif12 libcsv3 libfmt9 \
  libspdlog1.10 zlib1g-dev libpng-dev libjpeg62-turbo-dev libturbojpeg0-dev libwebp-dev libexif-dev libpcre2-dev libutf8proc-dev libcsv-dev libfmt-dev \
  libspdlog-dev libprotobuf-dev libstb-dev libboost1.74-dev)
for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder"; done
rm -rf "$folder/apt" "$folder/debs"
: >"$folder/complete"
