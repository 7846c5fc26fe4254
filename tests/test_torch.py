"""layers/minnow_torch/ against PyTorch's own modules, on the CPU and, where there are any, on one and two GPUs.

    MINNOW_LIBRARY=build/libminnow.so python3 tests/test_torch.py

COUNT=1000 is how many draws of tensors each test of class Tensors takes (100), the same ones each time."""
import collections
import contextlib
import copy
import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings
import weakref

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "layers")]
sys.dont_write_bytecode = True
# What earlier versions compiled must not be taken for this one's.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="minnow_torch_"))

import torch
import torch.export
import torch.fx.experimental.proxy_tensor
import torch.multiprocessing
import torch.nn.utils.parametrize
import torch.nn.utils.prune
import torch.utils.flop_counter
from torch import library
from torch.nn import functional

import minnow_torch
from minnow_torch import Block, ModelNew, block

CODE, PLAN = sys.modules["minnow_torch.block"], minnow_torch.plan  # a function of the package has the first one's name

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
FLOATS = {"cpu": ("fp32", "fp16", "bf16"), "cuda": minnow_torch.PRECISIONS}
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
LEAST = sys.modules["minnow_torch.optim"].LEAST
USUAL = dict(LEAST)
LEAST.clear()  # tests have small weights, whose gradients are to be left all the same
# Norm of the difference over norm, with inputs that products read exactly: what is left is dz, rounded. TF32 rounds x and
# W too, which takes some v across 0.
NEAR = {"fp64": 1e-12, "fp32": 1e-5, "fp16x3": 1e-5, "tf32": 4e-2, "fp16": 1e-3, "bf16": 8e-3}


class Model(torch.nn.Module):
  """KernelBench's, level 2, problem 62."""

  def __init__(self, input_size, hidden_size, num_groups, eps=1e-5, negative_slope=0.01):
    super().__init__()
    self.fc = torch.nn.Linear(input_size, hidden_size)
    self.gn = torch.nn.GroupNorm(num_groups=num_groups, num_channels=hidden_size, eps=eps)
    self.leaky_relu = torch.nn.LeakyReLU(negative_slope=negative_slope)

  def forward(self, x):
    x = self.leaky_relu(self.gn(self.fc(x)))
    return x + x


def gradients(model, x, dy):
  """y, and the gradients of x and the parameters."""
  x = x.detach().requires_grad_()
  y = model(x)
  return [y.detach(), *torch.autograd.grad(y, [x, *model.parameters()], dy.to(y.dtype))]


def pair(device, precision="fp16x3", sizes=(24, 64, 8)):
  """A Block with lively gamma and beta, and the plain model of the same parameters in float64."""
  own = Block(*sizes, precision=precision).to(device)
  with torch.no_grad():
    for parameter in own.parameters():
      parameter.uniform_(-1, 1)
  plain = Model(*sizes).to(device)
  plain.load_state_dict(own.state_dict())
  return own, plain.double()


class Case(unittest.TestCase):
  def setUp(self):
    torch.manual_seed(11)
    minnow_torch.forget()

  def near(self, actual, expected, tolerance, what=""):
    error = ((actual.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-300)).item()
    self.assertLessEqual(error, tolerance, what)

  def no_worse(self, own, theirs, exact):
    """Than PyTorch in the same 16 bits, but for chance."""
    error, allowed = ((t.double() - exact).norm().item() for t in (own, theirs))
    self.assertLessEqual(error, 1.25 * allowed)

  def all_near(self, actual, expected, tolerance):
    for name, a, e in zip(("y", "dx", "dweight", "dbias", "dgamma", "dbeta"), actual, expected):
      self.near(a, e, tolerance, name)

  def each(self, *others):
    """A subtest on each device, without a warning."""
    for device, *rest in itertools.product(DEVICES, *others):
      with self.subTest(device=device, **{str(i): value for i, value in enumerate(rest)}), warnings.catch_warnings():
        warnings.filterwarnings("error", "minnow")
        yield device, *rest


