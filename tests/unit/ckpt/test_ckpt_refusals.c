/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_refusals.c - checkpoints that do not fit, or are damaged, and ranks that fail while
 * they save. */
#include "ckpt_ranks.h"

#include <unistd.h>

static void another_optimizer_is_refused(void)
{
    plain_save(2);
    loads_with(mics2, 1, 2, 2, MICS_ERR_FORMAT, "it is of AdamW");
    loads_with(mics2, 1, 3, 2, MICS_OK, "");
}

/* Load step 2 into a model of this configuration. */
static void another_model(const struct mics_model_config *config, const char *words)
{
    struct mics_model *old = model;

    CHECK_INT(mics_model_new(config, &model, NULL), MICS_OK);
    loads_with(mics2, 1, 3, 2, MICS_ERR_FORMAT, words);
    mics_model_free(model);
    model = old;
}

static void another_model_is_refused_with_all_tensors_that_differ(void)
{
    struct mics_model_config config = model->config;

    plain_save(2);
    config.n_head = 1;
    another_model(&config, "n_head 2, the plan's 1");
    config = model->config;
    config.n_inner = 60;
    another_model(&config, "n_inner 80, the plan's 60");
    another_model(&config, "h.*.mlp.c_fc.weight is [20, 80], not [20, 60] (2)");
    another_model(&config, "h.*.mlp.c_fc.bias is [80], not [60] (2)");
    another_model(&config, "h.*.mlp.c_proj.weight is [80, 20], not [60, 20] (2)");
    config = model->config;
    config.n_layer = 3;
    another_model(&config, "h.2.ln_1.weight is missing");
    config.n_layer = 1;
    another_model(&config, "h.1.mlp.c_proj.bias is not in the model");
}

static void a_rank_that_fails_fails_all_and_leaves_what_was_there(void)
{
    struct rank ranks[RANKS] = {
        {.step = 4}, {.step = 4, .fail_take = true}, {.step = 4}, {.step = 4}};

    plain_save(3);
    run(ranks, mics2, 1);
    for (int i = 0; i < RANKS; i++) {
        CHECK_INT(ranks[i].status, MICS_ERR_DEVICE);
        CHECK_STR(ranks[i].err.text, "rank 1: the device is gone");
    }
    CHECK_INT(entries(".tmp."), 0);
    CHECK_INT(entries("step-000004"), 0);
    loads_with(mics2, 1, 3, 3, MICS_OK, "");
}

static void numbers_that_are_not_finite_are_not_saved(void)
{
    struct rank ranks[RANKS] = {{.step = 5, .spoil = true}, {.step = 5}, {.step = 5}, {.step = 5}};

    run(ranks, mics2, 1);
    CHECK_INT(ranks[2].status, MICS_ERR_DEVICE);
    CHECK_STR(ranks[2].err.text, "h.0.param holds numbers that are not finite");
    CHECK_INT(entries("step-000005"), 0);
}

static void damage_is_found_before_anything_is_loaded_by_another_shape(void)
{
    char path[MICS_PATH_MAX];
    FILE *file;

    plain_save(7);
    in_folder(path, "latest/shard-00001.safetensors");
    file = fopen(path, "r+");
    fseek(file, -1, SEEK_END);
    fputc(1, file);
    fclose(file);
    struct rank ranks[RANKS] = {{.step = 7, .load = true},
                                {.step = 7, .load = true},
                                {.step = 7, .load = true},
                                {.step = 7, .load = true}};
    for (uint32_t segments = 2; segments >= 1; segments--) {
        run(ranks, mics2, segments);
        for (int i = 0; i < RANKS; i++) {
            CHECK_INT(ranks[i].status, MICS_ERR_FORMAT);
            CHECK(strstr(ranks[i].err.text, "shard-00001.safetensors: is damaged") != NULL);
        }
        CHECK((ranks[1].put == 0) == (segments == 2));
    }
    CHECK_INT(truncate(path, 4096), 0);
    run(ranks, mics2, 1);
    CHECK(strstr(ranks[0].err.text, "has 4096 bytes, the manifest says") != NULL);
    unlink(path);
    run(ranks, mics2, 1);
    CHECK(strstr(ranks[0].err.text, "No such file") != NULL);
    in_folder(path, "latest/manifest.mp");
    CHECK_INT(truncate(path, 100), 0);
    loads_with(mics2, 1, 3, 7, MICS_ERR_FORMAT, "manifest.mp");
    unlink(path);
    loads_with(mics2, 1, 3, 7, MICS_ERR_IO, "manifest.mp");
}

