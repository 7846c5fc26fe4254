"""A gradient that is computed when somebody asks for it, and what a Block's backward leaves for that.

The backward of a Block whose parameters are in the charge of an optimizer of ours leaves a Pair in place of the gradients.
`.grad` is then a Gradient. An optimizer of ours updates the parameter by the Pair, and no gradient is stored; whatever else
uses the Gradient computes it, once, and `.grad` is an ordinary tensor from then on."""
import weakref

import torch
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_map_only

from . import library
from .plan import trained

STALE = -1, -1  # in place of a version and an address


class Gradient(torch.Tensor):
  """The gradient of the parameter in place `which` of the pair. The first operation that needs its values stores them."""

  @staticmethod
  def of(pair, which, parameter):
    self = torch.Tensor._make_wrapper_subclass(Gradient, parameter.shape, dtype=parameter.dtype, device=parameter.device)
    self.pair, self.which, self.values = pair, which, None
    return self

  def stored(self):
    """Its values. That somebody asked for them means that the weight may be written without a new version."""
    if self.values is None:
      own = self.pair.parts[self.which]
      self.values = self.pair.gradient(self.which, self.dtype)
      if own.parameter.grad is self and own.parameter.dtype is self.dtype and own.parameter.shape == self.shape:
        own.parameter.grad = self.values
      own.forget()
      self.pair = None
    return self.values

  @classmethod
  def __torch_function__(cls, function, types, arguments=(), named=None):
    if function in _LOOKS:
      with torch._C.DisableTorchFunctionSubclass():
        return function(*arguments)
    return function(*_plain(arguments), **_plain(named or {}))

  @classmethod
  def __torch_dispatch__(cls, operator, types, arguments=(), named=None):
    return operator(*_plain(arguments), **_plain(named or {}))


def _plain(arguments):
  with torch._C.DisableTorchFunctionSubclass():
    return tree_map_only(Gradient, Gradient.stored, arguments)


# What can be said without the values.
_LOOKS = {getattr(torch.Tensor, name).__get__ for name in (
    "shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_cpu", "is_sparse", "is_sparse_csr", "is_meta", "is_mkldnn",
    "requires_grad", "grad_fn", "is_leaf")} | {getattr(torch.Tensor, name) for name in (
        "size", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "is_complex", "is_neg", "is_conj")}
# PyTorch gives lists of these kinds alone to its kernels for many tensors.
_foreach_utils._foreach_supported_types.append(Gradient)


