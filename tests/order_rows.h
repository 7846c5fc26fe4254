/* What the tests of the order and of the loader share. */
#ifndef MN_TESTS_ORDER_ROWS_H
#define MN_TESTS_ORDER_ROWS_H

#include "data/order.h"
#include "tests/check.h"

enum { WINDOW = MN_ORDER_EXTENT * MN_ORDER_WINDOW };

/* Calls mn_order_window for all of an epoch; returns its n rows, for free. Checks each window on the way. */
static inline int64_t *epoch_rows(struct mn_order *order, int64_t n, int64_t epoch) {
  int64_t *all = malloc((size_t)n * sizeof *all), done = 0;
  assert_non_null(all);
  for (int64_t w = 0; w < mn_order_windows(order); w++) {
    int64_t extents[MN_ORDER_WINDOW], rows[WINDOW], count, total, expected = 0, window, within;
    mn_order_window(order, epoch, w, extents, &count, rows, &total);
    assert_in_range(count, 1, MN_ORDER_WINDOW);
    for (int64_t b = 0; b < count; b++) {
      assert_true(b == 0 || extents[b] > extents[b - 1]);
      expected += n - extents[b] * 64 < 64 ? n - extents[b] * 64 : 64;
    }
    assert_int_equal(total, expected);
    assert_true(done + total <= n);
    for (int64_t i = 0; i < total; i++) {
      assert_in_range(rows[i], 0, total - 1);
      all[done + i] = extents[rows[i] / 64] * 64 + rows[i] % 64;
    }
    int64_t offsets[] = {0, total / 2, total - 1};
    for (int k = 0; k < 3; k++) {
      mn_order_find(order, epoch, done + offsets[k], &window, &within);
      assert_int_equal(window, w);
      assert_int_equal(within, offsets[k]);
    }
    done += total;
  }
  assert_int_equal(done, n);
  return all;
}

#endif
