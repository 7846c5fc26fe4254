#!/usr/bin/env bash
# What make would do, by its dry runs: a demo without a GPU is built without CUDA unless CUDA is asked for, and leaves a link; one
# goal is built on all cores, several in their order; and a build with CUDA says how to leave it out. How tests/run.sh counts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0
fail() { echo "$*" >&2; exit 1; }
# A compiler of CUDA that is found, and no GPU.
mkdir "$folder/cuda" "$folder/cuda/bin"
touch "$folder/cuda/bin/nvcc"
chmod +x "$folder/cuda/bin/nvcc"
printf '#!/bin/sh\nexit 9\n' >"$folder/nvidia-smi"
chmod +x "$folder/nvidia-smi"
would() { # ENVIRONMENT… -- GOAL…: the lines of a dry run
  local with=() environment=(-u MAKEFLAGS -u MAKELEVEL -u CUDA_ARCH -u CUDA -u NVCC -u BUILD "PATH=$folder:$PATH" "CUDA_HOME=$folder/cuda")
  while [ "$1" != -- ]; do with+=("$1") && shift; done
  env "${environment[@]}" "${with[@]}" make -n BUILD="$folder/build" "${@:2}" 2>&1
}
# has WORDS TEXT, lacks WORDS TEXT
has() { grep -qe "$1" <<<"$2" || fail "no '$1' in: $(head -c 2000 <<<"$2")"; passed=$((passed + 1)); }
lacks() { ! grep -qe "$1" <<<"$2" || fail "'$1' in: $(grep -m 3 -e "$1" <<<"$2")"; passed=$((passed + 1)); }

text=$(would -- demo)
has "no GPU is here: the demo is built without CUDA in $folder/build/cpu" "$text"
has "$folder/build/cpu/minnow train" "$text"
lacks "arch=compute" "$text"
# The commands that follow in the README are those of build/minnow: a link, which a plain make replaces.
has "ln -s cpu/minnow $folder/build/minnow" "$text"
mkdir "$folder/built" "$folder/built/cpu"
cp -a "${BUILD:-build}"/{flags.*,found,libminnow*,minnow,kernels,engine,layers,data,train} "$folder/built"
relinks() { env -u CFLAGS -u LDLIBS make -n BUILD="$folder/built" "$folder/built/minnow"; }
[[ ${CFLAGS:-} == *-fsanitize* ]] || lacks "-o $folder/built/minnow" "$(relinks)"
mv "$folder/built/minnow" "$folder/built/cpu" && touch "$folder/built/cpu/minnow" && ln -s cpu/minnow "$folder/built/minnow"
has "rm -f $folder/built/minnow && .* -o $folder/built/minnow" "$(relinks)"
text=$(would CUDA_ARCH=90 -- demo)
has "arch=compute_90" "$text"
lacks "/build/cpu" "$text"
printf '#!/bin/sh\necho 9.0\n' >"$folder/nvidia-smi"
text=$(would -- demo)
has "arch=compute_90" "$text"
lacks "/build/cpu" "$text"
has "CUDA for 90 takes minutes to compile; make CUDA=0 leaves it out" "$text"
lacks "CUDA for" "$(would -- all CUDA=0)"

# jobs GOAL…: the number of jobs that make runs, from the flags that a recipe sees.
cat >"$folder/jobs.mk" <<'MK'
include Makefile
show show-too: ; @echo "flags: $(MAKEFLAGS)"
MK
jobs() { env -u MAKEFLAGS -u MAKELEVEL make -f "$folder/jobs.mk" CUDA=0 BUILD="$folder/build" "$@" 2>&1; }
[ "$(nproc)" = 1 ] || has "-j$(nproc)" "$(jobs show)"
lacks "-j" "$(jobs show show-too)"
has "-j1" "$(jobs -j1 show)"

# tests/run.sh: a line for each program as it ends, with its number, and all that a failed one wrote.
for name in quick:0 slow:1; do printf '#!/bin/sh\nsleep %s\necho "word of %s"\necho "1 passed, %s failed"\n' "${name#*:}" "${name%:*}" "${name#*:}" >"$folder/${name%:*}"; done
chmod +x "$folder/quick" "$folder/slow"
text=$(BUILD="$folder/build" TEST_JOBS=2 tests/run.sh "$folder/slow" "$folder/quick") && fail "tests/run.sh passes a test that fails"
has "^  1/2 quick  .* 1 passed" "$text"
has "^  2/2 slow  .* 1 failed" "$text"
has "^  slow: word of slow" "$text"
lacks "word of quick" "$text"
[ "$(tail -n 1 <<<"$text")" = "2 passed, 1 failed, 0 skipped" ] || fail "tests/run.sh ends with $(tail -n 1 <<<"$text")"
echo "$passed passed, 0 failed"
