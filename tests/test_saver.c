/* Saves beside training: a file holds the values of the moment its save was started, whatever is trained
 * since; training is the same as without saves; and what goes wrong in the thread that writes is told.
 *
 * The writer is held at a gate if a test has to know that it has not ended: in pwrite, defined here over the C
 * library's, and in download_beside, which the tests replace in the table of kernels (on the CPU by a copy). */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>

#include "tests/checkpoint_make.h"
#include "tests/command_call.h"
#include "tests/saving.h"
#include "tests/training.h"
#include "train/command/saves.h"
#include "train/runs/runs.h"

/* ---- the gate ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int closed;          /* the gate is; guarded by `mutex` */
static int signals_blocked; /* SIGINT and SIGTERM, in the thread that last came by; guarded too */

static int blocks_signals(void) {
  sigset_t now;
  MN_REQUIRE(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
  return sigismember(&now, SIGINT) && sigismember(&now, SIGTERM);
}

static void pass_gate(void) {
  MN_REQUIRE(pthread_mutex_lock(&mutex) == 0);
  signals_blocked = blocks_signals();
  while (closed) MN_REQUIRE(pthread_cond_wait(&opened, &mutex) == 0);
  MN_REQUIRE(pthread_mutex_unlock(&mutex) == 0);
}

static void set_gate(int close) {
  MN_REQUIRE(pthread_mutex_lock(&mutex) == 0);
  closed = close;
  MN_REQUIRE(pthread_cond_broadcast(&opened) == 0 && pthread_mutex_unlock(&mutex) == 0);
}

/* ---- what the tests replace ---- */

static int full_disk; /* set while no save runs */

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
  pass_gate();
  if (full_disk) {
    errno = ENOSPC;
    return -1;
  }
  struct iovec part = {(void *)(uintptr_t)bytes, size};
  return pwritev(fd, &part, 1, offset); /* which ThreadSanitizer watches */
}

/* How a snapshot is taken: as the device does it; by a copy on the device; as if that had no room for a copy. */
enum way { OWN, BESIDE, NO_ROOM, WAYS };

static struct {
  const struct mn_kernels *own;
  struct mn_kernels table;
  mn_status allocation, download; /* what these are to return instead of doing it, unless it is MN_OK */
  int downloads;                  /* of download_beside; read while no save runs */
  int copies, noted; /* copies on the device so far, and how many of them stood before the fork */
} fake;

static mn_status fake_fork(struct mn_device *device, enum mn_branch which) {
  if (which == MN_BRANCH_SAVES) fake.noted = fake.copies;
  return fake.own->branch_fork(device, which);
}

static mn_status fake_copy(struct mn_device *device, void *to, const void *from, size_t bytes) {
  fake.copies++;
  return fake.own->copy(device, to, from, bytes);
}

static mn_status fake_narrow(struct mn_device *device, float *to, const struct mn_operand *w, int64_t first,
                             int64_t count) {
  fake.copies++;
  return fake.own->narrow(device, to, w, first, count);
}

static mn_status fake_download_beside(struct mn_device *device, void *to, const void *from, size_t bytes) {
  pass_gate();
  fake.downloads++;
  if (fake.download != MN_OK) return mn_fail(fake.download, "no download today");
  return fake.own->download_beside ? fake.own->download_beside(device, to, from, bytes)
                                   : fake.own->download(device, to, from, bytes);
}

static mn_status fake_allocate(struct mn_device *device, void **out, size_t bytes) {
  if (fake.allocation != MN_OK) return mn_fail(fake.allocation, "no allocation today");
  return fake.own->allocate(device, out, bytes);
}

static void take_way(struct mn_device *device, enum way way) {
  fake.own = device->kernels;
  fake.table = *fake.own;
  fake.allocation = way == NO_ROOM ? MN_NO_MEMORY : MN_OK;
  fake.download = MN_OK;
  fake.downloads = fake.copies = fake.noted = 0;
  if (way == OWN) return;
  fake.table.branch_fork = fake_fork;
  fake.table.copy = fake_copy;
  if (way == BESIDE) fake.table.narrow = fake_narrow; /* else it is a step of a download */
  fake.table.download_beside = fake_download_beside;
  fake.table.allocate = fake_allocate;
  device->kernels = &fake.table;
}

