/* Numbers as people read them: plain decimals without exponents, and times. */
#ifndef MN_TRAIN_COMMAND_SHOW_H
#define MN_TRAIN_COMMAND_SHOW_H

#include "train/model.h"

enum { MN_SHOWN = 40 }; /* room for each */

/* `value` with `digits` significant digits: 0.00012, 1552667. From 1e15 on and below 1e-9 it has an exponent.
 * Returns out. */
const char *mn_show_number(char out[MN_SHOWN], double value, int digits);

/* A rate per second with three digits and a prefix: mn_show_rate(out, 4.17e14, "FLOP/s") is "417 TFLOP/s". */
const char *mn_show_rate(char out[MN_SHOWN], double rate, const char *unit);

/* "1.5 GiB": bytes with three digits and a prefix of powers of 1024. */
const char *mn_show_bytes(char out[MN_SHOWN], double bytes);

/* A model's layers and their sizes. Returns out. */
enum { MN_SHOWN_MODEL = 1024 };
const char *mn_show_model(char out[MN_SHOWN_MODEL], const struct mn_model_config *config);

/* h:mm:ss, rounded to the second; "?" if negative or not finite. */
const char *mn_show_time(char out[MN_SHOWN], double seconds);

/* Columns of the terminal `fd`; 80 if it is not a terminal or its width is unknown. */
int mn_show_columns(int fd);

#endif
