/* What attributes of netCDF's say a stored number means: missing values are refused by file, dataset, row,
 * column, value and attribute; unsigned integers are read as such; all other values are read as before. */
#include <math.h>

#include "data/dataset_file.h"
#include "tests/dataset_make.h"

enum { ROWS = 40, COLS = 3, VALUES = ROWS * COLS };

enum attribute { FILL, LIST, LEAST, LARGEST, RANGE, DEFAULT, ATTRIBUTES };
static const char *const names[] = {"_FillValue", "missing_value", "valid_min",
                                    "valid_max",  "valid_range",   "default _FillValue"};

/* A number in a file: its type, the attribute that makes it missing, and how x or y holds it. */
struct draw {
  hid_t stored, attribute_type;
  enum attribute attribute;
  int floats, chunked, packed, at;
};

static uint32_t seed = 1;

static int below(int n) {
  seed = seed * 1664525 + 1013904223;
  return (int)(seed >> 8) % n;
}

static void put_values(hid_t id, const char *name, const struct draw *d, const double *values, hsize_t cols) {
  const hsize_t size[2] = {ROWS, cols}, chunk[2] = {16, 2};
  const int rank = cols ? 2 : 1;
  put_dataset(id, name, d->stored, rank, size, in_chunks(rank, d->chunked ? chunk : NULL), H5T_NATIVE_DOUBLE,
              values);
}

/* Writes the attribute that makes `marker` missing, but no value from 2 to 90. */
static void put_marker(hid_t id, const char *name, const struct draw *d, double marker) {
  const double list[] = {1, 95, marker}, range[] = {2, 90}, least = 2, most = 90;
  const enum attribute a = d->attribute;
  const double *value = a == LIST      ? list
                        : a == LEAST   ? &least
                        : a == LARGEST ? &most
                        : a == RANGE   ? range
                                       : &marker;
  if (a != DEFAULT)
    put_attribute(id, name, names[a], d->attribute_type,
                  a == LIST    ? 3
                  : a == RANGE ? 2
                               : a == FILL,
                  H5T_NATIVE_DOUBLE, value);
}

/* Reads all values in both widths; the status is of the last read that failed. */
static mn_status read_all(double *out, int of_y) {
  struct mn_dataset *d;
  float single[VALUES];
  double *x = of_y ? NULL : out, *y = of_y ? out : NULL;
  mn_status status = mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 1);
  if (status != MN_OK) return status;
  const mn_status narrow = d->read(d, 0, ROWS, 4, of_y ? NULL : single, of_y ? single : NULL);
  status = d->read(d, 0, ROWS, 8, x, y);
  assert_int_equal(status, narrow);
  for (int i = 0; i < VALUES && status == MN_OK; i++) assert_true(single[i] == (float)out[i]);
  mn_dataset_close(d);
  return status;
}

static void try_draw(const struct draw *d, double marker) {
  const int of_y = below(2), row = d->at / COLS, col = d->at % COLS;
  const char *name = of_y ? "y" : "x", *other = of_y ? "x" : "y";
  const double scale = 0.5, offset = -3;
  char place[40];
  for (int dirty = 0; dirty < 2; dirty++) {
    double values[VALUES], got[VALUES];
    for (int i = 0; i < VALUES; i++) values[i] = 2 + below(89);
    if (dirty) values[d->at] = marker;
    hid_t id = create();
    put_values(id, name, d, values, COLS);
    put_floats(id, other, ROWS, COLS);
    put_marker(id, name, d, marker);
    if (d->packed || (of_y && !d->floats)) { /* y of integers are labels unless they are packed */
      put_attribute(id, name, "scale_factor", H5T_NATIVE_FLOAT, 0, H5T_NATIVE_DOUBLE, &scale);
      put_attribute(id, name, "add_offset", H5T_NATIVE_DOUBLE, 0, H5T_NATIVE_DOUBLE, &offset);
    }
    done(id);
    mn_status status = read_all(got, of_y);
    snprintf(place, sizeof place, "row %d, column %d ", row, col);
    if (dirty)
      assert_message(status, MN_BAD_DATA, file, name, place, names[d->attribute], "leave out the row", NULL);
    else if (status != MN_OK)
      fail_msg("%s", mn_message());
    const int packed = d->packed || (of_y && !d->floats);
    for (int i = 0; i < VALUES && !dirty; i++)
      assert_true(got[i] == (packed ? values[i] * scale + offset : values[i]));
  }
}

