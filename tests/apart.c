/* Loaded before the programs that tests/coverage.sh runs (LD_PRELOAD): a process that was forked counts the
 * lines it runs into a folder of its own. Some children of the tests cannot write, or are killed as they do,
 * which would spoil the counts of their parents. Those that end by _exit, which would count nothing, are
 * thousands, and have one folder. */
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int forked, ends;

static void count_in(const char *name) {
  char folder[4096];
  const char *all = getenv("APART");
  if (all && snprintf(folder, sizeof folder, "%s-%s", all, name) < (int)sizeof folder)
    setenv("GCOV_PREFIX", folder, 1);
}

/* Counts that a limit cuts off could not be read. */
static void drop_what_is_limited(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    setenv("GCOV_PREFIX", "/dev/null", 1);
}

static void count_apart(void) {
  char number[24];
  forked = 1;
  if (atexit(drop_what_is_limited) != 0) abort();
  snprintf(number, sizeof number, "%ld", (long)getpid());
  count_in(number);
}

/* What the parent has still to print is not printed here too. */
void _exit(int status) {
  if (forked && !ends++) {
    count_in("children");
    __fpurge(stdout);
    exit(status);
  }
  for (;;) syscall(SYS_exit_group, status);
}

/* A program that a child starts counts as its parent does. */
static void __attribute__((constructor)) begin(void) {
  const char *all = getenv("APART");
  if (all) setenv("GCOV_PREFIX", all, 1);
  if (pthread_atfork(NULL, NULL, count_apart) != 0) abort();
}
