/* The layout of checkpoints, format_version 2 to 5, and what writer and reader derive from it:
 *
 *   object                        type, shape                what
 *   ----------------------------  -------------------------  ------------------------------------------------
 *   /            format           string                     "minnow checkpoint"
 *                format_version   int64                      5 with log_targets, 4 with /table, 3 with
 *                                                            /output or /classes, else 2
 *                checksums        string                     of the datasets below (layout.h);
 *                                                            since minnow 0.3
 *                trained          string                     hashes of x of at most 4,096 rows that it was
 *                                                            trained on (data/fingerprint.h), where known
 *   /model       mn_checkpoint_model_fields                 int64, float64, string; `hidden` [depth]
 *   /model/blocks.i.fc.weight     real [C, I]                one dataset a parameter, under PyTorch's name
 *   /model/blocks.i.fc.bias       real [C]                   (dots, no groups), float32 or, trained in fp64,
 *   /model/blocks.i.gn.weight     real [C]                   float64: all of them the same
 *   /model/blocks.i.gn.bias       real [C]
 *   /model/head.weight            real [head, C]
 *   /model/head.bias              real [head]
 *   /model/….weight  factor, gradient_factor  float64        of a weight that was trained in scaled planes
 *                                                            (fp16): powers of two, that of its planes and
 *                                                            that under which the next step writes dz
 *   /input/mean, /input/scale     float64 [I]                what x is standardised by (--standardize):
 *                                                            (x − mean)/scale
 *   /output/mean, /output/scale   float64 [K]                the same of real targets: a prediction is the
 *                                                            last layer's output · scale + mean
 *   /classes/names                string [K]                 of classes that are words, sorted by their bytes
 *   /table/columns                string [1]                 what the columns of a CSV are to the model, in
 *                                                            JSON (data/csv/csv.h)
 *   /optimizer/momentum/…         the same names and shapes  only with SGD's momentum
 *   /optimizer/exp_avg/…          the same                   only with AdamW, and so is
 *   /optimizer/exp_avg_sq/…       the same                   this
 *   /progress    mn_checkpoint_progress_fields              int64, float64, uint64 (struct mn_progress)
 *   /config      one string an option, in the order given (data as from this file's folder); then those of
 *                saves and log lines, what the order of samples depends on, and
 *                data_rows        a hash of the sampled rows and, where all were read, one of all of them;
 *                                 weights_rows, of the rows' weights (data/fingerprint.h)
 *   /fingerprint one string an item, in the order given
 *   /history     one string a change that a resumed run made, the newest last; there where there is one
 *
 * A model that was saved without its training (mn_model_save) has /model, /input, /output, /classes,
 * /table and /fingerprint alone.
 *
 * Below /model, /input, /output, /classes, /table and the groups of /optimizer are datasets; all else are
 * attributes. Everything is little-endian. Strings are of fixed length, padded with zeros; integers and
 * strings are scalars but for `hidden`. Every dataset is contiguous, guarded by its line of `checksums`;
 * version bounds V110 give all of HDF5's own structures a checksum too, so no flipped bit goes unseen. No
 * times are stored and all links and attributes stay in their object's header: the same content gives the
 * same bytes. */
#include "train/checkpoint/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER(type, what, is, member, ...)                                                                  \
  { .name = what, .kind = is, .offset = offsetof(type, member), __VA_ARGS__ }
#define FIELD(name, kind, member, ...) MEMBER(struct mn_checkpoint, name, kind, member, __VA_ARGS__)

const struct mn_checkpoint_field mn_checkpoint_model_fields[] = {
    FIELD("inputs", MN_VALUE_INTEGER, model.inputs),
    FIELD("groups", MN_VALUE_INTEGER, model.groups),
    FIELD("depth", MN_VALUE_INTEGER, model.depth),
    FIELD("head", MN_VALUE_INTEGER, model.head),
    FIELD("eps", MN_VALUE_REAL, model.eps),
    FIELD("negative_slope", MN_VALUE_REAL, model.slope),
    FIELD("loss", MN_VALUE_TEXT, model.loss, .words = mn_loss_words),
    FIELD("log_targets", MN_VALUE_REAL, log, .optional = MN_FIELD_FACTOR), /* 1, or missing */
    FIELD("hidden", MN_VALUE_INTEGER, model.hidden,
          .length_offset = offsetof(struct mn_checkpoint, model.depth)),
    {.name = NULL},
};

