/* The loader turns positions in the order of samples into row numbers, and the device gathers these rows. One
 * gather takes a full filling from memory; rows in a file take one gather per window (data/windows.h). The
 * scales of planes, where they have any, are chosen by data/scaling.h. */
#include "data/loader.h"

#include <stdlib.h>

#include "data/scaling.h"
#include "data/windows.h"
#include "kernels/ranks/collectives.h"

struct mn_loader {
  struct mn_device *device;
  struct mn_dataset *dataset;
  struct mn_placement placement;
  int64_t most;  /* samples of a filling */
  int64_t batch; /* samples of one step */
  int64_t room;  /* rows of a buffer: the most that this rank has of a filling */
  /* this rank's rows of the batches of the filling under way */
  int64_t share, first, each; /* rows first … first + share − 1 of each batch of `each` samples */
  int64_t done, within;       /* batches that are finished; samples taken of the current one */
  int64_t targets;            /* columns of y that are gathered */
  size_t y_first, y_row;      /* bytes of a row before these columns, and of the columns */
  struct mn_windows windows;
  struct mn_scaling scaling;
  /* the buffers */
  int next;                             /* the one to fill next */
  int64_t *numbers[MN_LOADER_BUFFERS];  /* of a filling's rows */
  int64_t *uploaded[MN_LOADER_BUFFERS]; /* the same on the device */
  struct mn_operand x[MN_LOADER_BUFFERS];
  char *y[MN_LOADER_BUFFERS];
};

static int in_file(const struct mn_loader *l) {
  return l->placement.place == MN_PLACE_FILE;
}

/* ---- opening and closing ---- */

/* Divides a filling of `samples`, several batches or less than one, among ranks; returns this rank's rows. */
static int64_t divide(struct mn_loader *l, int64_t samples) {
  l->each = samples < l->batch ? samples : l->batch;
  l->share = mn_own_rows(l->device->ranks, l->each, &l->first);
  l->done = l->within = 0;
  return samples / l->each * l->share;
}

/* The batches that `rows` of this rank belong to. */
static int64_t batches_of(const struct mn_loader *l, int64_t rows) {
  return (rows + l->share - 1) / l->share;
}

static mn_status check(const struct mn_dataset *dataset, const struct mn_loader_config *config) {
  if (config->samples < 1 || config->samples > dataset->rows)
    return mn_fail(MN_USAGE,
                   "a batch of %lld rows from data of %lld rows; choose 1 to %lld, or give more data",
                   (long long)config->samples, (long long)dataset->rows, (long long)dataset->rows);
  /* Later positions must fit in an int64, too. */
  if (config->position < 0 || config->position > INT64_MAX / 2)
    return mn_fail(MN_BAD_DATA, "sample position %lld: it must be from 0 to 2^62; the checkpoint is damaged",
                   (long long)config->position);
  return MN_OK;
}

static mn_status prepare(struct mn_loader *l, const struct mn_loader_config *config) {
  struct mn_device *device = l->device;
  MN_TRY(mn_placement_open(&l->placement, device, l->dataset, config->place, config->x_only, config->standard,
                           config->stop));
  l->y_row = l->placement.form.y_row;
  l->targets = l->dataset->outputs;
  if (config->targets && !l->dataset->classes && l->y_row) {
    const size_t each = l->y_row / (size_t)l->targets;
    l->targets = config->targets;
    l->y_first = (size_t)config->first_target * each;
    l->y_row = (size_t)l->targets * each;
  }
  for (int i = 0; i < MN_LOADER_BUFFERS; i++) l->x[i].cols = l->dataset->inputs;
  const int scaled = l->placement.form.scaled && !config->reals;
  MN_TRY(mn_scaling_open(&l->scaling, &l->placement, scaled ? batches_of(l, l->room) : 0, l->room, l->x));
  /* Never reset: another loader on the device may still need it. */
  if (l->placement.place != MN_PLACE_DEVICE && device->type == MN_DEVICE_CUDA)
    device->reserved_sms = MN_GATHER_MULTIPROCESSORS;
  for (int i = 0; i < MN_LOADER_BUFFERS; i++) {
    void **x = l->placement.form.bf16 ? &l->x[i].planes[0] : &l->x[i].real;
    MN_TRY(mn_allocate_host(device, (void **)&l->numbers[i], (size_t)l->room * sizeof *l->numbers[i]));
    MN_TRY(mn_device_allocate(device, (void **)&l->uploaded[i], l->room, sizeof *l->uploaded[i]));
    if (!scaled) MN_TRY(mn_device_allocate(device, x, l->room, l->placement.form.x_row));
    if (l->y_row) MN_TRY(mn_device_allocate(device, (void **)&l->y[i], l->room, l->y_row));
  }
  return mn_windows_open(&l->windows, &l->placement, config->seed, config->shuffled, config->position);
}

