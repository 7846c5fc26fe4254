"""Training loops that are drawn at random: minnow's Block and optimizers end where PyTorch's modules and torch.optim do.

    MINNOW_LIBRARY=build/libminnow.so python3 tests/torch_loops.py

A loop is a list of lines of Python, which are run twice: with kind = Block and optim = minnow_torch, and with kind = Model
and optim = torch.optim. Each line has to return or raise the same, and to leave the same parameters; at the end gradients
and the optimizers' states are compared too. A loop that differs is printed, and PRELUDE is what stands before it.

COUNT=1000 is how many loops are drawn (300), the same ones each time; FIRST=40 is the first of them (0)."""
import copy
import io
import os
import pickle
import random
import sys
import unittest
import warnings

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from test_torch import LEAST, USUAL, Block, Case, Model, minnow_torch

SIDES = (Block, minnow_torch), (Model, torch.optim)
TOLERANCE = 1e-9

PRELUDE = """
def loss(i, skip=(), part=slice(None), reduction="mean", through=lambda layer, x: layer(x)):
  x, target = data[i]
  x, target = x[part], target[part]
  for number, layer in enumerate(model):
    if number not in skip:
      x = through(layer, x)
  return getattr((x - target).square(), reduction)()

def closure():
  optimizer.zero_grad()
  l = loss(1)
  l.backward()
  return l

def note(name, value):  # in a hook, which has no place in the order of the others'
  log.setdefault(name, []).append(value)

def do(*_):  # what a hook does that returns nothing
  pass

def node(p):  # which lives as long as it is held
  nodes.append(p.expand_as(p).grad_fn.next_functions[0][0])
  return nodes[-1]

def restored(value):
  file = io.BytesIO()
  torch.save(value, file)
  return torch.load(io.BytesIO(file.getvalue()))

def gradients():
  return [p.grad for p in model.parameters() if p.grad is not None]

def states(*optimizers):  # without what may differ: minnow's are fused
  return [(o.state_dict()["state"], [{k: len(v) if k == "params" else v for k, v in g.items() if k not in ("fused", "foreach")}
                                     for g in o.param_groups]) for o in optimizers]

log, handles, nodes, scheduler, held = {}, [], [], None, None
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
"""

# What a loop is made of. Names in braces are drawn: {p} and {q} parameters, {b} a Block, {i} and {j} batches.
ZERO = ["optimizer.zero_grad()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)", "model.zero_grad()",
        "for p in model.parameters(): p.grad = None"]
BACKWARD = [
    "loss({i}).backward()",
    "(0.1 * loss({i}, reduction='sum')).backward()",
    "loss({i}, skip={skip}).backward()",
    "loss({i}).backward(); loss({j}, skip={skip}).backward()",
    "(loss({i}) + loss({j}, skip={skip})).backward()",
    "for part in range(3): (loss({i}, part=slice(part, None, 3)) / 3).backward()",
    "l = loss({i}); l.backward(retain_graph=True); l.backward()",
    "l = loss({i}); l.backward(); l.backward()",
    "loss({i}).backward(inputs=[{p}, {q}])",
    "(loss({i}) + 0.01 * {p}.square().sum()).backward()",
    "{p}.square().sum().backward()",
    "loss({i}).backward(); {p}.square().sum().backward()",
    "loss({i}, through=lambda layer, x: checkpoint(layer, x, use_reentrant=False)).backward()",
    "data[{i}][0].requires_grad_(); loss({i}, through=lambda layer, x: checkpoint(layer, x, use_reentrant=True)).backward()",
    "result = torch.autograd.grad(loss({i}), [{p}, {q}], allow_unused=True); loss({j}).backward()",
    "l = loss({i}); result = torch.autograd.grad(l, {p}, retain_graph=True, allow_unused=True); l.backward()",
    "for p, g in zip(model.parameters(), torch.autograd.grad(loss({i}), [*model.parameters()])): p.grad = g",
    "data[{i}][0].requires_grad_(); loss({i}).backward(); result = data[{i}][0].grad",
    "scaler.scale(loss({i})).backward(); scaler.step(optimizer); scaler.update(); result = scaler.get_scale()",
    "l = loss({i}); optimizer.step(); l.backward()",
    "l = loss({i}); g = torch.autograd.grad(l, {p}, create_graph=True)[0]; (l + 0.1 * g.square().sum()).backward()",
    "loss({i}).backward(create_graph=True)",
    "result = torch.autograd.grad(loss({i}), [{p}, {q}], torch.eye(3, dtype=torch.float64)[0], is_grads_batched=True, allow_unused=True)",
    "result = torch.autograd.functional.jacobian(lambda x: model(x).sum(0), data[{i}][0], vectorize=True); loss({j}).backward()",
    "l = loss({i})\nwith torch.no_grad(): {r}.mul_(0.9)\nl.backward()"]  # of which gn.bias is an error, as saved tensors are
