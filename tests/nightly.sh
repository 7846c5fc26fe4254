#!/usr/bin/env bash
# What .ci/run has no time for, in at most MINUTES: suites that run whole, and then those without an end, which share the time that is
# left, slice by slice; the next night goes on behind the last slice. It ends with a table, and with exit code 1 if a suite failed.
#
#   make nightly                      all that are listed below, for 30 minutes
#   make nightly SUITES="lint kills"  these
#
# Logs are in BUILD/nightly. The suites by themselves are goals of make: make fuzz SECONDS=3600.
set -euo pipefail
cd "$(dirname "$0")/.."
suites=${SUITES:-}
for name in $suites; do
  grep -qE "^(suite|slices) $name " tests/nightly.sh || { echo "there is no suite $name in tests/nightly.sh" >&2 && exit 64; }
done
deadline=$((SECONDS + 60 * ${MINUTES:-30}))
state=$PWD/${BUILD:-build}/nightly
mkdir -p "$state"
rm -f "$state"/*.log
# shellcheck source=tests/ccache.sh
source tests/ccache.sh
export WERROR=1 MAKEFLAGS
MAKEFLAGS="-j$(nproc) --no-print-directory"
make packages PROGRAMS="g++ git python3 clang-format shellcheck zsh mpirun pkill valgrind debootstrap" >"$state/packages.log" 2>&1
make packages CC=clang CUDA=0 SANITIZE=fuzzer-no-link,address,undefined >>"$state/packages.log" 2>&1

bad=0 table=
trap 'exit 130' INT TERM
wanted() { case " ${suites:-$1} " in *" $1 "*) ;; *) return 1 ;; esac }

# add NAME PASSED FAILED SKIPPED SECONDS NOTE: a row of the table.
add() {
  local row
  row=$(printf '%-12s %9s %7s %8s %8s   %s' "$@")
  table+=$row$'\n'
  [ "$3" = 0 ] || bad=1
  echo "$row"
}

# suite NAME COMMAND…: runs it whole.
suite() {
  local name=$1 log=$state/$1.log code=0 began=$SECONDS counts note=
  wanted "$name" || return 0
  "${@:2}" >"$log" 2>&1 </dev/null || code=$?
  read -ra counts < <(awk -v code="$code" -f tests/counts.awk "$log")
  note=$(grep -m 1 '^skipped: ' "$log" || true)
  [ "${counts[1]}" = 0 ] || note=$log
  add "$name" "${counts[@]}" $((SECONDS - began)) "$note"
}

# slices NAME COMMAND…: runs it with SEED 1, 2, 3 … until the next would end behind this suite's share of the time: one of as many as
# there are still to come. The seed of the last is kept.
coming=$(grep -oP '^slices \K[a-z]+' tests/nightly.sh | while read -r name; do ! wanted "$name" || echo; done | wc -l)
slices() {
  local name=$1 log=$state/$1.log began=$SECONDS longest=0 passed=0 failed=0 skipped=0 code counts start seed first end
  wanted "$name" || return 0
  seed=$(cat "$state/$name.seed" 2>/dev/null || echo 0) first=$((seed + 1))
  end=$((SECONDS + (deadline - SECONDS) / coming))
  coming=$((coming - 1))
  while [ "$seed" -lt "$first" ] || [ $((SECONDS + longest)) -lt "$end" ]; do
    seed=$((seed + 1)) code=0 start=$SECONDS
    SEED=$seed "${@:2}" >"$log.slice" 2>&1 </dev/null || code=$?
    read -ra counts < <(awk -v code="$code" -f tests/counts.awk "$log.slice")
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
    [ $((SECONDS - start)) -le "$longest" ] || longest=$((SECONDS - start))
    echo "== seed $seed" | cat - "$log.slice" >>"$log"
    echo "$seed" >"$state/$name.seed"
  done
  add "$name" "$passed" "$failed" "$skipped" $((SECONDS - began)) "seeds $first to $seed$([ "$failed" = 0 ] || echo ", $log")"
}
# shellcheck disable=SC2317 # called by name
seeded() { make "$1" ARGS="${*:2} --seed ${SEED:?}"; }
# shellcheck disable=SC2317
mutants() { COUNT=30 AT_LEAST=60 make test-mutants; }
# shellcheck disable=SC2317
pytorchs() { # the oldest that is served, one between, the newest
  local version code=0
  for version in 2.4.1 2.8.0 ""; do
    TORCH_PYTHON=$(tests/torch_python.sh --get ${version:+"$version"}) make check ONLY=test_torch.sh || code=$?
  done
  return "$code"
}
# shellcheck disable=SC2317
architectures() { make all CUDA_ARCH="75 80 90 ptx" BUILD=build/architectures && echo "1 passed, 0 failed"; }

printf '%-12s %9s %7s %8s %8s\n' suite passed failed skipped seconds
suite lint make lint
suite cuda architectures
suite pytorchs pytorchs
suite bare tests/distributions.sh bookworm trixie noble
suite slurm make test-slurm
suite arm64 tests/arm64.sh
suite strikes make test-strikes ARGS="--count 20"
suite valgrind env QUICK=1 make CUDA=0 BUILD=build/plain test-valgrind
suite allocations env ALLOCATIONS=all make check ONLY=test_allocations
suite determinism make test-determinism COUNT=20
suite csv make test-csv
suite fuzz make fuzz SECONDS=30
slices mutants mutants
slices torn seeded test-torn --sample 20
slices faults seeded test-faults --sample 20
slices kills seeded test-kills --sample 10 --count 60
slices actions seeded test-actions --count 20
slices resumes seeded test-resumes --count 20
printf '\n%-12s %9s %7s %8s %8s\n%s' suite passed failed skipped seconds "$table"
exit "$bad"
