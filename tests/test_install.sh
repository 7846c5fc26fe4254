#!/usr/bin/env bash
# make install under a PREFIX and under a DESTDIR, both with blanks in their names: pkg-config alone is enough to build the
# example, as C and as C++, with the shared and with the static library, in a folder whose headers have the names of minnow's;
# make uninstall leaves what was there before.
set -euo pipefail
build=${BUILD:-build}
read -ra cc <<<"${CC:-gcc}"
read -ra cflags <<<"${CFLAGS:-}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LC_ALL=C
# A copy of the build, because make writes into BUILD, and other tests run meanwhile.
mkdir "$folder/build"
cp -a "$build"/{flags.*,found,libminnow*,minnow,kernels,engine,layers,data,train} "$folder/build"
passed=0
define=()
pass() { passed=$((passed + 1)); }
fail() { echo "$*" >&2; exit 1; }
# The knobs of the build are in MAKEFLAGS; by hand, give them in the environment (CUDA=0 WERROR=1). make check's CFLAGS and LDLIBS
# for tests would be others than those of the build.
goal() { env -u CFLAGS -u LDLIBS make -s "$@" BUILD="$folder/build" >"$folder/said" 2>&1; }
must() { goal "$@" || { cat "$folder/said" >&2; fail "make $* fails"; }; }
# refused GOAL WORDS VARIABLE=VALUE…: make says WORDS, and fails.
refused() {
  ! goal "$1" "${@:3}" || fail "make $1 ${*:3} does not fail"
  grep -q "$2" "$folder/said" || fail "make $1 ${*:3} does not say '$2', but: $(cat "$folder/said")"
  pass
}
listing() { (cd "$1" && find . | sort); }

# flags OPTION…: what pkg-config says, as the array of words; eval takes the backslashes from its blanks.
flags() { eval "words=($(pkg-config "${define[@]}" "$@" minnow))"; }
# needs FILE: the shared libraries that it asks for.
needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

# A project that has headers of these names itself, which no program on minnow reads.
mkdir -p "$folder/user" "$folder/foreign"/{data,train,kernels}
for header in data/dataset.h train/model.h train/minnow.h kernels/status.h minnow.h; do
  echo "#error \"$header is another project's\"" >"$folder/foreign/$header"
