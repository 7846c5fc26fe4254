/* Where the rows of a dataset wait for their batch: all in the device's memory, all in pinned host memory, or
 * in the file, from which they are read window by window. A batch holds the same values in each case. */
#ifndef MN_DATA_PLACEMENT_H
#define MN_DATA_PLACEMENT_H

#include "data/order.h"
#include "data/read.h"
#include "kernels/device.h"

enum mn_place { MN_PLACE_AUTO, MN_PLACE_DEVICE, MN_PLACE_HOST, MN_PLACE_FILE, MN_PLACES };

/* The word for a place, such as "device", or NULL; and the place for a word. MN_USAGE: no such word. */
extern const char *const mn_place_words[]; /* NULL behind the last */
MN_API const char *mn_place_name(enum mn_place place);
MN_API mn_status mn_place_parse(const char *word, enum mn_place *out);

struct mn_placement {
  struct mn_device *device; /* borrowed, like the dataset */
  struct mn_dataset *dataset;
  enum mn_place
      place; /* not MN_PLACE_AUTO; on the CPU never MN_PLACE_HOST, which is the same as the device */
  struct mn_rows_form form;
  size_t bytes;                      /* of all rows in that form; INT64_MAX at most */
  struct mn_rows rows;               /* all rows; NULL in MN_PLACE_FILE */
  struct mn_fingerprint fingerprint; /* of the rows read at opening; x_only: without targets */
  char why[200];                     /* why this place, for messages */
  const int *stop;                   /* borrowed while opening */
};

/* MN_PLACE_AUTO chooses: the GPU if the rows take at most four fifths of its free memory and leave as much as
 * the device has allocated; else the host if they take at most half of the available memory; else the file.
 * Then reads all rows into that memory, or for the file a sample for the fingerprint; x_only: without the
 * targets; mean, scale: borrowed, as in struct mn_rows_form. MN_NO_MEMORY: the requested place is too small;
 * MN_INTERRUPTED: *stop was set meanwhile (data/read.h); and the errors of the dataset's read. */
mn_status mn_placement_open(struct mn_placement **out, struct mn_device *device, struct mn_dataset *dataset,
                            enum mn_place place, int x_only, const double *mean, const double *scale,
                            const int *stop);
void mn_placement_close(struct mn_placement *placement); /* NULL is fine */

/* ---- windows ---- */

/* Windows of the order of samples, read ahead from a dataset that stays in its file: a thread reads the next
 * window while batches are gathered from the last. */
struct mn_windows;

/* Starts reading at window `first` of the endless sequence of windows (number = epoch·windows + window) of
 * the order that mn_order_open has with these arguments; the placement is borrowed. Memory: two windows of at
 * most 4096 rows, pinned for a GPU, in the placement's form. Until mn_windows_close only its thread reads the
 * dataset. MN_NO_MEMORY. */
mn_status mn_windows_open(struct mn_windows **out, const struct mn_placement *placement, uint64_t seed,
                          int shuffled, int64_t first);
void mn_windows_close(struct mn_windows *windows); /* stops the threads; NULL is fine */

/* Waits for window `number`: its rows, in the order of its extents, which stay until mn_windows_release. Get
 * the windows in order, and release each before the next. An error of reading a window is returned, with its
 * message, by each mn_windows_get of it. */
mn_status mn_windows_get(struct mn_windows *windows, int64_t number, struct mn_rows *rows);
void mn_windows_release(struct mn_windows *windows); /* the last one */

#endif
