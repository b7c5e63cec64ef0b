/* SPDX-License-Identifier: Apache-2.0 */
#include "base/diagnostics.h"

#include <stdio.h>

void mics_diagnostics_add(struct mics_diagnostics *diagnostics, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (diagnostics->count++ == 0) {
        snprintf(diagnostics->first, sizeof diagnostics->first, "%s", text);
        return;
    }
    if (!diagnostics->report)
        return;
    if (diagnostics->count == 2)
        diagnostics->report(diagnostics->context, diagnostics->first);
    diagnostics->report(diagnostics->context, text);
}

enum mics_status mics_diagnostics_status(const struct mics_diagnostics *diagnostics,
                                         uint64_t before, const char *what, struct mics_err *err)
{
    const uint64_t found = diagnostics->count - before;

    if (found == 0)
        return MICS_OK;
    if (diagnostics->count == 1)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s", diagnostics->first);
    if (!diagnostics->report)
        return mics_err_set(err, MICS_ERR_FORMAT, "%s (the first of %llu problems)",
                            diagnostics->first, (unsigned long long)diagnostics->count);
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: %llu problem%s", what, (unsigned long long)found,
                        found == 1 ? "" : "s");
}
