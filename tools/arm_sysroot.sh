#!/bin/sh
# Unpacks Debian's libraries for 64-bit ARM, which the command without torch is linked with, into a folder. A second run
# does nothing.
#
# Usage: arm_sysroot.sh FOLDER
set -eu
folder=$1
[ ! -e "$folder/complete" ] || exit 0
sh "$(dirname "$0")/debian_packages.sh" "$folder" arm64 own zlib1g libpng16-16 libjpeg62-turbo libturbojpeg0 libwebp7 libexif12 \
  libcsv3 libfmt9 libspdlog1.10 zlib1g-dev libpng-dev libjpeg62-turbo-dev libturbojpeg0-dev libwebp-dev libexif-dev libpcre2-dev \
  libutf8proc-dev libcsv-dev libfmt-dev libspdlog-dev libprotobuf-dev libstb-dev libboost1.74-dev
: >"$folder/complete"
