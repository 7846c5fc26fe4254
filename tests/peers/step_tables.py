"""The tables of peers.py, in plain text of fixed width. `figures` maps (row, what was timed) to {"failed": why} or to
the figures: for kernelbench() {"ms": …}, for peers() the list of rounds of each way of timing, and by (row, "error")
{"error": …}."""
import re

# The units of a target: at most so many milliseconds, rested, on an H200; at most so many times as long as the bare
# GEMM; at least so many times as fast as the best peer.
MS, GEMM, PEER = "<= {} ms", "<= {} x bare GEMM", "{} x as fast as the best peer"
# What minnow is to reach, by shape and precision: (what, unit, required) or (what, unit, required, goal).
STACK = [("step", PEER, 1.35, 1.6)]
TARGETS = {
    ("1024x8192x8192/512", "bf16"): [("forward", MS, 0.181), ("step", MS, 0.53, 0.5)],
    ("1024x8192x8192/512", "fp16"): [("forward", MS, 0.185), ("step", MS, 0.58, 0.51)],
    ("1024x8192x8192/512", "fp16x3"): [("forward", MS, 0.62), ("step", MS, 1.45, 1.2)],
    ("1024x4096x4096/256", "bf16"): [("forward", GEMM, 1.1), ("step", MS, 0.15, 0.14)],
    ("8192x8192x8192/512", "bf16"): [("forward", GEMM, 1.05), ("step", PEER, 1.15, 1.25)],
    ("8192x8192x8192/512", "fp16x3"): [("forward", MS, 4.8), ("step", MS, 11.5, 10)],
    ("128x512x256/8", "bf16"): [("forward", PEER, 1.3), ("step", PEER, 2, 3)],
    ("1024x8192x8192x8192x8192/512", "bf16"): STACK,
    ("1024x4096x4096x4096x4096x4096/256", "bf16"): STACK,
    ("256x1024x1024x1024x1024x1024x1024x1024x1024x1024/64", "bf16"): STACK,
    ("4096x2048x2048x2048x2048x2048x2048x2048/128", "bf16"): STACK,
    ("65536x64x64x64x64x64x64/8", "bf16"): [("forward", PEER, 3.5, 5), ("step", PEER, 4, 6)],
    ("16384x128x128x128x128x128/16", "bf16"): [("step", PEER, 2.1, 3.5)],
}
# Bytes of what a GEMM reads for an element, and of what of it an update of the weights writes beside the float: nothing
# in bf16, where that is the upper half of the float.
BYTES = {"bf16": (2, 0), "fp16": (2, 2), "fp16x3": (4, 4), "fp32": (4, 0), "tf32": (4, 0)}
ERROR = """error: of x*W^T, computed as in that row from floats, against float64 on the same floats: the norm of the
difference over the norm of the product, of about 64 rows and 512 channels spread over those of the (first) block"""
# fp16x3 is of float32's class. A peer's product that is made of several others counts there if its error is at most so
# many times the largest error of products of floats.
AS_EXACT, MADE_OF = 2, "_F32_X"
THREE = "torch.mm, three of float16"  # not a product of floats: how long a library takes for the three of fp16x3
WIDTH = 30
BARE = ("x*W^T", "dz*W", "dz^T*x")
WAYS = ("rested", "sustained")  # timing.py says what they are


def numbers(shape):
  """N, I, the C of each block, G."""
  if not re.fullmatch(r"\d+x\d+(x\d+)+/\d+(\+([2-9]|[1-9]\d+))?", shape):
    raise ValueError(shape)
  return [int(number) for number in re.split("[x/]", shape.partition("+")[0])]


def classes(shape):
  """Of the head behind the blocks; 0 without one."""
  return int(shape.partition("+")[2] or 0)


def best(figures, what, but=()):
  """The row that was fastest at `what`, and its ms; None where nobody did it."""
  times = [(f["ms"], row) for (row, done), f in figures.items() if done == what and "ms" in f and row not in but]
  return min(times)[::-1] if times else None


def cell(figures, row, what):
  return f"{figures[row, what]['ms']:12.4f}" if "ms" in figures.get((row, what), {}) else f"{'failed':>12}"


def error(figures, row):
  return f"{figures[row, 'error']['error']:.1e}" if "error" in figures.get((row, "error"), {}) else ""


def no_peers(figures, precision):
  """The rows that are not as exact as their class is, with why."""
  found = {row: f["error"] for (row, what), f in figures.items() if what == "error" and "error" in f}
  floats = [found[row] for row in found if row.startswith(("PyTorch", "JAX")) and MADE_OF not in row]
  made = dict.fromkeys(row for (row, _), f in figures.items() if MADE_OF in row and "ms" in f)
  if precision != "fp16x3" or not made:
    return {}
  most = AS_EXACT * max(floats, default=0)
  return {row: error(figures, row) or "not known" for row in made if not found.get(row, most + 1) <= most}


def spread(figures):
  """How far the two rounds of a figure lie apart, at the worst."""
  apart = [(max(r["ms"] for r in f["rounds"]) / f["ms"] - 1, *key) for key, f in figures.items() if "ms" in f]
  if not apart:
    return []
  worst, row, what = max(apart)
  return [f"each the lower of two medians, which differ by at most {100 * worst:.1f} % ({row}, {what})"]


