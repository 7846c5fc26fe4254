#!/usr/bin/env bash
# Installs what the Makefile has built under DESTDIR and PREFIX, and notes every file it writes and every folder it makes in
# share/minnow/manifest there, for uninstall.sh. An installation that is there already is removed first.
#
#   make install     (PREFIX, DESTDIR, BUILD, CC, VERSION, SHARED, SONAME and LIBS come from the Makefile)
set -euo pipefail
cd "$(dirname "$0")/../.."
if [[ ${PREFIX:-} != /* || $PREFIX == *[\"\'\\\$]* ]]; then
  echo "PREFIX '${PREFIX:-}': a path is needed that starts with / and has no quotes, dollars or backslashes, such as /usr/local" >&2
  exit 64
fi
root=${DESTDIR:-}${PREFIX%/}
manifest=$root/share/minnow/manifest
above=$root
while [ ! -e "${above:=/}" ]; do above=$(dirname "$above"); done
if [ ! -d "$above" ] || [ ! -w "$above" ]; then
  echo "cannot write into $above: run make install as root, or with PREFIX= a folder of yours" >&2
  exit 73
fi
[ ! -f "$manifest" ] || train/install/uninstall.sh
folder=$(mktemp -d)

trap 'rm -rf "$folder"' EXIT

# make_folder NAME UP: the folder and those above it that are not there yet. In the manifest "bin/" is below PREFIX, "./" is PREFIX
# itself, and "../" the folder above it; UP is how NAME is noted if it is above PREFIX.
make_folder() {
  local note=$2 up=../$2
  [ ! -d "$1" ] || return 0
  case $1 in
    "$root") note=./ up=../ ;;
    "$root"/*) note=${1#"$root"/}/ up="" ;;
  esac
  make_folder "$(dirname "$1")" "$up"
  mkdir -m 755 "$1"
  echo "$note" >>"$folder/manifest"
}

# The first file, so that what was written is noted even where a later step fails.
make_folder "$(dirname "$manifest")" ""
echo share/minnow/manifest >>"$folder/manifest"
keep_manifest() {
  install -m 644 "$folder/manifest" "$manifest"
  rm -rf "$folder"
}
trap keep_manifest EXIT

# put MODE FILE NAME: a copy of FILE as NAME, which is below PREFIX.
put() {
  make_folder "$(dirname "$root/$3")" ""
  echo "$3" >>"$folder/manifest"
  install -m "$1" "$2" "$root/$3"
}

# put_link TARGET NAME
put_link() {
  echo "$2" >>"$folder/manifest"
  ln -sf "$1" "$root/$2"
}

# What a static HDF5 needs in its turn, where it is installed.
read -ra cc <<<"$CC"
for name in sz aec z; do
  ! "${cc[@]}" -x c - "-l$name" -o /dev/null <<<"int main(void) { return 0; }" 2>"$folder/said" || LIBS+=" -l$name"
done

# Blanks in PREFIX are quoted here, and pkg-config writes them with a backslash.
cat >"$folder/minnow.pc" <<PC
prefix=$PREFIX
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: minnow
Description: Minimal neural-net engine that trains
Version: $VERSION
Cflags: "-I\${includedir}"
Libs: "-L\${libdir}" -lminnow
Libs.private: $LIBS
PC

# find_package(minnow), wherever the folder was moved to; minnow::static has all that the static library needs.
cat >"$folder/minnow-config.cmake" <<CMAKE
get_filename_component(minnow_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET minnow::minnow)
  add_library(minnow::minnow SHARED IMPORTED)
  set_target_properties(minnow::minnow PROPERTIES IMPORTED_LOCATION "\${minnow_prefix}/lib/$SHARED"
    IMPORTED_SONAME "$SONAME" INTERFACE_INCLUDE_DIRECTORIES "\${minnow_prefix}/include")
  add_library(minnow::static STATIC IMPORTED)
  set_target_properties(minnow::static PROPERTIES IMPORTED_LOCATION "\${minnow_prefix}/lib/libminnow.a"
    INTERFACE_INCLUDE_DIRECTORIES "\${minnow_prefix}/include" INTERFACE_LINK_LIBRARIES "$LIBS")
endif()
CMAKE
cat >"$folder/minnow-config-version.cmake" <<CMAKE
set(PACKAGE_VERSION "$VERSION")
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
CMAKE

put 755 "$BUILD/minnow" bin/minnow
put 644 "$BUILD/libminnow.a" lib/libminnow.a
put 644 "$BUILD/$SHARED" "lib/$SHARED"
put_link "$SHARED" "lib/$SONAME"
put_link "$SONAME" lib/libminnow.so
put 644 "$folder/minnow.pc" lib/pkgconfig/minnow.pc
put 644 "$folder/minnow-config.cmake" lib/cmake/minnow/minnow-config.cmake
put 644 "$folder/minnow-config-version.cmake" lib/cmake/minnow/minnow-config-version.cmake
put 644 train/minnow.h include/minnow/minnow.h
put 644 train/install/minnow.1 share/man/man1/minnow.1
put 644 .github/CHANGELOG.md share/doc/minnow/CHANGELOG.md
put 644 train/install/example.c share/doc/minnow/example.c
put 644 train/install/online.c share/doc/minnow/online.c
put 644 train/command/COMMAND.md share/doc/minnow/COMMAND.md
put 644 train/FILES.md share/doc/minnow/FILES.md
put 644 engine/ranks/RANKS.md share/doc/minnow/RANKS.md
put 644 kernels/PRECISION.md share/doc/minnow/PRECISION.md
put 644 train/install/completion.bash share/bash-completion/completions/minnow
put 644 train/install/completion.zsh share/zsh/site-functions/_minnow
[ -n "${DESTDIR:-}" ] || echo "installed under $root; programs find $SONAME there after ldconfig, or with LD_LIBRARY_PATH=$root/lib"
