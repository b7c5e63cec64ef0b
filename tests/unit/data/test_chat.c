/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat.c - conversations by chat templates. Texts are those of transformers 5.24
 * (tests/reference/check_chat.py --write); answers and what is refused are written by hand. */
#include "tap.h"

#include "data/chat/formats.h"
#include "data/chat/template.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EXPECTED "tests/reference/chat.jsonl"
#define KNOWN    61 /* shapes in that file */

/* ChatML, as it is often written. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

static struct mics_tokenizer *open_tokenizer(const char *config)
{
    /* One token for each letter, and those of ChatML. */
    char text[4096], *at = text;
    struct mics_tokenizer *tokenizer = NULL;
    struct mics_err err = {""};

    at += sprintf(at, "{\"version\": \"1.0\", \"added_tokens\": [");
    for (int i = 0; i < 2; i++)
        at += sprintf(at,
                      "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": "
                      "false, \"rstrip\": false, \"normalized\": false, \"special\": true}",
                      i ? ", " : "", 29 + i, i ? "<|im_end|>" : "<|im_start|>");
    at += sprintf(at, "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                      "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
                      "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, "
                      "\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xc4\x8a\": 0, "
                      "\"\xc4\xa0\": 1, \"\xc4\x8a\xc4\x8a\": 2");
    for (int c = 'a'; c <= 'z'; c++)
        at += sprintf(at, ", \"%c\": %d", c, c - 'a' + 3);
    sprintf(at, "}, \"merges\": [\"\xc4\x8a \xc4\x8a\"]}}");
    const struct mics_tokenizer_file files[] = {
        {.name = "tokenizer.json", .bytes = (unsigned char *)text, .size = strlen(text)},
        {.name = "tokenizer_config.json",
         .bytes = (unsigned char *)config,
         .size = config ? strlen(config) : 0}};

    CHECK_INT(mics_tokenizer_open_files(files, config ? 2 : 1, &tokenizer, &err), MICS_OK);
    CHECK_STR(err.text, "");
    return tokenizer;
}

static uint64_t digest(const char *template)
{
    struct mics_shape shape;
    struct mics_err err;

    CHECK_INT(mics_shape_read(template, strlen(template), &shape, &err), MICS_OK);
    const uint64_t value = shape.digest;

    mics_shape_free(&shape);
    return value;
}

static void shapes_do_not_depend_on_how_a_template_is_written(void)
{
    const uint64_t plain = digest("{% for m in messages %}{{ m['role'] + 'a\\n' }}{% endfor %}");

    CHECK(plain == digest("{%for m in messages%}{{m[\"role\"]+\"a\n\"}}{%endfor%}\n"));
    CHECK(plain == digest("{%- for m in messages -%}\n  {#- why -#}\n {{- m.role + 'a\\n' -}}\n"
                          "{% endfor %}"));
    CHECK(plain == digest("  {% for m in messages %}\n{{ m.role + 'a\\n' }}{% endfor %}"));
    CHECK(plain != digest("{% for m in messages %}{{ m['role'] + 'b\\n' }}{% endfor %}"));
    CHECK(plain != digest("{% for m in messages %} {{ m['role'] + 'a\\n' }}{% endfor %}"));
    CHECK(plain != digest("{% for m in messages %}{{ m['role'] + 'a\\n' }}\n{% endfor %}"));
    CHECK(digest("{{ 'You are a helpful one' }}") == digest("{{ 'You are a second one' }}"));
    CHECK(digest("{{ '\\d' }}") == digest("{{ '\\\\d' }}"));
    CHECK(digest("{{ 'short' }}") != digest("{{ 'Short' }}"));
}

static void damaged_templates_are_refused(void)
{
    static const char *const damaged[] = {"{% for", "{{ 'a", "{# a", "{{ a[", "{{ '\\",
                                          /* escapes that Jinja decodes, and mics does not */
                                          "{{ 'a\\x41' }}", "{{ 'a\\u0041' }}", "{{ '\\101' }}",
                                          "{{ 'a\\\n' }}", "{{ '\\\xc3\xa9' }}"};
    struct mics_shape shape;
    struct mics_err err;

    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        CHECK_INT(mics_shape_read(damaged[i], strlen(damaged[i]), &shape, &err), MICS_ERR_FORMAT);
}

/* Compare one conversation with what is expected: its text, or a refusal where transformers makes
 * no text, or where "refused" says that mics does not make that one. */
