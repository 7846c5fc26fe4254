/* Ranges of rows read by several threads: each to its place, in each form, and the error of the earliest. */
#include <pthread.h>

#include "data/placement.h"
#include "engine/thread.h"
#include "kernels/planes.h"
#include "kernels/ranks/collectives.h"
#include "tests/rows_made.h"

/* Of several bad rows that several threads meet, the one that comes first in the file is named. */
static void names_the_first_bad_row(void **state) {
  struct mn_rows_form form = {.real = 4, .x_row = 4 * INPUTS, .y_row = 4};
  struct mn_range ranges[64];
  float *x = malloc(64 * 64 * INPUTS * sizeof *x);
  int32_t *y = malloc(64 * 64 * sizeof *y);
  struct mn_rows to = {.x = x, .y = y};
  assert_true(x && y);
  for (int i = 0; i < 64; i++) ranges[i] = (struct mn_range){(63 - i) * 64, 64, i * 64};
  struct made m = make(64 * 64, 1);
  m.base.parallel = 4;
  MUST(mn_read_rows(&m.base, &form, ranges, 64, &to, NULL));
  for (int i = 0; i < 64 * 64; i++) assert_int_equal(y[i], (63 - i / 64) * 64 + i % 64);
  m.bad_from = 640;  /* and all after it */
  m.delay_us = 1000; /* so that two threads, where there are two cores, have taken the first two ranges */
  for (int again = 0; again < 6; again++) {
    m.late_row = (again % 2 ? 62 : 63) * 64; /* of which now one, now the other fails first */
    m.reads = 0;
    assert_int_equal(mn_read_rows(&m.base, &form, ranges, 64, &to, NULL), MN_BAD_DATA);
    assert_string_equal(mn_message(), "made up: row 4032 is bad");
    assert_true(m.reads < 64); /* and nothing is read when it is known */
  }
  int stop = 1;
  assert_int_equal(mn_read_rows(&m.base, &form, ranges, 64, &to, &stop), MN_INTERRUPTED);
  free(x), free(y);
}

/* A range of several tasks, in each form, to rows in the middle of others. */
static void reads_long_ranges(void **state) {
  enum { ROWS = 900000, AT = 5, ALL = ROWS + 10 };
  struct made m = make(ROWS + 7, 1);
  char *x = malloc((size_t)ALL * INPUTS * sizeof(double));
  int32_t *y = malloc((size_t)ALL * sizeof *y);
  assert_true(x && y);
  for (size_t real = 4; real <= 8; real += 4)
    for (size_t bf16 = 0; bf16 <= (real == 4 ? 4 : 0); bf16 += 2) {
      size_t size = bf16 ? bf16 : real;
      struct mn_rows_form form = {.real = real, .bf16 = bf16, .x_row = size * INPUTS, .y_row = 4};
      memset(x, 0xee, (size_t)ALL * form.x_row), memset(y, 0xee, (size_t)ALL * sizeof *y);
      m.base.parallel = real;
      m.reads = 0;
      struct mn_rows to = {.x = x, .y = y};
      MUST(mn_read_rows(&m.base, &form, &(struct mn_range){7, ROWS, AT}, 1, &to, NULL));
      assert_true(m.reads > 1);
      for (int64_t i = 0; i < ALL; i++) {
        int within = i >= AT && i < AT + ROWS;
        assert_true(y[i] == (within ? i - AT + 7 : (int32_t)0xeeeeeeee));
        for (int c = 0; c < INPUTS; c++) {
          double value = x_of(i - AT + 7, c), expected[1] = {value};
          float narrow = bf16 ? mn_to_bf16((float)value) : (float)value;
          uint16_t bits = mn_bf16_bits((float)value);
          if (real == 4) memcpy(expected, size == 2 ? (void *)&bits : (void *)&narrow, size);
          if (!within) memset(expected, 0xee, size);
          if (memcmp(x + (size_t)i * form.x_row + (size_t)c * size, expected, size) != 0)
            fail_msg("row %lld, %zu bytes", (long long)i, size);
        }
      }
    }
  free(x), free(y);
}

/* Row 1000 has values that are not finite, which no dataset of a file lets pass. */
static mn_status read_odd(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                          void *y) {
  MN_TRY(made_read(dataset, first, count, real, x, y));
  if (1000 < first || 1000 >= first + count) return MN_OK;
  float *row = (float *)x + (1000 - first) * dataset->inputs;
  row[0] = NAN, row[1] = -INFINITY, row[2] = -7;
  return MN_OK;
}

