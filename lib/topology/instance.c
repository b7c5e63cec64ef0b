/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.c - a topology of so many machines of the catalogue.
 *
 * The topology's rates are what is reached; the vendors' figures go along in the document, as
 * device.peak_flops_per_s, links.net.cards and links.net.card_bytes_per_s.
 */
#include "topology/catalogue.h"

#include <stdio.h>
#include <stdlib.h>

static void fill(const struct mics_instance *instance, uint32_t nodes, struct mics_topology *out)
{
    snprintf(out->name, sizeof out->name, "%s", instance->name);
    snprintf(out->source, sizeof out->source, "catalogue");
    snprintf(out->device, sizeof out->device, "%s", instance->gpu);
    snprintf(out->flops_dtype, sizeof out->flops_dtype, "%s", instance->flops_dtype);
    out->nodes = nodes;
    out->per_node = instance->gpus;
    out->flops = instance->flops;
    out->memory_bandwidth = instance->memory_rate * instance->memory_factor;
    out->memory_bytes = mics_gpu_memory_limit((uint64_t)instance->memory_bytes);
    out->node_link = (struct mics_link){
        .latency_s = instance->link_latency_s,
        .bandwidth_bytes = instance->link_rate * instance->link_factor,
    };
    out->net_link = (struct mics_link){
        .latency_s = instance->net_latency_s,
        .bandwidth_bytes = instance->card_rate * instance->cards * instance->net_factor,
    };
}

static enum mics_status add_figures(const struct mics_instance *instance,
                                    struct mics_topology *topology, struct mics_err *err)
{
    json_t *device, *net;
    const enum mics_status status = mics_topology_to_doc(topology, &topology->doc, err);

    if (status != MICS_OK)
        return status;
    device = json_object_get(topology->doc, "device");
    net = json_object_get(json_object_get(topology->doc, "links"), "net");
    if (json_object_set_new(device, "peak_flops_per_s", json_real(instance->peak_flops)) != 0 ||
        json_object_set_new(net, "cards", json_integer(instance->cards)) != 0 ||
        json_object_set_new(net, "card_bytes_per_s", json_real(instance->card_rate)) != 0)
        return mics_err_nomem(err);
    return MICS_OK;
}

enum mics_status mics_instance_topology(const struct mics_instance *instance, uint32_t nodes,
                                        struct mics_topology **out, struct mics_err *err)
{
    struct mics_topology *topology = calloc(1, sizeof *topology);
    enum mics_status status;

    if (!topology)
        return mics_err_nomem(err);
    fill(instance, nodes, topology);
    status = add_figures(instance, topology, err);
    if (status != MICS_OK) {
        mics_topology_free(topology);
        return status;
    }
    *out = topology;
    return MICS_OK;
}
