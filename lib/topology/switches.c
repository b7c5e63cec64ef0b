/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches.c - the forest of switches, and groups of nodes packed from its leaves upwards.
 *
 * Each switch forms as many whole groups as its nodes allow and hands the rest to its parent, the
 * largest rests first, so that a rest is divided among two groups as rarely as possible.
 */
#include "topology/switches_forest.h"

#include "base/num.h"
#include "topology/topology.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SWITCHES = 65536, MAX_LEVELS = 64, MAX_BLOCK_LEVELS = 16 };

#define NONE UINT32_MAX

struct network_switch {
    char name[MICS_HOST_NAME];
    bool has_children;     /* "Switches": names are of switches, otherwise of nodes */
    uint32_t first, count; /* of its names */
    uint32_t parent;       /* NONE: a root */
    uint32_t level;        /* switches on the path to its root, itself included */
    int line;
};

/* A name under a switch. */
struct member {
    char name[MICS_HOST_NAME];
    uint32_t owner;
};

struct mics_switches {
    bool has_blocks, has_tree; /* kinds of what was added */
    uint32_t count, capacity;
    struct network_switch *list;
    struct mics_host_list members; /* of all switches, in the order of the file */
    uint32_t node_count;
    struct member *nodes; /* [node_count] by name */
};

void mics_switches_free(struct mics_switches *switches)
{
    if (!switches)
        return;
    free(switches->list);
    free(switches->nodes);
    mics_host_list_fini(&switches->members);
    free(switches);
}

static struct network_switch *add_switch(struct mics_switches *switches)
{
    if (switches->count == switches->capacity) {
        const uint32_t capacity = switches->capacity ? 2 * switches->capacity : 16;
        struct network_switch *list = realloc(switches->list, capacity * sizeof *list);

        if (!list)
            return NULL;
        switches->list = list;
        switches->capacity = capacity;
    }
    return &switches->list[switches->count++];
}

struct mics_switches *mics_switches_new(void)
{
    return calloc(1, sizeof(struct mics_switches));
}

enum mics_status mics_switches_add(struct mics_switches *switches,
                                   const struct mics_switch_entry *entry, struct mics_err *err)
{
    const char *kind = entry->is_block ? "block" : "switch";
    const struct mics_switch_text *names = entry->nodes.text ? &entry->nodes : &entry->children;

    if (!entry->name.text || entry->name.length == 0 || entry->name.length >= MICS_HOST_NAME)
        return mics_err_set(err, MICS_ERR_FORMAT, "expected a %s's name of 1 to %d bytes", kind,
                            MICS_HOST_NAME - 1);
    if (memchr(entry->name.text, '\0', entry->name.length))
        return mics_err_set(err, MICS_ERR_FORMAT, "a zero byte in the name of a %s", kind);
    if (!entry->is_block && !entry->nodes.text == !entry->children.text)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "switch '%.*s': expected either nodes or child switches",
                            (int)entry->name.length, entry->name.text);
    if (entry->is_block ? switches->has_tree : switches->has_blocks)
        return mics_err_set(err, MICS_ERR_FORMAT, "a %s among %s", kind,
                            entry->is_block ? "switches" : "blocks");
    if (switches->count == MAX_SWITCHES)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %d %s", MAX_SWITCHES,
                            entry->is_block ? "blocks" : "switches");
    struct network_switch *added = add_switch(switches);
    if (!added)
        return mics_err_nomem(err);
    *(entry->is_block ? &switches->has_blocks : &switches->has_tree) = true;
    *added = (struct network_switch){.has_children = names == &entry->children && names->text,
                                     .first = switches->members.count,
                                     .parent = NONE,
                                     .line = entry->line};
    memcpy(added->name, entry->name.text, entry->name.length);
    if (!names->text)
        return MICS_OK;
    const enum mics_status status =
        mics_host_list_append(&switches->members, names->text, names->length, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s '%s'", kind, added->name);
    added->count = switches->members.count - added->first;
    return status;
}

static int by_member(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    const int order = strcmp(a->name, b->name);

    return order ? order : a->owner < b->owner ? -1 : a->owner > b->owner;
}

static const struct member *find(const struct member *sorted, uint32_t count, const char *name)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (strcmp(sorted[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && strcmp(sorted[low].name, name) == 0 ? &sorted[low] : NULL;
}

static enum mics_status fail_at(const struct network_switch *at, struct mics_err *err,
                                const char *text, const char *name)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "line %d: '%s': %s'%s'", at->line, at->name, text,
                        name);
}

/* `names` [switches->count] is sorted. */
static enum mics_status link_children(struct mics_switches *switches, const struct member *names,
                                      struct mics_err *err)
{
    for (uint32_t i = 0; i < switches->count; i++) {
        const struct network_switch *parent = &switches->list[i];

        for (uint32_t m = 0; m < parent->count && parent->has_children; m++) {
            const char *name = switches->members.names[parent->first + m];
            const struct member *child = find(names, switches->count, name);

            if (!child)
                return fail_at(parent, err, "nothing defines switch ", name);
            if (switches->list[child->owner].parent != NONE)
                return fail_at(parent, err, "another switch contains ", name);
            switches->list[child->owner].parent = i;
        }
    }
    return MICS_OK;
}

