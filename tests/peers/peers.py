"""minnow, PyTorch and JAX timed on one device, in one run and in the same way (timing.py): `make peers ARGS=…`.

Each peer runs in a process of its own, because each brings its own CUDA libraries. One request is made at a time, so
that no two compute at once. Tables go to stdout as they are done, progress to stderr. A peer or a variant that is
missing or fails is listed with its reason; the exit code is 1 only if there is no figure of minnow's."""
import argparse
import json
import pathlib
import sys
import tempfile

import ranks
import step_tables as tables
import train
from child import Failure, close, meet, say

PRECISIONS = ["bf16", "fp16", "fp16x3", "fp32", "tf32"]
# What is timed by default: a block alone, stacks of three, four, eight and six, narrow stacks, and two with a head.
RUNS = {"1024x8192x8192/512": PRECISIONS, "1024x4096x4096/256": ["bf16"], "8192x8192x8192/512": ["bf16", "fp16x3"],
        "128x512x256/8": ["bf16"], "1024x8192x8192x8192x8192/512": ["bf16"],
        "1024x4096x4096x4096x4096x4096/256": ["bf16"],
        "256x1024x1024x1024x1024x1024x1024x1024x1024x1024/64": ["bf16"],
        "4096x2048x2048x2048x2048x2048x2048x2048/128": ["bf16"], "65536x64x64x64x64x64x64/8": ["bf16", "fp16"],
        "16384x128x128x128x128x128/16": ["bf16"], "1024x64x64x64x64/8": ["bf16"],
        "65536x64x64x64x64x64x64/8+10": ["bf16"], "64x64x128/8+10": ["bf16"]}
REFERENCE = next(iter(RUNS))
PEERS = {"minnow": "minnow_peer.py", "torch": "torch_peer.py", "jax": "jax_peer.py"}
# KernelBench's tables, by what PyTorch computes in, and minnow's precisions in each.
CLASSES = {"fp32": ["fp32", "fp16x3"], "tf32": ["tf32"], "fp16": ["fp16"], "bf16": ["bf16"]}


def prepare(children, shape, precision, without):
  """What every peer offers at this shape, by (row, what), and the (child, row, what) that are ready to be timed."""
  figures, ready = {}, []
  for child in children:
    try:
      subjects = child.ask("open", shape=tables.numbers(shape), precision=precision, classes=tables.classes(shape))
    except Failure as failure:
      figures[child.peer, "all"] = {"failed": str(failure)}
      continue
    for row, what in subjects:
      if any(text in row for text in without):
        continue
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
  figures, ready = prepare(children, shape, precision, options.without)
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
  errors(ready, shape, precision, figures)
  close(children)
  return figures


def errors(ready, shape, precision, figures):
  """Of every row that computes x*W^T, alone or in a forward, after all times were taken."""
  say(f"{shape} {precision}: errors")
  for child, row, what in ready:
    if what in ("forward", tables.BARE[0]) and row != tables.THREE and "failed" not in figures[row, what]:
      try:
        figures[row, "error"] = {"error": child.ask("error", row=row)}
      except Failure as failure:
        figures[row, "error"] = {"failed": str(failure)}


