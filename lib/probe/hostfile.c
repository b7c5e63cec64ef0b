/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/hostfile.h"
#include "base/file.h"

#include <stdbool.h>
#include <string.h>

static bool is_bad(const json_t *doc, size_t node)
{
    const json_t *list = json_object_get(doc, "bad_nodes");

    for (size_t i = 0; i < json_array_size(list); i++)
        if ((size_t)json_integer_value(json_array_get(list, i)) == node)
            return true;
    return false;
}

/* The name of a declared node is its host's and "#" with a number. */
static void write_hosts(FILE *out, const json_t *doc)
{
    const json_int_t ranks = json_integer_value(json_object_get(doc, "per_node"));
    const json_t *hosts = json_object_get(doc, "hosts");

    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *name = json_string_value(json_array_get(hosts, i));

        if (!is_bad(doc, i))
            fprintf(out, "%.*s slots=%lld\n", (int)strcspn(name, "#"), name, (long long)ranks);
    }
}

static enum mics_status no_hosts(const char *path, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_ARG,
                        "%s: the topology names no hosts; give them with --hosts", path);
}

enum mics_status mics_hostfile_write(const char *path, const json_t *doc, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (json_array_size(json_object_get(doc, "hosts")) == 0)
        return no_hosts(path, err);
    if (json_array_size(json_object_get(doc, "bad_nodes")) >=
        json_array_size(json_object_get(doc, "hosts")))
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "%s: every host has a slow rank or link",
                            path);
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    write_hosts(mics_file_stream(writer), doc);
    return mics_file_commit(writer, err);
}

enum mics_status mics_hostfile_write_tasks(const char *path, const struct mics_topology *topology,
                                           struct mics_err *err)
{
    const json_t *hosts = json_object_get(topology->doc, "hosts");
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (json_array_size(hosts) == 0)
        return no_hosts(path, err);
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *name = json_string_value(json_array_get(hosts, i));

        for (uint32_t rank = 0; rank < topology->per_node; rank++)
            fprintf(mics_file_stream(writer), "%.*s\n", (int)strcspn(name, "#"), name);
    }
    return mics_file_commit(writer, err);
}
