"""The processes that peers.py and train.py time, each behind a pipe, and what both say of the machine."""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time

START = time.perf_counter()


class Failure(Exception):
  """What a child could not do, in one line."""


class Child:
  """A peer's process. After a failure it is stopped, and started again for the next shape: a CUDA error can make every
  later call of the process fail."""

  def __init__(self, peer, script, options, log):
    self.peer, self.options, self.process, self.suspect = peer, options, None, False
    self.variables = {}  # of its environment, beside this process's
    self.script = pathlib.Path(__file__).with_name(script)
    self.log = pathlib.Path(log) / f"{peer}.log"

  def start(self):
    self.stop()
    device = self.options.device
    environment = {"BUILD": "build", **os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": device,
                   **self.variables}
    with open(self.log, "w") as log:
      self.process = subprocess.Popen([sys.executable, self.script, device], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)

  def kill(self):
    """Ends it and the processes that it started, such as the workers of a loader, which hold the pipe open too."""
    if self.process.poll() is None:
      os.killpg(self.process.pid, signal.SIGKILL)

  def stop(self):
    if self.process:
      self.kill()
      self.process.communicate()
    self.process, self.suspect = None, False

  def ask(self, do, **arguments):
    if not self.process:
      self.start()
    late = threading.Timer(self.options.patience, self.kill)
    late.start()
    try:
      self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
      self.process.stdin.flush()
      line = self.process.stdout.readline()
    except BrokenPipeError:
      line = ""
    finally:
      late.cancel()
    reply = json.loads(line) if line else {"error": self.last_words()}
    if "error" in reply:
      self.suspect = True
      raise Failure(reply["error"])
    return reply["value"]

  def last_words(self):
    code = self.process.wait()
    if code == -9:
      return f"killed, by us if it took longer than {self.options.patience:g} s"
    lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"ended with {code}"


def say(text):
  print(f"[{time.perf_counter() - START:5.0f} s] {text}", file=sys.stderr, flush=True)


def close(children):
  for child in children:
    try:
      child.ask("close")
    except Failure:
      pass  # the process is stopped below
    if child.suspect:
      child.stop()


def device_name(device):
  if device == "cpu":
    return "CPU, a dry run"
  query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
  try:
    told = subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return told[0].replace(", ", ", driver ")
  except (OSError, subprocess.SubprocessError, IndexError):
    return "a GPU that nvidia-smi does not name"


def meet(options, log, scripts):
  """The peers that are there, and the header that names them and those that are not."""
  children, names = [], [device_name(options.device)]
  for peer in options.peers:
    say(f"starting {peer}")
    child = Child(peer, scripts[peer], options, log)
    try:
      names.append(child.ask("about"))
      children.append(child)
    except Failure as failure:
      child.stop()
      names.append(f"no {peer}: {failure}")
  arguments = f' ARGS="{shlex.join(sys.argv[1:])}"' if sys.argv[1:] else ""
  return children, "\n".join([*names, f"make peers{arguments}"])
