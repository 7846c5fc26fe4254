/* Lines for people, on stderr: the device and the input of a command, the progress of a training, and numbers
 * in a readable form. */
#ifndef MN_TRAIN_COMMAND_ANNOUNCE_H
#define MN_TRAIN_COMMAND_ANNOUNCE_H

#include "data/columns.h"
#include "data/csv/csv.h"
#include "train/checkpoint/checkpoint.h"
#include "train/command/options.h"
#include "train/model.h"
#include "train/trainer.h"

/* Prints the device and the precision, with a note if tf32 or fp16x3 runs as fp32 there; brief: the CPU was
 * chosen for a short run. Silent under --quiet. */
void mn_announce_device(const struct mn_device *device, const struct mn_options *options, int brief);

/* mn_announce_device, and notes on blocks whose output does not depend on their input, and on weights that
 * fp16x3 does not take. */
void mn_announce_model(const struct mn_model *model, const struct mn_options *options, int brief);

/* Warns of scales or means of x so far apart that training may not learn from some columns, which a CSV gives
 * names (or NULL). */
void mn_announce_columns(const struct mn_columns columns[MN_SIDES], const struct mn_csv *csv,
                         const struct mn_model *model, const struct mn_options *options);

/* Says what became of a CSV's columns; `csv` may be NULL. */
void mn_announce_table(const struct mn_csv *csv, const struct mn_options *options);

/* Prints a line, printf-like; on a terminal of at least 40 columns it is broken at blanks to fit. Silent
 * under --quiet. */
void mn_announce(const struct mn_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- numbers: plain decimals without exponents, and times ---- */

enum { MN_SHOWN = 40 }; /* room for each */

/* `value` with `digits` significant digits: 0.00012, 1552667. From 1e15 on and below 1e-9 it has an exponent.
 * Returns out. */
const char *mn_show_number(char out[MN_SHOWN], double value, int digits);

/* A rate per second with three digits and a prefix: mn_show_rate(out, 4.17e14, "FLOP/s") is "417 TFLOP/s". */
const char *mn_show_rate(char out[MN_SHOWN], double rate, const char *unit);

/* h:mm:ss, rounded to the second; "?" if negative or not finite. */
const char *mn_show_time(char out[MN_SHOWN], double seconds);

/* Columns of the terminal `fd`; 80 if it is not a terminal or its width is unknown. */
int mn_show_columns(int fd);

/* A model's layers and their sizes in words. Returns out. */
enum { MN_MODEL_WORDS = 1024 };
const char *mn_model_words(char out[MN_MODEL_WORDS], const struct mn_model_config *config);

/* ---- progress ----
 *
 * On a terminal of at least 40 columns that is not dumb it is one line, redrawn in place, with a bar if there
 * is room; else a plain line every ten seconds. It has no colours. */

/* Begins the progress of a command, or of a run that goes on from step `first`. From here on work of which
 * mn_heartbeat_of tells is drawn as often as steps are. */
void mn_progress_open(int64_t first, int quiet);

/* After a step; draws at most ten times a second on a terminal, and every ten seconds elsewhere: the step,
 * its loss, the time left, samples and floating-point operations a second and the share of the time in which
 * the device waited for rows, from the trainer's times. Fields that do not fit are dropped from the right. */
void mn_progress_step(const struct mn_trainer *trainer);

/* Clears the bar, for another line to be written. mn_announce does. */
void mn_progress_clear(void);

#endif
