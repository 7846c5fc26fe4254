"""minnow's block for PyTorch: Linear, GroupNorm, LeakyReLU and x + x as one operator, on the CPU and on CUDA.

    from minnow_torch import Block
    model = torch.nn.Sequential(Block(64, 128, 8), torch.nn.Linear(128, 10))

A Block has the parameters, the initial values and the state_dict of the plain modules: fc.weight fc.bias gn.weight
gn.bias. It works under autograd, autocast, torch.compile, CUDA graphs and DistributedDataParallel. What minnow does not
serve PyTorch computes, and a warning says so once.

libminnow.so is loaded by ctypes, at the first call: the file that MINNOW_LIBRARY names or else the one beside this file,
the one in the checkout's build folder, the system's."""
import ctypes
import functools
import os
import pathlib
import threading
import warnings

import torch
from torch import library
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

if not hasattr(library, "custom_op"):
  raise ImportError(f"minnow_torch needs PyTorch 2.4 or newer, not {torch.__version__}")

__all__ = ["Block", "ModelNew", "block", "forget"]
# What products of float32 may read (kernels/types.h): the first, the default, has float32's accuracy on tensor cores.
PRECISIONS = ("fp16x3", "fp32", "tf32", "fp16", "bf16")
# What products of the other types read.
OWN = {torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
# Bytes of memory for planes besides the elements' own: MN_BLOCK_PLANES_MORE.
MORE = 32


# ---- libminnow.so ----

class _Matrix(ctypes.Structure):
  """struct mn_block_matrix (layers/block_call.h)."""
  _fields_ = [("values", ctypes.c_void_p), ("planes", ctypes.c_void_p), *((n, ctypes.c_int) for n in ("narrow", "ready",
                                                                                                "updated"))]


class _Call(ctypes.Structure):
  """struct mn_block_call."""
  _fields_ = [("size", ctypes.c_size_t), *((n, ctypes.c_int64) for n in ("rows", "inputs", "channels", "groups")),
              ("eps", ctypes.c_double), ("slope", ctypes.c_double), ("x", _Matrix), ("weight", _Matrix),
              *((n, ctypes.c_void_p) for n in ("bias", "gamma", "beta", "y")), ("y_narrow", ctypes.c_int),
              *((n, ctypes.c_void_p) for n in ("z", "mean", "rstd", "dy", "dx", "dweight", "dbias", "dgamma", "dbeta", "pair",
                                               "dz_scale")), ("dz_scale_ready", ctypes.c_int),
              *((n, ctypes.c_void_p) for n in ("nonfinite", "stream", "workspace"))]


@functools.cache
def _library():
  here, named, missed = pathlib.Path(__file__).resolve().parent, os.environ.get("MINNOW_LIBRARY"), []
  for path in [named] if named else [here / "libminnow.so", here.parent / "build/libminnow.so", "libminnow.so"]:
    try:
      minnow = ctypes.CDLL(str(path))
      minnow.mn_message.restype = ctypes.c_char_p
      minnow.mn_block_plane_bytes.restype = minnow.mn_block_workspace.restype = ctypes.c_size_t
      return minnow
    except (OSError, AttributeError) as error:
      missed.append(str(error))
  raise RuntimeError(f"libminnow.so cannot be loaded ({'; '.join(missed)})")


class _Context:
  """A device in one precision (engine/context.h), for one thread at a time. It lives as long as the process."""

  def __init__(self, device, precision):
    self.lib, self.handle, self.lock = _library(), ctypes.c_void_p(), threading.RLock()
    with torch.cuda.device(device if device.type == "cuda" else -1):
      self.must(self.lib.mn_context_open(ctypes.byref(self.handle), str(device).encode(), precision.encode()))
    self.plane_bytes = self.lib.mn_block_plane_bytes(self.handle)

  def must(self, status):
    if status:
      raise RuntimeError(self.lib.mn_message().decode())

  def run(self, entry, x, call):
    """In the current stream of x's device, to whose later work the workspace goes afterwards."""
    call.size = ctypes.sizeof(call)
    with self.lock:
      call.stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
      bytes_ = self.lib.mn_block_workspace(self.handle, ctypes.byref(call))
      workspace = x.new_empty(bytes_, dtype=torch.uint8)
      call.workspace = workspace.data_ptr()
      self.must(entry(self.handle, ctypes.byref(call)))


_context = functools.cache(_Context)


@functools.cache
def _reason(device, precision):
  if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
    raise RuntimeError("a block has to run once before it is captured in a CUDA graph")
  try:
    _context(device, precision)
  except RuntimeError as error:
    return str(error)


@torch.compiler.assume_constant_result  # which goes for a function alone, not for its cache
def _refusal(device, precision):
  """Why minnow cannot compute there; None if it can."""
  return _reason(device, precision)


# ---- the planes of a weight: what products read in place of its floats ----

_kept, _guard = {}, threading.RLock()  # those made for forwards without gradients


def forget():
  """Lets go of what is kept of weights between forwards without gradients. A weight that is written between two of them
  is noticed by its `_version`. What leaves that as it was is not noticed, and needs this call: writing through `.data`,
  NumPy, DLPack or the storage, from another process, in a CUDA graph's replay, or by a fused optimizer whose gradient no
  Block computed."""
  with _guard:
    _kept.clear()


def _planes(weight, context):
  more = MORE if context.plane_bytes else 0
  return weight.new_empty(context.plane_bytes * weight.numel() + more, dtype=torch.uint8)


def _recall(weight, context, training):
  """The planes that an earlier forward in this stream made of the weight, or memory for them, and whether they are the
  weight's still. Of a weight in training nothing is kept: fused optimizers and CUDA graphs write it without a new
  version."""
  storage, stream = weight.untyped_storage(), None
  key = context, storage._cdata, weight.storage_offset(), weight.shape, weight.stride(), weight.dtype
  if weight.is_cuda:
    stream = torch.cuda.current_stream(weight.device)
    training |= torch.cuda.is_current_stream_capturing()
  with _guard:
    for old in [old for old, kept in _kept.items() if kept[0].expired()]:
      del _kept[old]
    if training or weight.is_inference() or not weight.is_leaf or weight.grad is not None:
      _kept.pop(key, None)
      return None, False
    now = weight._version, stream  # which an inference tensor has not
    if key in _kept and _kept[key][1] == now:
      return _kept[key][2], True
    planes = _planes(weight, context)
    _kept[key] = StorageWeakRef(storage), now, planes
    return planes, False


# ---- the operators ----

def _misfit(x, weight, groups, vectors, others=()):
  """Why minnow cannot take these tensors, or None: C goes by the sizes of x and weight alone, and takes none of
  2**30 or more. `others` are tensors, each with the shape that it must have."""
  tensors = x, weight, *vectors, *[t for t, _ in others]
  for t in tensors:
    if not isinstance(t, torch.Tensor):
      return f"{type(t).__name__} in place of a tensor is not served"
    if t.device != x.device or t.layout is not torch.strided:
      return f"a {t.layout} tensor on {t.device}, with x on {x.device}, is not served"
  if x.dim() == weight.dim() == 2:
    (rows, inputs), (channels, depth) = x.shape, weight.shape
    if (inputs == depth and 0 < rows < 2**30 and 0 < inputs < 2**30 and 0 < channels < 2**30 and groups > 0 and
        channels % groups == 0 and rows * channels > groups and  # PyTorch refuses groups of one value
        all([t.shape == (channels,) for t in vectors]) and all([t.shape == shape for t, shape in others])):
      return None
  return f"{groups} groups and tensors of shape {', '.join(str(tuple(t.shape)) for t in tensors)} are not served"


def _check(*given):
  why = _misfit(*given)
  if why:
    raise RuntimeError(f"minnow: {why}")


def _real(precision):
  return torch.float64 if precision == "fp64" else torch.float32


def _narrow(device, dtype, precision):
  """Whether this is the 16-bit type that the precision's products read: then minnow takes tensors as they are."""
  return device.type == "cuda" and dtype.itemsize == 2 and OWN.get(dtype) == precision


def _dense(precision, *tensors):
  """As minnow takes them: row-major, and of its own type."""
  return [t.to(t.dtype if _narrow(t.device, t.dtype, precision) else _real(precision)).contiguous() for t in tensors]


def _call(x, weight, groups, slope, **results):
  """x and weight are dense; the others have to outlive the call, and are left out where they are empty."""
  pointers = {name: t.data_ptr() for name, t in results.items() if t is not None and t.numel()}
  matrices = {name: _Matrix(t.data_ptr(), None, t.dtype.itemsize == 2) for name, t in (("x", x), ("weight", weight))}
  return _Call(rows=x.shape[0], inputs=x.shape[1], channels=weight.shape[0], groups=groups, slope=slope, **matrices,
               **pointers)


def _results(x, weight, groups, precision, out, save, keep):
  """Memory for y, and for what a backward reads: z, mean, rstd and the weight's planes; empty where it is not wanted."""
  rows, channels = x.shape[0], weight.shape[0]
  sizes = ((rows, channels), (rows, groups), (rows, groups)) if save else (0, 0, 0)
  saved = [x.new_empty(size, dtype=_real(precision)) for size in sizes]
  planes = _planes(weight, _context(x.device, precision)) if keep else x.new_empty(0, dtype=torch.uint8)
  return x.new_empty((rows, channels), dtype=out), *saved, planes


def _forward(x, weight, bias, gamma, beta, groups, eps, slope, precision, out, save, keep):
  _check(x, weight, groups, (bias, gamma, beta))
  context, narrow = _context(x.device, precision), _narrow(x.device, out, precision)
  y, *saved, planes = _results(x, weight, groups, precision, out if narrow else _real(precision), save, keep)
  dense_x, dense_weight = _dense(precision, x, weight)
  bias, gamma, beta = (v.to(_real(precision)).contiguous() for v in (bias, gamma, beta))
  call = _call(dense_x, dense_weight, groups, slope, bias=bias, gamma=gamma, beta=beta, y=y,
               **dict(zip(("z", "mean", "rstd"), saved)))
  call.eps, call.y_narrow = eps, narrow
  if keep:
    planes[-MORE:].zero_()  # not all of which is written
  with context.lock:
    kept, call.weight.ready = _recall(weight, context, save or bool(call.weight.narrow))
    kept = planes if keep else kept
    call.weight.planes = kept.data_ptr() if kept is not None and kept.numel() else None
    try:
      context.run(context.lib.mn_block_forward, x, call)
    except BaseException:
      forget()  # planes that may not have been written
      raise
  return y.to(out), *saved, planes


def _backward(dy, x, weight, gamma, beta, z, mean, rstd, planes, groups, slope, precision, need_x, need_weight):
  context, real = _context(x.device, precision), _real(precision)
  rows, channels, bytes_ = len(x), len(weight), context.plane_bytes * weight.numel() + MORE if planes.numel() else 0
  shapes = (rows, channels), (rows, channels), (rows, groups), (rows, groups), (bytes_,)
  _check(x, weight, groups, (gamma, beta), [*zip((dy, z, mean, rstd, planes), shapes)])
  dense_x, dense_weight = _dense(precision, x, weight)
  # Hooks on saved tensors may have made others of z, mean, rstd and planes.
  dy, gamma32, beta32, z, mean, rstd = (t.to(real).contiguous() for t in (dy, gamma, beta, z, mean, rstd))
  planes = planes.to(torch.uint8).contiguous()
  made = [x.new_empty(size, dtype=real) for size in (x.shape if need_x else 0, weight.shape if need_weight else 0,
                                                     *3 * [gamma.shape])]
  call = _call(dense_x, dense_weight, groups, slope, gamma=gamma32, beta=beta32, z=z, mean=mean, rstd=rstd, dy=dy,
               **dict(zip(("dx", "dweight", "dbias", "dgamma", "dbeta"), made)))
  call.weight.planes, call.weight.ready = planes.data_ptr() if planes.numel() else None, planes.numel() > 0
  context.run(context.lib.mn_block_backward, x, call)
  return tuple(t.to(like.dtype) for t, like in zip(made, (x, weight, gamma, gamma, beta)))


def _operator(name, function, inputs, fake):
  operator = library.custom_op(name, function, mutates_args=(), device_types=("cpu", "cuda"),
                               schema=f"({inputs}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
  operator.register_fake(fake)
  return operator


_forward_op = _operator(
    "minnow::block", _forward, "Tensor x, Tensor weight, Tensor bias, Tensor gamma, Tensor beta, int groups, float eps, "
    "float slope, str precision, ScalarType out, bool save, bool keep",
    lambda x, weight, bias, gamma, beta, groups, eps, slope, *how: _results(x, weight, groups, *how))
_backward_op = _operator(
    "minnow::block_backward", _backward, "Tensor dy, Tensor x, Tensor weight, Tensor gamma, Tensor beta, Tensor z, "
    "Tensor mean, Tensor rstd, Tensor planes, int groups, float slope, str precision, bool need_x, bool need_weight",
    lambda dy, x, weight, gamma, beta, *how: (x.new_empty(x.shape if how[-2] else 0), weight.new_empty(
        weight.shape if how[-1] else 0), gamma.new_empty(gamma.shape), gamma.new_empty(gamma.shape), beta.new_empty(
            beta.shape)))


def _save(ctx, inputs, output):
  ctx.save_for_backward(*inputs[:5], *output[1:])
  ctx.set_materialize_grads(False)
  ctx.groups, ctx.eps, ctx.slope, ctx.precision = inputs[5:9]


def _gradients(ctx, dy, *_):
  x, weight, bias, gamma, beta, *saved = ctx.saved_tensors
  if dy is None:
    return (None,) * 12
  if torch.is_grad_enabled():  # create_graph
    _say("a gradient of gradients is not minnow's")
    wanted = [t for t, needed in zip((x, weight, bias, gamma, beta), ctx.needs_input_grad) if needed]
    y = _eager(*(t.to(weight.dtype) for t in (x, weight, bias, gamma, beta)), ctx.groups, ctx.eps, ctx.slope)
    found = iter(torch.autograd.grad(y, wanted, dy.to(y.dtype), create_graph=True))
  else:
    made = _backward_op(dy, x, weight, gamma, beta, *saved, ctx.groups, ctx.slope, ctx.precision,
                        *ctx.needs_input_grad[:2])
    found = (gradient for gradient, needed in zip(made, ctx.needs_input_grad) if needed)
  return *(next(found) if needed else None for needed in ctx.needs_input_grad[:5]), *7 * (None,)


_forward_op.register_autograd(_gradients, setup_context=_save)


# ---- for users ----

def _eager(x, weight, bias, gamma, beta, groups, eps, slope):
  a = functional.leaky_relu(functional.group_norm(functional.linear(x, weight, bias), groups, gamma, beta, eps), slope)
  return a + a


@functools.cache
def _say(why):
  warnings.warn(f"minnow: {why}; PyTorch computes it", stacklevel=2)


def _choose(tensors, groups, precision):
  """What the products read and y's type, or None and why minnow does not serve these tensors."""
  x, weight, *vectors = tensors
  why = _misfit(x, weight, groups, vectors)
  if why or x.device.type not in ("cpu", "cuda"):
    return None, why or f"tensors on {x.device.type} are not served"
  device, types = x.device, {t.dtype for t in tensors}
  if torch.is_autocast_enabled(device.type) and torch.float64 not in types:
    out = torch.get_autocast_dtype(device.type)
    own = OWN.get(out) if types <= {torch.float32, out} and vectors[1].dtype == vectors[2].dtype else None
    chosen = own, torch.float32 if device.type == "cuda" else out  # as PyTorch's group_norm has it
  else:
    chosen = OWN.get(x.dtype, precision if x.dtype == torch.float32 else None), x.dtype
    if len(types) > 1:
      chosen = None, None
  if chosen[0] is None:
    return None, f"tensors of {', '.join(sorted(str(t) for t in types))} are not served"
  why = _refusal(device, chosen[0])
  return (None, why) if why else chosen


def block(x, weight, bias, gamma, beta, groups, eps=1e-5, slope=0.01, precision=PRECISIONS[0]):
  """y = a + a with a = leaky_relu(group_norm(linear(x, weight, bias), groups, gamma, beta, eps), slope). x [N, I], weight
  [C, I], the others [C]. `precision` is what products of float32 read; under autocast they read its type."""
  tensors = x, weight, bias, gamma, beta
  chosen, out = _choose(tensors, groups, precision)
  if chosen is None:
    if not torch.compiler.is_compiling():
      _say(out)
    return _eager(*tensors, groups, eps, slope)
  save = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
  keep = save and x.requires_grad and not _narrow(weight.device, weight.dtype, chosen)
  return _forward_op(*tensors, groups, eps, slope, chosen, out, save, keep)[0]


class Block(torch.nn.Module):
  """The block, in place of Linear, GroupNorm, LeakyReLU and x + x. `precision`, one of PRECISIONS, is what products of
  float32 read; a module of another type, and one under autocast, is computed in that type."""

  def __init__(self, in_features, out_features, num_groups, eps=1e-5, negative_slope=0.01, precision=PRECISIONS[0],
               device=None, dtype=None):
    super().__init__()
    if precision not in PRECISIONS:
      raise ValueError(f"no precision of float32's is called '{precision}'; {', '.join(PRECISIONS)} are")
    self.fc = torch.nn.Linear(in_features, out_features, device=device, dtype=dtype)
    self.gn = torch.nn.GroupNorm(num_groups, out_features, eps, device=device, dtype=dtype)
    self.negative_slope, self.precision = negative_slope, precision

  def forward(self, x):
    return block(x, self.fc.weight, self.fc.bias, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps,
                 self.negative_slope, self.precision)

  def extra_repr(self):
    return f"negative_slope={self.negative_slope}, precision={self.precision}"


class ModelNew(Block):
  """KernelBench's level 2, problem 62, Matmul_GroupNorm_LeakyReLU_Sum."""

  def __init__(self, input_size, hidden_size, num_groups, eps=1e-5, negative_slope=0.01):
    super().__init__(input_size, hidden_size, num_groups, eps, negative_slope)
