/* The program itself, run as people run it: help, exit codes, JSON alone on stdout, pictures. What
 * it says of faults is in test_faults.c. */
#include <signal.h>
#include <time.h>

#include "tests/command_run.h"

#include "train/checkpoint/checkpoint.h"
#include "train/runs/runs.h"

/* One line with one JSON object; each of the `keys` (a|b|c) is in it. Brackets are counted, strings skipped.
 */
static void assert_object(const char *line, const struct result *r, const char *keys) {
  int depth = 0, quoted = 0;
  const char *at = r->out;
  if (*at != '{') fail_msg("'%s' prints no object: %s", line, r->out);
  for (; *at && *at != '\n'; at++) {
    if (quoted && *at == '\\' && at[1])
      at++;
    else if (*at == '"')
      quoted = !quoted;
    else if (!quoted)
      depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    if (depth == 0 && at[1] != '\n') fail_msg("'%s' prints more than an object: %s", line, r->out);
  }
  if (depth != 0 || quoted || strcmp(at, "\n") != 0)
    fail_msg("'%s' prints no whole object: %s", line, r->out);
  char list[512], key[80];
  strcpy(list, keys);
  for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|")) {
    snprintf(key, sizeof key, "\"%s\":", word);
    if (!strstr(r->out, key)) fail_msg("'%s' prints no %s: %s", line, key, r->out);
  }
}

static void help_and_version(void **state) {
  static const char *const commands[] = {"train", "eval", "predict", "gradcheck", "parity",
                                         "bench", "plot", "info",    "verify",    "diff"};
  const struct result *r = run("--version");
  assert_succeeds("--version", r);
  /* The program, and a line for each library that several processes need. */
  const char *second = strchr(r->out, '\n');
  assert_true(strncmp(r->out, "minnow ", 7) == 0 && second && strncmp(second, "\nMPI: ", 6) == 0);
#ifdef MN_CUDA
  assert_true(lines(r->out) == 3 && strstr(r->out, "\nNCCL: "));
#else
  assert_int_equal(lines(r->out), 2);
#endif
  char all[TEXT], line[64];
  r = run("--help");
  assert_succeeds("--help", r);
  strcpy(all, r->out);
  for (int i = 0; i < 10; i++) {
    snprintf(line, sizeof line, "\n  %s ", commands[i]);
    if (!strstr(all, line)) fail_msg("--help lists no %s", commands[i]);
    snprintf(line, sizeof line, "%s --help", commands[i]);
    r = run(line);
    assert_succeeds(line, r);
    assert_string_equal(r->err, "");
    snprintf(line, sizeof line, "Usage: minnow %s ", commands[i]);
    if (strncmp(r->out, line, strlen(line)) != 0) fail_msg("%s --help starts '%.60s'", commands[i], r->out);
  }
  const char *const same[] = {"--help", "-h", "help", "train --help", "train -h", "help train"};
  for (int i = 0; i < 6; i++) {
    char help[TEXT];
    strcpy(help, run(same[i / 3 * 3])->out);
    assert_succeeds(same[i], r = run(same[i]));
    if (strcmp(r->out, help) != 0) fail_msg("'%s' prints other help than '%s'", same[i], same[i / 3 * 3]);
  }
  /* Asked nothing, it says what there is, but a script that lost its command must fail. */
  r = run("");
  assert_int_equal(r->status, 64);
  assert_string_equal(r->out, "");
  if (strncmp(r->err, all, strlen(all)) != 0 || !strstr(r->err, "\nminnow: a command is needed"))
    fail_msg("without a command it says '%s'", r->err);
  r = run("train --help");
  assert_true(strstr(r->out, "--groups=G") && strstr(r->out, "(default 64)") &&
              strstr(r->out, "(default 0.007)"));
  assert_null(strstr(r->out, "--plans"));
}

