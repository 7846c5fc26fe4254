/* Gradients against differences of the loss.
 *
 * No single step h suits every element. The error of a difference grows with h²: if a group hardly varies,
 * normalisation is only smooth over distances of √eps. The error by rounding grows as 1/h. So each element's
 * differences are taken at h, h/2, h/4 … and extrapolated (Ridders' method, in Richardson's table) until the
 * table's own estimate of its error is small enough; the gradient under test has no part in that choice. A
 * smaller h also avoids most kinks. */
#include "train/check/check.h"

#include <math.h>
#include <string.h>

#include "kernels/clock.h"
#include "train/json.h"

enum { LEVELS = 8, TENSORS = MN_MODEL_PARAMETERS + 1 };
static const double first_step = 1e-3;

/* The results of one forward. */
struct view {
  double loss;
  double *y;       /* [N, K]; NULL if there is a loss */
  double *outputs; /* the outputs of all blocks, which have the signs of v */
};

struct check {
  struct mn_json json;
  const struct mn_check_config *config;
  struct mn_device *device;
  struct mn_model *model;
  struct mn_pass *gradients; /* the pass under test */
  struct mn_pass *losses;    /* the pass whose loss is differenced: the same one, or one that evaluates */
  const struct mn_tensor *blocks[MN_MODEL_DEPTH]; /* outputs of the blocks of `losses` */
  int depth;
  int64_t outputs; /* their elements */
  struct view here, ahead, behind;
  double *dy;
  double *analytic[TENSORS]; /* x's, then each parameter's */
  double largest;            /* the largest rms among them */
  double size;               /* of the terms of the loss whose differences are taken */
  int missed;
  int64_t kinks;
};

/* One tensor's line. */
struct result {
  const char *name;
  int64_t elements, cols, kinks, at; /* at: the element with the worst error */
  double worst, analytic, numeric;
  int missed;
};

/* Allocates `count` zeros, which are freed with the pass under test. */
static mn_status allocate_zeros(struct check *c, double **out, int64_t count) {
  return mn_tape_host(c->gradients->tape, (void **)out, (size_t)count * sizeof **out);
}

/* How large z is to be. With two channels a group, normalising gives −1 and 1 whatever z is, and a gradient
 * of 0, unless z is as small as √eps: there the weights are drawn so small that the gradient can be seen. */
static double z_size(const struct mn_layer *layer, const struct mn_parameter *p) {
  int pairs = layer->outputs == 2 * layer->groups;
  return pairs && p->bound > 0 ? fmin(1, 3 * sqrt(layer->eps)) : 1;
}

/* Values uniform on [−bound, bound), the same on both devices. */
static mn_status draw(const struct check *c, struct mn_tensor *tensor, int which, double bound) {
  return mn_tensor_uniform(c->device, tensor, c->config->seed, MN_RANDOM_CHECK + (uint32_t)which, 0, bound);
}

/* Draws all parameters: weights so that z has the size z_size, vectors (gamma too) of either sign. */
static mn_status randomise(struct check *c) {
  int sequence = 0;
  for (const struct mn_layer *layer = c->model->layers; layer < c->model->layers + c->model->depth; layer++)
    for (int i = 0; i < layer->kind->parameters; i++) {
      struct mn_parameter p = layer->kind->parameter(layer, i);
      double bound = (p.rank == 2 ? sqrt(3 / (double)p.cols) : 1) * z_size(layer, &p);
      MN_TRY(draw(c, layer->parameters[i], sequence++, bound));
    }
  return MN_OK;
}

/* Draws the batch of a pass and, for a loss, its rows' weights, which round nothing: both passes get the
 * same. */
static mn_status load(struct check *c, const struct mn_pass *pass) {
  const uint64_t classes = (uint64_t)mn_model_outputs(&c->config->model);
  int32_t *labels;
  double *weights;
  void *on_device;
  MN_TRY(draw(c, pass->x, TENSORS, sqrt(3)));
  MN_TRY(mn_tape_host(pass->tape, (void **)&weights, (size_t)pass->rows * sizeof *weights));
  MN_TRY(mn_tape_device(pass->tape, &on_device, pass->rows, sizeof *weights));
  for (int64_t n = 0; n < pass->rows; n++)
    weights[n] =
        ldexp(0.5, (int)(mn_random_word(c->config->seed, MN_RANDOM_CHECK + TENSORS + 4, (uint64_t)n) % 3));
  MN_TRY(mn_copy(c->device, on_device, weights, (size_t)pass->rows * sizeof *weights));
  pass->tape->weights = on_device;
  if (pass->target) return draw(c, pass->target, TENSORS + 1, 1);
  if (!pass->labels) return MN_OK;
  MN_TRY(mn_tape_host(pass->tape, (void **)&labels, (size_t)pass->rows * sizeof *labels));
  for (int64_t n = 0; n < pass->rows; n++)
    labels[n] =
        (int32_t)(mn_random_word(c->config->seed, MN_RANDOM_CHECK + TENSORS + 2, (uint64_t)n) % classes);
  return mn_copy(c->device, pass->labels, labels, (size_t)pass->rows * sizeof *labels);
}

