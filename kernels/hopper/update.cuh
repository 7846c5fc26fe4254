/* The Hopper GEMM's update epilogue, and when each tile is used. What was measured and tried: NOTES.md. */
#ifndef MN_KERNELS_HOPPER_UPDATE_CUH
#define MN_KERNELS_HOPPER_UPDATE_CUH

#include "kernels/hopper/shares.cuh"

template <class Rule> struct update_arguments {
  mn_weight<float> w;
  mn_moments<Rule, float> moments;
  int64_t rows, cols;
  Rule rule;
  mn_agreement *agreement; /* NULL: the nonfinite flag is known */
};

/* Four neighbouring weights as they stand in memory, so that loads in flight take no more registers than the
 * floats do. These are floats, beside which planes are written. */
template <enum mn_plane_kind Kind, bool Split> struct weight_vector {
  float floats[4];

  MN_GPU void load(const mn_weight<float> &w, int64_t from) { mn_load_once<4>(floats, w.real + from); }
  MN_GPU void get(float (&values)[4]) const {
    MN_UNROLL(int j = 0; j < 4; j++) values[j] = floats[j];
  }
  static MN_GPU void store(const mn_weight<float> &w, float factor, int64_t to, const float (&values)[4]) {
    mn_store_once<4>(w.real + to, values);
    mn_planes_store<4, true>(mn_planes_as<Kind>(w.planes), factor, to, values);
  }
};

/* Both halves of a split weight, two in a word. */
template <> struct weight_vector<MN_PLANES_BF16, true> {
  uint32_t high[2], low[2];

  MN_GPU void load(const mn_weight<float> &w, int64_t from) {
    mn_load_once<2>(high, reinterpret_cast<const uint32_t *>(w.planes.high + from));
    mn_load_once<2>(low, reinterpret_cast<const uint32_t *>(w.low + from));
  }
  MN_GPU void get(float (&values)[4]) const {
    MN_UNROLL(int j = 0; j < 2; j++) mn_join_pair(values[2 * j], values[2 * j + 1], high[j], low[j]);
  }
  static MN_GPU void store(const mn_weight<float> &w, float, int64_t to, const float (&values)[4]) {
    weight_vector v;
    MN_UNROLL(int j = 0; j < 2; j++) mn_split_pair(v.high[j], v.low[j], values[2 * j], values[2 * j + 1]);
    mn_store_once<2>(reinterpret_cast<uint32_t *>(w.planes.high + to), v.high);
    mn_store_once<2>(reinterpret_cast<uint32_t *>(w.low + to), v.low);
  }
};

/* Updates W's forms and the rule's moments in place, a staging buffer at a time. The loads of W and moments
 * for the next AHEAD vectors, in this buffer or the next, are always in flight. Moments: those that are kept.
 */
