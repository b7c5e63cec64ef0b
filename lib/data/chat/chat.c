/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat/conversation.h"

#include "base/units.h"
#include "data/chat/template.h"
#include "doc/foreign.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAST_SECOND 253402300799 /* of the year 9999 */

struct mics_chat {
    const struct mics_chat_format *format;
    bool insisted; /* on the format, which is not the template's own */
    bool tool_use; /* there is another template for conversations with tools */
    struct mics_shape shape;
    char *bos, *eos; /* NULL: none */
    char *split;     /* see mics_chat_split_marker() */
    char date[32];   /* of today */
};

/*
 * Opening.
 */

/* Why no format can be chosen. */
static enum mics_status refuse_template(const struct mics_shape *shape,
                                        const struct mics_chat_template *found,
                                        struct mics_err *err)
{
    const char *file = found->file, *marker = NULL;

    if (found->unnamed)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: none of its chat templates is called \"default\": --chat=NAME "
                            "says which format to use",
                            file);
    if (!found->text)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the tokenizer has no chat template (" MICS_CHAT_TEMPLATE_FILE
                            ", or chat_template in " MICS_CHAT_TEMPLATE_CONFIG
                            "): --chat=NAME says which format to use");
    const struct mics_chat_format *like =
        mics_chat_format_by_marker(found->text, found->size, &marker);

    if (!like)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "%s: the chat template is not a known one (shape %016" PRIx64
                            "): --chat=NAME insists on a format",
                            file, shape->digest);
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "%s: the chat template is not a known one (shape %016" PRIx64
                        "), though it has '%s' as those of %s: --chat=%s insists on that format",
                        file, shape->digest, marker, like->name, like->name);
}

static enum mics_status choose_format(struct mics_chat *chat,
                                      const struct mics_tokenizer_files *files, const char *name,
                                      struct mics_err *err)
{
    const struct mics_chat_format *plain = name ? mics_chat_format_by_name(name) : NULL;
    struct mics_chat_template found;
    char names[512];

    if (name && !plain)
        return mics_err_set(err, MICS_ERR_ARG, "'%s' is no format of conversations: expected %s",
                            name, mics_chat_names(names, sizeof names));
    enum mics_status status = mics_chat_template_find(files, &found, err);

    if (status == MICS_OK && found.text) {
        status = mics_shape_read(found.text, found.size, &chat->shape, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s: chat_template", found.file);
    }
    if (status == MICS_OK && found.text)
        chat->format = mics_chat_format_by_shape(chat->shape.digest);
    chat->tool_use = found.tool_use;
    if (status == MICS_ERR_FORMAT && plain) /* what the template says does not matter */
        status = MICS_OK;
    if (status == MICS_OK && plain && !(chat->format && strcmp(chat->format->name, name) == 0)) {
        chat->format = plain;
        chat->insisted = true;
    }
    if (status == MICS_OK && !chat->format)
        status = refuse_template(&chat->shape, &found, err);
    mics_chat_template_close(&found);
    return status;
}

/* Today, or the day of the environment's SOURCE_DATE_EPOCH. */
static enum mics_status set_date(struct mics_chat *chat, struct mics_err *err)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    uint64_t seconds = 0;
    enum mics_status status =
        epoch ? mics_parse_u64(epoch, 0, LAST_SECOND, &seconds, err) : MICS_OK;
    const time_t now = epoch ? (time_t)seconds : time(NULL);
    struct tm day;

    if (status != MICS_OK)
        mics_err_prefix(err, "SOURCE_DATE_EPOCH");
    else if (epoch ? gmtime_r(&now, &day) : localtime_r(&now, &day))
        snprintf(chat->date, sizeof chat->date, "%02d %s %d", day.tm_mday, months[day.tm_mon],
                 day.tm_year + 1900);
    return status;
}

