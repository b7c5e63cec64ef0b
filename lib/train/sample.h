/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - text from the model that was trained, as mics-sample generates it. */
#ifndef MICS_TRAIN_SAMPLE_H
#define MICS_TRAIN_SAMPLE_H

#include "train/job.h"

/* Generate a text of up to `characters` characters and tokens on rank 0: *text there, printable,
 * which the caller frees; it begins as a document does, and ends of documents are newlines.
 * temperature 0: always the most likely token. Rank 0 collects all parameters in fp32; *text is
 * NULL, and `note` says why, if they take more than half of the memory that it has left.
 * Collective; all steps must be collected; may fail on this rank alone. */
enum mics_status mics_sample_generate(const struct mics_job *job, uint32_t characters,
                                      double temperature, char **text, char note[256],
                                      struct mics_err *err);

#endif
