/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups.c - the groups that are measured, and the phases of a ring. */
#include "measure/links.h"
#include "measure/measure_group.h"
#include "tap.h"

#include <stdlib.h>

/* "1x2 2x1 2x2" */
static const char *list(uint32_t nodes, uint32_t per_node, char *text)
{
    struct mics_group_shape *shapes = NULL;
    uint32_t count = 0;

    text[0] = '\0';
    CHECK_INT(mics_group_shapes_list(nodes, per_node, &shapes, &count, NULL), MICS_OK);
    for (uint32_t i = 0; i < count; i++)
        sprintf(text + strlen(text), "%s%ux%u", i ? " " : "", shapes[i].nodes, shapes[i].per_node);
    free(shapes);
    return text;
}

static void the_shapes_are_those_that_a_plan_may_form(void)
{
    char text[400];

    CHECK_STR(list(1, 1, text), "");
    CHECK_STR(list(1, 4, text), "1x2 1x4");
    CHECK_STR(list(2, 2, text), "1x2 2x1 2x2");
    CHECK_STR(list(3, 1, text), "3x1");
    CHECK_STR(list(4, 4, text), "1x2 2x1 1x4 4x1 2x4 4x2 4x4");
}

static void the_largest_cluster_fits(void)
{
    struct mics_group_shape *shapes = NULL;
    uint32_t count = 0;

    CHECK_INT(mics_group_shapes_list(55440, 840, &shapes, &count, NULL), MICS_OK);
    CHECK_INT(count, 2 * 120 + 2 * 32 - 4 - 1); /* two columns, two rows, their corners, 1x1 */
    free(shapes);
}

/* Each listed shape is that of a communicator of some plan, on every rank. */
static void each_shape_has_its_groups(void)
{
    static const uint32_t sizes[][2] = {{1, 8}, {4, 4}, {3, 6}, {8, 1}, {6, 4}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct mics_world world = {.node_count = sizes[i][0],
                                         .local_size = sizes[i][1],
                                         .size = sizes[i][0] * sizes[i][1]};
        struct mics_group_shape *shapes = NULL;
        uint32_t count = 0;

        CHECK_INT(mics_group_shapes_list(sizes[i][0], sizes[i][1], &shapes, &count, NULL), MICS_OK);
        for (uint32_t s = 0; s < count; s++) {
            const struct mics_bench_grouping grouping =
                mics_bench_grouping_of_shape(&world, &shapes[s]);

            CHECK_INT(mics_shape_check(&grouping.shape, NULL), MICS_OK);
            for (uint32_t rank = 0; rank < world.size; rank++) {
                struct mics_group_position member;

                mics_shape_position(&grouping.shape, grouping.kind, rank, &member);
                CHECK_INT(member.nodes, shapes[s].nodes);
                CHECK_INT(member.per_node, shapes[s].per_node);
            }
        }
        free(shapes);
    }
}

static void no_member_is_in_two_pairs_of_a_phase(void)
{
    for (uint32_t count = 2; count < 20; count++) {
        uint32_t seen = 0;

        for (uint32_t phase = 0; phase < mics_ring_phases(count); phase++) {
            bool busy[20] = {false};

            for (uint32_t e = 0; e < mics_ring_edges(count); e++) {
                if (mics_ring_phase(count, e) != phase)
                    continue;
                CHECK(!busy[e] && !busy[(e + 1) % count]);
                busy[e] = busy[(e + 1) % count] = true;
                seen++;
            }
        }
        CHECK_INT(seen, count == 2 ? 1 : count);
    }
}

int main(void)
{
    TAP_RUN(the_shapes_are_those_that_a_plan_may_form);
    TAP_RUN(the_largest_cluster_fits);
    TAP_RUN(each_shape_has_its_groups);
    TAP_RUN(no_member_is_in_two_pairs_of_a_phase);
    return tap_done();
}
