/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dependencies.c - what each operation waits for, derived from what it reads and writes.
 *
 * Each operation accesses a few resources: pieces of parameter and gradient shards, pieces of
 * slots, staging buffers, scalars; a hop its operands. Walking through two consecutive steps, an
 * operation must wait for the last writer of what it reads, and for the last writer and the readers
 * since then of what it writes; of these only the newest in each stream counts. A wait is dropped
 * when the stream's order or another wait implies it. Vector clocks decide that: for each
 * operation they hold the newest operation of each stream that is known to be complete. Newest
 * waits are taken first, so that the remaining set is minimal: without any one of them, two
 * accesses are no longer ordered.
 *
 * The waits of the second step are those of every step; a wait for an operation of the first step
 * is one for "the previous step". Scalars of consecutive steps are in different memory.
 */
#include "plan/host_update.h"
#include "plan/schedule/build.h"

#include <assert.h>
#include <stdlib.h>

enum { MAX_ACCESSES = 16 };

/* Ordinals of operations in the two steps, counted from 1; 0: none. */
struct history {
    uint32_t writer[MICS_STREAM_COUNT];  /* only the last writer's stream is set */
    uint32_t readers[MICS_STREAM_COUNT]; /* newest of each stream since then */
};

enum scalar { SCALAR_LOSS, SCALAR_TARGETS, SCALAR_NORM, SCALAR_COUNT };

/* Of tokens that travel to experts: the numbers of rows, what a rank sends and gets back, and what
 * it receives and sends back. */
enum dispatched { DISPATCHED_COUNTS, DISPATCHED_SENT, DISPATCHED_RECEIVED, DISPATCHED_COUNT };

/* A resource is one segment of a unit's shard or of a slot, a staging buffer, one scalar of the
 * steps of one parity, a piece in host memory, or a place for one on the device; where the host
 * updates, what a unit has in its memory is one piece; `buffers`,
 * `scalar` and so on say where the histories of each kind begin. */
struct tracker {
    bool clip, train, offloads, updates_on_host;
    uint32_t head;  /* the last stage */
    uint32_t width; /* histories per unit or slot: the most segments of a unit */
    uint32_t buffers[MICS_BUFFER_COUNT], scalar, dispatched, pieces, piece_slots;
    struct history *histories;
    uint32_t (*clocks)[MICS_STREAM_COUNT]; /* [2 * op_count + 1] */
    uint32_t last[MICS_STREAM_COUNT];      /* newest operation of each stream */
    uint32_t deps_capacity;
};

/* Resources first .. first + count - 1. */
struct access {
    uint32_t first, count;
    bool write;
};

struct access_list {
    struct access items[MAX_ACCESSES];
    uint32_t count;
};

static void add_access(struct access_list *list, uint32_t first, uint32_t count, bool write)
{
    assert(list->count < MAX_ACCESSES);
    list->items[list->count++] = (struct access){first, count, write};
}

static void access_scalar(const struct tracker *t, struct access_list *list, enum scalar scalar,
                          uint32_t parity, bool write)
{
    add_access(list, t->scalar + parity * SCALAR_COUNT + scalar, 1, write);
}

/* One segment of what the operation has in a buffer, or all segments. */
static void access_buffer(const struct tracker *t, struct access_list *list,
                          const struct mics_op *op, enum mics_buffer buffer, bool all, bool write)
{
    uint32_t which;

    switch (buffer) {
    case MICS_BUFFER_PARAM_SHARD:
    case MICS_BUFFER_GRAD_SHARD:
    case MICS_BUFFER_OUTER_DELTA:
        which = op->unit;
        break;
    case MICS_BUFFER_PARAM_SLOT:
        which = op->param_slot;
        break;
    case MICS_BUFFER_GRAD_SLOT:
    case MICS_BUFFER_REDUCED:
        which = op->grad_slot;
        break;
    default: /* staging */
        add_access(list, t->buffers[buffer], 1, write);
        return;
    }
    add_access(list, t->buffers[buffer] + which * t->width + (all ? 0 : op->segment),
               all ? t->width : 1, write);
}

static void access_dispatched(const struct tracker *t, struct access_list *list,
                              enum dispatched which, bool write)
{
    add_access(list, t->dispatched + which, 1, write);
}

/* What a phase has in memory that other streams use as well. */
static void list_phase(const struct tracker *t, enum mics_phase phase, struct access_list *list)
{
    if (phase == MICS_PHASE_COUNT || phase == MICS_PHASE_SEND)
        access_dispatched(t, list, DISPATCHED_COUNTS, phase == MICS_PHASE_COUNT);
    if (phase == MICS_PHASE_SEND || phase == MICS_PHASE_RECEIVE)
        access_dispatched(t, list, DISPATCHED_SENT, phase == MICS_PHASE_SEND);
    if (phase == MICS_PHASE_EXPERTS)
        access_dispatched(t, list, DISPATCHED_RECEIVED, true);
}

