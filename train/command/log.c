/* Writing the log, and finding the line after which a resumed run continues it. */
#include "train/command/log.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "train/checkpoint/checkpoint.h"
#include "train/fit.h"
#include "train/speed.h"

static mn_status cannot_use(const struct mn_log *log, int error) {
  return mn_fail(error == ENOMEM ? MN_NO_MEMORY : MN_IO,
                 "%s: %s; a file that can be read and written is needed", log->path, strerror(error));
}

static mn_status is_no_log(const struct mn_log *log) {
  return mn_fail(MN_NO_CREATE, "%s is no log of minnow train: move it away, and the run begins another",
                 log->path);
}

/* Reads a line as a JSON object; NULL at the end, and for the partial line that a killed run left. A whole
 * line that is no JSON is refused: cut off there, the log would lose what follows. */
static mn_status read_line(const struct mn_log *log, json_t **out, char **text, size_t *room) {
  /* Zeroed, since jansson may run out of memory without setting the code: 0 is json_error_unknown. */
  json_error_t error = {.line = 0};
  *out = NULL;
  ssize_t length = getline(text, room, log->file);
  if (length < 0 && !feof(log->file)) return cannot_use(log, errno);
  if (length <= 0 || (*text)[length - 1] != '\n') return MN_OK;
  *out = json_loadb(*text, (size_t)length, 0, &error);
  const enum json_error_code code = json_error_code(&error);
  if (*out) return MN_OK;
  return code == json_error_unknown || code == json_error_out_of_memory ? cannot_use(log, ENOMEM)
                                                                        : is_no_log(log);
}

static int is_event(const json_t *line, const char *event) {
  const char *found = json_string_value(json_object_get(line, "event"));
  return found && strcmp(found, event) == 0;
}

/* Whether a line belongs to the steps up to `resumed`. Ignores changes logged after that step. */
static int leads_to(const json_t *line, int64_t resumed) {
  const int64_t step = json_integer_value(json_object_get(line, "step"));
  return json_is_object(line) && !is_event(line, "end") &&
         (is_event(line, "resume") ? step < resumed : step <= resumed);
}

/* Finds the end of the last whole line that led to the checkpoint. A log that ends earlier is behind: saves
 * go on between two of its lines. */
static mn_status find_end(struct mn_log *log, int64_t resumed) {
  char *text = NULL;
  size_t room = 0;
  json_t *line;
  mn_status status = read_line(log, &line, &text, &room);
  const int empty = !line && ftello(log->file) == 0;
  if (status == MN_OK && !empty && !is_event(line, "start")) status = is_no_log(log);
  while (status == MN_OK && leads_to(line, resumed)) {
    if (is_event(line, "step")) {
      log->step = json_integer_value(json_object_get(line, "step"));
      log->loss = json_is_number(json_object_get(line, "loss"))
                      ? json_number_value(json_object_get(line, "loss"))
                      : (double)NAN;
    }
    log->end = ftello(log->file);
    json_decref(line);
    status = read_line(log, &line, &text, &room);
  }
  log->ended = is_event(line, "end") && json_integer_value(json_object_get(line, "step")) == resumed;
  json_decref(line);
  free(text);
  return status;
}

static int cut(const struct mn_log *log) {
  return fseeko(log->file, log->end, SEEK_SET) == 0 && ftruncate(fileno(log->file), log->end) == 0 ? 0
                                                                                                   : errno;
}

/* Returns whether there is a log to write to. step: −1 without one. */
static int begin_line(struct mn_log *log, const char *event, int64_t step) {
  if (!log->file || log->error) return 0;
  mn_json_begin(&log->json, log->file, 0);
  mn_json_open(&log->json, NULL);
  mn_json_string(&log->json, "event", event);
  if (step >= 0) mn_json_integer(&log->json, "step", step);
  return 1;
}

static void open_time(struct mn_log *log, double now) {
  mn_json_open(&log->json, "time");
  mn_json_number(&log->json, "seconds", now - log->start);
}

/* Ends a line and the object `time` in it, and writes it out, so that a full disk is noticed at once. A line
 * that cannot be written is cut off. */
static void end_line(struct mn_log *log) {
  mn_json_close(&log->json);
  mn_json_close(&log->json);
  errno = 0;
  if (fflush(log->file) == 0 && !ferror(log->file)) {
    log->end = ftello(log->file);
    return;
  }
  log->error = errno ? errno : EIO;
  __fpurge(log->file);
  (void)cut(log); /* if this fails, a resume drops the partial line */
}