/* Set chat->split to the first marker in a text that the tokenizer encodes in pieces. */
static enum mics_status find_split(struct mics_chat *chat, struct mics_encoder *encoder,
                                   const char *text, struct mics_err *err)
{
    size_t length = 0, count = 0;
    const uint32_t *ids = NULL;
    enum mics_status status = MICS_OK;

    while (!chat->split && status == MICS_OK && (text = mics_chat_next_marker(text, &length))) {
        status =
            mics_encode(encoder, text, length, MICS_TOKENIZER_SPECIAL | MICS_TOKENIZER_CONTINUES,
                        &ids, &count, NULL, err);
        if (status == MICS_OK && count != 1 && !(chat->split = strndup(text, length)))
            status = mics_err_nomem(err);
        text += length;
    }
    return status;
}

/* Does the tokenizer have what the format needs, or at least its markers? */
static enum mics_status check_tokens(struct mics_chat *chat, const struct mics_tokenizer *tokenizer,
                                     struct mics_err *err)
{
    const char *texts[MICS_CHAT_TEXTS];
    struct mics_encoder *encoder = NULL;
    bool needs_end = false, needs_date = false;

    mics_chat_format_texts(chat->format, texts);
    for (size_t i = 0; i < MICS_CHAT_TEXTS; i++) {
        needs_end = needs_end || (texts[i] && strpbrk(texts[i], CHAT_EOS));
        needs_date = needs_date || (texts[i] && strpbrk(texts[i], CHAT_DATE));
    }
    /* Jinja makes nothing of a bos_token that is not said, but cannot join an eos_token. */
    if (needs_end && !chat->eos)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the chat template (%s) needs the tokenizer's eos_token, which no file "
                            "of the tokenizer tells",
                            chat->format->name);
    enum mics_status status = needs_date ? set_date(chat, err) : MICS_OK;

    if (status == MICS_OK && chat->insisted)
        status = mics_encoder_new(tokenizer, &encoder, err);
    for (size_t i = 0; i < MICS_CHAT_TEXTS && encoder && status == MICS_OK; i++)
        status = texts[i] ? find_split(chat, encoder, texts[i], err) : MICS_OK;
    mics_encoder_free(encoder);
    return status;
}

/* The last step of opening: *out = the chat, which is freed after an error. */
static enum mics_status name_tokens(struct mics_chat *chat, const struct mics_tokenizer *tokenizer,
                                    struct mics_chat **out, struct mics_err *err)
{
    enum mics_status status = mics_tokenizer_named(tokenizer, "bos_token", &chat->bos, err);

    if (status == MICS_OK)
        status = mics_tokenizer_named(tokenizer, "eos_token", &chat->eos, err);
    if (status == MICS_OK)
        status = check_tokens(chat, tokenizer, err);
    if (status == MICS_OK)
        *out = chat;
    else
        mics_chat_free(chat);
    return status;
}

enum mics_status mics_chat_open(const struct mics_tokenizer *tokenizer,
                                const struct mics_tokenizer_files *files, const char *name,
                                struct mics_chat **out, struct mics_err *err)
{
    struct mics_chat *chat = calloc(1, sizeof *chat);

    *out = NULL;
    if (!chat)
        return mics_err_nomem(err);
    const enum mics_status status = choose_format(chat, files, name, err);

    if (status == MICS_OK)
        return name_tokens(chat, tokenizer, out, err);
    mics_chat_free(chat);
    return status;
}

enum mics_status mics_chat_open_shape(const struct mics_tokenizer *tokenizer,
                                      struct mics_shape *shape, struct mics_chat **out,
                                      struct mics_err *err)
{
    struct mics_chat *chat = calloc(1, sizeof *chat);

    *out = NULL;
    if (!chat) {
        mics_shape_free(shape);
        return mics_err_nomem(err);
    }
    chat->shape = *shape;
    *shape = (struct mics_shape){0};
    chat->format = mics_chat_format_by_shape(chat->shape.digest);
    if (chat->format)
        return name_tokens(chat, tokenizer, out, err);
    mics_chat_free(chat);
    return mics_err_set(err, MICS_ERR_FORMAT, "the shape of the chat template is not known");
}

