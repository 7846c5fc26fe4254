/* Synthetic data: random inputs, and the outputs of a teacher, a block with random parameters.
 *
 * A row must not depend on the rows read with it, but a GEMM with another number of rows may add in another
 * order. So every product has WINDOW rows, at a multiple of WINDOW. Other kernels run on a batch of several
 * windows, and one download takes the requested rows of a batch to the host. The windows' matrices start at
 * multiples of 256 bytes, so that a GPU uses the same GEMM for each. Random words are indexed by row: element
 * i of row r is word r·I + i of its sequence; the rows of the test split start at TEST_BASE. */
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/synthetic.h"
#include "kernels/clock.h"
#include "kernels/device.h"

enum { WINDOW = 64 };                   /* rows of one product */
#define BATCH_BYTES ((int64_t)16 << 20) /* of x or y in double; a batch is one window at least */
#define TEST_BASE ((int64_t)1 << 40)    /* the first row of the test split; a multiple of WINDOW */

/* The parameters; then a batch's x, z and y, and a window's statistics. After the product z is not needed,
 * and holds the noise. */
enum { WEIGHT, BIAS, GAMMA, BETA, X, Z, Y, MEAN, RSTD, BUFFERS };

struct synthetic {
  struct mn_dataset base; /* first, so that the two convert */
  struct mn_device *device;
  int64_t base_row, groups;
  int64_t windows; /* of a batch */
  double noise;
  uint64_t seed;
  double *buffer[BUFFERS]; /* in the device's memory */
  float *floats;           /* in the device's memory: a batch's x or y, rounded */
};

/* Fills a buffer, uniform on [−bound, bound), from the words `first` … of a sequence. With bound √3 the
 * values have variance 1. */
static mn_status fill_uniform(struct synthetic *d, int which, int64_t count, uint32_t sequence, int64_t first,
                              double bound) {
  return mn_uniform(d->device, d->buffer[which], count, d->seed, sequence, (uint64_t)first, bound);
}

/* y = block(x) over a window of the batch in buffer[X]. */
static mn_status teach(struct synthetic *d, int64_t window) {
  int64_t inputs = d->base.inputs, outputs = d->base.outputs, row = window * WINDOW;
  struct mn_operand x = {.rows = WINDOW, .cols = inputs, .real = d->buffer[X] + row * inputs};
  struct mn_operand weight = {.rows = outputs, .cols = inputs, .real = d->buffer[WEIGHT]};
  struct mn_operand y = {.rows = WINDOW, .cols = outputs, .real = d->buffer[Y] + row * outputs};
  double *z = d->buffer[Z] + row * outputs;
  struct mn_block block = {.ops = MN_OP_ALL,
                           .rows = WINDOW,
                           .channels = outputs,
                           .groups = d->groups,
                           .eps = 1e-5,
                           .slope = 0.01,
                           .bias = d->buffer[BIAS],
                           .gamma = d->buffer[GAMMA],
                           .beta = d->buffer[BETA],
                           .z = z,
                           .mean = d->buffer[MEAN],
                           .rstd = d->buffer[RSTD],
                           .y = &y};
  struct mn_epilogue epilogue = {.kind = MN_BLOCK, .into = z, .block = &block};
  return mn_gemm(d->device, MN_NT, &x, &weight, &epilogue);
}

/* Computes `windows` windows from row `row` of the sequences on: x and, if with_y, y. */
static mn_status compute(struct synthetic *d, int64_t row, int64_t windows, int with_y) {
  int64_t inputs = d->base.inputs, outputs = d->base.outputs, rows = windows * WINDOW;
  MN_TRY(fill_uniform(d, X, rows * inputs, MN_RANDOM_INPUTS, row * inputs, sqrt(3)));
  if (!with_y) return MN_OK;
  for (int64_t window = 0; window < windows; window++) MN_TRY(teach(d, window));
  struct mn_operand y = {.rows = rows, .cols = outputs, .real = d->buffer[Y]};
  MN_TRY(fill_uniform(d, Z, rows * outputs, MN_RANDOM_NOISE, row * outputs, sqrt(3) * d->noise));
  return mn_add(d->device, &y, d->buffer[Y], d->buffer[Z]);
}

/* Downloads rows from … from + count − 1 of a batch's matrix of `cols` columns, as reals. */
static mn_status deliver(struct synthetic *d, void *out, size_t real, int which, int64_t from, int64_t count,
                         int64_t cols) {
  const void *values = d->buffer[which] + from * cols;
  if (real == sizeof(float)) {
    const struct mn_operand wide = {.rows = from + count, .cols = cols, .real = d->buffer[which]};
    MN_TRY(mn_narrow(d->device, d->floats, &wide, from * cols, count * cols));
    values = d->floats;
  }
  return mn_download(d->device, out, values, (size_t)(count * cols) * real);
}

