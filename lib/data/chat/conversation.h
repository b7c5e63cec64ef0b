/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.h - a JSON object as messages, whatever its members are. For lib/data/chat only. */
#ifndef MICS_DATA_CHAT_CONVERSATION_H
#define MICS_DATA_CHAT_CONVERSATION_H

#include "data/chat/formats.h"

/* Borrows texts of the object. */
struct mics_conversation {
    struct mics_chat_message *messages; /* [count], one of them of the assistant */
    size_t count;
    const json_t *tools;            /* a list of descriptions of functions; NULL: none */
    struct mics_chat_buffer joined; /* an instruction and its input */
};

/* "system", "user", "assistant", "tool" */
const char *mics_chat_role_name(enum mics_chat_role role);

/* Read one of the objects that chat.h names. MICS_ERR_FORMAT: it is none of them, or it has what is
 * not supported: contents in parts, other roles; or a description or a call is malformed. */
enum mics_status mics_conversation_read(const json_t *object, struct mics_conversation *out,
                                        struct mics_err *err);
void mics_conversation_free(struct mics_conversation *conversation); /* all zeros is fine */

#endif
