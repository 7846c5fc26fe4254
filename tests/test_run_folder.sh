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

# Two runs cannot share a folder, and --run says where checkpoint and log are.
(flock 9; "$minnow" train --device cpu --run digits --resume --epochs 5 >out 2>err && echo 0 >code || echo $? >code) 9>digits/checkpoint.h5.lock
[ "$(cat code)" = 73 ] || fail "a locked folder was taken"
run 64 "exclude each other" "${train[@]}" --run other --checkpoint other.h5
run 64 "leave --log other.jsonl out" "${train[@]}" --run other --log other.jsonl
echo "$((passed + 5)) passed, 0 failed"