class Gradients(Case):
  def test_finite_differences(self):
    for device, in self.each():
      own = Block(6, 8, 2, dtype=torch.float64, device=device)
      x = torch.randn(5, 6, dtype=torch.float64, device=device, requires_grad=True)
      self.assertTrue(torch.autograd.gradcheck(lambda x, *p: block(x, *p, 2), (x, *own.parameters())))

  def test_every_precision(self):
    for device, (rows, *sizes) in self.each([(70, 24, 64, 8), (9, 7, 10, 2), (5, 16, 600, 2)]):
      for precision in FLOATS[device]:
        own, plain = pair(device, precision, sizes)
        x, dy = torch.randn(rows, sizes[0], device=device), torch.randn(rows, sizes[1], device=device)
        if precision in TYPES:  # values that products read as they are
          x = x.to(TYPES[precision]).float()
          with torch.no_grad():
            for weight in own.fc.weight, plain.fc.weight:
              weight.copy_(weight.to(TYPES[precision]))
        with self.subTest(precision=precision):
          self.all_near(gradients(own, x, dy), gradients(plain, x.double(), dy.double()), NEAR[precision])

  def test_float64(self):
    for device, in self.each():
      own, plain = pair(device)
      x, dy = (torch.randn(7, n, dtype=torch.float64, device=device) for n in (24, 64))
      self.all_near(gradients(own.double(), x, dy), gradients(plain, x, dy), NEAR["fp64"])

  def test_16_bit_modules(self):
    for device, (precision, dtype) in self.each(TYPES.items()):
      own, plain = pair(device)
      x, dy = (torch.randn(70, n, device=device).to(dtype) for n in (24, 64))
      own.to(dtype)
      plain.load_state_dict(own.state_dict())
      found = gradients(own, x, dy)
      self.assertEqual({t.dtype for t in found}, {dtype})
      self.all_near(found, gradients(plain, x.double(), dy.double()), NEAR[precision])

  def test_only_what_is_wanted(self):
    for device, in self.each():
      own, plain = pair(device, "fp32")
      x, dy = torch.randn(9, 24, device=device), torch.randn(9, 64, device=device)
      expected = gradients(plain, x.double(), dy.double())
      own(x).backward(dy)  # no dx
      self.all_near([p.grad for p in own.parameters()], expected[2:], NEAR["fp32"])
      own.zero_grad()
      own.fc.weight.requires_grad_(False)
      x.requires_grad_()
      own(x).backward(dy)  # no dweight
      self.assertIsNone(own.fc.weight.grad)
      self.near(x.grad, expected[1], NEAR["fp32"])
      self.near(own.gn.weight.grad, expected[4], NEAR["fp32"])

  def test_twice_and_beside(self):
    """A graph that is kept gives the same gradients again, though another forward came in between."""
    for device, in self.each():
      own, _ = pair(device, "bf16")
      x = torch.randn(9, 24, device=device, requires_grad=True)
      y = own(x)
      first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
      own(2 * x).sum().backward()
      self.assertTrue(torch.equal(first, torch.autograd.grad(y.sum(), x)[0]))

  def test_planes_are_of_one_layout(self):
    """A weight and its transpose share memory and version, and not their planes."""
    for device, in self.each():
      x, vectors = torch.randn(9, 32, device=device), [torch.randn(32, device=device) for _ in range(3)]
      weight = torch.randn(32, 32, device=device)
      with torch.no_grad():
        for w in weight, weight.t(), weight:
          found = block(x, w, *vectors, 4, precision="bf16")
          self.assertTrue(torch.equal(found, block(x, w.clone(), *vectors, 4, precision="bf16")))

  def test_few_rows_of_any_strides(self):
    """None and one count as contiguous, whatever their strides; more rows of these strides do not."""
    for device, few, wide in self.each((0, 1), (False, True)):
      own, plain = (model.double() for model in pair(device))
      weight, x = (torch.randn(9, 40, dtype=torch.float64, device=device) for _ in range(2))
      x = x[:, :24] if wide else x[0, :1].expand(9, 24)
      with contextlib.suppress(ValueError, UserWarning), torch.no_grad():
        own(x[:few])
      for rows in (few, 9) if few else (9,):
        found = []
        for model in own, plain:
          model.zero_grad()
          y = model(x[:rows])
          (torch.cat([x[:rows, :8], y], 1)[:, 8:48] * weight[:rows]).sum().backward()
          found.append([y.detach(), *[p.grad for p in model.parameters()]])
        for a, b in zip(*found):
          self.near(a, b, 1e-12)

  def test_any_strides(self):
    for device, in self.each():
      own, plain = pair(device, "fp32")
      wide = torch.randn(48, 9, device=device)
      dy = torch.randn(64, 9, device=device).t()
      x = wide[::2].t()
      self.assertFalse(x.is_contiguous())
      self.all_near(gradients(own, x, dy), gradients(plain, x.double(), dy.double()), NEAR["fp32"])
      weight = own.fc.weight.detach().t().contiguous().t()
      rest = own.fc.bias, own.gn.weight, own.gn.bias, 8
      self.assertTrue(torch.equal(block(x, weight, *rest, precision="fp32"), own(x.contiguous())))
      shifted = torch.randn(9 * 24 + 1, device=device)[1:].view(9, 24)  # no multiple of 16 bytes
      self.near(own(shifted), plain(shifted.double()), NEAR["fp32"])


