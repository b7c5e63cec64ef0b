/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed.c - checkpoints of ZeRO 1 to 3 and MiCS, and universal ones: fp32 parameters and states
 * of AdamW.
 *
 * Each rank's *_optim_states.pt has flat vectors. Stages 1 and 2 lay the parameters of a group end
 * to end, pad, and cut the whole equally. Stage 3, and MiCS in its first shard group, cut each
 * parameter by itself into ceil(n / ranks) numbers and lay the parts end to end. Names and shapes,
 * in the order of the optimizer, are param_shapes in a file of rank 0 for the model.
 *
 * A universal checkpoint has the same file of rank 0, and for each parameter and state a file
 * zero/NAME/STATE.pt: a tensor, of stage 3 without its shape, or a dict with one as "param".
 */
#include "ckpt/foreign/foreign_internal.h"

#include "base/dir.h"
#include "base/file.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RANKS = 65536, MAX_GROUPS = 4096 };

/* A flat vector in a file. */
struct flat {
    uint64_t offset, count;
    uint32_t file;
};

/* The vectors of one rank, by state: [STATE_STEP][group]. */
struct rank {
    struct flat *flats[STATE_STEP];
    size_t groups;
};

/* A checkpoint being opened. */
struct zero {
    struct tensor_list *list;
    char folder[MICS_PATH_MAX];
    struct rank *ranks;
    uint32_t rank_count;
    bool universal;
    int64_t stage, partitions;
    struct mics_torch_file model; /* of rank 0 */
    char model_path[MICS_PATH_MAX];
};

static enum mics_status reject(const struct zero *zero, const char *path, const char *what)
{
    return mics_err_set(zero->list->err, MICS_ERR_FORMAT, "%s: %s", path, what);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);

    return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* Is a file with optimizer states in this folder? */
static bool has_states(const char *folder)
{
    struct mics_dir dir;
    const char *name;
    bool found = false;

    if (mics_dir_open(folder, &dir, NULL) != MICS_OK)
        return false;
    while ((name = mics_dir_next(&dir)) != NULL)
        found |= ends_with(name, "_optim_states.pt");
    mics_dir_close(&dir, MICS_OK, NULL);
    return found;
}

static const char *const model_names[] = {"zero_pp_rank_0_mp_rank_00_model_states.pt",
                                          "mp_rank_00_model_states.pt"};

static bool is_universal(const char *folder)
{
    char path[MICS_PATH_MAX];
    struct stat info;

    if (mics_path_format(path, NULL, "%s/zero", folder) != MICS_OK || stat(path, &info) != 0 ||
        !S_ISDIR(info.st_mode))
        return false;
    for (int i = 0; i < 2; i++)
        if (mics_path_format(path, NULL, "%s/%s", folder, model_names[i]) == MICS_OK &&
            stat(path, &info) == 0)
            return true;
    return false;
}

/* The folder that the file `name` of a folder names. */
static bool find_latest(const char *path, const char *name, char folder[MICS_PATH_MAX])
{
    char file[MICS_PATH_MAX], *tag = NULL;
    size_t size = 0;
    bool found;

    if (mics_path_format(file, NULL, "%s/%s", path, name) != MICS_OK ||
        mics_file_read_regular(file, 256, &tag, &size, NULL) != MICS_OK)
        return false;
    tag[strcspn(tag, "\r\n")] = '\0';
    found = mics_hf_name_is_safe(tag) && !strchr(tag, '/') &&
            mics_path_format(folder, NULL, "%s/%s", path, tag) == MICS_OK &&
            (has_states(folder) || is_universal(folder));
    free(tag);
    return found;
}

bool foreign_find_deepspeed(const char *path, char folder[MICS_PATH_MAX])
{
    if (mics_path_format(folder, NULL, "%s", path) == MICS_OK &&
        (has_states(folder) || is_universal(folder)))
        return true;
    return find_latest(path, "latest", folder) || find_latest(path, "latest_universal", folder);
}

/* The path of a file of one rank: with bf16 the name begins with that. */
static enum mics_status find_states(const struct zero *zero, uint32_t rank,
                                    char path[MICS_PATH_MAX])
{
    static const char *const prefixes[] = {"bf16_", ""};
    struct stat info;

    for (int i = 0; i < 2; i++)
        if (mics_path_format(path, NULL, "%s/%szero_pp_rank_%u_mp_rank_00_optim_states.pt",
                             zero->folder, prefixes[i], rank) == MICS_OK &&
            stat(path, &info) == 0)
            return MICS_OK;
    return reject(zero, path, "the file is missing");
}

