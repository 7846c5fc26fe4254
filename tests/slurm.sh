#!/usr/bin/env bash
# minnow under a Slurm of its own: one node, this host, with Debian's packages, which are unpacked into a temporary folder and not
# installed: no file of the system's is changed, no service started, and all processes end with this script. srun starts ranks by
# PMIx (Open MPI: srun --mpi=pmix) and by PMI (MPICH: srun --mpi=pmi2). Steps train as one process does, a job resumes with
# another number of ranks, SIGTERM and scancel save, and a rank that is killed ends the others. Skipped where it cannot be: no root,
# no apt-get or no network for it, no Open MPI. tests/slurm.sh COMMAND… runs a command beside that Slurm instead.
#
# Where Slurm is installed, srun --mpi=pmix needs the package libpmix-dev as well: Debian's plugin opens libpmix.so, which no other
# package has. Without --mpi (or MpiDefault in slurm.conf) srun starts no MPI, and minnow says so.
set -euo pipefail
build=${BUILD:-build}
minnow=$(readlink -f "${MINNOW:-$build/minnow}")
digits=$(readlink -f data/digits.h5)
packages=(munge slurm-client slurm-wlm-basic-plugins slurmctld slurmd libmpich12)
skip() {
  echo "skipped: $*"
  exit 0
}
[ "$(id -u)" = 0 ] || skip "only root can start a Slurm"
type apt-get dpkg-deb >/dev/null 2>&1 || skip "there is no apt-get, which gets Debian's Slurm"
"$minnow" --version | grep "^MPI: Open MPI" >/dev/null || skip "there is no Open MPI (package libopenmpi3)"
folder=$(mktemp -d /tmp/minnow-slurm.XXXXXX)
root=$folder/root
started=()

