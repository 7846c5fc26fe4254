#!/usr/bin/env bash
# No C file uses functions or variables of another that uses its own in turn, be it by way of others.
set -euo pipefail
build=${BUILD:-build}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LC_ALL=C

# What nm says of each object, after the name of its source. What is compiled twice, for float and for double, is read once.
while IFS= read -r source; do
  object=$build/${source%.c}.o
  [ -f "$object" ] || object=$build/${source%.c}.fp32.o
  nm "$object" | sed "s|^|$source |"
done < <(find kernels engine layers data train -name '*.c' -not -path 'train/install/*' | sort) >"$folder/symbols"
awk '
  { name = $NF; kind = $(NF - 1) }
  kind ~ /^[TDBRCVW]$/ { source[name] = $1; next }
  kind == "U" { used[++uses] = name; user[uses] = $1 }
  END {
    for (i = 1; i <= uses; i++)
      if (used[i] in source && source[used[i]] != user[i]) print user[i], source[used[i]]
  }' "$folder/symbols" | sort -u >"$folder/pairs"
[ "$(wc -l <"$folder/pairs")" -gt 50 ] || { echo "nm finds hardly a call between our sources" >&2; exit 1; }
if ! tsort "$folder/pairs" >/dev/null 2>"$folder/circles"; then
  sed 's/^tsort: [^ ]*: input contains a loop:/these use each other:/; s/^tsort: /  /' "$folder/circles" >&2
  exit 1
fi
echo "$(wc -l <"$folder/pairs") pairs of sources, no circle"
echo "1 passed, 0 failed"
