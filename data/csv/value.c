/* What a text in a CSV file is: a number, a date, missing, or a word. */
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv/csv.h"
#include "data/csv/file.h"

static locale_t plain; /* where a decimal point is a point, whatever the program around has set */

static void set_plain(void) {
  plain = newlocale(LC_ALL_MASK, "C", NULL);
}

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* Reads a decimal number, and returns its end, or `text`. What 53 bits and one exact power of ten give is
 * rounded once, so as strtod would (Clinger 1990). */
static const char *read_number(const char *text, double *value) {
  static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char *p = text + (*text == '-' || *text == '+');
  uint64_t digits = 0;
  int scale = 0, point = 0, any = 0;
  for (; is_digit(*p) || (*p == '.' && !point); p++) {
    if (*p == '.') {
      point = 1;
      continue;
    }
    any = 1;
    scale -= point;
    digits = digits < UINT64_C(1) << 53 ? digits * 10 + (uint64_t)(*p - '0') : UINT64_MAX;
  }
  if (!any) return text;
  if (*p == 'e' || *p == 'E') {
    const char *e = p + 1 + (p[1] == '-' || p[1] == '+');
    int exponent = 0;
    if (is_digit(*e)) {
      for (p = e; is_digit(*p); p++) exponent = exponent < 9999 ? exponent * 10 + (*p - '0') : exponent;
      scale += e[-1] == '-' ? -exponent : exponent;
    }
  }
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (digits < UINT64_C(1) << 53 && abs(scale) <= 22) {
    *value = scale < 0 ? (double)digits / powers[-scale] : (double)digits * powers[scale];
    *value = *text == '-' ? -*value : *value;
  } else {
    MN_REQUIRE(pthread_once(&once, set_plain) == 0 && plain);
    *value = strtod_l(text, NULL, plain);
  }
  return p;
}

/* The bytes of a blank, as it stands in numbers; 0 for anything else. */
static size_t blank(const char *p) {
  static const char *const blanks[] = {" ", "\u00a0", "\u2009", "\u202f"};
  for (int i = 0; i < 4; i++)
    if (strncmp(p, blanks[i], strlen(blanks[i])) == 0) return strlen(blanks[i]);
  return 0;
}

/* The bytes of a sign of money or percent, or 0. */
static size_t sign(const char *p) {
  if (*p == '$' || *p == '%') return 1;
  if (strncmp(p, "£", 2) == 0 || strncmp(p, "¥", 2) == 0) return 2;
  return strncmp(p, "€", 3) == 0 || strncmp(p, "₹", 3) == 0 ? 3 : 0;
}

/* Writes a number as C would: without signs, blanks and thousands, and with a point. Returns 0 if the text is
 * no number so written. */
static int tidy(char out[64], const char *text, char decimal) {
  const char thousands = decimal == '.' ? ',' : '.';
  size_t used = 0, step;
  int digits = 0, ended = 0; /* digits: behind the last separator of thousands, or −1 behind the point */
  for (const char *p = text; *p; p += step) {
    step = 1;
    const size_t gap = blank(p);
    const int group = digits > 0 && (gap || *p == thousands || *p == '\'') && is_digit(p[gap ? gap : 1]);
    if (group) {
      step = gap ? gap : 1;
      if (digits > 3 || ended || (digits == 1 && out[used - 1] == '0') || !is_digit(p[step + 1]) ||
          !is_digit(p[step + 2]) || is_digit(p[step + 3]))
        return 0;
      digits = 0;
    } else if (gap || sign(p)) {
      step = gap ? gap : sign(p);
      ended = digits != 0;
    } else if (ended || used == 62 || *p == thousands || !strchr("0123456789+-.,eE", *p) ||
               (*p == decimal && digits < 0) ||
               ((*p == '+' || *p == '-') && used && (out[used - 1] | 32) != 'e')) {
      return 0;
    } else {
      digits = is_digit(*p) ? digits + (digits >= 0) : used ? -1 : 0;
      out[used++] = *p == decimal ? '.' : *p;
    }
  }
  out[used] = 0;
  return 1;
}

int mn_csv_is_missing(const char *text) {
  static const char *const words[] = {"",    "NA",  "N/A",  "n/a",  "#N/A", "<NA>",
                                      "NaN", "nan", "NULL", "null", "?",    "-"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(text, words[i]) == 0) return 1;
  return 0;
}

/* Reads `count` digits, a number from `low` to `high`; −1 for anything else. */
static int read_digits(const char **p, int count, int low, int high) {
  int number = 0;
  for (int i = 0; i < count; i++, (*p)++) {
    if (!is_digit(**p)) return -1;
    number = number * 10 + (**p - '0');
  }
  return number >= low && number <= high ? number : -1;
}

/* YYYY-MM-DD, and behind a T or a blank HH:MM, then :SS, then a fraction; then Z or the distance to UTC, as
 * +HH:MM, +HHMM or +HH. */
static int read_date(const char *p, double *days) {
  const int year = read_digits(&p, 4, 0, 9999), dash = *p == '-';
  const int month = dash ? (p++, read_digits(&p, 2, 1, 12)) : -1,
            day = *p == '-' ? (p++, read_digits(&p, 2, 1, 31)) : -1;
  if (year < 0 || month < 0 || day < 0) return 0;
  static const signed char lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  if (day > lengths[month - 1] || (month == 2 && day == 29 && !leap)) return 0;
  /* The Gregorian calendar in years from March on: 30.6 days a month, and a day more each fourth year. */
  const int y = month > 2 ? year : year - 1, m = month > 2 ? month - 3 : month + 9;
  *days = 365.0 * y + floor(y / 4.0) - floor(y / 100.0) + floor(y / 400.0) + (153 * m + 2) / 5 + day - 719469;
  if (!*p) return 1;
  if (*p != 'T' && *p != ' ') return 0;
  const int hour = (p++, read_digits(&p, 2, 0, 24)),
            minute = *p == ':' ? (p++, read_digits(&p, 2, 0, 59)) : -1;
  double seconds = 0, apart = 0;
  if (hour < 0 || minute < 0) return 0;
  if (*p == ':') {
    const int whole = (p++, read_digits(&p, 2, 0, 60));
    if (whole < 0) return 0;
    const char *fraction = p;
    if (*p == '.') p = read_number(p, &seconds);
    if (*fraction == '.' && p == fraction) return 0;
    seconds += whole;
  }
  if (*p == 'Z') {
    p++;
  } else if (*p == '+' || *p == '-') {
    const double east = *p++ == '+' ? 1 : -1;
    const int h = read_digits(&p, 2, 0, 23);
    p += *p == ':';
    const int min = *p ? read_digits(&p, 2, 0, 59) : 0;
    if (h < 0 || min < 0) return 0;
    apart = east * (h * 60 + min);
  }
  *days += (hour * 3600.0 + (minute - apart) * 60 + seconds) / 86400;
  return !*p;
}

/* Whether all of the text is a finite number. */
static int is_number(const char *text, double *value) {
  const char *end = read_number(text, value);
  return end > text && !*end && isfinite(*value);
}

enum mn_csv_kind mn_csv_value(const char *text, char decimal, double *value) {
  char tidied[64];
  if ((decimal == '.' || !strpbrk(text, ".,")) && is_number(text, value)) return MN_CSV_NUMBER;
  const int missing = mn_csv_is_missing(text);
  if (!missing && tidy(tidied, text, decimal) && is_number(tidied, value)) return MN_CSV_NUMBER;
  if (!missing && read_date(text, value)) return MN_CSV_DATE;
  *value = NAN;
  return missing ? MN_CSV_MISSING : MN_CSV_WORD;
}
