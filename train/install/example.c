/* A program on the library: trains, saves, and goes on from what it saved. Once minnow is installed:
 * cc example.c $(pkg-config --cflags --libs minnow) */
#include "train/minnow.h"
#include <stdio.h>

/* 100 steps more, from the beginning or from a checkpoint, and a checkpoint of where that leads. */
static mn_status train(struct mn_context *context, struct mn_dataset *rows,
                       const struct mn_checkpoint *from) {
  struct mn_model_config config = {.inputs = 32,
                                   .depth = 2,
                                   .hidden = {128, 64},
                                   .groups = 8,
                                   .eps = 1e-5,
                                   .slope = 0.01,
                                   .loss = MN_LOSS_MSE,
                                   .plan = MN_PLAN_BLOCK};
  struct mn_optimizer_config sgd = {.momentum = 0.9, .accumulate = 1};
  struct mn_trainer_config training = {.batch = 64,
                                       .schedule = {.kind = MN_SCHEDULE_COSINE, .rate = 0.5, .horizon = 200}};
  struct mn_progress progress;
  struct mn_model *model;
  struct mn_optimizer *optimizer;
  struct mn_trainer *trainer;
  if (from) MN_TRY(mn_snapshot_config(from, &config));
  MN_TRY(mn_model_open(&model, context, &config));
  MN_TRY(mn_optimizer_open(&optimizer, model, &sgd));
  MN_TRY(from ? mn_snapshot_restore(from, model, optimizer, &progress) : mn_model_initialise(model, 0));
  MN_TRY(mn_trainer_open(&trainer, model, optimizer, rows, &training, from ? &progress : NULL));
  MN_TRY(mn_trainer_run(trainer, trainer->progress.step + 100, NULL, NULL));
  printf("step %3d  loss %.4f\n", (int)trainer->progress.step, trainer->loss);
  MN_TRY(mn_snapshot_save("run.h5", 1, model, optimizer, &trainer->progress, NULL, 0));
  mn_trainer_close(trainer), mn_optimizer_close(optimizer), mn_model_close(model);
  return MN_OK;
}

int main(void) {
  struct mn_context *context = NULL;
  struct mn_dataset *rows = NULL; /* of a random teacher; mn_dataset_open reads an HDF5 file's */
  struct mn_checkpoint *saved = NULL;
  mn_status status = mn_context_open(&context, "auto", "fp32");
  if (!status) status = mn_dataset_synthetic(&rows, MN_PART_TRAIN, 4096, 32, 64, 8, 0.1, 0, context->device);
  if (!status) status = train(context, rows, NULL);
  if (!status) status = mn_checkpoint_load(&saved, "run.h5");
  if (!status) status = train(context, rows, saved);
  if (status) fprintf(stderr, "%s\n", mn_message());
  mn_checkpoint_free(saved), mn_dataset_close(rows), mn_context_close(context);
  return status;
}
