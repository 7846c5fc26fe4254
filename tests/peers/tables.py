"""The tables of peers.py, in plain text of fixed width. `figures` maps (row, what was timed) to {"failed": why} or to the
figures: for kernelbench() {"ms": …}, for peers() the list of rounds of each way of timing."""
import re

# What minnow is to reach in bf16, by shape: its forward at most so many times the bare GEMM; its forward, and its step
# (required, goal), so many times as fast as the best peer's.
TARGETS = {
    "1024x8192x8192/512": {"gemm": 1.05, "forward": 1, "step": (1.5, 1.7)},
    "1024x4096x4096/256": {"gemm": 1.1, "step": (1.5, 1.8)},
    "8192x8192x8192/512": {"gemm": 1.05, "step": (1.15, 1.25)},
    "128x512x256/8": {"forward": 1.3, "step": (2, 3)},
}
WIDTH = 30
BARE = ("x*W^T", "dz*W", "dz^T*x")
WAYS = ("rested", "sustained")  # timing.py says what they are


def numbers(shape):
  match = re.fullmatch(r"(\d+)x(\d+)x(\d+)/(\d+)", shape)
  if not match:
    raise ValueError(shape)
  return [int(number) for number in match.groups()]


def best(figures, what, but=()):
  """The row that was fastest at `what`, and its ms; None where nobody did it."""
  times = [(f["ms"], row) for (row, done), f in figures.items() if done == what and "ms" in f and row not in but]
  return min(times)[::-1] if times else None


def cell(figures, row, what):
  return f"{figures[row, what]['ms']:12.4f}" if "ms" in figures.get((row, what), {}) else f"{'failed':>12}"


def spread(figures):
  """How far the two rounds of a figure lie apart, at the worst."""
  apart = [(max(r["ms"] for r in f["rounds"]) / f["ms"] - 1, *key) for key, f in figures.items() if "ms" in f]
  if not apart:
    return []
  worst, row, what = max(apart)
  return [f"each the lower of two medians, which differ by at most {100 * worst:.1f} % ({row}, {what})"]


def floors(shape, precision, figures):
  """The least that forward and step can take, in ms: their products, or their memory at the rate of a copy."""
  n, i, c, _ = numbers(shape)
  forward, weight, copy = (best(figures, what) for what in ("x*W^T", "dz^T*x", "copy"))
  if not (forward and weight and copy):
    return {}
  per_byte = copy[1] / 2**30  # a copy of 512 MiB reads and writes them
  element, rounded = (2, 2) if precision == "bf16" else (4, 0)
  least = max(forward[1], element * (n * i + c * i + n * c) * per_byte)
  # W and its momentum are read and written as floats, and the copy of W that a bf16 product reads is written.
  return {"forward": least, "step": least + max(weight[1], (16 + rounded) * c * i * per_byte)}


def verdict(text, value, wanted, at_most=False):
  met = value <= wanted if at_most else value >= wanted
  return f"  {text}: {'met' if met else 'MISSED'} ({value:.3f})"


def targets(shape, ratios):
  wanted, lines = TARGETS.get(shape, {}), []
  if "gemm" in wanted and "gemm" in ratios:
    lines.append(verdict(f"forward <= {wanted['gemm']} x bare GEMM", ratios["gemm"], wanted["gemm"], at_most=True))
  if "forward" in wanted and "forward" in ratios:
    text = f"forward {wanted['forward']} x as fast as the best peer"
    lines.append(verdict(text, ratios["forward"], wanted["forward"]))
  if "step" in wanted and "step" in ratios:
    for word, value in zip(("required", "goal"), wanted["step"]):
      lines.append(verdict(f"step {value} x as fast as the best peer ({word})", ratios["step"], value))
  return ["targets", *lines] if lines else []


