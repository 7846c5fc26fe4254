/* The synthetic teacher, on every device there is: what it teaches against the same written down anew, that
 * a row depends on nothing but its place and the seed, and how near two devices' rows are. */
#include <math.h>

#include "data/synthetic.h"
#include "kernels/random.h"
#include "tests/check.h"
#include "tests/dataset_make.h"

enum { I = 37, K = 24, GROUPS = 6, SEED = 4711 };

static double t_of(uint32_t sequence, uint64_t index) {
  return ldexp((double)(mn_random_word(SEED, sequence, index) >> 8), -23) - 1;
}

/* Row r of the teacher, written down anew: x and y without noise. */
static void teacher(uint64_t row, double *x, double *y) {
  double z[K];
  const int D = K / GROUPS;
  for (uint64_t i = 0; i < I; i++) x[i] = sqrt(3) * t_of(MN_RANDOM_INPUTS, row * I + i);
  for (uint64_t c = 0; c < K; c++) {
    z[c] = t_of(MN_RANDOM_TEACHER + 1, c) / sqrt(I);
    for (uint64_t i = 0; i < I; i++) z[c] += x[i] * t_of(MN_RANDOM_TEACHER, c * I + i) / sqrt(I);
  }
  for (int g = 0; g < GROUPS; g++) {
    double mean = 0, variance = 0;
    for (int k = 0; k < D; k++) mean += z[g * D + k] / D;
    for (int k = 0; k < D; k++) variance += (z[g * D + k] - mean) * (z[g * D + k] - mean) / D;
    for (int k = 0; k < D; k++) {
      uint64_t c = (uint64_t)(g * D + k);
      double gamma = 1 + 0.5 * t_of(MN_RANDOM_TEACHER + 2, c), beta = 0.5 * t_of(MN_RANDOM_TEACHER + 3, c);
      double v = (z[c] - mean) / sqrt(variance + 1e-5) * gamma + beta;
      y[c] = 2 * (v > 0 ? v : 0.01 * v);
    }
  }
}

/* A teacher's data on a device; the device that it is to be like is closed before any row is read. */
struct shape {
  int64_t rows, inputs, outputs, groups;
};

static struct mn_dataset *open_like(const char *name, enum mn_part part, struct shape at, double noise,
                                    uint64_t seed) {
  struct mn_dataset *d;
  struct mn_device *device = open_or_skip(name, "fp32");
  MUST(mn_dataset_synthetic(&d, part, at.rows, at.inputs, at.outputs, at.groups, noise, seed, device));
  mn_device_close(device);
  return d;
}

static void *room(int64_t rows, int64_t cols, size_t real) {
  void *memory = malloc((size_t)(rows * cols) * real);
  assert_non_null(memory);
  memset(memory, 0xff, (size_t)(rows * cols) * real);
  return memory;
}

static void teaches(void **state) {
  const int64_t rows = 200;
  for (int part = MN_PART_TRAIN; part <= MN_PART_TEST; part++) {
    struct mn_dataset *d =
        open_like(*state, (enum mn_part)part, (struct shape){rows, I, K, GROUPS}, 0.25, SEED);
    assert_int_equal(d->rows, rows);
    assert_int_equal(d->inputs, I);
    assert_int_equal(d->outputs, K);
    assert_false(d->classes);
    static double x[200 * I], y[200 * K];
    MUST(d->read(d, 0, rows, 8, x, y));
    uint64_t base = part == MN_PART_TEST ? (uint64_t)1 << 40 : 0;
    for (int64_t r = 0; r < rows; r++) {
      double wx[I], wy[K];
      teacher(base + (uint64_t)r, wx, wy);
      for (int i = 0; i < I; i++) assert_true(x[r * I + i] == wx[i]);
      for (int k = 0; k < K; k++) {
        double noise = sqrt(3) * 0.25 * t_of(MN_RANDOM_NOISE, (base + (uint64_t)r) * K + (uint64_t)k);
        assert_true(fabs(y[r * K + k] - (wy[k] + noise)) < 1e-12);
      }
    }
    mn_dataset_close(d);
  }
}

/* Odd widths; then so wide that a batch is three windows, and so wide that it is one. */
static const struct shape SHAPES[] = {
    {150, I, K, GROUPS}, {600, 8200, 8, 2}, {200, 3, 40000, 8}, {300, 512, 1024, 64}};

