/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formats.h - what the known chat templates make of a conversation, as tables. For lib/data/chat
 * only.
 */
#ifndef MICS_DATA_CHAT_FORMATS_H
#define MICS_DATA_CHAT_FORMATS_H

#include "data/chat/chat.h"
#include "data/chat/shape.h"

#include <stdbool.h>

enum mics_chat_role { MICS_CHAT_SYSTEM, MICS_CHAT_USER, MICS_CHAT_ASSISTANT, MICS_CHAT_TOOL };
#define MICS_CHAT_ROLES 4

/* A call of a function by the assistant. */
struct mics_chat_call {
    const char *name; /* borrowed */
    size_t name_size;
    json_t *arguments; /* an object, of the conversation */
    const char *text;  /* borrowed: as it was written in a string; NULL: as an object */
    size_t text_size;
};

struct mics_chat_message {
    enum mics_chat_role role;
    const char *text; /* borrowed */
    size_t size;
    struct mics_chat_call *calls; /* [call_count] of the conversation */
    size_t call_count;
};

/* In the texts of a format. */
#define CHAT_BOS   "\001" /* the tokenizer's bos_token */
#define CHAT_EOS   "\002" /* its eos_token */
#define CHAT_STOP  "\003" /* what follows in this text is no part of the answer */
#define CHAT_DATE  "\005" /* today, as "26 Jul 2024" */
#define CHAT_PROSE "\004" /* and a letter: that text of the shape's prose, 'a' is the first */

enum mics_chat_flags {
    MICS_CHAT_TRIM_SYSTEM = 1 << MICS_CHAT_SYSTEM, /* white space around the content is left out */
    MICS_CHAT_TRIM_USER = 1 << MICS_CHAT_USER,
    MICS_CHAT_TRIM_ASSISTANT = 1 << MICS_CHAT_ASSISTANT,
    MICS_CHAT_TRIM_TOOL = 1 << MICS_CHAT_TOOL,
    MICS_CHAT_TRIM = 15,
    MICS_CHAT_ALTERNATES = 16,       /* after the system come user and assistant in turn */
    MICS_CHAT_SYSTEM_FIRST = 32,     /* the system is the first message, or none */
    MICS_CHAT_SYSTEM_INSIDE = 64,    /* its text is inside of the first message of the user */
    MICS_CHAT_TRIM_MERGED = 128,     /* white space around both together is left out */
    MICS_CHAT_SKIP_EMPTY = 256,      /* a system without content is none */
    MICS_CHAT_USER_FIRST = 512,      /* the first message is of the system or the user */
    MICS_CHAT_LAST_OPEN = 1024,      /* nothing follows the content of the last message */
    MICS_CHAT_SYSTEM_NEEDED = 2048,  /* without it the text depends on what is not known here */
    MICS_CHAT_TOOLS_TOGETHER = 4096, /* what is around tools is around all in a row of them */
    MICS_CHAT_DROP_THINKING = 8192,  /* of the assistant what follows the last </think> counts */
    /* What an assistant thought is left out up to the last question of the user, and put anew after
     * it, as Qwen3 does. */
    MICS_CHAT_LAST_THINKING = 16384,
    MICS_CHAT_TOOL_JSON = 32768 /* the content of a tool is put as a string of JSON */
};

/* What is put around a message of a role. `before` NULL: the template does not take the role. */
struct mics_chat_around {
    const char *before, *after;
};

enum mics_chat_tools_flags {
    MICS_CHAT_ARGUMENTS_AS_WRITTEN = 1, /* arguments in a string are put as they are */
    MICS_CHAT_CALL_ALONE = 2            /* a message has one call, and no content beside it */
};

/* What a template makes of descriptions and calls. NULL is "" if not said otherwise. */
struct mics_chat_tools {
    uint32_t flags;
    int indent;                /* of the descriptions; 0: each is in one line */
    enum mics_chat_role place; /* they end the system's message, or begin the first of the user */
    const char *begin;         /* instead of the format's; NULL: that */
    const char *no_system;     /* the same */
    const char *after_system;  /* between the system's content and them */
    const char *list_before, *tool_before, *tool_after;
    const char *list_after; /* of those in the system's message also what ends that */
    const char *call_before, *call_arguments, *call_after; /* around the name and the arguments */
    const char *call_between; /* and between a content and the first call */
};

struct mics_chat_format {
    const char *name;
    uint32_t flags;
    const char *begin;     /* before all messages; NULL is "" here and below */
    const char *no_system; /* what stands for the system if there is none */
    struct mics_chat_around role[MICS_CHAT_ROLES];
    struct mics_chat_around tool;        /* around each message, with MICS_CHAT_TOOLS_TOGETHER */
    const char *end;                     /* after all messages */
    const char *end_answer;              /* and this, if the last is of the assistant */
    const struct mics_chat_tools *tools; /* NULL: descriptions and calls are not supported */
};

/* The plainest format of a name; NULL: there is none. */
const struct mics_chat_format *mics_chat_format_by_name(const char *name);
/* The format of templates of a shape; NULL: it is not known. */
const struct mics_chat_format *mics_chat_format_by_shape(uint64_t digest);
/* A chat whose template has this shape, which it takes over, also after an error. MICS_ERR_FORMAT:
 * the shape is not known. */
enum mics_status mics_chat_open_shape(const struct mics_tokenizer *tokenizer,
                                      struct mics_shape *shape, struct mics_chat **out,
                                      struct mics_err *err);

#define MICS_CHAT_TEXTS (6 + 2 * MICS_CHAT_ROLES)
/* All texts of a format, of which some are NULL. */
void mics_chat_format_texts(const struct mics_chat_format *format,
                            const char *texts[MICS_CHAT_TEXTS]);
/* The first marker in a text that is meant to be a token, such as <|im_end|>; NULL: none. */
const char *mics_chat_next_marker(const char *text, size_t *length);

/* The format whose markers are in a template of unknown shape; NULL: none. */
const struct mics_chat_format *mics_chat_format_by_marker(const char *text, size_t size,
                                                          const char **marker);

#endif
