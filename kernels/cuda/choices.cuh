/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choices.cuh - what people are told of what is measured when a shape is first met.
 */
#ifndef MICS_KERNELS_CUDA_CHOICES_CUH
#define MICS_KERNELS_CUDA_CHOICES_CUH

#include "base/err.h"
#include "cuda/kernels.h"

#include <pthread.h>

struct mics_choice_note; /* a line that was not taken yet */

struct mics_cuda_choices {
    pthread_mutex_t notes_lock; /* of the list: the oldest first */
    struct mics_choice_note *notes, **last_note;
};

/* Leave a line for people who asked for `level` times -v or more; 0 is a warning. NULL choices, and
 * no memory for it: it is lost. */
void mics_choices_tell(struct mics_cuda_choices *choices, int level, const char *fmt, ...)
    MICS_PRINTF(3, 4);

#endif
