/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_xml.c - NCCL's description of a machine, read with expat.
 *
 * The reader keeps the path of open elements, which decides what may follow. NCCL completes files
 * by what it finds on the machine, so most attributes may be missing; what NCCL itself assumes then
 * is assumed here.
 */
#include "topology/nccl_xml.h"

#include "topology/gpu_info.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#if MICS_HAVE_EXPAT

#include <expat.h>

enum { DEPTH = 64, MAX_NVLINKS = 8192 };

enum element { E_SYSTEM, E_CPU, E_PCI, E_GPU, E_NVLINK, E_C2C, E_PCILINK, E_NIC, E_NET, E_OTHER };

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
    [E_C2C] = {"c2c", 1u << E_GPU},
    [E_PCILINK] = {"pcilink", 1u << E_PCI},
    [E_NIC] = {"nic", 1u << E_PCI | 1u << E_CPU},
    [E_NET] = {"net", 1u << E_NIC},
};

/* Where NVLinks go. */
enum target { TO_GPU, TO_SWITCH, TO_PROCESSOR };

struct nvlink {
    int device; /* the GPU that has it */
    enum target target;
    bool by_bus; /* a target without a class: a GPU if it has this bus id, else a switch */
    uint64_t bus;
    uint32_t count;
};

/* A pcilink, from a PCI device to a bus id. */
struct peer {
    int device;
    uint64_t bus;
};

/* What a PCI device is by its class. */
enum role { OTHER_ROLE, GPU_ROLE, CARD_ROLE };

