/* The CPU's and CUDA's kernel tables, entry by entry, in one process: the same inputs to both, and the
 * answers compared. The block's epilogues, the passes over memory and what is peculiar to planes have files
 * of their own. Without a GPU every test is skipped, and says why. */
#include "tests/parity_bench.h"

#include "kernels/text.h"

static const struct sizes PRODUCTS[] = {
    {1, 1, 1},   {1, 5, 3},      {3, 1, 7},       {16, 16, 16},    {33, 17, 9},
    {64, 64, 1}, {129, 257, 65}, {127, 130, 300}, {256, 512, 128}, {31, 1000, 513},
    {8, 8, 8},   {131, 264, 72}, {136, 264, 77},
};

static void check_product(struct bench *b, enum mn_form form, struct sizes z, enum mn_epilogue_kind kind) {
  void *into[SIDES];
  char what[200];
  snprintf(what, sizeof what, "%s form %d kind %d, %lld by %lld by %lld", mn_precision_name(b->precision),
           (int)form, (int)kind, (long long)z.rows, (long long)z.cols, (long long)z.depth);
  for (int s = 0; s < SIDES; s++) {
    struct mn_operand x, y;
    operands(b, s, form, z, &x, &y);
    into[s] =
        kind == MN_ADD ? put_drawn(b, s, 13, z.rows * z.cols, 1) : poisoned_reals(b, s, z.rows * z.cols);
    struct mn_epilogue e = {.kind = kind, .into = into[s]};
    must(b->on[s]->kernels->gemm(b->on[s], form, &x, &y, &e));
  }
  same_reals(b, what, into, z.rows * z.cols, product_tolerance(b));
  clear_bench(b);
}

static void all_products(enum mn_precision precision) {
  struct bench b;
  open_bench(&b, precision);
  for (unsigned i = 0; i < sizeof PRODUCTS / sizeof PRODUCTS[0]; i++)
    for (int form = MN_NT; form <= MN_TN; form++) {
      check_product(&b, (enum mn_form)form, PRODUCTS[i], MN_STORE);
      if (blind() && (precision == MN_TF32 || precision == MN_BF16 || precision == MN_FP16)) continue;
      check_product(&b, (enum mn_form)form, PRODUCTS[i], MN_ADD);
    }
  /* Large tiles of the GEMM of our own. */
  for (int form = MN_NT; form <= MN_TN && b.on[CUDA]->planes && !quick(); form++)
    check_product(&b, (enum mn_form)form, (struct sizes){2040, 2040, 40}, form == MN_NN ? MN_ADD : MN_STORE);
  close_bench(&b);
}

static void gemm_fp64(void **state) {
  all_products(MN_FP64);
}
static void gemm_fp32(void **state) {
  all_products(MN_FP32);
}
static void gemm_tf32(void **state) {
  all_products(MN_TF32);
}
static void gemm_bf16(void **state) {
  all_products(MN_BF16);
}

static void gemm_fp16(void **state) {
  all_products(MN_FP16);
}
static void gemm_fp16x3(void **state) {
  all_products(MN_FP16X3);
}

/* Operands that start in the middle of 16 bytes. */
static void gemm_unaligned(void **state) {
  const enum mn_precision precisions[] = {MN_FP32, MN_BF16, MN_FP16};
  for (int p = 0; p < 3; p++) {
    struct bench b;
    open_bench(&b, precisions[p]);
    struct sizes z = {48, 80, 64};
    void *into[SIDES];
    for (int s = 0; s < SIDES; s++) {
      struct mn_operand x, y;
      operand_shape(MN_NT, (struct sizes){z.rows + 1, z.cols, z.depth}, &x, &y);
      x = operand(&b, s, x, 11), y = operand(&b, s, y, 12);
      x.rows = z.rows; /* the same memory, one element later */
      x.real = (char *)x.real + b.on[s]->real;
      if (x.planes[0]) x.planes[0] = (char *)x.planes[0] + b.on[s]->plane;
      into[s] = (char *)poisoned_reals(&b, s, z.rows * z.cols + 1) + b.on[s]->real;
      struct mn_epilogue e = {.kind = MN_STORE, .into = into[s]};
      must(b.on[s]->kernels->gemm(b.on[s], MN_NT, &x, &y, &e));
    }
    same_reals(&b, "an unaligned product", into, z.rows * z.cols, product_tolerance(&b));
    close_bench(&b);
  }
}

