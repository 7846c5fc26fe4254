/* A narrow stack's forward, or its forward, loss and backward, in one kernel.
 *
 * A CTA keeps all layers' weights in shared memory and takes tiles of rows through the whole stack. It adds
 * up the gradients of all parameters over its tiles; kernels/stack/stack.cu adds the CTAs' parts. z is
 * computed again in the backward, so that shared memory holds the layers' inputs and dz alone.
 *
 * Planes with scales (kernels/planes.h) hold factor·value. All factors are powers of two, and a group's
 * normalised values do not depend on z's factor: eps is multiplied by its square, and the others are undone
 * where sums are stored. */
#ifndef MN_KERNELS_STACK_STEP_CUH
#define MN_KERNELS_STACK_STEP_CUH

#include "kernels/planes.cuh"
#include "kernels/stack/tile.cuh"

/* The kernel's argument; the pointers are struct mn_stack's. */
struct mn_stack_args {
  struct layer {
    const uint16_t *weight;
    const float *bias, *gamma, *beta;
    const mn_scale *w, *dz;     /* the factors of the planes; NULL if they have none */
  } layers[MN_STACK_DEPTH + 1]; /* behind the blocks the head, with bias alone */
  const uint16_t *x;
  const mn_scale *x_scale;
  const float *target;
  const int32_t *labels;
  const float *weights; /* may be NULL */
  float *y;             /* the forward alone: reals, planes or both */
  mn_planes y_planes;
  float *parts; /* [CTAs, stride] */
  int *nonfinite, mark;
  int rows, inputs, depth, group, outputs, stride; /* outputs: the head's; 0 without */
  bool reloads;                                    /* x makes room for dz, and is loaded again */
  bool measures;          /* dz's factors are those that stand there, and what overflows is no fault */
  float eps, slope, bend; /* mn_stack_bend(slope) */
  float scale;            /* dy = scale·(y − target), or scale·(softmax(y) − onehot(label)) */
};

/* A CTA's part, in floats: dW in fragments, and the sums of dbias, dgamma and dbeta, of each block; the
 * head's dW [16, W] in fragments and dbias [16]; loss, rows classified correctly, the largest |dz| of each
 * layer. */
struct mn_stack_part {
  int vectors, head, head_bias, scalars, end;
  MN_EVERYWHERE mn_stack_part(int width, int depth, bool has_head)
      : vectors(depth * width * width), head(vectors + depth * 3 * width),
        head_bias(head + (has_head ? MN_STACK_HEAD * width : 0)),
        scalars(head_bias + (has_head ? MN_STACK_HEAD : 0)), end(scalars + 4 + MN_STACK_DEPTH) {}
};

/* By which a layer's values are multiplied, and, for sums of dz·x, of dz and of dy, the inverses. */
struct mn_stack_factors {
  float z, y, dz; /* W's times x's; those of what is stored */
  float unit;     /* from a dy, which has a factor too, to such a dz */
  float undo_weight, undo_dz, undo_dy;
};

/* Shared memory, in bytes: the weights; bias, gamma and beta; the layers' inputs and dz; the head's dlogits
 * [rows, 16]; sums. */
template <class S> struct mn_stack_room {
  int head, vectors, slots, dlogits, sums, warps, end;
  MN_EVERYWHERE mn_stack_room(int depth, bool has_head, bool reloads) {
    const int of_vectors = (depth * 3 * S::W + MN_STACK_HEAD) * (int)sizeof(float);
    head = depth * S::Image, vectors = head + (has_head ? MN_STACK_HEAD * S::Pitch : 0);
    slots = vectors + (of_vectors + S::Pitch - 1) / S::Pitch * S::Pitch; /* at a multiple, for of_lane */
    dlogits = slots + (S::Trains ? depth + !reloads : S::Across == 1 ? 2 : 4) * S::Slot;
    sums = dlogits + (has_head ? S::Rows * 32 : 0);
    warps = sums + (S::Trains ? of_vectors : 0),
    end = warps + (S::Trains ? S::Down * 3 * S::W * (int)sizeof(float) : 0);
  }
};

