/* SPDX-License-Identifier: Apache-2.0 */
/* test_catalogue.c - the catalogue of instances. */
#include "tap.h"
#include "topology/catalogue.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void every_entry_can_be_read_and_makes_a_valid_topology(void)
{
    struct mics_catalogue *catalogue = NULL;
    struct mics_err err = {{0}};

    CHECK_INT(mics_catalogue_open(&catalogue, &err), MICS_OK);
    CHECK(mics_catalogue_count(catalogue) >= 23);
    for (size_t i = 0; i < mics_catalogue_count(catalogue); i++) {
        struct mics_instance instance;
        struct mics_topology *topology = NULL, *read = NULL;
        json_t *doc = NULL;

        CHECK_INT(mics_catalogue_get(catalogue, i, &instance, &err), MICS_OK);
        CHECK_INT(mics_instance_topology(&instance, 2, &topology, &err), MICS_OK);
        CHECK_INT(mics_topology_to_doc(topology, &doc, &err), MICS_OK);
        CHECK_INT(mics_topology_from_doc(doc, &read, &err), MICS_OK);
        CHECK_STR(err.text, "");
        CHECK(instance.flops < instance.peak_flops && instance.flops > .4 * instance.peak_flops);
        CHECK(read && read->node_link.bandwidth_bytes > 1e10);
        json_decref(doc);
        mics_topology_free(topology);
        mics_topology_free(read);
    }
    mics_catalogue_close(catalogue);
}

/* Vendors' figures, which a wrong factor or unit would change. */
static void p4d_has_the_vendors_figures(void)
{
    struct mics_topology *topology = NULL;
    const json_t *device;

    CHECK_INT(mics_topology_parse("p4d.24xlarge:16", &topology, NULL), MICS_OK);
    if (!topology)
        return;
    CHECK_STR(topology->name, "p4d.24xlarge");
    CHECK_STR(topology->source, "catalogue");
    CHECK_STR(topology->device, "NVIDIA A100 40GB");
    CHECK_INT(topology->nodes, 16);
    CHECK_INT(topology->per_node, 8);
    CHECK_NEAR(topology->flops, 271e12, 1e12);
    CHECK_NEAR(topology->node_link.bandwidth_bytes, 240e9, 1);
    CHECK_NEAR(topology->net_link.bandwidth_bytes, .96 * 50e9, 1);
    CHECK_NEAR(topology->net_link.latency_s, 75e-6, 1e-12);
    CHECK_INT(topology->memory_bytes, (40960ll - 512)
                                          << 20); /* nvidia-smi's total less the reserve */
    device = json_object_get(topology->doc, "device");
    CHECK_NEAR(json_real_value(json_object_get(device, "peak_flops_per_s")), 312e12, 1);
    mics_topology_free(topology);
}

static void memory_is_the_total_of_nvidia_smi_less_the_reserve(void)
{
    static const struct {
        const char *name;
        long long mib;
    } known[] = {{"p3dn", 32768},  {"p4d", 40960},      {"p4de", 81920},    {"p5", 81559},
                 {"p5en", 143771}, {"p6-b200", 183359}, {"p6-b300", 275040}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct mics_topology *topology = NULL;

        CHECK_INT(mics_topology_parse(known[i].name, &topology, NULL), MICS_OK);
        CHECK_INT(topology ? topology->memory_bytes : 0, (known[i].mib - 512) << 20);
        mics_topology_free(topology);
    }
}

