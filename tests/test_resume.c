/* train --resume: what a run takes from its checkpoint, what it may have otherwise, that this is told and
 * noted, and that data which is not the same is not trained on unseen. */
#include "tests/command_run.h"

#include "tests/check.h"
#include "tests/log_read.h"
#include "train/command/options.h"
#include "train/runs/runs.h"

#define QUIET "train --quiet --device cpu "
#define TOLD "train --device cpu "

static void copy(const char *to, const char *from) {
  static char bytes[1 << 20];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_true(in && out);
  size_t length = fread(bytes, 1, sizeof bytes, in);
  assert_true(length < sizeof bytes && fwrite(bytes, 1, length, out) == length);
  fclose(in);
  assert_int_equal(fclose(out), 0);
}

/* Whether the words, a|b|c, are in what a command prints. */
static void assert_prints(const char *line, const char *words) {
  const struct result *r = run(line);
  char list[512];
  assert_succeeds(line, r);
  assert_true(strlen(words) < sizeof list);
  strcpy(list, words);
  for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
    if (!strstr(r->out, word) && !strstr(r->err, word))
      fail_msg("'%s' says '%s%s', without '%s'", line, r->out, r->err, word);
}

static void assert_lacks(const char *line, const char *word) {
  const struct result *r = run(line);
  assert_succeeds(line, r);
  if (strstr(r->out, word) || strstr(r->err, word))
    fail_msg("'%s' says '%s%s', with '%s'", line, r->out, r->err, word);
}

/* ---- data ---- */

enum { MOST_ROWS = 48 };
struct rows {
  int count;
  int numbers; /* y is [count, 3] of floats, not labels */
  hid_t stored;
  float first, last, test; /* added to the first and to the last value of x, and to the last of the test's */
};

static void put_part(hid_t file, const char *part, const struct rows *rows, float first, float last) {
  static float x[MOST_ROWS * I], y[MOST_ROWS * 3];
  char name[32];
  int labels[MOST_ROWS];
  const hsize_t shape[] = {(hsize_t)rows->count, I}, targets[] = {(hsize_t)rows->count, 3};
  for (int i = 0; i < rows->count * I; i++) x[i] = (float)((i * 37 + i * i % 11) % 23) / 11 - 1;
  for (int i = 0; i < rows->count * 3; i++) y[i] = (float)(i % 7) / 7;
  for (int i = 0; i < rows->count; i++) labels[i] = i % 3;
  x[0] += first;
  x[rows->count * I - 1] += last;
  snprintf(name, sizeof name, "%s/x", part);
  put_dataset(file, name, rows->stored, 2, shape, H5P_DEFAULT, H5T_NATIVE_FLOAT, x);
  snprintf(name, sizeof name, "%s/y", part);
  put(file, name, rows->numbers ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT, rows->numbers ? 2 : 1, targets,
      rows->numbers ? (const void *)y : labels);
}

static void write_rows(const char *name, struct rows rows) {
  hid_t file = create_file(name);
  if (!rows.count) rows.count = 24;
  if (!rows.stored) rows.stored = H5T_IEEE_F32LE;
  put_part(file, "train", &rows, rows.first, rows.last);
  put_part(file, "test", &rows, 0, rows.test);
  assert_true(H5Fclose(file) >= 0);
}

/* A run of 16 steps in 4 epochs, and one that stopped after 6 of them. */
#define MODEL "--data rows.h5 --hidden 8 --groups 2 --batch 6 --epochs 4 --optimizer sgd --warmup 0 "
#define LOGGED MODEL "--log-every 1 "

static int set_up_runs(void **state) {
  if (set_up(state) != 0) return -1;
  write_rows("rows.h5", (struct rows){0});
  forget("run");
  run_well(QUIET LOGGED "--run whole");
  run_well(QUIET LOGGED "--run run --stop-at 6");
  assert_int_equal(rename("run/checkpoint.h5", "part.h5"), 0);
  assert_int_equal(rename("run/log.jsonl", "part.jsonl"), 0);
  return 0;
}

