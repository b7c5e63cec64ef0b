/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - how every function of the library reports failure.
 *
 * Zero is success, a negative status tells the kind. The first function that knows the cause writes
 * the text; its callers only prefix context.
 */
#ifndef MICS_BASE_ERR_H
#define MICS_BASE_ERR_H

#include <stdarg.h>

enum mics_status {
    MICS_OK = 0,
    MICS_ERR_NOMEM = -1,       /* memory, host or device */
    MICS_ERR_IO = -2,          /* files, pipes, disks */
    MICS_ERR_FORMAT = -3,      /* malformed or mismatched input */
    MICS_ERR_ARG = -4,         /* an invalid value from the caller */
    MICS_ERR_UNSUPPORTED = -5, /* valid, but not available here */
    MICS_ERR_DEVICE = -6,
    MICS_ERR_COMM = -7,
    MICS_ERR_INFEASIBLE = -8, /* a valid question without an answer */
    MICS_ERR_PEER = -9,       /* another rank failed; its own message says why */
};

/* One line of text without a newline, such as a list of tensors. */
struct mics_err {
    char text[2048];
};

#define MICS_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#ifdef __cplusplus
extern "C" {
#endif

/* Write the text and return `status`, so that callers can `return mics_err_set(...)`. `err` may be
 * NULL here and below. Text that does not fit is truncated; control characters become '?'. */
enum mics_status mics_err_set(struct mics_err *err, enum mics_status status, const char *fmt, ...)
    MICS_PRINTF(3, 4);

/* Write the text followed by ": " and strerror(errno). Returns MICS_ERR_NOMEM for ENOMEM, else
 * MICS_ERR_IO. */
enum mics_status mics_err_set_errno(struct mics_err *err, const char *fmt, ...) MICS_PRINTF(2, 3);

/* Write "out of memory". Returns MICS_ERR_NOMEM. */
enum mics_status mics_err_nomem(struct mics_err *err);

/* Put "<formatted>: " before the present text. */
void mics_err_prefix(struct mics_err *err, const char *fmt, ...) MICS_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
