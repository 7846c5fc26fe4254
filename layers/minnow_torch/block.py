"""The block for PyTorch: a function and a module, under autograd and torch.compile. What minnow does not serve, or what
watches the modules that a Block stands for, goes PyTorch's way."""
import functools
import itertools
import warnings
import weakref

import torch
from torch import library as operators
from torch.nn import functional
from torch.nn.modules import module as hooks
from torch.nn.parallel import DistributedDataParallel

from . import library
from .gradient import Trained
from .plan import MORE, plan as make_plan, trained

# What products of float32 may read (kernels/types.h): the first, the default, has float32's accuracy on tensor cores.
PRECISIONS = ("fp16x3", "fp32", "tf32", "fp16", "bf16")


def _eager(x, weight, bias, gamma, beta, groups, eps, slope):
  a = functional.leaky_relu(functional.group_norm(functional.linear(x, weight, bias), groups, gamma, beta, eps), slope)
  return a + a


@functools.cache
def _say(why):
  warnings.warn(f"minnow: {why}; PyTorch computes it", stacklevel=2)


# ---- whether minnow serves these tensors ----

def _misfit(x, weight, groups, eps, vectors, others=()):
  """Why minnow cannot take these tensors, or None: C goes by the sizes of x and weight alone, and takes none of
  2**30 or more. `others` are tensors, each with the shape that it must have."""
  for t in (x, weight, *vectors, *[t for t, _ in others]):
    if not isinstance(t, torch.Tensor):
      return f"{type(t).__name__} in place of a tensor is not served"
    if t.device != x.device or t.layout is not torch.strided or t.device.type not in ("cpu", "cuda"):
      return f"a {t.layout} tensor on {t.device}, with x on {x.device}, is not served"
  if x.dim() == weight.dim() == 2:
    (rows, inputs), (channels, depth) = x.shape, weight.shape
    if (inputs == depth and 0 < rows < 2**30 and 0 < inputs < 2**30 and 0 < channels < 2**30 and groups > 0 and
        channels % groups == 0 and rows * channels > groups and  # PyTorch refuses groups of one value
        eps >= 0 and all([t.shape == (channels,) for t in vectors]) and all([t.shape == shape for t, shape in others])):
      return None
  shapes = ", ".join(str(tuple(t.shape)) for t in (x, weight, *vectors, *[t for t, _ in others]))
  return f"{groups} groups, eps {eps} and tensors of shape {shapes} are not served"


def _choose(tensors, groups, eps, precision):
  """What the products read, y's type and the one that x is taken in; or None, and why minnow does not serve these
  tensors."""
  x, weight, *vectors = tensors
  why = _misfit(x, weight, groups, eps, vectors)
  if why:
    return None, why
  device, types = x.device, {t.dtype for t in tensors}
  if torch.is_autocast_enabled(device.type) and torch.float64 not in types:
    taken = torch.get_autocast_dtype(device.type)
    own = library.OWN.get(taken) if types <= {torch.float32, taken} and vectors[1].dtype == vectors[2].dtype else None
    out = torch.float32 if device.type == "cuda" else taken  # as PyTorch's group_norm has it
  else:
    own, out, taken = library.OWN.get(x.dtype, precision if x.dtype == torch.float32 else None), x.dtype, x.dtype
    if len(types) > 1:
      own = None
  if own is None:
    return None, f"tensors of {', '.join(sorted(str(t) for t in types))} are not served"
  why = library.refusal(device, own)
  return (None, why) if why else ((own, out, taken), None)


def _watched():
  """Whether something wants to see PyTorch's own operations: functorch, forward-mode derivatives, a dispatch mode, tracing."""
  return (torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0 or
          torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None)


_plans = {}  # what is served and how, by all that this depends on


def _planned(tensors, groups, eps, slope, precision):
  """(plan, addresses, tensors) of a call of C's on these, which may be converted; or None, and why there is none."""
  x, weight, bias, gamma, beta = tensors
  try:
    kind = x.device.type
    cast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
    key = x.shape, x.dtype, x.device, weight.shape, weight.dtype, gamma.dtype, groups, eps, slope, precision, cast
    found = _plans.get(key)
  except (AttributeError, TypeError, RuntimeError):  # no tensors, and devices without autocast
    key = found = None
  if found is not None:
    at = library.addresses(tensors, found.arguments, found.device)
    if at is not None:
      return found, at, tensors
  types, why = _choose(tensors, groups, eps, precision)
  if types is None or not all([type(t) in (torch.Tensor, torch.nn.Parameter) for t in tensors]):
    return None, why or f"{next(type(t).__name__ for t in tensors if type(t) not in (torch.Tensor, torch.nn.Parameter))} is not served", None
  found = make_plan(x.device, *x.shape, len(weight), x.dtype, weight.dtype, groups, eps, slope, *types)
  if len(_plans) > 4096:
    _plans.clear()
  _plans[key] = found
  return found, *library.dense(tensors, found.arguments, found.device)[::-1]


