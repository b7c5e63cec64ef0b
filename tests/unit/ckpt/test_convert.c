/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert.c - conversions by ranges, over random shapes, sizes, segments and parts.
 *
 * Number i of a vector is a value that is unique to (vector, i), so that a misplaced number is
 * detected.
 */
#include "tap.h"

#include "base/file.h"
#include "base/philox.h"
#include "ckpt/convert/shards.h"
#include "ckpt/convert/target.h"
#include "ckpt/format/safetensors.h"
#include "ckpt/hf/hf.h"
#include "ckpt/shard_file.h"

#include <pthread.h> /* so that it runs under ThreadSanitizer, too */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNITS = 4, STATES = 3 };

static char folder[] = "/tmp/mics-test-convert.XXXXXX";

static float value(uint32_t vector, uint64_t i)
{
    return (float)(1 + vector) + (float)(i % 100003) / 262144;
}

static uint64_t draw(uint64_t seed, uint64_t index, uint64_t min, uint64_t max)
{
    return min + mics_philox_u64(seed, 77, index) % (max - min + 1);
}

/* A model of random units, of which only names and counts matter here, and how a run cuts it. */
struct setup {
    struct mics_unit units[UNITS];
    struct mics_model model;
    struct mics_plan_choice choice;
    struct mics_layout layouts[UNITS];
    struct mics_ckpt_layout form;
};

/* p shards of dense units and p_experts of the others. */
static void set_up(struct setup *s, uint64_t seed, uint32_t p, uint32_t p_experts,
                   uint32_t segments)
{
    const uint32_t ranks = p * p_experts;

    memset(s, 0, sizeof *s);
    s->choice.shapes[MICS_UNIT_DENSE] = (struct mics_shape){1, ranks, p, p, p};
    s->choice.shapes[MICS_UNIT_EXPERT] =
        (struct mics_shape){1, ranks, p_experts, p_experts, p_experts};
    for (uint32_t i = 0; i < UNITS; i++) {
        snprintf(s->units[i].name, sizeof s->units[i].name, "h.%u", i);
        s->units[i].count = draw(seed, i, 1, 5000);
        s->units[i].kind = i % 2 ? MICS_UNIT_EXPERT : MICS_UNIT_DENSE;
        s->layouts[i] = mics_layout_make(mics_choice_shape_of(&s->choice, &s->units[i]),
                                         s->units[i].count, segments, MICS_TENSOR_ALIGN);
    }
    s->model.units = s->units;
    s->model.unit_count = UNITS;
    s->form = (struct mics_ckpt_layout){.model = &s->model,
                                        .choice = &s->choice,
                                        .layouts = s->layouts,
                                        .states = STATES,
                                        .parts = 1};
}

/* One file with all vectors end to end, as bytes and as a store. */
static void make_source(const struct setup *s, const char *name, struct mics_store *store)
{
    char path[MICS_PATH_MAX];
    uint64_t offset = 0;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    store->table = calloc(UNITS * STATES, sizeof *store->table);
    for (uint32_t i = 0; i < UNITS * STATES; i++) {
        const uint64_t count = s->units[i / STATES].count;

        for (uint64_t j = 0; j < count; j++) {
            const float number = value(i, j);

            fwrite(&number, sizeof number, 1, out);
        }
        store->table[store->table_count++] =
            (struct mics_extent){.name = "tensor",
                                 .vector = mics_vector_of(i / STATES, i % STATES),
                                 .count = count,
                                 .offset = offset};
        offset += count * sizeof(float);
    }
    fclose(out);
    CHECK_INT(mics_store_add_file(store, path, NULL), MICS_OK);
}

/* What mics_target_write() made of a shard target, as a store. */
static void open_made(const struct setup *s, const struct mics_shard_target *made, const char *at,
                      struct mics_ckpt_table *table, struct mics_store *store)
{
    const size_t tensors = UNITS * STATES;
    char path[MICS_PATH_MAX];

