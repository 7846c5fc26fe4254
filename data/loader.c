/* The loader says which samples come next; the device numbers their rows (kernels/order.h) and gathers
 * them. One gather takes a full filling from memory; rows in a file take one gather per window
 * (data/windows.h).
 *
 * Planes with scales are written by the gather, a batch's under a scale that follows from the largest |x| of
 * each row, found when it was read. If a filling spans several windows of a file, its rows are gathered as
 * they are, into `apart`, and after the last a second time, as planes. */
#include "data/loader.h"

#include <stdlib.h>
#include <string.h>

#include "data/windows.h"
#include "kernels/kernels.h"
#include "kernels/planes.h"

struct mn_loader {
  struct mn_device *device;
  struct mn_dataset *dataset;
  struct mn_placement placement;
  int64_t most;              /* samples of a filling */
  int64_t batch;             /* samples of one step */
  int64_t room;              /* rows of a buffer */
  struct mn_samples samples; /* of the filling under way */
  uint64_t seed;
  int shuffled;
  int64_t position, epoch;   /* of the next sample; which samples.epochs begins with; for rows in memory */
  int64_t targets;           /* columns of y that are gathered */
  size_t y_first, y_row;     /* bytes of a row before these columns, and of the columns */
  struct mn_windows windows; /* of rows in a file */
  int64_t scales;            /* of a filling's batches, if the planes have any; else 0 */
  char *apart;               /* [room] rows in the form in which they wait; NULL for rows in memory */
  /* the buffers */
  int next;                         /* the one to fill next */
  int64_t *rows[MN_LOADER_BUFFERS]; /* [room] whence each row comes, in the device's memory */
  struct mn_operand x[MN_LOADER_BUFFERS];
  char *y[MN_LOADER_BUFFERS], *weights[MN_LOADER_BUFFERS];
};

static int in_file(const struct mn_loader *l) {
  return l->placement.place == MN_PLACE_FILE;
}

/* ---- opening and closing ---- */

/* Divides a filling of `samples`, several batches or less than one, among ranks; returns how many batches. */
static int64_t divide(struct mn_loader *l, int64_t samples) {
  struct mn_samples *s = &l->samples;
  s->each = samples < l->batch ? samples : l->batch;
  s->share = mn_own_rows(l->device->ranks, s->each, &s->first);
  s->spacing = l->batch < l->most ? mn_loader_spacing(s->share) : s->share;
  return samples / s->each;
}

/* Takes the memory of buffer i, or releases it. */
static mn_status each_array(struct mn_loader *l, int i, int take) {
  const struct mn_rows_form *form = &l->placement.form;
  struct mn_operand *x = &l->x[i];
  const size_t scale = l->scales ? sizeof *x->scale : 0,
               plane = scale ? (size_t)x->cols * l->device->plane : 0;
  const size_t row = form->x_row, real = scale || form->bf16 ? 0 : row, high = form->bf16 ? row : plane;
  const size_t low = l->device->planes == 2 ? plane : 0, apart = plane && in_file(l) && i == 0 ? row : 0;
  const size_t bytes[] = {sizeof *l->rows[i], l->y_row, real, high, low, apart, scale, form->weight};
  void **const memory[] = {(void **)&l->rows[i], (void **)&l->y[i],      &x->real,
                           &x->planes[0],        &x->planes[1],          (void **)&l->apart,
                           (void **)&x->scale,   (void **)&l->weights[i]};
  for (int k = 0; k < 8; k++) {
    const int64_t count = memory[k] == (void **)&x->scale ? l->scales : l->room;
    if (take && bytes[k]) MN_TRY(mn_device_allocate(l->device, memory[k], count, bytes[k]));
    if (!take && bytes[k]) mn_device_release(l->device, *memory[k], count, bytes[k]);
  }
  return MN_OK;
}

