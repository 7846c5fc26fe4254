/* From logs to a picture: reads the lines that the curves need, writes them with a script for gnuplot, and
 * puts what gnuplot draws in place of the old picture when it is whole.
 *
 * gnuplot is started without a shell, with files for its input, output and errors: no name of a file is ever
 * part of a command, and nobody waits for anybody else's pipe. */
#include "train/command/plot.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"

extern char **environ;

/* One line of a log, as far as it is of interest. */
enum { STEP, LOSS, RATE, TEST_LOSS, TEST_ACCURACY, FIELDS };
static const char *const fields[FIELDS] = {"step", "loss", "rate", "test_loss", "test_accuracy"};

struct line {
  char event[16];
  double values[FIELDS]; /* NaN where there is none; also of null, which stands for what is not finite */
  int there[FIELDS];
};

/* A point of training: step, loss, rate; or of an evaluation: step, test loss, test accuracy. */
struct point {
  double step, first, second;
};

struct series {
  struct point *points;
  int64_t count, room;
};

struct run {
  const char *path, *name; /* name: for the legend, points into path */
  struct series train, test;
};

/* Reading JSON: only as much of it as says whether a line is whole and where its numbers are. */

static void skip_blanks(const char **at) {
  *at += strspn(*at, " \t\r\n");
}

static int take_mark(const char **at, char mark) {
  skip_blanks(at);
  if (**at != mark) return 0;
  (*at)++;
  return 1;
}

/* A string; the start of it, raw, in out. */
static int take_string(const char **at, char *out, size_t size) {
  if (!take_mark(at, '"')) return 0;
  size_t used = 0;
  for (; **at && **at != '"'; (*at)++) {
    if (used + 1 < size) out[used++] = **at;
    if (**at == '\\' && (*at)[1]) (*at)++;
  }
  if (size) out[used] = 0;
  return take_mark(at, '"');
}

static int take_number(const char **at, double *out) {
  size_t length = strspn(*at, "0123456789+-.eE");
  char *end;
  if (length == 0) return 0;
  *out = strtod(*at, &end);
  if (end != *at + length) return 0;
  *at = end;
  return 1;
}

static int take_word(const char **at, const char *word) {
  if (strncmp(*at, word, strlen(word)) != 0) return 0;
  *at += strlen(word);
  return 1;
}

/* Any value; a number, or null as NaN, in *number, and 2 is returned. 1: something else, 0: nothing whole. */
static int take_value(const char **at, double *number, int depth) {
  double ignored;
  skip_blanks(at);
  if (**at == '"') return take_string(at, NULL, 0);
  if (**at == '{' || **at == '[') {
    char close = **at == '{' ? '}' : ']';
    if (depth == 0) return 0;
    (*at)++;
    if (take_mark(at, close)) return 1;
    do {
      if (close == '}' && (!take_string(at, NULL, 0) || !take_mark(at, ':'))) return 0;
      if (!take_value(at, &ignored, depth - 1)) return 0;
    } while (take_mark(at, ','));
    return take_mark(at, close);
  }
  *number = NAN;
  if (take_number(at, number) || take_word(at, "null")) return 2;
  return take_word(at, "true") || take_word(at, "false");
}

/* Whether `text` is one object and nothing else. */
static int parse_line(struct line *line, const char *text) {
  *line = (struct line){.event = ""};
  if (!take_mark(&text, '{')) return 0;
  if (!take_mark(&text, '}')) {
    do {
      char key[24];
      double number = NAN;
      if (!take_string(&text, key, sizeof key) || !take_mark(&text, ':')) return 0;
      skip_blanks(&text);
      if (strcmp(key, "event") == 0 && *text == '"') {
        if (!take_string(&text, line->event, sizeof line->event)) return 0;
        continue;
      }
      int kind = take_value(&text, &number, 16);
      if (!kind) return 0;
      for (int i = 0; i < FIELDS && kind == 2; i++)
        if (strcmp(key, fields[i]) == 0) line->there[i] = 1, line->values[i] = number;
    } while (take_mark(&text, ','));
    if (!take_mark(&text, '}')) return 0;
  }
  skip_blanks(&text);
  return *text == 0;
}

/* Reading logs. */

