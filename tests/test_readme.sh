#!/usr/bin/env bash
# What the README, the manual and the tour say is so: every line of a command, every snippet and every example in a table is run as it
# stands there, in order; what they name is there; README and tour are short. Snippets need a python3 with h5py, one of them PyTorch.
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

# at_most LINES COLUMNS FILE
at_most() {
  local lines columns
  lines=$(wc -l <"$3") columns=$(LC_ALL=C.UTF-8 wc -L <"$3")
  [ "$lines" -le "$1" ] || fail "$3 has $lines lines, not at most $1"
  [ "$columns" -le "$2" ] || fail "$3 has a line of $columns columns, not at most $2"
}
at_most 120 110 README.md
at_most 90 170 engine/TOUR.md

# The example in C learns, in C and in C++.
at_most 40 110 train/install/example.c
mkdir -p "$folder/include/minnow"
ln -s "$sources/train/minnow.h" "$folder/include/minnow"
for language in "${cc[*]} -std=c11 -x c" "g++ -std=c++17 -x c++"; do
  read -ra compile <<<"$language"
  "${compile[@]}" -Wall -Wextra -Werror "${cflags[@]}" -I"$folder/include" -I. train/install/example.c -x none -o "$folder/example" \
    "$build/libminnow.a" "${ldlibs[@]}"
  (cd "$folder" && ./example && rm model.h5) >"$folder/output"
  cat "$folder/output"
  # The variance of y is 0.13.
  awk '$1 == "loss" && $2 < 0.002 && ($4 - $6) ^ 2 < 0.04 { learnt = 1 } END { exit !learnt }' "$folder/output" || fail "the example does not learn"
done

# A python3 that has h5py, and one that has PyTorch too.
python=""
for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 ${TORCH_PYTHON:+"$TORCH_PYTHON"}; do
  if [ -z "$python" ] && "$candidate" -c 'import h5py' 2>/dev/null; then python=$candidate; fi
done
[ -n "$python" ] || echo "no python3 here has h5py (package python3-h5py): the snippets in Python, and what reads their files, are not run"
torch=$(tests/torch_python.sh h5py) || {
  echo "$torch"
  torch=""
}
export PYTHONPATH=$sources/layers:$sources/train/python${PYTHONPATH:+:$PYTHONPATH} MINNOW_LIBRARY=$build/libminnow.so

# Without ssh, and with Open MPI's leaks. What root and few cores need stands in the command.
export OMPI_MCA_plm_rsh_agent=false
unset "${!OMPI_ALLOW@}" OMPI_MCA_rmaps_base_oversubscribe
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# run COMMAND…: a line of a command, without its comment. What is not run returns without being counted.
ran=0
run() {
  case $1 in
    make* | "#"*) return 0 ;;        # make test runs this; make demo trains as the tests do
    *"--hidden 8192"*) return 0 ;;   # the reference shape takes minutes on a CPU
    "mpirun -H"* | srun*) return 0 ;; # hosts, and Slurm (tests/slurm.sh), of the user's
    mpirun*) # on CPUs: there may be fewer GPUs than ranks
      command -v mpirun >/dev/null || return 0
      local -x CUDA_VISIBLE_DEVICES=
      ;;
    *mine*.h5*) [ -n "$python" ] || return 0 ;;
    *weights.h5*) [ -n "$torch" ] || return 0 ;;
    *plot*) command -v gnuplot >/dev/null || return 0 ;;
  esac
  local code=0
  bash -euc "$1" >said 2>&1 </dev/null || code=$?
  [[ $code = 0 || ($1 == *" diff "* && $code = 1) ]] || fail "'$1' exits with $code: $(cat said)"
  ran=$((ran + 1))
}
# snippet TEXT: in Python, a program of its own. What the one of PyTorch loads has to compute what predict wrote.
snippet() {
  local with=$python text=$1
  [[ $text != *torch* ]] || with=$torch
  [ -n "$with" ] || return 0
  # shellcheck disable=SC2016 # Python has the quotes
  [[ $text != *torch* ]] || text+='
with h5py.File("digits/checkpoint.h5") as f: net.load_state_dict({name: torch.from_numpy(value[()]) for name, value in f["model"].items()})
outputs = h5py.File("outputs.h5")["y"][()]
x = torch.from_numpy(((h5py.File("data/digits.h5")["test/x"][()] - mean) / scale).astype("float32"))
assert (net(x) - torch.from_numpy(outputs)).abs().max() < 1e-4 * abs(outputs).max()
import importlib.util
if all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))):  # the line of the manual
    import onnxruntime, re
    exec(re.search(r"`(torch\.onnx\.export.*)`", open("'"$sources"'/train/command/COMMAND.md").read())[1])
    session = onnxruntime.InferenceSession("digits.onnx")
    y = session.run(None, {session.get_inputs()[0].name: x[:5].numpy()})[0]
    assert abs(y - outputs[:5]).max() < 1e-4 * abs(outputs).max()
    print("ONNX computes it too")
'
  "$with" -c "$text" || fail "the snippet fails: $text"
  ran=$((ran + 1))
}
# commands FILE COUNT: runs its lines of commands, its snippets and the examples in its table, in order, in a folder of its own.
commands() {
  local line text="" language=""
  ran=0
  rm -rf "$folder/user"
  mkdir -p "$folder/user/build"
  cd "$folder/user"
  ln -s "$minnow" build/minnow
  cp -r "$sources/data" .
  ln -s "$sources/tests" .
  awk 'BEGIN { print "size,colour,since,price"; for (n = 0; n < 90; n++) print n * n % 37 "," (n % 3 ? "red" : "blue") ",2024-01-" 10 + n % 9 "," n * n % 37 * 3.5 + n % 3 }' >rows.csv
  cut -d, -f1-3 rows.csv >new.csv
  while IFS= read -r line; do
    case $line in
      '```'?*) language=${line#???} text="" ;;
      '```')
        [ "$language" != python ] || snippet "$text"
        language=""
        ;;
      *)
        if [ -n "$language" ]; then
          text+=$line$'\n'
        elif [[ $line == "    "@(build|make|minnow|mpirun|srun)* ]]; then
          run "${line:4}"
        elif [[ $1 == README.md && $line == "| "*'` |' ]]; then
          line=${line%'` |'}
          run "build/minnow ${line##*'| `'}"
        fi
        ;;
    esac
  done <"$sources/$1"
  cd "$sources"
  [ "$ran" -eq "$2" ] || fail "$ran commands and snippets of $1 were run, not $2"
  all=$((all + ran))
}
all=0
has() { [ -n "$1" ] && echo "$2" || echo 0; }
plots=$(has "$(command -v gnuplot || true)" 1) starts=$(has "$(command -v mpirun || true)" 1)
commands README.md $((8 + plots + starts + $(has "$python" 3) + $(has "$torch" 2)))
PATH=build:$PATH commands train/command/COMMAND.md $((9 + plots))
commands engine/ranks/RANKS.md "$starts"
# The goals of make that the README names, and the files and functions that the tour names.
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
# A link leads to a file that is there.
while IFS= read -r page; do
  while IFS= read -r link; do
    [ -e "$(dirname "$page")/$link" ] || fail "$page links to $link, which is not there"
  done < <(grep -o '](\([^)#]*\)' "$page" | sed 's/^](//' | grep -v '^http')
done < <(git ls-files '*.md' 2>/dev/null || echo README.md)
echo "$all commands and snippets, $named names; 1 passed, 0 failed"
