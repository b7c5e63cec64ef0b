/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - loads the state that was found in memory. */
#include "ckpt/memory/recover.h"

#include "base/num.h"
#include "ckpt/store.h"
#include "comm/agree.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Data on their way from one rank to another: the ranges of the receiver that the sender serves,
 * in the receiver's order, and their XXH64. */
struct message {
    char *data;
    uint64_t bytes; /* with the sum; 0: nothing is sent */
    uint64_t taken;
};

struct load {
    const struct mics_checkpoint *checkpoint;
    const struct mics_memory_node *node;
    const struct mics_memory_state *state;
    struct mics_ckpt_table table; /* how the state is cut */
    struct mics_store store;      /* the shards that are on this node; others are closed */
    uint32_t *units;              /* [unit_count]: the table's index of the model's units */
    uint32_t *first_entry;        /* [shards + 1]: of each shard in state->entries */
    uint32_t *first_rank;         /* [nodes + 1]: of each node */
    struct message *received;     /* [world size] by sender */
};

static uint32_t shards_of(const struct load *load)
{
    return load->table.shard_count;
}

/* The rank that reads a shard for `receiver`: itself if its node has it. The nodes that have a
 * shard, and the ranks of a node, take turns. */
static uint32_t server_of(const struct load *load, uint32_t receiver, uint32_t shard)
{
    const struct mics_memory_state *state = load->state;
    const uint32_t first = load->first_entry[shard], count = load->first_entry[shard + 1] - first;

    for (uint32_t i = 0; i < count; i++)
        if (state->entries[first + i].node == state->nodes[receiver])
            return receiver;
    const uint32_t node = state->entries[first + (receiver + shard) % count].node;
    const uint32_t ranks = load->first_rank[node + 1] - load->first_rank[node];

    return load->first_rank[node] + shard % ranks;
}

/* Where ranges go while the list of a receiver is walked. */
struct walk {
    const struct load *load;
    uint32_t receiver, server;
    char *data;     /* the message that is made; NULL: it is only measured */
    uint64_t bytes; /* so far */
};

static enum mics_status drop(void *context, uint32_t unit, uint32_t state, uint64_t first,
                             uint64_t count, const float *src, struct mics_err *err)
{
    (void)context, (void)unit, (void)state, (void)first, (void)count, (void)src, (void)err;
    return MICS_OK;
}

/* The run of the in-memory checkpoint that begins at an element of a unit of the model. */
static struct mics_extent run_at(const struct load *load, uint32_t unit, uint32_t state,
                                 uint64_t first, uint64_t count)
{
    return mics_store_locate(&load->store, mics_vector_of(load->units[unit], state), first, count);
}

static uint64_t unit_end(const struct load *load, uint32_t unit, uint64_t first, uint64_t count)
{
    return mics_min_u64(load->table.units[load->units[unit]].layout.count, first + count);
}

/* Append what the server has of a range to the message. */
static enum mics_status walk_range(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                   uint64_t count, float *dst, struct mics_err *err)
{
    struct walk *walk = context;
    const uint64_t end = unit_end(walk->load, unit, first, count);
    enum mics_status status = MICS_OK;

    (void)dst;
    while (status == MICS_OK && first < end) {
        const struct mics_extent run = run_at(walk->load, unit, state, first, end - first);

        first += run.count;
        if (server_of(walk->load, walk->receiver, run.file) != walk->server)
            continue;
        if (walk->data)
            status =
                mics_store_read_extent(&walk->load->store, &run, walk->data + walk->bytes, err);
        walk->bytes += run.count * sizeof(float);
    }
    return status;
}

/* That the state and the run have in common. */
static uint32_t states_of(const struct load *load)
{
    return mics_ckpt_common_states(load->table.states, load->checkpoint->form->states);
}

/* Measure, or with `data` make, the message of a server to a receiver. */
static enum mics_status walk_ranges(const struct load *load, uint32_t receiver, uint32_t server,
                                    char *data, uint64_t *bytes, struct mics_err *err)
{
    const struct mics_ckpt_layout *form = load->checkpoint->form;
    const struct mics_ckpt_source nowhere = {.put = drop};
    struct walk walk = {.load = load, .receiver = receiver, .server = server, .data = data};
    const enum mics_status status =
        mics_shard_read(form, receiver, states_of(load), walk_range, &walk, &nowhere, err);

    *bytes = walk.bytes;
    return status;
}

