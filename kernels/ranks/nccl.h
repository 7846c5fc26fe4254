/* NCCL, found at run time. In builds with CUDA. */
#ifndef MN_KERNELS_RANKS_NCCL_H
#define MN_KERNELS_RANKS_NCCL_H

#include "kernels/ranks/ranks.h"

struct mn_nccl_comm; /* NCCL's */
struct CUstream_st;  /* a cudaStream_t points at one; this header is also for C, which lacks CUDA's */

/* The version, such as "2.28.3" in text[size]; NULL: no library is there. */
MN_C const char *mn_nccl_version(char *text, size_t size);

/* Opens the teams' communicators on the current GPU, under the id that one rank began; the others begin with
 * NULL. MN_LIBRARY. */
MN_C mn_status mn_nccl_begin(struct mn_ranks_id *id);
MN_C mn_status mn_nccl_open(struct mn_ranks *ranks, const struct mn_ranks_id *id);
MN_C void mn_nccl_close(struct mn_ranks *ranks);

/* What is called between a beginning (1) and an end (0) goes as one where it can: the calls of one
 * communicator. */
MN_C mn_status mn_nccl_group(int begins);

/* As mn_mpi's of the same names, in `stream`, in the GPU's memory; allgather in place where `mine` is its
 * place in `all`. */
MN_C mn_status mn_nccl_allgather(const struct mn_team *team, void *all, const void *mine, size_t bytes,
                                 struct CUstream_st *stream);
MN_C mn_status mn_nccl_alltoall(const struct mn_team *team, void *to_me, const void *of_mine, size_t bytes,
                                struct CUstream_st *stream);

/* to[count], numbers of `each` bytes, becomes the sum of the team's `from`; in place where they are one. NCCL
 * chooses the order, which is the same each time for the same GPUs. */
MN_C mn_status mn_nccl_allreduce(const struct mn_team *team, void *to, const void *from, int64_t count,
                                 size_t each, struct CUstream_st *stream);

/* sum[count] becomes the sum of the team's from[rank·count …]; in place where it is its place in `from`. */
MN_C mn_status mn_nccl_reduce_scatter(const struct mn_team *team, void *sum, const void *from, int64_t count,
                                      size_t each, struct CUstream_st *stream);

/* *flag becomes the largest of the team's. */
MN_C mn_status mn_nccl_agree(const struct mn_team *team, int *flag, struct CUstream_st *stream);

#endif
