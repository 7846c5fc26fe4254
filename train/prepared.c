/* Taking the forms that predictors read, and writing them when the model has changed. */
#include "train/prepared.h"

#include <pthread.h>
#include <stdlib.h>

struct mn_prepared {
  int64_t changes; /* of the model, at which they were prepared; set last */
  int users;       /* open predictors */
  struct mn_tensor parameters[MN_MODEL_PARAMETERS];
};

/* Takes the memory of a parameter's own forms. A weight without planes of its own has the model's. */
static mn_status take_forms(struct mn_device *device, struct mn_tensor *t) {
  static const struct mn_scale one = {1, 0};
  struct mn_operand *w = &t->value;
  const size_t count = (size_t)mn_tensor_count(t);
  const int scaled = w->planes[0] && device->scaled;
  w->packed = NULL;
  for (int i = 0; i < device->planes && scaled; i++) w->planes[i] = NULL;
  if (scaled) w->scale = NULL;
  for (int i = 0; i < device->planes && scaled; i++)
    MN_TRY(mn_allocate(device, &w->planes[i], count * device->plane));
  if (scaled) {
    MN_TRY(mn_allocate(device, (void **)&w->scale, sizeof one));
    MN_TRY(mn_copy(device, w->scale, &one, sizeof one));
  }
  if (t->rank < 2 || device->type != MN_DEVICE_CPU) return MN_OK;
  return mn_allocate(device, &w->packed, (size_t)((w->rows + 31) / 32 * 32 * w->cols) * device->real);
}

static void release_forms(struct mn_device *device, const struct mn_tensor *t, const struct mn_tensor *of) {
  for (int i = 0; i < device->planes; i++)
    if (t->value.planes[i] && t->value.planes[i] != of->value.planes[i])
      mn_release(device, t->value.planes[i]);
  if (t->value.scale && t->value.scale != of->value.scale) mn_release(device, t->value.scale);
  if (t->value.packed) mn_release(device, t->value.packed);
}

void mn_prepared_free(struct mn_model *model) {
  for (int i = 0; model->prepared && i < model->count; i++)
    release_forms(model->device, &model->prepared->parameters[i], model->parameters[i]);
  free(model->prepared);
  model->prepared = NULL;
}

static mn_status take(struct mn_model *model, struct mn_device *device) {
  if (model->prepared) return MN_OK;
  struct mn_prepared *prepared = model->prepared = calloc(1, sizeof *prepared);
  if (!prepared) return mn_fail(MN_NO_MEMORY, "no memory for a predictor's weights");
  mn_status status = MN_OK;
  for (int i = 0; i < model->count; i++) prepared->parameters[i] = *model->parameters[i];
  for (int i = 0; i < model->count && status == MN_OK; i++)
    status = take_forms(device, &prepared->parameters[i]);
  if (status != MN_OK) mn_prepared_free(model);
  return status;
}

static mn_status prepare(struct mn_model *model, struct mn_device *device) {
  struct mn_prepared *prepared = model->prepared;
  const int64_t changes = __atomic_load_n(&model->changes, __ATOMIC_RELAXED);
  if (prepared->users > 0 && !mn_prepared_old(model)) return MN_OK; /* another thread was first */
  MN_TRY(mn_synchronize(model->device));
  for (int i = 0; i < model->count; i++) {
    struct mn_operand *w = &prepared->parameters[i].value;
    if (w->scale != model->parameters[i]->value.scale) MN_TRY(mn_round(device, w, 1));
    if (w->packed) mn_pack(device, w);
  }
  MN_TRY(mn_synchronize(device));
  __atomic_store_n(&prepared->changes, changes, __ATOMIC_RELEASE);
  return MN_OK;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

mn_status mn_prepared_open(struct mn_model *model, struct mn_device *device) {
  MN_REQUIRE(pthread_mutex_lock(&mutex) == 0);
  mn_status status = take(model, device);
  if (status == MN_OK) status = prepare(model, device);
  if (status == MN_OK) model->prepared->users++;
  MN_REQUIRE(pthread_mutex_unlock(&mutex) == 0);
  return status;
}

void mn_prepared_close(struct mn_model *model) {
  MN_REQUIRE(pthread_mutex_lock(&mutex) == 0);
  model->prepared->users--;
  MN_REQUIRE(pthread_mutex_unlock(&mutex) == 0);
}

int mn_prepared_old(const struct mn_model *model) {
  return __atomic_load_n(&model->prepared->changes, __ATOMIC_ACQUIRE) !=
         __atomic_load_n(&model->changes, __ATOMIC_RELAXED);
}

const struct mn_tensor *mn_prepared_parameter(const struct mn_model *model, int index) {
  return &model->prepared->parameters[index];
}
