#!/usr/bin/env bash
# A run is a folder: train makes it, writes into it alone and goes on from it, also from a copy and where it was moved; commands that
# read take the folder or a file of it.
set -euo pipefail
minnow=$(realpath "${MINNOW:-build/minnow}") data=$(realpath data/digits.h5)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
passed=0

fail() { echo "$*" >&2; sed 's/^/  /' err >&2; exit 1; }
# run EXIT WORDS LINE…: minnow's exit code and words of what it says.
run() {
  local code=0 wanted=$1 words=$2
  shift 2
  "$minnow" "$@" >out 2>err || code=$?
  [ "$code" = "$wanted" ] || fail "minnow $*: exit code $code, not $wanted"
  [ -z "$words" ] || grep -q -- "$words" err out || fail "minnow $*: says no '$words'"
  passed=$((passed + 1))
}
# holds NAME…: the files in the folder `digits`.
holds() { [ "$(cd digits && echo *)" = "$*" ] || fail "digits holds $(ls -A digits)"; }

cp "$data" digits.h5
train=(train --device cpu --data digits.h5 --hidden 8 --groups 2)

# What fails before the first step leaves no folder, and --dry-run makes none.
run 66 "none.h5" train --device cpu --data none.h5 --hidden 8 --run digits
run 0 "checkpoint_bytes" "${train[@]}" --epochs 2 --run digits --dry-run
[ ! -e digits ] || fail "a folder was made for nothing"

# A new run has a new folder, or an empty one.
run 0 "loss" "${train[@]}" --epochs 2 --run digits --best --keep 2 --save-every 20
holds best.h5 checkpoint.1.h5 checkpoint.h5 log.jsonl
cp -r digits before
run 73 "rm -r digits" "${train[@]}" --epochs 2 --run digits
diff -r digits before || fail "a refused run changed its folder"
mkdir empty
run 66 "empty/checkpoint.h5" train --device cpu --run empty --resume
run 0 "loss" "${train[@]}" --epochs 1 --run empty
run 66 "nothing" train --device cpu --run nothing --resume
run 73 "no/such/folder" "${train[@]}" --run no/such/folder

# What is not a run's own is never named in a command to remove, nor is a name that a shell would take otherwise.
run 73 "is a file, not a folder" "${train[@]}" --run digits.h5
for others in . /; do
  run 73 "no file of a run: name a new folder" "${train[@]}" --run "$others"
  ! grep -q "rm -r" err || fail "--run $others: a command removes what is another's"
done
odd="a\$(touch oops)b"
cp -r digits "$odd"
run 73 "of a run: --resume" "${train[@]}" --run "$odd"
! grep -q "rm -r" err || fail "a command that a shell takes otherwise"
mkdir mixed && touch mixed/checkpoint.h5 mixed/thesis.txt
run 73 "thesis.txt, which is no file of a run" "${train[@]}" --run mixed

# A run that ends before its first save keeps its log aside, and the same command can be tried again.
for n in 1 2; do
  run 1 "is not finite" "${train[@]}" --run diverged --optimizer sgd --lr 1e30 --epochs 2
  [ "$(cd diverged && echo *)" = "$([ $n = 1 ] && echo log.unsaved-1.jsonl || echo log.unsaved-1.jsonl log.unsaved-2.jsonl)" ] || fail "diverged holds $(ls diverged)"
done
run 0 "loss" "${train[@]}" --run diverged --epochs 1

# It goes on, in the same bytes where it was copied, and where it was moved with its data.
cp -r digits copy
run 0 "loss" train --device cpu --run digits --resume --epochs 3
run 0 "loss" train --device cpu --run copy/ --resume --epochs 3
run 0 "equal: yes" diff digits copy
run 0 "equal: yes" diff digits/best.h5 copy/best.h5
mkdir away && mv digits digits.h5 away
run 0 "loss" train --device cpu --run away/digits --resume --epochs 4
mv away/digits away/digits.h5 .