STEP = ["optimizer.step()"] * 8 + [
    "optimizer.step(); optimizer.step()", "optimizer.step(closure)", "optimizer.step(lambda: loss({i}))",
    "optimizer.step(); scheduler and scheduler.step()", "second.step()", "optimizer.step(); second.step()",
    "with torch.no_grad(): [p.sub_(p.grad, alpha=0.01) for p in model.parameters() if p.grad is not None]"]
SCALE = [
    "nn.utils.clip_grad_norm_(model.parameters(), {bound}, foreach={foreach})",
    "nn.utils.clip_grad_norm_([{p}, {q}], {bound})",
    "nn.utils.clip_grad_value_(model.parameters(), {bound})",
    "{p}.grad.mul_({k})", "{p}.grad = {p}.grad * {k}", "{p}.grad *= {k}", "{p}.grad.add_(0.1)", "{p}.grad.zero_()",
    "{p}.grad.data.mul_({k})", "{p}.grad.data = {p}.grad.data * {k}", "{p}.grad.copy_({p}.detach())", "{p}.grad[0] = 0.1",
    "{p}.grad = None", "{p}.grad = torch.ones_like({p})", "{p}.grad = {p}.grad.clone()", "{p}.grad = {p}.detach().clone()",
    "{p}.grad.detach_()", "torch._foreach_mul_(gradients(), {k})", "for g in gradients(): g.mul_({k})",
    "model[{b}].gn.weight.grad, model[{b}].gn.bias.grad = model[{b}].gn.bias.grad, model[{b}].gn.weight.grad"]
READ = [
    "{p}.grad.norm()", "{p}.grad.abs().sum()", "{p}.grad.sum().item()", "{p}.grad.numpy().copy()", "{p}.grad.clone()",
    "{p}.grad.tolist()", "float({p}.grad.max())", "copy.deepcopy({p}.grad)", "restored({p}.grad)", "restored(gradients())",
    "pickle.loads(pickle.dumps({p}.grad))", "[p.grad is None for p in model.parameters()]", "{p}.grad is {p}.grad",
    "{p}.grad.shape, {p}.grad.dtype, {p}.grad.stride(), {p}.grad.device", "{p}.grad.requires_grad, {p}.grad.is_leaf",
    "torch.stack([g.norm() for g in gradients()])", "nn.utils.parameters_to_vector(gradients())", "gradients()",
    "held = {p}.grad", "held", "held is {p}.grad", "torch.cat([{p}.grad.flatten(), {q}.grad.flatten()])",
    "with torch.no_grad(): result = loss({i})", "loss({i}, skip={skip}).item()",
    "restored(optimizer.state_dict()['state'])", "restored(model.state_dict())"]
CHANGE = [
    "{p}.requires_grad_({flag})", "model[{b}].requires_grad_({flag})",
    "with torch.no_grad(): {p}.mul_(0.9)", "{p}.data.mul_(0.9)", "{p}.data = {p}.data * 0.9",
    "nn.utils.vector_to_parameters(0.9 * nn.utils.parameters_to_vector(model.parameters()).detach(), model.parameters())",
    "kept = copy.deepcopy(model.state_dict())", "model.load_state_dict(kept)", "model.load_state_dict(kept, strict=False)",
    "model.load_state_dict(copy.deepcopy(kept), assign=True)",
    "state = copy.deepcopy(optimizer.state_dict())", "optimizer.load_state_dict(state)",
    "given = copy.deepcopy(optimizer.state_dict()); optimizer = make(torch.optim); optimizer.load_state_dict(given)",
    "given = copy.deepcopy(optimizer.state_dict()); optimizer = make(optim); optimizer.load_state_dict(given)",
    "model, optimizer, scheduler = copy.deepcopy((model, optimizer, scheduler))",
    "model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))",
    "ema = AveragedModel(model); ema.update_parameters(model); result = [*ema.parameters()]",
    "model.double()", "model.float().double()", "model.to(torch.float64)",
    "optimizer = make(optim)", "second = {optimizer}(model.parameters(), lr=0.01)", "second.zero_grad()",
    "torch.optim.{name}(model.parameters(), lr=0.01).step()",
    "optimizer.add_param_group({{'params': [*model[1:].parameters()], 'lr': 0.03}})",
    "optimizer.add_param_group({{'params': [nn.Parameter(torch.ones(3))], 'lr': 0.03}})",
    "model.insert(1, kind({width}, {width}, 2).double()); optimizer.add_param_group({{'params': [*model[1].parameters()]}})",
    "optimizer.state.clear()", "optimizer.state.pop({p}, None); result = None", "result = len(optimizer.state)"]