static enum mics_status make_message(const struct load *load, uint32_t receiver, uint32_t server,
                                     bool fill, struct message *message, struct mics_err *err)
{
    uint64_t bytes = 0;
    enum mics_status status = walk_ranges(load, receiver, server, NULL, &bytes, err);

    if (status != MICS_OK || bytes == 0)
        return status;
    message->bytes = bytes + sizeof(uint64_t);
    message->data = malloc(message->bytes);
    if (!message->data)
        return mics_err_nomem(err);
    if (!fill)
        return MICS_OK;
    status = walk_ranges(load, receiver, server, message->data, &bytes, err);
    const uint64_t sum = XXH64(message->data, bytes, 0);

    memcpy(message->data + bytes, &sum, sizeof sum);
    return status;
}

static enum mics_status check_message(const struct message *message, uint32_t sender,
                                      struct mics_err *err)
{
    const uint64_t bytes = message->bytes ? message->bytes - sizeof(uint64_t) : 0;
    uint64_t sum;

    if (bytes == 0)
        return MICS_OK;
    memcpy(&sum, message->data + bytes, sizeof sum);
    if (sum == XXH64(message->data, bytes, 0))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_IO, "state from the memory of rank %u was damaged on its way",
                        sender);
}

/* In round d each rank sends to the one d ahead. */
static enum mics_status fetch_round(struct load *load, uint32_t distance, struct mics_err *err)
{
    struct mics_comm *comm = load->checkpoint->comm;
    const uint32_t size = (uint32_t)comm->size, rank = (uint32_t)comm->rank;
    const uint32_t to = (rank + distance) % size, from = (rank + size - distance) % size;
    struct message out = {.data = NULL}, *in = &load->received[from];
    enum mics_status status = make_message(load, to, rank, true, &out, err);

    if (status == MICS_OK)
        status = make_message(load, rank, from, false, in, err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = mics_comm_sendrecv_now(comm, out.data, out.bytes, out.bytes ? (int)to : -1,
                                        in->data, in->bytes, in->bytes ? (int)from : -1, 0, err);
    if (status == MICS_OK)
        status = check_message(in, from, err);
    free(out.data);
    return mics_agree(comm, status, err);
}

/* What a rank needs, from its node's files and from the messages. */
static enum mics_status read_range(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                   uint64_t count, float *dst, struct mics_err *err)
{
    struct load *load = context;
    const uint32_t rank = (uint32_t)load->checkpoint->comm->rank;
    const uint64_t end = unit_end(load, unit, first, count);
    uint64_t at = first;
    enum mics_status status = MICS_OK;

    while (status == MICS_OK && at < end) {
        const struct mics_extent run = run_at(load, unit, state, at, end - at);
        struct message *message = &load->received[server_of(load, rank, run.file)];

        if (server_of(load, rank, run.file) == rank) {
            status = mics_store_read_extent(&load->store, &run, dst + (at - first), err);
        } else {
            memcpy(dst + (at - first), message->data + message->taken, run.count * sizeof *dst);
            message->taken += run.count * sizeof *dst;
        }
        at += run.count;
    }
    memset(dst + (at - first), 0, (first + count - at) * sizeof *dst); /* padding */
    return status;
}

/* Index the entries by shard, and the ranks by node. */
static enum mics_status index_places(struct load *load, struct mics_err *err)
{
    const struct mics_memory_state *state = load->state;
    const uint32_t size = (uint32_t)load->checkpoint->comm->size;

    load->first_entry = calloc((size_t)shards_of(load) + 1, sizeof *load->first_entry);
    load->first_rank = calloc((size_t)load->node->node_count + 1, sizeof *load->first_rank);
    load->received = calloc(size, sizeof *load->received);
    if (!load->first_entry || !load->first_rank || !load->received)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < state->entry_count; i++)
        load->first_entry[state->entries[i].shard + 1]++;
    for (uint32_t i = 0; i < shards_of(load); i++)
        load->first_entry[i + 1] += load->first_entry[i];
    for (uint32_t rank = 0; rank < size; rank++)
        load->first_rank[state->nodes[rank] + 1]++;
    for (uint32_t i = 0; i < load->node->node_count; i++)
        load->first_rank[i + 1] += load->first_rank[i];
    return MICS_OK;
}

/* Open a shard of this node. Its tensors follow one another without a header. */
static enum mics_status open_shard(struct load *load, const struct mics_memory_ckpt_entry *entry,
                                   struct mics_err *err)
{
    struct mics_store_file *file = &load->store.files[entry->shard];
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_memory_ckpt_shard_path(
        load->node->folder, entry->shard, entry->shards, entry->generation, path, err);

