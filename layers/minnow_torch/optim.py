"""torch.optim's SGD and AdamW for models with Blocks. They update a Block's parameters in the product that computes the
gradient, which is then not stored; all other parameters, and whatever else is asked for, is torch.optim's."""
import copy
import ctypes
import inspect
import warnings
import weakref

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from .block import TAGS, _blocks
from .gradient import Gradient, Trained, trained
from .library import Kinds, new_call, place, written


# How many elements a weight has whose gradient is left: where there are other parameters than Blocks', and in compiled code, in
# which leaving it costs more of the host's time.
LEAST = {"cpu": 2**17, "cuda": 2**22, "cpu, compiled": 2**20, "cuda, compiled": 2**24}


_gone = {}  # by device: flags of optimizers that are gone, to which graphs that torch.compile recorded may write


class _Rate:
  """What the device keeps of the parameters of one group that have taken equally many steps: the rate and, for AdamW, the
  steps of each; and the call that counts them."""

  def __init__(self, optimizer, steps, room):
    device = optimizer.flag.device
    self.lr, self.first, self.begun = None, steps, False
    self.memory = torch.ones(3, dtype=torch.float64, device=device)  # lr is there as last written
    self.at = self.memory.data_ptr()
    self.steps = None if steps is None else torch.full((room,), steps, dtype=torch.float32, device=device)
    self.taken, self.members = 0, ()  # how many of them are some parameter's, and who took the last step
    self.call = new_call(nonfinite=optimizer.flag.data_ptr())
    self.call.counts.steps, self.call.counts.rate = place(self.steps), self.at

  def holds(self, steps):
    return self.taken < len(self.steps) and (float(self.steps[0]) if self.begun else self.first) == steps

  def count(self, group, context, flags):
    """Counts a step. What has changed of the rate since the last one is written before; a tensor's value may have."""
    lr, counts = group and group["lr"], self.call.counts
    if lr is not None and (self.lr is None or torch.is_tensor(lr) or self.lr != lr):
      self.lr = lr
      self.memory[0].fill_(lr.detach().reshape(()) if torch.is_tensor(lr) else float(lr))
    if self.steps is not None:
      (counts.beta1, counts.beta2), counts.members, self.begun = group["betas"], len(self.steps), True
    counts.flags, counts.skipped, counts.told, counts.flag_count = flags
    self.call.stream = context.stream()
    context.must(context.lib.mn_block_count(context.handle, ctypes.addressof(self.call)))


class _Optimizer:
  """What SGD and AdamW share. A step in which a Block met a value that is not finite changes nothing: `skipped` counts
  these. clip_grad_norm=M does what torch.nn.utils.clip_grad_norm_ does before a step, for all parameters together, without
  gradients where that is faster; `grad_norm` is then the norm of the last step's gradients, a tensor on the device.

  In a CUDA graph a rate that changes has to be a tensor on the device, as for torch.optim; and replays do not notice that
  parameters were written since the last step: refresh() does."""
  grad_norm = flag = None

  def __init_subclass__(cls):
    if _Optimizer in cls.__bases__:
      given = inspect.signature(cls.__mro__[2])  # torch.optim's
      clip = inspect.Parameter("clip_grad_norm", inspect.Parameter.KEYWORD_ONLY, default=None)
      cls.__signature__ = given.replace(parameters=[*given.parameters.values(), clip])
    elif "__init__" in cls.__dict__:
      cls.__signature__ = None  # its own

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
      if isinstance(of, dict) and torch.is_tensor(of.get("step")):
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

  @torch._disable_dynamo
  def _take(self):
    """Takes charge of the parameters, from the next forward on."""
    before, self._own, self._kinds = self.__dict__.get("_own", {}), {}, {}
    for group in self.param_groups:
      for p in group["params"]:
        self._own[id(p)] = trained[id(p)] = own = before.get(id(p)) or Trained(p, self)
        own.floats = own.floats_of = None
    blocks = []
    for block in list(_blocks):
      parts = [self._own.get(id(getattr(block._modules.get(part), "_parameters", {}).get(name)))
               for part, name in (("fc", "weight"), ("fc", "bias"), ("gn", "weight"), ("gn", "bias"))]
      if all(parts):
        blocks.append((block, parts))
    self._least = LEAST if len({own for _, parts in blocks for own in parts}) < len(self._own) else {}
    for block, parts in blocks:
      weight = parts[0].parameter
      if weight.device.type in ("cpu", "cuda") and self._open(weight.device) and TAGS and self._leaves(weight, LEAST, ", compiled"):
        token = torch.zeros((), device=weight.device, requires_grad=True)
        block._follow(token, [of for own in parts for of in own.hooks()])

  def _leaves(self, weight, least=None, where=""):
    """Whether a Block's backward leaves this weight's gradient to the update. Where torch.optim updates others anyway, it
    updates small ones at less cost; but it would round those of 16 bits."""
    return weight.numel() >= (self._least if least is None else least).get(weight.device.type + where, 0) or weight.dtype.itemsize == 2

  def _open(self, device):
    """The device's memory that step() reads and writes. Whether this is the device of all."""
    if self.flag is None or (self.flag.device != device and not self._begun and not self._rates):
      self.flag, self._rates = torch.zeros(1, dtype=torch.int32, device=device), {}
      self._skipped = torch.zeros(1, dtype=torch.int64, device=device)
      self._skips = self.flag.view(torch.float32)[0]  # which the flag's bits are
      self._told, self._seen = torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=device.type == "cuda"), 0
      self._told_value = ctypes.c_int64.from_address(self._told.data_ptr())
      # What a step goes by: the norm's flag, and one of each weight's backward. Whose were given out since the last one.
      other = torch._C._len_torch_dispatch_stack() or torch.is_inference_mode_enabled()  # memory that is fake, or not to be written
      gone = [] if other else _gone.setdefault(device, [])
      self._flags = gone.pop().zero_() if gone else torch.zeros(4096, dtype=torch.int32, device=device)
      weakref.finalize(self, gone.append, self._flags)
      self._places, self._begun = {}, {}
      self._bare = _Rate(self, None, 0)  # of steps in which only others are updated
    return self.flag.device == device

  def _begin(self, own, context):
    """A backward of that weight begins. Where it tells of a value that is not finite."""
    self._context, backward = context, torch._C._current_graph_task_id()
    place = self._places.setdefault(own, min(len(self._places) + 1, 4095))
    if self._begun.get(own, backward) != backward and own.dropped():  # what its last one told
      self._flags[place].zero_()
    self._begun[own] = backward
    return self._flags.data_ptr() + 4 * place

  def step(self, closure=None):
    if torch.compiler.is_compiling():
      return _untraced_step(self, closure)
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
    counted, done = bool(updates or self.__dict__.get("_places")), []
    if factor is not None:
      self._clip(factor, updates, others, counted)
    if counted:
      self._count(updates)
    for pair, at, group, rate, entries, parts in updates:
      done += [(own, pair.plan.context) for own in parts]
      weight = pair.parts[0]().planes.get(pair.plan.context) if 0 in entries else None
      pair.update(at, entries, lambda *call: self._fill(*call, rate, group, place(pair.factor), weight))
    if others:
      self._others(others, counted, bool(done))
    if counted:
      self._end(done)
    return loss

  # ---- who updates what ----

  def _sort(self):
    """The parameters that have a gradient, by who updates them: C by what a backward left, [(pair, address of its rows, group,
    rate, {place: what C gets of the parameter there}, [Trained])]; torch.optim by a stored gradient, {(group's number, type):
    [parameter]}."""
    left, updates, others, owns = {}, [], {}, self._own
    for number, group in enumerate(self.param_groups):
      serves = self._serves(group)
      for p in group["params"]:
        grad = p.grad
        if type(grad) is Gradient and serves:
          pair, own = grad.pair, owns.get(id(p))
          if pair is not None and own is not None and pair.parts[grad.which] is own.ref:
            key = pair, number
            if key in left:
              left[key].append((grad.which, own))
            else:
              left[key] = [(grad.which, own)]
            continue
        if grad is not None:
          others.setdefault((number, p.dtype), []).append(p)
    for (pair, number), items in left.items():
      if pair.plan.device != self.flag.device:
        for _, own in items:
          others.setdefault((number, own.parameter.dtype), []).append(own.parameter)
        continue
      rows, group = pair.rows(), self.param_groups[number]
      names, found = self._moments(group), self._as_before(pair, number, items)
      if found is None:
        found = {}
        for p in [p for group in self.param_groups if self._moments(group) for p in group["params"] if p.grad is not None]:
          self.state[p]  # which is made in torch.optim's order
        for which, own in items:
          entry = self._entry(pair.plan, which, own, names)
          if entry is None:
            others.setdefault((number, own.parameter.dtype), []).append(own.parameter)
          else:
            entries, parts = found.setdefault(self._rate(number, own), ({}, []))
            entries[which] = entry
            parts.append(own)
      updates += [(pair, rows, group, rate, *of) for rate, of in found.items()]
    return updates, others

  def _as_before(self, pair, number, items):
    """{rate: ({place: what C gets}, [Trained])} for these, [(place, Trained)], if all are as an earlier step left them and not
    of 16 bits, for short; else None."""
    names, rates, tensors = self._moments(self.param_groups[number]), self._rates.get(number), []
    if not rates or pair.plan.own.itemsize == 2:
      return None
    rate = items[0][1].rate if self.COUNTS else rates[0]
    for _, own in items:
      state = self.state[own.parameter] if names else {}
      if self.COUNTS and not (own.rate is rate and self._counted(own, state, rates)):
        return None
      tensors += own.parameter, *[state.get(name) for name in names]
    at = pair.plan.entries(tuple([which for which, _ in items]), len(names)).addresses(tensors, 16)
    if at is None:
      return None
    each, rest = 1 + len(names), (None,) * (3 - len(names))
    return {rate: ({which: (at[i], None, *at[i + 1:i + each], *rest) for i, (which, _) in zip(range(0, len(at), each), items)},
                   [own for _, own in items])}

  def _counted(self, own, state, rates):
    """Whether its rate counts its steps still: nobody put another tensor there or wrote to it."""
    return own.rate in rates and state.get("step") is own.step and own.rate.steps._version == 0

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

  def _rate(self, number, own):
    """The _Rate of the group's parameters that have taken as many steps as this one."""
    rates = self._rates.setdefault(number, [])
    if not self.COUNTS:
      return rates[0] if rates else rates.append(_Rate(self, None, 0)) or rates[0]
    state = self.state[own.parameter]
    if not self._counted(own, state, rates):
      steps = float(state.get("step", 0))
      rates[:] = [rate for rate in rates
                  if rate.steps._version == 0 and (not rate.begun or any(of.rate is rate for of in rate.members))]
      rate = next((rate for rate in rates if rate.holds(steps)), None)
      if rate is None:
        rates.append(rate := _Rate(self, steps, 2 * len(self.param_groups[number]["params"])))
      own.rate, own.step = rate, rate.steps[rate.taken]
      state["step"], rate.taken = own.step, rate.taken + 1
    return own.rate

  def _alone(self, own):
    """From now on somebody else counts its steps."""
    if own is not None and own.step is not None:
      state = self.state.get(own.parameter, {})
      if state.get("step") is own.step:
        state["step"] = own.step.clone()
      own.rate = own.step = None

  # ---- what C updates ----

  def _fill(self, call, of_weight, rule, rate, group, scale, planes):
    call.nonfinite, of_weight.planes = self.flag.data_ptr(), planes and planes[0].data_ptr()
    rule.rate, rule.scale, rule.weight_decay = rate.at, scale, group["weight_decay"]
    self._rule(rule, group)

  def _count(self, updates):
    """Counts the step, which is skipped if a backward that it goes by met a value that is not finite."""
    rates = {}
    for pair, _, group, rate, _, parts in updates:
      rates.setdefault(rate, (group, pair.plan.context, []))[2].extend(parts)
    for own in self._begun:
      if own.dropped():
        self._flags[self._places[own]].zero_()
    self._begun.clear()
    flags = self._flags.data_ptr(), self._skipped.data_ptr(), self._told.data_ptr(), min(len(self._places) + 1, 4096)
    for rate, (group, context, members) in (rates or {self._bare: (None, self._context, ())}).items():
      if rate.members != members:  # those that do not take this step
        for own in set(rate.members) - set(members):
          if own.rate is rate:
            self._alone(own)
        rate.members = members
      rate.count(group, context, flags)
      flags = None, None, None, 0

  def _end(self, done):
    """That the step was skipped is known here once the device is done with it: in a later step."""
    written([own.parameter for own, _ in done])
    for own, context in done:
      own.asked = 0
      if own.planes or own.floats_of:
        own.updated(context)
    skipped = self._told_value.value
    if skipped > self._seen:
      for own in self._own.values():  # the scales of planes may have been too small for what they are to hold
        own.forget()
      if not self._seen:
        warnings.warn("minnow: a step was skipped, since a value was not finite; the optimizer's `skipped` counts such steps",
                      stacklevel=4)
      self._seen = skipped

  # ---- what torch.optim updates ----

  @torch.no_grad()
  def _others(self, others, counted, done):
    """By its fused kernels where they serve, which know how to skip a step on the device. Where they do not, a step is skipped
    that C skips too, but none of a CUDA graph, and on the CPU any."""
    calls, rest = [], []
    for (number, dtype), params in others.items():
      group = self.param_groups[number]
      for p in params:
        self._leave(p)
      lists = self._lists(number, group, dtype, params)
      if lists:
        calls.append((group, lists))
      else:
        rest.append({**group, "params": params})
    skips = self._skips if counted and all([group["fused"] for group in rest]) else None
    if counted and (self.flag.device.type == "cpu" or (done and skips is None and not self._context.capturing())):
      skips = None
      if int(self.flag):
        return
    for group, lists in calls:
      self._optim_call(group, lists, skips)
      written(lists[0])  # which the kernels do not
    if rest:
      whole, self.param_groups, self.found_inf = self.param_groups, rest, skips
      try:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
          self._optim_step()
      finally:
        self.param_groups = whole
        del self.found_inf
      written([p for group in rest if group["fused"] for p in group["params"]])

  def _leave(self, p):
    """From now on torch.optim updates this parameter."""
    own = self._own.get(id(p))
    if own is not None:
      self._alone(own)
      if own.planes:
        own.forget()  # fused kernels write parameters without a new version
      if p.dtype.itemsize == 2 and (state := self.state.get(p, {})).pop("master", None) is not None:
        own.floats = own.floats_of = None
        state.update({name: t.to(p.dtype) for name, t in state.items() if name != "step"})

  def _lists(self, number, group, dtype, params):
    """The parameters, their gradients and, by name, their states, as torch.optim's fused kernels take them; None if these, which
    look at no sizes, may not have them."""
    if (not self._serves(group) or group["foreach"] or group["fused"] is False or
        not isinstance(group["lr"], (float, int, torch.Tensor))):
      return None
    names, known, device, count = self._moments(group), [*map(id, params)], params[0].device, len(params)
    names = ("step", *names) if self.COUNTS else names
    key = number, dtype, names
    if self._kinds.get(key, (None,))[0] != known:
      if (not dtype.is_floating_point or device.type not in ("cpu", "cuda") or (device.type == "cpu" and dtype.itemsize == 2) or
          (self.flag is not None and device != self.flag.device)):
        return None
      self._kinds[key] = known, Kinds(device, *2 * [(dtype, p.shape) for p in params], *[
          _COUNT if name == "step" else (dtype, p.shape) for name in names for p in params])
    states = [self.state[p] for p in params] if names else []
    for p, state in zip(params, states):
      if not state or state.get(names[0], p) is None:
        if p.grad.layout is not torch.strided:
          return None
        state.update({name: torch.zeros((), dtype=_COUNT[0], device=device) if name == "step" else torch.zeros_like(p)
                      for name in names})
    tensors = [*params, *[p.grad.values if type(p.grad) is Gradient else p.grad for p in params],
               *[state.get(name) for name in names for state in states]]
    return self._kinds[key][1].addresses(tensors) and [tensors[i:i + count] for i in range(0, len(tensors), count)]

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
    stored = [torch.view_as_real(g) if g.is_complex() else g.coalesce().values() if g.is_sparse else g for g in stored]
    norms = torch._foreach_norm(stored, 2, torch.float64) if stored else ()
    self.grad_norm = torch.linalg.vector_norm(torch.stack([*norms, *[square.sqrt() for square in squares]]))
    return (self.clip_grad_norm / (self.grad_norm + 1e-6)).clamp_(max=1)

  @torch.no_grad()
  def _clip(self, factor, updates, others, counted):
    """Multiplies the gradients by it, also those that are left. A norm that is not finite skips the step."""
    for params in others.values():
      torch._foreach_mul_([p.grad for p in params], factor)
    for pair in {pair for pair, *_ in updates}:
      pair.factor = factor if pair.factor is None else factor * pair.factor
    if counted:
      self._flags.view(torch.float32)[0].copy_(self.grad_norm * 0)  # NaN, whose bits are a flag that is set, or 0

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
    if not set_to_none or torch.compiler.is_compiling():  # torch.compile does not trace it
      super().zero_grad(set_to_none)
      return
    for group in self.param_groups:
      for p in group["params"]:
        p.grad = None


