/* A library to preload (LD_PRELOAD) that makes one call of a program fail, as SQLite's tests do: with the
 * k-th call of a class failing, for each k, a program meets every failure there can be at every place where
 * it can be. In the environment:
 *
 *   INJECT="CLASS K ERROR [COUNT]"
 *
 * and the calls K, K + 1 … K + COUNT − 1 of the class fail (COUNT 0: all from K on; 1 where it is not given).
 * ERROR is an errno; or "kill": the process gets SIGKILL instead of the call; or "short": half the bytes are
 * read or written. Without INJECT calls are only counted.
 *
 *   INJECT_REPORT=FILE      a struct report, kept up to date as the program runs, so that it is right also
 *                           where the program is killed
 *   INJECT_FUNCTIONS=1      system calls are left alone
 *
 * System calls are met where they enter the kernel, by a filter (seccomp) that sends them to a handler of
 * SIGSYS: so also those that the C library makes for a stream, and those of other libraries, are. Memory and
 * HDF5 are met at the functions' names. Counting starts with main and ends when main returns. Two classes of
 * memory tell what the program itself asks for from what libraries do. Linux on x86-64. */
#ifndef __x86_64__
#error "the registers of a system call are named for x86-64 alone"
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The classes, in the order of faults.py. ANY_CALL counts every system call that has a class. */
enum class {
  MEMORY,
  LIBRARY_MEMORY,
  HDF5,
  THREAD,
  ANY_CALL,
  OPEN,
  CLOSE,
  READ,
  WRITE,
  FSYNC,
  RENAME,
  UNLINK,
  LINK,
  ACCESS,
  STAT,
  TRUNCATE,
  LOCK,
  LIST,
  READLINK,
  SEEK,
  DISK,
  DEVICE,
  CLASSES
};
static const char *const words[CLASSES] = {
    "memory", "library-memory", "hdf5",     "thread", "any",  "open",   "close", "read",
    "write",  "fsync",          "rename",   "unlink", "link", "access", "stat",  "truncate",
    "lock",   "list",           "readlink", "seek",   "disk", "device"};

static const struct {
  int number;
  enum class class;
} calls[] = {
    {SYS_open, OPEN},          {SYS_openat, OPEN},   {SYS_close, CLOSE},      {SYS_read, READ},
    {SYS_pread64, READ},       {SYS_write, WRITE},   {SYS_pwrite64, WRITE},   {SYS_writev, WRITE},
    {SYS_fsync, FSYNC},        {SYS_rename, RENAME}, {SYS_renameat2, RENAME}, {SYS_unlink, UNLINK},
    {SYS_link, LINK},          {SYS_access, ACCESS}, {SYS_faccessat, ACCESS}, {SYS_faccessat2, ACCESS},
    {SYS_stat, STAT},          {SYS_lstat, STAT},    {SYS_fstat, STAT},       {SYS_newfstatat, STAT},
    {SYS_ftruncate, TRUNCATE}, {SYS_flock, LOCK},    {SYS_getdents64, LIST},  {SYS_readlink, READLINK},
    {SYS_lseek, SEEK},         {SYS_statfs, DISK}};
enum { CALLS = sizeof calls / sizeof *calls };

static struct report {
  uint64_t counts[CLASSES];
  uint64_t failed; /* calls that were made to fail */
  uint64_t origin; /* where the first of them was called from: the offset in: */
  char library[200];
} own, *report = &own;

static int armed, class = -1, error, killing, halving;
static uint64_t first, count = 1;
static uintptr_t program_start, program_end; /* the program's own code */
static pid_t main_process;                   /* and its process */

static void note_origin(const void *from) {
  Dl_info info;
  if (!dladdr(from, &info)) return;
  report->origin = (uintptr_t)from - (uintptr_t)info.dli_fbase;
  snprintf(report->library, sizeof report->library, "%s", info.dli_fname);
}

/* Counts a call, and says whether it is to fail. */
static int fails(enum class met, const void *from) {
  if (!__atomic_load_n(&armed, __ATOMIC_ACQUIRE)) return 0;
  uint64_t number = __atomic_add_fetch(&report->counts[met], 1, __ATOMIC_RELAXED);
  if ((int)met != class || number < first || (count > 0 && number - first >= count)) return 0;
  if (__atomic_fetch_add(&report->failed, 1, __ATOMIC_RELAXED) == 0) note_origin(from);
  if (killing) kill(main_process, SIGKILL); /* a child that tries a file out ends with it */
  return 1;
}

/* ---- system calls ---- */

/* The only place from which the filter lets them through. */
long inject_call(long number, long a, long b, long c, long d, long e, long f);
extern char inject_called[];
__asm__(".text\ninject_call:\n mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n mov %r8, "
        "%r10\n"
        " mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\ninject_called:\n ret\n");

static void handle(int signal, siginfo_t *info, void *data) {
  greg_t *r = ((ucontext_t *)data)->uc_mcontext.gregs;
  int number = info->si_syscall, met = -1;
  for (int i = 0; i < CALLS; i++)
    if (calls[i].number == number) met = (int)calls[i].class;
  long size = r[REG_RDX];
  if (met == WRITE && r[REG_RDI] == STDERR_FILENO) { /* the one line has to be seen */
  } else if (fails(ANY_CALL, info->si_call_addr) | fails((enum class)met, info->si_call_addr)) {
    if (!halving) {
      r[REG_RAX] = -error;
      return;
    }
    size = (size + 1) / 2;
  }
  r[REG_RAX] = inject_call(number, r[REG_RDI], r[REG_RSI], size, r[REG_R10], r[REG_R8], r[REG_R9]);
}