/* ---- a run, and what it has on the device ---- */

static const struct mn_text config[] = {{"hidden", "12,8"}, {"lr", "0.05"}};

struct run {
  struct mn_device *device;
  struct training training;
  struct mn_progress progress;
  struct mn_saver *saver;
};

static void train(struct run *r, int64_t steps) {
  for (int64_t i = 0; i < steps; i++) {
    step(&r->training, (uint64_t)r->progress.step);
    r->progress.step++;
    r->progress.samples += 5;
  }
}

/* The saver is opened by open_saver, after the first saves by other means. */
static struct run open_run(const char *name, const char *precision, struct mn_optimizer_config sgd) {
  struct run r = {.device = open_or_skip(name, precision),
                  .progress = {.rows = 100, .seed = 3, .best = -INFINITY}};
  r.training = open_training(r.device, sgd, 2, 5);
  return r;
}

static void open_saver(struct run *r, const char *to, int keep, enum way way) {
  take_way(r->device, way);
  MUST(mn_saver_open(&r->saver, to, keep, r->training.model, r->training.optimizer));
}

static void close_run(struct run *r) {
  mn_saver_close(r->saver);
  close_training(&r->training);
  mn_device_close(r->device);
}

static mn_status start(struct run *r) {
  return mn_saver_start(r->saver, MN_SAVE_NEWEST, &r->progress, config, COUNT(config));
}

static int64_t saved_by(struct run *r) {
  int64_t saved = -2;
  (void)mn_saver_poll(r->saver, &saved);
  return saved;
}

static void save_at_once(const struct run *r, const char *to) {
  MUST(save_and_wait(to, r->training.model, r->training.optimizer, &r->progress, config, COUNT(config)));
}

/* kept NULL: the parameter's values. */
static void *download_array(const struct run *r, const struct mn_tensor *t, const void *kept) {
  size_t bytes = (size_t)mn_tensor_count(t) * r->device->real;
  void *out = malloc(bytes);
  assert_non_null(out);
  MUST(kept ? r->device->kernels->download(r->device, out, kept, bytes)
            : mn_tensor_download(r->device, t, out));
  return out;
}

/* All parameters, then what the rule keeps first of each, then second; or NULL. */
struct values {
  void *arrays[3 * MN_MODEL_PARAMETERS];
};

static struct values values_of(const struct run *r) {
  const struct mn_model *model = r->training.model;
  struct values out = {{NULL}};
  for (int i = 0; i < model->count; i++) {
    const struct mn_tensor *t = model->parameters[i];
    out.arrays[i] = download_array(r, t, NULL);
    if (t->update.m) out.arrays[model->count + i] = download_array(r, t, t->update.m);
    if (t->update.v) out.arrays[2 * model->count + i] = download_array(r, t, t->update.v);
  }
  return out;
}

static void free_values(struct values *v) {
  for (size_t i = 0; i < COUNT(v->arrays); i++) free(v->arrays[i]);
}

static int same_values(const struct run *r, const struct values *a, const struct values *b) {
  const struct mn_model *model = r->training.model;
  int same = 1;
  for (int i = 0; i < 3 * model->count; i++) {
    size_t bytes = (size_t)mn_tensor_count(model->parameters[i % model->count]) * r->device->real;
    if (!a->arrays[i] != !b->arrays[i]) return 0;
    if (a->arrays[i]) same &= memcmp(a->arrays[i], b->arrays[i], bytes) == 0;
  }
  return same;
}

static void assert_file_holds(const struct run *r, const char *of, const struct values *expected,
                              const struct mn_progress *progress) {
  struct mn_checkpoint *loaded;
  struct values found = {{NULL}};
  MUST(mn_checkpoint_load(&loaded, of));
  assert_int_equal(loaded->tensor_count, r->training.model->count);
  for (int i = 0; i < loaded->tensor_count; i++) {
    const struct mn_checkpoint_tensor *t = &loaded->tensors[i];
    found.arrays[i] = t->value;
    found.arrays[loaded->tensor_count + i] = t->exp_avg ? t->exp_avg : t->momentum;
    found.arrays[2 * loaded->tensor_count + i] = t->exp_avg_sq;
  }
  assert_true(same_values(r, expected, &found));
  assert_int_equal(loaded->progress.step, progress->step);
  assert_int_equal(loaded->progress.samples, progress->samples);
  mn_checkpoint_free(loaded);
}