def summary(shape, precision, figures):
  """The lines under a table: minnow against the best peer, the bare product and the floor."""
  lines, ratios, least = [], {}, floors(shape, precision, figures)
  for what in "forward", "step":
    peer, ours = best(figures, what, but=("minnow",)), figures.get(("minnow", what), {}).get("ms")
    parts = []
    if peer:
      parts.append(f"best peer {peer[1]:.4f} ({peer[0]})")
    if peer and ours:
      ratios[what] = peer[1] / ours
      parts.append(f"minnow {ratios[what]:.3f} x as fast")
    if what == "forward" and ours and best(figures, BARE[0]):
      ratios["gemm"] = ours / best(figures, BARE[0])[1]
      parts.append(f"minnow {ratios['gemm']:.3f} x bare GEMM")
    if what in least:
      parts.append(f"floor {least[what]:.4f}" + (f", minnow {ours / least[what]:.3f} x that" if ours else ""))
    lines.append(f"{what}: " + "; ".join(parts or ["nothing"]))
  return lines + (targets(shape, ratios) if precision == "bf16" else [])


def bare(figures):
  """The library's products and the copy, the faster of what minnow and PyTorch get."""
  parts = [f"{what} {found[1]:.4f} ({found[0]})" for what in BARE for found in [best(figures, what)] if found]
  copy = best(figures, "copy")
  if copy:
    parts.append(f"copy {2**30 / copy[1] * 1e-6:.0f} GB/s ({copy[0]})")
  return ["bare: " + ", ".join(parts)] if parts else []


def failures(figures):
  """Each reason once, with everything that it kept from being timed."""
  reasons = {}
  for (row, what), figure in figures.items():
    if "failed" in figure:
      reasons.setdefault(figure["failed"], {}).setdefault(row, []).append(what)
  return [f"failed: {why}: " + "; ".join(f"{row} ({', '.join(whats)})" for row, whats in rows.items())
          for why, rows in reasons.items()]


def timed(figures, way):
  """The figures of one way of timing, each the lower of its rounds' medians."""
  return {key: {**f, "ms": min(r["ms"] for r in f[way]), "rounds": f[way]} if way in f else f
          for key, f in figures.items()}


def peers_one_way(shape, precision, figures, way):
  rows = list(dict.fromkeys(row for row, what in figures if what in ("forward", "step")))
  lines = ["", f"{f'{shape}, {precision}, {way}':<{WIDTH + 4}}{'forward ms':>12}{'step ms':>12}"]
  lines += [f"{row:<{WIDTH + 4}}{cell(figures, row, 'forward')}{cell(figures, row, 'step')}" for row in rows]
  return lines + bare(figures) + summary(shape, precision, figures) + spread(figures)


def peers(shape, precision, figures):
  lines = [line for way in WAYS for line in peers_one_way(shape, precision, timed(figures, way), way)]
  held = figures.get(("minnow", "step"), {}).get("bytes")
  if held:
    lines.append(f"minnow's step holds {held / 2**20:.1f} MiB of the device's memory")
  return "\n".join(lines + failures(figures))


def kernelbench(shape, precision, figures):
  tolerance, kind = ("1e-2", "bfloat16") if precision == "bf16" else ("1e-4", "float32")
  title = f"KernelBench 2/62, {precision}"
  lines = ["", f"{title:<{WIDTH}}{'median ms':>12}{'mean ms':>12}{'outside':>13}"]
  for (row, _), f in figures.items():
    if "outside" in f:
      times = f"{f['ms']:12.4f}{f['mean_ms']:12.4f}" if "ms" in f else " " * 24
      lines.append(f"{row:<{WIDTH}}{times}{100 * f['outside']:11.5f} %  {'passes' if f['passes'] else 'does not pass'}")
  lines += [f"{shape}, forward alone: CUDA events around each of 100 calls, the L2 cache flushed before each;",
            f"outside: elements out of atol = rtol = {tolerance} around PyTorch's eager {kind}, all on the same {kind} inputs;",
            "passes: torch.allclose accepts all of them; float64, rounded: the exact result, to show how far eager is from it"]
  return "\n".join(lines + failures(figures))
