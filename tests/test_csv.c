/* CSV files: rows of drawn tables, written in every form that programs write them in, come back as they were; tables of examples
 * give the inputs and targets that stand beside them; a later file is read by the first one's columns; what cannot be read is
 * refused with its line. */
#include <time.h>
#include <unistd.h>

#include "data/csv/csv.h"
#include "data/dataset.h"
#include "tests/check.h"

#define FILE_NAME "/tmp/minnow-test-rows.csv"

static void write_text(const char *text, size_t length) {
  FILE *out = fopen(FILE_NAME, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(text, 1, length, out), length);
  fclose(out);
}

static const struct mn_csv_config plain = {0};

static struct mn_csv *open_csv(const char *text, const struct mn_csv_config *config) {
  struct mn_csv *csv;
  write_text(text, strlen(text));
  if (mn_csv_open(&csv, FILE_NAME, config) != MN_OK) fail_msg("%s: %s", text, mn_message());
  return csv;
}

static struct mn_dataset *open_rows(struct mn_csv *csv, int targets) {
  struct mn_dataset *d;
  if (mn_csv_rows(&d, csv, targets) != MN_OK || mn_csv_fill(csv, d) != MN_OK) fail_msg("%s", mn_message());
  return d;
}

/* All rows as text: inputs, a bar, targets. */
static const char *show(struct mn_dataset *d) {
  static char text[4096];
  double x[64], y[8];
  int32_t label;
  size_t used = 0;
  for (int64_t n = 0; n < d->rows; n++) {
    void *targets = d->outputs == 0 ? NULL : d->classes ? (void *)&label : y;
    if (d->read(d, n, 1, sizeof *x, x, targets) != MN_OK) fail_msg("%s", mn_message());
    for (int64_t i = 0; i < d->inputs; i++)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%.10g", i ? " " : n ? "; " : "", x[i]);
    for (int64_t k = 0; k < d->outputs && !d->classes; k++)
      used += (size_t)snprintf(text + used, sizeof text - used, " %s%.10g", k ? "" : "| ", y[k]);
    if (d->classes) used += (size_t)snprintf(text + used, sizeof text - used, " | %d", label);
    assert_true(used < sizeof text - 200);
  }
  return text;
}

static void expect(const char *text, const struct mn_csv_config *config, const char *rows) {
  struct mn_csv *csv = open_csv(text, config);
  struct mn_dataset *d = open_rows(csv, 1);
  if (strcmp(show(d), rows) != 0) fail_msg("%s is %s, not %s", text, show(d), rows);
  mn_dataset_close(d);
  mn_csv_close(csv);
}

