/* Prints the Python that converts a CSV or .npy file. */
#include "train/command/session.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"

/* Whether a line starts with a number. Its first field may be empty, as pandas names an index. */
static int starts_with_number(const char *line) {
  char *end;
  line += strspn(line, " ,;\t");
  (void)strtod(line, &end);
  return end > line && strchr(" ,;\t\r\n", *end);
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

void mn_convert_show(FILE *out, const char *path) {
  const char *dot = path ? strrchr(path, '.') : NULL;
  const int csv = dot && (strcasecmp(dot, ".csv") == 0 || strcasecmp(dot, ".tsv") == 0);
  char line[4096] = "", to[4096];
  FILE *file = csv || (dot && strcasecmp(dot, ".npy") == 0) ? fopen(path, "rb") : NULL;
  if (!file) return;
  const char *found = fgets(line, sizeof line, file) ? strpbrk(line, ",;\t") : NULL;
  fclose(file);
  if (strncmp(line, "\x89HDF", 4) == 0) return;
  fputs("import h5py, numpy as np  # these lines write --data as HDF5, with the last column as y\n", out);
  fputs(csv ? "a = np.genfromtxt(" : "a = np.load(", out);
  print_quoted(out, path);
  if (csv)
    fprintf(out, ", delimiter=\"%s\", skip_header=%d, dtype=\"float32\")\n",
            !found           ? ","
            : *found == '\t' ? "\\t"
                             : (char[]){*found, 0},
            !starts_with_number(line));
  else
    fputs(").astype(\"float32\")\n", out);
  fputs("with h5py.File(", out);
  snprintf(to, sizeof to, "%.*s.h5", (int)(dot - path), path);
  print_quoted(out, to);
  fputs(", \"x\") as f: f[\"x\"], f[\"y\"] = a[:, :-1], a[:, -1]  # classes: a[:, -1].astype(\"int32\")\n",
        out);
}
