#!/usr/bin/env bash
# The CPU path for ARM64, compiled here and run by qemu: tests of the kernels and of training, and a checkpoint that equals this machine's.
set -euo pipefail
cd "$(dirname "$0")/.."
# libhdf5-dev of two architectures cannot be installed at once, but their headers are the same.
libraries=/usr/lib/aarch64-linux-gnu
hdf5=$(compgen -G "$libraries/libhdf5_serial.so.*" | head -1 || true)
lacks=
for file in "${hdf5:-no HDF5}" "$libraries"/lib{jansson,z,xxhash,cmocka}.so "$libraries/libgomp.so.1" "$(command -v aarch64-linux-gnu-gcc)" "$(command -v qemu-aarch64)"; do
  [ -e "$file" ] || lacks=1
done
grep -qw fma /proc/cpuinfo || { echo "skipped: this processor has no fused multiply-adds, as ARM64 has them"; exit 0; }
if [ -n "$lacks" ]; then
  echo "skipped: for ARM64 there are no gcc-aarch64-linux-gnu, qemu-user and, after dpkg --add-architecture arm64, libgomp1:arm64 libhdf5-103-1:arm64" \
    "libjansson-dev:arm64 libxxhash-dev:arm64 libcmocka-dev:arm64"
  exit 0
fi
here=${BUILD:-build}/cpu arm=${BUILD:-build}/arm64
tests="test_product test_product_wide test_block test_kernels test_gemm test_gradients test_cases test_fused test_parity test_accuracy test_optimizer test_model test_training"
make CUDA=0 BUILD="$here" "$here/minnow"
# shellcheck disable=SC2046,SC2086 # words
make CUDA=0 CC=aarch64-linux-gnu-gcc HDF5_LIBS="$hdf5" BUILD="$arm" "$arm/minnow" $(printf "$arm/tests/%s " $tests)
passed=0 failed=0
for test in $tests; do # each is one test here
  if qemu-aarch64 "$arm/tests/$test" >"$arm/$test.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    sed "s/^/$test: /" "$arm/$test.log" >&2
  fi
done
train=(train --data data/digits.h5 --device cpu --hidden 128 --groups 8 --epochs 5 --quiet --run)
rm -rf "$arm/runs" && mkdir "$arm/runs"
"$here/minnow" "${train[@]}" "$arm/runs/x86-64"
qemu-aarch64 "$arm/minnow" "${train[@]}" "$arm/runs/arm64"
if "$here/minnow" diff "$arm/runs/x86-64" "$arm/runs/arm64"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
