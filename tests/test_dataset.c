/* Datasets: what is read from HDF5 files, every way in which a file can be wrong, and the synthetic teacher.
 * The files are made here, in a temporary folder. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/hdf5.h"
#include "kernels/random.h"

static char folder[256], file[512];

static int make_folder(void **state) {
  (void)state;
  const char *root = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/minnow-dataset-XXXXXX", root && *root ? root : "/tmp");
  if (!mkdtemp(folder)) return -1;
  snprintf(file, sizeof file, "%s/data.h5", folder);
  mn_hdf5_lock(); /* HDF5's own error printing off, for this program's calls too */
  mn_hdf5_unlock();
  return 0;
}

static int remove_file(void **state) {
  (void)state;
  return unlink(file) && errno != ENOENT ? -1 : 0;
}

static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder);
}

/* ---- helpers ---- */

static hid_t create(void) {
  hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(id >= 0);
  return id;
}

/* Writes [rows, cols] (cols 0: rank 1) values of `memory` type as `stored` type. */
static void put(hid_t at, const char *name, hid_t stored, hsize_t rows, hsize_t cols, hid_t memory,
                const void *values) {
  hsize_t size[2] = {rows, cols};
  hid_t space = H5Screate_simple(cols ? 2 : 1, size, NULL);
  hid_t id = H5Dcreate2(at, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(id >= 0);
  if (values) assert_true(H5Dwrite(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  assert_true(H5Dclose(id) >= 0 && H5Sclose(space) >= 0);
}

static void put_floats(hid_t at, const char *name, hsize_t rows, hsize_t cols) {
  hsize_t count = rows * (cols ? cols : 1);
  float *values = malloc(count * sizeof *values);
  assert_non_null(values);
  for (hsize_t i = 0; i < count; i++) values[i] = (float)i;
  put(at, name, H5T_IEEE_F32LE, rows, cols, H5T_NATIVE_FLOAT, values);
  free(values);
}

static void put_labels(hid_t at, const char *name, hsize_t rows) {
  int *values = calloc(rows, sizeof *values);
  assert_non_null(values);
  for (hsize_t i = 0; i < rows; i++) values[i] = (int)(i % 3);
  put(at, name, H5T_STD_I32LE, rows, 0, H5T_NATIVE_INT, values);
  free(values);
}

static void put_attribute(hid_t at, const char *dataset, const char *name, hid_t type, hsize_t count,
                          hid_t memory, const void *value) {
  hid_t id = H5Dopen2(at, dataset, H5P_DEFAULT);
  hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(id, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, memory, value) >= 0);
  assert_true(H5Aclose(attribute) >= 0 && H5Sclose(space) >= 0 && H5Dclose(id) >= 0);
}

static void done(hid_t id) {
  assert_true(H5Fclose(id) >= 0);
}

static struct mn_dataset *opened(void) {
  struct mn_dataset *d;
  mn_status status = mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 1);
  if (status != MN_OK) print_error("%s\n", mn_message());
  assert_int_equal(status, MN_OK);
  assert_non_null(d);
  return d;
}

/* That `status` is `wanted`, and the message one line that holds each of the strings, up to a NULL. */
static void assert_message(mn_status status, mn_status wanted, ...) {
  if (status != wanted) print_error("status %d: %s\n", status, mn_message());
  assert_int_equal(status, wanted);
  va_list strings;
  va_start(strings, wanted);
  for (const char *s = va_arg(strings, const char *); s; s = va_arg(strings, const char *)) {
    if (!strstr(mn_message(), s)) print_error("no \"%s\" in: %s\n", s, mn_message());
    assert_non_null(strstr(mn_message(), s));
  }
  va_end(strings);
  assert_null(strchr(mn_message(), '\n'));
  if (getenv("SHOW")) print_message("%s\n", mn_message());
}

/* The status of opening `file`, which must leave nothing behind. */
static mn_status refusal(const char *x, const char *y) {
  struct mn_dataset *d = (struct mn_dataset *)&d;
  ssize_t before = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
  mn_status status = mn_dataset_open(&d, file, MN_PART_ALL, x, y, 1);
  assert_null(d);
  assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), before);
  return status;
}

/* ---- what is read ---- */

