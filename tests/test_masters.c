/* Masters in bf16, the floats that training goes by while the GEMMs read a copy: every bit is kept where they
 * stand in memory as two halves too, through updates, saves and resuming. */
#include <unistd.h>

#include "tests/planes_read.h"
#include "tests/saving.h"
#include "tests/training.h"

#include "train/checkpoint/checkpoint.h"

/* Floats of all sizes, those of every kind among them; every third is a tie. */
static double *any_floats(int64_t count, uint64_t seed) {
  double *values = random_values(count, seed, 1);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t tie = (to_bits((float)values[i]) & 0xffff0000u) | 0x8000u;
    const float any =
        i < 3 * SPECIAL ? (float)special(i / 3) : from_bits(mn_random_word(seed, 2, (uint64_t)i));
    if (i % 3 < 2 && !(i % 3 == 0 && isnan(any))) values[i] = i % 3 ? from_bits(tie) : any;
  }
  return values;
}

/* Those of them with which an update comes to no overflow and to no other zero. */
static double *ordinary_floats(int64_t count, uint64_t seed) {
  double *values = any_floats(count, seed);
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(values[i]) < 1e30) || values[i] == 0) values[i] = 0x1.01p0;
  return values;
}

/* The weight is these floats, bit for bit, and its copy is them rounded. */
static void assert_master(struct mn_device *device, const struct mn_tensor *w, const double *expected) {
  double *values = read_values(device, w);
  assert_memory_equal(values, expected, (size_t)mn_tensor_count(w) * sizeof *values);
  assert_planes(device, w->name, &w->value);
  free(values);
}

static struct mn_tensor *weight_of(struct mn_device *device, int64_t rows, int64_t cols) {
  struct mn_tensor *w;
  MUST(mn_tensor_parameter(device, &w, "weight", 2, rows, cols, 0, 0));
  return w;
}

/* The other device on this side: fp32, whose weights are floats. */
static struct mn_device *open_wide(const struct memory *m) {
  return open_or_skip(is_cuda(m) ? "cuda" : "cpu", "fp32");
}

/* More elements than are split at a time, in every way there is in and out. */
static void large_masters_are_written_and_read(struct memory *m) {
  enum { ROWS = 2053, COLS = 1031, MANY = ROWS * COLS };
  struct mn_device *device = m->device, *wide = open_wide(m);
  struct mn_tensor *w = weight_of(device, ROWS, COLS), *reference = weight_of(wide, ROWS, COLS);
  assert_true(w->value.split && !w->value.stale && !reference->value.split);
  assert_int_equal(!w->value.real, is_cuda(m));
  double *values = kept(m, any_floats(MANY, 3));
  MUST(mn_tensor_write(device, w, values));
  assert_master(device, w, values);
  MUST(mn_tensor_uniform(device, w, 5, 7, 0, 0.3));
  MUST(mn_tensor_uniform(wide, reference, 5, 7, 0, 0.3));
  values = kept(m, read_values(wide, reference));
  assert_master(device, w, values);
  float *floats = take_bytes(m, MANY, sizeof *floats), *host = kept(m, malloc(MANY * sizeof *host));
  MUST(mn_tensor_copy(device, w, floats));
  for (int way = 0; way < 2; way++) {
    memset(host, 0xff, MANY * sizeof *host);
    if (way)
      MUST(mn_tensor_download(device, w, host));
    else
      MUST(device->kernels->download(device, host, floats, MANY * sizeof *host));
    for (int64_t i = 0; i < MANY; i++) assert_true(host[i] == values[i]);
  }
  mn_tensor_free(device, w);
  mn_tensor_free(wide, reference);
  mn_device_close(wide);
}

/* What a weight goes through, with the rate 0 first: a master then stays what it is, ties and all. Masters, momentum
 * and squares follow each other in what is returned. */
enum { UPDATES = 4 };
static const double rates[UPDATES] = {0, 0.1, 1e-3, 0.7};

