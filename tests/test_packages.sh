#!/usr/bin/env bash
# make packages installs the package of exactly that library which does not compile or link. apt-get is a stand-in that notes its
# arguments, and so is sudo.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/netlib"
printf '#!/bin/sh\necho "$@" >>"%s/asked"\n' "$folder" >"$folder/bin/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$folder/bin/sudo"
# Whether gnuplot is on this machine is not asked here.
printf '#!/bin/sh\n' >"$folder/bin/gnuplot"
chmod +x "$folder"/bin/*
# What Debian's libblas-dev has: the header of CBLAS without the calls of OpenBLAS.
echo 'void cblas_sgemm(void);' >"$folder/netlib/cblas.h"

# expect PACKAGE VARIABLE=VALUE…: with these, make packages asks apt-get for the package, or, where it is "", for nothing.
expect() {
  local wanted=$1 asked
  : >"$folder/asked"
  PATH="$folder/bin:$PATH" make -s packages CC="${CC:-gcc}" CUDA=0 "${@:2}" >/dev/null 2>&1 || true
  asked=$(sed -n 's/^install -y -q --no-install-recommends //p' "$folder/asked")
  [ "$asked" = "$wanted" ] || { echo "with '${*:2}' apt-get is asked for '$asked', not for '$wanted'" >&2; exit 1; }
}
expect ""
expect libopenblas-openmp-dev BLAS_LIBS=-lminnow-none
expect libopenblas-openmp-dev BLAS_CFLAGS="-I$folder/netlib"
expect libhdf5-dev HDF5_LIBS=-lminnow-none
expect libjansson-dev JSON_LIBS=-lminnow-none
expect libcmocka-dev CMOCKA_LIBS=-lminnow-none
echo "6 passed, 0 failed"