static void reads_digits(void **state) {
  (void)state;
  struct mn_dataset *d, *test;
  assert_int_equal(mn_dataset_open(&d, "data/digits.h5", MN_PART_TRAIN, NULL, NULL, 1), MN_OK);
  assert_int_equal(mn_dataset_open(&test, "data/digits.h5", MN_PART_TEST, NULL, NULL, 1), MN_OK);
  assert_int_equal(d->rows, 1437);
  assert_int_equal(test->rows, 360);
  assert_int_equal(d->inputs, 64);
  assert_int_equal(d->outputs, 10);
  assert_true(d->classes && test->classes);
  assert_true(isnan(d->floor));
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
  (void)state;
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
  (void)state;
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

static void refuses_odd_attributes(void **state) {
  (void)state;
  const double pair[2] = {1, 2}, nan = NAN;
  struct {
    const char *name;
    hid_t type;
    hsize_t count;
    const void *value;
    const char *said;
  } cases[] = {{"scale_factor", H5T_NATIVE_DOUBLE, 2, pair, "2 values"},
               {"add_offset", H5T_C_S1, 0, "1", "a string"},
               {"add_offset", H5T_NATIVE_DOUBLE, 0, &nan, "nan"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hid_t id = create();
    put_floats(id, "x", 2, 2);
    put_labels(id, "y", 2);
    put_attribute(id, "x", cases[i].name, cases[i].type, cases[i].count, cases[i].type, cases[i].value);
    done(id);
    assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "dataset x", cases[i].name, cases[i].said, NULL);
  }
}

/* More than one piece of 4 MiB: by rows, and within a row. */
static void reads_in_pieces(void **state) {
  (void)state;
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
  (void)state;
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
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_OK);
  assert_int_equal(d->rows, 1 << 24);
  assert_int_equal(d->outputs, 0);
  assert_int_equal(d->read(d, d->rows - 2, 2, 4, got, NULL), MN_OK);
  assert_memory_equal(got, values, sizeof got);
  mn_dataset_close(d);
}

static void finds_parts(void **state) {
  (void)state;
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
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_ALL, "x", "deep", 1), MN_OK); /* [n] of floats */
  assert_false(d->classes);
  assert_int_equal(d->outputs, 1);
  mn_dataset_close(d);
  assert_message(mn_dataset_open(&d, file, MN_PART_TEST, NULL, NULL, 1), MN_BAD_DATA, "no dataset test/y",
                 "test holds: inner, x;", "--y", NULL);
  id = create();
  put_floats(id, "x", 5, 2);
  done(id);
  d = (struct mn_dataset *)&d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TEST, NULL, NULL, 1), MN_OK);
  assert_null(d);
}

static void takes_a_column_of_labels(void **state) {
  (void)state;
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

/* ---- files that are wrong ---- */

static void write_bytes(const char *path, const void *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, size, f), size);
  assert_int_equal(fclose(f), 0);
}

static size_t read_bytes(const char *path, void *bytes, size_t size) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  size_t length = fread(bytes, 1, size, f);
  assert_true(length < size); /* all of it */
  assert_int_equal(fclose(f), 0);
  return length;
}

static void refuses_what_is_no_file(void **state) {
  (void)state;
  assert_message(refusal(NULL, NULL), MN_NO_INPUT, file, "No such file", NULL);
  assert_int_equal(mkdir(file, 0700), 0);
  assert_message(refusal(NULL, NULL), MN_NO_INPUT, file, "folder", NULL);
  assert_int_equal(rmdir(file), 0);
  assert_int_equal(mkfifo(file, 0600), 0);
  assert_message(refusal(NULL, NULL), MN_NO_INPUT, file, "pipe", NULL);
  assert_int_equal(unlink(file), 0);
  done(create());
  assert_int_equal(chmod(file, 0), 0);
  uid_t user = geteuid();
  if (user == 0) assert_int_equal(seteuid(65534), 0); /* root reads everything */
  mn_status status = refusal(NULL, NULL);
  if (user == 0) assert_int_equal(seteuid(0), 0);
  assert_message(status, MN_NO_INPUT, file, "ermission denied", NULL);
}

static void refuses_what_is_not_hdf5(void **state) {
  (void)state;
  static char bytes[200000];
  write_bytes(file, "", 0);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "empty (0 bytes)", NULL);
  write_bytes(file, "1,2\n3,4\n", 8);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "not an HDF5 file", "8 bytes", NULL);
  size_t size = read_bytes("data/digits.h5", bytes, sizeof bytes);
  write_bytes(file, bytes, size - 1000);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "cut short", NULL);
  write_bytes(file, bytes, 20);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, NULL);
  bytes[8] = 77; /* the superblock's version */
  write_bytes(file, bytes, size);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "opening", "superblock", "damaged", NULL);
}

static void names_file_locking(void **state) {
  (void)state;
  done(create());
  int held = open(file, O_RDWR);
  assert_true(held >= 0);
  assert_int_equal(flock(held, LOCK_EX), 0);
  mn_status status = refusal(NULL, NULL);
  assert_int_equal(close(held), 0);
  assert_message(status, MN_NO_INPUT, file, "HDF5_USE_FILE_LOCKING=FALSE", NULL);
}

