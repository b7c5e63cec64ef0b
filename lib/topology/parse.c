/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - a topology from what a user typed: words, or a name of the catalogue. */
#include "base/units.h"
#include "topology/catalogue.h"
#include "topology/synthetic.h"

#include <string.h>

/* "name" or "name:nodes", cut at the last colon. */
static enum mics_status split_name(const char *text, char *name, size_t size, uint64_t *nodes,
                                   struct mics_err *err)
{
    const char *colon = strrchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    enum mics_status status;

    if (length == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%.100s': no name of an instance", text);
    if (length >= size)
        return mics_err_set(err, MICS_ERR_ARG, "'%.40s...': too long for a name", text);
    memcpy(name, text, length);
    name[length] = '\0';
    *nodes = 1;
    if (!colon)
        return MICS_OK;
    status = mics_parse_u64(colon + 1, 1, MICS_MAX_NODES, nodes, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "'%.100s': number of nodes", text);
    return status;
}

static enum mics_status parse_instance(const char *text, struct mics_topology **out,
                                       struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    struct mics_instance instance;
    char name[64];
    uint64_t nodes;
    enum mics_status status = split_name(text, name, sizeof name, &nodes, err);

    if (status == MICS_OK)
        status = mics_catalogue_open(&catalogue, err);
    if (status == MICS_OK)
        status = mics_catalogue_find(catalogue, name, &instance, err);
    if (status == MICS_OK)
        status = mics_instance_topology(&instance, (uint32_t)nodes, out, err);
    mics_catalogue_close(catalogue);
    return status;
}

enum mics_status mics_topology_parse(const char *text, struct mics_topology **out,
                                     struct mics_err *err)
{
    if (mics_synthetic_is(text) || strpbrk(text, " \t\n"))
        return mics_synthetic_parse(text, out, err);
    return parse_instance(text, out, err);
}
