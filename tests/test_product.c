/* The CPU's product of a tile, drawn: every set of instructions that this processor has, every form, sizes
 * around those of registers, blocks and strips, and any tiles give the sums in double to their rounding, and
 * each element the same bytes. The kernel is compiled into this program, so that each set can be called. */
#define mn_product_tile_cpu_fp32 mn_product_tile_here /* beside the library's */
#define mn_product_tile_cpu_fp64 mn_product_tile_here
#define mn_product_pack_cpu_fp32 mn_product_pack_here
#define mn_product_pack_cpu_fp64 mn_product_pack_here
#include "kernels/product.c"

#include <math.h>
#include <stdlib.h>

#include "kernels/device.h"
#include "tests/draws.h"

enum { MOST = 700, CASES = 1000 };
static tile_function *const levels[] = {MN_LEVELS(TILE_AT)};
static pack_function *const packs[] = {MN_LEVELS(PACK_AT)};
static uint64_t dice = 1;

/* Often 1 to 40, now and then up to MOST. */
static int64_t size(void) {
  return 1 + below(&dice, below(&dice, 4) ? 40 : MOST);
}

static real *values(int64_t count) {
  real *v = malloc((size_t)count * sizeof *v);
  assert_non_null(v);
  for (int64_t i = 0; i < count; i++) v[i] = (real)(below(&dice, 1 << 30) - (1 << 29)) / (1 << 28) / 3;
  return v;
}

/* d by one set of instructions, in tiles that are cut anywhere, as little as `least` long; of a packed b at
 * multiples of 32. */
static void by_tiles(const struct mn_product *p, tile_function *run, real *room, int64_t least) {
  const int64_t high = least + below(&dice, p->rows), any = least + below(&dice, p->cols);
  const int64_t wide = p->packed ? (any + 31) / 32 * 32 : any;
  for (int64_t r = 0; r < p->rows; r += high)
    for (int64_t c = 0; c < p->cols; c += wide)
      run(p,
          (struct mn_tile){r, p->rows - r < high ? p->rows - r : high, c,
                           p->cols - c < wide ? p->cols - c : wide},
          room);
}

static void check_sums(const struct mn_product *p, const real *before) {
  const int64_t down = p->form == MN_TN ? 1 : p->depth, along = p->form == MN_TN ? p->rows : 1;
  const int64_t across = p->form == MN_NT ? p->depth : 1, deep = p->form == MN_NT ? 1 : p->cols;
  for (int64_t r = 0; r < p->rows; r += 1 + p->rows / 40)
    for (int64_t c = 0; c < p->cols; c += 1 + p->cols / 40) {
      double sum = 0, sizes = 0;
      for (int64_t k = 0; k < p->depth; k++) {
        const double term = (double)p->a[r * down + k * along] * (double)p->b[c * across + k * deep];
        sum += term;
        sizes += fabs(term);
      }
      const double was = p->beta == 0 ? 0 : (double)(p->beta * before[r * p->cols + c]);
      const double error = fabs((double)p->d[r * p->cols + c] - ((double)p->alpha * sum + was));
      if (!(error <=
            (sizeof(real) == 8 ? 1e-14 : 3e-6) * (fabs((double)p->alpha) * sizes + fabs(was)) + 1e-30))
        fail_msg("form %d, %ldx%ldx%ld: [%ld, %ld] is wrong by %g", p->form, (long)p->rows, (long)p->cols,
                 (long)p->depth, (long)r, (long)c, error);
    }
}

static void tiles_are_sums(void **unused) {
  real *room = aligned_alloc(64, MN_PRODUCT_ROOM);
  assert_non_null(room);
  for (int i = 0; i < CASES; i++) {
    struct mn_product p = {.form = (enum mn_form)(i % 3), .alpha = i % 2 ? 1 : (real)0.25};
    p.beta = i % 5 ? 0 : (real)0.9;
    p.rows = size(), p.cols = size(), p.depth = i % 23 ? size() : 2 * DEPTH; /* now and then whole blocks */
    const size_t bytes = (size_t)(p.rows * p.cols) * sizeof(real);
    real *a = values(p.rows * p.depth), *b = values(p.cols * p.depth), *before = values(p.rows * p.cols);
    real *first = malloc(bytes), *d = malloc(bytes);
    real *packed = calloc((size_t)((p.cols + 31) / 32 * 32 * p.depth), sizeof *packed);
    assert_true(first && d && packed);
    p.a = a, p.b = b;
    if (p.beta == 0) before[below(&dice, p.rows * p.cols)] = NAN; /* it must not be read */
    for (int level = 0; level <= mn_level(); level++)
      for (int cut = 0; cut < 3; cut++) {
        const int compared = cut || level > 1; /* SSE2's products are rounded */
        p.d = memcpy(compared ? d : first, before, bytes);
        by_tiles(&p, levels[level], room, cut ? 1 + below(&dice, 9) : MOST);
        if (!cut) check_sums(&p, before);
        if (compared) assert_memory_equal(d, first, bytes);
        if (p.form != MN_NT || !compared) continue;
        packs[level](packed, b, p.cols, p.depth);
        p.packed = packed;
        by_tiles(&p, levels[level], room, cut ? 1 : MOST);
        p.packed = NULL;
        if (p.beta == 0) assert_memory_equal(d, first, bytes);
      }
    free(a), free(b), free(before), free(first), free(d), free(packed);
  }
  free(room);
}

/* The library's sums are of fused multiply-adds; of rounded products this one is 0. */
static void fused(void **unused) {
  struct mn_device *device;
  assert_int_equal(mn_device_open(&device, "cpu", "fp32", 0), MN_OK);
  float a[2] = {1, 1 + 0x1p-12f}, b[2] = {-(1 + 0x1p-11f), 1 + 0x1p-12f}, d;
  struct mn_operand x = {.rows = 1, .cols = 2, .real = a}, w = {.rows = 1, .cols = 2, .real = b};
  const struct mn_epilogue store = {.kind = MN_STORE, .into = &d};
  assert_int_equal(device->kernels->gemm(device, MN_NT, &w, &x, &store), MN_OK);
  assert_true(d == (mn_fused() ? 0x1p-24f : 0));
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_are_sums), cmocka_unit_test(fused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
