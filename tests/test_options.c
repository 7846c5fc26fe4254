/* Options, parsed directly: defaults of each command, what is refused and in which words, and the way through
 * /config and back. */
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/skip.h"
#include "train/check/check.h"
#include "train/command/options.h"
#include "train/trainer.h"

enum { WORDS = 40, CONFIG = 64 };

/* Parses "train --lr 0.1 …", split at blanks; the words live until the next call but one. */
static mn_status parse(struct mn_options *options, const char *line) {
  static char texts[2][4096], program[] = "minnow";
  static int turn;
  char *text = texts[turn = !turn], *argv[WORDS] = {program};
  int argc = 1, done = 0;
  assert_true(strlen(line) < sizeof texts[0]);
  strcpy(text, line);
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
    assert_true(argc < WORDS - 1);
    argv[argc++] = word;
  }
  mn_status status = mn_options_parse(options, argc, argv, &done);
  assert_int_equal(done, 0);
  return status;
}

static struct mn_options good(const char *line) {
  struct mn_options options;
  if (parse(&options, line) != MN_OK) fail_msg("%s: %s", line, mn_message());
  return options;
}

static void train_has_its_defaults(void **state) {
  struct mn_options o = good("train --data d.h5 --hidden 128,64");
  assert_int_equal(o.command, MN_COMMAND_TRAIN);
  assert_string_equal(o.data, "d.h5");
  assert_string_equal(o.x_name, "x");
  assert_string_equal(o.y_name, "y");
  assert_int_equal(o.hidden.count, 2);
  assert_int_equal(o.hidden.items[0], 128);
  assert_int_equal(o.hidden.items[1], 64);
  assert_int_equal(o.groups, 0);
  assert_int_equal(o.head, -1);
  assert_int_equal(o.test_rows, -1);
  assert_true(o.eps == 1e-5 && o.slope == 0.01 && o.noise == 0.1);
  assert_true(o.lr == 0.007 && o.warmup == -1 && o.momentum == 0.9 && o.weight_decay == -1 && o.clip == -1 &&
              o.step_factor == 0.1);
  assert_int_equal(o.loss, -1);
  assert_int_equal(o.plan, MN_PLAN_STACK);
  assert_int_equal(o.optimizer, MN_ADAMW);
  assert_int_equal(o.epochs, -1);
  assert_int_equal(o.steps, 0);
  assert_int_equal(o.batch, 64);
  assert_int_equal(o.accumulate, 1);
  assert_int_equal(o.keep, 1);
  assert_int_equal(o.schedule, MN_SCHEDULE_COSINE);
  struct mn_options sgd = good("train --data d.h5 --hidden 8 --momentum 0.5"); /* of sgd alone */
  assert_int_equal(sgd.optimizer, MN_SGD);
  assert_true(sgd.lr == 0.05 && sgd.warmup == -1);
  assert_int_equal(sgd.schedule, MN_SCHEDULE_CONSTANT);
  assert_string_equal(o.device, "auto");
  assert_int_equal(o.precision, MN_FP32);
  assert_true(!o.checkpoint && !o.log && !o.plot && !o.resume && !o.init && !o.nesterov && !o.quiet &&
              !o.synthetic);
}

static void assert_same_model(const struct mn_model_config *a, const struct mn_model_config *b) {
  assert_true(a->inputs == b->inputs && a->depth == b->depth && a->groups == b->groups && a->head == b->head);
  assert_true(a->eps == b->eps && a->slope == b->slope && a->loss == b->loss && a->plan == b->plan);
  assert_memory_equal(a->hidden, b->hidden, sizeof a->hidden);
}

/* At most 8 groups that divide every width, of at least 4 channels. */
static void groups_suit_the_widths(void **state) {
  static const struct {
    const char *line;
    int64_t groups;
  } of[] = {{"train --data d --hidden 128", 8},     {"train --data d --hidden 100", 5},
            {"train --data d --hidden 10", 2},      {"train --data d --hidden 8", 2},
            {"train --data d --hidden 7", 1},       {"train --data d --hidden 3,128", 1},
            {"train --data d --hidden 128,100", 4}, {"train --data d --hidden 128 --groups 16", 16}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const struct mn_options o = good(of[i].line);
    struct mn_model_config model;
    mn_options_model(&o, &model);
    if (model.groups != of[i].groups) fail_msg("%s: %ld groups", of[i].line, (long)model.groups);
  }
}

