/* The command diff: the differences of two checkpoints, to the last bit. Both are loaded, and so verified,
 * first. /config, /history and /fingerprint are not compared: they may differ between equal runs. */
#include <inttypes.h>
#include <string.h>

#include "train/command/commands.h"

struct diff {
  struct mn_json json;
  int tensors, attributes; /* how many differ */
};

/* Maps a real to an integer, neighbouring reals to neighbouring integers, −0 to −1 and +0 to 0: the
 * difference of two is their distance in ULP, 0 for equal bits alone. Sets *nan if the real is NaN. */
static int64_t ordered(const void *value, size_t real, int *nan) {
  uint64_t wide;
  uint32_t narrow;
  memcpy(real == 8 ? (void *)&wide : &narrow, value, real);
  int64_t magnitude = real == 8 ? (int64_t)(wide & INT64_MAX) : (int64_t)(narrow & INT32_MAX);
  if (magnitude > (real == 8 ? INT64_C(0x7ff) << 52 : INT64_C(0xff) << 23)) *nan = 1; /* beyond infinity */
  return (real == 8 ? wide >> 63 : narrow >> 31) ? -magnitude - 1 : magnitude;
}

/* How two arrays differ. */
struct distance {
  int64_t elements, differing;
  int64_t nan;  /* of the differing: a side is NaN, so a distance is undefined */
  uint64_t ulp; /* the largest of the others */
};

static struct distance measure(const char *a, const char *b, int64_t elements, size_t real) {
  struct distance distance = {elements, 0, 0, 0};
  for (int64_t i = 0; i < elements; i++, a += real, b += real) {
    if (memcmp(a, b, real) == 0) continue;
    distance.differing++;
    int nan = 0;
    int64_t x = ordered(a, real, &nan), y = ordered(b, real, &nan);
    distance.nan += nan;
    uint64_t ulp = x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
    if (!nan && ulp > distance.ulp) distance.ulp = ulp;
  }
  return distance;
}

static void show_shape(struct mn_json *json, const char *key, const struct mn_checkpoint_tensor *tensor) {
  char rows[32] = "", text[80] = "";
  if (tensor && tensor->rank == 2) snprintf(rows, sizeof rows, "%" PRId64 ", ", tensor->rows);
  if (tensor)
    snprintf(text, sizeof text, "float%d [%s%" PRId64 "]", 8 * (int)tensor->real, rows, tensor->cols);
  mn_json_string(json, key, tensor ? text : NULL);
}

static const struct mn_checkpoint_tensor *find_tensor(const struct mn_checkpoint *checkpoint,
                                                      const char *name) {
  for (int i = 0; i < checkpoint->tensor_count; i++)
    if (strcmp(checkpoint->tensors[i].name, name) == 0) return &checkpoint->tensors[i];
  return NULL;
}

/* Compares an array of one tensor in two checkpoints; a or b is NULL if that checkpoint lacks the tensor. An
 * array that one checkpoint lacks, or whose shapes or types differ, is shown as what each has. */
static void compare_array(struct diff *diff, const char *group, const struct mn_checkpoint_tensor *a,
                          const struct mn_checkpoint_tensor *b, int which) {
  const void *x = a ? a->arrays[which] : NULL, *y = b ? b->arrays[which] : NULL;
  const int alike =
      x && y && a->rank == b->rank && a->rows == b->rows && a->cols == b->cols && a->real == b->real;
  char name[128];
  struct distance distance = {0, 0, 0, 0};
  if (alike) distance = measure(x, y, a->rows * a->cols, a->real);
  if ((!x && !y) || (alike && distance.differing == 0)) return;
  snprintf(name, sizeof name, "%s/%s", group, a ? a->name : b->name);
  diff->tensors++;
  mn_json_open(&diff->json, NULL);
  mn_json_string(&diff->json, "name", name);
  if (alike) {
    mn_json_integer(&diff->json, "elements", distance.elements);
    mn_json_integer(&diff->json, "differing", distance.differing);
    mn_json_integer(&diff->json, "nan", distance.nan);
    mn_json_unsigned(&diff->json, "max_ulp", distance.ulp);
  } else {
    show_shape(&diff->json, "a", x ? a : NULL);
    show_shape(&diff->json, "b", y ? b : NULL);
  }
  mn_json_close(&diff->json);
}

static void compare_tensors(struct diff *diff, const struct mn_checkpoint *a, const struct mn_checkpoint *b) {
  mn_json_array_open(&diff->json, "tensors");
  for (int k = 0; k < MN_CHECKPOINT_ARRAYS; k++) {
    for (int i = 0; i < a->tensor_count; i++)
      compare_array(diff, mn_checkpoint_groups[k], &a->tensors[i], find_tensor(b, a->tensors[i].name), k);
    for (int i = 0; i < b->tensor_count; i++)
      if (!find_tensor(a, b->tensors[i].name))
        compare_array(diff, mn_checkpoint_groups[k], NULL, &b->tensors[i], k);
  }
  for (int side = 0; side < MN_SIDES; side++)
    for (int k = 0; k < MN_CHECKPOINT_STANDARD; k++)
      compare_array(diff, mn_checkpoint_standards[side], &a->standard[side][k], &b->standard[side][k],
                    MN_CHECKPOINT_VALUE);
  mn_json_close(&diff->json);
}

