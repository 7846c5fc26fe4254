/* Collectives by stores to peers' memory and loads from it. Contract: kernels/ranks/peer.h. */
#include "kernels/ranks/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "kernels/cuda.cuh"

constexpr int PEERS = MN_PEERS, CTAS = 128, THREADS = 256, UNROLL = 4;
/* Beside a product: CTAs that have a multiprocessor each, which it leaves free. */
constexpr int AGREEMENT_CTAS = MN_AGREEMENT_MULTIPROCESSORS;
constexpr int BESIDE_CTAS = MN_EXCHANGE_MULTIPROCESSORS, BESIDE_THREADS = 1024;

/* In every GPU's memory, written by all of the team's GPUs. */
struct arrivals {
  unsigned of[CTAS][PEERS]; /* how many times each rank's CTA of this number has arrived, */
  unsigned own[CTAS];       /* and this GPU's; never reset, so that a captured kernel can count on */
  int raised[PEERS];        /* the ranks' nonfinite flags */
  mn_agreement agreement;
  unsigned one; /* 1 */
};

struct mn_peer_memory {
  mn_peer_memory *next;
  size_t bytes;
  void *of[PEERS]; /* by rank in the team: as mapped here, or the memory itself */
};

struct mn_peer {
  mn_peer_memory *memories;                  /* all that the team shares */
  mn_peer_memory *barriers;                  /* the one of them that holds: */
  arrivals *exchanges, *agreements, *pushes; /* which may run beside each other */
};

/* A kernel's parameters: the team's memory of one kind. */
template <typename T> struct of_team {
  T *at[PEERS];
  explicit of_team(const mn_peer_memory *m) {
    for (int q = 0; q < PEERS; q++) at[q] = static_cast<T *>(m->of[q]);
  }
};
typedef of_team<arrivals> barrier;

/* What this CTA wrote before, its counterparts on all GPUs see after; and what they read before is read. A
 * GPU's kernel as a whole ends after all CTAs of all GPUs have arrived for the last time. */
static __device__ void arrive(const barrier &b, int rank, int size, unsigned count) {
  __syncthreads();
  if (threadIdx.x < size) {
    unsigned *theirs = &b.at[threadIdx.x]->of[blockIdx.x][rank];
    const unsigned *mine = &b.at[rank]->of[blockIdx.x][threadIdx.x];
    unsigned seen;
    __threadfence_system();
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(theirs), "r"(count) : "memory");
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory");
    while ((int)(seen - count) < 0);
  }
  __syncthreads();
}

/* A rank's piece of a matrix of 16-byte words: rows of `share` of them, which are `cols` apart in the whole
 * and `apart` in the piece's own memory. */
struct words {
  unsigned count; /* words of a piece */
  unsigned share, cols, apart;

  MN_GPU unsigned of_whole(unsigned i) const { return i / share * cols + i % share; }
  MN_GPU unsigned of_piece(unsigned i) const { return i / share * apart + i % share; }
};

/* Calls work(i) for this thread's words of a piece, UNROLL of them, blockDim.x apart: the same words on every
 * GPU for the same CTA, so that a CTA has to wait for its counterparts alone. */
template <typename Work> static MN_GPU void for_own_words(unsigned count, Work work) {
  for (unsigned i = blockIdx.x * blockDim.x * UNROLL + threadIdx.x; i < count;
       i += gridDim.x * blockDim.x * UNROLL)
    work(i);
}

/* whole: from this rank's piece of it on. flag is NULL if the ranks do not agree on it. They do before the
 * pieces are on their way; `reached` may be NULL. */
static __global__ void __launch_bounds__(BESIDE_THREADS)
    allgather_kernel(const __grid_constant__ barrier b, const __grid_constant__ of_team<uint4> whole,
                     const uint4 *piece, const words w, int rank, int size, int *flag, unsigned *reached) {
  const unsigned arrived = b.at[rank]->own[blockIdx.x];
  const bool agrees = flag && blockIdx.x == 0;
  if (agrees && threadIdx.x < size) b.at[threadIdx.x]->raised[rank] = *flag;
  arrive(b, rank, size, arrived + 1); /* the others have read the whole's former content */
  if (agrees && threadIdx.x == 0) {
    for (int q = 0; q < size; q++) *flag = max(*flag, __ldcg(&b.at[rank]->raised[q]));
    if (reached) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(reached) : "memory");
  }
  for_own_words(w.count, [&](unsigned first) {
    uint4 values[UNROLL];
    MN_UNROLL(int u = 0; u < UNROLL; u++)
      if (first + u * blockDim.x < w.count) values[u] = piece[first + u * blockDim.x];
    for (int q = 0; q < size; q++) {
      uint4 *to = whole.at[(rank + q) % size];
      MN_UNROLL(int u = 0; u < UNROLL; u++)
        if (first + u * blockDim.x < w.count) to[w.of_whole(first + u * blockDim.x)] = values[u];
    }
  });
  arrive(b, rank, size, arrived + 2);
  if (threadIdx.x == 0) b.at[rank]->own[blockIdx.x] = arrived + 2;
}

