/* The link: what ranks tell each other beside the data of training. A star of TCP connections through rank 0,
 * with heartbeats beside (engine/heartbeat.h): a rank that does not answer ends all of them within the
 * timeout, whatever MPI and NCCL do meanwhile.
 *
 * Every rank makes the same calls in the same order, one thread of each. They do not fail: where a rank does
 * not answer, or is out of step with the others, the process ends with a line that names it. */
#ifndef MN_ENGINE_LINK_H
#define MN_ENGINE_LINK_H

#include "engine/heartbeat.h"
#include "engine/meeting.h"

struct mn_link; /* opaque */

/* Meets the other ranks; `meeting` is taken over, also by an error, and all but its listener closed by
 * mn_link_close. `*out` is the caller's. mn_meet's errors, and mn_heartbeat_open's. */
mn_status mn_link_open(struct mn_link **out, struct mn_meeting meeting);

/* Leaves in order, so that nobody misses this rank. NULL is fine. */
void mn_link_close(struct mn_link *link);

struct mn_heartbeat *mn_link_heartbeat(struct mn_link *link);

/* tell: data[bytes] becomes rank 0's, which does not wait for the others.
 * fold: on rank 0 fold(value, theirs) is called with every other rank's value[bytes], in order; then every
 * rank's becomes rank 0's. bytes ≤ MN_LINK_VALUE.
 * collect: all[size][bytes] becomes every rank's `mine`.
 * gather: on rank 0 parts[q][bytes[q]] becomes every other rank's parts[0][bytes[0]]; these do not wait. */
enum { MN_LINK_VALUE = 256 };
void mn_link_tell(struct mn_link *link, void *data, size_t bytes);
void mn_link_fold(struct mn_link *link, void *value, size_t bytes,
                  void (*fold)(void *value, const void *theirs));
void mn_link_collect(struct mn_link *link, void *all, const void *mine, size_t bytes);
void mn_link_gather(struct mn_link *link, void *const *parts, const size_t *bytes);

#endif
