/* MPI by dlopen. Two ABIs are in use, which differ in their communicators and datatypes: Open MPI's are
 * addresses of exported objects; MPICH's (and Intel MPI's and MVAPICH's) are integers. Both pass as a machine
 * word. */
#include "kernels/ranks/mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/clock.h"

enum { TAG_PIECE = 1, TAG_ROLL };
enum { APART = 2 };                              /* seconds between two rolls */
enum { ERROR_TEXT = 8192, THREAD_FUNNELED = 1 }; /* more than any library's MPI_MAX_ERROR_STRING */

typedef mn_mpi_comm handle;

/* MPI's functions that minnow calls, and their parameters. */
#define MPI(F)                                                                                               \
  F(Init_thread, int *count, char ***words, int wanted, int *given)                                          \
  F(Finalize, void)                                                                                          \
  F(Abort, handle comm, int code)                                                                            \
  F(Get_library_version, char *text, int *length)                                                            \
  F(Error_string, int code, char *text, int *length)                                                         \
  F(Comm_set_errhandler, handle comm, handle handler)                                                        \
  F(Comm_rank, handle comm, int *rank)                                                                       \
  F(Comm_size, handle comm, int *size)                                                                       \
  F(Comm_split, handle comm, int color, int key, handle *out)                                                \
  F(Iallgather, const void *mine, int count, handle type, void *theirs, int each, handle type_too,           \
    handle comm, handle *request)                                                                            \
  F(Ialltoall, const void *mine, int count, handle type, void *theirs, int each, handle type_too,            \
    handle comm, handle *request)                                                                            \
  F(Ibcast, void *data, int count, handle type, int from, handle comm, handle *request)                      \
  F(Isend, const void *data, int count, handle type, int to, int tag, handle comm, handle *request)          \
  F(Irecv, void *data, int count, handle type, int from, int tag, handle comm, handle *request)              \
  F(Test, handle *request, int *done, void *status)                                                          \
  F(Iprobe, int from, int tag, handle comm, int *there, void *status)

/* What ranks send each other in a roll. */
struct answer {
  int number, waits;
  int64_t calls;
};

struct peer {
  struct answer heard, sent;
  handle request; /* the last send's; 0 before the first */
  int stands;     /* by its last two answers it waits, in one call */
};

static struct {
#define MEMBER(name, ...) int (*name)(__VA_ARGS__);
  MPI(MEMBER)
  handle world, byte, returns; /* MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN */
  void *ignore;                /* MPI_STATUS_IGNORE */
  int started, own, ranks;
  struct peer *peers; /* [ranks]; NULL: MPI is not open */
  int number;         /* number of the newest roll that this rank has answered, */
  double answered;    /* and when; */
  int calling;        /* the newest is this rank's own, or it waits for the answers to another's */
  double attended;
} mpi;

