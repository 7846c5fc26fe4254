/* Holding rows out. The choice, a byte for each row, is computed anew each time, and not stored.
 *
 * Without strata the test rows are the first of the order of samples (kernels/order.h) in its last epoch,
 * which no run reaches. Full windows of 4096 rows are held out as 64 extents of 64 neighbours, the rest as
 * single rows. So most rows are still read in full ranges: stretches of neighbours in stored order. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/held_out.h"
#include "kernels/order.h"
#include "kernels/random.h"

/* Rows at … at + count − 1 are rows first … first + count − 1 of the full dataset. */
struct stretch {
  int64_t at, first, count;
};

struct held_out {
  struct mn_dataset base; /* first, so that the two convert */
  struct mn_dataset *whole;
  int owns; /* `whole` is closed too */
  int64_t count;
  struct stretch stretches[]; /* [count], ascending */
};

int64_t mn_dataset_held_out(int64_t rows, double fraction) {
  int64_t count = llround(fraction * (double)rows);
  return count < 1 ? 1 : count < rows ? count : rows - 1;
}

/* ---- which rows ---- */

/* Holds out the first `count` rows of the order. */
static void pick(unsigned char *held, const struct mn_dataset *whole, uint64_t seed, int64_t count) {
  struct mn_order order;
  mn_order_begin(&order, whole->rows, seed, INT64_MAX / whole->rows - 1, 1);
  for (int64_t i = 0; i < count; i++) held[mn_order_row(&order, mn_order_number(&order, i))] = 1;
}

/* A class: its rows, its rows to hold out, and the remainder of rounding that number down. */
struct stratum {
  int64_t class, rows, held;
  double rest;
};

static int by_class(const void *a, const void *b) {
  const struct stratum *left = a, *right = b;
  return (left->class > right->class) - (left->class < right->class);
}

static int by_rest(const void *a, const void *b) {
  const struct stratum *left = a, *right = b;
  return left->rest < right->rest ? 1 : left->rest > right->rest ? -1 : by_class(a, b);
}

/* Lets each class of two rows or more hold one out, in turn from those that hold out most, as long as these
 * hold out two. */
static void lend(struct stratum *strata, int64_t count) {
  int64_t from = 0;
  for (int64_t c = 0; c < count; c++) strata[c].rest = (double)strata[c].held;
  qsort(strata, (size_t)count, sizeof *strata, by_rest);
  for (int64_t c = count - 1; c > 0 && strata[c].held == 0; c--) {
    if (strata[c].rows < 2) continue;
    if (strata[from].held < 2) from = 0;
    if (strata[from].held < 2) return;
    strata[from++].held--;
    strata[c].held++;
  }
}

/* Divides `held` among the classes by largest remainders, then lends them rows in both parts. */
static void share(struct stratum *strata, int64_t count, double fraction, int64_t held) {
  for (int64_t c = 0; c < count; c++) {
    struct stratum *s = &strata[c];
    const double exact = fraction * (double)s->rows;
    s->class = c;
    s->held = s->rows && (int64_t)exact > s->rows - 1 ? s->rows - 1 : (int64_t)exact;
    s->rest = s->rows ? exact - (double)s->held : -1;
    held -= s->held;
  }
  qsort(strata, (size_t)count, sizeof *strata, by_rest);
  MN_REQUIRE(held >= 0 && held <= count);
  for (int64_t c = 0; c < held; c++) strata[c].held++;
  for (int side = 0; side < 2; side++) {
    lend(strata, count);
    for (int64_t c = 0; c < count; c++) strata[c].held = strata[c].rows - strata[c].held;
  }
  qsort(strata, (size_t)count, sizeof *strata, by_class);
}

/* Holds out each row with the probability (rows of its class still to hold out) / (rows of its class still to
 * come), so that all choices are equally likely; the remainder of a 64-bit number by 2²⁸ or less is uniform
 * to 2⁻³⁶. */
