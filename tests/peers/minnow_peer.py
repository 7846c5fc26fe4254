"""minnow as a child of peers.py, through the library made of minnow_peer.c."""
import array
import ctypes
import os
import pathlib
import sys

import timing

SUBJECTS = [("minnow", "forward"), ("minnow", "step")]
BARE = [("cuBLASLt", what) for what in ("x*W^T", "dz*W", "dz^T*x", "copy")]
PRODUCTS = {"minnow": "product", "cuBLASLt": "x*W^T"}  # what minnow_peer.c calls the product whose error is taken
# In which precisions GEMMs read something else than the floats, and what of it minnow_peer_cold may make anew.
PLANES = ("bf16", "fp16", "fp16x3")
CASTS = {"weights cast outside": 0, "weights cast inside": 1, "x and weights cast inside": 2}


def load():
  lib = ctypes.CDLL(os.path.join(os.environ["BUILD"], "tests", "minnow_peer.so"))
  for name in ("call", "sync", "check", "close", "bytes", "cold", "write", "read", "row"):
    getattr(lib, f"minnow_peer_{name}").argtypes = [ctypes.c_void_p]  # a handle; more may follow
  lib.minnow_peer_row.argtypes += [ctypes.c_int, ctypes.c_int64, ctypes.c_void_p]
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

  def open(self, shape, precision, classes=0):
    self.shape, self.precision, self.classes = shape, precision, classes
    # No library takes two planes: what is called the library's product is then minnow's own.
    return SUBJECTS + [(row, what) for row, what in BARE if precision != "fp16x3" or what == "copy"]

  def handle(self, row, what, precision, named=None):
    """Of what minnow_peer.c calls `named`, or else `what`. close() ends it."""
    handle, numbers = ctypes.c_void_p(), len(self.shape)
    shape = (ctypes.c_int64 * numbers)(*self.shape)
    self.must(self.lib.minnow_peer_open(ctypes.byref(handle), (named or what).encode(), shape, numbers,
                                        self.classes, self.device.encode(), precision.encode()))
    self.handles[row, what] = handle
    return handle

  def make(self, row, what):
    handle = self.handle(row, what, self.precision)
    call, sync = self.lib.minnow_peer_call, self.lib.minnow_peer_sync
    return lambda: call(handle) and self.must(1), lambda: self.must(sync(handle))

  def prepare(self, row, what):
    super().prepare(row, what)
    return {"bytes": self.lib.minnow_peer_bytes(self.handles[row, what])}

  def time(self, row, what, warm_s, budget_s):
    figure = super().time(row, what, warm_s, budget_s)
    self.must(self.lib.minnow_peer_check(self.handles[row, what]))
    return figure

  def error(self, row):
    """Of the GEMM that a forward takes, or of the library's, with its result stored."""
    handle = self.handle(row, "error", self.precision, PRODUCTS[row])
    self.must(self.lib.minnow_peer_call(handle))
    n, inputs, channels = self.shape[:3]
    rows, columns = timing.sample(n, channels)

    def read(which, width, chosen):
      values = (ctypes.c_float * width)()
      for row in chosen:
        self.must(self.lib.minnow_peer_row(handle, which, row, values))
        yield array.array("f", values)

    x, weight = list(read(0, inputs, range(n)[rows])), list(read(1, inputs, range(channels)[columns]))
    z = [values[columns] for values in read(2, channels, range(n)[rows])]
    return timing.product_error(x, weight, z)

  def close(self):
    super().close()
    while self.handles:
      self.lib.minnow_peer_close(self.handles.popitem()[1])

  def kernelbench_open(self, folder, shape, precisions):
    """A row for each precision and what of its planes is made within the timed call. x is split there only in fp16x3:
    in the other two it comes in the precision's own type."""
    self.folder, self.shape, self.classes = pathlib.Path(folder), shape, 0
    self.ways = {}
    for precision in precisions:
      casts = list(CASTS)[: 3 if precision == "fp16x3" else 2] if precision in PLANES else [""]
      for cast in casts:
        self.ways[f"minnow {precision}" + (cast and f", {cast}")] = precision, CASTS.get(cast, 0)
    return list(self.ways)

  def kernelbench(self, row):
    """Times the forward on the inputs in the folder, and leaves y there."""
    precision, cast = self.ways[row]
    handle, milliseconds = self.handle(row, "forward", precision), ctypes.c_double()
    for name in ("x", "fc.weight", "fc.bias", "gn.weight", "gn.bias"):
      inside = name if name == "x" else f"blocks.0.{name}"
      self.must(self.lib.minnow_peer_write(handle, inside.encode(), (self.folder / name).read_bytes()))

    def once():
      self.must(self.lib.minnow_peer_cold(handle, cast, ctypes.byref(milliseconds)))
      return milliseconds.value

    figure = timing.cold(once)
    y = ctypes.create_string_buffer(4 * self.shape[0] * self.shape[2])
    self.must(self.lib.minnow_peer_read(handle, y))
    (self.folder / "y").write_bytes(y.raw)
    self.close()  # the next row brings its own
    return figure


if __name__ == "__main__":
  timing.serve(Minnow(sys.argv[1]))
