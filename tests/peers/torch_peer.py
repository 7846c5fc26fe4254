"""PyTorch as a child of peers.py: the block as its users write it, eager and compiled, with a CUDA graph or without."""
import copy
import gc
import pathlib
import sys
import time

import torch

import timing

# torch.compile's modes. The graph is captured by hand, alike for all three, so no mode brings one of its own.
MODES = {"eager": None, "compile": "default", "max-autotune": "max-autotune-no-cudagraphs"}
ROWS = [f"PyTorch {mode}{graph}" for mode in MODES for graph in ("", ", graph")]
BARE = [("torch.mm", what) for what in ("x*W^T", "dz*W", "dz^T*x")] + [("Tensor.copy_", "copy")]
TOLERANCE = {"fp32": 1e-4, "tf32": 1e-4, "bf16": 1e-2}  # KernelBench's, absolute and relative; TF32 is a mode of float32


class Block(torch.nn.Module):
  def __init__(self, inputs, channels, groups):
    super().__init__()
    self.fc = torch.nn.Linear(inputs, channels)
    self.gn = torch.nn.GroupNorm(groups, channels)
    self.activation = torch.nn.LeakyReLU(0.01)

  def forward(self, x):
    a = self.activation(self.gn(self.fc(x)))
    return a + a


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
    self.device, self.runs = torch.device(device), {}
    self.sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    self.sync()  # without a GPU this is where it ends

  def about(self):
    version = torch.__version__.partition("+")[0]
    return f"PyTorch {version}" + (f" (CUDA {torch.version.cuda})" if torch.version.cuda else "")

  def random(self, *sizes):
    return torch.rand(*sizes, device=self.device) * 2 - 1

  def open(self, shape, precision):
    """One block with float32 masters for the step, and one that is of the precision's type throughout for the forward.
    x is of that type from the start: it is data."""
    rows, inputs, channels, groups = shape
    self.shape, self.precision = shape, precision
    self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    tf32(precision == "tf32")
    with self.device:
      self.master, self.plain = Block(inputs, channels, groups), Block(inputs, channels, groups).to(self.dtype)
    for block in self.master, self.plain:
      for parameter in block.gn.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    self.x, self.target = self.random(rows, inputs).to(self.dtype), self.random(rows, channels)
    return [(row, what) for row in ROWS for what in ("forward", "step")] + BARE

  def close(self):
    super().close()
    self.runs.clear()
    self.master = self.plain = self.x = self.target = self.reference = self.flushed = None
    torch._dynamo.reset()
    gc.collect()
    if self.device.type == "cuda":
      torch.cuda.empty_cache()

  def make(self, row, what):
    return (self.bare(what) if (row, what) in BARE else self.variant(row, what)), self.sync

  def variant(self, row, what):
    mode, _, graph = row.removeprefix("PyTorch ").partition(", ")
    if graph and self.device.type != "cuda":
      raise RuntimeError("CUDA graphs need a GPU")
    if (mode, what) not in self.runs:  # compiled once, for the variant with a graph and the one without
      self.runs[mode, what] = {"forward": self.forward, "step": self.step}[what](MODES[mode])
    return capture(self.runs[mode, what]) if graph else self.runs[mode, what]

  def forward(self, mode):
    block, x = compiled(self.plain, mode), self.x

    def run():
      with torch.no_grad():
        return block(x)

    return run

  def step(self, mode):
    block, x, target = self.master, self.x, self.target
    device, mixed = self.device.type, self.precision == "bf16"
    optimizer = torch.optim.SGD(block.parameters(), lr=1e-6, momentum=0.9, fused=True)

    def error(x, target):
      with torch.autocast(device, torch.bfloat16, enabled=mixed):
        y = block(x)
      return torch.nn.functional.mse_loss(y.float(), target)

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
    rows, inputs, channels, _ = self.shape
    sizes = (rows, inputs), (channels, inputs), (rows, channels)
    x, weight, dz = (self.random(*size).to(self.dtype) for size in sizes)
    left, right = {"x*W^T": (x, weight.t()), "dz*W": (dz, weight), "dz^T*x": (dz.t(), x)}[what]
    product = torch.mm(left, right)
    return lambda: torch.mm(left, right, out=product)

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
    self.plain.load_state_dict(original.state_dict())
    for name, tensor in {"x": self.x, **original.state_dict()}.items():
      tensor.float().cpu().numpy().tofile(self.folder / name)
    tf32(False)
    with torch.no_grad():
      self.reference = original(self.x)
    tf32(precision == "tf32")
    return ROWS

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