/* Rate of a GPU's link over its share of the network, by the vendors' figures. */
static void the_gap_between_link_and_network_is_the_published_one(void)
{
    static const struct {
        const char *name;
        double ratio;
    } table[] = {
        {"p3dn.24xlarge", 96},  {"p4d.24xlarge", 48},     {"p5.48xlarge", 9},
        {"p5en.48xlarge", 9},   {"p6-b200.48xlarge", 18}, {"p6-b300.48xlarge", 9},
        {"a2-highgpu-8g", 192}, {"a2-megagpu-16g", 384},  {"a3-highgpu-8g", 36},
        {"a3-megagpu-8g", 18},  {"a3-ultragpu-8g", 9},    {"a4-highgpu-8g", 18},
        {"ND96asr_v4", 12},     {"ND96isr_H100_v5", 9},   {"dgx-a100", 12},
        {"dgx-b200", 18},
    };
    struct mics_catalogue *catalogue = NULL;

    CHECK_INT(mics_catalogue_open(&catalogue, NULL), MICS_OK);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct mics_instance instance = {0};

        CHECK_INT(mics_catalogue_find(catalogue, table[i].name, &instance, NULL), MICS_OK);
        CHECK_NEAR(instance.link_rate / (instance.card_rate * instance.cards / instance.gpus),
                   table[i].ratio, .01);
    }
    mics_catalogue_close(catalogue);
}

/* The model is found as words of a device's name: an L4 is not an L40S. */
static void names_of_devices_have_the_rates_of_their_model(void)
{
    static const struct {
        const char *device;
        uint32_t sms;
    } table[] = {{"NVIDIA H100 80GB HBM3", 132},
                 {"NVIDIA A100-SXM4-80GB", 108},
                 {"NVIDIA GeForce RTX 4090", 128},
                 {"NVIDIA L4", 58},
                 {"NVIDIA L40S", 142},
                 {"Tesla T4", 40},
                 {"NVIDIA A10G", 80},
                 {"NVIDIA GB10", 48}};
    static const char *const unknown[] = {"NVIDIA L40", "NVIDIA GeForce RTX 4090D", "NVIDIA XL4",
                                          "", "NVIDIA GeForce RTX 40900"};
    struct mics_gpu_rates rates;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        rates.sms = 0;
        CHECK(mics_catalogue_gpu_rates(table[i].device, &rates));
        CHECK_INT(rates.sms, table[i].sms);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(!mics_catalogue_gpu_rates(unknown[i], &rates));
}

static void aliases_and_any_case_find_the_same_machine(void)
{
    static const char *const names[] = {"p4d", "P4D.24XLARGE", "p4d:1"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mics_topology *topology = NULL;

        CHECK_INT(mics_topology_parse(names[i], &topology, NULL), MICS_OK);
        CHECK(topology && strcmp(topology->name, "p4d.24xlarge") == 0);
        CHECK(topology && topology->nodes == 1);
        mics_topology_free(topology);
    }
}

static void no_two_machines_share_a_name(void)
{
    struct mics_catalogue *catalogue = NULL;

    CHECK_INT(mics_catalogue_open(&catalogue, NULL), MICS_OK);
    for (size_t i = 0; i < mics_catalogue_count(catalogue); i++) {
        struct mics_instance instance, found;

        CHECK_INT(mics_catalogue_get(catalogue, i, &instance, NULL), MICS_OK);
        for (size_t a = 0; a < json_array_size(instance.aliases); a++) {
            const char *alias = json_string_value(json_array_get(instance.aliases, a));

            CHECK_INT(mics_catalogue_find(catalogue, alias, &found, NULL), MICS_OK);
            CHECK_STR(found.name, instance.name);
        }
        CHECK_INT(mics_catalogue_find(catalogue, instance.name, &found, NULL), MICS_OK);
        CHECK_STR(found.name, instance.name);
    }
    mics_catalogue_close(catalogue);
}

