#!/usr/bin/env python3
"""Random training runs, stopped and resumed at random, beside the same runs uninterrupted: make test-resumes.

Options are drawn, and then how the run stops: by --stop-at, also at the step that it has reached, by signals, by SIGKILL, again and
again. A resume is given the folder, here and there by another path, and here and there options again with the values that they
have. Copies of the folder, and of a checkpoint alone, go on too; now and then the log is gone.

No resume may be refused. The run has to end in the bytes of the uninterrupted one, checkpoint.h5, best.h5 and the log (but for
`time`), and so has a copy of its folder; a copy of a checkpoint in its parameters. A run that has ended changes no byte when it is
resumed. What fails is told with its commands; --count 1 --seed N draws run N again, but for the moments of the signals."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import actions
import faults

LONGEST = 60  # seconds that a process may take
ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
ALWAYS = ["--device", "cpu", "--verbose"]
# Rows without a test part: the outputs for others.
ROWS = ["train --device cpu --quiet --data digits.h5 --hidden 16 --epochs 1 --run model",
        "predict --device cpu --quiet --data digits.h5 --part train --run model --out rows.h5"]

# Options, each with how often it is drawn, and its values; None: a flag.
SYNTHETIC = {"test-rows": (0.6, 0, 1, 20), "head": (0.5, 1, 4),
             "noise": (0.4, 0, 0.5, "5.5e18")}  # the last: squares that now and then are not finite
READ = {"standardize": (0.5, None, "no", "one")}
HELD_OUT = {"validation": (0.7, 0.1, 0.25)}
COMMON = {"accumulate": (0.4, 2, 3), "precision": (0.5, "fp32", "bf16", "fp64", "fp16"), "place": (0.5, "auto", "host", "file"),
          "plan": (0.5, "none", "activation", "norm-activation", "tail", "linear-norm", "block", "stack"), "threads": (0.1, 1, 2),
          "eps": (0.2, "1e-3"), "slope": (0.2, 0, 0.25), "weight-decay": (0.3, "0.010"), "clip": (0.3, 0.5, 100),
          "lr": (0.3, 0.001, "2e-2"), "warmup": (0.3, 0, 7, 1000), "on-nonfinite": (0.3, "skip", "stop"),
          "schedule": (0.7, "constant", "cosine", "step", "step"), "keep": (0.4, 1, 2, 4)}
SGD = {"optimizer": (1, "sgd"), "momentum": (0.6, 0.5, 0.95), "nesterov": (0.3, None)}
ADAMW = {"optimizer": (0.3, "adamw"), "beta1": (0.3, 0, 0.8), "beta2": (0.3, 0.99), "adam-eps": (0.3, "1e-6")}
STEP = {"step-every": (0.5, 10, 333), "step-factor": (0.5, 0.5, 1)}
TESTED = {"patience": (0.3, 3, 20), "best": (0.4, None)}


class Wrong(Exception):
    """What a check found: its kind, and what it is."""


def must(right, what):
    if not right:
        raise Wrong("different", what)


def draw(chance):
    """The options of a run that takes about a second at most."""
    options = {"run": "run", "seed": chance.choice([0, 3, 2**64 - 1])}

    def some(table):
        options.update({name: chance.choice(values) for name, (share, *values) in table.items() if chance.random() < share})

    kind = chance.choice(["synthetic", "synthetic", "parts", "classes", "reals"])
    if kind == "synthetic":
        rows, inputs = chance.choice([64, 250, 1000]), chance.choice([4, 16])
        options |= {"synthetic": rows, "in": inputs}
        some(SYNTHETIC)
    else:
        rows, inputs = (1437, 64) if kind == "parts" else (1200, 10)
        options |= {"data": "digits.h5"} if kind == "parts" else {"data": "rows.h5", "x": "y", "y": "label" if kind == "classes" else "y"}
        some(READ if kind == "parts" else READ | HELD_OUT)
    hidden = [8 * chance.randint(1, 3) for _ in range(chance.randint(1, 3))]
    options |= {"hidden": ",".join(map(str, hidden)), "groups": chance.choice([1, 2, 4]), "batch": chance.choice([1, 8, 16, 50])}
    some(COMMON)
    some(SGD if chance.random() < 0.4 else ADAMW)
    some(STEP if options.get("schedule") == "step" else {})
    if options.get("noise") == "5.5e18":
        options |= {"on-nonfinite": "skip", "batch": 1}
    some(TESTED if kind == "parts" or "validation" in options or (kind == "synthetic" and options.get("test-rows") != 0) else {})
    samples = options["batch"] * options.get("accumulate", 1)
    weights = sum(a * b for a, b in zip([inputs, *hidden], [*hidden, 10]))
    steps = int(chance.uniform(0.1, 1) / (1e-5 + samples * (4e-7 + 1.5e-9 * weights)))
    options |= {"steps": steps} if chance.random() < 0.5 else {"epochs": max(1, steps * samples // rows)}
    some({"save-every": (0.7, steps // 50 + 1, steps // 5 + 1, "1s")})
    some({"log-every": (0.8, 1, 10, steps // 3 + 1, 10 * steps)})  # also no line between two stops
    return options


def words(options, to=""):
    """A command line's; `to` leads to the files."""
    line = []
    for name, value in options.items():
        line += [f"--{name}"] + ([] if value is None else [f"{to if name in ('data', 'run') else ''}{value}"])
    return line


