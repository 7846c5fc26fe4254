/* A log: that a resumed run goes on with, and that plot draws. gnuplot is not started: there is none on an empty
 * PATH. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/input.h"
#include "train/command/commands.h"
#include "train/command/log.h"

/* A run's checkpoint of step 9, and the options that its log begins with. */
static struct mn_checkpoint from = {.progress = {.step = 9}, .option_count = 2};
static const struct mn_text config[] = {{"data", "d.h5"}, {"lr", "0.05"}};

static void resume(const char *path, size_t size) {
  static const mn_status allowed[] = {MN_NO_CREATE, MN_OK};
  struct mn_log log;
  struct stat after;
  static struct mn_device device = {.name = "CPU"};
  static struct mn_model model;
  static struct mn_session session = {.device = &device, .from = &from, .model = &model, .logged = 2};
  memcpy(from.options, config, sizeof config);
  memcpy(session.config, config, sizeof config);
  mn_status status = mn_log_open(&log, path, &session);
  fuzz_check(status, allowed);
  fuzz_check(mn_log_close(&log, status), allowed);
  MN_REQUIRE(stat(path, &after) == 0);
  if (status != MN_OK) MN_REQUIRE((size_t)after.st_size == size); /* it is as it was */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const mn_status allowed[] = {MN_BAD_DATA, MN_LIBRARY, MN_OK};
  char *path = (char *)fuzz_file(data, size), out[] = "/dev/shm/minnow-fuzz.svg";
  MN_REQUIRE(setenv("PATH", "", 1) == 0);
  fuzz_check(mn_plot(out, 1, &path, 1), allowed);
  resume(path, size);
  return 0;
}
