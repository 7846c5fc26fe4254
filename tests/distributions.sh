#!/usr/bin/env bash
# The README's two commands in bare systems, side by side: debootstrap makes each in a folder of its own with no package that it
# can be without, and what minnow needs there, make has to install. For the CPU alone.
#
#   tests/distributions.sh SUITE…     (as root; MIRROR: of the packages, else the one that apt has for Debian)
#   AREAS=main,universe MIRROR=http://archive.ubuntu.com/ubuntu tests/distributions.sh noble
#
# make test runs the tests that depend on what the system brings: libraries, compiler, tools. WHOLE=1: all of them, which takes
# minutes more.
#
# Where a system cannot be made, one line says why, and that is no failure. Nothing stays mounted or running: each system has
# namespaces of its own, which end with it.
set -euo pipefail
cd "$(dirname "$0")/.."
namespaces=(unshare --mount --pid --fork --kill-child)

skip() {
  echo "not run in bare $1: $2" >&2
  exit 0
}
[ "$(id -u)" = 0 ] || skip "$*" "that needs root"
"${namespaces[@]}" true 2>/dev/null || skip "$*" "namespaces and mounts are not permitted here"
command -v debootstrap >/dev/null 2>&1 ||
  { apt-get update -q && apt-get install -y -q --no-install-recommends debootstrap; } >/dev/null 2>&1 ||
  skip "$*" "debootstrap is not here, and apt-get does not install it"
# shellcheck disable=SC2016  # apt's own variable
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)}
[ -n "$mirror" ] || skip "$*" "apt has no mirror of Debian; MIRROR=URL names one"

folder=$(mktemp -d)
pids=()
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

# In the namespaces: makes the system, and goes into it. 3: it cannot be made.
cat >"$folder/system" <<'SH'
set -e
root=$1 suite=$2 mirror=$3
debootstrap --variant=minbase --components="${AREAS:-main}" "$suite" "$root" "$mirror" || exit 3
mount -t proc proc "$root/proc" || exit 3
mount -t devpts devpts "$root/dev/pts" || exit 3
mkdir "$root/root/minnow"
git ls-files -z | tar -c --null -T - | tar -x -C "$root/root/minnow"
exec chroot "$root" env "WHOLE=${WHOLE:-}" bash -s <<'INSIDE'
set -e
cd /root/minnow
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || exit 3
apt-get install -y -q --no-install-recommends make || exit 3
make CUDA=0 demo
[ -s build/demo/digits.svg ]
if [ "$WHOLE" = 1 ]; then
  make CUDA=0 test
else
  make CUDA=0 test SCRIPTS="tests/test_packages.sh tests/test_install.sh tests/test_exports.sh" \
    TESTS="$(printf 'build/tests/test_%s ' block kernels parity gradients hdf5 dataset checkpoint loader saver log command)"
fi
INSIDE
SH
for suite in "$@"; do
  "${namespaces[@]}" bash "$folder/system" "$folder/$suite" "$suite" "$mirror" >"$folder/$suite.log" 2>&1 </dev/null &
  pids+=($!)
done

failed=0
for suite in "$@"; do
  status=0
  wait "${pids[0]}" || status=$?
  pids=("${pids[@]:1}")
  case $status in
    0) echo "bare $suite: make demo, and programs of make test, in $SECONDS s: $(grep -c '^== ' "$folder/$suite.log") passed, 0 failed" ;;
    3) echo "not run in bare $suite: it cannot be made: $(tail -n 1 "$folder/$suite.log")" >&2 ;;
    *)
      tail -n 40 "$folder/$suite.log" >&2
      echo "bare $suite: failed with exit code $status" >&2
      failed=1
      ;;
  esac
done
exit "$failed"
