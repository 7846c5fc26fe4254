#!/usr/bin/env python3
"""Random sequences of what people do with the folders of their runs, with kills in between: train, copy, move, take a checkpoint out
into a folder of its own, delete the log or the newest checkpoint, put a file of their own there, begin where a run is, train twice at once.

A run may change its own files in its folder; every other file keeps its bytes. No step that was reported as saved is lost. Each
sequence is done twice, with other kills, and ends in the same bytes."""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import faults

RUN = faults.SIZES[:4] + ["--groups", "2", "--synthetic", "64", "--in", "8", "--test-rows", "16", "--batch", "8", "--steps", "2400", "--save-every", "100", "--keep", "3", "--verbose"]
LAST, PIECE, MOMENT, ACTIONS = 2400, 300, 0.05, 12
PARENTS, NAMES = ["a", "b"], ["run", "try", "old", "new", "more", "last"]
ENDS = [signal.SIGKILL, signal.SIGTERM]
OWNED = re.compile(r"(checkpoint(\.(\d+|damaged-\d+))?|best)\.h5|log(\.unsaved-\d+)?\.jsonl")


class Wrong(Exception):
    """What a check found."""


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.endswith("lock") and ".saving-" not in path.name}


class Run:
    """A folder that a command has saved to, or that a user has copied. `step`: to which it was trained; `told`: that is saved."""

    def __init__(self, seed, step=0, told=0):
        self.seed, self.step, self.told = seed, step, told


