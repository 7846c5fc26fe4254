/* Numbering the samples of windows, and reading the rows of the next one while this one is in use. */
#include "data/windows.h"

#include <errno.h>

#include "kernels/clock.h"

static int in_file(const struct mn_windows *w) {
  return w->placement->place == MN_PLACE_FILE;
}

/* Numbers the samples of the next window, and reads its rows if they are in the file: neighbouring
 * extents are one range. */
static mn_status read_window(struct mn_windows *w, struct mn_window *to) {
  int64_t extents[MN_ORDER_WINDOW], count, ranges = 0;
  struct mn_range range[MN_ORDER_WINDOW];
  const int64_t windows = mn_order_windows(w->order);
  mn_order_window(w->order, w->reading / windows, w->reading % windows, extents, &count, to->numbers,
                  &to->count);
  if (!in_file(w)) {
    for (int64_t i = 0; i < to->count; i++) {
      const int64_t within = to->numbers[i];
      to->numbers[i] = extents[within / MN_ORDER_EXTENT] * MN_ORDER_EXTENT + within % MN_ORDER_EXTENT;
    }
    return MN_OK;
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t first = extents[i] * MN_ORDER_EXTENT, left = w->placement->dataset->rows - first;
    int64_t rows = left < MN_ORDER_EXTENT ? left : MN_ORDER_EXTENT;
    if (i > 0 && extents[i] == extents[i - 1] + 1)
      range[ranges - 1].count += rows;
    else
      range[ranges++] = (struct mn_range){first, rows, i * MN_ORDER_EXTENT};
  }
  return mn_read_rows(w->placement->dataset, &w->placement->form, range, ranges, &to->rows, &w->stop);
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
  const int64_t rows = placement->dataset->rows, epoch = position / rows;
  MN_REQUIRE(sem_init(&w->vacant, 0, MN_WINDOWS) == 0 && sem_init(&w->ready, 0, 0) == 0);
  w->placement = placement;
  MN_TRY(mn_order_open(&w->order, rows, seed, shuffled));
  for (int i = 0; i < MN_WINDOWS; i++)
    if (in_file(w))
      MN_TRY(mn_placement_allocate(w->placement, MN_PLACE_HOST, &w->window[i].rows,
                                   rows < MN_ORDER_WINDOW_ROWS ? rows : MN_ORDER_WINDOW_ROWS));
    else
      w->window[i].rows = w->placement->rows;
  mn_order_find(w->order, epoch, position % rows, &w->number, &w->at);
  w->number += epoch * mn_order_windows(w->order);
  w->reading = w->received = w->number;
  w->running =
      in_file(w) && mn_thread_start(&w->thread, "the thread that reads ahead", read_ahead, w) == MN_OK;
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
  if (in_file(w)) w->waited += mn_seconds() - began;
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
  for (int i = 0; i < MN_WINDOWS && in_file(w); i++)
    mn_placement_release(w->placement, MN_PLACE_HOST, &w->window[i].rows, 0);
  mn_order_close(w->order);
}
