"""torch.optim's SGD and AdamW for models with Blocks. They update a Block's parameters in the product that computes the
gradient, which is then not stored; all other parameters, and whatever else is asked for, is torch.optim's."""
import copy
import ctypes
import inspect
import warnings

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from . import library
from .block import _TAGS, _blocks
from .gradient import Gradient, Trained
from .plan import place, trained


class _Rate:
  """What the device keeps of the parameters of one group that have taken equally many steps: the rate and, for AdamW, their
  number; and the call that counts them."""

  def __init__(self, optimizer, steps):
    device = optimizer.flag.device
    self.lr = self.betas = None  # as last written
    self.memory = torch.ones(3, dtype=torch.float64, device=device)
    self.steps = None if steps is None else torch.full((), steps, dtype=torch.float32, device=device)
    self.begun = bool(steps)  # whether there was any step
    self.members = 0  # how many parameters took the last one
    self.call = library.Call(nonfinite=optimizer.flag.data_ptr(), counts=library.Counts(
        place(self.steps), self.memory.data_ptr(), 0, 0, optimizer._skipped.data_ptr(), optimizer._told.data_ptr()))

  def count(self, context, ended, clears):
    self.call.counts.ended, self.call.counts.clears, self.call.stream = ended, clears, context.stream()
    context.must(context.lib.mn_block_count(context.handle, ctypes.addressof(self.call)))


