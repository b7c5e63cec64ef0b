/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound_times.c - the ingredients of the bound: the operations' own costs, added up by classes of
 * equal units, and the gathers that residency forces into each part of the step.
 */
#include "plan/search/bound_times.h"

#include "base/num.h"
#include "plan/host_update.h"
#include "plan/schedule/build.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct passes_entry {
    struct passes_entry *next;
    uint32_t micro_batch, seq;
    enum mics_recompute recompute;
    enum mics_dtype dtype, grad_dtype;
    bool cut_grads;
    struct mics_pass_times times[2];
};

/* Is the unit read in the forward pass only? */
static bool is_read_once(const struct mics_model *model, uint32_t unit)
{
    for (uint32_t i = 0; i < model->stage_count; i++)
        if (model->stages[i].unit == unit && model->stages[i].backward_needs_params)
            return false;
    return true;
}

static bool are_alike(const struct mics_model *model, uint32_t a, uint32_t b)
{
    return model->units[a].count == model->units[b].count &&
           model->units[a].resident == model->units[b].resident &&
           is_read_once(model, a) == is_read_once(model, b);
}

static void classify_units(struct mics_bounds *bounds)
{
    const struct mics_model *model = bounds->model;

    for (uint32_t u = 0; u < model->unit_count; u++) {
        uint32_t c = 0;

        while (c < bounds->class_count && !are_alike(model, bounds->classes[c].unit, u))
            c++;
        if (c == bounds->class_count)
            bounds->classes[bounds->class_count++] =
                (struct unit_class){.unit = u, .resident = model->units[u].resident};
        bounds->classes[c].count++;
        bounds->class_of[u] = c;
        bounds->rotating += !model->units[u].resident;
    }
}

/* reduced[k]: the classes of the first k rotating units whose gradients a backward completes. */
static void count_reduced(struct mics_bounds *bounds)
{
    const struct mics_model *model = bounds->model;
    uint32_t *counts = bounds->reduced;

    for (uint32_t i = model->stage_count; i-- > 0;) {
        const uint32_t unit = model->stages[i].unit;

        if (unit == MICS_NO_UNIT || model->units[unit].resident)
            continue;
        memcpy(counts + bounds->class_count, counts, bounds->class_count * sizeof *counts);
        counts += bounds->class_count;
        counts[bounds->class_of[unit]]++;
    }
}

/* leading[k]: the classes of the first k units in the order of their first stages. */
static void count_leading(struct mics_bounds *bounds)
{
    const struct mics_model *model = bounds->model;
    uint32_t *counts = bounds->leading;

    for (uint32_t i = 0; i < model->stage_count; i++) {
        const uint32_t unit = model->stages[i].unit;
        bool seen = unit == MICS_NO_UNIT;

        for (uint32_t j = 0; j < i; j++)
            seen |= model->stages[j].unit == unit;
        if (seen)
            continue;
        memcpy(counts + bounds->class_count, counts, bounds->class_count * sizeof *counts);
        counts += bounds->class_count;
        counts[bounds->class_of[unit]]++;
    }
}

enum mics_status mics_bounds_new(struct mics_op_costs *costs, const struct mics_model *model,
                                 struct mics_bounds **out, struct mics_err *err)
{
    struct mics_bounds *bounds = calloc(1, sizeof *bounds);

    if (!bounds)
        return mics_err_nomem(err);
    bounds->costs = costs;
    bounds->model = model;
    bounds->classes = calloc(model->unit_count, sizeof *bounds->classes);
    bounds->class_of = calloc(model->unit_count, sizeof *bounds->class_of);
    if (bounds->classes && bounds->class_of) {
        classify_units(bounds);
        const size_t slots = bounds->rotating + 1, classes = bounds->class_count;

        bounds->gathers = calloc(slots * 3 * WINDOW_COUNT * classes, sizeof *bounds->gathers);
        bounds->have_gathers = calloc(slots * 3, sizeof *bounds->have_gathers);
        bounds->reduced = calloc(slots * classes, sizeof *bounds->reduced);
        bounds->leading = calloc((model->unit_count + 1) * classes, sizeof *bounds->leading);
        bounds->hops = calloc(classes, sizeof *bounds->hops);
        bounds->group = calloc(classes, sizeof *bounds->group);
    }
    if (!bounds->hops || !bounds->group || !bounds->gathers || !bounds->have_gathers ||
        !bounds->reduced || !bounds->leading) {
        mics_bounds_free(bounds);
        return mics_err_nomem(err);
    }
    count_reduced(bounds);
    count_leading(bounds);
    *out = bounds;
    return MICS_OK;
}

