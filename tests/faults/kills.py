#!/usr/bin/env python3
"""Kills training runs (SIGKILL), and checks that the run that is resumed through it all ends in the bytes of one that never was
killed, checkpoint and log (but for `time`): make test-kills.

First at every system call on a file (inject.c), in new and resumed runs; then at random moments, again and again, until the run
ends by itself; then beside a run a second one in the same folder, which has to be refused.

  make test-kills ARGS="--count 1000 --seed 1"     so many kills at random moments
  make test-kills ARGS="--sample 30"               kills at 30 of the calls
"""
import argparse
import concurrent.futures
import os
import pathlib
import queue
import random
import signal
import subprocess
import sys
import tempfile
import time

import faults

LONG = faults.SIZES + ["--synthetic", "64", "--in", "8", "--batch", "8", "--steps", "4000", "--log-every", "50",
                       "--save-every", "100", "--keep", "3"]
MOMENT = 0.08  # seconds after its start in which a run is killed


def kill_at_call(scenario, k):
    """Whether there was a k-th call, and what is wrong after the kill there."""
    scenario.clear()
    result = scenario.run(scenario.command(new=not scenario.before), f"any {k} kill 1")
    if not faults.Report(scenario.folder / "report").failed:
        return False, []
    problems = [] if result.code == -signal.SIGKILL else [f"ended with {result.code}"]
    return True, problems + list(faults.goes_on(scenario, max(faults.told(result), scenario.before), False))


def at_every_call(folders, options):
    scenarios = folders.get()
    folders.put(scenarios)
    trials = [(number, k) for number, scenario in enumerate(scenarios) for k in range(1, scenario.counts["any"] + 20)]
    random.Random(options.seed).shuffle(trials)
    failures, met = 0, 0

    def one(trial):
        scenarios = folders.get()
        try:
            return trial, scenarios[trial[0]].name, *kill_at_call(scenarios[trial[0]], trial[1])
        finally:
            folders.put(scenarios)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for trial, name, killed, problems in pool.map(one, trials[: options.sample]):
            met += killed
            failures += bool(problems)
            if problems:
                print(f"{name}: killed at call {trial[1]}: {'; '.join(problems)}", flush=True)
    print(f"kills at system calls: {met - failures} passed, {failures} failed")
    return failures


class Chain:
    """A run that is killed and resumed until it ends."""

    def __init__(self, scenario, chance):
        self.scenario, self.chance, self.saved = scenario, chance, 0

    def start(self):
        scenario = self.scenario
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        return subprocess.Popen([scenario.tools.minnow, *scenario.command(scenario.is_new())], cwd=scenario.folder, env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def go(self, most):
        """Kills it up to `most` times. Returns how often, and what is wrong."""
        self.scenario.clear()
        self.saved = 0
        for kills in range(most):
            process = self.start()
            time.sleep(self.chance.uniform(0, MOMENT))
            process.kill()
            text = process.communicate()[1].decode(errors="replace")
            self.saved = max(self.saved, faults.told(faults.Result(0, text)))
            if process.returncode == 0:
                return kills, list(faults.goes_on(self.scenario, self.saved, False))
            if process.returncode != -signal.SIGKILL:
                return kills, [f"ended with {process.returncode}: {text[-300:]}"]
        return most, list(faults.goes_on(self.scenario, self.saved, False))


def at_random_moments(scenarios, options):
    failures, done, chains = 0, 0, 0
    each = options.count // options.jobs

    def work(number):
        chance, results, left = random.Random(options.seed * 1000 + number), [], each
        while left > 0:
            kills, problems = Chain(scenarios[number], chance).go(min(left, 25))
            results.append((kills, problems))
            left -= max(kills, 1)
        return results

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for results in pool.map(work, range(options.jobs)):
            for kills, problems in results:
                done, chains, failures = done + kills, chains + 1, failures + bool(problems)
                if problems:
                    print(f"after {kills} kills at random moments: {'; '.join(problems)}", flush=True)
    print(f"{done} kills at random moments in {chains} runs: {chains - failures} passed, {failures} failed")
    return failures


def a_second_run(scenario, times):
    """Whether a second run in the same folder is refused while one trains, and does that one no harm."""
    failures = 0
    for _ in range(times):
        scenario.clear()
        first = Chain(scenario, None).start()
        while not (scenario.folder / "run/log.jsonl").exists() and first.poll() is None:  # made once the lock is held
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)  # so that it holds its lock while the second asks
        second = [scenario.run(scenario.command(new)) for new in (True, False)]
        first.send_signal(signal.SIGCONT)
        text = first.communicate()[1].decode(errors="replace")
        problems = [f"the second ends with {result.code}: {result.error}" for result in second if result.code != 73]
        if first.returncode != 0:
            problems.append(f"the first ends with {first.returncode}: {text[-300:]}")
        problems += faults.goes_on(scenario, 0, False)
        failures += bool(problems)
        for problem in problems:
            print(f"two runs in one folder: {problem}")
    print(f"second runs in a folder: {times - failures} passed, {failures} failed")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="kills at random moments")
    parser.add_argument("--sample", type=int, metavar="N", help="kills at so many of the calls, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the moments, and of the order")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--folder", default=faults.FOLDER, help="where to run")
    options = parser.parse_args()
    tools, data = faults.Tools(faults.built()), pathlib.Path("data/digits.h5").resolve()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="minnow_kills.") as base:
        folders = queue.SimpleQueue()
        for i in range(options.jobs):
            folders.put(faults.make_scenarios(tools, data, pathlib.Path(base, str(i))))
        failures = at_every_call(folders, options)
        long = [faults.Scenario("long", pathlib.Path(base, f"long{i}"), tools, LONG, 0) for i in range(options.jobs)]
        failures += at_random_moments(long, options)
        failures += a_second_run(long[0], 10)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
