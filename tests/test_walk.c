/* The walk over the objects of a file: each one once, in order of name, in a time that their number sets. */
#include <time.h>

#include "data/hdf5/file.h"
#include "tests/dataset_make.h"

struct walked {
  int count;
  char last[32];
};

static mn_status note_name(void *data, struct mn_hdf5_file *opened, const struct mn_hdf5_object *object) {
  struct walked *walked = data;
  assert_true(strcmp(walked->last, object->name) < 0);
  snprintf(walked->last, sizeof walked->last, "%s", object->name);
  walked->count++;
  return MN_OK;
}

static void make_members(int members, H5F_libver_t version) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  assert_true(H5Pset_libver_bounds(access, version, H5F_LIBVER_LATEST) >= 0);
  hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  for (int i = 0; i < members; i++) {
    char name[32];
    snprintf(name, sizeof name, "sample%d", i * 7919 % members);
    H5Gclose(H5Gcreate2(id, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }
  H5Pclose(access);
  done(id);
}

/* The processor time of a walk, in CLOCKS_PER_SEC. */
static clock_t time_walk(int members, H5F_libver_t version) {
  struct mn_hdf5_file open;
  struct walked walked = {0};
  make_members(members, version);
  assert_int_equal(mn_hdf5_open(&open, file, "", 0), MN_OK);
  const clock_t start = clock();
  assert_int_equal(mn_hdf5_walk(&open, note_name, &walked), MN_OK);
  const clock_t end = clock();
  assert_int_equal(walked.count, members + 1);
  mn_hdf5_close(&open);
  return end - start + 1;
}

/* Sixteen times the members take some 16 times as long; looked up by index, each of them would take as long
 * as all, which makes 256. */
static void many_members_take_their_share(void **state) {
  const H5F_libver_t versions[] = {H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST};
  for (int i = 0; i < 2; i++) {
    const clock_t few = time_walk(250, versions[i]), many = time_walk(4000, versions[i]);
    if (many / few > 64) fail_msg("250 members take %ld, 4000 %ld", (long)few, (long)many);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(many_members_take_their_share),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
