#!/bin/sh
# Takes the pictures of docs/images: the page of a run and that of a comparison, light and dark, wide and narrow.
#
# Usage: tools/report_images.sh RUN.html COMPARISON.html. Needs Chromium; with fonts-roboto the pictures look as on a
# phone. Those that are there show the pages of
#   bie train --data mnist:data/mnist --bits 1 --hidden 256 --depth 2 --epochs 10 --run runs/mnist-1-bit
#   bie demo --seeds 3 --report demo.html
set -eu
[ $# = 2 ] || { echo "usage: tools/report_images.sh RUN.html COMPARISON.html" >&2; exit 2; }
run=$(realpath "$1")
comparison=$(realpath "$2")
images=$(realpath "$(dirname "$0")/../docs")/images
mkdir -p "$images"

picture() {  # name, page, width, height, scheme (0 dark, 1 light)
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="$3,$4" \
    --blink-settings=preferredColorScheme="$5" --screenshot="$images/$1.png" "file://$2" >/dev/null 2>&1 ||
    { echo "report_images: chromium could not draw $2" >&2; exit 1; }
}

picture run-light "$run" 1280 1500 1
picture run-dark "$run" 1280 1500 0
picture run-phone-light "$run" 390 1500 1
picture run-phone-dark "$run" 390 1500 0
picture comparison-light "$comparison" 1280 1000 1
picture comparison-dark "$comparison" 1280 1000 0
picture comparison-phone "$comparison" 390 1200 1
