/* The loader, which gathers samples in their order, on each device and from each place. */
#include "data/dataset_file.h"
#include "data/loader.h"
#include "kernels/planes.h"
#include "tests/order_rows.h"
#include "tests/planes_read.h"
#include "tests/rows_made.h"

enum { EPOCHS = 8 };

static void plan_epochs(int64_t *epochs[EPOCHS], int64_t n, uint64_t seed) {
  for (int e = 0; e < EPOCHS; e++) epochs[e] = epoch_rows(n, seed, e);
}

static void free_epochs(int64_t *epochs[EPOCHS]) {
  for (int e = 0; e < EPOCHS; e++) free(epochs[e]);
}

/* ---- the loader ---- */

static const enum mn_place places[] = {MN_PLACE_DEVICE, MN_PLACE_HOST, MN_PLACE_FILE};
enum { PLACES = COUNT(places) };

static struct mn_loader *open_loader(struct mn_device *device, struct made *m, enum mn_place place,
                                     int64_t samples, uint64_t seed, int64_t position) {
  struct mn_loader *loader;
  struct mn_loader_config config = {
      .place = place, .shuffled = 1, .seed = seed, .position = position, .samples = samples};
  MUST(mn_loader_open(&loader, device, &m->base, &config));
  return loader;
}

/* Fills a buffer, and waits until that is done. */
static mn_status fill(struct mn_device *device, struct mn_loader *loader, int64_t samples,
                      struct mn_batch *batch) {
  const struct mn_kernels *k = device->kernels;
  int *pinned;
  double idle;
  MUST(k->ahead_begin(device));
  mn_status status = mn_loader_fill(loader, samples, batch);
  if (status != MN_OK) {
    char message[256];
    snprintf(message, sizeof message, "%s", mn_message());
    MUST(k->ahead_end(device));
    return mn_fail(status, "%s", message);
  }
  MUST(k->ahead_end(device));
  MUST(k->allocate_host(device, (void **)&pinned, sizeof *pinned));
  MUST(k->ahead_used(device, pinned, device->nonfinite, sizeof *pinned));
  MUST(k->ahead_wait(device, &idle));
  k->release_host(device, pinned);
  return MN_OK;
}

/* x as doubles: the reals, or what one of the planes holds. */
static double *read_x(struct mn_device *device, const struct mn_batch *batch, int which) {
  struct mn_operand x = batch->x;
  double *out = zeros(batch->rows * x.cols);
  x.rows = batch->rows;
  if (!x.planes[0]) {
    MUST(mn_device_read(device, out, x.real, x.rows * x.cols));
    return out;
  }
  assert_null(x.real);
  struct planes p = get_planes(device, &x);
  for (int64_t i = 0; i < p.count; i++) out[i] = plane_at(&p, which, i);
  free_planes(&p);
  return out;
}

static int64_t row_at(const struct made *m, int64_t *const *epochs, int64_t position) {
  return epochs[position / m->base.rows][position % m->base.rows];
}

/* The batch's factor, which must suit its own values alone; 0: its planes are not scaled. */
static float check_scale(struct mn_device *device, const struct made *m, const struct mn_batch *batch,
                         int64_t position, int64_t *const *epochs) {
  struct mn_scale scale;
  double largest = 0;
  if (!batch->x.scale) return 0;
  for (int64_t b = 0; b < batch->rows; b++)
    for (int64_t i = 0; i < m->base.inputs; i++)
      largest = fmax(largest, fabs(x_of(row_at(m, epochs, position + b), i)));
  MUST(device->kernels->download(device, &scale, batch->x.scale, sizeof scale));
  assert_true(scale.largest == (float)largest);
  assert_true(scale.factor == mn_scale_factor((float)largest, MN_HEADROOM_X, 1));
  return scale.factor;
}

/* What a value's element of the (first) plane holds, or its real. */
static double element_of(const struct mn_batch *batch, double value, float factor) {
  if (factor > 0) return mn_to_fp16((float)value * factor);
  return batch->x.planes[0] ? mn_to_bf16((float)value) : value;
}

