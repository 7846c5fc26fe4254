/* The block as two plain calls on memory of the caller's, in every precision on every device: the tape's
 * results, inside the workspace alone, without an allocation; from planes that are made once; and what is
 * refused. */
#include "tests/block_subject.h"

static const int64_t sizes[][4] = {{5, 16, 24, 3}, {70, 24, 64, 8}, {3, 7, 10, 2}, {33, 8, 300, 1}};

static void must_forward(struct subject *s) {
  struct mn_block_call *c = &s->call;
  const int64_t results = c->rows * c->channels;
  void **const saved[] = {&c->z, &c->mean, &c->rstd};
  c->y = take_reals(&s->memory, NULL, results);
  for (int i = 0; i < 3; i++)
    if (*saved[i]) *saved[i] = take_reals(&s->memory, NULL, i == 0 ? results : c->rows * c->groups);
  MUST(call_within(s, mn_block_forward));
  assert_reals(&s->memory, "y", c->y, s->y, results, near(s));
  if (c->z) assert_reals(&s->memory, "z", c->z, s->z, results, near(s));
}

static float rounded(const struct subject *s, double value) {
  return s->device->precision == MN_FP16 ? mn_to_fp16((float)value) : mn_to_bf16((float)value);
}

/* 16 bits in the device's memory. */
static double *read_narrow(const struct subject *s, const void *from, int64_t count) {
  uint16_t *bits = malloc((size_t)count * sizeof *bits);
  double *out = zeros(count);
  assert_non_null(bits);
  MUST(s->device->kernels->download(s->device, bits, from, (size_t)count * sizeof *bits));
  for (int64_t i = 0; i < count; i++) {
    const uint32_t wide = (uint32_t)bits[i] << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    out[i] = s->device->precision == MN_FP16 ? half_value(bits[i]) : value;
  }
  free(bits);
  return out;
}

/* Memory for 16 bits, which start as the values. */
static void *take_narrow(struct subject *s, const double *values, int64_t count) {
  struct mn_operand o = {.rows = 1, .cols = count, .real = take_reals(&s->memory, values, count)};
  o.planes[0] = take_bytes(&s->memory, count, 2);
  o.scale = s->device->scaled ? s->device->unscaled : NULL;
  MUST(s->device->kernels->round(s->device, &o, 0));
  return o.planes[0];
}

/* Within one unit of the last of the 16 bits, and the precision of the sums. */
static void assert_rounded(const struct subject *s, const char *name, const void *found, const double *wide,
                           int64_t count) {
  double *values = read_narrow(s, found, count), largest = 0;
  const double unit = s->device->precision == MN_FP16 ? 0x1p-10 : 0x1p-7, least = 0x1p-24; /* float16's */
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(wide[i]));
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(values[i] - wide[i]) <= unit * fabs(wide[i]) + 1e-5 * largest + least))
      fail_msg("%s[%ld] is %g, not %g", name, (long)i, values[i], wide[i]);
  free(values);
}

/* bias, gamma and beta as the call has them then, of the same values. */
static void give_vectors(struct subject *s, enum mn_narrow narrow) {
  const void **const vectors[] = {&s->call.bias, &s->call.gamma, &s->call.beta};
  s->call.narrow = narrow;
  for (int i = 0; i < 3; i++) {
    double *values = s->parameters[i + 1];
    for (int64_t k = 0; k < s->call.channels; k++) values[k] = rounded(s, values[k]);
    *vectors[i] = narrow == MN_NARROW_MODULE ? take_narrow(s, values, s->call.channels)
                                             : take_reals(&s->memory, values, s->call.channels);
  }
}

/* What a module's other values are found as, next to those in floats. */
static void assert_found(const struct subject *s, enum mn_narrow narrow, const char *name, const void *found,
                         const double *wide, int64_t count) {
  if (narrow == MN_NARROW_MODULE) return assert_rounded(s, name, found, wide, count);
  double *values = read_reals(&s->memory, found, count);
  assert_close(name, values, wide, count, 1e-5);
  free(values);
}