static enum mics_status find_model(struct zero *zero)
{
    struct stat info;

    for (int i = 0; i < 2; i++)
        if (mics_path_format(zero->model_path, NULL, "%s/%s", zero->folder, model_names[i]) ==
                MICS_OK &&
            stat(zero->model_path, &info) == 0)
            return MICS_OK;
    return reject(zero, zero->model_path, "the file is missing");
}

/* An integer, or an object made of one (an enumeration); 0: it is neither. */
static int64_t whole_of(const struct mics_pickle *pickle, uint32_t node)
{
    int64_t value = 0;

    if (mics_pickle_class(pickle, node))
        node = mics_pickle_item(pickle, mics_pickle_args(pickle, node), 0);
    return mics_pickle_integer(pickle, node, &value) ? value : 0;
}

/* Add a tensor as the flat vector of a group. */
static enum mics_status add_flat(const struct zero *zero, const struct mics_torch_file *file,
                                 const char *path, uint32_t index, uint32_t node, struct flat *out)
{
    struct mics_torch_tensor tensor;
    const enum mics_status status = mics_torch_tensor(file, node, &tensor, zero->list->err);

    if (status != MICS_OK) {
        mics_err_prefix(zero->list->err, "%s", path);
        return status;
    }
    if (strcmp(tensor.dtype, "F32") != 0)
        return reject(zero, path, "the optimizer's numbers are not fp32");
    *out = (struct flat){tensor.offset, tensor.count, index};
    return MICS_OK;
}

/* The state of group `group` of the optimizer, by its number. */
static uint32_t state_of_group(const struct mics_pickle *pickle, uint32_t states, size_t group)
{
    struct mics_pickle_iterator pairs = mics_pickle_begin(pickle, states);
    uint32_t key, value;
    int64_t number;

    while (mics_pickle_next(&pairs, &key, &value))
        if (mics_pickle_integer(pickle, key, &number) && number == (int64_t)group)
            return value;
    return 0;
}

/* The vectors of one rank. */
static enum mics_status read_rank(struct zero *zero, uint32_t rank)
{
    char path[MICS_PATH_MAX];
    struct mics_torch_file file = {0};
    struct rank *to = &zero->ranks[rank];
    uint32_t index, key, value;
    enum mics_status status = find_states(zero, rank, path);

    if (status == MICS_OK)
        status = foreign_add_file(zero->list, path, strrchr(path, '/') + 1, &index);
    if (status != MICS_OK)
        return status;
    status = mics_torch_file_open(zero->list->hf->store.files[index].fd, 0,
                                  zero->list->hf->store.files[index].bytes, &file, zero->list->err);
    if (status != MICS_OK) {
        mics_err_prefix(zero->list->err, "%s", path);
        goto out;
    }
    const struct mics_pickle *pickle = file.pickle;
    const uint32_t optimizer =
        mics_pickle_get(pickle, mics_pickle_root(pickle), "optimizer_state_dict");
    const bool whole = zero->stage == 3;
    const uint32_t flats = mics_pickle_get(
        pickle, optimizer, whole ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    const uint32_t states = mics_pickle_get(
        pickle,
        mics_pickle_get(pickle, optimizer, whole ? "optimizer_state_dict" : "base_optimizer_state"),
        "state");

    to->groups = mics_pickle_count(pickle, flats);
    if (to->groups == 0 || to->groups > MAX_GROUPS) {
        status = reject(zero, path, "has no fp32 parameters of ZeRO");
        goto out;
    }
    for (int state = 0; state < STATE_STEP && status == MICS_OK; state++)
        if (!(to->flats[state] = calloc(to->groups, sizeof *to->flats[state])))
            status = mics_err_nomem(zero->list->err);
    struct mics_pickle_iterator groups = mics_pickle_begin(pickle, flats);
    for (size_t g = 0; status == MICS_OK && mics_pickle_next(&groups, &key, &value); g++) {
        const uint32_t of_group = state_of_group(pickle, states, g);

        status = add_flat(zero, &file, path, index, value, &to->flats[STATE_PARAM][g]);
        if (status == MICS_OK)
            status =
                add_flat(zero, &file, path, index, mics_pickle_get(pickle, of_group, "exp_avg"),
                         &to->flats[STATE_EXP_AVG][g]);
        if (status == MICS_OK)
            status =
                add_flat(zero, &file, path, index, mics_pickle_get(pickle, of_group, "exp_avg_sq"),
                         &to->flats[STATE_EXP_AVG_SQ][g]);
        /* Stages 1 and 2 write the parameters of the last rank without its padding. */
        for (int state = 1; state < STATE_STEP && status == MICS_OK; state++)
            if (to->flats[state][g].count != to->flats[STATE_PARAM][g].count &&
                (whole || rank + 1 < zero->rank_count))
                status = reject(zero, path, "its states are not as long as its parameters");
    }
out:
    mics_torch_file_close(&file);
    return status;
}

/* Stage and number of ranks, from the file of rank 0. */
static enum mics_status read_form(struct zero *zero)
{
    char path[MICS_PATH_MAX];
    struct mics_store_file opened = {.path = path, .fd = -1};
    struct mics_torch_file file = {0};
    enum mics_status status = find_states(zero, 0, path);

