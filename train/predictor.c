/* Predictions by a pass on a part of the device that is the predictor's own: its buffers and, on a GPU, its
 * stream. The weights are the model's or, prepared, those that all of its predictors share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/fault.h"
#include "train/fit.h"
#include "train/prepared.h"

struct mn_predictor {
  struct mn_model *of, view; /* view: the same model on `device`, with prepared weights; owns nothing */
  struct mn_device *device;
  struct mn_tensor *parameters; /* the view's */
  struct mn_pass *pass;
  int prepared;
  int64_t rows;
  void *x, *y; /* on the host, for a GPU: reals [rows, I] and [rows, K] */
};

/* The model on the predictor's device. A pass writes to the tensors, so they are this predictor's own. */
static mn_status open_view(struct mn_predictor *p) {
  struct mn_model *view = &p->view;
  *view = *p->of;
  view->device = p->device;
  view->clipping = NULL;
  if (!(p->parameters = calloc((size_t)view->count, sizeof *p->parameters)))
    return mn_fail(MN_NO_MEMORY, "no memory for a predictor");
  for (int i = 0; i < view->count; i++) {
    struct mn_tensor *t = &p->parameters[i];
    *t = *mn_prepared_parameter(p->of, i);
    t->needs_gradient = 0;
    t->gradient = NULL;
    t->sink = (struct mn_epilogue){0};
    for (int l = 0; l < view->depth; l++)
      for (int k = 0; k < view->layers[l].kind->parameters; k++)
        if (view->layers[l].parameters[k] == view->parameters[i]) view->layers[l].parameters[k] = t;
    view->parameters[i] = t;
  }
  return MN_OK;
}

static mn_status open_parts(struct mn_predictor *p) {
  char name[32];
  const struct mn_device *whole = p->of->device;
  snprintf(name, sizeof name, whole->type == MN_DEVICE_CUDA ? "cuda:%d" : "cpu", whole->ordinal);
  MN_TRY(mn_device_open(&p->device, name, mn_precision_name(whole->precision), whole->threads));
  p->device->all_threads = whole->all_threads;
  MN_TRY(mn_prepared_open(p->of, p->device));
  p->prepared = 1;
  MN_TRY(open_view(p));
  MN_TRY(mn_pass_record(
      &p->pass, &p->view,
      &(struct mn_pass_config){.kind = MN_PASS_PREDICT, .rows = p->rows, .batch = p->rows, .scale = 1}));
  if (p->device->type == MN_DEVICE_CPU) return MN_OK;
  MN_TRY(mn_allocate_host(p->device, &p->x, (size_t)mn_tensor_count(p->pass->x) * p->device->real));
  return mn_allocate_host(p->device, &p->y, (size_t)mn_tensor_count(p->pass->y) * p->device->real);
}

mn_status mn_predictor_open(struct mn_predictor **out, struct mn_model *model, int64_t rows) {
  MN_OPENS(out, model);
  if (rows < 1) return mn_fail(MN_USAGE, "a predictor of %ld rows: at least 1 is needed", (long)rows);
  if (model->device->ranks)
    return mn_fail(MN_USAGE, "a predictor is of a model on one rank, not among several");
  struct mn_predictor *p = calloc(1, sizeof *p);
  if (!p) return mn_fail(MN_NO_MEMORY, "no memory for a predictor");
  p->of = model, p->rows = rows;
  mn_status status = open_parts(p);
  if (status != MN_OK)
    mn_predictor_close(p);
  else
    *out = p;
  return status;
}

void mn_predictor_close(struct mn_predictor *p) {
  if (!p) return;
  if (p->prepared) mn_prepared_close(p->of);
  mn_pass_close(p->pass);
  if (p->x) mn_release_host(p->device, p->x);
  if (p->y) mn_release_host(p->device, p->y);
  mn_device_close(p->device);
  free(p->parameters);
  free(p);
}

/* ---- predicting ---- */

/* Prepares the pass for n rows, which come to *x, reals [n, I]. */
static mn_status begin(struct mn_predictor *p, int64_t n, void **x) {
  if (n < 0 || n > p->rows)
    return mn_fail(MN_USAGE, "%ld rows for a predictor of %ld: 0 to %ld work", (long)n, (long)p->rows,
                   (long)p->rows);
  if (n > 0 && mn_prepared_old(p->of)) {
    MN_TRY(mn_prepared_open(p->of, p->device));
    mn_prepared_close(p->of);
  }
  if (n > 0 && n != p->pass->x->value.rows) mn_tape_resize(p->pass->tape, p->pass->x, n);
  *x = p->x ? p->x : p->pass->x->value.real;
  return MN_OK;
}

