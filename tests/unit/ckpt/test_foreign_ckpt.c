/* SPDX-License-Identifier: Apache-2.0 */
/* test_foreign_ckpt.c - DeepSpeed's checkpoints of tests/cli/foreign, number by number, and what is
 * refused. expected.txt has what DeepSpeed's zero_to_fp32 and the states of its optimizer hold. */
#include "tap.h"

#include "base/dir.h"
#include "base/file.h"
#include "ckpt/foreign/foreign.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES "tests/cli/foreign"

static const struct mics_hf_tensor *find(const struct mics_hf *hf, const char *name, uint32_t state)
{
    for (size_t i = 0; i < hf->tensor_count; i++)
        if (hf->tensors[i].state == state && strcmp(hf->tensors[i].header->name, name) == 0)
            return &hf->tensors[i];
    return NULL;
}

/* Are the numbers of a tensor those of a text in hexadecimal? */
static bool is_equal(const struct mics_hf *hf, const struct mics_hf_tensor *tensor, const char *hex)
{
    struct mics_err err;
    unsigned char bytes[4096];
    size_t size = 0;

    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        struct mics_extent piece = tensor->pieces[i];

        piece.dtype = MICS_STORAGE_F32;
        if (piece.start * 4 != size || size + piece.count * 4 > sizeof bytes ||
            mics_store_read_extent(&hf->store, &piece, bytes + size, &err) != MICS_OK)
            return false;
        size += piece.count * 4;
    }
    for (size_t i = 0; i < size; i++) {
        char two[3];

        snprintf(two, sizeof two, "%02x", bytes[i]);
        if (strncmp(hex + 2 * i, two, 2) != 0)
            return false;
    }
    return size > 0 && strcspn(hex + 2 * size, "\n") == 0;
}

static void check_deepspeed(const char *folder, const char *inside)
{
    const char *const paths[] = {inside};
    char path[MICS_PATH_MAX], *text = NULL;
    struct mics_err err = {""};
    struct mics_hf hf;
    size_t size, lines = 0;

    mics_path_format(path, NULL, "%s/expected.txt", folder);
    CHECK_INT(mics_foreign_recognize(paths, 1), MICS_FOREIGN_DEEPSPEED);
    CHECK_INT(mics_foreign_open(MICS_FOREIGN_DEEPSPEED, paths, 1, &hf, &err), MICS_OK);
    CHECK_INT(mics_file_read(path, 1 << 20, &text, &size, &err), MICS_OK);
    if (!text)
        return;
    CHECK_INT(hf.states, 3);
    CHECK_INT(hf.step, 3);
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char name[64];
        unsigned state;
        int at = 0;

        CHECK(sscanf(line, "%63s %u %n", name, &state, &at) == 2);
        const struct mics_hf_tensor *tensor = find(&hf, name, state);
        CHECK(tensor && is_equal(&hf, tensor, line + at));
        lines++;
    }
    CHECK_INT(lines, hf.tensor_count);
    CHECK_INT(lines, 18);
    free(text);
    mics_hf_close(&hf);
}

static void each_number_of_deepspeed_is_read(void)
{
    check_deepspeed(FILES "/ds0198-zero1-bf16-2", FILES "/ds0198-zero1-bf16-2");
    check_deepspeed(FILES "/ds0192-mics2-bf16-4", FILES "/ds0192-mics2-bf16-4");
    check_deepspeed(FILES "/ds0192-mics2-bf16-4", FILES "/ds0192-mics2-bf16-4/global_step3");
}

/* Open a copy of universal-mics in which a file of zero/ is another one, or missing. */
static enum mics_status open_changed_universal(const char *changed, const char *by)
{
    char folder[] = "/tmp/mics-foreign-XXXXXX", command[1024];
    const char *const paths[] = {folder};
    struct mics_err err = {""};
    struct mics_hf hf;

