/* Work that is given again and again: as one CUDA graph where there are graphs, else call by call. */
#ifndef MN_ENGINE_REPLAY_H
#define MN_ENGINE_REPLAY_H

#include "kernels/device.h"

struct mn_replay {
  struct mn_graph *graph; /* NULL before the second run, and on the CPU */
  int ran;                /* the libraries have chosen their algorithms for this work; set by the first run */
};

/* Gives the device the work of run(data): the first time by calling it, the second time captured as a graph
 * (kernels/stream.h says what may be captured), from then on as that graph, without calling it. The work must
 * be the same each time, on the same memory. */
mn_status mn_replay_run(struct mn_device *device, struct mn_replay *replay, mn_status (*run)(void *data),
                        void *data);
void mn_replay_free(struct mn_device *device, struct mn_replay *replay);

#endif