struct reader {
    XML_Parser parser;
    struct mics_nccl_machine machine;
    struct {
        enum element element;
        int device; /* the innermost processor or PCI device */
    } levels[DEPTH];
    int depth;
    struct {
        enum role role;
        uint32_t capability; /* of a gpu element; 0: there is none */
        char id[16];         /* "0x2335" */
    } facts[MICS_NCCL_MAX_DEVICES];
    uint32_t nvlink_count, peer_count, nets;
    struct nvlink nvlinks[MAX_NVLINKS];
    struct peer peers[MICS_NCCL_MAX_PEERS];
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

/* A number in [min, max]. If the attribute is absent or empty: `fallback`; a negative fallback
 * means that the attribute is required. */
static double number(struct reader *reader, const char **attributes, const char *name, double min,
                     double max, double fallback)
{
    const char *text = attribute(attributes, name);
    char what[48], why[128], *end = NULL;

    if ((!text || !*text) && fallback >= 0)
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

/* The digits of "0000:01:00.0" or "00000000:01:00.0" as one number; 0: there are none. */
static uint64_t bus_number(const char *text)
{
    uint64_t bus = 0;

    for (; text && *text; text++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, *text >= 'A' && *text <= 'F' ? *text + 32 : *text);

        if (digit)
            bus = bus << 4 | (uint64_t)(digit - digits);
        else if (*text != ':' && *text != '.')
            break;
    }
    return bus;
}

static bool has_class(const char *class, const char *prefix)
{
    return class && strncasecmp(class, prefix, strlen(prefix)) == 0;
}

/* Bytes/s of a PCI device's link as NCCL counts them: 12 GB/s for 16 lanes of 8 GT/s, which is also
 * what NCCL assumes where link_speed is "", "Unknown" or absent and link_width 0. */
static double pci_rate(struct reader *reader, const char **attributes, bool *stated)
{
    const char *speed = attribute(attributes, "link_speed");
    const double transfers = speed ? strtod(speed, NULL) : 0;
    const double width = number(reader, attributes, "link_width", 0, 255, 0);
    const double lanes = width > 0 ? width : 16;

    *stated = transfers > 0 && transfers < 1000;
    if (!*stated)
        return lanes * 0.75e9;
    return lanes * transfers * (transfers < 8 ? 0.075e9 : 0.09375e9);
}

static int add_device(struct reader *reader, const struct mics_nccl_device *device)
{
    struct mics_nccl_machine *machine = &reader->machine;

    if (machine->devices == MICS_NCCL_MAX_DEVICES) {
        refuse(reader, "pci", "too many devices");
        return 0;
    }
    machine->list[machine->devices] = *device;
    return (int)machine->devices++;
}

/* What NCCL counts between two processors, in bytes/s. */
static double between_processors(const char **attributes, bool *intel)
{
    const char *arch = attribute(attributes, "arch"), *vendor = attribute(attributes, "vendor");
    const char *family = attribute(attributes, "familyid");
    const char *model = attribute(attributes, "modelid");
    const long number =
        family && model && strtol(family, NULL, 0) == 6 ? strtol(model, NULL, 0) : 0;

    *intel = arch && vendor && strcmp(arch, "x86_64") == 0 && strcmp(vendor, "GenuineIntel") == 0;
    if (*intel)
        return number >= 0xcf ? 40e9 : number >= 0x8f ? 22e9 : number >= 0x55 ? 10e9 : 6e9;
    if (!arch)
        return INFINITY;
    if (strcmp(arch, "ppc64") == 0)
        return 32e9;
    if (strcmp(arch, "arm64") == 0)
        return 6e9;
    if (vendor && strcmp(vendor, "AuthenticAMD") == 0)
        return 16e9;
    if (vendor && (strcmp(vendor, "CentaurHauls") == 0 || strcmp(vendor, "  Shanghai  ") == 0))
        return family && model && strtol(family, NULL, 0) == 7 && strtol(model, NULL, 0) == 0x5b
                   ? 9e9
                   : 6e9;
    return INFINITY;
}

static int begin_cpu(struct reader *reader, const char **attributes)
{
    const char *hash = attribute(attributes, "host_hash");
    struct mics_nccl_device cpu = {.kind = MICS_NCCL_PROCESSOR, .parent = MICS_NCCL_NO_PARENT};

    cpu.between_rate = between_processors(attributes, &cpu.intel);
    if (hash && reader->host_hash[0] &&
        strncmp(reader->host_hash, hash, sizeof reader->host_hash - 1) != 0)
        refuse(reader, "cpu",
               "belongs to another machine than the previous one; expected a single machine");
    if (hash)
        snprintf(reader->host_hash, sizeof reader->host_hash, "%s", hash);
    return add_device(reader, &cpu);
}

/* By its class, which NCCL calls 0x03 and 0x02 where it does not know more. Other display devices
 * than NVIDIA's are no GPUs for NCCL's purposes. */
static enum role role_of(const char *class, const char *vendor)
{
    if (has_class(class, "0x02"))
        return CARD_ROLE;
    if (has_class(class, "0x0302") || (class && strcmp(class, "0x03") == 0))
        return GPU_ROLE;
    if (has_class(class, "0x0300") && vendor && strcasecmp(vendor, "0x10de") == 0)
        return GPU_ROLE;
    return OTHER_ROLE;
}

static int begin_pci(struct reader *reader, const char **attributes, int parent)
{
    const char *id = attribute(attributes, "device");
    struct mics_nccl_device pci = {
        .kind = MICS_NCCL_PCI, .parent = parent, .bus = bus_number(attribute(attributes, "busid"))};

    pci.rate = pci_rate(reader, attributes, &pci.states_speed);
    const int device = add_device(reader, &pci);
    reader->facts[device].role =
        role_of(attribute(attributes, "class"), attribute(attributes, "vendor"));
    snprintf(reader->facts[device].id, sizeof reader->facts[device].id, "%s", id ? id : "");
    return device;
}

static void begin_gpu(struct reader *reader, const char **attributes, int device)
{
    const uint32_t sm = (uint32_t)number(reader, attributes, "sm", 10, 999, -1);

    if (reader->facts[device].capability > 0)
        refuse(reader, "gpu", "a second one in a PCI device; ranks need GPUs of their own");
    reader->facts[device].capability = sm;
    reader->machine.has_gpu_elements = true;
}

/* Without a class NCCL looks at the machine, and takes what it does not see there for a switch. */
static void begin_nvlink(struct reader *reader, const char **attributes, int device)
{
    const char *class = attribute(attributes, "tclass");
    const char *target = attribute(attributes, "target");
    struct nvlink link = {.device = device, .bus = bus_number(target), .target = TO_SWITCH};

    link.count = (uint32_t)number(reader, attributes, "count", 0, 1000, -1);
    link.by_bus = !class || !*class;
    if (has_class(class, "0x03"))
        link.target = TO_GPU;
    else if (has_class(class, "0x068001"))
        link.target = TO_PROCESSOR;
    if (reader->nvlink_count == MAX_NVLINKS)
        refuse(reader, "nvlink", "too many");
    else
        reader->nvlinks[reader->nvlink_count++] = link;
}

/* The chip-to-chip link between a GPU and a processor, in MB/s. */
static void begin_c2c(struct reader *reader, const char **attributes, int device)
{
    const double rate = number(reader, attributes, "bw", 0, 1e8, -1);
    const double count = number(reader, attributes, "count", 0, 1000, -1);

    reader->machine.list[device].processor_rate += rate * count * 1e6;
}

static void begin_pcilink(struct reader *reader, const char **attributes, int device)
{
    if (reader->peer_count == MICS_NCCL_MAX_PEERS)
        refuse(reader, "pcilink", "too many");
    else
        reader->peers[reader->peer_count++] =
            (struct peer){device, bus_number(attribute(attributes, "target"))};
}

/* "mlx5_0+mlx5_1" is a bundle of two cards that the file also has one by one. Some cards state -1
 * as their speed. */
static void begin_net(struct reader *reader, const char **attributes, int device)
{
    struct mics_nccl_machine *machine = &reader->machine;
    const char *name = attribute(attributes, "name");
    const double rate = number(reader, attributes, "speed", -1, 1e8, 0) * 1e6 / 8;
    const double latency_s = number(reader, attributes, "latency", 0, 1e6, 0) * 1e-6;

    if (name && strchr(name, '+'))
        return;
    reader->nets++;
    machine->cards++;
    machine->list[device].cards++;
    machine->latency_s = fmax(machine->latency_s, latency_s);
    if (rate <= 0) {
        machine->silent_cards++;
        machine->list[device].silent_cards++;
        return;
    }
    if (machine->card_rate > 0 && rate != machine->card_rate)
        reader->mixed_cards = true;
    machine->card_rate = rate;
    machine->cards_rate += rate;
    machine->list[device].cards_rate += rate;
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
    int device = reader->depth > 0 ? reader->levels[reader->depth - 1].device : 0;
    if (element == E_CPU)
        device = begin_cpu(reader, attributes);
    else if (element == E_PCI)
        device = begin_pci(reader, attributes, device);
    else if (element == E_GPU)
        begin_gpu(reader, attributes, device);
    else if (element == E_NVLINK)
        begin_nvlink(reader, attributes, device);
    else if (element == E_C2C)
        begin_c2c(reader, attributes, device);
    else if (element == E_PCILINK)
        begin_pcilink(reader, attributes, device);
    else if (element == E_NET)
        begin_net(reader, attributes, device);
    reader->levels[reader->depth].element = element;
    reader->levels[reader->depth++].device = device;
}

static void XMLCALL end(void *context, const char *name)
{
    struct reader *reader = context;

    (void)name;
    if (reader->depth > 0)
        reader->depth--;
}

/* A document type could define entities, which NCCL's files never need. */
static void XMLCALL refuse_doctype(void *context, const char *name, const char *system_id,
                                   const char *public_id, int has_subset)
{
    (void)name, (void)system_id, (void)public_id, (void)has_subset;
    refuse(context, "DOCTYPE", "not expected");
}

/* The device with a bus id among those of a kind; -1: there is none. */
static int device_at(const struct mics_nccl_machine *machine, enum mics_nccl_kind kind,
                     uint64_t bus)
{
    for (uint32_t i = 0; i < machine->devices && bus != 0; i++)
        if (machine->list[i].kind == kind && machine->list[i].bus == bus)
            return (int)i;
    return -1;
}

/* The GPUs are those with a gpu element; in a file that has none, those by their class. */
static void choose_gpus(struct reader *reader)
{
    struct mics_nccl_machine *machine = &reader->machine;

    for (uint32_t i = 0; i < machine->devices; i++) {
        if (machine->has_gpu_elements ? reader->facts[i].capability == 0
                                      : reader->facts[i].role != GPU_ROLE)
            continue;
        if (machine->gpus == 0) {
            machine->capability = reader->facts[i].capability;
            memcpy(machine->device, reader->facts[i].id, sizeof machine->device);
        } else if (reader->facts[i].capability != machine->capability ||
                   strcasecmp(reader->facts[i].id, machine->device) != 0) {
            refuse(reader, "gpu", "differs from the previous one; a plan needs GPUs of one kind");
        }
        if (machine->gpus == MICS_NCCL_MAX_GPUS) {
            refuse(reader, "gpu", "too many");
            return;
        }
        machine->list[i].kind = MICS_NCCL_GPU;
        uint32_t at = machine->gpus++;
        for (; at > 0 && machine->list[machine->gpu[at - 1]].bus > machine->list[i].bus; at--)
            machine->gpu[at] = machine->gpu[at - 1];
        machine->gpu[at] = (int)i;
    }
}

static int gpu_index(const struct mics_nccl_machine *machine, int device)
{
    for (uint32_t i = 0; i < machine->gpus; i++)
        if (machine->gpu[i] == device)
            return (int)i;
    return -1;
}

static void connect_nvlink(struct mics_nccl_machine *machine, const struct nvlink *link)
{
    const int target = device_at(machine, MICS_NCCL_GPU, link->bus);
    const int from = gpu_index(machine, link->device);

    if (link->target == TO_PROCESSOR) {
        machine->list[link->device].processor_rate +=
            mics_nvlink_rate((int)machine->capability, link->count);
        machine->processor_links += link->count;
    } else if (target == link->device) {
        machine->own_links += link->count;
    } else if (target >= 0) {
        machine->links[from][gpu_index(machine, target)] += link->count;
    } else if (link->target == TO_SWITCH || link->by_bus) {
        machine->links[from][MICS_NCCL_SWITCH] += link->count;
        machine->links[MICS_NCCL_SWITCH][from] += link->count;
    } else {
        machine->unknown_links += link->count;
    }
}

/* The fewer, of links that two GPUs state differently. */
static void drop_one_sided_links(struct mics_nccl_machine *machine)
{
    for (uint32_t a = 0; a < machine->gpus; a++)
        for (uint32_t b = 0; b < a; b++) {
            uint32_t *there = &machine->links[a][b], *back = &machine->links[b][a];

            machine->has_one_sided_links |= *there != *back;
            *there = *back = *there < *back ? *there : *back;
        }
}

/* Cards without net elements are known by their class, if the file has no net element at all. */
static void choose_cards(struct reader *reader)
{
    struct mics_nccl_machine *machine = &reader->machine;

    for (uint32_t i = 0; i < machine->devices && reader->nets == 0; i++)
        if (reader->facts[i].role == CARD_ROLE && machine->list[i].kind == MICS_NCCL_PCI) {
            machine->list[i].cards = machine->list[i].silent_cards = 1;
            machine->cards++;
            machine->silent_cards++;
        }
    if (reader->mixed_cards || machine->silent_cards > 0)
        machine->card_rate = 0;
}

static void connect_devices(struct reader *reader)
{
    struct mics_nccl_machine *machine = &reader->machine;

    choose_gpus(reader);
    if (reader->status == MICS_OK && machine->gpus == 0)
        refuse(reader, "system",
               "contains no GPU: neither a gpu element nor a PCI device of class 0x0302");
    if (reader->status != MICS_OK)
        return;
    for (uint32_t i = 0; i < reader->nvlink_count; i++)
        connect_nvlink(machine, &reader->nvlinks[i]);
    drop_one_sided_links(machine);
    for (uint32_t i = 0; i < reader->peer_count; i++) {
        const int target = device_at(machine, MICS_NCCL_PCI, reader->peers[i].bus);

        if (target >= 0 && target != reader->peers[i].device) {
            machine->peer[machine->peers][0] = reader->peers[i].device;
            machine->peer[machine->peers++][1] = target;
        }
    }
    choose_cards(reader);
}

static enum mics_status parse(struct reader *reader, const char *text, size_t size)
{
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, begin, end);
    XML_SetStartDoctypeDeclHandler(reader->parser, refuse_doctype);
    if (XML_Parse(reader->parser, text, (int)size, XML_TRUE) != XML_STATUS_OK)
        refuse(reader, "XML", XML_ErrorString(XML_GetErrorCode(reader->parser)));
    if (reader->status == MICS_OK)
        connect_devices(reader);
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
