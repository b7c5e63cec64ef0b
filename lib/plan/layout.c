/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"

#include "base/num.h"

struct mics_layout mics_layout_cut(const struct mics_shape *shape, uint64_t count,
                                   uint32_t segments)
{
    const uint64_t segment_count = count / segments;

    return (struct mics_layout){
        .count = count,
        .padded = count,
        .segments = segments,
        .segment_count = segment_count,
        .param_piece = segment_count / shape->p_param,
        .grad_piece = segment_count / shape->p_grad,
        .optim_piece = segment_count / shape->p_optim,
    };
}

struct mics_layout mics_layout_make(const struct mics_shape *shape, uint64_t unit_count,
                                    uint32_t segments)
{
    const uint64_t grain = (uint64_t)segments * shape->p_optim * MICS_TENSOR_ALIGN;
    struct mics_layout layout = mics_layout_cut(shape, mics_round_up(unit_count, grain), segments);

    layout.count = unit_count;
    return layout;
}

uint64_t mics_layout_param_shard(const struct mics_layout *layout)
{
    return layout->param_piece * layout->segments;
}

uint64_t mics_layout_grad_shard(const struct mics_layout *layout)
{
    return layout->grad_piece * layout->segments;
}

uint64_t mics_layout_optim_shard(const struct mics_layout *layout)
{
    return layout->optim_piece * layout->segments;
}

uint64_t mics_layout_piece_offset(const struct mics_layout *layout, uint32_t segment,
                                  uint64_t piece, uint32_t index)
{
    return segment * layout->segment_count + index * piece;
}
