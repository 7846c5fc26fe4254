/* Numbers and lines for people. */
#include "train/command/announce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

const char *mn_show_number(char out[MN_SHOWN], double value, int digits) {
  const double size = fabs(value);
  if (value == 0 || !(size >= 1e-9 && size < 1e15)) {
    snprintf(out, MN_SHOWN, "%.*g", digits, value);
    return out;
  }
  /* The exponent after rounding: 0.99996 with four digits is 1.000. */
  char rounded[MN_SHOWN];
  snprintf(rounded, sizeof rounded, "%.*e", digits - 1, value);
  const int exponent = atoi(strchr(rounded, 'e') + 1);
  snprintf(out, MN_SHOWN, "%.*f", digits - 1 > exponent ? digits - 1 - exponent : 0, value);
  return out;
}

const char *mn_show_rate(char out[MN_SHOWN], double rate, const char *unit) {
  static const char prefixes[] = {0, 'k', 'M', 'G', 'T', 'P'};
  char number[MN_SHOWN];
  size_t i = 0;
  for (; i + 1 < sizeof prefixes && rate >= 999.5; i++) rate /= 1000;
  snprintf(out, MN_SHOWN, "%.20s %.1s%s", mn_show_number(number, rate, 3), prefixes + i, unit);
  return out;
}

const char *mn_show_time(char out[MN_SHOWN], double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) {
    snprintf(out, MN_SHOWN, "?");
    return out;
  }
  const long long whole = llround(seconds);
  snprintf(out, MN_SHOWN, "%lld:%02d:%02d", whole / 3600, (int)(whole / 60 % 60), (int)(whole % 60));
  return out;
}

const char *mn_show_bytes(char out[MN_SHOWN], double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  char number[MN_SHOWN];
  int i = 0;
  for (; i < 4 && bytes >= 999.5; i++) bytes /= 1024;
  snprintf(out, MN_SHOWN, "%.20s %s", mn_show_number(number, bytes, i == 0 ? 1 : 3), units[i]);
  return out;
}

const char *mn_show_model(char out[MN_SHOWN_MODEL], const struct mn_model_config *c) {
  int used = snprintf(out, MN_SHOWN_MODEL, "%ld inputs", (long)c->inputs);
  for (int i = 0; i < c->depth; i++)
    used += snprintf(out + used, MN_SHOWN_MODEL - (size_t)used, "%s%ld", i ? " -> " : ", blocks of ",
                     (long)c->hidden[i]);
  used += snprintf(out + used, MN_SHOWN_MODEL - (size_t)used, " channels in %ld groups", (long)c->groups);
  if (c->head) used += snprintf(out + used, MN_SHOWN_MODEL - (size_t)used, ", a head of %ld", (long)c->head);
  snprintf(out + used, MN_SHOWN_MODEL - (size_t)used, ", %s", mn_loss_name(c->loss));
  return out;
}

int mn_show_columns(int fd) {
  struct winsize size;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
