/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hf_index.c - libFuzzer target for the reader of model.safetensors.index.json.
 *
 * What is accepted must name files inside the folder only.
 *
 * sources: lib/base lib/doc lib/ckpt/hf/hf_folder.c lib/ckpt/hf/match.c lib/ckpt/format
 * sources: lib/ckpt/store.c lib/model/families.c lib/ckpt/ckpt_table.c lib/plan/layout.c
 * sources: lib/plan/group.c lib/plan/trainer_exchanges.c kernels/host/numbers.c
 */
#include "ckpt/hf/hf.h"

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

/* Whatever the parts in between: going along them never leaves the folder. */
static void must_stay_inside(const char *name)
{
    char copy[4096], *rest = copy, *part;

    must(name[0] != '/' && name[0] != '\0');
    if (strlen(name) >= sizeof copy)
        return;
    strcpy(copy, name);
    while ((part = strsep(&rest, "/")) != NULL)
        must(strcmp(part, "..") != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_err err = {.text = ""};
    json_t *map = NULL, *value;
    const char *tensor;

    if (mics_hf_index_parse((const char *)data, size, &map, &err) != MICS_OK) {
        must(map == NULL && err.text[0] != '\0');
        return 0;
    }
    json_object_foreach(map, tensor, value)
    {
        must(json_is_string(value));
        must_stay_inside(json_string_value(value));
    }
    json_decref(map);
    return 0;
}