/* Every switch has one parent at most, so a path upwards either ends at a root or never. */
static enum mics_status measure_levels(struct mics_switches *switches, struct mics_err *err)
{
    for (uint32_t i = 0; i < switches->count; i++) {
        struct network_switch *leaf = &switches->list[i];

        for (uint32_t at = i; at != NONE; at = switches->list[at].parent)
            if (leaf->level++ == MAX_LEVELS)
                return mics_err_set(err, MICS_ERR_FORMAT,
                                    "line %d: '%s' contains itself, or is below more than "
                                    "%d levels of switches",
                                    leaf->line, leaf->name, MAX_LEVELS);
    }
    return MICS_OK;
}

static enum mics_status link_switches(struct mics_switches *switches, struct mics_err *err)
{
    struct member *names = calloc(switches->count + 1, sizeof *names);
    enum mics_status status = MICS_OK;

    if (!names)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < switches->count; i++) {
        strcpy(names[i].name, switches->list[i].name);
        names[i].owner = i;
    }
    qsort(names, switches->count, sizeof *names, by_member);
    for (uint32_t i = 1; i < switches->count && status == MICS_OK; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            status =
                fail_at(&switches->list[names[i].owner], err, "defined before: ", names[i].name);
    if (status == MICS_OK)
        status = link_children(switches, names, err);
    free(names);
    return status;
}

static enum mics_status sort_nodes(struct mics_switches *switches, struct mics_err *err)
{
    switches->nodes = calloc(switches->members.count + 1, sizeof *switches->nodes);
    if (!switches->nodes)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < switches->count; i++)
        for (uint32_t m = 0; m < switches->list[i].count && !switches->list[i].has_children; m++) {
            struct member *node = &switches->nodes[switches->node_count++];

            strcpy(node->name, switches->members.names[switches->list[i].first + m]);
            node->owner = i;
        }
    qsort(switches->nodes, switches->node_count, sizeof *switches->nodes, by_member);
    for (uint32_t i = 1; i < switches->node_count; i++)
        if (strcmp(switches->nodes[i - 1].name, switches->nodes[i].name) == 0)
            return fail_at(&switches->list[switches->nodes[i].owner], err,
                           "listed before, here or under another switch: node ",
                           switches->nodes[i].name);
    return MICS_OK;
}

/* Blocks in the order of the file, and groups of them of each size, which nest. */
static enum mics_status join_blocks(struct mics_switches *switches, const uint32_t *sizes,
                                    uint32_t size_count, struct mics_err *err)
{
    uint32_t first = 0, count = switches->count;

    for (uint32_t i = 1; i < size_count && count > 1; i++) {
        const uint32_t together = sizes[i] / sizes[i - 1], level_first = switches->count;

        for (uint32_t b = 0; b < count; b++) {
            if (b % together == 0) {
                struct network_switch *added =
                    switches->count < MAX_SWITCHES ? add_switch(switches) : NULL;

                if (!added)
                    return mics_err_nomem(err);
                *added = (struct network_switch){
                    .has_children = true, .parent = NONE, .line = switches->list[first + b].line};
            }
            switches->list[first + b].parent = switches->count - 1;
        }
        first = level_first;
        count = switches->count - level_first;
    }
    return MICS_OK;
}

/* Sizes in nodes become blocks: each a power of two times the first. Without any, Slurm takes the
 * blocks themselves and 2, 4, 8 and 16 of them. */
static enum mics_status check_sizes(const uint32_t *nodes, uint32_t count,
                                    uint32_t blocks[MAX_BLOCK_LEVELS + 1], uint32_t *out,
                                    struct mics_err *err)
{
    *out = count > 0 ? 0 : 5;
    for (uint32_t i = 0; i < *out; i++)
        blocks[i] = 1u << i;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t ratio = nodes[0] > 0 ? nodes[i] / nodes[0] : 0;

        if (ratio == 0 || nodes[i] % nodes[0] != 0 || (ratio & (ratio - 1)) != 0 ||
            ratio >= 1u << MAX_BLOCK_LEVELS || (i > 0 && nodes[i] <= nodes[i - 1]))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "block size %u: expected a larger power of two times the first one",
                                nodes[i]);
        blocks[(*out)++] = ratio;
    }
    return MICS_OK;
}

