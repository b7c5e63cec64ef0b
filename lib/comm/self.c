/* SPDX-License-Identifier: Apache-2.0 */
/* One rank alone: everything that happens to a single rank is in comm_base.c. */
#include "comm/backend.h"

#include <stdlib.h>
#include <unistd.h>

static enum mics_status self_split(struct mics_comm *comm, int color, int key, int block,
                                   struct mics_comm **out, struct mics_err *err)
{
    (void)comm, (void)key;
    if (color < 0) {
        *out = NULL;
        return MICS_OK;
    }
    if (block != 0)
        return mics_err_set(err, MICS_ERR_ARG, "split: block %d of 1 ranks", block);
    return mics_comm_new_self(out, err);
}

static void self_free(struct mics_comm *comm)
{
    free(comm);
}

/* Without the handlers of exit(): other threads are still at work. */
static void self_abort(struct mics_comm *comm, int code)
{
    (void)comm;
    _exit(code);
}

static const struct mics_comm_ops self_ops = {
    .split = self_split, .free = self_free, .abort = self_abort, COMM_BASE_OPS};

enum mics_status mics_comm_new_self(struct mics_comm **out, struct mics_err *err)
{
    struct comm_base *base = calloc(1, sizeof *base);

    if (!base)
        return mics_err_nomem(err);
    base->comm.ops = &self_ops;
    base->comm.backend = "self";
    base->comm.size = 1;
    *out = &base->comm;
    return MICS_OK;
}
