/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas.h - OpenBLAS, opened when the first device is, and called single-threaded.
 *
 * A program that is linked with OpenBLAS starts one thread for each core before main(), each with a
 * buffer of 128 MiB of address space. Many ranks on a large node exceed the limit of processes in
 * this way, and a thread for which there is no memory asks for it for ever. Opened with
 * OPENBLAS_NUM_THREADS=1 it starts none.
 */
#ifndef MICS_HOST_BLAS_H
#define MICS_HOST_BLAS_H

#include "base/err.h"

#include <cblas.h>
#include <stdint.h>

/* Address space that each thread maps for panels at its first product, once for all. */
#define MICS_BLAS_BUFFER_BYTES ((uint64_t)128 << 20)

struct mics_blas {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_get_num_threads) *get_num_threads;
    __typeof__(openblas_set_num_threads) *set_num_threads;
    __typeof__(openblas_get_corename) *get_corename;
};

/* Open the library, once for the process; any thread may call it, the first time while no other
 * thread reads the environment. MICS_ERR_UNSUPPORTED: it cannot be opened, with the reason. */
enum mics_status mics_blas_open(struct mics_err *err);

/* Its functions, opened if it is not yet. Opening it must not fail: a device checks it first. */
const struct mics_blas *mics_blas(void);

#endif
