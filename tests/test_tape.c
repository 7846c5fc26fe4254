/* The tape: gradient sinks, buffers taken once, the same bytes every time, and what a value that is not
 * finite may and may not do. */
#include "tests/training.h"

#include "engine/hooks.h"
#include "layers/layer.h"

/* Store, add and update give what they say of one and the same gradient: twice the store is the add after two
 * passes, and the update moves by rate times it. */
static void sinks_do_what_they_say(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
  struct memory m = {.device = device};
  double *stored[MN_MODEL_PARAMETERS], *before[MN_MODEL_PARAMETERS], rate = 0.25;
  double *device_rate = take_bytes(&m, 1, sizeof rate);
  MUST(device->kernels->copy(device, device_rate, &rate, sizeof rate));
  struct mn_rule sgd = {.rate = device_rate};
  static const enum mn_epilogue_kind hows[] = {MN_STORE, MN_ADD, MN_UPDATE};
  for (int how = 0; how < 3; how++) {
    struct mn_pass *pass;
    MUST(mn_model_train(model, hows[how], &sgd));
    MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, 5, 1, 0));
    load(pass, 1);
    for (int k = 0; k < (how == 2 ? 1 : 2); k++) { /* storing twice leaves it stored once */
      MUST(mn_tape_forward(pass->tape));
      MUST(mn_tape_backward(pass->tape));
    }
    for (int i = 0; i < model->count; i++) {
      const struct mn_tensor *t = model->parameters[i];
      int64_t count = mn_tensor_count(t);
      if (how == 0) {
        stored[i] = read_reals(&m, t->gradient, count);
        before[i] = read_reals(&m, t->value.real, count);
        continue;
      }
      for (int64_t k = 0; k < count; k++) {
        if (how == 1) stored[i][k] *= 2;
        if (how == 2) before[i][k] -= rate * stored[i][k] / 2;
      }
      assert_reals(&m, t->name, how == 1 ? t->gradient : t->value.real, how == 1 ? stored[i] : before[i],
                   count, 1e-14);
    }
    mn_pass_close(pass);
  }
  for (int i = 0; i < model->count; i++) {
    free(stored[i]);
    free(before[i]);
  }
  release_all(&m);
  mn_model_close(model);
  mn_device_close(device);
}

/* A parameter that is not trained has no gradient, and what only frozen ones lead to is not computed. */
static void frozen_parameters_get_nothing(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
  struct mn_pass *pass;
  for (int i = 4; i < 8; i++) MUST(mn_tensor_train(device, model->parameters[i], MN_STORE, NULL));
  MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, 5, 1, 0));
  load(pass, 1);
  for (int i = 0; i < 4; i++) assert_null(model->parameters[i]->gradient);
  assert_null(pass->tape->last->sinks[0]);
  MUST(mn_tape_forward(pass->tape));
  MUST(mn_tape_backward(pass->tape));
  mn_pass_close(pass);
  mn_model_close(model);
  mn_device_close(device);
}

/* A block that feeds one GEMM receives dz from that GEMM's epilogue; one that is used twice, a sum. */
static void sinks_are_handed_over(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
  MUST(mn_model_train(model, MN_STORE, NULL));
  struct mn_tape *tape;
  struct mn_tensor *x, *h, *sum, *y;
  MUST(mn_tape_open(&tape, device, 1));
  MUST(mn_tape_tensor(tape, &x, "x", 5, 7));
  x->keep = 1;
  MUST(mn_block_kind.record(tape, &h, x, &model->layers[0]));
  MUST(mn_add_record(tape, &sum, h, h));
  MUST(mn_block_kind.record(tape, &y, sum, &model->layers[1]));
  MUST(mn_tape_finish(tape));
  const struct mn_node *first = tape->first, *add = first->next, *last = add->next;
  assert_null(first->sinks[0]);
  assert_int_equal(add->sinks[0]->kind, MN_STORE);
  assert_int_equal(add->sinks[1]->kind, MN_ADD);
  assert_int_equal(last->sinks[0]->kind, MN_STORE);
  mn_tape_close(tape);
  struct mn_pass *pass;
  MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, 5, 1, 0));
  assert_int_equal(pass->tape->last->sinks[0]->kind, MN_BLOCK_BACKWARD);
  mn_pass_close(pass);
  mn_model_close(model);
  mn_device_close(device);
}

