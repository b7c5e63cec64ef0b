/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_nccl_topo.c - libFuzzer target for the reader of NCCL's topology files.
 *
 * What is accepted has GPUs, and numbers in the ranges that a topology needs. A group of them has a
 * rate, and so has the network.
 *
 * sources: lib/base lib/doc lib/topology kernels/optimizer.c
 */
#include "topology/nccl_topo.h"
#include "topology/nccl_xml.h"

#include <math.h>
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_err err = {.text = ""};
    static struct mics_nccl_machine machine;
    struct mics_nccl_group group;
    double rate;

    memset(&machine, 0, sizeof machine);
    if (mics_nccl_machine_parse((const char *)data, size, &machine, &err) != MICS_OK) {
        must(machine.gpus == 0 && err.text[0] != '\0');
        return 0;
    }
    must(machine.gpus >= 1 && machine.gpus <= MICS_NCCL_MAX_GPUS);
    must(machine.capability <= 999 && (machine.capability > 0) == machine.has_gpu_elements);
    must(machine.cards_rate >= 0 && isfinite(machine.cards_rate) && isfinite(machine.latency_s));
    must((machine.cards == machine.silent_cards) == (machine.cards_rate == 0));
    if (machine.gpus > 1 && machine.gpus <= 10) {
        must(mics_nccl_group_rate(&machine, 0, machine.gpus, &group, NULL) == MICS_OK);
        must(group.rate >= 0);
    }
    must(mics_nccl_net_rate(&machine, 0.96, 1e9, &rate, NULL) == MICS_OK);
    must(rate >= 0 && isfinite(rate));
    return 0;
}
