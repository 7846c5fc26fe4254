/* Reading ranges of rows, in tasks that threads take in order. */
#include "data/placement.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/thread.h"
#include "kernels/clock.h"
#include "kernels/device.h"
#include "kernels/planes.h"
#include "kernels/ranks/collectives.h"

enum { MOST_THREADS = 16 };
/* Bytes of x, or of wider y that is standardised, that a task reads, and the most that a stop waits for.
 * Small, to stay in a core's cache between reading and rounding; larger if one thread reads through HDF5,
 * because each call costs. */
#define TASK_BYTES ((int64_t)512 << 10)
#define LONE_TASK_BYTES ((int64_t)4 << 20)

struct reading {
  struct mn_dataset *dataset;
  const struct mn_rows_form *form;
  const struct mn_range *ranges;
  int64_t count, task_rows;
  const struct mn_rows *to;
  const int *stop;
  /* `mutex` guards these */
  pthread_mutex_t mutex;
  int64_t range, done;       /* the next task starts `done` rows into this range */
  int64_t tasks, failed;     /* tasks taken; the earliest that failed, or −1 */
  struct mn_outcome outcome; /* of the failed task */
};

mn_status mn_rows_form(struct mn_rows_form *form, const struct mn_dataset *dataset,
                       const struct mn_device *device) {
  const int64_t most = INT64_MAX / 65536 / (int64_t)sizeof(double);
  const size_t bf16 = device->scaled ? 0 : device->plane;
  if (dataset->inputs > most || dataset->outputs > most)
    return mn_fail(MN_NO_MEMORY, "rows of %lld inputs and %lld outputs do not fit in memory",
                   (long long)dataset->inputs, (long long)dataset->outputs);
  *form = (struct mn_rows_form){
      .real = device->real,
      .bf16 = bf16,
      .scaled = device->scaled && mn_has_planes(device, 8, dataset->inputs) ? sizeof(float) : 0,
      .x_row = (size_t)dataset->inputs * (bf16 ? bf16 : device->real),
      .y_row = dataset->classes ? sizeof(int32_t) : (size_t)dataset->outputs * device->real,
      .weight = dataset->weights ? device->real : 0,
      .threads = device->ranks ? device->ranks->cores : 0};
  return MN_OK;
}

/* Notes the status of task `number`, this thread's last, and takes the next; returns its number, or −1 after
 * the last and after a failed one. */
static int64_t next_task(struct reading *r, int64_t number, mn_status status, struct mn_range *task) {
  MN_REQUIRE(pthread_mutex_lock(&r->mutex) == 0);
  if (status != MN_OK && (r->failed < 0 || number < r->failed)) {
    r->failed = number;
    mn_outcome_note(&r->outcome, status);
  }
  number = -1;
  if (r->range < r->count && r->failed < 0 && !(r->stop && __atomic_load_n(r->stop, __ATOMIC_ACQUIRE))) {
    const struct mn_range *range = &r->ranges[r->range];
    int64_t left = range->count - r->done, rows = left < r->task_rows ? left : r->task_rows;
    *task = (struct mn_range){range->first + r->done, rows, range->at + r->done};
    r->done += rows;
    if (r->done == range->count) r->range++, r->done = 0;
    number = r->tasks++;
    if (r->to->fingerprint && range->count == r->dataset->rows) /* before training, not beside it */
      mn_heartbeat_of("rows read", range->count - left, range->count);
  }
  MN_REQUIRE(pthread_mutex_unlock(&r->mutex) == 0);
  return number;
}

/* Rounds `count` floats to bfloat16, as elements of `size` bytes: 2, or 4 on the CPU. */
static void round_all(void *to, const float *from, int64_t count, size_t size) {
  if (size == sizeof(float)) {
    float *out = to;
    for (int64_t i = 0; i < count; i++) out[i] = mn_to_bf16(from[i]);
  } else {
    uint16_t *out = to;
    for (int64_t i = 0; i < count; i++) out[i] = mn_bf16_bits(from[i]);
  }
}

