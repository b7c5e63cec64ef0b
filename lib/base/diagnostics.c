/* SPDX-License-Identifier: Apache-2.0 */
#include "base/diagnostics.h"

#include <stdio.h>

void mics_problem(struct mics_problems *problems, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    problems->count++;
    if (problems->tell)
        problems->tell(problems->context, text);
}

enum mics_status mics_problems_end(const struct mics_problems *problems, uint64_t before,
                                   const char *what, struct mics_err *err)
{
    const uint64_t found = problems->count - before;

    if (found == 0)
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_FORMAT, "%s: %llu problem%s", what, (unsigned long long)found,
                        found == 1 ? "" : "s");
}
