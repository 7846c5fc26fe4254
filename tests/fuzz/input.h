/* What the fuzzers share: the input as a file that minnow opens by its name, without a disk. */
#ifndef MN_TESTS_FUZZ_INPUT_H
#define MN_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

/* libFuzzer's entry: must return 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Puts the input into the file and returns its name: the same file, anew, in each call. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* That a reader has returned MN_OK or one of `allowed`, up to MN_OK, and, where it failed, one line. Aborts.
 */
void fuzz_check(mn_status status, const mn_status *allowed);

/* That nothing of HDF5's is left open. Aborts. */
void fuzz_check_closed(void);

/* Of a file whose content alone can be wrong. */
extern const mn_status fuzz_bad_data[];

#endif
