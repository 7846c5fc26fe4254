/* A CSV file in memory, column by column, as its texts say: kinds and values are table.h's. */
#ifndef MN_DATA_CSV_FILE_H
#define MN_DATA_CSV_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"
#include "kernels/status.h"

/* What a text is by itself. */
enum mn_csv_kind { MN_CSV_MISSING, MN_CSV_NUMBER, MN_CSV_DATE, MN_CSV_WORD, MN_CSV_KINDS };

/* The kind of a text without blanks around it, and its value: a number, whose signs of money and percent,
 * blanks and thousands are taken off, or a date's days since 1970 (ISO 8601, with or without a time); else
 * NaN. decimal: '.' or ','. */
enum mn_csv_kind mn_csv_value(const char *text, char decimal, double *value);

/* One of a column's different texts. */
struct mn_csv_text {
  char *text; /* UTF-8, owned */
  enum mn_csv_kind kind;
  double value; /* mn_csv_value's, until a table replaces it by what the text stands for */
  int64_t rows; /* that have it */
};

/* A column keeps each row's text, as the number of one of at most MN_CLASSES_MOST texts; if there are more, a
 * value for each row, in floats as long as these hold all values exactly. */
struct mn_csv_column {
  char *name;
  int unnamed;                   /* the header has no name for it */
  struct mn_csv_text *texts;     /* [count], in the order of their first rows; NULL if there are too many */
  int count, room;               /* room: a power of two, or 0 */
  int16_t *slots;                /* [2·room]: a hash table of the texts: each one's number + 1 */
  uint16_t *codes;               /* a row's text; NULL if there are too many */
  float *narrow;                 /* a row's value, NaN if it is not of the kind `as`; … */
  double *wide;                  /* … in one of these two */
  enum mn_csv_kind as;           /* MN_CSV_NUMBER or MN_CSV_DATE */
  int64_t of_kind[MN_CSV_KINDS]; /* rows of each kind */
  struct mn_csv_ids {            /* all its texts, one behind the other, if they are asked for */
    int wanted;
    char *texts;
    size_t used, room, *starts; /* starts: of each row's */
  } ids;
  char odd[64]; /* some words of a column of numbers or dates, between commas */
};

struct mn_csv_file {
  const char *path; /* borrowed */
  char separator, decimal;
  int columns;
  int header;                   /* the file's first line has names: rows in columns begin with index 1 */
  int doubtful;                 /* … as it looks, but numbers are among them */
  int64_t rows;                 /* without the header */
  struct mn_csv_column *column; /* [columns] */
};

/* Reads a file. header: 1: its first line has names, −1: it has not, 0: as it looks, or if `known` finds one
 * of `names` there. Columns without names have their numbers, from 1, as names. id: the name of a column
 * whose ids are wanted, or NULL.
 * MN_NO_INPUT: no such file; MN_IO; MN_NO_MEMORY; MN_LIBRARY: this build lacks libcsv; MN_BAD_DATA, with its
 * line: fields that are too many or too few, a quote that is not closed, bytes that are not UTF-8, a name
 * that is too long or there twice, no rows. After an error *file is closed. */
mn_status mn_csv_read(struct mn_csv_file *file, const char *path, int header, const char *id,
                      int (*known)(const void *names, const char *name), const void *names);
void mn_csv_free(struct mn_csv_file *file);

/* Adds the text of row `row`, the next one, for which mn_csv_reserve has made room. MN_NO_MEMORY. */
mn_status mn_csv_add(struct mn_csv_column *column, int64_t row, const char *text, char decimal, int64_t room);
mn_status mn_csv_reserve(struct mn_csv_column *column, int64_t rows);
void mn_csv_drop(struct mn_csv_column *column, int64_t row); /* the last row, which had no text */

/* Counts of_kind by the texts, if they are kept. */
void mn_csv_tally(struct mn_csv_column *column);
void mn_csv_column_free(struct mn_csv_column *column);

/* The value of a row, counted with the header. */
static inline double mn_csv_at(const struct mn_csv_column *c, int64_t row) {
  return c->codes ? c->texts[c->codes[row]].value : c->narrow ? (double)c->narrow[row] : c->wide[row];
}

#endif
