/* SPDX-License-Identifier: Apache-2.0 */
#include "host/blas.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifndef MICS_OPENBLAS_SONAME
#define MICS_OPENBLAS_SONAME "libopenblas.so.0"
#endif

static struct mics_blas blas;
static enum mics_status opened;
static struct mics_err failure;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
    {"cblas_sgemm", offsetof(struct mics_blas, sgemm)},
    {"openblas_get_num_threads", offsetof(struct mics_blas, get_num_threads)},
    {"openblas_set_num_threads", offsetof(struct mics_blas, set_num_threads)},
    {"openblas_get_corename", offsetof(struct mics_blas, get_corename)},
};

/* Functions are looked up as the linker would: those of a library that was loaded before, such as a
 * profiler's or another build of OpenBLAS (LD_PRELOAD), come first. */
static void open_library(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* read when it is loaded */
    if (!dlopen(MICS_OPENBLAS_SONAME, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE)) {
        opened = mics_err_set(&failure, MICS_ERR_UNSUPPORTED, "OpenBLAS cannot be opened: %s",
                              dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(RTLD_DEFAULT, functions[i].name);

        if (!function) {
            opened =
                mics_err_set(&failure, MICS_ERR_UNSUPPORTED, "%s: no function %s: is it OpenBLAS?",
                             MICS_OPENBLAS_SONAME, functions[i].name);
            return;
        }
        memcpy((char *)&blas + functions[i].offset, &function, sizeof function);
    }
}

enum mics_status mics_blas_open(struct mics_err *err)
{
    pthread_once(&once, open_library);
    if (opened != MICS_OK && err)
        *err = failure;
    return opened;
}

const struct mics_blas *mics_blas(void)
{
    const enum mics_status status = mics_blas_open(NULL);

    assert(status == MICS_OK);
    (void)status;
    return &blas;
}