/* A row is the same, to the bit, whatever is asked for with it; floats are the doubles rounded. */
static void teaches_rows_alone(void **state) {
  for (size_t s = 0; s < COUNT(SHAPES); s++) {
    const struct shape at = SHAPES[s];
    const int64_t in = at.inputs, out = at.outputs;
    struct mn_dataset *d = open_like(*state, MN_PART_TRAIN, at, 0.5, SEED);
    double *x = room(at.rows, in, 8), *y = room(at.rows, out, 8);
    double *px = room(at.rows, in, 8), *py = room(at.rows, out, 8);
    float *fx = room(at.rows, in, 4), *fy = room(at.rows, out, 4);
    MUST(d->read(d, 0, at.rows, 8, x, y));
    MUST(d->read(d, 0, at.rows, 4, fx, fy));
    int64_t wrong = 0;
    for (int64_t i = 0; i < at.rows * in; i++) wrong += fx[i] != (float)x[i];
    for (int64_t i = 0; i < at.rows * out; i++) wrong += fy[i] != (float)y[i];
    assert_int_equal(wrong, 0);
    const int64_t stretches[][2] = {{0, 1},           {63, 2},      {64, 64},  {10, 100},
                                    {at.rows - 1, 1}, {at.rows, 0}, {100, 49}, {1, at.rows - 1}};
    for (size_t i = 0; i < COUNT(stretches); i++) {
      int64_t first = stretches[i][0], count = stretches[i][1];
      MUST(d->read(d, first, count, 8, px, NULL));
      MUST(d->read(d, first, count, 8, NULL, py));
      assert_memory_equal(px, x + first * in, (size_t)(count * in) * sizeof *px);
      assert_memory_equal(py, y + first * out, (size_t)(count * out) * sizeof *py);
    }
    free(x), free(y), free(px), free(py), free(fx), free(fy);
    mn_dataset_close(d);
  }
}

/* Mean 0, variance 1; another seed is other data, and so is the other part. */
static void draws_by_seed_and_part(void **state) {
  const struct shape at = {150, I, K, GROUPS};
  static double x[150 * I], y[150 * K], px[I], py[K];
  struct mn_dataset *d = open_like(*state, MN_PART_TRAIN, at, 0.5, SEED);
  MUST(d->read(d, 0, at.rows, 8, x, y));
  mn_dataset_close(d);
  double mean = 0, square = 0;
  for (int i = 0; i < 150 * I; i++) mean += x[i] / (150 * I), square += x[i] * x[i] / (150 * I);
  assert_true(fabs(mean) < 0.05 && fabs(square - 1) < 0.05);
  for (int other = 0; other < 2; other++) {
    d = open_like(*state, other ? MN_PART_TEST : MN_PART_TRAIN, at, 0.5, other ? SEED : SEED + 1);
    MUST(d->read(d, 0, 1, 8, px, py));
    assert_memory_not_equal(px, x, sizeof px);
    assert_memory_not_equal(py, y, sizeof py);
    mn_dataset_close(d);
  }
}

/* All rows of a part as reals of `real` bytes from a dataset of its own. */
static void read_part(const char *device, int part, struct shape at, size_t real, void *x, void *y) {
  struct mn_dataset *d = open_like(device, (enum mn_part)part, at, 0.1, SEED);
  MUST(d->read(d, 0, at.rows, real, x, y));
  mn_dataset_close(d);
}

/* Two datasets on one GPU are equal byte for byte. Of the CPU's, x is equal, and y as near as dataset.h says:
 * floats to one unit in the last place, or to 1e-12. */
static void a_gpu_teaches_what_the_cpu_does(void **state) {
  mn_device_close(open_or_skip(*state, "fp32"));
  for (size_t s = 0; s < COUNT(SHAPES); s++) {
    const struct shape at = SHAPES[s];
    for (int part = MN_PART_TRAIN; part <= MN_PART_TEST; part++)
      for (size_t real = 4; real <= 8; real += 4) {
        const char *const devices[] = {*state, *state, "cpu"};
        void *x[3], *y[3];
        for (int i = 0; i < 3; i++) {
          x[i] = room(at.rows, at.inputs, real), y[i] = room(at.rows, at.outputs, real);
          read_part(devices[i], part, at, real, x[i], y[i]);
        }
        assert_memory_equal(y[1], y[0], (size_t)(at.rows * at.outputs) * real);
        for (int i = 1; i < 3; i++) assert_memory_equal(x[i], x[0], (size_t)(at.rows * at.inputs) * real);
        int64_t far = 0;
        for (int64_t i = 0; i < at.rows * at.outputs; i++) {
          double gpu = real == 4 ? ((float *)y[0])[i] : ((double *)y[0])[i];
          double cpu = real == 4 ? ((float *)y[2])[i] : ((double *)y[2])[i];
          float next = nextafterf((float)cpu, (float)gpu);
          far += !(fabs(gpu - cpu) <= 1e-12 || (real == 4 && gpu == next));
        }
        if (far) fail_msg("%ld values of y are far from the CPU's", (long)far);
        for (int i = 0; i < 3; i++) free(x[i]), free(y[i]);
      }
  }
}

/* For a build with AddressSanitizer: memory that is not there is NULL there too, as it is without. */
MN_API const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}

/* 128 TiB of weights: no device has that, and no other one stands in. */
static void a_teacher_without_room_is_refused(void **state) {
  struct mn_dataset *d;
  const int64_t widest = (int64_t)1 << 22;
  struct mn_device *device = open_or_skip(*state, "fp32");
  assert_message(mn_dataset_synthetic(&d, MN_PART_TRAIN, 9, widest, widest, 1, 0, 0, device), MN_NO_MEMORY,
                 device->name, "no room for a synthetic teacher", "4194304 inputs", "134217728.0 MiB",
                 "the rows of a file", NULL);
  assert_null(d);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(teaches),
      BOTH(teaches_rows_alone),
      BOTH(draws_by_seed_and_part),
      BOTH(a_teacher_without_room_is_refused),
      ON("cuda", a_gpu_teaches_what_the_cpu_does),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
