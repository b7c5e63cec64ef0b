/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - a model's tensors by Hugging Face's names.
 *
 * Every tensor lies in the model as in the file: GPT-2's matrices [in, out], Llama's [out, in]. The
 * hub has files with and without the family's prefix; old ones hold buffers (the attention's masks,
 * the rotary frequencies). Files of a tied model have the embedding, or the head in its place, or
 * both. Version 5 of the library may have written the experts of a layer as two tensors, gate and
 * up in one, with names of its own.
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

/* The run of a tensor that contains its number `at`: as far as it goes, at most `count` numbers. */
static struct mics_extent run_at(const struct mics_hf *hf, const struct mics_hf_tensor *tensor,
                                 uint64_t at, uint64_t count)
{
    const enum mics_storage_dtype dtype = mics_storage_dtype_of_name(tensor->header->dtype);
    struct mics_extent run = {.name = tensor->header->name,
                              .file = tensor->file,
                              .dtype = dtype,
                              .count = count,
                              .offset = hf->files[tensor->file].header.data_offset +
                                        tensor->header->begin +
                                        at * mics_storage_dtype_bytes(dtype)};

    uint32_t low = 0, high = tensor->piece_count; /* the first piece that begins after `at` */

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (tensor->pieces[middle].start <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0) {
        const struct mics_extent *piece = &tensor->pieces[low - 1];
        const uint64_t skip = at - piece->start;

        run.file = piece->file;
        run.offset = piece->offset + skip * mics_storage_dtype_bytes(dtype);
        run.count = mics_min_u64(count, piece->count - skip);
    }
    return run;
}

/* dst = numbers [at, at + count) of a tensor as `as`. */
static enum mics_status read_numbers(const struct mics_hf *hf, const struct mics_hf_tensor *tensor,
                                     uint64_t at, uint64_t count, enum mics_storage_dtype as,
                                     void *dst, float *scratch, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint64_t done = 0; status == MICS_OK && done < count;) {
        const struct mics_extent run = run_at(hf, tensor, at + done, count - done);

        status = mics_store_read_run(
            &hf->store, &run, as, (char *)dst + done * mics_storage_dtype_bytes(as), scratch, err);
        done += run.count;
    }
    return status;
}

enum mics_status mics_hf_compare(const struct mics_hf *hf, const struct mics_hf_tensor *one,
                                 const struct mics_hf_tensor *two, bool *same, struct mics_err *err)
{
    const struct mics_hf_tensor *const both[] = {one, two};
    const enum mics_storage_dtype dtypes[] = {mics_storage_dtype_of_name(one->header->dtype),
                                              mics_storage_dtype_of_name(two->header->dtype)};
    const bool raw = dtypes[0] == MICS_STORAGE_RAW;
    const enum mics_storage_dtype as = raw ? MICS_STORAGE_RAW : MICS_STORAGE_F32;
    const uint64_t all =
        (one->header->end - one->header->begin) / mics_storage_dtype_bytes(dtypes[0]);
    float *a = malloc(4 * MICS_STORE_CHUNK * sizeof *a);
    enum mics_status status = a ? MICS_OK : mics_err_nomem(err);

    *same = one->header->rank == two->header->rank && raw == (dtypes[1] == MICS_STORAGE_RAW) &&
            memcmp(one->header->shape, two->header->shape,
                   one->header->rank * sizeof *one->header->shape) == 0 &&
            (!raw || strcmp(one->header->dtype, two->header->dtype) == 0);
    for (uint64_t at = 0; status == MICS_OK && *same && at < all; at += MICS_STORE_CHUNK) {
        const size_t count = (size_t)mics_min_u64(all - at, MICS_STORE_CHUNK);

        for (int i = 0; status == MICS_OK && i < 2; i++)
            status = read_numbers(hf, both[i], at, count, as, a + (size_t)i * MICS_STORE_CHUNK,
                                  a + 2 * MICS_STORE_CHUNK, err);
        *same = status == MICS_OK &&
                memcmp(a, a + MICS_STORE_CHUNK, count * mics_storage_dtype_bytes(as)) == 0;
    }
    free(a);
    return status;
}

static const struct mics_hf_tensor *find(const struct mics_hf *hf, const json_t *names,
                                         const char *name)
{
    const json_t *place = json_object_get(names, name);

    return place ? &hf->tensors[json_integer_value(place)] : NULL;
}

/* Fill `names`: names in the model to indices in hf->tensors, of one state. Where two tensors have
 * one name, they must be equal, and the first is taken. */
