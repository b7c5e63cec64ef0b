/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_ranks.h - shared by the tests of checkpoints: ranks that are threads save and load numbers
 * that are a function of their index, in a temporary folder.
 */
#ifndef MICS_TESTS_CKPT_RANKS_H
#define MICS_TESTS_CKPT_RANKS_H

#include "base/file.h"
#include "base/philox.h"
#include "ckpt/saver.h"
#include "comm/agree.h"
#include "doc/doc.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>

enum { RANKS = 4, MAX_RANKS = 8, MAX_UNITS = 8 };

static char folder[64];
static struct mics_model *model;
static struct mics_shape
    expert_shape; /* cuts expert units; all zeros: they are cut as the others */

static inline void in_folder(char *buf, const char *name)
{
    snprintf(buf, MICS_PATH_MAX, "%s/%s", folder, name);
}

/* One rank: its numbers, and the fault to inject. */
struct rank {
    struct mics_comm *comm;
    struct mics_plan_choice choice;
    struct mics_layout layouts[MAX_UNITS];
    struct mics_ckpt_layout form;
    uint32_t states, parts, host_ranks;
    uint64_t step;
    bool load, fail_take, spoil;
    const struct mics_tokenizer_files *tokenizer; /* to be saved with it, or NULL */
    uint64_t put, wrong; /* elements that were loaded, and those that differ from what was saved */
    enum mics_status status;
    struct mics_err err;
};

/* What element `element` of a unit's flat vector is, on any rank; padding is 0. */
static inline float value_of(const struct rank *rank, uint32_t unit, uint32_t state,
                             uint64_t element)
{
    if (element >= model->units[unit].count)
        return 0;
    return (float)mics_philox_uniform(rank->step, unit * 4 + state, element);
}

/* Where element i of this rank's shard is in the unit's flat vector. */
static inline uint64_t element_of(const struct rank *rank, uint32_t unit, uint64_t i)
{
    const struct mics_layout *layout = &rank->layouts[unit];
    const uint64_t piece = layout->optim_piece;
    const struct mics_shape *shape = mics_choice_shape_of(&rank->choice, &model->units[unit]);
    const uint32_t index = mics_shape_index(shape, (uint32_t)rank->comm->rank).optim;

    return mics_layout_piece_offset(layout, (uint32_t)(i / piece), piece, index) + i % piece;
}

static inline enum mics_status take(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                    uint64_t count, float *dst, struct mics_err *err)
{
    const struct rank *rank = context;

    if (rank->fail_take && unit == 1)
        return mics_err_set(err, MICS_ERR_DEVICE, "the device is gone");
    for (uint64_t i = 0; i < count; i++)
        dst[i] = value_of(rank, unit, state, element_of(rank, unit, first + i));
    if (rank->spoil && unit == 1)
        dst[count / 2] = NAN;
    return MICS_OK;
}

static inline enum mics_status put(void *context, uint32_t unit, uint32_t state, uint64_t first,
                                   uint64_t count, const float *src, struct mics_err *err)
{
    struct rank *rank = context;

    (void)err;
    for (uint64_t i = 0; i < count; i++) {
        const float expected = value_of(rank, unit, state, element_of(rank, unit, first + i));

        rank->wrong += memcmp(&src[i], &expected, sizeof expected) != 0;
    }
    rank->put += count;
    return MICS_OK;
}

static inline enum mics_status save(struct rank *rank, const struct mics_checkpoint *checkpoint)
{
    struct mics_manifest manifest = {.step = rank->step,
                                     .samples = 10 * rank->step,
                                     .plan = json_pack("{s:s,s:{s:s}}", "kind", "mics.plan",
                                                       "choice", "optimizer",
                                                       mics_optimizer_name(rank->choice.optimizer)),
                                     .training = json_object()};
    const struct mics_keep keep = {0};
    struct mics_saver *saver = NULL;
    struct mics_saved saved;
    bool done = false;
    enum mics_status status = mics_agree(
        rank->comm, mics_saver_new(checkpoint, folder, &keep, &saver, &rank->err), &rank->err);

    if (status == MICS_OK && rank->tokenizer) {
        manifest.tokenizer =
            json_pack("{s:o}", "files", mics_tokenizer_files_to_json(rank->tokenizer));
        mics_saver_add_tokenizer(saver, rank->tokenizer);
    }
    if (status == MICS_OK)
        status = mics_saver_begin(saver, &manifest, &rank->err);
    while (status == MICS_OK && !done)
        status = mics_saver_advance(saver, &done, &saved, &rank->err);
    mics_saver_free(saver);
    mics_manifest_free(&manifest);
    return status;
}

static inline enum mics_status load(struct rank *rank, const struct mics_checkpoint *checkpoint)
{
    char latest[MICS_PATH_MAX];
    json_t *doc = NULL;
    enum mics_status status = mics_path_format(latest, &rank->err, "%s/latest", folder);

    if (status == MICS_OK)
        status = mics_checkpoint_read_manifest(rank->comm, latest, &doc, &rank->err);
    if (status == MICS_OK)
        status = mics_checkpoint_load(checkpoint, latest, doc, &rank->err);
    json_decref(doc);
    return status;
}

