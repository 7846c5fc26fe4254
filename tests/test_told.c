/* Lines about files name the file, and lines about types and numbers say what is there. */
#include "tests/command_run.h"

#include "train/checkpoint/checkpoint.h"

/* Sets an attribute of every group in a copy of the cases. */
static herr_t set_attribute(hid_t group, const char *name, const H5L_info_t *about, void *data) {
  const char *attribute = data;
  const double value = strcmp(attribute, "eps") == 0 ? 0 : 0.5;
  hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (H5Aexists(object, attribute) > 0) {
    hid_t id = H5Aopen(object, attribute, H5P_DEFAULT);
    assert_true(H5Awrite(id, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Aclose(id);
  }
  return H5Oclose(object);
}

static void cases_are_named_with_their_file(void **state) {
  static const char *const attributes[] = {"eps", "N", "G"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(system("cp cases.h5 bad-cases.h5 && chmod u+w bad-cases.h5"), 0);
    hid_t file = H5Fopen("bad-cases.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, set_attribute, (void *)attributes[i]) >=
                0);
    H5Fclose(file);
    assert_complains(attributes[i], run("parity bad-cases.h5 --device cpu"), 65, "bad-cases.h5: case ");
  }
}

/* A checkpoint whose numbers make no model is named, whichever command reads it. */
static void a_checkpoint_is_named(void **state) {
  assert_succeeds("train", run(LABELS "--run scaled"));
  hid_t file = H5Fopen("scaled/checkpoint.h5", H5F_ACC_RDWR, H5P_DEFAULT),
        set = H5Dopen2(file, "input/scale", H5P_DEFAULT);
  const double zeros[I] = {0};
  assert_true(H5Adelete(file, "checksums") >= 0);
  assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros) >= 0);
  H5Dclose(set), H5Fclose(file);
  static const char *const rows[] = {"eval --quiet --device cpu --data good.h5 --run scaled",
                                     "predict --quiet --device cpu --data good.h5 --out n.h5 --run scaled",
                                     "train --quiet --device cpu --epochs 9 --resume --run scaled",
                                     LABELS "--init scaled/checkpoint.h5"};
  for (int i = 0; i < 4; i++)
    assert_complains(rows[i], run(rows[i]), 65, "scaled/checkpoint.h5: /input |cannot be used");
}

/* A float's name says its exponent and mantissa, unless it is IEEE's or bfloat16. */
static void floats_are_named_as_they_are(void **state) {
  static const struct {
    size_t bytes, exponent, mantissa;
    const char *name;
  } rows[] = {{2, 5, 10, "float16"},    {2, 8, 7, "bfloat16"},      {2, 4, 11, "float16_e4m11"},
              {1, 4, 3, "float8_e4m3"}, {4, 8, 23, "float32"},      {4, 8, 10, "float32_e8m10"},
              {8, 11, 52, "float64"},   {3, 7, 16, "float24_e7m16"}};
  static float x[N * I];
  char words[64];
  for (int i = 0; i < N * I; i++) x[i] = 1 + (float)(i % 3) / 4;
  hid_t file = create_file("floats.h5");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    hid_t type = H5Tcopy(rows[i].bytes > 4 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
    const size_t e = rows[i].exponent, m = rows[i].mantissa;
    assert_true(H5Tset_fields(type, e + m, m, e, 0, m) >= 0 &&
                H5Tset_ebias(type, ((size_t)1 << (e - 1)) - 1) >= 0);
    assert_true(H5Tset_precision(type, e + m + 1) >= 0 && H5Tset_size(type, rows[i].bytes) >= 0);
    snprintf(words, sizeof words, "x%zu", i);
    put_dataset(file, words, type, 2, (hsize_t[]){N, I}, H5P_DEFAULT, H5T_NATIVE_FLOAT, x);
    H5Tclose(type);
  }
  H5Fclose(file);
  const struct result *r = run("info --json floats.h5");
  assert_succeeds("info", r);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(words, sizeof words, "\"/x%zu\",\"kind\":\"dataset\",\"type\":\"%s\"", i, rows[i].name);
    if (!strstr(r->out, words)) fail_msg("no %s in %s", words, r->out);
  }
}

/* A large eps makes gradients so small that rounding of the loss is all that differs; a wrong one is still told
 * (tests/test_gradients.c). */
static void a_large_eps_is_no_false_alarm(void **state) {
  static const char *const models[] = {"2,2 --groups 1", "8,8,8 --groups 2", "4,6 --groups 2",
                                       "8 --groups 4"};
  static const char *const losses[] = {"", "--loss mse --head 3", "--loss cross-entropy --head 3"};
  for (int k = 0; k < 48; k++) {
    char line[256];
    snprintf(line, sizeof line, "gradcheck --quiet --device cpu --eps %s --hidden %s %s --seed %d",
             k % 2 ? "100" : "1e6", models[k % 4], losses[k % 3], k / 4 % 4);
    assert_succeeds(line, run(line));
  }
}

/* Labels of which one has no row, and classes as columns of 0 and 1. */
static void targets_of_another_kind_are_told(void **state) {
  enum { MANY = 60 };
  static const char line[] = "train --device cpu --hidden 8 --steps 2 --data targets.h5";
  static float x[MANY * I], y[MANY * 3];
  int32_t labels[MANY];
  for (int kind = 0; kind < 6; kind++) {
    hid_t file = create_file("targets.h5");
    for (int i = 0; i < MANY * I; i++) x[i] = (float)(i * i % 17);
    for (int i = 0; i < MANY; i++) labels[i] = kind == 0 ? i % 3 : kind == 1 ? 1 + i % 3 : i % 2 * 2;
    for (int i = 0; i < MANY * 3; i++) y[i] = i % 3 == i / 3 % 3;
    if (kind == 4) y[3 * MANY - 1] += 0.5f;
    if (kind == 5) y[7] = 1; /* two of a row */
    put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){MANY, I}, x);
    if (kind < 3)
      put(file, "y", H5T_NATIVE_INT32, 1, (hsize_t[]){MANY}, labels);
    else
      put(file, "y", H5T_NATIVE_FLOAT, 2, (hsize_t[]){MANY, 3}, y);
    H5Fclose(file);
    const char *said = run_well(line)->err, *none = strstr(said, "no row to train on has the label ");
    assert_true(!none == (kind != 1 && kind != 2));
    if (none) assert_int_equal(none[strlen("no row to train on has the label ")], kind == 1 ? '0' : '1');
    assert_true(!strstr(said, "train on y.argmax(axis=1)") == (kind != 3));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cases_are_named_with_their_file),  cmocka_unit_test(a_checkpoint_is_named),
      cmocka_unit_test(floats_are_named_as_they_are),     cmocka_unit_test(a_large_eps_is_no_false_alarm),
      cmocka_unit_test(targets_of_another_kind_are_told),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
