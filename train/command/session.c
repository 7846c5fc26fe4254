/* Opening a session, for a new run, a resumed one, and for reading a checkpoint. */
#include "train/command/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/order.h"
#include "train/checkpoint/snapshot.h"
#include "train/command/announce.h"

static mn_status open_synthetic(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  if (o->in < 1) return mn_fail(MN_USAGE, "--synthetic needs --in I, the number of inputs");
  if (o->depth < 1) return mn_fail(MN_USAGE, "--synthetic needs --hidden, the channels of each block");
  if (o->loss && strcmp(o->loss, "mse") != 0)
    return mn_fail(MN_USAGE, "--loss %s: synthetic targets are numbers; mse works", o->loss);
  int64_t outputs = o->head > 0 ? o->head : o->hidden[o->depth - 1];
  int64_t groups =
      outputs % o->groups == 0 ? o->groups : 1; /* the teacher's; a head's width need not divide */
  int64_t held_out = o->test_rows >= 0 ? o->test_rows : o->synthetic / 10 + (o->synthetic < 10);
  MN_TRY(mn_dataset_synthetic(&s->train, MN_PART_TRAIN, o->synthetic, o->in, outputs, groups, o->noise,
                              o->seed));
  if (held_out > 0)
    MN_TRY(mn_dataset_synthetic(&s->test, MN_PART_TEST, held_out, o->in, outputs, groups, o->noise, o->seed));
  return MN_OK;
}

static mn_status open_file(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  MN_TRY(mn_dataset_open(&s->train, o->data, MN_PART_ALL, o->x_name, o->y_name, 1));
  MN_TRY(mn_dataset_open(&s->test, o->data, MN_PART_TEST, o->x_name, o->y_name, 1));
  const struct mn_dataset *train = s->train, *test = s->test;
  if (test && (test->inputs != train->inputs || test->classes != train->classes ||
               (train->classes ? test->outputs > train->outputs : test->outputs != train->outputs)))
    return mn_fail(MN_BAD_DATA, "%s: test has %ld inputs and %ld %s, train %ld and %ld; the two must fit",
                   o->data, (long)test->inputs, (long)test->outputs, test->classes ? "classes" : "targets",
                   (long)train->inputs, (long)train->outputs);
  return MN_OK;
}

/* The loss and the head that the options name, or else those that the targets ask for. */
static mn_status fit_to_targets(const struct mn_session *s, struct mn_model_config *c) {
  const struct mn_options *o = &s->options;
  const struct mn_dataset *d = s->train;
  int64_t last = c->hidden[c->depth - 1];
  c->loss = d->classes ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE;
  if (o->loss) MN_TRY(mn_loss_parse(o->loss, &c->loss));
  if ((c->loss == MN_LOSS_CROSS_ENTROPY) != d->classes)
    return mn_fail(MN_USAGE, "--loss %s does not go with these targets; %s does", o->loss,
                   d->classes ? "cross-entropy (y are classes)" : "mse (y are numbers)");
  if (o->head >= 0) {
    c->head = o->head;
  } else {
    c->head = d->classes || d->outputs != last ? d->outputs : 0;
  }
  int64_t outputs = mn_model_outputs(c);
  if (d->classes ? outputs < d->outputs : outputs != d->outputs)
    return mn_fail(MN_USAGE, "the model has %ld outputs, but the data %ld %s; --head %ld would fit",
                   (long)outputs, (long)d->outputs, d->classes ? "classes" : "targets", (long)d->outputs);
  return MN_OK;
}

static mn_status open_model(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  if (o->depth < 1)
    return mn_fail(MN_USAGE, "--hidden is needed: the channels of each block, such as --hidden 128,128");
  if (o->in > 0 && o->in != s->train->inputs)
    return mn_fail(MN_USAGE, "--in %ld, but the data has %ld inputs; leave --in out", (long)o->in,
                   (long)s->train->inputs);
  struct mn_model_config c = {.inputs = s->train->inputs,
                              .depth = o->depth,
                              .groups = o->groups,
                              .eps = o->eps,
                              .slope = o->slope,
                              .plan = o->plan};
  memcpy(c.hidden, o->hidden, sizeof c.hidden);
  MN_TRY(fit_to_targets(s, &c));
  MN_TRY(mn_model_open(&s->model, s->context, &c));
  return s->from ? mn_snapshot_model(s) : mn_model_initialise(s->model, o->seed);
}

static mn_status resume(struct mn_session *s) {
  const struct mn_options *o = &s->options;
  char skipped[1024];
  MN_TRY(mn_checkpoint_load_newest(&s->from, o->checkpoint, s->from_path, sizeof s->from_path, skipped,
                                   sizeof skipped));
  if (skipped[0]) fprintf(stderr, "minnow: warning: passed over %s\n", skipped);
  return mn_snapshot_options(s);
}

