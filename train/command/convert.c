/* Recognising a table that is no HDF5 file, and the Python that converts it; see convert.h. */
#include "train/command/convert.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/escape.h"

/* The file refused last; its delimiter is 0 for .npy, and there is none if path is empty. */
static struct {
  char path[4096], to[4096 + 8];
  int delimiter, header;
} table;

/* Whether a line does. Its first field may be empty, as pandas writes the name of an index. */
static int starts_with_number(const char *line) {
  char *end;
  line += strspn(line, " ,;\t");
  (void)strtod(line, &end);
  return end > line && strchr(" ,;\t\r\n", *end);
}

/* Looks at the first bytes, with a zero behind them. Returns 0 unless they are such a table's. */
static int recognise(char *head, size_t length, const char *suffix) {
  static const char controls[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15"
                                 "\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f";
  table.delimiter = 0;
  if (length > 6 && memcmp(head, "\x93NUMPY", 6) == 0) return 1;
  if (length == 0 || strlen(head) != length || strpbrk(head, controls)) return 0;
  const int named = strcasecmp(suffix, ".csv") == 0;
  char *next = head + strcspn(head, "\r\n");
  next += strspn(next, "\r\n");
  table.header = !starts_with_number(head);
  if (!named && table.header && !starts_with_number(next)) return 0;
  head[strcspn(head, "\r\n")] = 0;
  const char *found = strpbrk(head, ",;\t");
  if (!named && !found) return 0;
  table.delimiter = found ? *found : ',';
  return 1;
}

mn_status mn_convert_refuse(const char *path) {
  char head[4096];
  FILE *file = fopen(path, "rb");
  if (!file) return MN_BAD_DATA; /* the message is already why */
  const size_t length = fread(head, 1, sizeof head - 1, file);
  fclose(file);
  head[length] = 0;
  const char *base = strrchr(path, '/'), *dot = strrchr(base ? base : path, '.');
  const int stem = (int)(dot ? dot - path : (long)strlen(path));
  if (strlen(path) >= sizeof table.path || !recognise(head, length, path + stem)) return MN_BAD_DATA;
  strcpy(table.path, path);
  snprintf(table.to, sizeof table.to, "%.*s%s", stem, path,
           strcmp(path + stem, ".h5") == 0 ? ".new.h5" : ".h5");
  return mn_fail(MN_BAD_DATA,
                 "%s is a %s file, not HDF5: these lines of Python write %s, with the last column as y", path,
                 table.delimiter ? "CSV" : ".npy", table.to);
}

/* Prints a name as a string of Python's that no shell reads otherwise. Bytes that are no UTF-8 are as in Python's
 * names of files. */
static void print_quoted(FILE *out, const char *text) {
  fputc('"', out);
  for (size_t length; *text; text += length ? length : 1) {
    length = mn_escape_character(text);
    const unsigned byte = (unsigned char)*text;
    if (byte < 0x80 && (length == 0 || strchr("\"\\'$`!", *text)))
      fprintf(out, "\\x%02x", byte);
    else if (length == 0)
      fprintf(out, "\\udc%02x", byte);
    else
      fwrite(text, 1, length, out);
  }
  fputc('"', out);
}

void mn_convert_show(FILE *out) {
  if (!*table.path) return;
  fputs("import h5py, numpy as np\n", out);
  fputs(table.delimiter ? "a = np.genfromtxt(" : "a = np.load(", out);
  print_quoted(out, table.path);
  if (table.delimiter)
    fprintf(out, ", delimiter=\"%s\", skip_header=%d, dtype=\"float32\")\n",
            table.delimiter == '\t' ? "\\t" : (char[]){(char)table.delimiter, 0}, table.header);
  else
    fputs(").astype(\"float32\")\n", out);
  fputs("with h5py.File(", out);
  print_quoted(out, table.to);
  fputs(", \"x\") as f: f[\"x\"], f[\"y\"] = a[:, :-1], a[:, -1]  # classes: a[:, -1].astype(\"int32\")\n",
        out);
}
