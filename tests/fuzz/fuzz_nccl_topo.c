/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_nccl_topo.c - libFuzzer target for the reader of NCCL's topology files.
 *
 * What is accepted has GPUs, and numbers in the ranges that a topology needs.
 *
 * sources: lib/base lib/doc lib/topology kernels/optimizer.c
 */
#include "topology/nccl_topo.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

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
    struct mics_nccl_machine machine = {0};

    if (mics_nccl_machine_parse((const char *)data, size, &machine, &err) != MICS_OK) {
        must(machine.gpus == 0 && err.text[0] != '\0');
        return 0;
    }
    must(machine.gpus >= 1 && machine.gpus <= MICS_MAX_PER_NODE);
    must(machine.capability >= 10 && machine.capability <= 999);
    must(machine.pcie_rate >= 0 && isfinite(machine.pcie_rate));
    must(machine.cards_rate >= 0 && isfinite(machine.cards_rate) && isfinite(machine.latency_s));
    must((machine.cards == 0) == (machine.cards_rate == 0));
    return 0;
}