/* piece = the sum of all GPUs' whole, from this rank's piece of it on, in the order of ranks. A thread loads
 * all its words from one GPU while it adds the words from the GPU before. */
template <typename Real>
static __global__ void __launch_bounds__(BESIDE_THREADS)
    reduce_scatter_kernel(const __grid_constant__ barrier b, const __grid_constant__ of_team<uint4> whole,
                          uint4 *piece, const words w, int rank, int size) {
  constexpr int WIDTH = 16 / sizeof(Real);
  const unsigned arrived = b.at[rank]->own[blockIdx.x];
  arrive(b, rank, size, arrived + 1); /* the others' wholes are complete */
  for_own_words(w.count, [&](unsigned first) {
    unsigned at[UNROLL];
    uint4 next[UNROLL], word[UNROLL];
    Real sums[UNROLL][WIDTH];
    MN_UNROLL(int u = 0; u < UNROLL; u++) {
      at[u] = w.of_whole(min(first + u * blockDim.x, w.count - 1));
      next[u] = __ldcg(whole.at[0] + at[u]);
    }
    for (int q = 0; q < size; q++) {
      MN_UNROLL(int u = 0; u < UNROLL; u++) {
        word[u] = next[u];
        if (q + 1 < size) next[u] = __ldcg(whole.at[q + 1] + at[u]);
      }
      MN_UNROLL(int u = 0; u < UNROLL; u++) {
        Real values[WIDTH];
        memcpy(values, &word[u], sizeof values);
        MN_UNROLL(int k = 0; k < WIDTH; k++) sums[u][k] = q > 0 ? sums[u][k] + values[k] : values[k];
      }
    }
    MN_UNROLL(int u = 0; u < UNROLL; u++) {
      memcpy(&word[u], sums[u], sizeof word[u]); /* and not to the piece, which would be byte by byte */
      if (first + u * blockDim.x < w.count) piece[w.of_piece(first + u * blockDim.x)] = word[u];
    }
  });
  arrive(b, rank, size, arrived + 2); /* they have read this one's */
  if (threadIdx.x == 0) b.at[rank]->own[blockIdx.x] = arrived + 2;
}

/* After it, the others see all that a GPU wrote before it. */
static __global__ void meet_kernel(const __grid_constant__ barrier b, int rank, int size) {
  const unsigned arrived = b.at[rank]->own[0];
  arrive(b, rank, size, arrived + 1);
  if (threadIdx.x == 0) b.at[rank]->own[0] = arrived + 1;
}

/* The allocation that `memory` is in. */
static mn_peer_memory *find(const struct mn_team *team, const void *memory) {
  for (mn_peer_memory *m = team->peer ? team->peer->memories : nullptr; m; m = m->next) {
    const char *first = static_cast<const char *>(m->of[team->rank]);
    if (memory >= first && memory < first + m->bytes) return m;
  }
  return nullptr;
}

/* The team's memory from the place on that is `memory` here. */
template <typename T> static of_team<T> team_at(const mn_peer_memory *m, const mn_team *team, T *memory) {
  of_team<T> all(m);
  const int64_t offset = memory - all.at[team->rank];
  for (int q = 0; q < team->size; q++) all.at[q] += offset;
  return all;
}

bool mn_peer_shares(const struct mn_team *team, const void *memory) {
  return find(team, memory);
}

bool mn_peer_reaches(const struct mn_team *team, const void *whole, const void *piece, int64_t rows,
                     int64_t cols, size_t each) {
  return cols * each % (16 * (size_t)team->size) == 0 && mn_aligned(16, whole) && mn_aligned(16, piece) &&
         rows * cols * (int64_t)each / 16 <= UINT32_MAX && find(team, whole);
}

static words words_of(const struct mn_team *team, int64_t rows, int64_t cols, size_t each) {
  const unsigned all = (unsigned)(cols * each / 16), share = all / team->size;
  return {(unsigned)(rows * share), std::max(share, 1u), all, share};
}

/* CTA i waits for CTA i of the others alone, and CTAs start in order: it does not matter how many run at the
 * same time. */
