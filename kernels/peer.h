/* The collectives of parts whose GPUs reach each other's memory (CUDA's peer access, within a host): one
 * kernel each, which stores a piece straight to where the other GPUs read it, so that no pass brings pieces
 * into place. Over NVLink a gather takes two thirds of NCCL's time (NOTES.md). What cannot go this way goes
 * by NCCL. */
#ifndef MN_KERNELS_PEER_H
#define MN_KERNELS_PEER_H

#include "kernels/ranks.h"

struct mn_peer;        /* what the parts have mapped */
struct mn_peer_memory; /* an allocation that every part has, and where the others' are mapped */

/* Maps the rooms among the parts, after NCCL's communicators are open; ranks->peer stays NULL where the GPUs
 * do not reach each other, are not one a rank, are more than 8, or where NCCL_P2P_DISABLE is set for any of
 * them. Every rank calls it. MN_LIBRARY, MN_NO_MEMORY. */
MN_C mn_status mn_peer_open(struct mn_device *device);
MN_C void mn_peer_close(struct mn_device *device);

/* Unmaps the others' memory, if this is such an allocation. */
MN_C void mn_peer_release(struct mn_ranks *ranks, const void *memory);

/* The shared allocation that begins at `memory`, or NULL, where a matrix [rows, cols] of elements of `each`
 * bytes is divided into pieces of whole 16-byte words, of which this part's is at `piece`. */
const struct mn_peer_memory *mn_peer_reach(const struct mn_device *device, const void *memory,
                                           const void *piece, int64_t rows, int64_t cols, size_t each);

/* all_gather into that allocation. agrees: the parts agree on the nonfinite flag too. */
mn_status mn_peer_all_gather(struct mn_device *device, const struct mn_peer_memory *whole, const void *piece,
                             int64_t rows, int64_t cols, size_t each, bool agrees);

mn_status mn_peer_agree(struct mn_device *device); /* that alone */

/* reduce_scatter by way of that allocation, which must hold the matrix: the second room. */
mn_status mn_peer_reduce_scatter(struct mn_device *device, const struct mn_peer_memory *room, void *piece,
                                 const void *whole, int64_t rows, int64_t cols);

#endif
