/* From logs to a picture: writes the points that the curves need before the script plot.gp, as its data. */
#include "train/command/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/text.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/session.h"
#include "train/runs/folder.h"

MN_EMBED(paper_script, "train/command/gnuplot.gp");
MN_EMBED(plot_script, "train/command/plot.gp");

/* A point of training: step, loss, rate; or of an evaluation on the test set: step, loss, accuracy in
 * percent. NaN for a value that is missing or was not finite. */
enum { STEP, LOSS, RATE, ACCURACY = RATE, VALUES };

enum { TRAIN, TEST };
struct run {
  const char *path;
  double epoch, pace; /* the last epoch, and steps an epoch; 0 if unknown */
  int64_t points[2];
  double end[2], accuracy; /* the last finite losses, −1 without one; the last accuracy, NaN without one */
};

/* Reading logs. */

static void put_number(FILE *script, double value) {
  if (isfinite(value))
    fprintf(script, " %.9g", value);
  else
    fputs(" NaN", script);
}

static mn_status add_line(FILE *script[2], struct run *run, int64_t number, const json_t *line) {
  static const char *const fields[][VALUES] = {{"step", "loss", "rate"},
                                               {"step", "test_loss", "test_accuracy"}};
  const char *event = json_string_value(json_object_get(line, "event"));
  int test = event && strcmp(event, "eval") == 0 ? TEST : TRAIN;
  if (!event || (!test && strcmp(event, "step") != 0)) return MN_OK;
  double values[VALUES];
  for (int i = 0; i < VALUES; i++) {
    const json_t *value = json_object_get(line, fields[test][i]);
    values[i] = json_is_number(value) ? json_number_value(value) : NAN;
    int lacks = i == STEP ? !json_is_number(value) : !json_is_number(value) && !json_is_null(value);
    if (lacks && !(test && i == ACCURACY))
      return mn_fail(MN_BAD_DATA,
                     "%s, line %ld: an event '%s' without the number '%s'; is it a log of minnow train?",
                     run->path, (long)number, event, fields[test][i]);
    /* gnuplot's words for these name neither file nor value. */
    const double v = values[i], most = i == STEP ? 0x1p53 : test && i == ACCURACY ? 1 : 1e300;
    if (v < 0 || v > most || (v > 0 && v < 1e-300) || (i == STEP && v != floor(v)))
      return mn_fail(MN_BAD_DATA, "%s, line %ld: '%s' is %.9g, wrong in a log or beyond gnuplot's range",
                     run->path, (long)number, fields[test][i], v);
  }
  if (test) values[ACCURACY] *= 100;
  for (int i = 0; i < VALUES; i++) put_number(script[test], values[i]);
  putc('\n', script[test]);
  run->points[test]++;
  if (isfinite(values[LOSS])) run->end[test] = values[LOSS];
  if (test) run->accuracy = values[ACCURACY];
  const double epoch = json_number_value(json_object_get(line, "epoch"));
  if (epoch > run->epoch) run->epoch = epoch, run->pace = values[STEP] / epoch;
  return MN_OK;
}

/* Writes the points of a log, of training and of evaluations. In gnuplot two empty lines end a run's points;
 * a run without any gets one of NaN, so that the runs after it keep their numbers. Refuses a pipe: to open
 * one would wait for a writer. */
