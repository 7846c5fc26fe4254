/* A column of a CSV file, as it grows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv/file.h"

static mn_status no_memory(const struct mn_csv_column *c) {
  return mn_fail(MN_NO_MEMORY, "no memory for the rows of column %s", c->name);
}

static mn_status resize(const struct mn_csv_column *c, void *array, int64_t rows, size_t each) {
  void **at = array, *longer = realloc(*at, (size_t)rows * each);
  if (!longer) return no_memory(c);
  *at = longer;
  return MN_OK;
}

mn_status mn_csv_reserve(struct mn_csv_column *c, int64_t rows) {
  if (c->ids.wanted) MN_TRY(resize(c, &c->ids.starts, rows, sizeof *c->ids.starts));
  if (c->narrow) return resize(c, &c->narrow, rows, sizeof *c->narrow);
  if (c->wide) return resize(c, &c->wide, rows, sizeof *c->wide);
  return resize(c, &c->codes, rows, sizeof *c->codes);
}

/* ---- different texts ---- */

/* The slot of a text, or the empty one where it would be. */
static int16_t *find_slot(const struct mn_csv_column *c, const char *text) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  const uint32_t mask = 2 * (uint32_t)c->room - 1;
  for (const char *p = text; *p; p++) hash = (hash ^ (unsigned char)*p) * 16777619u;
  while (c->slots[hash & mask] && strcmp(c->texts[c->slots[hash & mask] - 1].text, text) != 0) hash++;
  return &c->slots[hash & mask];
}

static mn_status grow(struct mn_csv_column *c) {
  const int room = c->room ? 2 * c->room : 8;
  MN_TRY(resize(c, &c->texts, room, sizeof *c->texts));
  free(c->slots);
  c->room = room;
  if (!(c->slots = calloc(2 * (size_t)room, sizeof *c->slots))) return no_memory(c);
  for (int i = 0; i < c->count; i++) *find_slot(c, c->texts[i].text) = (int16_t)(i + 1);
  return MN_OK;
}

/* *code: of the text, which is added if it is new; −1 if it is one too many. */
static mn_status find_code(struct mn_csv_column *c, const char *text, char decimal, int *code) {
  if (c->count == c->room) MN_TRY(grow(c));
  int16_t *slot = find_slot(c, text);
  *code = *slot - 1;
  if (*slot || c->count == MN_CLASSES_MOST) return MN_OK;
  struct mn_csv_text *t = &c->texts[c->count];
  if (!(t->text = strdup(text))) return no_memory(c);
  t->kind = mn_csv_value(text, decimal, &t->value);
  t->rows = 0;
  *slot = (int16_t)++c->count;
  *code = *slot - 1;
  return MN_OK;
}

/* ---- values ---- */

/* Notes what is no value of the column, for a message. */
static void note_odd(struct mn_csv_column *c, enum mn_csv_kind kind, const char *text) {
  const size_t used = strlen(c->odd), more = strlen(text) + 2;
  if (kind == c->as || kind == MN_CSV_MISSING || strstr(c->odd, text) || used + more >= sizeof c->odd) return;
  strcat(strcat(c->odd, used ? ", " : ""), text);
}

static mn_status store(struct mn_csv_column *c, int64_t row, double value, int64_t room) {
  if (c->narrow && !isnan(value) && (double)(float)value != value) {
    if (!(c->wide = malloc((size_t)room * sizeof *c->wide))) return no_memory(c);
    for (int64_t i = 0; i < row; i++) c->wide[i] = (double)c->narrow[i];
    free(c->narrow), c->narrow = NULL;
  }
  if (c->narrow)
    c->narrow[row] = (float)value;
  else
    c->wide[row] = value;
  return MN_OK;
}

static void free_texts(struct mn_csv_column *c) {
  for (int i = 0; i < c->count; i++) free(c->texts[i].text);
  free(c->texts), free(c->slots), free(c->codes);
  c->texts = NULL, c->slots = NULL, c->codes = NULL, c->count = c->room = 0;
}

/* Replaces the texts of rows 0 … row − 1 by values: of dates if these are more, else of numbers. A header is
 * no word to be noted. */
static mn_status spill(struct mn_csv_column *c, int64_t row, int64_t room) {
  mn_csv_tally(c);
  c->as = c->of_kind[MN_CSV_DATE] > c->of_kind[MN_CSV_NUMBER] ? MN_CSV_DATE : MN_CSV_NUMBER;
  if (!(c->narrow = malloc((size_t)room * sizeof *c->narrow))) return no_memory(c);
  for (int64_t i = 0; i < row; i++) {
    const struct mn_csv_text *t = &c->texts[c->codes[i]];
    if (i) note_odd(c, t->kind, t->text);
    MN_TRY(store(c, i, t->kind == c->as ? t->value : NAN, room));
  }
  free_texts(c);
  return MN_OK;
}

static mn_status add_id(struct mn_csv_column *c, int64_t row, const char *text) {
  struct mn_csv_ids *ids = &c->ids;
  const size_t bytes = strlen(text) + 1;
  if (ids->used + bytes > ids->room) {
    ids->room = 2 * (ids->used + bytes);
    MN_TRY(resize(c, &ids->texts, (int64_t)ids->room, 1));
  }
  memcpy(ids->texts + ids->used, text, bytes);
  ids->starts[row] = ids->used;
  ids->used += bytes;
  return MN_OK;
}

mn_status mn_csv_add(struct mn_csv_column *c, int64_t row, const char *text, char decimal, int64_t room) {
  int code = -1;
  double value;
  if (c->ids.wanted) MN_TRY(add_id(c, row, text));
  if (c->codes) MN_TRY(find_code(c, text, decimal, &code));
  if (code >= 0) {
    c->texts[code].rows++;
    c->codes[row] = (uint16_t)code;
    return MN_OK;
  }
  if (c->codes) MN_TRY(spill(c, row, room));
  const enum mn_csv_kind kind = mn_csv_value(text, decimal, &value);
  c->of_kind[kind]++;
  note_odd(c, kind, text);
  return store(c, row, kind == c->as ? value : NAN, room);
}

void mn_csv_drop(struct mn_csv_column *c, int64_t row) {
  if (c->codes)
    c->texts[c->codes[row]].rows--;
  else
    c->of_kind[MN_CSV_MISSING]--;
}

void mn_csv_tally(struct mn_csv_column *c) {
  if (!c->codes) return;
  memset(c->of_kind, 0, sizeof c->of_kind);
  for (int i = 0; i < c->count; i++) c->of_kind[c->texts[i].kind] += c->texts[i].rows;
}

void mn_csv_column_free(struct mn_csv_column *c) {
  free_texts(c);
  free(c->narrow), free(c->wide), free(c->name);
  free(c->ids.texts), free(c->ids.starts);
}
