/* Copies the rows, and has threads take trainings from a list, the last first, since the longest are last. */
#include "train/folds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "data/held_out.h"
#include "data/weights.h"
#include "kernels/clock.h"
#include "train/evaluate.h"
#include "train/fit.h"
#include "train/scores.h"

enum { WORKERS_MOST = 256 };

/* What the threads share. */
struct work {
  const struct mn_folds *folds;
  struct mn_fold_score (*scores)[MN_FOLDS_MOST];
  struct mn_dataset *(*parts)[2]; /* [folds]: by enum mn_part, the rows to train on and to test on */
  int left;                       /* trainings that no thread has taken; read and set atomically */
  int done;                       /* likewise */
};

struct worker {
  struct work *work;
  pthread_t thread;
  struct mn_outcome outcome;
};

static int stopped(const struct mn_folds *f) {
  return f->stop && __atomic_load_n(f->stop, __ATOMIC_ACQUIRE);
}

static int after_step(void *folds, const struct mn_trainer *trainer) {
  (void)trainer;
  return stopped(folds);
}

/* A number with so many digits, as a checkpoint has it. */
static double rounded(double value, int digits) {
  char text[32];
  snprintf(text, sizeof text, "%.*g", digits, value);
  return strtod(text, NULL);
}

static mn_status test(struct mn_model *model, struct mn_dataset *rows, const struct mn_trainer_config *how,
                      struct mn_fold_score *score) {
  struct mn_evaluator *evaluator;
  double loss, accuracy, spread;
  MN_TRY(mn_evaluator_open(&evaluator, model, rows, how->batch, how->place));
  mn_status status = mn_evaluate(evaluator, &loss, &accuracy);
  if (status == MN_OK) status = mn_model_spread(&spread, model, rows, NULL);
  mn_evaluator_close(evaluator);
  MN_TRY(status);
  const double r2 = spread > 0 ? 1 - loss / spread : NAN;
  score->loss = isnan(loss) ? INFINITY : rounded(loss, MN_FOLD_DIGITS);
  score->score = rounded(isnan(accuracy) ? r2 : accuracy, MN_SCORE_DIGITS);
  return MN_OK;
}

/* Trains the model, and tests it unless it was stopped. */
static mn_status train(const struct mn_folds *f, struct mn_model *model, int setting,
                       struct mn_dataset *const parts[2], struct mn_fold_score *score) {
  struct mn_optimizer_config by;
  struct mn_trainer_config how;
  struct mn_optimizer *optimizer = NULL;
  struct mn_trainer *trainer = NULL;
  mn_status status = mn_model_initialise(model, f->seed);
  if (status == MN_OK) status = f->set(f->to, setting, model, parts[MN_PART_TRAIN], &by, &how);
  if (status == MN_OK) status = mn_optimizer_open(&optimizer, model, &by);
  if (status == MN_OK) status = mn_trainer_open(&trainer, model, optimizer, parts[MN_PART_TRAIN], &how, NULL);
  if (status == MN_OK)
    status = mn_trainer_run(trainer, how.schedule.horizon, after_step, (void *)(uintptr_t)f);
  if (status == MN_FAILED)
    *score = (struct mn_fold_score){INFINITY, NAN}, status = MN_OK;
  else if (status == MN_OK && !stopped(f))
    status = test(model, parts[MN_PART_TEST], &how, score);
  mn_trainer_close(trainer);
  mn_optimizer_close(optimizer);
  return status;
}

static mn_status work(struct work *w, struct mn_device *device) {
  const struct mn_folds *f = w->folds;
  for (int job; (job = __atomic_sub_fetch(&w->left, 1, __ATOMIC_RELAXED)) >= 0 && !stopped(f);) {
    const int setting = f->settings[job / f->folds], fold = job % f->folds;
    struct mn_fold_score *score = &w->scores[setting][fold];
    struct mn_model *model;
    if (isnan(score->loss)) {
      MN_TRY(mn_model_open(&model, device, f->model));
      const mn_status status = train(f, model, setting, w->parts[fold], score);
      mn_model_close(model);
      MN_TRY(status);
    }
    __atomic_add_fetch(&w->done, 1, __ATOMIC_RELAXED);
  }
  return MN_OK;
}

static void *run(void *data) {
  struct worker *worker = data;
  struct work *w = worker->work;
  struct mn_device *device = w->folds->device, *own = NULL;
  mn_status status = MN_OK;
  if (device->type == MN_DEVICE_CPU)
    status = mn_device_open(&own, "cpu", mn_precision_name(device->precision), 1);
  if (status == MN_OK) status = work(w, own ? own : device);
  mn_outcome_note(&worker->outcome, status);
  mn_device_close(own);
  if (status != MN_OK) { /* the others need not go on, nor the thread that waits */
    __atomic_store_n(&w->left, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&w->done, w->folds->count * w->folds->folds, __ATOMIC_RELAXED);
  }
  return NULL;
}