static void assert_same_files(const char *a, const char *b) {
  size_t sizes[2];
  unsigned char *bytes[] = {read_bytes(a, &sizes[0]), read_bytes(b, &sizes[1])};
  assert_int_equal(sizes[0], sizes[1]);
  assert_memory_equal(bytes[0], bytes[1], sizes[0]);
  free(bytes[0]), free(bytes[1]);
}

/* A test that failed may have left a writer at the gate. */
static int tear_down(void **state) {
  set_gate(0);
  full_disk = 0;
  return teardown(state);
}

/* ---- the tests ---- */

/* The writer is held before it has a byte, and parameters, momentum, progress and options change meanwhile.
 */
static void check_moment(const char *name, const char *precision, struct mn_optimizer_config sgd,
                         enum way way) {
  struct run r = open_run(name, precision, sgd);
  train(&r, 2);
  struct values before = values_of(&r);
  const struct mn_progress progress = r.progress;
  struct mn_text passing[COUNT(config)];
  memcpy(passing, config, sizeof config);
  save_at_once(&r, in_folder("reference.h5"));
  size_t bytes = r.device->bytes;
  open_saver(&r, path, 1, way);
  assert_false(mn_saver_busy(r.saver));
  assert_int_equal(saved_by(&r), -1);
  set_gate(1);
  MUST(mn_saver_start(r.saver, MN_SAVE_NEWEST, &r.progress, passing, COUNT(passing)));
  memset(passing, 'x', sizeof passing);
  assert_int_equal(fake.copies > 0, way == BESIDE);
  assert_int_equal(fake.noted, fake.copies);
  assert_int_equal(r.device->bytes > bytes,
                   way == BESIDE || (way == OWN && r.device->kernels->download_beside));
  train(&r, 3);
  struct values after = values_of(&r);
  assert_false(same_values(&r, &before, &after));
  assert_true(mn_saver_busy(r.saver));
  assert_int_equal(saved_by(&r), -1);
  assert_int_equal(step_of(path), -1);
  set_gate(0);
  int64_t saved = -2;
  MUST(mn_saver_wait(r.saver, &saved));
  assert_int_equal(saved, progress.step);
  assert_int_equal(saved_by(&r), progress.step);
  assert_false(mn_saver_busy(r.saver));
  assert_true(signals_blocked);
  assert_false(blocks_signals());
  assert_int_equal(fake.downloads > 0, way == BESIDE);
  assert_file_holds(&r, path, &before, &progress);
  assert_same_files(path, in_folder("reference.h5"));
  assert_int_equal(unlink(path), 0);
  mn_saver_close(r.saver);
  r.saver = NULL;
  assert_int_equal(r.device->bytes, bytes);
  free_values(&before), free_values(&after);
  close_run(&r);
}

static void a_file_holds_the_moment_of_the_start(void **state) {
  for (enum way way = OWN; way < WAYS; way++)
    for (size_t p = 0; p < COUNT(precisions); p++)
      for (size_t s = 0; s < COUNT(settings); s++) check_moment(*state, precisions[p], settings[s], way);
}

/* Saves as often as they go, while the tape's steps are run, recorded and replayed: nothing differs. */
static void training_is_the_same_beside_saves(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct values ends[2];
    int64_t saved = -1;
    for (int saving = 0; saving < 2; saving++) {
      struct run r = open_run(*state, precisions[p], settings[2]);
      open_saver(&r, path, 1, OWN);
      for (int i = 0; i < 40; i++) {
        if (saving && !mn_saver_busy(r.saver)) MUST(start(&r));
        train(&r, 1);
      }
      MUST(mn_saver_wait(r.saver, &saved));
      assert_int_equal(step_of(path), saved);
      ends[saving] = values_of(&r);
      if (saving) assert_true(same_values(&r, &ends[0], &ends[1]));
      close_run(&r);
    }
    assert_int_equal(unlink(path), 0);
    free_values(&ends[0]), free_values(&ends[1]);
  }
}

