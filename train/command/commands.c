/* From options to the configuration of each command. train, eval and predict read the options themselves; the
 * checks and measurements have structs of their own, so that tests and programs can call them without a
 * command line. */
#include "train/command/commands.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "data/hdf5/hdf5.h"
#include "train/check/check.h"
#include "train/command/announce.h"
#include "train/command/session.h"
#include "train/runs/folder.h"

/* What bench times by default, in groups of 16 channels: the reference shape, and on the CPU a smaller one,
 * which takes seconds, not minutes. */
enum { BENCH_WIDTH = 8192, BENCH_WIDTH_CPU = 1024, BENCH_GROUP = 16 };

/* What bench takes where the options name no shape. */
static void fill_shape(struct mn_model_config *model, const struct mn_device *device) {
  int64_t width = device->type == MN_DEVICE_CPU ? BENCH_WIDTH_CPU : BENCH_WIDTH;
  if (model->inputs == 0) model->inputs = width;
  if (model->depth == 0) model->depth = 1, model->hidden[0] = width;
  if (model->groups != 0) return;
  model->groups = model->hidden[0] / BENCH_GROUP;
  for (int i = 0; i < model->depth; i++)
    if (model->hidden[i] % BENCH_GROUP || model->hidden[i] % (model->groups ? model->groups : 1))
      model->groups = 1;
}

static mn_status check_model(FILE *out, struct mn_device *device, const struct mn_options *o) {
  struct mn_check_config config = {.has_loss = o->loss >= 0,
                                   .batch = o->batch,
                                   .seed = o->seed,
                                   .tolerance = o->tolerance,
                                   .plans = o->plans};
  mn_options_model(o, &config.model);
  mn_options_optimizer(o, 1, &config.optimizer);
  if (o->command == MN_COMMAND_GRADCHECK) return mn_gradcheck(out, device, &config, o->json);
  if (o->command == MN_COMMAND_PARITY) return mn_parity(out, device, o->files[0], o->tolerance, o->json);
  fill_shape(&config.model, device);
  return mn_bench(out, device, &config, o->json);
}

/* gradcheck, parity and bench. The device is announced only after the command has run, so that an error in
 * its input is the only line on stderr; a wrong file of cases is refused before a GPU starts. */
static mn_status run_check(FILE *out, const struct mn_options *o) {
  const enum mn_precision precision =
      o->command == MN_COMMAND_GRADCHECK ? MN_FP64 : (enum mn_precision)o->precision;
  struct mn_device *device;
  struct mn_case first;
  if (o->command == MN_COMMAND_PARITY) {
    MN_TRY(mn_case_read(o->files[0], 0, &first));
    mn_case_free(&first);
  }
  MN_TRY(mn_session_context(&device, o, o->device, mn_precision_name(precision), 0));
  const mn_status status = check_model(out, device, o);
  if (status == MN_OK || status == MN_FAILED) mn_announce_device(device, o, 0);
  mn_device_close(device);
  return status;
}

enum { STACK = 512, DEEP = 352 }; /* KiB that commands need, and that they use below this */

/* Takes the pages that the stack grows by, since a limit (ulimit -v) that they meet later is a SIGSEGV. */
static void __attribute__((noinline)) take_stack(void) {
  volatile char pages[DEEP << 10];
  for (size_t i = 0; i < sizeof pages; i += 4096) pages[sizeof pages - 1 - i] = 0;
}

/* With less a file that is read overflows the stack, which looks as if the file did it. */
static mn_status check_stack(void) {
  struct rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < STACK << 10)
    return mn_fail(MN_NO_MEMORY, "a stack of %ld KiB is too small: ulimit -s %d or more would do",
                   (long)(stack.rlim_cur >> 10), STACK);
  void *held = mmap(NULL, STACK << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (held == MAP_FAILED) return mn_fail(MN_NO_MEMORY, "no memory for the stack: free some");
  munmap(held, STACK << 10);
  take_stack();
  return MN_OK;
}

static mn_status run_command(FILE *out, const struct mn_options *o) {
  char in_run[2][MN_ATOMIC_FILE_PATH];
  const char *files[2] = {NULL};
  for (int i = 0; i < o->file_count && i < 2; i++)
    files[i] = mn_run_read(in_run[i], o->files[i], MN_RUN_CHECKPOINT);
  MN_TRY(check_stack());
  MN_TRY(mn_hdf5_start());
  MN_TRY(mn_files_check(o));
  switch (o->command) {
  case MN_COMMAND_TRAIN:
    return mn_train(out, o);
  case MN_COMMAND_EVAL:
  case MN_COMMAND_PREDICT:
    return mn_apply(out, o);
  case MN_COMMAND_GRADCHECK:
  case MN_COMMAND_PARITY:
  case MN_COMMAND_BENCH:
    return run_check(out, o);
  case MN_COMMAND_EXPORT:
    return mn_export(out, o, files[0]);
  case MN_COMMAND_PLOT:
    return mn_plot(o->out, o->force, o->files, o->file_count);
  case MN_COMMAND_INFO:
    return mn_info(out, files[0], o->json);
  case MN_COMMAND_VERIFY:
    return mn_verify(out, files[0], o->json);
  case MN_COMMAND_DIFF:
    return mn_diff(out, files[0], files[1], o->json);
  case MN_COMMANDS:
    break;
  }
  mn_abort(__FILE__, __LINE__, "a command");
}

mn_status mn_command_run(FILE *out, const struct mn_options *o) {
  mn_progress_open(0, o->quiet);
  const mn_status status = run_command(out, o);
  mn_progress_clear();
  return status;
}
