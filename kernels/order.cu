/* Numbering rows on CUDA, a thread for each sample. */
#include "kernels/planes.cuh"

MN_CUDA_KERNEL number_kernel(const __grid_constant__ mn_samples s, unsigned begin, unsigned end,
                             int64_t *rows) {
  const unsigned i = begin + blockIdx.x * MN_CUDA_THREADS + threadIdx.x, each = (unsigned)s.each;
  if (i >= end) return;
  const unsigned batch = i / each, within = i % each;
  const int64_t own = within - s.first, row = mn_samples_row(&s, i);
  rows += batch * s.spacing;
  if (own >= 0 && own < s.share) rows[own] = row;
  for (int64_t gap = s.share + within; gap < s.spacing; gap += each) rows[gap] = -1;
  if (!s.scales) return;
  const unsigned same = __match_any_sync(__activemask(), batch);
  const unsigned largest = __reduce_max_sync(same, __float_as_uint(s.largest[row]));
  if (threadIdx.x % 32 == __ffs(same) - 1)
    atomicMax(reinterpret_cast<unsigned *>(&s.scales[batch].largest), largest);
}

mn_status mn_number_cuda(struct mn_device *device, const struct mn_samples *samples, int64_t begin,
                         int64_t end, int64_t *rows) {
  MN_REQUIRE(end <= INT32_MAX);
  return mn_cuda_launch("number", device, end - begin, MN_CUDA_THREADS, number_kernel, *samples,
                        (unsigned)begin, (unsigned)end, rows);
}
