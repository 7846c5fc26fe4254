/* Reads a CSV file by libcsv. */
#include <stdlib.h>

#include "data/csv/file.h"

#ifdef MN_CSV
#include <csv.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/clock.h"
#include "kernels/text.h"

enum { BLOCK = 1 << 20, NAME = 255, OPTIONS = CSV_APPEND_NULL | CSV_REPALL_NL };
#define UNNAMED "unnamed "
enum unnamed { ALL_NAMED, FIRST_UNNAMED, LAST_UNNAMED };
static const char separators[] = "\t;|,"; /* numbers and texts have commas in them, seldom the others */

/* ---- the form of a file, by its first block ---- */

struct form {
  int64_t fields, first, others, rows; /* others: fields of the second row */
  int64_t same, ended;                 /* of rows that have as many; of those, whose last field is empty */
  int64_t commas, points;              /* fields that are numbers with a decimal comma, or point */
  int empty;                           /* the last field is */
};

/* Counts a number's mark: its only one, or the last of several, if it is another than those before. A mark
 * that stands more than once divides thousands, so the other one is the decimal mark. */
static void count_mark(struct form *f, const char *text, size_t length) {
  size_t last = 0, groups = 0, marks = 0;
  for (size_t i = *text == '-' || *text == '+'; i < length; i++) {
    const int mark = text[i] == ',' || text[i] == '.';
    if ((!mark && !isdigit((unsigned char)text[i])) || (mark && (i + 1 == length || i == 0))) return;
    if (!mark) continue;
    groups += marks && i - last == 4;
    marks++, last = i;
  }
  if (!marks) return;
  const char *first = memchr(text, text[last], length);
  const int alone = first == text + last;
  if (marks > 1 && !(groups == marks - 1 && (alone || length - last == 4))) return;
  *((text[last] == ',') == alone ? &f->commas : &f->points) += 1;
}

static void count_field(void *text, size_t length, void *data) {
  struct form *f = data;
  f->fields++;
  f->empty = length == 0;
  if (length) count_mark(f, text, length);
}

static void count_row(int end, void *data) {
  struct form *f = data;
  if (f->rows == 0) f->first = f->fields;
  if (f->rows == 1) f->others = f->fields;
  f->same += f->rows > 0 && f->fields == f->others;
  f->ended += f->rows > 0 && f->fields == f->others && f->empty;
  f->rows++;
  f->fields = 0;
}

/* Whether a quote is not closed yet. */
static int is_open(const struct csv_parser *parser) {
  return parser->quoted && parser->pstate == 2; /* FIELD_BEGUN */
}

/* How the rows would be with this separator. The last line is left out if it may go on in the next block. */
static mn_status count_fields(struct form *f, char separator, const char *text, size_t length) {
  struct csv_parser parser;
  *f = (struct form){0};
  if (csv_init(&parser, 0) != 0) return mn_fail(MN_LIBRARY, "libcsv cannot begin");
  csv_set_delim(&parser, (unsigned char)separator);
  int failed = csv_parse(&parser, text, length, count_field, count_row, f) != length;
  const int open = is_open(&parser);
  if (length < BLOCK) failed = csv_fini(&parser, count_field, count_row, f) != 0 || failed;
  if (f->rows == 1) f->others = open ? 0 : f->first;
  csv_free(&parser);
  return failed ? mn_fail(MN_NO_MEMORY, "no memory for a line of a CSV file") : MN_OK;
}

/* Takes the first separator that gives the header and nearly all rows the same number of fields, above 1, or
 * the one that gives it to most rows. *unnamed: the header lacks a name for the first column, as R's
 * write.table leaves it out, or, if all other lines end with a separator, for the last. Numbers have decimal
 * commas if more fields do, but not if commas are separators. */
