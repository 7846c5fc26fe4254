/* The block's update on a caller's memory, by every rule, in every precision on every device: a backward leaves
 * a pair, and the parameters follow the tape's gradients, as reals and as the planes of the next forward. */
#include "tests/block_subject.h"

static const int64_t sizes[][4] = {{5, 16, 24, 3}, {70, 24, 64, 8}, {3, 7, 10, 2}};
/* Products that the streaming and the plain tile of our own GEMM take. */
static const int64_t large[][4] = {{256, 768, 4096, 128}, {2080, 768, 4096, 128}};

static const struct mn_rule rules[] = {
    {.kind = MN_SGD},
    {.kind = MN_SGD, .weight_decay = -8}, /* the weight grows threefold a step */
    {.kind = MN_SGD, .momentum = 0.9, .weight_decay = 0.01},
    {.kind = MN_SGD, .momentum = 0.9, .nesterov = 1},
    {.kind = MN_ADAMW, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-2, .weight_decay = 0.01},
};

/* The parameters in training, and what they should be. */
struct trainee {
  struct subject s;
  struct mn_block_call call;
  double *w[PARAMETERS], *m[PARAMETERS], *v[PARAMETERS];
  double *rates; /* [MN_RATES] on the device */
  int step;
};

static void upload(struct trainee *t, void *to, const void *from, size_t bytes) {
  MUST(t->s.device->kernels->copy(t->s.device, to, from, bytes));
  MUST(t->s.device->kernels->synchronize(t->s.device));
}

/* The pair stays as it is, for the next one. */
static void run_update(struct trainee *t) {
  const size_t bytes = mn_block_workspace(t->s.device, &t->call);
  char *workspace = open_watched(&t->s, bytes);
  t->call.workspace = workspace;
  MUST(mn_block_update(t->s.device, &t->call));
  close_watched(&t->s, workspace, bytes);
}

/* Forward and backward of the subject, which leave the pair, and the planes of x and of the weight. The backward's
 * parameters stay as they are; copies are trained. */
static struct trainee open_trainee(const char *name, const char *precision, const int64_t *size) {
  struct trainee t = {.s = open_subject(name, precision, size)};
  struct mn_block_call *c = &t.s.call;
  const size_t each = mn_block_plane_bytes(t.s.device, c);
  if (each) {
    c->x.planes = take_bytes(&t.s.memory, (int64_t)each * t.s.counts[0] + MN_BLOCK_PLANES_MORE, 1);
    c->weight.planes = take_bytes(&t.s.memory, (int64_t)each * t.s.counts[1] + MN_BLOCK_PLANES_MORE, 1);
  }
  c->weight.updated = 1;
  MUST(call_within(&t.s, mn_block_forward));
  c->x.ready = c->weight.ready = each > 0;
  c->dy = take_reals(&t.s.memory, t.s.dy, c->rows * c->channels);
  c->pair = take_bytes(&t.s.memory, (int64_t)mn_block_pair_bytes(t.s.device, c), 1);
  MUST(call_within(&t.s, mn_block_backward));
  t.rates = take_bytes(&t.s.memory, MN_RATES, sizeof(double));
  t.call = (struct mn_block_call){.size = sizeof t.call,
                                  .rows = c->rows,
                                  .inputs = c->inputs,
                                  .channels = c->channels,
                                  .groups = c->groups,
                                  .x = c->x,
                                  .pair = c->pair,
                                  .weight.planes = c->weight.planes};
  for (int i = 0; i < PARAMETERS; i++) {
    const int64_t count = t.s.counts[i + 1];
    t.w[i] = zeros(count), t.m[i] = zeros(count), t.v[i] = zeros(count);
    t.call.of[i] = (struct mn_block_parameter){.values = take_reals(&t.s.memory, NULL, count),
                                               .m = take_reals(&t.s.memory, NULL, count),
                                               .v = take_reals(&t.s.memory, NULL, count)};
  }
  return t;
}

