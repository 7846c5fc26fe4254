/* How many threads a rank is due on its host, and how it names itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/ranks/ranks.h"

/* A rank on `host` that may run on the cores first … last; last below first: on none that is known. */
static struct mn_seat seat(const char *host, int first, int last) {
  struct mn_seat s = {.host = ""};
  strcpy(s.host, host);
  CPU_ZERO(&s.cores);
  for (int core = first; core <= last; core++) CPU_SET(core, &s.cores);
  return s;
}

static void assert_threads(const struct mn_seat *seats, const int *threads, int size) {
  for (int q = 0; q < size; q++) assert_int_equal(mn_seats_threads(seats, size, q), threads[q]);
}

/* Nobody is bound: the cores are divided by the ranks of the host, whoever sits on others. */
static void unbound_ranks_share_a_host(void **state) {
  (void)state;
  const struct mn_seat seats[] = {seat("a", 0, 7), seat("b", 0, 7), seat("a", 0, 7), seat("a", 0, 7)};
  assert_threads(seats, (const int[]){2, 8, 2, 2}, 4);
  assert_int_equal(mn_seats_threads(seats, 1, 0), 8);
}

static void more_ranks_than_cores_have_a_thread_each(void **state) {
  (void)state;
  const struct mn_seat seats[] = {seat("a", 0, 1), seat("a", 0, 1), seat("a", 0, 1), seat("a", 0, 1)};
  assert_threads(seats, (const int[]){1, 1, 1, 1}, 4);
}

/* Six thirds of a core, which added up as doubles stay below 2, are two threads. */
static void thirds_are_not_lost(void **state) {
  (void)state;
  const struct mn_seat seats[] = {seat("a", 0, 5), seat("a", 0, 5), seat("a", 0, 5)};
  assert_threads(seats, (const int[]){2, 2, 2}, 3);
}

/* Bound to cores of its own a rank has them all; bound to a socket it shares that with the others there. */
static void bound_ranks_share_what_they_are_bound_to(void **state) {
  (void)state;
  const struct mn_seat cores[] = {seat("a", 0, 3), seat("a", 4, 7)};
  assert_threads(cores, (const int[]){4, 4}, 2);
  const struct mn_seat sockets[] = {seat("a", 0, 3), seat("a", 4, 7), seat("a", 0, 3), seat("a", 4, 7)};
  assert_threads(sockets, (const int[]){2, 2, 2, 2}, 4);
  const struct mn_seat one_roams[] = {seat("a", 0, 1), seat("a", 0, 7)};
  assert_threads(one_roams, (const int[]){1, 7}, 2);
}

static void cores_that_are_not_known_are_nobodys(void **state) {
  (void)state;
  const struct mn_seat seats[] = {seat("a", 1, 0), seat("a", 0, 3)};
  assert_threads(seats, (const int[]){0, 4}, 2);
}

static void alone_nothing_is_shared(void **state) {
  (void)state;
  assert_int_equal(mn_ranks_share_cores(NULL), MN_OK);
}

static void a_rank_names_itself(void **state) {
  (void)state;
  struct mn_device *device;
  char text[512], host[256], all[1024];
  assert_int_equal(mn_device_open(&device, "cpu", "fp32"), MN_OK);
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
      cmocka_unit_test(thirds_are_not_lost),
      cmocka_unit_test(bound_ranks_share_what_they_are_bound_to),
      cmocka_unit_test(cores_that_are_not_known_are_nobodys),
      cmocka_unit_test(alone_nothing_is_shared),
      cmocka_unit_test(a_rank_names_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
