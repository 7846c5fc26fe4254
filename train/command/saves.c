/* The saves of a training run: when they fall due, and the messages about them. */
#include "train/command/saves.h"

#include <stdio.h>
#include <time.h>

#include "engine/ranks/ranks.h"
#include "kernels/clock.h"
#include "kernels/ranks/mpi.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/watchdog.h"

mn_status mn_saves_open(struct mn_saves *s, const struct mn_session *session,
                        const struct mn_progress *progress) {
  const struct mn_options *o = &session->options;
  struct mn_text history[MN_CHECKPOINT_HISTORY];
  int there = 0;
  *s = (struct mn_saves){.session = session, .progress = progress};
  if (session->from) MN_TRY(mn_atomic_file_exists(o->checkpoint, &there));
  s->told = session->from ? progress->step : -1;
  s->snapshot = there ? progress->step : -1; /* without it an older file or the best was resumed */
  s->snapshot_time = mn_seconds();
  if (!o->checkpoint || o->dry_run) return MN_OK;
  MN_TRY(mn_saver_open(&s->saver, o->checkpoint, (int)o->keep, session->model, session->optimizer));
  mn_saver_history(s->saver, history, mn_resume_history(session, history));
  return MN_OK;
}

/* Notes a failure of the newest save once; with a warning unless the run is at its end. Returns the failure
 * of a save with the best. */
static mn_status note_failure(struct mn_saves *s, int ends) {
  const mn_status status = mn_saver_poll(s->saver, NULL);
  if (status == MN_OK || s->has_best || s->snapshot < 0) return s->has_best ? status : MN_OK;
  mn_outcome_note(&s->failure, status);
  mn_progress_clear();
  if (!ends)
    fprintf(stderr, "minnow: warning: step %ld is not saved: %s; the next save is tried when it is due\n",
            (long)s->snapshot, s->failure.message);
  s->snapshot = -1;
  return MN_OK;
}

/* Takes a snapshot for `what`, MN_SAVE_NEWEST and MN_SAVE_BEST, which is written while training goes on. */
static mn_status take_snapshot(struct mn_saves *s, int what) {
  mn_watchdog_save();
  s->has_best = (what & MN_SAVE_BEST) != 0;
  if (what & MN_SAVE_NEWEST) {
    mn_watchdog_saved();
    s->due = 0;
    s->snapshot = s->progress->step;
    s->snapshot_time = mn_seconds();
  }
  return mn_saver_start(s->saver, what, s->progress, s->session->config, s->session->config_count);
}

/* Broadcasts the first rank's status and answer, which all ranks then use. */
static mn_status decide(const struct mn_saves *s, mn_status status, int *what) {
  struct {
    int status, what;
  } first = {status, *what};
  MN_TRY(mn_ranks_broadcast(s->session->ranks, &first, sizeof first));
  *what = first.what;
  return mn_ranks_first(s->session->ranks) || first.status == MN_OK
             ? status
             : mn_fail((mn_status)first.status, "%s", "");
}

/* Meanwhile other ranks may check whether this one is alive. */
static void wait_for_saver(const struct mn_saves *s) {
  while (s->session->ranks && mn_saver_busy(s->saver)) {
    mn_mpi_attend(MN_WAITS_FOR_NOTHING);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  const mn_status told_again = mn_saver_wait(s->saver, NULL); /* by the next poll */
  (void)told_again;
}

static int falls_due(const struct mn_saves *s) {
  const struct mn_options *o = &s->session->options;
  if (s->snapshot == s->progress->step) return 0;
  if (mn_watchdog_wants_save()) return 1;
  if (o->save_every <= 0) return 0;
  return o->save_seconds ? mn_seconds() - s->snapshot_time >= (double)o->save_every
                         : s->progress->step % o->save_every == 0;
}

/* The best has to be the parameters of now, so it waits for the save before it. A save that is due is of the
 * same snapshot. */
mn_status mn_saves_at_pause(struct mn_saves *s, int better) {
  if (!s->saver) return MN_OK;
  if (better) {
    mn_watchdog_save();
    wait_for_saver(s);
  }
  const mn_status status = note_failure(s, 0);
  if (status == MN_OK && falls_due(s)) s->due = 1;
  int what = (better ? MN_SAVE_BEST : 0) | (s->due && !mn_saver_busy(s->saver) ? MN_SAVE_NEWEST : 0);
  MN_TRY(decide(s, status, &what));
  return what ? take_snapshot(s, what) : MN_OK;
}

int mn_saves_want_a_pause(const struct mn_saves *s) {
  if (!s->saver) return 0;
  if (s->has_best && mn_saver_poll(s->saver, NULL) != MN_OK) return 1;
  int any_step = s->session->options.save_seconds || mn_watchdog_wants_save();
  return (s->due || (any_step && falls_due(s))) && !mn_saver_busy(s->saver);
}

void mn_saves_tell(struct mn_saves *s) {
  const struct mn_options *o = &s->session->options;
  int64_t saved = -1;
  if (!s->saver && mn_watchdog_wants_save()) {
    mn_watchdog_saved();
    mn_announce(o, "nothing is saved: SIGUSR1 asks for it, but there is no --run");
  }
  if (s->saver && !s->has_best) (void)note_failure(s, 0);
  if (!s->saver || !o->verbose || mn_saver_poll(s->saver, &saved) != MN_OK || saved <= s->told) return;
  s->told = saved;
  mn_announce(o, "saved step %ld to %s", (long)saved, o->checkpoint);
}

/* The newest step on the disk may be one of an earlier process. */
static mn_status tell_failure(const struct mn_saves *s) {
  int64_t saved;
  (void)mn_saver_poll(s->saver, &saved);
  if (saved < s->told) saved = s->told;
  const mn_status status = mn_outcome_tell(&s->failure);
  if (saved < 0) return status;
  return mn_fail(status, "%s; --resume goes on from step %ld", s->failure.message, (long)saved);
}

mn_status mn_saves_end(struct mn_saves *s) {
  mn_watchdog_save();
  for (int tries = 0; s->saver; tries++) {
    wait_for_saver(s);
    mn_status status = note_failure(s, 1);
    int saved = s->snapshot == s->progress->step;
    if (status == MN_OK && !saved && tries == 2) status = tell_failure(s);
    MN_TRY(decide(s, status, &saved));
    if (saved) break;
    MN_TRY(take_snapshot(s, MN_SAVE_NEWEST));
  }
  mn_saves_tell(s);
  return MN_OK;
}