static void close_trainee(struct trainee *t) {
  for (int i = 0; i < PARAMETERS; i++) free(t->w[i]), free(t->m[i]), free(t->v[i]);
  close_subject(&t->s);
}

/* Whether a narrow parameter's floats are in two halves. */
static int is_split(const struct trainee *t, int i) {
  return i == 0 && t->s.device->precision == MN_BF16;
}

/* Writes parameter i in both its forms. */
static void write_narrow(struct trainee *t, int i) {
  const struct mn_block_parameter *p = &t->call.of[i];
  const int64_t count = t->s.counts[i + 1];
  uint16_t *high = malloc((size_t)count * sizeof *high), *low = malloc((size_t)count * sizeof *low);
  assert_true(high && low);
  for (int64_t k = 0; k < count; k++) {
    high[k] = mn_upper_half((float)t->w[i][k]);
    low[k] = (uint16_t)mn_split_bits((float)t->w[i][k]);
  }
  if (is_split(t, i)) {
    upload(t, p->narrow, high, (size_t)count * sizeof *high);
    upload(t, p->values, low, (size_t)count * sizeof *low);
  } else {
    MUST(mn_device_write(t->s.device, p->values, t->w[i], count));
  }
  free(high), free(low);
}

/* The parameters as they were, under another rule. */
static void restart(struct trainee *t, const struct mn_rule *rule) {
  t->call.rule = *rule, t->call.rule.rate = t->rates, t->step = 0;
  for (int i = 0; i < PARAMETERS; i++) {
    const int64_t count = t->s.counts[i + 1];
    memcpy(t->w[i], t->s.parameters[i], (size_t)count * sizeof(double));
    memset(t->m[i], 0, (size_t)count * sizeof(double)), memset(t->v[i], 0, (size_t)count * sizeof(double));
    if (t->call.of[i].narrow)
      write_narrow(t, i);
    else
      MUST(mn_device_write(t->s.device, t->call.of[i].values, t->w[i], count));
    MUST(mn_device_write(t->s.device, t->call.of[i].m, t->m[i], count));
    MUST(mn_device_write(t->s.device, t->call.of[i].v, t->v[i], count));
  }
}

/* The next step's rates, and what `factor` times the tape's gradients make of the parameters (struct mn_rule). */
static void next_step(struct trainee *t, double factor) {
  const struct mn_rule *r = &t->call.rule;
  const double rate = 0.25, power = ++t->step;
  const double first = r->beta1 ? 1 / (1 - pow(r->beta1, power)) : 1;
  const double second = r->beta2 ? 1 / sqrt(1 - pow(r->beta2, power)) : 1;
  const double rates[MN_RATES] = {rate, first, second};
  upload(t, t->rates, rates, sizeof rates);
  for (int i = 0; i < PARAMETERS; i++)
    for (int64_t k = 0; k < t->s.counts[i + 1]; k++) {
      double *w = &t->w[i][k], *m = &t->m[i][k], *v = &t->v[i][k], g = factor * t->s.gradients[i + 1][k];
      if (r->kind == MN_ADAMW) {
        *m = r->beta1 * *m + (1 - r->beta1) * g, *v = r->beta2 * *v + (1 - r->beta2) * g * g;
        *w = (1 - rate * r->weight_decay) * *w - rate * first * *m / (sqrt(*v) * second + r->eps);
      } else {
        g += r->weight_decay * *w, *m = r->momentum * *m + g;
        *w -= rate * (r->nesterov ? g + r->momentum * *m : *m);
      }
    }
}

static void assert_parameters(const struct trainee *t) {
  static const char *const names[] = {"weight", "bias", "gamma", "beta"};
  for (int i = 0; i < PARAMETERS; i++)
    assert_reals(&t->s.memory, names[i], t->call.of[i].values, t->w[i], t->s.counts[i + 1], near(&t->s));
}

