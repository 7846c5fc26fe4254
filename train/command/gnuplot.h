/* gnuplot, which draws the picture: it is started without a shell, with files for its input, output and
 * errors, so that no file's name is ever part of a command and no pipe can fill up. */
#ifndef MN_TRAIN_COMMAND_GNUPLOT_H
#define MN_TRAIN_COMMAND_GNUPLOT_H

#include <stdio.h>

#include "kernels/status.h"

/* Writes its part of the script; an error ends the drawing. */
typedef mn_status mn_gnuplot_write(FILE *script, void *data);

/* Draws 960 by 720 points of 1/72 inch into `out`: PNG if its name ends in .png, else SVG. The
 * script is gnuplot.gp, which sets the paper and the colours, and what `write` adds. `out` is written in one
 * rename when the picture is whole, and untouched on any error. MN_NO_CREATE: it exists, and not `replace`.
 * MN_LIBRARY: gnuplot is missing or failed; MN_NO_CREATE, MN_IO: `out`, or a temporary file, cannot be
 * written; MN_NO_MEMORY; what `write` returns. */
mn_status mn_gnuplot_draw(const char *out, int replace, mn_gnuplot_write *write, void *data);

/* Writes a text as a string of gnuplot's, control characters as '?'. */
void mn_gnuplot_text(FILE *script, const char *text);

/* The text of a script, put into the program by the assembler. */
#define MN_GNUPLOT_SCRIPT(name, path)                                                                        \
  __asm__(".pushsection .rodata\n" #name ": .incbin \"" path "\"\n.byte 0\n.popsection\n");                  \
  extern const char name[] __attribute__((visibility("hidden")))

#endif
