/* What a run shows: numbers as people read them, and on terminals of three widths a line that fits, never
 * scrolls, and leaves what was said above it; on narrow and dumb ones plain lines. */
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>

#include "tests/command_run.h"
#include "train/command/announce.h"

static void numbers_are_plain(void **state) {
  static const struct {
    double value;
    int digits;
    const char *text;
  } numbers[] = {{0, 4, "0"},           {1552667.4, 3, "1552667"}, {0.00012345, 4, "0.0001234"},
                 {0.99996, 4, "1.000"}, {-12.3456, 4, "-12.35"},   {99.96, 3, "100"},
                 {9.996, 3, "10.0"},    {2.5e-7, 2, "0.00000025"}, {1e18, 4, "1e+18"},
                 {NAN, 4, "nan"},       {3e-12, 2, "3e-12"}};
  char shown[MN_SHOWN];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    assert_string_equal(mn_show_number(shown, numbers[i].value, numbers[i].digits), numbers[i].text);
}

static void rates_and_times(void **state) {
  char shown[MN_SHOWN];
  assert_string_equal(mn_show_rate(shown, 4.17e14, "FLOP/s"), "417 TFLOP/s");
  assert_string_equal(mn_show_rate(shown, 999.6e9, "FLOP/s"), "1.00 TFLOP/s");
  assert_string_equal(mn_show_rate(shown, 8.41e8, "FLOP/s"), "841 MFLOP/s");
  assert_string_equal(mn_show_rate(shown, 12, "FLOP/s"), "12.0 FLOP/s");
  assert_string_equal(mn_show_rate(shown, 7e18, "FLOP/s"), "7000 PFLOP/s");
  assert_string_equal(mn_show_time(shown, 0), "0:00:00");
  assert_string_equal(mn_show_time(shown, 59.6), "0:01:00");
  assert_string_equal(mn_show_time(shown, 3599), "0:59:59");
  assert_string_equal(mn_show_time(shown, 360000), "100:00:00");
  assert_string_equal(mn_show_time(shown, INFINITY), "?");
  assert_string_equal(mn_show_time(shown, -1), "?");
}

static int count_of(const char *text, const char *what) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) count++;
  return count;
}

/* What the program writes to a terminal of so many columns, its stderr, until it has drawn over a bar four
 * times, or has told five epochs if `bars` is 0, or until it ends if that is negative; and none is drawn
 * then. */
static void on_terminal(char *text, const char *kind, int columns, int bars, int status, const char *line) {
  assert_int_equal(setenv("TERM", kind, 1), 0);
  const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
  const time_t patience = time(NULL) + 60;
  int master = posix_openpt(O_RDWR | O_NOCTTY), stopped = 0;
  assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  int terminal = open(ptsname(master), O_RDWR | O_NOCTTY), out = temporary_file();
  assert_true(terminal >= 0 && ioctl(terminal, TIOCSWINSZ, &size) == 0);
  pid_t child = start(line, out, terminal, &(struct circumstances){0});
  close(terminal);
  size_t used = 0;
  /* Once the program has ended, reading from its terminal fails. */
  for (ssize_t got; used < TEXT - 1 && (got = read(master, text + used, TEXT - 1 - used)) > 0;) {
    text[used += (size_t)got] = 0;
    int told = bars > 0 ? count_of(text, "\033[K") >= 4 : count_of(text, ", epoch ") >= 5;
    if (stopped || ((!told || bars < 0) && time(NULL) < patience)) continue;
    assert_int_equal(kill(child, SIGINT), 0);
    stopped = 1;
  }
  assert_int_equal(wait_for(child), status);
  close(master);
  close(out);
  if (bars > 0 && count_of(text, "\033[K") < 4)
    fail_msg("%d columns: no bar is drawn over: '%s'", columns, text);
  if (bars <= 0 && (strchr(text, '\033') || count_of(text, ", epoch ") < (bars ? 1 : 5)))
    fail_msg("%s, %d columns: '%s'", kind, columns, text);
}

#define RUN "train --device cpu --synthetic 20000 --in 64 --hidden 128,128 --groups 8"
#define LONG_RUN RUN " --epochs 10000"

static void no_bar_without_room(void **state) {
  static char text[TEXT];
  on_terminal(text, "dumb", 80, 0, 75, RUN " --epochs 40"); /* more would not have a line each */
  on_terminal(text, "xterm", 39, 0, 75, RUN " --epochs 40");
}

