#!/usr/bin/env bash
# The README's example, compiled and run as printed there: it has to train.
set -euo pipefail
build=${BUILD:-build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$folder/example.c"
lines=$(wc -l <"$folder/example.c")
if [ "$lines" -lt 10 ] || [ "$lines" -ge 40 ]; then
  echo "the README's example has $lines lines; under 40 are promised" >&2
  exit 1
fi
# shellcheck disable=SC2086 # flags are several words
"${CC:-gcc}" -std=c11 -Wall -Wextra -Werror ${CFLAGS:-} -I. -o "$folder/example" "$folder/example.c" \
  "$build/libminnow.a" ${LDLIBS:?}
"$folder/example" >"$folder/output"
cat "$folder/output"
awk '{ loss[NR] = $4 } END { exit !(NR == 5 && loss[5] < loss[1] / 2) }' "$folder/output" ||
  { echo "the example does not learn" >&2; exit 1; }
echo "1 passed, 0 failed"
