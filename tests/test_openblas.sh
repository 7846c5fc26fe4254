#!/usr/bin/env bash
# An OpenBLAS whose threads are not OpenMP's is told of in one line on stderr, with the remedy, and only there. A library loaded
# before OpenBLAS answers for it.
set -euo pipefail
minnow=${MINNOW:-build/minnow}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# AddressSanitizer wants to be the first library loaded, and need not be.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

# says PARALLEL COUNT OPTION…: with this answer of openblas_get_parallel, training says COUNT lines of OpenBLAS's threads.
says() {
  local count
  echo "int openblas_get_parallel(void) { return $1; }" >"$folder/blas.c"
  read -ra cc <<<"${CC:-gcc}"
  "${cc[@]}" -shared -fPIC -o "$folder/blas.so" "$folder/blas.c"
  LD_PRELOAD=$folder/blas.so "$minnow" train --data data/digits.h5 --hidden 8 --groups 2 --steps 2 --device cpu "${@:3}" \
    >"$folder/out" 2>"$folder/err"
  count=$(grep -c "this OpenBLAS has threads of its own.*libopenblas0-openmp.*update-alternatives" "$folder/err") || true
  [ "$count" = "$2" ] || { echo "openblas_get_parallel() = $1 ${*:3}: $count lines, not $2" >&2; cat "$folder/err" >&2; exit 1; }
  ! grep -q OpenBLAS "$folder/out" || { echo "OpenBLAS is told of on stdout" >&2; exit 1; }
}
says 1 1
says 1 0 --quiet
says 2 0
echo "3 passed, 0 failed"
