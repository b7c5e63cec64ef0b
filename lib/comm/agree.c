/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/agree.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The lowest rank that failed, or -1. *same: did all fail with that status? */
static int first_failure(const int32_t *all, int size, bool *same)
{
    int first = -1;

    *same = true;
    for (int i = size - 1; i >= 0; i--)
        if (all[i] != MICS_OK)
            first = i;
    for (int i = 0; first >= 0 && i < size; i++)
        *same = *same && all[i] == all[first];
    return first;
}

/* Statuses first, the text only when there is one: 4 bytes a rank are what it costs as a rule. */
enum mics_status mics_agree(struct mics_comm *comm, enum mics_status mine, struct mics_err *err)
{
    struct mics_err text = {""}, trouble = {""};
    int32_t own = (int32_t)mine, *all = malloc((size_t)comm->size * sizeof *all);
    enum mics_status status;
    bool same;
    int first;

    if (!all)
        return mics_err_nomem(err);
    status = comm->ops->all_gather_now(comm, &own, all, sizeof own, &trouble);
    first = status == MICS_OK ? first_failure(all, comm->size, &same) : -1;
    if (first >= 0) {
        if (first == comm->rank && err)
            text = *err;
        status = comm->ops->broadcast_now(comm, text.text, sizeof text.text, first, &trouble);
        text.text[sizeof text.text - 1] = '\0';
    }
    if (status == MICS_OK && first >= 0) {
        status = (enum mics_status)all[first];
        trouble = text;
        if (!same && first > 0)
            mics_err_prefix(&trouble, "rank %d", first);
    }
    free(all);
    if (status != MICS_OK && err)
        *err = trouble;
    return status;
}