    *table = (struct mics_ckpt_table){.states = STATES,
                                      .parts = 1,
                                      .shard_count = made->target.file_count,
                                      .unit_count = UNITS,
                                      .units = calloc(UNITS, sizeof *table->units)};
    for (uint32_t i = 0; i < UNITS; i++) {
        table->units[i].layout = s->layouts[i];
        table->units[i].first_shard =
            mics_ckpt_first_shard(&s->form, (int)mics_choice_groups(&s->choice, s->units[i].kind));
    }
    store->shards = table;
    store->tensor_names = calloc(tensors, sizeof *store->tensor_names);
    for (uint32_t i = 0; i < made->target.file_count; i++) {
        struct mics_safetensors header = {0};

        snprintf(path, sizeof path, "%.256s/%s", at, made->target.files[i].name);
        CHECK_INT(mics_store_add_file(store, path, NULL), MICS_OK);
        size_t at_tensor = 0;

        CHECK_INT(mics_safetensors_load(store->files[i].fd, store->files[i].bytes, &header, NULL),
                  MICS_OK);
        store->files[i].tensor_offsets = calloc(tensors, sizeof(uint64_t));
        for (size_t j = 0; j < tensors && at_tensor < header.count; j++)
            if (mics_ckpt_file_has(table, &table->units[j / STATES], i))
                store->files[i].tensor_offsets[j] =
                    header.data_offset + header.tensors[at_tensor++].begin;
        CHECK_INT(at_tensor, header.count);
        mics_safetensors_free(&header);
    }
}

/* Random ranges, and the padding behind the end. */
static void check_numbers(const struct setup *s, const struct mics_store *store, uint64_t seed)
{
    float *scratch = malloc(2 * MICS_STORE_CHUNK * sizeof *scratch), *got = malloc(6000 * 4);
    int wrong = 0;

    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t vector = (uint32_t)draw(seed, 100 + 3 * i, 0, UNITS * STATES - 1);
        const uint64_t total = s->units[vector / STATES].count;
        const uint64_t start = draw(seed, 101 + 3 * i, 0, total + 100);
        const uint64_t count = draw(seed, 102 + 3 * i, 0, total + 200 - start);

        CHECK_INT(mics_store_read(store, mics_vector_of(vector / STATES, vector % STATES), start,
                                  count, MICS_STORAGE_F32, got, scratch, NULL),
                  MICS_OK);
        for (uint64_t j = 0; j < count; j++) {
            const float want = start + j < total ? value(vector, start + j) : 0;

            wrong += memcmp(&got[j], &want, sizeof want) != 0;
        }
    }
    CHECK_INT(wrong, 0);
    free(scratch);
    free(got);
}

static enum mics_status make(const struct mics_store *from, struct mics_target *target,
                             const char *at, struct mics_err *err)
{
    struct mics_target_options options = {.host_ranks = 1};
    enum mics_status status = mics_comm_new_self(&options.comm, err);

    if (status == MICS_OK)
        status = mics_target_write(from, target, at, &options, err);
    mics_comm_free(options.comm);
    return status;
}

static void convert(const struct setup *s, const struct mics_store *from, const char *name,
                    struct mics_shard_target *made, struct mics_ckpt_table *table,
                    struct mics_store *to)
{
    char at[256];
    struct mics_err err = {""};

    snprintf(at, sizeof at, "%s/%s", folder, name);
    CHECK_INT(mics_file_make_folders(at, &err), MICS_OK);
    CHECK_INT(mics_shard_target_new(&s->form, made, &err), MICS_OK);
    CHECK_INT(make(from, &made->target, at, &err), MICS_OK);
    open_made(s, made, at, table, to);
}