static unsigned ctas_of(const words &w, int threads, int most) {
  return std::max(std::min((w.count + threads * UNROLL - 1) / (threads * UNROLL), (unsigned)most), 1u);
}

static barrier barrier_of(const mn_team *team, arrivals *at) {
  return team_at(team->peer->barriers, team, at);
}

static mn_status allgather(struct mn_device *device, const mn_team *team, arrivals *at, void *whole,
                           const void *piece, const words &w, int *flag = nullptr,
                           unsigned *reached = nullptr) {
  const int threads = reached ? BESIDE_THREADS : THREADS;
  allgather_kernel<<<ctas_of(w, threads, reached ? AGREEMENT_CTAS : CTAS), threads, 0,
                     device->cuda->stream>>>(
      barrier_of(team, at),
      team_at(find(team, whole), team, static_cast<uint4 *>(whole) + team->rank * w.share),
      static_cast<const uint4 *>(piece), w, team->rank, team->size, flag, reached);
  return mn_cuda_launched("allgather");
}

mn_status mn_peer_allgather(struct mn_device *device, const struct mn_team *team, void *whole,
                            const void *piece, int64_t rows, int64_t cols, size_t each) {
  return allgather(device, team, team->peer->exchanges, whole, piece, words_of(team, rows, cols, each));
}

mn_status mn_peer_agree(struct mn_device *device, const struct mn_team *team, void *whole, const void *piece,
                        int64_t rows, int64_t cols, bool beside) {
  arrivals *at = team->peer->agreements;
  const words w = whole ? words_of(team, rows, cols, device->real) : words{0, 1, 0, 1};
  unsigned *reached = beside ? &at->agreement.reached : nullptr;
  const auto agree = [&] {
    return allgather(device, team, at, whole ? whole : team->peer->exchanges, piece, w, device->nonfinite,
                     reached);
  };
  if (!beside) return agree();
  MN_TRY(mn_cuda_beside(device, MN_BRANCH_SUMS, agree));
  device->cuda->agreement = &at->agreement;
  return MN_OK;
}

/* whole: from this rank's piece of it on. */
static mn_status reduce_scatter(struct mn_device *device, const struct mn_team *team, const void *whole,
                                void *piece, const words &w, int threads, int most) {
  const auto kernel =
      device->real == sizeof(double) ? reduce_scatter_kernel<double> : reduce_scatter_kernel<float>;
  kernel<<<ctas_of(w, threads, most), threads, 0, device->cuda->stream>>>(
      barrier_of(team, team->peer->exchanges),
      team_at(find(team, whole), team, static_cast<uint4 *>(const_cast<void *>(whole))),
      static_cast<uint4 *>(piece), w, team->rank, team->size);
  return mn_cuda_launched("reduce_scatter");
}

mn_status mn_peer_reduce_scatter(struct mn_device *device, const struct mn_team *team, const void *whole,
                                 void *piece, int64_t rows, int64_t cols) {
  const words w = words_of(team, rows, cols, device->real);
  return reduce_scatter(device, team, static_cast<const uint4 *>(whole) + team->rank * w.share, piece, w,
                        THREADS, CTAS);
}

mn_status mn_peer_reduce_scatter_rows(struct mn_device *device, const struct mn_team *team, void *matrix,
                                      int64_t rows, int64_t cols, int64_t pitch) {
  const unsigned own_rows = (unsigned)(rows / team->size), reals = (unsigned)(16 / device->real);
  const unsigned share = (unsigned)cols / reals, apart = (unsigned)pitch / reals;
  const words w = {own_rows * share, share, apart, apart};
  uint4 *own = static_cast<uint4 *>(matrix) + (size_t)own_rows * team->rank * apart;
  return reduce_scatter(device, team, own, own, w, BESIDE_THREADS, BESIDE_CTAS);
}

/* In the receiver's staging memory a term has the columns that are its sender's. */
mn_status mn_peer_send(struct mn_device *device, const struct mn_team *team, void *staging, const void *whole,
                       int64_t rows, int64_t cols, int to) {
  const size_t pitch = cols * device->real, share = pitch / team->size;
  const of_team<char> theirs = team_at(find(team, staging), team, static_cast<char *>(staging));
  MN_CUDA_RETURN(cudaMemcpy2DAsync(theirs.at[to] + team->rank * share, pitch,
                                   static_cast<const char *>(whole) + to * share, pitch, share, rows,
                                   cudaMemcpyDeviceToDevice, device->cuda->stream));
}

static mn_status meet(struct mn_device *device, const struct mn_team *team, arrivals *at) {
  meet_kernel<<<1, 32, 0, device->cuda->stream>>>(barrier_of(team, at), team->rank, team->size);
  return mn_cuda_launched("meet");
}