/* Checks that a batch is samples position … of the sequence, whose epochs `epochs` holds. */
static void check(struct mn_device *device, const struct made *m, const struct mn_batch *batch,
                  int64_t position, int64_t *const *epochs) {
  const int64_t inputs = m->base.inputs;
  const float factor = check_scale(device, m, batch, position, epochs);
  double *x = read_x(device, batch, 0), *y = NULL,
         *low = batch->x.planes[1] ? read_x(device, batch, 1) : NULL;
  int32_t *labels = malloc((size_t)batch->rows * sizeof *labels);
  assert_non_null(labels);
  if (m->base.classes) {
    MUST(device->kernels->download(device, labels, batch->y, (size_t)batch->rows * sizeof *labels));
  } else if (m->base.outputs) {
    y = malloc((size_t)batch->rows * 2 * sizeof *y);
    assert_non_null(y);
    MUST(mn_device_read(device, y, batch->y, batch->rows * 2));
  } else {
    assert_null(batch->y);
  }
  for (int64_t b = 0; b < batch->rows; b++) {
    int64_t row = row_at(m, epochs, position + b);
    for (int64_t i = 0; i < inputs; i++) {
      const double expected = element_of(batch, x_of(row, i), factor);
      const float rest = (float)x_of(row, i) * factor - (float)expected;
      if (!(x[b * inputs + i] == expected) || (low && !(low[b * inputs + i] == mn_to_fp16(rest))))
        fail_msg("sample %lld, column %lld", (long long)(position + b), (long long)i);
    }
    if (m->base.classes) assert_int_equal(labels[b], row);
    if (y) assert_true(y[b * 2] == (double)row && y[b * 2 + 1] == -1);
  }
  free(x), free(y), free(low), free(labels);
}

static void take(struct mn_device *device, struct mn_loader *loader, const struct made *m, int64_t samples,
                 int64_t position, int64_t *const *epochs) {
  struct mn_batch batch;
  MUST(fill(device, loader, samples, &batch));
  assert_int_equal(batch.rows, samples);
  assert_true(!batch.x.scale == !device->scaled);
  check(device, m, &batch, position, epochs);
}

static void streams_in_order(void **state) {
  const struct {
    int64_t n, samples;
    int classes;
    const char *precision;
  } cases[] = {{1, 1, 0, "fp64"},       {5, 5, 1, "fp32"},       {1000, 7, 0, "bf16"},
               {1437, 64, 1, "fp32"},   {4096, 1000, 0, "fp64"}, {4097, 100, 1, "fp64"},
               {9001, 9001, 0, "fp64"}, {9001, 5000, 1, "fp32"}, {20000, 333, 0, "fp32"}};
  for (size_t c = 0; c < COUNT(cases); c++) {
    int64_t n = cases[c].n, samples = cases[c].samples, *epochs[EPOCHS];
    struct mn_device *device = open_or_skip(*state, cases[c].precision);
    plan_epochs(epochs, n, c);
    for (int p = 0; p < PLACES; p++) {
      struct made m = make(n, cases[c].classes);
      struct mn_loader *loader = open_loader(device, &m, places[p], samples, c, 0);
      for (int64_t at = 0; at + samples <= EPOCHS * n; at += samples)
        take(device, loader, &m, samples, at, epochs);
      mn_loader_close(loader);
      if (places[p] != MN_PLACE_FILE) assert_int_equal(m.rows_read, n);
    }
    free_epochs(epochs);
    mn_device_close(device);
  }
}

/* As they are stored, again and again, in fillings of two sizes. */
static void as_stored(const char *name, const char *precision) {
  struct mn_device *device = open_or_skip(name, precision);
  const int64_t n = 9100;
  int64_t *epochs[EPOCHS];
  for (int e = 0; e < EPOCHS; e++) {
    epochs[e] = malloc((size_t)n * sizeof *epochs[e]);
    assert_non_null(epochs[e]);
    for (int64_t i = 0; i < n; i++) epochs[e][i] = i;
  }
  for (int p = 0; p < PLACES; p++) {
    struct made m = make(n, 1);
    struct mn_loader *loader;
    struct mn_loader_config config = {.place = places[p], .samples = 1000};
    MUST(mn_loader_open(&loader, device, &m.base, &config));
    for (int64_t at = 0; at < 3 * n; at += at % n == 9000 ? 100 : 1000)
      take(device, loader, &m, at % n == 9000 ? 100 : 1000, at, epochs);
    mn_loader_close(loader);
  }
  free_epochs(epochs);
  mn_device_close(device);
}

