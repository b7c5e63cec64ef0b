/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches_yaml.c - Slurm's topology.yaml, read with libyaml.
 *
 * A list of topologies, each of exactly one kind. All of them are checked against what Slurm knows;
 * only the chosen one is built, so that kinds without switches may be beside it.
 */
#include "topology/switches_forest.h"

#if MICS_HAVE_YAML

#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { MAX_BYTES = 16 << 20 };

enum kind { TREE, BLOCK, FLAT, RING, TORUS3D, KINDS };

static const char *const kind_names[KINDS] = {"tree", "block", "flat", "ring", "torus3d"};

struct yaml {
    yaml_document_t document;
    struct mics_err *err;
};

struct topology {
    const yaml_node_t *name, *kind_node, *node;
    enum kind kind;
    bool is_default;
};

static int line_of(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

static const char *type_of(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE    ? "a map"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
                                              : "a value";
}

static yaml_node_t *node_at(struct yaml *yaml, int index)
{
    return yaml_document_get_node(&yaml->document, index);
}

static enum mics_status expect(struct yaml *yaml, const yaml_node_t *node, yaml_node_type_t type,
                               const char *what)
{
    if (node->type == type)
        return MICS_OK;
    return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %d: %s: expected %s, found %s",
                        line_of(node), what,
                        type == YAML_MAPPING_NODE    ? "a map"
                        : type == YAML_SEQUENCE_NODE ? "a list"
                                                     : "a value",
                        type_of(node));
}

static bool is_text(const yaml_node_t *node, const char *text)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.length == strlen(text) &&
           memcmp(node->data.scalar.value, text, strlen(text)) == 0;
}

/* A plain scalar that is empty, "~" or "null" is no value. */
static bool is_null(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (node->data.scalar.length == 0 || is_text(node, "~") || is_text(node, "null") ||
            is_text(node, "Null") || is_text(node, "NULL"));
}

/* The values of a map by key: values[i] of keys[i], NULL: absent. Other keys are errors. */
static enum mics_status read_map(struct yaml *yaml, const yaml_node_t *map, const char *what,
                                 const char *const *keys, size_t count, yaml_node_t **values)
{
    enum mics_status status = expect(yaml, map, YAML_MAPPING_NODE, what);

    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        values[i] = NULL;
    for (const yaml_node_pair_t *pair = map->data.mapping.pairs.start;
         pair < map->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_at(yaml, pair->key);
        size_t i = 0;

        while (i < count && !is_text(key, keys[i]))
            i++;
        if (i == count)
            return mics_err_set(
                yaml->err, MICS_ERR_FORMAT, "line %d: %s: unknown key '%.40s'", line_of(key), what,
                key->type == YAML_SCALAR_NODE ? (char *)key->data.scalar.value : type_of(key));
        if (values[i])
            return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %d: %s: '%s' is there twice",
                                line_of(key), what, keys[i]);
        values[i] = node_at(yaml, pair->value);
    }
    return MICS_OK;
}

/* text NULL: absent or null. */
static enum mics_status read_text(struct yaml *yaml, yaml_node_t *node, const char *what,
                                  struct mics_switch_text *out)
{
    *out = (struct mics_switch_text){NULL, 0};
    if (!node || is_null(node))
        return MICS_OK;
    const enum mics_status status = expect(yaml, node, YAML_SCALAR_NODE, what);
    if (status == MICS_OK)
        *out = (struct mics_switch_text){(const char *)node->data.scalar.value,
                                         node->data.scalar.length};
    return status;
}

