/* Text from files and the command line, shown so that it steers no terminal and stays one line. */
#ifndef MN_KERNELS_ESCAPE_H
#define MN_KERNELS_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/* The bytes of the UTF-8 character at `text`. 0: there is none, or it is a control character (of C0, DEL, or
 * of C1 as U+009B), which may steer a terminal; surrogates, and what has a shorter form or is above U+10FFFF,
 * are no characters. */
size_t mn_escape_character(const char *text);

/* Writes the character at `text` to out, or its first byte as \x9B where there is none. Returns its bytes. */
size_t mn_escape_next(char out[5], const char *text);

/* Writes all of `text` in this way to out[size], cut off where it does not fit. */
void mn_escape(char *out, size_t size, const char *text);

/* Prints a line, or its beginning, in one write, so shown: names and texts from files and the command line do
 * not steer a terminal. A newline at its end stays. */
void mn_escape_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
