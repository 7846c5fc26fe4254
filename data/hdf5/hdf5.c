/* HDF5's lock, errors and driver (pread, pwrite and ftruncate on a descriptor), and child processes. */
#include "data/hdf5/hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include "data/hdf5/file.h"
#include "engine/thread.h"
#include "kernels/clock.h"

/* ---- the lock ---- */

/* The lock is `mutex`. A waiting thread holds `next`: one that unlocks and locks again goes behind it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, next = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int depth; /* the locks that this thread holds */
static _Thread_local struct {
  H5E_auto2_t print;
  void *data;
} hosts; /* how the program around this library has HDF5's errors printed, until this thread unlocks */

static void take_mutex(void) {
  mn_heartbeat();
  if (depth++ > 0) return;
  MN_REQUIRE(pthread_mutex_lock(&next) == 0);
  MN_REQUIRE(pthread_mutex_lock(&mutex) == 0);
  MN_REQUIRE(pthread_mutex_unlock(&next) == 0);
}

static void give_mutex(void) {
  MN_REQUIRE(depth > 0);
  if (--depth == 0) MN_REQUIRE(pthread_mutex_unlock(&mutex) == 0);
}

/* At each lock: a thread-safe HDF5 has it per thread. If it fails, without memory, HDF5 prints an error. */
static void keep_quiet(void) {
  if (depth > 1) return;
  if (H5Eget_auto2(H5E_DEFAULT, &hosts.print, &hosts.data) < 0) hosts.print = NULL;
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void mn_hdf5_lock(void) {
  take_mutex();
  keep_quiet();
}

void mn_hdf5_unlock(void) {
  if (depth == 1) (void)H5Eset_auto2(H5E_DEFAULT, hosts.print, hosts.data);
  give_mutex();
}

/* Room for what HDF5 takes for a file, beside its elements; held from mn_hdf5_end to mn_hdf5_begin. */
enum { ROOM = 8 << 20 };
static void *room;

static void hold(void) {
  if (room) return;
  room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) room = NULL;
}

static mn_status lacks_room(void) {
  return mn_fail(MN_NO_MEMORY, "no %d MiB of memory left for HDF5; a higher limit (ulimit -v) would do",
                 ROOM >> 20);
}

mn_status mn_hdf5_begin(void) {
  take_mutex();
  hold();
  if (!room) {
    give_mutex();
    return lacks_room();
  }
  MN_REQUIRE(munmap(room, ROOM) == 0);
  room = NULL;
  keep_quiet();
  return MN_OK;
}

void mn_hdf5_end(void) {
  hold();
  mn_hdf5_unlock();
}

mn_status mn_hdf5_start(void) {
  MN_TRY(mn_hdf5_begin());
  mn_status status = H5open() < 0 ? mn_fail(MN_LIBRARY, "HDF5 cannot be started") : MN_OK;
  hosts.print = NULL; /* which the end sets */
  hold();
  if (status == MN_OK && !room) status = lacks_room();
  mn_hdf5_end();
  return status;
}

enum { REASON = 160 }; /* bytes */

static _Thread_local int newer; /* the last reason is an unknown version, behind a right checksum if any */

static herr_t take_first(unsigned index, const H5E_error2_t *error, void *text) {
  if (index == 0 && error->desc) snprintf(text, REASON, "%s", error->desc);
  newer = error->desc &&
          (index == 0 ? strstr(error->desc, "version") != NULL : newer && !strstr(error->desc, "checksum"));
  return 0;
}

/* A damaged file may leave objects that libhdf5 cannot close at exit, and it would print that. */
static void end_quietly(void) {
  (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

const char *mn_hdf5_reason(void) {
  static _Thread_local char text[REASON];
  static int ends_quietly;
  text[0] = 0, newer = 0;
  if (!ends_quietly) ends_quietly = atexit(end_quietly) == 0;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, text);
  if (!text[0]) snprintf(text, sizeof text, "no reason given");
  for (char *c; (c = strchr(text, '\n'));)
    *c = ' '; /* some hold the output of ctime; a message is one line */
  return text;
}

/* ---- messages of a damaged file, for data/hdf5/file.h ---- */

mn_status mn_hdf5_damaged(struct mn_hdf5_file *file, const char *name, const char *reason) {
  const int error = file->disk.error;
  if (error == ENOMEM) return mn_fail(MN_NO_MEMORY, "no memory to read %s: free some", file->path);
  if (error)
    return mn_fail(MN_IO, "cannot read %s: %s: check the disk or take a copy", file->path, strerror(error));
  const char *why = reason ? reason : mn_hdf5_reason();
  file->newer = !reason && newer;
  if (file->newer)
    return mn_fail(
        MN_BAD_DATA,
        "%s: %s has a format that this HDF5 does not know (%s; " H5_VERS_INFO "): a newer one wrote "
        "it, or its bytes have changed: write it with libver=(\"earliest\", \"v110\") in h5py, or %s",
        file->path, name, why, file->remedy);
  return mn_fail(MN_BAD_DATA, "%s is damaged at %s (%s%s): %s", file->path, name, reason ? "" : "HDF5: ", why,
                 file->remedy);
}

/* ---- the driver ---- */

int mn_read_at(int fd, uint64_t offset, size_t bytes, void *out, size_t *got) {
  for (*got = 0; *got < bytes;) {
    ssize_t done = pread(fd, (char *)out + *got, bytes - *got, (off_t)(offset + *got));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) break;
    *got += (size_t)done;
  }
  return 0;
}

