/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_topo.c - NCCL's description of a machine, read with expat, and a topology of such machines.
 *
 * The reader keeps the path of open elements, which decides what may follow. The topology takes
 * links and network cards from the file, and the figures of the GPU from the catalogue.
 */
#include "topology/nccl_topo.h"

#include "base/file.h"
#include "topology/catalogue.h"
#include "topology/gpu_info.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MICS_HAVE_EXPAT

#include <expat.h>

enum { DEPTH = 64 };

enum element { E_SYSTEM, E_CPU, E_PCI, E_GPU, E_NVLINK, E_NIC, E_NET, E_OTHER };

/* Elements, and a set of bits: the elements that each may be inside of. */
static const struct {
    const char *name;
    unsigned inside;
} elements[] = {
    [E_SYSTEM] = {"system", 0},
    [E_CPU] = {"cpu", 1u << E_SYSTEM},
    [E_PCI] = {"pci", 1u << E_CPU | 1u << E_PCI},
    [E_GPU] = {"gpu", 1u << E_PCI},
    [E_NVLINK] = {"nvlink", 1u << E_GPU},
    [E_NIC] = {"nic", 1u << E_PCI | 1u << E_CPU},
    [E_NET] = {"net", 1u << E_NIC},
};

/* An open element. */
struct level {
    enum element element;
    char device[16];  /* pci */
    double pcie_rate; /* pci */
};

struct reader {
    XML_Parser parser;
    struct mics_nccl_machine machine;
    struct level levels[DEPTH];
    int depth;
    uint32_t links;     /* of the open GPU */
    char host_hash[64]; /* of the first cpu */
    bool mixed_cards;
    enum mics_status status;
    struct mics_err *err;
};

static void refuse(struct reader *reader, const char *what, const char *why)
{
    if (reader->status != MICS_OK)
        return;
    reader->status =
        mics_err_set(reader->err, MICS_ERR_FORMAT, "line %lu: %s: %s",
                     (unsigned long)XML_GetCurrentLineNumber(reader->parser), what, why);
    XML_StopParser(reader->parser, XML_FALSE);
}

/* NULL: there is no such attribute. */
static const char *attribute(const char **attributes, const char *name)
{
    for (size_t i = 0; attributes[i]; i += 2)
        if (strcmp(attributes[i], name) == 0)
            return attributes[i + 1];
    return NULL;
}

/* A number in [min, max]. If the attribute is absent: `fallback`; a negative fallback means that
 * the attribute is required. */
static double number(struct reader *reader, const char **attributes, const char *name, double min,
                     double max, double fallback)
{
    const char *text = attribute(attributes, name);
    char what[48], why[128], *end = NULL;

    if (!text && fallback >= 0)
        return fallback;
    const double value = text ? strtod(text, &end) : 0;
    if (text && end != text && *end == '\0' && value >= min && value <= max)
        return value;
    snprintf(what, sizeof what, "attribute %s", name);
    snprintf(why, sizeof why, "expected a number from %g to %g, found \"%.40s\"", min, max,
             text ? text : "");
    refuse(reader, what, why);
    return min;
}

/* Bytes/s of a GPU's slot as NCCL counts them: 12 GB/s for 16 lanes of 8 GT/s. link_speed is
 * "16.0 GT/s PCIe", "" or "Unknown". */
static double slot_rate(struct reader *reader, const char **attributes)
{
    const char *speed = attribute(attributes, "link_speed");
    const double transfers = speed ? strtod(speed, NULL) : 0;
    const double width = number(reader, attributes, "link_width", 0, 255, 0);

    return transfers > 0 && transfers < 1000 ? transfers * width * 12e9 / (8 * 16) : 0;
}

static void begin_cpu(struct reader *reader, const char **attributes)
{
    const char *hash = attribute(attributes, "host_hash");

    if (!hash)
        return;
    if (reader->host_hash[0] && strncmp(reader->host_hash, hash, sizeof reader->host_hash - 1) != 0)
        refuse(reader, "cpu",
               "belongs to another machine than the previous one; expected a single machine");
    snprintf(reader->host_hash, sizeof reader->host_hash, "%s", hash);
}

static void begin_pci(struct reader *reader, const char **attributes, struct level *level)
{
    const char *device = attribute(attributes, "device");

    snprintf(level->device, sizeof level->device, "%s", device ? device : "");
    level->pcie_rate = slot_rate(reader, attributes);
}

