/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.c - the plan options of each strategy: the dimensions, the memory of each point, and a walk
 * over all that fit.
 *
 * Memory is the sum of what groups, slots, activations and communicators need, so that bytes of few
 * plan options give those of all: a plan option whose sum exceeds the limit by more than the
 * rounding of regions cannot fit. What remains is computed exactly before it is simulated.
 */
#include "base/num.h"
#include "plan/memory.h"
#include "plan/memory_ckpt_cost.h"
#include "plan/search/search_internal.h"
#include "topology/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Regions are rounded to 4 KiB, tensors to less: no sum is wrong by more. */
static const uint64_t rounding_bytes = (uint64_t)1 << 20;

static uint32_t count_rotating(const struct mics_model *model)
{
    uint32_t count = 0;

    for (uint32_t u = 0; u < model->unit_count; u++)
        count += !model->units[u].resident;
    return count;
}

static int compare_u32(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

static bool is_micro_batch(const struct mics_search_options *options, uint64_t share,
                           uint64_t batch)
{
    if (options->micro_batch && batch != options->micro_batch)
        return false;
    if (options->micro_steps && share / batch > options->micro_steps)
        return false;
    return share % batch == 0 && batch <= INT32_MAX / options->seq && share / batch <= 1u << 20;
}

/* Divisors of a rank's share of the batch that mics_choice_check() accepts, increasing. */
static enum mics_status list_micro_batches(struct mics_search *search, struct mics_err *err)
{
    enum { MOST = 16384 }; /* a number up to 2^40 has less than 7000 divisors */
    const struct mics_search_options *options = &search->options;
    const uint64_t n = (uint64_t)search->topology->nodes * search->topology->per_node;
    const uint64_t share = options->global_batch / n;
    struct mics_search_space *space = &search->space;

    space->micro_batches = malloc(MOST * sizeof *space->micro_batches);
    if (!space->micro_batches)
        return mics_err_nomem(err);
    for (uint64_t low = 1; low <= share / low; low++) {
        if (is_micro_batch(options, share, low))
            space->micro_batches[space->micro_batch_count++] = (uint32_t)low;
        if (share % low == 0 && share / low != low && is_micro_batch(options, share, share / low))
            space->micro_batches[space->micro_batch_count++] = (uint32_t)(share / low);
    }
    qsort(space->micro_batches, space->micro_batch_count, sizeof *space->micro_batches,
          compare_u32);
    if (space->micro_batch_count == 0)
        return mics_err_set(err, MICS_ERR_ARG,
                            "global batch %llu: %llu sequences of %u per rank cannot be divided "
                            "into at most 1048576 micro-steps of 1 to 2^31-1 tokens",
                            (unsigned long long)options->global_batch, (unsigned long long)share,
                            options->seq);
    return MICS_OK;
}

/* 0 to 8, then in steps of a half, to a slot for each unit. The most that fits a plan option is
 * tried in addition. */
static enum mics_status list_prefetches(struct mics_search *search, struct mics_err *err)
{
    struct mics_search_space *space = &search->space;
    const uint32_t wanted = search->options.prefetch;
    const uint32_t count = wanted == MICS_AUTO && space->rotating > 0 ? space->rotating : 1;

    space->prefetches = malloc(count * sizeof *space->prefetches);
    if (!space->prefetches)
        return mics_err_nomem(err);
    if (wanted != MICS_AUTO)
        space->prefetches[space->prefetch_count++] = wanted;
    for (uint32_t i = 0; i < count && wanted == MICS_AUTO; i += 1 + i / 2 * (i >= 8))
        space->prefetches[space->prefetch_count++] = i;
    if (space->prefetches[space->prefetch_count - 1] + 1 < count)
        space->prefetches[space->prefetch_count++] = count - 1;
    return MICS_OK;
}

static void list_levels(struct mics_search *search)
{
    const struct mics_search_options *options = &search->options;

    for (uint32_t level = 0; level < MICS_RECOMPUTE_LEVELS; level++)
        if (options->recompute == level || (options->recompute == MICS_AUTO &&
                                            (!options->recomputes || options->recomputes[level])))
            search->space.levels[search->space.level_count++] = level;
}

enum mics_status mics_search_bytes(const struct mics_search *search,
                                   const struct mics_plan_choice *choice, uint64_t *bytes,
                                   struct mics_err *err)
{
    struct mics_memory memory;
    enum mics_status status =
        mics_memory_compute_on(search->topology, search->model, choice, &memory, err);

    if (status == MICS_OK)
        *bytes = mics_memory_total(&memory, search->topology);
    return status;
}

uint64_t mics_search_memory_ckpt(const struct mics_search *search,
                                 const struct mics_plan_choice *choice)
{
    const struct mics_search_options *options = &search->options;

    if (options->memory_every == 0)
        return 0;
    return mics_choice_memory_ckpt_cost(search->model, choice, (uint32_t)options->memory_copies)
        .node_bytes;
}

enum mics_status mics_search_lacks_host(const struct mics_search *search,
                                        const struct mics_plan_choice *choice, uint64_t *bytes,
                                        struct mics_err *err)
{
    struct mics_memory memory;
    enum mics_status status =
        mics_memory_compute_on(search->topology, search->model, choice, &memory, err);

    if (status == MICS_OK)
        *bytes = mics_memory_lacks_host(&memory, search->topology,
                                        mics_search_memory_ckpt(search, choice));
    return status;
}

bool mics_search_fits(const struct mics_search *search,
                      const struct mics_search_alternative *alternative)
{
    return alternative->least.total_bytes <= search->options.memory_limit &&
           alternative->lacks_host == 0;
}

/* Are gradients exchanged after the reduction in groups of p_grad ranks? */
static bool has_sync(const struct mics_shape *shape)
{
    return mics_shape_world_size(shape) > shape->p_grad;
}

void mics_search_set_formats(const struct mics_search *search,
                             const struct mics_search_alternative *alternative,
                             struct mics_plan_choice *choice)
{
    const struct mics_search_options *options = &search->options;
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];
    const bool sync = has_sync(shape) && mics_dtype_is_blocks(options->sync_dtype);
    const bool gather =
        choice->hierarchical_gather && mics_shape_has_hierarchy(shape, shape->p_param);

    choice->sync_dtype = sync ? options->sync_dtype : MICS_F32;
    choice->sync_down_dtype = sync ? options->sync_down_dtype : MICS_F32;
    choice->sync_gathers = sync && alternative->sync_gathers;
    choice->sync_stochastic = sync && options->sync_stochastic;
    choice->gather_dtype = gather ? options->gather_dtype : MICS_F32;
}

