/* Passes over the batches of a dataset, first to last. */
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "engine/thread.h"
#include "kernels/clock.h"

/* What a batch leaves, in host memory that the device writes to. */
struct result {
  double loss, correct;
};

struct mn_evaluator {
  struct mn_model *model;
  struct mn_dataset *dataset;
  int64_t batch;
  struct mn_pass *full, *rest; /* rest: NULL if batches come out even */
  struct mn_loader *loader;
  struct mn_batch rows[MN_LOADER_BUFFERS];    /* what each buffer holds */
  struct mn_replay replay[MN_LOADER_BUFFERS]; /* of `full`, on each buffer */
  struct result *results;                     /* [MN_LOADER_BUFFERS], pinned */
  int *unread;                                /* what ahead_used copies, pinned */
  void *y;                                    /* host: [batch, K] reals; for MN_PASS_PREDICT and `see` */
  void *targets;                              /* the same for a batch's targets; for `see` alone */
  mn_evaluator_see *see;                      /* called with `to` and each evaluated batch; may be NULL */
  void *to;
  struct mn_scale *kept;     /* [parameters] on the device, if planes are scaled: training's */
  struct mn_fault fault;     /* of the first batch that was not finite, if there was one … */
  int64_t faults;            /* … and how many there were in the last evaluation */
  struct mn_outcome outcome; /* of what failed: the loader is then somewhere inside the rows */
};

static size_t outputs_bytes(const struct mn_evaluator *e) {
  return (size_t)(e->batch * mn_model_outputs(&e->model->config)) * e->model->device->real;
}

static mn_status open_parts(struct mn_evaluator *e, enum mn_pass_kind kind, enum mn_place place) {
  struct mn_device *device = e->model->device;
  const struct mn_kernels *k = device->kernels;
  MN_TRY(
      mn_model_check_data(&e->model->config, "the model", e->dataset, "the data", kind == MN_PASS_EVALUATE));
  MN_TRY(mn_pass_open_outside(&e->full, e->model, kind, e->batch, 1));
  int64_t rest = e->dataset->rows % e->batch;
  if (rest) MN_TRY(mn_pass_open_outside(&e->rest, e->model, kind, rest, 1));
  MN_TRY(k->allocate_host(device, (void **)&e->results, MN_LOADER_BUFFERS * sizeof *e->results));
  MN_TRY(k->allocate_host(device, (void **)&e->unread, sizeof *e->unread));
  if (device->scaled)
    MN_TRY(mn_device_allocate(e->model->device, (void **)&e->kept, e->model->count, sizeof *e->kept));
  if (kind == MN_PASS_PREDICT) MN_TRY(k->allocate_host(device, &e->y, outputs_bytes(e)));
  struct mn_loader_config config = {.place = place,
                                    .x_only = kind == MN_PASS_PREDICT,
                                    .samples = e->batch,
                                    .reals = mn_pass_reads_reals(e->full),
                                    .mean = e->model->mean,
                                    .scale = e->model->scale};
  return mn_loader_open(&e->loader, e->model->device, e->dataset, &config);
}

mn_status mn_evaluator_open(struct mn_evaluator **out, struct mn_model *model, struct mn_dataset *dataset,
                            enum mn_pass_kind kind, int64_t batch, enum mn_place place) {
  *out = NULL;
  struct mn_evaluator *e = calloc(1, sizeof *e);
  if (!e) return mn_fail(MN_NO_MEMORY, "no memory for an evaluation");
  e->model = model;
  e->dataset = dataset;
  e->batch = batch < dataset->rows ? batch : dataset->rows;
  mn_status status = open_parts(e, kind, place);
  if (status != MN_OK) {
    mn_evaluator_close(e);
    return status;
  }
  *out = e;
  return MN_OK;
}

void mn_evaluator_close(struct mn_evaluator *e) {
  if (!e) return;
  struct mn_device *device = e->model->device;
  mn_loader_close(e->loader); /* which waits for the device */
  for (int i = 0; i < MN_LOADER_BUFFERS; i++) mn_replay_free(e->model->device, &e->replay[i]);
  mn_pass_close(e->full);
  mn_pass_close(e->rest);
  device->kernels->release_host(device, e->results);
  device->kernels->release_host(device, e->unread);
  device->kernels->release_host(device, e->y);
  device->kernels->release_host(device, e->targets);
  mn_device_release(e->model->device, e->kept, e->model->count, sizeof *e->kept);
  free(e);
}

const struct mn_placement *mn_evaluator_placement(const struct mn_evaluator *e) {
  return mn_loader_placement(e->loader);
}

/* Outputs depend on the weights alone, and training does not depend on evaluations in between: so the planes
 * are written under factors chosen from the weights before, and under training's factors afterwards. */
