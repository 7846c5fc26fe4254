/* Loaded before the programs that tests/coverage.sh runs (LD_PRELOAD): a process that was forked counts the
 * lines it runs into a folder of its own. Some children of the tests cannot write, or are killed as they do,
 * which would spoil the counts of their parents. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void count_apart(void) {
  char folder[4096];
  const char *all = getenv("APART");
  if (all && snprintf(folder, sizeof folder, "%s-%ld", all, (long)getpid()) < (int)sizeof folder)
    setenv("GCOV_PREFIX", folder, 1);
}

/* A program that a child starts counts as its parent does. */
static void __attribute__((constructor)) begin(void) {
  const char *all = getenv("APART");
  if (all) setenv("GCOV_PREFIX", all, 1);
  if (pthread_atfork(NULL, NULL, count_apart) != 0) abort();
}
