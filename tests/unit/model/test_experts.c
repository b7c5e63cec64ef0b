/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts on the host device: sizes, gradients through the router, uneven loads. */
#include "model_gradients.h"
#include "tap.h"

#include "host/kernels.h"
#include "model/config.h"

#include <math.h>

/* No size of a layer divides another; no matrix of an expert is a multiple of the alignment. */
static const struct mics_model_config tiny = {
    .family = "qwen3_moe",
    .name = "tiny",
    .n_layer = 3,
    .n_embd = 10,
    .n_head = 4,
    .n_positions = 9,
    .vocab_size = 13,
    .n_inner = 19,
    .layer_norm_epsilon = 1e-5,
    .n_kv_head = 2,
    .head_dim = 6,
    .rope_theta = 100,
    .untied = true,
    .n_expert = 4,
    .n_expert_used = 2,
    .expert_inner = 7,
    .dense_layers = {2},
};

static struct mics_model *model_of(const struct mics_model_config *config)
{
    struct mics_model *model = NULL;
    struct mics_err err = {""};

    if (mics_model_new(config, &model, &err) != MICS_OK) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return model;
}

static void open_config(struct model_run *run, const struct mics_model_config *config, uint32_t B,
                        enum mics_recompute recompute)
{
    run_open(run, model_of(config),
             (struct mics_batch){.B = B, .T = 7, .recompute = recompute, .train = true}, 3);
    run_shake(run);
    run_fill(run, 12);
}

static void released_models_have_their_total_and_active_parameters(void)
{
    static const struct {
        const char *name;
        double total, active; /* 10^9 */
    } published[] = {
        {"mixtral-8x7b", 46.70, 12.88},     {"olmoe-1b-7b", 6.92, 1.28},
        {"qwen1.5-moe-a2.7b", 14.32, 2.69}, {"qwen2-57b-a14b", 57.41, 14.25},
        {"qwen3-30b-a3b", 30.53, 3.35},     {"qwen3-235b-a22b", 235.09, 22.19},
    };

    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct mics_model *model = model_of(mics_preset_find(published[i].name));

        CHECK_NEAR((double)model->param_count / 1e9, published[i].total, 0.005);
        CHECK_NEAR((double)mics_model_active_params(model) / 1e9, published[i].active, 0.006);
        mics_model_free(model);
    }
    struct mics_model *model = model_of(mics_preset_find("qwen3-30b-a3b"));
    CHECK_NEAR(mics_model_flops_per_token(model, 4096) / 1e9, 23.0, 0.1);
    mics_model_free(model);
}

/* The same sizes, with an expert that all tokens share. */
static struct mics_model_config shared_config(void)
{
    struct mics_model_config config = tiny;

    snprintf(config.family, sizeof config.family, "qwen2_moe");
    config.shared_inner = 11;
    config.attention_bias = true;
    return config;
}

static bool is_shared(const struct mics_tensor *tensor)
{
    return strstr(tensor->name, ".shared_expert") != NULL;
}

/* It belongs to the dense unit of layers with experts, and to no other. */
static void a_shared_expert_is_part_of_the_dense_unit(void)
{
    const struct mics_model_config config = shared_config();
    const uint64_t matrix = (uint64_t)config.n_embd * config.shared_inner;
    struct mics_model *model = model_of(&config);

    for (uint32_t i = 0; i < model->stage_count; i++) {
        const struct mics_stage *stage = &model->stages[i];
        const struct mics_unit *unit = &model->units[stage->unit];
        const bool sparse = stage->kind == MICS_STAGE_BLOCK &&
                            mics_model_is_sparse(model, stage->layer) && stage->part == 0;
        uint64_t count = 0;

        for (uint32_t j = 0; j < unit->tensor_count; j++)
            if (is_shared(&unit->tensors[j])) {
                CHECK(unit->tensors[j].decay);
                count += unit->tensors[j].count;
            }
        CHECK_INT(count, sparse ? 3 * matrix + config.n_embd : 0);
    }
    mics_model_free(model);
}

