/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_files.c - a tokenizer's files in documents, checkpoints and folders. */
#include "ckpt_ranks.h"
#include "missing.h"

#include "ckpt/tokenizer_files.h"

#include <sys/stat.h>

static void put_file(const char *name, const char *text)
{
    char path[MICS_PATH_MAX];
    FILE *out;

    in_folder(path, name);
    out = fopen(path, "w");
    fputs(text, out);
    fclose(out);
}

static bool has(const struct mics_tokenizer_files *files, const char *name, const char *text)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->items[i].name, name) == 0)
            return files->items[i].size == strlen(text) &&
                   memcmp(files->items[i].bytes, text, strlen(text)) == 0;
    return false;
}

static void a_folder_s_tokenizer_is_found_with_what_is_read_beside_it(void)
{
    struct mics_tokenizer_files files = {0};
    struct mics_err err = {""};

    put_file("chat_template.jinja", "{{ }}");
    put_file("config.json", "{}");
    CHECK_INT(mics_tokenizer_files_find(&files, folder, &err), MICS_OK);
    CHECK_INT(files.count, 1);
    CHECK(!mics_tokenizer_files_make_ids(&files));
    put_file("tokenizer.json", "{1}");
    put_file("own.tiktoken", "QQ== 0\n");
    CHECK_INT(mics_tokenizer_files_find(&files, folder, &err), MICS_OK);
    CHECK_INT(files.count, 3);
    CHECK(has(&files, "chat_template.jinja", "{{ }}") && has(&files, "tokenizer.json", "{1}") &&
          has(&files, "own.tiktoken", "QQ== 0\n"));
    CHECK(mics_tokenizer_files_make_ids(&files));
    CHECK_INT(mics_tokenizer_files_bytes(&files), 15);
    CHECK_INT(mics_tokenizer_files_add(&files, "tokenizer.json", "other", 5, &err), MICS_OK);
    CHECK(has(&files, "tokenizer.json", "{1}"));
    CHECK_INT(mics_tokenizer_files_find(&files, missing_path("x"), &err), MICS_ERR_IO);
    mics_tokenizer_files_free(&files);
}

static void files_come_back_as_they_were_listed(void)
{
    struct mics_tokenizer_files files = {0}, back = {0};
    struct mics_err err = {""};
    char sub[MICS_PATH_MAX];

    in_folder(sub, "copy");
    mkdir(sub, 0777);
    CHECK_INT(mics_tokenizer_files_find(&files, folder, &err), MICS_OK);
    CHECK_INT(mics_tokenizer_files_write(&files, sub, &err), MICS_OK);
    json_t *map = json_pack("{s:o}", "files", mics_tokenizer_files_to_json(&files));

    CHECK_INT(mics_tokenizer_files_load(&back, NULL, sub, &err), MICS_OK);
    CHECK_INT(back.count, 0);
    CHECK_INT(mics_tokenizer_files_load(&back, map, sub, &err), MICS_OK);
    CHECK_INT(back.count, files.count);
    CHECK(has(&back, "tokenizer.json", "{1}"));
    mics_tokenizer_files_free(&back);
    put_file("copy/tokenizer.json", "{2}");
    CHECK_INT(mics_tokenizer_files_load(&back, map, sub, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "copy/tokenizer.json: damaged: 3 bytes") != NULL);
    mics_tokenizer_files_free(&back);
    in_folder(sub, "copy/tokenizer.json");
    CHECK_INT(remove(sub), 0);
    in_folder(sub, "copy");
    CHECK_INT(mics_tokenizer_files_load(&back, map, sub, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "copy/tokenizer.json: No such file") != NULL);
    mics_tokenizer_files_free(&back);
    mics_tokenizer_files_free(&files);
    json_decref(map);
}

static void names_that_are_no_tokenizer_s_are_refused(void)
{
    static const char *const names[] = {
        "",
        ".",
        "..",
        "../tokenizer.json",
        "/etc/passwd",
        "config.json",
        "manifest.mp",
        "a\nb",
        "shard-00000.safetensors",
        "model.safetensors.index.json",
    };
    struct mics_err err = {""};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mics_tokenizer_files files = {0};
        json_t *map = json_pack("{s:[{s:s,s:i,s:s}]}", "files", "name", names[i], "bytes", 1,
                                "xxh64", "0000000000000000");

        CHECK_INT(mics_tokenizer_files_load(&files, map, folder, &err), MICS_ERR_FORMAT);
        CHECK(strstr(err.text, "files[0].name: '") == err.text);
        mics_tokenizer_files_free(&files);
        json_decref(map);
    }
}

static void every_checkpoint_gets_the_files(void)
{
    struct mics_tokenizer_files files = {0}, back = {0};
    struct rank ranks[RANKS] = {{.step = 3}, {.step = 3}, {.step = 3}, {.step = 3}};
    struct mics_manifest manifest = {0};
    struct mics_err err = {""};
    char path[MICS_PATH_MAX];
    json_t *doc = NULL;

    CHECK_INT(mics_tokenizer_files_find(&files, folder, &err), MICS_OK);
    for (int i = 0; i < RANKS; i++)
        ranks[i].tokenizer = &files;
    run(ranks, mics2, 1);
    CHECK_INT(ranks[0].status, MICS_OK);
    in_folder(path, "step-000003/manifest.mp");
    CHECK_INT(mics_doc_read_file(path, &doc, &err), MICS_OK);
    CHECK_INT(mics_manifest_from_doc(doc, &manifest, &err), MICS_OK);
    in_folder(path, "step-000003");
    CHECK_INT(mics_tokenizer_files_load(&back, manifest.tokenizer, path, &err), MICS_OK);
    CHECK_INT(back.count, files.count);
    CHECK(has(&back, "tokenizer.json", "{1}"));
    mics_manifest_free(&manifest);
    json_decref(doc);
    loads_with(mics2, 1, 3, 3, MICS_OK, "");
    mics_tokenizer_files_free(&files);
    mics_tokenizer_files_free(&back);
}

int main(void)
{
    begin_ckpt();
    TAP_RUN(a_folder_s_tokenizer_is_found_with_what_is_read_beside_it);
    TAP_RUN(files_come_back_as_they_were_listed);
    TAP_RUN(names_that_are_no_tokenizer_s_are_refused);
    TAP_RUN(every_checkpoint_gets_the_files);
    return end_ckpt();
}
