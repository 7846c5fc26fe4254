/* Sockets: one for IPv6 and IPv4 together where the system has both, else one for IPv4. */
#include "engine/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/clock.h"

enum { BACKLOG = 1024 };

/* How long a message's first byte is polled for before the thread sleeps: waking up takes longer than most
 * answers. */
static const double spin = 50e-6;

static socklen_t length_of(const struct sockaddr_storage *address) {
  return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void set_port(struct sockaddr_storage *address, in_port_t port) {
  if (address->ss_family == AF_INET6)
    ((struct sockaddr_in6 *)address)->sin6_port = port;
  else
    ((struct sockaddr_in *)address)->sin_port = port;
}

static in_port_t port_of(const struct sockaddr_storage *address) {
  return address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                        : ((const struct sockaddr_in *)address)->sin_port;
}

/* −1 with errno, as socket, bind and listen have it. */
static int listen_at(int family, int port) {
  struct sockaddr_storage any = {.ss_family = (sa_family_t)family}; /* of zeros: every interface */
  const int yes = 1, no = 0;
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  set_port(&any, htons((uint16_t)port));
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      (family == AF_INET || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) &&
      bind(fd, (struct sockaddr *)&any, length_of(&any)) == 0 && listen(fd, BACKLOG) == 0)
    return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

mn_status mn_socket_listen(int *out, int port) {
  *out = listen_at(AF_INET6, port);
  if (*out < 0) *out = listen_at(AF_INET, port);
  if (*out >= 0) return MN_OK;
  if (port == 0) return mn_fail(MN_LIBRARY, "cannot listen for the other ranks: %s", strerror(errno));
  return mn_fail(MN_LIBRARY, "cannot listen for the other ranks at port %d: %s; set MASTER_PORT to another",
                 port, strerror(errno));
}

void mn_host(char out[MN_HOST]) {
  if (gethostname(out, MN_HOST) != 0) snprintf(out, MN_HOST, "a host");
  out[MN_HOST - 1] = 0;
}

/* Whether connections from another host can come to it: a link-local address of IPv6 is one on each of
 * theirs. */
static int is_address(const struct sockaddr *address) {
  if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return 0;
  return address->sa_family == AF_INET ||
         !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

mn_status mn_addresses_here(struct mn_addresses *out, int listener) {
  struct ifaddrs *all;
  struct sockaddr_storage bound = {0};
  socklen_t length = sizeof bound;
  *out = (struct mn_addresses){0};
  mn_host(out->host);
  if (getsockname(listener, (struct sockaddr *)&bound, &length) != 0 ||
      getrandom(out->secret, MN_SECRET, 0) != MN_SECRET || getifaddrs(&all) != 0)
    return mn_fail(MN_LIBRARY, "the addresses of this host are not known: %s", strerror(errno));
  for (int loopback = 0; loopback < 2; loopback++)
    for (const struct ifaddrs *i = all; i && out->count < MN_ADDRESSES; i = i->ifa_next) {
      if (!is_address(i->ifa_addr) || !(i->ifa_flags & IFF_UP)) continue;
      if (((i->ifa_flags & IFF_LOOPBACK) != 0) != loopback) continue;
      if (i->ifa_addr->sa_family == AF_INET6 && bound.ss_family == AF_INET) continue;
      struct sockaddr_storage *address = &out->each[out->count++];
      memcpy(address, i->ifa_addr,
             i->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
      set_port(address, port_of(&bound));
    }
  freeifaddrs(all);
  return out->count ? MN_OK : mn_fail(MN_LIBRARY, "this host has no address at which ranks could meet");
}

mn_status mn_addresses_find(struct mn_addresses *out, const char *name, int port) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  struct addrinfo *all;
  char digits[16];
  *out = (struct mn_addresses){0};
  snprintf(out->host, sizeof out->host, "%s", name);
  snprintf(digits, sizeof digits, "%d", port);
  const int failed = getaddrinfo(name, digits, &hints, &all);
  if (failed)
    return mn_fail(MN_USAGE, "MASTER_ADDR=%s has no address: %s; name the host of rank 0", name,
                   gai_strerror(failed));
  for (const struct addrinfo *i = all; i && out->count < MN_ADDRESSES; i = i->ai_next)
    if (i->ai_family == AF_INET || i->ai_family == AF_INET6)
      memcpy(&out->each[out->count++], i->ai_addr, i->ai_addrlen);
  freeaddrinfo(all);
  return out->count ? MN_OK
                    : mn_fail(MN_USAGE, "MASTER_ADDR=%s has no address; name the host of rank 0", name);
}

const char *mn_address_text(char out[NI_MAXHOST + 8], const struct mn_addresses *place, int address) {
  const struct sockaddr_storage *a = &place->each[address];
  char host[NI_MAXHOST];
  if (getnameinfo((const struct sockaddr *)a, length_of(a), host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
    snprintf(host, sizeof host, "%s", place->host);
  snprintf(out, NI_MAXHOST + 8, "%s:%d", host, ntohs(port_of(a)));
  return out;
}

/* Messages are short and wait for nothing. */
static int without_delay(int fd) {
  const int yes = 1;
  return fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0;
}

/* poll that goes on after a signal, until a time of mn_seconds(). */
static int wait_until(int fd, short events, double end) {
  struct pollfd one = {.fd = fd, .events = events};
  for (;;) {
    const double left = end - mn_seconds();
    const int found = poll(&one, 1, left > 0 ? (int)fmin(left * 1e3 + 1, 1e6) : 0);
    if (found > 0) return 1;
    if (found == 0 && left <= 0) return 0;
    if (found < 0 && errno != EINTR) return 0;
  }
}

int mn_socket_connect(const struct mn_addresses *place, int address, double seconds) {
  const struct sockaddr_storage *to = &place->each[address];
  const double end = mn_seconds() + seconds;
  int error = 0;
  socklen_t length = sizeof error;
  const int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, (const struct sockaddr *)to, length_of(to)) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    error = ETIMEDOUT;
    if (wait_until(fd, POLLOUT, end) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
      error = errno;
  }
  if (!error && (fcntl(fd, F_SETFL, 0) != 0 || !without_delay(fd))) error = errno;
  if (!error) return fd;
  close(fd);
  errno = error;
  return -1;
}

int mn_socket_accept(int listener) {
  const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (without_delay(fd)) return fd;
  close(fd);
  return -1;
}

int mn_socket_send(int fd, const void *data, size_t bytes, int64_t *count) {
  const char *at = data;
  while (bytes > 0) {
    const size_t part = bytes < 1 << 20 ? bytes : 1 << 20;
    const ssize_t sent = send(fd, at, part, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno;
    if (count) __atomic_add_fetch(count, 1, __ATOMIC_RELEASE);
    at += sent;
    bytes -= (size_t)sent;
  }
  return 0;
}

/* The message's first bytes, if they come while the thread had better not sleep. */
static ssize_t receive_soon(int fd, void *data, size_t bytes) {
  const double end = mn_seconds() + spin;
  ssize_t got;
  do got = recv(fd, data, bytes, MSG_DONTWAIT);
  while (got < 0 && errno == EAGAIN && sched_yield() == 0 && mn_seconds() < end);
  return got;
}

int mn_socket_receive(int fd, void *data, size_t bytes, int64_t *count) {
  char *at = data;
  while (bytes > 0) {
    ssize_t got = receive_soon(fd, at, bytes);
    if (got < 0 && errno == EAGAIN) got = recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EPIPE;
    if (count) __atomic_add_fetch(count, 1, __ATOMIC_RELEASE);
    at += got;
    bytes -= (size_t)got;
  }
  return 0;
}

int mn_socket_receive_within(int fd, void *data, size_t bytes, double seconds) {
  const double end = mn_seconds() + seconds;
  char *at = data;
  while (bytes > 0) {
    if (!wait_until(fd, POLLIN, end)) return ETIMEDOUT;
    const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return got < 0 ? errno : EPIPE;
    at += got;
    bytes -= (size_t)got;
  }
  return 0;
}
