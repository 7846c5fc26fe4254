/* The block's epilogues on the CPU, over a matrix in memory: one OpenMP loop over chunks of rows, and the
 * arithmetic on one group of one row, forward and backward. Loops over a group's elements have no branches,
 * so that they become vectors, except those that write planes. Formulas: kernels/kernels.h. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "kernels/planes.h"
#include "kernels/real.h"

/* A group: `width` neighbouring channels of one row that share statistics. The pointers are to the group's
 * first channel. Without normalisation the whole row is one group. */
struct group {
  int64_t width;
  int lanes; /* of sums over it */
  real slope, mean, rstd;
  real *z;
  const real *gamma, *beta;
  int loss; /* the incoming gradient is factor·(y − target), not dy */
  const real *dy, *target;
  real factor;
};

MN_INLINE real standardised(const struct group *g, int64_t c) {
  return (g->z[c] - g->mean) * g->rstd;
}

MN_INLINE real normalised(const struct group *g, unsigned ops, int64_t c) {
  return ops & MN_OP_NORM ? standardised(g, c) * g->gamma[c] + g->beta[c] : g->z[c];
}

MN_INLINE real activated(const struct group *g, unsigned ops, real v) {
  const real low = g->slope * v, a = ops & MN_OP_ACTIVATE ? (v > 0 ? v : low) : v;
  return ops & MN_OP_SUM ? a + a : a;
}

/* g = dL/dv at c: the incoming gradient through sum and activation. */
MN_INLINE real gradient(const struct group *g, unsigned ops, int64_t c) {
  real v = normalised(g, ops, c);
  real dy = g->loss ? g->factor * (activated(g, ops, v) - g->target[c]) : g->dy[c];
  if (ops & MN_OP_SUM) dy = 2 * dy;
  const real low = g->slope * dy;
  return ops & MN_OP_ACTIVATE ? (v > 0 ? dy : low) : dy;
}

/* Σ (z − from) over the group. */
MN_INLINE real sum_from(const struct group *g, real from) {
  real sum[MN_LANES] = {0};
  MN_EACH(g->lanes, g->width, c, i, sum[i] += g->z[c] - from;)
  return mn_total(sum, g->lanes);
}

/* Centred variance: the mean first, then the mean of the squared differences from it. The mean is summed
 * relative to the first element, so that the mean of a constant group is exactly the constant and v = beta; a
 * second sum relative to that mean removes most of its rounding error. */
MN_INLINE void statistics(struct group *g, real eps) {
  real width = (real)g->width, lanes[MN_LANES] = {0};
  g->mean = g->z[0] + sum_from(g, g->z[0]) / width;
  g->mean += sum_from(g, g->mean) / width;
  MN_EACH(g->lanes, g->width, c, i, lanes[i] += (g->z[c] - g->mean) * (g->z[c] - g->mean);)
  const real squares = mn_total(lanes, g->lanes);
  g->rstd = 1 / (real)sqrt(squares / width + eps) + 0 * squares; /* NaN if they overflow */
}

MN_INLINE real output(const struct group *g, unsigned ops, int64_t c) {
  return activated(g, ops, normalised(g, ops, c));
}

/* Found while the values are computed. */
struct noticed {
  real poison;   /* 0, or NaN when a value was not finite */
  float largest; /* |dz|, if its plane is scaled */
};

/* The plane of an operand, from the offset `at` on; NULL without planes. */
struct plane {
  float *to, factor;
  enum mn_plane_kind kind;
};

MN_INLINE struct plane plane_at(const struct mn_operand *o, enum mn_plane_kind kind, int64_t at) {
  if (!o || !o->planes[0]) return (struct plane){0};
  return (struct plane){(float *)o->planes[0] + at, o->scale ? o->scale->factor : 1, kind};
}