/* A forward by the planes that the updates wrote, against one that makes them of the weight's reals. */
static void assert_planes(struct trainee *t) {
  struct mn_block_call *c = &t->s.call;
  const int64_t results = c->rows * c->channels;
  const struct mn_block_call before = *c;
  c->dy = NULL, c->pair = NULL, c->z = c->mean = c->rstd = NULL;
  c->weight.values = t->call.of[0].values;
  c->bias = t->call.of[1].values, c->gamma = t->call.of[2].values, c->beta = t->call.of[3].values;
  MUST(call_within(&t->s, mn_block_forward));
  double *y = read_reals(&t->s.memory, c->y, results);
  c->weight.planes = NULL, c->weight.ready = 0;
  MUST(call_within(&t->s, mn_block_forward));
  assert_reals(&t->s.memory, "y by the updated planes", c->y, y, results, 1e-6);
  *c = before;
  free(y);
}

static void follow_rules(struct trainee *t) {
  for (size_t r = 0; r < COUNT(rules); r++) {
    restart(t, &rules[r]);
    for (int step = 0; step < 2; step++) {
      next_step(t, 1);
      run_update(t);
    }
    assert_parameters(t);
    assert_planes(t);
  }
}

static void by_every_rule(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++)
    for (size_t i = 0; i < COUNT(sizes); i++) {
      struct trainee t = open_trainee(*state, mn_precision_name((enum mn_precision)p), sizes[i]);
      follow_rules(&t);
      close_trainee(&t);
    }
}

static void by_our_own_gemm(void **state) {
  static const char *const precisions[] = {"bf16", "fp16", "fp16x3"};
  for (size_t p = 0; p < COUNT(precisions); p++)
    for (size_t i = 0; i < COUNT(large); i++) {
      struct trainee t = open_trainee(*state, precisions[p], large[i]);
      follow_rules(&t);
      close_trainee(&t);
    }
}

/* A pair's gradients are stored, though the flag is set and the weight has no planes; the parameters stay. */
static void stored(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct trainee t = open_trainee(*state, mn_precision_name((enum mn_precision)p), sizes[1]);
    int flag = MN_BLOCK_NONFINITE;
    restart(&t, &rules[2]);
    for (int i = 0; i < PARAMETERS; i++)
      t.call.of[i].gradient = take_reals(&t.s.memory, NULL, t.s.counts[i + 1]);
    t.call.nonfinite = take_bytes(&t.s.memory, 1, sizeof flag);
    upload(&t, t.call.nonfinite, &flag, sizeof flag);
    t.call.weight.planes = NULL;
    run_update(&t), run_update(&t);
    for (int i = 0; i < PARAMETERS; i++) {
      assert_reals(&t.s.memory, "a parameter", t.call.of[i].values, t.s.parameters[i], t.s.counts[i + 1], 0);
      assert_reals(&t.s.memory, "a stored gradient", t.call.of[i].gradient, t.s.gradients[i + 1],
                   t.s.counts[i + 1], near(&t.s));
    }
    close_trainee(&t);
  }
}