/* In a group whose size divides the number of experts, the cut is between experts. */
static void the_matrices_of_an_expert_lie_together(void)
{
    struct mics_model *model = model_of(&tiny);
    const struct mics_unit *unit = &model->units[model->stages[2].unit];
    const uint64_t stride = unit->tensors[MICS_EXPERT_TENSORS].offset;

    CHECK_INT(unit->kind, MICS_UNIT_EXPERT);
    CHECK_INT(unit->tensor_count, 4 * MICS_EXPERT_TENSORS);
    CHECK_INT(stride % MICS_TENSOR_ALIGN, 0);
    for (uint32_t i = 0; i < unit->tensor_count; i++)
        CHECK_INT(unit->tensors[i].offset,
                  i / MICS_EXPERT_TENSORS * stride +
                      i % MICS_EXPERT_TENSORS * (uint64_t)tiny.n_embd * tiny.expert_inner);
    CHECK_STR(unit->tensors[7].name, "layers.0.mlp.experts.2.up_proj.weight");
    mics_model_free(model);
}

/* The derivative of the loss along a direction in the parameters of a unit, from its gradient and
 * by a central difference; relative to the length of the gradient. Steps are so small that no token
 * changes its experts. */
static double direction_error(const struct mics_model_config *config, uint32_t unit)
{
    const double h = 5e-4;
    struct model_run run;
    double loss[2], slope = 0, length = 0;
    uint32_t state = 1;

    open_config(&run, config, 1, MICS_RECOMPUTE_SELECTIVE);
    run_step(&run);
    const uint64_t count = run.model->units[unit].count;
    float *direction = malloc(count * sizeof *direction), *kept = malloc(count * sizeof *kept);

    memcpy(kept, run_params(&run, unit), count * sizeof *kept);
    for (uint64_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        direction[i] = state >> 31 ? 1 : -1;
        slope += (double)run_grads(&run, unit)[i] * (double)direction[i];
        length += pow((double)run_grads(&run, unit)[i], 2);
    }
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; i < count; i++)
            run_params(&run, unit)[i] = kept[i] + (float)(side ? -h : h) * direction[i];
        loss[side] = run_step(&run);
    }
    free(direction);
    free(kept);
    run_close(&run);
    return fabs((loss[0] - loss[1]) / (2 * h) - slope) / sqrt(length);
}

static void check_directions(const struct mics_model_config *config)
{
    struct mics_model *model = model_of(config);
    const uint32_t units = model->unit_count;

    mics_model_free(model);
    for (uint32_t u = 0; u < units; u++) {
        const double error = direction_error(config, u);

        if (!(error < 0.01))
            printf("# unit %u, %u of %u experts: %.2g\n", u, config->n_expert_used,
                   config->n_expert, error);
        CHECK(error < 0.01);
    }
}

static void gradients_through_the_router_are_those_of_finite_differences(void)
{
    static const uint32_t used[] = {1, 2, 4};
    struct mics_model_config config = tiny;

    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        for (int kind = MICS_BALANCE_NONE; kind < MICS_BALANCE_KINDS; kind++) {
            config.n_expert_used = used[i];
            config.norm_topk_prob = used[i] == 2;
            config.balance = (struct mics_balance){
                .kind = (enum mics_balance_kind)kind,
                .coefficient = kind == MICS_BALANCE_NONE ? 0 : 0.7,
                .z_coefficient = used[i] == 4 ? 0.1 : 0,
            };
            check_directions(&config);
        }
}

static void gradients_of_a_shared_expert_are_those_of_finite_differences(void)
{
    struct mics_model_config config = shared_config();

    check_directions(&config);
    config.balance = (struct mics_balance){MICS_BALANCE_MICRO_BATCH, 0.7, 0.1};
    config.norm_topk_prob = true;
    check_directions(&config);
}

