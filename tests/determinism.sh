#!/usr/bin/env bash
# The same command gives the same bytes: COUNT runs (100) of the demo, by 1, 2, 3 … threads in turn, and small runs, a tenth as many, in
# each precision with either optimizer. Of each kind of run every checkpoint and every log must be the first one's, but for
# /fingerprint, which names the number of threads, and the log's times.
#
#   tests/determinism.sh [--device auto]     (cpu by default)
set -euo pipefail
minnow=$(readlink -f "${MINNOW:-build/minnow}")
digits=$PWD/data/digits.h5
count=${COUNT:-100}
device=cpu
if [ $# = 2 ] && [ "$1" = --device ]; then
  device=$2
elif [ $# -gt 0 ]; then
  echo "usage: tests/determinism.sh [--device auto|cpu|cuda]" >&2
  exit 64
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_WAIT_POLICY=passive
most=$(($(nproc) + 2))
small=$((count / 10 > most ? count / 10 : most))

# What a run leaves, but for fingerprint, times and --threads: parameters, what the optimizer keeps and progress are compared by diff, to the
# last bit; options and log here, as text.
rest() {
  "$minnow" info run | sed '/^fingerprint/,$d; /^ *threads:/d'
  sed 's/,"time":{[^}]*}}$/}/' run/log.jsonl
}

# same NAME COUNT ARGUMENT…: this run, so often.
same() {
  local name=$1 times=$2 run hash first=
  shift 2
  for ((run = 0; run < times; run++)); do
    rm -rf run
    OMP_NUM_THREADS=$((run % most + 1)) "$minnow" train --threads $((run % most + 1)) --device "$device" --quiet --run run "$@" >said 2>&1 || {
      cat said >&2
      exit 70
    }
    hash=$(rest | sha256sum | cut -c 1-16)
    if [ -z "$first" ]; then
      first=$hash
      rm -rf first && mv run first
    elif [ "$hash" != "$first" ] || ! "$minnow" diff first run >said 2>&1; then
      echo "$name: run $((run + 1)), of $((run % most + 1)) threads, differs from the first" >&2
      cat said >&2
      diff <(sed 's/,"time":{[^}]*}}$/}/' first/log.jsonl) <(sed 's/,"time":{[^}]*}}$/}/' run/log.jsonl) | head -5 >&2 || true
      exit 1
    fi
  done
  echo "$name: by 1 to $most threads one result: $first, $SECONDS s; $times passed, 0 failed"
}

same demo "$count" --data "$digits" --hidden 128 --groups 8 --epochs 20 --batch 64 --lr 0.05 --momentum 0.9
for precision in fp64 fp32 tf32 bf16 fp16 fp16x3; do
  for optimizer in sgd adamw; do
    same "$precision, $optimizer" "$small" --synthetic 1500 --in 384 --hidden 128,64 --groups 8 --head 5 --batch 128 \
      --steps 20 --log-every 1 --precision "$precision" --optimizer "$optimizer" --place host
  done
done
