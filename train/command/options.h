/* The options of every command, each with its default; a command takes only the options of its own list.
 * One list (options_list.h) holds each option's field, name, commands and possible values; options_text.c
 * reads and shows values, options_parse.c reads a command line. */
#ifndef MN_TRAIN_COMMAND_OPTIONS_H
#define MN_TRAIN_COMMAND_OPTIONS_H

#include <stddef.h>

#include "train/checkpoint/checkpoint.h"
#include "train/folds.h"

enum mn_command {
  MN_COMMAND_TRAIN,
  MN_COMMAND_EVAL,
  MN_COMMAND_PREDICT,
  MN_COMMAND_EXPORT,
  MN_COMMAND_GRADCHECK,
  MN_COMMAND_PARITY,
  MN_COMMAND_BENCH,
  MN_COMMAND_PLOT,
  MN_COMMAND_INFO,
  MN_COMMAND_VERIFY,
  MN_COMMAND_DIFF,
  MN_COMMANDS,
};

/* The values of --part. */
enum { MN_ROWS_AUTO, MN_ROWS_TRAIN, MN_ROWS_TEST, MN_ROWS_ALL };

/* The values of --standardize; auto is −1. */
enum { MN_STANDARDIZE_NO, MN_STANDARDIZE_COLUMNS, MN_STANDARDIZE_ONE };

/* The fields of an option, by its kind (enum mn_option_kind). */
#define MN_FIELD_FLAG(field) int field;
#define MN_FIELD_INTEGER(field) int64_t field;
#define MN_FIELD_SEED(field) uint64_t field;
#define MN_FIELD_REAL(field) double field;
#define MN_FIELD_TEXT(field) const char *field;
#define MN_FIELD_LIST(field) struct mn_list field;
#define MN_FIELD_EVERY(field)                                                                                \
  int64_t field;                                                                                             \
  int save_seconds; /* of which the number is */

/* The numbers of a LIST option; count 0 is auto. */
struct mn_list {
  int64_t items[MN_MODEL_DEPTH];
  int count;
};

