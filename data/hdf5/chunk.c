/* Reading elements of an HDF5 file; see file.h.
 *
 * libhdf5 takes a chunk's size from the file and assumes that its filters fill the chunk: a false size
 * overflows its heap. So chunks are fetched, unpacked and copied into slabs here. The driver refuses a chunk
 * that is larger than the memory for it, and the filters that HDF5 always has (shuffle, deflate, fletcher32)
 * are undone with every length checked. A chunk of other filters is read by HDF5, in a child process.
 * Unpacked chunks are kept, so that neighbouring reads do not unpack a chunk again. */
#include "data/hdf5/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* The most bytes kept of a dataset, unless one chunk is larger. */
#define KEPT ((size_t)256 << 20)

enum { FILTERS = 8, SUM = 4, SECONDS = 60 }; /* bytes of a checksum; of computing in a child, at a time */

struct filter {
  H5Z_filter_t id;
  size_t width; /* of the elements whose bytes shuffle gathers */
};

struct slot {
  hsize_t chunk; /* the chunk's number + 1, or 0 if empty */
  unsigned char *bytes;
};

struct mn_hdf5_chunks {
  struct mn_hdf5_chunks *next, **link; /* in the file's list; `link` points here */
  size_t bytes;                        /* of a chunk */
  size_t room;                         /* of each buffer: the most that a chunk takes in the file */
  int foreign;                         /* only HDF5 can undo the filters */
  int filters;                         /* in the order in which they were applied */
  struct filter filter[FILTERS];
  hsize_t grid[MN_HDF5_RANK]; /* chunks along each dimension */
  size_t slots; /* a chunk is kept in slot number % slots; one more slot is for chunks not kept */
  struct slot *slot;
  unsigned char *spare; /* `room` bytes for unpacking */
};

/* ---- slabs ---- */

/* Sets count and elements from start. */
static void fit(struct mn_hdf5_slab *slab) {
  slab->elements = 1;
  for (int i = 0; i < slab->rank; i++) {
    hsize_t left = slab->end[i] > slab->start[i] ? slab->end[i] - slab->start[i] : 0;
    slab->count[i] = slab->step[i] < left ? slab->step[i] : left;
    slab->elements *= slab->count[i];
  }
}

void mn_hdf5_slab_rows(struct mn_hdf5_slab *slab, int rank, const hsize_t *shape, hsize_t first,
                       size_t element) {
  hsize_t room = MN_HDF5_TRANSFER / element;
  *slab = (struct mn_hdf5_slab){.rank = rank};
  for (int i = rank - 1; i >= 0; i--) {
    const hsize_t step = room >= shape[i] ? shape[i] : room > 1 ? room : 1;
    room = step < shape[i] || step == 0 ? 1 : room / step;
    slab->end[i] = shape[i];
    slab->step[i] = step;
  }
  if (rank > 0) slab->from[0] = slab->start[0] = first;
  fit(slab);
}

void mn_hdf5_slab_next(struct mn_hdf5_slab *slab) {
  for (int i = slab->rank - 1; i >= 0; i--) {
    slab->start[i] += slab->step[i];
    if (slab->start[i] < slab->end[i]) {
      fit(slab);
      return;
    }
    slab->start[i] = slab->from[i];
  }
  slab->elements = 0;
}

/* Reads into `out` if `values` is NULL, else writes `values`, from the first element of an array of `shape`
 * on. Its rank is the slab's: with another HDF5 copies element by element. */
static herr_t transfer(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, const hsize_t *shape,
                       void *out, const void *values) {
  static const hsize_t zero[MN_HDF5_RANK];
  const size_t element = H5Tget_size(memory), widest = element < 16 ? 16 : element;
  hid_t space = H5Dget_space(dataset), dense = H5Screate_simple(slab->rank, shape, NULL);
  hid_t how = H5Pcreate(H5P_DATASET_XFER);
  herr_t result = space < 0 || dense < 0 || how < 0 ? -1 : 0;
  /* HDF5 clears 1 MiB to convert in, for each call, unless told to take less. */
  if (result >= 0 && slab->elements > 0 && slab->elements < ((size_t)1 << 20) / widest)
    result = H5Pset_buffer(how, slab->elements * widest, NULL, NULL);
  if (result >= 0 && slab->rank > 0)
    result = H5Sselect_hyperslab(space, H5S_SELECT_SET, slab->start, NULL, slab->count, NULL);
  if (result >= 0 && shape != slab->count)
    result = H5Sselect_hyperslab(dense, H5S_SELECT_SET, zero, NULL, slab->count, NULL);
  if (result >= 0)
    result = values ? H5Dwrite(dataset, memory, dense, space, how, values)
                    : H5Dread(dataset, memory, dense, space, how, out);
  if (result >= 0 && out &&
      (H5Tdetect_class(memory, H5T_VLEN) > 0 || H5Tdetect_class(memory, H5T_STRING) > 0))
    H5Dvlen_reclaim(memory, dense, H5P_DEFAULT, out);
  hid_t errors = result < 0 ? H5Eget_current_stack() : -1; /* H5Sclose would clear it */
  if (how >= 0) H5Pclose(how);
  if (dense >= 0) H5Sclose(dense);
  if (space >= 0) H5Sclose(space);
  if (errors >= 0) H5Eset_current_stack(errors);
  return result;
}

