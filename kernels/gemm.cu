/* The matrix product on CUDA: the GEMM of our own if it fits (hopper/gemm.h), else cuBLASLt into memory
 * and then the epilogue over the stored matrix.
 *
 * cuBLASLt is asked for an algorithm once for each shape, and the answer is kept: the heuristic's first for a
 * fixed workspace and no in-place reduction, so that the same call gives the same bytes. A shard of a
 * product, or a slice, is computed by the full product's algorithm, because another one, with other tiles or
 * another split of the depth, would add in another order. So a shard has the full product's bytes. */
#include <stdlib.h>

#include <algorithm>

#include "kernels/cuda.cuh"
#include "kernels/hopper/gemm.h"
#include "kernels/planes.cuh"
#include "kernels/ranks/peer.h"
#include "kernels/rule.cuh"

/* lda is the row stride of a, which may be some columns of a wider matrix. */
struct extent {
  int64_t rows, cols, depth, lda;
  bool operator==(const extent &other) const {
    return rows == other.rows && cols == other.cols && depth == other.depth && lda == other.lda;
  }
};

/* d[rows, cols] = a·b, all row-major. */
struct product : extent {
  enum mn_form form;
  enum mn_precision precision; /* the precision of a and b */
  extent whole;                /* the full product's extent; or its own */
  const void *a, *b;
  const struct mn_scale *scale_a, *scale_b; /* MN_FP16 alone */
  void *d;
};

/* A cuBLASLt matmul: descriptors and algorithm for products of one shape and one full shape. cuBLASLt is
 * column-major, so it computes dᵀ = bᵀ·aᵀ: its A is our b, its B our a. */
struct mn_matmul {
  enum mn_form form;
  enum mn_precision precision;
  bool found; /* cuBLASLt has an algorithm; else plain_kernel */
  extent own, whole;
  uint32_t align_a, align_b, align_d;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulAlgo_t algorithm;
};

/* Kept for a device. A run has a few shapes; a caller whose batches differ in size has many. */
enum { MATMULS = 256 };

/* By precision, up to MN_FP16: cuBLASLt's types of a and b, of d and of the computation, and the bytes of an
 * element of a. MN_FP16X3 has no row: its operands without planes are MN_FP32's, and the GEMM of our own
 * takes the others. */
static const struct types {
  cudaDataType_t in, out;
  cublasComputeType_t compute;
  size_t bytes;
} types[] = {{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 8},
             {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4},
             {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
             {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2},
             {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2}};
static_assert(MN_FP64 == 0 && MN_FP32 == 1 && MN_TF32 == 2 && MN_BF16 == 3 && MN_FP16 == 4);

/* The largest power of two, up to 256, that the pointer is a multiple of. */
static uint32_t alignment_of(const void *pointer) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | 256;
  return (uint32_t)(bits & -bits);
}

static void release_layouts(struct mn_matmul *m) {
  for (cublasLtMatrixLayout_t *layout : {&m->a, &m->b, &m->d}) {
    if (*layout) (void)mn_cublaslt().MatrixLayoutDestroy(*layout);
    *layout = NULL;
  }
}

static void release_matmul(struct mn_matmul *m) {
  if (m->operation) (void)mn_cublaslt().MatmulDescDestroy(m->operation);
  release_layouts(m);
}

void mn_cuda_release_matmuls(struct mn_cuda *cuda) {
  const unsigned kept = std::min(cuda->matmul_count, (unsigned)MATMULS);
  for (unsigned i = 0; i < kept; i++) release_matmul(&cuda->matmuls[i]);
  free(cuda->matmuls);
  cuda->matmuls = NULL;
  cuda->matmul_count = 0;
}

