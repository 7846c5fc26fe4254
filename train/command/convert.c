/* Recognises a CSV or .npy file, and prints the Python that converts it. */
#include "train/command/session.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"

/* The file refused last; path is empty before the first. The delimiter is 0 for .npy. */
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

/* Reads the first line of a CSV file: its delimiter, and whether it has names. */
static mn_status read_head(const char *path) {
  char line[4096] = "";
  FILE *file = fopen(path, "rb");
  if (!file) return MN_BAD_DATA; /* the message is already why */
  const char *read = fgets(line, sizeof line, file), *found = strpbrk(line, ",;\t");
  fclose(file);
  table.delimiter = found ? *found : ',';
  table.header = !starts_with_number(line);
  return read ? MN_OK : MN_BAD_DATA;
}

mn_status mn_convert_refuse(const char *path) {
  const char *dot = strrchr(path, '.');
  const int csv = dot && (strcasecmp(dot, ".csv") == 0 || strcasecmp(dot, ".tsv") == 0);
  if (!dot || (!csv && strcasecmp(dot, ".npy") != 0) || strlen(path) >= sizeof table.path) return MN_BAD_DATA;
  table.delimiter = 0;
  if (csv) MN_TRY(read_head(path));
  strcpy(table.path, path);
  snprintf(table.to, sizeof table.to, "%.*s.h5", (int)(dot - path), path);
  return mn_fail(MN_BAD_DATA,
                 "%s is a %s file, not HDF5: these lines of Python write %s, with the last column as y", path,
                 csv ? "CSV" : ".npy", table.to);
}

/* Prints a name as a Python string that a shell does not interpret. Bytes outside UTF-8 are written as Python
 * writes them in file names. */
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
