"""The block's calls for one set of sizes and types."""
import ctypes
import functools

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import library
from .library import Kinds, place

# Bytes of memory for planes besides the elements' own: MN_BLOCK_PLANES_MORE.
MORE = 32


class Plan:
  """The calls of one set of sizes, types and settings, filled but for addresses. x is given in one type and taken in
  another, as under autocast; `out` is y's type. N rows, I inputs, C channels, G groups."""

  def __init__(self, device, rows, inputs, channels, given, weight_type, groups, eps, slope, precision, out, taken):
    self.context, self.device, self.given, self.out = library.context(device, precision), device, given, out
    self.real, self.settings = self.context.real, (groups, eps, slope, precision, out, taken)
    self.rows, self.inputs, self.channels, self.groups = rows, inputs, channels, groups
    # A 16-bit type that the precision's products read minnow takes as it is.
    self.x_type, weight_type, y_type = (
        t if device.type == "cuda" and t.itemsize == 2 and library.OWN[t] == precision else self.real
        for t in (taken, weight_type, out))
    narrow, self.half_z = y_type.itemsize == 2, self.x_type.itemsize == 2
    self.own = y_type if narrow else self.real  # the type of the vectors, of dy and of the gradients
    self._calls(eps, slope, weight_type, 2 if narrow else self.half_z)  # enum mn_narrow
    # What C takes and gives, each as (dtype, shape).
    x, weight, vector, saved, planes, x_planes = (
        (dtype, torch.Size(shape)) for dtype, *shape in (
            (self.x_type, rows, inputs), (weight_type, channels, inputs), (self.own, channels),
            (self.real, self.saved_count(rows)), (torch.uint8, self.weight_planes), (torch.uint8, self.x_planes)))
    behind = (self.own, torch.Size((rows, channels))), vector, vector, saved  # dy, gamma, beta, saved
    self.arguments, self.x, self.weight, self.planes, self.behind, self.kept, self.left = (
        Kinds(device, *kinds) for kinds in (((given, x[1]), weight, vector, vector, vector), (x,), (weight,), (planes,), behind,
                                            (x_planes if self.x_planes else x,), (*behind, x_planes if self.x_planes else x)))
    self.gradients = (self.own, x[1]), (self.own, weight[1]), vector, vector, vector
    self.moment, self._entries = torch.float32 if narrow else self.real, {}
    one = torch.empty(1, dtype=y_type, device=device)
    self._like_y, self._like_saved = one.expand(rows, channels), one.to(self.real).expand(saved[1])  # for empty_like
    self._like_pair = one.to(torch.uint8).expand(self.pair_bytes)
    self._mean, self._rstd = (self.saved_count(rows, of) * self.real.itemsize for of in range(2))

  def _calls(self, eps, slope, weight_type, narrow):
    sizes, lib, handle = (self.rows, self.inputs, self.channels, self.groups), self.context.lib, self.context.handle
    matrices = library.Matrix(narrow=self.half_z), library.Matrix(narrow=weight_type.itemsize == 2)
    calls = [library.new_call(*sizes, eps, slope, *matrices, narrow=narrow) for _ in range(4)]
    runs = map(self._runner, calls, ("forward", "backward", "backward", "update"))
    self._forward, self._backward, self._leave, (update, *others) = ((call, call.x, call.weight, run) for call, run in zip(calls, runs))
    update.weight.narrow = update.narrow = 0
    self.update, at = (update, *others, tuple(update.of), update.rule), ctypes.addressof(calls[0])
    each, self.pair_bytes = lib.mn_block_plane_bytes(handle, at), lib.mn_block_pair_bytes(handle, at)
    self.x_planes, self.weight_planes = (
        each * count + MORE if each and t.itemsize > 2 else 0
        for t, count in ((self.x_type, self.rows * self.inputs), (weight_type, self.channels * self.inputs)))
    self.x_each = each if self.x_planes else self.x_type.itemsize

  def saved_count(self, rows, of=2):
    """How many reals z takes and the first `of` of mean and rstd behind it."""
    z = rows * self.channels
    return ((z + 1) // 2 if self.half_z else z) + rows * self.groups * of

  def bytes(self, count):
    return torch.empty(count, dtype=torch.uint8, device=self.device)

  def entries(self, places, moments):
    """The kinds of the parameters in these places, each with as many moments."""
    found = self._entries.get((places, moments))
    if found is None:
      kinds = [kind for which in places for kind in (
          self.gradients[which + 1], *moments * ((self.moment, self.gradients[which + 1][1]),))]
      found = self._entries[places, moments] = Kinds(self.device, *kinds)
    return found

  def _runner(self, call, name):
    entry, at, sizes, context = getattr(self.context.lib, f"mn_block_{name}"), ctypes.addressof(call), {}, self.context

    def run(*variant):
      """`variant` is all that the size of the call's workspace depends on besides the plan: which pointers it has."""
      size = sizes.get(variant)
      if size is None:
        size = sizes[variant] = context.lib.mn_block_workspace(context.handle, at)
      context.run(entry, call, at, size)
    return run

  def forward(self, x, weight, at, own, save, keep):
    """y; x as taken; z with mean and rstd behind it if `save`, else None; and the planes of what is to be kept, "x" or
    "weight", None if there are none. `at`: addresses of the arguments; `own`: the weight's (Trained)."""
    if self.x_type is not self.given:
      x = x.to(self.x_type)
      at[0] = x.data_ptr()
    y, saved, kept, planes, ready = torch.empty_like(self._like_y), None, None, None, False
    call, of_x, of_weight, run = self._forward
    with self.context.lock:
      of_x.values, of_weight.values, call.bias, call.gamma, call.beta = at
      of_x.planes = call.z = call.mean = call.rstd = None
      if save:
        saved = torch.empty_like(self._like_saved)
        call.z = z = saved.data_ptr()
        call.mean, call.rstd = z + self._mean, z + self._rstd
      if keep == "x" and self.x_planes:
        kept = self.bytes(self.x_planes)
        of_x.planes = kept.data_ptr()
      if self.weight_planes:
        if keep == "weight":
          kept = planes = self.bytes(self.weight_planes)
          planes[-MORE:].zero_()  # not all of which is written
        elif own is not None:
          planes, ready = own.recall(self, save)
      of_weight.planes, of_weight.ready, of_weight.updated, call.y = place(planes), ready, own is not None, y.data_ptr()
      try:
        run(save, kept is None, planes is None, ready)
      except BaseException:
        if own is not None:
          own.forget()  # planes that may not have been written
        raise
    return y if y.dtype is self.out else y.to(self.out), x, saved, kept

  def backward(self, dy, x, weight, gamma, beta, saved, planes, wanted, own):
    """The gradients of x, weight, bias, gamma and beta, None for those that are not `wanted`. `own`: the weight's (Trained)."""
    made = [torch.empty(shape, dtype=dtype, device=self.device) if want else None
            for (dtype, shape), want in zip(self.gradients, wanted)]
    call, of_x, of_weight, run = self._backward
    given, at = self.behind.dense((dy, gamma, beta, saved))
    factors = [kind.dense((t,)) if t is not None else (None, (None,))
               for kind, t in ((self.x, x if wanted[1] else None), (self.weight, weight if wanted[0] else None), (self.planes, planes))]
    with self.context.lock:
      call.dy, call.gamma, call.beta, call.z = at
      call.mean, call.rstd = at[3] + self._mean, at[3] + self._rstd
      (of_x.values,), (of_weight.values,), (of_weight.planes,) = (found for _, found in factors)
      of_weight.ready = planes is not None
      call.dx, call.dweight, call.dbias, call.dgamma, call.dbeta = [place(t) for t in made]
      call.nonfinite = own and own.begin(self)
      run(*wanted, planes is None)
    return made

  def leave(self, dy, x, weight, gamma, beta, saved, own, need_x, flag):
    """dx, None if it is not needed; dz with column sums behind it for an update; and x, as taken or its planes, as the update
    takes it. `flag`: where it is told that a value is not finite, or None."""
    dz, dx, planes, ready, (call, _, of_weight, run) = torch.empty_like(self._like_pair), None, None, False, self._leave
    given, at = self.left.dense((dy, gamma, beta, saved, x))
    with self.context.lock:
      call.dy, call.gamma, call.beta, call.z, _ = at
      call.mean, call.rstd = at[3] + self._mean, at[3] + self._rstd
      call.dx = None
      if need_x:
        (dtype, shape), ((weight,), (found,)) = self.gradients[0], self.weight.dense((weight,))
        dx = torch.empty(shape, dtype=dtype, device=self.device)
        if self.weight_planes and own is not None:
          planes, ready = own.recall(self, True)
        call.dx = dx.data_ptr()
        of_weight.values, of_weight.planes, of_weight.ready, of_weight.updated = found, place(planes), ready, own is not None
      call.pair, call.nonfinite = dz.data_ptr(), flag
      run(need_x, planes is None, ready)
    return dx, dz, given[4]


plan = functools.lru_cache(128)(_disable_current_modes()(Plan))  # which is kept, and so never of fake tensors