static void streams_as_stored(void **state) {
  as_stored(*state, "fp32");
  as_stored(*state, "fp16");
}

static void streams_inputs_alone(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, 5000, 1);
  for (int p = 0; p < PLACES; p++) {
    struct made m = make(5000, 0);
    m.base.outputs = 0;
    struct mn_loader *loader = open_loader(device, &m, places[p], 100, 1, 0);
    for (int64_t at = 0; at < 12000; at += 100) take(device, loader, &m, 100, at, epochs);
    mn_loader_close(loader);
  }
  free_epochs(epochs);
  mn_device_close(device);
}

static void resumes_anywhere(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  const int64_t sizes[][2] = {{10, 3}, {130, 64}, {4100, 999}, {8229, 500}, {8200, 8200}};
  for (size_t s = 0; s < COUNT(sizes); s++) {
    int64_t n = sizes[s][0], samples = sizes[s][1], *epochs[EPOCHS];
    plan_epochs(epochs, n, 11);
    /* Each place up to the end of the third epoch, or some of them; around the ends of windows, each. */
    int64_t stride = n < 1000 ? 1 : 997, turn = 0;
    for (int64_t at = 0; at < 3 * n; at += at % n >= WINDOW - 70 && at % n < WINDOW + 2 ? 9 : stride) {
      struct made m = make(n, 1);
      struct mn_loader *loader = open_loader(device, &m, places[turn++ % PLACES], samples, 11, at);
      for (int k = 0; k < 4 && at + (k + 1) * samples <= EPOCHS * n; k++)
        take(device, loader, &m, samples, at + k * samples, epochs);
      mn_loader_close(loader);
    }
    free_epochs(epochs);
  }
  mn_device_close(device);
}

/* A slow disk or a slow consumer: the same batches. */
static void does_not_depend_on_timing(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, 4500, 5);
  for (int slow = 0, tries = 1; slow < 2; tries++) {
    struct made m = make(4500, 0);
    m.delay_us = slow ? 1000 : 0;
    struct mn_loader *loader = open_loader(device, &m, MN_PLACE_FILE, 300, 5, 77);
    for (int k = 0; k < 40; k++) {
      if (!slow) nanosleep(&(struct timespec){0, 2000000}, NULL);
      take(device, loader, &m, 300, 77 + k * 300, epochs);
    }
    const int waited = mn_loader_waited(loader) > 0.01;
    mn_loader_close(loader);
    /* A busy machine may let the slow consumer wait, too, but not every time. */
    assert_true(slow == waited || (!slow && tries < 10));
    slow += slow == waited;
  }
  free_epochs(epochs);
  mn_device_close(device);
}

/* A filling stays as it is while the next one is made. */
static void keeps_two_fillings(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, 5000, 0);
  for (int p = 0; p < PLACES; p++) {
    struct made m = make(5000, 1);
    struct mn_loader *loader = open_loader(device, &m, places[p], 50, 0, 0);
    struct mn_batch before, now;
    MUST(fill(device, loader, 50, &before));
    for (int k = 1; k < 10; k++) {
      MUST(fill(device, loader, 50, &now));
      check(device, &m, &before, 50 * (k - 1), epochs);
      before = now;
    }
    mn_loader_close(loader);
  }
  free_epochs(epochs);
  mn_device_close(device);
}

/* Checks each `each` samples by themselves. */
static void check_parts(struct mn_device *device, const struct mn_loader *loader, const struct made *m,
                        const struct mn_batch *batch, int64_t each, int64_t position,
                        int64_t *const *epochs) {
  for (int64_t first = 0; first < batch->rows; first += each) {
    int64_t left = batch->rows - first;
    struct mn_batch part = mn_batch_part(loader, batch, first / each, left < each ? left : each);
    check(device, m, &part, position + first, epochs);
  }
}

/* Which batches share a filling does not show in their factors, nor do the windows, of which one batch may
 * have three; a filling that does not fill a batch has one too; and both stay while the next filling is made.
 */
