"""libminnow.so: its structs, its devices, and the check of every tensor that C is given."""
import ctypes
import functools
import os
import pathlib
import threading

import torch

# What products of the other types read (kernels/types.h); those of float32 read what a Block's `precision` says.
OWN = {torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
TensorGuards = torch._C._dynamo.guards.TensorGuards  # which PyTorch 2.4 does not import by that name
PLAIN, STRIDED = frozenset((torch.Tensor, torch.nn.Parameter)), torch.strided


# ---- the structs of layers/block_call.h, kernels/types.h and kernels/stream.h ----

def _struct(text, **kinds):
  kinds = {"pointer": ctypes.c_void_p, "int": ctypes.c_int, "double": ctypes.c_double, "int64": ctypes.c_int64, **kinds}
  fields = [(name, kinds[kind]) for kind, names in (part.split(":") for part in text.split()) for name in names.split(",")]
  return type("Struct", (ctypes.Structure,), {"_fields_": fields})


Matrix = _struct("pointer:values,planes int:narrow,ready,updated")
Call = _struct(
    "int64:size,rows,inputs,channels,groups double:eps,slope matrix:x,weight int:narrow "
    "pointer:bias,gamma,beta,y,z,mean,rstd,dy,dx,dweight,dbias,dgamma,dbeta,pair "
    "pointer:nonfinite,stream,workspace parameters:of rule:rule pointer:grams counts:counts",
    matrix=Matrix, parameters=4 * _struct("pointer:values,narrow,m,v,gradient"),
    rule=_struct("pointer:rate,scale double:momentum,weight_decay int:nesterov,kind double:beta1,beta2,eps"),
    counts=_struct("pointer:flags,skipped,told,steps,rate double:beta1,beta2 int:flag_count,members"))
new_call = functools.partial(Call, ctypes.sizeof(Call))


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

class Kinds:
  """What C is given in some places of a call: plain dense tensors on the device, each of its kind, (dtype, shape). A size of
  None is any, for which the caller has to look."""

  def __init__(self, device, *kinds):
    self.device, self.kinds, self.seen = device, kinds, []

  def addresses(self, tensors, aligned=1):
    """Where the tensors are, in multiples of `aligned`; None if one is of another kind. No other address of a tensor that
    PyTorch or its user made goes to C."""
    for guard in self.seen:  # PyTorch's own look at all of them at once, for tensors like earlier ones
      if guard.check(*tensors):
        break
    else:
      for t, (dtype, shape) in zip(tensors, self.kinds):
        if (type(t) not in PLAIN or t.dtype is not dtype or t.dim() != len(shape) or t.device != self.device or
            t.layout is not STRIDED or not t.is_contiguous() or t.is_neg() or
            any([want not in (None, size) for want, size in zip(shape, t.shape)])):
          return None
      strides = [torch.empty(t.shape, device="meta").stride() for t in tensors]
      if strides == [t.stride() for t in tensors]:  # those of one row may be any, and would be of more rows
        sizes = [list(shape) for _, shape in self.kinds]
        self.seen = [TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=[*map(list, strides)]), *self.seen[:3]]
    found = [t.data_ptr() for t in tensors]
    return None if aligned > 1 and any([at % aligned for at in found]) else found

  def dense(self, tensors):
    """The tensors as C takes them, which have to live until the call, and their addresses. Types and strides are converted;
    another shape or device is an error."""
    found = self.addresses(tensors)
    if found is None:
      tensors = [t.to(dtype).contiguous().resolve_neg() for t, (dtype, _) in zip(tensors, self.kinds)]
      found = self.addresses(tensors)
      if found is None:
        wanted = ", ".join(str(tuple(shape)).replace("None", "N") for _, shape in self.kinds)
        raise RuntimeError(f"minnow: tensors of shape {', '.join(str(tuple(t.shape)) for t in tensors)} on {tensors[0].device} "
                           f"in place of {wanted} on {self.device} are not served")
    return tensors, found


LISTS = torch.__version__ >= (2, 8)


def written(tensors):
  """They have values that PyTorch did not see written: new versions. PyTorch 2.4 takes one at a time."""
  if LISTS:
    torch._C._increment_version(tensors)
  else:
    for t in tensors:
      torch.autograd.graph.increment_version(t)


def place(t):
  """Where memory of our own is; None for none."""
  return None if t is None else t.data_ptr()


# ---- devices ----

_lock = functools.cache(lambda device: threading.RLock())  # of all contexts on a device, which take turns


class Context:
  """A device in one precision (kernels/device.h), for the thread that has its lock. It lives as long as the process."""
  workspace = None

  def __init__(self, device, precision):
    self.lib, opened, self.device, self.lock = load(), ctypes.c_void_p(), device, _lock(device)
    self.gpu, self.precision = device.index if device.type == "cuda" else None, precision
    self.real = torch.float64 if precision == "fp64" else torch.float32
    with torch.cuda.device(device if device.type == "cuda" else -1):
      self.must(self.lib.mn_device_open(ctypes.byref(opened), str(device).encode(), precision.encode(), 0))
    self.handle = opened.value

  def must(self, status):
    if status:
      raise RuntimeError(self.lib.mn_message().decode())

  def run(self, entry, call, at, size):
    """Runs the call, which is `at` there and takes `size` bytes of workspace, in the device's current stream. On a GPU nothing is
    kept of a call, which torch.compile may record in a CUDA graph, with all memory that is allocated then."""
    workspace = self.workspace
    if workspace is None or workspace.numel() < size:
      workspace = torch.empty(size, dtype=torch.uint8, device=self.device)
    if self.gpu is None:
      self.workspace = workspace
    else:
      call.stream = torch._C._cuda_getCurrentRawStream(self.gpu)
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
