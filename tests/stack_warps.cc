/* The kernel of narrow stacks on a CPU (warps.h), against float64: every shape of its tiles, with drawn
 * sizes, losses and heads; outputs, the loss, and the gradients of all parameters. */
#include <random>

#include "kernels/stack/step.cuh"

typedef std::vector<double> numbers;

struct problem {
  int rows, inputs, width, depth, groups, outputs; /* outputs: the head's, or 0 */
  bool labels, weights;
  int ctas;
  bool reloads;
  enum mn_plane_kind kind;
  double slope;
};
static const double eps = 1e-5;

/* Powers of two by which planes of float16s are scaled here. */
static float factor(const problem &p, char of) {
  return p.kind == MN_PLANES_BF16 ? 1 : of == 'w' ? 0x1p12f : of == 'd' ? 0x1p14f : 0x1p10f;
}

struct layer {
  std::vector<uint16_t> plane;
  numbers weight; /* the plane's values */
  std::vector<float> vectors;
  numbers dweight, sums;
  double largest; /* |dz|, before it is rounded */
};

static int layers_of(const problem &p) {
  return p.depth + (p.outputs > 0);
}
static int last_of(const problem &p) {
  return p.outputs ? p.outputs : p.width;
}
static int inputs_of(const problem &p, int l) {
  return l ? p.width : p.inputs;
}
static double rounded(const problem &p, double value, char of) {
  return gpu::value(p.kind, gpu::bits(p.kind, (float)value * factor(p, of))) / factor(p, of);
}

struct data {
  std::vector<layer> layers;
  std::vector<uint16_t> plane;
  numbers x, y;
  std::vector<float> target;
  std::vector<int32_t> labels;
  std::vector<float> weights;
  double loss, correct;
};

static data draw(const problem &p, std::mt19937 &random) {
  std::normal_distribution<float> normal(0, 1);
  data d = {};
  d.layers.resize(layers_of(p)), d.target.resize(p.rows * last_of(p)), d.labels.resize(p.rows);
  for (int i = 0; i < p.rows * p.inputs; i++) {
    d.plane.push_back(gpu::bits(p.kind, normal(random) * factor(p, 'x')));
    d.x.push_back(gpu::value(p.kind, d.plane.back()) / factor(p, 'x'));
  }
  for (int l = 0; l < layers_of(p); l++) {
    layer &of = d.layers[l];
    const int inputs = inputs_of(p, l), outputs = l < p.depth ? p.width : p.outputs;
    for (int i = 0; i < inputs * outputs; i++) {
      of.plane.push_back(gpu::bits(p.kind, normal(random) / sqrtf((float)inputs) * factor(p, 'w')));
      of.weight.push_back(gpu::value(p.kind, of.plane.back()) / factor(p, 'w'));
    }
    for (int c = 0; c < 3 * p.width; c++) of.vectors.push_back(0.3f * normal(random) + (c / p.width == 1));
    of.dweight.resize(of.weight.size()), of.sums.resize(of.vectors.size());
  }
  for (float &t : d.target) t = normal(random);
  for (int32_t &label : d.labels) label = (int32_t)(random() % (unsigned)last_of(p));
  for (int row = 0; row < p.rows; row++) d.weights.push_back(p.weights ? fabsf(normal(random)) : 1);
  return d;
}

/* ---- float64, rounded where the kernel rounds ---- */

static numbers product(const layer &of, const numbers &x, int outputs) {
  numbers z(outputs);
  for (int o = 0; o < outputs; o++) {
    z[o] = of.vectors[o];
    for (size_t i = 0; i < x.size(); i++) z[o] += of.weight[o * x.size() + i] * x[i];
  }
  return z;
}

/* dz·W; adds dzᵀ·x to dW. */
static numbers backward_product(layer &of, const numbers &x, const numbers &dz) {
  numbers dx(x.size());
  for (size_t o = 0; o < dz.size(); o++)
    for (size_t i = 0; i < x.size(); i++) {
      of.dweight[o * x.size() + i] += dz[o] * x[i];
      dx[i] += dz[o] * of.weight[o * x.size() + i];
    }
  return dx;
}