/* Through a weight of ones on the diagonal. Planes whose scale follows from the sum are written after it. */
static void products_read_sums(struct memory *m) {
  enum { ROWS = 16, WIDTH = 8, MANY = ROWS * WIDTH };
  struct mn_device *device = m->device;
  double *x = kept_random(m, 1, MANY, 1), *diagonal = kept_zeros(m, WIDTH * WIDTH);
  struct mn_tape *tape;
  struct mn_tensor *in, *sum, *y, *weight, *bias;
  MUST(mn_tape_open(&tape, device, 0));
  MUST(mn_tape_tensor(tape, &in, "x", ROWS, WIDTH));
  in->keep = 1;
  MUST(mn_tensor_parameter(device, &weight, "weight", 2, WIDTH, WIDTH, 0, 0));
  MUST(mn_tensor_parameter(device, &bias, "bias", 1, 1, WIDTH, 0, 0));
  MUST(mn_add_record(tape, &sum, in, in));
  MUST(mn_block_ops_record(tape, &y, sum, &(struct mn_layer){.parameters = {weight, bias}}, MN_OP_BIAS));
  MUST(mn_tape_finish(tape));
  MUST(mn_tensor_write(device, bias, diagonal));
  for (int i = 0; i < WIDTH; i++) diagonal[i * WIDTH + i] = 1;
  MUST(mn_tensor_write(device, weight, diagonal));
  MUST(mn_tensor_write(device, in, x));
  MUST(mn_tape_forward(tape));
  for (int i = 0; i < MANY; i++) x[i] *= 2;
  assert_reals(m, "the sum", y->value.real, x, MANY, 0x1p-8);
  mn_tape_close(tape);
  mn_tensor_free(device, weight), mn_tensor_free(device, bias);
}

static mn_status fail_product(struct mn_device *device, enum mn_form form, const struct mn_operand *a,
                              const struct mn_operand *b, const struct mn_epilogue *epilogue) {
  return MN_LIBRARY;
}

static mn_status ended_with;
static mn_status note_end(struct mn_tape *tape, mn_status status) {
  return ended_with = status;
}

/* Among ranks what ends the exchanges hears of it, too. */
static void a_backward_that_fails_says_so(void **state) {
  static const struct mn_tape_hooks hooks = {.ended = note_end};
  struct mn_device *device = open_or_skip(*state, "fp32");
  const struct mn_kernels *const right = device->kernels;
  struct mn_kernels broken = *right;
  struct training t = open_training(device, settings[0], 0, 5);
  load(t.pass, 1);
  MUST(mn_tape_forward(t.pass->tape));
  broken.gemm = fail_product, device->kernels = &broken;
  for (int ranks = 0; ranks < 2; ranks++) {
    device->hooks = ranks ? &hooks : NULL, t.pass->tape->ranks = ranks ? (void *)&t : NULL;
    assert_int_equal(mn_tape_backward(t.pass->tape), MN_LIBRARY);
    assert_int_equal(ended_with, ranks ? MN_LIBRARY : MN_OK);
  }
  device->kernels = right, device->hooks = NULL;
  close_training(&t);
  mn_device_close(device);
}

static void steps_allocate_nothing(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    for (size_t s = 0; s < COUNT(settings); s++)
      for (int kind = 0; kind < 3; kind++) {
        struct training t = open_training(device, settings[s], kind, 5);
        step(&t, 0);
        int64_t allocations = device->allocations;
        size_t bytes = device->bytes;
        for (uint64_t k = 1; k < 4; k++) step(&t, k);
        assert_int_equal(device->allocations, allocations);
        assert_int_equal(device->bytes, bytes);
        close_training(&t);
      }
    assert_int_equal(device->bytes, 0);
    mn_device_close(device);
  }
}

/* A parameter's values, and what the rule keeps of it, as they stand in memory. */
static char *bytes_of(const struct training *t, size_t *size) {
  struct mn_device *device = t->model->device;
  char *out = NULL;
  *size = 0;
  for (int i = 0; i < t->model->count; i++) {
    const struct mn_tensor *p = t->model->parameters[i];
    size_t bytes = (size_t)mn_tensor_count(p) * device->real;
    const void *const kept[] = {NULL, p->update.m, p->update.v};
    for (int k = 0; k < 3; k++) {
      if (k > 0 && !kept[k]) continue;
      assert_non_null(out = realloc(out, *size + bytes));
      MUST(k ? device->kernels->download(device, out + *size, kept[k], bytes)
             : mn_tensor_download(device, p, out + *size));
      *size += bytes;
    }
  }
  return out;
}

struct trace {
  double losses[4];
  char *bytes;
  size_t size;
};

