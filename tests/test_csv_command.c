/* A CSV through the command: it trains to the bytes of the same columns in HDF5; later files, whatever their columns' order, are
 * scored and predicted by the run's table; predictions are in the target's words. */
#include "tests/command_run.h"
#include "train/checkpoint/checkpoint.h"

enum { ROWS = 300, INPUTS = 7 };

static const char *const colours[] = {"blue", "green", "red"}, *const names[] = {"ant", "bee", "cat"};
static double x[ROWS][INPUTS]; /* a, b, whether b is missing, blue, green, red, sex */
static char labels[ROWS][4];
static int classes[ROWS];

/* Rows from … to − 1 without those of a class, in one of two orders of columns, with or without their kind. */
static void write_csv(const char *name, int from, int to, int class, int turned, int targets) {
  FILE *out = fopen(name, "w");
  assert_non_null(out);
  fprintf(out, turned ? "kind%.*s;id;sex;colour;b;a;new\n" : "a,b,colour,sex,id%.*s\n", targets ? 5 : 0,
          turned ? "" : ",kind");
  for (int n = from; n < to; n++) {
    char b[32] = "";
    if (class >= 0 && classes[n] == class) continue;
    if (x[n][2] == 0) snprintf(b, sizeof b, "%.17g", x[n][1]);
    const char *colour = colours[x[n][4] > 0 ? 1 : x[n][5] > 0 ? 2 : 0], *sex = x[n][6] > 0 ? "m" : "f";
    if (turned)
      fprintf(out, "%s;row %d;%s;%s;%s;%.17g;7\n", targets ? labels[n] : "", n, sex, colour, b, x[n][0]);
    else
      fprintf(out, targets ? "%.17g,%s,%s,%s,row %d,%s\n" : "%.17g,%s,%s,%s,row %d\n", x[n][0], b, colour,
              sex, n, labels[n]);
  }
  fclose(out);
}

/* The same columns, with the mean of the rows that `train` trains on: all. */
static void write_hdf5(void) {
  static double filled[ROWS][INPUTS];
  double mean = 0, present = 0;
  hid_t file = create_file("rows.h5"), text = H5Tcopy(H5T_C_S1);
  assert_true(H5Tset_size(text, sizeof labels[0]) >= 0);
  for (int n = 0; n < ROWS; n++)
    if (x[n][2] == 0) mean += x[n][1], present++;
  memcpy(filled, x, sizeof x);
  for (int n = 0; n < ROWS; n++)
    if (x[n][2] > 0) filled[n][1] = mean / present;
  put_dataset(file, "x", H5T_IEEE_F64LE, 2, (hsize_t[]){ROWS, INPUTS}, H5P_DEFAULT, H5T_NATIVE_DOUBLE,
              filled);
  put_dataset(file, "y", text, 1, (hsize_t[]){ROWS}, H5P_DEFAULT, text, labels);
  H5Tclose(text);
  done(file);
}

static int make_files(void **state) {
  if (set_up(state) != 0) return -1;
  uint64_t dice = 5;
  for (int n = 0; n < ROWS; n++) {
    for (int i = 0; i < INPUTS; i++) {
      dice = dice * 6364136223846793005u + 1442695040888963407u;
      x[n][i] = (double)(dice >> 33) / 2147483648.0 - 0.5;
    }
    const int colour = (int)((x[n][3] + 0.5) * 3);
    for (int k = 0; k < 3; k++) x[n][3 + k] = k == colour;
    x[n][6] = x[n][6] > 0;
    x[n][2] = x[n][2] > 0.4;
    classes[n] = x[n][0] + 0.2 * x[n][6] > 0.1 ? 0 : colour == 2 ? 1 : 2;
    strcpy(labels[n], names[classes[n]]);
  }
  write_csv("rows.csv", 0, ROWS, -1, 0, 1);
  write_csv("turned.csv", 0, ROWS, 1, 1, 1);
  write_csv("bare.tsv", 0, 40, -1, 1, 0);
  write_hdf5();
  return 0;
}

#define TRAIN "train --quiet --device cpu --hidden 32 --epochs 60 --data "