/* Writes y of the group, in the forms that are not NULL; returns 0, or NaN when a value is not finite. */
MN_INLINE real forward(const struct group *g, unsigned ops, real *y, struct plane plane) {
  real poison = 0;
  if (y) {
#pragma omp simd reduction(+ : poison)
    for (int64_t c = 0; c < g->width; c++) y[c] = output(g, ops, c), poison += 0 * y[c];
  } else {
#pragma omp simd reduction(+ : poison)
    for (int64_t c = 0; c < g->width; c++) poison += 0 * output(g, ops, c);
  }
  for (int64_t c = 0; plane.to && c < g->width; c++)
    plane.to[c] = mn_to_plane(plane.kind, (float)output(g, ops, c), plane.factor);
  return poison;
}

MN_INLINE real input_gradient(const struct group *g, unsigned ops, int64_t c, real m1, real m2) {
  real at = gradient(g, ops, c);
  return ops & MN_OP_NORM ? g->rstd * (at * g->gamma[c] - m1 - standardised(g, c) * m2) : at;
}

/* Writes dz of the group, in the forms that are not NULL, and adds to the column sums. dz may be g->z or
 * g->dy: each element is read before it is written, and dz is written last. */
MN_INLINE struct noticed backward(const struct group *g, unsigned ops, real *dz, struct plane plane,
                                  real *dbias, real *dgamma, real *dbeta) {
  real m1 = 0, m2 = 0, poison = 0;
  float largest = 0;
  if (ops & MN_OP_NORM) {
    real sum[MN_LANES] = {0}, products[MN_LANES] = {0};
    MN_EACH(g->lanes, g->width, c, i, {
      const real at = gradient(g, ops, c), z = standardised(g, c), h = at * g->gamma[c];
      dgamma[c] += at * z;
      dbeta[c] += at;
      sum[i] += h;
      products[i] += h * z;
    })
    m1 = mn_total(sum, g->lanes) / (real)g->width;
    m2 = mn_total(products, g->lanes) / (real)g->width;
  }
  if (plane.kind == MN_PLANES_FP16)
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < g->width; c++) {
      const float size = fabsf((float)input_gradient(g, ops, c, m1, m2));
      largest = size > largest ? size : largest; /* NaN is no larger */
    }
  for (int64_t c = 0; plane.to && c < g->width; c++)
    plane.to[c] = mn_to_plane(plane.kind, (float)input_gradient(g, ops, c, m1, m2), plane.factor);
  if (ops & MN_OP_BIAS) {
#pragma omp simd
    for (int64_t c = 0; c < g->width; c++) dbias[c] += input_gradient(g, ops, c, m1, m2);
  }
  if (dz) {
#pragma omp simd reduction(+ : poison)
    for (int64_t c = 0; c < g->width; c++) dz[c] = input_gradient(g, ops, c, m1, m2), poison += 0 * dz[c];
  } else {
#pragma omp simd reduction(+ : poison)
    for (int64_t c = 0; c < g->width; c++) poison += 0 * input_gradient(g, ops, c, m1, m2);
  }
  return (struct noticed){poison, largest};
}

MN_INLINE real squared_error(const struct group *g, unsigned ops) {
  real sum[MN_LANES] = {0};
  MN_EACH(g->lanes, g->width, c, i, {
    const real error = output(g, ops, c) - g->target[c];
    sum[i] += error * error;
  })
  return mn_total(sum, g->lanes);
}

/* The group at (row, k) of the block; saved: with the statistics that the forward saved. */
MN_INLINE struct group group_at(const struct mn_block *b, unsigned ops, int64_t row, int64_t k, int lanes,
                                int saved) {
  int64_t groups = ops & MN_OP_NORM ? b->groups : 1, width = b->channels / groups;
  int64_t at = row * b->channels + k * width;
  struct group g = {.width = width, .lanes = lanes, .slope = (real)b->slope, .z = (real *)b->z + at};
  if (ops & MN_OP_NORM) {
    g.gamma = (const real *)b->gamma + k * width;
    g.beta = (const real *)b->beta + k * width;
  }
  if (saved && ops & MN_OP_NORM) {
    g.mean = ((const real *)b->mean)[row * groups + k];
    g.rstd = ((const real *)b->rstd)[row * groups + k];
  }
  return g;
}

