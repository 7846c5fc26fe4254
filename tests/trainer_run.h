/* What the tests of the trainer share: a dataset made up, whose rows can be bad in several ways, and a run on
 * it. */
#ifndef MN_TESTS_TRAINER_RUN_H
#define MN_TESTS_TRAINER_RUN_H

#include "tests/check.h"
#include "tests/saving.h"

#include <unistd.h>

#include "data/fingerprint.h"
#include "kernels/order.h"
#include "kernels/planes.h"
#include "train/checkpoint/checkpoint.h"
#include "train/trainer.h"

/* ---- a dataset made up ---- */

enum { ROWS = 4500, INPUTS = 16, CHANNELS = 32 };

struct made {
  struct mn_dataset base;
  int64_t huge;         /* this row's inputs are infinite; −1: none's */
  int64_t far;          /* this row's targets are so far away that the loss overflows; −1: none's */
  int64_t jump, apart;  /* of each `apart` rows one, as many behind the first as this row, has targets a
                          million times larger; −1: none has */
  int64_t over, spread; /* of each `spread` rows one, as many behind the first as this row, has inputs near
                           the largest float or double, which no first product can hold; −1: none */
  int64_t bad;          /* reading this row fails; −1: none */
  double scale;         /* of the targets */
  int bad_y;            /* reading y fails */
  enum mn_nonfinite on_nonfinite; /* what a run makes of such rows */
};

static inline int jumps(const struct made *m, int64_t row) {
  return m->jump >= 0 && row % m->apart == m->jump % m->apart;
}

static inline int overflows(const struct made *m, int64_t row) {
  return m->over >= 0 && row % m->spread == m->over % m->spread;
}

static inline mn_status made_read(struct mn_dataset *dataset, int64_t first, int64_t count, size_t real,
                                  void *x, void *y) {
  const struct made *m = (const struct made *)dataset;
  if (m->bad >= first && m->bad < first + count)
    return mn_fail(MN_BAD_DATA, "made up: row %ld is bad", (long)m->bad);
  if (y && m->bad_y) return mn_fail(MN_BAD_DATA, "made up: y is bad");
  for (int64_t i = 0; i < count * INPUTS; i++) {
    double value = (mn_random_word(3, 1, (uint64_t)(first * INPUTS + i)) >> 8) * 0x1p-23 - 1;
    if (first + i / INPUTS == m->huge) value = INFINITY;
    if (overflows(m, first + i / INPUTS)) value = real == 8 ? 1.7e308 : 3.3e38;
    if (real == 8)
      ((double *)x)[i] = value;
    else
      ((float *)x)[i] = (float)value;
  }
  for (int64_t i = 0; y && i < count * dataset->outputs && !dataset->classes; i++) {
    double value = (mn_random_word(4, 1, (uint64_t)(first * dataset->outputs + i)) >> 8) * 0x1p-23 - 1;
    value *= m->scale * (jumps(m, first + i / dataset->outputs) ? 1e6 : 1);
    if (first + i / dataset->outputs == m->far) value = real == 8 ? 1e200 : 1e25;
    if (real == 8)
      ((double *)y)[i] = value;
    else
      ((float *)y)[i] = (float)value;
  }
  for (int64_t i = 0; y && i < count && dataset->classes; i++)
    ((int32_t *)y)[i] = (int32_t)((first + i) % dataset->outputs);
  return MN_OK;
}

static inline struct made make(int classes) {
  return (struct made){.base = {.rows = ROWS,
                                .inputs = INPUTS,
                                .outputs = classes ? 5 : CHANNELS,
                                .classes = classes,
                                .read = made_read,
                                .fingerprinting = &mn_fingerprinting},
                       .scale = 1,
                       .huge = -1,
                       .far = -1,
                       .jump = -1,
                       .over = -1,
                       .bad = -1};
}

/* ---- a run ---- */

struct setup {
  const char *precision;
  int classes; /* with a head; */
  int head;    /* without classes: so wide a head, or none */
  int64_t batch;
  struct mn_optimizer_config optimizer;
};

struct run {
  const struct setup *setup;
  struct mn_device *device;
  struct made data;
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
  double losses[4000], norms[4000]; /* as told, by step */
  int64_t told, stop_at;            /* tell asks to stop after this step; 0: never */
};

/* A weight's scales, and its planes under them. */
static inline void copy_scales(struct run *r, struct mn_tensor *to, const struct run *from,
                               const struct mn_tensor *saved) {
  struct mn_scale scales[2];
  if (!to->scales) return;
  MUST(from->device->kernels->download(from->device, scales, saved->scales, sizeof scales));
  MUST(r->device->kernels->copy(r->device, to->scales, scales, sizeof scales));
  MUST(r->device->kernels->round(r->device, &to->value, 0));
  MUST(r->device->kernels->synchronize(r->device));
}