template <class Rule, int Moments, bool Split, class Tile> struct update_epilogue {
  typedef update_arguments<Rule> arguments;
  typedef Tile tile;
  enum { COLS = tile::COLS, WIDE = COLS < 128 ? COLS : 128, HIGH = MN_STAGING_FLOATS / WIDE };
  typedef mn_staging_lane<WIDE> part;
  typedef weight_vector<tile::KIND, Split> vector;
  enum { WARPS = tile::EPILOGUE_WARPS > 0 ? (int)tile::EPILOGUE_WARPS : mn_consumer_warps<tile> };
  /* With two moments the registers do not hold a whole buffer. */
  enum { AHEAD = Moments == 2 ? part::VECTORS / 2 : (int)part::VECTORS };
  struct state {
    vector w[AHEAD];
    float moments[AHEAD][Rule::MOMENTS][4];
    typename Rule::loaded rule;
    float factor;
    int stop; /* not 0: a value was not finite, so the update stops; −1: not known yet */
  };

  static MN_GPU void prefetch(const arguments &a, int64_t row, int64_t col, int lane) {
    if constexpr (tile::EPILOGUE_WARPS == 0 && COLS > WIDE) { /* the other tiles load far enough ahead */
      if constexpr (Split) {
        mn_tile_prefetch<tile>(a.w.planes.high, a.rows, a.cols, row, col, lane);
        mn_tile_prefetch<tile>(a.w.low, a.rows, a.cols, row, col, lane);
      } else {
        mn_tile_prefetch<tile>(a.w.real, a.rows, a.cols, row, col, lane);
      }
      for (int k = 0; k < Moments; k++)
        mn_tile_prefetch<tile>(a.moments.of[k], a.rows, a.cols, row, col, lane);
    }
  }

  /* The offset of the lane's vector i in the buffer that starts at `at`; −1 outside the matrix. */
  static MN_GPU int64_t offset_of(const arguments &a, int i, const mn_coord &at) {
    const part mine;
    const int64_t row = at.row + i * part::ROW_STEP + mine.row, col = at.col + mine.col;
    return row < a.rows && col < a.cols ? row * a.cols + col : -1;
  }

  static MN_GPU void load(const arguments &a, state &s, int i, const mn_coord &at) {
    const int64_t from = offset_of(a, i, at);
    if (from < 0) return;
    s.w[i % AHEAD].load(a.w, from);
    MN_UNROLL(int k = 0; k < Moments; k++) mn_load_once<4>(s.moments[i % AHEAD][k], a.moments.of[k] + from);
  }

  static MN_GPU void begin(const arguments &a, state &s, const mn_coord &first) {
    MN_UNROLL(int i = 0; i < AHEAD; i++) load(a, s, i, first);
    s.rule = a.rule.load();
    s.factor = mn_planes_factor(a.w.planes);
    s.stop = a.agreement ? -1 : *a.rule.nonfinite;
  }

  static MN_GPU void update_vector(const arguments &a, state &s, int i, int64_t to, float *staging) {
    float gradient[4], w[4], (&moments)[Rule::MOMENTS][4] = s.moments[i % AHEAD];
    part().read(gradient, staging, i);
    s.w[i % AHEAD].get(w);
    MN_UNROLL(int j = 0; j < 4; j++)
      a.rule.step(s.rule, Moments > 0, gradient[j], w[j], moments[0][j], moments[Rule::MOMENTS - 1][j]);
    if (to < 0 || s.stop) return;
    MN_UNROLL(int k = 0; k < Moments; k++) mn_store_once<4>(a.moments.of[k] + to, moments[k]);
    vector::store(a.w, s.factor, to, w);
  }

  /* One staging buffer, which starts at `at`; an updated vector makes room for the one AHEAD vectors later,
   * the last ones for the buffer's at `next`. */
  static MN_GPU void update_buffer(const arguments &a, state &s, const mn_coord &at, const mn_coord &next,
                                   float *staging) {
    MN_UNROLL(int i = 0; i < part::VECTORS; i++) {
      update_vector(a, s, i, offset_of(a, i, at), staging);
      if (i + AHEAD < part::VECTORS)
        load(a, s, i + AHEAD, at);
      else
        load(a, s, i + AHEAD - part::VECTORS, next);
    }
  }

  static MN_GPU void finish(const arguments &a, state &s, const mn_result<tile> &result, const mn_coord &at,
                            const mn_coord &next, float *staging) {
    if (s.stop < 0) s.stop = mn_agreed_flag(a.agreement, a.rule.nonfinite, WARPS * gridDim.x);
    if constexpr (tile::EPILOGUE_WARPS > 0) { /* the slice is one staging buffer */
      update_buffer(a, s, at, next, staging);
    } else {
      MN_UNROLL(int across = 0; across < COLS; across += WIDE)
        MN_UNROLL(int down = 0; down < result.ROWS; down += HIGH) {
          const bool last_down = down + HIGH == result.ROWS, last = last_down && across + WIDE == COLS;
          const mn_coord below = {last_down ? at.row : at.row + down + HIGH,
                                  at.col + across + last_down * WIDE};
          result.template stage<WIDE, HIGH>(staging, across, down);
          update_buffer(a, s, {at.row + down, at.col + across}, last ? next : below, staging);
        }
    }
  }
};