SETTINGS = {"lr": [0.003, 0.01], "weight_decay": [0, 0.1], "maximize": [True, False]}
OWN = {"SGD": {"momentum": [0, 0.5, 0.9], "dampening": [0, 0.3], "nesterov": [True, False]},
       "AdamW": {"betas": [(0.8, 0.9), (0.5, 0.99)], "eps": [1e-8, 1e-3]}}
SCHEDULE = [
    "scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)", "scheduler = lr_scheduler.LambdaLR(optimizer, lambda n: 0.8 ** n)",
    "scheduler = lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=20)",
    "scheduler = lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=20, cycle_momentum=False)",
    "scheduler and scheduler.step()", "scheduler and scheduler.get_last_lr()"]
HOOK = [
    "handles.append({p}.register_hook(lambda g: g * {k}))",
    "handles.append({p}.register_hook(lambda g: note('{p}', g.norm().item())))",
    "handles.append({p}.register_post_accumulate_grad_hook(lambda p: note('after {p}', p.grad.norm().item())))",
    "handles.append({p}.register_post_accumulate_grad_hook(lambda p: do(p.grad.mul_({k}))))",
    "for p in model.parameters(): handles.append(p.register_post_accumulate_grad_hook(lambda p: do(p.grad.mul_({k}))))",
    "handles.append(node({p}).register_hook(lambda *_: note('node of {p}', {p}.grad.norm().item())))",
    "handles.append(optimizer.register_step_pre_hook(lambda *_: note('before', [p.norm() for p in model.parameters()])))",
    "handles.append(optimizer.register_step_post_hook(lambda *_: note('after', [p.norm() for p in model.parameters()])))",
    "handles.append(optimizer.register_step_pre_hook(lambda *_: do(torch._foreach_mul_(gradients(), {k}))))",
    "handles.append(optimizer.register_step_pre_hook(lambda *_: do(nn.utils.clip_grad_norm_(model.parameters(), {bound}))))",
    "handles.append(optimizer.register_step_post_hook(lambda o, a, k: o.zero_grad()))",
    "handles.append(model[{b}].register_full_backward_hook(lambda m, gi, go: note('of {b}', go[0].norm().item())))",
    "handles.append(model[{b}].register_forward_hook(lambda m, x, y: y * {k}))",
    "handles and handles.pop().remove()", "handles and handles.pop().remove()"]
END = ["held", "{name: p.grad for name, p in model.named_parameters()}", "states(optimizer, second)"]


def model_drawn(rng, width):
  """The lines that make a model and the places of its Blocks. Its first and last layers are never left out."""
  def block(inputs=width):
    return f"kind({inputs}, {width}, {rng.choice([1, 2, width // 4])})"

  layers = [rng.choice([block(5), f"nn.Linear(5, {width})"])]
  layers += [rng.choice([block(), block(), f"nn.Linear({width}, {width})", "nn.Tanh()"]) for _ in range(rng.randint(0, 2))]
  blocks = [i for i, layer in enumerate(layers) if layer.startswith("kind")]
  if not blocks:
    blocks, layers = [len(layers)], [*layers, block()]
  layers += rng.choice([[], [f"nn.Linear({width}, {width})"]])
  lines = [f"model = nn.Sequential({', '.join(layers)}).double()"]
  if rng.random() < 0.2:
    a, b = blocks[0], blocks[-1]
    ways = [f"model.append(model[{b}])"] * (b > 0) + [f"model[{b}].gn = model[{a}].gn"] * (a != b)
    ways += [f"model[{b}].fc.weight = model[{a}].fc.weight"] * (a != b and layers[a][:7] == layers[b][:7])
    lines += ways and [rng.choice(ways)]
  lines.append("for p in model.parameters(): nn.init.uniform_(p, -0.8, 0.8)")
  parameters = [f"model[{i}].{name}" for i in blocks for name in ("fc.weight", "fc.bias", "gn.weight", "gn.bias")]
  parameters += [f"model[{i}].weight" for i, layer in enumerate(layers) if "Linear" in layer]
  if rng.random() < 0.25:
    lines += [f"{p}.requires_grad_(False)" for p in rng.sample(parameters, rng.randint(1, 3))]
  return lines, blocks, parameters, len(layers)


