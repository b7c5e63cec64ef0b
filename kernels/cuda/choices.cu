/* SPDX-License-Identifier: Apache-2.0 */
/* choices.cu - settings of what is chosen by shape, and a list of lines about it. */
#include "cuda/choices.cuh"

#include "cuda/attention_choice.cuh"

#include <stdio.h>
#include <stdlib.h>

struct mics_choice_note {
    struct mics_choice_note *next;
    int level;
    char text[MICS_CUDA_NOTE_BYTES];
};

static cudaError_t read_capability(int *out)
{
    int device, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *out = major * 10 + minor;
    return error;
}

cudaError_t mics_cuda_choices_open(struct mics_cuda_choices **out)
{
    struct mics_cuda_choices *choices = (struct mics_cuda_choices *)calloc(1, sizeof(*choices));
    const char *measure = getenv("MICS_CUDA_MEASURE"), *variant = getenv("MICS_CUDA_ATTENTION");
    cudaError_t error;

    if (!choices)
        return cudaErrorMemoryAllocation;
    error = read_capability(&choices->capability);
    choices->measure = !measure || strcmp(measure, "0") != 0;
    choices->insisted = variant && *variant ? mics_attention_variant_find(variant) : -1;
    if (error == cudaSuccess && variant && *variant && choices->insisted < 0)
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess) {
        free(choices);
        return error;
    }
    choices->attention.key_bytes = sizeof(struct mics_attention_key);
    choices->last_note = &choices->notes;
    pthread_mutex_init(&choices->lock, NULL);
    pthread_mutex_init(&choices->notes_lock, NULL);
    *out = choices;
    return cudaSuccess;
}

void mics_cuda_choices_close(struct mics_cuda_choices *choices)
{
    struct mics_shape *shape;

    if (!choices)
        return;
    while ((shape = mics_shapes_take(&choices->attention)) != NULL)
        free(shape);
    while (choices->notes) {
        struct mics_choice_note *note = choices->notes;

        choices->notes = note->next;
        free(note);
    }
    pthread_mutex_destroy(&choices->lock);
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
