/* Split weights on CUDA: a thread takes 16 bytes of each half. Contract: kernels/memory.h. */
#include "kernels/planes.cuh"

template <int W>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    split_kernel(uint16_t *high, uint16_t *low, const float *from, int64_t count) {
  const int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W, n = count - at;
  if (n <= 0) return;
  float values[W];
  uint16_t upper[W], lower[W];
  mn_load_some<W>(values, from + at, n);
  mn_split<W>(upper, lower, values);
  mn_store_some<W>(high + at, upper, n);
  mn_store_some<W>(low + at, lower, n);
}

template <int W>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    join_kernel(float *to, const uint16_t *high, const uint16_t *low, int64_t count) {
  const int64_t at = ((int64_t)blockIdx.x * MN_CUDA_THREADS + threadIdx.x) * W, n = count - at;
  if (n <= 0) return;
  float values[W];
  uint16_t upper[W], lower[W];
  mn_load_some<W>(upper, high + at, n);
  mn_load_some<W>(lower, low + at, n);
  mn_join<W>(values, upper, lower);
  mn_store_some<W>(to + at, values, n);
}

constexpr int W = 8;

/* From the element `first` on. */
struct halves {
  uint16_t *high, *low;
};
static struct halves halves_of(const struct mn_operand *w, int64_t first, int64_t count) {
  MN_REQUIRE(w->split && w->low && w->planes[0]);
  MN_REQUIRE(first >= 0 && count > 0 && first + count <= w->rows * w->cols);
  return {static_cast<uint16_t *>(w->planes[0]) + first, w->low + first};
}

mn_status mn_split_cuda(struct mn_device *device, struct mn_operand *w, int64_t first, const float *from,
                        int64_t count) {
  const struct halves to = halves_of(w, first, count);
  const bool wide = mn_aligned(16, from, to.high, to.low);
  return mn_cuda_launch("split", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? split_kernel<W> : split_kernel<1>, to.high, to.low, from, count);
}

mn_status mn_join_cuda(struct mn_device *device, float *to, const struct mn_operand *w, int64_t first,
                       int64_t count) {
  const struct halves from = halves_of(w, first, count);
  const bool wide = mn_aligned(16, to, from.high, from.low);
  return mn_cuda_launch("join", device, count, MN_CUDA_THREADS * (wide ? W : 1),
                        wide ? join_kernel<W> : join_kernel<1>, to, from.high, from.low, count);
}
