/* SPDX-License-Identifier: Apache-2.0 */
/* post_processor.c - post-processors of tokenizer.json, which put tokens around a text. */
#include "data/tokenizer/tokenizer_json.h"

#include <string.h>

static void add_to_template(struct mics_tokenizer *tokenizer, const struct mics_cursor *cursor,
                            bool after)
{
    uint32_t *count = after ? &tokenizer->after_count : &tokenizer->before_count;
    const json_int_t id = json_integer_value(cursor->value);

    if (!json_is_integer(cursor->value) || id < 0)
        mics_cursor_reject(cursor, NULL, "expected an id");
    else if (id >= tokenizer->vocab.size ||
             !(tokenizer->vocab.tokens[id].flags & MICS_TOKEN_PRESENT))
        mics_cursor_reject(cursor, NULL, "id %lld is not in the vocabulary", (long long)id);
    else if (*count == MICS_TEMPLATE_MAX)
        mics_cursor_reject(cursor, NULL, "more than %d tokens", MICS_TEMPLATE_MAX);
    else
        (after ? tokenizer->after : tokenizer->before)[(*count)++] = (uint32_t)id;
}

/* The ids of a special token of the template. */
static void read_template_token(struct mics_tokenizer *tokenizer,
                                const struct mics_cursor *processor,
                                const struct mics_cursor *piece, bool after)
{
    const struct mics_cursor special = mics_cursor_get_object(piece, "SpecialToken");
    const char *name = mics_cursor_get_string(&special, "id");
    const struct mics_cursor tokens = mics_cursor_get_object(processor, "special_tokens");
    const struct mics_cursor token = mics_cursor_get_object(&tokens, name);
    const struct mics_cursor ids = mics_cursor_get_array(&token, "ids", 0, MICS_TEMPLATE_MAX);

    for (size_t i = 0; i < mics_cursor_count(&ids); i++) {
        const struct mics_cursor id = mics_cursor_item_any(&ids, i);

        add_to_template(tokenizer, &id, after);
    }
}

/* What is put around a single text, "A", which must be in it once. */
static void read_template(struct mics_tokenizer *tokenizer, const struct mics_cursor *processor)
{
    static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
    bool after = false;

    mics_json_check_members(processor, known);
    const struct mics_cursor pieces =
        mics_cursor_get_array(processor, "single", 1, 2 * MICS_TEMPLATE_MAX + 1);
    for (size_t i = 0; i < mics_cursor_count(&pieces); i++) {
        const struct mics_cursor piece = mics_cursor_get_item(&pieces, i);

        if (mics_cursor_has(&piece, "SpecialToken")) {
            read_template_token(tokenizer, processor, &piece, after);
            continue;
        }
        const struct mics_cursor sequence = mics_cursor_get_object(&piece, "Sequence");
        const char *name = mics_cursor_get_string(&sequence, "id");
        if (after || strcmp(name, "A") != 0)
            mics_cursor_reject(&sequence, "id", "expected one text, \"A\"");
        after = true;
    }
    if (!after)
        mics_cursor_reject(&pieces, NULL, "the text, \"A\", is missing");
}

/* ["<s>", 0] before and after a text, of the processors that BERT and RoBERTa have. */
static void read_pairs(struct mics_tokenizer *tokenizer, const struct mics_cursor *processor)
{
    static const char *const known[] = {"type", "cls", "sep", "trim_offsets", "add_prefix_space",
                                        NULL};

    mics_json_check_members(processor, known);
    for (size_t i = 1; i <= 2; i++) {
        const struct mics_cursor pair = mics_cursor_get_array(processor, known[i], 2, 2);
        const struct mics_cursor id = mics_cursor_item_any(&pair, 1);

        add_to_template(tokenizer, &id, i == 2);
    }
}

static void read_processor(struct mics_tokenizer *tokenizer, const struct mics_cursor *processor)
{
    const char *type = mics_cursor_get_string(processor, "type");

    if (strcmp(type, "ByteLevel") == 0) { /* which changes offsets only */
        mics_json_check_members(processor, mics_byte_level_members);
        return;
    }
    if (tokenizer->before_count + tokenizer->after_count > 0)
        mics_cursor_reject(processor, "type",
                           "'%s' after a processor that adds tokens is not supported", type);
    if (strcmp(type, "TemplateProcessing") == 0)
        read_template(tokenizer, processor);
    else if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        read_pairs(tokenizer, processor);
    else
        mics_cursor_reject(processor, "type", "post-processor '%s' is not supported", type);
}

void mics_post_processor_read(const struct mics_cursor *root, struct mics_tokenizer *tokenizer)
{
    static const char *const known[] = {"type", "processors", NULL};

    if (!mics_cursor_has(root, "post_processor"))
        return;
    const struct mics_cursor processor = mics_cursor_get_object(root, "post_processor");
    if (strcmp(mics_cursor_get_string(&processor, "type"), "Sequence") != 0) {
        read_processor(tokenizer, &processor);
        return;
    }
    mics_json_check_members(&processor, known);
    const struct mics_cursor list = mics_cursor_get_array(&processor, "processors", 0, 16);
    for (size_t i = 0; i < mics_cursor_count(&list); i++) {
        const struct mics_cursor item = mics_cursor_get_item(&list, i);

        read_processor(tokenizer, &item);
    }
}
