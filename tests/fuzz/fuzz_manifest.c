/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - libFuzzer target for the part of a checkpoint's manifest that locates its
 * elements.
 *
 * The input is a document. Every element of a table that is accepted must have a place inside
 * a file that exists, and a run that ends where the next place begins.
 *
 * sources: lib/base lib/doc lib/ckpt/ckpt_table.c lib/plan/layout.c lib/plan/group.c
 * sources: lib/plan/trainer_exchanges.c
 */
#include "ckpt/ckpt_table.h"
#include "doc/doc.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void check_place(const struct mics_ckpt_table *table, const struct mics_ckpt_unit *unit,
                        uint64_t element)
{
    const struct mics_ckpt_place place = mics_ckpt_locate(unit, table->parts, element);
    const uint64_t shard = mics_layout_optim_shard(&unit->layout);
    const uint32_t part = place.file % table->parts;
    const uint64_t begin = mics_ckpt_part_begin(shard, table->parts, part);

    must(place.file < (uint64_t)table->shard_count * table->parts);
    must(place.run > 0 && place.offset + place.run <= shard);
    must(begin + place.offset + place.run <= mics_ckpt_part_begin(shard, table->parts, part + 1));
}

static void check_table(const struct mics_ckpt_table *table)
{
    must(table->states >= 1 && table->states <= MICS_CKPT_STATES && table->parts >= 1);
    for (uint32_t i = 0; i < table->unit_count; i++) {
        const struct mics_ckpt_unit *unit = &table->units[i];
        const struct mics_layout *layout = &unit->layout;

        must(layout->padded >= layout->count && layout->segment_count % layout->optim_piece == 0);
        for (uint64_t k = 0; k <= 8; k++)
            check_place(table, unit, (layout->padded - 1) / 8 * k);
        check_place(table, unit, layout->padded - 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mics_ckpt_table table = {0};
    struct mics_err err = {.text = ""};
    json_t *doc = NULL;

    if (mics_doc_decode((const char *)data, size, &doc, &err) != MICS_OK)
        return 0;
    if (mics_ckpt_table_read(doc, &table, &err) == MICS_OK)
        check_table(&table);
    else
        must(err.text[0] != '\0' && table.units == NULL);
    mics_ckpt_table_free(&table);
    json_decref(doc);
    return 0;
}