static void compare_value(struct diff *diff, const char *name, enum mn_hdf5_value_kind kind, const void *a,
                          const void *b) {
  const size_t size = 8; /* of a number */
  if (kind == MN_VALUE_TEXT ? strcmp(a, b) == 0 : memcmp(a, b, size) == 0) return;
  struct distance distance = {0, 0, 0, 0};
  if (kind == MN_VALUE_REAL) distance = measure(a, b, 1, size);
  diff->attributes++;
  mn_json_open(&diff->json, NULL);
  mn_json_string(&diff->json, "name", name);
  mn_inspect_field(&diff->json, "a", a, kind);
  mn_inspect_field(&diff->json, "b", b, kind);
  if (kind == MN_VALUE_REAL && distance.nan == 0) mn_json_unsigned(&diff->json, "ulp", distance.ulp);
  mn_json_close(&diff->json);
}

/* Compares the fields of two checkpoints, or of two tensors. */
static void compare_fields(struct diff *diff, const char *object, const struct mn_checkpoint_field *fields,
                           const void *a, const void *b) {
  for (; fields->name; fields++) {
    char name[160];
    const int64_t *x = mn_checkpoint_value(fields, a), *y = mn_checkpoint_value(fields, b);
    snprintf(name, sizeof name, "%s %s", object, fields->name);
    if (!fields->length_offset) compare_value(diff, name, fields->kind, x, y);
    for (int i = 0; fields->length_offset && i < MN_MODEL_DEPTH; i++) { /* beyond its length, an array is 0 */
      snprintf(name, sizeof name, "%s %s[%d]", object, fields->name, i);
      compare_value(diff, name, fields->kind, x + i, y + i);
    }
  }
}

static void compare_attributes(struct diff *diff, const struct mn_checkpoint *a,
                               const struct mn_checkpoint *b) {
  mn_json_array_open(&diff->json, "attributes");
  compare_fields(diff, "/model", mn_checkpoint_model_fields, a, b);
  for (int i = 0; i < a->tensor_count; i++) {
    const struct mn_checkpoint_tensor *x = &a->tensors[i], *y = find_tensor(b, x->name);
    char name[128];
    snprintf(name, sizeof name, "/model/%s", x->name);
    if (y) compare_fields(diff, name, mn_checkpoint_tensor_fields, x, y);
  }
  const struct mn_class_names *x = &a->class_names, *y = &b->class_names;
  if (x->count != y->count ||
      (x->count && memcmp(x->names, y->names, (size_t)x->count * sizeof *x->names) != 0)) {
    diff->attributes++;
    mn_json_open(&diff->json, NULL);
    mn_json_string(&diff->json, "name", MN_CHECKPOINT_CLASSES);
    mn_json_close(&diff->json);
  }
  compare_fields(diff, "/progress", mn_checkpoint_progress_fields, a, b);
  mn_json_close(&diff->json);
}

static mn_status compare(FILE *out, const struct mn_checkpoint *a, const struct mn_checkpoint *b,
                         const char *const names[2], int as_json) {
  struct diff diff = {.tensors = 0};
  MN_TRY(mn_json_begin_answer(&diff.json, !as_json));
  diff.json.digits = 17;
  mn_json_open(&diff.json, NULL);
  mn_json_string(&diff.json, "a", names[0]);
  mn_json_string(&diff.json, "b", names[1]);
  compare_tensors(&diff, a, b);
  compare_attributes(&diff, a, b);
  const int equal = diff.tensors == 0 && diff.attributes == 0;
  mn_json_boolean(&diff.json, "equal", equal);
  mn_json_close(&diff.json);
  MN_TRY(mn_json_end_answer(&diff.json, out, MN_OK));
  if (equal) return MN_OK;
  return mn_fail(MN_FAILED, "%s and %s differ in %d tensors and %d attributes", names[0], names[1],
                 diff.tensors, diff.attributes);
}

mn_status mn_diff(FILE *out, const char *a, const char *b, int as_json) {
  struct mn_checkpoint *first, *second;
  MN_TRY(mn_checkpoint_load(&first, a));
  mn_status status = mn_checkpoint_load(&second, b);
  if (status == MN_OK) status = compare(out, first, second, (const char *[]){a, b}, as_json);
  mn_checkpoint_free(first);
  mn_checkpoint_free(second);
  return status;
}