def optimizer_drawn(rng, name):
  """The lines that make an optimizer."""
  options = {"lr": rng.choice(["0.01", "0.02"] * 8 + ["torch.tensor(0.02, dtype=torch.float64)"])}
  if name == "SGD" and rng.random() < 0.7:
    options["momentum"] = rng.choice(["0.5", "0.9"])
    options.update(rng.choice([{}, {}, {"nesterov": "True"}, {"dampening": "0.3"}]))
  if name == "AdamW":
    options.update(rng.choice([{}, {"amsgrad": "True"}, {"eps": "1e-3"}, {"betas": "(0.8, 0.9)"}]))
  if rng.random() < 0.4:
    options["weight_decay"] = rng.choice(["0", "0.1"])
  if rng.random() < 0.15:
    options["maximize"] = "True"
  options.update(rng.choice([{}, {}, {}, {"foreach": "False"}, {"foreach": "True"}]))
  groups = rng.choice(["model.parameters()", "model.parameters()", "model.named_parameters()", "model[0].parameters()",
                       "[{'params': [p for p in model.parameters() if p.dim() == 2]}, "
                       "{'params': [p for p in model.parameters() if p.dim() == 1], 'weight_decay': 0, 'lr': 0.005}]",
                       "[{'params': [p], 'lr': 0.01} for p in model.parameters()]"])
  arguments = ", ".join([groups, *(f"{k}={v}" for k, v in options.items())])
  return [f"make = lambda of: of.{name}({arguments})", "optimizer = second = make(optim)",
          "kept, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))"]