static mn_status prepare(struct mn_loader *l, const struct mn_loader_config *config) {
  struct mn_device *device = l->device;
  MN_TRY(mn_placement_open(&l->placement, device, l->dataset, config->place, config->standard, config->stop));
  l->y_row = l->placement.form.y_row;
  l->targets = l->dataset->outputs;
  if (config->targets && !l->dataset->classes && l->y_row) {
    const size_t each = l->y_row / (size_t)l->targets;
    l->targets = config->targets;
    l->y_first = (size_t)config->first_target * each;
    l->y_row = (size_t)l->targets * each;
  }
  if (l->placement.form.scaled && !config->reals) l->scales = (l->most + l->batch - 1) / l->batch;
  /* Never reset: another loader on the device may still need it. */
  if (l->placement.place != MN_PLACE_DEVICE && device->type == MN_DEVICE_CUDA)
    device->reserved_sms = MN_GATHER_MULTIPROCESSORS;
  for (int i = 0; i < MN_LOADER_BUFFERS; i++) {
    l->x[i].cols = l->dataset->inputs;
    l->x[i].headroom = l->scales ? MN_HEADROOM_X : 0;
    MN_TRY(each_array(l, i, 1));
  }
  return in_file(l) ? mn_windows_open(&l->windows, &l->placement, l->seed, l->shuffled, l->position) : MN_OK;
}

mn_status mn_loader_open(struct mn_loader **out, struct mn_device *device, struct mn_dataset *dataset,
                         const struct mn_loader_config *config) {
  *out = NULL;
  struct mn_loader *l = *out = calloc(1, sizeof *l);
  if (!l) return mn_fail(MN_NO_MEMORY, "no memory for the loader");
  l->device = device;
  l->dataset = dataset;
  l->most = config->samples;
  l->batch = config->batch ? config->batch : config->samples;
  l->seed = config->seed, l->shuffled = config->shuffled;
  l->position = config->position, l->epoch = -1;
  l->room = divide(l, l->most) * l->samples.spacing;
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
  for (int i = 0; i < MN_LOADER_BUFFERS; i++) (void)each_array(l, i, 0);
  mn_placement_release(&l->placement, l->placement.place, &l->placement.rows, l->dataset->rows);
  free(l);
}

/* ---- filling ---- */

/* The buffer's row that follows those of the filling's first `samples`. */
static int64_t end_of(const struct mn_loader *l, int64_t samples) {
  const struct mn_samples *s = &l->samples;
  const int64_t batch = samples / s->each, within = samples % s->each - s->first;
  return batch * s->spacing + (within < 0 ? 0 : within < s->share ? within : s->share);
}

/* Makes the gather write x's planes. */
static void into_planes(const struct mn_loader *l, int buffer, struct mn_gather *g) {
  memcpy(g->planes, l->x[buffer].planes, sizeof g->planes);
  g->scales = l->x[buffer].scale;
  g->batch = l->samples.spacing;
}

/* Gathers samples first ... end - 1 of the filling: x in its form to `x` or, if `x` is NULL, as the buffer's
 * planes. */
static mn_status gather(struct mn_loader *l, int buffer, int64_t first, int64_t end,
                        const struct mn_rows *rows, char *x) {
  const struct mn_rows_form *form = &l->placement.form;
  struct mn_samples *s = &l->samples;
  const int64_t begin = end_of(l, first), count = end_of(l, end) - begin;
  struct mn_gather g = {.count = count,
                        .rows = l->rows[buffer] + begin,
                        .of = {{.from = rows->x, .bytes = form->x_row}},
                        .far = l->placement.place != MN_PLACE_DEVICE};
  s->largest = rows->largest;
  s->scales = l->x[buffer].scale;
  if (s->scales && first == 0) MN_TRY(mn_zero(l->device, s->scales, (size_t)l->scales * sizeof *s->scales));
  /* Also without own rows: a scale is by all replicas' rows. */
  MN_TRY(mn_number(l->device, s, first, end, l->rows[buffer]));
  if (count == 0) return MN_OK; /* all belong to other replicas */
  if (x)
    g.of[0].to = x + (size_t)begin * form->x_row;
  else
    into_planes(l, buffer, &g);
  if (l->y_row) {
    g.of[1].to = l->y[buffer] + (size_t)begin * l->y_row;
    g.of[1].from = (const char *)rows->y + l->y_first;
    g.of[1].bytes = l->y_row, g.of[1].apart = form->y_row;
  }
  MN_TRY(mn_gather(l->device, &g));
  g.of[0].to = l->weights[buffer] + (size_t)begin * form->weight, g.of[0].from = rows->weights;
  g.of[0].bytes = form->weight, g.of[1].bytes = 0, g.planes[0] = NULL;
  return form->weight ? mn_gather(l->device, &g) : MN_OK;
}

