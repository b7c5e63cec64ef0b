/* SPDX-License-Identifier: Apache-2.0 */
/* cli_job.c - messages and the end of programs that measure on many ranks. */
#include "base/clock.h"
#include "cli/cli_internal.h"
#include "comm/comm.h"

#define LOCAL_FAILURE_DELAY_S 0.5

int cli_fail_job(struct mics_comm *comm, enum mics_status status, const struct mics_err *err)
{
    const bool on_all = status == MICS_ERR_INFEASIBLE;
    int code;

    if (comm->rank != 0 && !on_all) {
        mics_sleep_s(LOCAL_FAILURE_DELAY_S);
        cli_enable_reporting();
    }
    code = cli_report(status, err);
    if (comm->size > 1 && !on_all)
        mics_comm_abort(comm, code);
    return code;
}

int cli_fail_start(enum mics_status status, const struct mics_err *err)
{
    struct mics_err text = *err;

    if (cli_rank() != 0)
        mics_sleep_s(LOCAL_FAILURE_DELAY_S);
    if (cli_rank() != 0 && status == MICS_ERR_NOMEM) {
        cli_enable_reporting();
        mics_err_prefix(&text, "rank %d", cli_rank());
    }
    return cli_report(status, &text);
}

static const char *text_of(const json_t *entry, const char *key)
{
    return json_string_value(json_object_get(entry, key));
}

void cli_report_outliers(const json_t *outliers)
{
    for (size_t i = 0; i < json_array_size(outliers); i++) {
        const json_t *entry = json_array_get(outliers, i);

        cli_error("%s: %s of %s is %.1f times slower than the median", text_of(entry, "host"),
                  text_of(entry, "what"), text_of(entry, "where"),
                  json_real_value(json_object_get(entry, "times_slower")));
    }
}