/* Before each test: the data, and the run that stopped, as run/checkpoint.h5 and run/log.jsonl. */
static int stop_again(void **state) {
  write_rows("rows.h5", (struct rows){0});
  copy("run/checkpoint.h5", "part.h5");
  copy("run/log.jsonl", "part.jsonl");
  return 0;
}
#define TEST(name) cmocka_unit_test_setup(name, stop_again)

/* ---- options ---- */

static void the_course_may_change(void **state) {
  static const char *const changes[][3] = {
      {"--epochs 6", "--epochs 6 (was 4)", "--epochs: 6 (was 4)"},
      {"--steps 9", "--steps 9 (was --epochs 4)", "--steps: 9 (was --epochs 4)"},
      {"--lr 0.01", "--lr 0.01 (was 0.05)", "--lr: 0.01 (was 0.05)"},
      {"--schedule cosine", "--schedule cosine (was constant)", "--schedule: cosine (was constant)"},
      {"--warmup 8", "--warmup 8 (was 0)", "--warmup: 8 (was 0)"},
      {"--momentum 0.5", "--momentum 0.5 (was 0.9)", "--momentum: 0.5 (was 0.9)"},
      {"--momentum 0", "--momentum 0 (was 0.9)", "--momentum: 0 (was 0.9)"},
      {"--weight-decay 0.1", "--weight-decay 0.1 (was auto)", "--weight-decay: 0.1 (was auto)"},
      {"--nesterov", "--nesterov yes (was no)", "--nesterov: yes (was no)"},
      {"--clip 0.1", "--clip 0.1 (was auto)", "--clip: 0.1 (was auto)"},
  };
  for (size_t i = 0; i < COUNT(changes); i++) {
    char line[256], told[128], noted[128];
    stop_again(NULL);
    snprintf(line, sizeof line, TOLD "--run run --resume %s", changes[i][0]);
    snprintf(told, sizeof told, "resumed with %s", changes[i][1]);
    snprintf(noted, sizeof noted, "step 6 %s", changes[i][2]);
    assert_prints(line, told);
    assert_prints("info run/checkpoint.h5", noted);
    run_well("verify run/checkpoint.h5");
    assert_int_equal(run("diff run/checkpoint.h5 whole/checkpoint.h5")->status, 1);
    /* What is changed stays so, and is told once. */
    assert_lacks(TOLD "--run run --resume", "resumed with");
    assert_prints("info run/checkpoint.h5", noted);
  }
}

static void a_log_that_is_not_there_is_told(void **state) {
  assert_int_equal(unlink("run/log.jsonl"), 0);
  assert_prints(TOLD "--run run --resume --stop-at 8", "log: run/log.jsonl is new, and begins at step 6");
  assert_lacks(TOLD "--run run --resume", "is new");
}

/* --momentum 0 of a run with Nesterov's leaves nothing that it could act on. */
static void nesterov_goes_with_the_momentum(void **state) {
  run_well(QUIET MODEL "--nesterov --stop-at 6 --run look");
  assert_prints(TOLD "--run look --resume --momentum 0 --stop-at 8", "resumed with --momentum 0 (was 0.9)");
  run_well(QUIET "--run look --resume --stop-at 9");
  const char *line = QUIET "--run look --resume --nesterov";
  assert_complains(line, run(line), 64, "--nesterov needs --momentum above 0");
}