/* A scaled product is divided by the factors, through an alpha in the device's memory. */
static mn_status describe(struct mn_matmul *p) {
  const struct types &of = types[p->precision];
  const int32_t mode = p->precision == MN_FP16 ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
  bool ta = p->form == MN_NT, tb = p->form == MN_TN;
  cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  MN_CUBLAS_TRY(mn_cublaslt().MatmulDescCreate(&p->operation, of.compute, of.out));
  MN_CUBLAS_TRY(
      mn_cublaslt().MatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
  MN_CUBLAS_TRY(
      mn_cublaslt().MatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
  MN_CUBLAS_TRY(mn_cublaslt().MatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode,
                                                     sizeof mode));
  return MN_OK;
}

/* The layouts of a product of this extent, in place of those that there are. */
static mn_status lay_out(struct mn_matmul *p, const extent &of) {
  const struct types &t = types[p->precision];
  int64_t m = of.cols, n = of.rows, k = of.depth;
  bool ta = p->form == MN_NT, tb = p->form == MN_TN;
  release_layouts(p);
  MN_CUBLAS_TRY(mn_cublaslt().MatrixLayoutCreate(&p->a, t.in, ta ? k : m, ta ? m : k, ta ? k : m));
  MN_CUBLAS_TRY(mn_cublaslt().MatrixLayoutCreate(&p->b, t.in, tb ? n : k, tb ? k : n, of.lda));
  MN_CUBLAS_TRY(mn_cublaslt().MatrixLayoutCreate(&p->d, t.out, m, n, m));
  return MN_OK;
}

/* Asks for an algorithm that works with these alignments. If there is none, m->found stays false. */
static mn_status ask(struct mn_cuda *cuda, struct mn_matmul *m, cublasLtMatmulPreference_t preference,
                     uint32_t align_a, uint32_t align_b, uint32_t align_d) {
  struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    uint32_t bytes;
  } wanted[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_b},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_a},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_d},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_d}};
  for (const auto &want : wanted)
    MN_CUBLAS_TRY(mn_cublaslt().MatmulPreferenceSetAttribute(preference, want.attribute, &want.bytes,
                                                             sizeof want.bytes));
  cublasLtMatmulHeuristicResult_t result;
  int count = 0;
  cublasStatus_t status = mn_cublaslt().MatmulAlgoGetHeuristic(cuda->blas, m->operation, m->a, m->b, m->d,
                                                               m->d, preference, 1, &result, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) MN_CUBLAS_TRY(status);
  m->found = status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  if (m->found) m->algorithm = result.algo;
  return MN_OK;
}

