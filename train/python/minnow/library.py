"""libminnow.so by ctypes: structs of minnow.h, and a model that predicts."""
import contextlib
import ctypes
import os
import pathlib
import tempfile
import weakref

import numpy


def _struct(text, **kinds):
  kinds = {"pointer": ctypes.c_void_p, "int": ctypes.c_int, "double": ctypes.c_double, "int64": ctypes.c_int64, **kinds}
  fields = [(name, kinds[kind]) for kind, names in (part.split(":") for part in text.split()) for name in names.split(",")]
  return type("Struct", (ctypes.Structure,), {"_fields_": fields})


Sizes = _struct("int64:inputs,depth widths:hidden int64:groups,head double:eps,slope int:loss,plan", widths=64 * ctypes.c_int64)
Rule = _struct("pointer:rate,scale double:momentum,weight_decay int:nesterov,kind double:beta1,beta2,eps")
Optimizer = _struct("rule:rule double:clip int:accumulate int64:rows", rule=Rule)
Schedule = _struct("int:kind double:rate int64:horizon,warmup,every double:factor")
Trainer = _struct("schedule:schedule int64:batch,seed int:place,on_nonfinite pointer:stop", schedule=Schedule)
Defaults = _struct("model:model optimizer:optimizer trainer:trainer int64:steps", model=Sizes, optimizer=Optimizer, trainer=Trainer)
ERRORS = {1: FloatingPointError, 64: ValueError, 65: ValueError, 66: FileNotFoundError, 71: MemoryError, 73: OSError, 74: OSError}

# The library that MINNOW_LIBRARY names, or else the wheel's, the checkout's, the system's.
_here = pathlib.Path(__file__).resolve().parent
_places = [place for place in (_here / "libminnow.so", _here.parents[2] / "build/libminnow.so") if place.exists()]
lib = ctypes.CDLL(os.environ.get("MINNOW_LIBRARY") or str([*_places, "libminnow.so.1"][0]))
lib.mn_message.restype = lib.mn_model_class.restype = lib.mn_version.restype = ctypes.c_char_p
lib.mn_model_sizes.restype, lib.mn_trainer_loss.restype = ctypes.POINTER(Sizes), ctypes.c_double


def argument(value):
  """Arrays go as addresses, numbers in 64 bits, of whose register an int argument reads the lower half."""
  if isinstance(value, numpy.ndarray):
    return ctypes.c_void_p(value.ctypes.data)
  return ctypes.c_int64(value) if isinstance(value, int) else value


def call(name, *arguments):
  status = getattr(lib, f"mn_{name}")(*map(argument, arguments))
  if status:
    raise ERRORS.get(status, RuntimeError)(lib.mn_message().decode())


def open_in(stack, what, *arguments, by="open"):
  """What mn_<what>_<by> gives, until the stack closes it."""
  out = ctypes.c_void_p()
  call(f"{what}_{by}", ctypes.byref(out), *arguments)
  stack.callback(getattr(lib, f"mn_{what}_close"), out)
  return out


def dataset(stack, x, y=None, labels=None):
  """Arrays, which the caller keeps: x and y of floats, or both of doubles."""
  if x.dtype == numpy.float64:
    return open_in(stack, "dataset", x, y, labels, *x.shape, 0 if y is None else y.shape[1], by="doubles")
  if labels is not None:
    return open_in(stack, "dataset", x, labels, *x.shape, by="labelled")
  return open_in(stack, "dataset", x, y, *x.shape, 0 if y is None else y.shape[1], by="arrays")


class Model:
  """A model on a device, (name, precision, threads): by sizes, or of a file. Copies and pickles are files. Any thread predicts."""

  def __init__(self, where, sizes=None, path=None):
    self.where, self.opened, self.idle = where, contextlib.ExitStack(), []
    weakref.finalize(self, self.opened.close).atexit = False  # threads may predict to the end
    device = open_in(self.opened, "device", where[0].encode(), where[1].encode(), where[2])
    self.model = (open_in(self.opened, "model", device, ctypes.byref(sizes)) if sizes else
                  open_in(self.opened, "model", device, os.fsencode(path), by="load"))
    self.sizes = lib.mn_model_sizes(self.model).contents
    self.outputs = self.sizes.head or self.sizes.hidden[self.sizes.depth - 1]

  def save(self, path):
    call("model_save", self.model, os.fsencode(path))

  def __reduce__(self):
    with tempfile.TemporaryDirectory() as folder:
      self.save(os.path.join(folder, "model.h5"))
      return _unpickle, (self.where, pathlib.Path(folder, "model.h5").read_bytes())

  def predict(self, x):
    """y [n, K] in doubles: in the targets' units or, of classes, what softmax is applied to."""
    y, most = numpy.empty((len(x), self.outputs)), 1024
    with contextlib.ExitStack() as here:
      rows = dataset(here, x)
      try:  # a predictor that no other thread has
        predictor = self.idle.pop()
      except IndexError:
        predictor = open_in(self.opened, "predictor", self.model, most)
      here.callback(self.idle.append, predictor)
      for first in range(0, len(x), most):
        call("predict_rows", predictor, rows, first, min(most, len(x) - first), y[first:])
    return y


def _unpickle(where, data):
  with tempfile.NamedTemporaryFile(suffix=".h5") as file:
    file.write(data)
    file.flush()
    try:
      return Model(where, path=file.name)
    except RuntimeError:  # a machine without the GPU
      return Model(("cpu", *where[1:]), path=file.name)
