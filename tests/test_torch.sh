#!/usr/bin/env bash
# layers/minnow_torch.py against PyTorch, by PYTHON where it is named, else by the PATH's python3 or the system's, whichever
# has PyTorch 2.4 or newer.
set -euo pipefail
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: python3 loads no library that a sanitizer watches"
  exit 0
fi
export MINNOW_LIBRARY=${MINNOW_LIBRARY:-$(realpath "${BUILD:-build}")/libminnow.so} OMP_WAIT_POLICY=passive
[ -z "${PYTHON:-}" ] || exec "$PYTHON" tests/test_torch.py
for python in python3 /usr/bin/python3; do
  if "$python" -c 'from torch import library; library.custom_op' 2>/dev/null; then
    exec "$python" tests/test_torch.py
  fi
done
echo "skipped: no python3 here has PyTorch 2.4 or newer; PYTHON=… names one"