enum mics_status mics_switches_finish(struct mics_switches *switches, const uint32_t *block_sizes,
                                      uint32_t size_count, struct mics_err *err)
{
    uint32_t sizes[MAX_BLOCK_LEVELS + 1], count = 0;
    enum mics_status status;

    if (switches->count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no switches");
    status = link_switches(switches, err);
    if (status != MICS_OK)
        return status;
    if (switches->has_blocks)
        status = check_sizes(block_sizes, size_count, sizes, &count, err);
    if (status != MICS_OK)
        return status;
    if (switches->has_blocks)
        status = join_blocks(switches, sizes, count, err);
    if (status != MICS_OK)
        return status;
    status = measure_levels(switches, err);
    if (status != MICS_OK)
        return status;
    return sort_nodes(switches, err);
}

/* Hosts that are not in a group yet: of each switch a list that is linked by host. The index
 * switches->count is above all roots, and of hosts without a switch. */
struct packing {
    const struct mics_switches *switches;
    uint32_t group_nodes;
    uint32_t *leaf, *next;         /* [hosts] */
    uint32_t *head, *tail, *count; /* [switches + 1] */
    uint32_t *order, placed;
};

static void append_host(struct packing *packing, uint32_t list, uint32_t host)
{
    packing->next[host] = NONE;
    if (packing->count[list]++ == 0)
        packing->head[list] = host;
    else
        packing->next[packing->tail[list]] = host;
    packing->tail[list] = host;
}

static uint32_t take_host(struct packing *packing, uint32_t list)
{
    const uint32_t host = packing->head[list];

    packing->head[list] = packing->next[host];
    packing->count[list]--;
    return host;
}

static void form_groups(struct packing *packing, uint32_t list)
{
    uint32_t whole = packing->count[list] / packing->group_nodes * packing->group_nodes;

    for (; whole > 0; whole--)
        packing->order[packing->placed++] = take_host(packing, list);
}

struct rest {
    uint32_t list, parent, count;
};

/* Siblings together, the largest rest first. */
static int by_parent_then_count(const void *left, const void *right)
{
    const struct rest *a = left, *b = right;

    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->list < b->list ? -1 : 1;
}

/* Level by level from below, since a rest has its size when all switches below are done. */
static enum mics_status pack(struct packing *packing, struct mics_err *err)
{
    const uint32_t count = packing->switches->count;
    struct rest *rests = calloc(count + 1, sizeof *rests);

    if (!rests)
        return mics_err_nomem(err);
    for (uint32_t level = MAX_LEVELS; level > 0; level--) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < count; i++) {
            const struct network_switch *at = &packing->switches->list[i];

            if (at->level != level)
                continue;
            form_groups(packing, i);
            rests[found++] =
                (struct rest){i, at->parent == NONE ? count : at->parent, packing->count[i]};
        }
        qsort(rests, found, sizeof *rests, by_parent_then_count);
        for (uint32_t i = 0; i < found; i++)
            while (packing->count[rests[i].list] > 0)
                append_host(packing, rests[i].parent, take_host(packing, rests[i].list));
    }
    free(rests);
    return MICS_OK;
}

/* packing->head, which is not needed any more, has for each leaf the last group that it is in. */
static void count_use(struct packing *packing, uint32_t hosts, struct mics_switch_use *use)
{
    const uint32_t q = packing->group_nodes;

    use->groups = hosts / q;
    memset(packing->head, 0, ((size_t)packing->switches->count + 1) * sizeof *packing->head);
    for (uint32_t g = 0; g < use->groups; g++) {
        const uint32_t *group = &packing->order[g * q];
        uint32_t leaves = 0;

        for (uint32_t i = 0; i < q; i++) {
            const uint32_t leaf = packing->leaf[group[i]];
            uint32_t *last = &packing->head[leaf == NONE ? packing->switches->count : leaf];

            leaves += *last != g + 1;
            *last = g + 1;
        }
        use->one_leaf += leaves == 1 && packing->leaf[group[0]] != NONE;
        use->most = leaves > use->most ? leaves : use->most;
    }
}

enum mics_status mics_switches_order(const struct mics_switches *switches,
                                     const struct mics_host_list *hosts, uint32_t group_nodes,
                                     uint32_t *order, struct mics_switch_use *use,
                                     struct mics_err *err)
{
    const size_t lists = (size_t)switches->count + 1;
    uint32_t *memory = calloc(2 * (size_t)hosts->count + 3 * lists, sizeof *memory);
    struct packing packing = {.switches = switches, .group_nodes = group_nodes, .order = order};
    enum mics_status status;

    if (!memory)
        return mics_err_nomem(err);
    packing.leaf = memory;
    packing.next = packing.leaf + hosts->count;
    packing.head = packing.next + hosts->count;
    packing.tail = packing.head + lists;
    packing.count = packing.tail + lists;
    *use = (struct mics_switch_use){0};
    for (uint32_t i = 0; i < hosts->count; i++) {
        const struct member *node = find(switches->nodes, switches->node_count, hosts->names[i]);

        packing.leaf[i] = node ? node->owner : NONE;
        if (node)
            append_host(&packing, node->owner, i);
        else
            use->unknown++;
    }
    status = pack(&packing, err);
    for (uint32_t i = 0; i < hosts->count; i++)
        if (packing.leaf[i] == NONE)
            append_host(&packing, switches->count, i);
    while (status == MICS_OK && packing.count[switches->count] > 0)
        order[packing.placed++] = take_host(&packing, switches->count);
    if (status == MICS_OK)
        count_use(&packing, hosts->count, use);
    free(memory);
    return status;
}
