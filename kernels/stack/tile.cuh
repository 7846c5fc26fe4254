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

/* The channel at a position, for slices of 8T. */
MN_EVERYWHERE static inline int mn_stack_channel(unsigned T, unsigned position) {
  const unsigned in_slice = position % (8 * T);
  return (int)(position - in_slice + in_slice % 8 * T + in_slice / 8);
}

template <class S> struct mn_stack_warp {
  static constexpr int W = S::W, T = S::T, Pairs = S::Pairs, Eights = S::Eights, Pitch = S::Pitch;
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

  /* The shared address of 16 bytes of a row. The same bytes of eight rows lie in different banks; rows that
   * are 8 apart have them in the same order. */
  MN_GPU static uint32_t at(uint32_t matrix, int row, int sixteen) {
    return matrix + (uint32_t)(row * Pitch + ((sixteen ^ (row & 7)) << 4));
  }

  /* d += w·rowsᵀ or, Transposed, wᵀ·rowsᵀ: this warp's channels and rows. */
  template <bool Transposed> MN_GPU void multiply(tile &d, uint32_t w, uint32_t rows) const {
    MN_UNROLL(int k = 0; k < W / 16; k++) {
      uint32_t a[Pairs][4], b[Eights / 2][4];
      MN_UNROLL(int p = 0; p < Pairs; p++) {
        if constexpr (Transposed)
          mn_matrices_load_transposed(a[p], at(w, 16 * k + row8 + 8 * upper8, across * T + 2 * p + left8));
        else
          mn_matrices_load(a[p], at(w, across * 8 * T + 16 * p + row8 + 8 * left8, 2 * k + upper8));
      }
      MN_UNROLL(int n = 0; n < Eights / 2; n++)
        mn_matrices_load(b[n], at(rows, row0 + 16 * n + 8 * upper8 + row8, 2 * k + left8));
      MN_UNROLL(int p = 0; p < Pairs; p++)
        MN_UNROLL(int n = 0; n < Eights; n++)
          mn_matrices_multiply<S::Kind>(d[p][n], a[p], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
  }

  MN_GPU static void fill(tile &d, const float (&value)[T]) {
    MN_UNROLL(int p = 0; p < Pairs; p++)
      MN_UNROLL(int n = 0; n < Eights; n++)
        d[p][n][0] = d[p][n][1] = value[2 * p], d[p][n][2] = d[p][n][3] = value[2 * p + 1];
  }

  /* The lane's channels of its two rows of eight n. */
  MN_GPU static void take(float (&values)[2][T], const tile &d, int n) {
    MN_UNROLL(int e = 0; e < 2; e++)
      MN_UNROLL(int j = 0; j < T; j++) values[e][j] = d[j / 2][n][j % 2 * 2 + e];
  }
  MN_GPU static void put(tile &d, const float (&values)[2][T], int n) {
    MN_UNROLL(int e = 0; e < 2; e++)
      MN_UNROLL(int j = 0; j < T; j++) d[j / 2][n][j % 2 * 2 + e] = values[e][j];
  }

  /* Stores these as a plane's elements, at their positions. */
  MN_GPU void store(const float (&values)[2][T], int n, uint32_t rows) const {
    const int row = row0 + 8 * n + row8;
    if constexpr (T >= 4) {
      MN_UNROLL(int j = 0; j < T; j += 4) {
        uint32_t r[4];
        MN_UNROLL(int k = 0; k < 4; k++) r[k] = mn_plane_pair<S::Kind>(values[0][j + k], values[1][j + k]);
        mn_matrices_store_transposed<4>(at(rows, row, across * T + j + lane / 8), r);
      }
    } else {
      uint32_t r[2];
      MN_UNROLL(int k = 0; k < 2; k++) r[k] = mn_plane_pair<S::Kind>(values[0][k], values[1][k]);
      mn_matrices_store_transposed<2>(at(rows, row, across * T + left8), r);
    }
  }

  /* Sums over the lanes of a group. */
  template <int Count> MN_GPU void group_sums(float (&x)[Count]) const {
    for (int offset = 4; offset < span; offset *= 2)
      MN_UNROLL(int k = 0; k < Count; k++) x[k] += __shfl_xor_sync(MN_CUDA_WARP, x[k], offset);
  }

  MN_GPU static float sum(const float (&x)[T]) {
    float half[T];
    MN_UNROLL(int j = 0; j < T; j++) half[j] = x[j];
    MN_UNROLL(int n = T / 2; n > 0; n /= 2)
      MN_UNROLL(int j = 0; j < n; j++) half[j] += half[j + n];
    return half[0];
  }

  /* z becomes normalised; rstd, of z as it was. A variance that overflows makes rstd NaN. */
  MN_GPU void normalise(float (&z)[2][T], float (&rstd)[2], float eps) const {
    float mean[2], square[2] = {};
    MN_UNROLL(int e = 0; e < 2; e++) mean[e] = sum(z[e]);
    group_sums(mean);
    MN_UNROLL(int e = 0; e < 2; e++) {
      float odd = 0;
      MN_UNROLL(int j = 0; j < T; j++) {
        z[e][j] = fmaf(-size, mean[e], z[e][j]);
        (j % 2 ? odd : square[e]) = fmaf(z[e][j], z[e][j], j % 2 ? odd : square[e]);
      }
      square[e] += odd;
    }
    group_sums(square);
    MN_UNROLL(int e = 0; e < 2; e++) {
      rstd[e] = fmaf(0.0f, square[e], mn_rsqrt(fmaf(square[e], size, eps)));
      MN_UNROLL(int j = 0; j < T; j++) z[e][j] *= rstd[e];
    }
  }

  /* y of a normalised value, for gamma and beta that are doubled; slopes up to 1 make it a maximum. */
  MN_GPU static float activate(float z, float gamma, float beta, float slope) {
    const float v = fmaf(z, gamma, beta);
    return fmaxf(v, slope * v);
  }

  /* Normalised z of two rows becomes unit·dz. dy: of these rows. Adds to the sums of dz, g·ẑ and g, with g
   * half of what the block's formulas call g (kernels/kernels.h), for gamma and beta that are doubled. */
  MN_GPU void backward(float (&z)[2][T], float (&dy)[2][T], float (&sums)[3][T], const float (&rstd)[2],
                       const float (&gamma)[T], const float (&beta)[T], float slope, float unit) const {
    float means[4];
    MN_UNROLL(int e = 0; e < 2; e++) {
      float m1 = 0, m2 = 0;
      MN_UNROLL(int j = 0; j < T; j++) {
        float &g = dy[e][j];
        if (!(fmaf(z[e][j], gamma[j], beta[j]) > 0)) g *= slope;
        sums[2][j] += g, sums[1][j] = fmaf(g, z[e][j], sums[1][j]);
        g *= gamma[j];
        m1 += g, m2 = fmaf(g, z[e][j], m2);
      }
      means[2 * e] = m1, means[2 * e + 1] = m2;
    }
    group_sums(means);
    MN_UNROLL(int e = 0; e < 2; e++) {
      const float r = unit * rstd[e], m1 = -size * r * means[2 * e], m2 = -size * r * means[2 * e + 1];
      MN_UNROLL(int j = 0; j < T; j++) {
        z[e][j] = fmaf(dy[e][j], r, fmaf(z[e][j], m2, m1));
        sums[0][j] += z[e][j];
      }
    }
  }

  /* Adds up the sums of the four lanes that have the same channels, which are all the warp's rows:
   * to[3][W]. */
  MN_GPU void add_rows(const float (&sums)[3][T], float *to) const {
    MN_UNROLL(int a = 0; a < 3; a++)
      MN_UNROLL(int j = 0; j < T; j++) {
        float x = sums[a][j];
        x += __shfl_xor_sync(MN_CUDA_WARP, x, 1);
        x += __shfl_xor_sync(MN_CUDA_WARP, x, 2);
        if (j % 4 == q) to[a * W + channel0 + j] = x;
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
      _Pragma("unroll 4") for (int k = 0; k < S::Rows; k += 16) {
        uint32_t a[Tall][4], b[Wide / 2][4];
        MN_UNROLL(int t = 0; t < Tall; t++)
          mn_matrices_load_transposed(a[t], at(dz, k + row8 + 8 * upper8, 2 * (m + t) + left8));
        MN_UNROLL(int t = 0; t < Wide / 2; t++)
          mn_matrices_load_transposed(b[t], at(x, k + row8 + 8 * left8, n + 2 * t + upper8));
        MN_UNROLL(int t = 0; t < Tall; t++)
          MN_UNROLL(int u = 0; u < Wide; u++)
            mn_matrices_multiply<S::Kind>(d[t][u], a[t], b[u / 2][u % 2 * 2], b[u / 2][u % 2 * 2 + 1]);
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
