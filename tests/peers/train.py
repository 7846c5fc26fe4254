"""Whole runs of `minnow train` beside the training loops of PyTorch and JAX, in one run: `make peers ARGS="--train"`.

Where peers.py times a step on data that lie ready, this times training: rows are drawn, moved and logged, checkpoints
written. minnow is the command, run as a user runs it; its samples per second are those of its log, from a third of the
steps on. minnow's runs come first, while no other process is on the device; then each peer's, one at a time. What is
missing or fails is listed with its reason; the exit code is 1 only if there is no figure of minnow's."""
import argparse
import collections
import functools
import json
import multiprocessing
import os
import pathlib
import tempfile

import train_files
import train_minnow
import train_tables as tables
from child import Failure, close, meet, say

PEERS = {"minnow": "minnow_peer.py", "torch": "train_torch.py", "jax": "train_jax.py"}

Shape = collections.namedtuple("Shape", "rows inputs channels groups batch")
SHAPES = {"reference": Shape(16384, 8192, (8192,), 512, 1024), "small": Shape(65536, 512, (256,), 8, 128),
          "stack": Shape(8192, 4096, (4096,) * 3, 256, 1024), "64x5": Shape(524288, 64, (64,) * 5, 8, 65536),
          "128x4": Shape(262144, 128, (128,) * 4, 16, 16384), "256x2": Shape(131072, 256, (256,) * 2, 16, 16384),
          "cpu": Shape(4096, 1024, (1024,), 64, 256)}
QUICK = {"reference": Shape(512, 64, (64,), 8, 64), "small": Shape(1024, 32, (16,), 4, 32),
         "stack": Shape(512, 32, (32,) * 3, 4, 64), "64x5": Shape(512, 16, (16,) * 5, 4, 64),
         "128x4": Shape(512, 16, (16,) * 4, 4, 64), "256x2": Shape(512, 32, (32,) * 2, 4, 64),
         "cpu": Shape(512, 64, (64,), 8, 64)}
DIGITS = Shape(1437, 64, (128,), 8, 64)
# Steps of a run, by part and placement: two seconds or so on an H200.
STEPS = {"reference": {"device": 3000, "host": 1500, "file": 400}, "saves": 1500, "synthetic": 3000,
         "small": {"device": 200000, "host": 100000, "file": 20000}, "stack": 3000, "64x5": 20000,
         "128x4": 25000, "256x2": 20000, "cpu": 3000, "digits": 30000}
SAVE_EVERY = 50


def model(shape, precision):
  """The options that `minnow train` and `minnow bench` share."""
  return ["--hidden", ",".join(map(str, shape.channels)), "--groups", str(shape.groups), "--batch", str(shape.batch),
          "--precision", precision]