static void check_scales(struct mn_device *device, int64_t inputs, int64_t position) {
  const int64_t each = 3, n = WINDOW + 64, fillings[] = {48, 150, 30, 60, 2, 150};
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, n, 4);
  for (int p = 0; p < PLACES; p++) {
    struct made m = make(n, 1);
    m.base.inputs = inputs;
    struct mn_loader *loader;
    struct mn_loader_config config = {
        .place = places[p], .shuffled = 1, .seed = 4, .position = position, .samples = 150, .batch = each};
    struct mn_batch before, now;
    MUST(mn_loader_open(&loader, device, &m.base, &config));
    for (int64_t at = position, k = 0; k < (int64_t)COUNT(fillings); at += fillings[k++]) {
      MUST(fill(device, loader, fillings[k], &now));
      check_parts(device, loader, &m, &now, each, at, epochs);
      if (k > 0) check_parts(device, loader, &m, &before, each, at - fillings[k - 1], epochs);
      before = now;
    }
    mn_loader_close(loader);
  }
  free_epochs(epochs);
}

static void each_batch_has_its_scale(void **state) {
  const struct {
    const char *precision;
    int64_t inputs, before; /* samples before the end of a window */
  } cases[] = {{"fp32", 3, 46},    {"bf16", 5, 66},   {"fp16", 3, 46},
               {"fp16", 3, 66},    {"fp16", 8, 66},   {"fp16", 1030, 46},
               {"fp16", 1104, 66}, {"fp16x3", 8, 46}, {"fp16x3", 1104, 66}};
  for (size_t c = 0; c < COUNT(cases); c++) {
    struct mn_device *device = open_or_skip(*state, cases[c].precision);
    check_scales(device, cases[c].inputs, WINDOW - cases[c].before);
    mn_device_close(device);
  }
}

/* Where a first layer has no planes to multiply by. */
static void gives_reals_where_asked(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp16");
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, 5000, 2);
  for (int p = 0; p < PLACES; p++) {
    struct made m = make(5000, 1);
    struct mn_loader *loader;
    struct mn_loader_config config = {
        .place = places[p], .shuffled = 1, .seed = 2, .samples = 1000, .reals = 1};
    struct mn_batch batch;
    MUST(mn_loader_open(&loader, device, &m.base, &config));
    for (int64_t at = 0; at < 10000; at += 1000) {
      MUST(fill(device, loader, 1000, &batch));
      assert_true(batch.x.real && !batch.x.planes[0] && !batch.x.scale);
      check(device, &m, &batch, at, epochs);
    }
    mn_loader_close(loader);
  }
  free_epochs(epochs);
  mn_device_close(device);
}

/* A bad row ends the stream at its window, with its message; what comes before is not held back. Where all
 * rows are read first, it is said at once. */
static void hands_on_errors(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  const int64_t n = 3 * WINDOW, samples = 256;
  int64_t bad[] = {0, WINDOW, 2 * WINDOW + 5}, *epochs[EPOCHS];
  char text[64];
  plan_epochs(epochs, n, 21);
  for (int b = 0; b < 3; b++) {
    struct made m = make(n, 0);
    while (epochs[0][bad[b]] % 3 == 0) bad[b]++; /* of the sample, which opening reads */
    m.bad_row = epochs[0][bad[b]];
    snprintf(text, sizeof text, "made up: row %lld is bad", (long long)m.bad_row);
    struct mn_loader *loader;
    struct mn_loader_config config = {
        .place = MN_PLACE_DEVICE, .shuffled = 1, .seed = 21, .samples = samples};
    assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_BAD_DATA);
    assert_string_equal(mn_message(), text);
    for (int slow = 0; slow < 2; slow++) {
      m.delay_us = slow ? 200 : 0;
      loader = open_loader(device, &m, MN_PLACE_FILE, samples, 21, 0);
      nanosleep(&(struct timespec){0, slow ? 0 : 5000000}, NULL); /* the bad row may be known by now */
      for (int64_t at = 0; at < bad[b] / WINDOW * WINDOW; at += samples)
        take(device, loader, &m, samples, at, epochs);
      for (int again = 0; again < 3; again++) {
        struct mn_batch batch;
        mn_fail(MN_OK, "another");
        assert_int_equal(fill(device, loader, samples, &batch), MN_BAD_DATA);
        assert_string_equal(mn_message(), text);
      }
      mn_loader_close(loader);
    }
  }
  free_epochs(epochs);
  mn_device_close(device);
}

