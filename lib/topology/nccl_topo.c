/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_topo.c - a topology of machines that NCCL has described.
 *
 * Links and network cards are taken from the file, and the figures of the GPU from the catalogue.
 */
#include "topology/nccl_topo.h"

#include "base/file.h"
#include "topology/catalogue.h"
#include "topology/nccl_machine.h"
#include "topology/nccl_xml.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

/* Latency of a message between nodes where the file has none. */
static const double assumed_net_latency_s = 10e-6;

/* What NCCL counts for a card that states no speed or -1, in bytes/s. */
static const double silent_net_rate = 10e9 / 8;

/* A GPU's links that are faster than 16 lanes of PCI Express 5 are NVLinks. */
static const double slowest_nvlinks = 60e9;

/* Add a sentence, after "; " if there is one. */
static void say(char *text, size_t size, const char *format, ...) MICS_PRINTF(3, 4);
static void say(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    if (used > 0)
        snprintf(text + used, size - used, "; ");
    va_start(args, format);
    vsnprintf(text + strlen(text), size - strlen(text), format, args);
    va_end(args);
}

static char *in_gigabytes(double rate, char text[16])
{
    snprintf(text, 16, "%.3g GB/s", rate / 1e9);
    return text;
}

static enum mics_status find_gpu(const struct mics_nccl_machine *machine, const char *gpu,
                                 const struct mics_catalogue *catalogue, struct mics_instance *out,
                                 struct mics_err *err)
{
    char capability[48] = "";

    if (machine->capability > 0)
        snprintf(capability, sizeof capability, ", of compute capability %u.%u,",
                 machine->capability / 10, machine->capability % 10);
    if (!gpu && !machine->device[0])
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the model of the GPUs%s is not stated: name it with --gpu=NAME",
                            capability);
    const enum mics_status status =
        mics_catalogue_find_gpu(catalogue, gpu ? gpu : machine->device, out, err);

    if (status == MICS_ERR_ARG && !gpu) {
        char why[sizeof err->text];

        snprintf(why, sizeof why, "%s", err->text);
        return mics_err_set(err, MICS_ERR_FORMAT, "%.400s; choose one with --gpu=NAME", why);
    }
    return status;
}

/* The NVLinks of the file, and those that do not count. */
static void describe_nvlinks(const struct mics_nccl_machine *machine,
                             const struct mics_nccl_group *all, char *text, size_t size)
{
    static const char *const ways[] = {[MICS_NCCL_OVER_NVLINK] = "NVLink",
                                       [MICS_NCCL_OVER_PCI] = "PCIe",
                                       [MICS_NCCL_OVER_PROCESSORS] =
                                           "the links between processors"};
    const bool by_processors = all->way == MICS_NCCL_OVER_PCI && machine->processor_links > 0;
    uint32_t largest, smallest;
    char rate[16];

    mics_nccl_joined(machine, &largest, &smallest);
    if (largest == 1)
        say(text, size,
            machine->processor_links > 0 ? "NVLink joins GPUs and processors only"
                                         : "no NVLinks between GPUs");
    else if (largest < machine->gpus && smallest == largest && largest == 2)
        say(text, size, "NVLink joins pairs only");
    else if (largest < machine->gpus)
        say(text, size, "NVLink joins %s%u of the GPUs only", smallest < largest ? "up to " : "",
            largest);
    say(text, size, "%u GPUs meet over %s, %s", machine->gpus,
        by_processors ? "the processors" : ways[all->way], in_gigabytes(all->rate, rate));
    if (machine->own_links > 0)
        say(text, size, "%u NVLinks of GPUs to themselves do not count", machine->own_links);
    if (machine->unknown_links > 0)
        say(text, size, "%u NVLinks to devices that are not in the file do not count",
            machine->unknown_links);
    if (machine->has_one_sided_links)
        say(text, size, "NVLinks that only one of two GPUs states do not count");
}