class Operators(Case):
  def test_opcheck(self):
    for device, precision in self.each(("fp32", "bf16", "fp16")):
      own, _ = pair(device, precision)
      parameters = [p.detach() for p in own.parameters()]
      x, ops, how = torch.randn(6, 24, device=device), torch.ops.minnow, (8, 1e-5, 0.01, precision, *2 * [torch.float32])
      for saved in ((True, True), (True, False), (False, False)):
        library.opcheck(ops.block.default, (x, *parameters, *how, *saved, False))
      _, *saved = ops.block(x, *parameters, *how, True, True, False)
      weight, _, gamma, beta = parameters
      dy = torch.randn(6, 64, device=device)
      for wanted in ((True, True), (False, True), (True, False)):
        library.opcheck(ops.block_backward.default, (dy, x, weight, gamma, beta, *saved, *how, *wanted))

  def test_compile(self):
    for device, in self.each():
      torch._dynamo.reset()
      own, _ = pair(device)
      compiled = torch.compile(own, fullgraph=True)
      dtype = torch.bfloat16
      for rows in (6, 10):  # the second with a dynamic number of rows
        x, dy = torch.randn(rows, 24, device=device), torch.randn(rows, 64, device=device)
        self.all_near(gradients(compiled, x, dy), gradients(own, x, dy), 1e-6)
        with torch.autocast(device, dtype):
          self.all_near(gradients(compiled, x, dy), gradients(own, x, dy), 1e-6)
        with torch.no_grad():
          self.near(compiled(x), own(x), 1e-6)

  def test_compiled_step(self):
    """A whole step with an optimizer: the compiled one takes the new weights, too."""
    for device, in self.each():
      torch._dynamo.reset()
      one, _ = pair(device, "bf16")
      other = copy.deepcopy(one)
      x, target = torch.randn(6, 24, device=device), torch.randn(6, 64, device=device)
      for model, run in (one, one), (other, torch.compile(other, fullgraph=True)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
          optimizer.zero_grad()
          functional.mse_loss(run(x), target).backward()
          optimizer.step()
      for a, b in zip(one.parameters(), other.parameters()):
        self.near(b, a, 1e-5)


class Modules(Case):
  def test_state_dict(self):
    torch.manual_seed(3)
    plain = Model(24, 64, 8)
    torch.manual_seed(3)
    own = ModelNew(24, 64, 8)
    for a, b in zip(plain.parameters(), own.parameters()):
      self.assertTrue(torch.equal(a, b))
    self.assertEqual(list(own.state_dict()), ["fc.weight", "fc.bias", "gn.weight", "gn.bias"])
    own.load_state_dict(plain.state_dict())
    plain.load_state_dict(own.state_dict())
    x = torch.randn(5, 24)
    self.near(own(x), plain(x), 1e-5)
    changed = ModelNew(24, 64, 8, 0.1, 0.5)
    changed.load_state_dict(plain.state_dict())
    expected = Model(24, 64, 8, 0.1, 0.5)
    expected.load_state_dict(plain.state_dict())
    self.near(changed(x), expected(x), 1e-5)

  def test_a_wrong_precision(self):
    with self.assertRaisesRegex(ValueError, "'fp8'; fp16x3, fp32, tf32, fp16, bf16 are"):
      Block(8, 8, 2, precision="fp8")

  def test_tensors_in_place_of_parameters(self):
    """As a hypernetwork puts them; gradients go to where they come from."""
    for device, in self.each():
      (own, plain), from_where = pair(device, "fp32"), []
      x = torch.randn(16, 24, device=device)
      for model in own, plain:
        weight = model.fc.weight.detach().clone().requires_grad_()
        del model.fc.weight
        model.fc.weight = weight * 2
        model(x.to(weight.dtype)).square().mean().backward()
        from_where.append(weight.grad)
      self.near(*from_where, 1e-5)

  def test_few_plans_are_kept(self):
    for device, in self.each():
      model = Block(6, 8, 2).to(device)
      for rows in range(1, 400):
        model(torch.ones(rows, 6, device=device))
      self.assertLessEqual(minnow_torch.plan.plan.cache_info().currsize, 128)
      plans = minnow_torch.block.__globals__["_plans"]
      self.assertLessEqual(len(plans), 128)
      self.assertTrue(all(plan.of.cache_info().maxsize == 128 for plan in plans.values()))

  def test_an_optimizer_of_others(self):
    """It does not look at weights that are not its own, which a parametrization would compute."""
    block, linear = Block(6, 8, 2), torch.nn.Linear(3, 3)
    torch.nn.utils.parametrizations.spectral_norm(block.fc)
    before = block.fc.parametrizations.weight[0]._u.clone()
    minnow_torch.SGD(linear.parameters(), lr=0.1)
    self.assertTrue(torch.equal(before, block.fc.parametrizations.weight[0]._u))

  def test_nothing_is_saved_without_gradients(self):
    for device, in self.each():
      own, _ = pair(device)
      x, packed, made = torch.randn(6, 24, device=device), [], []
      compute = PLAN.Plan.forward

      def spied(*arguments):
        made[:] = compute(*arguments)
        return tuple(made)

      with unittest.mock.patch.object(PLAN.Plan, "forward", spied), torch.autograd.graph.saved_tensors_hooks(
          lambda tensor: packed.append(tensor) or tensor, lambda tensor: tensor):
        with torch.no_grad():
          self.assertIsNone(own(x).grad_fn)
        self.assertEqual(made[2:], [None, None])
        own.requires_grad_(False)
        own(x)
        self.assertEqual(made[2:], [None, None])
        self.assertEqual(packed, [])
        own.requires_grad_(True)
        own(x)
        self.assertGreater(len(packed), 0)

  def test_new_weights_are_noticed(self):
    ways = {"in place": lambda w: w.add_(1), "copied": lambda w: w.copy_(torch.ones_like(w)),
            "set": lambda w: setattr(w, "data", w.data + 1),
            "written aside": lambda w: (w.data.add_(1), minnow_torch.forget())}
    aside = {"aside": lambda w: w.data.add_(1), "averaged": lambda w: torch._foreach_lerp_([w], [torch.ones_like(w)], 0.5)}
    for device, ours in self.each((False, True)):
      for how, write in (ways if ours else {**ways, **aside}).items():  # without our optimizer whatever writes is noticed
        with self.subTest(how=how):
          own, _ = pair(device, "bf16")
          optimizer = minnow_torch.SGD(own.parameters(), lr=0.1) if ours else None
          x = torch.randn(6, 24, device=device)
          with torch.no_grad():
            before = own(x)
            self.assertTrue(torch.equal(own(x), before))
            write(own.fc.weight)
            after = own(x)
            minnow_torch.forget()
            self.assertTrue(torch.equal(own(x), after))
            self.assertFalse(torch.equal(before, after))
          del optimizer

  def test_a_fused_optimizer_is_noticed(self):
    """It leaves the version of what it writes as it was."""
    for device, ours in self.each((False, True)):
      own, _ = pair(device, "bf16")
      x = torch.randn(6, 24, device=device)
      ours = minnow_torch.SGD(own.parameters(), lr=0.1) if ours else None
      optimizer = torch.optim.SGD(own.parameters(), lr=0.1, fused=True)

      def evaluate():
        with torch.no_grad():
          return own(x)

      before = evaluate()
      for between, forget_gradients in itertools.product((False, True), (True, False)):
        own(x).square().sum().backward()
        if between:
          evaluate()
        optimizer.step()
        optimizer.zero_grad(set_to_none=forget_gradients)
        after = evaluate()
        minnow_torch.forget()
        self.assertTrue(torch.equal(evaluate(), after))
        self.assertFalse(torch.equal(before, after))
        before = after

  def test_autocast(self):
    for device, dtype in self.each((torch.float16, torch.bfloat16)):
      own, exact = pair(device)
      theirs = Model(24, 64, 8).to(device)
      theirs.load_state_dict(own.state_dict())
      x, dy = torch.randn(70, 24, device=device), torch.randn(70, 64, device=device)
      for given in (x, x.to(dtype)):
        with torch.autocast(device, dtype):
          found, expected = own(given), theirs(given)
          with torch.autocast(device, enabled=False):
            whole = own(x)
        self.assertEqual(found.dtype, expected.dtype)
        self.assertFalse(torch.equal(found.float(), whole))
        self.no_worse(found, expected, exact(x.double()))
      found.backward(dy.to(found.dtype))  # outside, as is usual
      expected.backward(dy.to(expected.dtype))
      exact(x.double()).backward(dy.double())
      self.assertEqual({p.grad.dtype for p in own.parameters()}, {torch.float32})
      for own, theirs, exact in zip(*(m.parameters() for m in (own, theirs, exact))):
        self.no_worse(own.grad, theirs.grad, exact.grad)

  def test_threads(self):
    for device, in self.each():
      own, _ = pair(device, "bf16")
      inputs = [torch.randn(50, 24, device=device) for _ in range(4)]
      expected, found = [gradients(own, x, x.new_ones(50, 64)) for x in inputs], [None] * 4

      def run(i):
        for _ in range(20):
          found[i] = gradients(own, inputs[i], inputs[i].new_ones(50, 64))

      threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
      for thread in threads:
        thread.start()
      for thread in threads:
        thread.join()
      for a, b in zip(found, expected):
        self.assertTrue(all(torch.equal(s, t) for s, t in zip(a, b)))


class Fallback(Case):
  def says(self, words, run):
    """Twice, which says it once."""
    CODE._say.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter("always")
      results = [run() for _ in range(2)]
    self.assertEqual([w for w in caught if words in str(w.message)], caught)
    self.assertEqual(len(caught), 1)
    return results[1]

  def test_other_shapes(self):
    own, plain = pair("cpu")
    plain.float()
    x = torch.randn(2, 64, 24)  # rows of groups, to GroupNorm
    self.assertTrue(torch.equal(self.says("of shape (2, 64, 24)", lambda: own(x)), plain(x)))
    empty = torch.randn(0, 24)
    self.assertEqual(self.says("of shape (0, 24)", lambda: own(empty)).shape, (0, 64))
    own.fc, plain.fc = 2 * [torch.nn.Linear(0, 64)]
    self.assertTrue(torch.equal(self.says("of shape (9, 0)", lambda: own(torch.ones(9, 0))), plain(torch.ones(9, 0))))

  def test_other_types(self):
    own, plain = pair("cpu")
    with self.assertRaises(RuntimeError):  # as the plain model's
      self.says("torch.float32, torch.float64", lambda: own(torch.randn(5, 24, dtype=torch.float64)))
    own.gn.weight.data = own.gn.weight.data.bfloat16()
    with self.assertRaises(RuntimeError), torch.autocast("cpu", torch.bfloat16):
      self.says("torch.bfloat16, torch.float32", lambda: own(torch.randn(5, 24)))

  def test_other_parts(self):
    """Parts that PyTorch has and minnow has not, or not in these sizes."""
    for part, words in (({"fc": torch.nn.Linear(24, 64, bias=False)}, "NoneType"),
                        ({"gn": torch.nn.GroupNorm(8, 64, affine=False)}, "NoneType"),
                        ({"fc": torch.nn.Linear(24, 65536)}, "(65536, 24), (65536,), (64,), (64,)"),
                        ({"gn": torch.nn.GroupNorm(7, 63)}, "7 groups")):
      own, plain = pair("cpu")
      plain.float()
      for name, module in part.items():
        setattr(own, name, module), setattr(plain, name, module)
      x = torch.randn(9, 24)
      found, expected = self.says(words, lambda: outcome(own, [x], [True])), outcome(plain, [x], [True])
      if isinstance(expected, Exception):
        self.assertEqual((type(found), str(found)), (type(expected), str(expected)))
      else:
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, expected)))

  def test_broadcast(self):
    x, weight, *vectors = torch.randn(9, 24), torch.randn(64, 24), *(torch.randn(64) for _ in range(3))
    for bias in torch.randn(1), torch.randn(()), torch.randn(9, 64):
      found = self.says("tensors of shape", lambda: block(x, weight, bias, *vectors[1:], 8))
      self.assertTrue(torch.equal(found, plain_block(x, weight, bias, *vectors[1:], 8, 1e-5, 0.01)))
    with self.assertRaises(RuntimeError):  # as the plain functions
      block(x, weight[..., None], *vectors, 8)

  def test_gradients_of_gradients(self):
    own, plain = pair("cpu")
    x = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)
    own.double()

    def second(model):
      first, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
      return torch.autograd.grad(first.square().sum(), [x, *model.parameters()], allow_unused=True)

    for a, b in zip(self.says("gradient of gradients", lambda: second(own)), second(plain)):
      self.near(a, b, 1e-10)

  def test_gradients_of_many(self):
    """Batched ones, also where an optimizer of ours would have them left."""
    for device, led in itertools.product(DEVICES, (False, True)):
      own, plain = pair(device)
      own.double(), plain.double()
      optimizer = minnow_torch.SGD(own.parameters(), lr=0.1) if led else None
      x = torch.randn(5, 24, dtype=torch.float64, device=device, requires_grad=True)
      dy, found = torch.randn(3, 5, 64, dtype=torch.float64, device=device), []
      for model in own, plain:
        found.append(torch.autograd.grad(model(x), [x, *model.parameters()], dy, is_grads_batched=True))
        found[-1] += (torch.autograd.functional.jacobian(model, x, vectorize=True),)
      for a, b in zip(*found):
        self.near(a, b, 1e-10)
      del optimizer

  def test_gradients_of_gradients_under_autocast(self):
    """Through two Blocks, of which the second is given another type than its products read. No worse than PyTorch: half of
    ten times, since what LeakyReLU's edge does to one is chance."""
    def gradients(kind, exact):
      torch.manual_seed(seed)
      model = torch.nn.Sequential(kind(16, 32, 4), kind(32, 32, 4)).to(device)
      x = torch.randn(12, 16, device=device).to(given)
      if exact:
        x, model = x.double(), model.double()
      between = []
      model[0].register_forward_hook(lambda module, given, y: between.append(weakref.ref(y)))
      with torch.autocast(x.device.type, cast, enabled=not exact):
        y = model(x.requires_grad_())
      if kind is Block:
        self.assertIsNone(between[0]())  # nothing holds what was converted
      first, = torch.autograd.grad((y.double() if exact else y.float()).square().sum(), x, create_graph=True)
      first.square().sum().backward()
      return torch.cat([t.grad.flatten().double() for t in (x, *model.parameters())])

    for device, given, cast in itertools.product(DEVICES, (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float16)):
      ratios = []
      for seed in range(10):
        exact = gradients(Model, True)
        ratios.append((gradients(Block, False) - exact).norm() / (gradients(Model, False) - exact).norm())
      self.assertLess(sorted(ratios)[4], 1.25)

  def test_first_gradients_under_autocast(self):
    """What second ones need of a converted x adds nothing to them."""
    for device in DEVICES:
      model = torch.nn.Sequential(Block(16, 32, 4), Block(32, 32, 4)).to(device)
      with torch.autocast(device, torch.float16):
        y = model(torch.randn(12, 16, device=device).to(torch.bfloat16))
      with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        y.float().sum().backward()
      names = {event.name for event in profiled.events()}
      self.assertIn("_PlaceBackward", names)
      self.assertFalse(names & {"aten::zeros", "aten::add_"})

  def test_no_library(self):
    code = ("import sys, torch, warnings; sys.path[:0] = [sys.argv[1]]; import minnow_torch as m; b = m.Block(8, 8, 2);"
            "x = torch.randn(3, 8); b(x); eager = sys.modules['minnow_torch.block']._eager;"
            "assert torch.equal(b(x), eager(x, *b.parameters(), 2, 1e-5, 0.01));"
            "assert torch.equal(torch.compile(b, fullgraph=True, backend='eager')(x), b(x))")
    told = subprocess.run([sys.executable, "-c", code, HERE.parent / "layers"], capture_output=True, text=True,
                          env={**os.environ, "MINNOW_LIBRARY": "/nowhere/libminnow.so"}, check=False)
    self.assertEqual(told.returncode, 0, told.stderr)
    self.assertEqual(told.stderr.count("minnow: libminnow.so cannot be loaded (/nowhere/libminnow.so"), 1)