# ---- eager mode ----

def _second_order(settings, tensors, wanted, dy):
  """The gradients of x, weight, bias, gamma and beta with a graph of their own."""
  _say("a gradient of gradients is not minnow's")
  y = _eager(*(t.to(tensors[1].dtype) for t in tensors), *settings[:3])
  found = iter(torch.autograd.grad(y, [t for t, want in zip(tensors, wanted) if want], dy.to(y.dtype), create_graph=True))
  return [next(found) if want else None for want in wanted]


class _Stored(torch.autograd.Function):
  """The block whose gradients are stored."""

  @staticmethod
  def forward(ctx, x, weight, bias, gamma, beta, plan, at):
    tensors, ctx.plan = (x, weight, bias, gamma, beta), plan
    y, saved, planes = plan.compute(tensors, at, True, ctx.needs_input_grad[0])
    ctx.save_for_backward(*tensors, saved, planes)
    return y

  @staticmethod
  def backward(ctx, dy):
    *tensors, saved, planes = ctx.saved_tensors
    plan, wanted, (x, weight, _, gamma, beta) = ctx.plan, ctx.needs_input_grad[:5], tensors
    if torch.is_grad_enabled():
      return *_second_order(plan.settings, tensors, wanted, dy), None, None
    if planes is not None:
      (planes,), _ = library.dense((planes,), (plan.planes,), plan.device)
    made = plan.backward(dy, x, weight, gamma, beta, saved, planes, planes is not None, wanted)
    made[0] = made[0] if made[0] is None else made[0].to(plan.given)
    return *made, None, None


def _left(parts, nodes):
  """Whether gradients may be left to somebody's asking: none is there, no hook waits for one, and the engine is to store
  them all."""
  try:
    for own, node in zip(parts, nodes):
      if own is not None:
        p = own.parameter
        if (p.grad is not None or p._backward_hooks or p._post_accumulate_grad_hooks or
            not torch._C._will_engine_execute_node(node)):
          return False
  except RuntimeError:  # torch.autograd.grad asks for one
    return False
  return True


class _Trained(torch.autograd.Function):
  """The block whose backward leaves what an optimizer of ours updates its parameters by (gradient.py)."""

  @staticmethod
  def forward(ctx, x, weight, bias, gamma, beta, plan, at, parts):
    ctx.plan, ctx.parts = plan, parts
    x, at = plan.taken(x, at)
    y, saved, planes = parts[0].forward(plan, at)
    ctx.save_for_backward(x, weight, bias, gamma, beta, saved, planes)
    return y if y.dtype is plan.out else y.to(plan.out)

  @staticmethod
  def backward(ctx, dy):
    *tensors, saved, planes = ctx.saved_tensors
    plan, parts, wanted = ctx.plan, ctx.parts, ctx.needs_input_grad[:5]
    if torch.is_grad_enabled():
      return *_second_order(plan.settings, tensors, wanted, dy), None, None, None
    dx, pair = parts[0].backward(plan, dy, tensors[0] if planes is None else planes, *tensors[1:2], *tensors[3:], saved, parts,
                                 wanted[0])
    dx = dx if dx is None or dx.dtype is plan.given else dx.to(plan.given)
    if not _left(parts, [node for node, _ in ctx.next_functions[1:5]]):
      return dx, *pair.gradients(), None, None, None
    pair.leave()
    return dx, None, None, None, None, None, None, None


# Without Function's own look for functorch.
_stored, _leave = (super(torch.autograd.Function, kind).apply for kind in (_Stored, _Trained))


def _run(plan, at, tensors):
  x, weight, *vectors = tensors
  if not torch.is_grad_enabled() or not any([t.requires_grad for t in tensors]):
    return plan.compute(tensors, at, False, False)[0]
  own = trained.get(id(weight))
  if own is not None and weight.requires_grad and DistributedDataParallel._active_ddp_module is None:
    parts = own.leaves(plan, vectors, at[1:])
    if parts is not None:
      return _leave(*tensors, plan, at, parts)
  return _stored(*tensors, plan, at)


