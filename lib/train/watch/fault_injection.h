/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_injection.h - kills, halts or slows a rank on purpose, to test how a job reacts.
 *
 * MICS_FAULT=RANK:OPERATION:N in the environment: the process of this rank is killed when it begins
 * the N-th operation of this kind ("gather", "backward", ...; evaluations do not count), or with
 * "input" when it begins to read the samples of its N-th step. With ":hang" behind it, that never
 * ends; with ":SECONDS", it and all later ones of its kind take so much longer.
 */
#ifndef MICS_TRAIN_WATCH_FAULT_INJECTION_H
#define MICS_TRAIN_WATCH_FAULT_INJECTION_H

#include "engine/engine.h"

#include <stdatomic.h>

struct mics_fault_injection {
    const struct mics_engine *engine; /* the caller sets it before the first step */
    enum mics_op_kind kind;
    bool reading;   /* samples, instead of an operation */
    uint64_t at;    /* the N-th operation; 0: no fault on this rank */
    double delay_s; /* 0: it is killed; INFINITY: it hangs */
    atomic_uint_fast64_t count;
};

/* MICS_ERR_ARG: the variable is malformed. */
enum mics_status mics_fault_injection_read(struct mics_fault_injection *fault, uint32_t rank,
                                           struct mics_err *err);
/* The engine's before_op; `context` is the struct mics_fault_injection. */
void mics_fault_injection_before_op(void *context, uint32_t op_index);
/* The reader's before_read; likewise. */
void mics_fault_injection_before_read(void *context);

#endif
