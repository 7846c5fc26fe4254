/* Collectives on CUDA, by NCCL. Contract: kernels/ranks.h. */
#include <algorithm>

#include "kernels/cuda.cuh"
#include "kernels/nccl.h"

mn_status mn_ranks_begin_cuda(struct mn_device *device, struct mn_ranks_id *id) {
  (void)device;
  return mn_nccl_begin(id);
}

mn_status mn_ranks_join_cuda(struct mn_device *device, struct mn_ranks *ranks, const struct mn_ranks_id *id) {
  device->ranks = ranks;
  for (int i = 0; i < 2; i++) MN_TRY(device->kernels->allocate(device, &ranks->room[i], MN_RANKS_ROOM));
  return mn_nccl_open(ranks, id);
}

void mn_ranks_leave_cuda(struct mn_device *device) {
  struct mn_ranks *ranks = device->ranks;
  (void)cudaStreamSynchronize(device->cuda->stream);
  mn_nccl_close(ranks);
  for (int i = 0; i < 2; i++) {
    if (ranks->room[i]) device->kernels->release(device, ranks->room[i]);
    ranks->room[i] = nullptr;
  }
  device->ranks = nullptr;
}

/* Copies columns between `whole`, rows of `cols`, and the pieces of all ranks one after the other. */
static mn_status divide(struct mn_device *device, const struct mn_ranks_plan &p, char *whole, char *pieces,
                        int64_t rows, int64_t cols, bool to_whole) {
  const int size = device->ranks->size;
  const size_t row = cols * device->real, width = p.widest * device->real;
  for (int q = 0; q < size; q++) {
    int64_t first;
    const size_t share = mn_share(cols, q, size, &first) * device->real;
    char *piece = pieces + q * rows * width, *columns = whole + first * device->real;
    if (share > 0)
      MN_CUDA_TRY(cudaMemcpy2DAsync(to_whole ? columns : piece, to_whole ? row : width,
                                    to_whole ? piece : columns, to_whole ? width : row, share, rows,
                                    cudaMemcpyDeviceToDevice, device->cuda->stream));
  }
  return MN_OK;
}

mn_status mn_all_gather_cuda(struct mn_device *device, void *whole, const void *piece, int64_t rows,
                             int64_t cols) {
  const struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  MN_TRY(mn_ranks_plan(&p, device, cols));
  const size_t real = device->real, row = p.share * real, width = p.widest * real;
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = std::min(p.rows, rows - at);
    const void *mine = static_cast<const char *>(piece) + at * row;
    if (p.share < p.widest) {
      if (row > 0)
        MN_CUDA_TRY(cudaMemcpy2DAsync(r->room[0], width, mine, row, row, count, cudaMemcpyDeviceToDevice,
                                      device->cuda->stream));
      mine = r->room[0];
    }
    MN_TRY(mn_nccl_all_gather(r, r->room[1], mine, count * width, device->cuda->stream));
    MN_TRY(divide(device, p, static_cast<char *>(whole) + at * cols * real, static_cast<char *>(r->room[1]),
                  count, cols, true));
  }
  return MN_OK;
}

/* piece[rows, share] = the pieces [size, rows, widest] added up in order. */
template <typename Real>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    add_up_kernel(Real *piece, const Real *pieces, int64_t rows, int64_t share, int64_t widest, int size) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * share) return;
  const Real *at = pieces + i / share * widest + i % share;
  Real sum = at[0];
  for (int q = 1; q < size; q++) sum += at[q * rows * widest];
  piece[i] = sum;
}

template <typename Real>
static mn_status add_up(struct mn_device *device, void *piece, const struct mn_ranks_plan &p, int64_t rows) {
  const struct mn_ranks *r = device->ranks;
  const int64_t count = rows * p.share;
  if (count == 0) return MN_OK;
  add_up_kernel<Real><<<(unsigned)((count + MN_CUDA_THREADS - 1) / MN_CUDA_THREADS), MN_CUDA_THREADS, 0,
                        device->cuda->stream>>>(
      static_cast<Real *>(piece), static_cast<const Real *>(r->room[1]), rows, p.share, p.widest, r->size);
  MN_CUDA_TRY(cudaGetLastError());
  return MN_OK;
}

mn_status mn_reduce_scatter_cuda(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                                 int64_t cols) {
  const struct mn_ranks *r = device->ranks;
  struct mn_ranks_plan p;
  MN_TRY(mn_ranks_plan(&p, device, cols));
  const size_t real = device->real;
  for (int64_t at = 0; at < rows; at += p.rows) {
    const int64_t count = std::min(p.rows, rows - at);
    char *from = static_cast<char *>(const_cast<void *>(whole)) + at * cols * real;
    MN_TRY(divide(device, p, from, static_cast<char *>(r->room[0]), count, cols, false));
    MN_TRY(mn_nccl_exchange(r, r->room[1], r->room[0], count * p.widest * real, device->cuda->stream));
    char *to = static_cast<char *>(piece) + at * p.share * real;
    MN_TRY(real == sizeof(double) ? add_up<double>(device, to, p, count)
                                  : add_up<float>(device, to, p, count));
  }
  return MN_OK;
}

mn_status mn_own_columns_cuda(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                              int64_t cols) {
  int64_t first;
  const size_t share = mn_share(cols, device->ranks->rank, device->ranks->size, &first) * device->real;
  if (share > 0)
    MN_CUDA_TRY(cudaMemcpy2DAsync(piece, share, static_cast<const char *>(whole) + first * device->real,
                                  cols * device->real, share, rows, cudaMemcpyDeviceToDevice,
                                  device->cuda->stream));
  return MN_OK;
}

mn_status mn_agree_cuda(struct mn_device *device) {
  return mn_nccl_agree(device->ranks, device->nonfinite, device->cuda->stream);
}
