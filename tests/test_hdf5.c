/* The lock around HDF5, which one thread may take twice and threads take in turn, and the reason that HDF5
 * gives for a failure. */
#include <hdf5.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "data/hdf5/hdf5.h"
#include "tests/skip.h"

static int entered; /* guarded by the lock */
static _Atomic int started;

static void *enter(void *data) {
  started = 1;
  mn_hdf5_lock();
  entered = 1;
  mn_hdf5_unlock();
  return data;
}

static void locks(void **state) {
  pthread_t thread;
  mn_hdf5_lock();
  mn_hdf5_lock();
  assert_int_equal(pthread_create(&thread, NULL, enter, NULL), 0);
  mn_hdf5_unlock(); /* still held */
  nanosleep(&(struct timespec){0, 30000000}, NULL);
  assert_int_equal(entered, 0);
  mn_hdf5_unlock();
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(entered, 1);
}

/* A thread that unlocks and locks again goes behind those that wait: a save, which does so after every slab,
 * does not hold up the loader's thread to its end. */
static void takes_turns(void **state) {
  const struct timespec slab = {0, 10000000};
  int late = 0;
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    entered = 0, started = 0;
    mn_hdf5_lock();
    assert_int_equal(pthread_create(&thread, NULL, enter, NULL), 0);
    while (!started) nanosleep(&slab, NULL);
    nanosleep(&slab, NULL);
    mn_hdf5_unlock();
    mn_hdf5_lock();
    late += !entered;
    mn_hdf5_unlock();
    assert_int_equal(pthread_join(thread, NULL), 0);
  }
  assert_in_range(
      late, 0,
      4); /* a busy machine may stop the thread before it waits; without turns more than half are late */
}

static void gives_reasons(void **state) {
  mn_hdf5_lock();
  H5Eclear2(H5E_DEFAULT);
  assert_string_equal(mn_hdf5_reason(), "no reason given");
  assert_true(H5Fopen("build/no/such.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
  assert_string_not_equal(mn_hdf5_reason(), "no reason given");
  H5Eclear2(H5E_DEFAULT);
  /* The innermost is pushed first. */
  H5Epush2(H5E_DEFAULT, "f", "g", 1, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "on %s\nday", "Mon");
  H5Epush2(H5E_DEFAULT, "f", "g", 1, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "outer");
  assert_string_equal(mn_hdf5_reason(), "on Mon day");
  H5Eclear2(H5E_DEFAULT);
  mn_hdf5_unlock();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(locks),
      cmocka_unit_test(takes_turns),
      cmocka_unit_test(gives_reasons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