/* The second has other values, fewer options, and begins where busy has turned 0, without a wait. */
static void one_save_follows_another(void **state) {
  for (enum way way = OWN; way < WAYS; way++) {
    struct run r = open_run(*state, "fp32", settings[1]);
    int64_t saved;
    train(&r, 1);
    save_at_once(&r, in_folder("first.h5"));
    open_saver(&r, path, 2, way);
    MUST(start(&r));
    train(&r, 1);
    for (int i = 0; i < 60000 && mn_saver_busy(r.saver); i++) pause_for(1);
    assert_false(mn_saver_busy(r.saver));
    assert_int_equal(saved_by(&r), 1);
    assert_same_files(path, in_folder("first.h5"));
    MUST(mn_saver_start(r.saver, MN_SAVE_NEWEST, &r.progress, config + 1, 1));
    struct values then = values_of(&r);
    struct mn_progress progress = r.progress;
    train(&r, 1);
    MUST(mn_saver_wait(r.saver, &saved));
    assert_int_equal(saved, 2);
    MUST(mn_saver_wait(r.saver, &saved));
    assert_int_equal(saved, 2);
    assert_file_holds(&r, path, &then, &progress);
    assert_same_files(in_folder("run.1.h5"), in_folder("first.h5"));
    assert_int_equal(count_files(), 3);
    struct mn_checkpoint *loaded;
    MUST(mn_checkpoint_load(&loaded, path));
    assert_null(mn_text_find(loaded->options, loaded->option_count, "hidden"));
    assert_string_equal(mn_text_find(loaded->options, loaded->option_count, "lr"), "0.05");
    assert_string_equal(mn_text_find(loaded->options, loaded->option_count, "train_rows"), "100");
    mn_checkpoint_free(loaded);
    free_values(&then);
    close_run(&r);
    unlink(path), unlink(in_folder("run.1.h5"));
  }
}

/* The best has a file of its own, and moves none of the newest; written together they are of one moment, and
 * where the best fails there is no newest that would tell of it. */
static void the_best_stands_beside_the_newest(void **state) {
  struct run r = open_run(*state, "fp32", settings[1]);
  char best[2048];
  int64_t saved;
  snprintf(best, sizeof best, "%s", in_folder("best.h5"));
  open_saver(&r, path, 2, OWN);
  save_at_once(&r, in_folder("first.h5"));
  MUST(start(&r));
  MUST(mn_saver_wait(r.saver, NULL));
  train(&r, 1);
  save_at_once(&r, in_folder("second.h5"));
  MUST(mn_saver_start(r.saver, MN_SAVE_BEST, &r.progress, config, COUNT(config)));
  MUST(mn_saver_wait(r.saver, &saved));
  assert_int_equal(saved, 0);
  assert_same_files(path, in_folder("first.h5"));
  assert_same_files(best, in_folder("second.h5"));
  train(&r, 1);
  for (int fails = 0; fails < 2; fails++) {
    if (fails) assert_int_equal(unlink(best) + mkdir(best, 0700), 0);
    MUST(mn_saver_start(r.saver, MN_SAVE_NEWEST | MN_SAVE_BEST, &r.progress, config, COUNT(config)));
    assert_int_equal(mn_saver_wait(r.saver, &saved), fails ? MN_NO_CREATE : MN_OK);
    assert_int_equal(saved, 2);
    if (!fails) assert_same_files(path, best);
    assert_same_files(in_folder("run.1.h5"), in_folder("first.h5"));
  }
  assert_int_equal(rmdir(best), 0);
  close_run(&r);
}

/* The running save ends in `expected`, with these words in the calling thread's message, as often as it is
 * asked; the newest checkpoint stays that of step `saved`. */
static void assert_save_fails(struct run *r, mn_status expected, const char *words, int64_t saved) {
  for (int i = 0; i < 60000 && mn_saver_busy(r->saver); i++) pause_for(1);
  assert_false(mn_saver_busy(r->saver));
  for (int i = 0; i < 4; i++) {
    int64_t now = -2;
    (void)mn_fail(MN_OK, "nothing");
    assert_int_equal(i % 2 ? mn_saver_wait(r->saver, &now) : mn_saver_poll(r->saver, &now), expected);
    assert_says(words);
    assert_int_equal(now, saved);
  }
}

