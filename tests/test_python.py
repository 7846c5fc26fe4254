"""train/python: the estimators with scikit-learn and without it, beside the command and the library's structs."""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import numpy

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "train/python"))

import minnow  # noqa: E402
import minnow.library  # noqa: E402

try:
  import sklearn
except ImportError:
  sklearn = None
try:
  import h5py
except ImportError:
  h5py = None

PROGRAM = os.environ.get("MINNOW", str(TOP / "build/minnow"))


def rows(kind, n=240, cols=6, seed=0, dtype="float64"):
  """x and y: classes as numbers or words, one target or three."""
  draw = numpy.random.RandomState(seed)
  x = draw.normal(size=(n, cols)) * 10.0**numpy.arange(cols) + 1000
  v = (x - x.mean(axis=0)) / x.std(axis=0)
  label = (v[:, 0] > 0).astype(int) + (v[:, 1] > 0.5)
  y = {"classes": label, "words": numpy.array(["oak", "ash", "elm"])[label], "target": 5000 + 300 * v[:, 2] + 20 * v[:, 3] ** 2,
       "targets": v[:, :3] * [1, 100, 1e4] + 7}[kind]
  return x.astype(dtype), y


class Estimators(unittest.TestCase):
  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.path = pathlib.Path(folder.name)

  def test_structs(self):
    """Sizes and offsets are minnow.h's."""
    lines = (TOP / "tests/abi.txt").read_text()
    for name, struct in (("model_config", minnow.library.Sizes), ("rule", minnow.library.Rule), ("schedule", minnow.library.Schedule),
                         ("optimizer_config", minnow.library.Optimizer), ("trainer_config", minnow.library.Trainer),
                         ("defaults", minnow.library.Defaults)):
      own = [f"mn_{name} {ctypes.sizeof(struct)}"]
      for field, _ in struct._fields_:
        at = getattr(struct, field)
        own.append(f"mn_{name}.{field} at {at.offset} of {at.size}")
      self.assertEqual(own, re.findall(rf"^mn_{name}\b.*", lines, re.M))

  def test_learns(self):
    for kind in "classes", "words", "target", "targets":
      for dtype in "float64", "float32":
        x, y = rows(kind, dtype=dtype)
        one = (minnow.Regressor if "target" in kind else minnow.Classifier)(hidden=(32, 16), epochs=40)
        self.assertIs(one.fit(x, y), one)
        self.assertGreater(one.score(x, y), 0.9, kind)
        self.assertEqual(one.predict(x).shape, y.shape)
        if "target" not in kind:
          share = one.predict_proba(x)
          self.assertTrue(numpy.allclose(share.sum(axis=1), 1) and (one.classes_[share.argmax(axis=1)] == one.predict(x)).all())
        again = type(one)(hidden=(32, 16), epochs=40).fit(x, y)
        self.assertTrue((again.predict(x) == one.predict(x)).all())

  def test_constant_targets(self):
    x, _ = rows("target")
    for constant in 0, 1e-6, 5, -1e9, 1e-300:
      y = numpy.c_[x[:, 0], numpy.full(len(x), constant)]
      self.assertLessEqual(numpy.abs(minnow.Regressor(8, epochs=1).fit(x, y).predict(x)[:, 1] - constant).max(), 1e-5 * abs(constant) + 1e-285)

  def test_save_and_load(self):
    """By file and by pickle. Classes are what they were, and in their order, be it not that of their names."""
    x, _ = rows("classes")
    index = numpy.arange(len(x)) % 3
    for classes in ([0, 1, 2], [2, 10, 100], [-1, 0, 1], ["b", "a", "ü"], ["007", "7", "08"], [1.0, 2.0, 3.0], [False, True, True]):
      y = numpy.array(classes)[index]
      one = minnow.Classifier(8, epochs=1).fit(x, y)
      one.save(self.path / "m.h5")
      for other in minnow.Classifier.load(self.path / "m.h5"), pickle.loads(pickle.dumps(one)):
        self.assertTrue((other.predict(x) == one.predict(x)).all() and (other.predict_proba(x) == one.predict_proba(x)).all(), classes)
        self.assertTrue((other.classes_ == one.classes_).all() and other.n_features_in_ == 6 and tuple(numpy.ravel(other.hidden)) == (8,))
      if h5py:
        self.assertEqual(self.labels_by_the_command(x, "m.h5"), [c if isinstance(c, str) else str(int(c)) for c in one.predict(x)])
    with self.assertRaisesRegex(ValueError, "classes: Classifier.load reads it"):
      minnow.Regressor.load(self.path / "m.h5")
    for kind in "target", "targets":
      x, y = rows(kind)
      one = minnow.Regressor(8, epochs=1).fit(x, y)
      one.save(self.path / f"{kind}.h5")
      self.assertTrue((minnow.Regressor.load(self.path / f"{kind}.h5").predict(x) == one.predict(x)).all())

  def labels_by_the_command(self, x, model):
    with h5py.File(self.path / "x.h5", "w") as file:
      file["x"] = x
    self.run_well("predict", "--data", str(self.path / "x.h5"), "--run", str(self.path / model), "--out",
                  str(self.path / "out.csv"), "--force")
    return [line.split(",")[1] for line in (self.path / "out.csv").read_text().splitlines()[1:]]

  @unittest.skipUnless(h5py, "no h5py")
  def test_the_commands_bytes(self):
    for i, (kind, options) in enumerate((("classes", {}), ("words", {"batch": 17}), ("target", {"epochs": 3}), ("targets", {"rate": 0.01}),
                                         ("target", {"groups": 2, "weight_decay": 0.1}))):
      for dtype in "float64", "float32":
        x, y = rows(kind, n=150 + 10 * i, seed=i, dtype=dtype)
        name, data, run, out = (str(self.path / f"{i}{dtype}{end}") for end in (".m.h5", ".h5", "", ".out.h5"))
        with h5py.File(data, "w") as file:
          file["x"] = x
          file["y"] = y.astype("S") if kind == "words" else y
        said = [f"--{'lr' if option == 'rate' else option.replace('_', '-')}={value}" for option, value in options.items()]
        self.run_well("train", "--data", data, "--hidden", "32,16", "--seed", "5", "--run", run, "--device", "cpu", *said)
        self.run_well("predict", "--data", data, "--run", run, "--out", out, "--device", "cpu")
        one = (minnow.Regressor if "target" in kind else minnow.Classifier)((32, 16), random_state=5, **options).fit(x, y)
        one.save(name)
        with h5py.File(out) as file, h5py.File(name) as own, h5py.File(run + "/checkpoint.h5") as its:
          outputs = file["y"][:].reshape(len(x), -1)
          for group in "model", "input", "output":
            if group in its:
              its[group].visititems(lambda place, item: self.assertTrue(  # noqa: B023
                  not hasattr(item, "shape") or (item[()] == own[group][place][()]).all(), place))  # noqa: B023
        self.assertTrue((outputs == one._outputs(x)).all())
        self.run_well("predict", "--data", data, "--run", name, "--out", out, "--device", "cpu", "--force")
        if kind == "words":
          with h5py.File(out) as file:
            self.assertEqual([name.decode() for name in file["classes"][:]], sorted(one.classes_))

  def run_well(self, *words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)
    self.assertEqual(done.returncode, 0, done.stderr)

  def test_threads(self):
    x, y = rows("targets", n=3000)
    one = minnow.Regressor(64, epochs=1, threads=1).fit(x, y)
    expected = one.predict(x)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
      for start, got in zip(range(200), pool.map(lambda start: one.predict(x[start::7]), range(200))):
        self.assertTrue((got == expected[start::7]).all())

  def test_errors(self):
    x, y = rows("classes")
    with self.assertRaisesRegex(ValueError, "groups"):
      minnow.Classifier(30, groups=7).fit(x, y)
    with self.assertRaisesRegex(ValueError, "no precision is called 'half'"):
      minnow.Classifier(precision="half").fit(x, y)
    with self.assertRaises(FileNotFoundError):
      minnow.Classifier.load(self.path / "none.h5")
    long = minnow.Classifier(8, epochs=1).fit(x, numpy.array(["a" * 70, "b"])[y % 2])
    with self.assertRaisesRegex(ValueError, "none twice"):
      long.save(self.path / "long.h5")
    with self.assertRaises(OSError):
      minnow.Regressor(8, epochs=1).fit(x, y).save(self.path / "no-folder/m.h5")
    for name, values in {"hidden": (0, -1, 8.5, "16", True, [], None, float("nan")), "epochs": (0, 2.5, "3", 2**64 + 3), "batch": ("3", -1),
                         "groups": (2.0, 0), "rate": ("x", -1, float("nan")), "threads": ("2", 2**32 + 1, -1), "device": (None, 0),
                         "random_state": (-1, 2**70, 1.5, "5")}.items():
      for value in values:
        with self.assertRaises(ValueError, msg=f"{name}={value!r}") as raised:
          minnow.Classifier(8).set_params(**{name: value}).fit(x, y)
        self.assertTrue(f"{name}=" in str(raised.exception) or str(value) in str(raised.exception) or value == [], raised.exception)
    minnow.Classifier(numpy.int32(8), epochs=numpy.int64(1), batch=10000, random_state=numpy.random.default_rng(0)).fit(x, y)
    with self.assertRaises(FloatingPointError):
      minnow.Regressor(rate=1e30).fit(x, y * 1.0)
    broken = minnow.Classifier(8).fit(x, y)
    before = broken.predict_proba(x)
    with self.assertRaises(ValueError):
      broken.set_params(groups=3).fit(x, y > 0)
    self.assertTrue((broken.predict_proba(x) == before).all() and len(broken.classes_) == 3)

  def test_exit(self):
    """While threads predict the process ends as it likes."""
    program = """
        import threading, time, numpy, minnow
        x = numpy.random.RandomState(0).normal(size=(3000, 20))
        model = minnow.Regressor(64, epochs=1).fit(x, x[:, 0])
        def serve():
          while True: model.predict(x)
        for _ in range(3): threading.Thread(target=serve, daemon=True).start()
        time.sleep(0.2)
        """
    for _ in range(3):
      self.run_python(program)

  def test_damaged_file(self):
    """Is refused, and nothing is printed when the process ends."""
    x, y = rows("target")
    minnow.Regressor(8, epochs=1).fit(x, y).save(self.path / "m.h5")
    whole = (self.path / "m.h5").read_bytes()
    for at in range(61, 430, 61):
      (self.path / "m.h5").write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
      said = self.run_python(f"""
        import minnow
        try:
          minnow.Regressor.load({str(self.path / "m.h5")!r})
        except ValueError:
          raise SystemExit(0)
        raise SystemExit("nothing was refused")""")
      self.assertEqual(said, "")

  def run_python(self, program):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(TOP / "train/python")})
    self.assertEqual(done.returncode, 0, done.stderr)
    return done.stderr

  def test_forked_workers(self):
    """A server loads, forks, and predicts in its children."""
    x, y = rows("targets")
    one = minnow.Regressor(64, epochs=1).fit(x, y)
    expected, workers = one.predict(x), []
    for _ in range(3):
      worker = os.fork()
      if worker == 0:
        os._exit(0 if (one.predict(x) == expected).all() and (minnow.Regressor(64, epochs=1).fit(x, y).predict(x) == expected).all() else 1)
      workers.append(worker)
    self.assertEqual([os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers], [0, 0, 0])

  def test_beside_torch(self):
    try:
      import torch
    except ImportError:
      self.skipTest("no PyTorch")
    torch.set_num_threads(6)
    x, y = rows("targets")
    minnow.Regressor(64, epochs=1).fit(x, y).predict(x)
    self.assertEqual(torch.get_num_threads(), 6)

  def test_without_a_gpu(self):
    """What was trained on one predicts on."""
    x, y = rows("target")
    one = minnow.Regressor(8, epochs=1).fit(x, y)
    one.model_.where = ("cuda:77", "fp32", 0)
    self.assertTrue((pickle.loads(pickle.dumps(one)).predict(x) == one.predict(x)).all())

  def test_interrupt(self):
    """Ctrl-C ends a fit of minutes, and the next one works."""
    x, y = rows("target", n=4000)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with self.assertRaises(KeyboardInterrupt):
      minnow.Regressor((256, 256), epochs=10000).fit(x, y)
    self.assertLess(time.monotonic() - began, 5)
    minnow.Regressor(8).fit(x, y)

  def test_without_scikit_learn(self):
    program = """
        import sys
        sys.modules["sklearn"] = None
        import minnow, numpy, pickle
        x = numpy.random.RandomState(0).normal(size=(200, 3))
        c = minnow.Classifier(16, epochs=30).fit(x.tolist(), ["no" if v < 0 else "yes" for v in x[:, 0]])
        r = minnow.Regressor(16).set_params(epochs=60).fit(x, x[:, 1])
        assert c.score(x, numpy.where(x[:, 0] < 0, "no", "yes")) > 0.9 and r.score(x, x[:, 1]) > 0.9
        assert (pickle.loads(pickle.dumps(c)).predict(x) == c.predict(x)).all()
        assert r.get_params()["epochs"] == 60
        two = x[:, :2] > 0
        for wrong in (lambda: c.predict(x[:, :2]), lambda: c.fit(x, [1]), lambda: r.fit(x[0], x[0]), lambda: c.fit(x, x[:, 0]),
                      lambda: c.fit(x, two), lambda: c.fit(x, None), lambda: r.fit(x * 1j, x[:, 0]), lambda: r.fit(x, 1)):
          try:
            wrong()
          except ValueError as error:
            print(error)
          else:
            raise SystemExit("nothing was refused")
        try:
          minnow.Regressor().predict(x)
        except AttributeError:
          raise SystemExit("sklearn.base" in sys.modules)
        """
    self.run_python(program)