/* The norm of the weight's gradient from two products of rows by rows, with the vectors' gradients behind them. */
static void norm_without_the_gradient(void **state) {
  static const int64_t eights[][4] = {{8, 16, 24, 3}, {72, 24, 64, 8}, {256, 768, 4096, 128}};
  for (int p = 0; p < MN_PRECISIONS; p++)
    for (size_t i = 0; i < COUNT(eights) - (strcmp(*state, "cpu") == 0); i++) {
      struct trainee t = open_trainee(*state, mn_precision_name((enum mn_precision)p), eights[i]);
      const int64_t all = eights[i][0] * eights[i][0];
      const int64_t channels = t.call.channels, behind = 2 * all + 3 * channels;
      double square = 0, expected = 0;
      restart(&t, &rules[2]), next_step(&t, 1), restart(&t, &rules[2]);
      t.call.grams = take_reals(&t.s.memory, NULL, behind);
      run_update(&t);
      double *grams = read_reals(&t.s.memory, t.call.grams, behind);
      for (int64_t k = 0; k < all; k++) square += grams[k] * grams[all + k];
      for (int64_t k = 0; k < t.s.counts[1]; k++) expected += t.s.gradients[1][k] * t.s.gradients[1][k];
      const double tolerance = near(&t.s) < 1e-3 ? 10 * near(&t.s) : near(&t.s);
      if (!(fabs(sqrt(square / expected) - 1) <= tolerance))
        fail_msg("%s: a norm of %g, not %g", mn_precision_name((enum mn_precision)p), sqrt(square),
                 sqrt(expected));
      const size_t real = t.s.device->real;
      for (int k = 0; k < 3; k++)
        assert_reals(&t.s.memory, "a vector's gradient",
                     (char *)t.call.grams + (size_t)(2 * all + k * channels) * real, t.s.gradients[k + 2],
                     channels, near(&t.s));
      assert_parameters(&t);
      free(grams);
      close_trainee(&t);
    }
}

static void write_dy(struct trainee *t, double factor) {
  const int64_t count = t->s.call.rows * t->s.call.channels;
  double *dy = zeros(count);
  for (int64_t i = 0; i < count; i++) dy[i] = factor * t->s.dy[i];
  MUST(mn_device_write(t->s.device, (void *)t->s.call.dy, dy, count));
  free(dy);
}

/* dz in planes under the scale of the backward before, which the first measures: a dz that grows has room. */
static void by_an_earlier_scale(void **state) {
  static const char *const precisions[] = {"fp16", "fp16x3"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct trainee t = open_trainee(*state, precisions[p], sizes[1]);
    t.s.call.dz_scale = t.call.dz_scale = take_bytes(&t.s.memory, 16, 1);
    MUST(call_within(&t.s, mn_block_backward));
    t.s.call.dz_scale_ready = 1;
    t.call.pair = t.s.call.pair =
        take_bytes(&t.s.memory, (int64_t)mn_block_pair_bytes(t.s.device, &t.s.call), 1);
    write_dy(&t, 64);
    MUST(call_within(&t.s, mn_block_backward));
    restart(&t, &rules[0]);
    next_step(&t, 64);
    run_update(&t);
    assert_parameters(&t);
    write_dy(&t, 1);
    MUST(call_within(&t.s, mn_block_backward));
    follow_rules(&t);
    close_trainee(&t);
  }
}

/* An infinite dy raises the caller's flag, with which nothing is updated. */
static void not_finite(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++) {
    struct trainee t = open_trainee(*state, mn_precision_name((enum mn_precision)p), sizes[1]);
    int flag = 0, own = 0;
    t.s.call.nonfinite = t.call.nonfinite = take_bytes(&t.s.memory, 1, sizeof flag);
    upload(&t, t.call.nonfinite, &flag, sizeof flag);
    MUST(call_within(&t.s, mn_block_backward));
    MUST(t.s.device->kernels->download(t.s.device, &flag, t.call.nonfinite, sizeof flag));
    assert_int_equal(flag, 0);
    t.s.dy[77] = INFINITY;
    MUST(mn_device_write(t.s.device, (void *)t.s.call.dy, t.s.dy, t.s.call.rows * t.s.call.channels));
    MUST(call_within(&t.s, mn_block_backward));
    MUST(t.s.device->kernels->download(t.s.device, &flag, t.call.nonfinite, sizeof flag));
    assert_int_equal(flag, MN_BLOCK_NONFINITE);
    MUST(t.s.device->kernels->download(t.s.device, &own, t.s.device->nonfinite, sizeof own));
    assert_int_equal(own, 0);
    for (size_t r = 0; r < COUNT(rules); r++) {
      restart(&t, &rules[r]);
      const double rates[MN_RATES] = {1, 1, 1};
      upload(&t, t.rates, rates, sizeof rates);
      run_update(&t);
      assert_parameters(&t);
    }
    close_trainee(&t);
  }
}

