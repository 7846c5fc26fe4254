/* The fingerprint of rows: the same wherever they wait, however they are stored and whoever reads them, and
 * another one when any row is another. */
#include "data/dataset_file.h"
#include "data/held_out.h"
#include "data/loader.h"
#include "tests/dataset_make.h"
#include "tests/rows_made.h"

static struct mn_fingerprint load(struct mn_device *device, struct mn_dataset *d, enum mn_place place) {
  struct mn_loader *loader;
  struct mn_loader_config config = {.place = place, .samples = 1, .shuffled = 1};
  MUST(mn_loader_open(&loader, device, d, &config));
  struct mn_fingerprint f = mn_loader_placement(loader)->fingerprint;
  mn_loader_close(loader);
  return f;
}

static void assert_same(struct mn_fingerprint a, struct mn_fingerprint b) {
  assert_memory_equal(a.inputs, b.inputs, sizeof a.inputs);
  assert_true(a.sample == b.sample && a.rows == b.rows && a.whole == b.whole);
}

/* One element of x or y of one row is another, or two rows are exchanged. */
struct change {
  int64_t row; /* −1: none */
  int in_y, exchanged;
};
static struct change change;

static mn_status changed_read(struct mn_dataset *d, int64_t first, int64_t count, size_t real, void *x,
                              void *y) {
  int64_t i = change.row - first;
  void *own = y ? NULL : malloc((size_t)count * 2 * real);
  assert_true(y || own);
  MN_TRY(made_read(d, first, count, real, x, y ? y : own));
  free(own);
  if (change.in_y && !y) return MN_OK;
  if (change.exchanged) { /* with the row behind it */
    if (i >= 0 && i < count)
      MN_TRY(made_read(d, change.row + 1, 1, real, (float *)x + i * INPUTS, (float *)y + i * 2));
    if (++i >= 0 && i < count)
      MN_TRY(made_read(d, change.row, 1, real, (float *)x + i * INPUTS, (float *)y + i * 2));
  } else if (change.row >= 0 && i >= 0 && i < count) {
    *(change.in_y ? (float *)y + i * 2 + i % 2 : (float *)x + i * INPUTS + i % INPUTS) += 0.5F;
  }
  return MN_OK;
}

static struct made make_changed(int64_t rows, struct change what) {
  struct made m = make(rows, 0);
  m.base.read = changed_read;
  change = what;
  return m;
}

static void each_row_counts(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  const int64_t n = 5003;
  struct made m = make_changed(n, (struct change){.row = -1});
  const struct mn_fingerprint as_it_was = load(device, &m.base, MN_PLACE_DEVICE);
  const int64_t step = strcmp(*state, "cpu") == 0 ? 1 : 97;
  int64_t sampled = 0;
  for (int64_t row = 0; row < n; row += step) {
    for (int exchanged = 0; exchanged < 2 && row + exchanged < n; exchanged++) {
      m = make_changed(n, (struct change){row, row % 2, exchanged});
      const struct mn_fingerprint f = load(device, &m.base, MN_PLACE_DEVICE);
      if (f.rows == as_it_was.rows) fail_msg("row %lld", (long long)row);
      if (!exchanged) sampled += f.sample != as_it_was.sample;
    }
  }
  if (step == 1) assert_int_equal(sampled, MN_FINGERPRINT_ROWS);
  m = make_changed(n, (struct change){.row = -1});
  assert_same(load(device, &m.base, MN_PLACE_DEVICE), as_it_was);
  mn_device_close(device);
}

/* With three times as many rows as the sample has, each third is in it. */
static void sample_is_spread(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  const int64_t n = 3 * MN_FINGERPRINT_ROWS;
  struct made m = make_changed(n, (struct change){.row = -1});
  const uint64_t sample = load(device, &m.base, MN_PLACE_FILE).sample;
  for (int64_t row = 0; row < n; row = row == 5 ? n - 6 : row + 1) {
    m = make_changed(n, (struct change){.row = row});
    assert_int_equal(load(device, &m.base, MN_PLACE_FILE).sample != sample, row % 3 == 0);
  }
  mn_device_close(device);
}