#define FIELD(name) ((unsigned)offsetof(struct seccomp_data, name))
static void filter_calls(void) {
  const uintptr_t allowed = (uintptr_t)inject_called;
  struct sock_filter code[CALLS + 7] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(allowed >> 32), CALLS + 1, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr))};
  for (int i = 0; i < CALLS; i++)
    code[5 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number,
                                               (unsigned char)(CALLS - i), 0);
  code[5 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  code[6 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  const struct sock_fprog program = {sizeof code / sizeof *code, code};
  const struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
  if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    fprintf(stderr, "inject: system calls cannot be filtered here: %s\n", strerror(errno));
    _exit(99);
  }
}

/* A thread that blocks SIGSYS would end at its first system call. */
int sigfillset(sigset_t *set) {
  memset(set, 0xff, sizeof *set);
  return sigdelset(set, SIGSYS);
}

/* ---- functions ---- */

/* The function of that name that the program would have called, looked up once. */
#define FIND(name)                                                                                           \
  if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, name)

static int no_memory(const void *from) {
  const uintptr_t at = (uintptr_t)from;
  const int programs = at >= program_start && at < program_end;
  if (!fails(programs ? MEMORY : LIBRARY_MEMORY, from)) return 0;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size) {
  static void *(*next)(size_t);
  FIND("malloc");
  return no_memory(__builtin_return_address(0)) ? NULL : next(size);
}
void *calloc(size_t many, size_t size) {
  static void *(*next)(size_t, size_t);
  FIND("calloc");
  return no_memory(__builtin_return_address(0)) ? NULL : next(many, size);
}
void *realloc(void *old, size_t size) {
  static void *(*next)(void *, size_t);
  FIND("realloc");
  return no_memory(__builtin_return_address(0)) ? NULL : next(old, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  static void *(*next)(size_t, size_t);
  FIND("aligned_alloc");
  return no_memory(__builtin_return_address(0)) ? NULL : next(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
  static int (*next)(void **, size_t, size_t);
  FIND("posix_memalign");
  return no_memory(__builtin_return_address(0)) ? ENOMEM : next(out, alignment, size);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *data) {
  static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  FIND("pthread_create");
  return fails(THREAD, __builtin_return_address(0)) ? EAGAIN : next(thread, attributes, start, data);
}

/* Of the functions that tests/faults/device.c stands before. */
int inject_device(void);
int inject_device(void) {
  return fails(DEVICE, __builtin_return_address(0));
}

/* Every function of HDF5's that minnow calls and that can fail (H5_FUNCTIONS, from the Makefile). Eight
 * integers or pointers are the most that one takes; handing on more than were given does no harm. Calls of
 * HDF5's own are let through. */
static long failure_of(const char *name) {
  static const char *const by_zero[] = {"H5Dget_storage_size", "H5Tget_size", "H5Pget_driver_info"};
  for (int i = 0; i < 3; i++)
    if (strcmp(name, by_zero[i]) == 0) return 0;
  return -1;
}
#define H5(name)                                                                                             \
  long name(long, long, long, long, long, long, long, long);                                                 \
  long name(long a, long b, long c, long d, long e, long f, long g, long h) {                                \
    static long (*next)(long, long, long, long, long, long, long, long);                                     \
    const uintptr_t at = (uintptr_t)__builtin_return_address(0);                                             \
    if (at >= program_start && at < program_end && fails(HDF5, __builtin_return_address(0)))                 \
      return failure_of(#name);                                                                              \
    FIND(#name);                                                                                             \
    return next(a, b, c, d, e, f, g, h);                                                                     \
  }
H5_FUNCTIONS

/* ---- main ---- */

static void read_order(void) {
  const char *order = getenv("INJECT");
  char word[32], what[32];
  unsigned long long k, many = 1;
  if (!order) return;
  if (sscanf(order, "%31s %llu %31s %llu", word, &k, what, &many) < 3) abort();
  for (int i = 0; i < CLASSES; i++)
    if (strcmp(word, words[i]) == 0) class = i;
  killing = strcmp(what, "kill") == 0;
  halving = strcmp(what, "short") == 0;
  error = atoi(what);
  if (class < 0 || k == 0 || !(killing || halving || error > 0)) abort();
  first = k;
  count = many;
}

static void open_report(void) {
  const char *path = getenv("INJECT_REPORT");
  int file = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
  if (file < 0) return;
  void *at = ftruncate(file, sizeof own) == 0
                 ? mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                 : MAP_FAILED;
  if (at != MAP_FAILED) report = at;
  close(file);
}

/* The first object is the program. */
static int find_program(struct dl_phdr_info *info, size_t size, void *data) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
    program_start = info->dlpi_addr + segment->p_vaddr;
    program_end = program_start + segment->p_memsz;
  }
  return 1;
}

static int (*real_main)(int, char **, char **);
static int counted_main(int argc, char **argv, char **environment) {
  dl_iterate_phdr(find_program, NULL);
  main_process = getpid();
  read_order();
  open_report();
  if (!getenv("INJECT_FUNCTIONS")) filter_calls();
  __atomic_store_n(&armed, 1, __ATOMIC_RELEASE);
  int result = real_main(argc, argv, environment);
  __atomic_store_n(&armed, 0, __ATOMIC_RELEASE);
  return result;
}

int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                      void (*)(void), void *);
int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv, void (*start)(void),
                      void (*end)(void), void (*unload)(void), void *stack) {
  int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void),
              void *) = (__typeof__(next))dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = program;
  return next(counted_main, argc, argv, start, end, unload, stack);
}
