/* Capturing and launching. */
#include "engine/replay.h"

#include <stdio.h>

/* A capture must be ended even when an operation failed; the operation's error is then the one reported. */
static mn_status capture(struct mn_device *device, struct mn_graph **out, mn_status (*run)(void *data),
                         void *data) {
  const struct mn_kernels *k = device->kernels;
  MN_TRY(k->graph_begin(device));
  mn_status status = run(data);
  if (status == MN_OK) return k->graph_end(device, out);
  char message[MN_MESSAGE];
  snprintf(message, sizeof message, "%s", mn_message());
  struct mn_graph *partial = NULL;
  if (k->graph_end(device, &partial) == MN_OK) k->graph_free(device, partial);
  return mn_fail(status, "%s", message);
}

mn_status mn_replay_run(struct mn_device *device, struct mn_replay *replay, mn_status (*run)(void *data),
                        void *data) {
  const struct mn_kernels *k = device->kernels;
  int first = !replay->ran;
  replay->ran = 1;
  if (first || !k->graph_launch) return run(data);
  if (!replay->graph) MN_TRY(capture(device, &replay->graph, run, data));
  return k->graph_launch(device, replay->graph);
}

void mn_replay_free(struct mn_device *device, struct mn_replay *replay) {
  if (replay->graph) device->kernels->graph_free(device, replay->graph);
  *replay = (struct mn_replay){0};
}
