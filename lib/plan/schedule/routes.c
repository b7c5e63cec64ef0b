/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule/routes.h"

static struct mics_hop hop(const struct mics_shape *shape, enum mics_comm_kind comm, bool gathers,
                           uint32_t divisor)
{
    struct mics_member member;
    enum mics_stream_kind net = gathers ? MICS_STREAM_GATHER_NET : MICS_STREAM_REDUCE_NET;
    enum mics_stream_kind node = gathers ? MICS_STREAM_GATHER_NODE : MICS_STREAM_REDUCE_NODE;

    mics_shape_member(shape, comm, 0, &member);
    return (struct mics_hop){comm, member.nodes > 1 ? net : node, divisor};
}

static struct mics_exchange flat(const struct mics_shape *shape, enum mics_comm_kind comm,
                                 bool gathers, uint32_t divisor)
{
    struct mics_member member;

    mics_shape_member(shape, comm, 0, &member);
    if (member.size == 1)
        return (struct mics_exchange){.hop_count = 0};
    return (struct mics_exchange){{hop(shape, comm, gathers, divisor)}, 1};
}

struct mics_wiring mics_wiring_of(const struct mics_plan_choice *choice)
{
    const struct mics_shape *shape = &choice->shape;
    uint32_t k = shape->per_node;
    struct mics_wiring wiring = {
        .gather = flat(shape, MICS_COMM_GATHER, true, 1),
        .reduce = flat(shape, MICS_COMM_REDUCE, false, 1),
        .scatter = flat(shape, MICS_COMM_SCATTER, false, shape->p_grad),
        .sync = flat(shape, MICS_COMM_REPLICA, false, shape->p_optim),
        .publish = flat(shape, MICS_COMM_PUBLISH, true, shape->p_param),
    };

    if (choice->hierarchical_gather && mics_shape_has_hierarchy(shape, shape->p_param))
        wiring.gather = (struct mics_exchange){
            {hop(shape, MICS_COMM_GATHER_NET, true, k), hop(shape, MICS_COMM_GATHER_NODE, true, 1)},
            2};
    if (choice->hierarchical_reduce && mics_shape_has_hierarchy(shape, shape->p_grad))
        wiring.reduce = (struct mics_exchange){{hop(shape, MICS_COMM_REDUCE_NODE, false, 1),
                                                hop(shape, MICS_COMM_REDUCE_NET, false, k)},
                                               2};
    if (wiring.reduce.hop_count > 0)
        wiring.accumulate = wiring.reduce.hops[wiring.reduce.hop_count - 1].stream;
    return wiring;
}
