/* The order of samples, and the loader that streams them: against a dataset made up here, whose rows say
 * which they are, so that every batch can be checked to the row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/order.h"
#include "kernels/kernels.h"

enum { WINDOW = MN_ORDER_EXTENT * MN_ORDER_WINDOW };

/* ---- the order ---- */

/* Calls mn_order_window for all of an epoch; returns its n rows, for free. Checks each window on the way. */
static int64_t *epoch_rows(struct mn_order *order, int64_t n, int64_t epoch) {
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

static void orders_are_permutations(void **state) {
  (void)state;
  const int64_t sizes[] = {1, 2, 63, 64, 65, 128, 1437, 4095, 4096, 4097, 4160, 8192, 8193, 12321, 40000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t n = sizes[s];
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, n, 7), MN_OK);
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
  (void)state;
  const int64_t n = 9000;
  struct mn_order *order, *other, *again;
  assert_int_equal(mn_order_open(&order, n, 1), MN_OK);
  assert_int_equal(mn_order_open(&other, n, 1ULL << 32 | 1), MN_OK);
  assert_int_equal(mn_order_open(&again, n, 1), MN_OK);
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
  (void)state;
  enum { EPOCHS = 24000 };
  for (int of_extents = 0; of_extents < 2; of_extents++) {
    /* For the extents: which of 65 … is in the second window, alone: 65 cases. */
    const int64_t n = of_extents ? 65 * 64 : 4, cases = of_extents ? 65 : 24,
                  epochs = of_extents ? 6500 : EPOCHS;
    int64_t counts[256] = {0};
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, n, 99), MN_OK);
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
  (void)state;
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
    assert_int_equal(mn_order_open(&order, cases[c].n, cases[c].seed), MN_OK);
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
  (void)state;
  for (int64_t n = 1; n < 5000; n += 4998) {
    struct mn_order *order;
    assert_int_equal(mn_order_open(&order, n, 3), MN_OK);
    free(epoch_rows(order, n, INT64_MAX / n - 1));
    mn_order_close(order);
  }
}

/* ---- a dataset and a stream made up ---- */

enum { INPUTS = 3 };

struct made {
  struct mn_dataset base;
  int64_t bad_row; /* reading it fails; −1: none */
  int delay_us;    /* of each read */
  int64_t reads, rows_read;
};

static double x_of(int64_t row, int i) {
  return (double)row * INPUTS + i;
}

static mn_status made_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                           void *y) {
  struct made *m = (struct made *)dataset;
  if (!(first >= 0 && count > 0 && first + count <= dataset->rows))
    return mn_fail(MN_LIBRARY, "no such rows");
  if (m->delay_us) nanosleep(&(struct timespec){m->delay_us / 1000000, m->delay_us % 1000000 * 1000L}, NULL);
  m->reads++;
  m->rows_read += count;
  if (m->bad_row >= first && m->bad_row < first + count)
    return mn_fail(MN_BAD_DATA, "made up: row %lld is bad", (long long)m->bad_row);
  for (int64_t r = 0; r < count; r++) {
    for (int i = 0; i < INPUTS; i++)
      if (real == 8)
        ((double *)x)[r * INPUTS + i] = x_of(first + r, i);
      else
        ((float *)x)[r * INPUTS + i] = (float)x_of(first + r, i);
    if (dataset->classes)
      ((int32_t *)y)[r] = (int32_t)(first + r);
    else if (dataset->outputs && real == 8)
      ((double *)y)[r * 2] = (double)(first + r), ((double *)y)[r * 2 + 1] = -1;
    else if (dataset->outputs)
      ((float *)y)[r * 2] = (float)(first + r), ((float *)y)[r * 2 + 1] = -1;
    else if (y)
      return mn_fail(MN_LIBRARY, "there is no y");
  }
  return MN_OK;
}

static struct made make(int64_t rows, int classes) {
  return (struct made){.base = {.rows = rows,
                                .inputs = INPUTS,
                                .outputs = classes ? rows : 2,
                                .classes = classes,
                                .floor = NAN,
                                .read = made_read},
                       .bad_row = -1};
}

static int host_buffers, host_limit;

