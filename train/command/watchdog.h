/* The signals that a training run acts on, and a thread that sees that it gets on. One run of a process has
 * it.
 *
 * SIGINT, SIGTERM and SIGHUP ask the run to end after the step at hand; a second SIGINT or SIGTERM ends the
 * process as usual, but a terminal that goes may send SIGHUP several times. SIGUSR1 asks for a save. Where
 * the run does not come to act, because a step, an evaluation or the reading of rows does not get on
 * (kernels/clock.h) for ten seconds, or for twice as long as it ever took if that is longer, the thread
 * ends the process with a line that names what does not end. Among ranks it does so without a signal too,
 * after --rank-timeout: a rank that computed names itself, ranks that waited name those that do not answer;
 * the launcher ends the rest. A save is never cut off: of one that takes ten seconds it tells. */
#ifndef MN_TRAIN_COMMAND_WATCHDOG_H
#define MN_TRAIN_COMMAND_WATCHDOG_H

#include <stdint.h>

#include "kernels/status.h"

/* Before ranks meet. One of several (`among`) is to get on within `timeout` seconds (0: or not), and has the
 * thread from here on; one that is alone from mn_watchdog_signals on, since children that try files out are
 * forked before. `resumes`: a checkpoint stands. MN_NO_MEMORY, MN_LIBRARY. */
mn_status mn_watchdog_open(int among, double timeout, int resumes);
void mn_watchdog_close(void); /* also where it is not open */

/* The ranks have met, and this one is `rank`. */
void mn_watchdog_rank(int rank);

/* Watches signals from now on, in the stage "reading rows". `resumes`: the run goes on from a checkpoint.
 * MN_NO_MEMORY, MN_LIBRARY. */
mn_status mn_watchdog_signals(int resumes);

/* The signal that asks the run to end; 0: none did. The pointer is for a reader of rows, as its `stop`. */
int mn_watchdog_signal(void);
const int *mn_watchdog_stop(void);

/* Whether SIGUSR1 came since the last call of mn_watchdog_saved. */
int mn_watchdog_wants_save(void);
void mn_watchdog_saved(void);

/* What the run does from now on, as a line would name it: "evaluating"; with `step` > 0 "step 41". A literal.
 * Each call says that the run gets on. */
void mn_watchdog_enter(const char *what, int64_t step);

/* The run saves, or has acted on the signal: from now on until the next mn_watchdog_enter it may take as long
 * as it does. */
void mn_watchdog_save(void);

/* The checkpoint that the run saves to (NULL: none), a name that was free when a new run began. If a
 * checkpoint can be resumed, the process ends with MN_INTERRUPTED, else with 128 + signal. */
void mn_watchdog_checkpoint(const char *path);

#endif
