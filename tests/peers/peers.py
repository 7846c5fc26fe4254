"""minnow, PyTorch and JAX timed on one device, in one run and in the same way (timing.py): `make peers ARGS=…`.

Each peer runs in a process of its own, because each brings its own CUDA libraries. One request is made at a time, so
that no two compute at once. Tables go to stdout as they are done, progress to stderr. A peer or a variant that is
missing or fails is listed with its reason; the exit code is 1 only if there is no figure of minnow's."""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import threading
import time

import tables

SHAPES = ["1024x8192x8192/512", "1024x4096x4096/256", "8192x8192x8192/512", "128x512x256/8"]
PEERS = ["minnow", "torch", "jax"]
PRECISIONS = ["bf16", "fp32", "tf32"]


class Failure(Exception):
  """What a child could not do, in one line."""


class Child:
  """A peer's process. After a failure it is stopped, and started again for the next shape: a CUDA error can make every
  later call of the process fail."""

  def __init__(self, peer, options, log):
    self.peer, self.options, self.process, self.suspect = peer, options, None, False
    self.log = pathlib.Path(log) / f"{peer}.log"

  def start(self):
    self.stop()
    device = self.options.device
    environment = {"BUILD": "build", **os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": device}
    script = pathlib.Path(__file__).with_name(f"{self.peer}_peer.py")
    with open(self.log, "w") as log:
      self.process = subprocess.Popen([sys.executable, script, device], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=log, text=True)

  def stop(self):
    if self.process:
      self.process.kill()
      self.process.communicate()
    self.process, self.suspect = None, False

  def ask(self, do, **arguments):
    if not self.process:
      self.start()
    late = threading.Timer(self.options.patience, self.process.kill)
    late.start()
    try:
      self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
      self.process.stdin.flush()
      line = self.process.stdout.readline()
    except BrokenPipeError:
      line = ""
    finally:
      late.cancel()
    reply = json.loads(line) if line else {"error": self.last_words()}
    if "error" in reply:
      self.suspect = True
      raise Failure(reply["error"])
    return reply["value"]

  def last_words(self):
    code = self.process.wait()
    if code == -9:
      return f"killed, by us if it took longer than {self.options.patience:g} s"
    lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"ended with {code}"


def say(text):
  print(f"[{time.perf_counter() - START:5.0f} s] {text}", file=sys.stderr, flush=True)


def prepare(children, shape, precision):
  """What every peer offers at this shape, by (row, what), and the (child, row, what) that are ready to be timed."""
  figures, ready = {}, []
  for child in children:
    try:
      subjects = child.ask("open", shape=tables.numbers(shape), precision=precision)
    except Failure as failure:
      figures[child.peer, "all"] = {"failed": str(failure)}
      continue
    for row, what in subjects:
      say(f"{shape} {precision}: {row}, {what}")
      try:
        figures[row, what] = child.ask("prepare", row=row, what=what) or {}
        ready.append((child, row, what))
      except Failure as failure:
        figures[row, what] = {"failed": str(failure)}
  return figures, ready


def measure(children, shape, precision, options):
  """Every subject of every peer, in one order and then in the reverse order, so that a drift of the clocks affects all
  alike. Each way of timing (timing.py) gives two medians."""
  figures, ready = prepare(children, shape, precision)
  for number, order in enumerate((ready, ready[::-1])):
    say(f"{shape} {precision}: timing {len(ready)} subjects, round {number + 1} of 2")
    for child, row, what in order:
      figure = figures[row, what]
      try:
        taken = child.ask("time", row=row, what=what, warm_s=options.warm, budget_s=options.seconds)
        for way, round_ in taken.items():
          figure.setdefault(way, []).append(round_)
      except Failure as failure:
        figures[row, what] = {"failed": str(failure)}
  close(children)
  return figures


def close(children):
  for child in children:
    try:
      child.ask("close")
    except Failure:
      pass  # the process is stopped below
    if child.suspect:
      child.stop()


def kernelbench(children, precision, options, folder):
  """Forward alone under KernelBench's rules. PyTorch's process makes the inputs and the reference, and judges."""
  there, figures = {child.peer: child for child in children}, {}
  shape = tables.numbers(options.kernelbench_shape)
  for peer in ("torch", "minnow"):  # in this order: minnow reads the inputs that PyTorch has written
    try:
      if peer not in there:
        raise Failure("not there")
      rows = there[peer].ask("kernelbench_open", folder=folder, shape=shape, precision=precision)
    except Failure as failure:
      figures[peer, "all"] = {"failed": str(failure)}
      break
    for row in rows:
      say(f"KernelBench {precision}: {row}")
      try:
        figures[row, "forward"] = {**there[peer].ask("kernelbench", row=row), **there["torch"].ask("judge")}
      except Failure as failure:
        figures[row, "forward"] = {"failed": str(failure)}
  if ("torch", "all") not in figures:
    try:
      figures["float64, rounded", "forward"] = there["torch"].ask("judge_exact")
    except Failure as failure:
      figures["float64, rounded", "forward"] = {"failed": str(failure)}
  close(children)
  return figures


def parse():
  parser = argparse.ArgumentParser(prog="make peers ARGS=…",
                                   description="Times minnow, PyTorch and JAX on one device, all alike.")
  parser.add_argument("--shape", action="append", help=f"NxIxC/G, repeatable; default {' '.join(SHAPES)}")
  parser.add_argument("--precision", action="append", choices=PRECISIONS,
                      help="repeatable; default bf16, and all three under KernelBench's rules")
  parser.add_argument("--peers", default=",".join(PEERS), help="of %(default)s")
  parser.add_argument("--kernelbench", choices=["also", "only", "no"], default="also",
                      help="KernelBench's protocol on level 2, problem 62; default %(default)s")
  parser.add_argument("--kernelbench-shape", default=SHAPES[0], help="default %(default)s")
  parser.add_argument("--seconds", type=float, default=0.4, help="a figure that takes four times this long ends early; default %(default)s")
  parser.add_argument("--warm", type=float, default=0.15, help="seconds before them; default %(default)s")
  parser.add_argument("--patience", type=float, default=300,
                      help="seconds after which a peer that does not answer is given up; default %(default)s")
  parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a dry run; default %(default)s")
  parser.add_argument("--json", help="a file for the raw figures")
  options = parser.parse_args()
  options.peers = options.peers.split(",")
  for name in options.peers:
    if name not in PEERS:
      parser.error(f"no peer is called '{name}'; {', '.join(PEERS)} are")
  try:
    for shape in (options.shape or []) + [options.kernelbench_shape]:
      tables.numbers(shape)
  except ValueError:
    parser.error(f"'{shape}' is no shape; {SHAPES[0]} is")
  return options


def device_name(device):
  if device == "cpu":
    return "CPU, a dry run"
  query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
  try:
    told = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()
    return told[0].replace(", ", ", driver ")
  except (OSError, subprocess.CalledProcessError, IndexError):
    return "a GPU that nvidia-smi does not name"


def meet(options, log):
  """The peers that are there, and the header that names them and those that are not."""
  children, names = [], [device_name(options.device)]
  for peer in options.peers:
    say(f"starting {peer}")
    child = Child(peer, options, log)
    try:
      names.append(child.ask("about"))
      children.append(child)
    except Failure as failure:
      child.stop()
      names.append(f"no {peer}: {failure}")
  arguments = f' ARGS="{shlex.join(sys.argv[1:])}"' if sys.argv[1:] else ""
  return children, "\n".join([*names, f"make peers{arguments}"])


def main():
  options, record = parse(), []

  def report(table, shape, precision, figures):
    print(table(shape, precision, figures), flush=True)
    for (row, what), figure in figures.items():
      about = {"table": table.__name__, "shape": shape, "precision": precision, "row": row, "what": what}
      record.append({**about, **figure})

  with tempfile.TemporaryDirectory() as folder:
    children, header = meet(options, folder)
    try:
      print(header, flush=True)
      for shape in (options.shape or SHAPES) if options.kernelbench != "only" else []:
        for precision in options.precision or ["bf16"]:
          report(tables.peers, shape, precision, measure(children, shape, precision, options))
      for precision in (options.precision or PRECISIONS) if options.kernelbench != "no" else []:
        figures = kernelbench(children, precision, options, folder)
        report(tables.kernelbench, options.kernelbench_shape, precision, figures)
    finally:
      for child in children:
        child.stop()
  if options.json:
    text = json.dumps({"header": header.splitlines(), "figures": record}, indent=1)
    pathlib.Path(options.json).write_text(text + "\n")
  return 0 if any(entry["row"] == "minnow" and "failed" not in entry for entry in record) else 1


START = time.perf_counter()
if __name__ == "__main__":
  sys.exit(main())
