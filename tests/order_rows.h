/* What the tests of the order and of the loader share. */
#ifndef MN_TESTS_ORDER_ROWS_H
#define MN_TESTS_ORDER_ROWS_H

#include "kernels/order.h"
#include "tests/check.h"

enum { WINDOW = MN_ORDER_WINDOW_ROWS };

/* The n rows of an epoch in their order, for free. */
static inline int64_t *epoch_rows(int64_t n, uint64_t seed, int64_t epoch) {
  int64_t *all = malloc((size_t)n * sizeof *all);
  struct mn_order order;
  assert_non_null(all);
  mn_order_begin(&order, n, seed, epoch, 1);
  for (int64_t i = 0; i < n; i++) all[i] = mn_order_row(&order, mn_order_number(&order, i));
  return all;
}

#endif
