/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat/conversation.h"

#include "doc/doc.h"
#include "doc/foreign.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_names[MICS_CHAT_ROLES] = {"system", "user", "assistant", "tool"};

const char *mics_chat_role_name(enum mics_chat_role role)
{
    return role_names[role];
}

void mics_conversation_free(struct mics_conversation *conversation)
{
    for (size_t i = 0; i < conversation->count; i++) {
        struct mics_chat_message *message = &conversation->messages[i];

        for (size_t k = 0; k < message->call_count; k++)
            json_decref(message->calls[k].arguments);
        free(message->calls);
    }
    free(conversation->messages);
    free(conversation->joined.bytes);
    *conversation = (struct mics_conversation){0};
}

static void add(struct mics_conversation *out, enum mics_chat_role role, const char *text,
                size_t size)
{
    out->messages[out->count++] =
        (struct mics_chat_message){.role = role, .text = text, .size = size};
}

/* Is a member absent, null or empty? */
static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

/* Members that would change the conversation are refused, unless they are null or empty. `beside`:
 * the member that does not go with them; NULL: they go with none. */
static enum mics_status refuse_members(const json_t *object, const char *const *keys,
                                       const char *where, const char *beside, struct mics_err *err)
{
    for (; *keys; keys++) {
        if (is_empty(json_object_get(object, *keys)))
            continue;
        if (beside)
            return mics_err_set(err, MICS_ERR_FORMAT, "%s\"%s\" is not supported beside \"%s\"",
                                where, *keys, beside);
        return mics_err_set(err, MICS_ERR_FORMAT, "%s\"%s\" is not supported in conversations",
                            where, *keys);
    }
    return MICS_OK;
}

/* Members that say whether a message is learned may only say what is so anyway. */
static enum mics_status check_weight(const json_t *message, const char *where, struct mics_err *err)
{
    static const char *const keys[] = {"weight", "train", "training"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(message, keys[i]);

        if (value && !json_is_null(value) && !json_is_true(value) &&
            !(json_is_number(value) && json_number_value(value) == 1))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "%s\"%s\" that is not %s is not supported in conversations", where,
                                keys[i], i == 0 ? "1" : "true");
    }
    return MICS_OK;
}

/* The function of a description or a call, which is an object with "function", that with a name. */
static enum mics_status read_function(const json_t *object, const char *where, const json_t **out,
                                      struct mics_err *err)
{
    const json_t *type = json_object_get(object, "type");

    *out = json_object_get(object, "function");
    if (!json_is_object(object))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: expected an object", where);
    if (type && !(json_is_string(type) && strcmp(json_string_value(type), "function") == 0))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: a \"type\" that is not \"function\"", where);
    if (!json_is_object(*out))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: no object \"function\"", where);
    if (!json_is_string(json_object_get(*out, "name")))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: the function has no string \"name\"", where);
    return MICS_OK;
}

/* Arguments in a string are JSON, too. */
static enum mics_status read_arguments(const json_t *value, const char *where,
                                       struct mics_chat_call *out, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    if (json_is_object(value)) {
        out->arguments = json_incref((json_t *)(uintptr_t)value);
    } else if (json_is_string(value)) {
        out->text = json_string_value(value);
        out->text_size = json_string_length(value);
        status =
            mics_foreign_read(out->text, out->text_size, MICS_DOC_MAX_VALUES, &out->arguments, err);
        if (status != MICS_OK)
            mics_err_prefix(err, "%s: \"arguments\"", where);
    } else {
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "%s: \"arguments\": expected an object, or a string with one", where);
    }
    return status;
}

static enum mics_status read_calls(const json_t *calls, const char *where,
                                   struct mics_chat_message *out, struct mics_err *err)
{
    const size_t count = json_array_size(calls);
    enum mics_status status = MICS_OK;