static mn_status find_form(struct mn_csv_file *file, const char *text, size_t length, enum unnamed *unnamed) {
  double best = 0;
  file->separator = ',';
  file->decimal = '.';
  for (const char *s = separators; *s && best < 2; s++) {
    struct form f;
    MN_TRY(count_fields(&f, *s, text, length));
    const double share = f.others < 2 ? 0 : f.rows > 1 ? (double)f.same / (double)(f.rows - 1) : 1;
    const int lacks = f.rows > 1 && f.first > 1 && f.first == f.others - 1 && f.same == f.rows - 1;
    const double score = share + (share > 0.95 && (f.first == f.others || lacks));
    if (score <= best) continue;
    best = score >= 1.95 ? 2 : score;
    file->separator = *s;
    file->decimal = *s != ',' && f.commas > f.points ? ',' : '.';
    *unnamed = !lacks ? ALL_NAMED : f.ended == f.same ? LAST_UNNAMED : FIRST_UNNAMED;
  }
  return MN_OK;
}

/* ---- fields and rows ---- */

struct reading {
  struct mn_csv_file *file;
  struct csv_parser parser;
  int64_t bytes;            /* of the file; 0 if that is not known */
  int64_t line, begins;     /* of the file, from 1: that is read, and in which the row begins */
  int64_t row, room, field; /* rows so far, the header among them; room for them; fields of this row so far */
  enum unnamed unnamed;     /* a column that the header has no field for */
  int empty;                /* fields of this row so far without a text */
  int ended;                /* what ended the last row: a line ends with \n, \r\n or \r */
  const char *id;
  mn_status status;
};

/* Counts the line ends in a text, and refuses bytes that are not UTF-8. */
static mn_status check_text(struct reading *r, const char *text, size_t length) {
  unsigned char any = 0;
  for (size_t i = 0; i < length; i++) {
    const unsigned char c = (unsigned char)text[i];
    any |= c | (unsigned char)(c - 1); /* a zero byte gives 0xff */
    r->line += c == '\n';
  }
  for (const char *p = text; (any & 0x80) && p < text + length;) {
    const size_t bytes = mn_escape_character(p);
    if (bytes == 0 && ((unsigned char)*p >= 0x80 || !*p))
      return mn_fail(
          MN_BAD_DATA,
          "%s: line %lld, field %lld has the byte 0x%02x, which is not UTF-8: save the file as UTF-8 (iconv "
          "-f latin1 -t utf8, or Excel's \"CSV UTF-8\")",
          r->file->path, (long long)r->begins, (long long)r->field + 1, (unsigned char)*p);
    p += bytes ? bytes : 1;
  }
  return MN_OK;
}

static mn_status add_column(struct reading *r, const char *name) {
  struct mn_csv_file *f = r->file;
  if (strlen(name) > NAME)
    return mn_fail(MN_BAD_DATA,
                   "%s: line %lld, field %d has %zu bytes: the name of a column has at most %d: shorten it",
                   f->path, (long long)r->begins, f->columns + 1, strlen(name), NAME);
  if ((f->columns & (f->columns - 1)) == 0) {
    void *more = realloc(f->column, (f->columns ? 2 * (size_t)f->columns : 1) * sizeof *f->column);
    if (!more) return mn_fail(MN_NO_MEMORY, "no memory for %d columns", f->columns);
    f->column = more;
  }
  struct mn_csv_column *c = &f->column[f->columns++];
  *c = (struct mn_csv_column){.name = strdup(name)};
  /* A column that will be called by its number may be meant by it. */
  const char *id =
      r->id && strncmp(r->id, UNNAMED, sizeof UNNAMED - 1) == 0 ? r->id + sizeof UNNAMED - 1 : r->id;
  c->ids.wanted = id && (strcmp(r->id, name) == 0 || (int)strtol(id, NULL, 10) == f->columns);
  return c->name ? mn_csv_reserve(c, r->room) : mn_fail(MN_NO_MEMORY, "no memory for %d columns", f->columns);
}

