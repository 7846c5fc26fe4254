/* Chooses the memory in which rows wait, and reads them into it. */
#include "data/placement.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/thread.h"
#include "kernels/clock.h"
#include "kernels/text.h"

MN_WORDS(place, enum mn_place, MN_PLACES, [MN_PLACE_AUTO] = "auto", [MN_PLACE_DEVICE] = "device",
         [MN_PLACE_HOST] = "host", [MN_PLACE_FILE] = "file");

enum { BUFFERS = 2 };
#define CHUNK_BYTES ((size_t)64 << 20) /* of rows in a pinned buffer */
static const double GIB = 1073741824.0;

static int is_cpu(const struct mn_placement *p) {
  return p->device->type == MN_DEVICE_CPU;
}

/* ---- reading rows into memory ---- */

/* The memories of rows, and the bytes that a row takes in each; 0 for those that there are not. */
enum { MEMORIES = 4 };
static void list(const struct mn_placement *p, struct mn_rows *rows, void **memory[MEMORIES],
                 size_t bytes[MEMORIES]) {
  void **const all[MEMORIES] = {&rows->x, &rows->y, (void **)&rows->largest, &rows->weights};
  const size_t each[MEMORIES] = {p->form.x_row, p->form.y_row, p->form.scaled, p->form.weight};
  memcpy(memory, all, sizeof all), memcpy(bytes, each, sizeof each);
}

mn_status mn_placement_allocate(const struct mn_placement *p, enum mn_place place, struct mn_rows *to,
                                int64_t count) {
  void **memory[MEMORIES];
  size_t bytes[MEMORIES];
  list(p, to, memory, bytes);
  for (int i = 0; i < MEMORIES; i++)
    if (bytes[i])
      MN_TRY(place == MN_PLACE_DEVICE ? mn_device_allocate(p->device, memory[i], count, bytes[i])
                                      : mn_allocate_host(p->device, memory[i], (size_t)count * bytes[i]));
  return MN_OK;
}

void mn_placement_release(const struct mn_placement *p, enum mn_place place, struct mn_rows *rows,
                          int64_t count) {
  void **memory[MEMORIES];
  size_t bytes[MEMORIES];
  list(p, rows, memory, bytes);
  for (int i = 0; i < MEMORIES; i++)
    if (place == MN_PLACE_DEVICE)
      mn_device_release(p->device, *memory[i], count, bytes[i]);
    else
      mn_release_host(p->device, *memory[i]);
  *rows = (struct mn_rows){0};
}

/* Reads rows chunk by chunk into two pinned buffers in turn: one is uploaded while the other is read. */
static mn_status upload_all(struct mn_placement *p, const struct mn_rows buffers[BUFFERS], int64_t each) {
  struct mn_device *device = p->device;
  void **all[MEMORIES], **read[MEMORIES];
  size_t bytes[MEMORIES];
  const int64_t rows = p->dataset->rows;
  list(p, &p->rows, all, bytes);
  for (int64_t first = 0; first < rows; first += each) {
    struct mn_range range = {.first = first, .count = rows - first < each ? rows - first : each};
    struct mn_rows to = buffers[first / each % BUFFERS];
    to.fingerprint = &p->fingerprint;
    list(p, &to, read, bytes);
    MN_TRY(mn_read_rows(p->dataset, &p->form, &range, 1, &to, p->stop));
    mn_heartbeat_of("rows read", first + range.count, rows);
    MN_TRY(mn_synchronize(device)); /* the other buffer is free again */
    for (int i = 0; i < MEMORIES; i++)
      if (bytes[i])
        MN_TRY(mn_copy(device, (char *)*all[i] + (size_t)first * bytes[i], *read[i],
                       (size_t)range.count * bytes[i]));
  }
  return mn_synchronize(device);
}

static mn_status fill_device(struct mn_placement *p) {
  struct mn_rows buffers[BUFFERS] = {0};
  struct mn_outcome outcome;
  mn_status status = MN_OK;
  int64_t each = (int64_t)(CHUNK_BYTES / (p->form.x_row + p->form.y_row));
  if (p->dataset->fingerprinting) each -= each % p->dataset->fingerprinting->block(p->dataset);
  if (each > p->dataset->rows) each = p->dataset->rows;
  if (each < 1) each = 1;
  for (int i = 0; i < BUFFERS && status == MN_OK; i++)
    status = mn_placement_allocate(p, MN_PLACE_HOST, &buffers[i], each);
  if (status == MN_OK) status = upload_all(p, buffers, each);
  mn_outcome_note(&outcome, status);
  /* After an error the last upload may still read a buffer. */
  (void)mn_synchronize(p->device);
  for (int i = 0; i < BUFFERS; i++) mn_placement_release(p, MN_PLACE_HOST, &buffers[i], each);
  return mn_outcome_tell(&outcome);
}

