/* SPDX-License-Identifier: Apache-2.0 */
/* find.c - which state the nodes have in memory. */
#include "ckpt/memory/recover.h"
#include "comm/agree.h"
#include "doc/doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mics_memory_state_fini(struct mics_memory_state *state)
{
    json_decref(state->doc);
    free(state->entries);
    free(state->nodes);
    *state = (struct mics_memory_state){.doc = NULL};
}

static bool is_valid(const struct mics_memory_ckpt_record *record,
                     const struct mics_memory_ckpt_entry *entry)
{
    return entry->stamp == record->stamp ||
           (entry->stamp == record->from_stamp && entry->step == record->from_step);
}

/* This rank's share of what its node has, with the checksums compared. */
static enum mics_status list_own(const struct mics_memory_node *node,
                                 const struct mics_memory_ckpt_record *record,
                                 struct mics_memory_ckpt_entry **entries, uint32_t *count,
                                 struct mics_err *err)
{
    uint32_t all = 0;
    enum mics_status status = mics_memory_ckpt_list(node->folder, entries, &all, err);

    *count = 0;
    for (uint32_t i = 0; status == MICS_OK && i < all; i++) {
        struct mics_memory_ckpt_entry entry = (*entries)[i];
        const uint32_t owner =
            entry.shard == MICS_MEMORY_CKPT_MANIFEST ? 0 : (2 * entry.shard + entry.generation);

        if (owner % node->local_size != node->local_rank ||
            (!entry.damaged && !is_valid(record, &entry)))
            continue;
        entry.node = node->node;
        if (!entry.damaged)
            entry.damaged = mics_memory_ckpt_verify(node->folder, &entry, NULL) != MICS_OK;
        (*entries)[(*count)++] = entry;
    }
    return status;
}

/* The entries of all ranks together. */
static enum mics_status share(struct mics_comm *comm, const struct mics_memory_ckpt_entry *own,
                              uint32_t own_count, struct mics_memory_state *state,
                              struct mics_err *err)
{
    const size_t size = (size_t)comm->size;
    uint32_t *counts = calloc(size, sizeof *counts), most = 1;
    struct mics_memory_ckpt_entry *padded = NULL, *all = NULL;
    enum mics_status status = mics_agree(comm, counts ? MICS_OK : mics_err_nomem(err), err);

    if (status != MICS_OK)
        goto out;
    status = mics_comm_all_gather_now(comm, &own_count, counts, sizeof own_count, err);
    if (status != MICS_OK)
        goto out;
    for (size_t i = 0; i < size; i++)
        most = counts[i] > most ? counts[i] : most;
    padded = calloc(most, sizeof *padded);
    all = calloc(size * most, sizeof *all);
    status = mics_agree(comm, padded && all ? MICS_OK : mics_err_nomem(err), err);
    if (status != MICS_OK)
        goto out;
    if (own_count > 0)
        memcpy(padded, own, own_count * sizeof *own);
    status = mics_comm_all_gather_now(comm, padded, all, most * sizeof *padded, err);
    if (status != MICS_OK)
        goto out;
    for (size_t i = 0; i < size; i++)
        for (uint32_t j = 0; j < counts[i]; j++)
            all[state->entry_count++] = all[i * most + j];
    state->entries = all;
    all = NULL;
out:
    free(counts);
    free(padded);
    free(all);
    return status;
}

