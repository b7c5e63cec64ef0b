/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_topology.c - from the machine of NCCL's file and the catalogue's figures of its GPU to a topology. */
#include "base/file.h"
#include "topology/catalogue.h"
#include "topology/nccl_topo.h"
#include "topology/nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

/* Of a message between nodes, where the file states none. */
static const double assumed_net_latency_s = 10e-6;

static enum mics_status find_gpu(const struct mics_nccl_machine *machine, const char *gpu,
                                 const struct mics_catalogue *catalogue, struct mics_instance *out,
                                 struct mics_err *err)
{
    if (!gpu && !machine->device[0])
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "it does not say which GPUs of compute capability %u.%u they are: "
                            "--gpu=NAME does",
                            machine->capability / 10, machine->capability % 10);
    const enum mics_status status =
        mics_catalogue_find_gpu(catalogue, gpu ? gpu : machine->device, out, err);

    if (status == MICS_ERR_ARG && !gpu) {
        char why[sizeof err->text];

        snprintf(why, sizeof why, "%s", err->text);
        return mics_err_set(err, MICS_ERR_FORMAT, "%.400s; --gpu=NAME takes one of these", why);
    }
    return status;
}

/* NVLinks, or else the slots. */
static enum mics_status node_link(const struct mics_nccl_machine *machine,
                                  const struct mics_instance *gpu, struct mics_link *out,
                                  struct mics_err *err)
{
    const double links = mics_nvlink_rate((int)machine->capability, machine->nvlinks);

    out->latency_s = gpu->link_latency_s;
    out->bandwidth_bytes = links > 0 ? links : machine->pcie_rate;
    if (machine->gpus > 1 && out->bandwidth_bytes == 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "GPUs without NVLinks, and without the speed of their slots");
    return MICS_OK;
}

static enum mics_status net_link(const struct mics_nccl_machine *machine, uint32_t nodes,
                                 const struct mics_instance *gpu, struct mics_link *out,
                                 struct mics_err *err)
{
    if (nodes > 1 && machine->cards == 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "no network card in it, so there cannot be %u nodes", nodes);
    out->latency_s = machine->latency_s > 0 ? machine->latency_s : assumed_net_latency_s;
    out->bandwidth_bytes = machine->cards_rate * gpu->net_factor;
    return MICS_OK;
}

static void fill(const struct mics_nccl_machine *machine, const struct mics_instance *gpu,
                 uint32_t nodes, struct mics_topology *out)
{
    snprintf(out->name, sizeof out->name, "%ux %.48s", machine->gpus, gpu->gpu);
    snprintf(out->source, sizeof out->source, "nccl");
    snprintf(out->device, sizeof out->device, "%s", gpu->gpu);
    snprintf(out->flops_dtype, sizeof out->flops_dtype, "%s", gpu->flops_dtype);
    out->nodes = nodes;
    out->per_node = machine->gpus;
    out->flops = gpu->flops;
    out->memory_bandwidth = gpu->memory_rate * gpu->memory_factor;
    out->memory_bytes = mics_gpu_memory_limit((uint64_t)gpu->memory_bytes);
}

/* The vendors' figures go along, as with an instance of the catalogue. */
static enum mics_status add_figures(const struct mics_nccl_machine *machine,
                                    const struct mics_instance *gpu, struct mics_topology *topology,
                                    struct mics_err *err)
{
    const enum mics_status status = mics_topology_to_doc(topology, &topology->doc, err);

    if (status != MICS_OK)
        return status;
    json_t *device = json_object_get(topology->doc, "device");
    json_t *net = json_object_get(json_object_get(topology->doc, "links"), "net");
    bool failed = json_object_set_new(device, "peak_flops_per_s", json_real(gpu->peak_flops)) != 0;

    if (net && machine->card_rate > 0)
        failed |= json_object_set_new(net, "cards", json_integer(machine->cards)) != 0 ||
                  json_object_set_new(net, "card_bytes_per_s", json_real(machine->card_rate)) != 0;
    return failed ? mics_err_nomem(err) : MICS_OK;
}

static enum mics_status build(const struct mics_nccl_machine *machine, const char *name,
                              uint32_t nodes, struct mics_topology *out, struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    struct mics_instance gpu;
    enum mics_status status = mics_catalogue_open(&catalogue, err);

    if (status == MICS_OK)
        status = find_gpu(machine, name, catalogue, &gpu, err);
    if (status == MICS_OK)
        status = node_link(machine, &gpu, &out->node_link, err);
    if (status == MICS_OK)
        status = net_link(machine, nodes, &gpu, &out->net_link, err);
    if (status == MICS_OK) {
        fill(machine, &gpu, nodes, out);
        status = add_figures(machine, &gpu, out, err);
    }
    mics_catalogue_close(catalogue);
    return status;
}

enum mics_status mics_topology_from_nccl(const char *path, const char *gpu, uint32_t nodes,
                                         struct mics_topology **out, struct mics_err *err)
{
    struct mics_topology *topology = calloc(1, sizeof *topology);
    struct mics_nccl_machine machine;
    char *text = NULL;
    size_t size = 0;
    enum mics_status status = topology ? MICS_OK : mics_err_nomem(err);

    if (status == MICS_OK)
        status = mics_file_read(path, MAX_BYTES, &text, &size, err);
    if (status == MICS_OK) {
        status = mics_nccl_machine_parse(text, size, &machine, err);
        if (status == MICS_OK)
            status = build(&machine, gpu, nodes, topology, err);
        if (status != MICS_OK && status != MICS_ERR_ARG)
            mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    }
    free(text);
    if (status == MICS_OK)
        *out = topology;
    else
        mics_topology_free(topology);
    return status;
}
