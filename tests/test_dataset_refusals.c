/* Every way in which a dataset's file can be wrong, by accident or on purpose, and what the user is told: one
 * line with the file, the dataset, what was found and what would do. */
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "data/dataset_file.h"
#include "tests/dataset_make.h"

/* The status of opening `file`, which must leave nothing behind. */
static mn_status refusal(const char *x, const char *y) {
  struct mn_dataset *d = (struct mn_dataset *)&d;
  ssize_t before = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
  mn_status status = mn_dataset_open(&d, file, MN_PART_TRAIN, x, y, 1);
  assert_null(d);
  assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), before);
  return status;
}

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

/* ---- files that are wrong ---- */

static void refuses_what_is_no_file(void **state) {
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
  static char bytes[200000];
  write_bytes(file, "", 0);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "no HDF5 file (0 bytes", NULL);
  write_bytes(file, "1,2\n3,4\n", 8);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "no HDF5 file", "8 bytes", NULL);
  size_t size = read_bytes("data/digits.h5", bytes, sizeof bytes);
  write_bytes(file, bytes, size - 1000);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "cut short", NULL);
  write_bytes(file, bytes, 20);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, NULL);
  bytes[8] = 77; /* the superblock's version */
  write_bytes(file, bytes, size);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "cut short or damaged", NULL);
}

static void names_file_locking(void **state) {
  done(create());
  int held = open(file, O_RDWR);
  assert_true(held >= 0);
  assert_int_equal(flock(held, LOCK_EX), 0);
  mn_status status = refusal(NULL, NULL);
  assert_int_equal(close(held), 0);
  assert_message(status, MN_NO_INPUT, file, "HDF5_USE_FILE_LOCKING=FALSE", NULL);
}

static void refuses_missing_datasets(void **state) {
  hid_t id = create();
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "no dataset x", "nothing", "as x", NULL);
  id = create();
  put_floats(id, "images", 2, 2);
  put_labels(id, "labels", 2);
  hid_t group = H5Gcreate2(id, "more", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(group);
  hid_t type = H5Tcopy(H5T_NATIVE_INT);
  assert_true(H5Tcommit2(id, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Tclose(type);
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, "no dataset x", "images, labels, more, type;", "as x",
                 NULL);
  assert_message(refusal("images", NULL), MN_BAD_DATA, "no dataset y", "images, labels, more, type;", "as y",
                 NULL);
  assert_message(refusal("a/b/c", NULL), MN_BAD_DATA, "no dataset a/b/c", "the file holds: images", NULL);
  assert_message(refusal("images/x", NULL), MN_BAD_DATA, "no dataset images/x", "the file holds: images",
                 NULL);
  assert_message(refusal("more/x", NULL), MN_BAD_DATA, "no dataset more/x", "more holds: nothing", NULL);
  assert_message(refusal("more", NULL), MN_BAD_DATA, "more is a group", "as x", NULL);
  assert_message(refusal("type", NULL), MN_BAD_DATA, "type is a named type", NULL);
  assert_message(refusal("//", NULL), MN_USAGE, "given as x, names no dataset", NULL);
  id = create();
  for (int i = 0; i < 100; i++) {
    char name[32];
    snprintf(name, sizeof name, "dätäset %d", i); /* the list would end within an ä */
    put_floats(id, name, 1, 1);
  }
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, "dätäset 0", "dät…; name another dataset as x", NULL);
}

