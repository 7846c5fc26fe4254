/* The least that compute-sanitizer's initcheck mistakes: a product of cuBLASLt, in bf16, into memory that
 * nobody wrote before, and one kernel that reads it. Every value comes out right, so every one was written;
 * where cuBLASLt writes through the bulk copy engine, initcheck does not see it. tests/sanitizer.sh runs this
 * first, and leaves out of initcheck what would only repeat it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/device.h"

enum { SIZE = 64 };

static mn_status product(struct mn_device *device, float *out) {
  const struct mn_kernels *k = device->kernels;
  struct mn_operand a = {.rows = SIZE, .cols = SIZE}, sum = {.rows = SIZE, .cols = SIZE};
  static uint16_t ones[SIZE * SIZE];
  for (int i = 0; i < SIZE * SIZE; i++) ones[i] = 0x3f80; /* 1 in bfloat16 */
  void *fresh;
  MN_TRY(k->allocate(device, &a.planes[0], sizeof ones));
  MN_TRY(k->copy(device, a.planes[0], ones, sizeof ones));
  MN_TRY(k->allocate(device, &fresh, SIZE * SIZE * sizeof(float)));
  MN_TRY(k->allocate(device, &sum.real, SIZE * SIZE * sizeof(float)));
  MN_TRY(k->gemm(device, MN_NT, &a, &a, &(struct mn_epilogue){.kind = MN_STORE, .into = fresh}));
  MN_TRY(k->add(device, &sum, fresh, fresh));
  return k->download(device, out, sum.real, SIZE * SIZE * sizeof(float));
}

int main(void) {
  struct mn_device *device;
  static float out[SIZE * SIZE];
  if (mn_device_open(&device, "cuda", "bf16", 0) != MN_OK || product(device, out) != MN_OK) {
    fprintf(stderr, "%s\n", mn_message());
    return EXIT_FAILURE;
  }
  for (int i = 0; i < SIZE * SIZE; i++)
    if (!(out[i] == 2 * SIZE)) {
      fprintf(stderr, "element %d is %g\n", i, (double)out[i]);
      return EXIT_FAILURE;
    }
  mn_device_close(device);
  return EXIT_SUCCESS;
}
