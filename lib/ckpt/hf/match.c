/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - a model's tensors by Hugging Face's names.
 *
 * Every tensor lies in the model as in the file: GPT-2's matrices [in, out], Llama's [out, in]. The
 * hub has files with and without the family's prefix; old ones hold buffers (the attention's masks,
 * the rotary frequencies), and some of a tied model the head, a copy of the embedding.
 */
#include "ckpt/hf/hf.h"

#include "base/num.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void format_shape(const uint64_t *shape, uint32_t rank, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "[");

    for (uint32_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%llu", i ? ", " : "",
                               (unsigned long long)shape[i]);
    if (at < size)
        snprintf(buf + at, size - at, "]");
}

/* Fill `names`: names without prefixes to indices in hf->tensors. */
static enum mics_status collect(const struct mics_hf *hf, const struct mics_family *family,
                                json_t *names, struct mics_diagnostics *diagnostics,
                                struct mics_err *err)
{
    for (size_t i = 0; i < hf->tensor_count; i++) {
        const char *name = mics_family_model_name(family, hf->tensors[i].is->name);

        if (mics_family_is_buffer(family, name))
            continue;
        if (json_object_get(names, name))
            mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' occurs twice",
                                 hf->files[hf->tensors[i].file].name, hf->tensors[i].is->name);
        if (json_object_set_new(names, name, json_integer((json_int_t)i)) != 0)
            return mics_err_nomem(err);
    }
    return MICS_OK;
}

static bool check_tensor(const struct mics_hf *hf, const struct mics_hf_tensor *tensor,
                         const struct mics_tensor *want, struct mics_diagnostics *diagnostics)
{
    const struct mics_safetensor *is = tensor->is;
    char have[128], need[128];

    if (is->rank != want->rank || memcmp(is->shape, want->shape, is->rank * sizeof *is->shape)) {
        format_shape(is->shape, is->rank, have, sizeof have);
        format_shape(want->shape, want->rank, need, sizeof need);
        mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' is %s, the model's is %s",
                             hf->files[tensor->file].name, is->name, have, need);
        return false;
    }
    if (mics_storage_dtype_of_name(is->dtype) == MICS_STORAGE_RAW) {
        mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' is of type %s, not F32, F16 or BF16",
                             hf->files[tensor->file].name, is->name, is->dtype);
        return false;
    }
    return true;
}

static void add_extent(struct mics_hf *hf, const struct mics_hf_tensor *tensor, uint32_t space,
                       uint64_t start, uint64_t count)
{
    hf->store.table[hf->store.table_count++] = (struct mics_extent){
        .name = tensor->is->name,
        .space = space,
        .file = tensor->file,
        .dtype = mics_storage_dtype_of_name(tensor->is->dtype),
        .start = start,
        .count = count,
        .offset = hf->files[tensor->file].header.data_offset + tensor->is->begin};
}

static void match_unit(struct mics_hf *hf, const struct mics_model *model, uint32_t index,
                       json_t *names, struct mics_diagnostics *diagnostics)
{
    const struct mics_unit *unit = &model->units[index];

    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *want = &unit->tensors[i];
        const json_t *place = json_object_get(names, want->name);
        const struct mics_hf_tensor *tensor =
            place ? &hf->tensors[json_integer_value(place)] : NULL;

        if (!tensor)
            mics_diagnostics_add(diagnostics, "tensor '%s' of the model is missing", want->name);
        else if (check_tensor(hf, tensor, want, diagnostics))
            add_extent(hf, tensor, mics_space_of(index, 0), want->offset, want->count);
        json_object_del(names, want->name);
    }
}

/* A copy of a tied head must have the numbers of the embedding. For the comparison the head is a
 * space of its own, behind all others. */
