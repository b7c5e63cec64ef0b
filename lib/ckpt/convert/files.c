/* SPDX-License-Identifier: Apache-2.0 */
/* convert_files.c - the files of a conversion, from their names to their sync. */
#include "ckpt/convert/part.h"

#include <stdlib.h>
#include <string.h>

static enum mics_status name_file(struct mics_making *making, const char *folder, const char *name,
                                  struct mics_err *err)
{
    char path[MICS_PATH_MAX];
    enum mics_status status = mics_path_format(path, err, "%s/%s", folder, name);

    if (status != MICS_OK)
        return status;
    making->path = strdup(path);
    making->out.path = making->path;
    return making->path ? MICS_OK : mics_err_nomem(err);
}

enum mics_status mics_copier_name_files(struct mics_copier *copier, const char *folder,
                                        struct mics_err *err)
{
    const struct mics_target *target = copier->target;
    enum mics_status status = MICS_OK;

    copier->files = calloc((size_t)target->file_count + 1, sizeof *copier->files);
    if (!copier->files)
        return mics_err_nomem(err);
    for (uint32_t i = 0; i < target->file_count; i++)
        copier->files[i].out.fd = -1;
    for (uint32_t i = 0; status == MICS_OK && i < target->file_count; i++)
        status = name_file(&copier->files[i], folder, target->files[i].name, err);
    mics_raise_open_files();
    return status;
}

enum mics_status mics_copier_create_files(struct mics_copier *copier, struct mics_err *err)
{
    enum mics_status status = MICS_OK;

    for (uint32_t i = 0; status == MICS_OK && i < copier->target->file_count; i++)
        status = mics_piece_file_open(copier->files[i].path, copier->target->files[i].bytes, true,
                                      &copier->files[i].out, err);
    return status;
}

enum mics_status mics_copier_open_file(struct mics_copier *copier, uint32_t file,
                                       struct mics_err *err)
{
    struct mics_making *making = &copier->files[file];

    if (making->out.fd >= 0)
        return MICS_OK;
    return mics_piece_file_open(making->path, copier->target->files[file].bytes, false,
                                &making->out, err);
}

enum mics_status mics_copier_close_files(struct mics_copier *copier, enum mics_status status,
                                         struct mics_err *err)
{
    for (uint32_t i = 0; copier->files && i < copier->target->file_count; i++) {
        const bool lost = status != MICS_OK || mics_copier_stops(copier);
        const enum mics_status closed =
            mics_piece_file_close(&copier->files[i].out, lost, status == MICS_OK ? err : NULL);

        status = status == MICS_OK ? closed : status;
    }
    return status;
}

void mics_copier_forget_files(struct mics_copier *copier)
{
    for (uint32_t i = 0; copier->files && i < copier->target->file_count; i++) {
        struct mics_making *making = &copier->files[i];

        free(making->path);
        XXH64_freeState(making->hash);
    }
    free(copier->files);
    copier->files = NULL;
}
