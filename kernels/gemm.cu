/* The matrix product on CUDA: the GEMM of our own if it fits (hopper/product.cuh), else cuBLASLt into memory
 * and then the epilogue over the stored matrix.
 *
 * cuBLASLt chooses an algorithm once for each shape, which is kept: the heuristic's first for a fixed
 * workspace and no in-place reduction, so that the same call gives the same bytes. A shard of a product, or a
 * slice, is computed by the full product's algorithm, because another one, with other tiles or another split
 * of the depth, would add in another order. So a shard has the full product's bytes. */
#include <stdlib.h>

#include <algorithm>

#include "kernels/block_row.cuh"
#include "kernels/hopper/product.cuh"
#include "kernels/ranks/peer.h"
#include "kernels/rule.cuh"

/* lda is the row stride of a, which may be some columns of a wider matrix. */
struct extent {
  int64_t rows, cols, depth, lda;
  bool operator==(const extent &other) const {
    return rows == other.rows && cols == other.cols && depth == other.depth && lda == other.lda;
  }
};

/* A product for either way: cuBLASLt reads a[0] and b[0], which are reals in operands without planes. */
struct product : mn_hopper_product {
  enum mn_precision precision; /* the precision of a and b */
  int64_t lda;
  extent whole; /* the full product's extent; or its own */
  void *d;
};

/* A cuBLASLt matmul: descriptors and algorithm for products of one shape and one full shape. cuBLASLt is
 * column-major, so it computes dᵀ = bᵀ·aᵀ: its A is our b, its B our a. */
struct mn_matmul {
  enum mn_form form;
  enum mn_precision precision;
  extent own, whole;
  uint32_t align_a, align_b, align_d;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
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

/* A scaled product is divided by the factors, through an alpha in the device's memory. */
static mn_status describe(struct mn_matmul *m) {
  const struct types &of = types[m->precision];
  const int32_t mode = m->precision == MN_FP16 ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
  const int32_t op_a = m->form == MN_NT ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t op_b = m->form == MN_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
  const struct {
    cublasLtMatmulDescAttributes_t attribute;
    const int32_t *value;
  } wanted[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &op_a},
                {CUBLASLT_MATMUL_DESC_TRANSB, &op_b},
                {CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode}};
  MN_CUDA_TRY(mn_cublaslt().MatmulDescInit_internal(&m->operation, sizeof m->operation, of.compute, of.out));
  for (const auto &want : wanted)
    MN_CUDA_TRY(
        mn_cublaslt().MatmulDescSetAttribute(&m->operation, want.attribute, want.value, sizeof *want.value));
  return MN_OK;
}

/* The layouts of a product of this extent, in place of those that there are. */
static mn_status lay_out(struct mn_matmul *m, const extent &of) {
  const struct types &t = types[m->precision];
  const bool ta = m->form == MN_NT, tb = m->form == MN_TN;
  const struct {
    cublasLtMatrixLayout_t layout;
    cudaDataType_t type;
    int64_t rows, cols, stride;
  } wanted[] = {{&m->a, t.in, ta ? of.depth : of.cols, ta ? of.cols : of.depth, ta ? of.depth : of.cols},
                {&m->b, t.in, tb ? of.rows : of.depth, tb ? of.depth : of.rows, of.lda},
                {&m->d, t.out, of.cols, of.rows, of.cols}};
  for (const auto &want : wanted)
    MN_CUDA_TRY(mn_cublaslt().MatrixLayoutInit_internal(want.layout, sizeof *want.layout, want.type,
                                                        want.rows, want.cols, want.stride));
  return MN_OK;
}

/* Asks for an algorithm for a product of this extent, whose layouts then are the matmul's. */
static mn_status choose(struct mn_cuda *cuda, struct mn_matmul *m, const extent &of) {
  static const char *const forms[] = {"a·bᵀ", "a·b", "aᵀ·b"}; /* by enum mn_form */
  const uint64_t workspace = MN_CUDA_WORKSPACE;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    const void *value;
    size_t bytes;
  } wanted[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &m->align_b, sizeof m->align_b},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &m->align_a, sizeof m->align_a},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &m->align_d, sizeof m->align_d},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &m->align_d, sizeof m->align_d}};
  cublasLtMatmulPreferenceOpaque_t preference = {};
  cublasLtMatmulHeuristicResult_t result;
  int count = 0;
  MN_TRY(lay_out(m, of));
  MN_CUDA_TRY(mn_cublaslt().MatmulPreferenceInit_internal(&preference, sizeof preference));
  for (const auto &want : wanted)
    MN_CUDA_TRY(
        mn_cublaslt().MatmulPreferenceSetAttribute(&preference, want.attribute, want.value, want.bytes));
  const cublasStatus_t status = mn_cublaslt().MatmulAlgoGetHeuristic(
      cuda->blas, &m->operation, &m->a, &m->b, &m->d, &m->d, &preference, 1, &result, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) MN_CUDA_TRY(status);
  if (status != CUBLAS_STATUS_SUCCESS || count < 1 || result.state != CUBLAS_STATUS_SUCCESS)
    return mn_fail(MN_LIBRARY,
                   "cuBLASLt has no algorithm for a product %s of %lld rows, %lld columns and a depth of "
                   "%lld in %s; other sizes, another precision or the device cpu would do",
                   forms[m->form], (long long)of.rows, (long long)of.cols, (long long)of.depth,
                   mn_precision_name(m->precision));
  m->algorithm = result.algo;
  return MN_OK;
}