class Sequence:
    """One sequence in a folder of its own."""

    def __init__(self, minnow, base, plan, kills):
        self.minnow, self.base, self.plan, self.kills = minnow, base, random.Random(plan), random.Random(kills)
        self.runs, self.done = {}, []
        for parent in PARENTS:
            (base / parent).mkdir()

    def start(self, *arguments):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        return subprocess.Popen([self.minnow, "train", "--device", "cpu", *arguments], cwd=self.base, env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def check(self, before, path):
        """No file has changed since `before` but those of the run at `path`, which is None where there is none."""
        after = contents(self.base)
        for name in sorted(before.keys() | after.keys()):
            owned = os.path.dirname(name) == path and OWNED.fullmatch(os.path.basename(name))
            if before.get(name) != after.get(name) and not owned:
                raise Wrong(f"{name} has {'changed' if name in before and name in after else 'gone' if name in before else 'come'}")

    def refused(self, words, *arguments):
        before = contents(self.base)
        process = self.start(*arguments)
        text = process.communicate()[1].decode(errors="replace")
        if process.returncode != 73 or words not in text:
            raise Wrong(f"exit code {process.returncode}, not 73 with '{words}': {text[-300:]}")
        self.check(before, None)

    def train(self, path, stop):
        """Trains the run at `path` to step `stop`, through kills and stops."""
        run, before, code = self.runs[path], contents(self.base), 0
        for kill in range(self.kills.randrange(4), -1, -1):
            saved = list((self.base / path).glob("*.h5"))
            if run.told and not saved:
                raise Wrong(f"{path}: step {run.told} was saved, and is not there")
            if not saved and code < 0:  # what a killed run has left is in a new one's way
                shutil.rmtree(self.base / path, ignore_errors=True)
            new = [*RUN, "--log-every", "50", "--seed", str(run.seed), *["--best"] * run.seed]
            process = self.start("--run", path, "--stop-at", str(stop), "--verbose", *(["--resume"] if saved else new))
            if kill:
                time.sleep(self.kills.uniform(0, MOMENT))
                process.send_signal(self.kills.choice(ENDS))
            text = process.communicate()[1].decode(errors="replace")
            self.check(before, path)
            resumed = re.search(r"^resuming from .*, step (\d+)$", text, re.M)
            if resumed and int(resumed.group(1)) < run.told:
                raise Wrong(f"{path}: step {run.told} was saved, and it resumes from step {resumed.group(1)}")
            run.told, code = max(run.told, faults.told(faults.Result(0, text))), process.returncode
            if code not in (0, 75) and not (kill and -code in ENDS):
                raise Wrong(f"{path}: exit code {code}: {text[-300:]}")
        run.step = max(run.step, stop)

    # ---- what people do ----

    def free(self):
        """A folder that is not there, or None."""
        return self.plan.choice([f"{parent}/{name}" for parent in PARENTS for name in NAMES if not (self.base / parent / name).exists()] or [None])

    def any(self):
        return self.plan.choice(sorted(self.runs)) if self.runs else self.begin()

    def begin(self):
        path = self.free()
        if not path:
            return self.any()
        self.runs[path] = Run(self.plan.randrange(2))
        self.train(path, PIECE)
        return path

    def go(self, path=None):
        path = path or self.any()
        self.train(path, min(LAST, self.runs[path].step + PIECE))

    def copy(self):
        path, to = self.any(), self.free()
        if to:
            shutil.copytree(self.base / path, self.base / to)
            was = self.runs[path]
            self.runs[to] = Run(was.seed, was.step, was.told)
            self.go(to)

    def move(self):
        path, to = self.any(), self.free()
        if to:
            (self.base / path).rename(self.base / to)
            self.runs[to] = self.runs.pop(path)
            self.go(to)

    def take(self):
        """A checkpoint alone, in a folder of its own."""
        path, to = self.any(), self.free()
        if to:
            was = self.runs[path]
            (self.base / to).mkdir()
            shutil.copy(self.base / path / self.plan.choice(["checkpoint.h5", "best.h5"][:1 + was.seed]), self.base / to / "checkpoint.h5")
            self.runs[to] = Run(was.seed, was.step)
            self.go(to)

    def unlog(self):
        (self.base / self.any() / "log.jsonl").unlink(missing_ok=True)

    def lose(self):
        """The newest, or a part of it."""
        path, gone = self.any(), self.plan.random() < 0.5
        newest, run = self.base / path / "checkpoint.h5", self.runs[path]
        if list(newest.parent.glob("checkpoint.[0-9].h5")):  # how many depends on the kills
            newest.unlink() if gone else os.truncate(newest, 1000)
            run.told = 0
            self.train(path, run.step)

    def strange(self):
        """A file of the user's own, which stays; another in the log's place, which is taken away again."""
        path = self.any()
        (self.base / path / "thesis.txt").write_text("of the user's own")
        log = self.base / path / "log.jsonl"
        kept = log.read_bytes() if log.exists() else b""
        log.write_text("of the user's own\n")
        self.refused("log.jsonl", "--run", path, "--resume")
        log.write_bytes(kept)

    def again(self):
        """A new run where one is, or where another's file is."""
        path = self.any()
        self.refused(f"--run {path} holds", *RUN, "--run", path)
        path = self.free()
        if path:
            (self.base / path).mkdir()
            (self.base / path / "thesis.txt").write_text("of the user's own")
            self.refused(f"--run {path} holds thesis.txt", *RUN, "--run", path)

    def twice(self):
        """Two at once in one folder: one is refused, unless the other has ended."""
        path = self.any()
        run, before = self.runs[path], contents(self.base)
        step = min(LAST, run.step + PIECE)
        arguments = ["--run", path, "--resume", "--stop-at", str(step), "--verbose"]
        ends = [process.communicate() and process.returncode for process in [self.start(*arguments), self.start(*arguments)]]
        self.check(before, path)
        if not set(ends) <= {0, 75, 73} or ends == [73, 73]:
            raise Wrong(f"two at once in {path} end with {ends}")
        run.step = run.told = step

    def go_on(self):
        """Returns the bytes of all runs at their end."""
        actions = [self.begin, self.go, self.go, self.copy, self.move, self.take, self.unlog, self.lose, self.strange, self.again, self.twice]
        for _ in range(ACTIONS):
            action = self.plan.choice(actions)
            self.done.append(action.__name__)
            action()
        self.done.append("the end")
        for path in sorted(self.runs):
            self.train(path, LAST)
        return {path: (self.base / path / "checkpoint.h5").read_bytes() for path in sorted(self.runs)}


def both(minnow, folder, seed):
    """What is wrong with sequence `seed`, or None; and its actions."""
    ends = []
    for time_of_kills in range(2):
        with tempfile.TemporaryDirectory(dir=folder, prefix="minnow_actions.") as base:
            sequence = Sequence(minnow, pathlib.Path(base), seed, 2 * seed + time_of_kills)
            try:
                ends.append(sequence.go_on())
            except Wrong as wrong:
                return str(wrong), sequence.done
    if ends[0].keys() != ends[1].keys():
        return f"it ends with other files: {sorted(ends[0])}, {sorted(ends[1])}", sequence.done
    differ = [path for path in ends[0] if ends[0][path] != ends[1][path]]
    return f"other bytes in {differ}" if differ else None, sequence.done


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=200, help="sequences")
    parser.add_argument("--seed", type=int, default=1, help="the first sequence is SEED * COUNT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sequences at a time")
    parser.add_argument("--folder", default=faults.FOLDER, help="where to run")
    options = parser.parse_args()
    began, failures, actions, minnow = time.monotonic(), 0, 0, faults.built() / "minnow"
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        seeds = range(options.seed * options.count, (options.seed + 1) * options.count)
        for seed, (wrong, done) in zip(seeds, pool.map(lambda seed: both(minnow, options.folder, seed), seeds)):
            actions += len(done)
            if wrong:
                failures += 1
                print(f"sequence {seed}: {', '.join(done)}: {wrong}", flush=True)
    print(f"{actions} actions, each twice, {time.monotonic() - began:.0f} s; sequences: {options.count - failures} passed, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
