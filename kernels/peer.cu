/* Collectives by stores to peers' memory. Contract: kernels/peer.h. */
#include "kernels/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "kernels/cuda.cuh"
#include "kernels/nccl.h"

constexpr int PEERS = 8, CTAS = 128, THREADS = 256, UNROLL = 4;

/* One in every GPU's memory, written by all parts' GPUs. */
struct arrivals {
  unsigned of[CTAS][PEERS]; /* how many times each part's CTA of this number has arrived, */
  unsigned own[CTAS];       /* and this GPU's; never reset, so that a captured kernel can count on */
  int raised[PEERS];        /* the parts' nonfinite flags */
};

struct mn_peer_memory {
  mn_peer_memory *next;
  void *of[PEERS]; /* by part: as mapped here, or the memory itself */
};

struct mn_peer {
  mn_peer_memory *memories;
  mn_peer_memory *arrivals;
  void *arrivals_memory;
};

/* A kernel's parameters: the parts' memory of one kind. */
template <typename T> struct of_parts {
  T *at[PEERS];
  explicit of_parts(const mn_peer_memory *m) {
    for (int q = 0; q < PEERS; q++) at[q] = static_cast<T *>(m->of[q]);
  }
};
typedef of_parts<arrivals> barrier;

/* What this CTA wrote before, its counterparts on all parts see after; and what they read before is read. A
 * part's kernel as a whole ends after all CTAs of all parts have arrived for the last time. */
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

/* A matrix of 16-byte words, and this part's columns of it. */
struct words {
  unsigned count; /* of a piece */
  unsigned share, cols;

  __device__ __forceinline__ unsigned of_whole(unsigned i, int part) const {
    return i / share * cols + part * share + i % share;
  }
};

/* Calls work(i) for this thread's words of a piece: the same words on every part for the same CTA, so that a
 * CTA has to wait for its counterparts alone. */
template <typename Work> static __device__ __forceinline__ void for_own_words(unsigned count, Work work) {
  for (unsigned i = blockIdx.x * THREADS * UNROLL + threadIdx.x; i < count; i += gridDim.x * THREADS * UNROLL)
    work(i);
}

/* flag NULL: the parts do not agree on it. */
static __global__ void __launch_bounds__(THREADS)
    all_gather_kernel(const barrier b, const of_parts<uint4> whole, const uint4 *piece, const words w,
                      int rank, int size, int *flag) {
  const unsigned arrived = b.at[rank]->own[blockIdx.x];
  const bool agrees = flag && blockIdx.x == 0;
  arrive(b, rank, size, arrived + 1); /* the others have read what the whole held before */
  for_own_words(w.count, [&](unsigned first) {
    uint4 values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (first + u * THREADS < w.count) values[u] = piece[first + u * THREADS];
    for (int q = 0; q < size; q++) {
      uint4 *to = whole.at[(rank + q) % size];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < w.count) to[w.of_whole(first + u * THREADS, rank)] = values[u];
    }
  });
  if (agrees && threadIdx.x < size) b.at[threadIdx.x]->raised[rank] = *flag;
  arrive(b, rank, size, arrived + 2);
  if (threadIdx.x > 0) return;
  b.at[rank]->own[blockIdx.x] = arrived + 2;
  for (int q = 0; agrees && q < size; q++) {
    const int raised = __ldcg(&b.at[rank]->raised[q]);
    if (raised > *flag) *flag = raised;
  }
}

/* piece = the sum of all parts' `whole` at this part's columns, in the order of parts; the others' pieces
 * come to the room, each to its part's place. */
template <typename Real>
static __global__ void __launch_bounds__(THREADS)
    reduce_scatter_kernel(const barrier b, const of_parts<uint4> room, uint4 *piece, const uint4 *whole,
                          const words w, int rank, int size) {
  constexpr int WIDTH = 16 / sizeof(Real);
  const unsigned arrived = b.at[rank]->own[blockIdx.x];
  arrive(b, rank, size, arrived + 1); /* the others have read what the room held before */
  for_own_words(w.count, [&](unsigned first) {
    for (int k = 1; k < size; k++) {
      const int q = (rank + k) % size;
      uint4 values[UNROLL], *to = room.at[q] + (size_t)rank * w.count;
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < w.count) values[u] = whole[w.of_whole(first + u * THREADS, q)];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < w.count) to[first + u * THREADS] = values[u];
    }
  });
  arrive(b, rank, size, arrived + 2);
  for_own_words(w.count, [&](unsigned first) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const unsigned i = first + u * THREADS;
      if (i >= w.count) break;
      Real sum[WIDTH], other[WIDTH];
      for (int q = 0; q < size; q++) {
        const uint4 word =
            q == rank ? whole[w.of_whole(i, rank)] : __ldcg(room.at[rank] + (size_t)q * w.count + i);
        memcpy(q ? other : sum, &word, sizeof word);
        for (int k = 0; q > 0 && k < WIDTH; k++) sum[k] += other[k];
      }
      memcpy(piece + i, sum, sizeof sum);
    }
  });
  if (threadIdx.x == 0) b.at[rank]->own[blockIdx.x] = arrived + 2;
}

