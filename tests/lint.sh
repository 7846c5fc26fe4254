#!/usr/bin/env bash
# What a machine can say about the style: the order of the folders, the format, the length of functions and files, the scripts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0
complain() { echo "lint: $*" >&2; bad=1; }

# What each folder may not include: nobody looks up. tests/ may include everything.
forbid() {
  local folder=$1 above hits
  shift
  for above in "$@"; do
    hits=$(grep -rnE --include='*.[ch]*' "#include \"(\.\./)?$above/" "$folder") || continue
    complain "$folder/ may not include $above/:"$'\n'"$hits"
  done
}
forbid kernels engine layers data train tests
forbid engine layers data train tests
forbid layers data train tests
forbid data layers train tests
forbid train tests

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')
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

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
if command -v shellcheck >/dev/null 2>&1; then
  shellcheck "${scripts[@]}" || complain "shellcheck"
else
  echo "lint: no shellcheck here (package shellcheck): the scripts are not checked"
fi
[ "$bad" = 0 ] && echo "lint: ${#sources[@]} sources and ${#scripts[@]} scripts are in order"
exit "$bad"
