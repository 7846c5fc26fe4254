/* Files of cases that declare what they do not hold, or lead out of themselves: one line, and no crash. */
#include <math.h>

#include "tests/dataset_make.h"
#include "train/check/check.h"

enum { N = 4, I = 6, C = 8, G = 2 };

static void put_double(hid_t at, const char *name, hsize_t rows, hsize_t cols) {
  double values[64] = {0};
  assert_true(rows * (cols ? cols : 1) <= 64);
  put(at, name, H5T_IEEE_F64LE, rows, cols, H5T_NATIVE_DOUBLE, values);
}

static void put_number(hid_t group, const char *name, double value) {
  hid_t space = H5Screate(H5S_SCALAR);
  hid_t id = H5Acreate2(group, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(id, H5T_NATIVE_DOUBLE, &value) >= 0);
  H5Aclose(id), H5Sclose(space);
}

/* A whole case in `file`; returns the open group, and the file in *id. */
static hid_t start_case(hid_t *id) {
  *id = create();
  hid_t group = H5Gcreate2(*id, "case", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(group, "grad", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  put_number(group, "N", N), put_number(group, "I", I), put_number(group, "C", C), put_number(group, "G", G);
  put_number(group, "eps", 1e-5), put_number(group, "negative_slope", 0.01);
  put_double(group, "x", N, I);
  for (int grad = 0; grad < 2; grad++) {
    hid_t at = grad ? H5Gopen2(group, "grad", H5P_DEFAULT) : group;
    put_double(at, "fc.weight", C, I), put_double(at, "fc.bias", C, 0);
    put_double(at, "gn.weight", C, 0), put_double(at, "gn.bias", C, 0);
    if (!grad) continue;
    put_double(at, "x", N, I);
    H5Gclose(at);
  }
  put_double(group, "dy", N, C), put_double(group, "z", N, C), put_double(group, "y", N, C);
  put_double(group, "mean", N, G), put_double(group, "rstd", N, G);
  return group;
}

static mn_status read_back(void) {
  struct mn_case c;
  ssize_t before = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
  mn_status status = mn_case_read(file, 0, &c);
  if (status == MN_OK) assert_int_equal(c.cases, 1);
  if (status == MN_OK) mn_case_free(&c);
  assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), before);
  return status;
}

static void reads_a_whole_case(void **state) {
  hid_t id, group = start_case(&id);
  H5Gclose(group);
  done(id);
  assert_int_equal(read_back(), MN_OK);
}

static void replace_number(hid_t group, const char *name, double value) {
  H5Adelete(group, name);
  put_number(group, name, value);
}

/* Puts another dataset in the place of one, made with `creation`, of `type`. */
static void replace(hid_t group, const char *name, hid_t type, hsize_t rows, hid_t creation, int written) {
  hsize_t size[2] = {rows, C};
  char values[16 * N * C] = {0};
  assert_true(H5Ldelete(group, name, H5P_DEFAULT) >= 0);
  put_dataset(group, name, type, 2, size, creation == H5P_DEFAULT ? creation : H5Pcopy(creation), type,
              written ? values : NULL);
}

static size_t keep(unsigned flags, size_t parameters, const unsigned *values, size_t bytes, size_t *size,
                   void **buffer) {
  return bytes;
}

enum { FOREIGN = 15 };