/* The floats are as expected, and the 16 bits are theirs. */
static void assert_narrow(struct trainee *t, int i) {
  const struct mn_block_parameter *p = &t->call.of[i];
  const int64_t count = t->s.counts[i + 1];
  uint16_t *high = malloc((size_t)count * sizeof *high), *low = malloc((size_t)count * sizeof *low);
  double *found = zeros(count);
  assert_true(high && low);
  MUST(t->s.device->kernels->download(t->s.device, high, p->narrow, (size_t)count * sizeof *high));
  if (is_split(t, i)) {
    MUST(t->s.device->kernels->download(t->s.device, low, p->values, (size_t)count * sizeof *low));
    for (int64_t k = 0; k < count; k++) found[k] = mn_join_halves(high[k], low[k]);
  } else {
    MUST(mn_device_read(t->s.device, found, p->values, count));
    for (int64_t k = 0; k < count; k++)
      if (t->s.device->precision == MN_FP16)
        assert_true(half_value(high[k]) == mn_to_fp16((float)found[k]));
      else
        assert_int_equal(high[k], mn_bf16_bits((float)found[k]));
  }
  assert_close("a narrow parameter", found, t->w[i], count, near(&t->s));
  free(high), free(low), free(found);
}

/* Parameters of 16 bits, whose floats are the update's own. */
static void narrow_parameters(void **state) {
  static const char *const precisions[] = {"bf16", "fp16"};
  for (size_t p = 0; p < COUNT(precisions); p++)
    for (int k = 0; k < 3; k++) {
      struct trainee t = open_trainee(*state, precisions[p], k == 2 ? large[0] : sizes[k]);
      t.call.weight.planes = NULL;
      for (int i = 0; i < PARAMETERS; i++)
        t.call.of[i].narrow = take_bytes(&t.s.memory, t.s.counts[i + 1], 2);
      for (size_t r = 0; r < COUNT(rules); r++) {
        restart(&t, &rules[r]);
        next_step(&t, 1), run_update(&t);
        next_step(&t, 1), run_update(&t);
        for (int i = 0; i < PARAMETERS; i++) assert_narrow(&t, i);
      }
      close_trainee(&t);
    }
}

/* Waits for all streams, also for the default one, in which the calls are: freeing memory does. */
static void settle(struct mn_device *device) {
  void *freed;
  MUST(device->kernels->allocate(device, &freed, 1));
  device->kernels->release(device, freed);
}

