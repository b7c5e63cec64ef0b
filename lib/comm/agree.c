/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/agree.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

void *mics_all_gather(struct mics_comm *comm, const void *own, size_t bytes,
                      enum mics_status *status, struct mics_err *err)
{
    void *all = calloc((size_t)comm->size, bytes);

    *status = all ? mics_comm_all_gather_now(comm, own, all, bytes, err) : mics_err_nomem(err);
    if (*status == MICS_OK)
        return all;
    free(all);
    return NULL;
}

/* The lowest rank that failed, or -1. *same: all ranks have its status. */
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

/* Gathers the statuses, 4 bytes per rank; the text is broadcast only after a failure. */
enum mics_status mics_agree(struct mics_comm *comm, enum mics_status mine, struct mics_err *err)
{
    struct mics_err text = {""};
    const int32_t own = (int32_t)mine;
    bool same = true;
    enum mics_status status;
    int32_t *all = mics_all_gather(comm, &own, sizeof own, &status, &text);
    const int first = status == MICS_OK ? first_failure(all, comm->size, &same) : -1;

    if (first >= 0) {
        struct mics_err failure = {""};

        if (first == comm->rank && err)
            text = *err;
        status = mics_comm_broadcast_now(comm, text.text, sizeof text.text, first, &failure);
        if (status != MICS_OK) {
            text = failure;
        } else {
            status = (enum mics_status)all[first];
            text.text[sizeof text.text - 1] = '\0';
            if (!same && first > 0)
                mics_err_prefix(&text, "rank %d", first);
        }
    }
    free(all);
    if (status != MICS_OK && err)
        *err = text;
    return status;
}