class Pair:
  """What a backward leaves: dz and x, of which the weight's gradient is the product, and column sums behind dz, which are the
  vectors' gradients. `parts` are the Trained ones in C's places, None for those without a gradient here."""
  __slots__ = "plan", "x", "version", "dz", "scale", "flag", "parts", "__weakref__"

  def __init__(self, plan, x, dz, scale, flag, parts):
    self.plan, self.x, self.version, self.dz, self.scale, self.flag, self.parts = plan, x, x._version, dz, scale, flag, parts

  def rows(self):
    """Where x or its planes are. The caller's x has to be as it was."""
    x, plan = self.x, self.plan
    found = library.addresses((x,), (plan.kept if plan.x_planes else plan.x,), plan.device)
    if found is None or x._version != self.version:
      raise RuntimeError(
          "minnow: the rows given to a Block have been modified by an inplace operation since its backward, and the weight's "
          "gradient, which was not asked for so far, is computed from them: give the Block a copy, x.clone(), or ask for "
          "weight.grad before")
    return found[0]

  def fill(self):
    """The plan's update call with the pair in it. The context's lock is held until it has run."""
    plan, at = self.plan, self.rows()
    call, of_x, of, rule = plan.update_call
    of_x.values, of_x.planes, of_x.ready = (None, at, 1) if plan.x_planes else (at, None, 0)
    call.pair = self.dz.data_ptr()
    call.dz_scale = None if self.scale is None else self.scale.data_ptr()
    call.weight.planes = call.nonfinite = call.grams = rule.scale = None
    return call, of, rule

  def gradient(self, which, dtype):
    """Stored, of the parameter in this place."""
    plan = self.plan
    _, shape = plan.gradients[which + 1]
    made = torch.empty(shape, dtype=plan.real, device=plan.device)
    with plan.context.lock:
      call, of, rule = self.fill()
      rule.rate, rule.momentum, rule.kind = made.data_ptr(), 0, 0  # none is read
      for i, entry in enumerate(of):
        entry.values = entry.gradient = made.data_ptr() if i == which else None
        entry.narrow = None
      plan.run("update", call)
    return made.to(dtype)


  def square(self, which):
    """The square of the norm of the gradients in these places, without the weight's; None if that would take longer."""
    plan, vectors = self.plan, [i for i in which if i]
    rows = plan.rows
    if rows % 8 or 0 not in which or rows * (plan.inputs + plan.channels) > plan.inputs * plan.channels:
      return None
    grams = torch.empty(2 * rows * rows + len(vectors) * plan.channels, dtype=plan.real, device=plan.device)
    with plan.context.lock:
      call, of, rule = self.fill()
      call.grams, rule.rate, rule.momentum, rule.kind = grams.data_ptr(), grams.data_ptr(), 0, 0  # no rate is read
      for i, entry in enumerate(of):
        entry.values, entry.narrow, entry.gradient = grams.data_ptr() if i in which else None, None, None
      call.weight.planes = grams.data_ptr() // 256 * 256  # nor these
      plan.run("update", call)
    of_weight, sums = grams[:2 * rows * rows].view(2, -1), grams[2 * rows * rows:]
    return (torch.dot(*of_weight) + torch.dot(sums, sums)).clamp_(min=0)

  def leave(self):
    """Leaves the gradients to somebody's asking."""
    for which, own in enumerate(self.parts):
      if own is not None:
        own.parameter.grad = Gradient.of(self, which, own.parameter)

  def gradients(self):
    """All that there are, stored."""
    self.parts[0].forget()
    return [None if own is None else self.gradient(which, own.parameter.dtype) for which, own in enumerate(self.parts)]


