#!/usr/bin/env python3
"""What ranks do when one fails, under each launcher that is here: exit code, seconds and minnow's line, as rows of a table.

  tests/slurm.sh python3 tests/ranks/launchers.py       Open MPI's mpirun, MPICH's hydra, srun by PMIx and by PMI2
  python3 tests/ranks/launchers.py --device cuda --ranks 4              on four GPUs
  AS_HOST=1 python3 tests/ranks/launchers.py --device cuda        on one GPU, as if each rank were a host of its own

Once the run has saved: a rank is killed, stopped, frozen for less than the timeout (then asked to end), or asked to end. From the start: a
rank never comes, has no MPI library, no memory, another device; on GPUs also no NCCL. Needs root, for the libraries that one rank lacks.
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import strikes

LAUNCHERS = {"Open MPI": ["mpirun"], "hydra": ["mpiexec.hydra"], "srun pmix": ["srun", "--overcommit", "--mpi=pmix"],
             "srun pmi2": ["srun", "--overcommit", "--mpi=pmi2", "--kill-on-bad-exit"]}
LATER = ("kill", "stop", "freeze", "TERM")
FIRST = ("never comes", "no MPI", "no memory", "other device", "no NCCL")
# A rank's shell: OTHER is what rank 1 does before it is a rank.
RANK = """#!/bin/bash
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-$SLURM_PROCID}}}
[ -z "$AS_HOST" ] || export NCCL_HOSTID=host$rank NCCL_SOCKET_IFNAME=lo
if [ "$rank" = 1 ]; then
  OTHER
fi
exec "$@"
"""


def hide(name):
    """Ends a rank's shell in the command, where the libraries of this name are empty files."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout.splitlines()
    paths = {os.path.realpath(line.split("=> ")[1]) for line in listed if line.strip().startswith(f"lib{name}") and "=> " in line}
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        paths |= {str(path.resolve()) for path in pathlib.Path(folder).glob(f"lib{name}*.so*")}
    mounts = "".join(f"mount --bind /dev/null {path} && " for path in sorted(paths))
    return f"exec unshare -m bash -c '{mounts}exec \"$@\"' rank \"$@\""


def other_of(event, device):
    """What rank 1 does first."""
    gpu = "export CUDA_VISIBLE_DEVICES=" if device == "cuda" else 'set -- "${@/cpu/cuda}"'
    return {"never comes": "exec sleep 100", "no MPI": hide("mpi"), "no memory": f"ulimit -v {400000 if device == 'cpu' else 30000000}",
            "other device": gpu, "no NCCL": hide("nccl")}.get(event, ":")


def run(launcher, count, event, device, folder):
    """(exit code, seconds, minnow's lines) of one run."""
    wrapper = folder / "rank"
    wrapper.write_text(RANK.replace("OTHER", other_of(event, device)))
    wrapper.chmod(0o755)
    options = ["--device", device if event != "other device" or device == "cpu" else "auto", *strikes.OPTIONS[2:]]
    with open(folder / "err", "wb") as err:
        began = time.monotonic()
        ranks = subprocess.Popen([*LAUNCHERS[launcher], "-n", str(count), str(wrapper), strikes.MINNOW, "train", *options], cwd=folder, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=err, env={**os.environ, **strikes.MPI})
        if event in LATER:
            while not (folder / "run/checkpoint.h5").exists() and ranks.poll() is None:
                time.sleep(0.1)
            time.sleep(0.3)
            began, pid = time.monotonic(), strikes.ranks_in(folder)[1]
            if event == "freeze":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(strikes.TIMEOUT / 2)
                os.kill(pid, signal.SIGCONT)
                time.sleep(1)
                began = time.monotonic()
                assert ranks.poll() is None, "a rank that was frozen for less than the timeout ends the run"
            os.kill(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(event, signal.SIGTERM))
        try:
            ranks.wait(60)
        except subprocess.TimeoutExpired:
            for pid in [ranks.pid, *strikes.ranks_in(folder).values()]:
                os.kill(pid, signal.SIGKILL)
            return "none", 60, ["it does not end"]
    took = time.monotonic() - began
    lines = [line for line in (folder / "err").read_text().splitlines() if line.startswith("minnow: ")]
    time.sleep(0.5)
    if strikes.ranks_in(folder):
        lines.append(f"LEFT: {strikes.ranks_in(folder)}")
    if (folder / "run/checkpoint.h5").exists():
        subprocess.run([strikes.MINNOW, "verify", "run"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return ranks.returncode, took, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--events", nargs="*", default=[*LATER, *FIRST])
    parser.add_argument("--launchers", nargs="*", default=list(LAUNCHERS))
    options = parser.parse_args()
    device, bad = options.device, 0
    for event in options.events:
        for launcher in options.launchers:
            if not shutil.which(LAUNCHERS[launcher][0]) or (event == "no NCCL" and device == "cpu"):
                continue
            with tempfile.TemporaryDirectory(prefix="minnow_launchers.") as folder:
                code, took, lines = run(launcher, options.ranks, event, device, pathlib.Path(folder).resolve())
            bad += code == "none" or any(line.startswith("LEFT") for line in lines)
            print(f"| {event} | {launcher} | {code} | {took:.1f} s | {'; '.join(lines)} |", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
