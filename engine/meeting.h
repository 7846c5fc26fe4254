/* How ranks meet: every other connects to rank 0, which waits until all are there. */
#ifndef MN_ENGINE_MEETING_H
#define MN_ENGINE_MEETING_H

#include "engine/socket.h"

/* The connections that each rank has with rank 0. */
enum mn_line { MN_LINE_CALLS, MN_LINE_BEATS, MN_LINES };

struct mn_meeting {
  int rank, size;
  double timeout;            /* seconds within which all come; 0: it waits for ever */
  double begun;              /* mn_seconds() from which on they count */
  int resumable;             /* a checkpoint stands that --resume would go on from */
  int listener;              /* rank 0's: mn_socket_listen */
  struct mn_addresses place; /* rank 0's; with a secret of zeros who connects is known by its number alone */
  /* what mn_meet fills, the caller's: [size] each */
  int *fds[MN_LINES];     /* rank 0's to each other rank; of the others the first, to rank 0. −1: none */
  char (*hosts)[MN_HOST]; /* of the others the first */
};

/* Returns when all are there. An error is that of all who came: MN_LIBRARY, or MN_INTERRUPTED where it is
 * resumable: some are not there in time, whom rank 0 names; MN_USAGE: two have one number, or they disagree
 * on how many they are; MN_NO_MEMORY. */
mn_status mn_meet(struct mn_meeting *meeting);

/* Closes and frees what it has filled; also after an error. */
void mn_meeting_close(struct mn_meeting *meeting);

#endif
