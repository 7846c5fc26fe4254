/* The readers of each kind of file, and comparing. */
#include "tests/torn/reading.h"

#include <ctype.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/dataset_file.h"
#include "data/hdf5/hdf5.h"
#include "train/check/check.h"
#include "train/checkpoint/layout.h"
#include "train/command/commands.h"

/* A dataset's part: all rows as floats and as doubles, and y. */
struct part {
  int there;
  int64_t rows, inputs, outputs;
  int classes;
  float *x;
  double *wide;
  void *y;
};

enum { CASES = 2 };
struct torn_content {
  const struct torn_file *file;
  struct mn_checkpoint *checkpoint;
  struct part parts[2]; /* train, test */
  struct mn_case cases[CASES];
};

/* ---- reading ---- */

static void free_part(struct part *part) {
  free(part->x);
  free(part->wide);
  free(part->y);
}

static mn_status read_rows(struct mn_dataset *d, struct part *part) {
  size_t x = (size_t)(d->rows * d->inputs), y = (size_t)(d->rows * (d->classes ? 1 : d->outputs));
  *part = (struct part){1,
                        d->rows,
                        d->inputs,
                        d->outputs,
                        d->classes,
                        calloc(x, sizeof(float)),
                        calloc(x, sizeof(double)),
                        calloc(y, d->classes ? sizeof(int32_t) : sizeof(float))};
  if (!part->x || !part->wide || !part->y) return mn_fail(MN_NO_MEMORY, "no memory for the rows");
  MN_TRY(d->read(d, 0, d->rows, sizeof(float), part->x, part->y));
  return d->read(d, 0, d->rows, sizeof(double), part->wide, NULL);
}

static mn_status read_part(const char *path, enum mn_part which, struct part *part) {
  struct mn_dataset *d = NULL;
  *part = (struct part){0};
  MN_TRY(mn_dataset_open(&d, path, which, NULL, NULL, 1));
  if (!d) return MN_OK;
  mn_status status = read_rows(d, part);
  mn_dataset_close(d);
  return status;
}

static mn_status read_content(struct torn_content *content, const char *path) {
  int count = 1;
  switch (content->file->kind) {
  case TORN_CHECKPOINT:
    return mn_checkpoint_load(&content->checkpoint, path);
  case TORN_DATASET:
    MN_TRY(read_part(path, MN_PART_TRAIN, &content->parts[0]));
    return read_part(path, MN_PART_TEST, &content->parts[1]);
  case TORN_CASES:
    for (int i = 0; i < count && i < CASES; i++, count = content->cases[0].cases)
      MN_TRY(mn_case_read(path, i, &content->cases[i]));
    return MN_OK;
  case TORN_KINDS:
    break;
  }
  mn_abort(__FILE__, __LINE__, "a kind of file");
}

static void free_content(struct torn_content *content) {
  mn_checkpoint_free(content->checkpoint);
  for (int i = 0; i < 2; i++) free_part(&content->parts[i]);
  for (int i = 0; i < CASES; i++) mn_case_free(&content->cases[i]);
}

struct torn_content *torn_learn(const struct torn_file *file, const char *path) {
  struct torn_content *content = calloc(1, sizeof *content);
  MN_REQUIRE(content);
  content->file = file;
  if (read_content(content, path) != MN_OK) mn_abort(__FILE__, __LINE__, mn_message());
  return content;
}

void torn_forget(struct torn_content *content) {
  free_content(content);
  free(content);
}

/* ---- comparing ---- */

static int same_tensor(const struct mn_checkpoint_tensor *a, const struct mn_checkpoint_tensor *b) {
  struct mn_checkpoint_tensor bare[2] = {*a, *b};
  size_t bytes = (size_t)(a->rows * a->cols) * a->real;
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < MN_CHECKPOINT_ARRAYS; k++) bare[i].arrays[k] = NULL;
  if (memcmp(&bare[0], &bare[1], sizeof *bare) != 0) return 0;
  for (int k = 0; k < MN_CHECKPOINT_ARRAYS; k++) {
    const void *left = a->arrays[k], *right = b->arrays[k];
    if (!left != !right || (left && memcmp(left, right, bytes) != 0)) return 0;
  }
  return 1;
}

/* Both were read into memory of zeros, so that they can be compared by their bytes. */
static const char *compare_checkpoints(const struct mn_checkpoint *a, const struct mn_checkpoint *b) {
  struct mn_checkpoint *bare = malloc(2 * sizeof *bare);
  MN_REQUIRE(bare);
  memcpy(&bare[0], a, sizeof *bare);
  memcpy(&bare[1], b, sizeof *bare);
  bare[0].tensors = bare[1].tensors = NULL;
  int same = memcmp(&bare[0], &bare[1], sizeof *bare) == 0;
  free(bare);
  if (!same) return "an attribute";
  for (int i = 0; i < a->tensor_count; i++)
    if (!same_tensor(&a->tensors[i], &b->tensors[i])) return a->tensors[i].name;
  return NULL;
}

