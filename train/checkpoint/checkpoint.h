/* Checkpoints: a model, its optimizer and the progress of its training in one HDF5 file, laid out so that
 * PyTorch can read /model as a state_dict. The layout stands at the head of layout.c. */
#ifndef MN_TRAIN_CHECKPOINT_CHECKPOINT_H
#define MN_TRAIN_CHECKPOINT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/trainer.h"

/* Indices of a parameter's arrays. */
enum { MN_CHECKPOINT_VALUE, MN_CHECKPOINT_MOMENTUM, MN_CHECKPOINT_ARRAYS = 4 };

/* One parameter, on the host. */
struct mn_checkpoint_tensor {
  char name[64];      /* PyTorch's: "blocks.0.fc.weight", "head.bias" … */
  int rank;           /* 2: [rows, cols], 1: [cols] */
  int64_t rows, cols; /* rows 1 for a vector */
  size_t real;        /* 4 or 8 bytes an element */
  union { /* Owned by the checkpoint, rows·cols elements each. State that the rule lacks is NULL. */
    struct {
      void *value;
      void *momentum;             /* SGD */
      void *exp_avg, *exp_avg_sq; /* AdamW: m and v of struct mn_rule */
    };
    void *arrays[MN_CHECKPOINT_ARRAYS]; /* the same, in this order */
  };
  /* Powers of two, or 0 if missing: the factor of a weight's scaled planes (struct mn_scale), and the factor
   * under which the next step writes dz, the gradient of the weight's product. */
  double factor, gradient_factor;
};

/* The value of the text called `name`, owned by `texts`; NULL if it is missing. */
const char *mn_text_find(const struct mn_text *texts, int count, const char *name);

enum {
  MN_CHECKPOINT_STANDARD = 2,
  MN_CHECKPOINT_TENSORS = 512,
  MN_CHECKPOINT_OPTIONS = 80,
  MN_CHECKPOINT_FINGERPRINT = 16,
  MN_CHECKPOINT_HISTORY = 64,
  MN_CHECKPOINT_KEEP = 1000, /* the largest `keep` */
};

struct mn_checkpoint {
  struct mn_model_config model; /* /model attributes; of a file that was read, with MN_PLAN_STACK */
  /* The file holds a model without its training (mn_model_save): progress and options are empty, and tensors
   * lack momentum. */
  int alone;
  double log;      /* 1: y is learnt as its logarithm, which outputs undo; else 0 */
  int64_t version; /* the format_version of a file that was read, */
  int checksums;   /* and how many it has, all right; 0 by minnow 0.2, or if another program removed them */
  int tensor_count;
  /* [tensor_count], owned. In the order of PyTorch's state_dict: of each block fc.weight, fc.bias, gn.weight,
   * gn.bias, then head.weight, head.bias; all of one real. mn_checkpoint_lay_out gives name and shape of
   * each. */
  struct mn_checkpoint_tensor *tensors;
  /* The numbers that standardise x and y (struct mn_standard): mean and scale, [inputs] or [outputs],
   * float64, owned; NULL if they are taken as they are. */
  struct mn_checkpoint_tensor standard[MN_SIDES][MN_CHECKPOINT_STANDARD];
  struct mn_class_names class_names; /* count 0 if classes are numbers; owned */
  char *table, *trained;             /* as the model's; NULL without; owned */
  struct mn_progress progress;       /* /progress attributes */
  /* /config and /fingerprint: attributes, fixed-length strings */
  int option_count;
  struct mn_text options[MN_CHECKPOINT_OPTIONS];
  int fingerprint_count;
  struct mn_text fingerprint[MN_CHECKPOINT_FINGERPRINT];
  /* /history: what resumed runs had otherwise than those before them, the newest last: "step 45 --lr", "0.01
   * (was 0.05)" */
  int history_count;
  struct mn_text history[MN_CHECKPOINT_HISTORY];
};

/* Takes memory for the tensors of a model of the checkpoint's sizes (model), and sets their number, and the
 * name, rank, rows and cols of each. Sets `standard` anew, without values. MN_NO_MEMORY. */
mn_status mn_checkpoint_lay_out(struct mn_checkpoint *checkpoint);

#endif
