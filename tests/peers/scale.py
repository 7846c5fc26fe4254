"""Projects minnow's step in bf16 to many GPUs, from rates that were measured: `python3 tests/peers/scale.py`.

P ranks share the groups of every block, D copies of those share the batch. A step's time is that of its products, by
tiles and the multiprocessors that there are for them, of the memory that an update moves, and of what goes between
GPUs, less what runs beside that. Within a host parts' y goes beside the next block's product and dx beside the rest of
its own, copies' sums go beside their product in pieces, and their gathers beside the update; on any machine copies' sums
go beside the backward of the blocks below. With overlap, which minnow does not have, pieces of every other exchange go
beside the products before and after. Beyond the GPUs of one host all of this is a projection. --check FILE holds it
against what `make peers ARGS="--ranks N --json FILE"` has measured, and fails beyond 15 %."""
import argparse
import collections
import json
import math
import sys

# Where each of these was measured. products: 8192 x 8192 x 8192 in bf16, ms, rested and sustained; copy: bytes/s, read
# and written; link: bytes/s a GPU, the bus bandwidth of NCCL's all-reduce in one host without multicast; memory: bytes.
Rates = collections.namedtuple("Rates", "products copy link memory")
RATES = {
    # tests/RESULTS.md, "minnow, PyTorch and JAX"; the link: 256 MiB among four, 1.20 ms.
    "H200": Rates({"rested": 1.3783, "sustained": 1.6081}, 4.19e12, 335e9, 141e9),
    # 787 TFLOP/s on a GPU of four, 3.0 TB/s, 1 GiB among four; sustained is assumed to lose what the H200's does.
    "H100": Rates({"rested": 1.397, "sustained": 1.630}, 3.0e12, 355e9, 80e9),
}
PROCESSORS = 132
# Rows and columns of a tile and its share of the plain tile's rate: 128 x 128 against 128 x 256 as 498 against 610
# TFLOP/s (fast.cu's worklog, H100); 64 x 64 is assumed.
TILES = [(128, 256, 1.0), (128, 128, 0.82), (64, 64, 0.5)]
# What an epilogue adds to a wave of plain tiles, ms, rested (kernels/hopper/NOTES.md, "Block epilogues": two waves).
EPILOGUES = {"store": 0.0, "forward": 0.001, "save": 0.004, "backward": 0.007, "loss": 0.008}
# An update: its memory traffic at so much of a copy's rate, and what of its product does not hide that: by depth, up to
# SHALLOW (NOTES.md, "Update": 0.292 ms at a depth of 64, 0.336 at 1024), at DEEP (a step of 2048 rows), and deeper all.
UPDATE_MEMORY, SHALLOW, DEEP = 0.887, (1024, 0.272), (2048, 0.8)
LAUNCH = 0.005  # ms for each product: first loads, last stores, the small kernels beside; fitted to the steps below
# Assumed, not measured: GPUs of a host, 400 Gb/s a GPU between hosts at nine tenths, ms that a collective waits in a
# host and for each doubling of hosts, pieces in which one overlaps with products.
HOST, NETWORK, LATENCY, HOP, PIECES = 8, 45e9, 0.012, 0.010, 4
# ms from a product to the first byte that a copy engine sends of it, and from the last to the kernel that reads it:
# rounded from records of two GPUs (kernels/NOTES.md, "By the copy engines").
START, MEET = 0.015, 0.008
SPARED = 24  # multiprocessors that products leave to the copies' sums (kernels/stream.h)
GROUP = 16  # channels of a group: P is at most width / GROUP
LIMIT = 0.15

# rows: of all copies together; width of every block; blocks. mse, no gradient of x, SGD with momentum.
Shape = collections.namedtuple("Shape", "rows width blocks")
# tests/RESULTS.md, one H200, milliseconds of a step: (rested, sustained).
KNOWN = {Shape(1024, 8192, 1): (0.5444, 0.6223), Shape(1024, 4096, 1): (0.1501, 0.1700),
         Shape(8192, 8192, 1): (3.2603, 3.6770), Shape(1024, 8192, 3): (2.0366, 2.3252),
         Shape(1024, 4096, 4): (0.7602, 0.8682)}