/* Recomputation gives the same bits, and takes less memory the more it computes again. */
static void a_shared_expert_is_computed_again_as_it_was(void)
{
    struct mics_model_config config = shared_config();
    struct model_run none;
    uint64_t saved = UINT64_MAX;

    config.balance = (struct mics_balance){MICS_BALANCE_SEQUENCE, 0.7, 0.1};
    open_config(&none, &config, 2, MICS_RECOMPUTE_NONE);
    const double loss = run_step(&none);
    for (int level = MICS_RECOMPUTE_NONE; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct mics_stage_bytes bytes;
        struct model_run again;

        open_config(&again, &config, 2, (enum mics_recompute)level);
        CHECK_NEAR(run_step(&again), loss, 0);
        CHECK_NEAR(grads_differ(&none, &again), 0, 0);
        again.model->ops->stage_bytes(again.model, &again.batch, 1, &bytes);
        CHECK(bytes.saved < saved);
        saved = bytes.saved;
        run_close(&again);
    }
    run_close(&none);
}

/* An expert takes ceil(F 7 k / 4) of 7 rows. What it drops adds nothing, and leaves nothing of what
 * the gradients of weights were before. */
static void rows_beyond_a_capacity_are_dropped(void)
{
    static const double capacities[] = {0.3, 0.7, 1};
    struct mics_model_config config = tiny;

    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        struct mics_batch batch = {.B = 1, .T = 7};
        struct model_run run;

        config.expert_capacity = capacities[i];
        config.norm_topk_prob = i == 1;
        struct mics_model *model = model_of(&config);
        CHECK_INT(mics_model_expert_rows(model, &batch), (uint32_t)ceil(capacities[i] * 3.5));
        mics_model_free(model);
        check_directions(&config);
        /* Fewer rows than in a model that drops nothing: another loss. */
        open_config(&run, &config, 1, MICS_RECOMPUTE_NONE);
        const double dropping = run_step(&run);
        run_close(&run);
        config.expert_capacity = 0;
        open_config(&run, &config, 1, MICS_RECOMPUTE_NONE);
        CHECK(i == 2 || fabs(run_step(&run) - dropping) > 1e-5);
        run_close(&run);
    }
}

/* Equal scores: the experts of lower index are chosen, by all tokens. */
static void experts_without_tokens_have_gradients_of_zero(void)
{
    struct mics_model_config config = tiny;

    for (uint32_t inner = 7; inner <= 32; inner += 25) {
        struct model_run run;

        config.expert_inner = inner;
        open_config(&run, &config, 2, MICS_RECOMPUTE_NONE);
        const uint32_t stage = 1, u = run.model->stages[stage].unit;
        const struct mics_unit *dense = &run.model->units[u], *unit = dense + 1;

        for (uint32_t i = 0; i < dense->tensor_count; i++)
            if (strstr(dense->tensors[i].name, "mlp.gate"))
                memset(run_params(&run, u) + dense->tensors[i].offset, 0,
                       dense->tensors[i].count * sizeof(float));
        run.first = true;
        memset(run_grads(&run, u + 1), 0xff, unit->written_count * sizeof(float));
        CHECK_INT(unit->written_count > 0, inner == 32);
        CHECK(isfinite(run_step(&run)));
        for (uint32_t i = 0; i < unit->tensor_count; i++) {
            const float *grad = run_grads(&run, u + 1) + unit->tensors[i].offset;
            const double most = largest(grad, unit->tensors[i].count);

            CHECK(i / MICS_EXPERT_TENSORS < config.n_expert_used ? most > 1e-6
                                                                 : most >= 0 && most <= 0);
            for (uint64_t j = 0; j < unit->tensors[i].count; j++)
                CHECK(isfinite(grad[j]));
        }
        run_close(&run);
    }
}

