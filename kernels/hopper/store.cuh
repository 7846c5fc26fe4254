/* The Hopper GEMM's epilogues that store or add. */
#ifndef MN_KERNELS_HOPPER_STORE_CUH
#define MN_KERNELS_HOPPER_STORE_CUH

#include "kernels/hopper/gemm.cuh"

struct store_arguments {
  float *into;
  mn_planes plane; /* in place of `into` */
  int64_t rows, cols, pitch;
  const int *nonfinite;
};

/* into = d, or, unless a value was not finite, into += d. */
template <bool Add, class Tile> struct store_epilogue {
  typedef store_arguments arguments;
  typedef Tile tile;
  enum { COLS = tile::COLS, WIDE = COLS < 128 ? COLS : 128, HIGH = MN_STAGING_FLOATS / WIDE };
  enum { NARROWS = !Add && tile::KIND != MN_PLANES_FP16X2 };
  typedef mn_staging_lane<WIDE> part;
  struct state {};

  static MN_GPU void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (Add) mn_tile_prefetch<tile>(a.into, a.rows, a.cols, row, col, lane);
  }

  static MN_GPU void begin(const arguments &, state &, const mn_coord &) {}

  static MN_GPU void finish(const arguments &a, state &, const mn_result<tile> &result, const mn_coord &at,
                            const mn_coord &, float *staging) {
    const part mine;
    if (Add && *a.nonfinite) return;
    MN_UNROLL(int across = 0; across < COLS; across += WIDE)
      MN_UNROLL(int down = 0; down < result.ROWS; down += HIGH) {
        result.template stage<WIDE, HIGH>(staging, across, down);
        const int64_t row = at.row + down + mine.row, col = at.col + across + mine.col;
        int64_t to = row * a.pitch + col;
        MN_UNROLL(int i = 0; i < part::VECTORS; i++, to += part::ROW_STEP * a.pitch) {
          float values[4], before[4];
          if (col >= a.cols || row + i * part::ROW_STEP >= a.rows) break;
          mine.read(values, staging, i);
          if constexpr (Add) {
            mn_load<4>(before, a.into + to);
            MN_UNROLL(int j = 0; j < 4; j++) values[j] += before[j];
          }
          if (NARROWS && a.plane.high)
            mn_planes_store<4>(mn_planes_as<tile::KIND>(a.plane), 1, to, values);
          else
            mn_store<4>(a.into + to, values);
        }
      }
  }
};

template <bool Add, class Tile>
static mn_status launch_store(struct mn_device *device, const struct mn_hopper_product *p,
                              const struct mn_epilogue *e) {
  float *into = static_cast<float *>(e->into);
  const int64_t pitch = p->pitch > 0 ? p->pitch : p->cols;
  store_arguments arguments = {into, {}, p->rows, p->cols, pitch, device->nonfinite};
  if (e->narrow) arguments.plane = mn_planes_at(arguments.into, Tile::KIND);
  typedef store_epilogue<Add, Tile> epilogue;
  return p->form == MN_NT   ? mn_hopper_launch<MN_NT, epilogue>(device, p, arguments)
         : p->form == MN_NN ? mn_hopper_launch<MN_NN, epilogue>(device, p, arguments)
                            : mn_hopper_launch<MN_TN, epilogue>(device, p, arguments);
}

#endif
