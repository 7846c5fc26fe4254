/* Choosing where rows wait, and bringing them there. */
#include "data/placement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/thread.h"
#include "kernels/text.h"

MN_WORDS(place, enum mn_place, MN_PLACES, [MN_PLACE_AUTO] = "auto", [MN_PLACE_DEVICE] = "device",
         [MN_PLACE_HOST] = "host", [MN_PLACE_FILE] = "file");

#define CHUNK_BYTES ((size_t)64 << 20) /* of rows on their way to a GPU */
static const double GIB = 1073741824.0;

static int is_cpu(const struct mn_placement *p) {
  return p->device->type == MN_DEVICE_CPU;
}

/* How much of a place's memory the rows may take. On a GPU a fifth is left, and at least as much as training
 * has taken so far, for what it still takes: evaluation, the copy that a checkpoint is written from. On the
 * host half is left for everybody else. */
static mn_status room(const struct mn_placement *p, enum mn_place place, double *bytes) {
  size_t available;
  if (place == MN_PLACE_DEVICE && !is_cpu(p)) {
    MN_TRY(p->device->kernels->available(p->device, &available));
    *bytes = fmax(fmin(0.8 * (double)available, (double)available - (double)p->device->bytes), 0);
    return MN_OK;
  }
  MN_TRY(mn_available_cpu(p->device, &available));
  *bytes = 0.5 * (double)available;
  return MN_OK;
}

/* The first place that has room, and why. */
static mn_status choose(struct mn_placement *p) {
  double device, host, bytes = (double)p->bytes;
  MN_TRY(room(p, MN_PLACE_DEVICE, &device));
  MN_TRY(room(p, MN_PLACE_HOST, &host));
  const char *gpu = is_cpu(p) ? "memory" : "the GPU's memory";
  if (bytes <= device) {
    p->place = MN_PLACE_DEVICE;
    snprintf(p->why, sizeof p->why, "they fit into %s, which has room for %.1f GiB", gpu, device / GIB);
  } else if (bytes <= host && !is_cpu(p)) {
    p->place = MN_PLACE_HOST;
    snprintf(p->why, sizeof p->why, "%s has room for %.1f GiB, host memory for %.1f", gpu, device / GIB,
             host / GIB);
  } else {
    p->place = MN_PLACE_FILE;
    snprintf(p->why, sizeof p->why, "memory has room for %.1f GiB", (device > host ? device : host) / GIB);
  }
  return MN_OK;
}

/* ---- bringing them there ---- */

static mn_status allocate(struct mn_placement *p) {
  int64_t rows = p->dataset->rows;
  const struct mn_rows_form *form = &p->form;
  struct mn_rows *to = &p->rows;
  if (p->place == MN_PLACE_DEVICE) {
    MN_TRY(mn_device_allocate(p->device, &to->x, rows, form->x_row));
    if (form->y_row) MN_TRY(mn_device_allocate(p->device, &to->y, rows, form->y_row));
  } else {
    const struct mn_kernels *k = p->device->kernels;
    MN_TRY(k->allocate_host(p->device, &to->x, (size_t)rows * form->x_row));
    if (form->y_row) MN_TRY(k->allocate_host(p->device, &to->y, (size_t)rows * form->y_row));
  }
  p->fingerprint = (struct mn_fingerprint){0}; /* another place may have taken some rows */
  return mn_rows_largest(to, form, rows);
}

static void release(struct mn_placement *p) {
  int64_t rows = p->dataset->rows;
  if (p->place == MN_PLACE_DEVICE) {
    mn_device_release(p->device, p->rows.x, rows, p->form.x_row);
    mn_device_release(p->device, p->rows.y, rows, p->form.y_row);
  } else {
    p->device->kernels->release_host(p->device, p->rows.x);
    p->device->kernels->release_host(p->device, p->rows.y);
  }
  free(p->rows.largest);
  p->rows = (struct mn_rows){0};
}

/* Reads rows chunk by chunk into two pinned buffers in turn: one is uploaded while the other is read. */
static mn_status upload_all(struct mn_placement *p, char *const x[2], char *const y[2], int64_t each) {
  const struct mn_kernels *k = p->device->kernels;
  struct mn_device *device = p->device;
  const struct mn_rows_form *form = &p->form;
  int64_t rows = p->dataset->rows;
  for (int64_t first = 0; first < rows; first += each) {
    int buffer = first / each % 2;
    struct mn_range range = {.first = first, .count = rows - first < each ? rows - first : each};
    float *largest = p->rows.largest;
    struct mn_rows to = {x[buffer], y[buffer], largest ? largest + first : NULL, &p->fingerprint};
    MN_TRY(mn_read_rows(p->dataset, form, &range, 1, &to, p->stop));
    MN_TRY(k->synchronize(device)); /* the other buffer is free again */
    MN_TRY(k->upload(device, (char *)p->rows.x + (size_t)first * form->x_row, x[buffer],
                     (size_t)range.count * form->x_row));
    if (y[buffer])
      MN_TRY(k->upload(device, (char *)p->rows.y + (size_t)first * form->y_row, y[buffer],
                       (size_t)range.count * form->y_row));
  }
  return k->synchronize(device);
}

