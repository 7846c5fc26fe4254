/* The block's update on a caller's memory, by every rule, in every precision on every device: a backward leaves
 * a pair, and the parameters follow the tape's gradients, as reals and as the planes of the next forward. */
#include "tests/block_subject.h"

static const struct mn_rule block_rules[] = {
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
  MUST(within(&t->s, &t->call, mn_block_update));
}

/* Forward and backward of the subject, which leave the pair, and the planes of x and of the weight. The backward's
 * parameters stay as they are; copies are trained. */
static struct trainee open_trainee(struct memory *m, const int64_t *size) {
  struct trainee t = {.s = open_subject(m, size)};
  struct mn_block_call *c = &t.s.call;
  const size_t each = mn_block_plane_bytes(m->device, c);
  if (each) take_block_planes(&t.s);
  c->weight.updated = 1;
  MUST(call_within(&t.s, mn_block_forward));
  c->x.ready = c->weight.ready = each > 0;
  c->dy = take_reals(m, t.s.dy, t.s.results);
  c->pair = take_bytes(m, (int64_t)mn_block_pair_bytes(m->device, c), 1);
  MUST(call_within(&t.s, mn_block_backward));
  t.rates = take_bytes(m, MN_RATES, sizeof(double));
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
    t.w[i] = kept_zeros(m, count), t.m[i] = kept_zeros(m, count), t.v[i] = kept_zeros(m, count);
    t.call.of[i] = (struct mn_block_parameter){.values = take_reals(m, NULL, count),
                                               .m = take_reals(m, NULL, count),
                                               .v = take_reals(m, NULL, count)};
  }
  return t;
}

/* Whether a narrow parameter's floats are in two halves. */
static int is_split(const struct trainee *t, int i) {
  return i == 0 && t->s.device->precision == MN_BF16;
}

