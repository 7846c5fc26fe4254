/* cuBLASLt, loaded when the first GPU is opened. Its half a GB of code takes a process 0.1 s to map and to
 * relocate, which commands on the CPU would wait for too. In builds with CUDA. */
#ifndef MN_KERNELS_CUBLASLT_H
#define MN_KERNELS_CUBLASLT_H

/* The functions that minnow calls, by their names without the prefix cublasLt. */
#define MN_CUBLASLT(F)                                                                                       \
  F(Create)                                                                                                  \
  F(Destroy)                                                                                                 \
  F(GetStatusName)                                                                                           \
  F(GetVersion)                                                                                              \
  F(Matmul)                                                                                                  \
  F(MatmulAlgoCheck)                                                                                         \
  F(MatmulAlgoGetHeuristic)                                                                                  \
  F(MatmulDescInit_internal)                                                                                 \
  F(MatmulDescSetAttribute)                                                                                  \
  F(MatmulPreferenceInit_internal)                                                                           \
  F(MatmulPreferenceSetAttribute)                                                                            \
  F(MatrixLayoutInit_internal)

#ifdef __CUDACC__
#include <cublasLt.h>

#include "kernels/status.h"

struct mn_cublaslt {
#define MN_CUBLASLT_MEMBER(name) decltype(&cublasLt##name) name;
  MN_CUBLASLT(MN_CUBLASLT_MEMBER)
#undef MN_CUBLASLT_MEMBER
};

/* Loads the library of the major version that minnow was compiled with; later calls return what the first
 * did. MN_LIBRARY: there is none, or it lacks a function. */
mn_status mn_cublaslt_load();

/* The functions, after mn_cublaslt_load has succeeded: mn_cublaslt().Matmul is cublasLtMatmul. */
const struct mn_cublaslt &mn_cublaslt();
#endif

#endif
