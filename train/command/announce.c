/* Lines on stderr: numbers in a readable form, the progress of a training, notes about devices, models and
 * rows. */
#include "train/command/announce.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kernels/clock.h"
#include "kernels/text.h"
#include "train/fit.h"
#include "train/speed.h"

/* ---- models ---- */

const char *mn_model_words(char out[MN_MODEL_WORDS], const struct mn_model_config *c) {
  int used = snprintf(out, MN_MODEL_WORDS, "%ld inputs", (long)c->inputs);
  for (int i = 0; i < c->depth; i++)
    used += snprintf(out + used, MN_MODEL_WORDS - (size_t)used, "%s%ld", i ? " -> " : ", blocks of ",
                     (long)c->hidden[i]);
  used += snprintf(out + used, MN_MODEL_WORDS - (size_t)used, " channels in %ld groups", (long)c->groups);
  if (c->head) used += snprintf(out + used, MN_MODEL_WORDS - (size_t)used, ", a head of %ld", (long)c->head);
  snprintf(out + used, MN_MODEL_WORDS - (size_t)used, ", %s", mn_loss_name(c->loss));
  return out;
}

/* ---- numbers ---- */

const char *mn_show_number(char out[MN_SHOWN], double value, int digits) {
  const double size = fabs(value);
  snprintf(out, MN_SHOWN, "%.*g", digits, value);
  if (value == 0 || !(size >= 1e-9 && size < 1e15)) return out;
  /* The exponent after rounding: 0.99996 with four digits is 1.000. */
  snprintf(out, MN_SHOWN, "%.*e", digits - 1, value);
  const int exponent = atoi(strchr(out, 'e') + 1);
  snprintf(out, MN_SHOWN, "%.*f", digits - 1 > exponent ? digits - 1 - exponent : 0, value);
  return out;
}

const char *mn_show_rate(char out[MN_SHOWN], double rate, const char *unit) {
  static const char prefixes[] = {0, 'k', 'M', 'G', 'T', 'P'};
  char number[MN_SHOWN];
  size_t i = 0;
  for (; i + 1 < sizeof prefixes && rate >= 999.5; i++) rate /= 1000;
  snprintf(out, MN_SHOWN, "%.20s %.1s%s", mn_show_number(number, rate, 3), prefixes + i, unit);
  return out;
}

const char *mn_show_time(char out[MN_SHOWN], double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return strcpy(out, "?");
  const long long whole = llround(seconds);
  snprintf(out, MN_SHOWN, "%lld:%02d:%02d", whole / 3600, (int)(whole / 60 % 60), (int)(whole % 60));
  return out;
}