static void the_bar_fits(void **state) {
  static const struct {
    int columns;
    const char *has, *lacks;
  } widths[] = {{40, " of ", "samples/s  "}, {80, " samples/s", "waiting"}, {200, "FLOP/s  waiting ", NULL}};
  static char text[TEXT];
  for (int w = 0; w < 3; w++) {
    on_terminal(text, "xterm", widths[w].columns, 1, 75, LONG_RUN);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
      char *at = line, *last = line;
      /* A bar is drawn over by the next or by a line that stays: "bar CR ESC[K bar CR ESC[K line CR". */
      for (char *next; (next = strstr(at, "\r\033[K")); at = last = next + 4) {
        *next = 0;
        if (strstr(at, "rows ")) continue; /* before the first step */
        if ((int)strlen(at) >= widths[w].columns)
          fail_msg("%d columns: '%s' has %d", widths[w].columns, at, (int)strlen(at));
        if (!strstr(at, "step ") || !strstr(at, widths[w].has) ||
            (widths[w].lacks && strstr(at, widths[w].lacks)))
          fail_msg("%d columns: '%s'", widths[w].columns, at);
        if (*at != '[' || (strstr(at, "#]") != NULL) == (strstr(at, ".]") != NULL))
          fail_msg("no bar: '%s'", at);
      }
      if (strstr(last, "step ") && strstr(last, "  loss "))
        fail_msg("%d columns: a bar scrolls: '%s'", widths[w].columns, last);
    }
  }
}

/* Work that takes long says how far it is; a signal ends it at once. */
static void long_work_is_told(void **state) {
  static const char *const works[][2] = {
      {"bench --device cpu --batch 512 --in 1024 --hidden 1024 --plans", "figure 1 of 25, forward_ms: run "},
      {"gradcheck --device cpu --batch 8 --in 256 --hidden 128,128 --groups 8", " of "},
  };
  static char text[TEXT];
  for (int i = 0; i < 2; i++) {
    on_terminal(text, "xterm", 100, 1, 128 + SIGINT, works[i][0]);
    if (!strstr(text, works[i][1]) || !strstr(text, " of ") || !strstr(text, ".] ")) fail_msg("'%s'", text);
  }
}

/* So does reading a CSV, also from a program that has not written all of it. */
static void reading_is_told(void **state) {
  static char text[TEXT], row[1 << 20];
  for (size_t i = 0; i < sizeof row; i++) row[i] = "1.5,2\n"[i % 6];
  assert_int_equal(mkfifo("slow.csv", 0600), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    FILE *out = fopen("slow.csv", "w");
    for (int i = 0; i < 12; i++)
      fwrite(row, 1, sizeof row - sizeof row % 6, out), fflush(out), usleep(150000);
    _exit(0);
  }
  on_terminal(text, "xterm", 100, 1, 128 + SIGINT,
              "train --device cpu --hidden 8 --steps 100 --data slow.csv");
  assert_int_equal(waitpid(writer, NULL, 0), writer);
  if (!strstr(text, "bytes read ")) fail_msg("'%s'", text);
}

/* The line of each epoch, with test rows and without. */
static void epochs_are_told(void **state) {
  char line[256];
  for (int tests = 0; tests < 2; tests++) {
    snprintf(
        line, sizeof line,
        "train --device cpu --synthetic 600 --in 8 --hidden 16 --groups 4 --batch 50 --epochs 3 --clip 1 "
        "--test-rows %d --run epochs-%d",
        100 * tests, tests);
    const struct result *r = run(line);
    assert_succeeds(line, r);
    /* The mean of the losses that the log has of the epoch's 12 steps. */
    char name[64], text[512], want[64];
    double sums[3] = {0}, loss;
    int step;
    snprintf(name, sizeof name, "epochs-%d/log.jsonl", tests);
    FILE *log = fopen(name, "r");
    assert_non_null(log);
    while (fgets(text, sizeof text, log))
      if (strstr(text, "\"step\",") && sscanf(strstr(text, "\"step\":"), "\"step\":%d", &step) == 1 &&
          sscanf(strstr(text, "\"loss\":"), "\"loss\":%lf", &loss) == 1)
        sums[(step - 1) / 12] += loss / 12;
    fclose(log);
    for (int epoch = 0; epoch < 3; epoch++) {
      char shown[MN_SHOWN];
      snprintf(want, sizeof want, "\nstep %d, epoch %d: loss %s, ", 12 * (epoch + 1), epoch + 1,
               mn_show_number(shown, sums[epoch], 5));
      const char *found = strstr(r->err, want);
      if (!found) fail_msg("no line '%s' in '%s'", want + 1, r->err);
      snprintf(text, sizeof text, "%.*s", (int)strcspn(found + 1, "\n"), found + 1);
      if (!strstr(text, ", norm ") || !strstr(text, " samples/s") ||
          (strstr(text, "test loss ") != NULL) != tests)
        fail_msg("'%s'", text);
    }
  }
}

/* On a GPU steps are told of when later ones are under way, or done; an epoch has its own time all the same.
 */
static void short_epochs_have_a_speed(void **state) {
  const char *line =
      "train --synthetic 100 --in 8 --hidden 8 --groups 2 --batch 100 --epochs 40 --test-rows 0";
  const struct result *r = run(line);
  assert_succeeds(line, r);
  int told = 0;
  for (const char *at = r->err; (at = strstr(at, ", epoch ")); told++) {
    double loss, rate;
    at += 8;
    assert_int_equal(sscanf(at, "%*d: loss %lf, %lf samples/s", &loss, &rate), 2);
    if (!(rate > 0 && rate < 1e12)) fail_msg("%f samples/s in '%.80s'", rate, at);
  }
  assert_int_equal(told, 40);
}

