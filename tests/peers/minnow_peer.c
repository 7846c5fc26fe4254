/* What tests/peers times of minnow, behind a C interface for Python's ctypes.
 *
 * A handle is one operation that is called many times, with a device, a CUDA stream and random data of its
 * own. A call only gives work to the device, as it does for every other peer; the caller takes the time.
 * Every int returned is a mn_status; mn_message(), which this library exports too, says why. */
#include <stdlib.h>
#include <string.h>

#include "kernels/planes.h"
#include "tests/all.h"

/* In the order of `names`, by which minnow_peer_open takes them. */
enum what { FORWARD, STEP, PRODUCT_NT, PRODUCT_NN, PRODUCT_TN, PRODUCT_OWN, COPY, WHATS };
static const char *const names[WHATS] = {"forward", "step", "x*W^T", "dz*W", "dz^T*x", "product", "copy"};

enum { SEED = 7 };
static const size_t COPIED_BYTES = (size_t)512 << 20;  /* larger than any cache */
static const size_t FLUSHED_BYTES = (size_t)256 << 20; /* as KernelBench flushes the L2 cache */

struct minnow_peer {
  enum what what;
  struct mn_device *device;
  struct mn_model *model;         /* FORWARD, STEP */
  struct mn_optimizer *optimizer; /* STEP */
  struct mn_pass *pass;
  struct mn_tensor *left, *right;    /* PRODUCT_… */
  void *from, *into;                 /* COPY; where a product is stored */
  void *floats[MN_MODEL_PARAMETERS]; /* of weights that the model keeps split: taken by the first cold cast */
  void *flushed;                     /* taken by the first minnow_peer_cold */
};

/* shape: N, I, the C of each block, G; `numbers` of them. classes: the outputs of a head, with their
 * cross-entropy, or 0. Products are those of the first block: by the library, but "product", which is x*W^T by
 * whatever GEMM a forward takes. `*out` is the caller's, for minnow_peer_close. */
MN_API int minnow_peer_open(struct minnow_peer **out, const char *what, const int64_t *shape, int numbers,
                            int classes, const char *device, const char *precision);
MN_API void minnow_peer_close(struct minnow_peer *peer); /* NULL is fine */
MN_API int minnow_peer_call(struct minnow_peer *peer);
MN_API int minnow_peer_sync(struct minnow_peer *peer);
/* MN_FAILED after values that are not finite, which updates skip: such a step looks faster than it is. */
MN_API int minnow_peer_check(struct minnow_peer *peer);
/* What a forward or a step holds on the device. */
MN_API int64_t minnow_peer_bytes(const struct minnow_peer *peer);
/* The milliseconds of one call, by the device's own clock, after the L2 cache was flushed. cast: what GEMMs
 * read is made of the floats within that time, of the weights (1) or of x too (2); FORWARD only. */
MN_API int minnow_peer_cold(struct minnow_peer *peer, int cast, double *milliseconds);
/* Parameters by PyTorch's names, and "x", from floats on the host; y to them. FORWARD only. */
MN_API int minnow_peer_write(struct minnow_peer *peer, const char *name, const float *values);
MN_API int minnow_peer_read(struct minnow_peer *peer, float *y);
/* A row of a product's left (0) or right (1) matrix, as floats before they are rounded, or of its result (2).
 */
MN_API int minnow_peer_row(struct minnow_peer *peer, int which, int64_t row, float *values);
MN_API const char *minnow_peer_version(void);

static mn_status fill(struct mn_device *device, struct mn_tensor *tensor, uint32_t which) {
  return mn_tensor_uniform(device, tensor, SEED, MN_RANDOM_CHECK + which, 0, 1);
}

static mn_status fill_labels(struct minnow_peer *p, int64_t rows, int classes) {
  int32_t *labels = malloc((size_t)rows * sizeof *labels);
  if (!labels) return mn_fail(MN_NO_MEMORY, "no memory for labels");
  for (int64_t i = 0; i < rows; i++) labels[i] = (int32_t)(i % classes);
  mn_status status = mn_copy(p->device, p->pass->labels, labels, (size_t)rows * sizeof *labels);
  if (status == MN_OK) status = mn_synchronize(p->device);
  free(labels);
  return status;
}

