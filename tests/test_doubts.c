/* Labels that make the head far too wide are told by name, before memory is taken. A process that may open too few
 * files says that, and blames no file. */
#include "tests/command_run.h"

#include <time.h>

enum { ROWS = 64, COLS = 4 };

/* d.h5, with a label in row 5. */
static void make(int label) {
  float x[ROWS * COLS];
  int y[ROWS];
  const hsize_t size[] = {ROWS, COLS}, rows = ROWS;
  for (int i = 0; i < ROWS * COLS; i++) x[i] = 1 + (float)(i % 7);
  for (int i = 0; i < ROWS; i++) y[i] = i == 5 ? label : i % 3;
  hid_t file = create_file("d.h5");
  put(file, "x", H5T_IEEE_F32LE, 2, size, x);
  put(file, "y", H5T_NATIVE_INT, 1, &rows, y);
  H5Fclose(file);
}

#define TRAIN "train --quiet --device cpu --data d.h5 --hidden 4 --groups 2 --batch 16 --steps 2"

static void a_label_that_is_no_class(void **state) {
  make(9);
  assert_string_equal(run(TRAIN)->err, "");
  make(ROWS);
  assert_complains(TRAIN, run(TRAIN), 65,
                   "d.h5: y holds integers up to 64 in 64 rows|--loss mse|cross-entropy");
  make(INT_MAX);
  assert_complains(TRAIN, run(TRAIN), 65, "d.h5: y holds integers up to 2147483647 in 64 rows");
  const struct result *r = run(TRAIN " --loss cross-entropy");
  assert_true(r->status == 71 || r->status == 64); /* more than memory holds, or than sizes may be */
}

/* Parameters for which there is room, and outputs for which there is none. */
static void outputs_beyond_memory(void **state) {
  double free_kib = 0;
  char line[128];
  FILE *about = fopen("/proc/meminfo", "r");
  while (about && fgets(line, sizeof line, about)) sscanf(line, "MemAvailable: %lf", &free_kib);
  if (about) fclose(about);
  make((int)fmin(free_kib * 1024 * 2 / (ROWS * 12), INT_MAX - 1));
  const time_t began = time(NULL);
  const char *wide =
      "train --quiet --device cpu --data d.h5 --hidden 4 --groups 2 --batch 64 --steps 2 --optimizer sgd "
      "--momentum 0 --loss cross-entropy";
  assert_complains(wide, run(wide), 71, "parameters and a batch take at least|fewer outputs");
  assert_true(time(NULL) - began < 10);
}

static void too_few_files(void **state) {
  static const char *const commands[] = {"verify d.h5", "info d.h5", TRAIN " --run f"};
  make(0);
  for (int i = 0; i < 3; i++) {
    int worked = 0;
    for (int files = 3; files < 24; files++) {
      const struct result *r = run_in(commands[i], (struct circumstances){.files = files});
      forget("f");
      worked += r->status == 0;
      if (strstr(r->err, "damaged") || strstr(r->out, "damaged") || r->status == 139)
        fail_msg("%d files, '%s': exit code %d, %s%s", files, commands[i], r->status, r->err, r->out);
    }
    if (worked < 1 || worked > 20) fail_msg("%d times, %s: %s", worked, commands[i], run(commands[i])->err);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_label_that_is_no_class),
      cmocka_unit_test(outputs_beyond_memory),
      cmocka_unit_test(too_few_files),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