/* z becomes normalised. */
static numbers normalise(const problem &p, numbers &z) {
  const int size = p.width / p.groups;
  numbers rstd(p.groups);
  for (int g = 0; g < p.groups; g++) {
    double mean = 0, variance = 0, *of = &z[g * size];
    for (int c = 0; c < size; c++) mean += of[c] / size;
    for (int c = 0; c < size; c++) of[c] -= mean, variance += of[c] * of[c] / size;
    rstd[g] = 1 / sqrt(variance + eps);
    for (int c = 0; c < size; c++) of[c] *= rstd[g];
  }
  return rstd;
}

static numbers block_backward(const problem &p, layer &of, const numbers &z, const numbers &rstd,
                              const numbers &dy) {
  const int size = p.width / p.groups, W = p.width;
  numbers dz(W);
  for (int g = 0; g < p.groups; g++) {
    double m1 = 0, m2 = 0;
    for (int c = g * size; c < g * size + size; c++) {
      const double v = z[c] * of.vectors[W + c] + of.vectors[2 * W + c],
                   d = 2 * dy[c] * (v > 0 ? 1 : p.slope);
      of.sums[2 * W + c] += d, of.sums[W + c] += d * z[c];
      dz[c] = d * of.vectors[W + c], m1 += dz[c] / size, m2 += dz[c] * z[c] / size;
    }
    for (int c = g * size; c < g * size + size; c++) {
      dz[c] = rstd[g] * (dz[c] - m1 - z[c] * m2);
      of.sums[c] += dz[c], of.largest = fmax(of.largest, fabs(dz[c])), dz[c] = rounded(p, dz[c], 'd');
    }
  }
  return dz;
}

static numbers loss_of(const problem &p, data &d, int row, const numbers &y) {
  const int K = last_of(p), label = d.labels[row];
  const int first = (int)(std::max_element(y.begin(), y.end()) - y.begin());
  numbers dy(K);
  const double weight = d.weights[row];
  double all = 0;
  for (double v : y) all += exp(v - y[first]);
  if (p.labels) d.loss += weight * (y[first] + log(all) - y[label]), d.correct += first == label ? weight : 0;
  for (int k = 0; k < K; k++) {
    const double error = y[k] - d.target[row * K + k];
    dy[k] = p.labels ? weight * (exp(y[k] - y[first]) / all - (k == label)) / p.rows
                     : weight * 2 * error / (p.rows * K);
    if (!p.labels) d.loss += weight * error * error;
  }
  return dy;
}

static void reference(const problem &p, data &d) {
  for (int row = 0; row < p.rows; row++) {
    std::vector<numbers> x(1, numbers(&d.x[row * p.inputs], &d.x[row * p.inputs] + p.inputs)), z, rstd;
    for (int l = 0; l < p.depth; l++) {
      const layer &of = d.layers[l];
      z.push_back(product(of, x[l], p.width));
      rstd.push_back(normalise(p, z[l]));
      x.push_back(z[l]);
      for (int c = 0; c < p.width; c++) {
        const double v = z[l][c] * of.vectors[p.width + c] + of.vectors[2 * p.width + c],
                     y = 2 * (v > 0 ? v : p.slope * v);
        x[l + 1][c] = l + 1 < layers_of(p) ? rounded(p, y, 'x') : y;
      }
    }
    const numbers y = p.outputs ? product(d.layers[p.depth], x[p.depth], p.outputs) : x[p.depth];
    d.y.insert(d.y.end(), y.begin(), y.end());
    numbers dy = loss_of(p, d, row, y);
    if (p.outputs) {
      for (int k = 0; k < p.outputs; k++) {
        layer &head = d.layers[p.depth];
        head.sums[k] += dy[k], head.largest = fmax(head.largest, fabs(dy[k])), dy[k] = rounded(p, dy[k], 'd');
      }
      dy = backward_product(d.layers[p.depth], x[p.depth], dy);
    }
    for (int l = p.depth - 1; l >= 0; l--)
      dy = backward_product(d.layers[l], x[l], block_backward(p, d.layers[l], z[l], rstd[l], dy));
  }
}