/* A column, and its text in the header, row 0. */
static mn_status add_name(struct reading *r, const char *name) {
  MN_TRY(add_column(r, name));
  return mn_csv_add(&r->file->column[r->file->columns - 1], 0, name, r->file->decimal, r->room);
}

static mn_status take_text(struct reading *r, char *text, size_t length) {
  struct mn_csv_file *f = r->file;
  MN_TRY(check_text(r, text, length));
  while (length && (text[length - 1] == ' ' || text[length - 1] == '\n' || text[length - 1] == '\r'))
    text[--length] = 0;
  while (*text == ' ' || *text == '\n') text++, length--;
  r->empty += length == 0;
  if (r->row == 0 && r->field == 0 && r->unnamed == FIRST_UNNAMED) MN_TRY(add_name(r, ""));
  if (r->row == 0) return add_name(r, text);
  return r->field < f->columns ? mn_csv_add(&f->column[r->field], r->row, text, f->decimal, r->room) : MN_OK;
}

static void take_field(void *text, size_t length, void *data) {
  struct reading *r = data;
  if (r->field == 0) r->begins = r->line;
  if (r->status == MN_OK) r->status = take_text(r, text, length);
  r->field++;
}

/* A line of separators alone is passed over, as spreadsheets write them below a table. */
static mn_status end_row(struct reading *r) {
  struct mn_csv_file *f = r->file;
  if (r->row == 0 && r->unnamed == LAST_UNNAMED) MN_TRY(add_name(r, ""));
  if (r->row > 0 && r->field != f->columns)
    return mn_fail(
        MN_BAD_DATA, "%s: line %lld has %lld fields, but the first line %d: correct either, or take it out",
        f->path, (long long)r->begins, (long long)r->field, f->columns - (r->unnamed != ALL_NAMED));
  const int passed = r->row > 0 && r->empty == r->field;
  for (int i = 0; i < f->columns && passed; i++) mn_csv_drop(&f->column[i], r->row);
  if (!passed) r->row++;
  if (r->row < r->room) return MN_OK;
  r->room *= 2;
  for (int i = 0; i < f->columns; i++) MN_TRY(mn_csv_reserve(&f->column[i], r->room));
  return MN_OK;
}

static void take_row(int end, void *data) {
  struct reading *r = data;
  if (r->status == MN_OK && r->field) r->status = end_row(r);
  r->line += end == '\r' || (end == '\n' && (r->field || r->ended != '\r'));
  r->ended = r->field || end != '\n' ? end : 0;
  r->field = r->empty = 0;
}

/* ---- the header ---- */

/* Whether at least half of the rows below the first have its kind. */
static int is_over(const struct mn_csv_column *c, enum mn_csv_kind kind, int64_t rows) {
  return 2 * (c->of_kind[kind] - 1) >= rows - 1 - c->of_kind[MN_CSV_MISSING];
}

/* Whether the first line has names (2: and numbers over numbers): a text of it is there only once, and is no
 * number over numbers; or it counts from 0, as pandas names columns. */
