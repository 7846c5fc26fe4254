#!/usr/bin/env bash
# layers/minnow_torch.py against PyTorch, by the python3 that tests/torch_python.sh finds: TORCH_PYTHON or PYTHON names one. With
# arguments test_torch.py alone runs, and gets them; PRELOAD is what Python loads first (make test-torch).
set -euo pipefail
if [[ ${CFLAGS:-} == *-fsanitize* ]]; then
  echo "skipped: python3 loads no library that a sanitizer watches"
  exit 0
fi
export MINNOW_LIBRARY=${MINNOW_LIBRARY:-$(realpath "${BUILD:-build}")/libminnow.so} OMP_WAIT_POLICY=passive
python=$(tests/torch_python.sh) || {
  echo "$python"
  exit 0
}
[ -z "${PRELOAD:-}" ] || export LD_PRELOAD=$PRELOAD ASAN_OPTIONS=detect_leaks=0 CUDA_VISIBLE_DEVICES=
[ $# = 0 ] || exec "$python" tests/test_torch.py "$@"
code=0
for program in test_torch torch_optimizers torch_loops torch_samples; do
  "$python" tests/$program.py || code=$?
done
exit $code
