#!/usr/bin/env bash
# Where memory is limited a command either does its work or ends with one line and exit code 71. libgomp ends the process, with 1, if a
# thread's stack does not fit.
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
  rm -rf "$folder/run"
  (
    ulimit "$1" "$2"
    export OMP_NUM_THREADS=$3
    exec timeout -k 1 20 "$minnow" "${@:4}"
  ) >"$folder/out" 2>"$folder/err" </dev/null
}

# ladder KIND FROM STEP THREADS OPTION…: from a limit that is enough down to the first that the program cannot be loaded under, or 1 MiB.
passed=0
ladder() {
  local limit code words="ulimit $1, $4 threads, ${*:5}" done=0 refused=0
  for ((limit = $2; limit > 1024; limit -= $3)); do
    under "$1" "$limit" "$4" --version || break
    code=0
    under "$1" "$limit" "$4" "${@:5}" || code=$?
    case $code in
    0)
      done=$((done + 1))
      [ $refused = 0 ] || complain "$words $limit: done, and refused with more"
      ;;
    71) refused=$((refused + 1)) ;;
    *) complain "$words $limit: exit code $code" ;;
    esac
    [ $code = 0 ] || [ "$(grep -c '' "$folder/err"):$(grep -cE '^minnow: .*(no memory|no .*; |MiB free: |cannot be started)' "$folder/err")" = 1:1 ] || complain "$words $limit: not one line"
  done
  [ $((done * refused)) -gt 0 ] || complain "$words: $done times done, $refused times refused"
  passed=$((passed + 1))
}

# edge KIND FROM STEP THREADS: as the ladder, with steps so small that every allocation fails first once; all limits are too small.
edge() {
  local limit code words="ulimit $1, $4 threads, ${train[*]}"
  for ((limit = $2; limit > 1024; limit -= $3)); do
    under "$1" "$limit" "$4" --version || break
    code=0
    under "$1" "$limit" "$4" "${train[@]}" --quiet || code=$?
    [ "$code:$(grep -c '' "$folder/err"):$(grep -c '^minnow: ' "$folder/err")" = 71:1:1 ] || complain "$words $limit: exit code $code"
  done
  passed=$((passed + 1))
}
train=(train --synthetic 100 --in 16 --hidden 8 --groups 2 --batch 10 --steps 3 --device cpu)
ladder -d 24000 700 1 "${train[@]}" --quiet
edge -d 3600 60 1
ladder -v 100000 2500 2 "${train[@]}" --quiet
ladder -v 500000 20000 16 "${train[@]}" --quiet
ladder -v 104000 1000 2 train --synthetic 500 --in 6 --hidden 16 --device cpu --quiet --run "$folder/run" --best
ladder -v 114000 2500 2 train --synthetic 500 --in 6 --hidden "$(printf '8,%.0s' {1..63})8" --epochs 1 --device cpu --quiet --run "$folder/run" --best
ladder -d 80000 3000 4 gradcheck --quiet --device cpu
# Threads' stacks are as large as the shell's limit says, or OMP_STACKSIZE.
stack=$(ulimit -S -s)
ulimit -S -s 65536
ladder -v 600000 25000 2 "${train[@]}" --quiet
ulimit -S -s "$stack"
OMP_STACKSIZE=256M ladder -v 600000 25000 2 "${train[@]}" --quiet

# So many threads that libgomp, or the kernel, cannot have them: refused by their number before one is started.
for threads in 40000 100000 1000000 2000000000; do
  for command in "train --synthetic 100 --in 16 --hidden 8 --steps 3" gradcheck "bench --batch 8 --in 8 --hidden 8"; do
    code=0
    # shellcheck disable=SC2086
    OMP_NUM_THREADS=$threads timeout 20 "$minnow" $command --device cpu --quiet >"$folder/out" 2>"$folder/err" || code=$?
    [ "$code:$(grep -c "^minnow: OMP_NUM_THREADS=$threads is no number of threads: 1 to [0-9]* can be started here; .* would do$" "$folder/err"):$(grep -c '' "$folder/err")" = 64:1:1 ] ||
      complain "$threads threads, $command: exit code $code"
  done
done
OMP_THREAD_LIMIT=4 OMP_NUM_THREADS=100000 "$minnow" "${train[@]}" --quiet >"$folder/out" 2>"$folder/err" || complain "100000 threads of which 4 are started"
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
