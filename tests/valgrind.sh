#!/usr/bin/env bash
# Every command on small inputs under valgrind's memcheck: no error, and no memory that is definitely lost. AT_ONCE commands (2) run
# side by side. valgrind has the processor without AVX-512. QUICK=1: without bench and gradcheck, which compute for minutes.
set -euo pipefail
minnow=$(readlink -f "${MINNOW:-build/minnow}")
digits=$PWD/data/digits.h5 golden=$PWD/tests/golden
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive minnow

# check CODE ARGUMENT…: the command ends with CODE, which is none of valgrind's.
check() {
  local wanted=$1 code=0 out
  shift
  out=$(mktemp -p "$PWD")
  valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    "$minnow" "$@" >"$out" 2>&1 || code=$?
  [ "$code" != "$wanted" ] || return 0
  echo "exit code $code, not $wanted: minnow $*" >&2
  head -n 60 "$out" >&2
  return 255 # at which xargs starts no more
}
export -f check

# all: the command lines that it reads, each after the exit code that it is to end with.
all() {
  local lines
  lines=$(grep -vE "^ *(#|$)${QUICK:+|^ *[0-9]+ (bench|gradcheck)}")
  xargs -d '\n' -P "${AT_ONCE:-2}" -I {} bash -c 'set -f; check {}' <<<"$lines"
  count=$((count + $(wc -l <<<"$lines")))
}
count=0

data="--device cpu --quiet --data $digits --hidden 16,16 --groups 4"
made="--device cpu --quiet --synthetic 200 --in 12 --hidden 16,16 --groups 4 --batch 16"
head -c 3000 "$digits" >cut.h5
all <<E
  0 train $data --steps 6 --stop-at 4 --run run --log-every 1
  0 train $data --epochs 1 --batch 256 --best --save-every 2 --keep 3 --run best --validation 0 --patience 1
  0 train $data --steps 3 --optimizer adamw --clip 1 --accumulate 2 --schedule cosine --warmup 1 --run adamw
  0 train $data --steps 3 --place file --precision fp64 --run wide
  0 train $data --steps 3 --precision bf16 --nesterov
  0 train $data --steps 3 --precision fp16
  0 train $data --dry-run
  0 train $made --steps 4 --precision fp16x3 --run teacher --json
  0 train $made --steps 4 --schedule step --step-every 2 --test-rows 20 --head 3
  0 gradcheck --hidden 8,8 --in 6 --groups 2 --quiet
  0 gradcheck --hidden 4 --in 3 --groups 2 --head 3 --loss cross-entropy --json
  0 parity $golden/block.h5 --device cpu
  0 parity $golden/adamw.h5 --device cpu --json
  0 bench --device cpu --batch 16 --in 32 --hidden 32 --json --quiet
  0 bench --device cpu --batch 16 --in 32 --hidden 32 --plans
  0 info $digits
  0 info $digits --json
  0 verify $digits
  0 --help
  0 train --help
  0 --version
  64 train --hidden 0
  64 nothing
  65 info cut.h5
  65 verify cut.h5 --json
  65 train --data cut.h5 --hidden 8 --quiet
  65 parity $digits
  66 eval --run none --data $digits
E
cp -r run other
cp run/checkpoint.h5 copy.h5
all <<E
  0 train --device cpu --quiet --run run --resume --data $digits --plot
  0 train --device cpu --run adamw --resume --data $digits --epochs 1 --lr 0.001
  0 train $data --steps 2 --init wide/checkpoint.h5
  0 eval --device cpu --run best/best.h5 --data $digits
  0 eval --device cpu --run other --data $digits --part train --json
  0 predict --device cpu --run other --data $digits --out outputs.h5 --quiet
  0 predict --device cpu --run wide --data $digits --out wide-outputs.h5 --part train
  0 plot other --out again.svg
  0 info best
  0 info teacher --json
  0 verify adamw
  0 diff other copy.h5
  1 diff other best
  1 diff other best --json
  65 diff other cut.h5
  73 train $data --steps 2 --run other
E
echo "commands under valgrind, without an error or memory that is lost, $SECONDS s: $count passed, 0 failed"