static const struct {
  const char *text, *rows;
} examples[] = {
    /* with names, without, and by every separator */
    {"a,b,y\n1,2,3.5\n4,5,6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"1,2,3.5\n4,5,6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"a;b;y\n1;2;3.5\n4;5;6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"a\tb\ty\n1\t2\t3.5\n\n4\t5\t6.5", "1 2 | 3.5; 4 5 | 6.5"},
    {"a|b|y\r\n1|2|3.5\r\n4|5|6.5\r\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"a b, \"c,\td;\" ,y\n1,2,3.5\n4, 5 ,6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"2019,1st,y\n1,2,3.5\n4,5,6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"0,1,2\n1,2,3.5\n4,5,6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"5.1,3.5,setosa\n4.9,3,setosa\n7,3.2,virginica\n", "5.1 3.5 | 0; 4.9 3 | 0; 7 3.2 | 1"},
    {"p,x,s\ne,x,s\np,y,s\np,y,w\n", "1 0 | 0; 0 0 | 0; 1 1 | 0; 1 1 | 1"},
    {"2010,2011,2012\nx,u,1.5\ny,v,2.5\n", "0 0 | 1.5; 1 1 | 2.5"},
    /* numbers of rows, by pandas, by R's write.csv and write.table, and in a column of their own */
    {",a,y\n0,1,3.5\n1,4,6.5\n", "1 | 3.5; 4 | 6.5"},
    {"\"\",\"a\",\"y\"\n\"7\",1,3.5\n\"3\",4,6.5\n", "1 | 3.5; 4 | 6.5"},
    {"\"a\"\t\"b\"\t\"y\"\n\"Mazda RX4\"\t1\t2\t3.5\n\"Fiat 128\"\t4\t5\t6.5\n", "1 2 | 3.5; 4 5 | 6.5"},
    {"id,a,y\n1,1,3.5\n2,4,6.5\n3,1,2.5\n", "1 | 3.5; 4 | 6.5; 1 | 2.5"},
    {"1.5,a,7\n2.5,a,8\n3.5,b,9.5\n", "1.5 0 | 7; 2.5 0 | 8; 3.5 1 | 9.5"},
    {",0,1\n0,1,3.5\n1,4,6.5\n", "1 | 3.5; 4 | 6.5"},
    {"m1,y,m2\n1,0.5,7,\n3,1.5,8,\n9,2,9,\n", "1 0.5 | 7; 3 1.5 | 8; 9 2 | 9"},
    {"a,y\r5,2.5\r1,3.5\r", "5 | 2.5; 1 | 3.5"},
    {"a,b,y\n5\" pipe,\"x\" ,2.5\n3\" pipe,\"z\",3.5\n", "1 0 | 2.5; 0 1 | 3.5"},
    /* numbers as people and spreadsheets write them */
    {"\xef\xbb\xbf\"L\xc3\xa4nge, cm\";Breite;Art\r\n\"1,5\";2,25;\"Hund\"\r\n3,5;\"4,25\";\"Katze; "
     "klein\"\r\n0,5;7;Ara\r\n5;6;Hund\r\n;;\r\n",
     "1.5 2.25 | 1; 3.5 4.25 | 2; 0.5 7 | 0; 5 6 | 1"},
    {"sep=;\na;y\n1;2,5\n3;4,5\n", "1 | 2.5; 3 | 4.5"},
    {"a;b;c\n105;2,5;3,5\n115;2,5;1,5\n", "105 2.5 | 3.5; 115 2.5 | 1.5"},
    {"Datum;kg;y\n01.02.2020;1,234;2\n02.02.2020;0,500;3\n01.02.2020;2,750;4\n;;\n",
     "0 1.234 | 2; 1 0.5 | 3; 0 2.75 | 4"},
    {"l\tv\ty\n1,2,4\t0.250\t20\n1,2,5\t1.375\t30\n", "0 0.25 | 20; 1 1.375 | 30"},
    {"v;y\n1.000.000;1,5\n2.500.000;2,5\n", "1000000 | 1.5; 2500000 | 2.5"},
    {"v;w;y\n1,250,000;x;1.5\n2,500,000;z;2.5\n", "1250000 0 | 1.5; 2500000 1 | 2.5"},
    {"a;b;y\n1.234,5;x;1,5\n-2.345.678;y;2,5\n", "1234.5 0 | 1.5; -2345678 1 | 2.5"},
    {"a,y\n\"1,234.50\",\"$1,234\"\n$2.5,-$7\n12 %,\"\xe2\x82\xac 3\"\n1 000,4 \xe2\x82\xac\n1e3,+5\n",
     "1234.5 | 1234; 2.5 | -7; 12 | 3; 1000 | 4; 1000 | 5"},
    {"a,y\n16777217,123456789.25\n9007199254740993,1e-3\n0.1,.5\n",
     "16777217 | 123456789.2; 9.007199255e+15 | 0.001; 0.1 | 0.5"},
    /* days */
    {"day,y\n1970-01-02,1.5\n2024-02-29,2.5\n1969-12-31T12:00,3.5\n2000-03-01 "
     "06:00:00.000Z,4.5\n2000-03-01T00:00+06:00,4\n",
     "1 | 1.5; 19782 | 2.5; -0.5 | 3.5; 11017.25 | 4.5; 11016.75 | 4"},
    /* words, and what is missing */
    {"a,place,y\n1.5,\"Paris, France\",no\n2.5,Rome,None\n3.5,Rome,no\n4.5,,no\n",
     "1.5 0 0 | 1; 2.5 1 0 | 0; 3.5 1 0 | 1; 4.5 0.6666666667 1 | 1"},
    {"a,c,y\nNA,r,1\n2,g,0\n?,b,1\n4,b,\n6,,0\n",
     "4 1 0 0 1 | 1; 2 0 0 1 0 | 0; 4 1 1 0 0 | 1; 6 0 0 0 0 | 0"},
    {"a,b,y\n\"x \"\"1\"\"\",\"u\nv\",1.5\nz,w,2.5\n", "0 0 | 1.5; 1 1 | 2.5"},
    {"a,m,y\n5,True,yes\n2,False,no\n3,True,yes\n", "5 1 | 1; 2 0 | 0; 3 1 | 1"},
    /* targets */
    {"a,y\n1,3\n2,3\n3,4\n5,3.0\n4,4\n9,4\n", "1 | 3; 2 | 3; 3 | 4; 5 | 3; 4 | 4; 9 | 4"},
    {"a,y\n1,-1\n2,-1\n3,1\n5,+1\n4,1\n9,1\n", "1 | 0; 2 | 0; 3 | 1; 5 | 1; 4 | 1; 9 | 1"},
    {"a,y\n1,30\n2,70\n3,30.0\n5,70\n4,30\n9,7e1\n8,70\n7,30\n",
     "1 | 0; 2 | 1; 3 | 0; 5 | 1; 4 | 0; 9 | 1; 8 | 1; 7 | 0"},
    {"when,y\n2024-01-01T24:00,1.5\n2024-01-02T00:00:30+0130,2.5\n2024-01-02T00:00-01,3.5\n",
     "19724 | 1.5; 19723.93785 | 2.5; 19724.04167 | 3.5"},
    {"w,y\n2024-02-30,1.5\n2023-02-29,2.5\n", "1 | 1.5; 0 | 2.5"},
    {"a,y\n1,10\n2,20\n3,30\n5,40\n", "1 | 10; 2 | 20; 3 | 30; 5 | 40"},
    {"a,y\n1,10\n2,\n3,30\n5,40\n", "1 | 10; 3 | 30; 5 | 40"},
    {"a,y\n1,1\n2,\n3,0\n5,1\n4,?\n8,0\n", "1 | 1; 3 | 0; 5 | 1; 8 | 0"},
};

static void examples_are_read(void **state) {
  for (size_t i = 0; i < COUNT(examples); i++) expect(examples[i].text, &plain, examples[i].rows);
}

static void configs_are_followed(void **state) {
  const char *text = "id,a,b,y\n1,5,r,1\n2,6,g,0\n3,7,r,1\n4,8,g,0\n";
  struct mn_csv_config c = plain;
  c.target = "a";
  expect(text, &c, "1 1 | 5; 0 0 | 6; 1 1 | 7; 0 0 | 8");
  c.use = "id";
  expect(text, &c, "1 1 1 | 5; 2 0 0 | 6; 3 1 1 | 7; 4 0 0 | 8");
  c = plain, c.target = "y,a";
  expect(text, &c, "1 | 5 1; 0 | 6 0; 1 | 7 1; 0 | 8 0");
  c = plain, c.drop = "y";
  expect(text, &c, "5 | 1; 6 | 0; 7 | 1; 8 | 0");
  c = plain, c.numbers = 1;
  expect(text, &c, "5 1 | 1; 6 0 | 0; 7 1 | 1; 8 0 | 0");
  c = plain, c.header = -1, c.numbers = -1;
  expect("a,1.5\na,2.5\nb,1.5\n", &c, "0 | 0; 0 | 1; 1 | 0");
  c = plain, c.header = 1;
  expect("1,2\n3,4.5\n5,6.5\n", &c, "3 | 4.5; 5 | 6.5");
}

/* The texts of a column, of which there are too many to be kept as words, by its name, its number or "unnamed 1". */
static void ids_are_kept(void **state) {
  static const char *const names[][2] = {{"key", "key"}, {"", "unnamed 1"}, {NULL, "1"}};
  for (size_t k = 0; k < COUNT(names); k++) {
    static char text[60000];
    size_t used = names[k][0] ? (size_t)sprintf(text, "%s,a,y\n", names[k][0]) : 0;
    for (int n = 0; n < 1500; n++)
      used += (size_t)sprintf(text + used, "\" n, %d\",%d.5,%d\n%s", n, n % 7, n % 2, n % 50 ? "" : ",,\n");
    struct mn_csv_config c = plain;
    c.id = names[k][1], c.header = names[k][0] ? 1 : -1;
    struct mn_csv *csv = open_csv(text, &c);
    for (int n = 0; n < 1500; n++) {
      char wanted[16];
      snprintf(wanted, sizeof wanted, "n, %d", n);
      assert_string_equal(mn_csv_id(csv, n), wanted);
    }
    char *table;
    assert_int_equal(mn_csv_table(&table, csv), MN_USAGE); /* nothing stands for missing values yet */
    assert_null(mn_csv_id(csv, -1));
    assert_null(mn_csv_id(csv, 1500 + 30));
    mn_csv_close(csv);
  }
}

/* A line that names what is wrong, and the exit code. */
static void refuses_bytes(const char *text, size_t length, const struct mn_csv_config *config,
                          mn_status wanted, const char *words) {
  struct mn_csv *csv = NULL;
  struct mn_dataset *d = NULL;
  write_text(text, length);
  mn_status status = mn_csv_open(&csv, FILE_NAME, config);
  if (status == MN_OK) status = mn_csv_rows(&d, csv, 1);
  if (status != wanted || !strstr(mn_message(), words) || !strstr(mn_message(), FILE_NAME))
    fail_msg("%s: %d, %s; not %s", text, status, mn_message(), words);
  mn_dataset_close(d);
  mn_csv_close(csv);
}

static void refuses(const char *text, const struct mn_csv_config *config, mn_status wanted,
                    const char *words) {
  refuses_bytes(text, strlen(text), config, wanted, words);
}

static void bad_files_are_refused_by_line(void **state) {
  static const char zero[] = "a,y\n1,2\n3,\0\n";
  static const struct {
    const char *text, *words;
  } files[] = {
      {"", "no line"},
      {"\n\n", "no line"},
      {"a,y\n", "no row"},
      {"a,y\n1,2\n3\n", "line 3 has 1 fields, but the first line 2"},
      {"a,y\r1,2\r3\r", "line 3 has 1 fields"},
      {"a,y\r\n1,2\r\n\r\n3\r\n", "line 4 has 1 fields"},
      {"t,v,y\n\"a \\\"b\\\"\",2,2.5\nc,3,3.5\n", "line 2, field 1: a text goes on behind its closing quote"},
      {"PK\3\4,,", "is no text, but a file of Excel"},
      {"a,y\n\n1,\"2\n2\"\n3,4,5\n", "line 5 has 3 fields"},
      {"# mine\na,y\n1,2\n2,3\n", "line 2 has 2 fields, but the first line 1"},
      {"a,y\n1,2\n#end\n", "line 3 has 1 fields"},
      {"a,y\n1,2\n3,\"4\n5,6\n", "field 2 of line 3 begins with a quote that is not closed"},
      {"a,y\n1,2\nb\xe9,3\n", "line 3, field 1 has the byte 0xe9"},
      {"\xff\xfe"
       "a",
       "UTF-16"},
      {"a,a\n1,2\n", "two columns are called a"},
      {"a\n1\n2\n", "no column is an input beside the target, a"},
      {"a,y\n1,\n2,?\n", "the target, column y, is empty"},
  };
  for (size_t i = 0; i < COUNT(files); i++) refuses(files[i].text, &plain, MN_BAD_DATA, files[i].words);
  refuses_bytes(zero, sizeof zero - 1, &plain, MN_BAD_DATA, "line 3, field 2 has the byte 0x00");
  struct mn_csv_config c = plain;
  c.target = "y,z";
  refuses("a,y\n1,2\n", &c, MN_USAGE, "--target y,z: z is no column of");
  c.target = "y,a";
  refuses("a,b,y\n1,2,x\n2,3,z\n", &c, MN_BAD_DATA, "the target, column y, holds words, such as x");
  struct mn_csv *csv;
  unlink(FILE_NAME);
  assert_int_equal(mn_csv_open(&csv, FILE_NAME, &plain), MN_NO_INPUT);
  assert_null(csv);
}

static void later_files_are_read_by_name(void **state) {
  struct mn_csv *csv =
      open_csv("a,c,s,when,y\n1,r,m,2024-01-01,ant\n,g,f,2024-01-02,bee\n3,b,m,2024-01-03,cat\n", &plain);
  struct mn_dataset *d = open_rows(csv, 1);
  struct mn_csv_config c = plain;
  char *table;
  assert_string_equal(show(d), "1 0 0 0 1 1 19723 | 0; 2 1 0 1 0 0 19724 | 1; 3 0 1 0 0 1 19725 | 2");
  assert_int_equal(mn_csv_table(&table, csv), MN_OK);
  mn_dataset_close(d);
  mn_csv_close(csv);
  c.table = table;
  /* another order, fewer words, one that is new, a column more, nothing known of a number */
  expect("when,y,new,c,a,s\n2024-01-03,cat,7,b,5,f\n2024-01-02,bee,8,violet,x,d\n", &c,
         "5 0 1 0 0 0 19725 | 2; 2 1 0 0 0 0.6666666667 19724 | 1");
  csv = open_csv("c,a,s,when\nr,5,m,\nr,6,m,\n", &c);
  d = open_rows(csv, 0);
  assert_string_equal(show(d), "5 0 0 0 1 1 19724; 6 0 0 0 1 1 19724");
  mn_dataset_close(d);
  assert_int_equal(mn_csv_rows(&d, csv, 1), MN_BAD_DATA);
  assert_non_null(strstr(mn_message(), "holds no column y, the target"));
  mn_csv_close(csv);
  refuses("a,s,when,y\n1,m,2024-01-01,ant\n", &c, MN_BAD_DATA, "holds no column c");
  refuses("a,c,s,when,y\n1,r,m,2024-01-01,dog\n", &c, MN_BAD_DATA, "row 0 (from 0) of column y is 'dog'");
  free(table);
  static const char *const broken[] = {
      "",
      "{}",
      "[]",
      "[1]",
      "[{\"name\":\"a\",\"kind\":\"number\"}]",
      "[{\"name\":\"a\",\"kind\":\"what\",\"mean\":0}]",
      "[{\"name\":\"a\",\"kind\":\"words\",\"mean\":0,\"words\":[]}]",
      "[{\"name\":\"a\",\"kind\":\"words\",\"mean\":0,\"words\":[\"b\",\"a\"]}]"};
  for (size_t i = 0; i < COUNT(broken); i++) {
    c.table = broken[i];
    assert_int_equal(mn_csv_open(&csv, FILE_NAME, &c), MN_BAD_DATA);
  }
}

/* ---- drawn tables ---- */

enum { MOST_ROWS = 3000, MOST_COLUMNS = 6 };

struct table {
  int rows, columns, kinds[MOST_COLUMNS]; /* 0: numbers, 1: whole numbers, 2: words, 3: days */
  double values[MOST_ROWS][MOST_COLUMNS]; /* NaN: missing */
};

static uint32_t dice(uint64_t *state, uint32_t sides) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % sides;
}

static void draw_table(struct table *t, uint64_t *seed) {
  t->rows = 20 + (int)dice(seed, dice(seed, 4) ? 40 : MOST_ROWS - 20);
  t->columns = 2 + (int)dice(seed, MOST_COLUMNS - 1);
  const int gaps = (int)dice(seed, 2);
  for (int c = 0; c < t->columns; c++) t->kinds[c] = c + 1 < t->columns ? (int)dice(seed, 4) : 0;
  for (int n = 0; n < t->rows; n++)
    for (int c = 0; c < t->columns; c++) {
      const int last = c + 1 == t->columns;
      double v = (int)dice(seed, 2000000000) - 1000000000;
      if (t->kinds[c] == 0) v /= pow(10, dice(seed, 12));
      if (t->kinds[c] == 2) v = n < 3 ? n : (int)dice(seed, 3);
      if (t->kinds[c] == 3) v = (int)dice(seed, 40000) - 10000;
      t->values[n][c] = gaps && !last && n > 3 && dice(seed, 10) == 0 ? NAN : v;
    }
}

static void put_value(FILE *out, const struct table *t, int n, int c, char decimal, int quotes,
                      char separator) {
  static const char *const words[] = {"blue", "dark red", "gr\xc3\xbcn"}, *const gaps[] = {"", "NA", "?",
                                                                                           "NaN"};
  char text[64], *point;
  const double v = t->values[n][c];
  if (isnan(v)) {
    snprintf(text, sizeof text, "%s", gaps[n % 4]);
  } else if (t->kinds[c] == 2) {
    snprintf(text, sizeof text, "%s%s", words[(int)v], quotes && v == 1 ? "; or \"\"so\"\",\tyes" : "");
  } else if (t->kinds[c] == 3) {
    const time_t seconds = (time_t)v * 86400;
    strftime(text, sizeof text, "%Y-%m-%d", gmtime(&seconds));
  } else {
    snprintf(text, sizeof text, "%.17g", v);
    if ((point = strchr(text, '.'))) *point = decimal;
  }
  fprintf(out, quotes || (decimal == separator && strchr(text, decimal)) ? "\"%s\"" : "%s", text);
}

static void write_table(const struct table *t, uint64_t *seed) {
  static const char separators[] = ",;\t|";
  const char separator = separators[dice(seed, 4)];
  const char decimal = (separator == ';' || separator == '\t') && dice(seed, 2) ? ',' : '.';
  const int quotes = (int)dice(seed, 2), header = (int)dice(seed, 3), index = header && dice(seed, 3) == 0;
  const char *end = dice(seed, 3) ? "\n" : "\r\n";
  FILE *out = fopen(FILE_NAME, "wb");
  assert_non_null(out);
  if (dice(seed, 4) == 0) fputs("\xef\xbb\xbf", out);
  for (int n = header ? -1 : 0; n < t->rows; n++) {
    if (index && n >= 0) fprintf(out, "%d", n);
    for (int c = 0; c < t->columns; c++) {
      if (c || index) fputc(separator, out);
      if (n < 0)
        fprintf(out, quotes ? "\"name %d, %c\"" : "name%d%c", c, 'a' + c);
      else
        put_value(out, t, n, c, decimal, quotes, separator);
    }
    if (n + 1 < t->rows || dice(seed, 2)) fputs(end, out);
    if (dice(seed, 50) == 0 && n >= 0) fputs(end, out);
  }
  fclose(out);
}

/* The input of a column from its own values; *at moves behind it. */
static void check_inputs(const struct table *t, int n, int c, const double *x, int *at, uint64_t seed) {
  const double v = t->values[n][c];
  double mean = 0, present = 0, wanted = v;
  if (t->kinds[c] == 2) {
    for (int k = 0; k < 3; k++)
      if (x[(*at)++] != (v == k))
        fail_msg("MINNOW_SEED=%lu: row %d, column %d, word %d", (unsigned long)seed, n, c, k);
    return;
  }
  for (int i = 0; i < t->rows; i++)
    if (!isnan(t->values[i][c])) mean += t->values[i][c], present++;
  const int gaps = (t->rows - present) * 100 > t->rows;
  if (isnan(v)) wanted = mean / present;
  if (!(fabs(x[*at] - wanted) <= (isnan(v) ? 1e-9 * fabs(wanted) + 1e-9 : 0)) ||
      (gaps && x[*at + 1] != isnan(v)))
    fail_msg("MINNOW_SEED=%lu: row %d, column %d is %.17g, not %.17g", (unsigned long)seed, n, c, x[*at],
             wanted);
  *at += 1 + gaps;
}

static void drawn_tables_come_back(void **state) {
  static struct table t;
  const char *first = getenv("MINNOW_SEED");
  const uint64_t seeds = first || quick() ? 20 : 300, from = first ? strtoull(first, NULL, 10) : 0;
  for (uint64_t s = from; s < from + seeds; s++) {
    uint64_t seed = s * 77 + 5;
    struct mn_csv *csv;
    struct mn_csv_config c = plain;
    double x[64], y;
    draw_table(&t, &seed);
    write_table(&t, &seed);
    c.numbers = 1;
    if (mn_csv_open(&csv, FILE_NAME, &c) != MN_OK)
      fail_msg("MINNOW_SEED=%lu: %s", (unsigned long)s, mn_message());
    struct mn_dataset *d = open_rows(csv, 1);
    assert_int_equal(d->rows, t.rows);
    for (int n = 0; n < t.rows; n += 1 + t.rows / 50) {
      int at = 0;
      assert_int_equal(d->read(d, n, 1, sizeof *x, x, &y), MN_OK);
      for (int i = 0; i + 1 < t.columns; i++) check_inputs(&t, n, i, x, &at, s);
      if (at != d->inputs || y != t.values[n][t.columns - 1])
        fail_msg("MINNOW_SEED=%lu: row %d has %d inputs of %ld, target %g", (unsigned long)s, n, at,
                 (long)d->inputs, y);
    }
    mn_dataset_close(d);
    mn_csv_close(csv);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(examples_are_read),
      cmocka_unit_test(configs_are_followed),
      cmocka_unit_test(ids_are_kept),
      cmocka_unit_test(bad_files_are_refused_by_line),
      cmocka_unit_test(later_files_are_read_by_name),
      cmocka_unit_test(drawn_tables_come_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
