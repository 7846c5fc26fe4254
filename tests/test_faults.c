/* What can go wrong, each with the exit code and the words it has to say: one line on stderr that names the
 * thing and what would do, and every file left as it was, byte for byte. A fault that is worth a test is a
 * row in a table. */
#include "tests/command_run.h"

enum { K = 8 }; /* outputs of targets.h5 */

static void write_targets(const char *name) {
  static float x[N * I], y[N * K];
  hsize_t xs[] = {N, I}, ys[] = {N, K};
  for (int i = 0; i < N * I; i++) x[i] = (float)(i % 13) / 6 - 1;
  for (int i = 0; i < N * K; i++) y[i] = (float)(i % 7) / 3 - 1;
  hid_t file = create_file(name);
  put(file, "x", H5T_NATIVE_FLOAT, 2, xs, x);
  put(file, "y", H5T_NATIVE_FLOAT, 2, ys, y);
  H5Fclose(file);
}

/* Beside what all tests of the program have, a file for each thing that can be wrong with one. */
static int set_up_faults(void **state) {
  if (set_up(state) != 0) return -1;
  if (mkdir("cut-run", 0700) != 0) return -1;
  cut("cut-run/checkpoint.h5", "run/checkpoint.h5");
  write_dataset("no-x.h5", NO_X);
  write_dataset("no-y.h5", NO_Y);
  write_dataset("rank.h5", RANK);
  write_dataset("type.h5", TYPE);
  write_dataset("negative.h5", NEGATIVE);
  write_dataset("nan.h5", NOT_A_NUMBER);
  write_dataset("uneven.h5", UNEVEN);
  write_dataset("wider.h5", WIDER);
  write_dataset("more-labels.h5", MORE_LABELS);
  write_targets("targets.h5");
  write_text("empty.h5", "");
  write_text("text.h5", "no rows, but text\n");
  write_text("broken.jsonl",
             "{\"event\":\"step\",\"step\":1,\"loss\":1,\"rate\":1}\n{\"event\":\"step\",\"step\":\n");
  write_text("lacking.jsonl", "{\"event\":\"step\",\"step\":1,\"rate\":1}\n");
  write_text("none.jsonl", "{\"event\":\"start\"}\n");
  cut("cut.h5", "good.h5");
  /* Names of files that a command must not write. */
  write_text("old.svg", "a picture");
  write_text("log.svg", "{\"event\":\"eval\",\"step\":3,\"test_loss\":0.5}\n");
  if (symlink("good.h5", "soft.h5") != 0 || mkfifo("pipe", 0600) != 0 || mkdir("folder", 0700) != 0 ||
      mkdir("foreign", 0700) != 0)
    return -1;
  write_dataset("foreign/checkpoint.h5", NONE);
  assert_succeeds("train", run(LABELS "--stop-at 1 --run part"));
  return 0;
}

/* Faults, each with what it has to name. */
struct fault {
  const char *line;
  int status;
  const char *words;
  struct circumstances how;
};

static void check_faults(const struct fault *faults, size_t count) {
  uint64_t before = snapshot();
  for (size_t i = 0; i < count; i++) {
    assert_complains(faults[i].line, run_in(faults[i].line, faults[i].how), faults[i].status,
                     faults[i].words);
    if (snapshot() != before) fail_msg("'%s' changed a file", faults[i].line);
  }
}
#define CHECK(faults) check_faults(faults, sizeof faults / sizeof *faults)

static void usage_is_explained(void **state) {
  static const struct fault faults[] = {
      {"trian", 64, "trian|did you mean train?", {0}},
      {"train --ephocs 3", 64, "--ephocs|did you mean --epochs?", {0}},
      {"train -z", 64, "-z|--help", {0}},
      {"gradcheck --device gpu", 64, "'gpu'|cuda:N", {0}},
      {"train --lr", 64, "--lr|above 0", {0}},
      {"train --lr nan", 64, "--lr 'nan'|above 0", {0}},
      {"train --groups x", 64, "--groups 'x': a whole number from 1 or auto is needed", {0}},
      {LABELS "--groups 3", 64, "--groups 3|--hidden 8|2 and 4 do", {0}},
      {LABELS "--synthetic 8", 64, "--data|--synthetic", {0}},
      {LABELS "--resume", 64, "--resume|--run", {0}},
      {LABELS "--plot", 64, "--plot needs --run DIR", {0}},
      {LABELS "--plot p.svg --run new", 64, "'p.svg': train takes options alone", {0}},
      {LABELS "--checkpoint a.h5", 64, "did you mean --run?|mkdir run && mv run.h5 run/checkpoint.h5", {0}},
      {"gradcheck --groups 3", 64, "--groups 3|--hidden 8", {0}},
      {"diff run/checkpoint.h5", 64, "diff A B", {0}},
      {"plot run/log.jsonl --out run.pdf", 64, "run.pdf|.svg", {0}},
  };
  CHECK(faults);
}

