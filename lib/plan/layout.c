/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout.h"

#include "base/num.h"

struct mics_layout mics_layout_make(const struct mics_shape *shape, uint64_t unit_count,
                                    uint32_t segments)
{
    uint64_t grain = (uint64_t)segments * shape->p_optim * MICS_TENSOR_ALIGN;
    struct mics_layout layout = {.count = unit_count, .segments = segments};

    layout.padded = mics_round_up(unit_count, grain);
    layout.segment_count = layout.padded / segments;
    layout.param_piece = layout.segment_count / shape->p_param;
    layout.grad_piece = layout.segment_count / shape->p_grad;
    layout.optim_piece = layout.segment_count / shape->p_optim;
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
