#!/usr/bin/env bash
# The share of lines that the C tests run, by folder, of a build with --coverage whose tests have been run (make coverage): less than
# 95 % of engine, data or train/checkpoint is an error. The lines that nothing ran are listed in $BUILD/not-run.txt.
set -euo pipefail
build=${BUILD:-build/coverage}
# A source that is compiled twice, for float and for double, has run where either has.
find "$build" -name '*.gcno' ! -path "$build/tests/*" -print0 | LC_ALL=C sort -z | xargs -0 gcov --stdout 2>/dev/null |
  awk -v list="$build/not-run.txt" '
    BEGIN { count = split("kernels engine layers data train train/checkpoint train/check train/command", folders) }
    function folder(path) { return substr(path, 1, match(path, /\/[^\/]*$/) - 1) }
    {
      at = index($0, ":")
      hits = substr($0, 1, at - 1)
      rest = substr($0, at + 1)
      at = index(rest, ":")
      line = substr(rest, 1, at - 1) + 0
      text = substr(rest, at + 1)
      gsub(/[ *]/, "", hits)
      if (line == 0) { if (text ~ /^Source:/) source = substr(text, 8) }
      else if (hits != "-" && source !~ /^\//) {
        key = source ":" line
        if (!(key in lines)) { lines[key] = 0; texts[key] = text; order[++all] = key; where[key] = folder(source) }
        if (hits ~ /^[0-9]/) lines[key] = 1
      }
    }
    END {
      for (i = 1; i <= all; i++) {
        of[where[order[i]]]++
        run[where[order[i]]] += lines[order[i]]
        if (!lines[order[i]]) print order[i] ": " texts[order[i]] >list
      }
      for (i = 1; i <= count; i++) {
        f = folders[i]
        if (!of[f]) { print f ": no lines were found"; bad = 1; continue }
        share = 100 * run[f] / of[f]
        low = share < 95 && (f == "engine" || f == "data" || f == "train/checkpoint")
        printf "%-18s %5d of %5d lines, %5.1f %%%s\n", f, run[f], of[f], share, low ? ": less than 95 %" : ""
        bad = bad || low
      }
      exit bad
    }'
