#!/usr/bin/env bash
# What the README and the tour say is so: every line of a command and every snippet is run as it stands there, in order; what they name
# is there; both are short. Needs a python3 with h5py for the snippets in Python, and says when there is none.
set -euo pipefail
build=$(realpath "${BUILD:-build}")
minnow=$(realpath "${MINNOW:-$build/minnow}")
sources=$PWD
read -ra cc <<<"${CC:-gcc}"
read -ra cflags <<<"${CFLAGS:-}"
read -ra ldlibs <<<"${LDLIBS:?}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*" >&2; exit 1; }

# fewer LIMIT FILE
fewer() {
  local lines
  lines=$(wc -l <"$2")
  [ "$lines" -lt "$1" ] || fail "$2 has $lines lines; under $1 are promised"
}
fewer 200 README.md
fewer 91 engine/TOUR.md

# The C snippet is the heart of the example, which has to train, save and resume.
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$folder/heart.c"
[ -s "$folder/heart.c" ] || fail "no snippet in C"
while IFS= read -r line; do
  grep -qxF -- "$line" train/install/example.c || fail "train/install/example.c has no line '$line'"
done <"$folder/heart.c"
"${cc[@]}" -std=c11 -Wall -Wextra -Werror "${cflags[@]}" -I. -o "$folder/example" train/install/example.c \
  "$build/libminnow.a" "${ldlibs[@]}"
(cd "$folder" && ./example && rm run.h5) >"$folder/output"
cat "$folder/output"
awk '{ step[NR] = $2; loss[NR] = $4 }
  END { exit !(NR == 2 && step[1] == 100 && step[2] == 200 && loss[2] < 0.9 * loss[1]) }' "$folder/output" ||
  fail "the example does not learn, or does not resume"

# A python3 that has h5py.
python=""
for candidate in python3 /usr/bin/python3; do
  if [ -z "$python" ] && "$candidate" -c 'import h5py' 2>/dev/null; then python=$candidate; fi
done
[ -n "$python" ] || echo "no python3 here has h5py (package python3-h5py): the snippets in Python, and what reads their files, are not run"

# A python3 that has PyTorch 2.4 or newer; it loads no library that a sanitizer watches.
torch=""
for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
  if [[ -z "$torch" && ${CFLAGS:-} != *-fsanitize* ]] && "$candidate" -c 'from torch import library; library.custom_op' 2>/dev/null; then torch=$candidate; fi
done
[ -n "$torch" ] || echo "no python3 here has PyTorch 2.4 or newer, or a sanitizer is in the library: the snippet of it is not run"

# Of root's, more than there are cores, without ssh; and Open MPI's leaks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm_rsh_agent=false
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# run COMMAND…: a line of the README, without its comment.
ran=0
run() {
  case $1 in
    "make test"*) return 0 ;;        # which runs this
    "make demo"*) return 0 ;;        # the training run of the line after it, with a picture
    *"--hidden 8192"*) return 0 ;;   # the reference shape takes minutes on a CPU
    "mpirun -H"* | srun*) return 0 ;; # hosts, and Slurm (tests/slurm.sh), of the user's
    mpirun*) # on CPUs: there may be fewer GPUs than ranks
      command -v mpirun >/dev/null || return 0
      local -x CUDA_VISIBLE_DEVICES=
      ;;
    *mine.h5*) [ -n "$python" ] || return 0 ;;
    *other.h5*) cp run.h5 other.h5 ;; # the user's other checkpoint
    *plot*) command -v gnuplot >/dev/null || return 0 ;;
  esac
  bash -euc "$1" >said 2>&1 </dev/null || fail "'$1' exits with $?: $(cat said)"
  ran=$((ran + 1))
}

mkdir "$folder/user"
cd "$folder/user"
mkdir build
ln -s "$minnow" build/minnow
cp -r "$sources/data" .
ln -s "$sources/tests" .
snippet="" language=""
while IFS= read -r line; do
  case $line in
    '```'?*) language=${line#???} snippet="" ;;
    '```')
      if [[ $snippet == *minnow_torch* ]]; then
        if [ -n "$torch" ]; then
          MINNOW_LIBRARY=$build/libminnow.so PYTHONPATH=$sources/layers PYTHONDONTWRITEBYTECODE=1 "$torch" -c "$snippet" ||
            fail "the snippet fails: $snippet"
          ran=$((ran + 1))
        fi
      elif [ "$language" = python ] && [ -n "$python" ]; then
        "$python" -c "import h5py"$'\n'"$snippet" || fail "the snippet fails: $snippet"
        ran=$((ran + 1))
      fi
      language=""
      ;;
    *)
      if [ -n "$language" ]; then
        snippet+=$line$'\n'
      elif [[ $line == "    "[a-z]* ]]; then
        run "${line:4}"
      fi
      ;;
  esac
done <"$sources/README.md"
expected=8
[ -z "$python" ] || expected=$((expected + 6))
[ -z "$torch" ] || expected=$((expected + 1))
! command -v gnuplot >/dev/null || expected=$((expected + 1))
! command -v mpirun >/dev/null || expected=$((expected + 1))
[ "$ran" -eq "$expected" ] || fail "$ran commands and snippets of the README were run, not $expected"

# The goals of make that the README names, and the files and functions that the tour names.
cd "$sources"
tick='`'
while read -r _ goal; do
  [ -z "$goal" ] || grep -qE "^([a-z-]+ )*$goal( [a-z-]+)*:" Makefile tests/tests.mk train/install/install.mk || fail "the Makefile has no goal $goal"
done < <(grep -o "${tick}make [a-z-]*" README.md)
named=0
while IFS= read -r name; do
  file=${name%%: *} function=${name#*: }
  [ -e "$file" ] || fail "engine/TOUR.md names $file, which is not there"
  case $name in
    *": "*) grep -qE "\b${function%()}(<[A-Za-z]*>::run)?\(" "$file" || fail "engine/TOUR.md names $name, which is not there" ;;
  esac
  named=$((named + 1))
done < <(grep -o "${tick}[a-z]*/[^$tick]*$tick" engine/TOUR.md | tr -d "$tick")
[ "$named" -ge 30 ] || fail "only $named names were found in engine/TOUR.md"
echo "$ran commands and snippets, $named names; 1 passed, 0 failed"
