/* Running cases and measuring them. */
#include "train/check/parity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/check/cases.h"
#include "train/json.h"
#include "train/optimizer.h"
#include "train/pass.h"

double mn_parity_tolerance(enum mn_precision precision) {
  static const double tolerances[] = {
      [MN_FP64] = 1e-10, [MN_FP32] = 1e-5, [MN_TF32] = 8 * 0x1p-11, [MN_BF16] = 8 * 0x1p-9};
  _Static_assert(sizeof tolerances / sizeof *tolerances == MN_PRECISION_COUNT,
                 "a tolerance for each precision");
  return tolerances[precision];
}

double mn_parity_error(const double *actual, const double *expected, int64_t count) {
  double difference = 0, size = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
    norm += actual[i] * actual[i];
  }
  return size == 0 ? sqrt(norm) / sqrt((double)count) : sqrt(difference) / sqrt(size);
}

struct run {
  FILE *out;
  struct mn_json *json; /* NULL: lines of text */
  struct mn_context *context;
  struct mn_case *which;
  double tolerance; /* this case's */
  double worst;     /* error/tolerance over everything so far */
  int missed, kinks;
};

static double case_tolerance(const struct mn_context *context, const struct mn_case *c, double tolerance) {
  if (c->steps || c->channels == c->groups) return tolerance;
  int64_t groups;
  const double *mean = mn_case_array(c, "mean", &groups), *rstd = mn_case_array(c, "rstd", NULL);
  double kappa = 0, unit = context->precision == MN_FP64 ? 0x1p-53 : 0x1p-24;
  for (int64_t i = 0; i < groups; i++) kappa = fmax(kappa, fabs(mean[i]) * rstd[i]);
  return fmax(tolerance, 4 * unit * kappa);
}

static void report(struct run *run, const char *tensor, const double *actual) {
  int64_t count;
  const double *expected = mn_case_array(run->which, tensor, &count);
  double error = mn_parity_error(actual, expected, count);
  int good = error <= run->tolerance; /* not so for NaN */
  run->missed += !good;
  if (!(error / run->tolerance <= run->worst)) run->worst = error / run->tolerance;
  if (run->json) {
    mn_json_open(run->json, NULL);
    mn_json_string(run->json, "case", run->which->name);
    mn_json_string(run->json, "tensor", tensor);
    mn_json_number(run->json, "error", error);
    mn_json_number(run->json, "tolerance", run->tolerance);
    mn_json_boolean(run->json, "ok", good);
    mn_json_close(run->json);
  } else {
    fprintf(run->out, "%-22s %-18s %10.3e  <= %9.2e  %s\n", run->which->name, tensor, error, run->tolerance,
            good ? "ok" : "FAILED");
  }
}

/* Reads `count` reals from the device and reports them as `tensor`. */
static mn_status report_device(struct run *run, const char *tensor, const void *reals) {
  int64_t count;
  mn_case_array(run->which, tensor, &count);
  double *actual = malloc((size_t)count * sizeof *actual);
  if (!actual) return mn_fail(MN_NO_MEMORY, "no memory for %s", tensor);
  mn_status status = mn_context_read(run->context, actual, reals, count);
  if (status == MN_OK) report(run, tensor, actual);
  free(actual);
  return status;
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

/* A block of the case's sizes, with the parameters under `prefix`. */
static mn_status open_model(struct mn_context *context, const struct mn_case *c, const char *prefix,
                            struct mn_model **model) {
  struct mn_model_config config = {.inputs = c->inputs,
                                   .depth = 1,
                                   .hidden = {c->channels},
                                   .groups = c->groups,
                                   .eps = c->eps,
                                   .slope = c->slope,
                                   .plan = MN_PLAN_BLOCK};
  MN_TRY(mn_model_open(model, context, &config));
  for (int i = 0; i < (*model)->count; i++)
    MN_TRY(mn_tensor_write(context, (*model)->parameters[i],
                           mn_case_array(c, name_of(prefix, *model, i).text, NULL)));
  return MN_OK;
}

/* Puts 0 into dy [N, C] where y lies on the other side of the kink than expected; returns at how many places.
 */
static int leave_out_kinks(const struct run *run, const double *y, double *dy) {
  int64_t count;
  const double *expected = mn_case_array(run->which, "y", &count);
  double largest = 0;
  int kinks = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected[i]));
  for (int64_t i = 0; i < count; i++) {
    if ((y[i] > 0) == (expected[i] > 0) || !(fabs(y[i] - expected[i]) <= run->tolerance * largest)) continue;
    dy[i] = 0;
    kinks++;
  }
  return kinks;
}

