"""How every figure is taken, the same way for every peer, and the loop by which a child process serves its own.

A run is a number of calls, given to the device one after the other between two waits for it. What a call costs on the
host therefore counts where the device has to wait for the host, as in a training loop, and not otherwise. All peers are
timed by the host's clock. Each subject is timed in two ways. *Rested*: ten calls (more, where they would not fill 2 ms)
after a pause and one call that is not timed, at the clocks that the card has then. *Sustained*: runs of 20 ms without a
pause, at the clocks that the power limit allows under load."""
import json
import math
import os
import statistics
import sys
import time

SUSTAINED = {"run_s": 0.020, "calls": 1, "pause_s": 0, "repetitions": 15}
RESTED = {"run_s": 0.002, "calls": 10, "pause_s": 0.02, "repetitions": 7}


def run(call, sync, count):
  sync()
  start = time.perf_counter()
  for _ in range(count):
    call()
  sync()
  return (time.perf_counter() - start) / count


def median(call, sync, each, way, budget_s):
  """The median and the quartiles, in ms. After four times the budget, three repetitions are enough."""
  count = max(way["calls"], math.ceil(way["run_s"] / each))
  times, start = [], time.perf_counter()
  while len(times) < way["repetitions"] and (len(times) < 3 or time.perf_counter() - start < 4 * budget_s):
    if way["pause_s"]:
      time.sleep(way["pause_s"])
      run(call, sync, 1)
    times.append(1e3 * run(call, sync, count))
  low, middle, high = statistics.quantiles(times, n=4)
  return {"ms": middle, "quartiles": [low, high], "repetitions": len(times), "calls": count}


def measure(call, sync, warm_s, budget_s):
  """Both ways, after a warm-up that also says how long a call takes."""
  run(call, sync, 1)  # the first call sets things up and is not timed
  count, start = 1, time.perf_counter()
  while True:
    each = run(call, sync, count)
    if each * count < SUSTAINED["run_s"]:
      count *= 2
    elif time.perf_counter() - start >= warm_s:
      break
  sustained = median(call, sync, each, SUSTAINED, budget_s)
  return {"sustained": sustained, "rested": median(call, sync, each, RESTED, budget_s)}


def stretch(call, sync, warm_s, seconds):
  """One run of about so many seconds after a warm-up: the milliseconds of a call in a training loop, in which epochs
  begin and end and the loader falls behind or does not."""
  count, each, start = 1, run(call, sync, 1), time.perf_counter()
  while time.perf_counter() - start < warm_s:
    each = run(call, sync, count)
    if each * count < warm_s / 4:
      count *= 2
  count = max(1, math.ceil(seconds / each))
  return {"ms": 1e3 * run(call, sync, count), "calls": count}


def cold(once):
  """KernelBench's protocol; once() flushes the L2 cache, makes one call and returns its milliseconds."""
  for _ in range(3):
    once()
  times = [once() for _ in range(100)]
  return {"ms": statistics.median(times), "mean_ms": statistics.mean(times)}


SAMPLE = (64, 512)  # rows and channels of a product that are held against float64, at least


def sample(rows, channels):
  """About so many of each, spread evenly. The product is computed whole: these are what is looked at."""
  return tuple(slice(None, None, max(1, count // most)) for count, most in zip((rows, channels), SAMPLE))


def product_error(x, weight, z):
  """The norm of z - x*W^T over that of x*W^T, computed in float64 from floats that nothing has rounded yet: rows of x
  and W, and z where they meet."""
  import numpy  # here, because times can be taken without it

  x, weight, z = (numpy.asarray(matrix, numpy.float64) for matrix in (x, weight, z))
  exact = x @ weight.T
  return float(numpy.linalg.norm(z - exact) / numpy.linalg.norm(exact))


class Peer:
  """What a child serves; each method but make() is a request. A subject is a row of the tables and what is timed."""

  def __init__(self):
    self.ready = {}

  def make(self, row, what):
    """Builds what is to be timed: call(), which gives the device one run of it, and sync(), which waits for all."""
    raise NotImplementedError

  def prepare(self, row, what):
    call, sync = self.ready[row, what] = self.make(row, what)
    call()
    sync()

  def time(self, row, what, warm_s, budget_s):
    return measure(*self.ready[row, what], warm_s, budget_s)

  def error(self, row):
    """How far a product x*W^T is off that is computed as in this row (product_error)."""
    raise NotImplementedError

  def close(self):
    """Gives back what open() and prepare() took."""
    self.ready.clear()


def reason(error):
  """The first line of an exception's text; what follows are stack frames of libraries."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200].rstrip(": ")


def serve(peer):
  """One JSON request a line from stdin, {"do": method, ...}, one JSON reply a line to stdout. Whatever else
  prints to stdout is sent to stderr."""
  replies = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)
  for line in sys.stdin:
    request = json.loads(line)
    try:
      reply = {"value": getattr(peer, request.pop("do"))(**request)}
    except Exception as error:  # whatever a peer meets is a result: it is named in the table
      reply = {"error": reason(error)}
    print(json.dumps(reply), file=replies, flush=True)
