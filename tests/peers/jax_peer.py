"""JAX as a child of peers.py: the blocks under jit, the step with its parameters and momenta donated."""
import collections
import functools

import jax
import jax.numpy as jnp

import timing

# How a row computes. dtype: of what products read, and of what a block hands to the next. algorithm: XLA's word for
# what a product of floats may be made of. wide: products keep their float32 sums; otherwise they are rounded as they
# are stored, as under flax. scale: a fixed factor on the loss, by which the rate is divided; without one, float16
# would lose a dy of 1e-7.
Way = collections.namedtuple("Way", "dtype algorithm wide scale", defaults=(None, False, 1))
ALGORITHMS = ["BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "TF32_TF32_F32_X3"]
FLOAT32 = {"JAX": Way(jnp.float32, "highest")}


def narrow(dtype, scale):
  return {"JAX": Way(dtype, scale=scale), "JAX, float32 sums": Way(dtype, wide=True, scale=scale)}


WAYS = {"bf16": narrow(jnp.bfloat16, 1), "fp16": narrow(jnp.float16, 2.0**16), "fp32": FLOAT32,
        "tf32": {"JAX": Way(jnp.float32, "tensorfloat32")},
        "fp16x3": {**FLOAT32, **{f"JAX {algorithm}": Way(jnp.float32, algorithm) for algorithm in ALGORITHMS}}}


def dot(a, b, over, algorithm=None, out=None):
  """over: the dimension of a and of b that is summed over."""
  dimensions = (over[:1], over[1:]), ((), ())
  return jax.lax.dot_general(a, b, dimensions, precision=algorithm, preferred_element_type=out)


@jax.custom_vjp
def wide_product(x, weight):
  """x·Wᵀ with factors of x's type and float32 sums, and dz·W and dzᵀ·x likewise: left to itself, JAX would make these
  two products of float32 factors."""
  return dot(x, weight.astype(x.dtype), (1, 1), out=jnp.float32)


def wide_gradients(saved, dz):
  x, weight = saved
  dz = dz.astype(x.dtype)
  dx = dot(dz, weight.astype(x.dtype), (1, 0), out=jnp.float32).astype(x.dtype)  # not computed where nobody reads it
  return dx, dot(dz, x, (0, 0), out=jnp.float32).astype(weight.dtype)


wide_product.defvjp(lambda x, weight: (wide_product(x, weight), (x, weight)), wide_gradients)


def product(x, weight, way):
  if way.wide:
    return wide_product(x, weight)
  return dot(x, weight.astype(x.dtype), (1, 1), way.algorithm).astype(jnp.float32)


def block(p, x, groups, way):
  """Or the head, which has no gamma."""
  z = product(x, p["weight"], way) + p["bias"]
  if "gamma" not in p:
    return z
  grouped = z.reshape(z.shape[0], groups, -1)
  centred = grouped - grouped.mean(axis=2, keepdims=True)
  scaled = centred * jax.lax.rsqrt((centred * centred).mean(axis=2, keepdims=True) + 1e-5)
  a = jax.nn.leaky_relu(scaled.reshape(z.shape) * p["gamma"] + p["beta"], 0.01)
  return a + a


def blocks(p, x, groups, way):
  """p: the parameters of each block. The last one's float32 result."""
  for of_block in p[:-1]:
    x = block(of_block, x, groups, way).astype(way.dtype)
  return block(p[-1], x, groups, way)


@functools.partial(jax.jit, static_argnums=(2, 3))
def forward(p, x, groups, way):
  return blocks(p, x, groups, way).astype(way.dtype)


def loss(y, target):
  """target: values, or classes."""
  if target.ndim == y.ndim:
    return jnp.mean((y - target) ** 2)
  return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(y), target[:, None], axis=1))


@functools.partial(jax.jit, static_argnums=(4, 5), donate_argnums=(0, 1))
def step(p, momenta, x, target, groups, way):
  gradients = jax.grad(lambda p: way.scale * loss(blocks(p, x, groups, way), target))(p)
  momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
  return jax.tree.map(lambda w, m: w - 1e-6 / way.scale * m, p, momenta), momenta


@functools.partial(jax.jit, static_argnums=2)
def product_alone(x, weight, way):
  return product(x.astype(way.dtype), weight, way)


class Jax(timing.Peer):
  def __init__(self):
    super().__init__()
    jax.devices()  # without a device this is where it ends

  def about(self):
    return f"JAX {jax.__version__}"

  def random(self, *sizes, bound=1.0):
    self.key, key = jax.random.split(self.key)
    return jax.random.uniform(key, sizes, minval=-bound, maxval=bound)

  def open(self, shape, precision, classes=0):
    self.shape, self.classes, self.key, self.ways = shape, classes, jax.random.key(7), WAYS[precision]
    return [(row, what) for row in self.ways for what in ("forward", "step")]

  def parameters(self, inputs, channels):
    """Of one block."""
    bound = inputs**-0.5
    return {"weight": self.random(channels, inputs, bound=bound), "bias": self.random(channels, bound=bound),
            "gamma": self.random(channels), "beta": self.random(channels)}

  def make(self, row, what):
    rows, *widths, groups = self.shape
    way = self.ways[row]
    p = [self.parameters(a, b) for a, b in zip(widths, widths[1:])]
    if self.classes:
      head = self.parameters(widths[-1], self.classes)
      p.append({"weight": head["weight"], "bias": head["bias"]})
    x = self.random(rows, widths[0]).astype(way.dtype)
    if what == "forward":
      p = jax.tree.map(lambda w: w.astype(way.dtype), p)
      state = forward(p, x, groups, way)
    else:
      target = jnp.arange(rows) % self.classes if self.classes else self.random(rows, widths[-1])
      state = p, jax.tree.map(jnp.zeros_like, p)

    def call():
      nonlocal state
      state = forward(p, x, groups, way) if what == "forward" else step(*state, x, target, groups, way)

    return call, lambda: jax.block_until_ready(state)

  def error(self, row):
    n, inputs, channels = self.shape[:3]
    rows, columns = timing.sample(n, channels)
    x, weight = self.random(n, inputs), self.random(channels, inputs, bound=inputs**-0.5)
    z = product_alone(x, weight, self.ways[row])
    return timing.product_error(x[rows], weight[columns], z[rows, columns])


if __name__ == "__main__":
  timing.serve(Jax())
