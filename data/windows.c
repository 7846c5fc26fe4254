/* Reading the rows of the next window while this one is in use. */
#include "data/windows.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/clock.h"

static int ascending(const void *a, const void *b) {
  const int64_t left = ((const struct mn_range *)a)->first, right = ((const struct mn_range *)b)->first;
  return (left > right) - (left < right);
}

/* Reads the extents of the next window, in the order in which the file has them; neighbours that come
 * together are one range. */
static mn_status read_window(struct mn_windows *w, struct mn_window *to) {
  struct mn_range ranges[MN_ORDER_WINDOW];
  const int64_t rows = w->placement->dataset->rows, windows = mn_order_windows(rows);
  int number = 0;
  mn_order_begin(&to->order, rows, w->seed, w->reading / windows, w->shuffled);
  to->begin = w->reading % windows * MN_ORDER_WINDOW_ROWS;
  to->count = mn_order_count(&to->order, to->begin);
  const int64_t each = (int64_t)1 << to->order.bits, end = rows + to->order.missing - to->begin;
  for (int64_t at = 0; at < MN_ORDER_WINDOW_ROWS && at < end; at += each) {
    const int64_t first = mn_order_row(&to->order, to->begin + at), left = rows - first;
    if (number == 0 || ranges[number - 1].first + ranges[number - 1].count != first)
      ranges[number++] = (struct mn_range){.first = first, .at = at};
    ranges[number - 1].count += left < each ? left : each;
  }
  qsort(ranges, (size_t)number, sizeof *ranges, ascending);
  return mn_read_rows(w->placement->dataset, &w->placement->form, ranges, number, &to->rows, &w->stop);
}

static mn_status read_next(struct mn_windows *w) {
  struct mn_window *window = &w->window[w->reading % MN_WINDOWS];
  mn_outcome_note(&window->outcome, read_window(w, window));
  w->reading++;
  return window->outcome.status;
}

static void wait_for(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0) MN_REQUIRE(errno == EINTR);
}

/* One thread reads all windows: one for each is up to 14 % slower (kernels/NOTES.md, "From a file"). */
static void *read_ahead(void *data) {
  struct mn_windows *w = data;
  mn_status status = MN_OK;
  while (status == MN_OK) {
    wait_for(&w->vacant);
    if (__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) break;
    status = read_next(w);
    MN_REQUIRE(sem_post(&w->ready) == 0);
  }
  return NULL;
}

mn_status mn_windows_open(struct mn_windows *w, const struct mn_placement *placement, uint64_t seed,
                          int shuffled, int64_t position) {
  const int64_t rows = placement->dataset->rows, epoch = position / rows, sample = position % rows;
  struct mn_order order;
  MN_REQUIRE(sem_init(&w->vacant, 0, MN_WINDOWS) == 0 && sem_init(&w->ready, 0, 0) == 0);
  w->placement = placement, w->seed = seed, w->shuffled = shuffled;
  for (int i = 0; i < MN_WINDOWS; i++)
    MN_TRY(mn_placement_allocate(w->placement, MN_PLACE_HOST, &w->window[i].rows,
                                 rows < MN_ORDER_WINDOW_ROWS ? rows : MN_ORDER_WINDOW_ROWS));
  mn_order_begin(&order, rows, seed, epoch, shuffled);
  const int64_t window = mn_order_window(&order, sample);
  w->number = epoch * mn_order_windows(rows) + window / MN_ORDER_WINDOW_ROWS;
  w->at = sample - mn_order_first(&order, window);
  w->reading = w->received = w->number;
  w->running = mn_thread_start(&w->thread, "the thread that reads ahead", read_ahead, w) == MN_OK;
  return MN_OK;
}

mn_status mn_windows_get(struct mn_windows *w, struct mn_window **window) {
  const double began = mn_seconds();
  *window = &w->window[w->number % MN_WINDOWS];
  if (w->number == w->received) {
    if (w->running)
      wait_for(&w->ready);
    else
      (void)read_next(w); /* its outcome is told below */
    w->received++;
  }
  w->waited += mn_seconds() - began;
  return mn_outcome_tell(&(*window)->outcome);
}

void mn_windows_next(struct mn_windows *w) {
  if (w->running) MN_REQUIRE(sem_post(&w->vacant) == 0);
  w->number++, w->at = 0;
}

void mn_windows_close(struct mn_windows *w) {
  if (!w->placement) return;
  __atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
  MN_REQUIRE(sem_post(&w->vacant) == 0);
  if (w->running) MN_REQUIRE(pthread_join(w->thread, NULL) == 0);
  MN_REQUIRE(sem_destroy(&w->vacant) == 0 && sem_destroy(&w->ready) == 0);
  for (int i = 0; i < MN_WINDOWS; i++)
    mn_placement_release(w->placement, MN_PLACE_HOST, &w->window[i].rows, 0);
}
