/* Checkpoints: a model, its optimiser and the progress of its training in one HDF5 file, laid out so that
 * PyTorch can read /model as a state_dict. The layout stands at the head of layout.c. */
#ifndef MN_TRAIN_CHECKPOINT_CHECKPOINT_H
#define MN_TRAIN_CHECKPOINT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"
#include "train/model.h"
#include "train/trainer.h"

/* One parameter, on the host. */
struct mn_checkpoint_tensor {
  char name[64];      /* PyTorch's: "blocks.0.fc.weight", "head.bias" … */
  int rank;           /* 2: [rows, cols], 1: [cols] */
  int64_t rows, cols; /* rows 1 for a vector */
  size_t real;        /* 4 or 8 bytes an element */
  void *value;        /* owned by the checkpoint */
  /* The optimizer's state, of the same size and owned too. NULL in all tensors if the rule keeps none. */
  void *momentum;             /* SGD */
  void *exp_avg, *exp_avg_sq; /* AdamW: m and v of struct mn_rule */
  /* Powers of two, or 0 if there is none: the factor of a weight's scaled planes (struct mn_scale), and the
   * factor under which the next step writes dz, the gradient of the weight's product. */
  double factor, gradient_factor;
};

/* A name and its value, as text: an option in /config, an item of the /fingerprint. */
enum { MN_TEXT_NAME = 32, MN_TEXT_VALUE = 256 };
struct mn_text {
  char name[MN_TEXT_NAME];
  char value[MN_TEXT_VALUE];
};
/* The value of the text called `name`, owned by `texts`; NULL: there is none. */
MN_API const char *mn_text_find(const struct mn_text *texts, int count, const char *name);

/* Which run a checkpoint is of, in texts of /config; "" is what a file lacks. `id` says what makes the run,
 * in hexadecimal digits: of how it began and, behind a dot, of the changes since; `name` is that of the file
 * which it saves to, without its folder; `source`, of a run that was forked from another's checkpoint: that
 * one's id, a blank and its name. */
#define MN_RUN_ID "run"
#define MN_RUN_NAME "saved_as"
#define MN_RUN_SOURCE "forked_from"
struct mn_run {
  char id[40], name[MN_TEXT_VALUE], source[MN_TEXT_VALUE];
};
void mn_run_find(struct mn_run *out, const struct mn_text *texts, int count);

enum {
  MN_CHECKPOINT_INPUT = 2,
  MN_CHECKPOINT_TENSORS = 512,
  MN_CHECKPOINT_OPTIONS = 64,
  MN_CHECKPOINT_FINGERPRINT = 16,
  MN_CHECKPOINT_HISTORY = 64,
  MN_CHECKPOINT_KEEP = 1000, /* the largest `keep` */
  MN_CHECKPOINT_PATH = 4096, /* bytes of a path */
};

