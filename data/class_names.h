/* Labels that are words: text, bools or members of an enum. Their classes are the different words, sorted by
 * their bytes. */
#ifndef MN_DATA_CLASS_NAMES_H
#define MN_DATA_CLASS_NAMES_H

#include "data/dataset.h"
#include "data/hdf5_file.h"

/* Whether a dataset's elements are words. */
int mn_has_words(const struct mn_hdf5_object *dataset);

/* Reads the words of `rows` rows, as classes from 0 into `labels`, and their names; names->names is the
 * caller's to free. MN_BAD_DATA: a word that is empty, or longer than MN_CLASS_NAME − 1 bytes, with its row;
 * more than MN_CLASSES_MOST different ones; no words after all, or the dataset is damaged; MN_NO_MEMORY. */
mn_status mn_read_words(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset, int64_t rows,
                        int32_t *labels, struct mn_class_names *names);

/* Bytes of the longest name. */
size_t mn_class_names_width(const struct mn_class_names *names);

/* Replaces *to by a copy. MN_NO_MEMORY. */
mn_status mn_class_names_copy(struct mn_class_names *to, const struct mn_class_names *from);

/* The index of a name, or −1. */
int64_t mn_class_find(const struct mn_class_names *names, const char *name);

#endif