static mn_peer_memory *find(const struct mn_ranks *ranks, const void *memory) {
  mn_peer_memory *m = ranks && ranks->peer ? ranks->peer->memories : nullptr;
  while (m && m->of[ranks->parts.rank] != memory) m = m->next;
  return m;
}

const struct mn_peer_memory *mn_peer_reach(const struct mn_device *device, const void *memory,
                                           const void *piece, int64_t rows, int64_t cols, size_t each) {
  const struct mn_ranks *r = device->ranks;
  if (cols * each % (16 * (size_t)r->parts.size) != 0 || !mn_aligned(16, piece)) return nullptr;
  return rows * cols * (int64_t)each / 16 <= UINT32_MAX ? find(r, memory) : nullptr;
}

static words words_of(const struct mn_ranks *ranks, int64_t rows, int64_t cols, size_t each) {
  const unsigned all = (unsigned)(cols * each / 16), share = all / ranks->parts.size;
  return {(unsigned)(rows * share), std::max(share, 1u), all};
}

/* All CTAs of a launch must run at the same time, and do: they are few. */
static unsigned ctas_of(const words &w) {
  return std::max(std::min((w.count + THREADS * UNROLL - 1) / (THREADS * UNROLL), (unsigned)CTAS), 1u);
}

mn_status mn_peer_all_gather(struct mn_device *device, const struct mn_peer_memory *whole, const void *piece,
                             int64_t rows, int64_t cols, size_t each, bool agrees) {
  const struct mn_ranks *r = device->ranks;
  const words w = words_of(r, rows, cols, each);
  all_gather_kernel<<<ctas_of(w), THREADS, 0, device->cuda->stream>>>(
      barrier(r->peer->arrivals), of_parts<uint4>(whole), static_cast<const uint4 *>(piece), w, r->parts.rank,
      r->parts.size, agrees ? device->nonfinite : nullptr);
  return mn_cuda_launched("all_gather");
}

mn_status mn_peer_agree(struct mn_device *device) {
  return mn_peer_all_gather(device, device->ranks->peer->arrivals, nullptr, 0, 0, 1, true);
}

mn_status mn_peer_reduce_scatter(struct mn_device *device, const struct mn_peer_memory *room, void *piece,
                                 const void *whole, int64_t rows, int64_t cols) {
  const struct mn_ranks *r = device->ranks;
  const words w = words_of(r, rows, cols, device->real);
  const auto kernel =
      device->real == sizeof(double) ? reduce_scatter_kernel<double> : reduce_scatter_kernel<float>;
  kernel<<<ctas_of(w), THREADS, 0, device->cuda->stream>>>(
      barrier(r->peer->arrivals), of_parts<uint4>(room), static_cast<uint4 *>(piece),
      static_cast<const uint4 *>(whole), w, r->parts.rank, r->parts.size);
  return mn_cuda_launched("reduce_scatter");
}

/* all[parts] becomes every part's `mine`, by NCCL, which is there before anything is mapped. */
template <typename T> static mn_status collect(struct mn_device *device, T (&all)[PEERS], const T &mine) {
  const struct mn_ranks *r = device->ranks;
  MN_TRY(device->kernels->upload(device, r->room[0], &mine, sizeof mine));
  MN_TRY(mn_nccl_all_gather(&r->parts, r->room[1], r->room[0], sizeof mine, device->cuda->stream));
  return device->kernels->download(device, all, r->room[1], r->parts.size * sizeof mine);
}

static void unmap(const struct mn_ranks *ranks, mn_peer_memory *m) {
  for (int q = 0; q < ranks->parts.size; q++)
    if (q != ranks->parts.rank && m->of[q]) (void)cudaIpcCloseMemHandle(m->of[q]);
  (void)cudaGetLastError(); /* of a peer that has left */
  delete m;
}

