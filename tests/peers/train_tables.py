"""The tables of train.py, in plain text of fixed width, and what minnow's training is to reach. `figures` maps a row to
{"failed": why} or to {"rounds": [{"ms": of a step, …}, …]}."""
from step_tables import verdict

WIDTH = 44
BENCH, PEER = "minnow bench, a step", "minnow's step in runs of 20 ms"
TORCH, SCAN = "PyTorch compile, resident", "JAX, resident, epochs as one scan"

# Samples per second and shares, (required, goal).
REFERENCE = {"rate": 1_450_000, "torch": 1.6, "step": 0.97, "link": (0.85, 0.95), "file": 45_500, "file times": 3}
SMALL = {"rate": 9_000_000, "torch": 50, "step": 0.95}
NARROW = {"64x5": {"rate": 700e6, "scan": 4}, "128x4": {"rate": 210e6}, "256x2": {}}
SAVES = (5, 1)  # percent
FIRST_S = 3
AS_RESIDENT = 0.97
STACK = CPU = 0.95


def fastest(figures, row):
  """The round with the shortest step; {} where there is none."""
  return min(figures.get(row, {}).get("rounds", []), key=lambda found: found["ms"], default={})


def rate(figures, row, batch):
  """Samples per second, or None."""
  found = fastest(figures, row)
  return 1e3 * batch / found["ms"] if found else None


def cells(found, batch):
  text = f"{1e3 * batch / found['ms']:14,.0f}{found['ms']:12.4f}"
  for key in "first_s", "wall_s":
    text += f"{found[key]:10.2f}" if key in found else " " * 10
  return text + (f"  stopped after {found['steps']} steps" if found.get("stopped") else "")


def spread(figures):
  """How far the rounds of a row lie apart, at the worst."""
  apart = [(max(found["ms"] for found in f["rounds"]) / fastest(figures, row)["ms"] - 1, row)
           for row, f in figures.items() if len(f.get("rounds", [])) > 1]
  if not apart:
    return []
  worst, row = max(apart)
  return [f"each the faster of its rounds, which differ by at most {100 * worst:.1f} % ({row})"]


def ratio(text, value, of, wanted):
  """A target for value / of, either of which may be missing."""
  return verdict(text, value / of, wanted) if value and of else f"  {text}: not measured"


def reference(figures, batch, place, link, pages):
  """place(word): the row of that placement; link, pages: samples/s that link and page cache allow, or None."""
  device, host, file = (rate(figures, place(word), batch) for word in ("device", "host", "file"))
  want, step, torch = REFERENCE, rate(figures, BENCH, batch), rate(figures, TORCH, batch)
  file_wanted = f"file, {want['file times']} x {want['file']:,} samples/s (required)"
  return [ratio(f"device, {want['rate']:,} samples/s (required)", device, want["rate"], 1),
          ratio(f"device, {want['torch']} x PyTorch's resident loop (required)", device, torch, want["torch"]),
          ratio(f"device, {want['step']} of the step in bench (goal)", device, step, want["step"]),
          ratio(f"host, {want['link'][0]} of what the link gives (required)", host, link, want["link"][0]),
          ratio(f"host, {want['link'][1]} of what the link gives (goal)", host, link, want["link"][1]),
          ratio(file_wanted, file, want["file"], want["file times"]),
          ratio("file, what the page cache gives (goal)", file, pages, 1)]


def small(figures, batch, place):
  device, want = rate(figures, place("device"), batch), SMALL
  step, torch = rate(figures, BENCH, batch), rate(figures, TORCH, batch)
  return [ratio(f"device, {want['rate']:,} samples/s (required)", device, want["rate"], 1),
          ratio(f"device, {want['torch']} x PyTorch's resident loop (required)", device, torch, want["torch"]),
          ratio(f"device, {want['step']} of the step in bench (goal)", device, step, want["step"])]


def narrow(figures, batch, row, part):
  device, want, lines = rate(figures, row, batch), NARROW[part], []
  if "rate" in want:
    lines.append(ratio(f"{want['rate']:,.0f} samples/s (required)", device, want["rate"], 1))
  if "scan" in want:
    lines.append(ratio(f"{want['scan']} x JAX's scan (required)", device, rate(figures, SCAN, batch), want["scan"]))
  return [*lines, ratio("0.9 of the step in bench (goal)", device, rate(figures, BENCH, batch), 0.9)]


def saves(figures, batch, plain, saving):
  without, having = rate(figures, plain, batch), rate(figures, saving, batch)
  if not (without and having):
    return ["  the cost of saving: not measured"]
  cost = 100 * (1 - having / without)
  return [verdict(f"a save every 50 steps costs at most {most} % of samples/s ({word})", cost, most, at_most=True)
          for word, most in zip(("required", "goal"), SAVES)]


def synthetic(figures, batch, short, long, resident):
  """resident: samples per second of the reference in device memory, or None."""
  first = min((found["first_s"] for found in figures.get(short, {}).get("rounds", [])), default=None)
  text = f"first step within {FIRST_S} s"
  soon = verdict(text, first, FIRST_S, at_most=True) if first else f"  {text}: not measured"
  then = f"then {AS_RESIDENT} of --data in device memory"
  return [soon, ratio(then, rate(figures, long, batch), resident, AS_RESIDENT)]


def of_bench(figures, batch, row, bench, wanted):
  text = f"{row}: {wanted} of the step in bench"
  return [ratio(text, rate(figures, row, batch), rate(figures, bench, batch), wanted)]


def failures(figures):
  return [f"failed: {row}: {figure['failed']}" for row, figure in figures.items() if "failed" in figure]


def table(title, figures, batches, notes, targets):
  """batches: rows a step, one number or by row."""
  lines = ["", title, f"{'':<{WIDTH}}{'samples/s':>14}{'ms a step':>12}{'first s':>10}{'whole s':>10}"]
  for row, figure in figures.items():
    batch = batches if isinstance(batches, int) else batches[row]
    found = fastest(figures, row)
    lines.append(f"{row:<{WIDTH}}{cells(found, batch) if found else format('failed', '>14')}".rstrip())
  return "\n".join([*lines, *notes, "targets", *targets, *spread(figures), *failures(figures)])