/* The exchange after a phase. */
static void list_phase_exchange(const struct tracker *t, enum mics_phase phase,
                                struct access_list *list)
{
    if (phase == MICS_PHASE_COUNT) {
        access_dispatched(t, list, DISPATCHED_COUNTS, true);
        return;
    }
    access_dispatched(t, list, DISPATCHED_SENT, phase == MICS_PHASE_EXPERTS);
    access_dispatched(t, list, DISPATCHED_RECEIVED, phase == MICS_PHASE_SEND);
}

static void list_computation(const struct tracker *t, const struct mics_op *op, uint32_t parity,
                             struct access_list *list)
{
    list_phase(t, op->phase, list);
    if (op->phase != MICS_PHASE_ALL && op->phase != MICS_PHASE_EXPERTS)
        return;
    if (op->needs_params)
        access_buffer(t, list, op,
                      op->param_slot == MICS_NONE ? MICS_BUFFER_PARAM_SHARD
                                                  : MICS_BUFFER_PARAM_SLOT,
                      true, false);
    if (op->stage == t->head)
        access_scalar(t, list, SCALAR_LOSS, parity, true);
    if (op->unit == MICS_NONE ||
        (op->kind == MICS_OP_FORWARD && !(op->stage == t->head && t->train)))
        return;
    access_buffer(t, list, op,
                  op->grad_slot == MICS_NONE ? MICS_BUFFER_GRAD_SHARD : MICS_BUFFER_GRAD_SLOT, true,
                  true);
}

/* What load, update and store of a piece have of it: in host memory, and on the device. */
static void list_piece(const struct tracker *t, const struct mics_op *op, struct access_list *list)
{
    if (op->kind != MICS_OP_UPDATE)
        add_access(list, t->pieces + op->piece, 1, op->kind == MICS_OP_STORE);
    add_access(list, t->piece_slots + op->piece % MICS_OFFLOAD_SLOTS, 1, op->kind != MICS_OP_STORE);
}

/* Where the host updates: copies between a shard and what the unit has in host memory. */
static void list_host_copy(const struct tracker *t, const struct mics_op *op,
                           struct access_list *list)
{
    const bool stores = op->kind == MICS_OP_STORE;

    access_buffer(t, list, op, stores ? op->from.buffer : op->to.buffer, true, !stores);
    add_access(list, t->pieces + op->piece, 1, stores);
}

static void list_optimizer(const struct tracker *t, const struct mics_op *op, uint32_t parity,
                           struct access_list *list)
{
    if (op->kind == MICS_OP_NORM || !t->updates_on_host)
        access_buffer(t, list, op, MICS_BUFFER_GRAD_SHARD, true, false);
    if (op->kind == MICS_OP_NORM) {
        access_scalar(t, list, SCALAR_NORM, parity, true);
        return;
    }
    if (t->updates_on_host) {
        add_access(list, t->pieces + op->piece, 1, true);
    } else {
        access_buffer(t, list, op, MICS_BUFFER_PARAM_SHARD, !t->offloads, true);
        if (t->offloads)
            list_piece(t, op, list);
    }
    access_scalar(t, list, SCALAR_TARGETS, parity, false);
    if (t->clip)
        access_scalar(t, list, SCALAR_NORM, parity, false);
}

/* A segment may overlap any segment of the slot's next unit. */
static bool copies_from_slot(const struct mics_op *op)
{
    return op->kind == MICS_OP_CONVERT && op->from.buffer == MICS_BUFFER_PARAM_SLOT;
}

static void list_accesses(const struct tracker *t, const struct mics_op *op, uint32_t parity,
                          struct access_list *list)
{
    list->count = 0;
    switch (op->kind) {
    case MICS_OP_TARGET_COUNT:
        access_scalar(t, list, SCALAR_TARGETS, parity, true);
        break;
    case MICS_OP_FORWARD:
    case MICS_OP_BACKWARD:
        list_computation(t, op, parity, list);
        break;
    case MICS_OP_DISPATCH:
    case MICS_OP_COMBINE:
        list_phase_exchange(t, op->phase, list);
        break;
    case MICS_OP_NORM:
    case MICS_OP_UPDATE:
        list_optimizer(t, op, parity, list);
        break;
    case MICS_OP_LOAD:
    case MICS_OP_STORE:
        if (t->updates_on_host)
            list_host_copy(t, op, list);
        else
            list_piece(t, op, list);
        break;
    case MICS_OP_LOSS_NORM_REDUCE:
        access_scalar(t, list, SCALAR_LOSS, parity, true);
        access_scalar(t, list, SCALAR_NORM, parity, true);
        break;
    case MICS_OP_REPLICA_REDUCE:
        add_access(list, t->scalar + parity * SCALAR_COUNT, SCALAR_COUNT, true);
        break;
    case MICS_OP_READ:
        add_access(list, t->scalar + parity * SCALAR_COUNT, SCALAR_COUNT, false);
        break;
    default: /* a hop */
        access_buffer(t, list, op, op->from.buffer,
                      op->kind == MICS_OP_ACCUMULATE || copies_from_slot(op), false);
        access_buffer(t, list, op, op->to.buffer, op->kind == MICS_OP_ACCUMULATE, true);
    }
}

