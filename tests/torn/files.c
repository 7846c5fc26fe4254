/* Makes small files: checkpoints through minnow; datasets and cases through HDF5, in its oldest form (a
 * superblock of version 0, B-trees of version 1, no checksum on anything of HDF5's own) and in its newest. */
#include "tests/torn/files.h"

#include "tests/checkpoint_make.h"

enum { ROWS = 24, WIDTH = 6, TARGETS = 2 };

const struct torn_file torn_files[] = {
    {"momentum.h5", TORN_CHECKPOINT, 1},    {"adamw.h5", TORN_CHECKPOINT, 1},
    {"alone.h5", TORN_CHECKPOINT, 1},       {"contiguous-old.h5", TORN_DATASET, 0},
    {"contiguous-new.h5", TORN_DATASET, 0}, {"chunked-old.h5", TORN_DATASET, 0},
    {"chunked-new.h5", TORN_DATASET, 0},    {"packed-old.h5", TORN_DATASET, 0},
    {"packed-new.h5", TORN_DATASET, 1},     {"cases-old.h5", TORN_CASES, 0},
    {"cases-new.h5", TORN_CASES, 0},        {NULL, TORN_KINDS, 0}};

/* ---- checkpoints ---- */

static void save(const char *folder_of, const char *name, size_t real, int kept, int alone) {
  char to[1200];
  struct mn_checkpoint *made = make_checkpoint(WIDTH, 4, 1, real, kept, 7);
  made->alone = alone;
  if (alone) made->option_count = made->history_count = 0;
  snprintf(to, sizeof to, "%s/%s", folder_of, name);
  MN_REQUIRE(mn_checkpoint_save(made, to, 1) == MN_OK);
  mn_checkpoint_free(made);
}

/* ---- through HDF5 ---- */

static hid_t create(const char *folder_of, const char *stem, int newest) {
  char to[1200];
  snprintf(to, sizeof to, "%s/%s-%s.h5", folder_of, stem, newest ? "new" : "old");
  hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
  H5F_libver_t version = newest ? H5F_LIBVER_V110 : H5F_LIBVER_EARLIEST;
  MN_REQUIRE(H5Pset_libver_bounds(access, version, newest ? H5F_LIBVER_V110 : H5F_LIBVER_LATEST) >= 0);
  hid_t id = H5Fcreate(to, H5F_ACC_TRUNC, creation, access);
  MN_REQUIRE(id >= 0 && H5Pclose(access) >= 0 && H5Pclose(creation) >= 0);
  return id;
}

