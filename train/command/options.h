/* The options of every command, each with its default; a command takes only the options of its own list.
 * One table (options_table.c) holds each option's name, its commands and its possible values; options_text.c
 * reads and shows values, options_parse.c reads a command line. */
#ifndef MN_TRAIN_COMMAND_OPTIONS_H
#define MN_TRAIN_COMMAND_OPTIONS_H

#include <stdio.h>

#include "train/checkpoint/checkpoint.h"
#include "train/optimizer.h"

enum mn_command {
  MN_COMMAND_TRAIN,
  MN_COMMAND_EVAL,
  MN_COMMAND_PREDICT,
  MN_COMMAND_GRADCHECK,
  MN_COMMAND_PARITY,
  MN_COMMAND_BENCH,
  MN_COMMAND_PLOT,
  MN_COMMAND_INFO,
  MN_COMMAND_VERIFY,
  MN_COMMAND_DIFF,
  MN_COMMANDS,
};

struct mn_options {
  enum mn_command command;
  char **files; /* the arguments that are no options: parity F, info F, verify F, diff A B, plot LOG… */
  int file_count;
  /* the rows */
  const char *data;            /* --data F */
  const char *x_name, *y_name; /* --x, --y; "x" and "y" */
  int64_t synthetic;           /* --synthetic n: rows; 0 if unset */
  double noise;                /* --noise: standard deviation of the synthetic targets' noise, 0.1 */
  int64_t test_rows; /* --test-rows: synthetic rows held out for evaluation; −1 means n/10 (at least 1) */
  double validation; /* --validation F: the share of rows held out if data has no test part; 0 if unset */
  int standardize;   /* --standardize */
  const char *part;  /* --part auto|train|test|all: the rows that eval and predict read */
  const char *place; /* --place auto|device|host|file */
  /* the model */
  int64_t in;                     /* --in; 0 means the data's */
  int64_t hidden[MN_MODEL_DEPTH]; /* --hidden 128,128; depth is 0 if unset */
  int depth;
  int64_t groups;   /* --groups 8; in bench 0 means 16 channels a group */
  int64_t head;     /* --head K; −1 if unset */
  double eps;       /* --eps 1e-5 */
  double slope;     /* --slope 0.01 */
  const char *loss; /* --loss mse|cross-entropy; NULL to follow the data's targets */
  const char *plan; /* --plan block */
  /* training */
  int64_t epochs, steps; /* --epochs 10, --steps: the horizon; one of them, the other is 0 */
  int64_t stop_at;       /* --stop-at S: end early, after optimizer step S; 0 if unset */
  int64_t patience;      /* --patience N: end after N epochs without improvement; 0 if unset */
  int dry_run;           /* --dry-run */
  int64_t batch;         /* --batch 64 */
  const char *optimizer; /* --optimizer sgd|adamw: adamw */
  double lr;             /* --lr 0.007, for sgd 0.05 */
  double momentum;       /* --momentum 0.9 */
  double weight_decay;   /* --weight-decay 0 */
  int nesterov;          /* --nesterov */
  double beta1, beta2;   /* --beta1 0.9, --beta2 0.98 */
  double adam_eps;       /* --adam-eps 1e-8 */
  const char *schedule;  /* --schedule constant|cosine|step: cosine, for sgd constant */
  int64_t step_every;    /* --step-every: steps between drops of --schedule step; 0 means horizon/3 */
  double step_factor;    /* --step-factor 0.1 */
  int64_t warmup;        /* --warmup: steps of linear warm-up; −1 means 100, but at most a tenth of all */
  double clip;           /* --clip: largest global gradient norm; 0 means no clipping */
  int64_t accumulate;    /* --accumulate: batches a step, 1 */
  const char *on_nonfinite; /* --on-nonfinite stop|skip */
  uint64_t seed;            /* --seed 0 */
  const char *device;       /* --device auto */
  int64_t threads;          /* --threads N; 0 to choose by the size of the model's products */
  const char *ranks;        /* --ranks PxD: shards and replicas (kernels/ranks/ranks.h); auto */
  int64_t rank_timeout;     /* --rank-timeout 30, in seconds; 0 means no timeout */
  const char *precision;    /* --precision fp32 (gradcheck: always fp64); in eval, predict NULL means the
                            checkpoint's */
  /* files written */
  const char *checkpoint; /* --checkpoint F */
  int64_t save_every;     /* --save-every N: steps, or 30s: seconds; 0 means at the end only */
  int save_seconds;       /* the number above is seconds */
  int64_t keep;           /* --keep 1 */
  int best;               /* --best */
  int resume;             /* --resume */
  const char *init;       /* --init F: the weights to start from; NULL to draw them by --seed */
  const char *log;        /* --log F.jsonl */
  int64_t log_every;      /* --log-every: steps a log line; 0 means a thousandth of the horizon */
  const char *plot;       /* --plot F.svg */
  const char *out;        /* --out F: predict, plot */
  int probabilities;      /* --probabilities: predict writes the softmax of its outputs */
  int force;              /* --force: an existing --out or --plot is replaced */
  /* checks */
  double tolerance;   /* --tolerance: gradcheck 1e-6; in parity 0 means the precision's own */
  int plans;          /* bench --plans */
  int json;           /* --json */
  int verbose, quiet; /* --verbose, --quiet */
  char given[96];     /* whether the user gave an option, by its index in the table; see mn_options_given */
};

/* Reads argv (argv[1] is the command's name; --help and --version are answered here, on stdout, and *done is
 * set). Every field gets its default, even if the command does not take the option. MN_USAGE, with a message
 * that names the option, its value and a remedy. Strings point into argv, whose order changes: options first.
 * With --resume, options that the checkpoint's /config may give are not required yet. */
mn_status mn_options_parse(struct mn_options *out, int argc, char **argv, int *done);

/* Whether the options go together and include all that the command needs. mn_options_parse checks already;
 * after resuming has added the options of a checkpoint, check again. MN_USAGE. */
mn_status mn_options_check(const struct mn_options *options);

/* Whether the user named option `name` (without the dashes) on the command line. */
int mn_options_given(const struct mn_options *options, const char *name);

/* The model that the options name; inputs and head may be 0, and the loss is mse by default. MN_USAGE: an
 * unknown word. */
mn_status mn_options_model(const struct mn_options *options, struct mn_model_config *out);

/* The optimizer that the options name. MN_USAGE: an unknown word. */
mn_status mn_options_optimizer(const struct mn_options *options, struct mn_optimizer_config *out);

/* "train" … of a command. */
const char *mn_command_name(enum mn_command command);

/* The options that make a run what it is (data, model, training, seed, precision: what /config holds), as
 * text by name; returns how many. It always lists all of them; if two exclude each other, the unset one has
 * the text "0" or "". Values are canonical: two spellings of one value give one text. No text is cut off:
 * mn_options_parse refuses a value that does not fit. */
int mn_options_config(const struct mn_options *options, struct mn_text *out, int room);

/* The options of train that a resumed run takes over too, though they make no difference to the result (log,
 * saves), as such texts; returns how many. An option that is unset, or too long for a text, is left out. */
int mn_options_kept(const struct mn_options *options, struct mn_text *out, int room);

/* Sets option `name` from such a text, for resuming from a checkpoint's /config; call mn_options_check when
 * all are set. `value` is borrowed: a path points into it. MN_BAD_DATA: no such option or value. */
mn_status mn_options_set(struct mn_options *options, const char *name, const char *value);

#endif
