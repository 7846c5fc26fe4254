/* A command line, one argument a line; and lines NAME=VALUE as a checkpoint's /config has them. Options that
 * a command line gives must come back from /config as they were. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/input.h"
#include "train/command/options.h"

enum { MOST = 40 };

/* Options that /config gives back are those that it was made of. */
static void round_trip(const struct mn_options *options) {
  struct mn_text texts[MN_CHECKPOINT_OPTIONS], again[MN_CHECKPOINT_OPTIONS];
  char *argv[] = {"minnow", "train", "--resume", "--run", "F", NULL};
  struct mn_options fresh;
  int done, count = mn_options_list(options, MN_OPTION_CONFIG, texts, MN_CHECKPOINT_OPTIONS);
  MN_REQUIRE(mn_options_parse(&fresh, 5, argv, &done) == MN_OK && !done);
  for (int i = 0; i < count; i++)
    if (mn_options_set(&fresh, texts[i].name, texts[i].value) != MN_OK)
      mn_abort(__FILE__, __LINE__, mn_message());
  MN_REQUIRE(mn_options_list(&fresh, MN_OPTION_CONFIG, again, MN_CHECKPOINT_OPTIONS) == count);
  for (int i = 0; i < count; i++)
    if (strcmp(texts[i].value, again[i].value) != 0) mn_abort(__FILE__, __LINE__, texts[i].name);
}

static void parse(char *lines) {
  static const mn_status allowed[] = {MN_USAGE, MN_OK};
  char *argv[MOST + 1] = {"minnow"};
  int argc = 1, done;
  struct mn_options options;
  for (char *line = strtok(lines, "\n"); line && argc < MOST; line = strtok(NULL, "\n")) argv[argc++] = line;
  if (argc < 2) return;
  mn_status status = mn_options_parse(&options, argc, argv, &done);
  fuzz_check(status, allowed);
  if (status == MN_OK && !done && options.command == MN_COMMAND_TRAIN) round_trip(&options);
}

static void set(char *lines) {
  static const mn_status allowed[] = {MN_BAD_DATA, MN_OK};
  char *argv[] = {"minnow", "train", "--resume", "--run", "F", NULL};
  struct mn_options options;
  int done;
  MN_REQUIRE(mn_options_parse(&options, 5, argv, &done) == MN_OK && !done);
  for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
    char *value = strchr(line, '=');
    if (!value) continue;
    *value = 0;
    fuzz_check(mn_options_set(&options, line, value + 1), allowed);
  }
  mn_status status = mn_options_check(&options);
  if (status == MN_OK) round_trip(&options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *lines = malloc(size + 1);
  MN_REQUIRE(lines);
  for (int i = 0; i < 2; i++) {
    memcpy(lines, data, size);
    lines[size] = 0;
    (i ? set : parse)(lines);
  }
  free(lines);
  return 0;
}
