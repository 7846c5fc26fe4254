/* Where the rows of a dataset wait for their batch: all of them in the device's memory, all of them in pinned
 * host memory, or in the file, from which they are read window by window (data/windows.h). What a batch holds
 * does not depend on it. */
#ifndef MN_DATA_PLACEMENT_H
#define MN_DATA_PLACEMENT_H

#include "data/read.h"
#include "kernels/device.h"

enum mn_place { MN_PLACE_AUTO, MN_PLACE_DEVICE, MN_PLACE_HOST, MN_PLACE_FILE, MN_PLACES };

/* The word for a place, such as "device" (NULL: no such place), and the place for a word (MN_USAGE: no such
 * word). */
extern const char *const mn_place_words[]; /* NULL behind the last */
MN_API const char *mn_place_name(enum mn_place place);
MN_API mn_status mn_place_parse(const char *word, enum mn_place *out);

struct mn_placement {
  struct mn_device *device; /* borrowed, like the dataset */
  struct mn_dataset *dataset;
  enum mn_place place;      /* not MN_PLACE_AUTO; on the CPU never MN_PLACE_HOST, which is the same there */
  struct mn_rows_form form; /* how the rows wait */
  size_t bytes;             /* of all rows in that form; INT64_MAX at most */
  struct mn_rows rows;      /* all of them; NULL in MN_PLACE_FILE */
  struct mn_fingerprint fingerprint; /* of what they are, as far as they were read while opening */
  char why[200];                     /* why this place, for people */
  const int *stop;                   /* borrowed while opening */
};

/* Chooses a place where `place` is MN_PLACE_AUTO: a GPU if the rows take at most four fifths of what it has
 * free now, and leave as much as the device has allocated; else host memory if they take at most half of
 * what is available, else the file. Then reads all rows into it, unless it is the file; x_only: without their
 * targets; of the file, a sample for the fingerprint. `*out` is the caller's. MN_NO_MEMORY: the place that
 * was asked for has no room; MN_INTERRUPTED: *stop was set meanwhile (data/read.h); and the errors of the
 * dataset's read. */
mn_status mn_placement_open(struct mn_placement **out, struct mn_device *device, struct mn_dataset *dataset,
                            enum mn_place place, int x_only, const int *stop);
void mn_placement_close(struct mn_placement *placement); /* NULL is fine */

#endif