# "Whole training runs", `minnow train --place device`, sustained.
TRAINED = {Shape(1024, 8192, 1): 0.6702, Shape(2048, 8192, 1): 1.1494, Shape(1024, 4096, 3): 0.6617}


class Machine:
  """One GPU in one way of timing, and what joins it to others. Times are in ms."""

  def __init__(self, rates, way):
    self.rates = rates
    waves = 64 * 32 / PROCESSORS
    self.rate = 2 * 128 * 256 * 8192 * math.ceil(waves) / rates.products[way]  # of a multiprocessor, a ms
    self.clock = rates.products["rested"] / rates.products[way]

  def moved(self, count):
    return 1e3 * count / self.rates.copy

  def product(self, rows, cols, depth, epilogue="store", launch=LAUNCH):
    """The fastest tile's waves; or its operands and a 16-bit result at the rate of a copy."""
    times = []
    for high, wide, share in TILES:
      waves = math.ceil(math.ceil(rows / high) * math.ceil(cols / wide) / PROCESSORS)
      area = high * wide / (128 * 256)
      tile = 2 * high * wide * depth / (self.rate * share) + EPILOGUES[epilogue] * area / self.clock
      times.append(waves * tile)
    return max(min(times), self.moved(2 * (rows * depth + depth * cols + rows * cols))) + launch

  def update(self, rows, cols, depth):
    """W as two halves of a float, and momentum, are read and written: 16 bytes a weight. The link within the L2 cache
    bounds that, so it follows the clock."""
    memory = self.moved(16 * rows * cols) / (UPDATE_MEMORY * self.clock)
    arithmetic = self.product(rows, cols, depth, launch=0)
    beside = 1
    if depth <= DEEP[0]:
      beside = SHALLOW[1] + (DEEP[1] - SHALLOW[1]) * max(0, depth - SHALLOW[0]) / (DEEP[0] - SHALLOW[0])
    return max(memory + beside * arithmetic, arithmetic) + LAUNCH

  def gather(self, size, ranks):
    """`size` bytes in all, of which each rank has its share, to every rank; a reduce-scatter takes as long. A host
    receives a byte once and passes it on inside."""
    inside = min(ranks, HOST)
    hosts = ranks // inside
    time = 1e3 * size * (inside - 1) / inside / self.rates.link
    return time + 1e3 * size * (hosts - 1) / hosts / (inside * NETWORK)

  def reduce(self, size, copies, inside):
    """The all-reduce of `size` bytes a GPU over copies, of which so many are in one host."""
    hosts = copies // inside
    time = 2e3 * size * (inside - 1) / inside / self.rates.link
    return time + 2e3 * size / inside * (hosts - 1) / hosts / NETWORK


def latency(ranks):
  return 0 if ranks == 1 else LATENCY + HOP * math.log2(math.ceil(ranks / HOST))


def left(between, beside, wait, overlap):
  """What of a transfer is not hidden by what runs beside it: the last piece, or what is too much."""
  if between == 0:
    return 0
  return wait + (max(between / PIECES, between - beside * (1 - 1 / PIECES)) if overlap else between)


def left_of_y(machine, rows, width, ranks, beside):
  """What the next product waits for, which begins with its own rank's part of the depth and takes the others' in turn,
  as they come."""
  each = machine.gather(2 * rows * width, ranks) / (ranks - 1) - beside / ranks
  return max(0, START + each, START + (ranks - 1) * each)


def left_of_dx(machine, rows, width, ranks, product):
  """What is still on its way when the product is done, which computes the others' shares of the columns first, as many
  at once as waves of tiles need; None where that is all."""
  tiles = math.ceil(rows / 256) * 2 * (width // ranks // 256)
  waves = [math.ceil(count * tiles / PROCESSORS) for count in range(ranks + 1)]
  at_once = next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n * waves[n] <= waves[ranks])
  if at_once == ranks or width % (256 * ranks):
    return None
  each, done = machine.gather(4 * rows * width, ranks) / (ranks - 1), 0
  for first in range(0, ranks, at_once):
    for _ in range(first, min(first + at_once, ranks - 1)):
      done = max(done, product * (first + at_once) / ranks + START) + each
  return max(0, done - product) + MEET