void mics_chat_free(struct mics_chat *chat)
{
    if (!chat)
        return;
    mics_shape_free(&chat->shape);
    free(chat->bos);
    free(chat->eos);
    free(chat->split);
    free(chat);
}

const char *mics_chat_name(const struct mics_chat *chat)
{
    return chat->format->name;
}

const char *mics_chat_split_marker(const struct mics_chat *chat)
{
    return chat->split;
}

void mics_chat_text_free(struct mics_chat_text *text)
{
    free(text->text.bytes);
    free(text->answers);
    *text = (struct mics_chat_text){0};
}

/*
 * Rendering.
 */

struct rendering {
    const struct mics_chat *chat;
    const struct mics_conversation *conversation;
    size_t last_query; /* the last message with a question of the user; see put_thinking() */
    bool said;         /* the content put last is not empty, newlines before it included */
    struct mics_chat_text *out;
    struct mics_err *err;
};

static enum mics_status put(struct rendering *rendering, const char *text, size_t size)
{
    return mics_chat_buffer_append(&rendering->out->text, text, size, rendering->err);
}

/* A token by its name: the beginning may be unsaid; the end is said where a format has it. */
static enum mics_status put_token(struct rendering *rendering, char sign)
{
    const struct mics_chat *chat = rendering->chat;
    const char *text = sign == CHAT_BOS[0] ? chat->bos : chat->eos;

    return text ? put(rendering, text, strlen(text)) : MICS_OK;
}

static enum mics_status put_prose(struct rendering *rendering, char letter)
{
    const struct mics_shape *shape = &rendering->chat->shape;
    const size_t index = (size_t)(letter - 'a');

    if (index >= shape->prose_count) /* insisted on, and not the template's own */
        return MICS_OK;
    return put(rendering, shape->prose[index].bytes, shape->prose[index].size);
}

/* A text of a format. *stop, unless NULL: where in the output the answer ends. */
static enum mics_status put_text(struct rendering *rendering, const char *text, size_t *stop)
{
    enum mics_status status = MICS_OK;

    for (; text && *text && status == MICS_OK; text++)
        if (*text == CHAT_STOP[0]) {
            if (stop)
                *stop = rendering->out->text.size;
            stop = NULL;
        } else if (*text == CHAT_BOS[0] || *text == CHAT_EOS[0]) {
            status = put_token(rendering, *text);
        } else if (*text == CHAT_DATE[0]) {
            status = put(rendering, rendering->chat->date, strlen(rendering->chat->date));
        } else if (*text == CHAT_PROSE[0]) {
            status = put_prose(rendering, *++text);
        } else {
            status = put(rendering, text, 1);
        }
    if (stop)
        *stop = rendering->out->text.size;
    return status;
}

/* Is a character white space to Python's str.strip()? *length: its bytes. */
static bool is_space(const char *text, size_t size, bool backwards, size_t *length)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    const char c = backwards ? text[size - 1] : text[0];

    *length = 1;
    if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f))
        return true;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        *length = strlen(wide[i]);
        if (size >= *length &&
            memcmp(backwards ? text + size - *length : text, wide[i], *length) == 0)
            return true;
    }
    return false;
}

static void trim(const char **text, size_t *size)
{
    size_t length;

    while (*size > 0 && is_space(*text, *size, false, &length)) {
        *text += length;
        *size -= length;
    }
    while (*size > 0 && is_space(*text, *size, true, &length))
        *size -= length;
}

/* The place behind the last `mark` in text[size]; NULL: there is none. */
static const char *after_last(const char *text, size_t size, const char *mark)
{
    const size_t length = strlen(mark);

    for (size_t at = size; at >= length; at--)
        if (memcmp(text + at - length, mark, length) == 0)
            return text + at;
    return NULL;
}

