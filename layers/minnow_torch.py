"""minnow's block for PyTorch, Linear, GroupNorm, LeakyReLU and x + x in one, and its optimizers, on the CPU and on CUDA.

    from minnow_torch import Block, SGD
    model = torch.nn.Sequential(Block(64, 128, 8), torch.nn.Linear(128, 10))
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)

A Block has the parameters, the initial values and the state_dict of the plain modules: fc.weight fc.bias gn.weight
gn.bias. It works under autograd, autocast, torch.compile, CUDA graphs and DistributedDataParallel. What minnow does not
serve PyTorch computes, and a warning says so once. It works with every optimizer; SGD and AdamW of this module update
its weights in the product that computes their gradient, which they therefore do not store.

libminnow.so is loaded by ctypes, at the first call: the file that MINNOW_LIBRARY names or else the one beside this file,
the one in the checkout's build folder, the system's. On a GPU PyTorch has to be for the CUDA that it was made for: both
load one cuBLASLt."""
import copy
import ctypes
import functools
import inspect
import itertools
import os
import pathlib
import threading
import warnings
import weakref

import torch
from torch import library
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

if not hasattr(library, "custom_op"):
  raise ImportError(f"minnow_torch needs PyTorch 2.4 or newer, not {torch.__version__}")

__version__ = "0.3.0"
__all__ = ["AdamW", "Block", "ModelNew", "SGD", "block", "forget"]
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


class _Parameter(ctypes.Structure):
  """struct mn_block_parameter."""
  _fields_ = [(n, ctypes.c_void_p) for n in ("values", "narrow", "m", "v", "gradient")]


class _Rule(ctypes.Structure):
  """struct mn_rule (kernels/types.h)."""
  _fields_ = [("rate", ctypes.c_void_p), ("scale", ctypes.c_void_p), ("momentum", ctypes.c_double),
              ("weight_decay", ctypes.c_double), ("nesterov", ctypes.c_int), ("kind", ctypes.c_int),
              *((n, ctypes.c_double) for n in ("beta1", "beta2", "eps"))]


class _Counts(ctypes.Structure):
  """struct mn_counts (kernels/stream.h)."""
  _fields_ = [("steps", ctypes.c_void_p), ("rate", ctypes.c_void_p), ("beta1", ctypes.c_double), ("beta2", ctypes.c_double),
              ("skipped", ctypes.c_void_p), ("told", ctypes.c_void_p), ("ended", ctypes.c_int), ("clears", ctypes.c_int)]


class _Call(ctypes.Structure):
  """struct mn_block_call."""
  _fields_ = [("size", ctypes.c_size_t), *((n, ctypes.c_int64) for n in ("rows", "inputs", "channels", "groups")),
              ("eps", ctypes.c_double), ("slope", ctypes.c_double), ("x", _Matrix), ("weight", _Matrix),
              ("narrow", ctypes.c_int), *((n, ctypes.c_void_p) for n in (
                  "bias", "gamma", "beta", "y", "z", "mean", "rstd", "dy", "dx", "dweight", "dbias", "dgamma", "dbeta", "pair",
                  "dz_scale")), ("dz_scale_ready", ctypes.c_int),
              *((n, ctypes.c_void_p) for n in ("nonfinite", "stream", "workspace")), ("of", _Parameter * 4), ("rule", _Rule),
              ("grams", ctypes.c_void_p), ("counts", _Counts)]


@functools.cache
def _library():
  here, named, missed = pathlib.Path(__file__).resolve().parent, os.environ.get("MINNOW_LIBRARY"), []
  with open("/proc/self/maps") as maps:  # the wheel's library has no OpenMP of its own: PyTorch's is made global
    for path in {line.split()[-1] for line in maps}:
      if "/libgomp" in path:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
  for path in [named] if named else [here / "libminnow.so", here.parent / "build/libminnow.so", "libminnow.so"]:
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


_workspaces = {}  # by stream
_lock = functools.cache(lambda device: threading.RLock())  # of all contexts on a device, since they share these


class _Context:
  """A device in one precision (kernels/device.h), for the thread that has its lock. It lives as long as the process."""

  def __init__(self, device, precision):
    self.lib, opened, self.device, self.lock = _library(), ctypes.c_void_p(), device, _lock(device)
    self.gpu = device.index if device.type == "cuda" else None
    with torch.cuda.device(device if device.type == "cuda" else -1):
      self.must(self.lib.mn_device_open(ctypes.byref(opened), str(device).encode(), precision.encode()))
    self.handle = opened.value
    self.precision, self.real = precision, torch.float64 if precision == "fp64" else torch.float32

  def must(self, status):
    if status:
      raise RuntimeError(self.lib.mn_message().decode())

  def run(self, entry, call):
    """In the device's current stream, whose calls share one workspace, since they run one after the other. Those of a
    CUDA graph have their own, in the graph's memory."""
    at = ctypes.addressof(call)
    bytes_, workspace, stream = self.lib.mn_block_workspace(self.handle, at), None, self.stream()
    if self.gpu is not None and not torch.cuda.is_current_stream_capturing():
      key = self.gpu, stream
      workspace = _workspaces.get(key)
      if workspace is None or workspace.numel() < bytes_:
        workspace = _workspaces[key] = torch.empty(bytes_, dtype=torch.uint8, device=self.device)
    if workspace is None:
      workspace = torch.empty(bytes_, dtype=torch.uint8, device=self.device)
    call.stream, call.workspace = stream, workspace.data_ptr()
    self.must(entry(self.handle, at))

  def stream(self):
    return None if self.gpu is None else torch._C._cuda_getCurrentRawStream(self.gpu)


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
  NumPy, DLPack or the storage, from another process, in a CUDA graph's replay, or by a fused optimizer of torch.optim's
  whose gradient no Block computed."""
  with _guard:
    _kept.clear()
    for own in list(_trained.values()):
      own.forget()


def _recall(weight, plan, training):
  """The planes that an earlier forward in this stream made of the weight, or memory for them, and whether they are the
  weight's still. Of a weight in training nothing is kept here: fused optimizers and CUDA graphs write it without a new
  version."""
  storage, stream = weight.untyped_storage(), None
  key = plan.context, storage._cdata, weight.storage_offset(), weight.shape, weight.stride(), weight.dtype
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
    planes = plan.bytes(plan.weight_planes)
    _kept[key] = StorageWeakRef(storage), now, planes
    return planes, False


# ---- the calls ----

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


def _narrow(device, dtype, precision):
  """Whether this is the 16-bit type that the precision's products read: then minnow takes tensors as they are."""
  return device.type == "cuda" and dtype.itemsize == 2 and OWN.get(dtype) == precision


def _dense(t, dtype):
  """As minnow takes it."""
  return t if t.dtype is dtype and t.is_contiguous() and not t.is_neg() else t.to(dtype).contiguous().resolve_neg()


