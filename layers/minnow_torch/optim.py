"""torch.optim's SGD and AdamW for models with Blocks. They update a Block's parameters in the product that computes the
gradient, which is then not stored; all other parameters, and whatever else is asked for, is torch.optim's."""
import copy
import ctypes
import functools
import inspect
import warnings

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from .block import TAGS, _blocks
from .gradient import Gradient, Trained
from .library import Kinds, new_call, place
from .plan import trained


class _Rate:
  """What the device keeps of the parameters of one group that have taken equally many steps: the rate and, for AdamW, their
  number; and the call that counts them."""

  def __init__(self, optimizer, steps):
    device = optimizer.flag.device
    self.lr = self.betas = None  # as last written
    self.memory = torch.ones(3, dtype=torch.float64, device=device)
    self.at = self.memory.data_ptr()
    self.steps = None if steps is None else torch.full((), steps, dtype=torch.float32, device=device)
    self.begun = bool(steps)  # whether there was any step
    self.members = None  # who took the last one
    self.call = new_call(nonfinite=optimizer.flag.data_ptr())
    counts = self.call.counts
    counts.steps, counts.rate = place(self.steps), self.at
    counts.skipped, counts.told = optimizer._skipped.data_ptr(), optimizer._told.data_ptr()

  def write(self, group, context):
    """Writes to the device what has changed since the last step. A tensor's value may have."""
    lr, betas = group["lr"], group.get("betas")
    if self.lr is None or torch.is_tensor(lr) or self.lr != lr:
      self.lr = lr
      self.memory[0].fill_(lr.detach().reshape(()) if torch.is_tensor(lr) else float(lr))
    if self.betas != betas:
      self.betas = self.call.counts.beta1, self.call.counts.beta2 = betas
      self.count(context, False, False)
    self.begun = True

  def count(self, context, ended, clears):
    self.call.counts.ended, self.call.counts.clears, self.call.stream = ended, clears, context.stream()
    context.must(context.lib.mn_block_count(context.handle, ctypes.addressof(self.call)))


