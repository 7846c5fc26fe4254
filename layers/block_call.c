/* The block's forward, backward and update on a caller's memory: the kernels that the tape gives to a device
 * for one block (block.c). Planes are scaled by the largest value of the call itself. */
#include "layers/block_call.h"

#include <string.h>

#include "layers/norms.h"

enum { ALIGNMENT = 256 };

/* A caller's memory, of which parts are taken one after the other; if it is NULL they are only counted. */
struct area {
  char *memory;
  size_t taken;
};

static void *take_bytes(struct area *area, size_t bytes) {
  void *part = area->memory ? area->memory + area->taken : NULL;
  area->taken += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return part;
}

/* The inputs and workspace of a call. */
struct work {
  struct mn_outside outside;
  struct mn_operand x, dz, of[MN_BLOCK_PARAMETERS]; /* but in an update, of the parameters the weight alone */
  /* A forward's, [N, C] reals: z or y, if one of them is such, else memory of its own. An update's, [C, I]
   * reals, in which the CPU's GEMM leaves the gradient for the rule. */
  void *product;
  void *sums;
  void *summed; /* an update's, on the CPU, whose column_sums overwrites what it sums: a copy of the sums */
};

/* How many planes each of a block's products reads. */
static int planes_of(const struct mn_device *device, const struct mn_block_call *call) {
  return mn_has_planes(device, call->channels, call->inputs) ? device->planes : 0;
}

/* The planes, one directly after the other, and within the MN_BLOCK_PLANES_MORE bytes behind them the scale.
 */
static void take_planes(const struct mn_device *device, struct mn_operand *o, struct area *area, int planes) {
  const size_t plane = (size_t)(o->rows * o->cols) * device->plane, all = (size_t)planes * plane;
  char *memory = planes ? take_bytes(area, all + MN_BLOCK_PLANES_MORE) : NULL;
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
  if (matrix->updated) o.headroom = MN_HEADROOM_W;
  return o;
}

/* The caller's stream, memory and flag, which the device uses in place of its own during a call. */
static struct mn_outside outside_of(const struct mn_device *device, const struct mn_block_call *call,
                                    struct area *area) {
  struct mn_outside o = {.ordinal = device->ordinal,
                         .stream = call->stream,
                         .nonfinite = call->nonfinite ? call->nonfinite : device->nonfinite,
                         .mark = call->nonfinite ? MN_BLOCK_NONFINITE : device->mark};
  if (device->type != MN_DEVICE_CUDA) return o;
  o.workspace = take_bytes(area, MN_LIBRARY_WORKSPACE);
  o.scalars = take_bytes(area, MN_LIBRARY_SCALARS);
  return o;
}

static size_t sums_bytes(const struct mn_device *device, const struct mn_block_call *call) {
  return (size_t)(3 * mn_chunks(call->rows) * call->channels) * device->real;
}

/* Lays out dz, [rows, channels] as products read it, and the column sums, whose memory it returns. */
static void *lay_out_pair(const struct mn_device *device, const struct mn_block_call *call,
                          struct mn_operand *dz, struct area *area) {
  const int planes = planes_of(device, call);
  *dz = (struct mn_operand){.rows = call->rows, .cols = call->channels};
  if (planes)
    take_planes(device, dz, area, planes);
  else
    dz->real = take_bytes(area, (size_t)(dz->rows * dz->cols) * device->real);
  return take_bytes(area, sums_bytes(device, call));
}

/* A parameter in all its forms. Narrow float16s are not scaled. */
static struct mn_operand parameter_of(const struct mn_device *device, const struct mn_block_call *call,
                                      int which, int planes) {
  const struct mn_block_parameter *p = &call->of[which];
  const int weight = which == MN_BLOCK_WEIGHT;
  const int64_t rows = weight ? call->channels : 1, cols = weight ? call->inputs : call->channels;
  const struct mn_block_matrix matrix = {.values = p->narrow ? p->narrow : p->values,
                                         .planes = weight ? call->weight.planes : NULL,
                                         .narrow = p->narrow != NULL,
                                         .ready = 1};
  struct mn_operand w = operand_of(device, &matrix, rows, cols, NULL, matrix.planes ? planes : 0);
  if (weight && p->narrow && device->precision == MN_BF16)
    w.split = 1, w.low = p->values;
  else
    w.real = p->values;
  return w;
}