/* Groups of neighbours that are faster than all together, the largest ones. */
static enum mics_status describe_parts(const struct mics_nccl_machine *machine,
                                       const struct mics_nccl_group *all, char *text, size_t size,
                                       struct mics_err *err)
{
    for (uint32_t part = machine->gpus / 2; part >= 2; part--) {
        struct mics_nccl_group slowest = {.rate = INFINITY};
        char rate[16];

        for (uint32_t first = 0; machine->gpus % part == 0 && first < machine->gpus;
             first += part) {
            struct mics_nccl_group own;
            const enum mics_status status = mics_nccl_group_rate(machine, first, part, &own, err);

            if (status != MICS_OK)
                return status;
            slowest = own.rate < slowest.rate ? own : slowest;
        }
        if (isfinite(slowest.rate) && slowest.rate > 1.05 * all->rate) {
            say(text, size, "groups of %u neighbours would reach %s, which a topology cannot say",
                part, in_gigabytes(slowest.rate, rate));
            return MICS_OK;
        }
    }
    return MICS_OK;
}

/* The link of a rank inside the node. */
static enum mics_status node_link(const struct mics_nccl_machine *machine,
                                  const struct mics_instance *gpu, struct mics_link *out,
                                  struct mics_nccl_findings *found, struct mics_err *err)
{
    const double catalogue_rate = gpu->link_rate * gpu->link_factor;
    struct mics_nccl_group all = {0};
    char rate[16];

    out->latency_s = gpu->link_latency_s;
    if (machine->gpus == 1) {
        out->bandwidth_bytes = catalogue_rate;
        return MICS_OK;
    }
    if (!machine->has_gpu_elements && catalogue_rate >= slowest_nvlinks) {
        out->bandwidth_bytes = catalogue_rate;
        say(found->missing, sizeof found->missing,
            "the NVLinks, which NCCL finds on the machine: those of %s in the catalogue, %s",
            gpu->gpu, in_gigabytes(catalogue_rate, rate));
        return MICS_OK;
    }
    enum mics_status status = mics_nccl_group_rate(machine, 0, machine->gpus, &all, err);
    if (status != MICS_OK)
        return status;
    if (all.rate == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no links connect the %u GPUs", machine->gpus);
    out->bandwidth_bytes = all.rate;
    describe_nvlinks(machine, &all, found->link, sizeof found->link);
    for (uint32_t i = 0; i < machine->gpus && all.way == MICS_NCCL_OVER_PCI; i++)
        if (!machine->list[machine->gpu[i]].states_speed) {
            say(found->missing, sizeof found->missing,
                "the speed of the GPUs' slots: 16 lanes of PCIe 3, as NCCL assumes");
            break;
        }
    return describe_parts(machine, &all, found->link, sizeof found->link, err);
}

/* The rate of the cards of all machines in the catalogue with the same GPUs and as many cards; 0:
 * there is none, or they differ. */
static double catalogue_card_rate(const struct mics_nccl_machine *machine,
                                  const struct mics_catalogue *catalogue,
                                  const struct mics_instance *gpu)
{
    double rate = 0;

    for (size_t i = 0; i < mics_catalogue_count(catalogue); i++) {
        struct mics_instance instance;
        struct mics_err ignored;

        if (mics_catalogue_get(catalogue, i, &instance, &ignored) != MICS_OK ||
            strcmp(instance.gpu_id, gpu->gpu_id) != 0 || instance.gpus != machine->gpus ||
            instance.cards != machine->cards)
            continue;
        if (rate > 0 && rate != instance.card_rate)
            return 0;
        rate = instance.card_rate;
    }
    return rate;
}

/* The rate of cards that state none, and in *missing where it comes from. */
static double silent_card_rate(const struct mics_nccl_machine *machine,
                               const struct mics_catalogue *catalogue,
                               const struct mics_instance *gpu, struct mics_nccl_findings *found)
{
    const double listed = catalogue_card_rate(machine, catalogue, gpu);
    const double slot = mics_nccl_card_slot_rate(machine) / gpu->net_factor;
    const char *what =
        machine->silent_cards == 1 ? "the rate of a network card" : "the rates of network cards";
    double rate = machine->cards > machine->silent_cards ? silent_net_rate : listed;
    const char *source = "as machines of the catalogue have";

    if (machine->cards > machine->silent_cards || (rate == 0 && slot == 0)) {
        rate = silent_net_rate;
        source = "as NCCL assumes";
    } else if (rate == 0) {
        rate = slot;
        source = "the most for the slot";
    }
    say(found->missing, sizeof found->missing, "%s: %.4g Gbit/s, %s (--card=RATE states another)",
        what, rate * 8 / 1e9, source);
    return rate;
}

static enum mics_status net_link(const struct mics_nccl_machine *machine,
                                 const struct mics_nccl_request *request,
                                 const struct mics_instance *gpu, struct mics_topology *topology,
                                 double *card_rate, struct mics_nccl_findings *found,
                                 struct mics_err *err)
{
    struct mics_link *out = &topology->net_link;
    double silent_rate = request->card_rate, rate;
    char texts[2][16];

