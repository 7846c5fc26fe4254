#!/usr/bin/env bash
# The CUDA tests at small shapes under each tool of compute-sanitizer, or under those that are named; needs a GPU. AT_ONCE runs side by
# side (4); starts no more after one that finds something.
set -euo pipefail
export MINNOW_QUICK=1
build=${BUILD:-build}
minnow=${MINNOW:-$build/minnow}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# sanitize TOOL COMMAND…
sanitize() {
  local tool=$1 more=() out
  out=$(mktemp -p "$folder")
  shift
  export MINNOW_BLIND=
  [ "$tool $blind" != "initcheck 1" ] || MINNOW_BLIND=1
  # One test asks for more memory than there is: that refusal is no finding.
  [ "$tool" != memcheck ] || more=(--report-api-errors no)
  # It takes the pipelines of cuBLASLt's own kernels for races.
  [ "$tool" != racecheck ] || more=(--kernel-name-exclude kns=nvjet)
  # memcheck: bounds; racecheck: shared memory; initcheck: memory that nobody wrote; synccheck: barriers.
  compute-sanitizer --tool "$tool" "${more[@]}" --error-exitcode 9 --print-limit 5 "$@" >"$out" 2>&1 || {
    grep -A 25 "^=====" "$out" | head -120
    echo "$tool has findings: $*" >&2
    return 255 # at which xargs starts no more
  }
  echo "$tool: $*: $(grep -oE '(ERROR|RACECHECK) SUMMARY.*' "$out"), $SECONDS s"
}

train=(train --device cuda --data data/digits.h5 --hidden "32,32" --groups 4 --batch 48 --steps 3 --quiet)
# On Hopper every product of these is the fused GEMM's, the test rows' too: first large tiles, then small ones. Elsewhere racecheck
# reports a kernel of cuBLASLt's at odd sizes. Where planes are scaled the first step measures dz in passes of its own.
large=(train --device cuda --quiet --synthetic 2080 --test-rows 1040 --in 2304 --hidden "2304,2304" --groups 144 --batch 1040 --steps 2)
small=(train --device cuda --quiet --synthetic 300 --test-rows 40 --in 512 --hidden "256,256" --groups 8 --batch 128 --steps 3)
# Whether initcheck sees what cuBLASLt writes in bf16 (tests/initcheck.c). Where it does not, whole programs in 16 bits would repeat
# that one false finding; the kernels' own tests, whose outputs are poisoned first, are checked all the same, except for sums that the
# library's products go to by way of memory of the device's (MINNOW_BLIND), and so is fp16x3, which leaves cuBLASLt nothing but floats.
"$build/tests/initcheck"
blind=0
compute-sanitizer --tool initcheck --error-exitcode 9 "$build/tests/initcheck" >"$folder/out" 2>&1 || blind=1
[ $blind = 0 ] || echo "initcheck does not see cuBLASLt's bf16 writes: whole bf16 and fp16 programs are left out of it"

# What runs beside the steps: rows gathered ahead of them, copies that are saved, and the graphs of a whole run. The kernels of
# the loader and the saver take no shared memory and have no barriers. initcheck is for the loader's buffers: a row that no
# gather wrote would be trained on. test_accuracy has products of test_gemm's kernels at another size.
beside() {
  case $1 in
  memcheck) echo test_block_call test_block_update test_loader test_saver test_library test_trainer test_nonfinite test_masters test_accuracy ;;
  racecheck) echo test_block_call test_library ;;
  synccheck) echo test_block_call ;;
  initcheck) echo test_loader ;;
  esac
}

# The command lines of a tool.
commands() {
  local program precision optimizer plan
  for program in test_gemm test_block test_kernels test_planes $(beside "$1"); do
    echo "$build/tests/$program"
  done
  for precision in fp64 fp32 tf32 bf16 fp16 fp16x3; do
    case "$1 $precision $blind" in "initcheck bf16 1" | "initcheck fp16 1") continue ;; esac
    echo "$minnow parity tests/golden/block.h5 --device cuda --precision $precision"
    echo "$minnow ${train[*]} --precision $precision"
    case $precision in fp64 | tf32) continue ;; esac
    echo "$minnow ${train[*]} --clip 1 --accumulate 2 --nesterov --precision $precision"
    [ $precision != fp32 ] || continue
    for optimizer in sgd adamw; do
      echo "$minnow ${large[*]} --precision $precision --optimizer $optimizer"
      echo "$minnow ${small[*]} --precision $precision --optimizer $optimizer"
    done
  done
  for plan in none tail linear-norm; do echo "$minnow gradcheck --device cuda --hidden 6,6 --loss mse --plan $plan"; done
}

[ $# -gt 0 ] || set -- memcheck racecheck initcheck synccheck
export folder blind
export -f sanitize
for tool; do commands "$tool" | sed "s/^/$tool /"; done | xargs -L 1 -P "${AT_ONCE:-4}" bash -c 'sanitize "$@"' sanitize
echo "1 passed, 0 failed"