static enum mics_status collect(const struct mics_hf *hf, const struct mics_family *family,
                                uint32_t state, json_t *names, struct mics_diagnostics *diagnostics,
                                struct mics_err *err)
{
    char name[512];

    for (size_t i = 0; i < hf->tensor_count; i++) {
        const struct mics_hf_tensor *tensor = &hf->tensors[i], *other;
        bool same = false;

        if (tensor->state != state)
            continue;
        mics_family_model_name(family, tensor->header->name, name, sizeof name);
        if (mics_family_is_buffer(family, name))
            continue;
        other = find(hf, names, name);
        if (!other) {
            if (json_object_set_new(names, name, json_integer((json_int_t)i)) != 0)
                return mics_err_nomem(err);
            continue;
        }
        const enum mics_status status = mics_hf_compare(hf, tensor, other, &same, err);

        if (status != MICS_OK)
            return status;
        if (!same)
            mics_diagnostics_add(
                diagnostics, "%s: tensor '%.128s' occurs twice: '%.128s' is another one",
                hf->store.files[tensor->file].path, tensor->header->name, other->header->name);
    }
    return MICS_OK;
}

static bool check_tensor(const struct mics_hf *hf, const struct mics_hf_tensor *tensor,
                         uint32_t rank, const uint64_t *shape, struct mics_diagnostics *diagnostics)
{
    const struct mics_safetensor *header = tensor->header;
    char have[128], need[128];

    if (header->rank != rank || memcmp(header->shape, shape, rank * sizeof *shape)) {
        format_shape(header->shape, header->rank, have, sizeof have);
        format_shape(shape, rank, need, sizeof need);
        mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' is %s, the model's is %s",
                             hf->store.files[tensor->file].path, header->name, have, need);
        return false;
    }
    if (mics_storage_dtype_of_name(header->dtype) == MICS_STORAGE_RAW) {
        mics_diagnostics_add(diagnostics,
                             "%s: tensor '%.128s' is of type %s, not F32, F16, BF16 or "
                             "F64",
                             hf->store.files[tensor->file].path, header->name, header->dtype);
        return false;
    }
    return true;
}

/* Numbers [from, from + count) of a tensor are those of a vector from `start` on. */
static void add_extent(struct mics_hf *hf, const struct mics_hf_tensor *tensor, uint64_t from,
                       uint32_t vector, uint64_t start, uint64_t count)
{
    for (uint64_t done = 0; done < count;) {
        struct mics_extent run = run_at(hf, tensor, from + done, count - done);

        run.name = tensor->header->name;
        run.vector = vector;
        run.start = start + done;
        hf->store.table[hf->store.table_count++] = run;
        done += run.count;
    }
}

/* Where version 5 of the library has the experts of a layer, in all families. */
static const char fused_gate[] = "mlp.gate.weight";
static const char *const fused_experts[] = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};

/* The name of a tensor of the layer of `name`, which is "layers.7.<rest>"; false: it is not. */
static bool in_layer(const char *name, const char *rest, const char *other, char *buf, size_t size)
{
    const char *const at = strstr(name, rest);

    if (!at)
        return false;
    snprintf(buf, size, "%.*s%s", (int)(at - name), name, other);
    return true;
}

/* By the name of the model, else by that of version 5. The name goes to *name, which may be in
 * buf. */
static const struct mics_hf_tensor *find_wanted(const struct mics_hf *hf,
                                                const struct mics_model *model, const json_t *names,
                                                const char **name, char *buf, size_t size)
{
    const char *const router = model->family->block[MICS_BLOCK_ROUTER];
    const struct mics_hf_tensor *tensor = find(hf, names, *name);

    if (tensor || !router || !in_layer(*name, router, fused_gate, buf, size))
        return tensor;
    tensor = find(hf, names, buf);
    if (tensor)
        *name = buf;
    return tensor;
}