/* A dry run says what the run then takes, and leaves nothing behind. */
static void a_dry_run_takes_nothing(void **state) {
#define DRY "train --quiet --device cpu --data good.h5 --hidden 256,128 --groups 8 --batch 16 --steps 3 "
  uint64_t before = snapshot();
  const char *line = DRY "--dry-run --run dry";
  const struct result *r = run(line);
  assert_succeeds(line, r);
  assert_true(snapshot() == before);
  /* More than any machine has is told before it is asked for. */
  r = run(DRY "--dry-run --hidden 2000000,2000000");
  assert_true(r->status == 71 && strstr(r->err, " parameters and a batch take at least ") &&
              strstr(r->err, " MiB free: "));
  r = run(line);
  const char *const says[] = {"model: 4 inputs, blocks of 256 -> 128 channels in 8 groups",
                              "\nparameters: ",
                              "\nsteps: 3\nsamples_per_step: 16\n",
                              "\ndevice_bytes: ",
                              "\nplace: device\n",
                              "\ndisk_available_bytes: "};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++)
    if (!strstr(r->out, says[i])) fail_msg("'%s' is not in '%s'", says[i], r->out);
  line = DRY "--dry-run --json --run dry";
  r = run(line);
  assert_succeeds(line, r);
  assert_object(
      line, r,
      "model|parameters|tensors|steps|samples_per_step|epochs|flops_per_step|device_bytes|place|"
      "place_why|rows_bytes|checkpoint_bytes|checkpoints|disk_available_bytes|device_available_bytes");
  long device = 0, checkpoint = 0;
  assert_int_equal(sscanf(strstr(r->out, "\"device_bytes\":"), "\"device_bytes\":%ld", &device), 1);
  assert_int_equal(sscanf(strstr(r->out, "\"checkpoint_bytes\":"), "\"checkpoint_bytes\":%ld", &checkpoint),
                   1);
  line = DRY "--run dry";
  assert_succeeds(line, run(line));
  struct stat written;
  assert_int_equal(stat("dry/checkpoint.h5", &written), 0);
  assert_in_range(written.st_size, checkpoint, checkpoint + checkpoint / 4);
  char want[64], text[4096] = "";
  snprintf(want, sizeof want, "\"device_bytes\":%ld", device);
  FILE *log = fopen("dry/log.jsonl", "r");
  assert_non_null(log);
  while (!strstr(text, "\"event\":\"end\"") && fgets(text, sizeof text, log)) continue;
  fclose(log);
  if (!strstr(text, want)) fail_msg("the run ends in '%s', without %s", text, want);
  /* What would be refused is refused. */
  line = DRY "--dry-run --run dry";
  assert_complains(line, run(line), 73, "--run dry holds checkpoint.h5|rm -r dry");
  line = DRY "--dry-run --run no/folder/dry";
  assert_complains(line, run(line), 73, "no/folder/dry");
}

static void a_lost_result_is_a_failure(void **state) {
  static const char *const commands[] = {"--version", "train --help", "info --json run/checkpoint.h5",
                                         "gradcheck --quiet --json --device cpu"};
  for (int i = 0; i < 4; i++) {
    assert_complains(commands[i], run_in(commands[i], (struct circumstances){.out = "/dev/full"}), 74,
                     "space");
    assert_complains(commands[i], run_in(commands[i], (struct circumstances){.close_out = 1}), 74, "write");
  }
}

/* With stdout closed, a checkpoint must not become what stdout was. */
static void a_closed_stdout_reaches_no_file(void **state) {
  const char *line = LABELS "--run closed";
  assert_int_equal(run_in(line, (struct circumstances){.close_out = 1})->status, 74);
  assert_succeeds("verify closed/checkpoint.h5", run("verify closed/checkpoint.h5"));
  assert_succeeds("diff closed/checkpoint.h5 run/checkpoint.h5",
                  run("diff closed/checkpoint.h5 run/checkpoint.h5"));
}