/* Runs the threads; meanwhile this one tells how many trainings are done. */
static mn_status run_all(struct work *w, int workers) {
  struct worker each[WORKERS_MOST];
  const int all = w->left;
  mn_teller *const tell = mn_heartbeat_tell(NULL); /* of rows the threads do not */
  mn_status status = MN_OK;
  int started = 0;
  for (; started < workers && status == MN_OK; started += status == MN_OK) {
    each[started] = (struct worker){.work = w};
    status = mn_thread_start(&each[started].thread, "a thread that trains", run, &each[started]);
  }
  if (started > 0) status = MN_OK; /* fewer do it too */
  for (int done;
       started > 0 && (done = __atomic_load_n(&w->done, __ATOMIC_RELAXED)) < all && !stopped(w->folds);) {
    if (tell) tell("trainings by folds", done, all);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  for (int i = 0; i < started; i++) {
    MN_REQUIRE(pthread_join(each[i].thread, NULL) == 0);
    if (status == MN_OK) status = mn_outcome_tell(&each[i].outcome);
  }
  mn_heartbeat_tell(tell);
  return status;
}

/* As many workers as half of the memory that is left holds copies of the rows for, beside the one of all. */
static mn_status bound_workers(const struct mn_folds *f, int *workers) {
  const double row = (double)(f->rows->inputs + f->rows->outputs) * sizeof(double);
  const double bytes = row * (double)f->rows->rows;
  size_t available;
  MN_TRY(mn_available_cpu(f->device, &available));
  if (bytes > (double)available && available > 0)
    return mn_fail(MN_NO_MEMORY,
                   "folds take a copy of the rows, %.1f MiB, and %.1f MiB are free: leave --tune and --folds "
                   "out, or give fewer rows",
                   bytes / 0x1p20, (double)available / 0x1p20);
  const double most = available ? ((double)available / 2 - bytes) / bytes : *workers;
  *workers = most < 1 ? 1 : most < *workers ? (int)most : *workers;
  return MN_OK;
}

/* The rows in memory, for all threads: floats if x and y are stored so, else doubles. *held is to be freed
 * after the dataset. */
static mn_status hold(struct mn_dataset **out, char **held, struct mn_dataset *from) {
  const int floats = mn_stored_real(from, MN_X) == 4 && (from->classes || mn_stored_real(from, MN_Y) == 4);
  const size_t real = floats ? 4 : 8, rows = (size_t)from->rows, inputs = (size_t)from->inputs;
  const size_t x_bytes = (rows * inputs * real + 7) / 8 * 8;
  char *const x = *held = malloc(x_bytes + rows * (from->classes ? 4 : (size_t)from->outputs * real));
  if (!x)
    return mn_fail(MN_NO_MEMORY, "no memory for a copy of %ld rows of %ld inputs, which folds take",
                   (long)rows, (long)inputs);
  void *const y = x + x_bytes;
  MN_TRY(from->read(from, 0, from->rows, real, x, NULL));
  MN_TRY(from->read(from, 0, from->rows, real, NULL, y));
  if (!floats)
    MN_TRY(mn_dataset_doubles(out, (double *)(void *)x, from->classes ? NULL : y, from->classes ? y : NULL,
                              from->rows, from->inputs, from->classes ? 0 : from->outputs));
  else if (from->classes)
    MN_TRY(mn_dataset_labelled(out, (float *)(void *)x, y, from->rows, from->inputs));
  else
    MN_TRY(mn_dataset_arrays(out, (float *)(void *)x, y, from->rows, from->inputs, from->outputs));
  (*out)->outputs = from->outputs; /* the last class may have no row */
  (*out)->x_type = from->x_type, (*out)->y_type = from->y_type;
  return mn_dataset_weigh(*out, from->weights);
}

mn_status mn_folds_score(const struct mn_folds *f, struct mn_fold_score scores[][MN_FOLDS_MOST]) {
  const int jobs = f->count * f->folds, cpu = f->device->type == MN_DEVICE_CPU;
  const int threads = cpu ? mn_threads(f->device) : 1;
  int workers = threads < WORKERS_MOST ? threads : WORKERS_MOST;
  struct mn_dataset *rows = NULL, *parts[MN_FOLDS_MOST][2] = {{NULL}};
  struct work w = {.folds = f, .scores = scores, .parts = parts, .left = jobs};
  MN_REQUIRE(f->folds >= 2 && f->folds <= MN_FOLDS_MOST && f->count <= MN_SETTINGS);
  unsigned char *fold = malloc((size_t)f->rows->rows);
  char *held = NULL;
  mn_status status = bound_workers(f, &workers);
  if (status == MN_OK)
    status = fold ? hold(&rows, &held, f->rows) : mn_fail(MN_NO_MEMORY, "no memory for folds");
  if (status == MN_OK) status = mn_dataset_deal(fold, rows, f->folds, f->seed);
  for (int i = 0; i < 2 * f->folds && status == MN_OK; i++)
    status = mn_dataset_fold(&parts[i / 2][i % 2], rows, fold, i / 2, (enum mn_part)(i % 2));
  for (int i = 0; i < f->folds && status == MN_OK && f->class_weights; i++)
    status = mn_dataset_weigh_classes(parts[i][MN_PART_TRAIN], f->class_weights);
  free(fold);
  if (status == MN_OK) status = run_all(&w, workers < jobs ? workers : jobs);
  for (int i = 0; i < 2 * f->folds; i++) mn_dataset_close(parts[i / 2][i % 2]);
  mn_dataset_close(rows);
  free(held);
  return status;
}
