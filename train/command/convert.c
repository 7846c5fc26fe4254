/* The lines of Python that convert rows or weights of another kind of file to HDF5. */
#include <string.h>

#include "kernels/text.h"
#include "train/command/commands.h"

/* No line is a compound statement, behind which Python's prompt would wait for an empty line. */
#define TABLE                                                                                                \
  "k, y = np.unique(a[:, -1], return_inverse=True)  # y: the last column (classes if few whole numbers)\n"   \
  "k, y = (k, y.astype(\"int32\")) if len(k) <= min(30, len(y) // 2) and not (k % 1).any() "                 \
  "else ([], a[:, -1])\n"
#define COLUMNS "f[\"x\"], f[\"y\"], f[\"classes\"] = a[:, :-1], y, k; f.close()"
#define ARRAYS "[f.create_dataset(n, data=v) for n, v in a.items()]; f.close()  # --x and --y name them"
#define WEIGHTS "[f.create_dataset(\"model/\" + n, data=v.float().numpy()) for n, v in a.items()]; f.close()"
/* Keras numbers its layers from the second on: dense, dense_1. */
#define LAYERS                                                                                               \
  "[f.create_dataset(f\"model/blocks.{n.rpartition('_')[2] if n[-1].isdigit() else 0}.{g}.{w}\", "           \
  "data=a[n][\"vars\"][v][()].T) for n in a for k, g in ((\"dense\", \"fc\"), (\"group_n\", \"gn\")) "       \
  "if n.startswith(k) for v, w in ((\"0\", \"weight\"), (\"1\", \"bias\"))]; f.close()  # a last Dense is "  \
  "head"

/* By the ending of a name: what is imported, the expression around the quoted name, the lines that work on
 * `a`, its value, and what is done with it in the new file f. */
static const struct kind {
  const char *ending, *imports, *load, *behind, *lines, *store;
} kinds[] = {
    {".npy", "numpy as np", "np.load(", ")", TABLE, COLUMNS},
    {".npz", "numpy as np", "dict(np.load(", "))", "", ARRAYS},
    {".mat", "scipy.io", "{n: v if n == \"x\" else v.squeeze() for n, v in scipy.io.loadmat(",
     ").items() if n[0] != \"_\"}", "", ARRAYS},
    {".pt", "torch", "torch.load(", ", \"cpu\", weights_only=True)", "", WEIGHTS},
    {".pth", "torch", "torch.load(", ", \"cpu\", weights_only=True)", "", WEIGHTS},
    {".safetensors", "safetensors.torch", "safetensors.torch.load_file(", ")", "", WEIGHTS},
    {".mat", "numpy as np", "{n: v[()].T if n == \"x\" else v[()].squeeze().T for n, v in h5py.File(",
     ").items() if hasattr(v, \"dtype\")}", "", ARRAYS}, /* of version 7.3 */
    {".weights.h5", "numpy as np", "h5py.File(", ")[\"layers\"]", "", LAYERS},
};

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

/* The kind of the file at `path`; NULL if it is none of these. Only Keras' and newer MAT-files are HDF5. */
static const struct kind *find_kind(const char *path) {
  const struct kind *kind = kinds, *keras = kinds + sizeof kinds / sizeof *kinds - 1, *matlab = keras - 1;
  const char *end = path + strlen(path);
  while (kind < keras && (end - path < (long)strlen(kind->ending) ||
                          strcasecmp(end - strlen(kind->ending), kind->ending) != 0))
    kind++;
  FILE *file = kind < keras || strstr(path, ".h5") ? fopen(path, "rb") : NULL;
  if (!file) return NULL;
  char start[11] = "";
  (void)!fgets(start, sizeof start, file);
  fclose(file);
  if (strcmp(start, "MATLAB 7.3") == 0) return matlab;
  if (kind == keras && !strstr(path, keras->ending)) return NULL;
  return (strncmp(start, "\x89HDF", 4) == 0) == (kind == keras) ? kind : NULL;
}

void mn_show_conversion(FILE *out, const struct mn_options *o) {
  const int reads = o->file_count && o->command != MN_COMMAND_PLOT;
  const char *const paths[] = {o->data, o->init, o->checkpoint, reads ? o->files[0] : NULL};
  const struct kind *kind = NULL;
  const char *path = NULL;
  char to[4096];
  for (int i = 0; i < 4 && !kind; i++) /* a name in a message may be cut or escaped */
    if (paths[i] && (i == 0 || strstr(mn_message(), paths[i]))) kind = find_kind(path = paths[i]);
  if (!kind) return;
  fprintf(out, "import h5py, %s  # these lines write it as HDF5\na = %s", kind->imports, kind->load);
  print_quoted(out, path);
  fprintf(out, "%s\n%sf = h5py.File(", kind->behind, kind->lines);
  const char *const end = strrchr(path, '.'); /* a MAT-file may be called rows.h5 */
  const size_t ending =
      end && kind->ending[1] == 'm' && strcasecmp(end, ".h5") == 0 ? 0 : strlen(kind->ending);
  snprintf(to, sizeof to, "%.*s.h5", (int)(strlen(path) - ending), path);
  print_quoted(out, to);
  fprintf(out, ", \"x\"); %s\n", kind->store);
}
