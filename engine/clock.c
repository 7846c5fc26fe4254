/* The clock; one that fails is a broken invariant. */
#include "engine/clock.h"

#include <time.h>

#include "kernels/status.h"

double mn_seconds(void) {
  struct timespec now;
  MN_REQUIRE(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