    if (!json_is_array(calls))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s\"tool_calls\": expected a list", where);
    if (out->role != MICS_CHAT_ASSISTANT)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s\"tool_calls\" of the %s", where,
                            mics_chat_role_name(out->role));
    out->calls = calloc(count, sizeof *out->calls);
    if (!out->calls)
        return mics_err_nomem(err);
    out->call_count = count;
    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        struct mics_chat_call *call = &out->calls[i];
        const json_t *function = NULL;
        char place[80];

        snprintf(place, sizeof place, "%stool_calls[%zu]", where, i);
        status = read_function(json_array_get(calls, i), place, &function, err);
        if (status != MICS_OK)
            break;
        const json_t *name = json_object_get(function, "name");

        call->name = json_string_value(name);
        call->name_size = json_string_length(name);
        status = read_arguments(json_object_get(function, "arguments"), place, call, err);
    }
    return status;
}

static enum mics_status read_tools(const json_t *tools, struct mics_conversation *out,
                                   struct mics_err *err)
{
    const json_t *function;
    enum mics_status status = MICS_OK;

    if (is_empty(tools))
        return MICS_OK;
    if (!json_is_array(tools))
        return mics_err_set(err, MICS_ERR_FORMAT, "\"tools\": expected a list");
    out->tools = tools;
    for (size_t i = 0; i < json_array_size(tools) && status == MICS_OK; i++) {
        char where[32];

        snprintf(where, sizeof where, "tools[%zu]", i);
        status = read_function(json_array_get(tools, i), where, &function, err);
    }
    return status;
}

static enum mics_status read_message(const json_t *message, size_t index,
                                     struct mics_conversation *out, struct mics_err *err)
{
    static const char *const refused[] = {"function_call", "reasoning_content", "thinking", NULL};
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    const char *name = json_string_value(role);
    char where[48];

    snprintf(where, sizeof where, "messages[%zu]: ", index);
    if (!json_is_object(message))
        return mics_err_set(err, MICS_ERR_FORMAT, "%sexpected an object", where);
    enum mics_status status = refuse_members(message, refused, where, NULL, err);

    if (status == MICS_OK)
        status = check_weight(message, where, err);
    if (status != MICS_OK)
        return status;
    if (!name)
        return mics_err_set(err, MICS_ERR_FORMAT, "%sno string \"role\"", where);
    for (int i = 0; i < MICS_CHAT_ROLES; i++) {
        if (strcmp(name, role_names[i]) != 0)
            continue;
        const bool silent = !is_empty(calls) && (!content || json_is_null(content));

        if (!json_is_string(content) && !silent)
            return mics_err_set(err, MICS_ERR_FORMAT, "%sno string \"content\"%s", where,
                                json_is_array(content) ? " but a list of parts" : "");
        add(out, (enum mics_chat_role)i, silent ? "" : json_string_value(content),
            json_string_length(content));
        return is_empty(calls) ? MICS_OK
                               : read_calls(calls, where, &out->messages[out->count - 1], err);
    }
    return mics_err_set(err, MICS_ERR_FORMAT,
                        "%srole \"%.40s\" is none of system, user, assistant, tool", where, name);
}

static enum mics_status read_messages(const json_t *messages, struct mics_conversation *out,
                                      struct mics_err *err)
{
    const size_t count = json_array_size(messages);
    enum mics_status status = MICS_OK;
    bool answered = false;

    if (!json_is_array(messages))
        return mics_err_set(err, MICS_ERR_FORMAT, "\"messages\": expected a list");
    if (count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "\"messages\" is empty");
    out->messages = calloc(count, sizeof *out->messages);
    if (!out->messages)
        return mics_err_nomem(err);
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        status = read_message(json_array_get(messages, i), i, out, err);
    for (size_t i = 0; status == MICS_OK && i < count; i++)
        answered = answered || out->messages[i].role == MICS_CHAT_ASSISTANT;
    if (status == MICS_OK && !answered)
        return mics_err_set(err, MICS_ERR_FORMAT, "\"messages\" has none of the assistant");
    return status;
}

