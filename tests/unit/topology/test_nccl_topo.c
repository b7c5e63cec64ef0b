/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl_topo.c - topologies from NCCL's files. */
#include "tap.h"
#include "topology/catalogue.h"
#include "topology/nccl_topo.h"
#include "topology/nccl_xml.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct mics_catalogue *catalogue; /* the built-in one */
static struct mics_err err;
static struct mics_nccl_machine machine;
static struct mics_nccl_findings found;

static enum mics_status parse(const char *text, struct mics_nccl_machine *out)
{
    err.text[0] = '\0';
    return mics_nccl_machine_parse(text, strlen(text), out, &err);
}

/* The topology of a file, and what was found; NULL: err says why. */
static struct mics_topology *read_file(const char *path, const char *gpu, uint32_t nodes)
{
    const struct mics_nccl_request request = {.catalogue = catalogue, .gpu = gpu, .nodes = nodes};
    struct mics_topology *topology = NULL;

    if (mics_topology_from_nccl(path, &request, &topology, &found, &err) != MICS_OK)
        return NULL;
    return topology;
}

static void a_node_of_eight_GPUs_becomes_a_topology(void)
{
    struct mics_topology *topology = read_file("tests/fake/nccl.xml", NULL, 4);

    CHECK(topology != NULL);
    if (!topology)
        return;
    CHECK_INT(topology->nodes, 4);
    CHECK_INT(topology->per_node, 8);
    CHECK_STR(topology->device, "NVIDIA H200 141GB");
    CHECK_STR(topology->flops_dtype, "bf16");
    CHECK(fabs(topology->node_link.bandwidth_bytes - 18 * 20.6e9) < 1);
    CHECK(fabs(topology->net_link.bandwidth_bytes - 8 * 50e9 * 0.96) < 1);
    CHECK_INT(json_integer_value(json_object_get(
                  json_object_get(json_object_get(topology->doc, "links"), "net"), "cards")),
              8);
    CHECK_STR(found.link, "8 GPUs meet over NVLink, 371 GB/s");
    CHECK_STR(found.missing, "");
    mics_topology_free(topology);
}

static void all_cards_count(void)
{
    CHECK_INT(parse("<system><cpu>"
                    "<pci><gpu sm='90'><nvlink count='9'/><nvlink count='9'/></gpu></pci>"
                    "<pci><gpu sm='90'><nvlink count='17'/></gpu></pci>"
                    "<pci><nic><net name='a' speed='100000' latency='75'/>"
                    "<net name='b' speed='200000'/><net name='a+b' speed='300000'/></nic></pci>"
                    "<future><net speed='x'/></future></cpu></system>",
                    &machine),
              MICS_OK);
    CHECK_INT(machine.cards, 2);
    CHECK(fabs(machine.cards_rate - 300e9 / 8) < 1);
    CHECK(machine.card_rate == 0);
    CHECK(fabs(machine.latency_s - 75e-6) < 1e-9);
}

enum { TEXT = 16000, GPUS = 16, SWITCH = -1, CPU = -2, SELF = -3, ABSENT = -4 };

/* A machine with `count` GPUs in slots of PCIe 4, the first half at one processor and the others at
 * another if `processors` is 2. */
struct sketch {
    const char *cpu; /* attributes of the processors */
    int count, processors;
    bool switched; /* two GPUs behind each PCI switch */
    int sm;
    struct {
        int from, to, count;
    } links[80]; /* NVLinks, ended by a count of 0 */
};

#define AMD   "arch='x86_64' vendor='AuthenticAMD' familyid='23' modelid='49'"
#define INTEL "arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='85'"
#define POWER "arch='ppc64'"

static void append(char *text, const char *format, ...) MICS_PRINTF(2, 3);
static void append(char *text, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, TEXT - used, format, args);
    va_end(args);
}

