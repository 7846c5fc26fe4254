/* The instructions of Hopper's asynchronous units, one function each: barriers in shared memory, the tensor
 * memory accelerator (TMA), the warpgroup's matrix multiply (wgmma). PTX ISA 8.0 names and describes them;
 * nothing here knows what they are used for. Compiled for sm_90a alone. */
#ifndef MN_KERNELS_HOPPER_PTX_CUH
#define MN_KERNELS_HOPPER_PTX_CUH

#include <cuda.h>
#include <stdint.h>

/* Barriers (mbarrier) are named by their address in shared memory. */

__device__ __forceinline__ uint32_t mn_shared(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mn_barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Barriers just initialised become visible to the cluster and to the copy engine. */
__device__ __forceinline__ void mn_barrier_publish() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and announces so many bytes of copies that belong to this phase. */
__device__ __forceinline__ void mn_barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void mn_barrier_signal(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the barrier of the same address in block `rank` of the cluster. */
__device__ __forceinline__ void mn_barrier_arrive(uint32_t barrier, uint32_t rank) {
  asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
               "r"(rank)
               : "memory");
}

/* Waits for the end of the phase of this parity; the phase before the first has parity 1. */
__device__ __forceinline__ void mn_barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

__device__ __forceinline__ uint32_t mn_cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/* This cluster among all, and how many there are. */
__device__ __forceinline__ int mn_cluster() {
  uint32_t cluster;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
  return (int)cluster;
}
__device__ __forceinline__ int mn_clusters() {
  uint32_t clusters;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
  return (int)clusters;
}

/* All threads of the cluster's blocks. */
__device__ __forceinline__ void mn_cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* `count` threads, whole warps, of one block meet at one of its 16 barriers; 0 is __syncthreads'. */
__device__ __forceinline__ void mn_named_sync(int which, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(count) : "memory");
}

/* What is loaded with this policy leaves the L2 cache after everything else. */
__device__ __forceinline__ uint64_t mn_l2_keep() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* The box of `map` at (x, y), x along memory, to the same place in the shared memory of every block of the
 * cluster that `mask` names, each one's own barrier told; what lies outside of the tensor reads as 0. */
__device__ __forceinline__ void mn_tma_load(uint32_t to, const CUtensorMap *map, uint32_t barrier, int x,
                                            int y, uint16_t mask, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5}], [%2], %3, %6;" ::"r"(to),
               "l"(map), "r"(barrier), "h"(mask), "r"(x), "r"(y), "l"(policy)
               : "memory");
}

__device__ __forceinline__ void mn_tma_fetch_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Brings `bytes` (a multiple of 16, as is p) of global memory into the L2 cache. */
__device__ __forceinline__ void mn_prefetch(const void *p, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}

/* How many registers each thread of this warpgroup has from here on; 0: as many as before. */
template <int Count> __device__ __forceinline__ void mn_registers_down() {
  if constexpr (Count > 0) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count> __device__ __forceinline__ void mn_registers_up() {
  if constexpr (Count > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/* wgmma's description of an operand in shared memory, in rows of 128 bytes under the 128-byte swizzle, eight
 * of them 1024 bytes. Depth along the rows: 64 of it a row, `leading` is not read. Depth down the rows: 64
 * rows or columns of the operand in each, the next 64 `leading` bytes on. */
__device__ __forceinline__ uint64_t mn_wgmma_operand(uint32_t address, int leading) {
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

__device__ __forceinline__ void mn_wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mn_wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most `Left` committed groups are still running. */
template <int Left> __device__ __forceinline__ void mn_wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

/* The accumulators are what the asynchronous multiply reads and writes behind the compiler's back: this is
 * where it learns of it. */
template <int Count> __device__ __forceinline__ void mn_wgmma_hold(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* d += a·b for 64 rows, 256, 128 or 64 columns, 16 of the depth; Trans: the operand's depth runs down the
 * rows. Of d a thread holds, for each 8 columns, two neighbours of one row and the same two of the row 8
 * below. */
#define MN_ACC8(d, i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),                \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define MN_ACC32(d, i) MN_ACC8(d, i), MN_ACC8(d, i + 8), MN_ACC8(d, i + 16), MN_ACC8(d, i + 24)

template <int TransA, int TransB>
__device__ __forceinline__ void mn_wgmma(float (&d)[128], uint64_t a, uint64_t b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
               "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
               "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "
               "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "
               "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
               "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "
               "%123, %124, %125, %126, %127}, "
               "%128, %129, p, 1, 1, %131, %132;\n}\n"
               : MN_ACC32(d, 0), MN_ACC32(d, 32), MN_ACC32(d, 64), MN_ACC32(d, 96)
               : "l"(a), "l"(b), "r"(1), "n"(TransA), "n"(TransB));
}

template <int TransA, int TransB>
__device__ __forceinline__ void mn_wgmma(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
               "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
               "%56, %57, %58, %59, %60, %61, %62, %63}, "
               "%64, %65, p, 1, 1, %67, %68;\n}\n"
               : MN_ACC32(d, 0), MN_ACC32(d, 32)
               : "l"(a), "l"(b), "r"(1), "n"(TransA), "n"(TransB));
}

template <int TransA, int TransB>
__device__ __forceinline__ void mn_wgmma(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
               "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "%32, %33, p, 1, 1, %35, %36;\n}\n"
               : MN_ACC32(d, 0)
               : "l"(a), "l"(b), "r"(1), "n"(TransA), "n"(TransB));
}

#endif