static enum mics_status read_bool(struct yaml *yaml, const yaml_node_t *node, const char *what,
                                  bool *out)
{
    static const char *const words[2][5] = {{"false", "no", "off", "n", "0"},
                                            {"true", "yes", "on", "y", "1"}};
    const enum mics_status status = expect(yaml, node, YAML_SCALAR_NODE, what);

    for (int value = 0; value < 2 && status == MICS_OK; value++)
        for (int i = 0; i < 5; i++)
            if (strcasecmp((const char *)node->data.scalar.value, words[value][i]) == 0) {
                *out = value;
                return MICS_OK;
            }
    return status != MICS_OK
               ? status
               : mics_err_set(yaml->err, MICS_ERR_FORMAT,
                              "line %d: %s: expected true or false, found '%.40s'", line_of(node),
                              what, (const char *)node->data.scalar.value);
}

/* As read_text(), for a list of names: Slurm takes blanks for separators, too, and a list over
 * several lines has them after its commas. */
static enum mics_status read_names(struct yaml *yaml, yaml_node_t *node, const char *what,
                                   struct mics_switch_text *out)
{
    const enum mics_status status = read_text(yaml, node, what, out);
    bool separate = false;
    size_t used = 0;

    if (status != MICS_OK || !out->text)
        return status;
    char *const text = (char *)node->data.scalar.value;
    for (size_t i = 0; i < out->length; i++) { /* never longer than what was read */
        const char c = text[i];
        const bool separates = c == ',' || c == ' ' || c == '\t' || c == '\n';

        if (!separates && separate && used > 0)
            text[used++] = ',';
        if (!separates)
            text[used++] = c;
        separate = separates;
    }
    text[used] = '\0';
    out->length = node->data.scalar.length = used; /* it may be read again */
    return MICS_OK;
}

/* One item of "switches" or "blocks"; `switches` NULL: only check. */
static enum mics_status read_entry(struct yaml *yaml, const yaml_node_t *item, enum kind kind,
                                   struct mics_switches *switches)
{
    static const char *const keys[2][3] = {{"switch", "nodes", "children"}, {"block", "nodes"}};
    struct mics_switch_entry entry = {.is_block = kind == BLOCK, .line = line_of(item)};
    struct mics_switch_text *const texts[] = {&entry.name, &entry.nodes, &entry.children};
    const size_t count = kind == BLOCK ? 2 : 3;
    yaml_node_t *values[3];
    enum mics_status status = read_map(yaml, item, keys[kind][0], keys[kind], count, values);

    for (size_t i = 0; i < count && status == MICS_OK; i++)
        status = (i == 0 ? read_text : read_names)(yaml, values[i], keys[kind][i], texts[i]);
    if (status != MICS_OK || !switches)
        return status;
    status = mics_switches_add(switches, &entry, yaml->err);
    if (status == MICS_ERR_FORMAT)
        mics_err_prefix(yaml->err, "line %d", entry.line);
    return status;
}

static enum mics_status read_sizes(struct yaml *yaml, const yaml_node_t *list, uint32_t *sizes,
                                   uint32_t *count)
{
    *count = 0;
    if (!list || is_null(list))
        return MICS_OK;
    enum mics_status status = expect(yaml, list, YAML_SEQUENCE_NODE, "block_sizes");
    if (status != MICS_OK)
        return status;
    for (const yaml_node_item_t *item = list->data.sequence.items.start;
         item < list->data.sequence.items.top; item++) {
        const yaml_node_t *node = node_at(yaml, *item);
        char *end = NULL;

        status = expect(yaml, node, YAML_SCALAR_NODE, "block_sizes");
        if (status != MICS_OK)
            return status;
        const long size = strtol((const char *)node->data.scalar.value, &end, 10);
        if (*end || end == (char *)node->data.scalar.value || size < 1 || size > 1 << 30 ||
            *count == MICS_BLOCK_SIZES_MAX)
            return mics_err_set(yaml->err, MICS_ERR_FORMAT,
                                "line %d: block_sizes: expected up to %d numbers of nodes",
                                line_of(node), MICS_BLOCK_SIZES_MAX);
        sizes[(*count)++] = (uint32_t)size;
    }
    return MICS_OK;
}

