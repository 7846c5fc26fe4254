/* Labels that are words: text, bools and enums train as their numbers in order of bytes do; checkpoints keep
 * the names, by which other files are read. Integers that look like numbers need a word on what they are.
 * Rows of another file are all taken. */
#include "tests/command_run.h"
#include "tests/files_same.h"
#include "train/checkpoint/checkpoint.h"

enum { ROWS = 120, COLS = 3, CLASSES = 4, LONGEST = 63 };

/* In order of bytes: upper case, lower case, beyond ASCII. */
static const char *const words[CLASSES] = {"Zoo", "a word of two", "b", "\xc3\x84rger"};
static float x[ROWS][COLS];
static int classes[ROWS];

static hid_t text_type(size_t size) {
  hid_t type = H5Tcopy(H5T_C_S1);
  assert_true(H5Tset_size(type, size) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0);
  return type;
}

static hid_t enum_type(void) {
  hid_t type = H5Tenum_create(H5T_NATIVE_SHORT);
  for (short i = 0; i < CLASSES; i++) {
    const short value = (short)(7 - 3 * i); /* not in the order of names */
    assert_true(H5Tenum_insert(type, words[i], &value) >= 0);
  }
  return type;
}

enum kind { NUMBERS, FIXED, VARIABLE, ENUM, KINDS };

/* Rows first … end − 1, with labels of a kind. */
static void put_rows(hid_t file, const char *part, int first, int end, enum kind kind) {
  static char fixed[ROWS][16];
  static const char *variable[ROWS];
  static short members[ROWS];
  char name[64];
  for (int n = 0; n < ROWS; n++) {
    strcpy(fixed[n], words[classes[n]]);
    variable[n] = words[classes[n]];
    members[n] = (short)(7 - 3 * classes[n]);
  }
  const hsize_t sizes[] = {(hsize_t)(end - first), COLS};
  const void *values[] = {classes + first, fixed + first, variable + first, members + first};
  hid_t types[] = {H5Tcopy(H5T_NATIVE_INT), text_type(16), text_type(H5T_VARIABLE), enum_type()};
  snprintf(name, sizeof name, "%sx", part);
  put(file, name, H5T_NATIVE_FLOAT, 2, sizes, x[first]);
  snprintf(name, sizeof name, "%sy", part);
  put(file, name, types[kind], 1, sizes, values[kind]);
  for (int k = 0; k < KINDS; k++) H5Tclose(types[k]);
}

static void write_rows(const char *name, int first, int end, enum kind kind) {
  hid_t file = create_file(name);
  put_rows(file, "", first, end, kind);
  H5Fclose(file);
}

#define TRAIN "train --quiet --device cpu --hidden 8 --epochs 3 "

static void words_train_as_their_numbers_do(void **state) {
  static const char *const files[] = {"numbers.h5", "fixed.h5", "variable.h5", "enum.h5"};
  for (int k = 0; k < KINDS; k++) {
    char line[200];
    write_rows(files[k], 0, ROWS, (enum kind)k);
    snprintf(line, sizeof line, TRAIN "--validation 0.25 --data %s --run run-%d", files[k], k);
    run_well(line);
    struct mn_checkpoint *a, *b;
    assert_int_equal(mn_checkpoint_load(&a, "run-0/checkpoint.h5"), MN_OK);
    snprintf(line, sizeof line, "run-%d/checkpoint.h5", k);
    assert_int_equal(mn_checkpoint_load(&b, line), MN_OK);
    for (int i = 0; i < a->tensor_count; i++)
      assert_memory_equal(a->tensors[i].value, b->tensors[i].value,
                          (size_t)(a->tensors[i].rows * a->tensors[i].cols) * a->tensors[i].real);
    assert_int_equal(b->class_names.count, k ? CLASSES : 0);
    assert_int_equal(b->version, k ? 3 : 2);
    for (int i = 0; i < b->class_names.count; i++) assert_string_equal(b->class_names.names[i], words[i]);
    mn_checkpoint_free(a), mn_checkpoint_free(b);
  }
  run_well("diff run-1 run-2");
  run_well("verify run-2");
  assert_non_null(strstr(run_well("info run-2")->out, "classes: Zoo a word of two b \xc3\x84rger"));
}

static double loss_of(const char *line) {
  const char *at = strstr(run_well(line)->out, "\"loss\":");
  assert_non_null(at);
  return strtod(at + 7, NULL);
}

