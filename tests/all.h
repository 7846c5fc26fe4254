/* Every header that the tests of the whole library read. What programs read is train/minnow.h. */
#ifndef MN_TESTS_ALL_H
#define MN_TESTS_ALL_H

#include "data/columns.h" /* what columns hold, to standardise x */
#include "data/csv/csv.h"
#include "data/dataset.h" /* rows */
#include "data/dataset_file.h"
#include "data/held_out.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "layers/block_call.h"           /* the block for other frameworks */
#include "layers/layer.h"                /* layers of one's own, on a tape: engine/tape.h */
#include "train/check/check.h"           /* gradient checks */
#include "train/checkpoint/checkpoint.h" /* checkpoints; models and weights alone */
#include "train/defaults.h"
#include "train/evaluate.h"  /* evaluation, prediction */
#include "train/fit.h"       /* units of x and y */
#include "train/runs/runs.h" /* saving and resuming runs */
#include "train/speed.h"
#include "train/trainer.h" /* training; models and passes: train/model.h, train/pass.h */

#endif