def block(x, weight, bias, gamma, beta, groups, eps=1e-5, slope=0.01, precision=PRECISIONS[0]):
  """y = a + a with a = leaky_relu(group_norm(linear(x, weight, bias), groups, gamma, beta, eps), slope). x [N, I], weight
  [C, I], the others [C]. `precision` is what products of float32 read; under autocast they read its type."""
  tensors = x, weight, bias, gamma, beta
  if torch.compiler.is_compiling():
    return _compiled(tensors, groups, eps, slope, precision)
  if _watched():
    return _eager(*tensors, groups, eps, slope)
  plan, at, tensors = _planned(tensors, groups, eps, slope, precision)
  if plan is None:
    _say(at)
    return _eager(x, weight, bias, gamma, beta, groups, eps, slope)
  return _run(plan, at, tensors)


# ---- operators for torch.compile and its like ----

def _operate(x, weight, bias, gamma, beta, settings, others=()):
  """The plan of an operator's call."""
  why = _misfit(x, weight, settings[0], settings[1], (bias, gamma, beta), others)
  if why:
    raise RuntimeError(f"minnow: {why}")
  return make_plan(x.device, *x.shape, len(weight), x.dtype, weight.dtype, *settings)


def _imagine(x, weight, settings):
  """The plan of another number of rows, for the sizes of results."""
  return make_plan(x.device, 2, *(int(n) for n in weight.shape[::-1]), x.dtype, weight.dtype, *settings)


def _forward(x, weight, bias, gamma, beta, *settings):
  *settings, save, keep = settings
  plan = _operate(x, weight, bias, gamma, beta, settings)
  y, saved, planes = plan.compute(*library.dense((x, weight, bias, gamma, beta), plan.arguments, plan.device), save, keep)
  return (y, x.new_empty(0, dtype=plan.real) if saved is None else saved,
          x.new_empty(0, dtype=torch.uint8) if planes is None else planes)


def _forward_fake(x, weight, bias, gamma, beta, *settings):
  *settings, save, keep = settings
  plan = _imagine(x, weight, settings)
  return (x.new_empty(x.shape[0], weight.shape[0], dtype=plan.out),
          x.new_empty(plan.saved_count(x.shape[0]) if save else 0, dtype=plan.real),
          x.new_empty(plan.weight_planes if keep else 0, dtype=torch.uint8))


def _backward(dy, x, weight, gamma, beta, saved, planes, *settings):
  *settings, need_x, need_weight = settings
  plan = _operate(x, weight, gamma, gamma, beta, settings, [(dy, (len(x), len(weight)))])
  (planes,), _ = library.dense((planes,), (plan.planes if planes.numel() else (torch.uint8, planes.shape),), plan.device)
  made = plan.backward(dy, x, weight, gamma, beta, saved, planes if planes.numel() else None, planes.numel() > 0,
                       (need_x, need_weight, True, True, True))
  return tuple(like.new_empty(0) if t is None else t.to(like.dtype)
               for t, like in zip(made, (x, weight, gamma, gamma, beta)))


def _backward_fake(dy, x, weight, gamma, beta, saved, planes, *settings):
  *_, need_x, need_weight = settings
  return (x.new_empty(x.shape if need_x else 0), weight.new_empty(weight.shape if need_weight else 0),
          gamma.new_empty(gamma.shape), gamma.new_empty(gamma.shape), beta.new_empty(beta.shape))


def _lead(x, weight, bias, gamma, beta, *settings):
  """The forward of a Block whose backward leaves a pair: y, z with mean and rstd, and x's planes or a copy of x, since code
  that is generated around the operators may write over x."""
  *settings, _ = settings
  plan = _operate(x, weight, bias, gamma, beta, settings)
  tensors, at = library.dense((x, weight, bias, gamma, beta), plan.arguments, plan.device)
  taken, at = plan.taken(tensors[0], at)
  own = trained.get(id(weight))
  if own is None:
    planes = plan.bytes(plan.x_planes) if plan.x_planes else None
    with plan.context.lock:
      y, saved = plan.forward(at, True, planes, None, False, False)
  else:
    y, saved, planes = own.forward(plan, at)
  if planes is None:
    planes = (taken.clone() if taken.data_ptr() == x.data_ptr() else taken).flatten().view(torch.uint8)
  return y if y.dtype is plan.out else y.to(plan.out), saved, planes


def _lead_fake(x, weight, bias, gamma, beta, *settings):
  y, saved, _ = _forward_fake(x, weight, bias, gamma, beta, *settings[:-1], True, False)
  plan = _imagine(x, weight, settings[:-1])
  return y, saved, x.new_empty(x.shape[0] * x.shape[1] * plan.x_each + MORE * (plan.x_planes > 0), dtype=torch.uint8)


