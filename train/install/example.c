/* Trains on arrays of one's own, saves the model, loads it and predicts, in C or C++. With minnow installed:
 * cc example.c $(pkg-config --cflags --libs minnow) */
#include <minnow/minnow.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1024, INPUTS = 4, STEPS = 600 };
static float x[ROWS][INPUTS], y[ROWS], predicted[ROWS];

int main(void) {
  struct mn_device *device = NULL; /* after an error it stays NULL, which every close accepts */
  struct mn_dataset *rows = NULL;
  struct mn_model *model = NULL, *loaded = NULL;
  struct mn_optimizer *optimizer = NULL;
  struct mn_trainer *trainer = NULL;
  struct mn_model_config sizes = mn_model_defaults();
  struct mn_optimizer_config adamw = mn_optimizer_defaults(MN_ADAMW);
  struct mn_trainer_config training = mn_trainer_defaults(MN_ADAMW, STEPS);
  sizes.inputs = INPUTS, sizes.depth = 1, sizes.hidden[0] = 64, sizes.head = 1;
  for (int i = 0; i < ROWS; i++) {
    for (int j = 0; j < INPUTS; j++) x[i][j] = (float)rand() / (float)RAND_MAX;
    y[i] = x[i][0] * x[i][1] - x[i][2];
  }
  mn_status status = mn_device_open(&device, "auto", "fp32", 0);
  if (!status) status = mn_dataset_arrays(&rows, x[0], y, ROWS, INPUTS, 1);
  if (!status) status = mn_model_open(&model, device, &sizes);
  if (!status) status = mn_model_initialise(model, 0);
  if (!status) status = mn_optimizer_open(&optimizer, model, &adamw);
  if (!status) status = mn_trainer_open(&trainer, model, optimizer, rows, &training, NULL);
  if (!status) status = mn_trainer_run(trainer, STEPS, NULL, NULL);
  if (!status) status = mn_model_save(model, "model.h5");
  if (!status) status = mn_model_load(&loaded, device, "model.h5");
  if (!status) status = mn_model_predict(loaded, x[0], ROWS, predicted);
  if (!status) printf("loss %.5f; y %.3f, predicted %.3f\n", mn_trainer_loss(trainer), y[0], predicted[0]);
  if (status) fprintf(stderr, "%s\n", mn_message());
  mn_model_close(loaded), mn_trainer_close(trainer), mn_optimizer_close(optimizer);
  mn_model_close(model), mn_dataset_close(rows), mn_device_close(device);
  return status;
}
