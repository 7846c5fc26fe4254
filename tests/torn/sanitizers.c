/* How the sanitizers judge a program that reads damaged files. */
#include "tests/torn/sanitizers.h"

#include <hdf5.h>

#include "kernels/status.h"

/* The sanitizers call these, where a program has them. */
MN_API const char *__asan_default_options(void);
MN_API const char *__lsan_default_suppressions(void);

/* 99 is no exit code of minnow's. No small file may make minnow ask for much memory; libhdf5 may, and is told
 * that there is none. Of freed memory 1 MB is kept from being used again: more slows down every fork. */
const char *__asan_default_options(void) {
  return "exitcode=99:allocator_may_return_null=1:max_allocation_size_mb=256:malloc_context_size=12:"
         "quarantine_size_mb=1:thread_local_quarantine_size_kb=64";
}

/* libhdf5 loses memory where a file is damaged. */
const char *__lsan_default_suppressions(void) {
  return "leak:libhdf5\n";
}

void torn_sharpen(void) {
  MN_REQUIRE(H5set_free_list_limits(0, 0, 0, 0, 0, 0) >= 0);
}
