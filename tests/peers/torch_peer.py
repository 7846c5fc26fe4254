"""PyTorch as a child of peers.py: the blocks as its users write them, eager and compiled, with a CUDA graph or
without; and, under KernelBench's rules, minnow's module for PyTorch."""
import copy
import gc
import os
import pathlib
import sys
import time
import warnings

import torch

import step_tables as tables
import timing

# torch.compile's modes. The graph is captured by hand, alike for all three, so no mode brings one of its own.
MODES = {"eager": None, "compile": "default", "max-autotune": "max-autotune-no-cudagraphs"}
ROWS = [f"PyTorch {mode}{graph}" for mode in MODES for graph in ("", ", graph")]
DROP_IN = "minnow_torch.ModelNew"
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # in every other precision all is float32
# A fixed factor on the loss in place of a GradScaler, which would look at every gradient in every step; the rate is
# divided by it. Without one, float16 would lose a dy of 1e-7.
SCALE = {"fp16": 2.0**16}
TOLERANCE = {"fp32": 1e-4, "tf32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}  # KernelBench's, absolute and relative


def bare_rows(precision):
  """Of fp16x3 the three products of float16 that it is made of, as one of three times the depth."""
  mm = tables.THREE if precision == "fp16x3" else "torch.mm"
  return [(mm, what) for what in ("x*W^T", "dz*W", "dz^T*x")] + [("Tensor.copy_", "copy")]


class Block(torch.nn.Module):
  def __init__(self, inputs, channels, groups):
    super().__init__()
    self.fc = torch.nn.Linear(inputs, channels)
    self.gn = torch.nn.GroupNorm(groups, channels)
    self.activation = torch.nn.LeakyReLU(0.01)

  def forward(self, x):
    a = self.activation(self.gn(self.fc(x)))
    return a + a


def stack(widths, groups, classes=0):
  blocks = [Block(a, b, groups) for a, b in zip(widths, widths[1:])]
  if classes:
    blocks.append(torch.nn.Linear(widths[-1], classes))
  return blocks[0] if len(blocks) == 1 else torch.nn.Sequential(*blocks)


def model_new():
  """The class from layers/minnow_torch, with the library in BUILD; what minnow does not serve is an error."""
  os.environ.setdefault("MINNOW_LIBRARY", os.path.abspath(os.path.join(os.environ["BUILD"], "libminnow.so")))
  sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "layers"))
  warnings.filterwarnings("error", "minnow")
  from minnow_torch import ModelNew

  return ModelNew


def product(x, weight):
  return torch.nn.functional.linear(x, weight)


def tf32(allowed):
  torch.set_float32_matmul_precision("high" if allowed else "highest")


def compiled(what, mode):
  return torch.compile(what, mode=mode, dynamic=False) if mode else what


def capture(run):
  """`run` as one CUDA graph. PyTorch asks for a few runs on a side stream first, in which libraries initialise."""
  side = torch.cuda.Stream()
  side.wait_stream(torch.cuda.current_stream())
  with torch.cuda.stream(side):
    for _ in range(3):
      run()
  torch.cuda.current_stream().wait_stream(side)
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph):
    result = run()

  def replay():
    graph.replay()
    return result

  return replay


