#!/usr/bin/env bash
# layers/minnow_torch.py against PyTorch, by the first python3 that has PyTorch 2.4 or newer: PYTHON, the PATH's, the system's.
set -euo pipefail
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: python3 loads no library that a sanitizer watches"
  exit 0
fi
export MINNOW_LIBRARY=${MINNOW_LIBRARY:-$(realpath "${BUILD:-build}")/libminnow.so} OMP_WAIT_POLICY=passive
for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
  if "$python" -c 'import torch; torch.library.custom_op' 2>/dev/null; then
    exec "$python" tests/test_torch.py
  fi
done
echo "skipped: no python3 here has PyTorch 2.4 or newer; PYTHON=… names one"
