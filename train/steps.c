/* Running a pass and reading what comes of it. */
#include "train/pass.h"

#include <stdlib.h>

#include "train/fault.h"
#include "train/fit.h"
#include "train/optimizer.h"

/* MN_FAILED if the run that has ended raised the flag, with the reason. */
static mn_status tell_nonfinite(struct mn_pass *pass) {
  struct mn_batch batch = {.rows = pass->rows, .x = pass->x->value, .targets = pass->targets};
  struct mn_fault fault;
  char where[MN_FAULT_WORDS];
  int raised;
  MN_TRY(mn_tape_nonfinite(pass->tape, &raised));
  if (!raised) return MN_OK;
  if (pass->reads_y) batch.y = pass->target ? pass->target->value.real : pass->labels;
  mn_pass_explain(pass->model, &batch, &fault);
  return mn_fail(MN_FAILED, "%s is not finite, and the batch has changed nothing; %s",
                 mn_fault_words(where, &fault), mn_fault_remedy(&fault));
}

static mn_status check_run(const struct mn_pass *pass, int with_loss) {
  const struct mn_optimizer *o = pass->model->optimizer;
  if (pass->reads_y != with_loss)
    return mn_fail(MN_USAGE, with_loss ? "a pass without a loss has no step: take mn_pass_forward"
                                       : "a pass with a loss: take mn_pass_step");
  if (pass->x->outside) return mn_fail(MN_USAGE, "a pass over batches of the device's is not run like this");
  if (!pass->loaded)
    return mn_fail(MN_USAGE, "no batch is loaded: call mn_pass_arrays or mn_pass_labelled first");
  if (pass->tape->training && o && !o->rated)
    return mn_fail(MN_USAGE, "no learning rate is set: call mn_optimizer_rate first");
  return MN_OK;
}

mn_status mn_pass_step(struct mn_pass *pass, double *loss, double *correct) {
  MN_GIVEN(pass, loss);
  int raised;
  MN_TRY(check_run(pass, 1));
  MN_TRY(mn_tape_clear_nonfinite(pass->tape));
  MN_TRY(mn_tape_step(pass->tape));
  MN_TRY(mn_tape_nonfinite(pass->tape, &raised));
  if (raised && pass->model->device->scaled && pass->tape->training) { /* the factors may not have fitted */
    pass->tape->measure = 1;
    MN_TRY(mn_tape_clear_nonfinite(pass->tape));
    MN_TRY(mn_tape_step(pass->tape));
  }
  MN_TRY(mn_tape_results(pass->tape, loss, correct));
  const double unit = mn_model_loss_unit(pass->model);
  *loss *= unit > 0 ? unit : 1;
  return tell_nonfinite(pass);
}

/* Rows of floats to reals on the device. */
static mn_status upload(struct mn_device *device, const struct mn_standard *s, void *to, const float *from,
                        int64_t rows, int64_t cols) {
  const size_t bytes = (size_t)(rows * cols) * device->real;
  void *reals = malloc(bytes);
  if (!reals) return mn_fail(MN_NO_MEMORY, "no memory for %ld rows of %ld", (long)rows, (long)cols);
  mn_standard_apply(s, device->real, reals, sizeof *from, from, rows, cols);
  mn_status status = mn_copy(device, to, reals, bytes);
  if (status == MN_OK) status = mn_synchronize(device);
  free(reals);
  return status;
}

static mn_status download(struct mn_device *device, const struct mn_standard *s, float *to, const void *from,
                          int64_t rows, int64_t cols) {
  const size_t bytes = (size_t)(rows * cols) * device->real;
  void *reals = malloc(bytes);
  if (!reals) return mn_fail(MN_NO_MEMORY, "no memory for %ld rows of %ld", (long)rows, (long)cols);
  mn_status status = mn_download(device, reals, from, bytes);
  if (status == MN_OK && mn_standard_undo(s, device->real, sizeof *to, to, reals, rows, cols) != 0)
    status = mn_fail(MN_FAILED, "a value is not finite, or beyond a float's range");
  free(reals);
  return status;
}

static mn_status refuse_logs(const struct mn_pass *pass) {
  return pass->model->standard[MN_Y].log
             ? mn_fail(MN_USAGE, "the model's outputs are exponentials (--y-scale log), which minnow train "
                                 "alone trains")
             : MN_OK;
}

