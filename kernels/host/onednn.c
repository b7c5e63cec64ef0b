/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onednn.c - primitives by shape, and what a thread needs to execute one.
 *
 * Sizes and strides are fixed when a primitive is made: with sizes that are given later, oneDNN 2.6
 * does not use AMX. Its own working memory belongs to the thread that makes a primitive, so each
 * call passes some of ours. oneDNN must compute in the thread that calls it: it asks OpenMP for the
 * number of threads, which is set to 1 for the calling thread.
 */
#include "host/onednn.h"

#include <stdlib.h>
#include <string.h>

static bool is_switch(const char *value, const char *digit)
{
    return value && strcmp(value, digit) == 0;
}

enum mics_status mics_onednn_check_switch(struct mics_err *err)
{
    const char *value = getenv("MICS_ONEDNN");

    if (is_switch(value, "1") && !mics_onednn_is_built())
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "MICS_ONEDNN=1: this build of mics has no oneDNN");
    if (!value || !*value || is_switch(value, "0") || is_switch(value, "1"))
        return MICS_OK;
    return mics_err_set(err, MICS_ERR_ARG, "MICS_ONEDNN: expected 0 or 1, found \"%s\"", value);
}

static enum mics_onednn_asked asked(void)
{
    const char *value = getenv("MICS_ONEDNN");

    if (is_switch(value, "0"))
        return MICS_ONEDNN_NEVER;
    return is_switch(value, "1") ? MICS_ONEDNN_ALWAYS : MICS_ONEDNN_AUTO;
}

#if MICS_HAVE_ONEDNN

#include "host/onednn_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { CAPACITY = 256, KEY = 7, ALIGNMENT = 4096 };

enum operand { A, B, BIAS, OUT, OPERANDS };

struct primitive {
    uint32_t key[KEY];
    uint64_t used_at; /* on the clock of struct mics_onednn */
    unsigned users;   /* threads that execute it */
    struct mics_dnnl_desc descs[OPERANDS];
    dnnl_primitive_desc_t product;
    dnnl_primitive_t handle;
    size_t scratch_bytes;
};

/* What one thread at a time executes with. */
struct slot {
    struct slot *next;
    dnnl_stream_t stream;
    void *scratch;
    size_t scratch_bytes;
};

struct mics_onednn {
    enum mics_onednn_asked asked;
    pthread_mutex_t lock; /* guards all below */
    bool opened;
    struct mics_dnnl dnnl;
    dnnl_engine_t engine;
    struct primitive *primitives[CAPACITY];
    size_t count;
    uint64_t clock; /* counts uses */
    struct slot *idle;
    atomic_bool failed; /* set after status and failure */
    enum mics_status status;
    struct mics_err failure;
};

bool mics_onednn_is_built(void)
{
    return true;
}

bool mics_onednn_can_bf16(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

struct mics_onednn *mics_onednn_new(void)
{
    struct mics_onednn *onednn = calloc(1, sizeof *onednn);

    if (!onednn)
        return NULL;
    onednn->asked = asked();
    pthread_mutex_init(&onednn->lock, NULL);
    return onednn;
}

enum mics_onednn_asked mics_onednn_asked(const struct mics_onednn *onednn)
{
    return onednn->asked;
}

/*
 * The library. It stays open: it has threads' data of its own.
 */

static enum mics_status find_functions(struct mics_dnnl *dnnl, struct mics_err *err)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define FUNCTION(name) {#name, offsetof(struct mics_dnnl, name)},
        MICS_DNNL_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };

    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(dnnl->library, functions[i].name);

        if (!function)
            return mics_err_set(err, MICS_ERR_DEVICE, "oneDNN has no function %s",
                                functions[i].name);
        memcpy((char *)dnnl + functions[i].offset, &function, sizeof function);
    }
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
    /* From the OpenMP library that oneDNN has loaded. */
    void *set_threads = dlsym(dnnl->library, "omp_set_num_threads");

    if (!set_threads)
        return mics_err_set(err, MICS_ERR_DEVICE, "oneDNN is linked with no OpenMP library");
    memcpy(&dnnl->omp_set_num_threads, &set_threads, sizeof set_threads);
#endif
    return MICS_OK;
}

/* The calling thread's products stay in it. */
static void stay_in_thread(const struct mics_dnnl *dnnl)
{
    if (dnnl->omp_set_num_threads)
        dnnl->omp_set_num_threads(1);
}

