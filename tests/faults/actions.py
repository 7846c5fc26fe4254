#!/usr/bin/env python3
"""Random sequences of what people do with the files of their runs, with kills in between: train, copy, rename, link, move and copy
folders, delete and exchange logs, put another run's checkpoint among a run's own, train twice at once.

A run may change the files that follow from its checkpoint's name, and its log; every other file keeps its bytes. No step that was
reported as saved is lost. Each sequence is done twice, with other kills, and ends in the same bytes."""
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
NAMES = ["run", "try", "old", "new", "more", "last"]


class Wrong(Exception):
    """What a check found."""


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and not path.name.endswith(".lock") and ".saving-" not in path.name}


def follows(path, name):
    """Whether a file is one that the run which saves to `path` may write."""
    folder, base = os.path.split(path)
    stem = re.escape(base.removesuffix(".h5"))
    return os.path.dirname(name) == folder and re.fullmatch(stem + r"(\.(\d+|best|damaged-\d+))?\.h5", os.path.basename(name))


class Run:
    """A checkpoint that a command has saved to, or that a user has copied there."""

    def __init__(self, seed, log=None, step=0):
        self.seed, self.log, self.step, self.told = seed, log, step, step
        self.foreign = set()  # files among its names that are not its own


class Sequence:
    """One sequence in a folder of its own."""

    def __init__(self, minnow, base, plan, kills):
        self.minnow, self.base, self.plan, self.kills = minnow, base, random.Random(plan), random.Random(kills)
        self.runs, self.folders, self.done = {}, ["a"], []
        (base / "a").mkdir()

    def start(self, *arguments):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        return subprocess.Popen([self.minnow, "train", "--device", "cpu", *arguments], cwd=self.base, env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def check(self, before, path, run):
        """No file has changed since `before` but those of the run at `path`, which is None where there is none."""
        after = contents(self.base)
        for name in sorted(before.keys() | after.keys()):
            owned = run and (name == run.log or (follows(path, name) and name not in run.foreign) or
                             re.fullmatch(re.escape((run.log or "/").removesuffix(".jsonl")) + r"\.unsaved-\d+\.jsonl", name))
            if before.get(name) != after.get(name) and not owned:
                raise Wrong(f"{name} has {'changed' if name in before and name in after else 'gone' if name in before else 'come'}")

    def refused(self, words, *arguments):
        before = contents(self.base)
        process = self.start(*arguments)
        text = process.communicate()[1].decode(errors="replace")
        if process.returncode != 73 or words not in text:
            raise Wrong(f"exit code {process.returncode}, not 73 with '{words}': {text[-300:]}")
        self.check(before, None, None)

    def there(self, path):
        return [name for name in contents(self.base) if follows(path, name)]

    def train(self, path, stop):
        """Trains the run at `path` to step `stop`, through kills."""
        run, before = self.runs[path], contents(self.base)
        for kill in range(self.kills.randrange(4), -1, -1):
            saved = self.there(path)
            if run.told and not saved:
                raise Wrong(f"{path}: step {run.told} was saved, and is not there")
            if not saved and run.log:
                (self.base / run.log).unlink(missing_ok=True)
            arguments = ["--checkpoint", path, "--stop-at", str(stop), "--verbose", *(["--resume"] if saved else RUN + ["--seed", str(run.seed)])]
            arguments += [] if saved and not run.fork else (["--log", run.log] if run.log else [])
            arguments += ["--log-every", "50"] if run.log and not saved else []
            arguments += ["--best"] if not saved and run.seed == 1 else []
            process = self.start(*arguments)
            if kill:
                time.sleep(self.kills.uniform(0, MOMENT))
                process.kill()
            text = process.communicate()[1].decode(errors="replace")
            self.check(before, path, run)
            resumed = re.search(r"^resuming from .*, step (\d+)$", text, re.M)
            if resumed and int(resumed.group(1)) < run.told:
                raise Wrong(f"{path}: step {run.told} was saved, and it resumes from step {resumed.group(1)}")
            run.told = max(run.told, faults.told(faults.Result(0, text)))
            run.fork = run.fork and run.told <= run.step
            if not kill and process.returncode not in (0, 75):
                raise Wrong(f"{path}: exit code {process.returncode}: {text[-300:]}")
            if process.returncode not in (0, 75, -signal.SIGKILL):
                raise Wrong(f"{path}: killed or not, exit code {process.returncode}: {text[-300:]}")
        run.step = max(run.step, stop)

    # ---- what people do ----

    def free(self):
        names = [f"{folder}/{name}.h5" for folder in self.folders for name in NAMES]
        return [name for name in names if name not in self.runs and not self.there(name)]

    def free_for(self, path):
        """Names for a copy of `path`. Under its own name it goes on with its log, and another run's would be refused."""
        log = os.path.basename(path).replace(".h5", ".jsonl")
        return [name for name in self.free() if os.path.basename(name) != os.path.basename(path) or
                not (self.base / os.path.dirname(name) / log).exists()]

    def any(self):
        whole = sorted(path for path, run in self.runs.items() if not run.foreign)
        return self.plan.choice(whole) if whole else self.begin()

    def begin(self):
        free = self.free()
        if not free:
            return self.plan.choice(sorted(self.runs))
        path = self.plan.choice(free)
        run = self.runs[path] = Run(self.plan.randrange(2), path.replace(".h5", ".jsonl") if self.plan.random() < 0.7 else None)
        run.fork = False
        if run.log and (self.base / run.log).exists():
            run.log = None
        self.train(path, PIECE)
        return path

    def go(self):
        path = self.any()
        self.train(path, min(LAST, self.runs[path].step + PIECE))

    def fork(self, path, to):
        was = self.runs[path]
        run = self.runs[to] = Run(was.seed, step=was.step)
        log = to.replace(".h5", ".jsonl")
        run.fork = os.path.basename(to) != os.path.basename(path)  # the same name in another folder is the same run
        wanted = self.plan.random() < 0.5 if run.fork else was.log
        run.log = log if wanted and not (self.base / log).exists() else None
        if was.step < LAST:
            self.train(to, min(LAST, was.step + PIECE))

    def copy(self):
        path = self.any()
        free = self.free_for(path)
        if free:
            to = self.plan.choice(free)
            shutil.copy(self.base / path, self.base / to)
            self.fork(path, to)

    def rename(self):
        path = self.any()
        free = self.free_for(path)
        if free:
            to = self.plan.choice(free)
            (self.base / path).rename(self.base / to)
            self.fork(path, to)
            left = self.there(path)
            if left:
                self.refused("exists", *RUN, "--checkpoint", path)
            del self.runs[path]

    def link(self):
        path = self.any()
        link = self.base / os.path.dirname(path) / "link.h5"
        link.symlink_to(os.path.basename(path))
        self.runs[str(link)] = self.runs[path]
        run, step = self.runs[path], min(LAST, self.runs[path].step + PIECE)
        before = contents(self.base)
        process = self.start("--checkpoint", str(link), "--resume", "--stop-at", str(step), "--verbose",
                             *(["--log", run.log] if run.fork and run.log else []))
        text = process.communicate()[1].decode(errors="replace")
        self.check(before, path, run)
        if process.returncode not in (0, 75) or not link.is_symlink():
            raise Wrong(f"by a link: exit code {process.returncode}: {text[-300:]}")
        run.step, run.told, run.fork = step, step, False
        del self.runs[str(link)]
        link.unlink()

    def older(self):
        path, which = self.any(), self.plan.random()
        numbered = [name for name in self.there(path) if name != path]  # how many depends on the kills
        if numbered:
            self.refused("is a file of the run", "--checkpoint", numbered[int(which * len(numbered))], "--resume")

    def again(self):
        path = self.any()
        self.refused("exists", *RUN, "--checkpoint", path)

    def strange(self):
        """Another run's checkpoint among its own; taken away again."""
        path = self.any()
        others = sorted(other for other in self.runs if other != path and self.runs[other].seed != self.runs[path].seed)
        if others and self.runs[path].step < LAST:
            name = path.replace(".h5", f".{self.plan.choice(['2', '77', 'best'])}.h5")
            kept = (self.base / name).read_bytes() if (self.base / name).exists() else None
            shutil.copy(self.base / self.plan.choice(others), self.base / name)
            self.refused("a checkpoint of another run", "--checkpoint", path, "--resume", "--steps", str(LAST + 1))
            (self.base / name).unlink()
            if kept:
                (self.base / name).write_bytes(kept)

    def folder(self):
        to, move = f"f{len(self.done)}", self.plan.random() < 0.5
        of = self.plan.choice(self.folders)
        (shutil.move if move else shutil.copytree)(self.base / of, self.base / to)
        for path, run in sorted(self.runs.items()):
            if os.path.dirname(path) == of:
                there = self.runs[path.replace(of, to, 1)] = Run(run.seed, run.log and run.log.replace(of, to, 1), run.step)
                there.fork = run.fork
                if move:
                    del self.runs[path]
        self.folders.append(to)
        if move:
            self.folders.remove(of)

    def unlog(self):
        run = self.runs[self.any()]
        if run.log:
            (self.base / run.log).unlink(missing_ok=True)

    def exchange(self):
        """Another run's log in the place of its own; put back."""
        path = self.any()
        run = self.runs[path]
        others = sorted(other.log for other in self.runs.values() if other.log and other.log != run.log and other.seed != run.seed)
        others = [log for log in others if (self.base / log).exists()]
        if run.log and not run.fork and others and (self.base / run.log).exists():
            kept = (self.base / run.log).read_bytes()
            shutil.copy(self.base / self.plan.choice(others), self.base / run.log)
            self.refused("is not the log of this run", "--checkpoint", path, "--resume")
            (self.base / run.log).write_bytes(kept)

    def twice(self):
        """Two at once on one checkpoint: one is refused, unless the other has ended."""
        path = self.any()
        run, before = self.runs[path], contents(self.base)
        step = min(LAST, run.step + PIECE)
        arguments = ["--checkpoint", path, "--resume", "--stop-at", str(step), "--verbose"]
        arguments += ["--log", run.log] if run.fork and run.log else []
        ends = [process.communicate() and process.returncode for process in [self.start(*arguments), self.start(*arguments)]]
        self.check(before, path, run)
        if not set(ends) <= {0, 75, 73} or ends == [73, 73]:
            raise Wrong(f"two at once on {path} end with {ends}")
        run.step, run.told, run.fork = step, step, False

    def go_on(self):
        """Returns the bytes of all runs at their end."""
        actions = [self.begin, self.go, self.go, self.copy, self.rename, self.link, self.older, self.again, self.strange, self.folder,
                   self.unlog, self.exchange, self.twice]
        for _ in range(ACTIONS):
            action = self.plan.choice(actions)
            self.done.append(action.__name__)
            action()
        self.done.append("the end")
        for path in sorted(self.runs):
            self.train(path, LAST)
        return {path: (self.base / path).read_bytes() for path in sorted(self.runs)}


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