/* Each row's largest |x|, to the row's own place, whichever thread read it. */
static void notes_the_largest(void **state) {
  enum { ROWS = 200000, AT = 5 };
  const struct mn_range ranges[] = {{ROWS / 2, ROWS / 2, AT}, {0, ROWS / 2, AT + ROWS / 2}};
  struct made m = make(ROWS, 1);
  struct mn_rows_form form = {.real = 4, .scaled = 1, .x_row = 4 * INPUTS, .y_row = 4};
  struct mn_rows to = {.x = malloc((size_t)(ROWS + AT) * form.x_row),
                       .largest = malloc((ROWS + AT) * sizeof *to.largest)};
  m.base.read = read_odd;
  m.base.parallel = 4;
  m.base.classes = 0, m.base.outputs = 0;
  assert_true(to.x && to.largest);
  for (int i = 0; i < AT; i++) to.largest[i] = -1;
  MUST(mn_read_rows(&m.base, &form, ranges, 2, &to, NULL));
  assert_true(m.reads > 2);
  for (int64_t i = 0; i < ROWS; i++) {
    int64_t row = (i + ROWS / 2) % ROWS;
    assert_true(to.largest[AT + i] == (row == 1000 ? 7 : fabs(x_of(row, INPUTS - 1))));
  }
  for (int i = 0; i < AT; i++) assert_true(to.largest[i] == -1);
  free(to.x), free(to.largest);
}

/* Who has read; each waits for so many, for two seconds at most. */
static struct {
  pthread_mutex_t mutex;
  pthread_t threads[64];
  int count, awaited;
} readers = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static mn_status read_noted(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real, void *x,
                            void *y) {
  int known = 0;
  MN_REQUIRE(pthread_mutex_lock(&readers.mutex) == 0);
  for (int i = 0; i < readers.count; i++) known |= pthread_equal(readers.threads[i], pthread_self()) != 0;
  if (!known) readers.threads[readers.count++] = pthread_self();
  for (int i = 0; i < 2000 && readers.count < readers.awaited; i++) {
    MN_REQUIRE(pthread_mutex_unlock(&readers.mutex) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    MN_REQUIRE(pthread_mutex_lock(&readers.mutex) == 0);
  }
  MN_REQUIRE(pthread_mutex_unlock(&readers.mutex) == 0);
  return made_read(dataset, first, count, real, x, y);
}

/* One rank among several has as many readers as it is due cores, whatever the host has. */
static void a_rank_reads_by_its_share_of_cores(void **state) {
  enum { RANGES = 64 };
  struct mn_ranks ranks = {.all.size = 2};
  const struct mn_device device = {.real = 4, .ranks = &ranks};
  struct mn_range ranges[RANGES];
  struct made m = make(RANGES, 1);
  float x[RANGES * INPUTS];
  int32_t y[RANGES];
  const struct mn_rows to = {.x = x, .y = y};
  m.base.parallel = 4;
  m.base.read = read_noted;
  m.delay_us = 1000; /* so that one thread too many would come */
  for (int i = 0; i < RANGES; i++) ranges[i] = (struct mn_range){i, 1, i};
  for (ranks.cores = 1; ranks.cores <= 5; ranks.cores += 2) {
    struct mn_rows_form form;
    readers.count = 0;
    readers.awaited = ranks.cores;
    MUST(mn_rows_form(&form, &m.base, &device));
    MUST(mn_read_rows(&m.base, &form, ranges, RANGES, &to, NULL));
    assert_int_equal(readers.count, ranks.cores);
  }
}

static void *note_stack(void *bytes) {
  pthread_attr_t attributes;
  MN_REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
  MN_REQUIRE(pthread_attr_getstacksize(&attributes, bytes) == 0 && pthread_attr_destroy(&attributes) == 0);
  return NULL;
}

/* glibc keeps 40 MiB of ended threads' stacks: they hold 16 readers' and those of the threads beside them. */
static void the_stacks_of_readers_are_kept(void **state) {
  pthread_t thread;
  size_t bytes;
  MUST(mn_thread_start(&thread, "a test", note_stack, &bytes));
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(bytes >= 1 << 20 && 19 * bytes <= (size_t)40 << 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_the_first_bad_row),
      cmocka_unit_test(reads_long_ranges),
      cmocka_unit_test(notes_the_largest),
      cmocka_unit_test(a_rank_reads_by_its_share_of_cores),
      cmocka_unit_test(the_stacks_of_readers_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
