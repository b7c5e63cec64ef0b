/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat/conversation.h"

#include "base/units.h"
#include "data/chat/template.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAST_SECOND     253402300799 /* of the year 9999 */
#define MAX_TOKEN_BYTES 256          /* that a token has across a border of an answer, at most */

struct mics_chat {
    const struct mics_chat_format *format;
    bool insisted; /* on the format, which is not the template's own */
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
    return put(rendering, text, size);
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
    size_t stop = 0;
    enum mics_status status = before ? put_text(rendering, around->before, NULL) : MICS_OK;

    if (status == MICS_OK && row)
        status = put_text(rendering, format->tool.before, NULL);
    const size_t begin = rendering->out->text.size;

    if (status == MICS_OK && inside)
        status = put_inside(rendering);
    if (status == MICS_OK)
        status = put_content(rendering, index);
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

/* What a template raises, or would leave out without a word. */
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
    enum mics_status status = put_text(rendering, format->begin, NULL);

    if (status == MICS_OK && !system)
        status = put_text(rendering, format->no_system, NULL);
    for (size_t i = said && (inside || !system); status == MICS_OK && i < conversation->count; i++)
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
    rendering.last_query = find_last_query(&conversation);
    if (status == MICS_OK)
        status = put_conversation(&rendering);
    mics_conversation_free(&conversation);
    return status;
}

/*
 * Encoding.
 */

/* A text is encoded in pieces, which begin where its ids are those of the whole. */
struct encoding {
    struct mics_encoder *encoder;
    const struct mics_tokenizer *tokenizer;
    const struct mics_chat_buffer *text;
    struct mics_chat_buffer *ids;
    struct mics_err *err;
};

static int flags_at(size_t offset)
{
    return MICS_TOKENIZER_SPECIAL | (offset ? MICS_TOKENIZER_CONTINUES : 0);
}

/* Append the ids of text[begin, end), the whole of a piece. */
static enum mics_status put_piece(struct encoding *encoding, size_t begin, size_t end)
{
    const uint32_t *ids = NULL;
    size_t count = 0;
    enum mics_status status =
        mics_encode(encoding->encoder, encoding->text->bytes + begin, end - begin, flags_at(begin),
                    &ids, &count, NULL, encoding->err);

    return status == MICS_OK
               ? mics_chat_buffer_append(encoding->ids, ids, count * sizeof *ids, encoding->err)
               : status;
}

/* How many of ids[count], some of which are marked, and which are those of a text from `begin` on,
 * end at or before `end`. *across: the next one begins before it, and ends behind it. A place is
 * between two tokens if the text before it has the ids of the tokens before it. */
static enum mics_status count_before(struct encoding *encoding, const uint32_t *ids, size_t count,
                                     size_t begin, size_t end, size_t *before, bool *across)
{
    const char *text = encoding->text->bytes;
    enum mics_status status = MICS_OK;

    *before = 0;
    *across = false;
    for (size_t place = end; place > begin && status == MICS_OK; *across = true) {
        const uint32_t *part = NULL;
        size_t part_count = 0, same = 0;

        status = mics_encode(encoding->encoder, text + begin, place - begin, flags_at(begin), &part,
                             &part_count, NULL, encoding->err);
        while (same < part_count && same < count && part[same] == (ids[same] & ~MICS_TOKEN_PROMPT))
            same++;
        if (same == part_count || end - place > MAX_TOKEN_BYTES) {
            *before = same;
            return status;
        }
        do
            place--;
        while (place > begin && (text[place] & 0xc0) == 0x80);
    }
    return status;
}

/* A place in the text, and in the ids. */
struct border {
    size_t offset;
    size_t piece;  /* offset of its piece */
    size_t before; /* ids before that piece */
};

/* The pieces of a text, each from the last place before a border where it can be cut. */
static enum mics_status put_pieces(struct encoding *encoding, struct border *borders, size_t count)
{
    size_t piece = 0;
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        const size_t cut = mics_tokenizer_cut(encoding->tokenizer, encoding->text->bytes + piece,
                                              borders[i].offset - piece);