static void compare(const struct mics_chat *chat, const json_t *conversation)
{
    const json_t *expected = json_object_get(conversation, "text");
    struct mics_chat_text text = {.answer_count = 0};
    struct mics_err err = {""};
    const enum mics_status status = mics_chat_render(chat, conversation, &text, &err);

    if (!json_is_string(expected) || json_is_true(json_object_get(conversation, "refused"))) {
        CHECK_INT(status, MICS_ERR_FORMAT);
        CHECK(err.text[0] != '\0');
    } else {
        CHECK_STR(err.text, "");
        CHECK_INT(status, MICS_OK);
        mics_chat_buffer_append(&text.text, "", 1, &err);
        CHECK_STR(text.text.bytes, json_string_value(expected));
    }
    mics_chat_text_free(&text);
}

static void known_shapes_have_the_text_of_transformers(void)
{
    struct mics_tokenizer *tokenizer =
        open_tokenizer("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    FILE *file = fopen(EXPECTED, "r");
    char *line = NULL;
    size_t capacity = 0, shapes = 0;

    CHECK(file != NULL);
    while (file && getline(&line, &capacity, file) >= 0) {
        json_t *object = json_loads(line, 0, NULL);
        const json_t *prose = json_object_get(object, "prose");
        const char *name = json_string_value(json_object_get(object, "shape"));
        struct mics_shape shape = {.digest = strtoull(name, NULL, 16)};
        struct mics_chat *chat = NULL;
        struct mics_err err;

        shape.prose_count = json_array_size(prose);
        shape.prose = calloc(shape.prose_count + 1, sizeof *shape.prose);
        for (size_t i = 0; i < shape.prose_count; i++) {
            const json_t *value = json_array_get(prose, i);

            shape.prose[i] = (struct mics_prose){.bytes = strdup(json_string_value(value)),
                                                 .size = json_string_length(value)};
        }
        CHECK_INT(mics_chat_open_shape(tokenizer, &shape, &chat, &err), MICS_OK);
        if (chat)
            CHECK_STR(mics_chat_name(chat), json_string_value(json_object_get(object, "name")));
        for (size_t i = 0; chat && i < json_array_size(json_object_get(object, "conversations"));
             i++)
            compare(chat, json_array_get(json_object_get(object, "conversations"), i));
        mics_chat_free(chat);
        json_decref(object);
        shapes++;
    }
    CHECK_INT(shapes, KNOWN);
    if (file)
        fclose(file);
    free(line);
    mics_tokenizer_free(tokenizer);
}

/* Render a JSON text with ChatML, and write ids with '-' before those of prompts. */
static const char *encode(const char *json, char *out, size_t size)
{
    struct mics_tokenizer *tokenizer = open_tokenizer(NULL);
    const struct mics_tokenizer_files none = {.count = 0};
    struct mics_chat_text text = {.answer_count = 0};
    struct mics_chat_buffer ids = {.size = 0};
    struct mics_encoder *encoder = NULL;
    struct mics_chat *chat = NULL;
    json_t *object = json_loads(json, 0, NULL);
    struct mics_err err = {""};
    size_t used = 0;

    CHECK(object != NULL);
    CHECK_INT(mics_encoder_new(tokenizer, &encoder, &err), MICS_OK);
    CHECK_INT(mics_chat_open(tokenizer, &none, "chatml", &chat, &err), MICS_OK);
    enum mics_status status = mics_chat_render(chat, object, &text, &err);

    if (status == MICS_OK)
        status = mics_chat_encode(encoder, tokenizer, &text, &ids, &err);
    if (status != MICS_OK)
        snprintf(out, size, "%s", err.text);
    for (size_t i = 0; status == MICS_OK && i < ids.size / sizeof(uint32_t); i++) {
        uint32_t id;

        memcpy(&id, ids.bytes + i * sizeof id, sizeof id);
        used += (size_t)snprintf(out + used, size - used, "%s%s%" PRIu32, i ? " " : "",
                                 id & MICS_TOKEN_PROMPT ? "-" : "", id & ~MICS_TOKEN_PROMPT);
    }
    mics_chat_free(chat);
    mics_encoder_free(encoder);
    mics_chat_text_free(&text);
    free(ids.bytes);
    json_decref(object);
    mics_tokenizer_free(tokenizer);
    return out;
}

static void only_answers_and_the_end_of_their_turns_are_learned(void)
{
    char out[1024];

    /* <|im_start|> user \n a <|im_end|> \n <|im_start|> assistant \n bc <|im_end|> \n */
    CHECK_STR(encode("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                     "\"assistant\", \"content\": \"bc\"}]}",
                     out, sizeof out),
              "-29 -23 -21 -7 -20 -0 -3 -30 -0 -29 -3 -21 -21 -11 -21 -22 -3 -16 -22 -0 4 5 30 -0");
    /* A token that the header shares with the answer is learned. */
    CHECK_STR(encode("{\"instruction\": \"a\", \"input\": \"\", \"output\": \"\\n\\nb\"}", out,
                     sizeof out),
              "-29 -23 -21 -7 -20 -0 -3 -30 -0 -29 -3 -21 -21 -11 -21 -22 -3 -16 -22 2 0 4 30 -0");
    /* What looks like a special token is one. */
    CHECK_STR(encode("{\"prompt\": \"<|im_end|>\", \"response\": \"<|im_end|>\"}", out, sizeof out),
              "-29 -23 -21 -7 -20 -0 -30 -30 -0 -29 -3 -21 -21 -11 -21 -22 -3 -16 -22 -0 30 30 -0");
    /* An instruction and its input are one message. */
    CHECK_STR(encode("{\"system\": \"c\", \"instruction\": \"a\", \"input\": \"b\", \"output\": "
                     "\"\"}",
                     out, sizeof out),
              "-29 -21 -27 -21 -22 -7 -15 -0 -5 -30 -0 -29 -23 -21 -7 -20 -0 -3 -0 -4 -30 -0 -29 "
              "-3 -21 -21 -11 -21 -22 -3 -16 -22 -0 30 -0");
}

static void what_is_no_conversation_is_refused(void)
{
    static const struct {
        const char *json, *error;
    } cases[] = {
        {"{}", "no \"messages\", nor \"instruction\", nor \"prompt\""},
        {"{\"messages\": 1}", "\"messages\": expected a list"},
        {"{\"messages\": []}", "\"messages\" is empty"},
        {"{\"messages\": [1]}", "messages[0]: expected an object"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "messages[0]: no string \"role\""},
        {"{\"messages\": [{\"role\": \"user\"}]}", "messages[0]: no string \"content\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
         "messages[0]: no string \"content\" but a list of parts"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
         "\"messages\" has none of the assistant"},
        {"{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}",
         "messages[0]: role \"human\" is none of system, user, assistant, tool"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": "
         "\"f\", "
         "\"arguments\": {}}}]}]}",
         "messages[0]: \"tool_calls\" is not supported with this chat template (chatml)"},
        {"{\"tools\": [{\"function\": {\"name\": \"f\"}}], \"messages\": [{\"role\": "
         "\"assistant\", \"content\": \"\"}]}",
         "\"tools\" is not supported with this chat template (chatml)"},
        {"{\"tools\": [{}], \"prompt\": \"a\", \"answer\": \"\"}",
         "\"tools\" is not supported beside \"prompt\""},
        {"{\"tools\": [{}], \"instruction\": \"a\", \"output\": \"\"}",
         "\"tools\" is not supported beside \"instruction\""},
        {"{\"tools\": {\"a\": 1}, \"messages\": []}", "\"tools\": expected a list"},
        {"{\"tools\": [1], \"messages\": []}", "tools[0]: expected an object"},
        {"{\"tools\": [{\"type\": \"retrieval\"}], \"messages\": []}",
         "tools[0]: a \"type\" that is not \"function\""},
        {"{\"tools\": [{\"name\": \"f\"}], \"messages\": []}", "tools[0]: no object \"function\""},
        {"{\"tools\": [{\"function\": {}}], \"messages\": []}",
         "tools[0]: the function has no string \"name\""},
#define CALLS(role, calls) "{\"messages\": [{\"role\": \"" role "\", \"tool_calls\": " calls "}]}"
        {CALLS("assistant", "{}"), "messages[0]: \"tool_calls\": expected a list"},
        {CALLS("user", "[1]"), "messages[0]: \"tool_calls\" of the user"},
        {CALLS("assistant", "[1]"), "messages[0]: tool_calls[0]: expected an object"},
        {CALLS("assistant", "[{\"function\": {\"name\": 1}}]"),
         "messages[0]: tool_calls[0]: the function has no string \"name\""},
        {CALLS("assistant", "[{\"function\": {\"name\": \"f\"}}]"),
         "messages[0]: tool_calls[0]: \"arguments\": expected an object, or a string with one"},
        {CALLS("assistant", "[{\"function\": {\"name\": \"f\", \"arguments\": \"[1]\"}}]"),
         "messages[0]: tool_calls[0]: \"arguments\": line 1, column 1, offset 0: expected an "
         "object"},
        {CALLS("assistant", "[]"), "messages[0]: no string \"content\""},
        {"{\"history\": [[\"a\", \"b\"]], \"prompt\": \"a\", \"answer\": \"\"}",
         "\"history\" is not supported in conversations"},
        {"{\"system\": \"a\", \"messages\": []}",
         "\"system\" is not supported beside \"messages\""},
        {"{\"input\": \"a\", \"prompt\": \"a\", \"answer\": \"\"}",
         "\"input\" is not supported beside \"prompt\""},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"weight\": 0}]}",
         "messages[0]: \"weight\" that is not 1 is not supported in conversations"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"weight\": 1, \"train\": "
         "false}]}",
         "messages[0]: \"train\" that is not true is not supported in conversations"},
        {"{\"prompt\": \"a\"}", "\"prompt\" without a string \"response\""},
        {"{\"prompt\": [], \"response\": \"\"}", "no string \"prompt\""},
        {"{\"instruction\": \"a\", \"response\": \"\"}",
         "\"instruction\" without a string \"output\""},
        {"{\"instruction\": \"a\", \"input\": 1, \"output\": \"\"}",
         "\"input\": expected a string"},
        {"{\"system\": 1, \"prompt\": \"a\", \"answer\": \"\"}", "\"system\": expected a string"},
    };
    char out[1024];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(encode(cases[i].json, out, sizeof out), cases[i].error);
}

