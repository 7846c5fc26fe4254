/* The program `minnow`: reads its options, runs one command, and turns what that returns into one line on
 * stderr and an exit code. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/blas.h"
#include "train/command/commands.h"
#include "train/command/session.h"

enum { MOST = 1024, LEAST_STACK = 512 << 10 };      /* threads; OpenBLAS is built for fewer. Bytes */
#define THREAD (MN_BLAS_BUFFER + ((size_t)8 << 20)) /* a thread's buffer and its stack */

/* libgomp reads it once, when it is loaded. It counts turns of a loop: 300 take some 10 µs. Left to itself, a
 * thread spins for 300,000 at the end of each parallel region, on a core that the thread that it waits for
 * may need (kernels/NOTES.md). */
#define SPINNING "GOMP_SPINCOUNT=300"

/* The number that the environment gives the variable, such as "OMP_NUM_THREADS="; 0: none. */
static int number_of(char **environment, const char *variable) {
  int number = 0;
  for (char **e = environment; *e; e++)
    if (strncmp(*e, variable, strlen(variable)) == 0)
      for (const char *c = *e + strlen(variable); *c >= '0' && *c <= '9' && number < MOST; c++)
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

/* How many threads OpenBLAS and OpenMP will have, at most. */
static int threads_of(char **environment) {
  const int openmp = number_of(environment, "OMP_NUM_THREADS=");
  const int openblas = number_of(environment, "OPENBLAS_NUM_THREADS=");
  const int gotoblas = number_of(environment, "GOTO_NUM_THREADS=");
  int threads = openmp ? openmp : processors();
  if (openblas > threads) threads = openblas;
  return gotoblas > threads ? gotoblas : threads;
}

/* Executes the program anew, unless the user has said how threads wait. Returns if that fails. */
static void execute_spinning(char **words, char **environment) {
  static char spinning[] = SPINNING;
  int count = 0;
  for (; environment[count]; count++)
    if (strncmp(environment[count], "OMP_WAIT_POLICY=", 16) == 0 ||
        strncmp(environment[count], "GOMP_SPINCOUNT=", 15) == 0)
      return;
  char **changed = mmap(NULL, (size_t)(count + 2) * sizeof *changed, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (changed == MAP_FAILED) return;
  memcpy(changed, environment, (size_t)count * sizeof *changed);
  changed[count] = spinning;
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

/* Runs before OpenBLAS's constructor and before the C library has its environment. If the limits leave too
 * little memory for the buffers of all threads, or too small a stack, the program ends with a line; OpenBLAS
 * would ask for memory again and again. */
static void make_room(int count, char **words, char **environment) {
  struct rlimit stack;
  if (count > 0) keep_name(words[0]);
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < LEAST_STACK)
    refuse("minnow: the stack may have less than 512 KiB, which training and HDF5 need; "
           "a higher limit (ulimit -s 8192) would do\n");
  /* Two more than threads: the buffer of a product's caller, and something for all else. */
  const int threads = threads_of(environment), least = threads == 1 ? 1 : threads + 2;
  if (mn_blas_room(THREAD, least) < least)
    refuse(
        "minnow: no memory for OpenBLAS, which takes 128 MiB for each thread before the program begins, and "
        "as much again for the first product; a higher limit (ulimit -v) or OMP_NUM_THREADS=1 would do\n");
  if (threads > 1) execute_spinning(words, environment);
}

/* SIGUSR1 asks training to save; nothing of what else goes on, loading libraries included, is to die of it.
 */
static void before_main(int count, char **words, char **environment) {
  signal(SIGUSR1, SIG_IGN);
  make_room(count, words, environment);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = before_main;

/* With stdin, stdout or stderr closed, the next file opened would get its descriptor, and results or warnings
 * would be written into a checkpoint. So /dev/null gets it: read-only as stdout, where a write then fails and
 * the lost result is noticed. */
static void hold_standard_files(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      int held = open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR);
      (void)held; /* the lowest free number, so fd */
    }
}

/* Results that could not be written are a failure, also where only closing shows it. */
static mn_status close_stdout(mn_status status) {
  int failed = ferror(stdout);
  errno = 0;
  if (fclose(stdout) == 0 && !failed) return status;
  const char *reason = errno ? strerror(errno) : "a write failed";
  if (status != MN_OK) return status;
  return mn_fail(MN_IO, "cannot write to stdout: %s; redirect it to a file that can be written", reason);
}

int main(int argc, char **argv) {
  hold_standard_files();
  /* A reader that went away and a file at its largest size are errors to report, not deaths. */
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  /* Results are short. Buffered until the end, a failed write is reported by close_stdout. */
  static char results[1 << 18];
  if (!isatty(STDOUT_FILENO)) setvbuf(stdout, results, _IOFBF, sizeof results);
  struct mn_options options;
  int done = 0;
  mn_status status = mn_options_parse(&options, argc, argv, &done);
  if (status == MN_OK && !done) status = mn_command_run(stdout, &options);
  status = close_stdout(status);
  /* Among ranks, the one that failed first has told. */
  if (status != MN_OK && *mn_message()) {
    fprintf(stderr, "minnow: %s\n", mn_message());
    mn_convert_show(stderr);
  }
  return status;
}
