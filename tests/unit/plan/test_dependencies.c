/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dependencies.c - any two accesses to the same memory, of which one writes, must be ordered
 * by streams and waits, within a step and against the previous step. The checker derives the
 * accesses of operations from their description in schedule.h, not from the code that makes the
 * waits.
 */
#include "plan/host_update.h"
#include "plan/schedule/build.h"
#include "tap.h"

#include <stdlib.h>

#include "plan_fake.h"

/* Memory: its kind, an index (unit or slot), a segment. */
enum memory {
    PARAM_SHARD,
    GRAD_SHARD,
    STATE,
    STATE_SLOT, /* on the device, of states in host memory */
    ANCHOR,     /* with the outer momentum */
    OUTER_DELTA,
    PARAM_SLOT,
    GRAD_SLOT,
    STAGING, /* index: the communicator whose collective runs in it */
    BLOCKS,  /* staging memory of blocks; index: the buffer */
    ACTIVATION,
    ROWS, /* of tokens that travel to experts; index: enum rows */
    LOSS,
    TARGETS,
    NORM
};

/* How many rows each rank has for each expert; which of them a round has; what a rank sends and
 * gets back; what it receives and sends back. */
enum rows { COUNTS, LISTS, SENT, RECEIVED };

struct use {
    enum memory memory;
    uint32_t index, segment; /* MICS_NONE: all segments */
    bool write;
};

struct uses {
    struct use items[8];
    uint32_t count;
};

/* Two consecutive steps: op i of step t is node t * n + i. */
struct graph {
    const struct mics_schedule *schedule;
    const struct mics_plan_choice *choice;
    uint32_t n;
    uint32_t dropped; /* a wait to omit: an index of deps, or MICS_NONE */
    uint32_t
        *clocks; /* [2 n][MICS_STREAM_COUNT]: nodes complete, from 1, when the node is complete */
    struct uses *uses;
    uint32_t *conflicts; /* pairs of nodes */
    uint32_t conflict_count;
};

static void use(struct uses *uses, enum memory memory, uint32_t index, uint32_t segment, bool write)
{
    uses->items[uses->count++] = (struct use){memory, index, segment, write};
}

static void describe_compute(const struct graph *g, const struct mics_op *op, struct uses *uses)
{
    bool head = true, grads = op->kind == MICS_OP_BACKWARD && op->unit != MICS_NONE &&
                              (op->phase == MICS_PHASE_ALL || op->phase == MICS_PHASE_EXPERTS);

    for (uint32_t i = 0; i < g->n; i++)
        head &= g->schedule->ops[i].stage == MICS_NONE || g->schedule->ops[i].stage <= op->stage;
    grads |= head && g->schedule->train;
    if (op->needs_params && op->param_slot == MICS_NONE)
        use(uses, PARAM_SHARD, op->unit, MICS_NONE, false);
    else if (op->needs_params)
        use(uses, PARAM_SLOT, op->param_slot, MICS_NONE, false);
    if (grads && op->grad_slot == MICS_NONE)
        use(uses, GRAD_SHARD, op->unit, MICS_NONE, true);
    else if (grads)
        use(uses, GRAD_SLOT, op->grad_slot, MICS_NONE, true);
    use(uses, ACTIVATION, 0, MICS_NONE, true);
    if (head)
        use(uses, LOSS, 0, MICS_NONE, true);
}

static void use_rows(struct uses *uses, enum rows which, bool write)
{
    use(uses, ROWS, which, MICS_NONE, write);
}

/* A part of a stage to whose experts tokens travel. */
static void describe_phase(enum mics_phase phase, struct uses *uses)
{
    if (phase == MICS_PHASE_COUNT || phase == MICS_PHASE_SEND)
        use_rows(uses, COUNTS, phase == MICS_PHASE_COUNT);
    if (phase >= MICS_PHASE_SEND && phase <= MICS_PHASE_RECEIVE)
        use_rows(uses, LISTS, phase == MICS_PHASE_SEND);
    if (phase == MICS_PHASE_SEND || phase == MICS_PHASE_RECEIVE)
        use_rows(uses, SENT, phase == MICS_PHASE_SEND);
    if (phase == MICS_PHASE_EXPERTS)
        use_rows(uses, RECEIVED, true);
}

