/* Lets calls of CUDA's runtime and of cuBLASLt fail, as the class "device" of inject.c. The runtime is a
 * static library, whose functions nothing preloaded can stand before: so this is linked into a minnow of its
 * own, with --wrap for each function (DEVICE_FUNCTIONS, from the Makefile: all that minnow calls but those
 * that only give something back or name an error). cuBLASLt's come from dlsym. */
#include <string.h>

#include "kernels/cublaslt.h"

int inject_device(void) __attribute__((weak));

/* Eight integers, pointers or halves of a dim3 are the most that a function of the runtime takes; handing on
 * more than were given does no harm. 2 is cudaErrorMemoryAllocation. */
#define DEVICE(name)                                                                                         \
  long __real_##name(long, long, long, long, long, long, long, long);                                        \
  long __wrap_##name(long, long, long, long, long, long, long, long);                                        \
  long __wrap_##name(long a, long b, long c, long d, long e, long f, long g, long h) {                       \
    if (inject_device && inject_device()) return 2;                                                          \
    return __real_##name(a, b, c, d, e, f, g, h);                                                            \
  }
DEVICE_FUNCTIONS

/* cublasLtMatmul takes 16 of them. 3 is CUBLAS_STATUS_ALLOC_FAILED. */
typedef long blas_function(long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                           long, long);
#define BLAS(name)                                                                                           \
  static blas_function *real_##name;                                                                         \
  static long try_##name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j,     \
                         long k, long l, long m, long n, long o, long p) {                                   \
    if (inject_device && inject_device()) return 3;                                                          \
    return real_##name(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);                                      \
  }
MN_CUBLASLT(BLAS)

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name) {
  void *found = __real_dlsym(library, name);
  if (!found || strncmp(name, "cublasLt", 8) != 0 || strstr(name, "Destroy") || strstr(name, "LtGet"))
    return found;
#define TAKE(function)                                                                                       \
  if (strcmp(name + 8, #function) == 0)                                                                      \
    return real_##function = (blas_function *)found, (void *)try_##function;
  MN_CUBLASLT(TAKE)
  return found;
}
