/* The names of classes, sorted by their bytes (struct mn_class_names, data/dataset.h). */
#ifndef MN_DATA_CLASS_NAMES_H
#define MN_DATA_CLASS_NAMES_H

#include "data/dataset.h"

/* Bytes of the longest name. */
size_t mn_class_names_width(const struct mn_class_names *names);

/* Sorts names, as the functions here expect them. */
void mn_class_names_sort(struct mn_class_names *names);

/* Replaces *to by a copy. MN_NO_MEMORY. */
mn_status mn_class_names_copy(struct mn_class_names *to, const struct mn_class_names *from);

/* The index of a name, or −1. */
int64_t mn_class_find(const struct mn_class_names *names, const char *name);

#endif
