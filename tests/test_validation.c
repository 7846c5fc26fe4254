/* train --validation, and the rows that eval and predict take: which rows are trained on and which are held
 * out, that a resumed run and another --place have the same, and that eval and predict find them again. */
#include "data/dataset.h"
#include "data/dataset_file.h"
#include "data/held_out.h"
#include "tests/command_run.h"
#include "tests/files_same.h"
#include "train/runs/runs.h"

enum { MANY = 300 };

/* Rows that no model takes for each other: x of row i is random, y is one number. */
static void write_numbers(const char *name, int rows, int with_y) {
  static float x[MANY * I], y[MANY];
  const hsize_t sizes[2] = {(hsize_t)rows, I};
  uint32_t word = 5;
  for (int i = 0; i < rows * I; i++) x[i] = (float)((word = word * 1664525 + 1013904223) >> 8) / 8388608 - 1;
  for (int i = 0; i < rows; i++) y[i] = x[i * I] - x[i * I + 1];
  hid_t file = create_file(name);
  put(file, "x", H5T_NATIVE_FLOAT, 2, sizes, x);
  put(file, "other/inputs", H5T_NATIVE_FLOAT, 2, (hsize_t[]){7, I}, x + I);
  if (with_y) put(file, "y", H5T_NATIVE_FLOAT, 1, sizes, y);
  H5Fclose(file);
}

#define TRAIN                                                                                                \
  "train --device cpu --data numbers.h5 --hidden 8 --groups 2 --head 1 --batch 10 --lr 0.1 --epochs 3 "      \
  "--validation 0.1 --seed 3 "

/* Outputs that predict has written; returns how many rows. */
static int read_outputs(const char *name, float y[MANY]) {
  hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "y", H5P_DEFAULT);
  hid_t space = H5Dget_space(set);
  hsize_t sizes[2];
  assert_int_equal(H5Sget_simple_extent_dims(space, sizes, NULL), 2);
  assert_true(sizes[0] <= MANY && sizes[1] == 1);
  assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
  H5Sclose(space), H5Dclose(set), H5Fclose(file);
  return (int)sizes[0];
}

/* The number behind `word` in a text. */
static double number_in(const char *text, const char *word) {
  const char *at = strstr(text, word);
  if (!at) fail_msg("no '%s' in '%s'", word, text);
  return strtod(at + strlen(word), NULL);
}

static void a_tenth_is_held_out(void **state) {
  const struct result *r = run_well(TRAIN "--run v --json");
  assert_non_null(strstr(r->err, "270 rows, 30 to test, held out by --validation"));
  assert_true(number_in(r->out, "\"horizon\":") == 81); /* epochs of 270 rows */
  double loss = number_in(r->out, "\"test_loss\":");
  r = run_well("eval --device cpu --run v --data numbers.h5 --json");
  assert_non_null(strstr(r->err, "30 of 300"));
  assert_non_null(strstr(r->err, "held out by --validation 0.1"));
  assert_true(number_in(r->out, "\"rows\":") == 30);
  assert_true(number_in(r->out, "\"loss\":") == loss);
  double all =
      number_in(run_well("eval --device cpu --run v --data numbers.h5 --part all --json")->out, "\"loss\":");
  double train = number_in(run_well("eval --device cpu --run v --data numbers.h5 --part train --json")->out,
                           "\"loss\":");
  assert_true(fabs(300 * all - 270 * train - 30 * loss) < 1e-3 * 300 * all);
  assert_true(fabs(train - loss) > 1e-6);
}

/* Where the rows wait, or that the run was stopped, changes nothing but what /config has of --place. */
static void the_rows_are_the_same_anywhere(void **state) {
  run_well(TRAIN "--quiet --run device --place device");
  run_well(TRAIN "--quiet --run file --place file");
  assert_same_but("place", "device/checkpoint.h5", "file/checkpoint.h5");
  run_well(TRAIN "--quiet --run resumed --place device --stop-at 40");
  run_well("train --quiet --device cpu --run resumed --place file --resume");
  assert_same_but("place", "device/checkpoint.h5", "resumed/checkpoint.h5");
  run_well("train --quiet --device cpu --data numbers.h5 --hidden 8 --groups 2 --head 1 --batch 10 --lr 0.1 "
           "--steps "
           "81 --seed 3 --run whole");
  const struct result *r = run("diff device/checkpoint.h5 whole/checkpoint.h5");
  assert_int_equal(r->status, 1);
}

/* The parts' outputs together are those of all rows, each in the order in which it is stored. */
static void predict_takes_any_part(void **state) {
  float all[MANY], train[MANY], test[MANY], again[MANY];
  run_well(TRAIN "--quiet --run p");
#define PREDICT "predict --device cpu --quiet --run p --force --out out.h5 "
  run_well(PREDICT "--data numbers.h5 --part all");
  assert_int_equal(read_outputs("out.h5", all), MANY);
  run_well(PREDICT "--data numbers.h5 --part train");
  assert_int_equal(read_outputs("out.h5", train), 270);
  run_well(PREDICT "--data numbers.h5 --part test");
  assert_int_equal(read_outputs("out.h5", test), 30);
  run_well(PREDICT "--data numbers.h5");
  assert_int_equal(read_outputs("out.h5", again), 30);
  assert_memory_equal(test, again, 30 * sizeof *test);
  for (int row = 0, i = 0, k = 0; row < MANY; row++) {
    int in_test = k < 30 && fabsf(test[k] - all[row]) < 1e-6f;
    int in_train = i < 270 && fabsf(train[i] - all[row]) < 1e-6f;
    assert_int_equal(in_test + in_train, 1);
    k += in_test, i += in_train;
  }
  /* Of rows without targets, and of any name. */
  run_well(PREDICT "--data unlabeled.h5");
  assert_int_equal(read_outputs("out.h5", again), MANY);
  assert_memory_equal(all, again, sizeof all);
  for (int named = 0; named < 2; named++) {
    run_well(named ? PREDICT "--data numbers.h5 --x other/inputs"
                   : PREDICT "--data parts.h5 --x other/inputs --part all");
    assert_int_equal(read_outputs("out.h5", again), 7);
    for (int i = 0; i < 7; i++) assert_true(fabsf(again[i] - all[i + 1]) < 1e-6f);
  }
  /* Groups are what they are called. */
  run_well(PREDICT "--data parts.h5");
  assert_int_equal(read_outputs("out.h5", again), 3);
  run_well(PREDICT "--data parts.h5 --part train");
  assert_int_equal(read_outputs("out.h5", again), 5);
}