def _lead_backward(dy, kept, saved, weight, gamma, beta, flag, *settings):
  """dx; the parameters' gradients are left, or stored where they belong. The operator says that it writes the flag, so that
  it stays in the graph, and in its place."""
  *settings, given, number, need_x = settings
  plan = make_plan(dy.device, len(dy), *weight.shape[::-1], given, weight.dtype, *settings)
  block, own = _blocks.get(number), trained.get(id(weight))
  if block is None:
    raise RuntimeError("minnow: the Block that was compiled is no more")
  parameters = block.fc.weight, block.fc.bias, block.gn.weight, block.gn.bias
  at = [p.data_ptr() for p in parameters]
  x = kept if plan.x_planes else kept.view(plan.x_type).view(plan.x[1])
  parts = own.leaves(plan, parameters[1:], at) if own is not None else None
  if parts is None:  # its optimizer is gone, or serves it no more
    own = Trained(weight, None)
  dx, pair = own.backward(plan, dy, x, weight, gamma, beta, saved, parts or 4 * [None], need_x)
  nodes = [torch.autograd.graph.get_gradient_edge(p).node for p in parameters]
  if parts is not None and _left(parts, nodes):
    pair.leave()
  else:
    try:
      wanted = [which for which, node in enumerate(nodes) if torch._C._will_engine_execute_node(node)]
    except RuntimeError as error:
      raise RuntimeError("minnow: a Block that was compiled for an optimizer of minnow_torch has no gradients for "
                         "torch.autograd.grad: not compiled it has") from error
    torch.autograd.backward([parameters[i] for i in wanted], [pair.gradient(i, parameters[i].dtype) for i in wanted])
  return dy.new_empty(0, dtype=given) if dx is None else dx.to(given)


def _lead_backward_fake(dy, kept, saved, weight, gamma, beta, flag, *settings):
  *_, given, _, need_x = settings
  return dy.new_empty((dy.shape[0], weight.shape[1]) if need_x else 0, dtype=given)


# torch.compile must not record the leading operators in CUDA graphs of its own, whose replays would leave nothing for the
# optimizer. A PyTorch without the tag that says so stores the gradients of compiled Blocks on CUDA.
_TAGS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
_settings = "int groups, float eps, float slope, str precision, ScalarType out, ScalarType taken"
_operators = operators.Library("minnow", "DEF")
_vectors = "Tensor bias, Tensor gamma, Tensor beta"
for _name, _arguments, _results, *_functions in (
    ("block", f"Tensor x, Tensor weight, {_vectors}, {_settings}, bool save, bool keep", 3, _forward, _forward_fake),
    ("block_backward", "Tensor dy, Tensor x, Tensor weight, Tensor gamma, Tensor beta, Tensor saved, Tensor planes, "
     f"{_settings}, bool need_x, bool need_weight", 5, _backward, _backward_fake),
    ("block_lead", f"Tensor x, Tensor weight, {_vectors}, {_settings}, int number", 3, _lead, _lead_fake),
    ("block_lead_backward", "Tensor dy, Tensor kept, Tensor saved, Tensor weight, Tensor gamma, Tensor beta, Tensor(a!) flag, "
     f"{_settings}, ScalarType given, int number, bool need_x", 1, _lead_backward, _lead_backward_fake)):
  _operators.define(f"{_name}({_arguments}) -> ({', '.join(['Tensor'] * _results)})", tags=_TAGS if "lead" in _name else ())
  for _device in "CPU", "CUDA":
    _operators.impl(_name, _functions[0], _device)
  operators.register_fake(f"minnow::{_name}", _functions[1])


class _Compiled(torch.autograd.Function):
  """The block by the operators; of a Block with a number, whose gradients are left, if that is not -1."""

  @staticmethod
  def forward(ctx, x, weight, bias, gamma, beta, flag, settings, number):
    ctx.settings, ctx.number, ctx.given = settings, number, x.dtype
    if number >= 0:
      y, saved, planes = torch.ops.minnow.block_lead(x, weight, bias, gamma, beta, *settings, number)
      ctx.save_for_backward(flag, weight, gamma, beta, saved, planes)
    else:
      y, saved, planes = torch.ops.minnow.block(x, weight, bias, gamma, beta, *settings, True, ctx.needs_input_grad[0])
      ctx.save_for_backward(x, weight, gamma, beta, saved, planes)
    return y

  @staticmethod
  def backward(ctx, dy):
    x, weight, gamma, beta, saved, planes = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:5]
    if ctx.number >= 0:
      dx = torch.ops.minnow.block_lead_backward(dy, planes, saved, weight, gamma, beta, x, *ctx.settings, ctx.given, ctx.number,
                                                wanted[0])
      made = dx, None, None, None, None
    else:
      made = torch.ops.minnow.block_backward(dy, x, weight, gamma, beta, saved, planes, *ctx.settings, *wanted[:2])
    return *(t if want else None for t, want in zip(made, wanted)), None, None, None


