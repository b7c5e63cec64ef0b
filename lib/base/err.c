/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum mics_status mics_err_set(struct mics_err *err, enum mics_status status, const char *fmt, ...)
{
    if (err) {
        va_list args;

        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        mics_utf8_make_line(err->text); /* whatever untrusted input it quotes */
    }
    return status;
}

enum mics_status mics_err_set_errno(struct mics_err *err, const char *fmt, ...)
{
    const int code = errno;

    if (err) {
        va_list args;

        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(code));
        mics_utf8_make_line(err->text);
    }
    return code == ENOMEM ? MICS_ERR_NOMEM : MICS_ERR_IO;
}

enum mics_status mics_err_nomem(struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_NOMEM, "out of memory");
}

void mics_err_prefix(struct mics_err *err, const char *fmt, ...)
{
    if (!err)
        return;

    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);

    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    mics_utf8_make_line(err->text);
}