/* Every type with every attribute, of the same type or another, at the first, the last and any place. */
static void refuses_missing_values(void **state) {
  const struct {
    hid_t type;
    int floats;
    double low, high;
  } types[] = {{H5T_STD_I8LE, 0, -128, 127},      {H5T_STD_U8LE, 0, 0, 255},
               {H5T_STD_I16BE, 0, -32768, 9999},  {H5T_STD_U16LE, 0, 0, 65535},
               {H5T_STD_I32LE, 0, -2e9, 2e9},     {H5T_STD_U32BE, 0, 1, 4294967295},
               {H5T_STD_I64LE, 0, -9e15, 9e15},   {H5T_IEEE_F32LE, 1, -9999.9, 1e20},
               {H5T_IEEE_F32BE, 1, -999.1, 1e30}, {H5T_IEEE_F64LE, 1, -9999.9, 1e20},
               {H5T_IEEE_F64BE, 1, -99.9, 1e300}};
  int tried = 0;
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int a = 0; a < ATTRIBUTES; a++)
      for (int k = 0; k < 6; k++) {
        const int same = k % 2 == 0, high = a == LARGEST || ((k / 2) % 2 && a != LEAST);
        struct draw d = {.stored = types[t].type,
                         .attribute_type = same              ? types[t].type
                                           : types[t].floats ? (k == 1 ? H5T_IEEE_F32LE : H5T_IEEE_F64BE)
                                                             : H5T_STD_I64LE,
                         .attribute = (enum attribute)a,
                         .floats = types[t].floats,
                         .chunked = below(2),
                         .packed = below(3) == 0,
                         .at = k == 0   ? 0
                               : k == 1 ? VALUES - 1
                                        : below(VALUES)};
        double marker = high ? types[t].high : types[t].low;
        if (a == DEFAULT) marker = 9.9692099683868690e+36;
        if ((a == DEFAULT && !types[t].floats) || marker > 1e38) continue;
        try_draw(&d, marker);
        tried++;
      }
  assert_true(tried > 300);
}

/* A float's attribute marks doubles that were rounded to it, and a double's floats. */
static void compares_in_the_lower_precision(void **state) {
  const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F64LE};
  double values[4] = {1, 2, 3, -9999.9}, near[4] = {1, 2, 3, -9999.8};
  for (int i = 0; i < 4; i++)
    for (int dirty = 0; dirty < 2; dirty++) {
      hid_t id = create();
      put(id, "x", types[i / 2], 2, 2, H5T_NATIVE_DOUBLE, dirty ? values : near);
      put_attribute(id, "x", "missing_value", types[i % 2], 0, H5T_NATIVE_DOUBLE, &values[3]);
      put_floats(id, "y", 2, 1);
      done(id);
      struct mn_dataset *d = opened();
      double x[4];
      mn_status status = d->read(d, 0, 2, 8, x, NULL);
      if (dirty)
        assert_message(status, MN_BAD_DATA, "row 1, column 1 ", "is -9999.9", "missing_value", NULL);
      else
        assert_int_equal(status, MN_OK);
      mn_dataset_close(d);
    }
}