static mn_status fill_place(struct mn_placement *p) {
  struct mn_range all = {.count = p->dataset->rows};
  if (p->place == MN_PLACE_DEVICE && !is_cpu(p)) return fill_device(p);
  struct mn_rows to = p->rows;
  to.fingerprint = &p->fingerprint;
  return mn_read_rows(p->dataset, &p->form, &all, 1, &to, p->stop);
}

/* Adds the memory that rows may take in p->place to the reasons, and refuses rows that take more: on the
 * host, allocating more would end with the kernel killing a process. That memory is all that is left, if the
 * place was asked for. Else a GPU keeps a fifth, and at least the memory that training has allocated so far,
 * for later allocations: evaluation, the copy that a checkpoint is written from. The host keeps half for
 * other processes. */
static mn_status check_room(struct mn_placement *p, int asked) {
  const int on_gpu = p->place == MN_PLACE_DEVICE && !is_cpu(p);
  const char *whose = is_cpu(p) ? "" : on_gpu ? "the GPU's " : "the host's ";
  const size_t used = strlen(p->why);
  size_t available;
  MN_TRY(on_gpu ? mn_available(p->device, &available) : mn_available_cpu(p->device, &available));
  const double left = (double)available, allocated = (double)p->device->bytes;
  const double most = asked ? left : on_gpu ? fmax(fmin(0.8 * left, left - allocated), 0) : 0.5 * left;
  if (!asked)
    snprintf(p->why + used, sizeof p->why - used, "%s%smemory has room for %.1f GiB", used ? ", " : "", whose,
             most / GIB);
  return (double)p->bytes <= most ? MN_OK : mn_fail(MN_NO_MEMORY, "%s", p->why);
}

/* Reads the rows into p->place or, if it has no room or its memory cannot be had after all, into the next
 * place, unless the caller named the place. */
static mn_status settle(struct mn_placement *p, int asked) {
  const struct mn_fingerprinting *of = p->dataset->fingerprinting;
  while (p->place != MN_PLACE_FILE) {
    mn_status status = check_room(p, asked);
    p->fingerprint = (struct mn_fingerprint){0}; /* an attempt at another place may have added rows */
    if (status == MN_OK) status = mn_placement_allocate(p, p->place, &p->rows, p->dataset->rows);
    if (status == MN_OK) status = fill_place(p);
    if (status == MN_OK) {
      if (of) of->end(&p->fingerprint, p->dataset, 1);
      return MN_OK;
    }
    mn_placement_release(p, p->place, &p->rows, p->dataset->rows);
    if (asked && status == MN_NO_MEMORY)
      return mn_fail(MN_NO_MEMORY, "the place %s has no room for the %.1f GiB of rows; auto or file would do",
                     mn_place_name(p->place), (double)p->bytes / GIB);
    if (status != MN_NO_MEMORY) return status;
    snprintf(p->why, sizeof p->why, "%.180s", mn_message());
    p->place = p->place == MN_PLACE_DEVICE && !is_cpu(p) ? MN_PLACE_HOST : MN_PLACE_FILE;
  }
  return of ? of->sample(p->dataset, &p->form, &p->fingerprint, p->stop) : MN_OK;
}

mn_status mn_placement_open(struct mn_placement *p, struct mn_device *device, struct mn_dataset *dataset,
                            enum mn_place place, const struct mn_standard *standard, const int *stop) {
  *p = (struct mn_placement){
      .device = device, .dataset = dataset, .place = place, .why = "as asked", .stop = stop};
  if (place == MN_PLACE_AUTO) p->why[0] = 0;
  if (place == MN_PLACE_AUTO || (place == MN_PLACE_HOST && is_cpu(p))) p->place = MN_PLACE_DEVICE;
  MN_TRY(mn_rows_form(&p->form, dataset, device));
  if (standard) memcpy(p->form.standard, standard, sizeof p->form.standard);
  if (__builtin_mul_overflow((size_t)dataset->rows,
                             p->form.x_row + p->form.y_row + p->form.scaled + p->form.weight, &p->bytes) ||
      p->bytes > INT64_MAX)
    p->bytes = INT64_MAX;
  const mn_status status = settle(p, place != MN_PLACE_AUTO);
  p->stop = NULL;
  return status;
}
