/* The values of options as text: read from a command line or from /config, shown, and described where one is
 * not valid. */
#ifndef MN_TRAIN_COMMAND_OPTIONS_TEXT_H
#define MN_TRAIN_COMMAND_OPTIONS_TEXT_H

#include "train/command/options.h"

/* Sets an option from text, as `command` reads it; 0, or −1 for text that is no such value. Texts are
 * borrowed. */
int mn_option_read(struct mn_options *options, int index, enum mn_command command, const char *text);

/* Sets an option, zero so far, to its default. A command that does not take it gets the default of those that
 * do, "auto" included. */
void mn_option_reset(struct mn_options *options, int index, enum mn_command command);

/* The canonical text of an option, which reads back as the same value; returns its length, which may be more
 * than fits. */
int mn_option_show(char *out, size_t size, const struct mn_options *options, int index);

/* Describes the values that are valid, after `value` (NULL: none) was not: "a name is needed". */
void mn_option_describe(char *out, size_t size, int index, enum mn_command command, const char *value);

#endif
