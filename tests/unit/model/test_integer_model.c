/* SPDX-License-Identifier: Apache-2.0 */
/* The integer model has the properties that the tests of communication rely on. */
#include "integer_model.h"
#include "model_run.h"
#include "tap.h"

static void open_integer(struct model_run *run, uint32_t B, enum mics_recompute recompute)
{
    run_open(run, integer_model_new(),
             (struct mics_batch){.B = B, .T = 6, .recompute = recompute, .train = true}, 5);
    run_fill(run, 2);
}

static bool same_grads(struct model_run *a, struct model_run *b)
{
    for (uint32_t u = 0; u < a->model->unit_count; u++)
        if (memcmp(a->grads[u].data, b->grads[u].data, a->grads[u].bytes) != 0)
            return false;
    return true;
}

static void copy_rows(struct model_run *to, uint32_t to_sample, struct model_run *from,
                      uint32_t from_sample, uint32_t samples)
{
    const uint32_t T = from->batch.T;
    const size_t bytes = sizeof(int32_t) * samples * T;

    memcpy(run_tokens(to) + to_sample * T, run_tokens(from) + from_sample * T, bytes);
    memcpy(run_targets(to) + to_sample * T, run_targets(from) + from_sample * T, bytes);
}

static void gradients_are_small_whole_numbers_and_differ(void)
{
    struct model_run run;
    uint32_t seen[4096] = {0}, distinct = 0;

    open_integer(&run, 4, MICS_RECOMPUTE_NONE);
    run_step(&run);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        for (uint64_t i = 0; i < run.model->units[u].count; i++) {
            const float grad = run_grads(&run, u)[i];

            CHECK(grad == floorf(grad) && fabsf(grad) <= 4 * 6);
            distinct += seen[(int)grad + 24]++ == 0;
        }
    CHECK(distinct > 12);
    run_close(&run);
}

static void the_loss_is_a_whole_number_and_masked_rows_give_none(void)
{
    struct model_run run;

    open_integer(&run, 4, MICS_RECOMPUTE_NONE);
    const double loss = run_step(&run);
    CHECK(loss > 0 && loss == floor(loss));
    for (uint32_t i = 0; i < run.batch.B * run.batch.T; i++)
        run_targets(&run)[i] = -1;
    CHECK(run_step(&run) == 0);
    run_close(&run);
}

static void any_split_into_micro_batches_gives_the_same_bits(void)
{
    for (uint32_t size = 1; size <= 3; size++) {
        struct model_run whole, part;
        double loss = 0;

        open_integer(&whole, 6, MICS_RECOMPUTE_NONE);
        open_integer(&part, size, MICS_RECOMPUTE_NONE);
        for (uint32_t at = 6; at > 0; at -= size) { /* the last samples first */
            copy_rows(&part, 0, &whole, at - size, size);
            loss += run_step(&part);
        }
        CHECK(run_step(&whole) == loss);
        CHECK(same_grads(&whole, &part));
        run_close(&whole);
        run_close(&part);
    }
}

static void recomputing_changes_no_bit_of_the_integer_model(void)
{
    for (int level = MICS_RECOMPUTE_SELECTIVE; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct model_run keep, again;

        open_integer(&keep, 3, MICS_RECOMPUTE_NONE);
        open_integer(&again, 3, (enum mics_recompute)level);
        CHECK(run_step(&keep) == run_step(&again));
        CHECK(same_grads(&keep, &again));
        CHECK((again.saved[1].bytes < keep.saved[1].bytes) == (level == MICS_RECOMPUTE_FULL));
        run_close(&keep);
        run_close(&again);
    }
}

/* A stale parameter: the last bit of one element of each tensor in turn. */
static void every_parameter_is_seen_in_the_gradients_of_its_unit(void)
{
    struct model_run right, stale;

    open_integer(&right, 2, MICS_RECOMPUTE_NONE);
    open_integer(&stale, 2, MICS_RECOMPUTE_NONE);
    run_step(&right);
    for (uint32_t u = 0; u < right.model->unit_count; u++)
        for (uint32_t i = 0; i < right.model->units[u].tensor_count; i++) {
            const struct mics_tensor *tensor = &right.model->units[u].tensors[i];
            float *param = run_params(&stale, u) + tensor->offset + tensor->count - 1;
            const float kept = *param;

            *param = nextafterf(kept, 100);
            run_zero_grads(&stale);
            run_step(&stale);
            CHECK(!same_grads(&right, &stale));
            *param = kept;
        }
    run_zero_grads(&stale);
    run_step(&stale);
    CHECK(same_grads(&right, &stale));
    run_close(&right);
    run_close(&stale);
}

