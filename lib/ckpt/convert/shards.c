/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/shards.h"

#include "ckpt/manifest.h"
#include "ckpt/shard_file.h"
#include "doc/doc.h"
#include "plan/slots.h"

#include <stdlib.h>
#include <string.h>

enum mics_status mics_shard_plan_open(json_t *doc, uint32_t states, struct mics_shard_plan *out,
                                      struct mics_err *err)
{
    enum mics_status status = mics_plan_from_doc(doc, &out->plan, err);

    if (status != MICS_OK)
        return status;
    out->doc = json_incref(doc);
    const struct mics_model *model = out->plan->model;
    out->layouts = calloc(model->unit_count, sizeof *out->layouts);
    if (!out->layouts)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->unit_count; i++)
        out->layouts[i] = mics_choice_layout(model, &out->plan->choice, i);
    out->form = (struct mics_ckpt_form){.model = model,
                                        .choice = &out->plan->choice,
                                        .layouts = out->layouts,
                                        .states = states,
                                        .parts = 1};
    return MICS_OK;
}

void mics_shard_plan_close(struct mics_shard_plan *plan)
{
    mics_plan_free(plan->plan);
    json_decref(plan->doc);
    free(plan->layouts);
    *plan = (struct mics_shard_plan){0};
}

/* All shards have the same tensors; each section is cut from its space by the file's index. */
static struct mics_section *make_sections(const struct mics_ckpt_form *form, size_t *count)
{
    size_t total = 0, at = 0;

    for (uint32_t unit = 0; unit < form->model->unit_count; unit++)
        total += (size_t)form->states * form->layouts[unit].segments;
    struct mics_section *sections = calloc(total, sizeof *sections);
    for (uint32_t i = 0; sections && i < form->model->unit_count * form->states; i++) {
        const struct mics_layout *layout = &form->layouts[i / form->states];

        for (uint32_t segment = 0; segment < layout->segments; segment++)
            sections[at++] = (struct mics_section){
                .space = mics_space_of(i / form->states, i % form->states),
                .number = MICS_NUMBER_F32,
                .start = mics_layout_piece_offset(layout, segment, layout->optim_piece, 0),
                .count = layout->optim_piece};
    }
    *count = total;
    return sections;
}

static void fill_files(struct mics_shard_target *out, size_t section_count, size_t header_bytes)
{
    const uint64_t bytes = header_bytes + mics_sections_place(out->sections, section_count);

    for (uint32_t i = 0; i < out->target.file_count; i++) {
        struct mics_target_file *file = &out->target.files[i];

        mics_ckpt_file_name(i, file->name, sizeof file->name);
        file->header = out->header;
        file->header_bytes = header_bytes;
        file->sections = out->sections;
        file->section_count = section_count;
        file->index = i;
        file->bytes = bytes;
    }
}

enum mics_status mics_shard_target_new(const struct mics_ckpt_form *form,
                                       struct mics_shard_target *out, struct mics_err *err)
{
    struct mics_shard_spec spec = {0};
    size_t section_count = 0, header_bytes = 0;
    enum mics_status status = mics_shard_spec_new(form, 0, &spec, err);

    if (status != MICS_OK)
        return status;
    *out = (struct mics_shard_target){
        .target = {.hashed = true, .file_count = form->choice->shape.p_optim}};
    out->target.files = calloc(out->target.file_count, sizeof *out->target.files);
    out->sections = make_sections(form, &section_count);
    if (!out->target.files || !out->sections)
        status = mics_err_nomem(err);
    if (status == MICS_OK)
        status =
            mics_safetensors_header(spec.tensors, spec.count, &out->header, &header_bytes, err);
    if (status == MICS_OK)
        fill_files(out, section_count, header_bytes);
    else
        mics_shard_target_free(out);
    mics_shard_spec_free(&spec);
    return status;
}

void mics_shard_target_free(struct mics_shard_target *target)
{
    free(target->target.files);
    free(target->sections);
    free(target->header);
    *target = (struct mics_shard_target){0};
}

enum mics_status mics_shard_target_finish(const struct mics_shard_target *target,
                                          const struct mics_ckpt_form *form,
                                          struct mics_manifest *manifest,
                                          struct mics_new_folder *folder, struct mics_err *err)
{
    json_t *doc = NULL;
    char *data = NULL;
    size_t size = 0;
    enum mics_status status = MICS_OK;

    free(manifest->files);
    manifest->file_count = target->target.file_count;
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    if (!manifest->files)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < manifest->file_count; i++)
        manifest->files[i] = target->target.files[i].sum;
    status = mics_manifest_to_doc(manifest, form, &doc, err);
    if (status == MICS_OK)
        status = mics_doc_encode(doc, MICS_DOC_MSGPACK, &data, &size, err);
    if (status == MICS_OK)
        status = mics_new_folder_write(folder, MICS_MANIFEST_NAME, data, size, err);
    free(data);
    json_decref(doc);
    return status;
}

/* By the members of a plan's model, so that a new one is compared without being named here. */
enum mics_status mics_models_match(const struct mics_model *a, const char *a_name,
                                   const struct mics_model *b, const char *b_name,
                                   struct mics_err *err)
{
    json_t *left = mics_model_to_json(a), *right = mics_model_to_json(b), *value;
    enum mics_status status = left && right ? MICS_OK : mics_err_nomem(err);
    const char *key;

    json_object_foreach(left, key, value)
    {
        json_t *other = json_object_get(right, key);

        if (status != MICS_OK || strcmp(key, "name") == 0 || strcmp(key, "source") == 0 ||
            json_equal(value, other))
            continue;
        char *x = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        char *y = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;

        status = mics_err_set(err, MICS_ERR_FORMAT, "%s has a model with %s %s, %s one with %s",
                              a_name, key, x ? x : "?", b_name, y ? y : "none");
        free(x);
        free(y);
    }
    json_decref(left);
    json_decref(right);
    return status;
}
