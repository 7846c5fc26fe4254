/* Updates on the CPU. Formulas: struct mn_rule, kernels/kernels.h. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/planes.h"
#include "kernels/real.h"

/* What AdamW's weights of one step have in common. */
struct adamw {
  real beta1, beta2, rest1, rest2, eps, shrink, rate, second;
};

static struct adamw adamw_of(const struct mn_rule *rule) {
  if (rule->kind != MN_ADAMW) return (struct adamw){0};
  const double rate = rule->rate[MN_RATE];
  return (struct adamw){.beta1 = (real)rule->beta1,
                        .beta2 = (real)rule->beta2,
                        .rest1 = (real)(1 - rule->beta1),
                        .rest2 = (real)(1 - rule->beta2),
                        .eps = (real)rule->eps,
                        .shrink = (real)(1 - rate * rule->weight_decay),
                        .rate = (real)(rate * rule->rate[MN_RATE_FIRST]),
                        .second = (real)rule->rate[MN_RATE_SECOND]};
}

/* A weight after its update, and m and v. */
static inline real adamw(const struct adamw *a, real gradient, real w, real *m, real *v) {
  *m = a->beta1 * *m + a->rest1 * gradient;
  *v = a->beta2 * *v + a->rest2 * gradient * gradient;
  return a->shrink * w - a->rate * *m / ((real)sqrt(*v) * a->second + a->eps);
}

void MN_CPU(mn_rule)(struct mn_device *device, const struct mn_update *update, void *gradient) {
  if (*device->nonfinite) return;
  const struct mn_rule *rule = update->rule;
  const struct adamw a = adamw_of(rule);
  const real rate = (real)*rule->rate, scale = rule->scale ? (real)*rule->scale : 1;
  const real momentum = (real)rule->momentum, decay = (real)rule->weight_decay;
  const real *g = gradient;
  real *w = update->w->real, *m = update->m, *v = update->v;
  float *plane = update->w->planes[0];
  const float factor = update->w->scale ? update->w->scale->factor : 1;
  int64_t count = update->w->rows * update->w->cols;
  MN_REQUIRE((m || !mn_rule_keeps_m(rule)) && !v == !mn_rule_keeps_v(rule) && (g || !v));
#pragma omp parallel for schedule(static) if (count > MN_PARALLEL_FROM)
  for (int64_t i = 0; i < count; i++) {
    const real d = g ? scale * g[i] : 0;
    if (v) {
      w[i] = adamw(&a, d, w[i], &m[i], &v[i]);
    } else {
      real at = d + decay * w[i], step = at;
      if (m) {
        m[i] = (g ? momentum * m[i] : m[i]) + at;
        step = rule->nesterov ? at + momentum * m[i] : m[i];
      }
      w[i] -= rate * step;
    }
    if (plane) plane[i] = mn_to_plane_of(device, update->w, (float)w[i], factor);
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
