/* Chunks of HDF5 datasets: fetched, unpacked with every length checked, and copied into slabs; see
 * hdf5_chunk.h. */
#include "data/hdf5_chunk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "data/hdf5.h"
#include "data/hdf5_child.h"
#include "kernels/text.h"

/* The most bytes kept of a dataset, unless one chunk is larger. */
#define KEPT ((size_t)256 << 20)

enum { FILTERS = 8, SUM = 4 }; /* SUM: bytes of a fletcher32 checksum */

struct filter {
  H5Z_filter_t id;
  size_t width; /* of the elements whose bytes shuffle gathers */
};

struct slot {
  hsize_t chunk; /* the number of the chunk in it + 1; 0: none */
  unsigned char *bytes;
};

struct mn_hdf5_chunks {
  struct mn_hdf5_chunks *next, **link; /* in the file's list; `link` points here */
  size_t bytes;                        /* of a chunk */
  size_t room;                         /* of each buffer: the most that a chunk takes in the file */
  int foreign;                         /* filters that only HDF5 undoes */
  int zeros_pass;                      /* zeros have the checksum 0, and nothing is deflated */
  int filters;                         /* in the order in which they were applied */
  struct filter filter[FILTERS];
  hsize_t grid[MN_HDF5_RANK]; /* chunks along each dimension */
  size_t slots; /* a chunk waits in slot number % slots; the one behind them is for those not kept */
  struct slot *slot;
  unsigned char *spare; /* `room` bytes for unpacking */
};

/* ---- what is known of a dataset ---- */

/* Takes the filters over, and sets `room`. Deflated data are hardly larger than what they were: zlib adds
 * less than an eighth and 64 bytes, and more is refused. */
static int take_filters(struct mn_hdf5_chunks *c, hid_t creation) {
  int deflated = 0, summed = 0;
  c->filters = H5Pget_nfilters(creation);
  c->foreign = c->filters > FILTERS;
  c->room = c->bytes;
  for (int i = 0; i < c->filters && !c->foreign; i++) {
    unsigned flags, values[8] = {0};
    size_t count = 8;
    H5Z_filter_t id = H5Pget_filter2(creation, (unsigned)i, &flags, &count, values, 0, NULL, NULL);
    if (id < 0) return 0;
    c->filter[i] = (struct filter){id, count > 0 ? values[0] : 0};
    if (id == H5Z_FILTER_FLETCHER32)
      c->room += SUM, summed = 1;
    else if (id == H5Z_FILTER_DEFLATE && !deflated++)
      c->room += c->room / 8 + 64;
    else if (id != H5Z_FILTER_SHUFFLE)
      c->foreign = 1;
    if (id == H5Z_FILTER_SHUFFLE && c->filter[i].width < 1) return 0;
  }
  c->zeros_pass = summed && !deflated;
#if H5_VERSION_GE(1, 10, 0)
  unsigned options;
  if (H5Pget_chunk_opts(creation, &options) < 0) return 0;
  c->foreign |= options != 0; /* chunks at the edge are stored without filters */
#endif
  return c->filters >= 0;
}

static int measure(struct mn_hdf5_chunks *c, const struct mn_hdf5_object *dataset) {
  uint64_t bytes = dataset->element;
  double all = 1; /* chunks */
  for (int i = 0; i < dataset->rank; i++) {
    hsize_t chunk = dataset->chunk[i];
    if (chunk < 1 || __builtin_mul_overflow(bytes, chunk, &bytes) || bytes > UINT32_MAX) return 0;
    c->grid[i] = dataset->shape[i] / chunk + (dataset->shape[i] % chunk > 0);
    all *= (double)c->grid[i];
  }
  c->bytes = (size_t)bytes;
  c->slots = (size_t)fmax(1, fmin(all, (double)KEPT / ((double)bytes + sizeof(struct slot))));
  return 1;
}

mn_status mn_hdf5_chunks_open(const struct mn_hdf5_file *file, struct mn_hdf5_object *dataset,
                              hid_t creation) {
  struct mn_hdf5_chunks *c = calloc(1, sizeof *c);
  if (!c) return mn_fail(MN_NO_MEMORY, "no memory to read %s", dataset->name);
  if (!measure(c, dataset) || !take_filters(c, creation)) {
    free(c);
    return mn_hdf5_broken(file, dataset->name, "its chunks or filters make no sense");
  }
  c->link = &file->reading->chunks;
  c->next = *c->link;
  if (c->next) c->next->link = &c->next;
  *c->link = c;
  dataset->chunks = c;
  return MN_OK;
}