/* The rate is so small that no number of steps leads the weights anywhere. */
static mn_status open_model(struct minnow_peer *p, const int64_t *shape, int numbers, int classes) {
  struct mn_model_config config = {.inputs = shape[1],
                                   .depth = numbers - 3,
                                   .groups = shape[numbers - 1],
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .head = classes,
                                   .loss = classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE,
                                   .plan = MN_PLAN_STACK};
  if (config.depth > MN_MODEL_DEPTH) return mn_fail(MN_USAGE, "%ld blocks are too many", (long)config.depth);
  memcpy(config.hidden, shape + 2, (size_t)config.depth * sizeof *shape);
  MN_TRY(mn_model_open(&p->model, p->device, &config));
  MN_TRY(mn_model_initialise(p->model, SEED));
  for (int i = 0; i < config.depth; i++) {
    struct mn_tensor *const *parameters = p->model->layers[i].parameters;
    MN_TRY(fill(p->device, parameters[MN_BLOCK_GAMMA], 8 + 2 * (uint32_t)i));
    MN_TRY(fill(p->device, parameters[MN_BLOCK_BETA], 9 + 2 * (uint32_t)i));
  }
  if (p->what == STEP) {
    struct mn_optimizer_config sgd = {.rule = {.momentum = 0.9}, .accumulate = 1};
    MN_TRY(mn_optimizer_open(&p->optimizer, p->model, &sgd));
    MN_TRY(mn_optimizer_rate(p->optimizer, 1e-6, 0));
  }
  /* y in the precision's own form, as the peers leave theirs. */
  enum mn_pass_kind kind = p->what == STEP ? MN_PASS_TRAIN : MN_PASS_FORWARD;
  MN_TRY(mn_pass_open(&p->pass, p->model, kind, shape[0], 1, 0));
  MN_TRY(fill(p->device, p->pass->x, 2));
  if (p->pass->target) return fill(p->device, p->pass->target, 3);
  return p->what == STEP && classes ? fill_labels(p, shape[0], classes) : MN_OK;
}

/* x [N, I], W [C, I] and dz [N, C] are the operands, two of them at a time. */
static mn_status open_product(struct minnow_peer *p, const int64_t *shape) {
  int64_t n = shape[0], i = shape[1], c = shape[2];
  int forward = p->what == PRODUCT_NT || p->what == PRODUCT_OWN;
  int64_t results = forward ? n * c : p->what == PRODUCT_NN ? n * i : c * i;
  p->device->force_cublas = p->what != PRODUCT_OWN; /* this is what our own products are held against */
  MN_TRY(mn_tensor_parameter(p->device, &p->left, "left", 2, n, forward ? i : c, 0, 0));
  MN_TRY(mn_tensor_parameter(p->device, &p->right, "right", 2, p->what == PRODUCT_TN ? n : c, i, 0, 0));
  MN_TRY(fill(p->device, p->left, 4));
  MN_TRY(fill(p->device, p->right, 5));
  return p->device->kernels->allocate(p->device, &p->into, (size_t)results * p->device->real);
}

static mn_status open_copy(struct minnow_peer *p) {
  const struct mn_kernels *k = p->device->kernels;
  MN_TRY(k->allocate(p->device, &p->from, COPIED_BYTES));
  MN_TRY(k->allocate(p->device, &p->into, COPIED_BYTES));
  return k->uniform(p->device, p->from, (int64_t)(COPIED_BYTES / p->device->real), SEED, MN_RANDOM_CHECK + 6,
                    0, 1);
}

static mn_status open_parts(struct minnow_peer *p, const char *what, const int64_t *shape, int numbers,
                            int classes, const char *name, const char *precision) {
  while (p->what < WHATS && strcmp(names[p->what], what) != 0) p->what++;
  if (p->what == WHATS) return mn_fail(MN_USAGE, "nothing to time is called '%s'", what);
  MN_TRY(mn_device_open(&p->device, name, precision, 0));
  if (p->what == COPY) return open_copy(p);
  return p->what < PRODUCT_NT ? open_model(p, shape, numbers, classes) : open_product(p, shape);
}

int minnow_peer_open(struct minnow_peer **out, const char *what, const int64_t *shape, int numbers,
                     int classes, const char *device, const char *precision) {
  struct minnow_peer *p = *out = calloc(1, sizeof *p);
  if (!p) return mn_fail(MN_NO_MEMORY, "no memory for a peer");
  mn_status status = open_parts(p, what, shape, numbers, classes, device, precision);
  if (status == MN_OK) return MN_OK;
  minnow_peer_close(p);
  *out = NULL;
  return status;
}