mn_status mn_loader_open(struct mn_loader **out, struct mn_device *device, struct mn_dataset *dataset,
                         const struct mn_loader_config *config) {
  *out = NULL;
  MN_TRY(check(dataset, config));
  struct mn_loader *l = *out = calloc(1, sizeof *l);
  if (!l) return mn_fail(MN_NO_MEMORY, "no memory for the loader");
  l->device = device;
  l->dataset = dataset;
  l->most = config->samples;
  l->batch = config->batch ? config->batch : config->samples;
  l->room = divide(l, l->most);
  /* The last rows of an epoch, less than a batch, may be indivisible among the replicas. */
  if (!config->shuffled && mn_ranks_replicas(device->ranks) > 1) l->room = l->most;
  mn_status status = prepare(l, config);
  if (status != MN_OK) mn_loader_close(l), *out = NULL;
  return status;
}

void mn_loader_close(struct mn_loader *l) {
  if (!l) return;
  /* The device may still gather an unused filling. */
  (void)mn_synchronize(l->device);
  mn_windows_close(&l->windows);
  const int scaled = l->scaling.batches > 0;
  mn_scaling_close(&l->scaling, l->x);
  for (int i = 0; i < MN_LOADER_BUFFERS; i++) {
    void *x = l->placement.form.bf16 ? l->x[i].planes[0] : l->x[i].real;
    mn_release_host(l->device, l->numbers[i]);
    mn_device_release(l->device, l->uploaded[i], l->room, sizeof *l->uploaded[i]);
    if (!scaled) mn_device_release(l->device, x, l->room, l->placement.form.x_row);
    mn_device_release(l->device, l->y[i], l->room, l->y_row);
  }
  mn_placement_release(&l->placement, l->placement.place, &l->placement.rows, l->dataset->rows);
  free(l);
}

/* ---- filling ---- */

/* Takes the next samples, up to the end of the window or of the filling's batches: appends this rank's row
 * numbers to the buffer's `rows`, and returns their new count. */
static int64_t take(struct mn_loader *l, int buffer, int64_t rows, int64_t batches,
                    const struct mn_window *window) {
  struct mn_windows *w = &l->windows;
  for (; l->done < batches && w->at < window->count; w->at++) {
    const int64_t number = window->numbers[w->at];
    if (l->within >= l->first && l->within < l->first + l->share) l->numbers[buffer][rows++] = number;
    if (window->rows.largest)
      mn_scaling_note(&l->scaling, buffer, l->done, l->within == 0, window->rows.largest[number]);
    if (++l->within == l->each) l->within = 0, l->done++;
  }
  return rows;
}

/* Gathers samples first … end − 1 of the buffer by their row numbers: x in its form to `x` or, if `x` is
 * NULL, as the buffer's planes. */
