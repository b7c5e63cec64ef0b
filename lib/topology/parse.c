/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - a topology from what a user typed: a catalogue name, or a description.
 *
 * A description is a list of words "key:value", such as
 * "node:4 gpu:8 flops:312T link:300GB/s,3us":
 *
 *     word            meaning                                             default
 *     node:N          nodes, 1 to 65536                                   1
 *     gpu:N           ranks per node, 1 to 1024                           1
 *     gpu:NxGPU       the same, with a GPU of the catalogue, such as
 *                     8xRTX4090-24: its figures instead of the defaults
 *                     of flops, dtype, mem, membw and link
 *     flops:F         FLOP/s that one rank sustains: 312T, 50G            250T
 *     dtype:TYPE      their type: f32, bf16 or f16                        bf16
 *     mem:BYTES       memory of one rank: 40G, 80GB                       80G
 *     membw:RATE      its bandwidth: 1.5TB/s                              1.8TB/s
 *     link:RATE[,T]   inside a node, of one rank, one way; latency T      240GB/s,2us
 *     net:RATE[,T]    of a whole node, one way; latency T                 100gbit,25us
 *     eth:RATE[,T]    the same by the rate of a node's network cards:     -
 *     roce:RATE[,T]   of TCP, RDMA over Ethernet, InfiniBand; what is
 *     ib:RATE[,T]     reached of it, and T, are the catalogue's
 *     cores:N         host cores of one rank                              unknown
 *     hostmem:BYTES   host memory of a node                               unknown
 *     hostbw:RATE     what its processors reach of its bandwidth          50GB/s
 *
 * Values but those of eth, roce and ib are used as they are: they should be sustained rates, not a
 * vendor's peak. Words may be in any order.
 */
#include "base/units.h"
#include "topology/catalogue.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WORD = 96 };

static const char blanks[] = " \t\n\r";

/* What the words of a description set. */
struct description {
    struct mics_topology *topology;
    const struct mics_catalogue *catalogue;
    struct mics_instance gpu; /* gpu_id NULL: none was named */
    double card_rate;         /* bytes/s of all network cards; 0: none were named */
    uint64_t host_memory;     /* bytes of a node; 0: not said */
    double host_memory_rate;  /* bytes/s of all of it; 0: not said */
};

static enum mics_status set_nodes(struct description *to, const char *value, struct mics_err *err)
{
    uint64_t count;
    const enum mics_status status = mics_parse_u64(value, 1, MICS_MAX_NODES, &count, err);

    if (status == MICS_OK)
        to->topology->nodes = (uint32_t)count;
    return status;
}

/* "8" or "8xH100-80". */
static enum mics_status set_gpus(struct description *to, const char *value, struct mics_err *err)
{
    char number[MAX_WORD];
    const size_t length = strcspn(value, "xX");
    uint64_t count;

    memcpy(number, value, length);
    number[length] = '\0';
    if (!number[0] || number[strspn(number, "0123456789")])
        return mics_err_set(err, MICS_ERR_ARG, "expected N or NxGPU, as in gpu:8xH100-80");
    const enum mics_status status = mics_parse_u64(number, 1, MICS_MAX_PER_NODE, &count, err);
    if (status != MICS_OK)
        return status;
    to->topology->per_node = (uint32_t)count;
    if (value[length] == '\0')
        return MICS_OK;
    return mics_catalogue_find_gpu(to->catalogue, value + length + 1, &to->gpu, err);
}

static enum mics_status set_cores(struct description *to, const char *value, struct mics_err *err)
{
    uint64_t count;
    const enum mics_status status = mics_parse_u64(value, 1, 1 << 20, &count, err);

    if (status == MICS_OK)
        to->topology->cores = (uint32_t)count;
    return status;
}

/* "312T": a number and one of K M G T P, powers of 1000. */
static enum mics_status set_flops(struct description *to, const char *value, struct mics_err *err)
{
    static const char suffixes[] = "KMGTP";
    char number[MAX_WORD];
    const size_t length = strlen(value);
    const char *suffix = length > 0 ? strchr(suffixes, value[length - 1]) : NULL;
    double scale = 1, flops;
    enum mics_status status;