/* The lines of epochs in `text` that begin at a line's start, and whether the last is of this step. */
static int epochs_in(const char *text, int last) {
  int told = 0, step = 0;
  for (const char *at = text; (at = strstr(at, "\nstep ")); at++)
    if (strstr(at, ", epoch ") && sscanf(at, "\nstep %d, epoch", &step) == 1) told++;
  return step == last ? told : -told;
}

/* If a run has many epochs, some have a line, whose loss is the mean since the line before. The log has all.
 */
static void many_epochs_have_forty_lines(void **state) {
  char line[256], name[32], text[512], want[64], shown[MN_SHOWN];
  for (int tests = 0; tests < 2; tests++) {
    snprintf(line, sizeof line,
             "train --device cpu --synthetic 60 --in 8 --hidden 16 --groups 4 --batch 50 --epochs 99 "
             "--log-every 1 --test-rows %d --run many-%d",
             10 * tests, tests);
    const struct result *r = run(line);
    assert_succeeds(line, r);
    snprintf(name, sizeof name, "many-%d/log.jsonl", tests);
    FILE *log = fopen(name, "r");
    assert_non_null(log);
    double loss, sum = 0;
    int step, evaluations = 0, samples = 60, steps = (99 * samples + 49) / 50;
    const int begins = (3 * samples + 49) / 50, until = (6 * samples + 49) / 50;
    while (fgets(text, sizeof text, log)) {
      evaluations += strstr(text, "\"eval\",") != NULL;
      if (strstr(text, "\"step\",") && sscanf(strstr(text, "\"step\":"), "\"step\":%d", &step) == 1 &&
          sscanf(strstr(text, "\"loss\":"), "\"loss\":%lf", &loss) == 1 && step > begins && step <= until)
        sum += loss;
    }
    fclose(log);
    assert_int_equal(evaluations, 99 * tests);
    assert_int_equal(epochs_in(r->err, steps), 33);
    snprintf(want, sizeof want, "\nstep %d, epoch 6: loss %s, ", until,
             mn_show_number(shown, sum / (until - begins), 5));
    if (!strstr(r->err, want)) fail_msg("no line '%s' in '%s'", want + 1, r->err);
  }
  const struct result *r = run(
      "train --device cpu --synthetic 50 --in 8 --hidden 16 --groups 4 --batch 50 --epochs 100 --test-rows 0 "
      "--stop-at 50");
  assert_int_equal(epochs_in(r->err, 50), 17); /* 16 of three epochs each, and the last */
  /* The last step goes on beyond the last epoch. */
  r = run(
      "train --device cpu --synthetic 64 --in 8 --hidden 16 --groups 4 --batch 50 --epochs 40 --test-rows 0");
  assert_int_equal(epochs_in(r->err, 52), 40);
}

/* On a terminal lines are broken at blanks; elsewhere each is one line. */
static void lines_fit_the_terminal(void **state) {
  static char text[TEXT];
  const char *line = "train --device cpu --synthetic 2000 --in 64 --hidden 128,128 --epochs 3 --run fits";
  on_terminal(text, "dumb", 60, -1, 0, line);
  char *rest = text;
  int indented = 0;
  for (char *at; (at = strsep(&rest, "\n"));) {
    if (strcspn(at, "\r") > 59) fail_msg("60 columns: '%s'", at);
    indented += strncmp(at, "  ", 2) == 0 && at[2] != ' ';
  }
  assert_true(indented >= 3); /* of the model, the training, the speed */
  const struct result *r = run("train --device cpu --synthetic 2000 --in 64 --hidden 128,128 --epochs 3");
  if (strstr(r->err, "\n  ") || !strstr(r->err, "model: ")) fail_msg("'%s'", r->err);
}

static void one_channel_a_group_is_told(void **state) {
  const char *const told = "note: block 1 has one channel a group", *const last = "note: block 2 has one";
  const struct result *r =
      run("train --device cpu --synthetic 64 --in 4 --hidden 16,8,8 --groups 8 --batch 32 --epochs 1");
  if (!strstr(r->err, told) || !strstr(r->err, last) || strstr(r->err, "block 0")) fail_msg("'%s'", r->err);
  r = run("train --device cpu --synthetic 64 --in 4 --hidden 16,8 --groups 4 --batch 32 --epochs 1");
  if (strstr(r->err, "one channel")) fail_msg("'%s'", r->err);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_plain),
      cmocka_unit_test(rates_and_times),
      cmocka_unit_test(the_bar_fits),
      cmocka_unit_test(reading_is_told),
      cmocka_unit_test(no_bar_without_room),
      cmocka_unit_test(long_work_is_told),
      cmocka_unit_test(epochs_are_told),
      cmocka_unit_test(short_epochs_have_a_speed),
      cmocka_unit_test(many_epochs_have_forty_lines),
      cmocka_unit_test(lines_fit_the_terminal),
      cmocka_unit_test(one_channel_a_group_is_told),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
