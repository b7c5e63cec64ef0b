/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/fault_injection.h"

#include "base/clock.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool find_op_kind(const char *name, enum mics_op_kind *kind)
{
    for (int i = 0; i < MICS_OP_KIND_COUNT; i++)
        if (strcmp(name, mics_op_kind_name((enum mics_op_kind)i)) == 0) {
            *kind = (enum mics_op_kind)i;
            return true;
        }
    return false;
}

/* "", ":hang" or ":SECONDS". */
static bool read_delay(const char *text, double *delay_s)
{
    char *end;

    *delay_s = 0;
    if (!*text)
        return true;
    if (strcmp(text, ":hang") == 0) {
        *delay_s = INFINITY;
        return true;
    }
    *delay_s = *text == ':' ? strtod(text + 1, &end) : 0;
    return *delay_s > 0 && isfinite(*delay_s) && !*end;
}

enum mics_status mics_fault_injection_read(struct mics_fault_injection *fault, uint32_t rank,
                                           struct mics_err *err)
{
    const char *text = getenv("MICS_FAULT");
    unsigned long long at;
    unsigned faulty_rank;
    char name[32];
    int used = 0;

    *fault = (struct mics_fault_injection){0};
    if (!text || !*text)
        return MICS_OK;
    if (sscanf(text, "%9u:%31[a-z_]:%18llu%n", &faulty_rank, name, &at, &used) != 3 || at == 0 ||
        !(find_op_kind(name, &fault->kind) || (fault->reading = strcmp(name, "input") == 0)) ||
        !read_delay(text + used, &fault->delay_s))
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_FAULT: expected RANK:OPERATION:N, RANK:OPERATION:N:hang or "
                            "RANK:OPERATION:N:SECONDS, found \"%s\"",
                            text);
    if (faulty_rank == rank)
        fault->at = at;
    return MICS_OK;
}

static void happen(struct mics_fault_injection *fault)
{
    const uint64_t count = atomic_fetch_add(&fault->count, 1) + 1;

    if (fault->delay_s == 0 && count == fault->at)
        raise(SIGKILL);
    if (isinf(fault->delay_s) && count == fault->at)
        for (;;)
            mics_sleep_s(1);
    if (fault->delay_s > 0 && count >= fault->at)
        mics_sleep_s(fault->delay_s);
}

void mics_fault_injection_before_op(void *context, uint32_t op_index)
{
    struct mics_fault_injection *fault = context;

    if (mics_engine_op(fault->engine, false, op_index)->kind == fault->kind)
        happen(fault);
}

void mics_fault_injection_before_read(void *context)
{
    happen(context);
}
