"""A gradient that is computed when somebody asks for it, and what a Block's backward leaves for that.

The backward of a Block whose parameters are in the charge of an optimizer of ours leaves a Pair in place of the gradients.
`.grad` is then a Gradient. An optimizer of ours updates the parameter by the Pair, and no gradient is stored; whatever else
uses the Gradient computes it, once, and `.grad` is an ordinary tensor from then on."""
import collections
import weakref

import torch
from torch.utils import _foreach_utils

from .library import PLAIN

trained = weakref.WeakValueDictionary()  # the parameters in the charge of our optimizers (Trained), by id


class Gradient(torch.Tensor):
  """The gradient of the parameter in place `which` of the pair. The first operation that needs its values stores them."""
  values = pair = None

  def stored(self):
    """Its values. That somebody asked for them means that the weight may be written without a new version."""
    if self.values is None:
      self.own, self.values = self.pair.parts[self.which], self.pair.gradient(self.which)
      self.pair = None
      if self.which == 0 and (own := self.own()) is not None:
        own.asked += 1
      self.settle()
    return self.values

  def settle(self):
    """From now on the values are the parameter's gradient, once they are of its type, as after model.double()."""
    own, values = self.own(), self.values
    if own is not None:
      p = own.parameter
      if p.grad is self and p.dtype is values.dtype and p.shape == values.shape and p.device == values.device:
        p.grad = values
      own.forget()

  @classmethod
  def __torch_function__(cls, function, types, arguments=(), named=None):
    if function in _LOOKS:
      with torch._C.DisableTorchFunctionSubclass():
        return function(*arguments, **named or {})
    return cls.__torch_dispatch__(function, types, arguments, named)

  @classmethod
  def __torch_dispatch__(cls, operator, types, arguments=(), named=None):
    given = arguments
    with torch._C.DisableTorchFunctionSubclass():
      arguments, named = _values(arguments), {name: _values(of) for name, of in (named or {}).items()}
    found = operator(*arguments, **named)
    if operator == _SET:
      given[0].settle()
    return found


def _values(of):
  """An operator's argument, with the values in place of each Gradient in it."""
  kind = type(of)
  return of.stored() if kind is Gradient else kind([_values(part) for part in of]) if kind in (tuple, list) else of


_SET = torch.Tensor.data.__set__
# What can be said without the values.
_LOOKS = {getattr(torch.Tensor, name).__get__ for name in (
    "shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_cpu", "is_sparse", "is_sparse_csr", "is_meta", "is_mkldnn",
    "requires_grad", "grad_fn", "is_leaf")} | {getattr(torch.Tensor, name) for name in (
        "size", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "is_complex", "is_neg", "is_conj")}
# PyTorch gives lists of these kinds alone to its kernels for many tensors.
_foreach_utils._foreach_supported_types.append(Gradient)


