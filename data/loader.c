/* The loader: one thread that reads windows of the dataset and gathers batches from them, ahead of the thread
 * that trains.
 *
 * There are two levels of buffers. A window's extents are read in ascending order, neighbours in one call,
 * into a window buffer; rows are then copied in training order into a ring of three batches: one that the
 * consumer reads, two ahead. While the ring is full the thread reads the next window into a second buffer,
 * so that nobody waits at the end of a window. A dataset of a single window is read once and stays.
 *
 * What the consumer gets depends on the order alone, never on which thread was faster: an error in a window
 * comes only after the batches that do not need that window. */
#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/order.h"
#include "kernels/kernels.h"

enum { RING = 3, MESSAGE = 1024 };
#define READ_BYTES ((int64_t)4 << 20) /* of x in one call: a close waits for no more than that */

struct window {
  int64_t number;                          /* in the endless sequence of windows */
  int64_t extents[MN_ORDER_WINDOW], count; /* its extents, ascending: the buffer's layout */
  int64_t read;                            /* extents that stand in the buffer */
  int64_t total, at;                       /* its rows; those already copied out */
  int64_t from[MN_ORDER_WINDOW_ROWS]; /* [total] the row of the buffer that comes i-th in training order */
  char *x, *y;                        /* [total] rows; y NULL where the dataset has none */
  mn_status status;                   /* of reading it, with `message` */
  char message[MESSAGE];
};

struct mn_loader {
  struct mn_dataset *dataset; /* borrowed */
  struct mn_device *device;   /* borrowed: its width of a real, and its host buffers */
  struct mn_order *order;
  int64_t batch, windows;
  size_t x_row, y_row; /* bytes */
  /* the thread's alone */
  struct window window[2];       /* with one window in an epoch the two share one buffer */
  struct window *current, *next; /* `next` follows `current` in the endless sequence */
  int64_t filled;                /* rows in the batch being gathered */
  /* `mutex` guards these; `changed` tells of each change */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int64_t produced; /* batches that are whole, in slot number % RING */
  int64_t taken;    /* batches given to the consumer, who still reads the last */
  int64_t released; /* batches the consumer is done with */
  int stop;         /* the consumer wants the thread to end */
  mn_status status; /* what ended the thread, with `message` */
  char message[MESSAGE];
  int running; /* there is a thread to join */
  pthread_t thread;
  void *x[RING], *y[RING];
};

/* A mutex or condition variable that fails is a broken invariant. */
static void lock(struct mn_loader *loader) {
  MN_REQUIRE(pthread_mutex_lock(&loader->mutex) == 0);
}
static void unlock(struct mn_loader *loader) {
  MN_REQUIRE(pthread_mutex_unlock(&loader->mutex) == 0);
}
static void wait_for_change(struct mn_loader *loader) {
  MN_REQUIRE(pthread_cond_wait(&loader->changed, &loader->mutex) == 0);
}
static void announce(struct mn_loader *loader) {
  MN_REQUIRE(pthread_cond_broadcast(&loader->changed) == 0);
}

/* ---- the thread: windows ---- */

static void plan(struct mn_loader *loader, struct window *window, int64_t number) {
  mn_order_window(loader->order, number / loader->windows, number % loader->windows, window->extents,
                  &window->count, window->from, &window->total);
  window->number = number;
  window->at = 0;
  window->status = MN_OK;
  /* With one window an epoch both share a buffer, which is read once. */
  int held = loader->windows == 1 && loader->current->read == loader->current->count;
  window->read = held ? window->count : 0;
}

static int whole(const struct window *window) {
  return window->read == window->count;
}

/* Reads the window's next range of neighbouring extents in one call. */
static void read_on(struct mn_loader *loader, struct window *window) {
  int64_t most = READ_BYTES / ((int64_t)loader->x_row * MN_ORDER_EXTENT), extents = 1;
  int64_t first = window->extents[window->read];
  while (extents < most && window->read + extents < window->count &&
         window->extents[window->read + extents] == first + extents)
    extents++;
  int64_t row = first * MN_ORDER_EXTENT, rows = extents * MN_ORDER_EXTENT,
          at = window->read * MN_ORDER_EXTENT;
  if (rows > loader->dataset->rows - row) rows = loader->dataset->rows - row;
  window->status = loader->dataset->read(loader->dataset, row, rows, loader->device->real,
                                         window->x + (size_t)at * loader->x_row,
                                         window->y ? window->y + (size_t)at * loader->y_row : NULL);
  if (window->status == MN_OK)
    window->read += extents;
  else
    snprintf(window->message, sizeof window->message, "%s", mn_message());
}

