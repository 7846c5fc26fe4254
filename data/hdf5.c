/* The lock around HDF5, and what HDF5 says when it fails. */
#include "data/hdf5.h"

#include <ctype.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>

#include "kernels/clock.h"

/* `mutex` is the lock. A thread that waits for it holds `next`, so that a thread that unlocks and locks again
 * goes behind the one that waits. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, next = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int depth; /* how often this thread has taken the lock */

mn_status mn_hdf5_start(void) {
  if (H5open() >= 0 && H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0) return MN_OK;
  return mn_fail(MN_NO_MEMORY, "HDF5 cannot start, most likely for want of memory; free some");
}

void mn_hdf5_lock(void) {
  mn_heartbeat();
  if (depth++ > 0) return;
  MN_REQUIRE(pthread_mutex_lock(&next) == 0);
  MN_REQUIRE(pthread_mutex_lock(&mutex) == 0);
  MN_REQUIRE(pthread_mutex_unlock(&next) == 0);
  /* Each time and not once: a thread-safe HDF5 keeps this setting for each thread by itself. Where it fails
   * for want of memory, HDF5 prints what fails next. */
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void mn_hdf5_unlock(void) {
  MN_REQUIRE(depth > 0);
  if (--depth == 0) MN_REQUIRE(pthread_mutex_unlock(&mutex) == 0);
}

struct reason {
  char *text;
  size_t size;
};

static herr_t take_first(unsigned index, const H5E_error2_t *error, void *data) {
  struct reason *reason = data;
  if (index == 0 && error->desc) snprintf(reason->text, reason->size, "%s", error->desc);
  return 0;
}

const char *mn_hdf5_reason(char *text, size_t size) {
  MN_REQUIRE(size > 0);
  text[0] = 0;
  struct reason reason = {text, size};
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  if (!text[0]) snprintf(text, size, "no reason given");
  /* HDF5 puts the output of ctime, with its newline, into some: a message is one line. */
  for (char *c = text; *c; c++)
    if (iscntrl((unsigned char)*c)) *c = ' ';
  return text;
}
