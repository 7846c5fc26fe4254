/* The README's program, train/install/example.c, with each of its allocations failing in turn, alone and with all
 * after it. It ends with 71 and one line, or as if nothing had failed, and has given back every block.
 *
 * Allocations are those that the program and minnow's code make, to which the linker gives the functions below
 * (--wrap); libraries' own are left alone: HDF5 and libgomp crash without memory. tests/faults has the command.
 * By default the two take turns; ALLOCATIONS=all makes both fail at each. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

int __real_main(void); /* the example's */
int __wrap_main(void);

/* ---- memory ---- */

enum { BLOCKS = 1 << 16 };
/* Under ASan a run takes half a second, so that one allocation in seven fails. An odd step: the two kinds of run
 * still take turns. */
#ifdef __SANITIZE_ADDRESS__
enum { STEP = 7 };
#else
enum { STEP = 1 };
#endif

/* Shared with the process of a run, and with those that it starts. */
static struct report {
  int64_t calls, failed;
  int64_t live; /* blocks when the program's main returned */
  int ended;    /* it did */
} * report;

static int64_t first_to_fail; /* 0: none */
static int all_after;
static void *blocks[BLOCKS];
static int64_t live;
static int busy; /* a lock on the two */

static void lock(void) {
  while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE)) continue;
}
static void unlock(void) {
  __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

static int fails(void) {
  if (!report) return 0;
  const int64_t call = __atomic_add_fetch(&report->calls, 1, __ATOMIC_RELAXED);
  if (first_to_fail == 0 || call < first_to_fail || (call > first_to_fail && !all_after)) return 0;
  __atomic_add_fetch(&report->failed, 1, __ATOMIC_RELAXED);
  return errno = ENOMEM;
}

static void *took(void *block) {
  if (!block || !report) return block;
  lock();
  MN_REQUIRE(live < BLOCKS);
  blocks[live++] = block;
  unlock();
  return block;
}

static void gave(const void *block) {
  lock();
  for (int64_t i = live - 1; i >= 0 && block; i--)
    if (blocks[i] == block) {
      blocks[i] = blocks[--live];
      break;
    }
  unlock();
}

/* An allocating function as the program calls it. */
#define WRAP(type, name, parameters, arguments, failed)                                                      \
  type __real_##name parameters;                                                                             \
  type __wrap_##name parameters;                                                                             \
  type __wrap_##name parameters {                                                                            \
    return fails() ? failed : took(__real_##name arguments);                                                 \
  }
WRAP(void *, malloc, (size_t size), (size), NULL)
WRAP(void *, calloc, (size_t many, size_t size), (many, size), NULL)
WRAP(char *, strdup, (const char *from), (from), NULL)
WRAP(char *, strndup, (const char *from, size_t most), (from, most), NULL)

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block) {
  gave(block);
  __real_free(block);
}

void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size) {
  if (fails()) return NULL;
  gave(block);
  return took(__real_realloc(block, size));
}

int __real_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size) {
  const int status = fails() ? ENOMEM : __real_posix_memalign(out, alignment, size);
  if (status == 0) took(*out);
  return status;
}

int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *format, ...) {
  va_list arguments;
  if (fails()) return -1;
  va_start(arguments, format);
  const int length = vasprintf(out, format, arguments);
  va_end(arguments);
  if (length >= 0) took(*out);
  return length;
}

/* ---- runs ---- */

static char folder[] = "/tmp/minnow-XXXXXX", usual[200];

/* The program in a process of its own, which begins before any library has threads. Its streams go to files. */
static int run_program(int64_t k, int after) {
  *report = (struct report){0};
  unlink("model.h5");
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (!freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(99);
    first_to_fail = k, all_after = after;
    live = 0;
    const int status = __real_main();
    report->live = live;
    report->ended = 1;
    exit(status);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void read_text(char out[200], const char *path) {
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  out[fread(out, 1, 199, file)] = 0;
  fclose(file);
}

static const char *complaint(int status, const char *out, const char *err) {
  const char *end = strchr(err, '\n');
  if (!report->ended) return "ends before its main does";
  if (report->live) return "leaks";
  if (status == 0) return *err || strcmp(out, usual) != 0 ? "ends with 0, but other output" : NULL;
  if (status != MN_NO_MEMORY) return "ends with another code than 71";
  return !end || end[1] || end == err ? "prints other than one line of error" : NULL;
}

static void every_failed_allocation_is_told(void **state) {
  const char *given = getenv("ALLOCATIONS");
  const int both = given && strcmp(given, "all") == 0;
  assert_int_equal(run_program(0, 0), 0);
  read_text(usual, "out");
  const int64_t calls = report->calls;
  assert_true(calls > 100 && report->live == 0);
  int bad = 0, refused = 0;
  for (int64_t run = 0; run < calls * (both ? 2 : 1); run += both ? 1 : STEP) {
    const int64_t k = run % calls + 1;
    const int after = (int)(k + run / calls) % 2, status = run_program(k, after);
    char out[200], err[200];
    read_text(out, "out"), read_text(err, "err");
    const char *wrong = complaint(status, out, err);
    if (wrong)
      print_error("allocation %ld%s: it %s: exit code %d, %ld blocks, %s", (long)k,
                  after ? " and all after it" : "", wrong, status, (long)report->live, err);
    bad += wrong != NULL;
    refused += status != 0;
  }
  print_message("%ld allocations: %d runs end with an error\n", (long)calls, refused);
  assert_int_equal(bad, 0);
  assert_true(refused > calls / STEP / 2);
}

int __wrap_main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_told)};
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (report == MAP_FAILED || !mkdtemp(folder) || chdir(folder) != 0) return MN_IO;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  static const char *const files[] = {"out", "err", "model.h5"};
  for (int i = 0; i < 3; i++) unlink(files[i]);
  return rmdir(folder) == 0 ? failed : MN_IO;
}
