#!/usr/bin/env bash
# What make dist packs: the top level and every file that git tracks, from which make builds and packs the same again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*" >&2; exit 1; }
run_make() { env -u MAKEFLAGS -u MAKELEVEL -u BUILD make --no-print-directory CUDA=0 "$@"; }

run_make dist BUILD="$folder/out" >"$folder/said"
packed=$(cat "$folder/said")
tar -xzf "$packed" -C "$folder"
version=$(sed -n 's/^#define MINNOW_VERSION "\(.*\)"/\1/p' train/minnow.h)
cd "$folder/minnow-$version" || fail "no folder of that name in $packed"
[ "$(find . -maxdepth 1 ! -name '.*' -printf '%f\n' | LC_ALL=C sort | paste -sd' ')" = \
  "LICENSE Makefile README.md data engine kernels layers tests train" ] || fail "another top level: $(ls)"
if [ -e "$OLDPWD/.git" ] && git -C "$OLDPWD" ls-files >/dev/null 2>&1; then
  diff <(git -C "$OLDPWD" ls-files | LC_ALL=C sort) <(find . -type f -printf '%P\n' | LC_ALL=C sort) || fail "other files than git tracks"
fi
grep -q "^## $version" .github/CHANGELOG.md || fail "the changelog has nothing of $version"
run_make -n all >/dev/null
run_make build/kernels/clock.o >"$folder/built" 2>&1 || fail "does not build: $(cat "$folder/built")"
[ -f build/kernels/clock.o ] || fail "no object was built"
run_make dist >/dev/null
cmp "$packed" "build/minnow-$version.tar.gz" || fail "packed again, it is another"
echo "1 passed, 0 failed"
