/* Who comes says who it is. Strangers, who connect to any port that listens, are let go. */
#include "engine/meeting.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"

static const char magic[8] = "minnow1"; /* of this form of messages */

struct hello {
  char magic[8];
  unsigned char secret[MN_SECRET];
  int32_t rank, size, line;
  char host[MN_HOST];
};

/* Rank 0's, on MN_LINE_CALLS: at once WAITING, then MN_OK or what keeps the ranks from starting. */
enum { WAITING = -1 };
struct answer {
  char magic[8];
  int32_t status;
  char host[MN_HOST];
  char text[512];
};

/* Seconds until all are to be there. */
static double left(const struct mn_meeting *m) {
  return m->timeout > 0 ? fmax(m->begun + m->timeout - mn_seconds(), 0) : 1e9;
}

/* ---- rank 0 ---- */

/* Who has connected and has not said all of who it is. */
enum { GUESTS = 64 };
struct guest {
  int fd; /* −1: free */
  size_t got;
  struct hello hello;
};

static void answer(int fd, int status, const char *text) {
  struct answer out = {.status = status};
  memcpy(out.magic, magic, sizeof magic);
  mn_host(out.host);
  snprintf(out.text, sizeof out.text, "%s", text);
  (void)!send(fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT); /* one that is gone is missed later */
}

static int has_closed(int fd) {
  char next;
  return recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Why this one is no rank; NULL: it is. A rank may come again, if its connection broke. */
static const char *unfit(struct mn_meeting *m, const struct hello *hello) {
  const int rank = hello->rank, line = hello->line;
  if (hello->size != m->size) return "give all the same number of ranks";
  if (rank < 1 || rank >= m->size || line < 0 || line >= MN_LINES) return "its number is none of them";
  int *seat = &m->fds[line][rank];
  if (*seat >= 0 && has_closed(*seat)) close(*seat), *seat = -1;
  return *seat >= 0 ? "another has that number" : NULL;
}

static void seat(struct mn_meeting *m, struct guest *guest) {
  const struct hello *hello = &guest->hello;
  char text[512];
  const int fd = guest->fd;
  guest->fd = -1;
  const int known = memcmp(hello->magic, magic, sizeof magic) == 0 &&
                    memcmp(hello->secret, m->place.secret, MN_SECRET) == 0;
  const char *why = known ? unfit(m, hello) : "";
  if (why) {
    snprintf(text, sizeof text, "rank %d of %d cannot join the %d ranks of rank 0: %s", hello->rank,
             hello->size, m->size, why);
    if (known) answer(fd, MN_USAGE, text);
    close(fd);
    return;
  }
  m->fds[hello->line][hello->rank] = fd;
  snprintf(m->hosts[hello->rank], MN_HOST, "%.*s", MN_HOST - 1, hello->host);
  if (hello->line == MN_LINE_CALLS) answer(fd, WAITING, "");
}

static void listen_to(struct mn_meeting *m, struct guest *guest) {
  struct hello *hello = &guest->hello;
  const ssize_t got = recv(guest->fd, (char *)hello + guest->got, sizeof *hello - guest->got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    close(guest->fd);
    guest->fd = -1;
    return;
  }
  guest->got += (size_t)got;
  if (guest->got == sizeof *hello) seat(m, guest);
}

/* One who says nothing gives way to one who comes later. */
static void welcome(struct mn_meeting *m, struct guest *guests, int *next) {
  const int fd = mn_socket_accept(m->listener);
  if (fd < 0) return; /* it went away, or there is no room for a moment */
  struct guest *guest = &guests[(*next)++ % GUESTS];
  if (guest->fd >= 0) close(guest->fd);
  *guest = (struct guest){.fd = fd};
}

static int all_there(const struct mn_meeting *m) {
  for (int q = 1; q < m->size; q++)
    for (int line = 0; line < MN_LINES; line++)
      if (m->fds[line][q] < 0) return 0;
  return 1;
}

/* "rank 2 of 4 has not come within 30 s" */
static void name_missing(const struct mn_meeting *m, char *text, size_t size) {
  char list[256] = "";
  int missing = 0;
  for (int q = 1; q < m->size; q++) {
    if (m->fds[MN_LINE_CALLS][q] >= 0 && m->fds[MN_LINE_BEATS][q] >= 0) continue;
    const size_t used = strlen(list);
    if (missing++ < 16) snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", q);
  }
  snprintf(text, size, "%s %s%s of %d %s not come within %.3g s", missing > 1 ? "ranks" : "rank", list,
           missing > 16 ? " and more" : "", m->size, missing > 1 ? "have" : "has", m->timeout);
}

static mn_status tell_all(const struct mn_meeting *m) {
  char text[512] = "";
  mn_status status = MN_OK;
  if (!all_there(m)) {
    status = m->resumable ? MN_INTERRUPTED : MN_LIBRARY;
    name_missing(m, text, sizeof text);
  }
  for (int q = 1; q < m->size; q++)
    if (m->fds[MN_LINE_CALLS][q] >= 0) answer(m->fds[MN_LINE_CALLS][q], status, text);
  return status == MN_OK ? MN_OK : mn_fail(status, "%s", text);
}

/* Two connections of each rank, and what else a process opens, may be more than it may have. */
static void make_room(const struct mn_meeting *m) {
  struct rlimit limit;
  const rlim_t wanted = (rlim_t)m->size * MN_LINES + 512;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit); /* where it is refused, ranks will be missing, and are named */
}