/* Forward, then backward from dy. */
static mn_status propagate(struct mn_pass *pass, const struct mn_case *c, const double *dy) {
  struct mn_context *context = pass->model->context;
  MN_TRY(mn_tensor_write(context, pass->x, mn_case_array(c, "x", NULL)));
  MN_TRY(mn_tape_forward(pass->tape));
  MN_TRY(mn_context_write(context, pass->y->gradient, dy, mn_tensor_count(pass->y)));
  return mn_tape_backward(pass->tape);
}

/* A block with the case's parameters, and a pass over it whose gradients are stored. */
static mn_status open_pass(struct mn_context *context, const struct mn_case *c, struct mn_model **model,
                           struct mn_pass **pass) {
  MN_TRY(open_model(context, c, "", model));
  MN_TRY(mn_model_train(*model, MN_TRAIN_STORE, NULL));
  return mn_pass_open(pass, *model, MN_PASS_SEEDED, c->rows, 1, 1);
}

/* What the gradients should be for another dy than the file's: put in place of the case's own. */
static mn_status expect_gradients(struct mn_case *c, const double *dy) {
  struct mn_context *context = NULL;
  struct mn_model *model = NULL;
  struct mn_pass *pass = NULL;
  mn_status status = mn_context_open(&context, "cpu", "fp64");
  if (status == MN_OK) status = open_pass(context, c, &model, &pass);
  if (status == MN_OK) status = propagate(pass, c, dy);
  for (int i = -1; status == MN_OK && i < model->count; i++) {
    int64_t count;
    double *expected = (double *)mn_case_array(c, name_of("grad/", model, i).text, &count);
    status = mn_context_read(context, expected, gradient_of(pass, i), count);
  }
  mn_pass_close(pass);
  mn_model_close(model);
  mn_context_close(context);
  return status;
}

static mn_status report_gradients(struct run *run, struct mn_pass *pass, double *y, double *dy) {
  int64_t count = mn_tensor_count(pass->y);
  MN_TRY(propagate(pass, run->which, dy));
  const void *saved[3];
  mn_block_saved(pass->y, pass->tape, &saved[0], &saved[1], &saved[2]);
  MN_TRY(report_device(run, "z", saved[0]));
  MN_TRY(report_device(run, "mean", saved[1]));
  MN_TRY(report_device(run, "rstd", saved[2]));
  MN_TRY(report_device(run, "y", pass->y->value.real));
  MN_TRY(mn_context_read(run->context, y, pass->y->value.real, count));
  int kinks = leave_out_kinks(run, y, dy);
  run->kinks += kinks;
  if (kinks) {
    MN_TRY(expect_gradients(run->which, dy));
    MN_TRY(propagate(pass, run->which, dy));
  }
  for (int i = -1; i < pass->model->count; i++)
    MN_TRY(report_device(run, name_of("grad/", pass->model, i).text, gradient_of(pass, i)));
  return MN_OK;
}

static mn_status check_gradients(struct run *run) {
  struct mn_model *model = NULL;
  struct mn_pass *pass = NULL;
  int64_t count;
  const double *given = mn_case_array(run->which, "dy", &count);
  double *y = calloc((size_t)count, sizeof *y), *dy = malloc((size_t)count * sizeof *dy);
  mn_status status = y && dy ? open_pass(run->context, run->which, &model, &pass)
                             : mn_fail(MN_NO_MEMORY, "no memory for dy");
  if (status == MN_OK) {
    memcpy(dy, given, (size_t)count * sizeof *dy);
    status = report_gradients(run, pass, y, dy);
  }
  free(y);
  free(dy);
  mn_pass_close(pass);
  mn_model_close(model);
  return status;
}