/* Newlines around text[size] are left out, on the left only without `right`. */
static void trim_lines(const char **text, size_t *size, bool right)
{
    for (; *size > 0 && (*text)[0] == '\n'; (*size)--)
        (*text)++;
    while (right && *size > 0 && (*text)[*size - 1] == '\n')
        (*size)--;
}

/* What the assistant thought and said: thoughts only after the last question. */
static enum mics_status put_thinking(struct rendering *rendering, size_t index, const char *text,
                                     size_t size)
{
    const char *said = after_last(text, size, "</think>"), *thought = text;
    size_t said_size = size, thought_size = 0;
    enum mics_status status = MICS_OK;

    if (said) {
        const char *end = memmem(text, size, "</think>", 8); /* the first one */

        thought_size = (size_t)(end - text);
        while (thought_size > 0 && text[thought_size - 1] == '\n')
            thought_size--;
        const char *begin = after_last(text, thought_size, "<think>");

        thought = begin ? begin : text;
        thought_size -= (size_t)(thought - text);
        trim_lines(&thought, &thought_size, true);
        said_size = size - (size_t)(said - text);
        trim_lines(&said, &said_size, false);
    } else {
        said = text;
    }
    rendering->said = said_size > 0;
    if (index > rendering->last_query &&
        (index + 1 == rendering->conversation->count || thought_size > 0)) {
        status = put(rendering, "<think>\n", 8);
        if (status == MICS_OK)
            status = put(rendering, thought, thought_size);
        if (status == MICS_OK)
            status = put(rendering, "\n</think>\n\n", 11);
        trim_lines(&said, &said_size, false);
    }
    return status == MICS_OK ? put(rendering, said, said_size) : status;
}

/* A value as the tojson of transformers writes it. */
static enum mics_status put_json(struct rendering *rendering, const json_t *value, int indent)
{
    char *text = NULL;
    size_t size = 0;
    enum mics_status status = mics_foreign_write(value, indent, &text, &size, rendering->err);

    if (status == MICS_OK)
        status = put(rendering, text, size);
    free(text);
    return status;
}

static enum mics_status put_string(struct rendering *rendering, const char *text, size_t size)
{
    json_t *value = json_stringn_nocheck(text, size);
    const enum mics_status status =
        value ? put_json(rendering, value, 0) : mics_err_nomem(rendering->err);

    json_decref(value);
    return status;
}

static enum mics_status put_content(struct rendering *rendering, size_t index)
{
    const struct mics_chat_message *message = &rendering->conversation->messages[index];
    const uint32_t flags = rendering->chat->format->flags;
    const char *text = message->text;
    size_t size = message->size;

    if (flags & (1u << message->role))
        trim(&text, &size);
    if (message->role == MICS_CHAT_ASSISTANT && (flags & MICS_CHAT_LAST_THINKING))
        return put_thinking(rendering, index, text, size);
    if (message->role == MICS_CHAT_ASSISTANT && (flags & MICS_CHAT_DROP_THINKING)) {
        const char *said = after_last(text, size, "</think>");

        size -= said ? (size_t)(said - text) : 0;
        text = said ? said : text;
    }
    rendering->said = size > 0;
    if (message->role == MICS_CHAT_TOOL && (flags & MICS_CHAT_TOOL_JSON))
        return put_string(rendering, text, size);
    return put(rendering, text, size);
}

static enum mics_status put_call(struct rendering *rendering, const struct mics_chat_call *call)
{
    const struct mics_chat_tools *tools = rendering->chat->format->tools;
    enum mics_status status = put_text(rendering, tools->call_before, NULL);

    if (status == MICS_OK)
        status = put(rendering, call->name, call->name_size);
    if (status == MICS_OK)
        status = put_text(rendering, tools->call_arguments, NULL);
    if (status == MICS_OK && call->text && (tools->flags & MICS_CHAT_ARGUMENTS_AS_WRITTEN))
        status = put(rendering, call->text, call->text_size);
    else if (status == MICS_OK)
        status = put_json(rendering, call->arguments, 0);
    return status == MICS_OK ? put_text(rendering, tools->call_after, NULL) : status;
}

