/* A checkpoint from a stranger: what it names is read and written in its own folder or below, and nowhere else,
 * and its words get into files and to the terminal as words. */
#include "tests/check.h"
#include "tests/command_run.h"
#include "train/checkpoint/checkpoint.h"

#define LONG                                                                                                 \
  "train --quiet --device cpu --hidden 4 --groups 2 --synthetic 64 --in 4 --batch 16 --steps 2000000000 "
#define RUN LONG "--steps 8 "
#define VICTIM "\"not a log\"\n"

static void put_text(hid_t file, const char *name, const char *words) {
  hid_t text = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  if (H5Aexists_by_name(file, "config", name, H5P_DEFAULT) > 0)
    assert_true(H5Adelete_by_name(file, "config", name, H5P_DEFAULT) >= 0);
  if (words) {
    assert_true(H5Tset_size(text, strlen(words) + 1) >= 0);
    hid_t attribute =
        H5Acreate_by_name(file, "config", name, text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Awrite(attribute, text, words) >= 0);
    H5Aclose(attribute);
  }
  H5Sclose(space);
  H5Tclose(text);
}

/* The checkpoint sub/evil.h5, with other texts (NULL: without one) and without checksums. */
static void make_evil(const char *const texts[][2]) {
  remove("sub/evil.h5");
  remove("sub/evil.jsonl");
  const char *line = RUN "--stop-at 4 --checkpoint sub/evil.h5 --log sub/evil.jsonl";
  assert_succeeds(line, run(line));
  hid_t file = H5Fopen("sub/evil.h5", H5F_ACC_RDWR, H5P_DEFAULT);
  assert_true(file >= 0 && H5Adelete(file, "checksums") >= 0);
  for (int i = 0; texts[i][0]; i++) put_text(file, texts[i][0], texts[i][1]);
  H5Fclose(file);
}

static void write_file(const char *path, const char *words) {
  FILE *file = fopen(path, "w");
  assert_true(file && fputs(words, file) >= 0 && fclose(file) == 0);
}

static void assert_file(const char *path, const char *words) {
  char text[TEXT] = "";
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  assert_string_equal(text, words);
}

/* Resumes sub/evil.h5, which ends with `status` and says `words`, and has the victim untouched. */
static void resume(int status, const char *words) {
  const struct result *r = run("train --quiet --device cpu --resume --checkpoint sub/evil.h5");
  if (r->status != status || !strstr(r->err, words))
    fail_msg("exit code %d, '%s'; not %d and '%s'", r->status, r->err, status, words);
  assert_file("victim.jsonl", VICTIM);
  assert_int_equal(access("new.jsonl", F_OK), -1);
}

static void its_log_is_in_its_folder(void **state) {
  char whole[PATH_MAX], absent[PATH_MAX];
  snprintf(whole, sizeof whole, "%s/victim.jsonl", folder);
  snprintf(absent, sizeof absent, "%s/new.jsonl", folder);
  const char *const outside[] = {
      "../victim.jsonl", "../new.jsonl",           "./../sub/../victim.jsonl", whole, absent,
      "to-victim.jsonl", "to-folder/victim.jsonl", "to-folder/new.jsonl"};
  assert_int_equal(symlink("../victim.jsonl", "sub/to-victim.jsonl"), 0);
  assert_int_equal(symlink("..", "sub/to-folder"), 0);
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
    make_evil((const char *const[][2]){{"log", outside[i]}, {NULL, NULL}});
    resume(64, "which is outside its folder");
    make_evil((const char *const[][2]){
        {"log", "evil.jsonl"}, {"log_path", outside[i]}, {"steps", NULL}, {NULL, NULL}});
    resume(64, "which is outside its folder");
  }
  write_file("sub/own.txt", VICTIM);
  make_evil((const char *const[][2]){{"log", "own.txt"}, {NULL, NULL}});
  resume(73, "is not the log of this run");
  assert_file("sub/own.txt", VICTIM);
}

/* A checkpoint of before there were identities has no log of its own. */
static void an_older_one_has_no_log(void **state) {
  char whole[PATH_MAX];
  snprintf(whole, sizeof whole, "%s/victim.jsonl", folder);
  make_evil((const char *const[][2]){
      {"run", NULL}, {"saved_as", NULL}, {"log", whole}, {"log_path", whole}, {NULL, NULL}});
  resume(0, "");
}

static void its_data_are_in_its_folder(void **state) {
  const char *const outside[] = {"../data.h5", "/etc/passwd", "to-folder/data.h5"};
  for (int i = 0; i < 3; i++) {
    make_evil((const char *const[][2]){{"data", outside[i]}, {"synthetic", "0"}, {NULL, NULL}});
    resume(64, "which is outside its folder");
    make_evil(
        (const char *const[][2]){{"data", "x.h5"}, {"data_path", outside[i]}, {"run", NULL}, {NULL, NULL}});
    resume(64, "which is outside its folder");
  }
}

/* Of a run's own name and another run's file. */
static void another_runs_files_are_not_its_own(void **state) {
  static const char *const names[] = {"sub/evil.1.h5", "sub/evil.7.h5", "sub/evil.best.h5",
                                      "sub/evil.damaged-2.h5"};
  for (int i = 0; i < 4; i++) {
    make_evil((const char *const[][2]){{NULL, NULL}});
    assert_int_equal(link("other.h5", names[i]), 0);
    const uint64_t before = snapshot();
    resume(i < 3 ? 73 : 0, i < 3 ? "is no whole checkpoint of this run" : "");
    if (i < 3) assert_true(snapshot() == before);
    assert_same_file("other.h5", names[i]);
    remove(names[i]);
  }
}

