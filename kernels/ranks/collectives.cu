/* Collectives on CUDA, by NCCL, found at run time. Contract: kernels/ranks/collectives.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "kernels/cuda.cuh"
#include "kernels/planes.h"
#include "kernels/ranks/mpi.h"
#include "kernels/ranks/peer.h"
#include "kernels/ranks/plan.h"

/* NCCL's stable interface, version 2: its functions with their parameters, all of which return an error, and
 * values of ncclDataType_t and ncclRedOp_t. */
struct unique_id {
  char bytes[sizeof mn_ranks::id];
};
typedef mn_nccl_comm *communicator;
#define NCCL(F)                                                                                              \
  F(GetVersion, int *version)                                                                                \
  F(GetUniqueId, unique_id *id)                                                                              \
  F(CommInitRank, communicator *out, int size, unique_id id, int rank)                                       \
  F(CommSplit, communicator all, int color, int key, communicator *out, void *no_config)                     \
  F(CommAbort, communicator team)                                                                            \
  F(AllGather, const void *mine, void *all, size_t count, int type, communicator team, cudaStream_t stream)  \
  F(AllReduce, const void *from, void *to, size_t count, int type, int operation, communicator team,         \
    cudaStream_t stream)                                                                                     \
  F(ReduceScatter, const void *from, void *to, size_t count, int type, int operation, communicator team,     \
    cudaStream_t stream)                                                                                     \
  F(Send, const void *from, size_t count, int type, int rank, communicator team, cudaStream_t stream)        \
  F(Recv, void *to, size_t count, int type, int rank, communicator team, cudaStream_t stream)                \
  F(GroupStart)                                                                                              \
  F(GroupEnd)
enum { INT8 = 0, INT32 = 2, FLOAT32 = 7, FLOAT64 = 8, SUM = 0, MAX = 2 };

struct nccl_functions {
#define MEMBER(name, ...) int (*name)(__VA_ARGS__);
  NCCL(MEMBER)
  const char *(*GetErrorString)(int code);
  bool there;
};

