/* The lines of checksums, written and compared; see layout.h. */
#include "train/checkpoint/layout.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are hashed as they stand in memory");

enum { DIGITS = 32, BEFORE_PATH = DIGITS + 2 };

static void show(char digits[DIGITS + 1], XXH128_hash_t hash) {
  snprintf(digits, DIGITS + 1, "%016llx%016llx", (unsigned long long)hash.high64,
           (unsigned long long)hash.low64);
}

static void add(struct mn_sums *sums, const char *path, XXH128_hash_t hash) {
  char digits[DIGITS + 1];
  show(digits, hash);
  size_t room = sizeof sums->text - sums->length;
  int length = snprintf(sums->text + sums->length, room, "%s  %s\n", digits, path);
  MN_REQUIRE(length > 0 && (size_t)length < room);
  sums->length += (size_t)length;
  sums->lines++;
}

/* The digits of the line for `path`, or NULL. */
static const char *find(const struct mn_sums *sums, const char *path) {
  const size_t length = strlen(path);
  for (const char *line = sums->text, *end; (end = strchr(line, '\n')); line = end + 1)
    if ((size_t)(end - line) == BEFORE_PATH + length && memcmp(line + BEFORE_PATH, path, length) == 0)
      return line;
  return NULL;
}

static mn_status meet(struct mn_sums *sums, struct mn_hdf5_file *file, const char *path, XXH128_hash_t hash) {
  char digits[DIGITS + 1];
  if (sums->writing) return add(sums, path, hash), MN_OK;
  show(digits, hash);
  const char *line = find(sums, path);
  if (!line && sums->partial) return MN_OK;
  if (line && memcmp(line, digits, DIGITS) == 0) {
    sums->met++;
    return MN_OK;
  }
  return mn_fail(MN_BAD_DATA,
                 "%s is damaged at %s: %s: %s (where it was changed on purpose, remove the "
                 "root's attribute " MN_SUMS_ATTRIBUTE ")",
                 file->path, path, line ? "it is not what was saved, by its checksum" : "it has no checksum",
                 file->remedy);
}

/* ---- attributes ---- */

static mn_status take_attribute(void *data, const char *name, const struct mn_hdf5_value *value) {
  XXH3_state_t *state = data;
  if (strcmp(name, MN_SUMS_ATTRIBUTE) == 0) return MN_OK;
  const uint64_t bytes = value->kind == MN_VALUE_TEXT    ? strlen(value->text)
                         : value->kind == MN_VALUE_OTHER ? 0 /* not ours */
                                                         : (uint64_t)value->count * sizeof(uint64_t);
  int failed = XXH3_128bits_update(state, name, strlen(name) + 1) != XXH_OK ||
               XXH3_128bits_update(state, &bytes, sizeof bytes) != XXH_OK ||
               XXH3_128bits_update(state, value->text, bytes) != XXH_OK;
  return failed ? mn_fail(MN_LIBRARY, "libxxhash failed at the attribute %s", name) : MN_OK;
}

/* Each attribute in order of name: the name and a zero, the bytes of its value in 8 bytes, the value: a text,
 * or numbers of 8 bytes. */
static mn_status hash_attributes(struct mn_hdf5_file *file, const struct mn_hdf5_object *object,
                                 XXH128_hash_t *hash) {
  XXH3_state_t *state = XXH3_createState();
  if (!state || XXH3_128bits_reset(state) != XXH_OK) {
    XXH3_freeState(state);
    return mn_fail(MN_NO_MEMORY, "no memory for the checksums of %s", file->path);
  }
  mn_status status = mn_hdf5_attributes(file, object, H5_INDEX_NAME, 0, take_attribute, state);
  *hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return status;
}

mn_status mn_sums_values(struct mn_sums *sums, struct mn_hdf5_file *file, const char *group, const char *name,
                         const void *values, size_t bytes) {
  char path[MN_SUMS_PATH];
  if (!sums->writing && sums->lines == 0) return MN_OK;
  const int length = snprintf(path, sizeof path, "%s/%s", group + strspn(group, "/"), name);
  MN_REQUIRE(length < MN_SUMS_PATH);
  return meet(sums, file, path, XXH3_128bits(values, bytes));
}

mn_status mn_sums_attributes(struct mn_sums *sums, struct mn_hdf5_file *file,
                             const struct mn_hdf5_object *object, const char *path) {
  XXH128_hash_t hash;
  if (!sums->writing && sums->lines == 0) return MN_OK;
  MN_TRY(hash_attributes(file, object, &hash));
  return meet(sums, file, path, hash);
}

void mn_sums_end(struct mn_sums *sums) {
  add(sums, MN_SUMS_ATTRIBUTE, XXH3_128bits(sums->text, sums->length));
}

mn_status mn_sums_read(struct mn_sums *sums, struct mn_hdf5_file *file) {
  sums->lines = sums->met = 0;
  MN_TRY(mn_hdf5_text(file, &file->root, MN_SUMS_ATTRIBUTE, sums->text, sizeof sums->text, &sums->length));
  if (sums->length == 0) return MN_OK;
  for (const char *c = sums->text; *c; c++) sums->lines += *c == '\n';
  const char *last = find(sums, MN_SUMS_ATTRIBUTE);
  if (last) return meet(sums, file, MN_SUMS_ATTRIBUTE, XXH3_128bits(sums->text, (size_t)(last - sums->text)));
  return mn_fail(MN_BAD_DATA, "%s is damaged at its list of checksums: %s", file->path, file->remedy);
}

mn_status mn_sums_check_met(const struct mn_sums *sums, struct mn_hdf5_file *file) {
  if (sums->met == sums->lines) return MN_OK;
  return mn_fail(MN_BAD_DATA, "%s is damaged: %d of the %d things that its checksums cover are not there: %s",
                 file->path, sums->lines - sums->met, sums->lines, file->remedy);
}