static int is_header(const struct mn_csv_file *f, int64_t rows) {
  int texts = 0, fit = 0, counted = 0, numbers = 0;
  for (int i = 0; i < f->columns; i++) {
    const struct mn_csv_column *c = &f->column[i];
    double value;
    const enum mn_csv_kind kind = mn_csv_value(c->name, f->decimal, &value);
    if (kind == MN_CSV_MISSING) continue;
    counted += kind == MN_CSV_NUMBER && value == texts;
    texts++;
    numbers += kind != MN_CSV_WORD && is_over(c, kind, rows);
    fit += (c->codes && c->texts[c->codes[0]].rows > 1) || (kind != MN_CSV_WORD && is_over(c, kind, rows));
  }
  return fit < texts ? 1 + (numbers > 0)
                     : (counted == texts && texts > (texts && !*f->column[0].name ? 0 : 2));
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static mn_status check_names(const struct mn_csv_file *f) {
  const char **names = malloc((size_t)f->columns * sizeof *names);
  if (!names) return mn_fail(MN_NO_MEMORY, "no memory for the names of %d columns", f->columns);
  for (int i = 0; i < f->columns; i++) names[i] = f->column[i].name;
  qsort(names, (size_t)f->columns, sizeof *names, by_name);
  mn_status status = MN_OK;
  for (int i = 1; i < f->columns && status == MN_OK; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      status = mn_fail(MN_BAD_DATA, "%s: two columns are called %s: rename one in the first line%s", f->path,
                       names[i], f->header ? ", or say --header no" : "");
  free(names);
  return status;
}

/* Decides on the header, and names columns that have none by their numbers. */
static mn_status settle_header(struct mn_csv_file *f, int64_t rows, int header,
                               int (*known)(const void *names, const char *name), const void *names) {
  for (int i = 0; i < f->columns; i++) mn_csv_tally(&f->column[i]);
  f->header = header ? header > 0 : is_header(f, rows);
  for (int i = 0; known && !header && !f->header && i < f->columns; i++)
    f->header = known(names, f->column[i].name);
  f->doubtful = f->header > 1;
  f->header = f->header > 0;
  f->rows = rows - f->header;
  for (int i = 0; i < f->columns; i++) {
    struct mn_csv_column *c = &f->column[i];
    double value;
    if (f->header && c->codes) c->texts[c->codes[0]].rows--;
    if (f->header) c->of_kind[mn_csv_value(c->name, f->decimal, &value)]--;
    if (f->header && *c->name) continue;
    c->unnamed = f->header;
    free(c->name);
    if (asprintf(&c->name, f->header ? UNNAMED "%d" : "%d", i + 1) < 0)
      return c->name = NULL, mn_fail(MN_NO_MEMORY, "no memory for the names of %d columns", f->columns);
  }
  if (f->rows < 1)
    return mn_fail(MN_BAD_DATA, "%s: holds %s: write rows into it", f->path,
                   rows ? "a line of names and no row" : "no line");
  return check_names(f);
}

/* ---- the file ---- */

/* Takes off what stands before the first line: the mark of UTF-8, and Excel's line sep=; which says the
 * separator. */
static mn_status take_begin(struct reading *r, char **text, size_t *length) {
  struct mn_csv_file *f = r->file;
  const char *t = *text;
  if (*length > 1 && (memcmp(t, "\xff\xfe", 2) == 0 || memcmp(t, "\xfe\xff", 2) == 0))
    return mn_fail(MN_BAD_DATA,
                   "%s: is UTF-16: save it as UTF-8 (iconv -f utf16 -t utf8, or Excel's \"CSV UTF-8\")",
                   f->path);
  if (*length > 2 && memcmp(t, "\xef\xbb\xbf", 3) == 0) *text += 3, *length -= 3;
  t = *text;
  const size_t line = *length > 5 && memcmp(t, "sep=", 4) == 0 ? 5 + strspn(t + 5, "\r\n") : 0;
  *text += line, *length -= line;
  r->line += line > 0;
  if (*length > 3 &&
      (memcmp(t, "PK\3\4", 4) == 0 || memcmp(t, "\x1f\x8b", 2) == 0 || memcmp(t, "\x89HDF", 4) == 0))
    return mn_fail(MN_BAD_DATA, "%s: is no text, but a file of Excel, HDF5 or gzip: save it as CSV, in UTF-8",
                   f->path);
  MN_TRY(find_form(f, *text, *length, &r->unnamed));
  if (line) f->separator = t[4];
  csv_set_delim(&r->parser, (unsigned char)f->separator);
  return MN_OK;
}

/* libcsv is strict, so that it stops at each quote that is not doubled; one in a field without quotes is a
 * character. */
static mn_status parse(struct reading *r, const char *text, size_t length) {
  size_t done = 0;
  while (done < length) {
    done += csv_parse(&r->parser, text + done, length - done, take_field, take_row, r);
    MN_TRY(r->status);
    if (done == length) break;
    if (csv_error(&r->parser) != CSV_EPARSE)
      return mn_fail(MN_NO_MEMORY, "%s: no memory for line %lld", r->file->path, (long long)r->line);
    if (r->parser.quoted)
      return mn_fail(
          MN_BAD_DATA,
          "%s: line %lld, field %lld: a text goes on behind its closing quote: double quotes within a text "
          "(not \\\"), or take them off",
          r->file->path, (long long)(r->field ? r->begins : r->line), (long long)r->field + 1);
    csv_set_opts(&r->parser, OPTIONS);
    done += csv_parse(&r->parser, text + done, 1, take_field, take_row, r);
    csv_set_opts(&r->parser, OPTIONS | CSV_STRICT);
  }
  return MN_OK;
}

static mn_status read_all(struct reading *r, FILE *in, char *block) {
  struct mn_csv_file *f = r->file;
  size_t length;
  for (int64_t all = 0; (length = fread(block, 1, BLOCK, in)) > 0; all += (int64_t)length) {
    char *text = block;
    block[length] = 0;
    if (all == 0) MN_TRY(take_begin(r, &text, &length));
    MN_TRY(parse(r, text, length));
    const int64_t done = all + (int64_t)length;
    mn_heartbeat_of("bytes read", done, done < r->bytes ? r->bytes : done);
  }
  if (ferror(in))
    return mn_fail(MN_IO, "cannot read %s: %s: check the disk or take a copy", f->path, strerror(errno));
  if (is_open(&r->parser))
    return mn_fail(
        MN_BAD_DATA,
        "%s: field %lld of line %lld begins with a quote that is not closed: close it, or double it", f->path,
        (long long)r->field + 1, (long long)(r->field ? r->begins : r->line));
  if (csv_fini(&r->parser, take_field, take_row, r) != 0)
    return mn_fail(MN_NO_MEMORY, "%s: no memory for its last line", f->path);
  return r->status;
}

mn_status mn_csv_read(struct mn_csv_file *file, const char *path, int header, const char *id,
                      int (*known)(const void *names, const char *name), const void *names) {
  struct reading r = {.file = file, .id = id, .line = 1, .room = 4096};
  *file = (struct mn_csv_file){.path = path};
  struct stat status_of;
  FILE *in = fopen(path, "rb");
  if (!in || fstat(fileno(in), &status_of) != 0 || S_ISDIR(status_of.st_mode)) {
    const int error = in ? EISDIR : errno;
    if (in) fclose(in);
    return mn_fail(MN_NO_INPUT, "%s: %s; name another file", path, strerror(error));
  }
  r.bytes = status_of.st_size;
  char *block = malloc(BLOCK + 1);
  mn_status status = block && csv_init(&r.parser, OPTIONS | CSV_STRICT) == 0
                         ? MN_OK
                         : mn_fail(MN_NO_MEMORY, "%s: no memory to open it", path);
  if (status == MN_OK) {
    status = read_all(&r, in, block);
    csv_free(&r.parser);
  }
  if (status == MN_OK) status = settle_header(file, r.row, header, known, names);
  free(block);
  fclose(in);
  if (status != MN_OK) mn_csv_free(file);
  return status;
}
#else
mn_status mn_csv_read(struct mn_csv_file *file, const char *path, int header, const char *id,
                      int (*known)(const void *names, const char *name), const void *names) {
  return mn_fail(MN_LIBRARY,
                 "%s: this minnow was built without libcsv, which reads CSV: make packages, then make", path);
}
#endif

void mn_csv_free(struct mn_csv_file *file) {
  for (int i = 0; i < file->columns; i++) mn_csv_column_free(&file->column[i]);
  free(file->column);
  *file = (struct mn_csv_file){0};
}
