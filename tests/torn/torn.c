/* Damages small files in every place and reads each: nothing may crash, hang or pass unseen. Built with
 * AddressSanitizer and UndefinedBehaviorSanitizer by make test-torn.
 *
 *   torn [--sample N] [--seed S] [--all-bits] [--jobs J] [--keep FOLDER] [--write FOLDER] [--variant I]
 * [NAME…]
 *
 * Of each file (NAME…: of these): cut at every length; every byte XORed with 1, 0x80 and 0xff (--all-bits:
 * with each of the 8 bits and 0xff); 64, 512 and 4096 bytes zeroed at every multiple of 64; at every multiple
 * of 8 the 8 bytes there exchanged with the next 8. --sample: N of each file's variants alone, drawn by
 * --seed. --keep: the first variants that fail are kept as files there. --write: nothing is read; the files
 * and these variants of them are written there, for tests/torn/commands.py. --variant: this one alone, with a
 * sanitizer's report on stderr; the name of a file that --keep wrote has its number.
 *
 * A child reads the variants, so that one which crashes or hangs is counted and the rest still read. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/status.h"
#include "tests/torn/reading.h"
#include "tests/torn/sanitizers.h"

enum { SECONDS = 20, FILES = 16, TOLD = 12, JOBS = 64 };

static const char *const outcomes[TORN_OUTCOMES] = {"refused", "equal", "other", "UNSEEN",
                                                    "WRONG",   "CRASH", "HANG"};

/* ---- damage ---- */

enum damage_kind { CUT, FLIP, ZERO, SWAP, DAMAGES };

struct damage {
  enum damage_kind kind;
  size_t at, length; /* bytes zeroed or exchanged, or the value XORed with */
};

struct options {
  int64_t sample, variant; /* variant −1: all, or a sample */
  uint64_t seed;
  int all_bits, jobs;
  const char *keep, *write;
};

static const unsigned char few_bits[] = {1, 0x80, 0xff}, all_bits[] = {1, 2, 4, 8, 16, 32, 64, 128, 0xff};
static const size_t stretches[] = {64, 512, 4096};

static size_t masks(const struct options *o) {
  return o->all_bits ? sizeof all_bits : sizeof few_bits;
}

static size_t variants(const struct options *o, size_t size) {
  return size + size * masks(o) + (size + 63) / 64 * 3 + size / 8 - 1;
}

/* Variant number `index` of a file of `size` bytes. */
static struct damage damage_of(const struct options *o, size_t size, size_t index) {
  const size_t zeros = (size + 63) / 64 * 3;
  if (index < size) return (struct damage){CUT, index, 0};
  index -= size;
  if (index < size * masks(o))
    return (struct damage){FLIP, index / masks(o), (o->all_bits ? all_bits : few_bits)[index % masks(o)]};
  index -= size * masks(o);
  if (index < zeros) return (struct damage){ZERO, index / 3 * 64, stretches[index % 3]};
  return (struct damage){SWAP, (index - zeros) * 8, 8};
}

static void describe(char *out, size_t size, struct damage d) {
  if (d.kind == CUT) snprintf(out, size, "cut to %zu bytes", d.at);
  if (d.kind == FLIP) snprintf(out, size, "byte %zu ^ 0x%02zx", d.at, d.length);
  if (d.kind == ZERO) snprintf(out, size, "bytes %zu to %zu zeroed", d.at, d.at + d.length - 1);
  if (d.kind == SWAP) snprintf(out, size, "bytes %zu to %zu exchanged with the next 8", d.at, d.at + 7);
}

static void write_at(int fd, const unsigned char *bytes, size_t count, size_t at) {
  MN_REQUIRE(pwrite(fd, bytes, count, (off_t)at) == (ssize_t)count);
}

