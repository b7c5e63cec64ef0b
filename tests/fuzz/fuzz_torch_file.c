/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_torch_file.c - libFuzzer target for the reader of files of torch.save.
 *
 * The input is such a file, which is written to memory. Each tensor that is described, as the whole
 * value or one of its items, must lie within the file.
 *
 * sources: lib/base lib/doc/pickle.c lib/doc/pickle_values.c lib/ckpt/format/torch_file.c
 */
#include "ckpt/format/torch_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failure here is the bug that is looked for. */
static void must(int condition)
{
    if (!condition)
        abort();
}

static void describe(const struct mics_torch_file *file, uint32_t node, size_t size)
{
    struct mics_err err = {.text = ""};
    struct mics_torch_tensor tensor;
    uint64_t count = 0;

    if (mics_torch_tensor(file, node, &tensor, &err) != MICS_OK) {
        must(err.text[0] != '\0' && !strchr(err.text, '\n'));
        return;
    }
    must(mics_torch_is_tensor(file, node) && tensor.rank <= MICS_TORCH_MAX_RANK);
    must(mics_torch_count(tensor.shape, tensor.rank, &count) && count == tensor.count);
    must(tensor.offset <= size && tensor.count <= size - tensor.offset);
}

static void read_file(int fd, size_t size)
{
    struct mics_err err = {.text = ""};
    struct mics_torch_file file;

    if (mics_torch_file_open(fd, 0, size, &file, &err) != MICS_OK) {
        must(err.text[0] != '\0' && !strchr(err.text, '\n'));
    } else {
        const uint32_t root = mics_pickle_root(file.pickle);
        struct mics_pickle_iterator items = mics_pickle_begin(file.pickle, root);
        uint32_t key, value;

        describe(&file, root, size);
        for (int i = 0; i < 64 && mics_pickle_next(&items, &key, &value); i++)
            describe(&file, value, size);
    }
    mics_torch_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("torch_file", MFD_CLOEXEC);

    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    read_file(fd, size);
    close(fd);
    return 0;
}
