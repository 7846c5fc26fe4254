/* The signals that a training run acts on, and, among ranks, a thread that detects a hang. One run of a
 * process has it.
 *
 * SIGINT, SIGTERM and SIGHUP end the run after the current step. A second SIGINT or SIGTERM ends the process
 * as usual, but a closing terminal may send SIGHUP several times. SIGUSR1 requests a save. If a rank makes no
 * progress (kernels/clock.h) for --rank-timeout, or for twice its longest step if that is longer, the thread
 * ends the process with a line that names the current work: a rank that computed names itself, and ranks that
 * waited name those that do not answer; the launcher ends the rest. A save is never cut off. */
#ifndef MN_TRAIN_COMMAND_WATCHDOG_H
#define MN_TRAIN_COMMAND_WATCHDOG_H

#include <stdint.h>

#include "kernels/status.h"

/* Called before ranks meet. A rank of several (`among`) has `timeout` seconds to make progress, 0 for no
 * limit. `checkpoint`: borrowed until mn_watchdog_close; NULL if the run saves none. If it is there, it can
 * be resumed, and a rank that hangs ends with MN_INTERRUPTED, else with MN_LIBRARY. Errors: MN_NO_MEMORY,
 * MN_LIBRARY. */
mn_status mn_watchdog_open(int among, double timeout, const char *checkpoint);
void mn_watchdog_close(void); /* also if it was not opened */

/* The ranks have met, and this one is `rank`. */
void mn_watchdog_rank(int rank);

/* Watches signals from now on, in the stage "reading rows". `resumes`: the run goes on from a checkpoint,
 * which may be an older one than `checkpoint`. MN_LIBRARY. */
mn_status mn_watchdog_signals(int resumes);

/* The signal that ends the run, or 0. The pointer is for a reader of rows, as its `stop`. */
int mn_watchdog_signal(void);
const int *mn_watchdog_stop(void);

/* Whether SIGUSR1 came since the last call of mn_watchdog_saved. */
int mn_watchdog_wants_save(void);
void mn_watchdog_saved(void);

/* Sets the current work as a message names it: "evaluating", or with `step` > 0 "step 41". `what` is a
 * literal. Each call counts as progress. */
void mn_watchdog_enter(const char *what, int64_t step);

/* The run saves, or has acted on the signal: from now on until the next mn_watchdog_enter it may take as long
 * as it does. */
void mn_watchdog_save(void);

#endif