def drawn(*shape):
  return torch.empty(shape).uniform_(-1, 1)


def reshaped(t, rng):
  """One size, of one that has any, is another."""
  shape = list(t.shape) or [1]
  i = rng.randrange(len(shape))
  shape[i] = rng.choice([n for n in (0, 1, shape[i] - 1, shape[i] + 1, 2 * shape[i], 999) if n != shape[i]])
  return drawn(*shape).to(t)


def reranked(t, rng):
  return rng.choice([t[None], t[..., None], t.sum(0), t.sum(), t.flatten()])


def restrided(t, rng):
  """The same values in columns, with gaps, or behind another one."""
  return rng.choice([t.mT.contiguous().mT if t.dim() > 1 else t, t.repeat_interleave(2, -1)[..., ::2],
                     torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape)])


# What is made of a tensor: one that minnow takes, or another.
TYPES_DRAWN = torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64
SAME = {"stride": restrided, "expanded": lambda t, rng: t[:1].expand(t.shape),
        "parameter": lambda t, rng: torch.nn.Parameter(t), "negative": lambda t, rng: torch._neg_view(t)}
OTHER = {"size": reshaped, "rank": reranked, "type": lambda t, rng: t.to(rng.choice(TYPES_DRAWN)),
         "sparse": lambda t, rng: t.to_sparse(), "device": lambda t, rng: t.to(rng.choice(["meta", *DEVICES[1:]])),
         "none": lambda t, rng: None, "list": lambda t, rng: t.tolist()}