/* Steps of which the third is skipped; AdamW's rate is that of the next step that is not. */
static void counted(void **state) {
  struct trainee t = open_trainee(*state, "fp32", sizes[0]);
  struct mn_device *device = t.s.device;
  const struct mn_kernels *k = t.s.device->kernels;
  const double beta1 = 0.9, beta2 = 0.98;
  float steps = 0;
  double rate[MN_RATES] = {0.5};
  int64_t skipped = 0;
  int *flag = take_bytes(&t.s.memory, 1, sizeof *flag), set = MN_BLOCK_NONFINITE, flagged = 1;
  int64_t *told;
  void *host;
  MUST(k->allocate_host(device, &host, sizeof *told));
  told = host;
  struct mn_block_call c = {.size = sizeof c, .nonfinite = flag};
  c.counts = (struct mn_counts){.steps = take_bytes(&t.s.memory, 1, sizeof steps),
                                .rate = take_bytes(&t.s.memory, MN_RATES, sizeof *rate),
                                .beta1 = beta1,
                                .beta2 = beta2,
                                .skipped = take_bytes(&t.s.memory, 1, sizeof skipped),
                                .told = told};
  upload(&t, flag, &(int){0}, sizeof set);
  upload(&t, c.counts.steps, &steps, sizeof steps);
  upload(&t, c.counts.rate, rate, sizeof rate);
  upload(&t, c.counts.skipped, &skipped, sizeof skipped);
  MUST(k->synchronize(device));
  MUST(mn_block_count(t.s.device, &c)); /* before the first step */
  c.counts.ended = c.counts.clears = 1;
  for (int i = 1; i <= 5; i++) {
    const int done = i < 3 ? i : i - 1;
    if (i == 3) upload(&t, flag, &set, sizeof set);
    MUST(mn_block_count(t.s.device, &c));
    settle(device);
    MUST(k->download(device, &steps, c.counts.steps, sizeof steps));
    MUST(k->download(device, rate, c.counts.rate, sizeof rate));
    MUST(k->download(device, &skipped, c.counts.skipped, sizeof skipped));
    MUST(k->download(device, &flagged, flag, sizeof flagged));
    MUST(k->synchronize(device));
    assert_true(steps == (float)done && flagged == 0 && skipped == (i >= 3) && *told == skipped);
    assert_true(rate[MN_RATE] == 0.5);
    assert_true(fabs(rate[MN_RATE_FIRST] * (1 - pow(beta1, done + 1)) - 1) < 1e-12);
    assert_true(fabs(rate[MN_RATE_SECOND] * sqrt(1 - pow(beta2, done + 1)) - 1) < 1e-12);
  }
  c.counts.told = NULL;
  assert_int_equal(mn_block_count(t.s.device, &c), MN_USAGE);
  c.size--;
  assert_int_equal(mn_block_count(t.s.device, &c), MN_USAGE);
  k->release_host(device, host);
  close_trainee(&t);
}

static void refused(struct trainee *t, const char *words) {
  assert_int_equal(mn_block_update(t->s.device, &t->call), MN_USAGE);
  if (!strstr(mn_message(), words)) fail_msg("'%s' does not say '%s'", mn_message(), words);
}

static void refusals(void **state) {
  struct trainee t = open_trainee(*state, "fp16", sizes[1]);
  struct mn_block_call *c = &t.call;
  restart(&t, &rules[2]);
  c->workspace = NULL;
  const struct mn_block_call good = *c;
  refused(&t, "needs a workspace");
  c->size -= 8, refused(&t, "another version");
  assert_int_equal(mn_block_workspace(t.s.device, c), 0), *c = good;
  c->rows = 0, refused(&t, "0 rows"), *c = good;
  c->weight.planes = NULL, refused(&t, "the weight's planes in fp16"), *c = good;
  c->rule.rate = NULL, refused(&t, "needs a rate"), *c = good;
  c->of[2].m = NULL, refused(&t, "m and v of gamma"), *c = good;
  c->rule.kind = MN_ADAMW, c->of[0].v = NULL, refused(&t, "m and v of weight"), *c = good;
  c->of[3].values = (char *)c->of[3].values + 4, refused(&t, "beta is at"), *c = good;
  c->x.ready = 0, c->x.values = NULL, refused(&t, "needs x"), *c = good;
  c->x.planes = NULL, refused(&t, "ready are NULL"), *c = good;
  c->pair = NULL, refused(&t, "needs a pair"), *c = good;
  c->grams = c->of[0].m, refused(&t, "a multiple of 8, not 70"), *c = good;
  c->of[2].narrow = (char *)c->of[3].values + 4;
  refused(&t, strcmp(*state, "cpu") ? "gamma is at" : "takes no 16-bit"), *c = good;
  t.s.call.dz_scale_ready = 1;
  assert_int_equal(mn_block_backward(t.s.device, &t.s.call), MN_USAGE);
  assert_non_null(strstr(mn_message(), "dz_scale"));
  close_trainee(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(by_every_rule),
      ON("cuda", by_our_own_gemm),
      BOTH(stored),
      BOTH(norm_without_the_gradient),
      BOTH(by_an_earlier_scale),
      BOTH(not_finite),
      ON("cuda", narrow_parameters),
      BOTH(counted),
      BOTH(refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