/* Of each option of train an example. */
#define SIZES "--hidden 8 --groups 2 --batch 6 --epochs 4 "
#define ROWS "--data %1$c/rows.h5 "
#define TABLE "--data %1$c/rows.csv "
#define RANDOM "--synthetic 48 --in 4 "
static const struct {
  const char *name, *words;
} examples[] = {
    {"data", SIZES ROWS},
    {"x", SIZES ROWS "--x x"},
    {"y", SIZES ROWS "--y y"},
    {"validation", SIZES "--data %1$c/good.h5 --validation 0.3"},
    {"y-scale", SIZES TABLE "--target a --y-scale log"},
    {"standardize", SIZES ROWS "--standardize"},
    {"place", SIZES ROWS "--place file"},
    {"synthetic", SIZES RANDOM},
    {"noise", SIZES RANDOM "--noise 0.3"},
    {"test-rows", SIZES RANDOM "--test-rows 9"},
    {"in", SIZES "--synthetic 48 --in 7"},
    {"hidden", ROWS "--hidden 12,8 --groups 2 --batch 6 --epochs 4"},
    {"groups", ROWS "--hidden 8 --groups 4 --batch 6 --epochs 4"},
    {"head", SIZES ROWS "--head 5"},
    {"eps", SIZES ROWS "--eps 0.1"},
    {"slope", SIZES ROWS "--slope 0.2"},
    {"loss", SIZES ROWS "--loss cross-entropy"},
    {"plan", SIZES ROWS "--plan none"},
    {"epochs", ROWS "--hidden 8 --groups 2 --batch 6 --epochs 5"},
    {"steps", ROWS "--hidden 8 --groups 2 --batch 6 --steps 17"},
    {"metric", SIZES ROWS "--metric log-loss --best"},
    {"tune", ROWS "--hidden 8 --groups 2 --batch 6 --tune"},
    {"folds", SIZES ROWS "--folds 2"},
    {"patience", SIZES ROWS "--patience 2"},
    {"batch", ROWS "--hidden 8 --groups 2 --batch 5 --epochs 4"},
    {"optimizer", SIZES ROWS "--optimizer sgd"},
    {"lr", SIZES ROWS "--lr 0.002"},
    {"momentum", SIZES ROWS "--momentum 0.5"},
    {"weight-decay", SIZES ROWS "--weight-decay 0.1"},
    {"nesterov", SIZES ROWS "--nesterov"},
    {"beta1", SIZES ROWS "--beta1 0.5"},
    {"beta2", SIZES ROWS "--beta2 0.5"},
    {"adam-eps", SIZES ROWS "--adam-eps 0.1"},
    {"clip", SIZES ROWS "--clip 0.1"},
    {"accumulate", SIZES ROWS "--accumulate 2"},
    {"on-nonfinite", SIZES ROWS "--on-nonfinite skip"},
    {"seed", SIZES ROWS "--seed 3"},
    {"schedule", SIZES ROWS "--schedule constant"},
    {"step-every", SIZES ROWS "--schedule step --step-every 3"},
    {"step-factor", SIZES ROWS "--schedule step --step-factor 0.5"},
    {"warmup", SIZES ROWS "--warmup 9"},
    {"threads", SIZES ROWS "--threads 1"},
    {"precision", SIZES ROWS "--precision bf16"},
    {"save-every", SIZES ROWS "--save-every 2"},
    {"keep", SIZES ROWS "--keep 2"},
    {"best", SIZES ROWS "--best"},
    {"init", SIZES ROWS "--init part.h5"},
    {"log-every", SIZES ROWS "--log-every 5"},
    {"target", SIZES TABLE "--target kind"},
    {"weights", SIZES TABLE "--weights a"},
    {"class-weight", SIZES ROWS "--class-weight balanced"},
    {"drop", SIZES TABLE "--drop b"},
    {"use", SIZES TABLE "--use id"},
    {"header", SIZES TABLE "--header yes"},
};
static const char own[] = " stop-at dry-run device ranks rank-timeout run resume plot json verbose quiet ";

static void make_folder(const char *name) {
  char to[32];
  assert_int_equal(mkdir(name, 0777), 0);
  snprintf(to, sizeof to, "%s/rows.h5", name), copy(to, "rows.h5");
  snprintf(to, sizeof to, "%s/good.h5", name), copy(to, "good.h5");
  snprintf(to, sizeof to, "%s/rows.csv", name);
  FILE *csv = fopen(to, "w");
  for (int n = -1; n < 20; n++)
    fprintf(csv, n < 0 ? "id,a,b,kind,y\n" : "%d,%d.5,%s,k%d,%d\n", n, n * n % 7, n % 3 ? "u" : "", n % 3,
            n / 2);
  fclose(csv);
}