/* The loss of a model whose routers find all experts equal. *counted: its targets. */
static double level_loss(const struct mics_balance *balance, uint32_t *counted)
{
    struct mics_model_config config = tiny;
    struct model_run run;

    config.balance = *balance;
    open_config(&run, &config, 2, MICS_RECOMPUTE_NONE);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        for (uint32_t i = 0; i < run.model->units[u].tensor_count; i++)
            if (strstr(run.model->units[u].tensors[i].name, "mlp.gate."))
                memset(run_params(&run, u) + run.model->units[u].tensors[i].offset, 0,
                       run.model->units[u].tensors[i].count * sizeof(float));
    *counted = 0;
    for (uint32_t i = 0; i < run.batch.B * run.batch.T; i++)
        *counted += run_targets(&run)[i] >= 0;
    const double loss = run_step(&run);
    run_close(&run);
    return loss;
}

/* Probabilities of 1 / E, and k experts that have all tokens: the auxiliary loss is k; a router's
 * z-loss is log(E)^2. */
static void losses_of_balance_have_their_size(void)
{
    const uint32_t sparse = tiny.n_layer - 1;
    const double z = log(tiny.n_expert) * log(tiny.n_expert);
    uint32_t counted = 0;
    const double none = level_loss(&(struct mics_balance){MICS_BALANCE_NONE, 0, 0}, &counted);

    for (int kind = MICS_BALANCE_MICRO_BATCH; kind < MICS_BALANCE_KINDS; kind++) {
        const struct mics_balance balance = {(enum mics_balance_kind)kind, 0.5, 0.25};
        const double want = counted * (0.5 * tiny.n_expert_used + 0.25 * sparse * z);

        CHECK_NEAR(level_loss(&balance, &counted) - none, want, 1e-5 * want);
    }
}

/* A micro-batch is the same as its sequences one by one, but for the loss over a micro-batch. */
static void losses_by_sequence_do_not_depend_on_the_micro_batch(void)
{
    struct mics_model_config config = tiny;
    double loss[2];

    for (int kind = MICS_BALANCE_MICRO_BATCH; kind < MICS_BALANCE_KINDS; kind++) {
        struct model_run whole, part;

        config.balance = (struct mics_balance){(enum mics_balance_kind)kind, 2, 0.1};
        open_config(&whole, &config, 4, MICS_RECOMPUTE_NONE);
        open_config(&part, &config, 1, MICS_RECOMPUTE_NONE);
        loss[1] = run_in_parts(&whole, &part);
        loss[0] = run_step(&whole);
        const double differ = grads_differ(&whole, &part);
        if (kind == MICS_BALANCE_SEQUENCE) {
            CHECK_NEAR(loss[0], loss[1], 1e-5 * loss[0]);
            CHECK(differ < 1e-5);
        } else {
            CHECK(fabs(loss[0] - loss[1]) > 1e-3);
            CHECK(differ > 1e-4);
        }
        run_close(&whole);
        run_close(&part);
    }
}

static void the_first_pass_writes_the_gradients_of_experts(void)
{
    struct mics_model_config config = tiny;
    struct model_run run, zeroed;

    config.expert_inner = 320;
    open_config(&run, &config, 1, MICS_RECOMPUTE_NONE);
    open_config(&zeroed, &config, 1, MICS_RECOMPUTE_NONE);
    check_first_pass(&run, &zeroed);
}

