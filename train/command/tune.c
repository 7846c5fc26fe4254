/* --tune and --folds. A setting is what options would be that the user left open. A checkpoint keeps the
 * scores, so that a resumed run trains what is missing, and the options that were chosen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ranks/ranks.h"
#include "train/command/announce.h"
#include "train/command/session.h"
#include "train/fit.h"

/* What the default steps and weight decay are multiplied by, and --clip; 0 leaves that as it is. */
struct setting {
  double steps, decay, clip;
};

/* Chosen by tests/peers/tables.py, in the order of their length. Those from FIRST to LAST are always tried,
 * the others if their neighbour is the best so far. */
static const struct setting settings[] = {{0.25, 4, 1}, {0.5, 2, 1}, {1, 2, 1}, {1, 1, 1},
                                          {4, 1, 1},    {8, 1, 1},   {16, 1, 1}};
static const struct setting as_it_is = {1, 1, 0};
enum { SETTINGS = sizeof settings / sizeof *settings, FIRST = 1, LAST = 4, FOLDS = 3 };
_Static_assert((int)SETTINGS <= (int)MN_SETTINGS, "room for each");

/* ---- settings ---- */

/* What the user's options leave of a setting. */
static struct setting left_open(const struct mn_options *o, int index) {
  struct setting s = o->tune ? settings[index] : as_it_is;
  if (o->steps > 0 || o->epochs > 0) s.steps = 1;
  if (o->clip >= 0) s.clip = 0;
  if (o->weight_decay >= 0 || o->optimizer != MN_ADAMW) s.decay = 1;
  return s;
}

/* Puts a setting into the options of a run over so many rows. Returns its steps, or −1 if they cannot be
 * counted. */
static int64_t apply(struct mn_options *o, int index, int64_t rows) {
  const struct setting s = left_open(o, index);
  int64_t steps = o->steps;
  if (!steps) steps = mn_default_steps(o->epochs < 0 ? 0 : o->epochs, rows, o->batch * o->accumulate);
  if (s.steps != 1 && steps > 0 && steps < INT64_MAX / 32) {
    steps = (int64_t)fmax(1, round(s.steps * (double)steps));
    o->steps = steps, o->epochs = 0;
  }
  if (s.clip > 0) o->clip = s.clip;
  if (s.decay != 1) o->weight_decay = s.decay * mn_default_decay((enum mn_rule_kind)o->optimizer, steps);
  return steps;
}

/* ---- scores ---- */

static double mean_loss(const struct mn_session *s, int index) {
  double sum = 0;
  for (int k = 0; k < s->folds; k++) sum += s->scores[index][k].loss;
  return sum / s->folds;
}

/* The scored setting with the least loss; −1 for none. */
static int best_of(const struct mn_session *s) {
  int best = -1;
  for (int i = 0; i < MN_SETTINGS; i++)
    if (!isnan(mean_loss(s, i)) && (best < 0 || mean_loss(s, i) < mean_loss(s, best))) best = i;
  return best;
}

static int is_tried(const struct mn_session *s, int index) {
  const int best = best_of(s);
  return (FIRST <= index && index <= LAST) || (best >= 0 && abs(best - index) == 1);
}

/* Whether a setting is to be scored: it has no score, and none that has or comes first does the same. */
static int is_wanted(const struct mn_session *s, int index) {
  const struct setting a = left_open(&s->options, index);
  if (!isnan(mean_loss(s, index)) || !is_tried(s, index)) return 0;
  for (int i = FIRST; i < SETTINGS; i++) {
    const struct setting b = left_open(&s->options, i);
    const int same = a.steps == b.steps && a.decay == b.decay && a.clip == b.clip;
    if (same && i != index && (!isnan(mean_loss(s, i)) || (i < index && is_tried(s, i)))) return 0;
  }
  return 1;
}

static mn_status set(void *session, int index, struct mn_model *model, struct mn_dataset *train,
                     struct mn_optimizer_config *optimizer, struct mn_trainer_config *trainer) {
  const struct mn_session *s = session;
  struct mn_options o = s->options;
  struct mn_columns columns[MN_SIDES] = {{0}};
  o.quiet = 1;
  if (o.batch > train->rows) o.batch = train->rows;
  const int64_t steps = apply(&o, index, train->rows);
  mn_options_optimizer(&o, steps, optimizer);
  mn_options_trainer(&o, steps, trainer);
  const mn_status status = mn_session_standardize(&o, model, train, columns, NULL);
  for (int side = 0; side < MN_SIDES; side++) mn_columns_free(&columns[side]);
  return status;
}

/* "fold_0", "fold_1" …: loss and score of each fold. They do not hold for what is named anew. */
static void read_scores(struct mn_session *s) {
  for (int i = 0; i < MN_SETTINGS; i++) {
    char name[MN_TEXT_NAME];
    snprintf(name, sizeof name, "fold_%d", i);
    const char *text = s->changes || mn_options_given(&s->options, "data") ? NULL : mn_resume_find(s, name);
    for (int k = 0; k < s->folds; k++) {
      char *end = (char *)(uintptr_t)text;
      struct mn_fold_score *score = &s->scores[i][k];
      score->loss = text ? strtod(text, &end) : NAN;
      score->score = text ? strtod(end, &end) : NAN;
      text = end;
    }
  }
}

