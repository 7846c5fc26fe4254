/* Before main: room for the buffers that OpenBLAS takes when it is loaded (kernels/blas.h). */
#ifndef MN_TRAIN_COMMAND_ROOM_H
#define MN_TRAIN_COMMAND_ROOM_H

/* Of the program's .preinit_array, which runs before OpenBLAS's constructor and before the C library has its
 * environment. Where memory is limited to less than the buffers of all threads, or for a stack, the program
 * ends with a line and MN_NO_MEMORY: OpenBLAS would ask without end. */
void mn_room_before_main(int count, char **words, char **environment);

#endif
