/* The thread: beats, what the others' say, and the verdict. All connections are its own. */
#include "engine/heartbeat.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/thread.h"
#include "kernels/mpi.h"

#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELEASE)

static const double linger = 1; /* seconds that who ends gives the others to read why */

enum kind { BEAT = 1, GOODBYE, LEAVE, VERDICT };

/* All that goes over a connection. */
struct message {
  int kind;
  int status;                    /* of LEAVE and VERDICT: the exit code */
  int waits, patient, resumable; /* of BEAT, as what follows */
  int64_t count, step;
  double longest;
  char line[512]; /* of VERDICT: what each says as it ends; "": nothing */
};

struct peer {
  int fd;       /* −1: none, as of this rank itself */
  int departed; /* it has said goodbye */
  int hangs;    /* it ends the run */
  struct message in;
  size_t got;           /* bytes of `in` that have come */
  struct message last;  /* its last beat */
  double silent, still; /* seconds since that, and since it got on */
  struct message out;
  size_t unsent; /* bytes at the end of `out` that found no room yet */
};

struct mn_heartbeat {
  struct mn_heartbeat_config config;
  struct peer *peers;   /* [size] of rank 0's, whose own is the first; of the others' rank 0 alone */
  struct pollfd *polls; /* [size + 1] */
  int count;            /* of peers */
  int wake;             /* an eventfd, from the other thread */
  double tick, next;    /* seconds between beats; mn_seconds() of the next */
  double before;        /* of the last tick */
  pthread_t thread;
  /* the other thread's, read atomically */
  const struct mn_pace *pace;
  int (*resumable)(void);
  int64_t calls;
  int waits, closing;
  int leaving; /* an exit code; 0: not */
  int ending;  /* one of the two threads ends the process */
};

/* ---- messages ---- */

/* What finds no room, behind one that found too little, is left out: its peer reads nothing. Errors are for
 * who receives. */
static void post(struct peer *peer, const struct message *message) {
  for (int fresh = 0; peer->fd >= 0 && fresh < 2; fresh++) {
    if (fresh) peer->out = *message, peer->unsent = sizeof *message;
    const char *end = (const char *)(&peer->out + 1);
    const ssize_t sent =
        peer->unsent ? send(peer->fd, end - peer->unsent, peer->unsent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent > 0) peer->unsent -= (size_t)sent;
    if (peer->unsent == sizeof *message) peer->unsent = 0; /* nothing of it has gone */
    if (peer->unsent) return;
  }
}

static void post_all(struct mn_heartbeat *h, const struct message *message) {
  for (int q = 0; q < h->count; q++) post(&h->peers[q], message);
}

static void fill_beat(struct mn_heartbeat *h, struct message *out) {
  const struct mn_pace *pace = LOAD(h->pace);
  int (*resumable)(void) = LOAD(h->resumable);
  memset(out, 0, sizeof *out);
  out->kind = BEAT;
  out->count = LOAD(h->calls);
  out->patient = 1;
  out->waits = LOAD(h->waits) || mn_mpi_waits();
  out->resumable = resumable ? resumable() : h->config.resumable;
  if (!pace) return;
  out->count += LOAD(pace->count);
  out->step = LOAD(pace->step);
  __atomic_load(&pace->longest, &out->longest, __ATOMIC_ACQUIRE);
  out->patient = LOAD(pace->patient) || out->longest == 0; /* the first step has much to prepare */
}

static void note_beat(struct peer *peer, const struct message *beat) {
  peer->silent = 0;
  if (beat->count != peer->last.count) peer->still = 0;
  peer->last = *beat;
}

/* ---- the end ---- */

