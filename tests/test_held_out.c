/* Rows that are held out of a dataset: which they are, and that both parts read as the whole does. */
#include "data/held_out.h"
#include "data/loader.h"
#include "tests/order_rows.h"
#include "tests/rows_made.h"

static void close_nothing(struct mn_dataset *dataset) {}

static struct made whole_of(int64_t rows, int classes) {
  struct made m = make(rows, classes);
  m.base.close = close_nothing;
  return m;
}

/* The rows of a part of `m`, read `each` at a time; for free. */
static int64_t *rows_of(struct made *m, enum mn_part part, double fraction, uint64_t seed, int64_t each,
                        int64_t *count) {
  struct mn_dataset *d = &m->base;
  assert_int_equal(mn_dataset_hold_out(&d, part, fraction, seed, 0), MN_OK);
  assert_int_equal(d->inputs, INPUTS);
  *count = d->rows;
  int64_t *rows = malloc((size_t)d->rows * sizeof *rows);
  double *x = malloc((size_t)each * INPUTS * sizeof *x), *y = malloc((size_t)each * 2 * sizeof *y);
  assert_true(rows && x && y);
  for (int64_t first = 0; first < d->rows; first += each) {
    int64_t here = d->rows - first < each ? d->rows - first : each;
    assert_int_equal(d->read(d, first, here, 8, x, y), MN_OK);
    for (int64_t r = 0; r < here; r++) {
      rows[first + r] = d->classes ? ((int32_t *)y)[r] : (int64_t)y[2 * r];
      for (int64_t i = 0; i < INPUTS; i++) assert_true(x[r * INPUTS + i] == x_of(rows[first + r], i));
    }
  }
  free(x), free(y);
  mn_dataset_close(d);
  return rows;
}

/* Every row is in one of the parts, once, and each part holds its rows in order. */
static void each_row_is_in_one_part(void **state) {
  const int64_t sizes[] = {2, 3, 63, 64, 65, 1437, 4096, 4097, 4160, 8193, 20000, 40001};
  const double fractions[] = {1e-9, 0.1, 0.25, 0.5, 0.9, 1 - 1e-9};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++) {
      int64_t n = sizes[s], held, rest;
      struct made m = whole_of(n, s % 2);
      int64_t *test = rows_of(&m, MN_PART_TEST, fractions[f], 3, 1 + n / 7, &held);
      int64_t *train = rows_of(&m, MN_PART_TRAIN, fractions[f], 3, n, &rest);
      double exact = fractions[f] * (double)n;
      assert_int_equal(held, mn_dataset_held_out(n, fractions[f]));
      assert_true(held >= 1 && rest >= 1 && held + rest == n);
      assert_true(fabs((double)held - exact) <= 0.5 || held == 1 || rest == 1);
      for (int64_t row = 0, i = 0, k = 0; row < n; row++) {
        int in_test = i < held && test[i] == row, in_train = k < rest && train[k] == row;
        assert_int_equal(in_test + in_train, 1);
        i += in_test, k += in_train;
      }
      free(test), free(train);
    }
}

static void the_rows_are_the_seeds(void **state) {
  int64_t count, other_count, changed = 0;
  struct made m = whole_of(9000, 0);
  int64_t *once = rows_of(&m, MN_PART_TEST, 0.1, 1, 900, &count);
  int64_t *again = rows_of(&m, MN_PART_TEST, 0.1, 1, 7, &other_count);
  assert_int_equal(count, 900);
  assert_int_equal(other_count, count);
  assert_memory_equal(once, again, (size_t)count * sizeof *once);
  int64_t *other = rows_of(&m, MN_PART_TEST, 0.1, 2, 900, &other_count);
  for (int64_t i = 0; i < count; i++) changed += once[i] != other[i];
  assert_true(changed > 800);
  /* They are the first of the order in its last epoch: so the order's tests are theirs too. */
  int64_t *rows = epoch_rows(9000, 1, INT64_MAX / 9000 - 1);
  for (int64_t i = 0; i < count; i++) {
    int64_t k = 0;
    while (k < count && once[k] != rows[i]) k++;
    assert_true(k < count);
  }
  free(once), free(again), free(other), free(rows);
}

