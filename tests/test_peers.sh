#!/usr/bin/env bash
# tests/peers: the model that projects steps to many GPUs is in order and refuses what is far from it; times are drawn; and `make
# peers ARGS="--ranks 2"` measures the command on two ranks, here on the CPU and without PyTorch.
set -euo pipefail
if ! command -v python3 >/dev/null; then
  echo "skipped: there is no python3"
  exit 0
fi
minnow=$(readlink -f "${MINNOW:-${BUILD:-build}/minnow}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1 ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
passed=0
fail() {
  [ ! -s "$folder/err" ] || cat "$folder/err" >&2
  echo "$*" >&2
  exit 1
}
scale() { python3 tests/peers/scale.py "$@" >"$folder/out" 2>"$folder/err"; }

scale --self-test || fail "the model is not in order"
# The step that the model has for a block of 1024 x 8192 on four H200s, and times that are off by less and by more than 15 %.
model=$(cd tests/peers && python3 -c 'import scale
for way in "rested", "sustained":
  print(scale.milliseconds(scale.Machine(scale.RATES["H200"], way), scale.Shape(1024, 8192, 1), (4, 1)))')
read -r rested sustained <<<"${model//$'\n'/ }"
measured() { # FACTOR: as if steps had taken so many times as long
  awk -v r="$rested" -v s="$sustained" -v f="$1" 'BEGIN {
    printf "{\"header\": [\"4 x NVIDIA H200, driver 1\"], \"figures\": [{\"case\": \"block\", \"row\": \"minnow, 4 GPUs: groups divided\", "
    printf "\"gpus\": 4, \"grid\": [4, 1], \"rows\": 1024, \"widths\": [8192, 8192], \"groups\": 512, "
    printf "\"rested\": [{\"ms\": %.6f}], \"sustained\": [{\"ms\": %.6f}]}]}\n", r * f, s * f }' >"$folder/measured.json"
}
measured 1.12
scale --check "$folder/measured.json" || fail "12 % are more than 15"
measured 1.25
! scale --check "$folder/measured.json" || fail "25 % are not more than 15"
grep -q "off by -20 %" "$folder/err" || fail "it is not told how far the model is off"
passed=3

# Times of bench and of the peers as a picture: names and values stand beside the bars.
figure() { echo "{\"table\": \"$1\", \"shape\": \"2x3x4/1\", \"precision\": \"bf16\", \"row\": \"$2\", \"what\": \"$3\", $4}"; }
picture() { python3 tests/peers/picture.py "$@" >"$folder/out" 2>"$folder/err"; }
if command -v gnuplot >/dev/null; then
  "$minnow" bench --plans --json --quiet --device cpu --batch 4 --in 4 --hidden 16 >"$folder/plans.json"
  echo "{\"header\": [\"Some GPU\", \"minnow\"], \"figures\": [
    $(figure peers minnow forward '"rested": [{"ms": 0.375}, {"ms": 0.3125}], "sustained": [{"ms": 0.1}]'),
    $(figure peers JAX step '"failed": "why"'), $(figure peers cuBLASLt copy '"rested": [{"ms": 7.25}]'),
    $(figure kernelbench "it's slow" forward '"ms": 12.5')]}" >"$folder/peers.json"
  picture "$folder/plans.json" "$folder/peers.json" --out "$folder/times.svg" || fail "no picture"
  for word in "forward + backward" "training step" norm-activation "2x3x4/1, bf16, rested; Some GPU" minnow 0.3125 \
    "KernelBench 2/62: 2x3x4/1, bf16; Some GPU" "it's slow" 12.50; do
    grep -q ">$word<" "$folder/times.svg" || fail "no '$word' in the picture"
  done
  ! grep -q "JAX\|cuBLASLt\|>7.25" "$folder/times.svg" || fail "what failed, or is no step, is drawn"
  ! picture "$folder/plans.json" "$folder/plans.json" --out "$folder/no.svg" || fail "a time that is there twice is drawn"
  grep -q "is there twice" "$folder/err" || fail "it is not told which time is there twice"
  echo '{"figures": []}' >"$folder/none.json"
  ! picture "$folder/none.json" --out "$folder/no.svg" || fail "no time is drawn"
  for wrong in "no JSON" '[]' '{"device": "d", "precision": "p", "plan": "block", "step_ms": 1}'; do
    echo "$wrong" >"$folder/wrong.json"
    ! picture "$folder/wrong.json" --out "$folder/no.svg" || fail "'$wrong' is drawn"
    [ "$(grep -c "a file of minnow bench --json or of make peers is needed" "$folder/err")" = "$(wc -l <"$folder/err")" ] || fail "'$wrong': not one line"
  done
  passed=$((passed + 4))
fi

if command -v mpirun >/dev/null; then
  python3 tests/peers/peers.py --ranks 2 --device cpu --quick --without PyTorch --minnow "$minnow" --json "$folder/ranks.json" \
    >"$folder/out" 2>"$folder/err" || fail "no figure of two ranks"
  for case in block large stack; do
    grep -q "^$case: " "$folder/out" || fail "no table of $case"
  done
  [ "$(grep -c '^minnow, 2 GPUs: groups divided  *[0-9.]* ' "$folder/out")" = 3 ] || { cat "$folder/out" >&2; fail "two ranks were not timed"; }
  ! scale --check "$folder/ranks.json" || fail "the CPU is taken for a GPU"
  grep -q "for which there are no rates" "$folder/err" || fail "it is not told why"
  # What a launcher that is not there keeps from being timed is named, and no figure is an error.
  ! python3 tests/peers/peers.py --ranks 2 --device cpu --quick --without PyTorch --minnow "$minnow" --mpirun no-mpirun \
    >"$folder/out" 2>"$folder/err" || fail "no figure of several ranks is no error"
  grep -q "^failed: block: .*no-mpirun" "$folder/out" || fail "a launcher that is not there is not named"
  passed=$((passed + 3))
else
  echo "not tested: there is no mpirun"
fi
echo "$passed passed, 0 failed"