/* The id in a checkpoint of these rows. */
static void find_id(char id[17], const char *rows) {
  char line[512];
  remove("id.h5");
  snprintf(
      line, sizeof line,
      "train --quiet --device cpu --hidden 8 --groups 2 --batch 6 --steps 2 --data %s --checkpoint id.h5",
      rows);
  assert_succeeds(line, run(line));
  const struct result *r = run("info id.h5");
  const char *at = strstr(r->out, "  run: ");
  assert_non_null(at);
  snprintf(id, 17, "%.16s", at + 7);
}

static void its_rows_are_in_its_identity(void **state) {
  char ids[3][17];
  write_dataset("more.h5", NONE);
  find_id(ids[0], "good.h5");
  find_id(ids[1], "more.h5");
  write_dataset("more.h5", MORE_LABELS);
  find_id(ids[2], "more.h5");
  assert_string_equal(ids[0], ids[1]);
  assert_string_not_equal(ids[0], ids[2]);
}

static void its_first_weights_are_in_its_identity(void **state) {
  static const char line[] =
      "train --quiet --device cpu --data good.h5 --hidden 8 --groups 2 --batch 6 --steps 1 ";
  static const char *const seeds[] = {"1", "1", "2"};
  char ids[3][17], text[300];
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "%s--seed %s --checkpoint from-%d.h5", line, seeds[i], i);
    assert_succeeds(text, run(text));
    snprintf(text, sizeof text, "good.h5 --init from-%d.h5", i);
    find_id(ids[i], text);
  }
  assert_string_equal(ids[0], ids[1]);
  assert_string_not_equal(ids[0], ids[2]);
}

static void its_identity_is_one(void **state) {
  const char *const ids[] = {"x", "0123456789abcdeF", "0123456789abcdef.", "0123456789abcdef.0",
                             "0123456789abcdef0"};
  for (int i = 0; i < 5; i++) {
    make_evil((const char *const[][2]){{"run", ids[i]}, {NULL, NULL}});
    resume(65, "says no run of minnow's");
  }
  make_evil((const char *const[][2]){{"saved_as", "../victim.h5"}, {NULL, NULL}});
  resume(65, "says no run of minnow's");
}

/* Nothing that a shell or make acts on gets into a log, which a program might be made to read as its own. */
/* While a run trains, no other begins at a name that it may take, or that may take its own. */
static void names_of_a_running_run_are_its_own(void **state) {
  static const struct {
    const char *runs, *begins;
    int status;
  } pairs[] = {{"run.h5", "run.1.h5", 73},    {"run.h5", "run.999.h5", 73},
               {"run.h5", "run.best.h5", 73}, {"run.h5", "run.damaged-2.h5", 73},
               {"run.3.h5", "run.h5", 73},    {"run.h5", "run-1.h5", 0},
               {"run.h5", "runs.1.h5", 0},    {"run.h5", "run.1.hdf5", 0}};
  for (size_t i = 0; i < COUNT(pairs); i++) {
    char line[256], lock[64], words[128];
    assert_int_equal(mkdir("names", 0777), 0);
    snprintf(line, sizeof line, LONG "--checkpoint names/%s", pairs[i].runs);
    int out = temporary_file(), err = temporary_file();
    const pid_t child = start(line, out, err, &(struct circumstances){0});
    snprintf(lock, sizeof lock, "names/%s.lock", pairs[i].runs);
    while (access(lock, F_OK) != 0) usleep(1000);
    snprintf(line, sizeof line, RUN "--checkpoint names/%s", pairs[i].begins);
    snprintf(words, sizeof words, "%s|a run is saving to %s", pairs[i].begins, pairs[i].runs);
    const struct result *r = run(line);
    if (pairs[i].status)
      assert_complains(line, r, pairs[i].status, words);
    else
      assert_succeeds(line, r);
    kill(child, SIGTERM);
    const int ended = wait_for(child); /* by the signal if that came before the run watched for it */
    assert_true(ended == 75 || ended == 128 + SIGTERM);
    snprintf(line, sizeof line, "names/%s.lock", pairs[i].begins);
    assert_int_equal(access(line, F_OK), -1);
    close(out), close(err);
    assert_int_equal(nftw("names", sweep, 16, FTW_DEPTH | FTW_PHYS), 0);
  }
}

static void words_stay_words(void **state) {
  char text[TEXT] = "";
  make_evil((const char *const[][2]){{"x", "$(touch pwned)`touch pwned`\x1b[2J\xc2\x9b"
                                           "2J\x7f"},
                                     {NULL, NULL}});
  remove("sub/evil.jsonl");
  resume(0, "");
  FILE *file = fopen("sub/evil.jsonl", "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  assert_non_null(strstr(text, "\\u0024(touch pwned)\\u0060touch pwned\\u0060\\u001B[2J\\u009B2J\\u007F\""));
  for (const char *at = "$`\x1b\x7f\xc2"; *at; at++) assert_null(strchr(text, *at));
}

static int set_up_sub(void **state) {
  if (set_up(state)) return -1;
  assert_succeeds("train", run(LABELS "--checkpoint other.h5 --seed 1"));
  write_file("victim.jsonl", VICTIM);
  return mkdir("sub", 0777);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(its_log_is_in_its_folder),
      cmocka_unit_test(an_older_one_has_no_log),
      cmocka_unit_test(its_data_are_in_its_folder),
      cmocka_unit_test(its_identity_is_one),
      cmocka_unit_test(words_stay_words),
      cmocka_unit_test(names_of_a_running_run_are_its_own),
      cmocka_unit_test(another_runs_files_are_not_its_own),
      cmocka_unit_test(its_rows_are_in_its_identity),
      cmocka_unit_test(its_first_weights_are_in_its_identity),
  };
  return cmocka_run_group_tests(tests, set_up_sub, tear_down);
}
