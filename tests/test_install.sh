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
  # All of it static, where HDF5 is there so; glibc's and CUDA's dlopen are warned of.
  read -ra hdf5 < <(pkg-config --libs hdf5-serial || echo -lhdf5)
  if "${cc[@]}" -static -x c - "${hdf5[@]}" -o /dev/null <<<"int main(void) { return 0; }" 2>"$folder/said"; then
    builds full "${cc[@]}" -std=c11 -static example.c
    [ -z "$(needs "$folder/user/full")" ] || fail "the static program needs $(needs "$folder/user/full")"
  else
    cp "$folder/user/static" "$folder/user/full"
  fi
  for kind in shared cpp static full; do
    (cd "$folder/user" && LD_LIBRARY_PATH=$lib "./$kind") >"$folder/output" || fail "the $kind example fails"
    grep -q '^loss 0\.00' "$folder/output" || fail "the $kind example does not learn: $(cat "$folder/output")"
    pass
  done
  # A loop of one's own learns what nine of ten targets stay below, and is told of rows that are not finite.
  cp "$at/share/doc/minnow/online.c" "$folder/user"
  flags --cflags --libs
  (cd "$folder/user" && "${cc[@]}" -std=c11 -Wall -Wextra -Werror "${cflags[@]}" online.c -o online "${words[@]}" -lm)
  (cd "$folder/user" && LD_LIBRARY_PATH=$lib ./online) >"$folder/output" || fail "the online example fails"
  grep -qE '^0\.(8[89]|9[01]).* stay below; 30 batches left out' "$folder/output" || fail "the online example says $(cat "$folder/output")"
  pass
  cat >"$folder/user/version.cpp" <<CPP
#include <minnow/minnow.h>
#include <cstring>
static_assert(MINNOW_VERSION_MAJOR * 10000 + MINNOW_VERSION_MINOR * 100 + MINNOW_VERSION_PATCH ==
              ${version%%.*} * 10000 + $(cut -d. -f2 <<<"$version") * 100 + ${version##*.}, "the numbers are the version");
int main() { return std::strcmp(MINNOW_VERSION, "$version") || std::strcmp(mn_version(), "$version"); }
CPP
  flags --cflags --libs
  builds version g++ -std=c++17 version.cpp
  (cd "$folder/user" && LD_LIBRARY_PATH=$lib ./version) || fail "MINNOW_VERSION is not $version"
  pass
}

# The one header compiles as every C and C++ that its users have, without a warning.
check_headers() {
  local words=() standard compiler
  flags --cflags
  [ "$(cd "$at/include/minnow" && find . -type f)" = ./minnow.h ] || fail "other headers than minnow.h are installed"
  [ "$(wc -l <"$at/include/minnow/minnow.h")" -le 500 ] || fail "minnow.h has more than 500 lines"
  echo '#include <minnow/minnow.h>' >"$folder/user/all.c"
  for compiler in gcc clang musl-gcc; do
    command -v "$compiler" >/dev/null || continue
    for standard in c11 c17 c2x; do
      "$compiler" -std=$standard -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only "${words[@]}" "$folder/user/all.c" ||
        fail "$compiler -std=$standard does not take minnow.h"
    done
  done
  for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    for standard in c++11 c++14 c++17 c++20; do
      "$compiler" -std=$standard -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only -x c++ "${words[@]}" "$folder/user/all.c" ||
        fail "$compiler -std=$standard does not take minnow.h"
    done
  done
  pass
  # A status that nobody looks at is told.
  echo '#include <minnow/minnow.h>
int main(void) { mn_model_load(NULL, NULL, NULL); return 0; }' >"$folder/user/unchecked.c"
  ! "${cc[@]}" -std=c11 -Werror -c -o /dev/null "${words[@]}" "$folder/user/unchecked.c" 2>"$folder/said" || fail "a status may be dropped"
  grep -q unused "$folder/said" || fail "minnow.h: $(cat "$folder/said")"
  pass
}

# What CMake users do; shared and static.
check_cmake() {
  command -v cmake >/dev/null || return 0
  mkdir -p "$folder/cmake"
  cp "$at/share/doc/minnow/example.c" "$folder/cmake"
  echo 'cmake_minimum_required(VERSION 3.10)
project(user C)
find_package(minnow 0.1 REQUIRED)
add_executable(shared example.c)
target_link_libraries(shared minnow::minnow)
add_executable(static example.c)
target_link_libraries(static minnow::static)' >"$folder/cmake/CMakeLists.txt"
  (cd "$folder/cmake" && cmake -DCMAKE_PREFIX_PATH="$at" . && make) >"$folder/said" 2>&1 || fail "cmake: $(tail -5 "$folder/said")"
  for kind in shared static; do (cd "$folder/cmake" && "./$kind") >"$folder/output" || fail "the example by cmake, $kind, fails"; done
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
abi=$(sed -n "s/.*define MINNOW_ABI \([0-9]*\).*/\1/p" train/minnow.h)
[ "$soname" = "libminnow.so.$abi" ] || fail "the soname is '$soname', not libminnow.so.$abi"
[ "$(readlink -f "$prefix/lib/$soname")" = "$prefix/lib/libminnow.so.$version" ] || fail "$soname is no link to libminnow.so.$version"
[ "$(readlink -f "$prefix/lib/libminnow.so")" = "$prefix/lib/libminnow.so.$version" ] || fail "libminnow.so is no link"
cmp train/install/minnow.1 "$prefix/share/man/man1/minnow.1"
cmp train/install/completion.bash "$prefix/share/bash-completion/completions/minnow"
cmp train/install/completion.zsh "$prefix/share/zsh/site-functions/_minnow"
pass
check_programs
check_headers
check_cmake

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