/* The calls of a message whose content has been put. */
static enum mics_status put_calls(struct rendering *rendering, size_t index)
{
    const struct mics_chat_message *message = &rendering->conversation->messages[index];
    const struct mics_chat_tools *tools = rendering->chat->format->tools;
    const bool said = rendering->said;
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < message->call_count && status == MICS_OK; i++) {
        if (said || i > 0)
            status = put_text(rendering, tools->call_between, NULL);
        if (status == MICS_OK)
            status = put_call(rendering, &message->calls[i]);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(rendering->err, "messages[%zu]: tool_calls[%zu]: \"arguments\"", index,
                            i);
    }
    return status;
}

/* The descriptions of tools. */
static enum mics_status put_tools(struct rendering *rendering)
{
    const struct mics_chat_tools *tools = rendering->chat->format->tools;
    const json_t *list = rendering->conversation->tools;
    enum mics_status status = put_text(rendering, tools->list_before, NULL);

    for (size_t i = 0; i < json_array_size(list) && status == MICS_OK; i++) {
        status = put_text(rendering, tools->tool_before, NULL);
        if (status == MICS_OK)
            status = put_json(rendering, json_array_get(list, i), tools->indent);
        if (status == MICS_ERR_FORMAT)
            mics_err_prefix(rendering->err, "tools[%zu]", i);
        if (status == MICS_OK)
            status = put_text(rendering, tools->tool_after, NULL);
    }
    return status == MICS_OK ? put_text(rendering, tools->list_after, NULL) : status;
}

static enum mics_status add_answer(struct rendering *rendering, size_t begin, size_t end)
{
    struct mics_chat_text *out = rendering->out;

    if (begin == end)
        return MICS_OK;
    if (out->answer_count == out->answer_capacity) {
        const size_t capacity = 2 * out->answer_capacity + 8;
        struct mics_chat_part *grown = realloc(out->answers, capacity * sizeof *grown);

        if (!grown)
            return mics_err_nomem(rendering->err);
        out->answers = grown;
        out->answer_capacity = capacity;
    }
    out->answers[out->answer_count++] = (struct mics_chat_part){.begin = begin, .end = end};
    return MICS_OK;
}

/* White space around what was put from `begin` on is left out. */
static void trim_from(struct rendering *rendering, size_t begin)
{
    struct mics_chat_buffer *text = &rendering->out->text;
    const char *from = text->bytes + begin;
    size_t size = text->size - begin;

    trim(&from, &size);
    memmove(text->bytes + begin, from, size);
    text->size = begin + size;
}

/* The system's text as it is inside of a message of the user. */
static enum mics_status put_inside(struct rendering *rendering)
{
    const struct mics_chat_around *around = &rendering->chat->format->role[MICS_CHAT_SYSTEM];
    enum mics_status status = put_text(rendering, around->before, NULL);

    if (status == MICS_OK)
        status = put_content(rendering, 0);
    return status == MICS_OK ? put_text(rendering, around->after, NULL) : status;
}

/* The first message that is not the system's. */
static size_t first_after_system(const struct mics_conversation *conversation)
{
    return conversation->messages[0].role == MICS_CHAT_SYSTEM;
}

/* A message of the system that ends with the descriptions of tools. */
static enum mics_status put_system_with_tools(struct rendering *rendering)
{
    const struct mics_chat_format *format = rendering->chat->format;
    enum mics_status status = put_text(rendering, format->role[MICS_CHAT_SYSTEM].before, NULL);

    if (status == MICS_OK)
        status = put_content(rendering, 0);
    if (status == MICS_OK)
        status = put_text(rendering, format->tools->after_system, NULL);
    return status == MICS_OK ? put_tools(rendering) : status;
}