    if (status == MICS_OK)
        status = mics_store_file_open(&opened, zero->list->err);
    if (status == MICS_OK) {
        status = mics_torch_file_open(opened.fd, 0, opened.bytes, &file, zero->list->err);
        if (status != MICS_OK)
            mics_err_prefix(zero->list->err, "%s", path);
    }
    if (status == MICS_OK) {
        const struct mics_pickle *pickle = file.pickle;
        const uint32_t optimizer =
            mics_pickle_get(pickle, mics_pickle_root(pickle), "optimizer_state_dict");
        const uint32_t count = mics_pickle_get(pickle, optimizer, "partition_count");

        zero->stage = whole_of(pickle, mics_pickle_get(pickle, optimizer, "zero_stage"));
        zero->partitions = whole_of(pickle, mics_pickle_kind(pickle, count) == MICS_PICKLE_LIST
                                                ? mics_pickle_item(pickle, count, 0)
                                                : count);
        if (zero->stage < 1 || zero->stage > 3)
            status = reject(zero, path, "is of no stage of ZeRO from 1 to 3");
        else if (zero->partitions < 1 || zero->partitions > MAX_RANKS)
            status = reject(zero, path, "has no number of partitions");
    }
    mics_torch_file_close(&file);
    if (opened.fd >= 0)
        close(opened.fd);
    return status;
}

static enum mics_status open_model(struct zero *zero)
{
    struct mics_store_file opened = {.path = zero->model_path, .fd = -1};
    enum mics_status status = find_model(zero);

    if (status == MICS_OK)
        status = mics_store_file_open(&opened, zero->list->err);
    if (status == MICS_OK) {
        status = mics_torch_file_open(opened.fd, 0, opened.bytes, &zero->model, zero->list->err);
        if (status != MICS_OK)
            mics_err_prefix(zero->list->err, "%s", zero->model_path);
    }
    if (opened.fd >= 0)
        close(opened.fd);
    if (status != MICS_OK)
        return status;
    const struct mics_pickle *pickle = zero->model.pickle;
    const uint32_t root = mics_pickle_root(pickle);
    const int64_t step = whole_of(pickle, mics_pickle_get(pickle, root, "global_steps")) -
                         whole_of(pickle, mics_pickle_get(pickle, root, "skipped_steps"));

    if (mics_pickle_count(pickle, mics_pickle_get(pickle, root, "frozen_param_shapes")) > 0)
        return reject(zero, zero->model_path, "has frozen parameters, which mics does not have");
    if (whole_of(pickle, mics_pickle_get(pickle, root, "mp_world_size")) > 1)
        return reject(zero, zero->model_path, "is of tensor parallelism");
    return step > 0 ? foreign_set_step(zero->list, zero->model_path, (uint64_t)step) : MICS_OK;
}

/* Add numbers [at, at + count) of a rank's vectors of one state, where all groups follow each
 * other, as numbers of a tensor from `start` on. false: they are not there. */
static bool add_part(const struct zero *zero, uint32_t rank, int state, uint64_t at, uint64_t count,
                     size_t tensor, uint64_t start, enum mics_status *status)
{
    const struct rank *from = &zero->ranks[rank];

    for (size_t g = 0; g < from->groups && count > 0 && *status == MICS_OK; g++) {
        const struct flat *flat = &from->flats[state][g];

        if (at >= flat->count) {
            at -= flat->count;
            continue;
        }
        const uint64_t run = mics_min_u64(count, flat->count - at);
        *status = foreign_add_piece(zero->list, tensor, flat->file, start, run,
                                    flat->offset + at * sizeof(float));
        start += run;
        count -= run;
        at = 0;
    }
    return count == 0;
}

/* Stage 3: the parts of a parameter. *at is where they begin in each rank's vectors. */
static bool add_cut(const struct zero *zero, int state, size_t tensor, uint64_t count, uint64_t at,
                    enum mics_status *status)
{
    const uint64_t part = (count + zero->rank_count - 1) / zero->rank_count;