class _Optimizer:
  """What SGD and AdamW share. A step in which a Block met a value that is not finite changes nothing: `skipped` counts
  these. clip_grad_norm=M does what torch.nn.utils.clip_grad_norm_ does before a step, for all parameters together, without
  gradients where that is faster; `grad_norm` is then the norm of the last step's gradients, a tensor on the device.

  In a CUDA graph a rate that changes has to be a tensor on the device, as for torch.optim; and replays do not notice that
  parameters were written since the last step: refresh() does."""
  grad_norm, flag, _done = None, None, ()

  def __init__(self, *arguments, clip_grad_norm=None, **named):
    if clip_grad_norm is not None and not clip_grad_norm > 0:
      raise ValueError(f"minnow: clip_grad_norm={clip_grad_norm} is no norm to clip to: a number above 0, or None")
    self.clip_grad_norm = clip_grad_norm
    super().__init__(*arguments, **named)
    self._step_supports_amp_scaling = False  # a GradScaler scales gradients back itself

  def __getstate__(self):
    return {**super().__getstate__(), "clip_grad_norm": self.clip_grad_norm}

  def add_param_group(self, group):
    super().add_param_group(group)
    self._take()

  def __setstate__(self, state):
    super().__setstate__(state)
    self._rates = {}
    for of in self.state.values():
      if torch.is_tensor(of.get("step")):
        of["step"] = of["step"].clone()  # which in the original is a _Rate's
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
    before, self._own = self.__dict__.get("_own", {}), {}
    for group in self.param_groups:
      for p in group["params"]:
        self._own[id(p)] = trained[id(p)] = own = before.get(id(p)) or Trained(p, self)
        own.floats = own.floats_of = None
    for number, block in list(_blocks.items()):
      parts = [self._own.get(id(getattr(block._modules.get(part), "_parameters", {}).get(name)))
               for part, name in (("fc", "weight"), ("fc", "bias"), ("gn", "weight"), ("gn", "bias"))]
      if all(parts):
        device = parts[0].parameter.device
        if device.type == "cpu" or (device.type == "cuda" and TAGS):
          block._follow(number, self.flag if self._open(device) else None)

  def _open(self, device):
    """The device's memory that step() reads and writes. Whether this is the device of all."""
    if self.flag is None or (self.flag.device != device and not self._begun and not self._rates):
      self.flag, self._rates = torch.zeros(1, dtype=torch.int32, device=device), {}
      self._skipped = torch.zeros(1, dtype=torch.int64, device=device)
      self._scale = torch.ones(1, dtype=torch.float64, device=device)
      self._told, self._seen = torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=device.type == "cuda"), 0
      self._told_value = ctypes.c_int64.from_address(self._told.data_ptr())
      self._begun = []  # the weights whose backward may have raised the flag since the last step
    return self.flag.device == device

  def _begin(self, own):
    """A backward begins. What earlier ones found is forgotten if nobody has what they left."""
    if self._begun and not any(type(other.parameter.grad) is Gradient for other in self._begun):
      self.flag.zero_()
      self._begun.clear()
    self._begun.append(own)

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
    factor = None if self.clip_grad_norm is None else self._norm()
    updates, others = self._sort()
    scale = self._clip(factor) if factor is not None and updates else None
    rates, done = {}, []
    for pair, at, group, rate, entries, parts in updates:
      if rate not in rates:
        rate.write(group, pair.plan.context)
      rates.setdefault(rate, []).extend(parts)
      done += [(own, pair.plan.context) for own in parts]
      weight = pair.parts[0]().planes.get(pair.plan.context) if 0 in entries else None
      pair.update(at, entries, lambda *call: self._fill(*call, rate, group, scale, weight))
    if others:
      self._others(others, done, factor)
    if done:
      self._end(rates, done)
    return loss

  # ---- who updates what ----

  def _sort(self):
    """The parameters that have a gradient, by who updates them: C by what a backward left, [(pair, address of its rows, group,
    rate, {place: what C gets of the parameter there}, [Trained])]; torch.optim by a stored gradient, [parameter]."""
    left, updates, others = {}, [], []
    for number, group in enumerate(self.param_groups):
      serves = self._serves(group)
      for p in group["params"]:
        grad = p.grad
        if serves and type(grad) is Gradient and grad.pair is not None and grad.pair.flag is self.flag:
          own = self._own.get(id(p))
          if own is not None and grad.pair.parts[grad.which] is own.ref:
            left.setdefault((grad.pair, number), []).append((grad.which, own))
            continue
        if grad is not None:
          others.append(p)
    for (pair, number), items in left.items():
      rows, group = pair.rows(), self.param_groups[number]
      names, found = self._moments(group), self._as_before(pair, number, items)
      if found is None:
        found = {}
        for which, own in items:
          entry = self._entry(pair.plan, which, own, names)
          if entry is None:
            others.append(own.parameter)
          else:
            entries, parts = found.setdefault(self._rate(number, own.parameter), ({}, []))
            entries[which] = entry
            parts.append(own)
      updates += [(pair, rows, group, rate, *of) for rate, of in found.items()]
    return updates, others

  def _as_before(self, pair, number, items):
    """{rate: ({place: what C gets}, [Trained])} for these, [(place, Trained)], if all are as an earlier step left them and not
    of 16 bits, for short; else None."""
    names, tensors, states = self._moments(self.param_groups[number]), [], []
    for _, own in items:
      state = self.state[own.parameter] if names else {}
      states.append(state.get("step"))
      tensors += own.parameter, *[state.get(name) for name in names]
    for rate in self._rates.get(number, ()):
      if pair.plan.own.itemsize > 2 and all([steps is rate.steps for steps in states]):
        at = pair.plan.entries(tuple([which for which, _ in items]), len(names)).addresses(tensors, 16)
        if at is not None:
          each, rest = 1 + len(names), (None,) * (3 - len(names))
          return {rate: ({which: (at[i], None, *at[i + 1:i + each], *rest) for i, (which, _) in zip(range(0, len(at), each), items)},
                         [own for _, own in items])}
    return None

  @torch.no_grad()
  def _entry(self, plan, which, own, names):
    """What C gets of a parameter: where its values, its own 16 bits, its moments and no gradient are; None if torch.optim has
    to update it."""
    p, kinds, narrow = own.parameter, plan.entries((which,), len(names)), plan.own.itemsize == 2
    state = self.state[p] if names or narrow else {}
    if plan.entries((which,), 0).addresses((p,), 16) is None:
      return None
    for name, (dtype, shape) in zip(names, kinds.kinds[1:]):  # moments are begun, and those of a 16-bit parameter become floats
      moment = state.get(name)
      if moment is None and not (self.COUNTS and "step" in state):  # with it alone torch.optim has its say
        state[name] = torch.zeros(shape, dtype=dtype, device=p.device)
      elif narrow and moment is not None and moment.dtype is p.dtype and "master" not in state:
        state[name] = moment.float()
    at = kinds.addresses((p, *[state.get(name) for name in names]), 16)
    if at is None:
      return None
    values, m, v = (*at, None, None)[:3]
    if not narrow:
      return values, None, m, v, None
    state["master"] = floats = own.master()
    return floats.data_ptr(), values, m, v, None

  def _rate(self, number, p):
    """The _Rate of the group's parameters that have taken as many steps as this one."""
    rates = self._rates.setdefault(number, [])
    step = self.state[p].get("step") if self.COUNTS else None
    for rate in rates:
      if rate.steps is step:
        return rate
    steps = None if not self.COUNTS else 0.0 if step is None else float(step)
    rate = next((rate for rate in rates if (float(rate.steps) if rate.begun else 0) == steps), None)
    if rate is None:
      rates.append(rate := _Rate(self, steps))
    if self.COUNTS:
      self.state[p]["step"] = rate.steps
    return rate

  # ---- what C updates ----

  def _fill(self, call, of_weight, rule, rate, group, scale, planes):
    call.nonfinite, of_weight.planes = self.flag.data_ptr(), planes and planes[0].data_ptr()
    rule.rate, rule.scale, rule.weight_decay = rate.at, scale, group["weight_decay"]
    self._rule(rule, group)

  def _end(self, rates, done):
    """Counts the step. That it was skipped is known here once the device is done with it: in a later step."""
    torch._C._increment_version([own.parameter for own, _ in done])
    for own, context in done:
      if own.planes or own.floats_of:
        own.updated(context)
    self._begun.clear()
    last = next(reversed(rates))
    for rate, members in rates.items():
      if self.COUNTS and rate.members != members:  # those that do not take this step count their own from now on
        took = {id(own.parameter) for own, _ in done}
        for p, state in self.state.items():
          if state.get("step") is rate.steps and id(p) not in took:
            state["step"] = rate.steps.clone()
        rate.members = members
      rate.count(done[0][1], True, rate is last)
    skipped = self._told_value.value
    if skipped > self._seen:
      for own in self._own.values():  # the scales may have been too small for what they are to hold
        own.forget()
        own.scaled = None
      if not self._seen:
        warnings.warn("minnow: a step was skipped, since a value was not finite; the optimizer's `skipped` counts such steps",
                      stacklevel=4)
      self._seen = skipped

  # ---- what torch.optim updates ----

  @torch.no_grad()
  def _others(self, others, done, factor):
    """By its fused kernels where they serve, which know how to skip a step on the device."""
    shared = [rate.steps for rates in self._rates.values() for rate in rates] if self.COUNTS and self.flag is not None else []
    for p in others:
      state, own = self.state.get(p, {}), self._own.get(id(p))
      if own is not None:
        own.forget()  # fused kernels write parameters without a new version
        if state.pop("master", None) is not None:
          own.floats = own.floats_of = None
          state.update({name: t.to(p.dtype) for name, t in state.items() if name != "step"})
      if any([state.get("step") is steps for steps in shared]):
        state["step"] = state["step"].clone()
    if factor is not None:
      torch._foreach_mul_([p.grad for p in others], factor)
    before, names, fused = [group["fused"] for group in self.param_groups], {id(p) for p in others}, []
    for group in self.param_groups:
      params = [p for p in group["params"] if id(p) in names]
      fits = (self._serves(group) and isinstance(group["lr"], (float, int, torch.Tensor)) and
              all([self._fits(p, group) for p in params]))
      fused.append(params and (group["fused"] or (group["fused"] is None and not group["foreach"] and fits)))
    if done and (self.flag.device.type == "cpu" or not all([serves for serves in fused if serves != []])):
      if int(self.flag):
        return
    elif done:
      self.found_inf = self.flag.view(torch.float32)[0]  # which the flag's bits are
    self._done = {id(own.parameter) for own, _ in done}
    try:
      for group, serves in zip(self.param_groups, fused):
        group["fused"] = serves or group["fused"]
      with torch.set_grad_enabled(self.defaults["differentiable"]):
        self._optim_step()
      if any(fused):
        torch._C._increment_version(others)  # which the kernels do not
    finally:
      self._done = ()
      self.__dict__.pop("found_inf", None)
      for group, was in zip(self.param_groups, before):
        group["fused"] = was

  def _init_group(self, group, *lists):
    if self._done:
      group = {**group, "params": [p for p in group["params"] if id(p) not in self._done]}
    return super()._init_group(group, *lists)

  def _fits(self, p, group):
    """Whether a fused kernel, which looks at no sizes, may have the parameter. What it would not begin with 0 is begun here."""
    names = self._moments(group)
    state, more = self.state[p] if names else {}, ()
    if not p.is_floating_point() or p.device.type not in ("cpu", "cuda"):
      return False
    if self.COUNTS:
      names, more = (names, (state.get("step"),)) if state else ((), ())
    elif names and state.get(names[0]) is None:
      state[names[0]] = torch.zeros_like(p)
    tensors = p, p.grad.values if type(p.grad) is Gradient else p.grad, *[state.get(name) for name in names]
    kinds = *len(tensors) * ((p.dtype, p.shape),), *len(more) * (_COUNT,)
    return _kinds(p.device, *kinds).addresses((*tensors, *more)) is not None

  # ---- the norm ----

  @torch.no_grad()
  def _norm(self):
    """The factor to clip by, from the norm of all gradients."""
    pairs, stored, squares = {}, [], []
    for group in self.param_groups:
      for p in group["params"]:
        if type(p.grad) is Gradient and p.grad.values is None:
          pairs.setdefault(p.grad.pair, []).append(p.grad)
        elif p.grad is not None:
          stored.append(p.grad)
    for pair, grads in pairs.items():
      squares.append(pair.square([grad.which for grad in grads]))
    if not stored and not squares:
      return None
    norms = torch._foreach_norm(stored, 2, torch.float64) if stored else ()
    self.grad_norm = torch.linalg.vector_norm(torch.stack([*norms, *[square.sqrt() for square in squares]]))
    return (self.clip_grad_norm / (self.grad_norm + 1e-6)).clamp_(max=1)

  @torch.no_grad()
  def _clip(self, factor):
    """Where the factor is for C. A norm that is not finite skips the step."""
    self._scale.copy_(factor)
    self.flag.view(torch.float32).logical_or_(self.grad_norm * 0)  # NaN, which counts as true, or 0
    return self._scale.data_ptr()

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


_kinds, _COUNT = functools.lru_cache(4096)(Kinds), (torch.float32, torch.Size(()))
_hooked_step = torch.optim.Optimizer.profile_hook_step(_Optimizer._step)


class SGD(_Optimizer, torch.optim.SGD):
  """torch.optim.SGD, with its arguments and state_dict."""
  COUNTS, _optim_step = False, inspect.unwrap(torch.optim.SGD.step)

  def _serves(self, group):
    return not (group["maximize"] or group["differentiable"] or (group["dampening"] and group["momentum"]) or
                (group["foreach"] and group["nesterov"]))  # which writes gradients

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