static float largest_of(const float *values, int64_t count) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < count; i++) largest = mn_scale_larger(largest, values[i]);
  return largest;
}

mn_status mn_standard_set(struct mn_standard *s, int64_t columns, const double *mean, const double *scale) {
  double *all = mean ? malloc(3 * (size_t)columns * sizeof *all) : NULL;
  if (mean && !all) return mn_fail(MN_NO_MEMORY, "no memory for %ld means and scales", (long)columns);
  free(s->mean);
  *s = mean ? (struct mn_standard){all, all + columns, all + 2 * columns, s->log}
            : (struct mn_standard){.log = s->log};
  for (int64_t i = 0; mean && i < columns; i++)
    s->mean[i] = mean[i], s->scale[i] = scale[i], s->inverse[i] = 1 / scale[i];
  return MN_OK;
}

void mn_standard_apply(const struct mn_standard *s, size_t real, void *to, size_t had, const void *from,
                       int64_t rows, int64_t cols) {
  const float *narrow = from;
  float *out = to;
  const int floats = had == sizeof *narrow && real == sizeof *out;
  for (int64_t at = 0; at < rows * cols; at += cols) {
    for (int64_t c = 0; c < cols && floats && s->mean; c++) /* the most frequent case, which vectorises */
      out[at + c] = (float)(((double)narrow[at + c] - s->mean[c]) * s->inverse[c]);
    for (int64_t c = 0; c < cols && !(floats && s->mean); c++) {
      const double own = mn_real_at(from, had, at + c),
                   value = s->mean ? (own - s->mean[c]) * s->inverse[c] : own;
      mn_real_put(to, real, at + c, value);
    }
  }
}

/* Adds x or y of a task, as read, to the fingerprint that is wanted. */
static void note(const struct reading *r, const struct mn_range *task, int side, size_t real,
                 const void *values) {
  const struct mn_dataset *d = r->dataset;
  if (r->to->fingerprint && d->fingerprinting && values)
    d->fingerprinting->add(r->to->fingerprint, d, side, side == MN_Y && d->classes ? sizeof(int32_t) : real,
                           task->first, task->count, values);
}

/* Reads x or y of a task. What is standardised is read in its stored width, so that the mean is subtracted
 * before rounding. */
static mn_status read_side(const struct reading *r, const struct mn_range *task, int side, char *stored,
                           char *to) {
  const struct mn_rows_form *form = r->form;
  const struct mn_standard *s = &form->standard[side];
  struct mn_dataset *d = r->dataset;
  const int64_t cols = side == MN_X ? d->inputs : d->outputs;
  const size_t had = s->mean ? mn_stored_real(d, side) : form->real;
  void *values = s->mean ? stored : to;
  if (!to) return MN_OK;
  MN_TRY(
      d->read(d, task->first, task->count, had, side == MN_X ? values : NULL, side == MN_Y ? values : NULL));
  note(r, task, side, had, values);
  if (s->mean) mn_standard_apply(s, form->real, to, had, stored, task->count, cols);
  return MN_OK;
}

/* scratch: task_rows rows of floats if x is rounded; stored: rows of x or y in doubles if any is
 * standardised. */
static mn_status read_task(const struct reading *r, const struct mn_range *task, float *scratch,
                           char *stored) {
  const struct mn_rows_form *form = r->form;
  struct mn_dataset *d = r->dataset;
  const struct mn_rows *to = r->to;
  char *x = (char *)to->x + (size_t)task->at * form->x_row;
  char *y = to->y ? (char *)to->y + (size_t)task->at * form->y_row : NULL;
  if (form->standard[MN_X].mean || form->standard[MN_Y].mean) {
    MN_TRY(read_side(r, task, MN_X, stored, form->bf16 ? (char *)scratch : x));
    MN_TRY(read_side(r, task, MN_Y, stored, y));
  } else { /* at once: a teacher computes y from x */
    MN_TRY(d->read(d, task->first, task->count, form->real, form->bf16 ? (void *)scratch : x, y));
    note(r, task, MN_X, form->real, form->bf16 ? (void *)scratch : x);
    note(r, task, MN_Y, form->real, y);
  }
  mn_heartbeat();
  if (d->classes && y) /* in any dataset: the losses index a row of outputs by labels */
    MN_TRY(mn_labels_check((const int32_t *)y, task->first, task->count, d->outputs, "the data", "it"));
  if (form->bf16) round_all(x, scratch, task->count * d->inputs, form->bf16);
  for (int64_t i = 0; i < task->count && to->largest; i++)
    to->largest[task->at + i] = largest_of((const float *)x + i * d->inputs, d->inputs);
  for (int64_t i = 0; i < task->count && to->weights; i++)
    mn_real_put(to->weights, form->real, task->at + i, d->weights[task->first + i]);
  return MN_OK;
}

