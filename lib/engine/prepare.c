/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.c - how matrix products are done is settled before the first step, alike on all
 * ranks.
 *
 * Each rank issues the forward and backward passes of its schedules to a stream that only notes the
 * products, one of each shape. Of the ranks with equal devices (mics_device.tuning) the first
 * chooses, and the others get its choices: timing differs from run to run and from GPU to GPU, and
 * another algorithm rounds otherwise.
 */
#include "comm/agree.h"
#include "device/device.h"
#include "engine/internal.h"
#include "plan/memory.h"

#include <stdlib.h>
#include <string.h>

/* A stream of a device of its own. */
struct recorder {
    struct mics_stream stream; /* first */
    struct mics_device device;
    struct mics_op_matmul *products; /* [count], one of each shape */
    size_t count;
    bool failed; /* out of memory */
};

/* An address by what matters of it for a product: whether there is one, and what divides it. */
static uintptr_t kind_of(const void *address)
{
    const uintptr_t bits = (uintptr_t)address | 256;

    return address ? bits & -bits : 0;
}

static bool is_alike(const struct mics_op_matmul *x, const struct mics_op_matmul *y)
{
    return kind_of(x->out) == kind_of(y->out) && kind_of(x->a) == kind_of(y->a) &&
           kind_of(x->b) == kind_of(y->b) && kind_of(x->bias) == kind_of(y->bias) &&
           kind_of(x->add) == kind_of(y->add) && (x->add == x->out) == (y->add == y->out) &&
           kind_of(x->pre_gelu) == kind_of(y->pre_gelu) &&
           kind_of(x->gelu_of) == kind_of(y->gelu_of) && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->lda == y->lda && x->ldb == y->ldb && x->ldout == y->ldout &&
           x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->dtype == y->dtype &&
           x->out_dtype == y->out_dtype;
}

static void record(struct mics_stream *stream, enum mics_kernel kernel, const void *args,
                   size_t size)
{
    struct recorder *recorder = (struct recorder *)stream;
    const struct mics_op_matmul *product = args;

    (void)size;
    if (kernel != MICS_K_MATMUL || recorder->failed)
        return;
    for (size_t i = 0; i < recorder->count; i++)
        if (is_alike(&recorder->products[i], product))
            return;
    struct mics_op_matmul *products =
        realloc(recorder->products, (recorder->count + 1) * sizeof *products);
    if (!products) {
        recorder->failed = true;
        return;
    }
    recorder->products = products;
    products[recorder->count++] = *product;
}

static void record_schedule(struct mics_engine *engine, const struct mics_schedule *schedule,
                            bool train, struct recorder *recorder)
{
    struct issue issue = {.schedule = schedule,
                          .stream = &recorder->stream,
                          .batch = mics_choice_batch(&engine->choice, train),
                          .step = 1,
                          .logits_row = MICS_NONE};

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        issue.op = &schedule->ops[i];
        if (issue.op->kind == MICS_OP_FORWARD || issue.op->kind == MICS_OP_BACKWARD)
            mics_engine_issue(engine, &issue);
    }
}

/* What each rank tells the others. */
struct card {
    char tuning[sizeof((struct mics_device *)0)->tuning];
    uint64_t count; /* of products */
};

/* leaders[rank]: the first rank whose device is like the one of `rank`. All ranks must have the
 * same number of products. */
static enum mics_status find_leaders(const struct mics_engine *engine, size_t count, int *leaders,
                                     struct mics_err *err)
{
    struct mics_comm *comm = engine->options.world->comm;
    struct card *cards = calloc((size_t)comm->size, sizeof *cards), card = {.count = count};

    if (!cards)
        return mics_err_nomem(err);
    memcpy(card.tuning, engine->device->tuning, sizeof card.tuning);
    enum mics_status status = comm->ops->all_gather_now(comm, &card, cards, sizeof card, err);
    for (int i = 0; status == MICS_OK && i < comm->size; i++) {
        leaders[i] = 0;
        while (strcmp(cards[leaders[i]].tuning, cards[i].tuning) != 0)
            leaders[i]++;
        if (cards[i].count != cards[0].count)
            status = mics_err_set(err, MICS_ERR_DEVICE,
                                  "%llu shapes of matrix products on rank 0, but %llu on rank %d",
                                  (unsigned long long)cards[0].count,
                                  (unsigned long long)cards[i].count, i);
    }
    free(cards);
    return status;
}

/* Choices of every leader go to all ranks, one leader after another; a rank keeps those of its own.
 * `other` is room for those that it drops. */
static enum mics_status share(struct mics_comm *comm, const int *leaders, uint64_t bytes,
                              void *choices, void *other, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int i = 0; status == MICS_OK && i < comm->size; i++)
        if (leaders[i] == i)
            status = comm->ops->broadcast_now(comm, leaders[comm->rank] == i ? choices : other,
                                              bytes, i, err);
    return status;
}

/* With the products known: choose, exchange, adopt. */
static enum mics_status settle(struct mics_engine *engine, const struct recorder *recorder,
                               const int *leaders, struct mics_matmul_choice *choices,
                               struct mics_err *err)
{
    struct mics_comm *comm = engine->options.world->comm;
    struct mics_stream *stream = engine->streams[MICS_STREAM_COMPUTE];
    const struct mics_device_ops *device = engine->device->ops;
    const bool leads = leaders[comm->rank] == comm->rank;
    const size_t count = recorder->count;
    enum mics_status status = MICS_OK;

    if (leads)
        status = device->prepare(stream, recorder->products, count, false, choices, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = share(comm, leaders, count * sizeof *choices, choices, choices + count, err);
    if (status == MICS_OK && !leads)
        status = device->prepare(stream, recorder->products, count, true, choices, err);
    return mics_agree(comm, status, err);
}

enum mics_status mics_engine_prepare(struct mics_engine *engine, struct mics_err *err)
{
    static const struct mics_device_ops ops = {.launch = record};
    struct mics_comm *comm = engine->options.world->comm;
    struct recorder recorder = {.device.ops = &ops};
    struct mics_matmul_choice *choices = NULL;

    if (!engine->device->ops->prepare)
        return MICS_OK;
    int *leaders = calloc((size_t)comm->size, sizeof *leaders);
    recorder.stream.device = &recorder.device;
    record_schedule(engine, engine->train.schedule, true, &recorder);
    record_schedule(engine, engine->eval.schedule, false, &recorder);
    if (!recorder.failed)
        choices = calloc(2 * recorder.count + 1, sizeof *choices);
    enum mics_status status =
        mics_agree(comm, leaders && choices ? MICS_OK : mics_err_nomem(err), err);
    if (status == MICS_OK)
        status = find_leaders(engine, recorder.count, leaders, err);
    if (status == MICS_OK && recorder.count > 0)
        status = settle(engine, &recorder, leaders, choices, err);
    free(recorder.products);
    free(choices);
    free(leaders);
    return status;
}