/* Files whose words are some of the model's, so that numbers of their own would be others. */
static void a_checkpoint_numbers_other_files(void **state) {
#define EVAL "eval --quiet --json --device cpu --run run-2 --data "
  int first = 0;
  while (classes[first] == 0 || classes[first + 1] == 0 || classes[first + 2] == 0) first++;
  write_rows("few.h5", first, first + 3, VARIABLE);
  write_rows("few-numbers.h5", first, first + 3, NUMBERS);
  assert_true(loss_of(EVAL "few.h5") ==
              loss_of("eval --quiet --json --device cpu --run run-0 --data few-numbers.h5"));
  assert_non_null(strstr(run_well(EVAL "few.h5")->out, "\"classes\":[\"Zoo\",\"a word of two\","));
  run_well("predict --quiet --device cpu --run run-2 --data few.h5 --out few-out.h5");
  int target[3];
  char names[CLASSES][64];
  hid_t file = H5Fopen("few-out.h5", H5F_ACC_RDONLY, H5P_DEFAULT), type = text_type(64);
  hid_t set = H5Dopen2(file, "target", H5P_DEFAULT), of_names = H5Dopen2(file, "classes", H5P_DEFAULT);
  assert_true(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, target) >= 0);
  assert_true(H5Dread(of_names, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, names) >= 0);
  H5Dclose(set), H5Dclose(of_names), H5Tclose(type), H5Fclose(file);
  for (int i = 0; i < 3; i++) assert_string_equal(names[target[i]], words[classes[first + i]]);
  run_well(TRAIN "--data few.h5 --init run-2 --lr 1e-9 --run tuned");
  assert_true(fabs(loss_of("eval --quiet --json --device cpu --run tuned --data few.h5") -
                   loss_of(EVAL "few.h5")) < 1e-4);
  assert_complains("eval", run("eval --device cpu --run run-0 --data few.h5"), 65,
                   "few.h5|row 0|none of the classes of run-0/checkpoint.h5 (numbers)");
}

/* The test part is numbered as the training part, of which it lacks a word; a stopped run goes on to the same
 * bytes, and a fork of it begins from there. */
static void parts_and_resumes_keep_the_numbers(void **state) {
  for (int all = 0; all < 2; all++) {
    hid_t file = create_file("parts.h5");
    put_rows(file, all ? "train/" : "test/", 0, ROWS, VARIABLE);
    put_rows(file, all ? "test/" : "train/", 1, 4, VARIABLE);
    H5Fclose(file);
    if (!all)
      assert_complains("train", run(TRAIN "--data parts.h5"), 65,
                       "parts.h5|test/y|none of the classes of its training part (words)");
  }
  run_well(TRAIN "--data parts.h5 --run whole");
  run_well(TRAIN "--data parts.h5 --run stopped --stop-at 5");
  run_well("train --quiet --device cpu --run stopped --resume");
  assert_same("whole/checkpoint.h5", "stopped/checkpoint.h5");
  write_rows("other/checkpoint.h5", 0, ROWS, VARIABLE);
  hid_t file = H5Fopen("other/checkpoint.h5", H5F_ACC_RDWR, H5P_DEFAULT),
        set = H5Dopen2(file, "y", H5P_DEFAULT);
  hid_t type = text_type(H5T_VARIABLE);
  const char *others[ROWS];
  for (int n = 0; n < ROWS; n++) others[n] = n == 17 ? "c" : words[1];
  assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, others) >= 0);
  H5Tclose(type), H5Dclose(set), H5Fclose(file);
  assert_complains("eval", run("eval --device cpu --run whole --data other/checkpoint.h5"), 65,
                   "other/checkpoint.h5|row 17|'c'|none of the classes of whole/checkpoint.h5 (words)");
}

/* `count` words as labels, each made by `word`. */
static void write_words(int count, void (*word)(char *text, int n)) {
  static char text[2048][LONGEST + 2];
  static float zeros[2048];
  const hsize_t rows = (hsize_t)count, sizes[] = {rows, 1};
  for (int n = 0; n < count; n++) memset(text[n], 0, sizeof *text), word(text[n], n);
  hid_t file = create_file("bad.h5"), type = text_type(sizeof *text);
  put(file, "x", H5T_NATIVE_FLOAT, 2, sizes, zeros);
  put(file, "y", type, 1, sizes, text);
  H5Tclose(type), H5Fclose(file);
}

static void refuse_words(int count, void (*word)(char *text, int n), const char *complaint) {
  write_words(count, word);
  assert_complains(complaint, run(TRAIN "--data bad.h5"), 65, complaint);
}

