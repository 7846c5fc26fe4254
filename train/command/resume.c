/* Options, paths and data of a resumed run, against those of its checkpoint. */
#include "train/command/resume.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/fingerprint.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/announce.h"
#include "train/command/options_table.h"
#include "train/command/options_text.h"

/* ---- options ---- */

static const char *find_then(const struct mn_session *s, const char *name) {
  return mn_text_find(s->from->options, s->from->option_count, name);
}

/* What an option was, for people: of one that was unset, the one that excludes it. */
static void show_then(char *out, size_t size, const struct mn_session *s, int index) {
  const char *name = mn_option_rows[index].name, *then = find_then(s, name);
  int excludes = mn_option_excludes(index);
  const char *other = excludes >= 0 ? mn_option_rows[excludes].name : NULL;
  if (strcmp(name, "loss") == 0) then = s->from->loss; /* /config may have "auto" */
  if (other && find_then(s, other) && (!*then || strcmp(then, "0") == 0))
    snprintf(out, size, "--%s %.200s", other, find_then(s, other));
  else
    snprintf(out, size, "%s", then);
}

static void note_change(struct mn_session *s, int index) {
  MN_REQUIRE(s->changes < MN_CHECKPOINT_OPTIONS);
  struct mn_text *change = &s->changed[s->changes++];
  snprintf(change->name, sizeof change->name, "%s", mn_option_rows[index].name);
  show_then(change->value, sizeof change->value, s, index);
}

/* Fails for a path that is longer than a text. */
static int find_whole_path(char out[MN_TEXT_VALUE], const char *path) {
  char folder[MN_TEXT_VALUE] = "";
  if (*path != '/' && !getcwd(folder, sizeof folder)) return -1;
  return snprintf(out, MN_TEXT_VALUE, "%s%s%s", folder, *folder ? "/" : "", path) < MN_TEXT_VALUE ? 0 : -1;
}

/* Where a file of the checkpoint's is, whichever folder this run is in: the path that it was given by, where
 * that leads to the same place from here, or where only that leads to a file, in a folder that was moved. */
static const char *find_file(const struct mn_session *s, const char *option, const char *given) {
  char name[MN_TEXT_NAME], here[MN_TEXT_VALUE];
  snprintf(name, sizeof name, "%.20s_path", option);
  const char *whole = find_then(s, name);
  if (!whole || (find_whole_path(here, given) == 0 && strcmp(here, whole) == 0)) return given;
  int moved, found = 0;
  moved = mn_atomic_file_exists(whole, &found) == MN_OK && !found;
  return moved && mn_atomic_file_exists(given, &found) == MN_OK && found ? given : whole;
}

/* Whether the checkpoint is the best of a run, whose log goes on with the run's newest. */
static int is_best(const struct mn_options *o) {
  const char *name = strrchr(o->checkpoint, '/'), *best = strstr(name ? name : o->checkpoint, ".best");
  return best && (best[5] == 0 || best[5] == '.');
}

/* One option of the checkpoint's. Data that is named is compared later, by its rows. */
static mn_status take_option(struct mn_session *s, int index) {
  struct mn_options *o = &s->options;
  const struct mn_option_row *row = &mn_option_rows[index];
  const char *then = find_then(s, row->name);
  char now[MN_TEXT_VALUE], was[MN_TEXT_VALUE];
  int other = mn_option_excludes(index), named = o->given[index];
  if (!then || (other >= 0 && o->given[other])) return MN_OK;
  if (!named && strcmp(row->name, "log") == 0 && is_best(o)) return MN_OK;
  if (!named) return mn_options_set(o, row->name, find_file(s, row->name, then));
  if (row->flags & MN_OPTION_KEPT || strcmp(row->name, "data") == 0) return MN_OK;
  mn_option_show(now, sizeof now, o, index);
  show_then(was, sizeof was, s, index);
  if (strcmp(now, then) == 0 || strcmp(now, was) == 0) return mn_options_set(o, row->name, then);
  if (!(row->flags & MN_OPTION_COURSE))
    return mn_fail(MN_USAGE, "--%s %s, but %s was trained with %s; leave it out, or start a new run",
                   row->name, now, s->from_path, was);
  note_change(s, index);
  return MN_OK;
}

/* /config says which loss was asked for, /model which it was. */
static mn_status check_loss(const struct mn_session *s) {
  const char *asked = find_then(s, "loss");
  if (!asked || strcmp(asked, "auto") == 0 || strcmp(asked, s->from->loss) == 0) return MN_OK;
  return mn_fail(MN_BAD_DATA,
                 "%s: its /config has loss %.40s, but its /model %s: take an older checkpoint or a copy",
                 s->from_path, asked, s->from->loss);
}