        if (cut > 0 && cut < borders[i].offset - piece) {
            status = put_piece(encoding, piece, piece + cut);
            piece += cut;
        }
        borders[i].piece = piece;
        borders[i].before = encoding->ids->size / sizeof(uint32_t);
    }
    return status == MICS_OK ? put_piece(encoding, piece, encoding->text->size) : status;
}

static void mark(uint32_t *ids, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        ids[i] |= MICS_TOKEN_PROMPT;
}

/* Where in ids[total] a border is. *across: by what is before it, in the token there. */
static enum mics_status find_border(struct encoding *encoding, const struct border *border,
                                    const uint32_t *ids, size_t total, size_t *at, bool *across)
{
    size_t before = 0;
    const enum mics_status status =
        count_before(encoding, ids + border->before, total - border->before, border->piece,
                     border->offset, &before, across);

    *at = border->before + before;
    return status;
}

/* The same for where an answer begins, by its own ids, if these end at ids[end]: white space before
 * it may have other ids if nothing follows. */
static enum mics_status find_begin(struct encoding *encoding, const struct border *borders,
                                   const uint32_t *ids, size_t end, size_t *at)
{
    const size_t begin = borders[0].offset;
    const uint32_t *part = NULL;
    size_t count = 0;
    enum mics_status status =
        mics_encode(encoding->encoder, encoding->text->bytes + begin, borders[1].offset - begin,
                    flags_at(begin), &part, &count, NULL, encoding->err);

    if (status == MICS_OK && count <= end - *at &&
        memcmp(ids + end - count, part, count * sizeof *part) == 0)
        *at = end - count;
    return status;
}

/* Find where answers are in the ids from `first` on, and mark all others. Borders are in pairs. */
static enum mics_status mark_prompts(struct encoding *encoding, size_t first,
                                     const struct border *borders, size_t count)
{
    const size_t total = encoding->ids->size / sizeof(uint32_t);
    uint32_t *ids = (uint32_t *)(void *)encoding->ids->bytes;
    size_t marked = first; /* all before it are marked, or of answers */
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count && status == MICS_OK; i += 2) {
        size_t begin = 0, end = 0;
        bool across = false, inside = false;

        status = find_border(encoding, &borders[i], ids, total, &begin, &inside);
        if (status == MICS_OK)
            status = find_border(encoding, &borders[i + 1], ids, total, &end, &across);
        end += across && end < total; /* a token that is only in part of the answer is of it */
        end = end < marked ? marked : end;
        begin = begin < marked ? marked : begin > end ? end : begin;
        if (status == MICS_OK && inside)
            status = find_begin(encoding, &borders[i], ids, end, &begin);
        if (status == MICS_OK)
            mark(ids, marked, begin);
        marked = end;
    }
    if (status == MICS_OK)
        mark(ids, marked, total);
    return status;
}

enum mics_status mics_chat_encode(struct mics_encoder *encoder,
                                  const struct mics_tokenizer *tokenizer,
                                  const struct mics_chat_text *text, struct mics_chat_buffer *ids,
                                  struct mics_err *err)
{
    struct encoding encoding = {
        .encoder = encoder, .tokenizer = tokenizer, .text = &text->text, .ids = ids, .err = err};
    const size_t first = ids->size / sizeof(uint32_t), count = 2 * text->answer_count;
    struct border *borders = calloc(count + 1, sizeof *borders);

    if (!borders)
        return mics_err_nomem(err);
    for (size_t i = 0; i < text->answer_count; i++) {
        borders[2 * i] = (struct border){.offset = text->answers[i].begin};
        borders[2 * i + 1] = (struct border){.offset = text->answers[i].end};
    }
    enum mics_status status = put_pieces(&encoding, borders, count);

    if (status == MICS_OK)
        status = mark_prompts(&encoding, first, borders, count);
    free(borders);
    return status;
}