static void an_empty_one(char *text, int n) {
  if (n != 3) strcpy(text, "word");
}

static void a_long_one(char *text, int n) {
  memset(text, 'a', LONGEST + (n == 9));
}

static void each_another(char *text, int n) {
  snprintf(text, LONGEST, "%d", n);
}

static void two_of_them(char *text, int n) {
  strcpy(text, n % 3 ? "no" : "nan");
}

static void words_that_are_no_names_are_refused(void **state) {
  refuse_words(40, an_empty_one, "bad.h5|dataset y, row 3|0 bytes");
  refuse_words(40, a_long_one, "bad.h5|dataset y, row 9|64 bytes");
  refuse_words(1001, each_another, "bad.h5|dataset y|more than 1000|floats");
  assert_complains("mse", run(TRAIN "--loss mse --data fixed.h5"), 65, "fixed.h5|dataset y|string");
  write_words(30, two_of_them);
  const struct result *r = run_well("train --device cpu --hidden 8 --steps 1 --data bad.h5");
  assert_non_null(strstr(r->err, "note: a class is called nan: leave out these rows if"));
}

/* More than ten classes, and more than a tenth of the rows, or 1000. */
static void integers_may_be_numbers(void **state) {
  static int y[20001];
  static float zeros[20001];
  static const struct {
    int rows, largest, refused;
  } cases[] = {{90, 9, 0}, {90, 10, 1}, {200, 19, 0}, {200, 20, 1}, {20001, 999, 0}, {20001, 1000, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hsize_t sizes[] = {(hsize_t)cases[i].rows, 1};
    for (int n = 0; n < cases[i].rows; n++) y[n] = n % (cases[i].largest + 1), zeros[n] = (float)(n % 7);
    hid_t file = create_file("integers.h5");
    put(file, "x", H5T_NATIVE_FLOAT, 2, sizes, zeros);
    put(file, "y", H5T_NATIVE_INT, 1, sizes, y);
    H5Fclose(file);
    const char *line = "train --quiet --device cpu --hidden 8 --steps 2 --data integers.h5";
    if (cases[i].refused)
      assert_complains(line, run(line), 65, "integers.h5|--loss mse|floats|--loss cross-entropy");
    else
      run_well(line);
    run_well("train --quiet --device cpu --hidden 8 --steps 2 --data integers.h5 --loss cross-entropy");
  }
  run_well("train --quiet --device cpu --hidden 8 --steps 9 --data integers.h5 --loss mse --run as-numbers");
  const struct result *r = run_well("eval --device cpu --run as-numbers --data integers.h5");
  assert_non_null(strstr(r->out, "\nr2: "));
}

/* Names of columns that stand beside the rows, of which two may be the same. */
static void columns_have_names(void **state) {
  static const char fixed[COLS][8] = {"age", "size", "age"};
  const hsize_t cols = COLS, more = COLS - 1;
  for (int fits = 0; fits < 2; fits++) {
    write_rows("named.h5", 0, ROWS, NUMBERS);
    hid_t file = H5Fopen("named.h5", H5F_ACC_RDWR, H5P_DEFAULT), type = text_type(sizeof *fixed);
    put(file, "columns", type, 1, fits ? &cols : &more, fixed);
    H5Tclose(type), H5Fclose(file);
    const struct result *r = run_well("info named.h5 --json");
    assert_true(fits == (strstr(r->out, "{\"column\":1,\"name\":\"size\",") &&
                         strstr(r->out, "{\"column\":2,\"name\":\"age\",")));
  }
}

/* The other file has as many rows as the run's, which held a quarter out. */
static void rows_of_another_file_are_all_taken(void **state) {
#define ROWS_OF(file) "eval --device cpu --run run-0 --data " file
  assert_non_null(strstr(run_well(ROWS_OF("numbers.h5"))->out, "rows: 30\n"));
  x[ROWS - 1][0] += 1;
  write_rows("changed.h5", 0, ROWS, NUMBERS);
  const struct result *r = run_well(ROWS_OF("changed.h5"));
  assert_non_null(strstr(r->out, "rows: 120\n"));
  assert_non_null(strstr(r->err, "rows: 120, of which "));
  assert_complains("part", run(ROWS_OF("changed.h5 --part test")), 64, "changed.h5 has no test part");
  x[ROWS - 1][0] -= 1;
  write_rows("again.h5", 0, ROWS, NUMBERS);
  assert_non_null(strstr(run_well(ROWS_OF("again.h5"))->out, "rows: 30\n"));
}

/* The other file has as many rows and inputs, but more targets, so that values cannot be compared. */
static void targets_of_another_width_are_refused(void **state) {
  static float y[ROWS][2];
  for (int n = 0; n < ROWS; n++) y[n][0] = x[n][0], y[n][1] = x[n][1];
  for (hsize_t width = 1; width <= 2; width++) {
    const hsize_t sizes[] = {ROWS, COLS}, of_y[] = {ROWS, width};
    hid_t file = create_file(width == 1 ? "one.h5" : "two.h5");
    put(file, "x", H5T_NATIVE_FLOAT, 2, sizes, x);
    put(file, "y", H5T_NATIVE_FLOAT, 2, of_y, y);
    H5Fclose(file);
  }
  run_well(TRAIN "--data one.h5 --validation 0.25 --run one-run");
  const char *line = "eval --device cpu --run one-run --data two.h5";
  assert_complains(line, run(line), 65, "one-run/checkpoint.h5|two.h5|2 numbers");
}

/* Far more targets than inputs: a task reads by the wider of the two. */
static void wide_targets_are_read(void **state) {
  enum { MANY = 30000 };
  float *y = calloc((size_t)ROWS * MANY, sizeof *y);
  assert_non_null(y);
  for (int i = 0; i < ROWS * MANY; i++) y[i] = (float)(i % 17);
  const hsize_t sizes[] = {ROWS, 1}, of_y[] = {ROWS, MANY};
  hid_t file = create_file("wide.h5");
  put(file, "x", H5T_NATIVE_FLOAT, 2, sizes, x);
  put(file, "y", H5T_NATIVE_FLOAT, 2, of_y, y);
  H5Fclose(file);
  free(y);
  run_well("train --quiet --device cpu --hidden 4 --steps 1 --data wide.h5");
}

/* Words of weights without names, words that predict does not need, and names that differ. */
static void names_that_do_not_fit_are_told(void **state) {
  hid_t file = H5Fopen("run-0/checkpoint.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t weights = create_file("weights.h5");
  assert_true(H5Ocopy(file, "model", weights, "model", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(weights), H5Fclose(file);
  const char *line = "eval --device cpu --run weights.h5 --groups 2 --loss cross-entropy --data few.h5";
  assert_complains(line, run(line), 65, "few.h5|row 0|none of the classes of weights.h5 (numbers)");
  const struct result *r = run("predict --device cpu --run run-0 --data few.h5 --out unnamed.h5");
  assert_succeeds("predict", r);
  assert_non_null(strstr(r->err, "unnamed.h5 gets no target: few.h5: dataset y, row 0"));
  r = run("predict --device cpu --run whole --data other/checkpoint.h5 --out others.h5");
  assert_succeeds("predict", r);
  assert_non_null(strstr(r->err, "others.h5 gets no target: other/checkpoint.h5: dataset y, row 17"));
  r = run("diff run-0 run-2");
  assert_int_equal(r->status, 1);
  assert_non_null(strstr(r->out, "/classes"));
  assert_complains("head", run(TRAIN "--head 9 --data fixed.h5"), 64, "--head 9|4 words|--head 4");
}

/* ---- labels by their texts, drawn ---- */

enum { DRAWN = 60 };
static uint32_t seed = 1;
static int draw(int below) {
  return (int)((seed = seed * 1664525 + 1013904223) >> 8) % below;
}

/* Any text of the letters a, blank and zero, as a type of `size` bytes with this padding has it: padded, cut. */
static int read_as(char out[8], const char *bytes, int size, H5T_str_t padding) {
  int length = padding == H5T_STR_NULLTERM ? (int)strnlen(bytes, (size_t)size) : size;
  while (padding != H5T_STR_NULLTERM && length > 0 &&
         bytes[length - 1] == (padding == H5T_STR_SPACEPAD ? ' ' : 0))
    length--;
  memset(out, 0, 8);
  memcpy(out, bytes, (size_t)length);
  return length;
}

static int by_bytes(const void *a, const void *b) {
  return strcmp(a, b);
}

/* What padding is and what belongs to a text is said by the type; a zero within a text is refused with its row. */
static void padding_is_what_the_type_says(void **state) {
  int refused = 0, told = 0;
  for (int k = 0; k < DRAWN; k++) {
    const H5T_str_t padding = (H5T_str_t)draw(3);
    const int size = 2 + draw(3), rows = 6 + draw(20), few = draw(4) == 0;
    char y[32 * 4], names[32][8];
    int zero = -1, count = 0;
    for (int i = 0; i < rows * size; i++)
      y[i] = i % size == 0 ? 'a' : few && i >= size ? y[i % size] : "aa  b\0"[draw(6)];
    for (int n = 0; n < rows; n++) {
      const int length = read_as(names[n], y + n * size, size, padding);
      if (zero < 0 && memchr(names[n], 0, (size_t)length)) zero = n;
    }
    qsort(names, (size_t)rows, sizeof *names, by_bytes);
    for (int n = 0; n < rows; n++)
      if (n == 0 || strcmp(names[n], names[count - 1]) != 0) memmove(names[count++], names[n], sizeof *names);
    hid_t file = create_file("padded.h5"), type = text_type((size_t)size);
    assert_true(H5Tset_strpad(type, padding) >= 0);
    put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){(hsize_t)rows, COLS}, x);
    put(file, "y", type, 1, (hsize_t[]){(hsize_t)rows}, y);
    H5Tclose(type), H5Fclose(file);
    forget("padded-run");
    const char *line = "train --device cpu --hidden 8 --steps 1 --data padded.h5 --run padded-run";
    const struct result *r = run(line);
    char told_of[80];
    snprintf(told_of, sizeof told_of, "padded.h5: dataset y, row %d |a zero byte in it", zero);
    if (zero >= 0) {
      assert_complains(line, r, 65, told_of);
      refused++;
      continue;
    }
    assert_succeeds(line, r);
    assert_int_equal(strstr(r->err, "are of one class, ") != NULL, count == 1);
    told += count == 1;
    struct mn_checkpoint *c;
    assert_int_equal(mn_checkpoint_load(&c, "padded-run/checkpoint.h5"), MN_OK);
    assert_int_equal(c->class_names.count, count);
    for (int i = 0; i < count; i++) assert_string_equal(c->class_names.names[i], names[i]);
    mn_checkpoint_free(c);
  }
  assert_true(refused > 5 && told > 2 && refused + told < DRAWN - 5);
}

/* One way to store labels: integers, a text or an enum of the words for 0, 1 and 2. */
struct spelling {
  int kind; /* of `enum kind` */
  const char *words[3];
};
static const struct spelling spellings[] = {
    {NUMBERS, {"0", "1", "2"}},          {FIXED, {"0", "1", "2"}},
    {VARIABLE, {"0", "1", "2"}},         {ENUM, {"0", "1", "2"}},
    {ENUM, {"FALSE", "TRUE", NULL}},     {FIXED, {"FALSE", "TRUE", NULL}},
    {VARIABLE, {"FALSE", "TRUE", NULL}}, {FIXED, {"00", "01", "02"}},
    {ENUM, {"no", "yes", "other"}},      {VARIABLE, {"no", "yes", "other"}},
    {FIXED, {"no", "yes", "other"}}};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

/* The label's number for all spellings that are equal. */
static int same_label(const struct spelling *a, const struct spelling *b) {
  const char *x0 = a->words[0], *y0 = b->words[0];
  const int number_a = strcmp(x0, "0") == 0 || strcmp(x0, "FALSE") == 0;
  const int number_b = strcmp(y0, "0") == 0 || strcmp(y0, "FALSE") == 0;
  return strcmp(x0, y0) == 0 || (number_a && number_b);
}

static void write_spelled(const char *name, const struct spelling *s, const int *labels) {
  static char fixed[ROWS][8];
  static const char *variable[ROWS];
  static short members[ROWS];
  hid_t type = H5Tenum_create(H5T_NATIVE_SHORT);
  for (short i = 0; i < 3 && s->words[i]; i++) {
    const short value = (short)(5 - i);
    assert_true(H5Tenum_insert(type, s->words[i], &value) >= 0);
  }
  for (int n = 0; n < ROWS; n++) {
    variable[n] = s->words[labels[n]];
    memset(fixed[n], 0, sizeof fixed[n]);
    strcpy(fixed[n], variable[n]);
    members[n] = (short)(5 - labels[n]);
  }
  const void *values[] = {labels, fixed, variable, members};
  hid_t types[] = {H5Tcopy(H5T_NATIVE_INT), text_type(8), text_type(H5T_VARIABLE), type};
  hid_t file = create_file(name);
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, COLS}, x);
  put(file, "y", types[s->kind], 1, (hsize_t[]){ROWS}, values[s->kind]);
  for (int k = 0; k < KINDS; k++) H5Tclose(types[k]);
  H5Fclose(file);
}