/* Changes one thing in the case; returns what the message must say. */
static const char *spoil(hid_t id, hid_t group, int number) {
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 302, 1, 1, "minnow's case", NULL, NULL, keep};
  const hsize_t size[2] = {N, C};
  const char *words = NULL;
  hid_t creation = H5Pcreate(H5P_DATASET_CREATE), text = H5Tcopy(H5T_C_S1),
        space = H5Screate_simple(2, size, NULL);
  hid_t list = H5Tvlen_create(H5T_NATIVE_DOUBLE);
  H5Tset_size(text, H5T_VARIABLE);
  switch (number) {
  case 0:
    replace_number(group, "N", 999999999), words = "dataset 'x' should hold";
    break;
  case 1: /* as many as the attributes say, and none of them stored */
    replace_number(group, "N", 900000000), replace_number(group, "I", C);
    H5Pset_chunk(creation, 2, size);
    replace(group, "x", H5T_IEEE_F64LE, 900000000, creation, 0);
    words = "dataset x declares [900000000, 8]";
    break;
  case 2:
    replace_number(group, "C", NAN), words = "'C' is nan";
    break;
  case 3:
    put_number(group, "steps", 0), words = "'steps' must be 1 or more";
    break;
  case 4:
    H5Ldelete(group, "y", H5P_DEFAULT), H5Lcreate_soft("/case/z", group, "y", H5P_DEFAULT, H5P_DEFAULT);
    words = "y is a soft or external link";
    break;
  case 5:
    H5Ldelete(group, "y", H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/y", group, "y", H5P_DEFAULT, H5P_DEFAULT);
    words = "y is a soft or external link";
    break;
  case 6:
    H5Lmove(id, "case", id, "else", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/else", id, "a", H5P_DEFAULT, H5P_DEFAULT), words = "a is a soft or external link";
    break;
  case 7:
    H5Pset_external(creation, "/etc/passwd", 0, 8 * N * C);
    replace(group, "y", H5T_IEEE_F64LE, N, creation, 0), words = "external storage";
    break;
  case 8:
    H5Pset_virtual(creation, space, "/nowhere.h5", "/y", space);
    replace(group, "y", H5T_IEEE_F64LE, N, creation, 0), words = "virtual storage";
    break;
  case 9:
    replace(group, "y", text, N, H5P_DEFAULT, 0), words = "'y' is of type string";
    break;
  case 10:
    replace(group, "y", list, N, H5P_DEFAULT, 0), words = "'y' is of type sequences";
    break;
  case 11:
    assert_true(H5Zregister(&filter) >= 0);
    H5Pset_chunk(creation, 2, size), H5Pset_filter(creation, 302, 0, 0, NULL);
    replace(group, "y", H5T_IEEE_F64LE, N, creation, 1), words = "filter 302";
    assert_true(H5Zunregister(302) >= 0);
    break;
  case 12:
    H5Ldelete(group, "y", H5P_DEFAULT), words = "no dataset 'y'";
    break;
  case 14:
    put_number(group, "steps", 3), put_number(group, "lr", 0.1), put_number(group, "optimizer", 1);
    words = "'optimizer' is neither";
    break;
  case 13:
    replace(group, "y", H5T_IEEE_F64LE, N, H5P_DEFAULT, 0), words = "declares [4, 8]"; /* never written */
    break;
  }
  H5Pclose(creation), H5Sclose(space), H5Tclose(text), H5Tclose(list);
  return words;
}

static void refuses_what_is_not_there(void **state) {
  for (int i = 0; i < FOREIGN; i++) {
    hid_t id, group = start_case(&id);
    const char *words = spoil(id, group, i);
    H5Gclose(group);
    done(id);
    assert_message(read_back(), MN_BAD_DATA, words, NULL);
  }
}

/* Cut anywhere, the file is refused or whole. */
static void refuses_a_cut_file(void **state) {
  static char bytes[100000];
  hid_t id, group = start_case(&id);
  H5Gclose(group);
  done(id);
  FILE *f = fopen(file, "rb");
  size_t size = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  assert_true(size > 1000 && size < sizeof bytes);
  for (size_t length = 0; length < size; length += 97) {
    assert_int_equal(truncate(file, (off_t)length), 0);
    assert_message(read_back(), MN_BAD_DATA, file, NULL);
    f = fopen(file, "wb");
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(reads_a_whole_case),
      TEST(refuses_what_is_not_there),
      TEST(refuses_a_cut_file),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
