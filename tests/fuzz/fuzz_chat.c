/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_chat.c - libFuzzer target for chat templates and conversations.
 *
 * The input is a template, a NUL, and a conversation in JSON. The template is read; the
 * conversation is rendered by every named format, by that of the template's shape, and by those
 * that have tools. Answers must be parts of the text, in order.
 *
 * sources: lib/base lib/doc lib/data/chat lib/data/json_line.c lib/data/tokenizer.c
 * sources: lib/data/tokenizer lib/ckpt/tokenizer_files.c lib/ckpt/format/gguf.c
 */
#include "data/chat/formats.h"
#include "data/json_line.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void render(const struct mics_chat *chat, const json_t *object)
{
    struct mics_chat_text text = {.answer_count = 0};
    struct mics_err err = {""};
    size_t before = 0;

    if (mics_chat_render(chat, object, &text, &err) != MICS_OK)
        must(err.text[0] != '\0');
    else
        for (size_t i = 0; i < text.answer_count; i++) {
            must(text.answers[i].begin >= before && text.answers[i].end > text.answers[i].begin);
            before = text.answers[i].end;
            must(before <= text.text.size);
        }
    mics_chat_text_free(&text);
}

static void render_named(const struct mics_tokenizer *tokenizer,
                         const struct mics_tokenizer_files *files, const char *name,
                         const json_t *object)
{
    struct mics_chat *chat = NULL;
    struct mics_err err = {""};

    if (mics_chat_open(tokenizer, files, name, &chat, &err) == MICS_OK)
        render(chat, object);
    else
        must(err.text[0] != '\0');
    mics_chat_free(chat);
}

/* By the formats of Qwen2.5, Qwen3 and Llama 3.1, without their prose. */
static void render_with_tools(const struct mics_tokenizer *tokenizer, const json_t *object)
{
    static const uint64_t digests[] = {0x70fc231018a09a24, 0xe0f2f9c9b0023698, 0xf708e1a2900327c3};

    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        struct mics_shape shape = {.digest = digests[i]};
        struct mics_chat *chat = NULL;
        struct mics_err err;

        must(mics_chat_open_shape(tokenizer, &shape, &chat, &err) == MICS_OK);
        render(chat, object);
        mics_chat_free(chat);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    const size_t length = end ? (size_t)(end - data) : size;
    struct mics_tokenizer_files files = {.count = 0};
    struct mics_tokenizer *tokenizer = NULL;
    char names[512], *rest = names, *name;
    json_t *object = NULL;
    struct mics_err err;

    must(mics_tokenizer_open_bytes(&tokenizer, &err) == MICS_OK);
    must(mics_tokenizer_files_add(&files, "chat_template.jinja", data, length, &err) == MICS_OK);
    if (end)
        mics_json_line_parse((const char *)end + 1, size - length - 1, &object, &err);
    render_named(tokenizer, &files, NULL, object);
    render_with_tools(tokenizer, object);
    mics_chat_names(names, sizeof names);
    while (object && (name = strsep(&rest, ", ")) != NULL)
        if (name[0] != '\0')
            render_named(tokenizer, &files, name, object);
    json_decref(object);
    mics_tokenizer_files_free(&files);
    mics_tokenizer_free(tokenizer);
    return 0;
}
