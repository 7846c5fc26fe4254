/* Passes over the batches of a dataset, first to last. */
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>

struct mn_evaluator {
  struct mn_model *model;
  struct mn_dataset *dataset;
  int64_t batch;
  struct mn_pass *full, *rest; /* rest: NULL where batches come out even */
  void *x, *y;                 /* host: [batch, I]; [batch, K] reals or [batch] labels */
};

static mn_status take_buffers(struct mn_evaluator *e, enum mn_pass_kind kind) {
  struct mn_device *device = e->model->context->device;
  size_t real = device->real;
  MN_TRY(
      mn_model_check_data(&e->model->config, "the model", e->dataset, "the data", kind == MN_PASS_EVALUATE));
  MN_TRY(mn_pass_open(&e->full, e->model, kind, e->batch, 1, 0));
  int64_t rest = e->dataset->rows % e->batch;
  if (rest) MN_TRY(mn_pass_open(&e->rest, e->model, kind, rest, 1, 0));
  MN_TRY(device->kernels->allocate_host(device, &e->x, (size_t)(e->batch * e->dataset->inputs) * real));
  int64_t outputs = mn_model_outputs(&e->model->config);
  return device->kernels->allocate_host(device, &e->y, (size_t)(e->batch * outputs) * real);
}

mn_status mn_evaluator_open(struct mn_evaluator **out, struct mn_model *model, struct mn_dataset *dataset,
                            enum mn_pass_kind kind, int64_t batch) {
  *out = NULL;
  struct mn_evaluator *e = calloc(1, sizeof *e);
  if (!e) return mn_fail(MN_NO_MEMORY, "no memory for an evaluation");
  e->model = model;
  e->dataset = dataset;
  e->batch = batch < dataset->rows ? batch : dataset->rows;
  mn_status status = take_buffers(e, kind);
  if (status != MN_OK) {
    mn_evaluator_close(e);
    return status;
  }
  *out = e;
  return MN_OK;
}

void mn_evaluator_close(struct mn_evaluator *e) {
  if (!e) return;
  struct mn_device *device = e->model->context->device;
  mn_pass_close(e->full);
  mn_pass_close(e->rest);
  device->kernels->release_host(device, e->x);
  device->kernels->release_host(device, e->y);
  free(e);
}

/* Reads the batch from row `first` on and runs the forward over it; *pass: which of the two passes it took.
 */
static mn_status forward(struct mn_evaluator *e, int64_t first, int targets, struct mn_pass **pass) {
  *pass = first + e->batch <= e->dataset->rows ? e->full : e->rest;
  MN_TRY(e->dataset->read(e->dataset, first, (*pass)->rows, e->model->context->device->real, e->x,
                          targets ? e->y : NULL));
  MN_TRY(mn_pass_load(*pass, e->x, targets ? e->y : NULL));
  return mn_tape_forward((*pass)->tape);
}

mn_status mn_evaluate(struct mn_evaluator *e, double *loss, double *accuracy) {
  double total = 0, right = 0, rows = (double)e->dataset->rows;
  struct mn_pass *pass;
  for (int64_t first = 0; first < e->dataset->rows; first += pass->rows) {
    double mean, correct;
    MN_TRY(forward(e, first, 1, &pass));
    MN_TRY(mn_tape_results(pass->tape, &mean, &correct));
    total += mean * (double)pass->rows;
    right += correct;
  }
  *loss = total / rows;
  *accuracy = e->dataset->classes ? right / rows : NAN;
  return MN_OK;
}

mn_status mn_evaluator_predict(struct mn_evaluator *e,
                               mn_status (*take)(void *to, const void *y, int64_t first, int64_t count),
                               void *to) {
  struct mn_context *context = e->model->context;
  struct mn_pass *pass;
  for (int64_t first = 0; first < e->dataset->rows; first += pass->rows) {
    MN_TRY(forward(e, first, 0, &pass));
    MN_TRY(context->kernels->download(context->device, e->y, pass->y->value.real,
                                      (size_t)mn_tensor_count(pass->y) * context->device->real));
    MN_TRY(take(to, e->y, first, pass->rows));
  }
  return MN_OK;
}