/* The same for a program in C: mn_…_defaults; weight decay follows from the steps of a run, which these do
 * not know. */
static void the_library_has_the_same_defaults(void **state) {
  static const char *const lines[] = {
      [MN_SGD] = "train --data d --hidden 64 --optimizer sgd", [MN_ADAMW] = "train --data d --hidden 64"};
  for (int rule = 0; rule < MN_RULES; rule++) {
    const struct mn_options o = good(lines[rule]);
    struct mn_model_config model, models = mn_model_defaults();
    struct mn_optimizer_config a, b = mn_optimizer_defaults((enum mn_rule_kind)rule);
    const struct mn_trainer_config t = mn_trainer_defaults((enum mn_rule_kind)rule, 5000);
    mn_options_model(&o, &model);
    models.depth = 1, models.hidden[0] = 64;
    assert_same_model(&model, &models);
    mn_options_optimizer(&o, 100, &a);
    assert_true(a.rule.kind == b.rule.kind && (int)a.rule.kind == rule &&
                a.rule.momentum == b.rule.momentum && a.rule.nesterov == b.rule.nesterov &&
                a.rule.beta1 == b.rule.beta1 && a.rule.beta2 == b.rule.beta2 && a.rule.eps == b.rule.eps &&
                a.rule.weight_decay == (rule == MN_ADAMW ? 1.4 : 0) && b.rule.weight_decay == 0 &&
                a.clip == b.clip && a.accumulate == b.accumulate);
    assert_true(t.schedule.rate == o.lr && t.schedule.factor == o.step_factor && t.schedule.horizon == 5000);
    assert_int_equal(t.schedule.kind, o.schedule);
    assert_true(t.schedule.warmup == 100 && mn_trainer_defaults(MN_SGD, 450).schedule.warmup == 45);
    assert_true(t.batch == o.batch && t.seed == o.seed && !t.stop);
    assert_int_equal(t.place, o.place);
    assert_int_equal(t.on_nonfinite, o.on_nonfinite);
  }
  const struct mn_options o = good("gradcheck");
  struct mn_model_config model, models = mn_model_defaults();
  models.inputs = 6, models.depth = 1, models.hidden[0] = 8, models.groups = 2;
  mn_options_model(&o, &model);
  assert_same_model(&model, &models);
}

static void other_commands_have_their_own(void **state) {
  struct mn_options o = good("gradcheck");
  assert_true(o.batch == 4 && o.in == 6 && o.hidden.count == 1 && o.hidden.items[0] == 8 && o.groups == 2 &&
              o.head == 0);
  assert_true(o.tolerance == 1e-6);
  assert_int_equal(o.loss, -1);
  o = good("bench");
  assert_true(o.batch == 1024 && o.in == 0 && o.hidden.count == 0 && o.groups == 0 && o.momentum == 0.9);
  o = good("parity cases.h5");
  assert_string_equal(o.files[0], "cases.h5");
  assert_true(o.tolerance == 0);
  assert_int_equal(o.precision, MN_FP32);
  o = good("eval --run c --data d");
  assert_int_equal(o.precision, -1);
  assert_true(o.groups == 0 && o.eps == 1e-5 && o.slope == 0.01 && o.loss == -1);
  o = good("predict --run c --data d --out p --precision bf16 --force");
  assert_int_equal(o.precision, MN_BF16);
  assert_int_equal(o.force, 1);
  o = good("diff --json a.h5 b.h5");
  assert_string_equal(o.files[0], "a.h5");
  assert_string_equal(o.files[1], "b.h5");
  assert_int_equal(o.json, 1);
  o = good("plot a.jsonl --out p.svg b.jsonl c.jsonl");
  assert_int_equal(o.file_count, 3);
  assert_string_equal(o.files[0], "a.jsonl");
  assert_string_equal(o.files[2], "c.jsonl");
}

