/* A warp's part of a tile of rows: its products, and what the block does to its rows' groups.
 *
 * All products are transposed, zᵀ[channel, row] = W·xᵀ, and a fragment's 8 channels are not neighbours:
 * lane (i, q) = (lane / 4, lane % 4) holds, of rows 2q and 2q + 1 of each 8, T channels. At *position* 8j
 * + i of a slice of 8T channels stands channel i·T + j, so that these T are neighbours, and a group of D
 * channels lies in D / T lanes. In shared memory rows and columns of everything but x and the target stand
 * at their positions. */
#ifndef MN_KERNELS_STACK_TILE_CUH
#define MN_KERNELS_STACK_TILE_CUH

#include "kernels/stack/warp.cuh"

/* A tile of 8·Eights rows for each of Down warps, whose channels are shared among Across warps. */
template <enum mn_plane_kind Kind_, int Width, int Eights_, int Down_, int Across_, bool Trains_>
struct mn_stack_shape {
  static constexpr enum mn_plane_kind Kind = Kind_;
  static constexpr bool Trains = Trains_;
  static constexpr int W = Width, Eights = Eights_, Down = Down_, Across = Across_;
  /* A lane's channels, and the fragments of 16 that hold them. */
  static constexpr int T = W / 8 / Across, Pairs = T / 2;
  static constexpr int Warps = Down * Across, Threads = 32 * Warps, Rows = 8 * Eights * Down;
  static constexpr int Pitch = 2 * W, Slot = Rows * Pitch, Image = W * Pitch; /* bytes */
  static_assert(T % 2 == 0 && Eights % 2 == 0, "whole fragments");
};

/* What mn_stack_warp::activate multiplies |v| by, of the slope as the kernel has it. */
static inline float mn_stack_bend(float slope) {
  return (1 - slope) / (1 + slope);
}

/* The channel at a position, for slices of 8T. */
MN_EVERYWHERE static inline int mn_stack_channel(unsigned T, unsigned position) {
  const unsigned in_slice = position % (8 * T);
  return (int)(position - in_slice + in_slice % 8 * T + in_slice / 8);
}

