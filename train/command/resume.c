/* Compares options, paths and data of a resumed run with its checkpoint. */
#include "train/command/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/ranks/ranks.h"
#include "kernels/text.h"
#include "train/checkpoint/atomic_file.h"
#include "train/command/announce.h"

/* ---- options ---- */

const char *mn_resume_find(const struct mn_session *s, const char *name) {
  if (!s->from) return NULL;
  return mn_text_find(s->from->options, s->from->option_count, name);
}

/* The old value as text; if it was unset, the option that replaced it. */
static void show_then(char *out, size_t size, const struct mn_session *s, int index) {
  const char *name = mn_option_rows[index].name, *then = mn_resume_find(s, name);
  int excludes = mn_option_excludes(index);
  const char *other = excludes >= 0 ? mn_option_rows[excludes].name : NULL;
  if (strcmp(name, "loss") == 0) then = mn_loss_name(s->from->model.loss); /* /config may have "auto" */
  if (other && mn_resume_find(s, other) && (!*then || strcmp(then, "0") == 0))
    snprintf(out, size, "--%s %.200s", other, mn_resume_find(s, other));
  else
    snprintf(out, size, "%s", *then ? then : "none");
}

static void note_change(struct mn_session *s, int index) {
  MN_REQUIRE(s->changes < MN_CHECKPOINT_OPTIONS);
  struct mn_text *change = &s->changed[s->changes++];
  snprintf(change->name, sizeof change->name, "%s", mn_option_rows[index].name);
  show_then(change->value, sizeof change->value, s, index);
}

/* One option of the checkpoint's. Data that is named is compared later, by its rows. */
static mn_status take_option(struct mn_session *s, int index) {
  struct mn_options *o = &s->options;
  const struct mn_option_row *row = &mn_option_rows[index];
  const char *then = mn_resume_find(s, row->name);
  char now[MN_TEXT_VALUE], was[MN_TEXT_VALUE];
  int other = mn_option_excludes(index), named = o->given[index];
  if (!then || (other >= 0 && o->given[other])) return MN_OK;
  if (row->alone && strcmp(then, "yes") == 0) then = row->alone; /* it was a flag */
  const int data = strcmp(row->name, "data") == 0;
  if (!named && data && *then) {
    const char *whole = mn_resume_find(s, "data_path"); /* an older minnow stored it so as well */
    mn_files_find(s, whole ? whole : then, s->data_path);
    then = s->data_path;
  }
  if (!named) return mn_options_set(o, row->name, then);
  if (row->flags & MN_OPTION_KEPT || data) return MN_OK;
  mn_option_show(now, sizeof now, o, index);
  show_then(was, sizeof was, s, index);
  if (strcmp(now, then) == 0 || strcmp(now, was) == 0) return mn_options_set(o, row->name, then);
  if (!(row->flags & MN_OPTION_COURSE))
    return mn_fail(MN_USAGE, "--%s %s, but %s was trained with %s; leave it out, or start a new run",
                   row->name, now, s->from_path, was);
  note_change(s, index);
  return MN_OK;
}