/* The outputs of the blocks, by the names that a pass gives them. */
static void find_blocks(struct check *c) {
  static const char name[] = "the output of blocks.";
  for (const struct mn_node *node = c->losses->tape->first; node; node = node->next)
    if (node->output && strncmp(node->output->name, name, sizeof name - 1) == 0)
      c->blocks[c->depth++] = node->output;
  MN_REQUIRE(c->depth == c->config->model.depth);
  for (int i = 0; i < c->depth; i++) c->outputs += mn_tensor_count(c->blocks[i]);
}

static mn_status prepare(struct check *c) {
  const struct mn_check_config *config = c->config;
  MN_TRY(mn_model_open(&c->model, c->device, &config->model));
  MN_TRY(randomise(c));
  MN_TRY(mn_model_train(c->model, MN_STORE, NULL));
  enum mn_pass_kind kind = config->has_loss ? MN_PASS_TRAIN : MN_PASS_SEEDED;
  MN_TRY(mn_pass_open(&c->gradients, c->model, kind, config->batch, 1, 1));
  c->losses = c->gradients;
  if (config->has_loss) MN_TRY(mn_pass_open(&c->losses, c->model, MN_PASS_EVALUATE, config->batch, 1, 0));
  find_blocks(c);
  struct view *const views[] = {&c->here, &c->ahead, &c->behind};
  for (int i = 0; i < 3; i++) {
    MN_TRY(allocate_zeros(c, &views[i]->outputs, c->outputs));
    if (!config->has_loss) MN_TRY(allocate_zeros(c, &views[i]->y, mn_tensor_count(c->losses->y)));
  }
  MN_TRY(load(c, c->gradients));
  return load(c, c->losses);
}

static mn_status read_view(struct check *c, struct view *view) {
  MN_TRY(mn_tape_forward(c->losses->tape));
  double *outputs = view->outputs;
  for (int i = 0; i < c->depth; i++) {
    MN_TRY(mn_tensor_read(c->device, c->blocks[i], outputs));
    outputs += mn_tensor_count(c->blocks[i]);
  }
  if (c->config->has_loss) return mn_tape_results(c->losses->tape, &view->loss, NULL);
  return mn_tensor_read(c->device, c->losses->y, view->y);
}

/* Whether some v changed sign. A NaN is not a kink, and fails when it is compared. */
static int crossed(const struct check *c, const struct view *to) {
  const double *from = c->here.outputs;
  for (int64_t i = 0; i < c->outputs; i++)
    if ((from[i] > 0 && to->outputs[i] <= 0) || (from[i] <= 0 && to->outputs[i] > 0)) return 1;
  return 0;
}

/* The loss ahead less the loss behind. Without a loss, Σ dy·(y ahead − y behind): a y that did not change
 * adds exactly 0. */
static double difference(const struct check *c) {
  if (c->config->has_loss) return c->ahead.loss - c->behind.loss;
  double sum = 0;
  for (int64_t i = 0; i < mn_tensor_count(c->losses->y); i++)
    sum += c->dy[i] * (c->ahead.y[i] - c->behind.y[i]);
  return sum;
}

static double rms(const double *values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
  return sqrt(sum / (double)count);
}

/* x, then each parameter. */
static struct mn_tensor *tensor_of(const struct check *c, const struct mn_pass *pass, int which) {
  return which ? c->model->parameters[which - 1] : pass->x;
}

/* Computes the gradients under test, and the loss of that pass: training may compute it in other code (fused
 * into the last block) than evaluation. */