static inline void *run_rank(void *context)
{
    struct rank *rank = context;
    const struct mics_checkpoint checkpoint = {
        .comm = rank->comm,
        .host_ranks = rank->host_ranks,
        .form = &rank->form,
        .source = {.take = take, .put = put, .context = rank}};

    rank->status = rank->load ? load(rank, &checkpoint) : save(rank, &checkpoint);
    return NULL;
}

static inline void make_rank(struct rank *rank, struct mics_shape shape, uint32_t segments)
{
    rank->choice = (struct mics_plan_choice){.shapes = MICS_SAME_SHAPE(shape)};
    if (expert_shape.nodes > 0)
        rank->choice.shapes[MICS_UNIT_EXPERT] = expert_shape;
    for (uint32_t u = 0; u < model->unit_count; u++)
        rank->layouts[u] = mics_layout_make(mics_choice_shape_of(&rank->choice, &model->units[u]),
                                            model->units[u].count, segments, MICS_TENSOR_ALIGN);
    rank->form = (struct mics_ckpt_layout){.model = model,
                                           .choice = &rank->choice,
                                           .layouts = rank->layouts,
                                           .states = rank->states ? rank->states : 3,
                                           .parts = rank->parts ? rank->parts : 1};
}

/* Make a block of the model one of experts, cut by this shape; all zeros: undo that. */
static inline void set_experts(struct mics_shape shape)
{
    model->units[2].kind = shape.nodes > 0 ? MICS_UNIT_EXPERT : MICS_UNIT_DENSE;
    expert_shape = shape;
}

/* Run all ranks of the shape; ranks[] holds what differs from a plain save of step 1. */
static inline void run(struct rank *ranks, struct mics_shape shape, uint32_t segments)
{
    const uint32_t count = shape.nodes * shape.per_node;
    struct mics_comm *comms[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    CHECK_INT(mics_comm_new_threads((int)count, comms, NULL), MICS_OK);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i].comm = comms[i];
        make_rank(&ranks[i], shape, segments);
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < count; i++)
        mics_comm_free(comms[i]);
}

static const struct mics_shape mics2 = {2, 2, 2, 2, 2};

static inline void plain_save(uint64_t step)
{
    struct rank ranks[RANKS] = {{.step = step}, {.step = step}, {.step = step}, {.step = step}};

    run(ranks, mics2, 1);
    for (int i = 0; i < RANKS; i++)
        CHECK_INT(ranks[i].status, MICS_OK);
    if (ranks[0].status != MICS_OK)
        printf("# %s\n", ranks[0].err.text);
}

/* Load `step` with this shape: all ranks get the same status, and the numbers are as expected. */
static inline void loads_with(struct mics_shape shape, uint32_t segments, uint32_t states,
                              uint64_t step, enum mics_status status, const char *words)
{
    const uint32_t count = shape.nodes * shape.per_node;
    struct rank ranks[MAX_RANKS] = {{0}};

    for (uint32_t i = 0; i < count; i++)
        ranks[i] = (struct rank){.step = step, .load = true, .states = states};
    run(ranks, shape, segments);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_INT(ranks[i].status, status);
        CHECK(strstr(ranks[i].err.text, words) != NULL);
        CHECK_INT(ranks[i].wrong, 0);
        CHECK((ranks[i].put > 0) == (status == MICS_OK));
    }
    if (!strstr(ranks[0].err.text, words))
        printf("# said: %s\n", ranks[0].err.text);
}

/* Entries of the folder whose name holds `part`. */
static inline int entries(const char *part)
{
    char command[256];
    FILE *pipe;
    int count = -1;

    snprintf(command, sizeof command, "ls -a %s | grep -c -- '%s'", folder, part);
    pipe = popen(command, "r");
    if (fscanf(pipe, "%d", &count) != 1)
        count = -1;
    pclose(pipe);
    return count;
}

static inline void save_as(struct mics_shape shape, uint32_t segments, uint32_t parts,
                           uint64_t step)
{
    struct rank ranks[MAX_RANKS] = {{0}};

    for (int i = 0; i < MAX_RANKS; i++)
        ranks[i] = (struct rank){.step = step, .parts = parts};
    run(ranks, shape, segments);
    CHECK_INT(ranks[0].status, MICS_OK);
}

/* Open the folder, and the small model that is saved there; ends the program where that fails. */
static inline void begin_ckpt(void)
{
    const struct mics_model_config config = {.family = "gpt2",
                                             .name = "tiny",
                                             .n_layer = 2,
                                             .n_embd = 20,
                                             .n_head = 2,
                                             .n_positions = 16,
                                             .vocab_size = 33,
                                             .n_inner = 80,
                                             .layer_norm_epsilon = 1e-5};
    struct mics_err err = {""};

    strcpy(folder, "/tmp/mics-ckpt-XXXXXX");
    if (!mkdtemp(folder) || mics_model_new(&config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
}

static inline int end_ckpt(void)
{
    mics_file_remove_tree(folder, NULL);
    mics_model_free(model);
    return tap_done();
}

#endif