/* A message; with `inside` the system's, which is the first, is inside of it. */
static enum mics_status put_message(struct rendering *rendering, size_t index, bool inside)
{
    const struct mics_chat_format *format = rendering->chat->format;
    const struct mics_chat_message *message = &rendering->conversation->messages[index];
    const struct mics_chat_around *around = &format->role[message->role];
    const bool last = index + 1 == rendering->conversation->count;
    const bool row = message->role == MICS_CHAT_TOOL && (format->flags & MICS_CHAT_TOOLS_TOGETHER);
    const bool before = !row || index == 0 || message[-1].role != MICS_CHAT_TOOL;
    const bool after = !row || last || message[1].role != MICS_CHAT_TOOL;
    const bool open = last && (format->flags & MICS_CHAT_LAST_OPEN);
    const bool tools_inside = rendering->conversation->tools &&
                              format->tools->place == MICS_CHAT_USER &&
                              index == first_after_system(rendering->conversation);
    size_t stop = 0;
    enum mics_status status = before ? put_text(rendering, around->before, NULL) : MICS_OK;

    if (status == MICS_OK && row)
        status = put_text(rendering, format->tool.before, NULL);
    const size_t begin = rendering->out->text.size;

    if (status == MICS_OK && inside)
        status = put_inside(rendering);
    if (status == MICS_OK && tools_inside)
        status = put_tools(rendering);
    if (status == MICS_OK)
        status = put_content(rendering, index);
    if (status == MICS_OK)
        status = put_calls(rendering, index);
    if (status == MICS_OK && message->role == MICS_CHAT_USER &&
        (format->flags & MICS_CHAT_TRIM_MERGED))
        trim_from(rendering, begin);
    if (status == MICS_OK && row)
        status = put_text(rendering, format->tool.after, NULL);
    if (status == MICS_OK)
        status = put_text(rendering, after && !open ? around->after : NULL, &stop);
    if (status == MICS_OK && message->role == MICS_CHAT_ASSISTANT)
        status = add_answer(rendering, begin, stop);
    return status;
}

/* What a template raises, or would leave out without a word, of tools and calls. */
static enum mics_status check_tools(const struct mics_chat *chat,
                                    const struct mics_conversation *conversation,
                                    struct mics_err *err)
{
    const struct mics_chat_tools *tools = chat->format->tools;
    const size_t first = first_after_system(conversation);
    const char *name = chat->format->name;

    if (conversation->tools && !tools)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "\"tools\" is not supported with this chat template (%s)", name);
    if (conversation->tools && chat->tool_use)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "\"tools\" is not supported with a tokenizer that has a chat template "
                            "\"tool_use\" of its own");
    if (conversation->tools && tools->place == MICS_CHAT_USER &&
        conversation->messages[first].role != MICS_CHAT_USER)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "messages[%zu]: with \"tools\" the chat template (%s) begins with a "
                            "message of the user after the system's",
                            first, name);
    for (size_t i = 0; i < conversation->count; i++) {
        const struct mics_chat_message *message = &conversation->messages[i];

        if (message->call_count > 0 && !tools)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "messages[%zu]: \"tool_calls\" is not supported with this chat "
                                "template (%s)",
                                i, name);
        if (message->call_count > 0 && (tools->flags & MICS_CHAT_CALL_ALONE) &&
            (message->call_count > 1 || message->size > 0))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "messages[%zu]: the chat template (%s) takes one call in a "
                                "message, and no content beside it",
                                i, name);
    }
    return MICS_OK;
}

