#!/usr/bin/env bash
# GCC makes vectors of the loops over elements in the CPU's block and updates, for every set of instructions, as it reports.
set -euo pipefail
read -ra compile <"${BUILD:-build}/flags.cc"
case ${compile[*]} in
  *-fsanitize*|*--coverage*|*-march*) echo "skipped: other flags than make's own"; exit 0 ;;
  *-O3*) ;;
  *) echo "skipped: other flags than make's own"; exit 0 ;;
esac
macros=$("${compile[@]}" -dM -E -x c /dev/null)
if grep -q __clang__ <<<"$macros" || ! grep -q __x86_64__ <<<"$macros"; then
  echo "skipped: not GCC's code for x86-64"
  exit 0
fi

passed=0
# vectors FILE LOOPS FLAG…: each loop over lanes or after `omp simd`, of which there are so many, is made of vectors of 16, 32 and 64 bytes.
vectors() {
  local report loops line bytes
  report=$("${compile[@]}" "${@:3}" -fopt-info-vec-optimized -c -o /dev/null "$1" 2>&1) || { echo "$report" >&2; exit 1; }
  loops=$(awk '/^#pragma omp simd/ { simd = 1; next } simd || /^ *(MN_EACH|EACH)\(/ { print NR } { simd = 0 }' "$1")
  [ "$(wc -w <<<"$loops")" = "$2" ] || { echo "$1: loops in lines $loops, not $2 of them" >&2; exit 1; }
  for line in $loops; do
    for bytes in 16 32 64; do
      grep -qE "$1:($line|$((line - 1))):.*vectorized using $bytes byte vectors" <<<"$report" || # GCC may name the pragma's line
        { echo "$1:$line: no loop of vectors of $bytes bytes ${*:3}" >&2; exit 1; }
    done
    passed=$((passed + 1))
  done
}
for real in "" -DMN_DOUBLE; do
  vectors kernels/block.c 9 $real
  vectors kernels/update.c 5 $real
done
echo "$passed passed, 0 failed"
