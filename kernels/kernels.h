/* The contract between the engine and the arithmetic: one table of kernels for each device and width of real.
 * The headers included here say what each entry does; tests/ compares the tables entry by entry. */
#ifndef MN_KERNELS_KERNELS_H
#define MN_KERNELS_KERNELS_H

#include "kernels/ahead.h"
#include "kernels/block.h"
#include "kernels/branch.h"
#include "kernels/elementwise.h"
#include "kernels/gather.h"
#include "kernels/gemm.h"
#include "kernels/graph.h"
#include "kernels/loss.h"
#include "kernels/memory.h"
#include "kernels/outside.h"
#include "kernels/random.h"
#include "kernels/split.h"
#include "kernels/update.h"

/* Every entry of the table, once. REAL(name): an fp32 and an fp64 version for each device. DEVICE(name): one
 * version for each device. CUDA(name): one version, and NULL in the CPU's tables. An entry's type is
 * mn_NAME_function. The struct, the declarations and the tables (device.c, device.cu) are generated from this
 * list, so an entry without an implementation does not link. */
#define MN_KERNELS(REAL, DEVICE, CUDA)                                                                       \
  REAL(gemm)                                                                                                 \
  REAL(epilogue)                                                                                             \
  REAL(column_sums)                                                                                          \
  REAL(mse)                                                                                                  \
  REAL(mse_gradient)                                                                                         \
  REAL(cross_entropy)                                                                                        \
  REAL(cross_entropy_gradient)                                                                               \
  REAL(reduce)                                                                                               \
  REAL(dot)                                                                                                  \
  REAL(clip)                                                                                                 \
  REAL(add)                                                                                                  \
  REAL(round)                                                                                                \
  REAL(rescale)                                                                                              \
  REAL(narrow)                                                                                               \
  REAL(uniform)                                                                                              \
  DEVICE(allocate)                                                                                           \
  DEVICE(release)                                                                                            \
  DEVICE(allocate_host)                                                                                      \
  DEVICE(release_host)                                                                                       \
  DEVICE(available)                                                                                          \
  DEVICE(upload)                                                                                             \
  DEVICE(download)                                                                                           \
  DEVICE(copy)                                                                                               \
  DEVICE(zero)                                                                                               \
  DEVICE(synchronize)                                                                                        \
  DEVICE(mark)                                                                                               \
  DEVICE(elapsed)                                                                                            \
  DEVICE(branch_fork)                                                                                        \
  DEVICE(branch_begin)                                                                                       \
  DEVICE(branch_end)                                                                                         \
  DEVICE(branch_join)                                                                                        \
  DEVICE(exchange)                                                                                           \
  DEVICE(count)                                                                                              \
  DEVICE(split)                                                                                              \
  DEVICE(join)                                                                                               \
  DEVICE(gather)                                                                                             \
  DEVICE(ahead_begin)                                                                                        \
  DEVICE(ahead_end)                                                                                          \
  DEVICE(ahead_wait)                                                                                         \
  DEVICE(ahead_used)                                                                                         \
  DEVICE(ahead_finish)                                                                                       \
  CUDA(note)                                                                                                 \
  CUDA(download_beside)                                                                                      \
  CUDA(graph_begin)                                                                                          \
  CUDA(graph_end)                                                                                            \
  CUDA(graph_launch)                                                                                         \
  CUDA(graph_free)

#define MN_KERNEL_POINTER(name) mn_##name##_function *name;
struct mn_kernels {
  MN_KERNELS(MN_KERNEL_POINTER, MN_KERNEL_POINTER, MN_KERNEL_POINTER)
};

/* The CPU's versions; CUDA's are declared in cuda.cuh. */
#define MN_KERNEL_CPU_REAL(name)                                                                             \
  MN_C mn_##name##_function mn_##name##_cpu_fp32;                                                            \
  MN_C mn_##name##_function mn_##name##_cpu_fp64;
#define MN_KERNEL_CPU(name) MN_C mn_##name##_function mn_##name##_cpu;
#define MN_KERNEL_NONE(name)
MN_KERNELS(MN_KERNEL_CPU_REAL, MN_KERNEL_CPU, MN_KERNEL_NONE)

#endif
