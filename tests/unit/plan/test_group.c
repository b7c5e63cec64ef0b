/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_group.c - all valid shapes of small clusters, with the collectives of a step executed on
 * symbols: a segment has one cell per optimizer piece, and a cell holds its own number (parameters)
 * or the set of ranks whose gradients it sums.
 */
#include "plan/group.h"
#include "tap.h"

enum { MAX_RANKS = 48 };

typedef uint64_t cells[MAX_RANKS][MAX_RANKS]; /* [rank][cell] */

static struct mics_shape shape;
static struct mics_group_position members[MICS_COMM_KIND_COUNT][MAX_RANKS];
static uint32_t n;

static void load_members(void)
{
    n = shape.nodes * shape.per_node;
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++)
        for (uint32_t rank = 0; rank < n; rank++)
            mics_shape_position(&shape, (enum mics_comm_kind)kind, rank, &members[kind][rank]);
}

static void walk_triples(uint32_t nodes, uint32_t per_node, void (*check)(void))
{
    n = nodes * per_node;
    for (uint32_t a = 1; a <= n; a++)
        for (uint32_t b = a; b <= n; b += a)
            for (uint32_t c = b; c <= n; c += b) {
                shape = (struct mics_shape){nodes, per_node, a, b, c};
                if (mics_shape_check(&shape, NULL) != MICS_OK)
                    continue;
                load_members();
                check();
            }
}

static void walk(void (*check)(void))
{
    static const uint32_t odd[][2] = {{6, 6}, {4, 12}, {3, 12}, {8, 6}, {12, 3}};

    for (uint32_t nodes = 1; nodes <= 32; nodes++)
        for (uint32_t per_node = 1; nodes * per_node <= 32; per_node++)
            walk_triples(nodes, per_node, check);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        walk_triples(odd[i][0], odd[i][1], check);
}

/* Ranks of the communicator of `rank`, in ring order; returns how many. */
static uint32_t ranks_with(enum mics_comm_kind kind, uint32_t rank, uint32_t out[MAX_RANKS])
{
    uint32_t count = 0;

    for (uint32_t other = 0; other < n; other++)
        if (members[kind][other].color == members[kind][rank].color)
            out[count++] = other;
    return count;
}

static void check_span(enum mics_comm_kind kind, uint32_t rank, const uint32_t *ranks,
                       uint32_t count)
{
    const struct mics_group_position *member = &members[kind][rank];
    uint32_t node_of_first = ranks[0] / shape.per_node, here = 0, nodes = 1, crossings = 0;

    for (uint32_t i = 0; i < count; i++) {
        here += ranks[i] / shape.per_node == node_of_first;
        crossings += i > 0 && ranks[i] / shape.per_node != ranks[i - 1] / shape.per_node;
    }
    nodes += crossings;
    CHECK_INT(member->nodes, nodes);
    CHECK_INT(member->per_node, here);
    CHECK_INT(member->nodes * member->per_node, count);
    CHECK_INT(member->sharing * member->per_node, shape.per_node);
}

static void check_communicators(void)
{
    for (int kind = 0; kind < MICS_COMM_KIND_COUNT; kind++) {
        for (uint32_t rank = 0; rank < n; rank++) {
            uint32_t ranks[MAX_RANKS];
            uint32_t count = ranks_with((enum mics_comm_kind)kind, rank, ranks);
            uint64_t blocks = 0;

            CHECK_INT(count, members[kind][rank].size);
            CHECK_INT(members[kind][rank].key, rank);
            for (uint32_t i = 0; i < count; i++)
                blocks |= (uint64_t)1 << members[kind][ranks[i]].block;
            CHECK(blocks == ((uint64_t)1 << (count - 1) << 1) - 1);
            check_span((enum mics_comm_kind)kind, rank, ranks, count);
        }
    }
}

static void every_communicator_partitions_the_ranks_and_blocks_are_permutations(void)
{
    walk(check_communicators);
}

static void check_nesting(void)
{
    for (uint32_t rank = 0; rank < n; rank++) {
        struct mics_index index = mics_shape_index(&shape, rank);

        CHECK_INT(index.optim / (shape.p_optim / shape.p_grad), index.grad);
        CHECK_INT(index.grad / (shape.p_grad / shape.p_param), index.param);
        CHECK(index.optim < shape.p_optim);
    }
}

static void optimizer_pieces_lie_inside_gradient_pieces_inside_parameter_pieces(void)
{
    walk(check_nesting);
}

/* recv[b * count + i] = send of the rank with block b, at every rank, all at once. */
static void all_gather(enum mics_comm_kind kind, cells data, const uint32_t send[MAX_RANKS],
                       const uint32_t recv[MAX_RANKS], uint32_t count)
{
    static cells before;

    memcpy(before, data, sizeof before);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t ranks[MAX_RANKS], size = ranks_with(kind, rank, ranks);

        for (uint32_t i = 0; i < size; i++)
            memcpy(&data[rank][recv[rank] + members[kind][ranks[i]].block * count],
                   &before[ranks[i]][send[ranks[i]]], count * sizeof(uint64_t));
    }
}

