#!/usr/bin/env bash
# The CUDA tests at small shapes under each tool of compute-sanitizer; needs a GPU. Ends at the first tool that finds something.
set -euo pipefail
export MINNOW_QUICK=1
build=${BUILD:-build}
minnow=${MINNOW:-$build/minnow}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run() {
  local tool=$1 more=()
  shift
  # One test asks for more memory than there is: that refusal is no finding.
  [ "$tool" != memcheck ] || more=(--report-api-errors no)
  echo "== $tool: $*"
  # memcheck: bounds; racecheck: shared memory; initcheck: memory that nobody wrote; synccheck: barriers.
  compute-sanitizer --tool "$tool" "${more[@]}" --error-exitcode 9 --print-limit 5 "$@" >"$folder/out" 2>&1 || {
    grep -A 25 "^=====" "$folder/out" | head -120
    echo "$tool has findings: $*" >&2
    exit 1
  }
  grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$folder/out"
}

train=(train --device cuda --data data/digits.h5 --hidden "32,32" --groups 4 --batch 48 --steps 3 --quiet)
for tool in memcheck racecheck initcheck synccheck; do
  run $tool "$build/tests/test_parity_devices"
  run $tool "$build/tests/test_parity_block"
  for precision in fp64 fp32 tf32 bf16; do
    run $tool "$minnow" parity tests/golden/block.h5 --device cuda --precision $precision
    run $tool "$minnow" "${train[@]}" --precision $precision
  done
  run $tool "$minnow" "${train[@]}" --clip 1 --accumulate 2 --nesterov
  for plan in none tail linear-norm; do run $tool "$minnow" gradcheck --device cuda --hidden 6,6 --loss mse --plan $plan; done
done
echo "1 passed, 0 failed"
