/* SPDX-License-Identifier: Apache-2.0 */
/* torch_save.c - the state dict of a model in files of torch.save. */
#include "ckpt/foreign/foreign_internal.h"

#include <string.h>

/* Members in which trainers keep the state dict of the model, the most specific first. */
static const char *const members[] = {"model_state_dict", "state_dict", "module", "model"};

/* Are there tensors among the values of a dict? */
static bool has_tensors(const struct mics_torch_file *file, uint32_t dict)
{
    struct mics_pickle_iterator pairs = mics_pickle_begin(file->pickle, dict);
    uint32_t key, value;

    while (pairs.pairs && mics_pickle_next(&pairs, &key, &value))
        if (mics_pickle_text(file->pickle, key) && mics_torch_is_tensor(file, value))
            return true;
    return false;
}

/* The state dict of the model: the value itself, or a member of it. 0: there is none. */
static uint32_t find_state_dict(const struct mics_torch_file *file)
{
    const uint32_t root = mics_pickle_root(file->pickle);

    if (has_tensors(file, root))
        return root;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const uint32_t value = mics_pickle_get(file->pickle, root, members[i]);

        if (has_tensors(file, value))
            return value;
    }
    return 0;
}

static enum mics_status add_tensor(struct tensor_list *list, const struct mics_torch_file *file,
                                   uint32_t index, const char *name, uint32_t value)
{
    struct mics_torch_tensor tensor;
    size_t added;
    enum mics_status status = mics_torch_tensor(file, value, &tensor, list->err);

    if (status != MICS_OK) {
        mics_err_prefix(list->err, "tensor '%.128s'", name);
        return status;
    }
    status = foreign_add_tensor(list, name, tensor.dtype, tensor.shape, tensor.rank, STATE_PARAM,
                                &added);
    return status == MICS_OK && tensor.count > 0
               ? foreign_add_piece(list, added, index, 0, tensor.count, tensor.offset)
               : status;
}

static enum mics_status add_state_dict(struct tensor_list *list, const struct mics_torch_file *file,
                                       uint32_t index)
{
    const uint32_t dict = find_state_dict(file);
    struct mics_pickle_iterator pairs = mics_pickle_begin(file->pickle, dict);
    enum mics_status status = MICS_OK;
    uint32_t key, value;

    if (!dict)
        return mics_err_set(list->err, MICS_ERR_FORMAT,
                            "holds no state dict of a model: none of its values, and of those of "
                            "model, module, state_dict and model_state_dict, is a tensor");
    while (status == MICS_OK && mics_pickle_next(&pairs, &key, &value)) {
        const char *name = mics_pickle_text(file->pickle, key);

        if (name && mics_torch_is_tensor(file, value))
            status = add_tensor(list, file, index, name, value);
    }
    return status;
}

enum mics_status foreign_open_torch_save(struct tensor_list *list, const char *const *paths,
                                         size_t count)
{
    enum mics_status status = MICS_OK;

    for (size_t i = 0; i < count && status == MICS_OK; i++) {
        struct mics_torch_file file = {0};
        uint32_t index;

        status = foreign_add_file(list, paths[i], paths[i], &index);
        if (status != MICS_OK)
            return status;
        status = mics_torch_file_open(list->hf->store.files[index].fd, 0,
                                      list->hf->store.files[index].bytes, &file, list->err);
        if (status == MICS_OK)
            status = add_state_dict(list, &file, index);
        if (status != MICS_OK)
            mics_err_prefix(list->err, "%s", paths[i]);
        mics_torch_file_close(&file);
    }
    return status;
}
