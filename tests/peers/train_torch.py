"""PyTorch as a child of train.py: the training loop as its users write it, with the data on the GPU and with a
DataLoader. Parameters are float32, products bfloat16 under autocast, the model and its loss compiled in the default
mode; no loss is read in the loop. With the data on the GPU also as one CUDA graph a step."""
import gc
import sys
import time

import torch

import timing
from torch_peer import Block, tf32

WORKERS = 8
RESIDENT, GRAPH, LOADER = ROWS = ["PyTorch compile, resident", "PyTorch compile, resident, in a graph",
                                  f"PyTorch compile, DataLoader, {WORKERS} workers"]


class TrainTorch(timing.Peer):
  def __init__(self, device):
    super().__init__()
    self.device = torch.device(device)
    self.sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    self.sync()  # without a GPU this is where it ends

  def about(self):
    version = torch.__version__.partition("+")[0]
    return f"PyTorch {version}" + (f" (CUDA {torch.version.cuda})" if torch.version.cuda else "")

  def open(self, data, shape, precision):
    """data: path and the byte offsets of x and y, which are float32 in one piece each. shape: rows of the file, inputs,
    the channels of each block, groups, batch."""
    rows, inputs, channels, groups, self.batch = shape
    size = max(data["x"] + 4 * rows * inputs, data["y"] + 4 * rows * channels[-1])
    floats = torch.from_file(data["path"], shared=False, size=size // 4, dtype=torch.float32)
    first = {name: data[name] // 4 for name in "xy"}
    self.x = floats[first["x"] : first["x"] + rows * inputs].view(rows, inputs).clone()
    self.y = floats[first["y"] : first["y"] + rows * channels[-1]].view(rows, channels[-1]).clone()
    tf32(False)
    with self.device:
      widths = [inputs, *channels]
      blocks = [Block(a, b, groups) for a, b in zip(widths, widths[1:])]
      self.model = torch.nn.Sequential(*blocks)
    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6, momentum=0.9, fused=True)
    self.mixed = precision == "bf16"
    self.loss = torch.compile(self.error(self.mixed), dynamic=False)
    return ROWS

  def error(self, mixed):
    model, device = self.model, self.device.type

    def error(x, target):
      with torch.autocast(device, torch.bfloat16, enabled=mixed):
        y = model(x)
      return torch.nn.functional.mse_loss(y.float(), target)

    return error

  def on_device(self):
    """All rows: x in the type that the products read."""
    return self.x.to(self.device, torch.bfloat16 if self.mixed else None), self.y.to(self.device)

  def numbers(self):
    """The rows of batches, in a new order every epoch."""
    while True:
      yield from torch.randperm(len(self.x), device=self.device).split(self.batch)

  def resident(self):
    x, y = self.on_device()
    for index in self.numbers():
      yield x.index_select(0, index), y.index_select(0, index)

  def graph(self):
    """A step whose rows' numbers are copied to where the graph reads them."""
    (x, y), numbers = self.on_device(), self.numbers()
    index, graph, aside = next(numbers).clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()

    def step():
      self.optimizer.zero_grad(set_to_none=True)
      self.loss(x.index_select(0, index), y.index_select(0, index)).backward()
      self.optimizer.step()

    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
      for _ in range(3):
        step()
    torch.cuda.current_stream().wait_stream(aside)
    with torch.cuda.graph(graph):
      step()

    def call():
      index.copy_(next(numbers))
      graph.replay()

    return call, self.sync

  def loaded(self):
    gpu = self.device.type == "cuda"
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(self.x, self.y), batch_size=self.batch,
                                         shuffle=True, num_workers=WORKERS, pin_memory=gpu, persistent_workers=True)
    while True:
      for x, y in loader:
        yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)

  def make(self, row, what):
    if row == GRAPH:
      return self.graph()
    batches = {RESIDENT: self.resident, LOADER: self.loaded}[row]()

    def call():
      x, y = next(batches)
      self.optimizer.zero_grad(set_to_none=True)
      self.loss(x, y).backward()
      self.optimizer.step()

    return call, self.sync

  def prepare(self, row, what):
    """Returns the seconds to the end of the first step: compiling, moving the data, starting the workers."""
    start = time.perf_counter()
    super().prepare(row, what)
    return {"first_s": time.perf_counter() - start}

  def time(self, row, what, warm_s, budget_s):
    return timing.stretch(*self.ready[row, what], warm_s, budget_s)

  def link(self):
    """GB/s from page-locked memory of the host to the device: the median of copies of 256 MiB."""
    if self.device.type != "cuda":
      raise RuntimeError("a link needs a GPU")
    source = torch.rand(1 << 26).pin_memory()
    target = torch.empty_like(source, device=self.device)
    for _ in range(3):
      target.copy_(source, non_blocking=True)
    times = sorted(timing.run(lambda: target.copy_(source, non_blocking=True), self.sync, 4) for _ in range(9))
    return {"gb_per_s": source.nbytes / times[4] * 1e-9}

  def close(self):
    super().close()
    self.x = self.y = self.model = self.optimizer = self.loss = None
    if hasattr(torch, "_dynamo"):
      torch._dynamo.reset()
    gc.collect()  # ends the workers of a loader
    if self.device.type == "cuda":
      torch.cuda.empty_cache()


if __name__ == "__main__":
  timing.serve(TrainTorch(sys.argv[1]))
