/* export: what it writes computes what predict does, as C by a strict compiler and, where there is numpy, as
 * Python. */
#include "tests/command_run.h"

enum { ROWS = 40, OUTPUTS_MOST = 8 };

static float x[ROWS * I];

static void write_files(void) {
  static float y[ROWS * 3];
  static int32_t labels[ROWS];
  static char words[ROWS][12];
  static const char *const names[] = {"ash", "b\"?\?=e\\ch", "\xc3\xa9rable"};
  uint32_t word = 5;
  for (int i = 0; i < ROWS * I; i++)
    x[i] = 50 + 20 * (float)((word = word * 1664525 + 1013904223) >> 8) / 8388608;
  for (int i = 0; i < ROWS; i++) {
    labels[i] = (x[i * I] > x[i * I + 1]) + (x[i * I] > 60);
    strcpy(words[i], names[labels[i]]);
    for (int k = 0; k < 3; k++) y[i * 3 + k] = x[i * I + k] * (k + 1) * 100 + 7;
  }
  hid_t file = create_file("rows.h5"), text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, sizeof words[0]);
  put(file, "x", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, I}, x);
  put(file, "numbers", H5T_NATIVE_FLOAT, 2, (hsize_t[]){ROWS, 3}, y);
  put(file, "one", H5T_NATIVE_FLOAT, 1, (hsize_t[]){ROWS}, x);
  put(file, "labels", H5T_NATIVE_INT32, 1, (hsize_t[]){ROWS}, labels);
  put(file, "words", text, 1, (hsize_t[]){ROWS}, words);
  H5Tclose(text), H5Fclose(file);
}

/* What a program prints, numbers. */
static int read_numbers(const char *command, double *to, int most) {
  FILE *out = popen(command, "r");
  int count = 0;
  assert_non_null(out);
  while (count < most && fscanf(out, "%lf", &to[count]) == 1) count++;
  assert_int_equal(pclose(out), 0);
  return count;
}

static void assert_close(const char *what, const double *y, const double *expected, int count,
                         double tolerance) {
  double error = 0, norm = 0;
  for (int i = 0; i < count; i++) error += pow(y[i] - expected[i], 2), norm += pow(expected[i], 2);
  if (!(sqrt(error) <= tolerance * sqrt(norm))) fail_msg("%s is off by %g", what, sqrt(error / norm));
}

static void write_program(const char *real) {
  char text[1024];
  snprintf(text, sizeof text,
           "#include \"out-1.h\"\n#include <stdio.h>\nint main(void) {\n  float f[out_1_inputs];\n"
           "  %s x[out_1_inputs], y[out_1_outputs];\n  while (fread(f, sizeof f, 1, stdin) == 1) {\n"
           "    for (int i = 0; i < out_1_inputs; i++) x[i] = f[i];\n    out_1_predict(x, y);\n"
           "    for (int k = 0; k < out_1_outputs; k++) printf(\"%%.17g \", (double)y[k]);\n  }\n"
           "  return 0;\n}\n",
           real);
  write_text("program.c", text);
  write_text("unused.c", "#include \"out-1.h\"\nint main(void) { return 0; }\n");
  FILE *rows = fopen("x.bin", "wb");
  assert_int_equal(fwrite(x, sizeof x, 1, rows), 1);
  fclose(rows);
}