static mn_status fill_device(struct mn_placement *p) {
  const struct mn_kernels *k = p->device->kernels;
  struct mn_device *device = p->device;
  const struct mn_rows_form *form = &p->form;
  int64_t each = (int64_t)(CHUNK_BYTES / (form->x_row + form->y_row));
  each -= each % mn_fingerprint_block(p->dataset);
  if (each > p->dataset->rows) each = p->dataset->rows;
  if (each < 1) each = 1;
  char *x[2] = {0}, *y[2] = {0};
  mn_status status = MN_OK;
  for (int i = 0; i < 2 && status == MN_OK; i++) {
    status = k->allocate_host(device, (void **)&x[i], (size_t)each * form->x_row);
    if (status == MN_OK && form->y_row)
      status = k->allocate_host(device, (void **)&y[i], (size_t)each * form->y_row);
  }
  if (status == MN_OK) status = upload_all(p, x, y, each);
  struct mn_outcome outcome;
  mn_outcome_note(&outcome, status);
  (void)k->synchronize(device); /* after an error the last upload may still read from them */
  for (int i = 0; i < 2; i++) {
    k->release_host(device, x[i]);
    k->release_host(device, y[i]);
  }
  return mn_outcome_tell(&outcome);
}

static mn_status fill(struct mn_placement *p) {
  struct mn_range all = {.count = p->dataset->rows};
  if (p->place == MN_PLACE_DEVICE && !is_cpu(p)) return fill_device(p);
  struct mn_rows to = p->rows;
  to.fingerprint = &p->fingerprint;
  return mn_read_rows(p->dataset, &p->form, &all, 1, &to, p->stop);
}

/* Whether the rows are more than a place can have, as far as can be told: asking the host for that would end
 * in the kernel's choice of a process to kill. */
static mn_status check_room(const struct mn_placement *p) {
  size_t available;
  if (p->place == MN_PLACE_DEVICE)
    MN_TRY(p->device->kernels->available(p->device, &available));
  else
    MN_TRY(mn_available_cpu(p->device, &available));
  return p->bytes <= available ? MN_OK : mn_fail(MN_NO_MEMORY, "less memory is left than the rows take");
}

/* A place that was chosen here and cannot be had after all gives way to the next. */
static mn_status settle(struct mn_placement *p, int asked) {
  while (p->place != MN_PLACE_FILE) {
    mn_status status = check_room(p);
    if (status == MN_OK) status = allocate(p);
    if (status == MN_OK) status = fill(p);
    if (status == MN_OK) {
      mn_fingerprint_end(&p->fingerprint, p->dataset, 1);
      return MN_OK;
    }
    release(p);
    if (asked && status == MN_NO_MEMORY)
      return mn_fail(MN_NO_MEMORY, "the place %s has no room for the %.1f GiB of rows; auto or file would do",
                     mn_place_name(p->place), (double)p->bytes / GIB);
    if (status != MN_NO_MEMORY) return status;
    snprintf(p->why, sizeof p->why, "%.180s", mn_message());
    p->place = p->place == MN_PLACE_DEVICE && !is_cpu(p) ? MN_PLACE_HOST : MN_PLACE_FILE;
  }
  return mn_read_sample(p->dataset, &p->form, &p->fingerprint, p->stop);
}

mn_status mn_placement_open(struct mn_placement **out, struct mn_device *device, struct mn_dataset *dataset,
                            enum mn_place place, int x_only, const int *stop) {
  *out = NULL;
  struct mn_placement *p = calloc(1, sizeof *p);
  if (!p) return mn_fail(MN_NO_MEMORY, "no memory to place rows");
  *p = (struct mn_placement){
      .device = device, .dataset = dataset, .place = place, .why = "as asked", .stop = stop};
  if (place == MN_PLACE_HOST && is_cpu(p)) p->place = MN_PLACE_DEVICE;
  mn_status status = mn_rows_form(&p->form, dataset, device);
  if (x_only) p->form.y_row = 0;
  if (__builtin_mul_overflow((size_t)dataset->rows, p->form.x_row + p->form.y_row, &p->bytes) ||
      p->bytes > INT64_MAX)
    p->bytes = INT64_MAX;
  if (status == MN_OK && place == MN_PLACE_AUTO) status = choose(p);
  if (status == MN_OK) status = settle(p, place != MN_PLACE_AUTO);
  p->stop = NULL;
  if (status == MN_OK)
    *out = p;
  else
    mn_placement_close(p);
  return status;
}

void mn_placement_close(struct mn_placement *p) {
  if (!p) return;
  release(p);
  free(p);
}
