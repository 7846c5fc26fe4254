/* Labels that are words: text, bools or members of an enum. Their classes are the different words, sorted by
 * their bytes. */
#ifndef MN_DATA_HDF5_WORDS_H
#define MN_DATA_HDF5_WORDS_H

#include "data/dataset.h"
#include "data/hdf5/file.h"

/* Whether a dataset's elements are words. */
int mn_has_words(const struct mn_hdf5_object *dataset);

/* Reads the words of `rows` rows, as classes from 0 into `labels`, and their names; names->names is the
 * caller's to free. MN_BAD_DATA: a word that is empty, or longer than MN_CLASS_NAME − 1 bytes, with its row;
 * more than MN_CLASSES_MOST different ones; no words after all, or the dataset is damaged; MN_NO_MEMORY. */
mn_status mn_read_words(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset, int64_t rows,
                        int32_t *labels, struct mn_class_names *names);

#endif
