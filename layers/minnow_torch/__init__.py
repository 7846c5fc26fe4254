"""minnow's block for PyTorch, Linear, GroupNorm, LeakyReLU and x + x in one, and its optimizers, on the CPU and on CUDA.

    from minnow_torch import Block, SGD
    model = torch.nn.Sequential(Block(64, 128, 8), torch.nn.Linear(128, 10))
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)

A Block has the parameters, the initial values and the state_dict of the plain modules: fc.weight fc.bias gn.weight
gn.bias. What minnow does not serve PyTorch computes, and a warning says so once. It works with every optimizer; SGD and
AdamW of this package update its weights in the product that computes their gradient, which is stored only if somebody asks
for it. IN_PYTORCH.md, beside this folder or in it, says what works.

libminnow.so is loaded by ctypes, at the first call: the file that MINNOW_LIBRARY names or else the one beside this file,
the one in the checkout's build folder, the system's. On a GPU PyTorch has to be for the CUDA that it was made for: both
load one cuBLASLt."""
import torch

if not hasattr(torch.library, "custom_op"):
  raise ImportError(f"minnow_torch needs PyTorch 2.4 or newer, not {torch.__version__}")

from .block import PRECISIONS, Block, ModelNew, block
from .gradient import check, forget
from .optim import SGD, AdamW

__version__ = "0.4.0"
__all__ = ["AdamW", "Block", "ModelNew", "PRECISIONS", "SGD", "block", "check", "forget"]
