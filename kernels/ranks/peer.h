/* The collectives of shards, or of replicas, whose GPUs reach each other's memory (CUDA's peer access, within
 * a host): one kernel each, which stores a piece straight into the memory that the other GPUs read, or adds
 * up the pieces that it loads from theirs, so that no pass brings pieces into place; or, beside a product,
 * which needs the multiprocessors, the copy engines. Over NVLink a gather takes two thirds of NCCL's time
 * (NOTES.md). Other memory goes by NCCL. */
#ifndef MN_KERNELS_RANKS_PEER_H
#define MN_KERNELS_RANKS_PEER_H

#include "kernels/ranks/collectives.h"

struct mn_peer; /* the memory that a team has mapped */

/* all[size][bytes] becomes every rank's `mine`, by NCCL; in place if `mine` is its place in `all`. */
mn_status mn_nccl_allgather(struct mn_device *device, const struct mn_team *team, void *all, const void *mine,
                            size_t bytes);

/* Lets the ranks of a team share memory, after NCCL's communicators are open; team->peer stays NULL if
 * their GPUs do not reach each other, are not one a rank, are more than MN_PEERS, or if NCCL_P2P_DISABLE
 * is set for any of them. Every rank of the team calls it. MN_LIBRARY, MN_NO_MEMORY. */
MN_C mn_status mn_peer_open(struct mn_device *device, struct mn_team *team);
MN_C void mn_peer_close(struct mn_team *team);

/* Unmaps the others' memory, if this is such an allocation. */
void mn_peer_release(const struct mn_team *team, const void *memory);

/* Whether this is in memory that the team shares. */
bool mn_peer_shares(const struct mn_team *team, const void *memory);

/* Whether `whole` is, and its matrix [rows, cols] of elements of `each` bytes is divided into pieces of whole
 * 16-byte words, of which this rank's is at `piece`. */
bool mn_peer_reaches(const struct mn_team *team, const void *whole, const void *piece, int64_t rows,
                     int64_t cols, size_t each);

/* Then: allgather. */
mn_status mn_peer_allgather(struct mn_device *device, const struct mn_team *team, void *whole,
                            const void *piece, int64_t rows, int64_t cols, size_t each);

/* The team agrees on the nonfinite flag; allgather of reals too, unless `whole` is NULL. beside: on
 * MN_BRANCH_SUMS, while a product runs whose epilogue waits for it (struct mn_agreement). */
mn_status mn_peer_agree(struct mn_device *device, const struct mn_team *team, void *whole, const void *piece,
                        int64_t rows, int64_t cols, bool beside);

/* The gather of a plane that is on its way when this returns, on MN_BRANCH_SHARDS, which the tape joins, by
 * the copy engines, which need no multiprocessor. The kernel that reads it waits for the others' columns
 * (whole->arrival), leaves two multiprocessors free, on which the copies are started, and is followed by
 * arrived; or is preceded by complete, if the kernel does not wait itself. */
mn_status mn_peer_push(struct mn_device *device, const struct mn_team *team, const struct mn_operand *whole);
mn_status mn_peer_arrived(struct mn_device *device, struct mn_arrival *arrival);
mn_status mn_peer_complete(struct mn_device *device, const struct mn_operand *whole);

/* And reduce_scatter of reals. */
mn_status mn_peer_reduce_scatter(struct mn_device *device, const struct mn_team *team, const void *whole,
                                 void *piece, int64_t rows, int64_t cols);

/* This rank's share of a matrix's rows, a multiple of the ranks, becomes the sum of all ranks' there, on no
 * more than MN_EXCHANGE_MULTIPROCESSORS. The matrix has `cols` columns, and its rows are `pitch` elements
 * apart; both are whole 16-byte words. */
mn_status mn_peer_reduce_scatter_rows(struct mn_device *device, const struct mn_team *team, void *matrix,
                                      int64_t rows, int64_t cols, int64_t pitch);

/* Another way to that sum, on MN_BRANCH_SHARDS, by the copy engines: a rank sends rank `to`'s columns of its
 * `whole` into that rank's `staging`, shared memory of the whole's shape, in which each rank's term of the
 * sum stands at the sender's columns. After meet all that was sent before has come. No rank may send again
 * before all have read it. */
mn_status mn_peer_send(struct mn_device *device, const struct mn_team *team, void *staging, const void *whole,
                       int64_t rows, int64_t cols, int to);
mn_status mn_peer_meet(struct mn_device *device, const struct mn_team *team);

/* This rank's `share` of memory that the team shares goes to the same place of the others', by the copy
 * engines, which need no multiprocessor. waits: once they have read what was there. last: after this call
 * theirs have come, of earlier calls too. */
mn_status mn_peer_copy(struct mn_device *device, const struct mn_team *team, const void *share, size_t bytes,
                       bool waits, bool last);

#endif