static const char *reason(dnnl_status_t status)
{
    switch (status) {
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    case dnnl_unimplemented:
        return "not implemented for this shape and processor";
    default:
        return "a runtime error";
    }
}

static enum mics_status open_locked(struct mics_onednn *onednn, struct mics_err *err)
{
    struct mics_dnnl *dnnl = &onednn->dnnl;
    enum mics_status status;

    if (onednn->opened)
        return MICS_OK;
    dnnl->library = dlopen(MICS_ONEDNN_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!dnnl->library)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED, "oneDNN cannot be opened: %s", dlerror());
    status = find_functions(dnnl, err);
    if (status != MICS_OK)
        return status;
    stay_in_thread(dnnl);
    const dnnl_status_t result = dnnl->dnnl_engine_create(&onednn->engine, dnnl_cpu, 0);
    if (result != dnnl_success)
        return mics_err_set(err, MICS_ERR_DEVICE, "oneDNN has no engine for this processor: %s",
                            reason(result));
    onednn->opened = true;
    return MICS_OK;
}

static enum mics_status add_advice(enum mics_status status, struct mics_err *err)
{
    struct mics_err cause;

    if (status == MICS_OK || !err)
        return status;
    cause = *err;
    return mics_err_set(err, status, "%s; MICS_ONEDNN=0 computes without oneDNN", cause.text);
}

