/* The JSON writer, and what info, verify and diff say: of checkpoints, of other HDF5 files, of what is
 * broken. Every answer with json is parsed by jansson, which takes nothing but JSON. */
#include <float.h>
#include <hdf5.h>
#include <jansson.h>

#include "data/hdf5/hdf5.h"
#include "tests/checkpoint_make.h"
#include "train/command/commands.h"
#include "train/json.h"

static void assert_json_line(const char *text) {
  json_t *value = json_loads(text, JSON_DECODE_INT_AS_REAL, NULL);
  if (!json_is_object(value) || strchr(text, '\n') != text + strlen(text) - 1)
    fail_msg("not one line of JSON: %s", text);
  json_decref(value);
}

/* ---- a folder, and the text of an answer ---- */

static char other[1100]; /* b.h5, beside `path` */
static char *text;       /* of the last answer */

static int setup_two(void **state) {
  setup(state);
  snprintf(path, sizeof path, "%s/a.h5", folder);
  snprintf(other, sizeof other, "%s/b.h5", folder);
  return 0;
}

static int teardown_two(void **state) {
  free(text);
  text = NULL;
  return teardown(state);
}

enum command { INFO, VERIFY, DIFF };

static mn_status run(enum command command, const char *a, const char *b, int json) {
  size_t size;
  free(text);
  FILE *out = open_memstream(&text, &size);
  mn_status status = command == INFO     ? mn_info(out, a, json)
                     : command == VERIFY ? mn_verify(out, a, json)
                                         : mn_diff(out, a, b, json);
  fclose(out);
  if (json && *text) assert_json_line(text);
  return status;
}

static void assert_text(const char *words) {
  if (!strstr(text, words)) fail_msg("\"%s\" lacks \"%s\"", text, words);
}

static void save(const struct mn_checkpoint *made, const char *to) {
  assert_int_equal(mn_checkpoint_save(made, to, 1), MN_OK);
}

/* ---- json ---- */

static void test_json(void **state) {
  size_t size;
  struct mn_json json;
  FILE *out = open_memstream(&text, &size);
  mn_json_begin(&json, out, 0);
  mn_json_open(&json, NULL);
  mn_json_number(&json, "tenth", 0.1);
  mn_json_array_open(&json, "list");
  mn_json_integer(&json, NULL, INT64_MIN);
  mn_json_unsigned(&json, NULL, UINT64_MAX);
  mn_json_number(&json, NULL, INFINITY);
  mn_json_number(&json, NULL, NAN);
  mn_json_close(&json);
  mn_json_open(&json, "none");
  mn_json_close(&json);
  mn_json_boolean(&json, "yes", 2);
  mn_json_null(&json, "nothing");
  mn_json_string(&json, "no \"string\"", NULL);
  mn_json_string(&json, "text", "a\"b\\c\nd\x01\x7f é € 𝄞");
  mn_json_string(&json, "C1", "\xc2\x80\xc2\x9bm\xc2\x9f\xc2\xa0");
  mn_json_string(&json, "bytes", "\xff \xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82");
  mn_json_close(&json);
  fclose(out);
  assert_json_line(text);
  assert_string_equal(text, "{\"tenth\":0.1,\"list\":[-9223372036854775808,18446744073709551615,null,null],"
                            "\"none\":{},\"yes\":true,\"nothing\":null,\"no \\\"string\\\"\":null,"
                            "\"text\":\"a\\\"b\\\\c\\nd\\u0001\\u007F é € 𝄞\","
                            "\"C1\":\"\\u0080\\u009Bm\\u009F\xc2\xa0\","
                            "\"bytes\":\"� �� ��� ���� ��\"}\n");
}

/* ---- info ---- */