int mn_tune_list(const struct mn_session *s, struct mn_text *out) {
  int count = 0;
  for (int i = 0; i < MN_SETTINGS && s->folds; i++) {
    struct mn_text *text = &out[count];
    int used = 0, any = 0;
    for (int k = 0; k < s->folds; k++) {
      const struct mn_fold_score *score = &s->scores[i][k];
      used += snprintf(text->value + used, sizeof text->value - (size_t)used, "%s%.*g %.*g", k ? " " : "",
                       MN_FOLD_DIGITS, score->loss, MN_SCORE_DIGITS, score->score);
      any |= !isnan(score->loss);
    }
    snprintf(text->name, sizeof text->name, "fold_%d", i);
    count += any;
  }
  return count;
}

/* ---- the run ---- */

/* Scores settings until none is wanted. */
static mn_status climb(struct mn_session *s, const int *stop) {
  struct mn_folds folds = {.device = s->device,
                           .model = &s->model->config,
                           .rows = s->train,
                           .seed = s->options.seed,
                           .folds = s->folds,
                           .class_weights = s->class_weights,
                           .set = set,
                           .to = s,
                           .stop = stop};
  do {
    folds.count = 0;
    for (int i = 0; i < SETTINGS; i++)
      if (is_wanted(s, i)) folds.settings[folds.count++] = i;
    if (folds.count) MN_TRY(mn_folds_score(&folds, s->scores));
  } while (folds.count && !__atomic_load_n(stop, __ATOMIC_ACQUIRE));
  return MN_OK;
}

mn_status mn_session_tune(struct mn_session *s, const int *stop) {
  struct mn_options *o = &s->options;
  struct mn_optimizer_config optimizer;
  if ((!o->tune && !o->folds) || o->dry_run) return MN_OK;
  if (s->ranks)
    return mn_fail(MN_USAGE, "--%s trains in one process: leave it out among ranks, or name --ranks 1",
                   o->tune ? "tune" : "folds");
  s->folds = o->folds ? (int)o->folds : FOLDS, s->chosen = -1;
  read_scores(s);
  if (s->progress.step == 0) MN_TRY(climb(s, stop));
  if (s->progress.step > 0 || __atomic_load_n(stop, __ATOMIC_ACQUIRE)) return MN_OK;
  s->chosen = best_of(s);
  if (isinf(mean_loss(s, s->chosen)))
    return mn_fail(MN_FAILED, "--%s: training diverged at --lr %g: a smaller rate may not",
                   o->tune ? "tune" : "folds", o->lr);
  s->horizon = apply(o, s->chosen, s->train->rows);
  mn_options_optimizer(o, s->horizon, &optimizer);
  mn_optimizer_close(s->optimizer);
  return mn_optimizer_open(&s->optimizer, s->model, &optimizer);
}

/* The mean of the scores, and their standard deviation. NaN: a fold has none. */
static double mean_score(const struct mn_session *s, double *deviation) {
  double mean = 0, sum = 0;
  for (int k = 0; k < s->folds; k++) mean += s->scores[s->chosen][k].score / s->folds;
  for (int k = 0; k < s->folds; k++) sum += pow(s->scores[s->chosen][k].score - mean, 2);
  *deviation = sqrt(sum / (s->folds - 1));
  return mean;
}

void mn_tune_describe(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  char chosen[256] = "", score[96] = "", number[MN_SHOWN];
  double deviation;
  if (!s->folds || s->chosen < 0) return;
  const double mean = mean_score(s, &deviation);
  const int classes = s->train->classes;
  if (o->tune)
    snprintf(chosen, sizeof chosen, "--steps %ld --clip %g --weight-decay %.3g: ", (long)s->horizon,
             o->clip > 0 ? o->clip : 0, s->optimizer->config.rule.weight_decay);
  if (!isnan(mean))
    snprintf(score, sizeof score, "%s %.4f (deviation %.4f), ", classes ? "accuracy" : "R2", mean, deviation);
  mn_announce(o, "%s: %s%sloss %s over %d folds", o->tune ? "tune" : "folds", chosen, score,
              mn_show_number(number, mean_loss(s, s->chosen), 4), s->folds);
}

void mn_tune_report(const struct mn_session *s, struct mn_json *json) {
  double deviation;
  if (!s->folds || s->chosen < 0 || json->plain) return;
  const double mean = mean_score(s, &deviation);
  mn_json_open(json, "folds");
  mn_json_integer(json, "folds", s->folds);
  mn_json_number(json, "loss", mean_loss(s, s->chosen));
  mn_json_number(json, s->train->classes ? "accuracy" : "r2", mean);
  mn_json_number(json, "deviation", deviation);
  mn_json_close(json);
}
