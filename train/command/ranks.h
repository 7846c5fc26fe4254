/* What the ranks of a run settle before they train: that they were given the same, who they are, and who has
 * what. Every rank makes each call; engine/ranks/ranks.h. */
#ifndef MN_TRAIN_COMMAND_RANKS_H
#define MN_TRAIN_COMMAND_RANKS_H

#include "train/command/session.h"

/* Meets the ranks that a launcher started (mn_ranks_open), but where --ranks says 1: that process trains
 * alone, and meets nobody. MN_USAGE: WORLD_SIZE says that there are others, and there is no MPI to meet them
 * by; else the errors of mn_ranks_open. */
mn_status mn_ranks_meet(struct mn_session *session);

/* MN_USAGE, on a rank whose options are not the first's: which, and both values. Not alone. */
mn_status mn_ranks_compare_options(const struct mn_session *session);

/* MN_BAD_DATA: a rank has read other rows than the first has (s->fingerprint). */
mn_status mn_ranks_compare_rows(const struct mn_session *session);

/* Under the first rank's --verbose every rank is named, before they connect their devices: who cannot be
 * reached is then known. MN_USAGE: some have a GPU, and others none. */
mn_status mn_ranks_introduce(const struct mn_session *session);

/* Makes the ranks the grid that --ranks says, or that suits the model and the hosts. MN_USAGE: it says
 * another number of ranks than were started. */
mn_status mn_ranks_choose_grid(const struct mn_session *session, const struct mn_model_config *config);

#endif