/* A run that is stopped, and resumed without naming the option, ends in the bytes of one that was not. */
static void a_resume_needs_no_option(void **state) {
  static const char *const folders[] = {"a", "b"};
  char words[512], line[640];
  const size_t each = getenv("ASAN_OPTIONS") ? 5 : 1; /* there a process takes long to start */
  assert_int_equal(setenv("OMP_NUM_THREADS", "2", 1), 0);
  for (int i = 0; i < mn_option_count; i++) {
    const struct mn_option_row *row = &mn_option_rows[i];
    const int kept = (row->flags & (MN_OPTION_CONFIG | MN_OPTION_KEPT)) != 0;
    size_t k = 0;
    if (!mn_option_taken(i, MN_COMMAND_TRAIN)) continue;
    while (k < COUNT(examples) && strcmp(examples[k].name, row->name) != 0) k++;
    snprintf(line, sizeof line, " %s ", row->name);
    if ((k < COUNT(examples)) == (strstr(own, line) != NULL)) fail_msg("--%s has no example", row->name);
    assert_true(kept == !strstr(own, line) || strcmp(row->name, "init") == 0);
    if (k == COUNT(examples) || k % each > 0) continue;
    for (int stops = 0; stops < 2; stops++) {
      make_folder(folders[stops]);
      snprintf(words, sizeof words, examples[k].words, *folders[stops]);
      snprintf(line, sizeof line, QUIET "%s --run %s/run%s", words, folders[stops],
               stops ? " --stop-at 5" : "");
      run_well(line);
    }
    run_well(QUIET "--run b/run --resume");
    assert_same_file("a/run/checkpoint.h5", "b/run/checkpoint.h5");
    for (int f = 0; f < 2; f++) assert_int_equal(nftw(folders[f], sweep, 16, FTW_DEPTH | FTW_PHYS), 0);
  }
  assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
}

/* Killed between the saves of the best and of the newest: the run leaves what it was to leave. */
static void a_finished_run_without_its_file_saves_it(void **state) {
  static const char *const others[] = {"b/best.h5", "b/checkpoint.1.h5"};
  run_well(QUIET MODEL "--best --run b");
  copy("expected.h5", "b/checkpoint.h5");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(rename("b/checkpoint.h5", others[i]), 0); /* over the best before it */
    assert_prints(TOLD "--run b --resume", "b/checkpoint.h5 is missing|nothing to do: step 16 is reached");
    assert_same_file("b/checkpoint.h5", "expected.h5");
    copy("b/best.h5", "expected.h5");
  }
}

static void a_finished_run_goes_on(void **state) {
  run_well(QUIET LOGGED "--schedule cosine --run go");
  assert_prints(TOLD "--run go --resume --epochs 6", "resumed with --epochs 6 (was 4)|step: 24|horizon: 24");
  char *text = read_log("go/log.jsonl");
  assert_non_null(
      strstr(text, "{\"event\":\"resume\",\"step\":16,\"changed\":{\"epochs\":\"6\",\"steps\":\"0\"},"));
  const char *rate = strstr(text, "\"step\":18,");
  assert_non_null(rate);
  assert_float_equal(strtod(strstr(rate, "\"rate\":") + 7, NULL), 0.05 * 0.5 * (1 + cos(M_PI * 17 / 24)),
                     1e-12);
  free(text);
  assert_prints(TOLD "--run go --resume --epochs 4",
                "nothing to do: step 24 is reached; a larger --epochs goes on");
  assert_prints("info go/checkpoint.h5", "epochs: 6");
  /* Several changes, one after the other, and all at once. */
  assert_prints(TOLD "--run go --resume --steps 30 --lr 0.2", "resumed with --lr 0.2|step: 30|horizon: 30");
  assert_prints("info go/checkpoint.h5",
                "step 16 --epochs: 6 (was 4)|step 24 --steps: 30 (was --epochs 6)|step 24 --lr");
  assert_prints("info go/checkpoint.h5 --json",
                "\"history\":{\"step 16 --epochs\":\"6 (was 4)\",\"step 24 --steps\":");
}

