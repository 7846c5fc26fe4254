# shellcheck shell=bash disable=SC2034
# What the scripts of ranks share, which source it: DEVICE, RANKS, how mpirun starts ranks here, and a folder that goes at the end.
# Where the build finds two GPUs or more, DEVICE is cuda, else cpu; on two or three GPUs RANKS is 2, else "2 4". DEVICE=cuda on one GPU: all
# ranks are on it, each as if it were a host of its own. Skipped if there is no mpirun.
build=${BUILD:-build}
if ! command -v mpirun >/dev/null || ! command -v pkill >/dev/null; then
  echo "skipped: there is no mpirun, or no pkill; openmpi-bin and procps have them"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Processes of root's, more than there are cores, no ssh and a container's limits, which Open MPI would refuse or warn of; and its leaks.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# Of the transports this one: looking for the others took 0.2 s of each start.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_plm_rsh_agent=false OMP_NUM_THREADS=1
passed=0
fail() {
  echo "$*" >&2
  exit 1
}
# The GPUs that the build sees, at most eight; 69: there is none of this number.
gpus=0 code=0 device=${DEVICE:-cpu} counts="2 4"
while [ $gpus -lt 8 ]; do
  "${MINNOW:-$build/minnow}" train --device cuda:$gpus --synthetic 64 --in 8 --hidden 8 --groups 2 --steps 1 --quiet >"$folder/found" 2>&1 || code=$?
  [ $code = 0 ] || break
  gpus=$((gpus + 1))
done
[ $code = 0 ] || [ $code = 69 ] || fail "$(cat "$folder/found")"
[ $gpus -lt 2 ] || device=${DEVICE:-cuda}
[ "$device" = cpu ] || [ $gpus -lt 2 ] || [ $gpus -ge 4 ] || counts=2
read -ra ranks <<<"${RANKS:-$counts}"
# NCCL takes one GPU for two where their hosts have two names, and goes through sockets.
as_host=()
if [ "$device" = cuda ] && [ "$gpus" -lt "${ranks[-1]}" ]; then
  as_host=("$folder/as-host")
  echo "one GPU is every rank's"
  cat >"${as_host[0]}" <<'END'
#!/bin/sh
NCCL_HOSTID=host$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$@"
END
  chmod +x "${as_host[0]}"
fi