class Pair:
  """What a backward leaves: dz and x, of which the weight's gradient is the product, and column sums behind dz, which are the
  vectors' gradients. `parts`: references to the Trained weight, bias, gamma and beta, None for those without a gradient here.
  They are weak, since a parameter's .grad, which leads here, is nothing that Python's garbage collector looks through."""
  __slots__ = "plan", "of", "x", "version", "copy", "dz", "parts", "made", "factor"
  checked = False

  def __init__(self, plan, of, x, dz, parts):
    self.plan, self.of, self.x, self.version, self.copy, self.dz = plan, of, x, x._version, None, dz
    self.parts, self.made, self.factor = [own and own.ref for own in parts], {}, None  # that the gradients were clipped by

  def rows(self):
    """Where x as taken or its planes are. The caller's x has to be as it was."""
    found = self.plan.kept.addresses((self.x,))
    if found is None or self.x.shape[0] != self.of.kept or self.x._version != self.version or (
        self.copy is not None and not torch.equal(self.x.view(torch.uint8), self.copy.view(torch.uint8))):
      raise RuntimeError(
          "minnow: the rows given to a Block have been modified by an inplace operation since its backward, and the weight's "
          "gradient, which was not asked for so far, is computed from them: give the Block a copy, x.clone(), or ask for "
          "weight.grad before")
    return found[0]

  def update(self, at, entries, fill):
    """The plan's update call with the pair, whose rows are `at` there. `entries`, by places: addresses of values, their 16
    bits, m, v and gradient, by which C updates or where it stores."""
    plan = self.plan
    call, of_x, of_weight, run, of, rule = plan.update
    with plan.context.lock:
      of_x.values, of_x.planes, of_x.ready = (None, at, 1) if plan.x_each else (at, None, 0)
      call.pair, call.grams, call.nonfinite = self.dz.data_ptr(), None, None
      for which, to in enumerate(of):
        to.values, to.narrow, to.m, to.v, to.gradient = entries.get(which, _NOTHING)
      fill(call, of_weight, rule)
      run(self.of)

  def gradient(self, which):
    """The one in this place, stored. The call that stores the weight's stores those of the vectors as well, for whoever asks for
    them in the same stream."""
    plan, where = self.plan, (self.plan.context.stream(), self.plan.context.capturing())
    found = self.made.pop((which, where), None)
    if found is None:
      vectors = [i for i in (1, 2, 3) if which == 0 and self.parts[i] is not None]
      made = {i: torch.empty(plan.gradients[i][1], dtype=plan.real, device=plan.device) for i in (which, *vectors)}
      at = {i: t.data_ptr() for i, t in made.items()}
      self.update(self.rows(), {i: (to, None, None, None, to) for i, to in at.items()}, lambda *call: _without_rule(*call, at[which]))
      found = made.pop(which)
      self.made = {(i, where): t for i, t in made.items()}
    return (found if self.factor is None else found * self.factor).to(plan.own)

  def square(self, which):
    """The square of the norm of the gradients in these places, without the weight's where that is faster."""
    plan, rows, vectors = self.plan, self.of.number, len(which) - 1
    if rows % 8 or 0 not in which or rows * (plan.inputs + plan.channels) > plan.inputs * plan.channels:
      return sum([norm.square() for norm in torch._foreach_norm([self.gradient(i) for i in which], 2, torch.float64)])
    grams = torch.empty(2 * rows * rows + vectors * plan.channels, dtype=plan.real, device=plan.device)

    def fill(call, of_weight, rule):
      _without_rule(call, of_weight, rule, grams.data_ptr())
      call.grams, of_weight.planes = grams.data_ptr(), grams.data_ptr() // 256 * 256  # which are not read

    self.update(self.rows(), {i: (grams.data_ptr(), *4 * (None,)) for i in which}, fill)
    of_weight, sums = grams[:2 * rows * rows].view(2, -1), grams[2 * rows * rows:]
    found = (torch.dot(*of_weight) + torch.dot(sums, sums)).clamp_(min=0)
    return found if self.factor is None else found * self.factor.square()

  def leave(self, parts, given=True):
    """Leaves the gradients of these, which are its parts, to somebody's asking. `given`: the rows may be the caller's."""
    device, make = self.plan.device, torch.Tensor._make_wrapper_subclass
    if given and device.type == "cpu" and not self.x.requires_grad:  # NumPy may write a model's inputs, which tells no version
      self.x = self.x.clone()
      self.version = self.x._version
    elif given and self.checked:
      self.copy = self.x.detach().clone()
    for which, own in enumerate(parts):
      if own is not None:
        dtype, shape = self.plan.gradients[which]
        own.parameter.grad = left = make(Gradient, shape, dtype=dtype, device=device)
        left.pair, left.which = self, which

  def gradients(self, parts):
    """Those of its parts, stored."""
    parts[0].forget()
    parts[0].asked += 1
    return [None if own is None else self.gradient(which) for which, own in enumerate(parts)]


def check(on):
  """Whether rows that are written without a new version, between a backward and the use of its gradients, are looked for, and
  are an error then: a copy of the rows of each Block is kept. For finding faults."""
  Pair.checked = on


_NOTHING = 5 * (None,)


def _without_rule(call, of_weight, rule, memory):
  rule.rate, rule.scale, rule.momentum, rule.kind = memory, None, 0, 0  # no rate is read
  of_weight.planes = None


STALE = -1, -1  # in place of a version and an address


