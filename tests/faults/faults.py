#!/usr/bin/env python3
"""Makes every call of a training run fail in turn, and checks that nothing is lost: make test-faults.

For each class of calls (inject.c) and each k up to the number that a run makes, the k-th call fails, once or from then on, in
new and resumed runs. Whatever comes of it, the run has to end by itself with a documented exit code and one line that says why;
what it has told of as saved has to be there; and the next run, undisturbed, has to end in the same bytes as one that never was
disturbed, checkpoint and log (but for `time`), with no file left over.

  make test-faults ARGS="--sample 6"      6 runs of each class, drawn by --seed; without, all, which take hours
  make test-faults ARGS="--only write"    one class (--without write: the others); --show prints every failure's output
  make test-faults ARGS="--device cuda"   on the GPU that is here: every call of CUDA's runtime and of cuBLASLt
"""
import argparse
import collections
import concurrent.futures
import errno
import json
import os
import pathlib
import queue
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

# The classes in the order of inject.c, each with how its calls fail: (what, how many calls; 0: all from then on).
CLASSES = {
    "memory": [("ENOMEM", 1), ("ENOMEM", 0)],
    "library-memory": [("ENOMEM", 1), ("ENOMEM", 0)],
    "hdf5": [("EIO", 1)],
    "thread": [("EAGAIN", 1), ("EAGAIN", 0)],
    "any": [("EIO", 0), ("ENOMEM", 1)],
    "open": [("EIO", 1), ("EMFILE", 1), ("ENOSPC", 0), ("EINTR", 1)],
    "close": [("EIO", 1), ("ENOSPC", 1), ("EIO", 0)],
    "read": [("EIO", 1), ("EIO", 0), ("EINTR", 1), ("short", 1)],
    "write": [("ENOSPC", 1), ("ENOSPC", 0), ("ENOSPC", 4), ("EIO", 1), ("EINTR", 1), ("short", 1), ("short", 0)],
    "fsync": [("EIO", 1), ("ENOSPC", 0), ("EINTR", 1)],
    "rename": [("EIO", 1), ("EIO", 0), ("ENOSPC", 1)],
    "unlink": [("EIO", 1), ("EPERM", 0)],
    "link": [("EIO", 1), ("EPERM", 1), ("EPERM", 0), ("ENOSPC", 1)],
    "access": [("EIO", 1), ("ENOMEM", 1), ("EACCES", 1)],
    "stat": [("EIO", 1), ("EIO", 0), ("ENOMEM", 1), ("EACCES", 1)],
    "truncate": [("EIO", 1), ("ENOSPC", 0)],
    "lock": [("EIO", 1), ("EOPNOTSUPP", 0), ("EINTR", 1), ("ENOLCK", 1)],
    "list": [("EIO", 1), ("EIO", 0)],
    "readlink": [("EIO", 1), ("ENOMEM", 1)],
    "seek": [("EIO", 1)],
    "disk": [("EIO", 1), ("ENOSYS", 0)],
    "device": [("ENOMEM", 1)],
}
DOCUMENTED = {0, 65, 66, 69, 70, 71, 73, 74, 75}
FOREIGN = re.compile(r"HDF5-DIAG|libgomp|corrupt|free\(\)|broken invariant|Sanitizer|error while loading", re.I)
REPORT = struct.Struct(f"<{len(CLASSES)}QQQ200s")
LONGEST = 10  # seconds a run may take
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where nothing waits for a disk

SIZES = ["--device", "cpu", "--hidden", "8", "--groups", "2", "--seed", "3"]
SYNTHETIC = SIZES + ["--synthetic", "64", "--in", "8", "--batch", "8", "--steps", "12"]


class Report:
    """What inject.c wrote of a run."""

    def __init__(self, path):
        data = path.read_bytes() if path.exists() else b""
        values = REPORT.unpack(data[: REPORT.size]) if len(data) >= REPORT.size else (0,) * (len(CLASSES) + 2) + (b"",)
        self.counts = dict(zip(CLASSES, values))
        self.failed = values[-3]
        self.origin = f"{values[-1].split(bytes(1))[0].decode().rsplit('/', 1)[-1]}+{values[-2]:#x}"