static void refuses_missing_labels(void **state) {
  const int labels[5] = {0, 2, 1, 7, 1}, gone = 7;
  const signed char bytes[5] = {0, 2, -1, 1, 0}, last = -1;
  hid_t id = create();
  put_floats(id, "x", 5, 2);
  put(id, "y", H5T_STD_I32LE, 5, 0, H5T_NATIVE_INT, labels);
  put_attribute(id, "y", "_FillValue", H5T_STD_I32LE, 1, H5T_NATIVE_INT, &gone);
  done(id);
  struct mn_dataset *d;
  assert_message(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 1), MN_BAD_DATA, file, "dataset y",
                 "row 3, ", "is 7", "_FillValue", "leave out the row", NULL);
  id = create();
  hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 5);
  put_floats(id, "x", 5, 2);
  put(id, "y", H5T_STD_I8LE, 5, 0, H5T_NATIVE_SCHAR, bytes);
  put_attribute(id, "y", "_Unsigned", text, 0, text, "true");
  done(id);
  d = opened();
  int32_t got[5];
  assert_int_equal(d->outputs, 256);
  assert_int_equal(d->read(d, 0, 5, 4, NULL, got), MN_OK);
  assert_int_equal(got[2], 255);
  mn_dataset_close(d);
  id = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
  put_attribute(id, "y", "missing_value", H5T_STD_I8LE, 0, H5T_NATIVE_SCHAR, &last);
  done(id);
  assert_message(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 1), MN_BAD_DATA, "row 2, ", "is 255",
                 "missing_value", NULL);
  /* R's NA, if R has written the integers. */
  const int one = 1, of_r[5] = {3, -5, 4, INT32_MIN, 0};
  for (int by_r = 0; by_r < 2; by_r++) {
    id = create();
    put_floats(id, "x", 5, 2);
    put(id, "y", H5T_STD_I32LE, 5, 0, H5T_NATIVE_INT, of_r);
    if (by_r) put_attribute(id, "y", "rhdf5-NA.OK", H5T_STD_I32LE, 1, H5T_NATIVE_INT, &one);
    done(id);
    MUST(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, MN_Y_REQUIRED | MN_Y_NUMBERS));
    double numbers[5];
    assert_int_equal(d->read(d, 0, 5, 8, NULL, numbers), by_r ? MN_BAD_DATA : MN_OK);
    if (by_r)
      assert_message(MN_BAD_DATA, MN_BAD_DATA, "dataset y, row 3, ", "is -2147483648", "rhdf5-NA.OK", NULL);
    mn_dataset_close(d);
  }
  H5Tclose(text);
}

/* _Unsigned makes of signed integers what their bytes say, in values, fill values and limits. */
static void reads_unsigned_integers(void **state) {
  const hid_t types[] = {H5T_STD_I8LE, H5T_STD_I16LE, H5T_STD_I32BE}, text = H5Tcopy(H5T_C_S1);
  const double spans[] = {256, 65536, 4294967296}, scale = 0.25;
  H5Tset_size(text, 4);
  for (int t = 0; t < 3; t++)
    for (int packed = 0; packed < 2; packed++)
      for (int bad = 0; bad < 3; bad++) { /* 1: the fill value; 2: above the limit */
        const double stored[6] = {0, 1, 100, -128, -3, bad == 1 ? -1 : bad ? -2 : 7}, fill = -1, most = -3;
        hid_t id = create();
        put(id, "x", types[t], 3, 2, H5T_NATIVE_DOUBLE, stored);
        put_attribute(id, "x", "_Unsigned", text, 0, text, "TRUE");
        put_attribute(id, "x", "_FillValue", types[t], 1, H5T_NATIVE_DOUBLE, &fill);
        put_attribute(id, "x", "valid_max", types[t], 0, H5T_NATIVE_DOUBLE, &most);
        if (packed) put_attribute(id, "x", "scale_factor", H5T_NATIVE_DOUBLE, 0, H5T_NATIVE_DOUBLE, &scale);
        put_floats(id, "y", 3, 1);
        done(id);
        struct mn_dataset *d = opened();
        double x[6];
        mn_status status = d->read(d, 0, 3, 8, x, NULL);
        if (bad)
          assert_message(status, MN_BAD_DATA, "row 2, column 1 ", bad == 1 ? "_FillValue" : "valid_max",
                         NULL);
        else
          assert_int_equal(status, MN_OK);
        for (int i = 0; i < 6 && !bad; i++)
          assert_true(x[i] == (stored[i] < 0 ? stored[i] + spans[t] : stored[i]) * (packed ? scale : 1));
        mn_dataset_close(d);
      }
  H5Tclose(text);
}

/* Limits of another type than packed integers have are unpacked ones. */
static void unpacks_limits(void **state) {
  const double scales[] = {0.01, -0.01}, offset = 273.15, range[2] = {270, 300.55};
  for (int i = 0; i < 2; i++)
    for (int bad = 0; bad < 3; bad++) {
      const double sign = i ? -1 : 1, ends[] = {-315 * sign, 2740 * sign};
      const double stored[4] = {ends[0] - (bad == 1 ? sign : 0), 0, 1, ends[1] + (bad == 2 ? sign : 0)};
      hid_t id = create();
      put(id, "x", H5T_STD_I16LE, 2, 2, H5T_NATIVE_DOUBLE, stored);
      put_attribute(id, "x", "scale_factor", H5T_NATIVE_DOUBLE, 0, H5T_NATIVE_DOUBLE, &scales[i]);
      put_attribute(id, "x", "add_offset", H5T_NATIVE_FLOAT, 0, H5T_NATIVE_DOUBLE, &offset);
      put_attribute(id, "x", "valid_range", bad ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT, 2, H5T_NATIVE_DOUBLE,
                    range);
      put_floats(id, "y", 2, 1);
      done(id);
      struct mn_dataset *d = opened();
      double x[4];
      mn_status status = d->read(d, 0, 2, 8, x, NULL);
      if (bad)
        assert_message(status, MN_BAD_DATA, bad == 1 ? "row 0, column 0 " : "row 1, column 1 ", "as stored",
                       "valid_range", NULL);
      else
        assert_int_equal(status, MN_OK);
      mn_dataset_close(d);
    }
}