struct mn_options {
  enum mn_command command;
  char **files; /* arguments without dashes: parity F, info F, verify F, diff A B, plot LOG… */
  int file_count;
  /* A field for each option, of its kind's type. One that is unset is 0 or NULL; one that is "auto" has its
   * row's auto_value, or count 0. A word is its index among the row's words, an enum's value. */
#define HEADING(...)
#define OPTION(kind, field, ...) MN_FIELD_##kind(field)
#include "train/command/options_list.h"
#undef HEADING
#undef OPTION
  const char *checkpoint, *log;       /* the files of --run: log for train alone; NULL without --run */
  char in_run[3][MN_CHECKPOINT_PATH]; /* their paths, and that of --init */
  char given[96]; /* whether the user gave an option, by its index in the table; see mn_options_given */
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

/* The model that the options name; inputs and head may be 0, and the loss is mse by default. */
void mn_options_model(const struct mn_options *options, struct mn_model_config *out);

/* The optimizer that the options name, for a run of `horizon` steps. */
void mn_options_optimizer(const struct mn_options *options, int64_t horizon, struct mn_optimizer_config *out);

/* How a run of `horizon` steps goes, as the options name it. */
void mn_options_trainer(const struct mn_options *options, int64_t horizon, struct mn_trainer_config *out);

/* The options of train that have `flag`, as text by name; returns how many. MN_OPTION_CONFIG
 * (below): those that make a run what it is (data, model, training, seed, precision: what /config
 * holds). It always lists all of them; if two exclude each other, the unset one has the text "0" or "".
 * Values are canonical: two spellings of one value give one text. No text is cut off: mn_options_parse
 * refuses a value that does not fit. MN_OPTION_KEPT: those that a resumed run takes over too; one that is
 * unset, or too long for a text, is left out. */
int mn_options_list(const struct mn_options *options, int flag, struct mn_text *out, int room);

/* Sets option `name` from such a text, for resuming from a checkpoint's /config; call mn_options_check when
 * all are set. `value` is borrowed: a path points into it. MN_BAD_DATA: no such option or value. */
mn_status mn_options_set(struct mn_options *options, const char *name, const char *value);

/* ---- the table of options and the table of commands, from which parsing, --help, /config and every error
 * message come; an option is identified by its index in mn_option_rows ---- */

enum mn_option_kind {
  MN_KIND_HEADING, /* of a section of --help, with an example as `argument`; no option */
  MN_KIND_FLAG,    /* int */
  MN_KIND_INTEGER, /* int64_t: a number, or the index of one of the row's words */
  MN_KIND_SEED,    /* uint64_t */
  MN_KIND_REAL,    /* double */
  MN_KIND_TEXT,    /* const char *: a file, a dataset, a device */
  MN_KIND_LIST,    /* struct mn_list: numbers between commas */
  MN_KIND_EVERY,   /* save_every and save_seconds */
};

enum {
  MN_OPTION_CONFIG = 1, /* makes the run what it is: kept in a checkpoint's /config */
  MN_OPTION_ABOVE = 2,  /* low itself is not allowed */
  MN_OPTION_BELOW = 4,  /* nor is high */
  MN_OPTION_COURSE = 8, /* a training option of MN_OPTION_CONFIG that --resume may change */
  MN_OPTION_KEPT = 16,  /* a resumed run has it too: the result does not depend on it, or in the last bits */
};
/* An option without MN_OPTION_CONFIG and MN_OPTION_KEPT is this process's alone: no byte of the result
 * depends on it, or /fingerprint has what the bytes depend on, and a resume tells a change (--device). */

struct mn_option_row {
  const char *name;
  const char *argument; /* as --help shows it; NULL for a flag or for the words below */
  unsigned commands;    /* a set of those that take it: bit 1 << MN_COMMAND_… of each */
  enum mn_option_kind kind;
  size_t offset;       /* of its field in struct mn_options */
  int flags;           /* MN_OPTION_CONFIG … */
  double low, high;    /* high is 0 if only the type bounds it */
  const char *initial; /* NULL means 0 or NULL */
  unsigned automatic;  /* the commands in which it may be "auto" … */
  double auto_value;   /* … and the number that stands for it (for a list count 0) */
  const char *help;
  unsigned required;        /* the commands that need it */
  const char *const *words; /* NULL behind the last one */
  const char *alone;        /* the word that is meant without a value, and by "yes"; NULL: it needs one */
  const char *needs;        /* the option that this one needs, if there is one */
  const char *excludes;     /* the option that this one excludes, whose row names this one */
};

/* The most channels or inputs. This bound and higher ones only guard against overflow: a message names
 * them only if the value is above. */
#define MN_OPTION_WIDEST 4194304.0

/* The longest table that struct mn_options has room for in `given`. */
enum { MN_OPTION_MOST = sizeof((struct mn_options *)0)->given };

extern const struct mn_option_row *const mn_option_rows;
extern const int mn_option_count; /* headings included */

struct mn_command_row {
  const char *name, *arguments; /* arguments: as --help shows them */
  int least, most;              /* how many arguments */
  const char *needs, *summary;
  const char *example; /* what may stand behind the name */
};
extern const struct mn_command_row mn_command_rows[MN_COMMANDS];

/* Whether row `index` is an option, and one of this command's. */
int mn_option_taken(int index, enum mn_command command);

/* The index of an option in the table, or −1. */
int mn_option_find(const char *name);

/* The index of the option that excludes this one, or −1. */
int mn_option_excludes(int index);

/* The row of an option with this command's default and help. */
struct mn_option_row mn_option_of(int index, enum mn_command command);

/* ---- options_text.c: values as text, from a command line or from /config ---- */

/* Sets an option from text, by the rules of `command`. Returns 0, or −1 for an invalid text. Texts are
 * borrowed. */
int mn_option_read(struct mn_options *options, int index, enum mn_command command, const char *text);

/* Sets an option, zero so far, to its default. A command that does not take it gets the default of those that
 * do, "auto" included. */
void mn_option_reset(struct mn_options *options, int index, enum mn_command command);

/* The canonical text of an option, which reads back as the same value; returns its length, which may be more
 * than fits. */
int mn_option_show(char *out, size_t size, const struct mn_options *options, int index);

/* Describes the valid values, after `value` was refused (NULL if it was missing): "a name is needed". */
void mn_option_describe(char *out, size_t size, int index, enum mn_command command, const char *value);

#endif
