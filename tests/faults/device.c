/* Lets calls of CUDA's runtime and of cuBLASLt fail, as the class "device" of inject.c. The runtime is a
 * static library, whose functions nothing preloaded can stand before: so this is linked into a minnow of its
 * own, with
 * --wrap for each function (DEVICE_FUNCTIONS, from the Makefile: all that minnow calls but those that only
 * give something back or name an error). */
#include <string.h>

int inject_device(void) __attribute__((weak));

/* Eight integers, pointers or halves of a dim3 are the most that one takes; handing on more than were given
 * does no harm. 2 is cudaErrorMemoryAllocation, and 3 CUBLAS_STATUS_ALLOC_FAILED. */
#define DEVICE(name)                                                                                         \
  long __real_##name(long, long, long, long, long, long, long, long);                                        \
  long __wrap_##name(long, long, long, long, long, long, long, long);                                        \
  long __wrap_##name(long a, long b, long c, long d, long e, long f, long g, long h) {                       \
    if (inject_device && inject_device()) return strncmp(#name, "cublas", 6) == 0 ? 3 : 2;                   \
    return __real_##name(a, b, c, d, e, f, g, h);                                                            \
  }
DEVICE_FUNCTIONS