static void a_full_disk_is_told(void **state) {
  struct run r = open_run(*state, "fp32", settings[1]);
  open_saver(&r, path, 3, OWN);
  train(&r, 1);
  MUST(start(&r));
  MUST(mn_saver_wait(r.saver, NULL));
  save_at_once(&r, in_folder("first.h5"));
  train(&r, 1);
  full_disk = 1;
  MUST(start(&r));
  assert_save_fails(&r, MN_IO, "No space left", 1);
  assert_says(path);
  assert_same_files(path, in_folder("first.h5"));
  assert_int_equal(count_files(), 2);
  full_disk = 0;
  set_gate(1);
  MUST(start(&r));
  int64_t saved;
  MUST(mn_saver_poll(r.saver, &saved));
  assert_int_equal(saved, 1);
  set_gate(0);
  MUST(mn_saver_wait(r.saver, &saved));
  assert_int_equal(saved, 2);
  assert_int_equal(step_of(path), 2);
  assert_int_equal(step_of(in_folder("run.1.h5")), 1);
  /* The same comes out of the save that waits. */
  full_disk = 1;
  assert_int_equal(save_and_wait(path, r.training.model, r.training.optimizer, &r.progress, NULL, 0), MN_IO);
  assert_says("No space left");
  full_disk = 0;
  close_run(&r);
}

static void a_folder_that_is_gone_is_told(void **state) {
  struct run r = open_run(*state, "fp32", settings[0]);
  char inside[2048], moved[2048];
  snprintf(inside, sizeof inside, "%s/inside/run.h5", folder);
  snprintf(moved, sizeof moved, "%s/moved/run.h5", folder);
  assert_int_equal(mkdir(in_folder("inside"), 0700), 0);
  open_saver(&r, inside, 2, OWN);
  train(&r, 1);
  MUST(start(&r));
  MUST(mn_saver_wait(r.saver, NULL));
  save_at_once(&r, in_folder("first.h5"));
  assert_int_equal(rename(in_folder("inside"), in_folder("moved")), 0);
  train(&r, 1);
  MUST(start(&r));
  assert_save_fails(&r, MN_NO_CREATE, inside, 1);
  assert_same_files(moved, in_folder("first.h5"));
  assert_int_equal(rename(in_folder("moved"), in_folder("inside")), 0);
  assert_same_files(inside, in_folder("first.h5"));
  assert_int_equal(unlink(inside), 0);
  assert_int_equal(rmdir(in_folder("inside")), 0);
  close_run(&r);
}

/* A device that fails: while the snapshot is taken, start says it and no save runs; in the thread, the save
 * says it. A device without room is no error, and may have room later. */
static void a_device_that_fails_is_told(void **state) {
  struct run r = open_run(*state, "fp32", settings[1]);
  open_saver(&r, path, 1, BESIDE);
  train(&r, 1);
  fake.allocation = MN_LIBRARY;
  assert_int_equal(start(&r), MN_LIBRARY);
  assert_says("no allocation today");
  assert_false(mn_saver_busy(r.saver));
  MUST(mn_saver_wait(r.saver, NULL));
  assert_int_equal(count_files(), 0);
  fake.allocation = MN_NO_MEMORY;
  MUST(start(&r));
  MUST(mn_saver_wait(r.saver, NULL));
  assert_int_equal(fake.downloads, 0);
  fake.allocation = MN_OK;
  fake.download = MN_LIBRARY;
  train(&r, 1);
  MUST(start(&r));
  assert_save_fails(&r, MN_LIBRARY, "no download today", 1);
  assert_int_equal(fake.downloads, 1);
  assert_int_equal(step_of(path), 1);
  fake.download = MN_OK;
  MUST(start(&r));
  MUST(mn_saver_wait(r.saver, NULL));
  assert_int_equal(step_of(path), 2);
  close_run(&r);
}

/* From one rule's checkpoint to another's optimizer: without momentum, with it, AdamW. Without momentum SGD
 * may go on from any of its own. */