    strcpy(number, value);
    if (suffix) {
        number[length - 1] = '\0';
        for (const char *s = suffixes; s <= suffix; s++)
            scale *= 1000;
    }
    status = mics_parse_double(number, 0, 1e18, &flops, err);
    if (status != MICS_OK)
        return status;
    if (flops * scale < 1)
        return mics_err_set(err, MICS_ERR_ARG, "less than 1 FLOP/s");
    to->topology->flops = flops * scale;
    to->topology->rates = (struct mics_gpu_rates){0}; /* of a GPU that is not this fast */
    return status;
}

static enum mics_status set_dtype(struct description *to, const char *value, struct mics_err *err)
{
    if (!mics_topology_dtype_is_known(value))
        return mics_err_set(err, MICS_ERR_ARG, "expected f32, bf16 or f16");
    strcpy(to->topology->flops_dtype, value);
    return MICS_OK;
}

static enum mics_status parse_memory(const char *value, uint64_t *bytes, struct mics_err *err)
{
    const enum mics_status status = mics_parse_bytes(value, bytes, err);

    if (status == MICS_OK && (*bytes == 0 || *bytes > (uint64_t)1 << 60))
        return mics_err_set(err, MICS_ERR_ARG, "expected 1 byte to 1 EiB");
    return status;
}

static enum mics_status set_memory(struct description *to, const char *value, struct mics_err *err)
{
    return parse_memory(value, &to->topology->memory_bytes, err);
}

static enum mics_status set_host_memory(struct description *to, const char *value,
                                        struct mics_err *err)
{
    return parse_memory(value, &to->host_memory, err);
}

static enum mics_status parse_rate(const char *value, double *out, struct mics_err *err)
{
    double rate;
    const enum mics_status status = mics_parse_rate(value, &rate, err);

    if (status != MICS_OK)
        return status;
    if (!(rate >= 1 && rate <= 1e21))
        return mics_err_set(err, MICS_ERR_ARG, "expected 1 to 1e21 bytes per second");
    *out = rate;
    return MICS_OK;
}

static enum mics_status set_host_memory_rate(struct description *to, const char *value,
                                             struct mics_err *err)
{
    return parse_rate(value, &to->host_memory_rate, err);
}

static enum mics_status set_memory_rate(struct description *to, const char *value,
                                        struct mics_err *err)
{
    return parse_rate(value, &to->topology->memory_bandwidth, err);
}

/* "300GB/s" or "300GB/s,3us". */
static enum mics_status parse_link(const char *value, struct mics_link *link, struct mics_err *err)
{
    char rate[MAX_WORD];
    const size_t length = strcspn(value, ",");
    enum mics_status status;
    double latency;

    memcpy(rate, value, length);
    rate[length] = '\0';
    status = parse_rate(rate, &link->bandwidth_bytes, err);
    if (status != MICS_OK || value[length] == '\0')
        return status;
    status = mics_parse_time(value + length + 1, &latency, err);
    if (status != MICS_OK)
        return status;
    if (latency > 3600)
        return mics_err_set(err, MICS_ERR_ARG, "latency of more than an hour");
    link->latency_s = latency;
    return status;
}

static enum mics_status set_link(struct description *to, const char *value, struct mics_err *err)
{
    return parse_link(value, &to->topology->node_link, err);
}

static enum mics_status set_net(struct description *to, const char *value, struct mics_err *err)
{
    return parse_link(value, &to->topology->net_link, err);
}

/* A kind of network of the catalogue, by the rate of the cards. */
static enum mics_status set_network(struct description *to, const char *kind, const char *value,
                                    struct mics_err *err)
{
    struct mics_link *link = &to->topology->net_link;
    double share = 1;

    if (!mics_catalogue_network(to->catalogue, kind, &share, &link->latency_s))
        return mics_err_set(err, MICS_ERR_ARG, "the catalogue has no network of this kind");
    const enum mics_status status = parse_link(value, link, err);
    to->card_rate = link->bandwidth_bytes;
    link->bandwidth_bytes *= share;
    return status;
}

static enum mics_status set_eth(struct description *to, const char *value, struct mics_err *err)
{
    return set_network(to, "eth", value, err);
}

