"""Runs `minnow train` and `minnow bench` for train.py, and reads what they tell."""
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import time

from child import Failure

LOOK_S = 0.002  # between two looks at the log for its first step
ENDING_S = 60  # what a run that was told to stop may still take, for a last checkpoint


def environment(cores):
  """Two threads on two cores, where a figure is of the CPU; else everything that is there."""
  return {**os.environ, "OMP_NUM_THREADS": str(len(cores))} if cores else None


def pin(cores):
  return (lambda: os.sched_setaffinity(0, cores)) if cores else None


def last_line(path):
  """minnow's own, where there is one: a launcher has its say after it."""
  lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
  own = [line for line in lines if line.startswith("minnow: ")]
  return (own or lines or [""])[-1][:200]


def places(minnow):
  """The words of `minnow train --place`, or [] of a minnow that has no such option."""
  try:
    told = subprocess.run([minnow, "train", "--help"], check=True, capture_output=True, text=True, timeout=60).stdout
  except (OSError, subprocess.SubprocessError) as error:
    raise Failure(f"{minnow} train --help: {error}") from None
  return [place for place in ("device", "host", "file") if "--place" in told]


class Run:
  """A `minnow train` into the new folder run/ in `folder`. `limit_s` after its first step it is told to stop, and what it
  had done by then counts. launcher: what starts it, such as mpirun and its options."""

  def __init__(self, minnow, arguments, steps, every, folder, limit_s, cores=None, launcher=()):
    self.log, self.errors = pathlib.Path(folder) / "run/log.jsonl", pathlib.Path(folder) / "train.txt"
    shutil.rmtree(self.log.parent, ignore_errors=True)
    self.limit_s, self.first_s, self.stopped = limit_s, None, False
    command = [*launcher, minnow, "train", *arguments, "--steps", str(steps), "--run", str(self.log.parent),
               "--log-every", str(every), "--quiet"]
    self.start = time.perf_counter()
    try:
      with open(self.errors, "w") as errors:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment(cores),
                                        preexec_fn=pin(cores))
    except OSError as error:
      raise Failure(f"{command[0]}: {error}") from None
    try:
      code = self.watch()
    finally:
      if self.process.poll() is None:
        self.process.kill()
        self.process.wait()
    self.wall_s = time.perf_counter() - self.start
    self.first_s = self.first_s or self.wall_s  # it ended between two looks
    if code != 0 and not (code == 75 and self.stopped):
      raise Failure(f"minnow train ended with {code}: {last_line(self.errors)}")

  def watch(self):
    """Waits for the end, and notes the time from the start of the process to the first line of a step."""
    late = self.start + self.limit_s
    while self.process.poll() is None and time.perf_counter() < late and self.first_s is None:
      if self.log.exists() and '"event":"step"' in self.log.read_text():
        self.first_s = time.perf_counter() - self.start
      time.sleep(LOOK_S)
    try:
      return self.process.wait(self.limit_s)
    except subprocess.TimeoutExpired:
      self.stopped = True
      self.process.send_signal(signal.SIGTERM)
    try:
      return self.process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
      raise Failure(f"minnow train did not end in {ENDING_S} s after it was told to") from None

  def figure(self, batch):
    """Samples per second from a third of the steps on, when clocks and caches are warm. Stretches between two lines in
    which the model was evaluated do not count."""
    lines = [json.loads(line) for line in self.log.read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    samples, seconds, before = 0, 0, None
    for line in lines:
      if line["event"] == "eval":
        before = None
      if line["event"] != "step" or line["step"] < steps[-1]["step"] / 3:
        continue
      if before:
        samples += line["samples"] - before["samples"]
        seconds += line["time"]["seconds"] - before["time"]["seconds"]
      before = line
    if seconds <= 0:
      raise Failure(f"only {len(steps)} lines of steps in {self.wall_s:.1f} s")
    if not all(isinstance(line["loss"], (int, float)) and math.isfinite(line["loss"]) for line in steps):
      raise Failure("a loss that is not finite: this time means nothing")
    return {"ms": 1e3 * batch * seconds / samples, "first_s": self.first_s, "wall_s": self.wall_s,
            "steps": steps[-1]["step"], "stopped": self.stopped, "loss": steps[-1]["loss"]}


def bench(minnow, arguments, patience, cores=None):
  """The milliseconds of a step in `minnow bench`: the median of intervals without a pause between them, on the device's
  own clock, after 0.2 s of warm-up on a GPU (train/check/bench.c)."""
  command = [minnow, "bench", *arguments, "--json", "--quiet"]
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment(cores),
                          preexec_fn=pin(cores))
  except subprocess.TimeoutExpired:
    raise Failure(f"minnow bench: killed by us, it took longer than {patience:g} s") from None
  except OSError as error:
    raise Failure(f"minnow bench: {error}") from None
  if done.returncode != 0:
    raise Failure(f"minnow bench ended with {done.returncode}: {done.stderr.strip()[-200:]}")
  return {"ms": json.loads(done.stdout)["step_ms"]}
