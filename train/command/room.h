/* Before main: room for the buffers that OpenBLAS takes when it is loaded (kernels/blas.h). */
#ifndef MN_TRAIN_COMMAND_ROOM_H
#define MN_TRAIN_COMMAND_ROOM_H

/* Set, where the process runs with fewer threads than it would have, to how many that would be. */
#define MN_ROOM_WANTED "MINNOW_THREADS_WANTED"

/* Of the program's .preinit_array, which runs before OpenBLAS's constructor and before the C library has its
 * environment. Where memory is limited to less than the buffers of all threads, the program is executed anew
 * with as many threads as there is room for (OMP_NUM_THREADS); where there is none for one, or for a stack, it
 * ends with a line and MN_NO_MEMORY. */
void mn_room_before_main(int count, char **words, char **environment);

#endif
