/* Lines on stderr. */
#include "train/command/announce.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/text.h"

void mn_announce(const struct mn_options *options, const char *format, ...) {
  if (options->quiet) return;
  va_list arguments;
  char line[MN_MESSAGE];
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  mn_escape_print(stderr, "%s\n", line); /* in one write: other threads have lines to tell, too */
}

/* An OpenBLAS older than the processor falls back to SSE3 kernels. Returns the OPENBLAS_CORETYPE that selects
 * better ones; NULL: it has not fallen back. */
static const char *better_core(void) {
#ifdef __x86_64__
  if (strcmp(openblas_get_corename(), "Prescott") != 0 || !__builtin_cpu_supports("avx2")) return NULL;
  return __builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell";
#else
  return NULL;
#endif
}

void mn_announce_device(const struct mn_device *device, const struct mn_options *options) {
  mn_announce(options, "device: %s, %s", device->name, mn_precision_name(device->precision));
  int cpu = device->type == MN_DEVICE_CPU;
  if ((device->precision == MN_TF32 && cpu) || (device->precision == MN_FP16X3 && device->planes == 0))
    mn_announce(options, "note: %s runs as fp32 on %s", mn_precision_name(device->precision),
                cpu ? "the CPU" : "this GPU");
  if (!cpu) return;
  if (openblas_get_parallel() == OPENBLAS_THREAD)
    mn_announce(
        options,
        "note: this OpenBLAS has threads of its own, which get in the way of minnow's: steps are two to "
        "three times slower; install libopenblas0-openmp, then, where there are several, "
        "update-alternatives --config libopenblas.so.0-$(uname -m)-linux-gnu chooses it");
  const char *core = better_core();
  if (core)
    mn_announce(options,
                "note: this OpenBLAS does not know this processor; OPENBLAS_CORETYPE=%s in the environment "
                "makes its products several times faster",
                core);
}

void mn_announce_model(const struct mn_model *model, const struct mn_options *options) {
  const struct mn_device *device = model->device;
  mn_announce_device(model->device, options);
  for (int i = 0; i < model->config.depth; i++)
    if (model->config.hidden[i] == model->config.groups)
      mn_announce(
          options,
          "note: block %d has one channel a group, which normalising makes 0: its output does not depend "
          "on its input; fewer --groups would do",
          i);
  for (int i = 0; i < model->count && device->planes == 2; i++) {
    const struct mn_operand *w = &model->parameters[i]->value;
    if (model->parameters[i]->rank == 2 && !w->planes[0])
      mn_announce(options, "note: %s [%ld, %ld] is multiplied in fp32; fp16x3 takes multiples of 8",
                  model->parameters[i]->name, (long)w->rows, (long)w->cols);
  }
}

void mn_announce_training(const struct mn_trainer *t, const struct mn_options *options) {
  const struct mn_model_config *model = &t->model->config;
  const struct mn_schedule *s = &t->schedule;
  const struct mn_dataset *rows = t->dataset;
  char layers[MN_SHOWN_MODEL], warmup[48] = "", epochs[MN_SHOWN];
  const int64_t each = t->batch * t->optimizer->config.accumulate;
  if (s->warmup > 0) snprintf(warmup, sizeof warmup, " after %ld steps of warm-up", (long)s->warmup);
  mn_announce(options, "model: %s of %ld %s; %ld parameters", mn_show_model(layers, model),
              (long)rows->outputs, rows->classes ? "classes" : "targets", (long)mn_model_size(model));
  mn_announce(options, "training: %s, rate %g, %s%s; %ld steps of %ld rows, %s epochs of %ld",
              mn_optimizer_name(t->optimizer->config.rule), s->rate, mn_schedule_name(s->kind), warmup,
              (long)s->horizon, (long)each,
              mn_show_number(epochs, (double)s->horizon * (double)each / (double)rows->rows, 3),
              (long)rows->rows);
}

static void announce_constant(const struct mn_columns *c, const struct mn_options *options) {
  enum { MOST = 8 };
  char names[MOST * 24] = "";
  int64_t count = 0;
  for (int64_t i = 0; i < c->cols; i++) {
    const size_t used = strlen(names);
    if (c->deviation[i] > 0 || ++count > MOST) continue;
    snprintf(names + used, sizeof names - used, "%s%lld", used ? ", " : "", (long long)i);
  }
  if (count > 0)
    mn_announce(options, "note: constant columns of x, which tell the model nothing: %s%s (%lld of %lld)",
                names, count > MOST ? " …" : "", (long long)count, (long long)c->cols);
}

void mn_announce_columns(const struct mn_columns *c, int standardized, const struct mn_options *options) {
  const double apart = 100, off = 10; /* of deviations; of a mean, in deviations */
  int64_t narrow, wide;
  announce_constant(c, options);
  mn_columns_extremes(c, &narrow, &wide);
  if (narrow < 0 || standardized) return;
  int64_t far = narrow;
  for (int64_t i = 0; i < c->cols; i++)
    if (fabs(c->mean[i]) * c->deviation[far] > fabs(c->mean[far]) * c->deviation[i] && c->deviation[i] > 0)
      far = i;
  const double mean = fabs(c->mean[far]) / c->deviation[far];
  char of_mean[80] = "";
  if (mean > off)
    snprintf(of_mean, sizeof of_mean, ", column %lld a mean of %.3g deviations", (long long)far, mean);
  if (c->deviation[wide] > apart * c->deviation[narrow] || mean > off)
    mn_announce(
        options,
        "note: the columns of x have deviations from %.3g (column %lld) to %.3g (column %lld)%s: if they "
        "are in different units, --standardize makes them alike",
        c->deviation[narrow], (long long)narrow, c->deviation[wide], (long long)wide, of_mean);
}

void mn_announce_targets(const struct mn_columns *c, const struct mn_options *options) {
  const double far = 10;
  int64_t worst = 0;
  for (int64_t i = 1; i < c->cols; i++)
    if (fabs(c->mean[i]) + c->deviation[i] > fabs(c->mean[worst]) + c->deviation[worst]) worst = i;
  if (c->cols > 0 && fabs(c->mean[worst]) + c->deviation[worst] > far)
    mn_announce(options,
                "note: target %lld has the mean %.3g and the deviation %.3g, but outputs begin near 0: "
                "(y - mean) / deviation in its place trains faster",
                (long long)worst, c->mean[worst], c->deviation[worst]);
}

void mn_announce_sums(const struct mn_checkpoint *checkpoint, const char *path, int quiet) {
  if (!checkpoint->checksums && !quiet)
    mn_escape_print(
        stderr,
        "minnow: note: %s has no checksums of its content: it is of minnow 0.2 or older, and a lost "
        "write may go unseen\n",
        path);
}