class Trained:
  """A parameter in the charge of an optimizer of ours, with what is kept of it besides torch.optim's state: the planes that
  products read in place of floats, and the floats of a parameter of 16 bits."""

  def __init__(self, parameter, optimizer):
    self.parameter, self.ref = parameter, weakref.ref(self)
    self.optimizer = weakref.ref(optimizer)
    # By context: [memory, the version and address of the values whose planes are in it (None: there are none yet), the stream
    # and the plan that they were made by].
    self.planes = {}
    self.floats = self.floats_of = None
    self.step = self.rate = None  # its count of steps, which that _Rate counts
    self.plan = self.how = None  # of its Block's last forward
    self.asked = 0  # how often in a row its gradient was asked for, or stored at once

  def leaves(self, plan, weight, vectors, at):
    """The Trained ones of this weight and the vectors at these addresses if their gradients need not be stored, None for a
    frozen one; else None."""
    parts, optimizer = [self], self.optimizer()
    if weight.dtype is not plan.own or at[0] & 15 or not weight.is_leaf or not self.open(plan) or not optimizer._leaves(weight):
      return None
    for v, found in zip(vectors, at[1:]):
      own = None
      if v.requires_grad:
        own = trained.get(id(v))
        if (own is None or own.optimizer is not self.optimizer or own in parts or v.dtype is not plan.own or found & 15 or
            not v.is_leaf):
          return None
      parts.append(own)
    return parts

  def at_once(self):
    """Whether its next gradient is stored at once, which is cheaper where each step asks for it. Now and then it is left."""
    if self.asked < 3:
      return False
    self.asked += 1
    return self.asked % 64 != 0

  def backward(self, plan, dy, x, weight, gamma, beta, saved, parts, need_x):
    """dx, and the pair. `x` is x as taken, or its planes."""
    dx, dz, x = plan.leave(dy, x, weight, gamma, beta, saved, self, need_x, self.begin(plan))
    return dx, Pair(plan, plan.of(dy.shape[0]), x, dz, parts)

  def open(self, plan):
    """Prepares what a backward tells its optimizer by. An operator may not: it may be recorded in a CUDA graph."""
    optimizer = self.optimizer()
    return optimizer is not None and optimizer._open(plan.device)

  def begin(self, plan):
    """Where a backward of the weight's tells its optimizer of a value that is not finite; None without one there."""
    optimizer = self.optimizer()
    if optimizer is None or optimizer.flag is None or optimizer.flag.device != plan.device:
      return None
    return optimizer._begin(self, plan.context)

  def dropped(self):
    """Whether somebody dropped the gradient that a backward gave it."""
    return self.parameter.requires_grad and self.parameter.grad is None

  def hooks(self):
    """The dictionaries in which PyTorch keeps the parameter's hooks."""
    p = self.parameter
    if p._backward_hooks is None:
      p._backward_hooks = collections.OrderedDict()
    if p._post_accumulate_grad_hooks is None:
      p._post_accumulate_grad_hooks = collections.OrderedDict()
    return p._backward_hooks, p._post_accumulate_grad_hooks

  def recall(self, plan, training):
    """The weight's planes, and whether they are its values' still. The context's lock is held until they are made."""
    weight, capturing = self.parameter, plan.context.capturing()
    if capturing and not training:
      return None, False
    kept = self.planes.setdefault(plan.context, [None, None, None, plan])
    if kept[0] is None or kept[0].numel() != plan.weight_planes or kept[0].device != plan.device:
      kept[:] = plan.bytes(plan.weight_planes), None, None, plan
    now, stream = (weight._version, weight.data_ptr()), plan.context.stream()
    if type(weight.grad) in PLAIN:  # by which a fused optimizer may write the weight, which gives it no new version
      now = STALE
    ready = kept[1] == now is not STALE
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

  def refresh(self):
    """Makes the floats and the planes of a parameter anew if it was written since, in the memory that CUDA graphs have
    recorded. A forward makes the planes."""
    if self.floats is not None:
      self.master()
    for *_, plan in self.planes.values():
      x, _, *vectors = (torch.zeros([size or plan.least for size in shape], dtype=dtype, device=plan.device)
                        for dtype, shape in plan.arguments.kinds)
      tensors, at = plan.arguments.dense((x, self.parameter.detach(), *vectors))
      plan.forward(x, self.parameter, at, self, True, None)

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

  def updated(self, context):
    """Its values are new, the version with them, and the context's planes are theirs."""
    planes, now = self.planes.get(context), (self.parameter._version, self.parameter.data_ptr())
    if planes and planes[1]:
      planes[1] = now
    if self.floats_of:
      self.floats_of = now


def forget():
  """Lets go of the planes that are kept of weights in an optimizer's charge. A weight that is written between two steps is
  noticed by its `_version`. What leaves that as it was is not noticed, and needs this call: writing through `.data`, NumPy,
  DLPack or the storage, from another process, in a CUDA graph's replay, by torch._foreach_lerp_ on a GPU, or by a fused
  optimizer of torch.optim's whose gradient no Block computed."""
  for own in list(trained.values()):
    own.forget()
