/* Running cases and measuring them. */
#include "train/check/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/json.h"

double mn_parity_error(const double *actual, const double *expected, int64_t count) {
  double difference = 0, size = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
    norm += actual[i] * actual[i];
  }
  return size == 0 ? sqrt(norm) / sqrt((double)count) : sqrt(difference) / sqrt(size);
}

/* A block of a case's sizes, and a pass over it. */
struct subject {
  struct mn_model *model;
  struct mn_optimizer *optimizer; /* of a training run */
  struct mn_pass *pass;
};

struct run {
  struct mn_json json;
  struct mn_device *device;
  struct mn_case which;
  double *actual;   /* scratch, as large as this case's largest array */
  double tolerance; /* this case's */
  double worst;     /* error/tolerance over everything so far */
  int missed, kinks;
};

static double case_tolerance(const struct mn_device *device, const struct mn_case *c, double tolerance) {
  if (c->steps || c->model.hidden[0] == c->model.groups) return tolerance;
  int64_t groups;
  const double *mean = mn_case_array(c, "mean", &groups), *rstd = mn_case_array(c, "rstd", NULL);
  double kappa = 0, unit = device->precision == MN_FP64 ? 0x1p-53 : 0x1p-24;
  for (int64_t i = 0; i < groups; i++) kappa = fmax(kappa, fabs(mean[i]) * rstd[i]);
  return fmax(tolerance, 4 * unit * kappa);
}

/* Reports run->actual as `tensor`. */
static void report(struct run *run, const char *tensor) {
  int64_t count;
  const double *expected = mn_case_array(&run->which, tensor, &count);
  double error = mn_parity_error(run->actual, expected, count);
  int good = error <= run->tolerance; /* not so for NaN */
  run->missed += !good;
  if (!(error / run->tolerance <= run->worst)) run->worst = error / run->tolerance;
  mn_json_open(&run->json, NULL);
  mn_json_string(&run->json, "case", run->which.name);
  mn_json_string(&run->json, "tensor", tensor);
  mn_json_number(&run->json, "error", error);
  mn_json_number(&run->json, "tolerance", run->tolerance);
  mn_json_boolean(&run->json, "ok", good);
  mn_json_close(&run->json);
}

/* Reads `tensor` from the device into run->actual, and reports it. */
static mn_status report_device(struct run *run, const char *tensor, const void *reals) {
  int64_t count;
  mn_case_array(&run->which, tensor, &count);
  MN_TRY(mn_device_read(run->device, run->actual, reals, count));
  report(run, tensor);
  return MN_OK;
}

/* The name in the file of the block's parameter `index` ("fc.weight" …), or of x for −1, behind `prefix`. */
struct name {
  char text[80];
};
static struct name name_of(const char *prefix, const struct mn_model *model, int index) {
  const struct mn_layer *layer = &model->layers[0];
  struct mn_parameter p = {.name = "x"};
  struct name name;
  if (index >= 0) p = layer->kind->parameter(layer, index);
  snprintf(name.text, sizeof name.text, "%s%s", prefix, p.name);
  return name;
}

static const void *gradient_of(const struct mn_pass *pass, int index) {
  return index < 0 ? pass->x->gradient : pass->model->parameters[index]->gradient;
}

/* Closed by close_subject, also after an error. */
static mn_status open_subject(struct subject *s, struct mn_device *device, const struct mn_case *c) {
  *s = (struct subject){.model = NULL};
  MN_TRY(mn_model_open(&s->model, device, &c->model));
  for (int i = 0; i < s->model->count; i++) {
    const struct name name = name_of(c->steps ? "initial/" : "", s->model, i);
    MN_TRY(mn_tensor_write(device, s->model->parameters[i], mn_case_array(c, name.text, NULL)));
  }
  if (c->steps) {
    MN_TRY(mn_optimizer_open(&s->optimizer, s->model, &c->optimizer));
  } else {
    MN_TRY(mn_model_train(s->model, MN_STORE, NULL));
  }
  MN_TRY(mn_pass_open(&s->pass, s->model, c->steps ? MN_PASS_TRAIN : MN_PASS_SEEDED, c->rows, 1, !c->steps));
  return mn_tensor_write(device, s->pass->x, mn_case_array(c, "x", NULL));
}

static void close_subject(struct subject *s) {
  mn_pass_close(s->pass);
  mn_optimizer_close(s->optimizer);
  mn_model_close(s->model);
}

/* Forward, then backward from the case's dy. */
static mn_status propagate(struct mn_pass *pass, const struct mn_case *c) {
  MN_TRY(mn_tape_forward(pass->tape));
  MN_TRY(mn_device_write(pass->model->device, pass->y->gradient, mn_case_array(c, "dy", NULL),
                         mn_tensor_count(pass->y)));
  return mn_tape_backward(pass->tape);
}

/* Sets elements of the case's dy [N, C] to 0 if rounding gave y, in run->actual, another sign than expected.
 * Returns their number. */
static int leave_out_kinks(const struct run *run) {
  int64_t count;
  const double *expected = mn_case_array(&run->which, "y", &count), *y = run->actual;
  double *dy = mn_case_array(&run->which, "dy", NULL), largest = 0;
  int kinks = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected[i]));
  for (int64_t i = 0; i < count; i++) {
    if ((y[i] > 0) == (expected[i] > 0) || !(fabs(y[i] - expected[i]) <= run->tolerance * largest)) continue;
    dy[i] = 0;
    kinks++;
  }
  return kinks;
}

