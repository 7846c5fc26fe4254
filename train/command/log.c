/* Writing the log, and shortening it to where a resumed run goes on. */
#include "train/command/log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "train/json.h"

double mn_seconds(void) {
  struct timespec now;
  MN_REQUIRE(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Cuts the file after the last whole line of a step up to `step`: what follows will be written again. */
static mn_status shorten(FILE *file, const char *path, int64_t step) {
  char *line = NULL;
  size_t room = 0;
  off_t end = 0;
  ssize_t length;
  while ((length = getline(&line, &room, file)) > 0) {
    const char *at = strstr(line, "\"step\":");
    if (line[length - 1] != '\n' || (at && strtoll(at + strlen("\"step\":"), NULL, 10) > step)) break;
    end = ftello(file);
  }
  int failed = ferror(file);
  free(line);
  if (failed || fflush(file) != 0 || ftruncate(fileno(file), end) != 0 || fseeko(file, end, SEEK_SET) != 0)
    return mn_fail(MN_IO, "--log %s: %s; a file that can be read and written is needed", path,
                   strerror(errno));
  return MN_OK;
}

mn_status mn_log_open(struct mn_log *log, const char *path, int64_t resumed) {
  *log = (struct mn_log){.path = path, .start = mn_seconds()};
  log->last = log->start;
  if (!path) return MN_OK;
  int keep = resumed >= 0 && access(path, F_OK) == 0;
  log->file = fopen(path, keep ? "r+e" : "we");
  if (!log->file)
    return mn_fail(MN_NO_CREATE, "--log %s: %s; name a file in a folder that can be written", path,
                   strerror(errno));
  return keep ? shorten(log->file, path, resumed) : MN_OK;
}

/* After each line, so that a full disk is known at once. */
static mn_status check(struct mn_log *log) {
  if (fflush(log->file) == 0 && !ferror(log->file)) return MN_OK;
  return mn_fail(MN_IO, "--log %s: %s; the run can be resumed once there is room", log->path,
                 strerror(errno));
}

static void open_line(struct mn_log *log, struct mn_json *json, const char *event) {
  mn_json_begin(json, log->file);
  mn_json_open(json, NULL);
  mn_json_string(json, "event", event);
}

mn_status mn_log_start(struct mn_log *log, const struct mn_option_text *config, int count,
                       const char *device) {
  if (!log->file || ftello(log->file) > 0) return MN_OK; /* a resumed log has its first line */
  struct mn_json json;
  open_line(log, &json, "start");
  mn_json_open(&json, "config");
  for (int i = 0; i < count; i++) mn_json_string(&json, config[i].name, config[i].value);
  mn_json_close(&json);
  mn_json_open(&json, "time");
  mn_json_string(&json, "device", device);
  mn_json_close(&json);
  mn_json_close(&json);
  return check(log);
}

mn_status mn_log_step(struct mn_log *log, int64_t step, int64_t epoch, int64_t samples, double loss,
                      double rate) {
  if (!log->file) return MN_OK;
  struct mn_json json;
  double now = mn_seconds();
  open_line(log, &json, "step");
  mn_json_integer(&json, "step", step);
  mn_json_integer(&json, "epoch", epoch);
  mn_json_integer(&json, "samples", samples);
  mn_json_number(&json, "loss", loss);
  mn_json_number(&json, "rate", rate);
  mn_json_open(&json, "time");
  mn_json_number(&json, "seconds", now - log->start);
  if (log->last_samples)
    mn_json_number(&json, "samples_per_second", (double)(samples - log->last_samples) / (now - log->last));
  mn_json_close(&json);
  mn_json_close(&json);
  log->last = now;
  log->last_samples = samples;
  return check(log);
}

mn_status mn_log_eval(struct mn_log *log, int64_t step, int64_t epoch, double loss, double accuracy) {
  if (!log->file) return MN_OK;
  struct mn_json json;
  open_line(log, &json, "eval");
  mn_json_integer(&json, "step", step);
  mn_json_integer(&json, "epoch", epoch);
  mn_json_number(&json, "test_loss", loss);
  if (!isnan(accuracy)) mn_json_number(&json, "test_accuracy", accuracy);
  mn_json_open(&json, "time");
  mn_json_number(&json, "seconds", mn_seconds() - log->start);
  mn_json_close(&json);
  mn_json_close(&json);
  return check(log);
}

mn_status mn_log_close(struct mn_log *log) {
  if (!log->file) return MN_OK;
  int failed = fclose(log->file) != 0;
  log->file = NULL;
  return failed ? mn_fail(MN_IO, "--log %s: %s", log->path, strerror(errno)) : MN_OK;
}