static void refuses_missing_datasets(void **state) {
  (void)state;
  hid_t id = create();
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "no dataset x", "nothing", "--x", NULL);
  id = create();
  put_floats(id, "images", 2, 2);
  put_labels(id, "labels", 2);
  hid_t group = H5Gcreate2(id, "more", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(group);
  hid_t type = H5Tcopy(H5T_NATIVE_INT);
  assert_true(H5Tcommit2(id, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Tclose(type);
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, "no dataset x", "images, labels, more, type;", "--x",
                 NULL);
  assert_message(refusal("images", NULL), MN_BAD_DATA, "no dataset y", "images, labels, more, type;", "--y",
                 NULL);
  assert_message(refusal("a/b/c", NULL), MN_BAD_DATA, "no dataset a/b/c", "the file holds: images", NULL);
  assert_message(refusal("images/x", NULL), MN_BAD_DATA, "no dataset images/x", "the file holds: images",
                 NULL);
  assert_message(refusal("more/x", NULL), MN_BAD_DATA, "no dataset more/x", "more holds: nothing", NULL);
  assert_message(refusal("more", NULL), MN_BAD_DATA, "more is a group", "--x", NULL);
  assert_message(refusal("type", NULL), MN_BAD_DATA, "type is a named type", NULL);
  assert_message(refusal("//", NULL), MN_USAGE, "--x \"//\"", NULL);
  id = create();
  for (int i = 0; i < 100; i++) {
    char name[32];
    snprintf(name, sizeof name, "dataset number %d", i);
    put_floats(id, name, 1, 1);
  }
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, "dataset number 0", ", …; name another by --x", NULL);
}