/* Of many rows all but a window's are held out by extents, and read so. */
static void reads_stay_whole(void **state) {
  const int64_t n = 400000;
  struct made m = whole_of(n, 1);
  struct mn_dataset *test = &m.base, *train = &m.base;
  assert_int_equal(mn_dataset_hold_out(&test, MN_PART_TEST, 0.1, 0, 0), MN_OK);
  assert_int_equal(mn_dataset_hold_out(&train, MN_PART_TRAIN, 0.1, 0, 0), MN_OK);
  float *x = malloc((size_t)n * INPUTS * sizeof *x);
  int32_t *y = malloc((size_t)n * sizeof *y);
  assert_true(x && y);
  assert_int_equal(test->read(test, 0, test->rows, 4, x, y), MN_OK);
  assert_true(m.reads < 40000 / MN_ORDER_EXTENT + MN_ORDER_WINDOW_ROWS);
  m.reads = 0;
  assert_int_equal(train->read(train, 0, train->rows, 4, x, y), MN_OK);
  assert_true(m.reads < 40000 / MN_ORDER_EXTENT + MN_ORDER_WINDOW_ROWS);
  free(x), free(y);
  mn_dataset_close(test), mn_dataset_close(train);
}

/* Rows of classes that lie one behind the other in the file, as many as `sizes` says. */
struct sorted {
  struct mn_dataset base;
  const int64_t *sizes;
};

static int32_t class_of(const struct sorted *s, int64_t row) {
  int32_t class = 0;
  while (row >= s->sizes[class]) row -= s->sizes[class ++];
  return class;
}

static mn_status sorted_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                             void *y) {
  for (int64_t i = 0; i < count && y; i++)
    ((int32_t *)y)[i] = class_of((const struct sorted *)dataset, first + i);
  return MN_OK;
}

static void each_class_has_its_share(void **state) {
  enum { CLASSES = 6 };
  const double fractions[] = {1e-9, 0.1, 0.25, 0.5, 0.9, 1 - 1e-9};
  static const int64_t tenths[] = {900, 500, 0, 30, 1, 0}; /* of the first sizes */
  static const int64_t sizes[][CLASSES] = {
      {9000, 5000, 0, 303, 7, 1}, {1, 1, 1, 1, 1, 1}, {33, 33, 33, 33, 33, 33}, {1, 0, 0, 0, 0, 1}};
  for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
    for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++) {
      int64_t rows = 0, of_class[CLASSES] = {0}, all = 0;
      char times[16384] = "";
      for (int c = 0; c < CLASSES; c++) rows += sizes[z][c];
      for (int part = 0; part < 2; part++) {
        struct sorted whole = {{.rows = rows,
                                .inputs = 1,
                                .outputs = CLASSES,
                                .classes = 1,
                                .read = sorted_read,
                                .close = close_nothing},
                               sizes[z]};
        struct mn_dataset *d = &whole.base;
        assert_int_equal(mn_dataset_hold_out(&d, part ? MN_PART_TEST : MN_PART_TRAIN, fractions[f], 3, 1),
                         MN_OK);
        if (part) assert_int_equal(d->rows, mn_dataset_held_out(rows, fractions[f]));
        for (int64_t i = 0; i < d->rows; i++) {
          const int64_t row = mn_dataset_row(d, i);
          assert_true(i == 0 || row > mn_dataset_row(d, i - 1));
          times[row]++;
          if (part) of_class[class_of(&whole, row)]++;
        }
        all += d->rows;
        mn_dataset_close(d);
      }
      assert_int_equal(all, rows);
      for (int64_t row = 0; row < rows; row++) assert_int_equal(times[row], 1);
      for (int c = 0; c < CLASSES; c++) {
        const double exact = fractions[f] * (double)sizes[z][c];
        assert_true(fabs((double)of_class[c] - exact) < 1 + 1e-6);
        if (z == 0 && f == 1) assert_int_equal(of_class[c], tenths[c]);
      }
    }
}