static void draw(unsigned char *held, const int32_t *labels, int64_t rows, struct stratum *strata,
                 uint64_t seed) {
  for (int64_t row = 0; row < rows; row++) {
    struct stratum *s = &strata[labels[row]];
    uint32_t words[4];
    mn_philox(seed, MN_RANDOM_HELD_OUT, (uint64_t)row, words);
    held[row] = (int64_t)(((uint64_t)words[0] << 32 | words[1]) % (uint64_t)s->rows) < s->held;
    s->held -= held[row];
    s->rows--;
  }
}

static mn_status stratify(unsigned char *held, struct mn_dataset *whole, double fraction, uint64_t seed) {
  const int64_t count = whole->classes ? whole->outputs : 1;
  int32_t *labels;
  MN_TRY(mn_dataset_labels(&labels, whole));
  struct stratum *strata = calloc((size_t)count, sizeof *strata);
  for (int64_t row = 0; row < whole->rows && strata; row++) strata[labels[row]].rows++;
  if (strata) share(strata, count, fraction, mn_dataset_held_out(whole->rows, fraction));
  for (int64_t c = 0; c < count && whole->classes && strata; c++)
    if (!strata[c].held != (strata[c].held == strata[c].rows)) whole->alone = -1 - c;
  if (strata) draw(held, labels, whole->rows, strata, seed);
  const mn_status status =
      strata ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for the rows of %lld classes", (long long)count);
  free(strata), free(labels);
  return status;
}

/* The number of stretches of rows that are held out, or, `held_out` 0, of the others; lists them in `h`
 * unless NULL. */
static int64_t list(struct held_out *h, const unsigned char *held, int64_t rows, int held_out) {
  int64_t count = 0, at = 0;
  for (int64_t row = 0; row < rows; row++) {
    if (held[row] != held_out) continue;
    const int begins = row == 0 || held[row - 1] != held_out;
    count += begins;
    if (h && begins) h->stretches[count - 1] = (struct stretch){.at = at, .first = row};
    if (h) h->stretches[count - 1].count++;
    at++;
  }
  if (h) h->count = count, h->base.rows = at;
  return count;
}

/* ---- reading ---- */

/* The stretch that has row `row`. */
static const struct stretch *find_stretch(const struct held_out *h, int64_t row) {
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
    const struct stretch *s = find_stretch(h, first + done);
    int64_t within = first + done - s->at, left = count - done;
    here = s->count - within < left ? s->count - within : left;
    MN_TRY(whole->read(whole, s->first + within, here, real, x ? (char *)x + (size_t)done * x_row : NULL,
                       y ? (char *)y + (size_t)done * y_row : NULL));
  }
  return MN_OK;
}

int64_t mn_dataset_row(const struct mn_dataset *dataset, int64_t row) {
  const struct held_out *h = (const struct held_out *)dataset;
  if (dataset->read != held_out_read) return dataset->numbers ? dataset->numbers[row] : row;
  const struct stretch *s = find_stretch(h, row);
  return mn_dataset_row(h->whole, s->first + row - s->at);
}

static void held_out_close(struct mn_dataset *dataset) {
  struct held_out *h = (struct held_out *)dataset;
  if (h->owns) mn_dataset_close(h->whole);
  free(h);
}

static mn_status open_stretches(struct mn_dataset **out, struct mn_dataset *whole, const unsigned char *held,
                                int held_out, int owns) {
  const int64_t count = list(NULL, held, whole->rows, held_out);
  struct held_out *h = malloc(sizeof *h + (size_t)count * sizeof h->stretches[0]);
  double *weights = NULL;
  if (h && whole->weights) weights = malloc((size_t)whole->rows * sizeof *weights);
  if (!h || (whole->weights && !weights)) {
    free(h);
    return mn_fail(MN_NO_MEMORY, "no memory for %lld stretches of rows", (long long)count);
  }
  double sum = 0;
  for (int64_t row = 0, at = 0; weights && row < whole->rows; row++)
    if (held[row] == held_out) sum += weights[at++] = whole->weights[row];
  if (weights && sum == 0) {
    free(weights), free(h);
    return mn_fail(MN_BAD_DATA, "all rows %s have the weight 0: hold out other rows, or none",
                   held_out ? "that are held out" : "to train on");
  }
  h->base = *whole;
  h->base.weights = weights;
  h->base.read = held_out_read;
  h->base.close = held_out_close;
  h->base.numbers = NULL; /* mn_dataset_row's */
  h->whole = whole;
  h->owns = owns;
  list(h, held, whole->rows, held_out);
  *out = &h->base;
  return MN_OK;
}

