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

#endif
