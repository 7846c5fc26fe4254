/* What the tests of ranks share: ranks that are processes, which meet as RANK and WORLD_SIZE say, and what
 * each ended with. */
#ifndef MN_TESTS_RANKS_STARTED_H
#define MN_TESTS_RANKS_STARTED_H

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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/hosts.h"
#include "engine/ranks.h"
#include "engine/socket.h"
#include "tests/skip.h"

enum { MOST = 4, TEXT = 4096 };

/* ---- ranks ---- */

typedef mn_status body(struct mn_ranks *ranks);

static struct job {
  int size, port;
  double timeout;
  const char *address; /* MASTER_ADDR; NULL: not set */
  int pmi;             /* PMI's variables say which rank each is, too */
  pid_t ranks[MOST];
  FILE *said[MOST];
  int status[MOST];
  char err[MOST][TEXT];
} job;

static inline void doze(double seconds) {
  nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* A port that was free a moment ago. */
static inline int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  assert_true(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

static inline void set_number(const char *name, int number) {
  char digits[16];
  snprintf(digits, sizeof digits, "%d", number);
  MN_REQUIRE(setenv(name, digits, 1) == 0);
}

static inline void be_rank(int rank, int size, body *run) __attribute__((noreturn));
static inline void be_rank(int rank, int size, body *run) {
  struct mn_ranks *ranks;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(30);
  set_number("RANK", rank);
  set_number("WORLD_SIZE", size);
  set_number("MASTER_PORT", job.port);
  if (job.address) MN_REQUIRE(setenv("MASTER_ADDR", job.address, 1) == 0);
  if (job.pmi) set_number("PMI_RANK", rank), set_number("PMI_SIZE", size);
  mn_status status = mn_ranks_open(&ranks, job.timeout, 0);
  if (status == MN_OK) {
    status = run(ranks);
    mn_ranks_close(ranks);
  }
  if (status != MN_OK && *mn_message()) fprintf(stderr, "minnow: %s\n", mn_message());
  fflush(stderr);
  _exit(status);
}

static inline void start_as(int slot, int rank, int size, body *run) {
  job.said[slot] = tmpfile();
  assert_non_null(job.said[slot]);
  fflush(NULL);
  job.ranks[slot] = fork();
  assert_true(job.ranks[slot] >= 0);
  if (job.ranks[slot] > 0) return;
  dup2(fileno(job.said[slot]), STDERR_FILENO);
  be_rank(rank, size, run);
}

static inline void prepare(int size, double timeout) {
  job = (struct job){.size = size, .port = free_port(), .timeout = timeout, .address = "127.0.0.1"};
}

static inline void start(int size, double timeout, body *run) {
  prepare(size, timeout);
  for (int q = 0; q < size; q++) start_as(q, q, size, run);
}

static inline void finish_one(int slot) {
  int how;
  if (job.ranks[slot] == 0) return;
  assert_int_equal(waitpid(job.ranks[slot], &how, 0), job.ranks[slot]);
  job.status[slot] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  rewind(job.said[slot]);
  job.err[slot][fread(job.err[slot], 1, TEXT - 1, job.said[slot])] = 0;
  fclose(job.said[slot]);
}

static inline void finish(void) {
  for (int q = 0; q < MOST; q++) finish_one(q);
}

static inline int lines(const char *text) {
  int count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

/* Ended with this exit code and one line that has the words; "": with none. */
static inline void assert_end(int slot, int status, const char *words) {
  if (job.status[slot] != status || lines(job.err[slot]) != (*words != 0) || !strstr(job.err[slot], words))
    fail_msg("process %d: exit code %d, '%s'; not %d, '%s'", slot, job.status[slot], job.err[slot], status,
             words);
}

/* All but one, which is missing. */
static inline void assert_ends(int but, int status, const char *words) {
  for (int q = 0; q < job.size; q++)
    if (q != but) assert_end(q, status, words);
}

static struct mn_pace pace = {.count = 1, .step = 7, .longest = 0.01};
static int culprit; /* the rank that a body does something to */
static int resumable;

static inline int is_resumable(void) {
  return resumable;
}

/* Until a rank is missing, or for so long; the culprit does what it does. */
static inline mn_status meet_again(struct mn_ranks *ranks, double seconds, void (*deed)(void)) {
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

static inline mn_status a_moment(struct mn_ranks *ranks) {
  return meet_again(ranks, 0.2, NULL);
}

/* What a launcher of this process has set is none of the tests'. */
static inline void forget_launcher(void) {
  static const char *const launchers[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",   "SLURM_STEP_NUM_TASKS",
                                          "WORLD_SIZE",           "LOCAL_RANK", "MASTER_ADDR",
                                          "TORCHELASTIC_RUN_ID"};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) unsetenv(launchers[i]);
}

#endif
