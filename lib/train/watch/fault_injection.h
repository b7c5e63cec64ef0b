/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - a fault on purpose, to try what becomes of a job.
 *
 * MICS_FAULT=RANK:OPERATION:N in the environment: the process of this rank is killed when it comes to the
 * N-th operation of this kind ("gather", "backward", ...; evaluations do not count).
 */
#ifndef MICS_TRAIN_WATCH_FAULT_H
#define MICS_TRAIN_WATCH_FAULT_H

#include "engine/engine.h"

#include <stdatomic.h>

struct mics_fault {
    const struct mics_engine *engine; /* the caller sets it before the first step */
    enum mics_op_kind kind;
    uint64_t times; /* 0: no fault on this rank */
    atomic_uint_fast64_t seen;
};

/* MICS_ERR_ARG: the variable is malformed. */
enum mics_status mics_fault_read(struct mics_fault *fault, uint32_t rank, struct mics_err *err);
/* The engine's before_op, with the fault as its context. */
void mics_fault_before_op(void *context, uint32_t op);

#endif