# What autograd can give an operator; with a meta tensor PyTorch calls its fake alone, which computes nothing.
GIVEN = {"stride": restrided, **{name: OTHER[name] for name in ("size", "rank", "type", "sparse")}}


def draw(i):
  """A generator, groups, and x, weight, bias, gamma and beta of random sizes. |beta| keeps values away from 0, where the
  slope jumps."""
  rng = random.Random(i)
  torch.manual_seed(i)
  rows, inputs, groups = rng.randint(1, 9), rng.randint(1, 20), rng.randint(1, 4)
  channels = groups * rng.randint(1, 6)
  shapes = (rows, inputs), (channels, inputs), (channels,), (channels,)
  return rng, groups, [*(drawn(*shape) for shape in shapes), 8 * drawn(channels).sign()]


def plain_block(x, weight, bias, gamma, beta, groups, eps, slope):
  a = functional.leaky_relu(functional.group_norm(functional.linear(x, weight, bias), groups, gamma, beta, eps), slope)
  return a + a


def outcome(function, tensors, wanted, *rest):
  """y and the gradients of what is wanted, or what is raised."""
  try:
    leaves = [t.detach() if isinstance(t, torch.Tensor) else t for t in tensors]
    for t, needed in zip(leaves, wanted):
      if needed and isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()):
        t.requires_grad_()
    y = function(*leaves, *rest)
    wanted = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    dy = torch.arange(y.numel()).cos().view(y.shape).to(y).mT.contiguous().mT
    return [y.detach(), *(torch.autograd.grad(y, wanted, dy, allow_unused=True) if y.requires_grad else ())]
  except Exception as error:  # whatever it is, it has to be the other's
    return error