/* Experts of a layer in two tensors, [E, 2 I, C] and [E, C, I]. false: there is neither. */
static bool match_fused(struct mics_hf *hf, const struct mics_model *model, uint32_t index,
                        uint32_t state, json_t *names, struct mics_diagnostics *diagnostics)
{
    const struct mics_model_config *c = &model->config;
    const uint64_t E = c->n_expert, C = c->n_embd, I = c->expert_inner;
    const uint64_t shapes[2][3] = {{E, 2 * I, C}, {E, C, I}};
    const struct mics_unit *unit = &model->units[index];
    const struct mics_hf_tensor *fused[2];
    char name[2][128];

    for (int i = 0; i < 2; i++) {
        in_layer(unit->tensors[0].name, model->family->experts->block, fused_experts[i], name[i],
                 sizeof name[i]);
        fused[i] = find(hf, names, name[i]);
        json_object_del(names, name[i]);
    }
    if (!fused[0] && !fused[1])
        return false;
    for (int i = 0; i < 2; i++)
        if (!fused[i])
            mics_diagnostics_add(diagnostics, "tensor '%s' of the model is missing", name[i]);
    for (uint32_t i = 0; i < unit->tensor_count; i++)
        if (find(hf, names, unit->tensors[i].name)) {
            mics_diagnostics_add(diagnostics,
                                 "the experts of '%s' are also in a tensor of their own, '%s'",
                                 name[fused[0] ? 0 : 1], unit->tensors[i].name);
            break;
        }
    for (int i = 0; i < 2; i++)
        if (!fused[i] || !check_tensor(hf, fused[i], 3, shapes[i], diagnostics))
            return true;
    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *want = &unit->tensors[i];
        const uint32_t kind = i % MICS_EXPERT_TENSORS, expert = i / MICS_EXPERT_TENSORS;
        const bool down = kind == MICS_EXPERT_DOWN;
        const uint64_t from = down ? expert * want->count : (2 * expert + kind) * want->count;

        add_extent(hf, fused[down], from, mics_vector_of(index, state), want->offset, want->count);
    }
    return true;
}

static void match_unit(struct mics_hf *hf, const struct mics_model *model, uint32_t index,
                       uint32_t state, json_t *names, struct mics_diagnostics *diagnostics)
{
    const struct mics_unit *unit = &model->units[index];
    const bool experts = unit->kind == MICS_UNIT_EXPERT && model->family->experts;

    if (experts && match_fused(hf, model, index, state, names, diagnostics))
        return;
    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct mics_tensor *want = &unit->tensors[i];
        const char *name = want->name;
        char other[128];
        const struct mics_hf_tensor *tensor =
            find_wanted(hf, model, names, &name, other, sizeof other);
        const bool head = strcmp(want->name, model->family->embed_head[MICS_HEAD_WEIGHT]) == 0;

        if (!tensor && state > 0)
            mics_diagnostics_add(diagnostics, "%s of tensor '%s' is missing",
                                 mics_ckpt_state_name(1 + MICS_OPTIMIZER_STATES_MAX, state),
                                 want->name);
        else if (!tensor)
            mics_diagnostics_add(diagnostics, "tensor '%s' of the model is missing%s", want->name,
                                 head ? "; if the embedding takes its place, set "
                                        "\"tie_word_embeddings\": true in config.json"
                                      : "");
        else if (check_tensor(hf, tensor, want->rank, want->shape, diagnostics))
            add_extent(hf, tensor, 0, mics_vector_of(index, state), want->offset, want->count);
        json_object_del(names, name);
    }
}

/* In a tied model, a head in place of the embedding becomes the embedding; a head beside it must be
 * equal and is not needed. */
static enum mics_status resolve_tied(struct mics_hf *hf, const struct mics_family *family,
                                     json_t *names, struct mics_diagnostics *diagnostics,
                                     struct mics_err *err)
{
    const char *const head_name = family->embed_head[MICS_HEAD_WEIGHT];
    const char *const embedding_name = family->embed_head[MICS_HEAD_EMBEDDING];
    const struct mics_hf_tensor *head = find(hf, names, head_name);
    const struct mics_hf_tensor *embedding = find(hf, names, embedding_name);
    enum mics_status status = MICS_OK;
    bool same = true;

    if (!head)
        return MICS_OK;
    if (embedding)
        status = mics_hf_compare(hf, head, embedding, &same, err);
    else if (json_object_set(names, embedding_name, json_object_get(names, head_name)) != 0)
        status = mics_err_nomem(err);
    if (status == MICS_OK && !same)
        mics_diagnostics_add(diagnostics,
                             "%s: tensor '%.128s' is not the embedding, but the head is tied to it"
                             "%s",
                             hf->store.files[head->file].path, head->header->name,
                             family->always_tied
                                 ? ""
                                 : ": transformers then unties them; to have the same, set "
                                   "\"tie_word_embeddings\": false in config.json");
    json_object_del(names, head_name);
    return status;
}