static size_t lay_out_update(struct work *work, const struct mn_device *device,
                             const struct mn_block_call *call) {
  const int planes = planes_of(device, call);
  struct area area = {call->workspace, 0}, pair = {call->pair, 0};
  *work = (struct work){.outside = outside_of(device, call, &area)};
  if (device->type == MN_DEVICE_CUDA)
    work->outside.scratch = take_bytes(&area, MN_LIBRARY_WORKSPACE);
  else
    work->product = take_bytes(&area, (size_t)(call->channels * call->inputs) * device->real),
    work->summed = take_bytes(&area, sums_bytes(device, call));
  work->x = operand_of(device, &call->x, call->rows, call->inputs, &area, planes);
  work->sums = lay_out_pair(device, call, &work->dz, &pair);
  work->dz.stale = 0;
  for (int i = 0; i < MN_BLOCK_PARAMETERS; i++) work->of[i] = parameter_of(device, call, i, planes);
  return area.taken;
}

/* Returns how much of the workspace is taken. dz is written as planes at once if they are not scaled, else as
 * reals, from which its planes are made. A GEMM that is not our own rounds a result of 16 bits from scratch
 * memory. */
static size_t lay_out(struct work *work, const struct mn_device *device, const struct mn_block_call *call) {
  const int planes = planes_of(device, call);
  const size_t results = (size_t)(call->rows * call->channels) * device->real;
  struct area area = {call->workspace, 0}, pair = {call->pair, 0};
  if (call->rule.rate) return lay_out_update(work, device, call);
  *work = (struct work){.outside = outside_of(device, call, &area)};
  if (call->narrow == MN_NARROW_MODULE && (call->dx || call->dweight))
    work->outside.scratch = take_bytes(&area, MN_LIBRARY_WORKSPACE);
  if (!call->dy || call->dweight)
    work->x = operand_of(device, &call->x, call->rows, call->inputs, &area, planes);
  if (!call->dy || call->dx)
    work->of[MN_BLOCK_WEIGHT] =
        operand_of(device, &call->weight, call->channels, call->inputs, &area, planes);
  if (!call->dy) {
    if (call->narrow == MN_NARROW_MODULE)
      work->product = take_bytes(&area, results);
    else
      work->product = call->z && !call->narrow ? call->z : call->y;
    return area.taken;
  }
  work->sums = lay_out_pair(device, call, &work->dz, call->pair ? &pair : &area);
  if (planes && device->scaled) work->dz.real = take_bytes(&area, results);
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

/* Refuses sizes for which a GEMM would end the process, or which a kernel's grid cannot count. */
static mn_status check_call(const struct mn_device *device, const struct mn_block_call *call) {
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
  const int parts = device->type == MN_DEVICE_CUDA ? ALIGNMENT : 16;
  MN_TRY(check_aligned("y", call->y, 16));
  MN_TRY(check_aligned("z", call->z, 16));
  MN_TRY(check_aligned("dx", call->dx, 16));
  MN_TRY(check_aligned("dweight", call->dweight, 16));
  if (planes_of(device, call) > 0 &&
      ((call->x.ready && !call->x.planes) || (call->weight.ready && !call->weight.planes)))
    return mn_fail(MN_USAGE, "planes that are ready are NULL");
  MN_TRY(check_aligned("x.planes", call->x.planes, parts));
  MN_TRY(check_aligned("weight.planes", call->weight.planes, parts));
  MN_TRY(check_aligned("pair", call->pair, parts));
  MN_TRY(check_aligned("workspace", call->workspace, parts));
  int narrow = call->x.narrow || call->weight.narrow || call->narrow;
  for (int i = 0; i < MN_BLOCK_PARAMETERS; i++) narrow |= call->of[i].narrow != NULL;
  if (narrow && (device->type != MN_DEVICE_CUDA || device->planes != 1))
    return mn_fail(MN_USAGE, "%s on %s takes no 16-bit values; floats would do",
                   mn_precision_name(device->precision), device->name);
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
                           .rstd = call->rstd,
                           .narrow = call->narrow};
}

static mn_status forward(struct mn_device *device, const struct mn_block_call *call, struct work *work) {
  const struct mn_block_matrix to = {.values = call->y, .narrow = call->narrow == MN_NARROW_MODULE};
  struct mn_operand y = operand_of(device, &to, call->rows, call->channels, NULL, 0);
  struct mn_block block = block_of(call);
  block.y = &y;
  MN_TRY(mn_operand_prepare(device, &work->x));
  MN_TRY(mn_operand_prepare(device, &work->of[MN_BLOCK_WEIGHT]));
  const struct mn_epilogue epilogue = {.kind = MN_BLOCK, .into = work->product, .block = &block};
  return mn_gemm(device, MN_NT, &work->x, &work->of[MN_BLOCK_WEIGHT], &epilogue);
}

