"""minnow on several GPUs of one host beside PyTorch's DDP and FSDP, in one run: `make peers ARGS="--ranks 4"`.

minnow is the command, run as a user runs it, alone and by mpirun; its milliseconds are those of its log. *Rested*:
steps 11 to 30 of a new process, for which the GPUs have waited. *Sustained*: from a third of a run of --seconds on.
PyTorch's ranks are processes of their own, whose steps are timed as timing.py says. minnow's figures are taken before
PyTorch's and again after them. What is missing or fails is listed with its reason, and so is what there was no time
for. The exit code is 1 only if there is no figure of minnow's on several GPUs."""
import argparse
import collections
import concurrent.futures
import functools
import json
import math
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile
import time

import ranks_tables as tables
import train_minnow
from child import START, Child, Failure, device_name, say

Case = collections.namedtuple("Case", "name rows widths groups copies")
# Of NVLink's multicast nothing is used: on hosts that are shared it has put GPUs out of service.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# With these Open MPI also starts ranks as root, in a container and without ssh.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": "false"}
PEERS = ["PyTorch DDP", "PyTorch DDP, compile", "PyTorch DDP, compile, bf16 gradients", "PyTorch FSDP",
         "PyTorch FSDP, compile"]
QUICK = ["PyTorch DDP, compile", "PyTorch FSDP, compile"]
RESTED_STEPS, LEAST_STEPS, MOST_STEPS = 30, 60, 100000
LIMIT_S = 30  # after which a run of minnow's is told to end: it should take a few
OTHERS_S = 5  # that the other ranks have to say what they met, once one has failed


def cases(count, tiny):
  """Rows are the global batch. copies: whether the batch is divided among copies of the model, too."""
  width, each, groups = (64, 32, 8) if tiny else (8192, 1024, 512)
  return [Case("block", each, (width,) * 2, groups, False), Case("large", each * count, (width,) * 2, groups, True),
          Case("stack", each, (width,) * 4, groups, False)]


class Together:
  """PyTorch's ranks, which are asked the same at the same time. After a failure all are stopped, because the others
  would wait for the one that failed, and started again for the next row."""

  def __init__(self, options, log):
    self.children = [Child(f"torch-{rank}", "ranks_torch.py", options, log) for rank in range(options.ranks)]

  def meet_at(self):
    with socket.socket() as free:
      free.bind(("127.0.0.1", 0))
      port = free.getsockname()[1]
    for rank, child in enumerate(self.children):
      child.variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(self.children)),
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}

  def ask(self, do, **arguments):
    """Every rank's reply."""
    if not self.children[0].process:
      self.meet_at()
    with concurrent.futures.ThreadPoolExecutor(len(self.children)) as pool:
      replies = [pool.submit(child.ask, do, **arguments) for child in self.children]
      done, _ = concurrent.futures.wait(replies, return_when=concurrent.futures.FIRST_EXCEPTION)
      failed = [(rank, reply.exception()) for rank, reply in enumerate(replies) if reply in done and reply.exception()]
      if failed:
        _, late = concurrent.futures.wait(replies, timeout=OTHERS_S)
        for child, reply in zip(self.children, replies):
          if reply in late and child.process:
            child.kill()
    if failed:
      self.stop()
      raise Failure(f"rank {failed[0][0]}: {failed[0][1]}")
    return [reply.result() for reply in replies]

  def stop(self):
    for child in self.children:
      child.stop()


def slowest(taken):
  """Of each round the slowest rank's figure; taken: every rank's, {way: [rounds]}."""
  return {way: [max(round_, key=lambda figure: figure["ms"]) for round_ in zip(*(one[way] for one in taken))]
          for way in tables.WAYS}


