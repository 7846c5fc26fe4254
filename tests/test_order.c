/* The order of samples: a permutation for each epoch, a function of the seed and the epoch alone. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "tests/order_rows.h"

static void assert_permutes(int64_t n, uint64_t seed, int64_t epoch) {
  struct mn_samples s = {.window = -1, .each = n, .share = n, .spacing = n};
  int64_t *rows = malloc((size_t)n * sizeof *rows);
  char *seen = calloc((size_t)n, 1);
  assert_true(rows && seen);
  mn_order_begin(&s.epochs[0], n, seed, epoch, 1);
  MUST(mn_number_cpu(&(struct mn_device){0}, &s, 0, n, rows));
  for (int64_t i = 0; i < n; i++) {
    assert_true(rows[i] >= 0 && rows[i] < n && !seen[rows[i]]);
    seen[rows[i]] = 1;
  }
  free(seen), free(rows);
}

static void orders_are_permutations(void **state) {
  for (int64_t n = 1; n <= 10000; n++)
    for (int64_t epoch = 0; epoch < (n < 300 ? 3 : 1); epoch++) assert_permutes(n, (uint64_t)n, epoch);
  for (int64_t epoch = 0; epoch < 9; epoch++) assert_permutes(262145 - 70 * epoch, 7, epoch);
}

/* A window's rows are those of 64 whole extents; the last extent comes in any window. */
static void windows_are_extents(void **state) {
  const int64_t n = 5 * WINDOW + 77;
  int64_t lasts = 0;
  for (int64_t epoch = 0; epoch < 40; epoch++) {
    struct mn_order order;
    int64_t *rows = epoch_rows(n, 3, epoch), sample = 0;
    mn_order_begin(&order, n, 3, epoch, 1);
    for (int64_t window = 0; sample < n; window += WINDOW) {
      const int64_t count = mn_order_count(&order, window);
      char *in = calloc((size_t)n + 64, 1);
      assert_non_null(in);
      assert_int_equal(mn_order_first(&order, window), sample);
      for (int64_t i = sample; i < sample + count; i++) {
        assert_int_equal(mn_order_window(&order, i), window);
        in[rows[i]] = 1;
      }
      for (int64_t row = 0, extents = 0; row < n; row++) {
        assert_int_equal(in[row], in[row / 64 * 64]);
        extents += row % 64 == 0 && in[row];
        if (row == n - 1) assert_int_equal(extents, sample + count < n ? 64 : (n - 1) / 64 + 1 - window / 64);
      }
      lasts |= in[n - 1] << window / WINDOW;
      sample += count;
      free(in);
    }
    free(rows);
  }
  assert_int_equal(lasts & 31, 31); /* the sixth has two extents of 322 */
}

static void a_window_begins_behind_a_whole_one(void **state) {
  for (int64_t whole = 1; whole < 4; whole++)
    for (int more = 0; more < 2; more++)
      assert_int_equal(mn_order_windows(whole * WINDOW + more), whole + more);
}

/* How many of n places hold the same row in two orders: about one in orders that have nothing in common. */
static int64_t in_common(const int64_t *a, const int64_t *b, int64_t n) {
  int64_t same = 0;
  for (int64_t i = 0; i < n; i++) same += a[i] == b[i];
  return same;
}

static void orders_depend_on_seed_and_epoch_alone(void **state) {
  const int64_t n = 9000;
  int64_t *e0 = epoch_rows(n, 1, 0), *e1 = epoch_rows(n, 1, 1), *e5 = epoch_rows(n, 1, 5);
  int64_t *o0 = epoch_rows(n, 1ULL << 32 | 1, 0), *a5 = epoch_rows(n, 1, 5), *a0 = epoch_rows(n, 1, 0);
  assert_memory_equal(e5, a5, (size_t)n * sizeof *e5);
  assert_memory_equal(e0, a0, (size_t)n * sizeof *e0);
  assert_in_range(in_common(e0, e1, n), 0, 20);
  assert_in_range(in_common(e0, e5, n), 0, 20);
  assert_in_range(in_common(e0, o0, n), 0, 20);
  int64_t ascents = 0;
  for (int64_t i = 1; i < n; i++) ascents += e0[i] > e0[i - 1];
  assert_in_range(ascents, n / 2 - 200, n / 2 + 200);
  free(e0), free(e1), free(e5), free(o0), free(a5), free(a0);
}

