/* What the tests of the program share: running it as people do, with what it says caught, in a folder of its
 * own that holds a dataset, two runs and a damaged one.
 *
 * $MINNOW names the program (build/minnow by default). */
#ifndef MN_TESTS_COMMAND_RUN_H
#define MN_TESTS_COMMAND_RUN_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hdf5_made.h"
#include "tests/skip.h"

enum { WORDS = 64, TEXT = 1 << 16 };

static char program[PATH_MAX], folder[] = "/tmp/minnow-command-XXXXXX";

/* Running the program. */

struct circumstances {
  const char *out;  /* where stdout goes; NULL: it is caught */
  const char *path; /* $PATH; NULL: as it is */
  long largest;     /* bytes that a file may have; 0: any number */
  int files;        /* that may be open; 0: as many as here */
  int no_gpu;       /* no GPU can be seen */
  int close_out;    /* stdout is closed */
};

struct result {
  int status; /* exit code; 128 + number of a signal */
  char out[TEXT], err[TEXT];
};

static inline void read_all(char *text, int fd) {
  assert_true(lseek(fd, 0, SEEK_SET) == 0);
  size_t used = 0;
  for (ssize_t got; used < TEXT - 1 && (got = read(fd, text + used, TEXT - 1 - used)) > 0;)
    used += (size_t)got;
  text[used] = 0;
}

static inline int temporary_file(void) {
  char name[] = "/tmp/minnow-caught-XXXXXX";
  int fd = mkstemp(name);
  assert_true(fd >= 0);
  unlink(name);
  return fd;
}

static inline void become(char **argv, int out, int err, const struct circumstances *how) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing running */
  if (how->out) out = open(how->out, O_WRONLY);
  if (out < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(120);
  if (how->close_out) close(1);
  if (how->largest) {
    struct rlimit limit = {(rlim_t)how->largest, (rlim_t)how->largest};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(121);
  }
  if (how->files) {
    struct rlimit limit = {(rlim_t)how->files, (rlim_t)how->files};
    for (int fd = 3; fd < 64; fd++) close(fd);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(123);
  }
  if (how->no_gpu) setenv("CUDA_VISIBLE_DEVICES", "", 1);
  if (how->path) setenv("PATH", how->path, 1);
  /* Waiting threads that spin take minutes where other programs want the cores too. */
  setenv("OMP_WAIT_POLICY", "passive", 0);
  execv(program, argv);
  _exit(122);
}

