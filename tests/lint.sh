#!/usr/bin/env bash
# What a machine can say about the style: who includes whom, the format, the length of functions and files, the scripts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0
complain() { echo "lint: $*" >&2; bad=1; }

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' |
  while IFS= read -r f; do [ ! -f "$f" ] || echo "$f"; done)

# The top level holds these and dotfiles, and nothing else.
while IFS= read -r name; do
  case $name in
    .* | LICENSE | Makefile | README.md | data | engine | kernels | layers | tests | train) ;;
    *) complain "$name: it has no place at the top level" ;;
  esac
done < <(git ls-files | cut -d/ -f1 | sort -u)

# clang-format breaks code at 110 columns, but no comment.
wide=$(LC_ALL=C.UTF-8 grep -nE '^.{111,}' "${sources[@]}" | grep -v '^tests/' | cut -d: -f1,2)
[ -z "$wide" ] || complain "more than 110 columns: $(paste -sd' ' <<<"$wide")"

tests/test_core.sh lists >&2 || complain "tests/test_core.sh: there is more to read than before, or a file of the tour is gone"

# may_include FOLDER OTHER…: the sources of FOLDER may include those of FOLDER itself and of the others named, and no more. A folder
# that has sources and no row here is an error, as is a row whose folder has no sources.
declare -A allowed=()
may_include() { allowed[$1]=" $* "; }
may_include kernels kernels/hopper kernels/ranks kernels/stack
may_include kernels/hopper kernels kernels/ranks
may_include kernels/stack kernels
may_include kernels/ranks kernels
may_include engine kernels kernels/ranks
may_include engine/ranks kernels kernels/ranks engine
may_include layers kernels kernels/ranks engine engine/ranks
may_include data kernels kernels/ranks engine
may_include data/hdf5 kernels engine data
may_include data/csv kernels data
may_include train kernels kernels/ranks engine engine/ranks layers data data/csv
may_include train/checkpoint kernels engine engine/ranks layers data data/hdf5 train
may_include train/runs kernels engine engine/ranks data/hdf5 train train/checkpoint
may_include train/check kernels engine layers data data/hdf5 train
may_include train/command kernels kernels/ranks engine engine/ranks layers data data/csv data/hdf5 train train/checkpoint train/runs train/check
may_include train/install train
may_include tests kernels kernels/hopper kernels/ranks kernels/stack engine engine/ranks layers data data/csv data/hdf5 train train/checkpoint train/runs train/check train/command
may_include tests/faults kernels
may_include tests/peers kernels engine layers data train tests
may_include tests/ranks kernels engine engine/ranks data train
may_include tests/torn kernels engine data data/hdf5 train train/checkpoint train/runs train/check train/command tests
may_include tests/fuzz kernels engine data data/csv data/hdf5 train train/checkpoint train/runs train/check train/command tests tests/torn

# One line for each include of a file of ours, in quotes or angle brackets: FILE:LINE, its folder, the included file's folder, FILE,
# the included file.
includes=$(awk -v OFS='\t' '
  function folder(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "." }
  /^[ \t]*#[ \t]*include[ \t]*["<]/ {
    split($0, part, /["<>]/)
    if (/"/ || part[2] ~ /^(kernels|engine|layers|data|train|tests)\//)
      print FILENAME ":" FNR, folder(FILENAME), folder(part[2]), FILENAME, part[2]
  }' "${sources[@]}")
declare -A seen=()
for f in "${sources[@]}"; do
  folder=$(dirname "$f")
  seen[$folder]=$((${seen[$folder]:-0} + 1))
done
for folder in "${!seen[@]}"; do
  [ -n "${allowed[$folder]:-}" ] || complain "$folder/ has sources, but tests/lint.sh does not say what they may include"
done
for folder in "${!allowed[@]}"; do
  [ -n "${seen[$folder]:-}" ] || complain "$folder/ has no sources: take its row out of tests/lint.sh"
done
while IFS=$'\t' read -r where from to _ included; do
  [ -f "$included" ] || complain "$where: there is no $included; includes are named from the top folder"
  # The public header is below all folders: it includes none of our files (tests/test_install.sh compiles it alone), and declares
  # what programs call of each.
  [ "$included" != train/minnow.h ] || continue
  [[ ${allowed[$from]:-} == *" $to "* ]] || complain "$where: $from/ may not include $to/ ($included)"
done <<<"$includes"

# No file includes another that includes it, be it by way of others; tests/test_circles.sh asks the same of calls.
circles=$(cut -f 4,5 <<<"$includes" | tsort 2>&1 >/dev/null) || complain "includes go round in circles:"$'\n'"${circles//tsort: /  }"

for f in "${sources[@]}"; do
  lines=$(wc -l <"$f")
  [ "$lines" -le 600 ] || complain "$f has $lines lines; 600 are one thing, more are perhaps two"
  # A function's body starts with '{' ending a line of column 0 text and ends with '}' in column 0.
  awk -v f="$f" '/^[A-Za-z_].*\{$/ && !/^(template <.*> )?(struct|enum|union|typedef|extern|namespace|static const)/ { start = FNR; name = $0 }
    /^\}/ { if (start && FNR - start + 1 > 60) { print f ":" start ": " FNR - start + 1 " lines: " name; bad = 1 } start = 0 }
    END { exit bad }' "$f" || complain "functions over 60 lines"
done

# Another version would lay out some lines otherwise.
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
  format=$(clang-format --dry-run --Werror "${sources[@]}" 2>&1) ||
    complain "clang-format would change:"$'\n'"$(grep -E 'warning|error' <<<"$format" | cut -d: -f1 | sort | uniq -c)"
else
  echo "lint: no clang-format 14 here: the format is not checked"
fi

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' '*.bash' .ci/run)
if command -v shellcheck >/dev/null 2>&1; then
  shellcheck -x "${scripts[@]}" || complain "shellcheck"
else
  echo "lint: no shellcheck here (package shellcheck): the scripts are not checked"
fi
! command -v ruff >/dev/null 2>&1 || ruff check --quiet || complain "ruff (.ruff.toml)"
for folder in "${!seen[@]}"; do echo "$folder (${seen[$folder]})"; done | LC_ALL=C sort | paste -sd, | sed 's/,/, /g; s/^/lint: sources seen in /'
[ "$bad" = 0 ] && echo "lint: sources and scripts: $((${#sources[@]} + ${#scripts[@]})) passed, 0 failed"
exit "$bad"
