#!/usr/bin/env bash
# Names the Debian or Ubuntu packages that building, testing and the demo lack here, and installs them through apt, as root or by
# sudo, which may ask on a terminal. What apt says is shown only if it fails. A program counts as there if it can be found; a library, if a line that calls it compiles and
# links with the Makefile's own flags.
#
#   train/install/packages.sh [PROGRAM…] -- COMPILER FLAG…     (make packages)
#   train/install/packages.sh --build -- COMPILER FLAG…        (make: names what compiling lacks, and installs nothing)
#
# PROGRAM: one more that is wanted, in a package of its name, but for mpirun and pkill. HDF5_LIBS, JSON_LIBS, HASH_LIBS,
# CMOCKA_LIBS: what each links with.
set -euo pipefail

only_build=0
if [ "${1:-}" = --build ]; then
  only_build=1
  shift
fi
missing=()
need_program() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
  mpirun) need_program mpirun openmpi-bin ;;
  pkill) need_program pkill procps ;;
  *) need_program "$1" "$1" ;;
  esac
  shift
done
if [ $# -lt 2 ]; then
  echo "no compiler is named: run make packages" >&2
  exit 64
fi
compile=("${@:2}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# need_library PACKAGE LIBS CALL HEADER…: a program of this one call, with these headers, compiles and links.
need_library() {
  local package=$1 call=$3 libs
  read -ra libs <<<"$2"
  {
    printf '#include <%s>\n' "${@:4}"
    printf 'int main(void) {\n  %s;\n  return 0;\n}\n' "$call"
  } >"$folder/line.c"
  "${compile[@]}" -Werror=implicit-function-declaration -o "$folder/line" "$folder/line.c" "${libs[@]}" -lm \
    >"$folder/said" 2>&1 || missing+=("$package")
}

need_program "${compile[0]}" "${compile[0]}"
# OpenMP and the sanitizers come with gcc; clang has packages for them, which for clang-16 are libomp-16-dev and libclang-rt-16-dev.
# If one is missing, nothing links with its flag, so all else is tried without it.
drop_flag() { mapfile -t compile < <(printf '%s\n' "${compile[@]}" | grep -vxE -- "$1"); }
clang=$(printf '%s\n' "${compile[@]}" | grep -m 1 -xE '(.*/)?clang(-[0-9]+)?') || true
if [ -n "$clang" ]; then
  version=$(grep -o -- '-[0-9]*$' <<<"$clang" || true)
  if printf '%s\n' "${compile[@]}" | grep -q -- '^-fsanitize='; then
    all=("${compile[@]}")
    before=${#missing[@]}
    drop_flag -fopenmp
    need_library "libclang-rt$version-dev" "" 'puts("")' stdio.h
    compile=("${all[@]}")
    [ ${#missing[@]} = "$before" ] || drop_flag '-fsanitize=.*'
  fi
  before=${#missing[@]}
  need_library "libomp$version-dev" "" '(void)omp_get_max_threads()' omp.h
  [ ${#missing[@]} = "$before" ] || drop_flag -fopenmp
fi
need_library libc6-dev "" 'puts("")' stdio.h
need_library libhdf5-dev "$HDF5_LIBS" 'H5open()' hdf5.h
need_library libjansson-dev "$JSON_LIBS" 'json_decref(json_object())' jansson.h
need_library libxxhash-dev "$HASH_LIBS" '(void)XXH3_128bits("", 0)' xxhash.h
need_library librandom123-dev "" '(void)philox4x32_rounds' Random123/philox.h
if [ "$only_build" = 1 ]; then
  [ ${#missing[@]} -gt 0 ] || exit 0
  echo "packages that minnow is built with are missing: ${missing[*]}; make packages installs them" >&2
  exit 69
fi
need_program pkg-config pkg-config
need_library libcsv-dev -lcsv '(void)csv_init(0, 0)' csv.h
need_program gnuplot gnuplot-nox
need_library libcmocka-dev "$CMOCKA_LIBS" 'cmocka_set_message_output(CM_OUTPUT_STDOUT)' \
  stdarg.h stddef.h stdint.h setjmp.h cmocka.h
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "these packages are missing, and there is no apt-get here: ${missing[*]}; install what your system calls them, then run make again" >&2
  exit 69
fi
by_hand="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo)
  # sudo asks for a password on the terminal, if there is one.
  if ! command -v sudo >/dev/null 2>&1 || ! { : </dev/tty || sudo -n true; } 2>/dev/null; then
    echo "packages are missing, and apt-get needs root; as root, run: $by_hand" >&2
    exit 69
  fi
fi
echo "installing by ${as_root:+sudo }apt-get: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$folder/apt" 2>&1; then
  cat "$folder/apt" >&2
  echo "the packages were not installed; as root, run: $by_hand" >&2
  exit 69
fi