static void results_are_json(void **state) {
  uint64_t before = snapshot();
  static const struct {
    const char *line, *keys;
  } rows[] = {
      {"parity --quiet --json --device cpu cases.h5", "error|tolerance"},
      {"gradcheck --quiet --json --device cpu", "ok"},
      {"gradcheck --quiet --json --device cpu --hidden 8,4 --groups 2 --head 3 --loss cross-entropy --plan "
       "tail",
       "ok"},
      {"info --json run/checkpoint.h5", "step"},
      {"info --json good.h5", "shape|train"},
      {"verify --json run/checkpoint.h5", ""},
      {"diff --json run/checkpoint.h5 run/checkpoint.h5", ""},
      {"eval --quiet --json --device cpu --run run --data good.h5", "loss|accuracy"},
      {"bench --quiet --json --device cpu --batch 8 --in 8 --hidden 16",
       "forward_ms|forward_backward_ms|step_ms"},
      {"bench --quiet --json --device cpu --batch 8 --in 8 --hidden 16 --head 3 --loss cross-entropy",
       "step_ms|head|loss"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct result *r = run(rows[i].line);
    assert_succeeds(rows[i].line, r);
    assert_object(rows[i].line, r, rows[i].keys);
    assert_string_equal(r->err, "");
  }
  assert_true(snapshot() == before);
}

static void checks_that_fail_exit_with_1(void **state) {
  const char *line = "parity --quiet --json --device cpu --tolerance 1e-30 cases.h5";
  const struct result *r = run(line);
  assert_int_equal(r->status, 1);
  assert_object(line, r, "error");
  assert_int_equal(lines(r->err), 1);
  r = run("gradcheck --quiet --json --device cpu --tolerance 1e-30");
  assert_int_equal(r->status, 1);
  assert_object("gradcheck", r, "");
  r = run("diff --json run/checkpoint.h5 other/checkpoint.h5");
  assert_int_equal(r->status, 1);
  assert_object("diff", r, "");
  assert_int_equal(lines(r->err), 1);
  r = run("parity --device cuda:99 no-cases.h5"); /* the file is read before the device opens */
  assert_int_equal(r->status, 66);
  r = run("verify --json cut-run.h5");
  assert_int_equal(r->status, 65);
  assert_int_equal(lines(r->err), 1);
}

/* A device that was not named is named on stderr, and results stay alone on stdout. */
static void auto_says_which_device(void **state) {
  const struct result *r = run_in("gradcheck --json", (struct circumstances){.no_gpu = 1});
  assert_succeeds("gradcheck", r);
  assert_non_null(strstr(r->err, "CPU"));
  assert_object("gradcheck", r, "");
  r = run_in("bench --json --precision tf32 --batch 4 --in 4 --hidden 16 --device cpu",
             (struct circumstances){0});
  assert_succeeds("bench", r);
  assert_non_null(strstr(r->err, "fp32 on the CPU"));
}

/* Without --device the CPU takes what it has done before a GPU would have started, and says so; a run that
 * began on a GPU goes on there. */
static void auto_takes_the_cpu_for_short_work(void **state) {
  static const struct {
    const char *line;
    int brief;
  } rows[] = {
      {"train --data good.h5 --hidden 8 --groups 2 --dry-run", 1},
      {"train --data good.h5 --hidden 8 --groups 2 --device cpu --dry-run", 0},
      {"train --data good.h5 --hidden 8 --groups 2 --epochs 1000000 --dry-run", 0},
      {"train --data good.h5 --hidden 4096,4096 --epochs 100 --dry-run", 0},
      {"train --synthetic 100 --in 8 --hidden 8 --dry-run", 1},
      {"train --synthetic 1000000 --in 8 --hidden 8,8 --epochs 20 --dry-run", 0},
      {"eval --run run --data good.h5", 1},
      {"eval --run run --data good.h5 --device cpu", 0},
      {"predict --run run --data good.h5 --out brief.h5", 1},
      {"train --run run --resume --dry-run", 1},
      {"train --run began --resume --dry-run", 0},
  };
  struct mn_checkpoint *c;
  assert_int_equal(mn_checkpoint_load(&c, "run/checkpoint.h5"), MN_OK);
  for (int i = 0; i < c->fingerprint_count; i++)
    if (strcmp(c->fingerprint[i].name, "device") == 0) strcpy(c->fingerprint[i].value, "NVIDIA H200");
  assert_int_equal(mkdir("began", 0777), 0);
  assert_int_equal(mn_checkpoint_save(c, "began/checkpoint.h5", 1), MN_OK);
  mn_checkpoint_free(c);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct result *r = run_in(rows[i].line, (struct circumstances){.no_gpu = 1});
    assert_succeeds(rows[i].line, r);
    if ((strstr(r->err, "where so short a run ends sooner than on a GPU") != NULL) != rows[i].brief)
      fail_msg("'%s' says %s", rows[i].line, r->err);
  }
}