void mn_hdf5_chunks_close(struct mn_hdf5_chunks *c) {
  if (!c) return;
  *c->link = c->next;
  if (c->next) c->next->link = c->link;
  for (size_t i = 0; c->slot && i <= c->slots; i++) free(c->slot[i].bytes);
  free(c->slot);
  free(c->spare);
  free(c);
}

/* ---- undoing filters ---- */

/* HDF5's fletcher32: 16-bit words with their high byte first, a last odd byte as a high one; folded before 32
 * bits could overflow. */
static uint32_t fletcher(const unsigned char *bytes, size_t size) {
  uint32_t a = 0, b = 0;
  for (size_t words = size / 2, here; words > 0; words -= here) {
    here = words < 360 ? words : 360;
    for (size_t i = 0; i < here; i++, bytes += 2) {
      a += (uint32_t)bytes[0] << 8 | bytes[1];
      b += a;
    }
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
  }
  if (size % 2) {
    a += (uint32_t)bytes[0] << 8;
    b += a;
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
  }
  a = (a & 0xffff) + (a >> 16);
  b = (b & 0xffff) + (b >> 16);
  return b << 16 | a;
}

/* Whether the sum that follows `size` bytes is theirs. HDF5 before 1.6.3 stored the halves' bytes swapped. */
static int sum_is_right(const unsigned char *bytes, size_t size) {
  const unsigned char *s = bytes + size;
  uint32_t right = fletcher(bytes, size);
  uint32_t found = (uint32_t)s[3] << 24 | (uint32_t)s[2] << 16 | (uint32_t)s[1] << 8 | s[0];
  return found == right || found == ((right & 0x00ff00ff) << 8 | (right >> 8 & 0x00ff00ff));
}

static inline void interleave(unsigned char *restrict to, const unsigned char *restrict from, size_t count,
                              size_t width) {
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < width; j++) to[i * width + j] = from[j * count + i];
}

/* What does not make a whole element stands at the end as it was. */
static void unshuffle(unsigned char *to, const unsigned char *from, size_t size, size_t width) {
  size_t count = size / width, whole = count * width;
  if (width == 2)
    interleave(to, from, count, 2);
  else if (width == 4)
    interleave(to, from, count, 4);
  else if (width == 8)
    interleave(to, from, count, 8);
  else
    interleave(to, from, count, width);
  memcpy(to + whole, from + whole, size - whole);
}

static void swap(unsigned char **a, unsigned char **b) {
  unsigned char *held = *a;
  *a = *b;
  *b = held;
}

/* Undoes the filters of `size` bytes in *at, of which bit i of `mask` says that filter i was left out; the
 * buffers *at and *spare may be exchanged. Returns what is wrong, else NULL. */
static const char *unpack(const struct mn_hdf5_chunks *c, unsigned mask, size_t size, unsigned char **at,
                          unsigned char **spare) {
  for (int i = c->filters; i-- > 0;) {
    if (mask >> i & 1) continue;
    if (c->filter[i].id == H5Z_FILTER_FLETCHER32) {
      if (size < SUM) return "a chunk ends before its checksum";
      size -= SUM;
      if (!sum_is_right(*at, size)) return "a checksum is wrong";
      continue;
    }
    if (c->filter[i].id == H5Z_FILTER_SHUFFLE) {
      unshuffle(*spare, *at, size, c->filter[i].width);
    } else {
      uLongf wanted = c->bytes, got;
      for (int j = 0; j < i; j++)
        wanted += c->filter[j].id == H5Z_FILTER_FLETCHER32 && !(mask >> j & 1) ? SUM : 0;
      got = wanted;
      if (uncompress(*spare, &got, *at, size) != Z_OK || got != wanted)
        return "a chunk does not inflate to its size";
      size = wanted;
    }
    swap(at, spare);
  }
  return size == c->bytes ? NULL : "a chunk is stored with another size than it has";
}

/* ---- fetching a chunk ---- */

/* What is read: the chunk at `start`, of which `count` is within the dataset. */
struct place {
  const struct mn_hdf5_file *file;
  const struct mn_hdf5_object *dataset;
  hsize_t start[MN_HDF5_RANK], count[MN_HDF5_RANK];
};

