/* Datasets: what is read from HDF5 files, whatever the type, the part, the stretch and the chunks. How files
 * are refused is in test_dataset_refusals.c, the synthetic teacher in test_synthetic.c. */
#include <math.h>
#include <sys/syscall.h>

#include "data/dataset_file.h"
#include "tests/dataset_make.h"

/* The calls with which the file is read and closed, over those of the C library: made to fail where set. */
static int close_fails, pread_fails;

int close(int fd) {
  int result = (int)syscall(SYS_close, fd);
  if (close_fails) errno = EIO;
  return close_fails ? -1 : result;
}

ssize_t pread(int fd, void *bytes, size_t size, off_t offset) {
  if (pread_fails) errno = EIO;
  return pread_fails ? -1 : syscall(SYS_pread64, fd, bytes, size, offset);
}

static void reads_digits(void **state) {
  struct mn_dataset *d, *test;
  assert_int_equal(mn_dataset_open(&d, "data/digits.h5", MN_PART_TRAIN, NULL, NULL, 1), MN_OK);
  assert_int_equal(mn_dataset_open(&test, "data/digits.h5", MN_PART_TEST, NULL, NULL, 1), MN_OK);
  assert_int_equal(d->rows, 1437);
  assert_int_equal(test->rows, 360);
  assert_int_equal(d->inputs, 64);
  assert_int_equal(d->outputs, 10);
  assert_true(d->classes && test->classes);
  float *all = malloc(1437 * 64 * sizeof *all), *part = malloc(200 * 64 * sizeof *part);
  double *wide = malloc(1437 * 64 * sizeof *wide);
  int32_t labels[1437], some[200];
  assert_int_equal(d->read(d, 0, 1437, 4, all, labels), MN_OK);
  assert_int_equal(d->read(d, 0, 1437, 8, wide, NULL), MN_OK);
  double sum = 0;
  for (int i = 0; i < 1437 * 64; i++) {
    assert_true((double)all[i] == wide[i]);
    sum += wide[i];
  }
  assert_true(sum > 0);
  int counts[10] = {0};
  for (int i = 0; i < 1437; i++) counts[labels[i]]++;
  for (int i = 0; i < 10; i++) assert_in_range(counts[i], 130, 160);
  /* Any stretch, across chunks of 256 rows and at the end. */
  int64_t firsts[] = {0, 1, 255, 300, 1237};
  for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
    assert_int_equal(d->read(d, firsts[i], 200, 4, part, some), MN_OK);
    assert_memory_equal(part, all + firsts[i] * 64, 200 * 64 * sizeof *part);
    assert_memory_equal(some, labels + firsts[i], sizeof some);
  }
  free(all), free(part), free(wide);
  mn_dataset_close(d);
  mn_dataset_close(test);
  mn_dataset_close(NULL);
}

static void reads_every_type(void **state) {
  mn_hdf5_lock();
  hid_t half = H5Tcopy(H5T_IEEE_F32BE); /* IEEE binary16 */
  assert_true(H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0 &&
              H5Tset_ebias(half, 15) >= 0);
  hid_t types[] = {
      H5T_STD_I8LE,       H5T_STD_U8BE,  H5T_STD_I16BE,  H5T_STD_U16LE,  H5T_STD_I32BE,  H5T_STD_U32LE,
      H5T_STD_I64LE,      H5T_STD_U64BE, H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE,
      H5T_NATIVE_LDOUBLE, half};
  const double values[6] = {0, 1, 2, 64, 100, 127};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    hid_t id = create();
    put(id, "x", types[t], 3, 2, H5T_NATIVE_DOUBLE, values);
    put(id, "y", types[t], 3, 0, H5T_NATIVE_DOUBLE, values);
    done(id);
    struct mn_dataset *d = opened();
    assert_int_equal(d->classes, t < 8);
    assert_int_equal(d->outputs, t < 8 ? 3 : 1);
    float x[6], y[3];
    double wide[6], wide_y[3];
    int32_t labels[3];
    assert_int_equal(d->read(d, 0, 3, 4, x, t < 8 ? (void *)labels : y), MN_OK);
    assert_int_equal(d->read(d, 0, 3, 8, wide, t < 8 ? (void *)labels : wide_y), MN_OK);
    for (int i = 0; i < 6; i++) assert_true((double)x[i] == values[i] && wide[i] == values[i]);
    for (int i = 0; i < 3; i++) assert_true(t < 8 ? labels[i] == i : (double)y[i] == i && wide_y[i] == i);
    mn_dataset_close(d);
  }
  H5Tclose(half);
  mn_hdf5_unlock();
}

