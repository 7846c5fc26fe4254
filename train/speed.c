/* The speed of training, and what bounds it. */
#include "train/speed.h"

/* The forward, dW and, except in the first layer, dx: each multiplies and adds once for every weight. */
double mn_model_step_flops(const struct mn_model *model) {
  double flops = 0;
  for (int i = 0; i < model->depth; i++)
    flops += (i == 0 ? 4.0 : 6.0) * (double)model->layers[i].inputs * (double)model->layers[i].whole;
  return flops;
}

/* Waiting for less than a tenth of the time is not the bound: without it a run would gain only that tenth. */
static const char *bound_of(const struct mn_trainer *t, double waiting) {
  if (!(waiting >= 0.1)) return "the step";
  if (t->times.reading > 0.5 * t->times.waiting) return "the disk";
  int far = mn_loader_placement(t->loader)->place != MN_PLACE_DEVICE;
  return far && t->model->device->type == MN_DEVICE_CUDA ? "the link" : "the gathering of rows";
}

struct mn_trainer_speed mn_trainer_speed(const struct mn_trainer *t) {
  const int64_t each = t->batch * t->optimizer->config.accumulate;
  double samples = (double)(t->times.steps * each) / t->times.running;
  double waiting = t->times.waiting / t->times.running;
  return (struct mn_trainer_speed){.samples = samples,
                                   .flops = samples * mn_model_step_flops(t->model),
                                   .waiting = waiting,
                                   .bound = bound_of(t, waiting)};
}
