/* The program itself, run as people run it: exit codes, the one line on stderr that names the thing and what
 * would do, JSON on stdout, and that whatever fails leaves every file as it was, byte for byte.
 *
 * $MINNOW names the program (build/minnow by default). Everything happens in a folder of its own; a fault
 * that is worth a test is a row in a table. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <hdf5.h>

enum { WORDS = 64, TEXT = 1 << 16 };

static char program[PATH_MAX], cases[PATH_MAX], folder[] = "/tmp/minnow-command-XXXXXX";

/* Running the program. */

struct circumstances {
  const char *out;  /* where stdout goes; NULL: it is caught */
  const char *path; /* $PATH; NULL: as it is */
  long largest;     /* bytes that a file may have; 0: any number */
  int no_gpu;       /* no GPU can be seen */
  int close_out;    /* stdout is closed */
};

struct result {
  int status; /* exit code; 128 + number of a signal */
  char out[TEXT], err[TEXT];
};

static void read_all(char *text, int fd) {
  assert_true(lseek(fd, 0, SEEK_SET) == 0);
  size_t used = 0;
  for (ssize_t got; used < TEXT - 1 && (got = read(fd, text + used, TEXT - 1 - used)) > 0;)
    used += (size_t)got;
  text[used] = 0;
}

static int temporary_file(void) {
  char name[] = "/tmp/minnow-caught-XXXXXX";
  int fd = mkstemp(name);
  assert_true(fd >= 0);
  unlink(name);
  return fd;
}

static void become(char **argv, int out, int err, const struct circumstances *how) {
  if (how->out) out = open(how->out, O_WRONLY);
  if (out < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(120);
  if (how->close_out) close(1);
  if (how->largest) {
    struct rlimit limit = {(rlim_t)how->largest, (rlim_t)how->largest};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(121);
  }
  if (how->no_gpu) setenv("CUDA_VISIBLE_DEVICES", "", 1);
  if (how->path) setenv("PATH", how->path, 1);
  /* Waiting threads that spin take minutes where other programs want the cores too. */
  setenv("OMP_WAIT_POLICY", "passive", 0);
  execv(program, argv);
  _exit(122);
}

/* Starts "train --lr 0.1 …", split at blanks. */
static pid_t start(const char *line, int out, int err, const struct circumstances *how) {
  char text[4096], *argv[WORDS] = {program};
  int count = 1;
  assert_true(strlen(line) < sizeof text);
  strcpy(text, line);
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
    assert_true(count < WORDS - 1);
    argv[count++] = word;
  }
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) become(argv, out, err, how);
  return child;
}