const struct mn_checkpoint_field mn_checkpoint_progress_fields[] = {
    FIELD("step", MN_VALUE_INTEGER, progress.step),
    FIELD("epoch", MN_VALUE_INTEGER, progress.epoch),
    FIELD("position", MN_VALUE_INTEGER, progress.position),
    FIELD("samples", MN_VALUE_INTEGER, progress.samples),
    FIELD("seed", MN_VALUE_UNSIGNED, progress.seed),
    FIELD("best_metric", MN_VALUE_REAL, progress.best),
    FIELD("best_epoch", MN_VALUE_INTEGER, progress.best_epoch, .optional = MN_FIELD_NEWER),
    FIELD("skipped", MN_VALUE_INTEGER, progress.skipped, .optional = MN_FIELD_NEWER),
    FIELD("skipped_running", MN_VALUE_INTEGER, progress.skipped_running, .optional = MN_FIELD_NEWER),
    {.name = NULL},
};

const struct mn_checkpoint_field mn_checkpoint_tensor_fields[] = {
    MEMBER(struct mn_checkpoint_tensor, "factor", MN_VALUE_REAL, factor, .optional = MN_FIELD_FACTOR),
    MEMBER(struct mn_checkpoint_tensor, "gradient_factor", MN_VALUE_REAL, gradient_factor,
           .optional = MN_FIELD_FACTOR),
    {.name = NULL},
};

const void *mn_checkpoint_value(const struct mn_checkpoint_field *field, const void *of) {
  const void *value = (const char *)of + field->offset;
  return field->words ? field->words[*(const enum mn_loss *)value] : value;
}

int64_t mn_checkpoint_length(const struct mn_checkpoint_field *field, const void *of) {
  return field->length_offset ? *(const int64_t *)((const char *)of + field->length_offset) : 0;
}

const char *const mn_checkpoint_groups[MN_CHECKPOINT_ARRAYS] = {
    "/model", "/optimizer/momentum", "/optimizer/exp_avg", "/optimizer/exp_avg_sq"};
const char *const mn_checkpoint_standards[MN_SIDES] = {"/input", "/output"};

mn_status mn_checkpoint_lay_out(struct mn_checkpoint *c) {
  struct mn_parameter p;
  c->tensors = calloc(MN_MODEL_PARAMETERS, sizeof *c->tensors);
  if (!c->tensors) return mn_fail(MN_NO_MEMORY, "no memory for the tensors of a checkpoint");
  for (c->tensor_count = 0; mn_model_parameter(&c->model, c->tensor_count, &p); c->tensor_count++) {
    struct mn_checkpoint_tensor *t = &c->tensors[c->tensor_count];
    snprintf(t->name, sizeof t->name, "%s", p.name);
    t->rank = p.rank, t->rows = p.rows, t->cols = p.cols;
  }
  for (int side = 0; side < MN_SIDES; side++)
    for (int k = 0; k < MN_CHECKPOINT_STANDARD; k++) {
      struct mn_checkpoint_tensor *t = &c->standard[side][k];
      *t = (struct mn_checkpoint_tensor){.rank = 1, .rows = 1, .real = 8};
      t->cols = side == MN_X ? c->model.inputs : mn_model_outputs(&c->model);
      strcpy(t->name, k == 0 ? "mean" : "scale");
    }
  return MN_OK;
}

mn_status mn_checkpoint_format(struct mn_hdf5_file *file, int *ours) {
  struct mn_hdf5_value format;
  *ours = 0;
  MN_TRY(mn_hdf5_attribute(file, &file->root, "format", 0, &format));
  *ours = format.kind == MN_VALUE_TEXT && strcmp(format.text, MN_CHECKPOINT_FORMAT) == 0;
  return MN_OK;
}

const char *mn_text_find(const struct mn_text *texts, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(texts[i].name, name) == 0) return texts[i].value;
  return NULL;
}

void mn_checkpoint_free(struct mn_checkpoint *checkpoint) {
  if (!checkpoint) return;
  for (int i = 0; i < checkpoint->tensor_count; i++)
    for (int k = 0; k < MN_CHECKPOINT_ARRAYS; k++) free(checkpoint->tensors[i].arrays[k]);
  for (int i = 0; i < MN_SIDES * MN_CHECKPOINT_STANDARD; i++)
    free(checkpoint->standard[i / MN_CHECKPOINT_STANDARD][i % MN_CHECKPOINT_STANDARD].value);
  free(checkpoint->class_names.names), free(checkpoint->table), free(checkpoint->trained);
  free(checkpoint->tensors);
  free(checkpoint);
}

const struct mn_model_config *mn_checkpoint_sizes(const struct mn_checkpoint *c) {
  return &c->model;
}

const char *mn_checkpoint_config(const struct mn_checkpoint *c, const char *name) {
  return mn_text_find(c->options, c->option_count, name);
}
