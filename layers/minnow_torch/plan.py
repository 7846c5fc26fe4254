"""The block's calls for one set of sizes and types, and the planes of weights: what products read in place of floats."""
import functools
import threading
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import library

# Bytes of memory for planes besides the elements' own: MN_BLOCK_PLANES_MORE.
MORE = 32


def place(t):
  """Where memory of our own is; None for none."""
  return None if t is None else t.data_ptr()


def is_narrow(device, dtype, precision):
  """Whether this is the 16-bit type that the precision's products read: then minnow takes tensors as they are."""
  return device.type == "cuda" and dtype.itemsize == 2 and library.OWN.get(dtype) == precision


class Plan:
  """The calls of one set of sizes, types and settings, filled but for addresses. x is given in one type and taken in
  another, as under autocast; `out` is y's type. N rows, I inputs, C channels, G groups."""

  def __init__(self, device, rows, inputs, channels, given, weight_type, groups, eps, slope, precision, out, taken):
    self.context = context = library.context(device, precision)
    lib, self.device, self.real, self.out, self.given = context.lib, device, context.real, out, given
    self.settings = groups, eps, slope, precision, out, taken
    self.rows, self.inputs, self.channels, self.groups = rows, inputs, channels, groups
    self.x_type, self.weight_type, y_type = (
        t if is_narrow(device, t, precision) else self.real for t in (taken, weight_type, out))
    narrow, self.half_z = y_type.itemsize == 2, self.x_type.itemsize == 2
    self.own = y_type if narrow else self.real  # the type of the vectors, of dy and of the gradients
    calls = [library.Call(rows, inputs, channels, groups, eps, slope, library.Matrix(narrow=self.half_z),
                  library.Matrix(narrow=self.weight_type.itemsize == 2)) for _ in range(2)]
    calls[0].narrow = calls[1].narrow = 2 if narrow else self.half_z  # enum mn_narrow
    self.forward_call, self.backward_call = ((call, call.x, call.weight) for call in calls)
    update = library.Call(rows, inputs, channels, groups, x=calls[0].x)
    self.update_call = update, update.x, tuple(update.of), update.rule
    self._entries = {name: getattr(lib, f"mn_block_{name}") for name in ("forward", "backward", "update")}
    self._places, self._workspace = {id(call): library.ctypes.addressof(call) for call in (*calls, update)}, {}
    each = lib.mn_block_plane_bytes(context.handle, self._places[id(calls[0])])
    self.x_planes, self.weight_planes = (
        each * count + MORE if each and t.itemsize > 2 else 0
        for t, count in ((self.x_type, rows * inputs), (self.weight_type, channels * inputs)))
    self.x_each = each if self.x_planes else self.x_type.itemsize
    self.pair_bytes = lib.mn_block_pair_bytes(context.handle, self._places[id(calls[0])])
    self._kinds(y_type)

  def _kinds(self, y_type):
    """What C takes and gives, each as (dtype, shape)."""
    rows, inputs, channels, size = self.rows, self.inputs, self.channels, torch.Size
    self.x, self.weight, vector = (self.x_type, size((rows, inputs))), (self.weight_type, size((channels, inputs))), (
        self.own, size((channels,)))
    self.arguments = (self.given, self.x[1]), self.weight, vector, vector, vector
    self.saved = self.real, size((self.saved_count(rows),))
    self.planes, self.kept = ((torch.uint8, size((n,))) for n in (self.weight_planes, self.x_planes))
    self.behind = (self.own, size((rows, channels))), vector, vector, self.saved  # dy, gamma, beta, saved
    self.gradients = (self.own, self.x[1]), (self.own, self.weight[1]), vector, vector, vector
    one = torch.empty(1, dtype=y_type, device=self.device)
    self._like_y, self._like_saved = one.expand(rows, channels), one.to(self.real).expand(self.saved[1])  # for empty_like
    self._mean, self._rstd = (self.saved_count(rows, of) * self.real.itemsize for of in range(2))

  def bytes(self, count):
    return torch.empty(count, dtype=torch.uint8, device=self.device)

  def saved_count(self, rows, of=2):
    """How many reals z takes and the first `of` of mean and rstd behind it."""
    z = rows * self.channels
    return ((z + 1) // 2 if self.half_z else z) + rows * self.groups * of

  def run(self, name, call, *variant):
    """`variant` is all that the size of the call's workspace depends on besides the plan: which pointers it has."""
    at, size = self._places[id(call)], self._workspace.get((name, variant))
    if size is None:
      size = self._workspace[name, variant] = self.context.lib.mn_block_workspace(self.context.handle, at)
    self.context.run(self._entries[name], call, at, size)

  def forward(self, at, save, x_planes, planes, ready, updated):
    """y, and z with mean and rstd behind it if `save`; else None. `at`: addresses of x [N, I], weight [C, I], bias, gamma,
    beta [C]. Planes that are not ready are written, if they are not None. The context's lock is held."""
    y, saved = torch.empty_like(self._like_y), torch.empty_like(self._like_saved) if save else None
    call, of_x, of_weight = self.forward_call
    of_x.values, of_weight.values, call.bias, call.gamma, call.beta = at
    of_x.planes, of_weight.planes = place(x_planes), place(planes)
    of_weight.ready, of_weight.updated, call.y = ready, updated, y.data_ptr()
    self._place(call, saved)
    self.run("forward", call, save, x_planes is None, planes is None, ready)
    return y, saved

  def _place(self, call, saved):
    if saved is None:
      call.z = call.mean = call.rstd = None
    else:
      call.z = at = saved.data_ptr()
      call.mean, call.rstd = at + self._mean, at + self._rstd

  def compute(self, tensors, at, save, keep):
    """y in its type, saved, and a backward's planes of the weight if `keep`; None for what is not wanted. Tensors and
    addresses are those of x, weight, bias, gamma and beta."""
    weight = tensors[1]
    planes = self.bytes(self.weight_planes) if keep and self.weight_planes else None
    if planes is not None:
      planes[-MORE:].zero_()  # not all of which is written
    own = None if save else trained.get(id(weight))
    x, at = self.taken(tensors[0], at)
    with self.context.lock:
      try:
        kept, ready = (own.recall(self, False) if own is not None else recall(weight, self, save)) if self.weight_planes else (
            None, False)
        y, saved = self.forward(at, save, None, kept if planes is None else planes, ready, own is not None)
      except BaseException:
        forget()  # planes that may not have been written
        raise
    return y if y.dtype is self.out else y.to(self.out), saved, planes

  def taken(self, x, at):
    """x in the type in which products take it, and the addresses with its own in place of the given one's."""
    if self.x_type is not self.given:
      x = x.to(self.x_type)
      at = [x.data_ptr(), *at[1:]]
    return x, at

  def backward(self, dy, x, weight, gamma, beta, saved, planes, ready, wanted, dz=None, scale=None, scaled=False, flag=None):
    """The gradients of x, weight, bias, gamma and beta, None for those that are not `wanted`; and dz for an update, with its
    scale, `scaled` if an earlier backward has written that."""
    made = [torch.empty(size, dtype=dtype, device=self.device) if want else None
            for (dtype, size), want in zip(self.gradients, wanted)]
    given, (dy_at, gamma_at, beta_at, saved_at) = library.dense((dy, gamma, beta, saved), self.behind, self.device)
    call, of_x, of_weight = self.backward_call
    needed, places = library.dense(
        (x,) * wanted[1] + (weight,) * wanted[0], (self.x,) * wanted[1] + (self.weight,) * wanted[0], self.device)
    with self.context.lock:
      call.dy, call.gamma, call.beta, call.z, call.mean, call.rstd = (
          dy_at, gamma_at, beta_at, saved_at, saved_at + self._mean, saved_at + self._rstd)
      of_x.values, of_weight.values = places[0] if wanted[1] else None, places[-1] if wanted[0] else None
      of_weight.planes, of_weight.ready, of_weight.updated = place(planes), ready, dz is not None
      call.dx, call.dweight, call.dbias, call.dgamma, call.dbeta = [place(t) for t in made]
      call.pair, call.dz_scale, call.dz_scale_ready, call.nonfinite = place(dz), place(scale), scaled, place(flag)
      self.run("backward", call, *wanted, planes is None, ready, dz is None, scale is None, scaled)
    return made


plan = functools.lru_cache(4096)(Plan)


# ---- the planes of a weight that no optimizer of ours trains ----

_kept, _guard = {}, threading.RLock()  # those made for forwards without gradients
trained = weakref.WeakValueDictionary()  # the parameters in the charge of our optimizers, by id (gradient.py)


def forget():
  """Lets go of what is kept of weights between forwards without gradients. A weight that is written between two of them
  is noticed by its `_version`. What leaves that as it was is not noticed, and needs this call: writing through `.data`,
  NumPy, DLPack or the storage, from another process, in a CUDA graph's replay, or by a fused optimizer of torch.optim's
  whose gradient no Block computed."""
  with _guard:
    _kept.clear()
    for own in list(trained.values()):
      own.forget()


def recall(weight, plan, training):
  """The planes that an earlier forward in this stream made of the weight, or memory for them, and whether they are the
  weight's still. Of a weight in training nothing is kept here: fused optimizers and CUDA graphs write it without a new
  version."""
  storage, stream = weight.untyped_storage(), None
  key = plan.context, storage._cdata, weight.storage_offset(), weight.shape, weight.stride(), weight.dtype
  if weight.is_cuda:
    stream = torch.cuda.current_stream(weight.device)
    training |= plan.context.capturing()
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
