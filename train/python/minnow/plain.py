"""What the estimators take from scikit-learn, where it is not installed."""
import inspect

import numpy


class BaseEstimator:
  def get_params(self, deep=True):
    return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

  def set_params(self, **parameters):
    type(self)(**{**self.get_params(), **parameters})  # an unknown one is a TypeError
    vars(self).update(parameters)
    return self


class ClassifierMixin:
  def score(self, X, y):
    return float(numpy.mean(self.predict(X) == numpy.ravel(y)))


class RegressorMixin:
  def score(self, X, y):
    y, predicted = numpy.asarray(y), self.predict(X)
    return float(numpy.mean(1 - ((y - predicted) ** 2).sum(axis=0) / ((y - y.mean(axis=0)) ** 2).sum(axis=0)))


def validate_data(self, X, y=None, reset=True, dtype=(), y_numeric=False, multi_output=False):
  x, y = numpy.asarray(X), numpy.asarray(y)
  y = y if multi_output or y.shape != (len(x), 1) else y[:, 0]
  if x.ndim != 2 or x.dtype.kind not in "biuf" or not (reset or x.shape[1] == self.n_features_in_) or (
      reset and (y.shape[:1] != x.shape[:1] or y.ndim > 1 + multi_output)):
    raise ValueError(f"X {x.shape} of {x.dtype}, y {y.shape}: numbers [n, I], as wide as in fit, and n targets work")
  self.n_features_in_ = x.shape[1]
  x, y = (values.astype(dtype[0]) if asked and values.dtype not in dtype else values for values, asked in ((x, True), (y, y_numeric)))
  return (x, y) if reset else x


def check_is_fitted(self):
  if not hasattr(self, "model_"):
    raise AttributeError(f"this {type(self).__name__} is not fitted: call fit, or load")
