#!/usr/bin/env bash
# minnow train by mpirun: as many ranks as it starts train one run, which the first tells of and saves, and what one rank meets ends all
# of them. DEVICE and RANKS: tests/ranks/started.sh.
set -euo pipefail
# shellcheck source=tests/ranks/started.sh
source tests/ranks/started.sh
minnow=$(readlink -f "${MINNOW:-$build/minnow}")
rows=$(readlink -f data/digits.h5)
options=(--device "$device" --synthetic 2048 --in 192 --hidden 256 --groups 16 --batch 128 --steps 24 --momentum 0.9 --lr 0.05 --precision bf16)
cd "$folder"
# command_ends CODE WORDS RANKS…: mpirun of these ends with this code, and with this one line of minnow's on stderr ("": none).
command_ends() {
  local code=0 lines=1
  [ -n "$2" ] || lines=0
  # After a failure mpirun waits for this time, be any rank left or not.
  OMPI_MCA_odls_base_sigkill_timeout=$(($1 == 0)) timeout 120 mpirun "${@:3}" >out 2>err || code=$?
  [ "$code" = "$1" ] || { cat out err >&2; fail "mpirun ${*:3}: exit code $code, not $1"; }
  [ "$(grep -c '^minnow: ' err)" = "$lines" ] || { cat err >&2; fail "mpirun ${*:3}: not $lines lines"; }
  [ -z "$2" ] || grep -q "^minnow: .*$2" err || { cat err >&2; fail "mpirun ${*:3}: no '$2'"; }
  passed=$((passed + 1))
}
"$minnow" train "${options[@]}" --quiet --run alone >alone.out
for n in "${ranks[@]}"; do
  command_ends 0 "" -n "$n" "${as_host[@]}" "$minnow" train "${options[@]}" --run "$n" --save-every 5
  diff alone.out out >&2 || fail "$n ranks tell otherwise"
  grep -q "^ranks: $n, by " err || fail "the number of ranks is not told"
  "$minnow" verify "$n" >/dev/null
  "$minnow" diff alone/checkpoint.h5 "$n" >/dev/null || fail "$n ranks save other parameters"
  [ "$(grep -c '"step"' "$n/log.jsonl")" = "$(grep -c '"step"' alone/log.jsonl)" ] || fail "$n ranks log otherwise"