void mics_bounds_free(struct mics_bounds *bounds)
{
    if (!bounds)
        return;
    while (bounds->passes) {
        struct passes_entry *next = bounds->passes->next;

        free(bounds->passes);
        bounds->passes = next;
    }
    free(bounds->classes);
    free(bounds->class_of);
    free(bounds->gathers);
    free(bounds->have_gathers);
    free(bounds->reduced);
    free(bounds->leading);
    free(bounds->hops);
    free(bounds->group);
    free(bounds);
}

/* Moments of a step are numbered 2 i when computation i starts, and 2 i + 1 when it ends. */
struct span {
    uint32_t from, to;
};

/* Count the gathers that can begin no earlier than span.from and must end by span.to. */
static void count_fetches(const struct mics_bounds *bounds, const struct mics_residency *residency,
                          struct span span, uint32_t *counts)
{
    for (uint32_t i = 0; i < residency->fetch_count; i++) {
        const struct mics_fetch *fetch = &residency->fetches[i];
        const uint32_t from = fetch->former == MICS_NONE ? 0 : 2 * fetch->former + 1;

        if (from >= span.from && 2 * fetch->needed <= span.to)
            counts[bounds->class_of[fetch->unit]]++;
    }
}

static void count_windows(const struct mics_bounds *bounds, const struct mics_compute_order *order,
                          const struct mics_residency *residency, uint32_t *counts)
{
    const uint32_t n = order->stage_count, length = 2 * n - 1, classes = bounds->class_count;
    const uint32_t head = n - 1, last = 2 * n - 2;

    count_fetches(bounds, residency, (struct span){0, UINT32_MAX}, counts + WINDOW_STEP * classes);
    count_fetches(bounds, residency, (struct span){0, 2 * head}, counts + WINDOW_FIRST * classes);
    for (uint32_t i = 0; i + 1 < order->micro_steps; i++) {
        const uint32_t begin = i * length, next = begin + length;
        uint32_t *at =
            counts + (i == 0 ? WINDOW_BACKWARD : WINDOW_LATER_BACKWARD) * (size_t)classes;

        count_fetches(bounds, residency, (struct span){2 * (begin + head) + 1, 2 * (begin + last)},
                      at);
        count_fetches(bounds, residency, (struct span){2 * (begin + last) + 1, 2 * (next + head)},
                      at + classes);
        count_fetches(bounds, residency, (struct span){2 * (begin + head) + 1, 2 * (next + head)},
                      at + 2 * (size_t)classes);
    }
    count_fetches(bounds, residency,
                  (struct span){2 * ((order->micro_steps - 1) * length + head) + 1, UINT32_MAX},
                  counts + WINDOW_LAST * classes);
}