void minnow_peer_close(struct minnow_peer *p) {
  if (!p) return;
  mn_pass_close(p->pass);
  mn_optimizer_close(p->optimizer);
  mn_model_close(p->model);
  for (int i = 0; i < MN_MODEL_PARAMETERS; i++)
    if (p->floats[i]) p->device->kernels->release(p->device, p->floats[i]);
  if (p->device) {
    mn_tensor_free(p->device, p->left);
    mn_tensor_free(p->device, p->right);
    void *const buffers[] = {p->from, p->into, p->flushed};
    for (int i = 0; i < 3; i++) p->device->kernels->release(p->device, buffers[i]);
  }
  mn_device_close(p->device);
  free(p);
}

int minnow_peer_call(struct minnow_peer *p) {
  static const enum mn_form forms[WHATS] = {
      [PRODUCT_NT] = MN_NT, [PRODUCT_NN] = MN_NN, [PRODUCT_TN] = MN_TN, [PRODUCT_OWN] = MN_NT};
  struct mn_device *device = p->device;
  if (p->what == FORWARD || p->what == STEP) {
    MN_TRY(mn_tape_replay(p->pass->tape, 0));
    return p->what == STEP ? mn_optimizer_step(p->optimizer, p->pass->tape) : MN_OK;
  }
  if (p->what == COPY) return p->device->kernels->copy(device, p->into, p->from, COPIED_BYTES);
  struct mn_epilogue store = {.kind = MN_STORE, .into = p->into};
  return p->device->kernels->gemm(device, forms[p->what], &p->left->value, &p->right->value, &store);
}

int minnow_peer_sync(struct minnow_peer *p) {
  return p->device->kernels->synchronize(p->device);
}

int minnow_peer_check(struct minnow_peer *p) {
  int nonfinite = 0;
  if (p->pass) MN_TRY(mn_tape_nonfinite(p->pass->tape, &nonfinite));
  return nonfinite ? mn_fail(MN_FAILED, "values that are not finite: this time means nothing") : MN_OK;
}

int64_t minnow_peer_bytes(const struct minnow_peer *p) {
  return (int64_t)p->device->bytes;
}

/* The floats that casts of weights read, where the model has none. */
static mn_status take_floats(struct minnow_peer *p) {
  const struct mn_kernels *k = p->device->kernels;
  for (int i = 0; i < p->model->count; i++) {
    const struct mn_tensor *t = p->model->parameters[i];
    if (t->rank != 2 || t->value.real || p->floats[i]) continue;
    size_t bytes = (size_t)mn_tensor_count(t) * sizeof(float);
    MN_TRY(k->allocate(p->device, &p->floats[i], bytes));
    MN_TRY(mn_tensor_copy(p->device, t, p->floats[i]));
  }
  return MN_OK;
}

/* floats: where the operand has no real form; of its halves the upper ones alone are written. */
static mn_status cast_again(struct mn_device *device, const struct mn_operand *operand, void *floats) {
  struct mn_operand from = *operand;
  if (floats) from.real = floats, from.low = NULL;
  return from.planes[0] ? device->kernels->round(device, &from, 1) : MN_OK;
}

int minnow_peer_cold(struct minnow_peer *p, int cast, double *milliseconds) {
  const struct mn_kernels *k = p->device->kernels;
  struct mn_device *device = p->device;
  if (!p->flushed) MN_TRY(k->allocate(device, &p->flushed, FLUSHED_BYTES));
  if (cast) MN_TRY(take_floats(p));
  MN_TRY(k->zero(device, p->flushed, FLUSHED_BYTES));
  MN_TRY(k->stamp(device, 0));
  for (int i = 0; cast && i < p->model->count; i++)
    if (p->model->parameters[i]->rank == 2)
      MN_TRY(cast_again(p->device, &p->model->parameters[i]->value, p->floats[i]));
  if (cast > 1) MN_TRY(cast_again(p->device, &p->pass->x->value, NULL));
  MN_TRY(minnow_peer_call(p));
  MN_TRY(k->stamp(device, 1));
  return k->elapsed(device, milliseconds);
}

