/* Starting gnuplot and keeping what it drew. */
#include "train/command/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/checkpoint/atomic_file.h"

extern char **environ;

MN_GNUPLOT_SCRIPT(paper_script, "train/command/gnuplot.gp");

/* Between single quotes gnuplot does not expand escapes; a quote is doubled. */
void mn_gnuplot_text(FILE *script, const char *text) {
  putc('\'', script);
  for (; *text; text++) {
    if (*text == '\'') putc('\'', script);
    putc((unsigned char)*text < 0x20 ? '?' : *text, script);
  }
  putc('\'', script);
}

/* The last line of gnuplot's errors that is not empty. */
static void read_reason(FILE *errors, char *out, size_t size) {
  char text[512];
  snprintf(out, size, "it did not say why");
  rewind(errors);
  while (fgets(text, sizeof text, errors)) {
    text[strcspn(text, "\n")] = 0;
    const char *start = text + strspn(text, " \t");
    if (*start) snprintf(out, size, "%.200s", start);
  }
}

static mn_status wait_for(pid_t child, FILE *errors) {
  int how;
  while (waitpid(child, &how, 0) < 0)
    if (errno != EINTR) return mn_fail(MN_LIBRARY, "gnuplot cannot be waited for: %s", strerror(errno));
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return MN_OK;
  if (WIFEXITED(how) && WEXITSTATUS(how) == 127)
    return mn_fail(MN_LIBRARY, "gnuplot cannot be started; install the package gnuplot-nox");
  char reason[256];
  read_reason(errors, reason, sizeof reason);
  return mn_fail(MN_LIBRARY, "gnuplot failed: %s; is the package gnuplot-nox whole?", reason);
}

/* Runs without the user's start-up files (-d), so that a picture depends on its script alone. */
static mn_status run_gnuplot(FILE *script, int out, FILE *errors) {
  char program[] = "gnuplot", plain[] = "-d";
  char *arguments[] = {program, plain, NULL};
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0)
    return mn_fail(MN_NO_MEMORY, "no memory to start gnuplot");
  pid_t child;
  int error = posix_spawn_file_actions_adddup2(&actions, fileno(script), 0);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, out, 1);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, fileno(errors), 2);
  if (!error) error = posix_spawnp(&child, program, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return wait_for(child, errors);
  return mn_fail(MN_LIBRARY, "gnuplot cannot be started: %s; install the package gnuplot-nox",
                 strerror(error));
}

/* gnuplot does not check its writes. An SVG file ends with its </svg>, a PNG file with a chunk of 12 bytes,
 * IEND. */
static mn_status check_end(const char *out, int fd) {
  enum { END = 16 };
  char end[END];
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size <= END) return mn_fail(MN_LIBRARY, "gnuplot drew nothing; is the package gnuplot-nox whole?");
  if (pread(fd, end, END, size - END) == END &&
      (memmem(end, END, "</svg>", 6) || memmem(end, END, "IEND", 4)))
    return MN_OK;
  return mn_fail(
      MN_IO, "cannot write %s: gnuplot's picture breaks off; free some space or name another folder", out);
}

static mn_status draw_into(const char *out, int replace, FILE *script, FILE *errors) {
  struct mn_atomic_file file;
  MN_TRY(mn_atomic_file_create(&file, out));
  mn_status status = run_gnuplot(script, file.fd, errors);
  if (status == MN_OK) status = check_end(out, file.fd);
  if (status == MN_OK) return mn_atomic_file_publish(&file, replace != 0);
  mn_atomic_file_discard(&file);
  return status;
}

static mn_status write_script(FILE *script, const char *out, mn_gnuplot_write *write, void *data) {
  const size_t length = strlen(out);
  fprintf(script, "png = %d\nheight = 720\n%s", length > 4 && strcmp(out + length - 4, ".png") == 0,
          paper_script);
  MN_TRY(write(script, data));
  if (fflush(script) == 0 && !ferror(script) && fseek(script, 0, SEEK_SET) == 0) return MN_OK;
  return mn_fail(MN_IO, "cannot write gnuplot's script: %s; is there room in /tmp?", strerror(errno));
}

mn_status mn_gnuplot_draw(const char *out, int replace, mn_gnuplot_write *write, void *data) {
  FILE *script = tmpfile(), *errors = tmpfile();
  mn_status status = MN_OK;
  if (!script || !errors)
    status = mn_fail(MN_IO, "no temporary file for gnuplot: %s; is there room in /tmp?", strerror(errno));
  if (status == MN_OK) status = write_script(script, out, write, data);
  if (status == MN_OK) status = draw_into(out, replace, script, errors);
  if (script) fclose(script);
  if (errors) fclose(errors);
  return status;
}
