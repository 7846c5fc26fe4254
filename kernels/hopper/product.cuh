/* The interface of the Hopper GEMM: the launcher for a product, if it fits. */
#ifndef MN_KERNELS_HOPPER_PRODUCT_CUH
#define MN_KERNELS_HOPPER_PRODUCT_CUH

#include <cuda.h>

#include "kernels/planes.cuh"

/* d[rows, cols] = a·b in `form`, all row-major and dense; a and b are of one kind of planes. */
struct mn_hopper_product {
  enum mn_form form;
  int64_t rows, cols, depth, whole_rows; /* whole_rows: the full product's, where `rows` are a shard's */
  int64_t pitch; /* from row to row of b and d, if not `cols`: MN_STORE of MN_NN or MN_TN; or 0 */
  int shares; /* of MN_TN's depth, each with a result of its own, one of whole tiles below the other; or 0 */
  enum mn_plane_kind planes;
  const void *a[2], *b[2];
  const struct mn_scale *scale_a, *scale_b; /* NULL in bfloat16 */
  const struct mn_arrival *arrival; /* a's (MN_NT) or b's (MN_TN): one plane, shards of 128·n columns */
};

/* Computes the product and applies the epilogue. */
typedef mn_status mn_hopper_launcher(struct mn_device *device, const struct mn_hopper_product *p,
                                     const struct mn_epilogue *epilogue);

/* The launcher for this product with this epilogue; NULL if the Hopper GEMM cannot compute it, or is not
 * expected to be faster than the library: compute capability 9.0; rows of multiples of 16 bytes; 16-byte
 * alignment; and tiles that fill the GPU or, for an update or a block epilogue, little depth, or for dzᵀ·x of
 * a narrow block much of it (shares.cuh). Two planes are of no use to the library: with them any number of
 * tiles will do, except for a block epilogue. A block epilogue must have all of its operations, groups of 8,
 * 16, 32, 64, 128 or 256 channels (at most as many as the tile has columns), and, in a loss or a backward, dz
 * in planes only. An update must come from a MN_TN product. All other epilogues use epilogue->into. */
mn_hopper_launcher *mn_hopper_plan(const struct mn_device *device, const struct mn_hopper_product *p,
                                   const struct mn_epilogue *epilogue);

/* store_and_apply stores into epilogue->into, then applies the epilogue to that: mn_hopper_plan must take the
 * MN_STORE, and the epilogue must not be a sum. The others compute a rank's term of a sum over ranks, in
 * pieces that are exchanged beside it (terms.cu). */
mn_hopper_launcher mn_hopper_store_and_apply, mn_hopper_reduce_scatter, mn_hopper_reduce_scatter_rows;

/* The plan for one kind of planes. The file that includes epilogues.cuh instantiates it. */
template <enum mn_plane_kind Kind> struct mn_hopper { static decltype(mn_hopper_plan) plan; };

enum { MN_K_BLOCK = 64 }; /* depth of a stage: 128 bytes, the width of the swizzle */

/* Encodes the TMA's tensor map of a plane of `size` rows or columns by `depth`. K-major, it is stored as
 * [size, depth] and a box is `box` by 64 of the depth. MN-major, it is stored as [depth, size], `pitch` from
 * row to row (0 for size), and a box is 64 of the depth by 64. */
mn_status mn_hopper_tensor_map(struct mn_device *device, CUtensorMap *out, enum mn_plane_kind kind,
                               const void *plane, bool mn_major, int64_t size, int64_t depth, int64_t pitch,
                               int box);

#endif