static mn_status allocate_host(struct mn_device *device, void **out, size_t bytes) {
  (void)device;
  *out = NULL;
  if (host_buffers == host_limit) return mn_fail(MN_NO_MEMORY, "no buffer left");
  *out = malloc(bytes);
  assert_non_null(*out);
  memset(*out, 0xff, bytes); /* NaN: nothing may be handed out that was not filled */
  host_buffers++;
  return MN_OK;
}

static void release_host(struct mn_device *device, void *memory) {
  (void)device;
  host_buffers -= memory != NULL;
  free(memory);
}

static const struct mn_kernels kernels = {.allocate_host = allocate_host, .release_host = release_host};
static struct mn_device narrow = {.kernels = &kernels, .precision = MN_FP32, .real = 4};
static struct mn_device wide = {.kernels = &kernels, .precision = MN_FP64, .real = 8};

static int fresh(void **state) {
  (void)state;
  host_limit = 100;
  return 0;
}
static int none_left(void **state) {
  (void)state;
  return host_buffers;
}

static struct mn_loader *open_loader(struct made *m, struct mn_device *device, int64_t batch, uint64_t seed,
                                     int64_t position) {
  struct mn_loader *loader;
  mn_status status = mn_loader_open(&loader, &m->base, device, batch, seed, position);
  if (status != MN_OK) print_error("%s\n", mn_message());
  assert_int_equal(status, MN_OK);
  return loader;
}

/* Takes a batch and checks that it is samples position … of the sequence, whose epochs `epochs` holds. */
static void take(struct mn_loader *loader, const struct made *m, const struct mn_device *device,
                 int64_t batch, int64_t position, int64_t *const *epochs) {
  const void *x, *y;
  mn_status status = mn_loader_next(loader, &x, &y);
  if (status != MN_OK) print_error("%s\n", mn_message());
  assert_int_equal(status, MN_OK);
  for (int64_t b = 0; b < batch; b++) {
    int64_t row = epochs[(position + b) / m->base.rows][(position + b) % m->base.rows];
    for (int i = 0; i < INPUTS; i++) {
      double value = device->real == 8 ? ((const double *)x)[b * INPUTS + i]
                                       : (double)((const float *)x)[b * INPUTS + i];
      if (!(value == x_of(row, i))) fail_msg("sample %lld", (long long)(position + b));
    }
    if (m->base.classes)
      assert_int_equal(((const int32_t *)y)[b], row);
    else if (m->base.outputs) {
      double target = device->real == 8 ? ((const double *)y)[b * 2] : (double)((const float *)y)[b * 2];
      assert_true(target == (double)row);
    } else {
      assert_null(y);
    }
  }
}

enum { EPOCHS = 8 };

static void plan_epochs(int64_t *epochs[EPOCHS], int64_t n, uint64_t seed) {
  struct mn_order *order;
  assert_int_equal(mn_order_open(&order, n, seed), MN_OK);
  for (int e = 0; e < EPOCHS; e++) epochs[e] = epoch_rows(order, n, e);
  mn_order_close(order);
}

static void free_epochs(int64_t *epochs[EPOCHS]) {
  for (int e = 0; e < EPOCHS; e++) free(epochs[e]);
}

/* ---- the loader ---- */

static void streams_in_order(void **state) {
  (void)state;
  const struct {
    int64_t n, batch;
    int classes;
    struct mn_device *device;
  } cases[] = {{1, 1, 0, &wide},       {5, 5, 1, &narrow},       {100, 7, 0, &narrow},
               {1437, 64, 1, &narrow}, {4096, 1000, 0, &wide},   {4097, 100, 1, &wide},
               {9001, 9001, 0, &wide}, {9001, 5000, 1, &narrow}, {20000, 333, 0, &narrow}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    int64_t n = cases[c].n, batch = cases[c].batch, *epochs[EPOCHS];
    struct made m = make(n, cases[c].classes);
    plan_epochs(epochs, n, c);
    struct mn_loader *loader = open_loader(&m, cases[c].device, batch, c, 0);
    for (int64_t at = 0; at + batch <= EPOCHS * n; at += batch)
      take(loader, &m, cases[c].device, batch, at, epochs);
    mn_loader_close(loader);
    /* Long reads: at most one an extent; and a single window is read once, in one go. */
    assert_true(m.reads <= (m.rows_read + 63) / 64 + EPOCHS + 2);
    if (n <= WINDOW) assert_int_equal(m.rows_read, n);
    if (n <= WINDOW) assert_int_equal(m.reads, 1);
    free_epochs(epochs);
  }
}