/* A label is its text, and FALSE and TRUE are 0 and 1: over all pairs of kinds a file has the loss of the run's own
 * rows, or is refused by its first row that has none of the run's labels. */
static void labels_match_by_their_texts(void **state) {
  static int labels[ROWS];
  for (int n = 0; n < ROWS; n++) labels[n] = classes[n] % 2;
  for (int a = 0; a < SPELLINGS; a++) {
    char line[200];
    write_spelled("own.h5", &spellings[a], labels);
    forget("own-run");
    run_well(TRAIN "--data own.h5 --run own-run");
#define SCORE "eval --quiet --json --device cpu --run own-run --data "
    const double own = loss_of(SCORE "own.h5");
    for (int b = 0; b < SPELLINGS; b++) {
      write_spelled("their.h5", &spellings[b], labels);
      if (same_label(&spellings[a], &spellings[b])) {
        if (loss_of(SCORE "their.h5") != own) fail_msg("trained on spelling %d, file of %d", a, b);
      } else {
        snprintf(line, sizeof line,
                 "their.h5: dataset y, row 0 |'%s'|none of the classes of own-run/checkpoint.h5",
                 spellings[b].words[labels[0]]);
        assert_complains("eval", run(SCORE "their.h5"), 65, line);
      }
    }
  }
}

