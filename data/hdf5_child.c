/* A child process for work that may crash; see hdf5_child.h. */
#include "data/hdf5_child.h"

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

/* Stands before the caller's bytes, and is a multiple of what any type must be aligned to. Whether the child
 * came to its end is read here and not from its exit code, which the program around this library may have
 * collected. */
struct verdict {
  _Alignas(64) int done;
  mn_status status;
  char message[MN_MESSAGE];
};

/* In the child: no message of the C library's or a sanitizer's, no core file; it ends with its parent, and by
 * SIGPROF after so many seconds of computing. A slow disk may take longer. */
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
  /* LLVM's OpenMP has a file in /dev/shm for each process, from the fork on, and _exit would leave it there.
   * Not with libgomp, which has none and would wait for threads that are the parent's. */
  omp_pause_resource_all(omp_pause_hard);
#endif
  _exit(0);
}

mn_status mn_child_run(mn_child_work *work, void *data, int seconds, size_t bytes, void **shared, int *died) {
  *shared = NULL;
  *died = 0;
  struct verdict *verdict =
      mmap(NULL, sizeof *verdict + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (verdict == MAP_FAILED) return mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of a file", bytes);
  *shared = verdict + 1;
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    settle_down(parent, seconds);
    run(work, data, verdict);
  }
  if (child < 0)
    return mn_fail(MN_NO_MEMORY, "cannot start a process to read in: %s: free memory or raise ulimit -u",
                   strerror(errno));
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  if (!__atomic_load_n(&verdict->done, __ATOMIC_ACQUIRE))
    *died = 1;
  else if (verdict->status != MN_OK)
    return mn_fail(verdict->status, "%s", verdict->message);
  return MN_OK;
}

void mn_child_free(void *shared, size_t bytes) {
  if (shared) MN_REQUIRE(munmap((struct verdict *)shared - 1, sizeof(struct verdict) + bytes) == 0);
}
