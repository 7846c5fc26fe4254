/* A save of a model in training that is waited for. */
#ifndef MN_TESTS_SAVING_H
#define MN_TESTS_SAVING_H

#include "train/runs/runs.h"

static inline mn_status save_and_wait(const char *to, const struct mn_model *model,
                                      const struct mn_optimizer *optimizer,
                                      const struct mn_progress *progress, const struct mn_text *config,
                                      int count) {
  struct mn_saver *saver;
  MN_TRY(mn_saver_open(&saver, to, 1, model, optimizer));
  mn_status status = mn_saver_start(saver, MN_SAVE_NEWEST, progress, config, count);
  if (status == MN_OK) status = mn_saver_wait(saver, NULL);
  mn_saver_close(saver);
  return status;
}

#endif
