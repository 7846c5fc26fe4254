#!/usr/bin/env bash
# layers/minnow_torch.py against PyTorch, by PYTHON where it is named, else by the PATH's python3 or the system's, whichever
# has PyTorch 2.4 or newer. With arguments test_torch.py alone runs, and gets them; PRELOAD is what Python loads first
# (make test-torch).
set -euo pipefail
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: python3 loads no library that a sanitizer watches"
  exit 0
fi
export MINNOW_LIBRARY=${MINNOW_LIBRARY:-$(realpath "${BUILD:-build}")/libminnow.so} OMP_WAIT_POLICY=passive
run() {
  [ -z "${PRELOAD:-}" ] || export LD_PRELOAD=$PRELOAD ASAN_OPTIONS=detect_leaks=0 CUDA_VISIBLE_DEVICES=
  "$1" tests/test_torch.py "${@:2}"
  (($# > 1)) || "$1" tests/torch_optimizers.py
  exit
}
[ -z "${PYTHON:-}" ] || run "$PYTHON" "$@"
for python in python3 /usr/bin/python3; do
  if "$python" -c 'from torch import library; library.custom_op' 2>/dev/null; then
    run "$python" "$@"
  fi
done
echo "skipped: no python3 here has PyTorch 2.4 or newer; PYTHON=… names one"