static enum mics_status check_head(struct mics_hf *hf, const struct mics_hf_tensor *head,
                                   const struct mics_model *model,
                                   struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const char *const embedding = model->family->embed_head[MICS_EMBED_HEAD_EMBEDDING];
    const struct mics_tensor *wte = NULL;
    const uint32_t head_space = model->unit_count * MICS_CKPT_STATES;
    float *a = malloc(4 * MICS_STORE_CHUNK * sizeof *a), *b = a + MICS_STORE_CHUNK;
    enum mics_status status = a ? MICS_OK : mics_err_nomem(err);
    bool same = true;

    for (uint32_t i = 0; i < model->units[0].tensor_count; i++)
        if (strcmp(model->units[0].tensors[i].name, embedding) == 0)
            wte = &model->units[0].tensors[i];
    if (status == MICS_OK && wte && check_tensor(hf, head, wte, diagnostics)) {
        add_extent(hf, head, head_space, 0, wte->count);
        mics_store_sort(&hf->store);
        for (uint64_t at = 0; status == MICS_OK && same && at < wte->count;) {
            const size_t count = (size_t)mics_min_u64(wte->count - at, MICS_STORE_CHUNK);

            status = mics_store_read(&hf->store, mics_space_of(0, 0), wte->offset + at, count,
                                     MICS_STORAGE_F32, a, b + MICS_STORE_CHUNK, err);
            if (status == MICS_OK)
                status = mics_store_read(&hf->store, head_space, at, count, MICS_STORAGE_F32, b,
                                         b + MICS_STORE_CHUNK, err);
            same = status == MICS_OK && memcmp(a, b, count * sizeof *a) == 0;
            at += count;
        }
        if (status == MICS_OK && !same)
            mics_diagnostics_add(diagnostics,
                                 "%s: tensor '%s' is not the embedding, but the head is tied to it",
                                 hf->files[head->file].name, head->is->name);
        hf->store.table_count--; /* the head is the last extent */
    }
    free(a);
    return status;
}

static enum mics_status match_all(struct mics_hf *hf, const struct mics_model *model, json_t *names,
                                  struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const uint64_t before = diagnostics->count;
    const char *name;
    json_t *place;
    enum mics_status status = collect(hf, model->family, names, diagnostics, err);

    if (status != MICS_OK)
        return status;
    const char *const head_name = model->family->embed_head[MICS_EMBED_HEAD_HEAD];
    const json_t *head = model->config.untied ? NULL : json_object_get(names, head_name);
    const size_t head_at = head ? (size_t)json_integer_value(head) : 0;

    for (uint32_t i = 0; i < model->unit_count; i++)
        match_unit(hf, model, i, names, diagnostics);
    if (head)
        json_object_del(names, head_name);
    json_object_foreach(names, name, place)
    {
        const struct mics_hf_tensor *tensor = &hf->tensors[json_integer_value(place)];

        mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' does not belong to the model",
                             hf->files[tensor->file].name, tensor->is->name);
    }
    if (head && diagnostics->count == before)
        status = check_head(hf, &hf->tensors[head_at], model, diagnostics, err);
    return status;
}

enum mics_status mics_hf_match(struct mics_hf *hf, const struct mics_model *model,
                               struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const uint64_t before = diagnostics->count;
    json_t *names = json_object();
    size_t tensors = 1;
    enum mics_status status;

    for (uint32_t i = 0; i < model->unit_count; i++)
        tensors += model->units[i].tensor_count;
    free(hf->store.table);
    hf->store.table_count = 0;
    hf->store.table = calloc(tensors, sizeof *hf->store.table);
    status = names && hf->store.table ? match_all(hf, model, names, diagnostics, err)
                                      : mics_err_nomem(err);
    json_decref(names);
    if (status == MICS_OK)
        status = mics_diagnostics_status(diagnostics, before,
                                         hf->folder[0] ? hf->folder : hf->files[0].name, err);
    mics_store_sort(&hf->store);
    return status;
}

enum mics_status mics_hf_list_tensors(struct mics_hf *hf, struct mics_err *err)
{
    free(hf->store.table);
    hf->store.table_count = 0;
    hf->store.table = calloc(hf->tensor_count + 1, sizeof *hf->store.table);
    if (!hf->store.table)
        return mics_err_nomem(err);
    for (size_t i = 0; i < hf->tensor_count; i++) {
        const struct mics_safetensor *is = hf->tensors[i].is;

        add_extent(hf, &hf->tensors[i], (uint32_t)i, 0,
                   (is->end - is->begin) /
                       mics_storage_dtype_bytes(mics_storage_dtype_of_name(is->dtype)));
    }
    return MICS_OK;
}