static void begin_gpu(struct reader *reader, const char **attributes, const struct level *slot)
{
    struct mics_nccl_machine *machine = &reader->machine;
    const uint32_t sm = (uint32_t)number(reader, attributes, "sm", 10, 999, -1);

    if (machine->gpus == 0) {
        machine->capability = sm;
        snprintf(machine->device, sizeof machine->device, "%s", slot->device);
        machine->pcie_rate = slot->pcie_rate;
    } else if (sm != machine->capability || strcmp(slot->device, machine->device) != 0) {
        refuse(reader, "gpu", "differs from the previous one; a plan needs GPUs of one kind");
    }
    machine->pcie_rate = fmin(machine->pcie_rate, slot->pcie_rate);
    if (++machine->gpus > MICS_MAX_PER_NODE)
        refuse(reader, "gpu", "too many");
    reader->links = 0;
}

static void end_gpu(struct reader *reader)
{
    struct mics_nccl_machine *machine = &reader->machine;

    if (machine->gpus == 1 || reader->links < machine->nvlinks)
        machine->nvlinks = reader->links;
}

/* "mlx5_0+mlx5_1" is a bundle of two cards that the file also has one by one. */
static void begin_net(struct reader *reader, const char **attributes)
{
    struct mics_nccl_machine *machine = &reader->machine;
    const char *name = attribute(attributes, "name");
    const double rate = number(reader, attributes, "speed", 1, 1e8, -1) * 1e6 / 8;
    const double latency_s = number(reader, attributes, "latency", 0, 1e6, 0) * 1e-6;

    if (name && strchr(name, '+'))
        return;
    if (machine->cards > 0 && rate != machine->card_rate)
        reader->mixed_cards = true;
    machine->cards++;
    machine->card_rate = rate;
    machine->cards_rate += rate;
    machine->latency_s = fmax(machine->latency_s, latency_s);
}

static enum element element_of(const char *name)
{
    for (int i = 0; i < E_OTHER; i++)
        if (strcmp(elements[i].name, name) == 0)
            return (enum element)i;
    return E_OTHER;
}

static bool is_misplaced(const struct reader *reader, enum element element)
{
    if (reader->depth == 0)
        return element != E_SYSTEM;
    if (element == E_OTHER)
        return false;
    return !(elements[element].inside & 1u << reader->levels[reader->depth - 1].element);
}

/* Elements inside an unknown element are unknown. */
static enum element element_here(const struct reader *reader, const char *name)
{
    if (reader->depth > 0 && reader->levels[reader->depth - 1].element == E_OTHER)
        return E_OTHER;
    return element_of(name);
}

static void XMLCALL begin(void *context, const char *name, const char **attributes)
{
    struct reader *reader = context;
    const enum element element = element_here(reader, name);

    if (reader->depth == DEPTH) {
        refuse(reader, name, "nested too deeply");
        return;
    }
    if (is_misplaced(reader, element)) {
        refuse(reader, name, "not expected here; the file is not a topology of NCCL");
        return;
    }
    struct level *level = &reader->levels[reader->depth];
    *level = (struct level){.element = element};
    if (element == E_CPU)
        begin_cpu(reader, attributes);
    else if (element == E_PCI)
        begin_pci(reader, attributes, level);
    else if (element == E_GPU)
        begin_gpu(reader, attributes, level - 1);
    else if (element == E_NVLINK)
        reader->links += (uint32_t)number(reader, attributes, "count", 0, 1000, -1);
    else if (element == E_NET)
        begin_net(reader, attributes);
    reader->depth++;
}

static void XMLCALL end(void *context, const char *name)
{
    struct reader *reader = context;

    (void)name;
    if (reader->depth > 0 && reader->levels[--reader->depth].element == E_GPU)
        end_gpu(reader);
}

/* A document type could define entities, which NCCL's files never need. */
static void XMLCALL refuse_doctype(void *context, const char *name, const char *system_id,
                                   const char *public_id, int has_subset)
{
    (void)name, (void)system_id, (void)public_id, (void)has_subset;
    refuse(context, "DOCTYPE", "not expected");
}

static enum mics_status parse(struct reader *reader, const char *text, size_t size)
{
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, begin, end);
    XML_SetStartDoctypeDeclHandler(reader->parser, refuse_doctype);
    if (XML_Parse(reader->parser, text, (int)size, XML_TRUE) != XML_STATUS_OK)
        refuse(reader, "XML", XML_ErrorString(XML_GetErrorCode(reader->parser)));
    if (reader->status == MICS_OK && reader->machine.gpus == 0)
        refuse(reader, "system", "contains no GPU");
    return reader->status;
}

