/* Reads words in a child process: those of variable length are wherever the file says they are. */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/hdf5/file.h"

enum { AT_ONCE = 4096, SECONDS = 60, ROWS_A_SECOND = 100000, SLOTS = 4096 };
_Static_assert(SLOTS > 2 * MN_CLASSES_MOST, "room to find a name at once");

/* What the child leaves: the names in the order in which they were met. */
struct words {
  int64_t count;
  char names[MN_CLASSES_MOST][MN_CLASS_NAME];
  int32_t labels[]; /* [rows] */
};

struct reading {
  struct mn_hdf5_file *file;
  const struct mn_hdf5_object *dataset;
  int64_t rows;
  struct words *words;
  int16_t slots[SLOTS]; /* a hash table of the names: each one's number + 1 */
};

int mn_has_words(const struct mn_hdf5_object *dataset) {
  return dataset->class == H5T_STRING || dataset->class == H5T_ENUM;
}

/* The number of a name, which is added if it is new; −1 if it is one too many. */
static int32_t number_of(struct reading *r, const char *name, size_t length) {
  struct words *w = r->words;
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
  int16_t *slot = &r->slots[hash % SLOTS];
  for (; *slot; slot = slot + 1 < r->slots + SLOTS ? slot + 1 : r->slots)
    if (strncmp(w->names[*slot - 1], name, length) == 0 && !w->names[*slot - 1][length]) return *slot - 1;
  if (w->count == MN_CLASSES_MOST) return -1;
  memcpy(w->names[w->count], name, length); /* zeros follow it */
  *slot = (int16_t)++w->count;
  return *slot - 1;
}

/* Takes the word of a row. */
static mn_status add_word(struct reading *r, int64_t row, const char *word, size_t length) {
  const char *path = r->file->path, *name = r->dataset->name;
  if (length == 0 || length >= MN_CLASS_NAME)
    return mn_fail(
        MN_BAD_DATA,
        "%s: dataset %s, row %lld (from 0) is a text of %zu bytes: a class's name has 1 to %d; fill "
        "it in, shorten it or leave out the row",
        path, name, (long long)row, length, MN_CLASS_NAME - 1);
  if (memchr(word, 0, length))
    return mn_fail(MN_BAD_DATA,
                   "%s: dataset %s, row %lld (from 0) is a text with a zero byte in it: remove it", path,
                   name, (long long)row);
  r->words->labels[row] = number_of(r, word, length);
  if (r->words->labels[row] >= 0) return MN_OK;
  return mn_fail(MN_BAD_DATA,
                 "%s: dataset %s has more than %d different texts: as classes these are too many; store "
                 "targets that are numbers as floats",
                 path, name, MN_CLASSES_MOST);
}

/* One element of the file's type: the word of an enum's value, or a text, which is padded or pointed to. */
static mn_status take_element(struct reading *r, hid_t type, int64_t row, void *element) {
  char text[MN_CLASS_NAME + 1] = "";
  const char *word = element;
  if (r->dataset->class == H5T_ENUM) {
    if (H5Tenum_nameof(type, element, text, sizeof text - 1) < 0 && !*text)
      return mn_fail(MN_BAD_DATA, "%s: dataset %s, row %lld (from 0) is no member of its enum: correct it",
                     r->file->path, r->dataset->name, (long long)row);
    return add_word(r, row, text, strlen(text));
  }
  if (H5Tis_variable_str(type) > 0) {
    word = *(char **)element;
    return add_word(r, row, word, word ? mn_hdf5_text_length(r->dataset->padding, word, strlen(word)) : 0);
  }
  return add_word(r, row, word, mn_hdf5_text_length(r->dataset->padding, word, r->dataset->element));
}

static mn_status read_rows(struct reading *r, hid_t type, hid_t space, void *elements) {
  const size_t each = H5Tget_size(type);
  for (int64_t first = 0, here; first < r->rows; first += here) {
    here = r->rows - first < AT_ONCE ? r->rows - first : AT_ONCE;
    const hsize_t start[2] = {(hsize_t)first}, count[2] = {(hsize_t)here, 1};
    hid_t memory = H5Screate_simple(1, count, NULL);
    if (memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        H5Dread(r->dataset->id, type, memory, space, H5P_DEFAULT, elements) < 0)
      return mn_hdf5_damaged(r->file, r->dataset->name, NULL);
    for (int64_t i = 0; i < here; i++)
      MN_TRY(take_element(r, type, first + i, (char *)elements + (size_t)i * each));
    if (H5Tis_variable_str(type) > 0) H5Dvlen_reclaim(type, memory, H5P_DEFAULT, elements);
    H5Sclose(memory);
  }
  return MN_OK;
}

/* In the child, whose end frees all. */
static mn_status read_words(void *data, void *shared) {
  struct reading *r = data;
  r->words = shared;
  hid_t type = H5Dget_type(r->dataset->id), space = H5Dget_space(r->dataset->id);
  void *elements = type < 0 || space < 0 ? NULL : calloc(AT_ONCE, H5Tget_size(type));
  if (!elements)
    return mn_hdf5_damaged(r->file, r->dataset->name, type < 0 ? NULL : "its texts are too long");
  return read_rows(r, type, space, elements);
}

mn_status mn_read_words(struct mn_hdf5_file *file, const struct mn_hdf5_object *dataset, int64_t rows,
                        int32_t *labels, struct mn_class_names *names) {
  struct reading r = {.file = file, .dataset = dataset, .rows = rows};
  const size_t bytes = sizeof *r.words + (size_t)rows * sizeof *labels;
  struct words *words = malloc(bytes);
  const int seconds = SECONDS + (int)(rows / ROWS_A_SECOND); /* far more than it takes */
  int died = 0;
  *names = (struct mn_class_names){0};
  if (!words) return mn_fail(MN_NO_MEMORY, "no memory for the labels of %lld rows", (long long)rows);
  mn_hdf5_lock();
  mn_status status = mn_hdf5_apart(file, read_words, &r, seconds, words, bytes, &died);
  if (status == MN_OK && died) status = mn_hdf5_damaged(file, dataset->name, MN_HDF5_CRASHED);
  mn_hdf5_unlock();
  if (status == MN_OK && !(names->names = malloc((size_t)words->count * sizeof *names->names)))
    status = mn_fail(MN_NO_MEMORY, "no memory for the names of %lld classes", (long long)words->count);
  if (status == MN_OK) {
    names->count = words->count;
    memcpy(names->names, words->names, (size_t)words->count * sizeof *names->names);
    mn_class_names_sort(names);
    for (int64_t i = 0; i < rows; i++)
      labels[i] = (int32_t)mn_class_find(names, words->names[words->labels[i]]);
  }
  free(words);
  return status;
}