# Daemons and steps have the folder in the environment that they were started with; this script has not.
end_all() {
  local pid left
  trap '' INT TERM
  [ ${#started[@]} = 0 ] || timeout 10 scancel --user=root 2>/dev/null || true
  for ((i = ${#started[@]} - 1; i >= 0; i--)); do kill "${started[i]}" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  left=$(grep -lsaF "$folder" /proc/[0-9]*/environ | cut -d/ -f3) || true
  for pid in $left; do kill -KILL "$pid" 2>/dev/null || true; done # those two are gone by now
  rm -rf "$folder"
}
trap end_all EXIT
trap 'exit 1' INT TERM

passed=0
pass() { passed=$((passed + 1)); }
fail() {
  echo "$*" >&2
  tail -n 5 "$folder"/logs/* >&2 || true
  exit 1
}
# wait_for SECONDS WHAT COMMAND…: until the command succeeds.
wait_for() {
  local until=$((SECONDS + $1)) what=$2
  while ! "${@:3}" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || fail "no $what in $1 seconds"
    sleep 0.1
  done
}

# The packages and those that they need and this machine lacks, by the lists of packages that are here, else by some of our own.
unpack() {
  local apt=(apt-get -qq "$@") missing
  missing=$("${apt[@]}" --no-install-recommends -s install "${packages[@]}" 2>/dev/null | sed -n 's/^Inst \([^ ]*\).*/\1/p') || return 1
  mkdir -p "$folder/packages" "$root"
  # shellcheck disable=SC2086 # a list of names
  (cd "$folder/packages" && "${apt[@]}" -o APT::Sandbox::User=root download "${packages[@]}" $missing >/dev/null 2>&1) || return 1
  for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$root" || return 1; done
}
if ! unpack; then
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
  own=(-o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root)
  timeout 60 apt-get -qq "${own[@]}" update >/dev/null 2>&1 || true
  unpack "${own[@]}" || skip "apt-get cannot download ${packages[*]}"
fi
plugins=$(echo "$root"/usr/lib/*/slurm-wlm)
libraries=$(dirname "$plugins")
# The folder in which the plugin looks for libpmix.so becomes one of ours, whose name slashes make equally long.
pmix=/usr/lib/$(basename "$libraries")/pmix2/lib
ours=$folder/pmix
while [ ${#ours} -lt ${#pmix} ]; do ours+=/; done
for file in "$root/usr/sbin/slurmctld-wlm" "$plugins/mpi_pmix_v4.so" "$plugins/mpi_pmi2.so" "$pmix/libpmix.so.2"; do
  [ -e "$file" ] || skip "these packages are not Debian 12's, which this is for: there is no ${file#"$root"}"
done
mkdir "$ours"
ln -s "$pmix/libpmix.so.2" "$ours/libpmix.so"
sed -i "s|$pmix|$ours|" "$plugins/mpi_pmix_v4.so"

export PATH=$root/usr/sbin:$root/usr/bin:$PATH LD_LIBRARY_PATH=$libraries:$plugins SLURM_CONF=$folder/slurm.conf
mkdir "$folder/state" "$folder/spool" "$folder/logs" "$folder/work"
host=$(uname -n)
port=$((20000 + $$ % 20000))
# CPUs are counted, not bound to; a step may have more tasks than there are (srun --overcommit).
cat >"$SLURM_CONF" <<END
ClusterName=minnow
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
PluginDir=$plugins
SlurmUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
TmpFS=$folder
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmix
KillWait=5
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(env -u OMP_NUM_THREADS nproc)
PartitionName=all Nodes=ALL Default=YES
END
head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
  --seed-file="$folder/munge.seed" --log-file="$folder/logs/munge" >"$folder/logs/munged" 2>&1 &
started+=($!)
wait_for 10 munged test -S "$folder/munge.socket"
slurmctld-wlm -D -c >"$folder/logs/slurmctld" 2>&1 &
started+=($!)
slurmd-wlm -D -d "$root/usr/sbin/slurmstepd-wlm" >"$folder/logs/slurmd" 2>&1 &
started+=($!)
is_idle() { sinfo --noheader --states=idle --format=%T | grep idle >/dev/null; }
wait_for 20 "idle node" is_idle
srun --mpi=list 2>&1 | grep pmix >/dev/null || fail "this Slurm has no PMIx"
setup=$SECONDS
if [ $# -gt 0 ]; then
  "$@"
  exit
fi

# A container's limits, and processes of root's.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
export OMP_NUM_THREADS=1
cd "$folder/work"
block=(--device cpu --synthetic 2048 --in 192 --hidden 256 --groups 16 --batch 128 --steps 24 --momentum 0.9 --lr 0.05 --precision bf16)
# shellcheck disable=SC2034,SC2054 # by name, below
stack=(--device cpu --synthetic 2048 --in 192 --hidden 256,512 --groups 16 --batch 128 --steps 12 --head 32 --momentum 0.9 --precision fp64)
# shellcheck disable=SC2034
demo=(--device cpu --data "$digits" --hidden 128 --groups 8 --epochs 2 --batch 64 --lr 0.05 --momentum 0.9 --precision fp64)

# ends CODE WORDS COMMAND…: it ends with this code, and with this one line of minnow's on stderr ("": none), which all ranks may tell.
ends() {
  local code=0 lines=1
  [ -n "$2" ] || lines=0
  timeout 60 "${@:3}" >out 2>err || code=$?
  [ "$code" = "$1" ] || { cat out err >&2; fail "${*:3}: exit code $code, not $1"; }
  [ "$(grep '^minnow: ' err | sort -u | wc -l)" = "$lines" ] || { cat err >&2; fail "${*:3}: not $lines lines"; }
  [ -z "$2" ] || grep -q "^minnow: .*$2" err || { cat err >&2; fail "${*:3}: no '$2'"; }
  pass
}
# Steps of 2 and 4 ranks are as one process: a block to the last bit, stacks in all digits that are printed.
for case in block stack demo; do
  declare -n options=$case
  "$minnow" train "${options[@]}" --quiet --run "$case" >"$case.out"
  for n in 2 4; do
    ends 0 "" srun --overcommit -n "$n" "$minnow" train "${options[@]}" --run "$case-$n"
    diff "$case.out" out >&2 || fail "$case: $n ranks tell otherwise than one"
    grep -q "^ranks: $n, by " err || fail "the number of ranks is not told"
    [ "$case" != block ] || "$minnow" diff block "block-$n" >/dev/null || fail "$n ranks save other parameters than one"
    "$minnow" verify "$case-$n" >/dev/null
  done
done
# The other MPI, and none.
ends 0 "" srun --overcommit -n 2 --mpi=pmi2 "$minnow" train "${block[@]}" --run mpich
grep -q '^ranks: 2, by MPICH' err || { cat err >&2; fail "srun --mpi=pmi2 is not MPICH's"; }
"$minnow" diff block mpich >/dev/null || fail "by MPICH they save other parameters"
ends 70 "srun started several processes, but does not start MPI" srun --overcommit -n 2 --mpi=none "$minnow" train "${block[@]}"
ends 0 "" srun -n 1 --mpi=none "$minnow" train "${block[@]}" --quiet
# --verbose names each; a rank has a part of the node's cores, as srun binds none.
cores=$(env -u OMP_NUM_THREADS nproc)
ends 0 "" env -u OMP_NUM_THREADS srun --overcommit -n 2 "$minnow" train "${block[@]}" --verbose
for q in 0 1; do
  grep -q "^rank $q of 2: host $host, CPU ($((cores > 1 ? cores / 2 : 1)) threads)$" err || { cat err >&2; fail "rank $q is not named"; }
done

# job NAME TASKS LINE…: a batch script of these lines, run to its end; NAME.out is what it prints.
job() {
  local name=$1 tasks=$2
  { echo '#!/usr/bin/env bash'; echo 'set -eu'; printf '%s\n' "${@:3}"; } >"$name.sh"
  ends 0 "" sbatch --wait --overcommit -n "$tasks" --output="$name.out" "$name.sh"
}
# A job's script is one process, and trains alone whatever the job has; so does a shell in an allocation. Its steps are ranks: the
# second goes on from the first one's checkpoint with another number of them, as if it had been one all the time.
job alone 2 "'$minnow' train ${block[*]} --quiet --run alone"
cmp -s block.out alone.out || { cat alone.out >&2; fail "a batch script trains otherwise than one process"; }
ends 0 "" salloc --quiet --overcommit -n 2 sh -c "'$minnow' train ${block[*]} --quiet --run shell"
"$minnow" diff block shell >/dev/null || fail "a shell in an allocation trains otherwise than one process"
if command -v mpirun >/dev/null; then
  ends 0 "" salloc --quiet --overcommit -n 2 mpirun --oversubscribe -n 2 "$minnow" train "${block[@]}" --run mpirun
  grep -q '^ranks: 2, by Open MPI' err || { cat err >&2; fail "mpirun in an allocation is alone"; }
fi
job steps 4 "srun --overcommit -n 2 '$minnow' train ${block[*]} --run steps --stop-at 8" \
  "srun --overcommit -n 4 '$minnow' train --device cpu --run steps --resume"
"$minnow" diff block steps >/dev/null || fail "resumed by the job's second step, it is another run"

# SIGTERM to a step saves, and so does scancel, which sends SIGTERM too and kills what is left after KillWait seconds, as a time limit
# does. The run can go on.
long=("${block[@]}" --steps 1000000 --quiet --save-every 50)
# ranks_of NAME: the processes of that step, a line with the number of the rank and the process's for each.
ranks_of() {
  local exe pid
  for exe in /proc/[0-9]*/exe; do
    pid=${exe//[^0-9]/}
    if [ "$(readlink "$exe" 2>/dev/null)" = "$minnow" ] && grep -qsazxF "$1" "/proc/$pid/cmdline"; then
      { tr '\0' '\n' <"/proc/$pid/environ" | sed -n "s/^SLURM_PROCID=\(.*\)/\1 $pid/p"; } 2>/dev/null || true
    fi
  done
}
is_gone() { [ -z "$(ranks_of "$1")" ]; }
# stopped NAME COMMAND…: starts a step in the background and has the command end it; its exit code is in `code`.
stopped() {
  local name=$1
  timeout 60 srun --overcommit -n 2 --job-name="$name" "$minnow" train "${long[@]}" --run "$name" >out 2>err &
  local run=$!
  wait_for 20 "checkpoint of $name" test -e "$name/checkpoint.h5"
  "${@:2}"
  code=0
  wait "$run" || code=$?
  "$minnow" verify "$name" >/dev/null
  wait_for 20 "end of all of $name" is_gone "$name"
}
# resumes NAME: from where it was.
resumes() {
  local step
  step=$("$minnow" info --json "$1" | grep -o '"step":[0-9]*' | head -n 1 | cut -d: -f2)
  ends 0 "" srun --overcommit -n 2 "$minnow" train --device cpu --quiet --run "$1" --resume --stop-at $((step + 50))
}
stopped signal scancel --signal=TERM --name=signal
[ "$code" = 75 ] || { cat err >&2; fail "SIGTERM: exit code $code, not 75"; }
grep -q '^minnow: stopped by Terminated' err || { cat err >&2; fail "SIGTERM is not told"; }
resumes signal
stopped cancel scancel --name=cancel
grep -q '^minnow: stopped by Terminated' err || { cat err >&2; fail "scancel is not told"; }
resumes cancel

# A rank that is killed ends the others: PMIx does it at once, srun --kill-on-bad-exit after KillWait seconds. With neither, under
# PMI, they wait (srun --wait=SECONDS limits that).
kill_one() {
  local pid
  pid=$(ranks_of "$1" | sed -n 's/^1 //p')
  [ -n "$pid" ] || fail "there is no rank 1 of $1"
  kill -KILL "$pid"
}
for SLURM_KILL_BAD_EXIT in 0 1; do
  export SLURM_KILL_BAD_EXIT
  name=killed-$SLURM_KILL_BAD_EXIT
  stopped "$name" kill_one "$name"
  [ "$code" = 137 ] || { cat err >&2; fail "a killed rank: exit code $code, not 137"; }
  resumes "$name"
done
echo "$passed passed, 0 failed; $setup s of them to get Slurm and start it"
