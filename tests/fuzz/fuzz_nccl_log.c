/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_nccl_log.c - libFuzzer target for output of nccl-tests, as text and as JSON.
 *
 * Rows that are accepted have a size, ranks and a time, and fit together.
 *
 * sources: lib/base lib/doc lib/measure/nccl_log.c lib/measure/result.c
 */
#include "measure/nccl_log.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As in request.c, which needs all of plans. */
const char *mics_bench_op_name(enum mics_bench_op op)
{
    return op == MICS_BENCH_ALL_REDUCE ? "all_reduce" : "gather";
}

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mics_nccl_hints hints = {.nodes = 1, .per_node = 8, .ops = 15};
    struct mics_err err = {.text = ""};
    struct mics_nccl_log log;

    if (mics_nccl_log_parse("log", (const char *)data, size, &hints, &log, &err) != MICS_OK) {
        must(err.text[0] != '\0' && log.count == 0);
        return 0;
    }
    for (size_t i = 0; i < log.count; i++)
        for (size_t k = 0; k < log.runs[i].result.count; k++) {
            const struct mics_bench_row *row = &log.runs[i].result.rows[k];

            must(row->bytes > 0 && row->time_s > 0 && row->nodes * row->per_node > 1);
        }
    mics_nccl_log_fini(&log);
    return 0;
}