static double *update(struct memory *m, const int64_t size[2], const struct mn_optimizer_config *config) {
  struct mn_device *device = m->device;
  struct mn_tensor *w = weight_of(device, size[0], size[1]);
  const int64_t count = mn_tensor_count(w);
  const size_t bytes = (size_t)count * sizeof(double);
  double *rate = take_bytes(m, MN_RATES, sizeof *rate), *trail = kept_zeros(m, (UPDATES + 2) * count);
  double *values = kept(m, ordinary_floats(count, 4)), *gradient = kept_random(m, 9, count, 2);
  struct mn_rule rule = config->rule;
  rule.rate = rate;
  MUST(mn_tensor_train(device, w, MN_STORE, &rule));
  MUST(mn_tensor_write(device, w, values));
  for (int i = 0; i < UPDATES; i++) {
    const struct mn_epilogue epilogue = {.kind = MN_UPDATE, .update = &w->update};
    const double now[MN_RATES] = {rates[i], 2, 4};
    MUST(device->kernels->copy(device, rate, now, sizeof now));
    MUST(mn_device_write(device, w->gradient, gradient, count));
    MUST(device->kernels->epilogue(device, w->gradient, size[0], size[1], &epilogue));
    MUST(mn_tensor_read(device, w, trail + i * count));
    if (w->value.split) assert_master(device, w, trail + i * count);
  }
  assert_memory_equal(trail, values, bytes);
  if (w->update.m) MUST(mn_device_read(device, trail + UPDATES * count, w->update.m, count));
  if (w->update.v) MUST(mn_device_read(device, trail + (UPDATES + 1) * count, w->update.v, count));
  mn_tensor_free(device, w);
  return trail;
}

/* By a gradient in memory: the same bits as those of a weight that is a float. */
static void updates_are_those_of_floats(struct memory *m) {
  static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {33, 17}, {64, 128}};
  struct memory wide = {.device = open_wide(m)};
  for (size_t i = 0; i < COUNT(sizes) * COUNT(settings); i++) {
    const int64_t *size = sizes[i % COUNT(sizes)];
    const struct mn_optimizer_config *config = &settings[i / COUNT(sizes)];
    assert_memory_equal(update(m, size, config), update(&wide, size, config),
                        (size_t)((UPDATES + 2) * size[0] * size[1]) * sizeof(double));
    release_all(m), release_all(&wide);
  }
  mn_device_close(wide.device);
}

/* Multiples of 1/8 up to 1: products and sums of them are exact, in whatever order. */
static double *eighths(struct memory *m, int64_t count, uint64_t seed) {
  double *values = kept_random(m, seed, count, 1);
  for (int64_t i = 0; i < count; i++) values[i] = rint(8 * values[i]) / 8;
  return values;
}

static struct mn_tensor *eighths_of(struct memory *m, int64_t rows, int64_t cols, uint64_t seed) {
  struct mn_tensor *t = weight_of(m->device, rows, cols);
  MUST(mn_tensor_write(m->device, t, eighths(m, rows * cols, seed)));
  return t;
}

/* The update of W [size[0], size[1]] in the epilogue of a product of depth size[2], bit for bit: everything
 * before the last subtraction is exact. */
static void check_product(struct memory *m, const int64_t size[3], double given, double momentum) {
  struct mn_device *device = m->device;
  struct mn_tensor *dz = eighths_of(m, size[2], size[0], 1), *x = eighths_of(m, size[2], size[1], 2);
  struct mn_tensor *w = weight_of(device, size[0], size[1]);
  const int64_t count = mn_tensor_count(w);
  double *values = kept(m, ordinary_floats(count, 4)), *velocity = eighths(m, count, 5);
  const struct mn_rule sgd = {.rate = put_bytes(m, &given, sizeof given), .momentum = momentum};
  const struct mn_epilogue store = {.kind = MN_STORE, .into = take_reals(m, NULL, count)};
  MUST(device->kernels->gemm(device, MN_TN, &dz->value, &x->value, &store));
  const double *gradient = kept_reals(m, store.into, count);
  MUST(mn_tensor_train(device, w, MN_UPDATE, &sgd));
  MUST(mn_tensor_write(device, w, values));
  if (momentum != 0) MUST(mn_device_write(device, w->update.m, velocity, count));
  MUST(device->kernels->gemm(device, MN_TN, &dz->value, &x->value, &w->sink));
  for (int64_t i = 0; i < count; i++) {
    velocity[i] = (float)(momentum * velocity[i] + gradient[i]);
    values[i] = (float)values[i] - (float)given * (float)velocity[i];
  }
  assert_master(device, w, values);
  if (momentum != 0) assert_reals(m, "momentum", w->update.m, velocity, count, 0);
  mn_tensor_free(device, dz), mn_tensor_free(device, x), mn_tensor_free(device, w);
  release_all(m);
}