static const nccl_functions &nccl() {
  static const nccl_functions functions = [] {
    nccl_functions n = {};
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    n.there = library != nullptr;
#define FIND(name, ...)                                                                                      \
  if (n.there) *reinterpret_cast<void **>(&n.name) = dlsym(library, "nccl" #name);                           \
  n.there = n.there && n.name;
    NCCL(FIND)
    FIND(GetErrorString)
    return n;
  }();
  return functions;
}

static mn_status check(const char *what, int code) {
  if (code == 0) return MN_OK;
  return mn_fail(MN_LIBRARY, "NCCL cannot %s: %s; NCCL_DEBUG=WARN says more", what,
                 nccl().GetErrorString(code));
}

const char *mn_nccl_version(char *text, size_t size) {
  int v;
  if (!nccl().there || nccl().GetVersion(&v) != 0) return nullptr;
  snprintf(text, size, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  return text;
}

mn_status mn_ranks_begin_cuda(struct mn_device *device) {
  if (!nccl().there)
    return mn_fail(MN_LIBRARY, "no NCCL from 2.18 on is found (libnccl.so.2), which several GPUs need: "
                               "install libnccl2, or train on one");
  if (device->ranks->all.rank > 0) return MN_OK;
  return check("begin", nccl().GetUniqueId(reinterpret_cast<unique_id *>(device->ranks->id)));
}

mn_status mn_ranks_join_cuda(struct mn_device *device) {
  struct mn_ranks *ranks = device->ranks;
  mn_team *all = &ranks->all, *shards = &ranks->shards, *replicas = &ranks->replicas;
  const unique_id &id = *reinterpret_cast<unique_id *>(ranks->id);
  MN_TRY(check("connect the GPUs", nccl().CommInitRank(&all->nccl, all->size, id, all->rank)));
  if (replicas->size == 1) {
    shards->nccl = all->nccl;
  } else {
    MN_TRY(check("connect the shards",
                 nccl().CommSplit(all->nccl, replicas->rank, shards->rank, &shards->nccl, nullptr)));
    MN_TRY(check("connect the replicas",
                 nccl().CommSplit(all->nccl, shards->rank, replicas->rank, &replicas->nccl, nullptr)));
  }
  MN_TRY(mn_peer_open(device, shards));
  return mn_peer_open(device, replicas);
}

void mn_ranks_leave_cuda(struct mn_device *device) {
  struct mn_ranks *ranks = device->ranks;
  (void)cudaStreamSynchronize(device->cuda->stream);
  mn_peer_close(&ranks->shards);
  mn_peer_close(&ranks->replicas);
  if (ranks->shards.nccl == ranks->all.nccl) ranks->shards.nccl = nullptr;
  for (mn_team *team : {&ranks->replicas, &ranks->shards, &ranks->all}) {
    if (team->nccl) (void)nccl().CommAbort(team->nccl); /* destroy would wait for the other ranks */
    team->nccl = nullptr;
  }
}

/* Calls work(), whose exchanges by NCCL are one if they use one communicator. */
template <typename Work> static mn_status in_group(Work work) {
  MN_TRY(check("group", nccl().GroupStart()));
  const mn_status status = work(), ended = check("group", nccl().GroupEnd());
  return status != MN_OK ? status : ended;
}

mn_status mn_nccl_allgather(struct mn_device *device, const struct mn_team *team, void *all, const void *mine,
                            size_t bytes) {
  return check("gather", nccl().AllGather(mine, all, bytes, INT8, team->nccl, device->cuda->stream));
}

/* Rank q's to_me[r] becomes rank r's of_mine[q], each [size][bytes]. */
static mn_status alltoall(struct mn_device *device, const struct mn_team *team, void *to_me,
                          const void *of_mine, size_t bytes) {
  const cudaStream_t stream = device->cuda->stream;
  return in_group([=] {
    for (int q = 0; q < team->size; q++) {
      const char *mine = static_cast<const char *>(of_mine) + q * bytes;
      MN_TRY(check("send", nccl().Send(mine, bytes, INT8, q, team->nccl, stream)));
      MN_TRY(check("receive",
                   nccl().Recv(static_cast<char *>(to_me) + q * bytes, bytes, INT8, q, team->nccl, stream)));
    }
    return MN_OK;
  });
}

static int type_of(size_t each) {
  return each == sizeof(double) ? FLOAT64 : FLOAT32;
}

/* data[count] becomes the sum of the team's. NCCL chooses the order, which is the same each time for the same
 * GPUs. */
static mn_status add_in_place(struct mn_device *device, const struct mn_team *team, void *data, int64_t count,
                              size_t each) {
  return check("add up", nccl().AllReduce(data, data, (size_t)count, type_of(each), SUM, team->nccl,
                                          device->cuda->stream));
}

/* *flag becomes the largest of all ranks'. */
static mn_status agree(struct mn_device *device, int *flag) {
  return check("agree",
               nccl().AllReduce(flag, flag, 1, INT32, MAX, device->ranks->all.nccl, device->cuda->stream));
}

/* Copies the columns of `whole`, [rows, cols], to the pieces of all ranks, which stand one after the other
 * with rows as wide as the widest share; or copies them back. */
static mn_status divide(struct mn_device *device, void *whole, void *pieces, int64_t rows, int64_t cols,
                        size_t each, bool to_whole) {
  const int size = device->ranks->shards.size;
  const size_t row = cols * each, width = (cols + size - 1) / size * each;
  for (int q = 0; q < size; q++) {
    int64_t first;
    const size_t share = mn_share(cols, q, size, &first) * each;
    char *piece = static_cast<char *>(pieces) + q * rows * width;
    char *columns = static_cast<char *>(whole) + first * each;
    if (share == 0) continue;
    MN_CUDA_TRY(cudaMemcpy2DAsync(to_whole ? columns : piece, to_whole ? row : width,
                                  to_whole ? piece : columns, to_whole ? width : row, share, rows,
                                  cudaMemcpyDeviceToDevice, device->cuda->stream));
  }
  return MN_OK;
}

/* Agrees on the flag too, in the exchange of the last rows. */
static mn_status gather(struct mn_device *device, void *whole, const void *piece, int64_t rows, int64_t cols,
                        size_t each, bool agrees) {
  const struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  if (mn_peer_reaches(&r->shards, whole, piece, rows, cols, each)) {
    MN_TRY(mn_peer_allgather(device, &r->shards, whole, piece, rows, cols, each));
    return agrees ? agree(device, device->nonfinite) : MN_OK;
  }
  MN_TRY(mn_ranks_plan(&p, device, cols, each));
  const size_t row = p.share * each, width = p.widest * each;
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = std::min(p.rows, rows - at);
    const void *mine = static_cast<const char *>(piece) + at * row;
    if (p.share < p.widest) {
      if (row > 0)
        MN_CUDA_TRY(cudaMemcpy2DAsync(r->staging[0], width, mine, row, row, count, cudaMemcpyDeviceToDevice,
                                      device->cuda->stream));
      mine = r->staging[0];
    }
    const bool last = agrees && at + count == rows;
    MN_TRY(in_group([&] {
      MN_TRY(mn_nccl_allgather(device, &r->shards, r->staging[1], mine, count * width));
      return last ? agree(device, device->nonfinite) : MN_OK;
    }));
    MN_TRY(divide(device, static_cast<char *>(whole) + at * cols * each, r->staging[1], count, cols, each,
                  true));
  }
  return MN_OK;
}

mn_status mn_allgather_cuda(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                            int64_t cols, size_t each) {
  return gather(device, whole, piece, rows, cols, each, false);
}

/* By the copy engines, from the size on at which their rate outweighs their latency. */
mn_status mn_gather_plane_cuda(struct mn_device *device, struct mn_operand *whole, const void *piece) {
  constexpr int64_t LEAST = 1 << 20;
  const struct mn_team *t = &device->ranks->shards;
  void *plane = whole->planes[0];
  const size_t each = device->plane;
  if (!whole->arrival || whole->rows * whole->cols * (int64_t)each < LEAST * t->size ||
      !mn_peer_shares(t, whole->arrival->arrived) ||
      !mn_peer_reaches(t, plane, piece, whole->rows, whole->cols, each))
    return gather(device, plane, piece, whole->rows, whole->cols, each, false);
  whole->arrival->own = piece;
  whole->arrival->pending = 1;
  return mn_peer_push(device, t, whole);
}

mn_status mn_agree_cuda(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                        int64_t cols) {
  const struct mn_ranks *r = device->ranks;
  /* The update that comes next waits for the flag. */
  const bool waits = device->has_own_gemm && device->plane_kind == MN_PLANES_BF16;
  for (const struct mn_team *team : {&r->shards, &r->replicas})
    if (team->peer && team->size == r->all.size &&
        (!whole || mn_peer_reaches(team, whole, piece, rows, cols, device->real)))
      return mn_peer_agree(device, team, whole, piece, rows, cols, waits && team == &r->shards);
  return whole ? gather(device, whole, piece, rows, cols, device->real, true)
               : agree(device, device->nonfinite);
}

/* piece[rows, share] = the pieces in the second staging buffer, added up in order. */
static mn_status add_up(struct mn_device *device, void *piece, int64_t rows, const struct mn_ranks_plan &p) {
  const char *pieces = static_cast<const char *>(device->ranks->staging[1]);
  struct mn_operand sum = {rows, p.share};
  sum.real = piece;
  MN_REQUIRE(p.share == p.widest); /* cols is a multiple of the shards */
  for (int q = 1; q < device->ranks->shards.size; q++)
    MN_TRY(mn_add(device, &sum, q > 1 ? piece : pieces, pieces + q * rows * p.share * device->real));
  return MN_OK;
}

mn_status mn_reduce_scatter_cuda(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                                 int64_t cols) {
  const struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  const size_t real = device->real;
  if (mn_peer_reaches(&r->shards, whole, piece, rows, cols, real))
    return mn_peer_reduce_scatter(device, &r->shards, whole, piece, rows, cols);
  MN_TRY(mn_ranks_plan(&p, device, cols, real));
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = std::min(p.rows, rows - at);
    char *from = static_cast<char *>(const_cast<void *>(whole)) + at * cols * real;
    char *to = static_cast<char *>(piece) + at * p.share * real;
    MN_TRY(divide(device, from, r->staging[0], count, cols, real, false));
    MN_TRY(alltoall(device, &r->shards, r->staging[1], r->staging[0], count * p.widest * real));
    MN_TRY(add_up(device, to, count, p));
  }
  return MN_OK;
}