static void honours_scale_and_offset(void **state) {
  const short packed[6] = {-3, 0, 3, 7, 100, 32767};
  const double scale = 0.1, offset = -273.15;
  const int one = 1;
  hid_t id = create();
  put(id, "x", H5T_STD_I16LE, 3, 2, H5T_NATIVE_SHORT, packed);
  put_attribute(id, "x", "scale_factor", H5T_IEEE_F64BE, 0, H5T_NATIVE_DOUBLE, &scale);
  put_attribute(id, "x", "add_offset", H5T_IEEE_F64LE, 1, H5T_NATIVE_DOUBLE, &offset);
  put(id, "y", H5T_STD_I16LE, 3, 2, H5T_NATIVE_SHORT, packed);
  put_attribute(id, "y", "scale_factor", H5T_STD_U8LE, 0, H5T_NATIVE_INT, &one);
  done(id);
  struct mn_dataset *d = opened();
  assert_false(d->classes); /* packed integers are targets */
  assert_int_equal(d->outputs, 2);
  float x[6], y[6];
  double wide[6], wide_y[6];
  assert_int_equal(d->read(d, 0, 3, 4, x, y), MN_OK);
  assert_int_equal(d->read(d, 0, 3, 8, wide, wide_y), MN_OK);
  for (int i = 0; i < 6; i++) {
    double expected = packed[i] * scale + offset;
    assert_true(wide[i] == expected);
    assert_true(x[i] == (float)expected);
    assert_true((double)y[i] == packed[i] && wide_y[i] == packed[i]);
  }
  mn_dataset_close(d);
}

/* More than one piece of 4 MiB: by rows, and within a row. */
static void reads_in_pieces(void **state) {
  const struct { hsize_t rows, cols; } sizes[] = {{300007, 5}, {3, 600001}};
  const double scale = 1;
  for (int s = 0; s < 4; s++) {
    hsize_t rows = sizes[s / 2].rows, cols = sizes[s / 2].cols;
    hid_t id = create();
    put_floats(id, "x", rows, cols);
    put_labels(id, "y", rows);
    if (s % 2) put_attribute(id, "x", "scale_factor", H5T_NATIVE_DOUBLE, 0, H5T_NATIVE_DOUBLE, &scale);
    done(id);
    struct mn_dataset *d = opened();
    hsize_t count = (rows - 1) * cols;
    float *x = malloc(count * sizeof *x);
    int32_t *y = malloc((rows - 1) * sizeof *y);
    double *wide = malloc(count * sizeof *wide);
    assert_int_equal(d->read(d, 1, (int64_t)rows - 1, 4, x, y), MN_OK);
    assert_int_equal(d->read(d, 1, (int64_t)rows - 1, 8, wide, NULL), MN_OK);
    for (hsize_t i = 0; i < count; i++)
      if (!(x[i] == (float)(i + cols) && wide[i] == (double)(i + cols)))
        fail_msg("element %llu", (unsigned long long)i);
    for (hsize_t i = 0; i + 1 < rows; i++)
      if (y[i] != (int)((i + 1) % 3)) fail_msg("label %llu", (unsigned long long)i);
    free(x), free(y), free(wide);
    mn_dataset_close(d);
  }
}

/* 64 GiB, of which a few rows are asked for. The file is sparse: it takes no room. */
static void reads_more_than_memory(void **state) {
  const hsize_t size[2] = {(hsize_t)1 << 24, 1024}, start[2] = {size[0] - 2, 0}, count[2] = {2, 1024};
  hid_t id = create(), space = H5Screate_simple(2, size, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0 &&
              H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0);
  hid_t x = H5Dcreate2(id, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  hid_t dense = H5Screate_simple(2, count, NULL);
  float values[2048], got[2048];
  for (int i = 0; i < 2048; i++) values[i] = (float)i;
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              H5Dwrite(x, H5T_NATIVE_FLOAT, dense, space, H5P_DEFAULT, values) >= 0);
  H5Sclose(dense), H5Dclose(x), H5Pclose(creation), H5Sclose(space);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
  assert_int_equal(d->rows, 1 << 24);
  assert_int_equal(d->outputs, 0);
  assert_int_equal(d->read(d, d->rows - 2, 2, 4, got, NULL), MN_OK);
  assert_memory_equal(got, values, sizeof got);
  mn_dataset_close(d);
}

