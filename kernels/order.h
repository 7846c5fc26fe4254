/* The order of samples: a function of (seed, epoch, position) alone, the same on each device. So nothing
 * of it is stored or sent, a run can resume anywhere, and a GPU numbers the rows of a batch by itself.
 *
 * An epoch is a permutation of the n rows. First the extents, MN_ORDER_EXTENT neighbouring rows each, are
 * shuffled; MN_ORDER_WINDOW extents in the new order make a window; then the rows of each window are
 * shuffled. So a window takes at most one read per extent, and a dataset of one window is shuffled fully.
 * Batches are consecutive ranges of the endless sequence of epochs and may straddle two epochs. */
#ifndef MN_KERNELS_ORDER_H
#define MN_KERNELS_ORDER_H

#include "kernels/types.h"

enum {
  MN_ORDER_EXTENT = 64,
  MN_ORDER_WINDOW = 64,
  MN_ORDER_WINDOW_ROWS = MN_ORDER_EXTENT * MN_ORDER_WINDOW,
  MN_ORDER_ROUNDS = 24, /* with 8 some orders are rarer than others; with 16 no test finds one */
};
#define MN_ORDER_MOST ((int64_t)1 << 42) /* rows */

/* A permutation of 0 … count − 1 for each count: Hoang, Morris and Rogaway's swap-or-not (CRYPTO 2012). A
 * round pairs each x with sum − x (mod count), and a coin that both know, as it is of their larger one,
 * says whether they change places. Two that are not paired part with probability 1/2 in each round. */
struct mn_shuffle {
  uint32_t sums[MN_ORDER_ROUNDS], keys[MN_ORDER_ROUNDS]; /* random; a round's sum is sums[r]·count/2³² */
};

/* An epoch's. The rows have numbers in the order of their extents, as many to each extent, so that each
 * window has a range of numbers. As the last extent is short, the numbers hole … hole + missing − 1 have
 * no row. */
struct mn_order {
  int64_t rows, hole, missing;
  int bits, shuffled; /* an extent has 2^bits rows: 64 below 2³⁷ rows */
  int32_t extents;    /* that are shuffled: 0 if a window has them all */
  struct mn_shuffle of_extents, of_rows;
};

/* `rows` ≥ 1, epoch·rows + rows < 2⁶³. With shuffled 0: the order in which the rows are stored. */
MN_C void mn_order_begin(struct mn_order *order, int64_t rows, uint64_t seed, int64_t epoch, int shuffled);

MN_EVERYWHERE static inline int64_t mn_order_windows(int64_t rows) {
  return (rows - 1) / MN_ORDER_WINDOW_ROWS + 1;
}

/* Bits of a number, the highest the best: by the fractions of the golden ratio and of √2. */
MN_EVERYWHERE static inline uint32_t mn_order_mix(uint32_t bits) {
  bits *= 0x9e3779b1;
  return (bits ^ bits >> 16) * 0x6a09e667;
}

/* Where x, below count, is after a round. Without a branch, which would be taken half of the time. */
MN_EVERYWHERE static inline int32_t mn_shuffle_round(int32_t count, uint32_t sum, uint32_t key, int32_t x) {
  const int32_t apart = (int32_t)((uint64_t)sum * (uint32_t)count >> 32) - x;
  const int32_t other = apart < 0 ? apart + count : apart;
  const uint32_t coin = mn_order_mix((uint32_t)(x > other ? x : other) ^ key) >> 31;
  return x ^ ((x ^ other) & -(int32_t)coin);
}
/* Where it is in the end; each salt makes other coins. With count 0 it stays. */
MN_EVERYWHERE static inline int32_t mn_shuffled(const struct mn_shuffle *s, int32_t count, int32_t x,
                                                uint32_t salt) {
  for (int r = 0; r < MN_ORDER_ROUNDS && count; r++)
    x = mn_shuffle_round(count, s->sums[r], s->keys[r] ^ salt, x);
  return x;
}

/* The number of the row at a place among all rows in the order of the extents. */
MN_EVERYWHERE static inline int64_t mn_order_across(const struct mn_order *o, int64_t place) {
  return place < o->hole ? place : place + o->missing;
}
/* The window of a sample, as its first number; a window's first sample, how many it has, and the salt for
 * shuffling them. */
MN_EVERYWHERE static inline int64_t mn_order_window(const struct mn_order *o, int64_t sample) {
  return mn_order_across(o, sample) & ~(int64_t)(MN_ORDER_WINDOW_ROWS - 1);
}
MN_EVERYWHERE static inline int64_t mn_order_first(const struct mn_order *o, int64_t window) {
  return window < o->hole ? window : window - o->missing;
}
MN_EVERYWHERE static inline int64_t mn_order_count(const struct mn_order *o, int64_t window) {
  const int64_t next = mn_order_first(o, window + MN_ORDER_WINDOW_ROWS);
  return (next < o->rows ? next : o->rows) - mn_order_first(o, window);
}
MN_EVERYWHERE static inline uint32_t mn_order_salt(int64_t window) {
  return mn_order_mix(mn_order_mix((uint32_t)(window / MN_ORDER_WINDOW_ROWS)) >> 1);
}

/* The number of a sample of the epoch, and the row of a number, whose extent is stored as `extent`. */
MN_EVERYWHERE static inline int64_t mn_order_number(const struct mn_order *o, int64_t sample) {
  const int64_t window = mn_order_window(o, sample), first = mn_order_first(o, window);
  const int32_t count = o->shuffled ? (int32_t)mn_order_count(o, window) : 0;
  return mn_order_across(
      o, first + mn_shuffled(&o->of_rows, count, (int32_t)(sample - first), mn_order_salt(window)));
}
MN_EVERYWHERE static inline int64_t mn_order_row(const struct mn_order *o, int64_t number) {
  const int64_t extent = number >> o->bits, each = (int64_t)1 << o->bits;
  return number + (mn_shuffled(&o->of_extents, o->extents, (int32_t)extent, 0) - extent) * each;
}

/* The samples of a filling: `each` make a batch, of which this rank has `share` from `first` on. Their
 * rows are gathered to `share` of every `spacing` rows. */
struct mn_samples {
  struct mn_order epochs[2]; /* the one of sample 0, and the next */
  int64_t offset; /* of sample 0 in epochs[0]; below 0 if the first samples are of an epoch before */
  int64_t window; /* memory has the rows from this number on; −1: all, as they are stored */
  int64_t each, first, share, spacing;
  const float *largest;    /* of each row in memory its largest finite |value|; or NULL */
  struct mn_scale *scales; /* of each batch, whose `largest` becomes that of all its rows; or NULL */
};

/* The row of memory that has a sample. */
MN_EVERYWHERE static inline int64_t mn_samples_row(const struct mn_samples *s, int64_t sample) {
  const int64_t offset = s->offset + sample, next = offset >= s->epochs[0].rows;
  const struct mn_order *order = &s->epochs[next];
  const int64_t number = mn_order_number(order, offset - next * order->rows);
  return s->window < 0 ? mn_order_row(order, number) : number - s->window;
}

/* For samples begin … end − 1: rows[i] becomes the row that is gathered to row i, or −1 if none is. */
typedef mn_status mn_number_function(struct mn_device *device, const struct mn_samples *samples,
                                     int64_t begin, int64_t end, int64_t *rows);
#define mn_number(device, ...) (device)->kernels->number(device, __VA_ARGS__)

#endif