/* A product that ends in a block: of a depth that the GEMM of our own takes, its own way and the library's,
 * and of another. */
static void gemm_block(void **state) {
  const enum mn_precision precisions[] = {MN_FP64, MN_FP32, MN_BF16, MN_FP16, MN_FP16X3};
  for (int i = 0; i < 15; i++) {
    struct bench b;
    open_bench(&b, precisions[i / 3]);
    struct shape at = {50, 6, 16};
    int64_t count = at.rows * at.groups * at.width;
    struct sizes z = {at.rows, at.groups * at.width, i % 3 ? 72 : 70};
    struct side two[SIDES];
    for (int s = 0; s < SIDES; s++) {
      struct mn_operand x, w;
      make_side(&b, s, &two[s], at, MN_OP_ALL, APART);
      operands(&b, s, MN_NT, z, &x, &w);
      b.on[s]->force_cublas = i % 3 == 2;
      struct mn_epilogue e = {.kind = MN_BLOCK, .into = poisoned_reals(&b, s, count), .block = &two[s].block};
      must(b.on[s]->kernels->gemm(b.on[s], MN_NT, &x, &w, &e));
      exact_planes(&b, s, "y of a product", &two[s].y);
    }
    double tolerance = b.precision == MN_FP64 ? 1e-12 : 1e-4;
    same_reals(&b, "y of a product", PAIR(y.real), count, tolerance);
    same_reals(&b, "z of a product", PAIR(block.z), count, tolerance);
    close_bench(&b);
  }
}

/* ---- updates ---- */

static void all_updates(enum mn_precision precision) {
  struct bench b;
  open_bench(&b, precision);
  const int64_t sizes[][2] = {{1, 1}, {1, 7}, {33, 17}, {64, 64}};
  for (int i = 0; i < RULE_COUNT; i++)
    for (int k = 0; k < 4; k++) {
      struct parameter two[SIDES];
      for (int s = 0; s < SIDES; s++) {
        make_parameter(&b, s, &two[s], sizes[k][0], sizes[k][1], RULES[i]);
        struct mn_epilogue e = {.kind = MN_UPDATE, .update = &two[s].update};
        const int64_t count = sizes[k][0] * sizes[k][1];
        void *d = put_drawn(&b, s, 23, count, 1);
        two[s].update.clears = (i + k) % 2;
        must(b.on[s]->kernels->epilogue(b.on[s], d, sizes[k][0], sizes[k][1], &e));
        double *left = get(&b, s, d, count), *given = draw(23, count, 1);
        for (int64_t j = 0; j < count; j++) assert_true(left[j] == (two[s].update.clears ? 0 : given[j]));
        free(left), free(given);
      }
      same_parameters(&b, two, "an update", tolerance_of(&b));
      clear_bench(&b);
    }
  close_bench(&b);
}

/* Through a product: with memory for it and, where the CPU can do without, without; one part and several; and
 * by the GEMM of our own, in small tiles and in large ones. */
static void all_product_updates(enum mn_precision precision) {
  struct bench b;
  open_bench(&b, precision);
  const struct sizes sizes[] = {{5, 7, 3}, {130, 70, 33}, {136, 72, 33}, {2100, 4100, 8}, {2104, 4104, 8}};
  for (int i = 0; i < RULE_COUNT; i++)
    for (int k = 0; k < (i != 3 && i != ADAMW ? 3 : b.on[CUDA]->planes && !quick() ? 5 : 4); k++)
      for (int given = 0; given < 2; given++) {
        struct sizes z = sizes[k];
        struct parameter two[SIDES];
        for (int s = 0; s < SIDES; s++) {
          struct mn_operand dz, x;
          operands(&b, s, MN_TN, z, &dz, &x);
          make_parameter(&b, s, &two[s], z.rows, z.cols, RULES[i]);
          struct mn_epilogue e = {.kind = MN_UPDATE, .update = &two[s].update};
          if (given || s == CPU) e.into = poisoned_reals(&b, s, z.rows * z.cols);
          must(b.on[s]->kernels->gemm(b.on[s], MN_TN, &dz, &x, &e));
        }
        same_parameters(&b, two, "an update by a product", product_tolerance(&b));
        clear_bench(&b);
      }
  close_bench(&b);
}