template <class S> struct mn_stack_warp {
  static constexpr int W = S::W, T = S::T, Pairs = S::Pairs, Eights = S::Eights, Pitch = S::Pitch;
  static constexpr int Own = 2 * Eights; /* rows of which a lane has channels */
  typedef float tile[Pairs][Eights][4];
  int lane, warp, across, down, i, q;
  int row8, left8, upper8; /* the row whose address this lane gives, of which of four matrices */
  int row0, channel0;      /* the warp's first row, the lane's first channel */
  int span;                /* a group lies in lanes i that differ by less than span / 4 */
  float size;              /* 1 / D */

  MN_GPU mn_stack_warp(int group) {
    lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, across = warp % S::Across,
    down = warp / S::Across;
    i = lane / 4, q = lane % 4, row8 = lane % 8, left8 = lane / 8 % 2, upper8 = lane / 16;
    row0 = down * 8 * Eights, channel0 = across * 8 * T + i * T, span = 4 * group / T,
    size = 1.0f / (float)group;
  }

  /* Waits for the warps that have the same rows. */
  MN_GPU void sync_rows() const {
    if constexpr (S::Across == 1)
      __syncwarp();
    else if constexpr (S::Down == 1)
      __syncthreads();
    else
      mn_warps_sync(1 + down, 32 * S::Across);
  }

  /* The shared address of 16 bytes of a row. The same bytes of eight rows lie in different banks, and rows
   * that are 8 apart have theirs in the same order. */
  MN_GPU static uint32_t at(uint32_t matrix, int row, int sixteen) {
    return matrix + (uint32_t)(row * Pitch + ((sixteen ^ (row & 7)) << 4));
  }
  /* The same of the row that this lane names in ldmatrix, row8, or row8 + 8 where `eight` is 1, of a matrix
   * at a multiple of Pitch. From there 8·n rows are added, and 16·n bytes are exclusively or'ed, if `sixteen`
   * has none of n's bits. */
  MN_GPU uint32_t of_lane(uint32_t matrix, int eight, int sixteen) const {
    return matrix + (uint32_t)((8 * eight + row8) * Pitch + ((sixteen ^ row8) << 4));
  }

  /* d = w·rowsᵀ or, Transposed, wᵀ·rowsᵀ, and `start` of its channel: this warp's channels and rows. */
  template <bool Transposed>
  MN_GPU void multiply(tile &d, const float (&start)[T], uint32_t w, uint32_t rows) const {
    const uint32_t left = Transposed ? of_lane(w, upper8, across * T + left8)
                                     : of_lane(w, left8, upper8) + (uint32_t)(across * 8 * T * Pitch),
                   right = of_lane(rows, upper8, left8) + (uint32_t)(row0 * Pitch);
    MN_UNROLL(int k = 0; k < W / 16; k++) {
      uint32_t a[Pairs][4], b[Eights / 2][4];
      MN_UNROLL(int p = 0; p < Pairs; p++) {
        if constexpr (Transposed)
          mn_matrices_load_transposed(a[p], (left ^ (p << 5)) + 16 * k * Pitch);
        else
          mn_matrices_load(a[p], (left ^ (k << 5)) + 16 * p * Pitch);
      }
      MN_UNROLL(int n = 0; n < Eights / 2; n++) mn_matrices_load(b[n], (right ^ (k << 5)) + 16 * n * Pitch);
      MN_UNROLL(int p = 0; p < Pairs; p++) {
        const float first[4] = {start[2 * p], start[2 * p], start[2 * p + 1], start[2 * p + 1]};
        MN_UNROLL(int n = 0; n < Eights; n++) {
          const uint32_t *rows_of = b[n / 2] + n % 2 * 2;
          if (k == 0)
            mn_matrices_multiply<S::Kind>(d[p][n], a[p], rows_of[0], rows_of[1], first);
          else
            mn_matrices_multiply<S::Kind>(d[p][n], a[p], rows_of[0], rows_of[1], d[p][n]);
        }
      }
    }
  }

  /* The lane's channel j of its row r: 2q + r % 2 of eight r / 2. */
  MN_GPU static float &of(tile &d, int r, int j) { return d[j / 2][r / 2][j % 2 * 2 + r % 2]; }

  /* Stores the lane's rows as a plane's elements, at their positions. */
  MN_GPU void store(tile &d, uint32_t rows) const {
    constexpr int Count = T < 4 ? 2 : 4;
    const uint32_t to = of_lane(rows, 0, across * T + lane / 8 % Count) + (uint32_t)(row0 * Pitch);
    MN_UNROLL(int n = 0; n < Eights; n++)
      MN_UNROLL(int j = 0; j < T; j += Count) {
        uint32_t r[Count];
        MN_UNROLL(int k = 0; k < Count; k++)
          r[k] = mn_plane_pair<S::Kind>(of(d, 2 * n, j + k), of(d, 2 * n + 1, j + k));
        mn_matrices_store_transposed<Count>((to ^ (j << 4)) + 8 * n * Pitch, r);
      }
  }

  /* Sums over the lanes of a group. */
  template <int Count> MN_GPU void group_sums(float (&x)[Count]) const {
    for (int offset = 4; offset < span; offset *= 2)
      MN_UNROLL(int k = 0; k < Count; k++) x[k] += __shfl_xor_sync(MN_CUDA_WARP, x[k], offset);
  }

  /* z becomes normalised; rstd, of z as it was. A variance that overflows makes rstd NaN. */
  MN_GPU void normalise(tile &z, float (&rstd)[Own], float eps) const {
    float mean[Own], square[Own];
    MN_UNROLL(int r = 0; r < Own; r++) {
      float half[T];
      MN_UNROLL(int j = 0; j < T; j++) half[j] = of(z, r, j);
      MN_UNROLL(int n = T / 2; n > 0; n /= 2)
        MN_UNROLL(int j = 0; j < n; j++) half[j] += half[j + n];
      mean[r] = half[0];
    }
    group_sums(mean);
    MN_UNROLL(int r = 0; r < Own; r++) {
      float sums[2] = {};
      MN_UNROLL(int j = 0; j < T; j++) {
        float &v = of(z, r, j);
        v = fmaf(-size, mean[r], v), sums[j % 2] = fmaf(v, v, sums[j % 2]);
      }
      square[r] = sums[0] + sums[1];
    }
    group_sums(square);
    MN_UNROLL(int r = 0; r < Own; r++) {
      rstd[r] = fmaf(0.0f, square[r], mn_rsqrt(fmaf(square[r], size, eps)));
      MN_UNROLL(int j = 0; j < T; j++) of(z, r, j) *= rstd[r];
    }
  }

  /* y = x + x of a normalised value, which is (1 + slope)·v + (1 - slope)·|v|: for gamma and beta that are
   * multiplied by 1 + slope. */
  MN_GPU static float activate(float z, float gamma, float beta, float bend) {
    const float v = fmaf(z, gamma, beta);
    return fmaf(fabsf(v), bend, v);
  }

  /* Normalised z becomes unit·dz. Adds to the sums of dz, g·ẑ and g, with g half of what the block's formulas
   * call g (kernels/kernels.h). gamma and beta as activate takes them are doubled ones, as those formulas
   * want them, times 1 + bend = 2 / (1 + slope). */
  MN_GPU void backward(tile &z, tile &dy, float (&sums)[3][T], const float (&rstd)[Own],
                       const float (&gamma)[T], const float (&beta)[T], float slope, float bend,
                       float unit) const {
    float means[2 * Own];
    MN_UNROLL(int r = 0; r < Own; r++) {
      float m1 = 0, m2 = 0;
      MN_UNROLL(int j = 0; j < T; j++) {
        float &g = of(dy, r, j), v = of(z, r, j);
        g = mn_leaky_gradient(g, fmaf(v, gamma[j], beta[j]), slope);
        sums[2][j] += g, sums[1][j] = fmaf(g, v, sums[1][j]);
        g *= gamma[j];
        m1 += g, m2 = fmaf(g, v, m2);
      }
      means[2 * r] = m1, means[2 * r + 1] = m2;
    }
    group_sums(means);
    MN_UNROLL(int r = 0; r < Own; r++) {
      const float of_dy = (1 + bend) * unit * rstd[r], m1 = -size * of_dy * means[2 * r],
                  m2 = -size * of_dy * means[2 * r + 1];
      MN_UNROLL(int j = 0; j < T; j++) {
        float &v = of(z, r, j);
        v = fmaf(of(dy, r, j), of_dy, fmaf(v, m2, m1));
        sums[0][j] += v;
      }
    }
  }

  /* Adds up the sums of the four lanes that have the same channels, which are all the warp's rows:
   * to[3][W]. */
  MN_GPU void add_rows(const float (&sums)[3][T], float *to) const {
    MN_UNROLL(int k = 0; k < 3 * T; k += 2) { /* two sums: lanes that differ by 1 take one each */
      const float &even = sums[k / T][k % T], &odd = sums[k / T][k % T + 1];
      float x = q % 2 ? odd : even;
      x += __shfl_xor_sync(MN_CUDA_WARP, q % 2 ? even : odd, 1);
      x += __shfl_xor_sync(MN_CUDA_WARP, x, 2);
      if (k / 2 % 2 == q / 2) to[k / T * W + channel0 + k % T + q % 2] = x;
    }
  }

  /* Adds unit·dzᵀ·x over the rows of the tile to dW, in fragments; the warps share the parts. */
  MN_GPU void add_weights(float4 *sums, uint32_t dz, uint32_t x, float unit, bool first) const {
    constexpr int Tall = 2,
                  Wide = W == 64 && S::Warps >= 8 ? 2 : 4; /* a part: fragments of 16 rows, of 8 columns */
    constexpr int Columns = W / 8 / Wide;
    for (int part = warp; part < W / 16 / Tall * Columns; part += S::Warps) {
      const int m = part / Columns * Tall, n = part % Columns * Wide;
      float d[Tall][Wide][4] = {};
      float4 before[Tall][Wide]; /* on their way while the products are computed */
      MN_UNROLL(int a = 0; a < Tall; a++)
        MN_UNROLL(int b = 0; b < Wide; b++)
          before[a][b] =
              first ? make_float4(0, 0, 0, 0) : __ldcg(sums + ((m + a) * (W / 8) + n + b) * 32 + lane);
      const uint32_t left = of_lane(dz, upper8, left8) ^ (uint32_t)(m << 5),
                     right = of_lane(x, left8, upper8) ^ (uint32_t)(n << 4);
      constexpr int Ahead = S::Rows < 64 ? S::Rows / 16 : 4; /* steps whose loads are under way at once */
      static_assert(S::Rows % (16 * Ahead) == 0, "whole turns");
      _Pragma("unroll 1") for (int k = 0; k < S::Rows; k += 16 * Ahead) {
        uint32_t a[Ahead][Tall][4], b[Ahead][Wide / 2][4];
        MN_UNROLL(int s = 0; s < Ahead; s++) {
          MN_UNROLL(int t = 0; t < Tall; t++)
            mn_matrices_load_transposed(a[s][t], (left ^ (t << 5)) + (k + 16 * s) * Pitch);
          MN_UNROLL(int t = 0; t < Wide / 2; t++)
            mn_matrices_load_transposed(b[s][t], (right ^ (t << 5)) + (k + 16 * s) * Pitch);
        }
        MN_UNROLL(int s = 0; s < Ahead; s++)
          MN_UNROLL(int t = 0; t < Tall; t++)
            MN_UNROLL(int u = 0; u < Wide; u++) {
              const uint32_t *const of = b[s][u / 2] + u % 2 * 2;
              mn_matrices_multiply<S::Kind>(d[t][u], a[s][t], of[0], of[1], d[t][u]);
            }
      }
      MN_UNROLL(int a = 0; a < Tall; a++)
        MN_UNROLL(int b = 0; b < Wide; b++) {
          const float(&v)[4] = d[a][b];
          const float4 &f = before[a][b];
          sums[((m + a) * (W / 8) + n + b) * 32 + lane] = make_float4(
              fmaf(v[0], unit, f.x), fmaf(v[1], unit, f.y), fmaf(v[2], unit, f.z), fmaf(v[3], unit, f.w));
        }
    }
  }
};

#endif