template <class S> struct mn_stack_step {
  typedef mn_stack_warp<S> warp;
  static constexpr int W = S::W, T = S::T, Eights = S::Eights, Own = warp::Own, Pitch = S::Pitch;
  static constexpr bool Scaled = S::Kind != MN_PLANES_BF16;
  static constexpr int First = S::Across > 1 ? 2 : 0; /* the first of a forward's two slots for x */
  const mn_stack_args &p;
  const warp t;
  const mn_stack_room<S> room;
  char *const shared;
  const uint32_t base;
  mn_stack_factors *const factors; /* [depth + 1] */
  unsigned *const peaks;           /* [depth + 1] the bits of the largest |unit·dz| */
  typename warp::tile z, d;
  float loss = 0, correct = 0; /* of a forward alone: NaN once an output is not finite */
  int tile_row, left;          /* the tile's first row, and how many rows there are from it on */
  int turn = 0;                /* which of this CTA's tiles it is */

  MN_GPU mn_stack_step(const mn_stack_args &args, char *memory, mn_stack_factors *f, unsigned *peak)
      : p(args), t(args.group), room(args.depth, args.outputs > 0, args.reloads), shared(memory),
        base(mn_shared_of(memory)), factors(f), peaks(peak) {}

  MN_GPU uint32_t image(int l) const { return base + l * S::Image; }
  MN_GPU uint32_t slot(int s) const { return base + room.slots + s * S::Slot; }
  /* Where a layer's input lies, in the forward; and, in place of its output, dz of the layer before. The
   * forward alone puts y in place of x where no other warp reads the rows. */
  MN_GPU uint32_t input(int l) const {
    if (S::Trains) return slot(p.reloads ? l ? l - 1 : p.depth - 1 : l);
    return slot(l > 0 && S::Across > 1 ? l % 2 : First + turn % 2);
  }
  MN_GPU uint32_t input_again(int l) const { return l == 0 && p.reloads ? slot(2) : input(l); }
  MN_GPU float *sums() const { return reinterpret_cast<float *>(shared + room.sums); }

  MN_GPU mn_stack_factors factors_of(int l) const {
    return Scaled ? factors[l] : mn_stack_factors{1, 1, 1, 1, 1, 1, 1};
  }

  /* A vector's elements of this lane's channels, times the factor: which 0 bias, 1 gamma, 2 beta. */
  MN_GPU float *vector(int l, int which) const {
    return reinterpret_cast<float *>(shared + room.vectors) + (3 * l + which) * W;
  }
  MN_GPU void load(float (&out)[T], int l, int which, float factor) const {
    mn_load<T>(out, vector(l, which) + t.channel0);
    MN_UNROLL(int j = 0; j < T; j++) out[j] *= factor;
  }

  MN_GPU void load_x(int row, uint32_t to) const {
    for (int c = (int)threadIdx.x; c < S::Rows * (W / 8); c += S::Threads) {
      const int r = c / (W / 8), k = c % (W / 8);
      /* Behind the last row it comes again, and gets no gradient. */
      const int64_t from = min(row + r, p.rows - 1);
      const bool there = 8 * k < p.inputs;
      mn_copy_start(warp::at(to, r, k), there ? p.x + from * p.inputs + 8 * k : p.x, there);
    }
  }

  /* Rows of a weight [rows, cols] to All rows of shared memory, in the order of their positions if these are
   * a block's channels; zeros where there are none. */
  template <int All> MN_GPU void load_weight(uint32_t to, const uint16_t *from, int rows, int cols) const {
    constexpr int Step = S::Threads / (W / 8);
    static_assert(Step % 8 == 0, "for warp::at");
    const int k = (int)threadIdx.x % (W / 8), own = (int)threadIdx.x / (W / 8);
    MN_UNROLL(int first = 0; first < All; first += Step) {
      const int m = first + own, row = All == W ? mn_stack_channel(T, m) : m;
      const bool there = (All == W || row < rows) && 8 * k < cols;
      if (All % Step == 0 || m < All)
        mn_copy_start(warp::at(to, own, k) + first * Pitch, there ? from + row * cols + 8 * k : from, there);
    }
  }

  /* Brings a weight's columns to their positions too. Of 64 neighbours, 8/T slices, channel i·T + j
   * of slice s is element (i, s·T + j) of a matrix whose transposed is what is wanted. */
  template <int All> MN_GPU void permute_columns(uint32_t matrix) const {
    constexpr int Halves = W / 64, Count = All / 8 * Halves;
    const int word = (2 * t.q / T * 8 * T + t.i * T + 2 * t.q % T) / 2;
    for (int row = t.warp; row < 8; row += S::Warps) {
      const uint32_t from = warp::at(matrix, row, word / 4) + word % 4 * 4,
                     to = warp::at(matrix, row, t.i) + t.q * 4;
      uint32_t words[Count];
      MN_UNROLL(int n = 0; n < Count; n++)
        words[n] = mn_shared_load(from + n / Halves * 8 * Pitch + n % Halves * 128);
      MN_UNROLL(int n = 0; n < Count; n++) words[n] = mn_matrix_transpose(words[n]);
      __syncwarp(); /* all are read before one is overwritten */
      MN_UNROLL(int n = 0; n < Count; n++)
        mn_shared_store(to + n / Halves * 8 * Pitch + n % Halves * 128, words[n]);
    }
  }

  MN_GPU void load_vectors() const {
    for (int c = (int)threadIdx.x; c < p.depth * 3 * (W / 4); c += S::Threads) {
      const mn_stack_args::layer &layer = p.layers[c / (3 * (W / 4))];
      const int which = c / (W / 4) % 3;
      const float *from = which == 0 ? layer.bias : which == 1 ? layer.gamma : layer.beta;
      mn_copy_start(mn_shared_of(vector(0, 0) + 4 * c), from + 4 * (c % (W / 4)), true);
    }
    if ((int)threadIdx.x < p.outputs) vector(p.depth, 0)[threadIdx.x] = p.layers[p.depth].bias[threadIdx.x];
  }

  /* The factor of y by its bound, as mn_rescale's. */
  MN_GPU void bound_outputs() const {
    for (int l = t.warp; l < p.depth; l += S::Warps) {
      float gamma = 0, beta = 0;
      for (int c = t.lane; c < W; c += 32)
        gamma = mn_scale_larger(gamma, vector(l, 1)[c]), beta = mn_scale_larger(beta, vector(l, 2)[c]);
      gamma = mn_lanes_largest(gamma), beta = mn_lanes_largest(beta);
      const float bound = 2 * fmaxf(1, fabsf(p.slope)) * (sqrtf((float)(p.group - 1)) * gamma + beta);
      if (t.lane == 0) factors[l].y = mn_scale_factor(bound, MN_HEADROOM_X, 1);
    }
  }

  struct scales {
    float w = 1, x = 1;
    mn_scale dz = {1, 0};
  };

  /* Lane l of the first warp has layer l's. */
  MN_GPU scales load_scales() const {
    scales s;
    if (!Scaled || t.warp > 0 || t.lane >= p.depth + (p.outputs > 0)) return s;
    s.w = p.layers[t.lane].w->factor, s.x = p.x_scale->factor;
    if (S::Trains) s.dz = *p.layers[t.lane].dz;
    return s;
  }

  MN_GPU void choose_factors(const scales &s) const {
    const int all = p.depth + (p.outputs > 0), l = t.lane;
    bound_outputs();
    __syncthreads();
    if (t.warp > 0) return;
    const float found = p.measures ? s.dz.factor : mn_scale_next(&s.dz), dz = found > 0 ? found : 1;
    const float below = __shfl_down_sync(MN_CUDA_WARP, dz * s.w, 1), dy = l + 1 < all ? below : 1;
    const float x = l == 0 ? s.x : l <= p.depth ? factors[l - 1].y : 1, z = x * s.w;
    const float y = l + 1 < all ? factors[l].y : 1;
    __syncwarp();                                 /* all are read before one is overwritten */
    if (l == all && !p.outputs) factors[l].y = x; /* y's planes have it */
    if (l >= all) return;
    factors[l] = {z, y, dz, dz * z / dy, 1 / (dz * x), 1 / dz, 1 / dy};
  }

  MN_GPU void prepare() const {
    const scales own = load_scales(); /* which come while the weights do */
    for (int l = 0; l < p.depth; l++) load_weight<W>(image(l), p.layers[l].weight, W, l ? W : p.inputs);
    if (p.outputs) load_weight<MN_STACK_HEAD>(image(p.depth), p.layers[p.depth].weight, p.outputs, W);
    load_vectors();
    if constexpr (S::Trains)
      for (int k = (int)threadIdx.x; k < p.depth * 3 * W + MN_STACK_HEAD; k += S::Threads) sums()[k] = 0;
    if (threadIdx.x <= MN_STACK_DEPTH) peaks[threadIdx.x] = 0;
    mn_copies_wait();
    __syncthreads();
    for (int l = 1; l < p.depth; l++) permute_columns<W>(image(l)); /* x keeps its columns */
    if (p.outputs) permute_columns<MN_STACK_HEAD>(image(p.depth));
    if constexpr (Scaled) choose_factors(own);
  }

  /* z of layer l, times its product's factor. */
  MN_GPU void multiply(int l, uint32_t rows) {
    float bias[T];
    load(bias, l, 0, factors_of(l).z);
    t.template multiply<false>(z, bias, image(l), rows);
  }

  MN_GPU float eps_of(int l) const { return p.eps * factors_of(l).z * factors_of(l).z; }

  /* The lane's row r, of the tile. */
  MN_GPU int row_of(int r) const { return t.row0 + 8 * (r / 2) + 2 * t.q + r % 2; }

  /* Rows behind the last are copies of it with weight 0. */
  MN_GPU float weight_of(int row) const {
    return row >= left ? 0 : p.weights ? p.weights[tile_row + row] : 1;
  }

  /* The targets of the warp's rows come to d while the last product is computed. */
  MN_GPU void load_targets() {
    MN_UNROLL(int r = 0; r < Own; r++) {
      float target[T] = {};
      if (row_of(r) < left) mn_load<T>(target, p.target + (int64_t)(tile_row + row_of(r)) * W + t.channel0);
      MN_UNROLL(int j = 0; j < T; j++) warp::of(d, r, j) = target[j];
    }
  }

  /* The loss of the last block, of which z is normalised, and dy in place of the targets in d. */
  MN_GPU void squared_errors(const float (&gamma)[T], const float (&beta)[T]) {
    MN_UNROLL(int r = 0; r < Own; r++) {
      const float weight = weight_of(row_of(r));
      float squares = 0;
      MN_UNROLL(int j = 0; j < T; j++) {
        float &dy = warp::of(d, r, j);
        const float error = warp::activate(warp::of(z, r, j), gamma[j], beta[j], p.bend) - dy;
        squares = fmaf(error, error, squares), dy = weight * p.scale * error;
      }
      loss = fmaf(weight, squares, loss);
    }
  }

  MN_GPU void store_outputs() {
    MN_UNROLL(int r = 0; r < Own; r++) {
      float y[T];
      MN_UNROLL(int j = 0; j < T; j++) y[j] = warp::of(z, r, j);
      if (row_of(r) >= left) continue;
      mn_forms_store<T>(p.y, p.y_planes, factors_of(p.depth).y,
                        (int64_t)(tile_row + row_of(r)) * W + t.channel0, y);
      MN_UNROLL(int j = 0; j < T; j++) loss = fmaf(0.0f, y[j], loss);
    }
  }

  /* gamma and beta of layer l, times 1 + slope (mn_stack_warp::activate) and the factor. */
  MN_GPU void load_affine(float (&gamma)[T], float (&beta)[T], int l, float factor) const {
    load(gamma, l, 1, (1 + p.slope) * factor), load(beta, l, 2, (1 + p.slope) * factor);
  }

  /* All blocks but one whose output is held against targets at once. */
  MN_GPU void forward() {
    for (int l = 0; l < p.depth - (S::Trains && !p.outputs); l++) {
      const bool last = l + 1 == p.depth && !p.outputs;
      float gamma[T], beta[T], rstd[Own];
      multiply(l, input(l));
      load_affine(gamma, beta, l, factors_of(l).y);
      t.normalise(z, rstd, eps_of(l));
      MN_UNROLL(int r = 0; r < Own; r++)
        MN_UNROLL(int j = 0; j < T; j++)
          warp::of(z, r, j) = warp::activate(warp::of(z, r, j), gamma[j], beta[j], p.bend);
      if (!S::Trains && last)
        store_outputs();
      else
        t.store(z, input(l + 1));
      if (S::Trains || !last) t.sync_rows();
    }
  }

  /* The head's outputs: lane (i, q) has outputs i and i + 8 of rows 2q and 2q + 1 of each 8. */
  MN_GPU void head_forward(float (&y)[Eights][4], uint32_t rows) const {
    const float rest = 1 / factors_of(p.depth).z;
    MN_UNROLL(int n = 0; n < Eights; n++)
      MN_UNROLL(int k = 0; k < 4; k++) y[n][k] = 0;
    MN_UNROLL(int k = 0; k < W / 16; k++) {
      uint32_t a[4], b[4];
      mn_matrices_load(a, warp::at(image(p.depth), t.row8 + 8 * t.left8, 2 * k + t.upper8));
      MN_UNROLL(int n = 0; n < Eights; n += 2) {
        mn_matrices_load(b, warp::at(rows, t.row0 + 8 * n + 8 * t.upper8 + t.row8, 2 * k + t.left8));
        mn_matrices_multiply<S::Kind>(y[n], a, b[0], b[1], y[n]),
            mn_matrices_multiply<S::Kind>(y[n + 1], a, b[2], b[3], y[n + 1]);
      }
    }
    MN_UNROLL(int k = 0; k < 2; k++) {
      const int output = t.i + 8 * k;
      const float b = output < p.outputs ? vector(p.depth, 0)[output] : 0;
      MN_UNROLL(int n = 0; n < Eights; n++)
        MN_UNROLL(int e = 0; e < 2; e++) y[n][2 * k + e] = fmaf(y[n][2 * k + e], rest, b);
    }
  }

  MN_GPU void head_store(const float (&y)[Eights][4]) {
    if (t.across > 0) return;
    MN_UNROLL(int n = 0; n < Eights; n++)
      MN_UNROLL(int k = 0; k < 4; k++) {
        const int row = t.row0 + 8 * n + 2 * t.q + k % 2, output = t.i + 8 * (k / 2);
        if (row >= left || output >= p.outputs) continue;
        mn_forms_store<1>(p.y, p.y_planes, 1, (int64_t)(tile_row + row) * p.outputs + output, {y[n][k]});
        loss = fmaf(0.0f, y[n][k], loss);
      }
  }

  /* The eight lanes i hold a row's outputs, a = i and b = i + 8. Adds the row's loss, and puts its
   * gradient in their place. */
  MN_GPU void cross_entropy(float &a, float &b, int label, float weight) {
    const bool lo = t.i < p.outputs, hi = t.i + 8 < p.outputs;
    float most = lo ? a : -INFINITY;
    if (hi) most = fmaxf(most, b);
    MN_UNROLL(int o = 4; o < 32; o *= 2) most = fmaxf(most, __shfl_xor_sync(MN_CUDA_WARP, most, o));
    int first = lo && a == most ? t.i : hi && b == most ? t.i + 8 : MN_STACK_HEAD;
    MN_UNROLL(int o = 4; o < 32; o *= 2) first = min(first, __shfl_xor_sync(MN_CUDA_WARP, first, o));
    const float ea = lo ? __expf(a - most) : 0, eb = hi ? __expf(b - most) : 0;
    float all = ea + eb;
    MN_UNROLL(int o = 4; o < 32; o *= 2) all += __shfl_xor_sync(MN_CUDA_WARP, all, o);
    const float of_label = most + __logf(all);
    const bool at_a = label == t.i, at_b = label == t.i + 8;
    if (t.across == 0) {
      if (at_a) loss = fmaf(weight, of_label - a, loss);
      if (at_b) loss = fmaf(weight, of_label - b, loss);
      if (t.i == 0 && (unsigned)label >= (unsigned)p.outputs) loss = NAN;
      if (t.i == 0 && first == label) correct += weight;
    }
    const float scale = weight * p.scale;
    a = scale * (ea / all - (at_a ? 1.0f : 0.0f)), b = scale * (eb / all - (at_b ? 1.0f : 0.0f));
  }

  MN_GPU void squared_error(float &y, int64_t row, int output, float weight) {
    if (output < p.outputs) {
      const float error = y - p.target[row * p.outputs + output];
      if (t.across == 0) loss = fmaf(weight * error, error, loss);
      y = weight * p.scale * error;
    } else {
      y = 0;
    }
  }

  /* The loss behind the head, dlogits, the head's gradients, and dy of the last block in d. */
  MN_GPU void head_backward(float *part, uint32_t rows, bool first_tile) {
    const uint32_t dlogits = base + room.dlogits;
    const float factor = factors_of(p.depth).dz;
    float y[Eights][4], bias[2] = {}, largest = 0;
    head_forward(y, rows);
    MN_UNROLL(int n = 0; n < Eights; n++)
      MN_UNROLL(int e = 0; e < 2; e++) {
        const int row = t.row0 + 8 * n + 2 * t.q + e;
        const int64_t at = tile_row + row;
        float &a = y[n][e], &b = y[n][2 + e];
        const float weight = weight_of(row);
        if (p.labels) cross_entropy(a, b, row < left ? p.labels[at] : 0, weight);
        if (!p.labels && row < left) squared_error(a, at, t.i, weight), squared_error(b, at, t.i + 8, weight);
        if (row >= left) a = b = 0;
        bias[0] += a, bias[1] += b;
        a *= factor, b *= factor;
        if (Scaled) largest = mn_scale_larger(mn_scale_larger(largest, a), b);
      }
    note(p.depth, largest);
    float *shares = reinterpret_cast<float *>(shared + room.warps);
    MN_UNROLL(int k = 0; k < 2; k++) {
      bias[k] += __shfl_xor_sync(MN_CUDA_WARP, bias[k], 1);
      bias[k] += __shfl_xor_sync(MN_CUDA_WARP, bias[k], 2);
      if (t.across == 0 && t.q == 0) shares[t.down * MN_STACK_HEAD + t.i + 8 * k] = bias[k];
    }
    if (t.across == 0)
      MN_UNROLL(int n = 0; n < Eights; n += 2) {
        const uint32_t r[4] = {mn_plane_pair<S::Kind>(y[n][0], y[n][1]),
                               mn_plane_pair<S::Kind>(y[n][2], y[n][3]),
                               mn_plane_pair<S::Kind>(y[n + 1][0], y[n + 1][1]),
                               mn_plane_pair<S::Kind>(y[n + 1][2], y[n + 1][3])};
        mn_matrices_store_transposed<4>(
            dlogits + (t.row0 + 8 * n + 8 * t.upper8 + t.row8) * 32 + t.left8 * 16, r);
      }
    __syncthreads();
    if (threadIdx.x < MN_STACK_HEAD) {
      float sum = 0;
      for (int k = 0; k < S::Down; k++) sum += shares[k * MN_STACK_HEAD + threadIdx.x];
      sums()[p.depth * 3 * W + threadIdx.x] += sum;
    }
    add_head(reinterpret_cast<float4 *>(part), rows, first_tile);
    uint32_t b[Eights / 2][4];
    MN_UNROLL(int n = 0; n < Eights / 2; n++)
      mn_matrices_load(b[n], dlogits + (t.row0 + 16 * n + 8 * t.upper8 + t.row8) * 32 + t.left8 * 16);
    MN_UNROLL(int m = 0; m < S::Pairs; m++) {
      uint32_t a[4];
      mn_matrices_load_transposed(
          a, warp::at(image(p.depth), t.row8 + 8 * t.upper8, t.across * T + 2 * m + t.left8));
      MN_UNROLL(int n = 0; n < Eights; n++) {
        const float zero[4] = {};
        mn_matrices_multiply<S::Kind>(d[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1], zero);
      }
    }
    __syncthreads(); /* rows and shares are read before they are overwritten */
  }

  /* The head's dW = dlogitsᵀ·y, in fragments of 16 columns for each warp. */
  MN_GPU void add_head(float4 *to, uint32_t rows, bool first) const {
    const float unit = factors_of(p.depth).undo_weight;
    for (int s = t.warp; s < W / 16; s += S::Warps) {
      float w[2][4] = {};
      _Pragma("unroll 2") for (int k = 0; k < S::Rows; k += 16) {
        uint32_t a[4], b[4];
        mn_matrices_load_transposed(a, base + room.dlogits + (k + t.row8 + 8 * t.upper8) * 32 + t.left8 * 16);
        mn_matrices_load_transposed(b, warp::at(rows, k + t.row8 + 8 * t.left8, 2 * s + t.upper8));
        mn_matrices_multiply<S::Kind>(w[0], a, b[0], b[1], w[0]),
            mn_matrices_multiply<S::Kind>(w[1], a, b[2], b[3], w[1]);
      }
      MN_UNROLL(int n = 0; n < 2; n++) {
        float4 &sum = to[(2 * s + n) * 32 + t.lane];
        const float4 f = first ? make_float4(0, 0, 0, 0) : sum;
        sum = make_float4(fmaf(w[n][0], unit, f.x), fmaf(w[n][1], unit, f.y), fmaf(w[n][2], unit, f.z),
                          fmaf(w[n][3], unit, f.w));
      }
    }
  }

  MN_GPU void note(int l, float largest) const {
    if constexpr (!Scaled) return;
    largest = mn_lanes_largest(largest);
    if (t.lane == 0) atomicMax(&peaks[l], __float_as_uint(largest));
  }

  MN_GPU void backward(float *part, bool first_tile) {
    for (int l = p.depth - 1; l >= 0; l--) {
      const uint32_t dz = input(l + 1);
      float gamma[T], beta[T], rstd[Own], column[3][T] = {}, largest = 0;
      const bool last = l + 1 == p.depth && !p.outputs;
      if (last) load_targets();
      multiply(l, input_again(l));
      load_affine(gamma, beta, l, 1);
      t.normalise(z, rstd, eps_of(l));
      if (last) squared_errors(gamma, beta);
      t.backward(z, d, column, rstd, gamma, beta, p.slope, p.bend, factors_of(l).unit);
      MN_UNROLL(int k = 0; k < Own * T && Scaled; k++)
        largest = fmaxf(largest, fabsf(warp::of(z, k / T, k % T)));
      t.store(z, dz);
      note(l, largest);
      float *shares = reinterpret_cast<float *>(shared + room.warps);
      t.add_rows(column, shares + t.down * 3 * W);
      if (p.reloads && l == 1) load_x(tile_row, slot(2)), mn_copies_wait();
      __syncthreads();
      _Pragma("unroll 1") for (int k = (int)threadIdx.x; k < 3 * W; k += S::Threads) {
        float sum = 0;
        MN_UNROLL(int w = 0; w < S::Down; w++) sum += shares[w * 3 * W + k];
        sums()[l * 3 * W + k] += sum * (k < W ? factors_of(l).undo_dz : 2 * factors_of(l).undo_dy);
      }
      t.add_weights(reinterpret_cast<float4 *>(part) + l * W * W / 4, dz, input_again(l),
                    factors_of(l).undo_weight, first_tile);
      if (l > 0) {
        const float zero[T] = {};
        t.template multiply<true>(d, zero, image(l), dz);
      }
      __syncthreads(); /* everything of this layer is read before it is overwritten */
    }
  }

  /* Sums that are not finite, or a dz that its plane did not hold, raise the flag. */
  MN_GPU void finish(float *part) {
    const mn_stack_part at(W, p.depth, p.outputs > 0);
    const int vectors = p.depth * 3 * W, all = vectors + (p.outputs ? MN_STACK_HEAD : 0);
    bool fault = !isfinite(loss);
    float *shares = reinterpret_cast<float *>(shared + room.warps);
    loss = mn_lanes_sum<32>(loss), correct = mn_lanes_sum<32>(correct);
    if (t.lane == 0) shares[t.warp] = loss, shares[S::Warps + t.warp] = correct;
    __syncthreads();
    for (int k = (int)threadIdx.x; k < all; k += S::Threads) {
      const float sum = sums()[k];
      part[k < vectors ? at.vectors + k : at.head_bias + k - vectors] = sum;
      fault |= !isfinite(sum);
    }
    if (threadIdx.x < 2) {
      float sum = 0;
      for (int k = 0; k < S::Warps; k++) sum += shares[threadIdx.x * S::Warps + k];
      part[at.scalars + threadIdx.x] = sum;
      fault |= !isfinite(sum);
    }
    if (Scaled && threadIdx.x < p.depth + (p.outputs > 0)) {
      const float peak = __uint_as_float(peaks[threadIdx.x]);
      part[at.scalars + 2 + threadIdx.x] = peak * factors_of((int)threadIdx.x).undo_dz;
      fault |= peak >= 65520;
    }
    if (fault && !p.measures) mn_raise(p.nonfinite, p.mark);
  }

  /* Calls for the next tile's rows, which come to the L2 cache meanwhile. */
  MN_GPU void prefetch(const void *rows, int64_t bytes) const {
    _Pragma("unroll 1") for (int64_t at = threadIdx.x * 128; at < bytes; at += S::Threads * 128)
        mn_prefetch(static_cast<const char *>(rows) + at);
  }
  MN_GPU void prefetch_tile(int64_t row) const {
    if (row >= p.rows) return;
    const int64_t rows = p.rows - row < S::Rows ? p.rows - row : S::Rows;
    prefetch(p.x + row * p.inputs, rows * p.inputs * 2);
    if (p.target && !p.outputs) prefetch(p.target + row * W, rows * W * 4);
  }

  MN_GPU void train(float *part) {
    const int step = (int)gridDim.x * S::Rows;
    float *head = part + mn_stack_part(W, p.depth, true).head;
    for (tile_row = (int)blockIdx.x * S::Rows; tile_row < p.rows; tile_row += step, turn++) {
      left = p.rows - tile_row;
      if (turn > 0) load_x(tile_row, input(0));
      mn_copies_wait();
      __syncthreads();
      prefetch_tile(tile_row + step);
      forward();
      if (p.outputs) head_backward(head, input(p.depth), turn == 0);
      backward(part, turn == 0);
    }
    finish(part);
  }

  /* Without a backward there is room for the next tile's rows. */
  MN_GPU void infer() {
    const int step = (int)gridDim.x * S::Rows;
    for (tile_row = (int)blockIdx.x * S::Rows; tile_row < p.rows; tile_row += step, turn++) {
      left = p.rows - tile_row;
      mn_copies_wait();
      __syncthreads(); /* the last tile's slots are read, this one's rows are there */
      if (tile_row + step < p.rows) load_x(tile_row + step, slot(First + (turn + 1) % 2));
      forward();
      if (!p.outputs) continue;
      float y[Eights][4];
      head_forward(y, input(p.depth));
      head_store(y);
    }
    if (loss != 0) mn_raise(p.nonfinite, p.mark); /* NaN */
    if (p.y_planes.scale && blockIdx.x == 0 && threadIdx.x == 0)
      p.y_planes.scale->factor = factors[p.depth].y;
  }

  MN_GPU void run() {
    load_x((int)blockIdx.x * S::Rows, input(0));
    prepare();
    if constexpr (S::Trains)
      train(p.parts + (int64_t)blockIdx.x * p.stride);
    else
      infer();
  }
};

template <class S>
__global__ void __launch_bounds__(S::Threads) mn_stack_kernel(const __grid_constant__ mn_stack_args p) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(256) char memory[];
  __shared__ mn_stack_factors factors[MN_STACK_DEPTH + 1];
  __shared__ unsigned peaks[MN_STACK_DEPTH + 1];
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  mn_stack_step<S>(p, memory, factors, peaks).run();
#endif
}

#endif
