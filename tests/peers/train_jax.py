"""JAX as a child of train.py: the step of jax_peer.py in a training loop whose data are on the device. A step takes its
rows by an order drawn anew each epoch, and is one jitted call whose parameters and momenta are donated; or the steps of
a whole epoch are one call (lax.scan)."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy

import jax_peer
import timing

STEPS, EPOCHS = ROWS = ["JAX, resident", "JAX, resident, epochs as one scan"]


@functools.partial(jax.jit, static_argnums=(6, 7, 8), donate_argnums=(0, 1))
def step(p, momenta, x, y, order, at, batch, groups, way):
  index = jax.lax.dynamic_slice_in_dim(order, at, batch)
  return jax_peer.step(p, momenta, jnp.take(x, index, axis=0), jnp.take(y, index, axis=0), groups, way)


@functools.partial(jax.jit, static_argnums=(5, 6, 7), donate_argnums=(0, 1))
def epoch(p, momenta, x, y, order, batch, groups, way):
  def body(state, at):
    return step(*state, x, y, order, at, batch, groups, way), None

  return jax.lax.scan(body, (p, momenta), jnp.arange(0, x.shape[0], batch))[0]


class TrainJax(jax_peer.Jax):
  def open(self, data, shape, precision):
    """As in train_torch.py."""
    rows, inputs, channels, groups, batch = shape
    super().open((batch, inputs, *channels, groups), precision)
    self.batch, self.mapped = batch, {}
    for name, width in ("x", inputs), ("y", channels[-1]):
      self.mapped[name] = numpy.memmap(data["path"], numpy.dtype("<f4"), "r", data[name], (rows, width))
    return ROWS

  def make(self, row, what):
    _, *widths, groups = self.shape
    order, at, way = None, 0, self.ways["JAX"]
    p = [self.parameters(a, b) for a, b in zip(widths, widths[1:])]
    state = p, jax.tree.map(jnp.zeros_like, p)
    x, y = jnp.array(self.mapped["x"]).astype(way.dtype), jnp.array(self.mapped["y"])

    def call():
      nonlocal state, order, at
      if at == 0:
        self.key, key = jax.random.split(self.key)
        order = jax.random.permutation(key, x.shape[0])
      if row == EPOCHS:
        state = epoch(*state, x, y, order, self.batch, groups, way)
        return
      state = step(*state, x, y, order, at, self.batch, groups, way)
      at = (at + self.batch) % x.shape[0]

    return call, lambda: jax.block_until_ready(state)

  def prepare(self, row, what):
    """Returns the seconds to the end of the first call: compiling, moving the data."""
    start = time.perf_counter()
    super().prepare(row, what)
    return {"first_s": time.perf_counter() - start}

  def time(self, row, what, warm_s, budget_s):
    figure = timing.stretch(*self.ready[row, what], warm_s, budget_s)
    steps = len(self.mapped["x"]) // self.batch if row == EPOCHS else 1
    return {**figure, "ms": figure["ms"] / steps}

  def close(self):
    super().close()
    self.mapped = {}


if __name__ == "__main__":
  timing.serve(TrainJax())
