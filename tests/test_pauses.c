/* Where a run of the command train pauses: it evaluates at each epoch's end, and a save that falls due while
 * another is being written comes after that one. The run is in this process; three calls that it makes are
 * defined here over those of the C library: fflush, by which the training thread ends each line of the log,
 * and pwrite, by which the thread that saves writes: each can wait there for the other. And fsync, which does
 * nothing, so that what is left of a save once its file is there does not take as long as a disk likes. */
#include <stdatomic.h>
#include <sys/uio.h>

#include "tests/checkpoint_make.h"
#include "tests/command_call.h"

static atomic_int lines;        /* of the log so far; the first is no step's */
static int writer_waits_for;    /* lines, in the first write */
static int training_waits_from; /* the line after which the training thread waits for a checkpoint; 0: none */

static void wait_for_checkpoint(void) {
  for (int i = 0; i < 10000 && access(in_folder("checkpoint.h5"), F_OK) != 0; i++) pause_for(1);
  pause_for(100); /* the thread has its last steps to take when the file is there */
}

int fflush(FILE *file) {
  int result = fflush_unlocked(file);
  if (file != stderr && ++lines == training_waits_from) wait_for_checkpoint();
  return result;
}

int fsync(int fd) {
  return 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
  struct iovec part = {(void *)(uintptr_t)bytes, size};
  for (int i = 0; i < 10000 && lines < writer_waits_for; i++) pause_for(1);
  return pwritev(fd, &part, 1, offset);
}

/* A run with a checkpoint and a log of every step. */
static void train(const char *options) {
  lines = 0;
  mn_status status = call_command(
      "train --quiet --device cpu --in 4 --hidden 8 --groups 2 --head 3 --log-every 1 --run %s %s", folder,
      options);
  if (status != MN_OK) fail_msg("%s: %s", options, mn_message());
}

/* The steps of the log's lines of this kind, as " 4 7 10". */
static const char *steps_of(const char *event) {
  static char found[1024];
  char line[1024], start[64];
  FILE *file = fopen(in_folder("log.jsonl"), "r");
  assert_non_null(file);
  found[0] = 0;
  snprintf(start, sizeof start, "{\"event\":\"%s\",\"step\":", event);
  while (fgets(line, sizeof line, file))
    if (strncmp(line, start, strlen(start)) == 0) {
      size_t used = strlen(found);
      snprintf(found + used, sizeof found - used, " %d", atoi(line + strlen(start)));
    }
  fclose(file);
  return found;
}

/* An epoch ends in the step that takes its last row; there is an evaluation after the last step too. */
static void epochs_end_in_an_evaluation(void **state) {
  static const struct {
    const char *options, *steps;
  } cases[] = {{"--synthetic 50 --batch 8 --accumulate 2 --steps 14", " 4 7 10 13 14"},
               {"--synthetic 48 --batch 8 --accumulate 2 --steps 9", " 3 6 9"},
               {"--synthetic 49 --batch 16 --epochs 2", " 4 7"},
               {"--synthetic 10 --batch 5 --accumulate 6 --steps 3", " 1 2 3"}};
  writer_waits_for = training_waits_from = 0;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char options[256];
    snprintf(options, sizeof options, "%s --test-rows 20", cases[c].options);
    train(options);
    assert_string_equal(steps_of("eval"), cases[c].steps);
    assert_int_equal(unlink(in_folder("checkpoint.h5")), 0);
    assert_int_equal(unlink(in_folder("log.jsonl")), 0);
  }
}

/* The save of step 10 is held until step 22 is done. That of step 20 falls due meanwhile and is taken after
 * it, as soon as a step ends with the first file there: after step 22 at the earliest and, since training
 * waits for that file after step 25, before the run's last step in any case. Nothing else is saved. */
static void a_save_that_falls_due_meanwhile_follows(void **state) {
  writer_waits_for = 23;
  training_waits_from = 26;
  train("--synthetic 50 --test-rows 0 --batch 5 --steps 29 --save-every 10 --keep 5");
  assert_int_equal(step_of(in_folder("checkpoint.h5")), 29);
  assert_in_range(step_of(in_folder("checkpoint.1.h5")), 22, 28);
  assert_int_equal(step_of(in_folder("checkpoint.2.h5")), 10);
  assert_int_equal(count_files(), 4);
}

/* With nothing in the way, each is of the step at which it falls due. */
static void saves_are_of_their_steps(void **state) {
  writer_waits_for = 0;
  for (int last = 12; last <= 15; last += 3) {
    char options[256];
    training_waits_from = 8;
    snprintf(options, sizeof options,
             "--synthetic 50 --test-rows 0 --batch 5 --steps %d --save-every 5 --keep 5", last);
    train(options);
    assert_int_equal(step_of(in_folder("checkpoint.h5")), last);
    assert_int_equal(step_of(in_folder("checkpoint.1.h5")), 10);
    assert_int_equal(step_of(in_folder("checkpoint.2.h5")), 5);
    assert_int_equal(count_files(), 4);
    unlink(in_folder("checkpoint.h5")), unlink(in_folder("log.jsonl"));
    unlink(in_folder("checkpoint.1.h5")), unlink(in_folder("checkpoint.2.h5"));
  }
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
  const struct CMUnitTest tests[] = {
      IN_FOLDER(epochs_end_in_an_evaluation),
      IN_FOLDER(a_save_that_falls_due_meanwhile_follows),
      IN_FOLDER(saves_are_of_their_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