/* ---- reading by HDF5 ---- */

/* A slab to be read, as elements of the type `memory` in an array of `shape`. */
struct slab_read {
  struct mn_hdf5_file *file;
  const struct mn_hdf5_object *dataset;
  hid_t stored, memory; /* types, in the file and in memory */
  const struct mn_hdf5_slab *slab;
  const hsize_t *shape;
};

/* The error for a slab that cannot be read, with HDF5's reason if `reason` is NULL. */
static mn_status damaged(const struct slab_read *r, const char *reason) {
  const unsigned long long first = r->slab->start[0];
  char name[160];
  snprintf(name, sizeof name, "%.100s", r->dataset->name);
  if (r->dataset->rank > 0)
    snprintf(name, sizeof name, "%.100s, rows %llu to %llu", r->dataset->name, first,
             first + r->slab->count[0] - 1);
  return mn_hdf5_damaged(r->file, name, reason);
}

static mn_status read_by_hdf5(void *data, void *out) {
  const struct slab_read *r = data;
  if (transfer(r->dataset->id, r->memory, r->slab, r->shape, out, NULL) >= 0) return MN_OK;
  return damaged(r, NULL);
}

static mn_status read_in_child(struct slab_read *r, size_t bytes, void *out) {
  int died;
  mn_status status = mn_child_run(r->file->path, read_by_hdf5, r, SECONDS, out, bytes, &died);
  return status == MN_OK && died ? damaged(r, MN_HDF5_CRASHED) : status;
}

hid_t mn_hdf5_create(hid_t group, const char *name, hid_t type, int rank, const hsize_t *shape) {
  hid_t space = H5Screate_simple(rank, shape, NULL), creation = H5Pcreate(H5P_DATASET_CREATE), dataset = -1;
  if (space >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
      H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0)
    dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  hid_t errors = dataset < 0 ? H5Eget_current_stack() : -1; /* closing would clear it */
  if (creation >= 0) H5Pclose(creation);
  if (space >= 0) H5Sclose(space);
  if (errors >= 0) H5Eset_current_stack(errors);
  return dataset;
}

herr_t mn_hdf5_write(hid_t dataset, hid_t memory, const struct mn_hdf5_slab *slab, const void *values) {
  return transfer(dataset, memory, slab, slab->count, NULL, values);
}

/* ---- the chunks of a dataset ---- */

/* Notes the filters, and sets `room`. zlib's deflate adds less than an eighth and 64 bytes; a larger chunk is
 * refused. */
static int take_filters(struct mn_hdf5_chunks *c, struct mn_hdf5_object *dataset, hid_t creation) {
  int deflated = 0;
  c->filters = dataset->filters;
  c->foreign = c->filters > FILTERS;
  c->room = c->bytes;
  for (int i = 0; i < c->filters; i++) {
    unsigned flags, values[8] = {0};
    size_t count = 8;
    char name[sizeof dataset->lacking] = "";
    H5Z_filter_t id = H5Pget_filter2(creation, (unsigned)i, &flags, &count, values, sizeof name, name, NULL);
    if (id < 0) return 0;
    dataset->checksum |= id == H5Z_FILTER_FLETCHER32;
    if (H5Zfilter_avail(id) <= 0) {
      dataset->lacks = id;
      memcpy(dataset->lacking, name, sizeof name - 1);
    }
    if (c->foreign) continue;
    c->filter[i] = (struct filter){id, count > 0 ? values[0] : 0};
    if (id == H5Z_FILTER_FLETCHER32)
      c->room += SUM;
    else if (id == H5Z_FILTER_DEFLATE && !deflated++)
      c->room += c->room / 8 + 64;
    else if (id != H5Z_FILTER_SHUFFLE)
      c->foreign = 1;
    if (id == H5Z_FILTER_SHUFFLE && c->filter[i].width < 1) return 0;
  }
  unsigned options;
  if (H5Pget_chunk_opts(creation, &options) < 0) return 0;
  c->foreign |= options != 0; /* chunks at the edge are stored without filters */
  return 1;
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

mn_status mn_hdf5_chunks_open(struct mn_hdf5_file *file, struct mn_hdf5_object *dataset, hid_t creation) {
  struct mn_hdf5_chunks *c = calloc(1, sizeof *c);
  if (!c) return mn_fail(MN_NO_MEMORY, "no memory to read %s", dataset->name);
  if (!measure(c, dataset) || !take_filters(c, dataset, creation)) {
    free(c);
    return mn_hdf5_damaged(file, dataset->name, "its chunks or filters make no sense");
  }
  c->link = &file->chunks;
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
  if (size % 2) a += (uint32_t)bytes[0] << 8, b += a;
  for (int i = 0; i < 2; i++) {
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
  }
  return b << 16 | a;
}

/* Checks the sum behind `size` bytes. HDF5 before 1.6.3 stored the halves' bytes swapped. */
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

/* The bytes of an incomplete last element are not shuffled. */
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

/* Undoes the filters of `size` bytes in *at, except filter i for each bit i of `mask`; may exchange the
 * buffers *at and *spare. Returns an error's reason, or NULL. */
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
    unsigned char *held = *at;
    *at = *spare;
    *spare = held;
  }
  return size == c->bytes ? NULL : "a chunk is stored with another size than it has";
}