static void csv_trains_to_the_bytes_of_hdf5(void **state) {
  run_well(TRAIN "rows.csv --run csv");
  run_well(TRAIN "rows.h5 --run hdf5");
  run_well("diff csv hdf5");
  run_well("verify csv");
  run_well(TRAIN "rows.csv --run stopped --stop-at 50");
  run_well("train --quiet --run stopped --resume");
  run_well("diff csv stopped");
  run_well(TRAIN "rows.csv --run held --validation 0.2");
  assert_non_null(strstr(run_well("eval --device cpu --run held --data rows.csv")->err,
                         "rows: 60 of 300, those that the run held out"));
}

static double accuracy_of(const char *line) {
  const char *found = strstr(run_well(line)->out, "accuracy: ");
  assert_non_null(found);
  return atof(found + 10);
}

static void later_files_are_scored_by_the_runs_table(void **state) {
  assert_true(accuracy_of("eval --device cpu --run csv --data rows.csv") > 0.97);
  assert_true(accuracy_of("eval --device cpu --run csv --data turned.csv") > 0.97);
  assert_true(accuracy_of("eval --device cpu --run csv --data rows.h5") > 0.97);
  /* Rows that the run was trained on are known wherever they stand. */
  write_csv("first.csv", 0, 100, -1, 0, 1);
  assert_non_null(strstr(run_well("eval --device cpu --run csv --data first.csv")->err,
                         "rows: 100, of which 100 are rows that the run was trained on"));
  x[5][0] += 1, x[6][0] += 1;
  write_csv("first.csv", 0, 100, -1, 1, 1);
  x[5][0] -= 1, x[6][0] -= 1;
  assert_non_null(strstr(run_well("predict --device cpu --run csv --data first.csv --out x.h5")->err,
                         "rows: 100, of which 98 are rows"));
  const struct result *r = run_well("info csv");
  assert_non_null(strstr(r->out, "name colour"));
  assert_non_null(strstr(r->out, "[blue, green, red]"));
  r = run_well("info rows.csv --json");
  assert_non_null(strstr(r->out, "{\"note\":\"left out: id (more than 100 words)\"}"));
  r = run_well("train --device cpu --hidden 8 --steps 1 --data rows.csv");
  assert_non_null(strstr(r->err, "columns: 2 of numbers, 2 of words; target kind, 3 classes"));
}

/* The lines of a file; each is the caller's until the next call. */
static char **lines_of(const char *name, int *count) {
  static char text[1 << 16], *line[1000];
  FILE *in = fopen(name, "r");
  assert_non_null(in);
  text[fread(text, 1, sizeof text - 1, in)] = 0;
  fclose(in);
  *count = 0;
  for (char *l = strtok(text, "\n"); l; l = strtok(NULL, "\n")) line[(*count)++] = l;
  return line;
}

static void predictions_are_in_the_targets_words(void **state) {
  int count, right = 0;
  run_well("predict --device cpu --run csv --data bare.tsv --out out.csv --id id --probabilities");
  char **line = lines_of("out.csv", &count);
  assert_int_equal(count, 41);
  assert_string_equal(line[0], "id,kind,ant,bee,cat");
  for (int n = 0; n < 40; n++) {
    char kind[16];
    double p[3];
    int row;
    assert_int_equal(sscanf(line[n + 1], "row %d,%3s,%lf,%lf,%lf", &row, kind, p, p + 1, p + 2), 5);
    assert_int_equal(row, n);
    assert_true(fabs(p[0] + p[1] + p[2] - 1) < 1e-6);
    const int best = p[1] > p[0] ? p[2] > p[1] ? 2 : 1 : p[2] > p[0] ? 2 : 0;
    assert_string_equal(kind, names[best]);
    right += best == classes[n];
  }
  assert_true(right > 37);
  /* Numbers have 9 digits, days a date, and names what quotes they need. */
  FILE *days = fopen("days.csv", "w");
  fputs("a,\"b, \"\"c\"\"\",day\n", days);
  for (int n = 0; n < 60; n++) fprintf(days, "%d.5,%d,2024-03-%02d\n", n % 7, n * n % 11, 1 + n % 28);
  fclose(days);
  run_well(TRAIN "days.csv --run days");
  run_well("predict --device cpu --run days --data days.csv --out days-out.tsv");
  line = lines_of("days-out.tsv", &count);
  assert_string_equal(line[0], "row\tday");
  assert_true(strncmp(line[1], "0\t2024-03-", 10) == 0 && line[1][12] == 'T' && strlen(line[1]) == 21);
}