static void a_row_of_the_sample_has_to_be_read(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct made m = make(3 * MN_FINGERPRINT_ROWS, 0);
  struct mn_loader *loader;
  const struct mn_loader_config config = {.place = MN_PLACE_FILE, .samples = 1};
  m.bad_row = 3;
  assert_int_equal(mn_loader_open(&loader, device, &m.base, &config), MN_BAD_DATA);
  assert_string_equal(mn_message(), "made up: row 3 is bad");
  mn_device_close(device);
}

static void places_agree(void **state) {
  static const char *const precisions[] = {"fp32", "bf16", "fp16", "fp64"};
  const int64_t sizes[] = {1, 700, 4096, 4097, 9001, 140000};
  for (size_t p = 0; p < COUNT(precisions); p++) {
    for (size_t s = 0; s < COUNT(sizes); s++) {
      for (int kind = 0; kind < 3; kind++) { /* targets, classes, none */
        struct mn_device *device = open_or_skip(*state, precisions[p]);
        struct made m = make(sizes[s], kind == 1);
        if (kind == 2) m.base.outputs = 0;
        const struct mn_fingerprint on_device = load(device, &m.base, MN_PLACE_DEVICE),
                                    on_host = load(device, &m.base, MN_PLACE_HOST),
                                    in_file = load(device, &m.base, MN_PLACE_FILE);
        assert_same(on_device, on_host);
        assert_true(on_device.whole && !in_file.whole && on_device.rows != 0 && in_file.rows == 0);
        assert_true(in_file.sample == on_device.sample);
        /* Rounding comes later: what the device makes of the rows does not show. */
        struct mn_device *plain = open_or_skip("cpu", p == 3 ? "fp64" : "fp32");
        assert_same(load(plain, &m.base, MN_PLACE_DEVICE), on_device);
        mn_device_close(plain);
        mn_device_close(device);
      }
    }
  }
}

static void targets_count(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_fingerprint with[2];
  for (int changed = 0; changed < 2; changed++) {
    struct made m = make_changed(300, (struct change){changed ? 17 : -1, 1, 0});
    with[changed] = load(device, &m.base, MN_PLACE_DEVICE);
  }
  assert_true(with[0].rows != with[1].rows && with[0].sample != with[1].sample);
  mn_device_close(device);
}

/* The number is kept in checkpoints: a change of the rule is a change of what they mean. */
static void threads_agree(void **state) {
  const int64_t n = 400001;
  struct made m = make(n, 0);
  struct mn_rows_form form;
  const struct mn_device like = {.real = sizeof(float)};
  MUST(mn_rows_form(&form, &m.base, &like));
  struct mn_rows rows = {.x = malloc((size_t)n * form.x_row), .y = malloc((size_t)n * form.y_row)};
  assert_true(rows.x && rows.y);
  m.base.parallel = sizeof(float);
  const struct mn_range all = {.count = n};
  for (form.threads = 1; form.threads < 17; form.threads += 3) {
    struct mn_fingerprint f = {0};
    rows.fingerprint = &f;
    MUST(mn_read_rows(&m.base, &form, &all, 1, &rows, NULL));
    mn_fingerprinting.end(&f, &m.base, 1);
    if (f.rows != UINT64_C(0xfc5e9a89cd4980a8) || f.sample != UINT64_C(0xd5e553f4a234b289))
      fail_msg("%d threads: %016llx, %016llx", form.threads, (unsigned long long)f.rows,
               (unsigned long long)f.sample);
  }
  free(rows.x), free(rows.y);
}

/* ---- files ---- */

enum { ROWS = 9001, COLS = 5 };

enum storage { CONTIGUOUS, CHUNKED, DEFLATED, SUMMED, STORAGES };

static void put_stored(hid_t at, const char *name, enum storage storage, hid_t type, hsize_t cols,
                       hid_t memory, const void *values) {
  const hsize_t size[2] = {ROWS, cols}, chunk[2] = {1000, cols};
  const int rank = cols ? 2 : 1;
  hid_t how = in_chunks(rank, storage != CONTIGUOUS ? chunk : NULL);
  if (storage == DEFLATED) assert_true(H5Pset_shuffle(how) >= 0 && H5Pset_deflate(how, 4) >= 0);
  if (storage == SUMMED) assert_true(H5Pset_fletcher32(how) >= 0);
  put_dataset(at, name, type, rank, size, how, memory, values);
}