struct mics_plan_choice mics_search_choice(const struct mics_search *search,
                                           const struct mics_search_point *point)
{
    const struct mics_search_options *options = &search->options;
    const struct mics_search_alternative *alternative = &search->alternatives[point->alternative];
    const struct mics_exchange_option *option = &alternative->options[point->option];
    const uint32_t n = mics_shape_world_size(&alternative->strategy.shape);
    struct mics_plan_choice choice = {
        .shapes = MICS_SAME_SHAPE(alternative->strategy.shape),
        .secondary_shards = alternative->strategy.secondary_shards,
        .hierarchical_gather = option->hierarchical_gather,
        .hierarchical_reduce = option->hierarchical_reduce,
        .segments = option->segments,
        .prefetch = point->prefetch,
        .grad_slots = 2 * option->coalesce,
        .coalesce = option->coalesce,
        .micro_batch = search->space.micro_batches[point->micro_batch],
        .seq = options->seq,
        .recompute = (enum mics_recompute)search->space.levels[point->level],
        .optimizer = options->optimizer,
        .dtype = (enum mics_dtype)options->dtype,
        .grad_dtype = (enum mics_dtype)options->grad_dtype,
        .clip = options->clip,
        .outer_steps = options->outer_steps,
        .outer_lr = options->outer_lr,
        .outer_momentum = options->outer_momentum,
        .outer_overlap = options->outer_overlap,
        .trainer = options->trainer,
        .whole_grads = options->whole_grads,
        .offload_piece = options->offload == MICS_OFFLOAD_OPTIMIZER ? MICS_OFFLOAD_PIECE : 0,
    };

    choice.sync_interval = mics_choice_has_second_hop(&choice) ? options->sync_interval : 1;
    if (options->outer_steps > 0 || mics_choice_interval(&choice) > 1)
        choice.sync_warmup = options->sync_warmup;
    choice.micro_steps = (uint32_t)(options->global_batch / n / choice.micro_batch);
    snprintf(choice.strategy, sizeof choice.strategy, "%s", alternative->strategy.name);
    mics_search_set_formats(search, alternative, &choice);
    return choice;
}

