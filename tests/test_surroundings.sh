#!/usr/bin/env bash
# What a process inherits: settings of OpenMP's, a system without /dev/null, a small stack, a child that is ended from outside. A
# command does its work, or ends with one line that names the cause, in seconds; it blames no file and no training for it.
set -euo pipefail
minnow=$(realpath "${MINNOW:-build/minnow}")
read -ra cc <<<"${CC:-gcc}"
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: a sanitizer has surroundings of its own"
  echo "0 passed, 0 failed"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp data/digits.h5 "$folder"
cd "$folder"
passed=0
complain() { echo "$*" >&2; cat err >&2; exit 1; }
train=(train --device cpu --data digits.h5 --hidden 16 --quiet)

# ends CODES WORDS COMMAND…: within 20 s, with one of the codes (0|64) and, unless it is 0, with one line that has the words.
ends() {
  local code=0
  timeout -k 1 20 "${@:3}" >out 2>err </dev/null || code=$?
  [[ "|$1|" == *"|$code|"* ]] || complain "${*:3}: exit code $code, not $1"
  [ $code = 0 ] || { [ "$(grep -c '' err)" = 1 ] && grep -qE "$2" err; } || complain "${*:3}: not one line with $2"
  passed=$((passed + 1))
}

# Drawn: each variable is unset or has one of its values. The result depends on none of them.
ends 0 "" env OMP_NUM_THREADS=1 "$minnow" "${train[@]}" --steps 5
mv out expected
values=(OMP_NUM_THREADS=3 "OMP_NUM_THREADS=2,1" OMP_THREAD_LIMIT=1 OMP_THREAD_LIMIT=2 OMP_DYNAMIC=true OMP_MAX_ACTIVE_LEVELS=0
  OMP_MAX_ACTIVE_LEVELS=1 OMP_NESTED=true OMP_PROC_BIND=true OMP_SCHEDULE=dynamic OMP_STACKSIZE=1M OMP_STACKSIZE=" 512 k "
  GOMP_CPU_AFFINITY=0 OMP_NUM_THREADS=0)
RANDOM=1
for value in "${values[@]}"; do
  settings=("$value")
  for other in "${values[@]}"; do [ $((RANDOM % 5)) != 0 ] || settings+=("$other"); done
  ends 0 "" env "${settings[@]}" "$minnow" "${train[@]}" --steps 5
  [ "$(grep -v loss out)" = "$(grep -v loss expected)" ] || complain "${settings[*]}: another answer"
done
for size in 16k 20k 64K 100 16384B; do
  ends 64 "OMP_STACKSIZE=$size is too small" env OMP_NUM_THREADS=2 OMP_STACKSIZE="$size" "$minnow" "${train[@]}" --steps 5
done
ends 64 "OMP_NUM_THREADS=2147483648" env OMP_NUM_THREADS=2147483648 "$minnow" "${train[@]}" --steps 5

# What a library says before it ends the process is not the code of a failed check.
echo '#include <stdlib.h>
void omp_set_dynamic(int dynamic) { exit(1); }' >exits.c
"${cc[@]}" -shared -fPIC -o exits.so exits.c
ends 70 "a library has ended the program" env LD_PRELOAD="$PWD/exits.so" "$minnow" "${train[@]}" --steps 5

"$minnow" "${train[@]}" --steps 4 --keep 3 --save-every 1 --run run >out 2>err || complain "no run"
saved() { sha1sum run/*.h5; }
before=$(saved)
for stack in 96 200 400; do
  ends 71 "stack of $stack KiB.*ulimit -s" bash -c "ulimit -s $stack; exec '$minnow' train --run run --resume --steps 9 --quiet"
done

# The child that tries a file out ends before it has.
echo '#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
pid_t fork(void) {
  pid_t child = ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
  if (child == 0) raise(atoi(getenv("ENDED_BY")));
  return child;
}' >ended.c
"${cc[@]}" -shared -fPIC -o ended.so ended.c -ldl
for how in "9:71:Killed" "14:70:Alarm clock" "31:70:Bad system call"; do
  IFS=: read -r signal code words <<<"$how"
  for command in "verify digits.h5" "info digits.h5" "train --run run --resume --steps 9 --quiet" "eval --run run --data digits.h5 --quiet"; do
    read -ra words_of <<<"$command"
    ends "$code" "digits.h5: .*ended from outside \($words" env ENDED_BY="$signal" LD_PRELOAD="$PWD/ended.so" "$minnow" "${words_of[@]}"
  done
done
# One that crashes says of its file that it does.
ends 65 "crashes the HDF5 library" env ENDED_BY=11 LD_PRELOAD="$PWD/ended.so" "$minnow" verify digits.h5
[ "$(saved)" = "$before" ] || complain "files of the run have changed"

# What gnuplot inherits: another terminal, few descriptors, no /proc. Without room it is told which.
if command -v gnuplot >out; then
  for terminal in x11 dumb none; do
    ends 0 "" env GNUTERM=$terminal "$minnow" plot run/log.jsonl --out run.svg --force
  done
  for ((files = 5; files < 20; files++)); do
    ends "0|70|74|66" "Too many open files" bash -c "ulimit -n $files; exec '$minnow' plot run/log.jsonl --out run.svg --force"
  done
  ends 0 "" bash -c "ulimit -n 12; exec '$minnow' plot run/log.jsonl --out run.svg --force"
else
  echo "skipped: no gnuplot: its surroundings"
fi

if unshare -rm true 2>/dev/null; then
  # Threads by a quota of processors, its own group's or that of one above.
  for quota in "150000 100000:/:2" "100000 100000:/:1" "20000 100000:/a/b:1" "100000 100000:/a:1" "max 100000:/a/b:$(nproc)"; do
    IFS=: read -r words group threads <<<"$quota"
    [ "$threads" -le "$(nproc)" ] || continue
    ends 0 "" unshare -rm sh -c "mount -t tmpfs none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/a/b &&
      echo '$words' >'/sys/fs/cgroup/$group/cpu.max' && echo 0::/a/b >group && mount --bind group /proc/\$\$/cgroup &&
      exec env -u OMP_NUM_THREADS '$minnow' train --device cpu --data digits.h5 --hidden 16 --steps 2"
    grep -q "^device: CPU ($threads thread" err || complain "$quota: another number of threads"
  done
  ends 0 "" unshare -rm sh -c "mount -t tmpfs none /dev && exec '$minnow' verify run/checkpoint.h5"
  ! command -v gnuplot >out || ends 0 "" unshare -rm sh -c "mount -t tmpfs none /proc && exec '$minnow' plot run/log.jsonl --out run.svg --force"
  ends 0 "" unshare -rm sh -c "mount -t tmpfs none /dev && exec '$minnow' train --run run --resume --steps 9 --quiet <&- 2>&-"
else
  echo "skipped: a namespace without /dev/null needs unshare -rm"
fi
echo "$passed passed, 0 failed"
