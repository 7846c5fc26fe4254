/* Synthetic data: random inputs, and the outputs of a teacher for them, a block with random parameters.
 *
 * A row must not depend on the rows read with it, but a GEMM of another number of rows may add in another
 * order: so the teacher always computes WINDOW rows at a time, aligned. Random words are indexed by row:
 * element i of row r is word r·I + i of its sequence, and the test part's rows start at TEST_BASE. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"

enum { WINDOW = 64 };                /* rows that the teacher computes at a time */
#define TEST_BASE ((int64_t)1 << 40) /* the first row of the test part; a multiple of WINDOW */
#define WIDEST ((int64_t)1 << 22)    /* so that 2⁴¹ rows of words stay below 2⁶³ */

enum { WEIGHT, BIAS, GAMMA, BETA, Z, MEAN, RSTD, X, Y, NOISE, BUFFERS };

struct synthetic {
  struct mn_dataset base; /* first, so that the two convert */
  struct mn_device *device;
  int64_t base_row, groups;
  double noise;
  uint64_t seed;
  double *buffer[BUFFERS]; /* the parameters, and one window of everything else */
};

/* Fills a buffer, uniform on [−bound, bound), from the words `first` … of a sequence. With bound √3 the
 * values have variance 1. */
static mn_status fill(struct synthetic *d, int which, int64_t count, uint32_t sequence, int64_t first,
                      double bound) {
  return d->device->kernels->uniform(d->device, d->buffer[which], count, d->seed, sequence, (uint64_t)first,
                                     bound);
}

/* y = block(x) over the window whose x stands in buffer[X]. */
static mn_status teach(struct synthetic *d) {
  struct mn_operand x = {.rows = WINDOW, .cols = d->base.inputs, .real = d->buffer[X]};
  struct mn_operand weight = {.rows = d->base.outputs, .cols = d->base.inputs, .real = d->buffer[WEIGHT]};
  struct mn_operand y = {.rows = WINDOW, .cols = d->base.outputs, .real = d->buffer[Y]};
  struct mn_block block = {.ops = MN_OP_ALL,
                           .rows = WINDOW,
                           .channels = d->base.outputs,
                           .groups = d->groups,
                           .eps = 1e-5,
                           .slope = 0.01,
                           .bias = d->buffer[BIAS],
                           .gamma = d->buffer[GAMMA],
                           .beta = d->buffer[BETA],
                           .z = d->buffer[Z],
                           .mean = d->buffer[MEAN],
                           .rstd = d->buffer[RSTD],
                           .y = &y};
  struct mn_epilogue epilogue = {.kind = MN_BLOCK, .into = d->buffer[Z], .block = &block};
  return d->device->kernels->gemm(d->device, MN_NT, &x, &weight, &epilogue);
}

/* Rows from … from + count of a window of `cols` columns, rounded to reals. */
static void put(void *out, size_t real, const double *window, int64_t from, int64_t count, int64_t cols) {
  const double *values = window + from * cols;
  if (real == sizeof(double))
    memcpy(out, values, (size_t)(count * cols) * sizeof(double));
  else
    for (int64_t i = 0; i < count * cols; i++) ((float *)out)[i] = (float)values[i];
}

static mn_status synthetic_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real,
                                void *x, void *y) {
  struct synthetic *d = (struct synthetic *)dataset;
  int64_t inputs = dataset->inputs, outputs = dataset->outputs;
  MN_REQUIRE(first >= 0 && count >= 0 && count <= dataset->rows && first <= dataset->rows - count);
  MN_REQUIRE(real == sizeof(float) || real == sizeof(double));
  for (int64_t done = 0; done < count;) {
    int64_t from = (first + done) % WINDOW, left = count - done;
    int64_t here = left < WINDOW - from ? left : WINDOW - from;
    int64_t row = d->base_row + first + done - from;
    MN_TRY(fill(d, X, WINDOW * inputs, MN_RANDOM_INPUTS, row * inputs, sqrt(3)));
    if (x) put((char *)x + (size_t)(done * inputs) * real, real, d->buffer[X], from, here, inputs);
    if (y) {
      MN_TRY(teach(d));
      MN_TRY(fill(d, NOISE, WINDOW * outputs, MN_RANDOM_NOISE, row * outputs, sqrt(3) * d->noise));
      for (int64_t i = 0; i < WINDOW * outputs; i++) d->buffer[Y][i] += d->buffer[NOISE][i];
      put((char *)y + (size_t)(done * outputs) * real, real, d->buffer[Y], from, here, outputs);
    }
    done += here;
  }
  return MN_OK;
}