class Tensors(Case):
  """Whatever is given for a tensor, the result or the exception is that of PyTorch's own functions; what an operator is
  given besides, it computes or refuses. `make test-torch` runs these under AddressSanitizer."""

  def each_draw(self, test, *kinds):
    """Calls the test on every draw. It returns the kind of what came out; all these kinds have to come."""
    seen = collections.Counter()
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      for i in range(int(os.environ.get("COUNT", 100))):
        with self.subTest(i=i):
          seen[test(*draw(i))] += 1
    print(", ".join(f"{n} {kind}" for kind, n in seen.items()), end=" ... ", file=sys.stderr)
    self.assertEqual(set(seen), set(kinds))

  def alike(self, found, expected, tolerance, what):
    self.assertNotIsInstance(found, Exception, what)
    self.assertEqual(len(found), len(expected), what)
    for a, e in zip(found, expected):
      if e is None:
        self.assertIsNone(a, what)
        continue
      self.assertEqual((a.shape, a.dtype, a.device, a.layout), (e.shape, e.dtype, e.device, e.layout), what)
      if not e.is_meta:
        a, e = (t.to_dense().to(torch.complex128).nan_to_num() for t in (a, e))
        self.assertLessEqual((a - e).norm().item(), tolerance * (1 + e.norm().item()), what)

  def test_block(self):
    self.each_draw(self.compare, "served", "PyTorch's", "refused")

  def compare(self, rng, groups, tensors):
    dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    tensors, names, ways = [t.to(dtype) for t in tensors], [], {**SAME, **OTHER}
    single = tensors[0].shape[0] * tensors[1].shape[0] == groups
    for k in rng.sample(range(5), rng.choice((0, 1, 1, 1, 2))):
      names.append(rng.choice(list(ways)))
      tensors[k] = ways[names[-1]](tensors[k], rng)
    if rng.random() < 0.1:
      names.append("groups")
      groups = rng.choice([0, -1, 3, 5, 1000])
    wanted, slope, mixed = [rng.random() < 0.6 for _ in tensors], rng.uniform(-1, 1), rng.random() < 0.2
    precision = rng.choice(("fp16x3", "fp32", "bf16"))
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed), unittest.mock.patch.object(
        CODE, "_eager", wraps=CODE._eager) as eager:
      expected = outcome(plain_block, tensors, wanted, groups, 0.1, slope)
      found = outcome(block, tensors, wanted, groups, 0.1, slope, precision)
    what = f"{names}, {[getattr(t, 'shape', t) for t in tensors]}, {groups} groups: {found!r:.200}, not {expected!r:.200}"
    if single or set(names) <= set(SAME):
      self.assertEqual(eager.called, single, what)  # minnow serves it, unless PyTorch refuses it
    if isinstance(expected, Exception):
      self.assertEqual((type(found), str(found)), (type(expected), str(expected)), what)
      return "refused"
    coarse = dtype == torch.bfloat16 or mixed or precision == "bf16"
    tolerance = 0.1 if coarse else 1e-9 if dtype == torch.float64 else 1e-4
    if eager.called:  # with a meta tensor some of PyTorch's functions leave their results unwritten
      tolerance = float("inf") if "device" in names else 0
    self.alike(found, expected, tolerance, what)
    return "PyTorch's" if eager.called else "served"

  def test_operators(self):
    self.each_draw(self.operate, "forwards", "backwards", "refused")

  def operate(self, rng, groups, tensors):
    """One tensor of an operator is replaced, and it is called without the checks of `block`."""
    how, x = (groups, 0.1, 0.5, "fp32", *2 * [torch.float32]), torch.cat([tensors[0], drawn(*tensors[0].shape)])
    tensors[0], forward = x, rng.random() < 0.5
    if not forward:
      y, *saved = torch.ops.minnow.block(*tensors, *how, True, True, False)
      tensors = [torch.arange(y.numel()).cos().view(y.shape), *tensors[:2], *tensors[3:], *saved]
    k, name = rng.randrange(len(tensors)), rng.choice(list(GIVEN))
    given = list(tensors)
    if tensors[k].numel():
      given[k] = GIVEN[name](tensors[k], rng)
    what = f"{name} of {k}: {[t.shape for t in given]}"
    try:
      if forward:
        found = torch.ops.minnow.block(*given, *how, True, True, False)[0]
      else:
        found = torch.ops.minnow.block_backward(*given, *how, True, True)
    except Exception as error:
      self.assertIn("z is at" if name == "stride" else "", str(error), what)  # no multiple of 16 bytes
      return "refused"
    if forward:
      self.alike([found], [plain_block(*(t.double() for t in given), groups, 0.1, 0.5).float()], 1e-4, what)
      return "forwards"
    self.assertEqual(given[k].shape, tensors[k].shape, what)
    real = [t.double().float() for t in given]
    expected = torch.ops.minnow.block_backward(*real[:-1], given[-1], *how, True, True)
    self.alike(found, [e.to(t.dtype) for e, t in zip(expected, found)], 1e-6, what)
    return "backwards"

  def test_saved_tensors(self):
    self.each_draw(self.replace, "computed", "refused")

  def replace(self, rng, groups, tensors):
    """Hooks on saved tensors give back another in place of one."""
    tensors[0] = torch.cat([tensors[0], drawn(*tensors[0].shape)])  # two rows, and so no groups of one value
    precision, name, k = rng.choice(("fp32", "bf16", "fp16")), rng.choice(list(GIVEN)), rng.randrange(6)
    make = GIVEN[name] if name != "type" else lambda t, rng: t.double()  # which has the same values
    saved, run = [], lambda *t: block(*t, groups, 0.1, 0.5, precision)
    expected = outcome(run, tensors, [True] * 5)

    def pack(t):
      saved.append(t.detach())
      return len(saved) - 1

    with torch.autograd.graph.saved_tensors_hooks(
        pack, lambda i: make(saved[i], rng) if i == k and saved[i].numel() else saved[i]):
      found = outcome(run, tensors, [True] * 5)
    self.assertEqual(len(saved), 5 + (precision != "fp32"))
    if isinstance(found, Exception):
      return "refused"
    self.alike(found, expected, 1e-6, f"{name} of the saved {k} of {[t.shape for t in saved]}")
    return "computed"

  def test_data_of_another_size(self):
    own, _ = pair("cpu")
    y = own(torch.randn(9, 24))
    own.fc.weight.data, own.gn.weight.data = torch.randn(3, 3), torch.randn(1)
    with self.assertRaises(RuntimeError):
      y.sum().backward()