static void what_makes_the_model_may_not(void **state) {
  static const char *const refused[][2] = {
      {"--hidden 16", "--hidden 16|with 8"},   {"--hidden 8,8", "--hidden 8,8|with 8"},
      {"--groups 4", "--groups 4|with 2"},     {"--head 5", "--head 5|with auto"},
      {"--eps 1e-3", "--eps 0.001|1e-05"},     {"--slope 0.2", "--slope 0.2|with 0.01"},
      {"--seed 3", "--seed 3|with 0"},         {"--precision fp64", "--precision fp64|with fp32"},
      {"--batch 8", "--batch 8|with 6"},       {"--accumulate 2", "--accumulate 2|with 1"},
      {"--plan none", "--plan none|stack"},    {"--synthetic 24 --in 4", "--synthetic 24|--data ../rows.h5"},
      {"--loss mse", "3 numbers|1 numbers"},   {"--warmup 5 --seed 1", "--seed 1"},
      {"--optimizer adamw", "adamw|with sgd"}, {"--beta2 0.9", "--beta2 is not for --optimizer sgd"},
  };
  for (size_t i = 0; i < COUNT(refused); i++) {
    char line[256];
    uint64_t before = snapshot();
    snprintf(line, sizeof line, QUIET "--run run --resume %s", refused[i][0]);
    assert_complains(line, run(line), strstr(line, "--loss") ? 65 : 64, refused[i][1]);
    if (snapshot() != before) fail_msg("'%s' changed a file", line);
  }
  run_well(QUIET MODEL "--momentum 0 --stop-at 6 --run still");
  const char *line = QUIET "--run still --resume --momentum 0.9";
  assert_complains(line, run(line), 64, "--momentum 0.9|still/checkpoint.h5|without");
}

/* ---- files ---- */

/* What a killed run has left: a checkpoint, and a log that has gone on. The README's line, from any folder. */
static void a_log_is_whole_again(void **state) {
  assert_int_equal(mkdir("sub", 0777), 0);
  for (int changed = 0; changed < 2; changed++) {
    stop_again(NULL);
    run_well(changed ? QUIET "--run run --resume --save-every 5 --keep 2 --stop-at 9 --lr 0.5"
                     : QUIET "--run run --resume --save-every 5 --keep 2 --stop-at 9");
    if (!changed) copy("nine.h5", "run/checkpoint.h5");
    run_well(QUIET "--run run --resume --stop-at 12");
    copy("run/checkpoint.h5", changed ? "part.h5" : "nine.h5");
    assert_int_equal(chdir("sub"), 0);
    run_well(QUIET "--run ../run --resume");
    assert_int_equal(chdir(".."), 0);
    run_well("diff run/checkpoint.h5 whole/checkpoint.h5");
    assert_same_logs("run/log.jsonl", "whole/log.jsonl");
    assert_lacks("info run/checkpoint.h5", " --");
    if (!changed) assert_prints("info run/checkpoint.h5", "keep: 2|save-every: 5|log-every: 1");
    if (!changed) assert_int_equal(access("run/checkpoint.1.h5", F_OK), 0);
  }
  /* And a run that is finished leaves all as it is. */
  uint64_t before = snapshot();
  run_well(QUIET "--run run --resume");
  assert_true(snapshot() == before);
}

static void a_log_follows_the_changes(void **state) {
  stop_again(NULL);
  run_well(QUIET "--run run --resume --lr 0.01 --stop-at 9");
  run_well(QUIET "--run run --resume");
  char *text = read_log("run/log.jsonl");
  const char *at = strstr(text, "\"event\":\"resume\"");
  assert_true(at && strstr(at, "\"step\":9,") && strstr(at, "\"step\":16,\"epoch\":4"));
  assert_null(strstr(at + 1, "\"event\":\"resume\""));
  free(text);
  /* A log that is not there begins with the options up to there. */
  copy("run/checkpoint.h5", "part.h5");
  assert_int_equal(unlink("run/log.jsonl"), 0);
  run_well(QUIET "--run run --resume --lr 0.01 --stop-at 9");
  text = read_log("run/log.jsonl");
  at = strstr(text, "\"lr\":\"0.05\"");
  assert_true(at && strstr(at, "\"changed\":{\"lr\":\"0.01\"}"));
  free(text);
  run_well(QUIET "--run run --resume");
}