done
cp -r "$folder/foreign"/* "$folder/user"

# builds WORD…: the example in the user's folder, as $folder/user/NAME.
builds() {
  local name=$1
  (cd "$folder/user" && "${@:2}" -Wall -Wextra -Werror "${cflags[@]}" -I"$folder/foreign" -I. -iquote . -o "$name" "${words[@]}")
}

# What a user does with the installation in $at.
check_programs() {
  local lib=$at/lib words=()
  cp "$at/share/doc/minnow/example.c" "$folder/user"
  flags --cflags --libs
  builds shared "${cc[@]}" -std=c11 example.c
  needs "$folder/user/shared" | grep -x "$soname" >/dev/null || fail "a program linked with -lminnow does not ask for $soname"
  builds cpp g++ -std=c++17 -x c++ example.c
  # As the README says: the static library by its file's name.
  flags --static --cflags --libs
  words=("${words[@]/#-lminnow/-l:libminnow.a}")
  builds static "${cc[@]}" -std=c11 example.c
  ! needs "$folder/user/static" | grep libminnow || fail "the program with the static library asks for the shared one"
  for kind in shared cpp static; do
    (cd "$folder/user" && LD_LIBRARY_PATH=$lib "./$kind") >"$folder/output" || fail "the $kind example fails"
    grep -q '^loss 0\.00' "$folder/output" || fail "the $kind example does not learn: $(cat "$folder/output")"
    pass
  done
  cat >"$folder/user/version.cpp" <<CPP
#include <minnow/minnow.h>
#include <cstring>
static_assert(MINNOW_VERSION_MAJOR * 10000 + MINNOW_VERSION_MINOR * 100 + MINNOW_VERSION_PATCH ==
              ${version%%.*} * 10000 + $(cut -d. -f2 <<<"$version") * 100 + ${version##*.}, "the numbers are the version");
int main() { return std::strcmp(MINNOW_VERSION, "$version") || mn_block_kind.parameters != 4; }
CPP
  flags --cflags --libs
  builds version g++ -std=c++17 version.cpp
  (cd "$folder/user" && LD_LIBRARY_PATH=$lib ./version) || fail "MINNOW_VERSION is not $version"
  pass
}

# Each header compiles alone: none that it needs was left out.
check_headers() {
  local words=() header headers
  flags --cflags
  mapfile -t headers < <(cd "$at/include/minnow" && find . -name '*.h' -printf '%P\n' | sort)
  for header in minnow.h train/evaluate.h train/model.h layers/layer.h engine/tape.h; do
    [ -f "$at/include/minnow/$header" ] || fail "$header is not installed"
  done
  for header in "${headers[@]}"; do
    echo "#include <minnow/$header>" | (cd "$folder" && "${cc[@]}" -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c "${words[@]}" -) ||
      fail "$header does not compile alone"
  done
  ! grep -rn '#include "' "$at/include" || fail "a header includes another by a name that may be another project's"
  [ ! -e "$at/include/minnow/train/minnow.h" ] || fail "minnow.h is installed twice"
  pass
  # What the headers declare is what the library exports; gcc lists the functions.
  echo '#include <minnow/minnow.h>' >"$folder/user/all.c"
  (cd "$folder/user" && gcc -std=c11 -D_GNU_SOURCE "${words[@]}" -aux-info all.txt -c all.c -o all.o)
  sed -n 's|^/\* .*/include/minnow/[^ ]*:N[CF] \*/ extern [^(]*[ *]\(mn_[a-z0-9_]*\) (.*|\1|p' "$folder/user/all.txt" | sort -u >"$folder/declared"
  nm -D --defined-only "$at/lib/libminnow.so" | sed -n 's/.* T \(mn_.*\)/\1/p' | sort -u >"$folder/exported"
  [ -s "$folder/declared" ] || fail "gcc lists no functions"
  diff "$folder/declared" "$folder/exported" >&2 || fail "declared (<) and exported (>) functions differ"
  pass
}

# A prefix that is in use: its file and its empty folder have to outlive minnow.
prefix="$folder/a prefix/usr"
mkdir -p "$prefix/lib" "$prefix/share/man"
echo other >"$prefix/lib/other.txt"
listing "$folder/a prefix" >"$folder/before"
must install PREFIX="$prefix"
! grep -q '\.o$' "$folder/said" || fail "make install compiles again what is built: were its knobs others?"
at=$prefix
export PKG_CONFIG_PATH="$at/lib/pkgconfig"
version=$("$prefix/bin/minnow" --version | sed -n 1p)
[ "minnow $(pkg-config --modversion minnow)" = "$version" ] || fail "minnow.pc is not of $version"
soname=$(readelf -d "$prefix/lib/libminnow.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
version=${version#minnow }
[ "$soname" = "libminnow.so.${version%%.*}" ] || fail "the soname is '$soname', not libminnow.so.${version%%.*}"
[ "$(readlink -f "$prefix/lib/$soname")" = "$prefix/lib/libminnow.so.$version" ] || fail "$soname is no link to libminnow.so.$version"
[ "$(readlink -f "$prefix/lib/libminnow.so")" = "$prefix/lib/libminnow.so.$version" ] || fail "libminnow.so is no link"
cmp train/install/minnow.1 "$prefix/share/man/man1/minnow.1"
cmp train/install/completion.bash "$prefix/share/bash-completion/completions/minnow"
cmp train/install/completion.zsh "$prefix/share/zsh/site-functions/_minnow"
pass
check_programs
check_headers

# Installed again, a file of the earlier installation that is no longer one goes.
listing "$prefix" >"$folder/first"
touch "$prefix/include/minnow/earlier.h"
echo include/minnow/earlier.h >>"$prefix/share/minnow/manifest"
must install PREFIX="$prefix"
listing "$prefix" | diff "$folder/first" - || fail "installed again it is not the same"
pass
# Another's file in a folder that install made keeps this folder.
touch "$prefix/share/zsh/_other"
must uninstall PREFIX="$prefix"
listing "$folder/a prefix" | grep -v '/zsh' | diff "$folder/before" - || fail "make uninstall does not leave what was there before"
[ "$(listing "$prefix/share/zsh" | paste -sd' ')" = ". ./_other" ] || fail "make uninstall does not leave another's file alone"
pass

# Staged: nothing is written into PREFIX itself.
stage="$folder/a stage"
must install DESTDIR="$stage" PREFIX="$folder/later"
[ ! -e "$folder/later" ] || fail "with DESTDIR something is written into PREFIX"
at=$stage$folder/later
export PKG_CONFIG_PATH="$at/lib/pkgconfig"
[ "$(pkg-config --variable=prefix minnow)" = "$folder/later" ] || fail "minnow.pc does not name PREFIX alone"
define=(--define-variable=prefix="$at")
check_programs
must uninstall DESTDIR="$stage" PREFIX="$folder/later"
[ ! -e "$stage" ] || fail "make uninstall leaves $(find "$stage")"
pass

# What an installation that failed has written is known too.
mkdir "$folder/half"
touch "$folder/half/include"
listing "$folder/half" >"$folder/before"
refused install include PREFIX="$folder/half"
[ -f "$folder/half/bin/minnow" ] || fail "the installation did not fail half-way"
must uninstall PREFIX="$folder/half"
listing "$folder/half" | diff "$folder/before" - || fail "make uninstall leaves what a failed installation wrote"
refused install "PREFIX 'usr'" PREFIX=usr
refused install "cannot write into $prefix/lib/other.txt" PREFIX="$prefix/lib/other.txt/usr"
refused uninstall "nothing of minnow's is installed there" PREFIX="$prefix"
echo "$passed passed, 0 failed"