    CHECK(mkdtemp(folder) != NULL);
    if (by)
        snprintf(command, sizeof command,
                 "cp -r " FILES "/universal-mics/. %s && cp %s/zero/%s %s/zero/%s", folder, folder,
                 by, folder, changed);
    else
        snprintf(command, sizeof command, "cp -r " FILES "/universal-mics/. %s && rm %s/zero/%s",
                 folder, folder, changed);
    CHECK_INT(system(command), 0);
    CHECK_INT(mics_foreign_recognize(paths, 1), MICS_FOREIGN_DEEPSPEED);
    const enum mics_status status = mics_foreign_open(MICS_FOREIGN_DEEPSPEED, paths, 1, &hf, &err);

    CHECK(status == MICS_OK || (strstr(err.text, changed) && !strchr(err.text, '\n')));
    mics_hf_close(&hf);
    mics_file_remove_tree(folder, NULL);
    return status;
}

/* Exchange rows and columns of fc.weight [3, 5] in a copy of universal-zero1, and open that. */
static void transposed_universal_parameters_are_refused(void)
{
    static const char sizes[] = {'K', 3, 'K', 5}, stride[] = {'K', 5, 'K', 1};
    char folder[] = "/tmp/mics-foreign-XXXXXX", text[1 << 14];
    const char *const paths[] = {folder};
    struct mics_err err = {""};
    struct mics_hf hf;

    CHECK(mkdtemp(folder) != NULL);
    snprintf(text, sizeof text, "cp -r " FILES "/universal-zero1/. %s", folder);
    CHECK_INT(system(text), 0);
    snprintf(text, sizeof text, "%s/zero/fc.weight/fp32.pt", folder);
    FILE *file = fopen(text, "r+b");
    const size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    char *at = memmem(text, size, sizes, sizeof sizes);
    char *next = at ? memmem(at, size - (size_t)(at - text), stride, sizeof stride) : NULL;

    CHECK(next != NULL && next - at < 16);
    if (next) {
        at[1] = 5;
        at[3] = next[1] = 3;
        rewind(file);
        CHECK(fwrite(text, 1, size, file) == size);
    }
    if (file)
        CHECK(fclose(file) == 0);
    CHECK_INT(mics_foreign_open(MICS_FOREIGN_DEEPSPEED, paths, 1, &hf, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "fc.weight/fp32.pt: its shape is not that of param_shapes") != NULL);
    mics_hf_close(&hf);
    mics_file_remove_tree(folder, NULL);
}

static void universal_checkpoints_have_the_numbers_of_those_they_were_made_of(void)
{
    char folder[] = "/tmp/mics-foreign-XXXXXX", path[MICS_PATH_MAX], *target;

    check_deepspeed(FILES "/ds0198-zero1-bf16-2", FILES "/universal-zero1");
    check_deepspeed(FILES "/ds0192-mics2-bf16-4", FILES "/universal-mics");
    /* A file that is missing, and one of another length. */
    CHECK_INT(open_changed_universal("ln.bias/exp_avg.pt", NULL), MICS_ERR_FORMAT);
    CHECK_INT(open_changed_universal("ln.bias/fp32.pt", "fc.bias/fp32.pt"), MICS_ERR_FORMAT);
    CHECK_INT(open_changed_universal("ln.bias/fp32.pt", "ln.weight/fp32.pt"), MICS_OK);
    /* Named by latest_universal. */
    CHECK(mkdtemp(folder) != NULL);
    mics_path_format(path, NULL, "%s/latest_universal", folder);
    FILE *out = fopen(path, "wb");
    CHECK(out && fputs("step\n", out) >= 0 && fclose(out) == 0);
    target = realpath(FILES "/universal-mics", NULL);
    mics_path_format(path, NULL, "%s/step", folder);
    CHECK(target && symlink(target, path) == 0);
    free(target);
    check_deepspeed(FILES "/ds0192-mics2-bf16-4", folder);
    mics_file_remove_tree(folder, NULL);
}

