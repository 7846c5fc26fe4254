#!/usr/bin/env bash
# The README's example, compiled and run as printed there: it has to train, save and resume. The README stays under 200 lines.
set -euo pipefail
build=${BUILD:-build}
read -ra cc <<<"${CC:-gcc}"
read -ra cflags <<<"${CFLAGS:-}"
read -ra ldlibs <<<"${LDLIBS:?}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# fewer LIMIT FILE WHAT
fewer() {
  local lines
  lines=$(wc -l <"$2")
  [ "$lines" -lt "$1" ] || { echo "$3 has $lines lines; under $1 are promised" >&2; exit 1; }
}
fewer 200 README.md "the README"
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$folder/example.c"
fewer 45 "$folder/example.c" "the README's example"
"${cc[@]}" -std=c11 -Wall -Wextra -Werror "${cflags[@]}" -I. -o "$folder/example" "$folder/example.c" \
  "$build/libminnow.a" "${ldlibs[@]}"
(cd "$folder" && ./example) >"$folder/output"
cat "$folder/output"
awk '{ step[NR] = $2; loss[NR] = $4 }
  END { exit !(NR == 4 && step[3] == 150 && step[4] == 200 && loss[4] < 0.7 * loss[1]) }' "$folder/output" ||
  { echo "the example does not learn, or does not resume" >&2; exit 1; }
echo "1 passed, 0 failed"
