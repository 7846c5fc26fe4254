/* Shared by the CUDA files: a device's CUDA state, errors turned into a mn_status, launches, and loads and
 * stores of small vectors. Included by .cu files alone. */
#ifndef MN_KERNELS_CUDA_CUH
#define MN_KERNELS_CUDA_CUH

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cublaslt.h"
#include "kernels/kernels.h"

struct mn_matmul; /* gemm.cu's */

/* The ranks' agreement on the nonfinite flag, in the device's memory. It is reached on MN_BRANCH_SUMS beside
 * the next product, which leaves MN_AGREEMENT_MULTIPROCESSORS to it. If that is an update of the Hopper GEMM,
 * its epilogue waits, and the last warp to know the flag resets this struct; else the branch is joined before
 * the product, or before its parts are added. */
struct mn_agreement {
  unsigned reached; /* not 0: the flag is what the ranks agree on */
  unsigned known;   /* to so many of the epilogue's warps */
};
constexpr int MN_AGREEMENT_MULTIPROCESSORS = 2;

/* cuBLASLt's functions, once a GPU was opened (device.cu): mn_cublaslt().Matmul is cublasLtMatmul. */
struct mn_cublaslt {
#define MN_CUBLASLT_MEMBER(name) decltype(&cublasLt##name) name;
  MN_CUBLASLT(MN_CUBLASLT_MEMBER)
  char error[160]; /* empty if all are there */
};
const struct mn_cublaslt &mn_cublaslt();

/* Waits for the event, or, if it is NULL, for the device's stream; among ranks it answers the others
 * meanwhile (kernels/ranks/mpi.h). */
mn_status mn_cuda_wait(struct mn_device *device, cudaEvent_t event);

/* Events kept for fillings (stream.cu): those under way, the one before them, and a power of two. */
constexpr int MN_CUDA_FILLINGS = 8;

/* All CUDA state of a device: no static variable holds any. */
struct mn_cuda {
  int multiprocessors;
  cudaStream_t stream, branches[MN_BRANCHES], ahead, report; /* stream.cu */
  cudaEvent_t forked, joined, stamps[2];
  cudaEvent_t filled[MN_CUDA_FILLINGS], used[MN_CUDA_FILLINGS], reported[MN_CUDA_FILLINGS];
  unsigned fillings, waited; /* fillings given and waited for */
  cudaEvent_t staged;        /* the end of a piece of download_beside's (memory.cu), */
  void *staging; /* and its MN_CUDA_STAGING bytes of pinned memory, which the first call allocates */
  cublasLtHandle_t blas;
  void *workspace; /* MN_CUDA_WORKSPACE bytes: cuBLASLt's own, or a product's parts; allocated by the first
                      that needs them */
  void *scratch;   /* likewise: rows of a product for an update or a sum (gemm.cu) */
  float *alpha;    /* [2] alpha and beta of a scaled product of cuBLASLt's */
  unsigned *spans_done;      /* how many spans of the running sum are done (reduce.cuh); 0 between launches */
  struct mn_matmul *matmuls; /* the matmuls of the last shapes (gemm.cu); */
  unsigned matmul_count;     /* and how many were ever made */
  void *encode;              /* cuTensorMapEncodeTiled, if the Hopper GEMM can run; else NULL */
  bool dependents;           /* has programmatic dependent launch */
  struct mn_agreement *agreement; /* not NULL: the next product waits for it, or joins its branch */
};

/* Fixed, so that cuBLASLt chooses the same algorithms, and gives the same bytes, on all GPUs of one model. */
constexpr size_t MN_CUDA_WORKSPACE = MN_LIBRARY_WORKSPACE;
constexpr size_t MN_CUDA_STAGING = size_t(4) << 20;
constexpr int MN_CUDA_THREADS = 256;
#define MN_CUDA_KERNEL static __global__ void __launch_bounds__(MN_CUDA_THREADS)
constexpr unsigned MN_CUDA_WARP = 0xffffffffu;

/* MN_OK, or MN_LIBRARY or MN_NO_MEMORY with what failed. */
mn_status mn_cuda_check(cudaError_t error, const char *what);
mn_status mn_cuda_check(cublasStatus_t error, const char *what);
void mn_hopper_open(struct mn_cuda *cuda, const cudaDeviceProp *properties);

