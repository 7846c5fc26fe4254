/* Data that can be read and may yet be wrong: rows that a disk may have lost, and labels that make the head
 * far too wide, are told by name. A process that may open too few files says that, and blames no file. */
#include "tests/command_run.h"

enum { ROWS = 64, CHUNK = 16, COLS = 4 };
enum storage { PLAIN, SUMMED, SHUFFLED, DEFLATED };

/* d.h5: reals in chunks of 16 rows, of which one is zeros as a whole, and labels. */
static void make(enum storage storage, int zeros, int label) {
  float x[ROWS * COLS];
  int y[ROWS];
  const hsize_t size[] = {ROWS, COLS}, chunk[] = {CHUNK, COLS}, rows = ROWS;
  for (int i = 0; i < ROWS * COLS; i++) x[i] = zeros && i / (CHUNK * COLS) == 2 ? 0 : 1 + (float)(i % 7);
  for (int i = 0; i < ROWS; i++) y[i] = i == 5 ? label : i % 3;
  hid_t file = create_file("d.h5");
  hid_t how = in_chunks(2, chunk);
  if (storage == SHUFFLED) assert_true(H5Pset_shuffle(how) >= 0);
  if (storage == DEFLATED) assert_true(H5Pset_deflate(how, 1) >= 0);
  if (storage != PLAIN) assert_true(H5Pset_fletcher32(how) >= 0);
  put_dataset(file, "x", H5T_IEEE_F32LE, 2, size, how, H5T_NATIVE_FLOAT, x);
  put(file, "y", H5T_NATIVE_INT, 1, &rows, y);
  H5Fclose(file);
}

#define TRAIN "train --quiet --device cpu --data d.h5 --hidden 4 --groups 2 --batch 16 --steps 2"

/* Both commands end well; each warns with these words, once, or says nothing. */
static void tell(const char *words) {
  static const char *const commands[] = {TRAIN, TRAIN " --place file", "verify d.h5"};
  for (int i = 0; i < 3; i++) {
    const struct result *r = run(commands[i]);
    assert_succeeds(commands[i], r);
    if (lines(r->err) != (words != NULL) || (words && !strstr(r->err, words)))
      fail_msg("'%s' says '%s', not '%s'", commands[i], r->err, words ? words : "");
  }
}

static void a_chunk_of_zeros(void **state) {
  for (enum storage storage = PLAIN; storage <= DEFLATED; storage++) {
    make(storage, 1, 0);
    tell(storage == SUMMED || storage == SHUFFLED ? "x, rows 32 to 47 are a chunk of zeros" : NULL);
    make(storage, 0, 0);
    tell(NULL);
  }
}

/* A checkpoint's own checksums tell its zeros, such as the bias before the first step. */
static void zeros_of_a_checkpoint(void **state) {
  const char *line = TRAIN " --lr 1e-300 --momentum 0.9 --checkpoint zeros.h5";
  make(PLAIN, 0, 0);
  assert_succeeds(line, run(line));
  assert_string_equal(run("verify zeros.h5")->err, "");
}

static void a_label_that_is_no_class(void **state) {
  make(PLAIN, 0, 9);
  assert_string_equal(run(TRAIN)->err, "");
  make(PLAIN, 0, ROWS);
  assert_complains(TRAIN, run(TRAIN), 65,
                   "d.h5: y holds integers up to 64 in 64 rows|--loss mse|cross-entropy");
  make(PLAIN, 0, INT_MAX);
  assert_complains(TRAIN, run(TRAIN), 65, "d.h5: y holds integers up to 2147483647 in 64 rows");
  const struct result *r = run(TRAIN " --loss cross-entropy");
  assert_true(r->status == 71 || r->status == 64); /* more than memory holds, or than sizes may be */
}

static void too_few_files(void **state) {
  static const char *const commands[] = {"verify d.h5", "info d.h5", TRAIN " --checkpoint f.h5"};
  make(PLAIN, 0, 0);
  for (int i = 0; i < 3; i++) {
    int worked = 0;
    for (int files = 3; files < 24; files++) {
      const struct result *r = run_in(commands[i], (struct circumstances){.files = files});
      unlink("f.h5");
      worked += r->status == 0;
      if (strstr(r->err, "damaged") || strstr(r->out, "damaged") || r->status == 139)
        fail_msg("%d files, '%s': exit code %d, %s%s", files, commands[i], r->status, r->err, r->out);
    }
    if (worked < 1 || worked > 20) fail_msg("%d times, %s: %s", worked, commands[i], run(commands[i])->err);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_of_zeros),
      cmocka_unit_test(zeros_of_a_checkpoint),
      cmocka_unit_test(a_label_that_is_no_class),
      cmocka_unit_test(too_few_files),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