/* The string of the first of names[] that the object has; NULL: it has none, or another value. */
static const json_t *first_string(const json_t *object, const char *const *names)
{
    const json_t *value = NULL;

    for (; *names && !value; names++)
        value = json_object_get(object, *names);
    return json_is_string(value) ? value : NULL;
}

/* One question and one answer. */
static enum mics_status read_pair(const json_t *object, const char *question,
                                  const char *const *answers, struct mics_conversation *out,
                                  struct mics_err *err)
{
    const json_t *system = json_object_get(object, "system");
    const json_t *asked = json_object_get(object, question), *said = first_string(object, answers);
    const json_t *input = json_object_get(object, "input");
    enum mics_status status;

    if (!json_is_string(asked))
        return mics_err_set(err, MICS_ERR_FORMAT, "no string \"%s\"", question);
    if (!said)
        return mics_err_set(err, MICS_ERR_FORMAT, "\"%s\" without a string \"%s\"", question,
                            answers[0]);
    if (system && !json_is_null(system) && !json_is_string(system))
        return mics_err_set(err, MICS_ERR_FORMAT, "\"system\": expected a string");
    out->messages = calloc(3, sizeof *out->messages);
    if (!out->messages)
        return mics_err_nomem(err);
    if (json_is_string(system) && json_string_length(system) > 0)
        add(out, MICS_CHAT_SYSTEM, json_string_value(system), json_string_length(system));
    status = mics_chat_buffer_append(&out->joined, json_string_value(asked),
                                     json_string_length(asked), err);
    if (strcmp(question, "instruction") == 0 && input && !json_is_null(input)) {
        if (!json_is_string(input))
            return mics_err_set(err, MICS_ERR_FORMAT, "\"input\": expected a string");
        if (status == MICS_OK && json_string_length(input) > 0)
            status = mics_chat_buffer_append(&out->joined, "\n", 1, err);
        if (status == MICS_OK)
            status = mics_chat_buffer_append(&out->joined, json_string_value(input),
                                             json_string_length(input), err);
    }
    add(out, MICS_CHAT_USER, out->joined.bytes, out->joined.size);
    add(out, MICS_CHAT_ASSISTANT, json_string_value(said), json_string_length(said));
    return status;
}

enum mics_status mics_conversation_read(const json_t *object, struct mics_conversation *out,
                                        struct mics_err *err)
{
    static const char *const outputs[] = {"output", NULL};
    static const char *const responses[] = {"response", "completion", "answer", NULL};
    static const char *const refused[] = {"functions", "history", NULL};
    static const char *const beside_messages[] = {"system", NULL};
    static const char *const beside_instruction[] = {"tools", NULL};
    static const char *const beside_prompt[] = {"tools", "input", NULL};
    const json_t *messages = json_object_get(object, "messages");
    const json_t *instruction = json_object_get(object, "instruction");
    enum mics_status status = refuse_members(object, refused, "", NULL, err);

    *out = (struct mics_conversation){0};
    if (status == MICS_OK && messages)
        status = refuse_members(object, beside_messages, "", "messages", err);
    else if (status == MICS_OK && instruction)
        status = refuse_members(object, beside_instruction, "", "instruction", err);
    else if (status == MICS_OK && json_object_get(object, "prompt"))
        status = refuse_members(object, beside_prompt, "", "prompt", err);
    if (status == MICS_OK && messages)
        status = read_tools(json_object_get(object, "tools"), out, err);
    if (status == MICS_OK && messages)
        status = read_messages(messages, out, err);
    else if (status == MICS_OK && instruction)
        status = read_pair(object, "instruction", outputs, out, err);
    else if (status == MICS_OK && json_object_get(object, "prompt"))
        status = read_pair(object, "prompt", responses, out, err);
    else if (status == MICS_OK)
        status = mics_err_set(err, MICS_ERR_FORMAT,
                              "no \"messages\", nor \"instruction\", nor \"prompt\"");
    if (status != MICS_OK)
        mics_conversation_free(out);
    return status;
}