/* Floats are read around HDF5 as before, whatever their fill value: xarray gives each the fill value NaN. */
static void reads_floats_as_fast(void **state) {
  const hid_t types[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE};
  const double fills[] = {NAN, -999, 1e20}, values[4] = {-0.0, 1, -2000, 3};
  for (int t = 0; t < 2; t++)
    for (int f = 0; f < 3; f++) {
      hid_t id = create();
      put(id, "x", types[t], 2, 2, H5T_NATIVE_DOUBLE, values);
      put_attribute(id, "x", "_FillValue", types[t], 1, H5T_NATIVE_DOUBLE, &fills[f]);
      put_floats(id, "y", 2, 1);
      done(id);
      struct mn_dataset *d = opened();
      double x[4];
      float single[4];
      assert_int_equal(d->parallel, t ? 8 : 4);
      assert_int_equal(d->read(d, 0, 2, 8, x, NULL), MN_OK);
      assert_int_equal(d->read(d, 0, 2, 4, single, NULL), MN_OK);
      assert_memory_equal(x, values, sizeof x);
      assert_true(signbit(single[0]) && single[2] == -2000);
      mn_dataset_close(d);
    }
}

/* HDF5's own fill value is what a program reads where nothing was written, no missing value: h5py's is 0. */
static void ignores_other_fill_values(void **state) {
  const hsize_t size[2] = {4, 2};
  const float zero = 0, values[8] = {0, 1, 0, 2, 0, 3, 0, 4};
  const int flags[3] = {0, 1, 2};
  hid_t id = create(), creation = in_chunks(2, NULL);
  assert_true(H5Pset_fill_value(creation, H5T_NATIVE_FLOAT, &zero) >= 0);
  put_dataset(id, "x", H5T_NATIVE_FLOAT, 2, size, creation, H5T_NATIVE_FLOAT, values);
  put_attribute(id, "x", "flag_values", H5T_NATIVE_INT, 3, H5T_NATIVE_INT, flags);
  put_labels(id, "y", 4);
  done(id);
  struct mn_dataset *d = opened();
  float got[8];
  assert_int_equal(d->read(d, 0, 4, 4, got, NULL), MN_OK);
  assert_memory_equal(got, values, sizeof got);
  mn_dataset_close(d);
}

static void refuses_odd_markers(void **state) {
  const double three[3] = {1, 2, 3}, nan = NAN;
  const struct {
    const char *name, *said;
    hid_t type;
    hsize_t count;
    const void *value;
  } cases[] = {{"missing_value", "numbers", H5T_C_S1, 0, "N"},
               {"_FillValue", "numbers", H5T_C_S1, 0, "N"},
               {"valid_range", "numbers", H5T_NATIVE_DOUBLE, 3, three},
               {"valid_min", "a single finite number", H5T_NATIVE_DOUBLE, 2, three},
               {"valid_max", "a single finite number", H5T_NATIVE_DOUBLE, 0, &nan}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hid_t id = create();
    put_floats(id, "x", 4, 2);
    put_labels(id, "y", 4);
    put_attribute(id, "x", cases[i].name, cases[i].type, cases[i].count, cases[i].type, cases[i].value);
    done(id);
    struct mn_dataset *d;
    assert_message(mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 1), MN_BAD_DATA, file, "dataset x",
                   cases[i].name, cases[i].said, "remove it", NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(refuses_missing_values),
      TEST(compares_in_the_lower_precision),
      TEST(refuses_missing_labels),
      TEST(reads_unsigned_integers),
      TEST(unpacks_limits),
      TEST(reads_floats_as_fast),
      TEST(ignores_other_fill_values),
      TEST(refuses_odd_markers),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