static void an_unknown_name_is_refused_with_similar_ones(void)
{
    static const char *const table[][2] = {
        {"p4d.24xlage:4", "'p4d.24xlage': unknown instance; similar: p4d.24xlarge"},
        {"dgx:2", "'dgx': unknown instance; similar: dgx-a100, dgx-h100, dgx-h200"},
        {"h100", "'h100': unknown instance; similar: ND96isr_H100_v5, dgx-h100"},
        {"qqqqqq", "'qqqqqq': unknown instance; 'mics-probe --list' lists them"},
        {"p4d:0", "'p4d:0': number of nodes"},
        {"p4d:many", "'p4d:many': number of nodes"},
        {"p4d:", "'p4d:': number of nodes"},
        {":4", "':4': expected the name of an instance"},
        {"", "'': expected the name of an instance"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct mics_topology *topology = NULL;
        struct mics_err err = {{0}};

        CHECK_INT(mics_topology_parse(table[i][0], &topology, &err), MICS_ERR_ARG);
        CHECK(topology == NULL);
        if (strncmp(err.text, table[i][1], strlen(table[i][1])) != 0)
            CHECK_STR(err.text, table[i][1]);
    }
}

static bool is_date(const char *text)
{
    int year, month = 0, day = 1, used = 0;

    if (!text)
        return false;
    if (sscanf(text, "%4d-%2d%n", &year, &month, &used) < 2)
        return false;
    if (text[used] == '-' && sscanf(text + used, "-%2d%n", &day, &(int){0}) == 1)
        used += 3;
    return text[used] == '\0' && year >= 2015 && year < 2100 && month >= 1 && month <= 12 &&
           day >= 1 && day <= 31;
}

/* A map with numbers has a source and a date, or the map around it has. Counts the maps that
 * have no source. */
static int count_unsourced(const json_t *value, const char *path, bool sourced)
{
    const char *key;
    json_t *member;
    bool has_numbers = false;
    int count = 0;
    size_t i;

    if (json_is_object(value) && json_string_length(json_object_get(value, "source")) > 3)
        sourced = is_date(json_string_value(json_object_get(value, "date")));
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        char inner[256];

        snprintf(inner, sizeof inner, "%s.%s", path, key);
        has_numbers |= json_is_number(member);
        count += count_unsourced(member, inner, sourced);
    }
    json_array_foreach(value, i, member) count += count_unsourced(member, path, sourced);
    if (has_numbers && !sourced) {
        printf("# %s: a figure without source or date\n", path);
        count++;
    }
    return count;
}

static void every_figure_has_a_source_and_a_date(void)
{
    json_t *json = json_load_file("share/mics/instances.json", 0, NULL);
    json_t *wrong = json_pack("{s:[{s:i, s:{s:i, s:s, s:s}}]}", "gpus", "figure", 1, "price", "usd",
                              2, "source", "price list", "date", "yesterday");

    CHECK(json != NULL);
    CHECK_INT(count_unsourced(json, "", false), 0);
    CHECK_INT(count_unsourced(wrong, "wrong", false), 2);
    json_decref(json);
    json_decref(wrong);
}

/* A rate that is fitted, or read from a log, has not the source of the vendor's figures. */
static void figures_have_sources_of_their_own(void)
{
    struct mics_catalogue *catalogue = NULL;

    CHECK_INT(mics_catalogue_open(&catalogue, NULL), MICS_OK);
    for (size_t i = 0; i < mics_catalogue_gpu_count(catalogue); i++) {
        struct mics_instance gpu;

        CHECK_INT(mics_catalogue_get_gpu(catalogue, i, &gpu, NULL), MICS_OK);
        const struct mics_source *own[] = {&gpu.flops_source, &gpu.memory_source,
                                           &gpu.memory_factor_source, &gpu.overhead_source,
                                           &gpu.attention_source};
        const bool hopper = gpu.peak_flops > 700e12; /* or later */

        CHECK_STR(gpu.rates.attention, hopper ? "H100" : "A100");
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
            CHECK(own[k]->text && is_date(own[k]->date));
            CHECK(own[k]->text && strcmp(own[k]->text, gpu.gpu_source.text) != 0);
        }
        /* What is published of copies: 12 GB/s over PCIe 3.0, 25 over 4.0 and 53 to 55 over 5.0. */
        const double copies = gpu.host_rate * gpu.host_factor;

        CHECK(!gpu.host_link == gpu.integrated);
        CHECK(gpu.integrated || (gpu.host_source.text && is_date(gpu.host_source.date)));
        CHECK(
            gpu.integrated || strcmp(gpu.host_link, "NVLink-C2C") == 0 ||
            strstr(gpu.host_source.text, gpu.peak_flops > 2e15 ? "PCIe 5.0 of the host" : "GB/s"));
        if (gpu.host_link && strncmp(gpu.host_link, "PCIe ", 5) == 0)
            CHECK(gpu.host_link[5] == '3'   ? copies > 11.5e9 && copies < 13e9
                  : gpu.host_link[5] == '4' ? copies > 24e9 && copies < 26.5e9
                                            : copies > 52e9 && copies < 56e9);
    }
    mics_catalogue_close(catalogue);
}