/* to[count] = from, in words of 4 bytes, unless the flag is raised, if there is one. */
MN_CUDA_KERNEL copy_unless_kernel(unsigned *to, const unsigned *from, int64_t count, const int *unless) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count && !(unless && *unless)) to[i] = from[i];
}

/* A staging buffer at a time. */
static mn_status allreduce_staged(struct mn_device *device, void *data, int64_t count, size_t each,
                                  const int *unless) {
  const struct mn_ranks *r = device->ranks;
  const cudaStream_t stream = device->cuda->stream;
  const int64_t most = MN_RANKS_STAGING / (int64_t)each;
  for (int64_t at = 0; at < count; at += most) {
    const int64_t length = std::min(most, count - at);
    char *here = static_cast<char *>(data) + at * each;
    void *staging = r->staging[0];
    MN_CUDA_TRY(cudaMemcpyAsync(staging, here, length * each, cudaMemcpyDefault, stream));
    MN_TRY(add_in_place(device, &r->replicas, staging, length, each));
    const int64_t words = length * each / sizeof(unsigned);
    MN_TRY(mn_cuda_launch("copy_unless", device, words, MN_CUDA_THREADS, copy_unless_kernel,
                          reinterpret_cast<unsigned *>(here), static_cast<const unsigned *>(staging), words,
                          unless));
  }
  return MN_OK;
}