/* Computes z, mean and rstd of a group, and writes z, mean, rstd and y, each unless NULL. Returns 0, or NaN
 * when a value is not finite. */
MN_INLINE real forward_at(const struct mn_block *b, enum mn_plane_kind planes, unsigned ops, const real *d,
                          int64_t row, int64_t k, struct group *g) {
  int64_t at = g->z - (real *)b->z, c0 = k * g->width;
  if (ops & MN_OP_BIAS)
    for (int64_t c = 0; c < g->width; c++) g->z[c] = d[at + c] + ((const real *)b->bias)[c0 + c];
  else if (d != b->z)
    memcpy(g->z, d + at, (size_t)g->width * sizeof(real));
  if (ops & MN_OP_NORM) {
    statistics(g, (real)b->eps);
    if (b->mean) ((real *)b->mean)[row * b->groups + k] = g->mean;
    if (b->rstd) ((real *)b->rstd)[row * b->groups + k] = g->rstd;
  }
  real *y = b->y && b->y->real ? (real *)b->y->real + at : NULL;
  return forward(g, ops, y, plane_at(b->y, planes, at));
}

/* Writes dz of the group and adds to its chunk's column sums. Of the loss, whose gradient dy is then, the
 * group's part is stored too. */
MN_INLINE struct noticed backward_at(const struct mn_block *b, enum mn_plane_kind planes, unsigned ops,
                                     const real *dy, int64_t row, int64_t k, struct group g) {
  int64_t at = g.z - (real *)b->z, c0 = k * g.width;
  real loss = 0;
  if (!g.loss) {
    g.dy = dy + at;
  } else {
    g.target = (const real *)b->target + at;
    g.factor = (real)(2 * b->scale / ((double)b->rows * (double)b->channels));
    loss = squared_error(&g, ops);
    ((real *)b->loss_parts)[row * (b->channels / g.width) + k] = loss;
  }
  int64_t plane = mn_chunks(b->rows) * b->channels;
  real *sums = (real *)b->sums + row / MN_CHUNK_ROWS * b->channels + c0;
  real *dz = b->dz->real ? (real *)b->dz->real + at : NULL;
  struct noticed of =
      backward(&g, ops, dz, plane_at(b->dz, planes, at), sums, sums + plane, sums + 2 * plane);
  of.poison += 0 * loss;
  return of;
}

/* Applies the epilogue to one chunk of rows. Each chunk has its own column sums, so no two threads write the
 * same ones. */
MN_INLINE struct noticed chunk(const struct mn_block *b, enum mn_epilogue_kind kind,
                               enum mn_plane_kind planes, unsigned ops, int lanes, const real *d,
                               int64_t index) {
  int64_t first = index * MN_CHUNK_ROWS,
          last = first + MN_CHUNK_ROWS < b->rows ? first + MN_CHUNK_ROWS : b->rows;
  int64_t groups = ops & MN_OP_NORM ? b->groups : 1, plane = mn_chunks(b->rows) * b->channels;
  if (kind != MN_BLOCK)
    for (int i = 0; i < 3; i++)
      if (ops & (i == 0 ? MN_OP_BIAS : MN_OP_NORM))
        memset((real *)b->sums + i * plane + index * b->channels, 0, (size_t)b->channels * sizeof(real));
  struct noticed all = {0, 0};
  for (int64_t row = first; row < last; row++)
    for (int64_t k = 0; k < groups; k++) {
      struct group g = group_at(b, ops, row, k, lanes, kind == MN_BLOCK_BACKWARD);
      if (kind != MN_BLOCK_BACKWARD) all.poison += forward_at(b, planes, ops, d, row, k, &g);
      if (kind == MN_BLOCK) continue;
      g.loss = kind == MN_BLOCK_LOSS;
      struct noticed of = backward_at(b, planes, ops, d, row, k, g);
      all.poison += of.poison;
      all.largest = fmaxf(all.largest, of.largest);
    }
  return all;
}