/* The machine decides the generation of PCIe, and how many GPUs share an uplink. */
static void copies_to_the_host_run_at_the_machines_rate(void)
{
    static const struct {
        const char *name, *link;
        double gb_per_s;
    } table[] = {
        {"p4d", "PCIe 3.0 x16, shared by 2 GPUs", 6},
        {"p4de", "PCIe 3.0 x16, shared by 2 GPUs", 6},
        {"p5", "PCIe 4.0 x16", 25.2},
        {"p5e", "PCIe 4.0 x16, assumed", 25.2},
        {"p5en", "PCIe 5.0 x16, assumed", 54.8},
        {"p6-b200", "PCIe 5.0 x16, assumed", 54.8},
        {"a2-highgpu-8g", "PCIe 3.0 x16, shared by 2 GPUs, assumed", 6},
        {"ND96asr_v4", "PCIe 4.0 x16, shared by 2 GPUs", 12.6},
        {"ND96isr_H100_v5", "PCIe 5.0 x16", 54.8},
        {"dgx-a100", "PCIe 4.0 x16, shared by 2 GPUs", 12.6},
        {"dgx-h100", "PCIe 5.0 x16", 54.8},
        {"node:1 gpu:8xA100-40", "PCIe 4.0 x16", 25.2},
        {"node:1 gpu:4xrtx4090", "PCIe 4.0 x16, assumed", 25.2},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct mics_topology *topology = NULL;

        CHECK_INT(mics_topology_parse(table[i].name, &topology, NULL), MICS_OK);
        if (!topology)
            continue;
        for (int to_host = 0; to_host < 2; to_host++) {
            CHECK_STR(mics_topology_host_copy_source(topology, to_host), table[i].link);
            CHECK_NEAR(mics_topology_host_copy_rate(topology, to_host) / 1e9, table[i].gb_per_s,
                       .05);
        }
        mics_topology_free(topology);
    }
}

/* A direction that was not measured has the link's rate and name. */
static void each_direction_of_copies_has_its_source(void)
{
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_parse("p5", &topology, NULL), MICS_OK);
    if (!topology)
        return;
    CHECK(json_object_set_new(json_object_get(topology->doc, "device"), "from_host_bytes_per_s",
                              json_real(2e10)) == 0);
    CHECK_STR(mics_topology_host_copy_source(topology, false), "measured");
    CHECK_STR(mics_topology_host_copy_source(topology, true), "PCIe 4.0 x16");
    CHECK_NEAR(mics_topology_host_copy_rate(topology, false), 2e10, 1);
    CHECK_NEAR(mics_topology_host_copy_rate(topology, true), 25.2e9, 1e6);
    mics_topology_free(topology);
}

#define MACHINE(rest)                                                                              \
    "{\"instances\": [{\"name\": \"lab\", \"aliases\": [\"p4d\"], \"gpu\": \"A100-80\", "          \
    "\"gpus\": 4, \"cards\": 2, \"card_gbit\": 400, \"net_latency\": {\"us\": 4}" rest "}]}"

#define HOST_LINK(reached)                                                                         \
    "{\"gpus\": [{\"id\": \"x\", \"name\": \"x\", \"flops_dtype\": \"bf16\", \"peak_tflops\": 1, " \
    "\"sustained\": 1, \"memory_mib\": 1, \"memory_gb_per_s\": 1, \"memory_reached\": 1, "         \
    "\"link_gb_per_s\": 1, \"host_link\": {\"name\": \"PCIe\", \"gb_per_s\": 1, "                  \
    "\"reached\": " reached "}}]}"
