/* How ranks meet: as a launcher's variables say, whoever else comes, or does not come. */
#include <ftw.h>

#include "tests/ranks_started.h"

/* Rank 0, which all others connect to, has room for them. */
static mn_status has_room(struct mn_ranks *ranks) {
  struct rlimit limit;
  MN_REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  MN_REQUIRE(ranks->rank > 0 || limit.rlim_cur > 512 || limit.rlim_cur == limit.rlim_max);
  return MN_OK;
}

static void a_rank_that_never_comes_is_named(void **state) {
  (void)state;
  prepare(4, 1);
  start_as(0, 0, 4, a_moment);
  start_as(1, 2, 4, a_moment);
  finish();
  assert_end(0, 70, "minnow: ranks 1, 3 of 4 have not come within 1 s");
  assert_end(1, 70, "minnow: ranks 1, 3 of 4 have not come within 1 s");
  prepare(2, 1);
  start_as(0, 1, 2, a_moment);
  finish();
  assert_end(0, 70, "minnow: rank 0 does not answer at 127.0.0.1:");
}

static void many_ranks_have_room(void **state) {
  (void)state;
  struct rlimit before, low;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  low = (struct rlimit){.rlim_cur = 256, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  start(2, 10, has_room);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  finish();
  assert_ends(-1, 0, "");
}

static int sweep(const char *path, const struct stat *stat, int type, struct FTW *where) {
  (void)stat, (void)type, (void)where;
  (void)!remove(path);
  return 0;
}

/* Open MPI's daemon, which outlives the process that it was for, may be removing files there at the same
 * time. */
static void remove_folder(const char *folder) {
  for (int i = 0; i < 1000 && access(folder, F_OK) == 0; i++, doze(0.01))
    (void)nftw(folder, sweep, 16, FTW_DEPTH | FTW_PHYS);
  assert_int_equal(access(folder, F_OK), -1);
}

/* Two processes that each start Open MPI alone may both fail where they make its folders at the same time. */
static void start_apart(int slot, const char *folder) {
  char own[4096 + 16];
  snprintf(own, sizeof own, "%s/%d", folder, slot);
  assert_true(mkdir(own, 0700) == 0 || errno == EEXIST);
  assert_int_equal(setenv("TMPDIR", own, 1), 0);
  start_as(slot, slot, 2, a_moment);
}

/* The variables are MPICH's, but this MPI is another: it knows of one process. They meet all the same where
 * an address is set. */
static void ranks_of_another_mpi(void **state) {
  (void)state;
  const char *version = mn_mpi_version(), *base = getenv("TMPDIR");
  char folder[4096], before[4096];
  if (!version || !strstr(version, "Open MPI")) SKIP("no Open MPI");
  /* Open MPI leaves a folder of a process that ends without it. */
  snprintf(before, sizeof before, "%s", base ? base : "");
  snprintf(folder, sizeof folder, "%s/minnow_meeting_XXXXXX", base && *base ? base : "/tmp");
  assert_non_null(mkdtemp(folder));
  prepare(2, 10);
  job.pmi = 1;
  for (int q = 0; q < 2; q++) start_apart(q, folder);
  finish();
  assert_ends(-1, 0, "");
  job.address = NULL;
  start_apart(0, folder);
  finish_one(0);
  assert_int_equal(base ? setenv("TMPDIR", before, 1) : unsetenv("TMPDIR"), 0);
  remove_folder(folder);
  assert_end(0, 70, "MPICH started 2 processes, but Open MPI");
}

static int connect_to_job(void) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)job.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  for (int i = 0; i < 500; i++, doze(0.01)) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
  }
  fail_msg("nobody listens at port %d", job.port);
  return -1;
}

/* torchrun's agent listens at MASTER_PORT itself. */
static void torchruns_own_port_is_left_to_it(void **state) {
  (void)state;
  int agent, next;
  do prepare(2, 1);
  while (mn_socket_listen(&next, job.port + 1) != MN_OK);
  close(next);
  assert_int_equal(mn_socket_listen(&agent, job.port), MN_OK);
  for (int q = 0; q < 2; q++) start_as(q, q, 2, a_moment);
  finish();
  assert_end(0, 70, "; set MASTER_PORT to another");
  assert_end(1, 70, "minnow: rank 0 does not answer at 127.0.0.1:");
  setenv("TORCHELASTIC_RUN_ID", "none", 1);
  for (int q = 0; q < 2; q++) start_as(q, q, 2, a_moment);
  unsetenv("TORCHELASTIC_RUN_ID");
  finish();
  close(agent);
  assert_ends(-1, 0, "");
}

