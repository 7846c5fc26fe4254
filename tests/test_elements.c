/* Elements of datasets: random slabs are what HDF5 reads by itself, for every type, rank and layout;
 * and elements that point elsewhere are read in a child process, whose crash is an error like any other. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "data/dataset_file.h"
#include "data/hdf5/file.h"
#include "tests/dataset_make.h"

enum { CHUNKED = 1, PACKED = 2, EDGES_PLAIN = 4, FOREIGN = 8 };
static const int sets[] = {0, CHUNKED, CHUNKED | PACKED, CHUNKED | PACKED | EDGES_PLAIN,
                           CHUNKED | PACKED | FOREIGN};

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

/* Its creation properties: chunks, a fill value of 7, and filters. */
static hid_t properties(int rank, const hsize_t *chunk, int set) {
  const int fill = 7;
  hid_t id = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_fill_value(id, H5T_NATIVE_INT, &fill) >= 0);
  if (set & CHUNKED) assert_true(H5Pset_chunk(id, rank, chunk) >= 0);
  if (set & PACKED)
    assert_true(H5Pset_shuffle(id) >= 0 && H5Pset_deflate(id, 1) >= 0 && H5Pset_fletcher32(id) >= 0);
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

static void reads_what_hdf5_reads(void **state) {
  const hid_t types[] = {half(),        H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE,
                         H5T_STD_I8LE,  H5T_STD_U8LE,   H5T_STD_I16LE,  H5T_STD_I16BE,  H5T_STD_U16LE,
                         H5T_STD_I32LE, H5T_STD_U32BE,  H5T_STD_I64LE,  H5T_STD_I64BE,  H5T_STD_U64LE};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    int made = 0;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    assert_true(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0);
    hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, t % 2 ? access : H5P_DEFAULT);
    assert_true(id >= 0 && H5Pclose(access) >= 0);
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
      if (sets[set] & EDGES_PLAIN && t % 2 == 0) continue; /* of the newer format alone */
      const int rank = 1 + ((int)set + (int)t) % 3;
      char name[20];
      snprintf(name, sizeof name, "d%d", made++);
      write_some(make(id, name, types[t], rank, shapes[rank - 1], chunks[rank - 1], sets[set]), rank,
                 shapes[rank - 1]);
    }
    done(id);
    compare_all(made);
  }
  assert_true(H5Tclose(types[0]) >= 0);
}

/* A chunk without filters whose size is another in the file's index, which is damaged there; the next chunk is
 * read. */
static void refuses_chunks_of_another_size(void **state) {
  const hsize_t shape[2] = {32, 4}, chunk[2] = {16, 4};
  static const float values[32 * 4] = {0};
  static const uint32_t key[8] = {256}; /* the size, a mask of filters, and three offsets */
  float got[16 * 4];
  for (uint32_t size = 1; size < 2 * 256; size += 23) { /* never the 256 that it has */
    hid_t id = create(), x = make(id, "x", H5T_IEEE_F32LE, 2, shape, chunk, CHUNKED);
    assert_true(H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_true(H5Dclose(x) >= 0);
    done(id);
    char bytes[1 << 14];
    const int fd = open(file, O_RDWR);
    const ssize_t length = read(fd, bytes, sizeof bytes);
    const char *at = length > 0 ? memmem(bytes, (size_t)length, key, sizeof key) : NULL;
    assert_non_null(at);
    assert_int_equal(pwrite(fd, &size, sizeof size, at - bytes), sizeof size);
    assert_int_equal(close(fd), 0);
    struct mn_dataset *d;
    assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
    assert_message(d->read(d, 2, 9, 4, got, NULL), MN_BAD_DATA, file, "x, rows 2 to 10",
                   "copy or write it anew", NULL);
    assert_int_equal(d->read(d, 16, 16, 4, got, NULL), MN_OK);
    assert_memory_equal(got, values, sizeof got);
    mn_dataset_close(d);
  }
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
  const char *words[2] = {"one", "two"};
  const hobj_ref_t references[2] = {0};
  const hsize_t two = 2;
  assert_true(H5Zregister(&filter) >= 0);
  hid_t id = create(), creation = H5Pcreate(H5P_DATASET_CREATE), type = H5Tcopy(H5T_C_S1);
  assert_true(H5Tset_size(type, H5T_VARIABLE) >= 0);
  put(id, "words", type, two, 0, type, words);
  assert_true(H5Tclose(type) >= 0 && H5Pset_chunk(creation, 1, &two) >= 0 &&
              H5Pset_filter(creation, 302, 0, 0, NULL) >= 0);
  put_dataset(id, "crashing", H5T_STD_REF_OBJ, 1, &two, creation, H5T_STD_REF_OBJ, references);
  done(id);
  struct mn_hdf5_file h;
  struct mn_hdf5_object object;
  struct mn_hdf5_slab slab;
  void *pointers[2];
  open_file(&h);
  assert_int_equal(mn_hdf5_find(&h, &h.root, "words", &object), MN_OK);
  mn_hdf5_slab_rows(&slab, 1, object.shape, 0, object.element);
  assert_int_equal(mn_hdf5_read(&h, &object, MN_HDF5_STORED, &slab, pointers), MN_OK);
  mn_hdf5_release(&object);
  assert_int_equal(mn_hdf5_find(&h, &h.root, "crashing", &object), MN_OK);
  assert_message(mn_hdf5_read(&h, &object, MN_HDF5_STORED, &slab, pointers), MN_BAD_DATA, file,
                 "crashing, rows 0 to 1", "crashes the HDF5 library", NULL);
  mn_hdf5_release(&object);
  mn_hdf5_close(&h);
  assert_true(H5Zunregister(302) >= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(reads_what_hdf5_reads),
      TEST(refuses_chunks_of_another_size),
      TEST(runs_children),
      TEST(survives_a_crash_of_hdf5),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