/* Of each class of two rows or more both parts have one, or as many classes lack one as there are rows too few. */
static void both_parts_have_each_class(void **state) {
  enum { MOST = 40, DRAWN = 400 };
  uint32_t word = 5;
  int scarce = 0;
  for (int k = 0; k < DRAWN; k++) {
    int64_t sizes[MOST], rows = 0, twice = 0, held[MOST] = {0}, lacks[2] = {0};
    const int classes = 1 + (int)((word = word * 1664525 + 1013904223) >> 8) % MOST;
    for (int c = 0; c < classes; c++) {
      const int kind = (int)((word = word * 1664525 + 1013904223) >> 8) % 4, many = (int)(word >> 20) % 900;
      sizes[c] = kind == 0 ? (int)(word >> 16) % 3 : kind == 3 ? many : 1 + many % 12;
      rows += sizes[c], twice += sizes[c] > 1;
    }
    const double fraction = ((word = word * 1664525 + 1013904223) >> 8) * 0x1p-24;
    if (rows < 2 || fraction == 0) continue;
    struct sorted whole = {{.rows = rows,
                            .inputs = 1,
                            .outputs = classes,
                            .classes = 1,
                            .read = sorted_read,
                            .close = close_nothing},
                           sizes};
    struct mn_dataset *d = &whole.base;
    MUST(mn_dataset_hold_out(&d, MN_PART_TEST, fraction, (uint64_t)k, 1));
    assert_int_equal(d->rows, mn_dataset_held_out(rows, fraction));
    for (int64_t i = 0; i < d->rows; i++) held[class_of(&whole, mn_dataset_row(d, i))]++;
    const int64_t test = d->rows, train = rows - test;
    int alone = 0;
    for (int c = 0; c < classes; c++) {
      lacks[0] += sizes[c] > 1 && held[c] == 0, lacks[1] += sizes[c] > 1 && held[c] == sizes[c];
      alone += sizes[c] > 0 && (held[c] == 0 || held[c] == sizes[c]);
    }
    assert_int_equal(lacks[0], twice > test ? twice - test : 0);
    assert_int_equal(lacks[1], twice > train ? twice - train : 0);
    if (alone) {
      const int64_t which = -1 - d->alone;
      assert_true(which >= 0 && sizes[which] > 0 && (held[which] == 0 || held[which] == sizes[which]));
    } else
      assert_int_equal(d->alone, 0);
    scarce += lacks[0] || lacks[1];
    mn_dataset_close(d);
  }
  assert_true(scarce > 5 && scarce < DRAWN / 4);
}

/* Rows without classes are single ones as well; of very many they are those of mn_dataset_hold_out. */
static void single_rows_are_drawn(void **state) {
  int64_t next = 0, changed = 0, early = 0;
  for (int seed = 0; seed < 2; seed++) {
    struct made m = whole_of(200000, 0);
    struct mn_dataset *d = &m.base, *other = &m.base;
    assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TEST, 0.1, (uint64_t)seed, 1), MN_OK);
    assert_int_equal(mn_dataset_hold_out(&other, MN_PART_TEST, 0.1, 0, 1), MN_OK);
    assert_int_equal(d->rows, 20000);
    for (int64_t i = 0; i < d->rows; i++) {
      next += i > 0 && mn_dataset_row(d, i) == mn_dataset_row(d, i - 1) + 1;
      early += mn_dataset_row(d, i) < 100000;
      changed += mn_dataset_row(d, i) != mn_dataset_row(other, i);
    }
    if (seed == 0) assert_int_equal(changed, 0);
    mn_dataset_close(d), mn_dataset_close(other);
  }
  assert_true(changed > 18000);
  /* A tenth of them, and half of them, by six standard deviations at the least. */
  assert_true(next > 3600 && next < 4400 && early > 19400 && early < 20600);
  struct made m = whole_of(MN_DATASET_STRATIFIED / INPUTS + 1, 0);
  struct mn_dataset *d = &m.base, *same = &m.base;
  assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TEST, 0.1, 1, 1), MN_OK);
  assert_int_equal(mn_dataset_hold_out(&same, MN_PART_TEST, 0.1, 1, 0), MN_OK);
  for (int64_t i = 0; i < d->rows; i += 999) assert_int_equal(mn_dataset_row(d, i), mn_dataset_row(same, i));
  mn_dataset_close(d), mn_dataset_close(same);
}

