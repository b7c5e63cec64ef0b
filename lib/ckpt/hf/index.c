/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/hf/index.h"

#include <ctype.h>
#include <string.h>

bool mics_hf_name_is_safe(const char *name)
{
    const char *part = name;

    for (const char *at = name; *at; at++)
        if (iscntrl((unsigned char)*at) || *at == '\\')
            return false;
    for (;;) {
        const size_t length = strcspn(part, "/");

        if (length == 0 || (length == 1 && part[0] == '.') ||
            (length == 2 && strncmp(part, "..", 2) == 0))
            return false;
        if (part[length] == '\0')
            return true;
        part += length + 1;
    }
}

static enum mics_status check_map(const json_t *map, struct mics_err *err)
{
    const char *tensor;
    json_t *file;

    json_object_foreach((json_t *)map, tensor, file)
    {
        const char *name = json_string_value(file);

        if (!name || strlen(name) != json_string_length(file))
            return mics_err_set(err, MICS_ERR_FORMAT, "weight_map: '%.128s' has no file", tensor);
        if (!mics_hf_name_is_safe(name))
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "weight_map: '%.128s' is said to be in '%.128s', which is not "
                                "inside the folder",
                                tensor, name);
    }
    return MICS_OK;
}

enum mics_status mics_hf_index_parse(const char *data, size_t size, json_t **map,
                                     struct mics_err *err)
{
    json_error_t problem;
    json_t *doc = json_loadb(data, size, JSON_REJECT_DUPLICATES, &problem);
    json_t *found = json_object_get(doc, "weight_map");
    enum mics_status status;

    if (!doc)
        return mics_err_set(err, MICS_ERR_FORMAT, "line %d: %s", problem.line, problem.text);
    if (!json_is_object(found) || json_object_size(found) == 0)
        status =
            mics_err_set(err, MICS_ERR_FORMAT, "weight_map: expected a map of tensors to files");
    else
        status = check_map(found, err);
    if (status == MICS_OK)
        *map = json_incref(found);
    json_decref(doc);
    return status;
}
