/* y = a + b, element by element. a and b may be the same tensor; its gradient is then 2·dy. */
#ifndef MN_LAYERS_ADD_H
#define MN_LAYERS_ADD_H

#include "engine/tape.h"

/* Records the sum of two tensors of one shape; y is a tensor of the tape. MN_NO_MEMORY. */
MN_API mn_status mn_add_record(struct mn_tape *tape, struct mn_tensor **y, struct mn_tensor *a,
                               struct mn_tensor *b);

#endif
