/* A CSV file as rows: a column by its name, a word by what the model knows it as.
 *
 * A table says how columns become inputs and targets. A new run's is made from its file; a later file is read
 * by the run's, whatever the order of its columns. It is kept as a text of JSON: a list of objects with the
 * column's name; its kind, "number", "date" (days since 1970), "words", or "labels" (classes that are whole
 * numbers); mean, which stands for what is missing; words; and, if they are true, gaps and target.
 *
 * A column of numbers, of dates or of two words is one input, and one of more words an input for each, 1 or
 * 0. `gaps`: another input is 1 where it is missing, and else 0. A text that is none of the column's kind or
 * words is missing. */
#ifndef MN_DATA_CSV_CSV_H
#define MN_DATA_CSV_CSV_H

#include "data/dataset.h"

enum { MN_CSV_WORDS = 100 }; /* the most words of an input, unless `use` has its name */

int mn_csv_named(const char *path); /* whether it ends in .csv, .tsv, .txt, .data, .dat */

/* *out: the table, to be freed. MN_USAGE: a new one, before mn_csv_fill; MN_NO_MEMORY. */
mn_status mn_csv_table(char **out, const struct mn_csv *csv);

/* The name of the column that an input is of, or one of the inputs of. */
const char *mn_csv_input(const struct mn_csv *csv, int64_t input);

/* Whether a text, without blanks around it, says that something is missing: "", NA, NaN, null, ?, - … */
int mn_csv_is_missing(const char *text);

#endif