class PyTorchsWay(Case):
  """What watches the modules that a Block stands for sees them, and derivatives of other kinds are theirs."""

  def each_way(self, ways):
    for name, way in ways.items():
      own, plain = pair("cpu")
      own, x = own.double(), torch.randn(5, 24, dtype=torch.float64)
      with self.subTest(way=name), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = ([t for t in torch.utils._pytree.tree_leaves(way(model, x)) if t is not None] for model in (own, plain))
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
          self.near(torch.as_tensor(a), torch.as_tensor(b), 1e-9)

  def test_derivatives(self):
    def tangent(model, x):
      with torch.autograd.forward_ad.dual_level():
        y = model.requires_grad_(False)(torch.autograd.forward_ad.make_dual(x, x.cos()))
        return torch.autograd.forward_ad.unpack_dual(y).tangent

    self.each_way({
        "forward mode": tangent, "jvp": lambda model, x: torch.func.jvp(model, (x,), (x.cos(),)),
        "grad": lambda model, x: torch.func.grad(lambda x: model(x).square().sum())(x),
        "jacrev": lambda model, x: torch.func.jacrev(model)(x), "vmap": lambda model, x: torch.func.vmap(model)(x[None]),
        "functional_call": lambda model, x: torch.func.functional_call(
            model, {name: 2 * p for name, p in model.named_parameters()}, x)})

  def test_what_sees_the_modules(self):
    class Lora(torch.nn.Module):
      def __init__(self, base):
        super().__init__()
        torch.manual_seed(4)
        self.base, self.a = base, torch.nn.Parameter(torch.randn(24, 64, dtype=torch.float64))

      weight, bias = property(lambda self: self.base.weight), property(lambda self: self.base.bias)

      def forward(self, x):
        return self.base(x) + x @ self.a

    def after(change):
      def way(model, x):
        change(model)
        y = model(x)
        return y, torch.autograd.grad(y.square().sum(), list(model.parameters()), allow_unused=True)
      return way

    def seen(model, x):
      shapes = []
      model.fc.register_forward_hook(lambda module, given, y: shapes.append(y.numel()))
      return model(x), shapes

    def flops(model, x):
      with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        model(x)
      return counter.get_total_flops()

    def globally(model, x):
      with torch.nn.modules.module.register_module_forward_hook(lambda module, given, y: 2 * y):
        return model.fc(x), model(x)

    prune, parametrize = torch.nn.utils.prune, torch.nn.utils.parametrize
    self.each_way({
        "pruning": after(lambda model: prune.random_unstructured(model.fc, "weight", 0.3) if torch.manual_seed(2) else None),
        "weight_norm": after(lambda model: torch.nn.utils.weight_norm(model.fc).weight_g.data.add_(1)),
        "a parametrization": after(lambda model: parametrize.register_parametrization(model.fc, "weight", torch.nn.Tanh())),
        "a wrapper": after(lambda model: setattr(model, "fc", Lora(model.fc))),
        "a hook before": after(lambda model: model.gn.register_forward_pre_hook(lambda module, given: (2 * given[0],))),
        "a hook after": seen, "a forward of its own": after(lambda model: setattr(model.fc, "forward", lambda x: x @ x.T @ x @ model.fc.weight.T)),
        "FlopCounterMode": flops, "eps below 0": after(lambda model: setattr(model.gn, "eps", -1e-3))})

  @unittest.skipUnless(hasattr(torch.compiler, "_is_exporting_flag"), "this PyTorch does not tell that it exports")
  def test_exported(self):
    """The graph has PyTorch's operators."""
    own, x = Block(24, 64, 8), torch.randn(5, 24)
    traced, functions = torch.jit.trace(own, x), torch.fx.experimental.proxy_tensor.make_fx(own)(x)
    graphs = [functions.graph, *[torch.export.export(own, (x,), strict=strict).graph for strict in (False, True)]]
    self.assertIn("aten::leaky_relu", str(traced.inlined_graph))
    for graph in graphs[:2 if torch.__version__.startswith("2.6") else None]:  # which cannot be told of a strict export
      self.assertIn("leaky_relu", str(graph))
      self.assertNotIn("minnow", str(graph))
    for other in traced, functions:
      self.near(other(x), own(x), 1e-6)
    self.assertEqual(own.to("meta")(x.to("meta")).shape, (5, 64))


class Training(Case):
  def test_digits(self):
    """The accuracy of the plain modules, from the same seed."""
    try:
      import h5py
    except ImportError:
      self.skipTest("no h5py here (package python3-h5py)")
    with h5py.File(HERE.parent / "data" / "digits.h5") as file:
      data = {part: [torch.from_numpy(file[part][name][()]) for name in "xy"] for part in ("train", "test")}

    def accuracy(kind, device, mixed):
      torch.manual_seed(5)
      model = torch.nn.Sequential(kind(64, 128, 8), torch.nn.Linear(128, 10)).to(device)
      x, y = (t.to(device) for t in data["train"])
      x_test, y_test = (t.to(device) for t in data["test"])
      optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
      for _ in range(8):
        for rows in torch.randperm(len(x)).split(64):
          with torch.autocast(device, torch.bfloat16, enabled=mixed):
            loss = functional.cross_entropy(model(x[rows]), y[rows].long())
          optimizer.zero_grad()
          loss.backward()
          optimizer.step()
      with torch.no_grad():
        return (model(x_test).argmax(1) == y_test).double().mean().item()

    for device, mixed in self.each((False, True)):
      own, plain = accuracy(Block, device, mixed), accuracy(Model, device, mixed)
      self.assertGreater(own, 0.95)
      self.assertGreater(own, plain - 0.01)


def join(rank, world, backend, folder):
  """One process of DistributedDataParallel, with its share of the batch."""
  os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
  torch.distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world)
  device = f"cuda:{rank}" if backend == "nccl" else "cpu"
  saved = torch.load(f"{folder}/given")
  model = Block(24, 64, 8)
  if rank == 0:  # the others get them from this one
    model.load_state_dict(saved["model"])
  # The current device stays cuda:0, so that a block has to take its own.
  model = torch.nn.parallel.DistributedDataParallel(model.to(device), device_ids=[rank] if backend == "nccl" else None)
  x, dy = (saved[name].chunk(world)[rank].to(device) for name in ("x", "dy"))
  model(x).backward(dy)
  torch.save({name: p.grad.cpu() for name, p in model.module.named_parameters()}, f"{folder}/rank{rank}")
  torch.distributed.destroy_process_group()


