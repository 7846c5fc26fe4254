/* Handlers that note, and among ranks a thread that counts the time since this one got on. */
#include "train/command/watchdog.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/thread.h"
#include "kernels/clock.h"
#include "kernels/ranks/mpi.h"

#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELEASE)

static const double tick = 0.05; /* seconds */

/* Set by the handlers. */
static int interrupted, wants_save;

/* Set by the thread that trains, before there is a second one or atomically; `entered` is its own. */
static struct {
  const char *what;
  double entered; /* mn_seconds() */
  int resumes, closing, open;
  const char *checkpoint; /* NULL without --run */
  int64_t count;          /* changes whenever the run gets on */
  int64_t step;           /* that is under way; 0 between steps */
  double longest;         /* of a step so far, in seconds; 0 before the first */
  int patient;            /* the current work has no time limit */
} now;
static struct {
  int rank; /* −1 before ranks have met */
  double timeout;
} ranks;
static pthread_t thread;

static void note_end(int number) {
  const int before = LOAD(interrupted), error = errno;
  if (number != SIGHUP && before != 0 && before != SIGHUP) {
    signal(number, SIG_DFL);
    raise(number); /* comes when this returns */
  } else if (number != SIGHUP || before == 0) {
    STORE(interrupted, number);
  }
  errno = error;
}

static void note_save(int number) {
  STORE(wants_save, 1);
}

/* An ignored SIGHUP stays ignored, for nohup. */
static mn_status watch_signals(void) {
  static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction action = {.sa_handler = note_end, .sa_flags = SA_RESTART}, before;
  int failed = sigemptyset(&action.sa_mask);
  for (int i = 0; i < 3; i++) failed |= sigaddset(&action.sa_mask, ends[i]);
  for (int i = 0; i < 3; i++) {
    failed |= sigaction(ends[i], NULL, &before);
    if (ends[i] != SIGHUP || before.sa_handler != SIG_IGN) failed |= sigaction(ends[i], &action, NULL);
  }
  action.sa_handler = note_save;
  failed |= sigaction(SIGUSR1, &action, NULL);
  return failed ? mn_fail(MN_LIBRARY, "signals cannot be watched") : MN_OK;
}

/* Prints a line with the reason and the current work. Returns the exit code. */
static int tell(const char *why) {
  char what[64], line[512];
  const int64_t step = LOAD(now.step);
  /* All ranks see the file, which each reads at a resume. */
  const int stands = LOAD(now.resumes) || (now.checkpoint && access(now.checkpoint, R_OK) == 0);
  if (step > 0)
    snprintf(what, sizeof what, "step %ld", (long)step);
  else
    snprintf(what, sizeof what, "%s", LOAD(now.what));
  snprintf(line, sizeof line, "minnow: %s %s; %s\n", why, what,
           stands ? "--resume goes on from the last checkpoint" : "no checkpoint was saved yet");
  /* A reader that went to sleep must not make this thread wait too. */
  struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
  ssize_t written = poll(&out, 1, 0) == 1 ? write(STDERR_FILENO, line, strlen(line)) : 0;
  (void)written; /* the exit code is enough */
  return stands ? MN_INTERRUPTED : MN_LIBRARY;
}

static int tell_of_rank(const char *how) {
  char host[64] = "a host", why[256], who[32] = "a rank";
  (void)gethostname(host, sizeof host - 1);
  if (ranks.rank >= 0) snprintf(who, sizeof who, "rank %d", ranks.rank);
  snprintf(why, sizeof why, "%s on %s has %s for %.3g s in", who, host, how, ranks.timeout);
  return tell(why);
}

/* In the thread that waits. */
static void end_all(const char *missing) {
  char how[300];
  enum mn_waiting what;
  (void)mn_mpi_calls(&what);
  if (*missing)
    snprintf(how, sizeof how, "waited for rank %s, which does not answer,", missing);
  else
    snprintf(how, sizeof how, "waited for %s, as all do,", what == MN_WAITS_FOR_GPU ? "its GPU" : "others");
  mn_mpi_abort(tell_of_rank(how));
}

/* A rank that hangs while it computes ends at once. Ranks that wait call the roll; in MPI_Init, which does
 * not poll, each ends by itself. */
static void end_rank(double still, double limit, enum mn_waiting what) {
  const int starts = ranks.rank < 0;
  if (what == MN_WAITS_FOR_NOTHING && !starts) _exit(tell_of_rank("computed"));
  if (!starts) mn_mpi_call_roll(end_all);
  if (starts || still >= limit + 30) _exit(tell_of_rank("waited for others"));
}

/* Checks at every tick whether the run got on. Only the time in which the process ran counts, since a stopped
 * process could not act. A save has no time limit; a rank that waits for others still checks whether they
 * respond. */
static void *stand_by(void *nothing) {
  int64_t count = -1;
  double still = 0, longest;
  for (; !LOAD(now.closing); still += tick) {
    enum mn_waiting what;
    nanosleep(&(struct timespec){.tv_nsec = (long)(tick * 1e9)}, NULL);
    const int64_t counted = LOAD(now.count) + mn_heartbeats() + mn_mpi_calls(&what);
    __atomic_load(&now.longest, &longest, __ATOMIC_ACQUIRE);
    if (counted != count) still = 0;
    count = counted;
    const double limit = fmax(2 * longest, ranks.timeout);
    if ((!LOAD(now.patient) || what != MN_WAITS_FOR_NOTHING) && still >= limit) end_rank(still, limit, what);
  }
  return nothing;
}

mn_status mn_watchdog_open(int among, double timeout, const char *checkpoint) {
  STORE(interrupted, 0);
  STORE(wants_save, 0);
  memset(&now, 0, sizeof now);
  now.entered = mn_seconds();
  now.what = "the ranks' start";
  now.checkpoint = checkpoint;
  ranks.timeout = timeout, ranks.rank = -1;
  if (!among || timeout == 0) return MN_OK;
  MN_TRY(mn_thread_start(&thread, "the thread that watches for hangs", stand_by, NULL));
  now.open = 1;
  return MN_OK;
}

void mn_watchdog_rank(int rank) {
  STORE(ranks.rank, rank);
}

mn_status mn_watchdog_signals(int resumes) {
  STORE(now.resumes, resumes);
  mn_watchdog_enter("reading rows", 0);
  return watch_signals();
}

void mn_watchdog_close(void) {
  if (!now.open) return;
  now.open = 0;
  STORE(now.closing, 1);
  MN_REQUIRE(pthread_join(thread, NULL) == 0);
}

int mn_watchdog_signal(void) {
  return LOAD(interrupted);
}

const int *mn_watchdog_stop(void) {
  return &interrupted;
}

int mn_watchdog_wants_save(void) {
  return LOAD(wants_save);
}

void mn_watchdog_saved(void) {
  STORE(wants_save, 0);
}

void mn_watchdog_enter(const char *what, int64_t step) {
  const double entered = mn_seconds();
  double took = entered - now.entered;
  /* Steps alone are timed; an evaluation counts its batches. */
  if (took > now.longest && now.step > 0 && !now.patient)
    __atomic_store(&now.longest, &took, __ATOMIC_RELEASE);
  now.entered = entered;
  STORE(now.what, what);
  STORE(now.step, step);
  STORE(now.patient, 0);
  __atomic_add_fetch(&now.count, 1, __ATOMIC_RELEASE);
}

void mn_watchdog_save(void) {
  STORE(now.patient, 1);
}