const uint32_t *mics_bounds_gathers(struct mics_bounds *bounds, enum mics_trainer trainer,
                                    uint32_t slots, uint32_t micro_steps)
{
    const uint32_t kept = bounds->rotating < slots ? bounds->rotating : slots;
    const uint32_t steps = micro_steps < 3 ? micro_steps : 3;
    const size_t index = 3 * (size_t)kept + steps - 1;
    uint32_t *counts = bounds->gathers + index * WINDOW_COUNT * bounds->class_count;
    const struct mics_compute_order order = {bounds->model->stage_count, steps, true,
                                             mics_trainer_exchanges(trainer)};
    struct mics_residency residency;

    if (bounds->trainer != trainer) {
        memset(bounds->have_gathers, 0, 3 * (bounds->rotating + 1) * sizeof *bounds->have_gathers);
        memset(bounds->gathers, 0,
               3 * (bounds->rotating + (size_t)1) * WINDOW_COUNT * bounds->class_count *
                   sizeof *bounds->gathers);
        bounds->trainer = trainer;
    }
    if (bounds->have_gathers[index])
        return counts;
    uint32_t *of_unit = calloc(bounds->model->unit_count, sizeof *of_unit);
    const struct mics_slot_set set = {.rotating = kept,
                                      .total = kept + bounds->model->unit_count - bounds->rotating,
                                      .of_unit = of_unit};

    for (uint32_t u = 0, own = kept; of_unit && u < bounds->model->unit_count; u++)
        of_unit[u] = bounds->model->units[u].resident ? own++ : MICS_SLOT_ROTATING;
    const enum mics_status status =
        of_unit ? mics_residency_init(bounds->model, &order, &set, &residency, NULL)
                : MICS_ERR_NOMEM;
    free(of_unit);
    if (status != MICS_OK)
        return NULL;
    count_windows(bounds, &order, &residency, counts);
    mics_residency_fini(&residency);
    bounds->have_gathers[index] = true;
    return counts;
}

/* A choice with the same computation and nearly no communication; false: all ranks hold all
 * gradients, as `choice` does. The smallest group has the least padding, and
 * more of it is needed for blocks. */
static struct mics_plan_choice pricing_choice(const struct mics_plan_choice *choice)
{
    const uint32_t k = mics_choice_per_node(choice), n = mics_choice_world_size(choice);
    struct mics_plan_choice pricing = mics_choice_exact(choice);
    uint32_t p = 2;

    while (p < n && (k > 1 ? k : n) % p != 0)
        p++;
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        struct mics_shape *shape = &pricing.shapes[kind];

        shape->p_param = 1;
        shape->p_grad = shape->p_optim = choice->shapes[kind].p_grad > 1 ? p : 1;
    }
    pricing.hierarchical_gather = pricing.hierarchical_reduce = pricing.secondary_shards = false;
    pricing.segments = 1;
    pricing.prefetch = 0;
    pricing.coalesce = 1;
    pricing.micro_steps = 2;
    return pricing;
}

static void add_pass(const struct mics_model *model, const struct mics_op *op, double seconds,
                     struct mics_pass_times *out)
{
    const bool rotates = op->unit != MICS_NONE && !model->units[op->unit].resident;

    if (op->stage + 1 == model->stage_count) {
        out->head += seconds;
    } else if (op->kind == MICS_OP_FORWARD) {
        out->forward += seconds;
        out->forward_params += rotates ? seconds : 0;
        out->first_forward += op->stage == 0 ? seconds : 0;
    } else if (op->stage == 0) {
        out->last += seconds;
    } else {
        out->backward += seconds;
        out->backward_params += rotates && op->needs_params ? seconds : 0;
        out->backward_grads += rotates ? seconds : 0;
    }
}

static enum mics_status price_passes(struct mics_bounds *bounds,
                                     const struct mics_plan_choice *choice,
                                     struct mics_pass_times times[2], struct mics_err *err)
{
    const struct mics_plan_choice pricing = pricing_choice(choice);
    struct mics_schedule *schedule = NULL;
    enum mics_status status = mics_schedule_new(bounds->model, &pricing, true, &schedule, err);

    for (uint32_t i = 0; status == MICS_OK && i < schedule->op_count; i++) {
        const struct mics_op *op = &schedule->ops[i];

        if (op->kind == MICS_OP_FORWARD || op->kind == MICS_OP_BACKWARD)
            add_pass(bounds->model, op, mics_op_costs_compute(bounds->costs, &pricing, op),
                     &times[op->micro_step]);
    }
    mics_schedule_free(schedule);
    return status;
}

