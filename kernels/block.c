/* The block's epilogues on the CPU, over a matrix in memory: one OpenMP loop over chunks of rows, and the
 * arithmetic on one group of one row, forward and backward. Formulas: kernels/kernels.h. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/real.h"

/* A group: `width` neighbouring channels of one row that share statistics. The pointers are to the group's
 * first channel. Without normalisation the whole row is one group. */
struct group {
  int64_t width;
  real slope, mean, rstd;
  real *z;
  const real *gamma, *beta;
  const real *dy, *target; /* the one that is not NULL gives the incoming gradient */
  real factor;             /* dy = factor·(y − target) */
};

static inline real standardised(const struct group *g, int64_t c) {
  return (g->z[c] - g->mean) * g->rstd;
}

static inline real normalised(const struct group *g, unsigned ops, int64_t c) {
  return ops & MN_OP_NORM ? standardised(g, c) * g->gamma[c] + g->beta[c] : g->z[c];
}

static inline real activated(const struct group *g, unsigned ops, real v) {
  real a = ops & MN_OP_ACTIVATE ? (v > 0 ? v : g->slope * v) : v;
  return ops & MN_OP_SUM ? a + a : a;
}

/* g = dL/dv at c: the incoming gradient through sum and activation. */
static inline real gradient(const struct group *g, unsigned ops, int64_t c) {
  real v = normalised(g, ops, c);
  real dy = g->target ? g->factor * (activated(g, ops, v) - g->target[c]) : g->dy[c];
  if (ops & MN_OP_SUM) dy = 2 * dy;
  return ops & MN_OP_ACTIVATE ? dy * (v > 0 ? 1 : g->slope) : dy;
}

/* Σ (z − from) over the group. */
static inline real sum_from(const struct group *g, real from) {
  real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < g->width; c++) sum += g->z[c] - from;
  return sum;
}

/* Centred variance: the mean first, then the mean of the squared differences from it. The mean is summed
 * relative to the first element, so that the mean of a constant group is exactly the constant and v = beta; a
 * second sum relative to that mean removes most of its rounding error. */
static inline void statistics(struct group *g, real eps) {
  real width = (real)g->width, squares = 0;
  g->mean = g->z[0] + sum_from(g, g->z[0]) / width;
  g->mean += sum_from(g, g->mean) / width;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < g->width; c++) squares += (g->z[c] - g->mean) * (g->z[c] - g->mean);
  g->rstd = 1 / (real)sqrt(squares / width + eps) + 0 * squares; /* NaN if they overflow */
}

static inline real output(const struct group *g, unsigned ops, int64_t c) {
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

static inline struct plane plane_at(const struct mn_operand *o, enum mn_plane_kind kind, int64_t at) {
  if (!o || !o->planes[0]) return (struct plane){0};
  return (struct plane){(float *)o->planes[0] + at, o->scale ? o->scale->factor : 1, kind};
}

/* Writes y of the group, in the forms that are not NULL; returns 0, or NaN when a value is not finite. Each
 * form has a loop of its own, so that the compiler vectorises it. */
static inline real forward(const struct group *g, unsigned ops, real *y, struct plane plane) {
  real poison = 0;
#pragma omp simd reduction(+ : poison)
  for (int64_t c = 0; c < g->width; c++) poison += 0 * output(g, ops, c);
  for (int64_t c = 0; y && c < g->width; c++) y[c] = output(g, ops, c);
  for (int64_t c = 0; plane.to && c < g->width; c++)
    plane.to[c] = mn_to_plane(plane.kind, (float)output(g, ops, c), plane.factor);
  return poison;
}

static inline real input_gradient(const struct group *g, unsigned ops, int64_t c, real m1, real m2) {
  real at = gradient(g, ops, c);
  return ops & MN_OP_NORM ? g->rstd * (at * g->gamma[c] - m1 - standardised(g, c) * m2) : at;
}

/* Writes dz of the group, in the forms that are not NULL, and adds to the column sums. dz may be g->z or
 * g->dy: each element is read before it is written, and dz is written last. */
static inline struct noticed backward(const struct group *g, unsigned ops, real *dz, struct plane plane,
                                      real *dbias, real *dgamma, real *dbeta) {
  real m1 = 0, m2 = 0, poison = 0;
  float largest = 0;
  if (ops & MN_OP_NORM) {
#pragma omp simd reduction(+ : m1, m2)
    for (int64_t c = 0; c < g->width; c++) {
      real at = gradient(g, ops, c), z = standardised(g, c);
      dgamma[c] += at * z;
      dbeta[c] += at;
      m1 += at * g->gamma[c];
      m2 += at * g->gamma[c] * z;
    }
    m1 /= (real)g->width;
    m2 /= (real)g->width;
  }
#pragma omp simd reduction(+ : poison)
  for (int64_t c = 0; c < g->width; c++) poison += 0 * input_gradient(g, ops, c, m1, m2);
  if (ops & MN_OP_BIAS)
    for (int64_t c = 0; c < g->width; c++) dbias[c] += input_gradient(g, ops, c, m1, m2);
  if (plane.kind == MN_PLANES_FP16)
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < g->width; c++)
      largest = fmaxf(largest, fabsf((float)input_gradient(g, ops, c, m1, m2)));
  for (int64_t c = 0; plane.to && c < g->width; c++)
    plane.to[c] = mn_to_plane(plane.kind, (float)input_gradient(g, ops, c, m1, m2), plane.factor);
  for (int64_t c = 0; dz && c < g->width; c++) dz[c] = input_gradient(g, ops, c, m1, m2);
  return (struct noticed){poison, largest};
}