/* Runs the pass; *y: its outputs, reals [n, K]. */
static mn_status run(struct mn_predictor *p, int64_t n, const void **y) {
  struct mn_device *device = p->device;
  struct mn_operand *in = &p->pass->x->value, *out = &p->pass->y->value;
  if (p->x) MN_TRY(mn_copy(device, in->real, p->x, (size_t)(n * in->cols) * device->real));
  in->stale = 1;
  MN_TRY(mn_operand_prepare(device, in));
  MN_TRY(mn_tape_step(p->pass->tape));
  if (p->y) MN_TRY(mn_download(device, p->y, out->real, (size_t)(n * out->cols) * device->real));
  *y = p->y ? p->y : out->real;
  return MN_OK;
}

/* The reason for outputs that are not finite. `first`: the number of the first row. */
static mn_status explain(struct mn_predictor *p, int64_t first, int64_t n, const void *y) {
  struct mn_fault fault;
  char where[MN_FAULT_WORDS];
  if (mn_find_outside(y, n * p->pass->y->value.cols, p->device->real, -INFINITY, INFINITY) < 0)
    return mn_fail(MN_FAILED, "there is no prediction: an output is beyond a float's range");
  mn_pass_explain(&p->view, &(struct mn_batch){.rows = n, .x = p->pass->x->value}, &fault);
  if (fault.row >= 0 && !fault.parameter) fault.row += first;
  return mn_fail(MN_FAILED, "there is no prediction: %s is not finite; %s", mn_fault_words(where, &fault),
                 mn_fault_remedy(&fault));
}

mn_status mn_predict(struct mn_predictor *predictor, const float *x, int64_t n, float *y) {
  MN_GIVEN(predictor, x, y);
  const struct mn_standard *standard = predictor->of->standard;
  const size_t real = predictor->device->real;
  const int64_t inputs = predictor->pass->x->value.cols, outputs = predictor->pass->y->value.cols;
  const void *reals;
  void *to = NULL;
  MN_TRY(begin(predictor, n, &to));
  if (n == 0) return MN_OK;
  mn_standard_apply(&standard[MN_X], real, to, sizeof *x, x, n, inputs);
  MN_TRY(run(predictor, n, &reals));
  if (mn_standard_undo(&standard[MN_Y], real, sizeof *y, y, reals, n, outputs) == 0) return MN_OK;
  MN_TRY(mn_dataset_check_finite("the arrays", "x", 0, inputs, n * inputs, x, sizeof *x));
  return explain(predictor, 0, n, reals);
}

mn_status mn_predict_rows(struct mn_predictor *predictor, struct mn_dataset *rows, int64_t first,
                          int64_t count, double *y) {
  MN_GIVEN(predictor, rows, y);
  const struct mn_standard *standard = predictor->of->standard;
  const struct mn_device *device = predictor->device;
  const struct mn_rows_form form = {.real = device->real,
                                    .standard = {[MN_X] = standard[MN_X]},
                                    .x_row = (size_t)rows->inputs * device->real,
                                    .threads = device->threads};
  const struct mn_range range = {.first = first, .count = count};
  const void *reals;
  struct mn_rows to = {0};
  MN_TRY(mn_model_check_data(&predictor->of->config, "the model", rows, "the data", 0));
  MN_TRY(begin(predictor, count, &to.x));
  if (count == 0) return MN_OK;
  MN_TRY(mn_read_rows(rows, &form, &range, 1, &to, NULL));
  MN_TRY(run(predictor, count, &reals));
  const int64_t outputs = predictor->pass->y->value.cols;
  if (mn_standard_undo(&standard[MN_Y], device->real, sizeof *y, y, reals, count, outputs) == 0) return MN_OK;
  return explain(predictor, first, count, reals);
}

const void *mn_predictor_x(const struct mn_predictor *p) {
  return p->x ? p->x : p->pass->x->value.real;
}

mn_status mn_model_predict(struct mn_model *model, const float *x, int64_t rows, float *y) {
  MN_GIVEN(model, x, y);
  enum { BATCH = 1024 };
  const int64_t outputs = mn_model_outputs(&model->config);
  struct mn_predictor *p;
  MN_TRY(mn_predictor_open(&p, model, rows < BATCH ? rows : BATCH));
  mn_status status = MN_OK;
  for (int64_t first = 0, here; first < rows && status == MN_OK; first += here) {
    here = rows - first < BATCH ? rows - first : BATCH;
    status = mn_predict(p, x + first * model->config.inputs, here, y + first * outputs);
  }
  mn_predictor_close(p);
  return status;
}