/* What follows a part: the lists of a round say whether there is anything to send. */
static void describe_dispatch(const struct mics_op *op, struct uses *uses)
{
    if (op->phase == MICS_PHASE_COUNT) {
        use_rows(uses, COUNTS, true);
        return;
    }
    use_rows(uses, LISTS, false);
    use_rows(uses, SENT, op->kind == MICS_OP_COMBINE);
    use_rows(uses, RECEIVED, op->kind == MICS_OP_DISPATCH);
}

/* Pieces of states in host memory: there, and in one of the places on the device. */
static void describe_piece(const struct mics_op *op, struct uses *uses)
{
    use(uses, STATE, op->piece, MICS_NONE, op->kind == MICS_OP_STORE);
    use(uses, STATE_SLOT, op->piece % MICS_OFFLOAD_SLOTS, MICS_NONE, op->kind == MICS_OP_LOAD);
}

/* Where the host updates: what a unit has in its memory, and the shard that is copied. */
static void describe_host_copy(const struct mics_op *op, struct uses *uses)
{
    const bool stores = op->kind == MICS_OP_STORE;
    const enum mics_buffer shard = stores ? op->from.buffer : op->to.buffer;

    use(uses, STATE, op->unit, MICS_NONE, stores);
    use(uses, shard == MICS_BUFFER_GRAD_SHARD ? GRAD_SHARD : PARAM_SHARD, op->unit, MICS_NONE,
        !stores);
}

static void describe_update(const struct graph *g, const struct mics_op *op, struct uses *uses)
{
    const bool is_piece = g->choice->offload_piece > 0;

    if (!mics_choice_updates_on_host(g->choice)) {
        use(uses, GRAD_SHARD, op->unit, MICS_NONE, false);
        use(uses, PARAM_SHARD, op->unit, is_piece ? op->segment : MICS_NONE, true);
    }
    if (is_piece && !mics_choice_updates_on_host(g->choice))
        use(uses, STATE_SLOT, op->piece % MICS_OFFLOAD_SLOTS, MICS_NONE, true);
    else
        use(uses, STATE, op->unit, MICS_NONE, true);
    use(uses, TARGETS, 0, MICS_NONE, false);
    if (g->choice->clip)
        use(uses, NORM, 0, MICS_NONE, false);
}

/* What a hop from or to blocks has at one of its ends. */
static void use_operand(const struct mics_op *op, const struct mics_operand *operand, bool write,
                        struct uses *uses)
{
    if (operand->buffer >= MICS_BUFFER_FIRST_STAGING)
        use(uses, BLOCKS, operand->buffer, MICS_NONE, write);
    else if (operand->buffer == MICS_BUFFER_GRAD_SHARD)
        use(uses, GRAD_SHARD, op->unit, op->segment, write);
    else if (operand->buffer == MICS_BUFFER_OUTER_DELTA)
        use(uses, OUTER_DELTA, op->unit, op->segment, write);
    else if (operand->buffer == MICS_BUFFER_PARAM_SHARD)
        use(uses, PARAM_SHARD, op->unit, op->segment, write);
    else
        use(uses, PARAM_SLOT, op->param_slot, op->segment, write);
}

/* In fp32 the collectives of the second hop run in the shard; in bf16 in staging memory, to which
 * gradients are converted before and from which after. */
