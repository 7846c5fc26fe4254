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


def validate_data(self, X, y=None, reset=True, dtype=(), y_numeric=False, **_):
  x, y = numpy.asarray(X), None if y is None else numpy.asarray(y)
  if x.ndim != 2 or (y is not None and len(y) != len(x)) or not (reset or x.shape[1] == self.n_features_in_):
    raise ValueError(f"X {x.shape}{'' if y is None else f' and y {y.shape}'}: rows [n, I], as wide as in fit, and n targets work")
  self.n_features_in_ = x.shape[1]
  x, y = (values.astype(dtype[0]) if asked and values.dtype not in dtype else values for values, asked in ((x, True), (y, y_numeric)))
  return x if y is None else (x, y)


def check_is_fitted(self):
  if not hasattr(self, "model_"):
    raise AttributeError(f"this {type(self).__name__} is not fitted: call fit, or load")
