"""minnow, PyTorch and JAX timed on one device, in one run and in the same way (timing.py): `make peers ARGS=…`.

Each peer runs in a process of its own, because each brings its own CUDA libraries. One request is made at a time, so
that no two compute at once. Tables go to stdout as they are done, progress to stderr. A peer or a variant that is
missing or fails is listed with its reason; the exit code is 1 only if there is no figure of minnow's."""
import argparse
import json
import pathlib
import sys
import tempfile

import tables
import train
from child import Failure, close, meet, say

SHAPES = ["1024x8192x8192/512", "1024x4096x4096/256", "8192x8192x8192/512", "128x512x256/8"]
PEERS = {"minnow": "minnow_peer.py", "torch": "torch_peer.py", "jax": "jax_peer.py"}
PRECISIONS = ["bf16", "fp32", "tf32"]


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
  parser.add_argument("--train", action="store_true",
                      help="whole training runs instead (train.py), with options of their own: --train --help")
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


def main():
  options, record = parse(), []

  def report(table, shape, precision, figures):
    print(table(shape, precision, figures), flush=True)
    for (row, what), figure in figures.items():
      about = {"table": table.__name__, "shape": shape, "precision": precision, "row": row, "what": what}
      record.append({**about, **figure})

  with tempfile.TemporaryDirectory() as folder:
    children, header = meet(options, folder, PEERS)
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


if __name__ == "__main__":
  sys.exit(train.main() if "--train" in sys.argv else main())