/* Reads a chunk through HDF5, as it is stored but without filters. */
static mn_status read_by_hdf5(void *data, void *out) {
  const struct place *p = data;
  const struct mn_hdf5_object *dataset = p->dataset;
  const hsize_t zero[MN_HDF5_RANK] = {0};
  hid_t type = H5Dget_type(dataset->id), from = H5Dget_space(dataset->id);
  hid_t to = H5Screate_simple(dataset->rank, dataset->chunk, NULL);
  mn_status status = MN_OK;
  if (type < 0 || from < 0 || to < 0 ||
      H5Sselect_hyperslab(from, H5S_SELECT_SET, p->start, NULL, p->count, NULL) < 0 ||
      H5Sselect_hyperslab(to, H5S_SELECT_SET, zero, NULL, p->count, NULL) < 0 ||
      H5Dread(dataset->id, type, to, from, H5P_DEFAULT, out) < 0)
    status = mn_hdf5_rows_damaged(p->file, dataset, p->start, p->count, NULL);
  if (to >= 0) H5Sclose(to);
  if (from >= 0) H5Sclose(from);
  if (type >= 0) H5Tclose(type);
  return status;
}

static mn_status fetch_foreign(struct place *p, struct slot *slot) {
  const struct mn_hdf5_chunks *c = p->dataset->chunks;
  void *shared;
  int died;
  mn_status status = mn_child_run(read_by_hdf5, p, MN_HDF5_SECONDS, c->bytes, &shared, &died);
  if (status == MN_OK && died)
    status = mn_hdf5_rows_damaged(p->file, p->dataset, p->start, p->count, MN_HDF5_CRASHED);
  if (status == MN_OK) memcpy(slot->bytes, shared, c->bytes);
  mn_child_free(shared, c->bytes);
  return status;
}

/* Zeros may be what was written, or what a disk lost together with their checksum: one line for a file. */
static void doubt(const struct place *p, const unsigned char *bytes) {
  const struct mn_hdf5_chunks *c = p->dataset->chunks;
  struct mn_hdf5_reading *r = p->file->reading;
  if (!r->doubts || !c->zeros_pass || *bytes || memcmp(bytes, bytes + 1, c->bytes - 1) != 0) return;
  r->doubts = 0;
  mn_escape_print(
      stderr,
      "minnow: warning: %s: %s, rows %llu to %llu are a chunk of zeros with the checksum 0, which "
      "may be lost rows: if zeros are not right there, %s\n",
      p->file->path, p->dataset->name, (unsigned long long)p->start[0],
      (unsigned long long)(p->start[0] + p->count[0] - 1), p->file->remedy);
}

/* HDF5 finds the chunk, and the driver reads it into memory of known size. Where there is none HDF5 is asked
 * for the fill value, and may read no elements for it. */
static mn_status fetch(struct place *p, struct slot *slot) {
  struct mn_hdf5_chunks *c = p->dataset->chunks;
  struct mn_hdf5_disk *disk = &p->file->reading->disk;
  uint32_t mask = 0;
  if (c->foreign) return fetch_foreign(p, slot);
  disk->asked = 0;
  disk->limit = c->room;
  disk->limited = 1;
  herr_t result = H5Dread_chunk(p->dataset->id, H5P_DEFAULT, p->start, &mask, slot->bytes);
  const char *wrong = NULL;
  if (result >= 0)
    wrong = unpack(c, mask, disk->asked, &slot->bytes, &c->spare);
  else if (disk->asked > c->room)
    wrong = "a chunk is stored with more bytes than it can have";
  mn_status status = wrong ? mn_hdf5_rows_damaged(p->file, p->dataset, p->start, p->count, wrong) : MN_OK;
  if (result >= 0 && !wrong) doubt(p, slot->bytes);
  if (result < 0 && !wrong) {
    disk->limit = 0;
    memset(slot->bytes, 0, c->bytes); /* a dataset may say that it has no fill value */
    status = read_by_hdf5(p, slot->bytes);
  }
  disk->limited = 0;
  return status;
}

/* Memory for a slot, and what all of them need. */
static mn_status take_memory(struct mn_hdf5_chunks *c, struct slot **slot, size_t index) {
  if (!c->slot) c->slot = calloc(c->slots + 1, sizeof *c->slot);
  if (!c->spare) c->spare = malloc(c->room);
  *slot = c->slot ? &c->slot[index] : NULL;
  if (*slot && !(*slot)->bytes) (*slot)->bytes = malloc(c->room);
  return *slot && (*slot)->bytes && c->spare
             ? MN_OK
             : mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of a file", c->room);
}

/* The chunk's bytes: kept ones, or fetched and, unless the slab takes it whole, kept. */
static mn_status get(struct place *p, const struct mn_hdf5_slab *slab, const unsigned char **bytes) {
  struct mn_hdf5_chunks *c = p->dataset->chunks;
  struct slot *slot;
  hsize_t number = 0;
  int whole = 1;
  for (int i = 0; i < slab->rank; i++) {
    number = number * c->grid[i] + p->start[i] / p->dataset->chunk[i];
    whole &= p->start[i] >= slab->start[i] && p->start[i] + p->count[i] <= slab->start[i] + slab->count[i];
  }
  MN_TRY(take_memory(c, &slot, number % c->slots));
  if (slot->chunk != number + 1) {
    if (whole) MN_TRY(take_memory(c, &slot, c->slots));
    slot->chunk = 0;
    MN_TRY(fetch(p, slot));
    slot->chunk = number + 1;
  }
  *bytes = slot->bytes;
  return MN_OK;
}

