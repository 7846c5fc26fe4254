/* How many threads a rank is due on its host, and how it names itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/ranks/ranks.h"
#include "tests/skip.h"

/* The cores first … last; last below first: none that is known. */
static cpu_set_t cores(int first, int last) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core = first; core <= last; core++) CPU_SET(core, &set);
  return set;
}

static void assert_threads(const cpu_set_t *sets, const int *threads, int size) {
  for (int q = 0; q < size; q++) assert_int_equal(mn_cores_threads(sets, size, q), threads[q]);
}

/* Nobody is bound: the cores are divided by the ranks that have any here. */
static void unbound_ranks_share_a_host(void **state) {
  const cpu_set_t sets[] = {cores(0, 7), cores(1, 0), cores(0, 7), cores(0, 7)};
  assert_threads(sets, (const int[]){2, 0, 2, 2}, 4);
  assert_int_equal(mn_cores_threads(sets, 1, 0), 8);
}

static void more_ranks_than_cores_have_a_thread_each(void **state) {
  const cpu_set_t sets[] = {cores(0, 1), cores(0, 1), cores(0, 1), cores(0, 1)};
  assert_threads(sets, (const int[]){1, 1, 1, 1}, 4);
}

static void three_ranks_share_six_cores(void **state) {
  const cpu_set_t sets[] = {cores(0, 5), cores(0, 5), cores(0, 5)};
  assert_threads(sets, (const int[]){2, 2, 2}, 3);
}

/* Bound to cores of its own a rank has them all; bound to a socket it shares that with the others there. */
static void bound_ranks_share_what_they_are_bound_to(void **state) {
  const cpu_set_t apart[] = {cores(0, 3), cores(4, 7)};
  assert_threads(apart, (const int[]){4, 4}, 2);
  const cpu_set_t sockets[] = {cores(0, 3), cores(4, 7), cores(0, 3), cores(4, 7)};
  assert_threads(sockets, (const int[]){2, 2, 2, 2}, 4);
}

static void cores_that_are_not_known_are_nobodys(void **state) {
  const cpu_set_t sets[] = {cores(1, 0), cores(0, 3)};
  assert_threads(sets, (const int[]){0, 4}, 2);
}

static void alone_nothing_is_shared(void **state) {
  assert_int_equal(mn_ranks_share_cores(NULL), MN_OK);
}

static void a_rank_names_itself(void **state) {
  struct mn_device *device;
  char text[512], host[256], all[1024];
  assert_int_equal(mn_device_open(&device, "cpu", "fp32", 0), MN_OK);
  assert_int_equal(gethostname(host, sizeof host), 0);
  unsetenv("NCCL_SOCKET_IFNAME");
  mn_host_describe(text, sizeof text, device);
  snprintf(all, sizeof all, "host %s, %s", host, device->name);
  assert_string_equal(text, all);
  assert_int_equal(setenv("NCCL_SOCKET_IFNAME", "ib0", 1), 0);
  mn_host_describe(text, sizeof text, device);
  assert_non_null(strstr(text, ", NCCL_SOCKET_IFNAME=ib0"));
  mn_host_describe(text, 8, device); /* one that is too long is cut off */
  assert_int_equal(strlen(text), 7);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unbound_ranks_share_a_host),
      cmocka_unit_test(more_ranks_than_cores_have_a_thread_each),
      cmocka_unit_test(three_ranks_share_six_cores),
      cmocka_unit_test(bound_ranks_share_what_they_are_bound_to),
      cmocka_unit_test(cores_that_are_not_known_are_nobodys),
      cmocka_unit_test(alone_nothing_is_shared),
      cmocka_unit_test(a_rank_names_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