static const char *isa_name(int isa)
{
    static const struct {
        int bits;
        const char *name;
    } known[] = {
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx2, "avx2"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((isa & known[i].bits) == known[i].bits)
            return known[i].name;
    return "older than avx2";
}

enum mics_status mics_onednn_describe(struct mics_onednn *onednn, char *text, size_t size,
                                      struct mics_err *err)
{
    pthread_mutex_lock(&onednn->lock);
    const enum mics_status status = add_advice(open_locked(onednn, err), err);

    if (status == MICS_OK) {
        const dnnl_version_t *version = onednn->dnnl.dnnl_version();
        const int isa = (int)onednn->dnnl.dnnl_get_effective_cpu_isa();

        snprintf(text, size, "oneDNN %d.%d.%d, %s (%#x)", version->major, version->minor,
                 version->patch, isa_name(isa), (unsigned)isa);
    }
    pthread_mutex_unlock(&onednn->lock);
    return status;
}

/*
 * Primitives.
 */

static void make_key(const struct mics_args_matmul *args, uint32_t key[KEY])
{
    key[0] = args->m;
    key[1] = args->n;
    key[2] = args->k;
    key[3] = args->lda;
    key[4] = args->ldb;
    key[5] = args->ldout;
    key[6] = (args->trans_a ? 1u : 0u) | (args->trans_b ? 2u : 0u) | (args->add ? 4u : 0u) |
             (args->bias ? 8u : 0u) | (args->dtype == MICS_BF16 ? 16u : 0u) |
             (args->out_dtype == MICS_BF16 ? 32u : 0u);
}

static const char *type_name(enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? "bf16" : "fp32";
}

static dnnl_data_type_t type_of(enum mics_dtype dtype)
{
    return dtype == MICS_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_status_t describe_operands(const struct mics_dnnl *dnnl,
                                       const struct mics_args_matmul *args,
                                       struct mics_dnnl_desc *descs)
{
    const struct {
        enum operand operand;
        dnnl_dims_t sizes, steps;
        enum mics_dtype dtype;
    } operands[] = {
        {A,
         {args->m, args->k},
         {args->trans_a ? 1 : args->lda, args->trans_a ? args->lda : 1},
         args->dtype},
        {B,
         {args->k, args->n},
         {args->trans_b ? 1 : args->ldb, args->trans_b ? args->ldb : 1},
         args->dtype},
        {BIAS, {1, args->n}, {args->n, 1}, args->dtype},
        {OUT, {args->m, args->n}, {args->ldout, 1}, args->out_dtype},
    };
    dnnl_status_t status = dnnl_success;

    for (size_t i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = mics_dnnl_desc_init(dnnl, &descs[operands[i].operand], operands[i].sizes,
                                     operands[i].steps, type_of(operands[i].dtype));
    return status;
}

/* The caller destroys *out, also after a failure. */
static dnnl_status_t make_attributes(const struct mics_dnnl *dnnl, bool sum,
                                     dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl->dnnl_primitive_attr_create(out);

    if (status == dnnl_success)
        status = dnnl->dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !sum)
        return status;
    status = dnnl->dnnl_post_ops_create(&ops);
    if (status == dnnl_success)
        status = mics_dnnl_append_sum(dnnl, ops);
    if (status == dnnl_success)
        status = dnnl->dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops)
        dnnl->dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t make_primitive(const struct mics_onednn *onednn,
                                    const struct mics_args_matmul *args, struct primitive *out)
{
    const struct mics_dnnl *dnnl = &onednn->dnnl;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = describe_operands(dnnl, args, out->descs);

    make_key(args, out->key);
    if (status == dnnl_success)
        status = make_attributes(dnnl, args->add, &attr);
    if (status == dnnl_success)
        status = mics_dnnl_matmul(dnnl, onednn->engine, &out->descs[A], &out->descs[B],
                                  args->bias ? &out->descs[BIAS] : NULL, &out->descs[OUT], attr,
                                  &out->product);
    if (status == dnnl_success)
        status = dnnl->dnnl_primitive_create(&out->handle, out->product);
    if (status == dnnl_success)
        out->scratch_bytes = dnnl->dnnl_memory_desc_get_size(
            dnnl->dnnl_primitive_desc_query_md(out->product, dnnl_query_scratchpad_md, 0));
    if (attr)
        dnnl->dnnl_primitive_attr_destroy(attr);
    return status;
}

static void free_primitive(const struct mics_dnnl *dnnl, struct primitive *primitive)
{
    if (primitive->handle)
        dnnl->dnnl_primitive_destroy(primitive->handle);
    if (primitive->product)
        dnnl->dnnl_primitive_desc_destroy(primitive->product);
    for (int i = 0; i < OPERANDS; i++)
        mics_dnnl_desc_fini(dnnl, &primitive->descs[i]);
    free(primitive);
}

/* A place for one more, which is the least recently used one's if all are taken. */
static struct primitive **find_place(struct mics_onednn *onednn)
{
    struct primitive **oldest = NULL;

    if (onednn->count < CAPACITY)
        return &onednn->primitives[onednn->count++];
    for (size_t i = 0; i < CAPACITY; i++) {
        struct primitive **each = &onednn->primitives[i];

        if ((*each)->users == 0 && (!oldest || (*each)->used_at < (*oldest)->used_at))
            oldest = each;
    }
    if (oldest)
        free_primitive(&onednn->dnnl, *oldest);
    return oldest;
}

static enum mics_status add_primitive(struct mics_onednn *onednn,
                                      const struct mics_args_matmul *args, struct primitive **out,
                                      struct mics_err *err)
{
    const int bf16 = dnnl_cpu_isa_avx512_core_bf16;
    const int isa = (int)onednn->dnnl.dnnl_get_effective_cpu_isa();
    struct primitive *primitive, **place;

    if (args->dtype == MICS_BF16 && (isa & bf16) != bf16)
        return mics_err_set(err, MICS_ERR_UNSUPPORTED,
                            "oneDNN does not use AVX512-BF16 here, but %s", isa_name(isa));
    primitive = calloc(1, sizeof *primitive);
    if (!primitive)
        return mics_err_nomem(err);
    const dnnl_status_t result = make_primitive(onednn, args, primitive);
    place = result == dnnl_success ? find_place(onednn) : NULL;
    if (!place) {
        free_primitive(&onednn->dnnl, primitive);
        return mics_err_set(err, MICS_ERR_DEVICE,
                            "oneDNN: a product of %u x %u x %u in %s cannot be prepared: %s",
                            args->m, args->n, args->k, type_name(args->dtype),
                            result == dnnl_success ? "too many threads" : reason(result));
    }
    *place = *out = primitive;
    return MICS_OK;
}

static enum mics_status find_primitive(struct mics_onednn *onednn,
                                       const struct mics_args_matmul *args, struct primitive **out,
                                       struct mics_err *err)
{
    enum mics_status status = open_locked(onednn, err);
    uint32_t key[KEY];

    if (status != MICS_OK)
        return status;
    *out = NULL;
    make_key(args, key);
    stay_in_thread(&onednn->dnnl);
    for (size_t i = 0; i < onednn->count && !*out; i++)
        if (memcmp(onednn->primitives[i]->key, key, sizeof key) == 0)
            *out = onednn->primitives[i];
    if (!*out)
        status = add_primitive(onednn, args, out, err);
    if (status == MICS_OK)
        (*out)->used_at = ++onednn->clock;
    return status;
}

/*
 * Slots.
 */

static void free_slot(const struct mics_dnnl *dnnl, struct slot *slot)
{
    if (slot->stream)
        dnnl->dnnl_stream_destroy(slot->stream);
    free(slot->scratch);
    free(slot);
}

/* Written, so that no step faults on it later. */
static bool grow_scratch(struct slot *slot, size_t bytes)
{
    if (slot->scratch_bytes >= bytes)
        return true;
    free(slot->scratch);
    slot->scratch_bytes = 0;
    if (posix_memalign(&slot->scratch, ALIGNMENT, bytes) != 0) {
        slot->scratch = NULL;
        return false;
    }
    memset(slot->scratch, 0, bytes);
    slot->scratch_bytes = bytes;
    return true;
}

/* An idle one, or a new one, for the caller to put back. NULL: out of memory. */
static struct slot *take_slot(struct mics_onednn *onednn, size_t scratch_bytes)
{
    struct slot *slot = onednn->idle;

    if (slot)
        onednn->idle = slot->next;
    else if (!(slot = calloc(1, sizeof *slot)))
        return NULL;
    if ((slot->stream ||
         onednn->dnnl.dnnl_stream_create(&slot->stream, onednn->engine,
                                         dnnl_stream_default_flags) == dnnl_success) &&
        grow_scratch(slot, scratch_bytes))
        return slot;
    free_slot(&onednn->dnnl, slot);
    return NULL;
}

static void put_back(struct mics_onednn *onednn, struct slot *slot)
{
    slot->next = onednn->idle;
    onednn->idle = slot;
}

static enum mics_status make_slots(struct mics_onednn *onednn, size_t scratch_bytes, unsigned count,
                                   struct mics_err *err)
{
    struct slot *taken = NULL;
    bool failed = false;

    for (unsigned i = 0; i < count && !failed; i++) {
        struct slot *slot = take_slot(onednn, scratch_bytes);

        failed = !slot;
        if (slot)
            slot->next = taken, taken = slot;
    }
    while (taken) {
        struct slot *next = taken->next;

        put_back(onednn, taken);
        taken = next;
    }
    return failed ? mics_err_nomem(err) : MICS_OK;
}

enum mics_status mics_onednn_prepare(struct mics_onednn *onednn,
                                     const struct mics_args_matmul *args, unsigned threads,
                                     struct mics_err *err)
{
    struct primitive *primitive;

    pthread_mutex_lock(&onednn->lock);
    enum mics_status status = find_primitive(onednn, args, &primitive, err);
    if (status == MICS_OK)
        status = make_slots(onednn, primitive->scratch_bytes, threads, err);
    pthread_mutex_unlock(&onednn->lock);
    return add_advice(status, err);
}

/*
 * A product.
 */

static dnnl_status_t execute(const struct mics_onednn *onednn, const struct primitive *primitive,
                             const struct slot *slot, const struct mics_args_matmul *args)
{
    enum { SCRATCH = OPERANDS, ALL };
    const struct mics_dnnl *dnnl = &onednn->dnnl;
    const void *const data[OPERANDS] = {
        [A] = args->a, [B] = args->b, [BIAS] = args->bias, [OUT] = args->out};
    static const int names[ALL] = {[A] = DNNL_ARG_SRC,
                                   [B] = DNNL_ARG_WEIGHTS,
                                   [BIAS] = DNNL_ARG_BIAS,
                                   [OUT] = DNNL_ARG_DST,
                                   [SCRATCH] = DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t list[ALL];
    dnnl_status_t status = dnnl_success;
    int count = 0;

    for (int i = 0; i < ALL && status == dnnl_success; i++) {
        list[count] = (dnnl_exec_arg_t){.arg = names[i]};
        if (i == SCRATCH && primitive->scratch_bytes > 0)
            status = dnnl->dnnl_memory_create(
                &list[count].memory,
                dnnl->dnnl_primitive_desc_query_md(primitive->product, dnnl_query_scratchpad_md, 0),
                onednn->engine, slot->scratch);
        else if (i < OPERANDS && data[i])
            status =
                dnnl->dnnl_memory_create(&list[count].memory, MICS_DNNL_DESC(&primitive->descs[i]),
                                         onednn->engine, (void *)data[i]);
        count += status == dnnl_success && list[count].memory;
    }
    if (status == dnnl_success)
        status = dnnl->dnnl_primitive_execute(primitive->handle, slot->stream, count, list);
    for (int i = 0; i < count; i++)
        dnnl->dnnl_memory_destroy(list[i].memory);
    return status;
}

static void fail_locked(struct mics_onednn *onednn, enum mics_status status,
                        const struct mics_err *err)
{
    if (atomic_load(&onednn->failed))
        return;
    onednn->status = status;
    onednn->failure = *err;
    atomic_store(&onednn->failed, true);
}

bool mics_onednn_multiply(struct mics_onednn *onednn, const struct mics_args_matmul *args)
{
    struct primitive *primitive = NULL;
    struct slot *slot = NULL;
    struct mics_err err;

    pthread_mutex_lock(&onednn->lock);
    enum mics_status status = find_primitive(onednn, args, &primitive, &err);
    if (status == MICS_OK && !(slot = take_slot(onednn, primitive->scratch_bytes)))
        status = mics_err_nomem(&err);
    if (status == MICS_OK)
        primitive->users++;
    pthread_mutex_unlock(&onednn->lock);
    if (status == MICS_OK) {
        const dnnl_status_t result = execute(onednn, primitive, slot, args);

        if (result != dnnl_success)
            status = mics_err_set(&err, MICS_ERR_DEVICE,
                                  "oneDNN: a product of %u x %u x %u in %s failed: %s", args->m,
                                  args->n, args->k, type_name(args->dtype), reason(result));
    }
    pthread_mutex_lock(&onednn->lock);
    if (slot) {
        primitive->users--;
        put_back(onednn, slot);
    }
    if (status != MICS_OK)
        fail_locked(onednn, add_advice(status, &err), &err);
    pthread_mutex_unlock(&onednn->lock);
    return status == MICS_OK;
}

enum mics_status mics_onednn_failure(struct mics_onednn *onednn, struct mics_err *err)
{
    if (!atomic_load(&onednn->failed))
        return MICS_OK;
    return mics_err_set(err, onednn->status, "%s", onednn->failure.text);
}

void mics_onednn_free(struct mics_onednn *onednn)
{
    if (!onednn)
        return;
    for (size_t i = 0; i < onednn->count; i++)
        free_primitive(&onednn->dnnl, onednn->primitives[i]);
    while (onednn->idle) {
        struct slot *slot = onednn->idle;

        onednn->idle = slot->next;
        free_slot(&onednn->dnnl, slot);
    }
    if (onednn->opened)
        onednn->dnnl.dnnl_engine_destroy(onednn->engine);
    pthread_mutex_destroy(&onednn->lock);
    free(onednn);
}

#else

struct mics_onednn {
    enum mics_onednn_asked asked;
};

bool mics_onednn_is_built(void)
{
    return false;
}

struct mics_onednn *mics_onednn_new(void)
{
    struct mics_onednn *onednn = calloc(1, sizeof *onednn);

    if (onednn)
        onednn->asked = asked();
    return onednn;
}

void mics_onednn_free(struct mics_onednn *onednn)
{
    free(onednn);
}

bool mics_onednn_can_bf16(void)
{
    return false;
}

enum mics_onednn_asked mics_onednn_asked(const struct mics_onednn *onednn)
{
    return onednn->asked;
}

static enum mics_status refuse(struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_UNSUPPORTED, "this build of mics has no oneDNN");
}

enum mics_status mics_onednn_describe(struct mics_onednn *onednn, char *text, size_t size,
                                      struct mics_err *err)
{
    (void)onednn, (void)text, (void)size;
    return refuse(err);
}

enum mics_status mics_onednn_prepare(struct mics_onednn *onednn,
                                     const struct mics_args_matmul *args, unsigned threads,
                                     struct mics_err *err)
{
    (void)onednn, (void)args, (void)threads;
    return refuse(err);
}

/* Nothing chooses oneDNN in such a build: mics_onednn_check_switch() refuses MICS_ONEDNN=1. */
bool mics_onednn_multiply(struct mics_onednn *onednn, const struct mics_args_matmul *args)
{
    (void)onednn, (void)args;
    return false;
}

enum mics_status mics_onednn_failure(struct mics_onednn *onednn, struct mics_err *err)
{
    (void)onednn, (void)err;
    return MICS_OK;
}

#endif
