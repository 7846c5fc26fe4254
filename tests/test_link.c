/* The link among ranks: what goes over it, and that a rank which dies, hangs or leaves ends the others in
 * time, with a line that names it. */
#include "tests/ranks_started.h"

/* ---- bodies ---- */

static mn_status makes_every_call(struct mn_ranks *ranks) {
  enum { OUTPUTS = 10, EACH = 300001 };
  const int rank = ranks->rank, size = ranks->size;
  int64_t first;
  for (int i = 0; i < 100; i++) {
    int value = i % size == rank ? 1000 + i : rank, all[MOST], told[1000];
    MN_TRY(mn_ranks_most(ranks, &value));
    MN_REQUIRE(value == 1000 + i);
    value = rank * rank;
    MN_TRY(mn_ranks_collect(ranks, all, &value, sizeof value));
    for (int q = 0; q < size; q++) MN_REQUIRE(all[q] == q * q);
    for (int j = 0; j < 1000; j++) told[j] = rank == 0 ? i + j : -1;
    MN_TRY(mn_ranks_tell(ranks, told, sizeof told));
    for (int j = 0; j < 1000; j++) MN_REQUIRE(told[j] == i + j);
    MN_TRY(mn_ranks_agree(ranks, MN_OK));
  }
  MN_REQUIRE(mn_ranks_divide(ranks, size + 1) == MN_USAGE);
  const int64_t share = mn_share(OUTPUTS, rank, size, &first);
  unsigned char *piece = malloc((size_t)share * EACH), *whole = rank ? NULL : malloc((size_t)OUTPUTS * EACH);
  MN_REQUIRE(piece && (rank || whole));
  for (int64_t i = 0; i < share * EACH; i++) piece[i] = (unsigned char)((first * EACH + i) % 251);
  MN_TRY(mn_ranks_gather(ranks, whole, piece, OUTPUTS, EACH));
  for (int64_t i = 0; whole && i < (int64_t)OUTPUTS * EACH; i++) MN_REQUIRE(whole[i] == i % 251);
  free(piece);
  free(whole);
  return MN_OK;
}

/* All on this host, and bound to the same cores. */
static mn_status shares_cores(struct mn_ranks *ranks) {
  cpu_set_t cores;
  MN_REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
  const int due = CPU_COUNT(&cores) / ranks->size;
  MN_TRY(mn_ranks_share_cores(ranks));
  MN_REQUIRE(ranks->neighbours == ranks->size && ranks->cores == (due > 1 ? due : 1));
  return MN_OK;
}

/* Without MPI there is nothing to train with on CPUs. */
static mn_status joins_a_cpu(struct mn_ranks *ranks) {
  struct mn_context *context;
  MN_TRY(mn_context_open(&context, "cpu", "fp32"));
  const mn_status status = mn_context_join(context, ranks);
  mn_context_close(context);
  return mn_ranks_agree(ranks, status);
}

/* Ranks 1 to 3 fail, and rank 2 is the first that has something to say. */
static mn_status some_fail(struct mn_ranks *ranks) {
  mn_status mine = MN_OK;
  if (ranks->rank == 1) mine = mn_fail(MN_IO, "%s", "");
  if (ranks->rank == 2) mine = mn_fail(MN_BAD_DATA, "a file of rank 2's");
  if (ranks->rank == 3) mine = mn_fail(MN_NO_INPUT, "a file of rank 3's");
  const mn_status agreed = mn_ranks_agree(ranks, mine);
  MN_REQUIRE((ranks->rank == 2) == (*mn_message() != 0));
  return agreed;
}

static void die(void) {
  _exit(3);
}
static void stop(void) {
  raise(SIGSTOP);
}
static void dawdle(void) {
  doze(1.8);
}

static mn_status one_dies(struct mn_ranks *ranks) {
  return meet_again(ranks, 20, die);
}
static mn_status one_stops(struct mn_ranks *ranks) {
  return meet_again(ranks, 20, stop);
}
static mn_status one_dawdles(struct mn_ranks *ranks) {
  return meet_again(ranks, 2, dawdle);
}
static mn_status one_dawdles_patiently(struct mn_ranks *ranks) {
  pace.patient = ranks->rank == culprit;
  return meet_again(ranks, 2, dawdle);
}
static mn_status one_dawdles_as_long_steps_do(struct mn_ranks *ranks) {
  pace.longest = 1.5;
  return meet_again(ranks, 2, dawdle);
}
static mn_status all_go_on(struct mn_ranks *ranks) {
  return meet_again(ranks, 2, NULL);
}

