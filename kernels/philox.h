/* Philox4x32-10 on the host, by Random123. */
#ifndef MN_KERNELS_PHILOX_H
#define MN_KERNELS_PHILOX_H

#include <stdint.h>

/* The four words 4·quad … 4·quad + 3 of a sequence (kernels/random.h). */
void mn_philox(uint64_t seed, uint32_t sequence, uint64_t quad, uint32_t words[4]);

#endif
