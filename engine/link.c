/* The calls among ranks, a frame each way. */
#include "engine/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { TELL = 1, FOLD, COLLECT, GATHER, KINDS };
static const char *const kinds[KINDS] = {"?", "tell", "fold", "collect", "gather"};

/* Before the bytes of a call: which call it is, so that ranks that are out of step find out. */
struct frame {
  uint64_t kind, call, bytes;
};

struct mn_link {
  struct mn_meeting meeting;
  struct mn_heartbeat *heartbeat;
  uint64_t call; /* how many were made */
};

mn_status mn_link_open(struct mn_link **out, struct mn_meeting meeting) {
  struct mn_link *link = calloc(1, sizeof *link);
  *out = NULL;
  if (!link) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  link->meeting = meeting;
  struct mn_meeting *m = &link->meeting;
  mn_status status = mn_meet(m);
  if (status == MN_OK)
    status = mn_heartbeat_open(&link->heartbeat, &(struct mn_heartbeat_config){.rank = m->rank,
                                                                               .size = m->size,
                                                                               .timeout = m->timeout,
                                                                               .resumable = m->resumable,
                                                                               .fds = m->fds[MN_LINE_BEATS],
                                                                               .hosts = m->hosts});
  if (status != MN_OK) {
    mn_link_close(link);
    return status;
  }
  *out = link;
  return MN_OK;
}

void mn_link_close(struct mn_link *link) {
  if (!link) return;
  mn_heartbeat_close(link->heartbeat);
  mn_meeting_close(&link->meeting);
  free(link);
}

struct mn_heartbeat *mn_link_heartbeat(struct mn_link *link) {
  return link->heartbeat;
}

/* ---- frames ---- */

/* The connection to rank q is closed or broken: why, the heartbeat knows soon, and ends the process; unless
 * that rank has left in order, and so is out of step. */
static void lose(struct mn_link *link, int q, int error) __attribute__((noreturn));
static void lose(struct mn_link *link, int q, int error) {
  char text[256];
  nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
  snprintf(text, sizeof text, "rank %d on %s has closed its connection before call %lu: %s", q,
           link->meeting.hosts[q], (unsigned long)link->call, strerror(error));
  mn_heartbeat_leave(link->heartbeat, MN_LIBRARY, text);
}

static void send_to(struct mn_link *link, int q, const void *data, size_t bytes) {
  const int failed =
      mn_socket_send(link->meeting.fds[MN_LINE_CALLS][q], data, bytes, mn_heartbeat_count(link->heartbeat));
  if (failed) lose(link, q, failed);
}

static void receive_from(struct mn_link *link, int q, void *data, size_t bytes) {
  const int failed = mn_socket_receive(link->meeting.fds[MN_LINE_CALLS][q], data, bytes,
                                       mn_heartbeat_count(link->heartbeat));
  if (failed) lose(link, q, failed);
}

static void give(struct mn_link *link, int q, enum kind kind, const void *data, size_t bytes) {
  char both[sizeof(struct frame) + MN_LINK_VALUE];
  const struct frame frame = {kind, link->call, bytes};
  const int small = bytes <= MN_LINK_VALUE; /* in one packet */
  memcpy(both, &frame, sizeof frame);
  if (small) memcpy(both + sizeof frame, data, bytes);
  send_to(link, q, both, sizeof frame + (small ? bytes : 0));
  if (!small) send_to(link, q, data, bytes);
}

static void take(struct mn_link *link, int q, enum kind kind, void *data, size_t bytes) {
  struct frame frame;
  receive_from(link, q, &frame, sizeof frame);
  if (frame.kind != kind || frame.call != link->call || frame.bytes != bytes) {
    char text[256];
    snprintf(text, sizeof text,
             "ranks are out of step: rank %d on %s makes call %lu, %s of %lu bytes, and this rank call %lu, "
             "%s of %lu",
             q, link->meeting.hosts[q], (unsigned long)frame.call, kinds[frame.kind < KINDS ? frame.kind : 0],
             (unsigned long)frame.bytes, (unsigned long)link->call, kinds[kind], (unsigned long)bytes);
    mn_heartbeat_leave(link->heartbeat, MN_LIBRARY, text);
  }
  receive_from(link, q, data, bytes);
}

/* ---- calls ---- */

/* Around each: the heartbeat is told that this rank waits. */
static void begin(struct mn_link *link) {
  link->call++;
  mn_heartbeat_wait(link->heartbeat, 1);
}

static void end(struct mn_link *link) {
  mn_heartbeat_wait(link->heartbeat, 0);
}

static int first(const struct mn_link *link) {
  return link->meeting.rank == 0;
}

void mn_link_tell(struct mn_link *link, void *data, size_t bytes) {
  begin(link);
  for (int q = 1; first(link) && q < link->meeting.size; q++) give(link, q, TELL, data, bytes);
  if (!first(link)) take(link, 0, TELL, data, bytes);
  end(link);
}

void mn_link_fold(struct mn_link *link, void *value, size_t bytes,
                  void (*fold)(void *value, const void *theirs)) {
  char theirs[MN_LINK_VALUE];
  MN_REQUIRE(bytes <= sizeof theirs);
  begin(link);
  for (int q = 1; first(link) && q < link->meeting.size; q++) {
    take(link, q, FOLD, theirs, bytes);
    fold(value, theirs);
  }
  for (int q = 1; first(link) && q < link->meeting.size; q++) give(link, q, FOLD, value, bytes);
  if (!first(link)) give(link, 0, FOLD, value, bytes), take(link, 0, FOLD, value, bytes);
  end(link);
}

void mn_link_collect(struct mn_link *link, void *all, const void *mine, size_t bytes) {
  const int size = link->meeting.size;
  const size_t whole = (size_t)size * bytes;
  begin(link);
  if (first(link)) memcpy(all, mine, bytes);
  for (int q = 1; first(link) && q < size; q++)
    take(link, q, COLLECT, (char *)all + (size_t)q * bytes, bytes);
  for (int q = 1; first(link) && q < size; q++) give(link, q, COLLECT, all, whole);
  if (!first(link)) give(link, 0, COLLECT, mine, bytes), take(link, 0, COLLECT, all, whole);
  end(link);
}

void mn_link_gather(struct mn_link *link, void *const *parts, const size_t *bytes) {
  begin(link);
  for (int q = 1; first(link) && q < link->meeting.size; q++) take(link, q, GATHER, parts[q], bytes[q]);
  if (!first(link)) give(link, 0, GATHER, parts[0], bytes[0]);
  end(link);
}