static mn_status propagate(struct check *c, double *trained_loss) {
  MN_TRY(mn_tape_forward(c->gradients->tape));
  if (c->config->has_loss) {
    MN_TRY(mn_tape_results(c->gradients->tape, trained_loss, NULL));
  } else {
    int64_t count = mn_tensor_count(c->gradients->y);
    MN_TRY(allocate_zeros(c, &c->dy, count));
    MN_TRY(mn_uniform(c->device, c->gradients->y->gradient, count, c->config->seed,
                      MN_RANDOM_CHECK + TENSORS + 3, 0, 1));
    MN_TRY(mn_device_read(c->device, c->dy, c->gradients->y->gradient, count));
  }
  MN_TRY(mn_tape_backward(c->gradients->tape));
  for (int i = 0; i <= c->model->count; i++) {
    const struct mn_tensor *t = tensor_of(c, c->gradients, i);
    int64_t count = mn_tensor_count(t);
    MN_TRY(allocate_zeros(c, &c->analytic[i], count));
    MN_TRY(mn_device_read(c->device, c->analytic[i], t->gradient, count));
    c->largest = fmax(c->largest, rms(c->analytic[i], count));
  }
  return MN_OK;
}

/* An element of the tensor being differenced, on the device. */
struct element {
  char *address;
  double value, size; /* size: rms of the tensor's values */
};

static mn_status look_from(struct check *c, const struct element *p, double value, struct view *view) {
  MN_TRY(mn_copy(c->device, p->address, &value, sizeof value));
  return read_view(c, view); /* waits for the upload, which reads `value` */
}

/* The central difference with step h; *kink: a v changes sign within it. */
static mn_status slope_at(struct check *c, const struct element *p, double h, double *slope, int *kink) {
  volatile double ahead = p->value + h, behind = p->value - h;
  MN_TRY(look_from(c, p, ahead, &c->ahead));
  MN_TRY(look_from(c, p, behind, &c->behind));
  *kink = crossed(c, &c->ahead) || crossed(c, &c->behind);
  *slope = difference(c) / (ahead - behind);
  return MN_OK;
}

/* Adds a row to the table: the difference at half the step before, and its extrapolations. Keeps in *best the
 * entry that differs least from its two neighbours, and in *error by how much. */
static void extrapolate(double table[LEVELS], int rows, double slope, double *best, double *error) {
  double above = table[0], power = 1;
  table[0] = slope;
  if (rows == 0) *best = slope;
  for (int k = 1; k <= rows; k++) {
    power *= 4;
    double next = table[k - 1] + (table[k - 1] - above) / (power - 1);
    double moved = fmax(fabs(next - table[k - 1]), fabs(next - above));
    if (!(moved > *error)) *error = moved, *best = next;
    above = table[k];
    table[k] = next;
  }
}

/* The derivative at `p` by differences, good to `enough`·max(scale, |itself|) or, by rounding, to *noise;
 * *kink: a v changes sign within every h tried. */
static mn_status differentiate(struct check *c, const struct element *p, double scale, double enough,
                               double *out, double *noise, int *kink) {
  double table[LEVELS] = {0}, error = INFINITY, h = first_step * fmax(p->size, fabs(p->value));
  int rows = 0;
  for (int level = 0; level < LEVELS; level++, h /= 2) {
    double slope;
    int here;
    MN_TRY(slope_at(c, p, h, &slope, &here));
    *noise = 8 * 0x1p-53 * c->size / h;
    if (here) { /* begins anew: within larger steps v may have changed sign twice */
      rows = 0, error = INFINITY;
      continue;
    }
    if (isnan(slope)) {
      *out = slope;
      rows = 1;
      break;
    }
    extrapolate(table, rows++, slope, out, &error);
    if (error <= enough * fmax(scale, fabs(*out))) break;
  }
  *kink = rows == 0;
  return look_from(c, p, p->value, &c->behind);
}

/* The least bound of an error. Rounding in dz is relative to rstd·gamma·dy, and rstd may reach 1/√eps: a
 * gradient that should be 0 (one channel a group) comes out as large as that beside the model's largest.
 * Never more than a thousandth of the tolerance. */
static double noise(const struct check *c) {
  double eps = c->config->model.eps, unit = 4 * 0x1p-53 * fmax(1, 1 / sqrt(eps));
  return c->largest * fmin(unit, 1e-3 * c->config->tolerance);
}

