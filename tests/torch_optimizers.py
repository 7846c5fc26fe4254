"""The optimizers of layers/minnow_torch/ against torch.optim's on PyTorch's own modules, on the CPU and on a GPU.

    MINNOW_LIBRARY=build/libminnow.so python3 tests/torch_optimizers.py"""
import copy
import functools
import gc
import inspect
import io
import itertools
import os
import pickle
import sys
import tempfile
import unittest
import unittest.mock
import warnings
import weakref

import numpy
import torch
from torch import nn
from torch.nn import functional

from test_torch import CODE, DEVICES, LEAST, USUAL, Block, Case, Model, minnow_torch
from minnow_torch.gradient import Gradient

RULES = {"SGD": ("SGD", {"lr": 0.05}), "Nesterov": ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
         "AdamW": ("AdamW", {"lr": 0.002, "weight_decay": 0.1})}
# What is computed in: the Block's precision, the parameters' type, autocast's.
PRECISIONS = {"cpu": ("fp32", "fp64", "autocast"),
              "cuda": ("fp32", "fp16x3", "fp64", "autocast", "fp16 autocast", "bf16 module", "fp16 module")}
TYPES = {"fp64": torch.float64, "bf16 module": torch.bfloat16, "fp16 module": torch.float16}


class Twice(nn.Module):
  def __init__(self, kind):
    super().__init__()
    self.inner = kind(64, 64, 8)

  def forward(self, x):
    return self.inner(0.5 * self.inner(x))


def one(kind):
  return nn.Sequential(kind(32, 64, 8), nn.Linear(64, 10))


def several(kind):
  return nn.Sequential(kind(32, 64, 8), nn.Linear(64, 32), kind(32, 48, 4), kind(48, 64, 8), nn.Linear(64, 10))


def tied(kind):
  model = nn.Sequential(nn.Linear(32, 64), kind(64, 64, 8), kind(64, 64, 8), nn.Linear(64, 10))
  model[2].fc.weight = model[1].fc.weight
  return model


def shared(kind):
  """Two Blocks with one GroupNorm."""
  model = nn.Sequential(kind(32, 64, 8), kind(64, 64, 8), nn.Linear(64, 10))
  model[1].gn = model[0].gn
  return model


def twice(kind):
  return nn.Sequential(nn.Linear(32, 64), Twice(kind), nn.Linear(64, 10))


def weight_alone(kind):
  model = nn.Sequential(kind(32, 10, 2))
  for name, parameter in model.named_parameters():
    parameter.requires_grad_(name == "0.fc.weight")
  return model


def frozen(kind):
  model = several(kind)
  for parameter in model[0].fc.weight, model[2].fc.bias, model[2].gn.weight, model[4].weight:
    parameter.requires_grad_(False)
  return model


def plain(inputs, channels, groups):
  return Model(inputs, channels, groups)


def batches(count, rows, device):
  return [(torch.randn(rows, 32, device=device), torch.randint(10, (rows,), device=device)) for _ in range(count)]


def losses(model, optimizer, data, autocast=None, parts=1, between=lambda: None):
  """Trains the model, a step a batch, in so many backwards each."""
  found, dtype = [], next(model.parameters()).dtype
  for x, target in data:
    optimizer.zero_grad()
    for some, labels in zip(x.to(dtype).chunk(parts), target.chunk(parts)):
      with torch.autocast(x.device.type, autocast or torch.bfloat16, enabled=autocast is not None):
        y = model(some)
      loss = functional.cross_entropy(y.to(dtype), labels) / parts
      loss.backward()
    between()
    optimizer.step()
    found.append(loss.item())
  return found


def vector(model, start):
  """How far the parameters went, in float64."""
  return torch.cat([(p.double() - q.double()).flatten() for p, q in zip(model.parameters(), start.parameters())]).detach()


