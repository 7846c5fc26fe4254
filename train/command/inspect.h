/* What the commands info, verify and diff say about files.
 *
 * Each writes to `out` (borrowed): lines for people, or, with `json`, one JSON object on one line.
 * MN_IO when `out` cannot be written. All take files of any size; checkpoints are read into memory whole. */
#ifndef MN_TRAIN_COMMAND_INSPECT_H
#define MN_TRAIN_COMMAND_INSPECT_H

#include <stdio.h>

#include "train/checkpoint/layout.h"
#include "train/json.h"

/* What an HDF5 file holds. Of a checkpoint: sizes, tensors, progress, config, fingerprint (and its checksums
 * are checked on the way). Of any other: every group and dataset with shape, type and attributes, and what
 * training would make of it. Nothing is written on an error: MN_NO_INPUT: no such file; MN_BAD_DATA: not
 * HDF5, damaged. */
mn_status mn_info(FILE *out, const char *path, int json);

/* Reads everything in an HDF5 file, a checkpoint by its own rules, and says what is whole. MN_BAD_DATA when
 * something is not, with the reason as message (and the verdict in the JSON); other errors as in mn_info. */
mn_status mn_verify(FILE *out, const char *path, int json);

/* Compares all of /model, /optimizer and /progress of two checkpoints, reals in units in the last place (ULP:
 * how many numbers of that width lie between, +0 and −0 being neighbours; a NaN differs from everything but
 * the same bits). MN_OK when they are the same, MN_FAILED when not; else as mn_checkpoint_load. */
mn_status mn_diff(FILE *out, const char *a, const char *b, int json);

/* The value of an attribute, of its kind. */
void mn_inspect_field(struct mn_json *json, const char *key, const void *value, enum mn_hdf5_value_kind kind);

#endif
