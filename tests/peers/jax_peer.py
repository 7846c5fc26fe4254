"""JAX as a child of peers.py: the block under jit, the step with its parameters and momenta donated."""
import functools

import jax
import jax.numpy as jnp

import timing

# XLA's word for what a float32 product may be rounded to.
PRODUCTS = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": None}


def dot(a, b, over, out=None):
  return jax.lax.dot_general(a, b, ((over, over), ((), ())), preferred_element_type=out)


@jax.custom_vjp
def wide_product(x, weight):
  """x·Wᵀ with bfloat16 factors and float32 sums, and dzᵀ·x likewise: left to itself, JAX would make the latter a
  product of float32 factors."""
  return dot(x, weight.astype(x.dtype), (1,), jnp.float32)


wide_product.defvjp(lambda x, weight: (wide_product(x, weight), x),
                    lambda x, dz: (None, dot(dz.astype(x.dtype), x, (0,), jnp.float32)))


def block(p, x, groups, wide):
  """`wide`: the products keep their float32 sums; otherwise they are rounded as they are stored, as under flax."""
  z = wide_product(x, p["weight"]) if wide else dot(x, p["weight"].astype(x.dtype), (1,)).astype(jnp.float32)
  z = z + p["bias"]
  grouped = z.reshape(z.shape[0], groups, -1)
  centred = grouped - grouped.mean(axis=2, keepdims=True)
  scaled = centred * jax.lax.rsqrt((centred * centred).mean(axis=2, keepdims=True) + 1e-5)
  a = jax.nn.leaky_relu(scaled.reshape(z.shape) * p["gamma"] + p["beta"], 0.01)
  return a + a


@functools.partial(jax.jit, static_argnums=(2, 3))
def forward(p, x, groups, wide):
  return block(p, x, groups, wide).astype(x.dtype)


@functools.partial(jax.jit, static_argnums=(4, 5), donate_argnums=(0, 1))
def step(p, momenta, x, target, groups, wide):
  gradients = jax.grad(lambda p: jnp.mean((block(p, x, groups, wide) - target) ** 2))(p)
  momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
  return jax.tree.map(lambda w, m: w - 1e-6 * m, p, momenta), momenta


class Jax(timing.Peer):
  def __init__(self):
    super().__init__()
    jax.devices()  # without a device this is where it ends

  def about(self):
    return f"JAX {jax.__version__}"

  def random(self, *sizes, bound=1.0):
    self.key, key = jax.random.split(self.key)
    return jax.random.uniform(key, sizes, minval=-bound, maxval=bound)

  def open(self, shape, precision):
    self.shape, self.key = shape, jax.random.key(7)
    self.dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    jax.config.update("jax_default_matmul_precision", PRODUCTS[precision])
    rows = ["JAX", "JAX, float32 sums"] if precision == "bf16" else ["JAX"]
    return [(row, what) for row in rows for what in ("forward", "step")]

  def make(self, row, what):
    rows, inputs, channels, groups = self.shape
    wide = row != "JAX"
    bound = inputs**-0.5
    p = {"weight": self.random(channels, inputs, bound=bound), "bias": self.random(channels, bound=bound),
         "gamma": self.random(channels), "beta": self.random(channels)}
    x = self.random(rows, inputs).astype(self.dtype)
    if what == "forward":
      p = jax.tree.map(lambda w: w.astype(self.dtype), p)
      state = forward(p, x, groups, wide)
    else:
      target, state = self.random(rows, channels), (p, jax.tree.map(jnp.zeros_like, p))

    def call():
      nonlocal state
      state = forward(p, x, groups, wide) if what == "forward" else step(*state, x, target, groups, wide)

    return call, lambda: jax.block_until_ready(state)


if __name__ == "__main__":
  timing.serve(Jax())