class Scenario:
    """A training run in a folder: its command, the files it begins with, and those it ends with undisturbed. A checkpoint
    tells where the data are from its folder, so every folder has a scenario of its own."""

    def __init__(self, name, folder, tools, options, before):
        self.name, self.folder, self.tools, self.options, self.before = name, folder, tools, options, before
        self.data = options[options.index("--data"):][:2] if "--data" in options else []  # outside the folder: named again
        self.start = {}
        self.clear()
        if before:
            self.run(self.command(new=True) + ["--stop-at", str(before)], must=True)
            self.start = contents(folder)
        self.run(self.command(new=not before), must=True)
        self.counts = Report(folder / "report").counts
        self.checkpoint = (folder / "run/checkpoint.h5").read_bytes()
        self.log = timeless(folder / "run/log.jsonl")
        self.names = {"checkpoint.h5", "log.jsonl", "log.unsaved-1.jsonl", *["best.h5"] * ("--best" in options)}
        self.names |= {f"checkpoint.{i}.h5" for i in range(1, 4)}

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, data in self.start.items():
            (self.folder / "run").mkdir(exist_ok=True)
            (self.folder / "run" / name).write_bytes(data)

    def command(self, new):
        return ["train", "--verbose", "--run", "run", *(self.options if new else ["--resume", *self.data])]

    def is_new(self):
        """Whether nothing is saved; what else there is of a run is removed then, as a new one wants it."""
        new = not list(self.folder.glob("run/checkpoint*.h5"))
        if new:
            shutil.rmtree(self.folder / "run", ignore_errors=True)
        return new

    def run(self, command, fault=None, must=False):
        result = self.tools.run(self.folder, command, fault)
        if must and result.code != 0:
            sys.exit(f"{self.name}: an undisturbed run fails: {result.error}")
        return result


def built():
    return pathlib.Path(os.environ.get("BUILD", "build")).resolve()


Result = collections.namedtuple("Result", "code error")


class Tools:
    """The program, and how it is run."""

    def __init__(self, build, sanitized=False, device="cpu"):
        self.minnow, self.preload, self.sanitized = build / "minnow", str(build / "tests/faults/inject.so"), sanitized
        if device == "cuda":
            self.minnow = build / "tests/faults/minnow"
        if sanitized:
            library = subprocess.run(["gcc", "-print-file-name=libasan.so"], stdout=subprocess.PIPE, check=True, text=True)
            self.preload += ":" + library.stdout.strip()

    def run(self, folder, command, fault=None):
        environment = dict(os.environ, LD_PRELOAD=self.preload, INJECT_REPORT="report", OMP_NUM_THREADS="1")
        if fault:
            environment["INJECT"] = fault
        if self.sanitized:
            # The search for leaks makes system calls with signals blocked, which the filter would end. HDF5 leaks on errors.
            ours = bool(fault) and fault.split()[0] in ("memory", "thread")
            environment["ASAN_OPTIONS"] = f"verify_asan_link_order=0:detect_leaks={int(ours)}"
            if ours:
                environment["INJECT_FUNCTIONS"] = "1"
        try:
            done = subprocess.run([self.minnow, *command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired as late:
            return Result("hang", (late.stderr or b"").decode(errors="replace"))
        return Result(done.returncode, done.stderr.decode(errors="replace"))


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "run").iterdir()}


def timeless(path):
    """The log's lines without what depends on the clock; a line that is not whole as it is."""
    lines = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            lines.append({key: value for key, value in json.loads(line).items() if key != "time"})
        except ValueError:
            lines.append(line)
    return lines


def ended_by_library(result):
    """Whether the run was ended inside a library that lacked memory: HDF5 follows a null pointer or frees twice, libgomp exits."""
    return result.code not in DOCUMENTED | {"hang"}


def complaints(trial, result):
    """What is wrong with how a disturbed run ended."""
    lines = result.error.splitlines()
    errors = [line for line in lines if line.startswith("minnow: ") and not line.startswith("minnow: warning: ")]
    if trial.kind == "library-memory" and ended_by_library(result):
        return
    if result.code not in DOCUMENTED:
        yield f"ended with {result.code}"
    elif len(errors) != (result.code != 0):
        yield f"exit {result.code} with {len(errors)} lines of error"
    if trial.kind == "library-memory":
        return  # the C library and libgomp add lines of their own
    if any(FOREIGN.search(line) for line in lines if not line.startswith("note: ")):
        yield "another's message"


def told(result):
    return max([int(step) for step in re.findall(r"^saved step (\d+) to", result.error, re.M)], default=0)


def lacks_lines(log, whole):
    """Whether a log is the whole one without some lines, and perhaps with another end: that of a run with nothing to do."""
    rest = iter(whole)
    return all(line in rest for line in log if line == b"" or line.get("event") != "end")


def goes_on(scenario, least, log_failed):
    """Runs undisturbed from what the disturbed run has left, to the end; what is wrong with that. Of a log that could not be
    written, and whose run has said so, lines may be missing."""
    folder = scenario.folder
    new = scenario.is_new()
    if new and least > 0:
        yield f"step {least} was saved, and is not there"
        return
    result = scenario.run(scenario.command(new))
    if result.code != 0:
        yield f"the next run fails: {result.code}: {result.error.splitlines()[-1:]}"
        return
    found = re.search(r"^resuming from .*, step (\d+)$", result.error, re.M)
    if not new and int(found.group(1)) < least:
        yield f"step {least} was saved, and step {found.group(1)} is there"
    if "passed over" in result.error:
        yield "a damaged checkpoint: " + result.error.splitlines()[0]
    if (folder / "run/checkpoint.h5").read_bytes() != scenario.checkpoint:
        yield "another checkpoint in the end"
    log = timeless(folder / "run/log.jsonl")
    if log != scenario.log and not (log_failed and lacks_lines(log, scenario.log)):
        yield "another log in the end"
    left = set(contents(folder)) - scenario.names
    if left:
        yield f"left over: {sorted(left)}"


