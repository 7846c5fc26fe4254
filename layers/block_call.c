/* The block's forward and backward on a caller's memory: the kernels that the tape gives to a device for one
 * block (block.c), with every scale chosen by the values themselves, since no step comes before. */
#include "layers/block_call.h"

#include "layers/block.h"

enum { ALIGNMENT = 256 };

/* A caller's memory, of which parts are taken one after the other; NULL: they are only counted. */
struct area {
  char *memory;
  size_t taken;
};

static void *take(struct area *area, size_t bytes) {
  void *part = area->memory ? area->memory + area->taken : NULL;
  area->taken += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return part;
}

/* What a call works on besides the caller's results. */
struct work {
  struct mn_outside outside;
  struct mn_operand x, weight, dz;
  void *product; /* [N, C] reals, for a forward that does not save z */
  void *sums;
};

/* How many planes each of the call's products reads. */
static int planes_of(const struct mn_device *device, const struct mn_block_call *call) {
  return mn_has_planes(device, call->channels, call->inputs) ? device->planes : 0;
}

/* The planes, one directly after the other, and within the MN_BLOCK_PLANES_MORE bytes behind them the scale.
 */
static void take_planes(const struct mn_device *device, struct mn_operand *o, struct area *area, int planes) {
  const size_t plane = (size_t)(o->rows * o->cols) * device->plane, all = (size_t)planes * plane;
  char *memory = planes ? take(area, all + MN_BLOCK_PLANES_MORE) : NULL;
  for (int i = 0; i < planes && memory; i++) o->planes[i] = memory + (size_t)i * plane;
  if (memory && device->scaled) o->scale = (struct mn_scale *)(void *)(memory + (all + 15) / 16 * 16);
  o->headroom = MN_HEADROOM_X;
  o->stale = planes > 0;
}

static struct mn_operand operand_of(const struct mn_device *device, const struct mn_block_matrix *matrix,
                                    int64_t rows, int64_t cols, struct area *area, int planes) {
  struct mn_operand o = {.rows = rows, .cols = cols};
  if (matrix->narrow) {
    o.planes[0] = (void *)matrix->values;
    o.scale = device->scaled ? device->unscaled : NULL;
    return o;
  }
  struct area own = {matrix->planes, 0};
  o.real = (void *)matrix->values;
  take_planes(device, &o, matrix->planes ? &own : area, planes);
  if (matrix->ready) o.stale = 0;
  return o;
}

/* Returns how much of the workspace is taken. dz is written as planes at once where they are not scaled, else
 * as reals, from which its planes are made. */
static size_t lay_out(struct work *work, const struct mn_context *context, const struct mn_block_call *call) {
  const struct mn_device *device = context->device;
  const int planes = planes_of(device, call);
  const size_t results = (size_t)(call->rows * call->channels) * device->real;
  struct area area = {call->workspace, 0};
  *work = (struct work){.outside.stream = call->stream};
  if (device->type == MN_DEVICE_CUDA) {
    work->outside.workspace = take(&area, MN_LIBRARY_WORKSPACE);
    work->outside.scalars = take(&area, MN_LIBRARY_SCALARS);
  }
  if (!call->dy || call->dweight)
    work->x = operand_of(device, &call->x, call->rows, call->inputs, &area, planes);
  if (!call->dy || call->dx)
    work->weight = operand_of(device, &call->weight, call->channels, call->inputs, &area, planes);
  if (!call->dy) {
    if (!call->z) work->product = take(&area, results);
    return area.taken;
  }
  work->dz = (struct mn_operand){.rows = call->rows, .cols = call->channels};
  take_planes(device, &work->dz, &area, planes);
  if (!planes || device->scaled) work->dz.real = take(&area, results);
  work->sums = take(&area, (size_t)(3 * mn_chunks(call->rows) * call->channels) * device->real);
  return area.taken;
}

/* Before anything else is read of the call. */
static mn_status check_size(const struct mn_block_call *call) {
  if (call->size == sizeof *call) return MN_OK;
  return mn_fail(MN_USAGE,
                 "struct mn_block_call has %zu bytes here, not %zu: the caller is of another version",
                 sizeof *call, call->size);
}

static mn_status check_aligned(const char *name, const void *memory, int bytes) {
  if ((uintptr_t)memory % (uintptr_t)bytes == 0) return MN_OK;
  return mn_fail(MN_USAGE, "%s is at %p, which is no multiple of %d bytes", name, memory, bytes);
}

/* What a GEMM would end the process for, or a kernel's grid cannot count. */
static mn_status check(const struct mn_context *context, const struct mn_block_call *call) {
  const int64_t most = INT32_MAX / 2;
  if (call->rows < 1 || call->rows > most || call->inputs < 1 || call->inputs > most || call->channels < 1 ||
      call->channels > most)
    return mn_fail(MN_USAGE, "%ld rows, %ld inputs, %ld channels: 1 to %ld of each work", (long)call->rows,
                   (long)call->inputs, (long)call->channels, (long)most);
  const struct mn_layer layer = {.name = "block",
                                 .inputs = call->inputs,
                                 .outputs = call->channels,
                                 .groups = call->groups,
                                 .eps = call->eps,
                                 .slope = call->slope};
  MN_TRY(mn_block_kind.check(&layer));
  const int parts = context->device->type == MN_DEVICE_CUDA ? ALIGNMENT : 16;
  MN_TRY(check_aligned("z", call->z, 16));
  MN_TRY(check_aligned("dx", call->dx, 16));
  MN_TRY(check_aligned("dweight", call->dweight, 16));
  MN_TRY(check_aligned("x.planes", call->x.planes, parts));
  MN_TRY(check_aligned("weight.planes", call->weight.planes, parts));
  MN_TRY(check_aligned("workspace", call->workspace, parts));
  const enum mn_precision p = context->precision;
  if ((call->x.narrow || call->weight.narrow || call->y_narrow) &&
      (context->device->type != MN_DEVICE_CUDA || (p != MN_BF16 && p != MN_FP16)))
    return mn_fail(MN_USAGE, "%s on %s takes no 16-bit values; floats would do", mn_precision_name(p),
                   context->name);
  return MN_OK;
}

