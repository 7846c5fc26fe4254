/* From measurements to a picture: reads what bench and make peers wrote as JSON, and gives it to the script
 * plot_bench.gp, chart by chart: the fusion plans of a run of bench, or the peers at one shape and precision.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/command/gnuplot.h"
#include "train/command/plot.h"
#include "train/command/show.h"

MN_GNUPLOT_SCRIPT(bench_script, "train/command/plot_bench.gp");

/* What is timed: in bench's JSON, in the peers', and in the picture. */
enum { FIGURES = 3 };
static const struct {
  const char *key, *what, *label;
} figures[FIGURES] = {{"forward_ms", "forward", "forward"},
                      {"forward_backward_ms", "forward + backward", "forward + backward"},
                      {"step_ms", "step", "training step"}};

/* Strings are of the JSON that they were read from. */
struct row {
  const char *name;
  double ms[FIGURES]; /* NaN: none */
};

struct chart {
  char title[256];
  struct row *rows;
  int count, compares; /* compares: with others' rows, from which minnow's stand out */
};

struct charts {
  json_t **roots; /* one for each file */
  struct chart *all;
  int files, count;
};

/* Heights in points. */
enum { TITLE = 40, SLOT = 20, AXIS = 64 };

/* Reading. */

static void *grow(void *all, int count, size_t size) {
  /* Doubled at every power of two, so that nothing has to keep the room. */
  return count & (count - 1) ? all : realloc(all, (size_t)(count ? 2 * count : 1) * size);
}

/* The chart of this title; a new one where there is none. */
static mn_status find_chart(struct charts *charts, struct chart **out, const char *title, int compares) {
  for (int i = 0; i < charts->count; i++)
    if (strcmp((*out = &charts->all[i])->title, title) == 0) return MN_OK;
  struct chart *all = grow(charts->all, charts->count, sizeof *all);
  if (!all) return mn_fail(MN_NO_MEMORY, "no memory for the charts");
  charts->all = all;
  *out = &all[charts->count++];
  **out = (struct chart){.compares = compares};
  snprintf((*out)->title, sizeof(*out)->title, "%s", title);
  return MN_OK;
}

static mn_status find_row(struct chart *chart, struct row **out, const char *name) {
  for (int i = 0; i < chart->count; i++)
    if (strcmp((*out = &chart->rows[i])->name, name) == 0) return MN_OK;
  struct row *rows = grow(chart->rows, chart->count, sizeof *rows);
  if (!rows) return mn_fail(MN_NO_MEMORY, "no memory for the rows of a chart");
  chart->rows = rows;
  *out = &rows[chart->count++];
  **out = (struct row){name, {NAN, NAN, NAN}};
  return MN_OK;
}

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static mn_status not_results(const char *path, const char *what) {
  return mn_fail(MN_BAD_DATA,
                 "%s: %s; a file of minnow bench --json, or of make peers ARGS=\"--json F\", is needed", path,
                 what);
}

/* A bar has one time: of two files that have it one would be drawn, and nobody knew which. */
static mn_status set_time(const struct chart *chart, struct row *row, int figure, double ms,
                          const char *path) {
  if (!isnan(row->ms[figure]))
    return mn_fail(MN_USAGE, "%s: the %s of %s (%s) is there twice; name one of the files that have it", path,
                   figures[figure].what, row->name, chart->title);
  row->ms[figure] = ms;
  return MN_OK;
}

/* One row of a bench: a plan, or the step of a bench without --plans. */
static mn_status read_plan(struct chart *chart, const char *path, const json_t *object) {
  const char *plan = json_string_value(json_object_get(object, "plan"));
  struct row *row;
  if (!plan) return not_results(path, "it has times without the name of their plan");
  MN_TRY(find_row(chart, &row, plan));
  for (int i = 0; i < FIGURES; i++) {
    const double ms = number(object, figures[i].key);
    if (!(ms >= 0)) return not_results(path, "a plan lacks one of its three times");
    MN_TRY(set_time(chart, row, i, ms, path));
  }
  return MN_OK;
}

static mn_status read_bench(struct charts *charts, const char *path, const json_t *root) {
  const json_t *hidden = json_object_get(root, "hidden"), *plans = json_object_get(root, "plans");
  const char *device = json_string_value(json_object_get(root, "device"));
  const char *precision = json_string_value(json_object_get(root, "precision"));
  if (!device || !precision) return not_results(path, "it lacks device or precision");
  char title[256];
  int length = snprintf(title, sizeof title, "%.80s, %.20s: %.9g × %.9g", device, precision,
                        number(root, "batch"), number(root, "in"));
  for (size_t i = 0; i < json_array_size(hidden) && length < (int)sizeof title - 80; i++)
    length += snprintf(title + length, sizeof title - (size_t)length, " → %.9g",
                       json_number_value(json_array_get(hidden, i)));
  snprintf(title + length, sizeof title - (size_t)length, ", %.9g groups", number(root, "groups"));
  struct chart *chart;
  MN_TRY(find_chart(charts, &chart, title, 0));
  if (!plans) return read_plan(chart, path, root);
  for (size_t i = 0; i < json_array_size(plans); i++)
    MN_TRY(read_plan(chart, path, json_array_get(plans, i)));
  return MN_OK;
}

/* The lower of the medians of the rounds, as the peers' tables have it. */
static double of_rounds(const json_t *rounds) {
  double least = NAN;
  for (size_t i = 0; i < json_array_size(rounds); i++)
    least = fmin(least, number(json_array_get(rounds, i), "ms"));
  return least;
}

