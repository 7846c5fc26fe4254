#!/usr/bin/env bash
# How much there is to read, in lines of whole files: the tour's two lists (`lists` counts these alone), and the C sources and headers of
# what the linker takes for train/install/example.c. The most that each may have falls with the code. The first includes the public
# header.
set -euo pipefail
passed=0

# at_most LINES WHAT FILE…
at_most() {
  local lines
  [ $# -gt 2 ] || { echo "$2: no files are listed" >&2; exit 1; }
  lines=$(cat "${@:3}" | wc -l)
  echo "$2: $lines lines of $(($# - 2)) files"
  [ "$lines" -le "$1" ] || { echo "$2 may have $1 lines" >&2; exit 1; }
  passed=$((passed + 1))
}
# listed HEADING: the files named under a heading of the tour.
listed() {
  awk -v heading="### $1" '/^#/ { on = $0 == heading } on' engine/TOUR.md | grep -oE "\`[a-z_]+/[^\` ]+\`" | tr -d "\`"
}

mapfile -t cpu < <(listed "On a CPU")
mapfile -t hopper < <(listed "On Hopper")
at_most 6170 "the tour's CPU path" "${cpu[@]}"
at_most 2699 "the tour's Hopper path" "${hopper[@]}"
[ "${1:-}" != lists ] || exit 0

build=${BUILD:-build}
read -ra cc <<<"${CC:-gcc}"
read -ra cflags <<<"${CFLAGS:-}"
read -ra ldlibs <<<"${LDLIBS:?}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/minnow"
cp train/minnow.h "$folder/minnow"
"${cc[@]}" -std=c11 "${cflags[@]}" -fopenmp -I. -I"$folder" train/install/example.c -o "$folder/example" "$build/libminnow.a" "${ldlibs[@]}" -Wl,-Map,"$folder/map"
grep -oP 'libminnow\.a\(\K[^)]+(?=\.o)' "$folder/map" | sort -u >"$folder/objects"
find kernels engine layers data train -name '*.c' >"$folder/sources"
while read -r object; do
  while read -r source; do
    rules=$build/$(dirname "$source")/$object.d # none for layers/block.c if the object is the kernels' block.fp32.o
    [ ! -f "$rules" ] || tr -d "\\\\" <"$rules"
  done < <(grep "/${object%.fp[36][24]}\.c$" "$folder/sources")
done <"$folder/objects" | tr ' ' '\n' | grep -E '^(kernels|engine|layers|data|train)/.*\.[ch]$' | sort -u >"$folder/files"
mapfile -t linked <"$folder/files"
at_most 12064 "what train/install/example.c links" "${linked[@]}"
echo "$passed passed, 0 failed"
