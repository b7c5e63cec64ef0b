/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dependencies.c - what each operation waits for, derived from what it reads and writes.
 *
 * Each operation touches a few resources: pieces of parameter and gradient shards, of slots, scalars.
 * Walking two steps in a row, an operation must wait for the last writer of what it reads, and for
 * the last writer and the readers since of what it writes. Of these, per stream, only the newest counts.
 * A wait is dropped when the stream's order or another wait implies it, which vector clocks tell: they
 * hold, for each stream, the newest operation that is known to be over. Newest waits are taken first, so
 * that what remains is the least set: drop one, and two accesses are no longer ordered.
 *
 * The second step's waits are those of every step. A wait for the first step's operations is one for "the
 * step before". Scalars of consecutive steps are different memory.
 */
#include "plan/schedule/build.h"

#include <assert.h>
#include <stdlib.h>

enum { MAX_ACCESSES = 16 };

/* Ordinals of operations in two steps, counted from 1; 0 is none. */
struct history {
    uint32_t writer[MICS_STREAM_COUNT]; /* only the last writer's stream is set */
    uint32_t readers[MICS_STREAM_COUNT];
};

enum scalar { SCALAR_LOSS, SCALAR_TARGETS, SCALAR_NORM, SCALAR_COUNT };

/* Where the histories of each kind of resource begin. Per unit or slot one for each segment. */
struct tracker {
    bool clip, train;
    uint32_t head;  /* the last stage */
    uint32_t width; /* segments, at most */
    uint32_t param_shard, grad_shard, param_slot, grad_slot, scalar;
    struct history *histories;
    uint32_t (*clocks)[MICS_STREAM_COUNT]; /* [2 * op_count + 1] */
    uint32_t last[MICS_STREAM_COUNT];      /* newest operation of each stream */
    uint32_t deps_capacity;
};

/* `count` neighbouring resources from `first` on. */
struct access {
    uint32_t first, count;
    bool write;
};

struct access_list {
    struct access items[MAX_ACCESSES];
    uint32_t count;
};

static void touch(struct access_list *list, uint32_t first, uint32_t count, bool write)
{
    assert(list->count < MAX_ACCESSES);
    list->items[list->count++] = (struct access){first, count, write};
}

static void touch_scalar(const struct tracker *t, struct access_list *list, enum scalar scalar,
                         uint32_t parity, bool write)
{
    touch(list, t->scalar + parity * SCALAR_COUNT + scalar, 1, write);
}

static void list_compute(const struct tracker *t, const struct mics_op *op, uint32_t parity,
                         struct access_list *list)
{
    if (!op->blind && op->param_slot == MICS_NONE)
        touch(list, t->param_shard + op->unit * t->width, t->width, false);
    else if (!op->blind)
        touch(list, t->param_slot + op->param_slot * t->width, t->width, false);
    if (op->stage == t->head)
        touch_scalar(t, list, SCALAR_LOSS, parity, true);
    if (op->kind == MICS_OP_FORWARD && !(op->stage == t->head && t->train))
        return;
    if (op->grad_slot != MICS_NONE)
        touch(list, t->grad_slot + op->grad_slot * t->width, t->width, true);
    else
        touch(list, t->grad_shard + op->unit * t->width, t->width, true);
}

static void list_optimizer(const struct tracker *t, const struct mics_op *op, uint32_t parity,
                           struct access_list *list)
{
    touch(list, t->grad_shard + op->unit * t->width, t->width, false);
    if (op->kind == MICS_OP_NORM) {
        touch_scalar(t, list, SCALAR_NORM, parity, true);
        return;
    }
    touch(list, t->param_shard + op->unit * t->width, t->width, true);
    touch_scalar(t, list, SCALAR_TARGETS, parity, false);
    if (t->clip)
        touch_scalar(t, list, SCALAR_NORM, parity, false);
}

static void list_exchange(const struct tracker *t, const struct mics_op *op,
                          struct access_list *list)
{
    uint32_t shard = op->unit * t->width + op->segment;

    if (op->kind == MICS_OP_GATHER) {
        if (op->comm != MICS_COMM_GATHER_NODE)
            touch(list, t->param_shard + shard, 1, false);
        touch(list, t->param_slot + op->param_slot * t->width + op->segment, 1, true);
    } else if (op->kind == MICS_OP_REDUCE) {
        touch(list, t->grad_slot + op->grad_slot * t->width + op->segment, 1, true);
    } else if (op->kind == MICS_OP_PUBLISH) {
        touch(list, t->param_shard + shard, 1, true);
    } else {
        touch(list, t->grad_shard + shard, 1, true);
    }
}

