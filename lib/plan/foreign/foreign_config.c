/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/foreign/foreign_config.h"

#include "base/file.h"
#include "base/utf8.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "doc/table.h"
#include "plan/foreign/keys.h"
#include "plan/memory.h"
#include "plan/plan_print.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 };

/* hjson, with which DeepSpeed reads its files, has comments and commas before closing brackets.
 * They become blanks, so that lines and columns stay. */
static void blank_comments(char *text, size_t size)
{
    size_t comma = size;

    for (size_t i = 0; i < size; i++) {
        const bool line = text[i] == '#' || (text[i] == '/' && text[i + 1] == '/');

        if (text[i] == '"') {
            for (i++; i < size && text[i] != '"'; i++)
                i += text[i] == '\\';
            comma = size;
        } else if (line) {
            for (; i < size && text[i] != '\n'; i++)
                text[i] = ' ';
        } else if (text[i] == '/' && text[i + 1] == '*') {
            const char *end = strstr(text + i + 2, "*/");

            for (const char *stop = end ? end + 2 : text + size; text + i < stop; i++)
                if (text[i] != '\n')
                    text[i] = ' ';
            i--;
        } else if (text[i] == ',') {
            comma = i;
        } else if ((text[i] == '}' || text[i] == ']') && comma < size) {
            text[comma] = ' ';
            comma = size;
        } else if (!strchr(" \t\r\n", text[i])) {
            comma = size;
        }
    }
}

static enum mics_status read_json(const char *text, size_t size, json_t **out, struct mics_err *err)
{
    char *copy = malloc(size + 1);
    enum mics_status status;

    if (!copy)
        return mics_err_nomem(err);
    memcpy(copy, text, size);
    copy[size] = '\0';
    blank_comments(copy, size);
    status = mics_doc_read_object(copy, size, out, err);
    free(copy);
    return status;
}

/* What is there behind blanks and comments, those of hjson and of a shell. */
static const char *find_begin(const char *text, size_t size)
{
    const char *const end = text + size;

    while (text < end) {
        if (*text == '#' || (end - text > 1 && text[0] == '/' && text[1] == '/')) {
            const char *line = memchr(text, '\n', (size_t)(end - text));

            text = line ? line : end;
        } else if (end - text > 1 && text[0] == '/' && text[1] == '*') {
            const char *close = memmem(text + 2, (size_t)(end - text) - 2, "*/", 2);

            text = close ? close + 2 : end;
        } else if (strchr(" \t\r\n", *text)) {
            text++;
        } else {
            return text;
        }
    }
    return end;
}

static bool is_json(const char *text, size_t size)
{
    const char *begin = find_begin(text, size);

    return begin < text + size && (*begin == '{' || *begin == '[');
}

static bool has_text(const char *text, size_t size, const char *part)
{
    return memmem(text, size, part, strlen(part)) != NULL;
}

static bool is_accelerate_json(const char *text, size_t size)
{
    return is_json(text, size) && (has_text(text, size, "\"distributed_type\"") ||
                                   has_text(text, size, "\"compute_environment\""));
}

/* A table, "[training]", in front. */
static bool is_toml(const char *text, size_t size)
{
    const char *const end = text + size;
    const char *at = find_begin(text, size);

    if (at == end || *at++ != '[')
        return false;
    while (at < end && (*at == '.' || *at == '_' || isalnum((unsigned char)*at)))
        at++;
    return at[-1] != '[' && !isdigit((unsigned char)at[-1]) && end - at > 1 && at[0] == ']' &&
           (at[1] == '\n' || at[1] == '\r');
}

static enum mics_status refuse_toml(const char *text, size_t size, json_t **out,
                                    struct mics_err *err)
{
    (void)text;
    (void)size;
    (void)out;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "TOML is not read; give torchtitan's flags: --section.key=value");
}

/* Flags of torchtitan are "--section.field". */
static bool is_megatron(const char *text, size_t size)
{
    static const char *const flags[] = {"--tensor-model-parallel-size", "--num-attention-heads",
                                        "--micro-batch-size", "--use-distributed-optimizer"};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!is_json(text, size) && has_text(text, size, flags[i]))
            return true;
    return false;
}

static enum mics_status refuse_megatron(const char *text, size_t size, json_t **out,
                                        struct mics_err *err)
{
    (void)text;
    (void)size;
    (void)out;
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "arguments of Megatron-LM are not read; the job is that of mics-plan "
                        "--global-batch, --micro-batch, --seq, --recompute");
}