static mn_status read_log(FILE *script[2], struct run *run, const char *path) {
  struct stat about;
  char in_run[MN_ATOMIC_FILE_PATH];
  const char *const named = path;
  path = mn_run_read(in_run, path, MN_RUN_LOG);
  const int there = stat(path, &about) == 0, regular = there && S_ISREG(about.st_mode);
  FILE *file = regular ? fopen(path, "re") : NULL;
  char *text = NULL;
  size_t room = 0;
  ssize_t length;
  mn_status status = MN_OK;
  *run = (struct run){.path = named, .end = {-1, -1}, .accuracy = NAN};
  if (!file)
    return mn_fail(MN_NO_INPUT, "cannot read %s: %s; name a run or its log.jsonl", path,
                   there && !regular ? "it is no regular file" : strerror(errno));
  /* A last line without its end is still being written. */
  for (int64_t number = 1;
       status == MN_OK && (length = getline(&text, &room, file)) > 0 && text[length - 1] == '\n'; number++) {
    json_t *line = json_loadb(text, (size_t)length, 0, NULL);
    if (json_is_object(line))
      status = add_line(script, run, number, line);
    else
      status = mn_fail(MN_BAD_DATA, "%s, line %ld is no JSON object; a log of minnow train is needed", path,
                       (long)number);
    json_decref(line);
  }
  if (status == MN_OK && length < 0 && !feof(file))
    status = mn_fail(MN_NO_INPUT, "cannot read %s: %s; name a log of minnow train", path, strerror(errno));
  free(text);
  fclose(file);
  for (int which = TRAIN; which <= TEST; which++)
    fputs(run->points[which] ? "\n\n" : "NaN NaN NaN\n\n\n", script[which]);
  if (status == MN_OK && run->points[TRAIN] + run->points[TEST] == 0)
    return mn_fail(MN_BAD_DATA, "%s holds no step and no evaluation; a log of minnow train is needed", path);
  return status;
}

/* The script's data. */

/* Between single quotes gnuplot does not expand escapes; a quote is doubled. */
static void put_text(FILE *script, const char *text) {
  putc('\'', script);
  for (char next[5]; *text;) {
    if (*text == '\'') putc('\'', script);
    text += mn_escape_next(next, text);
    fputs(next, script);
  }
  putc('\'', script);
}

static void put_runs(FILE *script, const struct run *runs, int count) {
  double pace = runs[0].pace;
  fprintf(script, "runs = %d\narray name[runs]\n", count);
  fputs("array trains[runs]\narray tests[runs]\narray end[runs]\narray last[runs]\narray points[runs]\n",
        script);
  for (int i = 0; i < count; i++) {
    const struct run *r = &runs[i];
    if (fabs(r->pace - pace) > 0.01 * pace) pace = 0;
    fprintf(script, "trains[%d] = %d\ntests[%d] = %d\n", i + 1, r->points[TRAIN] > 0, i + 1,
            r->points[TEST] > 0);
    fprintf(script, "points[%d] = %ld\nname[%d] = ", i + 1, (long)r->points[TRAIN], i + 1);
    put_text(script, r->path);
    fprintf(script, "\nend[%d] = %.9g\nlast[%d] =", i + 1, r->end[TRAIN] >= 0 ? r->end[TRAIN] : r->end[TEST],
            i + 1);
    put_number(script, r->accuracy);
    putc('\n', script);
  }
  fprintf(script, "pace = %.9g\n", pace);
}

static mn_status no_room(void) {
  return mn_fail(MN_IO,
                 "cannot write gnuplot's script; is there room in /tmp, and for such a file (ulimit -f)?");
}

static int is_png(const char *path) {
  const size_t length = strlen(path);
  return length > 4 && strcmp(path + length - 4, ".png") == 0;
}

/* Writes the script with its data. The points of evaluations go to `tests` first, since those of all runs
 * come after those of training. */
static mn_status write_script(FILE *script, FILE *tests, const char *out, char **logs, int count,
                              struct run *runs) {
  fprintf(script, "png = %d\nheight = 720\n%s$train << END\n", is_png(out), paper_script);
  for (int i = 0; i < count; i++) MN_TRY(read_log((FILE *[]){script, tests}, &runs[i], logs[i]));
  fputs("END\n$test << END\n", script);
  if (fseeko(tests, 0, SEEK_SET) != 0) return no_room(); /* rewind would forget an error */
  for (int c; (c = getc(tests)) != EOF;) putc(c, script);
  fputs("END\n", script);
  put_runs(script, runs, count);
  fputs(plot_script, script);
  if (fflush(script) == 0 && !ferror(script) && !ferror(tests)) return MN_OK;
  return no_room();
}

/* The last line of gnuplot's errors that is not empty. */
static void read_reason(FILE *errors, char *out, size_t size) {
  char text[512];
  snprintf(out, size, "it did not say why");
  rewind(errors);
  while (fgets(text, sizeof text, errors)) {
    text[strcspn(text, "\n")] = 0;
    const char *start = text + strspn(text, " \t");
    if (*start) snprintf(out, size, "%.200s", start);
  }
}

