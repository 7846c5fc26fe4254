"""The tables of ranks.py, in plain text of fixed width. `figures` maps (case, row) to {"gpus": …, "grid": [groups are
divided among, copies], "rested": [rounds], "sustained": [rounds]}, or with {"failed": why}."""
from step_tables import verdict

WAYS = ("rested", "sustained")
ONE = "minnow, one GPU"
WIDTH = 40
# What minnow is to reach on four GPUs: by case, the row, the unit, required and goal. ONE_GPU, DDP: at least so many
# times as fast, in both ways of timing; MS: at most so many milliseconds, rested, on H200s.
ONE_GPU, DDP, MS = "x one GPU", "x DDP", "ms"
TARGETS = {"block": [("groups", ONE_GPU, 3.0, 3.4), ("groups", MS, 0.19)],
           "large": [("groups", DDP, 6, 8), ("groups", MS, 0.52, 0.40), ("copies", DDP, 1.3, 1.8)],
           "stack": [("groups", ONE_GPU, 2.4, 3)]}
EXPLANATION = """ms: a step of the whole batch, the lower of its rounds
x one GPU: as fast as minnow's step on one GPU with that batch
x DDP: as fast as the fastest DDP of this run that sums float32 gradients, as minnow does"""


def groups(count):
  return f"minnow, {count} GPUs: groups divided"


def copies(count):
  return f"minnow, {count} GPUs: batch divided"


def ms(figures, case, row, way):
  """The lower of the rounds; None where there is none."""
  figure = figures.get((case, row), {})
  return min(found["ms"] for found in figure[way]) if way in figure and "failed" not in figure else None


def ddp(figures, case, way):
  found = [ms(figures, name, row, way) for name, row in figures
           if name == case and row.startswith("PyTorch DDP") and "bf16 gradients" not in row]
  return min((value for value in found if value), default=None)


def missing(figures, case, row):
  why = figures[case, row].get("failed", "")
  return next((word for word in ("not there", "not measured") if why.startswith(word)), "failed")


def cells(figures, case, row):
  text = ""
  for way in WAYS:
    own = ms(figures, case, row, way)
    text += f"{own:12.4f}" if own else f"{missing(figures, case, row):>12}"
    for other in ms(figures, case, ONE, way), ddp(figures, case, way):
      text += f"{other / own:10.2f}" if own and other else f"{'':10}"
  return text


def targets(figures, case, count):
  lines, rows = [], {"groups": groups(count), "copies": copies(count)}
  for which, unit, *wanted in TARGETS[case]:
    for value, word in zip(wanted, ("required", "goal")):
      for way in WAYS if unit != MS else WAYS[:1]:
        own = ms(figures, case, rows[which], way)
        other = ddp(figures, case, way) if unit == DDP else ms(figures, case, ONE, way)
        text = f"{rows[which]}, {way}: " + (f"<= {value} ms" if unit == MS else f"{value} {unit}") + f" ({word})"
        if own and (other or unit == MS):
          lines.append(verdict(text, own, value, True, 4) if unit == MS else verdict(text, other / own, value))
        else:
          lines.append(f"  {text}: not measured")
  return lines


def spread(figures, rounds):
  """How far the rounds of a figure lie apart, at the worst, and which lack one."""
  apart = [(max(found["ms"] for found in figure[way]) / min(found["ms"] for found in figure[way]) - 1, case, row, way)
           for (case, row), figure in figures.items() for way in WAYS if len(figure.get(way, [])) > 1]
  short = [f"{case}: {row}" for (case, row), figure in figures.items()
           if "failed" not in figure and len(figure["rested"]) < rounds]
  lines = [f"fewer rounds than {rounds}, for want of time: {'; '.join(short)}"] if short else []
  if apart:
    worst, *where = max(apart)
    lines.append(f"rounds differ by at most {100 * worst:.1f} % ({': '.join(where[:2])}, {where[2]})")
  return lines


def table(cases, figures, count, rounds, dry):
  """cases: each with name, rows, widths, groups. rounds: how many each figure was to have."""
  lines, wanted = [], []
  head = "".join(f"{way + ' ms':>12}{'x one GPU':>10}{'x DDP':>10}" for way in ("rested", "sust."))
  for case in cases:
    shape = "x".join(map(str, (case.rows, *case.widths)))
    lines += ["", f"{case.name}: {shape}/{case.groups}, bf16; a divided batch gives {case.rows // count} rows a GPU",
              f"{'':<{WIDTH}}{head}"]
    rows = [row for name, row in figures if name == case.name]
    lines += [f"{row:<{WIDTH}}{cells(figures, case.name, row)}".rstrip() for row in rows]
    wanted += [f"  {case.name}:{line}" for line in targets(figures, case.name, count)]
  failed = [f"failed: {case}: {row}: {figure['failed']}" for (case, row), figure in figures.items()
            if "failed" in figure]
  if count == 4 and not dry:
    lines += ["", "targets", *wanted]
  return "\n".join([*lines, "", *spread(figures, rounds), *failed])
