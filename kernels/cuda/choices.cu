/* SPDX-License-Identifier: Apache-2.0 */
/* choices.cu - a list of lines about what was measured. */
#include "cuda/choices.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mics_choice_note {
    struct mics_choice_note *next;
    int level;
    char text[MICS_CUDA_NOTE_BYTES];
};

cudaError_t mics_cuda_choices_open(struct mics_cuda_choices **out)
{
    struct mics_cuda_choices *choices = (struct mics_cuda_choices *)calloc(1, sizeof(*choices));

    if (!choices)
        return cudaErrorMemoryAllocation;
    choices->last_note = &choices->notes;
    pthread_mutex_init(&choices->notes_lock, NULL);
    *out = choices;
    return cudaSuccess;
}

void mics_cuda_choices_close(struct mics_cuda_choices *choices)
{
    if (!choices)
        return;
    while (choices->notes) {
        struct mics_choice_note *note = choices->notes;

        choices->notes = note->next;
        free(note);
    }
    pthread_mutex_destroy(&choices->notes_lock);
    free(choices);
}

void mics_choices_tell(struct mics_cuda_choices *choices, int level, const char *fmt, ...)
{
    struct mics_choice_note *note;
    va_list args;

    if (!choices)
        return;
    note = (struct mics_choice_note *)calloc(1, sizeof(*note));
    if (!note)
        return;
    note->level = level;
    va_start(args, fmt);
    vsnprintf(note->text, sizeof(note->text), fmt, args);
    va_end(args);
    pthread_mutex_lock(&choices->notes_lock);
    *choices->last_note = note;
    choices->last_note = &note->next;
    pthread_mutex_unlock(&choices->notes_lock);
}

bool mics_cuda_choices_next_note(struct mics_cuda_choices *choices, int *level,
                                 char text[MICS_CUDA_NOTE_BYTES])
{
    struct mics_choice_note *note;

    pthread_mutex_lock(&choices->notes_lock);
    note = choices->notes;
    if (note) {
        choices->notes = note->next;
        if (!note->next)
            choices->last_note = &choices->notes;
    }
    pthread_mutex_unlock(&choices->notes_lock);
    if (!note)
        return false;
    *level = note->level;
    memcpy(text, note->text, sizeof(note->text));
    free(note);
    return true;
}