/* HDF5's state of an open file. The public part must come first. */
struct disk_file {
  H5FD_t base;
  struct mn_hdf5_disk *disk;
  haddr_t allocated; /* the end of the library's allocations ("EOA") */
  haddr_t end;       /* the end of the file ("EOF") */
  int writing;
};

static const haddr_t largest = (haddr_t)INT64_MAX;

static H5FD_t *disk_open(const char *name, unsigned flags, hid_t access, haddr_t maximum) {
  struct mn_hdf5_disk *const *disk = H5Pget_driver_info(access);
  struct disk_file *file = calloc(1, sizeof *file);
  struct stat status;
  if (!disk || !file || fstat((*disk)->fd, &status) != 0) {
    if (disk) (*disk)->error = errno;
    free(file);
    return NULL;
  }
  file->disk = *disk;
  file->writing = (flags & H5F_ACC_RDWR) != 0;
  file->end = (haddr_t)status.st_size;
  return &file->base;
}

static herr_t disk_close(H5FD_t *base) {
  free(base);
  return 0;
}

static herr_t disk_query(const H5FD_t *base, unsigned long *flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

static haddr_t disk_get_eoa(const H5FD_t *base, H5FD_mem_t type) {
  return ((const struct disk_file *)base)->allocated;
}

static herr_t disk_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address) {
  ((struct disk_file *)base)->allocated = address;
  return 0;
}

static haddr_t disk_get_eof(const H5FD_t *base, H5FD_mem_t type) {
  return ((const struct disk_file *)base)->end;
}

static herr_t disk_read(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                        void *buffer) {
  struct disk_file *file = (struct disk_file *)base;
  if (type == H5FD_MEM_DRAW && file->disk->exact && size != file->disk->exact) return -1;
  if (address > largest || size > largest - address) return -1;
  size_t got;
  int error = mn_read_at(file->disk->fd, address, size, buffer, &got);
  if (file->disk->error == 0) file->disk->error = error;
  if (error || (got < size && !file->writing)) return -1;
  memset((char *)buffer + got, 0,
         size - got); /* allocated, not yet written: the library takes zeros for it */
  return 0;
}

static herr_t disk_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t address, size_t size,
                         const void *buffer) {
  struct disk_file *file = (struct disk_file *)base;
  const char *from = buffer;
  while (size > 0 && file->disk->error == 0) {
    ssize_t done = pwrite(file->disk->fd, from, size, (off_t)address);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      file->disk->error = done < 0 ? errno : ENOSPC;
      break;
    }
    from += done;
    address += (haddr_t)done;
    size -= (size_t)done;
  }
  if (address + size > file->end) file->end = address + size; /* even after an error, which is hidden */
  return 0;
}

/* A closed file ends with its allocations: HDF5 refuses a shorter one as cut short. */
static herr_t disk_truncate(H5FD_t *base, hid_t transfer, hbool_t closing) {
  struct disk_file *file = (struct disk_file *)base;
  if (file->end == file->allocated) return 0;
  if (file->disk->error == 0 && ftruncate(file->disk->fd, (off_t)file->allocated) != 0)
    file->disk->error = errno;
  file->end = file->allocated;
  return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = 511, /* of the range left to unregistered programs */
#endif
    .name = "minnow",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct mn_hdf5_disk *), /* a pointer, so that copies of the properties share it */
    .open = disk_open,
    .close = disk_close,
    .query = disk_query,
    .get_eoa = disk_get_eoa,
    .set_eoa = disk_set_eoa,
    .get_eof = disk_get_eof,
    .read = disk_read,
    .write = disk_write,
    .truncate = disk_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* The driver's id, never released: if a file held the last reference, HDF5 1.10.8 would free the driver just
 * before calling its close. */
