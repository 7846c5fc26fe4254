/* Drawing progress. */
#include "train/command/progress_bar.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/clock.h"

enum { BAR = 24 };
static const double terminal_interval = 0.1, plain_interval = 10;

void mn_progress_bar_open(struct mn_progress_bar *p, int64_t first, int quiet) {
  double now = mn_seconds();
  *p = (struct mn_progress_bar){
      .terminal = isatty(STDERR_FILENO), .quiet = quiet, .first = first, .start = now, .last = now};
}

/* Clears the bar, so that another line can be written. */
static void erase(struct mn_progress_bar *p) {
  if (p->drawn) fputs("\r\033[K", stderr);
  p->drawn = 0;
}

void mn_progress_bar_step(struct mn_progress_bar *p, const struct mn_trainer *t) {
  double now = mn_seconds();
  if (p->quiet || now - p->last < (p->terminal ? terminal_interval : plain_interval)) return;
  p->last = now;
  const int64_t step = t->progress.step, horizon = t->schedule.horizon;
  double left = (now - p->start) / (double)(step - p->first) * (double)(horizon - step);
  struct mn_trainer_speed speed = mn_trainer_speed(t);
  erase(p);
  if (p->terminal) {
    char bar[BAR + 1];
    int full = (int)(BAR * step / horizon);
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)full);
    bar[BAR] = 0;
    fprintf(stderr, "[%s] ", bar);
  }
  fprintf(stderr, "step %ld of %ld  loss %.5g  %.*f samples/s  %.3g TFLOP/s  waiting %.0f %%  %.0f s left",
          (long)step, (long)horizon, t->loss, speed.samples < 100, speed.samples, speed.flops * 1e-12,
          100 * speed.waiting, left);
  if (p->terminal)
    p->drawn = 1;
  else
    fputc('\n', stderr);
  fflush(stderr);
}

void mn_progress_bar_note(struct mn_progress_bar *p, const char *format, ...) {
  if (p->quiet) return;
  va_list arguments;
  erase(p);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

void mn_progress_bar_close(struct mn_progress_bar *p) {
  erase(p);
}