/* As in a collective of GPUs: nobody is known to wait. The culprit has got less far. */
static mn_status all_stand_still(struct mn_ranks *ranks) {
  pace.step = ranks->rank == culprit ? 6 : 7;
  mn_ranks_watch(ranks, &pace, is_resumable);
  doze(10);
  return MN_OK;
}

static mn_status one_is_out_of_step(struct mn_ranks *ranks) {
  int value = 0;
  MN_TRY(mn_ranks_most(ranks, &value));
  MN_TRY(ranks->rank == 1 ? mn_ranks_most(ranks, &value) : mn_ranks_tell(ranks, &value, sizeof value));
  return mn_ranks_most(ranks, &value);
}

static void leave_alone(void) {
  (void)mn_fail(MN_NO_INPUT, "a file that rank 1 misses");
}
static mn_status one_leaves(struct mn_ranks *ranks) {
  int value = 0;
  if (ranks->rank == culprit) leave_alone(), mn_ranks_leave(ranks, MN_NO_INPUT);
  return mn_ranks_most(ranks, &value);
}

/* Rank 1 has said goodbye, and rank 0 calls it. */
static mn_status one_is_done_early(struct mn_ranks *ranks) {
  int value = 0;
  return ranks->rank == 1 ? MN_OK : mn_ranks_most(ranks, &value);
}

/* Rank 0, which would end them all, cannot. */
static mn_status one_leaves_unheard(struct mn_ranks *ranks) {
  int value = 0;
  MN_TRY(mn_ranks_most(ranks, &value));
  if (ranks->rank == 0) raise(SIGSTOP);
  doze(0.3);
  leave_alone(), mn_ranks_leave(ranks, MN_NO_INPUT);
}

/* ---- tests ---- */

static void calls_carry_what_they_say(void **state) {
  (void)state;
  for (int size = 2; size <= MOST; size++) {
    start(size, 10, makes_every_call);
    finish();
    assert_ends(-1, 0, "");
  }
}

static void ranks_of_a_host_share_its_cores(void **state) {
  (void)state;
  start(2, 10, shares_cores);
  finish();
  assert_ends(-1, 0, "");
}

static void who_has_a_message_tells(void **state) {
  (void)state;
  start(4, 10, some_fail);
  finish();
  assert_ends(2, 65, "");
  assert_end(2, 65, "a file of rank 2's");
}

/* At once, whatever the timeout. */
static void a_rank_that_dies_is_named(void **state) {
  (void)state;
  char words[64];
  for (culprit = 0; culprit < 3; culprit++) {
    const double began = mn_seconds();
    resumable = culprit != 1;
    start(3, 20, one_dies);
    finish();
    snprintf(words, sizeof words, "minnow: rank %d on ", culprit);
    assert_ends(culprit, resumable ? 75 : 70, words);
    assert_ends(culprit, resumable ? 75 : 70, " is gone in step 7; ");
    assert_ends(culprit, resumable ? 75 : 70, resumable ? "--resume goes on" : "no checkpoint was saved");
    assert_true(mn_seconds() - began < 5);
  }
}

static void a_rank_that_is_stopped_is_named(void **state) {
  (void)state;
  char words[64];
  resumable = 1;
  for (culprit = 0; culprit < 4; culprit += 3) {
    const double began = mn_seconds();
    start(4, 0.5, one_stops);
    for (int q = 0; q < 4; q++)
      if (q != culprit) finish_one(q);
    assert_true(mn_seconds() - began > 0.5 && mn_seconds() - began < 6);
    kill(job.ranks[culprit], SIGKILL);
    finish_one(culprit);
    snprintf(words, sizeof words, "minnow: rank %d on ", culprit);
    assert_ends(culprit, 75, words);
    assert_ends(culprit, 75, " has given no sign of life for 0.5 s in step 7; --resume");
  }
}