static mn_status gather(struct mn_loader *l, int buffer, int64_t first, int64_t end,
                        const struct mn_rows *rows, char *x) {
  const struct mn_rows_form *form = &l->placement.form;
  struct mn_gather g = {.count = end - first,
                        .rows = l->uploaded[buffer] + first,
                        .of = {{.from = rows->x, .bytes = form->x_row}},
                        .far = l->placement.place != MN_PLACE_DEVICE};
  /* Also without own rows: a scale is by all replicas' rows. */
  MN_TRY(mn_scaling_choose(&l->scaling, buffer, &l->x[buffer], batches_of(l, end)));
  if (first == end) return MN_OK; /* all belong to other replicas */
  MN_TRY(mn_copy(l->device, l->uploaded[buffer] + first, l->numbers[buffer] + first,
                 (size_t)(end - first) * sizeof *l->numbers[buffer]));
  if (x)
    g.of[0].to = x + (size_t)first * form->x_row;
  else
    mn_scaling_into(&l->x[buffer], l->share, &g);
  if (l->y_row) {
    g.of[1].to = l->y[buffer] + (size_t)first * l->y_row;
    g.of[1].from = (const char *)rows->y + l->y_first;
    g.of[1].bytes = l->y_row, g.of[1].apart = form->y_row;
  }
  return mn_gather(l->device, &g);
}

/* Rows in a file are gathered window by window, others once all numbers of the filling are there. */
static mn_status fill(struct mn_loader *l, int buffer, int64_t samples) {
  const int64_t batches = samples / l->each;
  int64_t taken = 0, gathered = 0;
  struct mn_window *window;
  MN_TRY(mn_windows_get(&l->windows, &window));
  const int apart = l->scaling.apart && window->count - l->windows.at < samples;
  char *x = apart ? l->scaling.apart : l->placement.form.bf16 ? l->x[buffer].planes[0] : l->x[buffer].real;
  for (;;) {
    taken = take(l, buffer, taken, batches, window);
    if (in_file(l) || l->done == batches) MN_TRY(gather(l, buffer, gathered, taken, &window->rows, x));
    gathered = in_file(l) ? taken : 0;
    if (l->windows.at == window->count) {
      if (in_file(l)) MN_TRY(mn_synchronize(l->device)); /* the next read overwrites it */
      mn_windows_next(&l->windows);
    }
    if (l->done == batches) break;
    MN_TRY(mn_windows_get(&l->windows, &window));
  }
  return apart ? mn_scaling_finish(&l->scaling, &l->x[buffer], l->share, taken) : MN_OK;
}

mn_status mn_loader_fill(struct mn_loader *l, int64_t samples, struct mn_batch *batch, int *number) {
  MN_REQUIRE(samples >= 1 && samples <= l->most);
  int buffer = l->next;
  const int64_t rows = divide(l, samples);
  MN_REQUIRE(samples % l->each == 0 && rows <= l->room);
  MN_TRY(fill(l, buffer, samples));
  l->next = (buffer + 1) % MN_LOADER_BUFFERS;
  *number = buffer;
  *batch = (struct mn_batch){
      .rows = rows, .first = l->first, .x = l->x[buffer], .y = l->y[buffer], .targets = l->targets};
  batch->x.rows = rows;
  return MN_OK;
}

struct mn_batch mn_batch_part(const struct mn_loader *l, const struct mn_batch *batch, int64_t first,
                              int64_t rows) {
  const struct mn_rows_form *form = &l->placement.form;
  struct mn_batch part = *batch;
  MN_REQUIRE(first >= 0 && rows >= 1 && first + rows <= batch->rows);
  part.rows = part.x.rows = rows;
  if (part.x.real) part.x.real = (char *)part.x.real + (size_t)first * form->x_row;
  size_t plane_row = (size_t)part.x.cols * l->device->plane;
  for (int i = 0; i < 2; i++)
    if (part.x.planes[i]) part.x.planes[i] = (char *)part.x.planes[i] + (size_t)first * plane_row;
  int64_t unused;
  mn_scaling_skip(&part.x, first / mn_own_rows(l->device->ranks, l->batch, &unused));
  if (part.y) part.y = (char *)part.y + (size_t)first * l->y_row;
  return part;
}

const struct mn_placement *mn_loader_placement(const struct mn_loader *l) {
  return &l->placement;
}

double mn_loader_waited(const struct mn_loader *l) {
  return l->windows.waited;
}
