/* SPDX-License-Identifier: Apache-2.0 */
/* post_processor.c - post-processors of tokenizer.json, which put tokens around a text. */
#include "data/tokenizer/tokenizer_json.h"

#include <string.h>

static enum mics_status add_to_template(struct mics_tokenizer *tokenizer,
                                        const struct mics_cursor *cursor, bool after,
                                        struct mics_err *err)
{
    uint32_t *count = after ? &tokenizer->after_count : &tokenizer->before_count;
    const json_int_t id = json_integer_value(cursor->value);

    if (!json_is_integer(cursor->value) || id < 0)
        return mics_cursor_fail(cursor, NULL, err, "expected an id");
    if (id >= tokenizer->vocab.size || !(tokenizer->vocab.tokens[id].flags & MICS_TOKEN_PRESENT))
        return mics_cursor_fail(cursor, NULL, err, "id %lld is not in the vocabulary",
                                (long long)id);
    if (*count == MICS_TEMPLATE_MAX)
        return mics_cursor_fail(cursor, NULL, err, "more than %d tokens", MICS_TEMPLATE_MAX);
    (after ? tokenizer->after : tokenizer->before)[(*count)++] = (uint32_t)id;
    return MICS_OK;
}

/* The ids of a special token of the template. */
static enum mics_status read_template_token(struct mics_tokenizer *tokenizer,
                                            const struct mics_cursor *processor,
                                            const struct mics_cursor *piece, bool after,
                                            struct mics_err *err)
{
    struct mics_cursor special, tokens, token, ids;
    const char *name = NULL;
    enum mics_status status = mics_cursor_object(piece, "SpecialToken", &special, err);

    if (status == MICS_OK)
        status = mics_cursor_string(&special, "id", &name, err);
    if (status == MICS_OK)
        status = mics_cursor_object(processor, "special_tokens", &tokens, err);
    if (status == MICS_OK)
        status = mics_cursor_object(&tokens, name, &token, err);
    if (status == MICS_OK)
        status = mics_cursor_array(&token, "ids", 0, MICS_TEMPLATE_MAX, &ids, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&ids); i++) {
        const struct mics_cursor id = mics_cursor_item_any(&ids, i);

        status = add_to_template(tokenizer, &id, after, err);
    }
    return status;
}

/* What is put around a single text, "A", which must be in it once. */
static enum mics_status read_template(struct mics_tokenizer *tokenizer,
                                      const struct mics_cursor *processor, struct mics_err *err)
{
    static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
    struct mics_cursor pieces, piece, sequence;
    bool after = false;
    enum mics_status status = mics_json_check_members(processor, known, err);

    if (status == MICS_OK)
        status = mics_cursor_array(processor, "single", 1, 2 * MICS_TEMPLATE_MAX + 1, &pieces, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&pieces); i++) {
        const char *name = NULL;

        status = mics_cursor_item(&pieces, i, &piece, err);
        if (status == MICS_OK && mics_cursor_has(&piece, "SpecialToken")) {
            status = read_template_token(tokenizer, processor, &piece, after, err);
            continue;
        }
        if (status == MICS_OK)
            status = mics_cursor_object(&piece, "Sequence", &sequence, err);
        if (status == MICS_OK)
            status = mics_cursor_string(&sequence, "id", &name, err);
        if (status == MICS_OK && (after || strcmp(name, "A") != 0))
            return mics_cursor_fail(&sequence, "id", err, "expected one text, \"A\"");
        after = true;
    }
    if (status == MICS_OK && !after)
        return mics_cursor_fail(&pieces, NULL, err, "the text, \"A\", is missing");
    return status;
}

/* ["<s>", 0] before and after a text, of the processors that BERT and RoBERTa have. */
static enum mics_status read_pairs(struct mics_tokenizer *tokenizer,
                                   const struct mics_cursor *processor, struct mics_err *err)
{
    static const char *const known[] = {"type", "cls", "sep", "trim_offsets", "add_prefix_space",
                                        NULL};
    enum mics_status status = mics_json_check_members(processor, known, err);

    for (size_t i = 1; status == MICS_OK && i <= 2; i++) {
        struct mics_cursor pair;

        status = mics_cursor_array(processor, known[i], 2, 2, &pair, err);
        if (status == MICS_OK) {
            const struct mics_cursor id = mics_cursor_item_any(&pair, 1);

            status = add_to_template(tokenizer, &id, i == 2, err);
        }
    }
    return status;
}

static enum mics_status read_processor(struct mics_tokenizer *tokenizer,
                                       const struct mics_cursor *processor, struct mics_err *err)
{
    const char *type = NULL;
    const enum mics_status status = mics_cursor_string(processor, "type", &type, err);

    if (status != MICS_OK)
        return status;
    if (strcmp(type, "ByteLevel") == 0) /* which changes offsets only */
        return mics_json_check_members(processor, mics_byte_level_members, err);
    if (tokenizer->before_count + tokenizer->after_count > 0)
        return mics_cursor_fail(processor, "type", err,
                                "'%s' after a processor that adds tokens is not supported", type);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(tokenizer, processor, err);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        return read_pairs(tokenizer, processor, err);
    return mics_cursor_fail(processor, "type", err, "post-processor '%s' is not supported", type);
}

enum mics_status mics_post_processor_read(const struct mics_cursor *root,
                                          struct mics_tokenizer *tokenizer, struct mics_err *err)
{
    static const char *const known[] = {"type", "processors", NULL};
    struct mics_cursor processor, processors, item;
    const char *type = NULL;
    enum mics_status status = MICS_OK;

    if (!mics_cursor_has(root, "post_processor"))
        return MICS_OK;
    status = mics_cursor_object(root, "post_processor", &processor, err);
    if (status == MICS_OK)
        status = mics_cursor_string(&processor, "type", &type, err);
    if (status != MICS_OK)
        return status;
    if (strcmp(type, "Sequence") != 0)
        return read_processor(tokenizer, &processor, err);
    status = mics_json_check_members(&processor, known, err);
    if (status == MICS_OK)
        status = mics_cursor_array(&processor, "processors", 0, 16, &processors, err);
    for (size_t i = 0; status == MICS_OK && i < mics_cursor_count(&processors); i++) {
        status = mics_cursor_item(&processors, i, &item, err);
        if (status == MICS_OK)
            status = read_processor(tokenizer, &item, err);
    }
    return status;
}
