/* Products whose result is a rank's term of a sum over ranks: computed in pieces, so that one is exchanged
 * while the next is multiplied, if the GPUs reach each other's memory. */
#include <algorithm>

#include "kernels/block_row.cuh"
#include "kernels/cuda.cuh"
#include "kernels/hopper/tile.cuh"
#include "kernels/ranks/peer.h"

/* How many of `shares` equal shares of a stored product's columns must be computed at once, so that all take
 * no more waves of plain tiles than in one launch. A divisor of shares, which is returned if no other will
 * do. The kinds' plain tiles differ in their width alone. */
static int shares_at_once(const struct mn_device *device, const struct mn_hopper_product *p, int shares) {
  typedef mn_plain_tile<MN_PLANES_BF16> tile;
  const int wide = p->planes == MN_PLANES_FP16X2 ? (int)mn_plain_tile<MN_PLANES_FP16X2>::COLS : tile::COLS;
  const int64_t tiles = mn_tiles_down<tile>(p) * (p->cols / shares / wide);
  const int64_t all = device->cuda->multiprocessors;
  const auto waves = [&](int64_t count) { return (count * tiles + all - 1) / all; };
  if (p->cols % (wide * shares)) return shares;
  int at_once = 1;
  while (shares % at_once || shares / at_once * waves(at_once) > waves(shares)) at_once++;
  return at_once;
}

/* Columns of the product, `cols` from `first` on, stored at their place in the whole result, by the whole's
 * launcher: their tiles alone may not fill the GPU. */
static mn_status multiply_columns(struct mn_device *device, const struct mn_hopper_product *p, void *into,
                                  int64_t first, int64_t cols) {
  struct mn_hopper_product some = *p;
  const struct mn_epilogue store = {MN_STORE, static_cast<float *>(into) + first};
  some.cols = cols, some.pitch = p->cols;
  for (int i = 0; i < 2 && p->b[i]; i++) some.b[i] = static_cast<const uint16_t *>(p->b[i]) + first;
  return mn_hopper_plan(device, p, &store)(device, &some, &store);
}

mn_status mn_hopper_store_and_apply(struct mn_device *device, const struct mn_hopper_product *p,
                                    const struct mn_epilogue *epilogue) {
  const struct mn_epilogue store = {MN_STORE, epilogue->into};
  mn_hopper_launcher *const launch = mn_hopper_plan(device, p, &store);
  MN_REQUIRE(epilogue->into && epilogue->kind != MN_ADD && launch);
  MN_TRY(launch(device, p, &store));
  return mn_epilogue_cuda<float>::run(device, epilogue->into, p->rows, p->cols, epilogue);
}

/* Other shards' columns come first, so that the copy engines send them while the rest is multiplied; a launch
 * computes `at_once` neighbouring shards' columns. The next terms come into that staging memory a step later:
 * before that all ranks have agreed on the nonfinite flag, and so have read these. */
static mn_status multiply_and_send(struct mn_device *device, const struct mn_hopper_product *p,
                                   const struct mn_epilogue *e, int at_once) {
  const struct mn_team *t = &device->ranks->shards;
  const struct mn_scatter *s = e->scatter;
  const int launches = t->size / at_once, last = at_once > 1 ? launches : launches - 1; /* that is sent of */
  for (int k = 1; k <= launches; k++) {
    const int owner = (t->rank / at_once + k) % launches * at_once;
    MN_TRY(multiply_columns(device, p, e->into, owner * s->share, at_once * s->share));
    if (k > last) break;
    MN_TRY(mn_cuda_beside(device, MN_BRANCH_SHARDS, [&] {
      for (int i = 0; i < at_once; i++) { /* the ranks' i-th receivers all differ */
        const int q = owner + (t->rank + i) % at_once;
        if (q != t->rank) MN_TRY(mn_peer_send(device, t, s->staging, e->into, p->rows, p->cols, q));
      }
      return k == last ? mn_peer_meet(device, t) : MN_OK;
    }));
  }
  return mn_branch_join_cuda(device, MN_BRANCH_SHARDS);
}

/* The terms are this rank's columns of its own product and of those in its staging memory, in the order of
 * shards. */
mn_status mn_hopper_reduce_scatter(struct mn_device *device, const struct mn_hopper_product *p,
                                   const struct mn_epilogue *epilogue) {
  const struct mn_team *t = &device->ranks->shards;
  const struct mn_scatter *s = epilogue->scatter;
  const int at_once = shares_at_once(device, p, t->size);
  if (at_once == t->size || !s->staging || !mn_cuda_takes_terms(s->then) ||
      !mn_peer_reaches(t, s->staging, s->piece, p->rows, p->cols, sizeof(float)))
    return mn_hopper_store_and_apply(device, p, epilogue);
  MN_TRY(multiply_and_send(device, p, epilogue, at_once));
  mn_terms<float> terms = {};
  terms.count = t->size, terms.pitch = s->share * t->size;
  for (int q = 0; q < t->size; q++)
    terms.at[q] = static_cast<const float *>(q == t->rank ? epilogue->into : s->staging) + q * s->share;
  return mn_block_cuda<float>::run(device, NULL, s->then, terms);
}

/* A quarter of the columns, or more, at a time. */
mn_status mn_hopper_reduce_scatter_rows(struct mn_device *device, const struct mn_hopper_product *p,
                                        const struct mn_epilogue *epilogue) {
  const struct mn_team *t = &device->ranks->replicas;
  float *into = static_cast<float *>(epilogue->into);
  const int64_t cols = p->cols / 4 * shares_at_once(device, p, 4);
  if (cols == p->cols || p->arrival || !mn_peer_reaches(t, into, into, t->size, p->cols, sizeof(float)))
    return mn_hopper_store_and_apply(device, p, epilogue);
  for (int64_t first = 0; first < p->cols; first += cols) {
    MN_TRY(multiply_columns(device, p, into, first, cols));
    device->reserved_sms = std::max(device->reserved_sms, (int)MN_EXCHANGE_MULTIPROCESSORS);
    MN_TRY(mn_cuda_beside(device, MN_BRANCH_REPLICAS, [&] {
      return mn_peer_reduce_scatter_rows(device, t, into + first, p->rows, cols, p->cols);
    }));
  }
  return MN_OK;
}