/* ---- data ---- */

static void other_rows_are_refused(void **state) {
  static const struct rows others[] = {{.first = 1}, {.last = 1}, {.test = 1}, {.count = 30}, {.numbers = 1}};
  for (size_t i = 0; i < COUNT(others); i++) {
    struct rows rows = others[i];
    const char *line = QUIET "--run run --resume";
    stop_again(NULL);
    write_rows("rows.h5", rows);
    uint64_t before = snapshot();
    assert_complains(line, run(line), 65,
                     rows.numbers ? "rows.h5|3 numbers|3 classes"
                                  : "rows.h5 has other rows|run/checkpoint.h5|--data");
    assert_true(snapshot() == before);
    if (rows.numbers) continue;
    assert_prints(TOLD "--run run --resume --data rows.h5", "resumed with --data rows.h5");
    assert_prints("info run/checkpoint.h5", "step 6 --data: rows.h5 (was ../rows.h5)");
    assert_lacks(TOLD "--run run --resume", "resumed with");
  }
  write_rows("rows.h5", (struct rows){.stored = H5T_IEEE_F64LE}); /* the same values */
  stop_again(NULL);
  run_well(QUIET "--run run --resume");
}

/* The fingerprint in a checkpoint, freed by the caller. */
static char *rows_of(const char *path) {
  struct mn_checkpoint *c;
  MUST(mn_checkpoint_load(&c, path));
  char *rows = strdup(mn_text_find(c->options, c->option_count, "data_rows"));
  mn_checkpoint_free(c);
  return rows;
}

/* A run that read all rows, and then a sample of them, still knows all of them. */
static void rows_stay_known(void **state) {
  char *before = rows_of("run/checkpoint.h5");
  assert_int_equal(strlen(before), 35);
  run_well(QUIET "--run run --resume --place file --stop-at 9");
  char *after = rows_of("run/checkpoint.h5");
  assert_string_equal(after, before);
  free(before), free(after);
}

/* As many samples have been seen, of an epoch that is longer: 6 steps of 6, of 24 rows and then of 48. */
static void other_rows_may_be_more(void **state) {
  write_rows("more.h5", (struct rows){.count = 48});
  assert_lacks("info run/checkpoint.h5", "best_metric: -inf"); /* of the first epoch, on the rows before */
  run_well(QUIET "--run run --resume --data more.h5 --stop-at 7");
  assert_prints("info run/checkpoint.h5", "best_metric: -inf");
  assert_prints("info run/checkpoint.h5", "step: 7|epoch: 0|position: 42|samples: 42|train_rows: 48");
  assert_prints(TOLD "--run run --resume", "step: 32|horizon: 32");
  /* Another from step 6: its epochs end where the new rows do. */
  copy("run/checkpoint.h5", "part.h5");
  run_well(QUIET "--run run --resume --data more.h5 --stop-at 9");
  char *text = read_log("run/log.jsonl");
  const char *at = strstr(text, "\"event\":\"resume\"");
  assert_true(at && strstr(at, "\"event\":\"eval\",\"step\":8,\"epoch\":1"));
  free(text);
}

static void data_may_have_moved(void **state) {
  assert_int_equal(rename("rows.h5", "moved.h5"), 0);
  const char *line = QUIET "--run run --resume";
  assert_complains(line, run(line), 66, "rows.h5|run/checkpoint.h5|--data");
  assert_lacks(TOLD "--run run --resume --data moved.h5", "resumed with");
  run_well("diff run/checkpoint.h5 whole/checkpoint.h5");
  assert_lacks("info run/checkpoint.h5", " --");
}

/* A folder that was moved has its files by the names that they were given by. */
static void a_folder_may_have_moved(void **state) {
  assert_int_equal(mkdir("here", 0777), 0);
  copy("here/rows.h5", "rows.h5");
  assert_int_equal(chdir("here"), 0);
  run_well(QUIET LOGGED "--run run --stop-at 6");
  assert_int_equal(chdir(".."), 0);
  assert_int_equal(rename("here", "there"), 0);
  assert_int_equal(chdir("there"), 0);
  run_well(QUIET "--run run --resume");
  assert_int_equal(chdir(".."), 0);
  run_well("diff there/run whole");
  assert_same_logs("there/run/log.jsonl", "whole/log.jsonl");
}

