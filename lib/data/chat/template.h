/* SPDX-License-Identifier: Apache-2.0 */
/* template.h - where a tokenizer's files have the chat template. */
#ifndef MICS_DATA_CHAT_TEMPLATE_H
#define MICS_DATA_CHAT_TEMPLATE_H

#include "data/tokenizer.h"

#include <jansson.h>

#define MICS_CHAT_TEMPLATE_FILE   "chat_template.jinja"
#define MICS_CHAT_TEMPLATE_CONFIG "tokenizer_config.json"

/* The text of the template, of several the one called "default", and the file that has it. */
struct mics_chat_template {
    const char *file; /* static */
    const char *text; /* NULL: none; of the files, or of `config` */
    size_t size;
    json_t *config; /* NULL is fine */
    bool unnamed;   /* there is a list of templates, but none called so */
    bool tool_use;  /* one of the list is called "tool_use", which transformers takes with tools */
};

/* The caller calls mics_chat_template_close(), also after an error. MICS_ERR_FORMAT, which begins
 * with the file: it is damaged, or the template is no text. */
enum mics_status mics_chat_template_find(const struct mics_tokenizer_files *files,
                                         struct mics_chat_template *out, struct mics_err *err);
void mics_chat_template_close(struct mics_chat_template *found); /* all zeros is fine */

#endif
