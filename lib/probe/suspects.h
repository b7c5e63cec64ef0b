/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspects.h - who is slow, every time: a measurement that accuses somebody is made again, and only those
 * who are slow in all of them are named.
 *
 * Each of `count` ranks or pairs has two times: for ranks, of a product and of a copy; for pairs, of
 * a short and of a long message.
 */
#ifndef MICS_PROBE_SUSPECTS_H
#define MICS_PROBE_SUSPECTS_H

#include "base/err.h"
#include "bench/stats.h"

#include <stdint.h>

enum { MICS_SUSPECT_KINDS = 2 };

struct mics_suspects {
    uint32_t count;
    double *times[MICS_SUSPECT_KINDS]; /* [count], filled by the caller before judging */
    bool *slow[MICS_SUSPECT_KINDS];    /* [count]: slow in every judgement so far */
    struct mics_class classes[MICS_SUSPECT_KINDS]; /* of the newest judgement */
};

enum mics_status mics_suspects_init(struct mics_suspects *suspects, uint32_t count,
                                    struct mics_err *err);
void mics_suspects_fini(struct mics_suspects *suspects);

/* Compare each time with its class; who is not slow now is a suspect no more. Sets *left to the number
 * of suspects that are left. */
enum mics_status mics_suspects_judge(struct mics_suspects *suspects, uint32_t *left,
                                     struct mics_err *err);

#endif