int mn_show_columns(int fd) {
  struct winsize size;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* ---- progress ---- */

enum { BAR = 24, LEAST_BAR = 4, LEAST_COLUMNS = 40, FIELDS = 256 };
static const char hashes[] = "########################", dots[] = "........................";
_Static_assert(sizeof hashes == BAR + 1 && sizeof dots == BAR + 1, "a whole bar of each");
static const double terminal_interval = 0.1, plain_interval = 10;

static struct {
  int terminal, quiet, drawn;
  int64_t first;      /* step that the run goes on from */
  double start, last; /* seconds */
} bar = {.quiet = 1};

void mn_progress_clear(void) {
  if (bar.drawn) fputs("\r\033[K", stderr);
  bar.drawn = 0;
}

/* The length of a text without its last fields, each behind two blanks, that do not fit. */
static int fitting(const char *text, int length, int width) {
  for (int i = width; length > width; i--)
    if (i <= 0 || strncmp(text + i, "  ", 2) == 0) length = i;
  return length;
}

/* Draws `done` of `all` as a bar before a text of `length` bytes, whose last fields are dropped if they do
 * not fit beside the least bar. If the first does not fit, there is no bar. */
static void draw(const char *text, int length, int64_t done, int64_t all) {
  /* A character in the last column would move some terminals on to the next line. */
  const int width = bar.terminal ? mn_show_columns(STDERR_FILENO) - 1 : FIELDS - 1;
  const int beside = fitting(text, length, width - LEAST_BAR - 3);
  length = beside > 0 ? beside : fitting(text, length, width);
  mn_progress_clear();
  const int room = width - length - 3, columns = room < BAR ? room : BAR;
  if (bar.terminal && columns >= LEAST_BAR) {
    const int full = (int)(columns * done / all);
    fprintf(stderr, "[%.*s%.*s] ", full, hashes, columns - full, dots);
  }
  fprintf(stderr, "%.*s%s", length, text, bar.terminal ? "" : "\n");
  bar.drawn = bar.terminal;
}

/* Whether it is time for a bar or a line. */
static int is_due(double now) {
  if (bar.quiet || now - bar.last < (bar.terminal ? terminal_interval : plain_interval)) return 0;
  bar.last = now;
  return 1;
}

static void tell_work(const char *what, int64_t done, int64_t all) {
  char text[FIELDS];
  if (is_due(mn_seconds()))
    draw(text, snprintf(text, sizeof text, "%.120s %ld of %ld", what, (long)done, (long)all), done, all);
}

void mn_progress_open(int64_t first, int quiet) {
  double now = mn_seconds();
  const char *kind = getenv("TERM"); /* "dumb": it cannot erase a line */
  const int redraws = isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
  bar.terminal = redraws && mn_show_columns(STDERR_FILENO) >= LEAST_COLUMNS;
  bar.quiet = quiet, bar.drawn = 0, bar.first = first;
  bar.start = bar.last = now;
  mn_heartbeat_tell(tell_work);
}

void mn_progress_step(const struct mn_trainer *t) {
  double now = mn_seconds();
  if (!is_due(now)) return;
  const int64_t step = t->progress.step, horizon = t->schedule.horizon;
  const struct mn_trainer_speed speed = mn_trainer_speed(t);
  const double left = (now - bar.start) / (double)(step - bar.first) * (double)(horizon - step);
  char text[FIELDS], loss[MN_SHOWN], time[MN_SHOWN], samples[MN_SHOWN], flops[MN_SHOWN];
  int length =
      snprintf(text, sizeof text, "step %ld of %ld  loss %s  %s left  %s samples/s  %s  waiting %.0f %%",
               (long)step, (long)horizon, mn_show_number(loss, t->loss, 4), mn_show_time(time, left),
               mn_show_number(samples, speed.samples, 3), mn_show_rate(flops, speed.flops, "FLOP/s"),
               100 * speed.waiting);
  draw(text, length, step, horizon);
}

/* ---- notes ---- */

/* Copies a line, broken at blanks to fit so many columns; the rest is indented. A longer word stays whole. */
static void wrap(char *out, size_t size, const char *line, int columns) {
  size_t used = 0;
  int column = 0;
  for (size_t length; *line && used + 4 < size; line += length) {
    int width = 0;
    length = 1 + strcspn(line + 1, " ");
    for (size_t i = 0; i < length; i++) width += ((unsigned char)line[i] & 0xc0) != 0x80; /* UTF-8 */
    const int breaks = *line == ' ' && column + width > columns;
    column = breaks ? width + 1 : column + width; /* two blanks, and the word without the one before it */
    used += (size_t)snprintf(out + used, size - used, "%s%.*s", breaks ? "\n " : "", (int)length, line);
  }
}

void mn_announce(const struct mn_options *options, const char *format, ...) {
  if (options->quiet) return;
  va_list arguments;
  char line[MN_MESSAGE], shown[MN_MESSAGE], wrapped[2 * MN_MESSAGE] = "";
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  mn_progress_clear();
  mn_escape(shown, sizeof shown, line);
  const int columns = isatty(STDERR_FILENO) ? mn_show_columns(STDERR_FILENO) - 1 : 0;
  wrap(wrapped, sizeof wrapped - 1, shown, columns >= LEAST_COLUMNS - 1 ? columns : INT_MAX);
  strcat(wrapped, "\n");
  fputs(wrapped, stderr); /* in one write, since other threads print lines too */
}

void mn_announce_device(const struct mn_device *device, const struct mn_options *options, int brief) {
  mn_announce(options, "device: %s, %s%s", device->name, mn_precision_name(device->precision),
              brief ? ", where so short a run ends sooner than on a GPU" : "");
  int cpu = device->type == MN_DEVICE_CPU;
  if ((device->precision == MN_TF32 && cpu) || (device->precision == MN_FP16X3 && device->planes == 0))
    mn_announce(options, "note: %s runs as fp32 on %s", mn_precision_name(device->precision),
                cpu ? "the CPU" : "this GPU");
}

void mn_announce_model(const struct mn_model *model, const struct mn_options *options, int brief) {
  const struct mn_device *device = model->device;
  mn_announce_device(model->device, options, brief);
  for (int i = 0; i < model->config.depth; i++)
    if (model->config.hidden[i] == model->config.groups)
      mn_announce(
          options,
          "note: block %d has one channel a group, which normalising makes 0: its output does not depend "
          "on its input; fewer --groups would do",
          i);
  for (int i = 0; i < model->count && device->planes == 2; i++) {
    const struct mn_operand *w = &model->parameters[i]->value;
    if (model->parameters[i]->rank == 2 && !w->planes[0])
      mn_announce(options, "note: %s [%ld, %ld] is multiplied in fp32; fp16x3 takes multiples of 8",
                  model->parameters[i]->name, (long)w->rows, (long)w->cols);
  }
}

/* The standardised columns of x or y in words: "x by column", "y by one mean and deviation". */
static int show_standard(char *out, size_t size, const struct mn_model *model, int side) {
  const struct mn_standard *s = &model->standard[side];
  const int64_t cols = side == MN_X ? model->config.inputs : mn_model_outputs(&model->config);
  int alike = 1;
  for (int64_t i = 1; s->mean && i < cols; i++)
    alike = alike && s->mean[i] == s->mean[0] && s->scale[i] == s->scale[0];
  if (!s->mean) return snprintf(out, size, "%c as it is", "xy"[side]);
  if (!alike) return snprintf(out, size, "%c by column", "xy"[side]);
  if (side == MN_X) return snprintf(out, size, "x by one mean and deviation"); /* of which it takes some */
  return snprintf(out, size, "y by mean %.3g and deviation %.3g", s->mean[0], s->scale[0]);
}

static void announce_standards(const struct mn_model *model, const struct mn_options *options) {
  char x[80], y[80] = "";
  if (!model->standard[MN_X].mean && !model->standard[MN_Y].mean) return;
  show_standard(x, sizeof x, model, MN_X);
  if (model->config.loss == MN_LOSS_MSE) show_standard(y, sizeof y, model, MN_Y);
  mn_announce(options, "standardised: %s%s%s", x, *y ? "; " : "", y);
  if (!model->standard[MN_Y].mean) return;
  mn_announce(options,
              model->standard[MN_Y].log ? "loss: of the logarithms of y, standardised; eval has y's own units"
              : mn_model_loss_unit(model) > 0
                  ? "loss: that of standardised y is minimised, and told in the units of y"
                  : "loss: of standardised y, whose columns have units of their own; eval has those");
}

/* Whether a column may be a mistake in one way. */
enum way { CONSTANT, NUMBERED, FAR };
static int is_odd(const struct mn_columns *c, int64_t i, enum way way) {
  if (way == CONSTANT) return c->deviation[i] == 0;
  if (way == NUMBERED) return c->whole[i] == 2 && c->rows > 1;
  /* A rare one of two values is no mistake, and a column that was pooled has another mean. */
  const double all = c->largest[i] - c->smallest[i], last = c->largest[i] - c->high[i];
  const double first = c->low[i] - c->smallest[i];
  if (c->alike || c->low[i] >= c->largest[i]) return 0;
  if (fmax(c->largest[i] - c->mean[i], c->mean[i] - c->smallest[i]) > 20 * c->deviation[i]) return 1;
  return last > 8 * (all - last) || first > 8 * (all - first); /* as what stands for a missing value does */
}

static void note_columns(const struct mn_columns *c, const struct mn_csv *csv, enum way way, const char *what,
                         const struct mn_options *options) {
  enum { SHOWN = 5 };
  char list[1600] = "";
  int64_t count = 0;
  for (int64_t i = 0; i < c->cols; i++) {
    const size_t used = strlen(list);
    if (!is_odd(c, i, way) || count++ >= SHOWN) continue;
    const char *name = csv ? mn_csv_input(csv, i) : NULL;
    snprintf(list + used, sizeof list - used, name ? "%s%s" : "%s%.0s%lld", used ? ", " : "",
             name ? name : "", (long long)i);
  }
  if (count > SHOWN)
    snprintf(list + strlen(list), sizeof list - strlen(list), " and %lld more", (long long)count - SHOWN);
  if (count > 0)
    mn_announce(options, "note: x, column%s %s%s: %s", count > 1 ? "s" : "", list, csv ? "" : " (from 0)",
                what);
}

void mn_announce_columns(const struct mn_columns columns[MN_SIDES], const struct mn_csv *csv,
                         const struct mn_model *model, const struct mn_options *options) {
  enum { FEW = 20 };
  const struct mn_columns *x = &columns[MN_X], *y = &columns[MN_Y];
  announce_standards(model, options);
  if (x->cols > 1) note_columns(x, csv, CONSTANT, "one value in all rows, which tells nothing", options);
  note_columns(x, csv, FAR,
               "values far from all others: a logarithm or a limit may do better; if they stand for what is "
               "missing, leave them out",
               options);
  if (!csv)
    note_columns(x, csv, NUMBERED, "rises by whole numbers, as row numbers do: leave it out if it is one",
                 options);
  for (int64_t k = 0; k < y->cols && !options->y_scale; k++)
    if (y->smallest[k] > 0 && y->largest[k] - y->mean[k] > 20 * y->deviation[k]) {
      mn_announce(options, "note: y reaches %g, %.0f deviations above its mean: --y-scale log may do better",
                  y->largest[k], (y->largest[k] - y->mean[k]) / y->deviation[k]);
      break;
    }
  /* Real targets that may be classes: few whole numbers from 0. */
  if (options->loss < 0 && y->cols == 1 && y->whole[0] && y->smallest[0] >= 0 && y->largest[0] <= FEW)
    mn_announce(options, "note: y holds whole numbers from %g to %g: if they are classes, %s", y->smallest[0],
                y->largest[0], csv ? "--loss cross-entropy trains on them so" : "store it as integers");
}

void mn_announce_table(const struct mn_csv *csv, const struct mn_options *options) {
  for (int i = 0; csv && i < MN_CSV_NOTES; i++)
    if (mn_csv_note(csv, i)) mn_announce(options, "%s", mn_csv_note(csv, i));
}