enum mics_status mics_bounds_passes(struct mics_bounds *bounds,
                                    const struct mics_plan_choice *choice,
                                    const struct mics_pass_times **out, struct mics_err *err)
{
    const bool cut_grads = choice->shapes[MICS_UNIT_DENSE].p_grad > 1;
    struct passes_entry *entry = bounds->passes;
    enum mics_status status;

    for (; entry; entry = entry->next)
        if (entry->micro_batch == choice->micro_batch && entry->seq == choice->seq &&
            entry->recompute == choice->recompute && entry->dtype == choice->dtype &&
            entry->grad_dtype == choice->grad_dtype && entry->cut_grads == cut_grads) {
            *out = entry->times;
            return MICS_OK;
        }
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return mics_err_nomem(err);
    status = price_passes(bounds, choice, entry->times, err);
    if (status != MICS_OK) {
        free(entry);
        return status;
    }
    entry->next = bounds->passes;
    entry->micro_batch = choice->micro_batch;
    entry->seq = choice->seq;
    entry->recompute = choice->recompute;
    entry->dtype = choice->dtype;
    entry->grad_dtype = choice->grad_dtype;
    entry->cut_grads = cut_grads;
    bounds->passes = entry;
    *out = entry->times;
    return MICS_OK;
}

/* An exchange of all units. */
struct unit_exchange {
    struct mics_bounds *bounds;
    const struct mics_plan_choice *choice;
    const struct mics_exchange *route;
    uint32_t coalesced;    /* most units of one collective */
    bool gathers;          /* on the streams of gathers */
    size_t exchange, load; /* where in struct unit_times */
    size_t most_lost;      /* the same; 0: nowhere */
};

static void price_collective(const struct unit_exchange *exchange, const struct mics_hop *hop,
                             uint64_t bytes, double amounts[AMOUNT_COUNT], double *latency_s)
{
    const struct mics_collective_price cost = mics_op_costs_collective(
        exchange->bounds->costs, &exchange->choice->shapes[MICS_UNIT_DENSE], hop->collective,
        hop->comm, bytes);

    amounts[AMOUNT_SECONDS] = cost.latency_s + cost.transfer_s;
    amounts[AMOUNT_TRANSFER] = cost.transfer_s;
    amounts[AMOUNT_LOST] = amounts[AMOUNT_SECONDS] * cost.slowdown;
    *latency_s = cost.latency_s;
}

/* Account for one collective of `counts` units of each class. */
static void price_group(const struct unit_exchange *exchange, const struct mics_hop *hop,
                        const uint32_t *counts)
{
    struct class_hop *hops = exchange->bounds->hops;
    double all[AMOUNT_COUNT], sum[AMOUNT_COUNT] = {0}, latency_s;
    uint64_t bytes = 0;

    for (uint32_t c = 0; c < exchange->bounds->class_count; c++) {
        bytes += counts[c] * hops[c].bytes;
        for (int a = 0; a < AMOUNT_COUNT; a++)
            sum[a] += counts[c] * hops[c].alone[a];
    }
    price_collective(exchange, hop, bytes, all, &latency_s);
    for (uint32_t c = 0; c < exchange->bounds->class_count; c++) {
        if (counts[c] == 0)
            continue;
        for (int a = 0; a < AMOUNT_COUNT; a++)
            if (sum[a] > 0)
                hops[c].part[a] = fmin(hops[c].part[a], all[a] / sum[a]);
        hops[c].least_s = fmin(hops[c].least_s, all[AMOUNT_SECONDS]);
        hops[c].most_lost = fmax(hops[c].most_lost, all[AMOUNT_LOST] / all[AMOUNT_SECONDS]);
        hops[c].most_latency_s = fmax(hops[c].most_latency_s, latency_s);
        if (sum[AMOUNT_LOST] > 0)
            hops[c].most_part = fmax(hops[c].most_part, all[AMOUNT_LOST] / sum[AMOUNT_LOST]);
    }
}

/* All groups that can be coalesced: up to exchange->coalesced units, with equally many segments, of
 * which bounds->group has those of the classes before c. */