static void update_fp64(void **state) {
  all_updates(MN_FP64);
  all_product_updates(MN_FP64);
}
static void update_fp32(void **state) {
  all_updates(MN_FP32);
  all_product_updates(MN_FP32);
}
static void update_bf16(void **state) {
  all_updates(MN_BF16);
  all_product_updates(MN_BF16);
}

static void update_fp16(void **state) {
  all_updates(MN_FP16);
  all_product_updates(MN_FP16);
}
static void update_fp16x3(void **state) {
  all_updates(MN_FP16X3);
  all_product_updates(MN_FP16X3);
}

static double get_double(struct bench *b, int s, const double *from) {
  double *host = get_raw(b, s, from, sizeof(double)), value = *host;
  free(host);
  return value;
}

/* Every other time the loss is summed beside nothing. */
static void column_sums(void **state) {
  for (int p = MN_FP64; p <= MN_FP32; p++) {
    struct bench b;
    open_bench(&b, (enum mn_precision)p);
    const int64_t chunks[] = {1, 2, 7, 32, 70}, channels[] = {1, 33, 96}, parts[] = {1, 4097, 50000};
    for (int i = 0; i < 15; i++) {
      int64_t k = chunks[i % 5], c = channels[i / 5], n = parts[i % 3];
      double losses[SIDES];
      void *stored[SIDES], *added[SIDES];
      struct parameter two[SIDES];
      for (int s = 0; s < SIDES; s++) {
        make_parameter(&b, s, &two[s], 1, c, RULES[i % RULE_COUNT]);
        stored[s] = poisoned_reals(&b, s, c), added[s] = put_drawn(&b, s, 31, c, 1);
        struct mn_epilogue store = {.kind = MN_STORE, .into = stored[s]},
                           add = {.kind = MN_ADD, .into = added[s]},
                           update = {.kind = MN_UPDATE, .update = &two[s].update};
        void *sums = put_drawn(&b, s, 32, 3 * k * c, 1);
        const struct mn_epilogue *const sinks[] = {&store, &add, &update}, *const some[] = {NULL, NULL, NULL};
        double *out = poisoned(&b, s, 16), *scratch = poisoned(&b, s, 8 * (size_t)mn_reduce_scratch(n));
        const struct mn_reduction loss = {out, scratch, put_drawn(&b, s, 33, n, 3), NULL, n, 0.25};
        must(b.on[s]->kernels->column_sums(b.on[s], sums, k, c, some, i % 2 ? &loss : NULL));
        must(b.on[s]->kernels->column_sums(b.on[s], sums, k, c, sinks, i % 2 ? NULL : &loss));
        must(b.on[s]->kernels->reduce(b.on[s],
                                      &(struct mn_reduction){out + 1, scratch, loss.parts, NULL, n, 0.25}));
        losses[s] = get_double(&b, s, out);
        assert_true(losses[s] == get_double(&b, s, out + 1)); /* the same order: the same bytes */
      }
      near("a loss beside them", &losses[CUDA], &losses[CPU], 1, 1e-10);
      same_reals(&b, "column sums, stored", stored, c, tolerance_of(&b));
      same_reals(&b, "column sums, added", added, c, tolerance_of(&b));
      same_parameters(&b, two, "column sums, updated", tolerance_of(&b));
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

/* ---- losses and sums ---- */

static void mse(void **state) {
  const int64_t sizes[][2] = {{1, 1}, {1, 7}, {33, 10}, {5, 1500}, {64, 64}};
  for (int p = MN_FP64; p <= MN_FP32; p++) {
    struct bench b;
    open_bench(&b, (enum mn_precision)p);
    for (int i = 0; i < 5; i++) {
      int64_t n = sizes[i][0], k = sizes[i][1];
      void *parts[SIDES], *dy[SIDES];
      for (int s = 0; s < SIDES; s++) {
        const struct mn_kernels *t = b.on[s]->kernels;
        void *y = put_drawn(&b, s, 41, n * k, 2), *target = put_drawn(&b, s, 42, n * k, 2);
        parts[s] = poisoned_reals(&b, s, n);
        dy[s] = poisoned_reals(&b, s, n * k);
        must(t->mse(b.on[s], parts[s], dy[s], y, target, n, k, 0.5));
      }
      same_reals(&b, "mse", parts, n, tolerance_of(&b));
      same_reals(&b, "mse's gradient", dy, n * k, tolerance_of(&b));
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

/* Some rows have their largest value twice: the first one counts. */
static void cross_entropy(void **state) {
  const int64_t sizes[][2] = {{1, 1}, {1, 7}, {33, 10}, {5, 1500}, {64, 100}};
  for (int p = MN_FP64; p <= MN_FP32; p++) {
    struct bench b;
    open_bench(&b, (enum mn_precision)p);
    for (int i = 0; i < 5; i++) {
      int64_t n = sizes[i][0], k = sizes[i][1];
      double *values = draw(44, n * k, 50);
      int32_t *labels = malloc((size_t)n * sizeof *labels);
      assert_non_null(labels);
      for (int64_t r = 0; r < n; r++) {
        labels[r] = (int32_t)(r * 7 % k);
        if (r % 3 == 0) values[r * k + labels[r]] = values[r * k + k - 1] = 60;
      }
      void *parts[SIDES], *correct[SIDES], *dy[SIDES];
      for (int s = 0; s < SIDES; s++) {
        const struct mn_kernels *t = b.on[s]->kernels;
        void *y = put(&b, s, values, n * k), *at = put_raw(&b, s, labels, (size_t)n * sizeof *labels);
        parts[s] = poisoned_reals(&b, s, n), correct[s] = poisoned_reals(&b, s, n);
        dy[s] = poisoned_reals(&b, s, n * k);
        must(t->cross_entropy(b.on[s], parts[s], correct[s], dy[s], y, at, n, k, 0.5));
      }
      same_reals(&b, "cross entropy", parts, n, tolerance_of(&b));
      same_reals(&b, "correct rows", correct, n, 0);
      same_reals(&b, "cross entropy's gradient", dy, n * k, tolerance_of(&b));
      free(values), free(labels);
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

/* One sum after the other through the same memory, the way a stream's sums come: each leaves nothing behind
 * for the next, and blocks that are done in another order give the same bytes. */
static void sums_leave_nothing_behind(void **state) {
  enum { LARGEST = 3000001, TIMES = 20 };
  const int64_t counts[] = {LARGEST, 4097, 1, 300000};
  for (int p = MN_FP64; p <= MN_FP32; p++) {
    struct bench b;
    open_bench(&b, (enum mn_precision)p);
    const struct mn_kernels *t = b.on[CUDA]->kernels;
    void *values = put_drawn(&b, CUDA, 52, LARGEST, 3);
    double *out = poisoned(&b, CUDA, 16), first[4][2];
    double *scratch = poisoned(&b, CUDA, 8 * (size_t)mn_reduce_scratch(LARGEST));
    for (int i = 0; i < 4 * TIMES; i++) {
      must(t->zero(b.on[CUDA], scratch, 8 * (size_t)mn_reduce_scratch(LARGEST))); /* no sum from before */
      must(t->reduce(b.on[CUDA], &(struct mn_reduction){out, scratch, values, NULL, counts[i % 4], 0.25}));
      must(t->reduce(b.on[CUDA], &(struct mn_reduction){out + 1, scratch, values, values, counts[i % 4], 1}));
      double found[2] = {get_double(&b, CUDA, out), get_double(&b, CUDA, out + 1)};
      if (i < 4) memcpy(first[i], found, sizeof found);
      assert_true(isfinite(found[0]) && found[1] > 0);
      assert_memory_equal(found, first[i % 4], sizeof found);
    }
    close_bench(&b);
  }
}

static void sums(void **state) {
  const int64_t counts[] = {1, 255, 4096, 4097, 50000, 3000001};
  for (int p = MN_FP64; p <= MN_FP32; p++) {
    struct bench b;
    open_bench(&b, (enum mn_precision)p);
    for (int i = 0; i < 6; i++) {
      double found[SIDES][2];
      for (int s = 0; s < SIDES; s++) {
        const struct mn_kernels *t = b.on[s]->kernels;
        void *values = put_drawn(&b, s, 51, counts[i], 3);
        double *out = poisoned(&b, s, 16),
               *scratch = poisoned(&b, s, 8 * (size_t)mn_reduce_scratch(counts[i]));
        must(t->reduce(b.on[s], &(struct mn_reduction){out, scratch, values, NULL, counts[i], 0.25}));
        must(t->reduce(b.on[s], &(struct mn_reduction){out + 1, scratch, values, values, counts[i], 1}));
        found[s][0] = get_double(&b, s, out), found[s][1] = get_double(&b, s, out + 1);
      }
      if (!(fabs(found[CUDA][0] - found[CPU][0]) <= 1e-12 * found[CPU][1]))
        fail_msg("reduce: %.17g is not %.17g", found[CUDA][0], found[CPU][0]);
      near("sum of squares", &found[CUDA][1], &found[CPU][1], 1, 1e-12);
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

static void clip(void **state) {
  struct bench b;
  open_bench(&b, MN_FP32);
  const double squares[][3] = {{9, 16, 0}, {1e-4, 0, 0}, {INFINITY, 1, 1}, {NAN, 1, 1}};
  for (int i = 0; i < 4; i++) {
    double found[SIDES];
    for (int s = 0; s < SIDES; s++) {
      double *scale = poisoned(&b, s, 2 * sizeof *scale);
      must(b.on[s]->kernels->clip(b.on[s], scale, scale + 1, put_raw(&b, s, squares[i], sizeof squares[i]), 3,
                                  2));
      found[s] = get_double(&b, s, scale);
      assert_int_equal(flag(&b, s), i >= 2);
    }
    near("the clipping scale", &found[CUDA], &found[CPU], 1, 1e-15);
    clear_bench(&b);
  }
  close_bench(&b);
}

/* ---- random, memory ---- */

static void uniform(void **state) {
  const uint64_t firsts[] = {0, 1, 3, 4, ((uint64_t)1 << 34) + 1};
  const int64_t counts[] = {1, 2, 4, 5, 8, 1023};
  for (int p = MN_FP64; p <= MN_FP32; p++) {
    struct bench b;
    open_bench(&b, (enum mn_precision)p);
    for (int i = 0; i < 30; i++) {
      int64_t count = counts[i / 5];
      void *host[SIDES];
      for (int s = 0; s < SIDES; s++) {
        void *out = poisoned_reals(&b, s, count + 1);
        must(b.on[s]->kernels->uniform(b.on[s], out, count, 0x123456789abcdefu, 77, firsts[i % 5], 0.1));
        host[s] = get_raw(&b, s, out, (size_t)(count + 1) * b.on[s]->real); /* and nothing past the end */
      }
      assert_memory_equal(host[CPU], host[CUDA], (size_t)(count + 1) * b.on[CPU]->real);
      free(host[CPU]), free(host[CUDA]);
      clear_bench(&b);
    }
    close_bench(&b);
  }
}

static void memory(void **state) {
  struct bench b;
  open_bench(&b, MN_FP32);
  struct mn_device *cuda = b.on[CUDA];
  double *values = draw(71, 1000, 1), back[1000];
  void *first = put_raw(&b, CUDA, values, sizeof back), *second = poisoned(&b, CUDA, sizeof back), *host;
  assert_int_equal((uintptr_t)first % 256, 0);
  must(cuda->kernels->stamp(cuda, 0));
  must(cuda->kernels->copy(cuda, second, first, sizeof back));
  must(cuda->kernels->zero(cuda, second, 8));
  must(cuda->kernels->stamp(cuda, 1));
  must(cuda->kernels->download(cuda, back, second, sizeof back));
  assert_true(back[0] == 0);
  assert_memory_equal(back + 1, values + 1, sizeof back - 8);
  double ms = NAN;
  must(cuda->kernels->elapsed(cuda, &ms));
  assert_true(ms >= 0 && ms < 1e4);
  must(cuda->kernels->allocate_host(cuda, &host, 1 << 20));
  cuda->kernels->release_host(cuda, host);
  assert_int_equal(cuda->kernels->allocate(cuda, &host, (size_t)1 << 50), MN_NO_MEMORY);
  assert_null(host);
  must(cuda->kernels->synchronize(cuda)); /* and the stream still works */
  print_message("on %s\n", cuda->name);
  free(values);
  close_bench(&b);
}

/* Two GPUs used in turn by one thread, standing in for the two sides: every entry works on its own GPU. */
static void two_gpus(void **state) {
  enum { COUNT = 5000 };
  struct bench b = {.precision = MN_FP32};
  for (int s = 0; s < SIDES; s++) {
    mn_status opened = mn_device_open(&b.on[s], s == 0 ? "cuda:0" : "cuda:1", mn_precision_name(b.precision));
    if (opened == MN_OK) continue;
    mn_device_close(b.on[0]);
    assert_int_equal(opened, MN_NO_DEVICE);
    SKIP("%s", mn_message());
  }
  for (int i = 0; i < 3; i++) check_product(&b, MN_NT, PRODUCTS[4 + i], MN_ADD);
  void *drawn[SIDES], *sum[SIDES];
  struct mn_operand y[SIDES];
  struct mn_graph *graph[SIDES];
  for (int s = 0; s < SIDES; s++) {
    drawn[s] = take(&b, s, COUNT * sizeof(float)), sum[s] = poisoned_reals(&b, s, COUNT);
    y[s] = (struct mn_operand){.rows = 1, .cols = COUNT, .real = sum[s]};
  }
  for (int s = 0; s < SIDES; s++)
    must(b.on[s]->kernels->uniform(b.on[s], drawn[s], COUNT, 3, MN_RANDOM_CHECK, 0, 1));
  for (int s = 0; s < SIDES; s++) must(b.on[s]->kernels->add(b.on[s], &y[s], drawn[s], drawn[s]));
  for (int s = 0; s < SIDES; s++) {
    must(b.on[s]->kernels->graph_begin(b.on[s]));
    must(b.on[1 - s]->kernels->zero(b.on[1 - s], b.on[1 - s]->nonfinite, sizeof(int)));
    must(b.on[s]->kernels->branch_fork(b.on[s], MN_BRANCH_SUMS));
    must(b.on[s]->kernels->branch_begin(b.on[s], MN_BRANCH_SUMS));
    must(b.on[s]->kernels->add(b.on[s], &y[s], sum[s], drawn[s]));
    must(b.on[s]->kernels->branch_end(b.on[s], MN_BRANCH_SUMS));
    must(b.on[s]->kernels->branch_join(b.on[s], MN_BRANCH_SUMS));
    must(b.on[s]->kernels->graph_end(b.on[s], &graph[s]));
  }
  for (int s = 0; s < SIDES; s++) must(b.on[s]->kernels->stamp(b.on[s], 0));
  for (int s = 0; s < SIDES; s++) must(b.on[s]->kernels->graph_launch(b.on[s], graph[s]));
  for (int s = 0; s < SIDES; s++) must(b.on[s]->kernels->stamp(b.on[s], 1));
  for (int s = 0; s < SIDES; s++) {
    double ms = NAN, *three = get(&b, s, sum[s], COUNT), *one = get(&b, s, drawn[s], COUNT);
    must(b.on[s]->kernels->elapsed(b.on[s], &ms));
    assert_true(ms >= 0);
    for (int i = 0; i < COUNT; i++) assert_true(three[i] == (float)(one[i] + one[i] + one[i]));
    free(three), free(one);
    b.on[s]->kernels->graph_free(b.on[s], graph[s]);
  }
  same_reals(&b, "two GPUs", sum, COUNT, 0);
  close_bench(&b);
}

/* The libraries' versions, "major.minor…"; none on the CPU. */
static void versions(void **state) {
  struct bench b;
  open_bench(&b, MN_FP32);
  const struct mn_device *cpu = b.on[CPU], *gpu = b.on[CUDA];
  assert_string_equal(cpu->versions.cuda, "");
  assert_string_equal(cpu->versions.driver, "");
  assert_string_equal(cpu->versions.cublaslt, "");
  int major, minor, patch, end = 0;
  assert_true(sscanf(gpu->versions.cuda, "%d.%d%n", &major, &minor, &end) == 2 && !gpu->versions.cuda[end] &&
              major >= 11);
  assert_true(sscanf(gpu->versions.driver, "%d.%d%n", &major, &minor, &end) == 2 &&
              !gpu->versions.driver[end]);
  assert_true(sscanf(gpu->versions.cublaslt, "%d.%d.%d%n", &major, &minor, &patch, &end) == 3 && major >= 11);
  print_message("CUDA %s, driver for %s, cuBLASLt %s\n", gpu->versions.cuda, gpu->versions.driver,
                gpu->versions.cublaslt);
  close_bench(&b);
}

/* A name and back for every precision; a word that is none is refused with the list. */
static void precision_words(void **state) {
  static const char *const names[] = {[MN_FP64] = "fp64", [MN_FP32] = "fp32", [MN_TF32] = "tf32",
                                      [MN_BF16] = "bf16", [MN_FP16] = "fp16", [MN_FP16X3] = "fp16x3"};
  for (int p = 0; p < MN_PRECISIONS; p++) {
    int back;
    assert_string_equal(mn_precision_name((enum mn_precision)p), names[p]);
    must(mn_word_find(&back, "precision", mn_precision_words, names[p]));
    assert_int_equal(back, p);
  }
  int none;
  assert_int_equal(mn_word_find(&none, "precision", mn_precision_words, "fp8"), MN_USAGE);
  assert_non_null(strstr(mn_message(), "'fp8'"));
  assert_non_null(strstr(mn_message(), "fp64, fp32, tf32, bf16, fp16 and fp16x3 are"));
}

/* Without a GPU too: a device that cannot be is refused in words. */
static void no_such_device(void **state) {
  struct mn_device *device = NULL;
  assert_int_equal(mn_device_open(&device, "cuda:1000", "fp32"), MN_NO_DEVICE);
  assert_null(device);
  assert_true(strlen(mn_message()) > 0 && !strchr(mn_message(), '\n'));
  assert_non_null(strstr(mn_message(), "the device cpu would do"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_such_device), cmocka_unit_test(precision_words),
      cmocka_unit_test(versions),       cmocka_unit_test(two_gpus),
      cmocka_unit_test(memory),         cmocka_unit_test(uniform),
      cmocka_unit_test(sums),           cmocka_unit_test(sums_leave_nothing_behind),
      cmocka_unit_test(clip),           cmocka_unit_test(mse),
      cmocka_unit_test(cross_entropy),  cmocka_unit_test(gemm_fp64),
      cmocka_unit_test(gemm_fp32),      cmocka_unit_test(gemm_tf32),
      cmocka_unit_test(gemm_bf16),      cmocka_unit_test(gemm_unaligned),
      cmocka_unit_test(gemm_fp16),      cmocka_unit_test(gemm_fp16x3),
      cmocka_unit_test(gemm_block),     cmocka_unit_test(update_fp64),
      cmocka_unit_test(update_fp32),    cmocka_unit_test(update_bf16),
      cmocka_unit_test(update_fp16),    cmocka_unit_test(update_fp16x3),
      cmocka_unit_test(column_sums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
