/* The order of samples: Fisher–Yates with indexed random words.
 *
 * Each step i of a shuffle (i = m − 1 … 1, exchanging element i with one of 0 … i) has a slot of its own, a
 * pair of words, 2·slot and 2·slot + 1, that make one 64-bit number:
 *
 *   shuffle of the extents of an epoch  slot = epoch·E + i       E extents in an epoch
 *   shuffle of the rows of a window     slot = epoch·n + s + i   s: where in the epoch the window starts, so
 *                                                                that the slot is the sample's position
 *
 * from the sequences MN_RANDOM_ORDER + 2·attempt + (0: extents, 1: rows). A number that would make the choice
 * uneven is rejected and drawn again with attempt + 1. So no two shuffles share a word, none depends on how
 * often another drew again, and there are slots for all positions below 2⁶³. */
#include "data/order.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/random.h"

enum shuffled { EXTENTS, ROWS };

struct mn_order {
  int64_t rows;        /* n */
  int64_t count;       /* E, extents in an epoch */
  int64_t missing;     /* rows that the last extent lacks */
  int64_t short_index; /* index of the last extent in `extents` */
  int64_t epoch;       /* that `extents` is shuffled for; −1 before the first */
  int shuffled;
  uint64_t seed;
  int64_t extents[]; /* [E], shuffled */
};

mn_status mn_order_open(struct mn_order **out, int64_t rows, uint64_t seed, int shuffled) {
  MN_REQUIRE(rows >= 1);
  int64_t count = (rows - 1) / MN_ORDER_EXTENT + 1;
  struct mn_order *order = *out = malloc(sizeof *order + (size_t)count * sizeof order->extents[0]);
  if (!order)
    return mn_fail(MN_NO_MEMORY, "no memory for the order of %lld rows (%lld bytes)", (long long)rows,
                   (long long)count * 8);
  *order = (struct mn_order){.rows = rows, .count = count, .epoch = -1, .shuffled = shuffled, .seed = seed};
  order->missing = MN_ORDER_EXTENT - 1 - (rows - 1) % MN_ORDER_EXTENT; /* count·64 − rows may not fit */
  return MN_OK;
}

void mn_order_close(struct mn_order *order) {
  free(order);
}

int64_t mn_order_windows(const struct mn_order *order) {
  return (order->count - 1) / MN_ORDER_WINDOW + 1;
}

/* A uniform number in 0 … bound − 1. */
static uint64_t draw(uint64_t seed, enum shuffled what, uint64_t slot, uint64_t bound) {
  /* Without the lowest 2⁶⁴ mod bound numbers all remainders are equally likely. */
  uint64_t uneven = -bound % bound;
  for (uint32_t attempt = 0; attempt < 0x4000; attempt++) {
    uint32_t which = MN_RANDOM_ORDER + 2 * attempt + what, words[4];
    mn_philox(seed, which, slot / 2, words); /* words 2·slot and 2·slot + 1 are among these */
    uint64_t number = (uint64_t)words[slot % 2 * 2] << 32 | words[slot % 2 * 2 + 1];
    if (number >= uneven) return number % bound;
  }
  MN_REQUIRE(!"a random number accepted in 16384 attempts, each better than even");
  return 0;
}

static void shuffle(int64_t *values, int64_t count, uint64_t seed, enum shuffled what, uint64_t slot) {
  for (int64_t i = count - 1; i > 0; i--) {
    int64_t j = (int64_t)draw(seed, what, slot + (uint64_t)i, (uint64_t)i + 1);
    int64_t value = values[i];
    values[i] = values[j];
    values[j] = value;
  }
}

/* Shuffles `extents` for `epoch`. */
static void turn_to(struct mn_order *order, int64_t epoch) {
  MN_REQUIRE(epoch >= 0 && epoch <= INT64_MAX / order->rows - 1);
  if (order->epoch == epoch) return;
  int64_t last = order->count - 1;
  for (int64_t i = 0; i <= last; i++) order->extents[i] = i;
  if (order->shuffled)
    shuffle(order->extents, order->count, order->seed, EXTENTS, (uint64_t)epoch * (uint64_t)order->count);
  for (int64_t i = 0; i <= last; i++)
    if (order->extents[i] == last) order->short_index = i;
  order->epoch = epoch;
}

/* The offset in the epoch at which a window starts. */
static int64_t start_of(const struct mn_order *order, int64_t window) {
  int short_before = order->short_index < window * MN_ORDER_WINDOW;
  return window * MN_ORDER_WINDOW_ROWS - (short_before ? order->missing : 0);
}

static int ascending(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

void mn_order_window(struct mn_order *order, int64_t epoch, int64_t window, int64_t extents[MN_ORDER_WINDOW],
                     int64_t *count, int64_t samples[MN_ORDER_WINDOW_ROWS], int64_t *total) {
  MN_REQUIRE(window >= 0 && window < mn_order_windows(order));
  turn_to(order, epoch);
  int64_t first = window * MN_ORDER_WINDOW;
  *count = order->count - first < MN_ORDER_WINDOW ? order->count - first : MN_ORDER_WINDOW;
  memcpy(extents, order->extents + first, (size_t)*count * sizeof *extents);
  /* Ascending, so that one call reads neighbouring extents; the rows are shuffled below. */
  qsort(extents, (size_t)*count, sizeof *extents, ascending);
  int has_short = extents[*count - 1] == order->count - 1;
  *total = *count * MN_ORDER_EXTENT - (has_short ? order->missing : 0);
  for (int64_t i = 0; i < *total; i++) samples[i] = i;
  int64_t position = epoch * order->rows + start_of(order, window);
  if (order->shuffled) shuffle(samples, *total, order->seed, ROWS, (uint64_t)position);
}

void mn_order_find(struct mn_order *order, int64_t epoch, int64_t offset, int64_t *window, int64_t *within) {
  MN_REQUIRE(offset >= 0 && offset < order->rows);
  turn_to(order, epoch);
  *window = offset / MN_ORDER_WINDOW_ROWS;
  if (*window + 1 < mn_order_windows(order) && offset >= start_of(order, *window + 1)) ++*window;
  *within = offset - start_of(order, *window);
}
