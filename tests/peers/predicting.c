/* Times predictions in this process, for predicting.py. Each line of stdin is a job: inputs, channels, outputs,
 * rows, the way ("minnow", "minnow2" on a device of two threads, "plain"), threads, milliseconds; the answer is the median time of a call, in us, or
 * with a server's threads, each with a predictor of its own, the calls a second of all of them. The plain way
 * is what small C libraries do: dot products by the compiler's vectors, layer by layer. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/clock.h"
#include "tests/all.h"

enum { MOST = 1024, GROUPS = 8, BURST = 64 };

struct job {
  long inputs, channels, outputs, rows, threads, milliseconds;
  char way[16];
  struct mn_model *model;
  struct mn_predictor *predictor;
  float *x, *y, *weights[6]; /* of the plain way: in the order of a state_dict */
};

static float dot(const float *a, const float *b, long count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (long i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static void linear(float *y, const float *x, const float *w, const float *b, long inputs, long outputs) {
  for (long c = 0; c < outputs; c++) y[c] = dot(x, w + c * inputs, inputs) + b[c];
}

static void plain(const struct job *j) {
  float z[MOST];
  const long width = j->channels / GROUPS;
  for (long n = 0; n < j->rows; n++) {
    linear(z, j->x + n * j->inputs, j->weights[0], j->weights[1], j->inputs, j->channels);
    for (long g = 0; g < j->channels; g += width) {
      float mean = 0, variance = 0;
      for (long c = g; c < g + width; c++) mean += z[c] / (float)width;
      for (long c = g; c < g + width; c++) variance += (z[c] - mean) * (z[c] - mean) / (float)width;
      const float rstd = 1 / sqrtf(variance + 1e-5F);
      for (long c = g; c < g + width; c++) {
        const float v = (z[c] - mean) * rstd * j->weights[2][c] + j->weights[3][c];
        z[c] = 2 * (v > 0 ? v : 0.01F * v);
      }
    }
    linear(j->y + n * j->outputs, z, j->weights[4], j->weights[5], j->channels, j->outputs);
  }
}

static void call(const struct job *j) {
  if (strcmp(j->way, "plain") == 0)
    plain(j);
  else if (mn_predict(j->predictor, j->x, j->rows, j->y) != MN_OK)
    abort();
}

static int compare(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The median of bursts, each of BURST calls. */
static double median(const struct job *j) {
  static double times[100000];
  int count = 0;
  const double until = mn_seconds() + (double)j->milliseconds * 1e-3;
  for (double start = mn_seconds(), end; start < until && count < 100000; start = end) {
    for (int i = 0; i < BURST; i++) call(j);
    end = mn_seconds();
    times[count++] = (end - start) / BURST * 1e6;
  }
  qsort(times, (size_t)count, sizeof *times, compare);
  return times[count / 2];
}

struct server {
  struct job job;
  pthread_t thread;
  long calls;
};

static void *serve(void *data) {
  struct server *s = data;
  if (mn_predictor_open(&s->job.predictor, s->job.model, s->job.rows) != MN_OK) abort();
  s->job.y = malloc((size_t)(s->job.rows * s->job.outputs) * sizeof(float));
  const double until = mn_seconds() + (double)s->job.milliseconds * 1e-3;
  for (; mn_seconds() < until; s->calls += BURST)
    for (int i = 0; i < BURST; i++) call(&s->job);
  mn_predictor_close(s->job.predictor), free(s->job.y);
  return NULL;
}

static double served(const struct job *j) {
  struct server servers[16] = {0};
  double calls = 0;
  for (long t = 0; t < j->threads; t++) {
    servers[t].job = *j;
    if (pthread_create(&servers[t].thread, NULL, serve, &servers[t]) != 0) abort();
  }
  for (long t = 0; t < j->threads; t++)
    pthread_join(servers[t].thread, NULL), calls += (double)servers[t].calls;
  return calls / (double)j->milliseconds * 1e3;
}

static mn_status open_job(struct job *j, struct mn_device *device) {
  struct mn_model_config sizes = mn_model_defaults();
  struct mn_parameter p;
  sizes.inputs = j->inputs, sizes.depth = 1, sizes.hidden[0] = j->channels, sizes.head = j->outputs;
  MN_TRY(mn_model_open(&j->model, device, &sizes));
  MN_TRY(mn_model_initialise(j->model, 1));
  for (int i = 0; mn_model_parameter(&sizes, i, &p); i++) {
    j->weights[i] = malloc((size_t)(p.rows * p.cols) * sizeof(float));
    MN_TRY(mn_model_get(j->model, p.name, j->weights[i], p.rows * p.cols));
  }
  j->x = malloc((size_t)(j->rows * j->inputs) * sizeof *j->x);
  j->y = malloc((size_t)(j->rows * j->outputs) * sizeof *j->y);
  for (long i = 0; i < j->rows * j->inputs; i++) j->x[i] = (float)(i * 7919 % 1000) / 500 - 1;
  return mn_predictor_open(&j->predictor, j->model, j->rows);
}

/* Both ways give the same, or the comparison means nothing. */
static void check_alike(struct job *j) {
  const long count = j->rows * j->outputs;
  float *kept = malloc((size_t)count * sizeof *kept);
  if (mn_predict(j->predictor, j->x, j->rows, j->y) != MN_OK) abort();
  memcpy(kept, j->y, (size_t)count * sizeof *kept);
  plain(j);
  for (long i = 0; i < count; i++)
    if (!(fabsf(kept[i] - j->y[i]) < 1e-3F)) abort();
  free(kept);
}

int main(void) {
  struct mn_device *device;
  struct job j = {0};
  while (scanf("%ld %ld %ld %ld %15s %ld %ld", &j.inputs, &j.channels, &j.outputs, &j.rows, j.way, &j.threads,
               &j.milliseconds) == 7) {
    const int both = strcmp(j.way, "minnow2") == 0;
    if (mn_device_open(&device, "cpu", "fp32", both ? 2 : 1) != MN_OK) return 1;
    if (j.channels > MOST || j.threads > 16 || open_job(&j, device) != MN_OK) return 1;
    check_alike(&j);
    printf("%.3f\n", j.threads > 1 ? served(&j) : median(&j));
    fflush(stdout);
    mn_predictor_close(j.predictor), mn_model_close(j.model), mn_device_close(device);
    for (int i = 0; i < 6; i++) free(j.weights[i]);
    free(j.x), free(j.y);
  }
  return 0;
}