class Same(Case):
  def compare(self, device, build, rule, precision, steps=40, parts=1, groups=lambda model: model.parameters(), clip=None,
              rows=48):
    """Own Blocks and optimizer against plain modules and torch.optim in float64, and, under autocast, against how near
    plain modules come to these there."""
    name, options = RULES[rule]
    if rule == "AdamW" and (precision == "fp16 module" or rows < 48):
      # torch.optim's squares of small gradients are 0 in float16; of few rows a gradient near 0 can have either sign
      options = {**options, "eps": 1e-3}
    kind = lambda *sizes: Block(*sizes, precision=precision if precision in minnow_torch.PRECISIONS else "fp32")
    dtype = TYPES.get(precision, torch.float32)
    start = build(plain).to(device).to(dtype)
    own, exact, theirs = build(kind).to(device).to(dtype), copy.deepcopy(start).double(), copy.deepcopy(start)
    own.load_state_dict(start.state_dict())
    autocast = {"autocast": torch.bfloat16, "fp16 autocast": torch.float16}.get(precision)
    data, ways, told = batches(steps, rows, device), [], []
    for model, module, cast in (own, minnow_torch, autocast), (exact, torch.optim, None), (theirs, torch.optim, autocast):
      norms = []
      if clip and module is minnow_torch:
        optimizer = getattr(module, name)(groups(model), clip_grad_norm=clip, **options)
        optimizer.register_step_post_hook(lambda *_: norms.append(optimizer.grad_norm.item()))
        losses(model, optimizer, data, cast, parts)
      else:
        optimizer = getattr(module, name)(groups(model), **options)
        between = lambda: clip and norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        losses(model, optimizer, data, cast, parts, between)
      ways.append(vector(model, start))
      told.append(norms)
      if module is minnow_torch:
        self.assertEqual(optimizer.skipped, 0)
        if parts == 1 and not clip and build in (one, several, frozen):
          left = [type(b.fc.weight.grad) is Gradient for b in model if isinstance(b, Block) and b.fc.weight.requires_grad]
          self.assertTrue(left and all(left))
    error, allowed = ((way - ways[1]).norm() / ways[1].norm() for way in (ways[0], ways[2]))
    rounds = autocast or dtype.itemsize == 2
    # AdamW divides by gradients that may be near 0, also plain modules' in float32. Where rounding moves one z across the
    # kink, a gradient of few rows jumps.
    least = (0 if rows >= 48 else 0.1) if rounds else 2e-4
    self.assertLessEqual(error, 1e-9 if precision == "fp64" else max(1.5 * allowed, least))
    for a, b in zip(*told[:2]):
      self.assertAlmostEqual(a / b, 1, delta=0.02 if rounds else 1e-9 if precision == "fp64" else 2e-3)

  def test_rules_and_precisions(self):
    for device, rule in self.each(RULES):
      for precision in PRECISIONS[device]:
        with self.subTest(precision=precision):
          self.compare(device, one, rule, precision)

  def test_models(self):
    for device, build, rule in self.each((several, tied, shared, twice, frozen), RULES):
      self.compare(device, build, rule, "fp64", steps=8)
      self.compare(device, build, rule, "autocast", steps=8)

  def test_accumulation(self):
    for device, build, rule in self.each((several, tied, shared, twice), RULES):
      self.compare(device, build, rule, "fp64", steps=6, parts=3)
      if device == "cuda":
        self.compare(device, build, rule, "bf16 module", steps=6, parts=3)

  def test_clipping(self):
    """As clip_grad_norm_ does it before a step. The norm of 8 rows' gradient is computed without the gradient."""
    for device, rule, rows in self.each(RULES, (48, 8)):
      for build in several, tied, shared, twice, frozen:
        for parts in 1, 2:
          self.compare(device, build, rule, "fp64", steps=6, parts=parts, clip=3.5, rows=rows)
      self.compare(device, weight_alone, rule, "fp64", steps=6, clip=0.01, rows=rows)
      for precision in PRECISIONS[device]:
        with self.subTest(precision=precision):
          self.compare(device, one, rule, precision, steps=6, clip=1, rows=rows)

  def test_clipped_gradients_that_stay(self):
    """A second step, a second backward and a look meet gradients that are clipped, the Block's as the others'."""
    for device, rule, after in self.each(RULES, ("step", "backward", "look", "another optimizer", "no clipping")):
      name, options = RULES[rule]
      theirs = several(Model).to(device).double()
      own = several(Block).to(device).double()
      own.load_state_dict(theirs.state_dict())
      x, found = torch.randn(8, 32, dtype=torch.float64, device=device), []
      for model, module in (own, minnow_torch), (theirs, torch.optim):
        make = functools.partial(getattr(module, name), [*model.parameters()], **options)
        optimizer = make(clip_grad_norm=0.05) if model is own else make()

        def step(clipped=True):
          if model is theirs and clipped:
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
          optimizer.step()

        model(x).square().sum().backward()
        step()
        if after == "no clipping":
          optimizer.clip_grad_norm = None
          step(False)
        elif after == "another optimizer":
          make().step()
        elif after != "look":
          if after == "backward":
            model(x).square().sum().backward()
          step()
        found.append([*model.parameters(), *(p.grad for p in model.parameters())])
      for a, b in zip(*found):
        self.near(a.detach(), b.detach(), 1e-9)

  def test_gradients_of_other_kinds(self):
    """Complex and sparse ones are clipped, and updated, by torch.optim."""
    for device, in self.each():
      found = []
      for module in minnow_torch, torch.optim:
        torch.manual_seed(5)
        table, other = nn.Embedding(5, 3, sparse=True, device=device), nn.Parameter(torch.ones(2, dtype=torch.cdouble, device=device))
        parameters, more = [table.weight, other], {"clip_grad_norm": 0.5} if module is minnow_torch else {}
        optimizer = module.SGD(parameters, lr=0.1, momentum=0.9, **more)
        optimizer.state["a note"] = 5
        optimizer.load_state_dict(optimizer.state_dict())
        for _ in range(3):
          optimizer.zero_grad()
          (table(torch.tensor([0, 2], device=device)).square().sum() + other.abs().square().sum()).backward()
          if module is torch.optim:  # whose clip_grad_norm_ takes sparse ones in recent versions alone
            norm = torch.stack([table.weight.grad.coalesce().values().norm().double(), other.grad.abs().norm()]).norm()
            for p in parameters:
              p.grad.mul_((0.5 / (norm + 1e-6)).clamp(max=1).item())
          optimizer.step()
        found.append([*parameters, optimizer.state[table.weight]["momentum_buffer"].to_dense()])
        self.assertTrue(optimizer.state[table.weight]["momentum_buffer"].is_sparse)
      for a, b in zip(*found):
        self.assertLess((a - b).abs().max().item(), 1e-6)

  def test_200_steps(self):
    for device, rule in self.each(RULES):
      self.compare(device, several, rule, "fp64", steps=200)

  def test_groups(self):
    """Vectors in a group of their own, without weight decay."""
    def groups(model):
      return [{"params": [p for p in model.parameters() if p.dim() == 2]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0, "lr": 0.01}]

    for device, rule in self.each(RULES):
      self.compare(device, several, rule, "fp64", steps=10, groups=groups)

  def test_steps_without_a_block(self):
    """Some steps leave a Block out, or use its weight without it; and a copy of the optimizer after them."""
    for device, rule, outside in self.each(RULES, (False, True)):
      name, options = RULES[rule]
      start = nn.ModuleList([plain(32, 32, 4), plain(32, 32, 4), nn.Linear(32, 10)]).to(device).double()
      own = nn.ModuleList([Block(32, 32, 4), Block(32, 32, 4), nn.Linear(32, 10)]).to(device).double()
      own.load_state_dict(start.state_dict())
      data = batches(9, 48, device)
      for model, module in (start, torch.optim), (own, minnow_torch):
        optimizer = getattr(module, name)(model.parameters(), **options)
        for step, (x, target) in enumerate(data):
          y = model[0](x.double())
          y = model[1](y) if step not in (3, 4) else functional.linear(y, model[1].fc.weight) if outside else y
          functional.cross_entropy(model[2](y), target).backward()
          optimizer.step()
          optimizer.zero_grad()
          if step == 6:
            kept = copy.deepcopy([optimizer.state_dict(), model.state_dict()])
            optimizer = getattr(module, name)(model.parameters(), **options)
            optimizer.load_state_dict(kept[0])
      for a, b in zip(own.parameters(), start.parameters()):
        self.near(a.detach(), b.detach(), 1e-9)

  def test_a_rate_that_changes(self):
    for device, rule in self.each(RULES):
      name, options = RULES[rule]
      start = one(plain).to(device).double()
      models, data = [start, one(Block).to(device).double()], batches(12, 48, device)
      models[1].load_state_dict(start.state_dict())
      for module, model in zip((torch.optim, minnow_torch), models):
        optimizer = getattr(module, name)(model.parameters(), **options)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=12, cycle_momentum=rule != "SGD")
        for batch in data:
          losses(model, optimizer, [batch])
          schedule.step()
      for a, b in zip(*(m.parameters() for m in models)):
        self.near(b, a, 1e-9)