static void price_groups(const struct unit_exchange *exchange, const struct mics_hop *hop,
                         uint32_t c, uint32_t size, uint32_t segments)
{
    const struct mics_bounds *bounds = exchange->bounds;
    const uint32_t left = exchange->coalesced - size;

    if (c == bounds->class_count) {
        if (size > 1)
            price_group(exchange, hop, bounds->group);
        return;
    }
    for (uint32_t n = 0; n <= left && n <= bounds->classes[c].count; n++) {
        if (n > 0 && segments > 0 && bounds->hops[c].segments != segments)
            break;
        bounds->group[c] = n;
        price_groups(exchange, hop, c + 1, size + n, n > 0 ? bounds->hops[c].segments : segments);
    }
    bounds->group[c] = 0;
}

/* Price one hop of each class. Of a group's collective each unit has the part that its own would
 * take of the sum of all units' own: the least of all groups that it can be in, so that the parts
 * of any group never exceed its collective. */
static void price_hop(const struct unit_exchange *exchange, const struct mics_hop *hop)
{
    const struct mics_bounds *bounds = exchange->bounds;

    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const struct mics_layout layout =
            mics_choice_layout(bounds->model, exchange->choice, bounds->classes[c].unit);
        struct class_hop *own = &bounds->hops[c];

        *own = (struct class_hop){.segments = layout.segments, .part = {1, 1, 1}, .most_part = 1};
        own->bytes = mics_wire_bytes(hop->from.dtype, mics_hop_count(hop, &layout));
        price_collective(exchange, hop, own->bytes, own->alone, &own->most_latency_s);
        own->least_s = own->alone[AMOUNT_SECONDS];
        own->most_lost = own->alone[AMOUNT_LOST] / own->least_s;
    }
    if (exchange->coalesced > 1)
        price_groups(exchange, hop, 0, 0, 0);
}

static bool is_of_blocks(const struct mics_hop *hop)
{
    return mics_dtype_is_blocks(hop->from.dtype) || mics_dtype_is_blocks(hop->to.dtype);
}

/* A conversion to or from blocks is a part of what its stream does; that between fp32 and bf16,
 * which takes little, is left out. */
static void add_conversion(const struct unit_exchange *exchange, const struct mics_hop *hop,
                           enum resource stream, uint32_t h, struct mics_exchange_times *out)
{
    const struct mics_bounds *bounds = exchange->bounds;

    for (uint32_t c = 0; c < bounds->class_count && is_of_blocks(hop); c++) {
        const uint32_t unit = bounds->classes[c].unit;
        const double segments = mics_choice_layout(bounds->model, exchange->choice, unit).segments;
        const double seconds = mics_op_costs_hop(bounds->costs, exchange->choice, hop, unit);
        struct load *load = (void *)((char *)&out->units[c] + exchange->load);
        struct exchange_times *times = (void *)((char *)&out->units[c] + exchange->exchange);

        load->seconds[stream] += segments * seconds;
        times->hops[h] += seconds;
        times->least[h] += seconds;
    }
}

/* Add each unit's part of the loads. In a chain, the hops of one segment follow each other, and
 * each stream takes the segments one by one. The hops of a route are on one stream, or on two
 * streams, those of one after those of the other. */