static void checks_and_files_are_explained(void **state) {
  static const struct fault faults[] = {
      {"parity missing.h5", 66, "missing.h5", {0}},
      {"parity empty.h5", 65, "empty.h5|HDF5", {0}},
      {"parity good.h5", 65, "good.h5", {0}},
      {"info missing.h5", 66, "missing.h5", {0}},
      {"info empty.h5", 65, "empty.h5", {0}},
      {"info text.h5", 65, "text.h5|HDF5", {0}},
      {"verify missing.h5", 66, "missing.h5", {0}},
      {"diff run/checkpoint.h5 missing.h5", 66, "missing.h5", {0}},
      {"diff run/checkpoint.h5 good.h5", 65, "good.h5|checkpoint", {0}},
      {"diff cut-run/checkpoint.h5 run/checkpoint.h5", 65, "cut-run/checkpoint.h5", {0}},
      {"gradcheck --device cuda", 69, "the device cpu would do", {.no_gpu = 1}},
      {"plot missing.jsonl --out p.svg", 66, "missing.jsonl|name a run or its log.jsonl", {0}},
      {"plot broken.jsonl --out p.svg", 65, "broken.jsonl, line 2", {0}},
      {"plot lacking.jsonl --out p.svg", 65, "lacking.jsonl, line 1|'loss'", {0}},
      {"plot none.jsonl --out p.svg", 65, "none.jsonl|log", {0}},
      {"plot run/checkpoint.h5 --out p.svg", 65, "run/checkpoint.h5, line 1", {0}},
      {"plot run/log.jsonl --out no/p.svg", 73, "no/p.svg", {0}},
      {"plot run/log.jsonl --out p.svg", 70, "gnuplot-nox", {.path = "/nowhere"}},
  };
  CHECK(faults);
}

static void training_faults_are_explained(void **state) {
#define TRAIN(rest) "train --device cpu --hidden 8 --groups 2 --batch 6 --run new " rest
  static const struct fault faults[] = {
      {TRAIN("--data missing.h5"), 66, "missing.h5", {0}},
      {TRAIN("--data empty.h5"), 65, "empty.h5", {0}},
      {TRAIN("--data text.h5"), 65, "text.h5|HDF5", {0}},
      {TRAIN("--data cut.h5"), 65, "cut.h5", {0}},
      {TRAIN("--data no-x.h5"), 65, "no-x.h5|x", {0}},
      {TRAIN("--data no-y.h5"), 65, "no-y.h5|y", {0}},
      {TRAIN("--data good.h5 --y label"), 65, "good.h5|label", {0}},
      {TRAIN("--data rank.h5"), 65, "rank.h5|x", {0}},
      {TRAIN("--data type.h5"), 65, "type.h5|x", {0}},
      {TRAIN("--data uneven.h5"), 65, "uneven.h5|24|23", {0}},
      {TRAIN("--data negative.h5"), 65, "negative.h5|-1", {0}},
      {TRAIN("--quiet --data nan.h5"), 65, "nan.h5|x|row", {0}},
      {TRAIN("--quiet --data nan.h5 --place file"), 65, "nan.h5|x|row", {0}},
      {TRAIN("--data good.h5 --place nowhere"), 64, "--place 'nowhere'|auto, device, host or file", {0}},
      {TRAIN("--data good.h5 --batch 25"), 64, "--batch 25|24", {0}},
      {TRAIN("--data good.h5 --head 2"), 64, "2 outputs|--head 3", {0}},
      {TRAIN("--data good.h5 --device cuda"), 69, "the device cpu would do", {.no_gpu = 1}},
      {TRAIN("--data good.h5 --run no/new"), 73, "cannot make the folder --run no/new", {0}},
      {TRAIN("--data good.h5 --run /proc/new"), 73, "/proc/new", {0}},
      {TRAIN("--data good.h5 --run run"), 73, "run holds checkpoint.h5 of a run: --resume", {0}},
      {TRAIN("--data good.h5 --resume"), 66, "--run new|without --resume a new run begins", {0}},
      {LABELS "--run run --resume --hidden 16", 64, "--hidden 16|8", {0}},
      {LABELS "--run run --resume --seed 5", 64, "--seed 5|0", {0}},
      {"train --run cut-run --resume", 65, "cut-run/checkpoint.h5", {0}},
      {"train --run foreign --resume", 65, "foreign/checkpoint.h5", {0}},
  };
  CHECK(faults);
}