static void refuses_wrong_shapes(void **state) {
  const hsize_t cube[3] = {4, 28, 28}, none[2] = {0, 3}, narrow[2] = {3, 0};
  hid_t id = create(), scalar = H5Screate(H5S_SCALAR);
  put_dataset(id, "cube", H5T_NATIVE_FLOAT, 3, cube, H5P_DEFAULT, H5T_NATIVE_FLOAT, NULL);
  H5Dclose(H5Dcreate2(id, "scalar", H5T_NATIVE_FLOAT, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(scalar);
  put_floats(id, "x", 4, 2);
  put_labels(id, "y", 4);
  put_labels(id, "y5", 5);
  put_dataset(id, "none", H5T_NATIVE_FLOAT, 2, none, H5P_DEFAULT, H5T_NATIVE_FLOAT, NULL);
  put_dataset(id, "narrow", H5T_NATIVE_FLOAT, 2, narrow, H5P_DEFAULT, H5T_NATIVE_FLOAT, NULL);
  done(id);
  assert_message(refusal("cube", NULL), MN_BAD_DATA, file, "dataset cube", "[4, 28, 28]", "reshape", "as x",
                 NULL);
  assert_message(refusal("y", NULL), MN_BAD_DATA, file, "dataset y is [4]", "as x", NULL);
  assert_message(refusal(NULL, "cube"), MN_BAD_DATA, file, "dataset cube", "[4, 28, 28]", "as y", NULL);
  assert_message(refusal(NULL, "scalar"), MN_BAD_DATA, file, "dataset scalar is []", "as y", NULL);
  assert_message(refusal(NULL, "y5"), MN_BAD_DATA, file, "x has 4 rows", "y5 has 5", NULL);
  assert_message(refusal("none", NULL), MN_BAD_DATA, file, "dataset none is [0, 3]", "not empty", NULL);
  assert_message(refusal("narrow", NULL), MN_BAD_DATA, file, "dataset narrow is [3, 0]", "not empty", NULL);
}

static void refuses_wrong_types(void **state) {
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
               {wide, "int128"},       {opaque, "opaque"}, {H5T_STD_B8LE, "bitfield"}};
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
  assert_message(refusal(NULL, "huge"), MN_BAD_DATA, file, "dataset huge", "row 3 ",
                 "9007199254740992 or more", NULL);
  assert_message(refusal(NULL, "hot"), MN_BAD_DATA, file, "dataset hot", "[4, 2] of integers", "scale_factor",
                 NULL);
}

static void refuses_odd_attributes(void **state) {
  const double pair[2] = {1, 2}, nan = NAN;
  struct {
    const char *name;
    hid_t type;
    hsize_t count;
    const void *value;
    const char *said;
  } cases[] = {{"scale_factor", H5T_NATIVE_DOUBLE, 2, pair, "must be a single finite number"},
               {"add_offset", H5T_C_S1, 0, "1", "must be a single finite number"},
               {"add_offset", H5T_NATIVE_DOUBLE, 0, &nan, "must be a single finite number"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hid_t id = create();
    put_floats(id, "x", 2, 2);
    put_labels(id, "y", 2);
    put_attribute(id, "x", cases[i].name, cases[i].type, cases[i].count, cases[i].type, cases[i].value);
    done(id);
    assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "dataset x", cases[i].name, cases[i].said, NULL);
  }
}

static void names_values_that_are_not_finite(void **state) {
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
  assert_message(refusal("soft", NULL), MN_BAD_DATA, file, "soft is a soft or external link", NULL);
  assert_message(refusal("road/x", NULL), MN_BAD_DATA, file, "road is a soft or external link", NULL);
  assert_message(refusal("outside", NULL), MN_BAD_DATA, file, "outside is a soft or external link", NULL);
  id = create();
  put_floats(id, "x", 4, 2);
  put_labels(id, "y", 4);
  assert_true(H5Lcreate_soft("/", id, "train", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  done(id);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "train is a soft or external link", NULL);
}

static void refuses_storage_elsewhere(void **state) {
  const hsize_t size[2] = {4, 2};
  hid_t id = create(), space = H5Screate_simple(2, size, NULL);
  hid_t outside = in_chunks(2, NULL), built = in_chunks(2, NULL);
  assert_true(H5Pset_external(outside, "/etc/passwd", 0, 32) >= 0);
  assert_true(H5Pset_virtual(built, space, "/nowhere.h5", "/x", space) >= 0);
  put_dataset(id, "external", H5T_NATIVE_FLOAT, 2, size, outside, H5T_NATIVE_FLOAT, NULL);
  put_dataset(id, "virtual", H5T_NATIVE_FLOAT, 2, size, built, H5T_NATIVE_FLOAT, NULL);
  H5Sclose(space);
  put_labels(id, "y", 4);
  done(id);
  assert_message(refusal("external", NULL), MN_BAD_DATA, file, "dataset external", "external storage", NULL);
  assert_message(refusal("virtual", NULL), MN_BAD_DATA, file, "dataset virtual", "virtual storage", NULL);
}

static hid_t make_chunked(hid_t at, const char *name, hsize_t rows, hsize_t cols, hsize_t chunk, int level) {
  hsize_t size[2] = {rows, cols}, chunks[2] = {chunk, cols};
  hid_t space = H5Screate_simple(2, size, NULL), creation = in_chunks(2, chunks);
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
  float *zeros = calloc(4 << 20, sizeof *zeros);
  assert_non_null(zeros);
  hid_t id = create();
  put(id, "unwritten", H5T_NATIVE_FLOAT, 1000, 8, H5T_NATIVE_FLOAT, NULL);
  hid_t sparse = make_chunked(id, "sparse", (hsize_t)1 << 40, 8, 64, 0);
  write_rows(sparse, 8, 0, 64, zeros);
  H5Dclose(sparse);
  put_labels(id, "y", 4);
  done(id);
  assert_message(refusal("unwritten", NULL), MN_BAD_DATA, file, "dataset unwritten", "[1000, 8]",
                 "but 0 bytes", NULL);
  assert_message(refusal("sparse", NULL), MN_BAD_DATA, file, "dataset sparse", "[1099511627776, 8]", NULL);
  /* What compresses as well as anything does is no lie. */
  id = create();
  hid_t flat = make_chunked(id, "x", 4096, 1024, 1024, 9);
  write_rows(flat, 1024, 0, 4096, zeros);
  H5Dclose(flat);
  done(id);
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
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

/* HDF5 1.14 refuses some of these by itself: only file and status are the same in every version. */
static void refuses_patched_sizes(void **state) {
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
    mn_status status = mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0);
    assert_message(status, MN_BAD_DATA, file, NULL);
  }
  /* No larger than the file, but reaching beyond its end. */
  memcpy(bytes, whole, size);
  assert_true(1250 * 44 < size && patch(bytes, size, 1237, 1250, 11) >= 1 &&
              patch(bytes, size, stored, 1250 * 44, 0) >= 1);
  write_bytes(file, bytes, size);
  assert_message(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_BAD_DATA, file, NULL);
  /* Beyond what 64 bits count, of elements and of bytes. */
  for (int bits = 58; bits <= 62; bits += 2) {
    memcpy(bytes, whole, size);
    assert_true(patch(bytes, size, 1237, (uint64_t)1 << bits, 11) >= 1);
    write_bytes(file, bytes, size);
    assert_message(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_BAD_DATA, file, NULL);
  }
}

/* A filter that leaves everything as it is. */
static size_t keep(unsigned flags, size_t parameters, const unsigned *values, size_t bytes, size_t *size,
                   void **buffer) {
  return bytes;
}

static void names_a_filter_that_is_not_there(void **state) {
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 300, 1, 1, "minnow's test", NULL, NULL, keep};
  assert_true(H5Zregister(&filter) >= 0);
  const hsize_t size[2] = {4, 2};
  hid_t id = create(), creation = in_chunks(2, size);
  assert_true(H5Pset_filter(creation, 300, 0, 0, NULL) >= 0);
  put_dataset(id, "x", H5T_NATIVE_FLOAT, 2, size, creation, H5T_NATIVE_FLOAT, (const float[8]){0});
  put_labels(id, "y", 4);
  done(id);
  assert_true(H5Zunregister(300) >= 0);
  assert_message(refusal(NULL, NULL), MN_BAD_DATA, file, "dataset x", "filter 300", "minnow's test",
                 "write it anew", NULL);
}

