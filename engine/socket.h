/* TCP between the processes of a run: where one listens, how the others reach it, and whole messages over a
 * connection. Descriptors close on exec, and a peer that went away is an error, never a signal. */
#ifndef MN_ENGINE_SOCKET_H
#define MN_ENGINE_SOCKET_H

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

enum { MN_HOST = 64, MN_SECRET = 16, MN_ADDRESSES = 16 };

/* Where rank 0 listens, as it tells the others: bytes to be sent as they are, among builds of one kind. */
struct mn_addresses {
  char host[MN_HOST];
  unsigned char secret[MN_SECRET]; /* who connects knows it, so a stranger does not pass */
  int count;
  struct sockaddr_storage each[MN_ADDRESSES]; /* with the port; those of other hosts' reach first */
};

/* Listens on all interfaces, on a port of the system's choice where `port` is 0. MN_LIBRARY. */
mn_status mn_socket_listen(int *out, int port);

/* The place of a listening socket, with all addresses of this host and a new secret. MN_LIBRARY. */
mn_status mn_addresses_here(struct mn_addresses *out, int listener);

/* The place that a name and a port say; its secret is zeros. MN_USAGE: the name has no address. */
mn_status mn_addresses_find(struct mn_addresses *out, const char *name, int port);

/* "127.0.0.1:29500" of an address. */
const char *mn_address_text(char out[NI_MAXHOST + 8], const struct mn_addresses *place, int address);

/* This host's name; cut off where it is longer. */
void mn_host(char out[MN_HOST]);

/* A connection to one of the addresses, −1 with errno where none comes about in so many seconds. */
int mn_socket_connect(const struct mn_addresses *place, int address, double seconds);

/* A connection that waits at the listener; −1 with errno. */
int mn_socket_accept(int listener);

/* Sends and receives all bytes, and waits for ever; 0, or an errno: EPIPE where the peer has closed. *count
 * (NULL: nothing) goes up, atomically, with every part that has got through. */
int mn_socket_send(int fd, const void *data, size_t bytes, int64_t *count);
int mn_socket_receive(int fd, void *data, size_t bytes, int64_t *count);

/* The same within so many seconds, else ETIMEDOUT. */
int mn_socket_receive_within(int fd, void *data, size_t bytes, double seconds);

#endif
