/* The order of samples: a permutation for each epoch, a function of the seed and the epoch alone. */
#include "tests/order_rows.h"

static void orders_are_permutations(void **state) {
  const int64_t sizes[] = {1, 2, 63, 64, 65, 128, 1437, 4095, 4096, 4097, 4160, 8192, 8193, 12321, 40000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t n = sizes[s];
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, n, 7, 1), MN_OK);
    assert_int_equal(mn_order_windows(order), (n + WINDOW - 1) / WINDOW);
    char *seen = malloc((size_t)n);
    for (int64_t epoch = 0; epoch < 9; epoch += 1 + epoch * 3) {
      int64_t *rows = epoch_rows(order, n, epoch);
      memset(seen, 0, (size_t)n);
      for (int64_t i = 0; i < n; i++) {
        assert_in_range(rows[i], 0, n - 1);
        assert_false(seen[rows[i]]);
        seen[rows[i]] = 1;
      }
      free(rows);
    }
    free(seen);
    mn_order_close(order);
  }
  mn_order_close(NULL);
}

/* How many of n places hold the same row in two orders: about one in orders that have nothing in common. */
static int64_t in_common(const int64_t *a, const int64_t *b, int64_t n) {
  int64_t same = 0;
  for (int64_t i = 0; i < n; i++) same += a[i] == b[i];
  return same;
}

static void orders_depend_on_seed_and_epoch_alone(void **state) {
  const int64_t n = 9000;
  struct mn_order *order, *other, *again;
  assert_int_equal(mn_order_open(&order, n, 1, 1), MN_OK);
  assert_int_equal(mn_order_open(&other, n, 1ULL << 32 | 1, 1), MN_OK);
  assert_int_equal(mn_order_open(&again, n, 1, 1), MN_OK);
  int64_t *e0 = epoch_rows(order, n, 0), *e1 = epoch_rows(order, n, 1), *e5 = epoch_rows(order, n, 5);
  int64_t *o0 = epoch_rows(other, n, 0), *a5 = epoch_rows(again, n, 5), *a0 = epoch_rows(again, n, 0);
  assert_memory_equal(e5, a5, (size_t)n * sizeof *e5);
  assert_memory_equal(e0, a0, (size_t)n * sizeof *e0);
  assert_in_range(in_common(e0, e1, n), 0, 20);
  assert_in_range(in_common(e0, e5, n), 0, 20);
  assert_in_range(in_common(e0, o0, n), 0, 20);
  int64_t ascents = 0;
  for (int64_t i = 1; i < n; i++) ascents += e0[i] > e0[i - 1];
  assert_in_range(ascents, n / 2 - 200, n / 2 + 200);
  free(e0), free(e1), free(e5), free(o0), free(a5), free(a0);
  mn_order_close(order), mn_order_close(other), mn_order_close(again);
}

/* Each of the 24 orders of 4 rows as often as any other; χ² with 23 degrees of freedom is below 60 but once
 * in 30000 times, and the draw is always the same. The extents likewise. */
static void orders_are_even(void **state) {
  enum { EPOCHS = 24000 };
  for (int of_extents = 0; of_extents < 2; of_extents++) {
    /* For the extents: which of 65 … is in the second window, alone: 65 cases. */
    const int64_t n = of_extents ? 65 * 64 : 4, cases = of_extents ? 65 : 24,
                  epochs = of_extents ? 6500 : EPOCHS;
    int64_t counts[256] = {0};
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, n, 99, 1), MN_OK);
    for (int64_t e = 0; e < epochs; e++) {
      int64_t extents[MN_ORDER_WINDOW], rows[WINDOW], count, total;
      mn_order_window(order, e, of_extents, extents, &count, rows, &total);
      counts[of_extents ? extents[0] : rows[0] * 64 + rows[1] * 16 + rows[2] * 4 + rows[3]]++;
    }
    double chi = 0, expected = (double)epochs / (double)cases;
    int64_t seen = 0;
    for (int i = 0; i < 256; i++)
      if (counts[i])
        seen++, chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    assert_int_equal(seen, cases);
    assert_true(chi < (of_extents ? 115 : 60)); /* 64 degrees of freedom: 115, once in 10000 */
    mn_order_close(order);
  }
}

/* A checkpoint's position means the same sample in every version: these may never change. */
static void orders_stay(void **state) {
  const struct {
    int64_t n;
    uint64_t seed;
    int64_t epoch;
    uint64_t hash;
  } cases[] = {{10, 0, 0, 0xe26ee8df14450400},
               {1437, 42, 3, 0x8078baf56413dbf1},
               {10000, 1ULL << 63 | 5, 123456789, 0x1327753b8acd831b}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, cases[c].n, cases[c].seed, 1), MN_OK);
    int64_t *rows = epoch_rows(order, cases[c].n, cases[c].epoch);
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a, a row at a time */
    for (int64_t i = 0; i < cases[c].n; i++) hash = (hash ^ (uint64_t)rows[i]) * 0x100000001b3;
    if (hash != cases[c].hash)
      print_error("order of %lld rows: 0x%016llx\n", (long long)cases[c].n, (unsigned long long)hash);
    assert_true(hash == cases[c].hash);
    free(rows);
    mn_order_close(order);
  }
}

/* The last epoch that there is. */
static void orders_reach_far(void **state) {
  for (int64_t n = 1; n < 5000; n += 4998) {
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, n, 3, 1), MN_OK);
    free(epoch_rows(order, n, INT64_MAX / n - 1));
    mn_order_close(order);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders_are_permutations), cmocka_unit_test(orders_depend_on_seed_and_epoch_alone),
      cmocka_unit_test(orders_are_even),         cmocka_unit_test(orders_stay),
      cmocka_unit_test(orders_reach_far),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