static void every_option_lands_in_its_field(void **state) {
  struct mn_options o = good(
      "train --synthetic 500 --noise 0.5 --test-rows 0 --in 7 --hidden 12,6 --groups 3 --head 2 --eps 1e-3 "
      "--slope 0.2 --loss mse --steps 30 --stop-at 9 --batch 5");
  assert_true(o.synthetic == 500 && o.noise == 0.5 && o.test_rows == 0 && o.in == 7 && o.groups == 3);
  assert_true(o.head == 2 && o.eps == 1e-3 && o.slope == 0.2 && o.steps == 30 && o.epochs == 0);
  assert_true(o.stop_at == 9 && o.batch == 5);
  assert_int_equal(o.loss, MN_LOSS_MSE);
  o = good("train --data d --hidden 8 --x a --y b --lr=.25 --momentum 0.5 --weight-decay 1e-4 --nesterov "
           "--schedule step "
           "--step-every 4 --step-factor 0.5 --warmup 3 --clip 2 --accumulate 6 --seed 18446744073709551615");
  assert_string_equal(o.x_name, "a");
  assert_string_equal(o.y_name, "b");
  assert_true(o.lr == 0.25 && o.momentum == 0.5 && o.weight_decay == 1e-4 && o.nesterov && o.step_every == 4);
  assert_true(o.step_factor == 0.5 && o.warmup == 3 && o.clip == 2 && o.accumulate == 6 &&
              o.seed == UINT64_MAX);
  o = good("train --data d --hidden 8 --run c --save-every 30s --keep 4 --log-every 2 --plot "
           "--verbose --device cuda:1 --precision bf16");
  assert_true(o.save_every == 30 && o.save_seconds == 1 && o.keep == 4 && o.log_every == 2 && o.verbose);
  assert_string_equal(o.device, "cuda:1");
  assert_int_equal(o.precision, MN_BF16);
  assert_true(o.plot);
  o = good("train --data d --hidden 8 --run c --save-every 30 --epo 4");
  assert_true(o.save_every == 30 && o.save_seconds == 0 && o.epochs == 4);
  o = good("train --data d --hidden 8 --init w.h5");
  assert_string_equal(o.init, "w.h5");
  o = good("train --data d --hidden 8 --optimizer adamw --beta1 0.8 --beta2 0.97 --adam-eps 1e-6 --lr 0.01");
  assert_true(o.beta1 == 0.8 && o.beta2 == 0.97 && o.adam_eps == 1e-6 && o.lr == 0.01);
  o = good("train --data d --hidden 8 --optimizer adamw");
  assert_true(o.beta1 == 0.9 && o.beta2 == 0.98 && o.adam_eps == 1e-8 && o.lr == 0.007);
  struct mn_optimizer_config config;
  mn_options_optimizer(&o, 100, &config);
  assert_true(config.rule.kind == MN_ADAMW && config.rule.beta2 == 0.98 && config.rule.eps == 1e-8 &&
              config.rule.momentum == 0);
  o = good("bench --plans --hidden 8,8");
  assert_true(o.plans && o.hidden.count == 2);
}

static void given_is_what_the_user_named(void **state) {
  struct mn_options o = good("train --data d --hidden 8 --quiet --lr 0.05");
  assert_true(mn_options_given(&o, "lr") && mn_options_given(&o, "quiet") && mn_options_given(&o, "data"));
  assert_false(mn_options_given(&o, "groups") || mn_options_given(&o, "momentum"));
}