/* What becomes of rows without a target and of a single class is told. */
static void targets_that_tell_little_are_told(void **state) {
  write_text("gaps.csv", "a,y\n1.5,u\n2.5,\n3.5,v\n4.5,u\n5.5,v\n");
  const struct result *r =
      run_well("train --device cpu --hidden 8 --groups 2 --steps 2 --data gaps.csv --run gaps");
  assert_non_null(strstr(r->err, "missing: y 1 (the target: rows for predict alone)"));
  assert_non_null(strstr(r->err, "data: gaps.csv, 4 rows"));
  r = run_well("predict --device cpu --data gaps.csv --run gaps --out gaps-out.csv");
  assert_non_null(strstr(r->out, "gaps-out.csv: 5 rows"));
  write_text("numbers.csv", "a,y\n1.5,2\n-2.5,1\n3.5,2\n-4.5,1\n5.5,2\n-7,1\n");
  run_well(TRAIN "numbers.csv --run numbers");
  run_well("predict --device cpu --data numbers.csv --run numbers --out numbers-out.csv --probabilities");
  int count;
  char **line = lines_of("numbers-out.csv", &count);
  assert_string_equal(line[0], "row,y,0,1,2");
  for (int n = 0; n < 6; n++) assert_int_equal(atoi(strchr(line[n + 1], ',') + 1), n % 2 ? 1 : 2);
  for (int words = 0; words < 2; words++) {
    write_text("alone.csv", words ? "a,y\n1.5,u\n2.5,u\n3.5,u\n" : "a,y\n1.5,2\n2.5,2\n3.5,2\n");
    r = run_well("train --device cpu --hidden 8 --groups 2 --steps 2 --data alone.csv");
    assert_non_null(strstr(r->err, words ? "all rows to train on are of one class, u"
                                         : "all rows to train on are of one class, 2"));
  }
}

/* A first line of which a text is there only once, over numbers. */
static void a_doubtful_header_is_told(void **state) {
  char text[2000] = "adviser,125,256,7\n";
  for (int n = 0; n < 30; n++)
    snprintf(text + strlen(text), 60, "ibm%d,%d,%d,%d\n", n % 3, n * 7 % 11, n * 3 % 17, n * n % 13);
  write_text("machine.data", text);
  const struct result *r = run_well("train --device cpu --hidden 8 --groups 2 --steps 2 --data machine.data");
  assert_non_null(
      strstr(r->err, "the first line is taken for names, such as adviser; --header no takes it for a row"));
  r = run_well("train --device cpu --hidden 8 --groups 2 --steps 2 --data machine.data --header no");
  assert_non_null(strstr(r->err, "machine.data, 31 rows"));
  assert_null(strstr(r->err, "first line"));
}