/* dx = dz·W, dW = dzᵀ·x and the column sums, each to its sink; what has no sink is not computed. */
static mn_status give_gradients(struct mn_device *device, const struct mn_block_call *call, struct work *work,
                                const struct mn_epilogue *dx,
                                const struct mn_epilogue *sinks[MN_BLOCK_PARAMETERS]) {
  struct mn_operand *weight = &work->of[MN_BLOCK_WEIGHT];
  MN_TRY(mn_operand_prepare(device, &work->dz));
  if (dx) {
    MN_TRY(mn_operand_prepare(device, weight));
    MN_TRY(mn_gemm(device, MN_NN, &work->dz, weight, dx));
  }
  if (sinks[MN_BLOCK_WEIGHT]) {
    MN_TRY(mn_operand_prepare(device, &work->x));
    MN_TRY(mn_gemm(device, MN_TN, &work->dz, &work->x, sinks[MN_BLOCK_WEIGHT]));
  }
  if (!sinks[MN_BLOCK_BIAS] && !sinks[MN_BLOCK_GAMMA] && !sinks[MN_BLOCK_BETA]) return MN_OK;
  if (work->summed) memcpy(work->summed, work->sums, sums_bytes(device, call));
  return mn_column_sums(device, work->summed ? work->summed : work->sums, mn_chunks(call->rows),
                        call->channels, &sinks[MN_BLOCK_BIAS], NULL);
}

static mn_status backward(struct mn_device *device, const struct mn_block_call *call, struct work *work) {
  void *const gradients[] = {call->dweight, call->dbias, call->dgamma, call->dbeta, call->dx};
  struct mn_operand *dz = &work->dz, written = *dz;
  struct mn_block block = block_of(call);
  struct mn_epilogue stores[5];
  const struct mn_epilogue *sinks[5];
  if (dz->real)
    written.planes[0] = written.planes[1] = NULL;
  else
    dz->stale = 0;
  block.dz = &written, block.sums = work->sums;
  const struct mn_epilogue through = {.kind = MN_BLOCK_BACKWARD, .block = &block};
  MN_TRY(mn_epilogue(device, (void *)call->dy, call->rows, call->channels, &through));
  for (int i = 0; i < 5; i++) {
    stores[i] = (struct mn_epilogue){
        .kind = MN_STORE, .into = gradients[i], .narrow = call->narrow == MN_NARROW_MODULE};
    sinks[i] = gradients[i] ? &stores[i] : NULL;
  }
  return give_gradients(device, call, work, sinks[4], sinks);
}

/* Whether the product that computes the weight's gradient has x: its values, or planes made of them. */
static int has_x(const struct mn_device *device, const struct mn_block_call *call) {
  return call->x.values || (call->x.ready && planes_of(device, call));
}

/* ---- the update ---- */

static mn_status check_update(const struct mn_device *device, const struct mn_block_call *call) {
  static const char *const names[MN_BLOCK_PARAMETERS] = {"weight", "bias", "gamma", "beta"};
  const struct mn_block_parameter *weight = &call->of[MN_BLOCK_WEIGHT];
  const int planes = planes_of(device, call);
  if (!call->pair) return mn_fail(MN_USAGE, "the update needs a pair, which is NULL");
  if (weight->values && !weight->gradient && planes && !call->weight.planes && !weight->narrow)
    return mn_fail(MN_USAGE, "the update needs the weight's planes in %s, which are NULL",
                   mn_precision_name(device->precision));
  if (!has_x(device, call)) return mn_fail(MN_USAGE, "the pair needs x, which is NULL");
  for (int i = 0; i < MN_BLOCK_PARAMETERS; i++) {
    const struct mn_block_parameter *p = &call->of[i];
    const void *const parts[] = {p->values, p->narrow, p->m, p->v, p->gradient};
    if (!p->values) continue;
    if ((mn_rule_keeps_m(&call->rule) && !p->m) || (mn_rule_keeps_v(&call->rule) && !p->v))
      return mn_fail(MN_USAGE, "the rule needs m and v of %s, of which one is NULL", names[i]);
    for (int k = 0; k < 5; k++) MN_TRY(check_aligned(names[i], parts[k], 16));
  }
  if (call->grams && call->rows % 8)
    return mn_fail(MN_USAGE, "grams need rows in a multiple of 8, not %ld", (long)call->rows);
  return check_aligned("grams", call->grams, 16);
}

static mn_status write_grams(struct mn_device *device, const struct mn_block_call *call, struct work *work) {
  int wanted[3];
  for (int i = 0; i < 3; i++) wanted[i] = call->of[MN_BLOCK_BIAS + i].values != NULL;
  MN_TRY(mn_operand_prepare(device, &work->x));
  return mn_block_grams(device, &work->dz, &work->x, work->sums, wanted, call->grams);
}

