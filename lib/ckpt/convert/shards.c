/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/convert/shards.h"

#include "ckpt/manifest.h"
#include "ckpt/shard_file.h"
#include "doc/cursor.h"
#include "doc/doc.h"
#include "plan/layout.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum mics_status mics_shard_plan_open(json_t *doc, uint32_t states, struct mics_shard_plan *out,
                                      struct mics_err *err)
{
    enum mics_status status = mics_plan_own_from_doc(doc, &out->plan, err);

    if (status != MICS_OK)
        return status;
    out->doc = json_incref(doc);
    const struct mics_model *model = out->plan->model;
    out->layouts = calloc(model->unit_count, sizeof *out->layouts);
    if (!out->layouts)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < model->unit_count; i++)
        out->layouts[i] = mics_choice_layout(model, &out->plan->choice, i);
    out->form = (struct mics_ckpt_layout){.model = model,
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

/* The store numbers vectors by the units of the table, conversions by those of the model. */
static enum mics_status check_units(const struct mics_ckpt_table *table,
                                    const struct mics_model *model, struct mics_err *err)
{
    for (uint32_t i = 0; i < model->unit_count; i++)
        if (strcmp(table->units[i].name, model->units[i].name) != 0)
            return mics_err_set(err, MICS_ERR_FORMAT, "units[%u].name: expected \"%s\"", i,
                                model->units[i].name);
    return MICS_OK;
}

static enum mics_status open_model(struct mics_shard_source *source, struct mics_err *err)
{
    const struct mics_ckpt_reader *reader = &source->reader;
    struct mics_reading reading = {.err = err};
    const struct mics_cursor root = mics_cursor_begin(reader->doc, &reading);
    const struct mics_cursor at = mics_cursor_get_object(&root, "model");
    enum mics_status status = reading.status;

    if (status != MICS_OK)
        goto out;
    status = mics_model_from_json(at.value, &source->model, err);
    if (status != MICS_OK) {
        mics_err_prefix(err, "model");
        goto out;
    }
    status = mics_ckpt_match_tensors(&reader->table, source->model, err);
    if (status != MICS_OK)
        goto out;
    status = check_units(&reader->table, source->model, err);
out:
    if (status != MICS_OK)
        mics_err_prefix(err, "%s/" MICS_MANIFEST_NAME, reader->folder);
    return status;
}

enum mics_status mics_shard_source_open(const char *path, struct mics_shard_source *out,
                                        struct mics_err *err)
{
    char folder[MICS_PATH_MAX];
    bool found;
    enum mics_status status;

    *out = (struct mics_shard_source){0};
    if (access(path, F_OK) != 0)
        return mics_err_set_errno(err, "%s", path);
    status = mics_checkpoint_find(path, false, folder, &found, err);
    if (status != MICS_OK)
        return status;
    status = mics_ckpt_reader_open(folder, NULL, &out->reader, err);
    if (status != MICS_OK)
        return status;
    status = open_model(out, err);
    if (status != MICS_OK)
        return status;
    return mics_ckpt_reader_open_files(&out->reader, err);
}

void mics_shard_source_close(struct mics_shard_source *source)
{
    mics_ckpt_reader_close(&source->reader);
    mics_model_free(source->model);
    source->model = NULL;
}

/* All shards of a kind have the same sections; the index of a file selects its piece of each
 * vector. */
static struct mics_section *make_sections(const struct mics_ckpt_layout *form, int kind,
                                          size_t *count)
{
    size_t total = 0, at = 0;

    for (uint32_t unit = 0; unit < form->model->unit_count; unit++)
        total += (size_t)form->states * form->layouts[unit].segments;
    struct mics_section *sections = calloc(total, sizeof *sections);
    for (uint32_t i = 0; sections && i < form->model->unit_count * form->states; i++) {
        const struct mics_layout *layout = &form->layouts[i / form->states];
        const struct mics_unit *unit = &form->model->units[i / form->states];

        if ((int)mics_choice_groups(form->choice, unit->kind) != kind)
            continue;
        for (uint32_t segment = 0; segment < layout->segments; segment++)
            sections[at++] = (struct mics_section){
                .vector = mics_vector_of(i / form->states, i % form->states),
                .dtype = MICS_STORAGE_F32,
                .start = mics_layout_piece_offset(layout, segment, layout->optim_piece, 0),
                .count = layout->optim_piece};
    }
    *count = at;
    return sections;
}

/* The files of the shards of one kind. */
static enum mics_status add_files(const struct mics_ckpt_layout *form, int kind,
                                  struct mics_shard_target *out, struct mics_err *err)
{
    const uint32_t first = mics_ckpt_first_shard(form, kind);
    struct mics_shard_spec spec = {0};
    size_t section_count = 0, header_bytes = 0;
    enum mics_status status = mics_shard_spec_new(form, first, &spec, err);

    if (status != MICS_OK)
        return status;
    out->sections[kind] = make_sections(form, kind, &section_count);
    status = out->sections[kind] ? mics_safetensors_header(spec.tensors, spec.count,
                                                           &out->headers[kind], &header_bytes, err)
                                 : mics_err_nomem(err);
    mics_shard_spec_free(&spec);
    if (status != MICS_OK)
        return status;
    const uint64_t bytes = header_bytes + mics_sections_place(out->sections[kind], section_count);
    for (uint32_t i = 0; i < mics_ckpt_kind_shards(form, kind); i++) {
        struct mics_target_file *file = &out->target.files[first + i];

        mics_ckpt_file_name(first + i, file->name, sizeof file->name);
        file->header = out->headers[kind];
        file->header_bytes = header_bytes;
        file->sections = out->sections[kind];
        file->section_count = section_count;
        file->index = i;
        file->bytes = bytes;
    }
    return MICS_OK;
}

enum mics_status mics_shard_target_new(const struct mics_ckpt_layout *form,
                                       struct mics_shard_target *out, struct mics_err *err)
{
    enum mics_status status;

    *out = (struct mics_shard_target){
        .target = {.hashed = true,
                   .file_count = mics_ckpt_first_shard(form, MICS_UNIT_KIND_COUNT)}};
    out->target.files = calloc(out->target.file_count, sizeof *out->target.files);
    status = out->target.files ? MICS_OK : mics_err_nomem(err);
    for (int kind = 0; status == MICS_OK && kind < MICS_UNIT_KIND_COUNT; kind++)
        if (mics_ckpt_kind_shards(form, kind) > 0)
            status = add_files(form, kind, out, err);
    if (status != MICS_OK)
        mics_shard_target_free(out);
    return status;
}

void mics_shard_target_free(struct mics_shard_target *target)
{
    free(target->target.files);
    for (int kind = 0; kind < MICS_UNIT_KIND_COUNT; kind++) {
        free(target->sections[kind]);
        free(target->headers[kind]);
    }
    *target = (struct mics_shard_target){0};
}

enum mics_status mics_shard_target_write_manifest(const struct mics_shard_target *target,
                                                  const struct mics_ckpt_layout *form,
                                                  struct mics_manifest *manifest,
                                                  struct mics_output_folder *folder,
                                                  struct mics_err *err)
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
    if (status != MICS_OK)
        goto out;
    status = mics_doc_encode(doc, MICS_DOC_MSGPACK, &data, &size, err);
    if (status != MICS_OK)
        goto out;
    status = mics_output_folder_write(folder, MICS_MANIFEST_NAME, data, size, err);
out:
    free(data);
    json_decref(doc);
    return status;
}
