/* The input as a file, and what every reader must keep to. */
#include "tests/fuzz/input.h"

#include <ctype.h>
#include <hdf5.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/hdf5/hdf5.h"
#include "tests/torn/sanitizers.h"

const mn_status fuzz_bad_data[] = {MN_BAD_DATA, MN_OK};

const char *fuzz_file(const uint8_t *data, size_t size) {
  static int fd = -1;
  static char name[40];
  if (fd < 0) {
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    MN_REQUIRE(fd >= 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    mn_hdf5_lock();
    torn_sharpen();
    mn_hdf5_unlock();
  }
  MN_REQUIRE(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
  return name;
}

void fuzz_check(mn_status status, const mn_status *allowed) {
  if (status == MN_OK) return;
  while (*allowed != MN_OK && *allowed != status) allowed++;
  if (*allowed == MN_OK) mn_abort(__FILE__, __LINE__, mn_message());
  MN_REQUIRE(*mn_message());
  for (const char *c = mn_message(); *c; c++) MN_REQUIRE(!iscntrl((unsigned char)*c));
}

void fuzz_check_closed(void) {
  mn_hdf5_lock();
  MN_REQUIRE(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
  mn_hdf5_unlock();
}