/* Damages the file, which is whole, or with `undo` makes it whole again. */
static void damage(int fd, const unsigned char *bytes, size_t size, struct damage d, int undo) {
  static const unsigned char zeros[4096];
  unsigned char swapped[16];
  size_t end = d.at + (d.kind == SWAP ? 16 : d.kind == FLIP ? 1 : d.length);
  if (end > size) end = size;
  if (d.kind == CUT && !undo) {
    MN_REQUIRE(ftruncate(fd, (off_t)d.at) == 0);
  } else if (d.kind == CUT) {
    write_at(fd, bytes + d.at, size - d.at, d.at);
  } else if (undo) {
    write_at(fd, bytes + d.at, end - d.at, d.at);
  } else if (d.kind == FLIP) {
    swapped[0] = (unsigned char)(bytes[d.at] ^ d.length);
    write_at(fd, swapped, 1, d.at);
  } else if (d.kind == ZERO) {
    write_at(fd, zeros, end - d.at, d.at);
  } else {
    memcpy(swapped, bytes + d.at + 8, 8);
    memcpy(swapped + 8, bytes + d.at, 8);
    write_at(fd, swapped, 16, d.at);
  }
}

/* ---- children ---- */

/* One of --jobs parts of a file's variants, in memory that the child which reads it shares with its parents.
 */
struct shared {
  size_t next; /* place in the order of variants of the one that is being read */
  int reading; /* whether one is */
  int64_t count[DAMAGES][TORN_OUTCOMES];
  int told;
};

struct subject {
  const struct torn_file *file;
  const struct options *options;
  unsigned char *bytes;
  size_t size;
  size_t *order, chosen; /* the variants that are read: each part has every options->jobs-th of them */
  char path[1024], report[1024];
};

/* Writes the file, damaged where d is not NULL, to `path`. */
static void write_variant(const struct subject *s, const char *path, const struct damage *d) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  MN_REQUIRE(fd >= 0);
  write_at(fd, s->bytes, s->size, 0);
  if (d) damage(fd, s->bytes, s->size, *d, 0);
  MN_REQUIRE(close(fd) == 0);
}

static void tell(const struct subject *s, struct shared *shared, size_t place, enum torn_outcome outcome,
                 const char *what) {
  struct damage d = damage_of(s->options, s->size, s->order[place]);
  char how[80], kept[1200] = "";
  shared->count[d.kind][outcome]++;
  if (outcome < TORN_BAD || shared->told++ >= TOLD) return;
  describe(how, sizeof how, d);
  if (s->options->keep) {
    snprintf(kept, sizeof kept, "%s/%s-%zu-%s", s->options->keep, outcomes[outcome], s->order[place],
             s->file->name);
    write_variant(s, kept, &d);
  }
  printf("%s: %s, %s: %s%s%s\n", outcomes[outcome], s->file->name, how, what, *kept ? "; kept as " : "",
         kept);
  fflush(stdout);
}