mn_status mn_peer_meet(struct mn_device *device, const struct mn_team *team) {
  return meet(device, team, team->peer->pushes);
}

/* To the shard first that is the next to read it. */
mn_status mn_peer_push(struct mn_device *device, const struct mn_team *team, const struct mn_operand *whole) {
  const struct mn_arrival *a = whole->arrival;
  const size_t pitch = whole->cols * device->plane, share = pitch / team->size;
  char *plane = static_cast<char *>(whole->planes[0]);
  const mn_peer_memory *of_plane = find(team, plane), *of_flags = find(team, a->arrived);
  MN_REQUIRE(of_plane && of_flags);
  const of_team<char> wholes = team_at(of_plane, team, plane);
  const of_team<unsigned> flags = team_at(of_flags, team, a->arrived);
  return mn_cuda_beside(device, MN_BRANCH_SHARDS, [&] {
    const cudaStream_t stream = device->cuda->stream;
    MN_TRY(meet(device, team, team->peer->pushes)); /* the others have read what was there before */
    for (int k = team->size - 1; k > 0; k--) {
      const int to = (team->rank + k) % team->size;
      MN_CUDA_TRY(cudaMemcpy2DAsync(wholes.at[to] + team->rank * share, pitch, a->own, share, share,
                                    whole->rows, cudaMemcpyDeviceToDevice, stream));
      MN_CUDA_TRY(cudaMemcpyAsync(flags.at[to] + team->rank, &team->peer->pushes->one, sizeof(unsigned),
                                  cudaMemcpyDeviceToDevice, stream));
    }
    return MN_OK;
  });
}

static __global__ void await_kernel(const unsigned *arrived, int own) {
  const int q = threadIdx.x;
  while (q != own && !mn_peer_has_arrived(arrived + q)) continue;
}

mn_status mn_peer_arrived(struct mn_device *device, struct mn_arrival *a) {
  a->pending = 0;
  MN_TRY(mn_branch_fork_cuda(device, MN_BRANCH_SHARDS));
  MN_CUDA_RETURN(cudaMemsetAsync(a->arrived, 0, a->shards * sizeof *a->arrived,
                                 device->cuda->branches[MN_BRANCH_SHARDS]));
}

mn_status mn_peer_complete(struct mn_device *device, const struct mn_operand *whole) {
  struct mn_arrival *a = whole->arrival;
  const size_t pitch = whole->cols * device->plane, share = pitch / a->shards;
  MN_CUDA_TRY(cudaMemcpy2DAsync(static_cast<char *>(whole->planes[0]) + a->shard * share, pitch, a->own,
                                share, share, whole->rows, cudaMemcpyDeviceToDevice, device->cuda->stream));
  a->own = nullptr;
  if (!a->pending) return MN_OK;
  await_kernel<<<1, a->shards, 0, device->cuda->stream>>>(a->arrived, a->shard);
  MN_TRY(mn_cuda_launched("await"));
  return mn_peer_arrived(device, a);
}

mn_status mn_peer_copy(struct mn_device *device, const struct mn_team *team, const void *share, size_t bytes,
                       bool waits, bool last) {
  const char *mine = static_cast<const char *>(share);
  const of_team<const char> all = team_at(find(team, share), team, mine);
  if (waits) MN_TRY(meet(device, team, team->peer->exchanges));
  for (int k = 1; k < team->size; k++)
    MN_CUDA_TRY(cudaMemcpyAsync(const_cast<char *>(all.at[(team->rank + k) % team->size]), mine, bytes,
                                cudaMemcpyDeviceToDevice, device->cuda->stream));
  return last ? meet(device, team, team->peer->exchanges) : MN_OK;
}

/* all[team] becomes every rank's `mine`, by NCCL, which is there before anything is mapped. */
template <typename T>
static mn_status collect(struct mn_device *device, const struct mn_team *team, T (&all)[PEERS],
                         const T &mine) {
  const struct mn_ranks *r = device->ranks;
  MN_TRY(mn_copy(device, r->staging[0], &mine, sizeof mine));
  MN_TRY(mn_nccl_allgather(device, team, r->staging[1], r->staging[0], sizeof mine));
  return mn_download(device, all, r->staging[1], team->size * sizeof mine);
}

static void unmap(const struct mn_team *team, mn_peer_memory *m) {
  for (int q = 0; q < team->size; q++)
    if (q != team->rank && m->of[q]) (void)cudaIpcCloseMemHandle(m->of[q]);
  (void)cudaGetLastError(); /* an error of a peer that has left */
  delete m;
}

