#!/usr/bin/env bash
# Training divided among processes that mpirun starts: one block ends in the same bytes on 1, 2 and 4 ranks, stacks and clipping in
# the same bytes each time and within a bound of one rank's, and what one rank meets ends all of them. DEVICE=cuda: on GPUs,
# RANKS="2 4" of them. Skipped where there is no mpirun. The sizes are such that OpenBLAS takes the same kernels for a part of a
# matrix as for the whole.
set -euo pipefail
build=${BUILD:-build}
device=${DEVICE:-cpu}
read -ra ranks <<<"${RANKS:-2 4}"
program=$build/tests/ranks/train
if ! command -v mpirun >/dev/null; then
  echo "skipped: there is no mpirun; openmpi-bin has it"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Processes of root's, more than there are cores, and a container's limits, which Open MPI would refuse or warn of; and its leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
passed=0
fail() {
  echo "$*" >&2
  exit 1
}

# train RANKS CASE PRECISION: what rank 0 prints.
train() {
  if [ "$1" = 1 ]; then
    "$program" "$device" "$3" "$2"
  else
    timeout 120 mpirun -n "$1" "$program" "$device" "$3" "$2" 2>"$folder/err" || { local code=$?; cat "$folder/err" >&2; return "$code"; }
  fi
}

same() {
  local case=$1 precision=$2 n
  train 1 "$case" "$precision" >"$folder/1"
  for n in "${ranks[@]}"; do
    train "$n" "$case" "$precision" >"$folder/$n"
    cmp -s "$folder/1" "$folder/$n" || { diff "$folder/1" "$folder/$n" >&2; fail "$case, $precision: $n ranks differ from 1"; }
    passed=$((passed + 1))
  done
}

# near CASE PRECISION BOUND: each loss and norm within BOUND of one rank's, relatively.
near() {
  local case=$1 precision=$2 n
  train 1 "$case" "$precision" >"$folder/1"
  for n in "${ranks[@]}"; do
    train "$n" "$case" "$precision" >"$folder/$n"
    paste -d ' ' "$folder/1" "$folder/$n" | awk -v bound="$3" '
      function off(a, b) { return a != b && (a - b > bound * b || b - a > bound * b) }
      $1 != "parameters" { steps++; if ($1 != $4 || off($2, $5) || off($3, $6)) { print; bad = 1 } }
      END { exit bad || steps != 12 }' >&2 || fail "$case, $precision: $n ranks are further than $3 from 1"
    passed=$((passed + 1))
  done
}

# again CASE PRECISION: the same bytes at a second run.
again() {
  local n
  for n in "${ranks[@]}"; do
    train "$n" "$1" "$2" >"$folder/$n"
    train "$n" "$1" "$2" >"$folder/again"
    cmp -s "$folder/$n" "$folder/again" || fail "$1, $2: two runs on $n ranks differ"
    passed=$((passed + 1))
  done
}

for precision in fp64 bf16 fp16; do same block "$precision"; done
same block-accumulate bf16
same block-adamw fp64
if [ "$device" = cpu ]; then
  same block fp32
else
  # cuBLASLt chooses other algorithms for narrower products. AdamW shows the last bit of fp16x3's second planes, whose scale is a
  # rank's own.
  near block fp32 1e-5
  same block fp16x3
  near block-adamw fp16x3 1e-5
fi
same block-infinite fp32
grep -q "diverged at step 1: blocks.0.fc.bias" "$folder/1" || fail "an infinite parameter of one rank's is not named"
near stack fp64 1e-13
near clip fp32 1e-5
near stack-clip fp32 1e-5
again stack-clip fp32
for n in "${ranks[@]}"; do
  if train "$n" too-many fp32 >"$folder/out" 2>/dev/null; then fail "a group is divided among $n ranks"; fi
  grep -q "^64: the 1 groups of blocks.0 cannot be divided among $n ranks" "$folder/out" || fail "$(cat "$folder/out")"
  passed=$((passed + 1))
done
echo "$passed passed, 0 failed"
