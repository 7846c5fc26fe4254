#!/usr/bin/env bash
# make nightly: every suite whole, or a large number of its cases where they have no end. .ci/run has small samples of them.
#
#   make nightly                       all that are listed below, which takes hours
#   make nightly SUITES="lint kills"   these
#
# It goes on where it stopped: a suite that has passed for a commit is not run for it again. Logs and results are in
# build/nightly/COMMIT; with changes that are not committed everything is run, in build/nightly/changed. It ends with a table, and
# with exit code 1 if a suite failed. Knobs of make hold for all suites: make nightly CUDA=0.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in ${SUITES:-}; do
  grep -q "^ *suite $name " tests/nightly.sh || { echo "there is no suite $name in tests/nightly.sh" >&2 && exit 64; }
done

# What the results are of: the commit, if nothing differs from it.
version() {
  local commit
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null) && [ -z "$(git status --porcelain)" ] || commit=changed
  echo "$commit"
}
version=$(version)
state=$PWD/${BUILD:-build}/nightly/$version
[ "$version" != changed ] || rm -rf "$state"
mkdir -p "$state"
export WERROR=1 MAKEFLAGS
MAKEFLAGS="-j$(nproc) --no-print-directory"
make packages PROGRAMS="g++ git python3 clang-format shellcheck zsh mpirun pkill valgrind debootstrap"
make packages CC=clang CUDA=0 SANITIZE=fuzzer-no-link,address,undefined

# passed_failed STATUS LOG: the cases that a suite's programs have counted.
passed_failed() {
  awk -v status="$1" '
    match($0, /^\[  (PASSED|FAILED)  \].* [0-9]+ test\(s\)/) {
      $0 = substr($0, 1, RLENGTH)
      if (/PASSED/) passed += $(NF - 1); else failed += $(NF - 1)
    }
    match($0, /[0-9]+ passed, [0-9]+ failed/) { split(substr($0, RSTART), word); passed += word[1]; failed += word[3] }
    END { print passed + 0, failed == 0 ? status != 0 : failed }' "$2"
}

bad=0 table=
trap 'exit 130' INT TERM
# suite NAME COMMAND…
suite() {
  local name=$1 log=$state/$1.log result=$state/$1.result status=0 began=$SECONDS passed failed seconds note=
  case " ${SUITES:-$name} " in *" $name "*) ;; *) return 0 ;; esac
  if ! grep -qs '^[0-9]* 0 ' "$result"; then
    echo "== ${*:2}"
    "${@:2}" >"$log" 2>&1 </dev/null || status=$?
    [ "$(version)" = "$version" ] || { echo "the sources have changed meanwhile: run make nightly again" >&2 && exit 1; }
    echo "$(passed_failed "$status" "$log") $((SECONDS - began))" >"$result"
  fi
  read -r passed failed seconds <"$result"
  [ "$passed" != 0 ] || note=$(tail -n 1 "$log")
  [ "$failed" = 0 ] || bad=1 note=$log
  table+=$(printf '%-18s %9s %9s %9s   %s' "$name" "$passed" "$failed" "$seconds" "$note")$'\n'
}

# A path with blanks. The sanitizers' own checks make gcc warn of paths that the code has not.
copy="$state/a copy"
[ -d "$copy" ] || { mkdir "$copy" && git ls-files -z | tar -c --null -T - | tar -x -C "$copy"; }
sanitized=(make -C "$copy" BUILD=build CUDA=0 SANITIZE="address,undefined" WERROR=0)

suite lint make lint
suite check make check
# ASan keeps up to 256 MiB of freed memory, which slows each of the tests' many forks. Of the scripts the one that trains; the others
# skip sanitizers, or run what the programs run too.
suite sanitized env ASAN_OPTIONS=quarantine_size_mb=8 "${sanitized[@]}" check SCRIPTS=tests/test_ranks.sh
suite sanitized-demo "${sanitized[@]}" demo
suite torch make test-torch
suite threads make test-threads
suite valgrind make CUDA=0 BUILD=build/plain test-valgrind
suite clang make CC=clang CUDA=0 BUILD=build/clang check SCRIPTS=tests/test_exports.sh
suite determinism make test-determinism
suite slurm make test-slurm
suite bare env WHOLE=1 tests/distributions.sh bookworm trixie
suite kills make test-kills
suite actions make test-actions
suite faults-files make test-faults ARGS="--without memory --without hdf5 --without library-memory"
suite faults-memory make test-faults ARGS="--only memory"
suite faults-hdf5 make test-faults ARGS="--only hdf5"
suite faults-libraries make test-faults ARGS="--only library-memory"
suite torn make test-torn RUNS=200
suite fuzz make fuzz SECONDS=600 WORKERS="$(nproc)"
suite mutants-1 env PASSED=1 ONE_IN=4 FROM=1 make test-mutants
suite mutants-2 env PASSED=1 ONE_IN=4 FROM=2 make test-mutants
suite mutants-3 env PASSED=1 ONE_IN=4 FROM=3 make test-mutants
suite mutants-4 env PASSED=1 ONE_IN=4 FROM=4 make test-mutants
suite coverage make coverage CUDA=0
if nvidia-smi -L >/dev/null 2>&1; then
  suite sanitizer make test-sanitizer
  suite determinism-cuda make test-determinism COUNT=20 ARGS="--device auto"
  suite faults-cuda make test-faults ARGS="--device cuda"
fi

printf '\n%-18s %9s %9s %9s\n%s' "$version" passed failed seconds "$table"
exit "$bad"