/* On a Hopper GPU each of the three tiles, and then the library's way. */
static void products_update_every_bit(struct memory *m) {
  static const int64_t sizes[][3] = {{24, 40, 16},      {130, 72, 33},     {512, 512, 64},
                                     {2048, 2048, 128}, {2040, 2056, 136}, {2048, 4096, 2304}};
  for (size_t s = 0; s < (is_cuda(m) && !quick() ? COUNT(sizes) : 2); s++)
    for (int way = 0; way < 8; way++) {
      m->device->force_cublas = way / 4;
      check_product(m, sizes[s], way % 2 ? 0.125 : 0, way / 2 % 2 ? 0.5 : 0);
    }
}

/* A run in bf16 that is saved, and one that is resumed from it: all 24 bits of each weight are in the file,
 * and a step later both are the same. What is no weight, and what no bfloat16 plane holds, is in it as
 * before. */
static void checkpoints_hold_every_bit(struct memory *m) {
  char folder[] = "/tmp/minnow_masters.XXXXXX", path[64];
  struct mn_device *device = m->device;
  struct training t[2];
  struct mn_checkpoint *saved;
  struct mn_progress progress = {.rows = 100, .best = -INFINITY};
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/run.h5", folder);
  for (int i = 0; i < 2; i++) t[i] = open_training(device, settings[1], 0, 5);
  for (uint64_t i = 0; i < 3; i++) step(&t[0], i);
  MUST(save_and_wait(path, t[0].model, t[0].optimizer, &progress, NULL, 0));
  MUST(mn_checkpoint_load(&saved, path));
  MUST(mn_snapshot_restore(saved, t[1].model, t[1].optimizer, &progress));
  for (int i = 0, low = 0; i < t[0].model->count; i++) {
    const struct mn_tensor *w = t[0].model->parameters[i];
    const double *values = kept(m, read_values(device, w));
    for (int64_t k = 0; k < mn_tensor_count(w); k++) {
      const float value = ((const float *)saved->tensors[i].value)[k];
      assert_true((double)value == values[k]);
      low += value != mn_to_upper_half(value);
    }
    assert_true(low > 0); /* or the copies alone would do */
    if (w->rank == 2) assert_master(device, t[1].model->parameters[i], values);
  }
  for (int i = 0; i < 2; i++) step(&t[i], 3);
  for (int i = 0; i < t[0].model->count; i++) {
    const struct mn_tensor *w = t[0].model->parameters[i], *resumed = t[1].model->parameters[i];
    assert_memory_equal(kept(m, read_values(device, w)), kept(m, read_values(device, resumed)),
                        (size_t)mn_tensor_count(w) * sizeof(double));
  }
  mn_checkpoint_free(saved);
  for (int i = 0; i < 2; i++) close_training(&t[i]);
  assert_int_equal(unlink(path) | rmdir(folder), 0);
}

/* A NaN from a checkpoint, with whatever bits, is none of the numbers that carries of rounding would make. */
static void a_nan_stays_a_nan(struct memory *m) {
  static const uint32_t bits[] = {0x7fc00000u, 0x7fffffffu, 0xffffffffu,
                                  0xffff8000u, 0x7f800001u, 0xff80ffffu};
  struct mn_device *device = m->device;
  struct mn_tensor *w = weight_of(device, 1, COUNT(bits));
  float *floats;
  MUST(device->kernels->allocate_host(device, (void **)&floats, sizeof bits));
  memcpy(floats, bits, sizeof bits);
  struct mn_operand written = w->value;
  if (written.low)
    written.real = floats;
  else
    memcpy(written.real, bits, sizeof bits);
  MUST(device->kernels->round(device, &written, 0));
  const double *values = kept(m, read_values(device, w));
  for (size_t i = 0; i < COUNT(bits); i++) assert_true(isnan(values[i]));
  assert_planes(device, "NaNs", &w->value);
  device->kernels->release_host(device, floats);
  mn_tensor_free(device, w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_EACH(BF16, large_masters_are_written_and_read),
      IN_EACH(BF16, updates_are_those_of_floats),
      IN_EACH(BF16, products_update_every_bit),
      IN_EACH(BF16, checkpoints_hold_every_bit),
      IN_EACH(BF16, a_nan_stays_a_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
