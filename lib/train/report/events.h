/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - the lines of metrics that come seldom, as objects; each a new reference or NULL. */
#ifndef MICS_TRAIN_REPORT_EVENTS_H
#define MICS_TRAIN_REPORT_EVENTS_H

#include "train/job.h"

json_t *mics_event_run(const struct mics_job *job, const struct mics_run *run);
json_t *mics_event_val(uint64_t step, double loss, double tokens, double seconds);
json_t *mics_event_checkpoint(uint64_t step, const struct mics_saved *saved, double seconds);
/* `reason`: "done" or "stopped". */
json_t *mics_event_end(const struct mics_run *run, const char *reason);

#endif