/* --threads says how many threads compute, also where a small model would take one; at most what OpenMP has.
 */
static void threads_are_those_that_are_asked_for(void **state) {
  const char *had = getenv("OMP_NUM_THREADS");
  char before[16] = "";
  if (had) snprintf(before, sizeof before, "%s", had);
  setenv("OMP_NUM_THREADS", "3", 1);
#define GRADCHECK "gradcheck --device cpu --threads "
  assert_non_null(strstr(run(GRADCHECK "2")->err, "CPU (2 threads)"));
  assert_non_null(strstr(run(GRADCHECK "auto")->err, "CPU (3 threads)"));
  assert_complains(GRADCHECK "4", run(GRADCHECK "4"), 64, "--threads 4|OMP_NUM_THREADS|1 to 3 work");
  if (had)
    setenv("OMP_NUM_THREADS", before, 1);
  else
    unsetenv("OMP_NUM_THREADS");
}

static void pictures_are_drawn(void **state) {
  static const struct { const char *name, *start; } rows[] = {{"p.svg", "<?xml"}, {"p.png", "\x89PNG"}};
  for (int i = 0; i < 2; i++) {
    char line[128], start_of_file[8] = "";
    snprintf(line, sizeof line, "plot run/log.jsonl --out %s", rows[i].name);
    const struct result *r = run(line);
    if (r->status == 70 && strstr(r->err, "gnuplot-nox")) SKIP("no gnuplot");
    assert_succeeds(line, r);
    FILE *file = fopen(rows[i].name, "rb");
    assert_non_null(file);
    assert_true(fread(start_of_file, 1, strlen(rows[i].start), file) == strlen(rows[i].start));
    assert_memory_equal(start_of_file, rows[i].start, strlen(rows[i].start));
    fclose(file);
  }
  /* Where it cannot be written whole, the one before stays. */
  uint64_t before = snapshot();
  const char *line = "plot run/log.jsonl --out p.svg --force";
  assert_complains(line, run_in(line, (struct circumstances){.largest = 12000}), 74, "p.svg|File too large");
  assert_true(snapshot() == before);
  FILE *many = fopen("many.jsonl", "w");
  for (int i = 1; i <= 9000; i++) fprintf(many, "{\"event\":\"eval\",\"step\":%d,\"test_loss\":0.5}\n", i);
  assert_int_equal(fclose(many), 0);
  line = "plot many.jsonl --out p.svg --force";
  before = snapshot();
  assert_complains(line, run_in(line, (struct circumstances){.largest = 1 << 16}), 74, "script|ulimit -f");
  assert_true(snapshot() == before);
  /* A name full of quotes and commands is a name, and nothing else. */
  write_text("it's`touch oops`.jsonl", "{\"event\":\"eval\",\"step\":3,\"test_loss\":0.5}\n");
  rename("it's`touch oops`.jsonl", "it's`touch\toops`.jsonl");
  assert_succeeds("plot", run("plot it's`touch\toops`.jsonl run/log.jsonl --out |p.svg"));
  assert_int_equal(access("oops", F_OK), -1);
  assert_int_equal(access("|p.svg", F_OK), 0);
  /* A line that is still being written is none yet; null is a loss that was not finite. */
  write_text("live.jsonl", "{\"event\":\"step\",\"step\":1,\"loss\":null,\"rate\":0.5}\n{\"event\":\"st");
  assert_succeeds("plot", run("plot live.jsonl --out p.svg --force"));
}