class _Optimizer:
  """What SGD and AdamW share. A step in which a Block met a value that is not finite changes nothing: `skipped` counts
  these. clip_grad_norm=M does what torch.nn.utils.clip_grad_norm_ does before a step, for all parameters together, without
  gradients where that is faster; `grad_norm` is then the norm of the last step's gradients, a tensor on the device.

  In a CUDA graph a rate that changes has to be a tensor on the device, as for torch.optim; and replays do not notice that
  parameters were written since the last step: refresh() does."""
  grad_norm = None

  def __init__(self, *arguments, clip_grad_norm=None, **named):
    if clip_grad_norm is not None and not clip_grad_norm > 0:
      raise ValueError(f"minnow: clip_grad_norm={clip_grad_norm} is no norm to clip to: a number above 0, or None")
    self.clip_grad_norm = clip_grad_norm
    super().__init__(*arguments, **named)

  def __getstate__(self):
    return {**super().__getstate__(), "clip_grad_norm": self.clip_grad_norm}

  def add_param_group(self, group):
    super().add_param_group(group)
    self._take()

  def __setstate__(self, state):
    super().__setstate__(state)
    self._rates = {}
    self._take()

  def load_state_dict(self, state_dict):
    given = copy.deepcopy(state_dict)  # with which it would share tensors
    super().load_state_dict(given)
    for before, group in zip(given["param_groups"], self.param_groups):
      for number, p in zip(before["params"], group["params"]):
        state = given["state"].get(number, {})
        if "master" in state:  # whose moments are floats, and it would round them
          self.state[p].update({name: t.to(p.device) for name, t in state.items() if name != "step"})

  def _take(self):
    """Takes charge of the parameters, from the next forward on."""
    own = self.__dict__.setdefault("_own", {})
    self.__dict__.setdefault("flag", None)
    self.__dict__.setdefault("_done", ())
    for group in self.param_groups:
      for p in group["params"]:
        one = own.get(id(p)) or Trained(p, self)
        own[id(p)] = trained[id(p)] = one
        one.floats, one.floats_of = None, None
    for block in list(_blocks.values()):
      parts = [trained.get(id(getattr(getattr(block, part, None), name, None)))
               for part, name in (("fc", "weight"), ("fc", "bias"), ("gn", "weight"), ("gn", "bias"))]
      if all([part is not None and part.optimizer() is self for part in parts]):
        device = parts[0].parameter.device
        if (_TAGS or device.type == "cpu") and device.type in ("cpu", "cuda") and self._open(device):
          block._led, block._flag = block._number, self.flag

  def _open(self, device):
    """The device's memory that step() reads and writes. Whether this is the device of all."""
    if self.flag is None:
      self.flag, self._rates = torch.zeros(1, dtype=torch.int32, device=device), {}
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
    with torch.no_grad():
      factor = None if self.clip_grad_norm is None else self._norm()
      pairs, stored, others = self._sort()
      rates, done = {}, []
      for (_, rate), (group, parts, _) in pairs.items():
        self._take_part(rates, rate, group, [own for own in parts if own is not None], done)
      for rate, group, own, *_ in stored:
        self._take_part(rates, rate, group, [own], done)
      scale = self._scaled(factor) if done else None
      for (pair, rate), (group, parts, entries) in pairs.items():
        self._follow_pair(pair, rate, group, entries, scale)
      for item in stored:
        self._follow(*item, scale)
      if others:
        self._others(others, done, factor)
      if done:
        self._end(rates, done)
    return loss

  # ---- who updates what ----

  def _sort(self):
    """The parameters that have a gradient, by who updates them: C by what a backward left, {(pair, rate): (group, parts,
    entries)}; C by a stored gradient, [(rate, group, own, entry, gradient)]; torch.optim, [parameter]."""
    pairs, stored, others, flag = {}, [], [], self.flag
    for number, group in enumerate(self.param_groups):
      serves = self._serves(group)
      for p in group["params"]:
        grad = p.grad
        if grad is None:
          continue
        own = self._own.get(id(p))
        if not serves or own is None or own.context is None:
          others.append(p)
          continue
        pair = grad.pair if type(grad) is Gradient else None
        left = pair is not None and pair.parts[grad.which] is own and pair.flag is flag
        kind = pair.plan.gradients[grad.which + 1] if left else (p.dtype, p.shape)
        if not left:
          grad = grad.stored() if type(grad) is Gradient else grad
        entry = self._entry(own, group, kind)
        if entry is None or (not left and library.addresses((grad,), (kind,), p.device) is None):
          others.append(p)
          continue
        rate = self._rate(number, p)
        if not left:
          stored.append((rate, group, own, entry, grad))
          continue
        found = pairs.get((pair, rate))
        if found is None:
          pair.rows()  # before anything is changed
          found = pairs[pair, rate] = group, [None] * 4, [None] * 4
        found[1][grad.which], found[2][grad.which] = own, entry
    return pairs, stored, others

  def _entry(self, own, group, kind):
    """What C gets of a parameter of this (dtype, shape): where its values, its own 16 bits and its moments are; None if
    torch.optim has to update it."""
    p, (dtype, shape), names = own.parameter, kind, self._moments(group)
    narrow, tensors, state = dtype.itemsize == 2, [p], self.state[p] if names or dtype.itemsize == 2 else {}
    real = torch.float32 if narrow else dtype
    if library.addresses(tensors, (kind,), own.context.device) is None or (narrow and own.context.gpu is None):
      return None
    fresh = self.COUNTS and not state
    for name in names:
      moment = state.get(name)
      if moment is None:
        if self.COUNTS and not fresh:
          return None  # torch.optim says that it is gone
        moment = state[name] = torch.zeros(shape, dtype=real, device=p.device)
      elif narrow and moment.dtype is dtype and "master" not in state:
        moment = state[name] = moment.float()
      tensors.append(moment)
    at = library.addresses(tensors, (kind, *len(names) * ((real, shape),)), p.device)
    if at is None or any([place % 16 for place in at]):
      return None
    at += (3 - len(at)) * [None]
    if narrow:
      state["master"] = floats = own.master()
      return floats.data_ptr(), *at
    return at[0], None, at[1], at[2]

  def _rate(self, number, p):
    """The _Rate of the group's parameters that have taken as many steps as this one."""
    rates = self._rates.setdefault(number, [])
    if not self.COUNTS:
      if not rates:
        rates.append(_Rate(self, None))
      return rates[0]
    state = self.state[p]
    step = state.get("step")
    for rate in rates:
      if rate.steps is step:
        return rate
    steps = 0.0 if step is None else float(step)
    for rate in rates:
      if float(rate.steps) == steps if rate.begun else steps == 0:
        break
    else:
      rates.append(rate := _Rate(self, steps))
    state["step"] = rate.steps
    return rate

  # ---- what C updates ----

  def _take_part(self, rates, rate, group, parts, done):
    """Writes to the device what has changed of a rate since the last step. A tensor's value may have."""
    done += parts
    if rate in rates:
      rates[rate] += len(parts)
      return
    rates[rate] = len(parts)
    lr, betas = group["lr"], group.get("betas")
    if rate.lr is None or torch.is_tensor(lr) or rate.lr != lr:
      rate.lr = lr
      rate.memory[0].fill_(lr)
    if rate.betas != betas:
      rate.betas = rate.call.counts.beta1, rate.call.counts.beta2 = betas
      rate.count(parts[0].context, False, False)
    rate.begun = True

  def _scaled(self, factor):
    """Where the factor on the gradients is, by clipping and by a GradScaler, whose flag becomes the step's; None for 1."""
    scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
    if found is not None:
      self.flag.view(torch.float32).add_(found.to(self.flag.device)).clamp_(max=1)
    if factor is None and scale is None:
      return None
    self._scale.fill_(1.0 if factor is None else factor)
    if scale is not None:
      self._scale.div_(scale.to(self.flag.device))
    if factor is not None:
      self.flag.view(torch.float32).logical_or_(self.grad_norm * 0)  # NaN, which counts as true, or 0
    return self._scale.data_ptr()

  def _follow_pair(self, pair, rate, group, entries, scale):
    plan = pair.plan
    with plan.context.lock:
      call, of, rule = pair.fill()
      for to, entry in zip(of, entries):
        to.values, to.narrow, to.m, to.v = entry or (None, None, None, None)
        to.gradient = None
      planes = pair.parts[0].planes.get(plan.context)
      call.weight.planes = planes and planes[0].data_ptr()
      self._fill(call, rule, rate, group, scale)
      plan.run("update", call)

  def _follow(self, rate, group, own, entry, grad, scale):
    """By a stored gradient."""
    context, shape = own.context, own.parameter.shape
    matrix = len(shape) == 2
    call = library.Call(1, *(shape[::-1] if matrix else (1, *shape)), 1)
    to, grad = call.of[not matrix], grad.float() if grad.dtype.itemsize == 2 else grad
    to.values, to.narrow, to.m, to.v = entry
    to.gradient = grad.data_ptr()
    planes = own.planes.get(context)
    call.weight.planes = planes and planes[0].data_ptr()
    self._fill(call, call.rule, rate, group, scale)
    at = ctypes.addressof(call)
    with context.lock:
      context.run(context.lib.mn_block_update, call, at, context.lib.mn_block_workspace(context.handle, at))

  def _fill(self, call, rule, rate, group, scale):
    call.nonfinite, rule.rate, rule.scale = self.flag.data_ptr(), rate.memory.data_ptr(), scale
    rule.weight_decay = group["weight_decay"]
    self._rule(rule, group)

  def _end(self, rates, done):
    """Counts the step. That it was skipped is known here once the device is done with it: in a later step."""
    torch._C._increment_version([own.parameter for own in done])
    for own in done:
      own.updated()
    last = next(reversed(rates))
    for rate, members in rates.items():
      if self.COUNTS and rate.members != members:  # those that do not take this step count their own from now on
        took = {id(own.parameter) for own in done}
        for p, state in self.state.items():
          if state.get("step") is rate.steps and id(p) not in took:
            state["step"] = rate.steps.clone()
        rate.members = members
      rate.count(done[0].context, True, rate is last)
    skipped = ctypes.c_int64.from_address(self._told.data_ptr()).value
    if skipped > self._seen:
      for own in self._own.values():  # the scales may have been too small for what they are to hold
        own.forget()
        own.scaled = None
      if not self._seen:
        warnings.warn("minnow: a step was skipped, since a value was not finite; the optimizer's `skipped` counts such steps",
                      stacklevel=4)
      self._seen = skipped

  # ---- what torch.optim updates ----

  def _others(self, others, done, factor):
    """By its fused kernels where they serve, which write parameters without a new version and know how to skip a step; a step
    that others have to skip waits for the device."""
    shared = {id(rate.steps) for rates in self._rates.values() for rate in rates} if self.COUNTS and self.flag is not None else ()
    for p in others:
      state, own = self.state.get(p), self._own[id(p)]
      own.forget()
      if state and state.pop("master", None) is not None:
        own.floats = own.floats_of = None
        state.update({name: t.to(p.dtype) for name, t in state.items() if name != "step"})
      if state and id(state.get("step")) in shared:
        state["step"] = state["step"].clone()
    if factor is not None:
      torch._foreach_mul_([p.grad for p in others], factor)
    scale, found = self.__dict__.get("grad_scale"), self.__dict__.get("found_inf")
    skip, before = self.flag.view(torch.float32)[0] if done else found, [group["fused"] for group in self.param_groups]
    names, fused = {id(p) for p in others}, []
    for group in self.param_groups:
      params = [p for p in group["params"] if id(p) in names]
      fused.append(self._fusable(group) and all([self._fits(p, group) for p in params]))
    whole = all(fused) and not (done and skip.device.type == "cpu")
    if not whole and skip is not None and skip.item():
      return
    if not whole and scale is not None:
      torch._foreach_div_([p.grad for p in others], scale)
    self._done = {id(own.parameter) for own in done}
    try:
      self.grad_scale, self.found_inf = (scale, skip) if whole else (None, None)
      for group, serves in zip(self.param_groups, fused):
        group["fused"] = group["fused"] or serves
      with torch.set_grad_enabled(self.defaults["differentiable"]):
        self._optim_step()
    finally:
      self._done = ()
      for group, was in zip(self.param_groups, before):
        group["fused"] = was
      self.__dict__.update(grad_scale=scale, found_inf=found)

  def _init_group(self, group, *lists):
    if self._done:
      group = {**group, "params": [p for p in group["params"] if id(p) not in self._done]}
    return super()._init_group(group, *lists)

  def _fusable(self, group):
    """Whether the options are those that fused kernels have."""
    return not (group["fused"] is False or group["foreach"] or group["differentiable"] or torch.is_tensor(group["lr"]) or
                (group.get("dampening") and group["momentum"]))

  def _fits(self, p, group):
    """Whether a fused kernel, which looks at no sizes, may have the parameter. What it would not begin with 0 is begun here."""
    if p.device.type not in ("cpu", "cuda") or not p.is_floating_point():
      return False
    names, state = self._moments(group), self.state[p] if self.COUNTS or group["momentum"] else {}
    if not self.COUNTS and names and state.get("momentum_buffer") is None:
      state["momentum_buffer"] = torch.zeros_like(p)
    if self.COUNTS and state and library.addresses((state.get("step"),), ((torch.float32, torch.Size(())),), p.device) is None:
      return False
    tensors = p, p.grad, *([state.get(name) for name in names] if state else ())
    return library.addresses(tensors, len(tensors) * ((p.dtype, p.shape),), p.device) is not None

  @property
  def _step_supports_amp_scaling(self):
    """Whether a GradScaler may leave its factor and flag to step()."""
    return all([self._fusable(group) for group in self.param_groups])

  @_step_supports_amp_scaling.setter
  def _step_supports_amp_scaling(self, value):
    """torch.optim sets it."""

  # ---- the norm ----

  def _norm(self):
    """The factor to clip by, from the norm of all gradients. Those that are left are stored only if their norm would take
    longer without; a norm that is not finite skips the step, if a Block takes part in it."""
    pairs, stored, squares = {}, [], []
    for group in self.param_groups:
      for p in group["params"]:
        if type(p.grad) is Gradient and p.grad.pair is not None:
          pairs.setdefault(p.grad.pair, []).append(p.grad)
        elif p.grad is not None:
          stored.append(p.grad)
    for pair, grads in pairs.items():
      square = pair.square([grad.which for grad in grads])
      if square is None:
        stored += [grad.stored() for grad in grads]
      else:
        squares.append(square)
    if not stored and not squares:
      return None
    norms = torch._foreach_norm(stored, 2, torch.float64) if stored else ()
    norm = torch.linalg.vector_norm(torch.stack([*norms, *[square.sqrt() for square in squares]]))
    scale = getattr(self, "grad_scale", None)
    self.grad_norm = norm if scale is None else norm / scale
    return (self.clip_grad_norm / (self.grad_norm + 1e-6)).clamp_(max=1)

  # ---- for users ----

  def refresh(self):
    """Notices parameters that have been written since the last step, so that replays of a CUDA graph go on from them."""
    for own in self._own.values():
      own.refresh()

  @property
  def skipped(self) -> int:
    """How many steps changed nothing since a value was not finite. Waits for the device."""
    return 0 if self.flag is None else int(self._skipped)

  def zero_grad(self, set_to_none: bool = True):
    if not set_to_none:
      super().zero_grad(False)
      return
    for group in self.param_groups:
      for p in group["params"]:
        p.grad = None


