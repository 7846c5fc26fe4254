/* The door to HDF5: its lock, which one thread may take twice, and the reason it gives for a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <hdf5.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "data/hdf5.h"

static int entered; /* guarded by the lock */

static void *enter(void *data) {
  mn_hdf5_lock();
  entered = 1;
  mn_hdf5_unlock();
  return data;
}

static void locks(void **state) {
  (void)state;
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

static void gives_reasons(void **state) {
  (void)state;
  char text[200], little[8];
  mn_hdf5_lock();
  H5Eclear2(H5E_DEFAULT);
  assert_string_equal(mn_hdf5_reason(text, sizeof text), "no reason given");
  assert_true(H5Fopen("build/no/such.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
  assert_string_not_equal(mn_hdf5_reason(text, sizeof text), "no reason given");
  text[7] = 0;
  assert_string_equal(mn_hdf5_reason(little, sizeof little), text);
  assert_string_equal(mn_hdf5_reason(little, 1), "");
  H5Eclear2(H5E_DEFAULT);
  /* The innermost is pushed first. */
  H5Epush2(H5E_DEFAULT, "f", "g", 1, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "on %s\nday", "Mon");
  H5Epush2(H5E_DEFAULT, "f", "g", 1, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "outer");
  assert_string_equal(mn_hdf5_reason(text, sizeof text), "on Mon day");
  H5Eclear2(H5E_DEFAULT);
  mn_hdf5_unlock();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(locks),
      cmocka_unit_test(gives_reasons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