/* Numbers that are none of training's are named with their line; gnuplot would be blamed else. */
static void plot_names_what_makes_no_sense(void **state) {
  static const struct {
    const char *line, *words;
  } rows[] = {
      {"\"step\",\"step\":-5,\"loss\":1,\"rate\":1", "odd.jsonl, line 2: 'step' is -5,"},
      {"\"step\",\"step\":1.5,\"loss\":1,\"rate\":1", "odd.jsonl, line 2: 'step' is 1.5,"},
      {"\"step\",\"step\":1e300,\"loss\":1,\"rate\":1", "odd.jsonl, line 2: 'step' is 1e+300,"},
      {"\"step\",\"step\":5,\"loss\":-1e308,\"rate\":1", "odd.jsonl, line 2: 'loss' is -1e+308,"},
      {"\"step\",\"step\":5,\"loss\":1,\"rate\":-0.5", "odd.jsonl, line 2: 'rate' is -0.5,"},
      {"\"step\",\"step\":5,\"loss\":1e308,\"rate\":1",
       "odd.jsonl, line 2: 'loss' is 1e+308,|gnuplot's range"},
      {"\"eval\",\"step\":5,\"test_loss\":5e-324", "odd.jsonl, line 2: 'test_loss' is 4.94065646e-324,"},
      {"\"eval\",\"step\":-1,\"test_loss\":1", "odd.jsonl, line 2: 'step' is -1,"},
      {"\"eval\",\"step\":5,\"test_loss\":1,\"test_accuracy\":7", "odd.jsonl, line 2: 'test_accuracy' is 7,"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[256];
    snprintf(text, sizeof text, "{\"event\":\"begin\"}\n{\"event\":%s}\n", rows[i].line);
    write_text("odd.jsonl", text);
    const char *line = "plot odd.jsonl --out p.svg --force";
    assert_complains(line, run(line), 65, rows[i].words);
  }
}

/* A name that is not UTF-8, or that XML may not have, is shown by its bytes; without a font there is no picture. */
static void pictures_hold_any_name_and_need_a_font(void **state) {
  const char *name = "odd\xff&<\xef\xbf\xbf.jsonl";
  write_text(name, "{\"event\":\"step\",\"step\":9,\"loss\":2,\"rate\":1}\n");
  write_text("even.jsonl", "{\"event\":\"step\",\"step\":9,\"loss\":3,\"rate\":1}\n");
  char line[128];
  snprintf(line, sizeof line, "plot %s even.jsonl --out names.svg", name);
  const struct result *r = run(line);
  if (r->status == 70 && strstr(r->err, "gnuplot-nox")) SKIP("no gnuplot");
  assert_succeeds(line, r);
  FILE *file = fopen("names.svg", "r");
  char text[1 << 16] = "";
  assert_true(file && fread(text, 1, sizeof text - 1, file) > 0 && fclose(file) == 0);
  assert_true(strstr(text, "odd\\xFF&amp;&lt;\\xEF\\xBF\\xBF.jsonl") && !strchr(text, '\xff'));
  write_text("none.conf",
             "<?xml version=\"1.0\"?><!DOCTYPE fontconfig SYSTEM \"fonts.dtd\"><fontconfig></fontconfig>");
  setenv("FONTCONFIG_FILE", realpath("none.conf", text), 1);
  r = run("plot even.jsonl --out fontless.svg");
  assert_succeeds("svg", r);
  r = run("plot even.jsonl --out fontless.png");
  unsetenv("FONTCONFIG_FILE");
  assert_complains("png", r, 70, "no font|fonts-dejavu-core");
  assert_int_equal(access("fontless.png", F_OK), -1);
}

/* Reads a file of the folder as text. */
static const char *text_of(const char *name) {
  static char text[1 << 17];
  FILE *file = fopen(name, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  assert_int_equal(fclose(file), 0);
  return text;
}

/* Runs are named by their paths, in every panel in the order in which their losses end. Epochs are on top if
 * they are as long in all runs. */
static void runs_are_told_apart(void **state) {
  static const char *const logs[] = {"same/low/run.jsonl", "same/high/run.jsonl", "same/high/x/run.jsonl"};
  for (const char *const *name = (const char *const[]){"same", "same/low", "same/high", "same/high/x", NULL};
       *name; name++)
    assert_int_equal(mkdir(*name, 0777), 0);
  for (int i = 0; i < 3; i++) {
    char line[256];
    snprintf(line, sizeof line,
             "{\"event\":\"step\",\"step\":1,\"loss\":%d,\"rate\":1}\n"
             "{\"event\":\"step\",\"step\":9,\"loss\":%d,\"rate\":1}\n"
             "{\"event\":\"eval\",\"step\":9,\"epoch\":%d,\"test_loss\":1,\"test_accuracy\":0.%d}\n",
             9 - i, 1 + i, 1 + i / 2, 9 - i);
    write_text(logs[i], line);
  }
  const struct result *r = run("plot same/low/run.jsonl same/high/run.jsonl --out two.svg");
  if (r->status == 70 && strstr(r->err, "gnuplot-nox")) SKIP("no gnuplot");
  assert_succeeds("plot", r);
  const char *drawn = text_of("two.svg"), *high = strstr(drawn, ">same/high/run.jsonl<"),
             *low = strstr(drawn, ">same/low/run.jsonl<");
  assert_true(high && low && high < low && strstr(drawn, ">epoch<"));
  high = strstr(drawn, "80.00 %"), low = strstr(drawn, "90.00 %");
  assert_true(high && low && high < low);
  /* Runs without evaluations, or with these alone, are drawn too; those that trained, highest first. */
  write_text("low.jsonl", "{\"event\":\"step\",\"step\":9,\"loss\":2,\"rate\":1}\n");
  write_text("mid.jsonl", "{\"event\":\"step\",\"step\":9,\"loss\":3,\"rate\":1}\n");
  write_text("top.jsonl", "{\"event\":\"eval\",\"step\":9,\"test_loss\":4}\n");
  assert_succeeds("plot", run("plot low.jsonl mid.jsonl top.jsonl same/high/run.jsonl --out some.svg"));
  drawn = text_of("some.svg"), high = strstr(drawn, ">mid.jsonl<"), low = strstr(drawn, ">low.jsonl<");
  assert_true(high && low && high < low && strstr(drawn, ">top.jsonl<") && strstr(drawn, "80.00 %"));
  assert_succeeds("plot", run("plot same/high/x/run.jsonl same/high/run.jsonl --out shared.svg"));
  drawn = text_of("shared.svg");
  assert_true(strstr(drawn, ">same/high/x/run.jsonl<") && !strstr(drawn, ">epoch<"));
}

/* A log that cannot grow ends the run, but not before its checkpoint is saved. */
static void a_log_without_room_costs_no_step(void **state) {
#define LONG "train --quiet --device cpu --synthetic 100 --in 8 --hidden 8 --batch 10 --steps 3000 "
  const char *line = LONG "--log-every 1 --run room";
  assert_complains(line, run_in(line, (struct circumstances){.largest = 1 << 16}), 74,
                   "room/log.jsonl|ulimit -f");
  assert_succeeds("verify", run("verify room/checkpoint.h5"));
  assert_succeeds("resume", run("train --quiet --device cpu --log-every 1 --run room "
                                "--resume"));
  assert_succeeds("train", run(LONG "--run whole"));
  assert_succeeds("diff", run("diff room/checkpoint.h5 whole/checkpoint.h5"));
  FILE *file = fopen("room/log.jsonl", "r");
  assert_non_null(file);
  int count = 0;
  for (int c; (c = getc(file)) != EOF;) count += c == '\n';
  fclose(file);
  /* The start, the steps, an evaluation each epoch of 10 steps, the end, less what could not be written at
   * one step. */
  assert_in_range(count, 1 + 3000 + 300 + 1 - 2, 1 + 3000 + 300 + 1);
}

/* A new run in a folder that holds one is refused with the command that makes space for it. */
static void a_refused_run_says_what_to_remove(void **state) {
  const char *line = "train --quiet --device cpu --synthetic 100 --in 4 --hidden 8 --epochs 2 --save-every 1 "
                     "--keep 2 --best --run space";
  assert_succeeds(line, run(line));
  assert_complains(line, run(line), 73, "--run space holds best.h5|--resume|rm -r space");
  assert_int_equal(system("rm -r space"), 0);
  assert_succeeds(line, run(line));
}

/* --force replaces a picture and predictions, and without it they stay. */
static void outputs_are_replaced_by_force_alone(void **state) {
  const char *line = "predict --quiet --device cpu --run run --data good.h5 --out forced.h5";
  assert_succeeds(line, run(line));
  uint64_t before = snapshot();
  assert_complains(line, run(line), 73, "forced.h5|--force");
  assert_true(snapshot() == before);
  write_text("forced.h5", "to be replaced");
  nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000},
            NULL); /* the file must not tell the time */
  assert_succeeds(line, run("predict --quiet --device cpu --run run --data good.h5 --out forced.h5 "
                            "--force"));
  assert_true(snapshot() == before);
}

