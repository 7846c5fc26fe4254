/* Products that are divided among ranks, on one GPU: a part of the library's product, of so many outputs each
 * as 2 or 4 ranks have, has the bytes of the whole. Skipped without a GPU, and says why. */
#include "tests/products.h"

struct sizes {
  int64_t rows, cols, depth;
};

/* rows: of the batch; cols: the outputs, which are divided; depth: the inputs. Each part starts at a multiple
 * of 256 bytes, as a rank's own memory does. The last is more than the device's scratch memory holds. */
static const struct sizes WHOLES[] = {{128, 256, 192},  {64, 512, 4096},   {1024, 1024, 1024},
                                      {512, 2048, 256}, {256, 1024, 2048}, {64, 1536, 8192}};

/* A copy of some columns of a matrix of elements of `each` bytes. */
static void *columns(struct memory *m, const void *from, int64_t rows, int64_t cols, int64_t first,
                     int64_t share, size_t each) {
  char *host = get_bytes(m->device, from, (size_t)(rows * cols) * each);
  for (int64_t i = 0; i < rows; i++)
    memmove(host + (size_t)(i * share) * each, host + (size_t)(i * cols + first) * each,
            (size_t)share * each);
  void *memory = put_bytes(m, host, (size_t)(rows * share) * each);
  free(host);
  return memory;
}

/* The outputs from `first` on of the weight, which are rows of it, or of dz. */
static struct mn_operand part_of(struct memory *m, enum mn_form form, const struct mn_operand *whole,
                                 int64_t first, int64_t share) {
  const struct mn_device *device = m->device;
  const int64_t at = first * whole->cols;
  struct mn_operand part = *whole;
  if (form == MN_NT) {
    part.whole = whole->rows, part.rows = share;
    part.real = (char *)whole->real + (size_t)at * device->real;
    if (device->planes) part.planes[0] = (char *)whole->planes[0] + (size_t)at * device->plane;
    return part;
  }
  part.whole = whole->cols, part.cols = share;
  part.real = columns(m, whole->real, whole->rows, whole->cols, first, share, device->real);
  if (device->planes)
    part.planes[0] = columns(m, whole->planes[0], whole->rows, whole->cols, first, share, device->plane);
  return part;
}

/* z = x·Wᵀ, or dW = dzᵀ·x, stored or added to numbers that are there. */
static void *product(struct memory *m, enum mn_form form, enum mn_epilogue_kind kind,
                     const struct mn_operand *x, const struct mn_operand *of) {
  const int64_t outputs = form == MN_NT ? of->rows : of->cols;
  const int64_t count = outputs * (form == MN_NT ? x->rows : x->cols);
  const size_t bytes = (size_t)count * m->device->real;
  struct mn_epilogue e = {.kind = kind, .into = take_reals(m, NULL, count)};
  MUST(m->device->kernels->zero(m->device, e.into, bytes));
  MUST(m->device->kernels->gemm(m->device, form, form == MN_NT ? x : of, form == MN_NT ? of : x, &e));
  return get_bytes(m->device, e.into, bytes);
}

/* How many of a part's rows (dW) or pieces of rows (z) have other bytes than the whole's. */
static int64_t others(const struct memory *m, enum mn_form form, const void *whole, const void *part,
                      struct sizes z, int64_t first, int64_t share) {
  const size_t real = m->device->real;
  const int64_t rows = form == MN_NT ? z.rows : share;
  const size_t row = (size_t)(form == MN_NT ? share : z.depth) * real;
  int64_t count = 0;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t at = form == MN_NT ? i * z.cols + first : (first + i) * z.depth;
    count += memcmp((const char *)whole + (size_t)at * real, (const char *)part + (size_t)i * row, row) != 0;
  }
  return count;
}

/* Returns how many of the parts would have other bytes if they were products of their own. */
static int check_parts(struct memory *m, enum mn_form form, enum mn_epilogue_kind kind, struct sizes z,
                       int parts) {
  struct mn_operand x = {.rows = z.rows, .cols = z.depth}, whole = x;
  if (form == MN_NT)
    whole.rows = z.cols;
  else
    whole.cols = z.cols;
  x = operand(m, x, 11), whole = operand(m, whole, 12);
  void *expected = product(m, form, kind, &x, &whole);
  const int64_t share = z.cols / parts;
  int apart = 0;
  for (int q = 0; q < parts; q++) {
    struct mn_operand part = part_of(m, form, &whole, q * share, share);
    void *found = product(m, form, kind, &x, &part);
    const int64_t wrong = others(m, form, expected, found, z, q * share, share);
    if (wrong)
      fail_msg("%s form %d kind %d, %lld by %lld by %lld: %lld rows of part %d of %d have other bytes",
               mn_precision_name(m->device->precision), (int)form, (int)kind, (long long)z.rows,
               (long long)z.cols, (long long)z.depth, (long long)wrong, q, parts);
    free(found);
    part.whole = 0;
    found = product(m, form, kind, &x, &part);
    apart += others(m, form, expected, found, z, q * share, share) > 0;
    free(found);
  }
  free(expected);
  release_all(m);
  return apart;
}

static void parts_have_the_bytes_of_the_whole(void **state) {
  static const enum mn_epilogue_kind kinds[] = {MN_STORE, MN_ADD};
  for (int p = MN_FP64; p <= MN_FP16; p++) {
    struct memory m = {.device = open_or_skip("cuda", mn_precision_name((enum mn_precision)p))};
    int apart = 0, all = 0;
    m.device->force_cublas = 1;
    for (size_t i = 0; i < (quick() ? 3 : COUNT(WHOLES)); i++)
      for (int k = 0; k < 2 - blind(m.device->precision); k++)
        for (int parts = 2; parts <= 4; parts += 2) {
          apart += check_parts(&m, MN_NT, kinds[k], WHOLES[i], parts);
          apart += check_parts(&m, MN_TN, kinds[k], WHOLES[i], parts);
          all += 2 * parts;
        }
    print_message("%s: %d of %d parts would have other bytes by an algorithm of their own\n",
                  mn_precision_name(m.device->precision), apart, all);
    close_memory(&m);
  }
}

/* More shapes than are kept: the first is asked for again, and its answer is the same. */
static void shapes_that_are_forgotten(void **state) {
  struct memory m = {.device = open_or_skip("cuda", "fp32")};
  const struct sizes z = {128, 256, 192};
  struct mn_operand x = operand(&m, (struct mn_operand){.rows = 300, .cols = z.depth}, 11);
  const struct mn_operand w = operand(&m, (struct mn_operand){.rows = z.cols, .cols = z.depth}, 12);
  x.rows = z.rows;
  void *first = product(&m, MN_NT, MN_STORE, &x, &w);
  for (x.rows = 1; x.rows <= 300; x.rows++) free(product(&m, MN_NT, MN_STORE, &x, &w));
  x.rows = z.rows;
  void *again = product(&m, MN_NT, MN_STORE, &x, &w);
  assert_memory_equal(first, again, (size_t)(z.rows * z.cols) * sizeof(float));
  free(first), free(again);
  close_memory(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_have_the_bytes_of_the_whole),
      cmocka_unit_test(shapes_that_are_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