/* A tree or blocks. */
static enum mics_status read_switches(struct yaml *yaml, const struct topology *topology,
                                      struct mics_switches *switches)
{
    static const char *const keys[2][2] = {{"switches"}, {"blocks", "block_sizes"}};
    const char *const *own = keys[topology->kind];
    uint32_t sizes[MICS_BLOCK_SIZES_MAX], size_count = 0;
    yaml_node_t *values[2];
    enum mics_status status = read_map(yaml, topology->kind_node, kind_names[topology->kind], own,
                                       topology->kind == BLOCK ? 2 : 1, values);

    if (status != MICS_OK)
        return status;
    if (!values[0])
        return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %d: %s: '%s' is missing",
                            line_of(topology->kind_node), kind_names[topology->kind], own[0]);
    status = expect(yaml, values[0], YAML_SEQUENCE_NODE, own[0]);
    if (status != MICS_OK)
        return status;
    if (topology->kind == BLOCK)
        status = read_sizes(yaml, values[1], sizes, &size_count);
    if (status != MICS_OK)
        return status;
    for (const yaml_node_item_t *item = values[0]->data.sequence.items.start;
         item < values[0]->data.sequence.items.top && status == MICS_OK; item++)
        status = read_entry(yaml, node_at(yaml, *item), topology->kind, switches);
    return status == MICS_OK && switches
               ? mics_switches_finish(switches, sizes, size_count, yaml->err)
               : status;
}

static enum mics_status read_topology(struct yaml *yaml, const yaml_node_t *node,
                                      struct topology *out)
{
    static const char *const keys[] = {"tree",    "block",    "flat",           "ring",
                                       "torus3d", "topology", "cluster_default"};
    enum { NAME = KINDS, DEFAULT, KEYS };
    yaml_node_t *values[KEYS];
    struct mics_switch_text name;
    enum mics_status status = read_map(yaml, node, "topology", keys, KEYS, values);

    if (status == MICS_OK)
        status = read_text(yaml, values[NAME], "topology", &name);
    if (status != MICS_OK)
        return status;
    if (!name.text || name.length == 0)
        return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %d: a topology without a name",
                            line_of(node));
    *out = (struct topology){.name = values[NAME], .node = node, .kind = KINDS};
    if (values[DEFAULT] && !is_null(values[DEFAULT]))
        status = read_bool(yaml, values[DEFAULT], "cluster_default", &out->is_default);
    for (enum kind kind = 0; kind < KINDS && status == MICS_OK; kind++) {
        bool given = values[kind] && !is_null(values[kind]);

        if (given && kind == FLAT && values[kind]->type == YAML_SCALAR_NODE)
            status = read_bool(yaml, values[kind], "flat", &given);
        if (!given || status != MICS_OK)
            continue;
        if (out->kind != KINDS)
            return mics_err_set(yaml->err, MICS_ERR_FORMAT,
                                "line %d: topology '%.60s' is both %s and %s", line_of(node),
                                name.text, kind_names[out->kind], kind_names[kind]);
        out->kind = kind;
        out->kind_node = values[kind];
    }
    if (status == MICS_OK && out->kind == KINDS)
        return mics_err_set(yaml->err, MICS_ERR_FORMAT,
                            "line %d: topology '%.60s': expected one of tree, block, flat, ring, "
                            "torus3d",
                            line_of(node), name.text);
    if (status == MICS_OK && out->kind <= BLOCK)
        status = read_switches(yaml, out, NULL);
    return status;
}

/* The topology `name`, else the first that is the cluster's default, else the first. */
static enum mics_status choose(struct yaml *yaml, const yaml_node_t *root, const char *name,
                               struct topology *out)
{
    const yaml_node_item_t *const first = root->data.sequence.items.start;
    bool found = false;

