/* What a tape does among ranks, beside its operations: hooks on its runs (engine/tape.h). */
#ifndef MN_ENGINE_RANKS_TAPE_H
#define MN_ENGINE_RANKS_TAPE_H

#include "engine/tape.h"
#include "kernels/ranks/ranks.h"

enum { MN_TAPE_SCALES = 64 };

struct mn_tape_ranks {
  int divided; /* the rows of a batch are, among replicas, whose results are summed; set by who records */
  /* Among shards: what a step gathers with the agreement on the flag; whole NULL: nothing. Set by who records
   * it. */
  struct {
    void *whole;
    const void *piece;
    int64_t rows, cols;
  } gathered;
  /* The scales of what the backward writes: all ranks agree on them at its end, and the next step chooses its
   * factors by them. The operations' bind adds them. */
  struct mn_scale *scales[MN_TAPE_SCALES];
  int scale_count;
  int reserved_sms; /* the device's before the backward, which spares more for its exchanges */
  /* The replicas' gradients of vectors, and of weights without shares, are added up in one exchange. */
  struct mn_sum *sums;
  int sum_count;
};

/* Set by mn_device_join. */
extern const struct mn_tape_hooks mn_ranks_on_tape;

/* Among how many replicas the rows of a batch are divided. */
static inline int mn_tape_replicas(const struct mn_tape *tape) {
  return tape->ranks && tape->ranks->divided ? tape->device->ranks->replicas.size : 1;
}

#endif