/* One says nothing, and many say what no rank does. */
static void strangers_do_no_harm(void **state) {
  (void)state;
  char noise[1000];
  prepare(2, 10);
  start_as(0, 0, 2, a_moment);
  const int silent = connect_to_job();
  memset(noise, 'x', sizeof noise);
  for (int i = 0; i < 100; i++) {
    const int fd = connect_to_job();
    (void)!send(fd, noise, i % 2 ? sizeof noise : 10, MSG_NOSIGNAL);
    if (i % 3) close(fd);
  }
  start_as(1, 1, 2, a_moment);
  finish();
  close(silent);
  assert_ends(-1, 0, "");
}

static void ranks_that_cannot_be_are_refused(void **state) {
  (void)state;
  prepare(2, 3);
  start_as(0, 0, 2, a_moment);
  start_as(1, 1, 3, a_moment);
  doze(0.5);
  start_as(2, 1, 2, a_moment);
  finish();
  assert_end(0, 0, "");
  assert_end(1, 64, "rank 1 of 3 cannot join the 2 ranks of rank 0: give all the same number of ranks");
  assert_end(2, 0, "");
}

static void two_of_one_number_are_refused(void **state) {
  (void)state;
  prepare(3, 1.5);
  start_as(0, 0, 3, a_moment);
  start_as(1, 1, 3, a_moment);
  doze(0.5);
  start_as(2, 1, 3, a_moment);
  finish();
  assert_end(0, 70, "rank 2 of 3 has not come within 1.5 s");
  assert_end(1, 70, "rank 2 of 3 has not come within 1.5 s");
  assert_end(2, 64, "another has that number");
}

static void an_environment_that_says_too_little(void **state) {
  (void)state;
  struct mn_launched launched;
  assert_int_equal(mn_launched_find(&launched), MN_OK);
  assert_int_equal(launched.size, 1);
  set_number("WORLD_SIZE", 4);
  set_number("RANK", 3);
  assert_int_equal(mn_launched_find(&launched), MN_USAGE);
  assert_non_null(strstr(mn_message(), "MASTER_ADDR"));
  set_number("MASTER_PORT", 29500);
  setenv("MASTER_ADDR", "somewhere", 1);
  assert_int_equal(mn_launched_find(&launched), MN_OK);
  assert_true(launched.rank == 3 && launched.size == 4 && launched.local == 3 && !launched.mpi);
  set_number("RANK", 4);
  assert_int_equal(mn_launched_find(&launched), MN_USAGE);
  assert_non_null(strstr(mn_message(), "WORLD_SIZE=4, but RANK is no number below it"));
  setenv("RANK", "three", 1);
  assert_int_equal(mn_launched_find(&launched), MN_USAGE);
  assert_non_null(strstr(mn_message(), "RANK='three' is no number of a process"));
  set_number("RANK", 3);
  set_number("LOCAL_RANK", 1);
  assert_int_equal(mn_launched_find(&launched), MN_OK);
  assert_int_equal(launched.local, 1);
  set_number("OMPI_COMM_WORLD_SIZE", 2); /* a launcher's own go first */
  set_number("OMPI_COMM_WORLD_RANK", 1);
  assert_int_equal(mn_launched_find(&launched), MN_OK);
  assert_true(launched.rank == 1 && launched.size == 2 && launched.mpi);
}

static void a_name_without_an_address(void **state) {
  (void)state;
  struct mn_addresses place;
  assert_int_equal(mn_addresses_find(&place, "no..name", 29500), MN_USAGE);
  assert_non_null(strstr(mn_message(), "MASTER_ADDR=no..name has no address: "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_that_never_comes_is_named),
      cmocka_unit_test(many_ranks_have_room),
      cmocka_unit_test(ranks_of_another_mpi),
      cmocka_unit_test(torchruns_own_port_is_left_to_it),
      cmocka_unit_test(strangers_do_no_harm),
      cmocka_unit_test(ranks_that_cannot_be_are_refused),
      cmocka_unit_test(two_of_one_number_are_refused),
      cmocka_unit_test(an_environment_that_says_too_little),
      cmocka_unit_test(a_name_without_an_address),
  };
  forget_launcher();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