static void merge_clock(uint32_t clock[MICS_STREAM_COUNT], const uint32_t other[MICS_STREAM_COUNT])
{
    for (int s = 0; s < MICS_STREAM_COUNT; s++)
        if (other[s] > clock[s])
            clock[s] = other[s];
}

/* Find in wait[] the newest operation of each stream that must precede these accesses, and record
 * the accesses in the histories. */
static void record_accesses(struct tracker *t, const struct access_list *list,
                            enum mics_stream_kind stream, uint32_t ordinal,
                            uint32_t wait[MICS_STREAM_COUNT])
{
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t j = 0; j < list->items[i].count; j++) {
            struct history *history = &t->histories[list->items[i].first + j];

            merge_clock(wait, history->writer);
            if (!list->items[i].write) {
                history->readers[stream] = ordinal;
                continue;
            }
            merge_clock(wait, history->readers);
            *history = (struct history){0};
            history->writer[stream] = ordinal;
        }
    }
}

static bool append_dep(struct tracker *t, struct mics_schedule *out, uint32_t dep)
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

/* Append the waits that no other implies, newest first. Ordinals 1 .. n are the previous step. */
static bool append_waits(struct tracker *t, struct mics_schedule *out, uint32_t index,
                         uint32_t ordinal, const uint32_t wait[MICS_STREAM_COUNT])
{
    struct mics_op *op = &out->ops[index];
    uint32_t *clock = t->clocks[ordinal], n = out->op_count;
    bool second = ordinal > n;

    merge_clock(clock, t->clocks[t->last[op->stream]]);
    clock[op->stream] = ordinal;
    op->dep_begin = out->dep_total;
    for (;;) {
        uint32_t newest = 0;

        for (int s = 0; s < MICS_STREAM_COUNT; s++)
            if (wait[s] > clock[s] && wait[s] > newest)
                newest = wait[s];
        if (newest == 0)
            break;
        merge_clock(clock, t->clocks[newest]);
        if (second && !append_dep(t, out, (newest - 1) % n))
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
        record_accesses(t, &list, op->stream, ordinal, wait);
        if (!append_waits(t, out, index, ordinal, wait))
            return false;
    }
    return true;
}

/* Units or slots that have segments in a buffer. */
static uint32_t buffer_parts(const struct mics_schedule *schedule, enum mics_buffer buffer)
{
    switch (buffer) {
    case MICS_BUFFER_PARAM_SHARD:
    case MICS_BUFFER_GRAD_SHARD:
    case MICS_BUFFER_OUTER_DELTA:
        return schedule->unit_count;
    case MICS_BUFFER_PARAM_SLOT:
        return schedule->param_slot_total;
    case MICS_BUFFER_GRAD_SLOT:
        return schedule->grad_slot_total;
    default:
        return 0;
    }
}

enum mics_status mics_schedule_add_dependencies(struct mics_schedule *schedule,
                                                const struct mics_plan_choice *choice,
                                                struct mics_err *err)
{
    struct tracker t = {.clip = choice->clip,
                        .train = schedule->train,
                        .offloads = choice->offload_piece > 0,
                        .updates_on_host = mics_choice_updates_on_host(choice),
                        .width = choice->segments};
    uint32_t total = 0, pieces = 0;
    bool done = false;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        if (schedule->ops[i].kind == MICS_OP_FORWARD && schedule->ops[i].stage > t.head)
            t.head = schedule->ops[i].stage;
        pieces += schedule->ops[i].kind == MICS_OP_LOAD;
    }
    if (t.updates_on_host)
        pieces = schedule->unit_count;

    for (int b = MICS_BUFFER_PARAM_SHARD; b < MICS_BUFFER_COUNT; b++) {
        t.buffers[b] = total;
        total += b >= MICS_BUFFER_FIRST_STAGING
                     ? 1
                     : t.width * buffer_parts(schedule, (enum mics_buffer)b);
    }
    t.buffers[MICS_BUFFER_REDUCED] = t.buffers[MICS_BUFFER_GRAD_SLOT];
    t.scalar = total;
    total += 2 * SCALAR_COUNT;
    t.dispatched = total;
    total += DISPATCHED_COUNT;
    t.pieces = total;
    total += pieces;
    t.piece_slots = total;
    total += MICS_OFFLOAD_SLOTS;
    t.histories = calloc(total, sizeof *t.histories);
    t.clocks = calloc(2 * (size_t)schedule->op_count + 1, sizeof *t.clocks);
    if (t.histories && t.clocks)
        done = walk(&t, schedule);
    free(t.histories);
    free(t.clocks);
    return done ? MICS_OK : mics_err_nomem(err);
}
