/* The block's epilogues on the CPU, over a tile: the arithmetic on one group of one row, forward and
 * backward. Loops over a group's elements have no branches, so that they become vectors, except those that
 * write planes. Formulas: kernels/kernels.h. */
#include <math.h>
#include <string.h>

#include "kernels/lanes.h"
#include "kernels/planes.h"
#include "kernels/tile.h"

/* A group: `width` neighbouring channels of one row that share statistics. The pointers are to the group's
 * first channel. Without normalisation a row of the tile is one group. */
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

/* The mean is summed relative to the first element, so that the mean of a constant group is exactly the
 * constant and v = beta. `about` is the mean with a rounding error, and off = mean(z − about) that error:
 * mean = about + off, variance = mean((z − about)²) − off². */
MN_INLINE void statistics(struct group *g, real eps) {
  const real part = 1 / (real)g->width, first = g->z[0];
  real lanes[MN_LANES] = {0}, squares[MN_LANES] = {0};
  MN_EACH(g->lanes, g->width, c, i, lanes[i] += g->z[c] - first;)
  const real about = first + mn_total(lanes, g->lanes) * part;
  memset(lanes, 0, sizeof lanes);
  MN_EACH(g->lanes, g->width, c, i, {
    const real from = g->z[c] - about;
    lanes[i] += from;
    squares[i] += from * from;
  })
  const real off = mn_total(lanes, g->lanes) * part;
  const real variance = mn_total(squares, g->lanes) * part - off * off;
  g->mean = about + off;
  g->rstd = 1 / (real)sqrt(variance + eps) + 0 * variance; /* NaN if squares overflow */
}

MN_INLINE real output(const struct group *g, unsigned ops, int64_t c) {
  return activated(g, ops, normalised(g, ops, c));
}

/* The plane of an operand, from the offset `at` on; NULL without planes. */
struct plane {
  float *to, factor;
  enum mn_plane_kind kind;
};

MN_INLINE struct plane plane_at(const struct mn_operand *o, enum mn_plane_kind kind, int64_t at) {
  if (!o || !o->planes[0]) return (struct plane){0};
  return (struct plane){(float *)o->planes[0] + at, o->scale ? o->scale->factor : 1, kind};
}

MN_INLINE real input_gradient(const struct group *g, unsigned ops, int64_t c, real m1, real m2) {
  real at = gradient(g, ops, c);
  return ops & MN_OP_NORM ? g->rstd * (at * g->gamma[c] - m1 - standardised(g, c) * m2) : at;
}

/* Writes dz of the group, in the forms that are not NULL, adds to the column sums, and returns the largest
 * |dz|, if its plane is scaled. dz may be g->z or g->dy: each element is read before it is written, and dz is
 * written last. */
MN_INLINE float backward(const struct group *g, unsigned ops, real *dz, struct plane plane, real *dbias,
                         real *dgamma, real *dbeta, real *poison) {
  real m1 = 0, m2 = 0;
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
  MN_EACH(g->lanes, g->width, c, i, {
    const real at = input_gradient(g, ops, c, m1, m2);
    if (ops & MN_OP_BIAS) dbias[c] += at;
    if (dz) dz[c] = at;
    poison[i] += 0 * at;
  })
  return largest;
}

MN_INLINE real squared_error(const struct group *g, unsigned ops) {
  real sum[MN_LANES] = {0};
  MN_EACH(g->lanes, g->width, c, i, {
    const real error = output(g, ops, c) - g->target[c];
    sum[i] += error * error;
  })
  return mn_total(sum, g->lanes);
}

/* The group of a row that begins at c0; saved: with the statistics that the forward saved. */
MN_INLINE struct group group_at(const struct mn_block *b, unsigned ops, int64_t row, int64_t c0,
                                int64_t width, int lanes, int saved) {
  const int64_t k = row * b->groups + c0 / width;
  struct group g = {
      .width = width, .lanes = lanes, .slope = (real)b->slope, .z = (real *)b->z + row * b->channels + c0};
  if (ops & MN_OP_NORM) g.gamma = (const real *)b->gamma + c0, g.beta = (const real *)b->beta + c0;
  if (saved && ops & MN_OP_NORM) g.mean = ((const real *)b->mean)[k], g.rstd = ((const real *)b->rstd)[k];
  return g;
}

/* Computes z, mean and rstd of a group, and writes z, mean, rstd and y, in the forms that are not NULL. Adds
 * NaN to poison when a value is not finite. */
MN_INLINE void forward_at(const struct mn_block *b, enum mn_plane_kind planes, unsigned ops, const real *d,
                          int64_t row, int64_t c0, struct group *g, real *poison) {
  const int64_t at = row * b->channels + c0, k = row * b->groups + c0 / g->width;
  if (ops & MN_OP_BIAS)
    MN_EACH(g->lanes, g->width, c, i, g->z[c] = d[at + c] + ((const real *)b->bias)[c0 + c];)
  else if (d != b->z)
    memcpy(g->z, d + at, (size_t)g->width * sizeof(real));
  if (ops & MN_OP_NORM) {
    statistics(g, (real)b->eps);
    if (b->mean) ((real *)b->mean)[k] = g->mean;
    if (b->rstd) ((real *)b->rstd)[k] = g->rstd;
  }
  real *y = b->y && b->y->real ? (real *)b->y->real + at : NULL;
  const struct plane plane = plane_at(b->y, planes, at);
  if (y) /* outside the loop, which is half as fast otherwise */
    MN_EACH(g->lanes, g->width, c, i, poison[i] += 0 * (y[c] = output(g, ops, c));)
  else
    MN_EACH(g->lanes, g->width, c, i, poison[i] += 0 * output(g, ops, c);)
  for (int64_t c = 0; plane.to && c < g->width; c++)
    plane.to[c] = mn_to_plane(plane.kind, (float)output(g, ops, c), plane.factor);
}

