/* The table of options and the table of commands, from which parsing, --help, /config and every error message
 * come. An option is identified by its index in mn_option_rows. */
#ifndef MN_TRAIN_COMMAND_OPTIONS_TABLE_H
#define MN_TRAIN_COMMAND_OPTIONS_TABLE_H

#include <stddef.h>

#include "train/command/options.h"

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
  MN_OPTION_KEPT = 16,  /* a resumed run has it too, though it makes no difference to the result */
};

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
