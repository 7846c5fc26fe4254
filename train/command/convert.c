/* The lines of Python that convert rows or weights of another kind of file to HDF5. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/text.h"
#include "train/command/commands.h"

/* No line is a compound statement, behind which Python's prompt would wait for an empty line. */
#define NUMBERS                                                                                              \
  "k, y = np.unique(a[:, -1], return_inverse=True)  # y: the last column (classes if few whole numbers)\n"   \
  "k, y = (k, y.astype(\"int32\")) if len(k) <= min(30, len(y) // 2) and not (k % 1).any() "                 \
  "else ([], a[:, -1])\n"
#define COLUMNS "f[\"x\"], f[\"y\"], f[\"classes\"] = a[:, :-1], y, k; f.close()"
#define MIXED                                                                                                \
  "# y: the last column (classes: text, few whole numbers). Text in x: 0 or 1 for each word. Gaps: "         \
  "medians.\n"                                                                                               \
  "a = a.dropna(axis=1, how=\"all\"); a = a[a.iloc[:, -1].notna()]; y = a.pop(a.columns[-1])\n"              \
  "t = y.dtype.kind not in \"iuf\"; k, c = np.unique(y.astype(str) if t else y, return_inverse=True)\n"      \
  "k, y = (k, c.astype(\"int32\")) if t or len(k) <= min(30, len(y) // 2) and not (k % 1).any() "            \
  "else ([], y / 1)\n"                                                                                       \
  "w = [n for n in a if a[n].dtype.kind not in \"biuf\" and a[n].nunique() > 100]; "                         \
  "print(\"left out:\", w)\n"                                                                                \
  "x = pd.get_dummies(a.drop(columns=w)).astype(\"float32\"); x = x.fillna(x.median())\n"
#define FRAME "f[\"x\"], f[\"y\"], f[\"classes\"] = x, y, list(map(str, k)); f.close()"
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
struct kind {
  const char *ending, *imports, *load, *behind, *lines, *store;
};
static const struct kind mixed = {".csv", "numpy as np, pandas as pd", "pd.read_csv(", NULL, MIXED, FRAME};
static const struct kind kinds[] = {
    {".csv", "numpy as np", "np.genfromtxt(", NULL, NUMBERS, COLUMNS},
    {".tsv", "numpy as np", "np.genfromtxt(", NULL, NUMBERS, COLUMNS},
    {".npy", "numpy as np", "np.load(", ").astype(\"float32\")", NUMBERS, COLUMNS},
    {".npz", "numpy as np", "dict(np.load(", "))", "", ARRAYS},
    {".mat", "scipy.io", "{n: v for n, v in scipy.io.loadmat(", ").items() if n[0] != \"_\"}", "", ARRAYS},
    {".pt", "torch", "torch.load(", ", \"cpu\", weights_only=True)", "", WEIGHTS},
    {".pth", "torch", "torch.load(", ", \"cpu\", weights_only=True)", "", WEIGHTS},
    {".safetensors", "safetensors.torch", "safetensors.torch.load_file(", ")", "", WEIGHTS},
    {".weights.h5", "numpy as np", "h5py.File(", ")[\"layers\"]", "", LAYERS},
};

/* What the beginning of a table shows. */
struct table {
  char delimiter;
  int header, index; /* the first line has names; the first column has none, and numbers the rows */
  int plain, comma;  /* all values are numbers, and none is missing; numbers have decimal commas */
};

/* Names have no number among them, or are pandas' for columns without names: 0, 1, 2. */
static struct table look_at_first(const char *line) {
  struct table t = {.delimiter = strchr(line, '\t') ? '\t' : strchr(line, ';') ? ';' : ',', .plain = 1};
  int numbers = 0, counted = 0, fields = 0;
  for (const char *field = line; field; fields++) {
    char *end;
    field += strspn(field, " \"");
    const double value = strtod(field, &end);
    if (end > field && strchr(" \",;\t\r\n", *end)) counted += value == numbers++;
    if ((field = strchr(field, t.delimiter))) field++;
  }
  const int unnamed = line[strspn(line, "\"")] == t.delimiter;
  t.header = numbers == 0 || (numbers > 2 && counted == numbers && numbers + unnamed == fields);
  t.index = t.header ? unnamed : fields > 2;
  return t;
}