/* Each kind of model, by its outputs for the rows that it was trained on. */
static void the_code_predicts(void **state) {
  static const struct {
    const char *options;
    int outputs;
    double tolerance;
  } cases[] = {{"--y one --hidden 8", 1, 2e-6},
               {"--y numbers --hidden 16,8 --slope 0.2 --eps 0.1", 3, 2e-6},
               {"--y numbers --hidden 16,8,3 --groups 1 --head 0 --standardize no --lr 0.001", 3, 2e-6},
               {"--y numbers --hidden 16 --y-scale log", 3, 4e-6},
               {"--y one --hidden 16 --y-scale log --standardize no --lr 0.001", 1, 4e-6},
               {"--y labels --hidden 24 --head 5", 5, 4e-6},
               {"--y words --hidden 8,8,8 --precision fp64", 3, 1e-12},
               {"--y words --hidden 16 --precision bf16", 3, 3e-2},
               {"--y numbers --hidden 16 --precision fp16", 3, 4e-3}};
  const int numpy = system("python3 -c 'import numpy' 2>/dev/null") == 0;
  const char *cc = getenv("CC") ? getenv("CC") : "cc";
  char line[512];
  for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
    static double expected[ROWS * OUTPUTS_MOST], y[ROWS * OUTPUTS_MOST + 1];
    const int count = ROWS * cases[t].outputs;
    forget("run");
    snprintf(line, sizeof line, "train --quiet --device cpu --data rows.h5 --run run --steps 60 %s",
             cases[t].options);
    run_well(line);
    run_well("predict --quiet --device cpu --run run --data rows.h5 --out expected.h5 --force");
    hid_t file = H5Fopen("expected.h5", H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "y", H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, expected) >= 0);
    H5Dclose(set), H5Fclose(file);
    const struct result *r = run_well("export run --c out-1.h --force");
    const int wide = strstr(cases[t].options, "fp64") != NULL;
    assert_non_null(strstr(r->out, wide ? "out-1.h: void out_1_predict(const double *x, double *y)"
                                        : "out-1.h: void out_1_predict(const float *x, float *y)"));
    write_program(wide ? "double" : "float");
    snprintf(line, sizeof line, "%s -std=c99 -Wall -Wextra -Wpedantic -Werror unused.c -o unused -lm", cc);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "%s -std=c99 -Wall -Wextra -Wpedantic -Werror program.c -o program -lm", cc);
    assert_int_equal(system(line), 0);
    assert_int_equal(read_numbers("./program <x.bin", y, count + 1), count);
    assert_close(cases[t].options, y, expected, count, cases[t].tolerance);
    run_well("export run --numpy out_1.py --force");
    if (!numpy) continue;
    snprintf(line, sizeof line,
             "python3 -c 'import numpy as np, out_1; np.savetxt(\"/dev/stdout\", "
             "out_1.predict(np.fromfile(\"x.bin\", \"f4\").reshape(-1, %d)), \"%%.17g\")'",
             I);
    assert_int_equal(read_numbers(line, y, count + 1), count);
    assert_close(cases[t].options, y, expected, count, cases[t].tolerance);
  }
  if (!numpy) print_message("without numpy: the Python was not run\n");
}

/* Words are classes under their names, and columns of a CSV are told. */
static void names_are_kept(void **state) {
  forget("run");
  run_well("train --quiet --device cpu --data rows.h5 --run run --steps 2 --hidden 8 --y words");
  run_well("export run --c out-1.h --force");
  write_text("names.c",
             "#include \"out-1.h\"\n#include <stdio.h>\nint main(void) { for (int k = 0; k < 3; k++) "
             "puts(out_1_class(k)); return 0; }\n");
  char line[256], text[3][32];
  snprintf(line, sizeof line, "%s -std=c99 -Wall -Wextra -Wpedantic -Werror names.c -o names -lm",
           getenv("CC") ? getenv("CC") : "cc");
  assert_int_equal(system(line), 0);
  FILE *out = popen("./names", "r");
  for (int k = 0; k < 3; k++) assert_non_null(fgets(text[k], sizeof text[k], out));
  assert_int_equal(pclose(out), 0);
  assert_string_equal(text[0], "ash\n");
  assert_string_equal(text[1], "b\"?\?=e\\ch\n");
  assert_string_equal(text[2], "\xc3\xa9rable\n");
  forget("run");
  write_text("rows.csv",
             "a,*/k,day,y\n1,u,2020-01-01,3\n2,v,2020-01-02,4\n,w,2020-01-05,5\n4,u,2020-01-09,6\n");
  run_well("train --quiet --device cpu --data rows.csv --loss mse --run run --steps 2 --hidden 8");
  run_well("export run --c out-1.h --force");
  static char header[1 << 14];
  FILE *file = fopen("out-1.h", "r");
  header[fread(header, 1, sizeof header - 1, file)] = 0;
  fclose(file);
  static const char *const told[] = {" * x[0]: a; if it is missing 2.33333333\n",
                                     " * x[1]: 1 if a is missing, else 0\n",
                                     " * x[2]: 1 if _/k is u, else 0\n", " * x[4]: 1 if _/k is w, else 0\n",
                                     " * x[5]: day, days since 1970\n"};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++)
    if (!strstr(header, told[i])) fail_msg("no '%s' in %.800s", told[i], header);
}

static void what_cannot_be_is_refused(void **state) {
  static const struct {
    const char *line;
    int status;
    const char *words;
  } lines[] = {{"export run", 64, "--c F.h|--numpy F.py"},
               {"export run --c a.h --numpy a.py", 64, "exclude each other"},
               {"export run --c run/checkpoint.h5 --force", 64, "--c run/checkpoint.h5 is the same file"},
               {"export none --c a.h", 66, "none"},
               {"export rows.h5 --c a.h", 65, "rows.h5"},
               {"export run --c rows.csv", 73, "rows.csv exists; --force"},
               {"export run --c /proc/a.h", 73, "/proc/a.h"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    assert_complains(lines[i].line, run(lines[i].line), lines[i].status, lines[i].words);
}

static int prepare(void **state) {
  if (set_up(state) != 0) return -1;
  write_files();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_code_predicts), cmocka_unit_test(names_are_kept),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests(tests, prepare, tear_down);
}
