/* Philox4x32-10 on the host: the only file that uses Random123. */
#include "kernels/random.h"

#include <Random123/philox.h>

void mn_philox(uint64_t seed, uint32_t sequence, uint64_t quad, uint32_t words[4]) {
  philox4x32_ctr_t counter = {{(uint32_t)quad, (uint32_t)(quad >> 32), sequence, 0}};
  philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
  philox4x32_ctr_t out = philox4x32(counter, key);
  for (int i = 0; i < 4; i++) words[i] = out.v[i];
}

uint32_t mn_random_word(uint64_t seed, uint32_t sequence, uint64_t index) {
  uint32_t words[4];
  mn_philox(seed, sequence, index / 4, words);
  return words[index % 4];
}
