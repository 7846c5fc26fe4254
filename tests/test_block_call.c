/* The block as two plain calls on memory of the caller's, in every precision on every device: the tape's
 * results, inside the workspace alone, without an allocation; from planes that are made once; and what is
 * refused. */
#include "tests/block_subject.h"

static const char *const names[GRADIENTS] = {"dx", "dweight", "dbias", "dgamma", "dbeta"};
enum { ALL = (1 << GRADIENTS) - 1 };

static void must_forward(struct subject *s) {
  struct mn_block_call *c = &s->call;
  const int64_t results = s->results;
  void **const saved[] = {&c->z, &c->mean, &c->rstd};
  c->y = take_reals(s->m, NULL, results);
  for (int i = 0; i < 3; i++)
    if (*saved[i]) *saved[i] = take_reals(s->m, NULL, i == 0 ? results : c->rows * c->groups);
  MUST(call_within(s, mn_block_forward));
  assert_reals(s->m, "y", c->y, s->y, results, near(s));
  if (c->z) assert_reals(s->m, "z", c->z, s->z, results, near(s));
}

/* Memory for 16 bits, which start as the values. */
static void *take_narrow(struct subject *s, const double *values, int64_t count) {
  struct mn_operand o = {.rows = 1, .cols = count, .real = take_reals(s->m, values, count)};
  o.planes[0] = take_bytes(s->m, count, 2);
  o.scale = s->device->scaled ? s->device->unscaled : NULL;
  MUST(s->device->kernels->round(s->device, &o, 0));
  return o.planes[0];
}

/* Within one unit of the last of the 16 bits, and the precision of the sums. */
static void assert_rounded(const struct subject *s, const char *name, const void *found, const double *wide,
                           int64_t count) {
  const double *values = read_narrow(s, found, count);
  double largest = 0;
  const double unit = s->device->precision == MN_FP16 ? 0x1p-10 : 0x1p-7, least = 0x1p-24; /* float16's */
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(wide[i]));
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(values[i] - wide[i]) <= unit * fabs(wide[i]) + 1e-5 * largest + least))
      fail_msg("%s[%ld] is %g, not %g", name, (long)i, values[i], wide[i]);
}

/* bias, gamma and beta as the call has them then, of the same values. */
static void give_vectors(struct subject *s, enum mn_narrow narrow) {
  const void **const vectors[] = {&s->call.bias, &s->call.gamma, &s->call.beta};
  s->call.narrow = narrow;
  for (int i = 0; i < 3; i++) {
    double *values = s->parameters[i + 1];
    for (int64_t k = 0; k < s->call.channels; k++) values[k] = narrowed(s, values[k]);
    *vectors[i] = narrow == MN_NARROW_MODULE ? take_narrow(s, values, s->call.channels)
                                             : take_reals(s->m, values, s->call.channels);
  }
}

/* What a module's other values are found as, next to those in floats. */
static void assert_found(const struct subject *s, enum mn_narrow narrow, const char *name, const void *found,
                         const double *wide, int64_t count) {
  if (narrow == MN_NARROW_MODULE) return assert_rounded(s, name, found, wide, count);
  assert_reals(s->m, name, found, wide, count, 1e-5);
}