/* One figure of the peers; what failed, or is no forward or step, is left out. */
static mn_status read_peer(struct charts *charts, const char *path, const char *machine,
                           const json_t *object) {
  const char *what, *texts[4];
  static const char *const keys[] = {"table", "shape", "precision", "row"};
  for (int i = 0; i < 4; i++)
    if (!(texts[i] = json_string_value(json_object_get(object, keys[i]))))
      return not_results(path, "a figure lacks table, shape, precision or row");
  const int kernelbench = strcmp(texts[0], "kernelbench") == 0;
  const double ms = kernelbench ? number(object, "ms") : of_rounds(json_object_get(object, "rested"));
  int figure = FIGURES;
  if ((what = json_string_value(json_object_get(object, "what"))))
    while (--figure >= 0 && strcmp(what, figures[figure].what) != 0) continue;
  if (!what || figure < 0 || !(ms >= 0)) return MN_OK;
  char title[256];
  struct chart *chart;
  struct row *row;
  snprintf(title, sizeof title, "%s%.120s, %.20s%s; %.80s", kernelbench ? "KernelBench 2/62: " : "", texts[1],
           texts[2], kernelbench ? "" : ", rested", machine);
  MN_TRY(find_chart(charts, &chart, title, 1));
  MN_TRY(find_row(chart, &row, texts[3]));
  return set_time(chart, row, figure, ms, path);
}

static mn_status read_results(struct charts *charts, const char *path) {
  FILE *file;
  MN_TRY(mn_plot_open(&file, path, "a file of minnow bench --json or of make peers"));
  json_t *root = json_loadf(file, 0, NULL);
  fclose(file);
  if (!root) return not_results(path, "it is no JSON");
  charts->roots[charts->files++] = root;
  const json_t *peers = json_object_get(root, "figures");
  if (json_object_get(root, "step_ms")) return read_bench(charts, path, root);
  if (!json_is_array(peers)) return not_results(path, "it has neither step_ms nor figures");
  const char *machine = json_string_value(json_array_get(json_object_get(root, "header"), 0));
  for (size_t i = 0; i < json_array_size(peers); i++)
    MN_TRY(read_peer(charts, path, machine ? machine : "", json_array_get(peers, i)));
  return MN_OK;
}

/* Drawing. */

/* The slots of a chart, one below the other: for each figure that a row has, its name and then the rows'
 * bars. Returns how many; with a script it writes them. */
static int put_slots(FILE *script, const struct chart *chart) {
  int slots = 0;
  for (int figure = 0; figure < FIGURES; figure++) {
    int bars = 0;
    for (int i = 0; i < chart->count; i++) {
      const struct row *row = &chart->rows[i];
      char value[MN_SHOWN];
      if (isnan(row->ms[figure])) continue;
      slots += bars++ ? 1 : 2;
      if (!script) continue;
      if (bars == 1)
        fprintf(script, "name[%d] = '%s'\nms[%d] = NaN\n", slots - 1, figures[figure].label, slots - 1);
      fprintf(script, "name[%d] = ", slots);
      mn_gnuplot_text(script, row->name);
      fprintf(script, "\nms[%d] = %.9g\nvalue[%d] = '%s'\nours[%d] = %d\n", slots, row->ms[figure], slots,
              mn_show_number(value, row->ms[figure], 4), slots,
              !chart->compares || strncmp(row->name, "minnow", 6) == 0);
    }
  }
  return slots;
}

static int height_of(const struct chart *chart) {
  return TITLE + SLOT * put_slots(NULL, chart) + AXIS;
}

static mn_status write_charts(FILE *script, void *data) {
  const struct charts *charts = data;
  int top = 0, widest = 0;
  for (int i = 0; i < charts->count; i++)
    for (int k = 0; k < charts->all[i].count; k++) {
      const int length = (int)strlen(charts->all[i].rows[k].name);
      widest = length > widest ? length : widest;
    }
  fprintf(script, "widest = %d\nset multiplot\n", widest);
  for (int i = 0; i < charts->count; i++) {
    const struct chart *chart = &charts->all[i];
    const int slots = put_slots(NULL, chart);
    fputs("title = ", script);
    mn_gnuplot_text(script, chart->title);
    fprintf(script, "\nslots = %d\ntop = %d\nbottom = %d\n", slots, top + TITLE, top + TITLE + SLOT * slots);
    fprintf(script, "array name[slots]\narray ms[slots]\narray value[slots]\narray ours[slots]\n");
    put_slots(script, chart);
    fputs(bench_script, script);
    top += height_of(chart);
  }
  fputs("unset multiplot\nunset output\n", script);
  return MN_OK;
}

static mn_status draw_charts(const char *out, int replace, struct charts *charts) {
  int height = 0;
  for (int i = 0; i < charts->count; i++) height += height_of(&charts->all[i]);
  return mn_gnuplot_draw(out, replace, height, write_charts, charts);
}

mn_status mn_plot_bench(const char *out, int replace, char **results, int count) {
  MN_REQUIRE(count > 0);
  struct charts charts = {.roots = calloc((size_t)count, sizeof *charts.roots)};
  if (!charts.roots) return mn_fail(MN_NO_MEMORY, "no memory for %d files", count);
  mn_status status = MN_OK;
  for (int i = 0; i < count && status == MN_OK; i++) status = read_results(&charts, results[i]);
  if (status == MN_OK && charts.count == 0) status = not_results(results[0], "it has no time");
  if (status == MN_OK) status = draw_charts(out, replace, &charts);
  for (int i = 0; i < charts.count; i++) free(charts.all[i].rows);
  for (int i = 0; i < charts.files; i++) json_decref(charts.roots[i]);
  free(charts.all);
  free(charts.roots);
  return status;
}