def kernelbench(children, kind, precisions, options, folder):
  """Forward alone under KernelBench's rules. PyTorch's process makes the inputs and the reference in `kind`, and judges
  minnow in each of the precisions."""
  there, figures = {child.peer: child for child in children}, {}
  shape = tables.numbers(options.kernelbench_shape)
  # In this order: minnow reads the inputs that PyTorch has written.
  for peer, wanted in ("torch", {"precision": kind}), ("minnow", {"precisions": precisions}):
    try:
      if peer not in there:
        raise Failure("not there")
      rows = there[peer].ask("kernelbench_open", folder=folder, shape=shape, **wanted)
    except Failure as failure:
      figures[peer, "all"] = {"failed": str(failure)}
      break
    for row in rows:
      if any(text in row for text in options.without):
        continue
      say(f"KernelBench {kind}: {row}")
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
  parser.add_argument("--torch", action="store_true",
                      help="minnow_torch in PyTorch instead (drop_in.py), with options of their own: --torch --help")
  parser.add_argument("--ranks", metavar="N",
                      help="N GPUs instead, beside DDP and FSDP (ranks.py), with options of their own: --ranks 2 --help")
  parser.add_argument("--shape", action="append",
                      help="NxIxC/G, of a stack NxIxCxC…/G, with a head and the cross-entropy of K classes NxIxC/G+K; "
                      f"repeatable; default {' '.join(RUNS)}")
  parser.add_argument("--precision", action="append", choices=PRECISIONS,
                      help="repeatable; default all at the first shape, fp16x3 at the third, bf16 at all; without "
                      "--shape only where that has it; all under KernelBench's rules")
  parser.add_argument("--without", action="append", default=[], metavar="TEXT",
                      help="leave out the rows whose names have this in them, such as max-autotune; repeatable")
  parser.add_argument("--peers", default=",".join(PEERS), help="of %(default)s")
  parser.add_argument("--kernelbench", choices=["also", "only", "no"], default="also",
                      help="KernelBench's protocol on level 2, problem 62; default %(default)s")
  parser.add_argument("--kernelbench-shape", default=REFERENCE, help="of one block; default %(default)s")
  parser.add_argument("--seconds", type=float, default=0.4,
                      help="a figure that takes four times this long ends early; default %(default)s")
  parser.add_argument("--warm", type=float, default=0.15, help="seconds before them; default %(default)s")
  parser.add_argument("--patience", type=float, default=300,
                      help="seconds after which a peer that does not answer is given up; default %(default)s")
  parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a dry run; default %(default)s")
  parser.add_argument("--json", help="a file for the raw figures; tests/peers/picture.py draws them")
  options = parser.parse_args()
  options.peers = options.peers.split(",")
  for name in options.peers:
    if name not in PEERS:
      parser.error(f"no peer is called '{name}'; {', '.join(PEERS)} are")
  try:
    for shape in (options.shape or []) + [options.kernelbench_shape]:
      numbers = tables.numbers(shape)
  except ValueError:
    parser.error(f"'{shape}' is no shape; {REFERENCE} is")
  if len(numbers) > 4 or tables.classes(options.kernelbench_shape):
    parser.error(f"KernelBench's problem has one block alone, not '{shape}'")
  return options


def runs(options):
  """Each shape with each precision that it is to be timed in."""
  if options.shape:
    return [(shape, precision) for shape in options.shape
            for precision in options.precision or RUNS.get(shape, ["bf16"])]
  return [(shape, precision) for shape, precisions in RUNS.items() for precision in precisions
          if precision in (options.precision or PRECISIONS)]


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
      print(header, tables.ERROR, sep="\n", flush=True)
      for shape, precision in runs(options) if options.kernelbench != "only" else []:
        report(tables.peers, shape, precision, measure(children, shape, precision, options))
      for kind, precisions in CLASSES.items() if options.kernelbench != "no" else []:
        chosen = [precision for precision in precisions if precision in (options.precision or precisions)]
        if chosen:
          figures = kernelbench(children, kind, chosen, options, folder)
          report(tables.kernelbench, options.kernelbench_shape, kind, figures)
    finally:
      for child in children:
        child.stop()
  if options.json:
    text = json.dumps({"header": header.splitlines(), "figures": record}, indent=1)
    pathlib.Path(options.json).write_text(text + "\n")
  return 0 if any(entry["row"].startswith("minnow") and "failed" not in entry for entry in record) else 1


if __name__ == "__main__":
  if "--torch" in sys.argv:
    import drop_in  # which needs PyTorch in this process

    sys.exit(drop_in.main())
  several = any(argument.partition("=")[0] == "--ranks" for argument in sys.argv)
  sys.exit(ranks.main() if several else train.main() if "--train" in sys.argv else main())