static mn_status add_point(struct series *series, const struct line *line, int first, int second) {
  struct point point = {line->values[STEP], line->values[first], line->values[second]};
  /* A log that was resumed from an earlier step says the steps in between twice: the later word holds. */
  while (series->count > 0 && series->points[series->count - 1].step >= point.step) series->count--;
  if (series->count == series->room) {
    int64_t room = series->room ? 2 * series->room : 256;
    struct point *more = realloc(series->points, (size_t)room * sizeof *more);
    if (!more) return mn_fail(MN_NO_MEMORY, "no memory for the points of a log");
    series->points = more;
    series->room = room;
  }
  series->points[series->count++] = point;
  return MN_OK;
}

static mn_status need_fields(const struct run *run, int64_t number, const struct line *line, int first,
                             int second) {
  const int needed[] = {STEP, first, second};
  for (int i = 0; i < 3; i++)
    if (needed[i] >= 0 && (!line->there[needed[i]] || (needed[i] == STEP && !isfinite(line->values[STEP]))))
      return mn_fail(MN_BAD_DATA,
                     "%s, line %ld: an event '%s' without the number '%s'; is it a log of minnow train?",
                     run->path, (long)number, line->event, fields[needed[i]]);
  return MN_OK;
}

static mn_status add_line(struct run *run, int64_t number, const struct line *line) {
  if (strcmp(line->event, "step") == 0) {
    MN_TRY(need_fields(run, number, line, LOSS, RATE));
    return add_point(&run->train, line, LOSS, RATE);
  }
  if (strcmp(line->event, "eval") == 0) {
    MN_TRY(need_fields(run, number, line, TEST_LOSS, -1));
    struct line whole = *line;
    if (!whole.there[TEST_ACCURACY]) whole.values[TEST_ACCURACY] = NAN;
    return add_point(&run->test, &whole, TEST_LOSS, TEST_ACCURACY);
  }
  return MN_OK;
}

static mn_status read_lines(struct run *run, FILE *file) {
  char *text = NULL;
  size_t room = 0;
  mn_status status = MN_OK;
  int64_t number = 1;
  for (ssize_t length; status == MN_OK && (length = getline(&text, &room, file)) > 0; number++) {
    struct line line;
    if (text[length - 1] != '\n') break; /* still being written */
    if (strlen(text) != (size_t)length || !parse_line(&line, text))
      status = mn_fail(MN_BAD_DATA, "%s, line %ld is no JSON object; a log of minnow train is needed",
                       run->path, (long)number);
    else
      status = add_line(run, number, &line);
  }
  free(text);
  if (status == MN_OK && ferror(file))
    status =
        mn_fail(MN_NO_INPUT, "cannot read %s: %s; name a log of minnow train", run->path, strerror(errno));
  return status;
}

static mn_status read_log(struct run *run, const char *path) {
  const char *slash = strrchr(path, '/');
  run->path = path;
  run->name = slash ? slash + 1 : path;
  FILE *file = fopen(path, "re");
  if (!file)
    return mn_fail(MN_NO_INPUT, "cannot read %s: %s; name a log that minnow train --log wrote", path,
                   strerror(errno));
  mn_status status = read_lines(run, file);
  fclose(file);
  if (status == MN_OK && run->train.count == 0 && run->test.count == 0)
    return mn_fail(MN_BAD_DATA, "%s holds no step and no evaluation; a log of minnow train is needed", path);
  return status;
}

/* The script. */

struct range {
  double least, most; /* infinity and −infinity: of nothing */
};

struct picture {
  FILE *script;
  struct run *runs;
  int count;
  int logarithmic; /* the losses span more than a decade or so */
  double last;     /* the last step of all */
  struct range loss, accuracy, rate;
};

/* One hue a run, readable beside each other for the colour-blind too; a run alone has the second for its test
 * set. */
static const char *const hues[] = {"0072B2", "D55E00", "009E73", "CC79A7", "E69F00", "56B4E9", "000000"};

static const char *hue(int which) {
  return hues[which % (int)(sizeof hues / sizeof *hues)];
}

static const char *test_hue(const struct picture *p, int which) {
  return hue(p->count == 1 ? 1 : which);
}

/* Between single quotes gnuplot replaces nothing; a quote is doubled. */
static void put_quoted(FILE *script, const char *text) {
  putc('\'', script);
  for (; *text; text++) {
    if (*text == '\'') putc('\'', script);
    putc((unsigned char)*text < 0x20 ? '?' : *text, script);
  }
  putc('\'', script);
}

static void put_number(FILE *script, double value) {
  if (isfinite(value))
    fprintf(script, " %.9g", value);
  else
    fputs(" NaN", script);
}

/* One pass of exponential weights over about a fiftieth of the run, added to `sums`, each value divided by
 * the weights that there are. */