static enum mics_status set_roce(struct description *to, const char *value, struct mics_err *err)
{
    return set_network(to, "roce", value, err);
}

static enum mics_status set_ib(struct description *to, const char *value, struct mics_err *err)
{
    return set_network(to, "ib", value, err);
}

/* The first is set before the others, which may change what the GPU sets. */
static const struct word {
    const char *key;
    enum mics_status (*set)(struct description *to, const char *value, struct mics_err *err);
} words[] = {
    {"gpu", set_gpus},
    {"node", set_nodes},
    {"flops", set_flops},
    {"dtype", set_dtype},
    {"mem", set_memory},
    {"membw", set_memory_rate},
    {"link", set_link},
    {"net", set_net},
    {"eth", set_eth},
    {"roce", set_roce},
    {"ib", set_ib},
    {"cores", set_cores},
    {"hostmem", set_host_memory},
    {"hostbw", set_host_memory_rate},
};

enum { WORD_COUNT = sizeof words / sizeof *words };

/* The index of the key that `text` begins with, up to a colon; WORD_COUNT: none. */
static size_t find_word(const char *text)
{
    const size_t length = strcspn(text, ":");
    size_t i = 0;

    if (text[length] != ':')
        return WORD_COUNT;
    while (i < WORD_COUNT &&
           (strlen(words[i].key) != length || strncmp(words[i].key, text, length) != 0))
        i++;
    return i;
}

static bool is_synthetic(const char *text)
{
    return find_word(text + strspn(text, blanks)) < WORD_COUNT;
}

static enum mics_status report_unknown(const char *word, struct mics_err *err)
{
    char list[16 * WORD_COUNT] = "";

    for (size_t i = 0; i < WORD_COUNT; i++) {
        strcat(list, i == 0 ? "" : i + 1 < WORD_COUNT ? ", " : " or ");
        strcat(list, words[i].key);
    }
    return mics_err_set(err, MICS_ERR_ARG, "'%s': expected %s, a colon and a value", word, list);
}

/* The GPU's word if `first`, else the others. */
static enum mics_status apply_word(struct description *to, const char *word, bool first, bool *seen,
                                   struct mics_err *err)
{
    const size_t i = find_word(word);
    enum mics_status status;

    if (i == WORD_COUNT)
        return report_unknown(word, err);
    if (first != (i == 0))
        return MICS_OK;
    if (seen[i])
        return mics_err_set(err, MICS_ERR_ARG, "'%s': given twice", word);
    seen[i] = true;
    status = words[i].set(to, strchr(word, ':') + 1, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "'%s'", word);
    return status;
}

static enum mics_status apply_words(struct description *to, const char *text, bool first,
                                    bool *seen, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (text += strspn(text, blanks); *text && status == MICS_OK; text += strspn(text, blanks)) {
        const size_t length = strcspn(text, blanks);
        char word[MAX_WORD];

        if (length >= sizeof word)
            return mics_err_set(err, MICS_ERR_ARG, "'%.40s...': word too long", text);
        memcpy(word, text, length);
        word[length] = '\0';
        text += length;
        status = apply_word(to, word, first, seen, err);
    }
    return status;
}

/* At most one word says what the network is. */
static enum mics_status check_networks(const bool *seen, struct mics_err *err)
{
    static const char *const networks[] = {"net:", "eth:", "roce:", "ib:"};
    const char *found = NULL;

    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        if (!seen[find_word(networks[i])])
            continue;
        if (found)
            return mics_err_set(err, MICS_ERR_ARG, "'%s' and '%s': only one of them", found,
                                networks[i]);
        found = networks[i];
    }
    return MICS_OK;
}

/* As a measured topology has it. */
static enum mics_status add_host_memory(struct description *to, struct mics_err *err)
{
    struct mics_topology *topology = to->topology;
    json_t *machine = json_object();
    enum mics_status status = MICS_OK;

