/* The matrix instructions of one warp, on compute capability 8.0 and newer: products of 16-bit fragments,
 * which ldmatrix loads from shared memory. A fragment's 8 × 8 matrix lies as 8 rows of 16 bytes; lane l
 * gives the address of row l % 8 of matrix l / 8. */
#ifndef MN_KERNELS_STACK_WARP_CUH
#define MN_KERNELS_STACK_WARP_CUH

#include "kernels/cuda.cuh"

MN_GPU uint32_t mn_shared_load(uint32_t from) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
MN_GPU void mn_shared_store(uint32_t to, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

/* Four matrices: lane l gets elements 2(l % 4) and 2(l % 4) + 1 of row l / 4 of each. */
MN_GPU void mn_matrices_load(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
/* The same of the transposed matrices. */
MN_GPU void mn_matrices_load_transposed(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

/* Transposes a matrix that the lanes hold as mn_matrices_load gives it. */
MN_GPU uint32_t mn_matrix_transpose(uint32_t r) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(r));
  return transposed;
}

/* Stores what mn_matrices_load_transposed would load, of 4 or 2 matrices. Hopper has an instruction for
 * it; before, each matrix is transposed in registers, and the rows' addresses come from the lanes that
 * gave them. */
template <int Count> MN_GPU void mn_matrices_store_transposed(uint32_t row, const uint32_t (&r)[Count]) {
  static_assert(Count == 4 || Count == 2, "");
#if __CUDA_ARCH__ >= 900
  if constexpr (Count == 4)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
#else
  const unsigned lane = threadIdx.x % 32;
  MN_UNROLL(int m = 0; m < Count; m++) {
    const uint32_t to = __shfl_sync(MN_CUDA_WARP, row, 8 * m + lane / 4) + lane % 4 * 4;
    mn_shared_store(to, mn_matrix_transpose(r[m]));
  }
#endif
}

/* d[16, 8] = a[16, 16]·b[16, 8] + c. Lane l holds d's and c's elements (l / 4, 2(l % 4) + {0, 1}), then the
 * same of row l / 4 + 8. */
template <enum mn_plane_kind Kind>
MN_GPU void mn_matrices_multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                 const float (&c)[4]) {
#define MN_MMA(type)                                                                                         \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                        \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                    \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),         \
                 "f"(c[2]), "f"(c[3]))
  if constexpr (Kind == MN_PLANES_BF16)
    MN_MMA("bf16");
  else
    MN_MMA("f16");
#undef MN_MMA
}

/* Two floats rounded to a plane's elements, the first in the lower half. */
template <enum mn_plane_kind Kind> MN_GPU uint32_t mn_plane_pair(float first, float second) {
  uint32_t pair;
  if constexpr (Kind == MN_PLANES_BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/* Copies 16 bytes to shared memory while the thread goes on, or writes zeros; until mn_copies_wait. */
MN_GPU void mn_copy_start(uint32_t to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
MN_GPU void mn_copies_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Calls for 128 bytes to come to the L2 cache. */
MN_GPU void mn_prefetch(const void *p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* slope·g where v is not positive, in one statement: the compiler would keep many conditions in registers. */
MN_GPU float mn_leaky_gradient(float g, float v, float slope) {
  asm("{.reg .pred up;\n setp.gt.f32 up, %1, 0f00000000;\n @!up mul.f32 %0, %0, %2;}"
      : "+f"(g)
      : "f"(v), "f"(slope));
  return g;
}

MN_GPU float mn_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif
