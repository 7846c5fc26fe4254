/* A part of a dataset's rows: those that are held out to test on, or all others, to train on.
 *
 * Held out are the first k rows of the order of samples (data/order.h) in the last epoch that it has, which
 * no run reaches: k = fraction·n rounded, at least one and at most n − 1. So which they are is a function of
 * (seed, n, fraction) alone, and nothing is stored. Up to 4096 of them are single rows; of more, each 4096
 * are 64 extents of 64 neighbours, and only the rest are single rows. So all but a window's rows are still
 * read in whole ranges.
 *
 * A part keeps its rows as stretches of neighbours, in the order in which they are stored: O(n/64) memory. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/order.h"

/* Rows at … of the part are rows first … of the whole. */
struct stretch {
  int64_t at, first, count;
};

struct held_out {
  struct mn_dataset base;   /* first, so that the two convert */
  struct mn_dataset *whole; /* owned */
  int64_t count;
  struct stretch stretches[]; /* [count], ascending */
};

int64_t mn_dataset_held_out(int64_t rows, double fraction) {
  int64_t count = llround(fraction * (double)rows);
  return count < 1 ? 1 : count < rows ? count : rows - 1;
}

/* ---- which rows ---- */

static void add(struct held_out *h, int64_t first, int64_t count) {
  h->stretches[h->count++] = (struct stretch){.first = first, .count = count};
}

static int ascending(const void *a, const void *b) {
  int64_t left = ((const struct stretch *)a)->first, right = ((const struct stretch *)b)->first;
  return (left > right) - (left < right);
}

/* Makes the stretches those of the first `held` rows of the order. */
static void pick(struct held_out *h, struct mn_order *order, int64_t held) {
  int64_t rows = h->whole->rows, epoch = INT64_MAX / rows - 1;
  int64_t extents[MN_ORDER_WINDOW], samples[MN_ORDER_WINDOW_ROWS], count, total;
  for (int64_t taken = 0, window = 0; taken < held; taken += total, window++) {
    mn_order_window(order, epoch, window, extents, &count, samples, &total);
    if (total <= held - taken) {
      for (int64_t i = 0; i < count; i++) {
        int64_t first = extents[i] * MN_ORDER_EXTENT, left = rows - first;
        add(h, first, left < MN_ORDER_EXTENT ? left : MN_ORDER_EXTENT);
      }
      continue;
    }
    for (int64_t i = 0; i < held - taken; i++)
      add(h, extents[samples[i] / MN_ORDER_EXTENT] * MN_ORDER_EXTENT + samples[i] % MN_ORDER_EXTENT, 1);
  }
  qsort(h->stretches, (size_t)h->count, sizeof h->stretches[0], ascending);
}

/* Turns the sorted stretches into those between them. */
static void turn_over(struct held_out *h) {
  int64_t picked = h->count, next = 0;
  h->count = 0;
  for (int64_t i = 0; i < picked; i++) {
    struct stretch s = h->stretches[i]; /* of which at most the place is written below */
    if (s.first > next) add(h, next, s.first - next);
    next = s.first + s.count;
  }
  if (next < h->whole->rows) add(h, next, h->whole->rows - next);
}

/* Joins neighbours, and counts the rows. */
static void join(struct held_out *h) {
  int64_t count = h->count;
  h->count = h->base.rows = 0;
  for (int64_t i = 0; i < count; i++) {
    struct stretch s = h->stretches[i], *last = h->count ? &h->stretches[h->count - 1] : NULL;
    if (last && last->first + last->count == s.first)
      last->count += s.count;
    else
      add(h, s.first, s.count), h->stretches[h->count - 1].at = h->base.rows;
    h->base.rows += s.count;
  }
}

/* ---- reading ---- */

/* The stretch that row `row` of the part is in. */
static const struct stretch *find(const struct held_out *h, int64_t row) {
  int64_t low = 0, high = h->count;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    *(h->stretches[middle].at <= row ? &low : &high) = middle;
  }
  return &h->stretches[low];
}

static mn_status held_out_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                               void *y) {
  struct held_out *h = (struct held_out *)dataset;
  struct mn_dataset *whole = h->whole;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  size_t x_row = (size_t)dataset->inputs * real;
  size_t y_row = dataset->classes ? sizeof(int32_t) : (size_t)dataset->outputs * real;
  for (int64_t done = 0, here; done < count; done += here) {
    const struct stretch *s = find(h, first + done);
    int64_t within = first + done - s->at, left = count - done;
    here = s->count - within < left ? s->count - within : left;
    MN_TRY(whole->read(whole, s->first + within, here, real, x ? (char *)x + (size_t)done * x_row : NULL,
                       y ? (char *)y + (size_t)done * y_row : NULL));
  }
  return MN_OK;
}

int64_t mn_dataset_row(const struct mn_dataset *dataset, int64_t row) {
  if (dataset->read != held_out_read) return row;
  const struct stretch *s = find((const struct held_out *)dataset, row);
  return s->first + row - s->at;
}

static void held_out_close(struct mn_dataset *dataset) {
  struct held_out *h = (struct held_out *)dataset;
  mn_dataset_close(h->whole);
  free(h);
}

mn_status mn_dataset_hold_out(struct mn_dataset **dataset, enum mn_part part, double fraction,
                              uint64_t seed) {
  struct mn_dataset *whole = *dataset;
  struct mn_order *order;
  if (!(fraction > 0 && fraction < 1))
    return mn_fail(MN_USAGE, "%g of the rows cannot be held out; a number between 0 and 1 would do",
                   fraction);
  if (whole->rows < 2)
    return mn_fail(MN_BAD_DATA, "of a single row none can be held out; give more data, or hold out none");
  int64_t held = mn_dataset_held_out(whole->rows, fraction);
  /* Whole extents, of which one may be short, the rows of a window, and the stretch behind the last. */
  size_t most = (size_t)(held / MN_ORDER_EXTENT + 1 + MN_ORDER_WINDOW_ROWS + 1);
  struct held_out *h = malloc(sizeof *h + most * sizeof h->stretches[0]);
  if (!h) return mn_fail(MN_NO_MEMORY, "no memory to hold out %lld rows", (long long)held);
  mn_status status = mn_order_open(&order, whole->rows, seed);
  if (status != MN_OK) {
    free(h);
    return status;
  }
  h->base = *whole;
  h->base.read = held_out_read;
  h->base.close = held_out_close;
  h->whole = whole;
  h->count = 0;
  pick(h, order, held);
  if (part == MN_PART_TRAIN) turn_over(h);
  join(h);
  mn_order_close(order);
  *dataset = &h->base;
  return MN_OK;
}