/* ---- the kernel ---- */

struct outcome {
  std::vector<float> y;
  numbers sums, largest; /* the parts' */
  int flag;
};

template <class S> static outcome run(const problem &p, data &d) {
  const mn_stack_part part(p.width, p.depth, p.outputs > 0);
  const int stride = (part.end + 31) / 32 * 32;
  mn_scale x = {factor(p, 'x'), 0}, w = {factor(p, 'w'), 0}, dz = {factor(p, 'd'), 0};
  std::vector<float> parts(p.ctas * stride, NAN);
  outcome out = {std::vector<float>(p.rows * last_of(p), NAN), numbers(part.end), numbers(layers_of(p)), 0};
  mn_stack_args a = {};
  for (int l = 0; l < layers_of(p); l++) {
    const float *of = d.layers[l].vectors.data();
    a.layers[l] = {d.layers[l].plane.data(), of, of + p.width, of + 2 * p.width, &w, &dz};
  }
  a.x = d.plane.data(), a.x_scale = &x, a.y = out.y.data(), a.parts = parts.data(), a.nonfinite = &out.flag,
  a.mark = 1;
  a.target = p.labels ? NULL : d.target.data(), a.labels = p.labels ? d.labels.data() : NULL;
  a.weights = p.weights ? d.weights.data() : NULL;
  a.rows = p.rows, a.inputs = p.inputs, a.depth = p.depth, a.group = p.width / p.groups,
  a.outputs = p.outputs;
  a.stride = stride, a.reloads = p.reloads, a.measures = true; /* dz's factor stands */
  a.eps = (float)eps, a.slope = (float)p.slope, a.bend = mn_stack_bend(a.slope),
  a.scale = p.labels ? 1.0f / p.rows : 2.0f / (p.rows * last_of(p));
  struct {
    mn_stack_factors factors[MN_STACK_DEPTH + 1];
    unsigned peaks[MN_STACK_DEPTH + 1];
  } shared[8];
  gpu::run((unsigned)p.ctas, S::Threads, mn_stack_room<S>(p.depth, p.outputs > 0, p.reloads).end, [&] {
    auto &mine = shared[blockIdx.x];
    mn_stack_step<S>(a, gpu::now->of->shared(), mine.factors, mine.peaks).run();
  });
  for (int c = 0; c < p.ctas; c++) {
    const float *of = &parts[c * stride];
    for (int i = 0; i < part.scalars + 2; i++) out.sums[i] += of[i];
    for (int l = 0; l < layers_of(p); l++) out.largest[l] = fmax(out.largest[l], of[part.scalars + 2 + l]);
  }
  return out;
}

/* The matrix whose fragments lie from `at` on, rows and columns in the order of channels. */
static numbers matrix(const problem &p, const numbers &sums, int at, int l, int T) {
  const int W = p.width, rows = l < p.depth ? W : p.outputs, cols = inputs_of(p, l);
  numbers out(rows * cols);
  for (int i = 0; i < (l < p.depth ? W : MN_STACK_HEAD) * W; i++) {
    const int fragment = i / 128, lane = i / 4 % 32, k = i % 4;
    int row = fragment / (W / 8) * 16 + lane / 4 + k / 2 * 8,
        col = fragment % (W / 8) * 8 + lane % 4 * 2 + k % 2;
    if (l < p.depth) row = mn_stack_channel(T, row);
    if (l > 0) col = mn_stack_channel(T, col);
    if (row < rows && col < cols) out[row * cols + col] = sums[at + i];
  }
  return out;
}

static int failures;

