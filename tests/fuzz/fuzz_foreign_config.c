/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_foreign_config.c - libFuzzer target for configurations of other trainers.
 *
 * What is accepted has a verdict with a reason for each key, and a batch that fits the ranks.
 *
 * sources: lib/base lib/doc lib/plan/foreign kernels/optimizer.c
 */
#include "plan/foreign/foreign_config.h"
#include "plan/memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* For documents, which need all of plans. */
uint64_t mics_memory_total(const struct mics_memory *memory, const struct mics_topology *topology)
{
    (void)topology;
    return memory->arena_bytes;
}

const char *mics_recompute_name(enum mics_recompute level)
{
    return level == MICS_RECOMPUTE_FULL ? "full" : "none";
}

bool mics_recompute_parse(const char *name, enum mics_recompute *out)
{
    *out = MICS_RECOMPUTE_FULL;
    return name[0] == 'f';
}

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { NODES = 2, PER_NODE = 8 };
    struct mics_foreign_config config;
    struct mics_err err = {.text = ""};
    size_t i;
    json_t *key;

    if (mics_foreign_config_parse((const char *)data, size, NODES, PER_NODE, &config, &err) !=
        MICS_OK) {
        must(err.text[0] != '\0');
        return 0;
    }
    must(config.micro_batch == 0 || config.global_batch % config.micro_batch == 0);
    must(config.global_batch % (NODES * PER_NODE) == 0);
    json_array_foreach(config.keys, i, key)
    {
        must(json_string_length(json_object_get(key, "key")) > 0);
        must(json_string_length(json_object_get(key, "why")) > 0);
    }
    mics_foreign_config_fini(&config);
    return 0;
}
