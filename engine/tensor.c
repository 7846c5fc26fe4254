/* Parameters and their buffers. */
#include "engine/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mn_status mn_tensor_check_shape(const char *name, int64_t rows, int64_t cols) {
  if (rows >= 1 && rows <= INT32_MAX && cols >= 1 && cols <= INT32_MAX) return MN_OK;
  return mn_fail(MN_USAGE, "%s cannot have %ld rows of %ld; 1 to %d of each work", name, (long)rows,
                 (long)cols, INT32_MAX);
}

mn_status mn_tensor_check(const struct mn_tensor *tensor, int64_t rows, int64_t cols) {
  const struct mn_operand *value = &tensor->value;
  if (value->rows == rows && value->cols == cols) return MN_OK;
  return mn_fail(MN_USAGE, "%s is [%ld, %ld], but has to be [%ld, %ld] here", tensor->name, (long)value->rows,
                 (long)value->cols, (long)rows, (long)cols);
}

/* Planes of a shard are taken by all ranks or not at all: ranks agree on the scales, but two planes might fit
 * only some shards if their sizes differ. */
static int has_planes(const struct mn_device *device, const struct mn_operand *w) {
  const int even = !w->whole || w->whole % mn_ranks_shards(device->ranks) == 0;
  return mn_has_planes(device, w->rows, w->cols) && (device->planes == 1 || even);
}

/* The real form or, of a weight that is split on CUDA, the lower halves; a matrix's planes and, if they
 * are scaled, the scales. */
static mn_status take_forms(struct mn_device *device, struct mn_tensor *tensor) {
  static const struct mn_scale first[2] = {{1, 0}, {0, 0}};
  struct mn_operand *w = &tensor->value;
  const int planes = tensor->rank == 2 && has_planes(device, w);
  w->split = tensor->rank == 2 && device->precision == MN_BF16;
  w->stale = !w->split;
  if (w->split && device->type == MN_DEVICE_CUDA)
    MN_TRY(mn_device_allocate(device, (void **)&w->low, w->rows * w->cols, sizeof *w->low));
  else
    MN_TRY(mn_device_allocate_shared(device, planes ? NULL : tensor->shared, &w->real, w->rows * w->cols,
                                     device->real));
  for (int i = 0; i < device->planes && planes; i++)
    MN_TRY(
        mn_device_allocate_shared(device, tensor->shared, &w->planes[i], w->rows * w->cols, device->plane));
  if (!device->scaled || !planes) return MN_OK;
  MN_TRY(mn_device_allocate(device, (void **)&tensor->scales, 2, sizeof *tensor->scales));
  w->scale = &tensor->scales[0];
  w->headroom = MN_HEADROOM_W;
  return mn_copy(device, tensor->scales, first, sizeof first);
}

mn_status mn_tensor_parameter(struct mn_device *device, struct mn_tensor **out, const char *name, int rank,
                              int64_t rows, int64_t cols, int64_t first, int64_t whole) {
  *out = NULL;
  MN_TRY(mn_tensor_check_shape(name, rows, cols));
  struct mn_tensor *tensor = calloc(1, sizeof *tensor);
  if (!tensor) return mn_fail(MN_NO_MEMORY, "no memory for parameter %s", name);
  snprintf(tensor->name, sizeof tensor->name, "%s", name);
  tensor->rank = rank;
  tensor->value.rows = rows;
  tensor->value.cols = cols;
  tensor->first = first;
  tensor->whole = whole ? whole : mn_tensor_outputs(tensor);
  if (rank == 2 && rows < whole) tensor->value.whole = whole;
  const int replicas = mn_ranks_replicas(device->ranks);
  if (rank == 2 && replicas > 1 && rows % replicas == 0) tensor->shared = &device->ranks->replicas;
  mn_status status = take_forms(device, tensor);
  if (status != MN_OK) {
    mn_tensor_free(device, tensor);
    return status;
  }
  *out = tensor;
  return MN_OK;
}