class Work:
  def __init__(self, options, folder):
    self.options, self.folder, self.figures = options, pathlib.Path(folder), {}
    self.cases = cases(options.ranks, options.device == "cpu")

  def add(self, case, row, gpus, grid, run):
    """Adds what run() returns, {way: [rounds]}, to the row's figure."""
    figure = self.figures.setdefault((case.name, row), {"gpus": gpus, "grid": grid})
    if "failed" in figure:
      return
    if time.perf_counter() - START > 60 * self.options.minutes:
      if "rested" not in figure:  # a further round that there is no time for takes nothing away
        figure["failed"] = "not measured: the time was up"
      return
    say(f"{case.name}: {row}")
    try:
      for way, rounds in run().items():
        figure.setdefault(way, []).extend(rounds)
    except Failure as failure:
      text = str(failure)
      figure["failed"] = f"not there: {text}" if "ended with 64" in text and "--ranks" in text else text

  def train(self, case, gpus, more):
    """A short run at the clocks of GPUs that have waited, and a long one."""
    options, launcher = self.options, []
    if gpus > 1:
      launcher = [*shlex.split(options.mpirun), "-n", str(gpus)]
    arguments = ["--synthetic", str(16 * case.rows if options.device == "cpu" else 16384), "--in", str(case.widths[0]),
                 "--test-rows", "0", "--hidden", ",".join(map(str, case.widths[1:])), "--groups", str(case.groups),
                 "--batch", str(case.rows), "--precision", "bf16", "--lr", "1e-6", "--momentum", "0.9",
                 "--device", options.device, "--place", "device", *more]

    def run(steps, every):
      done = train_minnow.Run(options.minnow, arguments, steps, every, self.folder, LIMIT_S, launcher=launcher)
      return done.figure(case.rows)

    rested = run(RESTED_STEPS, 1)
    steps = min(MOST_STEPS, max(LEAST_STEPS, math.ceil(1e3 * options.seconds / rested["ms"])))
    return {"rested": [rested], "sustained": [run(steps, max(1, steps // 100))]}

  def minnow(self):
    """One round of every figure."""
    count = self.options.ranks
    for case in self.cases:
      self.add(case, tables.ONE, 1, [1, 1], functools.partial(self.train, case, 1, []))
      self.add(case, tables.groups(count), count, [count, 1], functools.partial(self.train, case, count, []))
      if case.copies:
        more = ["--ranks", f"1x{count}"]
        self.add(case, tables.copies(count), count, [1, count], functools.partial(self.train, case, count, more))

  def torch(self, together):
    for case in self.cases:
      for row in self.options.rows:
        shape = [case.rows, *case.widths, case.groups]
        arguments = {"row": row, "shape": shape, "rounds": self.options.rounds, "warm_s": self.options.warm}
        self.add(case, row, self.options.ranks, [1, self.options.ranks],
                 lambda: slowest(together.ask("measure", **arguments)))


def parse():
  parser = argparse.ArgumentParser(prog="make peers ARGS=…",
                                   description="Times minnow on several GPUs beside PyTorch's DDP and FSDP, in bf16.")
  add = parser.add_argument
  add("--ranks", type=int, required=True, metavar="N", help="how many GPUs of this host, which is what chooses this")
  add("--quick", action="store_true", help="one round, and of PyTorch the compiled variants alone")
  add("--minutes", type=float, help="after which nothing more is begun; default 7, quick 2.7")
  add("--without", action="append", default=[], metavar="TEXT",
      help="leave out PyTorch's rows whose names have this in them, such as FSDP; repeatable")
  add("--seconds", type=float, help="of minnow's steps in a sustained run; default 2, quick 1")
  add("--warm", type=float, default=0.3, help="seconds before PyTorch's figures; default %(default)s")
  add("--patience", type=float, default=100,
      help="seconds after which ranks of PyTorch's that do not answer are given up; default %(default)s")
  add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a dry run with tiny sizes; default %(default)s")
  add("--minnow", default=os.path.join(os.environ.get("BUILD", "build"), "minnow"), help="default %(default)s")
  add("--mpirun", default="mpirun", help="what starts minnow's ranks, with its options but -n; default %(default)s")
  add("--json", help="a file for the raw figures; tests/peers/scale.py --check reads it")
  options = parser.parse_args()
  if options.ranks < 2:
    parser.error(f"--ranks {options.ranks}: 2 or more; without it one GPU is measured")
  options.rounds = 1 if options.quick else 2
  options.minutes = options.minutes or (2.7 if options.quick else 7)
  options.seconds = options.seconds or ((1 if options.quick else 2) if options.device == "cuda" else 0.2)
  options.rows = [row for row in (QUICK if options.quick else PEERS)
                  if not any(text in row for text in options.without)]
  return options


def first_line(command):
  try:
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return told[0].strip()
  except (OSError, subprocess.SubprocessError, IndexError) as error:
    return f"no {command[0]}: {type(error).__name__}: {error}"


def gpus(options):
  """What they are."""
  if options.device == "cpu":
    return f"{options.ranks} ranks on the CPU, a dry run"
  try:
    names = subprocess.run(["nvidia-smi", "--list-gpus"], check=True, capture_output=True, text=True,
                           timeout=60).stdout.splitlines()
  except (OSError, subprocess.SubprocessError) as error:
    raise Failure(f"nvidia-smi: {error}") from None
  if len(names) < options.ranks:
    raise Failure(f"this host has {len(names)} GPUs")
  return f"{options.ranks} x {device_name(options.device)}"


def start(together):
  """What PyTorch's ranks are, and whether they are there."""
  say("starting PyTorch's ranks")
  try:
    return together.ask("about")[0], True
  except Failure as failure:
    return f"no PyTorch: {failure}", False


def measure(options, folder):
  """All figures, and the header that says of what."""
  work, together, about = Work(options, folder), Together(options, folder), "PyTorch left out"
  work.minnow()
  try:
    if options.rows:
      about, found = start(together)
      if found:
        work.torch(together)
  finally:
    together.stop()
  if options.rounds > 1:
    work.minnow()
  return work, [first_line([options.minnow, "--version"]), first_line([*shlex.split(options.mpirun), "--version"]),
                about, f'make peers ARGS="{shlex.join(sys.argv[1:])}"']


def write(path, work, header):
  by_name = {case.name: case for case in work.cases}
  record = [{"case": name, "rows": by_name[name].rows, "widths": by_name[name].widths, "groups": by_name[name].groups,
             "row": row, **figure} for (name, row), figure in work.figures.items()]
  text = json.dumps({"header": header, "ranks": work.options.ranks, "figures": record}, indent=1)
  pathlib.Path(path).write_text(text + "\n")


def main():
  options = parse()
  try:
    there = gpus(options)
  except Failure as failure:
    print(f"--ranks {options.ranks}: {failure}", file=sys.stderr)
    return 69
  os.environ.update(WITHOUT_MULTICAST)
  for name, value in MPI.items():
    os.environ.setdefault(name, value)
  if options.device == "cpu":  # more ranks than cores, each with a thread
    os.environ.update(OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
  with tempfile.TemporaryDirectory() as folder:
    work, header = measure(options, folder)
  header.insert(0, there)
  print("\n".join(header), tables.EXPLANATION, sep="\n")
  dry = options.device == "cpu"
  print(tables.table(work.cases, work.figures, options.ranks, options.rounds, dry), flush=True)
  if options.json:
    write(options.json, work, header)
  return 0 if any(figure["gpus"] > 1 and "rested" in figure and row.startswith("minnow")
                  for (_, row), figure in work.figures.items()) else 1