static void append_gpu(char *text, const struct sketch *sketch, int index)
{
    append(text,
           "<pci busid='0000:%02x:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' "
           "link_width='16'><gpu dev='%d' sm='%d' rank='%d'>",
           index + 1, index, sketch->sm, index);
    for (int i = 0; sketch->links[i].count > 0; i++) {
        const int to = sketch->links[i].to;

        if (sketch->links[i].from != index)
            continue;
        if (to == SWITCH || to == CPU)
            append(text, "<nvlink target='0000:f%d:00.0' count='%d' tclass='%s'/>", i % 8,
                   sketch->links[i].count, to == CPU ? "0x068001" : "0x068000");
        else /* NVML writes bus ids in upper case and with eight digits */
            append(text, "<nvlink target='%s:%02X:00.0' count='%d' tclass='0x030200'/>",
                   i % 2 ? "0000" : "00000000",
                   to == SELF     ? index + 1
                   : to == ABSENT ? 0xee
                                  : to + 1,
                   sketch->links[i].count);
    }
    append(text, "</gpu></pci>");
}

static const char *draw(const struct sketch *sketch)
{
    static char text[TEXT];
    int index = 0;

    strcpy(text, "<system version='1'>");
    for (int p = 0; p < sketch->processors; p++) {
        append(text, "<cpu numaid='%d' %s>", p, sketch->cpu);
        for (; index < sketch->count * (p + 1) / sketch->processors; index++) {
            if (sketch->switched && index % 2 == 0)
                append(text,
                       "<pci busid='0000:f%d:00.0' class='0x060400' "
                       "link_speed='16.0 GT/s PCIe' link_width='8'>",
                       index / 2);
            append_gpu(text, sketch, index);
            if (sketch->switched && index % 2 == 1)
                append(text, "</pci>");
        }
        append(text, "</cpu>");
    }
    append(text, "</system>");
    return text;
}

/* What a ring over the GPUs can reach. Rates in GB/s are those of NCCL: 24 for a slot, 16 between
 * AMD's processors, 10 between these of Intel, 32 between POWER9s, NVLinks of 20 each. */
#define PAIR(a, b, n)                                                                              \
    {a, b, n},                                                                                     \
    {                                                                                              \
        b, a, n                                                                                    \
    }