/* Reads the part's variants from shared->next on. A child that dies does so in the one at shared->next. */
static void read_variants(const struct subject *s, struct shared *shared) {
  char what[2048];
  int fd = open(s->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  int report = open(s->report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  MN_REQUIRE(fd >= 0 && report >= 0);
  if (s->options->variant < 0) MN_REQUIRE(dup2(report, STDERR_FILENO) == STDERR_FILENO);
  write_at(fd, s->bytes, s->size, 0);
  struct torn_content *content = torn_learn(s->file, s->path);
  for (; shared->next < s->chosen; shared->next += (size_t)s->options->jobs) {
    struct damage d = damage_of(s->options, s->size, s->order[shared->next]);
    shared->reading = 1;
    alarm(SECONDS);
    damage(fd, s->bytes, s->size, d, 0);
    enum torn_outcome outcome = torn_read(content, s->path, what, sizeof what);
    damage(fd, s->bytes, s->size, d, 1);
    alarm(0);
    shared->reading = 0;
    tell(s, shared, shared->next, outcome, what);
  }
  torn_forget(content);
  MN_REQUIRE(close(fd) == 0);
  exit(0);
}

/* The kind of a sanitizer's report, and the innermost function that is not the sanitizer's own. */
static void find_summary(const struct subject *s, char *out, size_t size) {
  char line[2048], kind[400] = "no report", where[400] = "";
  FILE *report = fopen(s->report, "r");
  while (report && fgets(line, sizeof line, report)) {
    const char *error = strstr(line, "ERROR: "), *frame = strstr(line, " in ");
    line[strcspn(line, "\n")] = 0;
    if (error || strstr(line, "runtime error: "))
      snprintf(kind, sizeof kind, "%.399s", error ? error + 7 : line);
    char *address = strstr(kind, " on ");
    if (address) *address = 0; /* differs from run to run */
    if (frame && !*where && strstr(line, "    #") && !strstr(line, "sanitizer")) {
      snprintf(where, sizeof where, "%.399s", frame);
      where[strcspn(where, "(")] = 0;
    }
  }
  if (report) fclose(report);
  snprintf(out, size, "%s%s", kind, where);
}

/* Reads all variants of a part, with as many children as that takes. Returns whether one failed otherwise. */
static int read_part(const struct subject *s, struct shared *shared) {
  while (shared->next < s->chosen || shared->reading) {
    int status;
    char what[2048], summary[1900];
    fflush(stdout);
    pid_t child = fork();
    MN_REQUIRE(child >= 0);
    if (child == 0) read_variants(s, shared);
    MN_REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    find_summary(s, summary, sizeof summary);
    if (WIFSIGNALED(status))
      snprintf(what, sizeof what, "signal %d, %s", WTERMSIG(status), summary);
    else
      snprintf(what, sizeof what, "exit code %d, %s", WEXITSTATUS(status), summary);
    if (!shared->reading) { /* at its end: memory that was lost */
      printf("%s: %s\n", s->file->name, what);
      return 1;
    }
    int hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    tell(s, shared, shared->next, hung ? TORN_HANG : TORN_CRASH, what);
    shared->reading = 0;
    shared->next += (size_t)s->options->jobs;
  }
  return 0;
}

/* ---- a file ---- */

static uint64_t draw(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* Which variants are read: all, or a sample, in the order drawn. */
static void choose(struct subject *s) {
  const size_t all = variants(s->options, s->size);
  uint64_t state = s->options->seed;
  s->chosen = s->options->sample && (size_t)s->options->sample < all ? (size_t)s->options->sample : all;
  s->order = malloc(all * sizeof *s->order);
  MN_REQUIRE(s->order);
  for (size_t i = 0; i < all; i++) s->order[i] = i;
  if (s->options->variant >= 0) {
    MN_REQUIRE((size_t)s->options->variant < all);
    s->order[0] = (size_t)s->options->variant;
    s->chosen = 1;
    return;
  }
  for (size_t i = 0; s->chosen < all && i < s->chosen; i++) {
    size_t other = i + (size_t)(draw(&state) % (all - i)), swap = s->order[i];
    s->order[i] = s->order[other];
    s->order[other] = swap;
  }
}

static void slurp(struct subject *s, const char *from) {
  int fd = open(from, O_RDONLY | O_CLOEXEC);
  off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
  MN_REQUIRE(size > 0 && (s->bytes = malloc((size_t)size)));
  s->size = (size_t)size;
  MN_REQUIRE(pread(fd, s->bytes, s->size, 0) == size && close(fd) == 0);
}

static void write_all(const struct subject *s) {
  char path[1200];
  snprintf(path, sizeof path, "%s/%s", s->options->write, s->file->name);
  write_variant(s, path, NULL);
  for (size_t i = 0; i < s->chosen; i++) {
    const struct damage d = damage_of(s->options, s->size, s->order[i]);
    snprintf(path, sizeof path, "%s/%zu-%s", s->options->write, s->order[i], s->file->name);
    write_variant(s, path, &d);
  }
}

/* Reads all variants of a file, --jobs at a time. Returns whether a reader failed otherwise. */
static int read_parts(struct subject *s, const char *folder, struct shared *parts) {
  int bad = 0, status;
  fflush(stdout);
  for (int i = 0; i < s->options->jobs; i++) {
    parts[i].next = (size_t)i;
    snprintf(s->path, sizeof s->path, "%s/damaged-%d", folder, i);
    snprintf(s->report, sizeof s->report, "%s/report-%d", folder, i);
    pid_t child = fork();
    MN_REQUIRE(child >= 0);
    if (child) continue;
    bad = read_part(s, &parts[i]);
    unlink(s->path);
    unlink(s->report);
    exit(bad);
  }
  for (int i = 0; i < s->options->jobs; i++) {
    MN_REQUIRE(wait(&status) > 0);
    bad |= status != 0;
  }
  return bad;
}

/* Adds to `passed` and `failed`. Returns whether all is well. */
static int check_file(const struct torn_file *file, const char *folder, const struct options *o,
                      int64_t *passed, int64_t *failed) {
  struct subject s = {.file = file, .options = o};
  char from[1024];
  snprintf(from, sizeof from, "%s/%s", folder, file->name);
  const size_t bytes = (size_t)o->jobs * sizeof(struct shared);
  struct shared *parts = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  MN_REQUIRE(parts != MAP_FAILED);
  slurp(&s, from);
  choose(&s);
  if (o->write) write_all(&s);
  int bad = o->write ? 0 : read_parts(&s, folder, parts);
  char line[400];
  int length = snprintf(line, sizeof line, "%-18s %6zu bytes, %7zu variants:", file->name, s.size, s.chosen);
  for (int k = 0; k < TORN_OUTCOMES; k++) {
    int64_t count = 0;
    for (int i = 0; i < o->jobs * DAMAGES; i++) count += parts[i / DAMAGES].count[i % DAMAGES][k];
    if (count)
      length +=
          snprintf(line + length, sizeof line - (size_t)length, " %lld %s", (long long)count, outcomes[k]);
    *(k >= TORN_BAD ? failed : passed) += count;
    bad |= k >= TORN_BAD && count;
  }
  if (!o->write) puts(line);
  fflush(stdout);
  munmap(parts, bytes);
  free(s.order);
  free(s.bytes);
  return !bad;
}

/* ---- the program ---- */

static void read_options(struct options *o, int argc, char **argv) {
  static const struct option names[] = {
      {"sample", 1, NULL, 's'}, {"seed", 1, NULL, 'r'}, {"all-bits", 0, NULL, 'b'}, {"variant", 1, NULL, 'v'},
      {"jobs", 1, NULL, 'j'},   {"keep", 1, NULL, 'k'}, {"write", 1, NULL, 'w'},    {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
    if (c == 's') o->sample = atoll(optarg);
    if (c == 'r') o->seed = strtoull(optarg, NULL, 10);
    if (c == 'b') o->all_bits = 1;
    if (c == 'v') o->variant = atoll(optarg);
    if (c == 'j') o->jobs = atoi(optarg);
    if (c == 'k') o->keep = optarg;
    if (c == 'w') o->write = optarg;
    if (c == '?') exit(64);
  }
  if (o->jobs < 1 || o->jobs > JOBS) o->jobs = 1;
}

static int is_named(const char *name, int count, char **names) {
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0) return 1;
  return count == 0;
}

int main(int argc, char **argv) {
  struct options o = {.variant = -1, .jobs = 1};
  char folder[] = "/dev/shm/minnow-torn-XXXXXX", plain[] = "/tmp/minnow-torn-XXXXXX";
  int64_t passed = 0, failed = 0;
  int bad = 0;
  read_options(&o, argc, argv);
  const char *in = mkdtemp(folder);
  if (!in) in = mkdtemp(plain);
  MN_REQUIRE(in);
  torn_sharpen();
  torn_make(in);
  for (const struct torn_file *file = torn_files; file->name; file++) {
    if (!is_named(file->name, argc - optind, argv + optind)) continue;
    bad |= !check_file(file, in, &o, &passed, &failed);
  }
  for (const struct torn_file *file = torn_files; file->name; file++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", in, file->name);
    unlink(path);
  }
  MN_REQUIRE(rmdir(in) == 0);
  if (!o.write) printf("%lld passed, %lld failed\n", (long long)passed, (long long)failed);
  return bad;
}