static inline mn_status try_to_open(struct run *r, const char *name, const struct setup *setup,
                                    enum mn_place place, const struct made *data, const struct run *from) {
  struct mn_model_config config = {.inputs = INPUTS,
                                   .depth = 2,
                                   .hidden = {16, CHANNELS},
                                   .groups = 4,
                                   .head = setup->classes ? 5 : setup->head,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .loss = setup->classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE,
                                   .plan = MN_PLAN_BLOCK};
  struct mn_trainer_config training = {
      .schedule = {.kind = MN_SCHEDULE_COSINE, .rate = 0.1, .horizon = 4000, .warmup = 10},
      .batch = setup->batch,
      .seed = 9,
      .place = place,
      .on_nonfinite = data->on_nonfinite};
  *r = (struct run){.setup = setup, .data = *data, .device = open_or_skip(name, setup->precision)};
  MUST(mn_model_open(&r->model, r->device, &config));
  MUST(mn_optimizer_open(&r->optimizer, r->model, &setup->optimizer));
  MUST(mn_model_initialise(r->model, 9));
  for (int i = 0; from && i < r->model->count; i++) {
    const struct mn_tensor *saved = from->model->parameters[i];
    int64_t count = mn_tensor_count(saved);
    double *values = zeros(count);
    MUST(mn_tensor_read(from->device, saved, values));
    MUST(mn_tensor_write(r->device, r->model->parameters[i], values));
    copy_scales(r, r->model->parameters[i], from, saved);
    MUST(mn_device_read(from->device, values, saved->update.m, count));
    MUST(mn_device_write(r->device, r->model->parameters[i]->update.m, values, count));
    if (saved->update.v) {
      MUST(mn_device_read(from->device, values, saved->update.v, count));
      MUST(mn_device_write(r->device, r->model->parameters[i]->update.v, values, count));
    }
    free(values);
  }
  return mn_trainer_open(&r->trainer, r->model, r->optimizer, &r->data.base, &training,
                         from ? &from->trainer->progress : NULL);
}

static inline void open_run(struct run *r, const char *device, const struct setup *setup, enum mn_place place,
                            const struct run *from) {
  struct made data = make(setup->classes);
  MUST(try_to_open(r, device, setup, place, &data, from));
}

static inline void close_run(struct run *r) {
  mn_trainer_close(r->trainer);
  mn_optimizer_close(r->optimizer);
  mn_model_close(r->model);
  mn_device_close(r->device);
}

static inline int tell(void *to, const struct mn_trainer *t) {
  struct run *r = to;
  int64_t step = t->progress.step;
  assert_int_equal(t->progress.samples, step * r->setup->batch * r->setup->optimizer.accumulate);
  assert_int_equal(t->progress.epoch, t->progress.samples / ROWS);
  assert_int_equal(t->progress.position, t->progress.samples % ROWS);
  assert_true(t->rate == mn_schedule_rate(&t->schedule, step - 1));
  assert_true(isnan(t->loss) == (t->skipped != NULL));
  assert_true(isnan(t->norm) == (r->setup->optimizer.clip == 0 || t->skipped));
  if (r->told) assert_int_equal(step, r->told + 1);
  r->told = step;
  r->losses[step] = t->loss;
  r->norms[step] = t->norm;
  return step == r->stop_at;
}

static inline void train(struct run *r, int64_t until) {
  MUST(mn_trainer_run(r->trainer, until, tell, r));
  assert_int_equal(r->trainer->progress.step, until);
}

/* A run that goes on from a checkpoint of another. */
static inline void open_from_file(struct run *r, const char *device, const struct run *from) {
  char folder[64], path[80];
  const char *base = getenv("TMPDIR");
  struct mn_checkpoint *saved;
  struct mn_progress progress;
  struct mn_trainer_config training = {.schedule = from->trainer->schedule,
                                       .batch = from->setup->batch,
                                       .place = MN_PLACE_AUTO,
                                       .on_nonfinite = from->data.on_nonfinite};
  snprintf(folder, sizeof folder, "%s/minnow_run_XXXXXX", base && *base ? base : "/tmp");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/run.h5", folder);
  MUST(save_and_wait(path, from->model, from->optimizer, &from->trainer->progress, NULL, 0));
  MUST(mn_checkpoint_load(&saved, path));
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
  MUST(try_to_open(r, device, from->setup, MN_PLACE_AUTO, &from->data, NULL));
  mn_trainer_close(r->trainer);
  MUST(mn_snapshot_restore(saved, r->model, r->optimizer, &progress));
  MUST(mn_trainer_open(&r->trainer, r->model, r->optimizer, &r->data.base, &training, &progress));
  mn_checkpoint_free(saved);
}