static void smooth_pass(double *sums, const struct series *train, int logarithmic, int backward) {
  double keep = 1 - 2 / ((double)train->count / 50 + 2), sum = 0, weight = 0;
  for (int64_t k = 0; k < train->count; k++) {
    int64_t i = backward ? train->count - 1 - k : k;
    double loss = logarithmic ? log(train->points[i].first) : train->points[i].first;
    if (isfinite(loss)) {
      sum = keep * sum + (1 - keep) * loss;
      weight = keep * weight + (1 - keep);
    }
    sums[i] += weight > 0 ? sum / weight : NAN;
  }
}

/* Training points with the smoothed loss as fourth column: smoothed as it is drawn, so that it lies in the
 * middle of the raw one, and from both sides, so that it does not lag. */
static mn_status put_train(const struct picture *p, int which) {
  const struct series *train = &p->runs[which].train;
  double *sums = calloc((size_t)train->count + 1, sizeof *sums);
  if (!sums) return mn_fail(MN_NO_MEMORY, "no memory for the points of a log");
  smooth_pass(sums, train, p->logarithmic, 0);
  smooth_pass(sums, train, p->logarithmic, 1);
  fprintf(p->script, "$train%d << END\n", which);
  for (int64_t i = 0; i < train->count; i++) {
    put_number(p->script, train->points[i].step);
    put_number(p->script, train->points[i].first);
    put_number(p->script, train->points[i].second);
    put_number(p->script, p->logarithmic ? exp(sums[i] / 2) : sums[i] / 2);
    putc('\n', p->script);
  }
  fputs("END\n", p->script);
  free(sums);
  return MN_OK;
}

static void put_test(FILE *script, const struct series *test, int which) {
  fprintf(script, "$test%d << END\n", which);
  for (int64_t i = 0; i < test->count; i++) {
    put_number(script, test->points[i].step);
    put_number(script, test->points[i].first);
    put_number(script, 100 * test->points[i].second);
    putc('\n', script);
  }
  fputs("END\n", script);
}

static void widen(struct range *range, double value) {
  if (!isfinite(value)) return;
  range->least = fmin(range->least, value);
  range->most = fmax(range->most, value);
}

/* What decides on panels and axes. */
static void survey(struct picture *p) {
  struct range nothing = {INFINITY, -INFINITY};
  p->loss = p->rate = p->accuracy = nothing;
  for (int i = 0; i < p->count; i++) {
    const struct series *train = &p->runs[i].train, *test = &p->runs[i].test;
    for (int64_t k = 0; k < train->count; k++) {
      widen(&p->loss, train->points[k].first);
      widen(&p->rate, train->points[k].second);
    }
    for (int64_t k = 0; k < test->count; k++) {
      widen(&p->loss, test->points[k].first);
      widen(&p->accuracy, 100 * test->points[k].second);
    }
    if (train->count) p->last = fmax(p->last, train->points[train->count - 1].step);
    if (test->count) p->last = fmax(p->last, test->points[test->count - 1].step);
  }
  p->logarithmic = p->loss.least > 0 && p->loss.most > 20 * p->loss.least;
}

static int has_accuracy(const struct picture *p) {
  return p->accuracy.least <= p->accuracy.most;
}

/* A panel between two heights of the page. Its label stands where those of the others do, however wide the
 * numbers beside it are. */
static void open_panel(const struct picture *p, const char *label, double top, double bottom, int lowest) {
  fprintf(p->script, "set tmargin at screen %.3f\nset bmargin at screen %.3f\n", top, bottom);
  fprintf(p->script, "set label 1 '%s' at screen 0.022, graph 0.5 center rotate textcolor rgb '#303030'\n",
          label);
  fprintf(p->script, "unset logscale y\nset format y '%%h'\nset yrange [*:*]\nset ytics autofreq\n");
  if (lowest)
    fputs("set format x '%h'\nset xlabel 'optimizer step' textcolor rgb '#303030'\n", p->script);
  else
    fputs("set format x ''\nunset xlabel\n", p->script);
}

/* An axis from `least` or a bit below to `most` or a bit above, with about four round numbers on it. */
static void round_axis(const struct picture *p, double least, double most) {
  double span = fmax(most - least, fmax(1e-3 * fabs(most), 1e-12));
  double step = pow(10, floor(log10(span / 4))), ratio = span / 4 / step;
  step *= ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1;
  fprintf(p->script, "set yrange [%.9g:%.9g]\nset ytics %.9g\n", step * floor(least / step),
          step * ceil(most / step), step);
}

