/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h - how a family makes its units and stages. Private to lib/model.
 */
#ifndef MICS_MODEL_BUILD_H
#define MICS_MODEL_BUILD_H

#include "model/model.h"

/* One tensor to be. Rank 1 where columns is 0. */
struct mics_tensor_spec {
    const char *name; /* without the unit's prefix */
    uint64_t rows, columns;
    enum mics_init init;
    double std;
    bool decay;
    bool joined; /* begins where the tensor before ends: together they are one matrix */
    uint64_t
        spare_rows; /* behind it: zeros, and so are their gradients, that products take with it */
};

/* Room for the units and stages embed, block 0 .. block L-1, head. Both ends use unit 0, or, in an untied
 * model, the head unit L + 1; blocks use units 1 .. L. The embedding only looks rows up, so its backward is
 * blind. On failure what was made belongs to the model all the same. */
enum mics_status mics_build_stages(struct mics_model *model, struct mics_err *err);

/* Lay out `count` tensors, those that decay first, in unit `unit` of the model. In a block their names
 * begin with "<name>.". Units must be filled in order: tensors are numbered through the whole model. */
enum mics_status mics_build_unit(struct mics_model *model, uint32_t unit, const char *name,
                                 bool resident, const struct mics_tensor_spec *specs,
                                 uint32_t count, struct mics_err *err);

/* The families. */
extern const struct mics_family mics_family_gpt2;
extern const struct mics_family mics_family_llama;
extern const struct mics_family mics_family_counting;

/* NULL: there is none of that name. */
const struct mics_family *mics_family_find(const char *name);

#endif