/* The forward in 16 bits: z is the rounded z of the forward in floats, and y is that z's. */
static void must_forward_narrow(struct subject *s, enum mn_narrow narrow) {
  struct mn_block_call *c = &s->call;
  const int64_t results = c->rows * c->channels;
  c->z = take_reals(&s->memory, NULL, results);
  give_vectors(s, MN_NARROW_NONE);
  MUST(call_within(s, mn_block_forward));
  double *wide = read_reals(&s->memory, c->z, results), *none = zeros(c->channels);
  void *y = take_reals(&s->memory, NULL, results), *const floats = c->y;
  for (int64_t i = 0; i < results; i++) wide[i] = rounded(s, wide[i]);
  void *saved = take_bytes(&s->memory, results, 2);
  struct mn_block block = {.ops = MN_OP_ALL, .rows = c->rows, .channels = c->channels, .groups = c->groups};
  block.eps = c->eps, block.slope = c->slope, block.gamma = c->gamma, block.beta = c->beta;
  c->y =
      narrow == MN_NARROW_MODULE ? take_bytes(&s->memory, results, 2) : take_reals(&s->memory, NULL, results);
  c->z = saved;
  give_vectors(s, narrow);
  MUST(call_within(s, mn_block_forward));
  double *z = read_narrow(s, c->z, results);
  for (int64_t i = 0; i < results; i++)
    if (z[i] != wide[i]) fail_msg("z[%ld] is %g, not %g", (long)i, z[i], wide[i]);
  struct mn_operand operand = {.rows = c->rows, .cols = c->channels, .real = y};
  block.bias = take_reals(&s->memory, none, c->channels), block.y = &operand;
  const struct mn_epilogue epilogue = {.kind = MN_BLOCK, .block = &block};
  MUST(s->device->kernels->epilogue(s->device, take_reals(&s->memory, z, results), c->rows, c->channels,
                                    &epilogue));
  double *expected = read_reals(&s->memory, y, results);
  assert_found(s, narrow, "y", c->y, expected, results);
  c->z = NULL; /* which changes nothing */
  MUST(call_within(s, mn_block_forward));
  assert_found(s, narrow, "y without z", c->y, expected, results);
  c->z = saved, c->y = floats;
  free(wide), free(none), free(z), free(expected);
}

/* The backward in 16 bits: its results are those in floats of the same z and dy, rounded. */
static void must_backward_narrow(struct subject *s) {
  static const char *const names[GRADIENTS] = {"dx", "dweight", "dbias", "dgamma", "dbeta"};
  struct mn_block_call *c = &s->call;
  void **const into[GRADIENTS] = {&c->dx, &c->dweight, &c->dbias, &c->dgamma, &c->dbeta};
  const int64_t results = c->rows * c->channels;
  void *const z = c->z;
  const void *const dy = take_narrow(s, s->dy, results);
  double *wide[GRADIENTS], *saved = read_narrow(s, z, results), *given = read_narrow(s, dy, results);
  for (int narrow = MN_NARROW_NONE; narrow <= MN_NARROW_MODULE; narrow++) {
    give_vectors(s, narrow);
    c->z = narrow ? z : take_reals(&s->memory, saved, results);
    c->dy = narrow == MN_NARROW_MODULE ? dy : take_reals(&s->memory, given, results);
    for (int i = 0; i < GRADIENTS; i++) *into[i] = take_reals(&s->memory, NULL, s->counts[i]);
    MUST(call_within(s, mn_block_backward));
    for (int i = 0; i < GRADIENTS; i++) {
      if (!narrow)
        wide[i] = read_reals(&s->memory, *into[i], s->counts[i]);
      else
        assert_found(s, narrow, names[i], *into[i], wide[i], s->counts[i]);
    }
  }
  for (int i = 0; i < GRADIENTS; i++) free(wide[i]);
  free(saved), free(given);
}

/* The gradients of all, or, with `frozen`, of the vectors alone. */
static void must_backward(struct subject *s, int frozen) {
  static const char *const names[GRADIENTS] = {"dx", "dweight", "dbias", "dgamma", "dbeta"};
  struct mn_block_call *c = &s->call;
  void **const into[GRADIENTS] = {&c->dx, &c->dweight, &c->dbias, &c->dgamma, &c->dbeta};
  c->dy = take_reals(&s->memory, s->dy, c->rows * c->channels);
  for (int i = 0; i < GRADIENTS; i++)
    *into[i] = frozen && i < 2 ? NULL : take_reals(&s->memory, NULL, s->counts[i]);
  c->eps = 0; /* a backward reads no eps: minnow_torch gives none */
  MUST(call_within(s, mn_block_backward));
  c->eps = 1e-5;
  for (int i = 0; i < GRADIENTS; i++)
    if (*into[i]) assert_reals(&s->memory, names[i], *into[i], s->gradients[i], s->counts[i], near(s));
  assert_reals(&s->memory, "z after the backward", c->z, s->z, c->rows * c->channels, near(s));
  assert_reals(&s->memory, "dy after the backward", c->dy, s->dy, c->rows * c->channels, 1e-7);
  c->dy = NULL;
}

static void as_on_the_tape(void **state) {
  for (int p = 0; p < MN_PRECISIONS; p++)
    for (size_t i = 0; i < COUNT(sizes); i++) {
      struct subject s = open_subject(*state, mn_precision_name((enum mn_precision)p), sizes[i]);
      must_forward(&s);
      must_backward(&s, 0);
      must_backward(&s, 1); /* which an earlier one leaves possible */
      s.call.z = s.call.mean = s.call.rstd = NULL;
      must_forward(&s);
      close_subject(&s);
    }
}