/* The text of a conversation by a format without its prose, or why there is none. */
static const char *render(const char *json, uint64_t digest_of_shape, char *out, size_t size)
{
    struct mics_tokenizer *tokenizer = open_tokenizer("{\"bos_token\": \"<s>\"}");
    struct mics_shape shape = {.digest = digest_of_shape};
    struct mics_chat_text text = {.answer_count = 0};
    struct mics_chat *chat = NULL;
    json_t *object = json_loads(json, 0, NULL);
    struct mics_err err = {""};

    CHECK(object != NULL);
    CHECK_INT(mics_chat_open_shape(tokenizer, &shape, &chat, &err), MICS_OK);
    if (mics_chat_render(chat, object, &text, &err) != MICS_OK)
        snprintf(out, size, "%s", err.text);
    else
        snprintf(out, size, "%.*s", (int)text.text.size, text.text.bytes);
    for (size_t i = 0; i < text.answer_count; i++) {
        const size_t used = strlen(out);

        snprintf(out + used, size - used, "|%.*s",
                 (int)(text.answers[i].end - text.answers[i].begin),
                 text.text.bytes + text.answers[i].begin);
    }
    mics_chat_text_free(&text);
    mics_chat_free(chat);
    json_decref(object);
    mics_tokenizer_free(tokenizer);
    return out;
}