/* χ² of counts that are to be even, as a multiple of its own deviation from its mean. */
static double unevenness(const int64_t *counts, int64_t cases, double expected) {
  double chi = 0;
  for (int64_t i = 0; i < cases; i++)
    chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
  return (chi - (double)(cases - 1)) / sqrt(2 * (double)(cases - 1));
}

/* The order of epoch e, or, to compare, one by Fisher and Yates. */
static void draw_order(int fisher_yates, int64_t *rows, int64_t n, uint64_t seed, int64_t e) {
  struct mn_order order;
  mn_order_begin(&order, n, seed, e, 1);
  for (int64_t i = 0; i < n; i++)
    rows[i] = fisher_yates ? i : mn_order_row(&order, mn_order_number(&order, i));
  for (int64_t i = n - 1; i > 0 && fisher_yates; i--) {
    const int64_t with = mn_random_word(seed, 7, (uint64_t)(e * n + i)) % (i + 1), row = rows[i];
    rows[i] = rows[with], rows[with] = row;
  }
}

/* Each of the n! orders of n rows as often as any other. Eight rounds fail for 6 rows. The draw is always the
 * same. */
static void orders_are_even(void **state) {
  for (int64_t n = 2, all = 2; n <= 6; n++, all *= n)
    for (int fisher_yates = 0; fisher_yates < 2; fisher_yates++) {
      int64_t counts[720] = {0};
      const int64_t epochs = 200 * all > 20000 ? 200 * all : 20000;
      for (int64_t e = 0; e < epochs; e++) {
        int64_t rows[6], which = 0;
        draw_order(fisher_yates, rows, n, 99, e);
        for (int64_t i = 0; i < n; i++) {
          int64_t smaller = 0;
          for (int64_t k = i + 1; k < n; k++) smaller += rows[k] < rows[i];
          which = which * (n - i) + smaller;
        }
        counts[which]++;
      }
      const double z = unevenness(counts, all, (double)epochs / (double)all);
      if (!(z < 4)) fail_msg("orders of %lld rows: %g", (long long)n, z);
    }
}

/* Where a row comes, what comes behind it, and where it goes from one epoch to the next. */
static void places_are_even(void **state) {
  enum { ROWS = 100, EPOCHS = 6000 };
  for (int fisher_yates = 0; fisher_yates < 2; fisher_yates++) {
    static int64_t place[ROWS][ROWS], behind[ROWS], moved[ROWS][ROWS];
    int64_t at[2][ROWS], rows[ROWS];
    memset(place, 0, sizeof place), memset(behind, 0, sizeof behind), memset(moved, 0, sizeof moved);
    for (int64_t e = 0; e < EPOCHS; e++) {
      draw_order(fisher_yates, rows, ROWS, 5, e);
      for (int i = 0; i < ROWS; i++) at[e % 2][rows[i]] = i;
      for (int i = 0; i < ROWS; i++) {
        place[i][rows[i]]++;
        behind[(rows[(i + 1) % ROWS] - rows[i] + ROWS) % ROWS]++;
        if (e) moved[at[0][i]][at[1][i]]++;
      }
    }
    assert_int_equal(behind[0], 0);
    assert_true(fabs(unevenness(&place[0][0], ROWS * ROWS, EPOCHS / (double)ROWS)) < 5);
    assert_true(fabs(unevenness(behind + 1, ROWS - 1, EPOCHS * (double)ROWS / (ROWS - 1))) < 5);
    assert_true(fabs(unevenness(&moved[0][0], ROWS * ROWS, (EPOCHS - 1) / (double)ROWS)) < 5);
  }
}

