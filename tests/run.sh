#!/usr/bin/env bash
# Runs the test programs and scripts that are named, in this order, and goes on after a failure.
#
#   tests/run.sh PROGRAM…     (make test, make quick)
#
# TEST_JOBS run at a time: one more than there are cores, since many of them sleep. One that runs for TEST_SECONDS is ended. Each gets
# a line, which begins with how many have ended, and one that fails all that it wrote; that stays in BUILD/tests/logs, and the names of those that failed in BUILD/tests/failed.
# The last line is the verdict, as the exit code is; before it the skipped tests are counted by their reasons, and the programs that did
# not run are named, with what to do about it if there is anything. These lines are also in BUILD/tests/skipped.
set -u
build=${BUILD:-build}
logs=$build/tests/logs
jobs=${TEST_JOBS:-$(($(nproc) + 1))}
[ $# -gt 0 ] || { echo "tests/run.sh: name a program; make test names all" >&2 && exit 64; }
rm -rf "$logs" && mkdir -p "$logs" || exit 74
began=$SECONDS all=$#

# one PROGRAM: runs it, and prints its line. With job control it is a group of processes of its own, and takes SIGINT as users have it.
one() {
  local name=${1##*/} started=$EPOCHREALTIME code=0 passed failed skipped log
  log=$logs/$name
  # For Open MPI: an mpirun that ends removes the folder that another one is about to use.
  local own; own=$(mktemp -d)
  set -m
  OMPI_MCA_orte_tmpdir_base=$own timeout --kill-after=5 "${TEST_SECONDS:-600}" "$1" >"$log" 2>&1 </dev/null &
  trap 'kill $!' INT TERM
  wait $! || code=$?
  rm -rf "$own"
  read -r passed failed skipped < <(awk -v code="$code" -f tests/counts.awk "$log")
  {
    flock 9 # others end at the same time
    echo "$passed $failed $skipped" >"$log.count"
    ended=("$logs"/*.count)
    printf '%3d/%d %s\n' ${#ended[@]} "$all" "$(tell)"
  } 9>"$logs/lock"
}

# tell: the line of one's program, and after a failure what it wrote.
tell() {
  local seconds why="exit code $code"
  seconds=$(awk -v from="$started" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')
  [ "$code" != 124 ] || why="ended after ${TEST_SECONDS:-600} s"
  printf '%-24s %5d passed %3d failed %3d skipped %6.1f s\n' "$name" "$passed" "$failed" "$skipped" "$seconds"
  [ "$failed" = 0 ] || sed "s/^/  $name: /" "$log"
  [ "$failed" = 0 ] || echo "  $name: FAILED, $why; this is also in $log"
}

trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM
running=0
for program; do
  if [ "$running" -ge "$jobs" ]; then
    wait -n
    running=$((running - 1))
  fi
  one "$program" &
  running=$((running + 1))
done
wait

(cd "$logs" && grep -lE '^[0-9]+ [1-9]' -- *.count | sed 's/\.count$//; s/\.sh$//') >"$build/tests/failed"
echo "in $((SECONDS - began)) s"
sed -n 's/^skipped: \([^:;,(]*\).*/\1/p' "$logs"/* | sort | uniq -c | sort -rn |
  awk '{ n = $1; $1 = ""; line = line (line ? ";" : "skipped:") $0 " " n }  END { if (line) print line }'
for log in "$logs"/*.count; do
  grep -q '^0 0 ' "$log" && whole=1 || whole=0
  awk -v name="$(basename "$log" .count)" -v whole="$whole" '/^skipped: / && (whole || /; make test /) { print name " " $0; exit }' "${log%.count}"
done | tee "$build/tests/skipped"
cat "$logs"/*.count | awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