static mn_status receive_all(struct mn_meeting *m) {
  struct guest guests[GUESTS];
  struct pollfd polls[GUESTS + 1];
  int next = 0;
  make_room(m);
  mn_host(m->hosts[0]);
  for (int i = 0; i < GUESTS; i++) guests[i].fd = -1;
  while (!all_there(m) && left(m) > 0) {
    for (int i = 0; i < GUESTS; i++) polls[i] = (struct pollfd){.fd = guests[i].fd, .events = POLLIN};
    polls[GUESTS] = (struct pollfd){.fd = m->listener, .events = POLLIN};
    if (poll(polls, GUESTS + 1, (int)fmin(left(m) * 1e3 + 1, 1e6)) <= 0) continue;
    for (int i = 0; i < GUESTS; i++)
      if (polls[i].revents) listen_to(m, &guests[i]);
    if (polls[GUESTS].revents) welcome(m, guests, &next);
  }
  for (int i = 0; i < GUESTS; i++)
    if (guests[i].fd >= 0) close(guests[i].fd);
  return tell_all(m);
}

/* ---- the others ---- */

static int introduce(const struct mn_meeting *m, int address, enum mn_line line) {
  struct hello hello = {.rank = m->rank, .size = m->size, .line = line};
  const int fd = mn_socket_connect(&m->place, address, fmin(left(m), 3));
  if (fd < 0) return -1;
  memcpy(hello.magic, magic, sizeof magic);
  memcpy(hello.secret, m->place.secret, MN_SECRET);
  mn_host(hello.host);
  const int failed = mn_socket_send(fd, &hello, sizeof hello, NULL);
  if (!failed) return fd;
  close(fd);
  errno = failed;
  return -1;
}

static int ask(int fd, struct answer *out, double seconds) {
  const int failed = mn_socket_receive_within(fd, out, sizeof *out, seconds);
  out->text[sizeof out->text - 1] = out->host[MN_HOST - 1] = 0;
  return failed ? failed : memcmp(out->magic, magic, sizeof magic) == 0 ? 0 : EPROTO;
}

static void hang_up(struct mn_meeting *m) {
  for (int line = 0; line < MN_LINES; line++) {
    if (m->fds[line][0] >= 0) close(m->fds[line][0]);
    m->fds[line][0] = -1;
  }
}

/* Both connections, by one address. An errno: rank 0 is not there. *out is what it said. */
static int call(struct mn_meeting *m, int address, struct answer *out) {
  int failed = 0;
  *out = (struct answer){.status = WAITING};
  m->fds[MN_LINE_CALLS][0] = introduce(m, address, MN_LINE_CALLS);
  if (m->fds[MN_LINE_CALLS][0] < 0) return errno;
  failed = ask(m->fds[MN_LINE_CALLS][0], out, fmin(left(m), 5));
  if (failed || out->status != WAITING) return failed;
  m->fds[MN_LINE_BEATS][0] = introduce(m, address, MN_LINE_BEATS);
  return m->fds[MN_LINE_BEATS][0] < 0 ? errno : 0;
}

static mn_status report_absence(const struct mn_meeting *m, const char *where, int error) {
  return mn_fail(m->resumable ? MN_INTERRUPTED : MN_LIBRARY, "rank 0 does not answer at %s within %.3g s: %s",
                 where, m->timeout, strerror(error));
}

static mn_status go_to_first(struct mn_meeting *m) {
  const double patience = 2; /* seconds that rank 0 may be late, who says which rank is missing */
  char where[NI_MAXHOST + 8] = "";
  struct answer said;
  int failed;
  for (int address = 0;; address++) {
    mn_address_text(where, &m->place, address % m->place.count);
    failed = call(m, address % m->place.count, &said);
    if (!failed) break;
    hang_up(m);
    if (left(m) <= 0) return report_absence(m, where, failed);
    if (address % m->place.count == m->place.count - 1)
      nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  if (said.status == WAITING) failed = ask(m->fds[MN_LINE_CALLS][0], &said, left(m) + patience);
  if (failed) return report_absence(m, where, failed);
  snprintf(m->hosts[0], MN_HOST, "%s", said.host);
  return said.status == MN_OK ? MN_OK : mn_fail((mn_status)said.status, "%s", said.text);
}

/* ---- both ---- */

mn_status mn_meet(struct mn_meeting *m) {
  m->hosts = calloc((size_t)m->size, sizeof *m->hosts);
  for (int line = 0; line < MN_LINES; line++) {
    m->fds[line] = malloc((size_t)m->size * sizeof *m->fds[line]);
    for (int q = 0; m->fds[line] && q < m->size; q++) m->fds[line][q] = -1;
  }
  if (!m->hosts || !m->fds[0] || !m->fds[1]) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  return m->rank == 0 ? receive_all(m) : go_to_first(m);
}

void mn_meeting_close(struct mn_meeting *m) {
  for (int line = 0; line < MN_LINES; line++) {
    for (int q = 0; m->fds[line] && q < m->size; q++)
      if (m->fds[line][q] >= 0) close(m->fds[line][q]);
    free(m->fds[line]);
    m->fds[line] = NULL;
  }
  free(m->hosts);
  m->hosts = NULL;
}
