/* Rows that a synthetic teacher makes. */
#ifndef MN_DATA_SYNTHETIC_H
#define MN_DATA_SYNTHETIC_H

#include "data/dataset.h"

struct mn_device;

/* The synthetic teacher: x uniform with variance 1; y = a hidden block of `outputs` channels in `groups`
 * groups (weights as a new block's, gamma 1 + t/2 and beta t/2 with t uniform on [−1, 1), eps 1e-5, slope
 * 0.01) of x, plus uniform noise of variance noise². Every value is a function of (seed, row), computed in
 * double and rounded to the requested real: a row does not depend on the rows read with it. MN_PART_TEST
 * gives other rows of the same teacher. The teacher's own mean loss is noise², but for chance; a model that
 * fits the noise of its rows has less on them.
 *
 * The dataset opens a device of its own, always in MN_FP64, with the type and ordinal of `like`, or the CPU
 * if that is NULL. `like` is read during this call alone, and may be in use by another thread while rows are
 * read. One device gives the same bytes every time. Between devices x is equal to the last bit, and y to
 * about 1e-12, since fp64 sums are taken in another order: as floats within one unit in the last place,
 * except for values nearer to 0 than 1e-4, whose units may be smaller than that.
 *
 * Memory of that device: the teacher's weights in double (8·outputs·inputs bytes: 537 MB at 8192²) and up to
 * some 60 MB of rows, or 64 rows if those are more. Sizes: up to 2²² inputs and outputs and 2⁴⁰ rows, and
 * groups that divide the outputs. MN_NO_MEMORY: the device has too little; no other device is taken instead,
 * since its bytes would differ; MN_NO_DEVICE and MN_LIBRARY as mn_device_open. */
mn_status mn_dataset_synthetic(struct mn_dataset **out, enum mn_part part, int64_t rows, int64_t inputs,
                               int64_t outputs, int64_t groups, double noise, uint64_t seed,
                               const struct mn_device *like);

#endif