static mn_status write_planes(struct mn_evaluator *e, int training) {
  struct mn_device *device = e->model->device;
  for (int i = 0; i < e->model->count; i++) {
    struct mn_tensor *t = e->model->parameters[i];
    if (!t->scales) continue;
    const void *from = training ? &e->kept[i] : t->scales;
    void *to = training ? t->scales : &e->kept[i];
    MN_TRY(device->kernels->copy(device, to, from, sizeof *e->kept));
    MN_TRY(device->kernels->round(device, &t->value, training ? 0 : MN_MEASURE_TOGETHER));
  }
  return MN_OK;
}

/* Gives the device the forward over the next rows. *pass gets the pass that it uses, *buffer the number of
 * its result. Batches that are not gathered are each in other memory, so no graph is captured. */
static mn_status forward(struct mn_evaluator *e, int64_t first, struct mn_pass **pass, int *buffer) {
  struct mn_device *device = e->model->device;
  const struct mn_kernels *k = device->kernels;
  struct mn_batch batch = {0};
  *pass = first + e->batch <= e->dataset->rows ? e->full : e->rest;
  MN_TRY(k->ahead_begin(device));
  mn_status status = mn_loader_fill(e->loader, (*pass)->batch, &batch, buffer);
  mn_status ended = k->ahead_end(device);
  if (status != MN_OK) return status;
  MN_TRY(ended);
  e->rows[*buffer] = batch;
  MN_TRY(mn_pass_set(*pass, &batch));
  (*pass)->tape->results = &e->results[*buffer].loss;
  struct mn_tape *tape = (*pass)->tape;
  MN_TRY(*pass == e->full ? mn_tape_replay(tape, &e->replay[*buffer]) : mn_tape_step(tape));
  return k->ahead_used(device, e->unread, (*pass)->tape->nonfinite, sizeof *e->unread);
}

static mn_status wait_for_one(struct mn_evaluator *e) {
  double idle;
  return e->model->device->kernels->ahead_wait(e->model->device, &idle);
}

/* Records the error, and waits for the batches under way. */
static mn_status give_up(struct mn_evaluator *e, int under_way, mn_status status) {
  mn_outcome_note(&e->outcome, status);
  while (under_way-- > 0) (void)wait_for_one(e);
  return mn_outcome_tell(&e->outcome);
}

/* Finds the value that is not finite in the batch of this buffer, whose first row is `first`. If memory is
 * too short for that, the fault is "a value". */
static void explain(struct mn_evaluator *e, int buffer, int64_t first) {
  if (mn_pass_explain(e->model, &e->rows[buffer], &e->fault) != MN_OK)
    e->fault = (struct mn_fault){"a value", -1, 0};
  if (e->fault.row >= 0 && !e->fault.parameter) e->fault.row += first;
}

mn_status mn_evaluator_watch(struct mn_evaluator *e, mn_evaluator_see *see, void *to) {
  struct mn_device *device = e->model->device;
  MN_REQUIRE(!e->see && e->full->reads_y);
  MN_TRY(device->kernels->allocate_host(device, &e->y, outputs_bytes(e)));
  MN_TRY(device->kernels->allocate_host(device, &e->targets, outputs_bytes(e)));
  e->see = see;
  e->to = to;
  return MN_OK;
}

/* Shows `see` the batch that was evaluated last. */
static mn_status show(struct mn_evaluator *e, const struct mn_pass *pass, int buffer) {
  struct mn_device *device = e->model->device;
  const size_t reals = (size_t)mn_tensor_count(pass->y) * device->real;
  MN_TRY(device->kernels->download(device, e->y, pass->y->value.real, reals));
  MN_TRY(device->kernels->download(device, e->targets, e->rows[buffer].y,
                                   pass->target ? reals : (size_t)pass->rows * sizeof(int32_t)));
  return e->see(e->to, e->y, e->targets, pass->rows);
}

static mn_status evaluate(struct mn_evaluator *e, double *loss, double *accuracy) {
  double total = 0, right = 0, rows = (double)e->dataset->rows;
  e->faults = 0;
  struct mn_pass *pass[MN_LOADER_BUFFERS];
  int buffer[MN_LOADER_BUFFERS], given = 0, read = 0;
  const int ahead = e->see ? 1 : MN_LOADER_BUFFERS; /* the next batch overwrites the outputs of a pass */
  for (int64_t first = 0; first < e->dataset->rows || read < given;) {
    mn_status status;
    if (first < e->dataset->rows && given - read < ahead) {
      status = forward(e, first, &pass[given % MN_LOADER_BUFFERS], &buffer[given % MN_LOADER_BUFFERS]);
      if (status != MN_OK) return give_up(e, given - read, status);
      first += pass[given % MN_LOADER_BUFFERS]->batch;
      given++;
      continue;
    }
    status = wait_for_one(e);
    if (status != MN_OK) return give_up(e, given - read - 1, status);
    const struct result *result = &e->results[buffer[read % MN_LOADER_BUFFERS]];
    if (!isfinite(result->loss) && e->faults++ == 0)
      explain(e, buffer[read % MN_LOADER_BUFFERS], read * e->batch);
    total += result->loss * (double)pass[read % MN_LOADER_BUFFERS]->batch;
    right += result->correct;
    if (e->see) status = show(e, pass[read % MN_LOADER_BUFFERS], buffer[read % MN_LOADER_BUFFERS]);
    if (status != MN_OK) return give_up(e, 0, status);
    read++;
    mn_heartbeat();
  }
  *loss = e->faults ? NAN : total / rows;
  *accuracy = e->dataset->classes && !e->faults ? right / rows : NAN;
  return MN_OK;
}