/* A command line, and what its one message has to name: the thing, and what would do. */
static const struct {
  const char *line, *thing, *remedy;
} refused[] = {
    {"", "command", "--help"},
    {"trian", "'trian'", "did you mean train?"},
    {"frobnicate", "'frobnicate'", "--help"},
    {"help trian", "'trian'", "did you mean train?"},
    {"help train eval", "'eval'", "one command"},
    {"--seed 1 train", "'--seed'", "COMMAND first"},
    {"train --ephocs 3", "'--ephocs'", "did you mean --epochs?"},
    {"train --momentun=3", "'--momentun'", "did you mean --momentum?"},
    {"train --learning-rate 0.1", "'--learning-rate'", "did you mean --lr?"},
    {"train --learning-rate=0.1", "'--learning-rate'", "did you mean --lr?"},
    {"train --batch-size 8", "'--batch-size'", "did you mean --batch?"},
    {"bench --batch-size 8", "'--batch-size'", "did you mean --batch?"},
    {"eval --gpu", "'--gpu'", "did you mean --device?"},
    {"train --layers 8", "'--layers'", "did you mean --hidden?"},
    {"eval --checkpoint c --data d", "'--checkpoint'", "did you mean --run?"},
    {"predict --output f", "'--output'", "did you mean --out?"},
    {"info --layers 8", "'--layers'", "info --help"},
    {"train --out f", "'--out'", "which is one of predict's"},
    {"train --frobnicate", "'--frobnicate'", "train --help"},
    {"eval --epochs 3", "eval has no option '--epochs'", "eval --help"},
    {"train -x", "'-x'", "two dashes"},
    {"train --seed 3 -xyz", "'-x'", "two dashes"},
    {"train --step 3", "'--step'", "did you mean --steps?"},
    {"train --st 3", "'--st'", "several that begin so"},
    {"train --nesterov=3", "--nesterov", "takes no value"},
    {"train --data d --hidden 8 --lr", "--lr has no value", "a number above 0"},
    {"train --groups x", "--groups 'x'", "whole number from 1 "},
    {"train --groups 0", "--groups '0'", "whole number from 1 "},
    {"train --groups -4", "--groups '-4'", "whole number from 1 "},
    {"train --groups 4x", "--groups '4x'", "whole number from 1 "},
    {"train --groups 4.0", "--groups '4.0'", "whole number from 1 "},
    {"train --groups=", "--groups ''", "whole number from 1 "},
    {"train --steps 99999999999999999999", "--steps", "to 1099511627776"},
    {"train --lr nan", "--lr 'nan'", "above 0"},
    {"train --lr inf", "--lr 'inf'", "above 0"},
    {"train --lr 1e999", "--lr '1e999'", "above 0"},
    {"train --lr 0x1p-3", "--lr '0x1p-3'", "above 0"},
    {"train --lr 0", "--lr '0'", "above 0"},
    {"train --lr -0.1", "--lr '-0.1'", "above 0"},
    {"train --lr 0.1.2", "--lr '0.1.2'", "above 0"},
    {"train --momentum 1", "--momentum '1'", "below 1"},
    {"train --weight-decay -1", "--weight-decay '-1'", "from 0"},
    {"train --seed 18446744073709551616", "--seed", "18446744073709551615"},
    {"train --seed -1", "--seed '-1'", "from 0"},
    {"train --keep 1001", "--keep '1001'", "to 1000"},
    {"train --hidden 8,", "--hidden '8,'", "such as 128,128"},
    {"train --hidden 8,,8", "--hidden '8,,8'", "such as 128,128"},
    {"train --hidden 8,0", "--hidden '8,0'", "such as 128,128"},
    {"train --hidden auto", "--hidden 'auto'", "such as 128,128"},
    {"train --hidden 8,4194305", "--hidden '8,4194305'", "from 1 to 4194304"},
    {"train --save-every 30m", "--save-every '30m'", "30s"},
    {"train --save-every s", "--save-every 's'", "30s"},
    {"train --save-every 0s", "--save-every '0s'", "30s"},
    {"train --loss huber", "--loss 'huber'", "mse or cross-entropy"},
    {"train --loss ms", "--loss 'ms'", "mse or cross-entropy"},
    {"train --schedule mse|cosine", "--schedule", "constant, cosine or step"},
    {"gradcheck --plan tails", "--plan 'tails'", "tail, linear-norm, block or stack"},
    {"train --precision fp8", "--precision 'fp8'", "bf16, fp16 or fp16x3"},
    {"train --plot=p.svg", "--plot=p.svg", "takes no value"},
    {"train --run --resume", "--run '--resume'", "name"},
    {"train --checkpoint run.h5", "did you mean --run?", "mkdir run && mv run.h5 run/checkpoint.h5"},
    {"train more", "'more'", "options alone"},
    {"diff a", "diff", "diff A B"},
    {"diff a b c", "'c'", "diff A B"},
    {"parity", "parity", "parity F"},
    {"plot --out p.svg", "plot", "LOG"},
    {"plot l", "plot", "--out"},
    {"plot l --out p.pdf", "'p.pdf'", ".svg or .png"},
    {"train", "rows", "--data F"},
    {"train --synthetic 9 --hidden 8", "--synthetic", "--in I"},
    {"train --data d --synthetic 9", "--synthetic", "leave one out"},
    {"train --epochs 3 --steps 9", "--steps", "leave one out"},
    {"train --quiet --verbose", "--quiet", "leave one out"},
    {"train --run c --resume --init w", "--init", "leave one out"},
    {"train --data d --hidden 8 --init", "--init has no value", "a name"},
    {"train --data d --hidden 8 --resume", "--resume", "needs --run DIR"},
    {"train --data d --hidden 8 --save-every 3", "--save-every", "needs --run DIR"},
    {"train --data d --hidden 8 --keep 3", "--keep", "needs --run DIR"},
    {"train --data d --hidden 8 --in 3", "--in", "needs --synthetic n"},
    {"train --data d --hidden 8 --noise 1", "--noise", "needs --synthetic n"},
    {"train --synthetic 9 --in 4 --hidden 8 --x a", "--x", "needs --data F"},
    {"train --data d --hidden 8 --plot", "--plot", "needs --run DIR"},
    {"train --optimizer adam", "--optimizer 'adam'", "sgd or adamw is needed"},
    {"train --beta2 1", "--beta2 '1'", "below 1"},
    {"train --adam-eps 0", "--adam-eps '0'", "above 0"},
    {"train --data d --hidden 8 --optimizer adamw --momentum 0.9", "--momentum", "take sgd"},
    {"train --data d --hidden 8 --optimizer adamw --nesterov", "--nesterov", "take sgd"},
    {"bench --optimizer adamw --momentum 0", "--momentum", "leave it out"},
    {"train --data d --hidden 8 --optimizer sgd --beta1 0.5", "--beta1", "take adamw"},
    {"train --data d --hidden 8 --optimizer sgd --adam-eps 1", "--adam-eps", "take adamw"},
    {"train --data d --hidden 8 --step-every 3", "--step-every", "--schedule step"},
    {"train --data d --hidden 8 --nesterov --momentum 0", "--nesterov", "--momentum above 0"},
    {"train --synthetic 9 --in 4 --hidden 8 --loss cross-entropy", "--loss cross-entropy", "--loss mse"},
    {"train --data d --hidden 128 --groups 7", "--groups 7 does not divide --hidden 128", "4 and 8 do"},
    {"train --data d --hidden 8 --groups 9", "--groups 9 does not divide --hidden 8", "; 8 does"},
    {"train --data d --hidden 128,60 --groups 8", "--hidden 60", "6 and 10 do"},
    {"gradcheck --groups 3", "--groups 3 does not divide --hidden 8", "2 and 4 do"},
    {"eval --data d", "eval", "--run DIR"},
    {"eval --run c", "eval", "--data F"},
    {"predict --run c --data d", "predict", "--out F"},
};