/* Sum send[block] in place; a set that is summed twice shows as a missing rank. The rest is
 * destroyed. */
static void reduce_scatter(enum mics_comm_kind kind, cells data, const uint32_t send[MAX_RANKS],
                           uint32_t count)
{
    static cells before;

    memcpy(before, data, sizeof before);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t ranks[MAX_RANKS], size = ranks_with(kind, rank, ranks);
        uint32_t own = members[kind][rank].block * count;

        memset(&data[rank][send[rank]], 0, size * count * sizeof(uint64_t));
        for (uint32_t cell = 0; cell < count; cell++)
            for (uint32_t i = 0; i < size; i++)
                data[rank][send[rank] + own + cell] ^=
                    before[ranks[i]][send[ranks[i]] + own + cell];
    }
}

/* A parameter segment in a slot: at first only the rank's own piece. */
static void start_slot(cells data)
{
    uint32_t piece = shape.p_optim / shape.p_param;

    memset(data, 0, sizeof(cells));
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t own = mics_shape_index(&shape, rank).param * piece;

        for (uint32_t i = 0; i < piece; i++)
            data[rank][own + i] = 100 + own + i;
    }
}

static void expect_gathered(cells data)
{
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t cell = 0; cell < shape.p_optim; cell++)
            CHECK_INT(data[rank][cell], 100 + cell);
}

static void check_gathers(void)
{
    static const uint32_t zero[MAX_RANKS];
    static cells data;
    uint32_t piece = shape.p_optim / shape.p_param, own[MAX_RANKS] = {0}, run[MAX_RANKS] = {0};
    uint32_t q = members[MICS_COMM_GATHER_NET][0].size;

    for (uint32_t rank = 0; rank < n; rank++) {
        own[rank] = mics_shape_index(&shape, rank).param * piece;
        run[rank] = members[MICS_COMM_GATHER_NODE][rank].block * q * piece;
    }
    start_slot(data);
    all_gather(MICS_COMM_GATHER, data, own, zero, piece);
    expect_gathered(data);
    start_slot(data);
    all_gather(MICS_COMM_GATHER_NET, data, own, run, piece);
    all_gather(MICS_COMM_GATHER_NODE, data, run, zero, q * piece);
    expect_gathered(data);
}

static void flat_and_hierarchical_gathers_end_in_natural_order_in_place(void)
{
    walk(check_gathers);
}

static void start_gradients(cells data)
{
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t cell = 0; cell < shape.p_optim; cell++)
            data[rank][cell] = (uint64_t)1 << rank;
}

static uint64_t ranks_of_group(uint32_t rank, uint32_t p)
{
    uint64_t ones = ((uint64_t)1 << (p - 1) << 1) - 1;

    return ones << rank / p * p;
}

static void check_reduces(void)
{
    static const uint32_t zero[MAX_RANKS];
    static cells flat, staged;
    uint32_t piece = shape.p_optim / shape.p_grad, run[MAX_RANKS] = {0};
    uint32_t q = members[MICS_COMM_REDUCE_NET][0].size;

    for (uint32_t rank = 0; rank < n; rank++)
        run[rank] = members[MICS_COMM_REDUCE_NODE][rank].block * q * piece;
    start_gradients(flat);
    reduce_scatter(MICS_COMM_REDUCE, flat, zero, piece);
    start_gradients(staged);
    reduce_scatter(MICS_COMM_REDUCE_NODE, staged, zero, q * piece);
    reduce_scatter(MICS_COMM_REDUCE_NET, staged, run, piece);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t own = mics_shape_index(&shape, rank).grad * piece;

        for (uint32_t i = 0; i < piece; i++) {
            CHECK(flat[rank][own + i] == ranks_of_group(rank, shape.p_grad));
            CHECK(staged[rank][own + i] == flat[rank][own + i]);
        }
    }
}

static void flat_and_hierarchical_reductions_end_with_the_rank_s_own_piece(void)
{
    walk(check_reduces);
}

/* From gradient pieces to optimizer pieces of the whole world, and back to parameter pieces. */
static void check_sync_and_publish(void)
{
    static cells grads, params;
    uint32_t grad_piece = shape.p_optim / shape.p_grad, param_piece = shape.p_optim / shape.p_param;
    uint32_t grad_own[MAX_RANKS] = {0}, param_own[MAX_RANKS] = {0}, optim_own[MAX_RANKS] = {0};

    memset(grads, 0, sizeof grads);
    memset(params, 0, sizeof params);
    for (uint32_t rank = 0; rank < n; rank++) {
        struct mics_index index = mics_shape_index(&shape, rank);

        grad_own[rank] = index.grad * grad_piece;
        param_own[rank] = index.param * param_piece;
        optim_own[rank] = index.optim;
        for (uint32_t i = 0; i < grad_piece; i++)
            grads[rank][grad_own[rank] + i] = ranks_of_group(rank, shape.p_grad);
        params[rank][index.optim] = 100 + index.optim;
    }
    reduce_scatter(MICS_COMM_SCATTER, grads, grad_own, 1);
    all_gather(MICS_COMM_PUBLISH, params, optim_own, param_own, 1);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t ranks[MAX_RANKS], size = ranks_with(MICS_COMM_REPLICA, rank, ranks);
        uint64_t sum = 0;

        for (uint32_t i = 0; i < size; i++) {
            CHECK_INT(optim_own[ranks[i]], optim_own[rank]);
            sum ^= grads[ranks[i]][optim_own[rank]];
        }
        CHECK(sum == ranks_of_group(rank, n));
        for (uint32_t i = 0; i < param_piece; i++)
            CHECK_INT(params[rank][param_own[rank] + i], 100 + param_own[rank] + i);
    }
}

