/* What the saver's thread does beside the device's work: download_beside of any number of bytes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/training.h"

struct download {
  struct mn_device *device;
  void *to;
  const void *from;
  size_t bytes;
  mn_status status;
};

static void *download_beside(void *data) {
  struct download *d = data;
  d->status = d->device->kernels->download_beside(d->device, d->to, d->from, d->bytes);
  return NULL;
}

/* Sizes around those of the pieces, in another thread, right after the work that the bytes come from, while
 * the device is given more. */
static void any_number_of_bytes_is_downloaded(void **state) {
  struct memory m = {.device = open_or_skip(*state, "fp32")};
  const struct mn_kernels *k = m.device->kernels;
  const size_t mib = 1048576,
               sizes[] = {1, 4 * mib - 1, 4 * mib, 4 * mib + 1, 8 * mib, 8 * mib + 5, 21 * mib};
  unsigned char *from = malloc(21 * mib), *to = malloc(21 * mib + 1);
  void *first = take_bytes(&m, 21 * (int64_t)mib, 1), *second = take_bytes(&m, 21 * (int64_t)mib, 1),
       *third = take_bytes(&m, 21 * (int64_t)mib, 1);
  assert_true(from && to);
  for (size_t i = 0; i < 21 * mib; i++) from[i] = (unsigned char)(i * 7 + (i >> 12));
  MUST(k->copy(m.device, first, from, 21 * mib));
  MUST(k->synchronize(m.device));
  for (size_t s = 0; s < COUNT(sizes); s++) {
    struct download d = {m.device, to, second, sizes[s], MN_OK};
    pthread_t thread;
    memset(to, 0xee, 21 * mib + 1);
    for (int i = 0; i < 20; i++) MUST(k->zero(m.device, second, 21 * mib));
    MUST(k->copy(m.device, second, first, sizes[s]));
    MUST(k->branch_fork(m.device, MN_BRANCH_SAVES));
    assert_int_equal(pthread_create(&thread, NULL, download_beside, &d), 0);
    mn_status more = MN_OK;
    for (int i = 0; i < 20 && more == MN_OK; i++) more = k->zero(m.device, third, 21 * mib);
    assert_int_equal(pthread_join(thread, NULL), 0);
    MUST(d.status);
    MUST(more);
    MUST(k->synchronize(m.device));
    assert_memory_equal(to, from, sizes[s]);
    assert_int_equal(to[sizes[s]], 0xee);
  }
  free(from), free(to);
  release_all(&m);
  mn_device_close(m.device);
}

int main(void) {
  const struct CMUnitTest tests[] = {ON("cuda", any_number_of_bytes_is_downloaded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