/* Planes that an earlier call has made stand for the values, which may change or go. */
static void planes_are_made_once(void **state) {
  static const char *const precisions[] = {"bf16", "fp16", "fp16x3", "fp32"};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct subject s = open_subject(*state, precisions[p], sizes[1]);
    struct mn_block_matrix *const both[] = {&s.call.x, &s.call.weight};
    const int64_t each = (int64_t)mn_block_plane_bytes(s.device, &s.call);
    for (int i = 0; i < 2; i++)
      both[i]->planes = take_bytes(&s.memory, each * s.counts[i] + MN_BLOCK_PLANES_MORE, 1);
    must_forward(&s);
    for (int i = 0; i < 2 && each; i++) {
      both[i]->ready = 1;
      both[i]->values = take_reals(&s.memory, NULL, s.counts[i]);
    }
    must_forward(&s);
    must_backward(&s, 0);
    close_subject(&s);
  }
}

/* 16-bit values are what products read of floats that they hold; in a module of 16 bits all of the tape's matrices
 * are. */
static void narrow_values(void **state) {
  static const char *const precisions[] = {"bf16", "fp16"};
  static const int64_t ours[] = {256, 768, 4096, 128};
  for (size_t p = 0; p < COUNT(precisions); p++)
    for (size_t k = 0; k <= COUNT(sizes); k++) {
      struct subject s = open_subject(*state, precisions[p], k < COUNT(sizes) ? sizes[k] : ours);
      s.call.x.values = take_narrow(&s, s.x, s.counts[0]), s.call.x.narrow = 1;
      s.call.weight.values = take_narrow(&s, s.parameters[0], s.counts[1]), s.call.weight.narrow = 1;
      must_forward(&s);
      must_backward(&s, 0);
      must_forward_narrow(&s, MN_NARROW_Z);
      must_forward_narrow(&s, MN_NARROW_MODULE);
      must_backward_narrow(&s);
      close_subject(&s);
    }
}

static void no_narrow_values(void **state) {
  struct subject s = open_subject(*state, "bf16", sizes[0]);
  s.call.x.narrow = 1;
  assert_int_equal(mn_block_forward(s.device, &s.call), MN_USAGE);
  assert_non_null(strstr(mn_message(), "takes no 16-bit values"));
  close_subject(&s);
}

static void refused(struct subject *s, mn_status (*which)(struct mn_device *, const struct mn_block_call *),
                    const char *words) {
  assert_int_equal(which(s->device, &s->call), MN_USAGE);
  if (!strstr(mn_message(), words)) fail_msg("'%s' does not say '%s'", mn_message(), words);
}

static void refusals(void **state) {
  struct subject s = open_subject(*state, "fp32", sizes[0]);
  const struct mn_block_call good = s.call;
  s.call.size -= 8, refused(&s, mn_block_forward, "another version"), s.call = good;
  s.call.groups = 5, refused(&s, mn_block_forward, "5 groups do not divide 24 channels"), s.call = good;
  s.call.rows = 0, refused(&s, mn_block_forward, "0 rows"), s.call = good;
  s.call.inputs = (int64_t)1 << 31, refused(&s, mn_block_forward, "1 to 1073741823"), s.call = good;
  s.call.eps = NAN, refused(&s, mn_block_forward, "eps"), s.call = good;
  s.call.bias = NULL, refused(&s, mn_block_forward, "is NULL"), s.call = good;
  s.call.z = (char *)s.call.z + 4, refused(&s, mn_block_forward, "multiple of 16"), s.call = good;
  s.call.x.planes = (char *)s.call.z + 8, refused(&s, mn_block_forward, "x.planes"), s.call = good;
  s.call.workspace = (char *)s.call.z + 16;
  if (strcmp(*state, "cuda") == 0) refused(&s, mn_block_forward, "multiple of 256");
  s.call = good;
  s.call.narrow = MN_NARROW_Z, refused(&s, mn_block_forward, "takes no 16-bit values"), s.call = good;
  s.call.dy = good.y, refused(&s, mn_block_forward, "takes no dy"), s.call = good;
  s.call.size -= 8, assert_int_equal(mn_block_workspace(s.device, &s.call), 0), s.call = good;
  s.call.dy = good.y, s.call.workspace = NULL, refused(&s, mn_block_backward, "needs a workspace"),
  s.call = good;
  refused(&s, mn_block_backward, "is NULL"); /* no dy */
  s.call.dy = good.y, s.call.mean = NULL, refused(&s, mn_block_backward, "is NULL"), s.call = good;
  close_subject(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(as_on_the_tape),
      BOTH(planes_are_made_once),
      ON("cpu", no_narrow_values),
      ON("cuda", narrow_values),
      BOTH(refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