static mn_status synthetic_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real,
                                void *x, void *y) {
  struct synthetic *d = (struct synthetic *)dataset;
  int64_t inputs = dataset->inputs, outputs = dataset->outputs;
  MN_TRY(mn_dataset_check_read(dataset, first, count, real, y));
  for (int64_t done = 0; done < count;) {
    int64_t from = (first + done) % WINDOW, left = count - done, most = d->windows * WINDOW - from;
    int64_t here = left < most ? left : most, windows = (from + here + WINDOW - 1) / WINDOW;
    mn_heartbeat();
    MN_TRY(compute(d, d->base_row + first + done - from, windows, y != NULL));
    if (x) MN_TRY(deliver(d, (char *)x + (size_t)(done * inputs) * real, real, X, from, here, inputs));
    if (y) MN_TRY(deliver(d, (char *)y + (size_t)(done * outputs) * real, real, Y, from, here, outputs));
    done += here;
  }
  return MN_OK;
}

static void synthetic_close(struct mn_dataset *dataset) {
  struct synthetic *d = (struct synthetic *)dataset;
  for (int i = 0; d->device && i < BUFFERS; i++) mn_release(d->device, d->buffer[i]);
  if (d->device) mn_release(d->device, d->floats);
  mn_device_close(d->device);
  free(d);
}

static mn_status allocate(struct synthetic *d) {
  int64_t inputs = d->base.inputs, outputs = d->base.outputs, wider = inputs > outputs ? inputs : outputs;
  int64_t all = (d->base.rows + WINDOW - 1) / WINDOW;
  d->windows = BATCH_BYTES / (WINDOW * wider * (int64_t)sizeof(double));
  if (d->windows > all) d->windows = all;
  if (d->windows < 1) d->windows = 1;
  int64_t rows = d->windows * WINDOW;
  const int64_t counts[BUFFERS] = {
      [WEIGHT] = outputs * inputs, [BIAS] = outputs,     [GAMMA] = outputs,    [BETA] = outputs,
      [X] = rows * inputs,         [Z] = rows * outputs, [Y] = rows * outputs, [MEAN] = WINDOW * d->groups,
      [RSTD] = WINDOW * d->groups};
  for (int i = 0; i < BUFFERS; i++)
    MN_TRY(mn_allocate(d->device, (void **)&d->buffer[i], (size_t)counts[i] * sizeof(double)));
  return mn_allocate(d->device, (void **)&d->floats, (size_t)(rows * wider) * sizeof(float));
}

static mn_status make_teacher(struct synthetic *d) {
  int64_t inputs = d->base.inputs, outputs = d->base.outputs;
  double bound = 1 / sqrt((double)inputs);
  MN_TRY(fill_uniform(d, WEIGHT, outputs * inputs, MN_RANDOM_TEACHER + 0, 0, bound));
  MN_TRY(fill_uniform(d, BIAS, outputs, MN_RANDOM_TEACHER + 1, 0, bound));
  MN_TRY(fill_uniform(d, GAMMA, outputs, MN_RANDOM_TEACHER + 2, 0, 0.5));
  MN_TRY(fill_uniform(d, BETA, outputs, MN_RANDOM_TEACHER + 3, 0, 0.5));
  /* gamma = 1 + t/2, from t/2. Exact in double, so the host and the device agree. */
  double *gamma = malloc((size_t)outputs * sizeof *gamma);
  if (!gamma) return mn_fail(MN_NO_MEMORY, "no memory for synthetic data");
  mn_status status = mn_device_read(d->device, gamma, d->buffer[GAMMA], outputs);
  for (int64_t i = 0; i < outputs && status == MN_OK; i++) gamma[i] += 1;
  if (status == MN_OK) status = mn_device_write(d->device, d->buffer[GAMMA], gamma, outputs);
  free(gamma);
  return status;
}

mn_status mn_dataset_synthetic(struct mn_dataset **out, enum mn_part part, int64_t rows, int64_t inputs,
                               int64_t outputs, int64_t groups, double noise, uint64_t seed,
                               const struct mn_device *like) {
  *out = NULL;
  struct synthetic *d = calloc(1, sizeof *d);
  if (!d) return mn_fail(MN_NO_MEMORY, "no memory for synthetic data");
  d->base = (struct mn_dataset){
      .rows = rows, .inputs = inputs, .outputs = outputs, .read = synthetic_read, .close = synthetic_close};
  d->base_row = part == MN_PART_TEST ? TEST_BASE : 0;
  d->groups = groups;
  d->noise = noise;
  d->seed = seed;
  char name[16] = "cpu";
  if (like && like->type == MN_DEVICE_CUDA) snprintf(name, sizeof name, "cuda:%d", like->ordinal);
  mn_status status = mn_device_open(&d->device, name, "fp64", 0);
  /* No other device is used instead, since its bytes would differ. */
  if (status == MN_OK && (status = allocate(d)) == MN_NO_MEMORY)
    mn_fail(status,
            "%s has no room for a synthetic teacher of %lld inputs and %lld outputs, whose weights take "
            "%.1f MiB; fewer of either, or the rows of a file, would do",
            like ? like->name : "this machine", (long long)inputs, (long long)outputs,
            (double)inputs * (double)outputs * sizeof(double) / 1048576);
  if (status == MN_OK) status = make_teacher(d);
  *out = &d->base;
  if (status != MN_OK) synthetic_close(*out), *out = NULL;
  return status;
}