def draw(seed):
  """A loop, as lines, and the width that its model ends in."""
  rng = random.Random(seed)
  width, name = rng.choice([8, 12, 16]), rng.choice(["SGD", "AdamW"])
  lines, blocks, parameters, depth = model_drawn(rng, width)
  lines += optimizer_drawn(rng, name)
  mixed = [SCALE] * 4 + [READ] * 4 + [CHANGE] * 5 + [HOOK] * 2 + [SCHEDULE, BACKWARD, STEP, None]

  def line(table):
    if table is None:
      setting, values = rng.choice([*SETTINGS.items(), *OWN[name].items()])
      return f"optimizer.param_groups[{rng.choice([0, -1])}]['{setting}'] = {rng.choice(values)}"
    return rng.choice(table).format(
        p=rng.choice(parameters), q=rng.choice(parameters), r=rng.choice([p for p in parameters if not p.endswith("gn.bias")]), b=rng.choice(blocks), i=rng.randrange(3), j=rng.randrange(3),
        skip=tuple(rng.sample(range(1, max(depth - 1, 1)), min(1, max(depth - 2, 0)))), k=rng.choice([-1, 0.5, 2]),
        bound=rng.choice([0.01, 0.5, 100]), foreach=rng.choice([None, False]), flag=rng.choice([True, False]), width=width,
        name=name, optimizer=rng.choice(["optim.SGD", "optim.AdamW", "torch.optim.SGD"]))

  for _ in range(rng.randint(3, 7)):
    if rng.random() < 0.75:
      lines.append(line(ZERO))
    lines.append(line(BACKWARD[:4] if rng.random() < 0.5 else BACKWARD))
    lines += [line(rng.choice(mixed)) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
    if rng.random() < 0.9:
      lines.append(line(STEP))
    lines += [line(rng.choice(mixed)) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
  return lines + END, width


class Side:
  """One of the two, with the names that its lines know."""

  def __init__(self, kind, optim, seed, width):
    torch.manual_seed(seed)
    data = [(torch.randn(rows, 5, dtype=torch.float64), torch.randn(rows, width, dtype=torch.float64)) for rows in (9, 6, 7)]
    self.names = {**globals(), "kind": kind, "optim": optim, "data": data}
    exec(PRELUDE, self.names)

  def run(self, line, seed):
    """What the line returns, leaves in `result`, or raises."""
    torch.manual_seed(seed)
    self.names["result"] = None
    try:
      code = compile(line, line, "eval")
    except SyntaxError:
      code = compile(line, line, "exec")
    try:
      with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = eval(code, self.names)
      return plain(self.names["result"] if found is None else found)
    except Exception as error:  # whatever it is, it has to be the other's
      return error


def plain(value):
  """What a line returned, as values that later lines leave as they are; None for an object of either side."""
  if isinstance(value, dict):
    return {key: plain(v) for key, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [plain(v) for v in value]
  if hasattr(value, "__array__"):  # also NumPy's
    return torch.as_tensor(value).detach().clone()
  return value if isinstance(value, (bool, int, float, str)) else str(value) if isinstance(value, torch.dtype) else None


def differs(a, b, at="it"):
  """Where and how they do, or None."""
  if isinstance(b, Exception) or isinstance(a, Exception):
    words = [[word for word in str(e).split()[:4] if "'" not in word] for e in (a, b)]  # a name in quotes may be another
    return None if type(a) is type(b) and words[0] == words[1] else f"{at}: {a!r:.300} instead of {b!r:.300}"
  a, b = (dict(enumerate(v)) if isinstance(v, (list, tuple)) else torch.tensor(v).double() if isinstance(v, float) else v
          for v in (a, b))
  if isinstance(b, dict) and isinstance(a, dict):
    if set(a) != set(b):
      return f"{at} has {list(a)} instead of {list(b)}"
    return next(filter(None, (differs(a[key], b[key], f"{at}[{key!r}]") for key in b)), None)
  if isinstance(b, torch.Tensor) and isinstance(a, torch.Tensor):
    if (a.shape, a.dtype) != (b.shape, b.dtype):
      return f"{at} is {a.dtype} {tuple(a.shape)} instead of {b.dtype} {tuple(b.shape)}"
    error, allowed = ((a.double() - b.double()).norm().item(), TOLERANCE * b.double().norm().item() + 1e-12)
    return None if error <= allowed else f"{at} is off by {error:.2e}, {allowed:.2e} allowed"
  return None if type(a) is type(b) and a == b else f"{at} is {a!r:.300} instead of {b!r:.300}"


def compared(seed, given=SIDES):
  """How the two differ on this loop, as text; None if they do not."""
  lines, width = draw(seed)
  LEAST.update(USUAL if seed % 3 == 0 else dict.fromkeys(USUAL, 0))
  own, theirs = sides = [Side(*side, seed, width) for side in given]
  for n, line in enumerate(lines):
    found, expected = (side.run(line, n) for side in sides)
    failed, made = isinstance(expected, Exception), "kept" in theirs.names
    last = line.rsplit("step", 1)[-1]  # what failed in it
    if failed and "backward" in last and type(found) is type(expected):
      for side in sides:  # what it had done before differs
        side.run("for p in model.parameters(): p.grad = None", n)
        side.run("log.clear()", n)
    why = differs(found, expected) or differs(own.names["log"], theirs.names["log"], "log")
    if not why and made:
      values = [{name: p.detach() for name, p in side.names["model"].named_parameters()} for side in sides]
      why = differs(*values, "model")
      if not all(p.norm() < 1e6 for p in values[1].values()):
        break  # a step that is not finite is skipped by minnow
    if why or failed and (not made or "step" in line and "backward" not in last):
      break
  for side in sides:
    side.names.clear()  # or its functions would hold on to all of it
  text = "\n".join(f"{'->' if m == n else '  '} {line}" for m, line in enumerate(lines))
  return f"loop {seed}: {why}\n{text}" if why else None


class Loops(Case):
  def test_loops(self):
    first = int(os.environ.get("FIRST", 0))
    for seed in range(first, first + int(os.environ.get("COUNT", 300))):
      with self.subTest(seed=seed):
        why = compared(seed)
        if why:
          self.fail(why)

  def test_differences_are_seen(self):
    """Of slopes that are nearly the same."""
    def steeper(*sizes):
      return Model(*sizes, negative_slope=0.0100001)

    seen = [compared(seed, ((steeper, torch.optim), (Model, torch.optim))) is not None for seed in range(20)]
    self.assertGreater(sum(seen), 15)


if __name__ == "__main__":
  print(f"PyTorch {torch.__version__}", file=sys.stderr)
  unittest.main(verbosity=2)