/* Newest first; then by stamp, then manifests last. */
static int by_age(const void *a, const void *b)
{
    const struct mics_memory_ckpt_entry *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    if (x->stamp != y->stamp)
        return x->stamp < y->stamp ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* A generation: entries [first, end), of one stamp and step. */
struct generation {
    const struct mics_memory_ckpt_entry *entries;
    uint32_t count;
};

static struct generation generation_at(const struct mics_memory_state *state, uint32_t first)
{
    const struct mics_memory_ckpt_entry *begin = &state->entries[first];
    struct generation found = {.entries = begin};

    while (first + found.count < state->entry_count && begin[found.count].step == begin->step &&
           begin[found.count].stamp == begin->stamp)
        found.count++;
    return found;
}

/* The first node that has the manifest undamaged, or -1. *damaged: another one has it. */
static int64_t manifest_node(const struct generation *generation, bool *damaged)
{
    *damaged = false;
    for (uint32_t i = 0; i < generation->count; i++) {
        const struct mics_memory_ckpt_entry *entry = &generation->entries[i];

        if (entry->shard == MICS_MEMORY_CKPT_MANIFEST && !entry->damaged)
            return entry->node;
        *damaged |= entry->shard == MICS_MEMORY_CKPT_MANIFEST;
    }
    return -1;
}

/* The manifest, from the first rank of `node`, on all ranks. NULL: it is damaged. */
static enum mics_status read_manifest(struct mics_comm *comm, const struct mics_memory_node *own,
                                      const struct mics_memory_ckpt_entry *of, int64_t node,
                                      json_t **doc, struct mics_err *err)
{
    int root = -1, candidate = own->node == (uint32_t)node && own->local_rank == 0;
    int *leads = calloc((size_t)comm->size, sizeof *leads);
    char path[MICS_PATH_MAX], *data = NULL;
    uint64_t size = 0;
    enum mics_status status = mics_agree(comm, leads ? MICS_OK : mics_err_nomem(err), err);

    *doc = NULL;
    if (status == MICS_OK)
        status = mics_comm_all_gather_now(comm, &candidate, leads, sizeof candidate, err);
    for (int i = comm->size - 1; status == MICS_OK && i >= 0; i--)
        root = leads[i] ? i : root;
    free(leads);
    if (status == MICS_OK && candidate &&
        mics_memory_ckpt_manifest_path(own->folder, of->stamp, of->step, path, NULL) == MICS_OK) {
        size_t read = 0;

        if (mics_file_read(path, MICS_DOC_MAX_BYTES, &data, &read, NULL) == MICS_OK)
            size = read;
    }
    if (status == MICS_OK)
        status = mics_comm_broadcast_now(comm, &size, sizeof size, root, err);
    if (status == MICS_OK && !candidate && size > 0)
        data = malloc(size);
    if (status == MICS_OK)
        status = mics_agree(comm, data || size == 0 ? MICS_OK : mics_err_nomem(err), err);
    if (status == MICS_OK && size > 0)
        status = mics_comm_broadcast_now(comm, data, size, root, err);
    if (status == MICS_OK && size > 0 &&
        (mics_doc_decode(data, size, doc, NULL) != MICS_OK ||
         mics_manifest_check(*doc, NULL) != MICS_OK)) {
        json_decref(*doc);
        *doc = NULL;
    }
    free(data);
    return status;
}

/* Is a shard there, with the checksum that the manifest has? */
static bool has_shard(const struct generation *generation, const struct mics_manifest *manifest,
                      uint32_t shard, bool *damaged)
{
    *damaged = false;
    for (uint32_t i = 0; i < generation->count; i++) {
        const struct mics_memory_ckpt_entry *entry = &generation->entries[i];

        if (entry->shard != shard || entry->shards != manifest->file_count)
            continue;
        if (!entry->damaged && entry->xxh64 == manifest->files[shard].xxh64)
            return true;
        *damaged = true;
    }
    return false;
}

/* Why a generation cannot be used, in state->why; returns whether it can. */
static bool is_complete(const struct generation *generation, const struct mics_manifest *manifest,
                        struct mics_memory_state *state)
{
    for (uint32_t shard = 0; shard < manifest->file_count; shard++) {
        bool damaged;

        if (has_shard(generation, manifest, shard, &damaged))
            continue;
        if (!state->why[0])
            snprintf(state->why, sizeof state->why, "shard %u of step %llu is %s", shard,
                     (unsigned long long)generation->entries->step,
                     damaged ? "damaged in memory" : "in the memory of no node of this job");
        return false;
    }
    return true;
}

/* Reduce the entries to the usable ones of this generation. */
static void choose(struct mics_memory_state *state, const struct generation *generation,
                   const struct mics_manifest *manifest)
{
    uint32_t count = 0;

    state->step = generation->entries->step;
    state->stamp = generation->entries->stamp;
    for (uint32_t i = 0; i < generation->count; i++) {
        const struct mics_memory_ckpt_entry entry = generation->entries[i];

        if (entry.shard < manifest->file_count && entry.shards == manifest->file_count &&
            !entry.damaged && entry.xxh64 == manifest->files[entry.shard].xxh64) {
            state->entries[count++] = entry;
            state->generation = entry.generation;
        }
    }
    state->entry_count = count;
}

static void explain_manifest(struct mics_memory_state *state, const struct generation *generation)
{
    if (!state->why[0])
        snprintf(state->why, sizeof state->why, "the manifest of step %llu is damaged in memory",
                 (unsigned long long)generation->entries->step);
}

/* Take a generation if it is complete. */
static enum mics_status try_generation(struct mics_comm *comm, const struct mics_memory_node *node,
                                       const struct generation *generation,
                                       struct mics_memory_state *state, struct mics_err *err)
{
    bool damaged;
    const int64_t at = manifest_node(generation, &damaged);
    struct mics_manifest manifest = {.step = 0};
    json_t *doc = NULL;
    enum mics_status status;

    if (at < 0) {
        if (damaged)
            explain_manifest(state, generation);
        return MICS_OK; /* else it was never complete */
    }
    status = read_manifest(comm, node, generation->entries, at, &doc, err);
    if (status != MICS_OK)
        return status;
    if (!doc || mics_manifest_from_doc(doc, &manifest, NULL) != MICS_OK ||
        manifest.step != generation->entries->step) {
        explain_manifest(state, generation);
    } else if (is_complete(generation, &manifest, state)) {
        choose(state, generation, &manifest);
        state->doc = json_incref(doc);
    }
    mics_manifest_free(&manifest);
    json_decref(doc);
    return MICS_OK;
}

enum mics_status mics_memory_find(struct mics_comm *comm, const struct mics_memory_node *node,
                                  const struct mics_memory_ckpt_record *record,
                                  struct mics_memory_state *state, struct mics_err *err)
{
    struct mics_memory_ckpt_entry *own = NULL;
    uint32_t count = 0;
    enum mics_status status = list_own(node, record, &own, &count, err);

    *state = (struct mics_memory_state){.doc = NULL};
    state->nodes = calloc((size_t)comm->size, sizeof *state->nodes);
    if (status == MICS_OK && !state->nodes)
        status = mics_err_nomem(err);
    status = mics_agree(comm, status, err);
    if (status == MICS_OK)
        status = mics_comm_all_gather_now(comm, &node->node, state->nodes, sizeof node->node, err);
    if (status == MICS_OK)
        status = share(comm, own, count, state, err);
    free(own);
    if (status == MICS_OK && state->entry_count > 0)
        qsort(state->entries, state->entry_count, sizeof *state->entries, by_age);
    for (uint32_t i = 0; status == MICS_OK && i < state->entry_count; i++)
        state->damaged += state->entries[i].damaged;
    for (uint32_t i = 0; status == MICS_OK && !state->doc && i < state->entry_count;) {
        const struct generation generation = generation_at(state, i);

        i += generation.count;
        status = try_generation(comm, node, &generation, state, err);
    }
    if (status == MICS_OK && !state->doc && !state->why[0])
        snprintf(state->why, sizeof state->why, "the nodes of this job have no state in memory");
    return status;
}
