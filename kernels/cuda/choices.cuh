/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choices.cuh - what is chosen when a shape is first met, and what is told of it.
 */
#ifndef MICS_KERNELS_CUDA_CHOICES_CUH
#define MICS_KERNELS_CUDA_CHOICES_CUH

#include "base/err.h"
#include "cuda/kernels.h"
#include "cuda/shapes.cuh"

#include <pthread.h>

struct mics_choice_note; /* a line that nobody took yet */

struct mics_cuda_choices {
    pthread_mutex_t lock;         /* of what follows, but the notes */
    bool measure;                 /* unless MICS_CUDA_MEASURE=0 */
    int capability;               /* 90: compute capability 9.0 */
    int insisted;                 /* attention's variant by MICS_CUDA_ATTENTION; negative: none */
    unsigned banned[2];           /* bits of attention's variants, forward and gradient */
    struct mics_shapes attention; /* struct attention_choice, of attention_choice.cu */
    pthread_mutex_t notes_lock;   /* of the list: the oldest first */
    struct mics_choice_note *notes, **last_note;
};

/* Leave a line for people who asked for `level` times -v or more; 0 is a warning. NULL choices, and no memory for
 * it: it is lost. */
void mics_choices_tell(struct mics_cuda_choices *choices, int level, const char *fmt, ...)
    MICS_PRINTF(3, 4);

#endif
