/* Finding a label that no model of so many classes can learn. */
#include "data/labels.h"

mn_status mn_labels_check(const int32_t *labels, int64_t first, int64_t count, int64_t classes,
                          const char *data, const char *model) {
  for (int64_t i = 0; i < count; i++)
    if (labels[i] < 0 || labels[i] >= classes)
      return mn_fail(MN_BAD_DATA,
                     "row %lld (from 0) of %s has the label %d, but %s has %lld classes, 0 to %lld: correct "
                     "it, or leave out the row",
                     (long long)(first + i), data, (int)labels[i], model, (long long)classes,
                     (long long)classes - 1);
  return MN_OK;
}

mn_status mn_labels_check_all(struct mn_dataset *dataset, int64_t classes, const char *data,
                              const char *model) {
  enum { AT_ONCE = 4096 };
  int32_t labels[AT_ONCE];
  for (int64_t first = 0, here; first < dataset->rows; first += here) {
    here = dataset->rows - first < AT_ONCE ? dataset->rows - first : AT_ONCE;
    MN_TRY(dataset->read(dataset, first, here, sizeof(float), NULL, labels));
    MN_TRY(mn_labels_check(labels, first, here, classes, data, model));
  }
  return MN_OK;
}