def told(text):
    return faults.told(faults.Result(0, text))


def resumed(text):
    found = re.search(r"^resuming from .*, step (\d+)$", text, re.M)
    return int(found.group(1)) if found else 0


class Sequence:
    """A run in whole/run/, and the same run in parts/run/, with its stops."""

    def __init__(self, minnow, base, rows, seed):
        self.minnow, self.base, self.chance = minnow, base, random.Random(seed)
        self.options, self.commands, self.resumes, self.copies = draw(self.chance), [], 0, 0
        self.step, self.lost, self.code = 0, False, 0  # the step that is saved, whether the log was taken away, the last exit code
        self.parts, self.whole = base / "parts", base / "whole"
        for folder in (self.parts, self.whole):
            shutil.copytree(rows, folder, ignore=shutil.ignore_patterns("model"))
            (folder / "below").mkdir()

    def run(self, folder, line, signals=()):
        """Returns the exit code, stdout and stderr. Of `signals`, each is (seconds to wait, signal)."""
        self.commands.append(f"(cd {os.path.relpath(folder, self.base)} && minnow {shlex.join(line)})" +
                             "".join(f" # {number.name} after {wait:.3f} s" for wait, number in signals))
        environment = dict(os.environ, OMP_NUM_THREADS=str(self.options.get("threads", 1)))
        with subprocess.Popen([self.minnow, *line], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            for wait, number in [*signals, (LONGEST, signal.SIGKILL), (None, None)]:
                try:
                    out, text = process.communicate(timeout=wait)
                    break
                except subprocess.TimeoutExpired:
                    process.send_signal(number)
        if wait is None:
            raise Wrong("other", f"it had not ended after {LONGEST} s")
        self.commands[-1] += f" # exit code {process.returncode}"
        return process.returncode, out, text.decode(errors="replace")

    def uninterrupted(self):
        """Measures the seconds to the first step and from there. A run of noise that diverges is drawn again."""
        began = time.monotonic()
        code, _, text = self.run(self.whole, ["train", *ALWAYS, *words(self.options)])
        if code == 1 and "training diverged" in text:
            shutil.rmtree(self.whole / "run", ignore_errors=True)
            self.options, self.commands = draw(self.chance), []
            self.uninterrupted()
            return
        if code != 0:
            raise Wrong("other", f"uninterrupted: exit code {code}: {text.strip()[-300:]}")
        self.threads = {name: self.options[name] for name in ["threads"] if name in self.options}  # of a process, not of a run
        self.last, self.log = told(text), faults.timeless(self.whole / "run/log.jsonl")
        self.running = float(re.search(r" steps in (\S+) s:", text).group(1))
        self.opening = max(0, time.monotonic() - began - self.running)

    def line(self):
        """Where to run, and the words by which the run begins or goes on."""
        folder, to = self.chance.choice([(self.parts, ""), (self.parts, "./"), (self.parts / "below", "../"),
                                         (self.base, "parts/"), (self.base, f"{self.parts}/")])
        saved = list(self.parts.glob("run/*.h5"))
        must(saved or not self.step, f"step {self.step} was saved, and is not there")
        if not saved and self.code < 0:
            shutil.rmtree(self.parts / "run", ignore_errors=True)  # what a killed run has left is in a new one's way
        if saved and self.step < self.last and self.chance.random() < 0.03:
            self.lost = True
            (self.parts / "run/log.jsonl").unlink(missing_ok=True)
        known = sorted(self.options.keys() - {"threads", "run"})
        again = {name: self.options[name] for name in self.chance.sample(known, self.chance.choice([0, 0, 1, 3]))}
        return folder, words({"run": "run", "resume": None} | self.threads | again if saved else self.options, to)

    def go(self, stop=None, signals=()):
        """Goes on until it ends or is stopped."""
        folder, line = self.line()
        resumes, sent = "--resume" in line, [number for _, number in signals]
        code, _, text = self.run(folder, ["train", *ALWAYS, *line, *(["--stop-at", str(stop)] if stop else [])], signals)
        self.resumes, self.code = self.resumes + resumes, code
        asked = [number for number in sent if number in ENDS]
        at_once = signal.SIGKILL in sent or len(asked) > 1 or "\ntraining: " not in text  # not yet watched for
        if not (code == 0 or (code == 75 and asked) or (-code in sent and at_once)):
            raise Wrong("refused" if resumes else "other", f"exit code {code}: {text.strip()[-300:]}")
        must("\nresuming from" not in text or resumed(text) >= self.step, f"step {self.step} was saved, and it resumes from {resumed(text)}")
        self.step = max(self.step, resumed(text), told(text))

    def interrupt(self):
        """Goes on until something stops it."""
        chance = self.chance
        moment = chance.uniform(0, self.opening) if chance.random() < 0.2 else \
            self.opening + chance.uniform(0, self.running) * chance.choice([0.1, 0.3, 1])
        ways = [[(moment, chance.choice(ENDS))], [(moment, chance.choice(ENDS))], [(moment, signal.SIGKILL)],
                [(moment / 2, signal.SIGUSR1), (moment / 2, chance.choice([*ENDS, signal.SIGKILL]))],
                [(moment, signal.SIGINT), (chance.choice([0, 0.001]), chance.choice([signal.SIGINT, signal.SIGTERM]))]]
        if chance.random() < 0.4:
            near = self.step + chance.choice([0, 1, chance.randint(2, 20)])
            self.go(stop=max(1, chance.choice([near, near, chance.randint(min(self.step, self.last), self.last + 5)])))
        else:
            self.go(signals=chance.choice(ways))

    def copy(self):
        """A copy of the folder, or of a checkpoint alone, goes on to the end."""
        self.copies += 1
        name, before, begun = f"copy{self.copies}", actions.contents(self.parts), 0
        file = self.chance.choice([None, *sorted(path.name for path in self.parts.glob("run/*.h5"))])
        alone = f"mkdir parts/{name} && cp parts/run/{file} parts/{name}/checkpoint.h5"
        self.commands.append(alone if file else f"cp -r parts/run parts/{name}")
        subprocess.run(self.commands[-1], shell=True, cwd=self.base, check=True)
        for stop in [*(self.chance.randint(1, self.last) for _ in range(self.chance.randrange(4))), None]:
            line = words({"run": name, "resume": None} | self.threads | ({"stop-at": stop} if stop else {}))
            code, _, text = self.run(self.parts, ["train", *ALWAYS, *line])
            self.resumes += 1
            if code != 0:
                raise Wrong("refused", f"a copy: exit code {code}: {text.strip()[-300:]}")
            begun = begun or resumed(text)
        after = {path: data for path, data in actions.contents(self.parts).items() if not path.startswith(f"{name}/")}
        must(before == after, "a copy changes a file of the run")
        if not file:
            self.compare(name)
        elif not {"best", "patience"} <= self.options.keys():  # patience counts from where it begins, for its own best
            answer = json.loads(self.run(self.base, ["diff", "--json", "whole/run", f"parts/{name}"])[1])
            differ = [each["name"] for each in answer["tensors"] + answer["attributes"]]
            must(all("best" in self.options and each.startswith("/progress best") for each in differ), f"a copy differs in {differ}")
            lines = [each for each in self.log[1:-1] if each["step"] > begun]
            must(not lines or faults.timeless(self.parts / name / "log.jsonl")[1:-1] == lines, "a copy has another log")

    def compare(self, name="run"):
        ends = [{path.name: path.read_bytes() for path in folder.glob("*t.h5")} for folder in (self.whole / "run", self.parts / name)]
        must(ends[0] == ends[1], f"another checkpoint or best in {name}")
        log, whole = faults.timeless(self.parts / name / "log.jsonl"), self.log
        if self.lost:  # one that began on the way; its end knows of no loss if nothing was left to do
            log, whole = log[1:-2], whole[len(whole) - len(log) + 1:-2]
        must(log == whole, f"another log in {name}")
        owned = r"run|copy\d+|below|(digits|rows|best|checkpoint(\.\d+)?)\.h5|log(\.unsaved-\d+)?\.jsonl"
        left = [file for file in os.listdir(self.parts) + os.listdir(self.parts / name) if not re.fullmatch(owned, file)]
        must(not left, f"left over: {left}")

    def go_on(self):
        self.uninterrupted()
        for _ in range(self.chance.randint(2, 12)):
            if self.step < self.last:
                self.interrupt()
            if (self.parts / "run/checkpoint.h5").exists() and self.chance.random() < 0.1:
                self.copy()
        self.go()
        must(self.step == self.last, f"it ends at step {self.step}, not {self.last}")
        self.compare()
        before = actions.contents(self.parts)
        self.go()
        self.interrupt()
        must(before == actions.contents(self.parts), "a resume with nothing to do changes a file")


def one(minnow, folder, rows, seed):
    """What is wrong with sequence `seed`, or None; and the sequence."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="minnow_resumes.") as base:
        sequence = Sequence(minnow, pathlib.Path(base), rows, seed)
        try:
            sequence.go_on()
        except Wrong as wrong:
            return wrong, sequence
        return None, sequence


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=60, help="runs")
    parser.add_argument("--seed", type=int, default=1, help="the first run drawn is SEED * COUNT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--folder", default=faults.FOLDER, help="where to run")
    options = parser.parse_args()
    began, found, resumes, minnow = time.monotonic(), collections.Counter(), 0, faults.built() / "minnow"
    with (tempfile.TemporaryDirectory(dir=options.folder, prefix="minnow_rows.") as rows,
          concurrent.futures.ThreadPoolExecutor(options.jobs) as pool):
        shutil.copy("data/digits.h5", rows)
        for line in ROWS:
            subprocess.run([minnow, *line.split()], cwd=rows, stdout=subprocess.DEVNULL, check=True)
        seeds = range(options.seed * options.count, (options.seed + 1) * options.count)
        for seed, (wrong, sequence) in zip(seeds, pool.map(lambda seed: one(minnow, options.folder, rows, seed), seeds)):
            resumes += sequence.resumes
            if wrong:
                found[wrong.args[0]] += 1
                print(f"run {seed}: {wrong.args[1]}", "with a copy of data/digits.h5 in whole and parts:", *(f"minnow {line}" for line in ROWS),
                      *sequence.commands, sep="\n    ", flush=True)
    failures = sum(found.values())
    print(f"{resumes} resumes, {time.monotonic() - began:.0f} s: {found['refused']} refused, {found['different']} different; "
          f"runs: {options.count - failures} passed, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
