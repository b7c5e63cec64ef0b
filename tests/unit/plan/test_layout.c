/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"
#include "tap.h"

static const struct mics_shape shape = {4, 2, 4, 4, 8};

static void a_unit_is_padded_to_equal_aligned_optimizer_pieces(void)
{
    struct mics_layout layout = mics_layout_make(&shape, 10001, 3, MICS_TENSOR_ALIGN);

    CHECK_INT(layout.padded % (3 * 8 * 64), 0);
    CHECK(layout.padded >= 10001 && layout.padded < 10001 + 3 * 8 * 64);
    CHECK_INT(layout.segment_count * 3, layout.padded);
    CHECK_INT(layout.param_piece * 4, layout.segment_count);
    CHECK_INT(layout.grad_piece * 4, layout.segment_count);
    CHECK_INT(layout.optim_piece * 8, layout.segment_count);
    CHECK_INT(layout.optim_piece % 64, 0);
}

static void shards_of_all_ranks_of_a_group_make_the_padded_unit(void)
{
    struct mics_layout layout = mics_layout_make(&shape, 10001, 3, MICS_TENSOR_ALIGN);

    CHECK_INT(mics_layout_param_shard(&layout) * 4, layout.padded);
    CHECK_INT(mics_layout_grad_shard(&layout) * 4, layout.padded);
    CHECK_INT(mics_layout_optim_shard(&layout) * 8, layout.padded);
}

static void pieces_tile_the_unit_segment_by_segment(void)
{
    struct mics_layout layout = mics_layout_make(&shape, 777, 2, MICS_TENSOR_ALIGN);
    uint64_t next = 0;

    for (uint32_t segment = 0; segment < 2; segment++)
        for (uint32_t index = 0; index < 8; index++) {
            CHECK_INT(mics_layout_piece_offset(&layout, segment, layout.optim_piece, index), next);
            next += layout.optim_piece;
        }
    CHECK_INT(next, layout.padded);
}

static void a_size_that_fits_exactly_is_not_padded(void)
{
    CHECK_INT(mics_layout_make(&shape, 2 * 8 * 64, 2, MICS_TENSOR_ALIGN).padded, 2 * 8 * 64);
    CHECK_INT(mics_layout_make(&shape, 1, 1, MICS_TENSOR_ALIGN).padded, 8 * 64);
}

int main(void)
{
    TAP_RUN(a_unit_is_padded_to_equal_aligned_optimizer_pieces);
    TAP_RUN(shards_of_all_ranks_of_a_group_make_the_padded_unit);
    TAP_RUN(pieces_tile_the_unit_segment_by_segment);
    TAP_RUN(a_size_that_fits_exactly_is_not_padded);
    return tap_done();
}
