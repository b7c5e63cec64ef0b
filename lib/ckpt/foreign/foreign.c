/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.c - which format it is, and the list of tensors. */
#include "ckpt/foreign/foreign_internal.h"

#include "base/dir.h"
#include "base/file.h"
#include "base/num.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A chunk is cut into rows, if it does not have whole ones. */
enum { MAX_RUNS = 4 << 20 };

/* Does a file begin as one of torch.save, or as a bare pickle? The length of a header of
 * safetensors, before its '{', may begin with the same bytes as a pickle. */
static bool begins_as_torch_save(const char *path)
{
    unsigned char begin[9] = {0};
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, begin, sizeof begin) : -1;

    if (fd >= 0)
        close(fd);
    if (bytes >= 4 && memcmp(begin, "PK\3\4", 4) == 0)
        return true;
    if (bytes == sizeof begin && begin[8] == '{' && memcmp(begin + 4, "\0\0\0\0", 4) == 0)
        return false;
    return bytes >= 4 && begin[0] == 0x80 && begin[1] >= 2 && begin[1] < 6;
}

static bool has_file(const char *folder, const char *name)
{
    char path[MICS_PATH_MAX];

    return mics_path_format(path, NULL, "%s/%s", folder, name) == MICS_OK &&
           access(path, F_OK) == 0;
}

static bool is_named(const char *name, const char *begin, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);

    return strncmp(name, begin, strlen(begin)) == 0 && length > tail &&
           strcmp(name + length - tail, end) == 0;
}