static const struct {
    const char *name;
    struct sketch sketch;
    double gb_per_s;
    enum mics_nccl_way way;
} groups[] = {
    {"no NVLinks", {AMD, 4, 1, false, 80, {{0}}}, 24, MICS_NCCL_OVER_PCI},
    {"no NVLinks, Intel's processor between the slots",
     {INTEL, 4, 1, false, 80, {{0}}},
     20,
     MICS_NCCL_OVER_PCI},
    {"AMD's two processors", {AMD, 4, 2, false, 80, {{0}}}, 16, MICS_NCCL_OVER_PROCESSORS},
    {"Intel's two processors", {INTEL, 4, 2, false, 80, {{0}}}, 10, MICS_NCCL_OVER_PROCESSORS},
    {"two below one PCI switch", {AMD, 2, 1, true, 80, {{0}}}, 24, MICS_NCCL_OVER_PCI},
    {"PCI switches of eight lanes", {AMD, 4, 1, true, 80, {{0}}}, 12, MICS_NCCL_OVER_PCI},
    {"a bridge between two", {AMD, 2, 1, false, 80, {PAIR(0, 1, 12)}}, 240, MICS_NCCL_OVER_NVLINK},
    {"bridges between pairs of four",
     {AMD, 4, 1, false, 80, {PAIR(0, 1, 12), PAIR(2, 3, 12)}},
     24,
     MICS_NCCL_OVER_PCI},
    {"bridges between other pairs",
     {AMD, 4, 1, false, 80, {PAIR(0, 2, 12), PAIR(1, 3, 12)}},
     24,
     MICS_NCCL_OVER_PCI},
    {"bridges between pairs of eight on two processors",
     {AMD, 8, 2, false, 80, {PAIR(0, 1, 12), PAIR(2, 3, 12), PAIR(4, 5, 12), PAIR(6, 7, 12)}},
     16,
     MICS_NCCL_OVER_PROCESSORS},
    {"bridges that lead from one processor to the other",
     {AMD, 4, 2, false, 80, {PAIR(0, 2, 4), PAIR(1, 3, 4)}},
     24,
     MICS_NCCL_OVER_PCI},
    {"bridges of GeForce cards",
     {AMD, 2, 1, false, 86, {PAIR(0, 1, 4)}},
     48,
     MICS_NCCL_OVER_NVLINK},
    {"links to the GPU itself",
     {AMD, 4, 1, false, 80, {{0, SELF, 12}, {1, SELF, 12}, {2, SELF, 12}, {3, SELF, 12}}},
     24,
     MICS_NCCL_OVER_PCI},
    {"links to GPUs that are not in the file",
     {AMD, 2, 1, false, 80, {{0, ABSENT, 12}, {1, ABSENT, 12}}},
     24,
     MICS_NCCL_OVER_PCI},
    {"links that one end alone states",
     {AMD, 2, 1, false, 80, {{0, 1, 12}}},
     24,
     MICS_NCCL_OVER_PCI},
    {"ends that state different numbers",
     {AMD, 2, 1, false, 80, {{0, 1, 12}, {1, 0, 4}}},
     80,
     MICS_NCCL_OVER_NVLINK},
    {"several elements for one target",
     {AMD, 2, 1, false, 80, {PAIR(0, 1, 2), PAIR(0, 1, 1), PAIR(0, 1, 1)}},
     80,
     MICS_NCCL_OVER_NVLINK},
    {"switches",
     {INTEL,
      4,
      2,
      false,
      80,
      {{0, SWITCH, 12}, {1, SWITCH, 12}, {2, SWITCH, 6}, {2, SWITCH, 6}, {3, SWITCH, 12}}},
     240,
     MICS_NCCL_OVER_NVLINK},
    {"a GPU that has lost two links to switches",
     {INTEL, 3, 1, false, 90, {{0, SWITCH, 18}, {1, SWITCH, 16}, {2, SWITCH, 18}}},
     16 * 20.6,
     MICS_NCCL_OVER_NVLINK},
    {"a GPU without its links to switches",
     {AMD, 3, 1, false, 80, {{0, SWITCH, 12}, {1, SWITCH, 12}}},
     24,
     MICS_NCCL_OVER_PCI},
    {"a cube of eight, with single and double links",
     {INTEL,
      8,
      2,
      false,
      70,
      {PAIR(0, 1, 1), PAIR(0, 2, 1), PAIR(0, 3, 2), PAIR(0, 4, 2), PAIR(1, 2, 2), PAIR(1, 3, 1),
       PAIR(1, 5, 2), PAIR(2, 3, 2), PAIR(2, 6, 1), PAIR(3, 7, 1), PAIR(4, 5, 1), PAIR(4, 6, 1),
       PAIR(4, 7, 2), PAIR(5, 6, 2), PAIR(5, 7, 1), PAIR(6, 7, 2)}},
     120,
     MICS_NCCL_OVER_NVLINK},
    {"two fours with one link between them",
     {INTEL,
      8,
      2,
      false,
      70,
      {PAIR(0, 1, 2), PAIR(0, 2, 2), PAIR(0, 3, 2), PAIR(1, 2, 2), PAIR(1, 3, 2), PAIR(2, 3, 2),
       PAIR(3, 4, 1), PAIR(4, 5, 2), PAIR(4, 6, 2), PAIR(4, 7, 2), PAIR(5, 6, 2), PAIR(5, 7, 2),
       PAIR(6, 7, 2)}},
     20,
     MICS_NCCL_OVER_NVLINK},
    {"a chain", {AMD, 3, 1, false, 80, {PAIR(0, 1, 4), PAIR(1, 2, 4)}}, 80, MICS_NCCL_OVER_NVLINK},
    {"POWER9: pairs, and links to the processors",
     {POWER,
      4,
      2,
      false,
      70,
      {PAIR(0, 1, 3), PAIR(2, 3, 3), {0, CPU, 3}, {1, CPU, 3}, {2, CPU, 3}, {3, CPU, 3}}},
     32,
     MICS_NCCL_OVER_PROCESSORS},
    {"POWER9: GPUs of one processor without links of their own",
     {POWER, 2, 1, false, 70, {{0, CPU, 2}, {1, CPU, 2}}},
     40,
     MICS_NCCL_OVER_PCI},
};

