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
  const int size = device->ranks->parts.size;
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
    MN_TRY(mn_nccl_all_gather(&r->parts, r->room[1], mine, count * width, device->cuda->stream));
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

static unsigned blocks_of(int64_t count) {
  return (unsigned)((count + MN_CUDA_THREADS - 1) / MN_CUDA_THREADS);
}

/* Of the pieces in the second room. */
static mn_status add_up(struct mn_device *device, void *piece, int64_t rows, int64_t share, int64_t widest,
                        int size, size_t each) {
  const void *pieces = device->ranks->room[1];
  if (rows * share == 0) return MN_OK;
  const unsigned blocks = blocks_of(rows * share);
  if (each == sizeof(double))
    add_up_kernel<<<blocks, MN_CUDA_THREADS, 0, device->cuda->stream>>>(
        static_cast<double *>(piece), static_cast<const double *>(pieces), rows, share, widest, size);
  else
    add_up_kernel<<<blocks, MN_CUDA_THREADS, 0, device->cuda->stream>>>(
        static_cast<float *>(piece), static_cast<const float *>(pieces), rows, share, widest, size);
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
    MN_TRY(
        mn_nccl_exchange(&r->parts, r->room[1], r->room[0], count * p.widest * real, device->cuda->stream));
    MN_TRY(add_up(device, static_cast<char *>(piece) + at * p.share * real, count, p.share, p.widest,
                  r->parts.size, real));
  }
  return MN_OK;
}

/* to[count] = from, unless the flag is raised. */
template <typename Real>
static __global__ void __launch_bounds__(MN_CUDA_THREADS)
    copy_unless_kernel(Real *to, const Real *from, int64_t count, const int *unless) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count && (!unless || !*unless)) to[i] = from[i];
}

static mn_status copy_unless(struct mn_device *device, void *to, const void *from, int64_t count, size_t each,
                             const int *unless) {
  const unsigned blocks = blocks_of(count);
  if (each == sizeof(double))
    copy_unless_kernel<<<blocks, MN_CUDA_THREADS, 0, device->cuda->stream>>>(
        static_cast<double *>(to), static_cast<const double *>(from), count, unless);
  else
    copy_unless_kernel<<<blocks, MN_CUDA_THREADS, 0, device->cuda->stream>>>(
        static_cast<float *>(to), static_cast<const float *>(from), count, unless);
  MN_CUDA_TRY(cudaGetLastError());
  return MN_OK;
}

/* A room at a time: each copy gets its share of the numbers from all, adds them up, and gives the sums to
 * all. The room's last share may be too long for what is left; what is there beyond that goes nowhere. */
mn_status mn_all_reduce_cuda(struct mn_device *device, void *data, int64_t count, size_t each,
                             const int *unless) {
  const struct mn_ranks *r = device->ranks;
  const mn_team *team = &r->copies;
  const cudaStream_t stream = device->cuda->stream;
  const int64_t most = MN_RANKS_ROOM / (int64_t)each / team->size * team->size;
  for (int64_t at = 0; at < count; at += most) {
    const int64_t length = std::min(most, count - at), share = (length + team->size - 1) / team->size;
    char *here = static_cast<char *>(data) + at * each;
    MN_CUDA_TRY(cudaMemcpyAsync(r->room[0], here, length * each, cudaMemcpyDefault, stream));
    MN_TRY(mn_nccl_exchange(team, r->room[1], r->room[0], share * each, stream));
    void *mine = static_cast<char *>(r->room[0]) + team->rank * share * each;
    MN_TRY(add_up(device, mine, 1, share, share, team->size, each));
    MN_TRY(mn_nccl_all_gather(team, r->room[0], mine, share * each, stream));
    MN_TRY(copy_unless(device, here, r->room[0], length, each, unless));
  }
  return MN_OK;
}

mn_status mn_own_columns_cuda(struct mn_device *device, void *piece, const void *whole, int64_t rows,
                              int64_t cols) {
  int64_t first;
  const size_t share =
      mn_share(cols, device->ranks->parts.rank, device->ranks->parts.size, &first) * device->real;
  if (share > 0)
    MN_CUDA_TRY(cudaMemcpy2DAsync(piece, share, static_cast<const char *>(whole) + first * device->real,
                                  cols * device->real, share, rows, cudaMemcpyDeviceToDevice,
                                  device->cuda->stream));
  return MN_OK;
}

mn_status mn_agree_cuda(struct mn_device *device) {
  return mn_nccl_agree(&device->ranks->all, device->nonfinite, device->cuda->stream);
}