static inline real squared_error(const struct group *g, unsigned ops) {
  real sum = 0;
  for (int64_t c = 0; c < g->width; c++) {
    real error = activated(g, ops, normalised(g, ops, c)) - g->target[c];
    sum += error * error;
  }
  return sum;
}

/* The group at (row, k) of the block; saved: with the statistics that the forward saved. */
static inline struct group group_at(const struct mn_block *b, unsigned ops, int64_t row, int64_t k,
                                    int saved) {
  int64_t groups = ops & MN_OP_NORM ? b->groups : 1, width = b->channels / groups;
  int64_t at = row * b->channels + k * width;
  struct group g = {.width = width, .slope = (real)b->slope, .z = (real *)b->z + at};
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
static inline real forward_at(const struct mn_block *b, enum mn_plane_kind planes, unsigned ops,
                              const real *d, int64_t row, int64_t k, struct group *g) {
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

/* Writes dz of the group and adds to its chunk's column sums. If dy is NULL, dy is the gradient of the loss,
 * whose part is stored too. */
static inline struct noticed backward_at(const struct mn_block *b, enum mn_plane_kind planes, unsigned ops,
                                         const real *dy, int64_t row, int64_t k, struct group g) {
  int64_t at = g.z - (real *)b->z, c0 = k * g.width;
  real loss = 0;
  if (dy) {
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
static inline struct noticed chunk(const struct mn_block *b, enum mn_epilogue_kind kind,
                                   enum mn_plane_kind planes, unsigned ops, const real *d, int64_t index) {
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
      struct group g = group_at(b, ops, row, k, kind == MN_BLOCK_BACKWARD);
      if (kind != MN_BLOCK_BACKWARD) all.poison += forward_at(b, planes, ops, d, row, k, &g);
      if (kind == MN_BLOCK) continue;
      struct noticed of = backward_at(b, planes, ops, kind == MN_BLOCK_BACKWARD ? d : NULL, row, k, g);
      all.poison += of.poison;
      all.largest = fmaxf(all.largest, of.largest);
    }
  return all;
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
#pragma omp parallel for schedule(static) if (parallel) reduction(| : bad) reduction(max : largest)
  for (int64_t i = 0; i < chunks; i++) {
    /* With ops a constant, the compiler removes the tests of them: three times as fast. */
    struct noticed of = b.ops == MN_OP_ALL ? chunk(&b, e->kind, planes, MN_OP_ALL, d, i)
                                           : chunk(&b, e->kind, planes, b.ops, d, i);
    bad |= !(of.poison == 0);
    largest = fmaxf(largest, of.largest);
  }
  struct mn_scale *scale = e->kind != MN_BLOCK && b.dz->planes[0] ? b.dz->scale : NULL;
  if (scale) scale->largest = fmaxf(scale->largest, largest);
  if (scale && largest * scale->factor > MN_FP16_MOST) bad = 1; /* which dz's plane cannot hold */
  if (bad) mn_raise(device);
}