/* Activations of each level and micro-batch, of the first strategy. */
static enum mics_status measure_activations(struct mics_search *search, struct mics_err *err)
{
    struct mics_search_space *space = &search->space;
    struct mics_search_point point = {.prefetch = 0};
    uint64_t base = 0;

    space->activation_bytes = calloc((size_t)space->level_count * space->micro_batch_count,
                                     sizeof *space->activation_bytes);
    if (!space->activation_bytes)
        return mics_err_nomem(err);
    for (point.level = 0; point.level < space->level_count; point.level++)
        for (point.micro_batch = 0; point.micro_batch < space->micro_batch_count;
             point.micro_batch++) {
            const struct mics_plan_choice choice = mics_search_choice(search, &point);
            uint64_t bytes = 0;
            enum mics_status status = mics_search_bytes(search, &choice, &bytes, err);

            if (status != MICS_OK)
                return status;
            if (point.level == 0 && point.micro_batch == 0)
                base = bytes;
            space->activation_bytes[point.level * space->micro_batch_count + point.micro_batch] =
                (int64_t)(bytes - base);
        }
    return MICS_OK;
}

/* As much of a choice as layouts depend on. */
static struct mics_plan_choice layout_choice(const struct mics_search *search,
                                             const struct mics_shape *shape, uint32_t segments)
{
    const struct mics_search_alternative alternative = {.sync_gathers = false};
    struct mics_plan_choice choice = {.shapes = MICS_SAME_SHAPE(*shape), .segments = segments};

    mics_search_set_formats(search, &alternative, &choice);
    return choice;
}

/* Is there a unit that so many segments cut? */
static bool has_segments(const struct mics_search *search, const struct mics_shape *shape,
                         uint32_t segments)
{
    const struct mics_plan_choice choice = layout_choice(search, shape, segments);

    if (segments == 1)
        return true;
    for (uint32_t u = 0; u < search->model->unit_count; u++)
        if (mics_choice_layout(search->model, &choice, u).segments > 1)
            return true;
    return false;
}

static bool can_coalesce(const struct mics_search *search, const struct mics_shape *shape,
                         uint32_t coalesce)
{
    if (coalesce == 1 || search->options.coalesce > 0)
        return true;
    return mics_shape_world_size(shape) > 1 && 2 * coalesce <= search->model->unit_count &&
           (shape->p_grad > 1 || (search->options.grad_dtype == MICS_F32 &&
                                  !mics_dtype_is_blocks(search->options.sync_dtype)));
}