/* ---- fetching a chunk ---- */

/* HDF5 finds the chunk, and the driver reads it into memory whose size it checks. For a missing chunk HDF5
 * returns the fill value, and may not read elements for it. */
static mn_status fetch(struct slab_read *chunk, struct slot *slot) {
  struct mn_hdf5_chunks *c = chunk->dataset->chunks;
  struct mn_hdf5_disk *disk = &chunk->file->disk;
  uint32_t mask = 0;
  if (c->foreign) return read_in_child(chunk, c->bytes, slot->bytes);
  disk->asked = 0;
  disk->limit = c->room;
  herr_t result = H5Dread_chunk(chunk->dataset->id, H5P_DEFAULT, chunk->slab->start, &mask, slot->bytes);
  const char *wrong = NULL;
  if (result >= 0)
    wrong = unpack(c, mask, disk->asked, &slot->bytes, &c->spare);
  else if (disk->asked > c->room)
    wrong = "a chunk is stored with more bytes than it can have";
  mn_status status = wrong ? damaged(chunk, wrong) : MN_OK;
  if (result < 0 && !wrong) {
    disk->limit = 0;
    memset(slot->bytes, 0, c->bytes); /* a dataset may lack a fill value */
    status = read_by_hdf5(chunk, slot->bytes);
  }
  disk->limit = SIZE_MAX;
  return status;
}

/* Allocates a slot's memory, and the memory shared by all slots. */
static mn_status take_memory(struct mn_hdf5_chunks *c, struct slot **slot, size_t index) {
  if (!c->slot) c->slot = calloc(c->slots + 1, sizeof *c->slot);
  if (!c->spare) c->spare = malloc(c->room);
  *slot = c->slot ? &c->slot[index] : NULL;
  if (*slot && !(*slot)->bytes) (*slot)->bytes = malloc(c->room);
  return *slot && (*slot)->bytes && c->spare
             ? MN_OK
             : mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of a file", c->room);
}

/* Sets *bytes to the chunk: a kept one, or fetches it, and keeps it unless the slab takes all of it. */
static mn_status get(struct slab_read *chunk, const struct mn_hdf5_slab *slab, const unsigned char **bytes) {
  struct mn_hdf5_chunks *c = chunk->dataset->chunks;
  struct slot *slot;
  hsize_t number = 0;
  int whole = 1;
  for (int i = 0; i < slab->rank; i++) {
    hsize_t start = chunk->slab->start[i], end = start + chunk->slab->count[i];
    number = number * c->grid[i] + start / chunk->shape[i];
    whole &= start >= slab->start[i] && end <= slab->start[i] + slab->count[i];
  }
  MN_TRY(take_memory(c, &slot, number % c->slots));
  if (slot->chunk != number + 1) {
    if (whole) MN_TRY(take_memory(c, &slot, c->slots));
    slot->chunk = 0;
    MN_TRY(fetch(chunk, slot));
    slot->chunk = number + 1;
  }
  *bytes = slot->bytes;
  return MN_OK;
}

/* ---- into the slab ---- */