/* What begins and ends the names of files that are one model. */
static const struct {
    enum mics_foreign_format format;
    const char *begin, *end;
} file_names[] = {
    {MICS_FOREIGN_TORCH_SAVE, "pytorch_model", ".bin"},
    {MICS_FOREIGN_DCP_SAFETENSORS, "shard-", ".safetensors"},
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The paths of the files in a folder that are named as row `which` of file_names, sorted; *count 0:
 * there are none. */
static enum mics_status list_files(const char *folder, size_t which, char ***paths, size_t *count,
                                   struct mics_err *err)
{
    char path[MICS_PATH_MAX], **list = NULL;
    struct mics_dir dir;
    const char *name;
    enum mics_status status = mics_dir_open(folder, &dir, err);

    *count = 0;
    while (status == MICS_OK && (name = mics_dir_next(&dir)) != NULL) {
        if (!is_named(name, file_names[which].begin, file_names[which].end))
            continue;
        char **longer = realloc(list, (*count + 1) * sizeof *list);

        status = longer ? mics_path_format(path, err, "%s/%s", folder, name) : mics_err_nomem(err);
        list = longer ? longer : list;
        if (status == MICS_OK && !(list[*count] = strdup(path)))
            status = mics_err_nomem(err);
        *count += status == MICS_OK;
    }
    status = mics_dir_close(&dir, status, err);
    if (*count > 0)
        qsort(list, *count, sizeof *list, by_text);
    *paths = list;
    return status;
}

static void free_paths(char **paths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
}

enum mics_foreign_format mics_foreign_recognize(const char *const *paths, size_t count)
{
    char folder[MICS_PATH_MAX], **files = NULL;
    size_t file_count = 0;
    struct stat info;

    if (stat(paths[0], &info) != 0)
        return MICS_FOREIGN_NONE;
    if (!S_ISDIR(info.st_mode))
        return begins_as_torch_save(paths[0]) ? MICS_FOREIGN_TORCH_SAVE : MICS_FOREIGN_NONE;
    if (count > 1 || mics_hf_is_folder(paths[0]))
        return MICS_FOREIGN_NONE;
    if (has_file(paths[0], ".metadata"))
        return MICS_FOREIGN_DCP;
    if (foreign_find_deepspeed(paths[0], folder))
        return MICS_FOREIGN_DEEPSPEED;
    for (size_t i = 0; i < sizeof file_names / sizeof *file_names; i++) {
        if (list_files(paths[0], i, &files, &file_count, NULL) != MICS_OK)
            file_count = 0;
        free_paths(files, file_count);
        if (file_count > 0)
            return file_names[i].format;
    }
    return MICS_FOREIGN_NONE;
}

enum mics_status foreign_add_file(struct tensor_list *list, const char *path, const char *name,
                                  uint32_t *index)
{
    struct mics_hf *hf = list->hf;
    struct mics_hf_file *files = realloc(hf->files, ((size_t)hf->file_count + 1) * sizeof *files);

    if (!files)
        return mics_err_nomem(list->err);
    hf->files = files;
    files[hf->file_count] = (struct mics_hf_file){0};
    snprintf(files[hf->file_count].name, sizeof files->name, "%.255s", name);
    *index = hf->file_count++;
    return mics_store_add_file(&hf->store, path, list->err);
}

int foreign_state_of(const char *word)
{
    static const char *const words[] = {
        [STATE_EXP_AVG] = "exp_avg", [STATE_EXP_AVG_SQ] = "exp_avg_sq", [STATE_STEP] = "step"};

    for (int i = STATE_EXP_AVG; i <= STATE_STEP; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

enum mics_status foreign_add_tensor(struct tensor_list *list, const char *name, const char *dtype,
                                    const uint64_t *shape, uint32_t rank, uint32_t state,
                                    size_t *index)
{
    struct mics_hf *hf = list->hf;
    const size_t length = strlen(name);

    list->name_bytes += length + 1;
    if (length >= FOREIGN_NAME_MAX || list->name_bytes > MICS_PICKLE_MAX_BYTES)
        return mics_err_set(list->err, MICS_ERR_FORMAT,
                            "tensor '%.128s': names of tensors are too long", name);
    if (hf->tensor_count == list->room) {
        const size_t room = list->room ? 2 * list->room : 64;
        struct mics_safetensor *headers = realloc(list->headers, room * sizeof *headers);

        if (!headers)
            return mics_err_nomem(list->err);
        list->headers = headers;
        struct mics_hf_tensor *tensors = realloc(hf->tensors, room * sizeof *tensors);

        if (!tensors)
            return mics_err_nomem(list->err);
        hf->tensors = tensors;
        list->room = room;
    }
    struct mics_safetensor *header = &list->headers[hf->tensor_count];

    *header = (struct mics_safetensor){.name = strdup(name), .dtype = dtype, .rank = rank};
    if (!header->name)
        return mics_err_nomem(list->err);
    memcpy(header->shape, shape, rank * sizeof *shape);
    list->has_states[state] = true;
    *index = hf->tensor_count;
    hf->tensors[hf->tensor_count++] = (struct mics_hf_tensor){.state = state};
    return MICS_OK;
}

enum mics_status foreign_add_piece(struct tensor_list *list, size_t tensor, uint32_t file,
                                   uint64_t start, uint64_t count, uint64_t offset)
{
    struct mics_hf_tensor *to = &list->hf->tensors[tensor];
    const uint32_t have = to->piece_count;

    if ((have & (have - 1)) == 0) { /* room doubles at each power of two */
        void *pieces = realloc(to->pieces, (have ? 2 * (size_t)have : 1) * sizeof *to->pieces);

        if (!pieces)
            return mics_err_nomem(list->err);
        to->pieces = pieces;
    }
    to->pieces[to->piece_count++] =
        (struct mics_extent){.file = file, .start = start, .count = count, .offset = offset};
    return MICS_OK;
}

/* Dimensions behind the last one that is cut are whole: a run has all of these. */
enum mics_status foreign_add_box(struct tensor_list *list, size_t tensor,
                                 const struct foreign_box *box, uint32_t file, uint64_t offset)
{
    const struct mics_safetensor *header = &list->headers[tensor];
    const uint64_t width = mics_storage_dtype_bytes(mics_storage_dtype_of_name(header->dtype));
    uint32_t whole = header->rank; /* the first dimension of a run */
    uint64_t run = 1, count = 1, at[MICS_TORCH_MAX_RANK] = {0};
    enum mics_status status = MICS_OK;

    while (whole > 0) {
        run *= box->sizes[--whole];
        if (box->sizes[whole] != header->shape[whole])
            break;
    }
    for (uint32_t i = 0; i < header->rank; i++)
        count *= box->sizes[i];
    for (uint64_t done = 0; status == MICS_OK && done < count; done += run) {
        uint64_t start = 0;

        for (uint32_t i = 0; i < header->rank; i++)
            start = start * header->shape[i] + box->offsets[i] + at[i];
        if (++list->runs > MAX_RUNS)
            return mics_err_set(list->err, MICS_ERR_FORMAT,
                                "tensor '%.128s': the checkpoint is cut into more than 4 million "
                                "runs",
                                header->name);
        status = foreign_add_piece(list, tensor, file, start, run, offset + done * width);
        for (uint32_t i = whole; i-- > 0;) { /* the next row */
            if (++at[i] < box->sizes[i])
                break;
            at[i] = 0;
        }
    }
    return status;
}

enum mics_status foreign_set_step(struct tensor_list *list, const char *where, uint64_t step)
{
    if (list->hf->step > 0 && list->hf->step != step)
        return mics_err_set(list->err, MICS_ERR_FORMAT,
                            "%s: parameters have been updated %llu and %llu times", where,
                            (unsigned long long)list->hf->step, (unsigned long long)step);
    list->hf->step = step;
    return MICS_OK;
}

static int by_start(const void *a, const void *b)
{
    const struct mics_extent *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

/* The pieces of a tensor must tile it. The header then says how many bytes they have together. */
static enum mics_status check_pieces(const struct tensor_list *list, size_t index,
                                     const char *where)
{
    struct mics_hf_tensor *tensor = &list->hf->tensors[index];
    struct mics_safetensor *header = &list->headers[index];
    uint64_t count = 0, at = 0;

    if (!mics_torch_count(header->shape, header->rank, &count))
        return mics_err_set(list->err, MICS_ERR_FORMAT, "%s: tensor '%.128s' is too large", where,
                            header->name);
    if (tensor->piece_count > 1)
        qsort(tensor->pieces, tensor->piece_count, sizeof *tensor->pieces, by_start);
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        const struct mics_extent *piece = &tensor->pieces[i];

        if (piece->start < at)
            return mics_err_set(list->err, MICS_ERR_FORMAT,
                                "%s: pieces of tensor '%.128s' overlap at number %llu", where,
                                header->name, (unsigned long long)piece->start);
        if (piece->start > at)
            break;
        at += piece->count;
    }
    header->end = count * mics_storage_dtype_bytes(mics_storage_dtype_of_name(header->dtype));
    if (at == count)
        return MICS_OK;
    return mics_err_set(list->err, MICS_ERR_FORMAT,
                        "%s: numbers of tensor '%.128s' are missing from %llu on of %llu", where,
                        header->name, (unsigned long long)at, (unsigned long long)count);
}

/* Moments without their step would be corrected as in the first steps. */
static enum mics_status check_states(const struct tensor_list *list, const char *where)
{
    const bool first = list->has_states[STATE_EXP_AVG], second = list->has_states[STATE_EXP_AVG_SQ];

    if (first != second)
        return mics_err_set(list->err, MICS_ERR_FORMAT,
                            "%s: has %s, but not %s: only optimizer states of AdamW are read",
                            where, first ? "exp_avg" : "exp_avg_sq",
                            first ? "exp_avg_sq" : "exp_avg");
    if (first && list->hf->step == 0)
        return mics_err_set(list->err, MICS_ERR_FORMAT,
                            "%s: has states of AdamW, but no step of 1 or more", where);
    return MICS_OK;
}

/* Hand the headers over to the first file, which frees them: their names in one block. */
static enum mics_status finish(struct tensor_list *list, const char *where)
{
    struct mics_hf *hf = list->hf;
    enum mics_status status = MICS_OK;
    size_t bytes = 1;
    char *names, *at;

    if (hf->tensor_count == 0 || hf->file_count == 0)
        return mics_err_set(list->err, MICS_ERR_FORMAT, "%s: has no tensors of a model", where);
    for (size_t i = 0; i < hf->tensor_count && status == MICS_OK; i++) {
        status = check_pieces(list, i, where);
        bytes += strlen(list->headers[i].name) + 1;
    }
    if (status == MICS_OK)
        status = check_states(list, where);
    if (status != MICS_OK)
        return status;
    names = at = malloc(bytes);
    if (!names)
        return mics_err_nomem(list->err);
    for (size_t i = 0; i < hf->tensor_count; i++) {
        const size_t length = strlen(list->headers[i].name) + 1;

        memcpy(at, list->headers[i].name, length);
        free((char *)list->headers[i].name);
        list->headers[i].name = at;
        at += length;
        hf->tensors[i].header = &list->headers[i];
        hf->tensors[i].file = hf->tensors[i].piece_count ? hf->tensors[i].pieces[0].file : 0;
    }
    hf->files[0].header.tensors = list->headers;
    hf->files[0].header.names = names;
    hf->files[0].header.count = hf->tensor_count;
    list->headers = NULL;
    hf->states = list->has_states[STATE_EXP_AVG] ? 3 : 1;
    return MICS_OK;
}

/* Open the files of a folder that are named so, or files. */
static enum mics_status open_files(struct tensor_list *list, enum mics_foreign_format format,
                                   const char *const *paths, size_t count)
{
    const size_t which = format == MICS_FOREIGN_TORCH_SAVE ? 0 : 1;
    struct stat info;
    char **found = NULL;
    size_t found_count = 0;
    enum mics_status status = MICS_OK;

    if (stat(paths[0], &info) != 0 || !S_ISDIR(info.st_mode))
        return foreign_open_torch_save(list, paths, count);
    status = mics_path_format(list->hf->folder, list->err, "%s", paths[0]);
    if (status == MICS_OK)
        status = list_files(paths[0], which, &found, &found_count, list->err);
    if (status == MICS_OK && format == MICS_FOREIGN_TORCH_SAVE)
        status = foreign_open_torch_save(list, (const char *const *)found, found_count);
    else if (status == MICS_OK)
        status = foreign_open_dcp_safetensors(list, (const char *const *)found, found_count);
    free_paths(found, found_count);
    return status;
}

enum mics_status mics_foreign_open(enum mics_foreign_format format, const char *const *paths,
                                   size_t count, struct mics_hf *out, struct mics_err *err)
{
    struct tensor_list list = {.hf = out, .err = err};
    enum mics_status status;

    *out = (struct mics_hf){0};
    if (format == MICS_FOREIGN_TORCH_SAVE || format == MICS_FOREIGN_DCP_SAFETENSORS)
        status = open_files(&list, format, paths, count);
    else if (format == MICS_FOREIGN_DCP)
        status = foreign_open_dcp(&list, paths[0]);
    else
        status = foreign_open_deepspeed(&list, paths[0]);
    if (status == MICS_OK)
        status = finish(&list, paths[0]);
    for (size_t i = 0; list.headers && i < out->tensor_count; i++)
        free((char *)list.headers[i].name);
    free(list.headers);
    return status;
}