def _at(t):
  return None if t is None else t.data_ptr()


class _Plan:
  """The calls of one set of sizes, types and settings, filled but for addresses. Tensors may have any strides; their
  sizes have been checked."""

  def __init__(self, device, rows, inputs, channels, weight_type, groups, eps, slope, precision, out, taken):
    self.context = context = _context(device, precision)
    self.device, self.real, self.out, self.types = device, context.real, out, (precision, out, taken)
    self.x_type, self.weight_type, self.y_type = (
        t if _narrow(device, t, precision) else self.real for t in (taken, weight_type, out))
    self.rows, self.inputs, self.channels, self.groups = rows, inputs, channels, groups
    self.narrow, self.half_z, vector = self.y_type.itemsize == 2, self.x_type.itemsize == 2, torch.Size((channels,))
    self.own = self.y_type if self.narrow else self.real  # the type of the vectors, of dy and of the gradients
    self.sizes = {"x": torch.Size((rows, inputs)), "weight": torch.Size((channels, inputs)), "gamma": vector, "beta": vector,
                  "dy": torch.Size((rows, channels)), "saved": torch.Size((self.saved_count(rows),))}
    calls = [
        _Call(ctypes.sizeof(_Call), rows, inputs, channels, groups, eps, slope, _Matrix(narrow=self.x_type.itemsize == 2),
              _Matrix(narrow=self.weight_type.itemsize == 2)) for _ in range(2)]
    calls[0].narrow = calls[1].narrow = 2 if self.narrow else self.half_z  # enum mn_narrow
    self.forward_call, self.backward_call = ((call, call.x, call.weight) for call in calls)
    update = _Call(ctypes.sizeof(_Call), rows, inputs, channels, groups, x=calls[0].x)
    self.update_call = update, update.x, tuple(update.of), update.rule
    each = context.lib.mn_block_plane_bytes(context.handle, ctypes.addressof(calls[0]))
    self.x_planes, self.weight_planes = (
        each * count + MORE if each and t.itemsize > 2 else 0
        for t, count in ((self.x_type, rows * inputs), (self.weight_type, channels * inputs)))
    self.x_each = each if self.x_planes else self.x_type.itemsize
    one = torch.empty(1, dtype=self.y_type, device=device)
    self.like_y, self.like_saved = one.expand(rows, channels), one.to(self.real).expand(self.sizes["saved"])  # for empty_like
    self.sizes.update(planes=torch.Size((self.weight_planes,)), x_planes=torch.Size((self.x_planes,)))
    self.behind_z = [self.saved_count(rows, of) * self.real.itemsize for of in range(2)]
    self.pair_bytes = context.lib.mn_block_pair_bytes(context.handle, ctypes.addressof(calls[0]))

  def bytes(self, count):
    return torch.empty(count, dtype=torch.uint8, device=self.device)

  def saved_count(self, rows, of=2):
    """How many reals z takes and the first `of` of mean and rstd behind it."""
    z = rows * self.channels
    return ((z + 1) // 2 if self.half_z else z) + rows * self.groups * of

  def save(self):
    return torch.empty_like(self.like_saved)

  def place(self, call, saved):
    at, (mean, rstd) = _at(saved), self.behind_z
    call.z, call.mean, call.rstd = (at, at + mean, at + rstd) if at else (None, None, None)

  def forward(self, x, weight, vectors, saved, x_planes, planes, ready, updated=False):
    """y. saved, and planes that are not ready, are written if they are not None. The context's lock is held."""
    x, weight = _dense(x, self.x_type), _dense(weight, self.weight_type)
    bias, gamma, beta = (_dense(v, self.own) for v in vectors)
    y = torch.empty_like(self.like_y)
    call, of_x, of_weight = self.forward_call
    of_x.values, of_x.planes, of_weight.values, of_weight.planes = x.data_ptr(), _at(x_planes), weight.data_ptr(), _at(planes)
    of_weight.ready, of_weight.updated = ready, updated
    call.bias, call.gamma, call.beta, call.y = bias.data_ptr(), gamma.data_ptr(), beta.data_ptr(), y.data_ptr()
    self.place(call, saved)
    self.context.run(self.context.lib.mn_block_forward, call)
    return y if self.y_type is self.out else y.to(self.out)

  def fits(self, *given):
    """Whether these, each with its kind, are still as a forward saved them: hooks can have replaced them."""
    sizes, device = self.sizes, self.device
    for kind, t in given:
      if t is not None and (t.shape != sizes[kind] or t.device != device or t.layout is not torch.strided or
                            (t.dtype is torch.uint8) != kind.endswith("planes")):
        return False
    return True

  def compute(self, x, weight, vectors, save, keep):
    """y, and what a backward with gradients reads: saved and, if `keep`, the weight's planes; None for what is not
    wanted."""
    saved, planes = self.save() if save else None, self.bytes(self.weight_planes) if keep and self.weight_planes else None
    own = None if save else _trained.get(id(weight))
    if planes is not None:
      planes[-MORE:].zero_()  # not all of which is written
    with self.context.lock:
      try:
        if own is not None:
          kept, ready = own.recall(self, False)
        else:
          kept, ready = _recall(weight, self, save) if self.weight_planes else (None, False)
        y = self.forward(x, weight, vectors, saved, None, planes if planes is not None else kept, ready, own is not None)
      except BaseException:
        forget()  # planes that may not have been written
        raise
    return y, saved, planes

  def backward(self, dy, x, weight, gamma, beta, saved, planes, ready, wanted, dz=None, scale=None, scaled=False, flag=None):
    """The gradients of x, weight, bias, gamma and beta, None for those that are not wanted; and dz, with its scale."""
    sizes = (self.rows, self.inputs), (self.channels, self.inputs), *3 * [(self.channels,)]
    made = [torch.empty(size, dtype=self.own, device=self.device) if want else None for size, want in zip(sizes, wanted)]
    dy, saved = _dense(dy, self.own), _dense(saved, self.real)
    gamma, beta = _dense(gamma, self.own), _dense(beta, self.own)
    x, weight = _dense(x, self.x_type) if wanted[1] else None, _dense(weight, self.weight_type) if wanted[0] else None
    with self.context.lock:
      call, of_x, of_weight = self.backward_call
      call.dy, call.gamma, call.beta = dy.data_ptr(), gamma.data_ptr(), beta.data_ptr()
      of_x.values, of_weight.values, of_weight.planes = _at(x), _at(weight), _at(planes)
      of_weight.ready, of_weight.updated = ready, dz is not None
      call.dx, call.dweight, call.dbias, call.dgamma, call.dbeta = [t if t is None else t.data_ptr() for t in made]
      self.place(call, saved)
      call.pair, call.dz_scale, call.dz_scale_ready, call.nonfinite = _at(dz), _at(scale), scale is not None and scaled, _at(flag)
      self.context.run(self.context.lib.mn_block_backward, call)
    return made


_plan = functools.lru_cache(4096)(_Plan)


# ---- the operators for torch.compile and its like; in eager mode the same functions are called without them ----

def _planned(x, weight, groups, eps, slope, precision, out, taken, vectors, others=()):
  why = _misfit(x, weight, groups, vectors, others)
  if why:
    raise RuntimeError(f"minnow: {why}")
  return _plan(x.device, *x.shape, len(weight), weight.dtype, groups, eps, slope, precision, out, taken)


def _forward(x, weight, bias, gamma, beta, groups, eps, slope, precision, out, taken, save, keep):
  plan = _planned(x, weight, groups, eps, slope, precision, out, taken, (bias, gamma, beta))
  y, saved, planes = plan.compute(x, weight, (bias, gamma, beta), save, keep)
  return (y, x.new_empty(0, dtype=plan.real) if saved is None else saved,
          x.new_empty(0, dtype=torch.uint8) if planes is None else planes)


def _forward_fake(x, weight, bias, gamma, beta, groups, eps, slope, precision, out, taken, save, keep):
  rows, channels = x.shape[0], weight.shape[0]
  plan = _plan(x.device, 2, *(int(n) for n in weight.shape[::-1]), weight.dtype, groups, eps, slope, precision, out, taken)
  return (x.new_empty(rows, channels, dtype=out), x.new_empty(plan.saved_count(rows) if save else 0, dtype=plan.real),
          x.new_empty(plan.weight_planes if keep else 0, dtype=torch.uint8))


def _backward(dy, x, weight, gamma, beta, saved, planes, groups, eps, slope, precision, out, taken, need_x, need_weight):
  plan = _planned(x, weight, groups, eps, slope, precision, out, taken, (gamma, beta), [(dy, (len(x), len(weight)))])
  if not plan.fits(("saved", saved)) or planes.numel() not in (0, plan.weight_planes):
    raise RuntimeError(f"minnow: saved tensors of {saved.numel()} and {planes.numel()} elements, not "
                       f"{plan.saved_count(plan.rows)} and {plan.weight_planes}, are not served")
  made = plan.backward(dy, x, weight, gamma, beta, saved, _dense(planes, torch.uint8) if planes.numel() else None,
                       planes.numel() > 0, (need_x, need_weight, True, True, True))
  return tuple(like.new_empty(0) if t is None else t.to(like.dtype)
               for t, like in zip(made, (x, weight, gamma, gamma, beta)))


def _backward_fake(dy, x, weight, gamma, beta, saved, planes, groups, eps, slope, precision, out, taken, need_x, need_weight):
  return (x.new_empty(x.shape if need_x else 0), weight.new_empty(weight.shape if need_weight else 0),
          gamma.new_empty(gamma.shape), gamma.new_empty(gamma.shape), beta.new_empty(beta.shape))


def _parts(pair, plan):
  """The Block's weight and vectors in its optimizer."""
  own = _pairs.get(pair)
  if own is None or not all([part.fits(plan) for part in (own, *own.blocks[pair])]):
    if own is not None:
      own.optimizer()._pair_blocks()
    raise RuntimeError("minnow: the optimizer for which a Block was compiled is gone or changed: torch._dynamo.reset(), and "
                       "it is compiled anew")
  return own, own.blocks[pair]


def _paired(x, weight, bias, gamma, beta, groups, eps, slope, precision, out, taken, pair):
  """The forward of a Block whose backward leaves dz and x for its optimizer: y, z with mean and rstd, and x's planes or a
  copy of x, since code that is generated around the operators may write over x."""
  plan = _planned(x, weight, groups, eps, slope, precision, out, taken, (bias, gamma, beta))
  y, saved, kept = _parts(pair, plan)[0].forward(plan, x, (bias, gamma, beta))
  if not plan.x_planes:
    kept = (kept.clone() if kept.data_ptr() == x.data_ptr() else kept).flatten().view(torch.uint8)
  return y, saved, kept


def _paired_fake(x, weight, bias, gamma, beta, groups, eps, slope, precision, out, taken, pair):
  y, saved, _ = _forward_fake(x, weight, bias, gamma, beta, groups, eps, slope, precision, out, taken, True, False)
  plan = _plan(x.device, 2, *(int(n) for n in weight.shape[::-1]), weight.dtype, groups, eps, slope, precision, out, taken)
  return y, saved, x.new_empty(x.shape[0] * x.shape[1] * plan.x_each + MORE * (plan.x_planes > 0), dtype=torch.uint8)


def _paired_backward(dy, kept, saved, weight, gamma, beta, flag, groups, eps, slope, precision, out, taken, dx_type, pair, need_x):
  """dx. The operator says that it writes the flag, so that it stays in the graph, and in its place."""
  plan = _plan(dy.device, len(dy), *weight.shape[::-1], weight.dtype, groups, eps, slope, precision, out, taken)
  own, vectors = _parts(pair, plan)
  nodes = [torch.autograd.graph.get_gradient_edge(part.parameter).node for part in (own, *vectors)]
  x = kept if plan.x_planes else kept.view(plan.x_type).view(plan.sizes["x"])
  dx = own.backward(plan, dy, x, gamma, beta, saved, vectors, nodes, [need_x, True, True, True, True], flag)[0]
  return dy.new_empty(0, dtype=dx_type) if dx is None else dx.to(dx_type)


def _paired_backward_fake(dy, kept, saved, weight, gamma, beta, flag, groups, eps, slope, precision, out, taken, dx_type, pair,
                          need_x):
  return dy.new_empty((dy.shape[0], weight.shape[1]) if need_x else 0, dtype=dx_type)


# torch.compile must not record the paired operators in CUDA graphs of its own, whose replays would leave nothing for the
# optimizer. A PyTorch without the tag that says so stores the gradients of compiled Blocks on CUDA.
_TAGS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
_settings = "int groups, float eps, float slope, str precision, ScalarType out, ScalarType taken"
_operators = library.Library("minnow", "DEF")
_vectors = "Tensor bias, Tensor gamma, Tensor beta"
for _name, _arguments, _results, *_functions in (
    ("block", f"Tensor x, Tensor weight, {_vectors}, {_settings}, bool save, bool keep", 3, _forward, _forward_fake),
    ("block_backward", "Tensor dy, Tensor x, Tensor weight, Tensor gamma, Tensor beta, Tensor saved, Tensor planes, "
     f"{_settings}, bool need_x, bool need_weight", 5, _backward, _backward_fake),
    ("block_paired", f"Tensor x, Tensor weight, {_vectors}, {_settings}, int pair", 3, _paired, _paired_fake),
    ("block_paired_backward", "Tensor dy, Tensor kept, Tensor saved, Tensor weight, Tensor gamma, Tensor beta, Tensor(a!) flag, "
     f"{_settings}, ScalarType dx_type, int pair, bool need_x", 1, _paired_backward, _paired_backward_fake)):
  _operators.define(f"{_name}({_arguments}) -> ({', '.join(['Tensor'] * _results)})",
                    tags=_TAGS if "paired" in _name else ())
  for _device in "CPU", "CUDA":
    _operators.impl(_name, _functions[0], _device)
  library.register_fake(f"minnow::{_name}", _functions[1])


class _Function(torch.autograd.Function):
  """The block of plan's sizes, or by the operators if plan is None. With `trained` its backward leaves dz and x for an
  optimizer in place of the gradients."""

  @staticmethod
  def forward(ctx, x, weight, bias, gamma, beta, flag, settings, plan, trained):
    ctx.settings, ctx.plan, ctx.trained, ctx.dx_type = settings, plan, trained, x.dtype
    vectors, keep = (bias, gamma, beta), ctx.needs_input_grad[0]
    if trained is not None:
      if plan is None:
        y, saved, x = torch.ops.minnow.block_paired(x, weight, *vectors, *settings, trained)
      else:
        y, saved, x = trained[0].forward(plan, x, vectors)
      planes = flag
    elif plan is None:
      y, saved, planes = torch.ops.minnow.block(x, weight, *vectors, *settings, True, keep)
    else:
      y, saved, planes = plan.compute(x, weight, vectors, True, keep)
    ctx.save_for_backward(x, weight, *vectors, saved, planes)
    return y

  @staticmethod
  def backward(ctx, dy):
    x, weight, bias, gamma, beta, saved, planes = ctx.saved_tensors
    settings, plan, trained, wanted = ctx.settings, ctx.plan, ctx.trained, ctx.needs_input_grad[:5]
    tensors = x, weight, bias, gamma, beta
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
      if trained is not None and plan is None:
        dx = torch.ops.minnow.block_paired_backward(dy, x, saved, weight, gamma, beta, planes, *settings, ctx.dx_type, trained,
                                                  wanted[0])
        made = dx, None, None, None, None
      elif trained is not None:
        made = trained[0].backward(plan, dy, x, gamma, beta, saved, trained[1], [n for n, _ in ctx.next_functions[1:5]],
                                   list(wanted), planes)
        made[0] = made[0] if made[0] is None else made[0].to(ctx.dx_type)
      elif plan is None or not plan.fits(("dy", dy), ("x", x), ("weight", weight), ("gamma", gamma), ("beta", beta),
                                             ("saved", saved), ("planes", planes)):
        planes = x.new_empty(0, dtype=torch.uint8) if planes is None else planes
        made = torch.ops.minnow.block_backward(dy, x, weight, gamma, beta, saved, planes, *settings, *wanted[:2])
      else:
        made = [t if t is None else t.to(like.dtype) for t, like in zip(
            plan.backward(dy, x, weight, gamma, beta, saved, planes, planes is not None, wanted), tensors)]
    elif trained is not None:
      raise RuntimeError(f"minnow: a gradient of gradients (create_graph) needs stored gradients: {STORED}")
    else:
      _say("a gradient of gradients is not minnow's")
      leaves = [t for t, want in zip(tensors, wanted) if want]
      y = _eager(*(t.to(weight.dtype) for t in tensors), *settings[:3])
      found = iter(torch.autograd.grad(y, leaves, dy.to(y.dtype), create_graph=True))
      made = [next(found) if want else None for want in wanted]
    return *(t if want else None for t, want in zip(made, wanted)), None, None, None, None


# ---- the parameters that an optimizer of this module updates ----

STORED = "an optimizer with fused=False stores them, one with clip_grad_norm= clips by their norm"
_trained = weakref.WeakValueDictionary()  # by the parameter's id
# For torch.compile, which sees numbers and tensors alone: the Blocks, and their weights by number.
_blocks, _pairs, _numbers = weakref.WeakSet(), weakref.WeakValueDictionary(), itertools.count()


class _Mark(torch.Tensor):
  """A parameter's .grad while dz and x wait in its place. Whatever asks for its values is told that there are none."""
  __torch_function__ = torch._C._disabled_torch_function_impl

  @staticmethod
  def __new__(cls, parameter):
    return torch.Tensor._make_wrapper_subclass(cls, parameter.shape, dtype=parameter.dtype, device=parameter.device)

  def __repr__(self):
    return "a gradient that is not stored"

  @classmethod
  def __torch_dispatch__(cls, operator, types, arguments=(), named=None):
    raise RuntimeError(f"minnow: {operator} needs the gradient of a Block's parameter, which is not stored; {STORED}")


class _Trained:
  """A parameter that an optimizer of this module updates, with what it keeps of it besides torch.optim's state; of a
  Block's weight that is also what backwards leave."""

  def __init__(self, parameter, optimizer):
    self.parameter, self.optimizer = parameter, weakref.ref(optimizer)
    self.group = self.number = None  # the optimizer's group of it, and its place
    self.mark = self.context = None
    self.admitted = None  # whether the optimizer can take charge of it; None: not asked for
    self.moments = {}  # those of the optimizer's state that have been checked, by name
    self.floats = self.floats_of = None  # of a parameter of 16 bits (master), and of which of its values
    self.gradient = None  # the sum over the backwards before this step's last one, if there are several
    self.blocks = {}  # the vectors beside a weight, by the number that a compiled Block has
    self.pair = None  # what the last backward left: its plan, x, dz, dz's scale, and the vectors that it is for
    self.whose, self.here = None, weakref.ref(self)  # of which weight's Block the last backward was; and itself, as such
    self.planes = {}  # what products read of the weight, by context, and of which values
    self.scale = self.scaled = None  # of dz, from step to step, and in which context and Block

  # A weight's part in forward and backward.

  def recall(self, plan, training):
    """The weight's planes, and whether they are its values' still. The context's lock is held until they are made."""
    if not plan.weight_planes:
      return None, False
    weight, cuda = self.parameter, plan.device.type == "cuda"
    capturing = cuda and torch.cuda.is_current_stream_capturing()
    if capturing and not training:
      return None, False
    kept = self.planes.setdefault(plan.context, [None, None, None, plan])
    if kept[0] is None or kept[0].numel() != plan.weight_planes:
      kept[:] = plan.bytes(plan.weight_planes), None, None, plan
    now, stream = (weight._version, weight.data_ptr()), plan.context.stream()
    ready = kept[1] == now
    if not ready:
      kept[1:3] = None if capturing else now, stream  # in a capture nothing is computed yet
    elif kept[2] != stream and not capturing:
      made_in = torch.cuda.ExternalStream(kept[2], plan.device) if kept[2] else torch.cuda.default_stream(plan.device)
      torch.cuda.current_stream(plan.device).wait_stream(made_in)
      kept[2] = stream
    return kept[0], ready

  def forget(self):
    """The planes are no longer those of the weight. Their memory stays, which CUDA graphs may have recorded."""
    for kept in self.planes.values():
      kept[1] = None

  def refresh(self):
    """Makes the floats and the planes of a parameter anew if it was written since, in the memory that CUDA graphs have
    recorded. A forward makes the planes."""
    if self.floats is not None:
      self.master()
    for *_, plan in self.planes.values():
      x, vector = (torch.zeros(plan.sizes[kind], dtype=plan.own, device=plan.device) for kind in ("x", "gamma"))
      self.forward(plan, x, 3 * [vector])

  def fits(self, plan):
    """Whether the step can update it as it is."""
    p = self.parameter
    if self.admitted is None:
      optimizer = self.optimizer()
      self.admitted = p.is_leaf and optimizer._open(p.device) and optimizer._counts(self)
    return self.admitted and p.dtype is plan.own and p.is_contiguous() and p.data_ptr() % 16 == 0

  def master(self):
    """The floats that a parameter of 16 bits is rounded from, as the last step left them; its values, if it was written
    since. Of a matrix of bfloat16s these are the lower 16 bits alone: the upper ones are the parameter."""
    p, kept = self.parameter, self.floats
    now, split = (p._version, p.data_ptr()), p.dtype is torch.bfloat16 and p.dim() == 2
    if self.floats_of != now:
      dtype, found = torch.int16 if split else torch.float32, False
      if kept is None:
        kept = self.optimizer().state.get(p, {}).get("master")
        found = kept is not None and (split or torch.equal(kept.to(p), p))
      if kept is None or kept.dtype is not dtype or kept.device != p.device or kept.shape != p.shape:
        kept, found = torch.empty_like(p, dtype=dtype), False
      if not found:
        kept.zero_() if split else kept.copy_(p.detach())
      self.floats, self.floats_of = kept, now
    return kept

  def hand_over(self):
    """torch.optim updates the parameter by a stored gradient, and gives it no new version."""
    self.forget()
    self.optimizer()._leave(self)
    state = self.optimizer().state.get(self.parameter, {})
    if state.pop("master", None) is not None:
      self.floats, self.floats_of, self.moments = None, None, {}
      state.update({name: t.to(self.parameter.dtype) for name, t in state.items() if name != "step"})

  def vectors_of(self, vectors, plan):
    """Those of bias, gamma and beta that are updated with the weight; None: they have stored gradients."""
    found = []
    for v in vectors:
      own = _trained.get(id(v)) if v.requires_grad else None
      if v.requires_grad and (own is None or own.group is not self.group or not own.fits(plan)):
        return None
      found.append(own)
    return found

  def forward(self, plan, x, vectors):
    """y, and what the backward and the step read: z with mean and rstd, and x or its planes."""
    if DistributedDataParallel._active_ddp_module is not None:
      raise RuntimeError(f"minnow: DistributedDataParallel averages gradients, which are not stored here; {STORED}")
    x, saved = _dense(x, plan.x_type), plan.save()
    x_planes = plan.bytes(plan.x_planes) if plan.x_planes else None
    with plan.context.lock:
      planes, ready = self.recall(plan, True)
      try:
        y = plan.forward(x, self.parameter, vectors, saved, x_planes, planes, ready, True)
      except BaseException:
        self.forget()
        raise
    return y, saved, x if x_planes is None else x_planes

  def backward(self, plan, dy, x, gamma, beta, saved, vectors, nodes, stored, flag):
    """The gradients that are stored: of x, and of vectors that are not updated with the weight. The rest waits for the
    optimizer's step."""
    if not plan.fits(("dy", dy), ("gamma", gamma), ("beta", beta), ("saved", saved), ("x_planes" if plan.x_planes else "x", x)):
      raise RuntimeError("minnow: hooks replaced saved tensors by others, which do not fit")
    stored[1] = False
    try:
      runs = torch._C._will_engine_execute_node(nodes[0])
      taking = [own if own is not None and runs and torch._C._will_engine_execute_node(node) else None
                for own, node in zip(vectors or 3 * [None], nodes[1:])]
    except RuntimeError as error:
      raise RuntimeError(f"minnow: torch.autograd.grad of a Block's weight needs its gradient; {STORED}") from error
    if runs and vectors:
      stored[2:] = 3 * [False]
    if not runs:
      with plan.context.lock:
        planes, ready = self.recall(plan, True)
        return plan.backward(dy, None, self.parameter, gamma, beta, saved, planes, ready, stored)
    again = self.begin(plan.context, taking)
    dz, scale, whose = plan.bytes(plan.pair_bytes), None if again else self.scale, (plan.context, _at(gamma))
    with plan.context.lock:
      planes, ready = self.recall(plan, True) if stored[0] else (None, False)
      made = plan.backward(dy, None, self.parameter, gamma, beta, saved, planes, ready, stored, dz, scale,
                           self.scaled == whose, flag)
    self.pair, self.scaled = (plan, x if plan.x_planes else _dense(x, plan.x_type), dz, scale, taking), self.scaled if again else whose
    for own in self, *taking:
      if own is not None:
        own.parameter.grad = own.mark
    return made

  def begin(self, context, vectors):
    """Checks the gradients that are there. What an earlier backward left since the last step is added up with this one's:
    whether there was one."""
    for own in self, *vectors:
      if own is None:
        continue
      p, own.context = own.parameter, context
      if p._backward_hooks or p._post_accumulate_grad_hooks:
        raise RuntimeError(f"minnow: a hook on a Block's parameter needs its gradient, which is not stored; {STORED}")
      if p.grad is None:
        own.gradient = own.pair = None
      elif p.grad is own.mark:
        other = own.whose() if own.whose is not self.here else None
        if other is not None and other.pair is not None:  # a vector of two Blocks: their gradients are added up
          other.update(True)
      else:
        raise RuntimeError("minnow: a Block's parameter has a gradient besides the one that is not stored: "
                           f"is it used outside the Block?; {STORED}")
      own.whose = self.here
      if own.mark is None or own.mark.device != p.device or own.mark.dtype != p.dtype:
        own.mark = _Mark(p)
    if self.scale is None or self.scale.device != self.parameter.device:
      self.scale, self.scaled = torch.zeros(4, device=self.parameter.device), None
    again = self.pair is not None
    if again:
      self.update(True)
    return again

  # The update.

  def update(self, sum_up=False, grams=None):
    """By the pair; or the pair's gradients are added to the sums; or with grams these are written, and the pair stays."""
    plan, x, dz, scale, vectors = self.pair
    parts = self, *vectors
    if grams is None:
      self.pair = None
    for own in parts if sum_up else ():
      if own is not None and own.gradient is None:
        own.gradient = torch.zeros_like(own.parameter, dtype=plan.real)
    with plan.context.lock:
      call, of_x, *_ = plan.update_call
      if plan.x_planes:
        of_x.values, of_x.planes, of_x.ready = None, x.data_ptr(), 1
      else:
        of_x.values, of_x.planes, of_x.ready = x.data_ptr(), None, 0
      call.pair, call.dz_scale, call.grams = dz.data_ptr(), _at(scale), _at(grams)
      self.run(plan.update_call, parts)

  def square(self):
    """The square of the norm of the pair's gradients, without the weight's; or None, if it would take longer, and they are
    added to the sums."""
    plan, *_, vectors = self.pair
    rows, parts = plan.rows, (self, *vectors)
    if (rows % 8 or rows * (plan.inputs + plan.channels) > plan.inputs * plan.channels or
        any([own is not None and own.gradient is not None for own in parts])):
      return self.update(True)
    sums = sum([own is not None for own in vectors]) * plan.channels
    grams = torch.empty(2 * rows * rows + sums, dtype=plan.real, device=plan.device)
    self.update(grams=grams)
    of_weight, sums = grams[:2 * rows * rows].view(2, -1), grams[2 * rows * rows:]
    return (torch.dot(*of_weight) + torch.dot(sums, sums)).clamp_(min=0)

  def follow(self):
    """By the sum of several backwards' gradients."""
    sizes = self.parameter.shape
    call = _Call(ctypes.sizeof(_Call), 1, *(sizes[::-1] if len(sizes) == 2 else (1, *sizes)), 1)
    with self.context.lock:
      self.run((call, call.x, tuple(call.of), call.rule), (self,) if len(sizes) == 2 else (None, self))
    self.gradient = None

  def updated(self):
    """The gradient is used up, and the planes are those of the new values."""
    p, planes = self.parameter, self.planes.get(self.context)
    p.grad = None
    torch.autograd.graph.increment_version(p)
    if planes and planes[1]:
      planes[1] = p._version, p.data_ptr()
    if self.floats_of:
      self.floats_of = p._version, p.data_ptr()

  def run(self, filled, parts):
    (call, _, entries, rule), optimizer, context = filled, self.optimizer(), self.context
    for entry, own in itertools.zip_longest(entries, parts):
      if own is None:
        entry.values = None
        continue
      p, narrow = own.parameter, own.parameter.dtype.itemsize == 2
      floats = own.master() if narrow else p
      if narrow:
        optimizer.state[p]["master"] = floats
      entry.values, entry.narrow, entry.gradient = floats.data_ptr(), p.data_ptr() if narrow else None, _at(own.gradient)
      entry.m, entry.v = optimizer._moments(own)
    planes = self.planes.get(context)
    call.weight.planes, call.nonfinite = planes and planes[0].data_ptr(), optimizer.flag.data_ptr()
    rule.rate = optimizer._kept(self.number).rate.data_ptr()
    rule.scale = optimizer._scale.data_ptr() if optimizer.clip_grad_norm is not None else None
    optimizer._rule(rule, self.group)
    context.run(context.lib.mn_block_update, call)


# ---- for users ----

def _eager(x, weight, bias, gamma, beta, groups, eps, slope):
  a = functional.leaky_relu(functional.group_norm(functional.linear(x, weight, bias), groups, gamma, beta, eps), slope)
  return a + a


@functools.cache
def _say(why):
  warnings.warn(f"minnow: {why}; PyTorch computes it", stacklevel=2)


def _choose(tensors, groups, precision):
  """What the products read, y's type and the one that x is taken in; or None, and why minnow does not serve these
  tensors."""
  x, weight, *vectors = tensors
  why = _misfit(x, weight, groups, vectors)
  if why or x.device.type not in ("cpu", "cuda"):
    return None, why or f"tensors on {x.device.type} are not served"
  device, types = x.device, {t.dtype for t in tensors}
  if torch.is_autocast_enabled(device.type) and torch.float64 not in types:
    taken = torch.get_autocast_dtype(device.type)
    own = OWN.get(taken) if types <= {torch.float32, taken} and vectors[1].dtype == vectors[2].dtype else None
    out = torch.float32 if device.type == "cuda" else taken  # as PyTorch's group_norm has it
  else:
    own, out, taken = OWN.get(x.dtype, precision if x.dtype == torch.float32 else None), x.dtype, x.dtype
    if len(types) > 1:
      own = None
  if own is None:
    return None, f"tensors of {', '.join(sorted(str(t) for t in types))} are not served"
  why = _refusal(device, own)
  return (None, why) if why else ((own, out, taken), None)


_plans = {}  # what is served and how, by all that this depends on


def _recalled(tensors, groups, eps, slope, precision):
  """The plan for these tensors; None if minnow does not serve them as they are."""
  device = tensors[0].device.type if isinstance(tensors[0], torch.Tensor) else "cpu"
  key = (*[(type(t), t.shape, t.dtype, t.device, t.layout) if isinstance(t, torch.Tensor) else None for t in tensors],
         groups, eps, slope, precision, torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device))
  plan = _plans.get(key)
  if plan is None and all([type(t) is torch.Tensor or type(t) is torch.nn.Parameter for t in tensors]):
    types, _ = _choose(tensors, groups, precision)
    if types is not None:
      x, weight = tensors[:2]
      if len(_plans) > 4096:
        _plans.clear()
      plan = _plans[key] = _plan(x.device, *x.shape, len(weight), weight.dtype, groups, eps, slope, *types)
  return plan