/* Its beats go on. */
static void a_rank_that_does_not_get_on_is_named(void **state) {
  (void)state;
  char words[64];
  resumable = 0;
  for (culprit = 0; culprit < 2; culprit++) {
    start(3, 0.5, one_dawdles);
    finish();
    snprintf(words, sizeof words, "minnow: rank %d on ", culprit);
    assert_ends(-1, 70, words);
    assert_ends(-1, 70, " has not got on for 0.5 s in step 7; no checkpoint");
  }
}

static void who_may_take_long_may(void **state) {
  (void)state;
  culprit = 1;
  start(2, 1, one_dawdles_patiently);
  finish();
  assert_ends(-1, 0, "");
  start(2, 1, one_dawdles_as_long_steps_do);
  finish();
  assert_ends(-1, 0, "");
}

static void a_standstill_is_told(void **state) {
  (void)state;
  culprit = -1;
  start(3, 0.5, all_stand_still);
  finish();
  assert_ends(-1, 70, "minnow: no rank has got on for 0.5 s in step 7; no checkpoint");
  culprit = 1;
  start(3, 0.5, all_stand_still);
  finish();
  assert_ends(-1, 70, "minnow: rank 1 on ");
}

/* Ctrl-Z, or a lid that is closed: nobody hangs, however long that was. */
static void a_run_that_is_stopped_as_a_whole_goes_on(void **state) {
  (void)state;
  start(3, 1, all_go_on);
  doze(0.5);
  for (int q = 0; q < 3; q++) kill(job.ranks[q], SIGSTOP);
  doze(1.5);
  for (int q = 0; q < 3; q++) kill(job.ranks[q], SIGCONT), doze(0.1);
  finish();
  assert_ends(-1, 0, "");
}

static void ranks_out_of_step_are_told(void **state) {
  (void)state;
  start(2, 10, one_is_out_of_step);
  finish();
  assert_true(job.status[0] == 70 && job.status[1] == 70);
  char both[2 * TEXT];
  snprintf(both, sizeof both, "%s%s", job.err[0], job.err[1]);
  if (lines(both) < 1 || !strstr(both, "ranks are out of step: rank ") || !strstr(both, "call 2, "))
    fail_msg("'%s'", both);
}

static void one_that_leaves_tells_why(void **state) {
  (void)state;
  for (culprit = 0; culprit < 2; culprit++) {
    start(3, 10, one_leaves);
    finish();
    assert_ends(culprit, 66, "");
    assert_end(culprit, 66, ": a file that rank 1 misses");
  }
}

static void one_that_leaves_unheard_ends(void **state) {
  (void)state;
  const double began = mn_seconds();
  start(2, 20, one_leaves_unheard);
  finish_one(1);
  assert_true(mn_seconds() - began < 10);
  kill(job.ranks[0], SIGKILL);
  finish_one(0);
  assert_end(1, 66, ": a file that rank 1 misses");
}

static void one_that_is_done_early_is_named(void **state) {
  (void)state;
  start(2, 10, one_is_done_early);
  finish();
  assert_end(0, 70, "minnow: rank 0: rank 1 on ");
  assert_end(0, 70, " has closed its connection before call 1: ");
  assert_end(1, 0, "");
}

static void cpus_need_mpi(void **state) {
  (void)state;
  start(2, 10, joins_a_cpu);
  finish();
  assert_end(0, 64, "CPU ranks exchange rows by MPI: start them by mpirun or srun");
  assert_end(1, 64, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_carry_what_they_say),
      cmocka_unit_test(ranks_of_a_host_share_its_cores),
      cmocka_unit_test(who_has_a_message_tells),
      cmocka_unit_test(a_rank_that_dies_is_named),
      cmocka_unit_test(a_rank_that_is_stopped_is_named),
      cmocka_unit_test(a_rank_that_does_not_get_on_is_named),
      cmocka_unit_test(who_may_take_long_may),
      cmocka_unit_test(a_standstill_is_told),
      cmocka_unit_test(a_run_that_is_stopped_as_a_whole_goes_on),
      cmocka_unit_test(ranks_out_of_step_are_told),
      cmocka_unit_test(one_that_leaves_tells_why),
      cmocka_unit_test(one_that_leaves_unheard_ends),
      cmocka_unit_test(one_that_is_done_early_is_named),
      cmocka_unit_test(cpus_need_mpi),
  };
  forget_launcher();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