static void describe_exchange(const struct graph *g, const struct mics_op *op, struct uses *uses)
{
    const bool staged = g->choice->grad_dtype != MICS_F32;
    const bool outer =
        op->from.buffer == MICS_BUFFER_OUTER_DELTA || op->to.buffer == MICS_BUFFER_OUTER_DELTA;
    const enum memory shard = outer ? OUTER_DELTA : GRAD_SHARD;
    const bool back = op->to.buffer == (outer ? MICS_BUFFER_OUTER_DELTA : MICS_BUFFER_GRAD_SHARD);

    if (mics_dtype_is_blocks(op->from.dtype) || mics_dtype_is_blocks(op->to.dtype)) {
        use_operand(op, &op->from, false, uses);
        use_operand(op, &op->to, true, uses);
        return;
    }
    switch (op->kind) {
    case MICS_OP_GATHER:
        if (op->comm == MICS_COMM_GATHER_NODE)
            use(uses, PARAM_SLOT, op->param_slot, op->segment, false);
        else
            use(uses, PARAM_SHARD, op->unit, op->segment, false);
        use(uses, PARAM_SLOT, op->param_slot, op->segment, true);
        break;
    case MICS_OP_REDUCE:
        use(uses, GRAD_SLOT, op->grad_slot, op->segment, true);
        break;
    case MICS_OP_SCATTER:
    case MICS_OP_SYNC:
        if (staged)
            use(uses, STAGING, op->comm, MICS_NONE, true);
        else
            use(uses, shard, op->unit, op->segment, true);
        break;
    case MICS_OP_CONVERT:
        if (op->from.buffer == MICS_BUFFER_PARAM_SLOT) { /* a secondary shard */
            use_operand(op, &op->from, false, uses);
            use_operand(op, &op->to, true, uses);
            break;
        }
        use(uses, STAGING, op->comm, MICS_NONE, !back);
        use(uses, shard, op->unit, op->segment, back);
        break;
    case MICS_OP_OUTER_DELTA:
        use(uses, PARAM_SHARD, op->unit, op->segment, false);
        use(uses, ANCHOR, op->unit, op->segment, false);
        use(uses, shard, op->unit, op->segment, true);
        break;
    case MICS_OP_OUTER_UPDATE:
        use(uses, shard, op->unit, op->segment, false);
        use(uses, ANCHOR, op->unit, op->segment, true);
        use(uses, PARAM_SHARD, op->unit, op->segment, true);
        break;
    case MICS_OP_PUBLISH:
        use(uses, PARAM_SHARD, op->unit, op->segment, true);
        break;
    default:
        break;
    }
}

static void describe(const struct graph *g, const struct mics_op *op, struct uses *uses)
{
    uses->count = 0;
    describe_exchange(g, op, uses);
    if (op->kind == MICS_OP_FORWARD || op->kind == MICS_OP_BACKWARD) {
        describe_compute(g, op, uses);
        describe_phase(op->phase, uses);
    }
    if (op->kind == MICS_OP_DISPATCH || op->kind == MICS_OP_COMBINE)
        describe_dispatch(op, uses);
    if (op->kind == MICS_OP_UPDATE)
        describe_update(g, op, uses);
    if (op->kind == MICS_OP_LOAD || op->kind == MICS_OP_STORE)
        mics_choice_updates_on_host(g->choice) ? describe_host_copy(op, uses)
                                               : describe_piece(op, uses);
    if (op->kind == MICS_OP_ACCUMULATE || op->kind == MICS_OP_NORM)
        use(uses, GRAD_SHARD, op->unit, MICS_NONE, op->kind == MICS_OP_ACCUMULATE);
    if (op->kind == MICS_OP_ACCUMULATE)
        use(uses, GRAD_SLOT, op->grad_slot, MICS_NONE, false);
    if (op->kind == MICS_OP_TARGET_COUNT || op->kind == MICS_OP_READ)
        use(uses, TARGETS, 0, MICS_NONE, op->kind == MICS_OP_TARGET_COUNT);
    if (op->kind == MICS_OP_NORM || op->kind == MICS_OP_LOSS_NORM_REDUCE ||
        op->kind == MICS_OP_REPLICA_REDUCE || op->kind == MICS_OP_READ)
        use(uses, NORM, 0, MICS_NONE, op->kind != MICS_OP_READ);
    if (op->kind == MICS_OP_REPLICA_REDUCE)
        use(uses, TARGETS, 0, MICS_NONE, true);
    if (op->kind == MICS_OP_LOSS_NORM_REDUCE || op->kind == MICS_OP_REPLICA_REDUCE ||
        op->kind == MICS_OP_READ)
        use(uses, LOSS, 0, MICS_NONE, op->kind != MICS_OP_READ);
}