static void a_group_has_the_bandwidth_of_its_weakest_cut(void)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct mics_nccl_group group = {0};

        CHECK_INT(parse(draw(&groups[i].sketch), &machine), MICS_OK);
        CHECK_INT(machine.gpus, groups[i].sketch.count);
        CHECK_INT(mics_nccl_group_rate(&machine, 0, machine.gpus, &group, &err), MICS_OK);
        CHECK(fabs(group.rate - groups[i].gb_per_s * 1e9) < 1e6);
        CHECK_INT(group.way, groups[i].way);
        if (fabs(group.rate - groups[i].gb_per_s * 1e9) >= 1e6 || group.way != groups[i].way)
            printf("# %s: %g GB/s, way %d\n%s", groups[i].name, group.rate / 1e9, group.way,
                   err.text);
    }
}

static void links_of_devices_have_the_rates_of_NCCL(void)
{
    static const struct {
        const char *link;
        double gb_per_s;
    } cases[] = {
        {"link_speed='16.0 GT/s PCIe' link_width='16'", 24},
        {"link_speed='16 GT/s' link_width='8'", 12},
        {"link_speed='32.0 GT/s PCIe' link_width='16'", 48},
        {"link_speed='5 GT/s' link_width='16'", 6},
        {"link_speed='2.5 GT/s PCIe' link_width='16'", 3},
        {"link_speed='16.0 GT/s PCIe' link_width='0'", 24},
        {"link_speed='16.0 GT/s PCIe'", 24},
        {"link_speed='' link_width=''", 12},
        {"link_speed='Unknown' link_width='0'", 12},
        {"", 12},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];

        snprintf(text, sizeof text, "<system><cpu><pci class='0x030200' %s/></cpu></system>",
                 cases[i].link);
        CHECK_INT(parse(text, &machine), MICS_OK);
        CHECK(fabs(machine.list[machine.gpu[0]].rate - cases[i].gb_per_s * 1e9) < 1);
    }
}

/* Files for NCCL_TOPO_FILE have PCI devices alone. */
static void GPUs_and_cards_are_known_by_their_class(void)
{
    static const struct {
        const char *devices;
        int gpus, cards; /* -1: refused */
    } cases[] = {
        {"<pci class='0x030200'/><pci class='0x030200'/><pci class='0x020700'/>", 2, 1},
        {"<pci class='0x030000' vendor='0x10DE'/><pci class='0x020000'/>", 1, 1},
        {"<pci class='0x030000' vendor='0x1a03'/><pci class='0x030200'/>", 1, 0},
        {"<pci class='0x030000'/>", -1, 0},
        {"<pci class='0x03'/><pci class='0x02'/>", 1, 1},
        {"<pci class='0x060400'><pci class='0x030200'/><pci class='0x028000'/></pci>", 1, 1},
        {"<pci busid='0000:00:16.0'/>", -1, 0},
        {"<pci class='0x030200'><gpu sm='80'/></pci><pci class='0x030200'/>", 1, 0},
        {"<pci class='0x030200'/><pci class='0x020700'/><nic><net speed='1'/></nic>", 1, 1},
        {"<pci class='0x030200' device='0x20b0'/><pci class='0x030200' device='0x20B0'/>", 2, 0},
        {"<pci class='0x030200' device='0x20b0'/><pci class='0x030200' device='0x20b2'/>", -1, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];

        snprintf(text, sizeof text, "<system version='1'><cpu>%s</cpu></system>", cases[i].devices);
        CHECK_INT(parse(text, &machine), cases[i].gpus < 0 ? MICS_ERR_FORMAT : MICS_OK);
        if (cases[i].gpus < 0)
            continue;
        CHECK_INT(machine.gpus, cases[i].gpus);
        CHECK_INT(machine.cards, cases[i].cards);
    }
}