class Torch(timing.Peer):
  def __init__(self, device):
    super().__init__()
    self.device, self.runs, self.errors = torch.device(device), {}, {}
    self.sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    self.sync()  # without a GPU this is where it ends

  def about(self):
    version = torch.__version__.partition("+")[0]
    return f"PyTorch {version}" + (f" (CUDA {torch.version.cuda})" if torch.version.cuda else "")

  def random(self, *sizes):
    return torch.rand(*sizes, device=self.device) * 2 - 1

  def open(self, shape, precision, classes=0):
    """Blocks with float32 masters for the step, and others that are of the precision's type throughout for the forward.
    x is of that type from the start: it is data."""
    rows, *widths, groups = shape
    self.shape, self.precision = shape, precision
    self.dtype = TYPES.get(precision, torch.float32)
    tf32(precision == "tf32")
    with self.device:
      self.master, self.plain = stack(widths, groups, classes), stack(widths, groups, classes).to(self.dtype)
    for module in *self.master.modules(), *self.plain.modules():
      if isinstance(module, torch.nn.GroupNorm):
        torch.nn.init.uniform_(module.weight, -1, 1)
        torch.nn.init.uniform_(module.bias, -1, 1)
    self.x = self.random(rows, widths[0]).to(self.dtype)
    self.target = torch.arange(rows, device=self.device) % classes if classes else self.random(rows, widths[-1])
    return [(row, what) for row in ROWS for what in ("forward", "step")] + bare_rows(precision)

  def close(self):
    super().close()
    self.runs.clear()
    self.errors.clear()
    self.master = self.plain = self.drop_in = self.x = self.target = self.reference = self.flushed = None
    torch._dynamo.reset()
    gc.collect()
    if self.device.type == "cuda":
      torch.cuda.empty_cache()

  def make(self, row, what):
    if row == DROP_IN:
      return self.forward(None, self.drop_in), self.sync
    return (self.variant(row, what) if row in ROWS else self.bare(what)), self.sync

  def variant(self, row, what):
    mode, _, graph = row.removeprefix("PyTorch ").partition(", ")
    if graph and self.device.type != "cuda":
      raise RuntimeError("CUDA graphs need a GPU")
    if (mode, what) not in self.runs:  # compiled once, for the variant with a graph and the one without
      self.runs[mode, what] = {"forward": self.forward, "step": self.step}[what](MODES[mode])
    return capture(self.runs[mode, what]) if graph else self.runs[mode, what]

  def forward(self, mode, module=None):
    block, x = compiled(module or self.plain, mode), self.x

    def run():
      with torch.no_grad():
        return block(x)

    return run

  def step(self, mode):
    block, x, target = self.master, self.x, self.target
    device, narrow, mixed = self.device.type, TYPES.get(self.precision, torch.bfloat16), self.precision in TYPES
    scale = SCALE.get(self.precision, 1)
    criterion = torch.nn.functional.mse_loss if target.is_floating_point() else torch.nn.functional.cross_entropy
    optimizer = torch.optim.SGD(block.parameters(), lr=1e-6 / scale, momentum=0.9, fused=True)

    def error(x, target):
      with torch.autocast(device, narrow, enabled=mixed):
        y = block(x)
      loss = criterion(y.float(), target)
      return loss if scale == 1 else scale * loss

    loss = compiled(error, mode)

    def run():
      optimizer.zero_grad(set_to_none=True)
      loss(x, target).backward()
      optimizer.step()

    return run

  def bare(self, what):
    if what == "copy":
      source = self.random(1 << 27)  # 512 MiB
      copied = torch.empty_like(source)
      return lambda: copied.copy_(source)
    n, i, c = self.shape[:3]
    three = 3 if self.precision == "fp16x3" else 1
    dtype = torch.float16 if three == 3 else self.dtype
    # Row-major, as they lie in memory; W in x*W^T and dz in dz^T*x are read transposed.
    sizes = {"x*W^T": ((n, three * i), (c, three * i)), "dz*W": ((n, three * c), (three * c, i)),
             "dz^T*x": ((three * n, c), (three * n, i))}[what]
    left, right = (self.random(*size).to(dtype) for size in sizes)
    left, right = left.t() if what == "dz^T*x" else left, right.t() if what == "x*W^T" else right
    result = torch.mm(left, right)
    return lambda: torch.mm(left, right, out=result)

  def error(self, row):
    """Once for each mode: a graph changes nothing in it, and torch.mm is what eager calls."""
    mode = row.removeprefix("PyTorch ").partition(", ")[0] if row in ROWS else "eager"
    if mode not in self.errors:
      n, inputs, channels = self.shape[:3]
      rows, columns = timing.sample(n, channels)
      x, weight = self.random(n, inputs), inputs**-0.5 * self.random(channels, inputs)
      with torch.no_grad():
        z = compiled(product, MODES[mode])(x.to(self.dtype), weight.to(self.dtype))
      seen = x[rows], weight[columns], z[rows, columns].float()
      self.errors[mode] = timing.product_error(*(matrix.cpu().numpy() for matrix in seen))
    return self.errors[mode]

  def kernelbench_open(self, folder, shape, precision):
    """As KernelBench does: the module and its inputs are cast to the precision's type, and the reference is what the
    eager module makes of them in this type, without TF32. The cast inputs are left in the folder, widened to floats, so
    that minnow reads the same values."""
    self.folder = pathlib.Path(folder)
    self.open(shape, precision)
    torch.manual_seed(62)  # the same inputs for every precision, before the cast
    with self.device:
      original, self.x = Block(*shape[1:]).to(self.dtype), torch.rand(*shape[:2]).to(self.dtype)
      self.flushed = torch.empty(1 << 28, dtype=torch.uint8)
      self.drop_in = model_new()(*shape[1:]).to(self.dtype)
    self.plain.load_state_dict(original.state_dict())
    self.drop_in.load_state_dict(original.state_dict())
    for name, tensor in {"x": self.x, **original.state_dict()}.items():
      tensor.float().cpu().numpy().tofile(self.folder / name)
    tf32(False)
    with torch.no_grad():
      self.reference = original(self.x)
    tf32(precision == "tf32")
    return [*ROWS, DROP_IN]

  def kernelbench(self, row):
    """Times the forward on these inputs, and leaves y in the folder, widened to floats."""
    call, sync = self.make(row, "forward")
    gpu = self.device.type == "cuda"
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if gpu else None

    def once():
      sync()
      self.flushed.zero_()
      if not gpu:
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)
      marks[0].record()
      call()
      marks[1].record()
      sync()
      return marks[0].elapsed_time(marks[1])

    figure = timing.cold(once)
    call().float().cpu().numpy().tofile(self.folder / "y")
    return figure

  def compare(self, y):
    """KernelBench's comparison with the reference, in the precision's type: whether torch.allclose accepts y, and the
    share of elements out of tolerance, NaN included."""
    arguments = {"atol": TOLERANCE[self.precision], "rtol": TOLERANCE[self.precision]}
    close = torch.isclose(self.reference, y, **arguments)
    return {"outside": 1 - close.double().mean().item(), "passes": torch.allclose(self.reference, y, **arguments)}

  def judge(self):
    """Compares the y in the folder, then removes it, so that nothing is judged twice."""
    path = self.folder / "y"
    floats = torch.from_file(str(path), size=self.reference.numel(), dtype=torch.float32)
    y = floats.view_as(self.reference).to(self.device, self.dtype, copy=True)
    path.unlink()
    return self.compare(y)

  def judge_exact(self):
    """Compares the module's result in float64 on the same inputs, rounded: how far the reference itself is off."""
    with torch.no_grad():
      return self.compare(copy.deepcopy(self.plain).double()(self.x.double()).to(self.dtype))


if __name__ == "__main__":
  timing.serve(Torch(sys.argv[1]))
