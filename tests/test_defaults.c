/* The defaults of train on data that nobody prepared for them: no run ends non-finite, and after three epochs
 * a run is about as good as the best of eight settings that a user might have found: its test loss at most
 * twice the best, its accuracy within half a point.
 *
 * Without arguments one row of the table for each kind of data, which fails if the defaults miss. With the
 * argument "all", as `make defaults` calls it, the whole table, as tests/RESULTS.md has it; with a kind's
 * name that kind's rows. */
#include "tests/command_run.h"

enum { ROWS = 12288, TEST = 4096, MOST = 784, TARGETS = 3, SIDE = 8, IMAGE = 28, SEEDS = 3 };
enum { DIGITS = 1437, TEST_DIGITS = 360, TRAINED = 1200 }; /* digits in the file; those that are trained on */

static const char *const settings[] = {
    "", /* the defaults */
    "--optimizer sgd --lr 0.05 --warmup 0",
    "--optimizer sgd --lr 0.05 --warmup 100",
    "--optimizer sgd --lr 0.05 --warmup 100 --clip 1",
    "--optimizer sgd --lr 0.02 --warmup 100 --schedule cosine",
    "--optimizer sgd --lr 0.05 --warmup 100 --schedule cosine --clip 1",
    "--optimizer adamw --lr 0.003 --beta2 0.999 --warmup 50 --schedule cosine",
    "--optimizer adamw --lr 0.01 --beta2 0.999 --warmup 100 --schedule cosine",
    "--optimizer adamw --lr 0.01 --beta2 0.999 --warmup 100 --schedule cosine --clip 1",
};
static const char *const widths[] = {"64", "256", "256,256", "512,512,512"};
enum { SETTINGS = sizeof settings / sizeof *settings, WIDTHS = sizeof widths / sizeof *widths };

static float x[ROWS + TEST][MOST], targets[ROWS + TEST][TARGETS];
static int32_t labels[ROWS + TEST];
static float digits[DIGITS + TEST_DIGITS][SIDE * SIDE];
static int32_t digit_labels[DIGITS + TEST_DIGITS];
static uint64_t word = 1;

static double uniform(void) {
  word = word * 6364136223846793005u + 1442695040888963407u;
  return (double)(word >> 11) / 9007199254740992.0;
}

static double normal(void) {
  return sqrt(-2 * log(1 - uniform())) * cos(2 * M_PI * uniform());
}

/* ---- the kinds of data: each fills the rows, and returns the number of inputs ---- */

static int regression(void) {
  for (int n = 0; n < ROWS + TEST; n++) {
    float *v = x[n];
    for (int i = 0; i < 32; i++) v[i] = (float)normal();
    targets[n][0] = (float)(sin(v[0]) + 0.5 * v[1] * v[2] + 0.05 * normal());
    targets[n][1] = (float)(tanh(v[3] + v[4]) + 0.3 * v[5] * v[5] + 0.05 * normal());
    targets[n][2] = (float)(cos(v[6]) * v[7] + 0.5 * v[8] + 0.05 * normal());
  }
  return 32;
}

/* The same, as columns of other units: scales from 10⁻² to 10² and means of up to 100 deviations. */
static int scales(void) {
  const int inputs = regression();
  for (int i = 0; i < inputs; i++) {
    const double scale = pow(10, 4.0 * i / (inputs - 1) - 2), mean = i % 4 ? 0 : 100 * (2 * uniform() - 1);
    for (int n = 0; n < ROWS + TEST; n++) x[n][i] = (float)(scale * (x[n][i] + mean));
  }
  return inputs;
}

/* Five classes, of 75, 15, 6, 3 and 1 % of the rows, each of three clusters that overlap with others. */
static int classes(void) {
  static const double upto[] = {0.75, 0.9, 0.96, 0.99, 1};
  static float centre[5][3][20];
  for (int i = 0; i < 5 * 3 * 20; i++) (&centre[0][0][0])[i] = (float)(0.9 * normal());
  for (int n = 0; n < ROWS + TEST; n++) {
    const double which = uniform();
    int label = 0;
    while (which > upto[label]) label++;
    const float *from = centre[label][(int)(3 * uniform())];
    for (int i = 0; i < 20; i++) x[n][i] = (float)(from[i] + normal());
    labels[n] = label;
  }
  return 20;
}