/* In each byte of the manifest, one bit after the other. */
static void a_flipped_bit_anywhere_in_the_manifest_is_noticed(void)
{
    char path[MICS_PATH_MAX], *data = NULL;
    struct mics_err err = {""};
    size_t size = 0, missed = 0;

    plain_save(7);
    in_folder(path, "latest/manifest.mp");
    CHECK_INT(mics_file_read(path, 1 << 20, &data, &size, &err), MICS_OK);
    for (size_t i = 0; i < size; i++) {
        struct mics_manifest manifest = {0};
        json_t *doc = NULL;

        data[i] ^= (char)(1 << i % 8);
        if (mics_doc_decode(data, size, &doc, &err) == MICS_OK &&
            mics_manifest_from_doc(doc, &manifest, &err) == MICS_OK)
            missed++;
        data[i] ^= (char)(1 << i % 8);
        mics_manifest_free(&manifest);
        json_decref(doc);
    }
    printf("# %zu bytes\n", size);
    CHECK(size > 500);
    CHECK_INT(missed, 0);
    free(data);
}

/* Without a history, which is optional in every document. */
#define COUNTS "'v':2,'step':1,'samples':1,'since':{'step':0,'samples':0},'plan':{},'training':{},"

static void a_manifest_with_wrong_members_is_refused_with_their_path(void)
{
    static const struct {
        const char *members, *words;
        bool sealed;
    } bad[] = {
        {"'v':3", "newer", false},
        {"'v':1", "'mics.checkpoint' of version 1: this mics reads version 2", false},
        {"'v':2", "xxh64", false},
        {"'v':2,'xxh64':'0123456789abcdef'", "damaged", false},
        {"'v':2,'step':9,'samples':35,'since':{'step':5,'samples':20},'plan':{'global_batch':4}",
         "samples: 4 steps of 4 sequences do not make 15", true},
        {"'v':2,'step':-1", "step", true},
        {"'v':2,'step':1,'samples':1", "since: missing", true},
        {COUNTS "'files':[]", "files", true},
        {COUNTS "'files':[{'name':'../x','bytes':1,'xxh64':'0123456789abcdef'}]", "files[0].name",
         true},
        {COUNTS "'files':[{'name':'shard-00000.safetensors','bytes':1,'xxh64':'123'}]",
         "files[0].xxh64", true},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mics_manifest manifest;
        struct mics_err err = {""};
        char text[512];

        snprintf(text, sizeof text, "{'kind':'mics.checkpoint',%s}", bad[i].members);
        for (char *c = text; *c; c++)
            if (*c == '\'')
                *c = '"';
        json_t *doc = json_loads(text, 0, NULL);
        CHECK(doc != NULL);
        if (bad[i].sealed)
            CHECK_INT(mics_manifest_seal(doc, &err), MICS_OK);
        CHECK_INT(mics_manifest_from_doc(doc, &manifest, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, bad[i].words) != NULL);
        if (!strstr(err.text, bad[i].words))
            printf("# said: %s\n", err.text);
        json_decref(doc);
    }
}

int main(void)
{
    begin_ckpt();
    TAP_RUN(another_optimizer_is_refused);
    TAP_RUN(another_model_is_refused_with_all_tensors_that_differ);
    TAP_RUN(a_rank_that_fails_fails_all_and_leaves_what_was_there);
    TAP_RUN(numbers_that_are_not_finite_are_not_saved);
    TAP_RUN(damage_is_found_before_anything_is_loaded_by_another_shape);
    TAP_RUN(a_flipped_bit_anywhere_in_the_manifest_is_noticed);
    TAP_RUN(a_manifest_with_wrong_members_is_refused_with_their_path);
    return end_ckpt();
}