static void test_info_checkpoint(void **state) {
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 8, 1, 12);
  save(made, path);
  mn_checkpoint_free(made);
  assert_int_equal(run(INFO, path, NULL, 0), MN_OK);
  assert_text("kind: checkpoint\nformat_version: 2\n");
  assert_text("  hidden: 4 4\n");
  assert_text("parameters: 79\nmomentum: yes\n"); /* 4·6 + 3·4, 4·4 + 3·4, 3·4 + 3 */
  assert_text("\n  name head.weight         type float64             shape [3, 4]\n");
  assert_text("  seed: 18446744073709551608\n  best_metric: -inf\n");
  assert_text("  option-7: vä\n");
  assert_int_equal(run(INFO, path, NULL, 1), MN_OK);
  assert_text("\"kind\":\"checkpoint\",\"format_version\":2,");
  assert_text("\"hidden\":[4,4]");
  assert_text("\"parameters\":79,\"momentum\":true");
  assert_text("{\"name\":\"head.weight\",\"type\":\"float64\",\"shape\":[3,4]}");
  assert_text("\"seed\":18446744073709551608,\"best_metric\":null");
  assert_text("\\\"quoted\\\"");
  assert_text("\"fingerprint\":{\"version\":\"0.1.0\"}");
  assert_text("\"history\":{\"step 2 --lr\":\"0.01 (was 0.05)\"}");
  save(made = make_checkpoint(6, 4, 1, 8, 2, 12), path);
  mn_checkpoint_free(made);
  assert_int_equal(run(INFO, path, NULL, 0), MN_OK);
  assert_text("momentum: no\nexp_avg: yes\nexp_avg_sq: yes\n");
  assert_int_equal(run(INFO, path, NULL, 1), MN_OK);
  assert_text("\"momentum\":false,\"exp_avg\":true,\"exp_avg_sq\":true");
}

static void put_attribute(hid_t object, const char *name, hid_t type, hsize_t count, const void *value) {
  hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, type, value) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

enum { ROWS = 300000 };