static void what_does_not_go_together_is_refused(void **state) {
  static const struct {
    const char *line;
    int status;
    const char *words;
  } lines[] = {
      {TRAIN "rows.h5 --target y", 64, "--target is for a CSV, but rows.h5 is none"},
      {TRAIN "rows.h5 --header yes", 64, "--header is for a CSV, but rows.h5 is none"},
      {TRAIN "rows.csv --init csv --target colour", 64,
       "--target, but csv/checkpoint.h5 has its columns already"},
      {TRAIN "rows.csv --y kind", 64, "--y is for HDF5, but rows.csv is a CSV"},
      {TRAIN "rows.csv --loss mse", 65, "column kind, holds words, such as"},
      {TRAIN "rows.csv --target colour,a", 65, "column colour, holds words"},
      {"train --quiet --run csv --resume --target a", 64,
       "--target, but csv/checkpoint.h5 has its columns already"},
      {"eval --device cpu --run hdf5 --data rows.csv", 64,
       "was trained on HDF5, and knows no names of columns"},
      {"eval --device cpu --run csv --data bare.tsv", 65, "bare.tsv: no row has a target"},
      {"predict --device cpu --run csv --data rows.csv --out csv.h5 --id what", 64,
       "--id what: what is no column of rows.csv"},
      {"predict --device cpu --run csv --data rows.csv --out csv.h5 --id a,b", 64,
       "--id a,b: one column works"},
      {"predict --device cpu --run csv --data rows.csv --out new.h5 --id id", 64,
       "--id is for a CSV, but --out new.h5"},
      {"predict --device cpu --run csv --data days.csv --out new.h5", 65,
       "days.csv: holds no column b, an input"},
      {TRAIN "rows.csv --use a,id --drop id", 64,
       "--use id: of rows.csv this column cannot be an input: --drop"},
      {"predict --device cpu --run csv --data rows.h5 --out x.csv --id a", 64,
       "--id is for a CSV, but rows.h5 is none"},
      {"predict --device cpu --run csv --data rows.csv --out out.csv", 73, "--out out.csv exists; --force"},
      {"predict --device cpu --run csv --data rows.csv --out /proc/x.csv", 73, "/proc/x.csv"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    assert_complains(lines[i].line, run(lines[i].line), lines[i].status, lines[i].words);
}

/* Rows beyond six deviations are told and marked, rare words and what is within are not. */
static void rows_far_outside_are_told(void **state) {
  FILE *train = fopen("line.csv", "w");
  assert_non_null(train);
  fprintf(train, "a,colour,y\n");
  for (int n = 0; n < ROWS; n++)
    fprintf(train, "%.17g,%s,%.17g\n", x[n][0], n % 100 ? "red" : n ? "blue" : "green", 3 * x[n][0] + 5);
  fclose(train);
  /* x is uniform from -0.5 to 0.5: six deviations are 1.73. */
  write_text("far.csv", "colour,a\nred,0.4\nred,1000\nblue,0.1\nred,1.5\nred,-2\ngreen,0\nred,-1.5\n");
  run_well("train --quiet --device cpu --data line.csv --hidden 8 --run line");
  const struct result *r =
      run_well("predict --device cpu --run line --data far.csv --out far-out.csv --outside");
  assert_non_null(strstr(
      r->err,
      "2 of 7 rows lie 6 deviations or more from the mean of a column of the rows to train on, row 1 by 34"));
  FILE *out = fopen("far-out.csv", "r");
  char line[128];
  assert_non_null(out);
  for (int n = -1; fgets(line, sizeof line, out); n++)
    assert_string_equal(strrchr(line, ','), n < 0 ? ",outside\n" : n == 1 || n == 4 ? ",1\n" : ",0\n");
  fclose(out);
  r = run_well("predict --device cpu --run line --data far.csv --out far-out.h5 --outside");
  assert_non_null(strstr(r->out, "row, outside"));
  hid_t file = H5Fopen("far-out.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t set = H5Dopen2(file, "outside", H5P_DEFAULT);
  unsigned char marks[7];
  assert_true(H5Dread(set, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, marks) >= 0);
  assert_memory_equal(marks, ((unsigned char[]){0, 1, 0, 0, 1, 0, 0}), 7);
  H5Dclose(set), H5Fclose(file);
  r = run_well("predict --device cpu --run line --data line.csv --out line-out.csv");
  assert_null(strstr(r->err, "deviations"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(csv_trains_to_the_bytes_of_hdf5),
      cmocka_unit_test(later_files_are_scored_by_the_runs_table),
      cmocka_unit_test(predictions_are_in_the_targets_words),
      cmocka_unit_test(targets_that_tell_little_are_told),
      cmocka_unit_test(a_doubtful_header_is_told),
      cmocka_unit_test(rows_far_outside_are_told),
      cmocka_unit_test(what_does_not_go_together_is_refused),
  };
  return cmocka_run_group_tests(tests, make_files, tear_down);
}
