/* What the tests of checkpoints share: a checkpoint made up of numbers that tell where they belong, and a
 * folder of one's own. */
#ifndef MN_TESTS_CHECKPOINT_MAKE_H
#define MN_TESTS_CHECKPOINT_MAKE_H

#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/hdf5/hdf5.h"
#include "tests/hdf5_made.h"
#include "train/checkpoint/layout.h"
#include "train/runs/runs.h"

static inline void *make_values(int64_t elements, size_t real, int salt) {
  void *values = malloc((size_t)elements * real);
  MN_REQUIRE(values);
  for (int64_t i = 0; i < elements; i++) {
    double value = sin((double)i * 0.37 + salt);
    if (real == 8)
      ((double *)values)[i] = value;
    else
      ((float *)values)[i] = (float)value;
  }
  return values;
}

/* Two blocks, inputs → channels → channels in 2 groups, and a head of 3 where `head`. In floats the weights
 * have factors. kept: 0 nothing, 1 SGD's momentum, 2 what AdamW keeps. */
static inline struct mn_checkpoint *make_checkpoint(int64_t inputs, int64_t channels, int head, size_t real,
                                                    int kept, int64_t step) {
  struct mn_checkpoint *made = calloc(1, sizeof *made);
  MN_REQUIRE(made);
  made->model = (struct mn_model_config){.inputs = inputs,
                                         .depth = 2,
                                         .hidden = {channels, channels},
                                         .groups = 2,
                                         .head = head ? 3 : 0,
                                         .eps = 1e-5,
                                         .slope = 0.01,
                                         .loss = head ? MN_LOSS_CROSS_ENTROPY : MN_LOSS_MSE,
                                         .plan = MN_PLAN_STACK};
  MN_REQUIRE(mn_checkpoint_lay_out(made) == MN_OK);
  for (int i = 0; i < made->tensor_count; i++) {
    struct mn_checkpoint_tensor *tensor = &made->tensors[i];
    tensor->real = real;
    tensor->value = make_values(tensor->rows * tensor->cols, real, i + (int)step);
    if (real == 4 && tensor->rank == 2) tensor->factor = ldexp(1, 60 - i);
    if (real == 4 && tensor->rank == 2 && i > 0) tensor->gradient_factor = ldexp(1, i - 60);
    int64_t count = tensor->rows * tensor->cols;
    if (kept == 1) tensor->momentum = make_values(count, real, 100 + i + (int)step);
    if (kept == 2) tensor->exp_avg = make_values(count, real, 100 + i + (int)step);
    if (kept == 2) tensor->exp_avg_sq = make_values(count, real, 200 + i + (int)step);
  }
  made->progress.step = step;
  made->progress.epoch = 3;
  made->progress.position = 320;
  made->progress.samples = step * 64;
  made->progress.seed = UINT64_MAX - 7;
  made->progress.best = -INFINITY;
  made->option_count = 12; /* more than HDF5 keeps in an object's header of itself */
  for (int i = 0; i < made->option_count; i++) {
    snprintf(made->options[i].name, sizeof made->options[i].name, "option-%d", (i * 7) % 12);
    snprintf(made->options[i].value, sizeof made->options[i].value, "%.*s", i * 3,
             "värde \"quoted\", 128,128 and on");
  }
  made->fingerprint_count = 1;
  strcpy(made->fingerprint[0].name, "version");
  strcpy(made->fingerprint[0].value, "0.1.0");
  made->history_count = 1;
  strcpy(made->history[0].name, "step 2 --lr");
  strcpy(made->history[0].value, "0.01 (was 0.05)");
  return made;
}

static inline void make_folder(char *out, size_t size) {
  const char *base = getenv("TMPDIR");
  snprintf(out, size, "%s/minnow-test-XXXXXX", base && *base ? base : "/tmp");
  MN_REQUIRE(mkdtemp(out));
}

static inline int remove_entry(const char *path, const struct stat *about, int type, struct FTW *at) {
  return remove(path);
}

static inline void remove_folder(const char *folder) {
  MN_REQUIRE(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

/* All bytes of a file, malloc'ed. */
static inline unsigned char *read_bytes(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  MN_REQUIRE(file);
  struct stat status;
  MN_REQUIRE(fstat(fileno(file), &status) == 0);
  *size = (size_t)status.st_size;
  unsigned char *bytes = malloc(*size + 1);
  MN_REQUIRE(bytes && fread(bytes, 1, *size, file) == *size);
  bytes[*size] = 0;
  fclose(file);
  return bytes;
}

static inline void write_bytes(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  MN_REQUIRE(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* ---- a folder for each test, and run.h5 in it ---- */

static char folder[1024];
static char path[1100];

static inline const char *in_folder(const char *name) {
  static char full[4][2048];
  static int next;
  char *out = full[next++ % 4];
  snprintf(out, sizeof full[0], "%s/%s", folder, name);
  return out;
}

static inline int setup(void **state) {
  make_folder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/run.h5", folder);
  return 0;
}

static inline int teardown(void **state) {
  remove_folder(folder);
  /* Every test leaves HDF5 as it was: no file, group, dataset, attribute or type open. */
  mn_hdf5_lock();
  ssize_t left = H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
  mn_hdf5_unlock();
  return left != 0 ? -1 : 0;
}

static inline mn_status save_step(const char *to, int64_t step, int keep) {
  struct mn_checkpoint *made = make_checkpoint(6, 4, 1, 4, 1, step);
  mn_status status = mn_checkpoint_save(made, to, keep);
  mn_checkpoint_free(made);
  return status;
}

/* The step in a checkpoint, −1 where there is no file, −2 where it does not load. */
static inline int64_t step_of(const char *of) {
  struct mn_checkpoint *loaded;
  if (access(of, F_OK) != 0) return -1;
  if (mn_checkpoint_load(&loaded, of) != MN_OK) return -2;
  int64_t step = loaded->progress.step;
  mn_checkpoint_free(loaded);
  return step;
}

static inline int count_files(void) {
  int count = 0;
  DIR *entries = opendir(folder);
  for (struct dirent *entry; (entry = readdir(entries));) count += entry->d_name[0] != '.';
  closedir(entries);
  return count;
}

static inline void assert_says(const char *words) {
  if (!strstr(mn_message(), words)) fail_msg("message \"%s\" lacks \"%s\"", mn_message(), words);
}

/* The files run.h5 … run.2.h5 with steps 3, 2, 1. */
static inline void three_files(void) {
  for (int step = 1; step <= 3; step++) assert_int_equal(save_step(path, step, 3), MN_OK);
}

static inline int wait_for(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* ---- files changed behind the back of checkpoint.h; call while HDF5 is locked ---- */

static inline hid_t open_raw(const char *of, unsigned flags) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  hid_t file = H5Fopen(of, flags, access);
  H5Pclose(access);
  assert_true(file >= 0);
  return file;
}

/* A checkpoint of minnow 0.2 or older: without checksums of its content, which another program may change. */
static inline void remove_sums(hid_t file) {
  assert_true(H5Adelete(file, MN_SUMS_ATTRIBUTE) >= 0);
}

static inline void replace_attribute(hid_t file, const char *group, const char *name, hid_t type,
                                     hsize_t count, const void *value) {
  H5Adelete_by_name(file, group, name, H5P_DEFAULT);
  if (!value) return;
  hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate_by_name(file, group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, type, value) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

#endif