/* Two layers with experts, of 10 rows each, two experts for each row. */
static void stats_say_how_even_the_load_is(void)
{
    struct mics_model *model = model_of(&tiny);
    const double stats[] = {6, 3, 12, 5, 5, 5, 5, 8, 10, 4, 0, 6}, none[12] = {0};
    struct mics_router_summary summary;

    CHECK_INT(model->stat_count, sizeof stats / sizeof *stats);
    mics_model_router_summary(model, stats, 4, 10, 2, &summary);
    CHECK_NEAR(summary.aux_loss, 1.5, 0);
    CHECK_NEAR(summary.z_loss, 0.75, 0);
    CHECK_NEAR(summary.entropy, 1, 0);
    CHECK_NEAR(summary.load, 2, 0);
    CHECK_NEAR(summary.mean_load, 1.5, 0);
    CHECK_NEAR(summary.rank_load, (1 + 1.4) / 2, 1e-12);
    CHECK_NEAR(summary.dropped, 0, 0);
    CHECK_INT(summary.layers, 2);
    CHECK_INT(summary.idle_experts, 1);
    CHECK_NEAR(mics_model_layer_load(model, stats, 0), 1, 0);
    CHECK_NEAR(mics_model_layer_load(model, stats, 1), 2, 0);
    mics_model_router_summary(model, stats, 4, 16, 3, &summary); /* no equal parts */
    CHECK_NEAR(summary.rank_load, 0, 0);
    CHECK_NEAR(summary.dropped, 24.0 / 64, 0); /* of 16 rows in each layer */
    mics_model_router_summary(model, none, 0, 0, 4, &summary);
    CHECK_NEAR(summary.rank_load, 0, 0);
    CHECK_NEAR(summary.aux_loss + summary.z_loss + summary.entropy + summary.load, 0, 0);
    mics_model_free(model);
}

/* The rounds of a layer are those in which the operation on the device finds rows. */
static void rounds_are_those_that_any_rank_needs(void)
{
    enum { RANKS = 2, ROWS = 12, ROUNDS = 3 };
    struct mics_model_config config = tiny;
    uint32_t seen[ROUNDS + 1] = {0}, bits = 1;

    config.n_expert = 8;
    struct mics_model *model = model_of(&config);
    const struct mics_batch batch = {.B = 1, .T = ROWS, .train = true, .expert_ranks = RANKS};
    const struct mics_dispatch dispatch = mics_model_dispatch(model, &batch);
    const uint32_t E = config.n_expert, most = ROWS * config.n_expert_used;
    CHECK_INT(dispatch.rounds, 2);
    for (int i = 0; i < 200; i++) {
        uint32_t offsets[RANKS][8 + 1], order[ROWS * 8] = {0}, rounds = 0;
        uint32_t row[64], assignment[64], begins[8 + 1], received[64], active;

        for (uint32_t rank = 0; rank < RANKS; rank++)
            for (uint32_t e = 0, at = 0; e <= E; e++) {
                bits = bits * 1664525 + 1013904223;
                offsets[rank][e] = at;
                at += i == 0 ? 0 : (bits >> 16) % (most - at + 1) / (1 + bits % 3);
            }
        CHECK(RANKS * dispatch.slots <= 64);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            mics_host_dispatch_round(
                NULL, &(struct mics_args_dispatch_round){row, assignment, begins, received, &active,
                                                         offsets[0], order, RANKS, 1, E,
                                                         dispatch.slots, round});
            rounds += active;
        }
        const uint32_t want = rounds > 0 ? rounds : 1;
        CHECK_INT(mics_model_dispatch_rounds(model, &batch, offsets[0]), want);
        seen[rounds]++;
    }
    CHECK(seen[0] > 0 && seen[1] > 20 && seen[2] > 20);
    mics_model_free(model);
}

int main(void)
{
    TAP_RUN(rounds_are_those_that_any_rank_needs);
    TAP_RUN(stats_say_how_even_the_load_is);
    TAP_RUN(released_models_have_their_total_and_active_parameters);
    TAP_RUN(the_matrices_of_an_expert_lie_together);
    TAP_RUN(a_shared_expert_is_part_of_the_dense_unit);
    TAP_RUN(gradients_of_a_shared_expert_are_those_of_finite_differences);
    TAP_RUN(a_shared_expert_is_computed_again_as_it_was);
    TAP_RUN(gradients_through_the_router_are_those_of_finite_differences);
    TAP_RUN(rows_beyond_a_capacity_are_dropped);
    TAP_RUN(experts_without_tokens_have_gradients_of_zero);
    TAP_RUN(losses_of_balance_have_their_size);
    TAP_RUN(losses_by_sequence_do_not_depend_on_the_micro_batch);
    TAP_RUN(the_first_pass_writes_the_gradients_of_experts);
    return tap_done();
}