/* Writes the checkpoint as a run of 0.3 did, which had fewer texts in /config. */
static void write_old(const char *name, const char *from) {
  enum { NEW = 3 };
  static const char *const since[NEW] = {"validation_draw", "data_rows", "order"};
  struct mn_checkpoint *c;
  assert_int_equal(mn_checkpoint_load(&c, from), MN_OK);
  int count = 0, left_out = 0;
  for (int i = 0; i < c->option_count; i++) {
    int is_new = 0;
    for (int k = 0; k < NEW; k++) is_new |= strcmp(c->options[i].name, since[k]) == 0;
    left_out += is_new;
    if (!is_new) c->options[count++] = c->options[i];
  }
  assert_int_equal(left_out, NEW);
  c->option_count = count;
  assert_int_equal(mn_checkpoint_save(c, name, 1), MN_OK);
  mn_checkpoint_free(c);
}

/* Runs before 0.4 drew other rows, which 0.3.0 alone finds again. */
static void an_old_run_has_its_own_rows(void **state) {
  run_well(TRAIN "--quiet --run new");
  assert_int_equal(mkdir("old", 0777), 0);
  write_old("old/checkpoint.h5", "new/checkpoint.h5");
  const char *lines[] = {"train --quiet --device cpu --run old --resume --epochs 4 --data numbers.h5",
                         "eval --device cpu --run old --data numbers.h5",
                         "predict --device cpu --run old --data numbers.h5 --out none.h5"};
  for (int i = 0; i < 3; i++)
    assert_complains(lines[i], run(lines[i]), 64, i ? "minnow 0.3.0|--part all" : "minnow 0.3.0|--init");
  run_well("eval --device cpu --run old --data numbers.h5 --part all");
  run_well("eval --device cpu --run old --data fewer.h5");
  run_well(
      "train --quiet --device cpu --init old/checkpoint.h5 --data numbers.h5 --hidden 8 --head 1 --epochs 1");
}

/* Rows that are not the run's, as their number tells, have no part that it held out. */
static void other_rows_are_taken_whole(void **state) {
  run_well(TRAIN "--quiet --run o");
  const struct result *r = run_well("eval --device cpu --run o --data fewer.h5 --json");
  assert_true(number_in(r->out, "\"rows\":") == 200);
  assert_null(strstr(r->err, "held out"));
  const char *line = "eval --device cpu --run o --data fewer.h5 --part test";
  assert_complains(line, run(line), 64, "--part test|fewer.h5|--part all");
}

static void what_cannot_be_held_out_is_refused(void **state) {
  const struct {
    const char *line;
    int status;
    const char *words;
  } cases[] = {
      {"train --data parts.h5 --hidden 8 --validation 0.1", 64,
       "--validation 0.1|parts.h5 has a test part|leave"},
      {"train --synthetic 40 --in 4 --hidden 8 --validation 0.1", 64, "--validation|--data"},
      {"train --data numbers.h5 --hidden 8 --validation 1", 64, "--validation|below 1"},
      {"train --data numbers.h5 --hidden 8 --validation -0.1", 64, "--validation"},
      {"train --data one.h5 --hidden 8 --head 1 --validation 0.5", 65, "single row"},
      {TRAIN "--batch 280", 64, "--batch 280|270 rows"},
      {"eval --run run --data good.h5 --part test", 64, "--part test|good.h5|--part all"},
      {"predict --run run --data good.h5 --out n.h5 --part some", 64, "--part|auto, train, test or all"},
      {"eval --run run --data parts.h5 --part all", 65, "no dataset x|train"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t before = snapshot();
    assert_complains(cases[i].line, run(cases[i].line), cases[i].status, cases[i].words);
    if (snapshot() != before) fail_msg("'%s' changes a file", cases[i].line);
  }
}

static int prepare(void **state) {
  if (set_up(state) != 0) return -1;
  static float x[8 * I], y[8];
  write_numbers("numbers.h5", MANY, 1);
  write_numbers("fewer.h5", 200, 1);
  write_numbers("one.h5", 1, 1);
  write_numbers("unlabeled.h5", MANY, 0);
  write_numbers("parts.h5", MANY, 0);
  hid_t file = H5Fopen("parts.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
  for (int test = 0; test < 2; test++) {
    put(file, test ? "test/x" : "train/x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){test ? 3 : 5, I}, x);
    put(file, test ? "test/y" : "train/y", H5T_NATIVE_FLOAT, 1, (hsize_t[]){test ? 3 : 5}, y);
  }
  H5Fclose(file);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tenth_is_held_out),        cmocka_unit_test(the_rows_are_the_same_anywhere),
      cmocka_unit_test(predict_takes_any_part),     cmocka_unit_test(an_old_run_has_its_own_rows),
      cmocka_unit_test(other_rows_are_taken_whole), cmocka_unit_test(what_cannot_be_held_out_is_refused),
  };
  return cmocka_run_group_tests(tests, prepare, tear_down);
}