mn_status mn_log_open(struct mn_log *log, const char *path, const struct mn_session *session) {
  *log = (struct mn_log){.path = path, .start = mn_seconds(), .loss = NAN};
  log->last = log->start;
  if (!path) return MN_OK;
  if (session->from && !(log->file = fopen(path, "r+e")) && errno != ENOENT) return cannot_use(log, errno);
  const int found = log->file != NULL;
  if (!found && !(log->file = fopen(path, "wxe")))
    return mn_fail(MN_NO_CREATE, "%s: %s; name a folder that can be written", path, strerror(errno));
  if (found) MN_TRY(find_end(log, session->from->progress.step));
  const int error = found && !log->ended ? cut(log) : 0;
  if (error) return cannot_use(log, error);
  log->begun = log->end == 0;
  if (!log->begun || !begin_line(log, "start", -1)) return MN_OK;
  mn_json_open(&log->json, "config");
  for (int i = 0; i < session->logged; i++) {
    const struct mn_text *option = &session->config[i];
    const char *then = mn_resume_find(session, option->name);
    mn_json_string(&log->json, option->name, then ? then : option->value);
  }
  mn_json_close(&log->json);
  if (mn_model_loss_unit(session->model) == 0) mn_json_string(&log->json, "loss_of", "standardised targets");
  mn_json_open(&log->json, "time");
  mn_json_string(&log->json, "device", session->device->name);
  end_line(log);
  return MN_OK;
}

void mn_log_resume(struct mn_log *log, const struct mn_session *session) {
  if (log->ended) log->error = cut(log);
  log->ended = 0;
  if (session->changes == 0 || !begin_line(log, "resume", session->from->progress.step)) return;
  mn_json_open(&log->json, "changed");
  for (int i = 0; i < session->changes; i++) {
    const char *names[] = {session->changed[i].name,
                           mn_option_rows[mn_option_find(session->changed[i].name)].excludes};
    for (int k = 0; k < 2 && names[k]; k++)
      mn_json_string(&log->json, names[k], mn_text_find(session->config, session->logged, names[k]));
  }
  mn_json_close(&log->json);
  open_time(log, mn_seconds());
  end_line(log);
}

void mn_log_step(struct mn_log *log, const struct mn_trainer *t) {
  const struct mn_progress *p = &t->progress;
  char why[MN_FAULT_WORDS];
  if (!begin_line(log, "step", p->step)) return;
  mn_json_integer(&log->json, "epoch", p->epoch);
  mn_json_integer(&log->json, "samples", p->samples);
  mn_json_number(&log->json, "loss", t->loss);
  mn_json_number(&log->json, "rate", t->rate);
  if (!isnan(t->norm)) mn_json_number(&log->json, "gradient_norm", t->norm);
  if (t->skipped) mn_json_string(&log->json, "skipped", mn_fault_words(why, t->skipped));
  open_time(log, t->finished);
  if (log->last_samples) {
    const double rate = (double)(p->samples - log->last_samples) / (t->finished - log->last);
    mn_json_number(&log->json, "samples_per_second", rate);
    mn_json_number(&log->json, "flops_per_second", rate * mn_model_step_flops(t->model));
  }
  log->last = t->finished;
  log->last_samples = p->samples;
  log->step = p->step;
  log->loss = t->loss;
  end_line(log);
}

void mn_log_eval(struct mn_log *log, int64_t step, int64_t epoch, double loss, double accuracy, double r2,
                 double metric) {
  if (!begin_line(log, "eval", step)) return;
  mn_json_integer(&log->json, "epoch", epoch);
  mn_json_number(&log->json, "test_loss", loss);
  if (!isnan(accuracy)) mn_json_number(&log->json, "test_accuracy", accuracy);
  if (!isnan(r2)) mn_json_number(&log->json, "test_r2", r2);
  if (!isnan(metric)) mn_json_number(&log->json, "test_metric", metric);
  open_time(log, mn_seconds());
  end_line(log);
}

void mn_log_end(struct mn_log *log, const struct mn_trainer *t, const char *ended) {
  if (log->ended || !begin_line(log, "end", t->progress.step)) return;
  mn_json_integer(&log->json, "horizon", t->schedule.horizon);
  mn_json_number(&log->json, "loss", isnan(t->loss) && log->step == t->progress.step ? log->loss : t->loss);
  mn_json_string(&log->json, "ended", ended);
  if (t->progress.skipped > 0) mn_json_integer(&log->json, "skipped", t->progress.skipped);
  open_time(log, mn_seconds());
  if (t->times.steps > 0) {
    const struct mn_trainer_speed speed = mn_trainer_speed(t);
    mn_json_number(&log->json, "samples_per_second", speed.samples);
    mn_json_number(&log->json, "flops_per_second", speed.flops);
    mn_json_number(&log->json, "waiting", speed.waiting);
  }
  mn_json_integer(&log->json, "device_bytes", (int64_t)t->model->device->bytes);
  end_line(log);
}

mn_status mn_log_close(struct mn_log *log, mn_status status) {
  if (log->file && fclose(log->file) != 0 && !log->error) log->error = errno;
  log->file = NULL;
  if (status != MN_OK || !log->error) return status;
  return mn_fail(MN_IO, "%s: %s; %s: --resume goes on", log->path, strerror(log->error),
                 log->error == EFBIG ? "raise the limit on file sizes (ulimit -f)" : "free some space");
}