def block(x, weight, bias, gamma, beta, groups, eps=1e-5, slope=0.01, precision=PRECISIONS[0], *, _pair=-1, _flag=None):
  """y = a + a with a = leaky_relu(group_norm(linear(x, weight, bias), groups, gamma, beta, eps), slope). x [N, I], weight
  [C, I], the others [C]. `precision` is what products of float32 read; under autocast they read its type."""
  tensors, plan, trained = (x, weight, bias, gamma, beta), None, None
  compiling = torch.compiler.is_compiling()
  if not compiling and not torch._C._are_functorch_transforms_active():
    plan = _recalled(tensors, groups, eps, slope, precision)
  if plan is None:
    types, why = _choose(tensors, groups, precision)
    if types is None:
      if not compiling:
        _say(why)
      return _eager(*tensors, groups, eps, slope)
  else:
    types = plan.types
  settings = groups, eps, slope, *types
  if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
    if plan is not None:
      own = _trained.get(id(weight))
      if own is not None and weight.requires_grad and own.fits(plan):
        trained, _flag = (own, own.vectors_of((bias, gamma, beta), plan)), own.optimizer().flag
    elif compiling and _pair >= 0 and all([t.requires_grad for t in tensors[1:]]):
      trained = _pair
    return _Function.apply(*tensors, _flag if trained is not None else None, settings, plan, trained)
  if plan is not None:
    return plan.compute(x, weight, (bias, gamma, beta), False, False)[0]
  return torch.ops.minnow.block(*tensors, *settings, False, False)[0]


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
    self._unpaired()

  def __setstate__(self, state):
    super().__setstate__(state)
    self._unpaired()

  def _unpaired(self):
    """Its gradients are stored, until an optimizer of this module takes charge."""
    self._pair, self._flag = -1, None
    _blocks.add(self)

  def forward(self, x):
    fc, gn = self.fc, self.gn
    return block(x, fc.weight, fc.bias, gn.weight, gn.bias, gn.num_groups, gn.eps, self.negative_slope, self.precision,
                 _pair=self._pair, _flag=self._flag)

  def extra_repr(self):
    return f"negative_slope={self.negative_slope}, precision={self.precision}"