/* The test part is of another kind than the training part; and a label that no double has is not told as another. */
static void kinds_of_parts_may_differ(void **state) {
  static int labels[ROWS];
  static long wide[ROWS];
  for (int n = 0; n < ROWS; n++) labels[n] = classes[n] % 2, wide[n] = (1L << 53) + 1;
  double loss[2];
  for (int k = 0; k < 2; k++) {
    static char bools[ROWS][8];
    for (int n = 0; n < ROWS; n++) strcpy(bools[n], labels[n] ? "TRUE" : "FALSE");
    hid_t file = create_file("kinds.h5"), type = text_type(8);
    for (int part = 0; part < 2; part++) {
      put(file, part ? "test/x" : "train/x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, COLS}, x);
      put(file, part ? "test/y" : "train/y", part == k ? H5T_NATIVE_INT : type, 1, (hsize_t[]){ROWS},
          part == k ? (void *)labels : bools);
    }
    H5Tclose(type), H5Fclose(file);
    const char *out =
        run_well("train --quiet --json --device cpu --hidden 8 --epochs 3 --data kinds.h5")->out;
    loss[k] = strtod(strstr(out, "\"test_loss\":") + 12, NULL);
  }
  assert_true(loss[0] == loss[1]);
  hid_t file = create_file("wide-labels.h5");
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, COLS}, x);
  put(file, "y", H5T_NATIVE_LONG, 1, (hsize_t[]){ROWS}, wide);
  H5Fclose(file);
  assert_complains("wide", run(TRAIN "--data wide-labels.h5"), 65,
                   "row 0 (from 0) is 9007199254740992 or more");
}

