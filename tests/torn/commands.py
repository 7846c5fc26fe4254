#!/usr/bin/env python3
"""Every command that reads files, on damaged ones: a documented exit code, one line on stderr where it fails, no crash, no
hang, no report of a sanitizer.

    MINNOW=build/torn/minnow python3 tests/torn/commands.py FOLDER [--runs N] [--seed S]

FOLDER is what `torn --write FOLDER --sample N` wrote: the files of tests/torn/files.c, and damaged variants of each. Every
command is run on N variants (20 by default), drawn by the seed, of the files that it may be given; and on as many of a run's
checkpoint and log, which are damaged here in the same ways.
"""

import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

MINNOW = os.environ.get("MINNOW", "build/minnow")
# README's, without 69 to 71 (no device, a library, memory), which no content of a file may lead to. 73: a damaged log.
DOCUMENTED = {0, 1, 64, 65, 66, 73, 74, 75}
SECONDS = 60


def environment():
    """Leaks are of interest in torn alone, which tells libhdf5's from minnow's."""
    said = {"ASAN_OPTIONS": "exitcode=99:detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024"}
    return {**os.environ, **said, "UBSAN_OPTIONS": "print_stacktrace=1", "OMP_NUM_THREADS": "1"}


def run(arguments):
    """The exit code (None: it hung) and stderr."""
    try:
        done = subprocess.run([MINNOW, *map(str, arguments)], env=environment(), capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stderr.decode("utf-8", "replace")


def fault(code, said):
    """What is wrong with a run, or None."""
    if code is None:
        return f"hangs: {SECONDS} s went by"
    if "Sanitizer" in said or "runtime error:" in said:
        return next(line for line in said.splitlines() if "Sanitizer" in line or "runtime error:" in line)
    if code not in DOCUMENTED:
        return f"exit code {code}: {said[-300:]!r}"
    errors = [line for line in said.splitlines() if line.startswith("minnow: ")]
    if code not in (0, 75) and (not errors or not said.endswith("\n") or said.splitlines()[-1] != errors[-1]):
        return f"exit code {code}, and the last line is no error: {said[-300:]!r}"
    if any(ord(c) < 32 and c not in "\n\t\r" for c in said):
        return f"control characters: {said[-300:]!r}"
    return None


def damaged(draw, whole, target):
    """Writes one variant of the file `whole` to `target`; returns in words what was done."""
    data = bytearray(whole.read_bytes())
    at, how = draw.randrange(len(data)), draw.randrange(4)
    if how == 0:
        del data[at:]
    elif how == 1:
        data[at] ^= draw.choice((1, 0x80, 0xFF))
    elif how == 2:
        at -= at % 64
        length = draw.choice((64, 512, 4096))
        data[at : at + length] = bytes(len(data[at : at + length]))
    else:
        at -= at % 8
        data[at : at + 16] = data[at + 8 : at + 16] + data[at : at + 8]
    target.write_bytes(data)
    return ("cut at", "flipped at", "zeroed from", "exchanged at")[how] + f" {at}"


class Trial:
    """Counts runs, and tells of those that are wrong."""

    def __init__(self):
        self.runs = self.faults = 0
        self.codes = {}

    def __call__(self, arguments, about):
        code, said = run(arguments)
        self.runs += 1
        self.codes[code] = self.codes.get(code, 0) + 1
        wrong = fault(code, said)
        if wrong:
            self.faults += 1
            print(f"minnow {' '.join(map(str, arguments))} ({about}): {wrong}")


def on_written(trial, draw, folder, count, scratch):
    """The commands on torn's variants."""
    course = ("--groups", 2, "--batch", 4, "--epochs", 1, "--quiet")

    def commands(kind, path):
        out = scratch / "out.h5"
        out.unlink(missing_ok=True)
        yield "info", path
        yield "verify", path, "--json"
        if kind in ("momentum", "adamw", "alone"):
            yield "diff", path, folder / f"{kind}.h5"
            yield "eval", "--run", path, "--data", folder / "classes.h5"
            yield "predict", "--run", path, "--data", folder / "classes.h5", "--out", out
            yield "train", "--init", path, "--data", folder / "classes.h5", "--hidden", "4,4", *course
        elif kind.startswith("cases"):
            yield "parity", path
        else:
            yield "train", "--data", path, "--hidden", "4", *course
            yield "eval", "--run", scratch / "run", "--data", path
            yield "predict", "--run", scratch / "run", "--data", path, "--out", out

    variants = sorted(p for p in folder.iterdir() if re.match(r"\d+-", p.name))
    for kind in sorted({re.sub(r"^\d+-|\.h5$", "", p.name) for p in variants}):
        own = [p for p in variants if p.name.endswith(f"-{kind}.h5") and re.match(rf"\d+-{kind}\.h5$", p.name)]
        for path in draw.sample(own, min(count, len(own))):
            for arguments in commands(kind, path):
                trial(arguments, kind)


def on_run(trial, draw, folder, count, scratch):
    """A run that is resumed, from a damaged checkpoint or with a damaged log; and pictures of that log."""
    run, whole = scratch / "run", scratch / "whole"
    run.rename(whole)
    for name in ("checkpoint.h5", "log.jsonl") * count:
        shutil.copytree(whole, run)
        about = f"{name} {damaged(draw, whole / name, run / name)}"
        trial(("plot", run, "--out", scratch / "run.svg", "--force"), about)
        trial(("train", "--run", run, "--resume", "--quiet"), about)
        shutil.rmtree(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    trial, draw = Trial(), random.Random(options.seed)
    shutil.copy(options.folder / "packed-new.h5", options.folder / "classes.h5")
    with tempfile.TemporaryDirectory(prefix="minnow-torn-") as name:
        scratch = pathlib.Path(name)
        code, said = run(("train", "--data", options.folder / "classes.h5", "--hidden", "4,4", "--groups", 2, "--batch", 4,
                          "--epochs", 4, "--stop-at", 9, "--log-every", 1, "--quiet", "--run", scratch / "run"))
        if code != 0:
            sys.exit(f"the run to be damaged ends with {code}: {said}")
        on_written(trial, draw, options.folder, options.runs, scratch)
        on_run(trial, draw, options.folder, options.runs, scratch)
    codes = ", ".join(f"{count} with {code}" for code, count in sorted(trial.codes.items(), key=str))
    print(f"runs of commands on damaged files, {codes}: {trial.runs - trial.faults} passed, {trial.faults} failed")
    sys.exit(trial.faults > 0)


if __name__ == "__main__":
    main()