/* By the full matrix's algorithm, if it can compute the shard. */
static mn_status make_matmul(struct mn_cuda *cuda, struct mn_matmul *m) {
  cublasLtMatmulHeuristicResult_t result = {};
  MN_TRY(describe(m));
  MN_TRY(choose(cuda, m, m->whole));
  if (m->own == m->whole) return MN_OK;
  MN_TRY(lay_out(m, m->own));
  const cublasStatus_t status = mn_cublaslt().MatmulAlgoCheck(cuda->blas, &m->operation, &m->a, &m->b, &m->d,
                                                              &m->d, &m->algorithm, &result);
  const bool suits = status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
                     result.workspaceSize <= MN_CUDA_WORKSPACE;
  return suits ? MN_OK : choose(cuda, m, m->own);
}

/* The matmul for a product: one made before, or a new one, in the place of the oldest if MATMULS are kept.
 * It is the caller's until the next call; a graph that was captured does not read it. */
static mn_status find_matmul(struct mn_device *device, struct mn_matmul **out, const struct product *p) {
  struct mn_cuda *cuda = device->cuda;
  struct mn_matmul m = {};
  m.form = p->form, m.precision = p->precision;
  m.own = {p->rows, p->cols, p->depth, p->lda}, m.whole = p->whole;
  m.align_a = alignment_of(p->a[0]), m.align_b = alignment_of(p->b[0]), m.align_d = alignment_of(p->d);
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
  MN_TRY(make_matmul(cuda, &m));
  *out = &cuda->matmuls[cuda->matmul_count++ % MATMULS];
  **out = m;
  return MN_OK;
}

/* alpha and beta of a scaled product. */
static __global__ void alpha_kernel(float *alpha, const struct mn_scale *a, const struct mn_scale *b) {
  alpha[0] = 1 / (a->factor * b->factor);
  alpha[1] = 0;
}

static mn_status multiply(struct mn_device *device, const struct product *p) {
  struct mn_cuda *cuda = device->cuda;
  struct mn_matmul *m = NULL;
  MN_TRY(find_matmul(device, &m, p));
  if (!cuda->workspace) MN_CUDA_TRY(cudaMalloc(&cuda->workspace, MN_CUDA_WORKSPACE));
  const bool scaled = p->precision == MN_FP16;
  if (scaled) alpha_kernel<<<1, 1, 0, cuda->stream>>>(cuda->alpha, p->scale_a, p->scale_b);
  MN_TRY(mn_cuda_launched("alpha"));
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const bool wide = p->precision == MN_FP64;
  const void *one = wide ? (const void *)&one64 : &one32, *beta = wide ? (const void *)&zero64 : &zero32;
  if (scaled) one = cuda->alpha, beta = cuda->alpha + 1;
  MN_CUDA_RETURN(mn_cublaslt().Matmul(cuda->blas, &m->operation, one, p->b[0], &m->a, p->a[0], &m->b, beta,
                                      p->d, &m->d, p->d, &m->d, &m->algorithm, cuda->workspace,
                                      MN_CUDA_WORKSPACE, cuda->stream));
}

template <typename Real>
mn_status mn_epilogue_cuda<Real>::run(struct mn_device *device, void *matrix, int64_t rows, int64_t cols,
                                      const struct mn_epilogue *epilogue) {
  Real *d = static_cast<Real *>(matrix), *into = static_cast<Real *>(epilogue->into);
  const int64_t count = rows * cols;
  mn_epilogue_check(epilogue, rows, cols, 1);
  if (mn_is_block(epilogue->kind)) return mn_block_cuda<Real>::run(device, d, epilogue);
  if (epilogue->kind == MN_ADD) return mn_accumulate_cuda<Real>::run(device, epilogue, d, 0, count);
  if (epilogue->kind == MN_UPDATE) return mn_update_cuda<Real>::run(device, epilogue->update, d, 0, count);
  if (epilogue->kind == MN_REDUCE_SCATTER) {
    const struct mn_scatter *s = epilogue->scatter;
    MN_TRY(mn_reduce_scatter_cuda(device, s->piece, d, rows, cols));
    return run(device, s->piece, rows, s->share, s->then);
  }
  if (into == d) return epilogue->kind == MN_STORE ? MN_OK : mn_reduce_scatter_rows_cuda(device, d, count);
  MN_REQUIRE(epilogue->kind == MN_STORE);
  return mn_copy_cuda(device, into, d, (size_t)count * sizeof(Real));
}
MN_CUDA_INSTANTIATE(epilogue);

