/* Uniform numbers on CUDA: cuRAND's Philox4x32-10, four words a thread. Formula, shared with the CPU to the
 * last bit: kernels/random.h. */
#include <curand_philox4x32_x.h>

#include "kernels/cuda.cuh"

/* Exact: 24 bits; then one rounding, of bound·t. */
template <typename Real> static __device__ Real uniform_of(unsigned word, Real bound) {
  Real t = (Real)(word >> 8) * (Real)0x1p-23 - 1;
  return bound * t;
}

/* A thread writes the words of one quad that are inside, out[4·quad − first …). */
template <typename Real>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    uniform_kernel(Real *out, int64_t count, uint64_t seed, uint32_t sequence, uint64_t first, Real bound) {
  uint64_t quad = first / 4 + (uint64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x;
  uint4 counter = make_uint4((unsigned)quad, (unsigned)(quad >> 32), sequence, 0);
  uint4 words = curand_Philox4x32_10(counter, make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
  Real values[4] = {uniform_of(words.x, bound), uniform_of(words.y, bound), uniform_of(words.z, bound),
                    uniform_of(words.w, bound)};
  int64_t at = (int64_t)(quad * 4 - first); /* down to −3 in the first quad */
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (at + i >= 0 && at + i < count) out[at + i] = values[i];
}

template <typename Real>
mn_status mn_uniform_cuda<Real>::run(struct mn_device *device, void *out, int64_t count, uint64_t seed,
                                     uint32_t sequence, uint64_t first, double bound) {
  const int64_t quads = (int64_t)((first + (uint64_t)count + 3) / 4 - first / 4);
  return mn_cuda_launch("uniform", device, quads, MN_CUDA_THREADS, uniform_kernel<Real>,
                        static_cast<Real *>(out), count, seed, sequence, first, (Real)bound);
}
MN_CUDA_INSTANTIATE(uniform);