/* Seconds of exchanging all units once, as measured by mics-bench; false: not measured. */
static bool measured_seconds(const struct mics_search *search, const struct mics_shape *shape,
                             enum mics_collective collective,
                             const struct mics_exchange_option *option, double *seconds)
{
    const struct mics_plan_choice choice = layout_choice(search, shape, option->segments);
    const bool gathers = collective == MICS_ALL_GATHER;
    const uint32_t dtype = gathers ? search->options.dtype : search->options.grad_dtype;
    const bool hierarchical = gathers ? option->hierarchical_gather : option->hierarchical_reduce;
    struct mics_group_position position;

    *seconds = 0;
    mics_shape_position(shape, gathers ? MICS_COMM_GATHER : MICS_COMM_REDUCE, 0, &position);
    for (uint32_t u = 0; u < search->model->unit_count; u++) {
        const struct mics_layout layout = mics_choice_layout(search->model, &choice, u);
        const double bytes = (double)(layout.padded * mics_dtype_bytes((enum mics_dtype)dtype));
        const struct mics_algorithm_timing *timing = mics_algorithm_timing_find(
            search->topology, collective, position.nodes, position.per_node, layout.segments);

        if (!timing)
            return false;
        *seconds += hierarchical ? mics_algorithm_timing_hierarchical(timing, bytes)
                                 : layout.segments *
                                       mics_algorithm_timing_flat(timing, bytes / layout.segments);
    }
    return true;
}

/* Where flat and hierarchical exchanges of this group were measured against each other, by
 * segments, only the fastest is an option. */
static void keep_measured(const struct mics_search *search,
                          struct mics_search_alternative *alternative)
{
    const struct mics_shape *shape = &alternative->strategy.shape;
    double best = INFINITY;
    uint32_t kept = 0;

    if (search->topology->algorithm_timing_count == 0 || alternative->option_count < 2)
        return;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < alternative->option_count; i++) {
            double gather = 0, reduce = 0;

            if (!measured_seconds(search, shape, MICS_ALL_GATHER, &alternative->options[i],
                                  &gather) ||
                !measured_seconds(search, shape, MICS_REDUCE_SCATTER, &alternative->options[i],
                                  &reduce))
                return;
            /* Forward and backward gather each unit. */
            if (pass == 0)
                best = fmin(best, 2 * gather + reduce);
            else if (2 * gather + reduce <= best)
                alternative->options[kept++] = alternative->options[i];
        }
    alternative->option_count = kept;
}

/* Seconds of the second hop of all units, alone. */
static double sync_seconds(const struct mics_search *search,
                           const struct mics_search_alternative *alternative)
{
    struct mics_plan_choice choice = {.shapes = MICS_SAME_SHAPE(alternative->strategy.shape),
                                      .segments = 1};
    double seconds = 0;

    mics_search_set_formats(search, alternative, &choice);
    const struct mics_routes routes = mics_choice_routes(&choice, MICS_UNIT_DENSE);
    for (uint32_t u = 0; u < search->model->unit_count; u++)
        for (uint32_t h = 0; h < routes.of[MICS_OP_SYNC].hop_count; h++)
            seconds +=
                mics_op_costs_hop(search->costs, &choice, &routes.of[MICS_OP_SYNC].hops[h], u);
    return seconds;
}

/* Where two routes take equally long, the one with fewer roundings. */
static void choose_sync_route(const struct mics_search *search,
                              struct mics_search_alternative *alternative)
{
    double gathers_s;

    if (!mics_dtype_is_blocks(search->options.sync_dtype))
        return;
    alternative->sync_gathers = true;
    gathers_s = sync_seconds(search, alternative);
    alternative->sync_gathers = false;
    alternative->sync_gathers = gathers_s <= sync_seconds(search, alternative);
}

static enum mics_status list_options(const struct mics_search *search,
                                     struct mics_search_alternative *alternative,
                                     struct mics_err *err)
{
    enum { SEGMENTS = 3, COALESCE = 4 };
    static const uint32_t segments[SEGMENTS] = {1, 2, 4};
    static const uint32_t coalesce[COALESCE] = {1, 2, 4, MICS_COALESCE_MAX};
    const struct mics_search_options *options = &search->options;
    const struct mics_shape *shape = &alternative->strategy.shape;
    const enum mics_hierarchy wanted = options->hierarchical;
    const bool gather =
        mics_shape_has_hierarchy(shape, shape->p_param) && wanted != MICS_HIERARCHY_OFF;
    const bool reduce =
        mics_shape_has_hierarchy(shape, shape->p_grad) && wanted != MICS_HIERARCHY_OFF;
    const uint32_t least = wanted == MICS_HIERARCHY_ON ? gather + 2 * reduce : 0;