/* Starts "train --lr 0.1 …", split at blanks. */
static inline pid_t start(const char *line, int out, int err, const struct circumstances *how) {
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

static inline int wait_for(pid_t child) {
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static inline const struct result *run_in(const char *line, struct circumstances how) {
  static struct result result;
  int out = temporary_file(), err = temporary_file();
  result.status = wait_for(start(line, out, err, &how));
  read_all(result.out, out);
  read_all(result.err, err);
  close(out);
  close(err);
  return &result;
}

static inline const struct result *run(const char *line) {
  return run_in(line, (struct circumstances){0});
}

/* What it should have said. */

static inline int lines(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

/* Exit code `status`, nothing on stdout, and on stderr one line that names each of the `words` (a|b|c). */
static inline void assert_complains(const char *line, const struct result *r, int status, const char *words) {
  if (r->status != status) fail_msg("'%s' exits with %d, not %d: %s", line, r->status, status, r->err);
  const char *error = r->err;
  while (strncmp(error, "minnow: warning: ", 17) == 0 && strchr(error, '\n')) error = strchr(error, '\n') + 1;
  if (lines(error) != 1 || strncmp(error, "minnow: ", 8) != 0)
    fail_msg("'%s' should say one line on stderr that starts 'minnow: ', not '%s'", line, r->err);
  if (r->out[0]) fail_msg("'%s' says '%s' on stdout", line, r->out);
  char list[512];
  assert_true(strlen(words) < sizeof list);
  strcpy(list, words);
  for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
    if (!strstr(r->err, word)) fail_msg("'%s' says '%s', without '%s'", line, r->err, word);
}

static inline void assert_succeeds(const char *line, const struct result *r) {
  if (r->status != 0) fail_msg("'%s' exits with %d: %s", line, r->status, r->err);
}

static inline const struct result *run_well(const char *line) {
  const struct result *r = run(line);
  assert_succeeds(line, r);
  return r;
}

/* Every file in the folder, name and bytes, in one number; whatever changes, changes it. */
static uint64_t seen;

static inline int see(const char *path, const struct stat *status, int kind, struct FTW *where) {
  uint64_t hash = 1469598103934665603u;
  for (const char *c = path; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  hash = (hash ^ status->st_mode) * 1099511628211u;
  FILE *file = kind == FTW_F && S_ISREG(status->st_mode) ? fopen(path, "rb") : NULL;
  if (file)
    for (int c; (c = getc(file)) != EOF;) hash = (hash ^ (uint64_t)c) * 1099511628211u;
  if (file) fclose(file);
  seen += hash ^ hash >> 29;
  return 0;
}

static inline uint64_t snapshot(void) {
  seen = 0;
  assert_int_equal(nftw(".", see, 16, FTW_PHYS), 0);
  return seen;
}

static inline void assert_same_file(const char *a, const char *b) {
  int more, offset = 0;
  FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
  assert_true(x && y);
  do {
    more = getc(x);
    if (more != getc(y)) fail_msg("%s and %s differ at byte %d", a, b, offset);
    offset++;
  } while (more != EOF);
  fclose(x);
  fclose(y);
}

static inline int sweep(const char *path, const struct stat *status, int kind, struct FTW *where) {
  return remove(path);
}

/* Files to run on. */

/* Removes the folder of a run, if there is one. */
static inline void forget(const char *name) {
  (void)nftw(name, sweep, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void put(hid_t file, const char *name, hid_t type, int rank, const hsize_t *sizes,
                       const void *values) {
  put_dataset(file, name, type, rank, sizes, H5P_DEFAULT, type, values);
}

enum { N = 24, I = 4 };

/* What is wrong with a dataset; each is a file of that name. */
enum flaw { NONE, NO_X, NO_Y, RANK, TYPE, NEGATIVE, NOT_A_NUMBER, UNEVEN, WIDER, MORE_LABELS };

static inline void write_dataset(const char *name, enum flaw flaw) {
  static float x[N * (I + 1)];
  int labels[N];
  char words[N * I][4];
  memset(words, 'a', sizeof words);
  for (int i = 0; i < N * (I + 1); i++) x[i] = (float)((i * 37 + i * i % 11) % 23) / 11 - 1;
  for (int i = 0; i < N; i++) labels[i] = i % 3 + (flaw == MORE_LABELS && i % 3 ? 5 : 0);
  if (flaw == NEGATIVE) labels[5] = -1;
  if (flaw == NOT_A_NUMBER) x[17] = nanf("");
  hid_t file = create_file(name);
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

static inline void write_text(const char *name, const char *text) {
  FILE *file = fopen(name, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

/* The first part of a file, as a copy that was cut off has it. */
static inline void cut(const char *to, const char *from) {
  static char bytes[1 << 20];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  assert_true(in && out);
  size_t length = fread(bytes, 1, sizeof bytes, in);
  assert_true(length > 100);
  fwrite(bytes, 1, length * 2 / 3, out);
  fclose(in);
  assert_int_equal(fclose(out), 0);
}

/* A run on good.h5, less what it writes. */
#define LABELS "train --quiet --device cpu --data good.h5 --hidden 8 --groups 2 --batch 6 --epochs 2 "

static inline int set_up(void **state) {
  char cases[PATH_MAX];
  const char *minnow = getenv("MINNOW");
  if (!realpath(minnow ? minnow : "build/minnow", program) || !realpath("tests/golden/block.h5", cases) ||
      !mkdtemp(folder) || chdir(folder) != 0 || symlink(cases, "cases.h5") != 0) {
    fprintf(stderr, "%s: %s; build it first, and run this from the folder of the sources\n",
            minnow ? minnow : "build/minnow", strerror(errno));
    return -1;
  }
  write_dataset("good.h5", NONE);
  assert_succeeds("train", run(LABELS "--run run"));
  assert_succeeds("train", run(LABELS "--run other --seed 1"));
  cut("cut-run.h5", "run/checkpoint.h5");
  return 0;
}

static inline int tear_down(void **state) {
  return chdir("/") == 0 && nftw(folder, sweep, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : -1;
}

#endif