static mn_status train(struct run *run, struct mn_pass *pass, double *losses) {
  MN_TRY(mn_tensor_write(run->context, pass->x, mn_case_array(run->which, "x", NULL)));
  MN_TRY(mn_tensor_write(run->context, pass->target, mn_case_array(run->which, "target", NULL)));
  for (int step = 0; step < run->which->steps; step++) {
    MN_TRY(mn_tape_forward(pass->tape));
    MN_TRY(mn_tape_backward(pass->tape));
    MN_TRY(mn_tape_results(pass->tape, &losses[step], NULL));
  }
  report(run, "losses", losses);
  for (int i = 0; i < pass->model->count; i++)
    MN_TRY(
        report_device(run, name_of("final/", pass->model, i).text, pass->model->parameters[i]->value.real));
  return MN_OK;
}

static mn_status check_training(struct run *run) {
  const struct mn_case *c = run->which;
  struct mn_sgd_config config = {
      .momentum = c->momentum, .weight_decay = c->weight_decay, .nesterov = c->nesterov, .accumulate = 1};
  struct mn_model *model = NULL;
  struct mn_optimizer *optimizer = NULL;
  struct mn_pass *pass = NULL;
  double *losses = calloc((size_t)c->steps, sizeof *losses);
  mn_status status = losses ? open_model(run->context, c, "initial/", &model)
                            : mn_fail(MN_NO_MEMORY, "no memory for losses");
  if (status == MN_OK) status = mn_optimizer_open(&optimizer, model, &config);
  if (status == MN_OK) status = mn_optimizer_rate(optimizer, c->rate);
  if (status == MN_OK) status = mn_pass_open(&pass, model, MN_PASS_TRAIN, c->rows, 1, 0);
  if (status == MN_OK) status = train(run, pass, losses);
  mn_pass_close(pass);
  mn_optimizer_close(optimizer);
  mn_model_close(model);
  free(losses);
  return status;
}

static mn_status run_case(struct run *run, const char *path, int index, double tolerance) {
  struct mn_case c;
  MN_TRY(mn_case_read(path, index, &c));
  run->which = &c;
  run->tolerance = case_tolerance(run->context, &c, tolerance);
  mn_status status = c.steps ? check_training(run) : check_gradients(run);
  mn_case_free(&c);
  return status;
}

mn_status mn_parity(FILE *out, struct mn_context *context, const char *path, double tolerance, int as_json) {
  int cases;
  struct mn_json json;
  MN_TRY(mn_cases_count(path, &cases));
  if (!(tolerance > 0)) tolerance = mn_parity_tolerance(context->precision);
  struct run run = {.out = out, .json = as_json ? &json : NULL, .context = context};
  if (as_json) {
    mn_json_begin(&json, out);
    mn_json_open(&json, NULL);
    mn_json_string(&json, "device", context->name);
    mn_json_string(&json, "precision", mn_precision_name(context->precision));
    mn_json_array_open(&json, "tensors");
  }
  mn_status status = MN_OK;
  for (int i = 0; i < cases && status == MN_OK; i++) status = run_case(&run, path, i, tolerance);
  if (as_json) {
    mn_json_close(&json);
    mn_json_integer(&json, "kinks", run.kinks);
    mn_json_integer(&json, "missed", run.missed);
    mn_json_close(&json);
  }
  MN_TRY(status);
  if (!as_json)
    fprintf(out, "%s, %s: %d cases, worst error %.2g of its tolerance, %d kinks left out\n", context->name,
            mn_precision_name(context->precision), cases, run.worst, run.kinks);
  if (run.missed) return mn_fail(MN_FAILED, "%d tensors are past their tolerance", run.missed);
  return MN_OK;
}