/* The examples of --help are command lines that are read; a section's stands behind the command's. */
static void examples_are_read(void **state) {
  char line[256];
  for (int c = 0; c < MN_COMMANDS; c++) {
    snprintf(line, sizeof line, "%s %s", mn_command_rows[c].name, mn_command_rows[c].example);
    good(line);
  }
  int sections = 0;
  for (int i = 0; i < mn_option_count; i++) {
    const char *example = mn_option_rows[i].kind == MN_KIND_HEADING ? mn_option_rows[i].argument : NULL;
    if (!example) continue;
    snprintf(line, sizeof line, "train %s%s %s", strstr(example, "--synthetic") ? "" : "--data d ",
             strstr(example, "--hidden") ? "" : "--hidden 128", example);
    good(line);
    sections++;
  }
  assert_int_equal(sections, 10);
}

/* An option that another needs or excludes is one, and the two that exclude each other both say so. */
static void rules_name_options(void **state) {
  int pairs = 0;
  for (int i = 0; i < mn_option_count; i++) {
    const struct mn_option_row *row = &mn_option_rows[i];
    if (row->needs) assert_true(mn_option_find(row->needs) >= 0);
    if (!row->excludes) continue;
    assert_true(mn_option_excludes(i) >= 0);
    assert_int_equal(mn_option_excludes(mn_option_excludes(i)), i);
    pairs++;
  }
  assert_int_equal(pairs, 2 * 5);
}