Trial = collections.namedtuple("Trial", "scenario kind k what many")


def attempt(scenario, trial):
    """One disturbed run, and what comes after it. Returns the report of the first, what is wrong, and how it ended."""
    folder = scenario.folder
    scenario.clear()
    what = str(getattr(errno, trial.what, trial.what))
    result = scenario.run(scenario.command(new=not scenario.before), f"{trial.kind} {trial.k} {what} {trial.many}")
    report = Report(folder / "report")
    problems = []
    if report.failed:
        problems += complaints(trial, result)
        if result.code == 0 and (folder / "run/checkpoint.h5").exists() and (folder / "run/checkpoint.h5").read_bytes() != scenario.checkpoint:
            problems.append("exit 0 with another checkpoint")
        if result.code == 0 and timeless(folder / "run/log.jsonl") != scenario.log:
            problems.append("exit 0 with another log")
        problems += goes_on(scenario, max(told(result), scenario.before), trial.many == 0 or "run/log.jsonl: " in result.error)
    return report, problems, result


def trials_of(number, scenario, kinds):
    for kind in kinds:
        last = scenario.counts[kind]
        for k in range(1, last + max(3, last // 20)):  # a few more: no two runs make quite as many
            for what, many in CLASSES[kind]:
                yield Trial(number, kind, k, what, many)


def make_scenarios(tools, data, folder):
    # The place is named: the fingerprint of rows that wait in the file, as they would if none told how much memory is left, is another.
    rows = SIZES + ["--data", str(data), "--place", "host", "--batch", "128", "--steps", "12", "--save-every", "4", "--keep", "3"]
    few = SYNTHETIC + ["--save-every", "4", "--keep", "1"]
    return [
        Scenario("new", folder, tools, few, 0),
        Scenario("resumed", folder, tools, few, 4),
        Scenario("new, keep 3, rows of a file", folder, tools, rows, 0),
        Scenario("resumed, keep 3, best, rows of a file", folder, tools, rows + ["--best"], 8),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, metavar="N", help="so many runs of each class, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    parser.add_argument("--only", action="append", choices=list(CLASSES), help="this class; may be given several times")
    parser.add_argument("--without", action="append", default=[], choices=list(CLASSES), help="all but this class")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the runs train")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--show", action="store_true", help="print what each run that failed a check wrote")
    parser.add_argument("--folder", default=FOLDER, help="where to run")
    parser.add_argument("--sanitized", action="store_true",
                        help="the build is one of SANITIZE=address: leaks are looked for where memory or a thread is lacking")
    options = parser.parse_args()
    SIZES[1] = SYNTHETIC[1] = options.device
    kinds = options.only or [kind for kind in CLASSES if (kind == "device") == (options.device == "cuda")]
    kinds = [kind for kind in kinds if kind not in options.without]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="minnow_faults.") as base:
        tools, data = Tools(built(), options.sanitized, options.device), pathlib.Path("data/digits.h5").resolve()
        folders = queue.SimpleQueue()
        for i in range(options.jobs):
            folders.put(make_scenarios(tools, data, pathlib.Path(base, str(i))))
        scenarios = folders.get()
        folders.put(scenarios)
        trials = [trial for number, scenario in enumerate(scenarios)
                  for trial in trials_of(number, scenario, kinds)]
        random.Random(options.seed).shuffle(trials)
        chosen = [trial for kind in kinds for trial in [trial for trial in trials if trial.kind == kind][: options.sample]]
        print(f"{len(chosen)} of {len(trials)} runs", flush=True)
        sys.exit(run_all(chosen, folders, options))


def run_all(trials, folders, options):
    met, done, crashed = collections.Counter(), collections.Counter(), collections.Counter()
    failures = 0

    def one(trial):
        scenarios = folders.get()
        try:
            return trial, scenarios[trial.scenario].name, *attempt(scenarios[trial.scenario], trial)
        finally:
            folders.put(scenarios)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for trial, name, report, problems, result in pool.map(one, trials):
            done[trial.kind] += 1
            met[trial.kind] += report.failed > 0
            crashed[trial.kind] += ended_by_library(result)
            if not problems:
                continue
            failures += 1
            print(f"{name}: {trial.kind} {trial.k} {trial.what} x {trial.many} at {report.origin}: "
                  f"exit {result.code}: {'; '.join(problems)}", flush=True)
            if options.show:
                print("    " + result.error.replace("\n", "\n    "))
    for kind in CLASSES:
        if done[kind]:
            note = f", {crashed[kind]} ended inside a library" if crashed[kind] else ""
            print(f"{kind:16} {done[kind]:7} runs, {met[kind]:7} with the fault met{note}")
    print(f"{len(trials) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    main()
