/* What the tests of runs share: whether two runs have left the same checkpoint. */
#ifndef MN_TESTS_FILES_SAME_H
#define MN_TESTS_FILES_SAME_H

#include "tests/command_run.h"
#include "train/checkpoint/layout.h"
#include "train/runs/runs.h"

static inline void assert_same_texts(const char *a, const char *b, const struct mn_text *x,
                                     const struct mn_text *y, int count, const char *but) {
  for (int i = 0; i < count; i++) {
    assert_string_equal(x[i].name, y[i].name);
    /* Of the rows' hash the part that does not depend on where they wait (data/fingerprint.h). */
    const size_t length = strcmp(x[i].name, "data_rows") == 0 ? 16 : sizeof x[i].value;
    if (strcmp(x[i].name, but) != 0 && strncmp(x[i].value, y[i].value, length) != 0)
      fail_msg("%s has %s %s, %s has %s", a, x[i].name, x[i].value, b, y[i].value);
  }
}

/* Whether two checkpoints are alike in all but the text `but`. */
static inline void assert_same_but(const char *but, const char *a, const char *b) {
  const char *const names[] = {a, b};
  struct mn_checkpoint *c[2];
  for (int i = 0; i < 2; i++)
    if (mn_checkpoint_load(&c[i], names[i]) != MN_OK) fail_msg("%s", mn_message());
  assert_int_equal(c[0]->tensor_count, c[1]->tensor_count);
  for (int t = 0; t < c[0]->tensor_count; t++) {
    const struct mn_checkpoint_tensor *x = &c[0]->tensors[t], *y = &c[1]->tensors[t];
    const size_t bytes = (size_t)(x->rows * x->cols) * x->real;
    assert_string_equal(x->name, y->name);
    assert_true(x->rows == y->rows && x->cols == y->cols && x->real == y->real && x->factor == y->factor &&
                x->gradient_factor == y->gradient_factor);
    for (int k = 0; k < MN_CHECKPOINT_ARRAYS; k++) {
      const void *v = x->arrays[k], *w = y->arrays[k];
      assert_true(!v == !w);
      if (v && memcmp(v, w, bytes) != 0) fail_msg("%s is not %s: %s", a, b, x->name);
    }
  }
  assert_memory_equal(&c[0]->progress, &c[1]->progress, sizeof c[0]->progress);
  assert_int_equal(c[0]->option_count, c[1]->option_count);
  assert_same_texts(a, b, c[0]->options, c[1]->options, c[0]->option_count, but);
  assert_int_equal(c[0]->fingerprint_count, c[1]->fingerprint_count);
  assert_same_texts(a, b, c[0]->fingerprint, c[1]->fingerprint, c[0]->fingerprint_count, but);
  assert_int_equal(c[0]->history_count, c[1]->history_count);
  assert_same_texts(a, b, c[0]->history, c[1]->history, c[0]->history_count, but);
  for (int i = 0; i < 2; i++) mn_checkpoint_free(c[i]);
}

static inline void assert_same(const char *a, const char *b) {
  assert_same_but("", a, b);
}

#endif
