/* Names and identity of a run. */
#include "train/command/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/thread.h"
#include "train/checkpoint/layout.h"
#include "train/command/announce.h"
#include "train/runs/names.h"

/* ---- identity ---- */

/* With the zero at its end, so that two words are not one long one. */
static uint64_t add(uint64_t hash, const char *word) {
  return XXH3_64bits_withSeed(word, strlen(word) + 1, hash);
}

static uint64_t add_options(uint64_t hash, const struct mn_text *texts, int count) {
  for (int i = 0; i < count; i++)
    if (strcmp(texts[i].name, "data") != 0) hash = add(add(hash, texts[i].name), texts[i].value);
  return hash;
}

mn_status mn_owned_identify(struct mn_session *s) {
  struct mn_text texts[MN_CHECKPOINT_OPTIONS];
  char path[MN_ATOMIC_FILE_PATH] = "";
  char sample[17]; /* of the rows' hash, which is the same for every --place */
  uint64_t hash = 0;
  snprintf(sample, sizeof sample, "%.16s", s->fingerprint);
  if (!s->from) {
    const int count = mn_options_list(&s->options, MN_OPTION_CONFIG, texts, MN_CHECKPOINT_OPTIONS);
    hash = add(add_options(hash, texts, count), sample);
    if (s->options.init) hash = XXH3_64bits_withSeed(&s->weights, sizeof s->weights, hash);
    snprintf(s->run.id, sizeof s->run.id, "%016" PRIx64, hash);
    if (s->options.checkpoint) MN_TRY(mn_atomic_file_resolve(path, s->options.checkpoint));
    snprintf(s->run.name, sizeof s->run.name, "%.255s", basename(path)); /* "" without a checkpoint */
  }
  snprintf(s->begun, sizeof s->begun, "%s", s->run.id);
  if (s->changes == 0) return MN_OK;
  hash = add(s->from->progress.step, s->run.id);
  for (int i = 0; i < s->changes; i++) {
    const char *name = s->changed[i].name;
    char now[MN_TEXT_VALUE];
    mn_option_show(now, sizeof now, &s->options, mn_option_find(name));
    hash = add(add(hash, name), strcmp(name, "data") == 0 ? sample : now);
  }
  const int began = (int)strcspn(s->begun, ".");
  snprintf(s->run.id, sizeof s->run.id, "%.*s.%016" PRIx64, began, s->begun, hash);
  return MN_OK;
}

void mn_owned_mark(char mark[MN_PLOT_MARK], const struct mn_session *s) {
  const uint64_t began = XXH3_64bits(s->run.id, strcspn(s->run.id, "."));
  snprintf(mark, MN_PLOT_MARK, "minnow run %016" PRIx64, add(began, s->run.name));
}

/* ---- names ---- */

static int is_id(const char *text) {
  const size_t length = strspn(text, "0123456789abcdef"), more = text[length] == '.';
  return length == 16 && strlen(text) == (more ? 33 : 16) &&
         strspn(text + 17 * more, "0123456789abcdef") == 16;
}

mn_status mn_owned_resume(struct mn_session *s) {
  const struct mn_checkpoint *from = s->from;
  char path[MN_ATOMIC_FILE_PATH], owner[MN_ATOMIC_FILE_PATH];
  struct mn_run was;
  mn_run_find(&was, from->options, from->option_count);
  MN_TRY(mn_atomic_file_resolve(path, s->options.checkpoint));
  s->run = was;
  if (*was.id && (!is_id(was.id) || !*was.name || strchr(was.name, '/')))
    return mn_fail(MN_BAD_DATA, "%s: its /config says no run of minnow's: take an older checkpoint or a copy",
                   s->from_path);
  if (*was.id && strcmp(was.name, basename(path)) == 0) return MN_OK;
  MN_TRY(mn_run_file_any(owner, path, 1));
  if (mn_run_file_follows(basename(path), was.name)) snprintf(owner, sizeof owner, "%s", was.name);
  if (*owner)
    return mn_fail(MN_NO_CREATE,
                   "--checkpoint %s is a file of the run %s, which replaces it as that goes on: copy it to "
                   "another name (cp %s try.h5), and resume the copy",
                   s->options.checkpoint, owner, s->options.checkpoint);
  uint64_t hash = *was.id ? add(0, was.id) : add_options(0, from->options, from->option_count);
  s->fork = 1;
  snprintf(s->run.source, sizeof s->run.source, "%s %.200s", was.id, was.name);
  snprintf(s->run.name, sizeof s->run.name, "%.255s", basename(path));
  snprintf(s->run.id, sizeof s->run.id, "%016" PRIx64,
           add(hash + (uint64_t)from->progress.step, s->run.name));
  return MN_OK;
}