/* Copies rows of the current window into the batch in `slot`, up to the end of either. */
static void gather(struct mn_loader *loader, int64_t slot) {
  struct window *window = loader->current;
  size_t x_row = loader->x_row, y_row = loader->y_row;
  char *x = (char *)loader->x[slot], *y = (char *)loader->y[slot];
  for (; loader->filled < loader->batch && window->at < window->total; loader->filled++, window->at++) {
    size_t from = (size_t)window->from[window->at], to = (size_t)loader->filled;
    memcpy(x + to * x_row, window->x + from * x_row, x_row);
    if (y) memcpy(y + to * y_row, window->y + from * y_row, y_row);
  }
}

/* ---- the thread: what to do next ---- */

/* Waits until there is something to do. Returns 0 to end, else *slot: the slot to copy rows to, or −1 when
 * the ring is full and there is only a window to read. */
static int next_task(struct mn_loader *loader, int64_t *slot) {
  const struct window *next = loader->next;
  /* Windows are read even while the ring is full. */
  int can_read = !whole(loader->current) || (!whole(next) && next->status == MN_OK);
  lock(loader);
  while (!loader->stop && !can_read && loader->produced - loader->released == RING) wait_for_change(loader);
  int go = !loader->stop;
  *slot = loader->produced - loader->released < RING ? loader->produced % RING : -1;
  unlock(loader);
  return go;
}

static mn_status work(struct mn_loader *loader) {
  int64_t slot;
  plan(loader, loader->next, loader->current->number + 1);
  while (next_task(loader, &slot)) {
    struct window *current = loader->current;
    if (current->status != MN_OK) return mn_fail(current->status, "%s", current->message);
    if (!whole(current)) {
      read_on(loader, current);
      if (loader->windows == 1) loader->next->read = current->read;
      continue;
    }
    if (slot < 0) {
      read_on(loader, loader->next);
      continue;
    }
    gather(loader, slot);
    if (loader->filled == loader->batch) {
      loader->filled = 0;
      lock(loader);
      loader->produced++;
      announce(loader);
      unlock(loader);
    }
    if (current->at == current->total) {
      loader->current = loader->next;
      loader->next = current;
      plan(loader, loader->next, loader->current->number + 1);
    }
  }
  return MN_OK;
}

static void *run(void *data) {
  struct mn_loader *loader = data;
  mn_status status = work(loader);
  lock(loader);
  loader->status = status;
  if (status != MN_OK) snprintf(loader->message, sizeof loader->message, "%s", mn_message());
  announce(loader);
  unlock(loader);
  return NULL;
}

/* ---- opening, taking, closing ---- */

static mn_status allocate_windows(struct mn_loader *loader) {
  int64_t rows = loader->dataset->rows < MN_ORDER_WINDOW_ROWS ? loader->dataset->rows : MN_ORDER_WINDOW_ROWS;
  size_t x = (size_t)rows * loader->x_row, y = (size_t)rows * loader->y_row;
  struct window *windows = loader->window;
  loader->current = &windows[0];
  loader->next = &windows[1];
  for (int i = 0; i < 2; i++) {
    int shared = i == 1 && loader->windows == 1;
    windows[i].x = shared ? windows[0].x : malloc(x);
    windows[i].y = shared ? windows[0].y : y ? malloc(y) : NULL;
    if (!windows[i].x || (y && !windows[i].y))
      return mn_fail(MN_NO_MEMORY,
                     "no memory to read ahead: %lld rows, %zu bytes, twice; a machine with more, or narrower "
                     "rows, would do",
                     (long long)rows, x + y);
  }
  return MN_OK;
}

static mn_status allocate_ring(struct mn_loader *loader) {
  const struct mn_kernels *kernels = loader->device->kernels;
  size_t batch = (size_t)loader->batch;
  for (int i = 0; i < RING; i++) {
    MN_TRY(kernels->allocate_host(loader->device, &loader->x[i], batch * loader->x_row));
    if (loader->y_row) MN_TRY(kernels->allocate_host(loader->device, &loader->y[i], batch * loader->y_row));
  }
  return MN_OK;
}

