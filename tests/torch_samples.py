"""PyTorch's own samples, of torch.testing: what its tests give group_norm, linear, leaky_relu, SGD and AdamW is given
minnow's block and optimizers, which have to do the same.

    MINNOW_LIBRARY=build/libminnow.so python3 tests/torch_samples.py"""
import copy
import itertools
import sys
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional

import test_torch
from test_torch import Block, Model, block, minnow_torch, outcome, plain_block

try:
  from torch.testing._internal.common_methods_invocations import op_db
  from torch.testing._internal.common_optimizers import optim_db
except ImportError as error:
  print(f"skipped: PyTorch's own samples cannot be imported ({error}); pip install expecttest numpy")
  sys.exit()

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 0.02}

# With each of which every set of an optimizer's options is tried.
WAYS = {}, {"foreach": False}, {"foreach": True}, {"fused": False}, {"fused": True}, {"differentiable": True}


def calls(name, sample):
  """What block is given in place of one of the three: identity weights, ones and zeros for what the sample lacks. An
  input of more dimensions is also made rows, which minnow serves."""
  x, like = sample.input, {"dtype": sample.input.dtype}
  inputs = x.shape[-1] if x.dim() else 1
  weight, bias, gamma, beta, groups, eps, slope = torch.eye(inputs, **like), None, None, None, 1, 1e-5, 0.01
  if name == "linear":
    weight, bias = *sample.args[:1], sample.args[1] if len(sample.args) > 1 else None
  elif name == "group_norm":
    groups, gamma, beta = sample.args[0], sample.kwargs.get("weight"), sample.kwargs.get("bias")
    eps = sample.kwargs.get("eps", eps)
  else:
    slope = sample.kwargs.get("negative_slope", slope)
  channels = len(weight) if x.dim() <= 2 or name == "linear" else x.shape[1]
  full = [torch.zeros(len(weight), **like) if bias is None and weight.dim() else bias,
          torch.ones(channels, **like) if gamma is None else gamma, torch.zeros(channels, **like) if beta is None else beta]
  yield [x, weight, bias, gamma, beta], groups, eps, slope
  yield [x, weight, *full], groups, eps, slope
  if x.dim() > 2 and name == "group_norm":
    x, weight, bias = x.movedim(1, -1).flatten(0, -2), torch.eye(channels, **like), torch.zeros(channels, **like)
    yield [x, weight, bias, *full[1:]], groups, eps, slope
  elif x.dim() > 2 and x.numel():
    yield [x.flatten(0, -2), weight, *full], groups, eps, slope


class Functions(test_torch.Case):
  alike = test_torch.Tensors.alike

  def compare(self, name, sample, tolerance):
    for tensors, *how in calls(name, sample):
      wanted = [isinstance(t, torch.Tensor) and (t.requires_grad or sample.input.requires_grad) for t in tensors]
      found, expected = (outcome(function, tensors, wanted, *how) for function in (block, plain_block))
      what = f"{[getattr(t, 'shape', t) for t in tensors]}, {how}: {found!r:.200}, not {expected!r:.200}"
      if isinstance(expected, Exception):
        self.assertEqual((type(found), str(found)), (type(expected), str(expected)), what)
      else:
        try:
          self.alike(found, expected, tolerance, what)
        except AssertionError:  # some versions' 16-bit group_norm is far from float64: minnow has to be near one of the two
          if tolerance < 0.01:
            raise
          exact = outcome(plain_block, [t.double() if isinstance(t, torch.Tensor) else t for t in tensors], wanted, *how)
          self.alike(found, [e if e is None else e.to(like.dtype) for e, like in zip(exact, expected)], tolerance, what)
      self.compared += 1

  def test_samples(self):
    self.compared = 0
    for op in op_db:
      module, _, name = op.name.rpartition(".")
      if module != "nn.functional" or name not in ("group_norm", "linear", "leaky_relu"):
        continue
      for (dtype, tolerance), wanted in itertools.product(TOLERANCES.items(), (True, False)):
        for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=wanted)):
          with self.subTest(op=name, dtype=dtype, wanted=wanted, i=i), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.compare(name, sample, tolerance)
      for i, error in enumerate(op.error_inputs("cpu") if op.error_inputs_func else ()):
        with self.subTest(op=name, error=i):
          self.compare(name, error.sample_input, 0)
    print(f"{self.compared} calls", end=" ... ", file=sys.stderr)
    self.assertGreater(self.compared, 600)


class Optimizers(test_torch.Case):
  def train(self, kind, module, name, options):
    """The parameters and the state after three steps, or what is raised; and the warnings."""
    torch.manual_seed(5)
    model = nn.Sequential(kind(6, 16, 2), nn.Linear(16, 8), kind(8, 8, 2)).double()
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      try:
        optimizer = getattr(module, name)(model.parameters(), **options)
        for _ in range(3):
          optimizer.zero_grad()
          (model(torch.randn(9, 6).double()) - torch.randn(9, 8).double()).square().mean().backward()
          optimizer.step()
        found = {name: p.detach() for name, p in model.named_parameters()}
        for i, kept in optimizer.state_dict()["state"].items():
          found.update({f"{name} of {i}": t for name, t in kept.items()})
      except Exception as error:  # whatever it is, it has to be the other's
        found = error
    return found, [w.category for w in caught]

  def each(self):
    for info in optim_db:
      name = info.optim_cls.__name__
      if info.optim_cls in (torch.optim.SGD, torch.optim.AdamW):
        yield info, name

  def test_inputs(self):
    count = 0
    for info, name in self.each():
      for given, way in itertools.product(info.optim_inputs_func("cpu"), WAYS):
        options = {**given.kwargs, **way}
        with self.subTest(name=name, options=options):
          (found, told), (expected, said) = (self.train(kind, module, name, copy.deepcopy(options))
                                             for kind, module in ((Block, minnow_torch), (Model, torch.optim)))
          self.assertEqual(type(found), type(expected), f"{found!r:.300}, not {expected!r:.300}")
          self.assertEqual(told, said)
          if not isinstance(expected, Exception):
            self.assertEqual(set(found), set(expected))
            for key, value in expected.items():
              self.assertEqual(found[key] is None, value is None, key)
              if value is not None:
                self.near(found[key], value, 1e-9, key)
        count += 1
    print(f"{count} optimizers", end=" ... ", file=sys.stderr)
    self.assertGreater(count, 60)

  def test_error_inputs(self):
    """Arguments that are refused, or warned of, by the same exception and warning. Where a sample names no parameters,
    a Block's are given."""
    count = 0
    for info, name in self.each():
      for error in info.optim_error_inputs_func("cpu", torch.float64):
        given = error.optimizer_error_input
        with self.subTest(name=name, options=given.kwargs, why=error.error_regex):
          found = []
          for module in minnow_torch, torch.optim:
            with warnings.catch_warnings(record=True) as caught:
              warnings.simplefilter("always")
              try:
                getattr(module, name)(Block(6, 8, 2).parameters() if given.params is None else given.params, **given.kwargs)
                raised = None
              except Exception as refusal:
                raised = type(refusal), str(refusal)
            found.append((raised, [(w.category, str(w.message)) for w in caught]))
          self.assertEqual(*found)
        count += 1
    print(f"{count} refusals", end=" ... ", file=sys.stderr)
    self.assertGreaterEqual(count, 10)


if __name__ == "__main__":
  print(f"PyTorch {torch.__version__}", file=sys.stderr)
  unittest.main(verbosity=2)
