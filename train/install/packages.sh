#!/usr/bin/env bash
# Names the Debian or Ubuntu packages that building, testing and the demo lack here, and installs them through apt, as root or by
# sudo. Does nothing when all is there. What counts is whether a header or a program can be found, not who put it there.
# Arguments: further programs that are wanted, each in a package of its name.
set -euo pipefail

missing=()
need_program() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need_header() {
  # shellcheck disable=SC2046 # several flags are meant to become several words
  echo "#include <$1>" | gcc -E $(pkg-config --cflags hdf5-serial openblas 2>/dev/null || true) \
    -I/usr/include/hdf5/serial - >/dev/null 2>&1 || missing+=("$2")
}

for program in "$@"; do need_program "$program" "$program"; done
need_program gcc gcc
need_program pkg-config pkg-config
need_program gnuplot gnuplot-nox
need_header stdio.h libc6-dev
need_header hdf5.h libhdf5-dev
need_header cblas.h libopenblas-openmp-dev
need_header jansson.h libjansson-dev
need_header Random123/philox.h librandom123-dev
need_header cmocka.h libcmocka-dev
[ ${#missing[@]} -gt 0 ] || exit 0

echo "missing packages: ${missing[*]}" >&2
if ! command -v apt-get >/dev/null 2>&1; then
  echo "there is no apt-get here: install what your system calls these, then run make again" >&2
  exit 69
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