static void what_is_wrong_is_named(void **state) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    struct mn_options options;
    mn_fail(MN_OK, "no message");
    mn_status status = parse(&options, refused[i].line);
    if (status != MN_USAGE) fail_msg("'%s' is status %d", refused[i].line, status);
    if (!strstr(mn_message(), refused[i].thing) || !strstr(mn_message(), refused[i].remedy) ||
        strchr(mn_message(), '\n'))
      fail_msg("'%s' says '%s', which should name '%s' and '%s'", refused[i].line, mn_message(),
               refused[i].thing, refused[i].remedy);
  }
}

/* One letter of any option or command is another, or is missing: the word that is meant is named. */
static void a_slip_is_understood(void **state) {
  struct mn_options o;
  for (int command = 0; command < MN_COMMANDS; command++)
    for (int i = 0; i < mn_option_count; i++) {
      const char *name = mn_option_rows[i].name;
      if (!mn_option_taken(i, (enum mn_command)command) || strlen(name) < 5) continue;
      for (int missing = 0; missing < 2; missing++) {
        char line[128], hint[64], slip[64];
        strcpy(slip, name);
        slip[1] = '_';
        if (missing) memmove(slip + 1, slip + 2, strlen(slip + 1));
        snprintf(line, sizeof line, "%s --%s", mn_command_rows[command].name, slip);
        /* What a word without a letter is nearest to may be another. */
        snprintf(hint, sizeof hint, "did you mean --%s", missing ? "" : name);
        assert_int_equal(parse(&o, line), MN_USAGE);
        if (!strstr(mn_message(), hint)) fail_msg("'%s' says '%s'", line, mn_message());
      }
    }
}

static void stacks_have_a_limit(void **state) {
  struct mn_options o;
  char line[4096] = "train --data d --hidden 128";
  for (int i = 1; i < MN_MODEL_DEPTH; i++) strcat(line, ",128");
  o = good(line);
  assert_int_equal(o.hidden.count, MN_MODEL_DEPTH);
  strcat(line, ",128");
  assert_int_equal(parse(&o, line), MN_USAGE);
  assert_non_null(strstr(mn_message(), "at most 64"));
}

static void what_config_cannot_hold_is_refused(void **state) {
  struct mn_options o;
  char line[1024] = "train --hidden 8 --data ";
  size_t length = strlen(line);
  memset(line + length, 'd', MN_TEXT_VALUE - 1);
  o = good(line);
  struct mn_text config[CONFIG];
  mn_options_list(&o, MN_OPTION_CONFIG, config, CONFIG);
  assert_string_equal(config[0].name, "data");
  assert_string_equal(config[0].value, line + length);
  strcat(line, "d");
  assert_int_equal(parse(&o, line), MN_USAGE);
  assert_non_null(strstr(mn_message(), "255"));
}

static const struct mn_text *find(const struct mn_text *config, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(config[i].name, name) == 0) return &config[i];
  fail_msg("/config has no %s", name);
  return NULL;
}

static void config_is_canonical(void **state) {
  struct mn_options a =
      good("train --data d --hidden 0128,8 --lr 5e-2 --eps 0.00001 --clip 1.50 --nesterov --seed 007");
  struct mn_options b =
      good("train --data d --hidden 128,8 --lr .05 --eps 1e-5 --clip 1.5 --nesterov --seed 7 --quiet");
  struct mn_text one[CONFIG], two[CONFIG];
  int count = mn_options_list(&a, MN_OPTION_CONFIG, one, CONFIG);
  assert_int_equal(mn_options_list(&b, MN_OPTION_CONFIG, two, CONFIG), count);
  for (int i = 0; i < count; i++) assert_string_equal(one[i].value, two[i].value);
  static const char *const expected[][2] = {
      {"hidden", "128,8"}, {"lr", "0.05"}, {"clip", "1.5"},  {"nesterov", "yes"}, {"seed", "7"},
      {"epochs", "auto"},  {"steps", "0"}, {"head", "auto"}, {"loss", "auto"},    {"synthetic", "0"},
  };
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    assert_string_equal(find(one, count, expected[i][0])->value, expected[i][1]);
  assert_true(mn_options_given(&a, "lr"));
  assert_false(mn_options_given(&a, "groups"));
}