static void refuses_wrong_shapes(void **state) {
  (void)state;
  const hsize_t cube[3] = {4, 28, 28};
  hid_t id = create(), space = H5Screate_simple(3, cube, NULL), scalar = H5Screate(H5S_SCALAR);
  H5Dclose(H5Dcreate2(id, "cube", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Dclose(H5Dcreate2(id, "scalar", H5T_NATIVE_FLOAT, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space), H5Sclose(scalar);
  put_floats(id, "x", 4, 2);
  put_labels(id, "y", 4);
  put_labels(id, "y5", 5);
  const hsize_t none[2] = {0, 3}, narrow[2] = {3, 0};
  space = H5Screate_simple(2, none, NULL);
  H5Dclose(H5Dcreate2(id, "none", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  space = H5Screate_simple(2, narrow, NULL);
  H5Dclose(H5Dcreate2(id, "narrow", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  done(id);
  assert_message(refusal("cube", NULL), MN_BAD_DATA, file, "dataset cube", "[4, 28, 28]", "reshape", "--x",
                 NULL);
  assert_message(refusal("y", NULL), MN_BAD_DATA, file, "dataset y is [4]", "--x", NULL);
  assert_message(refusal(NULL, "cube"), MN_BAD_DATA, file, "dataset cube", "[4, 28, 28]", "--y", NULL);
  assert_message(refusal(NULL, "scalar"), MN_BAD_DATA, file, "dataset scalar is []", "--y", NULL);
  assert_message(refusal(NULL, "y5"), MN_BAD_DATA, file, "x has 4 rows", "y5 has 5", NULL);
  assert_message(refusal("none", NULL), MN_BAD_DATA, file, "dataset none is [0, 3]", "nothing in it", NULL);
  assert_message(refusal("narrow", NULL), MN_BAD_DATA, file, "dataset narrow is [3, 0]", "nothing in it",
                 NULL);
}

static void refuses_wrong_types(void **state) {
  (void)state;
  hid_t compound = H5Tcreate(H5T_COMPOUND, 8), flag = H5Tenum_create(H5T_NATIVE_SCHAR);
  hid_t wide = H5Tcopy(H5T_NATIVE_LLONG), text = H5Tcopy(H5T_C_S1), opaque = H5Tcreate(H5T_OPAQUE, 3);
  const signed char off = 0;
  H5Tinsert(compound, "a", 0, H5T_NATIVE_FLOAT);
  H5Tinsert(compound, "b", 4, H5T_NATIVE_FLOAT);
  H5Tenum_insert(flag, "FALSE", &off);
  H5Tset_size(wide, 16);
  H5Tset_size(text, H5T_VARIABLE);
  struct {
    hid_t type;
    const char *said;
  } cases[] = {{compound, "compound"}, {flag, "bool"},     {text, "string"},
               {wide, "16 bytes"},     {opaque, "opaque"}, {H5T_STD_B8LE, "bit field"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hid_t id = create();
    put(id, "x", cases[i].type, 2, 2, cases[i].type, NULL);
    put_labels(id, "y", 2);
    done(id);
    assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "dataset x", cases[i].said, NULL);
  }
  H5Tclose(compound), H5Tclose(flag), H5Tclose(wide), H5Tclose(text), H5Tclose(opaque);
}

static void refuses_wrong_labels(void **state) {
  (void)state;
  hid_t id = create();
  put_floats(id, "x", 4, 2);
  const long long values[4] = {0, 5, -7, 2}, large[4] = {0, 2147483647, 2147483648, 1};
  const unsigned long long huge[4] = {0, 0, 0, 18446744073709551615ULL};
  const int hot[8] = {0};
  put(id, "negative", H5T_STD_I8LE, 4, 0, H5T_NATIVE_LLONG, values);
  put(id, "large", H5T_STD_U32LE, 4, 0, H5T_NATIVE_LLONG, large);
  put(id, "huge", H5T_STD_U64LE, 4, 0, H5T_NATIVE_ULLONG, huge);
  put(id, "hot", H5T_STD_U8LE, 4, 2, H5T_NATIVE_INT, hot);
  done(id);
  assert_message(refusal(NULL, "negative"), MN_BAD_DATA, file, "dataset negative", "row 2 ", "is -7", NULL);
  assert_message(refusal(NULL, "large"), MN_BAD_DATA, file, "dataset large", "row 2 ", "2147483648", NULL);
  assert_message(refusal(NULL, "huge"), MN_BAD_DATA, file, "dataset huge", "row 3 ", "18446744073709551615",
                 NULL);
  assert_message(refusal(NULL, "hot"), MN_BAD_DATA, file, "dataset hot", "[4, 2] of integers", "scale_factor",
                 NULL);
}

static void names_values_that_are_not_finite(void **state) {
  (void)state;
  const hsize_t rows = 200000, cols = 7;
  double *values = calloc(rows * cols, sizeof *values), *out = malloc(rows * cols * sizeof *out);
  assert_true(values && out);
  values[150000 * cols + 3] = NAN;
  values[170000 * cols + 6] = -INFINITY;
  values[180000 * cols + 0] = 1e300;
  hid_t id = create();
  put(id, "x", H5T_IEEE_F64LE, rows, cols, H5T_NATIVE_DOUBLE, values);
  put(id, "y", H5T_IEEE_F64LE, rows, cols, H5T_NATIVE_DOUBLE, values);
  const double offset = 1;
  put_attribute(id, "y", "add_offset", H5T_NATIVE_DOUBLE, 0, H5T_NATIVE_DOUBLE, &offset);
  done(id);
  struct mn_dataset *d = opened();
  for (size_t real = 4; real <= 8; real += 4) {
    assert_int_equal(d->read(d, 0, 150000, real, out, NULL), MN_OK);
    assert_message(d->read(d, 0, 200000, real, out, NULL), MN_BAD_DATA, file, "dataset x",
                   "row 150000, column 3", "nan", NULL);
    assert_message(d->read(d, 1, 200000 - 1, real, NULL, out), MN_BAD_DATA, file, "dataset y",
                   "row 150000, column 3", "nan", NULL);
    assert_message(d->read(d, 150001, 49999, real, out, NULL), MN_BAD_DATA, "row 170000, column 6", "-inf",
                   NULL);
  }
  assert_int_equal(d->read(d, 180000, 10, 8, out, NULL), MN_OK);
  assert_message(d->read(d, 179999, 10, 4, out, NULL), MN_BAD_DATA, "row 180000, column 0", "as a float",
                 NULL);
  free(values), free(out);
  mn_dataset_close(d);
}

/* ---- files that lie ---- */

static void refuses_links(void **state) {
  (void)state;
  hid_t id = create();
  put_floats(id, "data", 4, 2);
  put_labels(id, "y", 4);
  hid_t group = H5Gcreate2(id, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  put_floats(group, "x", 4, 2);
  H5Gclose(group);
  assert_true(H5Lcreate_soft("/data", id, "soft", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  assert_true(H5Lcreate_soft("/group", id, "road", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  assert_true(H5Lcreate_external("/etc/passwd", "/x", id, "outside", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  done(id);
  assert_message(refusal("soft", NULL), MN_BAD_DATA, file, "soft is a soft link", NULL);
  assert_message(refusal("road/x", NULL), MN_BAD_DATA, file, "road is a soft link", NULL);
  assert_message(refusal("outside", NULL), MN_BAD_DATA, file, "outside is an external link", NULL);
  id = create();
  put_floats(id, "x", 4, 2);
  put_labels(id, "y", 4);
  assert_true(H5Lcreate_soft("/", id, "train", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "train is a soft link", NULL);
}

static void refuses_storage_elsewhere(void **state) {
  (void)state;
  const hsize_t size[2] = {4, 2};
  hid_t id = create(), space = H5Screate_simple(2, size, NULL);
  hid_t outside = H5Pcreate(H5P_DATASET_CREATE), built = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_external(outside, "/etc/passwd", 0, 32) >= 0);
  assert_true(H5Pset_virtual(built, space, "/nowhere.h5", "/x", space) >= 0);
  H5Dclose(H5Dcreate2(id, "external", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, outside, H5P_DEFAULT));
  H5Dclose(H5Dcreate2(id, "virtual", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, built, H5P_DEFAULT));
  H5Pclose(outside), H5Pclose(built), H5Sclose(space);
  put_labels(id, "y", 4);
  done(id);
  assert_message(refusal("external", NULL), MN_BAD_DATA, file, "dataset external", "external storage", NULL);
  assert_message(refusal("virtual", NULL), MN_BAD_DATA, file, "dataset virtual", "virtual storage", NULL);
}

static hid_t make_chunked(hid_t at, const char *name, hsize_t rows, hsize_t cols, hsize_t chunk, int level) {
  hsize_t size[2] = {rows, cols}, chunks[2] = {chunk, cols};
  hid_t space = H5Screate_simple(2, size, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 2, chunks) >= 0);
  if (level) assert_true(H5Pset_deflate(creation, (unsigned)level) >= 0);
  hid_t id = H5Dcreate2(at, name, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(id >= 0);
  H5Pclose(creation), H5Sclose(space);
  return id;
}

static void write_rows(hid_t id, hsize_t cols, hsize_t first, hsize_t rows, const float *values) {
  hsize_t start[2] = {first, 0}, count[2] = {rows, cols};
  hid_t space = H5Dget_space(id), dense = H5Screate_simple(2, count, NULL);
  assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
  assert_true(H5Dwrite(id, H5T_NATIVE_FLOAT, dense, space, H5P_DEFAULT, values) >= 0);
  H5Sclose(dense), H5Sclose(space);
}

static void refuses_sizes_that_cannot_be(void **state) {
  (void)state;
  float *zeros = calloc(4 << 20, sizeof *zeros);
  assert_non_null(zeros);
  hid_t id = create();
  put(id, "unwritten", H5T_NATIVE_FLOAT, 1000, 8, H5T_NATIVE_FLOAT, NULL);
  hid_t sparse = make_chunked(id, "sparse", (hsize_t)1 << 40, 8, 64, 0);
  write_rows(sparse, 8, 0, 64, zeros);
  H5Dclose(sparse);
  put_labels(id, "y", 4);
  done(id);
  assert_message(refusal("unwritten", NULL), MN_BAD_DATA, file, "dataset unwritten", "1000 x 8",
                 "32000 bytes", "but 0", NULL);
  assert_message(refusal("sparse", NULL), MN_BAD_DATA, file, "dataset sparse", "1099511627776 x 8", NULL);
  /* What compresses as well as anything does is no lie. */
  id = create();
  hid_t flat = make_chunked(id, "x", 4096, 1024, 1024, 9);
  write_rows(flat, 1024, 0, 4096, zeros);
  H5Dclose(flat);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_OK);
  memset(zeros, 255, (4 << 20) * sizeof *zeros);
  assert_int_equal(d->read(d, 0, 4096, 4, zeros, NULL), MN_OK);
  for (int i = 0; i < 4 << 20; i++)
    if (!(zeros[i] == 0)) fail_msg("element %d", i);
  mn_dataset_close(d);
  free(zeros);
}

/* Replaces the eight bytes of one number by those of another, wherever `after` follows (0: anything). */
static int patch(char *bytes, size_t size, uint64_t from, uint64_t to, uint64_t after) {
  int found = 0;
  for (size_t i = 0; i + 16 <= size; i++)
    if (!memcmp(bytes + i, &from, 8) && (!after || !memcmp(bytes + i + 8, &after, 8))) {
      memcpy(bytes + i, &to, 8);
      found++;
    }
  return found;
}

static void refuses_patched_sizes(void **state) {
  (void)state;
  static char whole[200000], bytes[sizeof whole];
  hid_t id = create();
  put_floats(id, "x", 1237, 11);
  done(id);
  size_t size = read_bytes(file, whole, sizeof whole);
  const uint64_t stored = 1237 * 11 * 4, rows = (uint64_t)1 << 33;
  struct mn_dataset *d;
  for (int both = 0; both < 2; both++) {
    memcpy(bytes, whole, size);
    assert_true(patch(bytes, size, 1237, rows, 11) >= 1);
    if (both) assert_true(patch(bytes, size, stored, rows * 44, 0) >= 1);
    write_bytes(file, bytes, size);
    mn_status status = mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0);
    assert_message(status, MN_BAD_DATA, file, "dataset x", "8589934592 x 11", NULL);
  }
  /* No larger than the file, but reaching beyond its end. */
  memcpy(bytes, whole, size);
  assert_true(1250 * 44 < size && patch(bytes, size, 1237, 1250, 11) >= 1 &&
              patch(bytes, size, stored, 1250 * 44, 0) >= 1);
  write_bytes(file, bytes, size);
  assert_message(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_BAD_DATA, file, "dataset x",
                 "1250 x 11", NULL);
  /* Beyond what 64 bits count, of elements and of bytes. */
  for (int bits = 58; bits <= 62; bits += 2) {
    memcpy(bytes, whole, size);
    assert_true(patch(bytes, size, 1237, (uint64_t)1 << bits, 11) >= 1);
    write_bytes(file, bytes, size);
    assert_message(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_BAD_DATA, file, "dataset x",
                   "cannot be", NULL);
  }
}

static size_t keep(unsigned flags, size_t parameters, const unsigned *values, size_t bytes, size_t *size,
                   void **buffer) {
  (void)flags, (void)parameters, (void)values, (void)size, (void)buffer;
  return bytes;
}

static int decoded;

static size_t count_decoding(unsigned flags, size_t parameters, const unsigned *values, size_t bytes,
                             size_t *size, void **buffer) {
  if (flags & H5Z_FLAG_REVERSE) decoded++;
  return keep(flags, parameters, values, bytes, size, buffer);
}

/* Chunks larger than HDF5's own cache, read in short stretches. */
static void decodes_a_chunk_once(void **state) {
  (void)state;
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 301, 1, 1, "counting", NULL, NULL, count_decoding};
  assert_true(H5Zregister(&filter) >= 0);
  const hsize_t size[2] = {2048, 1024}, chunk[2] = {512, 512}; /* 1 MiB, two across */
  hid_t id = create(), space = H5Screate_simple(2, size, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 2, chunk) >= 0 && H5Pset_filter(creation, 301, 0, 0, NULL) >= 0);
  hid_t x = H5Dcreate2(id, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  float *values = malloc(2048 * 1024 * sizeof *values), *got = malloc(2048 * 1024 * sizeof *got);
  assert_true(values && got);
  for (int i = 0; i < 2048 * 1024; i++) values[i] = (float)i;
  assert_true(H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(x), H5Pclose(creation), H5Sclose(space);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_OK);
  decoded = 0;
  for (int r = 0; r + 60 <= 2048; r += 60)
    assert_int_equal(d->read(d, r, 60, 4, got + r * 1024, NULL), MN_OK);
  assert_memory_equal(got, values, 2040 * 1024 * sizeof *got);
  assert_int_equal(decoded, 8);
  mn_dataset_close(d);
  free(values), free(got);
  assert_true(H5Zunregister(301) >= 0);
}

static void names_a_filter_that_is_not_there(void **state) {
  (void)state;
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 300, 1, 1, "minnow's test", NULL, NULL, keep};
  assert_true(H5Zregister(&filter) >= 0);
  const hsize_t size[2] = {4, 2};
  hid_t id = create(), space = H5Screate_simple(2, size, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  assert_true(H5Pset_chunk(creation, 2, size) >= 0 && H5Pset_filter(creation, 300, 0, 0, NULL) >= 0);
  hid_t x = H5Dcreate2(id, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  const float values[8] = {0};
  assert_true(H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(x), H5Pclose(creation), H5Sclose(space);
  put_labels(id, "y", 4);
  done(id);
  assert_true(H5Zunregister(300) >= 0);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "dataset x", "filter 300", "minnow's test",
                 "h5repack", NULL);
}

static void names_damaged_rows(void **state) {
  (void)state;
  static char bytes[400000];
  static float values[1024 * 16];
  for (int i = 0; i < 1024 * 16; i++) values[i] = (float)(i * 7 % 1013);
  hid_t id = create(), x = make_chunked(id, "x", 1024, 16, 256, 1);
  write_rows(x, 16, 0, 1024, values);
  hsize_t offset[2] = {512, 0}, packed;
  assert_true(H5Dget_chunk_storage_size(x, offset, &packed) >= 0);
  haddr_t at = HADDR_UNDEF;
  hsize_t chunk_bytes;
  unsigned mask;
  assert_true(H5Dget_chunk_info_by_coord(x, offset, &mask, &at, &chunk_bytes) >= 0);
  H5Dclose(x);
  done(id);
  size_t size = read_bytes(file, bytes, sizeof bytes);
  for (hsize_t i = 0; i < 64; i++) bytes[at + packed / 2 + i] ^= 0x5a;
  write_bytes(file, bytes, size);
  struct mn_dataset *d;
  static float got[1024 * 16];
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_ALL, NULL, NULL, 0), MN_OK);
  assert_int_equal(d->read(d, 0, 512, 4, got, NULL), MN_OK);
  assert_memory_equal(got, values, 512 * 16 * sizeof *got);
  assert_message(d->read(d, 500, 30, 4, got, NULL), MN_BAD_DATA, file, "rows 500 to 529 of dataset x",
                 "damaged", NULL);
  assert_int_equal(d->read(d, 768, 256, 4, got, NULL), MN_OK); /* and goes on */
  assert_memory_equal(got, values + 768 * 16, 256 * 16 * sizeof *got);
  mn_dataset_close(d);
}

/* ---- the lock and the reason ---- */

static int entered; /* guarded by the lock */

static void *enter(void *data) {
  mn_hdf5_lock();
  entered = 1;
  mn_hdf5_unlock();
  return data;
}

static void locks(void **state) {
  (void)state;
  pthread_t thread;
  mn_hdf5_lock();
  mn_hdf5_lock();
  assert_int_equal(pthread_create(&thread, NULL, enter, NULL), 0);
  mn_hdf5_unlock(); /* still held */
  nanosleep(&(struct timespec){0, 30000000}, NULL);
  assert_int_equal(entered, 0);
  mn_hdf5_unlock();
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(entered, 1);
}

static void gives_reasons(void **state) {
  (void)state;
  char text[200], little[8];
  mn_hdf5_lock();
  H5Eclear2(H5E_DEFAULT);
  assert_string_equal(mn_hdf5_reason(text, sizeof text), "no reason given");
  assert_true(H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
  assert_non_null(strstr(mn_hdf5_reason(text, sizeof text), "No such file"));
  text[7] = 0;
  assert_string_equal(mn_hdf5_reason(little, sizeof little), text);
  assert_string_equal(mn_hdf5_reason(little, 1), "");
  H5Eclear2(H5E_DEFAULT);
  /* The innermost is pushed first. */
  H5Epush2(H5E_DEFAULT, "f", "g", 1, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "on %s\nday", "Mon");
  H5Epush2(H5E_DEFAULT, "f", "g", 1, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "outer");
  assert_string_equal(mn_hdf5_reason(text, sizeof text), "on Mon day");
  H5Eclear2(H5E_DEFAULT);
  mn_hdf5_unlock();
}

/* ---- the teacher ---- */

enum { I = 37, K = 24, GROUPS = 6, SEED = 4711 };

static double t_of(uint32_t stream, uint64_t index) {
  return ldexp((double)(mn_random_word(SEED, stream, index) >> 8), -23) - 1;
}

/* Row r of the teacher, written down anew: x and y without noise. */
static void teacher(uint64_t row, double *x, double *y) {
  double z[K];
  const int D = K / GROUPS;
  for (uint64_t i = 0; i < I; i++) x[i] = sqrt(3) * t_of(MN_RANDOM_INPUTS, row * I + i);
  for (uint64_t c = 0; c < K; c++) {
    z[c] = t_of(MN_RANDOM_TEACHER + 1, c) / sqrt(I);
    for (uint64_t i = 0; i < I; i++) z[c] += x[i] * t_of(MN_RANDOM_TEACHER, c * I + i) / sqrt(I);
  }
  for (int g = 0; g < GROUPS; g++) {
    double mean = 0, variance = 0;
    for (int k = 0; k < D; k++) mean += z[g * D + k] / D;
    for (int k = 0; k < D; k++) variance += (z[g * D + k] - mean) * (z[g * D + k] - mean) / D;
    for (int k = 0; k < D; k++) {
      uint64_t c = (uint64_t)(g * D + k);
      double gamma = 1 + 0.5 * t_of(MN_RANDOM_TEACHER + 2, c), beta = 0.5 * t_of(MN_RANDOM_TEACHER + 3, c);
      double v = (z[c] - mean) / sqrt(variance + 1e-5) * gamma + beta;
      y[c] = 2 * (v > 0 ? v : 0.01 * v);
    }
  }
}

static void teaches(void **state) {
  (void)state;
  const int64_t rows = 200;
  for (int part = MN_PART_TRAIN; part <= MN_PART_TEST; part++) {
    struct mn_dataset *d;
    assert_int_equal(mn_dataset_synthetic(&d, part, rows, I, K, GROUPS, 0.25, SEED), MN_OK);
    assert_int_equal(d->rows, rows);
    assert_int_equal(d->inputs, I);
    assert_int_equal(d->outputs, K);
    assert_false(d->classes);
    assert_true(d->floor == 0.0625);
    static double x[200 * I], y[200 * K];
    assert_int_equal(d->read(d, 0, rows, 8, x, y), MN_OK);
    uint64_t base = part == MN_PART_TEST ? (uint64_t)1 << 40 : 0;
    for (int64_t r = 0; r < rows; r++) {
      double wx[I], wy[K];
      teacher(base + (uint64_t)r, wx, wy);
      for (int i = 0; i < I; i++) assert_true(x[r * I + i] == wx[i]);
      for (int k = 0; k < K; k++) {
        double noise = sqrt(3) * 0.25 * t_of(MN_RANDOM_NOISE, (base + (uint64_t)r) * K + (uint64_t)k);
        assert_true(fabs(y[r * K + k] - (wy[k] + noise)) < 1e-12);
      }
    }
    mn_dataset_close(d);
  }
}

/* A row is the same, to the bit, whatever is asked for with it; floats are the doubles rounded. */
static void teaches_rows_alone(void **state) {
  (void)state;
  enum { ROWS = 150 };
  struct mn_dataset *d;
  static double x[ROWS * I], y[ROWS * K], px[ROWS * I], py[ROWS * K];
  static float fx[ROWS * I], fy[ROWS * K];
  assert_int_equal(mn_dataset_synthetic(&d, MN_PART_ALL, ROWS, I, K, GROUPS, 0.5, SEED), MN_OK);
  assert_int_equal(d->read(d, 0, ROWS, 8, x, y), MN_OK);
  assert_int_equal(d->read(d, 0, ROWS, 4, fx, fy), MN_OK);
  for (int i = 0; i < ROWS * I; i++) assert_true(fx[i] == (float)x[i]);
  for (int i = 0; i < ROWS * K; i++) assert_true(fy[i] == (float)y[i]);
  const int64_t stretches[][2] = {{0, 1}, {63, 2}, {64, 64}, {10, 100}, {149, 1}, {150, 0}};
  for (size_t s = 0; s < sizeof stretches / sizeof *stretches; s++) {
    int64_t first = stretches[s][0], count = stretches[s][1];
    assert_int_equal(d->read(d, first, count, 8, px, NULL), MN_OK);
    assert_int_equal(d->read(d, first, count, 8, NULL, py), MN_OK);
    assert_memory_equal(px, x + first * I, (size_t)(count * I) * sizeof *px);
    assert_memory_equal(py, y + first * K, (size_t)(count * K) * sizeof *py);
  }
  double mean = 0, square = 0;
  for (int i = 0; i < ROWS * I; i++) mean += x[i] / (ROWS * I), square += x[i] * x[i] / (ROWS * I);
  assert_true(fabs(mean) < 0.05 && fabs(square - 1) < 0.05);
  mn_dataset_close(d);
  /* Another seed is other data. */
  assert_int_equal(mn_dataset_synthetic(&d, MN_PART_ALL, ROWS, I, K, GROUPS, 0.5, SEED + 1), MN_OK);
  assert_int_equal(d->read(d, 0, 1, 8, px, py), MN_OK);
  assert_memory_not_equal(px, x, I * sizeof *px);
  assert_memory_not_equal(py, y, K * sizeof *py);
  mn_dataset_close(d);
}

static void refuses_teachers(void **state) {
  (void)state;
  struct mn_dataset *d;
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 0, 2, 2, 1, 0, 0), MN_USAGE, "0 rows", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 2, 0, 2, 1, 0, 0), MN_USAGE, "0 inputs", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 2, 2, 5000000, 1, 0, 0), MN_USAGE, "5000000 outputs",
                 NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 2, 2, 128, 7, 0, 0), MN_USAGE, "7 groups",
                 "128 outputs", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 2, 2, 2, 0, 0, 0), MN_USAGE, "0 groups", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 2, 2, 2, 1, -1, 0), MN_USAGE, "noise of -1", NULL);
  assert_message(mn_dataset_synthetic(&d, MN_PART_ALL, 2, 2, 2, 1, NAN, 0), MN_USAGE, "noise", NULL);
  assert_null(d);
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, remove_file)
  const struct CMUnitTest tests[] = {
      TEST(reads_digits),
      TEST(reads_every_type),
      TEST(honours_scale_and_offset),
      TEST(refuses_odd_attributes),
      TEST(reads_in_pieces),
      TEST(reads_more_than_memory),
      TEST(finds_parts),
      TEST(takes_a_column_of_labels),
      TEST(refuses_what_is_no_file),
      TEST(refuses_what_is_not_hdf5),
      TEST(names_file_locking),
      TEST(refuses_missing_datasets),
      TEST(refuses_wrong_shapes),
      TEST(refuses_wrong_types),
      TEST(refuses_wrong_labels),
      TEST(names_values_that_are_not_finite),
      TEST(refuses_links),
      TEST(refuses_storage_elsewhere),
      TEST(refuses_sizes_that_cannot_be),
      TEST(refuses_patched_sizes),
      TEST(decodes_a_chunk_once),
      TEST(names_a_filter_that_is_not_there),
      TEST(names_damaged_rows),
      TEST(locks),
      TEST(gives_reasons),
      TEST(teaches),
      TEST(teaches_rows_alone),
      TEST(refuses_teachers),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
