/* The thread that reads windows, and the two buffers between it and the loader.
 *
 * What the loader gets depends on the order alone, never on which thread was faster: an error in a window
 * comes only when that window is asked for. */
#include "data/windows.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/thread.h"
#include "kernels/clock.h"

enum { BUFFERS = 2 };

struct mn_windows {
  const struct mn_placement *placement;
  struct mn_order *order; /* the thread's own */
  int64_t count;          /* windows in an epoch */
  struct mn_rows rows[BUFFERS];
  double waited;
  int stop; /* read and set atomically */
  /* `mutex` guards these; `changed` tells of each change */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int64_t read;              /* windows below this number have been read */
  int64_t released;          /* and those below this one are not needed any more */
  struct mn_outcome outcome; /* of window number `read`, where it failed */
  int running;               /* there is a thread to join */
  pthread_t thread;
};

static void lock(struct mn_windows *w) {
  MN_REQUIRE(pthread_mutex_lock(&w->mutex) == 0);
}
static void unlock(struct mn_windows *w) {
  MN_REQUIRE(pthread_mutex_unlock(&w->mutex) == 0);
}
static void wait_for_change(struct mn_windows *w) {
  MN_REQUIRE(pthread_cond_wait(&w->changed, &w->mutex) == 0);
}
static void announce(struct mn_windows *w) {
  MN_REQUIRE(pthread_cond_broadcast(&w->changed) == 0);
}

/* Reads a window, neighbouring extents as one range. */
static mn_status read_window(struct mn_windows *w, int64_t number) {
  const struct mn_placement *p = w->placement;
  int64_t extents[MN_ORDER_WINDOW], samples[MN_ORDER_WINDOW_ROWS], count, total, ranges = 0;
  struct mn_range range[MN_ORDER_WINDOW];
  mn_order_window(w->order, number / w->count, number % w->count, extents, &count, samples, &total);
  for (int64_t i = 0; i < count; i++) {
    int64_t first = extents[i] * MN_ORDER_EXTENT, left = p->dataset->rows - first;
    int64_t rows = left < MN_ORDER_EXTENT ? left : MN_ORDER_EXTENT;
    if (i > 0 && extents[i] == extents[i - 1] + 1)
      range[ranges - 1].count += rows;
    else
      range[ranges++] = (struct mn_range){first, rows, i * MN_ORDER_EXTENT};
  }
  return mn_read_rows(p->dataset, &p->form, range, ranges, &w->rows[number % BUFFERS], &w->stop);
}

static void *run(void *data) {
  struct mn_windows *w = data;
  lock(w);
  while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
    if (w->read - w->released >= BUFFERS) {
      wait_for_change(w);
      continue;
    }
    int64_t number = w->read;
    unlock(w);
    mn_status status = read_window(w, number);
    lock(w);
    if (status != MN_OK) {
      mn_outcome_note(&w->outcome, status);
      announce(w);
      break;
    }
    w->read = number + 1;
    announce(w);
  }
  unlock(w);
  return NULL;
}

static mn_status allocate(struct mn_windows *w) {
  const struct mn_placement *p = w->placement;
  const struct mn_kernels *k = p->device->kernels;
  int64_t rows = p->dataset->rows < MN_ORDER_WINDOW_ROWS ? p->dataset->rows : MN_ORDER_WINDOW_ROWS;
  for (int i = 0; i < BUFFERS; i++) {
    struct mn_rows *to = &w->rows[i];
    MN_TRY(k->allocate_host(p->device, &to->x, (size_t)rows * p->form.x_row));
    if (p->form.y_row) MN_TRY(k->allocate_host(p->device, &to->y, (size_t)rows * p->form.y_row));
    MN_TRY(mn_rows_largest(to, &p->form, rows));
  }
  return MN_OK;
}

mn_status mn_windows_open(struct mn_windows **out, const struct mn_placement *placement,
                          const struct mn_order *order, int64_t first) {
  *out = NULL;
  struct mn_windows *w = calloc(1, sizeof *w);
  if (!w) return mn_fail(MN_NO_MEMORY, "no memory to read ahead");
  MN_REQUIRE(pthread_mutex_init(&w->mutex, NULL) == 0 && pthread_cond_init(&w->changed, NULL) == 0);
  w->placement = placement;
  w->count = mn_order_windows(order);
  w->read = w->released = first;
  mn_status status = mn_order_copy(&w->order, order);
  if (status == MN_OK) status = allocate(w);
  if (status == MN_OK) status = mn_thread_start(&w->thread, "the thread that reads ahead", run, w);
  w->running = status == MN_OK;
  if (status == MN_OK)
    *out = w;
  else
    mn_windows_close(w);
  return status;
}

mn_status mn_windows_get(struct mn_windows *w, int64_t number, struct mn_rows *rows) {
  lock(w);
  MN_REQUIRE(number >= w->released && number < w->released + BUFFERS);
  if (w->read <= number && w->outcome.status == MN_OK) {
    double start = mn_seconds();
    while (w->read <= number && w->outcome.status == MN_OK) wait_for_change(w);
    w->waited += mn_seconds() - start;
  }
  mn_status status = w->read > number ? MN_OK : mn_outcome_tell(&w->outcome);
  unlock(w);
  *rows = w->rows[number % BUFFERS];
  return status;
}

void mn_windows_release(struct mn_windows *w, int64_t number) {
  lock(w);
  w->released = number + 1;
  announce(w);
  unlock(w);
}

double mn_windows_waited(const struct mn_windows *w) {
  return w->waited;
}

void mn_windows_close(struct mn_windows *w) {
  if (!w) return;
  if (w->running) {
    __atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
    lock(w);
    announce(w);
    unlock(w);
    MN_REQUIRE(pthread_join(w->thread, NULL) == 0);
  }
  struct mn_device *device = w->placement->device;
  for (int i = 0; i < BUFFERS; i++) {
    device->kernels->release_host(device, w->rows[i].x);
    device->kernels->release_host(device, w->rows[i].y);
    free(w->rows[i].largest);
  }
  mn_order_close(w->order);
  MN_REQUIRE(pthread_cond_destroy(&w->changed) == 0 && pthread_mutex_destroy(&w->mutex) == 0);
  free(w);
}
