/* All of minnow's library: include this, in C or C++, and link with -lminnow. Models and passes over them:
 * train/model.h, train/pass.h; training: train/trainer.h; saving, resuming and loading weights alone:
 * train/checkpoint/snapshot.h, and saving while the training goes on: train/checkpoint/saver.h; a model
 * without its training, saved and opened again: train/checkpoint/model.h; layers of one's own:
 * layers/layer.h, engine/tape.h. Every call that can fail returns a mn_status, and mn_message() says why. */
#ifndef MN_TRAIN_MINNOW_H
#define MN_TRAIN_MINNOW_H

#include "data/columns.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "layers/add.h"
#include "layers/block.h"
#include "layers/block_call.h"
#include "layers/loss.h"
#include "train/check/gradcheck.h"
#include "train/checkpoint/model.h"
#include "train/checkpoint/saver.h"
#include "train/checkpoint/snapshot.h"
#include "train/evaluate.h"
#include "train/trainer.h"

#endif
