/* Updates on the CPU. Formulas: struct mn_rule (kernels/types.h). */
#include <math.h>

#include "kernels/lanes.h"
#include "kernels/planes.h"
#include "kernels/tile.h"

/* What the weights of one step have in common, and where they are. */
struct step {
  real rate, scale;
  real momentum, decay;                                 /* of SGD */
  real beta1, beta2, rest1, rest2, eps, shrink, second; /* of AdamW */
  int nesterov;
  const real *g;
  real *w, *m, *v;
};

static struct step step_of(const struct mn_update *update, const void *gradient) {
  const struct mn_rule *rule = update->rule;
  const int adamw = rule->kind == MN_ADAMW;
  const double rate = rule->rate[MN_RATE];
  return (struct step){.rate = (real)(adamw ? rate * rule->rate[MN_RATE_FIRST] : rate), /* corrects m */
                       .scale = rule->scale ? (real)*rule->scale : 1,
                       .momentum = (real)rule->momentum,
                       .decay = (real)rule->weight_decay,
                       .beta1 = (real)rule->beta1,
                       .beta2 = (real)rule->beta2,
                       .rest1 = (real)(1 - rule->beta1),
                       .rest2 = (real)(1 - rule->beta2),
                       .eps = (real)rule->eps,
                       .shrink = (real)(1 - rate * rule->weight_decay),
                       .second = adamw ? (real)rule->rate[MN_RATE_SECOND] : 0,
                       .nesterov = rule->nesterov,
                       .g = gradient,
                       .w = update->w->real,
                       .m = update->m,
                       .v = update->v};
}

MN_INLINE void adamw(const struct step *s, int64_t i) {
  const real g = s->scale * s->g[i];
  s->m[i] = s->beta1 * s->m[i] + s->rest1 * g;
  s->v[i] = s->beta2 * s->v[i] + s->rest2 * g * g;
  s->w[i] = s->shrink * s->w[i] - s->rate * s->m[i] / ((real)sqrt(s->v[i]) * s->second + s->eps);
}

/* With or without g, m and Nesterov's momentum: without g, m already holds momentum·m + gradient. */
MN_INLINE void sgd(const struct step *s, int64_t i, int g, int m, int nesterov) {
  const real at = (g ? s->scale * s->g[i] : 0) + s->decay * s->w[i];
  if (m) s->m[i] = (g ? s->momentum * s->m[i] : s->m[i]) + at;
  s->w[i] -= s->rate * (!m ? at : nesterov ? at + s->momentum * s->m[i] : s->m[i]);
}

/* A tile of weights, whose rows are ld apart. Each loop is of one kind of step, and so becomes vectors. */
MN_INLINE void tile(const struct step *given, struct mn_tile t, int64_t ld) {
  const struct step s = *given; /* a copy, which no write to a weight can change */
#define EACH(what)                                                                                           \
  for (int64_t first = t.row * ld + t.col, rows = t.rows; rows; rows--, first += ld)                         \
    _Pragma("omp simd") for (int64_t i = first; i < first + t.cols; i++) {                                   \
      what;                                                                                                  \
    }
  if (s.v)
    EACH(adamw(&s, i))
  else if (!s.m)
    EACH(sgd(&s, i, 1, 0, 0))
  else if (!s.g)
    EACH(sgd(&s, i, 0, 1, 0))
  else if (s.nesterov)
    EACH(sgd(&s, i, 1, 1, 1))
  else
    EACH(sgd(&s, i, 1, 1, 0))
#undef EACH
}

typedef void tile_function(const struct step *step, struct mn_tile t, int64_t ld);
#define TILE(level, attribute)                                                                               \
  attribute static void tile_##level(const struct step *step, struct mn_tile t, int64_t ld) {                \
    tile(step, t, ld);                                                                                       \
  }
#define NAME_AT(level, attribute) tile_##level,
MN_LEVELS(TILE)

void mn_rule_tile_cpu(const struct mn_device *device, const struct mn_update *update, const void *gradient,
                      struct mn_tile t) {
  static tile_function *const levels[] = {MN_LEVELS(NAME_AT)};
  const struct step step = step_of(update, gradient);
  const int64_t ld = update->w->cols;
  const float factor = update->w->scale ? update->w->scale->factor : 1;
  levels[mn_level()](&step, t, ld);
  for (int64_t row = t.row; update->w->planes[0] && row < t.row + t.rows; row++) {
    float *plane = (float *)update->w->planes[0] + row * ld;
    for (int64_t c = t.col; c < t.col + t.cols; c++)
      plane[c] = mn_to_plane_of(device, update->w, (float)step.w[row * ld + c], factor);
  }
}

mn_status mn_clip_cpu(struct mn_device *device, double *scale, double *norm, const double *squares,
                      int64_t count, double max_norm) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += squares[i];
  *norm = sum < 0 ? 0 : sqrt(sum);
  if (!isfinite(sum)) mn_raise(device);
  *scale = max_norm / (*norm + 1e-6) < 1 ? max_norm / (*norm + 1e-6) : 1;
  return MN_OK;
}