_hooked_step = torch.optim.Optimizer.profile_hook_step(_Optimizer._step)


class SGD(_Optimizer, torch.optim.SGD):
  """torch.optim.SGD, with its arguments and state_dict."""
  COUNTS, _optim_step = False, inspect.unwrap(torch.optim.SGD.step)

  def _serves(self, group):
    return not (group["maximize"] or group["differentiable"] or (group["dampening"] and group["momentum"]))

  def _moments(self, group):
    return ("momentum_buffer",) if group["momentum"] else ()

  def _rule(self, rule, group):
    rule.kind, rule.momentum, rule.nesterov = 0, group["momentum"], group["nesterov"]


class AdamW(_Optimizer, torch.optim.AdamW):
  """torch.optim.AdamW, with its arguments and state_dict."""
  COUNTS, _optim_step = True, inspect.unwrap(torch.optim.AdamW.step)

  def state_dict(self):
    """Each parameter's count of steps is its own there."""
    found = super().state_dict()
    found["state"] = {i: {**state, "step": state["step"].clone()} if "step" in state else state
                      for i, state in found["state"].items()}
    return found

  def _serves(self, group):
    return not (group["maximize"] or group["differentiable"] or group["amsgrad"])

  def _moments(self, group):
    return "exp_avg", "exp_avg_sq"

  def _rule(self, rule, group):
    rule.kind, (rule.beta1, rule.beta2), rule.eps = 1, group["betas"], group["eps"]
