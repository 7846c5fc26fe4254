"""libminnow.so: its structs, its devices, and the check of every tensor that C is given."""
import ctypes
import functools
import os
import pathlib
import threading

import torch

# What products of the other types read (kernels/types.h); those of float32 read what a Block's `precision` says.
OWN = {torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


# ---- the structs of layers/block_call.h, kernels/types.h and kernels/stream.h, field by field ----

class Matrix(ctypes.Structure):
  _fields_ = [("values", ctypes.c_void_p), ("planes", ctypes.c_void_p),
              *((name, ctypes.c_int) for name in ("narrow", "ready", "updated"))]


class Parameter(ctypes.Structure):
  _fields_ = [(name, ctypes.c_void_p) for name in ("values", "narrow", "m", "v", "gradient")]


class Rule(ctypes.Structure):
  _fields_ = [("rate", ctypes.c_void_p), ("scale", ctypes.c_void_p), ("momentum", ctypes.c_double),
              ("weight_decay", ctypes.c_double), ("nesterov", ctypes.c_int), ("kind", ctypes.c_int),
              *((name, ctypes.c_double) for name in ("beta1", "beta2", "eps"))]


class Counts(ctypes.Structure):
  _fields_ = [("steps", ctypes.c_void_p), ("rate", ctypes.c_void_p), ("beta1", ctypes.c_double), ("beta2", ctypes.c_double),
              ("skipped", ctypes.c_void_p), ("told", ctypes.c_void_p), ("ended", ctypes.c_int), ("clears", ctypes.c_int)]


class Call(ctypes.Structure):
  _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_int64) for name in ("rows", "inputs", "channels", "groups")),
              ("eps", ctypes.c_double), ("slope", ctypes.c_double), ("x", Matrix), ("weight", Matrix), ("narrow", ctypes.c_int),
              *((name, ctypes.c_void_p) for name in (
                  "bias", "gamma", "beta", "y", "z", "mean", "rstd", "dy", "dx", "dweight", "dbias", "dgamma", "dbeta", "pair",
                  "dz_scale")), ("dz_scale_ready", ctypes.c_int),
              *((name, ctypes.c_void_p) for name in ("nonfinite", "stream", "workspace")), ("of", Parameter * 4),
              ("rule", Rule), ("grams", ctypes.c_void_p), ("counts", Counts)]

  def __init__(self, *sizes, **named):
    super().__init__(ctypes.sizeof(Call), *sizes, **named)


@functools.cache
def load():
  """The library that MINNOW_LIBRARY names, or else the one in this folder, the checkout's, the system's."""
  here, named, missed = pathlib.Path(__file__).resolve().parent, os.environ.get("MINNOW_LIBRARY"), []
  with open("/proc/self/maps") as maps:  # the wheel's library has no OpenMP of its own: PyTorch's is made global
    for path in {line.split()[-1] for line in maps}:
      if "/libgomp" in path:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
  for path in [named] if named else [here / "libminnow.so", here.parents[1] / "build/libminnow.so", "libminnow.so"]:
    try:
      minnow = ctypes.CDLL(str(path))
      minnow.mn_message.restype = ctypes.c_char_p
      for part in "workspace", "plane_bytes", "pair_bytes", "forward", "backward", "update", "count":
        entry = getattr(minnow, f"mn_block_{part}")
        entry.argtypes = ctypes.c_void_p, ctypes.c_void_p
        entry.restype = ctypes.c_size_t if part.endswith(("workspace", "bytes")) else ctypes.c_int
      return minnow
    except (OSError, AttributeError) as error:
      missed.append(str(error))
  raise RuntimeError(f"libminnow.so cannot be loaded ({'; '.join(missed)})")


# ---- what C is given ----

def addresses(tensors, kinds, device):
  """Where the tensors are, if each is a plain dense one on the device and of its kind, (dtype, shape); None if one is not.
  No other address of a tensor that PyTorch or its user made goes to C."""
  found = []
  for t, (dtype, shape) in zip(tensors, kinds):
    if (type(t) not in _PLAIN or t.dtype is not dtype or t.shape != shape or t.device != device or
        t.layout is not torch.strided or not t.is_contiguous() or t.is_neg()):
      return None
    found.append(t.data_ptr())
  return found


def dense(tensors, kinds, device):
  """The tensors as C takes them, which have to live until the call, and their addresses. Types and strides are converted;
  another shape or device is an error."""
  found = addresses(tensors, kinds, device)
  if found is None:
    tensors = [t.to(dtype).contiguous().resolve_neg() for t, (dtype, _) in zip(tensors, kinds)]
    found = addresses(tensors, kinds, device)
    if found is None:
      raise RuntimeError(f"minnow: tensors of shape {', '.join(str(tuple(t.shape)) for t in tensors)} on {tensors[0].device} "
                         f"in place of {', '.join(str(tuple(shape)) for _, shape in kinds)} on {device} are not served")
  return tensors, found


# ---- devices ----

_workspaces = {}  # by device and stream
_lock = functools.cache(lambda device: threading.RLock())  # of all contexts on a device, since they share these


class Context:
  """A device in one precision (kernels/device.h), for the thread that has its lock. It lives as long as the process."""

  def __init__(self, device, precision):
    self.lib, opened, self.device, self.lock = load(), ctypes.c_void_p(), device, _lock(device)
    self.gpu = device.index if device.type == "cuda" else None
    with torch.cuda.device(device if device.type == "cuda" else -1):
      self.must(self.lib.mn_device_open(ctypes.byref(opened), str(device).encode(), precision.encode()))
    self.handle = opened.value
    self.precision, self.real = precision, torch.float64 if precision == "fp64" else torch.float32

  def must(self, status):
    if status:
      raise RuntimeError(self.lib.mn_message().decode())

  def run(self, entry, call, at, size):
    """Runs the call, which is `at` there and takes `size` bytes of workspace, in the device's current stream. A stream's
    calls share one workspace, since they run one after the other; those of a CUDA graph have their own, in its memory."""
    if self.gpu is None:
      key = self.device
    else:
      call.stream = key = torch._C._cuda_getCurrentRawStream(self.gpu)
      key = self.gpu, key
    workspace = _workspaces.get(key)
    if workspace is None or workspace.numel() < size or (self.gpu is not None and self.capturing()):
      workspace = torch.empty(size, dtype=torch.uint8, device=self.device)
      if self.gpu is None or not self.capturing():
        _workspaces[key] = workspace
    call.workspace = workspace.data_ptr()
    if entry(self.handle, at):
      self.must(1)

  def stream(self):
    return None if self.gpu is None else torch._C._cuda_getCurrentRawStream(self.gpu)

  def capturing(self):
    """Whether the current stream is being captured in a CUDA graph."""
    return self.gpu is not None and torch._C._cuda_isCurrentStreamCapturing()


context = functools.cache(Context)


@functools.cache
def _reason(device, precision):
  if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
    raise RuntimeError("a block has to run once before it is captured in a CUDA graph")
  try:
    context(device, precision)
  except RuntimeError as error:
    return str(error)


@torch.compiler.assume_constant_result  # which goes for a function alone, not for its cache
def refusal(device, precision):
  """Why minnow cannot compute there; None if it can."""
  return _reason(device, precision)
