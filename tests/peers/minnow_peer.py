"""minnow as a child of peers.py, through the library made of minnow_peer.c."""
import ctypes
import os
import pathlib
import sys

import timing

SUBJECTS = [("minnow", "forward"), ("minnow", "step")]
BARE = [("cuBLASLt", what) for what in ("x*W^T", "dz*W", "dz^T*x", "copy")]


def load():
  lib = ctypes.CDLL(os.path.join(os.environ["BUILD"], "tests", "minnow_peer.so"))
  for name in ("call", "sync", "check", "close", "bytes", "cold", "write", "read"):
    getattr(lib, f"minnow_peer_{name}").argtypes = [ctypes.c_void_p]  # a handle; more may follow
  lib.minnow_peer_close.restype = None
  lib.minnow_peer_bytes.restype = ctypes.c_int64
  lib.mn_message.restype = lib.minnow_peer_version.restype = ctypes.c_char_p
  return lib


class Minnow(timing.Peer):
  def __init__(self, device):
    super().__init__()
    self.device, self.lib, self.handles = device, load(), {}

  def about(self):
    text = f"minnow {self.lib.minnow_peer_version().decode()}"
    version = getattr(self.lib, "cublasLtGetVersion", None)  # not in a build for the CPU
    if not version:
      return text
    version.restype = ctypes.c_size_t
    number = version()
    return f"{text} (cuBLASLt {number // 10000}.{number // 100 % 100}.{number % 100})"

  def must(self, status):
    if status:
      raise RuntimeError(self.lib.mn_message().decode())

  def open(self, shape, precision):
    self.shape, self.precision = shape, precision
    return SUBJECTS + BARE

  def make(self, row, what):
    handle, call, sync = ctypes.c_void_p(), self.lib.minnow_peer_call, self.lib.minnow_peer_sync
    self.must(self.lib.minnow_peer_open(ctypes.byref(handle), what.encode(), (ctypes.c_int64 * 4)(*self.shape),
                                        self.device.encode(), self.precision.encode()))
    self.handles[row, what] = handle
    return lambda: call(handle) and self.must(1), lambda: self.must(sync(handle))

  def prepare(self, row, what):
    super().prepare(row, what)
    return {"bytes": self.lib.minnow_peer_bytes(self.handles[row, what])}

  def time(self, row, what, warm_s, budget_s):
    figure = super().time(row, what, warm_s, budget_s)
    self.must(self.lib.minnow_peer_check(self.handles[row, what]))
    return figure

  def close(self):
    super().close()
    while self.handles:
      self.lib.minnow_peer_close(self.handles.popitem()[1])

  def kernelbench_open(self, folder, shape, precision):
    self.folder = pathlib.Path(folder)
    self.open(shape, precision)
    return ["minnow"]

  def kernelbench(self, row):
    """Times the forward on the inputs in the folder, and leaves y there."""
    self.make(row, "forward")
    handle, milliseconds = self.handles[row, "forward"], ctypes.c_double()
    for name in ("x", "fc.weight", "fc.bias", "gn.weight", "gn.bias"):
      inside = name if name == "x" else f"blocks.0.{name}"
      self.must(self.lib.minnow_peer_write(handle, inside.encode(), (self.folder / name).read_bytes()))

    def once():
      self.must(self.lib.minnow_peer_cold(handle, ctypes.byref(milliseconds)))
      return milliseconds.value

    figure = timing.cold(once)
    y = ctypes.create_string_buffer(4 * self.shape[0] * self.shape[2])
    self.must(self.lib.minnow_peer_read(handle, y))
    (self.folder / "y").write_bytes(y.raw)
    return figure


if __name__ == "__main__":
  timing.serve(Minnow(sys.argv[1]))
