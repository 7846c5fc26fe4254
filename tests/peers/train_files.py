"""The data sets that train.py trains on, and how fast the page cache gives them back; by Python's own library alone.

A file is HDF5 as its format specification has it, written out byte by byte: a superblock of version 0, a root group
with two links, and the datasets x and y of little-endian float32, each in one piece. So their offsets are known, and
PyTorch's and JAX's processes read them without a library for HDF5."""
import array
import mmap
import multiprocessing
import os
import random
import struct
import sys
import threading
import time

ALIGNED = 4096  # where x and y begin, so that they can be mapped or read past the page cache
UNDEFINED = 0xFFFFFFFFFFFFFFFF
PIECE = 1 << 18  # floats of one seed
LATE_S = 300  # after which a file that is not written is given up


def message(kind, body):
  body += bytes(-len(body) % 8)
  return struct.pack("<HHB3x", kind, len(body), 0) + body


def header(*messages):
  """An object header of version 1."""
  body = b"".join(messages)
  return struct.pack("<BxHII4x", 1, len(messages), 1, len(body)) + body


def dataset_header(shape, offset):
  dataspace = message(1, struct.pack(f"<BBB5x{len(shape)}Q", 1, len(shape), 0, *shape))
  # Class 1 (float) of version 1: implied leading 1, sign in bit 31, 8 bits of exponent from 23, 23 of mantissa from 0.
  datatype = message(3, struct.pack("<BBBBIHHBBBBI", 0x11, 0x20, 31, 0, 4, 0, 32, 23, 8, 0, 23, 127))
  fill = message(5, struct.pack("<BBBB", 2, 1, 0, 0))  # allocated early, never filled
  layout = message(8, struct.pack("<BBQQ", 3, 1, offset, 4 * shape[0] * shape[1]))
  return header(dataspace, datatype, fill, layout)


def structure(shapes):
  """What stands before the elements of the datasets in `shapes` ({name: shape}, names in order), and their offsets."""
  offsets, end = {}, ALIGNED
  for name, shape in shapes.items():
    offsets[name] = end
    end += -(-4 * shape[0] * shape[1] // ALIGNED) * ALIGNED
  heap_names, places = bytearray(8), {}  # the empty name first, as the format asks
  for name in shapes:
    places[name] = len(heap_names)
    heap_names += name.encode() + bytes(8 - len(name) % 8)
  root_at, tree_at, heap_at = 96, 136, 136 + 24 + 16 * 2 * 16 + 8
  names_at = heap_at + 32
  node_at = names_at + len(heap_names)
  headers, at = b"", node_at + 8 + 40 * 2 * 4
  entries = b""
  for name, shape in shapes.items():
    entries += struct.pack("<QQII16x", places[name], at + len(headers), 0, 0)
    headers += dataset_header(shape, offsets[name])
  entry = struct.pack("<QQIIQQ", 0, root_at, 1, 0, tree_at, heap_at)
  text = b"\x89HDF\r\n\x1a\n" + struct.pack("<BBBxBBBxHHI", 0, 0, 0, 0, 8, 8, 4, 16, 0)
  text += struct.pack("<QQQQ", 0, UNDEFINED, end, UNDEFINED) + entry
  text += header(message(17, struct.pack("<QQ", tree_at, heap_at)))
  tree = b"TREE" + struct.pack("<BBHQQQQQ", 0, 0, 1, UNDEFINED, UNDEFINED, 0, node_at, places[max(shapes)])
  text += tree.ljust(heap_at - tree_at, b"\0")
  text += b"HEAP" + struct.pack("<B3xQQQ", 0, len(heap_names), 1, names_at) + heap_names
  text += (b"SNOD" + struct.pack("<BxH", 1, len(shapes)) + entries).ljust(8 + 40 * 2 * 4, b"\0") + headers
  assert len(text) <= ALIGNED and list(shapes) == sorted(shapes)
  return text, offsets, end


def fill(task):
  """Writes floats that are uniform between -1 and 1 and have a seed of their own."""
  path, offset, count, seed = task
  draw = random.Random(seed).random
  values = array.array("f", [2 * draw() - 1 for _ in range(count)])
  if sys.byteorder == "big":
    values.byteswap()
  file = os.open(path, os.O_WRONLY)
  try:
    os.pwrite(file, values.tobytes(), offset)
  finally:
    os.close(file)


def make(path, rows, inputs, outputs):
  """Writes the file with all cores, and returns where x and y begin in it. It is on the disk when this returns, so that
  writing it back does not disturb what is timed, and in the page cache."""
  shapes = {"x": (rows, inputs), "y": (rows, outputs)}
  text, offsets, end = structure(shapes)
  with open(path, "wb") as file:
    file.write(text)
    file.truncate(end)
  tasks = []
  for name, (_, width) in shapes.items():
    for first in range(0, rows * width, PIECE):
      tasks.append((path, offsets[name] + 4 * first, min(PIECE, rows * width - first), len(tasks)))
  with multiprocessing.Pool() as pool:
    pool.map_async(fill, tasks, chunksize=4).get(LATE_S)
  with open(path, "rb+") as file:
    os.fsync(file.fileno())
  return offsets


def read_share(file, first, end, least_s):
  """Reads bytes first … end again and again, for at least so long; returns how many it read."""
  buffer, done, start = mmap.mmap(-1, 1 << 22), 0, time.perf_counter()
  while not done or time.perf_counter() - start < least_s:
    at = first
    while at < end:
      got = os.preadv(file, [memoryview(buffer)[: min(len(buffer), end - at)]], at)
      if not got:
        break
      at += got
    done += at - first
  return done


def page_cache(path, readers, least_s=0.5):
  """GB/s that so many threads get together, each from a part of its own of a file that was read just before."""
  size, done = os.path.getsize(path), []
  file = os.open(path, os.O_RDONLY)
  try:
    read_share(file, 0, size, 0)
    cuts = [size * i // readers for i in range(readers + 1)]
    threads = [threading.Thread(target=lambda a, b: done.append(read_share(file, a, b, least_s)), args=cut)
               for cut in zip(cuts, cuts[1:])]
    start = time.perf_counter()
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    return sum(done) / (time.perf_counter() - start) * 1e-9
  finally:
    os.close(file)
