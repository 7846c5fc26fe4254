/* Prints the sizes of train/minnow.h's structs, the offsets of their members, and the values of enumerators. */
#include <stdio.h>

#include "train/minnow.h"

#define SIZE(of) printf("%s %zu\n", #of, sizeof(struct of))
#define AT(of, member)                                                                                       \
  printf("%s.%s at %zu of %zu\n", #of, #member, offsetof(struct of, member), sizeof(((struct of *)0)->member))
#define IS(name) printf("%s = %d\n", #name, (int)name)

static void show_models(void) {
  SIZE(mn_csv_config);
  AT(mn_csv_config, header);
  AT(mn_csv_config, table);
  AT(mn_csv_config, target);
  AT(mn_csv_config, drop);
  AT(mn_csv_config, use);
  AT(mn_csv_config, id);
  AT(mn_csv_config, numbers);
  SIZE(mn_model_config);
  AT(mn_model_config, inputs);
  AT(mn_model_config, depth);
  AT(mn_model_config, hidden);
  AT(mn_model_config, groups);
  AT(mn_model_config, head);
  AT(mn_model_config, eps);
  AT(mn_model_config, slope);
  AT(mn_model_config, loss);
  AT(mn_model_config, plan);
  SIZE(mn_parameter);
  AT(mn_parameter, name);
  AT(mn_parameter, rank);
  AT(mn_parameter, rows);
  AT(mn_parameter, cols);
  AT(mn_parameter, initial);
  AT(mn_parameter, bound);
  SIZE(mn_rule);
  AT(mn_rule, rate);
  AT(mn_rule, scale);
  AT(mn_rule, momentum);
  AT(mn_rule, weight_decay);
  AT(mn_rule, nesterov);
  AT(mn_rule, kind);
  AT(mn_rule, beta1);
  AT(mn_rule, beta2);
  AT(mn_rule, eps);
}

static void show_training(void) {
  SIZE(mn_optimizer_config);
  AT(mn_optimizer_config, rule);
  AT(mn_optimizer_config, clip);
  AT(mn_optimizer_config, accumulate);
  AT(mn_optimizer_config, rows);
  SIZE(mn_schedule);
  AT(mn_schedule, kind);
  AT(mn_schedule, rate);
  AT(mn_schedule, horizon);
  AT(mn_schedule, warmup);
  AT(mn_schedule, every);
  AT(mn_schedule, factor);
  SIZE(mn_trainer_config);
  AT(mn_trainer_config, schedule);
  AT(mn_trainer_config, batch);
  AT(mn_trainer_config, seed);
  AT(mn_trainer_config, place);
  AT(mn_trainer_config, on_nonfinite);
  AT(mn_trainer_config, stop);
  SIZE(mn_defaults);
  AT(mn_defaults, model);
  AT(mn_defaults, optimizer);
  AT(mn_defaults, trainer);
  AT(mn_defaults, steps);
  SIZE(mn_progress);
  AT(mn_progress, step);
  AT(mn_progress, epoch);
  AT(mn_progress, position);
  AT(mn_progress, samples);
  AT(mn_progress, rows);
  AT(mn_progress, seed);
  AT(mn_progress, best);
  AT(mn_progress, best_epoch);
  AT(mn_progress, skipped);
  AT(mn_progress, skipped_running);
  SIZE(mn_text);
  AT(mn_text, name);
  AT(mn_text, value);
}

static void show_enumerators(void) {
  IS(MN_OK);
  IS(MN_FAILED);
  IS(MN_USAGE);
  IS(MN_BAD_DATA);
  IS(MN_NO_INPUT);
  IS(MN_NO_DEVICE);
  IS(MN_LIBRARY);
  IS(MN_NO_MEMORY);
  IS(MN_NO_CREATE);
  IS(MN_IO);
  IS(MN_INTERRUPTED);
  IS(MN_PART_TRAIN);
  IS(MN_PART_TEST);
  IS(MN_PART_ALL);
  IS(MN_Y_REQUIRED);
  IS(MN_Y_NUMBERS);
  IS(MN_Y_NONE);
  IS(MN_TRUSTED);
}

static void show_kinds(void) {
  IS(MN_CSV_NOTES);
  IS(MN_MODEL_DEPTH);
  IS(MN_LOSS_MSE);
  IS(MN_LOSS_CROSS_ENTROPY);
  IS(MN_PLAN_NONE);
  IS(MN_PLAN_ACTIVATION);
  IS(MN_PLAN_NORM_ACTIVATION);
  IS(MN_PLAN_TAIL);
  IS(MN_PLAN_LINEAR_NORM);
  IS(MN_PLAN_BLOCK);
  IS(MN_PLAN_STACK);
  IS(MN_SGD);
  IS(MN_ADAMW);
  IS(MN_SCHEDULE_CONSTANT);
  IS(MN_SCHEDULE_COSINE);
  IS(MN_SCHEDULE_STEP);
  IS(MN_PLACE_AUTO);
  IS(MN_PLACE_DEVICE);
  IS(MN_PLACE_HOST);
  IS(MN_PLACE_FILE);
  IS(MN_NONFINITE_STOP);
  IS(MN_NONFINITE_SKIP);
  IS(MN_PASS_PREDICT);
  IS(MN_PASS_FORWARD);
  IS(MN_PASS_EVALUATE);
  IS(MN_PASS_TRAIN);
  IS(MN_PASS_SEEDED);
  IS(MN_TEXT_NAME);
  IS(MN_TEXT_VALUE);
  IS(MN_SAVE_NEWEST);
  IS(MN_SAVE_BEST);
  IS(MN_CHECKPOINT_PATH);
}

int main(void) {
  printf("MINNOW_ABI %d\n", MINNOW_ABI);
  show_models(), show_training(), show_enumerators(), show_kinds();
  return 0;
}
