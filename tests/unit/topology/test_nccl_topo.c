/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl_topo.c - topologies from NCCL's files. */
#include "tap.h"
#include "topology/catalogue.h"
#include "topology/nccl_topo.h"

#include <math.h>
#include <string.h>

static struct mics_catalogue *catalogue; /* the built-in one */
static struct mics_err err;

static enum mics_status parse(const char *text, struct mics_nccl_machine *out)
{
    err.text[0] = '\0';
    return mics_nccl_machine_parse(text, strlen(text), out, &err);
}

static void a_node_of_eight_GPUs_becomes_a_topology(void)
{
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_nccl("tests/fake/nccl.xml", catalogue, NULL, 4, &topology, &err),
              MICS_OK);
    if (!topology)
        return;
    CHECK_INT(topology->nodes, 4);
    CHECK_INT(topology->per_node, 8);
    CHECK_STR(topology->device, "NVIDIA H200 141GB");
    CHECK_STR(topology->flops_dtype, "bf16");
    CHECK(fabs(topology->node_link.bandwidth_bytes - 18 * 20.6e9) < 1);
    CHECK(fabs(topology->net_link.bandwidth_bytes - 8 * 50e9 * 0.85) < 1);
    CHECK_INT(json_integer_value(json_object_get(
                  json_object_get(json_object_get(topology->doc, "links"), "net"), "cards")),
              8);
    mics_topology_free(topology);
}

static void slots_count_where_there_are_no_NVLinks(void)
{
    struct mics_nccl_machine machine;

    CHECK_INT(
        parse("<system><cpu><pci device='0x20b0' link_speed='16.0 GT/s PCIe' link_width='16'>"
              "<gpu sm='80'/></pci><pci device='0x20b0' link_speed='16.0 GT/s PCIe' link_width='8'>"
              "<gpu sm='80'/></pci></cpu></system>",
              &machine),
        MICS_OK);
    CHECK_INT(machine.gpus, 2);
    CHECK_INT(machine.nvlinks, 0);
    CHECK(fabs(machine.pcie_rate - 12e9) < 1);
    CHECK_INT(machine.cards, 0);
}

static void the_GPU_with_the_fewest_links_and_all_cards_count(void)
{
    struct mics_nccl_machine machine;

    CHECK_INT(parse("<system><cpu>"
                    "<pci><gpu sm='90'><nvlink count='9'/><nvlink count='9'/></gpu></pci>"
                    "<pci><gpu sm='90'><nvlink count='17'/></gpu></pci>"
                    "<pci><nic><net name='a' speed='100000' latency='75'/>"
                    "<net name='b' speed='200000'/><net name='a+b' speed='300000'/></nic></pci>"
                    "<future><net speed='x'/></future></cpu></system>",
                    &machine),
              MICS_OK);
    CHECK_INT(machine.nvlinks, 17);
    CHECK_INT(machine.cards, 2);
    CHECK(fabs(machine.cards_rate - 300e9 / 8) < 1);
    CHECK(machine.card_rate == 0);
    CHECK(fabs(machine.latency_s - 75e-6) < 1e-9);
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
        {"<system></system>", "line 1: system: contains no GPU"},
        {"<system><cpu><pci><gpu sm='x'/></pci></cpu></system>",
         "line 1: attribute sm: expected a number from 10 to 999, found \"x\""},
        {"<system><cpu><pci><gpu/></pci></cpu></system>",
         "line 1: attribute sm: expected a number from 10 to 999, found \"\""},
        {"<system><cpu><pci><gpu sm='90'/></pci><pci><gpu sm='80'/></pci></cpu></system>",
         "line 1: gpu: differs from the previous one; a plan needs GPUs of one kind"},
        {"<system><cpu host_hash='1'/><cpu host_hash='2'/></system>",
         "line 1: cpu: belongs to another machine than the previous one; expected a single "
         "machine"},
        {"<system><cpu><nic><net name='a' speed='-1'/></nic></cpu></system>",
         "line 1: attribute speed: expected a number from 1 to 1e+08, found \"-1\""},
        {"<!DOCTYPE a [<!ENTITY b 'c'>]><system/>", "line 1: DOCTYPE: not expected"},
        {"<system><cpu></system>", "line 1: XML: mismatched tag"},
    };
    struct mics_nccl_machine machine;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(parse(cases[i].text, &machine), MICS_ERR_FORMAT);
        CHECK_STR(err.text, cases[i].why);
    }
}

static void elements_nested_without_end_are_refused(void)
{
    struct mics_nccl_machine machine;
    char text[2000] = "<system><cpu>";

    for (int i = 0; i < 100; i++)
        strcat(text, "<pci>");
    CHECK_INT(parse(text, &machine), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "line 1: pci: nested too deeply");
}

static void a_GPU_that_is_not_known_must_be_named(void)
{
    struct mics_topology *topology = NULL;

    CHECK_INT(mics_topology_from_nccl("tests/fake/v100.xml", catalogue, NULL, 1, &topology, &err),
              MICS_ERR_FORMAT);
    CHECK_STR(err.text, "tests/fake/v100.xml: the model of the GPUs, of compute capability "
                        "7.0, is not stated: name it with --gpu=NAME");
    CHECK_INT(
        mics_topology_from_nccl("tests/fake/v100.xml", catalogue, "v100-32", 2, &topology, &err),
        MICS_ERR_FORMAT);
    CHECK_STR(err.text,
              "tests/fake/v100.xml: contains no network card, so 2 nodes cannot be connected");
    CHECK_INT(
        mics_topology_from_nccl("tests/fake/v100.xml", catalogue, "v100-32", 1, &topology, &err),
        MICS_OK);
    CHECK_INT(topology->per_node, 2);
    CHECK_STR(topology->flops_dtype, "f16");
    mics_topology_free(topology);
}

int main(void)
{
    struct mics_nccl_machine machine;

    if (parse("<system/>", &machine) == MICS_ERR_UNSUPPORTED) {
        printf("1..0 # SKIP this build is without expat\n");
        return 0;
    }
    CHECK_INT(mics_catalogue_open(&catalogue, &err), MICS_OK);
    TAP_RUN(a_node_of_eight_GPUs_becomes_a_topology);
    TAP_RUN(slots_count_where_there_are_no_NVLinks);
    TAP_RUN(the_GPU_with_the_fewest_links_and_all_cards_count);
    TAP_RUN(errors_name_the_line);
    TAP_RUN(elements_nested_without_end_are_refused);
    TAP_RUN(a_GPU_that_is_not_known_must_be_named);
    mics_catalogue_close(catalogue);
    return tap_done();
}