/* A product that ends in an update, in a sum or in 16 bits and has no memory for the product: slices of its
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
    part.a[0] =
        static_cast<const char *>(whole->a[0]) + (size_t)(whole->form == MN_TN ? row : row * whole->lda) * in;
    part.d = device->cuda->scratch;
    MN_TRY(multiply(device, &part));
    Real *d = static_cast<Real *>(part.d);
    const int64_t at = row * whole->cols, count = part.rows * whole->cols;
    if (epilogue->narrow) {
      struct mn_operand plane = {};
      plane.rows = part.rows, plane.cols = whole->cols, plane.real = d;
      plane.planes[0] = static_cast<uint16_t *>(epilogue->into) + at;
      plane.scale = device->scaled ? device->unscaled : NULL;
      MN_TRY(mn_round_cuda<Real>::run(device, &plane, 0));
      continue;
    }
    MN_TRY(epilogue->kind == MN_UPDATE ? mn_update_cuda<Real>::run(device, epilogue->update, d, at, count)
                                       : mn_accumulate_cuda<Real>::run(device, epilogue, d, at, count));
  }
  return MN_OK;
}

template <typename Real>
mn_status mn_gemm_cuda<Real>::run(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                                  const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  struct product p = {};
  p.form = form;
  p.rows = form == MN_TN ? a->cols : a->rows;
  p.depth = form == MN_TN ? a->rows : a->cols;
  p.cols = form == MN_NT ? b->rows : b->cols;
  p.lda = a->cols;
  p.whole = {p.rows, p.cols, p.depth, p.lda};
  if (form == MN_NT && b->whole) p.whole.cols = b->whole;
  if (form == MN_TN && a->whole) p.whole.rows = p.whole.lda = a->whole;
  MN_REQUIRE(p.depth == (form == MN_NT ? b->cols : b->rows));
  MN_REQUIRE(p.rows > 0 && p.cols > 0 && p.depth > 0);
  mn_epilogue_check(epilogue, p.rows, p.cols, 1);
  const bool planes = a->planes[0] && b->planes[0];
  const struct mn_operand *gathered = form == MN_NT ? a : b;
  struct mn_arrival *arrival = form == MN_NN ? NULL : gathered->arrival;
  MN_REQUIRE(planes || device->planes != 1);
  MN_REQUIRE(!planes || (!a->stale && !b->stale));
  p.scale_a = a->scale, p.scale_b = b->scale, p.arrival = arrival, p.whole_rows = p.whole.rows;
  p.a[0] = planes ? a->planes[0] : a->real, p.b[0] = planes ? b->planes[0] : b->real;
  if (planes) p.planes = mn_planes_of(device, a).kind, p.a[1] = a->planes[1], p.b[1] = b->planes[1];
  mn_hopper_launcher *const launch = planes ? mn_hopper_plan(device, &p, epilogue) : NULL;
  if (device->cuda->agreement && !(launch && epilogue->kind == MN_UPDATE))
    MN_TRY(mn_branch_join_cuda(device, MN_BRANCH_SUMS));
  if (launch || p.a[1]) {
    MN_TRY((launch ? launch : mn_hopper_store_and_apply)(device, &p, epilogue));
    return arrival && arrival->pending ? mn_peer_arrived(device, arrival) : MN_OK;
  }
  if (arrival && arrival->own) MN_TRY(mn_peer_complete(device, gathered));
  p.precision = device->precision == MN_FP16X3 ? MN_FP32 : device->precision;
  MN_REQUIRE(p.a[0] && p.b[0] && p.precision <= MN_FP16);
  if (epilogue->kind == MN_ADD || epilogue->narrow || (epilogue->kind == MN_UPDATE && !epilogue->into))
    return multiply_in_slices<Real>(device, &p, epilogue);
  MN_REQUIRE(epilogue->into);
  p.d = epilogue->into;
  MN_TRY(multiply(device, &p));
  if (epilogue->kind == MN_STORE) return MN_OK;
  return mn_epilogue_cuda<Real>::run(device, p.d, p.rows, p.cols, epilogue);
}

MN_CUDA_INSTANTIATE(gemm);
