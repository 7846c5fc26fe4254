/* Drawing an epoch's order, and numbering rows on the CPU. */
#include "kernels/order.h"

#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "kernels/planes.h"

void mn_order_begin(struct mn_order *o, int64_t rows, uint64_t seed, int64_t epoch, int shuffled) {
  MN_REQUIRE(rows >= 1 && rows <= MN_ORDER_MOST && epoch >= 0 && epoch <= INT64_MAX / rows - 1);
  *o = (struct mn_order){.rows = rows, .bits = 6, .shuffled = shuffled};
  while ((rows - 1) >> o->bits >= INT32_MAX) o->bits++;
  const int64_t last = (rows - 1) >> o->bits, whole = (last + 1) << o->bits;
  int32_t place = (int32_t)last;
  for (int r = 0; r < MN_ORDER_ROUNDS && shuffled; r++) {
    uint32_t words[4];
    mn_philox(seed, MN_RANDOM_ORDER + (uint32_t)r, (uint64_t)epoch, words);
    o->of_extents.sums[r] = words[0], o->of_extents.keys[r] = words[1];
    o->of_rows.sums[r] = words[2], o->of_rows.keys[r] = words[3];
  }
  if (shuffled && mn_order_windows(rows) > 1) o->extents = (int32_t)last + 1;
  /* Where the last extent comes: each round is its own inverse. */
  for (int r = MN_ORDER_ROUNDS - 1; r >= 0 && o->extents; r--)
    place = mn_shuffle_round(o->extents, o->of_extents.sums[r], o->of_extents.keys[r], place);
  o->missing = whole - rows, o->hole = (((int64_t)place + 1) << o->bits) - o->missing;
}

/* A round of all before the next: one alone would wait for each multiplication. */
#define SHUFFLE(name, attribute)                                                                             \
  static attribute void shuffle_##name(const struct mn_shuffle *s, int32_t count, int32_t *x,                \
                                       int64_t number, uint32_t salt) {                                      \
    for (int r = 0; r < MN_ORDER_ROUNDS && count; r++) {                                                     \
      const uint32_t sum = s->sums[r], key = s->keys[r] ^ salt;                                              \
      for (int64_t i = 0; i < number; i++) x[i] = mn_shuffle_round(count, sum, key, x[i]);                   \
    }                                                                                                        \
  }
MN_LEVELS(SHUFFLE)
#define NAME(name, attribute) shuffle_##name,
static void (*const shuffle[])(const struct mn_shuffle *, int32_t, int32_t *, int64_t,
                               uint32_t) = {MN_LEVELS(NAME)};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* At most AT_ONCE samples, of one batch, epoch and window; returns how many. */
static int64_t number(const struct mn_samples *s, int64_t i, int64_t end, int64_t *rows, int level) {
  enum { AT_ONCE = 128 };
  int32_t x[AT_ONCE];
  const int64_t batch = i / s->each, within = i % s->each, next = s->offset + i >= s->epochs[0].rows;
  const struct mn_order *o = &s->epochs[next];
  const int64_t sample = s->offset + i - next * o->rows, window = mn_order_window(o, sample);
  const int64_t first = mn_order_first(o, window), all = mn_order_count(o, window);
  const int64_t count = least(least(end - i, AT_ONCE), least(s->each - within, first + all - sample));
  rows += batch * s->spacing;
  for (int64_t gap = s->share; gap < s->spacing && within == 0; gap++) rows[gap] = -1;
  if (!s->scales && (within + count <= s->first || within >= s->first + s->share)) return count;
  for (int64_t k = 0; k < count; k++) x[k] = (int32_t)(sample - first + k);
  shuffle[level](&o->of_rows, o->shuffled ? (int32_t)all : 0, x, count, mn_order_salt(window));
  int64_t numbers[AT_ONCE];
  for (int64_t k = 0; k < count; k++)
    numbers[k] = mn_order_across(o, first + x[k]), x[k] = (int32_t)(numbers[k] >> o->bits);
  if (s->window < 0) shuffle[level](&o->of_extents, o->extents, x, count, 0);
  for (int64_t k = 0; k < count; k++) {
    const int64_t moved = (x[k] - (numbers[k] >> o->bits)) * ((int64_t)1 << o->bits);
    const int64_t row = numbers[k] + (s->window < 0 ? moved : -s->window), own = within + k - s->first;
    if (own >= 0 && own < s->share) rows[own] = row;
    if (s->scales) s->scales[batch].largest = mn_scale_larger(s->scales[batch].largest, s->largest[row]);
  }
  return count;
}

mn_status mn_number_cpu(struct mn_device *device, const struct mn_samples *samples, int64_t begin,
                        int64_t end, int64_t *rows) {
  enum { A_THREAD = 1024 }; /* 10 us; with less to do for each, waiting for the threads would take longer */
  const int level = mn_level();
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(mn_threads(device)) if (end - begin > 2 * A_THREAD && !samples->scales)
  for (int64_t from = begin; from < end; from += A_THREAD)
    for (int64_t i = from, to = least(end, from + A_THREAD); i < to;)
      i += number(samples, i, to, rows, level);
  return MN_OK;
}