    alternative->options = calloc(SEGMENTS * COALESCE * 4, sizeof *alternative->options);
    if (!alternative->options)
        return mics_err_nomem(err);
    choose_sync_route(search, alternative);
    for (uint32_t s = 0; s < (options->segments ? 1 : SEGMENTS); s++)
        for (uint32_t c = 0; c < (options->coalesce ? 1 : COALESCE); c++)
            for (uint32_t flags = least; flags < 4; flags++) {
                const struct mics_exchange_option option = {
                    .segments = options->segments ? options->segments : segments[s],
                    .coalesce = options->coalesce ? options->coalesce : coalesce[c],
                    .hierarchical_gather = flags & 1,
                    .hierarchical_reduce = flags & 2,
                };

                if ((option.hierarchical_gather && !gather) ||
                    (option.hierarchical_reduce && !reduce) ||
                    (!options->segments && !has_segments(search, shape, option.segments)) ||
                    !can_coalesce(search, shape, option.coalesce))
                    continue;
                alternative->options[alternative->option_count++] = option;
            }
    keep_measured(search, alternative);
    return MICS_OK;
}

static uint64_t largest_slot(const struct mics_search *search, const struct mics_shape *shape,
                             enum mics_dtype dtype)
{
    const struct mics_plan_choice choice = layout_choice(search, shape, 1);
    const struct mics_unit *units = search->model->units;
    uint32_t largest = MICS_NONE;

    for (uint32_t u = 0; u < search->model->unit_count; u++)
        if (!units[u].resident && (largest == MICS_NONE || units[u].count > units[largest].count))
            largest = u;
    if (largest == MICS_NONE)
        return 0;
    return mics_choice_layout(search->model, &choice, largest).padded * mics_dtype_bytes(dtype);
}

static uint32_t hierarchy_of(const struct mics_exchange_option *option)
{
    return option->hierarchical_gather + 2 * option->hierarchical_reduce;
}

/* Bytes of staging buffers of blocks, which are smaller in more segments. */
static uint64_t staging_bytes(const struct mics_search *search,
                              const struct mics_plan_choice *choice)
{
    uint64_t bytes = 0;

    if (mics_choice_align(choice) == MICS_TENSOR_ALIGN)
        return 0;
    for (int b = MICS_BUFFER_FIRST_STAGING; b < MICS_BUFFER_COUNT; b++)
        bytes += mics_staging_bytes(search->model, choice, (enum mics_buffer)b);
    return bytes;
}

/* Bytes of a point without prefetching. Those of mics are the sum of what a strategy and what
 * activations take; another trainer's peak may be at another moment for each. */
static uint64_t point_bytes(const struct mics_search *search, const struct mics_search_point *point)
{
    const struct mics_search_space *space = &search->space;
    const struct mics_search_alternative *alternative = &search->alternatives[point->alternative];
    const int64_t activations =
        space->activation_bytes[point->level * space->micro_batch_count + point->micro_batch];
    const struct mics_plan_choice choice = mics_search_choice(search, point);
    struct mics_err err;
    uint64_t bytes;

    if (choice.trainer == MICS_TRAINER_MICS)
        return alternative->base_bytes[hierarchy_of(&alternative->options[point->option])] +
               (uint64_t)activations;
    return mics_search_bytes(search, &choice, &bytes, &err) == MICS_OK ? bytes : UINT64_MAX;
}

