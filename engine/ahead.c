/* The loop that keeps a device busy. */
#include "engine/ahead.h"

mn_status mn_ahead_give(struct mn_device *device, const struct mn_ahead *calls, void *data) {
  MN_TRY(mn_ahead_begin(device));
  mn_status status = calls->fill(data);
  mn_status ended = mn_ahead_end(device);
  if (status == MN_OK) status = ended;
  return status == MN_OK ? calls->give(data) : status;
}

mn_status mn_ahead_run(struct mn_device *device, const struct mn_ahead *calls, void *data, int most,
                       int *under_way, struct mn_outcome *outcome) {
  mn_status status = mn_outcome_tell(outcome), given = status;
  while (status == MN_OK) {
    if (*under_way < most && given == MN_OK && calls->more(data)) {
      given = mn_ahead_give(device, calls, data);
      *under_way += given == MN_OK;
      if (given != MN_OK) mn_outcome_note(outcome, given);
    } else if (*under_way > 0) {
      status = calls->collect(data);
      --*under_way;
    } else {
      break;
    }
  }
  if (status != MN_OK) mn_outcome_note(outcome, status);
  double idle;
  for (; *under_way > 0; --*under_way) (void)mn_ahead_wait(device, &idle);
  return mn_outcome_tell(outcome);
}
