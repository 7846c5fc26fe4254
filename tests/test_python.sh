#!/usr/bin/env bash
# train/python by a python3 that has numpy: that of TORCH_PYTHON or PYTHON, else the PATH's. What asks for scikit-learn, pandas or h5py is
# skipped where they are not installed.
set -euo pipefail
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: python3 loads no library that a sanitizer watches"
  exit 0
fi
export MINNOW_LIBRARY=${MINNOW_LIBRARY:-$(realpath "${BUILD:-build}")/libminnow.so} MINNOW=${MINNOW:-$(realpath "${BUILD:-build}")/minnow}
for python in ${TORCH_PYTHON:+"$TORCH_PYTHON"} ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
  ! "$python" -c "import numpy" 2>/dev/null || exec "$python" tests/test_python.py "$@"
done
# shellcheck disable=SC2016 # the user's shell expands it
echo 'skipped: no python3 here has numpy; make test TORCH_PYTHON="$(tests/torch_python.sh --get)" gets one'
