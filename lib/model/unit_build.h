/* SPDX-License-Identifier: Apache-2.0 */
/* unit_build.h - units and stages from tables of tensors: for implementations of struct
 * mics_model_ops. */
#ifndef MICS_MODEL_UNIT_BUILD_H
#define MICS_MODEL_UNIT_BUILD_H

#include "model/model.h"

/* A tensor to lay out. Rank 1 where columns is 0. */
struct mics_tensor_spec {
    const char *name; /* without the prefix */
    uint64_t rows, columns;
    enum mics_init init;
    double std;
    bool decay;
    bool contiguous;       /* begins where the previous tensor ends, without padding */
    uint64_t padding_rows; /* zeros behind it that products include; their gradients are 0, too */
};

/* Allocate units and stages of a model; after a failure the model owns what was allocated. */
enum mics_status mics_build_alloc(struct mics_model *model, uint32_t units, uint32_t stages,
                                  struct mics_err *err);

/* Allocate the units and stages embed, block 0 .. block L-1, head, with the residual stream between
 * them. Embedding and head use unit 0,
 * or, in an untied model, the head has unit L + 1; blocks use units 1 .. L. The embedding only
 * looks rows up, so its backward needs no parameters. After a failure the model owns what was
 * allocated. */
enum mics_status mics_build_stages(struct mics_model *model, struct mics_err *err);

/* Lay out `count` tensors, those that decay first, in unit `unit` of the model. Their names begin
 * with "<prefix>.", unless the prefix is "". Units must be filled in order: tensors are numbered
 * through the whole model. */
enum mics_status mics_build_unit(struct mics_model *model, uint32_t unit, const char *name,
                                 const char *prefix, bool resident,
                                 const struct mics_tensor_spec *specs, uint32_t count,
                                 struct mics_err *err);

#endif