/* Scalars of even and odd steps are in different memory. Slots count as a whole: a segment of a
 * unit may overlap with another segment of the former unit of the slot. */
static bool use_same(const struct graph *g, uint32_t a, const struct use *x, uint32_t b,
                     const struct use *y)
{
    bool slot = x->memory == PARAM_SLOT || x->memory == GRAD_SLOT;
    const struct mics_op *first = &g->schedule->ops[a % g->n], *then = &g->schedule->ops[b % g->n];

    if (x->memory != y->memory || x->index != y->index || (!x->write && !y->write))
        return false;
    if (x->memory >= LOSS && a / g->n != b / g->n)
        return false;
    if (slot && first->unit != then->unit)
        return true;
    return x->segment == y->segment || x->segment == MICS_NONE || y->segment == MICS_NONE;
}

static bool conflict(const struct graph *g, uint32_t a, uint32_t b)
{
    const struct uses *x = &g->uses[a % g->n], *y = &g->uses[b % g->n];

    for (uint32_t i = 0; i < x->count; i++)
        for (uint32_t j = 0; j < y->count; j++)
            if (use_same(g, a, &x->items[i], b, &y->items[j]))
                return true;
    return false;
}

static void list_conflicts(struct graph *g)
{
    uint32_t capacity = 1024;

    g->conflicts = malloc(2 * capacity * sizeof *g->conflicts);
    for (uint32_t b = 0; b < 2 * g->n; b++) {
        for (uint32_t a = 0; a < b; a++) {
            if (!conflict(g, a, b))
                continue;
            if (g->conflict_count == capacity) {
                capacity *= 2;
                g->conflicts = realloc(g->conflicts, 2 * capacity * sizeof *g->conflicts);
            }
            g->conflicts[2 * g->conflict_count] = a;
            g->conflicts[2 * g->conflict_count++ + 1] = b;
        }
    }
}

static void graph_open(struct graph *g, const struct mics_schedule *schedule,
                       const struct mics_plan_choice *choice)
{
    *g = (struct graph){
        .schedule = schedule, .choice = choice, .n = schedule->op_count, .dropped = MICS_NONE};
    g->clocks = malloc(2 * (size_t)g->n * MICS_STREAM_COUNT * sizeof *g->clocks);
    g->uses = malloc(g->n * sizeof *g->uses);
    for (uint32_t i = 0; i < g->n; i++)
        describe(g, &schedule->ops[i], &g->uses[i]);
    list_conflicts(g);
}

static void graph_close(struct graph *g)
{
    free(g->clocks);
    free(g->uses);
    free(g->conflicts);
}

static void join(uint32_t *clock, const uint32_t *other)
{
    for (int s = 0; s < MICS_STREAM_COUNT; s++)
        clock[s] = other[s] > clock[s] ? other[s] : clock[s];
}

static void run_clocks(struct graph *g)
{
    uint32_t last[MICS_STREAM_COUNT] = {0};

    for (uint32_t node = 0; node < 2 * g->n; node++) {
        uint32_t index = node % g->n, *clock = &g->clocks[node * MICS_STREAM_COUNT];
        const struct mics_op *op = &g->schedule->ops[index];

        memset(clock, 0, MICS_STREAM_COUNT * sizeof *clock);
        if (last[op->stream])
            join(clock, &g->clocks[(last[op->stream] - 1) * MICS_STREAM_COUNT]);
        for (uint32_t i = op->dep_begin; i < op->dep_begin + op->dep_count; i++) {
            uint32_t dep = g->schedule->deps[i];

            if (i == g->dropped || (dep >= index && node < g->n))
                continue;
            dep += dep >= index ? node - index - g->n : node - index;
            join(clock, &g->clocks[dep * MICS_STREAM_COUNT]);
        }
        clock[op->stream] = last[op->stream] = node + 1;
    }
}