/* Writes parameter i in both its forms. */
static void write_narrow(struct trainee *t, int i) {
  const struct mn_block_parameter *p = &t->call.of[i];
  const int64_t count = t->s.counts[i + 1];
  uint16_t *high = kept(t->s.m, calloc((size_t)count, 2)), *low = kept(t->s.m, calloc((size_t)count, 2));
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

/* The next step's rates, and what `factor` times the tape's gradients make of the parameters. */
static void next_step(struct trainee *t, double factor) {
  const struct mn_rule *r = &t->call.rule;
  const double power = ++t->step;
  const double first = r->beta1 ? 1 / (1 - pow(r->beta1, power)) : 1;
  const double second = r->beta2 ? 1 / sqrt(1 - pow(r->beta2, power)) : 1;
  const double rates[MN_RATES] = {0.25, first, second};
  upload(t, t->rates, rates, sizeof rates);
  for (int i = 0; i < PARAMETERS; i++)
    follow_rule(r, rates, factor, t->s.counts[i + 1], t->w[i], t->m[i], t->v[i], t->s.gradients[i + 1]);
}

static void assert_parameters(const struct trainee *t) {
  static const char *const names[] = {"weight", "bias", "gamma", "beta"};
  for (int i = 0; i < PARAMETERS; i++)
    assert_reals(t->s.m, names[i], t->call.of[i].values, t->w[i], t->s.counts[i + 1], near(&t->s));
}

/* A forward by the planes that the updates wrote, against one that makes them of the weight's reals. */
static void assert_next_forward(struct trainee *t) {
  struct mn_block_call *c = &t->s.call;
  const struct mn_block_call before = *c;
  c->dy = NULL, c->pair = NULL, c->z = c->mean = c->rstd = NULL;
  c->weight.values = t->call.of[0].values;
  c->bias = t->call.of[1].values, c->gamma = t->call.of[2].values, c->beta = t->call.of[3].values;
  MUST(call_within(&t->s, mn_block_forward));
  double *y = kept_reals(t->s.m, c->y, t->s.results);
  c->weight.planes = NULL, c->weight.ready = 0;
  MUST(call_within(&t->s, mn_block_forward));
  assert_reals(t->s.m, "y by the updated planes", c->y, y, t->s.results, 1e-6);
  *c = before;
}

static void follow_rules(struct trainee *t) {
  for (size_t r = 0; r < COUNT(block_rules); r++) {
    restart(t, &block_rules[r]);
    for (int step = 0; step < 2; step++) {
      next_step(t, 1);
      run_update(t);
    }
    assert_parameters(t);
    assert_next_forward(t);
  }
}

static void by_every_rule(struct memory *m) {
  const int own = is_cuda(m) && m->device->planes;
  for (size_t i = 0; i < 3 + (own ? COUNT(large) : 0); i++) {
    struct trainee t = open_trainee(m, i < 3 ? sizes[i] : large[i - 3]);
    follow_rules(&t);
    release_all(m);
  }
}

/* A pair's gradients are stored, though the flag is set and the weight has no planes; the parameters stay. */
static void stored(struct memory *m) {
  struct trainee t = open_trainee(m, sizes[1]);
  int flag = MN_BLOCK_NONFINITE;
  restart(&t, &block_rules[2]);
  for (int i = 0; i < PARAMETERS; i++) t.call.of[i].gradient = take_reals(m, NULL, t.s.counts[i + 1]);
  t.call.nonfinite = put_bytes(m, &flag, sizeof flag);
  t.call.weight.planes = NULL;
  run_update(&t), run_update(&t);
  for (int i = 0; i < PARAMETERS; i++) {
    assert_reals(m, "a parameter", t.call.of[i].values, t.s.parameters[i], t.s.counts[i + 1], 0);
    assert_reals(m, "a stored gradient", t.call.of[i].gradient, t.s.gradients[i + 1], t.s.counts[i + 1],
                 near(&t.s));
  }
}

/* The norm of the weight's gradient from two products of rows by rows, with the vectors' gradients behind them. */
static void norm_without_the_gradient(struct memory *m) {
  static const int64_t eights[][4] = {{8, 16, 24, 3}, {72, 24, 64, 8}, {256, 768, 4096, 128}};
  for (size_t i = 0; i < COUNT(eights) - !is_cuda(m); i++) {
    struct trainee t = open_trainee(m, eights[i]);
    const int64_t all = eights[i][0] * eights[i][0], channels = t.call.channels,
                  behind = 2 * all + 3 * channels;
    double square = 0, expected = 0;
    restart(&t, &block_rules[2]), next_step(&t, 1), restart(&t, &block_rules[2]);
    t.call.grams = take_reals(m, NULL, behind);
    run_update(&t);
    const double *grams = kept_reals(m, t.call.grams, behind);
    for (int64_t k = 0; k < all; k++) square += grams[k] * grams[all + k];
    for (int64_t k = 0; k < t.s.counts[1]; k++) expected += t.s.gradients[1][k] * t.s.gradients[1][k];
    const double tolerance = near(&t.s) < 1e-3 ? 10 * near(&t.s) : near(&t.s);
    if (!(fabs(sqrt(square / expected) - 1) <= tolerance))
      fail_msg("a norm of %g, not %g", sqrt(square), sqrt(expected));
    for (int k = 0; k < 3; k++)
      assert_close("a vector's gradient", grams + 2 * all + k * channels, t.s.gradients[k + 2], channels,
                   near(&t.s));
    assert_parameters(&t);
    release_all(m);
  }
}

static void write_dy(struct trainee *t, double factor) {
  double *dy = kept_zeros(t->s.m, t->s.results);
  for (int64_t i = 0; i < t->s.results; i++) dy[i] = factor * t->s.dy[i];
  MUST(mn_device_write(t->s.device, (void *)t->s.call.dy, dy, t->s.results));
}

/* An infinite dy raises the caller's flag, with which nothing is updated. */
static void not_finite(struct memory *m) {
  struct trainee t = open_trainee(m, sizes[1]);
  int flag = 0, own = 0;
  t.s.call.nonfinite = t.call.nonfinite = put_bytes(m, &flag, sizeof flag);
  for (int bad = 0; bad < 2; bad++) {
    if (bad) t.s.dy[77] = INFINITY, write_dy(&t, 1);
    MUST(call_within(&t.s, mn_block_backward));
    MUST(m->device->kernels->download(m->device, &flag, t.call.nonfinite, sizeof flag));
    assert_int_equal(flag, bad ? MN_BLOCK_NONFINITE : 0);
  }
  MUST(m->device->kernels->download(m->device, &own, m->device->nonfinite, sizeof own));
  assert_int_equal(own, 0);
  for (size_t r = 0; r < COUNT(block_rules); r++) {
    restart(&t, &block_rules[r]);
    upload(&t, t.rates, (const double[MN_RATES]){1, 1, 1}, MN_RATES * sizeof(double));
    run_update(&t);
    assert_parameters(&t);
  }
}

/* The floats are as expected, and the 16 bits are theirs. */
static void assert_narrow(struct trainee *t, int i) {
  const struct mn_block_parameter *p = &t->call.of[i];
  const int64_t count = t->s.counts[i + 1];
  const double *narrow = read_narrow(&t->s, p->narrow, count);
  double *found = kept_zeros(t->s.m, count);
  if (is_split(t, i)) {
    const uint16_t *low = kept(t->s.m, get_bytes(t->s.device, p->values, (size_t)count * sizeof *low));
    for (int64_t k = 0; k < count; k++)
      found[k] = mn_join_halves((uint16_t)(to_bits((float)narrow[k]) >> 16), low[k]);
  } else {
    MUST(mn_device_read(t->s.device, found, p->values, count));
    for (int64_t k = 0; k < count; k++) assert_true(narrow[k] == narrowed(&t->s, found[k]));
  }
  assert_close("a narrow parameter", found, t->w[i], count, near(&t->s));
}

/* Parameters of 16 bits, whose floats are the update's own. */
static void narrow_parameters(struct memory *m) {
  for (int k = 0; k < 3; k++) {
    struct trainee t = open_trainee(m, k == 2 ? large[0] : sizes[k]);
    t.call.weight.planes = NULL;
    for (int i = 0; i < PARAMETERS; i++) t.call.of[i].narrow = take_bytes(m, t.s.counts[i + 1], 2);
    for (size_t r = 0; r < COUNT(block_rules); r++) {
      restart(&t, &block_rules[r]);
      next_step(&t, 1), run_update(&t);
      next_step(&t, 1), run_update(&t);
      for (int i = 0; i < PARAMETERS; i++) assert_narrow(&t, i);
    }
    release_all(m);
  }
}

/* Waits for all streams, also for the default one, in which the calls are: freeing memory does. */
static void settle(struct mn_device *device) {
  void *freed;
  MUST(device->kernels->allocate(device, &freed, 1));
  device->kernels->release(device, freed);
}

/* A backward of the third step was not finite: neither call of that step counts. A flag that is set is cleared. */
static void counted(struct memory *m) {
  struct mn_device *device = m->device;
  const struct mn_kernels *k = device->kernels;
  const double beta1 = 0.9, beta2 = 0.98;
  enum { MEMBERS = 700, FLAGS = 300 };
  float steps[MEMBERS] = {0};
  double rate[MN_RATES] = {0.5};
  int64_t skipped = 0, *told;
  int none[FLAGS] = {0}, set = MN_BLOCK_NONFINITE, found, *flag = put_bytes(m, none, sizeof found);
  MUST(k->allocate_host(device, (void **)&told, sizeof *told));
  struct mn_block_call first = {.size = sizeof first, .nonfinite = flag}, second = first;
  first.counts = (struct mn_counts){.flags = put_bytes(m, none, sizeof none),
                                    .flag_count = FLAGS,
                                    .skipped = put_bytes(m, &skipped, sizeof skipped),
                                    .told = told};
  second.counts = (struct mn_counts){.steps = put_bytes(m, steps, sizeof steps),
                                     .members = MEMBERS,
                                     .rate = put_bytes(m, rate, sizeof rate),
                                     .beta1 = beta1,
                                     .beta2 = beta2};
  for (int i = 1; i <= 5; i++) {
    const int done = i < 3 ? i : i - 1;
    if (i == 3) MUST(k->copy(device, first.counts.flags + FLAGS - 2, &set, sizeof set));
    MUST(k->synchronize(device));
    MUST(mn_block_count(device, &first));
    MUST(mn_block_count(device, &second));
    settle(device);
    MUST(k->download(device, steps, second.counts.steps, sizeof steps));
    MUST(k->download(device, rate, second.counts.rate, sizeof rate));
    MUST(k->download(device, &skipped, first.counts.skipped, sizeof skipped));
    MUST(k->download(device, &found, flag, sizeof found));
    MUST(k->synchronize(device));
    for (int p = 0; p < MEMBERS; p++) assert_true(steps[p] == (float)done);
    assert_true(skipped == (i >= 3) && *told == skipped && rate[MN_RATE] == 0.5);
    assert_int_equal(found, i == 3 ? MN_BLOCK_NONFINITE : 0);
    if (i == 3) continue;
    assert_true(fabs(rate[MN_RATE_FIRST] * (1 - pow(beta1, done)) - 1) < 1e-12);
    assert_true(fabs(rate[MN_RATE_SECOND] * sqrt(1 - pow(beta2, done)) - 1) < 1e-12);
  }
  first.counts.told = NULL;
  assert_int_equal(mn_block_count(device, &first), MN_USAGE);
  first.size--;
  assert_int_equal(mn_block_count(device, &first), MN_USAGE);
  k->release_host(device, told);
}

static void refusals(struct memory *m) {
  struct trainee t = open_trainee(m, sizes[1]);
  struct mn_block_call *c = &t.call;
  block_function *const update = mn_block_update;
  restart(&t, &block_rules[2]);
  const struct mn_block_call good = *c;
  refused(&t.s, c, update, "needs a workspace");
  c->size -= 8, refused(&t.s, c, update, "another version");
  assert_int_equal(mn_block_workspace(m->device, c), 0), *c = good;
  c->rows = 0, refused(&t.s, c, update, "0 rows"), *c = good;
  c->weight.planes = NULL, refused(&t.s, c, update, "the weight's planes in fp16"), *c = good;
  c->rule.rate = NULL, refused(&t.s, c, update, "needs a rate"), *c = good;
  c->of[2].m = NULL, refused(&t.s, c, update, "m and v of gamma"), *c = good;
  c->rule.kind = MN_ADAMW, c->of[0].v = NULL, refused(&t.s, c, update, "m and v of weight"), *c = good;
  c->of[3].values = (char *)c->of[3].values + 4, refused(&t.s, c, update, "beta is at"), *c = good;
  c->x.ready = 0, c->x.values = NULL, refused(&t.s, c, update, "needs x"), *c = good;
  c->x.planes = NULL, refused(&t.s, c, update, "ready are NULL"), *c = good;
  c->pair = NULL, refused(&t.s, c, update, "needs a pair"), *c = good;
  c->grams = c->of[0].m, refused(&t.s, c, update, "a multiple of 8, not 70"), *c = good;
  c->of[2].narrow = (char *)c->of[3].values + 4;
  refused(&t.s, c, update, is_cuda(m) ? "gamma is at" : "takes no 16-bit"), *c = good;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_EACH(EVERY, by_every_rule),
      IN_EACH(EVERY, stored),
      IN_EACH(EVERY, norm_without_the_gradient),
      IN_EACH(EVERY, not_finite),
      IN_EACH_ON("cuda", BF16 | FP16, narrow_parameters),
      IN_EACH(FP32, counted),
      IN_EACH(FP16, refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