static bool is_rest(const char *text, size_t size)
{
    (void)text;
    (void)size;
    return true;
}

/* A trainer by the form of its files; the first that recognises a file reads it. */
static const struct source {
    const char *trainer;
    bool (*is)(const char *text, size_t size);
    enum mics_status (*read)(const char *text, size_t size, json_t **out, struct mics_err *err);
    void (*interpret)(struct mics_keys *keys); /* sets the table, and walks it; NULL: never read */
} sources[] = {
    {"torchtitan", is_toml, refuse_toml, NULL},
    {"Megatron-LM", is_megatron, refuse_megatron, NULL},
    {"accelerate", is_accelerate_json, read_json, mics_accelerate_interpret},
    {"DeepSpeed", is_json, read_json, mics_deepspeed_interpret},
    {"torchtitan", mics_flags_recognise, mics_flags_read, mics_torchtitan_interpret},
    {"accelerate", is_rest, mics_yaml_read, mics_accelerate_interpret},
};

static enum mics_status interpret(const struct source *source, const json_t *root, uint32_t nodes,
                                  uint32_t per_node, struct mics_foreign_config *out,
                                  struct mics_err *err)
{
    struct mics_keys keys = {
        .root = root, .config = out, .nodes = nodes, .per_node = per_node, .err = err};

    *out = (struct mics_foreign_config){.trainer = source->trainer,
                                        .dtype = MICS_AUTO,
                                        .grad_dtype = MICS_AUTO,
                                        .recompute = MICS_AUTO,
                                        .optimizer = MICS_AUTO,
                                        .clips = MICS_AUTO,
                                        .keys = json_array(),
                                        .settings = json_object()};
    if (!out->keys || !out->settings)
        keys.status = mics_err_nomem(err);
    else if (json_object_size(root) == 0)
        mics_keys_fail(&keys, "no settings");
    else
        source->interpret(&keys);
    if (keys.status == MICS_OK)
        mics_keys_list_refusals(&keys);
    if (keys.status == MICS_OK)
        return MICS_OK;
    mics_foreign_config_fini(out);
    return keys.status;
}

enum mics_status mics_foreign_config_parse(const char *text, size_t size, uint32_t nodes,
                                           uint32_t per_node, struct mics_foreign_config *out,
                                           struct mics_err *err)
{
    const struct source *source = sources;
    json_t *root = NULL;
    enum mics_status status;

    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
        text += 3;
        size -= 3;
    }
    if (memchr(text, '\0', size))
        return mics_err_set(err, MICS_ERR_FORMAT, "a NUL byte: not a text");
    while (!source->is(text, size))
        source++;
    status = source->read(text, size, &root, err);
    if (status == MICS_OK)
        status = interpret(source, root, nodes, per_node, out, err);
    json_decref(root);
    return status;
}

enum mics_status mics_foreign_config_read(const char *path, uint32_t nodes, uint32_t per_node,
                                          struct mics_foreign_config *out, struct mics_err *err)
{
    char *text = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read(path, MAX_BYTES, &text, &size, err);

    if (status != MICS_OK)
        return status;
    status = mics_foreign_config_parse(text, size, nodes, per_node, out, err);
    free(text);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    return status;
}

void mics_foreign_config_fini(struct mics_foreign_config *config)
{
    json_decref(config->keys);
    json_decref(config->settings);
    config->keys = config->settings = NULL;
}

static json_t *plan_to_row(const char *name, const struct mics_plan *plan)
{
    const struct mics_plan_choice *choice = &plan->choice;
    const struct mics_shape *shape = &choice->shapes[MICS_UNIT_DENSE];

    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:f, s:f, s:I}", "plan", name, "p_param",
        (json_int_t)shape->p_param, "p_grad", (json_int_t)shape->p_grad, "p_optim",
        (json_int_t)shape->p_optim, "micro_batch", (json_int_t)choice->micro_batch, "micro_steps",
        (json_int_t)choice->micro_steps, "recompute", mics_recompute_name(choice->recompute),
        "hierarchical", choice->hierarchical_gather || choice->hierarchical_reduce, "step_s",
        plan->predicted.step_s, "tokens_per_s", plan->predicted.tokens_per_s, "total_bytes",
        (json_int_t)mics_memory_total(&plan->memory, plan->topology));
}