#define GPU(sustained)                                                                             \
    "{\"gpus\": [{\"id\": \"x\", \"name\": \"x\", \"flops_dtype\": \"bf16\", "                     \
    "\"peak_tflops\": 1, \"memory_mib\": 1, \"memory_gb_per_s\": 1, \"memory_reached\": 1, "       \
    "\"link_gb_per_s\": 1, \"sustained\": " sustained "}]}"

/* Write the text to a file, add it to a built-in catalogue. */
static enum mics_status add_text(const char *text, struct mics_catalogue **catalogue,
                                 struct mics_err *err)
{
    static const char path[] = "test_catalogue.tmp.json";
    FILE *file = fopen(path, "w");
    enum mics_status status;

    if (!file)
        return MICS_ERR_IO;
    fputs(text, file);
    fclose(file);
    status = mics_catalogue_open(catalogue, err);
    if (status == MICS_OK)
        status = mics_catalogue_add(*catalogue, path, err);
    unlink(path);
    return status;
}

static void entries_of_a_file_replace_those_of_the_same_name(void)
{
    struct mics_catalogue *catalogue = NULL;
    struct mics_topology *topology = NULL;
    struct mics_instance lab;
    struct mics_err err = {{0}};

    CHECK_INT(add_text(MACHINE(""), &catalogue, &err), MICS_OK);
    CHECK_INT(mics_catalogue_find(catalogue, "p4d", &lab, &err), MICS_OK); /* its alias wins */
    CHECK_STR(lab.name, "lab");
    CHECK_STR(lab.source.file, "test_catalogue.tmp.json");
    CHECK_STR(lab.net_latency_source.file, "test_catalogue.tmp.json");
    CHECK(lab.net_latency_source.text == NULL);
    CHECK_INT(mics_topology_parse_in(catalogue, "LAB:3", &topology, &err), MICS_OK);
    CHECK_INT(topology ? topology->per_node : 0, 4);
    CHECK_NEAR(topology ? topology->net_link.bandwidth_bytes : 0, .96 * 100e9, 1);
    mics_topology_free(topology);
    mics_catalogue_close(catalogue);

    CHECK_INT(
        add_text("{\"gpus\": [{\"id\": \"h100-80\", \"name\": \"slow\", \"flops_dtype\": "
                 "\"bf16\", \"peak_tflops\": 100, \"sustained\": {\"value\": 0.5, \"source\": "
                 "\"measured\"}, \"memory_mib\": 1024, "
                 "\"memory_gb_per_s\": 1, \"memory_reached\": 1, \"link_gb_per_s\": 1}], "
                 "\"link_latency\": {\"us\": 7}}",
                 &catalogue, &err),
        MICS_OK);
    CHECK_INT(mics_catalogue_find(catalogue, "p5", &lab, &err), MICS_OK);
    CHECK_STR(lab.gpu, "slow");
    CHECK_NEAR(lab.flops, 50e12, 1);
    CHECK_STR(lab.flops_source.text, "measured");
    CHECK_STR(lab.flops_source.file, "test_catalogue.tmp.json");
    CHECK_STR(lab.memory_source.file, "test_catalogue.tmp.json");
    CHECK_NEAR(lab.link_latency_s, 7e-6, 1e-12);
    mics_catalogue_close(catalogue);
}