static struct trace trace_of(const char *name, const char *precision, int setting, int kind, int64_t rows,
                             int threads) {
  struct mn_device *device = open_or_skip(name, precision);
  device->threads = threads;
  struct training t = open_training(device, settings[setting], kind, rows);
  struct trace out;
  t.pass->tape->largest_product = MN_TAPE_MEDIUM; /* or one thread would do it all */
  for (int k = 0; k < 4; k++) out.losses[k] = step(&t, (uint64_t)k);
  out.bytes = bytes_of(&t, &out.size);
  close_training(&t);
  mn_device_close(device);
  return out;
}

static void assert_same_trace(const struct trace *a, const struct trace *b) {
  for (int k = 0; k < 4; k++) assert_true(isfinite(a->losses[k]));
  assert_memory_equal(a->losses, b->losses, sizeof a->losses);
  assert_int_equal(a->size, b->size);
  assert_memory_equal(a->bytes, b->bytes, a->size);
}

static void equal_runs_give_equal_bytes(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++)
    for (int s = 0; s < (int)COUNT(settings); s++)
      for (int kind = 0; kind < 3; kind++) {
        struct trace a = trace_of(*state, precisions[p], s, kind, 70, 2);
        struct trace b = trace_of(*state, precisions[p], s, kind, 70, 2);
        assert_same_trace(&a, &b);
        free(a.bytes);
        free(b.bytes);
      }
}

/* On CUDA the steps after the first are one graph, and the rate changes under it; but those that measure,
 * with scaled planes, are never replayed. */
static void a_step_is_forward_and_backward(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    const int replays = device->kernels->graph_launch && !device->scaled;
    for (size_t s = 0; s < COUNT(settings); s++)
      for (int kind = 0; kind < 3; kind++) {
        struct training whole = open_training(device, settings[s], kind, 40);
        struct training apart = open_training(device, settings[s], kind, 40);
        apart.apart = whole.measures = 1;
        for (uint64_t k = 0; k < 4; k++) assert_true(step(&whole, k) == step(&apart, k));
        assert_int_equal(whole.pass->tape->graphs[0] != NULL, replays);
        size_t sizes[2];
        char *a = bytes_of(&whole, &sizes[0]), *b = bytes_of(&apart, &sizes[1]);
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(a, b, sizes[0]);
        free(a);
        free(b);
        close_training(&whole);
        close_training(&apart);
      }
    mn_device_close(device);
  }
}

/* What a forward leaves: y, or the loss and how many rows are right. */
static void result_of(struct mn_pass *pass, double *out) {
  MUST(mn_tape_replay(pass->tape, 0));
  if (pass->target || pass->labels)
    MUST(mn_tape_results(pass->tape, &out[0], &out[1]));
  else
    MUST(mn_tensor_read(pass->model->device, pass->y, out));
}

/* On CUDA the forwards after the first are one graph: it sees a new batch, and parameters that another tape
 * has moved or that were written, just as a pass does that never ran. */
static void replayed_forwards_see_what_is_new(void **state) {
  enum { ROUNDS = 5, RESULTS = 40 * 8 };
  for (size_t p = 0; p < COUNT(precisions); p++) {
    struct mn_device *device = open_or_skip(*state, precisions[p]);
    for (int kind = 0; kind < 3; kind++)
      for (int evaluates = 0; evaluates < 2; evaluates++) {
        struct training t = open_training(device, settings[1], kind, 40);
        enum mn_pass_kind what = evaluates ? MN_PASS_EVALUATE : MN_PASS_PREDICT;
        struct mn_pass *replayed, *fresh;
        double found[RESULTS] = {0}, expected[RESULTS] = {0}, before[RESULTS] = {0};
        MUST(mn_pass_open(&replayed, t.model, what, 40, 1, 0));
        for (uint64_t k = 0; k < ROUNDS; k++) {
          if (k < 3) load(replayed, 60 + k);
          if (k == 3) step(&t, 0);
          if (k == 4) randomise(device, t.model->parameters[0], 77);
          result_of(replayed, found);
          MUST(mn_pass_open(&fresh, t.model, what, 40, 1, 0));
          load(fresh, k < 3 ? 60 + k : 62);
          result_of(fresh, expected);
          mn_pass_close(fresh);
          assert_memory_equal(found, expected, sizeof found);
          assert_true(memcmp(found, before, sizeof found) != 0);
          memcpy(before, found, sizeof before);
          assert_int_equal(replayed->tape->graphs[0] != NULL, k > 0 && device->kernels->graph_launch != NULL);
        }
        mn_pass_close(replayed);
        close_training(&t);
      }
    mn_device_close(device);
  }
}

