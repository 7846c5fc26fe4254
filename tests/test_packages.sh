#!/usr/bin/env bash
# make packages installs the package of exactly that library which does not compile or link. apt-get is a stand-in that notes its
# arguments, and so is sudo. Without either, the line to run as root is printed. A build that lacks a library names make packages.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/fake"
printf '#!/bin/sh\necho "$@" >>"%s/asked"\n' "$folder" >"$folder/bin/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$folder/bin/sudo"
# Whether gnuplot is on this machine is not asked here.
printf '#!/bin/sh\n' >"$folder/bin/gnuplot"
chmod +x "$folder"/bin/*

# expect PACKAGE VARIABLE=VALUE…: with these, make packages asks apt-get for the package, or, where it is "", for nothing.
expect() {
  local wanted=$1 asked
  : >"$folder/asked"
  PATH="$folder/bin:$PATH" make -s packages CC="${CC:-gcc}" CUDA=0 "${@:2}" >/dev/null 2>&1 || true
  asked=$(sed -n 's/^install -y -q --no-install-recommends //p' "$folder/asked")
  [ "$asked" = "$wanted" ] || { echo "with '${*:2}' apt-get is asked for '$asked', not for '$wanted'" >&2; exit 1; }
}
expect ""
# A build without libcsv, which reads HDF5 alone.
"${CC:-gcc}" -std=c11 -D_GNU_SOURCE -I. -Wall -Werror -c data/csv/reader.c -o "$folder/reader.o"
expect libhdf5-dev HDF5_LIBS=-lminnow-none
expect libjansson-dev JSON_LIBS=-lminnow-none
expect libxxhash-dev HASH_LIBS=-lminnow-none
expect libcmocka-dev CMOCKA_LIBS=-lminnow-none
# A clang without its OpenMP, as far as packages.sh can tell: with -fopenmp nothing links.
cat >"$folder/fake/clang" <<'SH'
#!/bin/sh
case " $* " in *" -fopenmp "*) exit 1 ;; *) exec gcc "$@" ;; esac
SH
chmod +x "$folder/fake/clang"
cp "$folder/fake/clang" "$folder/fake/clang-16"
expect libomp-dev CC="$folder/fake/clang"
expect libomp-16-dev CC="$folder/fake/clang-16"
expect "libomp-dev libjansson-dev" CC="$folder/fake/clang" JSON_LIBS=-lminnow-none

# What apt-get writes is shown if it fails, before the last line, and else not.
# shellcheck disable=SC2016 # the stand-in expands it
printf '#!/bin/sh\necho "apt speaks of $1"\necho "and complains" >&2\n[ ! -e "%s/broken" ] || [ "$1" = update ]\n' "$folder" >"$folder/bin/apt-get"
apt() { PATH="$folder/bin:$PATH" make -s packages CC="${CC:-gcc}" CUDA=0 JSON_LIBS=-lminnow-none >"$folder/said" 2>&1; }
shown() { grep -v '^make' "$folder/said" | sed 's/ as root, run.*//; s/by sudo/by/' | paste -sd'|'; }
apt || { echo "packages fails: $(cat "$folder/said")" >&2; exit 1; }
[ "$(shown)" = "installing by apt-get: libjansson-dev" ] || { echo "packages says: $(shown)" >&2; exit 1; }
touch "$folder/broken"
! apt || { echo "packages does not fail" >&2; exit 1; }
wanted="installing by apt-get: libjansson-dev|apt speaks of update|and complains|apt speaks of install|and complains|the packages were not installed;"
[ "$(shown)" = "$wanted" ] || { echo "packages says: $(shown)" >&2; exit 1; }

# says WORDS COMMAND…: the command fails, and its last line has these words.
says() {
  ! PATH="$folder/bin:$PATH" "${@:2}" >"$folder/said" 2>&1 || { echo "'${*:2}' does not fail" >&2; exit 1; }
  grep -v '^make' "$folder/said" | tail -n 1 | grep -qF "$1" || { echo "'${*:2}' does not say '$1', but:" >&2; cat "$folder/said" >&2; exit 1; }
}
lacking=(make -s CC="${CC:-gcc}" CUDA=0 BUILD="$folder/build" JSON_LIBS=-lminnow-none HDF5_LIBS=-lminnow-none)
by_hand="as root, run: apt-get update && apt-get install -y --no-install-recommends libhdf5-dev libjansson-dev"
says "are missing: libhdf5-dev libjansson-dev; make packages installs them" "${lacking[@]}" all
[ "$(find "$folder/build" -name '*.o')" = "" ] || { echo "a build without its libraries compiles" >&2; exit 1; }
# A user who is not root: sudo is asked, and what is to be installed is said before; without a terminal only if sudo needs no
# password.
printf '#!/bin/sh\necho 1000\n' >"$folder/bin/id"
cat >"$folder/bin/sudo" <<'SH'
#!/bin/sh
[ "$*" = "-n true" ]
SH
chmod +x "$folder/bin/id"
says "were not installed; $by_hand" setsid -w "${lacking[@]}" packages
grep -qx "installing by sudo apt-get: libhdf5-dev libjansson-dev" "$folder/said"
cat >"$folder/bin/sudo" <<SH
#!/bin/sh
echo "asked: \$*" >>"$folder/asked"
exit 1
SH
: >"$folder/asked"
says "needs root; $by_hand" setsid -w "${lacking[@]}" packages
[ "$(cat "$folder/asked")" = "asked: -n true" ] || { echo "without a terminal sudo is run: $(cat "$folder/asked")" >&2; exit 1; }
if command -v script >/dev/null; then
  PATH="$folder/bin:$PATH" script -qec "${lacking[*]} packages" /dev/null >"$folder/said" 2>&1 </dev/null || true
  grep -q "^asked: apt-get update" "$folder/asked" || { echo "on a terminal sudo is not run" >&2; cat "$folder/said" >&2; exit 1; }
fi
rm "$folder/bin/sudo"
passed=18
if ! command -v sudo >/dev/null 2>&1; then
  says "needs root; $by_hand" "${lacking[@]}" packages
  passed=19
fi
echo "$passed passed, 0 failed"