static int wait_for(pid_t child) {
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static const struct result *run_in(const char *line, struct circumstances how) {
  static struct result result;
  int out = temporary_file(), err = temporary_file();
  result.status = wait_for(start(line, out, err, &how));
  read_all(result.out, out);
  read_all(result.err, err);
  close(out);
  close(err);
  return &result;
}

static const struct result *run(const char *line) {
  return run_in(line, (struct circumstances){0});
}

/* What it should have said. */

static int lines(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

/* Exit code `status`, nothing on stdout, and on stderr one line that names each of the `words` (a|b|c). */
static void assert_complains(const char *line, const struct result *r, int status, const char *words) {
  if (r->status != status) fail_msg("'%s' exits with %d, not %d: %s", line, r->status, status, r->err);
  if (lines(r->err) != 1 || strncmp(r->err, "minnow: ", 8) != 0)
    fail_msg("'%s' should say one line on stderr that starts 'minnow: ', not '%s'", line, r->err);
  if (r->out[0]) fail_msg("'%s' says '%s' on stdout", line, r->out);
  char list[512];
  assert_true(strlen(words) < sizeof list);
  strcpy(list, words);
  for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
    if (!strstr(r->err, word)) fail_msg("'%s' says '%s', without '%s'", line, r->err, word);
}

static void assert_succeeds(const char *line, const struct result *r) {
  if (r->status != 0) fail_msg("'%s' exits with %d: %s", line, r->status, r->err);
}

/* One line with one JSON object; each of the `keys` (a|b|c) is in it. Brackets are counted, strings skipped.
 */
static void assert_object(const char *line, const struct result *r, const char *keys) {
  int depth = 0, quoted = 0;
  const char *at = r->out;
  if (*at != '{') fail_msg("'%s' prints no object: %s", line, r->out);
  for (; *at && *at != '\n'; at++) {
    if (quoted && *at == '\\' && at[1])
      at++;
    else if (*at == '"')
      quoted = !quoted;
    else if (!quoted)
      depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    if (depth == 0 && at[1] != '\n') fail_msg("'%s' prints more than an object: %s", line, r->out);
  }
  if (depth != 0 || quoted || strcmp(at, "\n") != 0)
    fail_msg("'%s' prints no whole object: %s", line, r->out);
  char list[512], key[80];
  strcpy(list, keys);
  for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|")) {
    snprintf(key, sizeof key, "\"%s\":", word);
    if (!strstr(r->out, key)) fail_msg("'%s' prints no %s: %s", line, key, r->out);
  }
}

/* Every file in the folder, name and bytes, in one number; whatever changes, changes it. */
static uint64_t seen;

static int see(const char *path, const struct stat *status, int kind, struct FTW *where) {
  (void)where;
  uint64_t hash = 1469598103934665603u;
  for (const char *c = path; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  hash = (hash ^ status->st_mode) * 1099511628211u;
  FILE *file = kind == FTW_F ? fopen(path, "rb") : NULL;
  if (file)
    for (int c; (c = getc(file)) != EOF;) hash = (hash ^ (uint64_t)c) * 1099511628211u;
  if (file) fclose(file);
  seen += hash ^ hash >> 29;
  return 0;
}

static uint64_t snapshot(void) {
  seen = 0;
  assert_int_equal(nftw(".", see, 16, FTW_PHYS), 0);
  return seen;
}

static int sweep(const char *path, const struct stat *status, int kind, struct FTW *where) {
  (void)status, (void)kind, (void)where;
  return remove(path);
}

/* Files to run on. */

static void put(hid_t file, const char *name, hid_t type, int rank, const hsize_t *sizes,
                const void *values) {
  hid_t creation = H5Pcreate(H5P_LINK_CREATE);
  assert_true(H5Pset_create_intermediate_group(creation, 1) >= 0);
  hid_t space = H5Screate_simple(rank, sizes, NULL);
  hid_t data = H5Dcreate2(file, name, type, space, creation, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(data >= 0 && H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(data);
  H5Sclose(space);
  H5Pclose(creation);
}

enum { N = 24, I = 4, K = 8 };

/* What is wrong with a dataset; each is a file of that name. */
enum flaw { NONE, NO_X, NO_Y, RANK, TYPE, NEGATIVE, NOT_A_NUMBER, UNEVEN, WIDER, MORE_LABELS };

static void write_dataset(const char *name, enum flaw flaw) {
  static float x[N * (I + 1)];
  int labels[N];
  char words[N * I][4];
  memset(words, 'a', sizeof words);
  for (int i = 0; i < N * (I + 1); i++) x[i] = (float)((i * 37 + i * i % 11) % 23) / 11 - 1;
  for (int i = 0; i < N; i++) labels[i] = i % 3 + (flaw == MORE_LABELS && i % 3 ? 5 : 0);
  if (flaw == NEGATIVE) labels[5] = -1;
  if (flaw == NOT_A_NUMBER) x[17] = nanf("");
  hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 4);
  hsize_t sizes[] = {N,
                     flaw == WIDER  ? I + 1
                     : flaw == RANK ? I / 2
                                    : I,
                     2},
          rows = flaw == UNEVEN ? N - 1 : N;
  if (flaw == TYPE)
    put(file, "x", text, 2, sizes, words);
  else if (flaw != NO_X)
    put(file, "x", H5T_NATIVE_FLOAT, flaw == RANK ? 3 : 2, sizes, x);
  if (flaw != NO_Y) put(file, "y", H5T_NATIVE_INT, 1, &rows, labels);
  H5Tclose(text);
  H5Fclose(file);
}

static void write_targets(const char *name) {
  static float x[N * I], y[N * K];
  hsize_t xs[] = {N, I}, ys[] = {N, K};
  for (int i = 0; i < N * I; i++) x[i] = (float)(i % 13) / 6 - 1;
  for (int i = 0; i < N * K; i++) y[i] = (float)(i % 7) / 3 - 1;
  hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  put(file, "x", H5T_NATIVE_FLOAT, 2, xs, x);
  put(file, "y", H5T_NATIVE_FLOAT, 2, ys, y);
  H5Fclose(file);
}

static void write_text(const char *name, const char *text) {
  FILE *file = fopen(name, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

/* The first part of a file, as a copy that was cut off has it. */
static void cut(const char *to, const char *from) {
  static char bytes[1 << 20];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_true(in && out);
  size_t length = fread(bytes, 1, sizeof bytes, in);
  assert_true(length > 100);
  fwrite(bytes, 1, length * 2 / 3, out);
  fclose(in);
  assert_int_equal(fclose(out), 0);
}

#define LABELS "train --quiet --device cpu --data good.h5 --hidden 8 --groups 2 --batch 6 --epochs 2 "

static int set_up(void **state) {
  (void)state;
  const char *minnow = getenv("MINNOW");
  if (!realpath(minnow ? minnow : "build/minnow", program) || !realpath("tests/golden/block.h5", cases) ||
      !mkdtemp(folder) || chdir(folder) != 0) {
    fprintf(stderr, "%s: %s; build it first, and run this from the folder of the sources\n",
            minnow ? minnow : "build/minnow", strerror(errno));
    return -1;
  }
  write_dataset("good.h5", NONE);
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
  write_text("text.h5", "x,y\n1,2\n");
  write_text("broken.jsonl",
             "{\"event\":\"step\",\"step\":1,\"loss\":1,\"rate\":1}\n{\"event\":\"step\",\"step\":\n");
  write_text("lacking.jsonl", "{\"event\":\"step\",\"step\":1,\"rate\":1}\n");
  write_text("none.jsonl", "{\"event\":\"start\"}\n");
  cut("cut.h5", "good.h5");
  assert_succeeds("train", run(LABELS "--checkpoint run.h5 --log run.jsonl"));
  assert_succeeds("train", run(LABELS "--checkpoint other.h5 --seed 1"));
  cut("cut-run.h5", "run.h5");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  return chdir("/") == 0 && nftw(folder, sweep, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : -1;
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
  (void)state;
  static const struct fault faults[] = {
      {"", 64, "command|minnow --help", {0}},
      {"trian", 64, "trian|train", {0}},
      {"train --ephocs 3", 64, "--ephocs|--epochs", {0}},
      {"train --frobnicate", 64, "--frobnicate|train --help", {0}},
      {"train -z", 64, "-z|--help", {0}},
      {"train --lr", 64, "--lr|above 0", {0}},
      {"train --lr nan", 64, "--lr 'nan'|above 0", {0}},
      {"train --groups x", 64, "--groups 'x': a whole number from 1 is needed", {0}},
      {LABELS "--groups 3", 64, "--groups 3|--hidden 8|1, 2, 4, 8", {0}},
      {LABELS "--synthetic 8", 64, "--data|--synthetic", {0}},
      {LABELS "--resume", 64, "--resume|--checkpoint", {0}},
      {LABELS "--log l.jsonl --plot p.pdf", 64, "p.pdf|.svg or .png", {0}},
      {"gradcheck --groups 3", 64, "--groups 3|--hidden 8", {0}},
      {"diff run.h5", 64, "diff A B", {0}},
      {"plot run.jsonl --out run.pdf", 64, "run.pdf|.svg", {0}},
  };
  CHECK(faults);
}

static void checks_and_files_are_explained(void **state) {
  (void)state;
  static const struct fault faults[] = {
      {"parity --quiet missing.h5", 66, "missing.h5", {0}},
      {"parity --quiet empty.h5", 65, "empty.h5|HDF5", {0}},
      {"parity --quiet good.h5", 65, "good.h5", {0}},
      {"info missing.h5", 66, "missing.h5", {0}},
      {"info empty.h5", 65, "empty.h5", {0}},
      {"info text.h5", 65, "text.h5|HDF5", {0}},
      {"verify missing.h5", 66, "missing.h5", {0}},
      {"diff run.h5 missing.h5", 66, "missing.h5", {0}},
      {"diff run.h5 good.h5", 65, "good.h5|checkpoint", {0}},
      {"diff cut-run.h5 run.h5", 65, "cut-run.h5", {0}},
      {"gradcheck --quiet --device cuda", 69, "--device cpu", {.no_gpu = 1}},
      {"plot missing.jsonl --out p.svg", 66, "missing.jsonl|--log", {0}},
      {"plot broken.jsonl --out p.svg", 65, "broken.jsonl, line 2", {0}},
      {"plot lacking.jsonl --out p.svg", 65, "lacking.jsonl, line 1|'loss'", {0}},
      {"plot none.jsonl --out p.svg", 65, "none.jsonl|log", {0}},
      {"plot run.h5 --out p.svg", 65, "run.h5, line 1", {0}},
      {"plot run.jsonl --out no/p.svg", 73, "no/p.svg", {0}},
      {"plot run.jsonl --out p.svg", 70, "gnuplot-nox", {.path = "/nowhere"}},
  };
  CHECK(faults);
}

static void training_faults_are_explained(void **state) {
  (void)state;
#define TRAIN(rest) "train --quiet --device cpu --hidden 8 --groups 2 --batch 6 --checkpoint new.h5 " rest
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
      {TRAIN("--data nan.h5"), 65, "nan.h5|x|row", {0}},
      {TRAIN("--data good.h5 --batch 25"), 64, "--batch 25|24", {0}},
      {TRAIN("--data good.h5 --loss mse"), 64, "--loss mse|cross-entropy", {0}},
      {TRAIN("--data good.h5 --head 2"), 64, "2 outputs|--head 3", {0}},
      {TRAIN("--data good.h5 --device cuda"), 69, "--device cpu", {.no_gpu = 1}},
      {TRAIN("--data good.h5 --checkpoint no/new.h5"), 73, "no", {0}},
      {TRAIN("--data good.h5 --checkpoint /proc/new.h5"), 73, "/proc", {0}},
      {TRAIN("--data good.h5 --log no/run.jsonl"), 73, "no/run.jsonl", {0}},
      {TRAIN("--data good.h5 --checkpoint run.h5"), 73, "run.h5|--resume", {0}},
      {TRAIN("--data good.h5 --resume"), 66, "new.h5", {0}},
      {TRAIN("--data good.h5 --epochs 2"), 74, "new.h5", {.largest = 4096}},
      {LABELS "--checkpoint run.h5 --resume --hidden 16", 64, "--hidden 16|8", {0}},
      {LABELS "--checkpoint run.h5 --resume --lr 0.5", 64, "--lr 0.5|0.05", {0}},
      {"train --quiet --checkpoint cut-run.h5 --resume", 65, "cut-run.h5", {0}},
      {"train --quiet --checkpoint good.h5 --resume", 65, "good.h5", {0}},
  };
  CHECK(faults);
}

static void reading_faults_are_explained(void **state) {
  (void)state;
#define EVAL(rest) "eval --quiet --device cpu " rest
#define PREDICT(rest) "predict --quiet --device cpu " rest
  static const struct fault faults[] = {
      {EVAL("--checkpoint missing.h5 --data good.h5"), 66, "missing.h5", {0}},
      {EVAL("--checkpoint cut-run.h5 --data good.h5"), 65, "cut-run.h5", {0}},
      {EVAL("--checkpoint good.h5 --data good.h5"), 65, "good.h5|checkpoint", {0}},
      {EVAL("--checkpoint run.h5 --data missing.h5"), 66, "missing.h5", {0}},
      {EVAL("--checkpoint run.h5 --data wider.h5"), 65, "wider.h5|5|4", {0}},
      {EVAL("--checkpoint run.h5 --data more-labels.h5"), 65, "more-labels.h5|8|3", {0}},
      {EVAL("--checkpoint run.h5 --data targets.h5"), 65, "targets.h5", {0}},
      {EVAL("--checkpoint run.h5 --data nan.h5"), 65, "nan.h5|x|row", {0}},
      {PREDICT("--checkpoint run.h5 --data wider.h5 --out p.h5"), 65, "wider.h5|5|4", {0}},
      {PREDICT("--checkpoint run.h5 --data good.h5 --out no/p.h5"), 73, "no", {0}},
      {PREDICT("--checkpoint run.h5 --data nan.h5 --out p.h5"), 65, "nan.h5|x|row", {0}},
  };
  CHECK(faults);
}

static void help_and_version(void **state) {
  (void)state;
  static const char *const commands[] = {"train", "eval", "predict", "gradcheck", "parity",
                                         "bench", "plot", "info",    "verify",    "diff"};
  const struct result *r = run("--version");
  assert_succeeds("--version", r);
  assert_true(strncmp(r->out, "minnow ", 7) == 0 && lines(r->out) == 1);
  char all[TEXT], line[64];
  r = run("--help");
  assert_succeeds("--help", r);
  strcpy(all, r->out);
  for (int i = 0; i < 10; i++) {
    snprintf(line, sizeof line, "\n  %s ", commands[i]);
    if (!strstr(all, line)) fail_msg("--help lists no %s", commands[i]);
    snprintf(line, sizeof line, "%s --help", commands[i]);
    r = run(line);
    assert_succeeds(line, r);
    assert_string_equal(r->err, "");
    snprintf(line, sizeof line, "Usage: minnow %s ", commands[i]);
    if (strncmp(r->out, line, strlen(line)) != 0) fail_msg("%s --help starts '%.60s'", commands[i], r->out);
  }
  r = run("train --help");
  assert_true(strstr(r->out, "--groups=G") && strstr(r->out, "(default 8)") &&
              strstr(r->out, "(default 0.05)"));
  assert_null(strstr(r->out, "--plans"));
}

static void a_lost_result_is_a_failure(void **state) {
  (void)state;
  static const char *const commands[] = {"--version", "train --help", "info --json run.h5",
                                         "gradcheck --quiet --json --device cpu"};
  for (int i = 0; i < 4; i++) {
    assert_complains(commands[i], run_in(commands[i], (struct circumstances){.out = "/dev/full"}), 74,
                     "space");
    assert_complains(commands[i], run_in(commands[i], (struct circumstances){.close_out = 1}), 74, "write");
  }
}

/* With stdout closed, a checkpoint must not become what stdout was. */
static void a_closed_stdout_reaches_no_file(void **state) {
  (void)state;
  const char *line = LABELS "--checkpoint closed.h5";
  assert_int_equal(run_in(line, (struct circumstances){.close_out = 1})->status, 74);
  assert_succeeds("verify closed.h5", run("verify closed.h5"));
  assert_succeeds("diff closed.h5 run.h5", run("diff closed.h5 run.h5"));
}

static void results_are_json(void **state) {
  (void)state;
  char line[PATH_MAX + 64];
  uint64_t before = snapshot();
  snprintf(line, sizeof line, "parity --quiet --json --device cpu %s", cases);
  const struct result *r = run(line);
  assert_succeeds(line, r);
  assert_object(line, r, "error|tolerance");
  assert_string_equal(r->err, "");
  static const struct {
    const char *line, *keys;
  } rows[] = {
      {"gradcheck --quiet --json --device cpu", "ok"},
      {"gradcheck --quiet --json --device cpu --hidden 8,4 --groups 2 --head 3 --loss cross-entropy --plan "
       "tail",
       "ok"},
      {"info --json run.h5", "step"},
      {"info --json good.h5", "shape|train"},
      {"verify --json run.h5", ""},
      {"diff --json run.h5 run.h5", ""},
      {"eval --quiet --json --device cpu --checkpoint run.h5 --data good.h5", "loss|accuracy"},
      {"bench --quiet --json --device cpu --batch 8 --in 8 --hidden 16",
       "forward_ms|forward_backward_ms|step_ms"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    r = run(rows[i].line);
    assert_succeeds(rows[i].line, r);
    assert_object(rows[i].line, r, rows[i].keys);
    assert_string_equal(r->err, "");
  }
  assert_true(snapshot() == before);
}

static void checks_that_fail_exit_with_1(void **state) {
  (void)state;
  char line[PATH_MAX + 64];
  snprintf(line, sizeof line, "parity --quiet --json --device cpu --tolerance 1e-30 %s", cases);
  const struct result *r = run(line);
  assert_int_equal(r->status, 1);
  assert_object(line, r, "error");
  assert_int_equal(lines(r->err), 1);
  r = run("gradcheck --quiet --json --device cpu --tolerance 1e-30");
  assert_int_equal(r->status, 1);
  assert_object("gradcheck", r, "");
  r = run("diff --json run.h5 other.h5");
  assert_int_equal(r->status, 1);
  assert_object("diff", r, "");
  assert_int_equal(lines(r->err), 1);
  r = run("verify --json cut-run.h5");
  assert_int_equal(r->status, 65);
  assert_int_equal(lines(r->err), 1);
}

/* A device that was not named is named on stderr, and results stay alone on stdout. */
static void auto_says_which_device(void **state) {
  (void)state;
  const struct result *r = run_in("gradcheck --json", (struct circumstances){.no_gpu = 1});
  assert_succeeds("gradcheck", r);
  assert_non_null(strstr(r->err, "CPU"));
  assert_object("gradcheck", r, "");
  r = run_in("bench --json --precision tf32 --batch 4 --in 4 --hidden 16 --device cpu",
             (struct circumstances){0});
  assert_succeeds("bench", r);
  assert_non_null(strstr(r->err, "fp32 on the CPU"));
}

static void pictures_are_drawn(void **state) {
  (void)state;
  static const struct { const char *name, *start; } rows[] = {{"p.svg", "<?xml"}, {"p.png", "\x89PNG"}};
  for (int i = 0; i < 2; i++) {
    char line[128], start_of_file[8] = "";
    snprintf(line, sizeof line, "plot run.jsonl --out %s", rows[i].name);
    const struct result *r = run(line);
    if (r->status == 70 && strstr(r->err, "gnuplot-nox")) skip();
    assert_succeeds(line, r);
    FILE *file = fopen(rows[i].name, "rb");
    assert_non_null(file);
    assert_true(fread(start_of_file, 1, strlen(rows[i].start), file) == strlen(rows[i].start));
    assert_memory_equal(start_of_file, rows[i].start, strlen(rows[i].start));
    fclose(file);
  }
  /* A name full of quotes and commands is a name, and nothing else. */
  write_text("it's`touch oops`.jsonl", "{\"event\":\"eval\",\"step\":3,\"test_loss\":0.5}\n");
  rename("it's`touch oops`.jsonl", "it's`touch\toops`.jsonl");
  assert_succeeds("plot", run("plot it's`touch\toops`.jsonl run.jsonl --out |p.svg"));
  assert_int_equal(access("oops", F_OK), -1);
  assert_int_equal(access("|p.svg", F_OK), 0);
  /* A line that is still being written is none yet; null is a loss that was not finite. */
  write_text("live.jsonl", "{\"event\":\"step\",\"step\":1,\"loss\":null,\"rate\":0.5}\n{\"event\":\"st");
  assert_succeeds("plot", run("plot live.jsonl --out p.svg"));
}

static void finished_runs_resume_to_nothing(void **state) {
  (void)state;
  uint64_t before = snapshot();
  assert_succeeds("resume", run("train --quiet --device cpu --checkpoint run.h5 --resume"));
  assert_true(snapshot() == before);
}

/* Waits for `path` to hold something, at most half a minute. */
static void wait_for_file(const char *path) {
  struct stat status;
  for (int i = 0; i < 3000; i++) {
    if (stat(path, &status) == 0 && status.st_size > 0) return;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  fail_msg("%s did not come", path);
}

static void signals_save_and_exit_with_75(void **state) {
  (void)state;
  static const int signals[] = {SIGINT, SIGTERM};
  for (int i = 0; i < 2; i++) {
    char name[32], line[256];
    snprintf(name, sizeof name, "signal-%d.jsonl", i);
    snprintf(line, sizeof line,
             "train --quiet --device cpu --synthetic 100 --in 8 --hidden 8 --batch 10 --steps 1000000000 "
             "--log-every 1 "
             "--log %s --checkpoint signal-%d.h5",
             name, i);
    int out = temporary_file(), err = temporary_file();
    pid_t child = start(line, out, err, &(struct circumstances){0});
    wait_for_file(name);
    assert_int_equal(kill(child, signals[i]), 0);
    int status = wait_for(child);
    static char text[TEXT];
    read_all(text, err);
    if (status != 75) fail_msg("a signal ends in %d: %s", status, text);
    assert_int_equal(lines(text), 1);
    assert_non_null(strstr(text, "--resume"));
    close(out);
    close(err);
    snprintf(line, sizeof line, "verify signal-%d.h5", i);
    assert_succeeds(line, run(line));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(usage_is_explained),
      cmocka_unit_test(checks_and_files_are_explained),
      cmocka_unit_test(training_faults_are_explained),
      cmocka_unit_test(reading_faults_are_explained),
      cmocka_unit_test(help_and_version),
      cmocka_unit_test(a_lost_result_is_a_failure),
      cmocka_unit_test(a_closed_stdout_reaches_no_file),
      cmocka_unit_test(results_are_json),
      cmocka_unit_test(checks_that_fail_exit_with_1),
      cmocka_unit_test(auto_says_which_device),
      cmocka_unit_test(pictures_are_drawn),
      cmocka_unit_test(finished_runs_resume_to_nothing),
      cmocka_unit_test(signals_save_and_exit_with_75),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
