/* Tied weights: a parameter that several nodes of a tape read. */
#include "tests/check.h"

#include "layers/layer.h"

enum { TIED = 6, TIED_ROWS = 5 };

/* y = x·Wᵀ + b, twice, with the same parameters or with equal ones; both of [TIED, TIED]. Σ dy·y is the loss.
 */
struct tied {
  struct mn_tape *tape;
  struct mn_tensor *x, *y, *weights[2], *biases[2];
  int shared;
};

static struct tied open_tied(struct mn_device *device, int shared, enum mn_epilogue_kind how,
                             const struct mn_rule *sgd) {
  struct tied t = {.shared = shared};
  struct mn_tensor *h;
  for (int i = 0; i < 2 - shared; i++) {
    MUST(mn_tensor_parameter(device, &t.weights[i], "weight", 2, TIED, TIED, 0, 0));
    MUST(mn_tensor_parameter(device, &t.biases[i], "bias", 1, 1, TIED, 0, 0));
    randomise(device, t.weights[i], 1);
    randomise(device, t.biases[i], 2);
    MUST(mn_tensor_train(device, t.weights[i], how, sgd));
    MUST(mn_tensor_train(device, t.biases[i], how, sgd));
  }
  if (shared) t.weights[1] = t.weights[0], t.biases[1] = t.biases[0];
  MUST(mn_tape_open(&t.tape, device, 1));
  MUST(mn_tape_tensor(t.tape, &t.x, "x", TIED_ROWS, TIED));
  t.x->keep = 1;
  const struct mn_layer layers[] = {{.parameters = {t.weights[0], t.biases[0]}},
                                    {.parameters = {t.weights[1], t.biases[1]}}};
  MUST(mn_block_ops_record(t.tape, &h, t.x, &layers[0], MN_OP_BIAS));
  MUST(mn_block_ops_record(t.tape, &t.y, h, &layers[1], MN_OP_BIAS));
  MUST(mn_tape_finish(t.tape));
  randomise(device, t.x, 3);
  return t;
}

static void run_tied(struct mn_device *device, struct tied *t, uint64_t seed) {
  double *dy = random_values(TIED_ROWS * TIED, seed, 1);
  MUST(mn_tape_forward(t->tape));
  MUST(mn_device_write(device, t->y->gradient, dy, TIED_ROWS * TIED));
  MUST(mn_tape_backward(t->tape));
  free(dy);
}

static void close_tied(struct mn_device *device, struct tied *t) {
  mn_tape_close(t->tape);
  for (int i = 0; i < 2 - t->shared; i++) {
    mn_tensor_free(device, t->weights[i]);
    mn_tensor_free(device, t->biases[i]);
  }
}

/* Moves the tied parameter by the sum of the gradients that two equal, untied ones have, and gives both the
 * new value: SGD with momentum, step by step. */
static void follow(struct memory *m, struct mn_tensor *const pair[2], double *value, double *velocity,
                   double momentum, double rate) {
  int64_t count = mn_tensor_count(pair[0]);
  double *first = read_reals(m, pair[0]->gradient, count), *second = read_reals(m, pair[1]->gradient, count);
  for (int64_t i = 0; i < count; i++) {
    velocity[i] = momentum * velocity[i] + first[i] + second[i];
    value[i] -= rate * velocity[i];
  }
  for (int k = 0; k < 2; k++) MUST(mn_tensor_write(m->device, pair[k], value));
  free(first), free(second);
}

/* A parameter that two nodes read is updated once, by the sum of its gradients, with momentum and without. */
static void tied_weights_train(void **state) {
  struct mn_device *device = open_or_skip(*state, "fp64");
  double rate = 0.125;
  static const double momenta[] = {0, 0.5};
  for (size_t k = 0; k < COUNT(momenta); k++) {
    struct memory m = {.device = device};
    double *device_rate = take_bytes(&m, 1, sizeof rate), momentum = momenta[k];
    MUST(device->kernels->copy(device, device_rate, &rate, sizeof rate));
    struct mn_rule sgd = {.rate = device_rate, .momentum = momentum};
    struct tied tied = open_tied(device, 1, MN_UPDATE, &sgd);
    struct tied free_pair = open_tied(device, 0, MN_STORE, NULL);
    double *weight = random_values(TIED * TIED, 1, 1), *bias = random_values(TIED, 2, 1);
    double *weight_velocity = zeros(TIED * TIED), *bias_velocity = zeros(TIED);
    for (uint64_t i = 0; i < 3; i++) {
      run_tied(device, &tied, 30 + i);
      run_tied(device, &free_pair, 30 + i);
      follow(&m, free_pair.weights, weight, weight_velocity, momentum, rate);
      follow(&m, free_pair.biases, bias, bias_velocity, momentum, rate);
      assert_reals(&m, "tied weight", tied.weights[0]->value.real, weight, TIED * TIED, 1e-13);
      assert_reals(&m, "tied bias", tied.biases[0]->value.real, bias, TIED, 1e-13);
    }
    free(weight), free(bias), free(weight_velocity), free(bias_velocity);
    close_tied(device, &tied);
    close_tied(device, &free_pair);
    release_all(&m);
  }
  mn_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {ON("cpu", tied_weights_train), ON("cuda", tied_weights_train)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
