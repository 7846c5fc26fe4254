/* Learns from rows as they come, by a loss of its own with a weight for each row: what 9 of 10 targets stay
 * below. Each batch is predicted before it is learned. The calls in their order: device, model, optimizer,
 * pass; for each step a rate, a batch, forward, backward, update; the predictor follows the model by itself.
 * With minnow installed: cc online.c -lm $(pkg-config --cflags --libs minnow) */
#include <math.h>
#include <minnow/minnow.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 32, INPUTS = 3, STEPS = 3000, JUDGED = 500 };
static const float share = 0.9F;

static float uniform(void) {
  return (float)rand() / (float)RAND_MAX;
}

/* The next rows of a stream, in which a sensor fails now and then, and the later rows weigh more. */
static void next_rows(float x[BATCH][INPUTS], float y[BATCH], float weight[BATCH], int step) {
  for (int n = 0; n < BATCH; n++) {
    for (int i = 0; i < INPUTS; i++) x[n][i] = uniform();
    y[n] = x[n][0] + x[n][1] * uniform(); /* nine of ten are below x[0] + 0.9·x[1] */
    weight[n] = 1 + (float)step / STEPS;
    if (step % 100 == 99 && n == 7) x[n][2] = NAN;
  }
}

int main(void) {
  struct mn_device *device = NULL;
  struct mn_model *model = NULL;
  struct mn_optimizer *optimizer = NULL;
  struct mn_pass *pass = NULL;
  struct mn_predictor *predictor = NULL;
  struct mn_model_config sizes = mn_model_defaults();
  const struct mn_optimizer_config adamw = mn_optimizer_defaults(MN_ADAMW);
  float x[BATCH][INPUTS], y[BATCH], weight[BATCH], p[BATCH], dp[BATCH];
  int below = 0, left_out = 0;
  sizes.inputs = INPUTS, sizes.depth = 1, sizes.hidden[0] = 32, sizes.head = 1;
  mn_status status = mn_device_open(&device, "cpu", "fp32", 1);
  if (!status) status = mn_model_open(&model, device, &sizes);
  if (!status) status = mn_model_initialise(model, 0);
  if (!status) status = mn_optimizer_open(&optimizer, model, &adamw);
  if (!status) status = mn_pass_open(&pass, model, MN_PASS_SEEDED, BATCH, 1, 0);
  if (!status) status = mn_predictor_open(&predictor, model, BATCH);
  for (int step = 0; step < STEPS && !status; step++) {
    float sum = 0;
    next_rows(x, y, weight, step);
    if (step >= STEPS - JUDGED && mn_predict(predictor, x[0], BATCH, p) == MN_OK)
      for (int n = 0; n < BATCH; n++) below += y[n] < p[n];
    for (int n = 0; n < BATCH; n++) sum += weight[n];
    status = mn_optimizer_rate(optimizer, 0.01 * (1 - (double)step / STEPS), step);
    if (!status) status = mn_pass_arrays(pass, x[0], NULL);
    if (!status) status = mn_pass_forward(pass, p);
    for (int n = 0; n < BATCH; n++) dp[n] = weight[n] / sum * (y[n] > p[n] ? -share : 1 - share);
    if (!status) status = mn_pass_backward(pass, dp, NULL);
    if (!status) status = mn_pass_update(pass);
    if (status == MN_FAILED) status = MN_OK, left_out++; /* a value is not finite: nothing has changed */
  }
  if (!status)
    printf("%.3f of the rows stay below; %d batches left out\n", below / (double)(BATCH * (JUDGED - 5)),
           left_out);
  if (status) fprintf(stderr, "%s\n", mn_message());
  mn_predictor_close(predictor), mn_pass_close(pass), mn_optimizer_close(optimizer);
  mn_model_close(model), mn_device_close(device);
  return status;
}
