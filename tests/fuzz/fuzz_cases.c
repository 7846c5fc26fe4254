/* A file of cases, as parity reads it. */
#include "tests/fuzz/input.h"
#include "train/check/check.h"

enum { MOST = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  struct mn_case read = {.cases = 1};
  for (int i = 0; i < read.cases && i < MOST; i++) {
    fuzz_check(mn_case_read(path, i, &read), fuzz_bad_data);
    mn_case_free(&read);
  }
  fuzz_check_closed();
  return 0;
}