static void finds_parts(void **state) {
  struct mn_dataset *d;
  hid_t id = create();
  put_floats(id, "x", 5, 2);
  put_floats(id, "deep", 5, 0);
  hid_t group = H5Gcreate2(id, "test", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  put_floats(group, "x", 3, 2);
  hid_t inner = H5Gcreate2(group, "inner", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  put_floats(inner, "z", 3, 4);
  H5Gclose(inner), H5Gclose(group);
  done(id);
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK); /* no group train */
  assert_int_equal(d->rows, 5);
  mn_dataset_close(d);
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TEST, "/inner//z", "x", 1), MN_OK);
  assert_int_equal(d->rows, 3);
  assert_int_equal(d->inputs, 4);
  assert_int_equal(d->outputs, 2);
  mn_dataset_close(d);
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, "x", "deep", 1), MN_OK); /* [n] of floats */
  assert_false(d->classes);
  assert_int_equal(d->outputs, 1);
  mn_dataset_close(d);
  assert_message(mn_dataset_open(&d, file, MN_PART_TEST, NULL, NULL, 1), MN_BAD_DATA, "no dataset test/y",
                 "test holds: inner, x;", "name another dataset as y", NULL);
  id = create();
  hid_t train = H5Gcreate2(id, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  put_floats(train, "x", 3, 2);
  H5Gclose(train);
  done(id);
  assert_message(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_BAD_DATA, "no dataset x",
                 "holds: train; name another dataset as x", NULL);
  id = create();
  put_floats(id, "x", 5, 2);
  done(id);
  d = (struct mn_dataset *)&d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TEST, NULL, NULL, 1), MN_OK);
  assert_null(d);
}

static void takes_a_column_of_labels(void **state) {
  const int labels[4] = {3, 0, 1, 2};
  hid_t id = create();
  put_floats(id, "x", 4, 2);
  put(id, "y", H5T_STD_I32LE, 4, 1, H5T_NATIVE_INT, labels);
  done(id);
  struct mn_dataset *d = opened();
  int32_t got[4];
  assert_true(d->classes);
  assert_int_equal(d->outputs, 4);
  assert_int_equal(d->read(d, 0, 4, 4, NULL, got), MN_OK);
  assert_memory_equal(got, labels, sizeof got);
  mn_dataset_close(d);
}

static int decoded;

static size_t count_decoding(unsigned flags, size_t parameters, const unsigned *values, size_t bytes,
                             size_t *size, void **buffer) {
  if (flags & H5Z_FLAG_REVERSE) ++decoded;
  return bytes;
}

/* Chunks larger than HDF5's own cache, read in short stretches. */
static void decodes_a_chunk_once(void **state) {
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 301, 1, 1, "counting", NULL, NULL, count_decoding};
  assert_true(H5Zregister(&filter) >= 0);
  const hsize_t size[2] = {2048, 1024}, chunk[2] = {512, 512}; /* 1 MiB, two across */
  hid_t id = create(), creation = in_chunks(2, chunk);
  assert_true(H5Pset_filter(creation, 301, 0, 0, NULL) >= 0);
  float *values = malloc(2048 * 1024 * sizeof *values), *got = malloc(2048 * 1024 * sizeof *got);
  assert_true(values && got);
  for (int i = 0; i < 2048 * 1024; i++) values[i] = (float)i;
  put_dataset(id, "x", H5T_NATIVE_FLOAT, 2, size, creation, H5T_NATIVE_FLOAT, values);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
  for (int r = 0; r + 60 <= 2048; r += 60)
    assert_int_equal(d->read(d, r, 60, 4, got + r * 1024, NULL), MN_OK);
  assert_memory_equal(got, values, 2040 * 1024 * sizeof *got);
  assert_int_equal(decoded, 8);
  mn_dataset_close(d);
  free(values), free(got);
  assert_true(H5Zunregister(301) >= 0);
  assert_message(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_BAD_DATA,
                 "filter 301 (counting)", "write it anew without the filter", NULL);
}

/* A disk that fails while reading is no damaged file; and one that fails at the end costs nothing. */
static void survives_a_failing_disk(void **state) {
  float x[8];
  hid_t id = create();
  put_floats(id, "x", 4, 2);
  put_labels(id, "y", 4);
  done(id);
  struct mn_dataset *d = opened();
  pread_fails = 1;
  mn_status status = d->read(d, 0, 4, 4, x, NULL);
  pread_fails = 0;
  assert_message(status, MN_IO, file, "check the disk", NULL);
  close_fails = 1;
  mn_dataset_close(d);
  close_fails = 0;
  assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
  d = opened();
  assert_int_equal(d->read(d, 0, 4, 4, x, NULL), MN_OK);
  mn_dataset_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(reads_digits),
      TEST(reads_every_type),
      TEST(honours_scale_and_offset),
      TEST(reads_in_pieces),
      TEST(reads_more_than_memory),
      TEST(finds_parts),
      TEST(takes_a_column_of_labels),
      TEST(decodes_a_chunk_once),
      TEST(survives_a_failing_disk),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
