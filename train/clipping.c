/* Clipping needs the norm of all gradients before the first update: from stored gradients, or on the tape. */
#include "train/clipping.h"

#include "kernels/ranks/collectives.h"

/* Products of rows by rows are faster in 16 bits on a GPU, if they have no more multiply-adds than the
 * gradients (kernels/NOTES.md, "Clipping"). */
int mn_clips_by_grams(const struct mn_model *model, const struct mn_optimizer_config *c) {
  const struct mn_device *device = model->device;
  double grams = 0, gradients = 0;
  for (int i = 0; i < model->depth; i++) {
    const double inputs = (double)model->layers[i].inputs, outputs = (double)model->layers[i].outputs;
    grams += (double)c->rows * (inputs + outputs);
    gradients += inputs * outputs;
  }
  return c->clip > 0 && c->accumulate == 1 && c->rows > 0 && c->rows % 8 == 0 && !device->ranks &&
         device->type == MN_DEVICE_CUDA && device->planes == 1 && grams <= gradients;
}

mn_status mn_clipping_open(struct mn_clipping *c, struct mn_tape *buffers, const struct mn_model *m) {
  const int64_t shards = mn_ranks_shards(m->device->ranks), rows = c->rows;
  if (!(c->max > 0)) return MN_OK;
  MN_TRY(mn_tape_device(buffers, (void **)&c->scale, 2, sizeof(double)));
  /* A sum of squares for each parameter; with shards, this rank's and then all shards' sums. */
  const int64_t squares = m->count * (shards > 1 ? 1 + shards : 1);
  MN_TRY(mn_tape_device(buffers, (void **)&c->squares, squares, sizeof(double)));
  /* More than mn_reduce needs for the largest gradient, or for two grams. */
  const int64_t scratch = mn_reduce_scratch(rows * rows + mn_model_size(&m->config));
  MN_TRY(mn_tape_device(buffers, (void **)&c->scratch, scratch, sizeof(double)));
  int64_t channels = 0;
  for (int i = 0; i < m->depth; i++)
    if (m->layers[i].outputs > channels) channels = m->layers[i].outputs;
  return rows ? mn_tape_device(buffers, &c->grams, 2 * rows * rows + 3 * channels, m->device->real) : MN_OK;
}

mn_status mn_clip_stored(const struct mn_clipping *c, const struct mn_model *m) {
  struct mn_device *device = m->device;
  double *squares = c->squares;
  int64_t count = m->count;
  for (int i = 0; i < m->count && !device->hooks; i++) {
    const struct mn_tensor *t = m->parameters[i];
    const struct mn_reduction sum = {squares + i, c->scratch,         t->gradient,
                                     t->gradient, mn_tensor_count(t), 1};
    MN_TRY(mn_reduce(device, &sum));
  }
  if (device->hooks) MN_TRY(device->hooks->square(device, m->parameters, m->count, c, &squares, &count));
  return mn_clip(device, c->scale, c->norm, squares, count, c->max);
}
