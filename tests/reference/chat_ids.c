/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat_ids.c - shapes of chat templates, and conversations as text and ids, for check_chat.py.
 *
 * usage: chat_ids shape TEMPLATE...                 for each file a line: shape and format
 *        chat_ids render FOLDER [NAME] <LINES       for each line of JSON an object with "text",
 *                                                   "answers" (pairs of offsets in bytes), "ids"
 *                                                   and "prompt" (a number for each id), or "error"
 */
#include "base/file.h"
#include "data/chat/formats.h"
#include "data/disk_tokenizer.h"
#include "data/json_line.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what)
{
    fprintf(stderr, "chat_ids: %s\n", what);
    exit(1);
}

static void print_shape(const char *path)
{
    struct mics_shape shape;
    struct mics_err err;
    char *text;
    size_t size;

    if (mics_file_read(path, (size_t)1 << 20, &text, &size, &err) != MICS_OK)
        fail(err.text);
    if (mics_shape_read(text, size, &shape, &err) == MICS_OK) {
        const struct mics_chat_format *format = mics_chat_format_by_shape(shape.digest);

        printf("%016" PRIx64 " %s", shape.digest, format ? format->name : "-");
        for (size_t i = 0; i < shape.prose_count; i++) {
            json_t *prose = json_stringn(shape.prose[i].bytes, shape.prose[i].size);
            char *line = json_dumps(prose, JSON_ENCODE_ANY);

            printf(" %s", line ? line : "?");
            free(line);
            json_decref(prose);
        }
        putchar('\n');
        mics_shape_free(&shape);
    } else {
        printf("error %s\n", err.text);
    }
    free(text);
}

static json_t *answer(const struct mics_disk_tokenizer *tokenizer, struct mics_encoder *encoder,
                      const struct mics_chat *chat, const char *line, size_t length)
{
    struct mics_chat_text text = {.answer_count = 0};
    struct mics_chat_buffer buffer = {.size = 0};
    json_t *object = NULL, *out, *ids = json_array(), *answers = json_array(),
           *prompt = json_array();
    struct mics_err err = {""};

    enum mics_status status = mics_json_line_parse(line, length, &object, &err);

    if (status == MICS_OK)
        status = mics_chat_render(chat, object, &text, &err);
    if (status == MICS_OK)
        status = mics_chat_encode(encoder, tokenizer->tokenizer, &text, &buffer, &err);
    for (size_t i = 0; status == MICS_OK && i < buffer.size / sizeof(uint32_t); i++) {
        uint32_t id;

        memcpy(&id, buffer.bytes + i * sizeof id, sizeof id);
        json_array_append_new(ids, json_integer(id & ~MICS_TOKEN_PROMPT));
        json_array_append_new(prompt, json_integer(id & MICS_TOKEN_PROMPT ? 1 : 0));
    }
    for (size_t i = 0; status == MICS_OK && i < text.answer_count; i++)
        json_array_append_new(answers, json_pack("[I,I]", (json_int_t)text.answers[i].begin,
                                                 (json_int_t)text.answers[i].end));
    out = status == MICS_OK ? json_pack("{s:o,s:O,s:O,s:O}", "text",
                                        json_stringn(text.text.bytes, text.text.size), "answers",
                                        answers, "ids", ids, "prompt", prompt)
                            : json_pack("{s:s}", "error", err.text);
    json_decref(ids);
    json_decref(answers);
    json_decref(prompt);
    json_decref(object);
    mics_chat_text_free(&text);
    free(buffer.bytes);
    return out;
}

static void render(const char *folder, const char *name)
{
    struct mics_disk_tokenizer tokenizer;
    struct mics_encoder *encoder;
    struct mics_chat *chat;
    struct mics_err err;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;

    if (mics_disk_tokenizer_open(folder, &tokenizer, &err) != MICS_OK ||
        mics_encoder_new(tokenizer.tokenizer, &encoder, &err) != MICS_OK ||
        mics_chat_open(tokenizer.tokenizer, &tokenizer.files, name, &chat, &err) != MICS_OK)
        fail(err.text);
    while ((length = getline(&line, &capacity, stdin)) >= 0) {
        json_t *out = answer(&tokenizer, encoder, chat, line, (size_t)length);

        if (json_dumpf(out, stdout, JSON_COMPACT) != 0)
            fail("cannot write");
        putchar('\n');
        json_decref(out);
    }
    free(line);
    mics_chat_free(chat);
    mics_encoder_free(encoder);
    mics_disk_tokenizer_close(&tokenizer);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "shape") == 0)
        for (int i = 2; i < argc; i++)
            print_shape(argv[i]);
    else if (argc > 2 && argc < 5 && strcmp(argv[1], "render") == 0)
        render(argv[2], argc == 4 ? argv[3] : NULL);
    else
        fail("usage: chat_ids shape TEMPLATE..., or chat_ids render FOLDER [NAME]");
    return 0;
}