static mn_status load(struct mn_pass *pass, const float *x, const float *y, const int32_t *labels) {
  struct mn_device *device = pass->model->device;
  const struct mn_standard *standard = pass->model->standard;
  struct mn_operand *in = &pass->x->value;
  pass->loaded = pass->ran = 0;
  if (pass->x->outside || !x) return mn_fail(MN_USAGE, "a batch without x, or a pass that loads none itself");
  if (pass->reads_y) MN_TRY(refuse_logs(pass));
  if (pass->reads_y && (pass->target ? !y : !labels))
    return mn_fail(MN_USAGE, pass->target ? "the mean squared error is of targets y, not of labels"
                                          : "the cross-entropy is of labels, not of targets y");
  MN_TRY(upload(device, &standard[MN_X], in->real, x, pass->rows, in->cols));
  in->stale = 1;
  MN_TRY(mn_operand_prepare(device, in));
  if (pass->target)
    MN_TRY(upload(device, &standard[MN_Y], pass->target->value.real, y, pass->rows, pass->targets));
  if (pass->reads_y && !pass->target) {
    MN_TRY(mn_labels_check(labels, 0, pass->rows, pass->targets, "the batch", "the model"));
    MN_TRY(mn_copy(device, pass->labels, labels, (size_t)pass->rows * sizeof *labels));
    MN_TRY(mn_synchronize(device));
  }
  pass->loaded = 1;
  return MN_OK;
}

mn_status mn_pass_arrays(struct mn_pass *pass, const float *x, const float *y) {
  MN_GIVEN(pass);
  return load(pass, x, y, NULL);
}

mn_status mn_pass_labelled(struct mn_pass *pass, const float *x, const int32_t *labels) {
  MN_GIVEN(pass);
  return load(pass, x, NULL, labels);
}

mn_status mn_pass_forward(struct mn_pass *pass, float *y) {
  MN_GIVEN(pass, y);
  struct mn_device *device = pass->model->device;
  MN_TRY(check_run(pass, 0));
  MN_TRY(mn_tape_clear_nonfinite(pass->tape));
  MN_TRY(mn_tape_forward(pass->tape));
  const mn_status read =
      download(device, &pass->model->standard[MN_Y], y, pass->y->value.real, pass->rows, pass->targets);
  MN_TRY(tell_nonfinite(pass)); /* which says where */
  pass->ran = read == MN_OK;
  return read;
}

mn_status mn_pass_backward(struct mn_pass *pass, const float *dy, float *dx) {
  MN_GIVEN(pass, dy);
  MN_TRY(refuse_logs(pass));
  struct mn_device *device = pass->model->device;
  const struct mn_standard *x = &pass->model->standard[MN_X], *y = &pass->model->standard[MN_Y];
  const int64_t inputs = pass->x->value.cols;
  double *none = calloc((size_t)(inputs > pass->targets ? inputs : pass->targets), sizeof *none);
  /* Gradients have no mean: dL/d(standardised y) = dL/dy·scale, and dL/dx = dL/d(standardised x)·inverse. */
  const struct mn_standard of_dy = {y->mean ? none : NULL, NULL, y->scale, 0};
  const struct mn_standard of_dx = {x->mean ? none : NULL, x->inverse, NULL, 0};
  mn_status status = MN_OK;
  if (!none)
    status = mn_fail(MN_NO_MEMORY, "no memory for a backward");
  else if (!pass->tape->training || pass->reads_y)
    status = mn_fail(MN_USAGE, "a backward with a gradient of one's own is MN_PASS_SEEDED's");
  else if (dx && !pass->x->needs_gradient)
    status = mn_fail(MN_USAGE, "a backward with dx, of a pass that was opened without x's gradient");
  else if (!pass->ran)
    status = mn_fail(MN_USAGE, "a backward without its forward: call mn_pass_forward before each");
  pass->ran = 0;
  if (status == MN_OK) status = upload(device, &of_dy, pass->y->gradient, dy, pass->rows, pass->targets);
  if (status == MN_OK) status = mn_tape_backward(pass->tape);
  mn_status read = MN_OK;
  if (status == MN_OK && dx) read = download(device, &of_dx, dx, pass->x->gradient, pass->rows, inputs);
  free(none);
  if (status == MN_OK) status = tell_nonfinite(pass);
  return status == MN_OK ? read : status;
}

mn_status mn_pass_update(struct mn_pass *pass) {
  MN_GIVEN(pass);
  struct mn_optimizer *optimizer = pass->model->optimizer;
  if (!optimizer) return mn_fail(MN_USAGE, "an update without an open optimizer");
  return mn_optimizer_step(optimizer, pass->tape);
}
