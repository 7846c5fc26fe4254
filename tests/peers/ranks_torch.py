"""PyTorch on several GPUs as children of ranks.py, a process for each: DDP and FSDP as their users write them. Every
rank has its share of the batch. Parameters are float32; products are of bfloat16, under autocast or FSDP's policy."""
import gc
import math
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import timing
from torch_peer import Block, compiled, tf32

# mode: torch.compile's. narrow: gradients travel as bfloat16, half of the bytes, and are summed so.
DDP = {"PyTorch DDP": {"mode": None, "narrow": False}, "PyTorch DDP, compile": {"mode": "default", "narrow": False},
       "PyTorch DDP, compile, bf16 gradients": {"mode": "default", "narrow": True}}
FSDP = {"PyTorch FSDP": None, "PyTorch FSDP, compile": "default"}


class Error(torch.nn.Module):
  """The model and its loss, whose backward DDP watches."""

  def __init__(self, model, device):
    super().__init__()
    self.model, self.device = model, device

  def forward(self, x, target):
    with torch.autocast(self.device, torch.bfloat16):
      y = self.model(x)
    return torch.nn.functional.mse_loss(y.float(), target)


class Ranks(timing.Peer):
  def __init__(self, device):
    super().__init__()
    self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    self.device = torch.device(device, self.rank) if device == "cuda" else torch.device(device)
    gpu = device == "cuda"
    if gpu:
      torch.cuda.set_device(self.device)
    self.sync = torch.cuda.synchronize if gpu else lambda: None
    dist.init_process_group("nccl" if gpu else "gloo", device_id=self.device if gpu else None)
    tf32(False)
    self.most(1.0)  # where they cannot meet this is where it ends

  def most(self, value):
    """The largest of all ranks' values, so that all do the same number of steps."""
    found = torch.tensor([value], dtype=torch.float64, device=self.device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.item()

  def about(self):
    version = torch.__version__.partition("+")[0]
    by = "gloo"
    if self.device.type == "cuda":
      by = f"CUDA {torch.version.cuda}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
    return f"PyTorch {version} ({by})"

  def random(self, *sizes):
    return torch.rand(*sizes, device=self.device) * 2 - 1

  def model(self, widths, groups):
    torch.manual_seed(7)  # the same on every rank
    with self.device:
      model = torch.nn.Sequential(*(Block(a, b, groups) for a, b in zip(widths, widths[1:])))
    for block in model:
      torch.nn.init.uniform_(block.gn.weight, -1, 1)
      torch.nn.init.uniform_(block.gn.bias, -1, 1)
    return model

  def ddp(self, model, mode, narrow):
    """gradient_as_bucket_view saves a copy of every gradient."""
    ids = [self.rank] if self.device.type == "cuda" else None
    error = DistributedDataParallel(Error(model, self.device.type), device_ids=ids, gradient_as_bucket_view=True)
    if narrow:
      error.register_comm_hook(None, bf16_compress_hook)
    return compiled(error, mode)

  def fsdp(self, model, mode):
    """Parameters are gathered once a step, and kept for the backward: there is memory for that, and it is faster."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
      if mode:
        block.compile(mode=mode, dynamic=False)
      fully_shard(block, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mp_policy=policy, reshard_after_forward=False)
    loss = compiled(lambda y, target: torch.nn.functional.mse_loss(y.float(), target), mode)
    return lambda x, target: loss(model(x), target)

  def step(self, row, shape):
    """shape: rows of all ranks together, inputs, the channels of each block, groups."""
    rows, *widths, groups = shape
    if rows % self.size:
      raise ValueError(f"{rows} rows for {self.size} ranks")
    rows //= self.size
    model = self.model(widths, groups)
    torch.manual_seed(8 + self.rank)
    x, target = self.random(rows, widths[0]).bfloat16(), self.random(rows, widths[-1])
    error = self.ddp(model, **DDP[row]) if row in DDP else self.fsdp(model, FSDP[row])
    how = {"fused": True} if row in DDP else {"foreach": True}  # of FSDP's sharded tensors there is no fused SGD
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9, **how)

    def call():
      optimizer.zero_grad(set_to_none=True)
      loss = error(x, target)
      loss.backward()
      optimizer.step()
      return loss

    return call

  def measure(self, row, shape, rounds, warm_s):
    """The row's step, timed as timing.py does it, but for a number of calls on which the ranks agree: each call waits
    for the other ranks', so that an extra one would wait for ever."""
    call = self.step(row, shape)
    try:
      timing.run(call, self.sync, 3)  # compiles
      each = self.most(timing.run(call, self.sync, 5))
      each = self.most(timing.run(call, self.sync, math.ceil(warm_s / each)))
      taken = {"rested": [], "sustained": []}
      for _ in range(rounds):
        for way, how in ("sustained", timing.SUSTAINED), ("rested", timing.RESTED):
          taken[way].append(timing.median(call, self.sync, each, how, math.inf))
      loss = call().item()
      if not math.isfinite(loss):
        raise ValueError("a loss that is not finite: this time means nothing")
      return taken
    finally:
      del call
      torch._dynamo.reset()
      gc.collect()
      if self.device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
  timing.serve(Ranks(sys.argv[1]))