/* An epoch of the loader has every row that is not held out, once, wherever the rows wait. */
static void an_epoch_is_of_the_rest(void **state) {
  enum { N = 9000, HELD = 900, BATCH = 100 };
  static char held_out[N];
  static int32_t seen[2][2 * (N - HELD)];
  struct mn_device *device = open_or_skip("cpu", "fp32");
  struct made m = whole_of(N, 1);
  int64_t count;
  int64_t *held = rows_of(&m, MN_PART_TEST, 0.1, 4, N, &count);
  for (int64_t i = 0; i < count; i++) held_out[held[i]] = 1;
  for (int in_file = 0; in_file < 2; in_file++) {
    struct mn_dataset *train = &m.base;
    struct mn_loader *loader;
    MUST(mn_dataset_hold_out(&train, MN_PART_TRAIN, 0.1, 4, 0));
    struct mn_loader_config config = {
        .place = in_file ? MN_PLACE_FILE : MN_PLACE_DEVICE, .shuffled = 1, .seed = 4, .samples = BATCH};
    MUST(mn_loader_open(&loader, device, train, &config));
    for (int64_t done = 0; done < 2 * (N - HELD); done += BATCH) {
      struct mn_batch batch;
      MUST(device->kernels->ahead_begin(device));
      MUST(mn_loader_fill(loader, BATCH, &batch));
      MUST(device->kernels->ahead_end(device));
      memcpy(seen[in_file] + done, batch.y, BATCH * sizeof(int32_t));
    }
    for (int epoch = 0; epoch < 2; epoch++) {
      char times[N] = "";
      for (int i = 0; i < N - HELD; i++) times[seen[in_file][epoch * (N - HELD) + i]]++;
      for (int row = 0; row < N; row++) assert_int_equal(times[row] + held_out[row], 1);
    }
    mn_loader_close(loader);
    mn_dataset_close(train);
  }
  assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
  free(held);
  mn_device_close(device);
}

static void what_cannot_be_held_out_is_refused(void **state) {
  struct made m = whole_of(10, 0);
  struct mn_dataset *d = &m.base;
  const double wrong[] = {0, 1, -0.1, 2, NAN};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TRAIN, wrong[i], 0, 0), MN_USAGE);
  /* Labels that cannot be read. */
  m = whole_of(10, 1);
  m.bad_row = 7;
  assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TEST, 0.5, 0, 1), MN_BAD_DATA);
  assert_ptr_equal(d, &m.base);
  m = whole_of(10, 0);
  m.base.rows = 1;
  assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TEST, 0.5, 0, 0), MN_BAD_DATA);
  assert_ptr_equal(d, &m.base);
  /* An error of the whole's comes back, and names the row as the whole counts it. */
  m = whole_of(10, 0);
  m.bad_row = 7;
  assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TRAIN, 0.01, 0, 0), MN_OK);
  double x[10 * INPUTS], y[20];
  mn_status status = d->read(d, 0, 9, 8, x, y);
  mn_dataset_close(d);
  d = &m.base;
  assert_int_equal(mn_dataset_hold_out(&d, MN_PART_TEST, 0.01, 0, 0), MN_OK);
  assert_int_equal((status != MN_OK) + (d->read(d, 0, 1, 8, x, y) != MN_OK), 1);
  assert_non_null(strstr(mn_message(), "row 7"));
  mn_dataset_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_row_is_in_one_part),    cmocka_unit_test(the_rows_are_the_seeds),
      cmocka_unit_test(reads_stay_whole),           cmocka_unit_test(each_class_has_its_share),
      cmocka_unit_test(both_parts_have_each_class), cmocka_unit_test(single_rows_are_drawn),
      cmocka_unit_test(an_epoch_is_of_the_rest),    cmocka_unit_test(what_cannot_be_held_out_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
