"""Classifier and Regressor after scikit-learn's conventions: what `minnow train` learns, from arrays or DataFrames of numbers.
scikit-learn is used where it is installed, and not needed."""
import contextlib
import ctypes
import operator
import os
import sys
import time

import numpy

from minnow.library import Defaults, Model, argument, call, dataset, lib, open_in

try:
  from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
  from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
  from minnow.plain import BaseEstimator, ClassifierMixin, RegressorMixin, check_is_fitted, validate_data

__all__ = ["Classifier", "Regressor"]
__version__ = lib.mn_version().decode()
REALS = [numpy.float64, numpy.float32]
PARAMETERS = """

hidden          channels of the block, or of each block
epochs          passes over the rows; None: 11, and as many more as make 100 steps
batch           rows a step; None: 64, and 32 if there are less than 16384
rate            learning rate of AdamW, which falls to 0 over the run; None: 0.007
weight_decay    of every parameter; None: by the number of steps
groups          of each block's GroupNorm; None: at most 8, of at least 4 channels each
device          "cpu", "cuda", "cuda:1", or "auto": the GPU if there is one
precision       of matrix products: "fp32", "tf32", "bf16", "fp16", "fp16x3", "fp64"
threads         that compute on the CPU; None: as OpenMP says
random_state    the seed, None for another each time, or numpy's RandomState or Generator
progress        whether stderr tells how far fit is

fit sets n_features_in_ and, of a Classifier, classes_. save writes a file that `minnow` takes as --run. load reads such a file, or a
run of `minnow train`; it takes device, precision and threads, and makes numbers of class names that are whole numbers."""


class _Estimator(BaseEstimator):
  def __init__(self, hidden=128, *, epochs=None, batch=None, rate=None, weight_decay=None, groups=None, device="cpu",
               precision="fp32", threads=None, random_state=0, progress=False):
    self.hidden, self.epochs, self.batch, self.rate, self.weight_decay = hidden, epochs, batch, rate, weight_decay
    self.groups, self.device, self.precision, self.threads = groups, device, precision, threads
    self.random_state, self.progress = random_state, progress

  def _fitted(self, x, y=None, labels=None):
    """Trains as `minnow train` does, on x [n, I] and y [n, K] or labels."""
    draw = numpy.random if self.random_state is None else self.random_state
    draw = getattr(draw, "randint", getattr(draw, "integers", None))
    seed = int(draw(2**31 - 1)) if draw else _number("random_state", self.random_state, least=0)
    widths = numpy.array([_number("hidden", 0 if width is None else width) for width in numpy.ravel(self.hidden)], numpy.int64)
    by, batch = Defaults(), min(_number("batch", self.batch) or 0, len(x))
    chosen = (_number("rate", self.rate, float, 0, numpy.inf), _number("weight_decay", self.weight_decay, float, 0, numpy.inf),
              _number("groups", self.groups))
    with contextlib.ExitStack() as here:
      rows = dataset(here, x, y, labels)
      call("defaults", ctypes.byref(by), rows, widths, len(widths), _number("epochs", self.epochs) or 0, batch)
      for value, config, name in zip(chosen, (by.trainer.schedule, by.optimizer.rule, by.model), ("rate", "weight_decay", "groups")):
        setattr(config, name, getattr(config, name) if value is None else value)
      by.trainer.seed = seed
      fitted = Model(self._where(), by.model)
      call("model_initialise", fitted.model, seed)
      call("model_standardize_by", fitted.model, rows)
      optimizer = open_in(here, "optimizer", fitted.model, ctypes.byref(by.optimizer))
      trainer = open_in(here, "trainer", fitted.model, optimizer, rows, ctypes.byref(by.trainer), None)
      done, many = 0, 1
      while done < by.steps:  # in parts of some hundredths of a second, so that Ctrl-C is heard
        began, done = time.monotonic(), min(done + many, by.steps)
        call("trainer_run", trainer, done, None, None)
        many *= 2 if time.monotonic() - began < 0.05 else 1
        if self.progress:
          print(f"\rminnow: {done / by.steps:4.0%}, loss {lib.mn_trainer_loss(trainer):.4g}", end="\n" if done == by.steps else "",
                file=sys.stderr, flush=True)
    return fitted

  def _where(self):
    return str(self.device), str(self.precision), _number("threads", self.threads, most=2**31) or 0

  def _outputs(self, X):
    check_is_fitted(self)
    return self.model_.predict(numpy.ascontiguousarray(validate_data(self, X, reset=False, dtype=REALS)))

  def save(self, path):
    check_is_fitted(self)
    self.model_.save(path)

  @classmethod
  def load(cls, path, **parameters):
    self = cls(**parameters)
    self.model_ = Model(self._where(), path=os.path.join(path, "checkpoint.h5") if os.path.isdir(path) else path)
    sizes = self.model_.sizes
    if sizes.loss != issubclass(cls, Classifier):
      raise ValueError(f"{path} has {'classes: Classifier' if sizes.loss else 'numbers: Regressor'}.load reads it")
    self.hidden, self.groups, self.n_features_in_ = tuple(sizes.hidden[:sizes.depth]), sizes.groups, sizes.inputs
    self._name_outputs()
    return self


