/* Updates on the CPU. Formulas: struct mn_rule, kernels/kernels.h. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "kernels/planes.h"
#include "kernels/real.h"

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
  return (struct step){.rate = (real)(adamw ? rate * rule->rate[MN_RATE_FIRST] : rate),
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

/* The weights from `first` to before `last`. Each loop is of one kind of step, so that it becomes vectors. */
MN_INLINE void span(const struct step *given, int64_t first, int64_t last) {
  const struct step s = *given; /* a copy, which no write to a weight can change */
#define EACH(what)                                                                                           \
  _Pragma("omp simd") for (int64_t i = first; i < last; i++) {                                               \
    what;                                                                                                    \
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

typedef void span_function(const struct step *step, int64_t first, int64_t last);
#define SPAN(level, attribute)                                                                               \
  attribute static void span_##level(const struct step *step, int64_t first, int64_t last) {                 \
    span(step, first, last);                                                                                 \
  }
#define NAME_AT(level, attribute) span_##level,
MN_LEVELS(SPAN)

void MN_CPU(mn_rule)(struct mn_device *device, const struct mn_update *update, void *gradient) {
  enum { ELEMENTS = 2048 }; /* that are still in the cache when their planes are written */
  static span_function *const levels[] = {MN_LEVELS(NAME_AT)};
  if (*device->nonfinite) return;
  span_function *const run = levels[mn_level()];
  const struct step step = step_of(update, gradient);
  float *plane = update->w->planes[0];
  const float factor = update->w->scale ? update->w->scale->factor : 1;
  const int64_t count = update->w->rows * update->w->cols;
  MN_REQUIRE((step.m || !mn_rule_keeps_m(update->rule)) && !step.v == !mn_rule_keeps_v(update->rule) &&
             (gradient || mn_rule_by_gemm(update->rule)));
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t first = 0; first < count; first += ELEMENTS) {
    const int64_t last = first + ELEMENTS < count ? first + ELEMENTS : count;
    run(&step, first, last);
    for (int64_t i = first; plane && i < last; i++)
      plane[i] = mn_to_plane_of(device, update->w, (float)step.w[i], factor);
  }
  if (update->clears) memset(gradient, 0, (size_t)count * sizeof(real));
}

mn_status MN_CPU(mn_clip)(struct mn_device *device, double *scale, double *norm, const double *squares,
                          int64_t count, double max_norm) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += squares[i];
  *norm = sum < 0 ? 0 : sqrt(sum);
  if (!isfinite(sum)) mn_raise(device);
  *scale = max_norm / (*norm + 1e-6) < 1 ? max_norm / (*norm + 1e-6) : 1;
  return MN_OK;
}