/* The tables' entries. Those of both reals are static members of templates, MN_CUDA_INSTANTIATEd there. */
#define MN_CUDA_REAL(name)                                                                                   \
  template <typename Real> struct mn_##name##_cuda { static mn_##name##_function run; };
#define MN_CUDA_ONE(name, ...) mn_##name##_function mn_##name##_cuda;
MN_KERNELS(MN_CUDA_REAL, MN_CUDA_ONE, MN_CUDA_ONE, MN_CUDA_ONE)
MN_COLLECTIVES(MN_CUDA_ONE, MN_CUDA_ONE)
#define MN_CUDA_INSTANTIATE(name)                                                                            \
  template struct mn_##name##_cuda<float>;                                                                   \
  template struct mn_##name##_cuda<double>

/* Returns from the calling function when a CUDA or cuBLASLt call fails. */
#define MN_CUDA_TRY(call) MN_TRY(mn_cuda_check(call, #call))
/* Returns the call's status. */
#define MN_CUDA_RETURN(call) return mn_cuda_check(call, #call)

/* The status of the launch just made. */
static inline mn_status mn_cuda_launched(const char *kernel) {
  return mn_cuda_check(cudaGetLastError(), kernel);
}

/* Calls work(), whose kernels go to a branch (kernels/stream.h), after what was given before. */
template <typename Work>
static inline mn_status mn_cuda_beside(struct mn_device *device, enum mn_branch which, Work work) {
  MN_TRY(mn_branch_fork_cuda(device, which));
  MN_TRY(mn_branch_begin_cuda(device, which));
  const mn_status status = work(), ended = mn_branch_end_cuda(device, which);
  return status != MN_OK ? status : ended;
}

/* The number of CTAs of `each` that cover `count`. */
static inline unsigned mn_cuda_grid(int64_t count, int64_t each) {
  int64_t ctas = (count + each - 1) / each;
  MN_REQUIRE(ctas > 0 && ctas <= INT32_MAX);
  return (unsigned)ctas;
}

/* Launches CTAs of MN_CUDA_THREADS threads, `each` of `count` to a CTA. */
template <typename... Parameters, typename... Arguments>
static inline mn_status mn_cuda_launch(const char *name, struct mn_device *device, int64_t count,
                                       int64_t each, void (*kernel)(Parameters...),
                                       const Arguments &...arguments) {
  kernel<<<mn_cuda_grid(count, each), MN_CUDA_THREADS, 0, device->cuda->stream>>>(arguments...);
  return mn_cuda_launched(name);
}

/* Programmatic dependent launch, which compute capability 9.0 brought: a kernel that is launched by
 * mn_cuda_launch_dependent may start as soon as every CTA of the kernel before it in the stream has ended or
 * has called cudaTriggerProgrammaticLaunchCompletion, so that its launch and its prologue overlap that
 * kernel's end. All its threads must call cudaGridDependencySynchronize before they write global memory, or
 * read what the kernel before writes: it waits until that is complete. That one has waited likewise, so every
 * earlier kernel is complete as well. */
template <typename... Parameters, typename... Arguments>
static inline mn_status mn_cuda_launch_dependent(const char *name, struct mn_device *device, unsigned grid,
                                                 unsigned threads, int shared, void (*kernel)(Parameters...),
                                                 const Arguments &...arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = threads, config.dynamicSmemBytes = (size_t)shared;
  config.stream = device->cuda->stream;
  config.attrs = &attribute, config.numAttrs = device->cuda->dependents;
  (void)cudaLaunchKernelEx(&config, kernel, arguments...); /* mn_cuda_launched sees its error */
  return mn_cuda_launched(name);
}

/* Whether the flag is set, as struct mn_arrival and mn_agreement have it; this thread then sees what was
 * written before. */
MN_GPU bool mn_peer_has_arrived(const unsigned *flag) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value != 0;
}

/* The flag that the ranks agree on. Each of the product's `warps` that run its epilogue calls it once. */
MN_GPU int mn_agreed_flag(mn_agreement *agreement, const int *nonfinite, unsigned warps) {
  while (!mn_peer_has_arrived(&agreement->reached)) continue;
  const int flag = *nonfinite;
  __syncwarp();
  if (threadIdx.x % 32 == 0 && atomicInc(&agreement->known, warps - 1) == warps - 1) agreement->reached = 0;
  return flag;
}