/* The launcher's own first: with another's, each process would be alone. */
static void load(void) {
  static const char *const open_mpi[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"};
  static const char *const mpich[] = {"libmpich.so.12", "libmpi.so.12", "libmpi.so.40", "libmpi.so"};
  const char *const *names = getenv("PMI_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE") ? mpich : open_mpi;
  for (int i = 0; i < 4 && !dlsym(RTLD_DEFAULT, "MPI_Init_thread"); i++)
    (void)dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
}

/* Fills `mpi` from the libraries that are loaded; returns whether all is there. */
static int find_functions(void) {
#define FIND(name, ...)                                                                                      \
  *(void **)&mpi.name = dlsym(RTLD_DEFAULT, "MPI_" #name);                                                   \
  if (!mpi.name) return 0;
  MPI(FIND)
  mpi.world = (handle)dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
  mpi.byte = (handle)dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
  mpi.returns = (handle)dlsym(RTLD_DEFAULT, "ompi_mpi_errors_return");
  if (mpi.world) return 1;
  mpi.world = 0x44000000, mpi.byte = 0x4c00010d, mpi.returns = 0x54000001; /* MPICH's */
  mpi.ignore = (void *)1;
  return 1;
}

/* Whether there is a library, which is sought once. */
static int is_there(void) {
  static int there = -1;
  if (there < 0) load(), there = find_functions();
  return there;
}

const char *mn_mpi_version(void) {
  static char text[ERROR_TEXT];
  int length;
  if (!is_there() || mpi.Get_library_version(text, &length) != 0) return NULL;
  text[strcspn(text, ",\n")] = 0;
  for (char *c = text; *c; c++)
    if (*c == '\t') *c = ' '; /* MPICH's */
  return text;
}

static mn_status check_mpi(const char *what, int code) {
  char text[ERROR_TEXT];
  int length = 0;
  if (code == 0) return MN_OK;
  if (mpi.Error_string(code, text, &length) != 0) snprintf(text, sizeof text, "error %d", code);
  return mn_fail(MN_LIBRARY, "MPI cannot %s: %s", what, text);
}

/* ---- waiting ---- */

static pthread_t opener; /* the thread that makes all calls, */
static pid_t process;    /* and its process: a child that this forked would take its messages */
static int waiting;      /* enum mn_waiting */
static int64_t calls;
static void (*end_all)(const char *missing); /* of the watchdog's roll; NULL before the first */
static int tells;                            /* mn_mpi_tell_if_late */

#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELEASE)

int64_t mn_mpi_calls(enum mn_waiting *what) {
  *what = (enum mn_waiting)LOAD(waiting);
  return LOAD(calls);
}

void mn_mpi_call_roll(void (*end)(const char *missing)) {
  STORE(end_all, end);
}

void mn_mpi_tell_if_late(void) {
  tells = 1;
}

/* Takes what rank q has sent. */
static void hear(int q) {
  struct peer *p = &mpi.peers[q];
  for (int there = 0;; there = 0) {
    struct answer heard;
    handle request = 0;
    int done = 0;
    if (mpi.Iprobe(q, TAG_ROLL, mpi.world, &there, mpi.ignore) != 0 || !there) return;
    if (mpi.Irecv(&heard, sizeof heard, mpi.byte, q, TAG_ROLL, mpi.world, &request) != 0) return;
    while (!done && mpi.Test(&request, &done, mpi.ignore) == 0) continue;
    p->stands =
        heard.number == p->heard.number + 1 && heard.calls == p->heard.calls && heard.waits && p->heard.waits;
    p->heard = heard;
  }
}

static void answer(int number) {
  mpi.number = number;
  mpi.answered = mn_seconds();
  for (int q = 0; q < mpi.ranks; q++) {
    struct peer *p = &mpi.peers[q];
    int done = !p->request;
    if (q == mpi.own || (!done && (mpi.Test(&p->request, &done, mpi.ignore) != 0 || !done))) continue;
    p->sent =
        (struct answer){.number = number, .waits = LOAD(waiting) != MN_WAITS_FOR_NOTHING, .calls = calls};
    (void)mpi.Isend(&p->sent, sizeof p->sent, mpi.byte, q, TAG_ROLL, mpi.world, &p->request);
  }
}

/* Judges a roll that this rank has called. A rank that has not answered within a second is missing, and the
 * first rank that did answer ends all; the others give it two seconds each. If all stand, all wait for
 * each other. */
static void judge(void (*end)(const char *missing)) {
  int length = 0, before = 0, stand = 1;
  char list[256] = "";
  for (int q = 0; q < mpi.ranks; q++) {
    const struct peer *p = &mpi.peers[q];
    if (q == mpi.own) continue;
    if (p->heard.number >= mpi.number)
      before += q < mpi.own, stand &= p->stands;
    else if (length < 200)
      length += sprintf(list + length, length ? ", %d" : "%d", q);
  }
  if (mn_seconds() - mpi.answered < 1 + 2 * before) return;
  if (length > 0 || stand) end(list);
  STORE(end_all, NULL); /* all are there, and some get on */
  STORE(calls, calls + 1);
}

/* Answers the newest roll, of those that others call and of this rank's own. */
static void attend(void) {
  void (*const end)(const char *) = LOAD(end_all);
  int newest = mpi.number;
  for (int q = 0; q < mpi.ranks; q++) {
    if (q == mpi.own) continue;
    hear(q);
    if (mpi.peers[q].heard.number > newest) newest = mpi.peers[q].heard.number;
  }
  /* If several ranks call at a time, one roll is enough; a second would come too soon to show that a rank
   * stands. */
  if (end && !mpi.calling && newest == mpi.number && mn_seconds() - mpi.answered > APART) newest++;
  mpi.calling = end != NULL;
  if (newest > mpi.number) answer(newest);
  if (end) judge(end);
}

void mn_mpi_attend(enum mn_waiting what) {
  STORE(waiting, what);
  if (mpi.peers && mn_seconds() - mpi.attended > 0.01) {
    attend();
    mpi.attended = mn_seconds();
  }
}

static void attend_beat(void) {
  if (pthread_equal(pthread_self(), opener) && getpid() == process) mn_mpi_attend(MN_WAITS_FOR_NOTHING);
}

/* Waits, as a poll, until the request is done that a call has made. */
static mn_status finish(const char *what, int code, handle *request) {
  const double began = mn_seconds();
  int done = 0;
  STORE(waiting, MN_WAITS_FOR_RANKS);
  for (int64_t polls = 1; code == 0 && !done; polls++) {
    code = mpi.Test(request, &done, mpi.ignore);
    if (done) break;
    (void)sched_yield();
    if (polls % 16 > 0) continue; /* on busy cores each yield takes milliseconds */
    mn_mpi_attend(MN_WAITS_FOR_RANKS);
    if (!tells || mn_seconds() - began < 1) continue;
    fprintf(stderr, "minnow: rank %d: %s; it waits for the other ranks\n", mpi.own, mn_message());
    (void)mn_fail(MN_FAILED, "%s", "");
    tells = 0;
  }
  tells = 0;
  STORE(waiting, MN_WAITS_FOR_NOTHING);
  STORE(calls, calls + 1);
  return check_mpi(what, code);
}

/* ---- opening ---- */

/* Whether the launcher set the variables by which MPI finds the others, as mpirun and srun do for Open MPI,
 * PMIx or PMI. */
static int is_led(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI_JOBID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return 1;
  return 0;
}

mn_status mn_mpi_open(int *rank, int *size) {
  int given;
  if (!is_there())
    return mn_fail(MN_LIBRARY, "several processes were started, but no MPI library is found: install that of "
                               "their launcher (libopenmpi3 or libmpich12), or start one process");
  if (getenv("SLURM_STEP_NUM_TASKS") && !is_led()) /* Open MPI would end the process, with twenty lines */
    return mn_fail(MN_LIBRARY, "srun started several processes, but does not start MPI: srun --mpi=pmix does "
                               "for Open MPI, --mpi=pmi2 for MPICH; srun --mpi=list says which it has");
  MN_REQUIRE(!mpi.started);
  MN_TRY(check_mpi("start", mpi.Init_thread(NULL, NULL, THREAD_FUNNELED, &given)));
  mpi.started = 1;
  MN_TRY(check_mpi("return errors", mpi.Comm_set_errhandler(mpi.world, mpi.returns)));
  MN_TRY(check_mpi("tell the rank", mpi.Comm_rank(mpi.world, rank)));
  MN_TRY(check_mpi("count the ranks", mpi.Comm_size(mpi.world, size)));
  mpi.own = *rank, mpi.ranks = *size;
  mpi.peers = calloc((size_t)*size, sizeof *mpi.peers);
  if (!mpi.peers) return mn_fail(MN_NO_MEMORY, "no memory for ranks");
  opener = pthread_self(), process = getpid();
  mn_heartbeat_also(attend_beat);
  return MN_OK;
}

void mn_mpi_close(void) {
  mn_heartbeat_also(NULL);
  free(mpi.peers);
  mpi.peers = NULL;
  (void)mpi.Finalize(); /* a failure at the end is ignored */
}

void mn_mpi_abort(int code) {
  if (mpi.started) (void)mpi.Abort(mpi.world, code);
  _Exit(code);
}

/* MPICH writes an integer to *out, whose other half is then 0. */
mn_status mn_mpi_split(mn_mpi_comm *out, int color, int key) {
  *out = 0;
  MN_TRY(check_mpi("divide the ranks", mpi.Comm_split(mpi.world, color, key, out)));
  return check_mpi("return errors", mpi.Comm_set_errhandler(*out, mpi.returns));
}

mn_status mn_mpi_allgather(mn_mpi_comm comm, void *all, const void *mine, size_t bytes) {
  const int count = (int)bytes;
  handle request = 0;
  if (!comm) comm = mpi.world;
  return finish("gather", mpi.Iallgather(mine, count, mpi.byte, all, count, mpi.byte, comm, &request),
                &request);
}

mn_status mn_mpi_alltoall(mn_mpi_comm comm, void *to_me, const void *of_mine, size_t bytes) {
  const int count = (int)bytes;
  handle request = 0;
  if (!comm) comm = mpi.world;
  return finish("exchange", mpi.Ialltoall(of_mine, count, mpi.byte, to_me, count, mpi.byte, comm, &request),
                &request);
}

mn_status mn_mpi_broadcast(void *data, size_t bytes, int from) {
  handle request = 0;
  return finish("broadcast", mpi.Ibcast(data, (int)bytes, mpi.byte, from, mpi.world, &request), &request);
}

/* In pieces that a slow network moves in a few seconds each, so that calls get on. */
mn_status mn_mpi_move(void *data, size_t bytes, int rank, int sends) {
  for (int piece; bytes > 0; bytes -= (size_t)piece, data = (char *)data + piece) {
    handle request = 0;
    piece = bytes < (16 << 20) ? (int)bytes : 16 << 20;
    const int code = sends ? mpi.Isend(data, piece, mpi.byte, rank, TAG_PIECE, mpi.world, &request)
                           : mpi.Irecv(data, piece, mpi.byte, rank, TAG_PIECE, mpi.world, &request);
    MN_TRY(finish(sends ? "send" : "receive", code, &request));
  }
  return MN_OK;
}