/* A rank's memory for the others, who map it if it is of another GPU of the same host. */
struct offer {
  cudaIpcMemHandle_t handle;
  char host[40], gpu[16]; /* Linux's boot_id, which containers of one host have in common; the PCI bus id */
  bool made;
};

static void make(offer *o, const struct mn_device *device, void *memory) {
  const char *disabled = getenv("NCCL_P2P_DISABLE");
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  o->made = file && fgets(o->host, sizeof o->host, file) && (!disabled || atoi(disabled) == 0) &&
            cudaDeviceGetPCIBusId(o->gpu, sizeof o->gpu, device->ordinal) == cudaSuccess &&
            cudaIpcGetMemHandle(&o->handle, memory) == cudaSuccess;
  if (file) (void)fclose(file);
}

/* Maps the whole team's `memory`, an allocation of its own; *out is NULL if any rank cannot. */
static mn_status share(struct mn_device *device, const struct mn_team *team, mn_peer_memory **out,
                       void *memory, size_t bytes) {
  offer mine = {}, all[PEERS];
  *out = nullptr;
  mn_peer_memory *m = new (std::nothrow) mn_peer_memory{};
  if (!m) return mn_fail(MN_NO_MEMORY, "no memory for the addresses of the other GPUs");
  make(&mine, device, memory);
  mn_status status = collect(device, team, all, mine);
  int mapped = 1, all_mapped[PEERS];
  m->bytes = bytes;
  m->of[team->rank] = memory;
  for (int q = 0; q < team->size && status == MN_OK; q++)
    if (q != team->rank)
      mapped &= all[q].made && mine.made && strcmp(all[q].host, mine.host) == 0 &&
                strcmp(all[q].gpu, mine.gpu) != 0 &&
                cudaIpcOpenMemHandle(&m->of[q], all[q].handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
  (void)cudaGetLastError(); /* NCCL can do without */
  if (status == MN_OK) status = collect(device, team, all_mapped, mapped);
  for (int q = 0; q < team->size && status == MN_OK; q++) mapped &= all_mapped[q];
  if (status != MN_OK || !mapped) {
    unmap(team, m);
    return status;
  }
  m->next = team->peer->memories;
  *out = team->peer->memories = m;
  return MN_OK;
}

/* The driver exports a whole block of memory, of which a smaller allocation would be a part. */
static mn_status allocate_blocks(struct mn_device *device, void **out, size_t bytes) {
  constexpr size_t BLOCK = size_t(2) << 20;
  return mn_allocate_cuda(device, out, (bytes + BLOCK - 1) / BLOCK * BLOCK);
}

mn_status mn_allocate_shared_cuda(struct mn_device *device, const struct mn_team *team, void **out,
                                  size_t bytes) {
  mn_peer_memory *m;
  if (!team->peer) return mn_allocate_cuda(device, out, bytes);
  MN_TRY(allocate_blocks(device, out, bytes));
  return share(device, team, &m, *out, bytes);
}

void mn_peer_release(const struct mn_team *team, const void *memory) {
  mn_peer_memory *m = find(team, memory);
  if (!m) return;
  mn_peer_memory **from = &team->peer->memories;
  while (*from != m) from = &(*from)->next;
  *from = m->next;
  unmap(team, m);
}

mn_status mn_peer_open(struct mn_device *device, struct mn_team *team) {
  if (team->size < 2 || team->size > PEERS) return MN_OK;
  mn_peer *peer = team->peer = new (std::nothrow) mn_peer{};
  if (!peer) return mn_fail(MN_NO_MEMORY, "no memory for the addresses of the other GPUs");
  void *memory;
  MN_TRY(allocate_blocks(device, &memory, 3 * sizeof(arrivals)));
  peer->exchanges = static_cast<arrivals *>(memory);
  peer->agreements = peer->exchanges + 1, peer->pushes = peer->exchanges + 2;
  const unsigned one = 1;
  MN_TRY(mn_zero_cuda(device, memory, 3 * sizeof(arrivals)));
  MN_TRY(mn_copy_cuda(device, &peer->pushes->one, &one, sizeof one));
  /* Its exchanges come after the zeroing, on every rank. */
  MN_TRY(share(device, team, &peer->barriers, memory, 3 * sizeof(arrivals)));
  if (!peer->barriers) mn_peer_close(team);
  return MN_OK;
}

void mn_peer_close(struct mn_team *team) {
  if (!team->peer) return;
  for (mn_peer_memory *m = team->peer->memories, *next; m; m = next) {
    next = m->next;
    unmap(team, m);
  }
  (void)cudaFree(team->peer->exchanges);
  delete team->peer;
  team->peer = nullptr;
}