/* Operations that are fused change no bytes until dz is written in the product: all plans but block say the
 * same. */
static void every_plan_trains_scaled(void **state) {
  static const char *const plans[] = {"none", "activation", "norm-activation", "tail", "linear-norm"};
  char line[256], first[TEXT] = "";
  for (int i = 0; i < 5; i++) {
    snprintf(line, sizeof line,
             "train --json --quiet --device cpu --precision fp16 --synthetic 256 --in 16 --hidden 32,16 "
             "--groups 4 "
             "--steps 8 --plan %s",
             plans[i]);
    const struct result *r = run(line);
    assert_succeeds(line, r);
    const char *end = strstr(r->out, "\"time\"");
    assert_non_null(end);
    if (i == 0) strcpy(first, r->out);
    assert_memory_equal(r->out, first, (size_t)(end - r->out));
  }
}

static void finished_runs_resume_to_nothing(void **state) {
  uint64_t before = snapshot();
  assert_succeeds("resume", run("train --quiet --device cpu --run run --resume"));
  assert_true(snapshot() == before);
}

/* Waits for `path` to hold something, at most half a minute. */
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_and_version),
      cmocka_unit_test(a_dry_run_takes_nothing),
      cmocka_unit_test(a_lost_result_is_a_failure),
      cmocka_unit_test(a_closed_stdout_reaches_no_file),
      cmocka_unit_test(results_are_json),
      cmocka_unit_test(checks_that_fail_exit_with_1),
      cmocka_unit_test(auto_says_which_device),
      cmocka_unit_test(auto_takes_the_cpu_for_short_work),
      cmocka_unit_test(threads_are_those_that_are_asked_for),
      cmocka_unit_test(pictures_are_drawn),
      cmocka_unit_test(plot_names_what_makes_no_sense),
      cmocka_unit_test(pictures_hold_any_name_and_need_a_font),
      cmocka_unit_test(runs_are_told_apart),
      cmocka_unit_test(a_log_without_room_costs_no_step),
      cmocka_unit_test(a_refused_run_says_what_to_remove),
      cmocka_unit_test(outputs_are_replaced_by_force_alone),
      cmocka_unit_test(every_plan_trains_scaled),
      cmocka_unit_test(finished_runs_resume_to_nothing),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