def floors(shape, precision, figures):
  """The least that forward and step can take, in ms: their products, or their memory at the rate of a copy. Of a stack
  whose blocks are alike, since the products of the first were timed; a head comes on top."""
  n, i, *channels, _ = numbers(shape)
  c, deeper = channels[0], len(channels) - 1
  forward, through, weight, copy = (best(figures, what) for what in (*BARE, "copy"))
  if not (forward and through and weight and copy) or deeper and set(channels) != {i}:
    return {}
  per_byte = copy[1] / 2**30  # a copy of 512 MiB reads and writes them
  element, rounded = BYTES[precision]
  moved = element * (n * i + c * i + n * c) * per_byte
  # W and its momentum are read and written as floats, and what a GEMM reads of W is written where that is no float.
  update = max(weight[1], (16 + rounded) * c * i * per_byte)
  least = (deeper + 1) * max(forward[1], moved)
  return {"forward": least, "step": least + deeper * max(through[1], moved) + (deeper + 1) * update}


def verdict(text, value, wanted, at_most=False, digits=3):
  met = value <= wanted if at_most else value >= wanted
  return f"  {text}: {'met' if met else 'MISSED'} ({value:.{digits}f})"


def targets(shape, precision, reached):
  """reached: by (what, unit)."""
  lines = []
  for what, unit, *wanted in TARGETS.get((shape, precision), []):
    if (what, unit) in reached:
      lines += [verdict(f"{what} {unit.format(value)} ({word})", reached[what, unit], value, unit != PEER,
                        4 if unit == MS else 3) for word, value in zip(("required", "goal"), wanted)]
  return ["targets", *lines] if lines else []


def summary(shape, precision, figures, way):
  """The lines under a table: minnow against the best peer, the bare product and the floor."""
  lines, reached, least = [], {}, floors(shape, precision, figures)
  no_peer, blocks = no_peers(figures, precision), len(numbers(shape)) - 3
  for what in "forward", "step":
    peer, ours = best(figures, what, but=("minnow", *no_peer)), figures.get(("minnow", what), {}).get("ms")
    parts = []
    if peer:
      parts.append(f"best peer {peer[1]:.4f} ({peer[0]})")
    if peer and ours:
      reached[what, PEER] = peer[1] / ours
      parts.append(f"minnow {reached[what, PEER]:.3f} x as fast")
    if what == "forward" and ours and blocks == 1 and best(figures, BARE[0]):
      reached[what, GEMM] = ours / best(figures, BARE[0])[1]
      parts.append(f"minnow {reached[what, GEMM]:.3f} x bare GEMM")
    if what in least:
      parts.append(f"floor {least[what]:.4f}" + (f", minnow {ours / least[what]:.3f} x that" if ours else ""))
    if ours and way == "rested":
      reached[what, MS] = ours
    lines.append(f"{what}: " + "; ".join(parts or ["nothing"]))
  for row, why in no_peer.items():
    lines.append(f"no peer, less exact than products of floats: {row} (error {why})")
  return lines + targets(shape, precision, reached)


def bare(figures):
  """The library's products and the copy, the faster of what minnow and PyTorch get, and the errors of the first."""
  parts = [f"{what} {found[1]:.4f} ({found[0]})" for what in BARE for found in [best(figures, what)] if found]
  copy = best(figures, "copy")
  if copy:
    parts.append(f"copy {2**30 / copy[1] * 1e-6:.0f} GB/s ({copy[0]})")
  found = [f"{row} {error(figures, row)}" for row, what in figures if what == BARE[0] and error(figures, row)]
  errors = [f"errors of the bare {BARE[0]}: " + ", ".join(found)] if found else []
  return (["bare: " + ", ".join(parts)] if parts else []) + errors


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
  title, width = f"{shape}, {precision}, {way}", WIDTH + 4
  lines = ["", title] if len(title) > width + 1 else [""]  # a line of its own for a stack's
  lines.append(f"{'' if title in lines else title:<{width}}{'forward ms':>12}{'step ms':>12}{'error':>12}")
  for row in rows:
    line = f"{row:<{width}}{cell(figures, row, 'forward')}{cell(figures, row, 'step')}{error(figures, row):>12}"
    lines.append(line.rstrip())
  return lines + bare(figures) + summary(shape, precision, figures, way) + spread(figures)


def peers(shape, precision, figures):
  lines = [line for way in WAYS for line in peers_one_way(shape, precision, timed(figures, way), way)]
  held = figures.get(("minnow", "step"), {}).get("bytes")
  if held:
    lines.append(f"minnow's step holds {held / 2**20:.1f} MiB of the device's memory")
  return "\n".join(lines + failures(figures))


def kernelbench(shape, precision, figures):
  tolerance, kind = {"bf16": ("1e-2", "bfloat16"), "fp16": ("1e-2", "float16")}.get(precision, ("1e-4", "float32"))
  title, width = f"KernelBench 2/62, {precision}", WIDTH + 10
  lines = ["", f"{title:<{width}}{'median ms':>12}{'mean ms':>12}{'outside':>13}"]
  for (row, _), f in figures.items():
    if "outside" in f:
      times = f"{f['ms']:12.4f}{f['mean_ms']:12.4f}" if "ms" in f else " " * 24
      lines.append(f"{row:<{width}}{times}{100 * f['outside']:11.5f} %  {'passes' if f['passes'] else 'does not pass'}")
  lines += [f"{shape}, forward alone: CUDA events around each of 100 calls, the L2 cache flushed before each;",
            f"outside: elements out of atol = rtol = {tolerance} around PyTorch's eager {kind}, all on the same {kind}",
            "inputs; passes: torch.allclose accepts all of them; float64, rounded: the exact result, to show how far",
            "eager is from it"]
  if any("cast" in row for row, _ in figures):
    lines += ["cast inside: what minnow's GEMMs read is made of the float32 weights (and x) in every timed call;",
              "outside: before all calls, as a training step leaves it"]
  return "\n".join(lines + failures(figures))