/* Whether every one of the pointers (NULL included) is a multiple of `bytes`. */
template <typename... Pointers> static inline bool mn_aligned(size_t bytes, const Pointers *...pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) & (bytes - 1)) == 0;
}

/* Sets the nonfinite flag, unless an earlier step has. All that set it in one step have the same mark. */
MN_GPU void mn_raise(int *nonfinite, int mark) {
  if (*nonfinite == 0) *nonfinite = mark;
}

/* The 32-bit address in shared memory that PTX instructions take. */
MN_GPU uint32_t mn_shared_of(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* `threads`, whole warps, of one CTA synchronise at one of its 16 barriers; 0 is __syncthreads'. */
MN_GPU void mn_warps_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Reals in one 16-byte access. */
template <typename Real> constexpr int mn_width = 16 / sizeof(Real);

/* The type of a load or store of `Bytes` bytes in one instruction. */
template <size_t Bytes> struct mn_word { typedef uint4 type; };
template <> struct mn_word<8> { typedef uint2 type; };
template <> struct mn_word<4> { typedef unsigned type; };
template <> struct mn_word<2> { typedef unsigned short type; };

/* W values from p, which is aligned to their size, or to 16 bytes if they are more. */
template <int W, typename T> MN_GPU void mn_load(T (&out)[W], const T *p) {
  typedef typename mn_word<sizeof out>::type word;
  MN_UNROLL(size_t i = 0; i < sizeof out / sizeof(word); i++) {
    word bits = reinterpret_cast<const word *>(p)[i];
    memcpy(out + i * sizeof bits / sizeof(T), &bits, sizeof bits);
  }
}

/* __stwb is a plain store that the compiler does not split into W narrow ones. */
template <int W, typename T> MN_GPU void mn_store(T *p, const T (&values)[W]) {
  typedef typename mn_word<sizeof values>::type word;
  MN_UNROLL(size_t i = 0; i < sizeof values / sizeof(word); i++) {
    word bits;
    memcpy(&bits, values + i * sizeof bits / sizeof(T), sizeof bits);
    __stwb(reinterpret_cast<word *>(p) + i, bits);
  }
}

/* The same with the streaming hint, for data that is not read again soon: the caches evict it first. */
template <int W, typename T> MN_GPU void mn_load_once(T (&out)[W], const T *p) {
  typedef typename mn_word<sizeof out>::type word;
  const word bits = __ldcs(reinterpret_cast<const word *>(p));
  memcpy(out, &bits, sizeof bits);
}
template <int W, typename T> MN_GPU void mn_store_once(T *p, const T (&values)[W]) {
  typedef typename mn_word<sizeof values>::type word;
  word bits;
  memcpy(&bits, values, sizeof bits);
  __stcs(reinterpret_cast<word *>(p), bits);
}

/* mn_load and mn_store near the end of an array: only the first n of W values exist; the others are read as
 * 0. */
template <int W, typename T> MN_GPU void mn_load_some(T (&out)[W], const T *p, int64_t n) {
  if (n >= W) return mn_load<W>(out, p);
  MN_UNROLL(int i = 0; i < W; i++) out[i] = i < n ? p[i] : T(0);
}

template <int W, typename T> MN_GPU void mn_store_some(T *p, const T (&values)[W], int64_t n) {
  if (n >= W) return mn_store<W>(p, values);
  MN_UNROLL(int i = 0; i < W; i++)
    if (i < n) p[i] = values[i];
}

/* The sum over L neighbouring lanes, a power of two; with L = 0 over `lanes` of them. Every lane gets it. */
template <int L, typename Real> MN_GPU Real mn_lanes_sum(Real x, int lanes = L) {
  if constexpr (L > 0) {
    MN_UNROLL(int offset = L / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(MN_CUDA_WARP, x, offset);
  } else {
    for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(MN_CUDA_WARP, x, offset);
  }
  return x;
}

/* The sum over a CTA of whole warps, or over the `warps` of them from `first` on that this thread is in, in
 * order; every thread gets its own. */
template <typename Real>
__device__ Real mn_cta_sum(Real x, unsigned first = 0, unsigned warps = blockDim.x / 32) {
  __shared__ Real parts[32];
  x = mn_lanes_sum<32>(x);
  __syncthreads(); /* until an earlier call's parts have been read */
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (unsigned w = 0; w < warps; w++) x += parts[first + w];
  return x;
}

#endif