/* Starts the thread with every signal blocked: signals are for the thread that trains. */
static mn_status start(struct mn_loader *loader) {
  sigset_t all, before;
  MN_REQUIRE(sigfillset(&all) == 0 && pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
  int failed = pthread_create(&loader->thread, NULL, run, loader);
  MN_REQUIRE(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
  if (failed) return mn_fail(MN_NO_MEMORY, "the loader's thread cannot be started: %s", strerror(failed));
  loader->running = 1;
  return MN_OK;
}

static mn_status prepare(struct mn_loader *loader, uint64_t seed, int64_t position) {
  const struct mn_dataset *dataset = loader->dataset;
  size_t real = loader->device->real;
  if (__builtin_mul_overflow((size_t)dataset->inputs, real, &loader->x_row) ||
      __builtin_mul_overflow((size_t)(dataset->classes ? dataset->outputs > 0 : dataset->outputs),
                             dataset->classes ? sizeof(int32_t) : real, &loader->y_row) ||
      loader->x_row > INT64_MAX / MN_ORDER_WINDOW_ROWS || loader->y_row > INT64_MAX / MN_ORDER_WINDOW_ROWS ||
      loader->batch > (int64_t)(INT64_MAX / (loader->x_row + loader->y_row)))
    return mn_fail(MN_NO_MEMORY, "batches of %lld rows of %lld inputs do not fit in memory",
                   (long long)loader->batch, (long long)dataset->inputs);
  MN_TRY(mn_order_open(&loader->order, dataset->rows, seed));
  loader->windows = mn_order_windows(loader->order);
  MN_TRY(allocate_windows(loader));
  MN_TRY(allocate_ring(loader));
  int64_t epoch = position / dataset->rows, window, within;
  mn_order_find(loader->order, epoch, position % dataset->rows, &window, &within);
  plan(loader, loader->current, epoch * loader->windows + window);
  loader->current->at = within;
  return start(loader);
}

mn_status mn_loader_open(struct mn_loader **out, struct mn_dataset *dataset, struct mn_device *device,
                         int64_t batch, uint64_t seed, int64_t position) {
  *out = NULL;
  if (batch < 1 || batch > dataset->rows)
    return mn_fail(MN_USAGE,
                   "a batch of %lld rows from data of %lld rows; choose 1 to %lld, or give more data",
                   (long long)batch, (long long)dataset->rows, (long long)dataset->rows);
  /* Later positions must fit in an int64 too. */
  if (position < 0 || position > INT64_MAX / 2)
    return mn_fail(MN_BAD_DATA, "sample position %lld: it must be from 0 to 2^62; the checkpoint is damaged",
                   (long long)position);
  struct mn_loader *loader = calloc(1, sizeof *loader);
  if (!loader) return mn_fail(MN_NO_MEMORY, "no memory for the loader");
  MN_REQUIRE(pthread_mutex_init(&loader->mutex, NULL) == 0 && pthread_cond_init(&loader->changed, NULL) == 0);
  loader->dataset = dataset;
  loader->device = device;
  loader->batch = batch;
  mn_status status = prepare(loader, seed, position);
  if (status == MN_OK)
    *out = loader;
  else
    mn_loader_close(loader);
  return status;
}

mn_status mn_loader_next(struct mn_loader *loader, const void **x, const void **y) {
  lock(loader);
  loader->released = loader->taken;
  announce(loader);
  while (loader->produced == loader->taken && loader->status == MN_OK) wait_for_change(loader);
  int there = loader->produced > loader->taken;
  if (there) {
    *x = loader->x[loader->taken % RING];
    *y = loader->y[loader->taken % RING];
    loader->taken++;
  }
  /* The thread sets its status once and ends, so every later call gives the same error. */
  mn_status status = there ? MN_OK : mn_fail(loader->status, "%s", loader->message);
  unlock(loader);
  return status;
}

void mn_loader_close(struct mn_loader *loader) {
  if (!loader) return;
  if (loader->running) {
    lock(loader);
    loader->stop = 1;
    announce(loader);
    unlock(loader);
    MN_REQUIRE(pthread_join(loader->thread, NULL) == 0);
  }
  for (int i = 0; i < RING; i++) {
    loader->device->kernels->release_host(loader->device, loader->x[i]);
    loader->device->kernels->release_host(loader->device, loader->y[i]);
  }
  for (int i = 0; i < 2; i++) {
    if (i == 1 && loader->windows == 1) break; /* shared */
    free(loader->window[i].x);
    free(loader->window[i].y);
  }
  mn_order_close(loader->order);
  MN_REQUIRE(pthread_cond_destroy(&loader->changed) == 0 && pthread_mutex_destroy(&loader->mutex) == 0);
  free(loader);
}
