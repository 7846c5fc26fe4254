/* The version of this library, for programs that load it. */
#include "train/minnow.h"

const char *mn_version(void) {
  return MINNOW_VERSION;
}
