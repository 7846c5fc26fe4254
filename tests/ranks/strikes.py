#!/usr/bin/env python3
"""Ranks that are killed, stopped, frozen for a moment or asked to end, at random moments from their start on: make test-strikes.

Whatever comes of it, mpirun ends within the rank timeout and a few seconds more, no process is left, stderr has at most one line of
minnow's a rank, and what stands as a checkpoint is whole.

  make test-strikes ARGS="--count 60 --seed 1"      MINNOW and MPIRUN name other programs
"""
import argparse
import collections
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT, MORE = 3, 12  # seconds: --rank-timeout, and what mpirun may take to end all others
OPTIONS = ["--device", "cpu", "--synthetic", "2048", "--in", "192", "--hidden", "240", "--groups", "12", "--batch", "120", "--steps", "100000000",
           "--quiet", "--save-every", "50", "--run", "run", "--rank-timeout", str(TIMEOUT)]
# With these Open MPI also starts ranks as root, more than there are cores, in a container and without ssh.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_plm_rsh_agent": "false", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "OMP_NUM_THREADS": "1"}
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def ranks_in(folder):
    """{rank: pid} of the processes of minnow's whose folder this is."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") != str(folder) or os.readlink(process / "exe") != MINNOW:
                continue
            environment = dict(word.split("=", 1) for word in (process / "environ").read_text().split("\0") if "=" in word)
            found.update({int(environment[name]): int(process.name) for name in RANKS if name in environment})
        except (OSError, ValueError):
            continue  # it has ended
    return found


def strike(folder, seed):
    """What is wrong with one run, or None; and what was done."""
    draw = random.Random(seed)
    size, after, what = draw.randint(2, 4), draw.uniform(0.05, 2), draw.choice(["KILL", "STOP", "TERM", "freeze"])
    words = [*shlex.split(os.environ.get("MPIRUN", "mpirun")), "-n", str(size), MINNOW, "train", *OPTIONS]
    with open(folder / "err", "wb") as err:
        run = subprocess.Popen(words, cwd=folder, env={**os.environ, **MPI}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        time.sleep(after)
        there = ranks_in(folder)
        rank = draw.randrange(size)
        done = f"{what} to rank {rank} of {size} after {after:.1f} s"
        began = time.monotonic()
        if rank not in there:
            done += " (not there yet)"
            run.send_signal(signal.SIGTERM)
        elif what == "freeze":  # for less than the timeout: nothing may come of it
            os.kill(there[rank], signal.SIGSTOP)
            time.sleep(TIMEOUT / 2)
            os.kill(there[rank], signal.SIGCONT)
            time.sleep(1)
            if run.poll() is not None:
                return f"ended with {run.returncode}: {(folder / 'err').read_text()[-300:]}", done
            os.kill(there[rank], signal.SIGTERM)
            began = time.monotonic()
        else:
            os.kill(there[rank], getattr(signal, f"SIG{what}"))
        try:
            run.wait(TIMEOUT + MORE)
        except subprocess.TimeoutExpired:
            for process in [run.pid, *ranks_in(folder).values()]:
                os.kill(process, signal.SIGKILL)
            run.wait()
            return f"not ended after {TIMEOUT + MORE} s: {(folder / 'err').read_text()[-300:]}", done
    took, text = time.monotonic() - began, (folder / "err").read_text()
    lines = [line for line in text.splitlines() if line.startswith("minnow: ")]
    done += f": {run.returncode} after {took:.1f} s{': ' + lines[0] if lines else ''}"
    time.sleep(0.2)
    if ranks_in(folder):
        return f"ranks are left: {ranks_in(folder)}", done
    if run.returncode == 0:
        return "it ended as if it were done", done
    if what == "STOP" and rank in there and not any("does not answer" in line or "waited for others" in line for line in lines):
        return f"nobody tells of the rank that hangs: {text[-300:]}", done
    if (folder / "run/checkpoint.h5").exists() and subprocess.run([MINNOW, "verify", "run"], cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode:
        return "its checkpoint is not whole", done
    return None, done


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=60, help="runs")
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    options = parser.parse_args()
    failures, ends = 0, collections.Counter()
    for seed in range(options.seed, options.seed + options.count):
        with tempfile.TemporaryDirectory(prefix="minnow_strikes.") as folder:
            wrong, done = strike(pathlib.Path(folder).resolve(), seed)
        print(f"{seed}: {done}{': ' + wrong if wrong else ''}", flush=True)
        failures += wrong is not None
        ends[done.split()[0]] += 1
    print(", ".join(f"{what} {count}" for what, count in sorted(ends.items())))
    print(f"{options.count - failures} passed, {failures} failed")
    sys.exit(failures > 0)


MINNOW = str(pathlib.Path(os.environ.get("MINNOW", "build/minnow")).resolve())
if __name__ == "__main__":
    main()