static void names_damaged_rows(void **state) {
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
  assert_int_equal(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0), MN_OK);
  assert_int_equal(d->read(d, 0, 512, 4, got, NULL), MN_OK);
  assert_memory_equal(got, values, 512 * 16 * sizeof *got);
  assert_message(d->read(d, 500, 30, 4, got, NULL), MN_BAD_DATA, file, "x, rows 500 to 529", "damaged", NULL);
  assert_int_equal(d->read(d, 768, 256, 4, got, NULL), MN_OK); /* and goes on */
  assert_memory_equal(got, values + 768 * 16, 256 * 16 * sizeof *got);
  mn_dataset_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(refuses_what_is_no_file),
      TEST(refuses_what_is_not_hdf5),
      TEST(names_file_locking),
      TEST(refuses_missing_datasets),
      TEST(refuses_wrong_shapes),
      TEST(refuses_wrong_types),
      TEST(refuses_wrong_labels),
      TEST(refuses_odd_attributes),
      TEST(names_values_that_are_not_finite),
      TEST(refuses_links),
      TEST(refuses_storage_elsewhere),
      TEST(refuses_sizes_that_cannot_be),
      TEST(refuses_patched_sizes),
      TEST(names_a_filter_that_is_not_there),
      TEST(names_damaged_rows),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