/* Targets of another kind need another loss, which is named too. */
static void the_loss_changes_with_its_name(void **state) {
  write_rows("numbers.h5", (struct rows){.numbers = 1});
  const char *line = QUIET "--run run --resume --data numbers.h5";
  assert_complains(line, run(line), 65, "numbers.h5|3 numbers|3 classes");
  assert_prints(
      TOLD "--run run --resume --data numbers.h5 --loss mse",
      "resumed with --loss mse (was cross-entropy)|resumed with --data numbers.h5 (was ../rows.h5)");
  assert_prints("info run/checkpoint.h5", "loss: mse|step 6 --loss: mse (was cross-entropy)");
  /* The loss that it is may be named: that is no change. */
  stop_again(NULL);
  assert_lacks(TOLD "--run run --resume --loss cross-entropy --stop-at 9", "resumed with");
  run_well(QUIET "--run run --resume");
  assert_same_logs("run/log.jsonl", "whole/log.jsonl");
}

/* Synthetic rows are what their options say; rows from a file may follow them. */
static void synthetic_rows_are_their_options(void **state) {
  write_rows("numbers.h5", (struct rows){.numbers = 1});
  run_well(QUIET "--synthetic 24 --in 4 --hidden 8 --groups 2 --head 3 --batch 6 --steps 8 --stop-at 4 "
                 "--run made");
  const char *line = QUIET "--run made --resume --noise 0.3";
  assert_complains(line, run(line), 64, "--noise 0.3|with 0.1");
  line = QUIET "--run made --resume --synthetic 48";
  assert_complains(line, run(line), 64, "--synthetic 48|with 24");
  assert_prints(TOLD "--run made --resume --data numbers.h5",
                "resumed with --data numbers.h5 (was --synthetic 24)|step: 8|horizon: 8");
  run_well(QUIET "--run made --resume --steps 10");
}

/* On the number of threads nothing depends. */
static void another_number_of_threads_is_not_told(void **state) {
  static const char line[] = TOLD "--resume --run run --stop-at 7";
  assert_int_equal(setenv("OMP_NUM_THREADS", "1", 1), 0);
  forget("run");
  run_well(QUIET MODEL "--run run --stop-at 6");
  assert_int_equal(setenv("OMP_NUM_THREADS", "2", 1), 0);
  assert_lacks(line, "was written with");
  assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
}

/* ---- checkpoints of older versions ---- */

static void put_text(hid_t file, const char *name, const char *words) {
  hid_t text = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  assert_true(H5Tset_size(text, strlen(words)) >= 0 && H5Tset_strpad(text, H5T_STR_NULLPAD) >= 0);
  if (H5Aexists_by_name(file, "config", name, H5P_DEFAULT) > 0)
    assert_true(H5Adelete_by_name(file, "config", name, H5P_DEFAULT) >= 0);
  hid_t attribute =
      H5Acreate_by_name(file, "config", name, text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, text, words) >= 0 && H5Aclose(attribute) >= 0);
  assert_true(H5Sclose(space) >= 0 && H5Tclose(text) >= 0);
}