/* In place and in one group, because an exchange's time is mostly latency; by way of staging memory if the
 * flag decides whether to write, or the numbers may be the host's. */
mn_status mn_allreduce_cuda(struct mn_device *device, const struct mn_sum *sums, int count, size_t each,
                            const int *unless) {
  const auto in_place = [=](const mn_sum &s) { return !unless && s.count > 2; };
  MN_TRY(in_group([&] {
    for (int i = 0; i < count; i++)
      if (in_place(sums[i]))
        MN_TRY(add_in_place(device, &device->ranks->replicas, sums[i].data, sums[i].count, each));
    return MN_OK;
  }));
  for (int i = 0; i < count; i++)
    if (!in_place(sums[i])) MN_TRY(allreduce_staged(device, sums[i].data, sums[i].count, each, unless));
  return MN_OK;
}

mn_status mn_reduce_scatter_rows_cuda(struct mn_device *device, void *data, int64_t count) {
  const struct mn_team *t = &device->ranks->replicas;
  const size_t real = device->real;
  const int64_t each = count / t->size;
  void *share = static_cast<char *>(data) + each * t->rank * real;
  device->reserved_sms = std::max(device->reserved_sms, (int)MN_EXCHANGE_MULTIPROCESSORS);
  return mn_cuda_beside(device, MN_BRANCH_REPLICAS, [=] {
    return mn_peer_reaches(t, data, share, 1, count, real)
               ? mn_peer_reduce_scatter_rows(device, t, data, t->size, each, each)
               : check("add up", nccl().ReduceScatter(data, share, each, type_of(real), SUM, t->nccl,
                                                      device->cuda->stream));
  });
}

mn_status mn_allgather_rows_cuda(struct mn_device *device, void *data, int64_t count, size_t each, int piece,
                                 int pieces) {
  const struct mn_team *t = &device->ranks->replicas;
  const size_t bytes = count / t->size * each;
  const char *share = static_cast<char *>(data) + t->rank * bytes;
  const bool last = piece + 1 == pieces;
  if (mn_peer_reaches(t, data, share, 1, count, each))
    return mn_peer_copy(device, t, share + bytes / pieces * piece, bytes / pieces, pieces == 1, last);
  return last ? mn_nccl_allgather(device, t, data, share, bytes) : MN_OK;
}

/* As integers: the bits of floats that are not negative are ordered as the floats are. */
mn_status mn_agree_scales_cuda(struct mn_device *device, struct mn_scale *const *scales, int count) {
  return in_group([&] {
    for (int i = 0; i < count; i++) MN_TRY(agree(device, reinterpret_cast<int *>(&scales[i]->largest)));
    return MN_OK;
  });
}