class Trained:
  """A parameter in the charge of an optimizer of ours, with what is kept of it besides torch.optim's state: the planes that
  products read, the floats of a parameter of 16 bits, and dz's scale from step to step."""

  def __init__(self, parameter, optimizer):
    self.parameter, self.optimizer = parameter, (lambda: None) if optimizer is None else weakref.ref(optimizer)
    self.context = self.flag = None  # of its last backward; and the optimizer's
    # By context: memory, the version and place of the values whose planes are in it (None: there are none yet), the stream
    # and the plan that they were made by.
    self.planes = {}
    self.floats = self.floats_of = None
    self.scale = self.scaled = None  # of dz; and in which context and Block it was written
    self.pair = lambda: None  # that which uses the scale
    self.blocks = {}  # the vectors beside a weight, by the number of a compiled Block

  # ---- a weight's part in forward and backward ----

  def recall(self, plan, training):
    """The weight's planes, and whether they are its values' still. The context's lock is held until they are made."""
    if not plan.weight_planes:
      return None, False
    weight, capturing = self.parameter, plan.context.capturing()
    if capturing and not training:
      return None, False
    kept = self.planes.setdefault(plan.context, [None, None, None, plan])
    if kept[0] is None or kept[0].numel() != plan.weight_planes or kept[0].device != plan.device:
      kept[:] = plan.bytes(plan.weight_planes), None, None, plan
    now, stream = (weight._version, weight.data_ptr()), plan.context.stream()
    # With a stored gradient a fused optimizer may have written the weight, which gives it no new version.
    ready = kept[1] == now and (weight.grad is None or type(weight.grad) is Gradient)
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
      kept[1] = kept[1] and STALE

  def leaves(self, plan, vectors, at):
    """The Trained ones of this weight and the vectors at these addresses if their gradients need not be stored, in C's
    places, None for a frozen one; else None."""
    parts, optimizer = [self], self.optimizer()
    for v in vectors:
      own = trained.get(id(v)) if v.requires_grad else None
      if v.requires_grad and (own is None or own.optimizer() is not optimizer):
        return None
      parts.append(own)
    for own, place in zip(parts, at):
      if own is not None and (place % 16 or own.parameter.dtype is not plan.own or not own.parameter.is_leaf):
        return None
    if optimizer is None or not optimizer._open(plan.device):
      return None
    self.flag = optimizer.flag
    return parts

  def forward(self, plan, at):
    """y, z with mean and rstd, and x's planes if products read some. `at` are the plan's `taken`."""
    x_planes = plan.bytes(plan.x_planes) if plan.x_planes else None
    with plan.context.lock:
      planes, ready = self.recall(plan, True)
      try:
        y, saved = plan.forward(at, True, x_planes, planes, ready, True)
      except BaseException:
        self.planes.pop(plan.context, None)
        raise
    return y, saved, x_planes

  def backward(self, plan, dy, x, weight, gamma, beta, saved, parts, need_x):
    """dx, and the pair. `x` is x as taken, or its planes."""
    (x,), _ = library.dense((x,), (plan.kept if plan.x_planes else plan.x,), plan.device)
    if self.pair() is not None or self.scale is None or self.scale.device != plan.device:
      self.scale, self.scaled = torch.zeros(4, device=plan.device), None  # a pair that is there keeps its own
    dz, scale, whose = plan.bytes(plan.pair_bytes), self.scale, (plan.context, gamma.data_ptr())
    with plan.context.lock:
      planes, ready = self.recall(plan, True) if need_x else (None, False)
      dx = plan.backward(dy, None, weight, gamma, beta, saved, planes, ready, (need_x, False, False, False, False), dz, scale,
                         self.scaled == whose, self.flag)[0]
    self.scaled, pair = whose, Pair(plan, x, dz, scale, self.flag, parts)
    self.pair = weakref.ref(pair)
    for own in parts:
      if own is not None:
        own.context = plan.context
    return dx, pair

  # ---- its other forms ----

  def refresh(self):
    """Makes the floats and the planes of a parameter anew if it was written since, in the memory that CUDA graphs have
    recorded. A forward makes the planes."""
    if self.floats is not None:
      self.master()
    for *_, plan in self.planes.values():
      x, vector = (torch.zeros(shape, dtype=dtype, device=plan.device) for dtype, shape in (plan.x, plan.behind[1]))
      _, at = library.dense((x, self.parameter.detach(), *3 * [vector]), (plan.x, *plan.arguments[1:]), plan.device)
      self.forward(plan, at)

  def master(self):
    """The floats that a parameter of 16 bits is rounded from, as the last step left them; its values, if it was written
    since. Of a matrix of bfloat16s these are the lower 16 bits alone: the upper ones are the parameter."""
    p, kept, state = self.parameter, self.floats, self.optimizer().state
    now, split = (p._version, p.data_ptr()), p.dtype is torch.bfloat16 and p.dim() == 2
    if self.floats_of != now:
      dtype, found = torch.int16 if split else torch.float32, False
      if kept is None and p in state:
        kept = state[p].get("master")
        found = kept is not None and (split or torch.equal(kept.to(p), p))
      if kept is None or kept.dtype is not dtype or kept.device != p.device or kept.shape != p.shape:
        kept, found = torch.empty_like(p, dtype=dtype), False
      if not found:
        kept.zero_() if split else kept.copy_(p.detach())
      self.floats, self.floats_of = kept, now
    return kept

  def updated(self):
    """Its values are new, the version with them, and the planes are theirs."""
    planes, now = self.planes.get(self.context), (self.parameter._version, self.parameter.data_ptr())
    if planes and planes[1]:
      planes[1] = now
    if self.floats_of:
      self.floats_of = now