/* The digits three times as large, moved about in 28 × 28 pixels from 0 to 1, with noise. */
static int images(void) {
  for (int n = 0; n < ROWS + TEST; n++) {
    /* No digit is both trained on and tested on. */
    const int first = n < ROWS ? 0 : TRAINED, count = n < ROWS ? TRAINED : DIGITS + TEST_DIGITS - TRAINED;
    const int from = first + (int)(uniform() * count);
    const int down = (int)(uniform() * 5), right = (int)(uniform() * 5);
    for (int i = 0; i < IMAGE * IMAGE; i++) {
      const int row = i / IMAGE - down, col = i % IMAGE - right;
      const int inside = row >= 0 && row < 3 * SIDE && col >= 0 && col < 3 * SIDE;
      const float pixel = inside ? digits[from][row / 3 * SIDE + col / 3] : 0;
      const double noisy = pixel + 0.1 * normal();
      x[n][i] = (float)fmin(fmax(noisy, 0), 1);
    }
    labels[n] = digit_labels[from];
  }
  return IMAGE * IMAGE;
}

static const struct {
  const char *name, *options;
  int (*fill)(void);
  int has_classes;
} kinds[] = {{"regression", "", regression, 0},
             {"classes", "", classes, 1},
             {"images", "", images, 1},
             {"scales", "--standardize", scales, 0}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void write_kind(int kind) {
  word = 1 + (uint64_t)kind;
  const hsize_t inputs = (hsize_t)kinds[kind].fill();
  float *packed = malloc((ROWS + TEST) * inputs * sizeof *packed);
  assert_non_null(packed);
  for (int n = 0; n < ROWS + TEST; n++) memcpy(packed + (hsize_t)n * inputs, x[n], inputs * sizeof *packed);
  hid_t file = create_file("kind.h5");
  for (int test = 0; test < 2; test++) {
    const hsize_t first = test ? ROWS : 0, rows = test ? TEST : ROWS;
    put(file, test ? "test/x" : "train/x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){rows, inputs},
        packed + first * inputs);
    if (kinds[kind].has_classes)
      put(file, test ? "test/y" : "train/y", H5T_NATIVE_INT32, 1, &rows, labels + first);
    else
      put(file, test ? "test/y" : "train/y", H5T_NATIVE_FLOAT, 2, (hsize_t[]){rows, TARGETS}, targets[first]);
  }
  H5Fclose(file);
  free(packed);
}

static double number_in(const char *text, const char *key) {
  const char *at = strstr(text, key);
  return at ? strtod(at + strlen(key), NULL) : NAN;
}

/* The run's test loss, or of classes the share that is classified wrongly: infinite if training diverged. */
static double error_of(int kind, const char *width, const char *setting, int seed) {
  char line[512];
  snprintf(line, sizeof line,
           "train --device cpu --quiet --json --data kind.h5 --hidden %s --epochs 3 --seed %d %s %s", width,
           seed, kinds[kind].options, setting);
  const struct result *r = run(line);
  if (r->status == 1) return INFINITY;
  assert_succeeds(line, r);
  const double found = kinds[kind].has_classes ? 1 - number_in(r->out, "\"test_accuracy\":")
                                               : number_in(r->out, "\"test_loss\":");
  return isfinite(found) ? found : INFINITY;
}

/* One row of the table: errors[s] of each setting. Returns whether the defaults are good. */
static int row_of(int kind, const char *width, int seed, double errors[SETTINGS]) {
  double best = INFINITY;
  for (int s = 0; s < SETTINGS; s++) errors[s] = error_of(kind, width, settings[s], seed);
  for (int s = 1; s < SETTINGS; s++) best = fmin(best, errors[s]);
  return kinds[kind].has_classes ? errors[0] <= best + 0.005 : errors[0] <= 2 * best;
}

static void print_row(int kind, const char *width, int seed, const double errors[SETTINGS], int good) {
  printf("| %s | %s | %d |", kinds[kind].name, width, seed);
  for (int s = 0; s < SETTINGS; s++)
    if (kinds[kind].has_classes && isfinite(errors[s]))
      printf(" %.2f %% |", 100 * (1 - errors[s]));
    else
      printf(isfinite(errors[s]) ? " %.4f |" : " diverged |", errors[s]);
  printf(" %s |\n", good ? "yes" : "**no**");
  fflush(stdout);
}

/* ---- the test, and the table ---- */

static void defaults_train(void **state) {
  const int kind = (int)(intptr_t)*state;
  double errors[SETTINGS];
  if (kind > 0 && getenv("MINNOW_QUICK")) SKIP("quick: a run of each setting");
  write_kind(kind);
  const int good = row_of(kind, widths[0], 0, errors);
  if (!good) print_row(kind, widths[0], 0, errors, good);
  assert_true(good);
}

static void assert_says(const struct result *r, const char *words) {
  if (!strstr(r->err, words)) fail_msg("no '%s' in '%s'", words, r->err);
}

#define FIRST "train --device cpu --data kind.h5 --hidden 64 --epochs 1 "

/* What a first run is told: what it trains and how, and that nothing was saved. */
static void a_run_says_what_it_is(void **state) {
  write_kind(0);
  const struct result *r = run(FIRST);
  assert_succeeds(FIRST, r);
  assert_says(
      r,
      "model: 32 inputs, blocks of 64 channels in 8 groups, a head of 3, mse of 3 targets; 2435 parameters");
  assert_says(r, "training: adamw, rate 0.007, weight decay 0.365, cosine after 38 steps of warm-up; 384 "
                 "steps of 32 rows, 1.00 epochs");
  assert_says(r, "the model is not saved without --run DIR");
  r = run(FIRST "--optimizer sgd --run saved");
  assert_says(r, "training: sgd, rate 0.05, constant after 38 steps");
  assert_null(strstr(r->err, "not saved"));
}

static int print_table(const char *only) {
  int missed = 0;
  for (int kind = 0; kind < KINDS; kind++) {
    if (strcmp(only, "all") != 0 && strcmp(only, kinds[kind].name) != 0) continue;
    write_kind(kind);
    for (int w = 0; w < WIDTHS; w++)
      for (int seed = 0; seed < SEEDS; seed++) {
        double errors[SETTINGS];
        const int good = row_of(kind, widths[w], seed, errors);
        print_row(kind, widths[w], seed, errors, good);
        missed += !good;
      }
  }
  printf("rows in which the defaults miss: %d\n", missed);
  return missed != 0;
}

static void read_digits(void) {
  hid_t file = H5Fopen("data/digits.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  for (int test = 0; test < 2; test++) {
    hid_t pixels = H5Dopen2(file, test ? "test/x" : "train/x", H5P_DEFAULT);
    hid_t numbers = H5Dopen2(file, test ? "test/y" : "train/y", H5P_DEFAULT);
    const int first = test ? DIGITS : 0;
    assert_true(H5Dread(pixels, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, digits[first]) >= 0);
    assert_true(H5Dread(numbers, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, digit_labels + first) >= 0);
    H5Dclose(pixels), H5Dclose(numbers);
  }
  H5Fclose(file);
}

static int start_up(void **state) {
  read_digits(); /* before set_up goes to another folder */
  return set_up(state);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    if (start_up(NULL) != 0) return 2;
    const int missed = print_table(argv[1]);
    return tear_down(NULL) == 0 ? missed : 2;
  }
#define KIND(number) cmocka_unit_test_prestate(defaults_train, (void *)number)
  const struct CMUnitTest tests[] = {KIND(0), KIND(1), KIND(2), KIND(3),
                                     cmocka_unit_test(a_run_says_what_it_is)};
  return cmocka_run_group_tests(tests, start_up, tear_down);
}