/* A log may have gone on, and a resume cuts it. */
static void a_save_that_fails_costs_no_checkpoint(void **state) {
  static const char first[] = TRAIN("--quiet --data good.h5 --epochs 2");
  static const char again[] = "train --quiet --device cpu --run part --resume --save-every 1";
  assert_int_equal(link("part/checkpoint.h5", "part.h5"), 0);
  assert_complains(again, run_in(again, (struct circumstances){.largest = 4096}), 74, "part/checkpoint.h5");
  assert_same_file("part/checkpoint.h5", "part.h5");
  assert_complains(first, run_in(first, (struct circumstances){.largest = 4096}), 74, "new/checkpoint.h5");
  assert_int_equal(unlink("new/log.unsaved-1.jsonl") | rmdir("new"), 0);
}

/* AddressSanitizer ends a program that asks for so much. */
static void a_place_without_room_is_explained(void **state) {
#ifdef __SANITIZE_ADDRESS__
  SKIP("ASan");
#endif
  static const struct fault faults[] = {
      {TRAIN("--synthetic 100000000 --in 4096 --place device"),
       71,
       "place device|1528.9 GiB|auto or file",
       {0}},
  };
  CHECK(faults);
}

static void reading_faults_are_explained(void **state) {
#define EVAL(rest) "eval --device cpu " rest
#define PREDICT(rest) "predict --device cpu " rest
  static const struct fault faults[] = {
      {EVAL("--run missing.h5 --data good.h5"), 66, "missing.h5", {0}},
      {EVAL("--run cut-run --data good.h5"), 65, "cut-run/checkpoint.h5", {0}},
      {EVAL("--run good.h5 --data good.h5"), 65, "good.h5|checkpoint", {0}},
      {EVAL("--run run --data missing.h5"), 66, "missing.h5", {0}},
      {EVAL("--run run --data wider.h5"), 65, "wider.h5|5|4", {0}},
      {EVAL("--run run --data more-labels.h5"),
       65,
       "row 1|more-labels.h5|label 6|run/checkpoint.h5|3 classes",
       {0}},
      {EVAL("--run run --data targets.h5"), 65, "targets.h5", {0}},
      {EVAL("--run run --data nan.h5"), 65, "nan.h5|x|row", {0}},
      {PREDICT("--run run --data wider.h5 --out p.h5"), 65, "wider.h5|5|4", {0}},
      {PREDICT("--run run --data good.h5 --out no/p.h5"), 73, "no", {0}},
      {PREDICT("--run run --data nan.h5 --out p.h5"), 65, "nan.h5|x|row", {0}},
  };
  CHECK(faults);
}

/* One file for two things. --force does not allow it either. */
static void a_file_is_one_thing(void **state) {
#define PREDICT_RUN "predict --device cpu --run run --data good.h5 --force "
  static const struct fault faults[] = {
      {PREDICT_RUN "--out good.h5", 64, "good.h5|--data", {0}},
      {PREDICT_RUN "--out run/checkpoint.h5", 64, "run/checkpoint.h5|--run", {0}},
      {PREDICT_RUN "--out soft.h5", 64, "soft.h5|--data", {0}},
      {"plot log.svg run/log.jsonl --out log.svg --force", 64, "log.svg", {0}},
  };
  CHECK(faults);
}

static void what_exists_stays(void **state) {
  static const struct fault faults[] = {
      {LABELS "--run other", 73, "other holds checkpoint.h5|rm -r other", {0}},
      {LABELS "--run new --plot", 70, "--plot needs gnuplot|gnuplot-nox", {.path = "/nowhere"}},
      {"predict --device cpu --run run --data good.h5 --out log.svg", 73, "log.svg|--force", {0}},
      {PREDICT_RUN "--out pipe", 73, "pipe", {0}},
      {PREDICT_RUN "--out folder", 73, "folder", {0}},
      {"plot run/log.jsonl --out old.svg", 73, "old.svg|--force", {0}},
      {"plot pipe --out p.svg", 66, "pipe", {0}},
  };
  CHECK(faults);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(usage_is_explained),
      cmocka_unit_test(checks_and_files_are_explained),
      cmocka_unit_test(training_faults_are_explained),
      cmocka_unit_test(a_save_that_fails_costs_no_checkpoint),
      cmocka_unit_test(a_place_without_room_is_explained),
      cmocka_unit_test(reading_faults_are_explained),
      cmocka_unit_test(a_file_is_one_thing),
      cmocka_unit_test(what_exists_stays),
  };
  return cmocka_run_group_tests(tests, set_up_faults, tear_down);
}