static struct mn_block block_of(const struct mn_block_call *call) {
  return (struct mn_block){.ops = MN_OP_ALL,
                           .rows = call->rows,
                           .channels = call->channels,
                           .groups = call->groups,
                           .eps = call->eps,
                           .slope = call->slope,
                           .bias = call->bias,
                           .gamma = call->gamma,
                           .beta = call->beta,
                           .z = call->z,
                           .mean = call->mean,
                           .rstd = call->rstd};
}

static mn_status forward(struct mn_context *context, const struct mn_block_call *call, struct work *work) {
  struct mn_device *device = context->device;
  const struct mn_block_matrix to = {.values = call->y, .narrow = call->y_narrow};
  struct mn_operand y = operand_of(device, &to, call->rows, call->channels, NULL, 0);
  struct mn_block block = block_of(call);
  block.y = &y;
  MN_TRY(mn_operand_prepare(context, &work->x));
  MN_TRY(mn_operand_prepare(context, &work->weight));
  const struct mn_epilogue epilogue = {
      .kind = MN_BLOCK, .into = call->z ? call->z : work->product, .block = &block};
  return context->kernels->gemm(device, MN_NT, &work->x, &work->weight, &epilogue);
}

static mn_status backward(struct mn_context *context, const struct mn_block_call *call, struct work *work) {
  const struct mn_kernels *k = context->kernels;
  struct mn_device *device = context->device;
  struct mn_operand *dz = &work->dz, written = *dz;
  struct mn_block block = block_of(call);
  if (dz->real)
    written.planes[0] = written.planes[1] = NULL;
  else
    dz->stale = 0;
  block.dz = &written, block.sums = work->sums;
  const struct mn_epilogue through = {.kind = MN_BLOCK_BACKWARD, .block = &block};
  MN_TRY(k->epilogue(device, (void *)call->dy, call->rows, call->channels, &through));
  MN_TRY(mn_operand_prepare(context, dz));
  if (call->dx) {
    const struct mn_epilogue store = {.kind = MN_STORE, .into = call->dx};
    MN_TRY(mn_operand_prepare(context, &work->weight));
    MN_TRY(k->gemm(device, MN_NN, dz, &work->weight, &store));
  }
  if (call->dweight) {
    const struct mn_epilogue store = {.kind = MN_STORE, .into = call->dweight};
    MN_TRY(mn_operand_prepare(context, &work->x));
    MN_TRY(k->gemm(device, MN_TN, dz, &work->x, &store));
  }
  void *const vectors[3] = {call->dbias, call->dgamma, call->dbeta};
  struct mn_epilogue stores[3];
  const struct mn_epilogue *sinks[3];
  for (int i = 0; i < 3; i++) {
    stores[i] = (struct mn_epilogue){.kind = MN_STORE, .into = vectors[i]};
    sinks[i] = vectors[i] ? &stores[i] : NULL;
  }
  return k->column_sums(device, work->sums, mn_chunks(call->rows), call->channels, sinks, NULL);
}

/* Runs it in the caller's stream. */
static mn_status run(struct mn_context *context, const struct mn_block_call *call,
                     mn_status (*part)(struct mn_context *context, const struct mn_block_call *call,
                                       struct work *work)) {
  struct work work;
  MN_TRY(check(context, call));
  if (lay_out(&work, context, call) > 0 && !call->workspace)
    return mn_fail(MN_USAGE, "the call needs a workspace of mn_block_workspace bytes, and has none");
  context->kernels->exchange(context->device, &work.outside);
  mn_status status = part(context, call, &work);
  context->kernels->exchange(context->device, &work.outside);
  return status;
}

size_t mn_block_plane_bytes(const struct mn_context *context) {
  return (size_t)context->device->planes * context->device->plane;
}

size_t mn_block_workspace(const struct mn_context *context, const struct mn_block_call *call) {
  if (call->size != sizeof *call) return 0;
  struct mn_block_call counted = *call;
  struct work work;
  counted.workspace = NULL;
  return lay_out(&work, context, &counted);
}

mn_status mn_block_forward(struct mn_context *context, const struct mn_block_call *call) {
  MN_TRY(check_size(call));
  if (!call->x.values || !call->weight.values || !call->y || !call->bias || !call->gamma || !call->beta)
    return mn_fail(MN_USAGE, "the forward needs x, weight, bias, gamma, beta and y, of which one is NULL");
  if (call->dy) return mn_fail(MN_USAGE, "the forward takes no dy: set it to NULL");
  return run(context, call, forward);
}

mn_status mn_block_backward(struct mn_context *context, const struct mn_block_call *call) {
  MN_TRY(check_size(call));
  if (!call->dy || !call->z || !call->mean || !call->rstd || !call->gamma || !call->beta ||
      (call->dx && !call->weight.values) || (call->dweight && !call->x.values))
    return mn_fail(MN_USAGE, "the backward needs dy, z, mean, rstd, gamma and beta, weight for dx, and x for "
                             "dweight, of which one is NULL");
  return run(context, call, backward);
}
