"""A picture of times: of files of `minnow bench --json`, with --plans or without, or of `make peers ARGS="--json F"`, the
milliseconds of forward, forward + backward and step as bars, a chart for each bench and for each of the peers' tables of
times taken rested.

    python3 tests/peers/picture.py FILE… --out F.svg"""
import argparse
import json
import pathlib
import shutil
import subprocess

# What is timed: the keys of bench, the peers' words, the labels.
FIGURES = {"forward_ms": ("forward", "forward"), "forward_backward_ms": ("forward + backward", "forward + backward"),
           "step_ms": ("step", "training step")}
TITLE, SLOT, AXIS = 40, 20, 64  # heights in points


def bench_times(data):
  """(chart, row, key, ms) of a bench: its plans, or its step."""
  title = (f"{data['device']}, {data['precision']}: {data['batch']} × {data['in']}"
           + "".join(f" → {width}" for width in data["hidden"]) + f", {data['groups']} groups")
  for plan in data.get("plans", [data]):
    yield from ((title, plan["plan"], key, plan[key]) for key in FIGURES)


def peer_times(data):
  """The same of the peers, the lower of the medians of the rounds; what failed is left out."""
  keys = {what: key for key, (what, _) in FIGURES.items()}
  for figure in data["figures"]:
    kernelbench = figure["table"] == "kernelbench"
    ms = figure.get("ms") if kernelbench else min((r["ms"] for r in figure.get("rested") or []), default=None)
    if ms is None or figure.get("what") not in keys:
      continue
    title = (f"{'KernelBench 2/62: ' if kernelbench else ''}{figure['shape']}, {figure['precision']}"
             f"{'' if kernelbench else ', rested'}; {data['header'][0]}")
    yield title, figure["row"], keys[figure["what"]], ms


def read(paths):
  """{title: {key: {row: ms}}} and the titles whose rows minnow's stand out from."""
  charts, compared = {}, set()
  for path in paths:
    try:
      data = json.loads(pathlib.Path(path).read_text())
      times_of = list(peer_times(data) if "figures" in data else bench_times(data))
    except (OSError, ValueError, KeyError, TypeError) as error:
      raise SystemExit(f"{path}: {error!r}; a file of minnow bench --json or of make peers is needed") from None
    for title, row, key, ms in times_of:
      times = charts.setdefault(title, {k: {} for k in FIGURES})[key]
      if row in times:
        raise SystemExit(f"{path}: the {FIGURES[key][0]} of {row} ({title}) is there twice; name one of the files that have it")
      times[row] = ms
      compared |= {title} if "figures" in data else set()
  if not charts:
    raise SystemExit(f"{', '.join(paths)}: there is no time in it")
  return charts, compared


def text(words):
  return "'" + words.replace("'", "''") + "'"


def chart_script(title, times, top, compared):
  """gnuplot's variables of a chart (picture.gp), and its height."""
  slots = [slot for key, rows in times.items() if rows for slot in
           [(FIGURES[key][1], "NaN", "", 0), *((row, ms, f"{ms:#.4g}".rstrip("."), not compared or row.startswith("minnow"))
                                               for row, ms in rows.items())]]
  lines = [f"title = {text(title)}", f"slots = {len(slots)}", f"top = {top + TITLE}",
           f"bottom = {top + TITLE + SLOT * len(slots)}", *(f"array {name}[slots]" for name in ("name", "ms", "value", "ours"))]
  for i, (name, ms, value, ours) in enumerate(slots, 1):
    lines.append(f"name[{i}] = {text(name)}; ms[{i}] = {ms}; value[{i}] = '{value}'; ours[{i}] = {int(ours)}")
  return "\n".join(lines) + "\n", TITLE + SLOT * len(slots) + AXIS


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("files", nargs="+")
  parser.add_argument("--out", required=True, help="the picture, .svg or .png")
  options = parser.parse_args()
  if not shutil.which("gnuplot"):
    raise SystemExit("there is no gnuplot; install the package gnuplot-nox")
  charts, compared = read(options.files)
  here = pathlib.Path(__file__).resolve().parent
  paper, chart = ((here / name).read_text() for name in ("../../train/command/gnuplot.gp", "picture.gp"))
  widest, body, top = max(len(row) for times in charts.values() for rows in times.values() for row in rows), "", 0
  for title, times in charts.items():
    script, height = chart_script(title, times, top, title in compared)
    body, top = body + script + chart, top + height
  script = (f"png = {int(options.out.endswith('.png'))}\nheight = {top}\n{paper}\nwidest = {widest}\nset multiplot\n{body}"
            "unset multiplot\nunset output\n")
  drawn = subprocess.run(["gnuplot", "-d"], input=script.encode(), stdout=subprocess.PIPE, check=True).stdout
  pathlib.Path(options.out).write_bytes(drawn)


if __name__ == "__main__":
  main()
