"""minnow_torch's Block and optimizers in PyTorch, beside plain modules: `make peers ARGS="--torch"`. All in one process and
one run, each step timed as timing.py says, rested and sustained, back to back and in a CUDA graph. Tables go to stdout."""
import argparse
import gc
import os
import pathlib
import sys
import time

import torch

import step_tables as tables
import timing
import torch_peer

# The parameters' type, autocast's, the optimizer, the norm that clip_grad_norm_ clips to, and how many times as fast as
# compiled plain modules it is to be: back to back, and in a graph.
CASES = {"autocast bf16": (torch.float32, torch.bfloat16, "SGD", None, 1.65, 1.65),
         "autocast fp16": (torch.float32, torch.float16, "SGD", None, 1.6, 1.6),
         "bf16 module": (torch.bfloat16, None, "SGD", None, 1.5, 1.05),
         "float32": (torch.float32, None, "SGD", None, 3.5, 3.5),
         "AdamW, autocast bf16": (torch.float32, torch.bfloat16, "AdamW", None, 1.35, 1.35),
         "clip_grad_norm_, autocast bf16": (torch.float32, torch.bfloat16, "SGD", 1.0, 1.2, 1.2)}
STACK = ("three wide, Linear, cross-entropy, autocast bf16", torch.float32, torch.bfloat16, "SGD", None, 1.4, 1.4)
KINDS = {"plain, compiled": ("plain", False, True), "Block, torch.optim": ("own", False, False),
         "Block, torch.optim, compiled": ("own", False, True), "Block, minnow_torch": ("own", True, False),
         "Block, minnow_torch, compiled": ("own", True, True)}
PLAIN, OURS = next(iter(KINDS)), [kind for kind in KINDS if "minnow_torch" in kind]
SMALL = "128x512x256/8"


class Steps:
  def __init__(self, device, minnow_torch):
    self.device, self.own, self.cuda = torch.device(device), minnow_torch, device == "cuda"
    self.sync = torch.cuda.synchronize if self.cuda else lambda: None

  def model(self, kind, sizes, dtype, rule, blocks=1, classes=0):
    """Parameters are the same in each kind."""
    module, optimizers, _ = KINDS.get(kind, (kind, kind == "own", False))
    torch.manual_seed(1)
    with self.device:
      parts = [(torch_peer.Block if module == "plain" else self.own.Block)(*sizes) for _ in range(blocks)]
      model = torch.nn.Sequential(*parts, *([torch.nn.Linear(sizes[1], classes)] if classes else [])).to(dtype)
    named = {"momentum": 0.9} if rule == "SGD" else {"capturable": self.cuda}
    return model, getattr(self.own if optimizers else torch.optim, rule)(model.parameters(), lr=1e-3, fused=True, **named)

  def step(self, kind, sizes, rows, dtype, cast, rule, norm, blocks=1, classes=0):
    model, optimizer = self.model(kind, sizes, dtype, rule, blocks, classes)
    x = torch.randn(rows, sizes[0], device=self.device).to(dtype)
    target = (torch.randint(classes, (rows,), device=self.device) if classes else
              torch.randn(rows, sizes[1], device=self.device).to(dtype))
    error = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss

    def loss(x, target):
      with torch.autocast(self.device.type, cast or torch.bfloat16, enabled=cast is not None):
        y = model(x)
      return error(y.float() if cast else y, target)

    run = torch.compile(loss, fullgraph=True, dynamic=False) if KINDS[kind][2] else loss

    def step():
      optimizer.zero_grad()
      run(x, target).backward()
      if norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
      optimizer.step()

    return step

  def figures(self, options, kind, *how, **more):
    """(back to back, in a graph), each (rested, sustained) in ms, and the peak of memory in MiB."""
    def taken(call):
      times = timing.measure(call, self.sync, options.warm, options.seconds)
      return [times[way]["ms"] for way in tables.WAYS]

    torch._dynamo.reset()
    gc.collect()
    if self.cuda:  # workspaces of the kinds before belong to no kind
      torch.cuda.empty_cache()
      torch._C._cuda_clearCublasWorkspaces()
      self.own.library._workspaces.clear()
    before = torch.cuda.memory_allocated()
    step = self.step(kind, *how, **more)
    if not self.cuda:
      return [taken(step), 2 * [float("nan")]], 0
    step()
    torch.cuda.reset_peak_memory_stats()
    back, peak = taken(step), (torch.cuda.max_memory_allocated() - before) / 2**20
    return [back, taken(torch_peer.capture(step))], peak

  def kernels(self, kind, *how, **more):
    """Prints where the device's time goes, in us a step, by PyTorch's profiler over ten steps."""
    from torch.profiler import ProfilerActivity, profile

    step = self.step(kind, *how, **more)
    for _ in range(5):
      step()
    self.sync()
    with profile(activities=[ProfilerActivity.CUDA if self.cuda else ProfilerActivity.CPU]) as profiled:
      for _ in range(10):
        step()
      self.sync()
    taken = [(event.device_time_total if self.cuda else event.self_cpu_time_total, event) for event in profiled.key_averages()]
    print(kind)
    for time_, event in sorted(taken, key=lambda pair: -pair[0])[:16]:
      print(f"{time_ / 10:10.1f} us {event.count / 10:6.1f} calls  {event.key[:120]}", flush=True)

  def small(self, kind):
    """A forward, backward, step and zero_grad in Python that take longer than the device's work."""
    rows, inputs, channels, groups = tables.numbers(SMALL)
    model, optimizer = self.model(kind, (inputs, channels, groups), torch.float32, "SGD")
    x, dy = torch.randn(rows, inputs, device=self.device), torch.randn(rows, channels, device=self.device)
    run = torch.compile(model, fullgraph=True, dynamic=False) if KINDS.get(kind, (0, 0, False))[2] else model

    def step():
      with torch.autocast(self.device.type, torch.bfloat16):
        y = run(x)
      y.backward(dy.to(y.dtype))
      optimizer.step()
      optimizer.zero_grad()

    return step

  def host(self, *kinds):
    """µs a step of each kind, the best of many short runs by turns: other work on the host only adds to them."""
    steps, best = [self.small(kind) for kind in kinds], [float("inf")] * len(kinds)
    for _ in range(60):
      for i, step in enumerate(steps):
        self.sync()  # the queue is never full
        start = time.perf_counter()
        for _ in range(20):
          step()
        best[i] = min(best[i], (time.perf_counter() - start) / 20)
    return [1e6 * seconds for seconds in best]