    if (status != MICS_OK || file->fd >= 0)
        return status;
    free(file->path);
    file->path = strdup(path);
    return file->path ? mics_store_file_open(file, err) : mics_err_nomem(err);
}

static enum mics_status set_offsets(struct load *load, uint32_t shard, struct mics_err *err)
{
    struct mics_store_file *file = &load->store.files[shard];
    const struct mics_ckpt_table *table = &load->table;
    const size_t count = (size_t)table->unit_count * table->states;
    uint64_t offset = MICS_MEMORY_CKPT_DATA;

    file->tensor_offsets = calloc(count, sizeof *file->tensor_offsets);
    if (!file->tensor_offsets)
        return mics_err_nomem(err);
    for (size_t i = 0; i < count; i++) {
        const struct mics_ckpt_unit *unit = &table->units[i / table->states];

        if (!mics_ckpt_file_has(table, unit, shard))
            continue;
        file->tensor_offsets[i] = offset;
        offset += mics_layout_optim_shard(&unit->layout) * sizeof(float);
    }
    return MICS_OK;
}

static enum mics_status open_store(struct load *load, struct mics_err *err)
{
    const struct mics_memory_state *state = load->state;
    struct mics_store *store = &load->store;
    enum mics_status status = MICS_OK;

    store->shards = &load->table;
    store->files = calloc(shards_of(load), sizeof *store->files);
    store->tensor_names =
        calloc((size_t)load->table.unit_count * load->table.states, sizeof *store->tensor_names);
    if (!store->files || !store->tensor_names)
        return mics_err_nomem(err);
    store->file_count = shards_of(load);
    for (uint32_t i = 0; i < store->file_count; i++)
        store->files[i].fd = -1;
    for (uint32_t i = 0; status == MICS_OK && i < store->file_count; i++)
        status = set_offsets(load, i, err);
    for (uint32_t i = 0; status == MICS_OK && i < state->entry_count; i++)
        if (state->entries[i].node == load->node->node)
            status = open_shard(load, &state->entries[i], err);
    return status;
}

/* Are the shards those that the table describes? A manifest of a checkpoint may have more. */
static enum mics_status check_cut(const struct load *load, struct mics_err *err)
{
    bool same = load->table.parts == 1;

    for (uint32_t i = 0; i < load->state->entry_count; i++)
        same = same && load->state->entries[i].shards == shards_of(load);
    return same ? MICS_OK
                : mics_err_set(err, MICS_ERR_FORMAT, "the manifest does not describe the shards");
}

static enum mics_status open_load(struct load *load, struct mics_err *err)
{
    const struct mics_ckpt_layout *form = load->checkpoint->form;
    enum mics_status status = mics_ckpt_table_read(load->state->doc, &load->table, err);

    if (status != MICS_OK)
        return status;
    status = mics_manifest_match(load->state->doc, &load->table, form, err);
    if (status != MICS_OK)
        return status;
    status = mics_ckpt_map_units(&load->table, form->model, &load->units, err);
    if (status != MICS_OK)
        return status;
    status = check_cut(load, err);
    if (status != MICS_OK)
        return status;
    status = index_places(load, err);
    if (status != MICS_OK)
        return status;
    return open_store(load, err);
}

static void close_load(struct load *load)
{
    for (int i = 0; load->received && i < load->checkpoint->comm->size; i++)
        free(load->received[i].data);
    free(load->received);
    free(load->first_entry);
    free(load->first_rank);
    free(load->units);
    mics_store_close(&load->store);
    mics_ckpt_table_free(&load->table);
}

enum mics_status mics_memory_load(const struct mics_checkpoint *checkpoint,
                                  const struct mics_memory_node *node,
                                  struct mics_memory_state *state, struct mics_err *err)
{
    struct load load = {.checkpoint = checkpoint, .node = node, .state = state};
    struct mics_comm *comm = checkpoint->comm;
    const struct mics_ckpt_layout *form = checkpoint->form;
    enum mics_status status = mics_agree(comm, open_load(&load, err), err);

    for (uint32_t i = 1; status == MICS_OK && i < (uint32_t)comm->size; i++)
        status = fetch_round(&load, i, err);
    for (int i = 0; status == MICS_OK && i < comm->size; i++)
        if (load.received[i].bytes)
            state->received_bytes += load.received[i].bytes - sizeof(uint64_t);
    if (status == MICS_OK)
        status = mics_shard_read(form, (uint32_t)comm->rank, states_of(&load), read_range, &load,
                                 &checkpoint->source, err);
    close_load(&load);
    return mics_agree(comm, status, err);
}