static void compare(const problem &p, const char *what, int l, const double *actual, const double *expected,
                    size_t count) {
  const double bound = 2e-3;
  double difference = 0, size = 0;
  for (size_t i = 0; i < count; i++) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  const double error = sqrt(difference / size);
  if (error <= bound) return;
  failures++;
  printf("%d rows of %d, %d blocks of %d, %d groups, slope %g, head of %d, %s, %s, %d CTAs%s: %s %d: an "
         "error of %g is "
         "past %g\n",
         p.rows, p.inputs, p.depth, p.width, p.groups, p.slope, p.outputs, p.labels ? "labels" : "targets",
         p.kind == MN_PLANES_BF16 ? "bf16" : "fp16", p.ctas, p.reloads ? ", reloading x" : "", what, l, error,
         bound);
}

template <class S> static void check(problem p, std::mt19937 &random) {
  p.width = S::W, p.kind = S::Kind;
  data d = draw(p, random);
  reference(p, d);
  const outcome out = run<S>(p, d);
  const numbers y(out.y.begin(), out.y.end());
  if (out.flag) failures++, printf("the flag is raised\n");
  if (!S::Trains) return compare(p, "y", 0, y.data(), d.y.data(), y.size());
  const mn_stack_part part(p.width, p.depth, p.outputs > 0);
  for (int l = 0; l < layers_of(p); l++) {
    const layer &of = d.layers[l];
    const bool head = l == p.depth;
    const numbers dw = matrix(p, out.sums, head ? part.head : l * p.width * p.width, l, S::T);
    compare(p, "dW of", l, dw.data(), of.dweight.data(), dw.size());
    const double *sums = &out.sums[head ? part.head_bias : part.vectors + 3 * l * p.width];
    compare(p, "vectors of", l, sums, of.sums.data(), (size_t)(head ? p.outputs : 3 * p.width));
    if (p.kind != MN_PLANES_BF16) compare(p, "the largest dz of", l, &out.largest[l], &of.largest, 1);
  }
  compare(p, "the loss", 0, &out.sums[part.scalars], &d.loss, 1);
  if (p.labels && !(fabs(out.sums[part.scalars + 1] - d.correct) <= (p.weights ? 1e-5 * d.correct : 0)))
    failures++, printf("other rows are correct\n");
}

/* Sizes that fit the shape; of the tiles the last is not full, and some CTAs have two. */
template <class S> static void draw_and_check(std::mt19937 &random) {
  const auto pick = [&](int least, int most) {
    return least + (int)(random() % (unsigned)(most - least + 1));
  };
  problem p = {};
  const int tiles = pick(1, S::Rows > 64 && S::Trains ? 2 : 4);
  p.rows = S::Rows * tiles - pick(1, S::Rows - 1), p.inputs = 8 * pick(1, S::W / 8), p.depth = pick(1, 4);
  do /* smaller groups make roundings large */
    p.groups = S::W / (S::T << pick(0, 3));
  while (S::W / p.groups < 8);
  const double slopes[] = {0.01, 0, -0.5, -0.9999, 1};
  p.slope = slopes[pick(0, 4)], p.outputs = pick(0, 1) ? pick(1, MN_STACK_HEAD) : 0;
  p.labels = p.outputs > 1 && pick(0, 1), p.weights = pick(0, 1), p.ctas = pick(1, tiles),
  p.reloads = S::Trains && p.depth > 2 && pick(0, 1);
  check<S>(p, random);
}

template <enum mn_plane_kind Kind, bool Trains> static void check_shapes(std::mt19937 &random) {
  draw_and_check<mn_stack_shape<Kind, 64, 2, 1, 4, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 64, 2, 2, 2, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 64, 4, 2, 2, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 64, 4, 4, 1, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 64, 4, 8, 1, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 128, 2, 1, 4, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 128, 2, 2, 4, Trains>>(random);
  draw_and_check<mn_stack_shape<Kind, 128, 4, 2, 4, Trains>>(random);
}

int main(int count, char **arguments) {
  const unsigned seed = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
  std::mt19937 random(seed);
  check_shapes<MN_PLANES_BF16, true>(random), check_shapes<MN_PLANES_FP16, true>(random);
  check_shapes<MN_PLANES_BF16, false>(random), check_shapes<MN_PLANES_FP16, false>(random);
  printf("32 stacks of seed %u: %d failures\n", seed, failures);
  return failures > 0;
}