static void streams_inputs_alone(void **state) {
  (void)state;
  int64_t *epochs[EPOCHS];
  struct made m = make(5000, 0);
  m.base.outputs = 0;
  plan_epochs(epochs, 5000, 1);
  struct mn_loader *loader = open_loader(&m, &narrow, 100, 1, 0);
  for (int64_t at = 0; at < 12000; at += 100) take(loader, &m, &narrow, 100, at, epochs);
  mn_loader_close(loader);
  free_epochs(epochs);
}

static void resumes_anywhere(void **state) {
  (void)state;
  const int64_t sizes[][2] = {{10, 3}, {130, 64}, {4100, 999}, {8229, 500}, {8200, 8200}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t n = sizes[s][0], batch = sizes[s][1], *epochs[EPOCHS];
    plan_epochs(epochs, n, 11);
    /* Each place up to the end of the third epoch, or some of them; around the ends of windows, each. */
    int64_t stride = n < 1000 ? 1 : 997;
    for (int64_t at = 0; at < 3 * n; at += at % n >= WINDOW - 70 && at % n < WINDOW + 2 ? 9 : stride) {
      struct made m = make(n, 1);
      struct mn_loader *loader = open_loader(&m, &narrow, batch, 11, at);
      for (int k = 0; k < 4 && at + (k + 1) * batch <= EPOCHS * n; k++)
        take(loader, &m, &narrow, batch, at + k * batch, epochs);
      mn_loader_close(loader);
    }
    free_epochs(epochs);
  }
}

/* A slow disk or a slow consumer: the same batches. */
static void does_not_depend_on_timing(void **state) {
  (void)state;
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, 4500, 5);
  for (int slow = 0; slow < 2; slow++) {
    struct made m = make(4500, 0);
    m.delay_us = slow ? 1000 : 0;
    struct mn_loader *loader = open_loader(&m, &wide, 300, 5, 77);
    for (int k = 0; k < 40; k++) {
      if (!slow) nanosleep(&(struct timespec){0, 2000000}, NULL);
      take(loader, &m, &wide, 300, 77 + k * 300, epochs);
    }
    mn_loader_close(loader);
  }
  free_epochs(epochs);
}

/* What was handed out stays as it is until the next call, however far the thread is by then. */
static void keeps_a_batch_until_the_next(void **state) {
  (void)state;
  struct made m = make(5000, 1);
  struct mn_loader *loader = open_loader(&m, &narrow, 50, 0, 0);
  for (int k = 0; k < 10; k++) {
    const void *x, *y;
    int32_t copy[50];
    assert_int_equal(mn_loader_next(loader, &x, &y), MN_OK);
    memcpy(copy, y, sizeof copy);
    nanosleep(&(struct timespec){0, 3000000}, NULL);
    assert_memory_equal(copy, y, sizeof copy);
  }
  mn_loader_close(loader);
}

/* A bad row stops the stream at its window, with its message; what comes before is not held back. */
static void hands_on_errors(void **state) {
  (void)state;
  const int64_t n = 3 * WINDOW, batch = 256;
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, n, 21);
  const int64_t places[] = {0, WINDOW, 2 * WINDOW + 5};
  for (int p = 0; p < 3; p++) {
    for (int slow = 0; slow < 2; slow++) {
      struct made m = make(n, 0);
      m.bad_row = epochs[0][places[p]];
      m.delay_us = slow ? 200 : 0;
      struct mn_loader *loader = open_loader(&m, &narrow, batch, 21, 0);
      for (int64_t at = 0; at < places[p] / WINDOW * WINDOW; at += batch)
        take(loader, &m, &narrow, batch, at, epochs);
      for (int again = 0; again < 3; again++) {
        const void *x, *y;
        char text[64];
        mn_fail(MN_OK, "another");
        assert_int_equal(mn_loader_next(loader, &x, &y), MN_BAD_DATA);
        snprintf(text, sizeof text, "made up: row %lld is bad", (long long)m.bad_row);
        assert_string_equal(mn_message(), text);
      }
      mn_loader_close(loader);
    }
  }
  free_epochs(epochs);
}

