/* The PTX instructions of Hopper's asynchronous units, one function each: mbarrier, the tensor memory
 * accelerator (TMA), the warpgroup matrix multiply (wgmma). PTX ISA 8.0 describes them. Compiled for sm_90a
 * only. */
#ifndef MN_KERNELS_HOPPER_PTX_CUH
#define MN_KERNELS_HOPPER_PTX_CUH

#include <cuda.h>

#include "kernels/cuda.cuh"

/* `barrier` is an address of mn_shared_of's. */
MN_GPU void mn_barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Makes initialised mbarriers visible to the cluster and to the TMA. */
MN_GPU void mn_barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and adds `bytes` to the transaction count that completes this phase. */
MN_GPU void mn_barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

MN_GPU void mn_barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the mbarrier of the same address in CTA `rank` of the cluster. */
MN_GPU void mn_barrier_arrive_remote(uint32_t barrier, uint32_t rank) {
  asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
               "r"(rank)
               : "memory");
}

/* Waits until the phase of this parity is complete. The phase before the first has parity 1 and is complete.
 */
MN_GPU void mn_barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred done;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

/* This cluster's index in the grid, and the number of clusters. */
MN_GPU int mn_cluster() {
  return (int)__clusterIdx().x;
}
MN_GPU int mn_clusters() {
  return (int)__clusterGridDimInClusters().x;
}

/* Synchronises all threads of the cluster. */
MN_GPU void mn_cluster_sync() {
  __syncwarp();
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}

/* Makes what this thread has seen in global memory visible to the TMA copies that it starts afterwards. */
MN_GPU void mn_tma_fence() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* The L2 cache policy evict_last: lines loaded with it are evicted after all others. */
MN_GPU uint64_t mn_l2_evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/* Loads the box of `map` at (x, y), x being the contiguous dimension, to the same shared address in every CTA
 * of the cluster whose bit is in `mask`, and completes bytes at the mbarrier of the same address in each.
 * Elements outside the tensor are 0. */
MN_GPU void mn_tma_load(uint32_t to, const CUtensorMap *map, uint32_t barrier, int x, int y, uint16_t mask,
                        uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5}], [%2], %3, %6;" ::"r"(to),
               "l"(map), "r"(barrier), "h"(mask), "r"(x), "r"(y), "l"(policy)
               : "memory");
}

MN_GPU void mn_tma_prefetch_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Prefetches `bytes` of global memory into the L2 cache; p and bytes are multiples of 16. */
MN_GPU void mn_l2_prefetch(const void *p, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}

/* Sets the number of registers of each thread of this warpgroup (setmaxnreg); 0 for no change. */
template <int Count> MN_GPU void mn_registers_down() {
  if constexpr (Count > 0) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count> MN_GPU void mn_registers_up() {
  if constexpr (Count > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/* wgmma's shared memory descriptor of an operand in the 128-byte swizzle: rows of 128 bytes, 8 of which are
 * the stride of 1024 bytes. K-major: a row is 64 elements of the depth, and `leading` is not read. MN-major:
 * a row is 64 rows or columns of the operand, and the next 64 are `leading` bytes further. */
MN_GPU uint64_t mn_wgmma_descriptor(uint32_t address, int leading) {
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

MN_GPU void mn_wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
MN_GPU void mn_wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most `Left` committed groups are in flight. */
template <int Left> MN_GPU void mn_wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

/* Marks the accumulators as changed by the asynchronous wgmmas, so that the compiler moves no read of them
 * above this point. */
template <int Count> MN_GPU void mn_wgmma_define(float (&d)[Count]) {
  MN_UNROLL(int i = 0; i < Count; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* wgmma m64nNk16: d = a·b (+ d, if `add`) for 64 rows, N = 256, 128 or 64 columns and a depth of 16, in
 * float16 or bfloat16. Trans: the operand is MN-major. A thread holds, of each 8 columns of d, two neighbours
 * in one row and the same two in the row 8 below. The operands are d's registers and, behind them, a, b, add
 * and both Trans. */
#define MN_ACC8(d, i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),                \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define MN_ACC32(d, i) MN_ACC8(d, i), MN_ACC8(d, i + 8), MN_ACC8(d, i + 16), MN_ACC8(d, i + 24)
#define MN_ACC64(d) MN_ACC32(d, 0), MN_ACC32(d, 32)
#define MN_ACC128(d) MN_ACC64(d), MN_ACC32(d, 64), MN_ACC32(d, 96)
#define MN_REGISTERS_32                                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "                    \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MN_REGISTERS_64                                                                                      \
  MN_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "  \
                  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MN_REGISTERS_128                                                                                     \
  MN_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "  \
                  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "    \
                  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
                  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MN_WGMMA(type, n, registers, accumulators, a_at, b_at, add_at, trans_a_at, trans_b_at)               \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add_at ", 0;\n"                                          \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" registers "}, "           \
               "%" a_at ", %" b_at ", p, 1, 1, %" trans_a_at ", %" trans_b_at ";\n}\n"                       \
               : accumulators                                                                                \
               : "l"(a), "l"(b), "r"(add), "n"(TransA), "n"(TransB))
#define MN_WGMMA_BY_SIZE(type)                                                                               \
  if constexpr (Count == 128)                                                                                \
    MN_WGMMA(type, "256", MN_REGISTERS_128, MN_ACC128(d), "128", "129", "130", "131", "132");                \
  else if constexpr (Count == 64)                                                                            \
    MN_WGMMA(type, "128", MN_REGISTERS_64, MN_ACC64(d), "64", "65", "66", "67", "68");                       \
  else                                                                                                       \
    MN_WGMMA(type, "64", MN_REGISTERS_32, MN_ACC32(d, 0), "32", "33", "34", "35", "36")

template <bool Fp16, int TransA, int TransB, int Count>
MN_GPU void mn_wgmma(float (&d)[Count], uint64_t a, uint64_t b, int add) {
  static_assert(Count == 128 || Count == 64 || Count == 32);
  if constexpr (Fp16) {
    MN_WGMMA_BY_SIZE("f16");
  } else {
    MN_WGMMA_BY_SIZE("bf16");
  }
}

#endif