/* Copies the intersection of chunk and slab, in runs of elements that are contiguous in both. */
static void copy(const struct slab_read *from_chunk, const struct mn_hdf5_slab *slab,
                 const unsigned char *bytes, char *out) {
  const struct mn_hdf5_slab *chunk = from_chunk->slab;
  const hsize_t *shape = from_chunk->shape;
  const size_t element = from_chunk->dataset->element;
  struct mn_hdf5_slab run = {.rank = slab->rank};
  for (int i = slab->rank - 1, whole = 1; i >= 0; i--) {
    hsize_t end = chunk->start[i] + chunk->count[i], last = slab->start[i] + slab->count[i];
    run.from[i] = chunk->start[i] > slab->start[i] ? chunk->start[i] : slab->start[i];
    run.start[i] = run.from[i];
    run.end[i] = end < last ? end : last;
    run.step[i] = whole ? run.end[i] - run.from[i] : 1;
    whole &= run.step[i] == shape[i] && run.step[i] == slab->count[i];
  }
  for (fit(&run); run.elements; mn_hdf5_slab_next(&run)) {
    size_t from = 0, to = 0;
    for (int i = 0; i < slab->rank; i++) {
      from = from * shape[i] + (run.start[i] - chunk->start[i]);
      to = to * slab->count[i] + (run.start[i] - slab->start[i]);
    }
    memcpy(out + to * element, bytes + from * element, run.elements * element);
  }
}

/* Fills the slab with elements as they are stored. */
static mn_status gather(const struct slab_read *r, char *out) {
  struct mn_hdf5_slab at = {.rank = r->slab->rank};
  struct slab_read chunk = {r->file, r->dataset, r->stored, r->stored, &at, r->dataset->chunk};
  const unsigned char *bytes;
  for (int i = 0; i < at.rank; i++) { /* all chunks that the slab meets, cut at the dataset's end */
    hsize_t each = chunk.shape[i], last = r->slab->start[i] + r->slab->count[i] - 1;
    hsize_t left = r->dataset->shape[i] - (last - last % each);
    at.from[i] = at.start[i] = r->slab->start[i] - r->slab->start[i] % each;
    at.end[i] = last - last % each + (each < left ? each : left);
    at.step[i] = each;
  }
  for (fit(&at); at.elements; mn_hdf5_slab_next(&at)) {
    MN_TRY(get(&chunk, r->slab, &bytes));
    copy(&chunk, r->slab, bytes, out);
  }
  return MN_OK;
}

/* Reads a slab of chunks; the dataset's elements are not `pointing`. Converts them to `width` bytes as
 * H5Dread does, in memory for the wider of both types. */
static mn_status read_chunks(const struct slab_read *r, size_t width, void *out) {
  const struct mn_hdf5_slab *slab = r->slab;
  const size_t bytes = slab->elements * r->dataset->element;
  MN_REQUIRE(slab->rank == r->dataset->rank && slab->elements > 0);
  for (int i = 0; i < slab->rank; i++)
    MN_REQUIRE(slab->start[i] < r->dataset->shape[i] &&
               slab->count[i] <= r->dataset->shape[i] - slab->start[i]);
  void *wide = r->dataset->element > width ? malloc(bytes) : out;
  if (!wide) return mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of %s", bytes, r->dataset->name);
  mn_status status = gather(r, wide);
  if (status == MN_OK && H5Tconvert(r->stored, r->memory, slab->elements, wide, NULL, H5P_DEFAULT) < 0)
    status = damaged(r, NULL);
  if (status == MN_OK && wide != out) memcpy(out, wide, slab->elements * width);
  if (wide != out) free(wide);
  return status;
}

/* ---- any dataset ---- */

mn_status mn_hdf5_read(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset,
                       enum mn_hdf5_memory memory, const struct mn_hdf5_slab *slab, void *out) {
  mn_hdf5_lock();
  const hid_t types[] = {[MN_HDF5_FLOAT] = H5T_NATIVE_FLOAT,
                         [MN_HDF5_DOUBLE] = H5T_NATIVE_DOUBLE,
                         [MN_HDF5_STORED] = H5Dget_type(dataset->id)};
  _Static_assert(sizeof types / sizeof *types == MN_HDF5_STORED + 1, "each type in memory");
  const hid_t stored = types[MN_HDF5_STORED];
  struct slab_read r = {file, dataset, stored, types[memory], slab, slab->count};
  const size_t width = stored < 0 ? 0 : H5Tget_size(r.memory); /* 0 if HDF5 fails */
  mn_status status;
  if (width == 0)
    status = mn_hdf5_damaged(file, dataset->name, NULL);
  else if (dataset->pointing)
    status = read_in_child(&r, slab->elements * width, out);
  else if (dataset->chunks)
    status = read_chunks(&r, width, out);
  else
    status = read_by_hdf5(&r, out);
  if (stored >= 0) H5Tclose(stored);
  mn_hdf5_unlock();
  return status;
}