json_t *mics_foreign_config_to_doc(const struct mics_foreign_config *config,
                                   const struct mics_plan *configured, const struct mics_plan *best)
{
    json_t *plans = configured ? json_pack("[o, o]", plan_to_row("as configured", configured),
                                           plan_to_row("best", best))
                               : json_pack("[o]", plan_to_row("best", best));

    return json_pack("{s:s, s:O, s:o}", "trainer", config->trainer, "keys", config->keys, "plans",
                     plans);
}

static enum mics_status print_keys(FILE *out, const struct mics_cursor *root, int tsv,
                                   struct mics_err *err)
{
    const struct mics_cursor keys = mics_cursor_get_array(root, "keys", 0, KEYS_MAX);
    static const char *const members[] = {"key", "value", "verdict", "why"};
    struct mics_table *table =
        mics_table_new(tsv ? "key|value|verdict|why" : "<key|<value|<verdict|<here");

    for (size_t i = 0; i < mics_cursor_count(&keys); i++) {
        const struct mics_cursor key = mics_cursor_get_item(&keys, i);

        for (size_t k = 0; k < 4; k++)
            mics_table_cell(table, "%s", mics_cursor_get_string(&key, members[k]));
    }
    if (mics_cursor_ok(root))
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return root->reading->status;
}

static void put_plan(struct mics_table *table, const struct mics_cursor *plan, int tsv)
{
    static const char *const sizes[] = {"p_param", "p_grad", "p_optim"};
    uint32_t p[3];

    for (int i = 0; i < 3; i++)
        p[i] = mics_cursor_get_u32(plan, sizes[i], 1, UINT32_MAX);
    mics_table_cell(table, "%s", mics_cursor_get_string(plan, "plan"));
    mics_table_cell(table, "%u, %u, %u", p[0], p[1], p[2]);
    mics_table_cell(table, "%u x %u", mics_cursor_get_u32(plan, "micro_batch", 1, UINT32_MAX),
                    mics_cursor_get_u32(plan, "micro_steps", 1, UINT32_MAX));
    mics_table_cell(table, "%s", mics_cursor_get_string(plan, "recompute"));
    mics_table_cell(table, mics_cursor_get_bool(plan, "hierarchical") ? "in two hops" : "flat");
    mics_table_time(table, tsv, mics_cursor_get_double(plan, "step_s", 0, 1e15));
    mics_table_count(table, tsv, mics_cursor_get_double(plan, "tokens_per_s", 0, 1e18));
    mics_table_bytes(table, tsv, mics_cursor_get_u64(plan, "total_bytes", 0, INT64_MAX));
}

static enum mics_status print_plans(FILE *out, const struct mics_cursor *root, int tsv,
                                    struct mics_err *err)
{
    const struct mics_cursor plans = mics_cursor_get_array(root, "plans", 1, 8);
    struct mics_table *table = mics_table_new(
        tsv ? "plan|groups|micro_batches|recompute|exchanges|step_s|tokens_per_s|total_bytes"
            : "<plan|<groups|<micro-batches|<recompute|<exchanges|>step|>tokens/s|>memory");

    for (size_t i = 0; i < mics_cursor_count(&plans); i++) {
        const struct mics_cursor plan = mics_cursor_get_item(&plans, i);

        put_plan(table, &plan, tsv);
    }
    if (mics_cursor_ok(root))
        return mics_table_finish(table, out, tsv, err);
    mics_table_free(table);
    return root->reading->status;
}

enum mics_status mics_foreign_config_print(FILE *out, const json_t *doc, int tsv,
                                           struct mics_err *err)
{
    struct mics_reading reading = {.err = err};
    const struct mics_cursor plan = mics_cursor_begin(doc, &reading);
    const struct mics_cursor root = mics_cursor_get_object(&plan, MICS_FOREIGN_CONFIG_KEY);
    const char *trainer = mics_cursor_get_string(&root, "trainer");
    enum mics_status status = reading.status;

    if (status == MICS_OK && !tsv) {
        fputs("Configuration of ", out);
        mics_utf8_put(out, trainer, strlen(trainer));
        fputs(", and what it is here\n\n", out);
    }
    if (status == MICS_OK)
        status = print_keys(out, &root, tsv, err);
    if (status == MICS_OK)
        fputc('\n', out);
    if (status == MICS_OK)
        status = print_plans(out, &root, tsv, err);
    return status;
}