class Work:
  """What the parts have in common: the options, the peers that are there, and the file of a shape."""

  def __init__(self, options, children, folder):
    self.options, self.folder, self.data, self.offsets = options, pathlib.Path(folder), None, None
    self.peers = {child.peer: child for child in children}
    self.shapes = QUICK if options.quick else SHAPES
    self.known = {}  # the figures of the parts so far
    self.places = [] if options.without_place else train_minnow.places(options.minnow)

  def file(self, name):
    """The file of this shape, in place of the one there was."""
    path, shape = self.folder / f"{name}.h5", self.shapes[name]
    if self.data != path:
      if self.data:
        self.data.unlink()
      say(f"writing {path}, x [{shape.rows}, {shape.inputs}] and y [{shape.rows}, {shape.channels[-1]}]")
      self.data, self.offsets = path, train_files.make(path, shape.rows, shape.inputs, shape.channels[-1])
    return str(path)

  def steps(self, name, place=None):
    steps = STEPS[name] if place is None else STEPS[name][place]
    return max(30, round(steps * self.options.steps * (0.01 if self.options.quick else 1)))

  def row(self, place):
    return f"minnow train --place {place}" if self.places else "minnow train"

  def train(self, arguments, shape, steps, precision="bf16", place=None, every=None, cores=None):
    command = [*arguments, *model(shape, precision), "--lr", "1e-6", "--momentum", "0.9",
               "--device", "cpu" if cores else self.options.device]
    if place and self.places:
      command += ["--place", place]
    run = train_minnow.Run(self.options.minnow, command, steps, every or max(1, steps // 100), self.folder,
                           self.options.limit, cores)
    return run.figure(shape.batch)

  def bench(self, shape, precision="bf16", cores=None, more=()):
    device = "cpu" if cores else self.options.device
    arguments = ["--in", str(shape.inputs), *model(shape, precision), "--device", device, *more]
    return functools.partial(train_minnow.bench, self.options.minnow, arguments, self.options.patience, cores)

  def peer_step(self, shape):
    """minnow's step as peers.py times it, sustained."""
    def time():
      if "minnow" not in self.peers:
        raise Failure("not there")
      child = self.peers["minnow"]
      try:
        sizes = [shape.batch, shape.inputs, shape.channels[0], shape.groups]
        child.ask("open", shape=sizes, precision="bf16")
        child.ask("prepare", row="minnow", what="step")
        return child.ask("time", row="minnow", what="step", warm_s=0.5, budget_s=0.5)["sustained"]
      finally:
        close([child])

    return time

  def measure(self, part, subjects, figures):
    """Every (row, run) in this order, then in the reverse order, and so on; bench, which times much else beside the
    step, in the first round alone."""
    for number in range(self.options.rounds):
      for row, run in subjects if number % 2 == 0 else subjects[::-1]:
        if "failed" in figures.get(row, {}) or (number and row.startswith("minnow bench")):
          continue
        say(f"{part}: {row}, round {number + 1} of {self.options.rounds}")
        try:
          figures.setdefault(row, {"rounds": []})["rounds"].append(run())
        except Failure as failure:
          figures[row] = {"failed": str(failure)}

  def loop(self, child, row):
    """Prepared when it is first timed, so that nothing prepares in the background while another is timed."""
    @functools.cache
    def first():
      return child.ask("prepare", row=row, what="train")

    return lambda: {**first(), **child.ask("time", row=row, what="train", warm_s=self.options.warm,
                                           budget_s=self.options.seconds)}

  def loops(self, part, figures):
    """PyTorch's and JAX's training loops on the file of this part."""
    shape = self.shapes[part]
    for peer in "torch", "jax":
      if peer not in self.peers:
        continue
      child, subjects = self.peers[peer], []
      try:
        data = {"path": self.file(part), **self.offsets}
        for row in child.ask("open", data=data, shape=shape, precision="bf16"):
          subjects.append((row, self.loop(child, row)))
      except Failure as failure:
        figures[peer] = {"failed": str(failure)}
      self.measure(part, subjects, figures)
      close([child])


def describe(part, shape, precision):
  widths = "x".join(str(width) for width in (shape.batch, shape.inputs, *shape.channels))
  return (f"{part}: {widths}/{shape.groups}, {precision}, x [{shape.rows}, {shape.inputs}] and "
          f"y [{shape.rows}, {shape.channels[-1]}] in float32")


def placements(work, part):
  """minnow in each placement, its step alone, and the peers."""
  shape, figures, subjects = work.shapes[part], {}, []
  data = ["--data", work.file(part)]
  for place in work.places or ["file"]:
    train = functools.partial(work.train, data, shape, work.steps(part, place), place=place)
    subjects.append((work.row(place), train))
  subjects += [(tables.BENCH, work.bench(shape)), (tables.PEER, work.peer_step(shape))]
  work.measure(part, subjects, figures)
  work.loops(part, figures)
  return figures


def reference(work):
  shape, path = work.shapes["reference"], work.file("reference")
  pages = {readers: train_files.page_cache(path, readers) for readers in dict.fromkeys((1, work.options.readers))}
  figures, link, missing = placements(work, "reference"), None, "no PyTorch to copy with"
  if "torch" in work.peers:
    try:
      link = work.peers["torch"].ask("link")["gb_per_s"]
    except Failure as failure:
      missing = str(failure)
  held, moved = 4 * (shape.inputs + shape.channels[0]), 2 * shape.inputs + 4 * shape.channels[0]
  allowed = {readers: 1e9 * gb / held for readers, gb in pages.items()}
  notes = [f"link: not measured: {missing}"]
  if link:
    notes = [f"link, from page-locked memory: {link:.1f} GB/s, {1e9 * link / moved:,.0f} samples/s of {moved} bytes"]
  for readers, gb in pages.items():
    text = f"page cache, {readers} reader{'s' if readers > 1 else ''}"
    notes.append(f"{text}: {gb:.1f} GB/s, {allowed[readers]:,.0f} samples/s of {held} bytes")
  targets = tables.reference(figures, shape.batch, work.row, 1e9 * link / moved if link else None,
                             allowed[work.options.readers])
  return describe("reference", shape, "bf16"), figures, shape.batch, notes, targets


def small(work):
  shape, figures = work.shapes["small"], placements(work, "small")
  return describe("small", shape, "bf16"), figures, shape.batch, [], tables.small(figures, shape.batch, work.row)


def saves(work):
  shape, figures = work.shapes["reference"], {}
  data, plain, saving = ["--data", work.file("reference")], "saved at the end", f"--save-every {SAVE_EVERY}"
  # Lines where saves are, so that a stretch between two has a whole number of them. Three lines at least.
  steps = max(4 * SAVE_EVERY, work.steps("saves") // SAVE_EVERY * SAVE_EVERY)
  train = functools.partial(work.train, data, shape, steps, place="device", every=SAVE_EVERY)
  save = functools.partial(work.train, [*data, *saving.split()], shape, steps, place="device", every=SAVE_EVERY)
  work.measure("saves", [(plain, train), (saving, save)], figures)
  title = describe(f"saves ({work.row('device')})", shape, "bf16")
  return title, figures, shape.batch, [], tables.saves(figures, shape.batch, plain, saving)


def synthetic(work):
  """All rows train: a held out part would be evaluated after every epoch."""
  shape, figures = work.shapes["reference"], {}
  data = ["--synthetic", str(shape.rows), "--in", str(shape.inputs), "--test-rows", "0"]
  short, long = "20 steps, a line each", "as long as from a file"
  subjects = [(short, functools.partial(work.train, data, shape, 20, place="device", every=1)),
              (long, functools.partial(work.train, data, shape, work.steps("synthetic"), place="device"))]
  work.measure("synthetic", subjects, figures)
  resident = tables.rate(work.known.get("reference", {}), work.row("device"), shape.batch)
  targets = tables.synthetic(figures, shape.batch, short, long, resident)
  return f"synthetic: --synthetic {shape.rows}, else as reference", figures, shape.batch, [], targets


def stack(work):
  shape, figures, row = work.shapes["stack"], {}, work.row("device")
  train = functools.partial(work.train, ["--data", work.file("stack")], shape, work.steps("stack"), place="device")
  work.measure("stack", [(row, train), (tables.BENCH, work.bench(shape))], figures)
  targets = tables.of_bench(figures, shape.batch, row, tables.BENCH, tables.STACK)
  return describe("stack", shape, "bf16"), figures, shape.batch, [], targets


def narrow(part):
  """The function of a part whose steps take about 0.1 ms: minnow, its step alone, and the peers."""
  def measure(work):
    shape, figures, row = work.shapes[part], {}, work.row("device")
    train = functools.partial(work.train, ["--data", work.file(part)], shape, work.steps(part), place="device")
    work.measure(part, [(row, train), (tables.BENCH, work.bench(shape))], figures)
    work.loops(part, figures)
    return describe(part, shape, "bf16"), figures, shape.batch, [], tables.narrow(figures, shape.batch, row, part)

  return measure


def cpu(work):
  """Two cores and as many threads, whatever the device of the other parts is. The digits have an evaluation after each
  epoch, which is not counted."""
  cores, figures, batches, subjects, targets = sorted(os.sched_getaffinity(0))[:2], {}, {}, [], []
  own, digits = work.shapes["cpu"], pathlib.Path(__file__).parents[2] / "data" / "digits.h5"
  classes = ["--head", "10", "--loss", "cross-entropy"]
  for name, shape, path, steps, every, more in (("digits", DIGITS, digits, "digits", 5, classes),
                                                ("own file", own, work.file("cpu"), "cpu", None, [])):
    sizes = "x".join(str(width) for width in (shape.batch, shape.inputs, *shape.channels))
    head = "x10" if more else ""
    row, bench = f"minnow train, {name}", f"minnow bench, {sizes}/{shape.groups}{head}"
    train = functools.partial(work.train, ["--data", str(path)], shape, work.steps(steps), "fp32", "device", every,
                              cores)
    subjects += [(row, train), (bench, work.bench(shape, "fp32", cores, more))]
    batches |= {row: shape.batch, bench: shape.batch}
    targets.append((shape.batch, row, bench, tables.CPU))
  work.measure("cpu", subjects, figures)
  targets = [line for wanted in targets for line in tables.of_bench(figures, *wanted)]
  note = "digits: with a linear head and cross-entropy; its evaluations are not counted"
  return f"CPU: fp32, cores {','.join(map(str, cores))}, a thread each", figures, batches, [note], targets


PARTS = {"reference": reference, "saves": saves, "synthetic": synthetic, "small": small, "stack": stack,
         **{part: narrow(part) for part in tables.NARROW}, "cpu": cpu}


def parse():
  parser = argparse.ArgumentParser(prog="make peers ARGS=…",
                                   description="Times minnow train beside PyTorch's and JAX's training loops.")
  add = parser.add_argument
  add("--train", action="store_true", help="what chooses this instead of single forwards and steps")
  add("--only", help=f"of {','.join(PARTS)}; default all, cpu only with --cpu or --device cpu")
  add("--cpu", action="store_true", help="the part cpu too")
  add("--quick", action="store_true", help="tiny sizes and few steps: a dry run, whose targets mean nothing")
  add("--device", choices=["cuda", "cpu"], default="cuda", help="default %(default)s")
  add("--peers", default=",".join(PEERS), help="of %(default)s")
  add("--minnow", default=os.path.join(os.environ.get("BUILD", "build"), "minnow"), help="default %(default)s")
  add("--without-place", action="store_true", help="leave --place out, as is done where minnow lacks it")
  add("--steps", type=float, default=1, help="factor on the steps of minnow's runs; default %(default)s")
  add("--rounds", type=int, default=2, help="how often each figure is taken; default %(default)s")
  add("--readers", type=int, default=8,
      help="threads that read the page cache, as many as --place file has; default %(default)s")
  add("--limit", type=float, default=20,
      help="seconds after which a run of minnow's is stopped, and counts as far as it got; default %(default)s")
  add("--seconds", type=float, help="of a peer's loop that is timed; default 3, quick 0.5")
  add("--warm", type=float, help="seconds before them; default 1.5, quick 0.2")
  add("--patience", type=float, default=120,
      help="seconds after which a peer that does not answer is given up; default %(default)s")
  add("--folder", help="where files are while it runs: 1.1 GB, and 1.1 GB more for checkpoints; default the system's")
  add("--json", help="a file for the raw figures")
  options = parser.parse_args()
  options.peers = options.peers.split(",")
  default = [part for part in PARTS if part != "cpu" or options.cpu or options.device == "cpu"]
  options.only = options.only.split(",") + ["cpu"] * options.cpu if options.only else default
  for kind, given, known in (("peer", options.peers, PEERS), ("part", options.only, PARTS)):
    for name in given:
      if name not in known:
        parser.error(f"no {kind} is called '{name}'; {', '.join(known)} are")
  options.seconds = options.seconds or (0.5 if options.quick else 3)
  options.warm = options.warm or (0.2 if options.quick else 1.5)
  return options


def host():
  """The processor's name and the cores there are for this run."""
  try:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
  except OSError:
    names = []  # uname says what it is
  return f"host: {names[0] if names else os.uname().machine}, {len(os.sched_getaffinity(0))} cores"


def explain(work):
  """How to read the tables, once."""
  lines = [host(),
           "samples/s of minnow train: by its log, from a third of the steps on, sustained",
           "first s: from the start of minnow train to its log's first line of a step; a peer's first call",
           "whole s: of the process; minnow bench: the median without pauses, sustained",
           "x and y in PyTorch's and JAX's loops: float32; resident x in the type that products read"]
  if not work.places:
    lines.append("no --place: every target is held against the one way in which this minnow trains")
  if work.options.quick:
    lines.append("a dry run with tiny sizes: the targets mean nothing")
  return "\n".join(lines)


def report(work, part):
  """Prints the part's table, and returns its figures. What stops the whole part is named in place of the table."""
  try:
    title, figures, *rest = PARTS[part](work)
  except (Failure, OSError, ValueError, KeyError, multiprocessing.TimeoutError) as error:
    print(f"\n{part}: failed: {type(error).__name__}: {error}", flush=True)
    return []
  work.known[part] = figures
  print(tables.table(title, figures, *rest), flush=True)
  return [{"part": part, "title": title, "row": row, **figure} for row, figure in figures.items()]


def main():
  options, record = parse(), []
  with tempfile.TemporaryDirectory(dir=options.folder) as folder:
    children, header = meet(options, folder, {peer: PEERS[peer] for peer in options.peers})
    try:
      work = Work(options, children, folder)
      print(f"{header}\n{explain(work)}", flush=True)
      for part in PARTS:
        record += report(work, part) if part in options.only else []
    except Failure as failure:
      print(f"{header}\nfailed: {failure}")
    finally:
      for child in children:
        child.stop()
  if options.json:
    text = json.dumps({"header": [*header.splitlines(), host()], "figures": record}, indent=1)
    pathlib.Path(options.json).write_text(text + "\n")
  return 0 if any("rounds" in entry and "minnow" in entry["row"] for entry in record) else 1