/* Where a window's extents come from, and its rows: one window's have nothing to do with another's, though
 * the keys of both differ by the salt alone. */
static void windows_are_apart(void **state) {
  enum { N = 32 * WINDOW, EPOCHS = 400, CELLS = 32 };
  static int64_t joint[CELLS][CELLS], extents[CELLS][CELLS];
  for (int64_t e = 0; e < EPOCHS; e++) {
    struct mn_order order;
    mn_order_begin(&order, N, 8, e, 1);
    for (int i = 0; i < CELLS; i++) {
      const int64_t one = mn_order_number(&order, 37 + i * (WINDOW / CELLS));
      const int64_t other = mn_order_number(&order, 37 + i * (WINDOW / CELLS) + (1 + e % 31) * WINDOW);
      joint[one * CELLS / WINDOW][other % WINDOW * CELLS / WINDOW]++;
      extents[i][mn_order_row(&order, i * WINDOW) * CELLS / N]++;
    }
  }
  const double expected = EPOCHS * CELLS / (double)(CELLS * CELLS);
  assert_true(fabs(unevenness(&joint[0][0], CELLS * CELLS, expected)) < 5);
  assert_true(fabs(unevenness(&extents[0][0], CELLS * CELLS, expected)) < 5);
}

/* The numbers that a device gives the rows of a rank's batches: 0 and more in the places of these, −1
 * between; and the largest |value| of each batch. */
static void devices_number_rows(void **state) {
  enum { MOST = 30000 };
  static struct mn_samples s;
  static int64_t numbers[MOST];
  static float sizes[9000];
  struct mn_scale scale[16], *scales = NULL;
  float *largest = NULL;
  struct mn_device *device = open_or_skip(*state, "fp32");
  int64_t *rows = NULL;
  MUST(mn_device_allocate(device, (void **)&rows, MOST, sizeof *rows));
  MUST(mn_device_allocate(device, (void **)&largest, 9000, sizeof *largest));
  MUST(mn_device_allocate(device, (void **)&scales, 16, sizeof *scales));
  srand(1);
  for (int i = 0; i < 9000; i++) sizes[i] = (float)rand() / 7;
  MUST(mn_copy(device, largest, sizes, sizeof sizes));
  for (int c = 0; c < 1000; c++) {
    const int64_t n = 1 + rand() % (c % 3 ? 9000 : 300), most = n < 700 ? n : 700, epoch = rand() % 5;
    s.each = 1 + rand() % most;
    int64_t ranks = s.each % 2 ? 1 : 2, batches = 1 + rand() % (n / s.each < 16 ? n / s.each : 16);
    s.share = s.each / ranks, s.first = rand() % ranks * s.share, s.spacing = s.share + rand() % 3;
    s.offset = rand() % n, s.window = -1;
    if (c % 4 == 0) { /* one window, of which a filling takes up to all that is left */
      struct mn_order order;
      mn_order_begin(&order, n, (uint64_t)c, epoch, c % 5 > 0);
      s.window = mn_order_window(&order, s.offset);
      const int64_t end = mn_order_first(&order, s.window) + mn_order_count(&order, s.window);
      if (batches > (end - s.offset) / s.each) batches = (end - s.offset) / s.each;
      if (batches == 0) continue;
    }
    s.largest = largest, s.scales = c % 2 ? scales : NULL;
    for (int k = 0; k < 2; k++) mn_order_begin(&s.epochs[k], n, (uint64_t)c, epoch + k, c % 5 > 0);
    const int64_t all = batches * s.spacing, half = rand() % (batches * s.each);
    int64_t *epochs[] = {epoch_rows(n, (uint64_t)c, epoch), epoch_rows(n, (uint64_t)c, epoch + 1)};
    MUST(mn_zero(device, scales, 16 * sizeof *scales));
    if (half) MUST(mn_number(device, &s, 0, half, rows)); /* in two parts, as from two windows */
    MUST(mn_number(device, &s, half, batches * s.each, rows));
    MUST(mn_download(device, scale, scales, 16 * sizeof *scales));
    MUST(mn_download(device, numbers, rows, sizeof *rows * (size_t)all));
    for (int64_t b = 0; b < batches && s.scales; b++) {
      float peak = 0;
      for (int64_t i = 0; i < s.each; i++) peak = fmaxf(peak, sizes[mn_samples_row(&s, b * s.each + i)]);
      assert_true(scale[b].largest == peak);
    }
    for (int64_t i = 0; i < all; i++) {
      const int64_t sample = i / s.spacing * s.each + s.first + i % s.spacing, at = s.offset + sample;
      int64_t row = c % 5 == 0 ? at % n : epochs[at / n][at % n];
      if (s.window >= 0) row = mn_order_number(&s.epochs[0], at) - s.window;
      assert_int_equal(numbers[i], i % s.spacing < s.share ? row : -1);
      if (i % s.spacing < s.share) assert_int_equal(mn_samples_row(&s, sample), row);
    }
    free(epochs[0]), free(epochs[1]);
  }
  mn_device_release(device, rows, MOST, sizeof *rows);
  mn_device_release(device, largest, 9000, sizeof *largest);
  mn_device_release(device, scales, 16, sizeof *scales);
  mn_device_close(device);
}