void mn_tensor_free(struct mn_device *device, struct mn_tensor *tensor) {
  if (!tensor) return;
  int64_t count = mn_tensor_count(tensor);
  if (!tensor->outside) {
    mn_device_release(device, tensor->value.real, count, device->real);
    mn_device_release(device, tensor->value.low, count, sizeof *tensor->value.low);
    for (int i = 0; i < 2; i++) mn_device_release(device, tensor->value.planes[i], count, device->plane);
  }
  mn_device_release(device, tensor->scales, 2, sizeof *tensor->scales);
  mn_device_release(device, tensor->gradient, count, device->real);
  mn_device_release(device, tensor->update.m, count, device->real);
  mn_device_release(device, tensor->update.v, count, device->real);
  free(tensor);
}

/* Whether the tensor needs a gradient buffer. An update does without for a vector, whose column sums are
 * never stored as a gradient, nor if the GEMM needs no memory for the product (struct mn_epilogue, into). */
static int needs_buffer(const struct mn_device *device, const struct mn_tensor *tensor,
                        enum mn_epilogue_kind how, const struct mn_rule *rule) {
  return how != MN_UPDATE || (tensor->rank == 2 && device->type == MN_DEVICE_CPU && !mn_rule_by_gemm(rule));
}

/* Takes `count` reals, all 0, unless *reals are there; or gives them back if they are not kept. */
static mn_status keep_reals(struct mn_device *device, void **reals, int64_t count, int kept) {
  if (kept && *reals) return MN_OK;
  mn_device_release(device, *reals, count, device->real);
  *reals = NULL;
  if (!kept) return MN_OK;
  MN_TRY(mn_device_allocate(device, reals, count, device->real));
  return mn_zero(device, *reals, (size_t)count * device->real);
}

mn_status mn_tensor_train(struct mn_device *device, struct mn_tensor *tensor, enum mn_epilogue_kind how,
                          const struct mn_rule *rule) {
  int64_t count = mn_tensor_count(tensor);
  size_t real = device->real;
  if (needs_buffer(device, tensor, how, rule) && !tensor->gradient)
    MN_TRY(mn_device_allocate_shared(device, tensor->shared, &tensor->gradient, count, real));
  if (how == MN_ADD) MN_TRY(mn_zero(device, tensor->gradient, (size_t)count * real));
  struct mn_update *update = &tensor->update;
  MN_TRY(keep_reals(device, &update->m, count, rule && mn_rule_keeps_m(rule)));
  MN_TRY(keep_reals(device, &update->v, count, rule && mn_rule_keeps_v(rule)));
  update->w = &tensor->value, update->rule = rule, update->clears = how == MN_ADD;
  tensor->needs_gradient = 1;
  tensor->sink = (struct mn_epilogue){.kind = how, .into = tensor->gradient, .update = update};
  if (how == MN_STORE && tensor->shared) tensor->sink.kind = MN_REDUCE_SCATTER_ROWS;
  tensor->summed = how == MN_STORE && !tensor->shared && mn_ranks_replicas(device->ranks) > 1;
  return MN_OK;
}

mn_status mn_operand_prepare(struct mn_device *device, struct mn_operand *operand) {
  if (operand->planes[0] && operand->stale) return mn_round(device, operand, 1);
  operand->stale = 0;
  return MN_OK;
}

/* ---- values ---- */

/* A split weight is written and read in pieces of this many floats, in pinned memory. */
enum { PIECE = 1 << 20 };

/* The destination of all pieces, `wide` or `narrow`; if both are NULL the weight is written, from `from` or,
 * if that is NULL too, with uniform numbers. */
struct whole {
  const double *from;
  uint64_t seed, drawn; /* the first is number `drawn` of its sequence */
  uint32_t sequence;
  double bound;
  double *wide;
  float *narrow;
};