static void numbers_are_in_their_places_for_any_shapes_and_back_again(void)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct setup a, b;
        struct mics_store source = {0}, shards = {0}, others = {0}, again = {0};
        struct mics_shard_target made[3];
        struct mics_ckpt_table tables[3];
        char name[4][32];

        for (int i = 0; i < 4; i++)
            snprintf(name[i], sizeof name[i], "%d-%u", i, (unsigned)seed);
        const uint32_t p = (uint32_t)draw(seed, 50, 1, 9), q = (uint32_t)draw(seed, 52, 1, 9);
        const bool two = seed % 2;

        set_up(&a, seed, p, two ? (uint32_t)draw(seed, 54, 1, 9) : p,
               (uint32_t)draw(seed, 51, 1, 4));
        set_up(&b, seed, q, two ? (uint32_t)draw(seed, 55, 1, 9) : q,
               (uint32_t)draw(seed, 53, 1, 4));
        make_source(&a, name[0], &source);
        convert(&a, &source, name[1], &made[0], &tables[0], &shards);
        check_numbers(&a, &shards, seed);
        convert(&b, &shards, name[2], &made[1], &tables[1], &others);
        check_numbers(&b, &others, seed + 1000);
        convert(&a, &others, name[3], &made[2], &tables[2], &again);
        for (uint32_t i = 0; i < made[0].target.file_count; i++)
            CHECK(made[0].target.files[i].sum.xxh64 == made[2].target.files[i].sum.xxh64 &&
                  made[0].target.files[i].sum.bytes == made[0].target.files[i].bytes);
        mics_store_close(&source);
        mics_store_close(&shards);
        mics_store_close(&others);
        mics_store_close(&again);
        for (int i = 0; i < 3; i++) {
            mics_shard_target_free(&made[i]);
            free(tables[i].units);
        }
    }
}

static void a_number_that_is_not_finite_stops_a_conversion_and_names_the_tensor(void)
{
    struct setup s;
    struct mics_store source = {0};
    struct mics_shard_target made;
    struct mics_err err = {""};
    const float bad = -1.0f / 0.0f;
    char path[MICS_PATH_MAX];

    set_up(&s, 3, 2, 2, 1);
    make_source(&s, "bad", &source);
    snprintf(path, sizeof path, "%s/bad", folder);
    FILE *file = fopen(path, "r+");
    fseek(file, 40, SEEK_SET);
    fwrite(&bad, sizeof bad, 1, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/bad-made", folder);
    CHECK_INT(mics_file_make_folders(path, &err), MICS_OK);
    CHECK_INT(mics_shard_target_new(&s.form, &made, &err), MICS_OK);
    CHECK_INT(make(&source, &made.target, path, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "'tensor' holds numbers that are not finite") != NULL);
    mics_shard_target_free(&made);
    mics_store_close(&source);
}

static void only_names_inside_the_folder_are_safe(void)
{
    static const char *const good[] = {
        "a", "model-00001-of-00002.safetensors", "a/b", "..a", "a..", "a//b", "a/", "./a", "."};
    static const char *const bad[] = {"",     "..",     "/a",   "a/../b", "a/..",
                                      "../a", "./../a", "a\\b", "a\nb"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(mics_hf_name_is_safe(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!mics_hf_name_is_safe(bad[i]));
}

static void a_single_file_does_not_replace_one_that_was_written_meanwhile(void)
{
    struct mics_output_folder out = {.single = true};
    struct mics_comm *comm = NULL;
    char path[MICS_PATH_MAX], text[8] = "";
    struct mics_err err = {""};

    CHECK_INT(mics_comm_new_self(&comm, &err), MICS_OK);
    snprintf(path, sizeof path, "%s/single", folder);
    for (int taken = 1; taken >= 0; taken--) {
        out.single = true;
        CHECK_INT(mics_output_folder_create(&out, comm, path, 1, false, &err), MICS_OK);
        CHECK_INT(mics_output_folder_write(&out, MICS_SINGLE_FILE, "ours", 4, &err), MICS_OK);
        FILE *file = taken ? fopen(path, "w") : NULL;

        if (file)
            CHECK(fputs("mine", file) >= 0 && fclose(file) == 0);
        CHECK_INT(mics_output_folder_commit(&out, &err), taken ? MICS_ERR_IO : MICS_OK);
        mics_output_folder_discard(&out);
        file = fopen(path, "r");
        CHECK(file && fread(text, 1, 4, file) == 4 && fclose(file) == 0);
        CHECK_STR(text, taken ? "mine" : "ours");
        CHECK_INT(unlink(path), 0);
    }
    mics_comm_free(comm);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(numbers_are_in_their_places_for_any_shapes_and_back_again);
    TAP_RUN(a_number_that_is_not_finite_stops_a_conversion_and_names_the_tensor);
    TAP_RUN(only_names_inside_the_folder_are_safe);
    TAP_RUN(a_single_file_does_not_replace_one_that_was_written_meanwhile);
    mics_file_remove_tree(folder, NULL);
    return tap_done();
}