class Header(unittest.TestCase):
  def test_other_languages_read_it(self):
    """Without its includes and attributes it is all that cffi and pycparser have to know."""
    try:
      import cffi
      import pycparser
    except ImportError:
      self.skipTest("no cffi")
    with tempfile.TemporaryDirectory() as empty:
      for name in "stddef.h", "stdint.h":
        pathlib.Path(empty, name).touch()
      text = subprocess.run(["cc", "-E", "-P", "-nostdinc", f"-I{empty}", "-DMINNOW_PLAIN", TOP / "train/minnow.h"],
                            capture_output=True, text=True, check=True).stdout
    ffi = cffi.FFI()
    ffi.cdef(text)
    lib = ffi.dlopen(minnow.library.lib._name)
    self.assertEqual((ffi.string(lib.mn_version()).decode(), ffi.sizeof("struct mn_defaults")),
                     (minnow.__version__, ctypes.sizeof(minnow.library.Defaults)))
    types = "typedef unsigned long size_t, uint64_t; typedef long int64_t; typedef int int32_t;"
    self.assertGreater(len(pycparser.CParser().parse(types + text).ext), 100)


def of_classes(case):
  """[(metric, the engine's, sklearn.metrics')]; classes may lack rows."""
  from sklearn import metrics
  cols, by = case["cols"], {"sample_weight": case["weights"]}
  y, t = numpy.array(case["y"]).reshape(-1, cols), numpy.array(case["targets"]).astype(int)
  p = numpy.exp(y - y.max(axis=1, keepdims=True))
  p, guess = p / p.sum(axis=1, keepdims=True), y.argmax(axis=1)
  auc = [metrics.roc_auc_score(t == k, p[:, k], **by) if 0 < (t == k).sum() < len(t) else None for k in range(cols)]
  found = [a for a in auc if a is not None]
  found = [("roc-auc", case["all roc-auc"], numpy.mean(found) if found else None), *zip(["roc-auc of class"] * cols, case["roc-auc"], auc)]
  if cols == 2:
    found = [("roc-auc", case["all roc-auc"], auc[1])]
  if len(set(t)) == cols > 2:
    found.append(("roc-auc", case["all roc-auc"], metrics.roc_auc_score(t, p, multi_class="ovr", **by)))
  f1 = metrics.f1_score(t, guess, labels=range(cols), average=None, zero_division=numpy.nan, **by)
  return [*found, *zip(["f1 of class"] * cols, case["f1"], f1), ("f1", case["all f1"], metrics.f1_score(t, guess, average="macro", **by)),
          ("accuracy", case["all accuracy"], metrics.accuracy_score(t, guess, **by)),
          ("balanced-accuracy", case["all balanced-accuracy"], metrics.balanced_accuracy_score(t, guess, **by)),
          ("log-loss", case["all log-loss"], metrics.log_loss(t, p, labels=range(cols), **by))]