class ModelNew(Block):
  """KernelBench's level 2, problem 62, Matmul_GroupNorm_LeakyReLU_Sum."""

  def __init__(self, input_size, hidden_size, num_groups, eps=1e-5, negative_slope=0.01):
    super().__init__(input_size, hidden_size, num_groups, eps, negative_slope)


class _Group:
  """What the device keeps of a group: its rate and, for AdamW, its number of steps; and the call that counts them."""

  def __init__(self, optimizer, steps):
    device = optimizer.flag.device
    self.lr = self.betas = None  # as last written
    self.rate = torch.ones(3, dtype=torch.float64, device=device)
    self.steps = None if steps is None else torch.full((), steps, dtype=torch.float32, device=device)
    self.begun = bool(steps)  # whether there was any step
    self.call = _Call(ctypes.sizeof(_Call), nonfinite=optimizer.flag.data_ptr(), counts=_Counts(
        _at(self.steps), self.rate.data_ptr(), 0, 0, optimizer._skipped.data_ptr(), optimizer._told.data_ptr()))


class _Optimizer:
  """What SGD and AdamW share: their step updates Blocks' parameters in the product that computes the gradient, and all
  others by torch.optim's fused kernels. A step in which a Block met a value that is not finite changes nothing: `skipped`
  counts these. clip_grad_norm=M does what torch.nn.utils.clip_grad_norm_ does before a step, for all parameters together;
  `grad_norm` is then the norm of the last step's gradients, a tensor on the device.

  In a CUDA graph a rate that changes has to be a tensor on the device, as for torch.optim; and replays do not notice that
  parameters were written since the last step: refresh() does."""
  grad_norm = None

  def __init__(self, *arguments, fused=True, clip_grad_norm=None, **named):
    if clip_grad_norm is not None and not clip_grad_norm > 0:
      raise ValueError(f"minnow: clip_grad_norm={clip_grad_norm} is no norm to clip to: a number above 0, or None")
    self.clip_grad_norm = clip_grad_norm
    super().__init__(*arguments, fused=fused or None, **named)

  def __getstate__(self):
    return {**super().__getstate__(), "clip_grad_norm": self.clip_grad_norm}

  def add_param_group(self, group):
    super().add_param_group(group)
    self._take()

  def __setstate__(self, state):
    super().__setstate__(state)
    self._groups = {}
    self._take()

  def load_state_dict(self, state_dict):
    given = copy.deepcopy(state_dict)  # with which it would share tensors
    super().load_state_dict(given)
    for before, group in zip(given["param_groups"], self.param_groups):
      for number, p in zip(before["params"], group["params"]):
        if group["fused"] and p.dtype.itemsize == 2:  # it would round their floats
          self.state[p].update({name: t.to(p.device) for name, t in given["state"].get(number, {}).items() if name != "step"})

  def _take(self):
    """Takes charge of the parameters, from the first forward on."""
    own = self.__dict__.setdefault("_own", {})
    self.__dict__.setdefault("flag", None)
    for number, group in enumerate(self.param_groups):
      for name in "maximize", "dampening", "amsgrad", "differentiable":
        if group["fused"] and group.get(name):
          raise ValueError(f"minnow: {name}={group[name]} is not served within a product; fused=False serves it")
      for p in group["params"]:
        one = own.get(id(p)) or _Trained(p, self)
        own[id(p)], one.group, one.number, one.admitted = one, group, number, None
        one.moments, one.floats, one.floats_of = {}, None, None
        if group["fused"]:
          _trained[id(p)] = one
        else:
          _trained.pop(id(p), None)
    self._pair_blocks()

  def _pair_blocks(self):
    """Numbers the Blocks all of whose parameters are in one group here."""
    numbers = self.__dict__.get("_numbers")
    if numbers is None:
      numbers = self._numbers = set()
      weakref.finalize(self, _unpair, numbers)
    for block in list(_blocks):
      own, *vectors = [self._own.get(id(getattr(getattr(block, part, None), name, None)))
                       for part, name in (("fc", "weight"), ("fc", "bias"), ("gn", "weight"), ("gn", "bias"))]
      if own is None:
        continue
      pairs = (own.group["fused"] and (_TAGS or not own.parameter.is_cuda) and own.admitted is not False and
               all([v is not None and v.group is own.group and v.admitted is not False for v in vectors]))
      if pairs and own.blocks.get(block._pair) != vectors:
        pair = next(_numbers)
        numbers.add(pair)
        self._open(own.parameter.device)
        _pairs[pair], own.blocks[pair], block._pair, block._flag = own, vectors, pair, self.flag
      elif not pairs:
        block._pair, block._flag = -1, None

  def _open(self, device):
    """The device's memory that step() reads and writes. Whether this is the device of all."""
    if self.flag is None:
      self.flag, self._groups = torch.zeros(1, dtype=torch.int32, device=device), {}
      self._skipped = torch.zeros(1, dtype=torch.int64, device=device)
      self._scale = torch.ones(1, dtype=torch.float64, device=device)
      self._told, self._seen = torch.zeros(1, dtype=torch.int64, pin_memory=device.type == "cuda"), 0
    return self.flag.device == device

  def step(self, closure=None):
    if (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _global_optimizer_pre_hooks or
        _global_optimizer_post_hooks):
      return _hooked_step(self, closure)
    return self._step(closure)

  step.hooked = True  # or torch.optim would record each call for its profiler, hooks or not

  def _step(self, closure):
    loss = None
    if closure is not None:
      with torch.enable_grad():
        loss = closure()
    taken, missing, others = [], [], False
    for own in self._own.values():
      grad = own.parameter.grad
      if grad is None:
        missing.append(own)
      elif grad is own.mark:
        taken.append(own)
      else:
        others = True
        own.hand_over()
    if taken:
      self._begin(taken)
    if self.clip_grad_norm is not None:
      self._clip(taken)
    for own in taken:
      if own.pair is not None:
        own.update()
    for own in taken:
      if own.gradient is not None:
        own.follow()
      own.updated()
    if others:
      self.found_inf = self.flag.view(torch.float32)[0] if taken else None  # which the flag's bits are
      with torch.no_grad():
        self._others()
    if taken:
      numbers = {own.number for own in taken}
      for own in missing:
        if own.number in numbers:
          self._leave(own)
      self._end(taken)
    return loss

  def refresh(self):
    """Notices parameters that have been written since the last step, so that replays of a CUDA graph go on from them."""
    for own in self._own.values():
      own.refresh()

  @torch.no_grad()
  def _clip(self, taken):
    """Scales stored gradients, and tells the updates by what to scale the others. A norm that is not finite skips the
    step, if a Block takes part in it."""
    squares = [square for square in [own.square() for own in taken if own.pair is not None] if square is not None]
    stored = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None and type(p.grad) is not _Mark]
    gradients = stored + [own.gradient for own in taken if own.gradient is not None]
    if not gradients and not squares:
      return
    norms = torch._foreach_norm(gradients, 2, torch.float64) if gradients else ()
    self.grad_norm = torch.linalg.vector_norm(torch.stack([*norms, *[square.sqrt() for square in squares]]))
    scale = (self.clip_grad_norm / (self.grad_norm + 1e-6)).clamp_(max=1)
    if stored:
      torch._foreach_mul_(stored, scale)
    if taken:
      self._scale.copy_(scale)
      self.flag.view(torch.float32).logical_or_(self.grad_norm * 0)  # NaN, which counts as true, or 0

  def _begin(self, taken):
    """Writes to the device what has changed since the last step: the rate, and the betas with it. A tensor's value may
    have."""
    for number in {own.number for own in taken}:
      kept, group = self._kept(number), self.param_groups[number]
      lr, betas = group["lr"], group.get("betas")
      if kept.lr is None or torch.is_tensor(lr) or kept.lr != lr:
        kept.lr = lr
        kept.rate[0].fill_(lr)
      if kept.betas != betas:
        kept.betas = kept.call.counts.beta1, kept.call.counts.beta2 = betas
        self._count(kept, taken[0].context, False, False)
      kept.begun = True

  def _leave(self, own):
    """A parameter that does not take its group's step counts its own steps from then on, as torch.optim's do, and its
    gradients are stored."""
    if self.COUNTS and own.moments:
      state = self.state[own.parameter]
      state["step"], own.moments, own.admitted = state["step"].clone(), {}, False
      self._pair_blocks()

  def _end(self, taken):
    """Counts the step. That it was skipped is known here once the device is done with it: in a later step."""
    numbers = [*{own.number for own in taken}]
    for number in numbers:
      self._count(self._kept(number), taken[0].context, True, number == numbers[-1])
    skipped = ctypes.c_int64.from_address(self._told.data_ptr()).value
    if skipped > self._seen:
      for own in self._own.values():  # the scales may have been too small for what they are to hold
        own.forget()
        own.scaled = None
      if not self._seen:
        warnings.warn("minnow: a step was skipped, since a value was not finite; the optimizer's `skipped` counts such steps",
                      stacklevel=4)
      self._seen = skipped

  def _kept(self, number):
    if number not in self._groups:
      self._groups[number] = _Group(self, 0 if self.COUNTS else None)
    return self._groups[number]

  def _count(self, kept, context, ended, clears):
    call = kept.call
    call.counts.ended, call.counts.clears, call.stream = ended, clears, context.stream()
    context.must(context.lib.mn_block_count(context.handle, ctypes.addressof(call)))

  @property
  def skipped(self):
    """How many steps changed nothing since a value was not finite. Waits for the device."""
    return 0 if self.flag is None else int(self._skipped)

  def zero_grad(self, set_to_none=True):
    for group in self.param_groups:
      for p in group["params"]:
        if set_to_none or type(p.grad) is _Mark:
          p.grad = None
    if not set_to_none:
      super().zero_grad(False)

  def _moment(self, own, name):
    """Where torch.optim's state has it. It can have been loaded, or set by hand."""
    p = own.parameter
    state = self.state[p]
    moment, checked = state.get(name), own.moments.get(name)
    if moment is None or moment is not checked:
      if moment is None and checked is not None and self.COUNTS:
        raise RuntimeError(f"minnow: the optimizer's {name} of a Block's parameter is gone, and its count of steps is not: a "
                           "new optimizer starts both anew")
      if moment is not None and moment.shape != p.shape:
        raise RuntimeError(f"minnow: the optimizer's {name} has the shape {tuple(moment.shape)}, and its parameter "
                           f"{tuple(p.shape)}: its state is another model's")
      real = torch.float32 if p.dtype.itemsize == 2 else p.dtype
      moment = torch.zeros_like(p, dtype=real) if moment is None else moment.to(p.device, real).contiguous()
      state[name] = own.moments[name] = moment
    return moment.data_ptr()