mn_status mn_resume_options(struct mn_session *s) {
  struct mn_options *o = &s->options;
  MN_TRY(check_loss(s));
  for (int i = 0; i < mn_option_count; i++)
    if (mn_option_rows[i].flags & (MN_OPTION_CONFIG | MN_OPTION_KEPT)) MN_TRY(take_option(s, i));
  MN_TRY(mn_options_check(o));
  if (strcmp(o->optimizer, "sgd") == 0 && o->momentum > 0 && !s->from->tensors[0].momentum)
    return mn_fail(MN_USAGE, "--momentum %g, but %s was trained without; leave it out, or start a new run",
                   o->momentum, s->from_path);
  int there = 1;
  if (o->data) MN_TRY(mn_atomic_file_exists(o->data, &there));
  if (!there && !mn_options_given(o, "data"))
    return mn_fail(MN_NO_INPUT, "%s, which %s was trained on, is not there; --data F says where it is",
                   o->data, s->from_path);
  return MN_OK;
}

/* ---- data ---- */

static int is_data_named(const struct mn_options *o) {
  return mn_options_given(o, "data") || mn_options_given(o, "x") || mn_options_given(o, "y");
}

static mn_status take_fingerprint(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  uint64_t sum = MN_FINGERPRINT_START;
  MN_TRY(mn_fingerprint_add(&sum, s->train, o->x_name, o->y_name));
  if (s->test) MN_TRY(mn_fingerprint_add(&sum, s->test, o->x_name, o->y_name));
  snprintf(s->fingerprint, sizeof s->fingerprint, "%016" PRIx64, sum);
  return MN_OK;
}

mn_status mn_resume_data(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  if (!o->data) return MN_OK;
  MN_TRY(take_fingerprint(s));
  if (!s->from) return MN_OK;
  const char *then = find_then(s, "data_fingerprint"), *file = find_then(s, "data");
  s->unknown_data = !then && file && *file;
  if (then && strcmp(then, s->fingerprint) == 0) return MN_OK;
  if (then && !is_data_named(o))
    return mn_fail(MN_BAD_DATA,
                   "%s has other rows than those that %s was trained on; --data %s goes on with them",
                   o->data, s->from_path, o->data);
  if (file && is_data_named(o)) note_change(s, mn_option_find("data"));
  return MN_OK;
}

void mn_resume_rows(struct mn_session *s) {
  struct mn_progress *p = &s->progress;
  if (mn_text_find(s->changed, s->changes, "best")) p->best = -INFINITY, p->best_epoch = p->epoch;
  if (!mn_text_find(s->changed, s->changes, "data")) return;
  p->rows = s->train->rows;
  p->epoch = p->samples / p->rows;
  p->position = p->samples % p->rows;
  p->best = -INFINITY, p->best_epoch = p->epoch; /* patience counts from here */
}

/* ---- what the next run is told ---- */

static int keep_path(struct mn_text *out, const char *name, const char *path) {
  snprintf(out->name, sizeof out->name, "%s", name);
  return path && find_whole_path(out->value, path) == 0;
}

int mn_resume_kept(const struct mn_session *s, struct mn_text *out, int room) {
  const struct mn_options *o = &s->options;
  int count = mn_options_kept(o, out, room - 3);
  count += keep_path(&out[count], "data_path", o->data);
  count += keep_path(&out[count], "log_path", o->log);
  if (!o->data) return count;
  snprintf(out[count].name, sizeof out->name, "data_fingerprint");
  snprintf(out[count].value, sizeof out->value, "%s", s->fingerprint);
  return count + 1;
}

static void show_now(char out[MN_TEXT_VALUE], const struct mn_session *s, const char *option) {
  mn_option_show(out, MN_TEXT_VALUE, &s->options, mn_option_find(option));
}

int mn_resume_history(const struct mn_session *s, struct mn_text out[MN_CHECKPOINT_HISTORY]) {
  int before = s->from ? s->from->history_count : 0, room = MN_CHECKPOINT_HISTORY - s->changes;
  int kept = before < room ? before : room;
  if (kept > 0) memcpy(out, s->from->history + before - kept, (size_t)kept * sizeof *out);
  for (int i = 0; i < s->changes; i++) {
    const struct mn_text *change = &s->changed[i];
    char now[MN_TEXT_VALUE];
    show_now(now, s, change->name);
    snprintf(out[kept + i].name, sizeof out->name, "step %ld --%.12s", (long)s->from->progress.step,
             change->name);
    snprintf(out[kept + i].value, sizeof out->value, "%.120s (was %.120s)", now, change->value);
  }
  return kept + s->changes;
}

void mn_resume_describe(const struct mn_session *s) {
  for (int i = 0; i < s->changes; i++) {
    char now[MN_TEXT_VALUE];
    show_now(now, s, s->changed[i].name);
    mn_announce(&s->options, "resumed with --%s %s (was %s)", s->changed[i].name, now, s->changed[i].value);
  }
  if (s->unknown_data)
    mn_announce(
        &s->options,
        "note: %s is of an older minnow, without a fingerprint of its data: the rows could not be compared",
        s->from_path);
}