enum { COMMAND = 256 };

/* Appends a name to a command. Returns 0 if it does not fit, or if a shell may not take it as it stands. */
static int add_name(char command[COMMAND], const char *name) {
  const size_t used = strlen(command), length = strlen(name);
  if (!mn_run_plain(name) || used + 1 + length >= COMMAND) return 0;
  snprintf(command + used, COMMAND - used, " %s", name);
  return 1;
}

/* Refuses a new run whose checkpoint or log exists: `found` beside `path`, "" for none. The message has the
 * command that removes all of them. */
static mn_status refuse_new(const struct mn_options *o, const char *path, const char *found) {
  const char *const base = o->checkpoint ? basename(path) : path;
  char command[COMMAND] = "rm", name[MN_ATOMIC_FILE_PATH], which[MN_ATOMIC_FILE_PATH] = "";
  int there = 0, fits = 1;
  for (int i = 0; *found && i <= MN_RUN_FILE_BEST; i++)
    if (mn_run_file_number(name, sizeof name, path, i) == 0 && access(name, F_OK) == 0)
      there = 1, fits = fits && add_name(command, name);
  if (*found && !there) { /* a damaged one, which the run set aside */
    fits = snprintf(name, sizeof name, "%.*s%s", (int)(base - path), path, found) < (int)sizeof name;
    fits = fits && add_name(command, name);
  }
  if (o->log && access(o->log, F_OK) == 0) fits = fits && add_name(command, o->log);
  if (!fits) strcpy(command, "remove its files");
  if (!*found)
    return mn_fail(MN_NO_CREATE,
                   "--log %s exists, and no option replaces a log: name another file, or, if it is not "
                   "needed, remove it: %s",
                   o->log, command);
  if (strcmp(found, base) != 0) snprintf(which, sizeof which, ": %s", found);
  return mn_fail(MN_NO_CREATE,
                 "--checkpoint %s%s exists, and no option replaces a run: --resume goes on from it, or name "
                 "another file, or, if nothing of it is needed, remove it: %s",
                 o->checkpoint, which, command);
}

mn_status mn_owned_check(const struct mn_session *s) {
  const struct mn_options *o = &s->options;
  char path[MN_ATOMIC_FILE_PATH] = "", found[MN_ATOMIC_FILE_PATH] = "";
  struct mn_atomic_file file;
  int logged = 0;
  if (o->checkpoint) MN_TRY(mn_atomic_file_resolve(path, o->checkpoint));
  if (o->checkpoint && !o->resume) MN_TRY(mn_run_file_any(found, path, 0));
  if (o->log && !o->resume) MN_TRY(mn_atomic_file_exists(o->log, &logged));
  if (*found || logged) return refuse_new(o, path, found);
  if (!o->checkpoint) return MN_OK;
  if (o->resume) MN_TRY(mn_run_check_files(path, 1, MN_RUN_FILE_BEST + 1, &s->run, 0));
  if (o->dry_run)
    return MN_OK; /* without the lock this would remove a file that another run begins to save */
  MN_TRY(mn_atomic_file_create(&file, path));
  mn_atomic_file_discard(&file);
  return MN_OK;
}

mn_status mn_owned_leave(const struct mn_session *s, mn_status status) {
  const struct mn_options *o = &s->options;
  char path[MN_ATOMIC_FILE_PATH], found[MN_ATOMIC_FILE_PATH] = "", kept[MN_ATOMIC_FILE_PATH];
  struct mn_outcome outcome;
  mn_outcome_note(&outcome, status);
  mn_status looked = o->checkpoint ? mn_atomic_file_resolve(path, o->checkpoint) : MN_OK;
  if (looked == MN_OK && o->checkpoint) looked = mn_run_file_any(found, path, 0);
  if (looked == MN_OK && !*found && mn_run_file_set_aside(kept, o->log, "unsaved") == MN_OK)
    mn_announce(o, "log: %s, since nothing was saved", kept);
  return mn_outcome_tell(&outcome);
}
