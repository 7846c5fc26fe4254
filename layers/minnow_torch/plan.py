"""The block's calls for one set of sizes and types, for any number of rows."""
import collections
import ctypes
import functools
import weakref

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import library
from .library import Kinds, place

# Bytes of memory for planes besides the elements' own: MN_BLOCK_PLANES_MORE.
MORE = 32


# What depends on the number of rows: how much saved and kept have in their first dimension, what y, saved and the pair are made
# like, and how many bytes behind z mean and rstd are.
Rows = collections.namedtuple("Rows", "number saved kept like_y like_saved like_pair mean rstd")


class Plan:
  """The calls of one set of sizes, types and settings, filled but for addresses and rows. x is given in one type and taken in
  another, as under autocast; `out` is y's type. N rows, I inputs, C channels, G groups."""

  def __init__(self, device, inputs, channels, given, weight_type, groups, eps, slope, precision, out, taken):
    self.context, self.device, self.given, self.out = library.context(device, precision), device, given, out
    self.real, self.settings = self.context.real, (groups, eps, slope, precision, out, taken)
    self.inputs, self.channels, self.groups = inputs, channels, groups
    self.least = 2 if channels == groups else 1  # how many rows: PyTorch refuses groups of one value
    # A 16-bit type that the precision's products read minnow takes as it is.
    self.x_type, weight_type, y_type = (
        t if device.type == "cuda" and t.itemsize == 2 and library.OWN[t] == precision else self.real
        for t in (taken, weight_type, out))
    narrow, self.half_z = y_type.itemsize == 2, self.x_type.itemsize == 2
    self.own = y_type if narrow else self.real  # the type of the vectors, of dy and of the gradients
    self._calls(eps, slope, weight_type, 2 if narrow else self.half_z)  # enum mn_narrow
    # What C takes and gives, each as (dtype, shape).
    x, weight, vector, planes = (
        (self.x_type, (None, inputs)), (weight_type, (channels, inputs)), (self.own, (channels,)), (torch.uint8, (self.weight_planes,)))
    behind = (self.own, (None, channels)), vector, vector, (self.real, (None,))  # dy, gamma, beta, saved
    kept = (torch.uint8, (None,)) if self.x_each else x
    self.arguments, self.x, self.weight, self.planes, self.behind, self.kept, self.left = (
        Kinds(device, *kinds) for kinds in (
            ((given, x[1]), weight, vector, vector, vector), (x,), (weight,), (planes,), behind, (kept,), (*behind, kept)))
    self.gradients = (self.own, weight[1]), vector, vector, vector
    self.moment, self._entries, self.of = torch.float32 if narrow else self.real, {}, functools.lru_cache(128)(
        functools.partial(Plan._of, weakref.proxy(self)))  # no cycle, which would keep it
    self._one = [torch.empty(1, dtype=dtype, device=device) for dtype in (y_type, self.real, torch.uint8)]

  def _calls(self, eps, slope, weight_type, narrow):
    matrices = library.Matrix(narrow=self.half_z), library.Matrix(narrow=weight_type.itemsize == 2)
    calls = [library.new_call(0, self.inputs, self.channels, self.groups, eps, slope, *matrices, narrow=narrow) for _ in range(4)]
    runs = map(self._runner, calls, ("forward", "backward", "backward", "update"))
    self._forward, self._backward, self._leave, (update, *others) = ((call, call.x, call.weight, run) for call, run in zip(calls, runs))
    update.weight.narrow = update.narrow = 0
    self.update = update, *others, tuple(update.of), update.rule
    each = self.context.lib.mn_block_plane_bytes(self.context.handle, ctypes.addressof(update))
    self.x_each = each if self.x_type.itemsize > 2 else 0  # bytes of planes for each element of x, which are kept for it
    self.weight_planes = each * self.channels * self.inputs + MORE if each and weight_type.itemsize > 2 else 0

  def _of(self, rows):
    """The Rows for so many."""
    if rows < self.least:
      raise RuntimeError(f"minnow: {rows} rows of {self.channels} channels in {self.groups} groups are not served")
    mean, rstd, saved = (self.saved_count(rows, of) for of in range(3))
    with self.context.lock:
      self._forward[0].rows = rows
      pair = self.context.lib.mn_block_pair_bytes(self.context.handle, ctypes.addressof(self._forward[0]))
    like = (one.expand(shape) for one, shape in zip(self._one, ((rows, self.channels), (saved,), (pair,))))
    return Rows(rows, saved, self.x_bytes(rows) if self.x_each else rows, *like, mean * self.real.itemsize, rstd * self.real.itemsize)

  def x_bytes(self, rows):
    """What the planes of x take."""
    return self.x_each * self.inputs * rows + MORE

  def saved_count(self, rows, of=2):
    """How many reals z takes and the first `of` of mean and rstd behind it."""
    z = rows * self.channels
    return ((z + 1) // 2 if self.half_z else z) + rows * self.groups * of

  def _same(self, dy, saved, x, kept):
    """The Rows of dy, for which the others have to be made. `x`: None, or x as taken; its planes if `kept` says so."""
    of = self.of(dy.shape[0])
    if saved.shape[0] != of.saved or (x is not None and x.shape[0] != (of.kept if kept else of.number)):
      raise RuntimeError(f"minnow: what a backward is given was saved for another number of rows than dy's, {of.number}")
    return of

  def bytes(self, count):
    return torch.empty(count, dtype=torch.uint8, device=self.device)

  def entries(self, places, moments):
    """The kinds of the parameters in these places, each with as many moments."""
    found = self._entries.get((places, moments))
    if found is None:
      kinds = [kind for which in places for kind in (
          self.gradients[which], *moments * ((self.moment, self.gradients[which][1]),))]
      found = self._entries[places, moments] = Kinds(self.device, *kinds)
    return found

  def _runner(self, call, name):
    context, at = self.context, ctypes.addressof(call)
    entry, workspace = getattr(context.lib, f"mn_block_{name}"), context.lib.mn_block_workspace

    def run(of, own=None):
      call.rows = of.number
      try:
        context.run(entry, call, at, workspace(context.handle, at))
      except BaseException:
        if own is not None:
          own.forget()  # planes that may not have been written
        raise
    return run

  def forward(self, x, weight, at, own, save, keep):
    """y; x as taken; z with mean and rstd behind it if `save`, else None; and the planes of what is to be kept, "x" or
    "weight", None if there are none. `at`: addresses of the arguments; `own`: the weight's (Trained)."""
    if self.x_type is not self.given:
      x = x.to(self.x_type)
      at[0] = x.data_ptr()
    of, (call, of_x, of_weight, run) = self.of(x.shape[0]), self._forward
    y, saved, kept, planes, ready = torch.empty_like(of.like_y), None, None, None, False
    with self.context.lock:
      of_x.values, of_weight.values, call.bias, call.gamma, call.beta = at
      of_x.planes = call.z = call.mean = call.rstd = None
      if save:
        saved = torch.empty_like(of.like_saved)
        call.z = z = saved.data_ptr()
        call.mean, call.rstd = z + of.mean, z + of.rstd
      if keep == "x" and self.x_each:
        kept = self.bytes(of.kept)
        of_x.planes = kept.data_ptr()
      if self.weight_planes:
        if keep == "weight":
          kept = planes = self.bytes(self.weight_planes)
          planes[-MORE:].zero_()  # not all of which is written
        elif own is not None:
          planes, ready = own.recall(self, save)
      of_weight.planes, of_weight.ready, of_weight.updated, call.y = place(planes), ready, own is not None, y.data_ptr()
      run(of, own)
    return y if y.dtype is self.out else y.to(self.out), x, saved, kept

  def backward(self, dy, x, weight, gamma, beta, saved, planes, wanted, own):
    """The gradients of x, weight, bias, gamma and beta, None for those that are not `wanted`. `x` is x as taken, or planes that
    a forward kept; `planes`: the weight's, None for those of `own`, the weight's (Trained)."""
    given, at = self.behind.dense((dy, gamma, beta, saved))
    x, weight = x if wanted[1] else None, weight if wanted[0] else None
    kept = self.x_each and x is not None and x.dtype is torch.uint8
    factors = [kind.dense((t,)) if t is not None else (None, (None,))
               for kind, t in ((self.kept if kept else self.x, x), (self.weight, weight), (self.planes, planes))]
    of, (call, of_x, of_weight, run) = self._same(dy, saved, x, kept), self._backward
    made = [torch.empty(shape, dtype=dtype, device=self.device) if want else None
            for (dtype, shape), want in zip(((self.own, (of.number, self.inputs)), *self.gradients), wanted)]
    with self.context.lock:
      call.dy, call.gamma, call.beta, call.z = at
      call.mean, call.rstd = at[3] + of.mean, at[3] + of.rstd
      (found,), (of_weight.values,), (of_weight.planes,) = (found for _, found in factors)
      of_x.values, of_x.planes, of_x.ready = (None, found, 1) if kept else (found, None, 0)
      of_weight.ready, of_weight.updated = planes is not None, False
      if wanted[0] and planes is None and self.weight_planes and own is not None and self.context in own.planes:
        planes, of_weight.ready = own.recall(self, True)
        of_weight.planes, of_weight.updated = planes.data_ptr(), True
      call.dx, call.dweight, call.dbias, call.dgamma, call.dbeta = [place(t) for t in made]
      call.nonfinite = own and own.begin(self)
      run(of, own)
    if own is not None and wanted[1]:
      own.forget()  # another optimizer may write the weight
    return made

  def leave(self, dy, x, weight, gamma, beta, saved, own, need_x, flag):
    """dx, None if it is not needed; dz with column sums behind it for an update; and x, as taken or its planes, as the update
    takes it. `flag`: where it is told that a value is not finite, or None."""
    given, at = self.left.dense((dy, gamma, beta, saved, x))
    of, (call, _, of_weight, run) = self._same(dy, saved, x, True), self._leave
    dz, dx, planes, ready = torch.empty_like(of.like_pair), None, None, False
    with self.context.lock:
      call.dy, call.gamma, call.beta, call.z, _ = at
      call.mean, call.rstd = at[3] + of.mean, at[3] + of.rstd
      call.dx = None
      if need_x:
        (weight,), (found,) = self.weight.dense((weight,))
        dx = torch.empty((of.number, self.inputs), dtype=self.own, device=self.device)
        if self.weight_planes and own is not None:
          planes, ready = own.recall(self, True)
        call.dx = dx.data_ptr()
        of_weight.values, of_weight.planes, of_weight.ready, of_weight.updated = found, place(planes), ready, own is not None
      call.pair, call.nonfinite = dz.data_ptr(), flag
      run(of, own)
    return dx, dz, given[4]


plan = functools.lru_cache(128)(_disable_current_modes()(Plan))  # which is kept, and so never of fake tensors