/* Parameters that change between forward and backward, as when a slot is used for another unit. */
static void a_parameter_that_changes_before_backward_is_seen(void)
{
    struct model_run right, wrong;

    open_integer(&right, 2, MICS_RECOMPUTE_NONE);
    open_integer(&wrong, 2, MICS_RECOMPUTE_NONE);
    run_step(&right);
    for (uint32_t i = 0; i < wrong.model->stage_count; i++) {
        const struct mics_pass pass = run_pass(&wrong, i);

        wrong.model->ops->forward(&pass, i);
        run_sync(&wrong);
    }
    run_params(&wrong, 2)[0] += 1;
    for (uint32_t i = wrong.model->stage_count - 1; i-- > 0;) {
        const struct mics_pass pass = run_pass(&wrong, i);

        wrong.model->ops->backward(&pass, i);
    }
    run_sync(&wrong);
    CHECK(!same_grads(&right, &wrong));
    run_close(&right);
    run_close(&wrong);
}

static void every_token_and_target_is_seen(void)
{
    struct model_run right, wrong;

    open_integer(&right, 2, MICS_RECOMPUTE_NONE);
    open_integer(&wrong, 2, MICS_RECOMPUTE_NONE);
    run_step(&right);
    for (uint32_t i = 0; i < 2 * right.batch.B * right.batch.T; i++) {
        int32_t *word = i % 2 ? run_tokens(&wrong) + i / 2 : run_targets(&wrong) + i / 2;

        *word += 1;
        run_zero_grads(&wrong);
        run_step(&wrong);
        CHECK(!same_grads(&right, &wrong));
        *word -= 1;
    }
    run_close(&right);
    run_close(&wrong);
}

static void units_have_awkward_sizes(void)
{
    struct model_run run;
    bool one = false, three = false, odd = false;

    open_integer(&run, 1, MICS_RECOMPUTE_NONE);
    for (uint32_t u = 0; u < run.model->unit_count; u++)
        for (uint32_t i = 0; i < run.model->units[u].tensor_count; i++) {
            const uint64_t count = run.model->units[u].tensors[i].count;

            one |= count == 1;
            three |= count == 3;
            odd |= count > 64 && count % 2 == 1;
        }
    CHECK(one && three && odd);
    CHECK(run.model->units[1].count != run.model->units[2].count);
    run_close(&run);
}

static void open_staged(struct model_run *run, bool fused, enum mics_recompute recompute)
{
    const struct mics_model_config config = {.family = "integer",
                                             .name = "integer",
                                             .n_layer = 2,
                                             .n_embd = 5,
                                             .n_head = 1,
                                             .n_positions = 64,
                                             .vocab_size = 11,
                                             .n_inner = 20,
                                             .layer_norm_epsilon = 1e-5};

    run_open(run, integer_model_new_staged(&config, fused),
             (struct mics_batch){.B = 3, .T = 6, .recompute = recompute, .train = true}, 5);
    run_fill(run, 2);
}

/* Gradients of all tensors in the order of their numbers, without padding. */
static uint64_t list_grads(struct model_run *run, float *out)
{
    uint64_t at = 0;

    for (uint32_t u = 0; u < run->model->unit_count; u++)
        for (uint32_t i = 0; i < run->model->units[u].tensor_count; i++) {
            const struct mics_tensor *tensor = &run->model->units[u].tensors[i];

            memcpy(out + at, run_grads(run, u) + tensor->offset, tensor->count * sizeof *out);
            at += tensor->count;
        }
    return at;
}

static void a_block_of_three_stages_computes_what_one_stage_computes(void)
{
    for (int level = 0; level < MICS_RECOMPUTE_LEVELS; level++) {
        struct model_run split, whole;
        static float a[4096], b[4096];

        open_staged(&split, false, (enum mics_recompute)level);
        open_staged(&whole, true, MICS_RECOMPUTE_NONE);
        CHECK_INT(split.model->stage_count, 8);
        CHECK_INT(split.model->unit_count, 5);
        CHECK(run_step(&split) == run_step(&whole));
        CHECK_INT(list_grads(&split, a), split.model->param_count);
        CHECK_INT(list_grads(&whole, b), split.model->param_count);
        CHECK(memcmp(a, b, split.model->param_count * sizeof *a) == 0);
        CHECK(split.saved[1].bytes == 0 || level != MICS_RECOMPUTE_FULL);
        run_close(&split);
        run_close(&whole);
    }
}

int main(void)
{
    TAP_RUN(gradients_are_small_whole_numbers_and_differ);
    TAP_RUN(the_loss_is_a_whole_number_and_masked_rows_give_none);
    TAP_RUN(any_split_into_micro_batches_gives_the_same_bits);
    TAP_RUN(recomputing_changes_no_bit_of_the_integer_model);
    TAP_RUN(every_parameter_is_seen_in_the_gradients_of_its_unit);
    TAP_RUN(a_parameter_that_changes_before_backward_is_seen);
    TAP_RUN(every_token_and_target_is_seen);
    TAP_RUN(units_have_awkward_sizes);
    TAP_RUN(a_block_of_three_stages_computes_what_one_stage_computes);
    return tap_done();
}