static inline void assert_same_values(const struct run *a, const struct run *b, const void *of_a,
                                      const void *of_b, const struct mn_tensor *t) {
  int64_t count = mn_tensor_count(t);
  double *x = zeros(count), *y = zeros(count);
  MUST(mn_device_read(a->device, x, of_a, count));
  MUST(mn_device_read(b->device, y, of_b, count));
  if (memcmp(x, y, (size_t)count * sizeof *x) != 0) fail_msg("%s differs", t->name);
  free(x), free(y);
}

/* What a weight's planes have for a factor, and what the next dz gets. */
static inline void assert_same_factors(const struct run *a, const struct run *b, const struct mn_tensor *t,
                                       const struct mn_tensor *u) {
  struct mn_scale x[2], y[2];
  assert_true(!t->scales == !u->scales);
  if (!t->scales) return;
  MUST(a->device->kernels->download(a->device, x, t->scales, sizeof x));
  MUST(b->device->kernels->download(b->device, y, u->scales, sizeof y));
  if (x[0].factor != y[0].factor || mn_scale_next(&x[1]) != mn_scale_next(&y[1]))
    fail_msg("%s: factors %g and %g, dz's %g and %g", t->name, (double)x[0].factor, (double)y[0].factor,
             (double)mn_scale_next(&x[1]), (double)mn_scale_next(&y[1]));
}

static inline void assert_same_parameters(const struct run *a, const struct run *b) {
  for (int i = 0; i < a->model->count; i++) {
    const struct mn_tensor *t = a->model->parameters[i], *u = b->model->parameters[i];
    double *x = read_values(a->device, t), *y = read_values(b->device, u);
    if (memcmp(x, y, (size_t)mn_tensor_count(t) * sizeof *x) != 0) fail_msg("%s differs", t->name);
    free(x), free(y);
    assert_same_values(a, b, t->update.m, u->update.m, t);
    if (t->update.v) assert_same_values(a, b, t->update.v, u->update.v, t);
  }
}

static inline void assert_same(const struct run *a, const struct run *b) {
  assert_same_parameters(a, b);
  for (int i = 0; i < a->model->count; i++)
    assert_same_factors(a, b, a->model->parameters[i], b->model->parameters[i]);
}

/* The step, counted from 1, whose batches hold sample `position`. */
static inline int64_t step_of(const struct setup *s, int64_t position) {
  return position / (s->batch * s->optimizer.accumulate) + 1;
}

/* Whether opening reads a row of the file, for the fingerprint. */
static inline int is_sampled(int64_t row) {
  const struct mn_dataset rows = {.rows = ROWS};
  for (int64_t i = 0; i < rows.rows && i < MN_FINGERPRINT_ROWS; i++)
    if (i * rows.rows / (rows.rows < MN_FINGERPRINT_ROWS ? rows.rows : MN_FINGERPRINT_ROWS) == row) return 1;
  return 0;
}

/* The rows of the first epoch, in training order. */
static inline void order_rows(int64_t rows[ROWS]) {
  struct mn_order order;
  mn_order_begin(&order, ROWS, 9, 0, 1);
  for (int64_t at = 0; at < ROWS; at++) rows[at] = mn_order_row(&order, mn_order_number(&order, at));
}

/* Position of `row` in the first epoch. */
static inline int64_t position_of(int64_t row) {
  static int64_t rows[ROWS];
  int64_t at = 0;
  order_rows(rows);
  while (at < ROWS && rows[at] != row) at++;
  assert_true(at < ROWS);
  return at;
}

static const struct setup setups[] __attribute__((unused)) = {
    {"fp32", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"bf16", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp64", 1, 0, 100, {.rule = {.momentum = 0.9, .nesterov = 1}, .accumulate = 1}},
    {"fp32", 1, 0, 64, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 1}},
    {"bf16", 1, 0, 33, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 3}},
    {"fp16", 0, 0, 64, {.rule = {.momentum = 0.9}, .accumulate = 1}},
    {"fp16", 1, 0, 33, {.rule = {.momentum = 0.9}, .clip = 0.5, .accumulate = 3}},
    {"bf16",
     0,
     0,
     64,
     {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, .accumulate = 1}},
    {"fp16",
     1,
     0,
     33,
     {.rule = {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, .clip = 0.5, .accumulate = 3}},
};
static const enum mn_place places[] __attribute__((unused)) = {MN_PLACE_DEVICE, MN_PLACE_HOST, MN_PLACE_FILE};

#endif
