/* The contract between the engine and the arithmetic: one table of kernels a device and width of real. The
 * headers named here say what each entry does; tests/ compares the tables entry by entry. */
#ifndef MN_KERNELS_KERNELS_H
#define MN_KERNELS_KERNELS_H

#include "kernels/block.h"
#include "kernels/branch.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/graph.h"
#include "kernels/loss.h"
#include "kernels/memory.h"
#include "kernels/random.h"
#include "kernels/update.h"

struct mn_kernels {
  mn_gemm_function *gemm;
  mn_epilogue_function *epilogue;
  mn_column_sums_function *column_sums;
  mn_mse_function *mse;
  mn_mse_gradient_function *mse_gradient;
  mn_cross_entropy_function *cross_entropy;
  mn_cross_entropy_gradient_function *cross_entropy_gradient;
  mn_reduce_function *reduce;
  mn_sum_of_squares_function *sum_of_squares;
  mn_clip_function *clip;
  mn_add_function *add;
  mn_round_function *round;
  mn_uniform_function *uniform;
  mn_allocate_function *allocate;
  mn_release_function *release;
  mn_allocate_host_function *allocate_host;
  mn_release_host_function *release_host;
  mn_upload_function *upload;
  mn_download_function *download;
  mn_copy_function *copy;
  mn_zero_function *zero;
  mn_synchronize_function *synchronize;
  mn_mark_function *mark;
  mn_elapsed_function *elapsed;
  mn_branch_function *branch_fork;
  mn_branch_function *branch_begin;
  mn_branch_function *branch_join;
  mn_graph_begin_function *graph_begin; /* these four: NULL on the CPU */
  mn_graph_end_function *graph_end;
  mn_graph_launch_function *graph_launch;
  mn_graph_free_function *graph_free;
};

#endif
