/* A file that says it is a checkpoint: loading it, its configuration alone, its weights alone, info. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/input.h"
#include "train/checkpoint/layout.h"
#include "train/command/commands.h"

/* As mn_snapshot_load_weights does: for a model whose sizes are the file's. */
static void read_weights(const char *path) {
  struct mn_model_config config = {.groups = 1};
  mn_status status = mn_weights_sizes(path, &config);
  fuzz_check(status, fuzz_bad_data);
  if (status != MN_OK) return;
  struct mn_checkpoint *weights = calloc(1, sizeof *weights);
  MN_REQUIRE(weights);
  weights->model = config;
  MN_REQUIRE(mn_checkpoint_lay_out(weights) == MN_OK);
  for (int i = 0; i < weights->tensor_count; i++) weights->tensors[i].real = sizeof(float);
  fuzz_check(mn_weights_read(weights, path), fuzz_bad_data);
  mn_checkpoint_free(weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  struct mn_checkpoint *checkpoint = NULL;
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  MN_REQUIRE(nowhere);
  mn_status status = mn_checkpoint_load(&checkpoint, path);
  fuzz_check(status, fuzz_bad_data);
  MN_REQUIRE((status == MN_OK) == (checkpoint != NULL));
  mn_checkpoint_free(checkpoint);
  fuzz_check(mn_checkpoint_read_config(&checkpoint, path), fuzz_bad_data);
  mn_checkpoint_free(checkpoint);
  read_weights(path);
  fuzz_check(mn_info(nowhere, path, 0), fuzz_bad_data);
  fuzz_check_closed();
  return 0;
}
