/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_switches.c - libFuzzer target for the readers of topology.conf and topology.yaml, and for
 * lists of hosts.
 *
 * What is accepted orders any hosts: each exactly once. A list that is accepted has names that may
 * be used as they are.
 *
 * sources: lib/base lib/doc lib/topology kernels/optimizer.c
 */
#include "topology/switches.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_order(const struct mics_switches *switches, const struct mics_host_list *hosts,
                        uint32_t group_nodes)
{
    uint32_t order[64];
    uint64_t seen = 0;
    struct mics_switch_use use;

    must(mics_switches_order(switches, hosts, group_nodes, order, &use, NULL) == MICS_OK);
    for (uint32_t i = 0; i < hosts->count; i++) {
        must(order[i] < hosts->count && !(seen >> order[i] & 1));
        seen |= (uint64_t)1 << order[i];
    }
    must(use.groups == hosts->count / group_nodes && use.one_leaf <= use.groups);
    must(use.most <= group_nodes && use.unknown <= hosts->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_err err = {.text = ""};
    struct mics_host_list list = {0}, hosts = {0};
    struct mics_switches *switches = NULL;

    if (mics_host_list_append(&list, (const char *)data, size, &err) == MICS_OK)
        for (uint32_t i = 0; i < list.count; i++)
            must(list.names[i][0] && strlen(list.names[i]) < MICS_HOST_NAME);
    else
        must(err.text[0] != '\0');
    mics_host_list_fini(&list);
    err.text[0] = '\0';
    if (mics_switches_parse((const char *)data, size, NULL, &switches, &err) != MICS_OK) {
        must(switches == NULL && err.text[0] != '\0');
        return 0;
    }
    must(mics_host_list_append(&hosts, "n[0-7]", 6, NULL) == MICS_OK);
    for (uint32_t group_nodes = 1; group_nodes <= 8; group_nodes *= 2)
        check_order(switches, &hosts, group_nodes);
    mics_host_list_fini(&hosts);
    mics_switches_free(switches);
    return 0;
}