mn_status mn_resume_options(struct mn_session *s) {
  struct mn_options *o = &s->options;
  /* /config has the loss option, which may be "auto"; /model has the loss that was used. */
  const char *asked = mn_resume_find(s, "loss"), *used = mn_loss_name(s->from->model.loss);
  if (asked && strcmp(asked, "auto") != 0 && strcmp(asked, used) != 0)
    return mn_fail(MN_BAD_DATA,
                   "%s: its /config has loss %.40s, but its /model %s: take an older checkpoint or a copy",
                   s->from_path, asked, used);
  if (!mn_resume_find(s, "optimizer") && !mn_options_given(o, "optimizer"))
    o->optimizer = MN_SGD; /* from before there was a choice */
  for (int i = 0; i < mn_option_count; i++)
    if (mn_option_rows[i].flags & (MN_OPTION_CONFIG | MN_OPTION_KEPT)) MN_TRY(take_option(s, i));
  MN_TRY(mn_options_check(o));
  if (o->optimizer == MN_SGD && o->momentum > 0 && !s->from->tensors[0].momentum)
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

mn_status mn_resume_data(struct mn_session *s, struct mn_progress *p, const struct mn_fingerprint *train,
                         const struct mn_fingerprint *test) {
  const struct mn_options *o = &s->options;
  char best[MN_CHECKPOINT_PATH];
  const char *was = mn_resume_find(s, "weights_rows");
  int kept = 1; /* the best so far is; not where its run's newest was copied alone */
  const int named = mn_options_given(o, "data") || mn_options_given(o, "x") || mn_options_given(o, "y");
  if (o->data) mn_fingerprint_show(s->fingerprint, train, test);
  mn_fingerprint_weights(s->weights, s->train, s->test);
  const int weighed_anew = s->from && strcmp(was ? was : "", s->weights) != 0;
  if (o->data && !(s->model->trained = mn_fingerprint_inputs(train)))
    return mn_fail(MN_NO_MEMORY, "no memory for hashes of rows");
  const char *then = o->data ? mn_resume_find(s, "data_rows") : NULL;
  const int same = then ? mn_fingerprint_same(then, s->fingerprint) : 0;
  if (same < 0 && !named && mn_ranks_first(s->ranks))
    mn_escape_print(stderr,
                    "minnow: warning: %s is of an older minnow: whether %s has its rows cannot be told\n",
                    s->from_path, o->data);
  if (then && !same && !named)
    return mn_fail(MN_BAD_DATA,
                   "%s has other rows than those that %s was trained on; --data %s goes on with them",
                   o->data, s->from_path, o->data);
  if (weighed_anew && !named && !mn_options_given(o, "weights") && !mn_options_given(o, "class-weight"))
    return mn_fail(MN_BAD_DATA,
                   "%s has other weights than those that %s was trained with; --data %s goes on with them",
                   o->data, s->from_path, o->data);
  /* Keeps an earlier run's longer fingerprint of all rows; this run may have read a sample alone. */
  if (same && strncmp(then, s->fingerprint, strlen(s->fingerprint)) == 0)
    snprintf(s->fingerprint, sizeof s->fingerprint, "%s", then);
  if (o->data && !same && named && mn_resume_find(s, "data")) note_change(s, mn_option_find("data"));
  /* A file that is worse was written by this run, anew from a checkpoint that came without its best. */
  if (o->best && isfinite(p->best)) {
    struct mn_checkpoint *found = NULL;
    MN_TRY(mn_checkpoint_best(best, o->checkpoint));
    MN_TRY(mn_atomic_file_exists(best, &kept));
    const mn_status status = kept ? mn_checkpoint_load(&found, best) : MN_OK;
    if (status != MN_OK && status != MN_BAD_DATA) return status;
    if (status == MN_BAD_DATA && mn_ranks_first(s->ranks))
      mn_escape_print(stderr, "minnow: warning: %s; the best from here on replaces it\n", mn_message());
    kept = found && found->progress.best >= p->best;
    mn_checkpoint_free(found);
  }
  if (!kept || mn_text_find(s->changed, s->changes, "best") || mn_text_find(s->changed, s->changes, "data") ||
      mn_text_find(s->changed, s->changes, "metric") || weighed_anew)
    p->best = -INFINITY, p->best_epoch = p->epoch; /* patience counts from here */
  return MN_OK;
}

/* ---- texts for the next run ---- */

static void keep_text(struct mn_session *s, const char *name, const char *value) {
  if (!*value) return;
  MN_REQUIRE(s->config_count < MN_CHECKPOINT_OPTIONS);
  struct mn_text *text = &s->config[s->config_count++];
  snprintf(text->name, sizeof text->name, "%s", name);
  snprintf(text->value, sizeof text->value, "%s", value);
}

mn_status mn_resume_config(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  const int room = MN_CHECKPOINT_OPTIONS, count = mn_options_list(o, MN_OPTION_CONFIG, s->config, room);
  s->logged = count;
  s->config_count = count + mn_options_list(o, MN_OPTION_KEPT, s->config + count, room - count);
  for (int i = 0; i < s->config_count && o->run && o->data && !o->dry_run; i++)
    if (strcmp(s->config[i].name, "data") == 0) MN_TRY(mn_files_name(s, s->config[i].value));
  keep_text(s, "data_rows", s->fingerprint);
  keep_text(s, "weights_rows", s->weights);
  keep_text(s, MN_VALIDATION_DRAW, s->whole ? "stratified" : "");
  return MN_OK;
}

int mn_resume_history(const struct mn_session *s, struct mn_text out[MN_CHECKPOINT_HISTORY]) {
  int before = s->from ? s->from->history_count : 0, room = MN_CHECKPOINT_HISTORY - s->changes;
  int kept = before < room ? before : room;
  if (kept > 0) memcpy(out, s->from->history + before - kept, (size_t)kept * sizeof *out);
  for (int i = 0; i < s->changes; i++) {
    const struct mn_text *change = &s->changed[i];
    char now[MN_TEXT_VALUE];
    mn_option_show(now, sizeof now, &s->options, mn_option_find(change->name));
    snprintf(out[kept + i].name, sizeof out->name, "step %ld --%.12s", (long)s->from->progress.step,
             change->name);
    snprintf(out[kept + i].value, sizeof out->value, "%.120s (was %.120s)", now, change->value);
  }
  return kept + s->changes;
}

void mn_resume_describe(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  for (int i = 0; i < s->changes; i++) {
    char now[MN_TEXT_VALUE];
    mn_option_show(now, sizeof now, o, mn_option_find(s->changed[i].name));
    mn_announce(&s->options, "resumed with --%s %s (was %s)", s->changed[i].name, now, s->changed[i].value);
  }
}
