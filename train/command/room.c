/* The number of threads that memory has room for, and how long one that waits for the others spins. */
#include "train/command/room.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/blas.h"

enum { MOST = 1024, LEAST_STACK = 512 << 10 };      /* threads; OpenBLAS is built for fewer. Bytes */
#define THREAD (MN_BLAS_BUFFER + ((size_t)8 << 20)) /* a thread's buffer and its stack */

static const char *const of_threads[] = {
    "OMP_NUM_THREADS=", "OPENBLAS_NUM_THREADS=", "GOTO_NUM_THREADS=", MN_ROOM_WANTED "="};
enum { NAMES = sizeof of_threads / sizeof *of_threads, WANTED = NAMES - 1 };

/* libgomp reads it once, when it is loaded. It counts turns of a loop: 300 take some 10 µs. Left to itself, a
 * thread spins for 300,000 at the end of each parallel region, on a core that the thread that it waits for
 * may need (kernels/NOTES.md). */
#define SPINNING "GOMP_SPINCOUNT=300"

/* Which of the variables above this is; NAMES: none. */
static int name_of(const char *variable) {
  int i = 0;
  while (i < NAMES && strncmp(variable, of_threads[i], strlen(of_threads[i])) != 0) i++;
  return i;
}

static int number_after(const char *variable) {
  int number = 0;
  for (const char *c = strchr(variable, '=') + 1; *c >= '0' && *c <= '9' && number < MOST; c++)
    number = 10 * number + (*c - '0');
  return number < MOST ? number : MOST;
}

static int processors(void) {
  static unsigned char mask[MOST];
  int count = 0;
  if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) != 0) return MOST;
  for (size_t i = 0; i < sizeof mask; i++) count += __builtin_popcount(mask[i]);
  return count < MOST ? count : MOST;
}

/* Whether the user has said how threads wait. */
static int knows_how_to_wait(char **environment) {
  for (char **e = environment; *e; e++)
    if (strncmp(*e, "OMP_WAIT_POLICY=", 16) == 0 || strncmp(*e, "GOMP_SPINCOUNT=", 15) == 0) return 1;
  return 0;
}

/* How many threads OpenBLAS and OpenMP would have, at most. */
static int threads_wanted(char **environment) {
  int wanted = 0, of_openmp = 0;
  for (char **e = environment; *e; e++) {
    const int name = name_of(*e), number = name < WANTED ? number_after(*e) : 0;
    if (name == 0) of_openmp = number;
    if (number > wanted) wanted = number;
  }
  const int all = of_openmp > 0 ? of_openmp : processors();
  return all > wanted ? all : wanted;
}

/* "NAME=number" */
static void assign(char *out, const char *name, int number) {
  char digits[8];
  int count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  out = stpcpy(out, name);
  while (count > 0) *out++ = digits[--count];
  *out = 0;
}

/* Executes the program anew. Returns if that fails. */
static void execute_with(int threads, int wanted, char **words, char **environment) {
  static char asked[64], had[64], spinning[] = SPINNING;
  const int fewer = threads < wanted;
  int count = 0, kept = 0;
  while (environment[count]) count++;
  char **changed = mmap(NULL, (size_t)(count + 4) * sizeof *changed, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (changed == MAP_FAILED) return;
  for (int i = 0; i < count; i++)
    if (!fewer || name_of(environment[i]) == NAMES) changed[kept++] = environment[i];
  if (fewer) {
    assign(asked, of_threads[0], threads);
    assign(had, of_threads[WANTED], wanted);
    changed[kept++] = asked;
    changed[kept++] = had;
  }
  if (!knows_how_to_wait(environment)) changed[kept++] = spinning;
  changed[kept] = NULL;
  execve("/proc/self/exe", words, changed);
}

/* A program that /proc/self/exe was executed as is called "exe" by ps and pkill. */
static void keep_name(const char *word) {
  const char *slash = strrchr(word, '/');
  (void)prctl(PR_SET_NAME, slash ? slash + 1 : word);
}

static void refuse(const char *line) {
  ssize_t written = write(STDERR_FILENO, line, strlen(line));
  (void)written; /* the exit code says it too */
  _exit(MN_NO_MEMORY);
}

void mn_room_before_main(int count, char **words, char **environment) {
  struct rlimit stack;
  if (count > 0) keep_name(words[0]);
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < LEAST_STACK)
    refuse("minnow: the stack may have less than 512 KiB, which training and HDF5 need; "
           "a higher limit (ulimit -s 8192) would do\n");
  /* Two more than threads: the buffer of a product's caller, and something for all else. */
  const int wanted = threads_wanted(environment), room = mn_blas_room(THREAD, wanted + 2);
  const int threads = room > 3 ? room - 2 : 1;
  if (room > 0 && (threads < wanted || (wanted > 1 && !knows_how_to_wait(environment))))
    execute_with(threads, wanted, words, environment);
  if (room >= wanted || (wanted == 1 && room > 0)) return;
  refuse(
      "minnow: no memory for OpenBLAS, which takes 128 MiB before the program begins, and as much again for "
      "the first product; a higher limit (ulimit -v) would do\n");
}
