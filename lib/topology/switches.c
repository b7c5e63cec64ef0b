/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches.c - topology.conf as a forest, and groups of nodes packed from its leaves upwards.
 *
 * Each switch forms as many whole groups as its nodes allow and hands the rest to its parent, the
 * largest rests first, so that a rest is divided among two groups as rarely as possible.
 */
#include "topology/switches.h"

#include "base/file.h"
#include "base/num.h"
#include "topology/topology.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_SWITCHES = 65536, MAX_LEVELS = 64 };

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

/* The value of "key=" among the words of a line; NULL: the line has none. */
static const char *value_of(const char *line, const char *end, const char *key, size_t *length)
{
    while (line < end) {
        line += strspn(line, " \t\r");
        const size_t word = strcspn(line, " \t\r\n#");
        const char *equals = memchr(line, '=', word);

        if (line >= end || *line == '#')
            return NULL;
        if (equals && (size_t)(equals - line) == strlen(key) &&
            strncasecmp(line, key, strlen(key)) == 0) {
            *length = word - strlen(key) - 1;
            return equals + 1;
        }
        line += word;
        if (word == 0)
            return NULL;
    }
    return NULL;
}

/* Refuse words that this reader does not know: they may change the meaning. */
static enum mics_status check_words(const char *line, const char *end, struct mics_err *err)
{
    static const char *const known[] = {"SwitchName", "Nodes", "Switches", "LinkSpeed"};

    while (line < end) {
        line += strspn(line, " \t\r");
        const size_t word = strcspn(line, " \t\r\n#");
        const char *equals = memchr(line, '=', word);
        bool found = false;

        if (line >= end || word == 0)
            return MICS_OK;
        for (size_t i = 0; i < sizeof known / sizeof *known && equals; i++)
            found |= (size_t)(equals - line) == strlen(known[i]) &&
                     strncasecmp(line, known[i], strlen(known[i])) == 0;
        if (!found)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "'%.*s': expected SwitchName, Nodes, Switches or LinkSpeed",
                                (int)mics_min_u64(word, 40), line);
        line += word;
    }
    return MICS_OK;
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

static enum mics_status read_line(struct mics_switches *switches, const char *line, const char *end,
                                  int number, struct mics_err *err)
{
    size_t name_length, length = 0, other = 0;
    const char *name = value_of(line, end, "SwitchName", &name_length);
    const char *nodes = value_of(line, end, "Nodes", &length);
    const char *children = value_of(line, end, "Switches", nodes ? &other : &length);
    struct network_switch *added;
    enum mics_status status = check_words(line, end, err);

    if (status != MICS_OK)
        return status;
    if (!name || name_length == 0 || name_length >= MICS_HOST_NAME)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "expected SwitchName= with a name of 1 to %d bytes",
                            MICS_HOST_NAME - 1);
    if (!nodes == !children)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "switch '%.*s': expected either Nodes or Switches", (int)name_length,
                            name);
    if (switches->count == MAX_SWITCHES)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %d switches", MAX_SWITCHES);
    added = add_switch(switches);
    if (!added)
        return mics_err_nomem(err);
    *added = (struct network_switch){.has_children = children != NULL,
                                     .first = switches->members.count,
                                     .parent = NONE,
                                     .line = number};
    memcpy(added->name, name, name_length);
    status = mics_host_list_append(&switches->members, nodes ? nodes : children, length, err);
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
    return mics_err_set(err, MICS_ERR_FORMAT, "line %d: switch '%s': %s'%s'", at->line, at->name,
                        text, name);
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
                return fail_at(parent, err, "no line defines switch ", name);
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
                                    "line %d: switch '%s' contains itself, or is below more than "
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
            status = fail_at(&switches->list[names[i].owner], err, "a line before defines ",
                             names[i].name);
    if (status == MICS_OK)
        status = link_children(switches, names, err);
    if (status == MICS_OK)
        status = measure_levels(switches, err);
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

/* A backslash at the end continues a line. */
static void join_lines(char *text)
{
    for (char *at = text; (at = strchr(at, '\\')) != NULL; at++)
        if (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n')) {
            *at = ' ';
            at[at[1] == '\r' ? 2 : 1] = ' ';
        }
}

static enum mics_status parse_text(struct mics_switches *switches, const char *text,
                                   struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (int number = 1; *text && status == MICS_OK; number++) {
        const char *end = text + strcspn(text, "\n");
        const char *word = text + strspn(text, " \t\r");

        if (word < end && *word != '#') {
            status = read_line(switches, word, end, number, err);
            if (status != MICS_OK)
                mics_err_prefix(err, "line %d", number);
        }
        text = *end ? end + 1 : end;
    }
    if (status == MICS_OK && switches->count == 0)
        status = mics_err_set(err, MICS_ERR_FORMAT, "no switches");
    if (status == MICS_OK)
        status = link_switches(switches, err);
    return status == MICS_OK ? sort_nodes(switches, err) : status;
}

enum mics_status mics_switches_parse(const char *text, size_t size, struct mics_switches **out,
                                     struct mics_err *err)
{
    struct mics_switches *switches = calloc(1, sizeof *switches);
    char *copy = malloc(size + 1);
    enum mics_status status = switches && copy ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK) {
        memcpy(copy, text, size);
        copy[size] = '\0';
        if (strlen(copy) != size)
            status = mics_err_set(err, MICS_ERR_FORMAT, "a zero byte");
    }
    if (status == MICS_OK) {
        join_lines(copy);
        status = parse_text(switches, copy, err);
    }
    free(copy);
    if (status == MICS_OK)
        *out = switches;
    else
        mics_switches_free(switches);
    return status;
}

enum mics_status mics_switches_read(const char *path, struct mics_switches **out,
                                    struct mics_err *err)
{
    char *text = NULL;
    size_t size;
    enum mics_status status = mics_file_read(path, (size_t)64 << 20, &text, &size, err);

    if (status != MICS_OK)
        return status;
    status = mics_switches_parse(text, size, out, err);
    free(text);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", path);
    return status;
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
