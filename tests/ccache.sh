# shellcheck shell=bash
# Sourced by what builds from nothing again and again: each source is compiled once, whichever folder it is in. gcc and clang are the
# compilers' names in ccache's folder, nvcc is called by way of it. CCACHE_BASEDIR: a folder elsewhere that is built in.
if command -v ccache >/dev/null; then
  export PATH=/usr/lib/ccache:$PATH CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_MAXSIZE=2G
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  [ -z "$nvcc" ] || export NVCC="ccache $nvcc" CUDA_HOME=${nvcc%/bin/nvcc}
fi
