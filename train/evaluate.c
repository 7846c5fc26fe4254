/* Passes over the batches of a dataset, first to last. */
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ahead.h"
#include "kernels/clock.h"
#include "train/fit.h"

/* Host memory that the device writes to. */
struct pinned {
  struct result {
    double loss, correct;
  } results[MN_LOADER_BUFFERS]; /* of the batch in each buffer */
  int unread;                   /* what ahead_used copies */
};

/* A batch that was given to the device. */
struct given {
  struct mn_pass *pass;
  struct mn_batch rows;
  int64_t first; /* its first row */
};

struct mn_evaluator {
  struct mn_model *model;
  struct mn_dataset *dataset;
  int64_t batch;
  struct mn_pass *full, *rest; /* rest: NULL if batches come out even */
  struct mn_loader *loader;
  struct pinned *pinned;
  mn_evaluator_take *take; /* called with `to` and each batch; may be NULL */
  void *to;
  double *y, *targets;       /* host: [batch, K] each, for `take` */
  double total, right;       /* of the batches so far: loss, and rows classified correctly */
  struct mn_scale *kept;     /* [parameters] on the device, if planes are scaled: training's */
  struct mn_fault fault;     /* of the first batch that was not finite, if there was one … */
  int64_t faults;            /* … and how many there were in the last evaluation */
  struct mn_outcome outcome; /* the first error; the loader then stopped inside the rows */
  /* of the evaluation under way */
  struct given given[MN_LOADER_BUFFERS]; /* in turn; `next` is to be given next */
  int next, under_way;
  int64_t first; /* its first row */
};

static mn_status open_parts(struct mn_evaluator *e, enum mn_place place) {
  struct mn_device *device = e->model->device;
  MN_TRY(mn_model_check_data(&e->model->config, "the model", e->dataset, "the data", 1));
  MN_TRY(mn_pass_open_outside(&e->full, e->model, MN_PASS_EVALUATE, e->batch, 1));
  int64_t rest = e->dataset->rows % e->batch;
  if (rest) MN_TRY(mn_pass_open_outside(&e->rest, e->model, MN_PASS_EVALUATE, rest, 1));
  MN_TRY(mn_allocate_host(device, (void **)&e->pinned, sizeof *e->pinned));
  if (device->scaled)
    MN_TRY(mn_device_allocate(e->model->device, (void **)&e->kept, e->model->count, sizeof *e->kept));
  struct mn_loader_config config = {.place = place,
                                    .samples = e->batch,
                                    .reals = mn_pass_reads_reals(e->full),
                                    .standard = e->model->standard};
  return mn_loader_open(&e->loader, e->model->device, e->dataset, &config);
}

mn_status mn_evaluator_open(struct mn_evaluator **out, struct mn_model *model, struct mn_dataset *dataset,
                            int64_t batch, enum mn_place place) {
  MN_OPENS(out, model, dataset);
  if (!mn_place_name(place))
    return mn_fail(MN_USAGE, "an evaluator at place %d: one of enum mn_place works", (int)place);
  struct mn_evaluator *e = *out = calloc(1, sizeof *e);
  if (!e) return mn_fail(MN_NO_MEMORY, "no memory for an evaluation");
  *e = (struct mn_evaluator){.model = model, .dataset = dataset};
  e->batch = batch < dataset->rows ? batch : dataset->rows;
  mn_status status = open_parts(e, place);
  if (status != MN_OK) mn_evaluator_close(e), *out = NULL;
  return status;
}

void mn_evaluator_close(struct mn_evaluator *e) {
  if (!e) return;
  struct mn_device *device = e->model->device;
  for (double idle; e->under_way > 0; e->under_way--) (void)mn_ahead_wait(device, &idle);
  mn_loader_close(e->loader); /* which waits for the device */
  mn_pass_close(e->full);
  mn_pass_close(e->rest);
  mn_release_host(device, e->pinned);
  mn_release_host(device, e->y);
  mn_release_host(device, e->targets);
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
    MN_TRY(mn_copy(device, to, from, sizeof *e->kept));
    MN_TRY(mn_round(device, &t->value, training ? 0 : MN_MEASURE_TOGETHER));
  }
  return MN_OK;
}

/* Finds the value of this batch that is not finite. */
static void explain(struct mn_evaluator *e, const struct given *g) {
  mn_pass_explain(e->model, &g->rows, &e->fault);
  if (e->fault.row >= 0 && !e->fault.parameter) e->fault.row += g->first;
}

/* Downloads reals, and turns them into doubles in their own units. The reals go to the upper part of `to`, so
 * that each is read before a double takes its place. */
static mn_status download(struct mn_device *device, const struct mn_standard *standard, double *to,
                          const void *from, int64_t rows, int64_t cols) {
  const size_t count = (size_t)(rows * cols);
  char *reals = (char *)to + count * (sizeof *to - device->real);
  MN_TRY(mn_download(device, reals, from, count * device->real));
  mn_standard_undo(standard, device->real, sizeof *to, to, reals, rows, cols);
  return MN_OK;
}