/* A checkpoint's position means the same sample in every version: these may never change. */
static void orders_stay(void **state) {
  const struct {
    int64_t n;
    uint64_t seed;
    int64_t epoch;
    uint64_t hash;
  } cases[] = {{10, 0, 0, 0xe5fe772e361365a6},
               {1437, 42, 3, 0xd160c39e48264a2f},
               {10000, 1ULL << 63 | 5, 123456789, 0xbd071716628ab357}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    int64_t *rows = epoch_rows(cases[c].n, cases[c].seed, cases[c].epoch);
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a, a row at a time */
    for (int64_t i = 0; i < cases[c].n; i++) hash = (hash ^ (uint64_t)rows[i]) * 0x100000001b3;
    if (hash != cases[c].hash)
      print_error("order of %lld rows: 0x%016llx\n", (long long)cases[c].n, (unsigned long long)hash);
    assert_true(hash == cases[c].hash);
    free(rows);
  }
}

/* The last epoch that there is; as many rows as there may be, of which some are looked at; and extents that are as
 * many as there may be, so that one row more makes them longer. */
static void orders_reach_far(void **state) {
  const int64_t n = (int64_t)1 << 40;
  struct mn_order order;
  assert_permutes(1, 3, INT64_MAX - 1);
  assert_permutes(4999, 3, INT64_MAX / 4999 - 1);
  mn_order_begin(&order, n, 3, INT64_MAX / n - 1, 1);
  for (int64_t at = 0; at < n; at += n / 10007) {
    int32_t extent = mn_shuffled(&order.of_extents, order.extents, (int32_t)(at >> order.bits), 0);
    assert_in_range(mn_order_row(&order, mn_order_number(&order, at)), 0, n - 1);
    for (int round = MN_ORDER_ROUNDS - 1; round >= 0; round--) /* each round is its own inverse */
      extent =
          mn_shuffle_round(order.extents, order.of_extents.sums[round], order.of_extents.keys[round], extent);
    assert_int_equal(extent, at >> order.bits);
  }
  for (int more = 0; more < 2; more++) {
    mn_order_begin(&order, (int64_t)INT32_MAX * 64 + more, 3, 0, 1);
    assert_int_equal(order.bits, 6 + more);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders_are_permutations),
      cmocka_unit_test(windows_are_extents),
      cmocka_unit_test(a_window_begins_behind_a_whole_one),
      cmocka_unit_test(orders_depend_on_seed_and_epoch_alone),
      cmocka_unit_test(orders_are_even),
      cmocka_unit_test(places_are_even),
      cmocka_unit_test(windows_are_apart),
      BOTH(devices_number_rows),
      cmocka_unit_test(orders_stay),
      cmocka_unit_test(orders_reach_far),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