    *card_rate = machine->card_rate;
    out->latency_s = machine->latency_s > 0 ? machine->latency_s : assumed_net_latency_s;
    if (machine->cards == 0 && request->nodes > 1)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "contains no network card, so %u nodes cannot be connected",
                            request->nodes);
    if (machine->cards == 0)
        return MICS_OK;
    if (machine->silent_cards > 0 && silent_rate == 0)
        silent_rate = silent_card_rate(machine, request->catalogue, gpu, found);
    const double all = machine->cards_rate + silent_rate * machine->silent_cards;
    const enum mics_status status =
        mics_nccl_net_rate(machine, gpu->net_factor, silent_rate * gpu->net_factor, &rate, err);
    if (status != MICS_OK)
        return status;
    if (rate == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "no links connect GPUs and network cards");
    if (rate < 0.98 * all * gpu->net_factor && request->nodes > 1)
        say(found->link, sizeof found->link, "PCIe carries %s of the %s of the network cards",
            in_gigabytes(rate, texts[0]), in_gigabytes(all * gpu->net_factor, texts[1]));
    out->bandwidth_bytes = rate;
    if (machine->silent_cards == machine->cards)
        *card_rate = silent_rate;
    return MICS_OK;
}

static enum mics_status build(const struct mics_nccl_machine *machine,
                              const struct mics_nccl_request *request, struct mics_topology *out,
                              struct mics_nccl_findings *found, struct mics_err *err)
{
    struct mics_instance gpu;
    double card_rate = 0;
    enum mics_status status = find_gpu(machine, request->gpu, request->catalogue, &gpu, err);

    if (status != MICS_OK)
        return status;
    mics_instance_set_device(&gpu, out);
    status = node_link(machine, &gpu, &out->node_link, found, err);
    if (status != MICS_OK)
        return status;
    status = net_link(machine, request, &gpu, out, &card_rate, found, err);
    if (status != MICS_OK)
        return status;
    snprintf(out->name, sizeof out->name, "%ux %.48s", machine->gpus, gpu.gpu);
    snprintf(out->source, sizeof out->source, "nccl");
    out->nodes = request->nodes;
    out->per_node = machine->gpus;
    return mics_instance_add_figures(&gpu, machine->cards, card_rate, out, err);
}

enum mics_status mics_topology_from_nccl(const char *path, const struct mics_nccl_request *request,
                                         struct mics_topology **out,
                                         struct mics_nccl_findings *found, struct mics_err *err)
{
    struct mics_topology *topology = calloc(1, sizeof *topology);
    struct mics_nccl_machine *machine = calloc(1, sizeof *machine);
    char *text = NULL;
    size_t size = 0;
    enum mics_status status = topology && machine ? MICS_OK : mics_err_nomem(err);

    *found = (struct mics_nccl_findings){{0}, {0}};
    if (status == MICS_OK)
        status = mics_file_read(path, MAX_BYTES, &text, &size, err);
    if (status == MICS_OK) {
        status = mics_nccl_machine_parse(text, size, machine, err);
        if (status == MICS_OK)
            status = build(machine, request, topology, found, err);
        if (status != MICS_OK && status != MICS_ERR_ARG)
            mics_err_prefix(err, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    }
    free(text);
    free(machine);
    if (status == MICS_OK)
        *out = topology;
    else
        mics_topology_free(topology);
    return status;
}