/* Names that cannot belong to a model, for one reason that they share: an adapter that was not
 * merged, or a prefix that is not known before a name that the model has. */
static bool report_common_cause(const struct mics_hf *hf, const json_t *wanted, json_t *names,
                                struct mics_diagnostics *diagnostics)
{
    const char *name;
    json_t *place;

    json_object_foreach(names, name, place)
    {
        const struct mics_hf_tensor *tensor = find(hf, names, name);
        const char *file = hf->store.files[tensor->file].path;

        if (strstr(name, ".lora_A.") || strstr(name, ".lora_B.")) {
            mics_diagnostics_add(diagnostics,
                                 "%s: tensor '%.128s' is of an adapter (LoRA): merge it into the "
                                 "model with peft's merge_and_unload()",
                                 file, tensor->header->name);
            return true;
        }
        if (json_object_get(wanted, name))
            continue;
        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
            if (!json_object_get(wanted, dot + 1) || json_object_get(names, dot + 1))
                continue;
            mics_diagnostics_add(diagnostics,
                                 "%s: tensor '%.128s' has the prefix '%.*s', which is not known: "
                                 "remove it from the names of the tensors",
                                 file, tensor->header->name, (int)(dot + 1 - name), name);
            return true;
        }
    }
    return false;
}

/* The names of a model's tensors, as keys. NULL: out of memory. */
static json_t *wanted_names(const struct mics_model *model)
{
    json_t *wanted = json_object();
    int failed = wanted == NULL;

    for (uint32_t i = 0; i < model->unit_count; i++)
        for (uint32_t j = 0; j < model->units[i].tensor_count; j++)
            failed |= json_object_set_new(wanted, model->units[i].tensors[j].name, json_true());
    if (!failed)
        return wanted;
    json_decref(wanted);
    return NULL;
}

static enum mics_status match_state(struct mics_hf *hf, const struct mics_model *model,
                                    uint32_t state, json_t *names,
                                    struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const char *name;
    json_t *place, *wanted = wanted_names(model);
    enum mics_status status =
        wanted ? collect(hf, model->family, state, names, diagnostics, err) : mics_err_nomem(err);

    if (status == MICS_OK && !model->config.untied)
        status = resolve_tied(hf, model->family, names, diagnostics, err);
    const bool explained = status == MICS_OK && report_common_cause(hf, wanted, names, diagnostics);

    json_decref(wanted);
    if (status != MICS_OK || explained)
        return status;
    for (uint32_t i = 0; i < model->unit_count; i++)
        match_unit(hf, model, i, state, names, diagnostics);
    json_object_foreach(names, name, place)
    {
        const struct mics_hf_tensor *tensor = &hf->tensors[json_integer_value(place)];

        mics_diagnostics_add(diagnostics, "%s: tensor '%.128s' does not belong to the model",
                             hf->store.files[tensor->file].path, tensor->header->name);
    }
    return MICS_OK;
}

/* Most extents that the tensors have, in a file and of the model. */
static size_t count_runs(const struct mics_hf *hf, const struct mics_model *model)
{
    size_t runs = 1;

    for (uint32_t i = 0; i < model->unit_count; i++)
        runs += (size_t)model->units[i].tensor_count * (hf->states ? hf->states : 1);
    for (size_t i = 0; i < hf->tensor_count; i++)
        runs += hf->tensors[i].piece_count ? hf->tensors[i].piece_count : 1;
    return runs;
}

enum mics_status mics_hf_match(struct mics_hf *hf, const struct mics_model *model,
                               struct mics_diagnostics *diagnostics, struct mics_err *err)
{
    const uint64_t before = diagnostics->count;
    enum mics_status status;

    free(hf->store.table);
    hf->store.table_count = 0;
    hf->store.table = calloc(count_runs(hf, model), sizeof *hf->store.table);
    status = hf->store.table ? MICS_OK : mics_err_nomem(err);
    for (uint32_t state = 0; status == MICS_OK && (state == 0 || state < hf->states); state++) {
        json_t *names = json_object();

        status =
            names ? match_state(hf, model, state, names, diagnostics, err) : mics_err_nomem(err);
        json_decref(names);
    }
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
        const struct mics_safetensor *header = hf->tensors[i].header;

        add_extent(hf, &hf->tensors[i], 0, (uint32_t)i, 0,
                   (header->end - header->begin) /
                       mics_storage_dtype_bytes(mics_storage_dtype_of_name(header->dtype)));
    }
    return MICS_OK;
}