static void a_file_without_NVLinks_and_rates_gets_those_of_the_catalogue(void)
{
    struct mics_topology *topology = read_file("tests/fake/nccl-input.xml", NULL, 2);

    CHECK(topology == NULL);
    CHECK_STR(err.text, "tests/fake/nccl-input.xml: the model of the GPUs is not stated: name it "
                        "with --gpu=NAME");
    topology = read_file("tests/fake/nccl-input.xml", "a100-80", 2);
    CHECK(topology != NULL);
    if (!topology)
        return;
    CHECK_INT(topology->per_node, 8);
    CHECK(fabs(topology->node_link.bandwidth_bytes - 240e9) < 1);
    CHECK(fabs(topology->net_link.bandwidth_bytes - 8 * 25e9 * 0.96) < 1e6);
    CHECK_STR(found.link, "");
    CHECK_STR(found.missing,
              "the NVLinks, which NCCL finds on the machine: those of NVIDIA A100 80GB in the "
              "catalogue, 240 GB/s; the rates of network cards: 200 Gbit/s, as machines of the "
              "catalogue have (--card=RATE states another)");
    mics_topology_free(topology);
}

/* Cards behind slots of PCIe 3, and cards at another processor than all GPUs. */
static void the_network_is_as_fast_as_what_leads_to_its_cards(void)
{
    static const struct {
        const char *devices;
        double gb_per_s;
    } cases[] = {
        {"<cpu " AMD "><pci class='0x03' link_speed='16 GT/s'/>"
         "<pci link_speed='16 GT/s'><nic><net speed='100000'/></nic></pci></cpu>",
         12},
        {"<cpu " AMD "><pci class='0x03' link_speed='16 GT/s'/>"
         "<pci link_speed='8 GT/s'><nic><net speed='200000'/></nic></pci></cpu>",
         12},
        {"<cpu " AMD "><pci class='0x03' link_speed='16 GT/s'/><pci class='0x03' "
         "link_speed='16 GT/s'/></cpu><cpu " AMD "><pci link_speed='16 GT/s'><nic>"
         "<net speed='200000'/></nic></pci></cpu>",
         16},
        {"<cpu " AMD
         "><pci link_speed='16 GT/s' link_width='4'><pci class='0x03'/><pci class='0x03'/>"
         "</pci><pci link_speed='16 GT/s'><nic><net speed='200000'/></nic></pci></cpu>",
         6},
        {"<cpu " AMD "><pci class='0x03'/><nic><net speed='10000'/><net speed='-1'/></nic></cpu>",
         2.4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[900];
        double rate = 0;

        snprintf(text, sizeof text, "<system>%s</system>", cases[i].devices);
        CHECK_INT(parse(text, &machine), MICS_OK);
        CHECK_INT(mics_nccl_net_rate(&machine, 0.96, 1.2e9, &rate, &err), MICS_OK);
        CHECK(fabs(rate - cases[i].gb_per_s * 1e9) < 2e6);
        if (fabs(rate - cases[i].gb_per_s * 1e9) >= 2e6)
            printf("# %zu: %g\n", i, rate);
    }
}

static void errors_name_the_line(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "line 1: XML: no element found"},
        {"<a/>", "line 1: a: not expected here; the file is not a topology of NCCL"},
        {"<system>\n<gpu/></system>",
         "line 2: gpu: not expected here; the file is not a topology of NCCL"},
        {"<system></system>",
         "line 1: system: contains no GPU: neither a gpu element nor a PCI device of class 0x0302"},
        {"<system><cpu><pci><gpu sm='x'/></pci></cpu></system>",
         "line 1: attribute sm: expected a number from 10 to 999, found \"x\""},
        {"<system><cpu><pci><gpu/></pci></cpu></system>",
         "line 1: attribute sm: expected a number from 10 to 999, found \"\""},
        {"<system><cpu><pci><gpu sm='90'/></pci><pci><gpu sm='80'/></pci></cpu></system>",
         "line 1: gpu: differs from the previous one; a plan needs GPUs of one kind"},
        {"<system><cpu host_hash='1'/><cpu host_hash='2'/></system>",
         "line 1: cpu: belongs to another machine than the previous one; expected a single "
         "machine"},
        {"<system><cpu><nic><net name='a' speed='x'/></nic></cpu></system>",
         "line 1: attribute speed: expected a number from -1 to 1e+08, found \"x\""},
        {"<system><cpu><pci><gpu sm='80'/><gpu sm='80'/></pci></cpu></system>",
         "line 1: gpu: a second one in a PCI device; ranks need GPUs of their own"},
        {"<!DOCTYPE a [<!ENTITY b 'c'>]><system/>", "line 1: DOCTYPE: not expected"},
        {"<system><cpu></system>", "line 1: XML: mismatched tag"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(parse(cases[i].text, &machine), MICS_ERR_FORMAT);
        CHECK_STR(err.text, cases[i].why);
    }
}

