#!/usr/bin/env bash
# Runs the fuzzers one after the other:
#
#   BUILD=build/fuzz SECONDS_EACH=60 WORKERS=1 SEED=0 tests/fuzz/fuzz.sh checkpoint dataset …
#
# What each learns stays in $BUILD/corpus/NAME, from which the next run goes on; an input that crashes, hangs or takes too much
# memory is kept in $BUILD/crashes and fails the run. SEED: of what is drawn (0: another each time). To see an input again: $BUILD/tests/fuzz/fuzz_NAME FILE.
set -euo pipefail
corpus=$BUILD/corpus
found=$BUILD/crashes
mkdir -p "$found"
if [ ! -d "$corpus" ]; then
  rm -rf "$corpus.new"
  mkdir -p "$corpus.new"
  "$BUILD/tests/fuzz/seeds" "$corpus.new"
  mv "$corpus.new" "$corpus"
fi
export OMP_NUM_THREADS=1
bad=0 inputs=0
for name in "$@"; do
  echo "== $name, $SECONDS_EACH s"
  log=$BUILD/$name.log
  # libhdf5 loses memory where a file is damaged, and looking for it takes most of the time: tests/torn does, more rarely.
  leaks=1
  case $name in checkpoint | dataset | cases) leaks=0 ;; esac
  "$BUILD/tests/fuzz/fuzz_$name" -fork="$WORKERS" -max_total_time="$SECONDS_EACH" -seed="${SEED:-0}" -timeout=20 -rss_limit_mb=3000 -malloc_limit_mb=4096 -detect_leaks=$leaks \
    -max_len=65536 -dict=tests/fuzz/words.dict -artifact_prefix="$found/$name-" -close_fd_mask=1 "$corpus/$name" >"$log" 2>&1 ||
    { bad=$((bad + 1)) && tail -n 40 "$log"; }
  # The last line of libFuzzer's that has counts: inputs run, and what they reach.
  last=$(grep -E '^#[0-9]+: cov' "$log" | tail -n 1) || true
  echo "$last"
  count=${last%%:*}
  inputs=$((inputs + 10#0${count#?}))
done
[ "$bad" = 0 ] || echo "inputs that fail are in $found" >&2
echo "$inputs passed, $bad failed"
[ "$bad" = 0 ]
