/* The table of options, and what its readers share. options_table.c holds the table; options_text.c turns
 * text into values and back; options_errors.c says what is wrong with a command line; options.c reads one.
 *
 * An option is known by its place in mn_option_rows. */
#ifndef MN_TRAIN_COMMAND_OPTIONS_TABLE_H
#define MN_TRAIN_COMMAND_OPTIONS_TABLE_H

#include <stddef.h>

#include "train/command/options.h"

enum mn_option_kind {
  MN_KIND_HEADING, /* of a section of --help; no option */
  MN_KIND_FLAG,    /* int */
  MN_KIND_INTEGER, /* int64_t */
  MN_KIND_SMALL,   /* int */
  MN_KIND_SEED,    /* uint64_t */
  MN_KIND_REAL,    /* double */
  MN_KIND_TEXT,    /* const char *: a file or a dataset */
  MN_KIND_PICTURE, /* const char *: a file that ends in .svg or .png */
  MN_KIND_WORD,    /* const char *: one of the words that `argument` lists */
  MN_KIND_PLACE,   /* const char *: a device */
  MN_KIND_PLAN,    /* enum mn_plan */
  MN_KIND_WIDTHS,  /* hidden and depth */
  MN_KIND_EVERY,   /* save_every and save_seconds */
};

enum {
  MN_OPTION_CONFIG = 1, /* makes the run what it is: kept in a checkpoint's /config */
  MN_OPTION_ABOVE = 2,  /* low itself is not allowed */
  MN_OPTION_BELOW = 4,  /* nor is high */
};

struct mn_option_row {
  const char *name;
  const char *argument; /* as --help shows it; of a WORD the words, a|b|c */
  unsigned commands;    /* a set of those that take it: bit 1 << MN_COMMAND_… of each */
  enum mn_option_kind kind;
  int flags;           /* MN_OPTION_CONFIG … */
  size_t offset;       /* of its field in struct mn_options */
  double low, high;    /* high 0: no bound but the type's */
  const char *initial; /* NULL: 0, or NULL */
  unsigned automatic;  /* the commands in which it may be "auto" … */
  double auto_value;   /* … and the number that stands for it (of text it is NULL, of widths none) */
  const char *help;
};

/* 2²², channels or inputs. Bounds from here on are there for safety, and are not spoken of before they are
 * passed. */
#define MN_OPTION_WIDEST 4194304.0

/* Room for the whole table: each option has a bit in `given`. */
enum { MN_OPTION_MOST = 8 * sizeof((struct mn_options *)0)->given };

extern const struct mn_option_row *const mn_option_rows;
extern const int mn_option_count; /* headings included */

struct mn_command_row {
  const char *name, *arguments; /* arguments: as --help shows them */
  int least, most;              /* how many arguments */
  const char *needs, *summary;
};
extern const struct mn_command_row mn_command_rows[MN_COMMANDS];

/* Which options go together. `needs` 0: the two exclude each other. */
struct mn_option_rule {
  const char *name, *other;
  int needs;
};
extern const struct mn_option_rule mn_option_rules[]; /* ends with a name of NULL */

/* Whether the place is an option, and one of this command's. */
int mn_option_taken(int place, enum mn_command command);

/* The place of an option in the table, −1 for none. */
int mn_option_find(const char *name);

/* A command's default for an option, as the user would write it (NULL: 0, or none), and its help. */
const char *mn_option_initial(int place, enum mn_command command);
const char *mn_option_help(int place, enum mn_command command);

/* options_text.c */

/* Sets an option from text, as `command` reads it; 0, or −1 for text that is no such value. Texts are
 * borrowed. */
int mn_option_read(struct mn_options *options, int place, enum mn_command command, const char *text);

/* Sets an option, zero so far, to its default. A command that does not take it gets the default of those that
 * do, "auto" included. */
void mn_option_reset(struct mn_options *options, int place, enum mn_command command);

/* The canonical text of an option; returns its length, which may be more than fits. */
int mn_option_show(char *out, size_t size, const struct mn_options *options, int place);

/* Whether a file's name ends in .svg or .png. */
int mn_option_is_picture(const char *text);

/* options_errors.c */

/* What would do as the value of an option, where `value` (NULL: none) did not: "a name is needed". */
void mn_option_describe(char *out, size_t size, int place, enum mn_command command, const char *value);

/* MN_USAGE: the value does not do, and what would. */
mn_status mn_option_refuse(int place, enum mn_command command, const char *value);

/* MN_USAGE: no command is called `word`, and which one may have been meant. */
mn_status mn_command_refuse(const char *word);

/* What is wrong with a word at which argp stopped: an option that is not there, is short for several, lacks
 * its value or takes none. MN_OK when nothing is. */
mn_status mn_option_diagnose(enum mn_command command, const char *word);

#endif