static void time_exchange(const struct unit_exchange *exchange, struct mics_exchange_times *out)
{
    const struct mics_bounds *bounds = exchange->bounds;
    const struct mics_hop *hops = exchange->route->hops;

    uint32_t h = 0;

    for (uint32_t i = 0; i < exchange->route->hop_count; i++) {
        const struct mics_hop *hop = &hops[i];
        const bool net =
            hop->stream == MICS_STREAM_GATHER_NET || hop->stream == MICS_STREAM_REDUCE_NET;
        const enum resource stream =
            (exchange->gathers ? GATHER_NODE_STREAM : REDUCE_NODE_STREAM) + net;

        h += i > 0 && hop->stream != hops[i - 1].stream;
        if (!mics_op_is_comm(hop->kind)) {
            add_conversion(exchange, hop, stream, h, out);
            continue;
        }
        price_hop(exchange, hop);
        for (uint32_t c = 0; c < bounds->class_count; c++) {
            const struct class_hop *own = &bounds->hops[c];
            const double segments = own->segments;
            struct load *load = (void *)((char *)&out->units[c] + exchange->load);
            struct exchange_times *times = (void *)((char *)&out->units[c] + exchange->exchange);
            double parts[AMOUNT_COUNT];

            for (int a = 0; a < AMOUNT_COUNT; a++)
                parts[a] = own->part[a] * own->alone[a];
            load->seconds[net ? NETWORK : NODE_LINKS] += segments * parts[AMOUNT_TRANSFER];
            load->seconds[stream] += segments * parts[AMOUNT_SECONDS];
            load->lost += segments * parts[AMOUNT_LOST];
            *(net ? &load->net_latency : &load->node_latency) += segments * own->most_latency_s;
            out->most_lost[stream] = fmax(out->most_lost[stream], own->most_lost);
            if (exchange->most_lost > 0 && !net)
                *(double *)((char *)&out->units[c] + exchange->most_lost) +=
                    segments * own->most_part * own->alone[AMOUNT_LOST];
            times->hops[h] += parts[AMOUNT_SECONDS];
            times->least[h] += own->least_s;
        }
    }
    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const uint32_t unit = bounds->classes[c].unit;
        const double segments = mics_choice_layout(bounds->model, exchange->choice, unit).segments;
        struct exchange_times *times = (void *)((char *)&out->units[c] + exchange->exchange);

        times->chain = times->least[0] + times->least[1] +
                       (segments - 1) * fmax(times->least[0], times->least[1]);
    }
}

static double compute_seconds(struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                              uint32_t unit, enum mics_op_kind kind, uint32_t micro_step)
{
    const struct mics_op op = {.kind = kind,
                               .unit = unit,
                               .micro_step = micro_step,
                               .first = micro_step == 0,
                               .from = {MICS_BUFFER_REDUCED, MICS_PIECE_GRAD, choice->grad_dtype},
                               .to = {MICS_BUFFER_GRAD_SHARD, MICS_PIECE_GRAD, MICS_F32}};

    return mics_op_costs_compute(bounds->costs, choice, &op);
}

/* Most units of one collective. */
static uint32_t together(const struct mics_plan_choice *choice, const struct mics_exchange *route)
{
    return mics_exchange_has_staging(route) ? 1 : choice->coalesce;
}

static void time_exchanges(struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                           const struct mics_routes *routes, struct mics_exchange_times *times)
{
    const struct mics_exchange *of = routes->of;
    const struct unit_exchange exchanges[] = {
        {.route = &of[MICS_OP_GATHER],
         .coalesced = together(choice, &of[MICS_OP_GATHER]),
         .gathers = true,
         .exchange = offsetof(struct unit_times, gather),
         .load = offsetof(struct unit_times, gather_load),
         .most_lost = offsetof(struct unit_times, most_lost_to_gather)},
        {.route = &routes->first_gather,
         .coalesced = choice->coalesce,
         .gathers = true,
         .exchange = offsetof(struct unit_times, first_gather),
         .load = offsetof(struct unit_times, first_gather_load)},
        {.route = &of[MICS_OP_PUBLISH],
         .coalesced = 1,
         .gathers = true,
         .exchange = offsetof(struct unit_times, publish),
         .load = offsetof(struct unit_times, publish_load)},
        {.route = &of[MICS_OP_REDUCE],
         .coalesced = choice->coalesce,
         .exchange = offsetof(struct unit_times, reduce),
         .load = offsetof(struct unit_times, reduce_load),
         .most_lost = offsetof(struct unit_times, most_lost_to_reduce)},
        {.route = &of[MICS_OP_SCATTER],
         .coalesced = together(choice, &of[MICS_OP_SCATTER]),
         .exchange = offsetof(struct unit_times, scatter),
         .load = offsetof(struct unit_times, second_hop_load)},
        {.route = &of[MICS_OP_SYNC],
         .coalesced = together(choice, &of[MICS_OP_SYNC]),
         .exchange = offsetof(struct unit_times, sync),
         .load = offsetof(struct unit_times, second_hop_load)},
    };

    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++) {
        struct unit_exchange exchange = exchanges[i];

        /* With outer steps no gradients are exchanged; of the meetings the bound counts nothing. */
        if (choice->outer_steps > 0 && exchange.route == &routes->of[MICS_OP_SYNC])
            continue;

        exchange.bounds = bounds;
        exchange.choice = choice;
        time_exchange(&exchange, times);
    }
}