/* Maps all parts' `memory`, an allocation of its own; *out is NULL where any part cannot. */
static mn_status share(struct mn_device *device, mn_peer_memory **out, void *memory) {
  struct offer {
    cudaIpcMemHandle_t handle;
    int made;
  } mine = {}, all[PEERS];
  const struct mn_ranks *r = device->ranks;
  *out = nullptr;
  mn_peer_memory *m = new (std::nothrow) mn_peer_memory{};
  if (!m) return mn_fail(MN_NO_MEMORY, "no memory for the addresses of the other GPUs");
  mine.made = cudaIpcGetMemHandle(&mine.handle, memory) == cudaSuccess;
  mn_status status = collect(device, all, mine);
  int mapped = 1, all_mapped[PEERS];
  m->of[r->parts.rank] = memory;
  for (int q = 0; q < r->parts.size && status == MN_OK; q++)
    if (q != r->parts.rank)
      mapped &= all[q].made &&
                cudaIpcOpenMemHandle(&m->of[q], all[q].handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
  (void)cudaGetLastError(); /* NCCL can do without */
  if (status == MN_OK) status = collect(device, all_mapped, mapped);
  for (int q = 0; q < r->parts.size && status == MN_OK; q++) mapped &= all_mapped[q];
  if (status != MN_OK || !mapped) {
    unmap(r, m);
    return status;
  }
  m->next = r->peer->memories;
  *out = r->peer->memories = m;
  return MN_OK;
}

mn_status mn_allocate_shared_cuda(struct mn_device *device, void **out, size_t bytes) {
  /* The driver exports a whole block of memory, of which a smaller allocation would be a part. */
  constexpr size_t BLOCK = size_t(2) << 20;
  mn_peer_memory *m;
  if (!device->ranks || !device->ranks->peer) return mn_allocate_cuda(device, out, bytes);
  MN_TRY(mn_allocate_cuda(device, out, (bytes + BLOCK - 1) / BLOCK * BLOCK));
  return share(device, &m, *out);
}

void mn_peer_release(struct mn_ranks *ranks, const void *memory) {
  mn_peer_memory *m = find(ranks, memory);
  if (!m) return;
  mn_peer_memory **from = &ranks->peer->memories;
  while (*from != m) from = &(*from)->next;
  *from = m->next;
  unmap(ranks, m);
}

/* Where a GPU is, and whether its rank would share its memory. */
struct place {
  char host[40]; /* Linux's boot_id, which containers of one host have in common */
  cudaUUID_t gpu;
  int shares;
};

static mn_status place_of(struct place *p) {
  const char *disabled = getenv("NCCL_P2P_DISABLE");
  cudaDeviceProp properties;
  int ordinal;
  memset(p, 0, sizeof *p);
  MN_CUDA_TRY(cudaGetDevice(&ordinal));
  MN_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
  p->gpu = properties.uuid;
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  p->shares = file && fgets(p->host, sizeof p->host, file) && (!disabled || atoi(disabled) == 0);
  if (file) (void)fclose(file);
  return MN_OK;
}

static mn_status may_share(struct mn_device *device, bool *out) {
  const int size = device->ranks->parts.size;
  place mine, all[PEERS];
  *out = false;
  if (size < 2 || size > PEERS) return MN_OK;
  MN_TRY(place_of(&mine));
  MN_TRY(collect(device, all, mine));
  *out = true;
  for (int q = 0; q < size; q++) {
    *out &= all[q].shares && strcmp(all[q].host, all[0].host) == 0;
    for (int p = 0; p < q; p++) *out &= memcmp(&all[p].gpu, &all[q].gpu, sizeof all[p].gpu) != 0;
  }
  return MN_OK;
}

mn_status mn_peer_open(struct mn_device *device) {
  struct mn_ranks *r = device->ranks;
  bool may;
  mn_peer_memory *room = nullptr;
  MN_TRY(may_share(device, &may));
  if (!may) return MN_OK;
  mn_peer *peer = r->peer = new (std::nothrow) mn_peer{};
  if (!peer) return mn_fail(MN_NO_MEMORY, "no memory for the addresses of the other GPUs");
  MN_TRY(mn_allocate_shared_cuda(device, &peer->arrivals_memory, sizeof(arrivals)));
  MN_TRY(mn_zero_cuda(device, peer->arrivals_memory, sizeof(arrivals)));
  peer->arrivals = find(r, peer->arrivals_memory);
  /* Its exchanges come after the zeroing, on every part. */
  if (peer->arrivals) MN_TRY(share(device, &room, r->room[1]));
  if (!room) mn_peer_close(device);
  return MN_OK;
}

void mn_peer_close(struct mn_device *device) {
  struct mn_ranks *r = device->ranks;
  if (!r->peer) return;
  for (mn_peer_memory *m = r->peer->memories, *next; m; m = next) {
    next = m->next;
    unmap(r, m);
  }
  (void)cudaFree(r->peer->arrivals_memory);
  delete r->peer;
  r->peer = nullptr;
}
