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

/* A name and its value, as text: an option in /config, an item of the /fingerprint. */
enum { MN_TEXT_NAME = 32, MN_TEXT_VALUE = 256 };
struct mn_text {
  char name[MN_TEXT_NAME];
  char value[MN_TEXT_VALUE];
};
/* The value of the text called `name`, owned by `texts`; NULL if it is missing. */
const char *mn_text_find(const struct mn_text *texts, int count, const char *name);

enum {
  MN_CHECKPOINT_STANDARD = 2,
  MN_CHECKPOINT_TENSORS = 512,
  MN_CHECKPOINT_OPTIONS = 64,
  MN_CHECKPOINT_FINGERPRINT = 16,
  MN_CHECKPOINT_HISTORY = 64,
  MN_CHECKPOINT_KEEP = 1000, /* the largest `keep` */
  MN_CHECKPOINT_PATH = 4096, /* bytes of a path */
};

struct mn_checkpoint {
  struct mn_model_config model; /* /model attributes; of a file that was read, with MN_PLAN_STACK */
  /* The file holds a model without its training (mn_model_save): progress and options are empty, and tensors
   * lack momentum. */
  int alone;
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

/* Reads and verifies a checkpoint; free it with mn_checkpoint_free. MN_NO_INPUT: no such file; MN_IO: a disk
 * that cannot be read; MN_NO_MEMORY; MN_BAD_DATA: not HDF5, truncated, a checksum that fails (HDF5's, or its
 * content's), not a minnow checkpoint, a newer format_version, a tensor missing or of another shape. */
MN_API mn_status mn_checkpoint_load(struct mn_checkpoint **out, const char *path);

MN_API void mn_checkpoint_free(struct mn_checkpoint *checkpoint); /* NULL is fine */

/* ---- a model without its training ---- */

/* Writes configuration and parameters of `model` to `path`: whole or not at all, as every checkpoint.
 * `minnow eval`, `predict` and `train --init` take the file, and h5py reads /model as a state_dict. The plan
 * is not saved. A file that exists is replaced only if mn_model_save has written it: MN_NO_CREATE, also for a
 * checkpoint, whose training would be lost, or one that appears meanwhile. Else as mn_checkpoint_save,
 * MN_NO_MEMORY, MN_LIBRARY. */
MN_API mn_status mn_model_save(const struct mn_model *model, const char *path);

/* ---- restoring a model ---- */

/* Copies parameters with their scales, the optimizer's state and progress (each unless NULL) from
 * `from` into a model of the same sizes. MN_BAD_DATA: a tensor is missing or has another shape, as all do
 * that another rule has kept, or the order of samples has other constants here; MN_NO_MEMORY. */
MN_API mn_status mn_snapshot_restore(const struct mn_checkpoint *from, struct mn_model *model,
                                     struct mn_optimizer *optimizer, struct mn_progress *progress);

/* Loads the weights alone of an HDF5 file into a model that mn_model_open made: a dataset of floats of any
 * width for each parameter, in the group /model under the parameter's name (mn_model_parameter), [rows, cols]
 * or, of a vector, [cols]. If the file has a group /input or /output, the model standardises x or y by its
 * mean and scale (mn_model_standardize, mn_model_standardize_targets). A checkpoint is such a file; its
 * optimizer, progress, factors of planes and configuration are not looked at, and planes get factors as after
 * mn_model_initialise. `path` is borrowed during the call. After these errors the model is as it was:
 * MN_NO_INPUT: no such file, or another program writes it; MN_IO: a disk that cannot be read; MN_BAD_DATA:
 * not HDF5, no group /model, tensors that are missing, left over, or of another shape or type, which one
 * message lists all together, or a value that is not finite in the model's reals. After MN_NO_MEMORY and
 * MN_LIBRARY, where a copy to the device may have failed, some parameters may have the file's values and
 * others not. */
MN_API mn_status mn_snapshot_load_weights(const char *path, struct mn_model *model);

/* Opens the model in a file of mn_model_save, or in a checkpoint, on `device`, with MN_PLAN_STACK. `*out` is
 * the caller's, for mn_model_close; it borrows `device`. Errors: as mn_checkpoint_load and mn_model_open. A
 * file of weights alone has no configuration: mn_snapshot_load_weights. */
MN_API mn_status mn_model_load(struct mn_model **out, struct mn_device *device, const char *path);

/* The members, for programs that do not know the struct; the option called `name`, or NULL. */
MN_API const struct mn_model_config *mn_checkpoint_sizes(const struct mn_checkpoint *checkpoint);
MN_API const char *mn_checkpoint_config(const struct mn_checkpoint *checkpoint, const char *name);

#endif
