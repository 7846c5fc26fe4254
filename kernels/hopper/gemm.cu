/* The way from a product to the Hopper GEMM for its kind of planes, which is compiled in a file of its own
 * (bf16.cu, fp16.cu, fp16x3.cu). */
#include <cudaTypedefs.h>

#include "kernels/cuda.cuh"
#include "kernels/hopper/product.cuh"

/* By kind of planes. */
static decltype(mn_hopper_plan) *const plans[] = {NULL, mn_hopper<MN_PLANES_BF16>::plan,
                                                  mn_hopper<MN_PLANES_FP16>::plan,
                                                  mn_hopper<MN_PLANES_FP16X2>::plan};
static_assert(MN_PLANES_BF16 == 1 && MN_PLANES_FP16 == 2 && MN_PLANES_FP16X2 == 3);

/* Sizes in multiples of 8 give rows of multiples of 16 bytes in a plane, which the TMA requires, and whole
 * vectors in the epilogue. */
mn_hopper_launcher *mn_hopper_plan(const struct mn_device *device, const struct mn_hopper_product *p,
                                   const struct mn_epilogue *epilogue) {
  if (!device->has_own_gemm ||
      (device->force_cublas && (mn_is_block(epilogue->kind) || p->planes != MN_PLANES_FP16X2)))
    return NULL;
  if (p->cols % 8 || (p->form == MN_TN ? p->rows : p->depth) % 8) return NULL;
  if (!mn_aligned(16, p->a[0], p->a[1], p->b[0], p->b[1])) return NULL;
  if (p->rows > INT32_MAX / 2 || p->cols > INT32_MAX / 2 || p->depth > INT32_MAX / 2) return NULL;
  if ((p->rows + 63) / 64 * ((p->cols + 63) / 64) > INT32_MAX / 4) return NULL; /* the smallest tiles */
  return plans[p->planes](device, p, epilogue);
}

/* With a driver that lacks the function, products take the library path. */
void mn_hopper_open(struct mn_cuda *cuda, const cudaDeviceProp *properties) {
  if (properties->major != 9 || properties->minor != 0) return;
  enum cudaDriverEntryPointQueryResult found;
  void *entry = NULL;
#if CUDART_VERSION >= 12050
  cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
#else
  cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) cuda->encode = entry;
  (void)cudaGetLastError();
}

mn_status mn_hopper_tensor_map(struct mn_device *device, CUtensorMap *out, enum mn_plane_kind kind,
                               const void *plane, bool mn_major, int64_t size, int64_t depth, int64_t pitch,
                               int box) {
  const cuuint64_t sizes[2] = {(cuuint64_t)(mn_major ? size : depth), (cuuint64_t)(mn_major ? depth : size)};
  const cuuint64_t stride[1] = {(pitch > 0 ? (cuuint64_t)pitch : sizes[0]) * 2};
  const cuuint32_t boxes[2] = {64, (cuuint32_t)(mn_major ? MN_K_BLOCK : box)}, steps[2] = {1, 1};
  CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(device->cuda->encode)(
      out, kind == MN_PLANES_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
      const_cast<void *>(plane), sizes, stride, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? MN_OK
                                : mn_fail(MN_LIBRARY, "CUDA: cuTensorMapEncodeTiled: error %d", (int)result);
}