_COUNT = torch.float32, torch.Size(())  # of AdamW's steps
_hooked_step = torch.optim.Optimizer.profile_hook_step(_Optimizer._step)
_untraced_step = torch._disable_dynamo(_Optimizer.step)


class SGD(_Optimizer, torch.optim.SGD):
  """torch.optim.SGD, with its arguments and state_dict."""
  COUNTS, _optim_step = False, inspect.unwrap(torch.optim.SGD.step)

  def _serves(self, group):
    return not (group["maximize"] or group["differentiable"] or (group["dampening"] and group["momentum"]) or
                (group["foreach"] and group["nesterov"]))  # which writes gradients

  def _moments(self, group):
    return ("momentum_buffer",) if group["momentum"] else ()

  def _optim_call(self, group, lists, skips):
    params, grads, moments = lists if len(lists) == 3 else (*lists, [])
    torch._fused_sgd_(params, grads, moments, weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
                      dampening=group["dampening"], nesterov=group["nesterov"], maximize=False, is_first_step=False, found_inf=skips)

  def _rule(self, rule, group):
    rule.kind, rule.momentum, rule.nesterov = 0, group["momentum"], group["nesterov"]


class AdamW(_Optimizer, torch.optim.AdamW):
  """torch.optim.AdamW, with its arguments and state_dict."""
  COUNTS, _optim_step = True, inspect.unwrap(torch.optim.AdamW.step)

  def state_dict(self):
    """Each parameter's count of steps is its own there."""
    found = super().state_dict()
    found["state"] = {i: {**state, "step": state["step"].clone()} if isinstance(state, dict) and "step" in state else state
                      for i, state in found["state"].items()}
    return found

  def _serves(self, group):
    return not (group["maximize"] or group["differentiable"] or group["amsgrad"] or
                not group.get("decoupled_weight_decay", True))

  def _moments(self, group):
    return "exp_avg", "exp_avg_sq"

  def _optim_call(self, group, lists, skips):
    params, grads, steps, first, second = lists
    beta1, beta2 = group["betas"]
    torch._foreach_add_(steps, 1)
    torch._fused_adamw_(params, grads, first, second, [], steps, amsgrad=False, lr=group["lr"], beta1=beta1, beta2=beta2,
                        weight_decay=group["weight_decay"], eps=group["eps"], maximize=False, found_inf=skips)
    if skips is not None:
      torch._foreach_sub_(steps, [skips] * len(steps))

  def _rule(self, rule, group):
    rule.kind, (rule.beta1, rule.beta2), rule.eps = 1, group["betas"], group["eps"]