/* Writes dz of the group and adds to its chunk's column sums. Under a loss dy is its gradient, and the
 * group's part of it is stored too. */
MN_INLINE float backward_at(const struct mn_block *b, enum mn_plane_kind planes, unsigned ops, const real *dy,
                            int64_t row, int64_t c0, struct group g, real *poison) {
  const int64_t at = row * b->channels + c0, each = mn_chunks(b->rows) * b->channels;
  if (!g.loss) {
    g.dy = dy + at;
  } else {
    g.target = (const real *)b->target + at;
    const real weight = b->weights ? ((const real *)b->weights)[row] : 1;
    g.factor = weight * (real)(2 * b->scale / ((double)b->rows * (double)b->channels));
    const real loss = weight * squared_error(&g, ops);
    ((real *)b->loss_parts)[row * (b->channels / g.width) + c0 / g.width] = loss;
    poison[0] += 0 * loss;
  }
  real *sums = (real *)b->sums + row / MN_CHUNK_ROWS * b->channels + c0;
  real *dz = b->dz->real ? (real *)b->dz->real + at : NULL;
  return backward(&g, ops, dz, plane_at(b->dz, planes, at), sums, sums + each, sums + 2 * each, poison);
}

/* Each chunk of rows has its own column sums, so no two tiles write the same ones. */
MN_INLINE struct mn_noticed tile(const struct mn_block *b, enum mn_epilogue_kind kind,
                                 enum mn_plane_kind planes, unsigned ops, int lanes, const real *d,
                                 struct mn_tile t) {
  const int64_t width = ops & MN_OP_NORM ? b->channels / b->groups : t.cols;
  const int64_t each = mn_chunks(b->rows) * b->channels;
  real poison[MN_LANES] = {0};
  float largest = 0;
  for (int64_t row = t.row; row < t.row + t.rows; row++) {
    if (kind != MN_BLOCK && row % MN_CHUNK_ROWS == 0)
      for (int i = 0; i < 3; i++)
        if (ops & (i == 0 ? MN_OP_BIAS : MN_OP_NORM))
          memset((real *)b->sums + i * each + row / MN_CHUNK_ROWS * b->channels + t.col, 0,
                 (size_t)t.cols * sizeof(real));
    for (int64_t c0 = t.col; c0 < t.col + t.cols; c0 += width) {
      struct group g = group_at(b, ops, row, c0, width, lanes, kind == MN_BLOCK_BACKWARD);
      if (kind != MN_BLOCK_BACKWARD) forward_at(b, planes, ops, d, row, c0, &g, poison);
      if (kind == MN_BLOCK) continue;
      g.loss = kind == MN_BLOCK_LOSS;
      largest = fmaxf(largest, backward_at(b, planes, ops, d, row, c0, g, poison));
    }
  }
  return (struct mn_noticed){mn_total(poison, MN_LANES), largest};
}

typedef struct mn_noticed tile_function(const struct mn_block *b, enum mn_epilogue_kind kind,
                                        enum mn_plane_kind planes, const real *d, struct mn_tile t);

static struct mn_noticed tile_of_any_ops(const struct mn_block *b, enum mn_epilogue_kind kind,
                                         enum mn_plane_kind planes, const real *d, struct mn_tile t) {
  const int64_t width = b->ops & MN_OP_NORM ? b->channels / b->groups : b->channels;
  return tile(b, kind, planes, b->ops, mn_lanes(width), d, t);
}

/* tile() of all ops for a set of instructions. The compiler removes the tests of what is constant. */
#define TILE(level, attribute, lanes)                                                                        \
  attribute static struct mn_noticed tile_##level(const struct mn_block *b, enum mn_epilogue_kind kind,      \
                                                  enum mn_plane_kind planes, const real *d,                  \
                                                  struct mn_tile t) {                                        \
    if (kind == MN_BLOCK) return tile(b, MN_BLOCK, planes, MN_OP_ALL, lanes, d, t);                          \
    if (kind == MN_BLOCK_LOSS) return tile(b, MN_BLOCK_LOSS, planes, MN_OP_ALL, lanes, d, t);                \
    return tile(b, MN_BLOCK_BACKWARD, planes, MN_OP_ALL, lanes, d, t);                                       \
  }
#define TILE_AT(level, attribute) TILE(level, attribute, MN_LANES)
#define NAME_AT(level, attribute) tile_##level,
TILE(few, , MN_LANES_FEW)
MN_LEVELS(TILE_AT)

static tile_function *tile_for(const struct mn_block *b) {
  static tile_function *const levels[] = {MN_LEVELS(NAME_AT)};
  if (b->ops != MN_OP_ALL) return tile_of_any_ops;
  return mn_lanes(b->channels / b->groups) < MN_LANES ? tile_few : levels[mn_level()];
}

/* Without b.z, z overwrites d. */
struct mn_noticed mn_block_tile_cpu(const struct mn_device *device, const struct mn_epilogue *e, void *d,
                                    struct mn_tile t) {
  struct mn_block b = *e->block;
  if (!b.z) b.z = d;
  return tile_for(&b)(&b, e->kind, device->plane_kind, d, t);
}

void mn_block_end_cpu(struct mn_device *device, const struct mn_epilogue *e, struct mn_noticed found) {
  struct mn_scale *scale = e->kind != MN_BLOCK && e->block->dz->planes[0] ? e->block->dz->scale : NULL;
  if (scale) scale->largest = fmaxf(scale->largest, found.largest);
  /* Values that a scaled plane cannot hold are as bad as those that are not finite. */
  if (!(found.poison == 0) || (scale && found.largest * scale->factor > MN_FP16_MOST)) mn_raise(device);
}