def step(machine, shape, grid=(1, 1), overlap=True, gathering=True):
  """{part: ms} of a step. gathering: the batch is gathered from the device's memory, as in minnow train."""
  ranks, copies = grid
  rows, width, own, deeper = shape.rows // copies, shape.width, shape.width // ranks, shape.blocks - 1
  m, part = machine, collections.Counter()
  saved, last = m.product(rows, own, width, "save"), m.product(rows, own, width, "loss")
  part["products"] += deeper * saved + last
  # dx of a rank's channels is a term of the sum over ranks, in floats, which goes on to dz.
  through = product = m.product(rows, width, own, "backward" if ranks == 1 else "store")
  if ranks > 1:
    through += m.moved(4 * rows * width) + m.moved((4 * ranks + 4 + 2) * rows * own)
  part["products"] += deeper * through
  if copies == 1:
    update = m.update(own, width, rows)
    part["updates"] += shape.blocks * update
  else:  # dW is stored as floats and summed over copies; a pass reads and updates this copy's share
    update, apply = m.product(own, width, rows) + m.moved(4 * own * width), m.moved(20 * own * width / copies)
    part["updates"] += shape.blocks * (update + apply)
  if gathering:
    part["rows"] += m.moved(2 * rows * (2 * width + 4 * own))
  if ranks > 1:
    wait, inside = latency(ranks), ranks <= HOST
    dx = left_of_dx(m, rows, width, ranks, product) if inside else None
    if dx is None:
      dx = left(m.gather(4 * rows * width, ranks), update, wait, overlap)
    y = left(m.gather(2 * rows * width, ranks), saved, wait, overlap)
    part["y, dx"] += deeper * (dx + (left_of_y(m, rows, width, ranks, saved) if inside else y))
  if copies > 1:
    inside = min(copies, max(1, HOST // ranks))
    before = 1 - 1 / PIECES if overlap or inside == copies else 0  # of a product or an update, of which a piece is left
    beside = deeper * (update + through) + before * update  # the backward of the blocks below, and pieces of the first
    part["products"] += beside * SPARED / (PROCESSORS - SPARED)
    sums, gathers = m.reduce(4 * own * width, copies, inside) / 2, m.reduce(2 * own * width, copies, inside) / 2
    part["dW"] += 2 * latency(ranks * copies) + max((1 - before) * sums, shape.blocks * sums - beside)
    part["dW"] += max((1 - before) * gathers, shape.blocks * gathers - (deeper + before) * apply)
  if ranks * copies > 1:
    part["small"] += 2 * latency(ranks * copies)  # the loss, and whether all values were finite
  return part


def milliseconds(*arguments, **options):
  return sum(step(*arguments, **options).values())


def held(shape, grid):
  """Bytes of a GPU: W and momentum, dW where it is summed over copies, two batches, what the forward saves, dx."""
  ranks, copies = grid
  rows, own = shape.rows // copies, shape.width // ranks
  weights = shape.blocks * shape.width * own * (8 if copies == 1 else 12)
  whole = rows * shape.width * (2 * 2 + (2 * shape.blocks + 4 if shape.blocks > 1 else 0))
  return weights + whole + rows * own * (2 * 4 + 6 * shape.blocks)


def grids(shape, count, memory):
  """Every P x D of so many GPUs that the groups, the rows and the memory allow."""
  return [(1 << i, count >> i) for i in range(count.bit_length())
          if 1 << i <= shape.width // GROUP and shape.rows % (count >> i) == 0
          and held(shape, (1 << i, count >> i)) < 0.9 * memory]


def best(machine, shape, count, overlap=True):
  """The fastest grid and its ms; None where none has the memory."""
  found = [(milliseconds(machine, shape, grid, overlap), grid) for grid in grids(shape, count, machine.rates.memory)]
  return min(found, default=None)


# Below: what is printed.

COUNTS = (1, 2, 4, 8, 64, 1024)
WIDTHS = (8192, 16384, 32768, 65536)


def show(value):
  return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def line(machine, width, blocks, rows, weak):
  """A row of the table. weak: `rows` for each GPU; else for all together."""
  cells, last, one = [], 1, best(machine, Shape(rows, width, blocks), 1)
  for count in (1 << i for i in range(COUNTS[-1].bit_length())):
    shape = Shape(rows * count if weak else rows, width, blocks)
    found = best(machine, shape, count)
    share = None
    if found and one:
      share = one[0] / found[0] / (1 if weak else count)
      last = count if share >= 0.5 and last == count // 2 else last
    if count in COUNTS:
      cell = "no memory"
      if found:
        serial = best(machine, shape, count, overlap=False)[0]
        cell = f"{show(found[0])} ({show(serial)})" if serial > 1.005 * found[0] else show(found[0])
        cell += f", {found[1][0]}x{found[1][1]}" if count > 1 else ""
        cell += f", {100 * share:.0f} %" if share and count > 1 else ""
      cells.append(cell)
  cells.append(str(last) if one else "–")
  return f"| {blocks} x {width} | " + " | ".join(cells) + " |"


def tables(machine):
  lines = []
  for weak, rows in ((True, 1024), (True, 8192), (False, 8192)):
    what = f"{rows} rows a GPU" if weak else f"{rows} rows in all"
    lines += ["", f"| {what} | " + " | ".join(f"{count} GPU{'s' if count > 1 else ''}" for count in COUNTS)
              + " | 50 % or more up to |", "|---" * (len(COUNTS) + 2) + "|"]
    lines += [line(machine, width, blocks, rows, weak) for blocks in (1, 3) for width in WIDTHS]
  return lines


def calibration():
  """One H200, for which there are measured steps."""
  lines = ["| one GPU: rows x width, blocks | rested: measured | model | off | sustained: measured | model | off |",
           "|---|---|---|---|---|---|---|"]
  for shape, known in KNOWN.items():
    cells = [f"{shape.rows} x {shape.width}, {shape.blocks}"]
    for way, measured in zip(("rested", "sustained"), known):
      model = milliseconds(Machine(RATES["H200"], way), shape, gathering=False)
      cells += [f"{measured:.3f}", f"{model:.3f}", f"{100 * (model / measured - 1):+.1f} %"]
    lines.append("| " + " | ".join(cells) + " |")
  for shape, measured in TRAINED.items():
    model = milliseconds(Machine(RATES["H200"], "sustained"), shape)
    cells = [f"minnow train, {shape.rows} x {shape.width}, {shape.blocks}", "", "", "", f"{measured:.3f}",
             f"{model:.3f}", f"{100 * (model / measured - 1):+.1f} %"]
    lines.append("| " + " | ".join(cells) + " |")
  return lines


def check(path, overlap):
  """Prints every figure of minnow's in the file beside the model's. Returns what is wrong, in a line each."""
  with open(path) as file:
    taken = json.load(file)
  name = next((name for name in RATES if name in taken["header"][0]), None)
  if not name:
    return [f"{path}: of {taken['header'][0]}, for which there are no rates; there are for {', '.join(RATES)}"]
  wrong, several = [], 0
  for figure in taken["figures"]:
    if not figure["row"].startswith("minnow"):
      continue
    text = f"{figure['case']}, {figure['row']}"
    if "failed" in figure:
      print(f"{text}: not measured: {figure['failed']}")
      continue
    shape = Shape(figure["rows"], figure["widths"][0], len(figure["widths"]) - 1)
    for way in RATES[name].products:
      measured = min(found["ms"] for found in figure[way])
      parts = step(Machine(RATES[name], way), shape, tuple(figure["grid"]), overlap)
      model = sum(parts.values())
      off = model / measured - 1
      shown = ", ".join(f"{part} {value:.3f}" for part, value in parts.items())
      print(f"{text}, {way}: {measured:.3f} ms, model {model:.3f} ({100 * off:+.0f} %): {shown}")
      several += figure["gpus"] > 1
      if abs(off) > LIMIT:
        wrong.append(f"{text}, {way}: the model is off by {100 * off:+.0f} %, more than {100 * LIMIT:.0f}")
  return wrong + ([] if several else [f"{path}: no figure of minnow's on several GPUs"])


def self_test():
  """What must hold of the model whatever the rates; what is wrong, in a line each."""
  wrong = []

  def expect(text, holds):
    if not holds:
      wrong.append(text)

  for name in RATES:
    for way in RATES[name].products:
      m = Machine(RATES[name], way)
      square = m.product(8192, 8192, 8192, launch=0)
      expect(f"{name}, {way}: the product that gave the rate takes that long",
             abs(square / RATES[name].products[way] - 1) < 1e-9)
      expect(f"{name}: half of the rows never take longer", m.product(512, 8192, 8192) <= m.product(1024, 8192, 8192))
      expect(f"{name}: one tile more than there are multiprocessors costs",
             m.product(133 * 128, 256, 8192) > 1.1 * m.product(132 * 128, 256, 8192))
      block, stack = Shape(1024, 8192, 1), Shape(1024, 8192, 3)
      shared = step(m, block, (4, 1))
      expect(f"{name}: of one block nothing is exchanged but the loss and a flag",
             shared["y, dx"] == shared["dW"] == 0 and shared["small"] > 0)
      expect(f"{name}: of a stack y and dx are", step(m, stack, (4, 1))["y, dx"] > 0)
      expect(f"{name}: with copies dW is, without groups nothing else",
             step(m, stack, (1, 4))["dW"] > 0 and step(m, stack, (1, 4))["y, dx"] == 0)
      for grid in (2, 1), (4, 1), (1, 4), (8, 8), (64, 16):
        wide = Shape(65536, 16384, 3)
        expect(f"{name}: {grid}: overlap never costs",
               milliseconds(m, wide, grid) <= milliseconds(m, wide, grid, overlap=False))
      expect(f"{name}: one GPU is its own best grid", best(m, block, 1)[1] == (1, 1))
      expect(f"{name}: 512 groups are divided among 512 ranks at most",
             max(p for p, _ in grids(Shape(1 << 20, 8192, 1), 1024, 1e15)) == 512)
      expect(f"{name}: what does not fit is no grid", not grids(Shape(1024, 1 << 20, 1), 1, RATES[name].memory))
  machine = Machine(RATES["H200"], "rested")
  expect("256 MiB among four H200s take 1.20 ms", abs(machine.reduce(1 << 28, 4, 4) - 1.20) < 0.01)
  expect("between hosts as much goes over a GPU's network once it was summed in the host",
         math.isclose(machine.reduce(8e9, 16, 8) - machine.reduce(8e9, 8, 8), 2e3 * 8e9 / 8 / 2 / NETWORK))
  points = [(shape, way, measured, False) for shape, known in KNOWN.items()
            for way, measured in zip(("rested", "sustained"), known)]
  for shape, way, measured, gathering in points + [(*known, True) for known in
                                                   ((shape, "sustained", ms) for shape, ms in TRAINED.items())]:
    off = milliseconds(Machine(RATES["H200"], way), shape, gathering=gathering) / measured - 1
    expect(f"{shape}, {way}: within 6 % of what was measured, not {100 * off:+.1f}", abs(off) < 0.06)
  return wrong


def main():
  parser = argparse.ArgumentParser(prog="tests/peers/scale.py", description="Projects minnow's step to many GPUs.")
  parser.add_argument("--gpu", choices=RATES, default="H200", help="default %(default)s")
  parser.add_argument("--check", metavar="FILE", help="hold the model against what make peers --ranks has measured")
  parser.add_argument("--no-overlap", action="store_true", help="for --check: as minnow is")
  parser.add_argument("--self-test", action="store_true", help="what must hold of the model itself")
  options = parser.parse_args()
  if options.check or options.self_test:
    wrong = self_test() if options.self_test else []
    wrong += check(options.check, not options.no_overlap) if options.check else []
    print("\n".join(f"scale.py: {text}" for text in wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0
  known = calibration() if options.gpu == "H200" else []
  print("\n".join([*known, *tables(Machine(RATES[options.gpu], "sustained"))]))
  return 0


if __name__ == "__main__":
  sys.exit(main())