class Distributed(Case):
  def run_on(self, backend):
    own, _ = pair("cpu")
    x, dy = torch.randn(12, 24), torch.randn(12, 64)
    expected = gradients(own, x, dy)[2:]
    with tempfile.TemporaryDirectory() as folder:
      torch.save({"model": own.state_dict(), "x": x, "dy": dy}, f"{folder}/given")
      torch.multiprocessing.spawn(join, (2, backend, folder), nprocs=2)
      for rank in range(2):
        found = torch.load(f"{folder}/rank{rank}")
        for name, gradient in zip(("fc.weight", "fc.bias", "gn.weight", "gn.bias"), expected):
          self.near(2 * found[name], gradient, 1e-5, name)  # DDP takes the mean

  def test_two_processes(self):
    self.run_on("gloo")

  @unittest.skipIf(torch.cuda.device_count() < 2, "needs two GPUs")
  def test_two_gpus(self):
    self.run_on("nccl")

  @unittest.skipIf(torch.cuda.device_count() < 2, "needs two GPUs")
  def test_the_other_gpu(self):
    own, plain = pair("cuda:1")
    x, dy = torch.randn(9, 24, device="cuda:1"), torch.randn(9, 64, device="cuda:1")
    self.assertEqual(torch.cuda.current_device(), 0)
    self.all_near(gradients(own, x, dy), gradients(plain, x.double(), dy.double()), NEAR["fp16x3"])
    self.assertEqual(torch.cuda.current_device(), 0)
    # PyTorch restores the GPU after an operator, so the function is called without one, too.
    CODE._forward(x, *(p.detach() for p in own.parameters()), 8, 1e-5, 0.01, "fp16x3", x.dtype, x.dtype, False, False)
    self.assertEqual(torch.cuda.current_device(), 0)


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class Cuda(Case):
  def test_graph(self):
    """A captured step, replayed on new inputs and, since the optimizer is captured too, new weights."""
    for precision in minnow_torch.PRECISIONS:
      with self.subTest(precision=precision):
        own, _ = pair("cuda", precision, (256, 512, 16))
        start = copy.deepcopy(own.state_dict())
        inputs = [torch.randn(128, 256, device="cuda") for _ in range(4)]
        x, optimizer = inputs[0].clone(), torch.optim.SGD(own.parameters(), lr=0.01)

        def step():
          optimizer.zero_grad(set_to_none=True)
          loss = own(x).square().mean()
          loss.backward()
          optimizer.step()
          return loss

        def restart():
          own.load_state_dict(start)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
          step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
          loss = step()
        found, expected = [], []
        restart()
        for given in inputs:
          x.copy_(given)
          graph.replay()
          found.append(loss.clone())
        replayed = copy.deepcopy(own.state_dict())
        restart()
        for given in inputs:
          x.copy_(given)
          expected.append(step().detach())
        self.assertTrue(torch.equal(torch.stack(found), torch.stack(expected)))
        for a, b in zip(replayed.values(), own.state_dict().values()):
          self.assertTrue(torch.equal(a, b))

  def test_inference_graph(self):
    """Weights that change after the capture, by another graph even, are those of the next replay."""
    own, _ = pair("cuda", "bf16", (256, 512, 16))
    x = torch.randn(128, 256, device="cuda")
    with torch.no_grad():
      own(x)
      graph = torch.cuda.CUDAGraph()
      with torch.cuda.graph(graph):
        y = own(x)
      own.fc.weight.mul_(2)
      graph.replay()
      self.assertTrue(torch.equal(y, own(x)))

  def test_capture_without_a_warm_up(self):
    code = ("import sys, torch; sys.path[:0] = [sys.argv[1]]; import minnow_torch as m; b = m.Block(8, 8, 2).cuda();"
            "x = torch.randn(3, 8, device='cuda'); g = torch.cuda.CUDAGraph()\n"
            "with torch.cuda.graph(g): y = b(x)\n"
            "g.replay(); torch.cuda.synchronize()")
    told = subprocess.run([sys.executable, "-c", code, HERE.parent / "layers"], capture_output=True, text=True, check=False)
    self.assertIn("has to run once before it is captured", told.stderr)

  def test_current_stream(self):
    """The block waits for what its stream does before, and what comes after waits for it."""
    own, _ = pair("cuda", "fp16x3", (256, 512, 16))
    x = torch.randn(128, 256, device="cuda")
    expected = gradients(own, x, torch.ones(128, 512, device="cuda"))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    found = []
    for stream in streams:
      with torch.cuda.stream(stream):
        late = torch.zeros_like(x)
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        found.append([t.clone() for t in gradients(own, late, torch.ones(128, 512, device="cuda"))])
    torch.cuda.synchronize()
    for results in found:
      self.assertTrue(all(torch.equal(a, b) for a, b in zip(results, expected)))

  def test_large(self):
    """The shapes that minnow's own GEMM takes."""
    for precision in ("fp16x3", "fp16", "bf16"):
      with self.subTest(precision=precision):
        own, plain = pair("cuda", precision, (2048, 2048, 128))
        x, dy = torch.randn(1024, 2048, device="cuda"), torch.randn(1024, 2048, device="cuda")
        if precision in TYPES:
          x = x.to(TYPES[precision]).float()
          with torch.no_grad():
            for weight in own.fc.weight, plain.fc.weight:
              weight.copy_(weight.to(TYPES[precision]))
        self.all_near(gradients(own, x, dy), gradients(plain, x.double(), dy.double()), 4 * NEAR[precision])

  def test_nothing_waits(self):
    """Neither call makes the host wait for the GPU."""
    own, _ = pair("cuda", "fp16x3", (256, 512, 16))
    x = torch.randn(128, 256, device="cuda", requires_grad=True)
    own(x).sum().backward()
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(10_000_000_000)
    own(x).sum().backward()
    done.record()
    self.assertFalse(done.query())
    torch.cuda.synchronize()


if __name__ == "__main__":
  print(f"PyTorch {torch.__version__}, {', '.join(DEVICES)}", file=sys.stderr)
  unittest.main(verbosity=2)