    for (uint32_t r = 0; r < zero->rank_count && *status == MICS_OK; r++) {
        const uint64_t start = mics_min_u64(count, r * part);

        if (!add_part(zero, r, state, at, mics_min_u64(part, count - start), tensor, start, status))
            return false;
    }
    return true;
}

/* Stages 1 and 2: a parameter at `at` in the vector of group `group` of all ranks. */
static bool add_flat_range(const struct zero *zero, int state, size_t group, size_t tensor,
                           uint64_t count, uint64_t at, enum mics_status *status)
{
    uint64_t done = 0;

    for (uint32_t r = 0; r < zero->rank_count && done < count && *status == MICS_OK; r++) {
        const struct flat *flat =
            group < zero->ranks[r].groups ? &zero->ranks[r].flats[state][group] : NULL;

        if (!flat)
            return false;
        if (at >= flat->count) {
            at -= flat->count;
            continue;
        }
        const uint64_t run = mics_min_u64(count - done, flat->count - at);
        *status = foreign_add_piece(zero->list, tensor, flat->file, done, run,
                                    flat->offset + at * sizeof(float));
        done += run;
        at = 0;
    }
    return done == count;
}

/* A universal file of a parameter has it in its own shape, or flat. */
static enum mics_status check_shape(const struct zero *zero, const struct mics_torch_file *file,
                                    uint32_t node, const char *path, const uint64_t *shape,
                                    uint32_t rank)
{
    struct mics_torch_tensor own;
    const enum mics_status status = mics_torch_tensor(file, node, &own, zero->list->err);

    if (status != MICS_OK) {
        mics_err_prefix(zero->list->err, "%s", path);
        return status;
    }
    if (own.rank > 1 && (own.rank != rank || memcmp(own.shape, shape, rank * sizeof *shape) != 0))
        return reject(zero, path, "its shape is not that of param_shapes");
    return MICS_OK;
}

/* Universal: one state of a parameter, `count` numbers of a shape in a file of their own. */
static enum mics_status add_own_file(const struct zero *zero, int state, size_t tensor,
                                     const char *name, const uint64_t *shape, uint32_t rank,
                                     uint64_t count)
{
    static const char *const words[] = {"fp32", "exp_avg", "exp_avg_sq"};
    struct mics_torch_file file = {0};
    char path[MICS_PATH_MAX];
    struct flat flat = {0};
    enum mics_status status;

    if (!mics_hf_name_is_safe(name) || strchr(name, '/'))
        return mics_err_set(zero->list->err, MICS_ERR_FORMAT,
                            "%s: param_shapes: '%.128s' is not the name of a folder",
                            zero->model_path, name);
    status = mics_path_format(path, zero->list->err, "%s/zero/%s/%s.pt", zero->folder, name,
                              words[state]);
    if (status == MICS_OK)
        status = foreign_add_file(zero->list, path, words[state], &flat.file);
    if (status != MICS_OK)
        return status;
    const struct mics_store_file *opened = &zero->list->hf->store.files[flat.file];

    status = mics_torch_file_open(opened->fd, 0, opened->bytes, &file, zero->list->err);
    if (status != MICS_OK) {
        mics_err_prefix(zero->list->err, "%s", path);
    } else {
        const uint32_t root = mics_pickle_root(file.pickle);
        const uint32_t inside = mics_pickle_get(file.pickle, root, "param");

        status = add_flat(zero, &file, path, flat.file, inside ? inside : root, &flat);
        if (status == MICS_OK && flat.count == count)
            status = check_shape(zero, &file, inside ? inside : root, path, shape, rank);
    }
    mics_torch_file_close(&file);
    if (status == MICS_OK && flat.count != count)
        status = mics_err_set(zero->list->err, MICS_ERR_FORMAT,
                              "%s: %llu numbers, but param_shapes says %llu", path,
                              (unsigned long long)flat.count, (unsigned long long)count);
    return status == MICS_OK && count > 0
               ? foreign_add_piece(zero->list, tensor, flat.file, 0, count, flat.offset)
               : status;
}

/* One parameter and its states; *at moves to the next one. */
static enum mics_status add_parameter(struct zero *zero, size_t group, const char *name,
                                      uint32_t node, uint64_t *at)
{
    uint64_t shape[MICS_TORCH_MAX_RANK], count = 1;
    uint32_t rank;
    enum mics_status status =
        mics_torch_shape(zero->model.pickle, node, shape, &rank, zero->list->err);

    if (status == MICS_OK && !mics_torch_count(shape, rank, &count))
        status = mics_err_set(zero->list->err, MICS_ERR_FORMAT, "it is too large");
    if (status != MICS_OK) {
        mics_err_prefix(zero->list->err, "%s: param_shapes: '%.128s'", zero->model_path, name);
        return status;
    }
    for (int state = 0; state < STATE_STEP && status == MICS_OK; state++) {
        size_t tensor;

        status = foreign_add_tensor(zero->list, name, "F32", shape, rank, (uint32_t)state, &tensor);
        if (status == MICS_OK && zero->universal)
            status = add_own_file(zero, state, tensor, name, shape, rank, count);
        if (status != MICS_OK || zero->universal)
            continue;
        const bool found = zero->stage == 3
                               ? add_cut(zero, state, tensor, count, *at, &status)
                               : add_flat_range(zero, state, group, tensor, count, *at, &status);
        if (!found && status == MICS_OK)
            return mics_err_set(zero->list->err, MICS_ERR_FORMAT,
                                "%s: parameter '%.128s' ends after the numbers of its ranks",
                                zero->folder, name);
    }
    if (zero->universal)
        return status;
    *at += zero->stage == 3 ? (count + zero->rank_count - 1) / zero->rank_count : count;
    return status;
}

static enum mics_status add_parameters(struct zero *zero)
{
    const struct mics_pickle *pickle = zero->model.pickle;
    struct mics_pickle_iterator groups = mics_pickle_begin(
        pickle, mics_pickle_get(pickle, mics_pickle_root(pickle), "param_shapes"));
    enum mics_status status = MICS_OK;
    uint32_t none, group, key, node;
    uint64_t at = 0;