/* The same of all messages. */
static enum mics_status check(const struct mics_chat_format *format,
                              const struct mics_conversation *conversation, struct mics_err *err)
{
    const bool alternates = format->flags & MICS_CHAT_ALTERNATES;
    size_t turn = 0;

    if ((format->flags & MICS_CHAT_SYSTEM_NEEDED) &&
        conversation->messages[0].role != MICS_CHAT_SYSTEM)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "without a message of the system the chat template (%s) makes a text "
                            "that depends on the date",
                            format->name);
    for (size_t i = 0; i < conversation->count; i++) {
        const enum mics_chat_role role = conversation->messages[i].role;

        if (!format->role[role].before)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "messages[%zu]: the chat template (%s) has no role \"%s\"", i,
                                format->name, mics_chat_role_name(role));
        if (i == 0 && role >= MICS_CHAT_ASSISTANT && (format->flags & MICS_CHAT_USER_FIRST))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "messages[0]: the chat template (%s) begins with system or user",
                                format->name);
        if (role == MICS_CHAT_SYSTEM && i > 0 && (format->flags & MICS_CHAT_SYSTEM_FIRST))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "messages[%zu]: the chat template (%s) takes the system as the "
                                "first message only",
                                i, format->name);
        if (role == MICS_CHAT_SYSTEM)
            continue;
        if (alternates && role != (turn % 2 ? MICS_CHAT_ASSISTANT : MICS_CHAT_USER))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "messages[%zu]: the chat template (%s) takes user and assistant "
                                "in turn, but this one is of the %s",
                                i, format->name, mics_chat_role_name(role));
        turn++;
    }
    return MICS_OK;
}

/* The last question of the user, as Qwen3 counts them: results of tools are none. */
static size_t find_last_query(const struct mics_conversation *conversation)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";

    for (size_t i = conversation->count; i-- > 0;) {
        const struct mics_chat_message *message = &conversation->messages[i];
        const bool result =
            message->size >= sizeof end - 1 &&
            memcmp(message->text, begin, sizeof begin - 1) == 0 &&
            memcmp(message->text + message->size - (sizeof end - 1), end, sizeof end - 1) == 0;

        if (message->role == MICS_CHAT_USER && !result)
            return i;
    }
    return conversation->count - 1;
}

static enum mics_status put_conversation(struct rendering *rendering)
{
    const struct mics_chat_format *format = rendering->chat->format;
    const struct mics_conversation *conversation = rendering->conversation;
    const struct mics_chat_message *first = &conversation->messages[0];
    const struct mics_chat_message *last = first + conversation->count - 1;
    const bool said = first->role == MICS_CHAT_SYSTEM;
    const bool system = said && !(first->size == 0 && (format->flags & MICS_CHAT_SKIP_EMPTY));
    const bool inside = system && (format->flags & MICS_CHAT_SYSTEM_INSIDE);
    const struct mics_chat_tools *tools = conversation->tools ? format->tools : NULL;
    const bool ends_system = tools && tools->place == MICS_CHAT_SYSTEM;
    enum mics_status status =
        put_text(rendering, tools && tools->begin ? tools->begin : format->begin, NULL);

    if (status == MICS_OK && !system)
        status = put_text(rendering,
                          tools && tools->no_system ? tools->no_system : format->no_system, NULL);
    if (status == MICS_OK && ends_system)
        status = system ? put_system_with_tools(rendering) : put_tools(rendering);
    for (size_t i = said && (inside || !system || ends_system);
         status == MICS_OK && i < conversation->count; i++)
        status = put_message(rendering, i, inside && i == 1);
    if (status == MICS_OK && last->role == MICS_CHAT_ASSISTANT)
        status = put_text(rendering, format->end_answer, NULL);
    return status == MICS_OK ? put_text(rendering, format->end, NULL) : status;
}

enum mics_status mics_chat_render(const struct mics_chat *chat, const json_t *object,
                                  struct mics_chat_text *out, struct mics_err *err)
{
    struct mics_conversation conversation;
    struct rendering rendering = {
        .chat = chat, .conversation = &conversation, .out = out, .err = err};

    out->text.size = 0;
    out->answer_count = 0;
    enum mics_status status = mics_conversation_read(object, &conversation, err);

    if (status != MICS_OK)
        return status;
    status = check(chat->format, &conversation, err);
    if (status == MICS_OK)
        status = check_tools(chat, &conversation, err);
    rendering.last_query = find_last_query(&conversation);
    if (status == MICS_OK)
        status = put_conversation(&rendering);
    mics_conversation_free(&conversation);
    return status;
}