    if (!machine ||
        (to->host_memory > 0 &&
         json_object_set_new(machine, "memory_bytes", json_integer((json_int_t)to->host_memory)) !=
             0) ||
        (to->host_memory_rate > 0 && json_object_set_new(machine, "memory_bandwidth_bytes_per_s",
                                                         json_real(to->host_memory_rate)) != 0))
        status = mics_err_nomem(err);
    if (status == MICS_OK && !topology->doc)
        status = mics_topology_to_doc(topology, &topology->doc, err);
    if (status != MICS_OK) {
        json_decref(machine);
        return status;
    }
    return json_object_set_new(topology->doc, "machine", machine) == 0 ? MICS_OK
                                                                       : mics_err_nomem(err);
}

static enum mics_status apply_description(struct description *to, const char *text,
                                          struct mics_err *err)
{
    bool seen[WORD_COUNT] = {false};
    enum mics_status status;

    if (text[strspn(text, blanks)] == '\0')
        return mics_err_set(err, MICS_ERR_ARG, "'%.40s': empty description", text);
    status = apply_words(to, text, true, seen, err);
    if (status == MICS_OK && to->gpu.gpu_id)
        mics_instance_set_device(&to->gpu, to->topology);
    if (status == MICS_OK)
        status = apply_words(to, text, false, seen, err);
    if (status == MICS_OK)
        status = check_networks(seen, err);
    if (status == MICS_OK && to->gpu.gpu_id)
        status = mics_instance_add_figures(&to->gpu, 1, to->card_rate, to->topology, err);
    if (status == MICS_OK && (to->host_memory > 0 || to->host_memory_rate > 0))
        status = add_host_memory(to, err);
    return status;
}

static enum mics_status parse_synthetic(const struct mics_catalogue *catalogue, const char *text,
                                        struct mics_topology **out, struct mics_err *err)
{
    struct mics_topology *topology = malloc(sizeof *topology);
    enum mics_status status;

    if (!topology)
        return mics_err_nomem(err);
    *topology = (struct mics_topology){
        .name = "synthetic",
        .source = "synthetic",
        .nodes = 1,
        .per_node = 1,
        .device = "synthetic",
        .flops = 250e12,
        .flops_dtype = "bf16",
        .memory_bandwidth = 1.8e12,
        .memory_bytes = (uint64_t)80 << 30,
        .node_link = {.latency_s = 2e-6, .bandwidth_bytes = 240e9},
        .net_link = {.latency_s = 25e-6, .bandwidth_bytes = 12.5e9},
    };
    struct description to = {.topology = topology, .catalogue = catalogue};
    status = apply_description(&to, text, err);
    if (status != MICS_OK) {
        mics_topology_free(topology);
        return status;
    }
    *out = topology;
    return MICS_OK;
}

/* "name" or "name:nodes", split at the last colon. */
static enum mics_status split_name(const char *text, char *name, size_t size, uint64_t *nodes,
                                   struct mics_err *err)
{
    const char *colon = strrchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    enum mics_status status;

    if (length == 0)
        return mics_err_set(err, MICS_ERR_ARG, "'%.100s': expected the name of an instance", text);
    if (length >= size)
        return mics_err_set(err, MICS_ERR_ARG, "'%.40s...': name too long", text);
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

static enum mics_status parse_instance(const struct mics_catalogue *catalogue, const char *text,
                                       struct mics_topology **out, struct mics_err *err)
{
    struct mics_instance instance;
    char name[64];
    uint64_t nodes;
    enum mics_status status = split_name(text, name, sizeof name, &nodes, err);

    if (status != MICS_OK)
        return status;
    status = mics_catalogue_find(catalogue, name, &instance, err);
    if (status != MICS_OK)
        return status;
    return mics_instance_topology(&instance, (uint32_t)nodes, out, err);
}

enum mics_status mics_topology_parse_in(const struct mics_catalogue *catalogue, const char *text,
                                        struct mics_topology **out, struct mics_err *err)
{
    if (is_synthetic(text) || strpbrk(text, " \t\n"))
        return parse_synthetic(catalogue, text, out, err);
    return parse_instance(catalogue, text, out, err);
}

enum mics_status mics_topology_parse(const char *text, struct mics_topology **out,
                                     struct mics_err *err)
{
    struct mics_catalogue *catalogue = NULL;
    enum mics_status status = mics_catalogue_open(&catalogue, err);

    if (status == MICS_OK)
        status = mics_topology_parse_in(catalogue, text, out, err);
    mics_catalogue_close(catalogue);
    return status;
}