/* The level and the micro-batch of the fewest bytes. */
static void find_least(const struct mics_search *search, struct mics_search_point *least)
{
    struct mics_search_point point = *least;
    uint64_t fewest = UINT64_MAX;

    for (point.level = 0; point.level < search->space.level_count; point.level++)
        for (point.micro_batch = 0; point.micro_batch < search->space.micro_batch_count;
             point.micro_batch++) {
            const uint64_t bytes = point_bytes(search, &point);

            if (bytes >= fewest)
                continue;
            fewest = bytes;
            least->level = point.level;
            least->micro_batch = point.micro_batch;
        }
}

/* Bytes of the first level and micro-batch with each hierarchy, without coalescing, in as few
 * segments as are allowed. Finds the plan option that needs the least. */
static enum mics_status measure_alternative(struct mics_search *search, uint32_t index,
                                            struct mics_err *err)
{
    struct mics_search_space *space = &search->space;
    struct mics_search_alternative *alternative = &search->alternatives[index];
    struct mics_search_point point = {.alternative = index, .prefetch = space->prefetches[0]};
    struct mics_search_point least = point;
    enum mics_status status = MICS_OK;
    uint64_t bytes;

    if (alternative->strategy.shape.p_param == 1 && search->options.prefetch == MICS_AUTO)
        point.prefetch = least.prefetch = 0;
    alternative->param_slot_bytes = alternative->strategy.shape.p_param > 1
                                        ? largest_slot(search, &alternative->strategy.shape,
                                                       (enum mics_dtype)search->options.dtype)
                                        : 0;
    alternative->grad_slot_bytes = alternative->strategy.shape.p_grad > 1
                                       ? largest_slot(search, &alternative->strategy.shape,
                                                      (enum mics_dtype)search->options.grad_dtype)
                                       : 0;
    for (uint32_t i = 0; i < alternative->option_count && status == MICS_OK; i++) {
        uint64_t *base = &alternative->base_bytes[hierarchy_of(&alternative->options[i])];

        if (*base > 0)
            continue; /* the first of this hierarchy has the fewest segments and slots */
        point.option = i;
        const struct mics_plan_choice choice = mics_search_choice(search, &point);
        status = mics_search_bytes(search, &choice, base, err);
        if (alternative->least.total_bytes == 0 || *base < alternative->least.total_bytes) {
            alternative->least.total_bytes = *base;
            least.option = i;
        }
        if (status == MICS_OK)
            *base -= staging_bytes(search, &choice);
    }
    for (uint32_t i = 0; i < space->level_count * space->micro_batch_count; i++)
        if (space->activation_bytes[i] <
            space->activation_bytes[least.level * space->micro_batch_count + least.micro_batch]) {
            least.level = i / space->micro_batch_count;
            least.micro_batch = i % space->micro_batch_count;
        }
    if (search->options.trainer != MICS_TRAINER_MICS)
        find_least(search, &least);
    alternative->least.choice = mics_search_choice(search, &least);
    if (status == MICS_OK)
        status = mics_search_bytes(search, &alternative->least.choice, &bytes, err);
    if (status == MICS_OK)
        alternative->least.total_bytes = bytes;
    if (status == MICS_OK)
        status = mics_search_lacks_host(search, &alternative->least.choice,
                                        &alternative->lacks_host, err);
    return status;
}

enum mics_status mics_search_space_init(struct mics_search *search, struct mics_err *err)
{
    enum mics_status status = list_micro_batches(search, err);

    search->space.rotating = count_rotating(search->model);
    list_levels(search);
    if (status == MICS_OK)
        status = list_prefetches(search, err);
    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++)
        status = list_options(search, &search->alternatives[i], err);
    if (status == MICS_OK)
        status = measure_activations(search, err);
    for (uint32_t i = 0; i < search->count && status == MICS_OK; i++)
        status = measure_alternative(search, i, err);
    return status;
}

