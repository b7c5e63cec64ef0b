/* SPDX-License-Identifier: Apache-2.0 */
/* search_options.c - the options of a search, with defaults filled in, checked against model and cluster. */
#include "plan/search/entry.h"

#include <string.h>

/* "not a multiple of 6 (...); 12 and 18 are" */
static enum mics_status refuse_batch(uint64_t batch, uint64_t unit, const char *what,
                                     struct mics_err *err)
{
    uint64_t below = batch / unit * unit;

    if (below == 0)
        return mics_err_set(
            err, MICS_ERR_ARG, "global batch %llu: not a multiple of %s, %llu; the least is %llu",
            (unsigned long long)batch, what, (unsigned long long)unit, (unsigned long long)unit);
    return mics_err_set(err, MICS_ERR_ARG,
                        "global batch %llu: not a multiple of %s, %llu; %llu and %llu are",
                        (unsigned long long)batch, what, (unsigned long long)unit,
                        (unsigned long long)below, (unsigned long long)(below + unit));
}

enum mics_status mics_search_fill_in(struct mics_search *search, struct mics_err *err)
{
    struct mics_search_options *options = &search->options;
    uint64_t n = (uint64_t)search->topology->nodes * search->topology->per_node;
    uint64_t unit = n * (options->micro_batch ? options->micro_batch : 1);
    enum mics_status status;

    if (!options->strategy)
        options->strategy = "auto";
    if (options->seq == 0)
        options->seq = mics_model_max_seq(search->model);
    status = mics_model_check_seq(search->model, options->seq, err);
    if (status != MICS_OK)
        return status;
    if (options->global_batch == 0)
        options->global_batch = unit;
    if (options->global_batch % unit != 0)
        return refuse_batch(options->global_batch, unit,
                            options->micro_batch ? "ranks times micro-batch" : "the ranks", err);
    if (options->dtype == MICS_AUTO)
        options->dtype = strcmp(search->topology->flops_dtype, "bf16") == 0 ? MICS_BF16 : MICS_F32;
    if (options->grad_dtype == MICS_AUTO)
        options->grad_dtype = options->dtype;
    if (options->memory_limit == 0)
        options->memory_limit = search->topology->memory_bytes;
    return MICS_OK;
}
