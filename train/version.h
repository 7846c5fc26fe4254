/* The version of these headers. The Makefile reads it here. */
#ifndef MN_TRAIN_VERSION_H
#define MN_TRAIN_VERSION_H

#define MINNOW_VERSION "0.3.0"
#define MINNOW_VERSION_MAJOR 0
#define MINNOW_VERSION_MINOR 3
#define MINNOW_VERSION_PATCH 0

#endif