/* The forward in 16 bits: z is the rounded z of the forward in floats, and y is that z's. */
static void must_forward_narrow(struct subject *s, enum mn_narrow narrow) {
  struct mn_block_call *c = &s->call;
  const int64_t results = s->results;
  c->z = take_reals(s->m, NULL, results);
  give_vectors(s, MN_NARROW_NONE);
  MUST(call_within(s, mn_block_forward));
  double *wide = kept_reals(s->m, c->z, results), *none = kept_zeros(s->m, c->channels);
  void *y = take_reals(s->m, NULL, results), *const floats = c->y;
  for (int64_t i = 0; i < results; i++) wide[i] = narrowed(s, wide[i]);
  void *saved = take_bytes(s->m, results, 2);
  struct mn_block block = {.ops = MN_OP_ALL, .rows = c->rows, .channels = c->channels, .groups = c->groups};
  block.eps = c->eps, block.slope = c->slope, block.gamma = c->gamma, block.beta = c->beta;
  c->y = narrow == MN_NARROW_MODULE ? take_bytes(s->m, results, 2) : take_reals(s->m, NULL, results);
  c->z = saved;
  give_vectors(s, narrow);
  MUST(call_within(s, mn_block_forward));
  double *z = read_narrow(s, c->z, results);
  for (int64_t i = 0; i < results; i++)
    if (z[i] != wide[i]) fail_msg("z[%ld] is %g, not %g", (long)i, z[i], wide[i]);
  struct mn_operand operand = {.rows = c->rows, .cols = c->channels, .real = y};
  block.bias = take_reals(s->m, none, c->channels), block.y = &operand;
  const struct mn_epilogue epilogue = {.kind = MN_BLOCK, .block = &block};
  MUST(
      s->device->kernels->epilogue(s->device, take_reals(s->m, z, results), c->rows, c->channels, &epilogue));
  double *expected = kept_reals(s->m, y, results);
  assert_found(s, narrow, "y", c->y, expected, results);
  c->z = NULL; /* which changes nothing */
  MUST(call_within(s, mn_block_forward));
  assert_found(s, narrow, "y without z", c->y, expected, results);
  c->z = saved, c->y = floats;
}

/* The backward in 16 bits: its results are those in floats of the same z and dy, rounded. */
static void must_backward_narrow(struct subject *s) {
  struct mn_block_call *c = &s->call;
  void **const into[GRADIENTS] = {&c->dx, &c->dweight, &c->dbias, &c->dgamma, &c->dbeta};
  const int64_t results = s->results;
  void *const z = c->z;
  const void *const dy = take_narrow(s, s->dy, results);
  double *wide[GRADIENTS], *saved = read_narrow(s, z, results), *given = read_narrow(s, dy, results);
  for (int narrow = MN_NARROW_NONE; narrow <= MN_NARROW_MODULE; narrow++) {
    give_vectors(s, narrow);
    c->z = narrow ? z : take_reals(s->m, saved, results);
    c->dy = narrow == MN_NARROW_MODULE ? dy : take_reals(s->m, given, results);
    for (int i = 0; i < GRADIENTS; i++) *into[i] = take_reals(s->m, NULL, s->counts[i]);
    MUST(call_within(s, mn_block_backward));
    for (int i = 0; i < GRADIENTS; i++) {
      if (!narrow)
        wide[i] = kept_reals(s->m, *into[i], s->counts[i]);
      else
        assert_found(s, narrow, names[i], *into[i], wide[i], s->counts[i]);
    }
  }
}

/* The gradients of which `wanted` has bits. */
static void must_backward(struct subject *s, int wanted) {
  struct mn_block_call *c = &s->call;
  void **const into[GRADIENTS] = {&c->dx, &c->dweight, &c->dbias, &c->dgamma, &c->dbeta};
  c->dy = take_reals(s->m, s->dy, s->results);
  for (int i = 0; i < GRADIENTS; i++)
    *into[i] = wanted >> i & 1 ? take_reals(s->m, NULL, s->counts[i]) : NULL;
  c->eps = 0; /* a backward reads no eps: minnow_torch gives none */
  MUST(call_within(s, mn_block_backward));
  c->eps = 1e-5;
  for (int i = 0; i < GRADIENTS; i++)
    if (*into[i]) assert_reals(s->m, names[i], *into[i], s->gradients[i], s->counts[i], near(s));
  assert_reals(s->m, "z after the backward", c->z, s->z, s->results, near(s));
  assert_reals(s->m, "dy after the backward", c->dy, s->dy, s->results, 1e-7);
  c->dy = NULL;
}

static void as_on_the_tape(struct memory *m) {
  for (size_t i = 0; i < COUNT(sizes); i++) {
    struct subject s = open_subject(m, sizes[i]);
    must_forward(&s);
    must_backward(&s, ALL);
    /* Without any vector's, and of the vectors alone: an earlier backward leaves them possible. */
    for (int wanted = 3; wanted < ALL; wanted++)
      if (wanted == 3 || wanted % 4 == 0) must_backward(&s, wanted);
    s.call.z = s.call.mean = s.call.rstd = NULL;
    must_forward(&s);
    release_all(m);
  }
}

