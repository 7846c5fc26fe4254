/* Handlers that note, and a thread that counts the time since anything got on. */
#include "train/command/watchdog.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/thread.h"

#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELEASE)

static const double patience = 10, tick = 0.05; /* seconds */

/* Set by the handlers. */
static int interrupted, wants_save;
static sem_t woken;

/* Set by the thread that trains, before there is a second one or atomically; `entered` is its own. */
static struct {
  const char *what;
  double entered; /* mn_seconds() */
  int64_t step;   /* begun last */
  int resumes, closing, open;
  struct mn_saver *saver;
} now;
static struct mn_pace pace; /* patient: the run saves */
static pthread_t thread;
static pthread_mutex_t saving = PTHREAD_MUTEX_INITIALIZER; /* while now.saver is asked */

static void note_end(int number) {
  const int before = LOAD(interrupted), error = errno;
  if (number != SIGHUP && before != 0 && before != SIGHUP) {
    signal(number, SIG_DFL);
    raise(number); /* comes when this returns */
  } else if (number != SIGHUP || before == 0) {
    STORE(interrupted, number);
    sem_post(&woken);
  }
  errno = error;
}

static void note_save(int number) {
  (void)number;
  STORE(wants_save, 1);
}

/* SIGHUP stays ignored where it is, as under nohup. */
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

int mn_watchdog_resumable(void) {
  int64_t saved = -1;
  MN_REQUIRE(pthread_mutex_lock(&saving) == 0);
  if (now.saver) (void)mn_saver_poll(now.saver, &saved); /* an error does not undo what it saved before */
  const int resumable = now.resumes || saved >= 0;
  MN_REQUIRE(pthread_mutex_unlock(&saving) == 0);
  return resumable;
}

static void end_process(int number) {
  char what[64], line[256];
  const int64_t step = LOAD(pace.step);
  const int resumable = mn_watchdog_resumable();
  if (step > 0)
    snprintf(what, sizeof what, "step %ld", (long)step);
  else
    snprintf(what, sizeof what, "%s", LOAD(now.what));
  snprintf(line, sizeof line, "minnow: ended by %s while %s did not get on; %s\n", strsignal(number), what,
           resumable ? "--resume goes on from the last checkpoint" : "no checkpoint was saved yet");
  mn_say(line);
  _exit(resumable ? MN_INTERRUPTED : 128 + number);
}

/* After a signal, until the run has ended. What counts is the time that the process ran: one that was stopped
 * meanwhile has had no time to act. */
static void watch(int number) {
  int64_t count = LOAD(pace.count);
  double still = 0;
  int told = 0;
  for (; !LOAD(now.closing); still += tick) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(tick * 1e9)}, NULL);
    const int64_t counted = LOAD(pace.count);
    double longest, most;
    __atomic_load(&pace.longest, &longest, __ATOMIC_ACQUIRE);
    most = 2 * longest > patience ? 2 * longest : patience;
    if (counted != count) still = 0;
    count = counted;
    if (still < most) continue;
    if (!LOAD(pace.patient)) end_process(number);
    if (!told) mn_say("minnow: still saving; a second signal ends it at once, with the checkpoint before\n");
    told = 1;
  }
}

static void *stand_by(void *nothing) {
  while (!LOAD(now.closing)) {
    while (sem_wait(&woken) != 0) {
    }
    const int number = LOAD(interrupted);
    if (number) watch(number);
  }
  return nothing;
}

mn_status mn_watchdog_open(int resumes) {
  STORE(interrupted, 0);
  STORE(wants_save, 0);
  memset(&now, 0, sizeof now);
  memset(&pace, 0, sizeof pace);
  now.entered = mn_seconds();
  now.what = "reading rows";
  now.resumes = resumes;
  if (sem_init(&woken, 0, 0) != 0) return mn_fail(MN_LIBRARY, "signals cannot be watched");
  MN_TRY(mn_thread_start(&thread, "the thread that watches signals", stand_by, NULL));
  now.open = 1;
  return watch_signals();
}

void mn_watchdog_close(void) {
  if (!now.open) return;
  now.open = 0;
  const int resumable = mn_watchdog_resumable();
  MN_REQUIRE(pthread_mutex_lock(&saving) == 0);
  now.resumes = resumable;
  now.saver = NULL;
  MN_REQUIRE(pthread_mutex_unlock(&saving) == 0);
  STORE(pace.patient, 1); /* of what follows, nothing is to be watched */
  STORE(now.closing, 1);
  MN_REQUIRE(sem_post(&woken) == 0 && pthread_join(thread, NULL) == 0);
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
  /* Of steps alone: an evaluation counts its batches. */
  if (took > pace.longest && pace.step > 0 && !pace.patient)
    __atomic_store(&pace.longest, &took, __ATOMIC_RELEASE);
  now.entered = entered;
  STORE(now.what, what);
  if (step > 0) STORE(now.step, step);
  STORE(pace.step, step);
  STORE(pace.patient, 0);
  __atomic_add_fetch(&pace.count, 1, __ATOMIC_RELEASE);
}

void mn_watchdog_save(void) {
  STORE(pace.patient, 1);
}

int64_t *mn_watchdog_count(void) {
  return &pace.count;
}

const struct mn_pace *mn_watchdog_pace(void) {
  return &pace;
}

void mn_watchdog_saver(struct mn_saver *saver) {
  MN_REQUIRE(pthread_mutex_lock(&saving) == 0);
  now.saver = saver;
  MN_REQUIRE(pthread_mutex_unlock(&saving) == 0);
}
