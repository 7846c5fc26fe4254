/* Datasets whose rows are read without HDF5: which they are, the same bytes as HDF5's, several threads at a
 * time, and a file that fails, ends early or holds what is not finite. */
#include <math.h>
#include <pthread.h>
#include <sys/uio.h>
#include <time.h>

#include "data/dataset_file.h"
#include "tests/dataset_make.h"

/* The call with which files are read, over the C library's: made to fail, to be interrupted every other time,
 * or to give fewer bytes than asked for. */
static int pread_error, interrupts;
static size_t pread_most;

ssize_t pread(int fd, void *bytes, size_t size, off_t offset) {
  static int calls;
  struct iovec part = {bytes, pread_most && size > pread_most ? pread_most : size};
  errno = interrupts ? EINTR : pread_error;
  if (pread_error || (interrupts && calls++ % 2 == 0)) return -1;
  return preadv(fd, &part, 1, offset); /* which ThreadSanitizer watches */
}

enum { ROWS = 40000, COLS = 37, TARGETS = 3 };

static uint64_t random_word(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state ^ *state >> 29;
}

/* Finite reals of any bits: negative zeros, denormals. One bit of the exponent is cleared. */
static void *random_reals(size_t count, size_t real) {
  uint64_t state = 1, *values = malloc(count * real + 8);
  assert_non_null(values);
  for (size_t i = 0; i < count * real / 8 + 1; i++)
    values[i] = random_word(&state) & (real == 4 ? 0xbfffffffbfffffff : 0xbfffffffffffffff);
  return values;
}

/* Like put, but in chunks of `chunk` rows, or compact where that is 0. */
static void put_chunked(hid_t at, const char *name, hid_t type, hsize_t rows, hsize_t cols, hsize_t chunk,
                        const void *values) {
  const hsize_t size[2] = {rows, cols}, chunks[2] = {chunk, cols};
  hid_t creation = in_chunks(2, chunk ? chunks : NULL);
  if (!chunk) assert_true(H5Pset_layout(creation, H5D_COMPACT) >= 0);
  put_dataset(at, name, type, 2, size, creation, type, values);
}

static struct mn_dataset *opened_as(const char *x, const char *y) {
  struct mn_dataset *d;
  mn_status status = mn_dataset_open(&d, file, MN_PART_TRAIN, x, y, y != NULL);
  if (status != MN_OK) print_error("%s\n", mn_message());
  assert_int_equal(status, MN_OK);
  return d;
}

/* The width of reals for which x, with y, may be read by several threads at a time. */
static size_t parallel(const char *x, const char *y) {
  struct mn_dataset *d = opened_as(x, y);
  size_t width = d->parallel;
  mn_dataset_close(d);
  return width;
}

/* ---- the same bytes ---- */

/* Ranges of every kind: empty, one row, all, across pieces of any size. */
static int64_t range(uint64_t *state, int round, int64_t *first) {
  *first = round < 2 ? 0 : (int64_t)(random_word(state) % ROWS);
  int64_t most = ROWS - *first;
  if (round == 0) return ROWS;
  return round % 3 ? (int64_t)(random_word(state) % (uint64_t)(most < 50 ? most : 50)) : most;
}

static void read_by_hdf5(const char *name, hid_t type, int64_t first, int64_t count, int cols, void *out) {
  hid_t id = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT), x = H5Dopen2(id, name, H5P_DEFAULT);
  const hsize_t start[2] = {(hsize_t)first, 0}, size[2] = {(hsize_t)count, (hsize_t)cols};
  hid_t space = H5Dget_space(x), dense = H5Screate_simple(2, size, NULL);
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0);
  assert_true(H5Dread(x, type, dense, space, H5P_DEFAULT, out) >= 0);
  assert_true(H5Sclose(dense) >= 0 && H5Sclose(space) >= 0 && H5Dclose(x) >= 0 && H5Fclose(id) >= 0);
}

/* x and y in the file at `id`, and the same in chunks. */
static void put_twice(hid_t id, hid_t type, const void *x, const void *y) {
  put(id, "x", type, ROWS, COLS, type, x);
  put(id, "y", type, ROWS, TARGETS, type, y);
  put_chunked(id, "chunked_x", type, ROWS, COLS, 999, x);
  put_chunked(id, "chunked_y", type, ROWS, TARGETS, 999, y);
  done(id);
}