mn_status mn_dataset_hold_out(struct mn_dataset **dataset, enum mn_part part, double fraction, uint64_t seed,
                              int stratified) {
  if (part != MN_PART_TRAIN && part != MN_PART_TEST)
    return mn_fail(MN_USAGE, "part %d: rows that are held out are MN_PART_TEST, the others MN_PART_TRAIN",
                   (int)part);
  MN_GIVEN(dataset);
  MN_GIVEN(*dataset);
  struct mn_dataset *whole = *dataset;
  const int single = stratified && whole->rows <= MN_DATASET_STRATIFIED / whole->inputs;
  if (!(fraction > 0 && fraction < 1))
    return mn_fail(MN_USAGE, "%g of the rows cannot be held out; a number between 0 and 1 would do",
                   fraction);
  if (whole->rows < 2)
    return mn_fail(MN_BAD_DATA, "of a single row none can be held out; give more data, or hold out none");
  unsigned char *held = calloc((size_t)whole->rows, 1);
  if (!held) return mn_fail(MN_NO_MEMORY, "no memory to hold out of %lld rows", (long long)whole->rows);
  mn_status status = single ? stratify(held, whole, fraction, seed) : MN_OK;
  if (!single) pick(held, whole, seed, mn_dataset_held_out(whole->rows, fraction));
  if (status == MN_OK) status = open_stretches(dataset, whole, held, part == MN_PART_TEST, 1);
  free(held);
  return status;
}

/* ---- folds ---- */

/* Rows of a class, in an order that is drawn, go to the folds in turn; each class begins where the one before
 * it ended. */
mn_status mn_dataset_deal(unsigned char *fold, struct mn_dataset *whole, int folds, uint64_t seed) {
  const int64_t rows = whole->rows, classes = whole->classes ? whole->outputs : 1;
  if (rows < folds)
    return mn_fail(MN_USAGE, "%d folds of %ld rows: at most as many folds as rows work", folds, (long)rows);
  int32_t *labels;
  MN_TRY(mn_dataset_labels(&labels, whole));
  int64_t *next = calloc((size_t)classes + 1, sizeof *next);
  const mn_status status = next ? MN_OK : mn_fail(MN_NO_MEMORY, "no memory for %d folds", folds);
  for (int64_t row = 0; row < rows && status == MN_OK; row++) next[labels[row] + 1]++;
  for (int64_t c = 0; c < classes && status == MN_OK; c++) next[c + 1] += next[c];
  struct mn_order order;
  mn_order_begin(&order, rows, seed, INT64_MAX / rows - 1, 1);
  for (int64_t i = 0; i < rows && status == MN_OK; i++) {
    const int64_t row = mn_order_row(&order, mn_order_number(&order, i));
    fold[row] = (unsigned char)(next[labels[row]]++ % folds);
  }
  free(labels);
  free(next);
  return status;
}

mn_status mn_dataset_fold(struct mn_dataset **out, struct mn_dataset *whole, const unsigned char *fold,
                          int which, enum mn_part part) {
  MN_OPENS(out, whole, fold);
  unsigned char *held = malloc((size_t)whole->rows);
  if (!held) return mn_fail(MN_NO_MEMORY, "no memory for a fold of %lld rows", (long long)whole->rows);
  for (int64_t row = 0; row < whole->rows; row++) held[row] = fold[row] == which;
  const mn_status status = open_stretches(out, whole, held, part == MN_PART_TEST, 0);
  free(held);
  return status;
}
