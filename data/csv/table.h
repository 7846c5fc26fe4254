/* What the columns of a CSV file are to a model. csv.h describes the text that it is kept as. */
#ifndef MN_DATA_CSV_TABLE_H
#define MN_DATA_CSV_TABLE_H

#include "data/csv/csv.h"
#include "data/csv/file.h"

enum mn_column_kind { MN_COLUMN_NUMBER, MN_COLUMN_DATE, MN_COLUMN_WORDS, MN_COLUMN_LABELS, MN_COLUMN_KINDS };

struct mn_table_column {
  char *name;
  enum mn_column_kind kind;
  int target, gaps;
  double mean;                 /* NaN before mn_csv_fill */
  struct mn_class_names words; /* sorted by their bytes */
  int64_t missing;             /* rows of the file in which it is */
  int source;                  /* its column in the file; −1 for a target that the file lacks */
};

struct mn_table {
  int count;
  struct mn_table_column *columns; /* [count] */
};

/* The table of a text. MN_BAD_DATA: it is no table's; MN_NO_MEMORY. Free *out with mn_table_free, also after
 * an error. */
mn_status mn_table_parse(struct mn_table *out, const char *text);
mn_status mn_table_show(char **out, const struct mn_table *table); /* *out is the caller's to free */
void mn_table_free(struct mn_table *table);

extern const char *const mn_column_kinds[MN_COLUMN_KINDS];

/* The inputs of a column; its outputs if it is a target: 1, or its words. */
int64_t mn_column_width(const struct mn_table_column *column);

/* Names of columns that were left out, and such, for a line; "…" ends one that is too long. */
struct mn_csv_list {
  char text[400];
};
struct mn_csv_lists {
  struct mn_csv_list out, odd, missing, target;
};

/* MN_USAGE: one of the names of --option, between commas, is no column's. `names` may be NULL. */
mn_status mn_csv_check_names(const struct mn_csv_file *file, const char *option, const char *names);

/* Makes the table of a file, or finds a table's columns in a file, and sets values of the file's texts to
 * what the table takes them for. Errors: those of mn_csv_open. */
mn_status mn_table_infer(struct mn_table *table, struct mn_csv_file *file, const struct mn_csv_config *config,
                         struct mn_csv_lists *lists);
mn_status mn_table_find(struct mn_table *table, struct mn_csv_file *file, struct mn_csv_lists *lists);

#endif