class States(Case):
  def model(self, device, rule, dtype=torch.float32, **more):
    name, options = RULES[rule]
    model = one(Block).to(device).to(dtype)
    return model, getattr(minnow_torch, name)(model.parameters(), **options, **more)

  def same(self, one, other, tolerance=None):
    """To the bit on the CPU. On a GPU planes are made under other scales than those that earlier steps left."""
    for a, b in zip(one.parameters(), other.parameters()):
      self.near(a.detach(), b.detach(), tolerance or 1e-6 * a.is_cuda)

  def test_copies(self):
    """What is copied, pickled or saved goes on as the original does, and the original as if it had not been."""
    def copied(model, optimizer):
      return copy.deepcopy((model, optimizer))

    def pickled(model, optimizer):
      return pickle.loads(pickle.dumps((model, optimizer)))

    def saved(model, optimizer):
      file = io.BytesIO()
      torch.save([model.state_dict(), optimizer.state_dict()], file)
      file.seek(0)
      found, (values, state) = copy.deepcopy(model), torch.load(file)
      found.load_state_dict(values)
      other = type(optimizer)(found.parameters(), lr=1)
      other.load_state_dict(state)
      return found, other

    types = torch.float32, torch.bfloat16, torch.float16
    for device, dtype, rule, way in self.each(types, RULES, (copied, pickled, saved)):
      if device == "cpu" and dtype.itemsize == 2:
        continue  # gradients are stored there
      model, optimizer = self.model(device, rule, dtype)
      data = batches(8, 48, device)
      losses(model, optimizer, data[:4])
      other, others = way(model, optimizer)
      losses(model, optimizer, data[4:])
      self.assertGreater(max((a - b).abs().max().item() for a, b in zip(model.parameters(), other.parameters())), 0)
      losses(other, others, data[4:])
      self.same(model, other)

  def test_written(self):
    """Parameters that are written between steps are those of the next step."""
    for device, dtype in self.each((torch.float32, torch.float64, torch.bfloat16, torch.float16)):
      model, optimizer = self.model(device, "SGD", dtype)
      start, data = copy.deepcopy(model), batches(6, 48, device)
      losses(model, optimizer, data[:3])
      model.load_state_dict(start.state_dict())
      losses(model, optimizer, data[3:])
      losses(start, minnow_torch.SGD(start.parameters(), **RULES["SGD"][1]), data[3:])
      self.same(model, start)

  def test_state_is_torch_optims(self):
    """Either goes on from the other's state."""
    for device, rule in self.each(RULES):
      name, options = RULES[rule]
      data = batches(8, 48, device)
      results = []
      for first, second in itertools.product((minnow_torch, torch.optim), repeat=2):
        torch.manual_seed(2)
        model = one(Block).to(device).double()
        optimizer = getattr(first, name)(model.parameters(), **options)
        losses(model, optimizer, data[:4])
        state = optimizer.state_dict()
        if options.get("momentum") or name == "AdamW":
          self.assertEqual([id(p) for p in optimizer.state], [id(p) for p in model.parameters()])  # in torch.optim's order
        del optimizer  # which would still be given what torch.optim's needs
        other = getattr(second, name)(model.parameters(), **options)
        before = copy.deepcopy(state["state"])
        other.load_state_dict(state)
        losses(model, other, data[4:])
        if second is minnow_torch:  # it shares nothing with what it loaded
          self.assertTrue(all(torch.equal(state["state"][i][n], t) for i, kept in before.items() for n, t in kept.items()
                              if torch.is_tensor(t)))
        results.append(model)
      for model in results[1:]:
        self.same(model, results[0], 1e-9)

  def test_stored(self):
    """fused=False is a word, for torch.optim's own parameters."""
    for device, rule, clip in self.each(RULES, (None, 1.0)):
      data, (model, optimizer) = batches(4, 48, device), self.model(device, rule, fused=False, clip_grad_norm=clip)
      other = copy.deepcopy(model)
      losses(model, optimizer, data, between=lambda: clip or nn.utils.clip_grad_norm_(model.parameters(), 1.0))
      name, options = RULES[rule]
      losses(other, getattr(torch.optim, name)(other.parameters(), **options), data,
             between=lambda: nn.utils.clip_grad_norm_(other.parameters(), 1.0))
      self.same(model, other, 1e-6)

  def current(self, model):
    """An evaluation reads planes of the weight as it is."""
    x = batches(1, 48, model[0].fc.weight.device)[0][0]
    with torch.no_grad():
      found = model(x)
      minnow_torch.forget()
      self.assertTrue(torch.equal(found, model(x)))

  def test_evaluation_between(self):
    """It reads the planes that the update wrote, and notices a weight that is written aside."""
    for device, rule in self.each(RULES):
      model, optimizer = self.model(device, rule)
      model[0].precision = "bf16"
      for change in (lambda: None, lambda: model[0].fc.weight.mul_(0.5), lambda: model.load_state_dict(start)):
        start = copy.deepcopy(model.state_dict())
        losses(model, optimizer, batches(2, 48, device))
        with torch.no_grad():
          change()
        self.current(model)

  def test_used_outside(self):
    """A step by a stored gradient, of a weight that the Block did not use, is noticed too."""
    for device, rule in self.each(RULES):
      model, optimizer = self.model(device, rule)
      model[0].precision = "bf16"
      losses(model, optimizer, batches(2, 48, device))
      functional.linear(batches(1, 48, device)[0][0], model[0].fc.weight).square().mean().backward()
      optimizer.step()
      self.current(model)

  def test_refresh(self):
    """It makes planes of a weight that was written, and leaves those of one that was not."""
    for device, rule in self.each(RULES):
      model, optimizer = self.model(device, rule)
      model[0].precision = "bf16"
      losses(model, optimizer, batches(2, 48, device))
      for change in (lambda: None, lambda: model[0].fc.weight.mul_(0.5)):
        with torch.no_grad():
          change()
          optimizer.refresh()
          planes = next(iter(minnow_torch.gradient.trained[id(model[0].fc.weight)].planes.values()))
          self.assertEqual(planes[1], (model[0].fc.weight._version, model[0].fc.weight.data_ptr()))
        self.current(model)

  def test_state_set_by_hand(self):
    """What stands in the state is what the next step reads; what cannot be is refused by torch.optim."""
    for device in DEVICES:
      model, optimizer = self.model(device, "Nesterov")
      other, data = copy.deepcopy(model), batches(6, 48, device)
      others = torch.optim.SGD(other.parameters(), **RULES["Nesterov"][1])
      for m, o in (model, optimizer), (other, others):
        losses(m, o, data[:2])
        for state in o.state.values():
          state["momentum_buffer"] = 0.5 * state["momentum_buffer"]
        losses(m, o, data[2:4])
        o.state.clear()
        losses(m, o, data[4:])
      self.same(model, other, 1e-5)
      optimizer.state[model[0].fc.weight]["momentum_buffer"] = torch.zeros(3, 4, device=device)
      with self.assertRaisesRegex(RuntimeError, "must match the size"):
        losses(model, optimizer, data[:1])

  def test_zero_grad(self):
    """A gradient that is dropped leaves no trace."""
    for device, rule in self.each(RULES):
      data = batches(3, 48, device)
      for drop in ("model", "optimizer", "zeros"):
        model, optimizer = self.model(device, rule)
        other, others = copy.deepcopy((model, optimizer))
        losses(other, others, data[1:])
        functional.cross_entropy(model(data[0][0]), data[0][1]).backward()
        model.zero_grad() if drop == "model" else optimizer.zero_grad(set_to_none=drop == "optimizer")
        losses(model, optimizer, data[1:])
        self.same(model, other)

  def test_only_some_gradients(self):
    """torch.autograd.grad of x, and backward(inputs=…), leave nothing behind for other parameters."""
    for device, rule in self.each(RULES):
      (model, optimizer), (x, target) = self.model(device, rule), batches(1, 48, device)[0]
      other = copy.deepcopy(model)
      x.requires_grad_()
      found = torch.autograd.grad(functional.cross_entropy(model(x), target), x)[0]
      self.near(found, torch.autograd.grad(functional.cross_entropy(other(x), target), x)[0], 1e-6)
      optimizer.step()
      self.same(model, other)
      functional.cross_entropy(model(x), target).backward(inputs=[model[0].fc.bias])
      optimizer.step()
      for (name, a), b in zip(model.named_parameters(), other.parameters()):
        self.assertEqual(torch.equal(a, b), name != "0.fc.bias", name)

  def test_skipped(self):
    for device, rule, clip in self.each(RULES, (None, 3.5)):
      model, optimizer = self.model(device, rule, clip_grad_norm=clip)
      other, others = copy.deepcopy((model, optimizer))
      self.assertEqual(others.clip_grad_norm, clip)
      data = batches(6, 48, device)
      bad = data[2][0].clone()
      bad[3, 4] = float("inf")
      losses(other, others, data[:2] + data[3:])
      with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses(model, optimizer, data[:2] + [(bad, data[2][1])] + data[3:])
      self.assertEqual(optimizer.skipped, 1)
      self.assertEqual([str(w.message).count("a step was skipped") for w in caught], [1])
      if clip:  # a stored gradient that is not finite makes the norm so
        hook = model[1].weight.register_hook(lambda g: g / 0)
        losses(model, optimizer, data[:1])
        hook.remove()
        self.assertEqual(optimizer.skipped, 2)
      self.same(model, other)


