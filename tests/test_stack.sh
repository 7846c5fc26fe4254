#!/usr/bin/env bash
# The kernel of narrow stacks on a CPU: stack_warps.cc, for which warps.h stands for what the kernel needs of a GPU.
set -euo pipefail
cxx=${CXX:-g++}
command -v "$cxx" >/dev/null || { echo "skipped: no C++ compiler"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/kernels/stack"
cp tests/warps.h "$folder/kernels/stack/warp.cuh"
echo '#include "kernels/stack/warp.cuh"' >"$folder/kernels/planes.cuh"
"$cxx" -std=c++17 -O2 -Wall -Wextra -Wno-unknown-pragmas -Wno-sign-compare -I"$folder" -I. -o "$folder/stack" tests/stack_warps.cc
"$folder/stack" "${SEED:-1}"
echo "1 passed, 0 failed"