static void a_rule_takes_what_it_has_kept(void **state) {
  static const int rules[] = {0, 1, 5}, taken[][3] = {{1, 0, 0}, {1, 1, 0}, {0, 0, 1}};
  static const char *const words[] = {"an exp_avg for blocks.0.fc.weight; resume with its own",
                                      "no momentum for", "no exp_avg for"};
  for (int from = 0; from < 3; from++) {
    struct run r = open_run(*state, "fp32", settings[rules[from]]);
    struct mn_checkpoint *loaded;
    train(&r, 1);
    save_at_once(&r, path);
    close_run(&r);
    MUST(mn_checkpoint_load(&loaded, path));
    for (int to = 0; to < 3; to++) {
      r = open_run(*state, "fp32", settings[rules[to]]);
      mn_status status = mn_snapshot_restore(loaded, r.training.model, r.training.optimizer, NULL);
      assert_int_equal(status, taken[from][to] ? MN_OK : MN_BAD_DATA);
      if (status != MN_OK) assert_non_null(strstr(mn_message(), words[to]));
      MUST(mn_snapshot_restore(loaded, r.training.model, NULL, NULL));
      close_run(&r);
    }
    mn_checkpoint_free(loaded);
    assert_int_equal(unlink(path), 0);
  }
}

/* A new run that ends before its first step is saved; a resumed run if its newest checkpoint is gone. */
static void a_run_without_a_step_is_saved(void **state) {
  struct run r = open_run(*state, "fp32", settings[1]);
  struct mn_checkpoint from = {0};
  struct mn_saves saves;
  struct mn_session session = {.model = r.training.model, .optimizer = r.training.optimizer};
  struct stat before, after;
  session.options.checkpoint = path, session.options.keep = 1, session.config_count = COUNT(config);
  memcpy(session.config, config, sizeof config);
  for (int resumed = 0; resumed < 3; resumed++) {
    session.from = resumed ? &from : NULL;
    assert_true(resumed == 0 || (stat(path, &before) == 0 && (resumed == 1 || unlink(path) == 0)));
    MUST(mn_saves_open(&saves, &session, &r.progress));
    MUST(mn_saves_end(&saves));
    mn_saver_close(saves.saver);
    assert_true(step_of(path) == 0 && stat(path, &after) == 0 &&
                (resumed != 1 || after.st_ino == before.st_ino));
  }
  unlink(path), close_run(&r);
}

static void *open_gate_later(void *data) {
  pause_for(50);
  set_gate(0);
  return data;
}

static void close_waits_for_the_save(void **state) {
  pthread_t later;
  mn_saver_close(NULL);
  for (int momentum = 0; momentum < 2; momentum++) {
    struct run r = open_run(*state, "fp32", settings[1]);
    MUST(mn_saver_open(&r.saver, path, 1, r.training.model, NULL));
    mn_saver_close(r.saver); /* one that has saved nothing */
    MUST(mn_saver_open(&r.saver, path, 1, r.training.model, momentum ? r.training.optimizer : NULL));
    train(&r, 1);
    set_gate(1);
    MUST(start(&r));
    assert_int_equal(pthread_create(&later, NULL, open_gate_later, NULL), 0);
    mn_saver_close(r.saver);
    r.saver = NULL;
    assert_int_equal(step_of(path), 1);
    assert_int_equal(count_files(), 1);
    struct mn_checkpoint *loaded;
    MUST(mn_checkpoint_load(&loaded, path));
    assert_int_equal(loaded->tensors[0].momentum != NULL, momentum);
    mn_checkpoint_free(loaded);
    assert_int_equal(pthread_join(later, NULL), 0);
    assert_int_equal(unlink(path), 0);
    close_run(&r);
  }
}

#define IN_FOLDER(device, test)                                                                              \
  { #test ", " device, test, setup, tear_down, (void *)(uintptr_t)(device) }
#define EACH(test) IN_FOLDER("cpu", test), IN_FOLDER("cuda", test)

int main(void) {
  const struct CMUnitTest tests[] = {
      EACH(a_file_holds_the_moment_of_the_start),
      EACH(training_is_the_same_beside_saves),
      EACH(one_save_follows_another),
      EACH(the_best_stands_beside_the_newest),
      EACH(a_full_disk_is_told),
      EACH(a_folder_that_is_gone_is_told),
      EACH(a_device_that_fails_is_told),
      EACH(a_rule_takes_what_it_has_kept),
      EACH(a_run_without_a_step_is_saved),
      EACH(close_waits_for_the_save),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
