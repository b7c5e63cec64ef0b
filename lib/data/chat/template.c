/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat/template.h"

#include "doc/foreign.h"

#include <string.h>

#define CONFIG_MAX_VALUES  ((size_t)1 << 22)
#define TEMPLATE_MAX_BYTES ((size_t)1 << 20)

static const struct mics_tokenizer_file *find_file(const struct mics_tokenizer_files *files,
                                                   const char *name)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return &files->items[i];
    return NULL;
}

/* Of several templates with names, one; NULL: there is none. */
static const json_t *choose_template(const json_t *list, const char *wanted)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(item, "name"));

        if (name && strcmp(name, wanted) == 0)
            return json_object_get(item, "template");
    }
    return NULL;
}

static enum mics_status read_config(const struct mics_tokenizer_file *file,
                                    struct mics_chat_template *out, struct mics_err *err)
{
    const enum mics_status status = mics_foreign_read((const char *)file->bytes, file->size,
                                                      CONFIG_MAX_VALUES, &out->config, err);
    const json_t *value = json_object_get(out->config, "chat_template");

    if (status != MICS_OK)
        return status;
    if (json_is_array(value)) {
        const size_t count = json_array_size(value);

        out->tool_use = choose_template(value, "tool_use") != NULL;
        value = choose_template(value, "default");
        out->unnamed = count > 0 && !value;
    }
    if (value && !json_is_null(value) && !json_is_string(value))
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "chat_template: expected a string, or a list of templates");
    out->text = json_string_value(value);
    out->size = json_string_length(value);
    return MICS_OK;
}

enum mics_status mics_chat_template_find(const struct mics_tokenizer_files *files,
                                         struct mics_chat_template *out, struct mics_err *err)
{
    const struct mics_tokenizer_file *own = find_file(files, MICS_CHAT_TEMPLATE_FILE);
    const struct mics_tokenizer_file *config = find_file(files, MICS_CHAT_TEMPLATE_CONFIG);
    enum mics_status status = MICS_OK;

    *out = (struct mics_chat_template){.file = own ? MICS_CHAT_TEMPLATE_FILE
                                                   : MICS_CHAT_TEMPLATE_CONFIG};
    if (own) {
        out->text = (const char *)own->bytes;
        out->size = own->size;
    } else if (config) {
        status = read_config(config, out, err);
    }
    if (status == MICS_OK && out->size > TEMPLATE_MAX_BYTES)
        status = mics_err_set(err, MICS_ERR_FORMAT, "the chat template has more than 1 MiB");
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", out->file);
    return status;
}

void mics_chat_template_close(struct mics_chat_template *found)
{
    json_decref(found->config);
    *found = (struct mics_chat_template){.text = NULL};
}