# A folder stands for its checkpoint, and its log; a file for itself.
for from in digits digits/ digits/best.h5; do
  run 0 "accuracy" eval --device cpu --run "$from" --data digits.h5
  run 0 "" predict --device cpu --run "$from" --data digits.h5 --out "out-$(basename "$from")" --force
done
run 0 "kind: checkpoint" info digits
run 0 "whole: yes" verify digits
run 1 "equal: no" diff digits empty
if command -v gnuplot >/dev/null; then run 0 "" plot digits empty --out runs.svg; fi

if command -v gnuplot >/dev/null; then
  run 0 "loss" train --device cpu --run copy --resume --epochs 4 --plot
  head -c 5 copy/plot.svg | grep -q "<?xml" || fail "no picture"
  run 0 "loss" train --device cpu --run copy --resume --epochs 5 --plot
fi

# While one process trains, no other gets the folder, also while it is new.
"$minnow" "${train[@]}" --run long --epochs 1000000000 --quiet >long.out 2>&1 &
first=$!
until [ -s long/log.jsonl ]; do kill -0 $first; done
run 73 "another process trains --run long" train --device cpu --run long --resume
run 73 "long holds log.jsonl of a run" "${train[@]}" --run long
kill -TERM $first
wait $first && fail "not stopped" || [ $? = 75 ] || fail "stopped otherwise: $(cat long.out)"
[ ! -e long/lock ] || fail "the lock stays"

# Killed before its first save it goes on from the best; with a log that was deleted it begins another.
"$minnow" "${train[@]}" --run killed --epochs 1000000000 --quiet --best >long.out 2>&1 &
first=$!
until [ -f killed/best.h5 ]; do kill -0 $first; done
kill -KILL $first
wait $first 2>/dev/null || true
rm killed/log.jsonl
step=$("$minnow" info killed/best.h5 --json | grep -o '"step":[0-9]*' | head -n 1 | cut -d : -f 2)
run 0 "resuming from killed/best.h5" train --device cpu --run killed --resume --stop-at $((step + 9))
grep -q "log: killed/log.jsonl is new, and begins at step $step" err || fail "does not say that the log is new"

# A folder from a stranger makes it write nowhere else: not through links, and into no file that is not its own.
echo precious >victim
for name in checkpoint.h5 checkpoint.1.h5 best.h5 log.jsonl plot.svg lock; do
  rm -rf evil && cp -r digits evil && rm -f "evil/$name" && ln -s ../victim "evil/$name"
  run 73 "$name in --run evil is a symbolic link" train --device cpu --run evil --resume --epochs 5
  run 73 "$name in --run evil is a symbolic link" train --device cpu --run evil --resume --epochs 5 --dry-run
done
rm -rf evil && cp -r digits evil && cp victim evil/log.jsonl
run 73 "evil/log.jsonl is no log of minnow train" train --device cpu --run evil --resume --epochs 5
[ "$(cat victim evil/log.jsonl)" = "$(echo precious; echo precious)" ] || fail "another's file was written"
[ "$(ls -A evil)" = "$(ls -A digits)" ] || fail "evil holds $(ls -A evil)"

# A run of one file, as minnow 0.3 kept it, goes on in a folder.
run 64 "mkdir run && mv run.h5 run/checkpoint.h5" "${train[@]}" --checkpoint run.h5
mkdir run && cp digits/checkpoint.h5 run
run 0 "log: run/log.jsonl is new" train --device cpu --run run --resume --epochs 5

# Without leave to write it says so before the first step.
chmod a-w digits
as=()
if [ "$(id -u)" = 0 ]; then as=(setpriv --reuid 65534 --regid 65534 --clear-groups) && chmod a+rx . && cp "$minnow" minnow && minnow=./minnow; fi
code=0
"${as[@]}" "$minnow" train --device cpu --run digits --resume --epochs 6 >out 2>err || code=$?
chmod u+w digits
{ [ "$code" = 73 ] && grep -q "name a folder that can be written" err; } || fail "exit code $code in a folder without leave to write"
echo "$((passed + 9)) passed, 0 failed"