static void compare(size_t real, hid_t type) {
  struct mn_dataset *direct = opened_as("x", "y"), *old = opened_as("chunked_x", "chunked_y");
  assert_int_equal(direct->parallel, real);
  assert_int_equal(old->parallel, 0);
  size_t x_size = ROWS * COLS * real, y_size = ROWS * TARGETS * real;
  char *x = malloc(x_size), *y = malloc(y_size), *other_x = malloc(x_size), *other_y = malloc(y_size);
  assert_true(x && y && other_x && other_y);
  uint64_t state = 2;
  for (int round = 0; round < 30; round++) {
    int64_t first, count = range(&state, round, &first);
    memset(x, 1, x_size), memset(y, 1, y_size);
    assert_int_equal(direct->read(direct, first, count, real, x, y), MN_OK);
    assert_int_equal(old->read(old, first, count, real, other_x, other_y), MN_OK);
    x_size = (size_t)count * COLS * real, y_size = (size_t)count * TARGETS * real;
    assert_int_equal(memcmp(x, other_x, x_size), 0);
    assert_int_equal(memcmp(y, other_y, y_size), 0);
    if (count < ROWS) assert_true(x[x_size] == 1 && y[y_size] == 1); /* nothing behind them is touched */
    x_size = ROWS * COLS * real, y_size = ROWS * TARGETS * real;
    if (count == 0) continue;
    read_by_hdf5("x", type, first, count, COLS, other_x);
    assert_int_equal(memcmp(x, other_x, (size_t)count * COLS * real), 0);
  }
  free(x), free(y), free(other_x), free(other_y);
  mn_dataset_close(direct);
  mn_dataset_close(old);
}

static void reads_what_hdf5_reads(void **state) {
  for (size_t real = 4; real <= 8; real += 4) {
    hid_t type = real == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
    void *x = random_reals((size_t)ROWS * COLS, real), *y = random_reals((size_t)ROWS * TARGETS, real);
    put_twice(create(), type, x, y);
    compare(real, type);
    free(x), free(y);
  }
}

static void reads_behind_a_user_block(void **state) {
  hid_t creation = H5Pcreate(H5P_FILE_CREATE);
  assert_true(H5Pset_userblock(creation, 4096) >= 0);
  hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, creation, H5P_DEFAULT);
  assert_true(id >= 0 && H5Pclose(creation) >= 0);
  void *x = random_reals((size_t)ROWS * COLS, 4), *y = random_reals((size_t)ROWS * TARGETS, 4);
  put_twice(id, H5T_NATIVE_FLOAT, x, y);
  compare(4, H5T_NATIVE_FLOAT);
  free(x), free(y);
}

/* What is not stored as it is asked for goes through HDF5. */
static void knows_what_to_read_through_hdf5(void **state) {
  const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int one = 1;
  hid_t id = create();
  const struct {
    const char *name;
    hid_t type;
    size_t parallel;
  } as[] = {{"float", H5T_NATIVE_FLOAT, 4},
            {"double", H5T_NATIVE_DOUBLE, 8},
            {"big", H5T_IEEE_F32BE, 0},
            {"wide big", H5T_IEEE_F64BE, 0},
            {"long", H5T_NATIVE_LDOUBLE, 0},
            {"int", H5T_NATIVE_INT, 0},
            {"scaled", H5T_NATIVE_FLOAT, 0},
            {"offset", H5T_NATIVE_DOUBLE, 0},
            {"chunked", -1, 0},
            {"compact", -1, 0}};
  for (size_t i = 0; i < sizeof as / sizeof *as; i++)
    if (as[i].type >= 0) put(id, as[i].name, as[i].type, 4, 2, H5T_NATIVE_FLOAT, values);
  put_chunked(id, "chunked", H5T_NATIVE_FLOAT, 4, 2, 2, values);
  put_chunked(id, "compact", H5T_NATIVE_FLOAT, 4, 2, 0, values);
  put_attribute(id, "scaled", "scale_factor", H5T_NATIVE_INT, 0, H5T_NATIVE_INT, &one);
  put_attribute(id, "offset", "add_offset", H5T_NATIVE_INT, 0, H5T_NATIVE_INT, &one);
  put_labels(id, "labels", 4);
  done(id);
  for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
    struct mn_dataset *d = opened_as(as[i].name, NULL);
    if (d->parallel != as[i].parallel) fail_msg("%s: %zu", as[i].name, d->parallel);
    float x[8];
    double wide[8];
    assert_int_equal(d->read(d, 0, 4, 4, x, NULL), MN_OK);
    assert_int_equal(d->read(d, 0, 4, 8, wide, NULL), MN_OK);
    for (int k = 0; k < 8; k++) {
      float value = values[k] + (strcmp(as[i].name, "offset") == 0);
      assert_true(x[k] == value && wide[k] == (double)value);
    }
    mn_dataset_close(d);
  }
  /* It is x that decides. */
  assert_int_equal(parallel("float", "labels"), 4);
  assert_int_equal(parallel("float", "double"), 4);
  assert_int_equal(parallel("double", "scaled"), 8);
  assert_int_equal(parallel("chunked", "float"), 0);
}