mn_status mn_evaluate(struct mn_evaluator *e, double *loss, double *accuracy) {
  MN_TRY(mn_outcome_tell(&e->outcome));
  MN_TRY(write_planes(e, 0));
  mn_status status = evaluate(e, loss, accuracy);
  MN_TRY(write_planes(e, 1));
  return status;
}

const struct mn_fault *mn_evaluator_fault(const struct mn_evaluator *e, int64_t *batches, int64_t *all) {
  if (batches) *batches = e->faults, *all = (e->dataset->rows + e->batch - 1) / e->batch;
  return e->faults ? &e->fault : NULL;
}

typedef mn_status take_function(void *to, const void *y, int64_t first, int64_t count);

static mn_status refuse_outputs(struct mn_evaluator *e, int buffer, int64_t first) {
  char where[MN_FAULT_WORDS];
  explain(e, buffer, first);
  return mn_fail(MN_FAILED, "there is no prediction: %s is not finite; %s", mn_fault_words(where, &e->fault),
                 mn_fault_remedy(&e->fault));
}

/* The outputs of the next rows, to e->y. */
static mn_status predict_next(struct mn_evaluator *e, int64_t first, struct mn_pass **pass) {
  struct mn_device *device = e->model->device;
  int buffer;
  MN_TRY(forward(e, first, pass, &buffer));
  const struct mn_tensor *y = (*pass)->y;
  mn_status status =
      device->kernels->download(device, e->y, y->value.real, (size_t)mn_tensor_count(y) * device->real);
  mn_status waited = wait_for_one(e);
  if (status != MN_OK || waited != MN_OK) return status != MN_OK ? status : waited;
  if (mn_find_nonfinite(e->y, mn_tensor_count(y), device->real) < 0) return MN_OK;
  return refuse_outputs(e, buffer, first);
}

static mn_status predict(struct mn_evaluator *e, take_function *take, void *to) {
  struct mn_pass *pass;
  for (int64_t first = 0; first < e->dataset->rows; first += pass->rows) {
    mn_status status = predict_next(e, first, &pass);
    if (status == MN_OK) status = take(to, e->y, first, pass->rows);
    if (status != MN_OK) return give_up(e, 0, status);
  }
  return MN_OK;
}

mn_status mn_evaluator_predict(struct mn_evaluator *e, size_t real, take_function *take, void *to) {
  size_t has = e->model->device->real;
  if (real != has)
    return mn_fail(MN_USAGE, "outputs of %zu bytes a number are asked for, but those of this model have %zu",
                   real, has);
  MN_TRY(mn_outcome_tell(&e->outcome));
  MN_TRY(write_planes(e, 0));
  mn_status status = predict(e, take, to);
  MN_TRY(write_planes(e, 1));
  return status;
}

/* Copies a batch's outputs to the y of mn_model_predict, which is e->to. */
static mn_status keep(void *evaluator, const void *y, int64_t first, int64_t count) {
  const struct mn_evaluator *e = evaluator;
  const int64_t cols = mn_model_outputs(&e->model->config), values = count * cols;
  float *out = (float *)e->to + first * cols;
  for (int64_t i = 0; i < values; i++) out[i] = (float)mn_real_at(y, e->model->device->real, i);
  if (mn_find_nonfinite(out, values, sizeof *out) < 0) return MN_OK;
  return mn_fail(MN_FAILED, "there is no prediction: an output is beyond a float's range");
}

mn_status mn_model_predict(struct mn_model *model, const float *x, int64_t rows, float *y) {
  enum { BATCH = 1024 };
  struct mn_dataset *data;
  struct mn_evaluator *e = NULL;
  MN_TRY(mn_dataset_arrays(&data, x, NULL, rows, model->config.inputs, 0));
  mn_status status = mn_evaluator_open(&e, model, data, MN_PASS_PREDICT, BATCH, MN_PLACE_AUTO);
  if (status == MN_OK) e->to = y, status = mn_evaluator_predict(e, model->device->real, keep, e);
  mn_evaluator_close(e), mn_dataset_close(data);
  return status;
}