/* Where the checkpoint is to go is known to be writable before hours of training. */
static mn_status check_place(const struct mn_options *o) {
  if (!o->checkpoint) return MN_OK;
  if (!o->resume && access(o->checkpoint, F_OK) == 0)
    return mn_fail(MN_NO_CREATE, "--checkpoint %s exists; --resume goes on from it, or name another file",
                   o->checkpoint);
  return mn_checkpoint_check_path(o->checkpoint, o->keep);
}

mn_status mn_session_train(struct mn_session *s, const struct mn_options *options) {
  *s = (struct mn_session){.options = *options};
  const struct mn_options *o = &s->options;
  if (o->resume) MN_TRY(resume(s));
  MN_TRY(check_place(o));
  if (!o->data && !o->synthetic)
    return mn_fail(MN_USAGE, "train needs rows: --data F, or --synthetic N --in I");
  MN_TRY(o->data ? open_file(s) : open_synthetic(s));
  if (o->batch > s->train->rows)
    return mn_fail(MN_USAGE, "--batch %ld is more than the %ld rows of the data; --batch %ld or less works",
                   (long)o->batch, (long)s->train->rows, (long)s->train->rows);
  if (s->from) MN_TRY(mn_snapshot_check_data(s));
  MN_TRY(mn_context_open(&s->context, o->device, o->precision));
  MN_TRY(open_model(s));
  struct mn_sgd_config sgd = {.momentum = o->momentum,
                              .weight_decay = o->weight_decay,
                              .nesterov = o->nesterov,
                              .clip = o->clip,
                              .accumulate = o->accumulate};
  MN_TRY(mn_optimizer_open(&s->optimizer, s->model, &sgd));
  return s->from ? mn_snapshot_momentum(s) : MN_OK;
}

mn_status mn_session_read(struct mn_session *s, const struct mn_options *options, int targets) {
  *s = (struct mn_session){.options = *options};
  const struct mn_options *o = &s->options;
  if (!o->checkpoint || !o->data) return mn_fail(MN_USAGE, "--checkpoint F and --data F are needed");
  MN_TRY(mn_checkpoint_load(&s->from, o->checkpoint));
  MN_TRY(mn_dataset_open(&s->test, o->data, MN_PART_TEST, o->x_name, o->y_name, targets));
  if (!s->test) MN_TRY(mn_dataset_open(&s->test, o->data, MN_PART_ALL, o->x_name, o->y_name, targets));
  struct mn_model_config c;
  MN_TRY(mn_snapshot_config(s, &c));
  if (c.inputs != s->test->inputs)
    return mn_fail(MN_BAD_DATA, "%s takes %ld inputs, but %s has %ld", o->checkpoint, (long)c.inputs, o->data,
                   (long)s->test->inputs);
  int classes = c.loss == MN_LOSS_CROSS_ENTROPY;
  int64_t outputs = mn_model_outputs(&c);
  if (targets &&
      (classes != s->test->classes || (classes ? outputs < s->test->outputs : outputs != s->test->outputs)))
    return mn_fail(MN_BAD_DATA, "%s gives %ld %s, but %s has %ld %s", o->checkpoint, (long)outputs,
                   classes ? "classes" : "numbers", o->data, (long)s->test->outputs,
                   s->test->classes ? "classes" : "numbers");
  MN_TRY(mn_context_open(&s->context, o->device, o->precision));
  MN_TRY(mn_model_open(&s->model, s->context, &c));
  return mn_snapshot_model(s);
}

void mn_session_close(struct mn_session *s) {
  mn_optimizer_close(s->optimizer);
  mn_model_close(s->model);
  mn_dataset_close(s->train);
  mn_dataset_close(s->test);
  mn_checkpoint_free(s->from);
  mn_context_close(s->context);
}

int64_t mn_session_horizon(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  if (o->steps > 0) return o->steps;
  int64_t each = o->batch * o->accumulate;
  return (o->epochs * s->train->rows + each - 1) / each;
}

void mn_session_describe(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  mn_announce_device(s->context, o);
  if (o->data)
    mn_announce(o, "data: %s, %ld rows, %ld to test", o->data, (long)s->train->rows,
                s->test ? (long)s->test->rows : 0L);
  else
    mn_announce(o, "data: %ld synthetic rows, no loss below %g", (long)s->train->rows, s->train->floor);
  if (s->from) {
    mn_announce(o, "resuming from %s, step %ld", s->from_path, (long)s->from->progress.step);
    mn_snapshot_warn(s);
  }
  if (!o->verbose) return;
  if (s->optimizer->stored)
    mn_announce(o, "plan: gradients are stored, then applied (clipping and accumulation need them whole)");
  else
    mn_announce(o, "plan: every gradient's product updates its parameter at once");
}
