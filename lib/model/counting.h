/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counting.h - a model that is no model: it tests the machinery that moves parameters and gradients.
 * Private to lib/model.
 *
 * Gradients are whole numbers between -3 and 3 for each sample (twice that in the unit "ends", which two
 * stages use). Sums of up to 2^24 / 6 samples are therefore exact in fp32 and in any order (in bf16 of up to
 * 2^8 / 6, and parameters are rounded ones everywhere alike), and
 * training must give the same bits however samples and parameters are spread over ranks and
 * micro-steps. What each element's gradient is depends, by a hash, on
 *
 *     the sample's tokens and targets,      the tensor and the element,
 *     the element's own value in backward,  all values of the unit in forward,
 *     the activations and the gradients that come from the neighbouring stages,
 *
 * and on nothing else: not on the rank, the micro-step, or the sample's place in its micro-batch. So a
 * parameter that had not arrived yet, a gradient added twice, a buffer used too early change the
 * result. The loss is a whole number for each target.
 *
 * The hashes run on the host, in the stream, by the device's `call`: only devices whose memory the
 * host can read take this family. Units have awkward sizes: tensors of 1, 3, 65 and more elements.
 */
#ifndef MICS_MODEL_COUNTING_H
#define MICS_MODEL_COUNTING_H

#include "model/model.h"

enum mics_status mics_counting_build(struct mics_model *model, struct mics_err *err);

/* What one stage does, now, on the calling thread. */
void mics_counting_run_forward(const struct mics_pass *pass, uint32_t stage);
void mics_counting_run_backward(const struct mics_pass *pass, uint32_t stage);
void mics_counting_run_logits(const struct mics_pass *pass, uint32_t row, void *logits);

/* A stage's activations: states are whole numbers of 16 bits, of 8 in bf16. `middle` is saved, or made again in
 * scratch. The head and the embedding have no middle. */
struct mics_counting_areas {
    const void *in; /* [B, T, C] */
    void *middle;   /* [B, T, C] */
};

struct mics_counting_areas mics_counting_carve(const struct mics_model *model,
                                               const struct mics_batch *batch, uint32_t stage,
                                               void *saved, void *scratch,
                                               struct mics_stage_bytes *bytes);

#endif