static hid_t open_group(hid_t at, const char *name) {
  hid_t id = H5Gcreate2(at, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  MN_REQUIRE(id >= 0);
  return id;
}

/* How a dataset is stored: in chunks (0: contiguous), which may grow, and may be packed by the filters
 * shuffle, deflate and fletcher32. */
struct storage {
  hsize_t rows, cols;
  int grows, packed;
};

/* Writes [rows, cols] (cols 0: rank 1) values 0, 1, 2 … modulo `modulus` as the type `stored`. */
static void put(hid_t at, const char *name, hid_t stored, hsize_t rows, hsize_t cols, double modulus,
                struct storage storage) {
  const int rank = cols ? 2 : 1;
  const hsize_t size[2] = {rows, cols}, chunk[2] = {storage.rows, storage.cols},
                most[2] = {storage.grows ? H5S_UNLIMITED : rows, cols}, count = rows * (cols ? cols : 1);
  double *values = malloc((size_t)count * sizeof *values);
  hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(rank, size, most);
  MN_REQUIRE(values && creation >= 0 && space >= 0 && H5Pset_obj_track_times(creation, 0) >= 0);
  for (hsize_t i = 0; i < count; i++) values[i] = fmod((double)i, modulus);
  if (storage.rows) MN_REQUIRE(H5Pset_chunk(creation, rank, chunk) >= 0);
  if (storage.packed)
    MN_REQUIRE(H5Pset_shuffle(creation) >= 0 && H5Pset_deflate(creation, 6) >= 0 &&
               H5Pset_fletcher32(creation) >= 0);
  hid_t id = H5Dcreate2(at, name, stored, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  MN_REQUIRE(id >= 0 && H5Dwrite(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  MN_REQUIRE(H5Dclose(id) >= 0 && H5Pclose(creation) >= 0 && H5Sclose(space) >= 0);
  free(values);
}

static void put_number(hid_t at, const char *object, const char *name, double value) {
  hid_t space = H5Screate(H5S_SCALAR);
  hid_t id =
      H5Acreate_by_name(at, object, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  MN_REQUIRE(id >= 0 && H5Awrite(id, H5T_NATIVE_DOUBLE, &value) >= 0);
  MN_REQUIRE(H5Aclose(id) >= 0 && H5Sclose(space) >= 0);
}

static void put_text(hid_t at, const char *name, const char *value) {
  hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
  MN_REQUIRE(H5Tset_size(type, strlen(value)) >= 0);
  hid_t id = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  MN_REQUIRE(id >= 0 && H5Awrite(id, type, value) >= 0);
  MN_REQUIRE(H5Aclose(id) >= 0 && H5Tclose(type) >= 0 && H5Sclose(space) >= 0);
}

/* ---- datasets ---- */

/* Reals that can be read without HDF5, and targets, in two parts. */
static void make_contiguous(const char *folder_of, int newest) {
  const struct storage plain = {0};
  hid_t file = create(folder_of, "contiguous", newest), train = open_group(file, "train"),
        test = open_group(file, "test");
  put(train, "x", H5T_IEEE_F32LE, ROWS, WIDTH, 1e9, plain);
  put(train, "y", H5T_IEEE_F32LE, ROWS, TARGETS, 5, plain);
  put(test, "x", H5T_IEEE_F32LE, ROWS / 4, WIDTH, 11, plain);
  put(test, "y", H5T_IEEE_F32LE, ROWS / 4, TARGETS, 7, plain);
  MN_REQUIRE(H5Gclose(train) >= 0 && H5Gclose(test) >= 0 && H5Fclose(file) >= 0);
}

/* Reals of the other byte order and labels, in chunks that do not divide the shape; y's may grow. */
static void make_chunked(const char *folder_of, int newest) {
  hid_t file = create(folder_of, "chunked", newest);
  put(file, "x", H5T_IEEE_F64BE, ROWS, WIDTH, 1e9, (struct storage){.rows = 7, .cols = 4});
  put(file, "y", H5T_STD_I32LE, ROWS, 0, 3, (struct storage){.rows = 5, .grows = 1});
  MN_REQUIRE(H5Fclose(file) >= 0);
}

/* Packed reals and labels, compressed and with checksums. */
static void make_packed(const char *folder_of, int newest) {
  hid_t file = create(folder_of, "packed", newest);
  put(file, "x", H5T_STD_I16LE, ROWS, WIDTH, 1000, (struct storage){.rows = 8, .cols = 6, .packed = 1});
  put(file, "y", H5T_STD_U8LE, ROWS, 0, 3, (struct storage){.rows = 8, .grows = 1, .packed = 1});
  put_number(file, "x", "scale_factor", 0.125);
  put_number(file, "x", "add_offset", -3);
  MN_REQUIRE(H5Fclose(file) >= 0);
}

/* ---- cases: one of gradients, one of a training run ---- */

enum { CASE_ROWS = 3, CASE_INPUTS = 4, CASE_CHANNELS = 4, CASE_GROUPS = 2, CASE_STEPS = 2 };

static void put_case_numbers(hid_t group) {
  put_number(group, ".", "N", CASE_ROWS);
  put_number(group, ".", "I", CASE_INPUTS);
  put_number(group, ".", "C", CASE_CHANNELS);
  put_number(group, ".", "G", CASE_GROUPS);
  put_number(group, ".", "eps", 1e-5);
  put_number(group, ".", "negative_slope", 0.01);
}

static void put_doubles(hid_t at, const char *name, hsize_t rows, hsize_t cols) {
  put(at, name, H5T_IEEE_F64LE, rows, cols, 5, (struct storage){0});
}

static void put_parameters(hid_t group, const char *below) {
  hid_t at = *below ? open_group(group, below) : group;
  put_doubles(at, "fc.weight", CASE_CHANNELS, CASE_INPUTS);
  put_doubles(at, "fc.bias", CASE_CHANNELS, 0);
  put_doubles(at, "gn.weight", CASE_CHANNELS, 0);
  put_doubles(at, "gn.bias", CASE_CHANNELS, 0);
  if (strcmp(below, "grad") == 0) put_doubles(at, "x", CASE_ROWS, CASE_INPUTS);
  if (*below) MN_REQUIRE(H5Gclose(at) >= 0);
}

static void make_cases(const char *folder_of, int newest) {
  hid_t file = create(folder_of, "cases", newest), group = open_group(file, "gradients");
  put_case_numbers(group);
  put_doubles(group, "x", CASE_ROWS, CASE_INPUTS);
  put_parameters(group, "");
  put_doubles(group, "dy", CASE_ROWS, CASE_CHANNELS);
  put_doubles(group, "z", CASE_ROWS, CASE_CHANNELS);
  put_doubles(group, "y", CASE_ROWS, CASE_CHANNELS);
  put_doubles(group, "mean", CASE_ROWS, CASE_GROUPS);
  put_doubles(group, "rstd", CASE_ROWS, CASE_GROUPS);
  put_parameters(group, "grad");
  MN_REQUIRE(H5Gclose(group) >= 0);
  group = open_group(file, "training");
  put_case_numbers(group);
  put_text(group, "optimizer", "sgd");
  put_number(group, ".", "steps", CASE_STEPS);
  put_number(group, ".", "lr", 0.1);
  put_number(group, ".", "momentum", 0.9);
  put_number(group, ".", "weight_decay", 0.01);
  put_number(group, ".", "nesterov", 1);
  put_doubles(group, "x", CASE_ROWS, CASE_INPUTS);
  put_doubles(group, "target", CASE_ROWS, CASE_CHANNELS);
  put_doubles(group, "losses", CASE_STEPS, 0);
  put_parameters(group, "initial");
  put_parameters(group, "final");
  MN_REQUIRE(H5Gclose(group) >= 0 && H5Fclose(file) >= 0);
}

void torn_make(const char *folder_of) {
  mn_hdf5_lock();
  for (int newest = 0; newest < 2; newest++) {
    make_contiguous(folder_of, newest);
    make_chunked(folder_of, newest);
    make_packed(folder_of, newest);
    make_cases(folder_of, newest);
  }
  mn_hdf5_unlock();
  save(folder_of, "momentum.h5", 4, 1, 0);
  save(folder_of, "adamw.h5", 8, 2, 0);
  save(folder_of, "alone.h5", 4, 0, 1);
}
