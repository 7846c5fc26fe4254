/* Loading OpenBLAS, and its memory. A product packs its operands into buffers, which OpenBLAS maps once and
 * keeps for the life of the process: one for each of its threads, most of them when it is loaded, and one for
 * the caller. If a mapping fails, OpenBLAS retries for ever, so memory for all of them is tried here first,
 * with each thread's stack, and again once the threads have started. */
#include "kernels/blas.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/device.h"

#define BUFFER ((size_t)128 << 20) /* bytes of a buffer, in the builds for x86-64 and ARM64 */
#define WORK ((size_t)16 << 20)    /* that a product takes beside its buffers while it runs */
#define CODE ((size_t)64 << 20)    /* that the library takes */

static struct mn_blas blas;
static int loaded;

const struct mn_blas *mn_blas(void) {
  return __atomic_load_n(&loaded, __ATOMIC_ACQUIRE) ? &blas : NULL;
}

/* Loads it for so many threads, unless the user has said how many. Functions that the program has itself, as
 * by LD_PRELOAD, go first, as they do with a library that is linked. */
static mn_status load(int threads) {
  static const char *const names[] = {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"};
  const int chosen = getenv("OPENBLAS_NUM_THREADS") != NULL;
  char number[16];
  void *library = NULL;
  snprintf(number, sizeof number, "%d", threads);
  if (!chosen) setenv("OPENBLAS_NUM_THREADS", number, 0);
  for (int i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_LAZY);
  if (!chosen) unsetenv("OPENBLAS_NUM_THREADS");
#define FIND(name)                                                                                           \
  if (library && !(*(void **)&blas.name = dlsym(RTLD_DEFAULT, #name)) &&                                     \
      !(*(void **)&blas.name = dlsym(library, #name)))                                                       \
    library = NULL;
  MN_BLAS(FIND)
  if (!library)
    return mn_fail(MN_LIBRARY, "OpenBLAS cannot be loaded: %s: install libopenblas0-openmp", dlerror());
  __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
  return MN_OK;
}

/* Buffers that OpenBLAS has not taken yet: one for each OpenMP thread that it has not counted, and the
 * caller's. Its own threads took theirs when they started. */
static int buffers_to_come(int threads) {
  int known = blas.openblas_get_parallel() == OPENBLAS_OPENMP ? blas.openblas_get_num_threads() : threads;
  return (threads > known ? threads - known : 0) + 1;
}

static mn_status stack_size(size_t *out) {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0)
    return mn_fail(MN_NO_MEMORY, "no memory to find out the size of threads' stacks");
  MN_REQUIRE(pthread_attr_getstacksize(&attributes, out) == 0);
  MN_REQUIRE(pthread_attr_destroy(&attributes) == 0);
  return MN_OK;
}

/* A product that is large enough to be shared out among threads, of a form that has no way around buffers. */
static mn_status multiply(void) {
  enum { N = 128 };
  float *m = calloc(3 * N * N, sizeof *m);
  if (!m) return mn_fail(MN_NO_MEMORY, "no memory for a matrix product");
  blas.cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1, m, N, m + N * N, N, 0, m + 2 * N * N,
                   N);
  free(m);
  return MN_OK;
}

static mn_status try_memory(size_t bytes, int threads) {
  void *held = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (held == MAP_FAILED)
    return mn_fail(
        MN_NO_MEMORY,
        "no %zu MiB of memory left for OpenBLAS's products with %d thread%s; a higher limit (ulimit "
        "-v)%s would do",
        bytes >> 20, threads, threads > 1 ? "s" : "",
        threads > 1 ? " or fewer threads (OMP_NUM_THREADS=1)" : "");
  munmap(held, bytes);
  return MN_OK;
}

static mn_status take(int threads) {
  const size_t bytes = loaded ? WORK + (size_t)buffers_to_come(threads) * BUFFER
                              : WORK + CODE + (size_t)(threads + 1) * BUFFER;
  size_t stack;
  MN_TRY(stack_size(&stack));
  MN_TRY(try_memory(bytes + (size_t)(threads - 1) * stack, threads));
  MN_TRY(mn_team_start());
  MN_TRY(try_memory(bytes, threads)); /* stacks are larger than that if OMP_STACKSIZE says so */
  const int given = omp_get_max_threads();
  if (!loaded) MN_TRY(load(given));
  if (!getenv("OPENBLAS_NUM_THREADS")) blas.openblas_set_num_threads(given);
  return multiply();
}

mn_status mn_blas_take_buffers(void) {
  static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
  static int taken; /* threads that have buffers; guarded by the mutex */
  mn_team_limit();
  const int threads = omp_get_max_threads();
  mn_status status = threads < 1 ? mn_team_start() : MN_OK;
  MN_REQUIRE(pthread_mutex_lock(&guard) == 0);
  if (threads > taken) status = take(threads);
  if (status == MN_OK && threads > taken) taken = threads;
  MN_REQUIRE(pthread_mutex_unlock(&guard) == 0);
  return status;
}