struct counted {
  struct mn_device *device;
  int threads;
};

static mn_status count_threads(void *data) {
  struct counted *counted = data;
  counted->threads = mn_threads(counted->device);
  return MN_OK;
}

/* A model of small products is one thread's, one of medium products has half, or all if so many were asked for,
 * and one of large products all, as all have by --threads; and so has the caller again. */
static void small_products_take_fewer_threads(void **state) {
  static const struct {
    int64_t rows, width;
    int of;
    enum mn_thread_rule all;
    int expected;
  } cases[] = {{32, 192, 9, MN_FEWER_THREADS, 1},  {64, 256, 9, MN_FEWER_THREADS, 4},
               {64, 256, 9, MN_ASKED_THREADS, 9},  {32, 192, 9, MN_ASKED_THREADS, 1},
               {128, 256, 3, MN_FEWER_THREADS, 1}, {512, 256, 9, MN_FEWER_THREADS, 9},
               {4, 16, 9, MN_ALL_THREADS, 9}};
  struct mn_device *device = open_or_skip(*state, "fp32");
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct mn_tape *tape;
    struct mn_tensor *x, *w, *y;
    struct counted counted = {device, 0};
    device->threads = cases[i].of;
    device->all_threads = cases[i].all;
    MUST(mn_tape_open(&tape, device, 0));
    MUST(mn_tensor_parameter(device, &w, "w", 2, cases[i].width, cases[i].width, 0, 0));
    MUST(mn_tape_tensor(tape, &x, "x", cases[i].rows, cases[i].width));
    x->keep = 1;
    MUST(mn_block_ops_record(tape, &y, x, &(struct mn_layer){.parameters = {w}}, MN_OP_BIAS));
    MUST(mn_tape_finish(tape));
    MUST(mn_tape_run(tape, count_threads, &counted));
    assert_int_equal(counted.threads, cases[i].expected);
    assert_int_equal(mn_threads(device), cases[i].of);
    mn_tape_close(tape);
    mn_tensor_free(device, w);
  }
  mn_device_close(device);
}

/* On the CPU the number of threads does not matter either. */
static void threads_do_not_change_bytes(void **state) {
  for (size_t p = 0; p < COUNT(precisions); p++)
    for (int kind = 0; kind < 3; kind++) {
      struct trace one = trace_of(*state, precisions[p], 4, kind, 135, 1);
      for (int threads = 2; threads < 6; threads += 3) {
        struct trace more = trace_of(*state, precisions[p], 4, kind, 135, threads);
        assert_same_trace(&one, &more);
        free(more.bytes);
      }
      free(one.bytes);
    }
}

/* Many rows and parts, so that the sums have several chunks and spans: all of it but the GEMMs. */
static void kernels_do_not_depend_on_threads(void **state) {
  enum { ROWS = 1500, CHANNELS = 24, GROUPS = 6, MANY = ROWS * CHANNELS };
  struct mn_device *device = open_or_skip(*state, "fp32");
  double *first[4] = {0}, loss = 0;
  for (int threads = 1; threads <= 4; threads++) {
    device->threads = threads;
    struct memory m = {.device = device};
    double *d = random_values(MANY, 1, 2), *vectors = random_values(CHANNELS, 2, 1);
    void *vector = take_reals(&m, vectors, CHANNELS);
    struct mn_operand dz = {.rows = ROWS, .cols = CHANNELS, .real = take_reals(&m, NULL, MANY)};
    struct mn_block block = {.ops = MN_OP_ALL,
                             .rows = ROWS,
                             .channels = CHANNELS,
                             .groups = GROUPS,
                             .eps = 1e-5,
                             .slope = 0.01,
                             .bias = vector,
                             .gamma = vector,
                             .beta = vector,
                             .z = take_reals(&m, d, MANY),
                             .mean = take_reals(&m, NULL, ROWS * GROUPS),
                             .rstd = take_reals(&m, NULL, ROWS * GROUPS),
                             .target = take_reals(&m, d, MANY),
                             .scale = 1,
                             .loss_parts = take_reals(&m, NULL, ROWS * GROUPS),
                             .dz = &dz,
                             .sums = take_reals(&m, NULL, 3 * mn_chunks(ROWS) * CHANNELS)};
    struct mn_epilogue epilogue = {.kind = MN_BLOCK_LOSS, .block = &block}, stores[3];
    const struct mn_epilogue *sinks[3];
    for (int i = 0; i < 3; i++) {
      stores[i] = (struct mn_epilogue){.kind = MN_STORE, .into = take_reals(&m, NULL, CHANNELS)};
      sinks[i] = &stores[i];
    }
    double *out = take_bytes(&m, 1, sizeof(double)), result;
    double *scratch = take_bytes(&m, mn_reduce_scratch(ROWS * GROUPS), sizeof(double));
    struct mn_reduction sum = {out, scratch, block.loss_parts, NULL, ROWS * GROUPS, 1};
    const struct mn_kernels *k = device->kernels;
    MUST(k->epilogue(device, block.z, ROWS, CHANNELS, &epilogue));
    MUST(k->column_sums(device, block.sums, mn_chunks(ROWS), CHANNELS, sinks, &sum));
    MUST(k->download(device, &result, out, sizeof result));
    double *all[4] = {read_reals(&m, dz.real, MANY), 0};
    for (int i = 0; i < 3; i++) all[i + 1] = read_reals(&m, stores[i].into, CHANNELS);
    for (int i = 0; i < 4; i++) {
      if (threads == 1) {
        first[i] = all[i];
        continue;
      }
      assert_memory_equal(all[i], first[i], (size_t)(i ? CHANNELS : MANY) * sizeof(double));
      free(all[i]);
    }
    if (threads == 1) loss = result;
    assert_true(result == loss);
    free(d);
    free(vectors);
    release_all(&m);
  }
  for (int i = 0; i < 4; i++) free(first[i]);
  mn_device_close(device);
}