/* The columns of x or, if more, of y that is standardised: of what a task has in memory of its own. */
static int64_t widest_of(const struct mn_dataset *d, const struct mn_rows_form *form) {
  return form->standard[MN_Y].mean && d->outputs > d->inputs ? d->outputs : d->inputs;
}

static void *work(void *data) {
  struct reading *r = data;
  struct mn_range task;
  int64_t number = -1;
  mn_status status = MN_OK;
  const struct mn_dataset *d = r->dataset;
  const int standardised = r->form->standard[MN_X].mean || r->form->standard[MN_Y].mean;
  const size_t values = (size_t)(r->task_rows * d->inputs);
  const size_t widest = (size_t)(r->task_rows * widest_of(d, r->form));
  float *scratch = r->form->bf16 ? malloc(values * sizeof *scratch) : NULL;
  char *stored = standardised ? malloc(widest * sizeof(double)) : NULL;
  const int lacks = (r->form->bf16 && !scratch) || (standardised && !stored);
  while ((number = next_task(r, number, status, &task)) >= 0)
    status = lacks ? mn_fail(MN_NO_MEMORY, "no memory to read %zu values", widest)
                   : read_task(r, &task, scratch, stored);
  free(scratch), free(stored);
  return NULL;
}

static int threads_for(const struct reading *r, int64_t rows) {
  int64_t tasks = rows / r->task_rows + r->count;
  int64_t cores = r->form->threads > 0 ? r->form->threads : mn_team_cores();
  int64_t most = r->dataset->parallel == r->form->real && cores > 1 ? cores : 1;
  if (most > MOST_THREADS) most = MOST_THREADS;
  return (int)(tasks < most ? tasks : most);
}

mn_status mn_read_rows(struct mn_dataset *dataset, const struct mn_rows_form *form,
                       const struct mn_range *ranges, int64_t count, const struct mn_rows *to,
                       const int *stop) {
  struct reading r = {.dataset = dataset,
                      .form = form,
                      .ranges = ranges,
                      .count = count,
                      .to = to,
                      .stop = stop,
                      .failed = -1};
  pthread_t threads[MOST_THREADS];
  int64_t rows = 0;
  int started = 0;
  r.task_rows = (dataset->parallel == form->real ? TASK_BYTES : LONE_TASK_BYTES) /
                (widest_of(dataset, form) * (int64_t)form->real);
  if (r.task_rows < 1) r.task_rows = 1;
  if (dataset->fingerprinting) r.task_rows -= r.task_rows % dataset->fingerprinting->block(dataset);
  for (int64_t i = 0; i < count; i++) rows += ranges[i].count;
  MN_REQUIRE(pthread_mutex_init(&r.mutex, NULL) == 0);
  /* If a thread cannot start, the others do its work. */
  int wanted = threads_for(&r, rows) - 1;
  while (started < wanted && mn_thread_start(&threads[started], "a reader", work, &r) == MN_OK) started++;
  work(&r);
  for (int i = 0; i < started; i++) MN_REQUIRE(pthread_join(threads[i], NULL) == 0);
  MN_REQUIRE(pthread_mutex_destroy(&r.mutex) == 0);
  if (r.failed >= 0) return mn_outcome_tell(&r.outcome);
  return r.range < count ? mn_fail(MN_INTERRUPTED, "reading was stopped") : MN_OK;
}
