/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch/fault_injection.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool find_kind(const char *name, enum mics_op_kind *kind)
{
    for (int i = 0; i < MICS_OP_KIND_COUNT; i++)
        if (strcmp(name, mics_op_kind_name((enum mics_op_kind)i)) == 0) {
            *kind = (enum mics_op_kind)i;
            return true;
        }
    return false;
}

enum mics_status mics_fault_read(struct mics_fault *fault, uint32_t rank, struct mics_err *err)
{
    const char *text = getenv("MICS_FAULT");
    unsigned long long times;
    unsigned faulty;
    char name[32], more;

    *fault = (struct mics_fault){0};
    if (!text || !*text)
        return MICS_OK;
    if (sscanf(text, "%9u:%31[a-z]:%18llu%c", &faulty, name, &times, &more) != 3 || times == 0 ||
        !find_kind(name, &fault->kind))
        return mics_err_set(err, MICS_ERR_ARG,
                            "MICS_FAULT: expected RANK:OPERATION:N, found \"%s\"", text);
    if (faulty == rank)
        fault->times = times;
    return MICS_OK;
}

void mics_fault_before_op(void *context, uint32_t op)
{
    struct mics_fault *fault = context;
    const struct mics_op *is = mics_engine_op(fault->engine, false, op);

    if (is->kind == fault->kind && atomic_fetch_add(&fault->seen, 1) + 1 == fault->times)
        raise(SIGKILL);
}