/* Outputs that are not finite make a loss that is not, which mn_evaluate tells. */
static mn_status read_batch(struct mn_evaluator *e, const struct given *g) {
  struct mn_device *device = e->model->device;
  const struct mn_pass *pass = g->pass;
  const struct result *result = &e->pinned->results[g - e->given];
  if (!isfinite(result->loss) && e->faults++ == 0) explain(e, g); /* the first */
  e->total += result->loss * (double)g->pass->batch;
  e->right += result->correct;
  if (!e->take) return MN_OK;
  const int64_t cols = pass->y->value.cols;
  const struct mn_standard *s = &e->model->standard[MN_Y];
  MN_TRY(download(device, s, e->y, pass->y->value.real, pass->rows, cols));
  if (pass->target)
    MN_TRY(download(device, s, e->targets, g->rows.y, pass->rows, cols));
  else
    MN_TRY(mn_download(device, e->targets, g->rows.y, (size_t)pass->rows * sizeof(int32_t)));
  return e->take(e->to, e->y, e->targets, g->first, pass->rows);
}

/* ---- the loop ---- */

static int more(const void *data) {
  const struct mn_evaluator *e = data;
  return e->first < e->dataset->rows;
}

static mn_status fill(void *data) {
  struct mn_evaluator *e = data;
  struct given *g = &e->given[e->next];
  *g = (struct given){e->first + e->batch <= e->dataset->rows ? e->full : e->rest, .first = e->first};
  return mn_loader_fill(e->loader, g->pass->batch, &g->rows);
}

/* Each buffer has a graph of the full batch. */
static mn_status give(void *data) {
  struct mn_evaluator *e = data;
  const struct given *g = &e->given[e->next];
  struct mn_device *device = e->model->device;
  struct mn_tape *tape = g->pass->tape;
  mn_pass_set(g->pass, &g->rows);
  tape->results = &e->pinned->results[e->next].loss;
  MN_TRY(g->pass == e->full ? mn_tape_replay(tape, e->next) : mn_tape_step(tape));
  MN_TRY(mn_ahead_used(device, &e->pinned->unread, tape->nonfinite, sizeof e->pinned->unread));
  e->first += g->pass->batch;
  e->next = (e->next + 1) % MN_LOADER_BUFFERS;
  return MN_OK;
}

static mn_status collect(void *data) {
  struct mn_evaluator *e = data;
  const int64_t rows = e->dataset->rows;
  const int oldest = (e->next + MN_LOADER_BUFFERS - e->under_way) % MN_LOADER_BUFFERS;
  double idle;
  MN_TRY(mn_ahead_wait(e->model->device, &idle));
  mn_status status = read_batch(e, &e->given[oldest]);
  mn_heartbeat_of("rows", e->first < rows ? e->first : rows, rows);
  return status;
}

static const struct mn_ahead calls = {more, fill, give, collect};

mn_status mn_evaluator_give(struct mn_evaluator *e) {
  MN_REQUIRE(!e->rest && e->under_way < MN_LOADER_BUFFERS);
  e->first = 0;
  MN_TRY(mn_ahead_give(e->model->device, &calls, e));
  e->under_way++;
  return MN_OK;
}

static mn_status walk(struct mn_evaluator *e) {
  const int most = e->take ? 1 : MN_LOADER_BUFFERS; /* the next batch overwrites the outputs of a pass */
  if (e->under_way > 0) {
    const mn_status collected = collect(e);
    e->under_way--;
    return collected;
  }
  e->first = 0;
  MN_TRY(mn_outcome_tell(&e->outcome));
  MN_TRY(write_planes(e, 0));
  mn_status status = mn_ahead_run(e->model->device, &calls, e, most, &e->under_way, &e->outcome);
  MN_TRY(write_planes(e, 1));
  return status;
}

mn_status mn_evaluator_watch(struct mn_evaluator *e, mn_evaluator_take *take, void *to) {
  struct mn_device *device = e->model->device;
  const size_t bytes = (size_t)(e->batch * mn_model_outputs(&e->model->config)) * sizeof(double);
  if (!e->y) MN_TRY(mn_allocate_host(device, (void **)&e->y, bytes));
  if (!e->targets) MN_TRY(mn_allocate_host(device, (void **)&e->targets, bytes));
  e->take = take;
  e->to = to;
  return MN_OK;
}

mn_status mn_evaluate(struct mn_evaluator *evaluator, double *loss, double *accuracy) {
  MN_GIVEN(evaluator, loss);
  const struct mn_dataset *d = evaluator->dataset;
  const double rows = (double)d->rows;
  double weight = d->weights ? 0 : rows;
  for (int64_t row = 0; d->weights && row < d->rows; row++) weight += d->weights[row];
  evaluator->total = evaluator->right = 0;
  evaluator->faults = 0;
  MN_TRY(walk(evaluator));
  const double unit = mn_model_loss_unit(evaluator->model);
  *loss = evaluator->faults ? NAN : evaluator->total / rows * (unit > 0 ? unit : 1);
  if (accuracy) *accuracy = d->classes && !evaluator->faults ? evaluator->right / weight : NAN;
  return MN_OK;
}

const struct mn_fault *mn_evaluator_fault(const struct mn_evaluator *e, int64_t *batches, int64_t *all) {
  if (batches) *batches = e->faults, *all = (e->dataset->rows + e->batch - 1) / e->batch;
  return e->faults ? &e->fault : NULL;
}