static mn_status compare(struct check *c, int which, struct result *r) {
  const struct mn_tensor *t = tensor_of(c, c->losses, which);
  const double *analytic = c->analytic[which], tolerance = c->config->tolerance;
  *r = (struct result){.name = which ? t->name : "x", .elements = mn_tensor_count(t), .cols = t->value.cols};
  double *values, scale = rms(analytic, r->elements);
  MN_TRY(allocate_zeros(c, &values, r->elements));
  MN_TRY(mn_tensor_read(c->device, t, values));
  struct element p = {.size = rms(values, r->elements)};
  for (int64_t i = 0; i < r->elements; i++) {
    p.address = (char *)t->value.real + (size_t)i * sizeof(double), p.value = values[i];
    double a = analytic[i], n = 0, rounding = 0;
    int kink = 0;
    MN_TRY(differentiate(c, &p, scale, 0.05 * tolerance, &n, &rounding, &kink));
    mn_heartbeat_of(r->name, i + 1, r->elements);
    r->kinks += kink;
    if (kink) continue;
    double bound = fmax(tolerance * fmax(scale, fmax(fabs(a), fabs(n))),
                        fmax(noise(c), fmin(rounding, tolerance * c->largest)));
    double error = a == n ? 0 : fabs(a - n) / bound;
    r->missed += !(error <= 1);                            /* NaN is a miss */
    if (isnan(error) || error > r->worst || i == r->kinks) /* i == kinks: the first one compared */
      r->worst = error, r->at = i, r->analytic = a, r->numeric = n;
  }
  if (r->kinks == r->elements) r->missed++; /* not one element was compared */
  return MN_OK;
}

static void report(struct check *c, const struct result *r) {
  c->missed += r->missed > 0;
  c->kinks += r->kinks;
  mn_json_open(&c->json, NULL);
  mn_json_string(&c->json, "name", r->name);
  mn_json_integer(&c->json, "elements", r->elements);
  mn_json_integer(&c->json, "kinks", r->kinks);
  mn_json_integer(&c->json, "missed", r->missed);
  mn_json_number(&c->json, "worst", r->worst);
  mn_json_array_open(&c->json, "at");
  mn_json_integer(&c->json, NULL, r->at / r->cols);
  mn_json_integer(&c->json, NULL, r->at % r->cols);
  mn_json_close(&c->json);
  mn_json_number(&c->json, "analytic", r->analytic);
  mn_json_number(&c->json, "numeric", r->numeric);
  mn_json_boolean(&c->json, "ok", !r->missed);
  mn_json_close(&c->json);
}

static mn_status run_check(struct check *c) {
  double trained = 0;
  MN_TRY(prepare(c));
  MN_TRY(read_view(c, &c->here));
  MN_TRY(propagate(c, &trained));
  c->size = fabs(c->here.loss);
  for (int64_t i = 0; c->dy && i < mn_tensor_count(c->losses->y); i++)
    c->size += fabs(c->dy[i] * c->here.y[i]);
  if (c->config->has_loss) {
    double bound = 1e-12 * fabs(c->here.loss), error = fabs(trained - c->here.loss);
    struct result loss = {.name = "loss", .elements = 1, .cols = 1, .worst = error ? error / bound : 0};
    loss.analytic = trained, loss.numeric = c->here.loss, loss.missed = !(error <= bound);
    report(c, &loss);
  }
  for (int i = 0; i <= c->model->count; i++) {
    struct result result;
    MN_TRY(compare(c, i, &result));
    report(c, &result);
  }
  return MN_OK;
}

mn_status mn_gradcheck(FILE *out, struct mn_device *device, const struct mn_check_config *config,
                       int as_json) {
  MN_REQUIRE(device->precision == MN_FP64);
  if (!(config->model.slope >= 0))
    return mn_fail(MN_USAGE,
                   "a slope of %g: kinks show in the sign of y, so a gradient check needs 0 or more",
                   config->model.slope);
  struct check c = {.config = config, .device = device};
  MN_TRY(mn_json_begin_answer(&c.json, !as_json));
  mn_json_open(&c.json, NULL);
  mn_json_string(&c.json, "device", device->name);
  mn_json_string(&c.json, "plan", mn_plan_name(config->model.plan));
  mn_json_string(&c.json, "loss", config->has_loss ? mn_loss_name(config->model.loss) : "sum of dy*y");
  mn_json_integer(&c.json, "batch", config->batch);
  mn_json_unsigned(&c.json, "seed", config->seed);
  mn_json_number(&c.json, "tolerance", config->tolerance);
  mn_json_array_open(&c.json, "tensors");
  const mn_status status = run_check(&c);
  mn_json_close(&c.json);
  mn_json_integer(&c.json, "kinks", c.kinks);
  mn_json_integer(&c.json, "missed", c.missed);
  mn_json_boolean(&c.json, "ok", status == MN_OK && !c.missed);
  mn_json_close(&c.json);
  if (c.losses != c.gradients) mn_pass_close(c.losses);
  mn_pass_close(c.gradients);
  mn_model_close(c.model);
  MN_TRY(mn_json_end_answer(&c.json, out, status));
  if (c.missed)
    return mn_fail(MN_FAILED, "%d tensors are further from their differences than %g", c.missed,
                   config->tolerance);
  return MN_OK;
}
