#!/usr/bin/env bash
# Runs the C tests, and that of ranks, of a build with --coverage (make coverage) and prints the share of lines that they run, by
# folder: less than 95 % of engine, data or train/checkpoint is an error. The lines that nothing ran are listed in $BUILD/not-run.txt.
#
# Each test counts into a folder of its own, and so do those of its children that start no program (tests/apart.c): some let writes
# fail, which spoils the counts of the process that does so.
set -euo pipefail
build=$(readlink -f "${BUILD:-build/coverage}")
ran=$build/ran
rm -rf "$ran"
mkdir "$ran"
export MINNOW=$build/minnow BUILD=$build OMP_WAIT_POLICY=passive GCOV_ERROR_FILE=/dev/null
gcc -shared -fPIC -O1 -o "$build/apart.so" tests/apart.c
for test in "$build"/tests/test_*; do
  [[ $test != *.* ]] || continue
  name=$(basename "$test")
  APART=$ran/$name LD_PRELOAD=$build/apart.so "$test" >"$ran/$name.out" 2>&1 || echo "$name failed, as make check would tell; what it ran counts" >&2
done
# What ranks run, is run by a script's processes.
for name in test_ranks test_ranks_command; do
  GCOV_PREFIX=$ran/$name tests/$name.sh >"$ran/$name.out" 2>&1 || echo "$name failed; what it ran counts" >&2
done
# gcov wants the notes of the compiler beside the counts.
find "$ran" -name '*.gcda' -printf '%P\n' | while IFS= read -r counts; do
  notes=/${counts#*/}
  cp -l "${notes%.gcda}.gcno" "$ran/${counts%.gcda}.gcno"
done
echo "the tests took $SECONDS s"
# A source that is compiled twice, for float and for double, has run where either has; so has one that several tests run.
{
  find "$build" -path "$ran" -prune -o -path "$build/tests" -prune -o -name '*.gcno' -print0
  find "$ran" -path '*/tests/test_*' -name 'test_*.gcda' -prune -o -name '*.gcda' -print0
} | xargs -0 gcov --stdout 2>/dev/null |
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
        if (!of[f]) { print f ": no lines were found"; bad++; continue }
        share = 100 * run[f] / of[f]
        low = share < 95 && (f == "engine" || f == "data" || f == "train/checkpoint")
        printf "%-18s %5d of %5d lines, %5.1f %%%s\n", f, run[f], of[f], share, low ? ": less than 95 %" : ""
        bad += low
      }
      printf "folders: %d passed, %d failed\n", count - bad, bad
      exit bad > 0
    }'