/* Planes that an earlier call has made stand for the values, which may change or go. */
static void planes_are_made_once(struct memory *m) {
  struct subject s = open_subject(m, sizes[1]);
  struct mn_block_matrix *const both[] = {&s.call.x, &s.call.weight};
  take_block_planes(&s);
  must_forward(&s);
  for (int i = 0; i < 2 && mn_block_plane_bytes(s.device, &s.call); i++) {
    both[i]->ready = 1;
    both[i]->values = take_reals(m, NULL, s.counts[i]);
  }
  must_forward(&s);
  if (s.call.x.ready) s.call.x.values = NULL; /* which a backward does without */
  must_backward(&s, ALL);
}

/* 16-bit values are what products read of floats that they hold; in a module of 16 bits all of the tape's matrices
 * are. */
static void narrow_values(struct memory *m) {
  for (size_t k = 0; k <= COUNT(sizes); k++) {
    struct subject s = open_subject(m, k < COUNT(sizes) ? sizes[k] : large[0]);
    s.call.x.values = take_narrow(&s, s.x, s.counts[0]), s.call.x.narrow = 1;
    s.call.weight.values = take_narrow(&s, s.parameters[0], s.counts[1]), s.call.weight.narrow = 1;
    must_forward(&s);
    must_backward(&s, ALL);
    must_forward_narrow(&s, MN_NARROW_Z);
    must_forward_narrow(&s, MN_NARROW_MODULE);
    must_backward_narrow(&s);
    release_all(m);
  }
}

static void no_narrow_values(struct memory *m) {
  struct subject s = open_subject(m, sizes[0]);
  s.call.x.narrow = 1;
  refused(&s, &s.call, mn_block_forward, "takes no 16-bit values");
}

static void refusals(struct memory *m) {
  struct subject s = open_subject(m, sizes[0]);
  struct mn_block_call *c = &s.call;
  const struct mn_block_call good = *c;
  block_function *const forward = mn_block_forward, *const backward = mn_block_backward;
  c->size -= 8, refused(&s, c, forward, "another version");
  assert_int_equal(mn_block_workspace(s.device, c), 0), *c = good;
  c->groups = 5, refused(&s, c, forward, "5 groups do not divide 24 channels"), *c = good;
  c->rows = 0, refused(&s, c, forward, "0 rows"), *c = good;
  c->inputs = (int64_t)1 << 31, refused(&s, c, forward, "1 to 1073741823"), *c = good;
  c->eps = NAN, refused(&s, c, forward, "eps"), *c = good;
  c->bias = NULL, refused(&s, c, forward, "is NULL"), *c = good;
  c->z = (char *)c->z + 4, refused(&s, c, forward, "multiple of 16"), *c = good;
  c->x.planes = (char *)c->z + 8, refused(&s, c, forward, "x.planes"), *c = good;
  c->workspace = (char *)c->z + 16;
  if (is_cuda(m)) refused(&s, c, forward, "multiple of 256");
  *c = good;
  c->narrow = MN_NARROW_Z, refused(&s, c, forward, "takes no 16-bit values"), *c = good;
  c->dy = good.y, refused(&s, c, forward, "takes no dy"), *c = good;
  c->dy = good.y, c->workspace = NULL, refused(&s, c, backward, "needs a workspace"), *c = good;
  refused(&s, c, backward, "is NULL"); /* no dy */
  c->dy = good.y, c->mean = NULL, refused(&s, c, backward, "is NULL"), *c = good;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_EACH(EVERY, as_on_the_tape),
      IN_EACH(FP32 | BF16 | SCALED, planes_are_made_once),
      IN_EACH_ON("cpu", BF16, no_narrow_values),
      IN_EACH_ON("cuda", BF16 | FP16, narrow_values),
      IN_EACH(FP32, refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