def of_numbers(case):
  from sklearn import metrics
  cols, by = case["cols"], {"sample_weight": case["weights"], "multioutput": "raw_values"}
  y, t = numpy.array(case["y"]).reshape(-1, cols), numpy.array(case["targets"]).reshape(-1, cols)
  found = [("rmse", a, b) for a, b in zip(case["rmse"], metrics.root_mean_squared_error(t, y, **by))]
  found += [("mae", a, b) for a, b in zip(case["mae"], metrics.mean_absolute_error(t, y, **by))]
  varies = t.std(axis=0) > 0 if len(t) > 1 else numpy.zeros(cols, bool)
  r2 = metrics.r2_score(t, y, **by) if len(t) > 1 else [None] * cols
  return found + [("r2", a, b) for a, b, also in zip(case["r2"], r2, varies) if also]


@unittest.skipUnless(sklearn, "no scikit-learn")
class ScikitLearn(unittest.TestCase):
  def test_check_estimator(self):
    from sklearn.utils.estimator_checks import check_estimator
    for one in minnow.Classifier(), minnow.Regressor(), minnow.Classifier((16, 16), epochs=60), minnow.Regressor((16, 16), epochs=90):
      result = check_estimator(one, on_skip=None)
      self.assertGreater(len(result), 50)
      self.assertLessEqual({check["check_name"] for check in result if check["status"] != "passed"}, {"check_array_api_input"})

  def test_its_tools(self):
    import sklearn.base
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures
    x, y = rows("words", n=300)
    search = GridSearchCV(minnow.Classifier(32), {"epochs": [1, 30], "hidden": [16, (32, 32)]}, n_jobs=2).fit(x, y)
    self.assertEqual(search.best_params_["epochs"], 30)
    self.assertGreater(search.score(x, y), 0.9)
    self.assertGreater(cross_val_score(make_pipeline(PolynomialFeatures(2), minnow.Classifier(32, epochs=30)), x, y).mean(), 0.8)
    self.assertEqual(sklearn.base.clone(search.best_estimator_).get_params(), search.best_estimator_.get_params())

  def test_scores(self):
    """What tests/test_scores draws, by sklearn.metrics."""
    show = pathlib.Path(PROGRAM).resolve().parent / "tests/test_scores"
    if not show.exists():
      self.skipTest(f"no {show}")
    for line in subprocess.run([show, "--show"], stdout=subprocess.PIPE, check=True).stdout.splitlines():
      case = json.loads(line)
      for what, value, there in (of_classes if case["classes"] else of_numbers)(case):
        undefined = value == -1e9 and (there is None or not numpy.isfinite(there))
        self.assertTrue(undefined or abs(value - there) <= 1e-12 * max(1, abs(there)), (case["number"], what, value, there))

  def test_frames(self):
    import pandas
    x, y = rows("words")
    frame, target = pandas.DataFrame(x, columns=list("abcdef")), pandas.Series(y).astype("category")
    one = minnow.Classifier(16, epochs=20).fit(frame, target)
    self.assertEqual(list(one.feature_names_in_), list("abcdef"))
    self.assertTrue((one.predict(frame) == minnow.Classifier(16, epochs=20).fit(x, y).predict(x)).all())
    with self.assertRaisesRegex(ValueError, "feature names"):
      one.predict(frame[list("fedcba")])


if __name__ == "__main__":
  unittest.main(verbosity=2)
