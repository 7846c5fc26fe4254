#!/usr/bin/env bash
# Where memory is limited a command either does its work or ends with one line and exit code 71. OpenBLAS takes 128 MiB for each
# thread as soon as it is loaded, and where it cannot have them asks without end.
set -euo pipefail
minnow=${MINNOW:-build/minnow}
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: a sanitizer's shadow memory needs more than any limit"
  echo "0 passed, 0 failed"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
complain() { echo "$*" >&2; cat "$folder/err" >&2; exit 1; }

# under KIND LIMIT THREADS OPTION…: runs minnow under ulimit KIND LIMIT (KiB) with so many threads.
under() {
  (
    ulimit "$1" "$2"
    export OMP_NUM_THREADS=$3
    exec timeout -k 1 20 "$minnow" "${@:4}"
  ) >"$folder/out" 2>"$folder/err" </dev/null
}

# ladder KIND THREADS OPTION…: from a limit that is enough down to the first that leaves too little for a product, and on to what the
# libraries' code alone takes. A command that computes nothing is done there.
passed=0
ladder() {
  local limit code words="ulimit $1, $2 threads, ${*:3}" done=0
  for ((limit = 700000 + 240000 * $2; limit > 0; limit -= 31250)); do
    code=0
    under "$1" "$limit" "$2" "${@:3}" || code=$?
    [ $code != 71 ] || break
    [ $code = 0 ] || complain "$words $limit: exit code $code"
    done=$((done + 1))
  done
  [ "$(grep -c '' "$folder/err"):$(grep -c '^minnow: no .*; ' "$folder/err")" = 1:1 ] || complain "$words $limit: not one line"
  [ $done -gt 0 ] || complain "$words: never done"
  for ((; limit > 200000; limit -= 31250)); do
    code=0
    under "$1" "$limit" "$2" "${@:3}" || code=$?
    [ $code = 71 ] || complain "$words $limit: exit code $code"
    under "$1" "$limit" "$2" --version || complain "--version, ulimit $1 $limit"
    under "$1" "$limit" "$2" info data/digits.h5 || complain "info, ulimit $1 $limit"
  done
  passed=$((passed + 1))
}
train=(train --synthetic 100 --in 16 --hidden 8 --groups 2 --batch 10 --steps 3 --device cpu)
ladder -v 1 "${train[@]}" --quiet
ladder -v 2 "${train[@]}" --quiet
ladder -d 1 "${train[@]}" --quiet
ladder -v 2 gradcheck --quiet --device cpu
# ends WORDS LIMIT: under ulimit -v LIMIT the run ends with 71 or, with an OpenBLAS that takes less, is done.
ends() {
  local code=0
  under -v "$2" 2 "${train[@]}" --quiet || code=$?
  [ $code = 71 ] || [ $code = 0 ] || complain "$1, ulimit -v $2: exit code $code"
}
# Threads' stacks are as large as the shell's limit says; with 8 MiB for each in mind OpenBLAS would ask without end here.
stack=$(ulimit -S -s)
ulimit -S -s 65536
ends "stacks of 64 MiB" 555000
ends "stacks of 64 MiB" 523750
ulimit -S -s "$stack"
OMP_STACKSIZE=256M ends OMP_STACKSIZE=256M 680000
passed=$((passed + 1))

# A thread that waits spins for a moment only, unless the user says how it waits; the process keeps its name, which pkill goes by.
spins() { env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=VERBOSE "$@" "$minnow" --version 2>&1 | grep -c "GOMP_SPINCOUNT = '300'" || true; }
words=$(spins OMP_NUM_THREADS=2):$(spins OMP_NUM_THREADS=1):$(spins OMP_NUM_THREADS=2 GOMP_SPINCOUNT=7):$(spins OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive)
env -u OMP_WAIT_POLICY OMP_NUM_THREADS=2 "$minnow" "${train[@]::${#train[@]}-3}" 1000000000 --device cpu --quiet >"$folder/out" 2>"$folder/err" &
sleep 0.5
name=$(cat "/proc/$!/comm")
kill -9 $!
wait $! 2>/dev/null || true
if ldd "$minnow" | grep libgomp >/dev/null; then
  [ "$words:$name" = "1:0:0:0:$(basename "$minnow")" ] || complain "spinning is told $words times, the process is called $name"
  passed=$((passed + 1))
fi
echo "$passed passed, 0 failed"