static hid_t registered(void) {
  static hid_t id = H5I_INVALID_HID; /* under the lock, as all of HDF5 */
  if (id < 0 || H5Iget_type(id) != H5I_VFL) id = H5FDregister(&driver);
  return id;
}

hid_t mn_hdf5_disk_open(struct mn_hdf5_disk *disk, const char *name, hid_t creation) {
  hid_t id = registered(), file = -1;
  hid_t access = id < 0 ? -1 : H5Pcreate(H5P_FILE_ACCESS);
  if (access >= 0 && H5Pset_driver(access, id, &disk) >= 0 &&
      H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0) {
    if (creation < 0)
      file = H5Fopen(name, H5F_ACC_RDONLY, access);
    else if (H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0)
      file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
  }
  if (file < 0) disk->reason = mn_hdf5_reason(); /* H5Pclose would clear it */
  if (access >= 0) H5Pclose(access);
  return file;
}

/* ---- child processes ---- */

/* Lies before the caller's bytes, in a size that aligns any type. `done` is set if the child came to its end;
 * its exit code may have been collected by the program around this library. */
struct verdict {
  _Alignas(64) int done;
  struct mn_outcome outcome;
};

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGXCPU};
enum { CRASHES = sizeof crashes / sizeof *crashes };

/* The child: disables the messages of the C library and of sanitizers, and core files, and does the work. It
 * ends with its parent, and after `seconds` of computing, by SIGXCPU; a slow disk may take longer. */
static void be_child(pid_t parent, mn_child_work *work, void *data, int seconds, struct verdict *verdict) {
  static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
  const struct rlimit none = {0, 0}, limit = {(rlim_t)seconds, (rlim_t)seconds + 1};
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) signal(stops[i], SIG_IGN);
  for (int i = 0; i < CRASHES; i++)
    signal(crashes[i], SIG_DFL);       /* not to the handlers of the program around */
  close(STDERR_FILENO);                /* first, or there may be no descriptor left to open */
  (void)!open("/", O_RDONLY);          /* takes its number; every write fails. /dev/null may be missing */
  (void)setrlimit(RLIMIT_CPU, &limit); /* it fails if the user's hard limit is lower, which stays */
  (void)setrlimit(RLIMIT_CORE, &none); /* without these two the work is the same */
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  mn_outcome_note(&verdict->outcome, work(data, verdict + 1));
  __atomic_store_n(&verdict->done, 1, __ATOMIC_RELEASE);
#ifdef __clang__
  /* LLVM's OpenMP has a file in /dev/shm for each process, which _exit would leave there. libgomp has no such
   * file, and this call would wait for threads of the parent's. */
  omp_pause_resource_all(omp_pause_hard);
#endif
  _exit(0);
}

/* Whether the end `how` of a child shows that its work crashed or never ends; else the child was ended from
 * outside, such as by the kernel when memory runs out. An exit code is a sanitizer's, or unknown. */
static int has_crashed(int how) {
  for (int i = 0; i < CRASHES; i++)
    if (WIFEXITED(how) || WTERMSIG(how) == crashes[i]) return 1;
  return 0;
}

mn_status mn_child_run(const char *path, mn_child_work *work, void *data, int seconds, void *out,
                       size_t bytes, int *died) {
  const size_t shared = sizeof(struct verdict) + bytes;
  struct verdict *verdict = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  mn_status status = MN_OK;
  *died = 0;
  if (verdict == MAP_FAILED) return mn_fail(MN_NO_MEMORY, "no memory for %zu bytes of %s", bytes, path);
  int how = 0; /* stays if the program around this library has collected it */
  pid_t parent = getpid(), child = fork();
  if (child == 0) be_child(parent, work, data, seconds, verdict);
  while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  const int done = child > 0 && __atomic_load_n(&verdict->done, __ATOMIC_ACQUIRE);
  *died = child > 0 && !done && has_crashed(how);
  if (child < 0)
    status = mn_fail(MN_NO_MEMORY, "cannot start a process to read %s in: %s: free memory or raise ulimit -u",
                     path, strerror(errno));
  else if (!done && !*died)
    status = mn_fail(WTERMSIG(how) == SIGKILL ? MN_NO_MEMORY : MN_LIBRARY,
                     "cannot read %s: the process that reads it was ended from outside (%s): free memory, or "
                     "lift the limit that ended it, and try again",
                     path, strsignal(WTERMSIG(how)));
  else if (done && (status = mn_outcome_tell(&verdict->outcome)) == MN_OK && bytes > 0)
    memcpy(out, verdict + 1, bytes);
  MN_REQUIRE(munmap(verdict, shared) == 0);
  return status;
}
