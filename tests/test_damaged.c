/* Damaged files of data: whatever byte is another one, and wherever 64 bytes are zeros, reading the rows,
 * `verify` and `info` end with values or one line, never with a crash. Half of the files are as HDF5 1.6 laid
 * them out (h5py's default), half as HDF5 1.10 does; in chunks with all of HDF5's own filters, and in one
 * piece.
 *
 * One bit of every few bytes is flipped, another one each time; with MINNOW_TEST_ALL_BITS in the environment
 * every bit of every byte. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/dataset_make.h"
#include "train/command/inspect.h"

enum { ROWS = 24, COLS = 6, SPARSE = 23, LARGEST = 1 << 16, BATCH = 100 };

static unsigned char bytes[LARGEST];
static size_t size;

/* ---- the files ---- */

static void put_array(hid_t at, const char *name, hid_t type, int rank, int chunked) {
  const hsize_t shape[2] = {ROWS, COLS}, chunk[2] = {10, 4};
  int values[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) values[i] = i * 7 % 10;
  hid_t space = H5Screate_simple(rank, shape, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  if (chunked)
    assert_true(H5Pset_chunk(creation, rank, chunk) >= 0 && H5Pset_shuffle(creation) >= 0 &&
                H5Pset_deflate(creation, 4) >= 0);
  if (chunked && rank == 2) assert_true(H5Pset_fletcher32(creation) >= 0);
  hid_t id = H5Dcreate2(at, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  assert_true(H5Dwrite(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  assert_true(H5Dclose(id) >= 0 && H5Pclose(creation) >= 0 && H5Sclose(space) >= 0);
}

static void make_file(int latest, int chunked) {
  const double scale = 0.5;
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (latest) assert_true(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0);
  hid_t id = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  hid_t group = H5Gcreate2(id, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(id >= 0 && group >= 0 && H5Pclose(access) >= 0);
  put_array(group, "x", chunked ? H5T_IEEE_F32LE : H5T_IEEE_F64BE, 2, chunked);
  put_array(group, "y", H5T_STD_I32LE, 1, chunked);
  put_attribute(group, "x", "scale_factor", H5T_IEEE_F64LE, 0, H5T_NATIVE_DOUBLE, &scale);
  assert_true(H5Gclose(group) >= 0);
  done(id);
  FILE *in = fopen(file, "rb");
  assert_non_null(in);
  size = fread(bytes, 1, sizeof bytes, in);
  assert_true(size > 0 && size < sizeof bytes && fclose(in) == 0);
}

/* ---- what is done with one ---- */

static int told(mn_status status) {
  return status == MN_OK ||
         (status == MN_BAD_DATA && mn_message()[0] != 0 && strchr(mn_message(), '\n') == NULL);
}

static int read_rows(void) {
  struct mn_dataset *d;
  float x[4096];
  int32_t y[4096];
  mn_status status = mn_dataset_open(&d, file, MN_PART_TRAIN, NULL, NULL, 0);
  if (status != MN_OK) return told(status);
  int fits = d->inputs <= 4096 && d->outputs <= 4096, good = 1;
  for (int64_t row = 0; fits && good && row < d->rows && row < 2 * ROWS; row++)
    good = told(d->read(d, row, 1, 4, x, d->outputs > 0 ? (void *)y : NULL));
  mn_dataset_close(d);
  return good;
}

static int all_is_told(int number) {
  FILE *out = fopen("/dev/null", "w");
  int good = out && read_rows() && told(number % 2 ? mn_verify(out, file, 0) : mn_info(out, file, 1));
  return good && fclose(out) == 0;
}

/* ---- damage ---- */

static void write_damaged(size_t at, size_t count, unsigned char flip) {
  FILE *out = fopen(file, "wb");
  unsigned char kept[64];
  memcpy(kept, bytes + at, count);
  for (size_t i = at; i < at + count; i++) bytes[i] = flip ? bytes[i] ^ flip : 0;
  assert_true(out && fwrite(bytes, 1, size, out) == size && fclose(out) == 0);
  memcpy(bytes + at, kept, count);
}

/* Case `number` of all: first the bits, then the stretches of zeros. 0: there is none. */
static int damage(size_t number) {
  int all = getenv("MINNOW_TEST_ALL_BITS") != NULL;
  size_t flips = all ? size * 8 : size / SPARSE, stretches = size / 64 / (all ? 1 : 4);
  if (number < flips) {
    size_t bit = all ? number : number * SPARSE * 8 + number % 8;
    write_damaged(bit / 8, 1, (unsigned char)(1 << bit % 8));
  } else if (number - flips < stretches) {
    write_damaged((number - flips) * 64 * (all ? 1 : 4), 64, 0);
  }
  return number < flips + stretches;
}

/* In a child, a batch at a time: what crashes is named by its number, and no leak checker counts what HDF5
 * leaks of each header that it refuses. */
static void survive(int latest, int chunked) {
  make_file(latest, chunked);
  for (size_t first = 0, more = 1; more; first += BATCH) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      alarm(600);
      for (size_t i = first; i < first + BATCH; i++) {
        if (!damage(i)) _exit(2);
        if (!all_is_told((int)i)) {
          print_error("case %zu: %s\n", i, mn_message());
          _exit(1);
        }
      }
      _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) % 2)
      fail_msg("layout %d, chunks %d: cases from %zu on: wait status %#x", latest, chunked, first,
               (unsigned)status);
    more = WEXITSTATUS(status) == 0;
  }
}

static void survives_in_chunks(void **state) {
  (void)state;
  survive(0, 1);
}
static void survives_in_one_piece(void **state) {
  (void)state;
  survive(0, 0);
}
static void survives_in_chunks_of_110(void **state) {
  (void)state;
  survive(1, 1);
}
static void survives_in_one_piece_of_110(void **state) {
  (void)state;
  survive(1, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(survives_in_chunks),
      TEST(survives_in_one_piece),
      TEST(survives_in_chunks_of_110),
      TEST(survives_in_one_piece_of_110),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