/* Updates the weight by dzᵀ·x and the vectors by the column sums, or stores these as gradients. */
static mn_status update(struct mn_device *device, const struct mn_block_call *call, struct work *work) {
  struct mn_update updates[MN_BLOCK_PARAMETERS];
  struct mn_epilogue epilogues[MN_BLOCK_PARAMETERS];
  const struct mn_epilogue *sinks[MN_BLOCK_PARAMETERS] = {NULL};
  if (call->grams) return write_grams(device, call, work);
  for (int i = 0; i < MN_BLOCK_PARAMETERS; i++) {
    const struct mn_block_parameter *p = &call->of[i];
    updates[i] = (struct mn_update){.w = &work->of[i],
                                    .m = mn_rule_keeps_m(&call->rule) ? p->m : NULL,
                                    .v = mn_rule_keeps_v(&call->rule) ? p->v : NULL,
                                    .rule = &call->rule};
    epilogues[i] = (struct mn_epilogue){.kind = MN_UPDATE, .update = &updates[i]};
    if (i == MN_BLOCK_WEIGHT) epilogues[i].into = work->product;
    if (p->gradient) epilogues[i] = (struct mn_epilogue){.kind = MN_STORE, .into = p->gradient};
    if (p->values) sinks[i] = &epilogues[i];
  }
  return give_gradients(device, call, work, NULL, sinks);
}

/* ---- the calls ---- */

static mn_status run_call(struct mn_device *device, const struct mn_block_call *call,
                          mn_status (*part)(struct mn_device *device, const struct mn_block_call *call,
                                            struct work *work)) {
  struct work work;
  if ((part == update) != (call->rule.rate != NULL))
    return mn_fail(MN_USAGE, "an update needs a rate; a forward or backward takes none");
  MN_TRY(check_call(device, call));
  if (part == update) MN_TRY(check_update(device, call));
  if (lay_out(&work, device, call) > 0 && !call->workspace)
    return mn_fail(MN_USAGE, "the call needs a workspace of mn_block_workspace bytes, and has none");
  mn_exchange(device, &work.outside);
  mn_status status = part(device, call, &work);
  mn_exchange(device, &work.outside);
  return status;
}

size_t mn_block_pair_bytes(const struct mn_device *device, const struct mn_block_call *call) {
  struct mn_operand dz;
  struct area area = {NULL, 0};
  if (call->size != sizeof *call) return 0;
  (void)lay_out_pair(device, call, &dz, &area);
  return area.taken;
}

size_t mn_block_plane_bytes(const struct mn_device *device, const struct mn_block_call *call) {
  if (call->size != sizeof *call) return 0;
  return (size_t)planes_of(device, call) * device->plane;
}

size_t mn_block_workspace(const struct mn_device *device, const struct mn_block_call *call) {
  struct work work;
  return call->size == sizeof *call ? lay_out(&work, device, call) : 0;
}

mn_status mn_block_forward(struct mn_device *device, const struct mn_block_call *call) {
  MN_TRY(check_size(call));
  if (!call->x.values || !call->weight.values || !call->y || !call->bias || !call->gamma || !call->beta)
    return mn_fail(MN_USAGE, "the forward needs x, weight, bias, gamma, beta and y, of which one is NULL");
  if (call->dy) return mn_fail(MN_USAGE, "the forward takes no dy: set it to NULL");
  return run_call(device, call, forward);
}

mn_status mn_block_backward(struct mn_device *device, const struct mn_block_call *call) {
  MN_TRY(check_size(call));
  if (!call->dy || !call->z || !call->mean || !call->rstd || !call->gamma || !call->beta ||
      (call->dx && !call->weight.values) || (call->dweight && !has_x(device, call)))
    return mn_fail(MN_USAGE, "the backward needs dy, z, mean, rstd, gamma and beta, weight for dx, and x for "
                             "dweight, of which one is NULL");
  return run_call(device, call, backward);
}

mn_status mn_block_update(struct mn_device *device, const struct mn_block_call *call) {
  MN_TRY(check_size(call));
  return run_call(device, call, update);
}

mn_status mn_block_count(struct mn_device *device, const struct mn_block_call *call) {
  const struct mn_counts *c = &call->counts;
  MN_TRY(check_size(call));
  if (!call->nonfinite || (c->steps && !c->rate) || (c->flags && (!c->skipped || !c->told)))
    return mn_fail(MN_USAGE,
                   "the count needs nonfinite, rate with steps, and skipped and told with flags, of "
                   "which one is NULL");
  struct mn_outside outside = outside_of(device, call, &(struct area){NULL, 0});
  mn_exchange(device, &outside);
  mn_status status = mn_count(device, c);
  mn_exchange(device, &outside);
  return status;
}
