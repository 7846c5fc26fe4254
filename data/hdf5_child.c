/* A child process for work that may crash; see hdf5.h. */
#include "data/hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Lies before the caller's bytes, in a size that aligns any type. `done` says whether the child came to its
 * end; its exit code may have been collected by the program around this library. */
struct verdict {
  _Alignas(64) int done;
  mn_status status;
  char message[MN_MESSAGE];
};

/* In the child: disables the messages of the C library and of sanitizers, and core files. The child ends with
 * its parent, and by SIGPROF after `seconds` of computing; a slow disk may take longer. */
static void settle_down(pid_t parent, int seconds) {
  static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
  const struct rlimit none = {0, 0};
  const struct itimerval limit = {.it_value = {.tv_sec = seconds}};
  sigset_t over;
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) signal(stops[i], SIG_IGN);
  signal(SIGPROF, SIG_DFL);
  sigemptyset(&over);
  sigaddset(&over, SIGPROF);
  close(STDERR_FILENO); /* first, or there may be no descriptor left to open */
  if (open("/dev/null", O_WRONLY) < 0 || setrlimit(RLIMIT_CORE, &none) != 0 ||
      prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
      sigprocmask(SIG_UNBLOCK, &over, NULL) != 0 || setitimer(ITIMER_PROF, &limit, NULL) != 0)
    _exit(1);
}

static void run(mn_child_work *work, void *data, struct verdict *verdict) {
  verdict->status = work(data, verdict + 1);
  snprintf(verdict->message, sizeof verdict->message, "%s", mn_message());
  __atomic_store_n(&verdict->done, 1, __ATOMIC_RELEASE);
#ifdef __clang__
  /* LLVM's OpenMP has a file in /dev/shm for each process, which _exit would leave there. libgomp has no such
   * file, and this call would wait for threads of the parent's. */
  omp_pause_resource_all(omp_pause_hard);
#endif
  _exit(0);
}

mn_status mn_child_run(mn_child_work *work, void *data, int seconds, void *out, size_t bytes, int *died) {
  const size_t shared = sizeof(struct verdict) + bytes;
  struct verdict *verdict = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  mn_status status = MN_OK;
  *died = 0;
  if (verdict == MAP_FAILED) return mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of a file", bytes);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    settle_down(parent, seconds);
    run(work, data, verdict);
  }
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  if (child < 0)
    status = mn_fail(MN_NO_MEMORY, "cannot start a process to read in: %s: free memory or raise ulimit -u",
                     strerror(errno));
  else if (!__atomic_load_n(&verdict->done, __ATOMIC_ACQUIRE))
    *died = 1;
  else if (verdict->status != MN_OK)
    status = mn_fail(verdict->status, "%s", verdict->message);
  else if (bytes > 0)
    memcpy(out, verdict + 1, bytes);
  MN_REQUIRE(munmap(verdict, shared) == 0);
  return status;
}