/* Ends one curve of a plot command: a comma and a continued line, but behind the last. */
static void close_curve(const struct picture *p, int *left) {
  fputs(--*left > 0 ? ", \\\n  " : "\n", p->script);
}

static void put_title(const struct picture *p, const char *title) {
  fputs(" title ", p->script);
  put_quoted(p->script, title);
}

/* The raw losses faint and first, so that they lie below; then the smoothed ones; then those of the test
 * sets. */
static void draw_loss(const struct picture *p) {
  int left = 0;
  for (int i = 0; i < p->count; i++) left += 2 * (p->runs[i].train.count > 0) + (p->runs[i].test.count > 0);
  if (p->logarithmic) fputs("set logscale y\n", p->script);
  if (p->loss.least > p->loss.most) fputs("set yrange [0:1]\n", p->script); /* not one that is finite */
  fputs("set key top right\nplot ", p->script);
  for (int i = 0; i < p->count; i++) {
    if (p->runs[i].train.count == 0) continue;
    fprintf(p->script, "$train%d using 1:2 with lines lw 1 lc rgb '#C0%s' notitle", i, hue(i));
    close_curve(p, &left);
  }
  for (int i = 0; i < p->count; i++) {
    if (p->runs[i].train.count == 0) continue;
    fprintf(p->script, "$train%d using 1:4 with lines lw 2.2 lc rgb '#%s'", i, hue(i));
    put_title(p, p->count == 1 ? "training" : p->runs[i].name);
    close_curve(p, &left);
  }
  for (int i = 0; i < p->count; i++) {
    if (p->runs[i].test.count == 0) continue;
    fprintf(p->script, "$test%d using 1:2 with linespoints dt %d lw 1.8 pt 7 ps 0.45 lc rgb '#%s'", i,
            p->count == 1 ? 1 : 2, test_hue(p, i));
    if (p->count == 1)
      put_title(p, "test");
    else if (p->runs[i].train.count == 0)
      put_title(p, p->runs[i].name);
    else
      fputs(" notitle", p->script);
    close_curve(p, &left);
  }
}

static void draw_accuracy(const struct picture *p) {
  int left = 0;
  for (int i = 0; i < p->count; i++) left += p->runs[i].test.count > 0;
  round_axis(p, p->accuracy.least, p->accuracy.most);
  fputs("set format y '%h %%'\nset key bottom right\nplot ", p->script);
  for (int i = 0; i < p->count; i++) {
    const struct series *test = &p->runs[i].test;
    if (test->count == 0) continue;
    char title[300];
    snprintf(title, sizeof title, "%.200s, last %.2f %%", p->count == 1 ? "test" : p->runs[i].name,
             100 * test->points[test->count - 1].second);
    fprintf(p->script, "$test%d using 1:3 with linespoints lw 1.8 pt 7 ps 0.45 lc rgb '#%s'", i,
            test_hue(p, i));
    if (isfinite(test->points[test->count - 1].second))
      put_title(p, title);
    else
      fputs(" notitle", p->script);
    close_curve(p, &left);
  }
}

static void draw_rate(const struct picture *p) {
  int left = 0;
  for (int i = 0; i < p->count; i++) left += p->runs[i].train.count > 0;
  if (left == 0) return;
  round_axis(p, 0, p->rate.most > 0 ? 1.08 * p->rate.most : 1);
  fputs("unset key\nplot ", p->script);
  for (int i = 0; i < p->count; i++) {
    if (p->runs[i].train.count == 0) continue;
    fprintf(p->script, "$train%d using 1:3 with lines lw 1.8 lc rgb '#%s' notitle", i, hue(i));
    close_curve(p, &left);
  }
}

