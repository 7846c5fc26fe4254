/* Uniform numbers on CUDA: cuRAND's Philox4x32-10, four words a thread. Formula, shared with the CPU to the
 * last bit: kernels/random.h. */
#include <curand_philox4x32_x.h>

#include "kernels/cuda.cuh"

/* A thread writes the words of one quad that are inside, out[4·quad − first …). */
template <typename Real>
MN_CUDA_KERNEL uniform_kernel(Real *out, int64_t count, uint64_t seed, uint32_t sequence, uint64_t first,
                              Real bound) {
  uint64_t quad = first / 4 + (uint64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x;
  uint4 counter = make_uint4((unsigned)quad, (unsigned)(quad >> 32), sequence, 0);
  const uint4 four = curand_Philox4x32_10(counter, make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
  const unsigned words[4] = {four.x, four.y, four.z, four.w};
  int64_t at = (int64_t)(quad * 4 - first); /* down to −3 in the first quad */
  MN_UNROLL(int i = 0; i < 4; i++) {
    const Real t = (Real)(words[i] >> 8) * (Real)0x1p-23 - 1; /* exact: 24 bits */
    if (at + i >= 0 && at + i < count) out[at + i] = bound * t;
  }
}

template <typename Real>
mn_status mn_uniform_cuda<Real>::run(struct mn_device *device, void *out, int64_t count, uint64_t seed,
                                     uint32_t sequence, uint64_t first, double bound) {
  const int64_t quads = (int64_t)((first + (uint64_t)count + 3) / 4 - first / 4);
  return mn_cuda_launch("uniform", device, quads, MN_CUDA_THREADS, uniform_kernel<Real>,
                        static_cast<Real *>(out), count, seed, sequence, first, (Real)bound);
}
MN_CUDA_INSTANTIATE(uniform);