/* A gather that takes a while: until it is done, its window may not be read over. */
static const struct mn_kernels *own; /* the device's own kernels, while a test puts others in their place */
static mn_status late_gather(struct mn_device *device, const struct mn_gather *gather) {
  nanosleep(&(struct timespec){0, 3000000}, NULL);
  return own->gather(device, gather);
}

static void a_window_stays_until_it_is_gathered(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_kernels late = *(own = device->kernels);
  int64_t *epochs[EPOCHS];
  plan_epochs(epochs, 9000, 3);
  struct made m = make(9000, 1);
  struct mn_loader *loader = open_loader(device, &m, MN_PLACE_FILE, 3000, 3, 0);
  late.gather = late_gather;
  device->kernels = &late;
  for (int k = 0; k < 12; k++) take(device, loader, &m, 3000, 3000 * k, epochs);
  device->kernels = own;
  mn_loader_close(loader);
  free_epochs(epochs);
  mn_device_close(device);
}

static void closes_promptly(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  /* 4096 rows in a window, 64 reads of 50 ms: closing may wait for one of them, not for all. */
  struct made m = make(1 << 20, 0);
  m.delay_us = 50000;
  struct mn_loader *loader = open_loader(device, &m, MN_PLACE_FILE, 64, 0, 0);
  struct timespec before, after;
  nanosleep(&(struct timespec){0, 20000000}, NULL);
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
  mn_loader_close(loader);
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
  double seconds = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
  assert_true(seconds < 1);
  /* At every stage: with both windows read, with nothing read, and never opened. */
  for (int k = 0; k < 20; k++) {
    struct made quick = make(5000, 1);
    loader = open_loader(device, &quick, MN_PLACE_FILE, 100, 0, 0);
    if (k % 2) nanosleep(&(struct timespec){0, 5000000}, NULL);
    mn_loader_close(loader);
  }
  mn_loader_close(NULL);
  mn_device_close(device);
}

/* For a build with a sanitizer: memory that is not there is NULL there too, as it is without. */
MN_API const char *__asan_default_options(void);
MN_API const char *__tsan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void) {
  return "allocator_may_return_null=1";
}

static void refuses(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct made m = make(100, 1);
  struct mn_loader *loader = (struct mn_loader *)&loader;
  struct mn_loader_config config = {.shuffled = 1, .samples = 10};
  m.base.inputs = INT64_MAX / 64;
  assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_NO_MEMORY);
  m.base.inputs = (int64_t)1 << 42; /* counted, but not there: in no place */
  for (int p = -1; p < PLACES; p++) {
    config.place = p < 0 ? MN_PLACE_AUTO : places[p];
    assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_NO_MEMORY);
    assert_null(loader);
  }
  assert_true(device->bytes == 0);
  mn_device_close(device);
}

/* Chosen by size: in memory, where it fits; in the file, where it does not. */
static void places_by_size(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct made m = make(100, 1);
  struct mn_loader *loader = open_loader(device, &m, MN_PLACE_AUTO, 10, 0, 0);
  assert_int_equal(mn_loader_placement(loader)->place, MN_PLACE_DEVICE);
  assert_int_equal(mn_loader_placement(loader)->bytes, 100 * (4 * INPUTS + 4));
  mn_loader_close(loader);
  loader = open_loader(device, &m, MN_PLACE_HOST, 10, 0, 0);
  int cpu = device->type == MN_DEVICE_CPU; /* whose memory the host's is */
  assert_int_equal(mn_loader_placement(loader)->place, cpu ? MN_PLACE_DEVICE : MN_PLACE_HOST);
  mn_loader_close(loader);
  m.base.rows = (int64_t)1 << 27; /* 512 GiB */
  m.base.outputs = 1024;
  m.base.classes = 0;
  loader = open_loader(device, &m, MN_PLACE_AUTO, 10, 0, 0);
  assert_int_equal(mn_loader_placement(loader)->place, MN_PLACE_FILE);
  assert_non_null(strstr(mn_loader_placement(loader)->why,
                         cpu ? "memory has room for" : ", the host's memory has room for"));
  mn_loader_close(loader);
  /* No other place stands in for one that was asked for: 8 PiB are in none. */
  m.base.outputs = 1 << 24;
  struct mn_loader_config config = {.place = MN_PLACE_DEVICE, .samples = 10};
  assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_NO_MEMORY);
  assert_non_null(strstr(mn_message(), "place device has no room"));
  mn_device_close(device);
}

