/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.c - YAML as JSON, with the types that PyYAML gives plain scalars: yes, no, on and off are
 * booleans. Read with libyaml.
 */
#include "plan/foreign/keys.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#if MICS_HAVE_YAML

#include <yaml.h>

enum { MAX_NODES = 4096, MAX_DEPTH = 16 };

struct yaml {
    yaml_document_t document;
    unsigned nodes; /* made so far: an alias makes what it stands for again */
    struct mics_err *err;
};

static unsigned line_of(const yaml_node_t *node)
{
    return (unsigned)node->start_mark.line + 1;
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

/* "010", which is 8 in YAML 1.1 and 10 in YAML 1.2. */
static bool is_octal(const char *text)
{
    text += *text == '-' || *text == '+';
    return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

/* NULL: out of memory, or not UTF-8, which the parser has refused. */
static json_t *make_scalar(const yaml_node_t *node)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    static const char *const null[] = {"", "~", "null"};
    const char *text = text_of(node);
    char *end;

    if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return json_string(text);
    if (is_one_of(text, yes, 3))
        return json_true();
    if (is_one_of(text, no, 3))
        return json_false();
    if (is_one_of(text, null, 3))
        return json_null();
    if (text[strspn(text, "0123456789+-.eE")] == '\0' && !is_octal(text)) {
        const double value = strtod(text, &end);

        if (*end == '\0' && value > -1e300 && value < 1e300)
            return text[strspn(text, "0123456789-")] == '\0' && strlen(text) < 16
                       ? json_integer((json_int_t)value)
                       : json_real(value);
    }
    return json_string(text);
}

static enum mics_status make_value(struct yaml *yaml, int index, unsigned depth, json_t **out);

static enum mics_status make_map(struct yaml *yaml, const yaml_node_t *node, unsigned depth,
                                 json_t *map)
{
    enum mics_status status = MICS_OK;

    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top && status == MICS_OK; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&yaml->document, pair->key);
        json_t *value = NULL;

        if (key->type != YAML_SCALAR_NODE)
            return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %u: a key that is no text",
                                line_of(key));
        if (strcmp(text_of(key), "<<") == 0)
            return mics_err_set(yaml->err, MICS_ERR_FORMAT,
                                "line %u: '<<': maps are not merged; write out the keys",
                                line_of(key));
        if (json_object_get(map, text_of(key)))
            return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %u: '%.60s' is there twice",
                                line_of(key), text_of(key));
        status = make_value(yaml, pair->value, depth + 1, &value);
        if (status == MICS_OK && json_object_set_new(map, text_of(key), value) != 0)
            status = mics_err_nomem(yaml->err);
    }
    return status;
}

static enum mics_status make_list(struct yaml *yaml, const yaml_node_t *node, unsigned depth,
                                  json_t *list)
{
    enum mics_status status = MICS_OK;

    for (const yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top && status == MICS_OK; item++) {
        json_t *value = NULL;

        status = make_value(yaml, *item, depth + 1, &value);
        if (status == MICS_OK && json_array_append_new(list, value) != 0)
            status = mics_err_nomem(yaml->err);
    }
    return status;
}

/* Is the tag the one that every node of its type has? */
static bool has_own_tag(const yaml_node_t *node)
{
    const char *own = node->type == YAML_MAPPING_NODE    ? YAML_MAP_TAG
                      : node->type == YAML_SEQUENCE_NODE ? YAML_SEQ_TAG
                                                         : YAML_STR_TAG;

    return strcmp((const char *)node->tag, own) == 0;
}

static enum mics_status make_value(struct yaml *yaml, int index, unsigned depth, json_t **out)
{
    const yaml_node_t *node = yaml_document_get_node(&yaml->document, index);
    enum mics_status status = MICS_OK;

    if (++yaml->nodes > MAX_NODES || depth > MAX_DEPTH)
        return mics_err_set(yaml->err, MICS_ERR_FORMAT,
                            depth > MAX_DEPTH ? "line %u: nested deeper than %d"
                                              : "line %u: more than %d values",
                            line_of(node), depth > MAX_DEPTH ? MAX_DEPTH : MAX_NODES);
    if (!has_own_tag(node))
        return mics_err_set(yaml->err, MICS_ERR_FORMAT, "line %u: tags are not read: '%.60s'",
                            line_of(node), (const char *)node->tag);
    *out = node->type == YAML_MAPPING_NODE    ? json_object()
           : node->type == YAML_SEQUENCE_NODE ? json_array()
                                              : make_scalar(node);
    if (!*out)
        return mics_err_nomem(yaml->err);
    if (node->type == YAML_MAPPING_NODE)
        status = make_map(yaml, node, depth, *out);
    else if (node->type == YAML_SEQUENCE_NODE)
        status = make_list(yaml, node, depth, *out);
    if (status != MICS_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

static enum mics_status fail_syntax(const yaml_parser_t *parser, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_FORMAT, "line %zu: %s", parser->problem_mark.line + 1,
                        parser->problem ? parser->problem : "not YAML");
}

/* What follows the first document. */
static enum mics_status check_end(yaml_parser_t *parser, struct mics_err *err)
{
    yaml_document_t document;
    const yaml_node_t *root;
    enum mics_status status = MICS_OK;

    if (!yaml_parser_load(parser, &document))
        return fail_syntax(parser, err);
    root = yaml_document_get_root_node(&document);
    if (root)
        status = mics_err_set(err, MICS_ERR_FORMAT, "line %u: a second document", line_of(root));
    yaml_document_delete(&document);
    return status;
}

enum mics_status mics_yaml_read(const char *text, size_t size, json_t **out, struct mics_err *err)
{
    struct yaml yaml = {.err = err};
    yaml_parser_t parser;
    enum mics_status status;
    const yaml_node_t *root;

    if (!yaml_parser_initialize(&parser))
        return mics_err_nomem(err);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &yaml.document)) {
        status = fail_syntax(&parser, err);
        yaml_parser_delete(&parser);
        return status;
    }
    root = yaml_document_get_root_node(&yaml.document);
    if (!root || root->type != YAML_MAPPING_NODE)
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "neither DeepSpeed's JSON, nor accelerate's YAML, nor torchtitan's "
                              "flags");
    else
        status = check_end(&parser, err);
    if (status == MICS_OK)
        status = make_value(&yaml, 1, 0, out);
    yaml_document_delete(&yaml.document);
    yaml_parser_delete(&parser);
    return status;
}

#else

enum mics_status mics_yaml_read(const char *text, size_t size, json_t **out, struct mics_err *err)
{
    (void)text;
    (void)size;
    (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                        "YAML, which this mics was built without (make YAML=1)");
}

#endif