/* ---- several threads ---- */

struct reader {
  struct mn_dataset *d;
  const float *x;
  const void *y;
  uint64_t seed;
  int failed;
};

static void *read_often(void *data) {
  struct reader *r = data;
  size_t target = r->d->classes ? sizeof(int32_t) : (size_t)r->d->outputs * sizeof(float);
  float *x = malloc((size_t)ROWS * COLS * sizeof *x);
  char *y = malloc(ROWS * target);
  r->failed = !x || !y;
  for (int round = 2; round < 20 && !r->failed; round++) {
    int64_t first, count = range(&r->seed, round, &first);
    r->failed = r->d->read(r->d, first, count, 4, x, y) != MN_OK ||
                memcmp(x, r->x + first * COLS, (size_t)count * COLS * sizeof *x) != 0 ||
                memcmp(y, (const char *)r->y + (size_t)first * target, (size_t)count * target) != 0;
  }
  free(x), free(y);
  return NULL;
}

static void read_in_threads(const char *y_name, const float *x, const void *y) {
  struct mn_dataset *d = opened_as("x", y_name);
  assert_int_equal(d->parallel, 4);
  struct reader readers[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    readers[i] = (struct reader){.d = d, .x = x, .y = y, .seed = (uint64_t)i};
    assert_int_equal(pthread_create(&threads[i], NULL, read_often, &readers[i]), 0);
  }
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < 4; i++) assert_false(readers[i].failed);
  mn_dataset_close(d);
}

/* y read beside x, through HDF5 and its scratch memory: labels and packed reals; and without. */
static void reads_in_several_threads(void **state) {
  const double half = 0.5;
  float *x = random_reals((size_t)ROWS * COLS, 4), *targets = malloc(ROWS * sizeof *targets);
  int *labels = malloc(ROWS * sizeof *labels);
  assert_true(targets && labels);
  for (int i = 0; i < ROWS; i++) labels[i] = i, targets[i] = (float)i / 2;
  hid_t id = create();
  put(id, "x", H5T_NATIVE_FLOAT, ROWS, COLS, H5T_NATIVE_FLOAT, x);
  put(id, "labels", H5T_STD_U16LE, ROWS, 0, H5T_NATIVE_INT, labels);
  put(id, "packed", H5T_STD_U16LE, ROWS, 0, H5T_NATIVE_INT, labels);
  put_attribute(id, "packed", "scale_factor", H5T_NATIVE_DOUBLE, 0, H5T_NATIVE_DOUBLE, &half);
  put(id, "float", H5T_NATIVE_FLOAT, ROWS, 1, H5T_NATIVE_FLOAT, targets);
  put(id, "double", H5T_NATIVE_DOUBLE, ROWS, 1, H5T_NATIVE_FLOAT, targets);
  done(id);
  read_in_threads("labels", x, labels);
  read_in_threads("packed", x, targets);
  read_in_threads("float", x, targets);
  read_in_threads("double", x, targets);
  free(x), free(targets), free(labels);
}

/* A checkpoint that is being saved, and holds HDF5's lock, keeps nobody from reading. */
static void reads_without_the_lock(void **state) {
  float *x = random_reals((size_t)ROWS * COLS, 4);
  hid_t id = create();
  put(id, "x", H5T_NATIVE_FLOAT, ROWS, COLS, H5T_NATIVE_FLOAT, x);
  put(id, "y", H5T_NATIVE_FLOAT, ROWS, COLS, H5T_NATIVE_FLOAT, x);
  done(id);
  struct mn_dataset *d = opened_as("x", "y");
  struct reader reader = {.d = d, .x = x, .y = x, .seed = 1};
  pthread_t thread;
  struct timespec until;
  assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
  until.tv_sec += 30;
  mn_hdf5_lock();
  int started = pthread_create(&thread, NULL, read_often, &reader) == 0;
  int late = started ? pthread_timedjoin_np(thread, NULL, &until) : 0;
  mn_hdf5_unlock();
  if (late) assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(started);
  assert_int_equal(late, 0);
  assert_false(reader.failed);
  mn_dataset_close(d);
  free(x);
}

/* ---- what can go wrong ---- */

