/* All of minnow's library, in C or C++: #include <minnow/minnow.h>, and link with -lminnow. Rows: data/dataset.h;
 * models and passes over them: train/model.h, train/pass.h; training: train/trainer.h; evaluation and
 * prediction: train/evaluate.h; saving, resuming and loading weights alone: train/checkpoint/snapshot.h, and
 * saving while the training goes on: train/checkpoint/saver.h; a model without its training, saved and opened
 * again: train/checkpoint/model.h; layers of one's own: layers/layer.h, engine/tape.h.
 *
 * Every call that can fail returns a mn_status, and mn_message() says why. An mn_…_open, or another call that
 * makes something for the caller, leaves NULL in its `out` after an error, and every mn_…_close accepts NULL:
 * so a program begins with NULL everywhere, and closes everything at its end (train/install/example.c). Start
 * each config from its mn_…_defaults. */
#ifndef MN_TRAIN_MINNOW_H
#define MN_TRAIN_MINNOW_H

/* The version of these headers. The Makefile reads it here. */
#define MINNOW_VERSION "0.3.0"
#define MINNOW_VERSION_MAJOR 0
#define MINNOW_VERSION_MINOR 3
#define MINNOW_VERSION_PATCH 0

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
