#!/usr/bin/env bash
# The README's two commands in bare systems, side by side: debootstrap makes each in a folder of its own with no package that it
# can be without, and what minnow needs there, make has to install. For the CPU alone, and without git.
#
#   tests/distributions.sh SUITE…     (as root; MIRROR: of the packages; else Ubuntu's for noble and jammy, and for others apt's)
#
# Where a system cannot be made, one line says why, and that is no failure. Nothing stays mounted or running: each system has
# namespaces of its own, which end with it.
set -euo pipefail
cd "$(dirname "$0")/.."
namespaces=(unshare --mount --pid --fork --kill-child)

skip() {
  echo "skipped: not run in bare $1: $2"
  exit 0
}
[ "$(id -u)" = 0 ] || skip "$*" "that needs root"
"${namespaces[@]}" true 2>/dev/null || skip "$*" "namespaces and mounts are not permitted here"
command -v debootstrap >/dev/null 2>&1 ||
  { apt-get update -q && apt-get install -y -q --no-install-recommends debootstrap; } >/dev/null 2>&1 ||
  skip "$*" "debootstrap is not here, and apt-get does not install it"
# shellcheck disable=SC2016  # apt's own variable
debian=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
# Each system has its share of the cores for the tests that run at a time.
jobs=$((($(nproc) + $#) / $#))

folder=$(mktemp -d)
pids=()
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

# In the namespaces: makes the system, and goes into it. 3: it cannot be made.
cat >"$folder/system" <<'SH'
set -e
root=$1 suite=$2 areas=$3 mirror=$4
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || script=${script%/*}/${5:-sid} # an older debootstrap does not know its name
debootstrap --variant=minbase --components="$areas" "$suite" "$root" "$mirror" "$script" || exit 3
mount -t proc proc "$root/proc" || exit 3
mount -t devpts devpts "$root/dev/pts" || exit 3
mkdir "$root/root/minnow"
git ls-files -z | tar -c --null -T - | tar -x -C "$root/root/minnow"
exec chroot "$root" env -u NVCC -u CUDA_HOME -u MAKEFLAGS -u MAKELEVEL -u WERROR PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  "TEST_JOBS=$TEST_JOBS" bash -s <<'INSIDE'
set -e
cd /root/minnow
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || exit 3
apt-get install -y -q --no-install-recommends make || exit 3
make demo
[ -s build/demo/plot.svg ]
make test
INSIDE
SH
for suite in "$@"; do
  case $suite in
    noble | jammy) from=("main,universe" "${MIRROR:-http://archive.ubuntu.com/ubuntu}" gutsy) ;;
    *) from=(main "${MIRROR:-$debian}") ;;
  esac
  TEST_JOBS=$jobs "${namespaces[@]}" bash "$folder/system" "$folder/$suite" "$suite" "${from[@]}" >"$folder/$suite.log" 2>&1 </dev/null &
  pids+=($!)
done

failed=0
for suite in "$@"; do
  status=0
  wait "${pids[0]}" || status=$?
  pids=("${pids[@]:1}")
  case $status in
    0) echo "bare $suite: make demo, and make test in $SECONDS s: $(grep " passed, " "$folder/$suite.log" | tail -n 1)" ;;
    3) echo "skipped: not run in bare $suite: it cannot be made: $(tail -n 1 "$folder/$suite.log")" ;;
    *)
      { grep -B 20 "FAILED" "$folder/$suite.log" || tail -n 40 "$folder/$suite.log"; } | tail -n 80 >&2
      echo "bare $suite: failed with exit code $status" >&2
      failed=1
      ;;
  esac
done
exit "$failed"