def _compiled(tensors, groups, eps, slope, precision, number=-1, flag=None):
  types, _ = _choose(tensors, groups, eps, precision)
  if types is None:
    return _eager(*tensors, groups, eps, slope)
  settings = groups, eps, slope, *types
  if not torch.is_grad_enabled() or not any([t.requires_grad for t in tensors]):
    return torch.ops.minnow.block(*tensors, *settings, False, False)[0]
  if not all([t.requires_grad for t in tensors[1:]]):
    number = -1
  return _Compiled.apply(*tensors, flag if number >= 0 else None, settings, number)


# ---- for users ----

_blocks, _numbers = weakref.WeakValueDictionary(), itertools.count()  # torch.compile sees numbers and tensors alone
_exporting = getattr(torch.compiler, "is_exporting", lambda: False)


def _plain(fc, gn):
  """Whether these are a Linear and a GroupNorm as PyTorch makes them, in which nobody has a hook."""
  return (type(fc) is torch.nn.Linear and type(gn) is torch.nn.GroupNorm and not (
      fc._forward_hooks or fc._forward_pre_hooks or fc._backward_hooks or fc._backward_pre_hooks or gn._forward_hooks or
      gn._forward_pre_hooks or gn._backward_hooks or gn._backward_pre_hooks or hooks._has_any_global_hook() or
      "forward" in fc.__dict__ or "forward" in gn.__dict__))


class Block(torch.nn.Module):
  """The block, in place of Linear, GroupNorm, LeakyReLU and x + x: from x [N, in_features] to y [N, out_features], of x's
  type, or under autocast of GroupNorm's. `precision`, one of PRECISIONS, is what products of float32 read; a module of
  another type, and one under autocast, is computed in that type."""

  def __init__(self, in_features: int, out_features: int, num_groups: int, eps: float = 1e-5, negative_slope: float = 0.01,
               precision: str = PRECISIONS[0], device=None, dtype=None):
    super().__init__()
    if precision not in PRECISIONS:
      raise ValueError(f"no precision of float32's is called '{precision}'; {', '.join(PRECISIONS)} are")
    self.fc = torch.nn.Linear(in_features, out_features, device=device, dtype=dtype)
    self.gn = torch.nn.GroupNorm(num_groups, out_features, eps, device=device, dtype=dtype)
    self.negative_slope, self.precision = negative_slope, precision
    self._number_it()

  def __setstate__(self, state):
    super().__setstate__(state)
    self._number_it()

  def _number_it(self):
    """`_led` is its number once an optimizer of ours has charge of all its parameters, and `_flag` that one's; -1 before."""
    self._number, self._led, self._flag = next(_numbers), -1, None
    _blocks[self._number] = self

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    fc, gn = self._modules["fc"], self._modules["gn"]
    if _plain(fc, gn):
      weights, norms = fc._parameters, gn._parameters
      tensors = x, weights["weight"], weights["bias"], norms["weight"], norms["bias"]
      if torch.compiler.is_compiling():
        if torch.compiler.is_dynamo_compiling() and not _exporting():
          return _compiled(tensors, gn.num_groups, gn.eps, self.negative_slope, self.precision, self._led, self._flag)
      elif not _watched():
        plan, at, tensors = _planned(tensors, gn.num_groups, gn.eps, self.negative_slope, self.precision)
        if plan is not None:
          return _run(plan, at, tensors)
        _say(at)
    a = functional.leaky_relu(gn(fc(x)), self.negative_slope)
    return a + a

  def extra_repr(self) -> str:
    return f"negative_slope={self.negative_slope}, precision={self.precision}"


class ModelNew(Block):
  """KernelBench's level 2, problem 62, Matmul_GroupNorm_LeakyReLU_Sum."""

  def __init__(self, input_size, hidden_size, num_groups, eps=1e-5, negative_slope=0.01):
    super().__init__(input_size, hidden_size, num_groups, eps, negative_slope)