    if (!groups.cell)
        return reject(zero, zero->model_path, "has no param_shapes");
    for (size_t g = 0; status == MICS_OK && mics_pickle_next(&groups, &none, &group); g++) {
        struct mics_pickle_iterator pairs = mics_pickle_begin(pickle, group);

        if (zero->stage != 3)
            at = 0;
        while (status == MICS_OK && mics_pickle_next(&pairs, &key, &node)) {
            const char *name = mics_pickle_text(pickle, key);

            status = name ? add_parameter(zero, g, name, node, &at)
                          : reject(zero, zero->model_path, "a parameter without a name");
        }
    }
    return status;
}

enum mics_status foreign_open_deepspeed(struct tensor_list *list, const char *path)
{
    struct zero zero = {.list = list};
    enum mics_status status = mics_path_format(list->hf->folder, list->err, "%s", path);

    if (status != MICS_OK)
        return status;
    if (!foreign_find_deepspeed(path, zero.folder))
        return mics_err_set(list->err, MICS_ERR_FORMAT, "%s: no checkpoint of DeepSpeed", path);
    zero.universal = !has_states(zero.folder);
    if (zero.universal)
        mics_raise_open_files(); /* three for each parameter */
    else
        status = read_form(&zero);
    if (status == MICS_OK)
        status = open_model(&zero);
    if (status == MICS_OK && !zero.universal) {
        zero.rank_count = (uint32_t)zero.partitions;
        zero.ranks = calloc(zero.rank_count, sizeof *zero.ranks);
        status = zero.ranks ? MICS_OK : mics_err_nomem(list->err);
    }
    for (uint32_t r = 0; r < zero.rank_count && status == MICS_OK; r++)
        status = read_rank(&zero, r);
    if (status == MICS_OK)
        status = add_parameters(&zero);
    for (uint32_t r = 0; zero.ranks && r < zero.rank_count; r++)
        for (int state = 0; state < STATE_STEP; state++)
            free(zero.ranks[r].flats[state]);
    free(zero.ranks);
    mics_torch_file_close(&zero.model);
    return status;
}