/* Starts gnuplot without the user's start-up files (-d) and terminal, so that a picture depends on its script
 * alone. *picture: the end of a pipe to read from. Returns errno or 0. */
static int start_gnuplot(pid_t *child, FILE **picture, FILE *script, FILE *errors) {
  posix_spawn_file_actions_t files;
  int ends[2];
  if (lseek(fileno(script), 0, SEEK_SET) < 0 || pipe2(ends, O_CLOEXEC) != 0) return errno;
  unsetenv("GNUTERM");
  MN_REQUIRE(posix_spawn_file_actions_init(&files) == 0 &&
             posix_spawn_file_actions_adddup2(&files, fileno(script), STDIN_FILENO) == 0 &&
             posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO) == 0 &&
             posix_spawn_file_actions_adddup2(&files, fileno(errors), STDERR_FILENO) == 0);
  const int error = posix_spawnp(child, "gnuplot", &files, NULL, (char *[]){"gnuplot", "-d", NULL}, environ);
  (void)posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  *picture = fdopen(ends[0], "r");
  MN_REQUIRE(*picture);
  return error;
}

/* Copies gnuplot's picture into the file, since gnuplot does not check its own writes. */
static mn_status run_gnuplot(FILE *to, const char *path, FILE *script, FILE *errors) {
  char bytes[1 << 14], reason[256];
  int how = 0, error = 0;
  pid_t child;
  FILE *picture = NULL;
  size_t count, size = 0;
  const int cannot = start_gnuplot(&child, &picture, script, errors);
  for (; picture && !error && (count = fread(bytes, 1, sizeof bytes, picture)) > 0; size += count)
    if (fwrite(bytes, 1, count, to) < count || fflush(to) != 0) error = errno;
  if (picture) fclose(picture);
  if (cannot == ENOENT)
    return mn_fail(MN_LIBRARY, "gnuplot cannot be started; install the package gnuplot-nox");
  if (cannot || TEMP_FAILURE_RETRY(waitpid(child, &how, 0)) < 0)
    return mn_fail(MN_LIBRARY, "gnuplot cannot be run: %s", strerror(cannot ? cannot : errno));
  if (error) return mn_atomic_file_fail("write", path, error);
  read_reason(errors, reason, sizeof reason);
  if (how == 0 && size > 0) return MN_OK;
  return mn_fail(MN_LIBRARY, "gnuplot failed: %s; it needs gnuplot-nox and fonts-dejavu-core", reason);
}

mn_status mn_plot(const char *out, int replace, char **logs, int count) {
  MN_REQUIRE(count > 0);
  struct mn_atomic_file file = {.fd = -1};
  struct run *runs = calloc((size_t)count, sizeof *runs);
  FILE *script = tmpfile(), *tests = tmpfile(), *errors = tmpfile();
  mn_status status = MN_OK;
  if (!runs)
    status = mn_fail(MN_NO_MEMORY, "no memory for %d logs", count);
  else if (!script || !tests || !errors)
    status = mn_fail(MN_IO, "no temporary file for gnuplot: %s; is there room in /tmp?", strerror(errno));
  if (status == MN_OK) status = write_script(script, tests, out, logs, count, runs);
  if (status == MN_OK) status = mn_atomic_file_create(&file, out);
  const int copy = status == MN_OK ? dup(file.fd) : -1;
  FILE *to = copy < 0 ? NULL : fdopen(copy, "w");
  if (status == MN_OK && !to) status = mn_fail(MN_LIBRARY, "gnuplot cannot be run: %s", strerror(errno));
  if (status == MN_OK) status = run_gnuplot(to, out, script, errors);
  if (status == MN_OK) status = mn_atomic_file_publish(&file, replace);
  mn_atomic_file_discard(&file); /* once it is published, this does nothing */
  if (script) fclose(script);
  if (tests) fclose(tests);
  if (errors) fclose(errors);
  if (to) fclose(to);
  free(runs);
  return status;
}
