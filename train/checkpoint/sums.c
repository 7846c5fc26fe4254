/* The lines of checksums, written and compared; see layout.h. */
#include "train/checkpoint/layout.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are hashed as they stand in memory");

#define ON_PURPOSE ": %s (if it was changed on purpose, remove the root's attribute " MN_SUMS_ATTRIBUTE ")"

enum { DIGITS = 32, BEFORE_PATH = DIGITS + 2 };

/* The digits of the line for `path`, or NULL. */
static const char *find_line(const struct mn_sums *sums, const char *path) {
  const size_t length = strlen(path);
  for (const char *line = sums->text, *end; (end = strchr(line, '\n')); line = end + 1)
    if ((size_t)(end - line) == BEFORE_PATH + length && memcmp(line + BEFORE_PATH, path, length) == 0)
      return line;
  return NULL;
}

mn_status mn_sums_values(struct mn_sums *sums, struct mn_hdf5_file *file, const char *group, const char *name,
                         const void *values, size_t bytes) {
  char path[MN_SUMS_PATH], digits[DIGITS + 1];
  if (!sums->writing && sums->lines == 0) return MN_OK;
  const int length = snprintf(path, sizeof path, "%s/%s", group + strspn(group, "/"), name);
  MN_REQUIRE(length < MN_SUMS_PATH);
  const XXH128_hash_t hash = XXH3_128bits(values, bytes);
  snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)hash.high64,
           (unsigned long long)hash.low64);
  if (sums->writing) {
    const size_t room = sizeof sums->text - sums->length;
    sums->length += (size_t)snprintf(sums->text + sums->length, room, "%s  %s\n", digits, path);
    MN_REQUIRE(sums->length < sizeof sums->text);
    return MN_OK;
  }
  const char *line = find_line(sums, path);
  if (!line && sums->partial) return MN_OK;
  if (line && memcmp(line, digits, DIGITS) == 0) {
    sums->met++;
    return MN_OK;
  }
  return mn_fail(MN_BAD_DATA, "%s is damaged at %s: %s" ON_PURPOSE, file->path, path,
                 line ? "it is not what was saved, by its checksum" : "it has no checksum", file->remedy);
}

mn_status mn_sums_read(struct mn_sums *sums, struct mn_hdf5_file *file) {
  struct mn_hdf5_value list;
  sums->lines = sums->met = 0;
  MN_TRY(mn_hdf5_attribute(file, &file->root, MN_SUMS_ATTRIBUTE, 0, &list));
  const int whole = list.kind == MN_VALUE_TEXT && list.element < sizeof list.text;
  snprintf(sums->text, sizeof sums->text, "%s", whole ? list.text : "");
  for (const char *line = sums->text, *end; (end = strchr(line, '\n')); line = end + 1) {
    const char *slash = memrchr(line, '/', (size_t)(end - line));
    sums->lines += slash && slash + 1 < end;
  }
  if (list.kind == MN_VALUE_NONE || sums->lines > 0) return MN_OK;
  return mn_fail(MN_BAD_DATA, "%s is damaged at its list of checksums" ON_PURPOSE, file->path, file->remedy);
}