static void elements_nested_without_end_are_refused(void)
{
    char text[2000] = "<system><cpu>";

    for (int i = 0; i < 100; i++)
        strcat(text, "<pci>");
    CHECK_INT(parse(text, &machine), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "line 1: pci: nested too deeply");
}

static void a_GPU_that_is_not_known_must_be_named(void)
{
    struct mics_topology *topology = read_file("tests/fake/v100.xml", NULL, 1);

    CHECK(topology == NULL);
    CHECK_STR(err.text, "tests/fake/v100.xml: the model of the GPUs, of compute capability "
                        "7.0, is not stated: name it with --gpu=NAME");
    CHECK(read_file("tests/fake/v100.xml", "v100-32", 2) == NULL);
    CHECK_STR(err.text,
              "tests/fake/v100.xml: contains no network card, so 2 nodes cannot be connected");
    topology = read_file("tests/fake/v100.xml", "v100-32", 1);
    CHECK(topology != NULL);
    if (!topology)
        return;
    CHECK_INT(topology->per_node, 2);
    CHECK_STR(topology->flops_dtype, "f16");
    mics_topology_free(topology);
}

int main(void)
{
    if (parse("<system/>", &machine) == MICS_ERR_UNSUPPORTED) {
        printf("1..0 # SKIP this build is without expat\n");
        return 0;
    }
    CHECK_INT(mics_catalogue_open(&catalogue, &err), MICS_OK);
    TAP_RUN(a_node_of_eight_GPUs_becomes_a_topology);
    TAP_RUN(a_group_has_the_bandwidth_of_its_weakest_cut);
    TAP_RUN(links_of_devices_have_the_rates_of_NCCL);
    TAP_RUN(all_cards_count);
    TAP_RUN(GPUs_and_cards_are_known_by_their_class);
    TAP_RUN(a_file_without_NVLinks_and_rates_gets_those_of_the_catalogue);
    TAP_RUN(the_network_is_as_fast_as_what_leads_to_its_cards);
    TAP_RUN(errors_name_the_line);
    TAP_RUN(elements_nested_without_end_are_refused);
    TAP_RUN(a_GPU_that_is_not_known_must_be_named);
    mics_catalogue_close(catalogue);
    return tap_done();
}