/* Writes the elements of a split weight from `first` on. On CUDA no float stays beside the halves. */
static mn_status split(struct mn_device *device, const struct mn_operand *w, int64_t first, float *floats,
                       int64_t count) {
  struct mn_operand part = *w;
  MN_REQUIRE(first >= 0 && count > 0 && first + count <= w->rows * w->cols);
  part.rows = 1, part.cols = count, part.real = w->low ? floats : (float *)w->real + first;
  part.planes[0] = (char *)w->planes[0] + (size_t)first * device->plane;
  part.low = w->low ? w->low + first : NULL;
  if (!w->low) MN_TRY(mn_copy(device, part.real, floats, (size_t)count * sizeof *floats));
  return mn_round(device, &part, 0);
}

/* The host's next use of the floats is behind the device's. */
static mn_status move_piece(struct mn_device *device, const struct mn_operand *w, float *floats,
                            int64_t first, int64_t count, const struct whole *whole) {
  const int reads = whole->wide || whole->narrow;
  for (int64_t i = 0; i < count && whole->from; i++) floats[i] = (float)whole->from[first + i];
  if (!reads && !whole->from)
    MN_TRY(mn_uniform(device, floats, count, whole->seed, whole->sequence, whole->drawn + (uint64_t)first,
                      whole->bound));
  MN_TRY(reads ? mn_narrow(device, floats, w, first, count) : split(device, w, first, floats, count));
  MN_TRY(mn_synchronize(device));
  for (int64_t i = 0; i < count && whole->wide; i++) whole->wide[first + i] = floats[i];
  if (whole->narrow) memcpy(whole->narrow + first, floats, (size_t)count * sizeof *floats);
  return MN_OK;
}

static mn_status in_pieces(struct mn_device *device, const struct mn_tensor *tensor,
                           const struct whole *whole) {
  const int64_t all = mn_tensor_count(tensor), most = all < PIECE ? all : PIECE;
  float *floats;
  mn_status status = MN_OK;
  MN_TRY(mn_allocate_host(device, (void **)&floats, (size_t)most * sizeof *floats));
  for (int64_t first = 0; first < all && status == MN_OK; first += most)
    status =
        move_piece(device, &tensor->value, floats, first, all - first < most ? all - first : most, whole);
  mn_release_host(device, floats);
  return status;
}

mn_status mn_tensor_write(struct mn_device *device, struct mn_tensor *tensor, const double *from) {
  if (tensor->value.split) return in_pieces(device, tensor, &(struct whole){.from = from});
  MN_TRY(mn_device_write(device, tensor->value.real, from, mn_tensor_count(tensor)));
  tensor->value.stale = 1;
  return mn_operand_prepare(device, &tensor->value);
}

mn_status mn_tensor_uniform(struct mn_device *device, struct mn_tensor *tensor, uint64_t seed,
                            uint32_t sequence, uint64_t first, double bound) {
  const struct whole whole = {.seed = seed, .sequence = sequence, .drawn = first, .bound = bound};
  if (tensor->value.split) return in_pieces(device, tensor, &whole);
  MN_TRY(mn_uniform(device, tensor->value.real, mn_tensor_count(tensor), seed, sequence, first, bound));
  tensor->value.stale = 1;
  return mn_operand_prepare(device, &tensor->value);
}

mn_status mn_tensor_read(struct mn_device *device, const struct mn_tensor *tensor, double *to) {
  if (tensor->value.split) return in_pieces(device, tensor, &(struct whole){.wide = to});
  MN_REQUIRE(tensor->value.real);
  return mn_device_read(device, to, tensor->value.real, mn_tensor_count(tensor));
}

mn_status mn_tensor_download(struct mn_device *device, const struct mn_tensor *tensor, void *to) {
  if (tensor->value.split) return in_pieces(device, tensor, &(struct whole){.narrow = to});
  return mn_download(device, to, tensor->value.real, (size_t)mn_tensor_count(tensor) * device->real);
}

mn_status mn_tensor_copy(struct mn_device *device, const struct mn_tensor *tensor, void *to) {
  const int64_t count = mn_tensor_count(tensor);
  if (tensor->value.split) return mn_narrow(device, to, &tensor->value, 0, count);
  return mn_copy(device, to, tensor->value.real, (size_t)count * device->real);
}