/* Data to train on, x [300000, 4] in chunks with checksums (4.8 MB) and labels y, and other things. */
static void make_dataset(const char *to) {
  hsize_t shape[2] = {ROWS, 4}, chunk[2] = {1000, 3}, three = 3;
  float *x = make_values(ROWS * 4, 4, 0);
  int *y = calloc(ROWS, sizeof *y);
  const double scale = 0.5, list[3] = {1, 2.5, NAN};
  const char *strings[3] = {"one", "", "three"};
  y[7] = 9;
  mn_hdf5_lock();
  hid_t file = create_file(to);
  hid_t chunked = in_chunks(2, chunk), string = H5Tcopy(H5T_C_S1);
  H5Pset_fletcher32(chunked);
  H5Tset_size(string, H5T_VARIABLE);
  put_dataset(file, "x", H5T_NATIVE_FLOAT, 2, shape, chunked, H5T_NATIVE_FLOAT, x);
  hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  put_attribute(dataset, "units \"u\"", string, 0, &strings[0]);
  put_attribute(dataset, "factor", H5T_NATIVE_DOUBLE, 0, &scale);
  put_attribute(dataset, "list", H5T_NATIVE_DOUBLE, 3, list);
  H5Dclose(dataset);
  put_dataset(file, "y", H5T_NATIVE_INT, 1, shape, H5P_DEFAULT, H5T_NATIVE_INT, y);
  put_dataset(file, "names", string, 1, &three, H5P_DEFAULT, string, strings);
  put_dataset(file, "scalar", H5T_NATIVE_DOUBLE, 0, NULL, H5P_DEFAULT, H5T_NATIVE_DOUBLE, &scale);
  put_dataset(file, "unwritten", H5T_NATIVE_UINT8, 2, shape, H5P_DEFAULT, H5T_NATIVE_UINT8, NULL);
  hid_t group = H5Gcreate2(file, "more", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/nowhere", group, "gone", H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(group);
  H5Tclose(string);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  free(x);
  free(y);
}

static void test_info_other(void **state) {
  make_dataset(path);
  assert_int_equal(run(INFO, path, NULL, 0), MN_OK);
  assert_text("train:\n  rows: 300000\n  inputs: 4\n  outputs: 10\n  classes: yes\n");
  assert_text("shape [300000, 4]  stored_bytes 7202400      checksums yes ");
  assert_text("name /more/gone          kind link\n");
  assert_int_equal(run(INFO, path, NULL, 1), MN_OK);
  assert_text("{\"name\":\"/x\",\"kind\":\"dataset\",\"type\":\"float32\",\"shape\":[300000,4]");
  assert_text("{\"name\":\"/more/gone\",\"kind\":\"link\"}");
  assert_text("\"train\":{\"rows\":300000,\"inputs\":4,\"outputs\":10,\"classes\":true,");
  assert_int_equal(run(INFO, "data/digits.h5", NULL, 1), MN_OK);
  assert_text("\"train\":{\"rows\":1437,\"inputs\":64,\"outputs\":10,\"classes\":true,");
  assert_text("\"test\":{\"rows\":360,");
  assert_int_equal(run(INFO, "data/digits.h5", NULL, 0), MN_OK);
  assert_text("\n    column 42           mean 0.42767");
  assert_text("  more_columns: --json has all\n");
}

/* HDF5 that is no data to train on is described all the same. */
static void test_info_no_dataset(void **state) {
  mn_hdf5_lock();
  hid_t file = create_file(path);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  assert_int_equal(run(INFO, path, NULL, 0), MN_OK);
  assert_text("refused: ");
  assert_int_equal(run(INFO, path, NULL, 1), MN_OK);
  assert_text("\"train\":null,\"refused\":\"");
  assert_text("\"test\":null");
}

/* Names and texts of a file cannot steer a terminal. */
static void test_info_control_characters(void **state) {
  mn_hdf5_lock();
  hid_t file = create_file(path);
  static const char *const names[] = {"a\x1b[2Jb", "c\x7f\x1b]0;x\x07", "\xc2\x9bJ é\x9b\xffxy"};
  for (int i = 0; i < 3; i++) H5Gclose(H5Gcreate2(file, names[i], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  assert_int_equal(run(INFO, path, NULL, 0), MN_OK);
  assert_text("/a\\x1B[2Jb");
  assert_text("/c\\x7F\\x1B]0;x\\x07");
  assert_text("/\\xC2\\x9BJ é\\x9B\\xFFxy");
  assert_text("holds: a\\x1B[2Jb, "); /* a message, too */
  assert_int_equal(run(INFO, path, NULL, 1), MN_OK);
  assert_text("\"/a\\u001B[2Jb\"");
  assert_text("\"/\\u009BJ é��xy\"");
  /* So is a name that was given by hand. */
  char odd[sizeof other + 8];
  snprintf(odd, sizeof odd, "%s\xc2\x9bJ\x1b", path);
  assert_int_equal(run(INFO, odd, NULL, 0), MN_NO_INPUT);
  assert_non_null(strstr(mn_message(), "\\xC2\\x9BJ\\x1B"));
  assert_int_equal(rename(path, odd), 0);
  assert_int_equal(run(VERIFY, odd, NULL, 0), MN_OK);
  assert_text("\\xC2\\x9BJ\\x1B\nkind: hdf5\nwhole: yes\n");
  assert_int_equal(rename(odd, path), 0);
}

static void flip(const char *of, size_t offset) {
  FILE *file = fopen(of, "r+b");
  assert_non_null(file);
  fseek(file, (long)offset, SEEK_SET);
  int byte = getc(file);
  fseek(file, (long)offset, SEEK_SET);
  putc(byte ^ 1, file);
  fclose(file);
}

/* Where the bytes of a float stand in a file. */
static size_t find_float(const char *of, float value) {
  size_t size, at = 0;
  unsigned char *bytes = read_bytes(of, &size);
  while (at + 4 <= size && memcmp(bytes + at, &value, 4) != 0) at++;
  assert_true(at + 4 <= size);
  free(bytes);
  return at;
}

/* Where nothing can be told, nothing is written. */
static void test_errors(void **state) {
  for (int json = 0; json < 2; json++) {
    for (enum command command = INFO; command <= DIFF; command++) {
      assert_int_equal(run(command, path, path, json), MN_NO_INPUT);
      assert_says(path);
      assert_string_equal(text, "");
    }
    write_bytes(path, "not HDF5", 8);
    assert_int_equal(run(INFO, path, NULL, json), MN_BAD_DATA);
    assert_string_equal(text, "");
    assert_int_equal(run(DIFF, path, path, json), MN_BAD_DATA);
    assert_string_equal(text, "");
    unlink(path);
  }
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, 12);
  save(made, path);
  mn_checkpoint_free(made);
  for (enum command command = INFO; command <= DIFF; command++) { /* a full disk under stdout */
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    mn_status status = command == INFO     ? mn_info(full, path, 0)
                       : command == VERIFY ? mn_verify(full, path, 0)
                                           : mn_diff(full, path, path, 0);
    fclose(full);
    assert_int_equal(status, MN_IO);
    assert_says("No space");
  }
}

/* ---- verify ---- */

static void test_verify_checkpoint(void **state) {
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, 12);
  save(made, path);
  mn_checkpoint_free(made);
  assert_int_equal(run(VERIFY, path, NULL, 0), MN_OK);
  assert_text("kind: checkpoint\nwhole: yes\nreason: none\ndatasets: 20\nchecksums: 0\n");
  assert_text("\nbytes: 632\n");
  assert_int_equal(run(VERIFY, path, NULL, 1), MN_OK);
  assert_text("\"kind\":\"checkpoint\",\"whole\":true,\"reason\":null,\"datasets\":20,\"checksums\":0");
  flip(path, find_float(path, (float)sin(12)));
  assert_int_equal(run(VERIFY, path, NULL, 0), MN_BAD_DATA);
  assert_says("damaged at model/blocks.0.fc.weight");
  assert_string_equal(text, "");
  assert_int_equal(run(VERIFY, path, NULL, 1), MN_BAD_DATA);
  assert_text("\"whole\":false,\"reason\":\"");
  assert_text("damaged at model/blocks.0.fc.weight");
}

static void test_verify_other(void **state) {
  make_dataset(path);
  assert_int_equal(run(VERIFY, path, NULL, 0), MN_OK);
  assert_text("datasets: 5\nchecksums: 1\nunwritten: 1\nlinks: 1\nbytes: 6000032, 5.7 MiB\n");
  assert_int_equal(run(VERIFY, path, NULL, 1), MN_OK);
  assert_text("\"whole\":true,\"reason\":null,\"datasets\":5,\"checksums\":1,\"unwritten\":1,\"links\":1");
  /* The very last element, so that all has to be read to see it. */
  flip(path, find_float(path, (float)sin((ROWS * 4 - 1) * 0.37)));
  assert_int_equal(run(VERIFY, path, NULL, 1), MN_BAD_DATA);
  assert_text("\"whole\":false,\"reason\":\"");
  assert_says("damaged at /x");
  make_dataset(path);
  assert_int_equal(truncate(path, 1000000), 0);
  assert_int_equal(run(VERIFY, path, NULL, 0), MN_BAD_DATA);
  assert_says("cut short");
}

/* A flipped bit in the index of a group: a name that is listed and cannot be found is damage, too. */
static void test_verify_lost_name(void **state) {
  size_t size;
  unsigned char *bytes = read_bytes("data/digits.h5", &size);
  write_bytes(path, bytes, size);
  assert_int_equal(run(VERIFY, path, NULL, 0), MN_OK);
  assert_text("datasets: 4\n");
  for (size_t at = 150; at < 900; at++) {
    if (at == 190) at = 860; /* what lies between is no index */
    bytes[at] ^= 1;
    write_bytes(path, bytes, size);
    bytes[at] ^= 1;
    mn_status status = run(VERIFY, path, NULL, 0);
    if (status == MN_OK && !strstr(text, "datasets: 4\n")) fail_msg("byte %zu: %s", at, text);
  }
  free(bytes);
}

/* What reaches out of the file, and groups in a circle. */
static void test_verify_odd(void **state) {
  hsize_t shape[2] = {4, 6};
  mn_hdf5_lock();
  hid_t file = create_file(path), creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(creation, "/etc/passwd", 0, 96);
  put_dataset(file, "out", H5T_IEEE_F32LE, 2, shape, creation, H5T_IEEE_F32LE, NULL);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  assert_int_equal(run(INFO, path, NULL, 0), MN_OK);
  assert_text("in_other_files yes");
  assert_int_equal(run(VERIFY, path, NULL, 0), MN_BAD_DATA);
  assert_says("/out keeps its data in other files");
  mn_hdf5_lock();
  file = create_file(path);
  hid_t group = H5Gcreate2(file, "circle", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_hard(file, "circle", group, "round", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_hard(file, "circle", group, "and", H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(group);
  assert_true(H5Fclose(file) >= 0);
  mn_hdf5_unlock();
  assert_int_equal(run(VERIFY, path, NULL, 1), MN_BAD_DATA);
  assert_says("nested more than 15 deep or in a circle");
  for (int deep = 15; deep <= 16; deep++) {
    mn_hdf5_lock();
    file = create_file(path);
    char name[64] = "";
    for (int i = 0; i < deep; i++)
      H5Gclose(H5Gcreate2(file, strcat(name, "/g"), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    assert_true(H5Fclose(file) >= 0);
    mn_hdf5_unlock();
    assert_int_equal(run(VERIFY, path, NULL, 1), deep == 15 ? MN_OK : MN_BAD_DATA);
  }
}

/* ---- diff ---- */

/* Saves `made` as it is to one file and, after the caller's change, to the other. */
static struct mn_checkpoint *saved(void) {
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, 12);
  save(made, path);
  return made;
}

static void assert_differ(struct mn_checkpoint *changed, const char *words, const char *json_words) {
  save(changed, other);
  assert_int_equal(run(DIFF, path, other, 0), MN_FAILED);
  assert_says("differ in");
  assert_text(words);
  assert_int_equal(run(DIFF, path, other, 1), MN_FAILED);
  assert_text(json_words);
  assert_text("\"equal\":false");
  mn_checkpoint_free(changed);
}

static void test_diff_same(void **state) {
  struct mn_checkpoint *made = saved();
  strcpy(made->options[0].value, "another place"); /* /config is not compared */
  ((float *)made->tensors[1].value)[0] = NAN;      /* and a NaN is itself */
  save(made, path);
  save(made, other);
  mn_checkpoint_free(made);
  assert_int_equal(run(DIFF, path, other, 0), MN_OK);
  assert_text("tensors:\nattributes:\nequal: yes\n");
  assert_int_equal(run(DIFF, path, other, 1), MN_OK);
  assert_text("\"tensors\":[],\"attributes\":[],\"equal\":true}");
}

static void test_diff_values(void **state) {
  struct mn_checkpoint *made = saved();
  float *weight = made->tensors[0].value;
  weight[3] = nextafterf(nextafterf(weight[3], 9), 9);
  weight[5] = nextafterf(weight[5], -9);
  assert_differ(
      made,
      "name /model/blocks.0.fc.weight  elements 24           differing 2            nan 0            max_ulp "
      "2\n",
      "{\"name\":\"/model/blocks.0.fc.weight\",\"elements\":24,\"differing\":2,\"nan\":0,\"max_ulp\":2}");

  made = saved();
  ((float *)made->tensors[9].momentum)[1] = NAN;
  assert_differ(made,
                "name /optimizer/momentum/head.bias  elements 3            differing 1            nan 1 ",
                "\"differing\":1,\"nan\":1,\"max_ulp\":0");

  made = saved();
  ((float *)made->tensors[3].value)[0] = 0.0f;
  save(made, path);
  ((float *)made->tensors[3].value)[0] = -0.0f; /* the neighbour of +0 */
  assert_differ(made, "max_ulp 1\n", "\"max_ulp\":1");

  made = saved();
  ((float *)made->tensors[3].value)[0] = FLT_MAX;
  save(made, path);
  ((float *)made->tensors[3].value)[0] = -FLT_MAX;
  assert_differ(made, "max_ulp 4278190079\n", "\"max_ulp\":4278190079");
}

static void test_diff_double(void **state) {
  struct mn_checkpoint *made = make_checkpoint(6, 4, 0, 8, 0, 12);
  double *value = made->tensors[0].value;
  value[0] = INFINITY;
  save(made, path);
  value[0] = -INFINITY; /* farther than a signed distance goes */
  assert_differ(made, "max_ulp 18437736874454810625\n", "\"max_ulp\":18437736874454810625");
}

static void test_diff_attributes(void **state) {
  struct mn_checkpoint *made = saved();
  made->progress.step = 13;
  made->progress.seed = 5;
  made->model.loss = MN_LOSS_MSE;
  made->progress.best = 0.5;
  assert_differ(made, "name /progress step      a 12           b 13\n",
                "{\"name\":\"/progress step\",\"a\":12,\"b\":13}");
  assert_text("{\"name\":\"/progress best_metric\",\"a\":null,\"b\":0.5,\"ulp\":");
  assert_text("\"a\":18446744073709551608,\"b\":5}");
  assert_text("{\"name\":\"/model loss\",\"a\":\"cross-entropy\",\"b\":\"mse\"}");
  made = saved();
  made->model.eps = nextafter(made->model.eps, 1);
  assert_differ(made, "a 1.0000000000000001e-05  b 1.0000000000000003e-05  ulp 1\n", "\"ulp\":1}");
}

static void test_diff_factors(void **state) {
  struct mn_checkpoint *made = saved();
  made->tensors[0].factor /= 2;
  made->tensors[4].gradient_factor = 0;
  assert_differ(
      made, "name /model/blocks.0.fc.weight factor  a 1.152921504606847e+18  b 5.7646075230342349e+17  ulp ",
      "{\"name\":\"/model/blocks.1.fc.weight gradient_factor\",\"a\":");
  assert_says("differ in 0 tensors and 2 attributes");
}

static void test_diff_unlike(void **state) {
  mn_checkpoint_free(saved());
  assert_differ(make_checkpoint(6, 4, 0, 4, 1, 12), "name /model/head.weight  a float32 [3, 4]      b none\n",
                "\"b\":null");
  assert_int_equal(run(DIFF, other, path, 0), MN_FAILED); /* the other way round */
  assert_text("name /optimizer/momentum/head.bias  a none         b float32 [3]\n");
  assert_differ(make_checkpoint(6, 4, 1, 4, 0, 12), "name /optimizer/momentum/head.bias  a float32 [3] ",
                "{\"name\":\"/optimizer/momentum/head.bias\",\"a\":\"float32 [3]\",\"b\":null}");
  assert_differ(make_checkpoint(6, 4, 1, 4, 2, 12), "name /optimizer/exp_avg_sq/head.bias  a none ",
                "{\"name\":\"/optimizer/momentum/head.bias\",\"a\":\"float32 [3]\",\"b\":null}");
  assert_differ(make_checkpoint(6, 4, 1, 8, 1, 12), "a float32 [3]         b float64 [3]\n",
                "\"a\":\"float32 [3]\",\"b\":\"float64 [3]\"");
  assert_differ(make_checkpoint(5, 8, 1, 4, 1, 12), "a float32 [4, 6]      b float32 [8, 5]\n",
                "{\"name\":\"/model hidden[1]\",\"a\":4,\"b\":8}");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown_two)
  const struct CMUnitTest tests[] = {
      TEST(test_json),
      TEST(test_info_checkpoint),
      TEST(test_info_other),

      TEST(test_info_no_dataset),
      TEST(test_info_control_characters),
      TEST(test_errors),
      TEST(test_verify_checkpoint),
      TEST(test_verify_other),
      TEST(test_verify_odd),
      TEST(test_verify_lost_name),
      TEST(test_diff_same),
      TEST(test_diff_values),
      TEST(test_diff_double),
      TEST(test_diff_attributes),
      TEST(test_diff_factors),
      TEST(test_diff_unlike),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