struct mn_checkpoint {
  struct mn_model_config model; /* /model attributes; of a file that was read, with MN_PLAN_BLOCK */
  /* The file holds a model without its training (mn_model_save): progress and options are empty, and there is
   * no momentum. */
  int alone;
  /* A file that was read has this format_version, and so many checksums of its content, all of them right;
   * 0 if it has none, because minnow 0.2 wrote it or another program removed them. */
  int64_t version;
  int checksums;
  int tensor_count;
  /* [tensor_count], owned. In the order of PyTorch's state_dict: of each block fc.weight, fc.bias, gn.weight,
   * gn.bias, then head.weight, head.bias; all of one real. mn_checkpoint_expect says name and shape of each.
   */
  struct mn_checkpoint_tensor *tensors;
  /* What rows are standardised by (mn_model_standardize): mean and scale [inputs], float64, owned. Values
   * NULL: rows are taken as they are. */
  struct mn_checkpoint_tensor input[MN_CHECKPOINT_INPUT];
  struct mn_progress progress; /* /progress attributes */
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

/* The number of tensors that a model of the checkpoint's sizes (model) has, and the name, rank, rows and
 * cols of number `index`; real and the arrays of *tensor stay as they are. */
int mn_checkpoint_expected(const struct mn_checkpoint *checkpoint);
void mn_checkpoint_expect(const struct mn_checkpoint *checkpoint, int index,
                          struct mn_checkpoint_tensor *tensor);

/* Writes `checkpoint`, whose tensors are as mn_checkpoint_expect tells, to `path`: new file in the same
 * folder, H5Fclose, fsync, rename, fsync of the folder. With keep > 1 the file that stood at PATH moves to
 * PATH with .1 before its ending (run.h5 → run.1.h5), that one to .2, up to keep − 1, by hard links and
 * renames, so that at no moment there is no whole `path`; a file system without links has a moment between
 * two renames. keep 1: it is replaced. A symbolic link stands for the file that it leads to, and that file's
 * permissions are kept. Only checkpoints of the same run (struct mn_run, in the options) are replaced, moved
 * or dropped. On any error `path` stands as it was, or, if only the sync of the folder failed, whole and new;
 * the oldest may be dropped already. MN_USAGE: keep outside 1 … MN_CHECKPOINT_KEEP; MN_NO_CREATE: a folder
 * that is not there or cannot be written, a path that is no regular file, another run's checkpoint or another
 * kind of file at one of the names; MN_IO: no space, a failing disk; MN_LIBRARY: HDF5 failed otherwise. Holds
 * the lock of data/hdf5.h for 4 MiB at a time. One thread saves to a path at a time. */
MN_API mn_status mn_checkpoint_save(const struct mn_checkpoint *checkpoint, const char *path, int keep);

/* The best checkpoint that a run keeps beside `path`: *best gets its name, run.h5 → run.best.h5, beside the
 * file that a symbolic link leads to. MN_NO_CREATE: a path that is too long. */
MN_API mn_status mn_checkpoint_best(char best[MN_CHECKPOINT_PATH], const char *path);

/* Locks `path` for the life of a run, by flock on the file PATH.lock, which mn_checkpoint_unlock removes; the
 * kernel ends the lock of a run that is killed. MN_NO_CREATE: another run holds it, or the file cannot be
 * created. Where the file system has no locks, none is taken. */
struct mn_checkpoint_lock;
MN_API mn_status mn_checkpoint_lock(struct mn_checkpoint_lock **out, const char *path);
MN_API void mn_checkpoint_unlock(struct mn_checkpoint_lock *lock); /* NULL is fine */

/* Reads and verifies a checkpoint; free it with mn_checkpoint_free. MN_NO_INPUT: no such file; MN_IO: a disk
 * that cannot be read; MN_NO_MEMORY; MN_BAD_DATA: not HDF5, truncated, a checksum that fails (HDF5's, or that
 * of its content), not a minnow checkpoint, a newer format_version, a tensor missing or of another shape. */
MN_API mn_status mn_checkpoint_load(struct mn_checkpoint **out, const char *path);

/* To resume: the newest of path, path.1, path.2 … that verifies, else the best (mn_checkpoint_best); those
 * that are runs of their own, by their names, do not count. *used gets its name, and *skipped, for
 * people, which newer ones were passed over and why ("" for none). Those are damaged, and are renamed
 * (run.h5 → run.damaged-1.h5), so that no later save replaces them. A newer file that is not a damaged
 * checkpoint (of a newer format_version, of another kind, or one that cannot be opened or read from its disk)
 * is never passed over: its error is returned. MN_NO_INPUT when there is none at all, MN_BAD_DATA when there
 * are and none verifies: then nothing is renamed. */
MN_API mn_status mn_checkpoint_load_newest(struct mn_checkpoint **out, const char *path,
                                           char used[MN_CHECKPOINT_PATH], char *skipped, size_t skipped_size);

MN_API void mn_checkpoint_free(struct mn_checkpoint *checkpoint); /* NULL is fine */

#endif
