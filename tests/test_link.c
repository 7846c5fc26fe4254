/* The link among ranks: what goes over it, and that a rank which dies, hangs or never comes ends the others
 * in time, with a line that names it. Each rank is a process, and they meet as RANK and WORLD_SIZE say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/hosts.h"
#include "engine/ranks.h"
#include "engine/socket.h"

enum { MOST = 4, TEXT = 4096 };

/* ---- ranks ---- */

typedef mn_status body(struct mn_ranks *ranks);

static struct job {
  int size, port;
  double timeout;
  pid_t ranks[MOST];
  FILE *said[MOST];
  int status[MOST];
  char err[MOST][TEXT];
} job;

static void doze(double seconds) {
  nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* A port that was free a moment ago. */
static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  assert_true(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

static void set_number(const char *name, int number) {
  char digits[16];
  snprintf(digits, sizeof digits, "%d", number);
  MN_REQUIRE(setenv(name, digits, 1) == 0);
}

static void be_rank(int rank, int size, body *run) __attribute__((noreturn));
static void be_rank(int rank, int size, body *run) {
  struct mn_ranks *ranks;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(30);
  set_number("RANK", rank);
  set_number("WORLD_SIZE", size);
  set_number("MASTER_PORT", job.port);
  MN_REQUIRE(setenv("MASTER_ADDR", "127.0.0.1", 1) == 0);
  mn_status status = mn_ranks_open(&ranks, job.timeout, 0);
  if (status == MN_OK) {
    status = run(ranks);
    mn_ranks_close(ranks);
  }
  if (status != MN_OK && *mn_message()) fprintf(stderr, "minnow: %s\n", mn_message());
  fflush(stderr);
  _exit(status);
}

static void start_as(int slot, int rank, int size, body *run) {
  job.said[slot] = tmpfile();
  assert_non_null(job.said[slot]);
  fflush(NULL);
  job.ranks[slot] = fork();
  assert_true(job.ranks[slot] >= 0);
  if (job.ranks[slot] > 0) return;
  dup2(fileno(job.said[slot]), STDERR_FILENO);
  be_rank(rank, size, run);
}

static void prepare(int size, double timeout) {
  job = (struct job){.size = size, .port = free_port(), .timeout = timeout};
}

static void start(int size, double timeout, body *run) {
  prepare(size, timeout);
  for (int q = 0; q < size; q++) start_as(q, q, size, run);
}

static void finish_one(int slot) {
  int how;
  if (job.ranks[slot] == 0) return;
  assert_int_equal(waitpid(job.ranks[slot], &how, 0), job.ranks[slot]);
  job.status[slot] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  rewind(job.said[slot]);
  job.err[slot][fread(job.err[slot], 1, TEXT - 1, job.said[slot])] = 0;
  fclose(job.said[slot]);
}

static void finish(void) {
  for (int q = 0; q < MOST; q++) finish_one(q);
}

static int lines(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

/* Ended with this exit code and one line that has the words; "": with none. */
static void assert_end(int slot, int status, const char *words) {
  if (job.status[slot] != status || lines(job.err[slot]) != (*words != 0) || !strstr(job.err[slot], words))
    fail_msg("process %d: exit code %d, '%s'; not %d, '%s'", slot, job.status[slot], job.err[slot], status,
             words);
}

/* All but one, which is missing. */
static void assert_ends(int but, int status, const char *words) {
  for (int q = 0; q < job.size; q++)
    if (q != but) assert_end(q, status, words);
}

/* ---- bodies ---- */

static struct mn_pace pace = {.count = 1, .step = 7, .longest = 0.01};
static int culprit; /* the rank that a body does something to */
static int resumable;

static int is_resumable(void) {
  return resumable;
}

/* Until a rank is missing, or for so long; the culprit does what it does. */
static mn_status meet_again(struct mn_ranks *ranks, double seconds, void (*deed)(void)) {
  const double end = mn_seconds() + seconds;
  int value = 0;
  mn_ranks_watch(ranks, &pace, is_resumable);
  for (int i = 0; value == 0; i++) {
    __atomic_add_fetch(&pace.count, 1, __ATOMIC_RELEASE);
    if (i == 20 && deed && ranks->rank == culprit) deed();
    value = mn_seconds() > end;
    MN_TRY(mn_ranks_most(ranks, &value));
    doze(0.005);
  }
  return MN_OK;
}

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
static mn_status a_moment(struct mn_ranks *ranks) {
  return meet_again(ranks, 0.2, NULL);
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

/* One says nothing, and many say what no rank does. */
/* torchrun's agent listens at MASTER_PORT itself. */
static void torchruns_own_port_is_left_to_it(void **state) {
  (void)state;
  int agent, next;
  do prepare(2, 3);
  while (mn_socket_listen(&next, job.port + 1) != MN_OK);
  close(next);
  assert_int_equal(mn_socket_listen(&agent, job.port), MN_OK);
  start_as(0, 0, 2, a_moment);
  finish();
  assert_end(0, 70, "; set MASTER_PORT to another");
  setenv("TORCHELASTIC_RUN_ID", "none", 1);
  for (int q = 0; q < 2; q++) start_as(q, q, 2, a_moment);
  unsetenv("TORCHELASTIC_RUN_ID");
  finish();
  close(agent);
  assert_ends(-1, 0, "");
}

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
  set_number("LOCAL_RANK", 1);
  assert_int_equal(mn_launched_find(&launched), MN_OK);
  assert_int_equal(launched.local, 1);
  set_number("OMPI_COMM_WORLD_SIZE", 2); /* a launcher's own go first */
  set_number("OMPI_COMM_WORLD_RANK", 1);
  assert_int_equal(mn_launched_find(&launched), MN_OK);
  assert_true(launched.rank == 1 && launched.size == 2 && launched.mpi);
}

int main(void) {
  static const char *const launchers[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",   "SLURM_STEP_NUM_TASKS",
                                          "WORLD_SIZE",           "LOCAL_RANK", "MASTER_ADDR",
                                          "TORCHELASTIC_RUN_ID"};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) unsetenv(launchers[i]);
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
      cmocka_unit_test(a_rank_that_never_comes_is_named),
      cmocka_unit_test(ranks_out_of_step_are_told),
      cmocka_unit_test(one_that_leaves_tells_why),
      cmocka_unit_test(torchruns_own_port_is_left_to_it),
      cmocka_unit_test(strangers_do_no_harm),
      cmocka_unit_test(ranks_that_cannot_be_are_refused),
      cmocka_unit_test(two_of_one_number_are_refused),
      cmocka_unit_test(an_environment_that_says_too_little),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
