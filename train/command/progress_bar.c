/* Drawing progress. */
#include "train/command/announce.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/clock.h"
#include "kernels/text.h"

enum { BAR = 24, LEAST_BAR = 6, LEAST_COLUMNS = 40 };
static const char hashes[] = "########################", dots[] = "........................";
_Static_assert(sizeof hashes == BAR + 1 && sizeof dots == BAR + 1, "a whole bar of each");
static const double terminal_interval = 0.1, plain_interval = 10;

void mn_progress_bar_open(struct mn_progress_bar *p, int64_t first, int quiet) {
  double now = mn_seconds();
  const char *kind = getenv("TERM"); /* "dumb": it cannot erase a line */
  const int redraws = isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
  *p = (struct mn_progress_bar){.terminal = redraws && mn_show_columns(STDERR_FILENO) >= LEAST_COLUMNS,
                                .quiet = quiet,
                                .first = first,
                                .start = now,
                                .last = now};
}

/* Clears the bar, so that another line can be written. */
static void erase(struct mn_progress_bar *p) {
  if (p->drawn) fputs("\r\033[K", stderr);
  p->drawn = 0;
}

/* Fields two blanks apart, as long as they fit `room` columns. */
enum { FIELDS = 256 };
struct fields {
  char text[FIELDS];
  int length, room;
};

__attribute__((format(printf, 2, 3))) static void add_field(struct fields *f, const char *format, ...) {
  char field[96];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(field, sizeof field, format, arguments) + (f->length > 0 ? 2 : 0);
  va_end(arguments);
  if (f->length + length > f->room)
    f->room = 0; /* no later one either, or fields would come and go */
  else
    f->length += snprintf(f->text + f->length, sizeof f->text - (size_t)f->length, "%s%s",
                          f->length > 0 ? "  " : "", field);
}

static void add_fields(struct fields *f, const struct mn_trainer *t, double left) {
  const struct mn_trainer_speed speed = mn_trainer_speed(t);
  char shown[MN_SHOWN];
  add_field(f, "step %ld of %ld", (long)t->progress.step, (long)t->schedule.horizon);
  add_field(f, "loss %s", mn_show_number(shown, t->loss, 4));
  add_field(f, "%s left", mn_show_time(shown, left));
  add_field(f, "%s samples/s", mn_show_number(shown, speed.samples, 3));
  add_field(f, "%s", mn_show_rate(shown, speed.flops, "FLOP/s"));
  add_field(f, "waiting %.0f %%", 100 * speed.waiting);
}

void mn_progress_bar_step(struct mn_progress_bar *p, const struct mn_trainer *t) {
  double now = mn_seconds();
  if (p->quiet || now - p->last < (p->terminal ? terminal_interval : plain_interval)) return;
  p->last = now;
  const int64_t step = t->progress.step, horizon = t->schedule.horizon;
  /* A character in the last column would move some terminals on to the next line. */
  const int width = p->terminal ? mn_show_columns(STDERR_FILENO) - 1 : FIELDS - 1;
  struct fields fields = {.room = width};
  add_fields(&fields, t, (now - p->start) / (double)(step - p->first) * (double)(horizon - step));
  erase(p);
  const int room = width - fields.length - 3, bar = room < BAR ? room : BAR;
  if (p->terminal && bar >= LEAST_BAR) {
    const int full = (int)(bar * step / horizon);
    fprintf(stderr, "[%.*s%.*s] ", full, hashes, bar - full, dots);
  }
  fprintf(stderr, "%s%s", fields.text, p->terminal ? "" : "\n");
  p->drawn = p->terminal;
}

void mn_progress_bar_note(struct mn_progress_bar *p, const char *format, ...) {
  if (p->quiet) return;
  va_list arguments;
  char line[MN_MESSAGE];
  erase(p);
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  mn_escape_print(stderr, "%s\n", line); /* in one write, because other threads print lines too */
}

void mn_progress_bar_close(struct mn_progress_bar *p) {
  erase(p);
}