/* Whether all fields of a line are numbers, none of them nan or inf. */
static int is_plain(const char *line, char delimiter) {
  char *end;
  for (const char *field = line; *field; field = end + (*end == delimiter)) {
    (void)strtod(field, &end);
    if (*field == delimiter || end == field) return 0;
    end += strspn(end, " \r\n");
    if (*end && *end != delimiter) return 0;
  }
  return line[strcspn(line, "nNxX")] == 0;
}

static struct table look_at(FILE *file) {
  enum { MOST = 1 << 24 }; /* bytes: half a second */
  struct table t = {0};
  char *line = NULL, *end;
  size_t size = 0, all = 0;
  long row = 0, commas = 0;
  for (ssize_t length; all < MOST && (length = getline(&line, &size, file)) > 0; all += (size_t)length) {
    const char *c = line + (strncmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    if (all == 0) t = look_at_first(c);
    if ((all == 0 && t.header) || c[strspn(c, " \r\n")] == 0) continue;
    if (!t.header) t.index &= strtol(c + (*c == '"'), &end, 10) == row++ && end > c && strchr("\",;\t", *end);
    t.plain = t.plain && is_plain(line, t.delimiter);
    for (c = line; t.delimiter != ',' && (c = strpbrk(c + 1, ",.")) != NULL;)
      if (isdigit((unsigned char)c[-1]) && isdigit((unsigned char)c[1])) commas += *c == ',' ? 1 : -1;
  }
  free(line);
  t.comma = commas > 0;
  return t;
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

/* The kind of the file at `path`; NULL if it is none of these. Only Keras' is HDF5. */
static const struct kind *find_kind(const char *path) {
  const struct kind *kind = kinds, *keras = kinds + sizeof kinds / sizeof *kinds - 1;
  const char *end = path + strlen(path);
  while (kind < keras && (end - path < (long)strlen(kind->ending) ||
                          strcasecmp(end - strlen(kind->ending), kind->ending) != 0))
    kind++;
  FILE *file = kind < keras || strstr(path, keras->ending) ? fopen(path, "rb") : NULL;
  if (!file) return NULL;
  char start[5] = "";
  (void)!fgets(start, sizeof start, file);
  fclose(file);
  return (strcmp(start, "\x89HDF") == 0) == (kind == keras) ? kind : NULL;
}

/* The rest of the expression that reads a table. */
static void print_reading(FILE *out, const struct table *t) {
  const char *delimiter = t->delimiter == '\t' ? "\\t" : (char[]){t->delimiter, 0};
  if (t->plain)
    fprintf(out, ", delimiter=\"%s\", skip_header=%d, dtype=\"float32\")%s", delimiter, t->header,
            t->index ? "[:, 1:]  # without the numbers of the rows" : "");
  else
    fprintf(out,
            ", sep=\"%s\", header=%s, index_col=%s, decimal=\"%c\", skipinitialspace=True,\n"
            "  encoding_errors=\"backslashreplace\", keep_default_na=False, "
            "na_values=\",NA,N/A,NaN,nan,NULL,null,?\".split(\",\"))",
            delimiter, t->header ? "0" : "None", t->index ? "0" : "None", t->comma ? ',' : '.');
}

void mn_show_conversion(FILE *out, const struct mn_options *o) {
  const char *const paths[] = {o->data, o->init, o->checkpoint, o->file_count ? o->files[0] : NULL};
  const struct kind *kind = NULL;
  const char *path = NULL;
  char to[4096];
  for (int i = 0; i < 4 && !kind; i++) /* a name in a message may be cut or escaped */
    if (paths[i] && (i == 0 || strstr(mn_message(), paths[i]))) kind = find_kind(path = paths[i]);
  if (!kind) return;
  struct table table = {.plain = 1};
  FILE *file = kind->behind ? NULL : fopen(path, "rb");
  if (file) {
    table = look_at(file);
    fclose(file);
    if (!table.delimiter) return; /* it is empty */
  }
  if (!table.plain) kind = &mixed;
  fprintf(out, "import h5py, %s  # these lines write it as HDF5\na = %s", kind->imports, kind->load);
  print_quoted(out, path);
  if (kind->behind)
    fputs(kind->behind, out);
  else
    print_reading(out, &table);
  fprintf(out, "\n%sf = h5py.File(", kind->lines);
  snprintf(to, sizeof to, "%.*s.h5", (int)(strlen(path) - strlen(kind->ending)), path);
  print_quoted(out, to);
  fprintf(out, ", \"x\"); %s\n", kind->store);
}