static void scatter_and_second_hop_sum_over_all_ranks_and_publish_restores_the_parameters(void)
{
    walk(check_sync_and_publish);
}

static bool is_stage(int kind)
{
    return kind == MICS_COMM_GATHER_NET || kind == MICS_COMM_GATHER_NODE ||
           kind == MICS_COMM_REDUCE_NODE || kind == MICS_COMM_REDUCE_NET;
}

/* Are all ranks that are together in `inner` together in `outer`? */
static bool holds(int outer, int inner)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (members[inner][i].color == members[inner][j].color &&
                members[outer][i].color != members[outer][j].color)
                return false;
    return true;
}

static void check_levels(void)
{
    for (int outer = 0; outer < MICS_COMM_KIND_COUNT; outer++)
        for (int inner = 0; inner < MICS_COMM_KIND_COUNT; inner++)
            if (!is_stage(outer) && !is_stage(inner))
                CHECK_INT((mics_shape_levels(&shape, (enum mics_comm_kind)inner) &
                           ~mics_shape_levels(&shape, (enum mics_comm_kind)outer)) == 0,
                          holds(outer, inner));
}

static void levels_tell_which_communicators_hold_the_ranks_of_others(void)
{
    walk(check_levels);
    shape = (struct mics_shape){4, 2, 4, 8, 8};
    CHECK_INT(mics_shape_levels(&shape, MICS_COMM_GATHER_NET),
              mics_shape_levels(&shape, MICS_COMM_GATHER));
    CHECK_INT(mics_shape_levels(&shape, MICS_COMM_REDUCE_NODE),
              mics_shape_levels(&shape, MICS_COMM_REDUCE));
}

static void the_index_of_a_group_of_whole_nodes_is_local_rank_times_nodes_plus_node(void)
{
    shape = (struct mics_shape){4, 8, 16, 16, 16};
    for (uint32_t rank = 0; rank < 32; rank++)
        CHECK_INT(mics_shape_index(&shape, rank).param, rank % 8 * 2 + rank / 8 % 2);
}

static void expect_refusal(struct mics_shape bad, const char *why)
{
    struct mics_err err = {""};

    CHECK_INT(mics_shape_check(&bad, &err), MICS_ERR_ARG);
    CHECK(strstr(err.text, why) != NULL);
}

static void shapes_that_do_not_nest_or_straddle_nodes_unevenly_are_refused(void)
{
    expect_refusal((struct mics_shape){2, 6, 4, 12, 12}, "straddles nodes of 6 ranks unevenly");
    expect_refusal((struct mics_shape){4, 2, 4, 2, 8}, "not a multiple of the group of 4");
    expect_refusal((struct mics_shape){4, 2, 3, 3, 3}, "does not divide the 8 ranks");
    expect_refusal((struct mics_shape){4, 2, 1, 1, 0}, "does not divide");
    expect_refusal((struct mics_shape){0, 2, 1, 1, 1}, "out of range");
    expect_refusal((struct mics_shape){1u << 20, 1u << 20, 1, 1, 1}, "out of range");
}

static void only_groups_of_several_nodes_with_several_ranks_each_have_a_hierarchy(void)
{
    struct mics_shape two = {4, 2, 4, 4, 4}, one = {8, 1, 4, 4, 4};

    CHECK(mics_shape_has_hierarchy(&two, 4));
    CHECK(!mics_shape_has_hierarchy(&two, 2));
    CHECK(!mics_shape_has_hierarchy(&one, 4));
}

int main(void)
{
    TAP_RUN(every_communicator_partitions_the_ranks_and_blocks_are_permutations);
    TAP_RUN(optimizer_pieces_lie_inside_gradient_pieces_inside_parameter_pieces);
    TAP_RUN(flat_and_hierarchical_gathers_end_in_natural_order_in_place);
    TAP_RUN(flat_and_hierarchical_reductions_end_with_the_rank_s_own_piece);
    TAP_RUN(scatter_and_second_hop_sum_over_all_ranks_and_publish_restores_the_parameters);
    TAP_RUN(levels_tell_which_communicators_hold_the_ranks_of_others);
    TAP_RUN(the_index_of_a_group_of_whole_nodes_is_local_rank_times_nodes_plus_node);
    TAP_RUN(shapes_that_do_not_nest_or_straddle_nodes_unevenly_are_refused);
    TAP_RUN(only_groups_of_several_nodes_with_several_ranks_each_have_a_hierarchy);
    return tap_done();
}