void mics_search_space_fini(struct mics_search *search)
{
    for (uint32_t i = 0; i < search->count && search->alternatives; i++) {
        struct mics_search_alternative *alternative = &search->alternatives[i];

        for (uint32_t k = 0; alternative->times && k < alternative->option_count; k++)
            mics_exchange_times_free(alternative->times[k]);
        free(alternative->times);
        free(alternative->options);
    }
    free(search->space.micro_batches);
    free(search->space.prefetches);
    free(search->space.activation_bytes);
}

bool mics_search_prefetch_range(const struct mics_search *search,
                                const struct mics_search_point *point, uint32_t *least,
                                uint32_t *most)
{
    const struct mics_search_space *space = &search->space;
    const struct mics_search_alternative *alternative = &search->alternatives[point->alternative];
    const struct mics_exchange_option *option = &alternative->options[point->option];
    const uint64_t limit = search->options.memory_limit + rounding_bytes;
    const uint64_t slots = mics_min_u64(2 * option->coalesce, space->rotating);
    const uint32_t all = space->rotating > 0 ? space->rotating - 1 : 0;
    uint64_t bytes = point_bytes(search, point);

    if (search->options.coalesce == 0 && slots > 2)
        bytes += (slots - 2) * alternative->grad_slot_bytes;
    if (bytes > limit || alternative->lacks_host > 0)
        return false;
    if (alternative->strategy.shape.p_param == 1 || search->options.prefetch != MICS_AUTO) {
        *least = *most = search->options.prefetch != MICS_AUTO ? search->options.prefetch : 0;
        return alternative->strategy.shape.p_param == 1 || option->coalesce == 1 ||
               search->options.coalesce > 0 || *least >= 2 * option->coalesce - 1;
    }
    /* Coalesced units need slots for two sets: one in transfer, one in use. */
    *least = option->coalesce == 1 ? 0 : 2 * option->coalesce - 1;
    if (search->options.coalesce > 0)
        *least = (uint32_t)mics_min_u64(*least, all);
    *most = all;
    if (alternative->param_slot_bytes > 0)
        *most = (uint32_t)mics_min_u64(all, (limit - bytes) / alternative->param_slot_bytes);
    return *least <= *most;
}

static enum mics_status
visit_point(struct mics_search *search, struct mics_search_point point,
            enum mics_status (*visit)(void *, const struct mics_plan_choice *, struct mics_err *),
            void *context, struct mics_err *err)
{
    const struct mics_search_space *space = &search->space;
    uint32_t least, most;
    enum mics_status status = MICS_OK;

    if (!mics_search_prefetch_range(search, &point, &least, &most))
        return MICS_OK;
    for (uint32_t i = 0; i < space->prefetch_count && status == MICS_OK; i++) {
        struct mics_plan_choice choice;
        uint64_t bytes = 0;

        point.prefetch = space->prefetches[i];
        if (point.prefetch < least || point.prefetch > most)
            continue;
        choice = mics_search_choice(search, &point);
        status = mics_search_bytes(search, &choice, &bytes, err);
        if (status == MICS_OK && bytes <= search->options.memory_limit)
            status = visit(context, &choice, err);
    }
    return status;
}

enum mics_status mics_search_visit(struct mics_search *search,
                                   enum mics_status (*visit)(void *,
                                                             const struct mics_plan_choice *,
                                                             struct mics_err *),
                                   void *context, struct mics_err *err)
{
    const struct mics_search_space *space = &search->space;
    struct mics_search_point point = {.prefetch = 0};
    enum mics_status status = MICS_OK;

    for (point.alternative = 0; point.alternative < search->count; point.alternative++)
        for (point.option = 0; point.option < search->alternatives[point.alternative].option_count;
             point.option++)
            for (point.level = 0; point.level < space->level_count; point.level++)
                for (point.micro_batch = 0;
                     point.micro_batch < space->micro_batch_count && status == MICS_OK;
                     point.micro_batch++)
                    status = visit_point(search, point, visit, context, err);
    return status;
}