done
# GPUs of one host that reach each other's memory end in the bytes that NCCL brings: a block in plain and half tiles; stacks, whose
# dx the GPU sends while it multiplies, or not, and NCCL brings at once or, where it is larger than the room, in pieces; with groups
# that are too wide for the GEMM of our own, so that the library's reads a y that is on its way.
if [ "$device" = cuda ] && [ ${#as_host[@]} = 0 ]; then
  for case in "bf16 8192 1024 256" "fp16 8192 1024 256" "bf16 4096,4096,4096 2048 128" "fp16x3 4096,4096 1024 128" \
    "bf16 8192,4096 1040 128" "bf16 4096,4096 1024 8"; do
    read -r precision hidden batch groups <<<"$case"
    wide=(--device cuda --synthetic 4160 --in 512 --groups "$groups" --steps 6 --momentum 0.9 --lr 0.02 --quiet --test-rows 0
      --precision "$precision" --hidden "$hidden" --batch "$batch")
    rm -rf wide*
    [ "$hidden" != 8192 ] || "$minnow" train "${wide[@]}" --run wide1 >out
    for n in "${ranks[@]}"; do
      command_ends 0 "" -n "$n" "$minnow" train "${wide[@]}" --run "wide$n"
      command_ends 0 "" -n "$n" -x NCCL_P2P_DISABLE=1 "$minnow" train "${wide[@]}" --run "wide-nccl$n"
      "$minnow" diff "wide$n" "wide-nccl$n" >/dev/null || fail "$case: $n GPUs end otherwise by NCCL"
      [ "$hidden" != 8192 ] || "$minnow" diff wide1/checkpoint.h5 "wide$n" >/dev/null || fail "$case: $n GPUs end otherwise than one"
    done
  done
fi
# So do two replicas, of weights that the library multiplies, and of those that are summed in pieces; by NCCL more would add up in an
# order of its own.
if [ "$device" = cuda ] && [ ${#as_host[@]} = 0 ]; then
  for case in "fp32 1024,1024" "bf16 1024,1024" "fp16 1024,1024" "fp16x3 1024,1024" "bf16 4096,4096" "fp16x3 4096,4096"; do
    read -r precision hidden <<<"$case"
    wide=(--device cuda --synthetic 2048 --in 512 --hidden "$hidden" --groups 64 --batch 256 --steps 6 --momentum 0.9 --lr 0.02 --quiet
      --test-rows 0 --precision "$precision" --ranks 1x2)
    rm -rf copied*
    command_ends 0 "" -n 2 "$minnow" train "${wide[@]}" --run copied
    command_ends 0 "" -n 2 -x NCCL_P2P_DISABLE=1 "$minnow" train "${wide[@]}" --run copied-nccl
    "$minnow" diff copied/checkpoint.h5 copied-nccl/checkpoint.h5 >/dev/null || fail "$case: two replicas end otherwise by NCCL"
  done
fi
# As many blocks as a model may have, and a head: ranks agree on the scales of all.
blocks=$(printf ',8%.0s' {1..64})
command_ends 0 "" -n 2 "${as_host[@]}" "$minnow" train --device "$device" --data "$rows" --hidden "${blocks#,}" --groups 2 --steps 2 \
  --precision fp16 --quiet
# From one rank to several and back, as if it had been one all the time.
"$minnow" train "${options[@]}" --quiet --run turn --stop-at 8 >out
for n in "${ranks[@]}"; do
  command_ends 0 "was written with ranks" -n "$n" "${as_host[@]}" "$minnow" train --device "$device" --quiet --run turn --resume \
    --stop-at $((8 + 2 * n))
done
"$minnow" train --device "$device" --quiet --run turn --resume >out
"$minnow" diff alone/checkpoint.h5 turn/checkpoint.h5 >/dev/null || fail "resumed by other numbers of ranks, it is another run"
# What a resume passes over is told once, not by each rank.
command_ends 0 "" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --quiet --run cut --keep 2 --save-every 12 --stop-at 18
truncate --size 1000 cut/checkpoint.h5
command_ends 0 "passed over .*cut/checkpoint.h5" -n 2 "${as_host[@]}" "$minnow" train --device "$device" --quiet --run cut --resume
# So are integers that may be numbers or classes.
"$minnow" train --device "$device" --data "$rows" --hidden 16 --groups 2 --steps 60 --quiet --run labels >out
"$minnow" predict --device "$device" --run labels --data "$rows" --out labelled.h5 --quiet >out
command_ends 65 "labelled.h5: row holds integers up to" -n 2 "${as_host[@]}" "$minnow" train --device "$device" --data labelled.h5 --x y \
  --y row --hidden 8 --groups 2 --steps 2 --quiet
# Replicas do nearly the same, and the run goes on with other shards and replicas.
"$minnow" train "${options[@]}" --precision fp64 --quiet --run alone64 >alone64.out
for n in "${ranks[@]}"; do
  command_ends 0 "" -n "$n" "${as_host[@]}" "$minnow" train "${options[@]}" --precision fp64 --quiet --ranks "1x$n" \
    --run "replicas$n" --stop-at 12
  command_ends 0 "was written with ranks '1x$n', and this is '2x1'" -n 2 "${as_host[@]}" "$minnow" train --device "$device" \
    --run "replicas$n" --resume --ranks 2x1
  diff alone64.out out >&2 || fail "$n replicas, then 2 shards, tell otherwise"
done
# Of the digits and of a stack, both with a head, shards and then replicas tell in all digits that are printed what one rank does.
# shellcheck disable=SC2034 # by name, below
digits=(--device "$device" --data "$rows" --hidden 128 --groups 8 --epochs 2 --batch 64 --lr 0.05 --momentum 0.9 --precision fp64)
# shellcheck disable=SC2034,SC2054
stack=(--device "$device" --synthetic 2048 --in 192 --hidden 256,512 --groups 16 --batch 128 --steps 24 --head 32 --momentum 0.9 --precision fp64)
for case in digits stack; do
  declare -n trained=$case
  again=()
  [ "$case" = stack ] || again=(--data "$rows")
  "$minnow" train "${trained[@]}" --quiet >whole
  for n in "${ranks[@]}"; do
    command_ends 0 "" -n "$n" "${as_host[@]}" "$minnow" train "${trained[@]}" --quiet --run "$case$n" --stop-at 12
    command_ends 0 "was written with ranks" -n 2 "${as_host[@]}" "$minnow" train --device "$device" --run "$case$n" --resume \
      --ranks 1x2 "${again[@]}"
    diff whole out >&2 || fail "$case: $n shards, then 2 replicas, tell otherwise"
  done
done
# Without --ranks as many ranks go on in the grid that the checkpoint was saved by, to the same bytes.
for grid in 1x2 2x1; do
  for stop in 24 12; do
    command_ends 0 "" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --quiet --ranks "$grid" --run grid --stop-at "$stop"
    [ "$stop" = 12 ] || { mv grid/checkpoint.h5 whole.h5 && rm -r grid; }
  done
  command_ends 0 "" -n 2 "${as_host[@]}" "$minnow" train --device "$device" --quiet --run grid --resume
  cmp -s grid/checkpoint.h5 whole.h5 || fail "--ranks $grid: resumed without naming it, it ends in other bytes"
  rm -r grid
done
# So do replicas of a large weight, of which each updates a share, and one rank from their checkpoint on.
large=(--device "$device" --synthetic 256 --in 2048 --hidden 2048 --groups 64 --batch 16 --steps 4 --momentum 0.9 --lr 0.05 --precision fp64)
"$minnow" train "${large[@]}" --quiet --run large >large.out
for n in "${ranks[@]}"; do
  command_ends 0 "" -n "$n" "${as_host[@]}" "$minnow" train "${large[@]}" --quiet --ranks "1x$n" --run "large$n" --stop-at 2
  "$minnow" train --device "$device" --quiet --run "large$n" --resume >out
  diff large.out out >&2 || fail "$n replicas of a large weight, then one rank, tell otherwise"
done
# --verbose names every rank, in order; unbound they share the cores, unless they are told how many threads to have.
cores=$(env -u OMP_NUM_THREADS nproc)
for n in "${ranks[@]}"; do
  for threads in 0 3; do
    given=(env "OMP_NUM_THREADS=$threads")
    [ "$threads" != 0 ] || given=(env -u OMP_NUM_THREADS)
    [ "$threads" != 0 ] || threads=$((cores / n > 1 ? cores / n : 1))
    command_ends 0 "" --bind-to none -n "$n" "${as_host[@]}" "${given[@]}" "$minnow" train "${options[@]}" --steps 1 --verbose
    what="CPU ($threads threads)"
    [ "$device" = cpu ] || what=cuda
    for ((q = 0; q < n; q++)); do echo "rank $q of $n: host $(uname -n), $what"; done >told
    grep "^rank [0-9]* of " err | sed 's/, cuda:.*/, cuda/' | cmp -s told - ||
      { cat err >&2; fail "$n ranks are named otherwise, or have another number of threads"; }
  done
done
# What cannot be is told once, by who found it.
command_ends 73 "alone holds checkpoint.h5" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --run alone
command_ends 64 "cannot be divided among 2 ranks" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --groups 1 --ranks 2x1
command_ends 66 "cannot open /nowhere.h5" -n 2 "${as_host[@]}" "$minnow" train --data /nowhere.h5 --hidden 8 --groups 2
command_ends 64 "--ranks '2y': 4x2" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --ranks 2y
command_ends 64 "--ranks 3x1 is 3 ranks, but 2 were started" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --ranks 3x1
command_ends 64 "a batch of 127 rows cannot be divided among 2 replicas" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" \
  --ranks 1x2 --batch 127
command_ends 64 "--lr is '0.1' for rank 1, but '0.05' for rank 0" -n 1 "${as_host[@]}" "$minnow" train "${options[@]}" : \
  -n 1 "${as_host[@]}" "$minnow" train "${options[@]}" --lr 0.1
command_ends 64 "--rank-timeout is '9' for rank 1, but '30' for rank 0" -n 1 "${as_host[@]}" "$minnow" train "${options[@]}" : \
  -n 1 "${as_host[@]}" "$minnow" train "${options[@]}" --rank-timeout 9
# Of two hosts' data under one path, one label of the 1437 is another.
mkdir here there
cp "$rows" here/d.h5
cp "$rows" there/d.h5
printf '\1' | dd of=there/d.h5 bs=1 seek=$((64239 + 4 * 700)) conv=notrunc 2>/dev/null
! cmp -s here/d.h5 there/d.h5 || fail "label 700 is 1"
own_rows=("${as_host[@]}" "$minnow" train --device "$device" --data d.h5 --hidden 64 --groups 8 --epochs 1 --quiet)
command_ends 65 "d.h5 has other rows for rank 1 than for rank 0" -n 1 -wdir "$PWD/here" "${own_rows[@]}" : \
  -n 1 -wdir "$PWD/there" "${own_rows[@]}"
if [ ${#as_host[@]} -gt 0 ]; then # fewer GPUs than ranks
  command_ends 64 "rank [1-9] has another kind of device than rank 0 .*: start a rank for each GPU" -n "${ranks[-1]}" "$minnow" train \
    --synthetic 2048 --in 192 --hidden 256 --groups 16 --steps 4
fi
# Each process that torchrun started would train alone.
code=0
WORLD_SIZE=2 "$minnow" train "${options[@]}" 2>err >out || code=$?
{ [ "$code" = 64 ] && grep -q "^minnow: WORLD_SIZE is 2, but .*mpirun -n 2 minnow train" err; } || fail "WORLD_SIZE=2: $code: $(cat err)"
WORLD_SIZE=2 "$minnow" train "${options[@]}" --ranks 1 >out
passed=$((passed + 1))
# A tool that one process of an MPI program runs is none of its ranks.
cat >tool <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exit 0
exec "$@"
END
chmod +x tool
for alone in 1 1x1; do
  command_ends 0 "" -n 2 "$PWD/tool" "$minnow" train "${options[@]}" --run "tool-$alone" --ranks "$alone"
  "$minnow" diff alone/checkpoint.h5 "tool-$alone" >/dev/null || fail "--ranks $alone trains otherwise than alone"
done
command_ends 0 "" -n 2 "${as_host[@]}" "$minnow" train "${options[@]}" --ranks 2
diff alone.out out >&2 || fail "--ranks 2 tells otherwise"
# strike SIGNAL RANK CODE WORDS RANKS OPTION…: a run without end that saves, one of whose ranks (all: each) gets a signal, ends with
# this code and this one line of minnow's ("": none), no process is left, and its checkpoint is whole. As many busy processes as
# $crowd says begin once it trains: GPUs may take longer to start among them than the ranks' time.
crowd=0 busy=()
strike() {
  local i p run lines=1 code=0 run_of=$1-$2-$passed
  timeout 120 mpirun -n "$5" "${as_host[@]}" "$minnow" train "${options[@]}" --steps 1000000 --quiet --run "$run_of" --save-every 50 "${@:6}" >out 2>err &
  run=$!
  for ((i = 0; i < 600; i++)); do
    [ ! -s "$run_of/checkpoint.h5" ] || break
    sleep 0.1
  done
  for ((i = 0; i < crowd; i++)); do
    while :; do :; done &
    busy+=($!)
  done
  sleep 0.5
  for p in $(pgrep -f "^$minnow train .*$run_of"); do
    if [ "$2" = all ] || grep -qzx "OMPI_COMM_WORLD_RANK=$2" "/proc/$p/environ"; then kill "-$1" "$p"; fi
  done
  i=$SECONDS
  wait "$run" || code=$?
  [ $((SECONDS - i)) -le $((patience + 8)) ] || { cat err >&2; fail "$1 to rank $2: it takes $((SECONDS - i)) s to end"; }
  [ "$code" = "$3" ] || { cat err >&2; fail "$1 to rank $2: exit code $code, not $3"; }
  ! pgrep -f "^$minnow train .*$run_of" >/dev/null || fail "$1: a rank outlives rank $2"
  [ -n "$4" ] || lines=0
  [ "$(grep -c '^minnow: ' err)" = "$lines" ] || { cat err >&2; fail "$1 to rank $2: not $lines lines"; }
  [ -z "$4" ] || grep -q "^minnow: $4" err || { cat err >&2; fail "$1 to rank $2: no '$4'"; }
  "$minnow" verify "$run_of" >/dev/null
  passed=$((passed + 1))
}
# Seconds, as a busy machine needs: beside other tests a rank may not get a core, or its GPU, for longer than two.
patience=5
last=${ranks[-1]}
strike KILL 1 137 "" 2
strike TERM all 75 "stopped by Terminated" "$last"
[ -z "${MINNOW_QUICK:-}" ] || { echo "$passed passed, 0 failed"; exit; }
strike KILL 0 137 "" "$last"
strike STOP 1 75 "rank [0-9] on .* has waited for rank 1, which does not answer, .*; --resume goes on from the last checkpoint" 2 --rank-timeout "$patience"
strike STOP 0 75 "rank [0-9] on .* has waited for rank 0, which does not answer, .*; --resume goes on from the last checkpoint" "$last" --rank-timeout "$patience"
# On busy cores, too, those that wait answer in time: one line, which names that rank alone.
trap 'rm -rf "$folder"; kill "${busy[@]}"' EXIT
crowd=$((3 * cores))
strike STOP 0 75 "rank [1-9] on .* has waited for rank 0, which does not answer, .*; --resume goes on from the last checkpoint" "$last" --rank-timeout "$patience"
kill "${busy[@]}"
crowd=0
trap 'rm -rf "$folder"' EXIT
strike TERM 1 75 "stopped by Terminated" 2
command_ends 70 "has waited for others for $patience s in the ranks' start" -n 1 "${as_host[@]}" "$minnow" train "${options[@]}" --run alone --rank-timeout "$patience" : \
  -n 1 sh -c 'exec sleep 100'
echo "$passed passed, 0 failed"