/* A third, to the last bit, and everything that excludes something else. */
static void config_survives_the_way_back(void **state) {
  static const char *const lines[] = {
      "train --data d --x a --hidden 24,12 --groups 4 --lr 0.33333333333333331 --steps 77 --loss mse "
      "--nesterov",
      "train --synthetic 50 --in 3 --hidden 8 --epochs 3 --test-rows 0 --schedule step --step-every 4 --head "
      "0",
  };
  for (int k = 0; k < 2; k++) {
    struct mn_options from = good(lines[k]), to = good("train --resume --run c");
    struct mn_text config[CONFIG], again[CONFIG];
    int count = mn_options_list(&from, MN_OPTION_CONFIG, config, CONFIG);
    assert_int_equal(mn_options_check(&to), MN_USAGE);
    for (int i = 0; i < count; i++)
      assert_int_equal(mn_options_set(&to, config[i].name, config[i].value), MN_OK);
    assert_int_equal(mn_options_check(&to), MN_OK);
    assert_int_equal(mn_options_list(&to, MN_OPTION_CONFIG, again, CONFIG), count);
    for (int i = 0; i < count; i++) assert_string_equal(again[i].value, config[i].value);
    assert_true(to.lr == from.lr && to.steps == from.steps && to.epochs == from.epochs &&
                to.hidden.count == from.hidden.count);
    assert_false(mn_options_given(&to, "lr"));
  }
}

static void damaged_config_is_refused(void **state) {
  struct mn_options o = good("train --resume --run c");
  assert_int_equal(mn_options_set(&o, "colour", "blue"), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "colour"));
  assert_int_equal(mn_options_set(&o, "run", "x"), MN_BAD_DATA);
  assert_int_equal(mn_options_set(&o, "lr", "nan"), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "lr 'nan'"));
  assert_int_equal(mn_options_set(&o, "batch", "0"), MN_BAD_DATA);
  assert_int_equal(mn_options_set(&o, "nesterov", "maybe"), MN_BAD_DATA);
  assert_int_equal(mn_options_set(&o, "hidden", ""), MN_BAD_DATA);
  assert_true(o.lr == 0.007 && o.batch == 64);
}

/* A word's place in the table is the enum's value. */
static void words_are_the_values_of_their_enums(void **state) {
  char line[128];
  for (int i = 0; i < MN_PRECISIONS; i++) {
    snprintf(line, sizeof line, "bench --precision %s", mn_precision_name((enum mn_precision)i));
    assert_int_equal(good(line).precision, i);
  }
  for (int i = 0; i <= MN_SCHEDULE_STEP; i++) {
    snprintf(line, sizeof line, "train --data d --hidden 8 --schedule %s",
             mn_schedule_name((enum mn_schedule_kind)i));
    assert_int_equal(good(line).schedule, i);
  }
  for (int i = 0; i <= MN_LOSS_CROSS_ENTROPY; i++) {
    snprintf(line, sizeof line, "gradcheck --loss %s", mn_loss_name((enum mn_loss)i));
    assert_int_equal(good(line).loss, i);
  }
  for (int i = 0; i < MN_PLANS; i++) {
    snprintf(line, sizeof line, "gradcheck --plan %s", mn_plan_name((enum mn_plan)i));
    assert_int_equal(good(line).plan, i);
  }
  assert_int_equal(good("eval --run c --data d --part test").part, MN_ROWS_TEST);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(train_has_its_defaults),
      cmocka_unit_test(groups_suit_the_widths),
      cmocka_unit_test(the_library_has_the_same_defaults),
      cmocka_unit_test(other_commands_have_their_own),
      cmocka_unit_test(every_option_lands_in_its_field),
      cmocka_unit_test(given_is_what_the_user_named),
      cmocka_unit_test(examples_are_read),
      cmocka_unit_test(rules_name_options),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(a_slip_is_understood),
      cmocka_unit_test(stacks_have_a_limit),
      cmocka_unit_test(what_config_cannot_hold_is_refused),
      cmocka_unit_test(config_is_canonical),
      cmocka_unit_test(config_survives_the_way_back),
      cmocka_unit_test(damaged_config_is_refused),
      cmocka_unit_test(words_are_the_values_of_their_enums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