static void time_computation(struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                             uint32_t unit, struct unit_times *times)
{
    for (int later = 0; later < 2 && choice->shapes[MICS_UNIT_DENSE].p_grad > 1; later++)
        times->accumulate[later] =
            compute_seconds(bounds, choice, unit, MICS_OP_ACCUMULATE, (uint32_t)later);
    /* States in host memory are updated on another stream, without clipping beside the norms. */
    if (choice->clip || choice->offload_piece == 0)
        times->norm = compute_seconds(bounds, choice, unit, MICS_OP_NORM, 0);
    if (choice->offload_piece == 0 || mics_choice_updates_on_host(choice))
        times->update = compute_seconds(bounds, choice, unit, MICS_OP_UPDATE, 0);
}

/* The number of targets, and loss and norm. */
static void time_scalars(struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                         struct mics_exchange_times *times)
{
    const enum mics_comm_kind comm = choice->outer_steps > 0 ? MICS_COMM_OPTIM : MICS_COMM_WORLD;
    struct mics_group_position world;

    mics_shape_position(&choice->shapes[MICS_UNIT_DENSE], comm, 0, &world);
    if (world.size == 1)
        return;
    const struct mics_collective_price norm = mics_op_costs_collective(
        bounds->costs, &choice->shapes[MICS_UNIT_DENSE], MICS_ALL_REDUCE, comm, 2 * sizeof(double));
    const struct mics_collective_price targets = mics_op_costs_collective(
        bounds->costs, &choice->shapes[MICS_UNIT_DENSE], MICS_ALL_REDUCE, comm, sizeof(double));
    times->norm_reduce = norm.latency_s + norm.transfer_s;
    times->scalars.seconds[world.nodes > 1 ? NETWORK : NODE_LINKS] =
        norm.transfer_s + targets.transfer_s;
    times->scalars.seconds[REDUCE_NET_STREAM] =
        times->norm_reduce + targets.latency_s + targets.transfer_s;
    *(world.nodes > 1 ? &times->scalars.net_latency : &times->scalars.node_latency) =
        norm.latency_s + targets.latency_s;
    times->most_lost[REDUCE_NET_STREAM] =
        fmax(times->most_lost[REDUCE_NET_STREAM], fmax(norm.slowdown, targets.slowdown));
    times->scalars.lost += targets.slowdown * (targets.latency_s + targets.transfer_s);
    times->scalars.lost += norm.slowdown * times->norm_reduce;
}

/* Computation keeps a least speed: of what all streams together could take of it at one moment, a
 * part is always lost. Of two transfers on the same links each has half the speed, and takes half,
 * so that two streams add up only while one of them waits for its latency. */
static void count_lost(struct mics_exchange_times *times)
{
    const double *most = times->most_lost, limit = 1 - MICS_LEAST_COMPUTE_SPEED;
    const double node = fmax(most[GATHER_NODE_STREAM], most[REDUCE_NODE_STREAM]);
    const double net = fmax(most[GATHER_NET_STREAM], most[REDUCE_NET_STREAM]);
    const double nets = most[GATHER_NET_STREAM] + most[REDUCE_NET_STREAM];
    const double all = most[GATHER_NODE_STREAM] + most[REDUCE_NODE_STREAM] + nets;
    const double counted = node + net > limit ? limit / (node + net) : 1;

    times->most_lost_at_once = fmin(all, limit);
    times->counted = all > limit ? limit / all : 1;
    times->counted_of_transfers = counted;
    times->node_excess = fmax(0, counted * all - limit);
    times->net_excess = fmax(0, counted * (node + nets) - limit);
}