static void synthetic_close(struct mn_dataset *dataset) {
  struct synthetic *d = (struct synthetic *)dataset;
  for (int i = 0; d->device && i < BUFFERS; i++) d->device->kernels->release(d->device, d->buffer[i]);
  mn_device_close(d->device);
  free(d);
}

static mn_status check(int64_t rows, int64_t inputs, int64_t outputs, int64_t groups, double noise) {
  if (rows < 1 || rows > TEST_BASE)
    return mn_fail(MN_USAGE, "synthetic data of %lld rows: from 1 to 2^40 can be made", (long long)rows);
  if (inputs < 1 || inputs > WIDEST || outputs < 1 || outputs > WIDEST)
    return mn_fail(MN_USAGE, "synthetic data of %lld inputs and %lld outputs: each can be from 1 to %lld",
                   (long long)inputs, (long long)outputs, (long long)WIDEST);
  if (groups < 1 || outputs % groups)
    return mn_fail(MN_USAGE,
                   "the synthetic teacher's %lld groups do not divide its %lld outputs; choose a divisor",
                   (long long)groups, (long long)outputs);
  if (!(noise >= 0) || !isfinite(noise))
    return mn_fail(MN_USAGE, "synthetic noise of %g: a standard deviation, 0 or more", noise);
  return MN_OK;
}

static mn_status make_teacher(struct synthetic *d) {
  int64_t inputs = d->base.inputs, outputs = d->base.outputs;
  int64_t counts[BUFFERS] = {[WEIGHT] = outputs * inputs, [BIAS] = outputs,
                             [GAMMA] = outputs,           [BETA] = outputs,
                             [Z] = WINDOW * outputs,      [MEAN] = WINDOW * d->groups,
                             [RSTD] = WINDOW * d->groups, [X] = WINDOW * inputs,
                             [Y] = WINDOW * outputs,      [NOISE] = WINDOW * outputs};
  for (int i = 0; i < BUFFERS; i++)
    MN_TRY(
        d->device->kernels->allocate(d->device, (void **)&d->buffer[i], (size_t)counts[i] * sizeof(double)));
  double bound = 1 / sqrt((double)inputs);
  MN_TRY(fill(d, WEIGHT, counts[WEIGHT], MN_RANDOM_TEACHER + 0, 0, bound));
  MN_TRY(fill(d, BIAS, outputs, MN_RANDOM_TEACHER + 1, 0, bound));
  MN_TRY(fill(d, GAMMA, outputs, MN_RANDOM_TEACHER + 2, 0, 0.5));
  MN_TRY(fill(d, BETA, outputs, MN_RANDOM_TEACHER + 3, 0, 0.5));
  for (int64_t c = 0; c < outputs; c++) d->buffer[GAMMA][c] += 1;
  return MN_OK;
}

mn_status mn_dataset_synthetic(struct mn_dataset **out, enum mn_part part, int64_t rows, int64_t inputs,
                               int64_t outputs, int64_t groups, double noise, uint64_t seed) {
  *out = NULL;
  MN_TRY(check(rows, inputs, outputs, groups, noise));
  struct synthetic *d = calloc(1, sizeof *d);
  if (!d) return mn_fail(MN_NO_MEMORY, "no memory for synthetic data");
  d->base = (struct mn_dataset){.rows = rows,
                                .inputs = inputs,
                                .outputs = outputs,
                                .floor = noise * noise,
                                .read = synthetic_read,
                                .close = synthetic_close};
  d->base_row = part == MN_PART_TEST ? TEST_BASE : 0;
  d->groups = groups;
  d->noise = noise;
  d->seed = seed;
  mn_status status = mn_device_open(&d->device, MN_DEVICE_CPU, 0, MN_FP64);
  if (status == MN_OK) status = make_teacher(d);
  if (status == MN_OK)
    *out = &d->base;
  else
    synthetic_close(&d->base);
  return status;
}