static void a_damaged_file_is_refused_with_its_name_and_the_path(void)
{
    static const char *const table[][2] = {
        {"{\"instances\": [", "line 1, column 15: "},
        {"[]", "expected a map with gpus or instances"},
        {"{}", "has neither gpus nor instances"},
        {"{\"kind\": \"mics.topology\", \"v\": 1}", "expected a catalogue, found a document"},
        {"{\"instnaces\": []}", "instnaces: unknown member; similar: instances"},
        {"{\"networks\": {\"eth\": {\"share\": 2, \"us\": 1}}}", "networks.eth.share: expected"},
        {"{\"instances\": [5]}", "instances[0]: expected a map, found a number"},
        {MACHINE(", \"card_gbits\": 1"),
         "instances[0].card_gbits: unknown member; similar: card_gbit"},
        {MACHINE(", \"price\": {\"usd_per_hour\": -3}"),
         "instances[0].price.usd_per_hour: expected"},
        {MACHINE(", \"price\": 3"), "instances[0].price: expected a map, found a number"},
        {"{\"instances\": [{\"name\": \"a:b\"}]}", "instances[0].name: 'a:b': expected a name"},
        {"{\"instances\": [{\"name\": \"x\", \"gpu\": \"H100\", \"gpus\": 1, \"cards\": 1, "
         "\"card_gbit\": "
         "1, \"net_latency\": {\"us\": 1}}]}",
         "instances[0].gpu: 'H100': no GPU has this id; similar: H100-80"},
        {"{\"instances\": [{\"name\": \"x\", \"gpu\": \"H100-80\", \"gpus\": 1, \"cards\": 1, "
         "\"card_gbit\": 0, \"net_latency\": {\"us\": 1}}]}",
         "instances[0].card_gbit: expected"},
        {"{\"reached\": {\"link\": {\"share\": 1.5}}}", "reached.link.share: expected"},
        {"{\"gpus\": [{\"id\": \"x\"}]}", "gpus[0].name: missing"},
        {MACHINE(
             ", \"host_link\": {\"name\": \"x\", \"gb_per_s\": 1, \"reached\": 1, \"gpus\": 0}"),
         "instances[0].host_link.gpus: expected"},
        {HOST_LINK("0.5}, \"integrated\": true, \"pci_ids\": {"),
         "gpus[0].host_link: an integrated GPU has no link to its host"},
        {HOST_LINK("1.5"), "gpus[0].host_link.reached: expected"},
        {HOST_LINK("0.5, \"gb_per_s\": 1"), "line 1, column"},
        {GPU("1.5"), "gpus[0].sustained: expected a part of the peak, at most 1"},
        {GPU("{\"value\": 0}"), "gpus[0].sustained.value: expected"},
        {GPU("{}"), "gpus[0].sustained.value: missing"},
    };
    static const char prefix[] = "test_catalogue.tmp.json: ";

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct mics_catalogue *catalogue = NULL;
        struct mics_err err = {{0}};

        CHECK_INT(add_text(table[i][0], &catalogue, &err), MICS_ERR_FORMAT);
        CHECK(strncmp(err.text, prefix, strlen(prefix)) == 0);
        if (strncmp(err.text + strlen(prefix), table[i][1], strlen(table[i][1])) != 0)
            CHECK_STR(err.text + strlen(prefix), table[i][1]);
        mics_catalogue_close(catalogue);
    }
}

int main(void)
{
    TAP_RUN(every_entry_can_be_read_and_makes_a_valid_topology);
    TAP_RUN(p4d_has_the_vendors_figures);
    TAP_RUN(copies_to_the_host_run_at_the_machines_rate);
    TAP_RUN(each_direction_of_copies_has_its_source);
    TAP_RUN(memory_is_the_total_of_nvidia_smi_less_the_reserve);
    TAP_RUN(the_gap_between_link_and_network_is_the_published_one);
    TAP_RUN(names_of_devices_have_the_rates_of_their_model);
    TAP_RUN(aliases_and_any_case_find_the_same_machine);
    TAP_RUN(no_two_machines_share_a_name);
    TAP_RUN(an_unknown_name_is_refused_with_similar_ones);
    TAP_RUN(every_figure_has_a_source_and_a_date);
    TAP_RUN(figures_have_sources_of_their_own);
    TAP_RUN(entries_of_a_file_replace_those_of_the_same_name);
    TAP_RUN(a_damaged_file_is_refused_with_its_name_and_the_path);
    return tap_done();
}
