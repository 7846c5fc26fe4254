/* All of minnow: include this, and link with -lminnow. Where to read on: train/model.h for models and passes
 * over them, layers/block.h for the layers, engine/tape.h for the tape, kernels/kernels.h for the arithmetic.
 * Every call that can fail returns a mn_status, and mn_message() says why. */
#ifndef MN_TRAIN_MINNOW_H
#define MN_TRAIN_MINNOW_H

#include "data/dataset.h"
#include "data/loader.h"
#include "layers/add.h"
#include "layers/block.h"
#include "layers/loss.h"
#include "train/check/gradcheck.h"
#include "train/checkpoint/checkpoint.h"
#include "train/model.h"
#include "train/optimizer.h"

#endif