/* Pairs that are not ordered. */
static uint32_t count_races(struct graph *g)
{
    uint32_t races = 0;

    run_clocks(g);
    for (uint32_t i = 0; i < g->conflict_count; i++) {
        uint32_t a = g->conflicts[2 * i], b = g->conflicts[2 * i + 1];
        enum mics_stream_kind stream = g->schedule->ops[a % g->n].stream;

        races += g->clocks[b * MICS_STREAM_COUNT + stream] < a + 1;
    }
    return races;
}

static const struct {
    uint32_t nodes, per_node, p_param, p_grad, p_optim;
} shapes[] = {
    {1, 1, 1, 1, 1}, {1, 4, 1, 1, 1}, {2, 2, 1, 1, 4}, {2, 2, 1, 4, 4},
    {2, 2, 4, 4, 4}, {1, 4, 2, 2, 2}, {2, 2, 2, 2, 2}, {2, 2, 2, 2, 4},
    {4, 2, 4, 4, 4}, {4, 2, 4, 8, 8}, {4, 2, 2, 4, 8}, {4, 2, 1, 2, 8},
    {4, 2, 1, 2, 2}, {4, 2, 4, 4, 8}, {8, 1, 4, 4, 4}, {2, 4, 2, 8, 8},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* The i-th variant of everything but the shape; false: there are no more. */
static bool vary(uint32_t i, struct mics_plan_choice *choice)
{
    choice->micro_steps = i % 2 ? 3 : 1, i /= 2;
    choice->prefetch = i % 4, i /= 4;
    choice->segments = 1 + i % 3, i /= 3;
    choice->hierarchical_gather = choice->hierarchical_reduce = i % 2, i /= 2;
    choice->clip = i % 2, i /= 2;
    choice->grad_slots = 1 + i % 2, i /= 2;
    choice->coalesce = 1 + i % 2, i /= 2;
    return i == 0;
}

static uint32_t count_undetected(struct graph *g)
{
    uint32_t undetected = 0;

    for (uint32_t i = 0; i < g->schedule->dep_total; i++) {
        g->dropped = i;
        undetected += count_races(g) == 0;
    }
    g->dropped = MICS_NONE;
    return undetected;
}

/* Outer steps that overlap with the next step or not, with first steps that sum gradients or not;
 * where there are replicas. */
static void check_outer_shape(uint32_t which, const struct fake_model *fake)
{
    struct mics_plan_choice choice =
        fake_choice(shapes[which].nodes, shapes[which].per_node, shapes[which].p_param,
                    shapes[which].p_grad, shapes[which].p_optim);

    if (mics_choice_replicas(&choice) == 1)
        return;
    choice.outer_steps = 2;
    choice.outer_lr = 1;
    for (uint32_t i = 0; vary(i, &choice); i++) {
        const uint32_t kind = i % 7 + which;
        struct mics_schedule *schedule = NULL;
        struct graph g;

        choice.outer_overlap = kind % 2;
        choice.sync_warmup = kind / 2 % 2;
        choice.grad_dtype = kind % 3 == 0 ? MICS_BF16 : MICS_F32;
        choice.sync_dtype = choice.sync_down_dtype = kind % 3 == 1 ? MICS_INT8 : MICS_F32;
        CHECK_INT(mics_schedule_new(&fake->model, &choice, true, &schedule, NULL), MICS_OK);
        if (!schedule)
            return;
        graph_open(&g, schedule, &choice);
        CHECK_INT(count_races(&g), 0);
        graph_close(&g);
        mics_schedule_free(schedule);
    }
}

static void check_shape(uint32_t which, const struct fake_model *fake, bool train, bool drop)
{
    struct mics_plan_choice choice =
        fake_choice(shapes[which].nodes, shapes[which].per_node, shapes[which].p_param,
                    shapes[which].p_grad, shapes[which].p_optim);

    for (uint32_t i = 0; vary(i, &choice); i++) {
        struct mics_schedule *schedule = NULL;
        struct mics_err err = {""};
        struct graph g;

        if (drop && i % 5 != which % 5)
            continue;
        choice.grad_dtype = (i / 5 + which) % 2 ? MICS_BF16 : MICS_F32;
        choice.sync_dtype = choice.sync_down_dtype = choice.gather_dtype =
            (i / 5 + which) % 3 == 0 ? MICS_INT8 : MICS_F32;
        choice.sync_gathers = (i / 5 + which) % 6 == 0;
        CHECK_INT(mics_schedule_new(&fake->model, &choice, train, &schedule, &err), MICS_OK);
        if (!schedule)
            return;
        graph_open(&g, schedule, &choice);
        CHECK_INT(drop ? count_undetected(&g) : count_races(&g), 0);
        graph_close(&g);
        mics_schedule_free(schedule);
    }
}

/* With secondary shards; returns how many schedules there were. */
static uint32_t check_secondary(uint32_t which, const struct fake_model *fake, bool train,
                                bool drop)
{
    struct mics_plan_choice choice =
        fake_choice(shapes[which].nodes, shapes[which].per_node, shapes[which].p_param,
                    shapes[which].p_grad, shapes[which].p_optim);
    uint32_t count = 0;

    choice.secondary_shards = true;
    if (mics_choice_check(&fake->model, &choice, NULL) != MICS_OK)
        return 0;
    for (uint32_t i = 0; vary(i, &choice); i++) {
        struct mics_schedule *schedule = NULL;
        struct graph g;

        if (drop && i % 5 != which % 5)
            continue;
        CHECK_INT(mics_schedule_new(&fake->model, &choice, train, &schedule, NULL), MICS_OK);
        if (!schedule)
            return count;
        graph_open(&g, schedule, &choice);
        CHECK_INT(drop ? count_undetected(&g) : count_races(&g), 0);
        graph_close(&g);
        mics_schedule_free(schedule);
        count++;
    }
    return count;
}

static void secondary_shards_need_every_wait_and_race_with_nothing(void)
{
    struct fake_model fake;
    uint32_t count = 0;

    fake_model_init(&fake, 2, 10000, 7001, true);
    for (uint32_t i = 0; i < SHAPES; i++) {
        count += check_secondary(i, &fake, true, false);
        check_secondary(i, &fake, false, false);
        check_secondary(i, &fake, true, true);
    }
    CHECK(count > 300);
}

static void no_two_accesses_of_the_same_memory_race(void)
{
    struct fake_model fake;

    fake_model_init(&fake, 3, 10000, 7001, true);
    for (uint32_t i = 0; i < SHAPES; i++)
        check_shape(i, &fake, true, false);
}

static void no_accesses_race_in_an_untied_model(void)
{
    struct fake_model fake;

    fake_model_init(&fake, 2, 10000, 70001, false);
    fake.stages[0].backward_needs_params = false;
    for (uint32_t i = 0; i < SHAPES; i++)
        check_shape(i, &fake, true, false);
}

static void no_accesses_race_around_stages_without_parameters(void)
{
    struct fake_model fake;

    fake_model_init(&fake, 2, 10000, 7001, true);
    fake_model_split_blocks(&fake);
    for (uint32_t i = 0; i < SHAPES; i++)
        check_shape(i, &fake, true, false);
}

static void no_accesses_race_in_outer_steps(void)
{
    struct fake_model fake;

    fake_model_init(&fake, 2, 10000, 7001, true);
    for (uint32_t i = 0; i < SHAPES; i++)
        check_outer_shape(i, &fake);
}

static void no_accesses_race_in_an_evaluation(void)
{
    struct fake_model fake;

    fake_model_init(&fake, 3, 10000, 7001, true);
    for (uint32_t i = 0; i < SHAPES; i++)
        check_shape(i, &fake, false, false);
}

/* States in host memory: shards of up to 10 pieces. */
static void no_accesses_race_between_pieces_in_host_memory(void)
{
    struct fake_model fake;

    fake_model_init(&fake, 2, 10000, 7001, true);
    for (uint32_t which = 0; which < SHAPES; which++) {
        struct mics_plan_choice choice =
            fake_choice(shapes[which].nodes, shapes[which].per_node, shapes[which].p_param,
                        shapes[which].p_grad, shapes[which].p_optim);

        choice.offload_piece = 1024;
        for (uint32_t i = 0; vary(i, &choice); i++) {
            struct mics_schedule *schedule = NULL;
            struct graph g;

            if (i % 7 != which % 7)
                continue;
            CHECK_INT(mics_schedule_new(&fake.model, &choice, true, &schedule, NULL), MICS_OK);
            if (!schedule)
                return;
            graph_open(&g, schedule, &choice);
            CHECK_INT(count_races(&g), 0);
            if (which % 4 == 0)
                CHECK_INT(count_undetected(&g), 0);
            graph_close(&g);
            mics_schedule_free(schedule);
        }
    }
}

/* DeepSpeed's stages 1 to 3, and one rank. */
static void no_accesses_race_with_updates_on_the_host(void)
{
    static const uint32_t cuts[][4] = {{1, 1, 1, 1}, {4, 1, 1, 4}, {4, 1, 4, 4}, {4, 4, 4, 4}};
    struct fake_model fake;

    fake_model_init(&fake, 3, 10000, 7001, true);
    for (size_t which = 0; which < 8; which++) {
        const uint32_t *cut = cuts[which / 2];
        struct mics_plan_choice choice = fake_choice(1, cut[0], cut[1], cut[2], cut[3]);
        struct mics_schedule *schedule = NULL;
        struct graph g;

        choice.trainer = MICS_TRAINER_DEEPSPEED;
        choice.offload_piece = 1024;
        choice.micro_steps = 3;
        choice.clip = which % 2;
        CHECK_INT(mics_schedule_new(&fake.model, &choice, true, &schedule, NULL), MICS_OK);
        if (!schedule)
            return;
        graph_open(&g, schedule, &choice);
        CHECK_INT(count_races(&g), 0);
        CHECK_INT(count_undetected(&g), 0);
        graph_close(&g);
        mics_schedule_free(schedule);
    }
}

static void every_single_wait_is_needed(void)
{
    TAP_SKIP_MISTAKES();
    struct fake_model fake;

    fake_model_init(&fake, 2, 10000, 7001, true);
    for (uint32_t i = 0; i < SHAPES; i++)
        check_shape(i, &fake, true, true);
}

/* Two layers with experts, to which tokens travel in two rounds or more. */
static struct mics_model *resident_model(void)
{
    struct mics_model *nano = NULL, *model = NULL;

    CHECK_INT(mics_model_open("moe-nano", &nano, NULL), MICS_OK);
    if (!nano)
        return NULL;
    struct mics_model_config config = nano->config;
    config.n_layer = 2;
    CHECK_INT(mics_model_new(&config, &model, NULL), MICS_OK);
    mics_model_free(nano);
    return model;
}

/* Returns how many schedules there were. */
static uint32_t check_resident(const struct mics_model *model, uint32_t which, bool train,
                               bool drop)
{
    struct mics_plan_choice choice =
        fake_choice(shapes[which].nodes, shapes[which].per_node, shapes[which].p_param,
                    shapes[which].p_grad, shapes[which].p_optim);
    uint32_t count = 0;

    choice.dispatches = true;
    choice.seq = 32;
    if (mics_choice_expert_ranks(&choice, MICS_UNIT_EXPERT) == 0)
        return 0;
    for (uint32_t i = 0; vary(i, &choice); i++) {
        struct mics_schedule *schedule = NULL;
        struct graph g;

        choice.grad_dtype = (i / 5 + which) % 2 ? MICS_BF16 : MICS_F32;
        if ((drop ? i != 2 * which : i % 11 != which % 11) ||
            mics_choice_check(model, &choice, NULL) != MICS_OK)
            continue;
        CHECK_INT(mics_schedule_new(model, &choice, train, &schedule, NULL), MICS_OK);
        if (!schedule)
            break;
        graph_open(&g, schedule, &choice);
        CHECK_INT(drop ? count_undetected(&g) : count_races(&g), 0);
        graph_close(&g);
        mics_schedule_free(schedule);
        count++;
    }
    return count;
}

static void no_accesses_race_where_tokens_travel_to_experts(void)
{
    struct mics_model *model = resident_model();
    uint32_t count = 0;

    for (uint32_t i = 0; model && i < SHAPES; i++)
        count += check_resident(model, i, true, false) + check_resident(model, i, false, false);
    CHECK(count > 100);
    mics_model_free(model);
}

static void every_wait_is_needed_where_tokens_travel_to_experts(void)
{
    TAP_SKIP_MISTAKES();
    struct mics_model *model = resident_model();
    uint32_t count = 0;

    for (uint32_t i = 0; model && i < SHAPES; i++)
        count += check_resident(model, i, true, true);
    CHECK(count > 3);
    mics_model_free(model);
}

/* On the stream of their collectives conversions need no waits. On another one, and a second one
 * for those after the collective, the waits keep what staging memory holds. */
static void conversions_on_other_streams_wait_for_their_collectives(void)
{
    struct mics_plan_choice choice = fake_choice(4, 2, 1, 2, 4);
    struct mics_schedule *schedule = NULL;
    struct fake_model fake;
    struct graph g;
    uint32_t moved = 0;

    choice.grad_dtype = MICS_BF16;
    choice.segments = 2;
    fake_model_init(&fake, 2, 10000, 7001, true);
    CHECK_INT(mics_schedule_new(&fake.model, &choice, true, &schedule, NULL), MICS_OK);
    if (!schedule)
        return;
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        struct mics_op *op = &schedule->ops[i];

        if (op->kind != MICS_OP_CONVERT)
            continue;
        moved++;
        op->stream = op->to.buffer == MICS_BUFFER_GRAD_SHARD ? MICS_STREAM_GATHER_NODE
                                                             : MICS_STREAM_GATHER_NET;
    }
    CHECK_INT(moved, 3 * 2 * 4); /* units, segments; both exchanges of the second hop */
    graph_open(&g, schedule, &choice);
    CHECK(count_races(&g) > 0);
    schedule->dep_total = 0;
    CHECK_INT(mics_schedule_add_dependencies(schedule, &choice, NULL), MICS_OK);
    CHECK_INT(count_races(&g), 0);
    CHECK_INT(count_undetected(&g), 0);
    graph_close(&g);
    mics_schedule_free(schedule);
}

int main(void)
{
    TAP_RUN(no_two_accesses_of_the_same_memory_race);
    TAP_RUN(no_accesses_race_in_an_untied_model);
    TAP_RUN(no_accesses_race_around_stages_without_parameters);
    TAP_RUN(no_accesses_race_in_outer_steps);
    TAP_RUN(no_accesses_race_in_an_evaluation);
    TAP_RUN(no_accesses_race_between_pieces_in_host_memory);
    TAP_RUN(no_accesses_race_with_updates_on_the_host);
    TAP_RUN(every_single_wait_is_needed);
    TAP_RUN(secondary_shards_need_every_wait_and_race_with_nothing);
    TAP_RUN(no_accesses_race_where_tokens_travel_to_experts);
    TAP_RUN(every_wait_is_needed_where_tokens_travel_to_experts);
    TAP_RUN(conversions_on_other_streams_wait_for_their_collectives);
    return tap_done();
}
