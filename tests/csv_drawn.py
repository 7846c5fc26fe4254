"""CSV files that pandas writes, and such as R and Excel write, are to minnow what they are to pandas:
`python3 tests/csv_drawn.py build/tests/csv_show [--count 300] [--seed 0]`. Exit code 0 too where there is no pandas."""
import argparse
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile

try:
  import numpy
  import pandas
except ImportError as error:
  sys.exit(print(f"skipped: no {error.name}"))

EXACT = {"float_precision": "round_trip"} if int(pandas.__version__.split(".")[0]) < 3 else {}  # later pandas are, and warn
WORDS = ["red", "dark blue", "grün", "a, b", 'say "so"', "x;y", "tab\there", "two\nlines", "5 apples", "1st"]
NAMES = ["a", "b 2", "2019", "1stFlr", "x, y", "p;q", 'q "r"', "größe", "t\tu", "2 m temp", "N"]


def draw_frame(r):
  """A frame whose columns minnow takes: numbers of many sizes, words, days, truth values; the last are numbers."""
  rows, frame = int(r.integers(25, 400)), {}
  for name in r.permutation(NAMES)[:r.integers(2, 7)]:
    kind = r.integers(6)
    if kind == 0:
      frame[name] = r.normal(size=rows) * 10.0 ** r.integers(-6, 9)
    elif kind == 1:
      frame[name] = r.integers(-10**int(r.integers(1, 15)), 10**int(r.integers(1, 15)), rows)
    elif kind == 2:
      frame[name] = r.choice(WORDS[:r.integers(2, len(WORDS) + 1)], rows)
    elif kind == 3:
      frame[name] = pandas.Timestamp("1999-12-28") + pandas.to_timedelta(r.integers(0, 9000, rows), "D")
    elif kind == 4:
      frame[name] = r.random(rows) < 0.4
    else:
      frame[name] = r.normal(size=rows).round(int(r.integers(1, 5)))
  frame = pandas.DataFrame(frame)
  for name in frame.columns:
    if r.random() < 0.3:
      kept = r.random(rows) > r.choice([0.005, 0.05, 0.3])
      whole = frame[name].dtype.kind == "i"
      frame[name] = (frame[name].astype("Int64" if whole else object if frame[name].dtype == bool else frame[name].dtype)).where(kept)
  frame["target"] = r.normal(size=rows)
  return frame


def write(frame, r):
  """The text of a file, and what pandas.read_csv has to be told."""
  by = r.choice(["pandas", "R", "R table", "Excel"])
  sep = str(r.choice([",", ";", "\t", "|"])) if by in ("pandas", "R table") else "," if by == "R" else ";"
  decimal = "," if (by == "Excel" or (sep in ";\t" and r.random() < 0.5)) else "."
  told = {"sep": sep, "decimal": decimal}
  quoting = csv.QUOTE_NONNUMERIC if by in ("R", "R table") else csv.QUOTE_ALL if r.random() < 0.1 else csv.QUOTE_MINIMAL
  gaps = "NA" if by in ("R", "R table") else "" if by == "Excel" else str(r.choice(["", "NaN", "NULL", "n/a"]))
  index = by == "R" or by == "R table" or r.random() < 0.2
  out = frame.copy()
  if index:
    out.index += 1
  text = out.to_csv(sep=sep, decimal=decimal, quoting=quoting, na_rep=gaps, index=index, lineterminator=str(r.choice(["\n", "\r\n"])))
  if by == "R table":  # without a name for the numbers of rows
    text = text[len('""' + sep):]
  if by == "Excel":
    text = ("\ufeff" if r.random() < 0.5 else "sep=;\n") + text
  return text, told, index


def expected(text, told, index):
  """What pandas makes of it, by the rules of train/FILES.md: inputs and the target of each row, and how far each may be off:
  not at all, but for a mean, whose sum is taken in another order."""
  text = text.removeprefix("\ufeff").removeprefix("sep=;\n")
  frame = pandas.read_csv(io.StringIO(text), **told, index_col=0 if index else None, keep_default_na=False, **EXACT,
                          na_values=["", "NA", "NaN", "NULL", "n/a"])
  target, columns, slack = frame.pop("target"), [], []
  for name in frame.columns:
    column = frame[name]
    if column.dtype == bool:
      column = column.map({True: "True", False: "False"})
    if not pandas.api.types.is_numeric_dtype(column):
      days = pandas.to_datetime(column, format="ISO8601", errors="coerce")
      if days.notna().sum() == column.notna().sum() and column.notna().any():
        column = (days - pandas.Timestamp(0)) / pandas.Timedelta(days=1)
    gaps = column.isna()
    if not pandas.api.types.is_numeric_dtype(column):
      words = sorted(set(column.dropna().astype(str)), key=lambda w: w.encode())
      column = column.map(lambda w, words=words: numpy.nan if pandas.isna(w) else words.index(str(w)))
      if len(words) > 2:
        columns += [(column == k).astype(float) for k in range(len(words))]
        slack += [0 * gaps] * len(words)
        continue
    columns.append(column.astype(float).fillna(column.astype(float).mean()))
    slack.append(gaps * column.astype(float).abs().max() * 1e-14)
    if gaps.sum() * 100 > len(frame):
      columns.append(gaps.astype(float))
      slack.append(0 * gaps)
  return numpy.column_stack(columns + [target.astype(float)]), numpy.column_stack(slack + [0 * target])


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("show")
  parser.add_argument("--count", type=int, default=300)
  parser.add_argument("--seed", type=int, default=0)
  a = parser.parse_args()
  wrong = 0
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "rows.csv"
    for seed in range(a.seed, a.seed + a.count):
      text, told, index = write(draw_frame(numpy.random.default_rng(seed)), numpy.random.default_rng(seed + 1))
      path.write_bytes(text.encode())
      said = subprocess.run([a.show, path, "--target", "target", "--numbers", "1"], capture_output=True, text=True)
      try:
        wanted, slack = expected(text, told, index)
        table = json.loads(said.stdout.splitlines()[0])
        got = numpy.array([line.split() for line in said.stdout.splitlines() if line[0] not in "[#"], dtype=float)
        assert got.shape == wanted.shape, f"{got.shape}, not {wanted.shape}: {[c['name'] for c in table]}"
        same = abs(got - wanted) <= slack
        assert same.all(), numpy.argwhere(~same)[:3]
      except (AssertionError, IndexError) as error:
        wrong += 1
        print(f"--seed {seed} --count 1: {error} {said.stderr}\n{text[:300]}")
  print(f"{a.count - wrong} passed, {wrong} failed")
  return wrong > 0


if __name__ == "__main__":
  sys.exit(main())