#define QWEN3   0xe0f2f9c9b0023698
#define LLAMA32 0x5d233374b274f9d4
#define CALL(content, arguments)                                                                   \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "         \
    "\"content\": " content                                                                        \
    ", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": " arguments                \
    "}}]}, {\"role\": \"tool\", \"content\": \" b\"}]"
#define TOOLS ", \"tools\": [{\"function\": {\"name\": \"f\"}}]}"

static void calls_are_learned_and_results_are_not(void)
{
    char out[2048];

    CHECK_STR(render(CALL("\"c\"", "{\"x\": 0.1}") "}", QWEN3, out, sizeof out),
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nc\n<tool_call>\n{\"name\": "
              "\"f{\"x\": 0.1}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n b\n"
              "</tool_response><|im_end|>\n|c\n<tool_call>\n{\"name\": \"f{\"x\": 0.1}}\n"
              "</tool_call><|im_end|>");
    setenv("SOURCE_DATE_EPOCH", "86400", 1);
    CHECK_STR(
        render(CALL("null", "{}") TOOLS, LLAMA32, out, sizeof out),
        "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nToday Date: 02 "
        "Jan 1970\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{\n    \"function\": "
        "{\n        \"name\": \"f\"\n    }\n}\n\na<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\n{\"name\": \"f\", \"parameters\": {}}<|eot_id|>"
        "<|start_header_id|>ipython<|end_header_id|>\n\n\" b\"<|eot_id|>"
        "|{\"name\": \"f\", \"parameters\": {}}<|eot_id|>");
    CHECK_STR(render(CALL("\"c\"", "{}") TOOLS, LLAMA32, out, sizeof out),
              "messages[1]: the chat template (llama3) takes one call in a message, and no content "
              "beside it");
    unsetenv("SOURCE_DATE_EPOCH");
    CHECK_STR(render(CALL("null", "{\"x\": 1e30}") "}", QWEN3, out, sizeof out),
              "messages[1]: tool_calls[0]: \"arguments\": a number beyond 64 bits is not supported "
              "there");
}

static void templates_are_found_where_transformers_looks(void)
{
    struct mics_tokenizer *tokenizer = open_tokenizer(NULL);
    const char *config = "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"{{ a }}\"},"
                         " {\"name\": \"default\", \"template\": \"{{ b }}\"}]}";
    struct mics_tokenizer_files files = {.count = 0};
    struct mics_chat *chat = NULL;
    struct mics_chat_template found;
    struct mics_err err = {""};

    CHECK_INT(mics_chat_open(tokenizer, &files, NULL, &chat, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "the tokenizer has no chat template") != NULL);
    CHECK_INT(
        mics_tokenizer_files_add(&files, "tokenizer_config.json", config, strlen(config), &err),
        MICS_OK);
    CHECK_INT(mics_chat_template_find(&files, &found, &err), MICS_OK);
    CHECK_STR(found.text, "{{ b }}");
    CHECK(found.tool_use);
    mics_chat_template_close(&found);
    CHECK_INT(mics_chat_open(tokenizer, &files, NULL, &chat, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "tokenizer_config.json: the chat template is not a known one") != NULL);
    CHECK_INT(mics_chat_open(tokenizer, &files, "chatml", &chat, &err), MICS_OK);
    mics_chat_free(chat);
    CHECK_INT(mics_tokenizer_files_add(&files, "chat_template.jinja", chatml, strlen(chatml), &err),
              MICS_OK);
    CHECK_INT(mics_chat_open(tokenizer, &files, NULL, &chat, &err), MICS_OK);
    CHECK_STR(mics_chat_name(chat), "chatml");
    mics_chat_free(chat);
    CHECK_INT(mics_chat_open(tokenizer, &files, "chatxl", &chat, &err), MICS_ERR_ARG);
    mics_tokenizer_files_free(&files);
    mics_tokenizer_free(tokenizer);
}

static void what_a_format_needs_is_looked_for_at_once(void)
{
    struct mics_tokenizer *tokenizer = open_tokenizer(NULL);
    const struct mics_tokenizer_files none = {.count = 0};
    struct mics_chat *chat = NULL;
    struct mics_err err = {""};

    CHECK_INT(mics_chat_open(tokenizer, &none, "mistral", &chat, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "(mistral) needs the tokenizer's eos_token") != NULL);
    /* Markers that are tokens of the tokenizer, or not. */
    CHECK_INT(mics_chat_open(tokenizer, &none, "chatml", &chat, &err), MICS_OK);
    CHECK(mics_chat_split_marker(chat) == NULL);
    mics_chat_free(chat);
    CHECK_INT(mics_chat_open(tokenizer, &none, "gemma", &chat, &err), MICS_OK);
    CHECK_STR(mics_chat_split_marker(chat), "<start_of_turn>");
    mics_chat_free(chat);
    CHECK_INT(mics_chat_open(tokenizer, &none, "llama3", &chat, &err), MICS_OK);
    CHECK_STR(mics_chat_split_marker(chat), "<|start_header_id|>");
    mics_chat_free(chat);
    for (int valid = 0; valid < 2; valid++) {
        struct mics_shape shape = {.digest = LLAMA32};

        setenv("SOURCE_DATE_EPOCH", valid ? "86400" : "yesterday", 1);
        CHECK_INT(mics_chat_open_shape(tokenizer, &shape, &chat, &err),
                  valid ? MICS_OK : MICS_ERR_ARG);
        if (valid)
            mics_chat_free(chat);
        else
            CHECK(strncmp(err.text, "SOURCE_DATE_EPOCH: ", 19) == 0);
    }
    unsetenv("SOURCE_DATE_EPOCH");
    mics_tokenizer_free(tokenizer);
}

int main(void)
{
    TAP_RUN(shapes_do_not_depend_on_how_a_template_is_written);
    TAP_RUN(damaged_templates_are_refused);
    TAP_RUN(known_shapes_have_the_text_of_transformers);
    TAP_RUN(only_answers_and_the_end_of_their_turns_are_learned);
    TAP_RUN(what_is_no_conversation_is_refused);
    TAP_RUN(calls_are_learned_and_results_are_not);
    TAP_RUN(templates_are_found_where_transformers_looks);
    TAP_RUN(what_a_format_needs_is_looked_for_at_once);
    return tap_done();
}