static mn_status fill_from_memory(struct mn_loader *l, int buffer, int64_t samples, char *x) {
  const int64_t rows = l->dataset->rows, epoch = l->position / rows;
  for (int i = 0; i < 2 && epoch != l->epoch; i++)
    mn_order_begin(&l->samples.epochs[i], rows, l->seed, epoch + i, l->shuffled);
  l->epoch = epoch;
  l->samples.offset = l->position % rows, l->samples.window = -1;
  l->position += samples;
  return gather(l, buffer, 0, samples, &l->placement.rows, x);
}

static mn_status fill_from_file(struct mn_loader *l, int buffer, int64_t samples, char *x) {
  struct mn_windows *w = &l->windows;
  struct mn_window *window;
  MN_TRY(mn_windows_get(w, &window));
  const int apart = l->apart && window->count - w->at < samples;
  if (apart) x = l->apart;
  for (int64_t done = 0, here; done < samples; done += here) {
    MN_TRY(mn_windows_get(w, &window));
    here = window->count - w->at < samples - done ? window->count - w->at : samples - done;
    l->samples.epochs[0] = window->order, l->samples.window = window->begin;
    l->samples.offset = mn_order_first(&window->order, window->begin) + w->at - done;
    MN_TRY(gather(l, buffer, done, done + here, &window->rows, x));
    w->at += here;
    if (w->at < window->count) continue;
    MN_TRY(mn_synchronize(l->device)); /* the next read overwrites it */
    mn_windows_next(w);
  }
  struct mn_gather g = {.count = end_of(l, samples), .of = {{.from = x, .bytes = l->placement.form.x_row}}};
  into_planes(l, buffer, &g);
  return apart ? mn_gather(l->device, &g) : MN_OK;
}

mn_status mn_loader_fill(struct mn_loader *l, int64_t samples, struct mn_batch *batch) {
  const int buffer = l->next;
  const int64_t batches = divide(l, samples), rows = batches * l->samples.share;
  struct mn_operand *to = &l->x[buffer];
  char *x = l->scales ? NULL : l->placement.form.bf16 ? to->planes[0] : to->real;
  MN_REQUIRE(samples >= 1 && samples <= l->most && samples % l->samples.each == 0 &&
             batches * l->samples.spacing <= l->room);
  MN_TRY((in_file(l) ? fill_from_file : fill_from_memory)(l, buffer, samples, x));
  l->next = (buffer + 1) % MN_LOADER_BUFFERS;
  *batch = (struct mn_batch){.rows = rows,
                             .first = l->samples.first,
                             .x = *to,
                             .y = l->y[buffer],
                             .targets = l->targets,
                             .weights = l->weights[buffer]};
  batch->x.rows = rows;
  return MN_OK;
}

struct mn_batch mn_batch_part(const struct mn_loader *l, const struct mn_batch *batch, int64_t number,
                              int64_t rows) {
  const int64_t at = number * mn_loader_spacing(rows);
  struct mn_batch part = *batch;
  MN_REQUIRE(number >= 0 && rows >= 1 && (number + 1) * rows <= batch->rows);
  part.rows = part.x.rows = rows;
  if (part.x.real) part.x.real = (char *)part.x.real + (size_t)at * l->placement.form.x_row;
  for (int i = 0; i < 2; i++)
    if (part.x.planes[i])
      part.x.planes[i] = (char *)part.x.planes[i] + (size_t)(at * part.x.cols) * l->device->plane;
  if (part.x.scale) part.x.scale += number;
  if (part.weights) part.weights = (const char *)part.weights + (size_t)at * l->placement.form.weight;
  if (part.y) part.y = (char *)part.y + (size_t)at * l->y_row;
  return part;
}

const struct mn_placement *mn_loader_placement(const struct mn_loader *l) {
  return &l->placement;
}

double mn_loader_waited(const struct mn_loader *l) {
  return l->windows.waited;
}
