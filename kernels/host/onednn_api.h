/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onednn_api.h - the part of oneDNN's C interface that onednn.c uses, of versions 2 and 3.
 *
 * The library is opened at run time: it is large, and only products in bf16 need it. All that
 * differs between the versions is in this file. The Makefile compiles it alone to see whether the
 * installed headers will do.
 */
#ifndef MICS_KERNELS_HOST_ONEDNN_API_H
#define MICS_KERNELS_HOST_ONEDNN_API_H

#include <dnnl.h>

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "oneDNN: only versions 2 and 3 are supported; ONEDNN=0 builds without it"
#elif DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR < 6
#error "oneDNN: versions before 2.6 are not supported; ONEDNN=0 builds without it"
#elif DNNL_CPU_RUNTIME != DNNL_RUNTIME_OMP && DNNL_CPU_RUNTIME != DNNL_RUNTIME_SEQ
#error "oneDNN: only its OpenMP and sequential builds are supported; ONEDNN=0 builds without it"
#endif

/* What the library is opened by, as it was when mics was built. */
#ifndef MICS_ONEDNN_SONAME
#if DNNL_VERSION_MAJOR == 2
#define MICS_ONEDNN_SONAME "libdnnl.so.2"
#else
#define MICS_ONEDNN_SONAME "libdnnl.so.3"
#endif
#endif

#if DNNL_VERSION_MAJOR == 2
#define MICS_DNNL_OF_VERSION(F)                                                                    \
    F(dnnl_memory_desc_init_by_strides) F(dnnl_matmul_desc_init) F(dnnl_primitive_desc_create)
#else
#define MICS_DNNL_OF_VERSION(F)                                                                    \
    F(dnnl_memory_desc_create_with_strides)                                                        \
    F(dnnl_memory_desc_destroy) F(dnnl_matmul_primitive_desc_create)
#endif

#define MICS_DNNL_FUNCTIONS(F)                                                                     \
    F(dnnl_version)                                                                                \
    F(dnnl_get_effective_cpu_isa)                                                                  \
    F(dnnl_engine_create)                                                                          \
    F(dnnl_engine_destroy)                                                                         \
    F(dnnl_stream_create)                                                                          \
    F(dnnl_stream_destroy)                                                                         \
    F(dnnl_memory_create)                                                                          \
    F(dnnl_memory_destroy)                                                                         \
    F(dnnl_memory_desc_get_size)                                                                   \
    F(dnnl_post_ops_create)                                                                        \
    F(dnnl_post_ops_destroy)                                                                       \
    F(dnnl_post_ops_append_sum)                                                                    \
    F(dnnl_primitive_attr_create)                                                                  \
    F(dnnl_primitive_attr_destroy)                                                                 \
    F(dnnl_primitive_attr_set_post_ops)                                                            \
    F(dnnl_primitive_attr_set_scratchpad_mode)                                                     \
    F(dnnl_primitive_desc_destroy)                                                                 \
    F(dnnl_primitive_desc_query_md)                                                                \
    F(dnnl_primitive_create)                                                                       \
    F(dnnl_primitive_destroy)                                                                      \
    F(dnnl_primitive_execute)                                                                      \
    MICS_DNNL_OF_VERSION(F)

#define MICS_DNNL_MEMBER(name) __typeof__(&name) name;
struct mics_dnnl {
    void *library;
    void (*omp_set_num_threads)(int count); /* NULL: a sequential build */
    MICS_DNNL_FUNCTIONS(MICS_DNNL_MEMBER)
};
#undef MICS_DNNL_MEMBER

/* The type, sizes and strides of a matrix or vector. */
#if DNNL_VERSION_MAJOR == 2
struct mics_dnnl_desc {
    dnnl_memory_desc_t of;
};
#define MICS_DNNL_DESC(desc) (&(desc)->of)
#else
struct mics_dnnl_desc {
    dnnl_memory_desc_t of;
};
#define MICS_DNNL_DESC(desc) ((desc)->of)
#endif

/* Describe a matrix of rows x columns; element [i][j] is at i * row_step + j * column_step. */
static inline dnnl_status_t mics_dnnl_desc_init(const struct mics_dnnl *dnnl,
                                                struct mics_dnnl_desc *desc,
                                                const dnnl_dims_t sizes, const dnnl_dims_t steps,
                                                dnnl_data_type_t type)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl->dnnl_memory_desc_init_by_strides(&desc->of, 2, sizes, type, steps);
#else
    return dnnl->dnnl_memory_desc_create_with_strides(&desc->of, 2, sizes, type, steps);
#endif
}

/* A zeroed descriptor owns nothing. */
static inline void mics_dnnl_desc_fini(const struct mics_dnnl *dnnl, struct mics_dnnl_desc *desc)
{
#if DNNL_VERSION_MAJOR == 2
    (void)dnnl, (void)desc;
#else
    if (desc->of)
        dnnl->dnnl_memory_desc_destroy(desc->of);
    desc->of = NULL;
#endif
}

/* Sum what `out` has to what is computed. */
static inline dnnl_status_t mics_dnnl_append_sum(const struct mics_dnnl *dnnl, dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl->dnnl_post_ops_append_sum(ops, 1.0f);
#else
    return dnnl->dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#endif
}

/* out = a b (+ bias, unless it is NULL). */
static inline dnnl_status_t
mics_dnnl_matmul(const struct mics_dnnl *dnnl, dnnl_engine_t engine, const struct mics_dnnl_desc *a,
                 const struct mics_dnnl_desc *b, const struct mics_dnnl_desc *bias,
                 const struct mics_dnnl_desc *out, const_dnnl_primitive_attr_t attr,
                 dnnl_primitive_desc_t *product)
{
#if DNNL_VERSION_MAJOR == 2
    dnnl_matmul_desc_t operation;
    dnnl_status_t status =
        dnnl->dnnl_matmul_desc_init(&operation, MICS_DNNL_DESC(a), MICS_DNNL_DESC(b),
                                    bias ? MICS_DNNL_DESC(bias) : NULL, MICS_DNNL_DESC(out));

    if (status != dnnl_success)
        return status;
    return dnnl->dnnl_primitive_desc_create(product, &operation, attr, engine, NULL);
#else
    return dnnl->dnnl_matmul_primitive_desc_create(
        product, engine, MICS_DNNL_DESC(a), MICS_DNNL_DESC(b), bias ? MICS_DNNL_DESC(bias) : NULL,
        MICS_DNNL_DESC(out), attr);
#endif
}

#endif