/* A generator that is the same everywhere. */
static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Change a file of structure: bytes, runs of bytes, its length, numbers that look like sizes. */
static void mutate(char *data, size_t *size, uint64_t *seed)
{
    const size_t at = next(seed) % *size;

    switch (next(seed) % 5) {
    case 0:
        data[at] = (char)next(seed);
        break;
    case 1:
        data[at] ^= (char)(1 << next(seed) % 8);
        break;
    case 2:
        *size = at + 1;
        break;
    case 3:
        for (size_t i = at; i < at + 4 && i < *size; i++)
            data[i] = (char)(next(seed) % 2 ? 0xff : 0);
        break;
    default:
        memmove(data + at, data + next(seed) % *size, 1 + next(seed) % 16 < *size - at ? 1 : 0);
        memset(data + at, "(.RcQb\x85"[next(seed) % 7], 1);
    }
}

/* Copy a folder of files; returns how many there are. */
static int copy_folder(const char *from, const char *to, const char *changed, uint64_t *seed)
{
    struct mics_dir dir;
    const char *name;
    int files = 0;

    mics_file_make_folders(to, NULL);
    if (mics_dir_open(from, &dir, NULL) != MICS_OK)
        return 0;
    while ((name = mics_dir_next(&dir)) != NULL) {
        char path[MICS_PATH_MAX], *data = NULL;
        size_t size = 0;

        if (name[0] == '.' && strcmp(name, ".metadata") != 0)
            continue;
        mics_path_format(path, NULL, "%s/%s", from, name);
        if (mics_file_read(path, 1 << 20, &data, &size, NULL) != MICS_OK)
            continue;
        if (changed && strcmp(name, changed) == 0)
            for (uint64_t n = 1 + next(seed) % 4; n > 0 && size > 0; n--)
                mutate(data, &size, seed);
        mics_path_format(path, NULL, "%s/%s", to, name);
        FILE *out = fopen(path, "wb");
        if (out) {
            files += fwrite(data, 1, size, out) == size;
            fclose(out);
        }
        free(data);
    }
    mics_dir_close(&dir, MICS_OK, NULL);
    return files;
}

/* Whatever is changed in a checkpoint: it is read, or refused by one line; nothing crashes. */
static void damaged_checkpoints_of_others_are_refused_in_one_line(void)
{
    static const struct {
        const char *folder, *file; /* in which a file is changed */
        enum mics_foreign_format format;
        int times;
        bool alone; /* the file is opened, not the folder */
    } cases[] = {
        {FILES "/dcp", ".metadata", MICS_FOREIGN_DCP, 200, false},
        {FILES "/dcp", "__1_0.distcp", MICS_FOREIGN_DCP, 100, false},
        {FILES "/ds0198-zero1-bf16-2/global_step3",
         "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", MICS_FOREIGN_DEEPSPEED, 150, false},
        {FILES "/ds0192-mics2-bf16-4/global_step3", "zero_pp_rank_0_mp_rank_00_model_states.pt",
         MICS_FOREIGN_DEEPSPEED, 150, false},
        {FILES, "weights.pt", MICS_FOREIGN_TORCH_SAVE, 150, true},
        {FILES, "trainer.pt", MICS_FOREIGN_TORCH_SAVE, 150, true},
        {FILES "/dcp-safetensors", "shard-00002-model-00001-of-00001.safetensors",
         MICS_FOREIGN_DCP_SAFETENSORS, 200, false},
    };
    char folder[] = "/tmp/mics-foreign-XXXXXX";
    uint64_t seed = 1;
    int refused = 0, all = 0;

    CHECK(mkdtemp(folder) != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < (TAP_SANITIZED ? cases[i].times / 2 : cases[i].times); k++) {
            char path[MICS_PATH_MAX];
            const char *const paths[] = {path};
            struct mics_err err = {""};
            struct mics_hf hf;

            mics_path_format(path, NULL, "%s%s%s", folder, cases[i].alone ? "/" : "",
                             cases[i].alone ? cases[i].file : "");
            CHECK(copy_folder(cases[i].folder, folder, cases[i].file, &seed) > 1);
            if (mics_foreign_open(cases[i].format, paths, 1, &hf, &err) != MICS_OK) {
                CHECK(err.text[0] != '\0' && !strchr(err.text, '\n'));
                refused++;
            }
            mics_hf_close(&hf);
            all++;
        }
    printf("# %d of %d were refused\n", refused, all);
    CHECK(all >= 500 && refused > all / 3);
    mics_file_remove_tree(folder, NULL);
}