int minnow_peer_write(struct minnow_peer *p, const char *name, const float *values) {
  struct mn_device *device = p->device;
  struct mn_tensor *tensor = strcmp(name, "x") == 0 ? p->pass->x : NULL;
  for (int i = 0; i < p->model->count; i++)
    if (strcmp(p->model->parameters[i]->name, name) == 0) tensor = p->model->parameters[i];
  if (!tensor) return mn_fail(MN_USAGE, "no tensor is called '%s'", name);
  if (device->real != sizeof *values) return mn_fail(MN_USAGE, "only floats are written here");
  const int64_t count = mn_tensor_count(tensor);
  double *wide = malloc((size_t)count * sizeof *wide);
  if (!wide) return mn_fail(MN_NO_MEMORY, "no memory to write %s", name);
  for (int64_t i = 0; i < count; i++) wide[i] = values[i];
  mn_status status = mn_tensor_write(p->device, tensor, wide);
  free(wide);
  return status;
}

/* An element of a plane as a float. A float16's exponent is that of a float less 112; the product is exact.
 */
static float widened(const struct mn_device *device, const void *plane, int64_t i) {
  if (device->plane == sizeof(float)) return ((const float *)plane)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)plane)[i] << 16;
  if (device->scaled) bits = (bits & 0x80000000u) | (bits & 0x7fff0000u) >> 3;
  float value;
  memcpy(&value, &bits, sizeof value);
  return device->scaled ? value * 0x1p112f : value;
}

/* The sum of the planes of `value`; `buffer` has room for one. */
static mn_status read_planes(struct mn_device *device, const struct mn_operand *value, float *y,
                             void *buffer) {
  int64_t count = value->rows * value->cols;
  for (int plane = 0; plane < device->planes; plane++) {
    MN_TRY(device->kernels->download(device, buffer, value->planes[plane], (size_t)count * device->plane));
    for (int64_t i = 0; i < count; i++) y[i] = (plane ? y[i] : 0) + widened(device, buffer, i);
  }
  return MN_OK;
}

int minnow_peer_read(struct minnow_peer *p, float *y) {
  const struct mn_operand *value = &p->pass->y->value;
  const struct mn_kernels *k = p->device->kernels;
  struct mn_device *device = p->device;
  int64_t count = mn_tensor_count(p->pass->y);
  struct mn_scale scale = {.factor = 1};
  if (value->real) return k->download(device, y, value->real, (size_t)count * sizeof *y);
  if (value->scale) MN_TRY(k->download(device, &scale, value->scale, sizeof scale));
  void *buffer = malloc((size_t)count * device->plane);
  if (!buffer) return mn_fail(MN_NO_MEMORY, "no memory to read y");
  mn_status status = read_planes(p->device, value, y, buffer);
  for (int64_t i = 0; i < count && status == MN_OK; i++) y[i] /= scale.factor;
  free(buffer);
  return status;
}

/* A row of a split weight. */
static mn_status read_row(struct mn_device *device, const struct mn_operand *w, int64_t row, float *values) {
  const struct mn_kernels *k = device->kernels;
  const size_t bytes = (size_t)w->cols * sizeof *values;
  float *pinned;
  MN_TRY(k->allocate_host(device, (void **)&pinned, bytes));
  mn_status status = k->narrow(device, pinned, w, row * w->cols, w->cols);
  if (status == MN_OK) status = k->synchronize(device);
  if (status == MN_OK) memcpy(values, pinned, bytes);
  k->release_host(device, pinned);
  return status;
}

int minnow_peer_row(struct minnow_peer *p, int which, int64_t row, float *values) {
  struct mn_device *device = p->device;
  const struct mn_operand *matrix = which == 0 ? &p->left->value : &p->right->value;
  int64_t cols = which == 2 ? p->right->value.rows : matrix->cols;
  const char *from = which == 2 ? p->into : matrix->real;
  if (p->what != PRODUCT_NT && p->what != PRODUCT_OWN) return mn_fail(MN_USAGE, "only x*W^T is read");
  if (device->real != sizeof *values) return mn_fail(MN_USAGE, "only floats are read here");
  if (which != 2 && matrix->split) return read_row(p->device, matrix, row, values);
  size_t bytes = (size_t)cols * sizeof *values;
  return p->device->kernels->download(device, values, from + (size_t)row * bytes, bytes);
}

const char *minnow_peer_version(void) {
  return mn_version();
}
