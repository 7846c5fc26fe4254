/* Capturing work as a graph, and launching it. */
#include <stdio.h>

#include "engine/tape.h"

/* A capture must be ended even when an operation failed; the operation's error is then the one reported. */
static mn_status capture(struct mn_device *device, struct mn_graph **out, mn_status (*run)(void *data),
                         void *data) {
  MN_TRY(mn_graph_begin(device));
  mn_status status = run(data);
  if (status == MN_OK) return mn_graph_end(device, out);
  char message[MN_MESSAGE];
  snprintf(message, sizeof message, "%s", mn_message());
  struct mn_graph *partial = NULL;
  if (mn_graph_end(device, &partial) == MN_OK) mn_graph_free(device, partial);
  return mn_fail(status, "%s", message);
}

mn_status mn_tape_graph(struct mn_tape *tape, int number, mn_status (*run)(void *data), void *data) {
  struct mn_graph **graph = &tape->graphs[number];
  mn_count_change(tape->changes);
  if (!tape->device->kernels->graph_launch) return run(data);
  if (!*graph) MN_TRY(capture(tape->device, graph, run, data));
  return mn_graph_launch(tape->device, *graph);
}