/* Replaces the case's expected gradients by those for its dy, which leave_out_kinks has changed. */
static mn_status expect_gradients(const struct mn_case *c) {
  struct mn_device *device;
  struct subject cpu;
  MN_TRY(mn_device_open(&device, "cpu", "fp64", 0));
  mn_status status = open_subject(&cpu, device, c);
  if (status == MN_OK) status = propagate(cpu.pass, c);
  for (int i = -1; status == MN_OK && i < cpu.model->count; i++) {
    int64_t count;
    double *expected = mn_case_array(c, name_of("grad/", cpu.model, i).text, &count);
    status = mn_device_read(device, expected, gradient_of(cpu.pass, i), count);
  }
  close_subject(&cpu);
  mn_device_close(device);
  return status;
}

static mn_status check_gradients(struct run *run, const struct subject *subject) {
  struct mn_pass *pass = subject->pass;
  MN_TRY(propagate(pass, &run->which));
  const struct mn_block *block = mn_block_saved(pass->y, pass->tape);
  MN_TRY(report_device(run, "z", block->z));
  MN_TRY(report_device(run, "mean", block->mean));
  MN_TRY(report_device(run, "rstd", block->rstd));
  MN_TRY(report_device(run, "y", pass->y->value.real));
  int kinks = leave_out_kinks(run);
  run->kinks += kinks;
  if (kinks) {
    MN_TRY(expect_gradients(&run->which));
    MN_TRY(propagate(pass, &run->which));
  }
  for (int i = -1; i < pass->model->count; i++)
    MN_TRY(report_device(run, name_of("grad/", pass->model, i).text, gradient_of(pass, i)));
  return MN_OK;
}

static mn_status check_training(struct run *run, const struct subject *subject) {
  struct mn_pass *pass = subject->pass;
  MN_TRY(mn_tensor_write(run->device, pass->target, mn_case_array(&run->which, "target", NULL)));
  const double *weights = mn_case_array(&run->which, "weights", NULL);
  void *on_device;
  if (weights) {
    MN_TRY(mn_tape_device(pass->tape, &on_device, pass->rows, run->device->real));
    MN_TRY(mn_device_write(run->device, on_device, weights, pass->rows));
    pass->tape->weights = on_device;
  }
  for (int step = 0; step < run->which.steps; step++) {
    MN_TRY(mn_optimizer_rate(subject->optimizer, run->which.rate, step));
    MN_TRY(mn_tape_forward(pass->tape));
    MN_TRY(mn_tape_backward(pass->tape));
    MN_TRY(mn_tape_results(pass->tape, &run->actual[step], NULL));
  }
  report(run, "losses");
  for (int i = 0; i < pass->model->count; i++) {
    MN_TRY(mn_tensor_read(run->device, pass->model->parameters[i], run->actual));
    report(run, name_of("final/", pass->model, i).text);
  }
  return MN_OK;
}

static mn_status run_case(struct run *run, const char *path, int index, double tolerance) {
  struct mn_case *c = &run->which;
  struct subject subject = {.model = NULL};
  int64_t largest = 0;
  MN_TRY(mn_case_read(path, index, c));
  for (int i = 0; i < c->count; i++)
    if (c->arrays[i].count > largest) largest = c->arrays[i].count;
  run->tolerance = case_tolerance(run->device, c, tolerance);
  run->actual = malloc((size_t)largest * sizeof *run->actual);
  mn_status status = run->actual ? open_subject(&subject, run->device, c)
                                 : mn_fail(MN_NO_MEMORY, "no memory for case %s", c->name);
  if (status == MN_USAGE) status = mn_fail(MN_BAD_DATA, "%s: case %s: %s", path, c->name, mn_message());
  if (status == MN_OK) status = (c->steps ? check_training : check_gradients)(run, &subject);
  close_subject(&subject);
  free(run->actual);
  mn_case_free(c);
  return status;
}

mn_status mn_parity(FILE *out, struct mn_device *device, const char *path, double tolerance, int as_json) {
  int index = 0;
  if (!(tolerance > 0)) tolerance = device->tolerance;
  struct run run = {.device = device};
  struct mn_json *json = &run.json;
  MN_TRY(mn_json_begin_answer(json, !as_json));
  mn_json_open(json, NULL);
  mn_json_string(json, "device", device->name);
  mn_json_string(json, "precision", mn_precision_name(device->precision));
  mn_json_array_open(json, "tensors");
  mn_status status;
  do status = run_case(&run, path, index, tolerance);
  while (status == MN_OK && ++index < run.which.cases);
  mn_json_close(json);
  mn_json_integer(json, "cases", run.which.cases);
  mn_json_number(json, "worst", run.worst);
  mn_json_integer(json, "kinks", run.kinks);
  mn_json_integer(json, "missed", run.missed);
  mn_json_close(json);
  MN_TRY(mn_json_end_answer(json, out, status));
  if (run.missed) return mn_fail(MN_FAILED, "%d tensors are past their tolerance", run.missed);
  return MN_OK;
}
