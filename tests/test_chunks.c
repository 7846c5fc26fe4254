/* Chunked datasets: what minnow unpacks is what HDF5 unpacks, for every type, rank, filter and mask; and a
 * chunk that is not as long as it has to be is refused, where libhdf5 would overflow its heap. Filters that
 * only HDF5 knows, and elements that point elsewhere, are read in a child process, whose crash is an error
 * like any other.
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <zlib.h>

#include "data/dataset_file.h"
#include "data/hdf5/file.h"
#include "tests/dataset_make.h"

enum { SHUFFLE = 1, DEFLATE = 2, FLETCHER = 4, ODD_ORDER = 8, EDGES_PLAIN = 16, FOREIGN = 32, SETS = 16 };

static uint64_t random_state = 1;

static uint64_t draw(uint64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (random_state >> 33) % below;
}

/* ---- making datasets ---- */

static hid_t half(void) {
  hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  assert_true(H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(type, 2) >= 0 &&
              H5Tset_ebias(type, 15) >= 0);
  return type;
}

/* Its creation properties: chunks, a fill value of 7, and the filters of a set. */
static hid_t properties(int rank, const hsize_t *chunk, int set) {
  const int fill = 7;
  hid_t id = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(id, rank, chunk) >= 0 && H5Pset_fill_value(id, H5T_NATIVE_INT, &fill) >= 0);
  if (set & FLETCHER && set & ODD_ORDER) assert_true(H5Pset_fletcher32(id) >= 0);
  if (set & DEFLATE && set & ODD_ORDER) assert_true(H5Pset_deflate(id, 6) >= 0);
  if (set & SHUFFLE) assert_true(H5Pset_shuffle(id) >= 0);
  if (set & DEFLATE && !(set & ODD_ORDER)) assert_true(H5Pset_deflate(id, 1) >= 0);
  if (set & FLETCHER && !(set & ODD_ORDER)) assert_true(H5Pset_fletcher32(id) >= 0);
  if (set & EDGES_PLAIN) assert_true(H5Pset_chunk_opts(id, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) >= 0);
  if (set & FOREIGN) assert_true(H5Pset_nbit(id) >= 0);
  return id;
}