static void write_file(const char *x_name, enum storage storage, int64_t changed_row, int wide) {
  float *x = malloc(ROWS * COLS * sizeof *x);
  int *y = malloc(ROWS * sizeof *y);
  assert_true(x && y);
  for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)(i % 977) / 7;
  for (int i = 0; i < ROWS; i++) y[i] = i % 10;
  if (changed_row >= 0) x[changed_row * COLS + 2] += 1;
  hid_t id = create();
  put_stored(id, x_name, storage, wide ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, COLS, H5T_NATIVE_FLOAT, x);
  put_stored(id, "y", storage, wide ? H5T_STD_I64BE : H5T_STD_I32LE, 0, H5T_NATIVE_INT, y);
  done(id);
  free(x), free(y);
}

static struct mn_fingerprint load_file(struct mn_device *device, const char *x_name, enum mn_part part,
                                       enum mn_place place) {
  struct mn_dataset *d;
  MUST(mn_dataset_open(&d, file, MN_PART_TRAIN, x_name, NULL, 1));
  if (part != MN_PART_ALL) MUST(mn_dataset_hold_out(&d, part, 0.2, 1, 0));
  const struct mn_fingerprint f = load(device, d, place);
  mn_dataset_close(d);
  return f;
}

/* Nor do types and names. */
static void storage_does_not_matter(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_fingerprint first[3];
  for (enum storage storage = 0; storage < STORAGES; storage++) {
    write_file("x", storage, -1, 0);
    for (enum mn_part part = MN_PART_TRAIN; part <= MN_PART_ALL; part++) {
      const struct mn_fingerprint f = load_file(device, "x", part, MN_PLACE_DEVICE);
      if (storage == CONTIGUOUS) first[part] = f;
      assert_same(f, first[part]);
      assert_true(load_file(device, "x", part, MN_PLACE_FILE).sample == f.sample);
    }
  }
  write_file("other", CONTIGUOUS, -1, 1);
  for (enum mn_part part = MN_PART_TRAIN; part <= MN_PART_ALL; part++)
    assert_same(load_file(device, "other", part, MN_PLACE_DEVICE), first[part]);
  mn_device_close(device);
}

/* A changed row shows in the part that it is in, and in that alone. */
static void parts_have_their_own(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_fingerprint then[2];
  int changed[2] = {0};
  write_file("x", CONTIGUOUS, -1, 0);
  for (enum mn_part p = MN_PART_TRAIN; p <= MN_PART_TEST; p++)
    then[p] = load_file(device, "x", p, MN_PLACE_DEVICE);
  for (int64_t row = 0; row < ROWS; row += 450) {
    write_file("x", CONTIGUOUS, row, 0);
    int here = 0;
    for (enum mn_part p = MN_PART_TRAIN; p <= MN_PART_TEST; p++) {
      const int other = load_file(device, "x", p, MN_PLACE_DEVICE).rows != then[p].rows;
      here += other, changed[p] += other;
    }
    assert_int_equal(here, 1);
  }
  assert_true(changed[MN_PART_TRAIN] > 0 && changed[MN_PART_TEST] > 0);
  mn_device_close(device);
}

static int clean(void **state) {
  return remove_file(state) || remove_folder(state);
}

#define ON_BOTH(test) ON("cpu", test), ON("cuda", test)

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_BOTH(each_row_counts),
      ON_BOTH(sample_is_spread),
      ON_BOTH(a_row_of_the_sample_has_to_be_read),
      ON_BOTH(places_agree),
      ON_BOTH(targets_count),
      cmocka_unit_test(threads_agree),
      ON_BOTH(storage_does_not_matter),
      ON_BOTH(parts_have_their_own),
  };
  return cmocka_run_group_tests(tests, make_folder, clean);
}