/* What a gather does while it has its slot: all of it, or, from a staging buffer, the conversion
 * into the slot and the stage inside nodes. */
static void time_slots(const struct mics_bounds *bounds, const struct mics_plan_choice *choice,
                       const struct mics_exchange *gather, struct mics_exchange_times *times)
{
    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const uint32_t u = bounds->classes[c].unit;
        const double segments = mics_choice_layout(bounds->model, choice, u).segments;
        struct unit_times *unit = &times->units[c];

        unit->slot_load = unit->gather_load;
        unit->slot_chain = unit->gather.chain;
        if (!mics_exchange_has_staging(gather))
            continue;
        /* convert, gather between nodes, convert, gather inside nodes */
        const double convert = mics_op_costs_hop(bounds->costs, choice, &gather->hops[2], u);
        unit->slot_load.seconds[NETWORK] = 0;
        unit->slot_load.seconds[GATHER_NET_STREAM] = segments * convert;
        unit->slot_load.lost = 0;
        unit->slot_load.net_latency = 0;
        unit->slot_chain = segments * unit->gather.least[1];
    }
}

static void scale_load(struct load *load, double by)
{
    for (int i = 0; i < RESOURCE_COUNT; i++)
        load->seconds[i] *= by;
    load->lost *= by;
    load->node_latency *= by;
    load->net_latency *= by;
}

static void scale_exchange(struct exchange_times *times, double by)
{
    for (int hop = 0; hop < 2; hop++) {
        times->hops[hop] *= by;
        times->least[hop] *= by;
    }
    times->chain *= by;
}

/* With an interval, the mean over its steps of what units do in their turns. The bound of a step is
 * a sum of maxima of sums of these times, so that its mean is no less than the bound of the means.
 */
static void spread_over_turns(struct unit_times *unit, uint32_t interval)
{
    const double part = 1.0 / interval;

    unit->norm *= part;
    unit->update *= part;
    scale_load(&unit->second_hop_load, part);
    scale_load(&unit->publish_load, part);
    scale_exchange(&unit->scatter, part);
    scale_exchange(&unit->sync, part);
    scale_exchange(&unit->publish, part);
}

enum mics_status mics_bounds_exchanges(struct mics_bounds *bounds,
                                       const struct mics_plan_choice *choice,
                                       struct mics_exchange_times **out, struct mics_err *err)
{
    const struct mics_routes routes = mics_choice_routes(choice, MICS_UNIT_DENSE);
    struct mics_exchange_times *times =
        calloc(1, sizeof *times + bounds->class_count * sizeof times->units[0]);

    if (!times)
        return mics_err_nomem(err);
    times->accumulate = routes.of[MICS_OP_ACCUMULATE].hops[0].stream == MICS_STREAM_REDUCE_NET
                            ? REDUCE_NET_STREAM
                            : REDUCE_NODE_STREAM;
    times->one_second_stream =
        routes.of[MICS_OP_SCATTER].hops[0].stream == routes.of[MICS_OP_SYNC].hops[0].stream;
    for (uint32_t c = 0; c < bounds->class_count; c++) {
        const uint32_t unit = bounds->classes[c].unit;
        const uint32_t segments = mics_choice_layout(bounds->model, choice, unit).segments;

        time_computation(bounds, choice, unit, &times->units[c]);
        if (choice->offload_piece > 0)
            times->offload += bounds->classes[c].count *
                              mics_op_costs_offload(bounds->costs, choice, unit) /
                              mics_choice_interval(choice);
        times->segments = c == 0 || times->segments == segments ? segments : 0;
    }
    time_exchanges(bounds, choice, &routes, times);
    time_slots(bounds, choice, &routes.of[MICS_OP_GATHER], times);
    for (uint32_t c = 0; c < bounds->class_count && mics_choice_interval(choice) > 1; c++)
        spread_over_turns(&times->units[c], mics_choice_interval(choice));
    time_scalars(bounds, choice, times);
    count_lost(times);
    *out = times;
    return MICS_OK;
}

void mics_exchange_times_free(struct mics_exchange_times *times)
{
    free(times);
}
