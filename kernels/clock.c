/* The clock and heartbeats. */
#include "kernels/clock.h"

#include <stddef.h>
#include <time.h>

double mn_seconds(void) {
  struct timespec now;
  MN_REQUIRE(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int64_t beats;
static void (*also)(void);

void mn_heartbeat(void) {
  void (*const call)(void) = __atomic_load_n(&also, __ATOMIC_ACQUIRE);
  __atomic_add_fetch(&beats, 1, __ATOMIC_RELEASE);
  if (call) call();
}

static mn_teller *teller;

void mn_heartbeat_of(const char *what, int64_t done, int64_t all) {
  mn_heartbeat();
  if (teller) teller(what, done, all);
}

mn_teller *mn_heartbeat_tell(mn_teller *tell) {
  return __atomic_exchange_n(&teller, tell, __ATOMIC_ACQ_REL);
}

int64_t mn_heartbeats(void) {
  return __atomic_load_n(&beats, __ATOMIC_ACQUIRE);
}

void mn_heartbeat_also(void (*call)(void)) {
  __atomic_store_n(&also, call, __ATOMIC_RELEASE);
}
