/* Opening and closing the place where work goes. */
#ifndef MN_KERNELS_STREAM_H
#define MN_KERNELS_STREAM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the device `device` (index `ordinal` on CUDA) for `precision`. `*out` is the caller's, for
 * mn_stream_close. MN_NO_DEVICE: no driver, no GPU, a build without CUDA, or a precision that the GPU (below
 * sm_80) lacks. */
mn_status mn_stream_open(struct mn_stream **out, enum mn_device device, int ordinal,
                         enum mn_precision precision);
void mn_stream_close(struct mn_stream *stream); /* NULL is fine */

/* The device's name for people, e.g. "NVIDIA H200" or "CPU (16 threads)". */
void mn_stream_describe(const struct mn_stream *stream, char *text, size_t size);

/* Whether products that suit it run in the GEMM of our own (kernels/gemm_hopper.h), unless `library` is set.
 */
int mn_stream_fuses(const struct mn_stream *stream);

/* The CUDA half of the four above (stream.cu), which the tables' owner stream.c calls: `stream` has its
 * precision, widths and table already; this opens device, stream, cuBLASLt and workspace into stream->cuda.
 */
mn_status mn_cuda_open(struct mn_stream *stream, int ordinal);
void mn_cuda_close(struct mn_stream *stream);
void mn_cuda_describe(const struct mn_stream *stream, char *text, size_t size);
int mn_cuda_fuses(const struct mn_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
