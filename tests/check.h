/* What the test programs share: a device or a reason to skip, random numbers, device buffers that go back by
 * themselves, and comparisons that NaN fails. */
#ifndef MN_TESTS_CHECK_H
#define MN_TESTS_CHECK_H

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tensor.h"
#include "tests/skip.h"

/* A test run on a device; the test gets the device's name as its state. */
#define ON(where, test)                                                                                      \
  { #test ", " where, test, NULL, NULL, (void *)(uintptr_t)(where) }

#define BOTH(test) ON("cpu", test), ON("cuda", test)

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A device, or NULL if it lacks the precision alone; a test on a device that is not there is skipped, and says
 * why. */
static inline struct mn_device *open_or_skip(const char *where, const char *precision) {
  struct mn_device *device = NULL, *other;
  mn_status status = mn_device_open(&device, where, precision, 0);
  if (status == MN_NO_DEVICE && mn_device_open(&other, where, "fp32", 0) == MN_OK) {
    mn_device_close(other);
    return NULL;
  }
  if (status == MN_NO_DEVICE) SKIP("%s", mn_message());
  if (status != MN_OK) fail_msg("%s, %s: %s", where, precision, mn_message());
  return device;
}

static inline int on_cuda(const char *device) {
  return strncmp(device, "cuda", 4) == 0;
}

/* Under compute-sanitizer a launch costs a hundred times as much: a choice of cases then, and few repeats. */
static inline int quick(void) {
  return getenv("MINNOW_QUICK") != NULL;
}

/* `count` numbers uniform on [−bound, bound), a function of the seed; free() them. They are floats' values,
 * so that float and double start from the same ones. */
static inline double *random_values(int64_t count, uint64_t seed, double bound) {
  double *values = malloc((size_t)count * sizeof *values);
  assert_non_null(values);
#pragma omp parallel for
  for (int64_t quad = 0; quad < (count + 3) / 4;
       quad++) { /* mn_random_word(seed, 1, i), of which four come at a time */
    uint32_t words[4];
    mn_philox(seed, 1, (uint64_t)quad, words);
    for (int64_t i = 4 * quad; i < count && i < 4 * quad + 4; i++)
      values[i] = (float)(bound * ((words[i % 4] >> 8) * 0x1p-23 - 1));
  }
  return values;
}

/* splitmix64 of a seed and an index, as a number on [0, 1) of 24 bits: for millions of values. */
static inline double random01(uint64_t seed, int64_t i) {
  uint64_t x = seed * 0xd1342543de82ef95u + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (double)((x ^ x >> 31) >> 40) * 0x1p-24;
}

/* Fills a tensor with random_values. */
static inline void randomise_to(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed,
                                double bound) {
  double *values = random_values(mn_tensor_count(tensor), seed, bound);
  MUST(mn_tensor_write(device, tensor, values));
  free(values);
}
static inline void randomise(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed) {
  randomise_to(device, tensor, seed, 1);
}

static inline double *zeros(int64_t count) {
  double *out = calloc((size_t)count, sizeof *out);
  assert_non_null(out);
  return out;
}

/* What the bits of a float16 mean. */
static inline float half_value(uint32_t half) {
  int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
  float size = exponent == 31  ? fraction ? NAN : INFINITY
               : exponent == 0 ? ldexpf((float)fraction, -24)
                               : ldexpf((float)(1024 + fraction), exponent - 25);
  return half >> 15 ? -size : size;
}

static inline float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* A copy of bytes of the device's; free() it. */
static inline void *get_bytes(struct mn_device *device, const void *from, size_t bytes) {
  void *out = malloc(bytes);
  assert_non_null(out);
  MUST(device->kernels->download(device, out, from, bytes));
  return out;
}

/* The flag of values that are not finite, which is taken back. */
static inline int flag_of(struct mn_device *device) {
  int flag;
  MUST(device->kernels->download(device, &flag, device->nonfinite, sizeof flag));
  MUST(device->kernels->zero(device, device->nonfinite, sizeof flag));
  return flag;
}

/* A tensor's values; free() them. */
static inline double *read_values(struct mn_device *device, const struct mn_tensor *tensor) {
  double *out = zeros(mn_tensor_count(tensor));
  MUST(mn_tensor_read(device, tensor, out));
  return out;
}

/* The two widths that kernels come in, and how near to plain double arithmetic one kernel stays. */
static const char *const widths[] __attribute__((unused)) = {"fp64", "fp32"};

static inline double tolerance_of(const struct mn_device *device) {
  return device->precision == MN_FP64 ? 1e-12 : 1e-5;
}

/* ‖a − e‖/‖e‖, or a's rms where e is 0 throughout. */
static inline double distance(const double *a, const double *e, int64_t count) {
  double difference = 0, size = 0, own = 0;
#pragma omp parallel for reduction(+ : difference, size, own)
  for (int64_t i = 0; i < count; i++) {
    difference += (a[i] - e[i]) * (a[i] - e[i]);
    size += e[i] * e[i];
    own += a[i] * a[i];
  }
  return size == 0 ? sqrt(own / (double)count) : sqrt(difference / size);
}

static inline void assert_close(const char *what, const double *a, const double *e, int64_t count,
                                double tolerance) {
  double error = distance(a, e, count);
  if (!(error <= tolerance)) WRONG("%s: off by %g, more than %g", what, error, tolerance);
}

/* Memory on the device and on the host, all given back by release_all. */
struct memory {
  struct mn_device *device;
  struct {
    void *memory;
    int64_t count;
    size_t size;
  } taken[512];
  int count, hosts;
  void **host;
};

/* Memory of malloc's, which release_all frees. */
static inline void *kept(struct memory *m, void *memory) {
  assert_non_null(memory);
  if ((m->hosts & (m->hosts + 1)) == 0) /* full: 0, 1, 3, 7, … */
    m->host = realloc(m->host, (size_t)(2 * m->hosts + 1) * sizeof *m->host);
  assert_non_null(m->host);
  return m->host[m->hosts++] = memory;
}

static inline double *kept_zeros(struct memory *m, int64_t count) {
  return kept(m, zeros(count));
}

static inline double *kept_random(struct memory *m, uint64_t seed, int64_t count, double bound) {
  return kept(m, random_values(count, seed, bound));
}

static inline void *take_bytes(struct memory *m, int64_t count, size_t size) {
  assert_true(m->count < (int)COUNT(m->taken));
  void *out = NULL;
  MUST(mn_device_allocate(m->device, &out, count, size));
  m->taken[m->count].memory = out;
  m->taken[m->count].count = count;
  m->taken[m->count++].size = size;
  return out;
}

static inline void *put_bytes(struct memory *m, const void *from, size_t bytes) {
  void *out = take_bytes(m, (int64_t)bytes, 1);
  MUST(m->device->kernels->copy(m->device, out, from, bytes));
  MUST(m->device->kernels->synchronize(m->device));
  return out;
}

/* Bytes that are NaN in every width: what nobody writes then shows. */
static inline void *poisoned(struct memory *m, size_t bytes) {
  void *poison = malloc(bytes);
  assert_non_null(poison);
  memset(poison, 0xff, bytes);
  void *out = put_bytes(m, poison, bytes);
  free(poison);
  return out;
}

/* `count` reals with these values, or, from NULL, poisoned. */
static inline void *take_reals(struct memory *m, const double *from, int64_t count) {
  if (!from) return poisoned(m, (size_t)count * m->device->real);
  void *out = take_bytes(m, count, m->device->real);
  MUST(mn_device_write(m->device, out, from, count));
  return out;
}

static inline void *put_random(struct memory *m, uint64_t seed, int64_t count, double bound) {
  return take_reals(m, kept_random(m, seed, count, bound), count);
}

static inline double *read_reals(const struct memory *m, const void *from, int64_t count) {
  double *out = malloc((size_t)count * sizeof *out);
  assert_non_null(out);
  MUST(mn_device_read(m->device, out, from, count));
  return out;
}

static inline double *kept_reals(struct memory *m, const void *from, int64_t count) {
  return kept(m, read_reals(m, from, count));
}

static inline void release_all(struct memory *m) {
  for (int i = 0; i < m->count; i++)
    mn_device_release(m->device, m->taken[i].memory, m->taken[i].count, m->taken[i].size);
  for (int i = 0; i < m->hosts; i++) free(m->host[i]);
  free(m->host);
  m->count = m->hosts = 0, m->host = NULL;
}

static inline void close_memory(struct memory *m) {
  release_all(m);
  mn_device_close(m->device);
}

/* Reals on the device against doubles. */
static inline void assert_reals(const struct memory *m, const char *what, const void *actual,
                                const double *expected, int64_t count, double tolerance) {
  double *values = read_reals(m, actual, count);
  assert_close(what, values, expected, count, tolerance);
  free(values);
}

/* ---- memory that tells who wrote where ---- */

/* A device's kernels may be exchanged for these, which take a little more than they are asked for: the
 * buffer is NaN in every width, and what is before and behind it has to stay CANARY until the buffer goes back. */
enum { CANARY = 0xa5, CANARIES = 4096 };
static struct guard {
  char *memory;
  size_t bytes;
} guards[1024];
static int guard_count;
static const struct mn_kernels *unguarded; /* the device's own */
static struct mn_kernels guarded;

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
/* None where a sanitizer watches: it sees reads too, of the bytes right behind a buffer. */
static inline size_t canaries_around(void) {
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
  return 0;
#else
  return quick() ? 0 : CANARIES;
#endif
}

static inline mn_status guarded_allocate(struct mn_device *device, void **out, size_t bytes) {
  static unsigned char poison[1 << 20], canaries[CANARIES];
  const size_t around = canaries_around();
  char *memory;
  if (!*poison) memset(poison, 0xff, sizeof poison), memset(canaries, CANARY, sizeof canaries);
  assert_true(guard_count < (int)COUNT(guards));
  *out = NULL;
  MN_TRY(unguarded->allocate(device, (void **)&memory, bytes + 2 * around));
  *out = memory + around;
  guards[guard_count++] = (struct guard){*out, bytes};
  for (size_t at = 0; at < bytes; at += sizeof poison) {
    size_t left = bytes - at;
    MN_TRY(device->kernels->copy(device, (char *)*out + at, poison,
                                 left < sizeof poison ? left : sizeof poison));
  }
  MN_TRY(device->kernels->copy(device, memory, canaries, around));
  MN_TRY(device->kernels->copy(device, (char *)*out + bytes, canaries, around));
  return device->kernels->synchronize(device); /* a block's call is in another stream */
}

static inline void guarded_release(struct mn_device *device, void *memory) {
  unsigned char canaries[2 * CANARIES];
  const size_t around = canaries_around();
  int i = guard_count - 1;
  while (i >= 0 && guards[i].memory != memory) i--;
  if (i < 0) { /* it was there before, or is none */
    assert_true(!memory || memory == device->nonfinite || memory == device->unscaled);
    unguarded->release(device, memory);
    return;
  }
  const size_t bytes = guards[i].bytes;
  char *const whole = (char *)memory - around;
  guards[i] = guards[--guard_count];
  MUST(device->kernels->download(device, canaries, whole, around));
  MUST(device->kernels->download(device, canaries + around, (char *)memory + bytes, around));
  unguarded->release(device, whole);
  for (size_t k = 0; k < 2 * around; k++)
    if (canaries[k] != CANARY) fail_msg("byte %zu around a buffer of %zu bytes was written", k, bytes);
}

static inline struct mn_device *open_guarded(const char *name, const char *precision) {
  struct mn_device *device = open_or_skip(name, precision);
  if (!device) return NULL;
  guard_count = 0;
  unguarded = device->kernels;
  guarded = *unguarded;
  guarded.allocate = guarded_allocate;
  guarded.release = guarded_release;
  device->kernels = &guarded;
  return device;
}

/* ---- a test in each of some precisions ---- */

enum {
  FP64 = 1 << MN_FP64,
  FP32 = 1 << MN_FP32,
  TF32 = 1 << MN_TF32,
  BF16 = 1 << MN_BF16,
  FP16 = 1 << MN_FP16,
  FP16X3 = 1 << MN_FP16X3,
  WIDTHS = FP64 | FP32,   /* those that kernels come in */
  SCALED = FP16 | FP16X3, /* whose planes have a scale */
  PLANES = BF16 | SCALED, /* whose products our own GEMM ends in epilogues */
  EVERY = (1 << MN_PRECISIONS) - 1,
};

struct each {
  void (*test)(struct memory *m);
  const char *where;
  int precisions;
};

/* Runs the test in each precision that the device has. Afterwards all memory has gone back, nobody has written
 * around it, and the flag is down. */
static inline void run_each(void **state) {
  const struct each *each = *state;
  trial.on = 0;
  mallopt(M_MMAP_MAX, 0); /* freed memory is used again: on a GPU new pages took half of test_block's time */
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  for (int p = 0; p < MN_PRECISIONS; p++) {
    if (!(each->precisions >> p & 1)) continue;
    struct memory m = {.device = open_guarded(each->where, mn_precision_name((enum mn_precision)p))};
    if (!m.device) continue;
    each->test(&m);
    release_all(&m);
    assert_int_equal(m.device->bytes, 0);
    assert_int_equal(flag_of(m.device), 0);
    mn_device_close(m.device);
    assert_int_equal(guard_count, 0);
  }
}

#define IN_EACH_ON(device, precisions, test)                                                                 \
  {                                                                                                          \
#test ", " device, run_each, NULL, NULL, &(struct each) {                                                \
      test, device, precisions                                                                               \
    }                                                                                                        \
  }

#define IN_EACH(precisions, test) IN_EACH_ON("cpu", precisions, test), IN_EACH_ON("cuda", precisions, test)

static inline int is_cuda(const struct memory *m) {
  return m->device->type == MN_DEVICE_CUDA;
}

#endif