/* A pickle of .metadata that is put together. */
struct metadata {
    char data[1 << 20];
    size_t size;
};

static void put(struct metadata *to, const char *bytes, size_t size)
{
    memcpy(to->data + to->size, bytes, size);
    to->size += size;
}

#define PUT(to, literal) put(to, literal, sizeof(literal) - 1)

static void put_text(struct metadata *to, const char *text)
{
    const size_t length = strlen(text);
    const char head[] = {'X', (char)length, (char)(length >> 8), 0, 0};

    put(to, head, sizeof head);
    put(to, text, length);
}

#define METADATA "ctorch.distributed.checkpoint.metadata\n"

/* Metadata up to its dict of tensors. Values of the memo: 0, a name; 1, a tensor of no numbers,
 * without chunks. */
static void begin_metadata(struct metadata *to, const char *name)
{
    to->size = 0;
    PUT(to, "\x80\2" METADATA "Metadata\n)\x81}(");
    put_text(to, "name");
    put_text(to, name);
    PUT(to, "q\0");
    put_text(to, "tensor");
    PUT(to, METADATA "TensorStorageMetadata\n)\x81}(");
    put_text(to, "properties");
    PUT(to, METADATA "TensorProperties\n)\x81}");
    put_text(to, "dtype");
    PUT(to, "ctorch\nfloat32\nsb");
    put_text(to, "size");
    PUT(to, "K\0\x85");
    put_text(to, "chunks");
    PUT(to, "]ubq\1");
    put_text(to, "state_dict_metadata");
    PUT(to, "}(");
}

/* Write it, and open the folder that it describes. */
static enum mics_status open_metadata(struct metadata *from, struct mics_err *err)
{
    char folder[] = "/tmp/mics-foreign-XXXXXX", path[MICS_PATH_MAX];
    const char *const paths[] = {folder};
    struct mics_hf hf = {.file_count = 0};
    enum mics_status status = MICS_OK;

    PUT(from, "u");
    put_text(from, "storage_data");
    PUT(from, "}ub.");
    CHECK(mkdtemp(folder) != NULL);
    mics_path_format(path, NULL, "%s/.metadata", folder);
    FILE *out = fopen(path, "wb");
    CHECK(out != NULL);
    if (out) {
        CHECK(fwrite(from->data, 1, from->size, out) == from->size);
        fclose(out);
        CHECK_INT(mics_foreign_recognize(paths, 1), MICS_FOREIGN_DCP);
        status = mics_foreign_open(MICS_FOREIGN_DCP, paths, 1, &hf, err);
        mics_hf_close(&hf);
    }
    mics_file_remove_tree(folder, NULL);
    return status;
}

static void metadata_of_no_files_and_names_without_end_are_refused(void)
{
    static struct metadata metadata;
    char name[600];
    struct mics_err err = {""};

    begin_metadata(&metadata, "model.norm.weight");
    PUT(&metadata, "h\0h\1");
    CHECK_INT(open_metadata(&metadata, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "has no tensors of a model") != NULL);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    begin_metadata(&metadata, name);
    PUT(&metadata, "h\0h\1");
    CHECK_INT(open_metadata(&metadata, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "its name is too long") != NULL);
    /* 500 KB that would be 60 MB of names. */
    name[500] = '\0';
    begin_metadata(&metadata, name);
    for (int i = 0; i < 120000; i++)
        PUT(&metadata, "h\0h\1");
    CHECK_INT(open_metadata(&metadata, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "names of tensors are too long") != NULL);
}

int main(void)
{
    TAP_RUN(each_number_of_deepspeed_is_read);
    TAP_RUN(universal_checkpoints_have_the_numbers_of_those_they_were_made_of);
    TAP_RUN(transposed_universal_parameters_are_refused);
    TAP_RUN(metadata_of_no_files_and_names_without_end_are_refused);
    TAP_RUN(damaged_checkpoints_of_others_are_refused_in_one_line);
    return tap_done();
}