/* With one plane: from this depth on the multiplication of a tile takes longer than its share of the memory
 * traffic, and the plain tile is faster than the streaming one (NOTES.md). */
enum { DEEP = 2048 };

/* Bytes of an operand that stay in both halves of the L2 cache while W and momentum stream through it. The
 * link between the halves is the bottleneck of an update (NOTES.md). */
enum { KEPT = 8 << 20 };

/* The height of an update's panels, in clusters: 1 if all of b fits in KEPT bytes, else the number of
 * clusters whose rows of a fit. At a great depth neither fits, and a panel is as in every product; as with
 * the small tile. */
template <class Tile> static int panel_of(const struct mn_hopper_product *p) {
  const int64_t deep = p->depth * 2 * Tile::PLANES;
  if (Tile::CLUSTER == 1 || p->depth > DEEP) return MN_PANEL;
  if (p->cols * deep <= KEPT) return 1;
  return (int)std::max(KEPT / (Tile::CLUSTER * Tile::ROWS * deep), (int64_t)1);
}

template <class Rule, int Moments, bool Split, class Tile>
static mn_status launch_update(struct mn_device *device, const struct mn_hopper_product *p,
                               const struct mn_epilogue *epilogue) {
  const struct mn_update *u = epilogue->update;
  const update_arguments<Rule> a = {
      mn_weight_of<float>(device, u->w), mn_moments_of<Rule, float>(u, 0), p->rows, p->cols,
      Rule::of(device, u->rule),         device->cuda->agreement};
  const auto launch = mn_hopper_launch<MN_TN, update_epilogue<Rule, Moments, Split, Tile>>;
  MN_TRY(launch(device, p, a, panel_of<Tile>(p)));
  device->cuda->agreement = NULL; /* later products start after this one */
  return MN_OK;
}

template <class Rule, int Moments, bool Split, enum mn_plane_kind Kind>
static mn_hopper_launcher *plan_tile(const struct mn_device *device, const struct mn_hopper_product *p) {
  const bool streams = mn_tiles_fill<mn_streaming_tile<Kind>>(device, p);
  if constexpr (Kind != MN_PLANES_FP16X2)
    if ((p->depth > DEEP || !streams) && mn_tiles_fill<mn_plain_tile<Kind>>(device, p))
      return launch_update<Rule, Moments, Split, mn_plain_tile<Kind>>;
  if (streams) return launch_update<Rule, Moments, Split, mn_streaming_tile<Kind>>;
  return Kind == MN_PLANES_FP16X2 || mn_small_pays<Kind>(device, p)
             ? launch_update<Rule, Moments, Split, mn_small_tile<Kind>>
             : NULL;
}

template <bool Split, enum mn_plane_kind Kind>
static mn_hopper_launcher *plan_rule(const struct mn_device *device, const struct mn_hopper_product *p,
                                     const struct mn_update *u) {
  return mn_by_rule<float>(u->rule->kind, [&](auto rule) {
    typedef decltype(rule) Rule;
    if constexpr (Rule::OPTIONAL)
      if (!u->m && !u->v) return plan_tile<Rule, 0, Split, Kind>(device, p);
    return plan_tile<Rule, Rule::MOMENTS, Split, Kind>(device, p);
  });
}

template <enum mn_plane_kind Kind>
static mn_hopper_launcher *plan_update(const struct mn_device *device, const struct mn_hopper_product *p,
                                       const struct mn_update *u) {
  if (p->form != MN_TN || !u->w->planes[0] ||
      !mn_aligned(16, u->w->real, u->w->planes[0], u->w->planes[1], u->w->low, u->m, u->v))
    return NULL;
  if (shares_pay<Kind>(p)) return share_out<Kind>;
  if constexpr (Kind == MN_PLANES_BF16)
    if (u->w->low) return plan_rule<true, Kind>(device, p, u);
  return plan_rule<false, Kind>(device, p, u);
}

#endif