/* For a product of this extent, whose layouts then are the matmul's. */
static mn_status choose(struct mn_device *device, struct mn_matmul *m, const extent &of,
                        cublasLtMatmulPreference_t preference) {
  size_t workspace = MN_CUDA_WORKSPACE;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  MN_CUBLAS_TRY(mn_cublaslt().MatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  MN_CUBLAS_TRY(mn_cublaslt().MatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
  struct mn_cuda *cuda = device->cuda;
  MN_TRY(lay_out(m, of));
  MN_TRY(ask(cuda, m, preference, m->align_a, m->align_b, m->align_d));
  if (m->found) return MN_OK;
  uint32_t in = (uint32_t)types[m->precision].bytes;
  return ask(cuda, m, preference, in, in, (uint32_t)device->real);
}

/* Whether the algorithm computes products of the layouts too. */
static bool suits(const struct mn_cuda *cuda, const struct mn_matmul *m) {
  cublasLtMatmulHeuristicResult_t result = {};
  return mn_cublaslt().MatmulAlgoCheck(cuda->blas, m->operation, m->a, m->b, m->d, m->d, &m->algorithm,
                                       &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= MN_CUDA_WORKSPACE;
}

/* Uses the full matrix's algorithm if it can compute the shard; if the full matrix has none, both use
 * plain_kernel. */
static mn_status choose_of_whole(struct mn_device *device, struct mn_matmul *m,
                                 cublasLtMatmulPreference_t preference) {
  MN_TRY(choose(device, m, m->whole, preference));
  if (m->own == m->whole) return MN_OK;
  MN_TRY(lay_out(m, m->own));
  return !m->found || suits(device->cuda, m) ? MN_OK : choose(device, m, m->own, preference);
}

static mn_status make_matmul(struct mn_device *device, struct mn_matmul *m) {
  MN_TRY(describe(m));
  cublasLtMatmulPreference_t preference;
  MN_CUBLAS_TRY(mn_cublaslt().MatmulPreferenceCreate(&preference));
  mn_status status = choose_of_whole(device, m, preference);
  (void)mn_cublaslt().MatmulPreferenceDestroy(preference);
  return status;
}

/* The matmul for a product: one made before, or a new one, in the place of the oldest if MATMULS are kept.
 * It is the caller's until the next call; a graph that was captured does not read it. */
static mn_status find_matmul(struct mn_device *device, struct mn_matmul **out, const struct product *p) {
  struct mn_cuda *cuda = device->cuda;
  struct mn_matmul m = {};
  m.form = p->form, m.precision = p->precision;
  m.own = *p, m.whole = p->whole;
  m.align_a = alignment_of(p->a), m.align_b = alignment_of(p->b), m.align_d = alignment_of(p->d);
  const unsigned kept = std::min(cuda->matmul_count, (unsigned)MATMULS);
  for (unsigned i = 0; i < kept; i++) {
    const struct mn_matmul *q = &cuda->matmuls[i];
    if (q->form == m.form && q->precision == m.precision && q->own == m.own && q->whole == m.whole &&
        q->align_a == m.align_a && q->align_b == m.align_b && q->align_d == m.align_d) {
      *out = &cuda->matmuls[i];
      return MN_OK;
    }
  }
  if (!cuda->matmuls) cuda->matmuls = static_cast<struct mn_matmul *>(calloc(MATMULS, sizeof m));
  if (!cuda->matmuls) return mn_fail(MN_NO_MEMORY, "no memory for cuBLASLt's matmuls");
  mn_status status = make_matmul(device, &m);
  if (status != MN_OK) {
    release_matmul(&m);
    return status;
  }
  *out = &cuda->matmuls[cuda->matmul_count++ % MATMULS];
  release_matmul(*out); /* zeroed memory has none */
  **out = m;
  return MN_OK;
}

enum { TILE = 16 };

/* A simple tiled product for shapes that cuBLASLt has no algorithm for, such as bfloat16 of odd widths. One
 * thread computes an element of d, adding over the depth in order. */
template <typename In, typename Real>
static __global__ void __launch_bounds__(TILE *TILE)
    plain_kernel(Real *d, const In *a, const In *b, const float *alpha, struct product p, int64_t tiles) {
  __shared__ Real part_a[TILE][TILE + 1], part_b[TILE][TILE + 1];
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t row0 = blockIdx.x / tiles * TILE, col0 = blockIdx.x % tiles * TILE;
  Real sum = 0;
  for (int64_t k0 = 0; k0 < p.depth; k0 += TILE) {
    /* part_a[r][k] and part_b[k][c]; consecutive x read consecutive addresses. */
    int64_t r = row0 + (p.form == MN_TN ? x : y), ka = k0 + (p.form == MN_TN ? y : x);
    int64_t c = col0 + (p.form == MN_NT ? y : x), kb = k0 + (p.form == MN_NT ? x : y);
    Real va = 0, vb = 0;
    if (r < p.rows && ka < p.depth) va = a[p.form == MN_TN ? ka * p.lda + r : r * p.lda + ka];
    if (c < p.cols && kb < p.depth) vb = b[p.form == MN_NT ? c * p.depth + kb : kb * p.cols + c];
    part_a[r - row0][ka - k0] = va;
    part_b[kb - k0][c - col0] = vb;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; k++) sum = fma(part_a[y][k], part_b[k][x], sum);
    __syncthreads();
  }
  if (row0 + y >= p.rows || col0 + x >= p.cols) return;
  if (alpha) sum *= *alpha;
  d[(row0 + y) * p.cols + col0 + x] = sum;
}

template <typename In, typename Real>
static mn_status plain_of(struct mn_device *device, const struct product *p) {
  int64_t tiles = (p->cols + TILE - 1) / TILE;
  unsigned grid = mn_cuda_grid(tiles * ((p->rows + TILE - 1) / TILE), 1);
  plain_kernel<In, Real><<<grid, dim3(TILE, TILE), 0, device->cuda->stream>>>(
      static_cast<Real *>(p->d), static_cast<const In *>(p->a), static_cast<const In *>(p->b),
      p->precision == MN_FP16 && p->scale_a ? device->cuda->alpha : NULL, *p, tiles);
  return mn_cuda_launched("gemm");
}

static mn_status plain(struct mn_device *device, const struct product *p) {
  switch (p->precision) {
  case MN_FP64:
    return plain_of<double, double>(device, p);
  case MN_BF16:
    return plain_of<__nv_bfloat16, float>(device, p);
  case MN_FP16:
    return plain_of<__half, float>(device, p);
  default:
    return plain_of<float, float>(device, p);
  }
}

/* alpha and beta of a scaled product. */
static __global__ void alpha_kernel(float *alpha, const struct mn_scale *a, const struct mn_scale *b) {
  alpha[0] = 1 / (a->factor * b->factor);
  alpha[1] = 0;
}

/* For a test alone, which declares it: everywhere else plain_kernel runs only if cuBLASLt has no
 * algorithm. */
extern "C" mn_status mn_cuda_plain_product(struct mn_device *device, enum mn_form form, void *d,
                                           const void *a, const void *b, int64_t rows, int64_t cols,
                                           int64_t depth) {
  struct product p = {};
  p.form = form, p.precision = device->precision;
  p.rows = rows, p.cols = cols, p.depth = depth, p.lda = form == MN_TN ? rows : depth;
  p.whole = p;
  p.a = a, p.b = b, p.d = d;
  return plain(device, &p);
}

static mn_status multiply(struct mn_device *device, const struct product *p) {
  struct mn_cuda *cuda = device->cuda;
  struct mn_matmul *m = NULL;
  MN_TRY(find_matmul(device, &m, p));
  const bool scaled = p->precision == MN_FP16;
  if (scaled) alpha_kernel<<<1, 1, 0, cuda->stream>>>(cuda->alpha, p->scale_a, p->scale_b);
  MN_TRY(mn_cuda_launched("alpha"));
  if (!m->found) return plain(device, p);
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const bool wide = p->precision == MN_FP64;
  const void *one = wide ? (const void *)&one64 : &one32, *beta = wide ? (const void *)&zero64 : &zero32;
  if (scaled) one = cuda->alpha, beta = cuda->alpha + 1;
  MN_CUBLAS_TRY(mn_cublaslt().Matmul(cuda->blas, m->operation, one, p->b, m->a, p->a, m->b, beta, p->d, m->d,
                                     p->d, m->d, &m->algorithm, cuda->workspace, MN_CUDA_WORKSPACE,
                                     cuda->stream));
  return MN_OK;
}

/* A product that ends in an update, in MN_ADD or in 16 bits and has no memory for the product: slices of its
 * rows are computed into the device's scratch memory, which fits in the L2 cache of a large GPU, and the
 * epilogue reads them there. A GEMM with beta = momentum, or 1, would move as few bytes, but would change
 * what it adds to, though a value was not finite. */
template <typename Real>
static mn_status multiply_in_slices(struct mn_device *device, const struct product *whole,
                                    const struct mn_epilogue *epilogue) {
  const int64_t step = 128; /* whole tiles, and every slice of a is as aligned as a */
  int64_t most = (int64_t)(MN_CUDA_WORKSPACE / sizeof(Real)) / whole->cols;
  if (most == 0)
    return mn_fail(MN_NO_MEMORY, "a result of %lld columns is wider than the scratch memory, %lld",
                   (long long)whole->cols, (long long)(MN_CUDA_WORKSPACE / sizeof(Real)));
  int64_t parts = (whole->rows + most - 1) / most, each = (whole->rows + parts - 1) / parts;
  if (most >= step) each = std::min((each + step - 1) / step, most / step) * step;
  /* The largest possible slice, because a shard's slices differ from the full matrix's. */
  const int64_t asked = std::min(whole->whole.rows, most >= step ? most / step * step : most);
  const size_t in = types[whole->precision].bytes;
  if (!device->cuda->scratch) MN_CUDA_TRY(cudaMalloc(&device->cuda->scratch, MN_CUDA_WORKSPACE));
  for (int64_t row = 0; row < whole->rows; row += each) {
    struct product part = *whole;
    part.rows = row + each < whole->rows ? each : whole->rows - row;
    part.whole.rows = asked;
    part.a =
        static_cast<const char *>(whole->a) + (size_t)(whole->form == MN_TN ? row : row * whole->lda) * in;
    part.d = device->cuda->scratch;
    MN_TRY(multiply(device, &part));
    Real *d = static_cast<Real *>(part.d);
    const int64_t at = row * whole->cols, count = part.rows * whole->cols;
    if (epilogue->narrow) {
      struct mn_operand plane = {};
      plane.rows = part.rows, plane.cols = whole->cols, plane.real = d;
      plane.planes[0] = static_cast<uint16_t *>(epilogue->into) + at;
      plane.scale = device->scaled ? device->unscaled : NULL;
      MN_TRY(mn_cuda_round<Real>::run(device, &plane, 0));
      continue;
    }
    MN_TRY(epilogue->kind == MN_ADD
               ? mn_cuda_accumulate(device, static_cast<Real *>(epilogue->into) + at, d, count)
               : mn_cuda_update(device, epilogue->update, d, at, count));
  }
  return MN_OK;
}

/* What every path requires of an epilogue. */
static void check_epilogue(const struct product *p, const struct mn_epilogue *epilogue) {
  const struct mn_block *b = epilogue->block;
  switch (epilogue->kind) {
  case MN_STORE:
  case MN_ADD:
  case MN_REDUCE_SCATTER:
  case MN_REDUCE_SCATTER_ROWS:
    MN_REQUIRE(epilogue->into);
    return;
  case MN_UPDATE:
    MN_REQUIRE(p->rows == epilogue->update->w->rows && p->cols == epilogue->update->w->cols);
    return;
  case MN_BLOCK:
  case MN_BLOCK_LOSS:
  case MN_BLOCK_BACKWARD:
    MN_REQUIRE(p->rows == b->rows && p->cols == b->channels);
  }
}

/* Two planes: the GEMM of our own stores a product whose epilogue it cannot apply. */
template <typename Real>
static mn_status store_and_apply(struct mn_device *device, const struct mn_hopper_product *p,
                                 const struct mn_epilogue *epilogue) {
  const struct mn_epilogue store = {MN_STORE, epilogue->into, NULL, NULL, NULL, 0};
  mn_hopper_launcher *const launch = mn_hopper_plan(device, p, &store);
  MN_REQUIRE(epilogue->into && launch);
  MN_TRY(launch(device, p, &store));
  return mn_cuda_epilogue<Real>::run(device, epilogue->into, p->rows, p->cols, epilogue);
}

template <typename Real>
mn_status mn_cuda_gemm<Real>::run(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                                  const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  struct product p = {};
  p.form = form;
  p.rows = form == MN_TN ? a->cols : a->rows;
  p.depth = form == MN_TN ? a->rows : a->cols;
  p.cols = form == MN_NT ? b->rows : b->cols;
  p.lda = a->cols;
  p.whole = p;
  if (form == MN_NT && b->whole) p.whole.cols = b->whole;
  if (form == MN_TN && a->whole) p.whole.rows = p.whole.lda = a->whole;
  MN_REQUIRE(p.depth == (form == MN_NT ? b->cols : b->rows));
  MN_REQUIRE(p.rows > 0 && p.cols > 0 && p.depth > 0);
  check_epilogue(&p, epilogue);
  const bool planes = a->planes[0] && b->planes[0];
  const struct mn_operand *gathered = form == MN_NT ? a : b;
  struct mn_arrival *arrival = form == MN_NN ? NULL : gathered->arrival;
  MN_REQUIRE(planes || device->planes != 1);
  MN_REQUIRE(!planes || (!a->stale && !b->stale));
  if (planes) {
    const struct mn_hopper_product ours = {form,
                                           p.rows,
                                           p.cols,
                                           p.depth,
                                           0,
                                           mn_planes_of(a).kind,
                                           {a->planes[0], a->planes[1]},
                                           {b->planes[0], b->planes[1]},
                                           a->scale,
                                           b->scale,
                                           arrival};
    mn_hopper_launcher *const launch = mn_hopper_plan(device, &ours, epilogue);
    if (launch || a->planes[1]) {
      MN_TRY(launch ? launch(device, &ours, epilogue) : store_and_apply<Real>(device, &ours, epilogue));
      return arrival && arrival->pending ? mn_peer_arrived(device, arrival) : MN_OK;
    }
  }
  if (arrival && arrival->own) MN_TRY(mn_peer_complete(device, gathered));
  p.precision = !planes && device->precision == MN_FP16X3 ? MN_FP32 : device->precision;
  p.a = planes ? a->planes[0] : a->real, p.scale_a = a->scale;
  p.b = planes ? b->planes[0] : b->real, p.scale_b = b->scale;
  MN_REQUIRE(p.a && p.b && p.precision <= MN_FP16);
  if (epilogue->kind == MN_ADD || epilogue->narrow || (epilogue->kind == MN_UPDATE && !epilogue->into))
    return multiply_in_slices<Real>(device, &p, epilogue);
  MN_REQUIRE(epilogue->into);
  p.d = epilogue->into;
  MN_TRY(multiply(device, &p));
  if (epilogue->kind == MN_STORE) return MN_OK;
  return mn_cuda_epilogue<Real>::run(device, p.d, p.rows, p.cols, epilogue);
}

MN_CUDA_INSTANTIATE(gemm);
