/* The lines of Python that convert rows or weights of another kind of file to HDF5. */
#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"
#include "train/command/commands.h"

#define COLUMNS                                                                                              \
  "f[\"x\"], f[\"y\"] = a[:, :-1], a[:, -1]  # y is the last column; classes: a[:, -1].astype(\"int32\")"
#define ARRAYS "[f.create_dataset(n, data=v) for n, v in a.items()]  # --x and --y name them"
#define WEIGHTS "[f.create_dataset(\"model/\" + n, data=v.float().numpy()) for n, v in a.items()]"
/* Keras numbers its layers from the second on: dense, dense_1. */
#define LAYERS                                                                                               \
  "[f.create_dataset(f\"model/blocks.{n.rpartition('_')[2] if n[-1].isdigit() else 0}.{g}.{w}\", "           \
  "data=a[n][\"vars\"][v][()].T) for n in a for k, g in ((\"dense\", \"fc\"), (\"group_n\", \"gn\")) "       \
  "if n.startswith(k) for v, w in ((\"0\", \"weight\"), (\"1\", \"bias\"))]  # a last Dense is head"

/* By the ending of a name: what is imported, the expression around the quoted name, and what is done with it,
 * `a`, in the new file f. */
static const struct kind {
  const char *ending, *imports, *load, *behind, *store;
} kinds[] = {
    {".csv", "numpy as np", "np.genfromtxt(", NULL, COLUMNS},
    {".tsv", "numpy as np", "np.genfromtxt(", NULL, COLUMNS},
    {".npy", "numpy as np", "np.load(", ").astype(\"float32\")", COLUMNS},
    {".npz", "numpy as np", "dict(np.load(", "))", ARRAYS},
    {".mat", "scipy.io", "{n: v for n, v in scipy.io.loadmat(", ").items() if n[0] != \"_\"}", ARRAYS},
    {".pt", "torch", "torch.load(", ", \"cpu\", weights_only=True)", WEIGHTS},
    {".pth", "torch", "torch.load(", ", \"cpu\", weights_only=True)", WEIGHTS},
    {".safetensors", "safetensors.torch", "safetensors.torch.load_file(", ")", WEIGHTS},
    {".weights.h5", "numpy as np", "h5py.File(", ")[\"layers\"]", LAYERS},
};

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

/* The kind of the file at `path`, and its first line; NULL if it is none of these. Only Keras' is HDF5. */
static const struct kind *find_kind(const char *path, char *line, int size) {
  const struct kind *kind = kinds, *keras = kinds + sizeof kinds / sizeof *kinds - 1;
  const char *end = path + strlen(path);
  while (kind < keras && (end - path < (long)strlen(kind->ending) ||
                          strcasecmp(end - strlen(kind->ending), kind->ending) != 0))
    kind++;
  FILE *file = kind < keras || strstr(path, keras->ending) ? fopen(path, "rb") : NULL;
  if (!file) return NULL;
  *line = 0;
  (void)!fgets(line, size, file);
  fclose(file);
  return (strncmp(line, "\x89HDF", 4) == 0) == (kind == keras) ? kind : NULL;
}

void mn_show_conversion(FILE *out, const struct mn_options *o) {
  const char *const paths[] = {o->data, o->init, o->checkpoint};
  const struct kind *kind = NULL;
  const char *path = NULL;
  char line[4096], to[4096];
  for (int i = 0; i < 3 && !kind; i++) /* a name in a message may be cut or escaped */
    if (paths[i] && (i == 0 || strstr(mn_message(), paths[i])))
      kind = find_kind(path = paths[i], line, sizeof line);
  if (!kind) return;
  fprintf(out, "import h5py, %s  # these lines write it as HDF5\na = %s", kind->imports, kind->load);
  print_quoted(out, path);
  const char *found = strpbrk(line, ",;\t");
  if (kind->behind)
    fputs(kind->behind, out);
  else
    fprintf(out, ", delimiter=\"%s\", skip_header=%d, dtype=\"float32\")",
            !found           ? ","
            : *found == '\t' ? "\\t"
                             : (char[]){*found, 0},
            !starts_with_number(line));
  fputs("\nwith h5py.File(", out);
  snprintf(to, sizeof to, "%.*s.h5", (int)(strlen(path) - strlen(kind->ending)), path);
  print_quoted(out, to);
  fprintf(out, ", \"x\") as f: %s\n", kind->store);
}