typedef struct noticed chunk_function(const struct mn_block *b, enum mn_epilogue_kind kind,
                                      enum mn_plane_kind planes, const real *d, int64_t index);

static struct noticed chunk_of_any_ops(const struct mn_block *b, enum mn_epilogue_kind kind,
                                       enum mn_plane_kind planes, const real *d, int64_t index) {
  const int64_t width = b->ops & MN_OP_NORM ? b->channels / b->groups : b->channels;
  return chunk(b, kind, planes, b->ops, mn_lanes(width), d, index);
}

/* chunk() of all ops for a set of instructions. The compiler removes the tests of what is constant. */
#define CHUNK(level, attribute, lanes)                                                                       \
  attribute static struct noticed chunk_##level(const struct mn_block *b, enum mn_epilogue_kind kind,        \
                                                enum mn_plane_kind planes, const real *d, int64_t index) {   \
    if (kind == MN_BLOCK) return chunk(b, MN_BLOCK, planes, MN_OP_ALL, lanes, d, index);                     \
    if (kind == MN_BLOCK_LOSS) return chunk(b, MN_BLOCK_LOSS, planes, MN_OP_ALL, lanes, d, index);           \
    return chunk(b, MN_BLOCK_BACKWARD, planes, MN_OP_ALL, lanes, d, index);                                  \
  }
#define CHUNK_AT(level, attribute) CHUNK(level, attribute, MN_LANES)
#define NAME_AT(level, attribute) chunk_##level,
CHUNK(few, , MN_LANES_FEW)
MN_LEVELS(CHUNK_AT)

static chunk_function *chunk_for(const struct mn_block *b) {
  static chunk_function *const levels[] = {MN_LEVELS(NAME_AT)};
  if (b->ops != MN_OP_ALL) return chunk_of_any_ops;
  return mn_lanes(b->channels / b->groups) < MN_LANES ? chunk_few : levels[mn_level()];
}

/* Without b.z, z overwrites d. */
void MN_CPU(mn_block)(struct mn_device *device, void *d, const struct mn_epilogue *e) {
  struct mn_block b = *e->block;
  const enum mn_plane_kind planes = device->plane_kind;
  int64_t chunks = mn_chunks(b.rows), elements = b.rows * b.channels;
  int bad = 0, parallel = elements > MN_PARALLEL_FROM;
  float largest = 0;
  MN_REQUIRE(b.z || e->kind != MN_BLOCK_BACKWARD || !(b.ops & (MN_OP_NORM | MN_OP_ACTIVATE)));
  MN_REQUIRE(e->kind == MN_BLOCK_BACKWARD || !b.y || !b.y->planes[0] || !b.y->scale || b.ops & MN_OP_NORM);
  if (!b.z) b.z = d;
  chunk_function *const run = chunk_for(&b);
#pragma omp parallel for schedule(static) if (parallel) reduction(| : bad) reduction(max : largest)
  for (int64_t i = 0; i < chunks; i++) {
    struct noticed of = run(&b, e->kind, planes, d, i);
    bad |= !(of.poison == 0);
    largest = fmaxf(largest, of.largest);
  }
  struct mn_scale *scale = e->kind != MN_BLOCK && b.dz->planes[0] ? b.dz->scale : NULL;
  if (scale) scale->largest = fmaxf(scale->largest, largest);
  if (scale && largest * scale->factor > MN_FP16_MOST) bad = 1; /* which dz's plane cannot hold */
  if (bad) mn_raise(device);
}
