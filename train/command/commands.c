/* From options to the configuration of each command. train, eval and predict read the options themselves; the
 * checks and measurements have structs of their own, so that tests and programs can call them without a
 * command line. */
#include "train/command/commands.h"

#include "data/hdf5.h"
#include "train/check/check.h"
#include "train/command/announce.h"
#include "train/command/session.h"

/* What bench times by default, in groups of 16 channels: the reference shape, and on the CPU a smaller one,
 * which takes seconds, not minutes. */
enum { BENCH_WIDTH = 8192, BENCH_WIDTH_CPU = 1024, BENCH_GROUP = 16 };

/* Announces the device only after the command has run, so that an error in its input is the only line on
 * stderr. */
static mn_status leave(struct mn_device *device, const struct mn_options *options, mn_status status) {
  if (status == MN_OK || status == MN_FAILED) mn_announce_device(device, options);
  mn_device_close(device);
  return status;
}

static mn_status run_gradcheck(FILE *out, const struct mn_options *options) {
  struct mn_check_config config = {.has_loss = options->loss >= 0,
                                   .batch = options->batch,
                                   .seed = options->seed,
                                   .tolerance = options->tolerance};
  mn_options_model(options, &config.model);
  struct mn_device *device;
  MN_TRY(mn_session_context(&device, options, options->device, "fp64"));
  return leave(device, options, mn_gradcheck(out, device, &config, options->json));
}

static mn_status run_parity(FILE *out, const struct mn_options *options) {
  struct mn_case first; /* read so that a wrong file is refused before a GPU starts */
  MN_TRY(mn_case_read(options->files[0], 0, &first));
  mn_case_free(&first);
  struct mn_device *device;
  MN_TRY(mn_session_context(&device, options, options->device,
                            mn_precision_name((enum mn_precision)options->precision)));
  return leave(device, options, mn_parity(out, device, options->files[0], options->tolerance, options->json));
}

static mn_status run_bench(FILE *out, const struct mn_options *options) {
  struct mn_check_config config = {.batch = options->batch, .seed = options->seed, .plans = options->plans};
  mn_options_model(options, &config.model);
  mn_options_optimizer(options, &config.optimizer);
  struct mn_device *device;
  MN_TRY(mn_session_context(&device, options, options->device,
                            mn_precision_name((enum mn_precision)options->precision)));
  struct mn_model_config *model = &config.model;
  int64_t width = device->type == MN_DEVICE_CPU ? BENCH_WIDTH_CPU : BENCH_WIDTH;
  if (model->inputs == 0) model->inputs = width;
  if (model->depth == 0) model->depth = 1, model->hidden[0] = width;
  if (model->groups == 0) {
    model->groups = model->hidden[0] / BENCH_GROUP;
    for (int i = 0; i < model->depth; i++)
      if (model->hidden[i] % BENCH_GROUP || model->hidden[i] % (model->groups ? model->groups : 1))
        model->groups = 1;
  }
  return leave(device, options, mn_bench(out, device, &config, options->json));
}

mn_status mn_command_run(FILE *out, const struct mn_options *o) {
  MN_TRY(mn_hdf5_start());
  MN_TRY(mn_files_check(o));
  switch (o->command) {
  case MN_COMMAND_TRAIN:
    return mn_train(out, o);
  case MN_COMMAND_EVAL:
    return mn_eval(out, o);
  case MN_COMMAND_PREDICT:
    return mn_predict(out, o);
  case MN_COMMAND_GRADCHECK:
    return run_gradcheck(out, o);
  case MN_COMMAND_PARITY:
    return run_parity(out, o);
  case MN_COMMAND_BENCH:
    return run_bench(out, o);
  case MN_COMMAND_PLOT:
    return mn_plot(o->out, o->force, o->files, o->file_count);
  case MN_COMMAND_INFO:
    return mn_info(out, o->files[0], o->json);
  case MN_COMMAND_VERIFY:
    return mn_verify(out, o->files[0], o->json);
  case MN_COMMAND_DIFF:
    return mn_diff(out, o->files[0], o->files[1], o->json);
  case MN_COMMANDS:
    break;
  }
  mn_abort(__FILE__, __LINE__, "a command");
}