class Regressor(RegressorMixin, _Estimator):
  __doc__ = "Predicts a number, or several, for each row." + PARAMETERS

  def fit(self, X, y):
    X, y = validate_data(self, X, y, dtype=REALS, multi_output=True, y_numeric=True)
    real = numpy.float32 if X.dtype == y.dtype == numpy.float32 else numpy.float64
    self.model_ = self._fitted(numpy.ascontiguousarray(X, real), numpy.ascontiguousarray(y.reshape(len(y), -1), real))
    self._flat = y.ndim == 1
    return self

  def predict(self, X):
    y = self._outputs(X)
    return y[:, 0] if self._flat else y

  def _name_outputs(self):
    self._flat = self.model_.outputs == 1

  def __sklearn_tags__(self):
    tags = super().__sklearn_tags__()
    tags.target_tags.multi_output = True
    return tags


class Classifier(ClassifierMixin, _Estimator):
  __doc__ = "Predicts the class, a number or a word, of each row." + PARAMETERS

  def fit(self, X, y):
    X, y = validate_data(self, X, y, dtype=REALS)
    y = numpy.array(y.tolist()) if y.dtype == object else y
    if y.dtype.kind in "fc" and (y != numpy.floor(y.real)).any():
      raise ValueError("Unknown label type: y has numbers that are not whole, which a Regressor predicts")
    classes, labels = numpy.unique(y, return_inverse=True)
    order = numpy.argsort(numpy.argsort(_names(classes)))  # the output of each class: outputs are in the order of names
    self.model_ = self._fitted(numpy.ascontiguousarray(X), labels=order[labels].astype(numpy.int32))
    self.classes_, self._order = classes, order
    return self

  def predict_proba(self, X):
    y = self._outputs(X)[:, self._order]
    y = numpy.exp(y - y.max(axis=1, keepdims=True))
    return y / y.sum(axis=1, keepdims=True)

  def predict(self, X):
    best = self._outputs(X)[:, self._order].argmax(axis=1)
    return self.classes_[best]

  def save(self, path):
    check_is_fitted(self)
    names = sorted(_names(self.classes_))
    if isinstance(names[0], str):
      call("model_classes", self.model_.model, (ctypes.c_char_p * len(names))(*map(str.encode, names)), len(names))
    super().save(path)

  def _name_outputs(self):
    names = [lib.mn_model_class(self.model_.model, argument(k)) for k in range(self.model_.outputs)]
    names = [name.decode() for name in names] if names[0] else range(len(names))
    for kind in int, str:
      with contextlib.suppress(ValueError):
        self.classes_ = numpy.unique([kind(name) for name in names])
        if sorted(_names(self.classes_)) == list(names):
          break
    self._order = numpy.argsort(numpy.argsort(_names(self.classes_)))


def _names(classes):
  """What files call them: 0, 1, … or, of others, words."""
  numbers = classes.dtype.kind in "biuf"
  if numbers and (classes == numpy.arange(len(classes))).all():
    return list(range(len(classes)))
  return [str(int(name) if numbers else name) for name in classes]


def _number(name, value, kind=operator.index, least=1, most=2**63):
  """The value of a parameter, or None."""
  with contextlib.suppress(TypeError, ValueError):
    if value is None or (not isinstance(value, (str, bytes, bool)) and least <= kind(value) < most):
      return value if value is None else kind(value)
  raise ValueError(f"{name}={value!r}: a {'whole ' if kind is operator.index else ''}number from {least} on works")
