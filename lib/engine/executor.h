/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executor.h - the communication of a schedule: groups, streams, addresses and waits.
 *
 * Training steps and benchmarks share it. An executor has one communicator for each kind that its
 * schedules use, split as the shape of their units says, and one stream for each kind of stream.
 * Each hop of an exchange is one collective on one of these communicators, or a conversion.
 */
#ifndef MICS_ENGINE_EXECUTOR_H
#define MICS_ENGINE_EXECUTOR_H

#include "comm/comm.h"
#include "plan/schedule/launches.h"

/* The groups that exchange units of one kind, and this rank's place in them. */
struct mics_groups {
    struct mics_shape shape;
    struct mics_index index;
    struct mics_group_position members[MICS_COMM_KIND_COUNT];
    struct mics_comm *comms[MICS_COMM_KIND_COUNT]; /* NULL: no schedule has needed it so far */
};

struct mics_executor {
    struct mics_device *device;                      /* the caller's */
    struct mics_comm *comm;                          /* the caller's: all ranks, in node order */
    struct mics_groups groups[MICS_UNIT_KIND_COUNT]; /* operations name theirs */
    struct mics_stream *streams[MICS_STREAM_COUNT];  /* NULL: not used */
    struct mics_rounding rounding; /* of gradients and sums in blocks; the caller's to set */
};

/* The caller's storage; nothing to release yet. shapes[MICS_UNIT_KIND_COUNT] must have been
 * checked. */
void mics_executor_init(struct mics_executor *executor, struct mics_device *device,
                        struct mics_comm *comm, const struct mics_shape *shapes);
/* Close the streams and free the communicators. Collective. */
void mics_executor_fini(struct mics_executor *executor);

/* All but those that only schedules with tokens that travel to experts have. */
enum mics_status mics_executor_open_streams(struct mics_executor *executor, struct mics_err *err);
/* Split off the communicators that the schedule uses and that are not there yet, and open the
 * streams of tokens that travel to experts if it has them. Collective: all
 * ranks have the same schedules, so they split the same kinds in the same order; they fail
 * together. */
enum mics_status mics_executor_open_comms(struct mics_executor *executor,
                                          const struct mics_schedule *schedule,
                                          struct mics_err *err);

/* A buffer, one piece for each segment: piece t begins `t * stride` elements after `first`. */
struct mics_pieces {
    void *first;
    uint64_t stride;
};

/* The pieces of shard `index` in a slot, or another array that holds the whole unit. */
struct mics_pieces mics_pieces_in_slot(void *slot, const struct mics_layout *layout, uint64_t piece,
                                       uint32_t index, enum mics_dtype dtype);

/* Enqueue one hop of a unit with this layout. buffers[MICS_BUFFER_COUNT], by enum mics_buffer, say
 * where in device memory its operands are; those that it does not use may be 0. What the hop waits
 * for is the caller's to enqueue. */
void mics_executor_issue(const struct mics_executor *executor, const struct mics_op *op,
                         const struct mics_layout *layout, struct mics_stream *stream,
                         const struct mics_pieces *buffers);

/* How a schedule is enqueued. The waits that it asks for are made between the operations. */
struct mics_replay {
    const struct mics_schedule *schedule;
    struct mics_stream *const *streams;   /* [MICS_STREAM_COUNT], by kind */
    struct mics_event *const *begin;      /* [op_count]; NULL: begins are not recorded */
    struct mics_event *const *end;        /* [op_count]; one of them NULL: not recorded */
    struct mics_event *const *end_before; /* of the step before; NULL: that is known to be over */
    uint32_t first, micro_steps; /* enqueue operations of these; 0 micro-steps: all operations */

    /* Does the operation do nothing in this replay? Its waits and events stay. NULL: none does. */
    bool (*is_idle)(void *context, uint32_t index);
    /* What is enqueued between the waits of an operation and its begin, or NULL; and the operation
     * itself. */
    void (*enter)(void *context, uint32_t index, struct mics_stream *stream);
    void (*issue)(void *context, uint32_t index, struct mics_stream *stream);
    void *context;
};

/* Enqueue the operations in order. Communicators that the schedule uses must be open. */
void mics_executor_replay(const struct mics_executor *executor, const struct mics_replay *replay);

/* One exchange (schedule.h) that can be enqueued again and again. */
struct mics_exchange_replay;

/* Collective over the executor's ranks if the exchange needs a communicator that is not there yet.
 * The executor must outlive *out. Errors: those of mics_schedule_new_exchange(), of split and of
 * the device. */
enum mics_status mics_exchange_replay_new(struct mics_executor *executor,
                                          const struct mics_plan_choice *choice,
                                          enum mics_exchange_kind kind, uint64_t count,
                                          struct mics_exchange_replay **out, struct mics_err *err);
void mics_exchange_replay_free(struct mics_exchange_replay *replay); /* its streams must be idle */

/* Enqueue the operations of micro-steps [first, first + count). They begin when `stream` gets
 * there, and what is enqueued on `stream` afterwards follows all of them: the last operation runs
 * on it, others on streams of the executor where the schedule says so. */
void mics_exchange_replay_enqueue(struct mics_exchange_replay *replay, struct mics_stream *stream,
                                  uint32_t first, uint32_t count,
                                  const struct mics_pieces *buffers);

/* Offset of this rank's optimizer piece inside its piece of the same segment of another cut. */
static inline uint64_t mics_groups_optim_in_param(const struct mics_groups *groups,
                                                  const struct mics_layout *layout)
{
    return groups->index.optim * layout->optim_piece - groups->index.param * layout->param_piece;
}

static inline uint64_t mics_groups_optim_in_grad(const struct mics_groups *groups,
                                                 const struct mics_layout *layout)
{
    return groups->index.optim * layout->optim_piece - groups->index.grad * layout->grad_piece;
}

#endif
