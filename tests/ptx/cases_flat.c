/* SPDX-License-Identifier: Apache-2.0 */
/* cases_flat.c - operations on long arrays: casts, sums, GELU, norms. */
#include "record.h"

/* Beyond one block's pieces, with a rest; `shift` 1: not aligned, one element at a time. */
static const struct {
    uint32_t count;
    unsigned shift;
} sizes[] = {{9001, 0}, {1031, 1}};

static void add_cases(struct recorder *r, enum mics_dtype dtype)
{
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        const uint32_t count = sizes[s].count;
        struct tensor a, b, out;

        record_begin(r, 0, "add_%s_%u", record_dtype_name(dtype), count);
        a = record_random(r, "a", dtype, count, 3, 3, sizes[s].shift);
        b = record_random(r, "b", dtype, count, 3, 4, sizes[s].shift);
        out = record_output(r, "out", dtype, count, sizes[s].shift);
        record_ran(r, mics_cuda_add(&r->at, &(struct mics_op_add){out.device, a.device, b.device,
                                                                  count, dtype}));
        mics_host_add(r->pool,
                      &(struct mics_op_add){out.values, a.values, b.values, count, MICS_F32});
        record_expect(r, &out, 0);
        record_end(r);
    }
}

void record_flat_cases(struct recorder *r)
{
    for (size_t d = 0; d < LENGTH(record_dtypes); d++)
        add_cases(r, record_dtypes[d]);
}