static mn_status allocation; /* what allocating more than 1 MiB returns */

static mn_status fake_allocate(struct mn_device *device, void **out, size_t bytes) {
  *out = NULL;
  return bytes > 1 << 20 ? mn_fail(allocation, "made up: full") : own->allocate(device, out, bytes);
}

/* Where others took the memory since the place was chosen, the next place takes the rows; what else goes
 * wrong is told. */
static void gives_way_where_memory_is_gone(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_kernels full = *(own = device->kernels);
  struct made m = make(100000, 1); /* 1.5 MiB */
  struct mn_loader *loader;
  struct mn_loader_config config = {.samples = 10};
  full.allocate = fake_allocate;
  device->kernels = &full;
  allocation = MN_LIBRARY;
  assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_LIBRARY);
  assert_string_equal(mn_message(), "made up: full");
  allocation = MN_NO_MEMORY;
  MUST(mn_loader_open(&loader, device, &m.base, &config));
  int cpu = device->type == MN_DEVICE_CPU;
  assert_int_equal(mn_loader_placement(loader)->place, cpu ? MN_PLACE_FILE : MN_PLACE_HOST);
  assert_ptr_equal(strstr(mn_loader_placement(loader)->why, "made up: full"),
                   mn_loader_placement(loader)->why);
  mn_loader_close(loader);
  config.place = MN_PLACE_DEVICE;
  assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_NO_MEMORY);
  assert_non_null(strstr(mn_message(), "place device has no room"));
  device->kernels = own;
  mn_device_close(device);
}

/* The real thing, a file: each label once an epoch, with its own image. */
static void streams_digits(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_dataset *d;
  MUST(mn_dataset_open(&d, "data/digits.h5", MN_PART_TRAIN, NULL, NULL, 1));
  float *x = malloc(1437 * 64 * sizeof *x);
  int32_t y[1437], labels[479];
  assert_non_null(x);
  MUST(d->read(d, 0, 1437, 4, x, y));
  int64_t *rows = epoch_rows(1437, 42, 0);
  struct mn_loader *loader;
  struct mn_loader_config config = {.shuffled = 1, .seed = 42, .samples = 479};
  MUST(mn_loader_open(&loader, device, d, &config));
  for (int b = 0; b < 3; b++) {
    struct mn_batch batch;
    MUST(fill(device, loader, 479, &batch));
    double *found = read_x(device, &batch, 0);
    MUST(device->kernels->download(device, labels, batch.y, sizeof labels));
    for (int i = 0; i < 479; i++) {
      assert_int_equal(labels[i], y[rows[b * 479 + i]]);
      for (int j = 0; j < 64; j++) assert_true(found[i * 64 + j] == (double)x[rows[b * 479 + i] * 64 + j]);
    }
    free(found);
  }
  free(x), free(rows);
  mn_loader_close(loader);
  mn_dataset_close(d);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(streams_in_order),
      BOTH(streams_as_stored),
      BOTH(streams_inputs_alone),
      BOTH(resumes_anywhere),
      BOTH(does_not_depend_on_timing),
      BOTH(keeps_two_fillings),
      BOTH(each_batch_has_its_scale),
      BOTH(gives_reals_where_asked),
      BOTH(hands_on_errors),
      BOTH(a_window_stays_until_it_is_gathered),
      BOTH(closes_promptly),
      BOTH(refuses),
      BOTH(places_by_size),
      BOTH(gives_way_where_memory_is_gone),
      BOTH(streams_digits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