/* Σ dz over a group of a row is 0, whatever dy is: so dbias sums to 0 over each group, and moving a group's
 * bias as a whole changes nothing. */
static void bias_gradients_cancel_in_each_group(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  struct mn_model *model = open_model(device, 0, MN_LOSS_MSE);
  struct mn_pass *pass;
  struct memory m = {.device = device};
  MUST(mn_model_train(model, MN_STORE, NULL));
  MUST(mn_pass_open(&pass, model, MN_PASS_TRAIN, 41, 1, 0));
  load(pass, 1);
  MUST(mn_tape_forward(pass->tape));
  MUST(mn_tape_backward(pass->tape));
  for (int block = 0; block < 2; block++) {
    int64_t channels = model->config.hidden[block], width = channels / model->config.groups;
    double *dbias = read_reals(&m, model->layers[block].parameters[MN_BLOCK_BIAS]->gradient, channels);
    for (int64_t first = 0; first < channels; first += width) {
      double sum = 0, size = 0;
      for (int64_t c = first; c < first + width; c++) sum += dbias[c], size += fabs(dbias[c]);
      assert_true(size > 1e-6);
      assert_true(fabs(sum) <= 1e-12 * size);
    }
    free(dbias);
  }
  mn_pass_close(pass);
  mn_model_close(model);
  mn_device_close(device);
}

/* One NaN or infinity in a batch: no parameter and no momentum moves, on any path; and once the flag is down
 * again, training goes on. */
static void nonfinite_batches_change_nothing(void **state) {
  static const double bad[] = {NAN, INFINITY};
  struct mn_device *device = open_or_skip(*state, "fp32");
  for (size_t s = 0; s < COUNT(settings); s++)
    for (int kind = 0; kind < 3; kind++)
      for (size_t b = 0; b < COUNT(bad); b++) {
        struct training t = open_training(device, settings[s], kind, 40);
        size_t size;
        int flag = 0;
        step(&t, 0);
        char *before = bytes_of(&t, &size);
        double *x = random_values(mn_tensor_count(t.pass->x), 5, 1);
        x[37 * 7 + 3] = bad[b];
        MUST(mn_tensor_write(device, t.pass->x, x));
        free(x);
        MUST(mn_tape_forward(t.pass->tape));
        MUST(mn_tape_backward(t.pass->tape));
        MUST(mn_optimizer_step(t.optimizer, t.pass->tape));
        char *after = bytes_of(&t, &size);
        assert_memory_equal(before, after, size);
        free(after);
        MUST(mn_tape_nonfinite(t.pass->tape, &flag));
        assert_int_equal(flag, 1);
        MUST(mn_tape_clear_nonfinite(t.pass->tape));
        if (settings[s].accumulate == 1) {
          assert_true(isfinite(step(&t, 1)));
          after = bytes_of(&t, &size);
          assert_true(memcmp(before, after, size) != 0);
          free(after);
        }
        free(before);
        close_training(&t);
      }
  mn_device_close(device);
}

