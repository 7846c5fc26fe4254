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

struct mn_csv_config {
  int header;         /* 1: the first line has names, 0: it has rows, −1: as it looks */
  const char *table;  /* a run's, NULL for a new one, whose columns the following decide; */
  const char *target; /* names of columns between commas; NULL: the last */
  const char *drop;   /* names of columns to leave out; may be NULL */
  const char *use;    /* and of columns to take that would be left out */
  const char *id;     /* name of a column whose texts mn_csv_id returns; NULL: none */
  int numbers;        /* targets are numbers: 1, classes: 0, −1: classes if words or few whole numbers */
};

struct mn_csv;

int mn_csv_named(const char *path); /* whether it ends in .csv, .tsv, .txt, .data, .dat */

/* Reads the file `path` whole. Words and messages are UTF-8. `path` is borrowed. MN_NO_INPUT, MN_IO,
 * MN_NO_MEMORY, MN_LIBRARY (this build lacks libcsv); MN_USAGE: a name that no column has; MN_BAD_DATA: the
 * file is damaged or lacks a column of the table, or a target is not of its kind. */
MN_API mn_status mn_csv_open(struct mn_csv **out, const char *path, const struct mn_csv_config *config);
MN_API void mn_csv_close(struct mn_csv *csv); /* after its rows; NULL is fine */

/* Its rows; with `targets` those alone that have one. Numbers that are missing are NaN until mn_csv_fill.
 * MN_BAD_DATA: with `targets`, no row has one, or one is no class of the table's. Rows may be opened more
 * than once; close them with mn_dataset_close. */
MN_API mn_status mn_csv_rows(struct mn_dataset **out, struct mn_csv *csv, int targets);

/* Sets the table's means to those of `train`, which has some of these rows. A table that was given has its
 * own. Errors: those of its read; MN_NO_MEMORY. */
MN_API mn_status mn_csv_fill(struct mn_csv *csv, struct mn_dataset *train);

/* *out: the table, to be freed. MN_NO_MEMORY. */
mn_status mn_csv_table(char **out, const struct mn_csv *csv);

/* The name of the column that an input is of, or one of the inputs of. */
const char *mn_csv_input(const struct mn_csv *csv, int64_t input);

/* Whether a text, without blanks around it, says that something is missing: "", NA, NaN, null, ?, - … */
int mn_csv_is_missing(const char *text);

/* The text of the column `id` in a row of the file, without blanks around it; valid until mn_csv_close. */
MN_API const char *mn_csv_id(const struct mn_csv *csv, int64_t row);

/* What became of the columns, for the user: a line for each of the first MN_CSV_NOTES numbers; NULL if there
 * is nothing to say. */
enum { MN_CSV_NOTES = 5 };
MN_API const char *mn_csv_note(const struct mn_csv *csv, int number);

#endif