/* ---- into the slab ---- */

/* Copies what chunk and slab share: runs of elements that stand next to each other in both. */
static void copy(const struct place *p, const struct mn_hdf5_slab *slab, const unsigned char *chunk,
                 char *out) {
  const hsize_t *shape = p->dataset->chunk;
  hsize_t low[MN_HDF5_RANK], size[MN_HDF5_RANK], at[MN_HDF5_RANK] = {0};
  size_t run = p->dataset->element;
  int outer = slab->rank, i;
  for (i = 0; i < slab->rank; i++) {
    hsize_t end = p->start[i] + p->count[i], last = slab->start[i] + slab->count[i];
    low[i] = p->start[i] > slab->start[i] ? p->start[i] : slab->start[i];
    size[i] = (end < last ? end : last) - low[i];
  }
  while (outer > 0) {
    run *= size[--outer];
    if (size[outer] != shape[outer] || size[outer] != slab->count[outer]) break;
  }
  do {
    size_t from = 0, to = 0;
    for (i = 0; i < slab->rank; i++) {
      from = from * shape[i] + (low[i] - p->start[i]) + at[i];
      to = to * slab->count[i] + (low[i] - slab->start[i]) + at[i];
    }
    memcpy(out + to * p->dataset->element, chunk + from * p->dataset->element, run);
    for (i = outer - 1; i >= 0 && ++at[i] == size[i]; i--) at[i] = 0;
  } while (i >= 0);
}

/* Fills the slab with elements as they are stored. */
static mn_status gather(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                        const struct mn_hdf5_slab *slab, char *out) {
  struct place p = {.file = file, .dataset = dataset};
  const unsigned char *bytes;
  int i;
  for (i = 0; i < slab->rank; i++) p.start[i] = slab->start[i] - slab->start[i] % dataset->chunk[i];
  do {
    for (i = 0; i < slab->rank; i++) {
      hsize_t left = dataset->shape[i] - p.start[i];
      p.count[i] = dataset->chunk[i] < left ? dataset->chunk[i] : left;
    }
    MN_TRY(get(&p, slab, &bytes));
    copy(&p, slab, bytes, out);
    for (i = slab->rank - 1; i >= 0; i--) {
      p.start[i] += dataset->chunk[i];
      if (p.start[i] < slab->start[i] + slab->count[i]) break;
      p.start[i] = slab->start[i] - slab->start[i] % dataset->chunk[i];
    }
  } while (i >= 0);
  return MN_OK;
}

/* Converts as H5Dread does, in memory that has room for the wider of both types. */
static mn_status convert(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset, hid_t memory,
                         hid_t stored, const struct mn_hdf5_slab *slab, void *out) {
  size_t width = H5Tget_size(memory), bytes = slab->elements * dataset->element;
  if (width == 0) return mn_hdf5_damaged(file, dataset->name); /* HDF5 cannot tell */
  void *wide = dataset->element > width ? malloc(bytes) : out;
  if (!wide) return mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of %s", bytes, dataset->name);
  mn_status status = gather(file, dataset, slab, wide);
  if (status == MN_OK && H5Tconvert(stored, memory, slab->elements, wide, NULL, H5P_DEFAULT) < 0)
    status = mn_hdf5_rows_damaged(file, dataset, slab->start, slab->count, NULL);
  if (status == MN_OK && wide != out) memcpy(out, wide, slab->elements * width);
  if (wide != out) free(wide);
  return status;
}

mn_status mn_hdf5_chunks_read(const struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                              hid_t memory, const struct mn_hdf5_slab *slab, void *out) {
  MN_REQUIRE(slab->rank == dataset->rank && slab->elements > 0);
  for (int i = 0; i < slab->rank; i++)
    MN_REQUIRE(slab->start[i] < dataset->shape[i] && slab->count[i] <= dataset->shape[i] - slab->start[i]);
  hid_t stored = H5Dget_type(dataset->id);
  htri_t same = stored < 0 ? -1 : H5Tequal(stored, memory);
  mn_status status;
  if (same < 0)
    status = mn_hdf5_damaged(file, dataset->name);
  else
    status = same ? gather(file, dataset, slab, out) : convert(file, dataset, memory, stored, slab, out);
  if (stored >= 0) H5Tclose(stored);
  return status;
}