/* A flag belongs to the pass that raised it: an evaluation of a bad batch leaves training alone, whether
 * updates are fused or applied by the optimizer, and before and after the steps became a graph. */
static void an_evaluation_cannot_stop_training(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp32");
  for (size_t s = 0; s < COUNT(settings); s++) {
    struct training t = open_training(device, settings[s], 0, 5);
    struct mn_pass *evaluation;
    size_t size;
    int raised = 0;
    MUST(mn_pass_open(&evaluation, t.model, MN_PASS_EVALUATE, 5, 1, 0));
    for (uint64_t i = 0; i < 4; i++) {
      step(&t, i);
      char *before = bytes_of(&t, &size);
      double *x = random_values(mn_tensor_count(evaluation->x), 9, 1);
      x[3] = NAN;
      MUST(mn_tensor_write(device, evaluation->x, x));
      free(x);
      MUST(mn_tape_forward(evaluation->tape));
      MUST(mn_tape_nonfinite(evaluation->tape, &raised));
      assert_int_equal(raised, 1);
      MUST(mn_tape_nonfinite(t.pass->tape, &raised));
      assert_int_equal(raised, 0);
      assert_true(isfinite(step(&t, i + 10)));
      char *after = bytes_of(&t, &size);
      assert_true(memcmp(before, after, size) != 0);
      free(before), free(after);
    }
    mn_pass_close(evaluation);
    close_training(&t);
  }
  mn_device_close(device);
}

/* Only digits after "cuda:", and no ordinal that an int would wrap to that of another GPU. */
static void unknown_devices_are_refused(void **state) {
  static const char *const names[] = {"",        "gpu",     "cuda:",   "cuda: 1",
                                      "cuda:+1", "cuda:-1", "cuda:1x", "cuda:4294967296"};
  for (size_t i = 0; i < COUNT(names); i++) {
    struct mn_device *device;
    assert_int_equal(mn_device_open(&device, names[i], "fp32", 0), MN_USAGE);
    assert_null(device);
  }
}

/* Neither a matrix's elements nor its bytes wrap: (2³¹ − 1)·(2³⁰ + 1) doubles are 8 GiB modulo 2⁶⁴. Groups divide the
 * channels of a norm. */
static void sizes_that_cannot_be_are_refused(void **state) {
  struct mn_device *device;
  struct mn_tape *tape;
  struct mn_tensor *tensor, *y;
  const struct mn_layer thirds = {.groups = 3};
  MUST(mn_device_open(&device, "cpu", "fp64", 0));
  MUST(mn_tape_open(&tape, device, 0));
  const int64_t most = INT32_MAX, wide = most + 1;
  assert_int_equal(mn_tensor_parameter(device, &tensor, "w", 2, most, wide / 2 + 1, 0, 0), MN_NO_MEMORY);
  assert_int_equal(mn_tensor_parameter(device, &tensor, "w", 2, wide << 10, wide, 0, 0), MN_USAGE);
  assert_int_equal(mn_tape_tensor(tape, &tensor, "x", wide << 10, wide), MN_USAGE);
  MUST(mn_tape_tensor(tape, &tensor, "x", 5, 8));
  assert_int_equal(mn_block_ops_record(tape, &y, tensor, &thirds, MN_OP_NORM), MN_USAGE);
  MUST(mn_block_ops_record(tape, &y, tensor, &thirds, MN_OP_ACTIVATE));
  mn_tape_close(tape);
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(sinks_do_what_they_say),
      BOTH(frozen_parameters_get_nothing),
      BOTH(sinks_are_handed_over),
      IN_EACH(EVERY, products_read_sums),
      ON("cpu", a_backward_that_fails_says_so),
      BOTH(steps_allocate_nothing),
      BOTH(equal_runs_give_equal_bytes),
      BOTH(a_step_is_forward_and_backward),
      BOTH(replayed_forwards_see_what_is_new),
      ON("cpu", small_products_take_fewer_threads),
      ON("cpu", threads_do_not_change_bytes),
      ON("cpu", kernels_do_not_depend_on_threads),
      BOTH(bias_gradients_cancel_in_each_group),
      BOTH(nonfinite_batches_change_nothing),
      BOTH(an_evaluation_cannot_stop_training),
      cmocka_unit_test(unknown_devices_are_refused),
      cmocka_unit_test(sizes_that_cannot_be_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
