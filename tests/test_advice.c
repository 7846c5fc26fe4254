/* What info says of datasets that read slowly. */
#include "data/hdf5/file.h"
#include "data/hdf5/hdf5.h"
#include "tests/dataset_make.h"
#include "train/command/commands.h"

static char *text;

static void inform(int json) {
  size_t size;
  free(text);
  FILE *out = open_memstream(&text, &size);
  assert_non_null(out);
  assert_int_equal(mn_info(out, file, json), MN_OK);
  assert_int_equal(fclose(out), 0);
}

static void assert_text(const char *words) {
  if (!strstr(text, words)) fail_msg("\"%s\" lacks \"%s\"", text, words);
}

static int foreign; /* whether a filter that is not here is among those of what is put */

/* An unwritten dataset, which takes no room in the file. */
static void put_rows(hid_t at, const char *name, hid_t type, hsize_t rows, hsize_t cols, hsize_t chunk_cols,
                     int deflate) {
  const hsize_t shape[2] = {rows, cols}, chunk[2] = {128, chunk_cols};
  hid_t creation = in_chunks(2, chunk_cols ? chunk : NULL);
  if (deflate) H5Pset_deflate(creation, 1);
  if (foreign) H5Pset_filter(creation, 399, H5Z_FLAG_OPTIONAL, 0, NULL);
  put_dataset(at, name, type, 2, shape, creation, type, NULL);
}

/* What reads slowly is named with the cause and the remedy; what reads fast, or in an instant, is not. */
static void slow_datasets_are_named(void **state) {
  enum { WIDE = 1024, MANY = 4096 }; /* of floats 16 MiB */
  hid_t at = create();
  put_rows(at, "fast", H5T_NATIVE_FLOAT, MANY, WIDE, 0, 0);
  put_rows(at, "small", H5T_NATIVE_FLOAT, MANY - 1, WIDE, WIDE, 1);
  put_rows(at, "chunked", H5T_NATIVE_FLOAT, MANY, WIDE, WIDE, 0);
  put_rows(at, "gzip", H5T_NATIVE_FLOAT, MANY, WIDE, WIDE, 1);
  put_rows(at, "narrow", H5T_NATIVE_FLOAT, MANY, WIDE, 500, 1);
  put_rows(at, "double", H5T_NATIVE_DOUBLE, MANY, WIDE, 0, 0);
  put_rows(at, "swapped", H5T_IEEE_F32BE, MANY, WIDE, 0, 0);
  put_rows(at, "bytes", H5T_NATIVE_UINT8, 4 * MANY, WIDE, WIDE, 0);
  foreign = 1;
  put_rows(at, "foreign", H5T_NATIVE_FLOAT, MANY, WIDE, WIDE, 0);
  done(at);
  inform(0);
  assert_text(
      "  slow one thread reads it through HDF5, in chunks  remedy h5repack -l chunked:CONTI -f chunked:NONE "
      "in.h5 out.h5\n");
  inform(1);
  assert_null(strstr(text, "h5repack -l fast"));
  assert_null(strstr(text, "h5repack -l small"));
  assert_null(strstr(text, "h5repack -l foreign")); /* which nothing here reads */
#define SLOW "\"slow\":\"one thread reads it through HDF5, "
#define FLOATS "\"remedy\":\"store it unchunked as float32, in h5py out[\\\""
  assert_text(SLOW "in compressed chunks\",\"remedy\":\"h5repack -l gzip:CONTI");
  assert_text(SLOW "in compressed chunks, 3 to a row\",\"remedy\":\"h5repack -l narrow:CONTI");
  assert_text(SLOW "converting each float64\"," FLOATS "double");
  assert_text(SLOW "converting each big-endian float32\"," FLOATS "swapped");
  assert_text(SLOW "in chunks, converting each uint8\"," FLOATS "bytes");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(slow_datasets_are_named)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
