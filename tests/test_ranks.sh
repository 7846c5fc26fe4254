#!/usr/bin/env bash
# Training divided among processes that mpirun starts: one block ends in the same bytes on 1, 2 and 4 ranks, stacks and clipping in
# the same bytes each time and within a bound of one rank's (tests/ranks/train.c). DEVICE and RANKS: tests/ranks/started.sh.
set -euo pipefail
# shellcheck source=tests/ranks/started.sh
source tests/ranks/started.sh
program=$(readlink -f "$build/tests/ranks/train")

# train RANKS CASE PRECISION [SHARDS]: what rank 0 prints; of fewer shards than ranks there are replicas.
train() {
  if [ "$1" = 1 ]; then
    "$program" "$device" "$3" "$2"
  else
    timeout 120 mpirun -n "$1" "${as_host[@]}" "$program" "$device" "$3" "$2" "${@:4}" 2>"$folder/err" || { local code=$?; cat "$folder/err" >&2; return "$code"; }
  fi
}

same() {
  local case=$1 precision=$2 n
  train 1 "$case" "$precision" >"$folder/1"
  for n in "${ranks[@]}"; do
    train "$n" "$case" "$precision" >"$folder/$n"
    diff "$folder/1" "$folder/$n" >&2 || fail "$case, $precision: $n ranks differ from 1"
    passed=$((passed + 1))
  done
}

# near CASE PRECISION BOUND [SHARDS]: each loss and norm within BOUND of one rank's, relatively.
near() {
  local case=$1 precision=$2 n
  train 1 "$case" "$precision" >"$folder/1"
  for n in "${ranks[@]}"; do
    train "$n" "$case" "$precision" "${@:4}" >"$folder/$n"
    paste -d ' ' "$folder/1" "$folder/$n" | awk -v bound="$3" '
      function off(a, b) { return a != b && (a - b > bound * b || b - a > bound * b) }
      $1 != "parameters" { steps++; if ($1 != $4 || off($2, $5) || off($3, $6)) { print; bad = 1 } }
      END { exit bad || steps != 12 }' >&2 || fail "$case, $precision: $n ranks are further than $3 from 1"
    passed=$((passed + 1))
  done
}

# again CASE PRECISION [SHARDS]: the same bytes at a second run.
again() {
  local n
  for n in "${ranks[@]}"; do
    train "$n" "$1" "$2" "${@:3}" >"$folder/$n"
    train "$n" "$1" "$2" "${@:3}" >"$folder/again"
    cmp -s "$folder/$n" "$folder/again" || fail "$1, $2: two runs on $n ranks differ"
    passed=$((passed + 1))
  done
}

# says CASE [PRECISION]: of a row that is not finite, in the last replica's share of its batch, any grid says what one rank does.
says() {
  local case=$1 precision=${2:-fp32} n shards steps='/^parameters/d; s/^\([0-9]\+\) .*/\1/'
  train 1 "$case" "$precision" | sed "$steps" >"$folder/1"
  grep -q "evaluated: .* row" "$folder/1" || { cat "$folder/1" >&2; fail "$case: an evaluation names no row"; }
  for n in "${ranks[@]}"; do
    for ((shards = 1; shards <= n; shards *= 2)); do
      train "$n" "$case" "$precision" "$shards" | sed "$steps" >"$folder/$n"
      diff "$folder/1" "$folder/$n" >&2 || fail "$case: $n ranks, $shards shards, say otherwise"
      passed=$((passed + 1))
    done
  done
}

for precision in fp64 bf16 fp16; do same block "$precision"; done
same block-accumulate bf16
same block-adamw fp64
same block fp32
# AdamW shows a last bit that another scale of a weight's planes, or of a gradient's, would round otherwise.
same block-uneven fp16
if [ "$device" = cuda ]; then
  for precision in fp32 tf32 fp16x3; do same block-adamw "$precision"; done
  same block fp16x3
  same block-uneven fp16x3
fi
# In bf16 dW's epilogue on GPUs waits for the flag, which one shard alone raises.
for precision in bf16 fp32; do same block-infinite "$precision"; done
grep -q "diverged at step 1: blocks.0.fc.weight, row 255 is" "$folder/1" || fail "an infinite weight of one rank's is not named"
near stack fp64 1e-13
near tied fp64 1e-13
near clip fp32 1e-5
near stack-clip fp32 1e-5
again stack-clip fp32
# Replicas: their gradients' sums come in another order than those of one rank's batch. Shards change nothing in one block.
near stack fp64 1e-13 1
near tied fp64 1e-13 1
near clip fp32 1e-5 1
# Each updates a share of the rows, and gives it to the others; those of a head that cannot be shared out all update.
near block-adamw fp64 1e-12 1
near stack-clip fp32 1e-5 1
near block-accumulate bf16 1e-3 1
# With the flag raised they are not summed: twice summed, when the batch was taken again, they would be 1.5e-3 off.
near block-retaken fp16 1e-4 1
# A narrow stack is one kernel of each replica. In 16 bits another order of sums moves roundings; after twelve steps some losses are 2e-3 off.
near narrow fp32 1e-6 1
near narrow bf16 1e-2 1
near narrow fp16 1e-2 1
near narrow-adamw bf16 1e-2 1
near narrow-accumulate bf16 1e-2 1
near narrow-clip fp16 1e-3 1
again narrow fp16 1
# The flag comes too late where a replica has added before all agree on it: 0.1 off then.
near narrow-retaken fp16 1e-4 1
says narrow-row bf16
for case in block-row block-far block-skip stack-row; do says "$case"; done
again stack-clip bf16 1
if [ "${ranks[-1]}" = 4 ]; then
  train 2 block fp64 1 >"$folder/2"
  train 4 block fp64 2 >"$folder/4"
  cmp -s "$folder/2" "$folder/4" || fail "two replicas of two shards differ from two replicas"
fi
timeout 30 mpirun -n 2 "$program" "$device" fp32 child || fail "a child takes its rank's messages"
passed=$((passed + 1))
# A rank that failed tells of it while the others are busy, and not once more.
if train 2 late fp32 >"$folder/out" 2>"$folder/told"; then fail "a fault is forgotten"; fi
[ "$(grep -c "a fault of its own" "$folder/told")" = 1 ] || fail "$(cat "$folder/told")"
grep -q "^minnow: rank 1: a fault of its own; it waits for the other ranks" "$folder/told" || fail "$(cat "$folder/told")"
passed=$((passed + 1))
for n in "${ranks[@]}"; do
  if train "$n" too-many fp32 >"$folder/out" 2>/dev/null; then fail "a group is divided among $n ranks"; fi
  grep -q "^64: the 1 groups of blocks.0 cannot be divided among $n ranks" "$folder/out" || fail "$(cat "$folder/out")"
  passed=$((passed + 1))
done
echo "$passed passed, 0 failed"