static void an_older_checkpoint_is_resumed(void **state) {
  static const char *const later[] = {"log-every", "data_rows", "optimizer", "beta1", "beta2", "adam-eps"},
                           *const gone[] = {"log", "run", "saved_as", "data_rows"};
  assert_int_equal(mkdir("old", 0777), 0);
  copy("old/checkpoint.h5", "part.h5");
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  hid_t file = H5Fopen("old/checkpoint.h5", H5F_ACC_RDWR, access);
  assert_true(file >= 0);
  assert_true(H5Adelete(file, "checksums") >= 0);
  for (size_t i = 0; i < COUNT(later); i++)
    assert_true(H5Adelete_by_name(file, "config", later[i], H5P_DEFAULT) >= 0);
  for (size_t i = 0; i < COUNT(gone); i++) put_text(file, gone[i], "../whole/log.jsonl");
  assert_true(H5Fclose(file) >= 0 && H5Pclose(access) >= 0);
  const char *line = QUIET "--run old --resume --optimizer adamw"; /* it was SGD */
  assert_complains(line, run(line), 65, "no exp_avg for blocks.0.fc.weight; resume with its own");
  assert_non_null(strstr(run_well(QUIET "--run old --resume --stop-at 9")->err, "of an older minnow: whe"));
  assert_string_equal(run_well(QUIET "--run old --resume")->err, "");
  run_well("diff old/checkpoint.h5 whole/checkpoint.h5");
}

/* A file of format_version 1 names the release that converts it, and stays. */
static void version_1_is_for_another_release(void **state) {
  char golden[PATH_MAX];
  assert_non_null(realpath("cases.h5", golden));
  strcpy(strrchr(golden, '/'), "/checkpoint-1.h5");
  assert_int_equal(mkdir("one", 0777), 0);
  copy("one/checkpoint.h5", golden);
  const char *line = QUIET "--run one --resume";
  assert_complains(line, run(line), 65, "format_version 1|minnow 0.3.0 was the last to read");
  assert_same_file("one/checkpoint.h5", golden);
}

/* What a shell or make acts on, and what a terminal does, stays a word in a log, which a program might be made
 * to read as its own. */
static void words_stay_words(void **state) {
  run_well(QUIET "--synthetic 24 --in 4 --hidden 8 --groups 2 --batch 6 --steps 8 --stop-at 4 --run words");
  hid_t file = H5Fopen("words/checkpoint.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0 && H5Adelete(file, "checksums") >= 0);
  put_text(file, "x",
           "$(touch pwned)`touch pwned`\x1b[2J\xc2\x9b"
           "2J\x7f");
  assert_true(H5Fclose(file) >= 0 && unlink("words/log.jsonl") == 0);
  run_well(QUIET "--run words --resume");
  char *text = read_log("words/log.jsonl");
  assert_non_null(strstr(text, "\\u0024(touch pwned)\\u0060touch pwned\\u0060\\u001B[2J\\u009B2J\\u007F\""));
  for (const char *at = "$`\x1b\x7f\xc2"; *at; at++) assert_null(strchr(text, *at));
  free(text);
}

/* /config says another loss than /model, in a file whose checksums another program has removed. */
static void a_loss_of_its_own_is_refused(void **state) {
  assert_int_equal(mkdir("loss", 0777), 0);
  copy("loss/checkpoint.h5", "part.h5");
  hid_t file = H5Fopen("loss/checkpoint.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0 && H5Adelete(file, "checksums") >= 0);
  put_text(file, "loss", "another-loss");
  assert_true(H5Fclose(file) >= 0);
  const struct result *r = run(TOLD "--run loss --resume");
  assert_int_equal(r->status, 65);
  assert_non_null(strstr(r->err, "its /config has loss another-loss, but its /model"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_course_may_change),
      TEST(a_log_that_is_not_there_is_told),
      TEST(nesterov_goes_with_the_momentum),
      TEST(a_resume_needs_no_option),
      TEST(a_finished_run_without_its_file_saves_it),
      TEST(a_finished_run_goes_on),
      TEST(what_makes_the_model_may_not),
      TEST(a_log_is_whole_again),
      TEST(a_log_follows_the_changes),
      TEST(other_rows_are_refused),
      TEST(rows_stay_known),
      TEST(other_rows_may_be_more),
      TEST(data_may_have_moved),
      TEST(a_folder_may_have_moved),
      TEST(the_loss_changes_with_its_name),
      TEST(synthetic_rows_are_their_options),
      TEST(another_number_of_threads_is_not_told),
      TEST(an_older_checkpoint_is_resumed),
      TEST(version_1_is_for_another_release),
      TEST(words_stay_words),
      TEST(a_loss_of_its_own_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up_runs, tear_down);
}
