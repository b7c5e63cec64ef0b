/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integer_model.h - a model for tests of the code that exchanges parameters and gradients.
 *
 * Gradients are whole numbers between -3 and 3 for each sample (twice that in the unit "ends",
 * which two stages use). Sums of up to 2^24 / 6 samples are therefore exact in fp32 and in any
 * order (in bf16 of up to 2^8 / 6, and parameters are rounded ones everywhere alike), and training
 * must give the same bits however samples and parameters are spread over ranks and micro-steps.
 * Each element's gradient depends, by a hash, on
 *
 *     the sample's tokens and targets,      the tensor and the element,
 *     the element's own value in backward,  all values of the unit in forward,
 *     the activations and the gradients that come from the neighbouring stages,
 *
 * and on nothing else: not on the rank, the micro-step, or the sample's place in its micro-batch.
 * So a parameter that had not arrived yet, a gradient added twice, a buffer used too early change
 * the result. The loss is a whole number for each target.
 *
 * The hashes run on the host, in the stream, by the device's `call`: only devices whose memory the
 * host can read take this family. Units have awkward sizes: tensors of 1, 3, 65 and more elements.
 */
#ifndef MICS_TESTS_INTEGER_MODEL_H
#define MICS_TESTS_INTEGER_MODEL_H

#include "model/model.h"

/* With 3 blocks, or with the sizes of `config`: the first tensor of a block has up to n_inner
 * elements. A failure ends the test. */
struct mics_model *integer_model_new(void);
struct mics_model *integer_model_new_of(const struct mics_model_config *config);

/* Each block is three stages, with two units and three boundary tensors of different shapes. Fused:
 * the same arithmetic, and tensors of the same numbers, as one stage with one unit. */
struct mics_model *integer_model_new_staged(const struct mics_model_config *config, bool fused);

#endif