static void reads_on_where_it_was_interrupted(void **state) {
  float *x = random_reals((size_t)ROWS * COLS, 4), *got = malloc((size_t)ROWS * COLS * sizeof *got);
  assert_non_null(got);
  hid_t id = create();
  put(id, "x", H5T_NATIVE_FLOAT, ROWS, COLS, H5T_NATIVE_FLOAT, x);
  done(id);
  struct mn_dataset *d = opened_as("x", NULL);
  interrupts = 1, pread_most = 12345; /* not whole elements */
  mn_status status = d->read(d, 0, ROWS, 4, got, NULL);
  interrupts = 0, pread_most = 0;
  assert_int_equal(status, MN_OK);
  assert_memory_equal(got, x, (size_t)ROWS * COLS * sizeof *got);
  pread_error = EIO;
  status = d->read(d, 7, 1, 4, got, NULL);
  pread_error = 0;
  assert_message(status, MN_IO, file, "Input/output error", "check the disk", NULL);
  assert_int_equal(d->read(d, 7, 1, 4, got, NULL), MN_OK); /* the next may go well */
  assert_memory_equal(got, x + 7 * COLS, COLS * sizeof *got);
  mn_dataset_close(d);
  free(x), free(got);
}

static void says_where_the_file_ends(void **state) {
  float *x = random_reals((size_t)ROWS * COLS, 4), *got = malloc((size_t)ROWS * COLS * sizeof *got);
  assert_non_null(got);
  hid_t id = create();
  put(id, "x", H5T_NATIVE_FLOAT, ROWS, COLS, H5T_NATIVE_FLOAT, x);
  hid_t dataset = H5Dopen2(id, "x", H5P_DEFAULT);
  haddr_t offset = H5Dget_offset(dataset);
  assert_true(H5Dclose(dataset) >= 0);
  done(id);
  struct mn_dataset *d = opened_as("x", NULL);
  /* Within row 30000. */
  assert_int_equal(truncate(file, (off_t)offset + 30000 * COLS * 4 + 10), 0);
  assert_int_equal(d->read(d, 0, 30000, 4, got, NULL), MN_OK);
  assert_memory_equal(got, x, (size_t)30000 * COLS * sizeof *got);
  assert_message(d->read(d, 29990, 20, 4, got, NULL), MN_BAD_DATA, file, "dataset x, rows 30000 to 30009",
                 "cut short after it was opened", "copy or write it anew", NULL);
  assert_message(d->read(d, 100, ROWS - 100, 4, got, NULL), MN_BAD_DATA, "rows 30000 to 39999", NULL);
  assert_message(d->read(d, 35000, 1, 4, got, NULL), MN_BAD_DATA, "rows 35000 to 35000", NULL);
  mn_dataset_close(d);
  free(x), free(got);
}

static void names_what_is_not_finite(void **state) {
  float *x = random_reals((size_t)ROWS * COLS, 4), *got = malloc((size_t)ROWS * COLS * sizeof *got);
  double *y = random_reals((size_t)ROWS * TARGETS, 8), *targets = malloc((size_t)ROWS * TARGETS * sizeof *y);
  assert_true(got && targets);
  x[12345 * COLS + 36] = NAN, x[12346 * COLS] = INFINITY;
  y[33333 * TARGETS + 1] = -INFINITY;
  hid_t id = create();
  put(id, "x", H5T_NATIVE_FLOAT, ROWS, COLS, H5T_NATIVE_FLOAT, x);
  put(id, "y", H5T_NATIVE_DOUBLE, ROWS, TARGETS, H5T_NATIVE_DOUBLE, y);
  done(id);
  struct mn_dataset *d = opened_as("x", NULL);
  assert_int_equal(d->read(d, 0, 12345, 4, got, NULL), MN_OK);
  assert_int_equal(d->read(d, 12347, ROWS - 12347, 4, got, NULL), MN_OK);
  for (int64_t first = 0; first <= 12345; first += 12345)
    assert_message(d->read(d, first, ROWS - first, 4, got, NULL), MN_BAD_DATA, file,
                   "dataset x, row 12345, column 36 (from 0) is ", "nan; every value must be finite", NULL);
  assert_message(d->read(d, 12346, 1, 4, got, NULL), MN_BAD_DATA, file,
                 "row 12346, column 0 (from 0) is inf (", NULL);
  mn_dataset_close(d);
  d = opened_as("y", NULL);
  assert_int_equal(d->parallel, 8);
  assert_message(d->read(d, 1, ROWS - 1, 8, targets, NULL), MN_BAD_DATA, file,
                 "dataset y, row 33333, column 1 (from 0) is -inf; every", NULL);
  mn_dataset_close(d);
  free(x), free(got), free(y), free(targets);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(reads_what_hdf5_reads),           TEST(reads_behind_a_user_block),
      TEST(knows_what_to_read_through_hdf5), TEST(reads_in_several_threads),
      TEST(reads_without_the_lock),          TEST(reads_on_where_it_was_interrupted),
      TEST(says_where_the_file_ends),        TEST(names_what_is_not_finite),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