class Compiled(Case):
  def compare(self, device, build, rule, precision, parts=1, rows=(48, 48, 32, 48)):
    """The same steps, whole graphs, eager and compiled; both without stored gradients."""
    torch._dynamo.reset()
    name, options = RULES[rule]
    kind = lambda *sizes: Block(*sizes, precision=precision if precision in minnow_torch.PRECISIONS else "fp32")
    start = build(kind).to(device).to(TYPES.get(precision, torch.float32))
    eager, compiled = copy.deepcopy(start), copy.deepcopy(start)
    autocast = {"autocast": torch.bfloat16, "fp16 autocast": torch.float16}.get(precision)
    data = [batches(1, n, device)[0] for n in rows]
    found, rounds = [], autocast or precision in ("bf16 module", "fp16 module")
    for model, run in (eager, eager), (compiled, torch.compile(compiled, fullgraph=True)):
      optimizer = getattr(minnow_torch, name)(model.parameters(), **options)
      blocks = [m for m in model.modules() if isinstance(m, Block)]
      marks = []

      def between():
        marks.append([type(b.fc.weight.grad) for b in blocks])

      found.append(losses(run, optimizer, data, autocast, parts, between))
      if parts == 1 and (run is model or CODE.TAGS):
        self.assertEqual(marks, [[Gradient for _ in blocks]] * len(data))
      x = data[0][0].to(blocks[0].fc.weight.dtype)
      with torch.no_grad():
        y = run(x)
        minnow_torch.forget()
        self.near(y, model(x), 1e-6)
    for a, b in zip(*found):
      self.assertAlmostEqual(a, b, delta=2e-2 if rounds else 1e-5)
    # Generated code keeps floats that eager code rounds.
    self.near(vector(compiled, start), vector(eager, start), 0.2 if rounds else 1e-4)

  def test_steps(self):
    for device, (rule, precision) in self.each((("SGD", "autocast"), ("Nesterov", "fp32"), ("AdamW", "fp16x3"),
                                                ("AdamW", "fp16 autocast"), ("Nesterov", "bf16 module"))):
      if precision in PRECISIONS[device]:
        self.compare(device, several, rule, precision)

  def test_models(self):
    for device, build in self.each((tied, twice)):
      self.compare(device, build, "Nesterov", "fp32", parts=2, rows=(48, 48))

  def test_what_is_not_finite(self):
    """It skips the step, whether the gradient is left, asked for, or stored at once."""
    for device, backend in self.each((None, "aot_eager")):
      warnings.filterwarnings("ignore", "minnow: a step was skipped")
      model, x = Block(16, 16, 4).to(device), torch.randn(8, 16, device=device)
      optimizer = minnow_torch.SGD(model.parameters(), lr=0.1)
      run = model if backend is None else torch.compile(model, backend=backend)
      for i in range(12):
        optimizer.zero_grad()
        run(x / (i % 4 != 3)).square().mean().backward()
        if i > 3:
          model.fc.weight.grad + 0
        optimizer.step()
        self.assertEqual(optimizer.skipped, (i + 1) // 4)
        self.assertTrue(model.fc.weight.isfinite().all())

  def test_ways(self):
    """Steps that are compiled in any of PyTorch's ways end where eager ones with torch.optim end; no hook is called otherwise."""
    def step(model, optimizer, forward, x, seen):
      optimizer.zero_grad()
      forward(x).backward()
      optimizer.step()

    def module(model, optimizer, seen, backend):
      run = torch.compile(model, backend=backend)
      return lambda x: step(model, optimizer, lambda x: run(x).square().mean(), x, seen)

    def hook(model, seen):
      def halve(p):
        p.grad.mul_(0.5)

      model[0].fc.weight.register_hook(lambda grad: seen.append(grad.norm().item()))
      model[1].gn.bias.register_post_accumulate_grad_hook(halve)

    def hooked(model, optimizer, seen, backend):
      hook(model, seen)
      return module(model, optimizer, seen, backend)

    def hooked_later(model, optimizer, seen, backend):
      run = module(model, optimizer, seen, backend)
      run(torch.ones(8, 32, dtype=torch.double, device=model[0].fc.weight.device))
      hook(model, seen)
      return run

    def graphs(model, optimizer, seen, backend):  # two in one backward, and one twice
      runs = [torch.compile(part, backend=backend) for part in model]
      return lambda x: step(model, optimizer, lambda x: sum(runs[1](runs[0](rows)).square().mean() for rows in (x, -x)), x, seen)

    def backward(model, optimizer, seen, backend):
      def run(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        with torch._dynamo.config.patch(compiled_autograd=backend != "eager"):
          torch.compile(lambda: loss.backward(), backend=backend)()
        optimizer.step()
      return run

    def whole(model, optimizer, seen, backend):
      def run(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

      def traced(x):
        with torch._dynamo.config.patch(compiled_autograd=True):
          compiled(x)

      compiled = torch.compile(run, backend=backend)
      return run if backend == "eager" else traced

    for device, (rule, way) in self.each(itertools.product(("SGD", "AdamW"), (module, hooked, hooked_later, graphs, backward, whole))):
      name, options = RULES[rule]
      start, found = nn.Sequential(Block(32, 24, 4), Block(24, 24, 4), nn.Linear(24, 3)).to(device).double(), []
      for optim, backend in ((torch.optim, "eager"), (minnow_torch, "aot_eager"), (torch.optim, "aot_eager")):
        torch._dynamo.reset()
        torch.manual_seed(3)
        model, seen = copy.deepcopy(start), []
        run = way(model, getattr(optim, name)(model.parameters(), **options), seen, backend)
        for _ in range(4):
          run(torch.randn(8, 32, dtype=torch.double, device=device))
        found.append((vector(model, start), torch.tensor([0, *seen])))
      for (values, seen), near in zip(found[1:], (1e-9, 1e-4)):  # compiled, torch.optim's AdamW counts in float32
        self.near(values, found[0][0], near)
        self.near(seen, found[0][1], 1e-6)

  def test_some_gradients(self):
    """Of a backward that does not want them all."""
    def later(model, loss):
      loss.backward(inputs=[model[1].weight])

    def one_vector(model, loss):
      loss.backward(inputs=[model[0].gn.weight, model[1].weight])

    def frozen(*names):
      def run(model, loss):
        for name in names:
          model[0].get_parameter(name).requires_grad_(False)
        loss.backward()
      return run

    ways = later, one_vector, frozen("fc.weight"), frozen("fc.weight", "fc.bias", "gn.weight", "gn.bias"), frozen("gn.bias")
    for device, (precision, way) in self.each(itertools.product(("fp32", "bf16"), ways)):
      torch._dynamo.reset()
      start, x = nn.Sequential(Block(16, 32, 4, precision=precision), nn.Linear(32, 8)).to(device), torch.randn(8, 16, device=device)
      found = []
      for optim, backend in (torch.optim, "eager"), (minnow_torch, "eager"), (minnow_torch, "aot_eager"):
        model = copy.deepcopy(start)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        way(model, (model if backend == "eager" else torch.compile(model, backend=backend))(x).square().mean())
        found.append([None if p.grad is None else p.grad + 0 for p in model.parameters()])
      for grads in found[1:]:
        self.assertEqual([g is None for g in grads], [g is None for g in found[0]])
        for a, b in zip(grads, found[0]):
          if b is not None:
            self.near(a, b, 1e-2)

  def test_fused_steps_of_another(self):
    """torch.optim's fused kernels give a weight that is in our charge no new version, whoever computed its gradient."""
    def compiled(loss):
      with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(lambda: loss.backward(), backend="aot_eager")()

    def again(loss):
      loss.backward(retain_graph=True)
      loss.backward()

    for device, (all_, backward) in self.each(itertools.product((True, False), (
        compiled, again, torch.Tensor.backward, lambda loss: loss.backward(create_graph=True)))):
      warnings.simplefilter("ignore")  # of gradients that PyTorch computes
      torch._dynamo.reset()
      model = Block(16, 32, 4, precision="bf16").to(device)
      weight, vectors = model.fc.weight, list(model.parameters())[1:]
      ours = minnow_torch.SGD([weight, *vectors] if all_ else [weight], lr=0.1)
      other, x = torch.optim.SGD([weight], lr=5.0, fused=True), torch.randn(8, 16, device=device)
      for i in range(6):
        for p in vectors:
          p.requires_grad_(all_ or i % 2 == 0)
        other.zero_grad()
        y = model(x)
        with torch.no_grad():
          self.assertTrue(torch.equal(y, copy.deepcopy(model)(x)))
          self.assertTrue(torch.equal(y, model(x)))
        backward(y.square().mean())
        other.step()
      del ours

  def test_every_count_of_rows(self):
    """No plan is of tensors that were fake: 2 rows are what a trace is made of."""
    for device, in self.each():
      torch._dynamo.reset()
      model = nn.Sequential(Block(7, 24, 3), nn.Linear(24, 10)).to(device)
      optimizer, run = minnow_torch.SGD(model.parameters(), lr=0.01), torch.compile(model, dynamic=True)
      for rows, way in itertools.product((8, 2, 3), (run, model)):
        optimizer.zero_grad()
        way(torch.randn(rows, 7, device=device)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
          self.assertTrue(way(torch.randn(rows, 7, device=device)).isfinite().all())

  def test_optimizers_that_change(self):
    """A model that is compiled before its optimizer is made, goes on with another's, and with torch.optim's."""
    for device, in self.each():
      torch._dynamo.reset()
      model = one(Block).to(device)
      run, data = torch.compile(model, fullgraph=True), batches(2, 48, device)
      kinds = []
      for make in (torch.optim.SGD, minnow_torch.SGD, lambda p, lr: minnow_torch.SGD(p, lr, fused=False), minnow_torch.AdamW,
                   torch.optim.SGD):
        optimizer = make(model.parameters(), lr=0.01)
        before = model[0].fc.weight.detach().clone()
        losses(run, optimizer, data, between=lambda: kinds.append(type(model[0].fc.weight.grad)))
        self.assertFalse(torch.equal(before, model[0].fc.weight))
        del optimizer
      plain, mark = torch.Tensor, Gradient if CODE.TAGS else torch.Tensor
      self.assertEqual(kinds[::2], [plain, mark, mark, mark, plain])

  @unittest.skipUnless(CODE.TAGS, "an older PyTorch")
  def test_made_within(self):
    """A model and its optimizer that compiled code makes."""
    def train(x):
      model = Block(16, 8, 4, device=x.device)
      optimizer = minnow_torch.SGD(model.parameters(), lr=0.1)
      model(x).square().mean().backward()
      optimizer.step()
      return model

    for device, in self.each():
      torch._dynamo.reset()
      self.assertTrue(torch.compile(train, backend="aot_eager")(torch.ones(4, 16, device=device)).fc.weight.isfinite().all())

  def test_steps_without_a_block(self):
    """A Block that a step leaves out is compiled anew, to store its gradients."""
    for device in DEVICES:
      torch._dynamo.reset()
      start = nn.ModuleList([Block(32, 32, 4), Block(32, 32, 4), nn.Linear(32, 10)]).to(device).double()
      data, models = batches(7, 48, device), [start, copy.deepcopy(start)]
      for model, module in zip(models, (minnow_torch, torch.optim)):
        optimizer = module.AdamW(model.parameters(), lr=0.01)

        def loss(x, target, both):
          y = model[0](x)
          return functional.cross_entropy(model[2](model[1](y) if both else y), target)

        run = torch.compile(loss, fullgraph=True)
        for step, (x, target) in enumerate(data):
          run(x.double(), target, step != 3).backward()
          optimizer.step()
          optimizer.zero_grad()
      for a, b in zip(*(m.parameters() for m in models)):
        self.near(a.detach(), b.detach(), 1e-9)


class Order(Case):
  def test_a_backward_after_the_step(self):
    """The weight is no longer the one that the forward saw."""
    for device in DEVICES:
      model = one(Block).to(device)
      optimizer, x = minnow_torch.SGD(model.parameters(), lr=0.1), torch.randn(8, 32, device=device, requires_grad=True)
      loss = model(x).square().mean()
      loss.backward(retain_graph=True)
      optimizer.step()
      with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
        loss.backward()


class Asked(Case):
  """Whatever asks for a gradient gets torch.optim's."""

  def equal(self, device, rule, train, build=several, **options):
    """Own model and optimizer end where plain ones and torch.optim's do."""
    name, named = RULES[rule]
    start, own = build(plain).to(device).double(), build(Block).to(device).double()
    own.load_state_dict(start.state_dict())
    told = [train(model, getattr(module, name)(model.parameters(), **named, **options), batches(4, 16, device))
            for model, module in ((own, minnow_torch), (start, torch.optim)) if torch.manual_seed(4)]
    self.near(*(torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values or (1,)]) for values in told), 1e-9)
    for a, b in zip(own.parameters(), start.parameters()):
      self.near(a.detach(), b.detach(), 1e-9)
      self.assertEqual(a.grad is None, b.grad is None)
      if a.grad is not None:
        self.near(a.grad, b.grad, 1e-9)

  def trains(self, act):
    """A training that does this between backward and step."""
    def train(model, optimizer, data):
      values = []
      for x, target in data:
        optimizer.zero_grad()
        functional.cross_entropy(model(x.double()), target).backward()
        found = act(model, optimizer)
        optimizer.step()
        values += [] if found is None else [found]
      return values
    return train

  def test_values(self):
    ways = {"a norm": lambda model, _: model[0].fc.weight.grad.norm().item(),
            "an edit": lambda model, _: (model[0].gn.bias.grad.mul_(2), None)[1],
            "clipping by value": lambda model, _: nn.utils.clip_grad_value_(model.parameters(), 1e-3),
            "clipping by norm": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.01),
            "without foreach": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.01, foreach=False),
            "with foreach": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.01, foreach=True),
            "another": lambda model, _: setattr(model[2].fc.weight, "grad", torch.ones_like(model[2].fc.weight)),
            "none": lambda model, _: setattr(model[2].fc.bias, "grad", None),
            "two steps": lambda _, optimizer: optimizer.step(),
            "a count of steps": lambda model, optimizer: optimizer.state[model[0].fc.weight].get("step", torch.zeros(())).add_(3) and None,
            "no state": lambda _, optimizer: optimizer.state.clear(),
            "on the CPU and back": lambda model, _: [model.to(device) for device in ("cpu", model[0].fc.weight.device)] and None,
            "on the CPU for a step": lambda model, optimizer: [act() for where in [model[0].fc.weight.device] for act in (
                model.cpu, optimizer.step, lambda: model.to(where)) if optimizer.defaults.get("momentum") == 0] and None,
            "a copy": lambda model, _: copy.deepcopy(model[0].fc.weight.grad).norm(),
            "a file": lambda model, _: torch.save(model[0].fc.weight.grad, io.BytesIO())}
    for device, rule, way in self.each(RULES, ways):
      self.equal(device, rule, self.trains(ways[way]))

  def test_loops(self):
    """Gradients that stay, that are accumulated, and that hooks change."""
    def stays(model, optimizer, data):
      for x, target in data:
        functional.cross_entropy(model(x.double()), target).backward()
        optimizer.step()

    def hooked(model, optimizer, data):
      seen = []
      model[0].fc.weight.register_hook(lambda grad: 2 * grad)
      model[2].gn.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm().item()))
      losses(model, optimizer, data)
      return seen

    def outside(model, optimizer, data):
      for x, target in data:
        optimizer.zero_grad()
        (functional.cross_entropy(model(x.double()), target) + model[0].fc.weight.square().sum()).backward()
        optimizer.step()

    def twice_derived(model, optimizer, data):
      for x, target in data:
        optimizer.zero_grad()
        found = torch.autograd.grad(functional.cross_entropy(model(x.double()), target), list(model.parameters()), create_graph=True)
        sum([g.square().sum() for g in found]).backward()
        optimizer.step()

    def asked(model, optimizer, data):
      return [torch.autograd.grad(functional.cross_entropy(model(x.double()), target), model[0].fc.weight)[0].norm()
              for x, target in data]

    for device, rule in self.each(RULES):
      for train in stays, hooked, outside, asked:
        self.equal(device, rule, train)
      with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        self.equal(device, rule, twice_derived)

  def test_options(self):
    """What minnow's update has not is torch.optim's, from the start and set later."""
    for device, (rule, option, value) in self.each((("SGD", "dampening", 0.5), ("Nesterov", "maximize", True), ("SGD", "foreach", True),
                                                    ("AdamW", "amsgrad", True), ("AdamW", "maximize", True), ("SGD", "fused", False),
                                                    ("AdamW", "decoupled_weight_decay", False))):
      if option != "decoupled_weight_decay":  # of a group alone
        self.equal(device, rule, lambda *given: losses(*given), **{option: value})

      def later(model, optimizer, data):
        losses(model, optimizer, data[:2])
        optimizer.param_groups[0][option] = value
        losses(model, optimizer, data[2:])

      if option != "amsgrad":
        self.equal(device, rule, later)

  def test_rows_that_change(self):
    """The update does not take the next rows for those of its backward: a Block's output, or, on a GPU, anything."""
    for device, rule, way in self.each(RULES, ("output", "input", "checked")):
      model, x = one(Block).to(device).double(), torch.randn(8, 32, device=device).double()
      if way == "output" or device == "cpu":
        x = x.requires_grad_().clone()
      minnow_torch.check(way == "checked")
      optimizer = getattr(minnow_torch, RULES[rule][0])(model.parameters(), lr=0.1)
      before = copy.deepcopy(model.state_dict())
      model(x).square().mean().backward()
      (x.data if way == "checked" else x.detach()).add_(1)
      minnow_torch.check(False)
      with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
        optimizer.step()
      for part in 2 * (model[0].fc.weight, model[0].fc.bias, model[0].gn.weight):  # nothing half done is found later
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
          part.grad.norm()
      for name, value in model.state_dict().items():
        self.assertTrue(torch.equal(value, before[name]), name)

  def test_rows_that_may_change(self):
    """A model's inputs on the CPU, whoever writes them; and rows that are trained, by fused kernels too."""
    def refilled(model, optimizer, data):
      buffer = numpy.zeros((4, 32))
      x = torch.from_numpy(buffer)
      for rows, target in data:
        buffer[:4] = rows[:4]
        optimizer.zero_grad()
        functional.cross_entropy(model(x), target[:4]).backward()
        buffer[:] = 0
        optimizer.step()

    def codes(model, optimizer, data):
      x = torch.ones(4, 32, dtype=torch.double, device=data[0][0].device, requires_grad=True)
      other = torch.optim.AdamW([x], lr=0.5, fused=True)
      for k, (_, target) in enumerate(data):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:] if k % 2 else x), target[:4]).backward()
        other.step()
        optimizer.step()

    for device, rule, train in self.each(RULES, (refilled, codes)):
      if device == "cpu" or train is codes:
        self.equal(device, rule, train)

  def test_blocks_that_take_turns(self):
    """Each parameter's steps are its own, whoever else takes part."""
    def turns(model, optimizer, data):
      for step in range(24):
        x, target = data[step % 4]
        optimizer.zero_grad()
        y = sum([block(x.double()) for i, block in enumerate(model) if (step * 7 + i * 5) % 3 or step % 5 == i])
        functional.cross_entropy(y, target).backward()
        optimizer.step()

    for device, rule in self.each(RULES):
      self.equal(device, rule, turns, lambda kind: nn.ModuleList([kind(32, 16, 2) for _ in range(4)]))

  def test_small_weights(self):
    """Where others are updated anyway, and in compiled code, their gradients are stored; a value that is not finite skips the
    step there too."""
    for device, rule, alone in self.each(RULES, (False, True)):
      with unittest.mock.patch.dict(LEAST, USUAL), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "minnow: a step was skipped")
        model = nn.Sequential(Block(32, 16, 4), Block(16, 16, 4), *([] if alone else [nn.Linear(16, 3)])).to(device)
        optimizer = getattr(minnow_torch, RULES[rule][0])(model.parameters(), **RULES[rule][1])
        for bad, run in itertools.product((False, True), (model, torch.compile(model, backend="aot_eager"))):
          before = [p.detach().clone() for p in model.parameters()]
          optimizer.zero_grad()
          run(torch.ones(4, 32, device=device)).square().sum().mul(float("inf") if bad else 1).backward()
          self.assertEqual({type(p.grad) for p in model.parameters()},
                           {Gradient if alone and run is model else torch.Tensor})
          optimizer.step()
          self.assertEqual([torch.equal(a, b) for a, b in zip(before, model.parameters())].count(not bad), 0)
        self.assertEqual(optimizer.skipped, 2)
        self.assertEqual({float(state["step"]) for state in optimizer.state.values() if "step" in state} - {2}, set())
        self.equal(device, rule, lambda model, optimizer, data: losses(model, optimizer, [(x.double(), t) for x, t in data]))

  def test_one_parameter_twice(self):
    def build(kind):
      model = one(kind)
      model[0].gn.bias = model[0].fc.bias
      return model

    for device, rule in self.each(RULES):
      self.equal(device, rule, lambda *given: losses(*given), build)

  def test_asked_for_in_each_step(self):
    """A gradient that each step asks for is stored at once; not for long after it is asked for no more."""
    for device, (rule, backend) in self.each(itertools.product(RULES, ("eager", "aot_eager") if CODE.TAGS else ("eager",))):
      kinds = []

      def train(model, optimizer, data):
        torch._dynamo.reset()
        found, run = [], model if backend == "eager" else torch.compile(model, backend=backend)
        for i in range(90):
          x, target = data[i % 4]
          optimizer.zero_grad()
          functional.cross_entropy(run(x.double()), target).backward()
          found.append("left" if type(model[0].fc.weight.grad) is Gradient else "stored")
          if i < 8 or i in (80, 82):
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
          optimizer.step()
        kinds.append(found)
        return []

      self.equal(device, rule, train, one)
      self.assertEqual(kinds[0][:9], 3 * ["left"] + 6 * ["stored"])
      self.assertLess(kinds[0].index("left", 8), 8 + 64)
      self.assertEqual(kinds[0][72:], 18 * ["left"])

  def test_refresh_of_groups_of_one(self):
    """Which one row would not do for, of planes as a GPU keeps them."""
    for device, in self.each():
      model, x = Block(16, 8, 8).to(device), torch.randn(4, 16, device=device)
      optimizer = minnow_torch.SGD(model.parameters(), lr=0.1)
      for _ in range(2):
        model(x).square().sum().backward()
        optimizer.step()
      own = minnow_torch.gradient.trained[id(model.fc.weight)]
      own.planes.setdefault(own.plan.context, [None, None, None, own.plan])
      optimizer.refresh()

  def test_what_was_dropped(self):
    """A backward whose gradients were dropped skips no later step, and leaves no memory behind."""
    for device, way in self.each(("optimizer", "model", "model, between")):
      model = nn.ModuleList([Block(32, 16, 2), Block(32, 16, 2)]).to(device)
      optimizer, x = minnow_torch.SGD(model.parameters(), lr=0.1), torch.randn(8, 32, device=device)
      rows = x + float("nan")
      if "between" in way:
        model[1](x).square().sum().backward()
      model[0](rows).sum().backward()
      (optimizer if way == "optimizer" else model[0]).zero_grad()
      before, seen = model[1].fc.weight.detach().clone(), weakref.ref(rows)
      del rows
      if "between" not in way:
        model[1](x).square().sum().backward()
      optimizer.step()
      self.assertEqual(optimizer.skipped, 0)
      self.assertFalse(torch.equal(before, model[1].fc.weight))
      self.assertIsNone(seen())
      left = weakref.ref(minnow_torch.gradient.trained[id(model[1].fc.weight)])
      del model, optimizer  # with a gradient that nobody took
      gc.collect()
      self.assertIsNone(left())

  def test_what_was_not_dropped(self):
    """Two branches of one backward, and a weight that is frozen: what one of them met skips the step."""
    for device, bad, frozen in self.each((0, 1), (False, True)):
      model = Block(32, 16, 2).to(device)
      model.fc.weight.requires_grad_(not frozen)
      optimizer, x = minnow_torch.SGD([*model.parameters(), nn.Parameter(torch.ones(3, device=device))], lr=0.1), torch.randn(8, 32, device=device)
      for stored in (False, True):
        optimizer.zero_grad()
        if stored and not frozen:
          model.fc.weight.register_hook(lambda grad: None)
        torch.autograd.backward([model(x).sum() * (float("nan") if i == bad else 1) for i in range(2)])
        with warnings.catch_warnings():
          warnings.filterwarnings("ignore", "minnow: a step was skipped")
          optimizer.step()
      self.assertEqual(optimizer.skipped, 2)
      self.assertTrue(all(p.isfinite().all() for p in model.parameters()))

  def test_subclasses(self):
    class Mine(minnow_torch.AdamW):
      def __init__(self, parameters):
        super().__init__(parameters, lr=0.01)

    model = Block(32, 16, 2)
    optimizer = Mine(model.parameters())
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
    self.assertIn("clip_grad_norm", inspect.signature(minnow_torch.AdamW).parameters)
    self.assertNotIn("clip_grad_norm", inspect.signature(Mine).parameters)

  def test_a_default_device(self):
    """What the optimizer keeps is where its parameters are, whatever PyTorch's default is."""
    for device, rule in self.each(RULES):
      model, ((x, target),) = one(Block).to(device), batches(1, 8, device)
      with torch.device("meta"):
        optimizer = getattr(minnow_torch, RULES[rule][0])(model.parameters(), **RULES[rule][1])
        functional.cross_entropy(model(x), target).backward()
        optimizer.step()
      self.assertEqual(optimizer.skipped, 0)

  def test_orders(self):
    """A group's parameters may be in any order, also where C writes the weight's planes."""
    for device, rule, precision in self.each(RULES, ("fp32", "fp16")):
      torch.manual_seed(4)
      models = [one(lambda *sizes: Block(*sizes, precision=precision)).to(device) for _ in range(2)]
      models[1].load_state_dict(models[0].state_dict())
      name, options = RULES[rule]
      data, made = batches(6, 8, device), []
      for model, order in zip(models, (1, -1)):
        made.append(getattr(minnow_torch, name)(list(model.parameters())[::order], **options))
        losses(model, made[-1], data)
      for a, b in zip(*(model.parameters() for model in models)):
        self.assertLess((a - b).abs().max().item(), 1e-6)

  def test_rates(self):
    """As torch.optim takes them."""
    for device, rate in self.each(((torch.tensor([0.1]), torch.tensor(0.1), numpy.array(0.1), numpy.float32(0.1)))):
      models = [one(Block).to(device).double()]
      models.append(copy.deepcopy(models[0]))
      for model, module in zip(models, (minnow_torch, torch.optim)):
        optimizer = module.SGD(model.parameters(), lr=0.2, foreach=False)
        optimizer.param_groups[0]["lr"] = rate if not torch.is_tensor(rate) or CODE.TAGS else rate.item()  # 2.4 takes none there
        model(torch.ones(8, 32, dtype=torch.double, device=device)).square().mean().backward()
        optimizer.step()
      for a, b in zip(*(model.parameters() for model in models)):
        self.near(a.detach(), b.detach(), 1e-9)

  def test_gradients_that_jump(self):
    """By three thousand, from step to step, where products read float16s; nobody's gradient is infinite."""
    for device, read in self.each((False, True)):
      torch.manual_seed(4)
      models = [Block(64, 64, 8).to(device)]
      models.append(copy.deepcopy(models[0]))
      x, factors = torch.randn(64, 64, device=device), torch.arange(64, device=device)
      for model, module in zip(models, (minnow_torch, torch.optim)):
        optimizer = module.SGD(model.parameters(), lr=1e-5)
        for step in range(8):
          optimizer.zero_grad()
          with torch.autocast(x.device.type, torch.float16):
            y = model(x)
          ((y.float() * factors).mean() * (3000 if step % 2 else 1)).backward()
          self.assertTrue(not read or model.fc.weight.grad.isfinite().all())
          optimizer.step()
      for a, b in zip(*(model.parameters() for model in models)):
        self.near(a.detach(), b.detach(), 1e-6)

  def test_a_conversion_behind_the_backward(self):
    """The gradients are of the parameters' new type, as torch's."""
    for device, kind in self.each(("double", "bfloat16")):
      torch.manual_seed(4)
      models = [one(Block).to(device)]
      models.append(copy.deepcopy(models[0]))
      for model, module in zip(models, (minnow_torch, torch.optim)):
        optimizer = module.SGD(model.parameters(), lr=0.1)
        model(torch.ones(8, 32, device=device)).square().mean().backward()
        getattr(model, kind)()
        model.grads = [p.grad for p in model.parameters()]
        optimizer.step()
      for a, b, p, q in zip(*(model.grads for model in models), *(model.parameters() for model in models)):
        self.assertIs(a.dtype, b.dtype)
        self.near(a.double(), b.double(), 1e-6 if kind == "double" else 1e-2)
        self.near(p.detach().double(), q.detach().double(), 1e-6 if kind == "double" else 1e-2)

  def test_frozen_behind_the_forward(self):
    """Such a parameter gets no gradient."""
    for device, part, compiled in self.each(("0.fc.weight", "0.gn.bias", "0", ""), (False, True)):
      torch._dynamo.reset()

      def train(model, optimizer, data):
        run = torch.compile(model, backend="aot_eager") if compiled else model
        for x, target in data:
          optimizer.zero_grad()
          y = functional.cross_entropy(run(x.double()), target)
          for at in (model.get_parameter(part),) if part.endswith(("weight", "bias")) else model.get_submodule(part).parameters():
            at.requires_grad_(False)
          if any([p.requires_grad for p in model.parameters()]):
            y.backward()
          optimizer.step()
          model.requires_grad_(True)
        return []
      self.equal(device, "Nesterov", train)

  def test_a_rate_with_a_gradient(self):
    """Nothing of a step stays in a graph."""
    for device, rule in self.each(RULES):
      model, ((x, target),) = one(Block).to(device), batches(1, 8, device)
      name, options = RULES[rule]
      optimizer = getattr(minnow_torch, name)(model[0].parameters(), **{**options, "lr": torch.tensor(0.01, requires_grad=True)})
      for _ in range(2):
        functional.cross_entropy(model(x), target).backward()
        optimizer.step()
      for rates in optimizer._rates.values():
        self.assertFalse(any(rate.memory.requires_grad for rate in rates))

  def test_gradients_of_another_precision(self):
    """A step by what an earlier backward left makes the planes new that it was left with, and no others."""
    for device, in self.each():
      model, x = Block(64, 64, 8, precision="fp16").to(device), torch.randn(16, 64, device=device)
      optimizer = minnow_torch.SGD(model.parameters(), lr=0.5)

      def backward(cast):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
          y = model(x)
        y.float().square().sum().backward()
        found = [p.grad for p in model.parameters()]
        optimizer.zero_grad()
        return found

      first, _ = backward(False), backward(True)
      for p, grad in zip(model.parameters(), first):
        p.grad = grad
      optimizer.step()
      other = copy.deepcopy(model)
      with torch.autocast(x.device.type, torch.bfloat16), torch.no_grad():
        self.assertTrue(torch.equal(model(x), other(x)))

  def test_compiled_with_a_narrow_vector(self):
    model = Block(64, 64, 8)
    model.fc.bias = nn.Parameter(model.fc.bias.detach().bfloat16())
    optimizer = minnow_torch.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cpu", torch.bfloat16):
      y = torch.compile(model, backend="aot_eager")(torch.randn(16, 64))
    y.float().square().mean().backward()
    self.assertIs(model.fc.bias.grad.dtype, torch.bfloat16)
    optimizer.step()

  def test_looks(self):
    model = one(Block)
    optimizer = minnow_torch.SGD(model.parameters(), lr=0.1)
    functional.cross_entropy(model(batches(1, 8, "cpu")[0][0]), torch.arange(8)).backward()
    grad = model[0].fc.weight.grad
    self.assertEqual((grad.size(dim=0), grad.stride(dim=0), grad.numel(), grad.dtype), (64, 32, 64 * 32, torch.float32))
    self.assertIsNone(grad.values)
    optimizer.zero_grad()

  def test_grad_scaler(self):
    for device, rule, clip in self.each(RULES, (False, True)):
      def train(model, optimizer, data):
        scaler, seen = torch.amp.GradScaler(device, init_scale=64.0), []
        for i, (x, target) in enumerate(data):
          optimizer.zero_grad()
          loss = functional.cross_entropy(model(x.double()), target) * (float("inf") if i == 2 else 1)
          scaler.scale(loss).backward()
          if clip:
            scaler.unscale_(optimizer)
            if i != 2:
              seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
          scaler.step(optimizer)
          scaler.update()
          seen.append(scaler.get_scale())
        optimizer.zero_grad()
        return seen

      with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        self.equal(device, rule, train)

  def test_distributed(self):
    with tempfile.TemporaryDirectory() as folder:
      os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
      torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
      try:
        for rule in RULES:
          self.equal("cpu", rule, lambda model, optimizer, data: losses(
              nn.parallel.DistributedDataParallel(model), optimizer, [(x.double(), target) for x, target in data]))
      finally:
        torch.distributed.destroy_process_group()


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class Graphs(Case):
  def test_step(self):
    """Replays of a captured step are steps; evaluations after them read the new weights; what is written between them is
    noticed."""
    unfused = [(rule, "fp32", {"foreach": True}) for rule, (name, _) in RULES.items() if name == "AdamW"]
    for rule, precision, more in [*itertools.product(RULES, PRECISIONS["cuda"], [{}]), *unfused]:
      with self.subTest(rule=rule, precision=precision, **more):
        name, options = RULES[rule]
        torch.manual_seed(3)
        dtype = TYPES.get(precision, torch.float32)
        model = one(lambda *sizes: Block(*sizes, precision="fp32" if precision == "fp32" else "fp16x3")).cuda().to(dtype)
        start, more = copy.deepcopy(model.state_dict()), {**more, **({"capturable": True} if name == "AdamW" else {})}
        rate = torch.tensor(options["lr"], device="cuda")
        optimizer = getattr(minnow_torch, name)(model.parameters(), **{**options, **more, "lr": rate})
        autocast = {"autocast": torch.bfloat16, "fp16 autocast": torch.float16}.get(precision)
        data = batches(8, 48, "cuda")
        x, target = (t.clone() for t in data[0])

        def step():
          optimizer.zero_grad()
          with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
            y = model(x.to(dtype))
          loss = functional.cross_entropy(y.to(dtype), target)
          loss.backward()
          optimizer.step()
          return loss.detach()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
          for _ in range(2):
            step()
        torch.cuda.current_stream().wait_stream(side)
        other, others = copy.deepcopy((model, optimizer))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
          loss = step()
        found = []
        for batch in data:
          x.copy_(batch[0]), target.copy_(batch[1])
          graph.replay()
          found.append(loss.item())
        expected = losses(other, others, data, autocast)
        for some, opt in (model, optimizer), (other, others):
          some.load_state_dict(start)
          opt.param_groups[0]["lr"].mul_(0.5)
        optimizer.refresh()
        for batch in data[:3]:
          x.copy_(batch[0]), target.copy_(batch[1])
          graph.replay()
          found.append(loss.item())
        expected += losses(other, others, data[:3], autocast)
        for a, b in zip(found, expected):
          self.assertAlmostEqual(a, b, delta=1e-2 if dtype.itemsize == 2 else 1e-4)
        for a, b in zip(model.parameters(), other.parameters()):
          self.near(a.detach(), b.detach(), 1e-3 if dtype.itemsize == 2 else 1e-5)
        with torch.no_grad(), torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
          y = model(x.to(dtype))
          minnow_torch.forget()
          self.assertTrue(torch.equal(y, model(x.to(dtype))))

  def test_streams(self):
    """What one stream makes late, another waits for."""
    block, x = Block(512, 256, 8, precision="bf16").cuda(), torch.randn(48, 512, device="cuda")
    optimizer, late = minnow_torch.SGD(block.parameters(), lr=0.1), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(late):
      torch.cuda._sleep(200_000_000)
      block(x)  # makes the weight's planes
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
      found = block(x)
    torch.cuda.synchronize()
    minnow_torch.forget()
    self.assertTrue(torch.equal(found, block(x)))
    self.assertEqual(optimizer.skipped, 0)

  def test_recorded_by_compile(self):
    """torch.compile with CUDA graphs of its own."""
    for least, module in ({}, minnow_torch), (USUAL, minnow_torch), ({}, torch.optim):
      torch._dynamo.reset()
      eager, data = several(Block).cuda(), batches(8, 48, "cuda")
      recorded, found = copy.deepcopy(eager), []
      with unittest.mock.patch.dict(LEAST, least):
        for model, run in (eager, eager), (recorded, torch.compile(recorded, mode="reduce-overhead")):
          for _ in range(3):
            optimizer = module.SGD(model.parameters(), lr=0.05, momentum=0.9)
            losses(run, optimizer, data)
            with torch.no_grad():
              found.append(run(data[0][0]).clone())
      for a, b in zip((*recorded.parameters(), *found[3:]), (*eager.parameters(), *found[:3])):
        self.near(a.detach(), b.detach(), 1e-4)


if __name__ == "__main__":
  print(f"PyTorch {torch.__version__}, {', '.join(DEVICES)}", file=sys.stderr)
  unittest.main(verbosity=2)