/* Until all have closed their connections: what was sent is lost where this side closes before it is read. */
static void wait_for_ends(struct mn_heartbeat *h) {
  const double end = mn_seconds() + linger;
  char nothing[4096];
  int open = 1;
  for (int q = 0; q < h->count; q++)
    if (h->peers[q].fd >= 0) (void)shutdown(h->peers[q].fd, SHUT_WR);
  while (open && mn_seconds() < end) {
    open = 0;
    for (int q = 0; q < h->count; q++) {
      struct peer *peer = &h->peers[q];
      if (peer->fd < 0) continue;
      const ssize_t got = recv(peer->fd, nothing, sizeof nothing, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        peer->fd = -1;
      else
        open |= !peer->hangs;
    }
    if (open) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

/* Of the two threads the one that comes first tells its line. */
static int is_first_to_end(struct mn_heartbeat *h) {
  return !__atomic_exchange_n(&h->ending, 1, __ATOMIC_ACQ_REL);
}

static void end_process(struct mn_heartbeat *h, const char *line, int status) __attribute__((noreturn));
static void end_process(struct mn_heartbeat *h, const char *line, int status) {
  if (is_first_to_end(h) && *line) mn_say(line);
  _exit(status);
}

/* Ends all ranks. Rank 0 tells the others; where it is missing itself they come to the same end alone, and it
 * finds out should it wake up. */
static void end_all(struct mn_heartbeat *h, const char *line, int status) __attribute__((noreturn));
static void end_all(struct mn_heartbeat *h, const char *line, int status) {
  struct message verdict = {.kind = VERDICT, .status = status};
  if (is_first_to_end(h) && *line) mn_say(line);
  snprintf(verdict.line, sizeof verdict.line, "%s", line);
  post_all(h, &verdict);
  if (h->config.rank == 0) wait_for_ends(h);
  _exit(status);
}

/* `what` has happened, in the step that rank 0 has under way. */
static void condemn(struct mn_heartbeat *h, const char *what) __attribute__((noreturn));
static void condemn(struct mn_heartbeat *h, const char *what) {
  char line[512], step[48] = "";
  const struct message *first = &h->peers[0].last;
  if (h->config.rank == 0) fill_beat(h, &h->peers[0].last);
  if (first->step > 0) snprintf(step, sizeof step, " in step %ld", (long)first->step);
  snprintf(line, sizeof line, "minnow: %s%s; %s\n", what, step,
           first->resumable ? "--resume goes on from the last checkpoint" : "no checkpoint was saved yet");
  end_all(h, line, first->resumable ? MN_INTERRUPTED : MN_LIBRARY);
}

static void condemn_one(struct mn_heartbeat *h, int q, const char *how, double seconds)
    __attribute__((noreturn));
static void condemn_one(struct mn_heartbeat *h, int q, const char *how, double seconds) {
  char what[256], time[64] = "";
  if (seconds > 0) snprintf(time, sizeof time, " for %.3g s", seconds);
  h->peers[q].hangs = 1;
  snprintf(what, sizeof what, "rank %d on %s %s%s", q, h->config.hosts[q], how, time);
  condemn(h, what);
}

/* ---- receiving ---- */

static void act_on(struct mn_heartbeat *h, int q) {
  struct peer *peer = &h->peers[q];
  const struct message *in = &peer->in;
  if (in->kind == BEAT) note_beat(peer, in);
  if (in->kind == LEAVE) end_all(h, "", in->status); /* it has told why */
  if (in->kind == VERDICT && h->config.rank == 0) end_all(h, in->line, in->status);
  if (in->kind == VERDICT) end_process(h, in->line, in->status);
  if (in->kind != GOODBYE) return;
  peer->departed = 1;
  (void)shutdown(peer->fd, SHUT_WR);
}

static void receive(struct mn_heartbeat *h, int q) {
  struct peer *peer = &h->peers[q];
  for (;;) {
    const ssize_t got =
        recv(peer->fd, (char *)&peer->in + peer->got, sizeof peer->in - peer->got, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      peer->fd = -1;
      if (!peer->departed) condemn_one(h, q, "is gone", 0);
      return;
    }
    peer->got += (size_t)got;
    if (peer->got < sizeof peer->in) continue;
    peer->got = 0;
    peer->in.line[sizeof peer->in.line - 1] = 0;
    act_on(h, q);
  }
}

/* ---- judging ---- */

/* What gets on neither, nor has a reason for it. */
static int is_stuck(const struct peer *peer, double limit) {
  return !peer->departed && peer->still >= limit && !peer->last.patient;
}

static void judge_steps(struct mn_heartbeat *h) {
  double limit = h->config.timeout;
  int there = 0, hanging = 0, waiting = 0, suspect = -1;
  int64_t furthest = 0;
  for (int q = 0; q < h->count; q++)
    if (2 * h->peers[q].last.longest > limit) limit = 2 * h->peers[q].last.longest;
  for (int q = 0; q < h->count; q++) {
    const struct peer *peer = &h->peers[q];
    const struct message *last = &peer->last;
    there += !peer->departed;
    waiting += !peer->departed && last->waits && peer->still >= limit - h->tick;
    if (!is_stuck(peer, limit - h->tick)) continue;
    hanging++;
    if (last->waits) continue;
    if (last->step > furthest) furthest = last->step;
    if (suspect < 0 || last->step < h->peers[suspect].last.step) suspect = q;
  }
  /* Where all wait in one collective of a GPU's, none is known to wait: the one that is behind is missing. */
  if (suspect >= 0 && (waiting > 0 || (hanging == there && h->peers[suspect].last.step < furthest)))
    condemn_one(h, suspect, "has not got on", limit);
  if (hanging == 0 || hanging < there) return;
  char what[128];
  snprintf(what, sizeof what, "no rank has got on for %.3g s", limit);
  condemn(h, what);
}

/* What a beat tells may have begun a tick before: so much earlier the time is over. */
static void judge(struct mn_heartbeat *h) {
  const double timeout = h->config.timeout;
  for (int q = 0; q < h->count; q++)
    if (h->peers[q].fd >= 0 && !h->peers[q].departed && h->peers[q].silent >= timeout - h->tick)
      condemn_one(h, q, "has given no sign of life", timeout);
  if (h->config.rank == 0) judge_steps(h);
}

/* A tick counts as two at most: what came late because this process was stopped is nobody's silence. */
static void beat(struct mn_heartbeat *h, double now) {
  struct message mine;
  const double took = now - h->before, counted = took < 2 * h->tick ? took : 2 * h->tick;
  fill_beat(h, &mine);
  post_all(h, &mine);
  for (int q = 0; q < h->count; q++) {
    h->peers[q].silent += counted;
    h->peers[q].still += counted;
  }
  if (h->config.rank == 0) note_beat(&h->peers[0], &mine);
  h->before = now;
  h->next = now + h->tick;
  if (h->config.timeout > 0) judge(h);
}

static void say_goodbye(struct mn_heartbeat *h) {
  const struct message goodbye = {.kind = GOODBYE};
  for (int q = 0; q < h->count; q++)
    if (!h->peers[q].departed) post(&h->peers[q], &goodbye);
  wait_for_ends(h);
}

static void tell_of_leaving(struct mn_heartbeat *h, int status) {
  const struct message leave = {.kind = LEAVE, .status = status};
  if (h->config.rank == 0) end_all(h, "", status);
  post_all(h, &leave); /* rank 0 answers with the verdict */
}

static void *run(void *data) {
  struct mn_heartbeat *h = data;
  for (int told = 0;;) {
    const double left = h->next - mn_seconds();
    uint64_t woken;
    for (int q = 0; q < h->count; q++) h->polls[q] = (struct pollfd){.fd = h->peers[q].fd, .events = POLLIN};
    h->polls[h->count] = (struct pollfd){.fd = h->wake, .events = POLLIN};
    if (poll(h->polls, (nfds_t)h->count + 1, left > 0 ? (int)(left * 1e3) + 1 : 0) > 0) {
      for (int q = 0; q < h->count; q++)
        if (h->polls[q].revents) receive(h, q);
      if (h->polls[h->count].revents && read(h->wake, &woken, sizeof woken) > 0) h->next = 0; /* a beat now */
    }
    if (LOAD(h->leaving) && !told) tell_of_leaving(h, LOAD(h->leaving)), told = 1;
    if (LOAD(h->closing)) break;
    const double now = mn_seconds();
    if (now >= h->next) beat(h, now);
  }
  say_goodbye(h);
  return NULL;
}

/* ---- the other thread's ---- */

static void wake(struct mn_heartbeat *h) {
  const uint64_t one = 1;
  MN_REQUIRE(write(h->wake, &one, sizeof one) == sizeof one);
}

static void discard(struct mn_heartbeat *h) {
  if (h->wake >= 0) close(h->wake);
  free(h->peers);
  free(h->polls);
  free(h);
}

mn_status mn_heartbeat_open(struct mn_heartbeat **out, const struct mn_heartbeat_config *config) {
  struct mn_heartbeat *h = calloc(1, sizeof *h);
  *out = NULL;
  if (!h) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  h->config = *config;
  h->count = config->rank == 0 ? config->size : 1;
  h->tick = config->timeout > 0 && config->timeout / 20 < 0.5 ? config->timeout / 20 : 0.5;
  h->before = h->next = mn_seconds();
  h->peers = calloc((size_t)h->count, sizeof *h->peers);
  h->polls = calloc((size_t)h->count + 1, sizeof *h->polls);
  h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  mn_status status = MN_OK;
  if (!h->peers || !h->polls) status = mn_fail(MN_NO_MEMORY, "no memory for ranks");
  if (h->wake < 0) status = mn_fail(MN_LIBRARY, "ranks cannot be watched: %s", strerror(errno));
  for (int q = 0; q < h->count && status == MN_OK; q++) {
    h->peers[q].fd = config->rank == 0 && q == 0 ? -1 : config->fds[q];
    h->peers[q].last.patient = 1;
    h->peers[q].last.resumable = config->resumable;
  }
  if (status == MN_OK) status = mn_thread_start(&h->thread, "the thread that watches the ranks", run, h);
  if (status != MN_OK) {
    discard(h);
    return status;
  }
  *out = h;
  return MN_OK;
}

void mn_heartbeat_close(struct mn_heartbeat *h) {
  if (!h) return;
  STORE(h->closing, 1);
  wake(h);
  MN_REQUIRE(pthread_join(h->thread, NULL) == 0);
  discard(h);
}

void mn_heartbeat_watch(struct mn_heartbeat *h, const struct mn_pace *pace, int (*resumable)(void)) {
  STORE(h->resumable, resumable);
  STORE(h->pace, pace);
  wake(h);
}

int64_t *mn_heartbeat_count(struct mn_heartbeat *h) {
  return &h->calls;
}

void mn_heartbeat_wait(struct mn_heartbeat *h, int waits) {
  STORE(h->waits, waits);
}

void mn_heartbeat_leave(struct mn_heartbeat *h, mn_status status, const char *message) {
  char line[MN_MESSAGE + 64];
  /* It may be another's end that made this rank fail: then the thread is about to say so. */
  nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  if (!is_first_to_end(h))
    for (;;) pause();
  snprintf(line, sizeof line, "minnow: rank %d: %s\n", h->config.rank, message);
  mn_say(line);
  STORE(h->leaving, (int)status);
  wake(h);
  nanosleep(&(struct timespec){.tv_sec = 2}, NULL); /* the thread ends the process; where rank 0 does not
                                                       answer, this does */
  _exit(status);
}