static hid_t make(hid_t at, const char *name, hid_t type, int rank, const hsize_t *shape,
                  const hsize_t *chunk, int set) {
  hid_t space = H5Screate_simple(rank, shape, NULL), creation = properties(rank, chunk, set);
  hid_t id = H5Dcreate2(at, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(id >= 0 && H5Pclose(creation) >= 0 && H5Sclose(space) >= 0);
  return id;
}

/* Writes a box in the middle: some chunks in full, some in part, some not at all. */
static void write_some(hid_t id, int rank, const hsize_t *shape) {
  hsize_t start[3], count[3], elements = 1;
  double values[4096];
  for (int i = 0; i < rank; i++) {
    start[i] = shape[i] / 5;
    count[i] = shape[i] / 2 + 1;
    elements *= count[i];
  }
  assert_true(elements <= 4096);
  for (hsize_t i = 0; i < elements; i++) values[i] = (double)draw(100);
  hid_t from = H5Screate_simple(rank, count, NULL), to = H5Dget_space(id);
  assert_true(H5Sselect_hyperslab(to, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
  assert_true(H5Dwrite(id, H5T_NATIVE_DOUBLE, from, to, H5P_DEFAULT, values) >= 0);
  assert_true(H5Sclose(from) >= 0 && H5Sclose(to) >= 0 && H5Dclose(id) >= 0);
}

/* ---- the same as HDF5 reads ---- */

static void open_file(struct mn_hdf5_file *h) {
  mn_status status = mn_hdf5_open(h, file, "take a copy", 0);
  if (status != MN_OK) print_error("%s\n", mn_message());
  assert_int_equal(status, MN_OK);
}

/* Random boxes of a dataset, in each type of memory, against H5Dread from the same file opened by HDF5's own
 * driver. */
static void compare(struct mn_hdf5_file *h, hid_t other, const char *name) {
  const hid_t types[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE};
  struct mn_hdf5_object object;
  assert_int_equal(mn_hdf5_find(h, &h->root, name, &object), MN_OK);
  assert_int_equal(mn_hdf5_check(h, &object), MN_OK);
  hid_t id = H5Dopen2(other, name, H5P_DEFAULT), stored = H5Dget_type(id);
  for (int round = 0; round < 12; round++) {
    enum mn_hdf5_memory memory = (enum mn_hdf5_memory)(round % (MN_HDF5_STORED + 1));
    struct mn_hdf5_slab slab = {.rank = object.rank, .elements = 1};
    for (int i = 0; i < object.rank; i++) {
      slab.start[i] = round < 3 ? 0 : draw(object.shape[i]);
      slab.count[i] = round < 3 ? object.shape[i] : 1 + draw(object.shape[i] - slab.start[i]);
      slab.elements *= slab.count[i];
    }
    hid_t type = memory == MN_HDF5_STORED ? stored : types[memory];
    size_t bytes = slab.elements * H5Tget_size(type);
    char *wanted = malloc(bytes), *got = malloc(bytes); /* of exactly this size, for AddressSanitizer */
    hid_t to = H5Screate_simple(slab.rank, slab.count, NULL), from = H5Dget_space(id);
    assert_true(wanted && got);
    assert_true(H5Sselect_hyperslab(from, H5S_SELECT_SET, slab.start, NULL, slab.count, NULL) >= 0);
    assert_true(H5Dread(id, type, to, from, H5P_DEFAULT, wanted) >= 0);
    mn_status status = mn_hdf5_read(h, &object, memory, &slab, got);
    if (status != MN_OK) print_error("%s\n", mn_message());
    assert_int_equal(status, MN_OK);
    assert_memory_equal(got, wanted, bytes);
    assert_true(H5Sclose(to) >= 0 && H5Sclose(from) >= 0);
    free(wanted), free(got);
  }
  mn_hdf5_release(&object);
  assert_true(H5Tclose(stored) >= 0 && H5Dclose(id) >= 0);
}

static void compare_all(int datasets) {
  struct mn_hdf5_file h;
  hid_t other = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(other >= 0);
  open_file(&h);
  for (int i = 0; i < datasets; i++) {
    char name[20];
    snprintf(name, sizeof name, "d%d", i);
    compare(&h, other, name);
  }
  mn_hdf5_close(&h);
  done(other);
}

static const hsize_t shapes[3][3] = {{23}, {13, 7}, {5, 6, 7}}, chunks[3][3] = {{5}, {4, 3}, {2, 4, 3}};

static void unpacks_every_type(void **state) {
  const hid_t types[] = {half(),        H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE,
                         H5T_STD_I8LE,  H5T_STD_U8LE,   H5T_STD_I16LE,  H5T_STD_I16BE,  H5T_STD_U16LE,
                         H5T_STD_I32LE, H5T_STD_U32BE,  H5T_STD_I64LE,  H5T_STD_I64BE,  H5T_STD_U64LE};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    int made = 0;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (t % 2) assert_true(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0);
    hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    assert_true(id >= 0 && H5Pclose(access) >= 0);
    for (int set = 0; set < SETS; set++) {
      int rank = 1 + (set + (int)t) % 3;
      char name[20];
      snprintf(name, sizeof name, "d%d", made++);
      write_some(make(id, name, types[t], rank, shapes[rank - 1], chunks[rank - 1], set), rank,
                 shapes[rank - 1]);
    }
    done(id);
    compare_all(made);
  }
  assert_true(H5Tclose(types[0]) >= 0);
}

/* Filters that are not minnow's, edges that are not filtered, more filters than usual. */
static void leaves_other_filters_to_hdf5(void **state) {
  static const int sets[] = {FOREIGN, FOREIGN | DEFLATE | FLETCHER, EDGES_PLAIN | DEFLATE};
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  assert_true(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0);
  hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  assert_true(id >= 0 && H5Pclose(access) >= 0);
  for (int i = 0; i < 3; i++) {
    char name[20];
    snprintf(name, sizeof name, "d%d", i);
    write_some(make(id, name, H5T_STD_I16LE, 2, shapes[1], chunks[1], sets[i]), 2, shapes[1]);
  }
  done(id);
  compare_all(3);
}

/* The first chunk of `from` as it is stored: its bytes. */
static size_t raw(hid_t from, unsigned char *bytes) {
  const hsize_t origin[2] = {0, 0};
  hsize_t size = 0;
  uint32_t mask;
  assert_true(H5Dflush(from) >= 0 && H5Dget_chunk_storage_size(from, origin, &size) >= 0 && size <= 4096);
  assert_true(H5Dread_chunk(from, H5P_DEFAULT, origin, &mask, bytes) >= 0);
  return (size_t)size;
}

/* A chunk from which any of its three filters was left out. */
static void honours_masks(void **state) {
  const hsize_t shape[2] = {16, 8}, origin[2] = {0, 0};
  hid_t id = create();
  for (int mask = 0; mask < 8; mask++) {
    unsigned char bytes[4096];
    char name[20];
    float values[16 * 8];
    for (int i = 0; i < 16 * 8; i++) values[i] = (float)draw(50);
    hid_t without = make(id, "without", H5T_IEEE_F32LE, 2, shape, shape, 7 & ~mask);
    assert_true(H5Dwrite(without, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    size_t size = raw(without, bytes);
    assert_true(H5Dclose(without) >= 0 && H5Ldelete(id, "without", H5P_DEFAULT) >= 0);
    snprintf(name, sizeof name, "d%d", mask);
    hid_t with = make(id, name, H5T_IEEE_F32LE, 2, shape, shape, 7);
    assert_true(H5Dwrite_chunk(with, H5P_DEFAULT, (uint32_t)mask, origin, size, bytes) >= 0);
    assert_true(H5Dclose(with) >= 0);
  }
  done(id);
  compare_all(8);
}

/* Chunks of 64 MiB, more than may be kept: the fourth waits where the first did. */
static void keeps_as_many_as_it_may(void **state) {
  const hsize_t shape = (hsize_t)4 << 26, chunk = (hsize_t)1 << 26, one = 1;
  const hsize_t at[2] = {5, 3 * chunk + 5};
  hid_t id = create(), x = make(id, "x", H5T_STD_I8LE, 1, &shape, &chunk, DEFLATE);
  hid_t to = H5Dget_space(x), from = H5Screate_simple(1, &one, NULL);
  for (int64_t i = 0; i < 2; i++) {
    const int64_t value = 20 + i;
    assert_true(H5Sselect_hyperslab(to, H5S_SELECT_SET, &at[i], NULL, &one, NULL) >= 0);
    assert_true(H5Dwrite(x, H5T_NATIVE_INT64, from, to, H5P_DEFAULT, &value) >= 0);
  }
  assert_true(H5Sclose(to) >= 0 && H5Sclose(from) >= 0 && H5Dclose(x) >= 0);
  done(id);
  struct mn_hdf5_file h;
  struct mn_hdf5_object object;
  open_file(&h);
  assert_int_equal(mn_hdf5_find(&h, &h.root, "x", &object), MN_OK);
  for (int64_t i = 0; i < 4; i++) {
    const struct mn_hdf5_slab slab = {.rank = 1, .start = {at[i % 2]}, .count = {1}, .elements = 1};
    double got = 0;
    assert_int_equal(mn_hdf5_read(&h, &object, MN_HDF5_DOUBLE, &slab, &got), MN_OK);
    assert_true(got == 20 + (double)(i % 2));
  }
  mn_hdf5_release(&object);
  mn_hdf5_close(&h);
}

/* ---- what is refused ---- */

enum { ROOM = 64 * sizeof(float) }; /* the bytes of a chunk [16, 4] */

struct hostile {
  int set;
  uint32_t mask;
  size_t size;     /* stored; of deflated zeros, where the first filter to be undone inflates */
  size_t inflated; /* 0: `size` bytes as they are */
  const char *reason;
};

/* Two chunks, of which the second is as it should be. */
static void refuse_chunk(const struct hostile *a) {
  const hsize_t shape[2] = {32, 4}, chunk[2] = {16, 4};
  const hsize_t origin[2] = {0, 0}, second[2] = {16, 0};
  static const unsigned char zeros[8192];
  static unsigned char packed[8192];
  float values[32 * 4], got[16 * 4];
  for (int i = 0; i < 32 * 4; i++) values[i] = (float)i;
  hid_t id = create(), x = make(id, "x", H5T_IEEE_F32LE, 2, shape, chunk, a->set);
  hid_t part = H5Dget_space(x);
  assert_true(H5Sselect_hyperslab(part, H5S_SELECT_SET, second, NULL, chunk, NULL) >= 0);
  assert_true(H5Dwrite(x, H5T_NATIVE_FLOAT, part, part, H5P_DEFAULT, values) >= 0);
  assert_true(H5Sclose(part) >= 0);
  uLongf size = a->size;
  memset(packed, 1, sizeof packed);
  if (a->inflated) {
    size = sizeof packed;
    assert_int_equal(compress2(packed, &size, zeros, a->inflated, 6), Z_OK);
  }
  assert_true(H5Dwrite_chunk(x, H5P_DEFAULT, a->mask, origin, size, packed) >= 0);
  assert_true(H5Dclose(x) >= 0);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
  for (int round = 0; round < 2; round++) {
    assert_message(d->read(d, round, 9, 4, got, NULL), MN_BAD_DATA, file, "x, rows 0 to 15", a->reason,
                   "copy or write it anew", NULL);
    assert_int_equal(d->read(d, 16, 16, 4, got, NULL), MN_OK);
    assert_memory_equal(got, values + 16 * 4, sizeof got);
  }
  mn_dataset_close(d);
}

static void refuses_chunks_of_another_size(void **state) {
  static const char inflate[] = "does not inflate to its size", size[] = "with another size than it has",
                    large[] = "more bytes than it can have";
  static const struct hostile all[] = {
      {DEFLATE, 0, 0, ROOM - 1, inflate},
      {DEFLATE, 0, 0, ROOM + 1, inflate},
      {DEFLATE, 0, 0, 1, inflate},
      {DEFLATE, 0, 0, 8192, inflate},
      {DEFLATE, 0, 20, 0, inflate},
      {DEFLATE, 0, 4096, 0, large},
      {DEFLATE, 1, ROOM - 1, 0, size},
      {DEFLATE, 1, ROOM + 1, 0, size},
      {DEFLATE, 1, 1, 0, size},
      {SHUFFLE, 0, ROOM - 3, 0, size},
      {SHUFFLE, 0, ROOM + 1, 0, large},
      {SHUFFLE, 1, ROOM - 1, 0, size},
      {SHUFFLE | DEFLATE, 0, 0, ROOM - 1, inflate},
      {SHUFFLE | DEFLATE, 2, ROOM - 1, 0, size},
      {FLETCHER, 0, 3, 0, "ends before its checksum"},
      {FLETCHER, 0, ROOM, 0, "a checksum is wrong"},
      {FLETCHER, 0, ROOM + 4, 0, "a checksum is wrong"},
      {FLETCHER, 0, ROOM + 5, 0, large},
      {FLETCHER, 1, ROOM - 1, 0, size},
      {FLETCHER, 1, ROOM + 4, 0, size},
      {SHUFFLE | DEFLATE | FLETCHER, 4, 0, ROOM + 4, inflate},
      {SHUFFLE | DEFLATE | FLETCHER | ODD_ORDER, 0, 0, ROOM, inflate},
      {SHUFFLE | DEFLATE | FLETCHER, 7, ROOM - 4, 0, size},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) refuse_chunk(&all[i]);
}

/* ---- children ---- */

static mn_status greet(void *data, void *shared) {
  strcpy(shared, "hello");
  kill(getppid(), SIGUSR1);
  nanosleep(&(struct timespec){0, 100000000}, NULL);
  return data ? mn_fail(MN_NO_INPUT, "no %s", (const char *)data) : MN_OK;
}

static mn_status end_by(void *data, void *shared) {
  fputs("not to be seen", stderr);
  raise(*(const int *)data);
  return MN_OK;
}

static mn_status never_end(void *data, void *shared) {
  for (volatile char *c = shared; *c == 0;) {
  }
  return MN_OK;
}

static volatile sig_atomic_t signals;

static void note(int number) {
  signals += number == SIGUSR1;
}

static void runs_children(void **state) {
  char word[] = "such thing", shared[6];
  int died;
  const struct sigaction interrupt = {.sa_handler = note}; /* without SA_RESTART */
  assert_int_equal(sigaction(SIGUSR1, &interrupt, NULL), 0);
  assert_int_equal(mn_child_run("f.h5", greet, NULL, 5, shared, 6, &died), MN_OK);
  assert_int_equal(signals, 1);
  assert_false(died);
  assert_string_equal(shared, "hello");
  assert_message(mn_child_run("f.h5", greet, word, 5, shared, 6, &died), MN_NO_INPUT, "no such thing", NULL);
  /* A signal of a crash is the work's; others come from outside, and say nothing of it. */
  static const struct {
    int number, died, status;
  } ends[] = {
      {SIGSEGV, 1, MN_OK},        {SIGBUS, 1, MN_OK},       {SIGABRT, 1, MN_OK},      {SIGXCPU, 1, MN_OK},
      {SIGKILL, 0, MN_NO_MEMORY}, {SIGALRM, 0, MN_LIBRARY}, {SIGUSR2, 0, MN_LIBRARY},
  };
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    int number = ends[i].number;
    assert_int_equal(mn_child_run("f.h5", end_by, &number, 5, shared, 1, &died), ends[i].status);
    assert_int_equal(died, ends[i].died);
    if (!died) assert_non_null(strstr(mn_message(), "cannot read f.h5: "));
  }
  assert_int_equal(mn_child_run("f.h5", never_end, NULL, 1, shared, 1, &died), MN_OK);
  assert_true(died);
  /* Nothing is left, and a program that collects its children itself is none the worse. */
  assert_true(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
  assert_true(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
  assert_int_equal(mn_child_run("f.h5", greet, NULL, 5, shared, 6, &died), MN_OK);
  assert_false(died);
  assert_true(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
}

static size_t crash_on_reading(unsigned flags, size_t parameters, const unsigned *values, size_t bytes,
                               size_t *size, void **buffer) {
  if (flags & H5Z_FLAG_REVERSE) abort();
  return bytes;
}

static void survives_a_crash_of_hdf5(void **state) {
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 302, 1, 1, "crashing", NULL, NULL, crash_on_reading};
  const hsize_t shape[2] = {8, 2};
  const char *words[2] = {"one", "two"};
  const hsize_t two = 2;
  float values[16] = {0};
  assert_true(H5Zregister(&filter) >= 0);
  hid_t id = create(), creation = properties(2, shape, 0);
  assert_true(H5Pset_filter(creation, 302, 0, 0, NULL) >= 0);
  put_dataset(id, "x", H5T_IEEE_F32LE, 2, shape, creation, H5T_NATIVE_FLOAT, values);
  hid_t type = H5Tcopy(H5T_C_S1);
  assert_true(H5Tset_size(type, H5T_VARIABLE) >= 0);
  put(id, "words", type, two, 0, type, words);
  assert_true(H5Tclose(type) >= 0);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
  assert_message(d->read(d, 0, 8, 4, values, NULL), MN_BAD_DATA, file, "x, rows 0 to 7",
                 "crashes the HDF5 library", NULL);
  mn_dataset_close(d);
  struct mn_hdf5_file h;
  struct mn_hdf5_object object;
  struct mn_hdf5_slab slab;
  char *pointers[2];
  open_file(&h);
  assert_int_equal(mn_hdf5_find(&h, &h.root, "words", &object), MN_OK);
  mn_hdf5_slab_rows(&slab, 1, object.shape, 0, object.element);
  assert_int_equal(mn_hdf5_read(&h, &object, MN_HDF5_STORED, &slab, pointers), MN_OK);
  mn_hdf5_release(&object);
  mn_hdf5_close(&h);
  assert_true(H5Zunregister(302) >= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(unpacks_every_type),
      TEST(leaves_other_filters_to_hdf5),
      TEST(honours_masks),
      TEST(keeps_as_many_as_it_may),
      TEST(runs_children),
      TEST(refuses_chunks_of_another_size),
      TEST(survives_a_crash_of_hdf5),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