def _unpair(numbers):
  for block in list(_blocks):
    if block._pair in numbers:
      block._pair, block._flag = -1, None


_hooked_step = torch.optim.Optimizer.profile_hook_step(_Optimizer._step)


class SGD(_Optimizer, torch.optim.SGD):
  """torch.optim.SGD, with its arguments and state_dict. With fused=False it is just that."""
  COUNTS, _others = False, inspect.unwrap(torch.optim.SGD.step)

  def _counts(self, own):
    return True

  def _moments(self, own):
    return self._moment(own, "momentum_buffer") if own.group["momentum"] else None, None

  def _rule(self, rule, group):
    rule.kind, rule.momentum, rule.nesterov, rule.weight_decay = 0, group["momentum"], group["nesterov"], group["weight_decay"]


class AdamW(_Optimizer, torch.optim.AdamW):
  """torch.optim.AdamW, with its arguments and state_dict. With fused=False it is just that."""
  COUNTS, _others = True, inspect.unwrap(torch.optim.AdamW.step)

  def state_dict(self):
    """Each parameter's count of steps is its own there."""
    found = super().state_dict()
    found["state"] = {i: {**state, "step": state["step"].clone()} if "step" in state else state
                      for i, state in found["state"].items()}
    return found

  def _counts(self, own):
    """Whether the parameter has taken all of its group's steps, for which the rates are."""
    state = self.state.get(own.parameter, {})
    step, kept = state.get("step"), self._groups.get(own.number)
    if step is None:
      return kept is None or not kept.begun
    if kept is None:
      kept = self._groups[own.number] = _Group(self, float(step))
    if float(step) != float(kept.steps):
      return False
    state["step"] = kept.steps
    return True

  def _moments(self, own):
    self.state[own.parameter]["step"] = self._kept(own.number).steps
    return self._moment(own, "exp_avg"), self._moment(own, "exp_avg_sq")

  def _rule(self, rule, group):
    rule.kind, (rule.beta1, rule.beta2), rule.eps, rule.weight_decay = 1, group["betas"], group["eps"], group["weight_decay"]
