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

#include "kernels/clock.h"
#include "kernels/text.h"

enum { BLOCK = 1 << 20, NAME = 255 };
static const char separators[] = "\t;|,"; /* numbers and texts have commas in them, seldom the others */

/* ---- the form of a file, by its first block ---- */

struct form {
  int64_t fields, first, others, rows,
      same; /* others: fields of the second row; same: of rows that have as many */
};

static void count_field(void *text, size_t length, void *data) {
  ((struct form *)data)->fields++;
}

static void count_row(int end, void *data) {
  struct form *f = data;
  if (f->rows == 0) f->first = f->fields;
  if (f->rows == 1) f->others = f->fields;
  f->same += f->rows > 0 && f->fields == f->others;
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
 * write.table leaves it out. */
static mn_status find_separator(struct mn_csv_file *file, const char *text, size_t length, int *unnamed) {
  double best = 0;
  file->separator = ',';
  for (const char *s = separators; *s && best < 2; s++) {
    struct form f;
    MN_TRY(count_fields(&f, *s, text, length));
    const double share = f.others < 2 ? 0 : f.rows > 1 ? (double)f.same / (double)(f.rows - 1) : 1;
    const int lacks = f.rows > 1 && f.first > 1 && f.first == f.others - 1 && f.same == f.rows - 1;
    const double score = share + (share > 0.95 && (f.first == f.others || lacks));
    if (score <= best) continue;
    best = score >= 1.95 ? 2 : score;
    file->separator = *s;
    *unnamed = lacks;
  }
  return MN_OK;
}

/* Numbers have decimal commas if more commas than points stand between two digits, but for those of
 * thousands; if commas are separators, numbers have points. */
static void find_decimal(struct mn_csv_file *file, const char *text, size_t length) {
  int64_t commas = 0;
  for (size_t i = 1; i + 1 < length && file->separator != ','; i++) {
    if ((text[i] != ',' && text[i] != '.') || !isdigit((unsigned char)text[i - 1]) ||
        !isdigit((unsigned char)text[i + 1]))
      continue;
    const int another = i + 4 < length && (text[i + 4] == ',' || text[i + 4] == '.'),
              again = i > 4 && text[i - 4] == text[i];
    if (!another && !again) commas += text[i] == ',' ? 1 : -1;
  }
  file->decimal = commas > 0 ? ',' : '.';
}

/* ---- fields and rows ---- */

struct reading {
  struct mn_csv_file *file;
  struct csv_parser parser;
  int64_t line, begins;     /* of the file, from 1: that is read, and in which the row begins */
  int64_t row, room, field; /* rows so far, the header among them; room for them; fields of this row so far */
  int unnamed;
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
  c->ids.wanted = r->id && (strcmp(r->id, name) == 0 || (int)strtol(r->id, NULL, 10) == f->columns);
  return c->name ? mn_csv_reserve(c, r->room) : mn_fail(MN_NO_MEMORY, "no memory for %d columns", f->columns);
}

static mn_status take_text(struct reading *r, char *text, size_t length) {
  struct mn_csv_file *f = r->file;
  const int column = (int)r->field + (r->unnamed && r->row == 0);
  MN_TRY(check_text(r, text, length));
  while (length && (text[length - 1] == ' ' || text[length - 1] == '\n' || text[length - 1] == '\r'))
    text[--length] = 0;
  while (*text == ' ' || *text == '\n') text++, length--;
  if (r->row == 0 && r->field == 0 && r->unnamed) MN_TRY(add_column(r, ""));
  if (r->row == 0 && r->field == 0 && r->unnamed) MN_TRY(mn_csv_add(f->column, 0, "", f->decimal, r->room));
  if (r->row == 0) MN_TRY(add_column(r, text));
  return column < f->columns ? mn_csv_add(&f->column[column], r->row, text, f->decimal, r->room) : MN_OK;
}

static void take_field(void *text, size_t length, void *data) {
  struct reading *r = data;
  if (r->status == MN_OK && r->field == 0) r->begins = r->line;
  if (r->status == MN_OK) r->status = take_text(r, text, length);
  r->field++;
}

static void take_row(int end, void *data) {
  struct reading *r = data;
  struct mn_csv_file *f = r->file;
  const int64_t fields = r->field + (r->unnamed && r->row == 0);
  if (r->status == MN_OK && r->field && fields != f->columns)
    r->status = mn_fail(MN_BAD_DATA,
                        "%s: line %lld has %lld fields, but the first line %d: correct it, or take it out",
                        f->path, (long long)r->begins, (long long)r->field, f->columns - r->unnamed);
  r->row += r->field > 0;
  r->field = 0;
  r->line += end == '\n';
  if (r->row < r->room || r->status != MN_OK) return;
  r->room *= 2;
  for (int i = 0; i < f->columns && r->status == MN_OK; i++)
    r->status = mn_csv_reserve(&f->column[i], r->room);
}

/* ---- the header ---- */

/* Whether the first line has names: a text of it that is there only once, and is no number over numbers; or
 * the numbers from 0 on, as pandas names columns. */
static int is_header(const struct mn_csv_file *f, int64_t rows) {
  int texts = 0, fit = 0, counted = 0;
  for (int i = 0; i < f->columns; i++) {
    const struct mn_csv_column *c = &f->column[i];
    double value;
    const enum mn_csv_kind kind = mn_csv_value(c->name, f->decimal, &value);
    if (kind == MN_CSV_MISSING) continue;
    counted += kind == MN_CSV_NUMBER && value == texts;
    texts++;
    fit += (c->codes && c->texts[c->codes[0]].rows > 1) ||
           (kind != MN_CSV_WORD && 2 * (c->of_kind[kind] - 1) >= rows - 1 - c->of_kind[MN_CSV_MISSING]);
  }
  return fit < texts || (texts > 2 && counted == texts);
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
  f->header = header >= 0 ? header : is_header(f, rows);
  for (int i = 0; known && header < 0 && i < f->columns; i++) f->header |= known(names, f->column[i].name);
  f->rows = rows - f->header;
  for (int i = 0; i < f->columns; i++) {
    struct mn_csv_column *c = &f->column[i];
    double value;
    if (f->header && c->codes) c->texts[c->codes[0]].rows--;
    if (f->header) c->of_kind[mn_csv_value(c->name, f->decimal, &value)]--;
    if (f->header && *c->name) continue;
    c->unnamed = f->header;
    free(c->name);
    if (asprintf(&c->name, "%d", i + 1) < 0)
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
  MN_TRY(find_separator(f, *text, *length, &r->unnamed));
  if (line) f->separator = t[4];
  find_decimal(f, *text, *length);
  csv_set_delim(&r->parser, (unsigned char)f->separator);
  return MN_OK;
}

static mn_status read_all(struct reading *r, FILE *in, char *block) {
  struct mn_csv_file *f = r->file;
  size_t length;
  for (int64_t all = 0; (length = fread(block, 1, BLOCK, in)) > 0; all += (int64_t)length) {
    char *text = block;
    block[length] = 0;
    if (all == 0) MN_TRY(take_begin(r, &text, &length));
    if (csv_parse(&r->parser, text, length, take_field, take_row, r) != length)
      return mn_fail(MN_NO_MEMORY, "%s: no memory for line %lld", f->path, (long long)r->line);
    MN_TRY(r->status);
    mn_heartbeat_of("rows read", r->row, 0);
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
  FILE *in = fopen(path, "rb");
  if (!in) return mn_fail(MN_NO_INPUT, "%s: %s; name another file", path, strerror(errno));
  char *block = malloc(BLOCK + 1);
  mn_status status = block && csv_init(&r.parser, CSV_APPEND_NULL | CSV_REPALL_NL) == 0
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
