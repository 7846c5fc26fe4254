/* MPI by dlopen. Two ABIs are in use, which differ in what a communicator and a datatype are: Open MPI's are
 * addresses of objects that it exports, those of MPICH (and of Intel MPI and MVAPICH) are integers. Both pass
 * as a machine word. */
#include "kernels/mpi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_TEXT = 8192, THREAD_FUNNELED = 1 }; /* more than any library's MPI_MAX_ERROR_STRING */

typedef mn_mpi_comm handle;

struct mn_mpi {
  int (*init)(int *count, char ***words, int wanted, int *given);
  int (*finalize)(void);
  int (*version)(char *text, int *length);
  int (*error)(int code, char *text, int *length);
  int (*handler)(handle comm, handle handler);
  int (*rank)(handle comm, int *rank);
  int (*size)(handle comm, int *size);
  int (*split)(handle comm, int color, int key, handle *out);
  int (*all_gather)(const void *mine, int count, handle type, void *all, int each, handle type_too,
                    handle comm);
  int (*exchange)(const void *of_mine, int count, handle type, void *to_me, int each, handle type_too,
                  handle comm);
  int (*broadcast)(void *data, int count, handle type, int from, handle comm);
  handle world, byte, returns; /* MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN */
  int started;
};

/* The launcher's own first: with another's, each process would be alone. */
static void *load(void) {
  static const char *const open_mpi[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"};
  static const char *const mpich[] = {"libmpich.so.12", "libmpi.so.12", "libmpi.so.40", "libmpi.so"};
  const char *const *names = getenv("PMI_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE") ? mpich : open_mpi;
  void *library = dlsym(RTLD_DEFAULT, "MPI_Init_thread") ? dlopen(NULL, RTLD_NOW) : NULL;
  for (int i = 0; i < 4 && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
  return library;
}

/* Fills `out` from the library; returns whether all is there. */
static int find(struct mn_mpi *out, void *library) {
  const struct {
    const char *name;
    void *to;
  } functions[] = {{"MPI_Init_thread", &out->init},
                   {"MPI_Finalize", &out->finalize},
                   {"MPI_Get_library_version", &out->version},
                   {"MPI_Error_string", &out->error},
                   {"MPI_Comm_set_errhandler", &out->handler},
                   {"MPI_Comm_rank", &out->rank},
                   {"MPI_Comm_size", &out->size},
                   {"MPI_Comm_split", &out->split},
                   {"MPI_Allgather", &out->all_gather},
                   {"MPI_Alltoall", &out->exchange},
                   {"MPI_Bcast", &out->broadcast}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *found = dlsym(library, functions[i].name);
    if (!found) return 0;
    memcpy(functions[i].to, &found, sizeof found);
  }
  out->world = (handle)dlsym(library, "ompi_mpi_comm_world");
  out->byte = (handle)dlsym(library, "ompi_mpi_byte");
  out->returns = (handle)dlsym(library, "ompi_mpi_errors_return");
  if (!out->world) out->world = 0x44000000, out->byte = 0x4c00010d, out->returns = 0x54000001; /* MPICH's */
  return 1;
}

/* The library, once for the process; NULL: there is none. */
static struct mn_mpi *the_library(void) {
  static struct mn_mpi mpi;
  static int sought, there;
  if (!sought) {
    void *library = load();
    there = library && find(&mpi, library);
    sought = 1;
  }
  return there ? &mpi : NULL;
}

const char *mn_mpi_version(void) {
  static char text[ERROR_TEXT];
  int length;
  struct mn_mpi *mpi = the_library();
  if (!mpi || mpi->version(text, &length) != 0) return NULL;
  text[strcspn(text, ",\n")] = 0;
  for (char *c = text; *c; c++)
    if (*c == '\t') *c = ' '; /* MPICH's */
  return text;
}

static mn_status check(struct mn_mpi *mpi, const char *what, int code) {
  char text[ERROR_TEXT];
  int length = 0;
  if (code == 0) return MN_OK;
  if (mpi->error(code, text, &length) != 0) snprintf(text, sizeof text, "error %d", code);
  return mn_fail(MN_LIBRARY, "MPI cannot %s: %s", what, text);
}

/* Whether whoever started this process told it how MPI finds the others, as mpirun and srun do by variables
 * of Open MPI, PMIx or PMI. */
static int is_led(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI_JOBID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return 1;
  return 0;
}

mn_status mn_mpi_open(struct mn_mpi **out, int *rank, int *size) {
  int given;
  *out = NULL;
  struct mn_mpi *mpi = the_library();
  if (!mpi)
    return mn_fail(MN_LIBRARY, "several processes were started, but no MPI library is found: install that of "
                               "their launcher (libopenmpi3 or libmpich12), or start one process");
  if (getenv("SLURM_STEP_NUM_TASKS") && !is_led()) /* Open MPI would end the process, with twenty lines */
    return mn_fail(MN_LIBRARY, "srun started several processes, but does not start MPI: srun --mpi=pmix does "
                               "for Open MPI, --mpi=pmi2 for MPICH; srun --mpi=list says which it has");
  MN_REQUIRE(!mpi->started);
  MN_TRY(check(mpi, "start", mpi->init(NULL, NULL, THREAD_FUNNELED, &given)));
  mpi->started = 1;
  MN_TRY(check(mpi, "return errors", mpi->handler(mpi->world, mpi->returns)));
  MN_TRY(check(mpi, "tell the rank", mpi->rank(mpi->world, rank)));
  MN_TRY(check(mpi, "count the ranks", mpi->size(mpi->world, size)));
  *out = mpi;
  return MN_OK;
}

void mn_mpi_close(struct mn_mpi *mpi) {
  if (mpi) (void)mpi->finalize(); /* nothing is to be done about a failure at the end */
}

static int waiting;

int mn_mpi_waits(void) {
  return __atomic_load_n(&waiting, __ATOMIC_ACQUIRE);
}

/* Around the calls that wait. */
static void wait(int waits) {
  __atomic_store_n(&waiting, waits, __ATOMIC_RELEASE);
}

/* MPICH writes an integer to *out, whose other half is then 0. */
mn_status mn_mpi_split(struct mn_mpi *mpi, mn_mpi_comm *out, int color, int key) {
  *out = 0;
  MN_TRY(check(mpi, "divide the ranks", mpi->split(mpi->world, color, key, out)));
  return check(mpi, "return errors", mpi->handler(*out, mpi->returns));
}

mn_status mn_mpi_all_gather(struct mn_mpi *mpi, mn_mpi_comm comm, void *all, const void *mine, size_t bytes) {
  MN_REQUIRE(bytes <= MN_MPI_MOST);
  const int count = (int)bytes;
  if (!comm) comm = mpi->world;
  wait(1);
  const int code = mpi->all_gather(mine, count, mpi->byte, all, count, mpi->byte, comm);
  wait(0);
  return check(mpi, "gather", code);
}

mn_status mn_mpi_exchange(struct mn_mpi *mpi, mn_mpi_comm comm, void *to_me, const void *of_mine,
                          size_t bytes) {
  MN_REQUIRE(bytes <= MN_MPI_MOST);
  const int count = (int)bytes;
  if (!comm) comm = mpi->world;
  wait(1);
  const int code = mpi->exchange(of_mine, count, mpi->byte, to_me, count, mpi->byte, comm);
  wait(0);
  return check(mpi, "exchange", code);
}

mn_status mn_mpi_broadcast(struct mn_mpi *mpi, void *data, size_t bytes, int from) {
  MN_REQUIRE(bytes <= MN_MPI_MOST);
  wait(1);
  const int code = mpi->broadcast(data, (int)bytes, mpi->byte, from, mpi->world);
  wait(0);
  return check(mpi, "broadcast", code);
}