static int set_up_rows(void **state) {
  if (set_up(state) != 0) return -1;
  uint32_t word = 3;
  for (int n = 0; n < ROWS; n++) {
    for (int c = 0; c < COLS; c++) x[n][c] = (float)((word = word * 1664525 + 1013904223) >> 8) / 8388608 - 1;
    classes[n] = (x[n][0] > 0) + 2 * (x[n][1] > 0);
  }
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_train_as_their_numbers_do),
      cmocka_unit_test(a_checkpoint_numbers_other_files),
      cmocka_unit_test(parts_and_resumes_keep_the_numbers),
      cmocka_unit_test(words_that_are_no_names_are_refused),
      cmocka_unit_test(names_that_do_not_fit_are_told),
      cmocka_unit_test(targets_of_another_width_are_refused),
      cmocka_unit_test(wide_targets_are_read),
      cmocka_unit_test(integers_may_be_numbers),
      cmocka_unit_test(columns_have_names),
      cmocka_unit_test(rows_of_another_file_are_all_taken),
      cmocka_unit_test(padding_is_what_the_type_says),
      cmocka_unit_test(labels_match_by_their_texts),
      cmocka_unit_test(kinds_of_parts_may_differ),
  };
  return cmocka_run_group_tests(tests, set_up_rows, tear_down);
}
