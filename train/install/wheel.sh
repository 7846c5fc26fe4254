#!/usr/bin/env bash
# Makes a wheel of layers/minnow_torch.py and the shared library, without its debugging symbols, in BUILD.
#
#   make wheel     (BUILD, VERSION, SHARED and PYTHON come from the Makefile)
set -euo pipefail
cd "$(dirname "$0")/../.."
"$PYTHON" -c 'import setuptools, pip
from importlib.util import find_spec as find
assert find("wheel") or find("setuptools.command.bdist_wheel")' 2>/dev/null || {
  echo "$PYTHON has no pip, setuptools or wheel (packages python3-pip python3-setuptools python3-wheel)" >&2
  exit 69
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/minnow_torch"
cp layers/minnow_torch.py "$folder/minnow_torch/__init__.py"
strip --strip-unneeded -o "$folder/minnow_torch/libminnow.so" "$BUILD/$SHARED"
sed "s/\"VERSION\"/\"$VERSION\"/; s/\"PLATFORM\"/\"linux_$(uname -m)\"/" train/install/pyproject.toml >"$folder/pyproject.toml"
rm -f "$BUILD"/minnow_torch-*.whl
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$BUILD" "$folder"
ls "$BUILD"/minnow_torch-*.whl