static mn_status write_script(struct picture *p, int png) {
  FILE *script = p->script;
  survey(p);
  for (int i = 0; i < p->count; i++) {
    MN_TRY(put_train(p, i));
    put_test(script, &p->runs[i].test, i);
  }
  fprintf(script,
          "set encoding utf8\nset terminal %s size %s noenhanced background rgb '#ffffff' font 'DejaVu "
          "Sans,%d'\n",
          png ? "pngcairo" : "svg dynamic", png ? "1440,1080" : "960,720", png ? 18 : 14);
  if (png) fputs("set termoption fontscale 1\nset termoption linewidth 1.5\n", script);
  fputs("set border 3 lc rgb '#606060'\nset tics nomirror out scale 0.6 textcolor rgb '#303030'\n"
        "set grid back lt 1 lw 0.6 lc rgb '#e4e4e4'\nset key noopaque samplen 2 spacing 1.15 textcolor rgb "
        "'#303030'\n"
        "set lmargin at screen 0.115\nset rmargin at screen 0.97\n",
        script);
  fprintf(script, "set xrange [0:%.9g]\nset multiplot\n", p->last > 0 ? p->last : 1);
  open_panel(p, p->count == 1 ? "loss" : "loss (dashed: test)", 0.965, has_accuracy(p) ? 0.535 : 0.37, 0);
  draw_loss(p);
  if (has_accuracy(p)) {
    open_panel(p, "test accuracy", 0.495, 0.27, 0);
    draw_accuracy(p);
  }
  open_panel(p, "learning rate", has_accuracy(p) ? 0.23 : 0.32, 0.105, 1);
  draw_rate(p);
  fputs("unset multiplot\nunset output\n", script);
  if (fflush(script) == 0 && !ferror(script) && fseek(script, 0, SEEK_SET) == 0) return MN_OK;
  return mn_fail(MN_IO, "cannot write gnuplot's script: %s; is there room in /tmp?", strerror(errno));
}

/* gnuplot. */

/* The last line of what gnuplot said that is not empty. */
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

static mn_status wait_for(pid_t child, FILE *errors) {
  int how;
  while (waitpid(child, &how, 0) < 0)
    if (errno != EINTR) return mn_fail(MN_LIBRARY, "gnuplot cannot be waited for: %s", strerror(errno));
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return MN_OK;
  if (WIFEXITED(how) && WEXITSTATUS(how) == 127)
    return mn_fail(MN_LIBRARY, "gnuplot cannot be started; install the package gnuplot-nox");
  char reason[256];
  read_reason(errors, reason, sizeof reason);
  return mn_fail(MN_LIBRARY, "gnuplot failed: %s; is the package gnuplot-nox whole?", reason);
}

/* Without the user's start-up files (-d), so that a picture depends on the logs alone. */
static mn_status run_gnuplot(FILE *script, int out, FILE *errors) {
  char program[] = "gnuplot", plain[] = "-d";
  char *arguments[] = {program, plain, NULL};
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0)
    return mn_fail(MN_NO_MEMORY, "no memory to start gnuplot");
  pid_t child;
  int error = posix_spawn_file_actions_adddup2(&actions, fileno(script), 0);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, out, 1);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, fileno(errors), 2);
  if (!error) error = posix_spawnp(&child, program, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return wait_for(child, errors);
  return mn_fail(MN_LIBRARY, "gnuplot cannot be started: %s; install the package gnuplot-nox",
                 strerror(error));
}

static mn_status draw(const char *out, struct run *runs, int count, int png) {
  FILE *script = tmpfile(), *errors = tmpfile();
  mn_status status = MN_OK;
  if (!script || !errors)
    status = mn_fail(MN_IO, "no temporary file for gnuplot: %s; is there room in /tmp?", strerror(errno));
  struct mn_atomic_file file;
  if (status == MN_OK) {
    struct picture picture = {.script = script, .runs = runs, .count = count};
    status = write_script(&picture, png);
  }
  if (status == MN_OK) status = mn_atomic_file_create(&file, out);
  if (status == MN_OK) {
    status = run_gnuplot(script, file.fd, errors);
    if (status == MN_OK && lseek(file.fd, 0, SEEK_END) <= 0)
      status = mn_fail(MN_LIBRARY, "gnuplot drew nothing; is the package gnuplot-nox whole?");
    if (status == MN_OK)
      status = mn_atomic_file_publish(&file, 1);
    else
      mn_atomic_file_discard(&file);
  }
  if (script) fclose(script);
  if (errors) fclose(errors);
  return status;
}

mn_status mn_plot(const char *out, char **logs, int count) {
  size_t length = strlen(out);
  int png = length > 4 && strcmp(out + length - 4, ".png") == 0;
  if (!png && !(length > 4 && strcmp(out + length - 4, ".svg") == 0))
    return mn_fail(MN_USAGE, "'%s': a picture's name that ends in .svg or .png is needed", out);
  MN_REQUIRE(count > 0);
  struct run *runs = calloc((size_t)count, sizeof *runs);
  if (!runs) return mn_fail(MN_NO_MEMORY, "no memory for %d logs", count);
  mn_status status = MN_OK;
  for (int i = 0; i < count && status == MN_OK; i++) status = read_log(&runs[i], logs[i]);
  if (status == MN_OK) status = draw(out, runs, count, png);
  for (int i = 0; i < count; i++) {
    free(runs[i].train.points);
    free(runs[i].test.points);
  }
  free(runs);
  return status;
}