static void list_accesses(const struct tracker *t, const struct mics_op *op, uint32_t parity,
                          struct access_list *list)
{
    list->count = 0;
    switch (op->kind) {
    case MICS_OP_COUNT:
        touch_scalar(t, list, SCALAR_TARGETS, parity, true);
        break;
    case MICS_OP_FORWARD:
    case MICS_OP_BACKWARD:
        list_compute(t, op, parity, list);
        break;
    case MICS_OP_ACCUMULATE:
        touch(list, t->grad_slot + op->grad_slot * t->width, t->width, false);
        touch(list, t->grad_shard + op->unit * t->width, t->width, true);
        break;
    case MICS_OP_NORM:
    case MICS_OP_UPDATE:
        list_optimizer(t, op, parity, list);
        break;
    case MICS_OP_TOTAL:
        touch_scalar(t, list, SCALAR_LOSS, parity, true);
        touch_scalar(t, list, SCALAR_NORM, parity, true);
        break;
    case MICS_OP_READ:
        touch(list, t->scalar + parity * SCALAR_COUNT, SCALAR_COUNT, false);
        break;
    default:
        list_exchange(t, op, list);
    }
}

static void raise_to(uint32_t clock[MICS_STREAM_COUNT], const uint32_t other[MICS_STREAM_COUNT])
{
    for (int s = 0; s < MICS_STREAM_COUNT; s++)
        if (other[s] > clock[s])
            clock[s] = other[s];
}

/* Newest operation of each stream that stands in the way of `op`'s accesses; they are noted. */
static void collect(struct tracker *t, const struct access_list *list, enum mics_stream_kind stream,
                    uint32_t ordinal, uint32_t wait[MICS_STREAM_COUNT])
{
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t j = 0; j < list->items[i].count; j++) {
            struct history *history = &t->histories[list->items[i].first + j];

            raise_to(wait, history->writer);
            if (!list->items[i].write) {
                history->readers[stream] = ordinal;
                continue;
            }
            raise_to(wait, history->readers);
            *history = (struct history){0};
            history->writer[stream] = ordinal;
        }
    }
}

static bool keep(struct tracker *t, struct mics_schedule *out, uint32_t dep)
{
    if (out->dep_total == t->deps_capacity) {
        uint32_t capacity = t->deps_capacity ? 2 * t->deps_capacity : 256;
        uint32_t *deps = realloc(out->deps, capacity * sizeof *deps);

        if (!deps)
            return false;
        out->deps = deps;
        t->deps_capacity = capacity;
    }
    out->deps[out->dep_total++] = dep;
    return true;
}

/* Take the waits that nothing else implies, newest first. Ordinals 1 .. n are the step before. */
static bool settle(struct tracker *t, struct mics_schedule *out, uint32_t index, uint32_t ordinal,
                   const uint32_t wait[MICS_STREAM_COUNT])
{
    struct mics_op *op = &out->ops[index];
    uint32_t *clock = t->clocks[ordinal], n = out->op_count;
    bool second = ordinal > n;

    raise_to(clock, t->clocks[t->last[op->stream]]);
    clock[op->stream] = ordinal;
    op->dep_begin = out->dep_total;
    for (;;) {
        uint32_t newest = 0;

        for (int s = 0; s < MICS_STREAM_COUNT; s++)
            if (wait[s] > clock[s] && wait[s] > newest)
                newest = wait[s];
        if (newest == 0)
            break;
        raise_to(clock, t->clocks[newest]);
        if (second && !keep(t, out, (newest - 1) % n))
            return false;
    }
    op->dep_count = out->dep_total - op->dep_begin;
    t->last[op->stream] = ordinal;
    return true;
}

static bool walk(struct tracker *t, struct mics_schedule *out)
{
    for (uint32_t ordinal = 1; ordinal <= 2 * out->op_count; ordinal++) {
        uint32_t index = (ordinal - 1) % out->op_count, parity = ordinal > out->op_count;
        const struct mics_op *op = &out->ops[index];
        uint32_t wait[MICS_STREAM_COUNT] = {0};
        struct access_list list;

        list_accesses(t, op, parity, &list);
        collect(t, &list, op->stream, ordinal, wait);
        if (!settle(t, out, index, ordinal, wait))
            return false;
    }
    return true;
}

enum mics_status mics_build_deps(struct mics_schedule *schedule,
                                 const struct mics_plan_choice *choice, struct mics_err *err)
{
    struct tracker t = {.clip = choice->clip, .train = schedule->train, .width = choice->segments};
    uint32_t units = schedule->unit_count, total;
    bool done = false;

    for (uint32_t i = 0; i < schedule->op_count; i++)
        if (schedule->ops[i].kind == MICS_OP_FORWARD && schedule->ops[i].stage > t.head)
            t.head = schedule->ops[i].stage;

    t.grad_shard = t.param_shard + units * t.width;
    t.param_slot = t.grad_shard + units * t.width;
    t.grad_slot = t.param_slot + schedule->param_slot_total * t.width;
    t.scalar = t.grad_slot + schedule->grad_slot_total * t.width;
    total = t.scalar + 2 * SCALAR_COUNT;
    t.histories = calloc(total, sizeof *t.histories);
    t.clocks = calloc(2 * (size_t)schedule->op_count + 1, sizeof *t.clocks);
    if (t.histories && t.clocks)
        done = walk(&t, schedule);
    free(t.histories);
    free(t.clocks);
    return done ? MICS_OK : mics_err_nomem(err);
}