enum mics_status mics_nccl_machine_parse(const char *text, size_t size,
                                         struct mics_nccl_machine *out, struct mics_err *err)
{
    if (size > INT32_MAX)
        return mics_err_set(err, MICS_ERR_FORMAT, "too long");

    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return mics_err_nomem(err);
    reader->err = err;
    reader->parser = XML_ParserCreate(NULL);
    enum mics_status status = reader->parser ? parse(reader, text, size) : mics_err_nomem(err);
    if (reader->mixed_cards)
        reader->machine.card_rate = 0;
    if (status == MICS_OK)
        *out = reader->machine;
    if (reader->parser)
        XML_ParserFree(reader->parser);
    free(reader);
    return status;
}

#else

enum mics_status mics_nccl_machine_parse(const char *text, size_t size,
                                         struct mics_nccl_machine *out, struct mics_err *err)
{
    (void)text, (void)size, (void)out;
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "this build is without expat, which reads XML");
}

#endif

enum { MAX_BYTES = 64 << 20 };

/* Latency of a message between nodes where the file has none. */
static const double assumed_net_latency_s = 10e-6;

static enum mics_status find_gpu(const struct mics_nccl_machine *machine, const char *gpu,
                                 const struct mics_catalogue *catalogue, struct mics_instance *out,
                                 struct mics_err *err)
{
    if (!gpu && !machine->device[0])
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the model of the GPUs, of compute capability %u.%u, is not stated: "
                            "name it with --gpu=NAME",
                            machine->capability / 10, machine->capability % 10);
    const enum mics_status status =
        mics_catalogue_find_gpu(catalogue, gpu ? gpu : machine->device, out, err);

    if (status == MICS_ERR_ARG && !gpu) {
        char why[sizeof err->text];

        snprintf(why, sizeof why, "%s", err->text);
        return mics_err_set(err, MICS_ERR_FORMAT, "%.400s; choose one with --gpu=NAME", why);
    }
    return status;
}

/* The rate of NVLinks if there are any, else of the slots. */
static enum mics_status node_link(const struct mics_nccl_machine *machine,
                                  const struct mics_instance *gpu, struct mics_link *out,
                                  struct mics_err *err)
{
    const double links = mics_nvlink_rate((int)machine->capability, machine->nvlinks);

    out->latency_s = gpu->link_latency_s;
    out->bandwidth_bytes = links > 0 ? links : machine->pcie_rate;
    if (machine->gpus > 1 && out->bandwidth_bytes == 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "the GPUs have neither NVLinks nor a stated speed of their slots");
    return MICS_OK;
}

static enum mics_status net_link(const struct mics_nccl_machine *machine, uint32_t nodes,
                                 const struct mics_instance *gpu, struct mics_link *out,
                                 struct mics_err *err)
{
    if (nodes > 1 && machine->cards == 0)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "contains no network card, so %u nodes cannot be connected", nodes);
    out->latency_s = machine->latency_s > 0 ? machine->latency_s : assumed_net_latency_s;
    out->bandwidth_bytes = machine->cards_rate * gpu->net_factor;
    return MICS_OK;
}

static enum mics_status build(const struct mics_nccl_machine *machine,
                              const struct mics_catalogue *catalogue, const char *name,
                              uint32_t nodes, struct mics_topology *out, struct mics_err *err)
{
    struct mics_instance gpu;
    enum mics_status status = find_gpu(machine, name, catalogue, &gpu, err);

    if (status == MICS_OK)
        status = node_link(machine, &gpu, &out->node_link, err);
    if (status == MICS_OK)
        status = net_link(machine, nodes, &gpu, &out->net_link, err);
    if (status == MICS_OK) {
        snprintf(out->name, sizeof out->name, "%ux %.48s", machine->gpus, gpu.gpu);
        snprintf(out->source, sizeof out->source, "nccl");
        out->nodes = nodes;
        out->per_node = machine->gpus;
        status = mics_instance_set_gpu(&gpu, machine->cards, machine->card_rate, out, err);
    }
    return status;
}

enum mics_status mics_topology_from_nccl(const char *path, const struct mics_catalogue *catalogue,
                                         const char *gpu, uint32_t nodes,
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
            status = build(&machine, catalogue, gpu, nodes, topology, err);
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