static void closes_promptly(void **state) {
  (void)state;
  /* 4096 rows in a window, 64 reads of 50 ms: closing may wait for one of them, not for all. */
  struct made m = make(1 << 20, 0);
  m.delay_us = 50000;
  struct mn_loader *loader = open_loader(&m, &wide, 64, 0, 0);
  struct timespec before, after;
  nanosleep(&(struct timespec){0, 20000000}, NULL);
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
  mn_loader_close(loader);
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
  double seconds = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
  assert_true(seconds < 1);
  /* At every stage: with the ring full, with nothing read, and never opened. */
  for (int k = 0; k < 20; k++) {
    struct made quick = make(5000, 1);
    loader = open_loader(&quick, &narrow, 100, 0, 0);
    if (k % 2) nanosleep(&(struct timespec){0, 5000000}, NULL);
    mn_loader_close(loader);
  }
  mn_loader_close(NULL);
}

/* For a build with AddressSanitizer: memory that is not there is NULL there too, as it is without. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}

static void refuses(void **state) {
  (void)state;
  struct made m = make(100, 1);
  struct mn_loader *loader = (struct mn_loader *)&loader;
  assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 101, 0, 0), MN_USAGE);
  assert_null(loader);
  assert_non_null(strstr(mn_message(), "101"));
  assert_non_null(strstr(mn_message(), "100 rows"));
  assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 0, 0, 0), MN_USAGE);
  assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 10, 0, -1), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "-1"));
  assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 10, 0, INT64_MAX), MN_BAD_DATA);
  m.base.inputs = INT64_MAX / 64;
  assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 10, 0, 0), MN_NO_MEMORY);
  m.base.inputs = (int64_t)1 << 49; /* counted, but not there */
  assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 10, 0, 0), MN_NO_MEMORY);
  assert_null(loader);
  m.base.inputs = INPUTS;
  for (host_limit = 0; host_limit < 6; host_limit++) {
    assert_int_equal(mn_loader_open(&loader, &m.base, &narrow, 10, 0, 0), MN_NO_MEMORY);
    assert_string_equal(mn_message(), "no buffer left");
    assert_int_equal(host_buffers, 0);
  }
  host_limit = 6;
  mn_loader_close(open_loader(&m, &narrow, 10, 0, 0));
}

/* The real thing, a file: each label once an epoch, with its own image. */
static void streams_digits(void **state) {
  (void)state;
  struct mn_dataset *d;
  assert_int_equal(mn_dataset_open(&d, "data/digits.h5", MN_PART_TRAIN, NULL, NULL, 1), MN_OK);
  float *x = malloc(1437 * 64 * sizeof *x);
  int32_t y[1437];
  assert_int_equal(d->read(d, 0, 1437, 4, x, y), MN_OK);
  struct mn_order *order;
  assert_int_equal(mn_order_open(&order, 1437, 42), MN_OK);
  int64_t *rows = epoch_rows(order, 1437, 0);
  struct mn_loader *loader;
  assert_int_equal(mn_loader_open(&loader, d, &narrow, 479, 42, 0), MN_OK);
  for (int b = 0; b < 3; b++) {
    const void *bx, *by;
    assert_int_equal(mn_loader_next(loader, &bx, &by), MN_OK);
    for (int i = 0; i < 479; i++) {
      assert_int_equal(((const int32_t *)by)[i], y[rows[b * 479 + i]]);
      assert_memory_equal((const float *)bx + i * 64, x + rows[b * 479 + i] * 64, 64 * sizeof *x);
    }
  }
  free(x), free(rows);
  mn_loader_close(loader);
  mn_order_close(order);
  mn_dataset_close(d);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, none_left)
  const struct CMUnitTest tests[] = {
      TEST(orders_are_permutations),
      TEST(orders_depend_on_seed_and_epoch_alone),
      TEST(orders_are_even),
      TEST(orders_stay),
      TEST(orders_reach_far),
      TEST(streams_in_order),
      TEST(streams_inputs_alone),
      TEST(resumes_anywhere),
      TEST(does_not_depend_on_timing),
      TEST(keeps_a_batch_until_the_next),
      TEST(hands_on_errors),
      TEST(closes_promptly),
      TEST(refuses),
      TEST(streams_digits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