def table(steps, options, name, *how, back, graph, **more):
  heads = () if options.profile else ("rested", "sustained", "graph, r.", "graph, s.", "peak MiB")
  print(f"\n{name}\n{'':32}" + "".join(f"{head:>12}" for head in heads))
  found = {}
  for kind in KINDS:
    if not any(text in kind for text in options.without):
      try:
        if options.profile:
          steps.kernels(kind, *how, **more)
          continue
        found[kind], peak = steps.figures(options, kind, *how, **more)
        print(f"{kind:32}" + "".join(f"{ms:12.4f}" for pair in found[kind] for ms in pair) + f"{peak:12.0f}", flush=True)
      except Exception as error:  # whatever a kind meets is named in its row
        print(f"{kind:32}{timing.reason(error)}", flush=True)
  ours = [found[kind] for kind in OURS if kind in found]
  if ours and PLAIN in found:
    ratios = [found[PLAIN][i][w] / min(f[i][w] for f in ours) for i in range(2) for w in range(2)]
    print(f"{'times as fast, the better one':32}" + "".join(f"{ratio:12.2f}" for ratio in ratios) +
          f"   goal: {back}, in a graph {graph}", flush=True)


def main():
  parser = argparse.ArgumentParser(prog='make peers ARGS="--torch …"', description="Times minnow_torch in PyTorch.")
  parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
  parser.add_argument("--shape", action="append", help="NxIxC/G; repeatable; default 1024x8192x8192/512, 1024x4096x4096/256")
  parser.add_argument("--case", action="append", choices=[*CASES, "stack", "host"], help="repeatable; default all")
  parser.add_argument("--without", action="append", default=[], metavar="TEXT", help="leave out kinds with this in their names")
  parser.add_argument("--profile", action="store_true", help="print where the device's time goes instead")
  parser.add_argument("--seconds", type=float, default=0.4, help="of timing for a figure; default %(default)s")
  parser.add_argument("--warm", type=float, default=0.15, help="seconds before them; default %(default)s")
  parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="default %(default)s")
  options = parser.parse_args()
  os.environ.setdefault("MINNOW_LIBRARY", os.path.abspath(os.path.join(os.environ["BUILD"], "libminnow.so")))
  sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "layers"))
  import minnow_torch

  steps = Steps(options.device, minnow_torch)
  print(f"{torch.cuda.get_device_name() if steps.cuda else 'CPU'}; PyTorch {torch.__version__}; ms a step")
  wanted = options.case or [*CASES, "stack", "host"]
  for shape in options.shape or ["1024x8192x8192/512", "1024x4096x4096/256"]:
    rows, *sizes = tables.numbers(shape)
    for name, (*how, back, graph) in CASES.items():
      if name in wanted:
        table(steps, options, f"{shape}, {name}", sizes, rows, *how, back=back, graph=graph)
  if "stack" in wanted:
    name, *how, back, graph = STACK
    width = sizes[0] if options.shape else 4096
    table(steps, options, f"{width}, {name}", (width, width, max(1, width // 16)), rows, *how, back=back, graph=graph,
          blocks=3, classes=1000)
  if "host" in wanted:
    torch._dynamo.reset()
    print(f"\nhost, {SMALL}, autocast bf16, µs a step")
    for kinds, wanted in ((("plain", "own"), 0.42), ((PLAIN, OURS[-1]), 1.0)):
      plain, own = steps.host(*kinds)
      print(f"{kinds[0]} {plain:.0f}, {kinds[1]} {own:.0f}: {own / plain:.2f}, required {wanted}", flush=True)
  return 0
