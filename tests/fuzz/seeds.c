/* What the fuzzers begin from, written to FOLDER/checkpoint, /dataset, /csv, /cases, /log and /options:
 *
 *   seeds FOLDER
 *
 * Most changes to a file of HDF5's newest format are seen by a checksum at once, so that a fuzzer learns
 * little: so checkpoints are written in the oldest format too, which has none on HDF5's own structures. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/status.h"
#include "tests/torn/files.h"

/* Linked in place of HDF5's (--wrap): the format in which minnow writes. */
herr_t __real_H5Pset_libver_bounds(hid_t access, H5F_libver_t low, H5F_libver_t high);
herr_t __wrap_H5Pset_libver_bounds(hid_t access, H5F_libver_t low, H5F_libver_t high);
static int oldest;
herr_t __wrap_H5Pset_libver_bounds(hid_t access, H5F_libver_t low, H5F_libver_t high) {
  return oldest ? __real_H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST)
                : __real_H5Pset_libver_bounds(access, low, high);
}

static const char *const kinds[TORN_KINDS] = {
    [TORN_CHECKPOINT] = "checkpoint", [TORN_DATASET] = "dataset", [TORN_CASES] = "cases"};

static const char *const logs[] = {
    "{\"event\":\"start\",\"config\":{\"data\":\"d.h5\",\"lr\":\"0.05\"},"
    "\"time\":{"
    "\"device\":\"CPU\"}}\n"
    "{\"event\":\"step\",\"step\":3,\"epoch\":0,\"samples\":30,\"loss\":0.5,\"rate\":0.05,\"time\":{}}\n"
    "{\"event\":\"eval\",\"step\":6,\"epoch\":1,\"test_loss\":0.4,\"test_accuracy\":0.9,\"time\":{}}\n"
    "{\"event\":\"resume\",\"step\":6,\"changed\":{\"lr\":\"0.01\"},\"time\":{}}"
    "\n"
    "{\"event\":\"step\",\"step\":9,\"epoch\":1,\"samples\":90,\"loss\":null,\"rate\":1e-2,\"gradient_norm\":"
    "2}\n"
    "{\"event\":\"end\",\"step\":9,\"horizon\":20,\"loss\":0.1,\"ended\":\"stop-at\",\"time\":{}}\n",
    "{\"device\":\"CPU\",\"precision\":\"fp32\",\"batch\":64,\"rows\":[{\"name\":\"step\",\"ms\":1.5}]}\n"};

static const char *const options[] = {
    "train\n--data\nd.h5\n--hidden\n128,64\n--groups\n8\n--epochs\n3\n--lr\n0.05\n--save-every\n30s\n"
    "--run\nrun\n--best\n",
    "train\n--synthetic\n4096\n--in\n64\n--hidden\n32\n--optimizer\nadamw\n--schedule\nstep\n--step-"
    "every\n5\n"
    "--warmup\n3\n--seed\n18446744073709551615\n",
    "eval\n--run\nrun\n--data\nd.h5\n--device\ncuda:1\n--precision\nbf16\n", "plot\na\nb\n--out\nf.svg\n",
    "data=d.h5\nhidden=128,128\nepochs=0\nsteps=500\nlr=0.01\nnesterov=yes\nloss=auto\nsave-every=500\n"};

static const char *const tables[] = {
    "a,\"b, c\",y\n1,red,2.5\n\"1,234.5\",\"dark \"\"blue\"\"\",-3e4\n,NA,$ 7\n",
    "sep=;\r\n\357\273\277day;x;kind\r\n2024-01-02;1,5;ant\r\n2024-02-29T12:30:00.5Z;?;bee\r\n;2;ant\r\n",
    "\"a\"\t\"y\"\n\"1\"\t5\t0\n\"2\"\t6\t1\n\"3\"\t7\t1\n\"4\"\t8\t0\n", "0|1|2\n1|2|3\n4|5|6\n7|8|9\n"};

static void write_text(const char *folder, const char *kind, int number, const char *text) {
  char path[1200];
  snprintf(path, sizeof path, "%s/%s/%d", folder, kind, number);
  FILE *file = fopen(path, "w");
  MN_REQUIRE(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void make_folder(const char *folder, const char *kind) {
  char path[1200];
  snprintf(path, sizeof path, "%s/%s", folder, kind);
  MN_REQUIRE(mkdir(path, 0755) == 0);
}

int main(int argc, char **argv) {
  MN_REQUIRE(argc == 2);
  for (int i = 0; i < TORN_KINDS; i++) make_folder(argv[1], kinds[i]);
  for (oldest = 0; oldest < 2; oldest++) {
    torn_make(argv[1]);
    for (const struct torn_file *file = torn_files; file->name; file++) {
      char from[1200], to[1400];
      snprintf(from, sizeof from, "%s/%s", argv[1], file->name);
      snprintf(to, sizeof to, "%s/%s/%s%s", argv[1], kinds[file->kind], oldest ? "oldest-" : "", file->name);
      MN_REQUIRE(rename(from, to) == 0);
    }
  }
  make_folder(argv[1], "log");
  make_folder(argv[1], "options");
  make_folder(argv[1], "csv");
  for (int i = 0; i < (int)(sizeof tables / sizeof *tables); i++) write_text(argv[1], "csv", i, tables[i]);
  for (int i = 0; i < (int)(sizeof logs / sizeof *logs); i++) write_text(argv[1], "log", i, logs[i]);
  for (int i = 0; i < (int)(sizeof options / sizeof *options); i++)
    write_text(argv[1], "options", i, options[i]);
  return 0;
}