    for (const yaml_node_item_t *item = first; item < root->data.sequence.items.top; item++) {
        struct topology topology;
        const enum mics_status status = read_topology(yaml, node_at(yaml, *item), &topology);

        if (status != MICS_OK)
            return status;
        if (name ? !found && is_text(topology.name, name)
                 : item == first || (topology.is_default && !out->is_default)) {
            *out = topology;
            found = true;
        }
    }
    if (found)
        return MICS_OK;
    return name ? mics_err_set(yaml->err, MICS_ERR_FORMAT, "no topology '%.100s'", name)
                : mics_err_set(yaml->err, MICS_ERR_FORMAT, "no topologies");
}

static enum mics_status read_document(struct yaml *yaml, const char *name,
                                      struct mics_switches **out)
{
    const yaml_node_t *root = yaml_document_get_root_node(&yaml->document);
    struct topology topology = {.is_default = false};
    enum mics_status status;

    if (!root)
        return mics_err_set(yaml->err, MICS_ERR_FORMAT, "no topologies");
    status = expect(yaml, root, YAML_SEQUENCE_NODE, "the file");
    if (status != MICS_OK)
        return status;
    status = choose(yaml, root, name, &topology);
    if (status != MICS_OK)
        return status;
    if (topology.kind > BLOCK)
        return mics_err_set(yaml->err, MICS_ERR_FORMAT,
                            "line %d: topology '%.60s' is %s, without switches; choose a tree or "
                            "blocks with --switch-topology=NAME",
                            line_of(topology.node), (char *)topology.name->data.scalar.value,
                            kind_names[topology.kind]);
    struct mics_switches *switches = mics_switches_new();
    status = switches ? read_switches(yaml, &topology, switches) : mics_err_nomem(yaml->err);
    if (status == MICS_OK)
        *out = switches;
    else
        mics_switches_free(switches);
    return status;
}

static enum mics_status fail_to_parse(const yaml_parser_t *parser, struct mics_err *err)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return mics_err_nomem(err);
    return mics_err_set(err, MICS_ERR_FORMAT, "line %lu: YAML: %s",
                        (unsigned long)(parser->error == YAML_READER_ERROR
                                            ? parser->mark.line
                                            : parser->problem_mark.line) +
                            1,
                        parser->problem ? parser->problem : "malformed");
}

/* Slurm reads a file of one document. */
static enum mics_status parse_documents(yaml_parser_t *parser, struct yaml *yaml, const char *name,
                                        struct mics_switches **out)
{
    if (!yaml_parser_load(parser, &yaml->document))
        return fail_to_parse(parser, yaml->err);
    struct mics_switches *switches = NULL;
    enum mics_status status = read_document(yaml, name, &switches);
    yaml_document_delete(&yaml->document);
    if (status != MICS_OK)
        return status;
    if (!yaml_parser_load(parser, &yaml->document)) {
        status = fail_to_parse(parser, yaml->err);
    } else {
        const yaml_node_t *more = yaml_document_get_root_node(&yaml->document);

        if (more)
            status = mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %d: a second document",
                                  line_of(more));
        yaml_document_delete(&yaml->document);
    }
    if (status == MICS_OK)
        *out = switches;
    else
        mics_switches_free(switches);
    return status;
}

enum mics_status mics_switches_parse_yaml(const char *text, size_t size, const char *name,
                                          struct mics_switches **out, struct mics_err *err)
{
    struct yaml yaml = {.err = err};
    yaml_parser_t parser;

    if (size > MAX_BYTES)
        return mics_err_set(err, MICS_ERR_FORMAT, "more than %d MiB of YAML", MAX_BYTES >> 20);
    if (!yaml_parser_initialize(&parser))
        return mics_err_nomem(err);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    const enum mics_status status = parse_documents(&parser, &yaml, name, out);
    yaml_parser_delete(&parser);
    return status;
}

#else

enum mics_status mics_switches_parse_yaml(const char *text, size_t size, const char *name,
                                          struct mics_switches **out, struct mics_err *err)
{
    (void)text, (void)size, (void)name, (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "this build is without libyaml, which reads YAML");
}

#endif
