/* The one line that says what is wrong with a command line, and what would do: a value that is none, an
 * option or a command that is not there, with the one that may have been meant. argp does the parsing, but
 * stays silent: its own messages take two lines and cannot say what would do, so that after a failure
 * mn_option_diagnose looks at the word where it stopped. */
#include "train/command/options_table.h"

#include <inttypes.h>
#include <string.h>

/* "a, b or c" of a|b|c. */
static void describe_words(char *out, size_t size, const char *words) {
  size_t used = 0;
  for (const char *at = words; *at && used + 1 < size;) {
    size_t length = strcspn(at, "|");
    const char *next = at + length + (at[length] == '|');
    const char *between = *next == 0 ? "" : strchr(next, '|') ? ", " : " or ";
    used += (size_t)snprintf(out + used, size - used, "%.*s%s", (int)length, at, between);
    at = next;
  }
}

void mn_option_describe(char *out, size_t size, int place, enum mn_command command, const char *value) {
  const struct mn_option_row *row = &mn_option_rows[place];
  const char *or_auto = row->automatic >> command & 1 ? " or auto" : "";
  char high[40] = "", words[160];
  /* The bound of counts that have no natural one is only of interest to who has passed it. */
  int too_large = value && *value && value[strspn(value, "0123456789")] == 0;
  if (row->high > 0 && (row->flags & MN_OPTION_BELOW || row->high < MN_OPTION_WIDEST || too_large))
    snprintf(high, sizeof high, " to %s%.0f", row->flags & MN_OPTION_BELOW ? "below " : "", row->high);
  switch (row->kind) {
  case MN_KIND_INTEGER:
  case MN_KIND_SMALL:
    snprintf(out, size, "a whole number from %g%s%s is needed", row->low, high, or_auto);
    break;
  case MN_KIND_SEED:
    snprintf(out, size, "a whole number from 0 to %" PRIu64 " is needed", UINT64_MAX);
    break;
  case MN_KIND_REAL:
    snprintf(out, size, "a number %s %g%s%s is needed", row->flags & MN_OPTION_ABOVE ? "above" : "from",
             row->low, high, or_auto);
    break;
  case MN_KIND_PICTURE:
    snprintf(out, size, "a file's name that ends in .svg or .png is needed");
    break;
  case MN_KIND_WIDTHS:
    snprintf(out, size, "whole numbers from 1 are needed, one a block and at most %d, such as 128,128",
             MN_MODEL_DEPTH);
    break;
  case MN_KIND_EVERY:
    snprintf(out, size, "a number of steps such as 500, or of seconds such as 30s, is needed");
    break;
  case MN_KIND_WORD:
  case MN_KIND_PLAN:
  case MN_KIND_PLACE:
    describe_words(words, sizeof words, row->argument);
    snprintf(out, size, "%s is needed", words);
    break;
  case MN_KIND_FLAG:
    snprintf(out, size, "yes or no is needed");
    break;
  default:
    snprintf(out, size, "a name is needed");
    break;
  }
}

mn_status mn_option_refuse(int place, enum mn_command command, const char *value) {
  char remedy[256];
  mn_option_describe(remedy, sizeof remedy, place, command, value);
  return mn_fail(MN_USAGE, "--%s '%s': %s", mn_option_rows[place].name, value, remedy);
}

enum { LONGEST = 64 }; /* more letters than any option or command has */

/* How many letters have to be put in, left out or changed to make `b` of `b`'s first `length` … of a's. */
static int distance(const char *a, size_t length, const char *b) {
  int row[LONGEST];
  size_t width = strlen(b);
  if (width >= LONGEST) return LONGEST;
  for (size_t j = 0; j <= width; j++) row[j] = (int)j;
  for (size_t i = 1; i <= length; i++) {
    int corner = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= width; j++) {
      int change = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      int skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = change < skip ? change : skip;
    }
  }
  return row[width];
}

/* Close enough to be meant: one slip in a short word, two in a longer one. */
static int is_close(int slips, size_t length) {
  return slips <= (length > 4 ? 2 : 1) && 2 * (size_t)slips < length;
}

static mn_status refuse_unknown(enum mn_command command, const char *word, size_t length) {
  const char *says = mn_command_name(command);
  int best = -1, least = 0;
  for (int i = 0; i < mn_option_count; i++) {
    if (mn_option_rows[i].kind == MN_KIND_HEADING) continue;
    int slips = distance(word + 2, length - 2, mn_option_rows[i].name);
    if (slips == 0) {
      int other = __builtin_ctz(mn_option_rows[i].commands);
      return mn_fail(MN_USAGE, "%s takes no --%s, which is an option of %s; minnow %s --help lists its own",
                     says, mn_option_rows[i].name, mn_command_name(other), says);
    }
    if (mn_option_taken(i, command) && (best < 0 || slips < least)) best = i, least = slips;
  }
  if (best >= 0 && is_close(least, length - 2))
    return mn_fail(MN_USAGE, "%s has no option '%.*s'; did you mean --%s?", says, (int)length, word,
                   mn_option_rows[best].name);
  return mn_fail(MN_USAGE, "%s has no option '%.*s'; minnow %s --help lists those there are", says,
                 (int)length, word, says);
}

mn_status mn_option_diagnose(enum mn_command command, const char *word) {
  if (!word || word[0] != '-' || word[1] == 0) return MN_OK;
  if (word[1] != '-')
    return mn_fail(MN_USAGE,
                   "%s has no option '%s'; options are whole words behind two dashes, see minnow %s --help",
                   mn_command_name(command), word, mn_command_name(command));
  size_t length = strcspn(word, "=");
  int match = -1, matches = 0;
  char names[256] = "";
  for (int i = 0; i < mn_option_count; i++) {
    if (!mn_option_taken(i, command) || strncmp(mn_option_rows[i].name, word + 2, length - 2) != 0) continue;
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s--%s", matches ? ", " : "", mn_option_rows[i].name);
    match = i, matches++;
    if (strlen(mn_option_rows[i].name) == length - 2) {
      matches = 1;
      break;
    }
  }
  if (matches == 0 || length == 2) return refuse_unknown(command, word, length);
  if (matches > 1)
    return mn_fail(MN_USAGE, "'%.*s' could be any of %s; write it out", (int)length, word, names);
  char remedy[256];
  mn_option_describe(remedy, sizeof remedy, match, command, NULL);
  if (mn_option_rows[match].kind == MN_KIND_FLAG && word[length] == '=')
    return mn_fail(MN_USAGE, "'%s': --%s takes no value; leave out '%s'", word, mn_option_rows[match].name,
                   word + length);
  if (mn_option_rows[match].kind != MN_KIND_FLAG && word[length] == 0)
    return mn_fail(MN_USAGE, "--%s has no value: %s", mn_option_rows[match].name, remedy);
  return MN_OK;
}

mn_status mn_command_refuse(const char *word) {
  int best = 0, least = LONGEST;
  for (int i = 0; i < MN_COMMANDS; i++) {
    int slips = distance(word, strlen(word), mn_command_name(i));
    if (slips < least) best = i, least = slips;
  }
  if (word[0] == '-')
    return mn_fail(MN_USAGE,
                   "'%s' comes before a command; write minnow COMMAND first, as minnow --help lists them",
                   word);
  if (is_close(least, strlen(word)))
    return mn_fail(MN_USAGE, "no command is called '%s'; did you mean %s?", word, mn_command_name(best));
  return mn_fail(MN_USAGE, "no command is called '%s'; minnow --help lists those there are", word);
}