static int same_part(const struct part *a, const struct part *b) {
  if (a->there != b->there || a->rows != b->rows || a->inputs != b->inputs || a->outputs != b->outputs ||
      a->classes != b->classes)
    return 0;
  size_t x = (size_t)(a->rows * a->inputs), y = (size_t)(a->rows * (a->classes ? 1 : a->outputs));
  return !a->there || (memcmp(a->x, b->x, x * sizeof(float)) == 0 &&
                       memcmp(a->wide, b->wide, x * sizeof(double)) == 0 && memcmp(a->y, b->y, y * 4) == 0);
}

static int same_case(const struct mn_case *a, const struct mn_case *b) {
  struct mn_case bare[2] = {*a, *b};
  if (a->count != b->count) return 0;
  for (int i = 0; i < a->count; i++) {
    if (a->arrays[i].count != b->arrays[i].count ||
        memcmp(a->arrays[i].values, b->arrays[i].values, (size_t)a->arrays[i].count * sizeof(double)) != 0)
      return 0;
    bare[0].arrays[i].values = bare[1].arrays[i].values = NULL;
  }
  return memcmp(&bare[0], &bare[1], sizeof *bare) == 0;
}

/* What differs; NULL: nothing does. */
static const char *compare(const struct torn_content *a, const struct torn_content *b) {
  if (a->checkpoint) return compare_checkpoints(a->checkpoint, b->checkpoint);
  if (!same_part(&a->parts[0], &b->parts[0])) return "the train part";
  if (!same_part(&a->parts[1], &b->parts[1])) return "the test part";
  for (int i = 0; i < CASES; i++)
    if (!same_case(&a->cases[i], &b->cases[i])) return "a case";
  return NULL;
}

/* ---- a damaged file ---- */

static int is_one_line(const char *message) {
  if (!*message) return 0;
  for (; *message; message++)
    if (iscntrl((unsigned char)*message)) return 0;
  return 1;
}

/* Whether what a reader returned may come of a damaged file. */
static int may_return(mn_status status, const char *reader, char *what, size_t size) {
  if (status == MN_OK || (status == MN_BAD_DATA && is_one_line(mn_message()))) return 1;
  snprintf(what, size, "%s gave %d: %s", reader, status, mn_message());
  return 0;
}

/* The other readers of the same file, of which a damaged file may get past any. */
static int read_otherwise(const struct torn_content *content, const char *path, mn_status read, FILE *out,
                          char *what, size_t size) {
  struct mn_checkpoint *config = NULL;
  struct mn_model_config sizes = {0};
  mn_status verified = mn_verify(out, path, 1);
  if (!may_return(verified, "verify", what, size)) return 0;
  if (!may_return(mn_info(out, path, 0), "info", what, size)) return 0;
  if (content->file->kind != TORN_CHECKPOINT) return 1;
  if (verified == MN_OK && read != MN_OK) {
    snprintf(what, size, "verify passes what cannot be loaded");
    return 0;
  }
  int good = may_return(mn_checkpoint_read_config(&config, path), "read brief", what, size) &&
             may_return(mn_weights_sizes(path, &sizes), "weights_sizes", what, size);
  mn_checkpoint_free(config);
  return good;
}

static int leaves_open(char *what, size_t size) {
  mn_hdf5_lock();
  ssize_t left = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
  mn_hdf5_unlock();
  if (left) snprintf(what, size, "%zd objects of HDF5's are left open", left);
  return left != 0;
}

enum torn_outcome torn_read(const struct torn_content *content, const char *path, char *what, size_t size) {
  struct torn_content now = {.file = content->file};
  enum torn_outcome outcome = TORN_REFUSED;
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  MN_REQUIRE(nowhere);
  mn_status status = read_content(&now, path);
  if (!may_return(status, "reading", what, size)) {
    outcome = TORN_WRONG;
  } else if (status == MN_OK) {
    const char *differs = compare(content, &now);
    outcome = !differs ? TORN_EQUAL : content->file->covered ? TORN_UNSEEN : TORN_OTHER;
    if (differs) snprintf(what, size, "%s is another", differs);
  }
  free_content(&now);
  if (outcome < TORN_BAD && !read_otherwise(content, path, status, nowhere, what, size)) outcome = TORN_WRONG;
  if (outcome < TORN_BAD && leaves_open(what, size)) outcome = TORN_WRONG;
  return outcome;
}
